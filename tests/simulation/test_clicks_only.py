"""Simulations whose clicks come late and whose silence is known when a window ends."""

import numpy as np
import pytest
from late_users import ItemsWithNumbers, UsersOfKinds
from scipy import stats

import tacit
from tacit.core.run_mode import Interpreted
from tacit.environments import PreferenceMatrix
from tacit.errors import InvalidValue
from tacit.simulation.clicks_only import (
    STEPS,
    TICKS,
    ClicksOnlyRun,
    draw_delay,
    make_delay_table,
    read_click_timing,
)

ARMS = tacit.BernoulliArms([0.3, 0.5, 0.1])
MATRIX = PreferenceMatrix([[0.5, 0.7, 0.8], [0.3, 0.5, 0.6], [0.2, 0.4, 0.5]])
WORLDS = {
    "arms": (tacit.auto(arms=3), ARMS),
    "context": (tacit.auto(arms=3, context_dim=3), UsersOfKinds()),
    "items": (tacit.auto(relevance_dim=40), ItemsWithNumbers()),
    "features": (tacit.auto(relevance_dim=3, examination_dim=3), tacit.ExaminationArms(3, 3)),
    "lists": (
        tacit.auto(arms=6, shows="slate", positions=3),
        tacit.environments.CascadeArms([0.3, 0.25, 0.2, 0.1, 0.1, 0.05], positions=3),
    ),
    "item lists": (
        tacit.auto(relevance_dim=40, shows="slate", positions=3),
        tacit.environments.ItemLists(40, positions=3, pool=200, offered=6),
    ),
    "duels": (tacit.auto(arms=3, shows="duel"), MATRIX),
}
"""A policy that ``auto`` recommends, and users, for each thing that is shown."""
HEAVY = "features", "items", "item lists"
"""Their loops take long to compile, or to play."""


def late_run(policy, horizon, window, delay, environment=ARMS):
    clicks = read_click_timing("clicks only", window, delay, environment)
    return ClicksOnlyRun(policy, environment, horizon, 7, 0, np.array([horizon]), clicks)


def at(rounds):
    """Return a delay of just so many rounds."""
    return lambda share: np.full(share.shape, float(rounds))


def learned(run):
    """Return how many successes and how many plays a run of Thompson sampling has learned."""
    run.advance(run.horizon)
    successes, failures = run.state.successes.sum(), run.state.failures.sum()
    assert run.state.open.min() >= 0
    return successes, successes + failures


def test_silence_is_learned_when_the_window_ends_and_clicks_as_soon_as_their_turn_comes():
    assert learned(late_run(tacit.Thompson(2), 100, 10, 0, tacit.BernoulliArms([0.0, 0.0]))) == (0, 90)
    # A click that takes all of the window is lost.
    for delay, clicks, plays in ((0, 99, 99), (5, 95, 95), (9.5, 90, 90), (10, 0, 90)):
        run = late_run(tacit.Thompson(2), 100, 10, at(delay), tacit.BernoulliArms([1.0, 1.0]))
        assert (delay, *learned(run)) == (delay, clicks, plays)


def test_a_click_after_the_age_of_learning_is_one_more_success():
    # Of 100 clicks 97 take 1 round, and 3 take 90.
    def delay(share):
        return np.where(share < 0.97, 1.0, 90.0)

    run = late_run(tacit.Thompson(2), 5000, 100, delay, tacit.BernoulliArms([0.5, 0.5]))
    clicks, plays = learned(run)
    assert run.extra[3].age[0] < 30 * TICKS
    assert run.curve.total[1] - 30 < clicks <= run.curve.total[1]
    assert 5000 - 30 + 0.02 * clicks < plays < 5000 + 0.04 * clicks


@pytest.mark.interpreted
@pytest.mark.parametrize("kind", WORLDS)
def test_a_window_of_one_round_is_no_delay(kind):
    """What is shown is known before the next round begins: the runs are the same, bit for bit."""
    policy, world = WORLDS[kind]
    runs, rounds = {"runs": 1, "seed": 3, "checkpoints": 10, "workers": 1}, 15 if kind in HEAVY else 60
    plain = tacit.simulate(policy, world, rounds, **runs)
    late = tacit.simulate(policy, world, rounds, feedback="clicks only", window=1, delay=0, **runs)
    assert late.regret.tolist() == plain.regret.tolist()
    assert late.reward.tolist() == plain.reward.tolist()


