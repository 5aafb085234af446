"""Interleaving: what is shown, with which probability, and whom clicks credit."""

import itertools
import json
import math
from collections import Counter

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from tacit import interleaving
from tacit.errors import InvalidValue

DUELS = [
    interleaving.Balanced,
    interleaving.TeamDraft,
    interleaving.Optimized,
    interleaving.Probabilistic,
    lambda length: interleaving.Probabilistic(length=length, marginalised=False),
]
MULTILEAVES = [interleaving.TeamDraftMultileave, interleaving.ProbabilisticMultileave]
ABCD, BCDA = list("abcd"), list("bcda")


def rankings(least=2, most=2, items=6):
    """Rankings of parts of the same few items."""
    one = st.permutations(list("abcdefghij"[:items])).flatmap(
        lambda all_items: st.integers(1, items).map(lambda n: all_items[:n])
    )
    return st.lists(one, min_size=least, max_size=most)


def all_clicks(positions):
    """Every set of clicked positions."""
    return itertools.chain.from_iterable(
        itertools.combinations(range(positions), count) for count in range(positions + 1)
    )


def mean_chance(method, pair, clicks):
    """The expected outcome where the clicks are at these positions, whatever is shown."""
    return sum(probability * method.credit(shown, clicks).chance for probability, shown in method.lists(pair))


# What is shown ------------------------------------------------------------------------------


@pytest.mark.parametrize("make", DUELS + MULTILEAVES)
@examples(25)
@given(data=st.data())
def test_a_list_shows_items_of_the_union_once_each(make, data):
    method = make(length=data.draw(st.integers(1, 7)))
    given_rankings = data.draw(rankings(2, 2 if method.duels else 4))
    shown = method.interleave(given_rankings, np.random.default_rng(data.draw(st.integers(0, 99))))
    union = {item for ranking in given_rankings for item in ranking}
    assert len(set(shown.items)) == len(shown.items) == min(method.length, len(union))
    assert set(shown.items) <= union
    assert 0.0 < shown.probability <= 1.0
    if not isinstance(method, (interleaving.Probabilistic, interleaving.ProbabilisticMultileave)):
        # Nothing is shown before what a ranking has above it, in one of the rankings.
        for position, item in enumerate(shown.items):
            before = set(shown.items[:position])
            assert any(
                item in ranking and set(ranking[: ranking.index(item)]) <= before
                for ranking in given_rankings
            )


@pytest.mark.parametrize("make", DUELS + MULTILEAVES)
@examples(20)
@given(data=st.data())
def test_probabilities_of_lists_are_those_of_their_enumeration(make, data):
    method = make(length=data.draw(st.integers(1, 4)))
    given_rankings = data.draw(rankings(2, 2 if method.duels else 3, items=4))
    total = Counter()
    said = {}
    for probability, shown in method.lists(given_rankings):
        total[shown.items] += probability
        said[shown.items] = shown.probability
    assert math.isclose(sum(total.values()), 1.0)
    for items, probability in total.items():
        assert math.isclose(said[items], probability, abs_tol=1e-12)


@pytest.mark.parametrize("make", DUELS + MULTILEAVES)
def test_lists_come_as_often_as_their_enumeration_says(make):
    method = make(length=3)
    given_rankings = [list("abcd"), list("bdca"), list("cabd")][: 2 if method.duels else 3]
    expected = Counter()
    for probability, shown in method.lists(given_rankings):
        expected[json.dumps(shown.as_dict())] += probability
    rng, draws = np.random.default_rng(5), 4000
    found = Counter(json.dumps(method.interleave(given_rankings, rng).as_dict()) for _ in range(draws))
    assert set(found) <= set(expected)
    for shown, probability in expected.items():
        # Five standard deviations for at most 24 lists of 7 methods: 1e-4 in all.
        deviation = math.sqrt(draws * probability * (1 - probability))
        assert abs(found[shown] - draws * probability) <= 5 * deviation + 1e-9


@examples(30)
@given(rankings(2, 2), st.integers(1, 6))
def test_team_draft_multileaving_of_two_is_team_draft(pair, length):
    assert [(p, s.items, s.memory) for p, s in interleaving.TeamDraft(length=length).lists(pair)] == [
        (p, s.items, s.memory) for p, s in interleaving.TeamDraftMultileave(length=length).lists(pair)
    ]


def test_balanced_lists_by_hand():
    """The first ranker leads, then the second one."""
    assert [
        shown.items for _, shown in interleaving.Balanced(length=5).lists([list("abcdgh"), list("beafgh")])
    ] == [tuple("abecd"), tuple("baecf")]


