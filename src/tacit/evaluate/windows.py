"""Replay of a log: its configuration, windows of rows, and a pass over them.

:class:`ReplayConfig` validates the options; :class:`WindowReader` reads windows of rows, with arm indices for
names and lanes for keys; :class:`Pass` replays the windows once, in a compiled loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core.arrays import Floats, Generator, Ints, copy_to_larger
from tacit.core.dispatch import decide, learn, learned_propensity, observe, shown_in
from tacit.core.part import Fraction
from tacit.core.refusals import Refusal, refuse_options, refuse_rows
from tacit.core.run_mode import compile_loop
from tacit.core.seeds import stream
from tacit.errors import LogError
from tacit.evaluate.intervals import LARGEST
from tacit.evaluate.options import AtLeastOne, Options
from tacit.evaluate.rows import (
    check_items,
    check_segments,
    list_arm_names,
    list_unread_columns,
    select_answered,
    split_rows,
    suggest_propensity_column,
    unknown_arm_error,
)
from tacit.learning.batch import Batch, get_impression
from tacit.learning.input_columns import ContextWatch
from tacit.logs.items import ItemTable, get_items
from tacit.logs.parts import KeyShard
from tacit.logs.rows import Chunk, first_equal_rows, lengths
from tacit.logs.schema import SEGMENT
from tacit.logs.sources import as_chunks
from tacit.policies.base import NO_FEATURES, Policy, make_outcome

# ---- Configuration of a replay


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(Options):
    """Validated configuration of a replay; every field is as for :func:`~tacit.replay`."""

    policy: Policy
    passes: AtLeastOne = 10
    window: AtLeastOne = 1_000_000
    tolerance: Fraction = 1e-6
    assume_uniform: bool = False

    def __post_init__(self) -> None:
        """Validate the options; raise InvalidValue if the policy is no policy, or shows lists or duels."""
        super().__post_init__()
        refuse_options(self._list_refusals())

    def _list_refusals(self) -> Iterator[Refusal]:
        """Yield the checks that the policy is one, and that it shows single arms."""
        policy = self.policy
        yield Refusal("policy", not isinstance(policy, Policy), "give a policy, such as UCB1(arms=5)", policy)
        text = (
            f"it shows a {policy.shows}, and the log hardly ever shows the same; weigh "
            "the log by off_policy if it is one of lists, or judge it with tacit.simulate"
        )
        yield Refusal("policy", not policy.showing.single, text, policy)

    @property
    def schema(self) -> Any:
        """The schema by which the policy reads contexts; None if it has none."""
        return self.policy.schema

    @property
    def target_policy(self) -> tuple[Policy, bool]:
        """The policy that is replayed, which learns from the log."""
        return self.policy, True


# ---- From a log to windows: names become arm indices, keys become lanes


class Window(NamedTuple):
    """Logged rows as columns, in the log's order.

    Attributes
    ----------
    batch : Batch
        The impressions.
    logged : array of int64, shape (rows,)
        Arm index of the arm shown.
    rewards : array of float64, shape (rows,)
    segments : array of int64, shape (rows,)
        The segment number of each row; 0 without segments.
    """

    batch: Batch
    logged: Ints
    rewards: Floats
    segments: Ints


class ItemWindow(NamedTuple):
    """A window whose arm indices are rows of a table of items, which are looked up in parts of the window."""

    window: Window
    items: ItemTable

    def split(self, order: Ints) -> Iterator[tuple[Window, Ints]]:
        """Yield parts of the window's rows, in the order ``order``, each with the vectors of its items.

        With each part comes the array 0, 1, …, rows − 1, the order in which to replay it. In a part, arm
        indices are places in a row's offer. Parts are small enough to bound the memory of vectors.
        """
        batch = self.window.batch
        sizes = (batch.stops - batch.starts)[order]
        for part in split_rows(sizes * self.items.dim):
            rows, size = order[part], sizes[part]
            stops = np.cumsum(size)
            starts = stops - size
            places = np.arange(stops[-1]) - np.repeat(starts, size)
            item_rows = batch.arms[np.repeat(batch.starts[rows], size) + places]
            # Each row has one match: the item that it shows, once in its offer.
            logged = places[item_rows == np.repeat(self.window.logged[rows], size)]
            columns = starts, stops, batch.contexts[rows], self.items.vectors(item_rows), NO_FEATURES
            window = Window(
                Batch(batch.lanes[rows], places, *columns),
                logged,
                self.window.rewards[rows],
                self.window.segments[rows],
            )
            yield window, np.arange(len(rows))


class WindowReader:
    """Reads a log as windows for a policy: names become arm indices, keys become lanes.

    Parameters
    ----------
    config : ReplayConfig

    Attributes
    ----------
    lanes : dict
        The lane of each placement and key so far.
    segments : dict
        The number of each segment so far.
    rows, unanswered, reward
        Number of rows yielded so far, of rows without feedback, and the sum of all rewards.
    tally : array of float64, shape (4, arms)
        Counts of each arm, as for :func:`~tacit.evaluate.intervals.find_suspect_arm`.
    """

    def __init__(self, config: ReplayConfig) -> None:
        """Start with no lanes or segments and zero counts; nothing is read yet."""
        self._config = config
        self._items: ItemTable | None = None
        self._names = pa.array([] if config.policy.arms is None else list_arm_names(config.policy))
        self._watch = ContextWatch(config.policy)
        self.lanes: dict[tuple[str, str], int] = {}
        self.segments: dict[str, int] = {}
        self.rows = 0
        self.unanswered = 0
        self.reward = 0.0
        self.tally = np.zeros((4, len(self._names)))

    def read(self, log: Any) -> Iterator[Window | ItemWindow]:
        """Yield all rows of the log in windows of at most ``config.window`` rows.

        Updates the counts, lanes and segments of the reader. Yields ItemWindow for policies of item
        vectors. Raises UnfitLog if a row's propensity is not uniform, UnknownName for an arm that the
        policy lacks.
        """
        items, policy = get_items(log), self._config.policy
        check_items(policy, items)
        self._items = items if policy.arms is None else None
        for window in self._iter_windows(log):
            yield window if self._items is None else ItemWindow(window, self._items)

    def _iter_windows(self, log: Any) -> Iterator[Window]:
        """Yield windows of the configured number of rows across chunks; the last one may be shorter.

        Counts rows without feedback, and raises UnfitLog if a row's propensity is not that of uniform
        choice.
        """
        size, self._unread = self._config.window, list_unread_columns(log)
        parts, offers, free_rows = [], _Offers(), size
        # The whole log is read, then filtered: a shard may be empty, and the log's rejected rows are limited.
        reader = log.log if isinstance(log, KeyShard) else log
        # Unless uniform choice is assumed, rows without a propensity are left out, if others have one.
        chunks = as_chunks(reader, needs_propensity=not self._config.assume_uniform)
        chunks = chunks if reader is log else log.filter_rows(chunks)
        for chunk in chunks:
            remainder, unanswered = select_answered(chunk, self._config.missing_reward)
            self.unanswered += unanswered
            self._check_uniform(remainder)
            while len(remainder.rows):
                part, remainder = remainder.slice_rows(0, free_rows), remainder.slice_rows(free_rows)
                parts.append(self._convert_chunk(part, offers))
                free_rows -= len(part.rows)
                if free_rows == 0:
                    yield _join_parts(parts, offers)
                    parts, offers, free_rows = [], _Offers(), size
        if parts:
            yield _join_parts(parts, offers)

    def _check_uniform(self, chunk: Chunk) -> None:
        """Raise UnfitLog if a row's propensity differs from 1/(number of arms on offer).

        A missing propensity that was not left out is also an error, unless ``assume_uniform``.
        """
        propensity = chunk.batch["propensity"]
        uniform = 1.0 / lengths(chunk.batch["arms"])
        unknown = propensity.is_null().to_numpy(zero_copy_only=False)
        logged = propensity.fill_null(0.0).to_numpy()
        uneven = ~unknown & (np.abs(logged - uniform) > self._config.tolerance)
        unfit = uneven if self._config.assume_uniform else uneven | unknown
        refusal = Refusal("propensity", unfit, partial(_describe_not_uniform, chunk, uniform, self._unread))
        refuse_rows(chunk.row_location, [refusal])

    def _convert_chunk(self, chunk: Chunk, offers: _Offers) -> _WindowPart:
        """Convert rows to arrays of lanes, offers, contexts, shown arms, rewards and segments.

        Adds the rows to the reader's counts of rows, rewards and arms, and new keys and segments to its
        numbering.
        """
        batch = chunk.batch
        keys = zip(batch["placement"].to_pylist(), batch["key"].to_pylist(), strict=True)
        lanes = [self.lanes.setdefault(key, len(self.lanes)) for key in keys]
        dated = self._items is not None and self._items.has_times
        starts, stops = offers.locate_lists(
            batch["arms"], lambda row: self._get_arm_indices(chunk, row), alone=dated
        )
        if self._items is None:
            shown_arms = pc.index_in(batch["arm"], value_set=self._names).to_numpy()
        else:
            shown_arms = self._look_up_items(batch["arm"], batch["timestamp"], chunk.source)
        rewards = batch["reward"].fill_null(self._config.missing_reward or 0.0).to_numpy()
        self.rows += len(lanes)
        self.reward += float(rewards.sum())
        if self._items is None:
            # By uniform choice 1/p is the number of arms on offer. Every arm counts as on offer in every row,
            # which can only lessen the evidence against an arm.
            sizes = stops - starts
            counts = [np.bincount(shown_arms, sizes**power, len(self._names)) for power in range(3)]
            self.tally += [counts[0], np.full(len(self._names), len(lanes)), *counts[1:]]
        contexts, shown_arms = self._read_contexts(chunk), shown_arms.astype(np.int64)
        segments = self._number_segments(chunk)
        return _WindowPart(np.array(lanes), starts, stops, contexts, shown_arms, rewards, segments)

    def _number_segments(self, chunk: Chunk) -> Ints:
        """Return the segment number of each row, 0 without segments; number new segments.

        Raises UnfitLog if there are too many segments.
        """
        if self._config.by is None:
            return np.zeros(len(chunk.rows), np.int64)
        names = chunk.batch[SEGMENT].fill_null("").to_pylist()
        codes = [self.segments.setdefault(name, len(self.segments)) for name in names]
        check_segments(chunk.source, list(self.segments))
        return np.array(codes, np.int64)

    def _get_arm_indices(self, chunk: Chunk, row: int) -> Ints:
        """Return the arm indices of the arms that one row offers; raise UnknownName for an unknown arm.

        For policies of item vectors they are rows of the item table, valid at the row's time.
        """
        offered = chunk.batch["arms"][row].values
        if self._items is not None:
            times = pa.repeat(chunk.batch["timestamp"][row], len(offered))
            return self._look_up_items(offered, times, chunk.row_location(row))
        arm_indices = pc.index_in(offered, value_set=self._names)
        if arm_indices.null_count:
            unknown = offered.filter(arm_indices.is_null())[0].as_py()
            raise unknown_arm_error(chunk.row_location(row), unknown, self._names.to_pylist())
        return np.asarray(arm_indices.to_numpy(), np.int64)

    def _look_up_items(self, arms: Any, times: Any, where: str) -> Ints:
        """Return the item table's row for each arm at its time; an error begins with ``where``.

        Raises UnknownName if the table has no such item, or no vector of it at that time.
        """
        assert self._items is not None
        return self._items.rows(self._items.codes(arms, where), times, where)

    def _read_contexts(self, chunk: Chunk) -> Floats:
        """Return the contexts of rows, shape (rows, dim); dim is 0 if the policy reads none.

        Warns of the first context that the policy's classifier cannot handle. Raises LogError if a row's
        context has another length than the policy's.
        """
        dim = self._config.policy.context_dim
        if dim == 0:
            return np.zeros((len(chunk.rows), 0))
        contexts = chunk.batch["context"]
        text = f"does not fit; the policy needs {dim} numbers in each row; say which with "
        text += "columns={'context': [...]}"
        is_wrong = lengths(contexts) != dim
        refusal = Refusal("context", is_wrong, lambda row: f"{contexts[row].as_py()!r} {text}")
        refuse_rows(chunk.row_location, [refusal], LogError)
        array = np.asarray(contexts.flatten().to_numpy(), np.float64).reshape(-1, dim)
        self._watch.inspect(array)
        return array


class _WindowPart(NamedTuple):
    """Consecutive rows of a window as arrays, one element per row; ``logged`` are the shown arms' indices."""

    lanes: Ints
    starts: Ints
    stops: Ints
    contexts: Floats
    logged: Ints
    rewards: Floats
    segments: Ints


