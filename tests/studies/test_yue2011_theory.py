"""What is proved of Beat-the-Mean, by hand and in a few trials."""

import math

import numpy as np
import pytest

from studies import yue2011_theory
from studies.run_sampling import SampledRun
from studies.study import Setup
from tacit.environments import preferences


def test_observations_by_hand():
    """Of three arms 0.1 apart the whole set has P̂₁ − P̂₃ = 0.4/3, and P̂₂ − P̂₃ = 0.2/3, over 0.1."""
    least, most = yue2011_theory.observations(preferences.uniform_gap(3, 0.1))
    assert least == pytest.approx(1.0)  # sets of two
    assert most == pytest.approx(4 / 3 / 2)


def test_table_1_breaks_observation_1_with_its_triangle_inequality():
    least, most = yue2011_theory.observations(preferences.arxiv())
    assert least < 0.8
    assert most < 1.0


def test_the_sums_of_theorem_1_by_hand():
    """γ = 1.3, gaps 0.1: D = min(γ⁴, γ⁶)/0.01 in each of two rounds; the bounds of one round are γ·0.1·D."""
    matrix = preferences.relaxed_chain(3, 1.3)
    run = SampledRun(0, 5000, (2, 1), 300.0, 0.0, 0.0, 0.0)
    d = 1.3**4 / 0.01
    expected = 5000 / (2 * d), 300 / (2 * 1.3 * 0.1 * d), 300 / (2 * 1.3**8 / 0.1)
    np.testing.assert_allclose(yue2011_theory.ratios_of(run, matrix, 1.3, 10**6) * math.log(10**6), expected)


def test_failures_come_near_delta_only_with_a_radius_that_is_not_the_papers(monkeypatch, written):
    monkeypatch.setattr(yue2011_theory, "PLAYED", [(1.0, 5, 10**8), (1.0, 5, 10**9), (1.0, 5, 10**10)])
    cells, _ = written("yue2011-theory", yue2011_theory.reproduce(Setup(20, seed=1)))
    rates = [cell["value"] for cell in cells if cell["check"] == "theorem 2"]
    assert rates[0] == rates[1] == 0.0
    assert rates[-1] > 0.1
    ratios = [cell["value"] for cell in cells if cell["check"] == "theorem 1"]
    assert max(ratios) < 1.2 * min(ratios)
    (lemma,) = (cell for cell in cells if cell["check"] == "lemma 3")
    assert 36 < lemma["value"] < lemma["most"] < lemma["bound"]
