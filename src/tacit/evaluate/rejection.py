"""Replay: the rejection method for logs of uniform choice (Li, Chu, Langford, Wang 2011)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit import checks
from tacit.arrays import Floats, Generator, Ints
from tacit.assumptions import ContextWatch
from tacit.batch import Batch, impression_of
from tacit.dispatch import decide, learned_chance, observe, update
from tacit.errors import AssumptionWarning, InvalidValue, LogError, UnfitLog, UnknownName
from tacit.learner import generator
from tacit.logs.parts import KeyShard
from tacit.logs.reader import as_chunks
from tacit.logs.rows import Chunk, lengths, representatives
from tacit.logs.selection import list_codes, selected
from tacit.policies.base import NO_FEATURES, Policy
from tacit.state import copied_into

CONFIDENCE = 0.95
STRIDE = 65_536
"""Rows between two reports of progress, and between two chances to interrupt."""


@dataclass(frozen=True)
class ReplayResult:
    """What a policy would have earned.

    Attributes
    ----------
    policy : str
        The policy and its hyperparameters.
    estimate : float
        Mean over the passes of the mean reward of a pass's matched rows; NaN without a match.
    low, high : float
        95 % interval for it: the score interval of Wilson (1927) for as many rows as a pass
        matched on average. Passes share their rows, so more passes never narrow it; a reward
        in [0, 1] varies at most as a click of the same mean does, so it is conservative for
        fractions. Rewards of a policy that learns depend on one another, but the deviations
        from the expected reward of what was shown are martingale differences, so the interval
        covers, at the given rate for many matches, the expected reward of the arms that were
        shown. How much the policy's own luck in learning matters is seen from ``estimates``.
    logged : float
        Mean reward of the log itself; NaN if it is empty.
    rows : int
        Rows of the log that were replayed in each pass.
    unanswered : int
        Rows to which no feedback came.
    matched : tuple of int
        Rows that counted, per pass: those in which the policy chose the logged arm.
    clicks : tuple of float
        Sum of their rewards, per pass.
    estimates : tuple of float
        Mean of their rewards, per pass; NaN without a match.
    """

    policy: str
    estimate: float
    low: float
    high: float
    logged: float
    rows: int
    unanswered: int
    matched: tuple[int, ...]
    clicks: tuple[float, ...]
    estimates: tuple[float, ...]

    def summary(self) -> str:
        """Return the result as text."""
        passes = len(self.matched)
        matched, clicks = sum(self.matched) / passes, sum(self.clicks) / passes
        share = matched / self.rows if self.rows else 0.0
        known = [estimate for estimate in self.estimates if estimate == estimate] or [math.nan]
        return "\n".join(
            [
                f"{self.policy}, replayed on {self.rows:,} logged rows, passes: {passes}",
                f"  mean reward      {self.estimate:.5f}, "
                f"95 % interval {self.low:.5f} to {self.high:.5f}",
                f"  single passes    {min(known):.5f} to {max(known):.5f}",
                f"  the log's own    {self.logged:.5f}",
                f"  matched a pass   {matched:,.1f} rows ({share:.1%}) with {clicks:,.1f} clicks",
                f"  without feedback {self.unanswered:,} rows",
            ]
        )


def replay(
    policy: Policy,
    log: Any,
    *,
    passes: int = 10,
    seed: int = 0,
    window: int = 1_000_000,
    tolerance: float = 1e-6,
    assume_uniform: bool = False,
    missing_reward: float | None = 0.0,
    progress: Callable[[int], None] | None = None,
) -> ReplayResult:
    """Estimate what a policy would have earned, from a log of uniformly chosen arms.

    The log is read row by row. Where the policy chooses the arm that was logged, the row
    counts and the policy learns from it; any other row leaves no trace in what it learns. Where
    the log's arms were chosen uniformly, the rows that count are distributed as if the policy
    itself had decided in them, so their mean reward is unbiased.

    The first pass takes the rows in the log's order and makes the very draws of a
    :class:`~tacit.Learner` with seed ``SeedSequence(seed, spawn_key=(0,))``. Pass p has
    ``spawn_key=(p,)``, learns from nothing, and shuffles the rows of each window. The log is
    read once; memory holds one window (some 100 bytes a row, and 8 bytes for each number of a
    context and for each arm of each distinct list of arms on offer), its keys, and one
    state per pass, however long the log is.

    Parameters
    ----------
    policy : Policy
        Over the log's arms by their names (see :func:`arms_of`), or over n numbered arms
        where the log's are called 0, 1, …, n − 1. A key learns on its own in each placement.
    log : LogReader, path, pyarrow.Table, or iterable of pyarrow.RecordBatch
        A click log.
    passes : int, default 10
        How often to replay it.
    seed : int, default 0
        Where every random draw comes from.
    window : int, default 1,000,000
        How many rows are shuffled among themselves; at least 1.
    tolerance : float, default 1e-6
        How far a propensity may be from 1/(number of arms on offer).
    assume_uniform : bool, default False
        Whether to take rows without a propensity for rows of uniform choice.
    missing_reward : float or None, default 0
        The reward of a row to which no feedback came, in [0, 1]. None leaves such rows out,
        which is right only where feedback is lost regardless of what it would have been.
    progress : function, optional
        Called with the number of rows replayed so far, all passes together.

    Returns
    -------
    ReplayResult

    Raises
    ------
    UnfitLog
        If a propensity says that the choice was not uniform, or says nothing.
    UnknownName
        If the log has an arm that the policy does not know.
    LogError
        If the log cannot be read, or has no context that fits a policy that needs one.
    InvalidValue
        If an option is wrong.

    References
    ----------
    Li, Chu, Langford, Wang (2011), "Unbiased offline evaluation of contextual-bandit-based
    news article recommendation algorithms", algorithm 2; Wilson (1927), "Probable inference,
    the law of succession, and statistical inference".

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> import tacit
    >>> arms, rng = ["film", "holiday"], np.random.default_rng(1)
    >>> shown = rng.integers(2, size=2000)
    >>> log = pa.table(
    ...     {
    ...         "timestamp": ["2017-07-04T12:00:00Z"] * 2000,
    ...         "decision_id": [str(row) for row in range(2000)],
    ...         "placement": ["home"] * 2000,
    ...         "key": ["independence day"] * 2000,
    ...         "arms": [arms] * 2000,
    ...         "arm": [arms[arm] for arm in shown],
    ...         "propensity": [0.5] * 2000,
    ...         "reward": (rng.random(2000) < [[0.1], [0.4]])[shown, np.arange(2000)].astype(float),
    ...     }
    ... )
    >>> result = replay(tacit.Thompson(arms=arms), log)
    >>> result.low < 0.4 < result.high
    True
    """
    passes = checks.integer("passes", passes, 1)
    rules = Rules.of(policy, seed, window, tolerance, assume_uniform, missing_reward)
    found = played(policy, log, rules, range(passes), progress=progress)
    for warning in found.warnings:
        warnings.warn(warning, AssumptionWarning, stacklevel=2)
    return found.result(policy.label)


class Rules(NamedTuple):
    """How a log is replayed, checked.

    Attributes
    ----------
    seed, window, tolerance, assume_uniform, missing_reward
        As for :func:`replay`.
    """

    seed: int
    window: int
    tolerance: float
    assume_uniform: bool
    missing_reward: float | None

    @classmethod
    def of(
        cls,
        policy: Policy,
        seed: int,
        window: int,
        tolerance: float,
        assume_uniform: bool,
        missing_reward: float | None,
    ) -> Rules:
        """Return the rules, if they and the policy are allowed."""
        _check_replayable(policy)
        if missing_reward is not None:
            missing_reward = checks.number("missing_reward", missing_reward, 0.0, 1.0)
        return cls(
            checks.integer("seed", seed, 0),
            checks.integer("window", window, 1),
            checks.number("tolerance", tolerance, 0.0, 1.0),
            assume_uniform,
            missing_reward,
        )


def _check_replayable(policy: Any) -> None:
    if not isinstance(policy, Policy):
        raise InvalidValue("policy", policy, "give a policy, such as UCB1(arms=5)")
    if policy.shows != "arm":
        raise InvalidValue(
            "policy",
            policy,
            f"it shows a {policy.shows}, but a click log tells of single arms; "
            "judge it with tacit.simulate",
        )


class Played(NamedTuple):
    """What passes over a log, or over a shard of one, came to.

    Attributes
    ----------
    matched : tuple of int
        Per pass.
    clicks : tuple of float
    rows, unanswered : int
        Of the log.
    reward : float
        Sum of all its rewards.
    warnings : tuple of str
        What the record of the first pass says against the policy's assumptions.
    """

    matched: tuple[int, ...]
    clicks: tuple[float, ...]
    rows: int
    unanswered: int
    reward: float
    warnings: tuple[str, ...]

    def beside(self, other: Played) -> Played:
        """Return the result of these passes and of others over the same rows."""
        return self._replace(
            matched=self.matched + other.matched, clicks=self.clicks + other.clicks
        )

    def merge(self, other: Played) -> Played:
        """Return the result of the same passes over these rows and over others."""
        return Played(
            tuple(a + b for a, b in zip(self.matched, other.matched, strict=True)),
            tuple(a + b for a, b in zip(self.clicks, other.clicks, strict=True)),
            self.rows + other.rows,
            self.unanswered + other.unanswered,
            self.reward + other.reward,
            self.warnings + other.warnings,
        )

    def result(self, policy: str) -> ReplayResult:
        """Return what follows for a policy of this name."""
        counts = list(zip(self.clicks, self.matched, strict=True))
        estimates = tuple(clicks / rows if rows else math.nan for clicks, rows in counts)
        matched = [estimate for estimate in estimates if not math.isnan(estimate)]
        estimate = math.fsum(matched) / len(matched) if matched else math.nan
        low, high = score_interval(estimate, sum(self.matched) / len(self.matched))
        return ReplayResult(
            policy=policy,
            estimate=estimate,
            low=low,
            high=high,
            logged=self.reward / self.rows if self.rows else math.nan,
            rows=self.rows,
            unanswered=self.unanswered,
            matched=self.matched,
            clicks=self.clicks,
            estimates=estimates,
        )


def played(
    policy: Policy,
    log: Any,
    rules: Rules,
    numbers: Sequence[int],
    *,
    progress: Callable[[int], None] | None = None,
) -> Played:
    """Return what the passes of these numbers come to.

    Parameters
    ----------
    policy, progress
        As for :func:`replay`.
    log : LogReader, KeyShard, path, pyarrow.Table, or iterable of pyarrow.RecordBatch
        A shard of several makes draws of its own.
    rules : Rules
    numbers : sequence of int
    """
    shard = log.shard if isinstance(log, KeyShard) and log.shards > 1 else None
    source = Source(
        policy,
        tolerance=rules.tolerance,
        assume_uniform=rules.assume_uniform,
        missing_reward=rules.missing_reward,
    )
    runs = [Pass(policy, rules.seed, number, shard) for number in numbers]
    done = 0
    for part in source.windows(log, rules.window):
        for run in runs:
            for rows in run.play(part, len(source.lanes)):
                done += rows
                if progress is not None:
                    progress(done)
    return Played(
        tuple(run.matched for run in runs),
        tuple(run.clicks for run in runs),
        source.rows,
        source.unanswered,
        source.reward,
        _contradictions(policy, runs[0].state) if 0 in numbers else (),
    )


def _contradictions(policy: Policy, state: Any) -> tuple[str, ...]:
    """Return what a pass's own record says against the policy's assumptions."""
    diagnostics = getattr(policy, "diagnostics", None)
    found = () if diagnostics is None else diagnostics(state).warnings
    return tuple(f"{policy.label}: {warning}" for warning in found)


def arms_of(log: Any) -> tuple[str, ...]:
    """Return the distinct arms that a log ever offers, in the order of their names.

    Arms whose names are all whole numbers come in the order of the numbers.

    Parameters
    ----------
    log : LogReader, path, pyarrow.Table, or iterable of pyarrow.RecordBatch
        Is read to its end.

    Raises
    ------
    LogError
        If the log cannot be read.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from tacit.logs import read_log
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "clicks.csv"
    >>> _ = path.write_text(
    ...     "timestamp,decision_id,placement,key,arms,arm\\n"
    ...     '2017-07-04T12:00:00Z,1,home,tomato,"[10, 9]",9\\n'
    ... )
    >>> arms_of(path)
    ('9', '10')
    """
    return in_order(offered_in(log))


def offered_in(log: Any) -> set[str]:
    """Return the distinct arms that a log, or a part of one, ever offers."""
    names: set[str] = set()
    for chunk in selected(log, ()):
        names.update(_distinct(chunk.batch.column("arms")))
    return names


def _distinct(arms: Any) -> list[str]:
    if list_codes(arms) is not None:
        return list(arms[0].as_py())
    return list(arms.flatten().unique().to_pylist())


def in_order(names: set[str]) -> tuple[str, ...]:
    """Return arms in the order of their names, or of their numbers."""
    if all(name.isdecimal() for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


# The compiled loop --------------------------------------------------------------------------


class Window(NamedTuple):
    """Logged rows as columns, in the log's order.

    Attributes
    ----------
    batch : Batch
        The impressions.
    logged : array of int64, shape (rows,)
        Slot of the arm that was shown.
    rewards : array of float64, shape (rows,)
    """

    batch: Batch
    logged: Ints
    rewards: Floats


def replay_rows(
    params: Any,
    state: Any,
    window: Window,
    order: Ints,
    rng: Generator,
    action: Ints,
    feedback: Floats,
    tally: Floats,
) -> None:
    """Replay rows in an order; add the number of matched rows and their rewards to ``tally``."""
    batch = window.batch
    for row in order:
        lane = batch.lanes[row]
        impression = impression_of(batch, row)
        observe(params, state, lane, impression)
        decide(params, state, lane, impression, rng, action)
        if action[0] == window.logged[row]:
            feedback[0] = window.rewards[row]
            known = learned_chance(params, state, lane, impression, action)
            update(params, state, lane, impression, action, feedback, known)
            tally[0] += 1.0
            tally[1] += feedback[0]


class Pass:
    """One replay of the log: what was learned in it, its generators and its counts.

    Parameters
    ----------
    policy : Policy
    seed, number : int
        The pass's number is its place among the children of the seed.
    shard : int, optional
        Which part of the keys it replays, if not all.
    """

    def __init__(self, policy: Policy, seed: int, number: int, shard: int | None = None) -> None:
        self.policy = policy
        self.state = policy.init(0)
        place = (number,) if shard is None else (number, 1, shard)
        self.rng = generator(np.random.SeedSequence(seed, spawn_key=place))
        # Shuffling draws from a generator of its own, so that the policy's draws do not depend
        # on it; the first pass keeps the log's order.
        shuffling = np.random.SeedSequence(seed, spawn_key=(*place, 0))
        self._shuffler = generator(shuffling) if number else None
        self._tally = np.zeros(2)
        self._capacity = 0

    @property
    def matched(self) -> int:
        """How many rows counted."""
        return int(self._tally[0])

    @property
    def clicks(self) -> float:
        """Sum of their rewards."""
        return float(self._tally[1])

    def play(self, window: Window, lanes: int) -> Iterator[int]:
        """Replay a window; give the number of rows after each stretch of it."""
        from tacit.compiled import compiled

        if lanes > self._capacity:
            self._capacity = max(lanes, 2 * self._capacity)
            self.state = copied_into(self.state, self.policy.init(self._capacity))
        rows = len(window.logged)
        order = self._shuffler.permutation(rows) if self._shuffler else np.arange(rows)
        params = self.policy.params
        driver = compiled(replay_rows, params)
        action, feedback = np.zeros(1, np.int64), np.zeros(1)
        for start in range(0, rows, STRIDE):
            stretch = order[start : start + STRIDE]
            driver(params, self.state, window, stretch, self.rng, action, feedback, self._tally)
            yield len(stretch)


# From the log to windows --------------------------------------------------------------------


class Source:
    """Makes windows of a log for a policy: names become slots, keys become lanes.

    Parameters
    ----------
    policy, tolerance, assume_uniform, missing_reward
        As for :func:`replay`.

    Attributes
    ----------
    lanes : dict
        The lane of each placement and key so far.
    rows, unanswered, reward
        Rows given so far, those to which no feedback came, and the sum of all rewards.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        tolerance: float = 1e-6,
        assume_uniform: bool = False,
        missing_reward: float | None = 0.0,
    ) -> None:
        arms = policy.arms
        self._names = pa.array(
            [str(arm) for arm in (range(arms) if isinstance(arms, int) else arms)]
        )
        self._context_dim = policy.context_dim
        self._watch = ContextWatch(policy)
        self._tolerance = tolerance
        self._assume_uniform = assume_uniform
        self._missing_reward = missing_reward
        self.lanes: dict[tuple[str, str], int] = {}
        self.rows = 0
        self.unanswered = 0
        self.reward = 0.0

    def windows(self, log: Any, size: int) -> Iterator[Window]:
        """Give all rows of the log, ``size`` at a time."""
        parts, offers, room = [], _Offers(), size
        chunks = log.of(as_chunks(log.log)) if isinstance(log, KeyShard) else as_chunks(log)
        for chunk in chunks:
            rest = self._answered(chunk)
            self._check_uniform(rest)
            while len(rest.rows):
                part, rest = _split(rest, room)
                parts.append(self._columns(part, offers))
                room -= len(part.rows)
                if room == 0:
                    yield _joined(parts, offers)
                    parts, offers, room = [], _Offers(), size
        if parts:
            yield _joined(parts, offers)

    def _answered(self, chunk: Chunk) -> Chunk:
        """Leave out rows without feedback where that was asked for."""
        answered = chunk.batch["reward"].is_valid()
        self.unanswered += len(answered) - answered.true_count
        if self._missing_reward is not None:
            return chunk
        rows = chunk.rows[answered.to_numpy(zero_copy_only=False)]
        return Chunk(chunk.batch.filter(answered), chunk.source, rows)

    def _check_uniform(self, chunk: Chunk) -> None:
        propensity = chunk.batch["propensity"]
        uniform = 1.0 / lengths(chunk.batch["arms"])
        unknown = propensity.is_null().to_numpy(zero_copy_only=False)
        known = propensity.fill_null(0.0).to_numpy()
        other = ~unknown & (np.abs(known - uniform) > self._tolerance)
        unfit = other if self._assume_uniform else other | unknown
        if unfit.any():
            row = int(np.argmax(unfit))
            raise UnfitLog(_refusal(chunk, row, float(uniform[row])))

    def _columns(self, chunk: Chunk, offers: _Offers) -> _Columns:
        batch = chunk.batch
        keys = zip(batch["placement"].to_pylist(), batch["key"].to_pylist(), strict=True)
        lanes = [self.lanes.setdefault(key, len(self.lanes)) for key in keys]
        starts, stops = offers.places(batch["arms"], lambda row: self._slots(chunk, row))
        logged = pc.index_in(batch["arm"], value_set=self._names).to_numpy()
        rewards = batch["reward"].fill_null(self._missing_reward or 0.0).to_numpy()
        self.rows += len(lanes)
        self.reward += float(rewards.sum())
        contexts = self._contexts(chunk)
        return _Columns(np.array(lanes), starts, stops, contexts, logged.astype(np.int64), rewards)

    def _slots(self, chunk: Chunk, row: int) -> Ints:
        """Return the slots of the arms on offer in a row."""
        offered = chunk.batch["arms"][row].values
        slots = pc.index_in(offered, value_set=self._names)
        if slots.null_count:
            unknown = offered.filter(slots.is_null())[0].as_py()
            known = ", ".join(map(repr, self._names.to_pylist()))
            raise UnknownName(
                f"{chunk.source}: row {chunk.rows[row]}: arms: the policy has no arm {unknown!r}, "
                f"it has {known}; make it with arms=arms_of(log)"
            )
        return np.asarray(slots.to_numpy(), np.int64)

    def _contexts(self, chunk: Chunk) -> Floats:
        dim = self._context_dim
        if dim == 0:
            return np.zeros((len(chunk.rows), 0))
        contexts = chunk.batch["context"]
        wrong = lengths(contexts) != dim
        if wrong.any():
            row = int(np.argmax(wrong))
            raise LogError(
                f"{chunk.source}: row {chunk.rows[row]}: context: {contexts[row].as_py()!r} does "
                f"not fit; the policy needs {dim} numbers in each row"
            )
        array = np.asarray(contexts.flatten().to_numpy(), np.float64).reshape(-1, dim)
        self._watch.look(array)
        return array


