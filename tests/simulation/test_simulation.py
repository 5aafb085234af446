"""Simulation: common random numbers, delays, determinism, and the same kernels in every driver."""

import itertools

import numpy as np
import pytest
from conftest import DATA
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from policies_of_ones_own import Pooled
from scipy import stats

import tacit
from tacit.core.arrays import leaves
from tacit.core.run_mode import compile_loop
from tacit.errors import InvalidValue
from tacit.simulation import POLICY_STREAM, Run

ARMS = tacit.BernoulliArms([0.2, 0.5, 0.8])


def run_of(policy, environment, horizon, seed=7, number=0):
    run = Run(policy, environment, horizon, seed, number, np.array([horizon]))
    run.advance(horizon)
    return run


def assert_same_state(one, other, lanes=1):
    for (name, mine), (_, theirs) in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_array_equal(mine[:lanes], theirs[:lanes], err_msg=name)


# One algorithm, three drivers ----------------------------------------------------------------

DRIVEN = [
    tacit.UCB1(3),
    tacit.KLUCB(3),
    tacit.Thompson(3),
    tacit.policies.EXP3(3),
    tacit.policies.baselines.EXP3S(3),
    tacit.DriftMixture(3),
]
DRIVEN += [Pooled(3)]


@pytest.mark.parametrize("policy", DRIVEN, ids=repr)
def test_a_learner_fed_what_a_simulation_saw_has_its_very_state(policy):
    run = run_of(policy, ARMS, 500)
    replica = run_of(tacit.UniformRandom(3), ARMS, 0)  # the same streams, not yet played
    learner = tacit.Learner(
        policy, seed=np.random.SeedSequence(7, spawn_key=(0, POLICY_STREAM)), propensities=False
    )
    env, params, world = tacit.BernoulliArms, ARMS.params, replica.world
    for round in range(500):
        lane = env.arrive(params, world, round, replica.env_rng)
        decision = learner.choose("query")
        learner.learn(decision, env.respond(params, world, lane, decision.slot))
    assert_same_state(run.state, learner.state)
    assert run.rng.bit_generator.state == learner.rng.bit_generator.state


# Common random numbers -----------------------------------------------------------------------


def test_every_policy_meets_the_same_chances():
    """With one arm nothing is left to choose, so all policies get the very same clicks."""
    policies = [tacit.UCB1(1), tacit.Thompson(1), tacit.policies.EXP3(1)]
    result = tacit.simulate(policies, tacit.BernoulliArms([0.3]), 1000, runs=3, seed=1)
    assert (result.reward == result.reward[:1]).all()
    assert (result.regret == 0).all()
    assert len(set(result.reward[0, :, -1])) > 1  # runs differ


def test_adding_a_policy_changes_no_other():
    alone = tacit.simulate(tacit.Thompson(3), ARMS, 300, runs=2, seed=3)
    among = tacit.simulate([tacit.UCB1(3), tacit.Thompson(3)], ARMS, 300, runs=4, seed=3)
    np.testing.assert_array_equal(alone.regret[0], among.regret[1, :2])


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_number_of_workers_changes_nothing(workers):
    policies = [tacit.UCB1(3), tacit.policies.EXP3(3)]
    reference = tacit.simulate(policies, ARMS, 400, runs=4, seed=9, workers=3)
    result = tacit.simulate(policies, ARMS, 400, runs=4, seed=9, workers=workers)
    np.testing.assert_array_equal(result.regret, reference.regret)
    np.testing.assert_array_equal(result.reward, reference.reward)


def test_pieces_of_a_run_equal_the_whole():
    whole = run_of(tacit.Thompson(3), ARMS, 300)
    pieces = Run(tacit.Thompson(3), ARMS, 300, 7, 0, np.array([300]))
    for _ in range(10):
        pieces.advance(37)
    assert pieces.round == 300
    assert_same_state(pieces.state, whole.state)
    np.testing.assert_array_equal(pieces.curve.values, whole.curve.values)


# What is counted -----------------------------------------------------------------------------


def test_uniform_choice_has_the_regret_it_must_have():
    """Expected 0.3 a round; the mean of 20 runs × 2000 rounds, error probability 1e-6."""
    result = tacit.simulate(tacit.UniformRandom(3), ARMS, 2000, runs=20, seed=5)
    error = np.array([0.6, 0.3, 0.0]).std() / np.sqrt(20 * 2000)
    assert abs(result.regret[0, :, -1].mean() / 2000 - 0.3) < 4.9 * error
    assert abs(result.reward[0, :, -1].mean() / 2000 - 0.5) < 4.9 * 0.5 / np.sqrt(40_000)


