"""A client of the decision service, sync and async, whose retries decide and count nothing twice.

Needs the extra ``client``; nothing else in the package imports it.
"""

from __future__ import annotations

from tacit.errors import MissingExtra

try:
    import httpx  # noqa: F401
    import msgspec  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra(error.name or "a package", "client") from error

from tacit.client.clients import AsyncClient, Client
from tacit.client.errors import (
    Conflict,
    Denied,
    InvalidRequest,
    NotFound,
    ServiceError,
    Unavailable,
)
from tacit.client.messages import (
    Between,
    Clicks,
    Decided,
    Dueled,
    DuelsOfKey,
    Earned,
    Feedback,
    Impression,
    Listed,
    Recorded,
    Search,
    Standings,
    Would,
    WouldDuel,
    WouldSlate,
)

__all__ = [
    "AsyncClient",
    "Between",
    "Clicks",
    "Client",
    "Conflict",
    "Decided",
    "Denied",
    "Dueled",
    "DuelsOfKey",
    "Earned",
    "Feedback",
    "Impression",
    "InvalidRequest",
    "Listed",
    "NotFound",
    "Recorded",
    "Search",
    "ServiceError",
    "Standings",
    "Unavailable",
    "Would",
    "WouldDuel",
    "WouldSlate",
]
