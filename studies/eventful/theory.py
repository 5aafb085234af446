"""The theorems of Syed, Slivkins and Mishra (2009) as numbers, and environments that no policy does well in.

All references are to the full version of "Adapting to the shifting intent of search queries".
Where the paper says O(·) or Θ(·), a constant is given here that its proof supports, and the
docstring says how. The constants are valid, not sharp: in practice far fewer rounds will do.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from tacit.classifiers import FiniteConcepts, Rectangle
from tacit.classifiers.base import TIE
from tacit.classifiers.concepts import LARGEST_SEARCH, longest_sequence
from tacit.core import checks
from tacit.core.arrays import Generator
from tacit.core.dispatch import kernel
from tacit.environments import ShiftingArms
from tacit.errors import InvalidValue

ESTIMATE_CONSTANT = 8.0 + 0.7 * math.sqrt(5.0)
"""How many radii of v* the estimate of theorem 2 may be off, beside Δ(u)/4."""

# The testable bandit: section 6 ---------------------------------------------------------------


def failure_probability(arms: int, rounds: int, t0: float) -> float:
    """Return a bound on the probability that theorem 2 fails: 2·n·t·(t0 + ⌈t/2⌉ + 1)^−8, at most 1.

    Hoeffding's inequality for each arm and each number m ≥ 1 of its plays, at the radius of the
    earliest round in which v* may have been played last: 2·exp(−16·m/(1 + m)·ln(t0 + ⌈t/2⌉ + 1)),
    with m/(1 + m) ≥ 1/2. It is below the paper's (t0 + t)^−2 wherever t0 + t ≥ max(32, n).

    Parameters
    ----------
    arms : int
        n, at least 1.
    rounds : int
        t, at least 2.
    t0 : float
        Rounds added to the clock; at least 0.

    Examples
    --------
    >>> failure_probability(arms=5, rounds=1000, t0=1000) < 2000**-2
    True
    """
    half = rounds - rounds // 2
    return float(min(1.0, 2.0 * arms * rounds * (t0 + half + 1.0) ** -8))


def estimate_error(arms: int, rounds: int, t0: float) -> float:
    """Return δ(t) of theorem 2 for UCB1(6, t0): |Δ(u) − Δ_t(u)| < Δ(u)/4 + δ(t).

    δ(t) = (8 + 7·√5/10)·ρ with ρ = sqrt(8·n·ln(t0 + t)/⌊t/2⌋). By pigeonhole v* has ⌊t/2⌋/n
    plays, so its radius is at most ρ, both in the round s in which it was played last (whose
    1 + n is the count after the play) and at the end. Then, as in the proof, Δ(v*) ≤ 7·ρ;
    5·r_s(u) ≤ Δ(u) + 7·ρ; and r_t(u) ≤ √(5/4)·r_s(u), because t0 + s ≥ (t0 + t)/2 ≥ 16. The sum
    Δ(v*) + r_t(v*) + r_t(u) is at most 7·ρ + ρ + (√5/10)·(Δ(u) + 7·ρ), and √5/10 < 1/4.

    Parameters
    ----------
    arms : int
        n, at least 1.
    rounds : int
        t, at least 2, with t0 + t ≥ 32.
    t0 : float
        Rounds added to the clock; at least 0.

    Returns
    -------
    float
        Above 1 where the theorem says nothing, because all Δ are in [0, 1].

    Examples
    --------
    >>> round(estimate_error(arms=2, rounds=10**6, t0=10**6), 4)
    0.2061
    """
    return ESTIMATE_CONSTANT * math.sqrt(8.0 * arms * math.log(rounds + t0) / (rounds // 2))


def rounds_to_test(arms: int, min_shift: float, horizon: int) -> int:
    """Return L(n, ε_S, T): TestableUCB1.theory is (L, ε_S)-testable from this many rounds.

    The least L with δ(L) ≤ ε_S/4 (theorem 3), where t0 = T: some 23 400·n·ln(T + L)/ε_S².

    Parameters
    ----------
    arms : int
        n, at least 1.
    min_shift : float
        ε_S, in (0, 1].
    horizon : int
        T, at least 32.

    Returns
    -------
    int
        Possibly more than the horizon, which then is too short for the theorem to apply.

    Examples
    --------
    >>> rounds_to_test(arms=2, min_shift=0.9, horizon=10**7)
    937344
    >>> rounds_to_test(arms=5, min_shift=0.1, horizon=30_000) > 30_000
    True
    """

    def enough(half: int) -> bool:
        return estimate_error(arms, 2 * half, horizon) <= min_shift / 4.0

    # ⌊L/2⌋ alone counts, so the least L is even.
    return 2 * (1 + bisect_left(range(1, 2**60), True, key=enough))


# Regret: theorems 1 and 4 ---------------------------------------------------------------------


def event_free_regret(arms: int, gap: float, rounds: float, alpha: float = 6.0, t0: float = 0.0) -> float:
    """Return a bound on the regret R₀(t) of UCB1(α, t0) without events: equation 5.

    The least of t; (n − 1)·(8·(α + 1)²·ln(t0 + t)/Δ + 1); and
    2·(α + 1)·sqrt(8·n·t·ln(t0 + t)) + n. Each is concave in t.

    While all means are within their radii, an arm is played as long as Δ(u) ≤ (α + 1)·r(u), which
    is 8·(α + 1)²·ln(t0 + t)/Δ(u)² times at most. The expected number of plays in rounds in which
    they are not is below Σ 2·(s − 1)·(t0 + s)^−8 < 1. The third bound counts arms of a gap below
    (α + 1)·sqrt(8·n·ln(t0 + t)/t) with that gap, whatever their plays.

    Parameters
    ----------
    arms : int
        n, at least 1.
    gap : float
        Δ, the least gap of an arm that is not best; in (0, 1].
    rounds : float
        t, at least 1.
    alpha : float, default 6
        Scale of the radius α·sqrt(8·ln(t0 + t)/(1 + n)); at least 1.
    t0 : float, default 0
        Rounds added to the clock; at least 0.

    Examples
    --------
    >>> round(event_free_regret(arms=2, gap=0.5, rounds=10**6, t0=10**6))
    11376
    """
    scale, log = 1.0 + alpha, math.log(t0 + rounds)
    by_gap = (arms - 1) * (8.0 * scale**2 * log / gap + 1.0)
    by_rounds = 2.0 * scale * math.sqrt(8.0 * arms * rounds * log) + arms
    return min(rounds, by_gap, by_rounds)


def bwc_regret(
    event_free: Callable[[float], float], events: int, false_positives: float, test_rounds: int, horizon: int
) -> float:
    """Return the bound of theorem 1 on the regret of BWC that starts each phase cold.

    With m = 2·k + d + 1 testing phases, m·R₀(T/m) + (k + d + 1)·R₀(L) + k·L + 2/L. The paper has
    m = 2·k + d: it counts the testing phases that end with a label, and the first has no earlier
    phase to be compared with. 2/L is the regret of guesses that fail, of which the paper says
    that it is negligible: T/L phases, each with probability 2·T^−2, at most T rounds each.

    Parameters
    ----------
    event_free : function
        R₀, concave: from a number of rounds to the bandit's regret in them without events.
    events : int
        k, at least 0; any two at least 2·L rounds apart.
    false_positives : float
        d, the classifier's FP-complexity, or the diameter, which bounds it; at least 0.
    test_rounds : int
        L, at least 2, for which the bandit is (L, ε_S)-testable.
    horizon : int
        T, at least L.

    Examples
    --------
    >>> bwc_regret(lambda t: 10.0, events=1, false_positives=2, test_rounds=100, horizon=1000)
    190.02
    """
    # More phases than rounds cannot be, however large the diameter.
    phases = min(2.0 * events + false_positives + 1.0, float(horizon))
    clean = min(events + false_positives + 1.0, float(horizon))
    adapting = phases * event_free(horizon / phases)
    return adapting + clean * event_free(float(test_rounds)) + events * test_rounds + 2.0 / test_rounds


def bwc_ucb1_regret(
    arms: int, gap: float, min_shift: float, events: int, diameter: float, horizon: int
) -> float:
    """Return the bound of theorem 4: BWC over TestableUCB1.theory, L from :func:`rounds_to_test`.

    Theorem 1 with :func:`event_free_regret` at α = 6 and t0 = T:
    O((3·k + 2·d)·n/Δ + k·n/ε_S²)·ln T. The paper prints it without the O(·), with which it
    fails at usual horizons, and L there without the square of ε_S.

    Parameters
    ----------
    arms : int
        n, at least 1.
    gap : float
        Δ, in (0, 1].
    min_shift : float
        ε_S, in (0, 1].
    events : int
        k, at least 0.
    diameter : float
        d of the concept class; at least 0.
    horizon : int
        T; at least L.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, or the horizon is below L.

    Examples
    --------
    >>> bound = bwc_ucb1_regret(2, gap=0.9, min_shift=0.9, events=1, diameter=2, horizon=10**7)
    >>> bound < 0.12 * 10**7
    True
    """
    length = rounds_to_test(arms, min_shift, horizon)
    if length > horizon:
        raise InvalidValue("horizon", horizon, f"give at least L = {length} rounds")

    def event_free(rounds: float) -> float:
        return event_free_regret(arms, gap, rounds, t0=horizon)

    return bwc_regret(event_free, events, diameter, length, horizon)


# Classifiers: section 5 -----------------------------------------------------------------------

Universe = Literal["box", "ball"]
"""Where contexts are: the unit box [0, 1]^d as in this package, or the paper's unit ball."""


