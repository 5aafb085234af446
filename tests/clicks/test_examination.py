"""Position effects: by hand, and against the truth of simulated pages."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest
from click.testing import CliRunner
from conftest import DATA

from tacit.cli import cli
from tacit.errors import AssumptionWarning, UnfitLog
from tacit.evaluate import PositionBasedIPS, Uniform, examine
from tacit.logs import write_log
from tests.evaluate.test_off_policy import log_of

THETA = np.array([0.9, 0.6, 0.3])
RELEVANCE = np.array([0.5, 0.3, 0.2, 0.1])
METHODS = ("randomization", "harvesting", "em")


def cells(*rows):
    """Return a log from (arm, position, shown, clicks)."""
    arm, position, reward = [], [], []
    for name, place, shown, clicks in rows:
        arm += [name] * shown
        position += [place] * shown
        reward += [1.0] * clicks + [0.0] * (shown - clicks)
    return log_of(["a", "b"], arm, [0.5] * len(arm), reward, position=pa.array(position, pa.int32()))


def pages(slates, seed, odds):
    """Return a log of pages of three arms; ``odds`` are those of the first place's arms."""
    rng = np.random.default_rng(seed)
    first = rng.choice(4, size=slates, p=odds)
    others = rng.permuted(np.tile(np.arange(1, 4), (slates, 1)), axis=1)[:, :2]
    shown = np.column_stack([first, (first[:, None] + others) % 4])
    clicks = rng.random(shown.shape) < RELEVANCE[shown] * THETA
    rest = (1 - np.array(odds)) / 3
    propensity = np.column_stack([np.array(odds)[shown[:, 0]], rest[shown[:, 1:]]])
    names = np.array(list("abcd"))
    return log_of(
        list("abcd"),
        names[shown.ravel()].tolist(),
        propensity.ravel(),
        clicks.ravel().astype(float),
        decision_id=np.repeat(np.arange(slates), 3).astype(str).tolist(),
        position=pa.array(np.tile([0, 1, 2], slates), pa.int32()),
    )


def test_two_positions_by_hand():
    # Arm a: rates 0.5 and 0.25; arm b: 0.2 and 0.1; they stand at 0 and 1 in unlike numbers.
    log = cells(("a", 0, 80, 40), ("a", 1, 40, 10), ("b", 0, 20, 4), ("b", 1, 60, 6))
    # The model fits exactly, so all that use single arms find 1/2.
    assert examine(log, "harvesting").effects == pytest.approx([1, 0.5], rel=1e-6)
    assert examine(log, "em").effects == pytest.approx([1, 0.5], rel=1e-4)
    # Rates of all rows: 44/100 and 16/100.
    assert examine(log, "randomization").effects == pytest.approx([1, (16 / 100) / (44 / 100)])


def test_harvesting_weighs_interventions_alike_not_rows():
    # Rates (0.4, 0.2) and (0.2, 0.2): sums of rates 0.6 and 0.4, however many rows each has.
    log = cells(("a", 0, 10, 4), ("a", 1, 1000, 200), ("b", 0, 500, 100), ("b", 1, 10, 2))
    assert examine(log, "harvesting").effects[1] == pytest.approx(0.4 / 0.6, rel=1e-6)


def test_positions_that_nothing_connects_are_not_told():
    log = cells(("a", 0, 10, 4), ("a", 1, 10, 2), ("b", 2, 10, 2))
    with pytest.warns(AssumptionWarning, match="at one of 2 and at another"):
        effects = examine(log, "harvesting").effects
    assert effects[:2] == pytest.approx([1, 0.5], rel=1e-6)
    assert np.isnan(effects[2])


@pytest.mark.parametrize("method", ["harvesting", "em"])
def test_arms_that_never_change_places_tell_nothing_of_positions_and_that_is_said(method):
    log = cells(("a", 0, 10, 4), ("b", 1, 10, 2), ("b", 2, 10, 2))
    said = "position: no arm of a key stands both at one of 1, 2 and at another position, so .*; swap some"
    with pytest.warns(AssumptionWarning, match=said):
        result = examine(log, method)
    assert np.isnan(result.effects).tolist() == [False, True, True]
    with warnings.catch_warnings(action="error"):
        examine(log, "randomization")
        examine(cells(("a", 0, 10, 4), ("a", 1, 10, 2)), method)


@pytest.mark.parametrize("method", METHODS)
def test_effects_meet_the_truth_under_skewed_placement(method):
    result = examine(pages(12_000, 12, [0.55, 0.25, 0.15, 0.05]), method, confidence=0.999)
    truth = THETA / THETA[0]
    # 99.9 % intervals: two of them miss by chance with probability some 2e-3.
    assert (result.low[1:] <= truth[1:]).all()
    assert (truth[1:] <= result.high[1:]).all()
    assert (result.high[1:] / result.low[1:] < 1.6).all()
    assert result.probabilities.max() == 1.0


def test_a_naive_ratio_of_click_rates_misses_under_skewed_placement():
    log = pages(12_000, 12, [0.55, 0.25, 0.15, 0.05])
    shown = log.group_by("position").aggregate([("reward", "mean")]).sort_by("position")
    rates = shown["reward_mean"].to_numpy()
    assert rates[1] / rates[0] < 0.9 * THETA[1] / THETA[0]


