"""What is in deploy/, and what it relies on: exit codes, notifications, where it listens."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

import pytest
from conftest import ROOT
from forked import Forked
from harness import PATIENCE, configured, reached, served

from tacit.errors import TacitError
from tacit.service.app import server as systemd
from tacit.service.config.file import load_config
from tacit.service.config.schema import ServerConfig
from tacit.service.errors import StoreError
from tacit.service.log.sqlite import SqliteStore
from tests.service.test_http import Client

DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "tacit.service").read_text()
IMAGE = (DEPLOY / "Containerfile").read_text()
MOST_EXPOSED = 2.5
"""Of systemd-analyze's 10; what it still counts is the network and the compiler."""


def setting(name):
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return value


NEVER = {int(code) for code in setting("RestartPreventExitStatus").split()}


def instruction(name):
    (value,) = re.findall(rf"^{name} (.*)$", IMAGE, re.MULTILINE)
    return value


def served_by_command(*arguments, **options):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return Forked(["-m", "tacit", "serve", *arguments], **pipes, **options)


def left(*arguments):
    """Return the exit code of a service that cannot start, and what it said."""
    process = served_by_command(*arguments)
    try:
        _, told = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return process.returncode, told


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "tacit.toml"
    path.write_text('[store]\npath = "s.db"\n[placements.home]\narms = 3\nseed = 1\n')
    return path


def test_what_would_fail_again_is_not_tried_again(config):
    """A wrong file, a placement that does not fit the store, an address without keys."""
    process = served_by_command("--config", config, "--port", 0)
    assert process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    text = config.read_text()
    for wrong in (
        text.replace("arms = 3", 'arms = 3\npolicy = "exp3"'),
        text.replace("arms", "legs"),
        "nonsense",
    ):
        config.write_text(wrong)
        code, told = left("--config", config, "--port", 0)
        assert code in NEVER, told
    config.write_text(text)
    assert left("--config", config, "--host", "0.0.0.0")[0] in NEVER
    assert left("--config", config, "--nonsense")[0] in NEVER


def test_what_may_pass_is_tried_again(config, tmp_path):
    """A port or a store that is in use."""
    assert setting("Restart") == "on-failure"
    process = served_by_command("--config", config, "--port", 0)
    try:
        port = process.stdout.readline().split()[3].rpartition(":")[2]
        code, told = left("--config", config, "--port", 0)
        assert code not in {0, *NEVER}, told
        assert "in use by another process" in told
        code, told = left("--config", config, "--port", port, "--store", tmp_path / "other.db")
        assert code not in {0, *NEVER}, told
        assert "cannot listen" in told
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


