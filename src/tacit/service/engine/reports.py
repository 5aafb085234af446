"""Reports on placements that do not delay decisions: counts, health, keys, and learners as files."""

# 1. Counts of plays and rewards in policies' states.
# 2. Health of the engine, its store and its shards.
# 3. Learned states of keys: one key, the busiest keys, a search.
# 4. Learners as files for replicas, made once for all requests at about the same time.

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from weakref import ReferenceType, WeakKeyDictionary, ref

import numpy as np

from tacit.core.arrays import Floats
from tacit.errors import UnknownName
from tacit.learning.columns import count_plays
from tacit.learning.snapshot import LearnerSnapshot, iter_views
from tacit.policies.base import ArmBeliefs, Counts, read_unit
from tacit.policies.baselines.position_based import PositionCounts
from tacit.policies.shifting.hypotheses import Hypotheses
from tacit.policies.stationary.thompson import Thompson
from tacit.service.engine.writer import Serving, Writer
from tacit.service.errors import Busy
from tacit.service.placements.placement import Placement
from tacit.service.placements.snapshots import copy_learner, make_workspace

# ---- Counts of plays and rewards in policies' states

BetaState = Thompson.State


def iterate_states(state: Any) -> Iterator[Any]:
    """Yield a policy's state, then all states nested in it, depth first."""
    yield state
    if isinstance(state, tuple):
        for part in state:
            if isinstance(part, tuple):
                yield from iterate_states(part)


def find_counts(state: Any) -> Counts | BetaState | PositionCounts | Hypotheses | None:
    """Return the counts of plays and rewards in a policy's state; None if it has none of a known type.

    If several states are nested, the first one's.
    """
    kinds = (Counts, BetaState, PositionCounts, Hypotheses)
    return next((part for part in iterate_states(state) if isinstance(part, kinds)), None)


def count_rounds(counts: Counts | BetaState | PositionCounts | Hypotheses) -> Floats:
    """Return the number of impressions counted in each lane (of each key), as floats."""
    if isinstance(counts, Thompson.State):
        return counts.successes.sum(axis=1) + counts.failures.sum(axis=1)  # type: ignore[no-any-return]
    return counts.rounds.astype(np.float64)


def get_beliefs(policy: Any, state: Any, lane: int) -> ArmBeliefs | None:
    """Return beliefs about the arms in a lane, from the policy or from its counts; None without both."""
    counts = find_counts(state)
    if hasattr(policy, "beliefs") and isinstance(counts, (Counts, Thompson.State, Hypotheses)):
        return policy.beliefs(state, lane)  # type: ignore[no-any-return]
    if not isinstance(counts, Counts):
        return None
    return ArmBeliefs.from_counts(counts.plays[lane], counts.rewards[lane])


# ---- Health of the engine, its store and its shards


class Health(NamedTuple):
    """Health of the engine and its store.

    Attributes
    ----------
    ready : bool
        Whether the last commit worked.
    events : int
        Rows of the log.
    bytes : int
        Size of the store.
    rate : float
        Rows per second over the last 10 seconds.
    committed : int or None
        Time of the last commit since the start, in microseconds since 1970.
    commit_seconds : float
        Duration of the last commit.
    buffered : int
        Rows in memory only.
    recovery_seconds : float
        Duration of the recovery from the store at the start.
    wall_ahead : float
        Seconds by which this machine's clock is ahead of the log's time; negative if behind.
    """

    ready: bool
    events: int
    bytes: int
    rate: float
    committed: int | None
    commit_seconds: float
    buffered: int
    recovery_seconds: float
    wall_ahead: float = 0.0


class ShardHealth(NamedTuple):
    """Health of one shard.

    Attributes
    ----------
    number : int
    pid : int or None
        Id of its process, on its machine.
    up : bool
        Whether it answers.
    losses : int
        Number of times that it was lost since the start.
    recovery_seconds : float or None
        Duration of its last recovery.
    waiting : int
        Number of requests on their way to it.
    health : Health or None
        Its last report.
    """

    number: int
    pid: int | None
    up: bool
    losses: int
    recovery_seconds: float | None
    waiting: int
    health: Health | None


# ---- Learned states of keys: one key, the busiest keys, a search

Result = TypeVar("Result")

MOST_KEYS = 10
MOST_FOUND = 20
MOST_LOOKED = 100_000
MANY = 50_000
"""Numbers of counts and keys up to which reports run in the event loop."""
COPY_SECONDS = 30.0


