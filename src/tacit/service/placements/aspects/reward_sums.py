"""Reward sums of control and policy behind a placement's lift, as a fold over its log."""

# 1. ``ClosedDecisions``: decisions whose windows closed, gathered until a read or a full block.
# 2. ``LiftSums``: the current period and the past ones; each change of terms ends a period.
# 3. ``RewardSums``: adds decisions whose windows close, with their propensities.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.service.config.holdout import MOST_AMOUNT, MetricConfig
from tacit.service.log.blocks import Block
from tacit.service.log.rows import ARMS, CONTROL, FIXED, DecisionRow, FeedbackRow
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects import lift_periods
from tacit.service.placements.aspects.aspect import Aspect, Saved
from tacit.service.placements.attribution import CORRECTED, INACTIVE, LATE, Ended
from tacit.uplift import FrequencySums, HoldoutSums, Scores, ScoreSums

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement


SURE = 1 - 1e-9
AT_ONCE = 256
"""Decisions that are added at once: the sums are the same, in a fraction of the time."""


class Closed(NamedTuple):
    """Decisions with a reward whose windows have closed, in that order.

    Attributes
    ----------
    seqs : list of int
        Row numbers in the log.
    times : list of int
        Times of the decisions, in microseconds since 1970.
    rewards : array of float64
        In [0, 1].
    answered : array of bool
        Whether the reward is feedback, not the default.
    control, bucket : list of int or None, or None
        As in the log; None without a holdout.
    arm_indices : array of int64
        Shown arms.
    offered_counts : array of int64
        Numbers of arms on offer.
    propensities, policy_propensities : array of float64
        Probabilities of the shown arms, as logged and under the policy alone; NaN if unknown.
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
    """Concatenate one column of all parts; None if the column is absent."""
    if parts[0] is None:
        return None
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return list(chain.from_iterable(parts))


class LiftSums(lift_periods.Chapter):
    """The current period of a lift and the past periods.

    Parameters
    ----------
    arms : int
        Number of arms with an index.
    metrics : mapping of str to MetricConfig
        Metrics besides the reward.

    Attributes
    ----------
    past_periods : list of LiftPeriod
        In order.
    first_scored_seq : int
        First row whose decision could show the current arms.
    scores : ScoreSums
        Sums since then, like the next two.
    frequencies : FrequencySums
    partial : int
        Number of decisions with a propensity and a partial offer.
    has_old_sums : bool
        Whether the first 0.3 or an earlier version began the sums: without decisions open at changes of arms.
    excluded_shards : int
        Number of shards whose terms differ and that are left out of merged sums.
    """

    def __init__(self, arms: int, metrics: Mapping[str, MetricConfig]) -> None:
        self.reach(arms, arms)
        self._configs = self._given = metrics
        self.past: list[lift_periods.Chapter] = []
        # Metric amounts of open decisions by row number.
        self._amounts: dict[int, dict[str, float]] = {}
        # Decisions that are not in the sums yet.
        self._shown: list[tuple[Ints, Floats, Sequence[Ints]]] = []
        self._closed: list[Closed] = []
        self._waiting = 0
        self.left_out = 0
        self.of_earlier = False
        self._open(lift_periods.Chapter())

    def _open(self, chapter: lift_periods.Chapter) -> None:
        """Make a period the current one."""
        vars(self).update(vars(chapter))
        # A period keeps its metrics when the configuration changes.
        logged = lift_periods.metric_configs_in(self.terms)
        self._configs = self._given if logged is None else logged
        known, none = self.metrics, HoldoutSums.empty
        self.metrics = {name: known.get(name) or none(clustered=self.clustered) for name in self._configs}
        self._score(self.seq)

    def _score(self, seq: int) -> None:
        """Start a new comparison of arms at a row."""
        self.scored = seq
        self.scores, self.partial = ScoreSums.empty(self._arms), 0
        self.frequencies = FrequencySums.empty(self._arms)

    def reach(self, arms: int, offered: int) -> None:
        """Set the numbers of arms and of arms on offer."""
        self._arms, self._offered = arms, offered

    def arms_changed(self, arms: int, offered: int, seq: int, time: int, *, control: bool) -> None:
        """Change the arms from row ``seq`` on; end the period if the action of the control changes."""
        self.settle()
        self.uniform = self.over_uniform
        self.reach(arms, offered)
        self._score(seq)
        if control:
            self.begin(None, seq, time)
        else:
            self.begin_part(ARMS, seq, time)

    def begin(self, terms: str | None, seq: int, time: int, *, clustered: bool | None = None) -> None:
        """Begin a period with row ``seq``; None leaves the terms as they are."""
        self.settle()
        self.uniform = self.over_uniform
        if self.time:
            self.past.append(self.ended(time))
        of_terms = self.terms if terms is None else terms
        stays = self.clustered if clustered is None else clustered
        self._open(lift_periods.Chapter(of_terms, seq, time, clustered=stays))

    @property
    def over_uniform(self) -> Scores:
        """The comparison of the policy with uniformly drawn arms, over the whole period."""
        return lift_periods.added(self.uniform, self.scores.over_uniform())

    def made(self, control: Sequence[int | None], time: int) -> None:
        """Count new decisions of control and policy."""
        self.time = self.time or time
        unheld = control.count(None)
        if unheld < len(control):
            held = control.count(1)
            self.decided += held, len(control) - held - unheld

    def note(self, seqs: Sequence[int], contents: Sequence[str | None], outcomes: Sequence[str]) -> None:
        """Add metrics from feedback that came within the decision's window."""
        if not self._configs:
            return
        for seq, content, outcome in zip(seqs, contents, outcomes, strict=True):
            if content is not None and outcome not in (LATE, CORRECTED, INACTIVE):
                amounts = self._amounts.setdefault(seq, {})
                for name, amount in msgspec.json.decode(content).items():
                    amounts[name] = amounts.get(name, 0.0) + amount

    def amounts_of(self, seqs: Sequence[int]) -> dict[str, Floats]:
        """Remove and return the metric amounts of decisions whose windows close."""
        if not self._configs:
            return {}
        came = [self._amounts.pop(seq, {}) for seq in seqs]
        return {
            name: np.minimum([config.above_low(amounts.get(name, 0.0)) for amounts in came], MOST_AMOUNT)
            for name, config in self._configs.items()
        }

    def shown(self, shown: Ints, propensities: Floats, offers: Sequence[Ints]) -> None:
        """Count shown arms, whatever their rewards; see :meth:`settle`."""
        self._shown.append((shown, propensities, offers))
        self._wait_for(len(shown))

    def add(self, closed: Closed) -> None:
        """Add closed decisions; see :meth:`settle`."""
        self._closed.append(closed)
        self._wait_for(len(closed.rewards))

    def _wait_for(self, decisions: int) -> None:
        self._waiting += decisions
        if self._waiting >= AT_ONCE:
            self.settle()

    def settle(self) -> None:
        """Add pending decisions to the sums; readers of the sums call this first."""
        if self._shown:
            shown, propensities, offers = zip(*self._shown, strict=True)
            each = list(chain.from_iterable(offers))
            self._add_shown(np.concatenate(shown), np.concatenate(propensities), each)
        if self._closed:
            self._add(Closed.joined(self._closed))
        self._shown, self._closed, self._waiting = [], [], 0

    def _add_shown(self, shown: Ints, propensities: Floats, offers: Sequence[Ints]) -> None:
        # Certain actions carry no information; arms that come with a request have no index.
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
        self.count(lift_periods.Closings(seqs, times, groups, closed.rewards[among], buckets))
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
            # Decisions that were open at the change of arms count with the arms before it.
            sums = ScoreSums.empty(self._arms)
            sums.overall[:], sums.uniform[:] = self.uniform[:3], self.uniform[3:]
            _score(sums, closed, before)
            self.uniform = sums.over_uniform()

    @property
    def covers_uniform(self) -> bool:
        """True if the log supports an estimate for uniformly drawn arms."""
        return lift_periods.holdout_in(self.terms) is not None or self.over_uniform.covered

    def has_held_out(self, unit: str) -> bool:
        """Return whether the current or a past period has a holdout by a unit."""
        holdouts = (lift_periods.holdout_in(chapter.terms) for chapter in (self, *self.past))
        return any(holdout is not None and holdout.unit == unit for holdout in holdouts)

    @property
    def over(self) -> tuple[str, int, int]:
        """The terms and the numbers of arms; sums with equal keys can be merged."""
        return self.terms, self._arms, self._offered

    @classmethod
    def merged(cls, shards: Sequence[LiftSums]) -> LiftSums:
        """Return the sums over the decisions of all shards, with the terms of the first."""
        for shard in shards:
            shard.settle()
        first = shards[0]
        both = cls(first._arms, first._given)
        both.reach(first._arms, first._offered)
        present, *past = lift_periods.together([[*shard.past, shard] for shard in shards])
        both._open(present)
        both.past = past[::-1]
        alike = [shard for shard in shards if shard.over == first.over]
        for shard in alike:
            both.scores, both.partial = both.scores.merged(shard.scores), both.partial + shard.partial
            both.frequencies = both.frequencies.merged(shard.frequencies)
        if lift_periods.holdout_in(first.terms) is not None:
            alike = [shard for shard in shards if shard.terms == first.terms]
        both.left_out = len(shards) - len(alike)
        return both

    def still(self) -> LiftSums:
        """Return a copy for reader threads."""
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
        """Restore the sums that :meth:`save_state` wrote, in this version or the first 0.3."""
        self._open(lift_periods.Chapter.restored(saved))
        self.past = list(map(lift_periods.Chapter.restored, saved["past"]))
        self.scored = saved["scored"]
        self.scores, self.partial = ScoreSums.from_dict(saved["scores"]), saved["partial"]
        before = len(saved["scores"]["uniform"]) < 4
        self.of_earlier = before or saved["of_earlier"]
        if before and not self.partial and lift_periods.holdout_in(self.terms) is None:
            # The first 0.3 did not sum coef, but sums from which it follows if no offer was partial.
            self.scores.uniform[3] = self.scores.overall[0] - self.scores.arms[4].sum() / max(
                1, self._offered
            )
        self.frequencies = FrequencySums(*map(np.array, saved["frequencies"]))
        self._amounts = dict(saved["amounts"])


