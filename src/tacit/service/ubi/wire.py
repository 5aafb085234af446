"""What travels for User Behavior Insights (UBI 1.3): its records, as they are."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tacit.service.api.wire import Durability

Records = Annotated[list[dict[str, Any]], Meta(max_length=1000)]


class UbiRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Query and event records, as the JSON schemas of UBI 1.3 say."""

    queries: Records = []
    events: Records = []


class UbiOutcome(msgspec.Struct, omit_defaults=True):
    """What became of a record.

    The outcome is that of feedback, if it is about a decision made here, and ``known`` for the
    query record of one; ``kept``, if it is not or its action does not count: kept as it came, and
    nothing learned; ``duplicate``, if it was kept before; or the kind of its problem, with the
    field and what is wrong with it.
    """

    outcome: str
    decision_id: str | None = None
    field: str | None = None
    detail: str | None = None


class UbiAnswer(msgspec.Struct):
    """What became of each record, in the order of the request."""

    queries: list[UbiOutcome]
    events: list[UbiOutcome]
    durability: Durability
