"""The command line, as a user runs it."""

from __future__ import annotations

import contextlib
import hashlib
import html
import io
import json
import os
import pty
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tomllib
import urllib.request
import warnings
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import forked
import pyarrow.parquet
import pytest
from conftest import DATA, ROOT
from harness import PATIENCE, eventually, started
from stores import free_port

from tacit import demo
from tacit.cli import cli, main
from tacit.client import Client
from tacit.core import name_conflict
from tacit.errors import AssumptionWarning
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config
from tacit.service.maintenance import doctor

TESTS = ROOT / "tests"
SHORT = ["--horizon", "500", "--runs", "2"]
UNIFORM_LOG = DATA / "open_bandit/random/men"


class Told(NamedTuple):
    """What came of a command."""

    returncode: int
    stdout: str
    stderr: str


def tacit(*arguments, env=None, cwd=None):
    """Run the command here, as a process of its own would; return what came of it."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, env or {}),
        mock.patch.object(sys, "path", list(sys.path)),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        # What Python shows of warnings by itself, not what pytest collects.
        warnings.catch_warnings(action="ignore", category=DeprecationWarning),
    ):
        warnings.filterwarnings("default", category=AssumptionWarning)
        try:
            main(list(map(str, arguments)))
        except SystemExit as left:
            return Told(left.code, output.getvalue(), errors.getvalue())
    raise AssertionError("it did not exit")


def as_json(*arguments, **more):
    """Run the command here with ``--json``; return what it printed, and no error."""
    told = tacit(*arguments, "--json", **more)
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def ran(*arguments):
    """Run the command in a process that need not load everything; return what it printed, and no error."""
    told = forked.ran(["-m", "tacit", *arguments])
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


def process(*arguments, env=None, cwd=None):
    """Run the command as a user does, and return what came of it."""
    return subprocess.run(
        [sys.executable, "-m", "tacit", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | (env or {}),
        cwd=cwd,
        timeout=PATIENCE,
    )


def test_help_teaches():
    result = tacit("--help")
    assert result.returncode == 0
    for command in ("demo", "simulate", "evaluate", "serve", "policies", "warmup", "doctor"):
        assert command in result.stdout
        assert "Usage" in tacit(command, "--help").stdout
    assert process("version").stdout.startswith("tacit 0.")


def test_every_option_has_a_help_text():
    """It is the text of a parameter in the docstring, and must have the parameter's name."""

    def without(command, path):
        for name, inner in getattr(command, "commands", {}).items():
            yield from without(inner, f"{path} {name}")
        for option in command.params:
            if option.param_type_name == "option" and not option.help:
                yield f"{path} {option.opts[0]}"

    assert list(without(cli, "tacit")) == []


@pytest.mark.parametrize(("more", "policy"), [((), "DriftMixture"), (("--context",), "ContextMixture")])
def test_the_demo_serves_learns_and_ends(tmp_path, more, policy):
    folder = tmp_path / "demo"
    told = ran("demo", *more, "--impressions", 200, "--out", folder)
    assert f"policy {policy}; page http://127.0.0.1:" in told
    assert ("for whom: Who is asking" in told) == ("the same page for all" in told) == bool(more)
    assert "clairvoyant optimum" in told
    lift = re.search("^lift: (.*(Learning earned|No difference|Too early).*)", told, re.MULTILINE)
    assert "is shown most" in told
    assert ("age: up to" if more else "independence day") in told
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = html.unescape((folder / "page.html").read_text())
    # In how many days a lift would show depends on the moment.
    assert re.split("At today|, in ", lift[1])[0] in page
    assert re.findall(r'(?:href|src)="(?!#|data:)[^"]*"|<script|<form', page) == []
    assert f"page {folder / 'page.html'}, as it was at the end" in told
    assert re.search("^the live page http://127.0.0.1:.* has ended; tacit demo --keep", told, re.M)