class Earnings(Aspect):
    """The aspect that holds the sums behind the lift.

    Parameters
    ----------
    arm_count : int
        Number of arms with an index.
    metrics : mapping of str to MetricConfig
        Metrics besides the reward.

    Attributes
    ----------
    sums : LiftSums
    """

    def __init__(self, arms: int, metrics: Mapping[str, MetricConfig]) -> None:
        self.sums = LiftSums(max(arms, 1), metrics)

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return the aspect's field of a snapshot."""
        return {"lift": self.sums.saved()}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Restore the sums from a snapshot."""
        self.sums.reach(len(placement.living.slots), len(placement.learner.arms))
        self.sums.restore(saved.lift)

    def part(self, placement: Placement) -> LiftSums:
        """Return the sums of a shard, with all closed decisions."""
        return deepcopy(placement.lift)

    def show(self, placement: Placement, parts: Sequence[LiftSums]) -> None:
        """Merge the sums of all shards."""
        self.sums = LiftSums.merged(parts)

    def still(self) -> Earnings:
        """Return a copy for reader threads."""
        self.sums.settle()
        seen = super().still()
        seen.sums = self.sums.still()
        return seen

    def made(self, rows: Block[DecisionRow]) -> None:
        """Count new decisions of control and policy."""
        modes, control = rows.column("mode"), rows.column("control")
        if CONTROL in modes:
            # In this mode nothing is assigned at random.
            control = [None if mode == CONTROL else held for mode, held in zip(modes, control, strict=True)]
        self.sums.made(control, rows.column("time")[0])

    def noted(self, feedback: Block[FeedbackRow], outcomes: Sequence[str]) -> None:
        """Add the metrics of feedback."""
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
        # In these modes the policy does not choose the arm.
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
        """True if decisions add to no sum because none of them is random."""
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
    """Scale rewards to [0, 1]; the reward of a list is 1 if it has a click."""
    if placement.kind.showing.single:
        return placement.scaled(earned.tolist())
    return list(map(float, placement.windows.clicked(entries)))


# ---- Propensities of decisions: by policy and control together, and by each alone


def _logged(placement: Placement, entries: Ints) -> Floats:
    """Return the logged propensities of decisions; NaN if unknown."""
    if placement.two:
        # NumPy takes None for NaN.
        logged = np.array(placement.windows.values(entries, "propensity"), np.float64)
    else:
        logged = placement.open.propensities(entries)
    # Earlier versions logged values that rounding had left above 1.
    return np.minimum(logged, 1.0)


def _chances(placement: Placement, entries: Ints, control: list[int | None]) -> tuple[Floats, Floats]:
    """Return the propensities of decisions as logged, and under the policy alone.

    If units stay in their group, the first are conditional on the group: a known unit's group is not random.
    """
    logged, coin = _logged(placement, entries), placement.control.coin
    if coin is None:
        return logged, logged
    if not placement.kind.showing.single:
        # Propensities of whole lists are too small to estimate the rewards of other lists.
        return np.full_like(logged, np.nan), np.full_like(logged, np.nan)
    if placement.two:
        own = placement.open.propensities(entries)
        policy = np.where(_held(control), coin.unmixed(logged, own), own)
    else:
        policy = coin.unmixed(logged, placement.control_chances(entries))
    sticky = placement.earnings.sums.clustered
    return _after_coin(placement, entries, control) if sticky else logged, policy


def _after_coin(placement: Placement, entries: Ints, control: list[int | None]) -> Floats:
    """Return the propensities of decisions within their assigned group."""
    logged, coin = _logged(placement, entries), placement.control.coin
    if coin is None:
        return logged
    if placement.two:
        return placement.open.propensities(entries)
    of_control = placement.control_chances(entries)
    return np.where(_held(control), of_control, coin.unmixed(logged, of_control))


def _held(control: list[int | None]) -> Any:
    return np.array([each == 1 for each in control])
