"""The configuration file: TOML, strict about names, checked before anything starts.

1. Settings of placements as JSON for the log, and their changes in words.
2. ``lint_config``: warnings about settings that are allowed but probably mistakes.
3. ``start_learner``: the learner from which a placement starts.
4. ``load_config``: reads and checks the file.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import msgspec.structs

from tacit.core.text import no_toml
from tacit.errors import ConfigError, InvalidValue, SnapshotError, TacitError, UnknownName
from tacit.feed.event_map import Fixed, map_at
from tacit.interleaving.rules import CLICK
from tacit.learning.learner import Learner, restored
from tacit.learning.snapshot import LearnerSnapshot, from_bytes
from tacit.policies import Policy, policy_to_spec
from tacit.policies.context import declared
from tacit.policies.spec import AUTO, goes_on
from tacit.service.config import schema
from tacit.service.config.keys import HookConfig, HookTable, KeyConfig, is_loopback, secret_of
from tacit.service.config.tables import PlacementTable
from tacit.service.kind import KINDS, kind_of
from tacit.service.log.change_events import Start
from tacit.wire.error_messages import MEANT, refusal

Result = TypeVar("Result")


def checked_as(field: str, check: Callable[[Any], Result], value: Any) -> Result:
    """Return ``check(value)``; errors name ``field`` instead of the check's own field.

    Raises
    ------
    InvalidValue, UnknownName
        If the check raises it.
    """
    try:
        return check(value)
    except InvalidValue as error:
        raise InvalidValue(field, error.value, error.allowed) from error
    except UnknownName as error:
        raise UnknownName(f"{field}: {str(error).partition(': ')[2]}") from error


def checked_within(place: str, check: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    """Return ``check(*arguments)``; errors have ``place`` before the field.

    Raises
    ------
    InvalidValue, UnknownName
        If the check raises it.
    """
    try:
        return check(*arguments)
    except InvalidValue as error:
        raise InvalidValue(f"{place}.{error.field}", error.value, error.allowed) from error
    except UnknownName as error:
        raise UnknownName(f"{place}.{error}") from error


# ---- A placement's configuration as plain settings, by which the log records changes


def settings_of(config: schema.PlacementConfig) -> str:
    """Encode the configuration of a placement as JSON, without arms and start.

    Examples
    --------
    >>> import tacit
    >>> json.loads(settings_of(schema.PlacementConfig(tacit.Thompson(2))))["durability"]
    'committed'
    """
    fields = {name: getattr(config, name) for name in config.__struct_fields__}
    # Arms and the start have change events of their own.
    del fields["arms"]
    del fields["start"]
    if fields.pop("recommended"):
        fields["policy"] = AUTO
    return json.dumps({name: _plain(value) for name, value in fields.items()}, sort_keys=True)


def policy_name(settings: str) -> Any:
    """Return the policy's name in the output of :func:`encode_settings`.

    Examples
    --------
    >>> policy_name('{"policy": {"name": "UCB1"}}'), policy_name('{"policy": "auto"}')
    ('UCB1', 'auto')
    """
    policy = json.loads(settings)["policy"]
    return policy["name"] if isinstance(policy, dict) else policy


KEYS = {
    "window": "attribution_window", "activation": "activation_window", "correction": "correction_window",
    "default": "default_reward",
}  # fmt: skip
"""Configuration keys of the fields of a rule."""

POLICY_ARMS = "arms"
"""Field of a policy that settings omit: arms have change events of their own."""


def _plain(value: Any) -> Any:
    if isinstance(value, Policy):
        return _without_arms(policy_to_spec(value))
    return msgspec.to_builtins(value, enc_hook=repr)


def _without_arms(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_arms(value) if isinstance(value, dict) else value
        for name, value in spec.items()
        if name != POLICY_ARMS
    }


def differences(before: str, now: str) -> dict[str, Any]:
    """Return the differences between two outputs of :func:`encode_settings`, by configuration key.

    Examples
    --------
    >>> differences('{"mode": "online", "seed": 7}', '{"mode": "frozen", "seed": 7}')
    {'mode': {'before': 'online', 'after': 'frozen'}}
    """
    old, new = (by_key(json.loads(settings)) for settings in (before, now))
    return {
        name: {"before": old.get(name), "after": new.get(name)}
        for name in sorted(old | new)
        if old.get(name) != new.get(name)
    }


FIXED = (
    "server.host", "server.port", "server.log", "store.path", "store.schema", "store.url", "traces", "export",
)  # fmt: skip
"""Settings that only a restart changes; the values of the last three may hold secrets."""


def by_key(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings by configuration key: the rule's fields separately, times in seconds."""
    rule = {KEYS.get(name, name): value for name, value in (settings.get("rule") or {}).items()}
    rule |= {name: value / 1e6 for name, value in rule.items() if name.endswith("_window")}
    return {name: value for name, value in settings.items() if name != "rule"} | rule


