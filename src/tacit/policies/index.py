"""Index policies: compute an index for each arm, play the highest.

First come priors of arms, minimum shares, and policies whose scores all move by one draw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from tacit.core import checks, dispatch
from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import confidence, index, kernel
from tacit.core.part import set_field
from tacit.errors import InvalidValue
from tacit.frames import frame_batches, frame_names, is_frame
from tacit.policies.base import ArmBeliefs, Counts, Impression, Outcome, Policy, count, forget, uncount

# ---- Prior successes and failures of arms, and their minimum shares

Priors = tuple[tuple[int | str, float, float], ...]
"""Arms with prior successes and failures, in the order of arm indices."""

MOST = 1e6
COUNTS = {
    "arm": ("arm", "variant", "item", "name"),
    "successes": ("successes", "clicks", "conversions", "sales", "rewards", "reward"),
    "failures": ("failures",),
    "plays": ("plays", "impressions", "shown", "trials", "views", "visitors", "count", "n"),
}
"""Names of the columns of a table of counts, by what they hold."""
REMEDY = 'give successes and failures of arms, such as {"film": (4, 96)}'


class PriorsPolicy(Policy, abstract=True):
    """Base of the policies that take prior successes and failures of arms.

    A subclass has the field ``priors``.
    """

    priors: Any = ()

    def __post_init__(self) -> None:
        """Validate the hyperparameters; store the priors in the order of arm indices."""
        super().__post_init__()
        priors = read_priors(self.priors)
        if priors != ():
            set_field(self, "priors", check_priors(priors, self.arms))


def read_prior_counts(policy: PriorsPolicy) -> Floats:
    """Return prior successes and failures of each arm, of shape (arms, 2); 0 for an arm without a prior."""
    names = range(policy.arms) if isinstance(policy.arms, int) else policy.arms
    counts_by_arm = {arm: (successes, failures) for arm, successes, failures in policy.priors}
    return np.array([counts_by_arm.get(arm, (0.0, 0.0)) for arm in names])


def read_priors(priors: Any) -> Any:
    """Return the counts of a table of arms as a tuple (arm, successes, failures); other values unchanged.

    Examples
    --------
    >>> import pyarrow as pa
    >>> read_priors(pa.table({"arm": ["film"], "clicks": [4], "impressions": [100]}))
    (('film', 4.0, 96.0),)
    >>> read_priors({"film": (4, 96)})
    {'film': (4, 96)}
    """
    if isinstance(priors, str | PathLike):
        raise InvalidValue("priors", priors, f"give the table in it, or run tacit fit --counts {priors}")
    if isinstance(priors, Mapping) or not is_frame(priors):
        return priors
    names = frame_names(priors)
    columns = {
        role: next((name for alias in aliases for name in names if name.lower() == alias), None)
        for role, aliases in COUNTS.items()
    }
    arm, successes, failures, plays = columns.values()
    if arm is None or successes is None or (failures is None and plays is None):
        allowed = "; ".join(f"{role}: {', '.join(aliases)}" for role, aliases in COUNTS.items())
        remedy = f"give a table with columns for arm, successes, and plays or failures, called: {allowed}"
        raise InvalidValue("priors", f"a table of {', '.join(map(repr, names))}", remedy)
    columns_read = [name for name in (arm, successes, failures or plays) if name is not None]
    rows = [
        row
        for batch in frame_batches(priors, columns_read)
        for row in zip(*batch.to_pydict().values(), strict=True)
    ]
    counts = [
        (name, *(checks.number(f"priors.{name}", number, 0.0, MOST) for number in numbers))
        for name, *numbers in rows
    ]
    if failures is None and (wrong := next((row for row in counts if row[1] > row[2]), None)):
        raise InvalidValue(f"priors.{wrong[0]}", wrong[1:], "give at least as many plays as successes")
    return tuple((name, good, number if failures else number - good) for name, good, number in counts)


def check_priors(priors: Any, arms: int | tuple[str, ...]) -> Priors:
    """Return validated priors as tuples (arm, successes, failures) in the order of arm indices.

    Raises
    ------
    InvalidValue
        If an arm does not exist or comes twice, or its prior is no pair of numbers within [0, 1e6].
    """
    priors_by_index = {}
    for arm, pair in _parse_priors(priors):
        arm_index = find_arm_index("priors", arm, arms)
        if arm_index in priors_by_index:
            raise InvalidValue("priors", arm, "tell each arm once")
        name = arm_index if isinstance(arms, int) else arms[arm_index]
        path = f"priors.{arm}"
        priors_by_index[arm_index] = (name, *(checks.number(path, value, 0.0, MOST) for value in pair))
    return tuple(priors_by_index[arm_index] for arm_index in sorted(priors_by_index))  # type: ignore[misc]


def _parse_priors(priors: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return priors, a mapping or a sequence of (arm, successes, failures), as pairs of arm and counts.

    Raises InvalidValue if they have another form or an arm does not have two counts.
    """
    pairs: list[tuple[Any, tuple[Any, ...]]]
    try:
        if isinstance(priors, Mapping):
            pairs = [(arm, tuple(counts)) for arm, counts in priors.items()]
        else:
            pairs = [(arm, tuple(counts)) for arm, *counts in priors]
    except (TypeError, ValueError):
        raise InvalidValue("priors", priors, REMEDY) from None
    for arm, counts in pairs:
        if len(counts) != 2 or isinstance(arm, float):
            raise InvalidValue(f"priors.{arm}", counts, REMEDY)
    return pairs


