"""Metrics besides the reward: added up, judged, and learned."""

import json
import re

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from harness import SECOND, folding, served
from holdouts import FEATURED, METRICS, closed, configured, count_reported, decide_rounds, report
from placement_access import PlanQuery, decide, get_lift

import tacit
from tacit.errors import AssumptionWarning, InvalidValue
from tacit.evaluate import Uniform
from tacit.service.log.requests import DecisionRequest, encode_metrics
from tacit.service.log.requests import FeedbackRequest as Told
from tacit.service.log.rows import FeedbackRow
from tacit.service.maintenance.log_export import export
from tacit.service.page.charts import format_reward
from tacit.service.page.pages import Pages


async def test_metrics_are_added_up_and_judged(tmp_path):
    config = configured(metrics=METRICS, snapshot_every=300)
    async with folding(tmp_path / "s.db", config) as engine:
        async for i, rows in decide_rounds(engine, 40):
            rng = np.random.default_rng(i)
            for part in (rows[:25], rows[25:]):
                sent = []
                for row in part:
                    film = row.arm == "film"
                    amounts = {"revenue": 2.0 + film, "returns": float(rng.random() < 0.1 + 0.6 * film)}
                    sent.append(Told(row.id, reward=float(film), metrics=encode_metrics(amounts)))
                await engine.record_many("home", sent)
            if i == 20:
                # Twice the same, in another piece: amounts are added, within their range.
                await engine.record_many("home", [msg._replace(id="again") for msg in sent])
        engine.clock.now += 40 * SECOND
        await closed(engine)
        found, sums = report(engine), get_lift(engine.placements["home"]).metrics
    revenue, returns = found.metrics
    assert (revenue.name, revenue.claim, revenue.safety) == ("revenue", "better", "safe")
    assert (returns.claim, returns.safety) == ("better", "harm")
    assert returns.verdict.startswith("Learning harms returns. The policy has 0.")
    assert f"{revenue.difference.estimate:.2g} more per decision than the control (" in revenue.verdict
    assert sums["returns"].totals.sum() <= 2000


async def test_amounts_beyond_the_range_are_clipped_and_that_is_said(tmp_path):
    config = configured(metrics={"returns": {"range": [0, 1]}, "margin": {"range": [-10, 30]}})
    async with served(tmp_path / "s.db", config) as engine:
        row = await engine.decide("home", "k")

        async def told(**metrics):
            return await engine.record_many(
                "home", [Told(row.id, reward=0.0, metrics=encode_metrics(metrics))]
            )

        assert await told(returns=1, margin=-10.0) == ["learned"]
        said = (
            r"home: metrics\.{}: {} is beyond its range, {}, and counts as the end of that; widen it, or send"
        )
        for name, amount, ends in (("returns", 5, r"\[0\.0, 1\.0\]"), ("margin", -11, r"\[-10\.0, 30\.0\]")):
            with pytest.warns(AssumptionWarning, match=said.format(name, amount, ends)):
                await told(**{name: amount})
            # Once, whatever else comes.
            assert await told(**{name: 2 * amount}) == ["repeated"]


@pytest.mark.parametrize(
    ("metrics", "field"), [({"clicks": 1.0}, "metrics.clicks"), ({"revenue": -1.0}, "metrics.revenue")]
)
async def test_metrics_that_are_not_watched_are_refused(tmp_path, metrics, field):
    async with served(tmp_path / "s.db", configured(metrics=METRICS)) as engine:
        row = await engine.decide("home", "k")
        with pytest.raises(InvalidValue, match=field):
            await engine.record_many(
                "home", [Told(row.id, "reward", 1.0, None, None, encode_metrics(metrics))]
            )


@pytest.mark.parametrize(
    ("metric", "amounts", "worths"),
    [
        ({"range": [0, 50]}, [0.0, 20.0, 80.0], [0.0, 0.4, 1.0]),
        ({"range": [5, 25]}, [0.0, 10.0, 25.0], [0.0, 0.25, 1.0]),
        ({"half": 20.0}, [0.0, 20.0, 60.0], [0.0, 0.5, 0.75]),
    ],
)
@pytest.mark.parametrize("kind", ["arms", "features"])
async def test_a_metric_can_be_what_is_learned(tmp_path, kind, metric, amounts, worths):
    of_kind = {"arms": None, "kind": kind, "policy": FEATURED} if kind == "features" else {}
    config = configured(metrics={"revenue": metric}, reward="revenue", **of_kind)
    asked = {"arms": ["a", "b"], "relevance": [[1, 0], [0, 1]], "examination": [[1], [1]]}
    async with served(tmp_path / "s.db", config) as engine:
        for amount in amounts:
            (row,) = await decide(engine, DecisionRequest("k", **(asked if kind == "features" else {})))
            content = encode_metrics({"revenue": amount})
            sent = [Told(row.id, metrics=content)]
            await engine.record_many("home", sent)
        for wrong, field in (
            (Told(row.id, reward=0.3, metrics=content), "reward"),
            (Told(row.id, reward=0.3), "metrics.revenue"),
            (Told(row.id), "metrics.revenue"),
        ):
            with pytest.raises(InvalidValue, match=field):
                await engine.record_many("home", [wrong])
        # What one shard has worked out, another takes as it is.
        await engine.record_many("home", [sent[0]._replace(reward=worths[-1], id="again")])
        rows = [one for one in engine.store.events(0) if isinstance(one, FeedbackRow)]
        await closed(engine)
        lift = get_lift(engine.placements["home"])
    assert [row.reward for row in rows[:3]] == worths
    assert [json.loads(row.metrics)["revenue"] for row in rows[:3]] == amounts
    assert lift.reward.totals.sum() == pytest.approx(sum(worths))


