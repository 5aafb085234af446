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
    """A placement and how far it has come.

    Attributes
    ----------
    name : str
    kind : str
        What it decides.
    mode, durability : str
    policy : dict of str to object
        Its name and hyperparameters.
    arms : list of int or str
        Those on offer.
    keys, decisions, feedback : int
    rewards : float
        Sum of all rewards.
    pending : int
        Decisions whose windows are open.
    outcomes : dict of str to int
        How often feedback came to what.
    seed : int
        Where, with its id, a decision's draws come from.
    shared_seconds : float, optional
        In shards: how old what they know of each other is, at most; None where they share nothing, or
        have not yet.
    retired : list of int or str, optional
        Arms that are shown no more.
    pinned : list of int or str, optional
        What every decision shows that offers it.
    guardrail : GuardrailNow, optional
        What must not be harmed, and which harm was proved.
    """

    name: str
    kind: Annotated[str, Meta(examples=["arms", "duels"])]
    mode: str
    durability: str
    policy: dict[str, Any]
    arms: list[int | str]
    keys: int
    decisions: int
    feedback: int
    rewards: float
    pending: int
    outcomes: dict[str, int]
    seed: int
    shared_seconds: float | None = None
    retired: list[int | str] = []
    pinned: list[int | str] | None = None
    guardrail: GuardrailNow | None = None


class ShardSummary(msgspec.Struct):
    """One of several shards.

    Attributes
    ----------
    number : int
    pid : int or None
        Of its process, on the machine where it is.
    up : bool
        Whether it answers.
    losses : int
        How often it was lost since the start.
    recovery_seconds : float or None
        How long it took to come back the last time.
    waiting : int
        Requests on their way to it.
    events : int or None
        Rows of its log.
    """

    number: int
    pid: int | None
    up: bool
    losses: int
    recovery_seconds: float | None
    waiting: int
    events: int | None


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
    """How far somebody is who feeds events to the service.

    Attributes
    ----------
    read : int, default 0
        Events that were read.
    left_out : int, default 0
        Those that the map leaves out.
    sent : dict of str to int, default {}
        By what the service made of them.
    rejected : dict of str to int, default {}
        By reason.
    rate : float, default 0.0
        Events read per second, lately.
    last : float, optional
        When the last one happened, in seconds since 1970, if events say it.
    ended : bool, default False
        Whether there are no more.
    """

    read: Annotated[int, Meta(ge=0)] = 0
    left_out: Annotated[int, Meta(ge=0)] = 0
    sent: Counted = {}
    rejected: Counted = {}
    rate: Annotated[float, Meta(ge=0)] = 0.0
    last: float | None = None
    ended: bool = False


Events = Annotated[
    dict[str, Any] | list[dict[str, Any]],
    Meta(description="An event, or many: whatever the map of the feed reads."),
]


class EventsTaken(msgspec.Struct, frozen=True):
    """What became of events: that some were rejected is no reason to send them again.

    Attributes
    ----------
    read : int
        Events of the body.
    left_out : int
        Those that the map leaves out.
    sent : dict of str to int
        By what was made of them.
    rejected : dict of str to int
        By reason.
    first : dict of str to str
        What is wrong with the first one, by reason; why one was left out is ``left-out``.
    """

    read: int
    left_out: int
    sent: dict[str, int]
    rejected: dict[str, int]
    first: dict[str, str]


class FedOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a feed has come: all its events before these offsets are with the service.

    Attributes
    ----------
    feed : str
    offsets : dict of str to int
        By part of the feed.
    """

    feed: Annotated[str, Meta(min_length=1, max_length=256)]
    offsets: Annotated[Offsets, Meta(min_length=1, max_length=10_000)]


class FedNow(msgspec.Struct, frozen=True):
    """Where a feed goes on, by its parts: without one that never came, empty before any did."""

    offsets: Offsets


class FeedNow(FeedReport, frozen=True, kw_only=True):
    """A feed, as it was reported last.

    Attributes
    ----------
    name : str
    key : str or None
        The name of the key that reported it; None without keys, and of webhooks.
    seconds : float
        How long ago it was reported.
    lag : float or None
        Seconds from the last event to its report; None where none says it.
    read : int
        Events that were read.
    left_out : int
        Those that the map leaves out.
    sent : dict of str to int
        By what the service made of them.
    rejected : dict of str to int
        By reason.
    rate : float
        Events read per second, lately.
    last : float or None
        When the last one happened, in seconds since 1970, if events say it.
    ended : bool
        Whether there are no more.
    """

    name: str
    key: str | None
    seconds: float
    lag: float | None


class FeedsNow(msgspec.Struct, frozen=True):
    """The feeds that reported since the service began; of one key, where it reaches some placements only."""

    feeds: list[FeedNow]
