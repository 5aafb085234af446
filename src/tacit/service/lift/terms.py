"""The terms of a lift: the holdout and the rules that hold since a mark of the log."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tacit.proof.sentences import percent
from tacit.service.config.holdout import HoldoutConfig, MetricConfig

NO_HOLDOUT = "null"
"""What a mark says where there is no holdout."""


class _Terms(msgspec.Struct):
    holdout: HoldoutConfig | None = None
    configured: HoldoutConfig | UnsetType | None = UNSET


def terms_of(
    holdout: HoldoutConfig | None, rules: dict[str, Any], configured: HoldoutConfig | UnsetType | None = UNSET
) -> str:
    """Return the value of a mark.

    Parameters
    ----------
    holdout : HoldoutConfig or None
        The one that holds.
    rules : dict
        What else the sums rest on.
    configured : HoldoutConfig or None, optional
        The one of the configuration, in whose place somebody has put the other.

    Examples
    --------
    >>> terms_of(None, {}), terms_of(None, {}, HoldoutConfig(share=0.2))[:35]
    ('null', '{"configured":{"control":"uniform",')
    """
    if holdout is None and configured is UNSET:
        return NO_HOLDOUT
    terms = {"holdout": _told(holdout), **rules}
    if configured is not UNSET:
        terms["configured"] = _told(configured)
    return msgspec.json.encode(terms, order="sorted").decode()


def _told(holdout: HoldoutConfig | UnsetType | None) -> Any:
    """Return a holdout as marks have it: without a look where none is planned, as ever."""
    told = msgspec.to_builtins(holdout)
    if told is not None and told["look"] is None:
        del told["look"]
    return told


def holdout_in(terms: str) -> HoldoutConfig | None:
    """Return the holdout that a mark tells."""
    return _read(terms).holdout


def configured_in(terms: str) -> HoldoutConfig | UnsetType | None:
    """Return the holdout of the configuration that a mark puts another in the place of."""
    return _read(terms).configured


def look_in(terms: str) -> int | None:
    """Return when a look is planned, in microseconds since 1970."""
    holdout = holdout_in(terms)
    return None if holdout is None else holdout.looked


@cache
def rule_in(terms: str) -> Any:
    """Return the rule of rewards that a mark tells."""
    return (json.loads(terms) or {}).get("rule")


@cache
def metrics_in(terms: str) -> dict[str, Any]:
    """Return the metrics that a mark tells, as they were configured."""
    return (json.loads(terms) or {}).get("metrics", {})  # type: ignore[no-any-return]


def metric_configs_in(terms: str) -> dict[str, MetricConfig] | None:
    """Return the metrics that a mark tells; None without a holdout, where it tells none."""
    if holdout_in(terms) is None:
        return None
    return msgspec.convert(metrics_in(terms), dict[str, MetricConfig])


def change_between(terms: str, after: str) -> str:
    """Return in words what ended a chapter of some terms, and began another one.

    Examples
    --------
    >>> tenth, fifth = (terms_of(HoldoutConfig(share), {}) for share in (0.1, 0.2))
    >>> change_between(tenth, fifth), change_between(fifth, "null")
    ('the share became 20 %', 'the holdout ended')
    """
    old, new = holdout_in(terms), holdout_in(after)
    if old is None or new is None:
        return "the holdout ended" if new is None else "a holdout was set up"
    told = []
    if old.share != new.share:
        told.append(f"the share became {percent(new.share)}")
    if old.control != new.control:
        told.append(f"the control became {new.named}")
    if old.unit != new.unit:
        told.append(f"the unit became the {new.unit}")
    if rule_in(terms) != rule_in(after):
        told.append("the rule of rewards changed")
    if metrics_in(terms) != metrics_in(after):
        told.append("the metrics changed")
    if old.look != new.look:
        told.append("a look was planned" if new.look else "the planned look was dropped")
    return ", ".join(told) or "what the control shows changed"


@cache
def _read(terms: str) -> _Terms:
    return msgspec.json.decode(terms, type=_Terms | None) or _Terms()
