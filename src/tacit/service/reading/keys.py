"""What a placement knows of its keys: a copy of what was learned of one, the busiest, a search."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from tacit.core.arrays import Floats
from tacit.errors import UnknownName
from tacit.policies.base import Counts
from tacit.policies.lists.position_based import PositionCounts
from tacit.policies.stationary.thompson import Thompson
from tacit.service.placements.base import Placement
from tacit.service.reading.counts import counts_of, plays_and_rewards, rounds_of

Result = TypeVar("Result")

MOST_KEYS = 10
MOST_FOUND = 20
MOST_LOOKED = 100_000
MANY = 50_000
"""Counts that are looked through at once."""
KEPT_SECONDS = 30.0


class KeyFacts(NamedTuple):
    """What was learned of a key.

    Attributes
    ----------
    name : str
    rounds : float
        Impressions learned from since it last restarted; 0 where the policy counts none.
    epoch : int
    counts : (array of float64, array of float64) or None
        Plays and rewards of each arm, where the policy counts these.
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
    counts: tuple[Floats, Floats] | None
    placed: tuple[Floats, Floats, Floats] | None
    restarts: list[Any] | None
    plays: Floats


class Found(NamedTuple):
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
    told: Any = None
    placed: Any = None
    if isinstance(counts, PositionCounts):
        placed = (counts.shows[lane].copy(), counts.clicks[lane].copy(), counts.effects[lane].copy())
    if isinstance(counts, (Counts, Thompson.State)):
        told = tuple(array.copy() for array in plays_and_rewards(counts, lane))
    if counts is not None:
        rounds = float(rounds_of(counts)[lane])
    restarts = None
    with contextlib.suppress(UnknownName):
        restarts = list(learner.restarts(key))
    plays = learner._batch.plays_of(lane)
    if told is not None and not learner.policy.forgets:
        plays = told[0]
    return KeyFacts(key, rounds, epoch, told, placed, restarts, plays)


async def busiest(placement: Placement) -> list[KeyFacts]:
    """Return the busiest keys; nothing where the policy counts no impressions of a key.

    Of many keys they are as old as :data:`KEPT_SECONDS` at most.
    """
    then, kept = _kept.get(placement, (0.0, []))
    if placement.key_count > MANY and monotonic() - then < KEPT_SECONDS:
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
    counts, keys = counts_of(placement.learner.state), list(placement.learner._batch.lanes.of)
    if counts is None or not keys:
        return []
    rounds = rounds_of(counts)[: len(keys)]
    # Of a million keys, sorting all would take long.
    most = np.argpartition(-rounds, min(MOST_KEYS, len(rounds)) - 1)[:MOST_KEYS]
    most = most[np.lexsort((most, -rounds[most]))]
    return [keys[lane] for lane in most.tolist() if rounds[lane]]


async def find_keys(placement: Placement, text: str) -> Found:
    """Return keys in which a text occurs, among the first ones that there were."""
    keys = placement.learner._batch.lanes.of
    some = list(islice(keys, MOST_LOOKED))
    found = await _beside(placement, _having, some, text)
    first = [text] if text in keys else []
    return Found(text, [*first, *found][:MOST_FOUND], len(some), len(keys))


def _having(keys: Sequence[str], text: str) -> list[str]:
    wanted = text.casefold()
    found = (key for key in keys if wanted in key.casefold() and key != text)
    return list(islice(found, MOST_FOUND))


def busiest_of(parts: Iterable[Sequence[KeyFacts]]) -> list[KeyFacts]:
    """Return the busiest keys of those of shards."""
    every = [facts for part in parts for facts in part]
    return sorted(every, key=lambda facts: -facts.rounds)[:MOST_KEYS]


def found_in(parts: Sequence[Found]) -> Found:
    """Return what was found in shards, each of which has other keys or the same."""
    text = parts[0].text
    keys = dict.fromkeys(key for part in parts for key in part.keys)
    first = [text] if text in keys else []
    others = [key for key in keys if key != text]
    looked, of = sum(part.looked for part in parts), sum(part.of for part in parts)
    return Found(text, [*first, *others][:MOST_FOUND], looked, of)
