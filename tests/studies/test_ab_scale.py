"""What an A/B test would find, estimated from interleaved searches whose truth is known."""

import math

import numpy as np
import pytest

from studies.ab_scale import scaled
from tacit.clicks import PositionBased, navigational
from tacit.evaluate.interleaved import Search
from tacit.interleaving import Action, Balanced, TeamDraft

ITEMS = 8


def shown_searches(user, method, rng, number, pairs):
    """Searches for queries whose items' grades are 0 to 3, and who earns more on the top."""
    grades = np.arange(ITEMS) % 4
    drawn = [pairs[i] for i in rng.integers(len(pairs), size=number)]
    shown = [method.interleave(lists, rng) for lists in drawn]
    clicks = user.simulate(np.array([grades[list(each.items)] for each in shown]), rng)
    length = method.length
    chances = [[user.click_probabilities(grades[r[:length]]) for r in lists] for lists in pairs]
    truth = np.mean([np.cumsum(new - old) for new, old in chances], axis=0)
    return truth, [
        Search(
            str(i),
            f"u{i // 10}",
            {},
            ("new", "old"),
            each,
            [Action(int(place)) for place in np.flatnonzero(clicks[i])],
            tuple(lists),
        )
        for i, (each, lists) in enumerate(zip(shown, drawn, strict=True))
    ]


def pairs_of_lists(rng, count=20):
    """Pairs of lists of which the first has exchanged some items for the better."""
    found = []
    for number in range(count):
        old = rng.permutation(ITEMS)
        new = old.copy()
        for at in (number % 5, (number + 2) % 5):
            new[at : at + 2] = sorted(new[at : at + 2], key=lambda item: -(item % 4))
        found.append([new.tolist(), old.tolist()])
    return found


READS = PositionBased(attraction=[0.1, 0.2, 0.4, 0.6], examination=[1.0, 0.6, 0.4, 0.3, 0.25, 0.2])


@pytest.mark.parametrize("method", [TeamDraft(length=6), Balanced(length=6)], ids=str)
def test_an_ab_test_is_foretold_for_readers_by_position(method):
    rng = np.random.default_rng(11)
    truth, searches = shown_searches(READS, method, rng, 6000, pairs_of_lists(rng))
    found = scaled(searches, "new", "old")
    assert found.places >= 3
    assert found.why is None
    assert found.lift.claim == "better"
    assert found.lift.difference.low < truth[found.places - 1] < found.lift.difference.high
    assert np.allclose(found.curve, READS.examination, atol=0.12)
    turned = scaled(searches, "old", "new")
    assert math.isclose(turned.lift.difference.estimate, -found.lift.difference.estimate)


def test_an_ab_test_is_foretold_for_readers_from_the_top_if_rankers_are_close():
    rng = np.random.default_rng(12)
    pairs = [[[3, 2, 7, 6, 1, 0], [2, 3, 7, 6, 1, 0]], [[7, 3, 1, 0], [7, 3, 0, 1]]]
    truth, searches = shown_searches(navigational(5), TeamDraft(length=4), rng, 6000, pairs)
    found = scaled(searches, "new", "old", model="top-down")
    assert found.places == 4
    assert found.lift.difference.low < truth[3] < found.lift.difference.high


def test_what_an_ab_test_would_find_is_not_said_where_it_cannot_be():
    rng = np.random.default_rng(13)
    lists = [[3, 2, 7, 6, 1, 0], [0, 1, 2, 3, 6, 7]]
    _, searches = shown_searches(navigational(5), TeamDraft(length=4), rng, 3000, [lists])
    curve = [1.0, 0.5, 0.3, 0.2]
    assert "below a click on top" in scaled(searches, "new", "old", curve=curve).why
    assert "reach" in scaled(searches, "new", "old", model="top-down", places=4).why
    assert "reach" in scaled(searches, "new", "old", curve=curve, places=4).why
    told = scaled([each._replace(rankings=None) for each in searches], "new", "old")
    assert told.lift is None
    assert "rankings of both" in told.sentence
    alike = [each._replace(rankings=(lists[0], lists[0])) for each in searches[:50]]
    assert "change places" in scaled(alike, "new", "old").why
