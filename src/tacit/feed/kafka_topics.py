"""Connect to Kafka topics: parse addresses, read properties, and keep secrets out of messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tacit.errors import ConfigError, InvalidValue, require_extra

with require_extra("kafka"):
    import confluent_kafka as kafka

SCHEME = "kafka://"
ENVIRONMENT_PREFIX = "TACIT_KAFKA_"
"""Prefix of environment variables with properties: ``TACIT_KAFKA_SASL_PASSWORD`` is ``sasl.password``."""
PATIENCE = 30.0
"""Timeout of a broker's first answer, in seconds."""
SECRET_NAMES = "password", "secret", "key.pem", "jaas", "oauthbearer.config"


class Address(NamedTuple):
    """Address of a topic: ``kafka://HOST:PORT/TOPIC?group=…``.

    Attributes
    ----------
    brokers, topic, group : str
    """

    brokers: str
    topic: str
    group: str = "tacit"


def parse_address(url: str) -> Address:
    """Parse the URL of a topic into brokers, topic and group, which is ``tacit`` by default.

    Raises
    ------
    InvalidValue
        If it has no broker or topic, unknown options, or a user or password, which the message does not show.

    Examples
    --------
    >>> parse_address("kafka://a:9092,b:9092/clicks?group=shop")
    Address(brokers='a:9092,b:9092', topic='clicks', group='shop')
    """
    place, _, query = url.removeprefix(SCHEME).partition("?")
    brokers, _, topic = place.partition("/")
    options = dict(part.partition("=")[::2] for part in query.split("&") if part)
    hidden_url = "kafka://…@…"
    if "@" in brokers:
        remedy = "give users and passwords as properties, not in the address"
        raise InvalidValue("source", hidden_url, remedy)
    if not (brokers and topic) or "/" in topic or not options.keys() <= {"group"} or "" in options.values():
        remedy = "give kafka://HOST:PORT/TOPIC, with ?group=NAME or without"
        raise InvalidValue("source", hidden_url if "@" in query else url, remedy)
    return Address(brokers, topic, **options)


def read_properties(path: Path | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return properties of librdkafka from a file of lines ``name=value``; the environment overrides them.

    Empty lines and comments with # are ignored. Variables of the environment begin with ``TACIT_KAFKA_``.

    Raises
    ------
    ConfigError
        If the file cannot be read; the message never shows a value.
    """
    properties: dict[str, str] = {}
    try:
        lines = [] if path is None else path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"properties: {path} cannot be read: {error}") from error
    for number, line in enumerate(map(str.strip, lines), 1):
        name, equals, value = line.partition("=")
        if line and not line.startswith("#"):
            if not equals:
                raise ConfigError(f"properties: {path}, line {number} is not of the form name=value")
            properties[name.strip()] = value.strip()
    for name, value in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            properties[name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")] = value
    return properties


class KafkaAccess:
    """Address and properties of a topic, which create its clients.

    Parameters
    ----------
    address : Address
    properties : mapping from str to str
        Properties of librdkafka, such as ``security.protocol``.
    """

    def __init__(self, address: Address, properties: Mapping[str, str]) -> None:
        self.address = address
        self._properties = dict(properties)

    def create_client(self, kind: Any, tacit_properties: Mapping[str, Any], **more: Any) -> Any:
        """Return a new consumer or producer, the class ``kind``, with the address and all properties.

        ``more`` are keyword arguments of the class. Its own log is discarded.

        Raises
        ------
        ConfigError
            If a property is invalid, or also among ``tacit_properties``.
        """
        tacit_properties = {"bootstrap.servers": self.address.brokers, **tacit_properties}
        if set_twice := tacit_properties.keys() & self._properties.keys():
            raise ConfigError(f"properties: {min(set_twice)} is set by tacit; leave it out")
        try:
            return kind(tacit_properties | self._properties, logger=_NullLogger(), **more)
        except kafka.KafkaException as error:
            raise ConfigError(f"properties: {self.redact(error)}") from None

    def redact(self, error: Any) -> str:
        """Return the text of an error of librdkafka, with passwords and other secrets replaced by "…"."""
        error = error.args[0] if isinstance(error, kafka.KafkaException) else error
        text = error.str() if isinstance(error, kafka.KafkaError) else str(error)
        for name, value in self._properties.items():
            if value and any(map(name.__contains__, SECRET_NAMES)):
                text = text.replace(value, "…")
        return text


class _NullLogger:
    """A logger that drops all lines of librdkafka, which may contain secrets; errors are raised instead."""

    def log(self, *arguments: Any) -> None:
        """Ignore a line."""