def unheeded(began: schema.Config, now: schema.Config) -> Iterator[str]:
    """Yield sentences about settings of a new configuration that need a restart."""
    for place in FIXED:
        then, wanted = (attrgetter(place)(config) for config in (began, now))
        values = f"; still {then}" if place in FIXED[:-3] else ""
        if wanted != then:
            yield f"{place}: {wanted if values else 'this'} needs a restart{values}"


def served(config: schema.Config) -> dict[str, dict[str, Any]]:
    """Return the settings of a configuration's placements, by placement and configuration key."""
    return {
        name: {"arms": each.configured_arms} | by_key(json.loads(settings_of(each)))
        for name, each in config.placements.items()
    }


def news(old: Mapping[str, dict[str, Any]], config: schema.Config) -> Iterator[str]:
    """Yield sentences about changes from the old settings of placements to a new configuration.

    Parameters
    ----------
    old : mapping of str to dict
        Output of :func:`describe_placements`, or settings noted in a store.
    config : Config
        New configuration.
    """
    new = served(config)
    gone, come = sorted(old.keys() - new), sorted(new.keys() - old)
    yield from (f"placements.{name}: no longer served; what it learned stays in the store" for name in gone)
    yield from (f"placements.{name}: served now, with what the store has of this name" for name in come)
    if gone and come:
        yield f"placements.{come[0]}: if it is {gone[0]} renamed, it begins anew; call it {gone[0]} to go on"
    for name in sorted(old.keys() & new):
        # A mode is for new placements only; settings unknown to an older store are no change.
        then = {key: value for key, value in old[name].items() if key != "mode"}
        yield from changed(f"placements.{name}", then, {key: new[name].get(key) for key in then})


def kept(config: schema.Config, learned: Mapping[str, Policy]) -> Iterator[str]:
    """Yield sentences about placements whose policy differs from the one that ``auto`` now recommends."""
    for name, each in config.placements.items():
        now, then = (getattr(policy, "policy", policy) for policy in (each.policy, learned[name]))
        if each.recommended and not each.rebuild and type(now) is not type(then):
            yield (
                f"placements.{name}.policy: auto is {now.label} as it is configured; {then.label}, which has "
                "learned, goes on; rebuild = true lets the other learn the log and take over"
            )


