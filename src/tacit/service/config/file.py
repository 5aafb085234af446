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
from tacit.feed.event_map import Fixed, load_map
from tacit.interleaving.rules import CLICK
from tacit.learning.learner import Learner, restore_learner
from tacit.learning.snapshot import LearnerSnapshot, from_bytes
from tacit.policies import Policy, policy_to_spec
from tacit.policies.context import normalize_schema
from tacit.policies.spec import AUTO, is_compatible
from tacit.service.config import schema
from tacit.service.config.keys import HookConfig, HookTable, KeyConfig, is_loopback, load_secret
from tacit.service.config.tables import PlacementTable
from tacit.service.kind import KINDS, get_kind
from tacit.service.log.change_events import StartFile
from tacit.service.log.rows import SHADOW
from tacit.wire.error_messages import SYNONYMS, explain_error

Result = TypeVar("Result")


def check_field(field: str, check: Callable[[Any], Result], value: Any) -> Result:
    """Return ``check(value)``; if the check fails, raise its error again with ``field`` as the field.

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


def check_item(place: str, check: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    """Return ``check(*arguments)``.

    If the check fails, raise its error again with ``place.`` before the field.

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


def encode_settings(config: schema.PlacementConfig) -> str:
    """Encode the configuration of a placement as JSON text, without its arms and its start.

    A recommended policy is encoded as "auto".

    Examples
    --------
    >>> import tacit
    >>> json.loads(encode_settings(schema.PlacementConfig(tacit.Thompson(2))))["durability"]
    'committed'
    """
    fields = {name: getattr(config, name) for name in config.__struct_fields__}
    # Arms and the start have change events of their own.
    del fields["arms"]
    del fields["start"]
    # Settings that earlier versions stored lack this field, and must not differ.
    if fields["sticky"] is None:
        del fields["sticky"]
    if fields.pop("recommended"):
        fields["policy"] = AUTO
    return json.dumps({name: _to_json_value(value) for name, value in fields.items()}, sort_keys=True)


def get_policy_name(settings: str) -> Any:
    """Return the policy's name in the JSON text of :func:`encode_settings`; "auto" for a recommended policy.

    Examples
    --------
    >>> get_policy_name('{"policy": {"name": "UCB1"}}'), get_policy_name('{"policy": "auto"}')
    ('UCB1', 'auto')
    """
    policy = json.loads(settings)["policy"]
    return policy["name"] if isinstance(policy, dict) else policy


RULE_KEYS = {
    "window": "attribution_window", "activation": "activation_window", "correction": "correction_window",
    "default": "default_reward",
}  # fmt: skip
"""Configuration keys of the fields of a rule."""

POLICY_ARMS = "arms"
"""Field of a policy that settings omit: arms have change events of their own."""


def _to_json_value(value: Any) -> Any:
    """Return a setting as JSON data; a policy becomes its spec without its arms."""
    if isinstance(value, Policy):
        return _drop_arms(policy_to_spec(value))
    return msgspec.to_builtins(value, enc_hook=repr)


