"""The sums behind a placement's lift: a fold over its part of the log."""

# 1. ``Closed``: decisions whose windows closed, gathered until somebody looks or enough have come.
# 2. ``LiftSums``: the present chapter and those before; each change of terms ends one.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.proof import FrequencySums, HoldoutSums, Scores, ScoreSums
from tacit.service.config.holdout import MetricConfig
from tacit.service.log.rows import ARMS
from tacit.service.placements.aspects.chapters import (
    Chapter,
    Closings,
    added,
    holdout_in,
    metric_configs_in,
    together,
)
from tacit.service.placements.attribution import CORRECTED, INACTIVE, LATE

SURE = 1 - 1e-9
AT_ONCE = 256
"""Decisions that are added together: the sums are the same, for a fraction of the time."""


class Closed(NamedTuple):
    """Decisions whose windows have closed, in that order; those that earned something.

    Attributes
    ----------
    seqs : list of int
        Their places in the log.
    times : list of int
        When they were made, in microseconds since 1970.
    rewards : array of float64
        In [0, 1].
    answered : array of bool
        Whether a reward came, and not the default.
    control, bucket : list of int or None, or None
        As the log has them; None without a holdout.
    shown : array of int64
        Slots of the arms.
    offered : array of int64
        How many arms were on offer.
    propensities, policy : array of float64
        With what probability each was shown, and would have been by the policy alone; NaN where it
        is not known.
    metrics : dict of str to array of float64
    """

    seqs: Sequence[int]
    times: Sequence[int]
    rewards: Floats
    answered: Booleans
    control: Sequence[int | None] | None
    bucket: Sequence[int | None] | None
    shown: Ints
    offered: Ints
    propensities: Floats
    policy: Floats
    metrics: dict[str, Floats]

    @classmethod
    def joined(cls, parts: Sequence[Closed]) -> Closed:
        """Return the decisions of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        columns: list[Any]
        *columns, metrics = zip(*parts, strict=True)
        amounts = {name: np.concatenate([amounts_of[name] for amounts_of in metrics]) for name in metrics[0]}
        return cls._make([*map(_joined, columns), amounts])


def _joined(parts: Sequence[Any]) -> Any:
    """Return the arrays, or the sequences, of all parts as one; None where there are none."""
    if parts[0] is None:
        return None
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return list(chain.from_iterable(parts))


class LiftSums(Chapter):
    """The chapter that goes on, and those that have ended.

    Parameters
    ----------
    arms : int
        How many arms have slots of their own.
    metrics : mapping of str to MetricConfig
        What is watched beside the reward.

    Attributes
    ----------
    past : list of Chapter
        In order.
    scored : int
        The first row whose decision could show the arms of now.
    scores : ScoreSums
        Since then, as the next two.
    frequencies : FrequencySums
    partial : int
        Decisions of known propensity that could not show every arm.
    left_out : int
        Of sums over shards: how many of these have begun with other terms, and are left out.
    """

    def __init__(self, arms: int, metrics: Mapping[str, MetricConfig]) -> None:
        self.reach(arms, arms)
        self._configs = self._given = metrics
        self.past: list[Chapter] = []
        # Amounts that came for decisions whose windows are open, by their places in the log.
        self._amounts: dict[int, dict[str, float]] = {}
        # What is not in the sums yet.
        self._shown: list[tuple[Ints, Floats, Sequence[Ints]]] = []
        self._closed: list[Closed] = []
        self._waiting = 0
        self.left_out = 0
        self._open(Chapter())

    def _open(self, chapter: Chapter) -> None:
        """Go on with a chapter."""
        vars(self).update(vars(chapter))
        # A chapter has the metrics of its time, whatever is configured by now.
        logged = metric_configs_in(self.terms)
        self._configs = self._given if logged is None else logged
        known, none = self.metrics, HoldoutSums.empty
        self.metrics = {name: known.get(name) or none(clustered=self.clustered) for name in self._configs}
        self._score(self.seq)

    def _score(self, seq: int) -> None:
        """Compare arms from a row on."""
        self.scored = seq
        self.scores, self.partial = ScoreSums.empty(self._arms), 0
        self.frequencies = FrequencySums.empty(self._arms)

    def reach(self, arms: int, offered: int) -> None:
        """Have slots for so many arms, of which so many are on offer."""
        self._arms, self._offered = arms, offered

    def arms_changed(self, arms: int, offered: int, seq: int, time: int, *, control: bool) -> None:
        """Go on with other arms from the row ``seq`` on.

        Where that changes what the ``control`` shows, a chapter ends.
        """
        self.settle()
        self.uniform = self.over_uniform
        self.reach(arms, offered)
        self._score(seq)
        if control:
            self.begin(None, seq, time)
        else:
            self.begin_part(ARMS, seq, time)

    def begin(self, terms: str | None, seq: int, time: int, *, clustered: bool | None = None) -> None:
        """Begin a chapter with the row ``seq``; None leaves the terms as they are."""
        self.settle()
        self.uniform = self.over_uniform
        if self.time:
            self.past.append(self.ended(time))
        of_terms = self.terms if terms is None else terms
        stays = self.clustered if clustered is None else clustered
        self._open(Chapter(of_terms, seq, time, clustered=stays))

    @property
    def over_uniform(self) -> Scores:
        """The comparison of the policy with arms drawn uniformly, in all of the chapter."""
        return added(self.uniform, self.scores.over_uniform())

    def made(self, control: Sequence[int | None], time: int) -> None:
        """Count decisions as they are made."""
        self.time = self.time or time
        unheld = control.count(None)
        if unheld < len(control):
            held = control.count(1)
            self.decided += held, len(control) - held - unheld

    def note(self, seqs: Sequence[int], contents: Sequence[str | None], outcomes: Sequence[str]) -> None:
        """Note metrics that came with feedback, where its decision's window was open."""
        if not self._configs:
            return
        for seq, content, outcome in zip(seqs, contents, outcomes, strict=True):
            if content is not None and outcome not in (LATE, CORRECTED, INACTIVE):
                amounts = self._amounts.setdefault(seq, {})
                for name, amount in msgspec.json.decode(content).items():
                    amounts[name] = amounts.get(name, 0.0) + amount

    def amounts_of(self, seqs: Sequence[int]) -> dict[str, Floats]:
        """Return what came of each metric for decisions whose windows close, and forget it."""
        if not self._configs:
            return {}
        came = [self._amounts.pop(seq, {}) for seq in seqs]
        return {
            name: np.array([config.above_low(amounts.get(name, 0.0)) for amounts in came])
            for name, config in self._configs.items()
        }

    def shown(self, shown: Ints, propensities: Floats, offers: Sequence[Ints]) -> None:
        """Count which arms decisions showed, whatever they earned; see :meth:`settle`."""
        self._shown.append((shown, propensities, offers))
        self._wait_for(len(shown))

    def add(self, closed: Closed) -> None:
        """Add decisions; see :meth:`settle`."""
        self._closed.append(closed)
        self._wait_for(len(closed.rewards))

    def _wait_for(self, decisions: int) -> None:
        self._waiting += decisions
        if self._waiting >= AT_ONCE:
            self.settle()

    def settle(self) -> None:
        """Put into the sums what waits; those who read them ask for this first."""
        if self._shown:
            shown, propensities, offers = zip(*self._shown, strict=True)
            each = list(chain.from_iterable(offers))
            self._add_shown(np.concatenate(shown), np.concatenate(propensities), each)
        if self._closed:
            self._add(Closed.joined(self._closed))
        self._shown, self._closed, self._waiting = [], [], 0

    def _add_shown(self, shown: Ints, propensities: Floats, offers: Sequence[Ints]) -> None:
        # What is sure says nothing; arms that come with each request have no slot of their own.
        known = np.flatnonzero((propensities > 0) & (propensities < SURE))
        if self._arms > 1 and len(known):
            offered = [offers[i] for i in known.tolist()]
            self.frequencies.add(shown[known], propensities[known], offered)

    def _add(self, closed: Closed) -> None:
        self._add_scores(closed)
        if closed.control is None:
            return
        held = np.array([-1 if value is None else value for value in closed.control], np.int64)
        among = held >= 0
        if not among.any():
            return
        groups = 1 - held[among]
        buckets = None
        if self.clustered and closed.bucket is not None:
            places = [0 if value is None else value for value in closed.bucket]
            buckets = np.array(places, np.int64)[among]
        seqs, times = np.array(closed.seqs)[among], np.array(closed.times)[among]
        self.count(Closings(seqs, times, groups, closed.rewards[among], buckets))
        for name, sums in self.metrics.items():
            sums.add(groups, closed.metrics[name][among], buckets)
        np.add.at(self.answered, groups[closed.answered[among]], 1.0)

    def _add_scores(self, closed: Closed) -> None:
        known = ~np.isnan(closed.propensities) & (closed.propensities > 0)
        # Those that were open when the arms changed could not show the arms of now.
        known &= np.array(closed.seqs) >= self.scored
        if not known.any():
            return
        if not known.all():
            columns = closed.rewards, closed.shown, closed.offered
            rewards, shown, offered = (column[known] for column in columns)
            propensities, policy = closed.propensities[known], closed.policy[known]
        else:
            rewards, shown, offered = closed.rewards, closed.shown, closed.offered
            propensities, policy = closed.propensities, closed.policy
        self.partial += int((offered < self._offered).sum())
        self.scores.add(shown, rewards, propensities, policy, offered)

    @property
    def covers_uniform(self) -> bool:
        """Whether the log shows what arms drawn uniformly would, as far as it can tell."""
        tells = not self.partial and holdout_in(self.terms) is None
        return not tells or self.scores.covers_uniform

    @property
    def over(self) -> tuple[str, int, int]:
        """The terms, and how many arms there are and are on offer; with the same they merge."""
        return self.terms, self._arms, self._offered

    @classmethod
    def merged(cls, shards: Sequence[LiftSums]) -> LiftSums:
        """Return the sums over the decisions of all shards, the first of which says the terms."""
        for shard in shards:
            shard.settle()
        first = shards[0]
        both = cls(first._arms, first._given)
        both.reach(first._arms, first._offered)
        present, *past = together([[*shard.past, shard] for shard in shards])
        both._open(present)
        both.past = past[::-1]
        alike = [shard for shard in shards if shard.over == first.over]
        for shard in alike:
            both.scores, both.partial = both.scores.merged(shard.scores), both.partial + shard.partial
            both.frequencies = both.frequencies.merged(shard.frequencies)
        if holdout_in(first.terms) is not None:
            alike = [shard for shard in shards if shard.terms == first.terms]
        both.left_out = len(shards) - len(alike)
        return both

    def still(self) -> LiftSums:
        """Return a copy, for another thread to read while this one goes on."""
        seen = self.merged([self])
        seen.left_out = self.left_out
        return seen

    def saved(self) -> dict[str, Any]:
        """Return the sums as JSON data."""
        self.settle()
        return super().saved() | {
            "past": [chapter.saved() for chapter in self.past],
            "scored": self.scored,
            "scores": self.scores.as_dict(),
            "partial": self.partial,
            "frequencies": [array.tolist() for array in self.frequencies],
            "amounts": sorted(self._amounts.items()),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Take over what :meth:`saved` gave, or its like of an earlier version."""
        self._open(Chapter.restored(saved))
        self.past = list(map(Chapter.restored, saved.get("past", ())))
        self.scored = saved.get("scored", self.seq)
        self.scores, self.partial = ScoreSums.from_dict(saved["scores"]), saved["partial"]
        if "frequencies" in saved:
            self.frequencies = FrequencySums(*map(np.array, saved["frequencies"]))
        self._amounts = dict(saved["amounts"])
