"""The service's configuration: typed, complete before anything starts, strict about names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from tacit.errors import ConfigError, MissingExtra, TacitError
from tacit.policies import Policy, policy_from_spec

try:
    import msgspec
except ModuleNotFoundError as error:
    raise MissingExtra("msgspec", "service") from error

from tacit.service.attribution import Aggregation, Rule
from tacit.service.store import ONLINE, SHADOW
from tacit.service.validation import complaint

DEFAULT_PLACEMENTS = {"default": {"arms": 5}}
PLACEMENT_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")

COMMITTED, BUFFERED = "committed", "buffered"

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
# At most 30 days, so that windows cannot outgrow memory unnoticed.
Seconds = Annotated[float, msgspec.Meta(ge=0.001, le=2_592_000.0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the service listens.

    Attributes
    ----------
    host : str
        Address; the default answers to this machine only.
    port : int
        0 takes any free one.
    body_limit : int
        Bytes of a request's body above which it is refused.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8787
    body_limit: Count = 65536


class StoreConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the log is kept.

    Attributes
    ----------
    path : str
        SQLite file. In a configuration file, relative to that file.
    buffer : int
        Rows kept in memory for placements of ``durability = "buffered"`` while the store fails.
    """

    path: str = "tacit.db"
    buffer: Count = 100_000


class PlacementConfig(msgspec.Struct, frozen=True):
    """What a placement decides, and how.

    Attributes
    ----------
    policy : Policy
        The policy over the placement's arms.
    seed : int or None
        Where its random draws come from; None draws a seed once and keeps it in the store.
    snapshot_every : int
        Events after which a snapshot is written, so that recovery replays no more than these.
    rule : Rule
        How rewards are attributed to decisions.
    mode : str
        ``online``; ``apprentice`` shows the first arm on offer and learns from that; ``frozen``
        learns nothing; ``shadow`` lets a second policy decide beside, unseen. Of a new placement:
        later the log says.
    shadow : Policy or None
        The second policy.
    durability : str
        ``committed`` answers once it is durable; ``buffered`` at once, and goes on from memory
        while the store fails.
    propensities : bool
        Whether decisions carry their propensity, which may cost time.
    """

    policy: Policy
    seed: int | None = None
    snapshot_every: int = 50_000
    rule: Rule = Rule()
    mode: str = ONLINE
    shadow: Policy | None = None
    durability: str = COMMITTED
    propensities: bool = True


class Config(msgspec.Struct, frozen=True):
    """Everything the service must know before it starts.

    Attributes
    ----------
    placements : dict of str to PlacementConfig
    server : ServerConfig
    store : StoreConfig
    """

    placements: dict[str, PlacementConfig]
    server: ServerConfig = ServerConfig()
    store: StoreConfig = StoreConfig()


class _File(msgspec.Struct, forbid_unknown_fields=True):
    placements: dict[str, Any]
    server: ServerConfig = ServerConfig()
    store: StoreConfig = StoreConfig()


class _Placement(msgspec.Struct, forbid_unknown_fields=True):
    arms: Count | list[str]
    policy: str | dict[str, Any] = "thompson"
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    snapshot_every: Count = 50_000
    attribution_window: Seconds = 30.0
    default_reward: Share = 0.0
    aggregation: Aggregation = "first"
    seen: Literal["decided", "examined"] = "decided"
    activation_window: Seconds = 3600.0
    mode: Literal["online", "apprentice", "frozen", "shadow"] = "online"
    shadow: str | dict[str, Any] | None = None
    durability: Literal["committed", "buffered"] = "committed"
    propensities: bool = True


def load_config(
    path: str | Path | None = None, overrides: Mapping[str, Any] | None = None
) -> Config:
    """Return the configuration of a TOML file, with some of its values replaced.

    Parameters
    ----------
    path : path, optional
        Without a file there is one placement, ``default``: Thompson sampling over 5 arms.
    overrides : mapping, optional
        From dotted keys, such as ``server.port``, to values; None leaves a value as it is.

    Returns
    -------
    Config

    Raises
    ------
    ConfigError
        If the file cannot be read, or a key is unknown or its value not allowed.

    Examples
    --------
    >>> config = load_config(overrides={"server.port": 9000})
    >>> config.server.port, config.placements["default"].policy.arm_count
    (9000, 5)
    """
    source = "configuration" if path is None else str(path)
    table = {} if path is None else _read(Path(path))
    table.setdefault("placements", {**DEFAULT_PLACEMENTS})
    for key, value in (overrides or {}).items():
        if value is not None:
            _replace(table, key.split(".", 2), value)
    file = _converted(table, _File, source)
    if not file.placements:
        raise ConfigError(f"{source}: placements: there is none; add a table [placements.NAME]")
    placements = {name: _placement(name, raw, source) for name, raw in file.placements.items()}
    return Config(placements, file.server, file.store)


def _read(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error
    store = table.get("store")
    if isinstance(store, dict) and isinstance(store.get("path"), str):
        store["path"] = str(path.parent / store["path"])
    return table


def _replace(table: dict[str, Any], keys: list[str], value: Any) -> None:
    *outer, last = keys
    for key in outer:
        inner = table.get(key, {})
        table[key] = table = dict(inner) if isinstance(inner, dict) else {}
    table[last] = value


def _converted(table: Any, kind: type[Any], source: str, prefix: str = "") -> Any:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        field, what = complaint(error)
        raise ConfigError(f"{source}: {prefix}{field}: {what}") from error


def _placement(name: str, table: Any, source: str) -> PlacementConfig:
    key = f"placements.{name}"
    if not PLACEMENT_NAME.fullmatch(name):
        raise ConfigError(
            f"{source}: {key}: a placement's name stands in addresses; "
            "give 1 to 128 letters, digits, dots, hyphens and underscores"
        )
    raw = _converted(table, _Placement, source, f"{key}.")
    try:
        policy = policy_from_spec(raw.policy, raw.arms)
        shadow = None if raw.shadow is None else policy_from_spec(raw.shadow, raw.arms)
    except TacitError as error:
        raise ConfigError(f"{source}: {key}: {error}") from error
    for each in (policy, shadow or policy):
        if each.shows != "arm" or each.feature_dims != (0, 0):
            raise ConfigError(
                f"{source}: {key}.policy: {type(each).__name__} shows a {each.shows} or reads "
                "features of arms; the service shows one arm, so give a policy that does"
            )
    if raw.mode == SHADOW and shadow is None:
        raise ConfigError(
            f"{source}: {key}.mode: 'shadow' needs a second policy; "
            f'give one, such as shadow = "ucb1"'
        )
    rule = Rule(
        window=round(1_000_000 * raw.attribution_window),
        default=raw.default_reward,
        aggregation=raw.aggregation,
        seen=raw.seen,
        activation=round(1_000_000 * raw.activation_window),
    )
    return PlacementConfig(
        policy,
        raw.seed,
        raw.snapshot_every,
        rule,
        raw.mode,
        shadow,
        raw.durability,
        raw.propensities,
    )
