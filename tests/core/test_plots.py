"""A policy is known by its colour: the same in every figure, and no two lines alike in one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tacit
from tacit.plots import COLOUR_ROWS, COLOURS, assign_line_styles, figure, regret_curves


def colours(*policies: str) -> list[str]:
    """Return the colours of policies that are drawn into one figure."""
    shown = assign_line_styles(policies)
    return [shown[policy]["color"] for policy in policies]


def distinct(*policies: str) -> int:
    """Return how many lines of a figure can be told apart."""
    return len({tuple(look.values()) for look in assign_line_styles(policies).values()})


ORDERS = list(itertools.permutations(["UCB1", "KLUCB", "Thompson(mine)"]))


@pytest.mark.parametrize("others", ORDERS)
def test_a_policy_has_its_colour_whoever_is_drawn_before_it(others: tuple[str, ...]) -> None:
    alone = assign_line_styles(["Thompson"])["Thompson"]
    assert assign_line_styles([*others, "Thompson"])["Thompson"] == alone


def test_a_policy_has_its_colour_however_it_is_set() -> None:
    for name in ("Thompson(discount=0.99)", "Thompson (tuned)", "Thompson, late", "Thompson.tuned"):
        assert colours(name) == colours("Thompson")
        assert distinct(name, "Thompson", "UCB1") == 3
        assert colours(name, "Thompson", "UCB1")[:2] == colours("Thompson") * 2


def test_where_all_are_one_policy_colours_tell_them_apart() -> None:
    assert len({*colours(*(f"UCB1(alpha={i})" for i in range(6)))}) == 6


@pytest.mark.parametrize(
    ("printed", "ours"),
    [
        ("E-C Bandit", "ECBandit"),
        ("EXP3.S", "EXP3S"),
        ("KL-UCB", "KLUCB"),
        ("ORA", "OracleRestart"),
        ("hLinUCB, intercept", "HLinUCB"),
        ("Logistic, no intercept (the paper's)", "LogisticTS"),
        ("Beat-the-Mean, radius (9)", "BeatTheMean"),
        ("Interleaved Filter 2, radius (9)", "InterleavedFilter2"),
        ("InterleavedFilter2 wide", "InterleavedFilter2"),
        ("Double Thompson", "DoubleThompsonSampling"),
        ("Self-sparring", "SelfSparring"),
    ],
)
def test_what_papers_call_a_policy_has_its_colour(printed: str, ours: str) -> None:
    assert colours(printed) == colours(ours)


def test_ones_own_policies_have_colours_that_are_left_over() -> None:
    assert colours("mine", "Thompson")[0] not in colours("Thompson", "UCB1")[:1]
    assert colours("mine", "Thompson")[1] == colours("Thompson")[0]


@pytest.mark.parametrize("name", ["policy {}", "UCB1(alpha={})"])
def test_no_two_of_a_figure_are_alike(name: str) -> None:
    assert distinct(*(name.format(i) for i in range(20)), "ShiftMixture", "other") == 22


def test_more_policies_than_looks_are_drawn_all_the_same() -> None:
    assert len(colours(*(f"policy {i}" for i in range(50)))) == 50


def test_a_second_drawing_on_the_same_axes_looks_other_than_the_first() -> None:
    _, ax = figure()
    for title in ("before", "after"):
        regret_curves(ax, {"UCB1": np.ones((1, 2))}, np.array([1, 2]), title)
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines}) == 2


def test_the_table_names_each_policy_once_and_only_what_there_is() -> None:
    named = [policy for row in COLOUR_ROWS for policy in row]
    assert len(named) == len(set(named))
    assert set(named) <= {*tacit.policies.__all__, *tacit.policies.baselines.__all__}
    assert len(COLOUR_ROWS) == len(COLOURS)
