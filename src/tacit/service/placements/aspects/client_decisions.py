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
from tacit.service.log.requests import DecisionRequest, Impression, Made
from tacit.service.log.rows import FED, DecisionRow, MarkRow, text_of
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Effect, Saved
from tacit.service.placements.aspects.control_group import floor_of
from tacit.uplift.boundary import LEAST_PROPENSITY
from tacit.wire.site import FedOf, Offsets, Status

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement

ARMS = "arms"
MOST_FEEDS, MOST_PARTS = 100, 10_000
"""Limits of feeds and of partitions of each: clients choose their names, and all are stored."""

# ---- Client-side decisions


def check_elsewhere(placement: Placement, time: int | None = None) -> None:
    """Check that clients can decide for a placement, at a time or at all.

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
        why = why or aspect.stays_here(placement, time)
    if why is not None:
        raise InvalidValue("placement", placement.name, f"ask the service for decisions: {why}")


def checked_made(placement: Placement, request: DecisionRequest, made: Made) -> Impression:
    """Check a client-side decision and return its impression.

    Raises
    ------
    InvalidValue, UnknownName
        If the impression does not fit, the arm was not on offer, or the policy cannot have given the
        propensity.
    """
    impression, names = placement.checked(request), placement.living.names
    if made.arm not in placement.living.slots:
        raise InvalidValue("arm", made.arm, f"the placement has {', '.join(map(str, names))}")
    if impression.arms is not None and made.arm not in impression.arms:
        raise InvalidValue("arm", made.arm, f"on offer were {list(impression.arms)}")
    if made.propensity is not None:
        checks.number("propensity", made.propensity, 0.0, 1.0, open_low=True)
    placement.learner.check_propensities([made.propensity], [len(placement.offer_of(impression))])
    least = _least_propensity(placement)
    if made.propensity is not None and made.propensity < least:
        remedy = f"the placement's policy gives at least {least:.6g}; deliver what it gave"
        raise InvalidValue("propensity", made.propensity, remedy)
    return impression._replace(given=made)


def _least_propensity(placement: Placement) -> float:
    """Return the least propensity that any policy of a placement can have given."""
    # A spooled decision may be from the policy before a rebuild, or among more arms.
    share = floor_of(placement.config.policy) if placement.regime is None else 0.0
    return max(share * (1.0 - ROUNDING) / len(placement.living.names), LEAST_PROPENSITY)


def taken_over(placement: Placement, asked: Block[Impression], seq: int, time: int) -> Block[DecisionRow]:
    """Record client-side decisions as the fold does: nothing is drawn."""
    known, epoch = placement.learner.__contains__, placement.learner.epoch
    pairs = zip(asked.column("given"), asked.column("key"), strict=True)
    made: list[Any] = [given._replace(epoch=epoch(key) if known(key) else 0) for given, key in pairs]
    rows = placement.rows_of(asked, seq, asked.column("id"), time, made)
    rows = rows.with_column("mode", [placement.modes.of_taken_over] * len(rows))
    placement.recall(rows)
    placement.decided_elsewhere = True
    return rows


# ---- Offsets of event feeds


class _Logged(msgspec.Struct):
    """The offsets of a feed as the log holds them; the name is that of :func:`make_feed_name`."""

    feed: str
    offsets: Offsets


def name_for(feed: str, key: str | None) -> str:
    """Return a feed's name in the log, with the key, so that feeds of different keys are separate.

    Examples
    --------
    >>> name_for("clicks", "shop"), name_for("clicks", None)
    ('shop\\nclicks', 'clicks')
    """
    return feed if key is None else f"{key}\n{feed}"


class Fed(Aspect):
    """The offsets at which feeds continue.

    A change event follows the feedback of the events before its offsets. If the end of a log is lost, as when
    a backup is restored, all events before the remaining offsets are still in the log.

    Attributes
    ----------
    offsets : dict of str to dict of str to int
        Offset of the next event by feed and partition.
    """

    mark = FED

    def __init__(self) -> None:
        self.of: dict[str, Offsets] = {}

    def marked(self, placement: Placement, mark: MarkRow) -> None:
        """Apply a change event: new offsets of a feed."""
        said = msgspec.json.decode(mark.value, type=_Logged)
        self.of[said.feed] = _latest(self.of.pop(said.feed, {}) | said.offsets, MOST_PARTS)
        self.of = _latest(self.of, MOST_FEEDS)

    def is_news(self, placement: Placement, value: str) -> bool:
        """True if the change event changes any offset."""
        said = msgspec.json.decode(value, type=_Logged)
        return not said.offsets.items() <= self.of.get(said.feed, {}).items()

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return the aspect's field of a snapshot."""
        return {"fed": self.of}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Restore the offsets from a snapshot."""
        self.of = saved.fed

    def part(self, placement: Placement) -> dict[str, Offsets]:
        """Return the feed offsets of a shard."""
        return deepcopy(self.of)

    def show(self, placement: Placement, parts: Sequence[dict[str, Offsets]]) -> None:
        """Set the offsets that all shards have reached."""
        self.of = least(parts)


def _latest(known: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the last entries, up to a limit."""
    return known if len(known) <= most else dict(list(known.items())[-most:])


def together(feed: str, known: Iterable[Fed]) -> Offsets:
    """Return a feed's greatest offsets over several placements of one log.

    Examples
    --------
    >>> one, other = Fed(), Fed()
    >>> one.of, other.of = {"clicks": {"0": 7, "1": 2}}, {"clicks": {"0": 5, "2": 1}}
    >>> together("clicks", [one, other])
    {'0': 7, '1': 2, '2': 1}
    """
    offsets: Offsets = {}
    for fed in known:
        for part, offset in fed.of.get(feed, {}).items():
            offsets[part] = max(offset, offsets.get(part, 0))
    return offsets


def least(parts: Sequence[dict[str, Offsets]]) -> dict[str, Offsets]:
    """Return the feed offsets that all of several logs have reached.

    Examples
    --------
    >>> least([{"clicks": {"0": 7, "1": 2}}, {"clicks": {"0": 5}}])
    {'clicks': {'0': 5}}
    """
    first, *others = parts
    return {
        feed: {
            part: min(offset, *(other[feed][part] for other in others)) if others else offset
            for part, offset in offsets.items()
            if all(part in other.get(feed, {}) for other in others)
        }
        for feed, offsets in first.items()
    }


Fed.changes = {
    FedOf: Effect(FED, lambda placement, asked, time: text_of(asked), lambda placement, time: Status("ok"))
}
