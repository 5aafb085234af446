"""Replay: the rejection method on logs of uniform choice.

Statistical tests state the probability with which they would fail on correct code; their seeds
are fixed, so that they either always pass or always fail.
"""

import math
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from conftest import DATA
from policies_of_ones_own import Pooled

import tacit
from tacit.core.arrays import leaves, trim_state
from tacit.core.seeds import stream
from tacit.errors import UnfitLog
from tacit.evaluate import arms_of, replay
from tacit.evaluate.intervals import wilson
from tacit.evaluate.windows import Pass, ReplayConfig, WindowReader
from tacit.logs import read_log, write_log
from tacit.policies.base import Policy

ARMS = ["film", "holiday", "tomato"]
MEANS = np.array([0.1, 0.5, 0.3])
LOGS = DATA / "open_bandit"
SEEDS = range(200)
RARE = 3.89  # A normal variable is farther than this from its mean with probability 1e-4.


def click_log(arm, reward, **columns):
    """Return a uniform log of one key over three arms, as a table."""
    rows = len(arm)
    complete = {
        "timestamp": ["2017-07-04T12:00:00Z"] * rows,
        "decision_id": [str(row) for row in range(rows)],
        "placement": ["home"] * rows,
        "key": ["independence day"] * rows,
        "arms": [ARMS] * rows,
        "arm": [ARMS[slot] for slot in arm],
        "propensity": [1 / 3] * rows,
        "reward": [None if value is None else float(value) for value in reward],
    }
    return pa.table(complete | columns)


def random_log(rows, seed, **columns):
    rng = np.random.default_rng(seed)
    arm = rng.integers(3, size=rows)
    return click_log(arm, rng.random(rows) < MEANS[arm], **columns)


@dataclass(frozen=True)
class Always(Policy):
    """Show one arm, if it is on offer, else the first; remember the contexts of what counted."""

    class Params(NamedTuple):
        slot: int

    class State(NamedTuple):
        plays: np.ndarray
        seen: np.ndarray

    slot: int = 0
    context_dim = 2

    def init(self, lanes):
        return self.State(np.zeros(lanes), np.zeros((lanes, 100, 2)))

    @staticmethod
    def choose(params, state, lane, impression, rng):
        for arm in impression.arms:
            if arm == params.slot:
                return arm
        return impression.arms[0]

    @staticmethod
    def learn(params, state, lane, outcome):
        state.seen[lane, int(state.plays[lane]) % 100] = outcome.impression.context
        state.plays[lane] += 1


def always(slot):
    return Always(arms=ARMS, slot=slot)


def numbered(rows):
    """Return contexts that carry the number of the row."""
    return [[float(row), 0.0] for row in range(rows)]


def played(policy, log, number=0, seed=7, window=1000):
    rules = ReplayConfig(policy=policy, seed=seed, window=window)
    reader, run = WindowReader(rules), Pass(rules, number)
    for part in reader.read(log):
        for _ in run.replay(part, len(reader.lanes)):
            pass
    return run, reader


# Exact --------------------------------------------------------------------------------------


def test_rows_of_the_chosen_arm_count():
    log = click_log([0, 1, 1, 2, 1], [1, 0, 1, 0.5, 1], context=numbered(5))
    result = replay(always(1), log, passes=2)
    assert result.rows == 5
    assert result.matched == (3, 3)
    assert result.clicks == (2.0, 2.0)
    assert result.estimates == (2 / 3, 2 / 3)
    assert result.estimate == pytest.approx(2 / 3)
    assert result.logged == pytest.approx(0.7)
    # Wilson's interval for 2 of 3, as in Brown, Cai, DasGupta (2001), formula 4.
    z = 1.959964
    centre = (2 + z**2 / 2) / (3 + z**2)
    radius = z * math.sqrt(3) / (3 + z**2) * math.sqrt(2 / 9 + z**2 / 12)
    assert (result.low, result.high) == pytest.approx((centre - radius, centre + radius), abs=1e-6)


