"""Parameters for policies that follow shifting intent, proposed from a click log."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tacit import checks
from tacit.arrays import Floats, Ints
from tacit.errors import LogError
from tacit.evaluate.segments import Change, changes
from tacit.logs.reader import as_chunks
from tacit.logs.rows import lengths

LEAST_PLAYS = 20
"""Plays of an arm, before a change and after it, below which nothing is said of it."""
RARE = 1e-3
"""Share of the contexts without a shift that may lie outside of what is called normal."""
UNKNOWN_SHIFT, UNKNOWN_MARGIN = 0.1, 0.1


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


@dataclass(frozen=True)
class Proposal:
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

    def summary(self) -> str:
        """Return the proposals, what they were derived from, and the warnings as text."""
        width = max(map(len, self.derived))
        values = {name: getattr(self, name) for name in self.derived}
        shown = {name: "–" if value is None else f"{value:g}" for name, value in values.items()}
        room = max(map(len, shown.values()))
        lines = [
            f"{self.rows:,} rows, {self.keys:,} keys; {len(self.shifts)} shifts found in "
            f"{self.searched:,} keys",
            *(
                f"  {name.ljust(width)}  {shown[name].rjust(room)}  {told}"
                for name, told in self.derived.items()
            ),
            f"  policy: {self.policy}",
            *(f"warning: {warning}" for warning in self.warnings),
        ]
        return "\n".join(lines)


def propose(
    log: Any,
    *,
    keys: int = 200,
    delta: float = 0.05,
    progress: Callable[[int], None] | None = None,
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
    log : LogReader, path, pyarrow.Table, or iterable of pyarrow.RecordBatch
        Is held in memory. Rows without feedback count as no click.
    keys : int, default 200
        In how many of the busiest keys changes are searched.
    delta : float, default 0.05
        About the probability that a change is found where there is none, in all keys together.
    progress : callable, optional
        Is called with the number of keys searched so far.

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
    columns = Columns.read(log)
    order = np.argsort(-np.bincount(columns.lanes), kind="stable")[:count]
    rows = np.argsort(columns.lanes, kind="stable")
    ends = np.cumsum(np.bincount(columns.lanes))
    histories = []
    for done, lane in enumerate(order.tolist()):
        mine = rows[ends[lane - 1] if lane else 0 : ends[lane]]
        histories.append(History.of(columns, mine, lane, chance / len(order)))
        if progress is not None:
            progress(done + 1)
    return _proposed(columns, histories)


# The log in memory -----------------------------------------------------------------------------


class Columns(NamedTuple):
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
    def read(cls, log: Any) -> Columns:
        """Read a log to its end."""
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
                    f"{chunk.source}: row {chunk.rows[row]}: context: it has {given[row]} numbers, "
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


class History(NamedTuple):
    """What happened to one key.

    Attributes
    ----------
    lane : int
    rows : array of int64, shape (rounds,)
        Its rows, in the order of the log.
    changes : list of Change
    plays, means : array of float64, shape (changes + 1, arms)
        Per stretch between changes.
    """

    lane: int
    rows: Ints
    changes: list[Change]
    plays: Floats
    means: Floats

    @classmethod
    def of(cls, columns: Columns, rows: Ints, lane: int, delta: float) -> History:
        """Search the changes of one key."""
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


# From changes to proposals ---------------------------------------------------------------------


def _proposed(columns: Columns, histories: list[History]) -> Proposal:
    shifts, normal = _shifts(columns, histories)
    warnings: list[str] = []
    derived: dict[str, str] = {}
    min_shift = _min_shift(histories, shifts, derived)
    test_rounds = _test_rounds(columns, histories, shifts, min_shift, derived, warnings)
    margin = _margin(columns, shifts, normal, derived, warnings)
    longest = histories[0]
    horizon = len(longest.rows)
    derived["horizon"] = f"rows of the busiest key, {columns.names[longest.lane][1]!r}"
    _warn_of_contexts(columns, warnings)
    if horizon < 2 * test_rounds:
        warnings.append(
            f"no key has 2·L = {2 * test_rounds:,} rows; after a shift little would be left of it"
        )
    told = f"test_rounds={test_rounds}, min_shift={min_shift:g}"
    rectangle = f"rectangle(dim={columns.contexts.shape[1]}, margin={margin or 0.0:g})"
    return Proposal(
        min_shift=min_shift,
        margin=margin,
        test_rounds=test_rounds,
        horizon=horizon,
        derived=derived,
        warnings=tuple(warnings),
        shifts=tuple(shifts),
        rows=len(columns.lanes),
        keys=len(columns.names),
        searched=len(histories),
        policy="glr-kl-ucb" if margin is None else f"bwc(classifier={rectangle}, {told})",
    )


class Normal(NamedTuple):
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


def _shifts(columns: Columns, histories: list[History]) -> tuple[list[Shift], Normal | None]:
    """Return all shifts, and what contexts are like elsewhere."""
    told = columns.contexts.shape[1] > 0
    quiet = np.ones(len(columns.lanes), dtype=bool)
    for history in histories:
        for change in history.changes:
            quiet[history.rows[change.first : change.last + 1]] = False
    normal = None
    if told and quiet.any():
        contexts = columns.contexts[quiet]
        low, high = np.quantile(contexts, [RARE, 1.0 - RARE], axis=0)
        normal = Normal(low, high, 0.0)
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


def _min_shift(histories: list[History], shifts: list[Shift], derived: dict[str, str]) -> float:
    if shifts:
        sizes = [shift.size for shift in shifts]
        derived["min_shift"] = (
            f"half of what nine of ten of the {len(shifts)} shifts found exceed; the least is "
            f"{min(sizes):.3g}, the median {float(np.median(sizes)):.3g}"
        )
        return _rounded_down(float(np.quantile(sizes, 0.1)) / 2.0)
    rates = [rate for history in histories for rate in history.best_rates()]
    rate = float(np.median(rates)) if rates else 0.0
    derived["min_shift"] = f"no shift found; half of a best arm's click rate {rate:.3g}, or 0.1"
    return _rounded_down(min(UNKNOWN_SHIFT, rate / 2.0)) if rate > 0.0 else UNKNOWN_SHIFT


def _test_rounds(
    columns: Columns,
    histories: list[History],
    shifts: list[Shift],
    min_shift: float,
    derived: dict[str, str],
    warnings: list[str],
) -> int:
    variances = [value for history in histories for value in history.variances()]
    variance = float(np.median(variances)) if variances else 0.25
    arms = columns.offered
    wanted = max(2, math.ceil(4.0 * arms * variance / min_shift**2))
    derived["test_rounds"] = f"4·{arms:g} arms·{variance:.3g}/min_shift²"
    distances = [
        later.round - earlier.round
        for earlier, later in pairwise(shifts)
        if (earlier.placement, earlier.key) == (later.placement, later.key)
    ]
    room = int(np.median(distances)) // 2 if distances else wanted
    if room < wanted:
        derived["test_rounds"] = (
            f"half of the median distance between two shifts of a key; by their size {wanted:,}"
        )
        wanted = max(2, room)
    close = sum(distance < 2 * wanted for distance in distances)
    if close:
        warnings.append(
            f"{close} of {len(distances)} pairs of shifts of a key are closer than 2·L = "
            f"{2 * wanted:,} rounds; the labels of such shifts may be wrong"
        )
    return wanted


def _margin(
    columns: Columns,
    shifts: list[Shift],
    normal: Normal | None,
    derived: dict[str, str],
    warnings: list[str],
) -> float | None:
    if normal is None:
        derived["margin"] = "no contexts in the log"
        warnings.append("there are no contexts; only detectors that read clicks alone can be used")
        return None
    given = [shift.excess for shift in shifts if shift.excess is not None]
    announced = [excess for excess in given if excess > normal.loud]
    if announced:
        derived["margin"] = (
            f"half of the least distance from normal of the contexts of {len(announced)} "
            f"announced shifts, {min(announced):.3g}; at most {UNKNOWN_MARGIN:g}"
        )
    else:
        derived["margin"] = "no announced shift found; the default"
    silent = len(shifts) - len(announced)
    if silent:
        warnings.append(
            f"{silent} of {len(shifts)} shifts have contexts as there are without a shift: labels "
            "contradict each other; use ProbationBandit or GLRKLUCB rather than BWC"
        )
    if not announced:
        return UNKNOWN_MARGIN
    return min(UNKNOWN_MARGIN, _rounded_down(min(announced) / 2.0))


def _warn_of_contexts(columns: Columns, warnings: list[str]) -> None:
    inside = (columns.contexts >= 0.0) & (columns.contexts <= 1.0)
    outside = np.asarray(~inside.all(axis=1))
    if outside.any():
        row = int(outside.argmax())
        warnings.append(
            f"{int(outside.sum()):,} of {len(outside):,} contexts are outside the unit box, first "
            f"{columns.contexts[row].tolist()} in row {row + 1}; rescale them"
        )


def _rounded_down(value: float) -> float:
    """Return a positive number with two digits, no larger."""
    scale = 10.0 ** (1 - math.floor(math.log10(value)))
    return math.floor(value * scale + 1e-9) / scale
