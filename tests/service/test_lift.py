"""What learning is worth, as it is said: over HTTP, to Prometheus, of stretches, of shards."""

import asyncio
import dataclasses
import json
from types import SimpleNamespace

import harness
import msgspec
import numpy as np
import placement_access as access
import pytest
from harness import SECOND, Clock, by_clock, folding, served, with_home
from holdouts import ARMS, METRICS, RATES, closed, configured, count_reported, report, shown, traffic
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tacit.client import AsyncClient, Client, InvalidRequest, NotFound
from tacit.errors import InvalidValue
from tacit.service.config.holdout import MetricConfig
from tacit.service.http.metrics import LiftMetrics
from tacit.service.log.ids import as_text
from tacit.service.log.requests import ClientDecision, DecisionRequest
from tacit.service.log.requests import FeedbackRequest as Told
from tacit.uplift import decisions_needed
from tacit.wire.control import ArmsOf
from tests.cli.test_cli import tacit

# Over HTTP -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Give a service with a clock of its own, and what learning is worth at its placements."""
    clock = Clock()
    learns = {"arms": ARMS, "seed": 5, "policy": "epsilon-greedy(epsilon=0.1)"}
    guesses = {"arms": ARMS, "seed": 5, "policy": "uniform-random"}
    placements = {
        "helps": {**learns, "holdout": {"share": 0.3}},
        "harms": {**guesses, "holdout": {"share": 0.3, "control": {"arm": "film"}}},
        "same": {**learns, "holdout": {"share": 0.3, "control": "baseline"}},
        "without": learns,
        "fixed": {"arms": ARMS, "policy": "ucb1"},
        "idle": {"arms": ARMS, "policy": "ucb1", "holdout": {}},
    }
    config = harness.configured(tmp_path_factory.mktemp("lift") / "s.db", placements=placements)
    with by_clock(config, clock) as address, Client(address) as client:
        yield SimpleNamespace(address=address, client=client, clock=clock)


async def test_a_lift_is_found(service):
    begin, end = as_text(service.clock.now), as_text(service.clock.now + 150 * SECOND)
    found, arms = shown(service.client, service.clock, "helps", RATES)
    assert (found.method, found.control, found.share) == ("holdout", "uniform", 0.3)
    assert found.claim == "better"
    # Three in ten decisions are the control's, half of them film.
    policy = (np.mean([RATES[arm] for arm in arms]) - 0.3 * 0.325) / 0.7
    assert found.ratio.low < policy / 0.325 < found.ratio.high
    assert found.difference.low < policy - 0.325 < found.difference.high
    assert found.verdict.startswith("Learning earned ")
    assert "more than the control" in found.verdict
    assert "You may look at this at any time." in found.verdict
    assert "This is the average since 14 November" in found.verdict
    assert count_reported(found) == 8000
    assert {one.what: one.alarm for one in found.srm} == dict.fromkeys(
        ["decisions", "activations", "propensities"], False
    )
    assert found.winner_verdict == found.winner.verdict
    assert found.winner.arm == "film"
    assert found.winner.declared
    async with AsyncClient(service.address) as client:
        sharper = await client.lift("helps", confidence=0.9)
    assert sharper.ratio.low > found.ratio.low
    told = tacit("lift", "helps", "--url", service.address)
    assert told.returncode == 0
    assert told.stdout.splitlines()[0] == found.verdict
    assert "control: " in told.stdout
    again = tacit("lift", "helps", "--url", service.address, "--json")
    part = service.client.lift("helps", begin=begin, end=end)
    assert 0 < count_reported(part) < 8000
    told = tacit("lift", "helps", "--url", service.address, "--from", begin, "--to", part.until)
    assert told.stdout.startswith("Of decisions from 14 November 22:")
    assert json.loads(again.stdout) == msgspec.to_builtins(found)


def test_a_harm_is_caught(service):
    found, _ = shown(service.client, service.clock, "harms", RATES)
    assert found.control == "arm film"
    assert found.claim == "worse"
    assert found.ratio.high < 1
    assert "less than the control" in found.verdict


def test_where_arms_are_equal_nothing_is_claimed(service):
    found, _ = shown(service.client, service.clock, "same", dict.fromkeys(ARMS, 0.3))
    assert found.claim == "undecided"
    assert found.ratio.low < 1 < found.ratio.high
    assert found.verdict.startswith("No difference shown yet.")
    assert found.planner.lift == 0.1
    assert not found.winner.declared


