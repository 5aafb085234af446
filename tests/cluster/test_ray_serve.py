"""The service in shards on Ray: one is killed and comes back; its log is dealt out to more of them."""

import os
import signal
import time
from pathlib import Path

import pytest
import sharded  # fmt: skip
from harness import eventually

pytest.importorskip("ray", reason="the extra 'ray' is not installed")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with sharded.served(sharded.OnRay, sharded.configured(tmp_path_factory.mktemp("ray"))) as made:
        made.said = []
        yield made
    if made.said:
        assert min(sharded.check_said(made.config, made.said)) > 0


def seconds_used(pid):
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_without_requests_hardly_anything_is_computed(service):
    pids = [service.processes[0].pid, *(shard["pid"] for shard in eventually(service.read_shards_up))]
    began, used = time.monotonic(), [seconds_used(pid) for pid in pids]
    eventually(lambda: time.monotonic() > began + 3.0)
    more = max(seconds_used(pid) - before for pid, before in zip(pids, used, strict=True))
    assert more < 0.15 * (time.monotonic() - began)


def test_arms_change_in_all_shards(service):
    sharded.check_changes_of_arms(service)


def test_a_killed_shard_comes_back_with_all_it_has_acknowledged(service):
    before = service.done("home", "decide", {"key": sharded.key_in("home", 1)})
    pid = eventually(service.read_shards_up)[1]["pid"]
    # It need not yield to whatever else runs on the machine.
    assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, os.getpid())
    with sharded.calling(sharded.Caller(service.urls[0])) as (caller,):
        caller.says_more(40)
        os.kill(pid, signal.SIGKILL)
        # Keys of the other shard go on; arms that change while a shard is gone have changed when it is back.
        assert service.done("home", "arms", {"add": ["late"], "retire": ["a"]})["retired"] == ["a"]
        assert service.done("home", "decide", {"key": sharded.key_in("home", 0)})["arm"] != "a"
        eventually(lambda: service.post("home", "decide", {"key": sharded.key_in("home", 1)})[0] == 200)
        assert sharded.shown(service, "home", shard=1) <= {"b", "c", "late"}
        caller.says_more(40)
    # What was decided before takes its feedback now.
    told = {"decision_id": before["decision_id"], "reward": 1.0}
    assert service.done("home", "feedback", told)["outcome"] in ("learned", "pending")
    shards = eventually(service.read_shards_up)
    assert [shard["losses"] for shard in shards] == [0, 1]
    assert shards[1]["pid"] != pid
    page = service.read("/")
    assert "all 2 answer" in page
    assert page.count("data-shard=") == sharded.SHARDS
    metrics = service.read("/metrics")
    assert 'tacit_shard_losses_total{shard="1"} 1.0' in metrics
    assert 'tacit_shard_up{shard="1"} 1.0' in metrics
    assert "tacit_shared_seconds{" in metrics
    service.said += caller.said
