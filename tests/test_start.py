"""What a start brings along: nobody waits for packages that are not for them."""

from __future__ import annotations

import subprocess
import sys

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


def test_the_import_brings_no_package_for_logs_plots_or_the_compiler():
    assert brought("import tacit; import sys; assert 'numba' not in sys.modules") == []


def test_a_learner_that_is_compiled_brings_no_more(tmp_path):
    """Nor what a compilation needs: the first run compiles, the second one finds it."""
    brought(LEARNER)
    assert brought(LEARNER) == []


def test_the_command_line_explains_itself_without_a_compiler():
    script = "import sys; import tacit.cli; assert 'numba' not in sys.modules"
    assert brought(script) == []


SERVICE = """
import os, signal, sys
from tacit.service.config.file import load_config
from tacit.service.running.server import serve
config = load_config(overrides={
    "store.path": sys.argv[1], "server.port": 0,
    "placements.default.policy": "ucb1", "placements.default.arms": 3,
})
serve(config, ready=lambda address: os.kill(os.getpid(), signal.SIGTERM))
"""


def test_a_service_brings_nothing_for_logs(tmp_path):
    """Who reads or writes Arrow pays for it, and not whoever waits for a start."""
    packages = brought(SERVICE, str(tmp_path / "tacit.db"))
    assert packages == ["asyncio"]
