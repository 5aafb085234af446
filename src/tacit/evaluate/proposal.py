"""Parameters for policies that follow shifting intent, proposed from what a log shows of shifts.

Where each key's clicks changed in the log, all of it in memory; which changes were shifts of intent, and
how their contexts differ from others; then a parameter after the other, each with what it was derived from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Unpack

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.core.spread import counted
from tacit.core.text import Tabulated
from tacit.errors import LogError
from tacit.logs.doubts import NEARLY_ALL, SURELY
from tacit.logs.rows import lengths
from tacit.logs.sources import Reading, as_chunks, opened, say_rejected

# ---- Where a key's clicks changed, found afterwards: binary segmentation by likelihood ratios

LIKELY = math.log(1000.0)
"""A split that is a thousand times less likely than the best one is ruled out."""


class ChangePoint(NamedTuple):
    """A place where click probabilities changed.

    Attributes
    ----------
    round : int
        The most likely first round after the change, from 0.
    first, last : int
        The range of rounds that are not ruled out.
    """

    round: int
    first: int
    last: int


def changes(arms: Ints, rewards: Floats, arm_count: int, delta: float) -> list[ChangePoint]:
    """Return the changes in one key's clicks, in the order of their rounds.

    The rounds are split where, for some arm, two rates explain its rewards better than one by
    a log-likelihood ratio of ln(3·n·sqrt(n)·arms/δ), n being its plays; the place is the one
    at which the ratios of all arms add up to most. Both parts are searched in turn.

    Parameters
    ----------
    arms : array of int64, shape (rounds,)
        Slot of the arm that was shown in each round.
    rewards : array of float64, shape (rounds,)
        In [0, 1].
    arm_count : int
    delta : float
        About the probability of finding a change where there is none.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> arms = rng.integers(2, size=4000)
    >>> rates = np.where(np.arange(4000) < 1500, [[0.5], [0.2]], [[0.1], [0.2]])
    >>> rewards = (rng.random(4000) < rates[arms, np.arange(4000)]).astype(float)
    >>> [abs(change.round - 1500) < 30 for change in changes(arms, rewards, 2, 0.01)]
    [True]
    """
    found: list[ChangePoint] = []
    parts = [(0, len(arms))]
    while parts:
        start, stop = parts.pop()
        change = best_split(arms[start:stop], rewards[start:stop], arm_count, delta)
        if change is not None:
            found.append(ChangePoint(*(start + round for round in change)))
            parts += [(start, start + change.round), (start + change.round, stop)]
    return sorted(found)


def best_split(arms: Ints, rewards: Floats, arm_count: int, delta: float) -> ChangePoint | None:
    """Return the most likely change, if the evidence for any suffices."""
    total = np.zeros(max(len(arms) - 1, 0))
    evident = False
    for arm in range(arm_count):
        mine = arms == arm
        plays = int(mine.sum())
        if plays < 2:
            continue
        ratios = likelihood_ratios(mine, rewards)
        total += ratios
        threshold = math.log(3.0 * plays * math.sqrt(plays) * arm_count / delta)
        evident = evident or ratios.max() >= threshold
    if not evident:
        return None
    likely = np.flatnonzero(total >= total.max() - LIKELY)
    # The split after round i makes round i + 1 the first of the new rates.
    return ChangePoint(1 + int(total.argmax()), 1 + int(likely[0]), 1 + int(likely[-1]))


def likelihood_ratios(mine: np.ndarray, rewards: Floats) -> Floats:
    """Return, for a split after each round but the last, the log-likelihood ratio of one arm.

    Parameters
    ----------
    mine : array of bool, shape (rounds,)
        In which rounds the arm was shown.
    rewards : array of float64, shape (rounds,)

    Examples
    --------
    >>> ratios = likelihood_ratios(np.array([True, True, False, True]), np.array([1, 1, 0, 0.0]))
    >>> [round(float(ratio), 4) for ratio in ratios]  # 3·entropy(2/3) − 2·entropy(1/2), then all
    [0.5232, 1.9095, 1.9095]
    """
    before, clicks = np.cumsum(mine)[:-1], np.cumsum(np.where(mine, rewards, 0.0))
    plays, total = before[-1] + mine[-1], clicks[-1]
    first = clicks[:-1]
    apart = likelihood(first, before) + likelihood(total - first, plays - before)
    return np.asarray(apart - likelihood(total, plays))


def likelihood(clicks: Floats, plays: Ints) -> Floats:
    """Return the largest Bernoulli log-likelihood of clicks in plays, 0 where there are none."""
    missed = np.maximum(plays - clicks, 0.0)
    hit = np.maximum(clicks, 0.0)
    shown = np.log(np.maximum(plays, 1))
    return np.asarray(
        hit * (np.log(np.where(hit > 0.0, hit, 1.0)) - shown)
        + missed * (np.log(np.where(missed > 0.0, missed, 1.0)) - shown)
    )


# ---- The log in memory, and what happened to each key in it

LEAST_PLAYS = 20
"""Plays of an arm, before a change and after it, below which nothing is said of it."""


class LogColumns(NamedTuple):
    """All rows of a log.

    Attributes
    ----------
    lanes, arms : array of int64, shape (rows,)
        Which key, and which arm.
    rewards : array of float64, shape (rows,)
    contexts : array of float64, shape (rows, dim)
    names : list of (str, str)
        Placement and key of each lane.
    offered : float
        How many arms are on offer, in the median.
    arm_count : int
        How many there are in all.
    """

    lanes: Ints
    arms: Ints
    rewards: Floats
    contexts: Floats
    names: list[tuple[str, str]]
    offered: float
    arm_count: int

    @classmethod
    def read(cls, log: Any) -> LogColumns:
        """Return all rows of a log."""
        lanes: dict[tuple[str, str], int] = {}
        arms: dict[str, int] = {}
        parts: list[tuple[Ints, Ints, Floats, Ints, Floats]] = []
        dim = None
        for chunk in as_chunks(log):
            batch = chunk.batch
            if not len(chunk.rows):
                continue
            given = lengths(batch["context"])
            dim = int(given[0]) if dim is None else dim
            for row in np.flatnonzero(given != dim)[:1].tolist():
                raise LogError(
                    f"{chunk.where(row)}: context: it has {given[row]} numbers, "
                    f"rows before have {dim}; read the placements one by one"
                )
            pairs = zip(batch["placement"].to_pylist(), batch["key"].to_pylist(), strict=True)
            parts.append(
                (
                    np.array([lanes.setdefault(pair, len(lanes)) for pair in pairs]),
                    np.array([arms.setdefault(a, len(arms)) for a in batch["arm"].to_pylist()]),
                    batch["reward"].fill_null(0.0).to_numpy(),
                    lengths(batch["arms"]),
                    batch["context"].flatten().to_numpy().reshape(-1, dim or 0)
                    if dim
                    else np.zeros((len(given), 0)),
                )
            )
        if not parts:
            raise LogError("the log has no rows; nothing can be proposed from it")
        lane, arm, reward, offered, context = (np.concatenate(p) for p in zip(*parts, strict=True))
        return cls(lane, arm, reward, context, list(lanes), float(np.median(offered)), len(arms))


class KeyHistory(NamedTuple):
    """What happened to one key.

    Attributes
    ----------
    lane : int
    rows : array of int64, shape (rounds,)
        Its rows, in the order of the log.
    changes : list of ChangePoint
    plays, means : array of float64, shape (changes + 1, arms)
        Per stretch between changes.
    """

    lane: int
    rows: Ints
    changes: list[ChangePoint]
    plays: Floats
    means: Floats

    @classmethod
    def of(cls, columns: LogColumns, rows: Ints, lane: int, delta: float) -> KeyHistory:
        """Return the changes found in the rows of one key."""
        arms, rewards = columns.arms[rows], columns.rewards[rows]
        found = changes(arms, rewards, columns.arm_count, delta)
        edges = [0, *(change.round for change in found), len(rows)]
        shape = (len(found) + 1, columns.arm_count)
        plays, clicks = np.zeros(shape), np.zeros(shape)
        for part, (start, stop) in enumerate(pairwise(edges)):
            np.add.at(plays[part], arms[start:stop], 1.0)
            np.add.at(clicks[part], arms[start:stop], rewards[start:stop])
        return cls(lane, rows, found, plays, clicks / np.maximum(plays, 1.0))

    def shift_sizes(self) -> list[float]:
        """Return, per change, by how much the old best arm fell behind; 0 if it stayed best.

        What is less than two standard errors counts as nothing.
        """
        sizes = []
        for part in range(len(self.changes)):
            known = (self.plays[part : part + 2] >= LEAST_PLAYS).all(axis=0)
            size = 0.0
            if known.any():
                old = int(np.where(known, self.means[part], -1.0).argmax())
                new = int(np.where(known, self.means[part + 1], -1.0).argmax())
                means, plays = self.means[part + 1, [old, new]], self.plays[part + 1, [old, new]]
                error = math.sqrt(float((means * (1.0 - means) / plays).sum()))
                gap = float(means[1] - means[0])
                size = gap if gap > 2.0 * error else 0.0
            sizes.append(size)
        return sizes

    def best_rates(self) -> list[float]:
        """Return the click rate of the best known arm in each stretch."""
        known = np.where(self.plays >= LEAST_PLAYS, self.means, -1.0)
        return [rate for rate in known.max(axis=1).tolist() if rate >= 0.0]

    def variances(self) -> list[float]:
        """Return the variance of a click, for every arm and stretch in which it is known."""
        means = self.means[self.plays >= LEAST_PLAYS]
        return list((means * (1.0 - means)).tolist())


# ---- What a log suggests: parameters, what they were derived from, and warnings


class Shift(NamedTuple):
    """A change after which another arm was best.

    Attributes
    ----------
    placement, key : str
    round : int
        The most likely round of the key, from 1.
    size : float
        By how much the old best arm fell behind the new one.
    excess : float or None
        By how much the loudest context around that round leaves the normal box in some
        coordinate; at most 0 where none does, None without contexts.
    """

    placement: str
    key: str
    round: int
    size: float
    excess: float | None


@dataclass(frozen=True, repr=False)
class Proposal(Tabulated):
    """What a log suggests for BWC and its like.

    Attributes
    ----------
    min_shift : float
        By how much an event lowers an arm that was best, against the new best one.
    margin : float or None
        Least distance of an event's context from the normal ones; None without contexts.
    test_rounds : int
        L, the rounds of a testing phase.
    horizon : int
        Rounds of a key.
    derived : dict
        What each of these was derived from, by its name.
    warnings : tuple of str
        Where the log contradicts what the policies assume.
    shifts : tuple of Shift
        The changes of the best arm that were found.
    rows, keys, searched : int
        Rows and keys of the log, and keys in which changes were searched.
    policy : str
        A policy with these parameters, as the command line takes it.
    """

    min_shift: float
    margin: float | None
    test_rounds: int
    horizon: int
    derived: dict[str, str]
    warnings: tuple[str, ...]
    shifts: tuple[Shift, ...]
    rows: int
    keys: int
    searched: int
    policy: str

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per parameter: its value, and what it was derived from."""
        return [
            {"parameter": name, "value": getattr(self, name), "derived": source}
            for name, source in self.derived.items()
        ]

    def summary(self) -> str:
        """Return the proposals, what they were derived from, and the warnings as text."""
        width = max(map(len, self.derived))
        values = {name: getattr(self, name) for name in self.derived}
        shown = {name: "–" if value is None else f"{value:g}" for name, value in values.items()}
        longest = max(map(len, shown.values()))
        lines = [
            f"{self.rows:,} rows, {self.keys:,} keys; {len(self.shifts)} shifts found in "
            f"{self.searched:,} keys",
            *(
                f"  {name.ljust(width)}  {shown[name].rjust(longest)}  {source}"
                for name, source in self.derived.items()
            ),
            f"  policy: {self.policy}",
            *(f"warning: {warning}" for warning in self.warnings),
        ]
        return "\n".join(lines)


