"""What is known to have been seen, or not: learned by policies of examination, in the log, by a feed."""

import math
import signal

import numpy as np
import pytest
from harness import Client as Requests
from harness import Clock, as_after_a_crash, folded, learned, recovered, served, started, stopped, with_home
from placement_access import count_feedback, decide, get_config, get_learner

import tacit
from tacit.client import Client, Impression
from tacit.feed.event_map import parse_map
from tacit.feed.mapping import Mapper
from tacit.service.config.file import load_config
from tacit.service.log.ids import Draws
from tacit.service.log.requests import DecisionRequest, FeedbackRequest
from tacit.service.log.rows import EXAMINED
from tacit.wire.decisions import Event
from tests.cli.test_cli import tacit as command
from tests.feed.test_feed import fed, written

pytestmark = pytest.mark.interpreted

LEARNS = {
    "ec": tacit.policies.ECBandit(2, 1),
    "laplace": tacit.policies.LaplaceEC(2, 1),
    "components": tacit.policies.LaplaceECMixture(2, 1),
    "mixture": tacit.ClickMixture(2, 1),
    "hybrid": tacit.policies.HybridClickMixture(2, 1),
    "cusum": tacit.policies.CUSUMRestart(tacit.policies.LaplaceEC(2, 1)),
}
ONE = {"relevance": [[1.0]], "examination": [[2.0]]}


def sigmoid(x):
    return 1.0 / (1.0 + math.exp(-x))


def mode(variance, came):
    """Return where l = variance·(came − σ(l)), by bisection."""
    low, high = -variance, variance
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if middle > variance * (came - sigmoid(middle)) else (middle, high)
    return middle


def taught(policy, reward, seen):
    learner = tacit.Learner(policy, seed=1)
    learner.learn(learner.choose(**ONE), reward, seen=seen)
    return learner.posterior()


# By hand -------------------------------------------------------------------------------------


def test_what_was_not_seen_says_nothing_of_relevance():
    believed = taught(tacit.policies.LaplaceEC(1, 1), 0.0, False)
    # The feature is 2 and the prior variance 1: the logit of being seen has variance 4.
    logit = mode(4.0, 0.0)
    assert believed.joint.mean == pytest.approx([0.0, logit / 2.0])
    variance = 1.0 / (1.0 + 4.0 * sigmoid(logit) * sigmoid(-logit))
    assert believed.joint.covariance == pytest.approx(np.diag([1.0, variance]))


def test_what_was_seen_and_skipped_was_not_wanted():
    believed = taught(tacit.policies.LaplaceEC(1, 1), 0.0, True)
    seen, wanted = mode(4.0, 1.0), mode(1.0, 0.0)
    assert believed.joint.mean == pytest.approx([wanted, seen / 2.0])
    variances = [1.0 / (1.0 + size * sigmoid(at) * sigmoid(-at)) for size, at in ((1.0, wanted), (4.0, seen))]
    assert believed.joint.covariance == pytest.approx(np.diag(variances))


@pytest.mark.parametrize("seen", [False, True])
def test_the_bounds_of_the_paper_with_examination_known(seen):
    """Equations (1) and (2): examination's own logistic, and relevance's where it was seen."""
    believed = taught(tacit.policies.ECBandit(1, 1, inner_iterations=200), 0.0, seen)

    def fitted(prior, came):
        variance, mean = prior, 0.0
        for _ in range(500):
            xi = math.sqrt(variance + mean * mean)
            variance = prior / (1.0 + (2.0 * math.tanh(xi / 2.0) / (4.0 * xi)) * prior)
            mean = variance * (came - 0.5)
        return mean, variance

    mean, variance = fitted(4.0, float(seen))
    assert believed.examination.mean == pytest.approx([mean / 2.0], rel=1e-6)
    assert believed.examination.covariance == pytest.approx(np.array([[variance / 4.0]]), rel=1e-6)
    mean, variance = fitted(1.0, 0.0) if seen else (0.0, 1.0)
    assert believed.relevance.mean == pytest.approx([mean], rel=1e-6)
    assert believed.relevance.covariance == pytest.approx(np.array([[variance]]), rel=1e-6)


def beliefs(policy, reward, seen):
    learner = tacit.Learner(policy, seed=1)
    offer = {"relevance": [[1.0, 0.5], [0.2, 0.1]], "examination": [[1.0], [0.5]]}
    learner.learn(learner.choose(**offer), 1.0)
    learner.learn(learner.choose(**offer), reward, seen=seen)
    if isinstance(policy, tacit.ClickMixture | tacit.policies.HybridClickMixture):
        # The heaviest component may be one that hides nothing.
        mean = getattr(learner.state, "shared", learner.state).mean[0, 1]
        return mean[:2], mean[-1:]
    found = learner.posterior()
    return found.relevance.mean, found.examination.mean


