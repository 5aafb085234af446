"""Messages about the service as a whole: placements, shards, health, feeds, and deletion of personal data."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tacit.wire.lift import GuardrailNow


class Blanked(msgspec.Struct):
    """Numbers of rows of a placement, in its log and its archive, that named the subject."""

    decisions: int
    records: int


class Forgotten(msgspec.Struct):
    """Numbers of rows that named the subject until now, by placement; placements without any are left out."""

    placements: dict[str, Blanked]


class PlacementSummary(msgspec.Struct):
    """A placement: its settings and its counts.

    Attributes
    ----------
    name : str
    kind : str
        Kind of its decisions.
    mode, durability : str
    policy : dict of str to object
        Name and hyperparameters of the policy.
    arms : list of int or str
        Arms on offer.
    keys, decisions, feedback : int
    rewards : float
        Sum of all rewards.
    pending : int
        Decisions whose windows are open.
    outcomes : dict of str to int
        Count of feedback by outcome.
    seed : int
        Seed from which, together with its id, a decision's random draws come.
    shared_seconds : float, optional
        With shards: greatest age of the learning that they share; None if they share nothing, or have
        not shared yet.
    retired : list of int or str, optional
        Arms that are no longer shown.
    pinned : list of int or str, optional
        Arms that decisions show if they offer them.
    guardrail : GuardrailNow, optional
        The metric that must not get worse, and the degradations found.
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
        Id of its process, on its machine.
    up : bool
        Whether it answers.
    losses : int
        Number of times that it was lost since the start.
    recovery_seconds : float or None
        Time that its latest recovery took.
    waiting : int
        Requests that are being sent to it.
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


class ShardTable(msgspec.Struct):
    """The addresses of all shards, by which a client asks the right one.

    The BLAKE2b hash of 2 bytes of a key, personalized by the placement's name, is its partition P; of N
    shards its shard is P · N / 65,536, rounded down. A decision's id of the service holds the partition.

    Attributes
    ----------
    shards : list of str
        Address of each shard; none of a single server.
    version : str
        Changes with the addresses; all answers have it in `x-tacit-shards`.
    spread : list of str
        Placements whose keys are in all shards.
    """

    shards: list[str]
    version: str = ""
    spread: list[str] = []


class Status(msgspec.Struct):
    """The status of the service."""

    status: Annotated[str, Meta(examples=["ok"])]


Offsets = dict[Annotated[str, Meta(max_length=64)], Annotated[int, Meta(ge=0)]]
Counted = Annotated[dict[Annotated[str, Meta(max_length=64)], int], Meta(max_length=64)]


class FeedReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The progress of a feed of events to the service.

    Attributes
    ----------
    read : int, default 0
        Events that were read.
    left_out : int, default 0
        Events that the map leaves out.
    sent : dict of str to int, default {}
        Count of sent events by outcome.
    rejected : dict of str to int, default {}
        Count of rejected events by reason.
    rate : float, default 0.0
        Events read per second, as a recent average.
    last : float, optional
        Time of the last event in seconds since 1970, if events have one.
    ended : bool, default False
        Whether the feed has ended.
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
    """Outcomes of pushed events; rejected events need not be sent again.

    Attributes
    ----------
    read : int
        Events of the body.
    left_out : int
        Events that the map leaves out.
    sent : dict of str to int
        Count of events by outcome.
    rejected : dict of str to int
        Count of rejected events by reason.
    first : dict of str to str
        Details of the first rejected event, by reason; ``left-out`` explains the first one left out.
    """

    read: int
    left_out: int
    sent: dict[str, int]
    rejected: dict[str, int]
    first: dict[str, str]


class FedOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The progress of a feed: the service has all its events before these offsets.

    Attributes
    ----------
    feed : str
    offsets : dict of str to int
        Offset by partition of the feed.
    """

    feed: Annotated[str, Meta(min_length=1, max_length=256)]
    offsets: Annotated[Offsets, Meta(min_length=1, max_length=10_000)]


class FedNow(msgspec.Struct, frozen=True):
    """The offsets at which a feed resumes, by partition; without partitions that were never logged."""

    offsets: Offsets


class FeedNow(FeedReport, frozen=True, kw_only=True):
    """The latest report of a feed.

    Attributes
    ----------
    name : str
    key : str or None
        The name of the key that reported it; None for webhooks, and if the service has no keys.
    seconds : float
        Age of the report in seconds.
    lag : float or None
        Seconds from the last event to its report; None if events have no time.
    read : int
        Events that were read.
    left_out : int
        Events that the map leaves out.
    sent : dict of str to int
        Count of sent events by outcome.
    rejected : dict of str to int
        Count of rejected events by reason.
    rate : float
        Events read per second, as a recent average.
    last : float or None
        Time of the last event in seconds since 1970, if events have one.
    ended : bool
        Whether the feed has ended.
    """

    name: str
    key: str | None
    seconds: float
    lag: float | None


class FeedsNow(msgspec.Struct, frozen=True):
    """Feeds that reported since the service started; only its own for a key of some placements."""

    feeds: list[FeedNow]