def test_without_a_holdout_propensities_say_it(service):
    found, arms = shown(service.client, service.clock, "without", RATES)
    assert (found.method, found.claim, found.ratio, found.share) == (
        "propensities", "better", None, None,
    )  # fmt: skip
    policy = np.mean([RATES[arm] for arm in arms])
    assert found.difference.low < policy - 0.325 < found.difference.high
    assert " per decision more than arms drawn uniformly (between 0.0" in found.verdict
    over = service.client.lift("without", control="arm recipe")
    assert (over.claim, over.control) == ("better", "arm recipe")
    assert over.difference.low < policy - 0.2 < over.difference.high
    same = service.client.lift("without", control="arm film")
    assert same.difference.low < policy - 0.45 < same.difference.high
    with pytest.raises(InvalidRequest, match="control"):
        service.client.lift("without", control="arm soup")
    with pytest.raises(InvalidRequest, match="confidence"):
        service.client.lift("without", confidence=0.8)
    with pytest.raises(NotFound):
        service.client.lift("nowhere")


def test_the_planner_speaks_before_there_is_traffic(service):
    found = service.client.lift("idle")
    assert (found.claim, found.planner) == ("early", None)
    found = service.client.lift("idle", **{"rate": 0.05, "daily": 30_000.0})
    assert found.planner.decisions == pytest.approx(decisions_needed(0.05, 0.1, 0.1))
    assert found.planner.days == pytest.approx(found.planner.decisions / 30_000)
    assert found.planner.verdict in found.verdict
    assert "a lift of 10 % would show after 331,000 decisions, in about 11 days" in found.verdict
    found = service.client.lift("idle", shown=0.2, share=0.5, rate=0.2)
    assert found.planner.decisions == pytest.approx(decisions_needed(0.2, 0.2, 0.5))
    assert (found.planner.days, found.planner.share) == (None, 0.5)
    told = tacit("lift", "idle", "--url", service.address, "--rate", "0.05", "--daily", "30000")
    assert "in about 11 days" in told.stdout
    for wrong in ({"rate": 0.0}, {"share": 0.5, "shown": 0.0}):
        with pytest.raises(ValueError, match=r"rate|shown"):
            service.client.lift("idle", **wrong)
    # A lift that a click rate cannot have is planned by nobody.
    assert service.client.lift("idle", rate=0.9, shown=0.5).planner is None


def test_without_propensities_nothing_is_known(service):
    found, _ = shown(service.client, service.clock, "fixed", RATES, rounds=1, size=10)
    assert found.claim == "early"
    assert found.verdict.startswith("Not known: decisions carry no propensity.")
    assert found.winner is None
    assert found.winner_verdict.startswith("Not known: decisions carry no propensity.")
    assert "decisions that are made elsewhere bring their propensity along" in found.verdict


def told_of_winner(path, policy, rates, **more):
    """Return what can be said of the best arm after some traffic."""

    async def session():
        async with served(path, configured(holdout=None, policy=policy, **more)) as engine:
            await traffic(engine, 20, rates=rates)
            await closed(engine)
            return report(engine)

    return asyncio.run(session())


def test_a_winner_is_declared_only_where_every_arm_is_shown_now_and_then(tmp_path):
    rates = {"film": 0.9, "recipe": 0.1}
    found = told_of_winner(tmp_path / "a.db", "uniform-random", rates)
    assert (found.winner.arm, found.winner.declared) == ("film", True)
    assert found.winner_verdict.startswith("film is best on average so far.")
    # Thompson's propensities are exact, and as small as can be.
    found = told_of_winner(tmp_path / "b.db", "thompson", rates)
    assert found.winner is None or not found.winner.declared
    assert found.winner_verdict.startswith(("A winner cannot be declared", "Too early"))


async def test_propensities_that_are_wrong_raise_an_alarm(tmp_path):
    config = configured(holdout={"share": 0.5}, policy="uniform-random")
    async with served(tmp_path / "s.db", config) as engine:

        def wrong(made):
            # Recipe is shown as often, and logged as if it was rare.
            return dataclasses.replace(made, propensities=np.where(made.actions[:, 0] == 1, 0.1, 0.9))

        access.wrap_choices(engine.placements["home"], wrong)
        await traffic(engine, 12)
        await closed(engine)
        found = report(engine)
    assert [one.what for one in found.srm if one.alarm] == ["propensities"]
    assert "arms were not shown as often as their propensities say" in found.verdict