def test_checkpoints_are_cumulative_and_where_they_were_asked_for():
    result = tacit.simulate(tacit.UniformRandom(3), ARMS, 100, seed=1, checkpoints=[1, 10, 100])
    assert result.rounds.tolist() == [1, 10, 100]
    every = tacit.simulate(tacit.UniformRandom(3), ARMS, 100, seed=1, checkpoints=100)
    assert every.rounds.tolist() == list(range(1, 101))
    np.testing.assert_array_equal(every.regret[..., [0, 9, 99]], result.regret)
    assert (np.diff(every.regret) >= 0).all()


def test_comparison_is_paired():
    result = tacit.simulate([tacit.UniformRandom(3), tacit.Thompson(3)], ARMS, 500, runs=8, seed=2)
    difference = result.regret[0, :, -1] - result.regret[1, :, -1]
    comparison = result.compare("UniformRandom", tacit.Thompson(3))
    assert comparison.difference == pytest.approx(difference.mean())
    assert comparison.standard_error == pytest.approx(stats.sem(difference))
    assert "UniformRandom" in str(comparison)
    with pytest.raises(InvalidValue, match="name one of UniformRandom, Thompson"):
        result.compare("UCB1", 0)


def test_table_summary_and_plot(tmp_path):
    result = tacit.simulate([tacit.UCB1(3), tacit.Thompson(3)], ARMS, 50, runs=3, checkpoints=5)
    assert result.table.num_rows == 2 * 3 * 5
    last = result.table.slice(4, 1).to_pylist()[0]
    assert last["policy"] == "UCB1"
    assert last["round"] == 50
    assert last["regret"] == result.regret[0, 0, -1]
    assert result.summary().splitlines()[1].startswith("UCB1")
    result.plot(tmp_path / "deep" / "regret.png")
    assert (tmp_path / "deep" / "regret.png").read_bytes().startswith(b"\x89PNG")


# Delay and batches ---------------------------------------------------------------------------


def test_zero_delay_by_the_queue_equals_no_queue():
    """A queue whose feedback is due before the next round is no delay at all."""
    from tacit.simulation.rounds import InFlight, RoundBuffers, play_delayed

    policy = tacit.policies.EXP3(3)
    at_once = run_of(policy, ARMS, 400)
    queued = Run(policy, ARMS, 400, 7, 0, np.array([400]))
    flight = InFlight.empty(2, RoundBuffers(np.zeros(1, np.int64), np.zeros(1)), queued.world.impression)
    queued.extra = (flight, np.random.default_rng(0), 0, 0, 1)
    queued.loop = compile_loop(play_delayed, policy.params, ARMS.params)
    queued.advance(400)
    # The last round's feedback is still under way when the run ends.
    assert queued.curve.values.tolist() == at_once.curve.values.tolist()


@pytest.mark.parametrize(
    ("delay", "batch", "learned"),
    # Feedback of round r is learned before round ⌈(r + 1 + delay)/batch⌉·batch: of 100 rounds,
    # counted from 0, those are learned whose due round is at most 99.
    [(0, 1, 100), (1, 1, 98), (10, 1, 89), (0, 10, 90), (5, 10, 85), (200, 1, 0)],
)
def test_delayed_feedback_arrives_when_it_must(delay, batch, learned):
    environment = tacit.BernoulliArms([0.5, 0.5], delay=delay, batch=batch)
    assert run_of(tacit.UCB1(2), environment, 100).state.rounds[0] == learned


def test_random_delays_stay_in_their_range_and_lose_nothing():
    environment = tacit.BernoulliArms([0.5, 0.5], delay=(3, 9))
    run = Run(tacit.UCB1(2), environment, 1000, 7, 0, np.array([1000]))
    learned = []
    for _ in range(1000):
        run.advance(1)
        learned.append(run.state.rounds[0])
    rounds = np.arange(1, 1001)
    assert (np.array(learned) <= np.maximum(rounds - 4, 0)).all()
    assert (np.array(learned) >= rounds - 10).all()


def test_delayed_policies_with_contexts_learn_from_the_context_of_their_round():
    environment = tacit.ShiftingArms(arms=2, keys=3, dim=2, delay=4, batch=3)
    result = tacit.simulate([tacit.policies.EXP3(2), tacit.UCB1(2)], environment, 2000, runs=2, seed=1)
    assert (result.regret[:, :, -1] < 2000 * 0.6).all()


# Environments --------------------------------------------------------------------------------


def played(environment, rounds, seed=3):
    """Yield (lane, truth, context) of each round, from the environment's own kernels."""
    rng = np.random.default_rng(seed)
    world = environment.world(rng, rounds)
    cls, params = type(environment), environment.params
    for round in range(rounds):
        lane = cls.arrive(params, world, round, rng)
        truth = [cls.expected(params, world, lane, a) for a in range(environment.arm_count)]
        assert cls.optimum(params, world, lane) == pytest.approx(max(truth))
        assert cls.respond(params, world, lane, 0) == float(world.uniform[0] < truth[0])
        yield lane, np.array(truth), world.impression.context.copy()


