"""Clients of the decision service, sync and async, whose retries never decide or count anything twice.

Needs the extra ``client``; nothing else in the package imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit.errors import MissingExtra

try:
    import httpx  # noqa: F401
    import msgspec  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra(error.name or "a package", "client") from error

from tacit.client.call import Conflict, Denied, InvalidRequest, NotFound, ServiceError, Unavailable
from tacit.client.clients import AsyncClient, Client
from tacit.wire.control import Change, Holdout, Pinned, Rebuilt, StateKept
from tacit.wire.decisions import Decided, Feedback, Impression, LocalDecision, Recorded, TakenOver, Would
from tacit.wire.lift import ArmForAll, ArmForThem, FieldForWhom, ForWhom, UserSegment
from tacit.wire.lift import Bounds as Between
from tacit.wire.lift import LiftReport as Earned
from tacit.wire.lists import (
    Clicks,
    Dueled,
    DuelsOfKey,
    Listed,
    Search,
    Standings,
    Verdict,
    WouldDuel,
    WouldSlate,
)
from tacit.wire.site import FeedReport

if TYPE_CHECKING:
    from tacit.client.local import Local as Local


def __getattr__(name: str) -> Any:
    """Return ``Local``, imported at its first use; raise ``AttributeError`` for any other name."""
    # Imported when it is first used, since it imports the learners, which the other clients do not need.
    if name == "Local":
        from tacit.client.local import Local

        return Local
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ArmForAll",
    "ArmForThem",
    "AsyncClient",
    "Between",
    "Change",
    "Clicks",
    "Client",
    "Conflict",
    "Decided",
    "Denied",
    "Dueled",
    "DuelsOfKey",
    "Earned",
    "FeedReport",
    "Feedback",
    "FieldForWhom",
    "ForWhom",
    "Holdout",
    "Impression",
    "InvalidRequest",
    "Listed",
    "Local",
    "LocalDecision",
    "NotFound",
    "Pinned",
    "Rebuilt",
    "Recorded",
    "Search",
    "ServiceError",
    "Standings",
    "StateKept",
    "TakenOver",
    "Unavailable",
    "UserSegment",
    "Verdict",
    "Would",
    "WouldDuel",
    "WouldSlate",
]