class _Offers:
    """The distinct lists of arm indices of a window, concatenated into one array."""

    def __init__(self) -> None:
        """Start without any list."""
        self._lists: list[Ints] = []
        self._places: dict[bytes, tuple[int, int]] = {}
        self._size = 0

    @property
    def arm_indices(self) -> Ints:
        """All distinct lists, concatenated into one array."""
        return np.concatenate(self._lists)

    def locate_lists(
        self, arms: Any, list_arm_indices: Callable[[int], Ints], *, alone: bool = False
    ) -> tuple[Ints, Ints]:
        """Return start and stop of each row's offer in the array of all lists; add new lists to it.

        ``arms`` is the column of offers; ``list_arm_indices`` returns the arm indices of the row with a
        number, and is called once per distinct offer. With ``alone`` it is called for every row, because
        the same names may have different indices.
        """
        same_as = np.arange(len(arms)) if alone else first_equal_rows(arms)
        first, offer_index = np.unique(same_as, return_inverse=True)
        places = np.array([self._locate_list(list_arm_indices(row)) for row in first.tolist()], np.int64)
        return places[offer_index, 0], places[offer_index, 1]

    def _locate_list(self, arm_indices: Ints) -> tuple[int, int]:
        """Return start and stop of a list in the array of all lists; append the list if it is new."""
        content = arm_indices.tobytes()
        if content not in self._places:
            self._places[content] = self._size, self._size + len(arm_indices)
            self._lists.append(arm_indices)
            self._size += len(arm_indices)
        return self._places[content]


