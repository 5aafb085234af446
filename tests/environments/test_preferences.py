"""Measures on preference matrices, against the paper's table and small cases worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from tacit.environments import preferences
from tacit.errors import InvalidValue

A, B, C, D, E, F = range(6)
CYCLE = [[0.5, 0.6, 0.4], [0.4, 0.5, 0.6], [0.6, 0.4, 0.5]]


def matrices(arms: int = 5):
    """Random preference matrices."""
    margins = st.floats(-0.49, 0.49).map(lambda x: round(x, 3))
    cells = st.lists(margins, min_size=arms * arms, max_size=arms * arms)
    return cells.map(lambda flat: preferences.from_margins(np.reshape(flat, (arms, arms))))


def brute_force(p: np.ndarray, best: int) -> tuple[float, float]:
    """Return γ and λ by the definition, for a matrix without ties."""
    e, gamma, factor = p - 0.5, 1.0, 1.0
    for j in range(len(p)):
        for k in range(len(p)):
            if len({best, j, k}) == 3 and e[j, k] > 0:
                gamma = max(gamma, e[best, j] / e[best, k], e[j, k] / e[best, k])
                factor = max(factor, e[best, k] / (e[best, j] + e[j, k]))
    return gamma, factor


class TestTable1:
    """Table 1 of Yue and Joachims (2011), beside γ and λ, which the example of ``measure`` has."""

    found = preferences.measure(preferences.arxiv())

    def test_the_triangle_inequality_fails_in_three_triples(self):
        violated = {violation.triple: violation.excess for violation in self.found.triangle_violations}
        assert violated == {
            (A, C, E): pytest.approx(0.05),
            (A, D, E): pytest.approx(0.03),
            (A, D, F): pytest.approx(0.07),
        }

    def test_the_equality_of_a_c_f_is_no_violation(self):
        p = preferences.arxiv()
        assert p[A, F] - 0.5 == pytest.approx((p[A, C] - 0.5) + (p[C, F] - 0.5), abs=1e-12)
        assert (A, C, F) not in [v.triple for v in self.found.triangle_violations]

    def test_d_and_f_tie_so_the_order_is_not_strict(self):
        assert preferences.arxiv()[D, F] == 0.5
        assert not self.found.strict_order
        assert self.found.condorcet == A


class TestMatrices:
    def test_case_b_leaves_the_best_pair_alone(self):
        e = preferences.relaxed_chain(6, 1.3) - 0.5
        assert e[0, 1] == pytest.approx(0.1)
        assert np.diag(e, 1)[1:] == pytest.approx([0.13] * 4)
        assert np.triu(e, 2)[np.triu_indices(6, 2)] == pytest.approx([0.1] * 10)

    @pytest.mark.parametrize("gamma", [1.0, 1.3, 1.6])
    def test_case_b_has_the_gamma_that_it_says(self, gamma):
        found = preferences.measure(preferences.relaxed_chain(7, gamma))
        assert found.gamma == pytest.approx(gamma)
        assert found.strict_order
        assert found.triangle_violations == ()
        assert len(found.gamma_witnesses) == (0 if gamma == 1 else 5)

    @pytest.mark.parametrize("arms", [1, 2, 9])
    def test_uniform_gap(self, arms):
        p = preferences.uniform_gap(arms, 0.1)
        assert p[np.triu_indices(arms, 1)] == pytest.approx(0.6)
        assert preferences.measure(p).gamma == 1.0

    def test_logistic_utilities_satisfy_what_the_paper_assumes(self):
        for seed in range(20):
            found = preferences.measure(preferences.logistic_utilities(12, np.random.default_rng(seed)))
            assert found.condorcet == 0
            assert found.gamma == pytest.approx(1.0)
            assert found.triangle_violations == ()

    @pytest.mark.parametrize(
        ("call", "field"),
        [
            (lambda: preferences.uniform_gap(0, 0.1), "arms"),
            (lambda: preferences.uniform_gap(3, 0.5), "epsilon"),
            (lambda: preferences.uniform_gap(3, 0.0), "epsilon"),
            (lambda: preferences.relaxed_chain(3, 0.9), "gamma"),
            (lambda: preferences.relaxed_chain(3, 5.0), "gamma"),
            (lambda: preferences.logistic_utilities(0, np.random.default_rng(1)), "arms"),
            (lambda: preferences.validate([[0.5, 0.6]]), "preferences"),
            (lambda: preferences.validate([]), "preferences"),
            (lambda: preferences.validate("no"), "preferences"),
            (lambda: preferences.validate([[0.5, 1.0], [0.0, 0.5]]), "preferences[0][1]"),
            (lambda: preferences.validate([[0.5, 0.6], [0.5, 0.5]]), "preferences[0][1]"),
            (lambda: preferences.validate([[0.4, 0.6], [0.4, 0.5]]), "preferences[0][0]"),
            (lambda: preferences.validate([[0.5, math.nan], [0.4, 0.5]]), "preferences[0][1]"),
            (lambda: preferences.estimate([[0, -1], [0, 0]]), "wins"),
            (lambda: preferences.estimate([[0, 0.5], [0, 0]]), "wins"),
            (lambda: preferences.estimate([[0, math.nan], [0, 0]]), "wins"),
            (lambda: preferences.estimate([[0, 1]]), "wins"),
            (lambda: preferences.estimate([[0, 1], [1, 0]], confidence=1.0), "confidence"),
        ],
    )
    def test_errors_name_the_field(self, call, field):
        with pytest.raises(InvalidValue) as caught:
            call()
        assert caught.value.field == field


class TestWinners:
    def test_a_cycle_has_no_condorcet_winner_and_ties_elsewhere(self):
        found = preferences.measure(CYCLE)
        assert found.condorcet is None
        assert found.copeland == found.borda == (0, 1, 2)
        assert not found.strict_order
        assert math.isnan(found.gamma)

    def test_the_borda_winner_may_differ_from_the_condorcet_winner(self):
        p = preferences.from_margins([[0, 0.01, 0.01], [0, 0, 0.4], [0, 0, 0]])
        assert preferences.condorcet_winner(p) == 0
        assert preferences.borda_winners(p) == (1,)

    def test_one_arm_wins(self):
        found = preferences.measure([[0.5]])
        assert (found.condorcet, found.gamma, found.lambda_) == (0, 1.0, 1.0)

    @examples(60)
    @given(matrices(), st.permutations(range(5)))
    def test_measures_follow_a_renaming_of_the_arms(self, p, order):
        order = np.array(order)
        renamed = p[np.ix_(order, order)]
        before, after = preferences.measure(p), preferences.measure(renamed)
        assert {int(order[arm]) for arm in after.copeland} == set(before.copeland)
        assert {int(order[arm]) for arm in after.borda} == set(before.borda)
        if before.condorcet is not None:
            assert int(order[after.condorcet]) == before.condorcet

    @examples(60)
    @given(matrices())
    def test_gamma_and_lambda_are_those_of_the_definition(self, p):
        found = preferences.measure(p)
        ties = np.abs(p - 0.5)[np.triu_indices(5, 1)].min() < 1e-9
        if found.condorcet is not None and not ties:
            assert (found.gamma, found.lambda_) == pytest.approx(brute_force(p, found.condorcet))


class TestEstimate:
    def test_many_duels_leave_no_doubt(self):
        p = preferences.from_margins(np.array([[0, 0.1, 0.25], [0, 0, 0.2], [0, 0, 0]]))
        found = preferences.estimate(np.rint(p * 10**6))
        assert found.condorcet == 0
        assert found.transitive is True
        assert found.triangle is True
        assert np.abs(found.matrix - p).max() < 1e-6

    def test_a_violation_is_told_from_ignorance(self):
        p = preferences.relaxed_chain(4, 1.6)
        assert preferences.estimate(np.rint(p * 10**6)).transitive is False
        assert preferences.estimate(np.rint(p * 300)).transitive is None

    def test_the_radius_by_hand(self):
        # Three pairs, 100 duels each: sqrt(ln(2·3/0.05)/200) = 0.15471.
        found = preferences.estimate(np.full((3, 3), 50))
        assert found.upper[0, 1] == pytest.approx(0.65471, abs=1e-5)
        assert found.possible == (0, 1, 2)
        assert found.condorcet is None

    def test_pairs_that_never_met_are_open(self):
        found = preferences.estimate([[0, 900, 0], [100, 0, 0], [0, 0, 0]])
        assert (found.lower[0, 2], found.upper[0, 2]) == (0.0, 1.0)
        assert found.possible == (0, 2)

    def test_the_bounds_hold_together_as_often_as_they_say(self):
        # Of 400 matrices at 80 %, at least 80 % must be covered; 400·0.8 less four standard
        # deviations is 288. Hoeffding's bound is generous, so a failure has p < 3·10⁻⁵.
        rng, p = np.random.default_rng(7), preferences.arxiv()
        above = np.triu(rng.binomial(60, p, (400, 6, 6)), 1)
        covered = 0
        for upper in above:
            found = preferences.estimate(upper + np.tril(60 - upper.T, -1), 0.8)
            covered += bool(((found.lower <= p) & (p <= found.upper)).all())
        assert covered >= 288
