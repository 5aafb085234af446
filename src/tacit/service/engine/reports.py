"""Reading what placements know, without making a decision wait: counts, health, keys, whole learners."""

# 1. Counts of plays and rewards, found in policies' states.
# 2. How the engine, its store and its shards are.
# 3. What a placement knows of its keys, as a copy, so that nobody waits.
# 4. Whole learners as files, made once for all who ask at about the same time.

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
from tacit.learning.snapshot import LearnerSnapshot, views
from tacit.policies.base import ArmBeliefs, Counts
from tacit.policies.baselines.position_based import PositionCounts
from tacit.policies.shifting.hypotheses import Hypotheses
from tacit.policies.stationary.thompson import Thompson
from tacit.service.engine.writer import Serving, Writer
from tacit.service.errors import Busy
from tacit.service.placements.placement import Placement

# ---- Plays and rewards as policies count them, found in their states

BetaState = Thompson.State


def parts_of(state: Any) -> Iterator[Any]:
    """Yield a policy's state and, where it holds those of others, theirs."""
    yield state
    if isinstance(state, tuple):
        for part in state:
            if isinstance(part, tuple):
                yield from parts_of(part)


def counts_of(state: Any) -> Counts | BetaState | PositionCounts | Hypotheses | None:
    """Return plays and rewards as a policy counts them; None where it counts otherwise."""
    kinds = (Counts, BetaState, PositionCounts, Hypotheses)
    return next((part for part in parts_of(state) if isinstance(part, kinds)), None)


def rounds_of(counts: Counts | BetaState | PositionCounts | Hypotheses) -> Floats:
    """Return how many impressions each lane counts."""
    if isinstance(counts, Thompson.State):
        return counts.successes.sum(axis=1) + counts.failures.sum(axis=1)  # type: ignore[no-any-return]
    return counts.rounds.astype(np.float64)


def believed_of(policy: Any, state: Any, lane: int) -> ArmBeliefs | None:
    """Return by what a lane decides between its arms: what the policy believes, or else its counts."""
    counts = counts_of(state)
    if hasattr(policy, "beliefs") and isinstance(counts, (Counts, Thompson.State, Hypotheses)):
        return policy.beliefs(state, lane)  # type: ignore[no-any-return]
    if not isinstance(counts, Counts):
        return None
    return ArmBeliefs.of_counts(counts.plays[lane], counts.rewards[lane])


# ---- How the engine, its store and its shards are


