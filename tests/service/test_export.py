"""The log as a topic: each row at least once and known by its number, beside a service that does not wait."""

import contextlib
import json
import signal
import subprocess
import sys

import msgspec
import pytest
from harness import PATIENCE, eventually, started, stopped
from stores import store_at

from tacit.client import Client
from tacit.errors import ConfigError, LogError
from tacit.feed.kafka_topics import parse_address
from tacit.service.app.server import check_export, run_in_thread
from tacit.service.config.file import load_config
from tacit.service.config.schema import ExportConfig
from tacit.service.maintenance.kafka_export import TopicWriter
from tacit.service.maintenance.log_export import LogLine
from tests.feed.test_feed_kafka import cluster, kafka, tansu  # noqa: F401
from tests.service.test_stream import some

AdminClient = pytest.importorskip("confluent_kafka.admin").AdminClient


@contextlib.contextmanager
def read(brokers, topic):
    """Yield what reads the rows of a topic until there is one of a number; it returns all by then."""
    consumer = kafka.Consumer(
        {"bootstrap.servers": brokers, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    parts = consumer.list_topics(topic, PATIENCE).topics[topic].partitions
    consumer.assign([kafka.TopicPartition(topic, part, kafka.OFFSET_BEGINNING) for part in parts])
    found = []

    def until(last):
        def there():
            for message in consumer.consume(1000, 0.1):
                assert message.error() is None
                found.append((message.partition(), message.key(), json.loads(message.value())))
            return {*range(1, last + 1)} <= {row["seq"] for *_, row in found}

        eventually(there)
        return found

    yield until
    consumer.close()


def configured(folder, brokers, topic, port=0):
    path = folder / "tacit.toml"
    path.write_text(
        f'[server]\nport = {port}\n[store]\npath = "t.db"\n[export]\nkafka = "kafka://{brokers}/{topic}"\n'
        'properties = "client.properties"\n[placements.home]\narms = ["a", "b"]\nattribution_window = 36000\n'
    )
    (folder / "client.properties").write_text("# none\n")
    return path


def made(brokers, topic, partitions=3):
    admin = AdminClient({"bootstrap.servers": brokers})
    if admin.list_topics(timeout=PATIENCE).cluster_id.startswith("mock"):
        # It makes what it is asked for.
        eventually(lambda: admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions)
    else:
        admin.create_topics([kafka.admin.NewTopic(topic, partitions, 1)])[topic].result(PATIENCE)


def end_of(folder):
    with contextlib.closing(store_at(folder / "t.db")) as store:
        return store.end().seq


def in_order(found):
    """Check that rows about a decision are in one partition, feedback behind its decision."""
    parts, seen = {}, set()
    for part, key, row in found:
        if row["row"] == "mark":
            continue
        decision = row.get("decision", row["seq"])
        assert key == str(decision).encode()
        assert parts.setdefault(decision, part) == part
        assert row["row"] == "decision" or decision in seen
        seen.add(decision)


@pytest.mark.parametrize("broker", ["cluster", "tansu"])
def test_the_log_goes_to_a_topic_and_on_from_there(broker, request, tmp_path):
    brokers, topic = request.getfixturevalue(broker), f"rows-{broker}"
    made(brokers, topic)
    config = load_config(configured(tmp_path, brokers, topic))
    with read(brokers, topic) as until:
        for run in (1, 2):
            with run_in_thread(config) as url, Client(url) as client:
                some(client, 300)
                until(600 * run)
        found = until(end_of(tmp_path))
    in_order(found)
    # The second run has sent nothing again but what the first was just sending.
    assert len(found) <= end_of(tmp_path) + 600


def test_every_row_comes_whoever_is_killed(cluster, tmp_path):  # noqa: F811
    made(cluster, "killed")
    path = configured(tmp_path, cluster, "killed")
    for _ in range(3):
        process, port = started(path)
        with Client(f"http://127.0.0.1:{port}") as client:
            some(client, 200)
        stopped(process, signal.SIGKILL)
    process, _ = started(path)
    with read(cluster, "killed") as until:
        in_order(until(1200))
    stopped(process, signal.SIGTERM)


def test_the_topic_knows_which_row_was_sent_last(cluster, tmp_path):  # noqa: F811
    made(cluster, "by-hand")
    lines = [LogLine(seq, seq if seq % 2 else seq - 1, json.dumps({"seq": seq})) for seq in range(1, 41)]
    with contextlib.closing(TopicWriter(parse_address(f"kafka://{cluster}/by-hand?group=g"), {})) as outgoing:
        assert outgoing.find_last_sent() == 0
        outgoing.send(lines)
        assert outgoing.find_last_sent() == 40
    for url, sent_before in ((f"kafka://{cluster}/by-hand?group=g", 40), (f"kafka://{cluster}/by-hand", 0)):
        with contextlib.closing(TopicWriter(parse_address(url), {})) as outgoing:
            assert outgoing.find_last_sent() == sent_before


HANGING = """
import sys, threading
from tacit.service.maintenance import kafka_export
kafka_export.LEAVING_SECONDS = 0.1
kafka_export.send_log = lambda *_: threading.Event().wait()
sys.exit(kafka_export.main())
"""


def test_it_ends_with_its_service_whatever_it_waits_for(tmp_path):
    config = load_config(configured(tmp_path, "127.0.0.1:1", "rows"))
    with subprocess.Popen([sys.executable, "-c", HANGING], stdin=subprocess.PIPE) as sending:
        sending.communicate(
            msgspec.json.encode({"store": config.store, "export": config.export}) + b"\n", PATIENCE
        )
    assert sending.returncode == 1


def test_what_cannot_be_exported_is_said(cluster, tmp_path, monkeypatch, caplog):  # noqa: F811
    for wrong in ("kafka:///t", "kafka://me:hidden@a/t"):
        with pytest.raises(ConfigError, match=r"export\.kafka") as raised:
            check_export(ExportConfig(wrong), shards=False)
        assert "hidden" not in str(raised.value)
    with pytest.raises(ConfigError, match="dealt out to shards"):
        check_export(ExportConfig(f"kafka://{cluster}/t"), shards=True)
    monkeypatch.setattr("tacit.service.maintenance.kafka_export.PATIENCE", 0.5)
    with (
        contextlib.closing(TopicWriter(parse_address("kafka://127.0.0.1:1/t"), {})) as outgoing,
        pytest.raises(LogError, match="cannot be written to"),
    ):
        outgoing.find_last_sent()
    # The service goes on, and says why nothing is sent.
    config = load_config(configured(tmp_path, cluster, "t"))
    (tmp_path / "client.properties").write_text("wrong.property=1\n")
    with run_in_thread(config) as url, Client(url) as client:
        some(client, 1)
        eventually(lambda: 'No such configuration property: "wrong.property"' in caplog.text)
        assert "Fatal" not in caplog.text