@pytest.mark.parametrize("policy", LEARNS.values(), ids=LEARNS)
def test_each_policy_of_examination_learns_it(policy):
    assert policy.learns_seen
    # A click says it.
    np.testing.assert_array_equal(*(beliefs(policy, 1.0, seen)[0] for seen in (None, True)))
    held = [beliefs(policy, 0.0, seen) for seen in (None, False, True)]
    (unknown, unsure), (unseen, no), (skipped, yes) = held
    # What was skipped is wanted less than what was not seen; what is not known lies between.
    assert unseen.sum() > unknown.sum() > skipped.sum()
    assert no.sum() < unsure.sum() < yes.sum()


def test_many_are_learned_as_one_by_one():
    one, many = (tacit.Learner(tacit.ClickMixture(1, 1), seed=3) for _ in range(2))
    rng = np.random.default_rng(5)
    rows = {"relevance": rng.random((30, 2, 1)), "examination": rng.random((30, 2, 1))}
    seen = [(None, True, False)[i % 3] for i in range(30)]
    rewards = [float(i % 4 == 0 and seen[i] is not False) for i in range(30)]
    assert many.learn_many(many.choose_many(["k"] * 30, **rows), rewards, seen=seen) == 30
    for decision, reward, look in zip(one.choose_many(["k"] * 30, **rows), rewards, seen, strict=True):
        one.learn(decision, reward, seen=look)
    np.testing.assert_array_equal(one.posterior("k").weights, many.posterior("k").weights)


# Faster --------------------------------------------------------------------------------------


def regret(policy, seed, known, rounds=600):
    """Return the regret of a run in which users see and want by the model."""
    rng, learner = np.random.default_rng(seed), tacit.Learner(policy, seed=seed, propensities=False)
    wanted, seen = 3.0 * rng.standard_normal((2, 5))
    arms = rng.standard_normal((2, 40, 5)) / math.sqrt(5.0)
    relevant, looked = (
        1.0 / (1.0 + np.exp(-(rows @ theta))) for rows, theta in zip(arms, (wanted, seen), strict=True)
    )
    lost, users = 0.0, rng.random((rounds, 40, 2))
    for t in range(rounds):
        offer = rng.permutation(40)[:10]
        decision = learner.choose(relevance=arms[0, offer], examination=arms[1, offer])
        arm = offer[decision.arm]
        look, want = users[t, arm, 0] < looked[arm], users[t, arm, 1] < relevant[arm]
        lost += (relevant * looked)[offer].max() - relevant[arm] * looked[arm]
        learner.learn(decision, float(look and want), seen=bool(look) if known else None)
    return lost


@pytest.mark.compiled
def test_who_knows_what_was_seen_learns_faster():
    """Twelve pairs of runs. On other seeds it would fail with a probability of about 1e-4 (60 pairs)."""
    lost = np.array(
        [[regret(tacit.policies.LaplaceEC(5, 5), seed, known) for known in (0, 1)] for seed in range(12)]
    )
    assert lost[:, 1].mean() < 0.9 * lost[:, 0].mean()


# In the service ------------------------------------------------------------------------------

TABLE = {"kind": "features", "policy": "laplace-ec(relevance_dim=1, examination_dim=1)", "seen": "learned"}


async def test_the_log_teaches_it_bit_for_bit(tmp_path):
    config, clock = with_home(**TABLE, snapshot_every=8), Clock()
    async with served(tmp_path / "s.db", config, clock) as engine:
        placement = engine.placements["home"]
        expected = tacit.Learner(get_config(placement).policy, seed=0)
        rng, decisions = np.random.default_rng(2), []
        for i in range(12):
            offer = {"relevance": rng.random((2, 1)).tolist(), "examination": rng.random((2, 1)).tolist()}
            (row,) = await decide(engine, DecisionRequest("k", None, None, f"d{i}", **offer))
            Draws(7).begin(expected.rng, f"d{i}")
            decisions.append(expected.choose("k", **offer))
            assert decisions[-1].arm == row.arm
        for i in range(len(decisions)):
            if i % 4 == 0:
                # Those before it may yet be looked at.
                assert await engine.feedback("home", f"d{i}", 1.0) == ("pending" if i else "learned")
            elif i % 4 == 1:
                assert await engine.record_many("home", [FeedbackRequest(f"d{i}", EXAMINED)]) == ["noted"]
        for i, decision in enumerate(decisions):
            if i % 4 == 0:
                expected.learn(decision, 1.0)
            else:
                expected.learn(decision, 0.0, seen=i % 4 == 1)
        clock.now += 60_000_000
        offer = {"relevance": [[1.0]], "examination": [[1.0]]}
        await decide(engine, DecisionRequest("k", None, **offer))
        found, known = (each.posterior("k").joint for each in (get_learner(placement), expected))
        np.testing.assert_array_equal(found.mean, known.mean)
        live = learned(engine)
        crashed = as_after_a_crash(tmp_path / "s.db")
    with recovered(crashed, config) as again:
        assert learned(again) == live