@pytest.mark.parametrize(
    ("metric", "stands"),
    [
        ({"range": [5, 25]}, ["reward: at home 0 to 1 stand for 5 to 25 of revenue"]),
        ({"half": 20.0}, ["reward: at home 0 to 1 stand for 0 to 1 of revenue as a share of its scale"]),
        (None, []),
    ],
)
async def test_an_exported_log_says_what_its_rewards_stand_for(tmp_path, metric, stands):
    config = configured(**({} if metric is None else {"metrics": {"revenue": metric}, "reward": "revenue"}))
    async with served(tmp_path / "s.db", config) as engine:
        await engine.decide("home", "k")
        export(config, engine.store, tmp_path)
    log = tacit.read_log(tmp_path / "clicks.parquet")
    assert sum(map(len, log)) == 1
    assert [note for note in log.report.notes() if "stand" in note] == stands


@pytest.mark.parametrize("placement", ["home", "other"])
async def test_what_rewards_stand_for_is_said_of_placements_that_have_rows(tmp_path, placement):
    config = configured(metrics={"revenue": {"range": [5, 25]}}, reward="revenue")
    config.placements["other"] = configured().placements["home"]
    async with served(tmp_path / "s.db", config) as engine:
        await engine.decide("home", "k")
        await engine.decide("other", "k")
        export(config, engine.store, tmp_path)
    table = pq.read_table(tmp_path / "clicks.parquet")
    pq.write_table(table.filter(pc.equal(table["placement"], placement)), tmp_path / "one.parquet")
    for name, said in (("clicks", True), ("one", placement == "home")):
        log = tacit.read_log(tmp_path / f"{name}.parquet")
        assert sum(map(len, log)) == (2 if name == "clicks" else 1)
        assert any("at home" in note for note in log.report.notes()) is said
        assert ("at home" in tacit.off_policy(Uniform(), log).summary()) is said


@pytest.mark.parametrize(
    ("metric", "unit", "largest"),
    [({"range": [0, 200]}, "revenue", 200.0), ({"half": 20.0}, "revenue as a share of its scale", 1.0)],
)
async def test_what_is_learned_is_read_in_its_own_unit(tmp_path, metric, unit, largest):
    """Euros, on the page and in the lift, if they can be known from what they were worth."""
    config = configured(metrics={"revenue": metric}, reward="revenue")
    async with served(tmp_path / "s.db", config) as engine:
        sent = {}
        async for _, rows in decide_rounds(engine, 20):
            for row in rows:
                sent[row.id] = (60.0 if row.arm == "film" else 20.0) * (int(row.id.split()[1]) % 2)
                await engine.record_many(
                    "home", [Told(row.id, metrics=encode_metrics({"revenue": sent[row.id]}))]
                )
        await closed(engine)
        found, planned = (report(engine, query=PlanQuery(rate=rate)) for rate in (None, largest / 4))
        with pytest.raises(InvalidValue, match="rate"):
            report(engine, query=PlanQuery(rate=1.01 * largest))
        pages = Pages(engine)
        page, of_key = await pages.placement("home", {}), await pages.key("home", "k")
    counts = count_reported(found)
    means = {name: group.rewards / group.decisions for name, group in found.groups.items()}
    assert found.rewards == unit
    assert found.difference.estimate == pytest.approx(means["policy"] - means["control"])
    assert 0 < found.difference.estimate < 0.2 * largest
    assert f"<dt>{unit}</dt>" in page
    # What a plan reckons with is asked and said in it, too.
    assert found.planner.rate == pytest.approx(sum(group.rewards for group in found.groups.values()) / counts)
    assert planned.planner.rate == largest / 4
    scarcer = planned.planner.rate < found.planner.rate
    assert (planned.planner.decisions > found.planner.decisions) == scarcer
    # So is what is believed of the arms of a key.
    assert f">Its {unit}</th>" in page
    assert f">{unit.capitalize()}</th>" in of_key
    cells = r'<td class="number" data-value="(0\.\d+)">([^<]+)</td>\s*<td class="number">([^<]+)</td>'
    rows, scale = re.findall(cells, of_key), config.placements["home"].scale
    assert [shown for _, shown, _ in rows] == [
        format_reward(largest * float(value), scale) for value, *_ in rows
    ]
    assert len(rows) == 2
    assert ("%" in "".join(ends for *_, ends in rows)) == (largest == 1.0)
    if largest > 1:
        assert sum(group.rewards for group in found.groups.values()) == pytest.approx(sum(sent.values()))
        assert f">{sum(sent.values()) / counts:.4g}</dd>" in page


async def test_amounts_below_zero_have_a_difference_and_a_verdict(tmp_path):
    metrics = {"margin": {"range": [-10, 30], "margin": 0.01}}
    async with served(tmp_path / "s.db", configured(metrics=metrics)) as engine:
        rng = np.random.default_rng(2)
        async for _, rows in decide_rounds(engine, 20):
            film = [row.id for row in rows if row.arm == "film"]
            margins = [encode_metrics({"margin": float(rng.choice([-15, -5]))}) for _ in film]
            sent = [Told(id, reward=1.0, metrics=each) for id, each in zip(film, margins, strict=True)]
            await engine.record_many("home", sent)
        await closed(engine)
        (found,) = report(engine).metrics
    # Film loses 7.5 on average, of which the policy shows more: −15 counts as −10.
    assert (found.ratio, found.safety, found.claim) == (None, "harm", "worse")
    assert -7.5 < found.difference.low < found.difference.high < 0
