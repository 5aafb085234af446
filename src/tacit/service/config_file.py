"""The configuration as a file: TOML, strict about names, complete before anything starts."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from tacit.errors import ConfigError, InvalidValue, TacitError
from tacit.interleaving import METHODS
from tacit.policies import Policy, RankedBandit, policy_from_spec
from tacit.policies.actions import SlatePolicy
from tacit.service.attribution import Aggregation, ClickAggregation, Rule
from tacit.service.config import (
    ARMS,
    DUELS,
    FEATURES,
    KINDS,
    PERSONALIZER,
    SLATES,
    Config,
    Count,
    Days,
    DuelConfig,
    PersonalizerConfig,
    PlacementConfig,
    Seconds,
    ServerConfig,
    Share,
    StoreConfig,
    TracesConfig,
)
from tacit.service.keys import KeyConfig, is_loopback
from tacit.service.signals import SignalConfig
from tacit.service.validation import complaint

VERSION = 1
"""The newest version of the configuration that is understood."""

DEFAULT_PLACEMENTS = {"default": {"arms": 5}}
PLACEMENT_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")

INTERLEAVING = {
    "team-draft": "TeamDraft",
    "probabilistic": "Probabilistic",
    "balanced": "Balanced",
    "optimized": "Optimized",
}


class _File(msgspec.Struct, forbid_unknown_fields=True):
    placements: dict[str, Any]
    version: Count = VERSION
    server: ServerConfig = ServerConfig()
    store: StoreConfig = StoreConfig()
    keys: dict[str, KeyConfig] = {}
    personalizer: PersonalizerConfig | None = None
    traces: TracesConfig | None = None


class _Placement(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What is decided, and how.

    Attributes
    ----------
    kind : str
        What it decides for: one of the ``arms``, one of arms known by their ``features``, which
        rankers' ``duels``, or which arms stand in ``slates``; ``personalizer`` is asked in the
        terms of that API.
    policy : str or table
        As on the command line, or a table with the key ``name``.
    seed : int
        Where its random draws come from; by default drawn once, and kept in the store.
    snapshot_every : int
        Events after which a snapshot is written, so that recovery replays no more than these; if
        the last one held more keys and open windows than that, after as many events as it held.
    attribution_window : float
        Seconds in which feedback counts.
    seen : str
        Which decisions without a reward earn the default: all that were ``decided``, or only those
        that were ``examined`` or clicked.
    activation_window : float
        Seconds in which a deferred decision must be activated; else it never counts.
    mode : str
        Mode of a new placement; later the log says. ``apprentice`` shows the first arm on offer and
        learns from that, ``frozen`` learns nothing, ``shadow`` lets a second policy decide beside,
        unseen.
    shadow : str or table
        The second policy.
    durability : str
        ``committed`` answers once it is durable; ``buffered`` at once, and goes on from memory
        while the store fails.
    propensities : bool
        Whether decisions carry their propensity, which may cost time.
    signals : list of str
        What the placement computes for its contexts: ``volume``, ``abandonment``,
        ``reformulation``, ``new-arms``, ``since-shift``.
    signals_fast : float
        Time constant of the signals' fast averages, in seconds.
    signals_slow : float
        Time constant of the slow averages that they are held against, in seconds.
    client_signals : int
        How many numbers the client adds to the signals.
    retention : float
        Days after which rows are dropped, once a snapshot covers them; by default the store's,
        ``inf`` for never.
    spread : bool
        In shards: whether impressions of a key go to all of them, and what they learn is added up.
    """

    kind: str = ARMS
    policy: str | dict[str, Any] = "thompson"
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    snapshot_every: Count = 50_000
    attribution_window: Seconds = 30.0
    seen: Literal["decided", "examined"] = "decided"
    activation_window: Seconds = 3600.0
    mode: Literal["online", "apprentice", "frozen", "shadow"] = "online"
    shadow: str | dict[str, Any] | None = None
    durability: Literal["committed", "buffered"] = "committed"
    propensities: bool = True
    retention: Days | None = None
    signals: list[str] = []
    signals_fast: Seconds = 600.0
    signals_slow: Seconds = 86_400.0
    client_signals: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    spread: bool = False

    @property
    def slots(self) -> Any:
        """The policy's arms."""
        raise NotImplementedError

    @property
    def attribution(self) -> dict[str, Any]:
        """What the rule says besides the windows."""
        raise NotImplementedError


