"""What learning earned more than a control: the sums behind a placement's lift, a fold over its log."""

# 1. ``Closed``: decisions whose windows closed, gathered until somebody looks or enough have come.
# 2. ``LiftSums``: the present chapter and those before; each change of terms ends one.
# 3. ``Earnings``: what windows that close add to them, and with what probability it was shown.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.proof import FrequencySums, HoldoutSums, Scores, ScoreSums
from tacit.service.config.holdout import MOST_AMOUNT, MetricConfig
from tacit.service.log.blocks import Block
from tacit.service.log.rows import ARMS, CONTROL, FIXED, DecisionRow, FeedbackRow
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects import chapters
from tacit.service.placements.aspects.aspect import Aspect, Saved
from tacit.service.placements.attribution import CORRECTED, INACTIVE, LATE, Ended

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement


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


class LiftSums(chapters.Chapter):
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
    of_earlier : bool
        Whether the first 0.3 or a version before began them, which left out what was open when arms changed.
    left_out : int
        Of sums over shards: how many of these have begun with other terms, and are left out.
    """

    def __init__(self, arms: int, metrics: Mapping[str, MetricConfig]) -> None:
        self.reach(arms, arms)
        self._configs = self._given = metrics
        self.past: list[chapters.Chapter] = []
        # Amounts that came for decisions whose windows are open, by their places in the log.
        self._amounts: dict[int, dict[str, float]] = {}
        # What is not in the sums yet.
        self._shown: list[tuple[Ints, Floats, Sequence[Ints]]] = []
        self._closed: list[Closed] = []
        self._waiting = 0
        self.left_out = 0
        self.of_earlier = False
        self._open(chapters.Chapter())

    def _open(self, chapter: chapters.Chapter) -> None:
        """Go on with a chapter."""
        vars(self).update(vars(chapter))
        # A chapter has the metrics of its time, whatever is configured by now.
        logged = chapters.metric_configs_in(self.terms)
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
        self._open(chapters.Chapter(of_terms, seq, time, clustered=stays))

    @property
    def over_uniform(self) -> Scores:
        """The comparison of the policy with arms drawn uniformly, in all of the chapter."""
        return chapters.added(self.uniform, self.scores.over_uniform())

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
            name: np.minimum([config.above_low(amounts.get(name, 0.0)) for amounts in came], MOST_AMOUNT)
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
        self.count(chapters.Closings(seqs, times, groups, closed.rewards[among], buckets))
        for name, sums in self.metrics.items():
            sums.add(groups, closed.metrics[name][among], buckets)
        np.add.at(self.answered, groups[closed.answered[among]], 1.0)

    def _add_scores(self, closed: Closed) -> None:
        known = ~np.isnan(closed.propensities) & (closed.propensities > 0)
        recent = np.array(closed.seqs) >= self.scored
        if (now := known & recent).any():
            self.partial += int((closed.offered[now] < self._offered).sum())
            _score(self.scores, closed, now)
        if (before := known & ~recent).any():
            # What was open when the arms changed could not show today's: it counts with what was before.
            sums = ScoreSums.empty(self._arms)
            sums.overall[:], sums.uniform[:] = self.uniform[:3], self.uniform[3:]
            _score(sums, closed, before)
            self.uniform = sums.over_uniform()

    @property
    def covers_uniform(self) -> bool:
        """Whether the log shows what arms drawn uniformly would, as far as it can tell."""
        return chapters.holdout_in(self.terms) is not None or self.over_uniform.covered

    def has_held_out(self, unit: str) -> bool:
        """Return whether there is or ever was a holdout by a unit."""
        holdouts = (chapters.holdout_in(chapter.terms) for chapter in (self, *self.past))
        return any(holdout is not None and holdout.unit == unit for holdout in holdouts)

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
        present, *past = chapters.together([[*shard.past, shard] for shard in shards])
        both._open(present)
        both.past = past[::-1]
        alike = [shard for shard in shards if shard.over == first.over]
        for shard in alike:
            both.scores, both.partial = both.scores.merged(shard.scores), both.partial + shard.partial
            both.frequencies = both.frequencies.merged(shard.frequencies)
        if chapters.holdout_in(first.terms) is not None:
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
            "of_earlier": self.of_earlier,
            "scores": self.scores.as_dict(),
            "partial": self.partial,
            "frequencies": [array.tolist() for array in self.frequencies],
            "amounts": sorted(self._amounts.items()),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Take over what :meth:`saved` gave, or its like of the first 0.3."""
        self._open(chapters.Chapter.restored(saved))
        self.past = list(map(chapters.Chapter.restored, saved["past"]))
        self.scored = saved["scored"]
        self.scores, self.partial = ScoreSums.from_dict(saved["scores"]), saved["partial"]
        before = len(saved["scores"]["uniform"]) < 4
        self.of_earlier = before or saved["of_earlier"]
        if before and not self.partial and chapters.holdout_in(self.terms) is None:
            # The first 0.3 did not sum coef, but what it follows from where each arm was there.
            self.scores.uniform[3] = self.scores.overall[0] - self.scores.arms[4].sum() / max(
                1, self._offered
            )
        self.frequencies = FrequencySums(*map(np.array, saved["frequencies"]))
        self._amounts = dict(saved["amounts"])