def find_arm_index(field: str, arm: Any, arms: int | tuple[str, ...]) -> int:
    """Return the index of an arm in ``arms``, a number of arms or their names; raise InvalidValue if it is
    unknown.

    The number of an arm may be given as text. ``field`` names the setting in the error.

    Raises
    ------
    InvalidValue
        If there is no such arm.
    """
    names = list(map(str, range(arms))) if isinstance(arms, int) else list(arms)
    name = str(arm) if isinstance(arms, int) else arm
    if name not in names:
        raise InvalidValue(field, arm, f"name arms that there are: {', '.join(names)}")
    return names.index(name)


LARGEST_SHARE_SUM = 0.5
"""Largest sum of minimum shares."""


def check_shares(shares: Any, arms: int | tuple[str, ...]) -> tuple[tuple[int | str, float], ...]:
    """Return validated minimum shares as pairs (arm, share) in the order of arm indices.

    Raises
    ------
    InvalidValue
        If an arm does not exist, a share is out of (0, 0.5], or the sum exceeds 0.5.
    """
    try:
        pairs = [(arm, share) for arm, share in dict(shares).items()]
    except (TypeError, ValueError):
        raise InvalidValue("at_least", shares, 'give shares of arms, such as {"control": 0.1}') from None
    shares_by_index = {}
    for arm, share in pairs:
        arm_index = find_arm_index("at_least", arm, arms)
        name = arm_index if isinstance(arms, int) else arms[arm_index]
        shares_by_index[arm_index] = (
            name,
            checks.number(f"at_least.{arm}", share, 0.0, LARGEST_SHARE_SUM, open_low=True),
        )
    total = sum(share for _, share in shares_by_index.values())
    if total > LARGEST_SHARE_SUM:
        remedy = f"let shares sum up to at most {LARGEST_SHARE_SUM}: the rest is what learning has to give"
        raise InvalidValue("at_least", f"{total:g} in all", remedy)
    return tuple(shares_by_index[arm_index] for arm_index in sorted(shares_by_index))  # type: ignore[misc]


# ---- Functions for policies that move the scores of all arms by one draw, z = |N(0, 1)|


@kernel
def interval_probability(low: float, high: float) -> float:
    """Return the probability that |z|, z being standard normal, is between ``low`` and ``high`` (0 ≤ low).

    It is 0 if ``high`` is not above ``low``.
    """
    if high <= low:
        return 0.0
    return math.erfc(low * math.sqrt(0.5)) - math.erfc(high * math.sqrt(0.5))


@kernel
def break_tie(ties: float, tie: float) -> tuple[bool, float]:
    """Return True if the latest of ``ties`` tied arms takes the lead, and the uniform draw for the next one.

    Call it for each tied arm in turn, with ``tie`` the draw of the call before: then each arm leads in the
    end with the same probability, and one random number suffices.
    """
    if tie * ties < 1.0:
        return True, tie * ties
    return False, (tie * ties - 1.0) / (ties - 1.0)