# By a feed -----------------------------------------------------------------------------------

MAP = """
placement = { value = "home" }
decision_id = "decision"
id = "id"
event = "type"
[reward]
click = 1
[seen]
where = { type = "viewed" }
decision_id = "about.decision"
"""


def test_the_map_says_which_events_tell_what_was_seen():
    mapper = Mapper(parse_map(MAP))
    viewed = {"type": "viewed", "id": "v1", "about": {"decision": "d1"}}
    assert mapper.skip_reason(viewed) is None
    assert mapper.map_event(viewed, "line 1").message == Event("d1", "v1")
    assert mapper.map_event({"type": "click", "id": "c1", "decision": "d1"}, "line 2").message.reward == 1.0
    assert mapper.skip_reason({"type": "left"}) == "type is 'left'; [reward] has 'click'"


def test_it_is_joined_as_others_are():
    text = MAP.replace('decision_id = "decision"\n', 'user = "user"\ntime = "at"\n').replace(
        'decision_id = "about.decision"',
        '[shown]\nwhere = { type = "shown" }\ndecision_id = "decision"\nuser = "user"',
    )
    mapper = Mapper(parse_map(text))
    shown = {"type": "shown", "id": "s1", "decision": "d1", "user": "u", "at": 1.7e9}
    assert mapper.map_event(shown, "line 1").message is None
    viewed = {"type": "viewed", "id": "v1", "user": "u", "at": 1.7e9 + 5}
    assert mapper.map_event(viewed, "line 2").message == Event("d1", "v1")


SERVED = """
[server]
port = 0
[store]
path = "s.db"
[placements.home]
kind = "features"
policy = "laplace-ec(relevance_dim=1, examination_dim=1)"
seen = "learned"
seed = 7
snapshot_every = 50
attribution_window = 36000
[feeds.shop]
map = "feed.toml"
"""


def test_a_file_of_looks_counts_once_though_the_service_is_killed(tmp_path):
    (tmp_path / "feed.toml").write_text(MAP)
    (tmp_path / "tacit.toml").write_text(SERVED)
    process, port = started(tmp_path / "tacit.toml")
    features = {"relevance": [[1.0], [0.5]], "examination": [[0.5], [1.0]]}
    with Client(f"http://127.0.0.1:{port}") as client:
        ids = [one.decision_id for one in client.decide_many("home", [Impression("k", **features)] * 300)]
    pushed = {"type": "viewed", "id": "v0", "about": {"decision": ids[0]}}
    for became in ("noted", "duplicate"):
        status, _, taken = Requests(f":{port}").ask("POST", "/v1/feed/shop", pushed)
        assert (status, taken["sent"]) == (200, {became: 1})
    viewed = [(f"v{i}", {"decision": id}) for i, id in enumerate(ids) if i % 3]
    events = [{"type": "viewed", "id": name, "about": about} for name, about in viewed]
    clicked = [(f"c{i}", id) for i, id in enumerate(ids) if i % 3 and i % 10 < 3]
    events += [{"type": "click", "id": name, "decision": id} for name, id in clicked]
    came = command("feed", written(tmp_path / "e.jsonl", events), "--map", tmp_path / "feed.toml", "--check")
    assert f"home: decision {ids[1]}: seen" in came.stdout
    for part in (70, 140, 210):
        written(tmp_path / "part.jsonl", events[:part])
        _, counts = fed(f"http://127.0.0.1:{port}", tmp_path / "part.jsonl")
        assert sum(counts["sent"].values()) == part
        stopped(process, signal.SIGKILL)
        process, port = started(tmp_path / "tacit.toml")
    _, counts = fed(f"http://127.0.0.1:{port}", tmp_path / "e.jsonl")
    assert counts["sent"].pop("duplicate") == 210
    assert counts["sent"].keys() <= {"learned", "pending"}
    assert sum(counts["sent"].values()) == 50
    stopped(process, signal.SIGKILL)

    config = load_config(tmp_path / "tacit.toml")
    placements = [folded(tmp_path / "s.db", config, snapshot) for snapshot in (True, False)]
    for placement in placements:
        assert count_feedback(placement) == 60
        placement.learning.advance(10**17)  # All windows close.
    found = [get_learner(placement).posterior("k") for placement in placements]
    np.testing.assert_array_equal(found[0].joint.mean, found[1].joint.mean)
    # 201 of 300 were seen, and 60 of these wanted.
    assert found[0].examination.mean[0] > 0.5
    assert found[0].relevance.mean[0] < -0.5