@pytest.mark.parametrize("control", ["uniform", "baseline", {"policy": "uniform-random"}])
@pytest.mark.parametrize("policy", ["epsilon-greedy(epsilon=0.1)", "ucb1"])
async def test_users_who_stay_in_their_group_are_no_alarm(tmp_path, policy, control):
    """Ten users' coins fall as they do; given these, arms are shown as often as is right."""
    config = configured(holdout={"share": 0.3, "unit": "user", "control": control}, policy=policy)
    async with served(tmp_path / "s.db", config) as engine:
        for i in range(30):
            engine.clock.now += 40 * SECOND
            asked = [DecisionRequest("k", id=f"{i} {j}", user=f"u{j % 10}") for j in range(50)]
            rows = await access.decide(engine, *asked)
            await engine.record_many("home", [Told(row.id, reward=float(row.arm == "film")) for row in rows])
        await closed(engine)
        found = report(engine)
    assert not [one.what for one in found.srm if one.alarm]


# For Prometheus ------------------------------------------------------------------------------


def samples(metrics):
    """Return metrics by name and labels."""
    metrics.copy_stale()
    text = "".join(family.write() for family in metrics.collect())
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(one.name, one.labels.pop("placement"), *one.labels.values()): one.value for one in found}


async def test_prometheus_is_told_at_most_each_minute(tmp_path):
    seconds = [0.0]
    config = configured(metrics=METRICS)
    async with served(tmp_path / "s.db", config) as engine:
        metrics = LiftMetrics(engine, now=lambda: seconds[0])
        early = samples(metrics)
        await traffic(engine, 20, rates={"film": 0.7, "recipe": 0.2})
        await closed(engine)
        found = report(engine)
        assert samples(metrics) == early
        seconds[0] = 60.0
        told = samples(metrics)
    assert not [one for one in early if one[0].startswith("tacit_lift")]
    for name, bounds in (("ratio", found.ratio), ("difference", found.difference)):
        for bound in ("estimate", "low", "high"):
            assert told[f"tacit_lift_{name}", "home", bound] == getattr(bounds, bound)
    assert told["tacit_srm_alarm", "home", "decisions"] == 0
    assert told["tacit_srm_evidence", "home", "propensities"] < 0
    assert told["tacit_metric_harm", "home", "returns"] == 0


def test_prometheus_is_told_of_few_lifts_at_once():
    placement = {"arms": ARMS, "policy": "uniform-random", "holdout": {}}
    config = harness.configured(placements={f"p{i:03}": placement for i in range(110)})
    made = {
        name: access.make_placement(name, each, i) for i, (name, each) in enumerate(config.placements.items())
    }
    metrics = LiftMetrics(SimpleNamespace(placements=made, clock=Clock()), now=lambda: 5.0)
    told = [len({labels for name, labels, *_ in samples(metrics)}) for _ in range(30)]
    assert told[:3] == [4, 8, 12]
    assert told[-1] == 100


# Stretches of time ---------------------------------------------------------------------------


async def test_the_lift_of_a_stretch_of_time(tmp_path):
    day = 86_400 * SECOND
    async with served(tmp_path / "s.db", configured(policy="uniform-random", metrics=METRICS)) as engine:
        # The arms are worth the same at first, and then film is what is clicked.
        for rates in (dict.fromkeys(ARMS, 0.3), {"film": 0.9, "recipe": 0.1}):
            engine.clock.now += day
            await traffic(engine, 12, rates=rates)
        await closed(engine)
        ends = (None, "2023-11-16"), ("2023-11-16T22:00+00:00", None), ("2020-01-01", "2021-01-01")
        whole, first, last, none = (report(engine, time_range=pair) for pair in ((None, None), *ends))
        for stretch, why in (
            (("yesterday", None), "ISO"),
            ((None, "x"), "ISO"),
            (("2030-01-01", None), r"from: '2030-01-01' .*give a time before 2023-11-"),
            (("2023-11-16", "2023-11-15"), r"give a time before 2023-11-15T00:00"),
        ):
            with pytest.raises(InvalidValue, match=why):
                report(engine, time_range=stretch)
    assert [count_reported(found) for found in (whole, first, last, none)] == [1200, 600, 600, 0]
    assert abs(first.groups["policy"].rewards / first.groups["policy"].decisions - 0.3) < 0.1
    assert abs(last.groups["policy"].rewards / last.groups["policy"].decisions - 0.5) < 0.15
    assert whole.since < first.since < first.until < last.since < last.until
    assert last.verdict.startswith("Of decisions from 16 November ")
    assert (first.srm, first.planner, first.winner, first.metrics) == ([], None, None, [])
    assert (none.claim, whole.until) == ("early", None)
    assert none.verdict.startswith(
        "Of decisions from 1 January 2020 00:00 to 1 January 2021 00:00 (UTC): Too"
    )


