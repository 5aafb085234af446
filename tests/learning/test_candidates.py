"""Candidates of policies that do not know their propensity: exact, found again, folded."""

import json
import zipfile
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import tacit
from tacit.core import dispatch
from tacit.core.arrays import leaves
from tacit.evaluate import IPS, Table, off_policy
from tacit.learning.merging import merge_states
from tacit.policies.base import Outcome, registry
from tacit.policies.spec import is_compatible

pytestmark = pytest.mark.interpreted

ARMS = 3
# One Gibbs sweep in place of ten: these tests run plain Python.
UNKNOWN = [
    replace(policy, sweeps=1) if isinstance(policy, tacit.policies.PolyaGammaTS) else policy
    for policy in (kind.example(ARMS, 2) for kind in dispatch.list_parts(registry, "policies"))
    if policy.shows != "slate" and not policy.knows_propensity
]
FEATURES = np.array([[0.3, -1.0], [1.0, 0.2], [-0.4, 0.9]])
OFFER = {"relevance": FEATURES.tolist(), "examination": FEATURES[::-1].tolist()}


def impression_of(policy):
    given = zip((FEATURES, FEATURES[::-1].copy()), policy.feature_dims, strict=True)
    blocks = (rows[:, :dim] for rows, dim in given)
    return tacit.Impression(np.arange(ARMS), np.zeros(policy.context_dim), *blocks)


def taught(policy, rounds=6, seed=2):
    """Return a state that has learned, by the kernels as plain Python."""
    kind, state, rng = type(policy), policy.init(1), np.random.default_rng(seed)
    impression, action = impression_of(policy), np.zeros(policy.action_width, np.int64)
    for _ in range(rounds):
        dispatch.observe(policy.params, state, 0, impression)
        dispatch.decide(policy.params, state, 0, impression, rng, action)
        shown = dispatch.shown_in(policy.params, action)
        kind.learn(policy.params, state, 0, Outcome(impression, shown, float(rng.random() < 0.4), np.nan))
    return state


def chances(policy, state):
    """Return the propensities of all that may be shown."""
    shown = range(ARMS) if policy.shows == "arm" else list(np.ndindex(ARMS, ARMS))
    impression = impression_of(policy)
    return {each: type(policy).propensity(policy.params, state, 0, impression, each) for each in shown}


def test_those_that_do_not_know_their_propensity_are_found():
    names = {type(policy).__name__ for policy in UNKNOWN}
    assert {"LaplaceEC", "LinTS", "LogisticTS", "PolyaGammaTS", "DoubleThompsonSampling"} <= names
    assert not names & {"RMED1", "ProbationBandit", "Candidates", "ExplorationFloor"}


@pytest.mark.parametrize("floor", [False, True])
@pytest.mark.parametrize("policy", UNKNOWN, ids=lambda policy: type(policy).__name__)
def test_the_propensity_is_the_frequency_of_what_is_shown(policy, floor):
    """From one state; of some 200 binomial counts, each at 6 sigma, none fails by chance with
    probability above 1e-6. Choosing and asking leave the state as it was."""
    policy = tacit.ExplorationFloor(policy, 0.3) if floor else tacit.policies.Candidates(policy)
    state, rng, draws = taught(policy), np.random.default_rng(4), 1500
    before = [array.tobytes() for _, array in leaves(state)]
    told = chances(policy, state)
    assert sum(told.values()) == pytest.approx(1.0)
    if floor:
        assert min(told.values()) >= 0.3 / len(told) - 1e-12
    else:
        assert all(chance * 16 in range(17) for chance in told.values())
    action = np.zeros(policy.action_width, np.int64)
    seen = dict.fromkeys(told, 0)
    for _ in range(draws):
        dispatch.decide(policy.params, state, 0, impression_of(policy), rng, action)
        seen[int(action[0]) if policy.shows == "arm" else tuple(action.tolist())] += 1
    for each, chance in told.items():
        assert abs(seen[each] - draws * chance) <= 6 * np.sqrt(draws * chance * (1 - chance)) + 1e-9, each
    assert before == [array.tobytes() for _, array in leaves(state)]


@pytest.mark.parametrize(
    "policy",
    [tacit.policies.LinTS(2, 2), tacit.policies.baselines.DoubleThompsonSampling(3)],
    ids=lambda policy: policy.label,
)
def test_over_all_pasts_it_shows_what_the_policy_alone_does(policy):
    """Level 1e-6 of each two-sample test."""
    wrapped, rng, draws = tacit.policies.Candidates(policy, draws=4), np.random.default_rng(4), 3000
    state, impression = taught(wrapped), impression_of(policy)
    seen = {}
    for i in range(draws):
        state.past.code[0] = i
        for place, kind, params, of in (
            (0, type(wrapped), wrapped.params, state),
            (1, type(policy), policy.params, state.policy),
        ):
            seen.setdefault(kind.choose(params, of, 0, impression, rng), [0, 0])[place] += 1
    table = np.array(list(seen.values())).T
    assert stats.chi2_contingency(table[:, table.sum(axis=0) > 10]).pvalue > 1e-6


@pytest.fixture(scope="module")
def floor():
    """Return a policy that all tests below compile but once."""
    return tacit.ExplorationFloor(tacit.policies.LogisticTS(2, 2), epsilon=0.2)


