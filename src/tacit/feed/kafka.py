"""Read events from a Kafka topic; offsets are committed once the service has the events before them.

Reading resumes at the offsets in the service's log; for partitions without any, at the group's offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from tacit.errors import LogError, require_extra, undo_on_error
from tacit.feed.kafka_topics import PATIENCE, Address, KafkaAccess
from tacit.feed.sources import (
    POLL_SECONDS,
    EventSource,
    OffsetReader,
    SourceEvent,
    make_event_id,
    parse_event,
)

with require_extra("kafka"):
    import confluent_kafka as kafka

MAX_FETCHED = 1000
"""Most messages fetched at once."""
MAX_NAME_LENGTH = 256

PERMANENT_ERRORS = (
    kafka.KafkaError._AUTHENTICATION,
    kafka.KafkaError._SSL,
    kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
    kafka.KafkaError.GROUP_AUTHORIZATION_FAILED,
)
"""Errors that do not resolve by themselves."""

Offsets = dict[str, int]
"""Per partition, the offset after the last event read."""


class Topic(EventSource):
    """Events of a topic; an event's id is a hash of topic, partition and content, with the offset.

    Parameters
    ----------
    address : Address
    properties : mapping from str to str
        Properties of librdkafka, such as ``security.protocol``.
    until_end : bool
        Whether to stop at the current ends of the partitions instead of following the topic.
    read_offsets : function
        Returns the saved offset of each partition, by its number, for the name of a feed.

    Raises
    ------
    LogError
        If no broker answers, or the topic does not exist.
    ConfigError
        If a property is invalid.
    """

    def __init__(
        self,
        address: Address,
        properties: Mapping[str, str],
        *,
        until_end: bool = False,
        read_offsets: OffsetReader = lambda name: {},
    ) -> None:
        self._access, self._address = KafkaAccess(address, properties), address
        self._offsets: Offsets = {}
        self._ends: Offsets = {}
        self._fatal: Any = None
        self._read_offsets = read_offsets
        self._is_cooperative = properties.get("partition.assignment.strategy", "").startswith("cooperative")
        tacit_properties = {
            "group.id": address.group,
            "auto.offset.reset": "earliest",
            # Offsets are stored explicitly once the service has the events, and committed soon after.
            "enable.auto.offset.store": False,
            "enable.auto.commit": True,
            "enable.partition.eof": until_end,
        }
        self._consumer = self._access.create_client(kafka.Consumer, tacit_properties, error_cb=self._on_error)
        with undo_on_error(self.close):
            try:
                partitions = self._read_partitions()
                if until_end:
                    self._assign(partitions)
                else:
                    handlers = {"on_assign": self._on_assign, "on_revoke": self._on_revoke}
                    self._consumer.subscribe([address.topic], **handlers)
            except kafka.KafkaException as error:
                raise self._make_error(error) from None

    def __iter__(self) -> Iterator[SourceEvent | None]:
        """Fetch messages and yield their events; None whenever there are no more for now.

        The offset after each event is recorded. With ``until_end`` it ends at the partitions' ends. Raises
        LogError for an error that does not resolve by itself.
        """
        until_end = bool(self._ends)
        while not until_end or self._ends:
            messages = self._consumer.consume(MAX_FETCHED, POLL_SECONDS)
            if self._fatal is not None:
                raise self._make_error(self._fatal)
            for message in messages:
                if (source_event := self._read_message(message, until_end)) is not None:
                    yield source_event
            if not messages:
                yield None

    def position(self) -> Offsets:
        """Return a copy of the offsets after the last event read, by partition."""
        return dict(self._offsets)

    def commit(self, position: Offsets) -> None:
        """Store the offsets of a position for the group's next commit; ignore partitions that were lost."""
        for partition, offset in position.items():
            # If another feeder has the partition by now, it reads these events again, without effect.
            with suppress(kafka.KafkaException):
                self._consumer.store_offsets(offsets=[self._make_partition(int(partition), offset)])

    def close(self) -> None:
        """Commit stored offsets, leave the group, and close the consumer."""
        self._consumer.close()

    def _make_partition(self, partition: int, offset: int) -> Any:
        """Return librdkafka's object for an offset of a partition of this topic."""
        return kafka.TopicPartition(self._address.topic, partition, offset)

    def _read_partitions(self) -> list[int]:
        """Return the topic's partition numbers, sorted; set the feed's name from cluster, topic and group.

        Raises LogError if there is no such topic.
        """
        metadata = self._consumer.list_topics(self._address.topic, PATIENCE)
        topic = metadata.topics[self._address.topic]
        if topic.error is not None or not topic.partitions:
            raise LogError(f"{self._address.topic}: there is no such topic; make it before it is read")
        # Includes the cluster: a topic of the same name in another cluster has other offsets.
        name_parts = "kafka", str(metadata.cluster_id), self._address.topic, self._address.group
        self.name = ":".join(name_parts).replace("/", ":")[:MAX_NAME_LENGTH]
        return sorted(topic.partitions)

    def _assign(self, partitions: list[int]) -> None:
        """Assign the partitions to the consumer, from their saved offsets; record their current ends.

        Empty partitions are left out.
        """
        parts = []
        parts_to_read = [self._make_partition(number, kafka.OFFSET_STORED) for number in partitions]
        for part in self._apply_saved_offsets(parts_to_read):
            low, high = self._consumer.get_watermark_offsets(part, PATIENCE)
            if high > low:
                self._ends[str(part.partition)] = high
                parts.append(part)
        self._consumer.assign(parts)

    def _apply_saved_offsets(self, parts: list[Any]) -> list[Any]:
        """Return copies of topic partitions that start at the offsets in the service's log, if it has any.

        Other partitions keep the start that they have.
        """
        offsets = self._read_offsets(self.name)
        starts = ((part.partition, offsets.get(str(part.partition), part.offset)) for part in parts)
        return [self._make_partition(partition, offset) for partition, offset in starts]

    def _on_assign(self, consumer: Any, parts: list[Any]) -> None:
        """Begin to read the partitions that the group gives to this consumer, at their saved offsets."""
        assign = consumer.incremental_assign if self._is_cooperative else consumer.assign
        assign(self._apply_saved_offsets(parts))

    def _on_revoke(self, consumer: Any, parts: list[Any]) -> None:
        """Forget the offsets of the partitions ``parts``, which the group takes from this consumer.

        So they are not committed for another consumer's partitions.
        """
        for part in parts:
            self._offsets.pop(str(part.partition), None)

    def _read_message(self, message: Any, until_end: bool) -> SourceEvent | None:
        """Return a message's event, or None, and record the offset after it.

        None for an error that may pass, and with ``until_end`` for a message beyond the partition's end; a
        partition that is read to its end is then removed from ``_ends``. Raises LogError for other errors.
        """
        partition = str(message.partition())
        error, offset = message.error(), message.offset()
        if until_end and partition in self._ends and partition not in self._offsets:
            # The end read at the start may be too low with some brokers.
            part = self._make_partition(message.partition(), 0)
            _, end = self._consumer.get_watermark_offsets(part, cached=True)
            self._ends[partition] = max(self._ends[partition], end)
        if until_end and (partition not in self._ends or (error is None and offset >= self._ends[partition])):
            self._ends.pop(partition, None)
            return None
        if error is not None:
            if error.code() == kafka.KafkaError._PARTITION_EOF:
                self._ends.pop(partition, None)
            elif error.fatal() or not error.retriable():
                raise self._make_error(error)
            return None
        self._offsets[partition] = offset + 1
        if until_end and offset + 1 >= self._ends[partition]:
            del self._ends[partition]
        name = f"{message.topic()}[{partition}]"
        content = message.value() or b""
        source_event = parse_event(content, name, offset, make_event_id(name.encode() + content, offset))
        return source_event._replace(unit="offset")

    def _on_error(self, error: Any) -> None:
        """Record an error that does not resolve by itself, which the next read raises; ignore any other."""
        if error.fatal() or error.code() in PERMANENT_ERRORS:
            self._fatal = error

    def _make_error(self, error: Any) -> LogError:
        """Return (not raise) a LogError for the recorded permanent error, else for ``error``; no secrets."""
        return LogError(f"{self._address.topic}: cannot be read: {self._access.redact(self._fatal or error)}")