async def test_sticky_holdouts_have_no_stretches(tmp_path):
    async with served(tmp_path / "s.db", configured(holdout={"unit": "user"})) as engine:
        with pytest.raises(InvalidValue, match="from"):
            report(engine, time_range=("2026-01-01", None))


@given(
    st.lists(st.tuples(st.integers(0, 10**11), st.integers(0, 1), st.floats(0, 1)), min_size=1),
    st.integers(0, 20),
)
def test_slices_do_not_depend_on_how_decisions_are_parted(decisions, cut):
    times, groups, rewards = zip(*sorted(decisions), strict=True)
    columns = np.array(times), np.array(groups), np.array(rewards)
    whole, parted, first, rest = access.TimeBins(), access.TimeBins(), access.TimeBins(), access.TimeBins()
    whole.add(*columns)
    for slices, part in ((parted, slice(cut)), (parted, slice(cut, None)), (first, slice(cut)),
                         (rest, slice(cut, None))):  # fmt: skip
        if len(columns[0][part]):
            slices.add(*(column[part] for column in columns))
    assert json.dumps(whole.save_state()) == json.dumps(parted.save_state())
    everywhere = first.merge(rest).sum_range(0, 2**62).sums
    np.testing.assert_allclose(everywhere.counts.sum(), len(decisions), rtol=1e-12)
    np.testing.assert_allclose(everywhere.totals, whole.sum_range(0, 2**62).sums.totals, rtol=1e-12)
    again = access.TimeBins.from_state(json.loads(json.dumps(whole.save_state())))
    assert again.table.tobytes() == whole.table.tobytes()


def test_sums_do_not_depend_on_when_they_are_read():
    rng = np.random.default_rng(1)
    offer = np.arange(4)
    metrics = METRICS.keys()
    read, unread = (access.LiftSums(4, {name: MetricConfig() for name in metrics}) for _ in range(2))
    for time in range(100):
        rows = int(rng.integers(1, 9))
        chances = rng.uniform(0.1, 1.0, rows)
        arms = rng.integers(0, 4, rows)
        came = access.ClosedDecisions(
            list(range(10 * time, 10 * time + rows)),
            [time * SECOND] * rows,
            rng.uniform(size=rows),
            rng.uniform(size=rows) < 0.5,
            [(None, 0, 1)[i] for i in rng.integers(0, 3, rows)],
            [None] * rows,
            arms,
            np.full(rows, 4),
            np.where(rng.uniform(size=rows) < 0.2, np.nan, chances),
            chances,
            {name: rng.uniform(size=rows) for name in metrics},
        )
        for sums in (read, unread):
            sums.count_shown(arms, chances, [offer] * rows)
            sums.add(came)
        read.settle()
    assert read.save_state() == unread.save_state()
    assert read.scores.overall[0] > 300


# Policies that show some people some arms as good as never --------------------------------------


