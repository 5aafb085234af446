"""The lift over changes: of arms, policy and mode it goes on, of the holdout in periods."""

import contextlib

import harness
import numpy as np
import pytest
from holdouts import ARMS, METRICS, RATES, asked, closed, configured, count_reported, report, shown, traffic
from placement_access import (
    MAX_SUBPERIODS,
    LiftSums,
    export_statistics,
    get_lift,
    make_lift_report,
    merge_parts,
)
from stores import store_at

from tacit.client import Client, InvalidRequest
from tacit.errors import ConfigError, InvalidValue
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.log.ids import as_datetime
from tacit.wire.control import ArmsOf, HoldoutOf, ModeOf
from tests.cli.test_cli import tacit

ALL = RATES | {"holiday": 0.3, "song": 0.3}
DAY = 86_400 * harness.SECOND


async def arms(engine, **change):
    await engine.ask("home", ArmsOf(**change))


@pytest.mark.parametrize("unit", ["decision", "user"])
async def test_a_lift_goes_on_when_arms_policy_and_mode_change(tmp_path, unit):
    """What is summed is what would be without the changes; and it is a fold of the log."""
    config = configured(holdout={"share": 0.5, "unit": unit}, metrics=METRICS, snapshot_every=70)
    async with harness.folding(tmp_path / "s.db", config) as engine:
        await traffic(engine, 4, size=30, rates=ALL)
        await arms(engine, add=["holiday"])
        await traffic(engine, 4, size=30, rates=ALL)
        await arms(engine, retire=["film"])
        await engine.rebuild("home", "uniform-random")
        await traffic(engine, 4, size=30, rates=ALL)
        (state, *_) = await engine.states("home")
        await engine.rollback("home", state.name)
        await engine.ask("home", ModeOf("frozen"))
        await traffic(engine, 4, size=30, rates=ALL)
        await closed(engine)
        lift = get_lift(engine.placements["home"])
        assert lift.past_periods == []
        assert lift.reward.counts.sum() == 4 * 4 * 30
        assert lift.decided_counts.sum() == 4 * 4 * 30
        assert tuple(part.change for part in lift.subperiods) == (
            "",
            "arms",
            "arms",
            "rebuild",
            "rollback",
            "mode frozen",
        )
        # Decisions that were open belong to the part that they were made in.
        assert tuple(part.sums.counts.sum() for part in lift.subperiods) == (120, 120, 0, 120, 0, 120)
        totals = sum(part.sums.totals for part in lift.subperiods)
        np.testing.assert_allclose(totals, lift.reward.totals, rtol=1e-12)
        # Arms are compared since they changed last.
        assert 0 < lift.scores.overall[0] <= 8 * 30


async def test_a_chapter_ends_with_what_the_coin_knows(tmp_path):
    path = tmp_path / "s.db"
    config = configured(holdout={"share": 0.3, "control": "baseline"}, arms=[*ARMS, "holiday"])
    async with harness.folding(path, config) as engine:
        await traffic(engine, 30, rates=ALL)
        # The baseline is the first arm on offer: another one's coming and going is nothing.
        await arms(engine, retire=["holiday"])
        await traffic(engine, 2, rates=ALL)
        assert get_lift(engine.placements["home"]).past_periods == []
        await arms(engine, retire=["film"], add=["song"])
        engine.clock.now += DAY
        await traffic(engine, 30, rates=ALL)
        for holdout in (HoldoutConfig(0.5), HoldoutConfig(0.5, unit="user"), None):
            await engine.ask("home", asked(holdout))
            await traffic(engine, 20, rates=ALL)
        await engine.ask("home", HoldoutOf(0.4))
        engine.clock.now += DAY
        await traffic(engine, 10, rates=ALL)
        await closed(engine)
        whole = report(engine)
        third = report(engine, time_range=("3", "3"))
        last = report(engine, time_range=("3", None))
        for wrong in ("0", "7"):
            with pytest.raises(InvalidValue, match="numbers of chapters: 1 to 6"):
                report(engine, time_range=(wrong, None))
        with pytest.raises(InvalidValue, match="give the number of a chapter"):
            report(engine, time_range=("2023-01-01", None))
    assert [(one.number, one.ended) for one in whole.chapters] == [
        (1, "what the control shows changed"),
        (2, "the share became 50 %, the control became uniform"),
        (3, "the unit became the user"),
        (4, "the holdout ended"),
        (6, None),
    ]
    # Windows that were open at the end of a chapter are left out of it.
    assert [count_reported(one) for one in whole.chapters] == [1550, 1450, 950, 950, 500]
    assert count_reported(whole) == 1550 + 1450 + 950 + 950 + 500
    assert count_reported(third) == 950
    assert count_reported(last) == 950 + 950 + 500
    assert third.ratio == whole.chapters[2].ratio
    assert third.since == whole.chapters[2].since
    assert third.until == whole.chapters[2].until
    assert third.verdict.startswith("Of chapters 3 to 3: ")
    assert whole.since == whole.chapters[0].since
    assert (whole.share, whole.chapters[0].share) == (0.4, 0.3)
    assert all(one.counted for one in whole.chapters)
    # Rewards per decision are weighed by the decisions of their chapters.
    means = np.array([
        [one.groups[name].rewards / one.groups[name].decisions for name in ("control", "policy")]
        for one in whole.chapters
    ])  # fmt: skip
    control, policy = np.average(means, axis=0, weights=[count_reported(one) for one in whole.chapters])
    assert whole.ratio.estimate == pytest.approx(policy / control)
    assert whole.difference.estimate == pytest.approx(policy - control)