class _Arms(_Placement, forbid_unknown_fields=True, kw_only=True):
    """Shows one of its arms.

    Attributes
    ----------
    arms : int or list of str
        How many arms there are, or their names.
    default_reward : float
        Reward of a decision for which none came in its window.
    aggregation : str
        What several rewards for one decision make: the ``first``, the ``last``, their ``sum`` (at
        most 1), or the ``max``.
    late : str
        What a reward after the window does: ``record``, or ``correct`` the default, where the
        policy keeps sums.
    correction_window : float
        Seconds after the end of a window in which it may be corrected.
    """

    arms: Count | list[str]
    default_reward: Share = 0.0
    aggregation: Aggregation = "first"
    late: Literal["record", "correct"] = "record"
    correction_window: Seconds = 3600.0

    @property
    def slots(self) -> Any:
        return self.arms

    @property
    def attribution(self) -> dict[str, Any]:
        return {
            "default": self.default_reward,
            "aggregation": self.aggregation,
            "late": self.late,
            "correction": round(1_000_000 * self.correction_window),
        }


class _Features(_Arms, forbid_unknown_fields=True, kw_only=True):
    """Shows one of the arms that a request describes by their features.

    Attributes
    ----------
    arms : int or list of str
        Only for policies that keep something for each arm.
    """

    arms: Count | list[str] | None = None  # type: ignore[assignment]
    policy: str | dict[str, Any]


class _Duels(_Placement, forbid_unknown_fields=True, kw_only=True):
    """Interleaves the lists of two rankers, and learns which rankers are better.

    Attributes
    ----------
    rankers : list of str
        Their names.
    interleaving : str
        How one list is made of two; ``optimized`` needs scipy.
    length : int
        Results of the interleaved list.
    ties : str
        What the policy learns from a tie: ``coin``, one of both won, by a fair coin; ``keep``, a
        tie; ``again``, nothing.
    unclicked : str
        What a list without a click is: a ``tie``, or ``nothing``, as if never shown.
    aggregation : str
        What several reports of clicks for one list make: their ``union``, the ``first`` or the
        ``last``.
    """

    rankers: Annotated[list[str], msgspec.Meta(min_length=2)]
    policy: str | dict[str, Any] = "rmed1"
    interleaving: Literal["team-draft", "probabilistic", "balanced", "optimized"] = "team-draft"
    length: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10
    ties: Literal["coin", "keep", "again"] = "coin"
    unclicked: Literal["tie", "nothing"] = "tie"
    aggregation: ClickAggregation = "union"
    mode: Literal["online", "frozen", "shadow"] = "online"

    @property
    def slots(self) -> Any:
        return self.rankers

    @property
    def attribution(self) -> dict[str, Any]:
        return {"aggregation": self.aggregation}

    @property
    def duels(self) -> DuelConfig:
        """How rankers duel."""
        method = METHODS[INTERLEAVING[self.interleaving]](length=self.length)
        return DuelConfig(method, self.ties, self.unclicked)


class _Slates(_Placement, forbid_unknown_fields=True, kw_only=True):
    """Shows several of its arms at once, best first.

    Attributes
    ----------
    arms : int or list of str
        How many arms there are, or their names.
    positions : int
        How many of them are shown.
    aggregation : str
        What several reports of clicks for one list make: their ``union``, the ``first`` or the
        ``last``.
    """

    arms: Count | list[str]
    positions: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    policy: str | dict[str, Any] = "cascade-kl-ucb"
    aggregation: ClickAggregation = "union"

    @property
    def slots(self) -> Any:
        return self.arms

    @property
    def attribution(self) -> dict[str, Any]:
        return {"aggregation": self.aggregation}


