"""Whether a placement is well, and if not, why: sentences for the person on call."""

from __future__ import annotations

import math

from tacit.service.attribution.attribution import LATE, LATE_EPOCH
from tacit.service.page.amounts import age
from tacit.service.page.answers import Answered
from tacit.service.page.reader import PlacementReader
from tacit.service.page.timeline import decisions_since
from tacit.service.placements.learning import CLOSED
from tacit.service.placements.results import DAY, DECISIONS, HOUR, R

LATE_SNAPSHOT = 3
"""A snapshot is late after so many times the events that there should be between two."""
MUCH_LATE = 0.2
FEW = 100
"""Of fewer decisions nothing is said."""
SURE = math.log(1e4)


def complaints(placement: PlacementReader, now: int, answered: Answered | None = None) -> list[str]:
    """Return what is wrong with a placement; nothing where all is well.

    Parameters
    ----------
    placement : PlacementReader
    now : int
        Microseconds since 1970.
    answered : Answered, optional
        How its requests were answered.
    """
    failing = [] if answered is None or not answered.wrong else [answered.wrong]
    looks = _silent, _unanswered, _unrewarded, _late, _old_snapshot
    return failing + [sentence for look in looks if (sentence := look(placement, now))]


def _silent(placement: PlacementReader, now: int) -> str:
    """Say that nobody asks any more."""
    hour = decisions_since(placement.series, now - HOUR)
    day = decisions_since(placement.series, now - DAY)
    if hour or day < FEW:
        return ""
    last = placement.series.results.last
    return f"No decision was asked for in the last hour; the last one was {age(now - last)}."


def _unanswered(placement: PlacementReader, now: int) -> str:
    """Say that no feedback comes at all."""
    closed = placement.decisions - placement.pending
    if _told(placement) or closed < FEW:
        return ""
    many = f"{closed:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"No feedback has come for {many} decisions: nothing can be learned from clicks."


def _told(placement: PlacementReader) -> int:
    """Return how much feedback has come."""
    return sum(count for what, count in placement.outcomes.items() if what != CLOSED)


def _unrewarded(placement: PlacementReader, now: int) -> str:
    """Say that rewards have stopped to come, where chance alone would hardly do that."""
    results, window = placement.series.results, placement.config.rule.window
    before, lately = now - HOUR - window, results.over(now - HOUR, now - window)
    was = results.over(now - DAY - HOUR, before)
    if lately[R] > 0 or was[R] <= 0 or not was[DECISIONS]:
        return ""
    expected = float(lately[DECISIONS] * was[R] / was[DECISIONS])
    if expected < SURE:
        return ""
    return (
        f"No reward has come for {int(lately[DECISIONS])} decisions of the last hour; at the rate "
        f"of the day before there would be {expected:.0f}. Is feedback still sent?"
    )


def _late(placement: PlacementReader, now: int) -> str:
    """Say that much feedback comes too late to be learned."""
    total = _told(placement)
    late = placement.outcomes.get(LATE, 0) + placement.outcomes.get(LATE_EPOCH, 0)
    if total < FEW or late < MUCH_LATE * total:
        return ""
    window = placement.config.rule.window / 1e6
    return (
        f"{100 * late / total:.0f} % of all feedback came after its window of {window:g} s and was "
        "not learned; a longer attribution_window would let it count."
    )


def _old_snapshot(placement: PlacementReader, now: int) -> str:
    """Say that a restart would take long."""
    since, every = placement.since_snapshot, placement.snapshot_after
    if since < LATE_SNAPSHOT * every:
        return ""
    return (
        f"The snapshot is late: {since} events came since, and there should be one every {every}. "
        "A restart will take longer."
    )
