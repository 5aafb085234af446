"""ListMix and SafeListMix: what they believe, how they show, and with what probability."""

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
from scipy import stats
from toy_asking import AskingList

import tacit
from tacit.core.arrays import leaves
from tacit.policies.lists import user_models
from tacit.policies.lists.one_draw import Draw
from tacit.policies.spec import is_compatible, policy_from_stored
from tests.policies.states import assert_frequencies, learn

ATTRACTION = [0.1, 0.5, 0.2, 0.4, 0.05, 0.3]
KINDS = tacit.ListMix, tacit.policies.SafeListMix


def offered(*slots):
    return tacit.Impression(np.array(slots), np.zeros(0))


def clicked(slate, rng):
    """Return the feedback of readers who look at every position."""
    return [float(arm >= 0 and rng.random() < ATTRACTION[arm]) for arm in slate]


def taught(policy, impression, rounds, seed=1):
    """Return the state of one lane after some lists."""
    state, rng = policy.init(2), np.random.default_rng(seed)
    action = np.zeros(policy.positions, np.int64)
    for _ in range(rounds):
        policy.decide(policy.params, state, 1, impression, rng, action)
        learn(policy, state, 1, impression, action, np.array(clicked(action, rng)))
    return state


# Worked by hand -------------------------------------------------------------------------------


def test_a_first_list_by_hand():
    """Three arms offered as 2, 0, 1, so that they begin at 1.8, 1 and 0.2 times the base rate.

    The base rate is 0.3, so a first look finds attractions of 0.54, 0.3 and 0.06. The list 0, 2
    gets a click on its second position.
    """
    readers = user_models.UserModels.blank(1, 3)
    user_models.learn_clicks(readers, 0, np.array([2, 0, 1]), np.array([0, 2]), np.array([0.0, 1.0]), False)
    assert readers.clicks[0].tolist() == [0.0, 0.0, 1.0]
    second = [1.0, 2**-0.5, 0.5, 2**-1.5]
    second += [1.0] * 4 + [0.85 * 0.7 / 0.7] * 4
    np.testing.assert_allclose(readers.seen[0, :, 0], 1.0)
    np.testing.assert_allclose(readers.seen[0, :, 1], 0.0)
    np.testing.assert_allclose(readers.seen[0, :, 2], second)
    logs = np.log(0.7) + np.log(0.54 * np.array(second))
    np.testing.assert_allclose(readers.weights[0], logs - logs.max(), atol=1e-12)
    assert (readers.rank == -1).all()