async def test_the_sentence_tells_what_was_before_a_change_from_what_is_since(tmp_path):
    async with harness.served(tmp_path / "s.db", configured(holdout={"share": 0.5})) as engine:
        await traffic(engine, 40, rates={"film": 0.6, "recipe": 0.2})
        engine.clock.now += 20 * DAY
        await arms(engine, add=["holiday"])
        before = report(engine)
        await traffic(engine, 40, rates={"film": 0.6, "recipe": 0.2, "holiday": 0.2})
        await closed(engine)
        found = report(engine)
    (chapter,) = found.chapters
    assert found.claim == "better"
    assert "arms changed" not in before.verdict
    # The tenth of film's lift is what the sentence says of it.
    shown = [f"{100 * (part.ratio - 1):.0f} %" for part in chapter.parts]
    since = f"arms changed on 4 December (before: {shown[0]}, since: {shown[1]})."
    assert f"average since 14 November, not today's lift; {since}" in found.verdict
    assert found.groups == chapter.groups


async def test_both_name_their_time_and_their_count(tmp_path):
    """Two looks with no traffic between differ in what they say of windows that were open."""
    async with harness.served(tmp_path / "s.db", configured(holdout={"share": 0.5})) as engine:
        await traffic(engine, 20)
        first = report(engine)
        engine.clock.now += 60 * harness.SECOND
        await engine.ask("home", ModeOf("online"))
        later = report(engine)
    assert (count_reported(first), first.pending) == (950, 50)
    assert (count_reported(later), later.pending, later.pending_until) == (1000, 0, None)
    assert first.as_of < first.pending_until <= later.as_of
    assert first.counted.startswith("As of 14 November 22:26:40 (UTC), over 950 decisions. 50 deci")
    assert first.counted.endswith("do not count yet, as windows are open until 22:27:10 (UTC).")
    assert later.counted == "As of 14 November 22:27:40 (UTC), over 1,000 decisions."


async def test_a_planned_look_is_sharper_and_stays_what_it_was(tmp_path):
    config = configured(holdout={"share": 0.5, "look": "2023-11-15"}, snapshot_every=90)
    async with harness.folding(tmp_path / "s.db", config) as engine:
        home = engine.placements["home"]
        assert report(engine).look.reached is False
        await traffic(engine, 20, rates={"film": 0.6, "recipe": 0.2})
        before = report(engine)
        engine.clock.now += 2 * DAY
        at = report(engine)
        await traffic(engine, 20, rates={"film": 0.2, "recipe": 0.5})
        await closed(engine)
        after = report(engine)
        assert get_lift(home).look_sums.counts.sum() == 1000
        assert get_lift(merge_parts(home, [export_statistics(home)] * 2)).look_sums.counts.sum() == 2000
    assert before.look.verdict.startswith("One look is planned on 15 November")
    for found in (at, after):
        assert found.look.reached
        assert found.look.verdict.startswith("At the look that was planned on 15 November: Learn")
    assert after.look.ratio.estimate == pytest.approx(before.chapters[0].ratio.estimate, rel=0.1)
    # 2.548 standard errors in place of 3.25.
    wide = [np.log(one.high / one.low) for one in (at.look.ratio, before.ratio)]
    assert wide[0] / wide[1] == pytest.approx(2.548 / 3.25, rel=0.05)
    assert after.ratio.estimate < after.look.ratio.estimate