# ---- Which changes were shifts of intent, and how their contexts differ from normal ones

RARE = 1e-3
"""Share of the contexts without a shift that may lie outside of what is called normal."""


class NormalContexts(NamedTuple):
    """Contexts as they are without a shift.

    Attributes
    ----------
    low, high : array of float64, shape (dim,)
        The box that holds all but a few.
    loud : float
        What one in a thousand of them exceeds, as its distance from the box.
    """

    low: Floats
    high: Floats
    loud: float

    def excess(self, contexts: Floats) -> Floats:
        """Return how far each context lies outside of the box, in its worst coordinate."""
        outside = np.maximum(self.low - contexts, contexts - self.high)
        return np.asarray(outside.max(axis=1))


def shifts_of(columns: LogColumns, histories: list[KeyHistory]) -> tuple[list[Shift], NormalContexts | None]:
    """Return all shifts, and what contexts are like elsewhere."""
    quiet = np.ones(len(columns.lanes), dtype=bool)
    for history in histories:
        for change in history.changes:
            quiet[history.rows[change.first : change.last + 1]] = False
    normal = None
    if columns.contexts.shape[1] and quiet.any():
        contexts = columns.contexts[quiet]
        low, high = np.quantile(contexts, [RARE, 1.0 - RARE], axis=0)
        normal = NormalContexts(low, high, 0.0)
        normal = normal._replace(loud=float(np.quantile(normal.excess(contexts), 1.0 - RARE)))
    shifts = []
    for history in histories:
        for change, size in zip(history.changes, history.shift_sizes(), strict=True):
            if size == 0.0:
                continue
            near = columns.contexts[history.rows[change.first : change.last + 1]]
            excess = float(normal.excess(near).max()) if normal else None
            names = columns.names[history.lane]
            shifts.append(Shift(*names, change.round + 1, size, excess))
    return shifts, normal


