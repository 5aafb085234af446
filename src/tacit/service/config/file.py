"""The configuration as a file: TOML, strict about names, complete before anything starts."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tacit.errors import ConfigError, TacitError
from tacit.service.config.keys import KeyConfig, is_loopback
from tacit.service.config.schema import (
    ARMS,
    PERSONALIZER,
    Config,
    Count,
    PersonalizerConfig,
    PlacementConfig,
    ServerConfig,
    StoreConfig,
    TracesConfig,
)
from tacit.service.config.tables import PlacementTable
from tacit.service.config.validation import complaint, meant
from tacit.service.kind import KINDS, kind_of

VERSION = 1
PATHS = ("path", "archive")
"""Settings of the store that name files."""
"""The newest version of the configuration that is understood."""

DEFAULT_PLACEMENTS = {"default": {"arms": 5}}
PLACEMENT_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


class _File(msgspec.Struct, forbid_unknown_fields=True):
    placements: dict[str, Any]
    version: Count = VERSION
    server: ServerConfig = ServerConfig()
    store: StoreConfig = StoreConfig()
    keys: dict[str, Any] = {}
    personalizer: PersonalizerConfig | None = None
    traces: TracesConfig | None = None


def load_config(path: str | Path | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
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
        If the file cannot be read, is of a newer version, or a key is unknown or its value not
        allowed.

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
    _check_version(table, source)
    file = _converted(table, _File, source)
    _check_paths(file.store, source)
    if not file.placements:
        raise ConfigError(f"{source}: placements: there is none; add a table [placements.NAME]")
    placements = {
        name: _placement(name, raw, source, file.store.retention) for name, raw in file.placements.items()
    }
    if not file.keys and not is_loopback(file.server.host):
        raise ConfigError(
            f"{source}: server.host: {file.server.host} answers to other machines, which needs "
            "keys; make one with: tacit key NAME, or leave the host out"
        )
    if file.personalizer is not None:
        named = placements.get(file.personalizer.placement)
        if named is None or named.kind != PERSONALIZER:
            raise ConfigError(
                f"{source}: personalizer.placement: {file.personalizer.placement!r}: name a "
                f"placement of kind = {PERSONALIZER!r}"
            )
    keys = {name: _key(name, raw, source) for name, raw in file.keys.items()}
    return Config(placements, file.server, file.store, keys, file.personalizer, file.traces)


def _read(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error
    store = table.get("store")
    for place in PATHS:
        if isinstance(store, dict) and isinstance(store.get(place), str):
            store[place] = str(path.parent / store[place])
    placements = table.get("placements")
    for placement in placements.values() if isinstance(placements, dict) else ():
        if isinstance(placement, dict) and isinstance(placement.get("start"), str):
            placement["start"] = str(path.parent / placement["start"])
    return table


def _check_paths(store: StoreConfig, source: str) -> None:
    """Check that no file is named by an address: it would be made in a folder named ``file:``."""
    for place in PATHS:
        value = getattr(store, place)
        if value is not None and any(part.startswith("file:") for part in Path(value).parts):
            path = value.partition("file:")[2].partition("?")[0]
            raise ConfigError(f"{source}: store.{place}: {value} is an address; give the path alone: {path}")


def _check_version(table: dict[str, Any], source: str) -> None:
    """Refuse a newer version by its name, before the first key that only it knows."""
    version = table.get("version", VERSION)
    if isinstance(version, int) and version > VERSION:
        raise ConfigError(
            f"{source}: version: {version} is newer than this tacit, which reads up to {VERSION}; "
            "update tacit"
        )


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
        raise ConfigError(f"{source}: {prefix}{field}: {what}{meant(error, kind)}") from error


def _key(name: str, table: Any, source: str) -> KeyConfig:
    made: KeyConfig = _converted(table, KeyConfig, source, f"keys.{name}.")
    try:
        made.check()
    except TacitError as error:
        raise ConfigError(f"{source}: keys.{name}.{error}") from error
    return made


def _placement(name: str, table: Any, source: str, retention: float | None) -> PlacementConfig:
    key = f"placements.{name}"
    if not PLACEMENT_NAME.fullmatch(name):
        raise ConfigError(
            f"{source}: {key}: a placement's name stands in addresses; "
            "give 1 to 128 letters, digits, dots, hyphens and underscores"
        )
    kind = table.get("kind", ARMS) if isinstance(table, dict) else ARMS
    if kind not in KINDS:
        raise ConfigError(f"{source}: {key}.kind: {kind!r}: give one of {', '.join(KINDS)}")
    raw: PlacementTable = _converted(table, kind_of(kind).table, source, f"{key}.")
    try:
        parts = raw.parts()
    except TacitError as error:
        raise ConfigError(f"{source}: {key}: {error}") from error
    try:
        return raw.configuration(*parts, retention)
    except TacitError as error:
        raise ConfigError(f"{source}: {key}.{error}") from error