def _join_parts(parts: list[_WindowPart], offers: _Offers) -> Window:
    """Return one window with the rows of all parts; ``offers`` has the lists of arms on offer."""
    columns = _WindowPart(*map(np.concatenate, zip(*parts, strict=True)))
    batch = Batch(
        columns.lanes,
        offers.arm_indices,
        columns.starts,
        columns.stops,
        columns.contexts,
        NO_FEATURES,
        NO_FEATURES,
    )
    return Window(batch, columns.logged, columns.rewards, columns.segments)


def _describe_not_uniform(chunk: Chunk, uniform: Floats, unread: Sequence[str], row: int) -> str:
    """Return the text of an error that a row's propensity is missing or differs from ``uniform``."""
    propensity = chunk.batch["propensity"][row].as_py()
    arms = len(chunk.batch["arms"][row])
    if propensity is None:
        return (
            f"{suggest_propensity_column(unread)}there is none, so nothing says that the {arms} arms on "
            "offer were equally likely; log with UniformRandom, or give assume_uniform=True "
            "(--assume-uniform) if you know that they were; if they were not, weigh the log by off_policy "
            "(--estimator ips,snips) with the propensities that are known, or propensities='estimated'"
        )
    return (
        f"it is {propensity:.6g}, but uniform choice among the {arms} arms on offer gives "
        f"{uniform[row]:.6g}; replay of this log would be biased; log with UniformRandom, or weight "
        "by importance (IPS, SNIPS or doubly robust) with off_policy, or with "
        "tacit evaluate --estimator ips,snips,dr"
    )