def test_given_events_happen_in_their_rounds():
    clicks = [[0.9, 0.1], [0.1, 0.9], [0.5, 0.2]]
    environment = tacit.ShiftingArms(arms=2, events=[4, 6], clicks=clicks)
    truths = [truth.tolist() for _, truth, _ in played(environment, 8)]
    assert truths == [clicks[0]] * 3 + [clicks[1]] * 2 + [clicks[2]] * 3


def test_contexts_announce_events_and_nothing_else():
    environment = tacit.ShiftingArms(arms=3, keys=4, events=(5, 5), dim=3, margin=0.1, traffic=0.0)
    before, events = {}, 0
    for lane, truth, context in played(environment, 4000):
        shifted = lane in before and not np.array_equal(before[lane], truth)
        events += shifted
        assert (context.max() >= 0.6) == shifted
        assert shifted or context.max() < 0.5
        if shifted:
            assert truth.argmax() != before[lane].argmax()
        ordered = np.sort(truth)
        assert ordered[-1] - ordered[-2] >= 0.1
        before[lane] = truth
    assert 15 <= events <= 20  # 5 for each of 4 keys, but for those beyond the rounds it had


def told(rounds=4000, **options):
    """Return per round whether an event happened, and the signals."""
    environment = tacit.ShiftingArms(
        arms=3, keys=4, events=(40, 40), dim=2, traffic=0.0, announced=True, **options
    )
    contexts = np.array([context for _, _, context in played(environment, rounds)])
    return contexts[:, 2] == 1.0, contexts[:, :2]


def test_some_events_give_no_signal_and_some_signals_are_false():
    """Binomial counts, checked at 5 standard deviations: error probability below 1e-6."""
    events, signals = told(missed=0.5, false_alarms=0.1)
    alarms = signals.max(axis=1) >= 0.6
    for share, among in ((0.5, events), (0.1, ~events)):
        n = among.sum()
        assert abs(alarms[among].sum() - share * n) < 5 * np.sqrt(n * share * (1 - share))


@pytest.mark.parametrize("signals", ["oblique", "gaussian", "noise"])
def test_signals_of_other_kinds(signals):
    events, contexts = told(signals=signals)
    assert events.sum() > 100
    assert contexts.min() >= 0.0
    assert contexts.max() <= 1.0
    means = contexts.mean(axis=1)
    if signals == "oblique":
        assert means[~events].max() <= 0.5
        assert means[events].min() >= 0.6
    # Error probability below 1e-6 for each: means of some 150 events, at 5 standard errors.
    apart = means[events].mean() - means[~events].mean()
    error = means[events].std() / np.sqrt(events.sum())
    if signals == "gaussian":
        assert apart == pytest.approx(0.1, abs=5 * error)
        assert means[events].min() < means[~events].max()  # they overlap
    if signals == "noise":
        assert abs(apart) < 5 * error


def test_stealthy_events_leave_the_incumbent_as_it_was():
    truths = [truth for _, truth, _ in played(tacit.ShiftingArms(arms=4, events=(6, 6), stealthy=True), 3000)]
    lifted = 0
    for before, after in itertools.pairwise(truths):
        if not np.array_equal(before, after) and after.max() > before.max():
            assert after[before.argmax()] == before.max()
            assert (before != after).sum() == 1
            assert 0.1 <= after.max() - before.max() <= 0.15
            lifted += 1
    assert lifted >= 3


def test_only_a_share_of_the_keys_shifts():
    environment = tacit.ShiftingArms(arms=2, keys=20, shifting=0.25, events=3, traffic=0.0)
    seen = {}
    for lane, truth, _ in played(environment, 6000):
        seen.setdefault(lane, set()).add(tuple(truth))
    assert sum(len(truths) > 1 for truths in seen.values()) == 5


def test_traffic_follows_zipf():
    """Chi-square over 10 keys and 20 000 impressions, error probability 1e-6."""
    lanes = [lane for lane, _, _ in played(tacit.ShiftingArms(arms=2, keys=10, traffic=1.0), 20_000)]
    weights = 1 / np.arange(1, 11)
    expected = 20_000 * weights / weights.sum()
    assert stats.chisquare(np.bincount(lanes, minlength=10), expected).pvalue > 1e-6


@pytest.fixture
def interest(tmp_path):
    path = tmp_path / "interest.csv"
    path.write_text("date,holiday,film\n1996-07-01,30,0\n1996-07-02,30,60\n1996-07-03,0,30\n")
    return path