@pytest.mark.parametrize(("floor", "told"), [(0.0, False), (0.2, True)])
async def test_a_lift_over_uniform_is_not_claimed_from_what_was_never_shown(tmp_path, floor, told):
    """Of two kinds of users each is shown one arm alone: what the other would have earned, no log tells."""
    policy = "context-mixture(arms=2, context_dim=1)"
    if floor:
        policy = {"name": "exploration-floor", "policy": policy, "epsilon": floor}
    config = with_home(arms=2, policy=policy, context_dim=1)
    async with served(tmp_path / "s.db", config) as engine:
        home, rng, earned = engine.placements["home"], np.random.default_rng(5), 0
        for _ in range(60):
            engine.clock.now += 40 * SECOND
            users = rng.choice([-1.0, 1.0], 50)
            asked = [DecisionRequest("k", context=[user]) for user in users.tolist()]
            rows = await access.decide(engine, *asked)
            liked = [row.arm == (user > 0) for row, user in zip(rows, users, strict=True)]
            clicks = [row for row, likes in zip(rows, liked, strict=True) if rng.random() < 0.9 * likes]
            await engine.record_many("home", [Told(row.id, reward=1.0) for row in clicks])
            earned += len(clicks)
        await closed(engine)
        found, mean = access.make_lift_report(home, engine.clock()), earned / 3000
    if told:
        # Arms at random would have earned half of 0.9.
        assert found.claim == "better"
        assert found.difference.low < mean - 0.45 < found.difference.high
    elif found.difference is None:
        assert (found.claim, "hardly ever shown" in found.verdict) == ("early", True)
    else:
        # Of twenty seeds six showed the other arm just often enough for an interval, which is wide.
        assert found.claim == "undecided"
        assert found.difference.low < mean - 0.45 < found.difference.high


# Without a holdout, over changes of arms --------------------------------------------------------

FLOOR = "exploration-floor(epsilon-greedy(epsilon=0.1), epsilon=0.2)"
BEFORE = {"film": 0.45, "recipe": 0.2, "song": 0.1}
GAINED = BEFORE | {"news": 0.3}


async def test_what_is_open_when_arms_change_counts_with_what_was_before(tmp_path):
    config = configured(holdout=None, arms=list(BEFORE), policy=FLOOR, snapshot_every=70)
    async with folding(tmp_path / "s.db", config) as engine:
        await traffic(engine, 20, rates=GAINED)
        since = report(engine).since
        # The windows of the last fifty are open.
        await engine.ask("home", ArmsOf(["news"], ["song"]))
        await engine.ask("home", ArmsOf(retire=["recipe"]))
        assert count_reported(report(engine)) == 950
        await closed(engine)
        assert count_reported(report(engine)) == 1000
        await traffic(engine, 20, rates=GAINED)
        await engine.ask("home", ArmsOf(restore=["song"]))
        await closed(engine)
        found = report(engine)
        assert (count_reported(found), found.since) == (2000, since)
        # An arm can be compared only since it was there.
        alone = report(engine, control="arm song")
        assert (count_reported(alone), alone.since > since) == (0, True)


@pytest.mark.parametrize("rounds", [0, 10, 40])
async def test_arms_that_change_leave_the_lift_known_where_there_is_a_floor(tmp_path, rounds):
    """Arms are drawn from those on offer: one that is retired is missed by nobody."""
    config = configured(holdout=None, arms=list(BEFORE), policy=FLOOR)
    async with served(tmp_path / "s.db", config) as engine:
        await traffic(engine, 40, rates=GAINED)
        await closed(engine)
        assert report(engine).claim == "better"
        await engine.ask("home", ArmsOf(["news"], ["song"]))
        await traffic(engine, rounds, rates=GAINED)
        await closed(engine)
        found = report(engine)
    assert (found.claim, count_reported(found)) == ("better", 2000 + 50 * rounds)
    assert found.verdict.startswith("What was shown earned ")
    assert "than arms drawn uniformly" in found.verdict


async def test_an_arm_that_is_retired_is_compared_with_no_more(tmp_path):
    """Nothing tells what it would have earned since: the others have a winner among themselves."""
    config = configured(holdout=None, arms=list(BEFORE), policy="uniform-random")
    async with served(tmp_path / "s.db", config) as engine:
        await traffic(engine, 20, rates={"film": 0.9, "recipe": 0.1, "song": 0.8})
        await engine.ask("home", ArmsOf(retire=["song"]))
        await traffic(engine, 20, rates={"film": 0.9, "recipe": 0.1})
        await closed(engine)
        found = report(engine)
        assert (found.winner.arm, found.winner.declared) == ("film", True)
        assert list(found.winner.behind) == ["film", "recipe"]
        assert found.winner.behind["recipe"].low < 0.8 < found.winner.behind["recipe"].high
        with pytest.raises(InvalidValue, match="retired: give one of uniform, arm film, arm recipe"):
            report(engine, control="arm song")