class Earnings(Aspect):
    """The sums behind the lift.

    Parameters
    ----------
    arms : int
        How many have slots of their own.
    metrics : mapping of str to MetricConfig
        What is watched beside the reward.

    Attributes
    ----------
    sums : LiftSums
    """

    def __init__(self, arms: int, metrics: Mapping[str, MetricConfig]) -> None:
        self.sums = LiftSums(max(arms, 1), metrics)

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return its field of a snapshot."""
        return {"lift": self.sums.saved()}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Take over its field of a snapshot."""
        self.sums.reach(len(placement.living.slots), len(placement.learner.arms))
        self.sums.restore(saved.lift)

    def part(self, placement: Placement) -> LiftSums:
        """Return the sums of a shard, with all that has closed in them."""
        return deepcopy(placement.lift)

    def show(self, placement: Placement, parts: Sequence[LiftSums]) -> None:
        """Show the sums of all shards together."""
        self.sums = LiftSums.merged(parts)

    def still(self) -> Earnings:
        """Return a copy, for another thread to read while this one goes on."""
        self.sums.settle()
        seen = super().still()
        seen.sums = self.sums.still()
        return seen

    def made(self, rows: Block[DecisionRow]) -> None:
        """Count decisions as they are made."""
        modes, control = rows.column("mode"), rows.column("control")
        if CONTROL in modes:
            # The coin was not asked.
            control = [None if mode == CONTROL else held for mode, held in zip(modes, control, strict=True)]
        self.sums.made(control, rows.column("time")[0])

    def noted(self, feedback: Block[FeedbackRow], outcomes: Sequence[str]) -> None:
        """Note the metrics that came with feedback."""
        if any(contents := feedback.column("metrics")):
            self.sums.note(feedback.column("decision"), contents, outcomes)

    def closed(self, placement: Placement, ended: Ended) -> None:
        """Add decisions whose windows have closed."""
        if not len(ended.entries) or (not placement.kind.showing.single and placement.control.coin is None):
            return
        if self._no_chance(placement, ended.entries):
            return
        windows, sums = placement.windows, self.sums
        seqs = np.array(windows.seqs(ended.entries))
        metrics = sums.amounts_of(seqs.tolist())
        counts = seqs >= sums.seq
        # The policy did not choose what these modes show.
        counts &= [mode not in FIXED for mode in windows.values(ended.entries, "mode")]
        self._count_shown(placement, ended.entries[counts & (seqs >= sums.scored)])
        counts &= ended.rewards == ended.rewards
        entries = ended.entries[counts]
        if not len(entries):
            return
        shown = placement.open.actions(entries)[:, 0] if placement.living.slots else np.zeros_like(entries)
        control, bucket = (windows.values(entries, name) for name in ("control", "bucket"))
        logged, policy = _chances(placement, entries, control)
        closed = Closed(
            seqs[counts].tolist(),
            windows.values(entries, "time"),
            np.array(_rewards(placement, entries, ended.rewards[counts])),
            ended.answered[counts],
            control,
            bucket,
            shown,
            np.array(placement.sizes(entries)),
            logged,
            policy,
            {name: amounts[counts] for name, amounts in metrics.items()},
        )
        sums.add(closed)
        if placement.guardrail is not None:
            placement.guardrail.closed(placement, entries, closed)

    @staticmethod
    def _no_chance(placement: Placement, entries: Ints) -> bool:
        """Whether decisions add to no sum: nothing about them was drawn."""
        if placement.control.coin is not None or placement.config.metrics:
            return False
        if np.isfinite(placement.open.propensities(entries)).any():
            return False
        return set(placement.windows.values(entries, "control")) == {None}

    def _count_shown(self, placement: Placement, entries: Ints) -> None:
        if len(entries) and placement.living.slots and placement.kind.showing.single:
            shown, offers = placement.open.actions(entries)[:, 0], placement.open.offers(entries)
            control = placement.windows.values(entries, "control")
            self.sums.shown(shown, _after_coin(placement, entries, control), offers)