# ---- Parameters for policies that follow shifting intent, proposed from a click log

UNKNOWN_SHIFT, UNKNOWN_MARGIN = 0.1, 0.1


def propose(
    log: Any,
    *,
    keys: int = 200,
    delta: float = 0.05,
    progress: Callable[[int], None] | None = None,
    **reading: Unpack[Reading],
) -> Proposal:
    """Propose min_shift, margin, test_rounds and the horizon from a click log.

    The clicks of the busiest keys are searched for changes, in the order of the log. Where one
    made another arm the best, it is a shift. A log whose arms were chosen at random tells most;
    one of a policy that learned tells little of the arms that it gave up.

    - ``horizon``: the rows of the busiest key.
    - ``min_shift``: half of what nine of ten shifts found exceed, for small ones are not found;
      without any, half of the click rate of a best arm, at most 0.1.
    - ``test_rounds``: L = 4·n·v/min_shift² with n arms and the median v = p·(1 − p) of their
      click rates, which leaves equally often played arms a standard error of min_shift/2; for
      rates of 1/2 that is n/min_shift², the 500 of the paper's experiments. At most half of the
      median distance between two shifts of a key.
    - ``margin``: half of the least distance at which the loudest context around a shift lies
      outside of the box that holds nearly all contexts of other rounds, for the shifts whose
      context is louder than 999 of 1000 others; at most 0.1, for one that is too small costs a
      few false positives more, and one that is too large costs shifts.

    Parameters
    ----------
    log : LogReader, path, or table in memory
        What :func:`tacit.read_log` takes; held in memory. Rows without feedback count as no click.
    keys : int, default 200
        In how many of the busiest keys changes are searched.
    delta : float, default 0.05
        About the probability that a change is found where there is none, in all keys together.
    progress : callable, optional
        Is called with the number of keys searched so far.
    **reading
        How a log that is not open yet is read: options of :func:`tacit.read_log`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.
    LogError
        If the log cannot be read, has no rows, or contexts of different lengths.

    References
    ----------
    Syed, Slivkins, Mishra (2009), sections 2 to 5, for what the parameters mean. The threshold
    of the search: Besson, Kaufmann, Maillard, Seznec (2022). The rules are ours.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> rng = np.random.default_rng(1)
    >>> shown, late = rng.integers(2, size=6000), np.arange(6000) >= 3000
    >>> rates = np.array([[0.5, 0.2], [0.1, 0.4]])[late.astype(int), shown]
    >>> contexts = np.where(np.arange(6000) == 3000, 0.9, 0.4 * rng.random(6000))
    >>> log = pa.table(
    ...     {
    ...         "timestamp": ["2017-07-04T12:00:00Z"] * 6000,
    ...         "decision_id": [str(row) for row in range(6000)],
    ...         "placement": ["home"] * 6000,
    ...         "key": ["independence day"] * 6000,
    ...         "arms": [["holiday", "film"]] * 6000,
    ...         "arm": [["holiday", "film"][arm] for arm in shown],
    ...         "reward": (rng.random(6000) < rates).astype(float),
    ...         "context": contexts[:, None].tolist(),
    ...     }
    ... )
    >>> proposal = propose(log)
    >>> proposal.horizon, len(proposal.shifts), 0.1 < proposal.min_shift < 0.2
    (6000, 1, True)
    >>> proposal.margin
    0.1
    """
    count = checks.integer("keys", keys, 1)
    chance = checks.number("delta", delta, 0.0, 1.0, open_low=True)
    reader = opened(log, **reading)
    columns = LogColumns.read(reader)
    say_rejected(reader, log, apart=True)
    order = np.argsort(-np.bincount(columns.lanes), kind="stable")[:count]
    rows = np.argsort(columns.lanes, kind="stable")
    ends = np.cumsum(np.bincount(columns.lanes))
    histories = []
    with counted("searching shifts", progress) as report:
        for done, lane in enumerate(order.tolist()):
            mine = rows[ends[lane - 1] if lane else 0 : ends[lane]]
            histories.append(KeyHistory.of(columns, mine, lane, chance / len(order)))
            report(done + 1)
    return _proposed(columns, histories)