class _Columns(NamedTuple):
    """Rows of a window in the making."""

    lanes: Ints
    starts: Ints
    stops: Ints
    contexts: Floats
    logged: Ints
    rewards: Floats


class _Offers:
    """Lists of slots one after the other, each once however many rows offer it."""

    def __init__(self) -> None:
        self._lists: list[Ints] = []
        self._places: dict[bytes, tuple[int, int]] = {}
        self._size = 0

    @property
    def slots(self) -> Ints:
        """All lists in one array."""
        return np.concatenate(self._lists)

    def places(self, arms: Any, slots_of: Callable[[int], Ints]) -> tuple[Ints, Ints]:
        """Return where each row's list starts and stops; ``slots_of`` gives that of one row."""
        first, which = np.unique(representatives(arms), return_inverse=True)
        places = np.array([self._place(slots_of(row)) for row in first.tolist()], np.int64)
        return places[which, 0], places[which, 1]

    def _place(self, slots: Ints) -> tuple[int, int]:
        content = slots.tobytes()
        if content not in self._places:
            self._places[content] = self._size, self._size + len(slots)
            self._lists.append(slots)
            self._size += len(slots)
        return self._places[content]


def _split(chunk: Chunk, rows: int) -> tuple[Chunk, Chunk]:
    """Return the first rows of a chunk, and the others."""
    batch, source, numbers = chunk
    return (
        Chunk(batch.slice(0, rows), source, numbers[:rows]),
        Chunk(batch.slice(rows), source, numbers[rows:]),
    )