def test_the_demo_is_fed_what_it_wrote_and_each_event_counts_once(tmp_path):
    told = ran("demo", "--feed", "--impressions", 300, "--out", tmp_path)
    assert "as it grew and then again: each event counts once" in told
    clicks = (tmp_path / "events.jsonl").read_text().count("\n")
    assert 0 < clicks < 300
    with contextlib.closing(sqlite3.connect(tmp_path / "demo.sqlite")) as log:
        counted = log.execute("SELECT count(*), count(DISTINCT decision) FROM feedback").fetchone()
    assert counted == (clicks, clicks)


def test_the_demo_of_lists_says_what_readers_saw(tmp_path):
    told = ran("demo", "--lists", "--impressions", 400, "--out", tmp_path, "--json")
    rows = {row["shown by"]: row for row in json.loads(told)["rows"]}
    looks = [position["looks"] for position in rows["the order offered"]["positions"]]
    assert looks[0] == 1.0
    assert looks == sorted(looks, reverse=True)
    assert rows["best order"]["clicks_per_1000"] > rows["the order offered"]["clicks_per_1000"]
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_the_demo_of_rankers_ends_with_their_verdict_and_takes_its_service_along(tmp_path):
    port = free_port()
    command = ["-m", "tacit", "demo", "--duel", "--impressions", "300", "--keep", "--port", port, "--out"]
    with (
        (tmp_path / "told").open("w") as out,
        forked.Forked([*command, tmp_path], stdout=out, stderr=subprocess.PIPE, text=True) as demo,
    ):
        assert any("the page stays open" in line for line in demo.stderr)
        demo.terminate()
    told = (tmp_path / "told").read_text()
    assert "neural alone" in told
    said = re.search("^verdict: (.*(preferred|No difference|Too early).*)", told, re.MULTILINE)
    assert said[1] in html.unescape((tmp_path / "page.html").read_text())
    page = re.search("^the live page http://127.0.0.1:([0-9]+)/placements/search.* is open", told, re.M)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(page[1])))
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_a_demo_takes_no_other_service_for_its_own(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        told = forked.ran(["-m", "tacit", "demo", "--port", port, "--out", tmp_path, "--impressions", 100])
    assert told.returncode == 1
    assert "port: " in told.stderr
    assert "give another, or 0" in told.stderr


def test_the_page_of_a_demo_says_what_its_terminal_says(tmp_path):
    """All windows have closed by then, so that nothing comes later that would change it."""
    scene = demo.build_scenario(None, None, 300, seed=1)
    with demo.running_service(scene, tmp_path, 0) as address:
        demo.send(scene, demo.Traffic.draw(scene), address)

        def the_same():
            said = demo.await_verdict(address)
            with urllib.request.urlopen(f"{address}placements/{demo.PLACEMENT}") as page:
                return said in html.unescape(page.read().decode())

        # In how many days a lift would show depends on the moment.
        eventually(the_same)


def test_simulate_prints_a_table_and_writes_files(tmp_path):
    plot, table = tmp_path / "regret.png", tmp_path / "regret.parquet"
    result = tacit("simulate", *SHORT, "--policy", "ucb1", "--plot", plot, "--table", table)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[1].startswith("UCB1")
    assert result.stderr == ""  # no progress in a pipe
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert pyarrow.parquet.read_table(table).num_rows == 400


def test_json_is_for_machines():
    rows = as_json("simulate", *SHORT, "--seed", "3")
    assert [row["policy"] for row in rows] == ["DriftMixture", "Thompson"]
    assert rows[0]["runs"] == 2
    assert as_json("simulate", *SHORT, "--seed", "3") == rows
    assert as_json("simulate", *SHORT, "--seed", "4") != rows


def test_clicks_only_is_an_option():
    late = "--feedback", "clicks only", "--window", "50", "--delay", "5"
    result = tacit("simulate", *SHORT, "--policy", "thompson", *late)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[1].startswith("Thompson")


def test_options_come_from_flags_then_environment_then_file(tmp_path):
    config = tmp_path / "study.toml"
    config.write_text('[simulate]\nhorizon = 300\nruns = 3\npolicy = ["ucb1"]\n')
    rows = as_json("simulate", "--config", config)
    assert [(row["policy"], row["rounds"], row["runs"]) for row in rows] == [("UCB1", 300, 3)]
    env = {"TACIT_SIMULATE_RUNS": "2", "TACIT_SIMULATE_HORIZON": "200"}
    (row,) = as_json("simulate", "--config", config, "--horizon", "100", env=env)
    assert (row["rounds"], row["runs"]) == (100, 2)
    config.write_text("[simulate]\nhorizn = 300\n")
    result = tacit("simulate", "--config", config)
    assert result.returncode == 2
    assert "horizn" in result.stderr


def test_a_missing_extra_is_told_before_the_work_and_not_after(tmp_path):
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("raise ImportError('not here')")
    arguments = ["simulate", "--horizon", "1000000000000", "--plot", "regret.png"]
    result = process(*arguments, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path)
    assert "pip install 'tacit-learn[plots]'" in result.stderr
    assert result.returncode in (1, 2)
    assert "Traceback" not in result.stderr


def test_help_needs_no_extra(tmp_path):
    for name in ("msgspec", "apsw", "httpx"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('not here', name={name!r})")
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    assert "rollback" in process("placement", "--help", env=env).stdout
    for words in (
        ["placement", "rollback", "--help"],
        ["placement", "rollback", "home", "--to", "x"],
        ["doctor"],
    ):
        ran = process(*words, env=env)
        assert "pip install 'tacit-learn[" in ran.stdout + ran.stderr
        assert "Traceback" not in ran.stderr


def test_failed_work_exits_with_1():
    arguments = "evaluate", DATA / "open_bandit/bts/men", "--policy", "thompson"
    for result in (tacit(*arguments), process(*arguments)):
        assert result.returncode == 1
        assert "IPS" in result.stderr
        assert "Traceback" not in result.stderr


HEAD = "timestamp,decision_id,placement,key,arms,arm,propensity,reward,position\n"


@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", "--policy", "uniform", "--estimator", "ips"],
        ["evaluate", "--policy", "thompson"],
        ["examine"],
    ],
    ids=["weights", "replays", "examines"],
)
@pytest.mark.parametrize("rows", ["", 'never,1,home,tomato,"[""a"",""b""]",a,0.5,1,0\n'])
def test_a_log_without_one_usable_row_is_failed_work(command, rows, tmp_path):
    log = tmp_path / "clicks.csv"
    log.write_text(HEAD + rows)
    result = tacit(command[0], log, *command[1:])
    assert result.returncode == (3 if rows else 1), result.stdout
    assert "nan" not in result.stdout
    if rows:
        assert "1 rows read, 0 kept" in result.stderr
        assert "--column OURS=THEIRS" in result.stderr
    assert rows or "has no rows" in result.stderr
    assert "Traceback" not in result.stderr


