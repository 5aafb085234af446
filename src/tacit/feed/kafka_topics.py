"""Topics of Kafka: where one is, how a broker is reached, and what of that nobody may see."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tacit.errors import ConfigError, InvalidValue, needing

with needing("kafka"):
    import confluent_kafka as kafka

SCHEME = "kafka://"
ENVIRONMENT = "TACIT_KAFKA_"
"""How variables begin that are properties: ``TACIT_KAFKA_SASL_PASSWORD`` is ``sasl.password``."""
PATIENCE = 30.0
"""Seconds in which a broker must have answered first."""
SECRETS = "password", "secret", "key.pem", "jaas", "oauthbearer.config"


class Address(NamedTuple):
    """Where a topic is: ``kafka://HOST:PORT/TOPIC?group=…``.

    Attributes
    ----------
    brokers, topic, group : str
    """

    brokers: str
    topic: str
    group: str = "tacit"


def address_of(url: str) -> Address:
    """Return the address that a URL says.

    Raises
    ------
    InvalidValue

    Examples
    --------
    >>> address_of("kafka://a:9092,b:9092/clicks?group=shop")
    Address(brokers='a:9092,b:9092', topic='clicks', group='shop')
    """
    place, _, query = url.removeprefix(SCHEME).partition("?")
    brokers, _, topic = place.partition("/")
    said = dict(part.partition("=")[::2] for part in query.split("&") if part)
    if "@" in brokers:
        raise InvalidValue(
            "source", "kafka://…@…", "give users and passwords as properties, not in the address"
        )
    if not (brokers and topic) or "/" in topic or not said.keys() <= {"group"} or "" in said.values():
        shown = "kafka://…@…" if "@" in query else url
        raise InvalidValue("source", shown, "give kafka://HOST:PORT/TOPIC, with ?group=NAME or without")
    return Address(brokers, topic, **said)


def properties_of(path: Path | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return properties of librdkafka: of a file with ``name=value`` in each line, then of the environment.

    Raises
    ------
    ConfigError
        If the file cannot be read; no value is ever shown.
    """
    found: dict[str, str] = {}
    try:
        lines = [] if path is None else path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"properties: {path} cannot be read: {error}") from error
    for number, line in enumerate(map(str.strip, lines), 1):
        name, equals, value = line.partition("=")
        if line and not line.startswith("#"):
            if not equals:
                raise ConfigError(f"properties: {path}, line {number} is not of the form name=value")
            found[name.strip()] = value.strip()
    ours = {name: value for name, value in environment.items() if name.startswith(ENVIRONMENT)}
    return found | {name.removeprefix(ENVIRONMENT).lower().replace("_", "."): ours[name] for name in ours}


class Access:
    """How a topic is reached.

    Parameters
    ----------
    address : Address
    properties : mapping from str to str
        Of librdkafka, such as ``security.protocol``.
    """

    def __init__(self, address: Address, properties: Mapping[str, str]) -> None:
        self.address = address
        self._properties = dict(properties)

    def opened(self, kind: Any, ours: Mapping[str, Any], **more: Any) -> Any:
        """Return a consumer or a producer, with properties that nobody else may set.

        Raises
        ------
        ConfigError
            If a property is wrong.
        """
        ours = {"bootstrap.servers": self.address.brokers, **ours}
        if clashing := ours.keys() & self._properties.keys():
            raise ConfigError(f"properties: {min(clashing)} is set by tacit; leave it out")
        try:
            return kind(ours | self._properties, logger=_Silent(), **more)
        except kafka.KafkaException as error:
            raise ConfigError(f"properties: {self.shown(error)}") from None

    def shown(self, error: Any) -> str:
        """Return what librdkafka says, without any secret."""
        error = error.args[0] if isinstance(error, kafka.KafkaException) else error
        text = error.str() if isinstance(error, kafka.KafkaError) else str(error)
        for name, value in self._properties.items():
            if value and any(map(name.__contains__, SECRETS)):
                text = text.replace(value, "…")
        return text


class _Silent:
    """What librdkafka logs to: nothing, as it may name what is secret; what matters is raised."""

    def log(self, *arguments: Any) -> None:
        """Take a line."""
