"""What travels where people look at whom a placement shows what."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tacit.wire.control import Time

LATEST = 2_000
"""Decisions that are looked at unless asked otherwise."""

LogOdds = Annotated[
    float | None, Meta(description="In log-odds of a reward; null where arms are known by features alone.")
]


class ForWhomOf(msgspec.Struct, frozen=True):
    """How far back is looked."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="How many of the latest decisions.")] = LATEST


class ArmForThem(msgspec.Struct, frozen=True):
    """What some users are shown, and what is believed that it earns with them.

    Attributes
    ----------
    arm : int or str
    shown : int
        How many of their latest decisions showed it.
    mean, low, high : float or None
        The mean reward that is believed, of somebody average among them, and its 95 % band.
    adds : float or None
        What this field adds for them to the arm's log-odds of a reward, beside an average user.
    """

    arm: int | str
    shown: int
    mean: float | None
    low: float | None
    high: float | None
    adds: LogOdds


class UserSegment(msgspec.Struct, frozen=True):
    """Users who are alike in a field.

    Attributes
    ----------
    value : str
        What they have in common: a category, a band of numbers, ``missing``.
    decisions : int
    arms : list of ArmForThem
        Those that they were shown most first; at most 10.
    """

    value: str
    decisions: int
    arms: list[ArmForThem]


class FieldForWhom(msgspec.Struct, frozen=True):
    """What a field of the context decides.

    Attributes
    ----------
    field : str
    matters : float or None
        By how much it moves arms apart.
    segments : list of UserSegment
        Empty beyond the 12 fields that matter most.
    """

    field: str
    matters: Annotated[
        float | None,
        Meta(
            description="By how much it moves arms apart, over the users of these decisions: the standard "
            "deviation of what it adds to an arm's log-odds beside the other arms."
        ),
    ]
    segments: list[UserSegment]


class ArmForAll(msgspec.Struct, frozen=True):
    """An arm over all users.

    Attributes
    ----------
    arm : int or str
    shown : int
    mean, low, high : float or None
        The mean reward that is believed, of an average user, and its 95 % band.
    moved : dict of str to float
        By how much each field moves it up and down.
    """

    arm: int | str
    shown: int
    mean: float | None
    low: float | None
    high: float | None
    moved: Annotated[
        dict[str, float],
        Meta(
            description="By field: the standard deviation, over users, of what it adds to the log-odds; the "
            "12 fields that matter most."
        ),
    ]


class ForWhom(msgspec.Struct, frozen=True):
    """Which users get which arm, by what is known of them, and why.

    Attributes
    ----------
    verdict : str
        All this in words.
    decisions : int
        Those that were looked at: the latest that the policy made.
    since, until : str or None
        When the first and the last of them were made.
    key : str or None
        Whose they are, where each key has models of its own: the key with most of them.
    says_nothing : float or None
        The weight that the policy gives to the hypothesis that the context says hardly anything.
    bytes : int
        What the policy's state takes in memory, all keys together.
    arms : list of ArmForAll
    fields : list of FieldForWhom
        Those that matter most first.
    shard : int or None
        Whose all this is, where the service is in shards: the one that decides most.
    """

    verdict: str
    decisions: int
    since: Time | None
    until: Time | None
    key: str | None
    says_nothing: Annotated[
        float | None,
        Meta(
            description="The weight, of 1, that the policy gives to the hypothesis that the context says "
            "hardly anything; null where it has none."
        ),
    ]
    bytes: Annotated[int, Meta(description="What the policy's state takes in memory, all keys together.")]
    arms: Annotated[list[ArmForAll], Meta(description="Those shown most first; at most 50.")]
    fields: Annotated[list[FieldForWhom], Meta(description="Those that matter most first.")]
    shard: Annotated[
        int | None,
        Meta(description="Whose all this is, where the service is in shards: the one that decides most."),
    ] = None
