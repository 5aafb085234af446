"""The same work on Ray: the same results, also when workers die."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

import tacit
from tacit.cluster import on_ray
from tacit.core.parallel import run_tasks
from tacit.errors import InvalidValue, MissingExtra, TacitError

ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")

POLICIES = [tacit.UCB1(arms=3), tacit.policies.EXP3(arms=3)]
WORLD = tacit.BernoulliArms([0.1, 0.2, 0.3])


@pytest.fixture(scope="module")
def cluster():
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


def square(number, report):
    report(1)
    if number < 0:
        raise InvalidValue("number", number, "give one of at least 0")
    return number**2


def test_a_simulation_is_the_local_one_bit_for_bit(cluster):
    local = tacit.simulate(POLICIES, WORLD, 400_000, runs=5, seed=3, workers=1)
    with on_ray():
        spread_out = tacit.simulate(POLICIES, WORLD, 400_000, runs=5, seed=3)
    assert local.regret.tobytes() == spread_out.regret.tobytes()
    assert local.reward.tobytes() == spread_out.reward.tobytes()
    assert local.table.equals(spread_out.table)


def kill_one(done, killed):
    """Kill the first worker that is at work."""
    while not done.is_set() and not killed:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if (folder / "cmdline").read_bytes().startswith(b"ray::_run_task"):
                    os.kill(int(folder.name), signal.SIGKILL)
                    killed.append(folder.name)
                    return
            except OSError:
                continue
        time.sleep(0.01)


def test_a_worker_killed_in_the_middle_changes_nothing(cluster):
    local = tacit.simulate(POLICIES[:1], WORLD, 20_000_000, runs=2, seed=4)
    done, killed = threading.Event(), []
    killer = threading.Thread(target=kill_one, args=(done, killed))
    with on_ray():
        killer.start()
        try:
            spread_out = tacit.simulate(POLICIES[:1], WORLD, 20_000_000, runs=2, seed=4)
        finally:
            done.set()
            killer.join()
    assert len(killed) == 1
    assert local.regret.tobytes() == spread_out.regret.tobytes()


def test_results_come_in_the_order_of_the_units(cluster):
    with on_ray():
        assert run_tasks(square, [(i,) for i in range(9)], [1] * 9, label="") == [i**2 for i in range(9)]


@pytest.mark.parametrize("where", [nullcontext, on_ray])
def test_an_error_in_a_unit_is_raised_as_it_is(cluster, where):
    with where(), pytest.raises(InvalidValue, match="number: -1"):
        run_tasks(square, [(1,), (-1,), (2,)], [1, 1, 1], label="")


def test_after_the_block_work_is_local_again(cluster):
    with pytest.raises(ZeroDivisionError), on_ray():
        raise ZeroDivisionError
    seen = []
    run_tasks(lambda report: seen.append(1), [()], [1], label="")
    assert seen == [1]


def test_a_cluster_that_is_not_there_is_said_to_be_missing():
    code = "from tacit.cluster import on_ray\nwith on_ray('127.0.0.1:1'): pass"
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert "no cluster answers at '127.0.0.1:1'" in finished.stderr


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"tacit-learn\[ray\]"), on_ray():
        raise AssertionError
    assert issubclass(MissingExtra, TacitError)


def test_the_command_line_gives_the_same_table(cluster, tmp_path):
    from forked import ran  # workers read this file and do not find that one

    tables = []
    for where in ([], ["--ray", cluster]):
        path = tmp_path / f"table{len(where)}.csv"
        command = "-m", "tacit", "simulate", "--horizon", "2000", "--runs", "3"
        finished = ran([*command, "--policy", "ucb1", "--table", path, "--json", *where])
        assert finished.returncode == 0, finished.stderr
        tables.append((path.read_bytes(), json.loads(finished.stdout)))
    assert tables[0] == tables[1]


def test_nothing_else_imports_ray():
    package = Path(tacit.__file__).parent
    own = package / "cluster"
    assert [
        path for path in package.rglob("*.py") if own not in path.parents and "import ray" in path.read_text()
    ] == []
