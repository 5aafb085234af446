"""The log as a stream: each row once, from any of them on, while the service runs."""

import json
import signal
from contextlib import closing
from types import SimpleNamespace

import apsw
import pytest
from forked import Forked
from harness import PATIENCE, eventually, recovered, with_home
from stores import store_at

from tacit.client import Client, Feedback, Impression
from tacit.errors import TacitError
from tacit.service.app.server import run_in_thread
from tacit.service.errors import StoreError
from tacit.service.log.sqlite import ReadSqlite
from tacit.service.maintenance import log_export
from tacit.service.maintenance.log_export import follow, iterate_lines
from tests.cli.test_cli import tacit


def some(client, count):
    """Make decisions with feedback."""
    made = client.decide_many("home", [Impression("a key", ["a", "b"]) for _ in range(count)])
    client.feedback_many("home", [Feedback(one.decision_id, 1) for one in made])


def rows_of(came):
    assert came.returncode == 0, came.stderr
    return [json.loads(line) for line in came.stdout.splitlines()]


def test_the_log_of_a_running_service_is_printed_from_any_row_on(tmp_path):
    path = tmp_path / "t.db"
    with run_in_thread(with_home(path, arms=["a", "b"])) as url, Client(url) as client:
        some(client, 5)
        rows = rows_of(tacit("log", "follow", "--once", "--store", path))
        assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
        assert [row["row"] for row in rows][-10:] == ["decision"] * 5 + ["feedback"] * 5
        decision, feedback = rows[-10], rows[-1]
        assert (decision["placement"], decision["key"], decision["offered"]) == ("home", "a key", ["a", "b"])
        assert (feedback["decision"], feedback["reward"]) == (rows[-6]["seq"], 1.0)
        some(client, 1)
        more = rows_of(tacit("log", "follow", "--once", "--store", path, "--after", feedback["seq"]))
        assert [row["seq"] for row in more] == [len(rows) + 1, len(rows) + 2]
    # Nobody serves it any more.
    assert rows_of(tacit("log", "follow", "--once", "--store", path))[: len(rows) + 2] == rows + more
    came = tacit("log", "follow", "--once", "--store", path, "--after", 1000)
    assert (came.returncode, "which ends at" in came.stderr) == (1, True)
    came = tacit("log", "follow", "--store", tmp_path / "none.db")
    assert (came.returncode, "there is no store" in came.stderr) == (1, True)


def test_the_log_is_followed_as_it_grows_and_the_service_goes_on(tmp_path):
    path, out = tmp_path / "t.db", tmp_path / "rows.jsonl"
    config = with_home(path, arms=["a", "b"])
    with (
        run_in_thread(config) as url,
        Client(url) as client,
        out.open("wb") as file,
        Forked(["-m", "tacit", "log", "follow", "--store", path], stdout=file) as process,
    ):
        try:
            for i in range(1, 4):
                some(client, 100)
                eventually(lambda i=i: out.read_bytes().count(b'"row":"feedback"') == 100 * i)
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
    seqs = [json.loads(line)["seq"] for line in out.read_text().splitlines()]
    assert seqs == list(range(1, len(seqs) + 1))
    with recovered(path, config):
        pass


def test_a_store_that_is_only_read_is_of_one_moment_and_is_never_written(tmp_path):
    path = tmp_path / "t.db"
    with run_in_thread(with_home(path, arms=["a", "b"])) as url, Client(url) as client:
        some(client, 2)
        with closing(ReadSqlite(path)) as store:
            end = store.end().seq
            some(client, 2)
            assert store.end().seq == end
            store.renew()
            assert store.end().seq == end + 4
            with pytest.raises(TacitError, match="after: 99 is not in the log"):
                list(iterate_lines(store, 99))
            for do in (lambda: store.add_policy("{}"), store.commit, lambda: store.placement("x", "{}", 1)):
                with pytest.raises(StoreError, match="reading"):
                    do()
    with closing(store_at(path)) as store:
        assert store.end().seq == end + 4


def test_who_waits_for_rows_keeps_nobody_from_shortening_the_log(tmp_path, monkeypatch):
    """SQLite tries anew at each commit for as long as a reader holds a moment, which decisions wait for."""
    path, held = tmp_path / "t.db", []
    with run_in_thread(with_home(path, arms=["a", "b"])) as url, Client(url) as client:
        some(client, 5)

        def look(_=None):
            with closing(apsw.Connection(str(path))) as writer:
                some(client, 1)
                held.append(writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0])

        monkeypatch.setattr(log_export, "time", SimpleNamespace(sleep=look))
        with closing(ReadSqlite(path)) as store:
            follow(store, look, 0, lambda: len(held) > 3)
    assert held == [0] * len(held)
