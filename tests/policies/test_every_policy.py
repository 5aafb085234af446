"""What holds for every policy, whatever it shows and reads."""

import copy
import json

import numpy as np
import pytest

import tacit
from tacit.checking.kernels import Trial
from tacit.core import dispatch
from tacit.core.arrays import lane_rows, leaves
from tacit.policies import policy_from_spec, policy_to_spec
from tacit.policies.base import make_outcome, registry
from tacit.policies.spec import policy_from_stored
from tests.policies.states import VARIANTS, assert_same_states

pytestmark = pytest.mark.interpreted

CHECKS = [
    *("compiled", "offers", "new arms", "seed", "lanes"),
    *("propensity", "unlearn", "snapshot", "simulation"),
]


def each(policies):
    return pytest.mark.parametrize("policy", policies, ids=lambda policy: policy.label)


POLICIES = [*(kind.example(3, 2) for kind in dispatch.list_parts(registry, "policies")), *VARIANTS]
RESTARTED = [policy for policy in POLICIES if hasattr(policy, "restart")]
FEATURED = [policy for policy in POLICIES if isinstance(policy, tacit.policies.FeaturePolicy)]
# They keep the first contexts and items, by which they measure.
MEASURING = [
    tacit.ContextMixture(3, context_dim=30),
    tacit.EmbeddingMixture(30, 8),
    tacit.ItemListMix(40, 8, positions=3),
]


@each(POLICIES)
def test_it_passes_its_checks(policy):
    """Frequencies differ with a probability of 1e-6; tests of a policy alone draw more often."""
    found = tacit.check(policy, only=CHECKS, rounds=30, draws=200)
    assert found.passed, found.summary()


@each(POLICIES)
def test_it_is_frozen_hashable_and_survives_its_spec(policy):
    with pytest.raises(AttributeError):
        policy.arms = 7
    spec = json.loads(json.dumps(policy_to_spec(policy)))
    again = policy_from_spec(spec)
    assert again == policy == policy_from_stored(spec)
    assert hash(again) == hash(policy)


@each(POLICIES)
def test_decisions_in_batches_and_recalled_ones_teach_as_one_by_one(policy):
    trial, rounds = Trial(policy, 1, 20, 0, 0.0), range(6)
    one, many, again = (trial.make_learner() for _ in range(3))
    keys = ["x", "y", "x", "z", "x", "y"]
    singles = [trial.choose(one, key, round) for key, round in zip(keys, rounds, strict=True)]
    rewards = [trial.compute_reward(i, decision.slots) for i, decision in enumerate(singles)]
    for decision, reward in zip(singles, rewards, strict=True):
        one.learn(decision, reward)
    offers = [trial.make_impression(round).arguments for round in rounds]
    columns = {name: [offer[name] for offer in offers] for name in offers[0]}
    together = many.choose_many(keys, contexts=columns.pop("context", None), **columns)
    for decision, single in zip(together, singles, strict=True):
        assert (decision.shown, decision.propensity) == (single.shown, single.propensity)
    many.learn_many(together, rewards)
    assert_same_states(one.lanes.view_all(), many.lanes.view_all())
    if not policy.remembers:
        again.observe_decisions(singles)
        again.learn_many(singles, rewards)
        assert_same_states(one.lanes.view_all(), again.lanes.view_all())


@each(MEASURING)
def test_late_feedback_is_a_fold_of_its_order(policy):
    trial = Trial(policy, 1, 20, 0, 0.0)
    late, again = trial.make_learner(1), trial.make_learner(2)
    made = [trial.choose(late, "all", round) for round in range(140)][::-1]
    rewards = [trial.compute_reward(i, decision.slots) for i, decision in enumerate(made)]
    for decision, reward in zip(made, rewards, strict=True):
        late.learn(decision, reward)
    trial.choose(again, "all", 0)
    again.learn_many(made, rewards)
    assert_same_states(late.state, again.state)


@each(MEASURING)
def test_numbers_that_never_change_or_are_huge_do_no_harm(policy):
    trial = Trial(policy, 1, 20, 0, 0.0)
    learner = trial.make_learner()
    for round in range(200):
        offer = trial.make_impression(round).arguments
        context, items = offer["context"], offer.get("relevance", np.zeros((3, 2)))
        context[0], context[1], context[2] = 7.0, context[1] * 1e300, context[2] * 1e-300
        items[:, 0], items[:, 1] = 7.0, items[:, 1] * 1e300
        decision = learner.choose("all", **offer)
        assert 0 <= decision.propensity <= 1
        learner.learn(decision, trial.compute_reward(round, decision.slots))
    assert all(np.isfinite(array).all() for _, array in leaves(learner.state))


@each(RESTARTED)
def test_a_restarted_lane_is_as_new_and_all_else_as_it_was(policy):
    trial = Trial(policy, 1, 20, 0, 0.0)
    learner = trial.make_learner()
    for key in "ab":
        trial.play(learner, key, range(40))
    state, fresh = learner.lanes.view_all(), policy.init(2)
    before = copy.deepcopy(state)
    policy.restart(policy.params, state, 0)
    arrays = zip(lane_rows(policy.init), leaves(state), leaves(before), leaves(fresh), strict=True)
    for rows, (name, array), (_, old), (_, new) in arrays:
        if name != "recent":  # a ring, of which nothing is read that was written before
            np.testing.assert_allclose(array[:rows], new[:rows], err_msg=name)
        np.testing.assert_array_equal(array[rows:], old[rows:], err_msg=name)


@each(FEATURED)
def test_features_teach_the_same_whether_arms_are_places_or_slots(policy):
    trial, states = Trial(policy, 1, 20, 0, 0.0), []
    for slots in (np.arange(trial.arms), np.array([6, 0, 3, 1])):
        state, rng, action = policy.init(1), np.random.default_rng(1), np.zeros(policy.action_width, int)
        for round in range(12):
            impression = trial.make_kernel_impression(round)._replace(arms=slots)
            dispatch.decide(policy.params, state, 0, impression, rng, action)
            assert set(action.tolist()) <= {*slots.tolist(), -1}
            rewards = np.full(policy.feedback_width, float(round % 4 == 0))
            outcome = make_outcome(policy.params, impression, action, rewards, 1.0)
            policy.learn(policy.params, state, 0, outcome)
        states.append(state)
    assert_same_states(*states)


@each([tacit.EmbeddingMixture(3), tacit.ItemListMix(3, positions=2)])
def test_keys_share_a_model_or_have_their_own(policy):
    for per_key in (False, True):
        trial = Trial(type(policy)(3, per_key=per_key), 1, 20, 0, 0.0)
        learner = trial.make_learner()
        trial.play(learner, "a", range(3))
        trial.play(learner, "b", range(9))
        tally = learner.state.relevance.tally if policy.showing.listed else learner.state.tally
        assert tally.rounds.tolist()[:2] == ([3.0, 9.0] if per_key else [12.0])
