"""Client-side decisions of a placement, and the offsets of its event feeds.

1. Checks: whether clients can decide, and whether a delivered decision is possible.
2. Client-side decisions become rows of the log.
3. ``FeedOffsets``: how far feeds of events have been read, by change events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.learning.columns import ROUNDING
from tacit.service.log.blocks import Block
from tacit.service.log.requests import ClientDecision, DecisionRequest, Impression
from tacit.service.log.rows import FED, ChangeRow, DecisionRow, encode_json
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Effect, SavedState
from tacit.service.placements.aspects.control_group import compute_floor
from tacit.uplift.boundary import LEAST_PROPENSITY
from tacit.wire.site import FedOf, Offsets, Status

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement

ARMS = "arms"
MAX_FEEDS, MAX_PARTS = 100, 10_000
"""Limits of feeds and of partitions of each: clients choose their names, and all are stored."""

# ---- Client-side decisions


def check_client_side(placement: Placement, time: int | None = None) -> None:
    """Check that clients can make decisions for a placement, at a time (microseconds) or in principle.

    Raises
    ------
    InvalidValue
        If decisions need data that only the service has; or, at a time, if the policy alone does not
        decide.
    """
    why = None
    if placement.config.kind != ARMS:
        why = f"placements of kind {placement.config.kind!r} decide here"
    for aspect in placement.aspects.values():
        why = why or aspect.reason_not_local(placement, time)
    if why is not None:
        raise InvalidValue("placement", placement.name, f"ask the service for decisions: {why}")


def check_client_decision(
    placement: Placement, request: DecisionRequest, client_decision: ClientDecision
) -> Impression:
    """Check a client-side decision and return its impression, with the decision as its details.

    Raises
    ------
    InvalidValue, UnknownName
        If the impression does not fit, the arm was not on offer, or the policy cannot have given the
        propensity.
    """
    impression, names = placement.check_request(request), placement.lifecycle.names
    if client_decision.arm not in placement.lifecycle.arm_indices:
        raise InvalidValue("arm", client_decision.arm, f"the placement has {', '.join(map(str, names))}")
    if impression.arms is not None and client_decision.arm not in impression.arms:
        raise InvalidValue("arm", client_decision.arm, f"on offer were {list(impression.arms)}")
    if client_decision.propensity is not None:
        checks.number("propensity", client_decision.propensity, 0.0, 1.0, open_low=True)
    placement.learner.check_propensities([client_decision.propensity], [len(placement.get_offer(impression))])
    least_propensity = _least_propensity(placement)
    if client_decision.propensity is not None and client_decision.propensity < least_propensity:
        remedy = f"the placement's policy gives at least {least_propensity:.6g}; deliver what it gave"
        raise InvalidValue("propensity", client_decision.propensity, remedy)
    return impression._replace(details=client_decision)


def _least_propensity(placement: Placement) -> float:
    """Return the least propensity that any policy of the placement can have given."""
    # A spooled decision may be from the policy before a rebuild, or among more arms.
    share = compute_floor(placement.config.policy) if placement.policy_version is None else 0.0
    return max(share * (1.0 - ROUNDING) / len(placement.lifecycle.names), LEAST_PROPENSITY)


def record_client_decisions(
    placement: Placement, impressions: Block[Impression], seq: int, time: int
) -> Block[DecisionRow]:
    """Make rows of the log from checked client-side decisions, and store them as open decisions.

    Nothing is drawn: they are recorded as if they were read from the log. Returns the rows.
    """
    has_key, epoch = placement.learner.__contains__, placement.learner.epoch
    pairs = zip(impressions.column("details"), impressions.column("key"), strict=True)
    decisions: list[Any] = [item._replace(epoch=epoch(key) if has_key(key) else 0) for item, key in pairs]
    rows = placement.make_rows(impressions, seq, impressions.column("id"), time, decisions)
    rows = rows.with_column("mode", [placement.modes.client_mode] * len(rows))
    placement.recall(rows)
    placement.has_client_decisions = True
    return rows


# ---- Offsets of event feeds


class _LoggedOffsets(msgspec.Struct):
    """The offsets of a feed as the log holds them; the name is that of :func:`make_feed_name`."""

    feed: str
    offsets: Offsets


def make_feed_name(feed: str, key: str | None) -> str:
    """Return a feed's name in the log, with the key, so that feeds of different keys are separate.

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

    def apply_change(self, placement: Placement, change: ChangeRow) -> None:
        """Apply a change event: set the new offsets of one feed.

        The oldest feeds and partitions beyond the limits are forgotten.
        """
        feed_offsets = msgspec.json.decode(change.value, type=_LoggedOffsets)
        self.offsets[feed_offsets.feed] = _latest(
            self.offsets.pop(feed_offsets.feed, {}) | feed_offsets.offsets, MAX_PARTS
        )
        self.offsets = _latest(self.offsets, MAX_FEEDS)

    def is_change(self, placement: Placement, value: str) -> bool:
        """True if the change event changes any offset."""
        feed_offsets = msgspec.json.decode(value, type=_LoggedOffsets)
        return not feed_offsets.offsets.items() <= self.offsets.get(feed_offsets.feed, {}).items()

    def save_state(self, placement: Placement) -> dict[str, Any]:
        """Return the snapshot's field: {"fed": offsets by feed and partition}."""
        return {"fed": self.offsets}

    def restore(self, placement: Placement, saved: SavedState, snapshot: Snapshot) -> None:
        """Restore the offsets from a snapshot."""
        self.offsets = saved.fed

    def export_part(self, placement: Placement) -> dict[str, Offsets]:
        """Return a copy of this shard's offsets, by feed and partition."""
        return deepcopy(self.offsets)

    def merge_parts(self, placement: Placement, parts: Sequence[dict[str, Offsets]]) -> None:
        """Replace the offsets by the smallest ones over all shards, which all of them have reached."""
        self.offsets = min_offsets(parts)


def _latest(entries: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the last ``most`` entries of a dict."""
    return entries if len(entries) <= most else dict(list(entries.items())[-most:])


def merge_offsets(feed: str, aspects: Iterable[FeedOffsets]) -> Offsets:
    """Return a feed's greatest offset of each partition over several placements of one log.

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


def min_offsets(parts: Sequence[dict[str, Offsets]]) -> dict[str, Offsets]:
    """Return, by feed and partition, the smallest offset over several logs; without parts that one lacks.

    Examples
    --------
    >>> min_offsets([{"clicks": {"0": 7, "1": 2}}, {"clicks": {"0": 5}}])
    {'clicks': {'0': 5}}
    """
    first, *remaining = parts
    return {
        feed: {
            part: min(offset, *(shard_offsets[feed][part] for shard_offsets in remaining))
            if remaining
            else offset
            for part, offset in offsets.items()
            if all(part in shard_offsets.get(feed, {}) for shard_offsets in remaining)
        }
        for feed, offsets in first.items()
    }


FeedOffsets.effects = {
    FedOf: Effect(
        FED, lambda placement, request, time: encode_json(request), lambda placement, time: Status("ok")
    )
}