class Health(NamedTuple):
    """How the engine and its store are.

    Attributes
    ----------
    ready : bool
        Whether the last commit worked.
    events : int
        Rows of the log.
    bytes : int
        What the store takes.
    rate : float
        Events per second over the last 10 seconds.
    committed : int or None
        Time of the last commit since the start, in microseconds since 1970.
    commit_seconds : float
        How long it took.
    buffered : int
        Rows that are in memory only.
    recovery_seconds : float
        How long it took at the start to read what was learned from the store.
    wall_ahead : float
        By how many seconds this machine's clock is ahead of the log's time; negative if behind.
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
    """How one of several shards is.

    Attributes
    ----------
    number : int
    pid : int or None
        Of its process, on the machine where it is.
    up : bool
        Whether it answers.
    losses : int
        How often it was lost since the start.
    recovery_seconds : float or None
        How long it took to come back the last time.
    waiting : int
        Requests on their way to it.
    health : Health or None
        As it said last.
    """

    number: int
    pid: int | None
    up: bool
    losses: int
    recovery_seconds: float | None
    waiting: int
    health: Health | None


# ---- What a placement knows of its keys: a copy of what was learned of one, the busiest, a search

Result = TypeVar("Result")

MOST_KEYS = 10
MOST_FOUND = 20
MOST_LOOKED = 100_000
MANY = 50_000
"""Counts that are looked through at once."""
COPY_SECONDS = 30.0


class KeyFacts(NamedTuple):
    """What was learned of a key.

    Attributes
    ----------
    name : str
    rounds : float
        Impressions learned from since it last restarted; 0 where the policy counts none.
    epoch : int
    believed : ArmBeliefs or None
        What decides between the arms, where the policy counts their plays and rewards.
    placed : tuple of array or None
        Shows and clicks of each arm at each position, and how likely positions are examined, where
        the policy models that.
    restarts : list or None
        As the policy keeps them; None where it does not.
    plays : array of float64
        How often each arm was shown and learned from, ever; NaN where that is not known.
    """

    name: str
    rounds: float
    epoch: int
    believed: ArmBeliefs | None
    placed: tuple[Floats, Floats, Floats] | None
    restarts: list[Any] | None
    plays: Floats


class KeysFound(NamedTuple):
    """Keys in which a text occurs.

    Attributes
    ----------
    text : str
    keys : list of str
    looked, of : int
        How many keys were looked through, of how many; the one of this very name always is.
    """

    text: str
    keys: list[str]
    looked: int
    of: int


def key_facts(placement: Placement, key: str) -> KeyFacts:
    """Return what was learned of a key.

    Raises
    ------
    UnknownName
        If nothing was ever decided for it.
    """
    learner = placement.learner
    lane, epoch = learner.lane(key), learner.epoch(key)
    counts, rounds = counts_of(learner.state), 0.0
    believed = believed_of(learner.policy, learner.state, lane)
    placed: Any = None
    if isinstance(counts, PositionCounts):
        placed = (counts.shows[lane].copy(), counts.clicks[lane].copy(), counts.effects[lane].copy())
    if counts is not None:
        rounds = float(rounds_of(counts)[lane])
    restarts = None
    with contextlib.suppress(UnknownName):
        restarts = list(learner.restarts(key))
    plays = learner.plays_of(lane)
    if believed is not None and np.isnan(plays).any() and not learner.policy.forgets:
        plays = believed.plays
    return KeyFacts(key, rounds, epoch, believed, placed, restarts, plays)


async def busiest(placement: Placement) -> list[KeyFacts]:
    """Return the busiest keys; nothing where the policy counts no impressions of a key.

    Of many keys they are as old as :data:`COPY_SECONDS` at most.
    """
    then, kept = _kept.get(placement, (0.0, []))
    if placement.key_count > MANY and monotonic() - then < COPY_SECONDS:
        return kept
    names = await _beside(placement, _busiest_names, placement)
    found = [key_facts(placement, name) for name in names]
    _kept[placement] = monotonic(), found
    return found


_kept: WeakKeyDictionary[Placement, tuple[float, list[KeyFacts]]] = WeakKeyDictionary()


async def _beside(placement: Placement, function: Callable[..., Result], *given: Any) -> Result:
    """Call a function; of many keys and arms on a thread, or decisions would wait for it.

    What is decided meanwhile may be counted or not.
    """
    if placement.key_count * len(placement.arms) <= MANY:
        return function(*given)
    return await asyncio.to_thread(function, *given)


def _busiest_names(placement: Placement) -> list[str]:
    # One after the other, so that every lane that is counted has its key.
    counts, keys = counts_of(placement.learner.state), list(placement.learner.lanes.of)
    if counts is None or not keys:
        return []
    rounds = rounds_of(counts)[: len(keys)]
    # Of a million keys, sorting all would take long.
    most = np.argpartition(-rounds, min(MOST_KEYS, len(rounds)) - 1)[:MOST_KEYS]
    most = most[np.lexsort((most, -rounds[most]))]
    return [keys[lane] for lane in most.tolist() if rounds[lane]]


async def find_keys(placement: Placement, text: str) -> KeysFound:
    """Return keys in which a text occurs, among the first ones that there were."""
    keys = placement.learner.lanes.of
    looked = list(islice(keys, MOST_LOOKED))
    found = await _beside(placement, _having, looked, text)
    first = [text] if text in keys else []
    return KeysFound(text, [*first, *found][:MOST_FOUND], len(looked), len(keys))


def _having(keys: Sequence[str], text: str) -> list[str]:
    wanted = text.casefold()
    found = (key for key in keys if wanted in key.casefold() and key != text)
    return list(islice(found, MOST_FOUND))


def busiest_of(parts: Iterable[Sequence[KeyFacts]]) -> list[KeyFacts]:
    """Return the busiest keys of those of shards."""
    every = [facts for part in parts for facts in part]
    return sorted(every, key=lambda facts: -facts.rounds)[:MOST_KEYS]


def found_in(parts: Sequence[KeysFound]) -> KeysFound:
    """Return what was found in shards, each of which has other keys or the same."""
    text = parts[0].text
    keys = dict.fromkeys(key for part in parts for key in part.keys)
    first = [text] if text in keys else []
    others = [key for key in keys if key != text]
    looked, of = sum(part.looked for part in parts), sum(part.of for part in parts)
    return KeysFound(text, [*first, *others][:MOST_FOUND], looked, of)


# ---- What placements have learned, as learners' files: made once for all who ask at about a time

LARGE = 2**20
"""Bytes of a file from which on it is given to those, too, who ask soon after."""
KEPT_SECONDS = 5.0
"""For so long."""
MOST_BYTES = 2**26
"""Beyond them, files of two states are sent at once, and no third one is made."""


class Lent(list[bytes | memoryview]):
    """A learner's file in parts, which many may send at once.

    Attributes
    ----------
    of : object
        The placement as it was.
    seq : int
        The last row of the log that it knows.
    size : int
        Bytes.
    """

    def __init__(self, of: Any, seq: int, parts: Iterable[bytes | memoryview]) -> None:
        super().__init__(parts)
        self.of, self.seq, self.size = of, seq, sum(map(len, self))


class Lending:
    """Makes the files, one at a time for a placement.

    Memory holds a copy of what was learned for each state that somebody is still being sent: of
    what is huge, two of a placement.

    Parameters
    ----------
    engine : Serving
    writer : Writer
    """

    def __init__(self, engine: Serving, writer: Writer) -> None:
        self._engine, self._writer = engine, writer
        self._making: dict[str, asyncio.Task[Lent]] = {}
        self._sent: dict[str, list[ReferenceType[Lent]]] = {}
        self.fresh: dict[str, Lent] = {}

    async def of(self, name: str, seq: int) -> Lent:
        """Return the file of a placement.

        Parameters
        ----------
        name : str
        seq : int
            The end of the log: what is the same up to there is the same.

        Raises
        ------
        UnknownName, Unavailable
            If there is no such placement, or the store fails.
        Busy
            If those who are still being sent earlier states take too much memory.
        """
        placement = self._engine.placement(name)
        sent = [lent for known in self._sent.get(name, ()) if (lent := known()) is not None]
        for lent in sent:
            if lent.of is placement and (lent.seq == seq or self.fresh.get(name) is lent):
                return lent
        making = self._making.get(name)
        if making is None:
            if len(sent) > 1 and sum(lent.size for lent in sent) > MOST_BYTES:
                raise Busy(
                    "service: two earlier states of what was learned are still being sent; ask again later"
                )
            self._sent[name] = list(map(ref, sent))
            making = self._making[name] = asyncio.create_task(self._make(name))
            making.add_done_callback(partial(self._ended, name))
        # Who asked first may leave first.
        return await asyncio.shield(making)

    def row(self, name: str, seq: int) -> int:
        """Return the last row that the file knows which is given now, where the log ends at ``seq``."""
        fresh = self.fresh.get(name)
        return seq if fresh is None else fresh.seq

    async def _make(self, name: str) -> Lent:
        copies: list[tuple[Any, int, LearnerSnapshot]] = []
        room = self._engine.placement(name).room()
        await asyncio.to_thread(deque, room.touched(), 0)

        async def copy() -> None:
            # Another one may have taken its place meanwhile.
            of = self._engine.placement(name)
            copies.append(await self._writer.frozen(lambda seq, _: (of, seq, of.copied(room))))

        await self._writer.between_groups(copy)
        of, seq, learned = copies.pop()
        made = await asyncio.to_thread(Lent, of, seq, views(learned))
        self._sent[name].append(ref(made))
        if made.size >= LARGE:
            self.fresh[name] = made
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._age, name, made)
        return made

    def _ended(self, name: str, task: asyncio.Task[Lent]) -> None:
        del self._making[name]
        # What went wrong is for the caller, who may have left.
        _ = task.cancelled() or task.exception()

    def _age(self, name: str, made: Lent) -> None:
        if self.fresh.get(name) is made:
            del self.fresh[name]
