"""Arms that the configuration names: they come and go as it is read anew, and at a restart."""

import json
import signal
import threading

import harness
import pytest
import stores
from placement_access import get_offer, open_store
from stores import store_at

import tacit
from tacit.client import Client, Impression
from tacit.errors import ConfigError
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config
from tacit.service.config.holdout import ControlTable, HoldoutConfig
from tacit.service.errors import NotDurable
from tacit.service.log.rows import ARMS
from tacit.service.maintenance.doctor import verify
from tacit.wire.control import ArmsOf
from tests.service.test_engine import FailingStore
from tests.service.test_living import NAMES, POLICIES, decided, feedback, of_kind, renamed, shown

LATER = ("d", "c", "b")


def naming(arms, kind="arms", **more):
    """Return a configuration that names these arms."""
    return renamed(of_kind(kind), arms, **more)


def arms_of(engine):
    offer = get_offer(engine.placements["home"])
    return offer.arms, offer.retired


def marks(engine):
    """Return the marks of the log that say which arms there are."""
    return [row for row in engine.store.events(0) if getattr(row, "kind", None) == ARMS]


@pytest.mark.parametrize("kind", POLICIES)
async def test_arms_follow_the_configuration_while_it_serves_and_at_a_restart(tmp_path, kind):
    path = tmp_path / "s.db"
    async with harness.served(path, naming(NAMES, kind)) as engine:
        first = await decided(engine, "q")
        await engine.reload(naming(LATER, kind))
        assert arms_of(engine) == (["b", "c", "d"], ["a"])
        assert [mark.who for mark in marks(engine)] == ["configuration"]
        rows = [await decided(engine, "q") for _ in range(10)]
        assert all(shown(engine, row) <= set(LATER) for row in rows)
        assert all(row.offered == '["b","c","d"]' for row in rows)
        # What a retired arm earned is learned still.
        assert await feedback(engine, first, 1) in ("learned", ["pending"])
        # Another order, or what the file said already, changes nothing.
        await engine.reload(naming(sorted(LATER), kind))
        await engine.reload(naming(LATER, kind))
        assert len(marks(engine)) == 1
        live = harness.learned(engine)
    async with harness.served(path, naming(LATER, kind), engine.clock) as engine:
        assert (arms_of(engine), len(marks(engine))) == ((["b", "c", "d"], ["a"]), 1)
        assert harness.learned(engine) == live
    async with harness.served(path, naming(("a", "c"), kind), engine.clock) as engine:
        assert arms_of(engine) == (["a", "c"], ["b", "d"])
        rows = [await decided(engine, "q") for _ in range(10)]
        assert all(shown(engine, row) <= {"a", "c"} for row in rows)
    assert verify(naming(("a", "c"), kind), store_at(path)) == []


async def test_what_others_did_to_the_arms_stays_unless_the_file_says_otherwise(tmp_path):
    async with harness.served(tmp_path / "s.db", naming(NAMES)) as engine:
        await engine.ask("home", ArmsOf(["new"], ["a"]))
        await engine.reload(naming(NAMES, snapshot_every=9))
        assert arms_of(engine) == (["b", "c", "new"], ["a"])
        await engine.reload(naming((*NAMES, "d")))
        assert arms_of(engine) == (["b", "c", "new", "d"], ["a"])
        # One that is there already is the file's from then on; so is one that is gone.
        await engine.reload(naming(("b", "c", "d", "new")))
        assert arms_of(engine) == (["b", "c", "new", "d"], ["a"])
        await engine.reload(naming(NAMES))
        assert arms_of(engine) == (["a", "b", "c"], ["new", "d"])
    async with harness.served(tmp_path / "s.db", naming(NAMES)) as engine:
        assert arms_of(engine) == (["a", "b", "c"], ["new", "d"])
        assert len(marks(engine)) == 4


async def test_numbered_arms_follow_their_number(tmp_path):
    def counted(arms):
        return naming(arms, policy=tacit.Thompson(2))

    async with harness.served(tmp_path / "s.db", counted(2)) as engine:
        await engine.reload(counted(4))
        assert arms_of(engine) == ([0, 1, 2, 3], [])
        await engine.reload(counted(1))
        assert arms_of(engine) == ([0], [1, 2, 3])
        await engine.reload(counted(5))
        assert arms_of(engine) == ([0, 1, 2, 3, 4], [])
        with pytest.raises(ConfigError, match="set it back"):
            await engine.reload(naming(NAMES))


@pytest.mark.parametrize("stop", [False, True])
async def test_a_file_that_would_leave_no_arm_on_offer_brings_back_those_that_it_names(tmp_path, stop):
    """While it serves, and at a start: that must not fail for what was once changed by hand."""
    async with harness.served(tmp_path / "s.db", naming(NAMES)) as engine:
        await engine.ask("home", ArmsOf(["by hand"], ["a", "b"]))
        await engine.ask("home", ArmsOf(retire=["by hand"]))
        if not stop:
            await engine.reload(naming(("a", "b")))
            assert arms_of(engine) == (["a", "b"], ["c", "by hand"])
    async with harness.served(tmp_path / "s.db", naming(("a", "b"))) as engine:
        assert arms_of(engine) == (["a", "b"], ["c", "by hand"])
        assert (await decided(engine, "q")).arm in ("a", "b")
        assert len(marks(engine)) == 3