class KeyFacts(NamedTuple):
    """The learned state of a key.

    Attributes
    ----------
    name : str
    rounds : float
        Impressions learned from since the key's last restart; 0 if the policy does not count them.
    epoch : int
    believed : ArmBeliefs or None
        Beliefs about the arms, if the policy counts plays and rewards.
    placed : tuple of array or None
        Shows and clicks of each arm at each position, and examination probabilities of positions, if the
        policy models positions.
    restarts : list or None
        Restarts as the policy records them; None if it does not.
    plays : array of float64
        Number of impressions of each arm learned from, over all time; NaN if unknown.
    width : float
        Reward for which 1 stands in the policy's state: 1, or more if there is no largest reward.
    """

    name: str
    rounds: float
    epoch: int
    believed: ArmBeliefs | None
    placed: tuple[Floats, Floats, Floats] | None
    restarts: list[Any] | None
    plays: Floats
    width: float = 1.0


class KeyMatches(NamedTuple):
    """The keys that contain a text.

    Attributes
    ----------
    text : str
    keys : list of str
    looked, of : int
        Number of searched keys, and of all keys; a key equal to the text is always found.
    """

    text: str
    keys: list[str]
    looked: int
    of: int


def key_facts(placement: Placement, key: str) -> KeyFacts:
    """Return what the policy has learned of a key: counts, beliefs and restarts.

    Raises
    ------
    UnknownName
        If the key has no decisions.
    """
    learner = placement.learner
    lane, epoch = learner.lane(key), learner.epoch(key)
    counts, rounds = find_counts(learner.state), 0.0
    believed = get_beliefs(learner.policy, learner.state, lane)
    placed: Any = None
    if isinstance(counts, PositionCounts):
        placed = (counts.shows[lane].copy(), counts.clicks[lane].copy(), counts.effects[lane].copy())
    if counts is not None:
        rounds = float(count_rounds(counts)[lane])
    restarts = None
    with contextlib.suppress(UnknownName):
        restarts = list(learner.restarts(key))
    plays = count_plays(learner, lane)
    # A policy that never forgets has counted all plays, so its beliefs have them.
    if believed is not None and np.isnan(plays).any() and not learner.policy.forgets:
        plays = believed.plays
    width = read_unit(learner.policy, learner.state).width
    return KeyFacts(key, rounds, epoch, believed, placed, restarts, plays, width)


async def busiest(placement: Placement) -> list[KeyFacts]:
    """Return the learned states of the 10 keys with the most impressions, the busiest first.

    Empty if the policy does not count impressions by key. With many keys the result is cached, and up to
    :data:`COPY_SECONDS` old.
    """
    then, cached = _busiest_cache.get(placement, (0.0, []))
    if placement.key_count > MANY and monotonic() - then < COPY_SECONDS:
        return cached
    names = await _run_in_thread(placement, _find_busiest_keys, placement)
    facts = [key_facts(placement, name) for name in names]
    _busiest_cache[placement] = monotonic(), facts
    return facts


_busiest_cache: WeakKeyDictionary[Placement, tuple[float, list[KeyFacts]]] = WeakKeyDictionary()