def changed(place: str, before: Any, now: Any) -> Iterator[str]:
    """Yield a sentence for each value that has changed."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in before | now:
            yield from changed(f"{place}.{name}", before.get(name), now.get(name))
    elif before != now:
        yield f"{place}: {now}, before: {before}"


HARM = re.compile("return|refund|complain|cancel|churn|bounce|unsubscri|error|laten|cost")
"""Parts of names of metrics of which less is usually better."""


def doubts(config: schema.Config) -> Iterator[str]:
    """Yield warnings about settings that are allowed but probably mistakes."""
    known, shown = ", ".join(config.placements), config.placements.values()
    if config.placements.keys() == DEFAULT_PLACEMENTS.keys():
        yield "placements: default is the only one, as where none is configured; add [placements.NAME]"
    if config.store.archive is not None and all(each.retention is None for each in shown):
        yield "store.archive: nothing comes into it, as no row is dropped; give store.retention"
    for name in config.idle:
        yield f'placements.{name}.correction_window: nothing is corrected; give late = "correct", too'
    kept = {each.retention: f"placements.{name}" for name, each in config.placements.items()}
    for days, where in (kept | {config.store.retention: "store"}).items():
        if days is not None and 36_500 < days < math.inf:
            years = f"{days:.0f} days are {days / 365:.0f} years"
            yield f"{where}.retention: {years}; if seconds were meant, give {days / 86_400:g}"
    if config.traces is not None and not urlsplit(config.traces.endpoint).path.strip("/"):
        where = f"collectors take traces at {config.traces.endpoint.rstrip('/')}/v1/traces"
        yield f"traces.endpoint: {config.traces.endpoint} has no path; {where}"
    for name, hook in config.feeds.items():
        place = hook.map.placement
        if isinstance(place, Fixed) and place.value not in config.placements:
            yield f"feeds.{name}.map: placement: {place.value!r} is none of the placements, {known}; mend it"
    hashes: dict[str, str] = {}
    for name, key in config.keys.items():
        if hashes.setdefault(key.sha256, name) != name:
            yield f"keys.{name}.sha256: that of {hashes[key.sha256]}, too; make another, or take one out"
        for pattern in key.placements or ():
            if not fnmatch.filter(config.placements, pattern):
                yield f"keys.{name}.placements: {pattern!r} fits none of the placements, {known}; mend it"
    for name, each in config.placements.items():
        metric = "" if each.guardrail is None else each.guardrail.metric
        if metric and HARM.search(metric) and each.metrics[metric].better == "more":
            what = "more of it is better, so the guardrail acts where there is less"
            yield f'placements.{name}.metrics.{metric}: {what}; give better = "less" if it is a harm'
        for field, value in by_key({"rule": msgspec.to_builtins(each.rule)}).items():
            # Whole days may be multiples of 1000 s by coincidence.
            if field.endswith("_window") and value > 604_800 and not value % 1000 and value % 86_400:
                meant = f"{value / 86_400:.1f} days; if milliseconds were meant, give {value / 1000:g}"
                yield f"placements.{name}.{field}: {value:.0f} s are {meant}"
        worth = getattr(each.options, "worth", {})
        if CLICK not in worth and (near := get_close_matches(CLICK, worth, 1, 0.8)):
            yield f"placements.{name}.worth.{near[0]}: clicks come as {CLICK}; did you mean that?"
        for arm, rate, of in getattr(each.policy, "priors", ()):
            if 0 < rate < 1 and of >= 10 and of == round(of):
                counts = f"[{rate:g}, {of:g}] are successes and failures"
                meant = f"give [{rate * of:g}, {of - rate * of:g}]"
                yield f"placements.{name}.priors.{arm}: {counts}; if a rate and a count were meant, {meant}"
        arms = each.configured_arms
        count = arms if isinstance(arms, int | None) else len(arms)
        positions = getattr(each.policy, "positions", 0)
        lists: dict[str, Any] = {"context": dict(each.policy.schema)}
        lists |= {f"context.{field}": values for field, values in each.policy.schema}
        for field, names in lists.items():
            if two := alike([] if isinstance(names, str) else names):
                yield f"placements.{name}.{field}: {two} differ by capitals or blanks alone; keep one"
        if count == 1:
            yield f"placements.{name}.arms: of one there is nothing to choose; give two or more"
        elif count is not None and positions > count:
            yield f"placements.{name}.positions: {positions} are more than the {count} arms; give {count}"


def alike(names: Iterable[str]) -> str:
    """Return the first two names that differ only in case or surrounding blanks; empty without any.

    Examples
    --------
    >>> alike(["ios", "web", "iOS"]), alike(["ios", "web"])
    ("'ios' and 'iOS'", '')
    """
    known: dict[str, str] = {}
    pairs = ((known.setdefault(name.strip().casefold(), name), name) for name in names)
    return next((f"{first!r} and {name!r}" for first, name in pairs if first != name), "")


# ---- The learner from which a placement starts, read from its file


def start_learner(name: str, config: schema.PlacementConfig) -> tuple[Start, Learner]:
    """Read the learner from which a placement starts, with the arms of its configuration.

    Parameters
    ----------
    name : str
        Name of the placement.
    config : PlacementConfig
        Configuration with a ``start``.

    Raises
    ------
    ConfigError
        If the file cannot be read, or its learner has another policy or other arms.
    """
    path = Path(config.start or "")
    _check_path(str(path), f"placements.{name}.start")
    try:
        content = path.read_bytes()
        kept = from_bytes(content, str(path), lambda snapshot: snapshot)
    except OSError as error:
        raise ConfigError(
            f"placements.{name}.start: {path} cannot be read: {error.strerror}; write it with: "
            f"tacit fit LOG -o {path.name}"
        ) from error
    except SnapshotError as error:
        raise ConfigError(f"placements.{name}.start: {error}") from error
    kept = kept._replace(retired=[], propensities=config.propensities)
    learner = restored(_over_arms(name, config, kept))
    if not goes_on(config.policy, learner.policy):
        raise ConfigError(
            f"placements.{name}.start: {path}: {learner.policy} has learned it, the placement's "
            f"policy is {config.policy}; make them the same, or leave the start out"
        )
    digest = hashlib.sha256(content).hexdigest()
    return Start(path.name, digest, learner.decisions, len(learner)), learner


def _over_arms(name: str, config: schema.PlacementConfig, kept: LearnerSnapshot) -> LearnerSnapshot:
    """Return a snapshot with the arms of a placement, which must be the same in the same order.

    Raises
    ------
    ConfigError
        If the arms differ.
    """
    configured, its = (getattr(policy, "arms", None) for policy in (config.policy, kept.policy))
    if configured is None or its is None or _names(configured) == _names(its):
        return kept if configured is None else kept._replace(policy=kept.policy.with_arms(configured))
    same = sorted(_names(configured)) == sorted(_names(its))
    raise ConfigError(
        f"placements.{name}.start: {config.start}: it has learned the arms {_names(its)}"
        f"{', in this order' if same else ''}, and the placement has {_names(configured)}; configure "
        "them so, or fit another one"
    )


def _names(arms: int | tuple[str, ...]) -> list[str]:
    # Logs name arms even if they are numbered.
    return list(map(str, range(arms) if isinstance(arms, int) else arms))


# ---- The configuration file

VERSION = 1
"""Newest supported version of the configuration."""
PATHS = ("path", "archive")
"""Settings of the store that name files."""

DEFAULT_PLACEMENTS = {"default": {"arms": 5}}
PLACEMENT_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


class ConfigFile(msgspec.Struct, forbid_unknown_fields=True):
    placements: dict[str, Any]
    version: schema.Count = VERSION
    server: schema.ServerConfig = schema.ServerConfig()
    store: schema.StoreConfig = schema.StoreConfig()
    keys: dict[str, Any] = {}
    traces: schema.TracesConfig | None = None
    feeds: dict[str, HookTable] = {}
    export: schema.ExportConfig | None = None


def load_config(path: str | Path | None = None, overrides: Mapping[str, Any] | None = None) -> schema.Config:
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
    if "placement" in table and {"reward", "clicks", "items"} & table.keys() and "placements" not in table:
        raise ConfigError(f"{source}: it is the map of a feed, for tacit feed --map; give the service's file")
    table.setdefault("placements", {**DEFAULT_PLACEMENTS})
    for key, value in (overrides or {}).items():
        if value is not None:
            _replace(table, key.split(".", 2), value)
    _check_version(table, source)
    if "personalizer" in table:
        raise ConfigError(f"{source}: personalizer: {PERSONALIZER}; take [personalizer] out")
    _check_keys(table, ConfigFile, f"{source}: ")
    for section, kind in SECTIONS.items():
        _check_keys(table.get(section[1:-1]), kind, f"{source}: {section[1:-1]}.")
    file = _converted(table, ConfigFile, source, secret=("keys",))
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
    keys = {name: _key(name, raw, source) for name, raw in file.keys.items()}
    folder = Path() if path is None else Path(path).parent
    feeds = {name: _hook(name, table, source, folder) for name, table in file.feeds.items()}
    corrected = (name for name, raw in file.placements.items() if "correction_window" in raw)
    idle = tuple(name for name in corrected if placements[name].rule.late == "record")
    settings = file.server, file.store, keys, file.traces, feeds, file.export, idle
    return schema.Config(placements, *settings)


def _read(path: Path) -> dict[str, Any]:
    try:
        # Dates become text, as in requests.
        table: dict[str, Any] = msgspec.to_builtins(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {no_toml(error)}") from error
    placements = table.get("placements")
    started = placements.values() if isinstance(placements, dict) else ()
    _beside(path.parent, PATHS, table.get("store"))
    _beside(path.parent, ("properties",), table.get("export"))
    _beside(path.parent, ("start",), *started)
    return table


def _beside(folder: Path, names: Sequence[str], *tables: Any) -> None:
    """Make file names in tables relative to the folder of the configuration; absolute ones stay."""
    for table in tables:
        for name in names if isinstance(table, dict) else ():
            if isinstance(table.get(name), str):
                table[name] = str(folder / table[name])


def _check_paths(store: schema.StoreConfig, source: str) -> None:
    """Check the paths of the store: no URL, which would create a folder ``file:``, and no wrong kind of file.

    Raises
    ------
    ConfigError
        If a path does not fit.
    """
    for place in PATHS:
        value = getattr(store, place)
        _check_path(value or "", f"{source}: store.{place}")
        if value is not None and any(part.startswith("file:") for part in Path(value).parts):
            path = value.partition("file:")[2].partition("?")[0]
            raise ConfigError(f"{source}: store.{place}: {value} is an address; give the path alone: {path}")
        if value is not None and ":/" in value:
            raise ConfigError(
                f"{source}: store.{place}: {value} is an address; give that of a database as url"
            )
    if store.archive is not None and Path(store.archive).is_file():
        raise ConfigError(f"{source}: store.archive: {store.archive} is a file; give a folder")
    if store.url is None and Path(store.path).is_dir():
        such = Path(store.path) / schema.StoreConfig().path
        raise ConfigError(
            f"{source}: store.path: {store.path} is a folder; give a file in it, such as {such}"
        )


def _check_path(value: str, place: str) -> None:
    """Check that a path is possible for the file system, whether a file exists or not."""
    try:
        Path(value).stat()
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"{place}: {value[:60]!r}, of {len(value):,} characters, is no path ({why}); give another"
            ) from error


def _check_version(table: dict[str, Any], source: str) -> None:
    """Refuse a configuration of a newer version, before any of its unknown keys is reported."""
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


def _converted(table: Any, kind: type[Any], source: str, within: str = "", secret: Sequence[str] = ()) -> Any:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {refusal(error, table, kind, within, secret)}") from error


@contextmanager
def named_within(place: str) -> Iterator[None]:
    """Raise errors of the block as ConfigError, with a place of the configuration before the message."""
    try:
        yield
    except TacitError as error:
        raise ConfigError(f"{place}{error}") from error


def _check_name(name: str, key: str, what: str, source: str) -> None:
    if not PLACEMENT_NAME.fullmatch(name):
        raise ConfigError(
            f"{source}: {key}: {what} name stands in addresses; "
            "give 1 to 128 letters, digits, dots, hyphens and underscores"
        )


def _key(name: str, table: Any, source: str) -> KeyConfig:
    try:
        made: KeyConfig = _converted(table, KeyConfig, source, f"keys.{name}", ("", "sha256"))
    except ConfigError as error:
        raise ConfigError(f"{error}; tacit key {name} prints such a table") from error
    with named_within(f"{source}: keys.{name}."):
        made.check()
    return made


def _hook(name: str, table: HookTable, source: str, folder: Path) -> HookConfig:
    _check_name(name, f"feeds.{name}", "its", source)
    with named_within(f"{source}: feeds.{name}.map: "):
        events = map_at(folder / table.map)
    with named_within(f"{source}: feeds.{name}."):
        return HookConfig(events, secret_of(table, folder))


SECTIONS: dict[str, type[msgspec.Struct]] = {"[server]": schema.ServerConfig, "[store]": schema.StoreConfig}


def _check_keys(given: Any, kind: type[msgspec.Struct], place: str) -> None:
    """Refuse keys of a table that belong to another section or kind; known misspellings pass."""
    known = kind.__struct_fields__
    for key in given if isinstance(given, dict) else ():
        if key in known or MEANT.get(key) in known:
            continue
        kinds = [name for name in KINDS if key in kind_of(name).table.__struct_fields__]
        if kinds and issubclass(kind, PlacementTable):
            remedy = f"give kind = {kinds[0]!r}, or leave it out"
            raise ConfigError(f"{place}{key}: only placements of kind {' or '.join(kinds)} have it; {remedy}")
        sections = [name for name, other in SECTIONS.items() if key in other.__struct_fields__]
        for section in [*sections, "[placements.NAME]"][: len(sections or kinds)]:
            raise ConfigError(f"{place}{key}: it stands in {section}; write it below that")


def _check_within(given: Any, known: Sequence[str], place: str, source: str) -> None:
    """Refuse keys of a placement that were written below one of its inner tables."""
    for part in ("metrics", "holdout", "guardrail", "context"):
        inner: Any = given.get(part) if isinstance(given, dict) else None
        for key in filter(known.__contains__, inner) if isinstance(inner, dict) else ():
            with suppress(InvalidValue):
                if isinstance(inner[key], dict) or (part == "context" and declared(part, {key: inner[key]})):
                    continue
            remedy = f"it stands in [{place}]; write it above [{place}.{part}]"
            raise ConfigError(f"{source}: {place}.{part}.{key}: {inner[key]!r}: {remedy}")


PERSONALIZER = (
    "version 0.3 was the last to answer the Personalizer API; leave kind out and ask decide and feedback, "
    "as the page From Personalizer of the documentation shows"
)
REMOVED = {
    ("kind", "personalizer"): PERSONALIZER,
    ("mode", "apprentice"): "version 0.3 was the last to have it; leave mode out, and give a holdout with "
    'control = "baseline", which says how much more the policy earns than the first arm on offer',
}
"""Settings of placements that version 0.3 had and this one has not, each with a remedy."""


def _check_removed(table: Any, place: str) -> None:
    """Refuse settings that were removed since version 0.3."""
    for (key, value), remedy in REMOVED.items():
        if isinstance(table, dict) and table.get(key) == value:
            raise ConfigError(f"{place}.{key}: {value!r}: {remedy}")


def _placement(name: str, table: Any, source: str, retention: float | None) -> schema.PlacementConfig:
    key = f"placements.{name}"
    _check_name(name, key, "a placement's", source)
    _check_removed(table, f"{source}: {key}")
    kind = table.get("kind", schema.ARMS) if isinstance(table, dict) else schema.ARMS
    if not isinstance(kind, str) or kind not in KINDS:
        near = "".join(f"did you mean {each}? " for each in get_close_matches(str(kind), KINDS, 1))
        raise ConfigError(f"{source}: {key}.kind: {kind!r}: {near}give one of {', '.join(KINDS)}")
    _check_keys(table, kind_of(kind).table, f"{source}: {key}.")
    _check_within(table, kind_of(kind).table.__struct_fields__, key, source)
    raw: PlacementTable = _converted(table, kind_of(kind).table, source, key)
    with named_within(f"{source}: {key}: "):
        parts = raw.parts()
    with named_within(f"{source}: {key}."):
        return raw.configuration(*parts, retention)