# ---- One pass of replay

STRIDE = 65_536
"""Rows that a compiled loop replays between two reports of progress."""


MOMENTS = 5
"""Sums over matched rows: their number, and of their rewards the first three powers and the magnitudes."""


class Matches(NamedTuple):
    """The current row's action and reward in a pass of replay, and the matched rows per segment so far.

    Attributes
    ----------
    action : array of int64, shape (1,)
        The arm index that the policy chose.
    feedback : array of float64, shape (1,)
        The reward of the row in the unit of the policy's state.
    unit : array of float64, shape (2,)
        The lowest reward and the width of the range, which make that unit.
    tally : array of float64, shape (segments, MOMENTS)
        For each segment the number of matched rows, and the sums of their rewards, of the rewards' squares,
        cubes and absolute values.
    largest : array of float64, shape (LARGEST,)
        The largest absolute rewards of matched rows, in descending order.
    """

    action: Ints
    feedback: Floats
    unit: Floats
    tally: Floats
    largest: Floats


def replay_rows(
    params: Any, state: Any, window: Window, order: Ints, rng: Generator, matches: Matches
) -> None:
    """Replay logged rows in the order ``order``; the policy learns where it chooses the logged arm.

    For each row the policy observes the impression and decides. If its arm is the logged one, it learns the
    reward, and the match and the reward are added to the row's segment in ``matches.tally``. Changes
    ``state``.
    """
    batch, (action, feedback, unit, tally, largest) = window.batch, matches
    for row in order:
        lane = batch.lanes[row]
        impression = get_impression(batch, row)
        observe(params, state, lane, impression)
        decide(params, state, lane, impression, rng, action)
        if action[0] == window.logged[row]:
            reward = window.rewards[row]
            feedback[0] = (reward - unit[0]) / unit[1]
            shown_arm = shown_in(params, action)
            logged_propensity = learned_propensity(params, state, lane, impression, shown_arm)
            learn(params, state, lane, make_outcome(params, impression, action, feedback, logged_propensity))
            sums = tally[window.segments[row]]
            sums[0] += 1.0
            sums[1] += reward
            sums[2] += reward * reward
            sums[3] += reward * reward * reward
            sums[4] += abs(reward)
            if abs(reward) > largest[-1]:  # insert it, in descending order
                place = len(largest) - 1
                while place > 0 and largest[place - 1] < abs(reward):
                    largest[place] = largest[place - 1]
                    place -= 1
                largest[place] = abs(reward)


