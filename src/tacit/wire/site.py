"""What travels about the service as a whole: its placements, its shards, how it is, whom it forgot."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tacit.wire.guardrail import GuardrailNow


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
