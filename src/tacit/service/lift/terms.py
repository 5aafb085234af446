"""The terms of a lift: the holdout and the rules that hold since a mark of the log."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tacit.service.config.holdout import HoldoutConfig

NO_HOLDOUT = "null"
"""What a mark says where there is no holdout."""


class _Terms(msgspec.Struct):
    holdout: HoldoutConfig | None = None
    configured: HoldoutConfig | UnsetType | None = UNSET


def terms_of(
    holdout: HoldoutConfig | None,
    rules: dict[str, Any],
    configured: HoldoutConfig | UnsetType | None = UNSET,
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
    terms = {"holdout": holdout, **rules}
    if configured is not UNSET:
        terms["configured"] = configured
    return msgspec.json.encode(terms, order="sorted").decode()


def holdout_in(terms: str) -> HoldoutConfig | None:
    """Return the holdout that a mark tells."""
    return _read(terms).holdout


def configured_in(terms: str) -> HoldoutConfig | UnsetType | None:
    """Return the holdout of the configuration that a mark puts another in the place of."""
    return _read(terms).configured


def _read(terms: str) -> _Terms:
    return msgspec.json.decode(terms, type=_Terms | None) or _Terms()