async def test_the_second_policy_and_the_control_have_the_arms_of_the_file(tmp_path):
    """The control shows an arm that came with the same file; the one it showed before goes."""
    path = tmp_path / "s.db"

    def halved(arms, control):
        more = {"holdout": HoldoutConfig(0.5, ControlTable(control)), "shadow": tacit.UCB1(arms)}
        return naming(arms, mode="shadow", **more)

    async with harness.served(path, halved(NAMES, "a")) as engine:
        for i in range(20):
            await feedback(engine, await decided(engine, f"q{i % 3}"), i % 2)
        await engine.reload(halved(("b", "c", "d"), "d"))
        rows = [await decided(engine, "q0", f"{i}") for i in range(60)]
        assert {row.arm for row in rows if row.control} == {"d"}
        assert {row.would for row in rows} <= {"b", "c", "d"}
        assert all(row.propensity >= 0.5 for row in rows if row.arm == "d")
        for row in rows:
            await feedback(engine, row, 1)
        live = harness.learned(engine)
    async with harness.served(path, halved(("d", "b", "c"), "d"), engine.clock) as engine:
        assert harness.learned(engine) == live
    assert verify(halved(("b", "c", "d"), "d"), store_at(path)) == []


async def test_a_change_whose_commit_failed_is_made_again_when_the_store_is_back(tmp_path):
    async with harness.served(tmp_path / "s.db", naming(NAMES), wrap=FailingStore) as engine:
        before = await decided(engine, "q")
        engine.store.fails = True
        with pytest.raises(NotDurable):
            await engine.reload(naming(LATER))
        engine.store.fails = False
        await harness.reached(lambda: engine.writer.failure is None)
        rows = [await decided(engine, "q") for _ in range(10)]
        assert {row.offered for row in rows} == {'["b","c","d"]'}
        assert await feedback(engine, before, 1) == "learned"
        assert [mark.who for mark in marks(engine)] == ["configuration"]


@pytest.mark.usefixtures("kind")
def test_no_request_is_refused_while_the_file_changes_the_arms(tmp_path):
    path = tmp_path / "tacit.toml"
    place = 'path = "s.db"'
    if stores.chosen == "postgres":
        place = f'url = "{stores.cluster().url}"\nschema = "{stores.schema_of(tmp_path)}"'
    text = f"""
        [server]
        port = 0
        [store]
        {place}
        [placements.home]
        arms = %s
        policy = "thompson"
        seed = 7
    """
    path.write_text(text % list(NAMES))
    process, port = harness.started(path)
    stop, errors, arms = threading.Event(), [], []

    def traffic():
        with Client(f"http://127.0.0.1:{port}") as mine:
            while not stop.is_set():
                try:
                    made = mine.decide_many("home", [Impression(f"q {i}") for i in range(20)])
                    arms.extend(one.arm for one in made)
                    mine.feedback("home", made[0].decision_id, 1.0)
                except Exception as error:
                    errors.append(error)
                    return

    workers = [threading.Thread(target=traffic) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        for now in (LATER, ("a", "d"), ("c",)):
            path.write_text(text % list(now))
            process.send_signal(signal.SIGHUP)
            # From some moment on, only these.
            harness.eventually(lambda now=now: errors or set(arms[-400:]) == set(now))
    finally:
        stop.set()
        for worker in workers:
            worker.join()
        harness.stopped(process, signal.SIGTERM)
    assert errors == []
    config = load_config(path)
    assert verify(config, open_store(config.store)) == []


def test_the_command_changes_arms_by_name_and_by_number(tmp_path):
    from tests.cli.test_cli import tacit as ran

    placements = {"home": {"arms": ["a", "b"]}, "many": {"arms": 2}}
    with run_in_thread(harness.configured(tmp_path / "s.db", placements=placements)) as address:

        def told(*arguments):
            done = ran("placement", "arms", *arguments, "--url", address)
            return done.returncode, done.stdout.splitlines(), done.stderr

        assert told("home") == (0, ["on offer: a, b", "retired: none"], "")
        changed = told("home", "--add", "c", "--add", "d", "--retire", "a")
        assert changed == (0, ["on offer: b, c, d", "retired: a"], "")
        code, lines, _ = told("home", "--restore", "a", "--json")
        assert (code, json.loads("".join(lines))["retired"]) == (0, [])
        assert told("many", "--add", "2", "--retire", "0")[1][0] == "on offer: 1, 2, 3"
        code, _, error = told("many", "--retire", "a")
        assert (code, "--retire: 'a': arms are numbered" in error) == (2, True)
        code, _, error = told("home", "--retire", "z")
        assert (code, "there is no arm 'z'" in error) == (1, True)
        code, _, error = told("home", "--retire", "b,c")
        assert (code, "--retire: 'b,c' has a comma; give each by --retire" in error) == (2, True)


SLOW = """
import os, pathlib, signal, sys, threading, time
from tacit.service.config.file import load_config
from tacit.service.app.server import serve
from tacit.service.engine.engine import Engine
from tacit.service.engine.stores import open_store
path = pathlib.Path(sys.argv[1])
def opened(config):
    os.kill(os.getpid(), signal.SIGHUP)
    return Engine(config, open_store(config.store))
def read_slowly():
    config, text = load_config(path), path.read_text()
    if '["a", "b"]' in text:
        path.write_text(text.replace('["a", "b"]', '["b", "c"]'))
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.5)
        threading.Timer(0.5, path.with_name("read").touch).start()
    return config
serve(load_config(path), reread=read_slowly, engine=opened)
"""


def test_a_file_that_is_to_be_read_anew_while_the_log_is_opened_or_while_it_is_read_is_read_then(tmp_path):
    path = tmp_path / "tacit.toml"
    path.write_text('[server]\nport = 0\n[store]\npath = "s.db"\n[placements.home]\narms = ["a", "b"]\n')
    process, port = harness.started(path, SLOW)
    with process, Client(f"http://127.0.0.1:{port}") as client:
        harness.eventually((tmp_path / "read").exists)
        harness.eventually(lambda: client.change_arms("home").arms == ["b", "c"])
        process.terminate()