def test_team_draft_fills_up_without_teams_when_a_ranking_ends():
    method = interleaving.TeamDraft(length=5)
    shown = method.interleave([["a", "b"], list("cdefg")], np.random.default_rng(1))
    assert set(shown.items[:2]) == {"a", "c"}
    assert shown.items[2:] == tuple("bde")
    assert sorted(shown.memory["teams"][:2]) == [0, 1]
    assert shown.memory["teams"][2:] == [None] * 3
    assert method.credit(shown, [2, 3, 4]) == interleaving.Credit((0.0, 0.0), 3, 0.5)


def test_many_rankers_have_no_known_probability():
    many = [list(np.random.default_rng(i).permutation(30).tolist()) for i in range(20)]
    shown = interleaving.TeamDraftMultileave().interleave(many, np.random.default_rng(1))
    assert shown.probability is None
    assert len(set(shown.memory["teams"])) == 10
    with pytest.raises(InvalidValue, match="at most 16"):
        interleaving.ProbabilisticMultileave().interleave(many, np.random.default_rng(1))


# Whom clicks credit -------------------------------------------------------------------------


def test_balanced_credit_by_hand():
    method = interleaving.Balanced(length=5)
    shown = next(s for _, s in method.lists([list("abcdgh"), list("beafgh")]))
    assert shown.items == tuple("abecd")
    # The lowest click is e, second for the right ranker: a, b of the left, b, e of the right.
    assert method.credit(shown, [2]) == interleaving.Credit((0.0, 1.0), 1, 0.0)
    assert method.credit(shown, [1, 2]) == interleaving.Credit((1.0, 2.0), 2, 0.0)
    assert method.credit(shown, [0, 2]) == interleaving.Credit((1.0, 1.0), 2, 0.5)
    # The lowest click is c, third for the left ranker; the right one's top 3 are b, e, a.
    assert method.credit(shown, [0, 1, 3]) == interleaving.Credit((3.0, 2.0), 3, 1.0)


def test_balanced_is_biased_and_the_others_are_not():
    """One click at a random position lets b-c-d-a win three of four under balanced."""
    pair, positions = [ABCD, BCDA], 4

    def favoured(method):
        return sum(mean_chance(method, pair, [at]) for at in range(positions)) / positions

    assert math.isclose(favoured(interleaving.Balanced(length=4)), 0.25)
    assert math.isclose(favoured(interleaving.TeamDraft(length=4)), 0.5)
    assert math.isclose(favoured(interleaving.Probabilistic(length=4)), 0.5)


@pytest.mark.parametrize("make", [interleaving.TeamDraft, *DUELS[3:]])
@examples(25)
@given(data=st.data())
def test_clicks_that_ignore_what_is_shown_favour_nobody(make, data):
    """Exactly, for every set of clicked positions: so for every law of such clicks."""
    pair = data.draw(rankings(items=5))
    method = make(length=data.draw(st.integers(1, 4)))
    for clicks in all_clicks(min(method.length, len({item for ranking in pair for item in ranking}))):
        assert math.isclose(mean_chance(method, pair, clicks), 0.5, abs_tol=1e-12)


@pytest.mark.parametrize("make", MULTILEAVES)
@examples(15)
@given(data=st.data())
def test_multileaving_credits_random_clicks_equally(make, data):
    many = data.draw(rankings(3, 3, items=4))
    method = make(length=data.draw(st.integers(1, 4)))
    for clicks in all_clicks(min(method.length, len({item for ranking in many for item in ranking}))):
        credits = sum(
            probability * np.array(method.credit(shown, clicks).credits)
            for probability, shown in method.lists(many)
        )
        assert np.allclose(credits, credits[0])


@pytest.mark.parametrize("score", ["linear", "inverse"])
@examples(40)
@given(data=st.data())
def test_optimized_credits_random_clicks_on_the_top_equally(score, data):
    length = data.draw(st.integers(1, 6))
    items = list("abcdef")
    pair = [data.draw(st.permutations(items)), data.draw(st.permutations(items))]
    method = interleaving.Optimized(length=length, score=score)
    for position in range(length):
        left, right = sum(
            probability * np.array(method.credit(shown, [position]).credits)
            for probability, shown in method.lists(pair)
        )
        assert abs(left - right) < 1e-7


def test_wins_under_optimized_and_rounded_probabilistic_credit_can_be_unfair():
    """What the pages of these methods warn of."""
    pair = [list("abc"), list("bca")]
    wins = sum(mean_chance(interleaving.Optimized(length=3), pair, [at]) for at in range(3)) / 3
    assert math.isclose(wins, 1 / 3, abs_tol=1e-6)
    method = interleaving.Probabilistic(length=1)
    rounded = sum(p * method.credit(shown, [0]).outcome for p, shown in method.lists(pair))
    weights = np.array([1, 1 / 8, 1 / 27]) / (1 + 1 / 8 + 1 / 27)
    assert math.isclose(rounded, (weights[0] + weights[2]) / 2)  # only "a" speaks for the left
    assert rounded < 0.45