async def _run_in_thread(placement: Placement, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function and return its result; in a thread if the placement has many keys and arms.

    Decisions that are made meanwhile may or may not count in the result.
    """
    if placement.key_count * len(placement.arms) <= MANY:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def _find_busiest_keys(placement: Placement) -> list[str]:
    """Return the 10 keys with the most impressions, the busiest first; keys without any are left out."""
    # Counts first, keys second: so every counted lane has its key.
    counts, keys = find_counts(placement.learner.state), list(placement.learner.lanes.lane_of_key)
    if counts is None or not keys:
        return []
    rounds = count_rounds(counts)[: len(keys)]
    # Sorting a million keys would be slow.
    most = np.argpartition(-rounds, min(MOST_KEYS, len(rounds)) - 1)[:MOST_KEYS]
    most = most[np.lexsort((most, -rounds[most]))]
    return [keys[lane] for lane in most.tolist() if rounds[lane]]


async def find_keys(placement: Placement, text: str) -> KeyMatches:
    """Return up to 20 keys that contain a text, ignoring case, among the oldest :data:`MOST_LOOKED` keys.

    A key equal to the text is always found, and comes first.
    """
    keys = placement.learner.lanes.lane_of_key
    looked = list(islice(keys, MOST_LOOKED))
    matches = await _run_in_thread(placement, _find_matches, looked, text)
    first = [text] if text in keys else []
    return KeyMatches(text, [*first, *matches][:MOST_FOUND], len(looked), len(keys))


def _find_matches(keys: Sequence[str], text: str) -> list[str]:
    """Return up to 20 keys that contain a text, ignoring case, except the key equal to the text."""
    folded_text = text.casefold()
    matches = (key for key in keys if folded_text in key.casefold() and key != text)
    return list(islice(matches, MOST_FOUND))


def merge_busiest(parts: Iterable[Sequence[KeyFacts]]) -> list[KeyFacts]:
    """Return the 10 busiest keys of all shards, from the busiest keys of each."""
    every = [facts for part in parts for facts in part]
    return sorted(every, key=lambda facts: -facts.rounds)[:MOST_KEYS]


def merge_matches(parts: Sequence[KeyMatches]) -> KeyMatches:
    """Merge the results of a key search in all shards; numbers of searched keys are added.

    At most 20 distinct keys remain, in the order of the shards, a key equal to the text first.
    """
    text = parts[0].text
    keys = dict.fromkeys(key for part in parts for key in part.keys)
    first = [text] if text in keys else []
    other_keys = [key for key in keys if key != text]
    looked, of = sum(part.looked for part in parts), sum(part.of for part in parts)
    return KeyMatches(text, [*first, *other_keys][:MOST_FOUND], looked, of)


# ---- Learners as files for replicas in clients, made once for all requests at about the same time

LARGE = 2**20
"""Size in bytes from which on a file is reused for later requests."""
KEPT_SECONDS = 5.0
"""How long such a file is reused."""
MOST_BYTES = 2**26
"""Total size in bytes of the files that are being sent above which no third file is made."""


class ReplicaFile(list[bytes | memoryview]):
    """A learner's file in parts, which several answers may send at once.

    Attributes
    ----------
    placement : object
        The placement object from which it was made.
    seq : int
        Last row of the log that it includes.
    size : int
        Bytes.
    """

    def __init__(self, placement: Any, seq: int, parts: Iterable[bytes | memoryview]) -> None:
        super().__init__(parts)
        self.placement, self.seq, self.size = placement, seq, sum(map(len, self))


class ReplicaFiles:
    """Makes learners' files, one at a time for each placement.

    Memory holds a copy of the learned state for each file that is being sent: at most two for a placement
    with a large state.

    Parameters
    ----------
    engine : Serving
    writer : Writer
    """

    def __init__(self, engine: Serving, writer: Writer) -> None:
        self._engine, self._writer = engine, writer
        self._making: dict[str, asyncio.Task[ReplicaFile]] = {}
        self._sent: dict[str, list[ReferenceType[ReplicaFile]]] = {}
        self.fresh: dict[str, ReplicaFile] = {}

    async def get_file(self, name: str, seq: int) -> ReplicaFile:
        """Return a placement's learner as a file: one that is up to date or recent, or a new one.

        Callers that arrive while a file is being made get the same file.

        Parameters
        ----------
        name : str
        seq : int
            The end of the log; a file that includes this row is up to date.

        Raises
        ------
        UnknownName, Unavailable
            If there is no such placement, or the store fails.
        Busy
            If earlier files that are still being sent take too much memory.
        """
        placement = self._engine.placement(name)
        sent = [file for reference in self._sent.get(name, ()) if (file := reference()) is not None]
        for file in sent:
            if file.placement is placement and (file.seq == seq or self.fresh.get(name) is file):
                return file
        making = self._making.get(name)
        if making is None:
            if len(sent) > 1 and sum(file.size for file in sent) > MOST_BYTES:
                raise Busy(
                    "service: two earlier states of what was learned are still being sent; ask again later"
                )
            self._sent[name] = list(map(ref, sent))
            making = self._making[name] = asyncio.create_task(self._make(name))
            making.add_done_callback(partial(self._end_task, name))
        # The task must go on if the first caller is cancelled.
        return await asyncio.shield(making)

    def find_last_row(self, name: str, seq: int) -> int:
        """Return the last row that a file requested now would include, if the log ends at row ``seq``."""
        fresh = self.fresh.get(name)
        return seq if fresh is None else fresh.seq

    async def _make(self, name: str) -> ReplicaFile:
        """Copy a placement's learner between two groups, and return the copy as a file.

        A large file is kept in ``fresh`` for :data:`KEPT_SECONDS`, for later requests.
        """
        copies: list[tuple[Any, int, LearnerSnapshot]] = []
        workspace = make_workspace(self._engine.placement(name))
        # A deque without room runs the iterator to its end.
        await asyncio.to_thread(deque, workspace.touch_pages(), maxlen=0)

        async def copy() -> None:
            """Copy the placement's learner while it is frozen; add it to ``copies`` with the last row."""
            # The placement may have been replaced meanwhile.
            target = self._engine.placement(name)
            copies.append(
                await self._writer.read_frozen(lambda seq, _: (target, seq, copy_learner(target, workspace)))
            )

        await self._writer.run_between_groups(copy)
        placement, seq, learned = copies.pop()
        file = await asyncio.to_thread(ReplicaFile, placement, seq, iter_views(learned))
        self._sent[name].append(ref(file))
        if file.size >= LARGE:
            self.fresh[name] = file
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._drop_fresh, name, file)
        return file

    def _end_task(self, name: str, task: asyncio.Task[ReplicaFile]) -> None:
        """Forget the finished task that made a placement's file."""
        del self._making[name]
        # Mark the error as retrieved: the caller raises it, unless the caller was cancelled.
        _ = task.cancelled() or task.exception()

    def _drop_fresh(self, name: str, file: ReplicaFile) -> None:
        """Remove a file from ``fresh``, unless a newer one has taken its place."""
        if self.fresh.get(name) is file:
            del self.fresh[name]