def _joined(parts: list[_Columns], offers: _Offers) -> Window:
    columns = _Columns(*map(np.concatenate, zip(*parts, strict=True)))
    batch = Batch(
        columns.lanes,
        offers.slots,
        columns.starts,
        columns.stops,
        columns.contexts,
        NO_FEATURES,
        NO_FEATURES,
    )
    return Window(batch, columns.logged, columns.rewards)


def _refusal(chunk: Chunk, row: int, uniform: float) -> str:
    propensity = chunk.batch["propensity"][row].as_py()
    arms = len(chunk.batch["arms"][row])
    where = f"{chunk.source}: row {chunk.rows[row]}: propensity: "
    if propensity is None:
        return (
            f"{where}there is none, so nothing says that the {arms} arms on offer were equally "
            "likely; log with UniformRandom, or give assume_uniform=True if you know that they were"
        )
    return (
        f"{where}it is {propensity:.6g}, but uniform choice among the {arms} arms on offer gives "
        f"{uniform:.6g}; replay of this log would be biased; log with UniformRandom, or weight "
        "by importance (IPS, SNIPS or doubly robust) with off_policy, or with "
        "tacit evaluate --estimator ips,snips,dr"
    )


# From counts to the result ------------------------------------------------------------------


def score_interval(
    mean: float, count: float, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return Wilson's score interval for a mean of values in [0, 1].

    Parameters
    ----------
    mean : float
        Mean of the values.
    count : float
        How many there are; may be a fraction.
    confidence : float, default 0.95
        Probability, for many values, that the interval covers the expectation; in (0, 1).

    Returns
    -------
    (float, float)
        Within [0, 1]; (0, 1) where there are no values.

    Examples
    --------
    >>> low, high = score_interval(0.5, 100)
    >>> round(low, 4), round(high, 4)
    (0.4038, 0.5962)
    >>> score_interval(float("nan"), 0)
    (0.0, 1.0)
    """
    if count == 0:
        return 0.0, 1.0
    share = NormalDist().inv_cdf((1 + confidence) / 2) ** 2 / count
    centre = (mean + share / 2) / (1 + share)
    radius = math.sqrt(share * mean * (1 - mean) + share**2 / 4) / (1 + share)
    return max(0.0, centre - radius), min(1.0, centre + radius)
