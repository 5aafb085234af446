"""A placement is turned by hand, and its log says who did it and when."""

import contextlib
import json
from datetime import UTC, date, datetime, timedelta
from functools import partial

import harness
import pytest
from click.testing import CliRunner
from drawn import examples
from harness import SECOND, START, Clock, by_clock, learned
from hypothesis import given
from hypothesis import strategies as st
from placement_access import Engine, get_last_pin, get_lift, get_pin, get_shown_arms
from stores import store_at

import tacit
from tacit.cli import cli
from tacit.client import Client, Denied, Impression, InvalidRequest
from tacit.service.app.server import run_in_thread
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.config.keys import new_key
from tacit.service.config.schema import Config, PlacementConfig
from tacit.service.log.ids import as_text
from tacit.service.log.requests import DecisionRequest
from tacit.service.maintenance.doctor import verify
from tacit.service.maintenance.log_export import export, import_log
from tacit.wire.control import ArmsOf, ModeOf, PinOf, Unpin
from tests.service import test_living as living

KEY, SHA256 = new_key()
READING, READING_SHA256 = new_key()
NAMES = ["a", "b", "c"]


def with_keys(path, **others):
    """Return a configuration with a key to change things, and one to use them."""
    keys = {
        "lead": {"sha256": SHA256, "scopes": ["admin"]},
        "wall": {"sha256": READING_SHA256, "scopes": ["read", "decide", "feedback"]},
    }
    return harness.with_home(path, values={"keys": keys}, arms=NAMES, policy="thompson", **others)


configured = partial(harness.with_policy, tacit.Thompson(tuple(NAMES)))


# Who did what ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("kind")
def test_the_log_says_who_changed_what_and_when(tmp_path):
    path = tmp_path / "s.db"
    with run_in_thread(with_keys(path)) as url:
        with Client(url, READING) as client:
            assert client.history("home") == []
            client.decide("home", "q")
            with pytest.raises(Denied):
                client.mode("home", "frozen")
        with Client(url, KEY) as client:
            client.change_arms("home", add=["d", "e"], retire=["a"])
            client.change_arms("home", restore=["a"], retire=["e"])
            client.mode("home", "frozen")
            client.mode("home", "frozen")
            found = client.history("home")
            assert [(one.by, one.what, one.detail) for one in found] == [
                ("lead", "mode", {"mode": "frozen"}),
                ("lead", "arms", {"add": [], "retire": ["e"], "restore": ["a"]}),
                ("lead", "arms", {"add": ["d", "e"], "retire": ["a"], "restore": []}),
            ]
            times = [one.at for one in found]
            assert times == sorted(times, reverse=True)
            assert client.history("home", limit=1) == found[:1]
            path_of_none = "/v1/placements/home/history?limit=0"
            bearer = {"Authorization": f"Bearer {KEY}"}
            status, _, problem = harness.Client(url).ask("GET", path_of_none, headers=bearer)
            assert (status, problem["field"]) == (422, "limit")
    # A start with another configuration is a change, too.
    with run_in_thread(with_keys(path, durability="buffered")) as url:
        with Client(url, KEY) as client:
            last, *before = client.history("home")
            assert before == found
            assert (last.by, last.what) == ("configuration", "configuration")
            assert last.detail == {"durability": {"before": "committed", "after": "buffered"}}
        told = CliRunner().invoke(
            cli, ["placement", "history", "home", "--url", url], env={"TACIT_PLACEMENT_KEY": KEY}
        )
        assert told.exit_code == 0, told.output
        lines = told.output.splitlines()
        assert len(lines) == 4
        assert "configuration  configuration  durability: committed → buffered" in lines[0]
        assert lines[3].split()[2:] == ["lead", "arms", "add:", "d", "e,", "retire:", "a"]


async def test_a_reload_is_told_with_what_is_new(tmp_path):
    async with harness.served(tmp_path / "s.db", configured()) as engine:
        await engine.reload(configured(snapshot_every=9))
        await engine.reload(configured(snapshot_every=9))
        (change,) = await engine.history("home")
        assert change == (
            START, "configuration", "configuration",
            {"snapshot_every": {"before": 50_000, "after": 9}},
        )  # fmt: skip


