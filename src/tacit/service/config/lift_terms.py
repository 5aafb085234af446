"""Terms of a lift: holdout, rule of rewards and metrics, as the JSON value of a change event."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tacit.service.config.holdout import HoldoutConfig, MetricConfig
from tacit.uplift.sentences import percent

NO_HOLDOUT = "null"
"""Value of a change event without a holdout."""


class _Terms(msgspec.Struct):
    """The holdouts in terms; ``configured`` is UNSET unless a request has replaced the configured one."""

    holdout: HoldoutConfig | None = None
    configured: HoldoutConfig | UnsetType | None = UNSET


def encode_terms(
    holdout: HoldoutConfig | None, rules: dict[str, Any], configured: HoldoutConfig | UnsetType | None = UNSET
) -> str:
    """Encode the terms of a lift as JSON, the value of a change event; "null" without a holdout.

    Parameters
    ----------
    holdout : HoldoutConfig or None
        The current holdout.
    rules : dict
        Other terms of the sums: the rule of rewards and the metrics.
    configured : HoldoutConfig or None, optional
        The holdout of the configuration, if a request has replaced it.

    Examples
    --------
    >>> encode_terms(None, {}), encode_terms(None, {}, HoldoutConfig(share=0.2))[:35]
    ('null', '{"configured":{"control":"uniform",')
    """
    if holdout is None and configured is UNSET:
        return NO_HOLDOUT
    terms = {"holdout": _to_json_data(holdout), **rules}
    if configured is not UNSET:
        terms["configured"] = _to_json_data(configured)
    return msgspec.json.encode(terms, order="sorted").decode()


def _to_json_data(holdout: HoldoutConfig | UnsetType | None) -> Any:
    """Convert a holdout to JSON data; ``look`` is left out if none is planned, as in earlier logs."""
    plain = msgspec.to_builtins(holdout)
    if plain is not None and plain["look"] is None:
        del plain["look"]
    return plain


def parse_holdout(terms: str) -> HoldoutConfig | None:
    """Return the current holdout in the JSON of terms; None without one."""
    return _parse_terms(terms).holdout


def parse_configured_holdout(terms: str) -> HoldoutConfig | UnsetType | None:
    """Return the configured holdout in the terms if a request has replaced it; UNSET if not.

    None if a request has begun a holdout and none is configured.
    """
    return _parse_terms(terms).configured


def parse_look_time(terms: str) -> int | None:
    """Return the time of the planned look in the terms, in microseconds since 1970; None without one."""
    holdout = parse_holdout(terms)
    return None if holdout is None else holdout.look_time


@cache
def parse_rule(terms: str) -> Any:
    """Return the rule of rewards in the terms as JSON data; None without one."""
    return (json.loads(terms) or {}).get("rule")


@cache
def parse_metrics(terms: str) -> dict[str, Any]:
    """Return the metrics in the terms by name, as JSON data; {} without any."""
    return (json.loads(terms) or {}).get("metrics", {})  # type: ignore[no-any-return]


def parse_metric_configs(terms: str) -> dict[str, MetricConfig] | None:
    """Return the configurations of the metrics in the terms, by name; None without a holdout."""
    if parse_holdout(terms) is None:
        return None
    return msgspec.convert(parse_metrics(terms), dict[str, MetricConfig])


def describe_change(terms: str, after: str) -> str:
    """Describe in words how terms changed from one period (``terms``) to the next (``after``).

    Examples
    --------
    >>> tenth, fifth = (encode_terms(HoldoutConfig(share), {}) for share in (0.1, 0.2))
    >>> describe_change(tenth, fifth), describe_change(fifth, "null")
    ('the share became 20 %', 'the holdout ended')
    """
    old, new = parse_holdout(terms), parse_holdout(after)
    if old is None or new is None:
        return "the holdout ended" if new is None else "a holdout was set up"
    changes = []
    if old.share != new.share:
        changes.append(f"the share became {percent(new.share)}")
    if old.control != new.control:
        changes.append(f"the control became {new.named}")
    if old.unit != new.unit:
        changes.append(f"the unit became the {new.unit}")
    if parse_rule(terms) != parse_rule(after):
        changes.append("the rule of rewards changed")
    if parse_metrics(terms) != parse_metrics(after):
        changes.append("the metrics changed")
    if old.look != new.look:
        changes.append("a look was planned" if new.look else "the planned look was dropped")
    return ", ".join(changes) or "what the control shows changed"


@cache
def _parse_terms(terms: str) -> _Terms:
    """Parse the JSON of terms; "null" gives terms without a holdout."""
    return msgspec.json.decode(terms, type=_Terms | None) or _Terms()
