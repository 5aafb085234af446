"""Kafka export: send each row of the log as a message, at least once, with its number.

``[export]`` of a configuration lets the service start this program as a separate process, which only reads
the store, so that decisions do not wait for it. It ends with its input, and so with the process that started
it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tacit.errors import LogError, MissingExtra, TacitError
from tacit.feed.kafka_topics import PATIENCE, Address, KafkaAccess, parse_address, read_properties
from tacit.service.config.schema import ExportConfig, StoreConfig
from tacit.service.engine.stores import open_to_read
from tacit.service.maintenance.log_export import LogLine, follow

try:
    import confluent_kafka as kafka
except ImportError as error:
    raise MissingExtra(error.name or "confluent_kafka", "kafka") from error

POLL_SECONDS = 0.5
NICENESS = 10
LEAVING_SECONDS = 10.0
"""Time for brokers to answer after a stop: unconfirmed rows are sent again at the next start."""


class TopicWriter:
    """Sends rows of the log to a topic, and stores the number of the last one as a consumer group's offset.

    Rows about one decision are in one partition, in their order. The group's offset for the first partition
    is the number of the last row that all brokers have.

    Parameters
    ----------
    address : Address
    properties : mapping from str to str
        Properties of librdkafka.
    stopping : function
        Returns whether to stop waiting.

    Raises
    ------
    ConfigError
        If a property is wrong.
    """

    def __init__(
        self, address: Address, properties: dict[str, str], stopping: Callable[[], bool] = lambda: False
    ) -> None:
        self._access, self._topic, self._stopping = KafkaAccess(address, properties), address.topic, stopping
        self._failed: LogError | None = None
        # No timeout: waits for brokers that are away.
        ours = {"enable.idempotence": True, "message.timeout.ms": 0, "linger.ms": 20}
        self._producer = self._access.create_client(kafka.Producer, ours)
        group = {"group.id": f"{address.group}-export", "enable.auto.commit": False}
        self._group = self._access.create_client(kafka.Consumer, group)

    def find_last_sent(self) -> int:
        """Return the number of the last row that was sent, from the consumer group's offset.

        0 if there is none.

        Raises
        ------
        LogError
            If no broker answers, or the topic does not exist.
        """
        try:
            topic = self._group.list_topics(self._topic, PATIENCE).topics[self._topic]
            if topic.error is not None or not topic.partitions:
                raise LogError(f"{self._topic}: there is no such topic; make it before it is written to")
            (offset,) = self._group.committed([kafka.TopicPartition(self._topic, 0)], PATIENCE)
        except kafka.KafkaException as error:
            raise self._make_error(error) from None
        # Without an offset, Kafka gives a negative number.
        return max(0, int(offset.offset))

    def send(self, lines: Sequence[LogLine]) -> None:
        """Send rows, wait until all brokers have them, and store the number of the last one as the offset.

        If ``stopping`` returns True meanwhile, it returns early without storing the number, and the rows are
        sent again at the next start.

        Raises
        ------
        LogError
            If they cannot be sent.
        """
        for line in lines:
            key = None if line.decision is None else str(line.decision)
            # While the local queue is full (BufferError), wait for the brokers.
            while True:
                try:
                    self._producer.produce(self._topic, line.text, key, on_delivery=self._note_failure)
                    break
                except BufferError:
                    self._producer.poll(POLL_SECONDS)
        while self._producer.flush(POLL_SECONDS) and not self._stopping():
            pass
        if self._failed is not None:
            raise self._failed
        # After a stop before all have arrived, the rows are sent again.
        while lines and not self._stopping():
            offset = kafka.TopicPartition(self._topic, 0, lines[-1].seq)
            try:
                self._group.commit(offsets=[offset], asynchronous=False)
                return
            except kafka.KafkaException as error:
                if not error.args[0].retriable():
                    raise self._make_error(error) from None
                self._producer.poll(POLL_SECONDS)

    def close(self) -> None:
        """Leave the consumer group, and close the connection."""
        self._group.close()

    def _note_failure(self, error: kafka.KafkaError | None, message: kafka.Message) -> None:
        """Note the first error of a sent message, for :meth:`send` to raise."""
        if error is not None and self._failed is None:
            self._failed = self._make_error(error)

    def _make_error(self, error: object) -> LogError:
        """Return the error that the topic cannot be written, with secrets removed from Kafka's message."""
        return LogError(f"{self._topic}: cannot be written to: {self._access.redact(error)}")


class ExportTask(msgspec.Struct):
    """The store to read and the topic to write."""

    store: StoreConfig
    export: ExportConfig


def send_log(task: ExportTask, stopping: Callable[[], bool]) -> None:
    """Send the rows of a store's log to a topic, after the last row sent, until ``stopping`` returns True.

    At the end of the log it waits for new rows.

    Raises
    ------
    TacitError
        If the store cannot be read, or the topic not be written to.
    """
    path = None if task.export.properties is None else Path(task.export.properties)
    outgoing = TopicWriter(parse_address(task.export.kafka), read_properties(path, os.environ), stopping)
    with contextlib.closing(outgoing), contextlib.closing(open_to_read(task.store)) as store:
        follow(store, outgoing.send, outgoing.find_last_sent(), stopping)


def main() -> int:
    """Run the export task that the first line of standard input describes; return the exit code.

    It ends when the input ends. The code is 1 after an error, which is printed to standard error. The process
    runs at low priority.
    """
    os.nice(NICENESS)
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=ExportTask)
    ended = threading.Event()

    def wait() -> None:
        """Wait until the input ends, then set ``ended``; 10 seconds later, end the process with code 1."""
        # A blocked read of sys.stdin.buffer would keep the interpreter from ending.
        while os.read(sys.stdin.fileno(), 1024):
            pass
        ended.set()
        # Otherwise the process would wait for absent brokers forever, with no parent to end it.
        time.sleep(LEAVING_SECONDS)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    try:
        send_log(task, ended.is_set)
    except TacitError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