def _drop_arms(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a policy's spec without arms, also in the specs of inner policies."""
    return {
        name: _drop_arms(value) if isinstance(value, dict) else value
        for name, value in spec.items()
        if name != POLICY_ARMS
    }


def find_differences(before: str, now: str) -> dict[str, Any]:
    """Return {key: {"before": value, "after": value}} for the settings in which two JSON texts differ.

    Both texts come from :func:`encode_settings`; keys are named as in the configuration file, and sorted.

    Examples
    --------
    >>> find_differences('{"mode": "online", "seed": 7}', '{"mode": "frozen", "seed": 7}')
    {'mode': {'before': 'online', 'after': 'frozen'}}
    """
    old, new = (to_config_keys(json.loads(settings)) for settings in (before, now))
    return {
        name: {"before": old.get(name), "after": new.get(name)}
        for name in sorted(old | new)
        if old.get(name) != new.get(name)
    }


RESTART_SETTINGS = (
    "server.host", "server.port", "server.log", "store.path", "store.schema", "store.url", "traces", "export",
)  # fmt: skip
"""Settings that only a restart changes; the values of the last three may hold secrets."""


def to_config_keys(settings: dict[str, Any]) -> dict[str, Any]:
    """Return a placement's settings, as :func:`encode_settings` encodes them, by the file's keys.

    The fields of ``rule`` become keys of their own, and windows become seconds.
    """
    rule = {RULE_KEYS.get(name, name): value for name, value in (settings.get("rule") or {}).items()}
    rule |= {name: value / 1e6 for name, value in rule.items() if name.endswith("_window")}
    return {name: value for name, value in settings.items() if name != "rule"} | rule


def list_restart_changes(began: schema.Config, now: schema.Config) -> Iterator[str]:
    """Yield a sentence for each setting of :data:`RESTART_SETTINGS` in which two configurations differ.

    The sentence has both values, unless they may hold secrets.

    Parameters
    ----------
    began : Config
        Configuration with which the service started.
    now : Config
        New configuration.
    """
    for setting in RESTART_SETTINGS:
        old, new = (attrgetter(setting)(config) for config in (began, now))
        values = f"; still {old}" if setting in RESTART_SETTINGS[:-3] else ""
        if new != old:
            yield f"{setting}: {new if values else 'this'} needs a restart{values}"


def describe_placements(config: schema.Config) -> dict[str, dict[str, Any]]:
    """Return {placement name: {configuration key: value}} for all placements, arms included."""
    return {
        name: {"arms": placement.config_arms} | to_config_keys(json.loads(encode_settings(placement)))
        for name, placement in config.placements.items()
    }


def list_changes(old: Mapping[str, dict[str, Any]], config: schema.Config) -> Iterator[str]:
    """Yield sentences about placements that were removed, added or changed by a new configuration.

    Not compared are the mode, and settings that the old ones do not have.

    Parameters
    ----------
    old : mapping of str to dict
        Output of :func:`describe_placements`, or settings noted in a store.
    config : Config
        New configuration.
    """
    new = describe_placements(config)
    removed, added = sorted(old.keys() - new), sorted(new.keys() - old)
    stays = "no longer served; what it learned stays in the store"
    yield from (f"placements.{name}: {stays}" for name in removed)
    yield from (f"placements.{name}: served now, with what the store has of this name" for name in added)
    if removed and added:
        yield (
            f"placements.{added[0]}: if it is {removed[0]} renamed, it begins anew; "
            f"call it {removed[0]} to go on"
        )
    for name in sorted(old.keys() & new):
        # A mode is for new placements only; settings unknown to an older store are no change.
        past = {key: value for key, value in old[name].items() if key != "mode"}
        yield from list_differences(f"placements.{name}", past, {key: new[name].get(key) for key in past})


def list_kept_policies(config: schema.Config, learned: Mapping[str, Policy]) -> Iterator[str]:
    """Yield a sentence for each placement that keeps its learned policy although ``auto`` recommends another.

    Policies are compared by type; placements with ``rebuild`` are left out, because they are rebuilt.

    Parameters
    ----------
    config : Config
    learned : mapping of str to Policy
        Policy that each placement now has, by the placement's name.
    """
    for name, placement in config.placements.items():
        if not placement.recommended or placement.rebuild:
            continue
        policies = placement.policy, learned[name]
        # Minimum shares wrap a policy, and do not count.
        recommended_policy, current_policy = (getattr(policy, "policy", policy) for policy in policies)
        if type(recommended_policy) is not type(current_policy):
            yield (
                f"placements.{name}.policy: auto is {recommended_policy.label} as it is configured; "
                f"{current_policy.label}, which has learned, goes on; "
                "rebuild = true lets the other learn the log and take over"
            )


def list_differences(place: str, before: Any, now: Any) -> Iterator[str]:
    """Yield "PLACE.KEY: NEW, before: OLD" for each value that differs between two nested dicts."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in before | now:
            yield from list_differences(f"{place}.{name}", before.get(name), now.get(name))
    elif before != now:
        yield f"{place}: {now}, before: {before}"


LESS_IS_BETTER = re.compile("return|refund|complain|cancel|churn|bounce|unsubscri|error|laten|cost")
"""Parts of names of metrics of which less is usually better."""


def lint_config(config: schema.Config) -> Iterator[str]:
    """Yield a warning, with a remedy, for each allowed setting that is probably a mistake."""
    placements = config.placements.values()
    no_placement = f"none of the placements, {', '.join(config.placements)}; mend it"
    if config.placements.keys() == DEFAULT_PLACEMENTS.keys():
        yield "placements: default is the only one, as where none is configured; add [placements.NAME]"
    if config.store.archive is not None and all(placement.retention is None for placement in placements):
        yield "store.archive: nothing comes into it, as no row is dropped; give store.retention"
    for name in config.idle:
        yield f'placements.{name}.correction_window: nothing is corrected; give late = "correct", too'
    retentions = {placement.retention: f"placements.{name}" for name, placement in config.placements.items()}
    for days, where in (retentions | {config.store.retention: "store"}).items():
        if days is not None and 36_500 < days < math.inf:
            years = f"{days:.0f} days are {days / 365:.0f} years"
            yield f"{where}.retention: {years}; if seconds were meant, give {days / 86_400:g}"
    if config.traces is not None and not urlsplit(config.traces.endpoint).path.strip("/"):
        where = f"collectors take traces at {config.traces.endpoint.rstrip('/')}/v1/traces"
        yield f"traces.endpoint: {config.traces.endpoint} has no path; {where}"
    for name, hook in config.feeds.items():
        place = hook.map.placement
        if isinstance(place, Fixed) and place.value not in config.placements:
            yield f"feeds.{name}.map: placement: {place.value!r} is {no_placement}"
    hashes: dict[str, str] = {}
    for name, key in config.keys.items():
        if hashes.setdefault(key.sha256, name) != name:
            yield f"keys.{name}.sha256: that of {hashes[key.sha256]}, too; make another, or take one out"
        for pattern in key.placements or ():
            if not fnmatch.filter(config.placements, pattern):
                yield f"keys.{name}.placements: {pattern!r} fits {no_placement}"
    for name, placement in config.placements.items():
        yield from _lint_placement(f"placements.{name}", placement)


def _lint_placement(place: str, placement: schema.PlacementConfig) -> Iterator[str]:
    """Yield a warning for each setting of a placement that is probably a mistake.

    ``place`` is its name in messages.
    """
    metric = "" if placement.guardrail is None else placement.guardrail.metric
    if metric and LESS_IS_BETTER.search(metric) and placement.metrics[metric].better == "more":
        reason = "more of it is better, so the guardrail acts where there is less"
        yield f'{place}.metrics.{metric}: {reason}; give better = "less" if it is a harm'
    for field, value in to_config_keys({"rule": msgspec.to_builtins(placement.rule)}).items():
        # Over a week, thousands look like milliseconds; whole days may be multiples of 1000 s by coincidence.
        if field.endswith("_window") and value > 604_800 and not value % 1000 and value % 86_400:
            hint = f"{value / 86_400:.1f} days; if milliseconds were meant, give {value / 1000:g}"
            yield f"{place}.{field}: {value:.0f} s are {hint}"
    for name, metric_config in placement.metrics.items():
        if metric_config.half is not None:
            aim = "the mean of x/(x + half) is learned, which is another aim than the mean of x"
            yield f"{place}.metrics.{name}.half: {aim}; in a new placement give range = [0] or [0, LARGEST]"
    worth = getattr(placement.options, "worth", {})
    if CLICK not in worth and (matches := get_close_matches(CLICK, worth, 1, 0.8)):
        yield f"{place}.worth.{matches[0]}: clicks come as {CLICK}; did you mean that?"
    for arm, rate, trial_count in getattr(placement.policy, "priors", ()):
        if 0 < rate < 1 and trial_count >= 10 and trial_count == round(trial_count):
            counts = f"[{rate:g}, {trial_count:g}] are successes and failures"
            hint = f"give [{rate * trial_count:g}, {trial_count - rate * trial_count:g}]"
            yield f"{place}.priors.{arm}: {counts}; if a rate and a count were meant, {hint}"
    arms = placement.config_arms
    count = arms if isinstance(arms, int | None) else len(arms)
    positions = getattr(placement.policy, "positions", 0)
    lists: dict[str, Any] = {"context": dict(placement.policy.schema)}
    # A field holds a list of values, or the name of a type.
    lists |= {f"context.{field}": values for field, values in placement.policy.schema}
    for field, names in lists.items():
        if similar := find_similar_names([] if isinstance(names, str) else names):
            yield f"{place}.{field}: {similar} differ by capitals or blanks alone; keep one"
    if placement.can_shadow and placement.mode != SHADOW:
        unused = f"{place}.shadow: a new placement does not use it in the mode {placement.mode!r}"
        later = f"tacit placement mode {place.partition('.')[2]} --mode shadow"
        yield f'{unused}; give mode = "shadow", or later: {later}'
    if count == 1:
        yield f"{place}.arms: of one there is nothing to choose; give two or more"
    elif count is not None and positions > count:
        yield f"{place}.positions: {positions} are more than the {count} arms; give {count}"


def find_similar_names(names: Iterable[str]) -> str:
    """Return the first two names that differ only in case or surrounding blanks as text.

    "" if all are different.

    Examples
    --------
    >>> find_similar_names(["ios", "web", "iOS"]), find_similar_names(["ios", "web"])
    ("'ios' and 'iOS'", '')
    """
    first_names: dict[str, str] = {}
    pairs = ((first_names.setdefault(name.strip().casefold(), name), name) for name in names)
    return next((f"{first!r} and {name!r}" for first, name in pairs if first != name), "")


# ---- The learner from which a placement starts, read from its file


def start_learner(name: str, config: schema.PlacementConfig) -> tuple[StartFile, Learner]:
    """Read the learner from which a placement starts from its file; return the file's record and the learner.

    The record is for the log: name, SHA-256, and counts. The learner gets the placement's arms.

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
        # The snapshot itself: its arms are replaced before it becomes a learner.
        learner_snapshot = from_bytes(content, str(path), lambda snapshot: snapshot)
    except OSError as error:
        raise ConfigError(
            f"placements.{name}.start: {path} cannot be read: {error.strerror}; write it with: "
            f"tacit fit LOG -o {path.name}"
        ) from error
    except SnapshotError as error:
        raise ConfigError(f"placements.{name}.start: {error}") from error
    # Arms that were retired there are on offer here, if the placement has them.
    learner_snapshot = learner_snapshot._replace(retired=[], propensities=config.propensities)
    learner = restore_learner(_replace_arms(name, config, learner_snapshot))
    if not is_compatible(config.policy, learner.policy):
        raise ConfigError(
            f"placements.{name}.start: {path}: {learner.policy} has learned it, the placement's "
            f"policy is {config.policy}; make them the same, or leave the start out"
        )
    digest = hashlib.sha256(content).hexdigest()
    return StartFile(path.name, digest, learner.decisions, len(learner)), learner


def _replace_arms(name: str, config: schema.PlacementConfig, snapshot: LearnerSnapshot) -> LearnerSnapshot:
    """Return a learner's snapshot with the configured arms, which must have the same names and order.

    It is returned unchanged if arms come with requests.

    Raises
    ------
    ConfigError
        If the arms differ.
    """
    configured, snapshot_arms = (getattr(policy, "arms", None) for policy in (config.policy, snapshot.policy))
    if configured is None:
        return snapshot
    if snapshot_arms is None or _list_names(configured) == _list_names(snapshot_arms):
        return snapshot._replace(policy=snapshot.policy.with_arms(configured))
    same = sorted(_list_names(configured)) == sorted(_list_names(snapshot_arms))
    raise ConfigError(
        f"placements.{name}.start: {config.start}: it has learned the arms {_list_names(snapshot_arms)}"
        f"{', in this order' if same else ''}, and the placement has {_list_names(configured)}; configure "
        "them so, or fit another one"
    )


def _list_names(arms: int | tuple[str, ...]) -> list[str]:
    """Return the names of arms as text: "0", "1", … if only their number is configured."""
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
    """The tables of a configuration file; placements and keys are converted one by one."""

    placements: dict[str, Any]
    version: schema.Count = VERSION
    server: schema.ServerConfig = schema.ServerConfig()
    store: schema.StoreConfig = schema.StoreConfig()
    keys: dict[str, Any] = {}
    traces: schema.TracesConfig | None = None
    feeds: dict[str, HookTable] = {}
    export: schema.ExportConfig | None = None


def load_config(path: str | Path | None = None, overrides: Mapping[str, Any] | None = None) -> schema.Config:
    """Read a TOML file, replace some of its values, check everything and return the configuration.

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
    table = {} if path is None else _read_toml(Path(path))
    if "placement" in table and {"reward", "clicks", "items"} & table.keys() and "placements" not in table:
        raise ConfigError(f"{source}: it is the map of a feed, for tacit feed --map; give the service's file")
    table.setdefault("placements", {**DEFAULT_PLACEMENTS})
    for key, value in (overrides or {}).items():
        if value is not None:
            # Three parts at most, as placements.NAME.KEY.
            _set_value(table, key.split(".", 2), value)
    _check_version(table, source)
    if "personalizer" in table:
        raise ConfigError(f"{source}: personalizer: {PERSONALIZER}; take [personalizer] out")
    _check_keys(table, ConfigFile, f"{source}: ")
    for section, kind in SECTIONS.items():
        _check_keys(table.get(section[1:-1]), kind, f"{source}: {section[1:-1]}.")
    file = _convert_table(table, ConfigFile, source, secret=("keys",))
    _check_paths(file.store, source)
    if not file.placements:
        raise ConfigError(f"{source}: placements: there is none; add a table [placements.NAME]")
    placements = {
        name: _read_placement(name, raw, source, file.store.retention)
        for name, raw in file.placements.items()
    }
    if not file.keys and not is_loopback(file.server.host):
        raise ConfigError(
            f"{source}: server.host: {file.server.host} answers to other machines, which needs "
            "keys; make one with: tacit key NAME, or leave the host out"
        )
    keys = {name: _read_key(name, raw, source) for name, raw in file.keys.items()}
    folder = Path() if path is None else Path(path).parent
    feeds = {name: _read_hook(name, table, source, folder) for name, table in file.feeds.items()}
    corrected = (name for name, raw in file.placements.items() if "correction_window" in raw)
    idle = tuple(name for name in corrected if placements[name].rule.late == "record")
    settings = file.server, file.store, keys, file.traces, feeds, file.export, idle
    return schema.Config(placements, *settings)


def _read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file as a dict, with dates as text; relative paths in it become relative to its folder.

    Raises
    ------
    ConfigError
        If the file cannot be read or is not TOML.
    """
    try:
        # Dates become text, as in requests.
        table: dict[str, Any] = msgspec.to_builtins(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {no_toml(error)}") from error
    placements = table.get("placements")
    placement_tables = placements.values() if isinstance(placements, dict) else ()
    _resolve_paths(path.parent, PATHS, table.get("store"))
    _resolve_paths(path.parent, ("properties",), table.get("export"))
    _resolve_paths(path.parent, ("start",), *placement_tables)
    return table


def _resolve_paths(folder: Path, names: Sequence[str], *tables: Any) -> None:
    """Put the configuration's folder before relative file names in tables, in place.

    ``names`` are the keys of file names; values that are missing or no text, and tables that are no dict,
    stay.
    """
    for table in tables:
        for name in names if isinstance(table, dict) else ():
            if isinstance(table.get(name), str):
                table[name] = str(folder / table[name])


def _check_paths(store: schema.StoreConfig, source: str) -> None:
    """Check the store's paths: they must be no addresses, and no folders where files are expected.

    Raises
    ------
    ConfigError
        If a path does not fit.
    """
    for place in PATHS:
        value, reason = getattr(store, place) or "", ""
        _check_path(value, f"{source}: store.{place}")
        path = Path(value)
        if any(part.startswith("file:") for part in path.parts):
            reason = f"an address; give the path alone: {value.partition('file:')[2].partition('?')[0]}"
        elif ":/" in value:
            reason = "an address; give that of a database as url"
        elif place == "archive" and path.is_file():
            reason = "a file; give a folder"
        elif place == "path" and store.url is None and path.is_dir():
            reason = f"a folder; give a file in it, such as {path / schema.StoreConfig().path}"
        if reason:
            raise ConfigError(f"{source}: store.{place}: {value} is {reason}")


def _check_path(value: str, place: str) -> None:
    """Raise ConfigError if no file can have this path: it is too long, or has null bytes."""
    try:
        Path(value).stat()
    except (OSError, ValueError) as error:
        # Other errors, as of a missing file, do not come from the path's form.
        if isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"{place}: {value[:60]!r}, of {len(value):,} characters, is no path ({why}); give another"
            ) from error


def _check_version(table: dict[str, Any], source: str) -> None:
    """Raise ConfigError if the table's version is newer than the supported one."""
    version = table.get("version", VERSION)
    if isinstance(version, int) and version > VERSION:
        raise ConfigError(
            f"{source}: version: {version} is newer than this tacit, which reads up to {VERSION}; "
            "update tacit"
        )


def _set_value(table: dict[str, Any], keys: list[str], value: Any) -> None:
    """Set the value at a path of keys in a nested table, in place; missing inner tables are created."""
    *outer, last = keys
    for key in outer:
        inner = table.get(key, {})
        table[key] = table = dict(inner) if isinstance(inner, dict) else {}
    table[last] = value


def _convert_table(
    table: Any, kind: type[Any], source: str, within: str = "", secret: Sequence[str] = ()
) -> Any:
    """Convert a table to a struct; errors name the field, its value, and the allowed values.

    ``within`` is the table's place in the file. The values of ``secret`` keys are not shown.

    Raises
    ------
    ConfigError
        If a key is unknown or a value is not allowed; the message hides the values of ``secret`` keys.
    """
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {explain_error(error, table, kind, within, secret)}") from error


@contextmanager
def add_location(place: str) -> Iterator[None]:
    """In a ``with`` block: raise a TacitError again as ConfigError, with ``place`` before its message."""
    try:
        yield
    except TacitError as error:
        raise ConfigError(f"{place}{error}") from error


def _check_name(name: str, key: str, what: str, source: str) -> None:
    """Raise ConfigError if a name of a placement or feed has characters that URLs cannot have.

    ``what`` says whose name it is, in the message.
    """
    if not PLACEMENT_NAME.fullmatch(name):
        raise ConfigError(
            f"{source}: {key}: {what} name stands in addresses; "
            "give 1 to 128 letters, digits, dots, hyphens and underscores"
        )


def _read_key(name: str, table: Any, source: str) -> KeyConfig:
    """Convert the table of an API key to its configuration and check it.

    Raise ConfigError if it is invalid.
    """
    try:
        # "" stands for the whole value, which by mistake may be a key.
        config: KeyConfig = _convert_table(table, KeyConfig, source, f"keys.{name}", secret=("", "sha256"))
    except ConfigError as error:
        raise ConfigError(f"{error}; tacit key {name} prints such a table") from error
    with add_location(f"{source}: keys.{name}."):
        config.check()
    return config


def _read_hook(name: str, table: HookTable, source: str, folder: Path) -> HookConfig:
    """Read a webhook feed's event map and secret from their files; raise ConfigError if that fails."""
    _check_name(name, f"feeds.{name}", "its", source)
    with add_location(f"{source}: feeds.{name}.map: "):
        events = load_map(folder / table.map)
        events.check_live()
    with add_location(f"{source}: feeds.{name}."):
        return HookConfig(events, load_secret(table, folder))


SECTIONS: dict[str, type[msgspec.Struct]] = {"[server]": schema.ServerConfig, "[store]": schema.StoreConfig}


def _check_keys(table: Any, kind: type[msgspec.Struct], place: str) -> None:
    """Raise ConfigError for a key of a table that belongs to another section or kind of placement.

    ``kind`` is the table's struct, ``place`` its name in messages. Other unknown keys pass here, and are
    refused by the conversion.
    """
    fields = kind.__struct_fields__
    for key in table if isinstance(table, dict) else ():
        if key in fields or ("kind" in table and SYNONYMS.get(key) in fields):
            continue
        kinds = [name for name in KINDS if key in get_kind(name).table.__struct_fields__]
        if kinds and issubclass(kind, PlacementTable):
            remedy = f"give kind = {kinds[0]!r}, or leave it out"
            raise ConfigError(f"{place}{key}: only placements of kind {' or '.join(kinds)} have it; {remedy}")
        sections = [name for name, section_kind in SECTIONS.items() if key in section_kind.__struct_fields__]
        # The first section that has the key, or else placements if a kind has it; no section for other keys.
        for section in [*sections, "[placements.NAME]"][: len(sections or kinds)]:
            raise ConfigError(f"{place}{key}: it stands in {section}; write it below that")


def _check_inner_tables(table: Any, placement_keys: Sequence[str], place: str, source: str) -> None:
    """Raise ConfigError if a key of the placement is written in one of its inner tables, such as metrics."""
    for part in ("metrics", "holdout", "guardrail", "context"):
        inner: Any = table.get(part) if isinstance(table, dict) else None
        for key in filter(placement_keys.__contains__, inner) if isinstance(inner, dict) else ():
            # A metric or a field of a context may have the name of a key; its value is a table or a type.
            with suppress(InvalidValue):
                if isinstance(inner[key], dict) or (
                    part == "context" and normalize_schema(part, {key: inner[key]})
                ):
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
"""Settings of placements and their values that were removed after version 0.3, each with a remedy."""


def _check_removed(table: Any, place: str) -> None:
    """Raise ConfigError, with the remedy, if a setting has a value that was removed after version 0.3."""
    for (key, value), remedy in REMOVED.items():
        if isinstance(table, dict) and table.get(key) == value:
            raise ConfigError(f"{place}.{key}: {value!r}: {remedy}")


def _read_placement(name: str, table: Any, source: str, retention: float | None) -> schema.PlacementConfig:
    """Check a placement's table, and return its configuration; raise ConfigError if it is invalid.

    ``retention`` is the store's, in days, for a placement without its own.
    """
    key = f"placements.{name}"
    _check_name(name, key, "a placement's", source)
    _check_removed(table, f"{source}: {key}")
    kind = table.get("kind", schema.ARMS) if isinstance(table, dict) else schema.ARMS
    if not isinstance(kind, str) or kind not in KINDS:
        hint = "".join(f"did you mean {match}? " for match in get_close_matches(str(kind), KINDS, 1))
        raise ConfigError(f"{source}: {key}.kind: {kind!r}: {hint}give one of {', '.join(KINDS)}")
    _check_keys(table, get_kind(kind).table, f"{source}: {key}.")
    _check_inner_tables(table, get_kind(kind).table.__struct_fields__, key, source)
    raw: PlacementTable = _convert_table(table, get_kind(kind).table, source, key)
    with add_location(f"{source}: {key}: "):
        parts = raw.make_parts()
    with add_location(f"{source}: {key}."):
        return raw.configuration(*parts, retention)