def test_without_a_match_nothing_is_known():
    result = replay(always(2), click_log([0, 1], [1, 1], context=numbered(2)), passes=3)
    assert math.isnan(result.estimate)
    assert (result.low, result.high, result.matched) == (0.0, 1.0, (0, 0, 0))
    assert "no overlap" in result.summary()
    assert "nan" not in result.summary()


def test_passes_without_a_match_do_not_count_in_the_mean():
    result = replay(tacit.UniformRandom(ARMS), click_log([0], [1]), passes=40, seed=1)
    assert 0 < sum(result.matched) < 40
    assert result.estimate == 1.0
    assert result.low == wilson(1.0, sum(result.matched) / 40)[0]


def test_more_passes_over_the_same_rows_do_not_narrow_the_interval():
    log = random_log(60, 1, context=numbered(60))
    once, often = (replay(always(1), log, passes=passes) for passes in (1, 20))
    assert (once.low, once.high) == (often.low, often.high)


def test_rows_offer_what_they_say():
    offers = [["holiday"], ["tomato", "film"], ["tomato", "film"]]
    log = click_log([1, 2, 0], [1, 1, 0], context=numbered(3))
    log = log.set_column(4, "arms", [offers]).set_column(6, "propensity", [[1.0, 0.5, 0.5]])
    # Slot 0 is film, the second offer's second arm.
    result = replay(always(0), log, passes=1)
    assert (result.matched, result.clicks) == ((2,), (1.0,))


def test_each_key_of_each_placement_learns_on_its_own():
    log = click_log(
        [0] * 5,
        [1] * 5,
        placement=["home", "home", "away", "home", "away"],
        key=["a", "b", "a", "a", "a"],
        context=numbered(5),
    )
    run, source = played(always(0), log)
    assert source.lanes == {("home", "a"): 0, ("home", "b"): 1, ("away", "a"): 2}
    assert run.state.plays[:3].tolist() == [2, 1, 2]


def test_rows_without_feedback_count_as_asked():
    log = click_log([0, 0, 0, 0], [1, None, None, 1], context=numbered(4))
    for missing, rows, clicks in ((0.0, 4, 2.0), (0.5, 4, 3.0), (None, 2, 2.0)):
        result = replay(always(0), log, passes=1, missing_reward=missing)
        assert (result.rows, result.clicks, result.unanswered) == (rows, (clicks,), 2)


# The same algorithm as the learner ----------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        tacit.UniformRandom(ARMS),
        tacit.EpsilonGreedy(ARMS),
        tacit.UCB1(ARMS),
        tacit.KLUCB(ARMS),
        tacit.Thompson(ARMS, discount=0.9),
        tacit.policies.EXP3(ARMS),
        tacit.policies.baselines.EXP3S(ARMS),
        tacit.ExplorationFloor(tacit.UCB1(ARMS), epsilon=0.2),
        tacit.ExplorationFloor(tacit.policies.EXP3(ARMS), epsilon=0.2),
        Pooled(ARMS),
        tacit.DriftMixture(ARMS),
    ],
    ids=lambda policy: policy.label,
)
def test_the_first_pass_is_the_learner_bit_for_bit(policy):
    rows = 400
    keys = [f"key {number}" for number in np.random.default_rng(1).integers(100, size=rows)]
    log = random_log(rows, 2, key=keys)
    run, source = played(policy, log, window=150)

    learner = tacit.Learner(policy, seed=stream("replay", 7, 0))
    matched = 0
    for key, arm, reward in zip(keys, log["arm"].to_pylist(), log["reward"].to_pylist(), strict=True):
        decision = learner.choose(key)
        if decision.arm == arm:
            learner.learn(decision, reward)
            matched += 1
    assert run.match_count == matched > 0
    assert [key for _, key in source.lanes] == learner.keys
    assert run.rng.bit_generator.state == learner.rng.bit_generator.state
    like = policy.init(len(learner.keys))
    for (name, ours), (_, theirs) in zip(
        leaves(trim_state(run.state, like)), leaves(trim_state(learner.state, like)), strict=True
    ):
        assert np.array_equal(ours, theirs), name