def test_search_interest_moves_between_the_days(interest):
    environment = tacit.environments.SearchInterest(interest, floor=0.1, ceiling=0.5)
    truths = np.array([truth for _, truth, _ in played(environment, 1200)])
    # Traffic: mean totals (30 + 90)/2 and (90 + 30)/2, so half the rounds in each interval.
    assert truths[0, 0] == pytest.approx(0.5, abs=2e-3)
    assert truths[599] == pytest.approx([0.1 + 0.4 / 3, 0.1 + 0.8 / 3], abs=2e-3)
    assert truths[-1] == pytest.approx([0.1, 0.5], abs=2e-3)
    np.testing.assert_allclose(truths.sum(axis=1), 0.6)  # floors and the whole of the interest
    assert environment.topics == ("holiday", "film")


def test_real_interest_shifts_often():
    environment = tacit.environments.SearchInterest(DATA / "search_interest_us_news_2017.csv")
    assert environment.arm_count == 19
    assert len(environment.dates) == 244
    most_wanted = environment.interest.argmax(axis=1)
    assert (np.diff(most_wanted) != 0).sum() == 64  # a tie counts for the first topic


# Boundaries ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: tacit.BernoulliArms([]), "means"),
        (lambda: tacit.BernoulliArms([0.5, 1.5]), "means"),
        (lambda: tacit.BernoulliArms([0.5, float("nan")]), "means"),
        (lambda: tacit.BernoulliArms(["x"]), "means"),
        (lambda: tacit.BernoulliArms([0.5], delay=-1), "delay"),
        (lambda: tacit.BernoulliArms([0.5], delay=(5, 2)), "delay"),
        (lambda: tacit.BernoulliArms([0.5], batch=0), "batch"),
        (lambda: tacit.ShiftingArms(arms=0), "arms"),
        (lambda: tacit.ShiftingArms(events=[5, 5]), "events"),
        (lambda: tacit.ShiftingArms(events=(3, 1)), "events"),
        (lambda: tacit.ShiftingArms(arms=2, clicks=[[0.1, 0.2]]), "clicks"),
        (lambda: tacit.ShiftingArms(gap=0.5, high=0.4), "high"),
        (lambda: tacit.ShiftingArms(gap=0.4, stealthy=True), "gap"),
        (lambda: tacit.ShiftingArms(dim=500, signals="oblique"), "margin"),
        (lambda: tacit.ShiftingArms(signals="smoke"), "signals"),
        (lambda: tacit.ShiftingArms(false_alarms=2), "false_alarms"),
        (lambda: tacit.ShiftingArms(missed=-1), "missed"),
        (lambda: tacit.environments.SearchInterest("nowhere.csv"), "path"),
        (lambda: tacit.simulate(tacit.UCB1(2), ARMS, 10), "UCB1.arms"),
        (lambda: tacit.simulate([], ARMS, 10), "policies"),
        (lambda: tacit.simulate(tacit.UCB1(3), "arms", 10), "environment"),
        (lambda: tacit.simulate(tacit.UCB1(3), ARMS, 0), "horizon"),
        (lambda: tacit.simulate(tacit.UCB1(3), ARMS, 10, runs=0), "runs"),
        (lambda: tacit.simulate(tacit.UCB1(3), ARMS, 10, seed=-1), "seed"),
        (lambda: tacit.simulate(tacit.UCB1(3), ARMS, 10, workers=0), "workers"),
        (lambda: tacit.simulate(tacit.UCB1(3), ARMS, 10, checkpoints=[11]), "checkpoints"),
        (lambda: tacit.simulate(tacit.UCB1(3), ARMS, 10, checkpoints=[5, 2]), "checkpoints"),
    ],
)
def test_bad_input_names_the_field(make, field):
    with pytest.raises(InvalidValue) as caught:
        make()
    assert caught.value.field == field


def test_a_gap_that_hardly_a_draw_has_is_drawn_at_once():
    # Of 20 arms below 0.4 no draw in 10¹⁹ would have it.
    environment = tacit.ShiftingArms(arms=20, events=[100, 200, 300], gap=0.38, stealthy=True)
    for segment in environment.world(np.random.default_rng(1), 1000).clicks:
        *_, second, best = np.sort(segment)
        assert best - second >= 0.38


@examples(20)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(0, 2**32))
def test_regret_and_reward_are_bounded_by_the_truth(means, seed):
    result = tacit.simulate(tacit.UniformRandom(len(means)), tacit.BernoulliArms(means), 50, seed=seed)
    assert (result.regret >= 0).all()
    assert result.regret[0, 0, -1] <= 50 * (max(means) - min(means)) + 1e-9
    assert 0 <= result.reward[0, 0, -1] <= 50
