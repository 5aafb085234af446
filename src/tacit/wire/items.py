"""What travels where a placement's catalogue of items is filled, and looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

MOST_ITEMS = 1000

Segment = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        description="What an item belongs to, such as a category; decisions may be among those of one.",
        examples=["news"],
        extra_json_schema={"pattern": r"^[^\u0000]*$"},
    ),
]
ItemId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=512,
        description="The item's id, which decisions name among their ``arms``; at most 512 bytes in UTF-8.",
        examples=["doc-17"],
        extra_json_schema={"pattern": r"^[^\u0000]*$"},
    ),
]


class NewItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An item with its vector.

    Attributes
    ----------
    id : str
    vector : sequence of float
        As many numbers as the policy reads of an item, each within ±65,504.
    segment : str, optional
    """

    id: ItemId
    vector: Annotated[
        Sequence[Annotated[float, Meta(ge=-65504.0, le=65504.0)]],
        Meta(description="As many numbers as the policy reads; 11 binary digits of each are kept."),
    ]
    segment: Segment | None = None


class ItemsOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Items to be put into the catalogue; those that are there get these vectors and segments."""

    items: Annotated[list[NewItem], Meta(min_length=1, max_length=MOST_ITEMS)]


class ItemsGone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Items to be taken out of the catalogue: all of them, or none."""

    ids: Annotated[list[ItemId], Meta(min_length=1, max_length=10 * MOST_ITEMS)]


class ItemsNow(msgspec.Struct, frozen=True):
    """What the catalogue has, logged.

    Attributes
    ----------
    count : int
    version : int
        How often it was changed.
    segments : dict of str to int
        How many items each has.
    """

    count: Annotated[int, Meta(description="How many items there are.")]
    version: Annotated[int, Meta(description="How often the catalogue was changed.")]
    segments: Annotated[dict[str, int], Meta(description="How many items each segment has.")]