@pytest.fixture
def told():
    """A socket like systemd's, and its path."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver,
    ):
        receiver.bind(f"{folder}/notify")
        receiver.settimeout(PATIENCE)
        yield receiver


def test_systemd_is_told(config, told):
    assert setting("Type") == "notify"
    environment = os.environ | {"NOTIFY_SOCKET": told.getsockname(), "WATCHDOG_USEC": "300000"}
    process = served_by_command("--config", config, "--port", 0, env=environment)
    try:
        assert told.recv(100) == b"READY=1"
        assert Client(process.stdout.readline().split()[3]).ask("GET", "/readyz")[0] == 200
        assert [told.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        process.send_signal(signal.SIGTERM)
        while (state := told.recv(100)) == b"WATCHDOG=1":
            pass
        assert state == b"STOPPING=1"
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    finally:
        process.kill()


def test_an_abstract_socket_is_told(monkeypatch):
    name = f"tacit-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name)
        receiver.settimeout(PATIENCE)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        systemd.notify(systemd.READY)
        assert receiver.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "relative", "/nobody/listens/here"])
def test_nobody_to_tell_is_no_error(monkeypatch, address):
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    systemd.notify(systemd.READY)


@pytest.mark.parametrize(("time", "pid"), [("", ""), ("soon", ""), ("1000000", "1")])
async def test_no_watchdog_is_none_of_ours(monkeypatch, time, pid):
    monkeypatch.setenv("WATCHDOG_USEC", time)
    monkeypatch.setenv("WATCHDOG_PID", pid)
    await asyncio.wait_for(systemd.watch(None), PATIENCE)


class Slow(SqliteStore):
    """A store whose commits wait for us."""

    def __init__(self, path):
        self.busy, self.free = threading.Event(), threading.Event()
        self.free.set()
        super().__init__(path)

    def commit(self):
        self.busy.set()
        assert self.free.wait(PATIENCE)
        super().commit()


async def test_an_engine_that_is_stuck_is_found_out(tmp_path):
    store = Slow(str(tmp_path / "s.db"))
    async with served(store, configured()) as engine:
        progress = systemd.Progress(engine)
        assert [progress.has_progressed(), progress.has_progressed()] == [True, True]
        store.busy.clear()
        store.free.clear()
        first = asyncio.create_task(engine.decide("default", "a"))
        await reached(store.busy.is_set)
        second = asyncio.create_task(engine.decide("default", "b"))
        await reached(lambda: engine.waiting)
        progress.has_progressed()
        stuck = not progress.has_progressed()
        store.free.set()
        await asyncio.gather(first, second)
        assert (stuck, progress.has_progressed()) == (True, True)


async def test_a_store_that_fails_is_no_reason_to_start_anew(tmp_path):
    """What waits for it may be in memory only."""

    class Failing(SqliteStore):
        def insert(self, rows):
            raise StoreError("store: the disk is full")

        append = insert

    async with served(Failing(str(tmp_path / "s.db")), configured()) as engine:
        progress = systemd.Progress(engine)
        with pytest.raises(TacitError):
            await engine.decide("default", "a")
        assert not engine.health().ready
        assert [progress.has_progressed(), progress.has_progressed()] == [True, True]


@pytest.mark.needs("systemd-analyze")
def test_systemd_understands_the_unit(tmp_path):
    unit = tmp_path / "tacit.service"
    unit.write_text(UNIT.replace("/opt/tacit/bin/tacit", sys.executable))
    for command in (["verify"], ["security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}"]):
        ran = subprocess.run(
            ["systemd-analyze", *command, str(unit)], capture_output=True, text=True, timeout=PATIENCE
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "Unknown" not in ran.stderr


def test_the_image_listens_where_it_says():
    command = json.loads(instruction("CMD"))
    assert command[:2] == ["tacit", "serve"]
    options = dict(zip(command[2::2], command[3::2], strict=True))
    assert options["--host"] == "0.0.0.0"
    assert options["--port"] == instruction("EXPOSE") == str(ServerConfig().port)
    assert f":{options['--port']}/readyz" in IMAGE


def test_the_image_is_pinned_and_keeps_what_it_compiled():
    assert re.search(r"^ARG BASE=\S+:\d+\.\d+\.\d+-\S+$", IMAGE, re.MULTILINE)
    assert not instruction("ENV").partition("=")[2].startswith(instruction("VOLUME"))
    assert "!deploy/served.toml" in (DEPLOY.parent / ".dockerignore").read_text().splitlines()


def test_the_image_builds_from_what_reaches_it(tmp_path):
    for line in (DEPLOY.parent / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            source, copy = DEPLOY.parent / line[1:], tmp_path / "source" / line[1:]
            copy.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy)
    command = sys.executable, "-m", "build", "--no-isolation", "--wheel", tmp_path / "source"
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_what_the_image_compiles_is_what_is_served_by_default_and_of_each_kind():
    compiled, default = load_config(DEPLOY / "served.toml").placements, load_config().placements["default"]
    assert type(compiled["default"].policy) is type(default.policy)
    assert {each.kind for each in compiled.values()} == {"arms", "features", "duels", "slates"}
    policies = [each.policy for each in compiled.values()]
    # Contexts, items, and items with contexts, alone and in lists.
    shapes = {(bool(each.context_dim), any(each.feature_dims), each.shows) for each in policies}
    assert shapes >= {(True, False, "arm"), (False, True, "arm"), (True, True, "arm"), (False, True, "slate")}