def rectangle_diameter(dim: int, margin: float, universe: Universe = "box") -> float:
    """Return the diameter of axis-parallel rectangles with a margin: claim 2, O(d/δ).

    1 + d·(⌈w/δ⌉ − 1), for contexts in a range of width w in each coordinate: 1 in the box, 2 in
    the paper's L∞ ball. The first false positive makes the box of false-labelled contexts a
    point; each later one moves a side of it by more than δ. It is reached, so no bound is lower.

    Parameters
    ----------
    dim : int
        d, at least 1.
    margin : float
        δ, in (0, 1].
    universe : {"box", "ball"}, default "box"

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Examples
    --------
    >>> rectangle_diameter(10, 0.1), rectangle_diameter(10, 0.1, "ball")
    (91.0, 191.0)
    """
    concepts = Rectangle(dim, margin)
    width = 2.0 if universe == "ball" else 1.0
    return 1.0 + concepts.dim * (math.ceil(width / (concepts.margin + TIE)) - 1)


def hyperplane_diameter(dim: int, margin: float, universe: Universe = "box") -> float:
    """Return a bound on the diameter of hyperplanes with a margin: claim 3, (1 + r/δ)^d.

    False positives are more than 2·δ apart, so balls of radius δ around them do not meet, and
    they lie in a ball of radius r + δ: r = 1 for the paper's L2 ball, √d/2 for the box.

    Parameters
    ----------
    dim : int
        d, at least 1.
    margin : float
        δ, in (0, 1].
    universe : {"box", "ball"}, default "box"

    Examples
    --------
    >>> hyperplane_diameter(2, 0.5, "ball")
    9.0
    """
    radius = 1.0 if universe == "ball" else math.sqrt(dim) / 2.0
    try:
        return (1.0 + radius / margin) ** dim
    except OverflowError:
        return math.inf


