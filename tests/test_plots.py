"""A policy is known by its colour: the same in every figure, and no two alike in one."""

from __future__ import annotations

import numpy as np

import tacit
from tacit.plots import COLOURS, POLICIES, band, figure

CURVE = np.array([[0.0, 1.0], [0.0, 2.0]])


def drawn(*policies: str) -> dict[str, str]:
    """Return the colours of policies that are drawn into one figure, in this order."""
    _, ax = figure()
    for policy in policies:
        band(ax, [0, 1], CURVE, policy)
    return dict(zip(policies, [line.get_color() for line in ax.lines], strict=True))


def test_a_policy_has_its_colour_whoever_is_beside_it() -> None:
    alone = drawn("Thompson")["Thompson"]
    assert drawn("UCB1", "KLUCB", "Thompson")["Thompson"] == alone
    for name in ("Thompson(discount=0.99)", "Thompson (tuned)", "Thompson, late"):
        assert drawn(name)[name] == alone


def test_what_papers_call_a_policy_has_its_colour() -> None:
    assert drawn("E-C Bandit")["E-C Bandit"] == drawn("ECBandit")["ECBandit"]


def test_no_two_of_a_figure_are_alike() -> None:
    names = ["Thompson", "Thompson(discount=0.99)", "mine", "ShiftMixture", "GLRKLUCB", "other"]
    assert len(set(drawn(*names).values())) == len(names)


def test_ones_own_policies_come_last_in_line_for_colours() -> None:
    assert drawn("mine", "Thompson")["Thompson"] == drawn("Thompson")["Thompson"]


def test_more_policies_than_colours_are_drawn_all_the_same() -> None:
    assert len(drawn(*(f"policy {i}" for i in range(20)))) == 20


def test_the_table_names_each_policy_once_and_only_what_there_is() -> None:
    named = [policy for row in POLICIES for policy in row]
    assert len(named) == len(set(named))
    assert all(hasattr(tacit, policy) for policy in named)
    assert len(POLICIES) == len(COLOURS)
