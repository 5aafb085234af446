"""What travels about the service as a whole: its placements, its shards, how it is, whom it forgot."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tacit.wire.lift import GuardrailNow


class Blanked(msgspec.Struct):
    """Rows of a placement, in its log and its archive, that named somebody."""

    decisions: int
    records: int


class Forgotten(msgspec.Struct):
    """What named somebody until now, by placement; nothing where nothing did."""

    placements: dict[str, Blanked]


class PlacementSummary(msgspec.Struct):
    """A placement and how far it has come."""

    name: str
    kind: Annotated[str, Meta(description="What it decides.", examples=["arms", "duels"])]
    mode: str
    durability: str
    policy: Annotated[dict[str, Any], Meta(description="Its name and hyperparameters.")]
    arms: Annotated[list[int | str], Meta(description="Those on offer.")]
    keys: int
    decisions: int
    feedback: int
    rewards: Annotated[float, Meta(description="Sum of all rewards.")]
    pending: Annotated[int, Meta(description="Decisions whose windows are open.")]
    outcomes: Annotated[dict[str, int], Meta(description="How often feedback came to what.")]
    seed: Annotated[int, Meta(description="Where, with its id, a decision's draws come from.")]
    shared_seconds: Annotated[
        float | None,
        Meta(
            description="In shards: how old what they know of each other is, at most; null where "
            "they share nothing, or have not yet."
        ),
    ] = None
    retired: Annotated[list[int | str], Meta(description="Arms that are shown no more.")] = []
    pinned: Annotated[
        list[int | str] | None, Meta(description="What every decision shows that offers it.")
    ] = None
    guardrail: Annotated[
        GuardrailNow | None, Meta(description="What must not be harmed, and which harm was proved.")
    ] = None


class ShardSummary(msgspec.Struct):
    """One of several shards."""

    number: int
    pid: Annotated[int | None, Meta(description="Of its process, on the machine where it is.")]
    up: Annotated[bool, Meta(description="Whether it answers.")]
    losses: Annotated[int, Meta(description="How often it was lost since the start.")]
    recovery_seconds: Annotated[
        float | None, Meta(description="How long it took to come back the last time.")
    ]
    waiting: Annotated[int, Meta(description="Requests on their way to it.")]
    events: Annotated[int | None, Meta(description="Rows of its log.")]


class Placements(msgspec.Struct):
    """All placements, and the shards if there are several."""

    placements: list[PlacementSummary]
    shards: list[ShardSummary] = []


class Status(msgspec.Struct):
    """How the service is."""

    status: Annotated[str, Meta(examples=["ok"])]


Offsets = dict[Annotated[str, Meta(max_length=64)], Annotated[int, Meta(ge=0)]]
Counted = Annotated[dict[Annotated[str, Meta(max_length=64)], int], Meta(max_length=64)]


class FeedReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How far somebody is who feeds events to the service."""

    read: Annotated[int, Meta(ge=0, description="Events that were read.")] = 0
    left_out: Annotated[int, Meta(ge=0, description="Those that the map leaves out.")] = 0
    sent: Annotated[Counted, Meta(description="By what the service made of them.")] = {}
    rejected: Annotated[Counted, Meta(description="By reason.")] = {}
    rate: Annotated[float, Meta(ge=0, description="Events read per second, lately.")] = 0.0
    last: Annotated[
        float | None, Meta(description="When the last one happened, in seconds since 1970, if events say it.")
    ] = None
    ended: Annotated[bool, Meta(description="Whether there are no more.")] = False


Events = Annotated[
    dict[str, Any] | list[dict[str, Any]],
    Meta(description="An event, or many: whatever the map of the feed reads."),
]


class EventsTaken(msgspec.Struct, frozen=True):
    """What became of events: that some were rejected is no reason to send them again."""

    read: Annotated[int, Meta(description="Events of the body.")]
    left_out: Annotated[int, Meta(description="Those that the map leaves out.")]
    sent: Annotated[dict[str, int], Meta(description="By what was made of them.")]
    rejected: Annotated[dict[str, int], Meta(description="By reason.")]
    first: Annotated[dict[str, str], Meta(description="What is wrong with the first one, by reason.")]


class FedOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a feed has come: all its events before these offsets are with the service."""

    feed: Annotated[str, Meta(min_length=1, max_length=256)]
    offsets: Annotated[Offsets, Meta(min_length=1, max_length=10_000, description="By part of the feed.")]


class FedNow(msgspec.Struct, frozen=True):
    """Where a feed goes on, by its parts; without one that never came."""

    offsets: Offsets


class FeedNow(FeedReport, frozen=True, kw_only=True):
    """A feed, as it was reported last."""

    name: str
    seconds: Annotated[float, Meta(description="How long ago it was reported.")]
    lag: Annotated[
        float | None, Meta(description="Seconds from the last event to its report; null where none says it.")
    ]


class FeedsNow(msgspec.Struct, frozen=True):
    """The feeds that reported since the service began; of one key, where it reaches some placements only."""

    feeds: list[FeedNow]