class Derived(NamedTuple):
    """A parameter as it follows from the log.

    Attributes
    ----------
    value
    source : str
        What it was derived from.
    warnings : tuple of str
        Where the log contradicts what it is for.
    """

    value: Any
    source: str
    warnings: tuple[str, ...] = ()


def _proposed(columns: LogColumns, histories: list[KeyHistory]) -> Proposal:
    shifts, normal = shifts_of(columns, histories)
    min_shift = _min_shift(histories, shifts)
    test_rounds = _test_rounds(columns.offered, histories, shifts, min_shift.value)
    margin = _margin(columns.contexts, shifts, normal)
    horizon = _horizon(columns, histories[0], test_rounds.value)
    derived = {"min_shift": min_shift, "test_rounds": test_rounds, "margin": margin, "horizon": horizon}
    values = {name: found.value for name, found in derived.items()}
    options = f"test_rounds={test_rounds.value}, min_shift={min_shift.value:g}"
    rectangle = f"rectangle(dim={columns.contexts.shape[1]}, margin={margin.value or 0.0:g})"
    return Proposal(
        **values,
        derived={name: found.source for name, found in derived.items()},
        warnings=tuple(warning for found in derived.values() for warning in found.warnings),
        shifts=tuple(shifts),
        rows=len(columns.lanes),
        keys=len(columns.names),
        searched=len(histories),
        policy="glr-kl-ucb" if normal is None else f"bwc(classifier={rectangle}, {options})",
    )


