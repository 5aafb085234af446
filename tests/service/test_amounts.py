"""Metrics without a largest amount, or with amounts below 0: learned, watched, refused."""

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from harness import SECOND, Clock, by_clock, folded, folding, learned_arrays, served, with_home
from holdouts import HALF, closed, decide_rounds, report
from placement_access import LiftSums, PlanQuery, get_learner, get_lift

from tacit.client import Client, Feedback, Impression
from tacit.errors import ConfigError, InvalidValue
from tacit.policies.base import read_unit
from tacit.service.config.file import lint_config
from tacit.service.log.requests import FeedbackRequest, encode_metrics
from tacit.service.maintenance.log_export import export
from tacit.service.page.pages import Pages

ARMS = ["plain", "bold"]
MEANS = {"plain": 20.0, "bold": 90.0}
SELLS = 0.4


def shop(path=None, amounts=(0,), more=None, **table):
    """Return a configuration of a placement that learns a metric of this range."""
    metrics = {"revenue": {"range": list(amounts)}} | (more or {})
    return with_home(
        path, **{"arms": ARMS, "metrics": metrics, "reward": "revenue", "aggregation": "sum"} | table
    )


async def sell(engine, rounds, first=0, size=40, shift=0.0):
    """Decide in rounds; purchases come late, in bursts and pieces; return each arm's amounts and plays."""
    earned, plays = dict.fromkeys(ARMS, 0.0), dict.fromkeys(ARMS, 0)
    for i in range(first, first + rounds):
        rng = np.random.default_rng(i)
        engine.clock.now += 40 * SECOND
        rows = [await engine.decide("home", f"key {j % 3}") for j in range(size)]
        sent = []
        for row in rows:
            plays[row.arm] += 1
            if rng.random() < SELLS:
                amount = round(float(MEANS[row.arm] * rng.lognormal(-0.5)), 2)
                earned[row.arm] += amount + shift
                pieces = [amount / 2, amount / 2 + shift] if rng.random() < 0.3 else [amount + shift]
                sent += [FeedbackRequest(row.id, metrics=encode_metrics({"revenue": x})) for x in pieces]
        engine.clock.now += int(rng.integers(1, 25)) * SECOND
        for part in (sent[::2], sent[1::2]):
            if part:
                await engine.record_many("home", part)
    return earned, plays


@pytest.mark.parametrize("amounts", [[0], [-100]])
async def test_amounts_are_learned_and_the_log_says_the_same(tmp_path, amounts):
    """A restart in the middle, a snapshot of a part, the fold of all, and a rebuild agree bit for bit."""
    path, clock = tmp_path / "s.db", Clock()
    config = shop(amounts=amounts, holdout=HALF, snapshot_every=500)
    async with served(path, config, clock) as engine:
        earned, plays = await sell(engine, 12, size=60)
    async with folding(path, config, clock, partly=True) as engine:
        more, later = await sell(engine, 12, first=12, size=60)
        await closed(engine)
        found, learner = report(engine), get_learner(engine.placements["home"])
        page = await Pages(engine).placement("home", {})
        of_key = await Pages(engine).key("home", "key 1")
        before = learner.estimates("key 0")
        await engine.rebuild("home", "auto")
        assert get_learner(engine.placements["home"]).estimates("key 0") == before
    total = sum(earned.values()) + sum(more.values())
    count = sum(plays.values()) + sum(later.values())
    assert "the most that there is" not in page
    # Amounts, whatever the range begins with.
    assert sum(group.rewards for group in found.groups.values()) == pytest.approx(total)
    assert sum(group.decisions for group in found.groups.values()) == count
    assert (found.rewards, found.claim) == ("revenue", "better")
    assert (found.ratio is None) == (amounts != [0])
    assert (found.planner is None) == (amounts != [0])
    means = {name: group.rewards / group.decisions for name, group in found.groups.items()}
    assert found.difference.estimate == pytest.approx(means["policy"] - means["control"])
    assert f">{total / count:.4g}</dd>" in page
    assert ">Revenue</th>" in of_key
    assert "%" not in of_key.split('data-table="arms"')[1].split("Chance")[0].replace("95 %", "")
    assert before["bold"].mean > before["plain"].mean
    assert read_unit(learner.policy, learner.state).width > max(MEANS.values())


