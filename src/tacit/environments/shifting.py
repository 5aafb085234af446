"""An environment with intent shifts: click probabilities change at events."""

# 1. ``draw_context``: a context with or without the signal of an event.
# 2. ``ShiftingArms``: times of events, changes of click probabilities, and contexts that announce events.
# 3. ``EventRounds``: a fixed schedule of events.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.core.part import Fraction, float_range, int_range, one_word, param, probabilities, set_field
from tacit.environments.base import Environment
from tacit.errors import InvalidValue
from tacit.policies.base import Impression

MIN_ACCEPTANCE = 1e-4
"""Smallest acceptance probability for which rejection sampling is used."""
MAX_DEVIATIONS = 5.0
"""Largest margin for which rejection sampling is used, in standard deviations of the mean of signals."""
NO_EVENT = 2**62
KINDS = ("box", "oblique", "gaussian", "noise")
BOX, OBLIQUE, GAUSSIAN, NOISE = range(4)


@kernel
def draw_context(params: Any, context: Floats, alarm: bool, rng: Generator) -> None:
    """Fill ``context`` with a random context: of an event's round if ``alarm``, else of any other round.

    Only the first ``params.dim`` numbers are drawn.
    """
    fits = False
    while not fits:
        high, total = 0.0, 0.0
        for i in range(params.dim):
            if params.kind == GAUSSIAN:
                value = (0.55 if alarm else 0.45) + 0.15 * rng.standard_normal()
                context[i] = min(max(value, 0.0), 1.0)
            else:
                narrow = params.kind == BOX and not alarm
                context[i] = (0.5 if narrow else 1.0) * rng.random()
            high = max(high, context[i])
            total += context[i] / params.dim
        if params.kind == BOX:
            fits = not alarm or high >= 0.5 + params.margin
        elif params.kind == OBLIQUE:
            fits = total >= 0.5 + params.margin if alarm else total <= 0.5
        else:
            fits = True