class _Personalizer(_Placement, forbid_unknown_fields=True, kw_only=True):
    """Answers the interface of Personalizer.

    Attributes
    ----------
    default_reward : float
        Reward of a decision for which none came in its window.
    aggregation : str
        What several rewards for one decision make: the ``first``, the ``last``, their ``sum`` (at
        most 1), or the ``max``.
    """

    policy: str | dict[str, Any] = "linear-epsilon-greedy(dim=256)"
    attribution_window: Seconds = 600.0
    default_reward: Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)] = 0.0
    aggregation: Aggregation = "first"
    propensities: Literal[True] = True

    @property
    def slots(self) -> Any:
        return None

    @property
    def attribution(self) -> dict[str, Any]:
        return {"default": self.default_reward, "aggregation": self.aggregation, "lowest": -1.0}


_TABLES: dict[str, type[_Placement]] = {
    ARMS: _Arms,
    FEATURES: _Features,
    DUELS: _Duels,
    SLATES: _Slates,
    PERSONALIZER: _Personalizer,
}


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
    if not file.placements:
        raise ConfigError(f"{source}: placements: there is none; add a table [placements.NAME]")
    placements = {
        name: _placement(name, raw, source, file.store.retention)
        for name, raw in file.placements.items()
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
    return Config(placements, file.server, file.store, file.keys, file.personalizer, file.traces)


def _read(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error
    store = table.get("store")
    for place in ("path", "archive"):
        if isinstance(store, dict) and isinstance(store.get(place), str):
            store[place] = str(path.parent / store[place])
    return table


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
        raise ConfigError(f"{source}: {prefix}{field}: {what}") from error


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
    raw = _converted(table, _TABLES[kind], source, f"{key}.")
    try:
        policy = policy_from_spec(raw.policy, raw.slots)
        shadow = None if raw.shadow is None else policy_from_spec(raw.shadow, raw.slots)
        if isinstance(raw, _Slates):
            policy, shadow = (_of_length(each, raw.positions) for each in (policy, shadow))
        duels = raw.duels if isinstance(raw, _Duels) else None
        if duels is not None and raw.interleaving == "optimized":
            # What it needs must be there before the first request.
            duels.method.interleave([["a", "b"], ["b", "a"]], np.random.default_rng(0))
    except TacitError as error:
        raise ConfigError(f"{source}: {key}: {error}") from error
    rule = Rule(
        window=round(1_000_000 * raw.attribution_window),
        seen=raw.seen,
        activation=round(1_000_000 * raw.activation_window),
        **raw.attribution,
    )
    signals = None
    if raw.signals or raw.client_signals:
        signals = SignalConfig(
            tuple(raw.signals), raw.signals_fast, raw.signals_slow, raw.client_signals
        )
    try:
        return PlacementConfig(
            policy,
            raw.seed,
            raw.snapshot_every,
            rule,
            raw.mode,
            shadow,
            raw.durability,
            raw.propensities,
            kind,
            duels,
            retention if raw.retention is None else raw.retention,
            signals,
            raw.spread,
        )
    except TacitError as error:
        raise ConfigError(f"{source}: {key}.{error}") from error


def _of_length(policy: Policy | None, positions: int) -> Any:
    """Return a policy for slates of a length.

    Raises
    ------
    InvalidValue
        If the policy remembers what the log does not hold.
    """
    if isinstance(policy, RankedBandit):
        raise InvalidValue(
            "policy",
            policy,
            "what it remembers of lists under way is not in the log; give CascadeKLUCB or PBMUCB",
        )
    if not isinstance(policy, SlatePolicy):
        return policy
    return replace(policy, positions=positions)  # type: ignore[call-arg]
