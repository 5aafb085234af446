"""Rankers that duel through interleaved lists: the truth, and what policies see of it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import tacit
from tacit.clicks import DependentClick, PositionBased, informational, navigational, perfect
from tacit.environments.interleaved_rankers import InterleavedRankers, from_rankers
from tacit.interleaving import Balanced, Optimized, Probabilistic, TeamDraft

METHODS = [Balanced(length=3), TeamDraft(length=4), Optimized(length=3), Optimized(length=4, score="inverse")]
GRADES = [[2, 0, 1, 0, 1], [0, 0, 2, 1, 0]]
RANKINGS = [
    [[0, 2, 4, 1, 3], [1, 0, 2, 3, 4], [3, 1, 4, 2, 0]],
    [[2, 3, 0, 1, 4], [3, 2, 1, 0, 4], [4, 1, 0]],
]


@dataclass(frozen=True)
class AnyDuel(tacit.policies.DuelPolicy):
    """Any two arms; remembers outcomes."""

    class Params(NamedTuple):
        pass

    class State(NamedTuple):
        outcomes: np.ndarray  # (lanes, arms, arms, 3): lost, tied, won by the left

    def init(self, lanes):
        return self.State(np.zeros((lanes, self.arm_count, self.arm_count, 3)))

    @staticmethod
    def choose(params, state, lane, impression, rng):
        arms = len(impression.arms)
        return int(rng.random() * arms), int(rng.random() * arms)

    @staticmethod
    def propensity(params, state, lane, impression, pair):
        return 1.0 / len(impression.arms) ** 2

    @staticmethod
    def learn(params, state, lane, outcome):
        state.outcomes[lane, outcome.shown[0], outcome.shown[1], int(2 * outcome.reward)] += 1.0


def law(method, user, rankings, grades):
    """The chances that left wins and of a tie: over all lists and all sets of clicks."""
    win = tie = 0.0
    for chance, shown in method.lists(rankings):
        kinds = [grades[item] for item in shown.items]
        for clicks in itertools.product([0, 1], repeat=len(kinds)):
            credit = method.credit(shown, [i for i, click in enumerate(clicks) if click])
            here = chance * math.exp(user.log_likelihood(kinds, clicks))
            win += here * (credit.outcome == 1.0)
            tie += here * (credit.outcome == 0.5)
    return win, tie


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize(
    "user",
    [
        navigational(3),
        PositionBased([0.1, 0.5, 0.9], [1.0, 0.7, 0.5, 0.3]),
        DependentClick([0.2, 0.4, 0.7], [0.8, 0.6, 0.4]),
    ],
    ids=lambda user: type(user).__name__,
)
def test_the_truth_is_a_sum_over_all_lists_and_clicks(method, user):
    wins, ties, precision = InterleavedRankers(RANKINGS, GRADES, user, method).tables
    assert precision == 0.0
    for query in range(2):
        for left, right in itertools.permutations(range(3), 2):
            expected = law(method, user, [RANKINGS[query][left], RANKINGS[query][right]], GRADES[query])
            assert np.allclose((wins[query, left, right], ties[query, left, right]), expected)


def test_probabilistic_interleaving_is_sampled_to_a_stated_precision():
    method = Probabilistic(length=3)
    user = informational(3)
    environment = InterleavedRankers(RANKINGS[:1], GRADES[:1], user, method, samples=2000)
    assert 0.0 < environment.precision < 0.01
    for left, right in itertools.combinations(range(3), 2):
        both = [RANKINGS[0][left], RANKINGS[0][right]]
        exact = 0.0
        for chance, shown in method.lists(both):
            kinds = [GRADES[0][item] for item in shown.items]
            for clicks in itertools.product([0, 1], repeat=3):
                credit = method.credit(shown, [i for i, click in enumerate(clicks) if click])
                exact += chance * math.exp(user.log_likelihood(kinds, clicks)) * credit.chance
        # Five standard errors, three pairs: 2e-6.
        assert abs(environment.preferences[left, right] - exact) < 5 * environment.precision


def test_preferences_are_complementary_and_weighted_by_traffic():
    preferences = InterleavedRankers(RANKINGS, GRADES, navigational(3), traffic=[3, 1]).preferences
    assert np.allclose(preferences + preferences.T, 1.0)
    assert np.allclose(np.diag(preferences), 0.5)
    alone = [
        InterleavedRankers([rankings], [grades], navigational(3)).preferences
        for rankings, grades in zip(RANKINGS, GRADES, strict=True)
    ]
    assert np.allclose(preferences, 0.75 * alone[0] + 0.25 * alone[1])


@pytest.mark.parametrize("ties", ["coin", "keep"])
def test_outcomes_follow_the_truth(ties):
    environment = InterleavedRankers(RANKINGS, GRADES, navigational(3), TeamDraft(length=4), ties=ties)
    rounds = 60_000
    run = tacit.simulation.Run(AnyDuel(arms=3), environment, rounds, 1, 0, np.array([rounds], np.int64))
    run.advance(rounds)
    outcomes = run.state.outcomes[0]
    shown = outcomes.sum(axis=2)
    wins, tied, _ = environment.tables
    win, tie = wins.mean(axis=0), tied.mean(axis=0)
    if ties == "coin":
        assert outcomes[:, :, 1].sum() == 0
        win, tie = win + tie / 2, 0 * tie
    # Five standard deviations for at most 18 counts: 1e-5.
    for found, chance in ((outcomes[:, :, 2], win), (outcomes[:, :, 1], tie)):
        assert (abs(found - shown * chance) <= 5 * np.sqrt(shown * chance) + 1e-9).all()


def test_regret_is_half_of_what_both_fall_short():
    environment = InterleavedRankers(RANKINGS, GRADES, navigational(3))
    best = environment.best
    assert best == 0
    world = environment.world(np.random.default_rng(1), 10)
    for pair in itertools.product(range(3), repeat=2):
        short = sum(environment.preferences[best, arm] - 0.5 for arm in pair) / 2
        regret = environment.optimum(None, world, 0) - environment.expected(None, world, 0, pair)
        assert math.isclose(regret, short, abs_tol=1e-12)


def test_policies_run_in_it_end_to_end():
    environment = InterleavedRankers(RANKINGS, GRADES, perfect(3))
    result = tacit.simulate(AnyDuel(arms=3), environment, horizon=500, runs=2, seed=1)
    expected = 500 * (environment.preferences[environment.best] - 0.5).mean()
    assert abs(result.regret[0, :, -1].mean() - expected) < 0.2 * expected


def test_from_rankers_takes_names_and_ids():
    environment = from_rankers(
        {
            "jaguar": {"old": ["cat", "car"], "new": ["car", "cat", "os"]},
            "go": {"new": ["language", "game"], "old": ["game"]},
        },
        {"jaguar": {"car": 2, "os": 1}},
        perfect(3),
        TeamDraft(length=2),
        traffic={"jaguar": 2.0},
    )
    assert environment.names == ("old", "new")
    assert environment.grades == ((0, 2, 1), (0, 0))
    assert environment.rankings == (((0, 1), (1, 0, 2)), ((0,), (1, 0)))
    assert environment.preferences[1, 0] == 1.0