def _score(sums: ScoreSums, closed: Closed, wanted: Booleans) -> None:
    columns = closed.shown, closed.rewards, closed.propensities, closed.policy, closed.offered
    sums.add(*(column[wanted] for column in columns))


def _rewards(placement: Placement, entries: Ints, earned: Floats) -> list[float]:
    """Return what decisions have earned, in [0, 1]; a list 1 if there was a click in it."""
    if placement.kind.showing.single:
        return placement.scaled(earned.tolist())
    return list(map(float, placement.windows.clicked(entries)))


# ---- With what probability decisions were shown: by policy and control together, and by each alone


def _logged(placement: Placement, entries: Ints) -> Floats:
    """Return the propensities of decisions as the log has them; NaN where not known."""
    if placement.two:
        # NumPy takes None for NaN.
        logged = np.array(placement.windows.values(entries, "propensity"), np.float64)
    else:
        logged = placement.open.propensities(entries)
    # What rounding leaves above 1 is no more than that, and earlier versions logged it.
    return np.minimum(logged, 1.0)


def _chances(placement: Placement, entries: Ints, control: list[int | None]) -> tuple[Floats, Floats]:
    """Return with what probability decisions were shown, and would be by the policy alone.

    Where units stay in their group, the first is that of their group: once a unit is known, its
    coin is no chance any more.
    """
    logged, coin = _logged(placement, entries), placement.control.coin
    if coin is None:
        return logged, logged
    if not placement.kind.showing.single:
        # What another list would have earned, propensities of whole lists hardly tell.
        return np.full_like(logged, np.nan), np.full_like(logged, np.nan)
    if placement.two:
        own = placement.open.propensities(entries)
        policy = np.where(_held(control), coin.unmixed(logged, own), own)
    else:
        policy = coin.unmixed(logged, placement.control_chances(entries))
    sticky = placement.earnings.sums.clustered
    return _after_coin(placement, entries, control) if sticky else logged, policy


def _after_coin(placement: Placement, entries: Ints, control: list[int | None]) -> Floats:
    """Return with what probability decisions were shown by the one that the coin chose."""
    logged, coin = _logged(placement, entries), placement.control.coin
    if coin is None:
        return logged
    if placement.two:
        return placement.open.propensities(entries)
    of_control = placement.control_chances(entries)
    return np.where(_held(control), of_control, coin.unmixed(logged, of_control))


def _held(control: list[int | None]) -> Any:
    return np.array([each == 1 for each in control])