async def test_a_look_in_the_past_is_refused_where_it_is_planned_anew(tmp_path):
    async def open_with(look, later=0):
        config = configured(holdout={"share": 0.5, "look": look})
        with contextlib.closing(store_at(tmp_path / "s.db")) as store:
            async with harness.served(store, config, harness.Clock(harness.START + later)):
                pass

    said = r"home\.holdout\.look: '2020-01-01'.*plan a later one, or leave it"
    with pytest.raises(ConfigError, match=said):
        await open_with("2020-01-01")
    await open_with("2023-11-15")
    # One that was planned in time stays when it is over.
    await open_with("2023-11-15", 2 * DAY)
    with pytest.raises(ConfigError, match=r"home\.holdout\.look: '2023-11-16'.*it is 2023-11-16T22"):
        await open_with("2023-11-16", 2 * DAY)


def test_the_oldest_parts_are_joined():
    sums = LiftSums(2, {})
    sums.count_decisions([1, 0], 5)
    for i in range(MAX_SUBPERIODS + 20):
        sums.begin_subperiod("arms", i, i)
    assert len(sums.subperiods) == MAX_SUBPERIODS
    assert (sums.subperiods[0].change, sums.subperiods[-1].seq) == ("", MAX_SUBPERIODS + 19)


async def test_shards_put_the_same_chapters_together(tmp_path):
    """One that lags behind is in the chapter that it has; nothing of it is lost."""
    config, homes = configured(holdout={"share": 0.5, "unit": "user"}), []
    for number in range(3):
        async with harness.served(tmp_path / f"{number}.db", config) as engine:
            engine.clock.now += number * harness.SECOND
            await traffic(engine, 4, size=30)
            await arms(engine, add=["holiday"])
            await traffic(engine, 4, size=30, rates=ALL)
            if number < 2:
                await engine.ask("home", HoldoutOf(0.2, unit="user"))
                await traffic(engine, 4, size=30, rates=ALL)
            homes.append(engine.placements["home"])
    views = list(map(export_statistics, homes))
    whole = merge_parts(homes[0], views)
    lift = get_lift(whole)
    (past,) = lift.past_periods
    assert past.reward.counts.sum() == 3 * 210
    assert lift.reward.counts.sum() == 2 * 90
    assert [part.sums.counts.sum() for part in past.subperiods] == [360, 270]
    assert lift.excluded_shards == 1
    found = make_lift_report(whole, lift.time + DAY)
    assert found.verdict.startswith("This leaves out 1 shard")
    # The windows of all shards are open; the last one closes with the last of them.
    assert found.pending == sum(view.pending for view in views) > 0
    assert found.pending_until == as_datetime(max(view.last_deadline for view in views)).isoformat()
    assert count_reported(found) == 3 * 210 + 2 * 90
    # In whatever order they come.
    other = get_lift(merge_parts(homes[1], [views[1], views[0], views[2]]))
    for one, two in ((lift, other), (past, other.past_periods[0])):
        np.testing.assert_allclose(one.reward.totals, two.reward.totals, rtol=1e-12)
        np.testing.assert_allclose(one.reward.buckets, two.reward.buckets, rtol=1e-12)


def test_chapters_and_looks_over_http_and_on_the_command_line(tmp_path):
    clock, config = harness.Clock(), configured(tmp_path / "s.db", seed=5, holdout={"share": 0.5})
    with harness.by_clock(config, clock) as url, Client(url) as client:
        shown(client, clock, "home", RATES, rounds=3, size=500)
        client.change_arms("home", add=["holiday"])
        shown(client, clock, "home", ALL, rounds=3, size=500)
        for wrong, why in (("soon", "ISO"), ("2023-11-01", "plan a later one")):
            with pytest.raises(InvalidRequest, match=why):
                client.hold_out("home", 0.3, look=wrong)
        told = tacit(
            "placement", "holdout", "home", "--share", "0.3", "--look", "2023-11-20",
            "--url", url,
        )  # fmt: skip
        assert told.stdout.endswith("uniform; one look is planned at 2023-11-20\n")
        found, _ = shown(client, clock, "home", ALL, rounds=3, size=500)
        assert [one.share for one in found.chapters] == [0.5, 0.3]
        assert [part.what for part in found.chapters[0].parts] == ["", "arms"]
        assert found.look.reached is False
        assert client.lift("home", begin="1", end="1").groups == found.chapters[0].groups
        lines = tacit("lift", "home", "--url", url).stdout.splitlines()
        assert lines[:3] == [found.verdict, found.counted, found.look.verdict]
        assert any(line.startswith("  arms, from 2023-11-14: ") for line in lines)
        assert "  ended: the share became 30 %, a look was planned" in lines
        assert tacit("lift", "home", "--url", url, "--to", "1").stdout.startswith("Of chapters 1 to 1: ")
