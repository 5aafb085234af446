"""What happens elsewhere: decisions next to the caller, and feeds of events.

Of decisions made with what was learned here: whether they can be; taken over as made. Last, how far feeds
have come, by marks of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.learning.columns import ROUNDING
from tacit.proof.boundary import LEAST_PROPENSITY
from tacit.service.log.blocks import Block
from tacit.service.log.requests import DecisionRequest, Impression, Made
from tacit.service.log.rows import FED, DecisionRow, MarkRow, text_of
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Effect, Saved
from tacit.service.placements.aspects.control import floor_of
from tacit.wire.site import FedOf, Offsets, Status

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement

ARMS = "arms"
MOST_FEEDS, MOST_PARTS = 100, 10_000
"""Feeds that are remembered, and parts of each: those who may give feedback name them, and all are kept."""

# ---- Decisions made next to the caller


def check_elsewhere(placement: Placement, time: int | None = None) -> None:
    """Check that a placement's decisions can be made elsewhere with what was learned here, at a time or ever.

    Raises
    ------
    InvalidValue
        If each of them needs something that only the service has; or, at a time, if the policy does not
        decide by itself then.
    """
    why = None
    if placement.config.kind != ARMS:
        why = f"placements of kind {placement.config.kind!r} decide here"
    for aspect in placement.aspects.values():
        why = why or aspect.stays_here(placement, time)
    if why is not None:
        raise InvalidValue("placement", placement.name, f"ask the service for decisions: {why}")


def checked_made(placement: Placement, request: DecisionRequest, made: Made) -> Impression:
    """Return an impression that was decided elsewhere.

    Raises
    ------
    InvalidValue, UnknownName
        If the impression does not fit, the arm was not on offer, or the propensity is one
        that the policy cannot have given.
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
    """Return the least propensity that any policy of a placement can have given since it began."""
    # What waits in a spool may have been decided by the policy before a rebuild, or among more arms.
    share = floor_of(placement.config.policy) if placement.regime is None else 0.0
    return max(share * (1.0 - ROUNDING) / len(placement.living.names), LEAST_PROPENSITY)


def taken_over(placement: Placement, asked: Block[Impression], seq: int, time: int) -> Block[DecisionRow]:
    """Take over decisions that were made elsewhere, as the fold takes them in: nothing is drawn."""
    known, epoch = placement.learner.__contains__, placement.learner.epoch
    pairs = zip(asked.column("given"), asked.column("key"), strict=True)
    made: list[Any] = [given._replace(epoch=epoch(key) if known(key) else 0) for given, key in pairs]
    rows = placement.rows_of(asked, seq, asked.column("id"), time, made)
    rows = rows.with_column("mode", [placement.modes.of_taken_over] * len(rows))
    placement.recall(rows)
    placement.decided_elsewhere = True
    return rows


# ---- How far feeds of events have come with a placement


class _Logged(msgspec.Struct):
    """How far a feed has come, as the log says it: the name is that of :func:`name_for`."""

    feed: str
    offsets: Offsets


def name_for(feed: str, key: str | None) -> str:
    """Return the name of a feed in the log: each key has feeds of its own, so that none moves another's on.

    Examples
    --------
    >>> name_for("clicks", "shop"), name_for("clicks", None)
    ('shop\\nclicks', 'clicks')
    """
    return feed if key is None else f"{key}\n{feed}"


class Fed(Aspect):
    """Remembers where feeds go on.

    A mark stands behind the feedback of the events before it. So whatever becomes of the end of a log, as
    when a backup is restored, no event that is missing stands before the offsets that are left.

    Attributes
    ----------
    of : dict of str to dict of str to int
        By feed and part, such as a topic's partition, the offset of the next event.
    """

    mark = FED

    def __init__(self) -> None:
        self.of: dict[str, Offsets] = {}

    def marked(self, placement: Placement, mark: MarkRow) -> None:
        """Take in a mark."""
        said = msgspec.json.decode(mark.value, type=_Logged)
        self.of[said.feed] = _latest(self.of.pop(said.feed, {}) | said.offsets, MOST_PARTS)
        self.of = _latest(self.of, MOST_FEEDS)

    def is_news(self, placement: Placement, value: str) -> bool:
        """Whether a mark says what was not so before."""
        said = msgspec.json.decode(value, type=_Logged)
        return not said.offsets.items() <= self.of.get(said.feed, {}).items()

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return its field of a snapshot."""
        return {"fed": self.of}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Take over its field of a snapshot."""
        self.of = saved.fed

    def part(self, placement: Placement) -> dict[str, Offsets]:
        """Return how far feeds have come with a shard."""
        return deepcopy(self.of)

    def show(self, placement: Placement, parts: Sequence[dict[str, Offsets]]) -> None:
        """Show how far feeds have come with all shards."""
        self.of = least(parts)


def _latest(known: dict[str, Any], most: int) -> dict[str, Any]:
    """Return at most so many, the last ones."""
    return known if len(known) <= most else dict(list(known.items())[-most:])


def together(feed: str, known: Iterable[Fed]) -> Offsets:
    """Return how far a feed has come with several placements of one log.

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
    """Return how far feeds have come with all of several logs.

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