def test_binary_scores_fall_back_to_the_least_unfair_lists():
    method = interleaving.Optimized(length=4, score="binary")
    assert math.isclose(sum([probability for probability, _ in method.lists([ABCD, BCDA])]), 1.0)


@pytest.mark.parametrize("make", DUELS)
@examples(25)
@given(data=st.data())
def test_a_ranker_against_itself_wins_half_the_time(make, data):
    """Whatever the clicks, even those that look at what is shown."""
    ranking = data.draw(rankings(1, 1, items=5))[0]
    method = make(length=data.draw(st.integers(1, 4)))
    clicked = set(data.draw(st.lists(st.sampled_from("abcde"))))
    mean = sum(
        probability
        * method.credit(shown, [i for i, item in enumerate(shown.items) if item in clicked]).chance
        for probability, shown in method.lists([ranking, ranking])
    )
    assert math.isclose(mean, 0.5, abs_tol=1e-12)


@examples(40)
@given(data=st.data())
def test_marginalised_credit_is_the_sum_over_all_assignments(data):
    pair = data.draw(rankings(items=5))
    decay = data.draw(st.sampled_from([0.0, 1.0, 3.0]))
    method = interleaving.Probabilistic(length=4, decay=decay)
    shown = method.interleave(pair, np.random.default_rng(data.draw(st.integers(0, 99))))
    clicks = data.draw(st.sets(st.integers(0, len(shown.items) - 1)))
    # Bayes' rule with the joint probabilities of lists and observed assignments.
    observed = interleaving.Probabilistic(length=4, decay=decay, marginalised=False)
    total = mean = 0.0
    for probability, other in observed.lists(pair):
        if other.items == shown.items:
            total += probability
            mean += probability * observed.credit(other, sorted(clicks)).chance
    assert math.isclose(total, shown.probability)
    assert math.isclose(method.credit(shown, sorted(clicks)).chance, mean / total)


def test_probabilistic_multileave_sums_over_all_orders():
    """Against an enumeration of the orders of each round, by the chain rule."""
    many = [list("abcde"), list("badce"), list("ecdab")]
    method = interleaving.ProbabilisticMultileave(length=5)
    shown = method.interleave(many, np.random.default_rng(4))
    weights = [{item: (i + 1.0) ** -3 for i, item in enumerate(ranking)} for ranking in many]
    credit, total = np.zeros(3), 0.0
    clicks = [0, 3, 4]
    # The second round has two places and three items left for each of the rankers.
    for first in itertools.permutations(range(3)):
        for second in itertools.permutations(range(3), 2):
            order, left, chance = [*first, *second], set("abcde"), 1 / 36
            for ranker, item in zip(order, shown.items, strict=True):
                chance *= weights[ranker][item] / sum(weights[ranker][other] for other in left)
                left.remove(item)
            total += chance
            credit += chance * np.bincount([order[i] for i in clicks], minlength=3)
    assert math.isclose(shown.probability, total)
    assert np.allclose(method.credit(shown, clicks).credits, credit / total)


def test_ties_and_no_clicks_are_explicit():
    method = interleaving.TeamDraft(length=2)
    shown = method.interleave([["a", "b"], ["b", "a"]], np.random.default_rng(1))
    none, both = method.credit(shown, []), method.credit(shown, [0, 1, 1])
    assert (none.outcome, none.clicks) == (0.5, 0)
    assert (both.outcome, both.clicks) == (0.5, 2)
    assert method.credit(shown, iter([0, 1])) == both
    rng = np.random.default_rng(2)
    settled = [none.draw_outcome(rng) for _ in range(1000)]
    assert set(settled) == {0.0, 1.0}
    assert abs(sum(settled) - 500) < 5 * math.sqrt(250)  # 6e-7
    assert none.draw_outcome(rng, ties="keep") == 0.5
    assert none.draw_outcome(rng, ties="again") is None
    with pytest.raises(InvalidValue, match="ties"):
        none.draw_outcome(rng, ties="left")


# What is remembered -------------------------------------------------------------------------


@pytest.mark.parametrize("make", DUELS + MULTILEAVES)
def test_what_is_remembered_travels_as_json(make):
    method = make(length=4)
    shown = method.interleave([list("abc"), list("dbe")], np.random.default_rng(1))
    back = interleaving.Interleaved.from_dict(json.loads(json.dumps(shown.as_dict())))
    assert back == shown
    assert method.credit(back, [0, 2]) == method.credit(shown, [0, 2])