def _min_shift(histories: list[KeyHistory], shifts: list[Shift]) -> Derived:
    if shifts:
        sizes = [shift.size for shift in shifts]
        return Derived(
            _rounded_down(float(np.quantile(sizes, 0.1)) / 2.0),
            f"half of what nine of ten of the {len(shifts)} shifts found exceed; the least is "
            f"{min(sizes):.3g}, the median {float(np.median(sizes)):.3g}",
        )
    rates = [rate for history in histories for rate in history.best_rates()]
    rate = float(np.median(rates)) if rates else 0.0
    return Derived(
        _rounded_down(min(UNKNOWN_SHIFT, rate / 2.0)) if rate > 0.0 else UNKNOWN_SHIFT,
        f"no shift found; half of a best arm's click rate {rate:.3g}, or 0.1",
    )


def _test_rounds(arms: float, histories: list[KeyHistory], shifts: list[Shift], min_shift: float) -> Derived:
    variances = [value for history in histories for value in history.variances()]
    variance = float(np.median(variances)) if variances else 0.25
    wanted = max(2, math.ceil(4.0 * arms * variance / min_shift**2))
    source = f"4·{arms:g} arms·{variance:.3g}/min_shift²"
    distances = [
        later.round - earlier.round
        for earlier, later in pairwise(shifts)
        if (earlier.placement, earlier.key) == (later.placement, later.key)
    ]
    between = int(np.median(distances)) // 2 if distances else wanted
    if between < wanted:
        source = f"half of the median distance between two shifts of a key; by their size {wanted:,}"
        wanted = max(2, between)
    close = sum(distance < 2 * wanted for distance in distances)
    warning = (
        f"{close} of {len(distances)} pairs of shifts of a key are closer than 2·L = "
        f"{2 * wanted:,} rounds; the labels of such shifts may be wrong"
    )
    return Derived(wanted, source, (warning,) if close else ())