def test_the_same_seed_gives_the_same_result_and_another_seed_another():
    log = random_log(500, 3)
    first, again, other = (replay(tacit.Thompson(ARMS), log, seed=seed) for seed in (5, 5, 6))
    assert asdict(first) == asdict(again)
    assert first.matched != other.matched


def test_the_window_does_not_change_the_first_pass():
    log = random_log(500, 3)
    wide, narrow = (replay(tacit.policies.EXP3(ARMS), log, passes=1, window=size) for size in (500, 7))
    assert asdict(wide) == asdict(narrow)


# Windows ------------------------------------------------------------------------------------


def test_later_passes_shuffle_within_windows():
    log = click_log([0] * 100, [1] * 100, context=numbered(100))
    orders = [played(always(0), log, number, window=40)[0].state.seen[0, :, 0] for number in (0, 1)]
    assert orders[0].tolist() == list(range(100))
    for start, stop in ((0, 40), (40, 80), (80, 100)):
        shuffled = orders[1][start:stop]
        assert sorted(shuffled) == list(range(start, stop))
        assert shuffled.tolist() != list(range(start, stop))


def test_passes_shuffle_differently():
    log = click_log([0] * 100, [1] * 100, context=numbered(100))
    first, second = (played(always(0), log, number)[0].state.seen[0, :, 0] for number in (1, 2))
    assert first.tolist() != second.tolist()


def test_the_log_is_read_once_and_no_further_than_the_window():
    read, done = [], []

    def batches():
        for number in range(6):
            read.append(number)
            yield from random_log(10, number).to_batches()

    def progress(rows):
        done.append((rows, len(read)))

    assert replay(tacit.UCB1(ARMS), batches(), passes=2, window=20, progress=progress).rows == 60
    assert [rows for rows, _ in done] == [20, 40, 60, 80, 100, 120]
    assert [number for _, number in done] == [2, 2, 4, 4, 6, 6]
    assert read == list(range(6))


# Refusals -----------------------------------------------------------------------------------


def test_a_log_that_is_not_uniform_is_refused(tmp_path):
    log = random_log(3, 1, propensity=[1 / 3, 1 / 3 + 1e-4, 0.9])
    write_log(log, tmp_path / "a.csv")
    with pytest.raises(UnfitLog, match=r"a\.csv: row 2: propensity: it is 0\.333433, .* 0\.333333; "):
        replay(tacit.UCB1(ARMS), tmp_path / "a.csv")
    assert replay(tacit.UCB1(ARMS), log.slice(0, 2), tolerance=1e-3).rows == 2
    with pytest.raises(UnfitLog, match="row 3"):
        replay(tacit.UCB1(ARMS), log, tolerance=1e-3, assume_uniform=True)


def test_a_log_without_propensities_is_refused_unless_it_is_known_to_be_uniform():
    log = random_log(2, 1, propensity=pa.array([1 / 3, None]))
    with pytest.raises(UnfitLog, match=r"log: row 2: propensity: there is none.*assume_uniform"):
        replay(tacit.UCB1(ARMS), log)
    assert replay(tacit.UCB1(ARMS), log, assume_uniform=True).rows == 2


# Arms ---------------------------------------------------------------------------------------


def test_arms_of_a_log_are_all_that_it_offers():
    log = click_log([0, 1], [1, 1])
    assert arms_of(log) == tuple(ARMS)
    numbers = log.set_column(4, "arms", [[["10", "9"], ["2", "9"]]])
    assert arms_of(numbers.set_column(5, "arm", [["10", "9"]])) == ("2", "9", "10")