def test_chains_after_clicks_and_skips_by_hand():
    """A click, a skip, a click: five arms as offered, base rate 0.3, from 0.54 down by 0.12."""
    readers = user_models.UserModels.blank(1, 5)
    user_models.learn_clicks(readers, 0, np.arange(5), np.array([0, 1, 2]), np.array([1.0, 0.0, 1.0]), False)
    for h in range(user_models.POSITION_MODELS, user_models.HYPOTHESES):
        skip = (1.0, 0.85)[(h - user_models.POSITION_MODELS) // 4]
        click = (0.0, 0.3, 0.6, 0.9)[(h - user_models.POSITION_MODELS) % 4]
        third = skip * click * 0.58 / (1 - click * 0.42)
        np.testing.assert_allclose(readers.seen[0, h], [1.0, click, third, 0.0, 0.0])
        logs = math.log(0.54) + math.log(1 - max(click * 0.42, 1e-4))
        logs += math.log(max(third * 0.3, 1e-4))
        everywhere = math.log(0.54) + math.log(0.58) + math.log(0.3)
        assert readers.weights[0, h] - readers.weights[0, 0] == pytest.approx(logs - everywhere)
    assert readers.clicks[0].tolist() == [1.0, 0.0, 1.0, 0.0, 0.0]


def test_a_hypothesis_is_dropped_for_good():
    readers = user_models.UserModels.blank(1, 2)
    action, arms = np.array([0, 1]), np.arange(2)
    for _ in range(4):
        user_models.learn_clicks(readers, 0, arms, action, np.array([1.0, 1.0]), False)
    # Going on after a click never happens under c = 0: 1e-4 a list.
    assert (readers.weights[0, [4, 8]] == -np.inf).all()
    assert readers.weights[0].max() == 0.0
    before = readers.seen[0, [4, 8]].copy()
    user_models.learn_clicks(readers, 0, arms, action, np.array([1.0, 0.0]), False)
    assert (readers.seen[0, [4, 8]] == before).all()


def test_beliefs_by_hand():
    """One hypothesis left: the mean of 4 looks at the guess and what was seen."""
    readers = user_models.UserModels.blank(1, 3)
    readers.weights[0, 1:] = -np.inf
    readers.clicks[0] = [2.0, 1.0, 0.0]
    readers.seen[0, 0] = [6.0, 4.0, 1.0]
    user_models.update_beliefs(readers, 0, np.arange(3), False)
    base = 3.3 / 12
    means = np.array([2 + 7.2 * base, 1 + 4 * base, 0.8 * base]) / [10, 8, 5]
    np.testing.assert_allclose(readers.mean[0], means)
    deviations = np.sqrt(means * (1 - means) / [11, 9, 6])
    np.testing.assert_allclose(readers.spread[0], deviations)


def test_beliefs_with_the_order_in_doubt_by_hand():
    """The first arm begins at 1 + τ times the base rate, the last at 1 − τ, with τ anything from 0.2 to 1."""
    readers = user_models.UserModels.blank(1, 3)
    readers.weights[0, 1:] = -np.inf
    readers.clicks[0] = clicks = np.array([2.0, 1.0, 0.0])
    readers.seen[0, 0] = seen = np.array([6.0, 4.0, 1.0])
    user_models.update_beliefs(readers, 0, np.arange(3), True)
    pull = 0.2 + 0.8 * (np.arange(2000) + 0.5)[:, None] / 2000
    m = (clicks + 4 * 3.3 / 12 * (1 + pull * np.array([1.0, 0.0, -1.0]))) / (seen + 4)
    second = (m * (1 - m) / (seen + 5) + m * m).mean(axis=0)
    np.testing.assert_allclose(readers.mean[0], m.mean(axis=0))
    np.testing.assert_allclose(readers.spread[0], np.sqrt(second - m.mean(axis=0) ** 2), rtol=1e-6)


def test_what_began_with_the_order_for_a_fact_goes_on_so():
    before = policy_from_stored({"name": "ListMix", "arms": 3, "positions": 2, "epsilon": 0.0})
    assert before == tacit.ListMix(3, positions=2, doubt=False)
    assert is_compatible(tacit.ListMix(3, positions=2), before)
    assert not is_compatible(tacit.ListMix(3, positions=2, epsilon=0.1), before)


def test_beliefs_of_two_hypotheses_share_a_unit():
    readers = user_models.UserModels.blank(1, 2)
    readers.weights[0, 2:] = -np.inf
    readers.weights[0, 1] = math.log(0.5)
    readers.clicks[0] = [1.0, 1.0]
    readers.seen[0, :2] = [[5.0, 5.0], [2.0, 2.0]]
    user_models.update_beliefs(readers, 0, np.arange(2), False)
    unit, other = 2.3 / 11, 2.3 / 5
    first = np.array([(1 + 7.2 * unit) / 9, (1 + 7.2 * other) / 6 * unit / other])
    assert readers.mean[0, 0] == pytest.approx((first * [2 / 3, 1 / 3]).sum())
    m = first / [1, unit / other]
    second = (m * (1 - m) / [10, 7] + m * m) * np.array([1, unit / other]) ** 2
    variance = (second * [2 / 3, 1 / 3]).sum() - readers.mean[0, 0] ** 2
    assert readers.spread[0, 0] == pytest.approx(math.sqrt(variance))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_level_stands_as_the_caller_has_it(kind):
    policy = kind(4, positions=3)
    state = policy.init(1)
    beliefs = state.readers if kind is tacit.policies.SafeListMix else state
    impression, action = offered(3, 1, 0, 2), np.zeros(3, np.int64)
    lined = policy.arrange(policy.params, state, 0, impression)
    beliefs.mean[0], beliefs.spread[0] = 0.2, 0.1
    policy.line_up(policy.params, lined, 0, impression, Draw(0.7, -1, -1), action)
    assert action.tolist() == [3, 1, 0]
    policy.clear(policy.params, state, 0)
    lined = policy.arrange(policy.params, state, 0, impression)
    beliefs.mean[0], beliefs.spread[0] = 0.2, 0.1
    assert policy.share(policy.params, lined, 0, impression, action, 3, -1) == 1.0
    assert policy.share(policy.params, lined, 0, impression, np.array([1, 3, 0]), 3, -1) == 0.0


def test_the_standing_list_moves_by_neighbours_and_takes_in_new_arms():
    policy = tacit.policies.SafeListMix(5, positions=3)
    state = policy.init(1)
    action, nothing = np.array([0, 1, 2]), np.zeros(3)
    learn(policy, state, 0, offered(0, 1, 2), action, nothing)
    assert state.standing[0].tolist() == [0, 1, 2, -1, -1]
    # A new arm comes in behind the one before it on offer; who is not on offer keeps the place.
    learn(policy, state, 0, offered(4, 0, 3, 2), [4, 0, 3], nothing)
    assert state.standing[0].tolist() == [4, 0, 3, 1, 2]
    for _ in range(60):
        feedback = np.array([0.0, 0.0, 1.0])
        learn(policy, state, 0, offered(0, 1, 2), action, feedback)
    assert next(slot for slot in state.standing[0] if slot in (0, 1, 2)) == 2
    assert sorted(state.standing[0]) == [0, 1, 2, 3, 4]
    assert state.learned[0] == 62


def test_neighbours_are_exchanged_by_turns():
    policy = tacit.policies.SafeListMix(5, positions=3)
    state, impression = policy.init(1), offered(0, 1, 2, 3, 4)
    action = np.zeros(3, np.int64)
    for turn, exchanged in ((0, [1, 0, 3]), (1, [0, 2, 1])):
        state.learned[0] = turn
        lined = policy.arrange(policy.params, state, 0, impression)
        state.readers.mean[0] = [1.0, 2.0, 3.0, 4.0, 5.0]
        policy.line_up(policy.params, lined, 0, impression, Draw(0.0, -1, -1), action)
        policy.clear(policy.params, state, 0)
        assert action.tolist() == exchanged


# Propensities ---------------------------------------------------------------------------------


def lists_by_interval(policy, state, impression):
    """Return the probability of every list, by trying one z in each interval between crossings
    of the arms' lines, and every arm at every position."""
    arms = impression.arms
    length = min(policy.positions, len(arms))
    policy.arrange(policy.params, state, 1, impression)
    beliefs = getattr(state, "readers", state)
    mean, spread = beliefs.mean[1, arms].copy(), beliefs.spread[1, arms].copy()
    policy.clear(policy.params, state, 1)
    cuts = {0.0, math.inf}
    for i, j in itertools.combinations(range(len(arms)), 2):
        if spread[i] != spread[j] and (z := (mean[i] - mean[j]) / (spread[j] - spread[i])) > 0:
            cuts.add(float(z))
    found = defaultdict(float)
    promised = {arm: share for arm, share in policy.at_least if arm in arms}
    left = 1 - sum(promised.values())
    drawn = [(-1, -1, left * (1 - policy.epsilon))]
    each = {arm: promised.get(arm, 0.0) + left * policy.epsilon / len(arms) for arm in arms}
    drawn += [(arm, place, each[arm] / length) for arm in arms if each[arm] for place in range(length)]
    for low, high in itertools.pairwise(sorted(cuts)):
        z = (low + high) / 2 if high < math.inf else low + 1
        probability = 2 * (stats.norm.sf(low) - stats.norm.sf(high))
        for arm, place, weight in drawn:
            action = np.full(policy.positions, -1)
            lined = policy.arrange(policy.params, state, 1, impression)
            policy.line_up(policy.params, lined, 1, impression, Draw(z, arm, place), action)
            policy.clear(policy.params, state, 1)
            found[tuple(action[:length].tolist())] += weight * probability
    return found


CASES = [
    (kind, arms, positions, explores, rounds)
    for kind in KINDS
    for explores in (
        {},
        {"epsilon": 0.3},
        {"at_least": {1: 0.2, 5: 0.05}},
        {"at_least": {2: 0.4}, "epsilon": 0.2},
    )
    for arms, positions, rounds in [
        ((4, 1, 5, 0, 2), 3, 12),
        ((3, 0, 5, 1), 4, 11),
        ((2, 5), 3, 5),
        ((5,), 2, 3),
        ((0, 1, 2, 3, 4, 5), 2, 40),
        ((5, 3, 1, 0, 2), 3, 0),
    ]
]


@pytest.mark.parametrize(("kind", "arms", "positions", "explores", "rounds"), CASES)
def test_propensities_are_those_of_enumeration(kind, arms, positions, explores, rounds):
    policy = kind(6, positions=positions, **explores)
    impression = offered(*arms)
    are_those_of_enumeration(policy, taught(policy, impression, rounds), impression)


@pytest.mark.parametrize(
    "explores", [{"at_least": {1: 0.2, 5: 0.05}}, {"at_least": {2: 0.4}, "epsilon": 0.2}]
)
def test_promises_to_each_who_asks_are_those_of_enumeration(explores):
    policy, arms = AskingList(6, positions=3, **explores), np.array([3, 1, 5, 0, 2])
    one, other = (tacit.Impression(arms, np.array([x])) for x in (1.0, -1.0))
    state = taught(policy, one, 12)
    chances = [policy.position_chances(state, 1, impression) for impression in (one, other)]
    assert abs(chances[0] - chances[1]).max() > 0.3
    for impression in (one, other):
        are_those_of_enumeration(policy, state, impression)


def are_those_of_enumeration(policy, state, impression):
    """Check the propensities of all lists, their beginnings and positions."""
    arms, positions = impression.arms.tolist(), policy.positions
    before = [array.copy() for _, array in leaves(state)]
    expected = lists_by_interval(policy, state, impression)
    length = min(positions, len(arms))
    cells, begins = np.zeros((len(arms), length)), defaultdict(float)
    for slate in itertools.permutations(arms, length):
        action = np.full(positions, -1)
        action[:length] = slate
        chance = policy.propensity(policy.params, state, 1, impression, action)
        assert chance == pytest.approx(expected[slate], abs=1e-12)
        for k, arm in enumerate(slate):
            cells[arms.index(arm), k] += expected[slate]
            begins[slate[: k + 1]] += expected[slate]
    prefixes, places = np.empty((2, positions))
    for slate in itertools.permutations(arms, length):
        action = np.full(positions, -1)
        action[:length] = slate
        policy.placed(policy.params, state, 1, impression, action, prefixes, places)
        down = [begins[slate[: k + 1]] for k in range(length)]
        np.testing.assert_allclose(prefixes[:length], down, rtol=0, atol=1e-12)
        there = [cells[arms.index(arm), k] for k, arm in enumerate(slate)]
        np.testing.assert_allclose(places[:length], there, rtol=0, atol=1e-12)
        assert (places[length:] == 1.0).all()
    for begin, probability in begins.items():
        chance = policy.propensity(policy.params, state, 1, impression, np.array(begin))
        assert chance == pytest.approx(probability, abs=1e-12)
    chances = policy.position_chances(state, 1, impression)
    np.testing.assert_allclose(chances, cells, rtol=0, atol=1e-12)
    promised = np.array([dict(policy.at_least).get(arm, 0.0) for arm in arms])
    least = (promised + (1 - promised.sum()) * policy.epsilon / len(arms)) / length
    assert (chances >= least[:, None] - 1e-15).all()
    for array, then in zip((array for _, array in leaves(state)), before, strict=True):
        np.testing.assert_array_equal(array, then)


@pytest.mark.parametrize("kind", KINDS)
def test_many_arms_have_the_propensities_of_enumeration(kind):
    """Of twelve arms, the sums over what one arm may be taken out of, and over all cells."""
    policy = kind(12, positions=4, epsilon=0.2, at_least={3: 0.1})
    impression = offered(*np.random.default_rng(3).permutation(12))
    action, state = np.zeros(4, np.int64), policy.init(2)
    rng, attraction = np.random.default_rng(5), np.linspace(0.5, 0.05, 12)
    for _ in range(60):
        policy.decide(policy.params, state, 1, impression, rng, action)
        learn(policy, state, 1, impression, action, (rng.random(4) < attraction[action]).astype(float))
    expected = lists_by_interval(policy, state, impression)
    cells = policy.position_chances(state, 1, impression)
    np.testing.assert_allclose(cells.sum(axis=0), 1.0, rtol=0, atol=1e-12)
    prefixes, places = np.empty((2, 4))
    for slate in expected:
        policy.placed(policy.params, state, 1, impression, np.array(slate), prefixes, places)
        for k in range(4):
            down = sum(p for one, p in expected.items() if one[: k + 1] == slate[: k + 1])
            there = sum(p for one, p in expected.items() if one[k] == slate[k])
            assert prefixes[k] == pytest.approx(down, abs=1e-12)
            assert places[k] == pytest.approx(there, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_decisions_tell_where_their_arms_are_likely(kind):
    """One at a time and many at once, with what the learner says of all cells."""
    policy = kind(["a", "b", "c", "d", "e"], positions=3, epsilon=0.2)
    one, many = tacit.Learner(policy, seed=3), tacit.Learner(policy, seed=3)
    for _ in range(5):
        cells = one.probabilities("query")
        assert cells.shape == (5, 3)
        decision, (other,) = one.choose("query"), many.choose_many(["query"])
        assert decision.prefix_propensities[-1] == pytest.approx(decision.propensity, abs=1e-12)
        there = [cells["abcde".index(arm), k] for k, arm in enumerate(decision.slate)]
        np.testing.assert_allclose(decision.position_propensities, there, rtol=0, atol=1e-12)
        for name in ("prefix_propensities", "position_propensities"):
            np.testing.assert_array_equal(getattr(decision, name), getattr(other, name))
        one.learn(decision, [0.0, 1.0, 0.0])
        many.learn_many([other], [[0.0, 1.0, 0.0]])
    assert one.choose("query", arms=["c", "a"]).position_propensities[2] == 1.0
    assert one.probabilities("query", arms=["c", "a"]).shape == (2, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_arm_is_promised_it_gets_at_any_position(kind):
    """Binomial counts of 4,000 lists; each is within 4.9 standard deviations but once in a million."""
    learner = tacit.Learner(kind(["a", "b", "c", "d", "e"], positions=2, at_least={"e": 0.2}), seed=1)
    for _ in range(200):
        decision = learner.choose("query")
        learner.learn(decision, [float(arm == "a") for arm in decision.slate])
    cells = learner.probabilities("query")
    slates = np.array([decision.slate for decision in learner.choose_many(["query"] * 4000)])
    assert (cells[4] >= 0.1).all()
    for i, arm in enumerate("abcde"):
        shown = (slates == arm).mean(axis=0)
        assert (abs(shown - cells[i]) <= 4.9 * np.sqrt(cells[i] * (1 - cells[i]) / 4000) + 1e-9).all()
    # Of what a list cannot show nothing is kept back.
    assert learner.probabilities("query", arms=["a", "b"]).sum() == pytest.approx(2.0)


def test_lists_without_propensities():
    for policy in (tacit.policies.CascadeKLUCB(4), tacit.ListMix(4)):
        learner = tacit.Learner(policy, seed=1, propensities=False)
        decision = learner.choose("query")
        assert len(decision.position_propensities) == len(decision.prefix_propensities) == 0
        assert (learner.probabilities("query") is not None) == isinstance(policy, tacit.ListMix)


@pytest.mark.parametrize("kind", KINDS)
def test_propensities_are_frequencies(kind):
    """Error probability 1e-6 a list: each count is binomial, checked at 5.1 sigma."""
    learner = tacit.Learner(kind(5, positions=3, epsilon=0.2), seed=3)
    rng = np.random.default_rng(4)
    for _ in range(6):
        decision = learner.choose("query", arms=[3, 1, 4, 0, 2])
        learner.learn(decision, clicked(decision.slate, rng))
    draws = 20_000
    decisions = learner.choose_many(["query"] * draws, arms=[[3, 1, 4, 0, 2]] * draws)
    count, told = defaultdict(int), {}
    for decision in decisions:
        count[decision.slate] += 1
        told[decision.slate] = decision.propensity
    assert len(told) > 8
    assert_frequencies([count[slate] for slate in told], draws, list(told.values()))
    impression, state = offered(3, 1, 4, 0, 2), learner.state
    chances = learner.policy.position_chances(state, learner.lane("query"), impression)
    for i, arm in enumerate((3, 1, 4, 0, 2)):
        seen = [sum(n for slate, n in count.items() if slate[k] == arm) for k in range(3)]
        assert_frequencies(seen, draws, chances[i])


@pytest.mark.parametrize("kind", KINDS)
def test_weighting_by_item_and_position_is_unbiased(kind):
    """100 logs of 12 lists, weighed for a fixed list: its mean clicks within 4 standard errors."""
    wanted, rng = [5, 4, 0], np.random.default_rng(8)
    policy = kind(6, positions=3, epsilon=0.3)
    impression, estimates = offered(0, 1, 2, 3, 4, 5), []
    effects = np.array([1.0, 0.6, 0.4])
    learner = tacit.Learner(policy, seed=5)
    for log in range(100):
        total = 0.0
        for _ in range(12):
            decision = learner.choose(str(log))
            chances = policy.position_chances(learner.state, learner.lane(str(log)), impression)
            clicks = rng.random(3) < effects * np.array(ATTRACTION)[list(decision.slate)]
            for k, arm in enumerate(decision.slate):
                if arm == wanted[k]:
                    total += clicks[k] / chances[arm, k]
            learner.learn(decision, clicks.astype(float))
        estimates.append(total / 12)
    truth = float((effects * np.array(ATTRACTION)[wanted]).sum())
    error = np.std(estimates, ddof=1) / math.sqrt(len(estimates))
    assert abs(np.mean(estimates) - truth) < 4 * error


# As all policies ------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [tacit.ListMix, tacit.policies.SafeListMix])
def test_what_is_believed_of_arms_is_told(policy):
    learner = tacit.Learner(policy(["a", "b", "c"], positions=2), seed=1)
    decision = learner.choose("new")
    # All hypotheses say the same: 4 looks at 0.3·(1 + pull·place), so Beta(4m, 4(1 − m)) in the middle.
    found, pull = learner.estimates("new"), 0.6 if policy is tacit.ListMix else 0.8
    assert [each.mean for each in found] == pytest.approx([0.3 * (1 + pull), 0.3, 0.3 * (1 - pull)])
    assert [each.plays for each in found] == [0, 0, 0]
    interval = stats.beta(4 * 0.3, 4 * 0.7).ppf([0.025, 0.975])
    assert [found[1].low, found[1].high] == pytest.approx(interval, abs=1e-3)
    for _ in range(300):
        learner.learn(decision, [float(arm == "c") for arm in decision.slate])
        decision = learner.choose("new")
    found = learner.estimates("new")
    assert found[2].chance_best > 0.99
    assert found[2].low > found[0].high
    # What was asked leaves no trace.
    assert learner.choose("new").slate[0] == "c"