class Pass:
    """One replay of the log: the policy's state, random generators and counts.

    Parameters
    ----------
    config : ReplayConfig
    number : int
        Number of the pass, which selects its random streams.
    shard : int, optional
        Number of the shard of keys that it replays, if not all.
    """

    def __init__(self, config: ReplayConfig, number: int, shard: int | None = None) -> None:
        """Set up an untrained policy, random generators and zero counts; pass 0 does not shuffle rows."""
        self.policy = config.policy
        self.state = self.policy.init(0)  # of 0 lanes
        # Name of the stream; a shard's is longer, so it differs from those of passes over all keys.
        place = (number,) if shard is None else (number, 1, shard)
        self.rng = stream("replay", config.seed, *place)
        # A separate generator for shuffling, so that the policy's draws do not depend
        # on it; the first pass keeps the log's order.
        self._shuffler = stream("replay, shuffling", config.seed, *place) if number else None
        action, feedback = np.zeros(1, np.int64), np.zeros(1)
        unit = np.array([self.policy.reward_range.low or 0.0, self.policy.reward_range.width])
        self._matches = Matches(action, feedback, unit, np.zeros((1, MOMENTS)), np.zeros(LARGEST))
        self._capacity = 0

    @property
    def match_count(self) -> int:
        """Number of rows in which the policy chose the logged arm."""
        return int(self._matches.tally[:, 0].sum())

    @property
    def clicks(self) -> float:
        """Sum of the rewards of matched rows."""
        return float(self._matches.tally[:, 1].sum())

    @property
    def tally(self) -> Floats:
        """Sums over matched rows for each segment, as in :class:`Matches`, shape (segments, MOMENTS)."""
        return self._matches.tally

    @property
    def largest(self) -> Floats:
        """The largest absolute rewards of matched rows, in descending order."""
        return self._matches.largest

    def replay(self, window: Window | ItemWindow, lanes: int, segments: int = 1) -> Iterator[int]:
        """Replay all rows of a window in pieces; after each piece yield its number of rows.

        The policy's state learns from matched rows, and the tally counts them. ``lanes`` and ``segments``
        are the numbers of lanes and segments so far; state and tally grow to them. Passes after the first
        shuffle the rows.
        """
        if lanes > self._capacity:
            self._capacity = max(lanes, 2 * self._capacity)
            self.state = copy_to_larger(self.state, self.policy.init(self._capacity))
        if segments > len(self.tally):
            new_rows = np.zeros((segments - len(self.tally), MOMENTS))
            self._matches = self._matches._replace(tally=np.concatenate([self.tally, new_rows]))
        rows = len(window.logged if isinstance(window, Window) else window.window.logged)
        order = self._shuffler.permutation(rows) if self._shuffler else np.arange(rows)
        params = self.policy.params
        driver = compile_loop(replay_rows, params)
        parts: Any = ((window, order[start : start + STRIDE]) for start in range(0, rows, STRIDE))
        if isinstance(window, ItemWindow):
            parts = window.split(order)
        for part, part_order in parts:
            driver(params, self.state, part, part_order, self.rng, self._matches)
            yield len(part_order)
