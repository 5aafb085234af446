"""Environments that no policy does well in: theorems 5 and 6 of Syed, Slivkins and Mishra (2009).

References are to the full version of "Adapting to the shifting intent of search queries".
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tacit.classifiers import FiniteConcepts
from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints
from tacit.environments import Environment, ShiftingArms
from tacit.environments.base import probabilities
from tacit.environments.shifting import NO_EVENT
from tacit.errors import InvalidValue
from tacit.policies.base import Impression


def neglected_arm(horizon: int, shift: float, phase: int) -> ShiftingArms:
    """Return instance I_i of theorem 5: a neglected arm becomes the best in secret.

    √T phases of √T rounds. Arm 0 is always clicked with probability 1/2; arm 1 with 1/2 − ε
    before phase i and 1/2 + ε from it on. A policy that ignores contexts and neglects arm 1 for a
    phase cannot see the event; one that does not pays for it where there is none: for some i its
    regret is at least ε·√T/4. The one signal of the context tells the truth (``announced``).

    Parameters
    ----------
    horizon : int
        T, a square of at least 4.
    shift : float
        ε, in (0, 1/2).
    phase : int
        i, from 0 to √T; 0 for no event. In phase 1 there is none either: arm 1 is best from the
        first round on.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Theorem 5. The constant: ε/2 regret a phase, √T/2 rounds or phases, as in its proof.

    Examples
    --------
    >>> neglected_arm(horizon=10_000, shift=0.25, phase=3).events
    (201,)
    """
    rounds = checks.integer("horizon", horizon, 4)
    length = math.isqrt(rounds)
    if length**2 != rounds:
        raise InvalidValue("horizon", horizon, f"give a square, such as {length**2}")
    epsilon = _open("shift", shift, 0.5)
    i = checks.integer("phase", phase, 0, length)
    return _secret_rise(0.5 - epsilon, 0.5 + epsilon, i, length)


def _secret_rise(low: float, high: float, phase: int, length: int) -> ShiftingArms:
    """Return arms of 1/2 and ``low``, the latter ``high`` from the given phase on, if any."""
    before, after = (0.5, low), (0.5, high)
    if phase < 2:
        clicks: list[tuple[float, float]] = [after if phase else before]
        return ShiftingArms(arms=2, events=[], clicks=clicks, announced=True)
    event = (phase - 1) * length + 1
    return ShiftingArms(arms=2, events=[event], clicks=[before, after], announced=True)


def _open(field: str, value: Any, high: float) -> float:
    """Return ``value`` as a float in the open interval from 0 to ``high``."""
    number = checks.number(field, value, 0.0, high, open_low=True)
    if number == high:
        raise InvalidValue(field, value, f"give a number in (0, {high:g})")
    return number


def fresh_instances(arms: int, horizon: int, best: Sequence[int], shift: float) -> ShiftingArms:
    """Return an instance of theorem 6 (i): after each event the bandit problem is a new one.

    k phases of ⌊T/k⌋ rounds; in phase i the arm y_i is clicked with probability 1/2 + ε and all
    others with 1/2 − ε. Every policy has regret Ω(k·n/ε)·ln(T/k) on some of these instances,
    even if aware of the events; the one signal of the context tells of them (``announced``).

    Parameters
    ----------
    arms : int
        n, at least 3.
    horizon : int
        T, at least k.
    best : sequence of int
        y_1, …, y_k, neighbours being different. The paper counts the first phase as an event.
    shift : float
        ε, in (0, 1/4).

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Examples
    --------
    >>> environment = fresh_instances(arms=3, horizon=900, best=[2, 0, 1], shift=0.2)
    >>> environment.events, environment.clicks[0]
    ((301, 601), (0.3, 0.3, 0.7))
    """
    n = checks.integer("arms", arms, 3)
    winners = [checks.integer("best", arm, 0, n - 1) for arm in best]
    if not winners or any(a == b for a, b in pairwise(winners)):
        raise InvalidValue("best", best, "give at least one arm, and never one twice in a row")
    epsilon = _open("shift", shift, 0.25)
    length = checks.integer("horizon", horizon, 2 * len(winners)) // len(winners)
    clicks = [[0.5 + epsilon if arm == won else 0.5 - epsilon for arm in range(n)] for won in winners]
    events = [i * length + 1 for i in range(1, len(winners))]
    return ShiftingArms(arms=n, events=events, clicks=clicks, announced=True)


def false_alarms(horizon: int, diameter: int, phase: int) -> ScriptedArms:
    """Return instance I_i of theorem 6 (ii): many contexts may announce the event, one does.

    N = min(d, ⌊T^(1/3)⌋) phases of ⌊T/N⌋ rounds. Arm 0 is always clicked with probability 1/2;
    arm 1 with 1/(1 + e^(1/3)) before phase i and e^(1/3)/(1 + e^(1/3)) from it on. Contexts are
    numbers, as in :func:`alarm_concepts`: the first round of phase j has context j, for all j in
    I_0 and for j ≤ i in I_i (claim 5); every other round has context 0, which is never an event.
    Every policy has regret Ω(T^(1/3)) or Ω(d·ln T) on one of them.

    Parameters
    ----------
    horizon : int
        T, at least 8.
    diameter : int
        d, at least 1.
    phase : int
        i, from 0 to N; 0 for no event. In phase 1 there is none either: arm 1 is best from the
        first round on.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Examples
    --------
    >>> environment = false_alarms(horizon=1000, diameter=4, phase=3)
    >>> environment.events, environment.signals
    ((501,), ((1, 1.0), (251, 2.0), (501, 3.0)))
    """
    rounds = checks.integer("horizon", horizon, 8)
    root = bisect_left(range(rounds), True, key=lambda n: (n + 1) ** 3 > rounds)
    phases = min(checks.integer("diameter", diameter, 1), root)
    i = checks.integer("phase", phase, 0, phases)
    length = rounds // phases
    low = 1.0 / (1.0 + math.exp(1.0 / 3.0))
    arms = _secret_rise(low, 1.0 - low, i, length)
    signals = [((j - 1) * length + 1, float(j)) for j in range(1, (i or phases) + 1)]
    return ScriptedArms(arms.clicks, arms.events, tuple(signals))


def alarm_concepts(diameter: int) -> FiniteConcepts:
    """Return the concept class of :func:`false_alarms`, of the given diameter.

    Contexts are the numbers from 0 to d. Concept j, from 1 to d, calls only context j an event;
    concept 0 calls none one.

    Parameters
    ----------
    diameter : int
        d, at least 1.

    Raises
    ------
    InvalidValue
        If it is out of its range.

    Examples
    --------
    >>> alarm_concepts(2).table
    ((-1, -1, -1), (-1, 1, -1), (-1, -1, 1))
    """
    d = checks.integer("diameter", diameter, 1, 2**12)
    table = 2 * np.eye(d + 1, dtype=np.int64) - 1
    table[0, 0] = -1
    return FiniteConcepts(tuple(map(tuple, table.tolist())))


@dataclass(frozen=True)
class ScriptedArms(Environment):
    """One key whose contexts are given, a number a round, and whose clicks change at given rounds.

    Parameters
    ----------
    clicks : sequence, shape (segments, arms)
        Click probabilities before, between and after the events.
    events : sequence of int
        Rounds (from 1) at which they change, increasing, the first at least 2.
    signals : sequence of (int, float)
        Rounds, increasing, and their contexts; the context of every other round is 0.
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Examples
    --------
    >>> import tacit
    >>> environment = ScriptedArms([[0.9, 0.1], [0.1, 0.9]], events=[51], signals=[(51, 3.0)])
    >>> result = tacit.simulate(tacit.UniformRandom(arms=2), environment, horizon=100, seed=1)
    >>> bool(20 < result.regret[0, 0, -1] < 60)
    True
    """

    class World(NamedTuple):
        impression: Impression
        clicks: Floats  # (segments, arms)
        starts: Ints  # (segments,) first round of each
        segment: Ints  # (1,) the present segment
        signal_rounds: Ints  # (signals + 1,)
        signals: Floats  # (signals + 1,)
        signal: Ints  # (1,) the next signal
        best: Floats  # (segments,)
        uniform: Floats  # (1,)

    clicks: Any
    events: Any = ()
    signals: Any = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("clicks", probabilities("clicks", self.clicks, 2))
        events = tuple(checks.integer("events", round, 2) for round in self.events)
        signals = tuple(
            (checks.integer("signals", round, 1), checks.number("signals", x, -math.inf, math.inf))
            for round, x in self.signals
        )
        _increasing("events", events)
        _increasing("signals", tuple(round for round, _ in signals))
        if len(self.clicks) != 1 + len(events):
            raise InvalidValue("clicks", self.clicks, "give one segment more than events")
        self._set("events", events)
        self._set("signals", signals)

    @property
    def arm_count(self) -> int:
        return len(self.clicks[0])

    @property
    def context_dim(self) -> int:
        return 1

    def world(self, rng: Generator, horizon: int) -> World:
        clicks = np.array(self.clicks)
        return self.World(
            impression=Impression(np.arange(self.arm_count), np.zeros(1)),
            clicks=clicks,
            starts=np.array([1, *self.events, NO_EVENT], np.int64),
            segment=np.zeros(1, np.int64),
            signal_rounds=np.array([*(round for round, _ in self.signals), NO_EVENT], np.int64),
            signals=np.array([*(x for _, x in self.signals), 0.0]),
            signal=np.zeros(1, np.int64),
            best=clicks.max(axis=1),
            uniform=np.zeros(1),
        )

    @staticmethod
    def arrive(params: ScriptedArms, world: World, round: int, rng: Generator) -> int:
        if round + 1 == world.starts[world.segment[0] + 1]:
            world.segment[0] += 1
        signal = world.signal[0]
        world.impression.context[0] = 0.0
        if round + 1 == world.signal_rounds[signal]:
            world.impression.context[0] = world.signals[signal]
            world.signal[0] += 1
        world.uniform[0] = rng.random()
        return 0

    respond = staticmethod(ShiftingArms.respond)
    expected = staticmethod(ShiftingArms.expected)
    optimum = staticmethod(ShiftingArms.optimum)


def _increasing(field: str, rounds: tuple[int, ...]) -> None:
    """Refuse rounds that do not increase."""
    if sorted(set(rounds)) != list(rounds):
        raise InvalidValue(field, rounds, "give rounds in increasing order")