async def test_estimates_are_close_to_the_mean_amounts(tmp_path):
    async with served(tmp_path / "s.db", shop(policy="auto", holdout=HALF)) as engine:
        earned, plays = await sell(engine, 25, size=60)
        await closed(engine)
        estimates = get_learner(engine.placements["home"]).estimates("key 0")
        winner = report(engine).winner
    for arm in ARMS:
        assert estimates[arm].low <= earned[arm] / plays[arm] <= estimates[arm].high
    assert winner.arm == "bold"
    assert winner.behind["plain"].estimate == pytest.approx(SELLS * (90 - 20), rel=0.4)


@pytest.mark.filterwarnings("ignore")
async def test_a_placement_whose_metric_may_be_negative_counts_silence_as_nothing(tmp_path):
    """Sales less what is given back: several pieces are added before the range clips their sum."""
    config = shop(amounts=[-50, 200], holdout=HALF, snapshot_every=300)
    async with folding(tmp_path / "s.db", config) as engine:
        rows = [await engine.decide("home", "k") for _ in range(5)]
        for row, amounts in zip(rows, [[120.0, -30.0], [-80.0, 100.0], [-80.0], [300.0], []], strict=True):
            for amount in amounts:
                content = encode_metrics({"revenue": amount})
                await engine.record_many("home", [FeedbackRequest(row.id, metrics=content)])
        await closed(engine)
        lift, series = get_lift(engine.placements["home"]), engine.placements["home"].series
        groups = report(engine).groups
    worth = [90.0, 20.0, -50.0, 200.0, 0.0]
    assert lift.reward.totals.sum() == pytest.approx(sum((x + 50) / 250 for x in worth))
    assert sum(group.rewards for group in groups.values()) == pytest.approx(sum(worth))
    assert series.rewards == pytest.approx(sum(worth) / 250)


async def test_an_open_window_is_no_loss_on_the_page(tmp_path):
    async with served(tmp_path / "s.db", shop(amounts=[-50, 200])) as engine:
        row = await engine.decide("home", "k")
        await engine.decide("home", "k")
        engine.clock.now += SECOND
        await engine.record_many("home", [FeedbackRequest(row.id, metrics=encode_metrics({"revenue": 60}))])
        engine.clock.now += 40 * SECOND
        await engine.decide("home", "k")
        page = await Pages(engine).placement("home", {})
    assert ">20</dd>" in page


async def test_neither_end_known_a_metric_has_a_difference(tmp_path):
    metrics = {"profit": {"range": []}, "costs": {"range": [-10], "better": "less"}}
    config = with_home(holdout=HALF, arms=ARMS, policy="epsilon-greedy(epsilon=0.1)", metrics=metrics)
    sums = {"plain": [], "bold": []}
    async with folding(tmp_path / "s.db", config) as engine:
        rng = np.random.default_rng(4)
        async for _, rows in decide_rounds(engine, 40):
            for row in rows:
                profit = float(rng.normal(9.0 if row.arm == "bold" else -9.0, 15.0))
                sums[row.arm].append(profit)
                content = encode_metrics({"profit": profit, "costs": -1.0})
                sent = FeedbackRequest(row.id, reward=float(row.arm == "bold"), metrics=content)
                await engine.record_many("home", [sent])
        await closed(engine)
        found = {metric.name: metric for metric in report(engine).metrics}
        page = await Pages(engine).placement("home", {})
        lift = get_lift(engine.placements["home"])
    profit, profits = found["profit"], lift.metrics["profit"]
    assert (profit.ratio, profit.claim, profit.safety) == (None, "better", "safe")
    means = profits.totals / profits.counts
    assert profit.difference.estimate == pytest.approx(means[1] - means[0])
    assert 0 < profit.difference.low < profit.difference.high < 15
    sizes = np.sort(np.abs([*sums["plain"], *sums["bold"]]))[::-1]
    one, five = 100 * sizes[0] / sizes.sum(), 100 * sizes[:5].sum() / sizes.sum()
    said = f"Of profit the largest amount brings {one:.1f} % of the sum, the five largest {five:.1f} %."
    assert profit.verdict.endswith(said)
    assert LiftSums.merge_shards([lift, lift]).tails["profit"][1:5].tolist() == [*sizes[[0, 0, 1, 1]]]
    assert "Of costs the largest amount brings 0.1 % of the sum" in found["costs"].verdict
    assert found["costs"].ratio is None
    assert profits.totals.sum() == pytest.approx(sum(map(sum, sums.values())))
    assert f">{sum(map(sum, sums.values())) / 2000:.4g}</dd>" in page