def test_evaluate_says_which_interval_to_trust(tmp_path):
    log = tmp_path / "clicks.csv"
    row = '2017-07-04T12:00:00Z,{0},home,tomato,"[""a"",""b""]",{1},{2},{3},0\n'
    rows = [row.format(i, *(("b", 0.0001, 1) if i < 2 else ("a", 0.9999, 0))) for i in range(500)]
    log.write_text(HEAD + "".join(rows))
    result = tacit("evaluate", log, "--policy", "always:b", "--estimator", "ips", "--json")
    assert result.returncode == 0, result.stderr
    outside, told = json.loads(result.stdout)["warnings"]
    assert "the value is outside of its anytime interval" in outside
    assert "trust the anytime interval" in told
    assert f"warning: {told}" in result.stderr


def test_evaluate_replays_a_real_log():
    content = as_json("evaluate", UNIFORM_LOG, "--policy", "thompson", "--passes", "3")
    assert content["rows"] == 1_042
    assert content["low"] < content["estimate"] < content["high"]
    assert content["logged"] == pytest.approx(46 / 1_042)
    assert len(content["matched"]) == 3


def test_evaluate_weights_a_real_log(tmp_path):
    table = tmp_path / "target.csv"
    table.write_text("arm,probability\n" + "\n".join([f"{arm},{1 / 34!r}" for arm in range(34)]) + "\n")
    plot = tmp_path / "estimates.png"
    arguments = "--policy", f"table:{table}", "--estimator", "ips,snips,dr", "--plot", plot
    content = as_json("evaluate", DATA / "open_bandit/bts/men", *arguments)
    assert [row["estimator"] for row in content["estimates"]] == ["IPS", "SNIPS", "DoublyRobust"]
    assert content["estimates"][0]["value"] == pytest.approx(0.02822351151272497)
    assert content["estimates"][2]["anytime_low"] is None
    assert plot.stat().st_size > 5000