def false_positive_complexity(concepts: FiniteConcepts) -> int:
    """Return the FP-complexity of SafeCl for a finite class, exactly: definition 2.

    The longest sequence of definition 3 among contexts that some concept, the truth, calls no
    event. It is at most the diameter (claim 1), which puts no such condition on the sequence.

    Parameters
    ----------
    concepts : FiniteConcepts
        A class small enough to be searched, in about a second.

    Raises
    ------
    InvalidValue
        If the class is too large.

    Examples
    --------
    >>> singleton = FiniteConcepts([[-1, 1]])
    >>> false_positive_complexity(singleton), singleton.diameter
    (0, 1.0)
    """
    table = np.array(concepts.table)
    longest = 0
    for truth in table:
        columns = {(_bits(saying == 1), _bits(saying == -1)) for saying in table[:, truth == -1].T}
        feasible = {(yes, no) for yes, no in columns if yes}
        if len(feasible) << min(len(feasible), len(table)) > LARGEST_SEARCH:
            raise InvalidValue("concepts", concepts, "give a smaller class; its diameter is a bound")
        longest = max(longest, longest_sequence(feasible, len(table)))
    return longest


def _bits(said: Any) -> int:
    """Return the set of true positions as an int."""
    return sum(1 << int(i) for i in np.flatnonzero(said))