def _margin(contexts: Floats, shifts: list[Shift], normal: NormalContexts | None) -> Derived:
    strange = _outside_the_unit_box(contexts)
    if normal is None:
        warning = "there are no contexts; only detectors that read clicks alone can be used"
        return Derived(None, "no contexts in the log", (warning, *strange))
    given = [shift.excess for shift in shifts if shift.excess is not None]
    announced = [excess for excess in given if excess > normal.loud]
    silent = len(shifts) - len(announced)
    warning = (
        f"{silent} of {len(shifts)} shifts have contexts as there are without a shift: labels "
        "contradict each other; use ProbationBandit or GLRKLUCB rather than BWC"
    )
    warnings = (warning, *strange) if silent else strange
    if not announced:
        return Derived(UNKNOWN_MARGIN, "no announced shift found; the default", warnings)
    return Derived(
        min(UNKNOWN_MARGIN, _rounded_down(min(announced) / 2.0)),
        f"half of the least distance from normal of the contexts of {len(announced)} "
        f"announced shifts, {min(announced):.3g}; at most {UNKNOWN_MARGIN:g}",
        warnings,
    )


def _horizon(columns: LogColumns, longest: KeyHistory, test_rounds: int) -> Derived:
    rounds, rows, keys = len(longest.rows), len(columns.lanes), columns.names
    if rows >= SURELY and len(keys) > NEARLY_ALL * rows:
        doubt = (
            f"key: nearly each of {rows:,} rows has one of its own ({keys[0][1]!r}, …), as a user or session"
        )
        return Derived(rounds, "rows of a key", (f"{doubt}; give the query or place, or leave it out",))
    source = f"rows of the busiest key, {columns.names[longest.lane][1]!r}"
    warning = f"no key has 2·L = {2 * test_rounds:,} rows; after a shift little would be left of it"
    return Derived(rounds, source, (warning,) if rounds < 2 * test_rounds else ())


def _outside_the_unit_box(contexts: Floats) -> tuple[str, ...]:
    inside = (contexts >= 0.0) & (contexts <= 1.0)
    outside = np.asarray(~inside.all(axis=1))
    if not outside.any():
        return ()
    row = int(outside.argmax())
    return (
        f"{int(outside.sum()):,} of {len(outside):,} contexts are outside the unit box, first "
        f"{contexts[row].tolist()} in row {row + 1}; rescale them",
    )


def _rounded_down(value: float) -> float:
    """Return a positive number with two digits, no larger."""
    scale = 10.0 ** (1 - math.floor(math.log10(value)))
    return math.floor(value * scale + 1e-9) / scale