@dataclass(frozen=True)
class ShiftingArms(Environment):
    """Keys with piecewise stationary click probabilities, and a context that announces each event.

    Keys arrive with probability ∝ 1/rank^traffic. A share of them has events: at each event the
    click probabilities of the key change, and with them its best arm. By default they are drawn
    uniformly, repeatedly until the best arm leads by ``gap`` and, at an event, differs from the
    previous best arm. Without an event a context is uniform in [0, 1/2]^dim; in the round of an
    event it is uniform over the points of the unit box with a coordinate of at least 1/2 + margin.

    Parameters
    ----------
    arms : int, default 5
        Number of arms of each key.
    keys : int, default 1
        Number of keys.
    shifting : float, default 1
        Share of the keys that have events, in [0, 1]; they are drawn at random.
    events : int, (int, int) or list of int, default (1, 10)
        Number of events of a shifting key; or the smallest and the largest number of a uniform
        draw; or, as a list, the rounds of the key (from 1) at which they happen. Random rounds are
        distinct and uniform over the key's expected number of impressions.
    clicks : sequence, shape (segments, arms), optional
        Click probabilities before, between and after the events, the same for every key.
    gap : float, default 0.1
        Least lead of the best arm, in [0, 1).
    high : float, default 1
        Upper end of drawn click probabilities, in (gap, 1].
    traffic : float, default 1
        Exponent of the keys' Zipf distribution; at least 0.
    dim : int, default 0
        Number of signals in a context; 0 for none.
    margin : float, default 0.1
        Distance between the contexts of events and of other rounds, in [0, 0.5).
    signals : str, default "box"
        Distribution of contexts. ``box``: uniform in [0, 1/2]^dim without an event, and with one
        uniform where a coordinate is at least 1/2 + margin. ``oblique``: uniform in the unit box,
        with a mean of at most 1/2 without an event and at least 1/2 + margin with one.
        ``gaussian``: every number is normal around 0.45, or around 0.55 with an event, with
        standard deviation 0.15, clipped to [0, 1], so that both overlap. ``noise``: uniform,
        without information.
    false_alarms : float, default 0
        Probability of an event's context in a round without an event, in [0, 1].
    missed : float, default 0
        Probability that an event has the context of a round without one, in [0, 1].
    stealthy : bool, default False
        Whether events keep the click probability of the best arm and raise another arm above it,
        by ``gap`` to 1.5·``gap``, if there is room below ``high``; otherwise all are drawn again
        from the lower 40 %, as at the start.
    announced : bool, default False
        Whether an additional signal is 1 in the round of an event, else 0.
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Syed, Slivkins, Mishra (2009), "Adapting to the shifting intent of search queries",
    sections 3 and 8.

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.ShiftingArms(arms=2, events=[501], clicks=[[0.9, 0.1], [0.1, 0.9]])
    >>> policy = tacit.Thompson(arms=2, discount=0.98)
    >>> result = tacit.simulate(policy, environment, horizon=1000, runs=20, seed=1)
    >>> bool(result.regret[0, :, -1].mean() < 100)
    True
    """

    class World(NamedTuple):
        impression: Impression
        clicks: Floats  # (segments of all keys, arms)
        starts: Ints  # (segments of all keys,) first round of each, in rounds of its key
        segment: Ints  # (keys,) the present segment
        counts: Ints  # (keys,) impressions so far
        traffic: Floats  # (keys,) cumulative probability
        best: Floats  # (segments of all keys,)
        uniform: Floats  # (1,)

    arms: Annotated[int, int_range(1, 2**20)] = 5
    keys: Annotated[int, int_range(1, 2**24)] = 1
    shifting: Fraction = 1.0
    events: Any = (1, 10)
    clicks: Any = None
    gap: Annotated[float, float_range(0.0, 0.99)] = 0.1
    high: float = 1.0
    traffic: Annotated[float, float_range(0.0, 10.0)] = 1.0
    dim: Annotated[int, int_range(0, 10_000)] = 0
    margin: Annotated[float, float_range(0.0, 0.49)] = 0.1
    signals: Annotated[str, one_word(*KINDS)] = "box"
    false_alarms: Fraction = 0.0
    missed: Fraction = 0.0
    stealthy: bool = False
    announced: bool = False

    def __post_init__(self) -> None:
        """Validate the parameters; raise InvalidValue if one is out of range, or two do not fit together."""
        super().__post_init__()
        set_field(self, "high", checks.number("high", self.high, self.gap, 1.0, open_low=True))
        set_field(self, "events", self._validate_events())
        if self.clicks is None and self.arms > 1 and self.gap >= self._upper_end:
            raise InvalidValue(
                "gap", self.gap, f"give a number below {self._upper_end:g}, where clicks are drawn"
            )
        if self.signals == "oblique" and self.margin * (12 * self.dim) ** 0.5 > MAX_DEVIATIONS:
            raise InvalidValue(
                "margin", self.margin, f"the mean of {self.dim} signals is never so large; give less"
            )
        if self.clicks is not None:
            set_field(self, "clicks", probabilities("clicks", self.clicks, 2))
            if len(self.clicks[0]) != self.arms:
                raise InvalidValue("clicks", self.clicks, f"give {self.arms} numbers a segment")
            if not isinstance(self.events, EventRounds) or len(self.clicks) != 1 + len(self.events):
                raise InvalidValue(
                    "clicks", self.clicks, "give events as a list of rounds and one segment more"
                )

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an example with ``arms`` arms, ``dim`` signals, and one more that announces events."""
        return cls(arms=arms, dim=dim, announced=True)

    def _validate_events(self) -> Any:
        """Return the events as ``EventRounds``, or as the smallest and the largest number of a draw.

        Raises InvalidValue if the events have another form, or rounds do not increase.
        """
        events = self.events
        if isinstance(events, list | EventRounds):
            rounds = [checks.integer("events", round, 2) for round in events]
            if sorted(set(rounds)) != rounds:
                raise InvalidValue("events", events, "give rounds in increasing order")
            return EventRounds(rounds)
        if isinstance(events, Sequence) and len(events) == 2:
            least = checks.integer("events", events[0], 0, 10_000)
            return least, checks.integer("events", events[1], least, 10_000)
        count = checks.integer("events", events, 0, 10_000)
        return count, count

    @property
    def _upper_end(self) -> float:
        """Upper end of the range of drawn click probabilities; stealthy events may raise an arm above it."""
        return (0.4 if self.stealthy else 1.0) * self.high

    @param
    def kind(self) -> int:
        """The kind of signals as a number for kernels: 0 box, 1 oblique, 2 gaussian, 3 noise."""
        return KINDS.index(self.signals)

    @property
    def context_dim(self) -> int:
        """Length of the contexts: the signals, and one more if events are announced."""
        return self.dim + self.announced

    @property
    def scheduled_changes(self) -> tuple[str, Sequence[int], float]:
        """The field's name, the scheduled rounds (none if random), and the first key's share of traffic."""
        rounds = self.events if isinstance(self.events, EventRounds) else ()
        return "events", rounds, float(self._weights[0])

    @property
    def _weights(self) -> Any:
        """The expected share of rounds of each key, shape (keys,), decreasing."""
        weights = np.arange(1, self.keys + 1) ** -self.traffic
        return weights / weights.sum()

    def world(self, rng: Generator, horizon: int) -> World:
        """Draw the keys that shift, their events and click probabilities; return the arrays of one run."""
        weights = self._weights
        shifting = np.zeros(self.keys, dtype=bool)
        shifting[rng.permutation(self.keys)[: round(self.shifting * self.keys)]] = True
        clicks: list[Any] = []
        starts: list[int] = []
        first: list[int] = []
        for key in range(self.keys):
            first.append(len(starts))
            rounds = self._draw_event_rounds(rng, int(horizon * weights[key])) if shifting[key] else []
            starts += [1, *rounds]
            clicks += self._draw_segments(rng, len(rounds) + 1)
        table = np.array(clicks)
        return self.World(
            impression=Impression(np.arange(self.arms), np.zeros(self.context_dim)),
            clicks=table,
            starts=np.array([*starts, NO_EVENT], np.int64),
            segment=np.array(first, np.int64),
            counts=np.zeros(self.keys, np.int64),
            traffic=np.cumsum(weights),
            best=table.max(axis=1),
            uniform=np.zeros(1),
        )

    def _draw_event_rounds(self, rng: Generator, expected: int) -> list[int]:
        """Return the sorted rounds of a key's events: the scheduled ones, or random ones.

        ``expected`` is the key's expected number of rounds; there are fewer random events than that.
        """
        if isinstance(self.events, EventRounds):
            return list(self.events)
        least, most = self.events
        count = min(int(rng.integers(least, most + 1)), max(expected - 1, 0))
        return sorted((2 + rng.choice(max(expected - 1, 1), count, replace=False)).tolist())

    def _draw_segments(self, rng: Generator, count: int) -> list[Any]:
        """Return the click probabilities, an array over arms, of each of ``count`` segments between events.

        They are ``clicks`` if it is set. Otherwise they are drawn until the best arm leads by ``gap`` and is
        not the best one of the segment before; with ``stealthy``, an arm is raised above the best one
        instead, if there is room.
        """
        if self.clicks is not None:
            return list(self.clicks[:count])
        segments: list[Any] = []
        # If few draws have the gap, raising the best arm of a draw from a smaller range has the same law.
        rare = self.arms > 1 and (1.0 - self.gap / self._upper_end) ** self.arms < MIN_ACCEPTANCE
        while len(segments) < count:
            if self.stealthy and segments and segments[-1].max() + 1.5 * self.gap <= self.high:
                segments.append(self._raise_arm(rng, segments[-1]))
                continue
            clicks = rng.uniform(0.0, self._upper_end - (self.gap if rare else 0.0), self.arms)
            if rare:
                clicks[clicks.argmax()] += self.gap
            ordered = np.sort(clicks)
            leads = rare or self.arms == 1 or ordered[-1] - ordered[-2] >= self.gap
            is_new_best = self.arms == 1 or not segments or clicks.argmax() != segments[-1].argmax()
            if leads and is_new_best:
                segments.append(clicks)
        return segments

    def _raise_arm(self, rng: Generator, before: Any) -> Any:
        """Return click probabilities in which a random arm that was not the best is raised above the best.

        It leads by ``gap`` to 1.5·``gap``; ``before`` stays unchanged.
        """
        after = before.copy()
        other_arms = np.flatnonzero(np.arange(self.arms) != before.argmax())
        after[rng.choice(other_arms)] = before.max() + rng.uniform(1.0, 1.5) * self.gap
        return after

    @staticmethod
    def arrive(params: ShiftingArms, world: World, round: int, rng: Generator) -> int:
        """Draw a key, its context and the number that decides the click; return the key's lane.

        In the round of an event the key moves to its next click probabilities.
        """
        lane = 0
        if len(world.traffic) > 1:
            lane = int(np.searchsorted(world.traffic, rng.random(), "right"))
            lane = min(lane, len(world.traffic) - 1)
        world.counts[lane] += 1
        # A key's last segment is followed by the next key's first, which starts at round 1.
        event = world.counts[lane] == world.starts[world.segment[lane] + 1] and world.counts[lane] > 1
        if event:
            world.segment[lane] += 1
        context = world.impression.context
        if len(context) > params.dim:
            context[params.dim] = 1.0 if event else 0.0
        if params.dim > 0:
            alarm = rng.random() >= params.missed if event else rng.random() < params.false_alarms
            draw_context(params, context, alarm, rng)
        world.uniform[0] = rng.random()
        return int(lane)

    @staticmethod
    def expected(params: ShiftingArms, world: World, lane: int, arm: int) -> float:
        """Return the present click probability of an arm for a lane's key."""
        return float(world.clicks[world.segment[lane], arm])

    @staticmethod
    def optimum(params: ShiftingArms, world: World, lane: int) -> float:
        """Return the highest present click probability for a lane's key."""
        return float(world.best[world.segment[lane]])


class EventRounds(tuple[int, ...]):
    """Rounds of events: hashable, unlike a list, and distinct from a (smallest, largest) pair."""