async def elsewhere(engine, arms, propensity, rates=GAINED):
    """Take over decisions that were made elsewhere, and what came of them."""
    home, rng = engine.placements["home"], np.random.default_rng(len(arms))
    engine.clock.now += 40 * SECOND
    asked = [DecisionRequest("k", id=f"{engine.clock.now} {i}") for i in range(len(arms))]
    pairs = zip(asked, arms, strict=True)
    made = [
        access.check_client_decision(home, request, ClientDecision(arm, propensity)) for request, arm in pairs
    ]
    rows = await engine.decide_many("home", made)
    clicks = [Told(row.id, reward=1.0) for row in rows if rng.random() < rates[row.arm]]
    await engine.record_many("home", clicks)


async def test_what_was_never_shown_stays_unknown_when_arms_change(tmp_path):
    """That an arm goes makes nothing known of what it would have earned."""
    config = configured(holdout=None, arms=list(BEFORE), policy="thompson")
    async with served(tmp_path / "s.db", config) as engine:
        # Song is shown to nobody.
        await elsewhere(engine, ["film", "recipe"] * 500, 0.5)
        await closed(engine)
        before = report(engine).verdict
        await engine.ask("home", ArmsOf(retire=["song"]))
        assert [report(engine).verdict, before[:10]] == [before, "Not known:"]
        assert "hardly ever shown" in before
        saved = access.get_lift(engine.placements["home"]).save_state()
        again = access.LiftSums(3, {})
        again.set_arm_counts(3, 2)
        again.restore(json.loads(json.dumps(saved)))
        assert not again.covers_uniform


async def test_snapshots_of_the_first_0_3_know_what_was_never_shown(tmp_path):
    covered = []
    for arms in (["film", "recipe"] * 450, list(BEFORE) * 300):
        config = configured(holdout=None, arms=list(BEFORE), policy="thompson")
        async with served(tmp_path / f"{len(covered)}.db", config) as engine:
            await elsewhere(engine, arms, 1 / len(set(arms)))
            await closed(engine)
            saved = json.loads(json.dumps(access.get_lift(engine.placements["home"]).save_state()))
        # They had no sum of the differences from the uniform control.
        del saved["scores"]["uniform"][3], saved["uniform"][6]
        sums = access.LiftSums(3, {})
        sums.restore(saved)
        covered.append(sums.covers_uniform)
    assert covered == [False, True]


# While nothing counts, and what a split of elsewhere is called --------------------------------------


async def test_it_is_too_early_while_windows_are_open(tmp_path):
    config = configured(holdout=None, policy="uniform-random")
    async with served(tmp_path / "s.db", config) as engine:
        nothing = report(engine)
        assert nothing.verdict.startswith("Too early: no decision counts yet.")
        await traffic(engine, 1)
        found = report(engine)
        assert found.verdict.startswith(
            "Too early: no decision's window has closed yet (50 are open until 22:14:30 (UTC))."
        )
        assert nothing.winner_verdict == found.winner_verdict == "Too early to say which arm is best."
        await closed(engine)
        assert report(engine).verdict.startswith("Each arm was as likely as any other")
    async with served(tmp_path / "t.db", configured(holdout=None, policy="thompson")) as engine:
        await traffic(engine, 1, size=2)
        await closed(engine)
        assert report(engine).verdict.startswith("Too early: there is no holdout, and too few decisions")
    # Of a policy that never draws nothing will be known, however long one waits.
    async with served(tmp_path / "u.db", configured(holdout=None, policy="ucb1")) as engine:
        assert report(engine).verdict.startswith("Not known: decisions carry no propensity.")


async def test_an_even_split_of_elsewhere_has_a_winner_and_earned_it_itself(tmp_path):
    config = configured(holdout=None, arms=list(BEFORE), policy="thompson")
    async with served(tmp_path / "s.db", config) as engine:
        await elsewhere(engine, list(BEFORE) * 1000, 0.3334)
        await closed(engine)
        found, alone = report(engine), report(engine, control="arm song")
    assert found.verdict.startswith("Each arm was as likely as any other")
    assert (found.winner.arm, found.winner.declared) == ("film", True)
    assert alone.verdict.startswith("Arms drawn uniformly earned 0.1")
    assert " per decision more than song alone (between 0.1" in alone.verdict
