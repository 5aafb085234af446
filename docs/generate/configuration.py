"""The reference of the service's configuration, from its classes."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from generate.http import shape
from generate.tables import attributes, code, summary, table
from tacit.service.config import schema as config
from tacit.service.config.holdout import ControlTable, GuardrailConfig, HoldoutConfig, MetricConfig
from tacit.service.config.keys import HookTable, KeyConfig
from tacit.service.config.tables import PlacementTable
from tacit.service.kind import KINDS, get_kind

TABLES: dict[str, tuple[str, type]] = {
    "server": ("", config.ServerConfig),
    "store": ("", config.StoreConfig),
    "keys.NAME": ("", KeyConfig),
    "traces": ("", config.TracesConfig),
    "feeds.NAME": ("", HookTable),
    "export": ("", config.ExportConfig),
    **{
        f"placements.NAME, kind {kind}": (kind, structure)
        for kind, structure in ((name, get_kind(name).table) for name in KINDS)
    },
    "placements.NAME.holdout": ("", HoldoutConfig),
    "placements.NAME.holdout.control": ("", ControlTable),
    "placements.NAME.metrics.METRIC": ("", MetricConfig),
    "placements.NAME.guardrail": ("", GuardrailConfig),
}


def part() -> str:
    """Return every table of the file with its keys."""
    return "\n\n".join(section(title, kind, what) for title, (kind, what) in TABLES.items())


def section(title: str, kind: str, structure: type) -> str:
    """Return one table of the file."""
    inherited = [
        name
        for name in PlacementTable.__struct_fields__
        if kind and kind != config.ARMS and not differs(structure, name)
    ]
    rows = [row for name, row in keys(structure).items() if name not in inherited]
    after = f"\n\nAs for the kind `arms`: {', '.join(map(code, inherited))}." if inherited else ""
    name = f"`[{title.partition(',')[0]}]`"
    which = f', `kind = "{kind}"`' if kind else ""
    return (
        f"## {name}{which}{anchor(structure)}\n\n{summary(structure)}\n\n"
        f"{table(['key', 'type', 'default', 'meaning'], rows)}{after}"
    )


def anchor(structure: type) -> str:
    """Return the anchor of a table that others hold, by which their keys link to it."""
    nested = structure in (HoldoutConfig, ControlTable, MetricConfig, GuardrailConfig)
    return f" {{ #{structure.__name__.lower()} }}" if nested else ""


def differs(structure: type, name: str) -> bool:
    """Say whether a kind of placement has another type or default for a key that all have."""
    ours, theirs = (_fields(one)[name] for one in (structure, PlacementTable))
    return (ours.type, ours.default) != (theirs.type, theirs.default) or ours.required


def keys(structure: type) -> dict[str, list[str]]:
    """Return the row of every key."""
    properties = schema_of(structure)
    meanings = attributes(structure)
    return {
        name: [code(name), kind(what), default(what, structure, name), meanings.get(name, "")]
        for name, what in properties.items()
    }


def kind(schema: dict[str, Any]) -> str:
    """Return the type of a key, in which null has no part, because TOML has none.

    Examples
    --------
    >>> kind({"anyOf": [{"type": "object"}, {"type": "null"}]})
    'table'
    """
    return shape(schema).replace(" or null", "").replace("object", "table")


def schema_of(structure: type) -> dict[str, Any]:
    """Return the JSON schemas of a structure's fields."""
    (reference,), components = msgspec.json.schema_components([structure])
    found: dict[str, Any] = components[reference["$ref"].rpartition("/")[2]]["properties"]
    return found


def default(schema: dict[str, Any], structure: type, name: str) -> str:
    """Return the default of a key."""
    if _fields(structure)[name].required:
        return "must be given"
    value = schema.get("default")
    return "" if value is None else code(json.dumps(value))


def _fields(structure: type) -> dict[str, Any]:
    return {field.encode_name: field for field in msgspec.structs.fields(structure)}