# Environments that no policy does well in: theorems 5 and 6 -----------------------------------


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
    i = checks.integer("phase", phase, 0, length)
    return _secret_rise(0.5 - shift, 0.5 + shift, i, length)


def _secret_rise(low: float, high: float, phase: int, length: int) -> ShiftingArms:
    """Return arms of 1/2 and ``low``, the latter ``high`` from the given phase on, if any."""
    before, after = (0.5, low), (0.5, high)
    if phase < 2:
        clicks: list[tuple[float, float]] = [after if phase else before]
        return ShiftingArms(arms=2, events=[], clicks=clicks, announced=True)
    event = (phase - 1) * length + 1
    return ShiftingArms(arms=2, events=[event], clicks=[before, after], announced=True)


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
    if any(a == b for a, b in pairwise(best)):
        raise InvalidValue("best", best, "never give one arm twice in a row")
    clicks = [[0.5 + shift if arm == won else 0.5 - shift for arm in range(arms)] for won in best]
    events = [i * (horizon // len(best)) + 1 for i in range(1, len(best))]
    return ShiftingArms(arms=arms, events=events, clicks=clicks, announced=True)


def false_alarms(horizon: int, diameter: int, phase: int) -> AlarmingArms:
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

    Examples
    --------
    >>> environment = false_alarms(horizon=1000, diameter=4, phase=3)
    >>> environment.events, environment.length, environment.alarms
    ((501,), 250, 3)
    """
    phases = min(diameter, bisect_left(range(horizon), True, key=lambda n: (n + 1) ** 3 > horizon))
    length = horizon // phases
    low = 1.0 / (1.0 + math.exp(1.0 / 3.0))
    arms = _secret_rise(low, 1.0 - low, phase, length)
    told = {"clicks": arms.clicks, "events": list(arms.events), "announced": True}
    return AlarmingArms(2, **told, length=length, alarms=phase or phases)


def alarm_concepts(diameter: int) -> FiniteConcepts:
    """Return the concept class of :func:`false_alarms`, of the given diameter.

    Contexts are the numbers from 0 to d. Concept j, from 1 to d, calls only context j an event;
    concept 0 calls none one.

    Parameters
    ----------
    diameter : int
        d, at least 1.

    Examples
    --------
    >>> alarm_concepts(2).table
    ((-1, -1, -1), (-1, 1, -1), (-1, -1, 1))
    """
    table = 2 * np.eye(diameter + 1, dtype=np.int64) - 1
    table[0, 0] = -1
    return FiniteConcepts(tuple(map(tuple, table.tolist())))


shifting_arrive = kernel(ShiftingArms.arrive)


@dataclass(frozen=True)
class AlarmingArms(ShiftingArms):
    """One key whose context is j in the first round of phase j, for the first phases, and else 0.

    Parameters
    ----------
    length, alarms : int
        Rounds of a phase, and how many phases begin with an alarm.

    Examples
    --------
    >>> import tacit
    >>> environment = false_alarms(horizon=1000, diameter=4, phase=3)
    >>> result = tacit.simulate(tacit.UniformRandom(arms=2), environment, horizon=1000, seed=1)
    >>> bool(20 < result.regret[0, 0, -1] < 60)
    True
    """

    length: int = 1
    alarms: int = 0

    @staticmethod
    def arrive(params: Any, world: ShiftingArms.World, round: int, rng: Generator) -> int:
        lane, phase = shifting_arrive(params, world, round, rng), round // params.length + 1
        alarm = round % params.length == 0 and phase <= params.alarms
        world.impression.context[0] = float(phase) if alarm else 0.0
        return lane
