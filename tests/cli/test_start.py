"""What a start brings along: nobody waits for packages that are not for them."""

import json
import os
import subprocess
import sys
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

import tacit
from tacit import warmup
from tacit.cli import cli
from tacit.policies.base import registry

HEAVY = "pyarrow", "pandas", "matplotlib", "ray", "scipy.linalg", "scipy.special", "asyncio"
SHOWN = f"import sys; print(*(name for name in {HEAVY!r} if name in sys.modules))"
LEARNER = """
import tacit
learner = tacit.Learner(tacit.UCB1(3), seed=1)
learner.learn(learner.choose("film"), 1.0)
"""


def brought(script, *arguments):
    """Return which heavy packages a script brings along, in a process of its own."""
    command = [sys.executable, "-c", script + "\n" + SHOWN, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize("module", ["tacit", "tacit.cli"])
def test_an_import_brings_no_policies_and_no_package_for_logs_plots_or_the_compiler(module):
    assert brought(f"import sys, {module}; assert not {{'numba', 'tacit.policies'}} & set(sys.modules)") == []


def test_a_learner_that_is_compiled_brings_no_more(tmp_path):
    """Nor what a compilation needs: the first run compiles, the second one finds it."""
    brought(LEARNER)
    assert brought(LEARNER) == []


SERVICE = """
import os, signal, sys
from tacit.service.config.file import load_config
from tacit.service.app.server import serve
config = load_config(overrides={
    "store.path": sys.argv[1], "server.port": 0,
    "placements.default.policy": "ucb1", "placements.default.arms": 3,
})
serve(config, ready=lambda address: os.kill(os.getpid(), signal.SIGTERM))
"""


def test_a_service_brings_nothing_for_logs(tmp_path):
    """Who reads or writes Arrow pays for it, and not whoever waits for a start."""
    # A first start compiles, which brings packages of its own.
    assert {"pyarrow", "pandas", "matplotlib"}.isdisjoint(brought(SERVICE, str(tmp_path / "tacit.db")))


# What is compiled ahead -----------------------------------------------------------------------


def warmed(*names):
    run = CliRunner().invoke(cli, ["warmup", *names, "--json"])
    assert run.exit_code == 0, run.output
    return json.loads(run.output)


def test_what_is_compiled_ahead_is_not_compiled_again():
    """Choosing, learning and a simulation, of what is named."""
    before = warmed("thompson")
    learner = tacit.Learner(tacit.Thompson(["film", "holiday"]), seed=1)
    learner.learn(learner.choose("tomato"), 1.0)
    tacit.simulate(tacit.Thompson(3), tacit.BernoulliArms([0.1, 0.2, 0.3]), 10, workers=1)
    assert warmed("thompson")["compiled"] == before["compiled"]


def test_only_what_is_named_is_compiled_ahead(monkeypatch):
    seen = []
    monkeypatch.setattr(warmup, "Learner", lambda policy, seed: seen.append(type(policy).__name__) or Mock())
    monkeypatch.setattr(warmup, "simulate", lambda policy, *_, **__: None)
    warmed("auto", "thompson(discount=0.9)", "ucb1")
    recommended = {kind.__name__ for kind in registry.values() if kind.about.suits}
    assert seen[-2:] == ["Thompson", "UCB1"]
    assert set(seen[:-2]) == recommended >= {type(tacit.auto(2)).__name__, "ClickMixture"}
    seen.clear()
    wrong = CliRunner().invoke(cli, ["warmup", "ucb1", "tomson"])
    assert wrong.exit_code == 2
    assert "tomson" in wrong.output
    assert "Thompson" in wrong.output
    assert seen == []


PLACEMENT = """
[placements.default]
arms = 2
policy = "ucb1"

[placements.shop]
arms = 2
policy = "ucb1"
reward = "revenue"
metrics = { revenue = { range = [0, 200] } }
"""
ASKED = """
import json, sys
from http.client import HTTPConnection
from tacit.core.compiled import cache_statistics
from tacit.service.config.file import load_config
from tacit.service.app.server import run_in_thread
overrides = {"server.port": 0, "store.path": sys.argv[2]}
with run_in_thread(load_config(sys.argv[1], overrides=overrides)) as address:
    connection = HTTPConnection(address.removeprefix("http://"))
    def post(path, body):
        head = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/placements/default/" + path, json.dumps(body), head)
        return json.loads(connection.getresponse().read())
    shown = post("decide", {"key": "a"})["decision_id"]
    assert post("feedback", {"decision_id": shown, "reward": 1})["outcome"] == "learned"
print(cache_statistics()[1])
"""


def in_cache(folder, *command):
    env = os.environ | {"TACIT_CACHE_DIR": str(folder), "TACIT_QUIET": "1"}
    command = [sys.executable, *map(str, command)]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran


def test_what_a_configuration_serves_is_compiled_ahead(tmp_path):
    path = tmp_path / "tacit.toml"
    path.write_text(PLACEMENT)
    in_cache(tmp_path / "cache", "-m", "tacit", "warmup", "--config", path)
    assert in_cache(tmp_path / "cache", "-c", ASKED, path, tmp_path / "s.db").stdout.splitlines()[-1] == "0"
