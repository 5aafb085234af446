"""Reward sums of control and policy behind a placement's lift, as a fold over its log."""

# 1. ``ClosedDecisions``: decisions whose windows closed, gathered until a read or a full block.
# 2. ``LiftSums``: the current period and the past ones; each change of terms ends a period.
# 3. ``RewardSums``: adds decisions whose windows close, with their propensities.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.service.config.holdout import DECISION, MAX_AMOUNT, MetricConfig
from tacit.service.config.lift_terms import parse_holdout, parse_metric_configs
from tacit.service.deciders.arm_lifecycle import ArmLifecycle
from tacit.service.deciders.aspect import SavedState
from tacit.service.log import rows as log_rows
from tacit.service.log.blocks import Block
from tacit.service.log.change_events import read_policy_version
from tacit.service.log.store import Snapshot
from tacit.service.projections import lift_periods
from tacit.service.projections.attribution import CORRECTED, INACTIVE, LATE
from tacit.service.projections.closed_batch import ClosedBatch
from tacit.service.projections.projection import Projection
from tacit.uplift import FrequencySums, HoldoutSums, Scores, ScoreSums

SURE = 1 - 1e-9
BLOCK_SIZE = 256
"""Decisions that are added at once: the sums are the same, in a fraction of the time."""
SUBPERIODS: dict[str, Callable[[log_rows.ChangeRow], str]] = {
    log_rows.MODE: lambda change: f"mode {change.value}",
    log_rows.FEEDBACK_RULE: lambda change: f"feedback rule {change.value}",
    log_rows.POLICY: lambda change: read_policy_version(change).what,
}
"""Names of the subperiods that change events begin, by their kind."""


class ClosedDecisions(NamedTuple):
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
    in_control, buckets : list of int or None, or None
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
    in_control: Sequence[int | None] | None
    buckets: Sequence[int | None] | None
    arm_indices: Ints
    offered_counts: Ints
    propensities: Floats
    policy_propensities: Floats
    metrics: dict[str, Floats]

    @classmethod
    def concatenate(cls, parts: Sequence[ClosedDecisions]) -> ClosedDecisions:
        """Return the decisions of all parts as one object, in order."""
        if len(parts) == 1:
            return parts[0]
        columns: list[Any]
        *columns, metrics = zip(*parts, strict=True)
        amounts = {name: np.concatenate([part[name] for part in metrics]) for name in metrics[0]}
        return cls._make([*map(_concatenate, columns), amounts])


def _concatenate(parts: Sequence[Any]) -> Any:
    """Concatenate one column of all parts; None if the column is absent."""
    if parts[0] is None:
        return None
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return list(chain.from_iterable(parts))