def test_numbered_arms_answer_to_their_numbers():
    log = random_log(300, 4)
    slots = [str(ARMS.index(arm)) for arm in log["arm"].to_pylist()]
    renamed = log.set_column(4, "arms", [[["0", "1", "2"]] * 300]).set_column(5, "arm", [slots])
    named, plain = replay(tacit.policies.EXP3(ARMS), log), replay(tacit.policies.EXP3(arms=3), renamed)
    assert asdict(named) == asdict(plain)


# Statistics ---------------------------------------------------------------------------------


def test_uniform_choice_earns_the_mean_of_all_arms():
    """Fails with probability 1e-4."""
    runs = [played(tacit.UniformRandom(ARMS), random_log(500, seed), seed=seed)[0] for seed in SEEDS]
    mean, matched = MEANS.mean(), sum(run.match_count for run in runs)
    error = sum(run.clicks for run in runs) / matched - mean
    assert abs(error) < RARE * math.sqrt(mean * (1 - mean) / matched)
    assert abs((matched / (500 * len(runs))) - 1 / 3) < RARE * math.sqrt(2 / 9 / (500 * len(runs)))


def test_what_a_learning_policy_is_shown_is_unbiased():
    """The rewards that counted, less their expectations, sum to a martingale of mean 0.

    Fails with probability 1e-4.
    """
    surplus = variance = 0.0
    for seed in SEEDS:
        run, _ = played(tacit.Thompson(ARMS), random_log(500, seed), number=1, seed=seed)
        plays = run.state.successes[0] + run.state.failures[0]
        surplus += float((run.state.successes[0] - plays * MEANS).sum())
        variance += float((plays * MEANS * (1 - MEANS)).sum())
    assert abs(surplus) < RARE * math.sqrt(variance)


def test_the_interval_covers_the_truth():
    """Of 400 intervals at 95 % fewer than 360 cover with probability below 1e-4."""
    covered = 0
    for seed in range(400):
        result = replay(always(1), random_log(300, seed, context=[[0.0, 0.0]] * 300), passes=2)
        covered += result.low <= MEANS[1] <= result.high
    assert covered >= 360


def test_a_good_policy_approaches_the_best_arm():
    """Uniform choice would earn 0.3; the test fails with probability below 1e-4."""
    assert min(replay(tacit.Thompson(ARMS), random_log(9000, 5), passes=5).estimates) > 0.44


def test_replay_agrees_with_deciding_live():
    """As many rows count as there are rounds in the simulation; fails with probability 1e-4."""
    policy, rounds = tacit.Thompson(ARMS), 600
    logs = (random_log(3 * rounds, seed) for seed in range(60))
    offline = [replay(policy, log, passes=1, seed=seed).estimate for seed, log in enumerate(logs)]
    live = tacit.simulate([policy], tacit.BernoulliArms(MEANS.tolist()), horizon=rounds, runs=200, seed=1)
    online = live.reward[0, :, -1] / rounds
    error = math.sqrt(np.var(offline) / len(offline) + np.var(online) / len(online))
    assert abs(np.mean(offline) - np.mean(online)) < RARE * error


# Real data ----------------------------------------------------------------------------------


def test_a_real_uniform_log_is_replayed():
    log = read_log(LOGS / "random" / "men")
    arms = arms_of(log)
    assert arms == tuple(str(item) for item in range(34))
    result = replay(tacit.Thompson(arms=arms), log, passes=3)
    assert result.rows == 1_042
    assert result.logged == pytest.approx(46 / 1_042)
    assert all(10 < matched < 60 for matched in result.matched)
    assert 0 <= result.low <= result.estimate <= result.high < 0.5
    assert "Thompson, replayed on 1,042 logged rows" in result.summary()


def test_a_real_log_of_thompson_sampling_is_refused():
    log = read_log(LOGS / "bts" / "men")
    with pytest.raises(UnfitLog, match=r"men\.csv: row 1: .*0\.045525.*UniformRandom.*SNIPS"):
        replay(tacit.Thompson(arms=arms_of(log)), log)