def test_runs_are_those_of_plain_python_and_do_not_depend_on_workers():
    policy = tacit.auto(arms=3)
    plain, compiled = (late_run(policy, 400, 60, [5, at(40), 5]) for _ in range(2))
    plain.loop = Interpreted(plain.select_loop(plain.extra[1])[0])
    plain.advance(400)
    compiled.advance(400)
    assert plain.curve.values.tolist() == compiled.curve.values.tolist()
    late = {"feedback": "clicks only", "window": 60, "delay": 5}
    one, two = (
        tacit.simulate([policy, tacit.UCB1(3)], ARMS, 3000, runs=400, seed=1, workers=workers, **late)
        for workers in (1, 2)
    )
    assert one.regret.tolist() == two.regret.tolist()


def test_delays_have_their_distribution():
    table = make_delay_table(30.0, 10_000, 3)
    draws = [draw_delay(table, 2, u) / TICKS for u in (np.arange(20_000) + 0.5) / 20_000]
    assert np.mean(draws) == pytest.approx(30.0, rel=0.01)
    assert np.median(draws) == pytest.approx(30.0 * np.log(2.0), rel=0.01)
    each = make_delay_table([at(1), at(2), 0.0], 10, 3)
    assert [draw_delay(each, arm, 0.3) for arm in range(3)] == [TICKS, 2 * TICKS, 0]
    assert each.shape == (3, STEPS + 1)
    assert make_delay_table(1e9, 10, 1).max() == 20 * TICKS, "twice the window is never seen"


def test_delays_by_arm_are_for_arms_that_have_names():
    with pytest.raises(InvalidValue, match="give one for all"):
        tacit.simulate(WORLDS["items"][0], WORLDS["items"][1], 100, **LATE | {"delay": [1, 2, 3, 4, 5]})


LATE = {"feedback": "clicks only", "window": 300, "delay": 30}


def gains(result, kind):
    """Return what was earned in all; of duels, which earn nothing, by how much they beat any duel."""
    return 0.25 * 6000 - result.regret[0, :, -1] if kind == "duels" else result.reward[0, :, -1]


MARKS = dict.fromkeys(HEAVY, pytest.mark.long)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=MARKS.get(kind, ())) for kind in WORLDS])
def test_the_recommended_policy_earns_as_much_from_clicks_only_as_with_zeros_sent(kind):
    policy, world = WORLDS[kind]
    runs = {"runs": 8 if kind in ("arms", "lists", "duels") else 3, "seed": 11, "checkpoints": 1}
    late, at_once = (tacit.simulate(policy, world, 6000, **runs, **said) for said in (LATE, {}))
    assert (gains(late, kind).sum() / gains(at_once, kind).sum()) >= 0.97


@pytest.mark.parametrize("kind", ["arms", "duels", "Thompson"])
def test_propensities_are_exact_while_decisions_wait(kind):
    """Chi-squared test of 4,000 draws; error probability 1e-4 each."""
    policy, world = WORLDS.get(kind, (tacit.Thompson(3), ARMS))
    run = late_run(policy, 400, 200, 60, world)
    run.advance(400)
    assert run.state.open.max() > 0
    impression, rng = run.world.impression, np.random.default_rng(5)
    draws = [policy.choose(policy.params, run.state, 0, impression, rng) for _ in range(4000)]
    shown = {pair: draws.count(pair) for pair in set(draws)}
    chances = {pair: policy.propensity(policy.params, run.state, 0, impression, pair) for pair in shown}
    common = [pair for pair in shown if 4000 * chances[pair] >= 5]
    rest = 4000 - sum(shown[pair] for pair in common), 4000 * (1 - sum(chances[pair] for pair in common))
    counts = [(shown[pair], 4000 * chances[pair]) for pair in common] + [rest] * int(rest[1] >= 5)
    statistic = sum((count - expected) ** 2 / expected for count, expected in counts)
    assert statistic < stats.chi2.isf(1e-4, max(len(counts) - 1, 1))


def test_a_leader_meets_a_rival_no_more_for_as_long_as_its_duels_wait():
    """One lost duel was answered by as many as were decided until they were known, again and again."""
    result = tacit.simulate(
        WORLDS["duels"][0], MATRIX, 12_000, runs=8, seed=3, checkpoints=2, **LATE | {"window": 1000}
    )
    first, whole = result.regret[0].mean(axis=0)
    assert whole - first < 0.01 * 6000