def test_revenue_over_http(tmp_path):
    """Late purchases in bursts, a restart, and the lift in amounts and as a share."""
    path, clock = tmp_path / "s.db", Clock()
    config = shop(
        path, holdout=HALF, more={"returns": {"range": [0, 1], "better": "less"}}, snapshot_every=900
    )
    total = 0.0
    for part in range(2):
        rng = np.random.default_rng(part)
        with by_clock(config, clock) as address, Client(address) as client:
            for _ in range(4):
                made = client.decide_many("home", [Impression("tomato")] * 900)
                clock.now += 20 * SECOND
                amounts = [float(x) for x in np.round(rng.lognormal(3.0, 0.3, 900), 2)]
                sent = [
                    Feedback(one.decision_id, metrics={"revenue": amount * (1 + 2 * (one.arm == "bold"))})
                    for one, amount in zip(made, amounts, strict=True)
                    if rng.random() < 0.3
                ]
                total += sum(each.metrics["revenue"] for each in sent)
                client.feedback_many("home", sent)
                clock.now += 40 * SECOND
            client.decide("home", "tomato")
            found = client.lift("home")
    assert sum(group.rewards for group in found.groups.values()) == pytest.approx(total)
    assert (found.rewards, found.claim, found.planner.rate > 1) == ("revenue", "better", True)
    assert found.ratio.low > 1
    assert "more than the control" in found.verdict
    from_snapshot, from_log = (folded(path, config, snapshot) for snapshot in (True, False))
    assert learned_arrays(get_learner(from_snapshot)) == learned_arrays(get_learner(from_log))


async def test_what_earlier_amounts_were_is_kept(tmp_path):
    """Another end is another unit: what is learned of it is not that which was learned."""
    async with served(tmp_path / "s.db", shop(amounts=[0, 200])) as engine:
        await sell(engine, 2)
    with pytest.raises(ConfigError, match=r"metrics: .*rewards in \(0, 1\).*rewards in \(0, None\)"):
        async with served(tmp_path / "s.db", shop(rebuild=True)):
            pass


async def test_an_exported_log_has_the_amounts(tmp_path):
    config = shop()
    async with served(tmp_path / "s.db", config) as engine:
        earned, _ = await sell(engine, 3)
        await closed(engine)
        assert "Of revenue the largest amount brings" in report(engine).verdict
        export(config, engine.store, tmp_path)
    table = pq.read_table(tmp_path / "clicks.parquet")
    assert pc.sum(table["reward"]).as_py() == pytest.approx(sum(earned.values()))
    assert b"at home rewards are amounts of revenue" in b"".join(table.schema.metadata.values())


async def test_amounts_are_numbers_that_can_be_told_from_others(tmp_path):
    async with served(tmp_path / "s.db", shop(holdout=HALF)) as engine:
        row = await engine.decide("home", "k")
        for amount in (-1.0, 1e31):
            content = encode_metrics({"revenue": amount})
            with pytest.raises(InvalidValue, match=r"metrics\.revenue"):
                await engine.record_many("home", [FeedbackRequest(row.id, metrics=content)])
        with pytest.raises(InvalidValue, match="rate"):
            report(engine, query=PlanQuery(rate=1e31))


def test_half_is_warned_of_once_at_the_start():
    (said,) = lint_config(with_home(arms=ARMS, metrics={"revenue": {"half": 20.0}}, reward="revenue"))
    assert said.startswith("placements.home.metrics.revenue.half: the mean of x/(x + half) is learned")
    assert not list(lint_config(shop()))
