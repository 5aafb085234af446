"""Read events from a Kafka topic; offsets are committed once the service has the events before them.

Reading resumes at the offsets in the service's log; for partitions without any, at the group's offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from tacit.errors import LogError, needing
from tacit.feed.kafka_topics import PATIENCE, Access, Address
from tacit.feed.sources import POLL_SECONDS, EventSource, Found, Kept, found_in, named

with needing("kafka"):
    import confluent_kafka as kafka

MOST = 1000
"""Most messages fetched at once."""
LONGEST_NAME = 256

FINAL = (
    kafka.KafkaError._AUTHENTICATION,
    kafka.KafkaError._SSL,
    kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
    kafka.KafkaError.GROUP_AUTHORIZATION_FAILED,
)
"""Errors that do not resolve by themselves."""

Read = dict[str, int]
"""Per partition, the offset after the last event read."""


class Topic(EventSource):
    """Events of a topic; an event's id is a hash of topic, partition and content, with the offset.

    Parameters
    ----------
    address : Address
    properties : mapping from str to str
        Properties of librdkafka, such as ``security.protocol``.
    once : bool
        Whether to stop at the current ends of the partitions instead of following the topic.
    kept : function
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
        once: bool = False,
        kept: Kept = lambda name: {},
    ) -> None:
        self._access, self._address = Access(address, properties), address
        self._read: Read = {}
        self._ends: Read = {}
        self._fatal: Any = None
        self._kept = kept
        self._gives_by_and_by = properties.get("partition.assignment.strategy", "").startswith("cooperative")
        ours = {
            "group.id": address.group,
            "auto.offset.reset": "earliest",
            # Offsets are stored explicitly once the service has the events, and committed soon after.
            "enable.auto.offset.store": False,
            "enable.auto.commit": True,
            "enable.partition.eof": once,
        }
        self._consumer = self._access.opened(kafka.Consumer, ours, error_cb=self._on_error)
        try:
            partitions = self._partitions()
            if once:
                self._assign(partitions)
            else:
                self._consumer.subscribe(
                    [address.topic], on_assign=self._on_assign, on_revoke=self._on_revoke
                )
        except kafka.KafkaException as error:
            self.close()
            raise self._lost(error) from None
        except LogError:
            self.close()
            raise

    def __iter__(self) -> Iterator[Found | None]:
        """Yield events; None whenever there are no more for now."""
        once = bool(self._ends)
        while not once or self._ends:
            messages = self._consumer.consume(MOST, POLL_SECONDS)
            if self._fatal is not None:
                raise self._lost(self._fatal)
            for message in messages:
                if (found := self._found(message, once)) is not None:
                    yield found
            if not messages:
                yield None

    def position(self) -> Read:
        """Return the offset after the last event read, per partition."""
        return dict(self._read)

    def sent(self, position: Read) -> None:
        """Store the offsets of a position, before which the service has all events."""
        for partition, offset in position.items():
            # If another feeder has the partition by now, it reads these events again, without effect.
            with suppress(kafka.KafkaException):
                self._consumer.store_offsets(offsets=[self._part(int(partition), offset)])

    def close(self) -> None:
        """Commit stored offsets, and leave the group."""
        self._consumer.close()

    def _part(self, partition: int, offset: int) -> Any:
        return kafka.TopicPartition(self._address.topic, partition, offset)

    def _partitions(self) -> list[int]:
        known = self._consumer.list_topics(self._address.topic, PATIENCE)
        topic = known.topics[self._address.topic]
        if topic.error is not None or not topic.partitions:
            raise LogError(f"{self._address.topic}: there is no such topic; make it before it is read")
        # Includes the cluster: a topic of the same name in another cluster has other offsets.
        place = "kafka", str(known.cluster_id), self._address.topic, self._address.group
        self.name = ":".join(place).replace("/", ":")[:LONGEST_NAME]
        return sorted(topic.partitions)

    def _assign(self, partitions: list[int]) -> None:
        """Assign all partitions, from their saved offsets to their current ends."""
        parts = []
        for part in self._going_on([self._part(partition, kafka.OFFSET_STORED) for partition in partitions]):
            low, high = self._consumer.get_watermark_offsets(part, PATIENCE)
            if high > low:
                self._ends[str(part.partition)] = high
                parts.append(part)
        self._consumer.assign(parts)

    def _going_on(self, parts: list[Any]) -> list[Any]:
        """Return the partitions with their saved offsets, or unchanged without any."""
        kept = self._kept(self.name)
        return [self._part(part.partition, kept.get(str(part.partition), part.offset)) for part in parts]

    def _on_assign(self, consumer: Any, parts: list[Any]) -> None:
        take = consumer.incremental_assign if self._gives_by_and_by else consumer.assign
        take(self._going_on(parts))

    def _on_revoke(self, consumer: Any, parts: list[Any]) -> None:
        for part in parts:
            self._read.pop(str(part.partition), None)

    def _found(self, message: Any, once: bool) -> Found | None:
        """Return a message's event; None for an error that may pass, or a message beyond the end."""
        place = str(message.partition())
        error, offset = message.error(), message.offset()
        if once and place in self._ends and place not in self._read:
            # The end read at the start may be too low with some brokers.
            _, end = self._consumer.get_watermark_offsets(self._part(message.partition(), 0), cached=True)
            self._ends[place] = max(self._ends[place], end)
        if once and (place not in self._ends or (error is None and offset >= self._ends[place])):
            self._ends.pop(place, None)
            return None
        if error is not None:
            if error.code() == kafka.KafkaError._PARTITION_EOF:
                self._ends.pop(place, None)
            elif error.fatal() or not error.retriable():
                raise self._lost(error)
            return None
        self._read[place] = offset + 1
        if once and offset + 1 >= self._ends[place]:
            del self._ends[place]
        name = f"{message.topic()}[{place}]"
        content = message.value() or b""
        found = found_in(content, name, offset, named(name.encode() + content, offset))
        return found._replace(unit="offset")

    def _on_error(self, error: Any) -> None:
        """Record errors that do not resolve by themselves; an unreachable broker may come back."""
        if error.fatal() or error.code() in FINAL:
            self._fatal = error

    def _lost(self, error: Any) -> LogError:
        return LogError(f"{self._address.topic}: cannot be read: {self._access.shown(self._fatal or error)}")