@pytest.mark.compiled
def test_compiled_and_plain_kernels_agree(floor):
    learner = tacit.Learner(floor, seed=np.random.SeedSequence(11))
    kind, params, state = type(floor), floor.params, floor.init(1)
    rng, outcomes = np.random.Generator(np.random.PCG64(11)), np.random.default_rng(3)
    impression = impression_of(floor)
    for _ in range(60):
        decision = learner.choose("query", **OFFER)
        dispatch.observe(params, state, 0, impression)
        arm = kind.choose(params, state, 0, impression, rng)
        assert decision.arm == arm
        told = kind.propensity(params, state, 0, impression, arm)
        assert decision.propensity == pytest.approx(told, rel=1e-12)
        found = learner.probabilities("query", **OFFER)
        assert found[arm] == decision.propensity
        assert found.sum() == pytest.approx(1.0)
        reward = float(outcomes.random() < 0.4)
        learner.learn(decision, reward)
        kind.learn(params, state, 0, Outcome(impression, arm, reward, np.nan))
    assert learner.state.past.code[0] == state.past.code[0]


def test_what_the_policy_learns_is_what_it_learns_alone(floor):
    """Told the same decisions, it has the same belief to the bit."""
    with pytest.warns(tacit.errors.AssumptionWarning):
        bare = tacit.ExplorationFloor(floor.policy, epsilon=0.2, draws=0)
    learner, alone = tacit.Learner(floor, seed=1), tacit.Learner(bare, seed=1)
    rng = np.random.default_rng(2)
    for _ in range(50):
        decision = learner.choose("query", **OFFER)
        alone.choose("query", **OFFER)
        reward = float(rng.random() < 0.5)
        learner.learn(decision, reward)
        alone.learn(decision._replace(propensity=None), reward)
    assert learner.state.policy.mean.tobytes() == alone.state.mean.tobytes()
    assert learner.posterior("query").mean.tobytes() == alone.posterior("query").mean.tobytes()


@pytest.mark.compiled
def test_a_log_of_it_answers_for_other_policies_without_bias(floor):
    """Five logs of 1500 rounds: IPS of each arm is within 2 standard errors of the truth where it
    should be in 95 %; of 15 at most 4 may be beyond (probability 0.005), none beyond 5."""
    truth, names = np.array([0.25, 0.5, 0.35]), ["a", "b", "c"]
    beyond = []
    for seed in range(5):
        learner, rng = tacit.Learner(floor, seed=seed), np.random.default_rng(100 + seed)
        rows = []
        for _ in range(1500):
            decision = learner.choose("query", **OFFER)
            reward = float(rng.random() < truth[decision.arm])
            learner.learn(decision, reward)
            rows.append((names[decision.arm], decision.propensity, reward))
        arm, propensity, reward = zip(*rows, strict=True)
        log = pa.table(
            {
                "timestamp": ["2017-07-04T12:00:00Z"] * len(rows),
                "decision_id": [str(i) for i in range(len(rows))],
                "placement": ["home"] * len(rows),
                "key": ["query"] * len(rows),
                "arms": [names] * len(rows),
                "arm": arm,
                "propensity": propensity,
                "reward": reward,
            }
        )
        for name, expected in zip(names, truth, strict=True):
            (found,) = off_policy(Table({name: 1.0}), log, [IPS()]).estimates
            beyond.append(abs(found.value - expected) / found.standard_error)
    assert np.sum(np.array(beyond) > 2.0) <= 4
    assert max(beyond) < 5.0


def test_a_snapshot_of_version_0_1_goes_on_without_candidates(floor, tmp_path):
    """That version knew no ``draws``: its state is that of the policy alone."""
    with pytest.warns(tacit.errors.AssumptionWarning):
        before = tacit.ExplorationFloor(floor.policy, epsilon=0.2, draws=0)
    learner = tacit.Learner(before, seed=4)
    learner.learn(learner.choose("query", **OFFER), 1.0)
    learner.save(tmp_path / "new.tacit")
    with zipfile.ZipFile(tmp_path / "new.tacit") as new, zipfile.ZipFile(tmp_path / "old.tacit", "w") as old:
        for name in new.namelist():
            content = new.read(name)
            if name == "header.json":
                header = json.loads(content)
                del header["policy"]["draws"]
                content = json.dumps(header).encode()
            old.writestr(name, content)
    with pytest.warns(tacit.errors.AssumptionWarning):
        again = tacit.Learner.load(tmp_path / "old.tacit")
    assert again.policy == before
    assert again.state.mean.tobytes() == learner.state.mean.tobytes()[: again.state.mean.nbytes]
    decision = again.choose("query", **OFFER)
    assert (decision.arm, decision.propensity) == (learner.choose("query", **OFFER).arm, None)
    assert is_compatible(floor, before)
    assert not is_compatible(before, floor)


def test_merged_learners_keep_their_own_past(floor):
    base, one, two = (taught(floor, rounds, seed) for rounds, seed in ((2, 1), (5, 1), (7, 1)))
    merged = merge_states(base, [one, two])
    assert merged.past.code.tolist() == base.past.code.tolist()
    alone = merge_states(base.policy, [one.policy, two.policy])
    assert merged.policy.mean.tobytes() == alone.mean.tobytes()
