"""Offsets of event feeds: how far each feed has been read, by change events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import msgspec

from tacit.service.deciders.aspect import Aspect, SavedState
from tacit.service.log.rows import FED, ChangeRow
from tacit.service.log.store import Snapshot
from tacit.wire.site import Offsets

MAX_FEEDS, MAX_PARTS = 100, 10_000
"""Limits of feeds and of partitions of each: clients choose their names, and all are stored."""


class _LoggedOffsets(msgspec.Struct):
    """The offsets of a feed as the log holds them; the name comes from :func:`make_feed_name`."""

    feed: str
    offsets: Offsets


def make_feed_name(feed: str, key: str | None) -> str:
    """Return a feed's name in the log: prefixed by the API key, so that keys cannot collide.

    Examples
    --------
    >>> make_feed_name("clicks", "shop"), make_feed_name("clicks", None)
    ('shop\\nclicks', 'clicks')
    """
    return feed if key is None else f"{key}\n{feed}"


class FeedOffsets(Aspect):
    """The offsets at which feeds continue.

    A change event follows the feedback of the events before its offsets. If the end of a log is lost, as when
    a backup is restored, all events before the remaining offsets are still in the log.

    Attributes
    ----------
    offsets : dict of str to dict of str to int
        Offset of the next event by feed and partition.
    """

    change_kind = FED

    def __init__(self) -> None:
        self.offsets: dict[str, Offsets] = {}

    def apply_change(self, change: ChangeRow) -> int:
        """Apply a change event: set the new offsets of one feed.

        The oldest feeds and partitions beyond the limits are forgotten.
        """
        feed_offsets = msgspec.json.decode(change.value, type=_LoggedOffsets)
        self.offsets[feed_offsets.feed] = _keep_last(
            self.offsets.pop(feed_offsets.feed, {}) | feed_offsets.offsets, MAX_PARTS
        )
        self.offsets = _keep_last(self.offsets, MAX_FEEDS)
        return 0

    def is_change(self, value: str) -> bool:
        """True if the change event changes any offset."""
        feed_offsets = msgspec.json.decode(value, type=_LoggedOffsets)
        return not feed_offsets.offsets.items() <= self.offsets.get(feed_offsets.feed, {}).items()

    def save_state(self) -> dict[str, Any]:
        """Return the snapshot's field: {"fed": offsets by feed and partition}."""
        return {"fed": deepcopy(self.offsets)}

    def restore(self, saved: SavedState, snapshot: Snapshot) -> None:
        """Restore the offsets from a snapshot."""
        self.offsets = saved.fed

    def export_part(self) -> dict[str, Offsets]:
        """Return a copy of this shard's offsets, by feed and partition."""
        return deepcopy(self.offsets)

    def merge_parts(self, parts: Sequence[dict[str, Offsets]]) -> None:
        """Replace the offsets by the smallest over all shards, up to which every shard has the events."""
        self.offsets = find_least_offsets(parts)


def _keep_last(entries: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the last ``most`` entries of a dict, in the order of insertion."""
    return entries if len(entries) <= most else dict(list(entries.items())[-most:])


def merge_offsets(feed: str, aspects: Iterable[FeedOffsets]) -> Offsets:
    """Return the greatest offset of each partition of a feed over several placements of one log.

    Examples
    --------
    >>> one, other = FeedOffsets(), FeedOffsets()
    >>> one.offsets, other.offsets = {"clicks": {"0": 7, "1": 2}}, {"clicks": {"0": 5, "2": 1}}
    >>> merge_offsets("clicks", [one, other])
    {'0': 7, '1': 2, '2': 1}
    """
    offsets: Offsets = {}
    for aspect in aspects:
        for part, offset in aspect.offsets.get(feed, {}).items():
            offsets[part] = max(offset, offsets.get(part, 0))
    return offsets


def find_least_offsets(parts: Sequence[dict[str, Offsets]]) -> dict[str, Offsets]:
    """Return, by feed and partition, the smallest offset over several logs.

    Feeds and partitions that are missing in one log are left out.

    Examples
    --------
    >>> find_least_offsets([{"clicks": {"0": 7, "1": 2}}, {"clicks": {"0": 5}}])
    {'clicks': {'0': 5}}
    """
    least: dict[str, Offsets] = {}
    for feed, first in parts[0].items():
        logs = [part.get(feed, {}) for part in parts]
        partitions = [name for name in first if all(name in offsets for offsets in logs)]
        least[feed] = {name: min(offsets[name] for offsets in logs) for name in partitions}
    return least
