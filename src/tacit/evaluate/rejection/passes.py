"""One pass of replay: what is learned in it, and which rows count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import decide, learn, learned_propensity, observe, shown_in
from tacit.core.seeds import stream
from tacit.core.state import copied_into
from tacit.evaluate.rejection.rules import Rules
from tacit.evaluate.rejection.windows import Window
from tacit.learning.batch import impression_of
from tacit.policies.base import outcome_of

STRIDE = 65_536
"""Rows between two reports of progress, and between two chances to interrupt."""


class Matches(NamedTuple):
    """What a pass writes into.

    Attributes
    ----------
    action : array of int64, shape (1,)
        The slot that the policy chose.
    feedback : array of float64, shape (1,)
        The reward of the row.
    tally : array of float64, shape (segments, 2)
        How many rows of each segment matched, and the sum of their rewards.
    """

    action: Ints
    feedback: Floats
    tally: Floats


def replay_rows(
    params: Any, state: Any, window: Window, order: Ints, rng: Generator, matches: Matches
) -> None:
    """Replay rows in an order; add the number of matched rows and their rewards to a tally."""
    batch, (action, feedback, tally) = window.batch, matches
    for row in order:
        lane = batch.lanes[row]
        impression = impression_of(batch, row)
        observe(params, state, lane, impression)
        decide(params, state, lane, impression, rng, action)
        if action[0] == window.logged[row]:
            feedback[0] = window.rewards[row]
            shown = shown_in(params, action)
            known = learned_propensity(params, state, lane, impression, shown)
            learn(params, state, lane, outcome_of(params, impression, action, feedback, known))
            tally[window.segments[row], 0] += 1.0
            tally[window.segments[row], 1] += feedback[0]


class Pass:
    """One replay of the log: what was learned in it, its generators and its counts.

    Parameters
    ----------
    rules : Rules
    number : int
        The place of its draws among those of the seed.
    shard : int, optional
        Which part of the keys it replays, if not all.
    """

    def __init__(self, rules: Rules, number: int, shard: int | None = None) -> None:
        self.policy = rules.policy
        self.state = self.policy.init(0)
        place = (number,) if shard is None else (number, 1, shard)
        self.rng = stream("replay", rules.seed, *place)
        # Shuffling draws from a generator of its own, so that the policy's draws do not depend
        # on it; the first pass keeps the log's order.
        self._shuffler = stream("replay, shuffling", rules.seed, *place) if number else None
        self._matches = Matches(np.zeros(1, np.int64), np.zeros(1), np.zeros((1, 2)))
        self._capacity = 0

    @property
    def matched(self) -> int:
        """The number of rows that counted."""
        return int(self._matches.tally[:, 0].sum())

    @property
    def clicks(self) -> float:
        """Sum of their rewards."""
        return float(self._matches.tally[:, 1].sum())

    @property
    def tally(self) -> Floats:
        """Both for each segment, shape (segments, 2)."""
        return self._matches.tally

    def play(self, window: Window, lanes: int, segments: int = 1) -> Iterator[int]:
        """Replay a window; yield the number of rows after each stretch of it."""
        from tacit.core.compiled import compiled

        if lanes > self._capacity:
            self._capacity = max(lanes, 2 * self._capacity)
            self.state = copied_into(self.state, self.policy.init(self._capacity))
        if segments > len(self.tally):
            more = np.zeros((segments - len(self.tally), 2))
            self._matches = self._matches._replace(tally=np.concatenate([self.tally, more]))
        rows = len(window.logged)
        order = self._shuffler.permutation(rows) if self._shuffler else np.arange(rows)
        params = self.policy.params
        driver = compiled(replay_rows, params)
        for start in range(0, rows, STRIDE):
            stretch = order[start : start + STRIDE]
            driver(params, self.state, window, stretch, self.rng, self._matches)
            yield len(stretch)