def test_evaluate_both_replays_and_weights():
    arguments = "--policy", "uniform-random", "--estimator", "replay,ips", "--passes", "1"
    content = as_json("evaluate", UNIFORM_LOG, *arguments)
    assert content["replay"]["rows"] == content["rows"] == 1_042
    assert content["estimates"][0]["value"] == pytest.approx(46 / 1_042)


def test_examine_shows_position_effects(tmp_path):
    plot = tmp_path / "effects.png"
    arguments = "--method", "randomization,harvesting", "--plot", plot
    effects = as_json("examine", UNIFORM_LOG, *arguments)["effects"]
    assert [row["position"] for row in effects] == [1, 2, 3] * 2
    # 22 clicks in 364 rows against 10 in 348.
    assert effects[1]["effect"] == pytest.approx((22 / 364) / (10 / 348))
    assert plot.stat().st_size > 5000


def test_interrupting_ends_cleanly(tmp_path):
    table = tmp_path / "table.csv"
    command = [sys.executable, "-m", "tacit", "simulate", "--horizon", "10000000000"]
    # A shell's background jobs ignore interrupts, and so would what they start.
    process = subprocess.Popen(
        [*command, "--table", str(table)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        # It is at work once it has used four seconds of processor time.
        stat = Path(f"/proc/{process.pid}/stat")
        eventually(lambda: process.poll() is not None or int(stat.read_text().split()[13]) >= 400)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 130
    assert errors.strip() == "interrupted"
    assert list(tmp_path.iterdir()) == []


def test_a_store_with_a_url_is_no_file(tmp_path):
    assert tacit("log", "verify", "--store", "postgresql://127.0.0.1:1/none", cwd=tmp_path).returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_policies_say_what_they_rest_on():
    text = tacit("policies", "kl-ucb").stdout
    assert "Garivier" in text
    assert "assumes" in text
    assert {"UCB1", "KLUCB", "Thompson", "EXP3", "EXP3S", "ExplorationFloor"} <= as_json("policies").keys()


def test_answers_of_the_service_are_printed_for_machines_too(tmp_path):
    config = tmp_path / "service.toml"
    store = f'[store]\npath = "{tmp_path / "log.db"}"\n'
    config.write_text(store + '[server]\nport = 0\n[placements.home]\narms = ["a", "b"]\n')
    process, port = started(config)
    address = f"http://127.0.0.1:{port}"
    with process:
        assert said(address, "pin", "a", "--until", "2099-01-01")["pinned"]["arms"] == ["a"]
        assert said(address, "unpin")["pinned"] is None
        assert said(address, "holdout", "--share", "0.2")["holdout"]["share"] == 0.2
        assert said(address, "holdout", "--control", "arm=b")["holdout"]["control"] == {"arm": "b"}
        assert said(address, "holdout", "--none")["holdout"] is None
        assert said(address, "rebuild", "--policy", "ucb1")["policy"]["name"] == "UCB1"
        assert [state["name"] for state in said(address, "states")]
        assert said(address, "rollback")["policy"]["name"] != "UCB1"
        assert said(address, "arms", "--add", "c")["arms"] == ["a", "b", "c"]
        assert said(address, "history", "--limit", "1")[0]["what"] == "arms"
        told = tacit("placement", "history", "home", "--url", address).stdout
        assert "arms" in told.splitlines()[0]
        assert "add: c" in told
        process.terminate()


def said(address, command, *more):
    """Return the JSON that a command of a placement prints."""
    return as_json("placement", command, "home", *more, "--url", address)


# A policy of one's own ------------------------------------------------------------------------


def test_a_policy_of_ones_own_runs_in_every_driver():
    own = "policies_of_ones_own:ExploreThenCommit"
    simulated = as_json("simulate", *SHORT, "--policy", f"{own}(tries=5)")
    assert simulated[0]["policy"] == "ExploreThenCommit(tries=5)"
    assert as_json("evaluate", UNIFORM_LOG, "--policy", own, "--passes", "1")["policy"] == "ExploreThenCommit"
    missing = tacit("simulate", "--policy", "policies_of_ones_own:Nothing")
    assert missing.returncode == 2
    assert "Nothing" in missing.stderr


# Compilation ----------------------------------------------------------------------------------

COUNTED = """
import sys
import tomllib
from tacit.cli import main
from tacit.errors import AssumptionWarning
try:
    main(sys.argv[1:])
except SystemExit:
    pass
from tacit.core.compiled import cache_statistics
print("hits %d misses %d" % cache_statistics(), file=sys.stderr)
"""


def counted(cache, *arguments, path=TESTS):
    """Run a command and return its output, and its numbers of cache hits and compilations."""
    result = subprocess.run(
        [sys.executable, "-c", COUNTED, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"TACIT_CACHE_DIR": str(cache), "PYTHONPATH": str(path)},
        timeout=PATIENCE,
    )
    words = result.stderr.split()
    return result.stdout, int(words[-3]), int(words[-1])


def test_a_second_run_compiles_nothing(tmp_path):
    arguments = ("simulate", *SHORT, "--policy", "ucb1", "--policy", "exp3")
    first, _, compiled = counted(tmp_path, *arguments)
    assert compiled == 2
    second, hits, compiled = counted(tmp_path, *arguments)
    assert (hits, compiled) == (2, 0)
    assert second == first
    # Other hyperparameters are other numbers, not other code.
    _, hits, compiled = counted(tmp_path, "simulate", *SHORT, "--policy", "ucb1(alpha=2)")
    assert (hits, compiled) == (1, 0)


def test_an_edited_policy_is_compiled_anew(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    source = (TESTS / "policies_of_ones_own.py").read_text()
    (own / "mine.py").write_text(source)
    arguments = ("simulate", *SHORT, "--policy", "mine:ExploreThenCommit", "--json")
    first, _, compiled = counted(tmp_path / "cache", *arguments, path=own)
    assert compiled == 1
    (own / "mine.py").write_text(source.replace("if mean > best", "if mean < best or best < 0"))
    shutil.rmtree(own / "__pycache__", ignore_errors=True)
    second, _, compiled = counted(tmp_path / "cache", *arguments, path=own)
    assert compiled == 1
    regrets = [json.loads(text)[0]["regret"] for text in (first, second)]
    assert regrets[1] > 2 * regrets[0]  # it now commits to the worst


def test_what_is_compiled_goes_to_the_user_and_not_to_the_package(tmp_path):
    """So that pip uninstall leaves nothing behind."""
    installed = tmp_path / "site-packages"
    skipped = shutil.ignore_patterns("__pycache__", "compiled")
    shutil.copytree(Path(demo.__file__).parent, installed / "tacit", ignore=skipped)
    before = {path for path in installed.rglob("*") if path.suffix != ".pyc"}
    environment = os.environ | {"PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("TACIT_CACHE_DIR", None)
    code = "import tacit; print(tacit.__file__); tacit.Learner(tacit.UniformRandom(2), seed=1).choose('a')"
    ran = subprocess.run(
        [sys.executable, "-B", "-c", code], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == str(installed / "tacit" / "__init__.py")
    assert {path for path in installed.rglob("*") if path.suffix != ".pyc"} == before
    assert list((tmp_path / "cache" / "tacit" / "compiled").rglob("*.nbi"))


def test_a_namesake_that_is_installed_over_it_is_told(tmp_path):
    assert name_conflict.find_namesake(tmp_path) == ""
    assert name_conflict.find_namesake(tmp_path / "tacit.zip") == ""
    for ours in ("tacit_learn-0.4.0.dist-info", "tacit"):
        (tmp_path / ours).mkdir()
    with warnings.catch_warnings(action="error"):
        name_conflict.warn_of_namesake(tmp_path)
    (tmp_path / "tacit-0.3.0.dist-info").mkdir()
    with pytest.warns(UserWarning, match=r"tacit-0\.3\.0 is installed next to .*pip uninstall tacit "):
        name_conflict.warn_of_namesake(tmp_path)


def test_the_doctor_tells_of_a_namesake(tmp_path, monkeypatch):
    monkeypatch.setattr(name_conflict, "find_namesake", lambda: "tacit-0.3.0.dist-info")
    (check,) = [check for check in doctor.checks() if check.name == "name"]
    assert check.ok is False
    assert "pip install tacit-learn" in check.remedy


def test_the_doctor_tries_the_store(tmp_path):
    """One that is not there yet, one that is served, one that is none, and one in a folder of another."""

    def check():
        told = tacit("doctor", "--config", path, "--json")
        (found,) = [check for check in json.loads(told.stdout) if check["name"] == "store"]
        return found["ok"], found["detail"].replace(str(tmp_path), "."), found["remedy"] != ""

    path = tmp_path / "tacit.toml"
    path.write_text('[store]\npath = "s.db"\n[placements.home]\narms = 2\n')
    assert check() == (True, "./s.db begins at the first start", False)
    with run_in_thread(load_config(path, {"server.port": 0})) as address, Client(address) as client:
        client.decide("home", "a")
        assert check() == (True, "./s.db: 1 rows, 1 placements", False)
    (tmp_path / "s.db").write_text("no database")
    ok, detail, has_remedy = check()
    assert (ok, has_remedy) == (False, True)
    assert "s.db" in detail
    path.write_text('[store]\npath = "tacit.toml/s.db"\n')
    assert check() == (False, "./tacit.toml/s.db: ./tacit.toml cannot be written", True)
    path.write_text('[store]\nurl = "postgresql://nobody@127.0.0.1:1/none"\n')
    ok, detail, has_remedy = check()
    assert (ok, has_remedy) == (False, True)
    assert "127.0.0.1" in detail


def test_on_a_terminal_a_first_run_says_that_it_compiles(tmp_path):
    """It takes a minute, and nobody should wonder why; the second run has nothing to say."""
    arguments = "simulate", *SHORT, "--policy", "ucb1"
    told = [said_on_a_terminal(*arguments, cache=tmp_path) for _ in range(2)]
    assert told[0].startswith("tacit: compiling play for ")
    assert "compiling" not in told[1]


END = b"\0"


AT_ONCE = """
import sys
import tomllib
from tacit.cli import main
from tacit.core.compilation import notice
notice.PATIENCE = 0.0
main(sys.argv[1:])
"""


def said_on_a_terminal(*arguments, cache):
    """Run the command with a terminal as its standard error; return what it said there.

    Without a second's patience: some machines compile in less.
    """
    ours, its = pty.openpty()
    subprocess.run(
        [sys.executable, "-c", AT_ONCE, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=its,
        env=os.environ | {"TACIT_CACHE_DIR": str(cache), "TACIT_QUIET": "0"},
        timeout=PATIENCE,
        check=True,
    )
    # What was said may come later than the command ends; it has come when this has.
    os.write(its, END)
    said = b""
    while not said.endswith(END):
        said += os.read(ours, 10_000)
    os.close(its)
    os.close(ours)
    return said.removesuffix(END).decode()


def test_a_key_is_added_to_a_configuration(tmp_path):
    path = tmp_path / "tacit.toml"
    path.write_text('[placements.home]\narms = ["film", "song"]\n')
    text = tacit("key", "web", "--placement", "home", "--append", path).stdout
    content = tomllib.loads(path.read_text())
    assert content["placements"]["home"]["arms"] == ["film", "song"]
    assert content["keys"]["web"]["placements"] == ["home"]
    assert hashlib.sha256(text.split()[0].encode()).hexdigest() == content["keys"]["web"]["sha256"]


def test_one_variable_has_the_key_of_every_command():
    from tacit.cli import cli

    def options(command):
        """Yield the options of a command, and of the commands in it."""
        for part in getattr(command, "commands", {}).values():
            yield from options(part)
        yield from command.params

    keys = [option for option in options(cli) if option.opts == ["--key"]]
    assert len(keys) >= 5
    assert all("TACIT_KEY" in option.envvar for option in keys)