@pytest.mark.usefixtures("kind")
async def test_what_was_changed_outlives_the_rows(tmp_path):
    day = 86_400 * harness.SECOND

    clock = Clock()
    async with harness.served(tmp_path / "s.db", configured(retention=1.0), clock) as engine:
        await engine.ask("home", ArmsOf(["d"]), "lead")
        for _ in range(4):
            clock.now += day
            await engine.decide("home", "q")
            await harness.quiet(engine)
        assert [c.what for c in await engine.history("home")] == ["arms"]
        assert engine.store.snapshots.find_base_end(1).seq > 1
        before = learned(engine)
    with contextlib.closing(store_at(tmp_path / "s.db")) as store:
        again = Engine(configured(retention=1.0), store, Clock())
        assert learned(again) == before
        export(again.config, store, tmp_path / "out")
    with contextlib.closing(store_at(tmp_path / "t.db")) as other:
        import_log(other, tmp_path / "out")
        assert [(mark.kind, mark.who) for mark in other.changes(1)] == [("arms", "lead")]


# Pins -------------------------------------------------------------------------------------------


PINNED = {"arms": ["b"], "shared": ["b"], "slates": ["c", "a"], "duels": ["b"], "features": ["y"]}


async def take_step(engine, i, what, number, waiting):
    """Take one step; return what it came to."""
    if what == "stop":
        return None
    now = engine.clock.now = START + i * living.ROUND_TIME
    kind = engine.config.placements["home"].kind
    if what in ("decide", "learn"):
        if what == "decide":
            pin = get_pin(engine.placements["home"], now)
            rows = await living.take_step(engine, i, what, number, waiting)
            for row in rows:
                assert (row.mode in ("pinned", "pinned-frozen")) == (pin is not None)
                if pin is not None:
                    assert row.propensity == 1.0
                    times = 2 if kind == "duels" else 1
                    assert get_shown_arms(engine.placements["home"], row) == tuple(pin.arms) * times
            return rows
        return await living.take_step(engine, i, what, number, waiting)
    if what == "pin":
        until = now + (1 + number % 3) * living.ROUND_TIME
        return await engine.ask("home", PinOf(PINNED[kind], as_text(until)))
    if what == "unpin":
        return await engine.ask("home", Unpin())
    return await engine.ask("home", ModeOf({"freeze": "frozen", "thaw": "online"}[what]))


@pytest.mark.parametrize("kind", living.POLICIES)
@examples(12)
@given(
    steps=living.steps_of("pin", "unpin", "freeze", "thaw"),
    snapshot_every=st.sampled_from([1, 5, 50_000]),
    crash=st.booleans(),
)
def test_what_pins_taught_is_a_fold_of_the_log(tmp_path_factory, kind, steps, snapshot_every, crash):
    folder = tmp_path_factory.mktemp("pins")
    config = living.of_kind(kind, snapshot_every=snapshot_every)
    # The mode of a placement that has decided nothing is that of its configuration.
    steps = [("decide", 0), *steps, ("decide", 0)]
    living.check_stops(folder, config, steps, crash, take_step, get_last_pin)


@pytest.mark.usefixtures("kind")
def test_a_pin_over_http_ends_by_itself_and_by_hand(tmp_path):
    path, clock = tmp_path / "s.db", Clock()
    far = datetime.fromtimestamp(START / SECOND, UTC) + timedelta(days=1)
    config = with_keys(path)
    with by_clock(config, clock) as url, Client(url, KEY) as client:
        assert client.unpin("home") is None
        assert client.history("home") == []
        pinned = client.pin("home", ["b"], far)
        assert (pinned.arms, datetime.fromisoformat(pinned.until)) == (["b"], far)
        shown = client.decide_many("home", [Impression(f"q {i}") for i in range(30)])
        assert {(one.arm, one.propensity) for one in shown} == {("b", 1.0)}
        assert len({one.would.arm for one in shown}) > 1
        assert client.feedback("home", shown[0].decision_id, 1.0).outcome == "learned"
        # What cannot be shown is no reason to refuse anybody.
        other = client.decide("home", "q", arms=["a", "c"])
        assert (other.arm in ("a", "c"), other.propensity) == (True, pytest.approx(0.5, abs=0.2))
        with Client(url, READING) as reader, pytest.raises(Denied):
            reader.pin("home", ["a"], far)
        for arms, until, wrong in (
            (["z"], far, "arms"),
            (["a", "b"], far, "arms"),
            ([], far, "arms"),
            (["a"], "2020-01-01", "until"),
            (["a"], "soon", "until"),
        ):
            with pytest.raises(InvalidRequest, match=wrong):
                client.pin("home", arms, until)
    with by_clock(config, clock) as url, Client(url, KEY) as client:
        assert client.decide("home", "r").arm == "b"
        assert client.unpin("home") is None
        shown = client.decide_many("home", [Impression(f"s {i}") for i in range(60)])
        assert {one.arm for one in shown} == set(NAMES)
        assert client.pin("home", ["c"], date(2099, 1, 1)).until == "2099-01-01T00:00:00+00:00"
        client.pin("home", ["c"], datetime.fromtimestamp(clock.now / SECOND + 1, UTC))
        assert {client.decide("home", f"t {i}").arm for i in range(10)} == {"c"}
        clock.now += SECOND
        harness.eventually(lambda: client.decide("home", "t").arm != "c")
        found = client.history("home")
        assert [(one.by, one.what) for one in found] == [
            ("lead", "pin"), ("lead", "pin"), ("lead", "unpin"), ("lead", "pin"),
        ]  # fmt: skip
        assert found[3].detail == {"arms": ["b"], "until": pinned.until}
        for command, told in (
            (["pin", "home", "a", "--until", "2099-01-01"], "a until 2099-01-01T00:00:00+00:00\n"),
            (["unpin", "home"], "the policy decides\n"),
            (["mode", "home", "--mode", "frozen"], "frozen\n"),
        ):
            assert CliRunner().invoke(cli, ["placement", *command, "--url", url, "--key", KEY]).output == told
        assert client.history("home")[0].what == "mode"
    assert verify(config, store_at(path)) == []