def test_em_takes_a_regression_for_relevance():
    class Means:
        def fit(self, features, targets, sample_weight):
            which = features[:, 0].astype(int)
            self.means = np.bincount(which, targets * sample_weight) / np.bincount(which, sample_weight)

        def predict(self, features):
            return self.means[features[:, 0].astype(int)]

    log = pages(3000, 13, [0.4, 0.3, 0.2, 0.1])
    table = examine(log, "em")
    own = examine(log, "em", features=lambda key, arm: ["abcd".index(arm)], regression=Means())
    assert own.effects == pytest.approx(table.effects, rel=1e-9)


LONG_TAIL = np.array([1.0, 0.6, 0.4, 0.3, 0.2])


def searches(queries, order, seed):
    """Return a log of five places; ``order`` puts twelve arms, of a relevance for each query, in lists."""
    rng = np.random.default_rng(seed)
    relevance = rng.beta(1.5, 1.5, (queries.max() + 1, 12))
    shown = order(relevance, rng)[:, :5]
    clicks = rng.random(shown.shape) < relevance[queries[:, None], shown] * LONG_TAIL
    return pa.table(
        {
            "decision_id": np.repeat(np.arange(len(queries)), 5).astype(str),
            "key": np.char.add("q", np.repeat(queries, 5).astype(str)),
            "position": np.tile(np.arange(5), len(queries)),
            "arm": np.char.add("a", shown.ravel().astype(str)),
            "reward": clicks.ravel().astype(float),
        }
    )


def long_tail(seed, searched=4000):
    """Return a log in random order of which 80 % are of queries that were seen once."""
    rng = np.random.default_rng(seed)
    queries = np.where(rng.random(searched) < 0.2, 0, np.arange(1, searched + 1))
    return searches(queries, lambda _, rng: rng.permuted(np.tile(np.arange(12), (searched, 1)), axis=1), seed)


def ranked(seed, searched=6000):
    """Return a log of Zipf's queries, ordered by a ranker that knows relevance well, with random swaps."""
    odds = 1 / np.arange(1, 2001)
    queries = np.random.default_rng(seed).choice(2000, searched, p=odds / odds.sum())

    def order(relevance, rng):
        lists = np.argsort(-relevance - rng.normal(scale=0.1, size=relevance.shape), axis=1)[queries]
        for place in range(11):
            swapped = np.flatnonzero(rng.random(searched) < 0.2)
            lists[swapped, place : place + 2] = lists[swapped, place : place + 2][:, ::-1]
        return lists

    return searches(queries, order, seed)


@pytest.mark.parametrize("log", [long_tail, ranked])
def test_arms_that_are_seldom_seen_do_not_make_every_position_examined(log):
    result = examine(log(4), "em", arms="shown", confidence=0.999)
    # A relevance for each arm of a query says 1 at every position of the first log.
    assert (result.low[1:] <= LONG_TAIL[1:]).all()
    assert (LONG_TAIL[1:] <= result.high[1:]).all()
    assert result.effects == pytest.approx(LONG_TAIL, abs=0.1)
    assert (result.high[1:] < 1).all()


def test_rows_that_tell_nothing_are_counted():
    log = long_tail(4)
    result = examine(log, "em", arms="shown")
    compared = np.sum(log["key"].to_numpy() == "q0")
    assert result.rows_compared == compared
    assert f"only {compared:,} of 20,000 rows tell examination" in result.summary()
    once = log.filter(pa.compute.not_equal(log["key"], "q0"))
    with pytest.warns(AssumptionWarning, match=rf"1, 2, 3, 4 and .*, in {4 * len(once) // 5:,} of "):
        result = examine(once, "em", arms="shown")
    assert np.isnan(result.effects[1:]).all()


def test_too_few_clicks_to_compare_positions_are_told():
    # The one arm that stands at both places is never clicked at the second.
    log = cells(("a", 0, 9, 3), ("a", 1, 9, 0), ("b", 1, 9, 2))
    with pytest.warns(AssumptionWarning, match="at one of 1 and at .* too few clicks .*swap some"):
        assert np.isnan(examine(log, "em").effects[1])


def test_effects_feed_the_position_based_estimator():
    result = examine(pages(500, 14, [0.25] * 4), "harvesting")
    estimator = PositionBasedIPS(3, examination=result.probabilities, logging=Uniform())
    assert estimator.examination == tuple(result.probabilities.tolist())
    assert PositionBasedIPS(3, examination=result, logging=Uniform()).examination == estimator.examination


def test_positions_are_examined_without_propensities_but_for_randomization(tmp_path):
    log = pages(500, 14, [0.25] * 4).drop_columns("propensity")
    said = r"propensity: no column .*else there is none, .*constant propensity=.*--method harvesting,em"
    with pytest.raises(UnfitLog, match=said) as caught:
        examine(log, "randomization")
    assert "--propensities" not in str(caught.value)
    write_log(log, tmp_path / "log.csv")
    found = CliRunner().invoke(cli, ["examine", str(tmp_path / "log.csv")])
    assert found.exit_code == 0
    assert "by harvesting" in found.stdout
    assert "by em" in found.stdout
    assert "warning: randomization: left out, as" in found.stderr
    assert "propensity: there is none" in found.stderr
    asked = CliRunner().invoke(cli, ["examine", str(tmp_path / "log.csv"), "--method", "randomization"])
    assert asked.exit_code == 1


def test_the_open_bandit_logs_tell_little_and_say_so():
    for method in METHODS:
        result = examine(DATA / "open_bandit" / "random" / "men", method)
        assert result.positions.tolist() == [1, 2, 3]
        assert (result.low[1:] < 1).all()
        assert (result.high[1:] > 1).all()