@kernel
def insert_crossing(crossings: Floats, count: int, z: float, rises: bool) -> None:
    """Insert a point ``z`` ≥ 0, where another arm's line crosses this arm's line, into ``crossings``, sorted
    by size.

    The first ``count`` entries are in use. The entry is z if the other line rises above this arm's there, −z
    if it falls below it.
    """
    k = count
    while k > 0 and abs(crossings[k - 1]) > z:
        crossings[k] = crossings[k - 1]
        k -= 1
    crossings[k] = z if rises else -z


@kernel
def probability_alone(crossings: Floats, count: int, low: float, above: int) -> float:
    """Return the probability that \\|z\\| exceeds ``low`` and that no included line is above the arm's, z
    being normal.

    Each other line is included with probability ½. ``above`` lines are above the arm's at ``low``;
    ``crossings`` says where lines rise above it or fall below it, and is reset to 0.
    """
    probability, tail = 0.0, math.erfc(low * math.sqrt(0.5))
    for k in range(count):
        next_tail = math.erfc(abs(crossings[k]) * math.sqrt(0.5))
        probability += math.ldexp(tail - next_tail, -above)
        above += 1 if crossings[k] > 0.0 else -1
        tail = next_tail
        crossings[k] = 0.0
    return probability + math.ldexp(tail, -above)


# ---- Index policies: compute an index for each arm, play the highest