async def test_the_time_of_the_row_ends_a_pin(tmp_path):
    async with harness.served(tmp_path / "s.db", configured()) as engine:
        await engine.ask("home", PinOf(["b"], as_text(START + 10)))
        for now, pinned in ((START + 9, True), (START + 10, False)):
            engine.clock.now = now
            rows = [await engine.decide("home", f"{now} {i}") for i in range(20)]
            assert {row.mode for row in rows} == ({"pinned"} if pinned else {"online"})
        assert len(await engine.history("home")) == 1
        # Nothing is pinned any more, so that there is nothing to take off.
        assert (await engine.ask("home", Unpin())).pinned is None
        assert len(await engine.history("home")) == 1


async def test_pins_beside_a_holdout_are_neither_the_policys_nor_the_controls(tmp_path):
    config = configured(holdout=HoldoutConfig(share=0.5))
    async with harness.served(tmp_path / "s.db", config) as engine:
        for i in range(10):
            row = await engine.decide("home", f"q {i}")
            await engine.feedback("home", row.id, 1.0)
        engine.clock.now += 60 * harness.SECOND
        await engine.ask("home", PinOf(["b"], as_text(engine.clock.now + 1000)))
        before = json.dumps(get_lift(engine.placements["home"]).save_state())
        for i in range(10):
            row = await engine.decide("home", f"q {i}")
            assert (row.control, row.propensity) == (None, 1.0)
            await engine.feedback("home", row.id, 1.0)
        engine.clock.now += 60 * harness.SECOND
        await engine.decide("home", "q")
        assert get_lift(engine.placements["home"]).scores.as_dict() == json.loads(before)["scores"]


async def test_what_was_pinned_is_in_no_click_log(tmp_path):
    """An estimate of another arm was refused for it."""
    config = harness.with_home(arms=NAMES, policy="thompson", holdout={"share": 0.5, "control": {"arm": "a"}})
    async with harness.served(tmp_path / "s.db", config) as engine:
        rows = [await engine.decide("home", f"q {i}") for i in range(40)]
        await engine.ask("home", PinOf(["b"], as_text(engine.clock.now + 1000)))
        pinned = await engine.decide("home", "q")
    with contextlib.closing(store_at(tmp_path / "s.db")) as store:
        export(config, store, tmp_path / "out")
    assert pinned.propensity == 1.0
    path = str(tmp_path / "out" / "clicks.parquet")
    ids = {decision for batch in tacit.read_log(path) for decision in batch["decision_id"].to_pylist()}
    assert ids == {row.id for row in rows}
    found = CliRunner().invoke(cli, ["evaluate", path, "--policy", "always:c", "--estimator", "ips"])
    assert found.exit_code == 0, found.output


async def test_an_arm_that_only_requests_know_is_pinned_by_its_name(tmp_path):
    config = Config({"home": PlacementConfig(tacit.policies.LinTS(1, 1), 7, kind="features")})

    async with harness.served(tmp_path / "s.db", config) as engine:
        placement = engine.placements["home"]
        await engine.ask("home", PinOf(["y"], as_text(START + 10)))
        outcomes = []
        for arms, shown in ((["x", "y"], {"y"}), (["x", "z"], {"x", "z"})):
            rows = []
            for i in range(20):
                told = DecisionRequest(f"{i}", arms, relevance=[[0.5], [0.5]], examination=[[1.0], [1.0]])
                rows += await engine.decide_many("home", [placement.reader.read(told)])
            assert {row.arm for row in rows} <= shown
            outcomes.append(await engine.feedback("home", rows[0].id, 1.0))
        # Of those before the second nothing came yet.
        assert outcomes == ["learned", "pending"]
        live = learned(engine)
    with harness.recovered(tmp_path / "s.db", config) as again:
        assert learned(again) == live
