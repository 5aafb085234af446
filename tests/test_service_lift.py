"""Holdouts and what they say: through the engine, over HTTP, from shards, after a crash."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from harness import SECOND, START, Clock, arrays, as_after_a_crash, everything, served
from hypothesis import given
from hypothesis import strategies as st
from stores import store_at
from test_cli import tacit

from tacit.client import AsyncClient, Client, Feedback, Impression, InvalidRequest, NotFound
from tacit.cluster.overview import sharded_view, snapshot_of
from tacit.core.state import leaves
from tacit.errors import ConfigError, InvalidValue
from tacit.learning.decisions import NOTHING, Decision
from tacit.learning.learner import Learner
from tacit.proof import decisions_needed
from tacit.proof.sums import BUCKETS
from tacit.service.config.file import load_config
from tacit.service.config.holdout import ControlTable, HoldoutConfig
from tacit.service.engine.engine import Engine
from tacit.service.engine.fold import fold, opened
from tacit.service.http.lift_metrics import LiftMetrics
from tacit.service.lift.coin import Coin
from tacit.service.lift.controls import Control
from tacit.service.lift.report import lift_report
from tacit.service.lift.slices import Slices
from tacit.service.log.impressions import DecisionRequest
from tacit.service.log.requests import ChangeHoldout, as_content
from tacit.service.log.requests import Feedback as Told
from tacit.service.log.rows import HOLDOUT, DecisionRow, FeedbackRow, MarkRow
from tacit.service.maintenance.verify import verify
from tacit.service.placements.base import Placement
from tacit.service.placements.results import DECISIONS
from tacit.service.running.server import running
from tacit.service.stores.base import StoredPlacement
from tacit.service.stores.sqlite import SqliteStore

ARMS = ["film", "recipe"]
RATES = {"film": 0.45, "recipe": 0.2}
HALF = {"share": 0.5}
METRICS = {"revenue": {}, "returns": {"range": [0, 1], "better": "less", "margin": 0.05}}
FEATURED = "lin-ts(relevance_dim=2, examination_dim=1)"


def configured(holdout=HALF, path=None, **more):
    placement = {"arms": ARMS, "seed": 7, "policy": "epsilon-greedy(epsilon=0.1)"} | more
    if holdout is not None:
        placement["holdout"] = holdout
    overrides = {"placements": {"home": placement}, "server.port": 0}
    return load_config(overrides=overrides | {"store.path": path and str(path)})


async def traffic(engine, rounds, size=50, rates=RATES, name="home", **more):
    """Decide and click, window after window."""
    for i in range(rounds):
        rng = np.random.default_rng((i, size))
        engine.clock.now += 40 * SECOND
        home = engine.placements[name]
        users = rng.integers(100, size=size).tolist()
        told = [
            home.checked(
                DecisionRequest(
                    f"key {i % 3}", id=f"{engine.clock.now} {j}", user=f"u{users[j]}", **more
                )
            )
            for j in range(size)
        ]
        rows = await engine.decide_many(name, told)
        clicked = [row for row in rows if rng.random() < rates[row.arm]]
        if clicked:
            await engine.record_many(name, [Told(row.id, reward=1.0) for row in clicked])


async def closed(engine, name="home"):
    """Let all windows close."""
    engine.clock.now += 3600 * SECOND
    await engine.switch(name, engine.placements[name].mode)


def report(engine, **more):
    return lift_report(engine.placements["home"], engine.clock(), **more)


# Over HTTP -----------------------------------------------------------------------------------


def shown(client, clock, placement, rates, rounds=8, size=1000):
    """Decide and click over HTTP, let the windows close; return the lift, and what was shown."""
    rng = np.random.default_rng(3)
    arms = []
    for _ in range(rounds):
        made = client.decide_many(placement, [Impression("tomato")] * size)
        clicks = [Feedback(one.decision_id, 1.0) for one in made if rng.random() < rates[one.arm]]
        client.feedback_many(placement, clicks)
        arms += [one.arm for one in made]
        clock.now += 40 * SECOND
    client.decide(placement, "tomato")
    return client.lift(placement), arms


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Give a service with a clock of its own, and what learning is worth at its placements."""
    clock = Clock()
    learns = {"arms": ARMS, "seed": 5, "policy": "epsilon-greedy(epsilon=0.1)"}
    guesses = {"arms": ARMS, "seed": 5, "policy": "uniform-random"}
    overrides = {
        "server.port": 0,
        "store.path": str(tmp_path_factory.mktemp("lift") / "s.db"),
        "placements": {
            "helps": {**learns, "holdout": {"share": 0.3}},
            "harms": {**guesses, "holdout": {"share": 0.3, "control": {"arm": "film"}}},
            "same": {**learns, "holdout": {"share": 0.3, "control": "baseline"}},
            "without": learns,
            "fixed": {"arms": ARMS, "policy": "ucb1"},
            "idle": {"arms": ARMS, "policy": "ucb1", "holdout": {}},
        },
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tacit.service.engine.engine.LogClock", lambda: clock)
        with running(load_config(overrides=overrides)) as address, Client(address) as client:
            yield SimpleNamespace(address=address, client=client, clock=clock)


def test_a_lift_is_found(service):
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
    assert sum(group["decisions"] for group in found.groups.values()) == 8000
    assert {one["what"]: one["alarm"] for one in found.srm} == dict.fromkeys(
        ["decisions", "activations", "propensities"], False
    )
    assert found.winner_verdict == found.winner["verdict"]
    assert found.winner["arm"] == "film"
    assert found.winner["declared"]

    async def asked():
        async with AsyncClient(service.address) as client:
            return await client.lift("helps", confidence=0.9)

    sharper = asyncio.run(asked())
    assert sharper.ratio.low > found.ratio.low
    told = tacit("lift", "helps", "--url", service.address)
    assert told.returncode == 0
    assert told.stdout.splitlines()[0] == found.verdict
    assert "control: " in told.stdout
    again = tacit("lift", "helps", "--url", service.address, "--json")
    part = service.client.lift("helps", begin="2023-11-14", end="2023-11-14T22:16")
    assert 0 < sum(group["decisions"] for group in part.groups.values()) < 8000
    told = tacit(
        "lift", "helps", "--url", service.address, "--from", "2023-11-14", "--to", part.until
    )
    assert told.stdout.startswith("Of decisions from 14 November 22:13 to ")
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
    assert found.planner["lift"] == 0.1
    assert not found.winner["declared"]


def test_without_a_holdout_propensities_say_it(service):
    found, arms = shown(service.client, service.clock, "without", RATES)
    assert (found.method, found.claim, found.ratio, found.share) == (
        "propensities", "better", None, None,
    )  # fmt: skip
    policy = np.mean([RATES[arm] for arm in arms])
    assert found.difference.low < policy - 0.325 < found.difference.high
    assert " per decision more than the control" in found.verdict
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
    asked = {"rate": 0.05, "daily": 30_000.0}
    found = service.client.lift("idle", **asked)
    assert found.planner["decisions"] == pytest.approx(decisions_needed(0.05, 0.1, 0.1))
    assert found.planner["days"] == pytest.approx(found.planner["decisions"] / 30_000)
    assert found.planner["verdict"] in found.verdict
    assert "a lift of 10 % would show after 331,000 decisions, in about 11 days" in found.verdict
    found = service.client.lift("idle", shown=0.2, share=0.5, rate=0.2)
    assert found.planner["decisions"] == pytest.approx(decisions_needed(0.2, 0.2, 0.5))
    assert (found.planner["days"], found.planner["share"]) == (None, 0.5)
    told = tacit("lift", "idle", "--url", service.address, "--rate", "0.05", "--daily", "30000")
    assert "in about 11 days" in told.stdout
    for wrong in ({"rate": 0.0}, {"share": 0.5, "shown": 0.0}):
        with pytest.raises(InvalidRequest, match=r"rate|shown"):
            service.client.lift("idle", **wrong)
    # A lift that a click rate cannot have is planned by nobody.
    assert service.client.lift("idle", rate=0.9, shown=0.5).planner is None


def test_without_propensities_nothing_is_known(service):
    found, _ = shown(service.client, service.clock, "fixed", RATES, rounds=1, size=10)
    assert found.claim == "early"
    assert found.verdict.startswith("Not known: decisions carry no propensity.")
    assert found.winner is None
    assert found.winner_verdict.startswith("Not known: decisions carry no propensity.")


def test_lists_have_no_lift(tmp_path):
    async def session():
        config = configured(None, kind="slates", policy="cascade-kl-ucb")
        async with served(tmp_path / "s.db", config) as engine:
            with pytest.raises(InvalidValue, match="home"):
                report(engine)

    asyncio.run(session())


def told_of_winner(path, policy, rates, **more):
    """Return what can be said of the best arm after some traffic."""

    async def session():
        config = configured(None, policy=policy, **more)
        async with served(path, config) as engine:
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


def test_propensities_that_are_wrong_raise_an_alarm(tmp_path):
    async def session():
        config = configured({"share": 0.5}, policy="uniform-random")
        async with served(tmp_path / "s.db", config) as engine:
            home = engine.placements["home"]
            honest = home._choose_many

            def wrong(*given):
                made = honest(*given)
                # Recipe is shown as often, and logged as if it was rare.
                chances = np.where(made.actions[:, 0] == 1, 0.1, 0.9)
                return dataclasses.replace(made, propensities=chances)

            home._choose_many = wrong
            await traffic(engine, 12)
            await closed(engine)
            return report(engine)

    found = asyncio.run(session())
    assert [one.what for one in found.srm if one.alarm] == ["propensities"]
    assert "arms were not shown as often as their propensities say" in found.verdict


@pytest.mark.parametrize("control", ["uniform", "baseline", {"policy": "uniform-random"}])
@pytest.mark.parametrize("policy", ["epsilon-greedy(epsilon=0.1)", "ucb1"])
def test_users_who_stay_in_their_group_are_no_alarm(tmp_path, policy, control):
    """Ten users' coins fall as they do; given these, arms are shown as often as is right."""

    async def session():
        config = configured({"share": 0.3, "unit": "user", "control": control}, policy=policy)
        async with served(tmp_path / "s.db", config) as engine:
            home = engine.placements["home"]
            for i in range(30):
                engine.clock.now += 40 * SECOND
                asked = [DecisionRequest("k", id=f"{i} {j}", user=f"u{j % 10}") for j in range(50)]
                rows = await engine.decide_many("home", list(map(home.checked, asked)))
                sent = [Told(row.id, reward=float(row.arm == "film")) for row in rows]
                await engine.record_many("home", sent)
            await closed(engine)
            return report(engine)

    found = asyncio.run(session())
    assert not [one.what for one in found.srm if one.alarm]


# For Prometheus ------------------------------------------------------------------------------


def samples(metrics):
    """Return metrics by name and labels."""
    return {
        (one.name, *one.labels.values()): one.value
        for family in metrics.collect()
        for one in family.samples
    }


def test_prometheus_is_told_at_most_each_minute(tmp_path):
    seconds = [0.0]

    async def session():
        config = configured(metrics=METRICS)
        async with served(tmp_path / "s.db", config) as engine:
            metrics = LiftMetrics(engine, now=lambda: seconds[0])
            early = samples(metrics)
            await traffic(engine, 20, rates={"film": 0.7, "recipe": 0.2})
            await closed(engine)
            found = report(engine)
            assert samples(metrics) == early
            seconds[0] = 60.0
            return found, early, samples(metrics)

    found, early, told = asyncio.run(session())
    assert not [one for one in early if one[0].startswith("tacit_lift")]
    for name, bounds in (("ratio", found.ratio), ("difference", found.difference)):
        for bound in ("estimate", "low", "high"):
            assert told[f"tacit_lift_{name}", "home", bound] == getattr(bounds, bound)
    assert told["tacit_srm_alarm", "home", "decisions"] == 0
    assert told["tacit_srm_evidence", "home", "propensities"] < 0
    assert told["tacit_metric_harm", "home", "returns"] == 0


def test_prometheus_is_told_of_few_lifts_at_once():
    placement = {"arms": ARMS, "policy": "uniform-random", "holdout": {}}
    overrides = {"placements": {f"p{i:03}": placement for i in range(110)}}
    config = load_config(overrides=overrides)
    made = {
        name: Placement(name, each, StoredPlacement(i, 0, "", 7))
        for i, (name, each) in enumerate(config.placements.items())
    }
    engine = SimpleNamespace(placements=made, clock=Clock())
    metrics = LiftMetrics(engine, now=lambda: 5.0)
    told = [len({labels for name, labels, *_ in samples(metrics)}) for _ in range(30)]
    assert told[:3] == [4, 8, 12]
    assert told[-1] == 100


# Stretches of time ---------------------------------------------------------------------------


def test_the_lift_of_a_stretch_of_time(tmp_path):
    day = 86_400 * SECOND

    async def session():
        path = tmp_path / "s.db"
        async with served(path, configured(policy="uniform-random", metrics=METRICS)) as engine:
            # The arms are worth the same at first, and then film is what is clicked.
            for rates in (dict.fromkeys(ARMS, 0.3), {"film": 0.9, "recipe": 0.1}):
                engine.clock.now += day
                await traffic(engine, 12, rates=rates)
            await closed(engine)
            whole, first, last, none = (
                report(engine, stretch=stretch)
                for stretch in (
                    (None, None),
                    (None, "2023-11-16"),
                    ("2023-11-16T22:00+00:00", None),
                    ("2030-01-01", "2031-01-01"),
                )
            )
            for stretch in (("yesterday", None), (None, "x")):
                with pytest.raises(InvalidValue, match="ISO"):
                    report(engine, stretch=stretch)
            return whole, first, last, none

    whole, first, last, none = asyncio.run(session())
    counts = [
        sum(group.decisions for group in found.groups.values())
        for found in (whole, first, last, none)
    ]
    assert counts == [1200, 600, 600, 0]
    assert abs(first.groups["policy"].rewards / first.groups["policy"].decisions - 0.3) < 0.1
    assert abs(last.groups["policy"].rewards / last.groups["policy"].decisions - 0.5) < 0.15
    assert whole.since < first.since < first.until < last.since < last.until
    assert last.verdict.startswith("Of decisions from 16 November ")
    assert (first.srm, first.planner, first.winner, first.metrics) == ([], None, None, [])
    assert (none.claim, none.until, whole.until) == ("early", None, None)


def test_sticky_holdouts_have_no_stretches(tmp_path):
    async def session():
        async with served(tmp_path / "s.db", configured({"unit": "user"})) as engine:
            with pytest.raises(InvalidValue, match="from"):
                report(engine, stretch=("2026-01-01", None))

    asyncio.run(session())


@given(
    st.lists(st.tuples(st.integers(0, 10**11), st.integers(0, 1), st.floats(0, 1)), min_size=1),
    st.integers(0, 20),
)
def test_slices_do_not_depend_on_how_decisions_are_parted(decisions, cut):
    times, groups, rewards = zip(*sorted(decisions), strict=True)
    columns = np.array(times), np.array(groups), np.array(rewards)
    whole, parted, first, rest = Slices(), Slices(), Slices(), Slices()
    whole.add(*columns)
    for slices, part in ((parted, slice(cut)), (parted, slice(cut, None)), (first, slice(cut)),
                         (rest, slice(cut, None))):  # fmt: skip
        if len(columns[0][part]):
            slices.add(*(column[part] for column in columns))
    assert json.dumps(whole.saved()) == json.dumps(parted.saved())
    merged = first.merged(rest)
    everywhere = merged.between(0, 2**62).sums
    np.testing.assert_allclose(everywhere.counts.sum(), len(decisions), rtol=1e-12)
    np.testing.assert_allclose(everywhere.totals, whole.between(0, 2**62).sums.totals, rtol=1e-12)
    again = Slices.restored(json.loads(json.dumps(whole.saved())))
    assert again.table.tobytes() == whole.table.tobytes()


# The coin ------------------------------------------------------------------------------------


def test_the_coin_stays_with_its_unit_and_has_its_share():
    ids = [f"d{i}" for i in range(4000)]
    offers = [np.arange(4)] * len(ids)
    coin = Coin(HoldoutConfig(share=0.1), seed=3, control=Control("uniform"))
    tossed = coin.toss(ids, [None] * len(ids), offers)
    assert coin.toss(ids, [None] * len(ids), offers).control == tossed.control
    # Of 4,000 fair draws, further from 400 than 100 with a probability below 10⁻⁶.
    assert abs(sum(tossed.control) - 400) < 100
    assert set(tossed.bucket) == {None}
    imposed = tossed.imposed[tossed.imposed >= 0]
    assert len(imposed) == sum(tossed.control)
    assert np.bincount(imposed, minlength=4).min() > 50
    users = [f"u{i % 400}" for i in range(4000)]
    sticky = Coin(HoldoutConfig(share=0.1, unit="user"), seed=3, control=Control("uniform")).toss(
        ids, users, offers
    )
    of_user = np.array(sticky.control).reshape(10, 400)
    assert (of_user == of_user[0]).all()
    assert 0 < of_user[0].sum() < 100
    assert (np.array(sticky.bucket).reshape(10, 400)[0] == sticky.bucket[:400]).all()
    assert {*sticky.bucket} <= set(range(BUCKETS))


def test_more_share_keeps_whoever_was_held_out():
    ids = [f"d{i}" for i in range(500)]
    offers = [np.arange(2)] * len(ids)
    few, many = (
        np.array(
            Coin(HoldoutConfig(share=share), seed=3, control=Control("uniform"))
            .toss(ids, ids, offers)
            .control
        )
        for share in (0.1, 0.3)
    )
    assert (few <= many).all()


@pytest.mark.parametrize(
    ("control", "slot", "chances"),
    [
        ("uniform", None, [1 / 3, 1 / 3, 1 / 2]),
        ("baseline", None, [0, 1, 1]),
        ("arm c", 2, [0, 1, 0]),
    ],
)
def test_propensities_are_those_of_policy_and_control_together(control, slot, chances):
    coin = Coin(HoldoutConfig(share=0.2), seed=3, control=Control(control, slot))
    offers = [np.array([0, 1, 2]), np.array([2, 1, 0]), np.array([1, 0])]
    policy, shown = np.array([0.9, 0.5, np.nan]), np.array([1, 2, 1])
    own = coin.control.chances(shown[:, None], offers)
    mixed = coin.mixed(policy, own)
    expected = 0.8 * policy + 0.2 * np.array(chances)
    np.testing.assert_allclose(mixed, expected)
    np.testing.assert_allclose(coin.unmixed(mixed, own), policy, atol=1e-12)


@pytest.mark.parametrize("policy", ["thompson", "ucb1", "exploration-floor(ucb1, epsilon=0.2)"])
def test_logged_propensities_are_the_frequencies(tmp_path, policy):
    """Each arm's Σ 1/q is the number of decisions; here within 5 standard errors."""

    async def session():
        config = configured({"share": 0.2}, arms=4, policy=policy)
        async with served(tmp_path / "s.db", config) as engine:
            await traffic(engine, 60, rates=dict(enumerate([0.1, 0.2, 0.3, 0.4])))
            return [row for row in engine.store.events(0) if isinstance(row, DecisionRow)]

    rows = asyncio.run(session())
    assert {row.control for row in rows} == {0, 1}
    for arm in range(4):
        q = np.array([row.propensity for row in rows])
        terms = np.where(np.array([row.arm for row in rows]) == arm, 1 / q, 0.0)
        # Of a deterministic policy the variance is that of the control's draws.
        error = math.sqrt(sum(1 / 0.05 - 1 for _ in rows)) / len(rows)
        assert abs(terms.mean() - 1) < 5 * error


# A control with a policy of its own ----------------------------------------------------------


def alone(policy, rows, rewards):
    """Return what a learner knows that saw these decisions and no others, by key."""
    learner = Learner(policy, seed=0)
    for row in rows:
        learner._batch.lanes.admit([row.key])
        slots = np.array([ARMS.index(row.arm)])
        made = Decision(
            0, row.key, (row.arm,), row.would_propensity or None, 0, np.arange(2), slots, NOTHING
        )
        learner._batch.recall([made])
        learner.learn(made, rewards.get(row.id, 0.0))
    return by_key(learner)


def by_key(learner):
    return {
        key: [array.tobytes() for _, array in leaves(learner._batch.lanes.view(learner.lane(key)))]
        for key in learner.keys
    }


@pytest.mark.parametrize(
    ("policy", "control"), [("thompson", "exp3"), ("exp3", "ucb1"), ("ucb1", "epsilon-greedy")]
)
def test_each_policy_learns_from_its_own_decisions_alone(tmp_path, policy, control):
    async def session():
        config = configured(
            {"share": 0.3, "control": {"policy": control}}, policy=policy, snapshot_every=150
        )
        path = tmp_path / "s.db"
        async with served(path, config) as engine:
            # In the order of the log: windows close in that order where nothing was clicked.
            await traffic(engine, 12, size=40, rates=dict.fromkeys(ARMS, 0.0))
            await closed(engine)
            home = engine.placements["home"]
            live = everything(home), arrays(home.shadow)
            rows = [row for row in engine.store.events(0) if isinstance(row, DecisionRow)]
            store = SqliteStore(as_after_a_crash(path))
        again = Engine(config, store, Clock(engine.clock.now)).placements["home"]
        assert (everything(again), arrays(again.shadow)) == live
        assert verify(config, store) == []
        store.close()
        return config.placements["home"], home, rows

    config, home, rows = asyncio.run(session())
    assert {row.control for row in rows} == {0, 1}
    for held, learner, of in ((1, home.shadow, config.shadow), (0, home.learner, config.policy)):
        told = by_key(learner)
        assert told == alone(of, [row for row in rows if row.control == held], {})
    assert home.lift.reward.counts.sum() == len(rows)
    assert home.lift.scores.overall[0] == len(rows)


@pytest.mark.parametrize(
    ("policy", "control"), [("epsilon-greedy", "uniform-random"), ("exp3", "thompson")]
)
def test_propensities_beside_a_policy_are_the_frequencies(tmp_path, policy, control):
    """Each arm's Σ 1/q is the number of decisions; here within 5 standard errors."""

    async def session():
        config = configured({"share": 0.3, "control": {"policy": control}}, arms=4, policy=policy)
        async with served(tmp_path / "s.db", config) as engine:
            await traffic(engine, 40, rates=dict(enumerate([0.1, 0.2, 0.3, 0.4])))
            return [row for row in engine.store.events(0) if isinstance(row, DecisionRow)]

    rows = asyncio.run(session())
    q = np.array([row.propensity for row in rows])
    for arm in range(4):
        terms = np.where(np.array([row.arm for row in rows]) == arm, 1 / q, 0.0)
        error = np.sqrt((terms**2).mean() / len(rows))
        assert abs(terms.mean() - 1) < 5 * error


@pytest.mark.parametrize("mode", ["frozen", "apprentice"])
def test_a_control_with_a_policy_of_its_own_in_other_modes(tmp_path, mode):
    async def session():
        config = configured({"share": 0.5, "control": {"policy": "exp3"}}, mode=mode)
        async with served(tmp_path / "s.db", config) as engine:
            await traffic(engine, 4, size=20)
            with pytest.raises(InvalidValue, match="second policy as the placement's shadow"):
                await engine.switch("home", "shadow")
            home = engine.placements["home"]
            live = everything(home), arrays(home.shadow)
            again = Engine(config, SqliteStore(as_after_a_crash(tmp_path / "s.db")), engine.clock)
            home = again.placements["home"]
            assert (everything(home), arrays(home.shadow)) == live
            again.store.close()
            return [row for row in engine.store.events(0) if isinstance(row, DecisionRow)]

    held = {row.control for row in asyncio.run(session())}
    assert held == ({0, 1} if mode == "frozen" else {None})


def test_without_its_policy_what_the_control_did_teaches_nobody(tmp_path):
    holdout = {"share": 0.5, "control": {"policy": "epsilon-greedy(epsilon=0.1)"}}

    async def session():
        path = tmp_path / "s.db"
        async with served(path, configured(holdout)) as engine:
            await traffic(engine, 4, size=20)
            await closed(engine)
            before = by_key(engine.placements["home"].learner)
        async with served(path, configured(None), engine.clock) as engine:
            assert by_key(engine.placements["home"].learner) == before

    asyncio.run(session())


def test_features_have_a_control_with_a_policy_of_its_own(tmp_path):
    async def session():
        config = configured(
            {"share": 0.5, "control": {"policy": FEATURED}},
            arms=None,
            kind="features",
            policy=FEATURED,
        )
        async with served(tmp_path / "s.db", config) as engine:
            home = engine.placements["home"]
            for _ in range(60):
                engine.clock.now += SECOND
                told = home.checked(
                    DecisionRequest(
                        "k", ["a", "b"], relevance=[[1, 0], [0, 1]], examination=[[1]] * 2
                    )
                )
                (row,) = await engine.decide_many("home", [told])
                await engine.feedback("home", row.id, float(row.arm == "b"))
            await closed(engine)
            again = Engine(config, SqliteStore(as_after_a_crash(tmp_path / "s.db")), engine.clock)
            anew = again.placements["home"]
            assert everything(anew) == everything(home)
            assert arrays(anew.shadow) == arrays(home.shadow) != arrays(home.learner)
            again.store.close()
            return report(engine)

    found = asyncio.run(session())
    assert found.control == f"policy {FEATURED}"
    assert sum(group.decisions for group in found.groups.values()) == 60


# The log -------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["decision", "user"])
@pytest.mark.parametrize("policy", ["thompson", "ucb1", "exp3"])
def test_the_sums_are_a_fold_over_the_log(tmp_path, policy, unit):
    async def session():
        config = configured({"share": 0.3, "unit": unit}, policy=policy, snapshot_every=150)
        path = tmp_path / "s.db"
        async with served(path, config) as engine:
            await traffic(engine, 12, size=40)
            live = everything(engine.placements["home"])
            store = SqliteStore(as_after_a_crash(path))
        recovered = Engine(config, store, Clock(engine.clock.now))
        assert everything(recovered.placements["home"]) == live
        assert verify(config, store) == []
        store.close()
        return recovered.placements["home"]

    home = asyncio.run(session())
    assert home.lift.reward.counts.sum() == 11 * 40
    assert home.lift.decided.sum() == 12 * 40
    assert home.lift.scores.overall[0] == 11 * 40
    assert (home.lift.reward.buckets is not None) == (unit == "user")


def test_rewards_count_when_windows_close_whenever_they_came(tmp_path):
    async def session():
        async with served(tmp_path / "s.db", configured()) as engine:
            home = engine.placements["home"]
            first = await engine.decide("home", "k", id="a")
            await engine.feedback("home", first.id, 1.0)
            assert home.lift.reward.counts.sum() == 0
            second = await engine.decide("home", "k", id="b")
            engine.clock.now += 31 * SECOND
            await engine.decide("home", "k", id="c")
            assert await engine.feedback("home", second.id, 1.0) == "late"
            assert home.lift.reward.counts.sum() == 2
            assert home.lift.reward.totals.sum() == 1
            assert home.lift.answered.sum() == 1

    asyncio.run(session())


def test_a_change_begins_anew_and_leaves_out_what_was_open(tmp_path):
    path = tmp_path / "s.db"

    async def session():
        async with served(path, configured()) as engine:
            await traffic(engine, 3, size=10)
            home = engine.placements["home"]
            assert home.lift.reward.counts.sum() == 20
            await engine.switch("home", "frozen")
            assert home.lift.reward.counts.sum() == 0
            await traffic(engine, 2, size=10)
            assert home.lift.reward.counts.sum() == 10
            await engine.reload(configured({"share": 0.25}))
            home = engine.placements["home"]
            assert (home.lift.reward.counts.sum(), home.mode) == (0, "frozen")
            await traffic(engine, 2, size=10)
            assert home.lift.reward.counts.sum() == 10
            await engine.reload(configured({"share": 0.25}))
            assert engine.placements["home"].lift.reward.counts.sum() == 10
            await engine.reload(configured(None))
            assert engine.placements["home"].lift.terms == "null"
            rows = list(engine.store.events(0))
        marks = [row.value for row in rows if isinstance(row, MarkRow) and row.kind == HOLDOUT]
        assert len(marks) == 3
        async with served(path, configured(None)) as engine:
            assert [row for row in engine.store.events(0) if isinstance(row, MarkRow)][-1].seq <= (
                rows[-1].seq
            )

    asyncio.run(session())


def test_a_holdout_set_by_others_stays_until_the_configured_one_changes(tmp_path):
    path, clock = tmp_path / "s.db", Clock()
    arm = HoldoutConfig(0.25, ControlTable(arm="recipe"))

    async def session(path, config, step):
        async with served(path, config, clock) as engine:
            await step(engine)
            await traffic(engine, 3, size=40)
            live = everything(engine.placements["home"])
            copy = as_after_a_crash(path)
            terms, held = engine.placements["home"].lift.terms, engine.placements["home"].holdout
        for store in (copy, path):
            again = store_at(store)
            assert verify(config, again) == []
            for snapshot in (True, False):
                home = opened("home", config.placements["home"], again, 0, snapshot=snapshot)
                fold({home.id: home}, again)
                assert (home.lift.terms, home.holdout) == (terms, held)
                assert everything(home) == live or store is path
            again.close()
        return held

    def holds(holdout):
        async def step(engine):
            assert await engine.hold(ChangeHoldout("home", holdout, "lead")) == holdout

        return step

    async def leaves(engine):
        pass

    def run(config, step):
        return asyncio.run(session(path, config, step))

    assert run(configured(), holds(arm)) == arm
    # An unchanged file undoes nothing; neither does one that says other things.
    assert run(configured(), leaves) == arm
    assert run(configured(metrics={"revenue": {}}), leaves) == arm
    assert run(configured(), holds(None)) is None
    assert run(configured(), leaves) is None
    # What the file says of it now is newer.
    assert run(configured({"share": 0.1}), leaves) == HoldoutConfig(0.1)
    assert run(configured(None), leaves) is None
    assert run(configured(None), holds(HoldoutConfig(0.5))) == HoldoutConfig(0.5)
    assert run(configured(None), leaves) == HoldoutConfig(0.5)


def test_a_control_shows_nothing_that_was_not_offered(tmp_path):
    async def session():
        config = configured(None, arms=[*ARMS, "holiday"], policy="uniform-random")
        async with served(tmp_path / "s.db", config) as engine:
            home = engine.placements["home"]
            asked = [
                home.checked(DecisionRequest("k", ["holiday", "film"], id=f"{i}"))
                for i in range(40)
            ]
            # What was checked before does not know of the control's arm.
            await engine.hold(ChangeHoldout("home", HoldoutConfig(0.5, ControlTable(arm="recipe"))))
            return list(await engine.decide_many("home", asked))

    rows = asyncio.run(session())
    assert {row.control for row in rows} == {0, 1}
    # Its place takes the first one on offer, in the propensities too.
    assert {row.arm for row in rows if row.control} == {"holiday"}
    chance = {"holiday": 0.75, "film": 0.25}
    assert all(row.propensity == pytest.approx(chance[row.arm]) for row in rows)


def test_a_holdout_is_set_and_ended_over_http(tmp_path):
    clock = Clock()
    learns = {"arms": ARMS, "seed": 5, "policy": "epsilon-greedy(epsilon=0.1)"}
    control = {"control": {"policy": "ucb1"}}
    overrides = {
        "server.port": 0,
        "store.path": str(tmp_path / "s.db"),
        "placements": {"home": learns, "own": learns | {"holdout": control}},
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tacit.service.engine.engine.LogClock", lambda: clock)
        with running(load_config(overrides=overrides)) as url, Client(url) as client:
            held = client.hold_out("home", 0.4, {"arm": "recipe"})
            assert (held.share, held.control, held.unit) == (0.4, {"arm": "recipe"}, "decision")
            assert client.hold_out("home", 0.4, "uniform", "user").unit == "user"
            assert client.hold_out("home", 0.3).control == "uniform"
            found, _ = shown(client, clock, "home", RATES, rounds=2, size=500)
            # Three in ten of the second round are the control's; eight standard errors.
            assert (found.method, found.share) == ("holdout", 0.3)
            control = found.groups["control"]["decisions"]
            assert abs(control - 300) < 8 * math.sqrt(1000 * 0.3 * 0.7)
            for wrong in ({"share": 0.6}, {"control": "best"}, {"unit": "cat"}):
                with pytest.raises((InvalidRequest, InvalidValue), match=next(iter(wrong))):
                    client.hold_out("home", **wrong)
            with pytest.raises(InvalidRequest, match="on offer are film, recipe"):
                client.hold_out("home", control={"arm": "soup"})
            with pytest.raises(InvalidRequest, match="configuration"):
                client.hold_out("own")
            client.hold_out("home", control={"arm": "film"})
            with pytest.raises(InvalidRequest, match="the control of the holdout shows it"):
                client.change_arms("home", retire=["film"])
            told = tacit("placement", "holdout", "home", "--control", "arm=film", "--url", url)
            assert told.stdout == "0.1 of decisions, by decision, are the control's: arm film\n"
            told = tacit("placement", "holdout", "home", "--none", "--url", url)
            assert told.stdout == "nobody is shown a control\n"
            assert client.end_holdout("home") is None
            first, *_, last = [one.detail["holdout"] for one in client.history("home")[::-1]]
            assert (first["share"], last) == (0.4, None)
            assert client.lift("home").method == "propensities"


def test_apprentices_have_no_holdout(tmp_path):
    async def session():
        async with served(tmp_path / "s.db", configured(mode="apprentice")) as engine:
            row = await engine.decide("home", "k")
            assert (row.arm, row.control, row.propensity) == ("film", None, 1.0)
            await closed(engine)
            return report(engine)

    assert asyncio.run(session()).groups["policy"].decisions == 0


@pytest.mark.parametrize("mode", ["frozen", "shadow"])
def test_other_modes_have_one(tmp_path, mode):
    async def session():
        config = configured(mode=mode, shadow="ucb1")
        async with served(tmp_path / "s.db", config) as engine:
            await traffic(engine, 4, size=20)
            return report(engine)

    groups = asyncio.run(session()).groups
    assert sum(group.decisions for group in groups.values()) == 60
    assert min(group.decisions for group in groups.values()) > 10


def test_a_snapshot_of_an_earlier_version_is_gone_on_from(tmp_path):
    path = tmp_path / "s.db"

    async def session():
        async with served(path, configured(None)) as engine:
            await traffic(engine, 3, size=10)
        store = SqliteStore(path)
        kept = store.snapshot(1)
        windows = msgspec.json.decode(kept.windows)
        del windows["lift"], windows["results"]
        for row, *_ in windows["open"]:
            del row[-2:]
        from tacit.service.stores.base import save

        save(store, kept._replace(windows=msgspec.json.encode(windows)))
        store.close()
        async with served(path, configured(None), Clock(START + 3600 * SECOND)) as engine:
            home = engine.placements["home"]
            assert home.covered == kept.seq
            assert home.lift.scores.overall[0] == 0
            await traffic(engine, 2, size=10)
            assert home.lift.scores.overall[0] == 10
            # What arms earned is known since then only.
            assert home.series.results.time == kept.time
            assert home.series.results.over(0)[DECISIONS] == 20
            assert home.decisions == 50

    asyncio.run(session())


def test_a_decision_that_is_asked_for_again_is_the_same(tmp_path):
    async def session():
        async with served(tmp_path / "s.db", configured({"share": 0.5, "unit": "user"})) as engine:
            home = engine.placements["home"]
            for i in range(20):
                told = home.checked(DecisionRequest("k", id=f"d{i}", user="ann"))
                (first,) = await engine.decide_many("home", [told])
                (again,) = await engine.decide_many("home", [told])
                assert first == again
            rows = [row for row in engine.store.events(0) if isinstance(row, DecisionRow)]
            assert len(rows) == 20
            assert len({(row.control, row.bucket) for row in rows}) == 1

    asyncio.run(session())


def test_features_have_a_holdout(tmp_path):
    async def session():
        config = configured(arms=None, kind="features", policy=FEATURED)
        async with served(tmp_path / "s.db", config) as engine:
            home = engine.placements["home"]
            for i in range(200):
                engine.clock.now += SECOND
                told = home.checked(
                    DecisionRequest(
                        "k",
                        ["a", "b", "c"][: 2 + i % 2],
                        relevance=[[1, 0], [0, 1], [1, 1]][: 2 + i % 2],
                        examination=[[1]] * (2 + i % 2),
                    )
                )
                (row,) = await engine.decide_many("home", [told])
                await engine.feedback("home", row.id, float(row.arm == "b"))
            await closed(engine)
            found = report(engine)
            anew = Engine(config, SqliteStore(as_after_a_crash(tmp_path / "s.db")), engine.clock)
            assert everything(anew.placements["home"]) == everything(home)
            anew.store.close()
            return found

    found = asyncio.run(session())
    assert (found.claim, found.winner) == ("better", None)
    assert sum(group.decisions for group in found.groups.values()) == 200


# Metrics -------------------------------------------------------------------------------------


def test_metrics_are_added_up_and_judged(tmp_path):
    async def session():
        config = configured(metrics=METRICS, snapshot_every=300)
        path = tmp_path / "s.db"
        async with served(path, config) as engine:
            for i in range(40):
                rng = np.random.default_rng(i)
                engine.clock.now += 40 * SECOND
                told = [
                    engine.placements["home"].checked(DecisionRequest("k", id=f"{i} {j}"))
                    for j in range(50)
                ]
                rows = await engine.decide_many("home", told)
                for part in (rows[:25], rows[25:]):
                    sent = []
                    for row in part:
                        film = row.arm == "film"
                        amounts = {
                            "revenue": 2.0 + film,
                            "returns": float(rng.random() < 0.1 + 0.6 * film),
                        }
                        sent.append(Told(row.id, reward=float(film), metrics=as_content(amounts)))
                    await engine.record_many("home", sent)
                if i == 20:
                    # Twice the same, in another piece: amounts are added, within their range.
                    await engine.record_many("home", [msg._replace(id="again") for msg in sent])
            engine.clock.now += 40 * SECOND
            await closed(engine)
            live = everything(engine.placements["home"])
            found = report(engine)
            store = SqliteStore(as_after_a_crash(path))
        again = Engine(config, store, Clock(engine.clock.now))
        assert everything(again.placements["home"]) == live
        sums = again.placements["home"].lift.metrics
        store.close()
        return found, sums

    found, sums = asyncio.run(session())
    revenue, returns = found.metrics
    assert (revenue.name, revenue.claim, revenue.safety) == ("revenue", "better", "safe")
    assert (returns.claim, returns.safety) == ("better", "harm")
    assert returns.verdict == "Learning harms returns."
    assert sums["returns"].totals.sum() <= 2000


@pytest.mark.parametrize(
    ("metrics", "field"),
    [({"clicks": 1.0}, "metrics.clicks"), ({"revenue": -1.0}, "metrics.revenue")],
)
def test_metrics_that_are_not_watched_are_refused(tmp_path, metrics, field):
    async def session():
        async with served(tmp_path / "s.db", configured(metrics=METRICS)) as engine:
            row = await engine.decide("home", "k")
            with pytest.raises(InvalidValue, match=field):
                await engine.record_many(
                    "home", [Told(row.id, "reward", 1.0, None, None, as_content(metrics))]
                )

    asyncio.run(session())


@pytest.mark.parametrize(
    ("metric", "amounts", "worths"),
    [
        ({"range": [0, 50]}, [0.0, 20.0, 80.0], [0.0, 0.4, 1.0]),
        ({"range": [5, 25]}, [0.0, 10.0, 25.0], [0.0, 0.25, 1.0]),
        ({"half": 20.0}, [0.0, 20.0, 60.0], [0.0, 0.5, 0.75]),
    ],
)
@pytest.mark.parametrize("kind", ["arms", "features"])
def test_a_metric_can_be_what_is_learned(tmp_path, kind, metric, amounts, worths):
    of_kind = {"arms": None, "kind": kind, "policy": FEATURED} if kind == "features" else {}
    config = configured(metrics={"revenue": metric}, reward="revenue", **of_kind)
    asked = {"arms": ["a", "b"], "relevance": [[1, 0], [0, 1]], "examination": [[1], [1]]}

    async def session():
        async with served(tmp_path / "s.db", config) as engine:
            home, home_rows = engine.placements["home"], []
            for amount in amounts:
                told = DecisionRequest("k", **(asked if kind == "features" else {}))
                (row,) = await engine.decide_many("home", [home.checked(told)])
                home_rows.append(row)
                content = as_content({"revenue": amount})
                sent = [Told(row.id, metrics=content)]
                await engine.record_many("home", sent)
            for wrong, field in (
                (Told(row.id, reward=0.3, metrics=content), "reward"),
                (Told(row.id, reward=0.3), "metrics.revenue"),
                (Told(row.id), "metrics.revenue"),
            ):
                with pytest.raises(InvalidValue, match=field):
                    await engine.record_many("home", [wrong])
            # What an ingress has worked out, a shard takes as it is.
            await engine.record_many("home", [sent[0]._replace(reward=worths[-1], id="again")])
            rows = [one for one in engine.store.events(0) if isinstance(one, FeedbackRow)]
            await closed(engine)
            return home.lift, rows

    lift, rows = asyncio.run(session())
    assert [row.reward for row in rows[:3]] == worths
    assert [json.loads(row.metrics)["revenue"] for row in rows[:3]] == amounts
    assert lift.reward.totals.sum() == pytest.approx(sum(worths))


def test_amounts_below_zero_have_a_difference_and_a_verdict(tmp_path):
    metrics = {"margin": {"range": [-10, 30], "margin": 0.01}}

    async def session():
        async with served(tmp_path / "s.db", configured(metrics=metrics)) as engine:
            home, rng = engine.placements["home"], np.random.default_rng(2)
            for i in range(20):
                engine.clock.now += 40 * SECOND
                asked = [DecisionRequest("k", id=f"{i} {j}") for j in range(50)]
                rows = await engine.decide_many("home", list(map(home.checked, asked)))
                sent = [
                    Told(
                        row.id,
                        reward=float(row.arm == "film"),
                        metrics=as_content({"margin": float(rng.choice([-15, -5]))}),
                    )
                    for row in rows
                    if row.arm == "film"
                ]
                await engine.record_many("home", sent)
            await closed(engine)
            return report(engine)

    (found,) = asyncio.run(session()).metrics
    # Film loses 7.5 on average, of which the policy shows more: −15 counts as −10.
    assert (found.ratio, found.safety, found.claim) == (None, "harm", "worse")
    assert -7.5 < found.difference.low < found.difference.high < 0


# Configuration -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"holdout": {"share": 0.0}}, "holdout.share"),
        ({"holdout": {"share": 0.6}}, "holdout.share"),
        ({"holdout": {"control": {"arm": "soup"}}}, "none of the policy's arms"),
        ({"holdout": {"control": "best"}}, "holdout.control"),
        ({"holdout": {"unit": "tribe"}}, "holdout.unit"),
        ({"holdout": {"control": {}}}, "give an arm, or a policy"),
        ({"holdout": {"control": {"arm": "film", "policy": "ucb1"}}}, "give an arm, or a policy"),
        ({"holdout": {"control": {"policy": "best"}}}, "policy"),
        ({"holdout": {"control": {"policy": "ucb1"}}, "shadow": "exp3"}, "shadow"),
        ({"holdout": {"control": {"policy": "ucb1"}}, "mode": "shadow"}, "mode"),
        (
            {"holdout": {"control": {"policy": "ucb1"}}, "spread": True, "policy": "ucb1"},
            "leave spread out",
        ),
        ({"holdout": None, "metrics": {"revenue": {}}}, "metrics"),
        ({"metrics": {"revenue": {"range": [2, 1]}}}, "metrics.revenue.range"),
        ({"metrics": {"revenue": {"range": [0, 1], "half": 1.0}}}, "metrics.revenue.half"),
        ({"metrics": {"revenue": {}}, "reward": "clicks"}, "none of the metrics"),
        ({"metrics": {"revenue": {}}, "reward": "revenue"}, "half = the amount"),
        ({"metrics": {"revenue": {"range": [-1, 1]}}, "reward": "revenue"}, "begins at 0"),
        (
            {"metrics": {"returns": {"range": [0, 1], "better": "less"}}, "reward": "returns"},
            "what is learned is to be more",
        ),
        ({"metrics": {"revenue": {"margin": 1.0}}}, r"metrics\[...\].margin"),
    ],
)
def test_what_cannot_be_refuses_to_start(more, message):
    with pytest.raises(ConfigError, match=message):
        configured(**{"holdout": HALF, **more})