class LiftSums(lift_periods.LiftPeriod):
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
    has_metrics : bool
        Whether metrics besides the reward are configured.
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
        """Begin with empty sums and an empty period without a holdout."""
        self.set_arm_counts(arms, arms)
        self._configs = self._initial_metrics = metrics
        self.has_metrics = bool(metrics)
        self.past_periods: list[lift_periods.LiftPeriod] = []
        # Metric amounts of open decisions by row number.
        self._amounts: dict[int, dict[str, float]] = {}
        # Decisions that are not in the sums yet.
        self._queued_shown: list[tuple[Ints, Floats, Sequence[Ints]]] = []
        self._queued_decisions: list[ClosedDecisions] = []
        self._queued_count = 0
        self.excluded_shards = 0
        self.has_old_sums = False
        self._set_current(lift_periods.LiftPeriod())

    def _set_current(self, period: lift_periods.LiftPeriod) -> None:
        """Make a period the current one, with all its fields; comparisons of arms begin with empty sums.

        The metrics are those of the period's terms, or the configured ones if the terms name none.
        """
        vars(self).update(vars(period))
        # A period keeps its metrics when the configuration changes.
        logged = parse_metric_configs(self.terms)
        self._configs = self._initial_metrics if logged is None else logged
        metrics, none = self.metrics, HoldoutSums.empty
        self.metrics = {name: metrics.get(name) or none(clustered=self.clustered) for name in self._configs}
        self._reset_scores(self.seq)

    def _reset_scores(self, seq: int) -> None:
        """Clear the comparison of arms; decisions count from row ``seq`` of the log on."""
        self.first_scored_seq = seq
        self.scores, self.partial = ScoreSums.empty(self._arms), 0
        self.frequencies = FrequencySums.empty(self._arms)

    def set_arm_counts(self, arms: int, offered: int) -> None:
        """Set the number of arms that have an index, and of arms on offer.

        Each is at least 1: arms that come with requests count as arm 0.
        """
        self._arms, self._offered = max(arms, 1), max(offered, 1)

    def change_arms(self, arms: int, offered: int, seq: int, time: int, *, control: bool) -> None:
        """Begin to compare a new number of arms, with empty sums, from row ``seq`` of the log on.

        Queued decisions are added before. If the control's action changes (``control``), the period ends;
        otherwise a subperiod begins.
        """
        self.settle()
        self.uniform_scores = self.total_uniform_scores
        self.set_arm_counts(arms, offered)
        self._reset_scores(seq)
        if control:
            self.begin(terms=None, seq=seq, time=time)
        else:
            self.begin_subperiod(log_rows.ARMS, seq, time)

    def begin(self, terms: str | None, seq: int, time: int, *, clustered: bool | None = None) -> None:
        """End the current period and begin a new one at row ``seq``.

        The ended period is added to ``past_periods`` if it has a decision. ``terms`` and ``clustered`` stay
        as they are if None.
        """
        self.settle()
        self.uniform_scores = self.total_uniform_scores
        if self.time:
            self.past_periods.append(self.as_ended(time))
        new_terms = self.terms if terms is None else terms
        new_clustered = self.clustered if clustered is None else clustered
        self._set_current(lift_periods.LiftPeriod(new_terms, seq, time, clustered=new_clustered))

    @property
    def total_uniform_scores(self) -> Scores:
        """The comparison of the policy with uniformly drawn arms, over the whole period."""
        return lift_periods.add_scores(self.uniform_scores, self.scores.compare_with_uniform())

    def count_decisions(self, control: Sequence[int | None], time: int) -> None:
        """Count new decisions of control and policy, and set the time of the period's first decision.

        Parameters
        ----------
        control : sequence of int or None
            1 for the control, 0 for the policy, None without an assignment.
        time : int
            Time of the first of them.
        """
        self.time = self.time or time
        unassigned_count = control.count(None)
        if unassigned_count < len(control):
            control_count = control.count(1)
            self.decided_counts += control_count, len(control) - control_count - unassigned_count

    def add_metrics(
        self, seqs: Sequence[int], contents: Sequence[str | None], outcomes: Sequence[str]
    ) -> None:
        """Add metric amounts of feedback to their open decisions; late or inactive feedback is ignored.

        Parameters
        ----------
        seqs : sequence of int
            Row numbers of the decisions.
        contents : sequence of str or None
            Metrics of each feedback as JSON: amounts by name.
        outcomes : sequence of str
            Outcome of each feedback.
        """
        if not self._configs:
            return
        for seq, content, outcome in zip(seqs, contents, outcomes, strict=True):
            if content is not None and outcome not in (LATE, CORRECTED, INACTIVE):
                amounts = self._amounts.setdefault(seq, {})
                for name, amount in msgspec.json.decode(content).items():
                    amounts[name] = amounts.get(name, 0.0) + amount

    def pop_amounts(self, seqs: Sequence[int]) -> dict[str, Floats]:
        """Remove the metric amounts of decisions that close, by row of the log; return them by metric.

        Each amount is the difference to the metric's least one, clipped to its range; {} without metrics.
        """
        if not self._configs:
            return {}
        amounts_by_row = [self._amounts.pop(seq, {}) for seq in seqs]
        clipped = {}
        for name, config in self._configs.items():
            amounts = [config.subtract_low(row_amounts.get(name, 0.0)) for row_amounts in amounts_by_row]
            clipped[name] = np.minimum(amounts, MAX_AMOUNT)
        return clipped

    def count_shown(self, indices: Ints, propensities: Floats, offers: Sequence[Ints]) -> None:
        """Queue shown arms for the frequencies, whatever their rewards; :meth:`settle` adds them."""
        self._queued_shown.append((indices, propensities, offers))
        self._add_pending(len(indices))

    def add(self, closed: ClosedDecisions) -> None:
        """Queue closed decisions for the sums; :meth:`settle` adds them."""
        self._queued_decisions.append(closed)
        self._add_pending(len(closed.rewards))

    def _add_pending(self, decisions: int) -> None:
        """Count ``decisions`` queued ones; once there are ``BLOCK_SIZE``, move them into the sums."""
        self._queued_count += decisions
        if self._queued_count >= BLOCK_SIZE:
            self.settle()

    def settle(self) -> None:
        """Move the queued decisions into the sums; call it before the sums are read."""
        if self._queued_shown:
            indices, propensities, offers = zip(*self._queued_shown, strict=True)
            offer_lists = list(chain.from_iterable(offers))
            self._add_shown(np.concatenate(indices), np.concatenate(propensities), offer_lists)
        if self._queued_decisions:
            self._add(ClosedDecisions.concatenate(self._queued_decisions))
        self._queued_shown, self._queued_decisions, self._queued_count = [], [], 0

    def _add_shown(self, indices: Ints, propensities: Floats, offers: Sequence[Ints]) -> None:
        """Add shown arms to the frequencies, except arms whose propensity is unknown, 0 or 1."""
        # Certain actions carry no information; arms that come with a request have no index.
        uncertain = np.flatnonzero((propensities > 0) & (propensities < SURE))
        if self._arms > 1 and len(uncertain):
            offered = [offers[i] for i in uncertain.tolist()]
            self.frequencies.add(indices[uncertain], propensities[uncertain], offered)

    def _add(self, closed: ClosedDecisions) -> None:
        """Add closed decisions to the comparison of arms; with a group also to its sums and metrics."""
        self._add_scores(closed)
        for name, amounts in closed.metrics.items():
            if (config := self._configs[name]).is_open:
                sizes = np.abs(amounts + config.low)
                tail = self.tails.get(name, lift_periods.NO_TAIL)
                self.tails[name] = lift_periods.extend_tail(tail, sizes, sizes)
        if closed.in_control is None:
            return
        control = np.array([-1 if value is None else value for value in closed.in_control], np.int64)
        assigned = control >= 0
        if not assigned.any():
            return
        groups = 1 - control[assigned]
        buckets = None
        if self.clustered and closed.buckets is not None:
            bucket_numbers = [0 if value is None else value for value in closed.buckets]
            buckets = np.array(bucket_numbers, np.int64)[assigned]
        seqs, times = np.array(closed.seqs)[assigned], np.array(closed.times)[assigned]
        self.count(lift_periods.ClosedRewards(seqs, times, groups, closed.rewards[assigned], buckets))
        for name, sums in self.metrics.items():
            sums.add(groups, closed.metrics[name][assigned], buckets)
        np.add.at(self.answered_counts, groups[closed.answered[assigned]], 1.0)

    def _add_scores(self, closed: ClosedDecisions) -> None:
        """Add closed decisions with known propensities to the comparison of the current arms.

        Decisions made before the last change of arms are added to ``uniform_scores`` instead.
        """
        has_propensity = ~np.isnan(closed.policy_propensities) & (closed.propensities > 0)
        recent = np.array(closed.seqs) >= self.first_scored_seq
        if (is_current := has_propensity & recent).any():
            self.partial += int((closed.offered_counts[is_current] < self._offered).sum())
            _add_to_scores(self.scores, closed, is_current)
        if (is_earlier := has_propensity & ~recent).any():
            # Decisions that were open at the change of arms count with the arms before it.
            sums = ScoreSums.empty(self._arms)
            # Of the seven scores, the first three are sums over all decisions.
            sums.overall[:], sums.uniform[:] = self.uniform_scores[:3], self.uniform_scores[3:]
            _add_to_scores(sums, closed, is_earlier)
            self.uniform_scores = sums.compare_with_uniform()

    @property
    def covers_uniform(self) -> bool:
        """True if there is a holdout, or propensities support an estimate for uniformly drawn arms."""
        return parse_holdout(self.terms) is not None or self.total_uniform_scores.is_covered

    def has_holdout_by_unit(self, unit: str) -> bool:
        """True if the current or a past period has a holdout with this unit of assignment."""
        holdouts = (parse_holdout(period.terms) for period in (self, *self.past_periods))
        return any(holdout is not None and holdout.unit == unit for holdout in holdouts)

    @property
    def merge_key(self) -> tuple[str, int, int]:
        """The terms and the numbers of arms; sums with equal keys can be merged."""
        return self.terms, self._arms, self._offered

    def from_part(self, arms: int, offered: int, saved: dict[str, Any]) -> LiftSums:
        """Return the sums of a shard, with its numbers of arms, that :meth:`save_state` returned there."""
        sums = LiftSums(arms, self._initial_metrics)
        sums.set_arm_counts(arms, offered)
        sums.restore(saved)
        return sums

    @classmethod
    def merge_shards(cls, shards: Sequence[LiftSums]) -> LiftSums:
        """Return new sums over the decisions of all shards, with the terms of the first one.

        Queued decisions of each shard are added to its sums before. Comparisons of arms are merged only for
        shards with equal terms and arms; ``excluded_shards`` counts shards with other terms, or, without a
        holdout, other arms.
        """
        for shard in shards:
            shard.settle()
        first = shards[0]
        result = cls(first._arms, first._initial_metrics)
        result.set_arm_counts(first._arms, first._offered)
        present, *past = lift_periods.merge_periods([[*shard.past_periods, shard] for shard in shards])
        result._set_current(present)
        result.past_periods = past[::-1]
        matching = [shard for shard in shards if shard.merge_key == first.merge_key]
        for shard in matching:
            result.scores, result.partial = result.scores.merge(shard.scores), result.partial + shard.partial
            result.frequencies = result.frequencies.merge(shard.frequencies)
        if parse_holdout(first.terms) is not None:
            matching = [shard for shard in shards if shard.terms == first.terms]
        result.excluded_shards = len(shards) - len(matching)
        return result

    def read_copy(self) -> LiftSums:
        """Add queued decisions to the sums, and return a copy for reader threads."""
        reader_copy = self.merge_shards([self])
        reader_copy.excluded_shards = self.excluded_shards
        return reader_copy

    def save_state(self) -> dict[str, Any]:
        """Add queued decisions to the sums, and return these as JSON data, for :meth:`restore`."""
        self.settle()
        return super().save_state() | {
            "past": [period.save_state() for period in self.past_periods],
            "scored": self.first_scored_seq,
            "of_earlier": self.has_old_sums,
            "scores": self.scores.as_dict(),
            "partial": self.partial,
            "frequencies": [array.tolist() for array in self.frequencies],
            "amounts": [(seq, dict(amounts)) for seq, amounts in sorted(self._amounts.items())],
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Set the sums from the output of :meth:`save_state`, of this version or the first 0.3."""
        self._set_current(lift_periods.LiftPeriod.from_state(saved))
        self.past_periods = list(map(lift_periods.LiftPeriod.from_state, saved["past"]))
        self.first_scored_seq = saved["scored"]
        self.scores, self.partial = ScoreSums.from_dict(saved["scores"]), saved["partial"]
        before = len(saved["scores"]["uniform"]) < 4
        self.has_old_sums = before or saved["of_earlier"]
        if before and not self.partial and parse_holdout(self.terms) is None:
            # The first 0.3 did not sum coef, but sums from which it follows if no offer was partial.
            self.scores.uniform[3] = self.scores.overall[0] - self.scores.arms[4].sum() / self._offered
        # Without any arm, as earlier versions saved them, they are empty.
        if saved["frequencies"][1]:
            self.frequencies = FrequencySums(*map(np.array, saved["frequencies"]))
        self._amounts = dict(saved["amounts"])


class RewardSums(Projection):
    """The aspect that holds the reward sums of control and policy.

    Parameters
    ----------
    metrics : mapping of str to MetricConfig
        Metrics besides the reward.
    lifecycle : ArmLifecycle

    Attributes
    ----------
    sums : LiftSums
    last_counted : (ClosedBatch, ClosedDecisions) or None
        The counted decisions of the last closed batch, as a batch and as columns; None if none counts.
    """

    last_counted: tuple[ClosedBatch, ClosedDecisions] | None = None

    def __init__(self, metrics: Mapping[str, MetricConfig], lifecycle: ArmLifecycle) -> None:
        """Begin with empty sums."""
        self._lifecycle = lifecycle
        self.sums = LiftSums(len(lifecycle.arm_indices), metrics)

    # Events ----------------------------------------------------------------------------------

    def add_change(self, change: log_rows.ChangeRow) -> None:
        """Begin a new period if the holdout changes, or a subperiod if mode, rule or policy change."""
        if change.kind == log_rows.HOLDOUT:
            holdout = parse_holdout(change.value)
            sticky = holdout is not None and holdout.unit != DECISION
            self.sums.begin(change.value, change.seq, change.time, clustered=sticky)
        elif change.kind in SUBPERIODS:
            self.sums.settle()
            self.sums.begin_subperiod(SUBPERIODS[change.kind](change), change.seq, change.time)

    def add_decisions(self, rows: Block[log_rows.DecisionRow]) -> None:
        """Count new decisions by group.

        Decisions in mode ``control``, where nothing is random, have no group.
        """
        modes, control = rows.column("mode"), rows.column("control")
        if log_rows.CONTROL in modes:
            # In this mode nothing is assigned at random.
            control = [
                None if mode == log_rows.CONTROL else group
                for mode, group in zip(modes, control, strict=True)
            ]
        # Without groups only the time of the period's first decision would be set.
        elif control.count(None) == len(control) and self.sums.time:
            return
        self.sums.count_decisions(control, rows.column("time")[0])

    def add_feedback(self, feedback: Block[log_rows.FeedbackRow], outcomes: Sequence[str]) -> None:
        """Add the metric amounts that feedback carries to its open decisions."""
        if any(contents := feedback.column("metrics")):
            self.sums.add_metrics(feedback.column("decision"), contents, outcomes)

    def add_closed(self, batch: ClosedBatch) -> None:
        """Queue closed decisions that count for the sums, and set ``last_counted`` to them."""
        self.last_counted = self._select_counted(batch)
        if self.last_counted is not None:
            self.sums.add(self.last_counted[1])

    def _select_counted(self, batch: ClosedBatch) -> tuple[ClosedBatch, ClosedDecisions] | None:
        """Return the closed decisions that count, also as columns, or None.

        Queue their arms for the frequencies.

        A decision counts if it has a reward, is of the current period, and its mode lets the policy choose.
        None if no decision counts. The metric amounts of all closed decisions are removed, unless nothing is
        random.
        """
        if not len(batch.entries) or batch.is_deterministic(has_metrics=self.sums.has_metrics):
            return None
        seqs = np.array(batch.seqs)
        metrics = self.sums.pop_amounts(seqs.tolist())
        counts = seqs >= self.sums.seq
        # In these modes the policy does not choose the arm.
        counts &= [mode not in log_rows.FIXED_MODES for mode in batch.get_column("mode")]
        draws = np.array([mode != log_rows.KEPT for mode in batch.get_column("mode")], np.bool_)
        self._count_shown(batch.select(counts & draws & (seqs >= self.sums.first_scored_seq)))
        counts &= batch.rewards == batch.rewards  # not NaN, as without a reward
        counted = batch.select(counts)
        if not len(counted.entries):
            return None
        closed = ClosedDecisions(
            seqs[counts].tolist(),
            counted.get_column("time"),
            counted.scaled_rewards,
            counted.is_answered,
            counted.get_column("control"),
            counted.get_column("bucket"),
            counted.arm_indices,
            np.array(counted.offered_counts),
            *self._compute_propensities(counted),
            {name: amounts[counts] for name, amounts in metrics.items()},
        )
        return counted, closed

    def _compute_propensities(self, batch: ClosedBatch) -> tuple[Floats, Floats]:
        """Return the propensities of decisions as logged and under the policy alone, for weights.

        They are NaN for a decision that repeats the arm kept for a user: the first decision of that draw has
        the weight.
        """
        logged, policy = batch.compute_propensities(sticky=self.sums.clustered)
        repeats = [mode == log_rows.KEPT for mode in batch.get_column("mode")]
        return np.where(repeats, np.nan, logged), np.where(repeats, np.nan, policy)

    def _count_shown(self, batch: ClosedBatch) -> None:
        """Queue the shown arms of decisions for the frequencies.

        Nothing for lists, or arms that come with requests.
        """
        if len(batch.entries) and self._lifecycle.arm_indices and batch.single:
            self.sums.count_shown(batch.arm_indices, batch.compute_group_propensities(), batch.offers)

    def change_arms(self, seq: int, time: int, *, control: bool) -> None:
        """Compare the current arms, with empty sums, from row ``seq`` of the log on.

        A new period begins if the control acts differently (``control``).
        """
        counts = len(self._lifecycle.arm_indices), len(self._lifecycle.offer.arms)
        self.sums.settle()
        self.sums.change_arms(*counts, seq, time, control=control)

    # Snapshots and views ---------------------------------------------------------------------

    def save_state(self) -> dict[str, Any]:
        """Settle the sums and return the snapshot's field: {"lift": sums}."""
        return {"lift": self.sums.save_state()}

    def restore(self, saved: SavedState, snapshot: Snapshot) -> None:
        """Set the sums from a snapshot; the arms must be restored before."""
        self.sums.set_arm_counts(len(self._lifecycle.arm_indices), len(self._lifecycle.offer.arms))
        self.sums.restore(saved.lift)

    def export_part(self) -> Any:
        """Return numbers of arms and this shard's sums as JSON data, without amounts of open decisions."""
        saved = self.sums.save_state() | {"amounts": []}
        return *self.sums.merge_key[1:], saved

    def merge_parts(self, parts: Sequence[Any]) -> None:
        """Replace the sums by those over all shards."""
        self.sums = LiftSums.merge_shards([self.sums.from_part(*part) for part in parts])

    def read_copy(self) -> RewardSums:
        """Add queued decisions to the sums, and return a copy for reader threads."""
        self.sums.settle()
        reader_copy = super().read_copy()
        reader_copy.sums = self.sums.read_copy()
        return reader_copy


def _add_to_scores(sums: ScoreSums, closed: ClosedDecisions, mask: Booleans) -> None:
    """Add the decisions for which ``mask`` is True to the scores, in place."""
    decisions = (closed.arm_indices, closed.rewards)
    propensities = (closed.propensities, closed.policy_propensities, closed.offered_counts)
    # In the order of the parameters of ``add``.
    sums.add(*(column[mask] for column in (*decisions, *propensities)))
