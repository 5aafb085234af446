"""Past events as a click log: what was shown first, then what came back for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from tacit.errors import ConfigError, LogError
from tacit.events.event_map import EventMap
from tacit.events.mapping import BadEvent, Mapper
from tacit.feed.sources import Found
from tacit.feed.tally import DUPLICATE, FeedTally
from tacit.logs.schema import SCHEMA
from tacit.wire.decisions import Event, Feedback, LocalDecision

EVERY = 10**12
"""Decisions that are remembered, to which events without an id are joined: all."""
DECISION, REWARDED, METRIC, SEEN = "decision", "rewarded", "metric", "seen"
CHUNK = 65_536
"""Rows that are made at once."""

Events = Callable[[], Iterable[Found | None]]
"""Gives the events from their beginning, each time that it is called."""


def past_map(event_map: EventMap) -> EventMap:
    """Return a map by which all that was shown is a decision.

    Raises
    ------
    ConfigError
        If it does not say what was shown, when, or what single arms earned.
    """
    shown = event_map.shown
    if shown is None or shown.arm is None:
        raise ConfigError("shown: a past is made of what was shown; give [shown] with where and arm")
    if event_map.time is None:
        raise ConfigError("time: a past needs to know when; name the field")
    if event_map.reward is None:
        raise ConfigError("reward: a past is judged by what single arms earned; give reward, not lists")
    return msgspec.structs.replace(event_map, shown=msgspec.structs.replace(shown, elsewhere=True))


class PastClicks:
    """What past events say was shown, and earned.

    Parameters
    ----------
    event_map : EventMap
        One by which all that was shown is a decision.

    Attributes
    ----------
    tally : FeedTally
        What became of the events.
    """

    def __init__(self, event_map: EventMap) -> None:
        self._mapper = Mapper(event_map, EVERY)
        self._number: dict[str, int] = {}
        self._rows: list[tuple[float, str, LocalDecision]] = []
        self._rewards: dict[int, float] = {}
        self._counted: set[tuple[int, str]] = set()
        self.tally = FeedTally()

    def read(self, events: Events) -> None:
        """Read all events, twice: what was shown may stand behind what came back for it."""
        for found in events():
            if found is not None and found.event is not None and self._mapper.is_shown(found.event):
                self._take(found, self._show)
        for found in events():
            if found is None:
                continue
            if found.event is None:
                self.tally.read += 1
                self.tally.reject(found, found.reason, found.detail)
            elif not self._mapper.is_shown(found.event):
                self._take(found, self._reward)

    def _take(self, found: Found, take: Callable[[Found], str]) -> None:
        assert found.event is not None
        self.tally.read += 1
        try:
            if self._mapper.left_out(found.event) is not None:
                self.tally.left_out += 1
            else:
                self.tally.sent[take(found)] += 1
        except BadEvent as error:
            self.tally.reject(found, error.reason, error.detail)

    def _show(self, found: Found) -> str:
        placement, decision, time = self._mapper.mapped(found.event or {}, found.named)
        assert isinstance(decision, LocalDecision)
        assert time is not None
        if decision.propensity is not None and not 0.0 < decision.propensity <= 1.0:
            raise BadEvent("bad-propensity", f"propensity: {decision.propensity} is not in (0, 1]")
        if decision.arms is not None and decision.arm not in decision.arms:
            raise BadEvent("invalid-value", f"arms: {decision.arm!r} was shown, and is none of them")
        number = self._number.setdefault(f"{placement}\0{decision.decision_id}", len(self._rows))
        row = time, placement, decision
        if number < len(self._rows):
            if self._rows[number] != row:
                raise BadEvent("conflict", f"decision {decision.decision_id!r} has shown something else")
            return DUPLICATE
        self._rows.append(row)
        return DECISION

    def _reward(self, found: Found) -> str:
        placement, feedback, _ = self._mapper.mapped(found.event or {}, found.named)
        assert isinstance(feedback, Feedback | Event)
        number = self._number.get(f"{placement}\0{feedback.decision_id}")
        if number is None:
            raise BadEvent("unknown-decision", f"decision {feedback.decision_id!r}: it was never shown")
        if isinstance(feedback, Event):
            return SEEN
        if feedback.reward is None:
            return METRIC
        # As in the service, an id names one piece of feedback of a decision.
        once = number, str(feedback.feedback_id)
        if once in self._counted:
            return DUPLICATE
        self._counted.add(once)
        self._rewards[number] = max(feedback.reward, self._rewards.get(number, 0.0))
        return REWARDED

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the click log, in the order of time.

        What was on offer is, where no event says it, all that was ever shown at the placement.

        Raises
        ------
        LogError
            If nothing was shown.
        """
        if not self._rows:
            raise LogError("no event says what was shown; see shown.where in the map")
        every: dict[str, dict[str, None]] = {}
        for _, placement, decision in self._rows:
            every.setdefault(placement, {})[str(decision.arm)] = None
        arms = {placement: sorted(names) for placement, names in every.items()}
        order = sorted(range(len(self._rows)), key=lambda number: self._rows[number][0])
        for first in range(0, len(order), CHUNK):
            rows = [self._row(number, arms) for number in order[first : first + CHUNK]]
            yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    def _row(self, number: int, arms: dict[str, list[str]]) -> dict[str, Any]:
        time, placement, decision = self._rows[number]
        offered = arms[placement] if decision.arms is None else list(map(str, decision.arms))
        return {
            "timestamp": round(time * 1e6),
            "decision_id": decision.decision_id,
            "placement": placement,
            "key": decision.key,
            "arms": offered,
            "arm": str(decision.arm),
            "propensity": decision.propensity,
            "reward": self._rewards.get(number),
        }