def test_requests_that_do_not_fit_are_refused(tmp_path):
    async def session():
        config = configured({"control": {"arm": "film"}, "unit": "session"})
        async with served(tmp_path / "s.db", config) as engine:
            home = engine.placements["home"]
            assert home.checked(DecisionRequest("k", session="s1")).unit == "s1"
            assert home.checked(DecisionRequest("k", user="u1")).unit is None
            with pytest.raises(InvalidValue, match="film"):
                home.checked(DecisionRequest("k", ["recipe"]))
            with pytest.raises(InvalidValue, match="user"):
                home.checked(DecisionRequest("k", user="\n"))

    asyncio.run(session())


# Shards --------------------------------------------------------------------------------------


def test_shards_are_added_up(tmp_path):
    async def session():
        config = configured({"share": 0.5, "unit": "user"})
        parts = []
        for number in range(2):
            async with served(tmp_path / f"{number}.db", config) as engine:
                await traffic(engine, 4, size=30 + number)
                parts.append(snapshot_of(engine.placements["home"]))
        whole = sharded_view("home", config.placements["home"])
        whole.show(parts)
        return whole, parts

    whole, parts = asyncio.run(session())
    lifts = [part.lift for part in parts]
    assert whole.lift.reward.counts.sum() == 3 * 30 + 3 * 31
    expected = sum(lift.reward.totals for lift in lifts)
    np.testing.assert_allclose(whole.lift.reward.totals, expected, rtol=1e-12)
    assert whole.lift.time == min(lift.time for lift in lifts)
    found = lift_report(whole, whole.lift.time + SECOND)
    assert found.groups["control"].decisions > 0
    parts[1].lift.begin("other", 1, 1)
    whole.show(parts)
    told = lift_report(whole, whole.lift.time + SECOND)
    assert told.verdict.startswith("This leaves out 1 shard, which has not begun")
    assert sum(group.decisions for group in told.groups.values()) == 3 * 30