@kernel
def greedy_choice(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> int:
    """Return the offered arm of the highest index; ties are broken uniformly at random."""
    shared = confidence(params, state, lane)
    best, leader, ties = -math.inf, -1, 0.0
    for arm in impression.arms:
        score = index(params, state, lane, arm, shared)
        if score > best:
            best, leader, ties = score, arm, 1.0
        elif score == best:
            ties += 1.0
            if rng.random() * ties < 1.0:
                leader = arm
    return leader


@kernel
def greedy_propensity(params: Any, state: Any, lane: int, impression: Impression, shown: int) -> float:
    """Return the probability that :func:`greedy_choice` returns ``shown``: 1/(arms tied for the highest
    index), or 0.
    """
    shared = confidence(params, state, lane)
    best, ties = -math.inf, 0.0
    for offered in impression.arms:
        score = index(params, state, lane, offered, shared)
        if score > best:
            best, ties = score, 1.0
        elif score == best:
            ties += 1.0
    return 1.0 / ties if index(params, state, lane, shown, shared) == best else 0.0


@kernel
def radius_index(counts: Any, lane: int, arm: int, confidence: float) -> float:
    """Return mean + confidence/sqrt(plays) of an arm; infinity before its first play."""
    plays = counts.plays[lane, arm]
    if plays == 0.0:
        return math.inf
    return float(counts.rewards[lane, arm] / plays + confidence / np.sqrt(plays))


class Indexed(Policy, abstract=True):
    """Base of the policies that rank arms by an index.

    A subclass defines the kernels ``confidence(params, state, lane)``, computed once a round,
    ``index(params, state, lane, arm, confidence)``, computed for each arm, and ``learn``.
    """

    kernels: ClassVar[tuple[Any, ...]] = dispatch.POLICY_KERNELS + dispatch.INDEX_KERNELS
    randomized: ClassVar[bool] = False

    @staticmethod
    def confidence(params: Any, state: Any, lane: int) -> float:
        """Return the term that the indices of all arms of a lane share, so that it is computed once a round;
        by default 0.
        """
        return 0.0

    @staticmethod
    def index(params: Any, state: Any, lane: int, arm: int, confidence: float) -> float:
        """Return the index by which ``arm`` is ranked in a lane; the arm of the highest index is played."""
        raise NotImplementedError


class IndexPolicy(Indexed, abstract=True):
    """Base of the policies that play the arm of the highest index; ties are broken at random.

    A subclass defines the kernels ``confidence``, ``index`` and ``learn``; see :class:`Indexed`.
    """

    choose = staticmethod(greedy_choice)
    propensity = staticmethod(greedy_propensity)


class RadiusPolicy(IndexPolicy, abstract=True):
    """Base of the upper confidence bounds over ``plays`` and ``rewards`` of their State.

    A subclass defines the kernel ``confidence``: the radius of an arm that was played once.
    """

    @staticmethod
    def index(params: Any, state: Any, lane: int, arm: int, confidence: float) -> float:
        """Return mean + confidence/sqrt(plays) of an arm; infinity before its first play."""
        return radius_index(state, lane, arm, confidence)


class CountingPolicy(PriorsPolicy, IndexPolicy, abstract=True):
    """Base of the index policies whose state is plays and rewards per arm.

    With the field ``priors``, each key begins with these plays and rewards.
    """

    def init(self, lanes: int) -> Counts:
        """Return the counts of new lanes: zero, or the plays and rewards of the priors."""
        state = Counts.zeros(lanes, self.arm_count)
        if len(self.priors):
            counts = read_prior_counts(self)
            plays = counts.sum(axis=1)
            state.plays[:], state.rewards[:], state.rounds[:] = plays, counts[:, 0], plays.sum()
        return state

    @staticmethod
    def learn(params: Any, state: Counts, lane: int, outcome: Outcome) -> None:
        """Add one play and its reward to the counts of the arm that was shown."""
        count(state, lane, outcome.shown, outcome.reward)

    @staticmethod
    def unlearn(params: Any, state: Counts, lane: int, outcome: Outcome) -> None:
        """Remove one play and its reward from the counts of the arm that was shown."""
        uncount(state, lane, outcome.shown, outcome.reward)

    @property
    def forgets(self) -> bool:
        """Whether the policy restarts; counts alone forget nothing."""
        return hasattr(self, "epoch")

    def beliefs(self, state: Counts, lane: int) -> ArmBeliefs:
        """Return the beliefs about the arms of one lane that follow from its counts."""
        return ArmBeliefs.from_counts(state.plays[lane], state.rewards[lane])

    @staticmethod
    def restart(params: Any, state: Counts, lane: int) -> None:
        """Set the counts of a lane to zero; priors are lost, too."""
        forget(state, lane)

    @staticmethod
    def estimate(params: Any, state: Counts, lane: int, arm: int) -> float:
        """Return the mean reward of an arm; 0 before its first play."""
        plays = state.plays[lane, arm]
        return float(state.rewards[lane, arm] / plays) if plays > 0.0 else 0.0


# ---- The upper envelope of the arms' lines over |z|


@kernel
def highest_after(lines: Floats, count: int, highest: int, low: float) -> tuple[int, float]:
    """Return the line that crosses line ``highest``, the highest at ``low``, next, and the point of the
    crossing.

    The first ``count`` rows of ``lines`` hold intercept and slope. The crossing is at least ``low``. Of lines
    that cross at the same point, the steepest is returned; if no line is steeper than ``highest``, −1 and
    infinity.
    """
    found, high = -1, np.inf
    for i in range(count):
        if lines[i, 1] > lines[highest, 1]:
            crossing = (lines[highest, 0] - lines[i, 0]) / (lines[i, 1] - lines[highest, 1])
            crossing = max(crossing, low)
            if crossing < high or (crossing == high and found >= 0 and lines[i, 1] > lines[found, 1]):
                found, high = i, crossing
    return found, high


@kernel
def envelope_share(lines: Floats, count: int, place: int) -> float:
    r"""Return the probability that line ``place`` is the highest of all at \|z\|, z being standard normal.

    The first ``count`` rows of ``lines`` hold intercept and slope. The upper envelope is followed from 0 on,
    so that shares add up to 1. Equal lines get equal shares.
    """
    highest, low = 0, 0.0
    for i in range(count):
        if (lines[i, 0], lines[i, 1]) > (lines[highest, 0], lines[highest, 1]):
            highest = i
    while highest >= 0:
        following, high = highest_after(lines, count, highest, low)
        if lines[highest, 0] == lines[place, 0] and lines[highest, 1] == lines[place, 1]:
            equal_lines = 0.0
            for i in range(count):
                if lines[highest, 0] == lines[i, 0] and lines[highest, 1] == lines[i, 1]:
                    equal_lines += 1.0
            return interval_probability(low, high) / equal_lines
        highest, low = following, high
    return 0.0
