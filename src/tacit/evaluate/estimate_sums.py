"""Sums over the rows of a log: of each estimator, in total and by segment, from one pass.

Parts of a log can be summed separately and merged.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.core.refusals import Refusal, refuse_rows
from tacit.core.reward_range import UNIT_RANGE, RewardRange
from tacit.errors import AssumptionWarning, UnfitLog
from tacit.evaluate.estimators import Estimator, PositionBasedIPS, SlateEstimator, Units, WeightedRows
from tacit.evaluate.intervals import GROUPS, Sums, empty_sums, sum_units
from tacit.evaluate.learners import Ranking
from tacit.evaluate.options import LOGGED, OffPolicyEvaluation
from tacit.evaluate.rows import (
    LoggedRows,
    RowReader,
    check_segments,
    describe_missing_propensity,
    group_lists,
    hash_clusters,
)
from tacit.logs.data_warnings import MIN_ROWS
from tacit.logs.schema import SEGMENT
from tacit.logs.sources import get_reward_range, open_log

POSITION_REMEDY = (
    "; if only given the arms above it, the column position_propensity is missing, that at its position "
    "whatever is above, which tacit's logs have: give it, or CascadeIPS alone (--estimator cascade-ips)"
)
MIN_REMAINDER, HOPELESS_RATIO = 1e-6, 1e3
"""A row is refused if the propensity of all other arms together is at most the first number, and the
target's probability of them is more than the second number times as large."""


class SegmentSums(NamedTuple):
    """Sums of one segment: per estimator, number of rows, and sum of their rewards."""

    sums: tuple[Sums, ...]
    rows: int
    reward: float

    def merge(self, after: SegmentSums, in_turn: Sequence[bool]) -> SegmentSums:
        """Return the segment's sums over this part of a log and the next; as :meth:`LogSums.merge`."""
        sums = _merge_in_order(self.sums, after.sums, in_turn)
        return SegmentSums(sums, self.rows + after.rows, self.reward + after.reward)


class LogSums(NamedTuple):
    """Sums over the rows of a log, or of a part of one.

    Attributes
    ----------
    sums : tuple of Sums
        Per estimator.
    rows, unanswered : int
    reward : float
        Sum of all rewards.
    arms : dict
        For each arm that was on offer: how often it was shown and on offer, and the sums of 1/p and 1/p²
        over the rows that show it.
    reachable : frozenset of str
        The arms on offer that the target policy may have shown.
    slates : tuple of (str, str), optional
        The decision ids of the first row and of the last, if slates are weighted.
    segments : mapping of str to SegmentSums
        Sums of each segment, if the evaluation is by segment.
    learned : bool
        True if the target is a learner that was fitted to these very rows.
    given_above : bool
        True if a row has only the propensity of its arm given the arms above it, not the one at its position.
    reward_range : RewardRange
        Of the log.
    """

    sums: tuple[Sums, ...]
    rows: int
    unanswered: int
    reward: float
    arms: dict[str, Floats]
    reachable: frozenset[str]
    slates: tuple[str | None, str | None] | None = None
    segments: Mapping[str, SegmentSums] = MappingProxyType({})
    learned: bool = False
    given_above: bool = False
    reward_range: RewardRange = UNIT_RANGE

    def merge(self, after: LogSums, in_turn: Sequence[bool]) -> LogSums:
        """Return the sums over this part of a log and the next one.

        ``in_turn`` says of each estimator whether its units were assigned to groups in turn, and not by
        cluster.

        Raises
        ------
        UnfitLog
            If a slate begins in this part and ends in the next.
        """
        slates = self.slates or after.slates
        if self.slates and after.slates:
            if self.slates[1] == after.slates[0] is not None:
                raise UnfitLog(
                    f"log: decision_id: the slate {self.slates[1]!r} lies in two files, which are read "
                    "apart; write whole slates into each file"
                )
            slates = self.slates[0], after.slates[1]
        arms = {
            arm: np.add(self.arms.get(arm, 0.0), after.arms.get(arm, 0.0))
            for arm in {**self.arms, **after.arms}
        }
        segments = {**after.segments, **self.segments}
        for name in set(self.segments) & set(after.segments):
            segments[name] = self.segments[name].merge(after.segments[name], in_turn)
        # ``learned`` is False: no part alone is the log that a learner was fitted to.
        return LogSums(
            _merge_in_order(self.sums, after.sums, in_turn),
            self.rows + after.rows,
            self.unanswered + after.unanswered,
            self.reward + after.reward,
            arms,
            self.reachable | after.reachable,
            slates,
            segments,
            given_above=self.given_above or after.given_above,
            reward_range=self.reward_range,
        )


def _merge_in_order(
    before: Sequence[Sums], after: Sequence[Sums], in_turn: Sequence[bool]
) -> tuple[Sums, ...]:
    """Return each estimator's sums over two consecutive parts of a log.

    If its units were assigned to groups in turn, the groups of the later part are rotated, as if its units
    had followed the earlier ones.
    """
    return tuple(
        early.merge(late.rotate_groups(early.n) if rotates else late)
        for early, late, rotates in zip(before, after, in_turn, strict=True)
    )


class LogSummation:
    """Accumulates the estimators' sums in one pass over a log."""

    def __init__(self, question: OffPolicyEvaluation, reward_range: RewardRange) -> None:
        """Reset target, logging policy and models to before the first row, and set all sums to 0."""
        estimators, logging = question.estimators, question.logging
        needs_all_arms = logging is not None or any(estimator.needs_all_arms for estimator in estimators)
        self._target: Any = question.target.begin(needs_all_arms)
        if isinstance(self._target, Ranking):
            self._target.needs_positions = any(isinstance(x, PositionBasedIPS) for x in estimators)
        self._logging = logging.begin(True) if logging else None
        self._estimators: list[Estimator] = [
            replace(x, model=x.model.begin(True)) if getattr(x, "model", None) is not None else x
            for x in estimators
        ]
        self._cluster = question.cluster
        given_above = [getattr(estimator, "given_above", False) for estimator in estimators]
        self._given_above, self._takes_position = any(given_above), not all(given_above)
        # Of the estimators of lists only: fewer than all estimators if some weigh single rows.
        self._lengths = [estimator.slots for estimator in estimators if isinstance(estimator, SlateEstimator)]
        self.slate_ids: tuple[str | None, str | None] | None = None
        self.sums = [empty_sums(GROUPS) for _ in estimators]
        self._by_segment, self._reward_range = question.by is not None, reward_range
        self._tails = reward_range.is_open
        self.segments: dict[str, SegmentSums] = {}
        self._tally: Floats = np.zeros((4, 0))

    def add(self, rows: LoggedRows) -> None:
        """Add the next batch of rows to all sums: of each estimator, each segment and each arm.

        The target evaluates the rows, and learns from them if it learns. Raises UnfitLog if the log could
        not have shown an arm of the target, a needed propensity or cluster is missing, or lists are
        malformed.
        """
        probabilities = self._target.evaluate_shown(rows)
        # Only a learning target of lists tells its propensities given the arms above from those at positions.
        given_above = probabilities
        if isinstance(self._target, Ranking):
            probabilities = self._target.position_probabilities(rows)
        refuse_rows(rows.locate_row, self._list_refusals(rows, probabilities, given_above))
        tally = _tally_arms(rows)
        tally[:, : self._tally.shape[1]] += self._tally
        self._tally = tally
        # Where neither the target nor the log tells them apart, both are the very same array.
        weights = weights_above = probabilities / rows.propensity
        if given_above is not probabilities or rows.given_above is not rows.propensity:
            weights_above = given_above / rows.given_above
        weighted = WeightedRows(rows, weights, weights_above, self._target)
        # Of lists it is not known.
        possible = 0.0 if self._lengths else largest_possible(rows, probabilities, weights)
        lists = None
        if self._lengths:
            self._note_slates(rows)
            lists = group_lists(rows, min(self._lengths))  # lists must fit every estimator
        cluster_groups = None
        if self._cluster is not None and len(self._lengths) < len(self._estimators):
            cluster_groups = hash_clusters(rows.batch[self._cluster], GROUPS)
        segments = self._code_segments(rows) if self._by_segment else None
        for index, estimator in enumerate(self._estimators):
            if isinstance(estimator, SlateEstimator):
                assert lists is not None
                units, cluster = estimator.list_units(weighted, lists), None
                unit_segments = None if segments is None else segments[lists.first]
            else:
                units, cluster, unit_segments = estimator.units(weighted), cluster_groups, segments
            added = _add_units(self.sums[index], units, cluster, self._tails)
            self.sums[index] = added._replace(possible=max(added.possible, possible))
            if unit_segments is not None:
                self._add_segments(index, units, cluster, unit_segments)

    def _code_segments(self, rows: LoggedRows) -> Ints:
        """Return the segment code of each row; add the rows and their rewards to the counts of segments.

        Stores the names of the codes for :meth:`_add_segments`. Raises UnfitLog if there are too many
        segments.
        """
        codes, names = rows.names[SEGMENT]
        check_segments(rows.chunk.source, names)
        counts = np.bincount(codes, minlength=len(names)).tolist()
        rewards = np.bincount(codes, rows.reward, len(names)).tolist()
        for name, count, reward in zip(names, counts, rewards, strict=True):
            before = self.segments.get(name)
            if before is None:
                before = SegmentSums(tuple(empty_sums(GROUPS) for _ in self.sums), rows=0, reward=0.0)
            total = before.rows + count, before.reward + reward
            self.segments[name] = SegmentSums(before.sums, *total)
        self._names = names
        return codes

    def _add_segments(self, index: int, units: Units, cluster: Ints | None, unit_segments: Ints) -> None:
        """Add the units of the estimator with this index to its sums in each unit's segment.

        ``unit_segments`` has the segment code of each unit, ``cluster`` the group of its cluster, if any.
        """
        for code, picked in _group_by_code(unit_segments):
            before = self.segments[self._names[code]]
            sums = list(before.sums)
            rewards = None if units.rewards is None else units.rewards[picked]
            segment_units = Units(units.weights[picked], units.values[picked], rewards)
            segment_cluster = None if cluster is None else cluster[picked]
            sums[index] = _add_units(sums[index], segment_units, segment_cluster, self._tails)
            self.segments[self._names[code]] = before._replace(sums=tuple(sums))

    def _list_refusals(self, rows: LoggedRows, chances: Floats, given_above: Floats) -> Iterator[Refusal]:
        """Yield the checks of a batch of rows, each with the rows that it refuses.

        Refused are rows without a needed propensity given the arms above; rows whose logged arm was certain,
        or nearly, although the target shows others; rows that offer an arm to which the logging policy gives
        probability 0 and the target does not; and rows without a needed cluster. If only propensities given
        the arms above are known, and needed, rows below arms that the target does not show are not refused.
        """
        if self._given_above:
            text = partial(describe_missing_propensity, rows)
            yield Refusal("propensity", np.isnan(rows.given_above), text)
        # Most batches have no such row, which one maximum (that ignores NaN) tells.
        if 1.0 - np.fmax.reduce(rows.propensity, initial=0.0) <= MIN_REMAINDER:
            remainder = 1.0 - rows.propensity
            is_certain = remainder <= MIN_REMAINDER
            # The same array: the log has only propensities given the arms above.
            is_above = bool(self._lengths) and rows.given_above is rows.propensity
            if is_above and not self._takes_position:
                # Only rows below arms that the target shows matter, and its chances given the arms above.
                chances, lists = given_above, group_lists(rows, min(self._lengths))
                prefixes = np.cumprod(lists.table(chances, min(self._lengths), empty=1.0), axis=1)
                # Column k: the target's probability of the k arms above, for the first position 1.
                is_certain &= np.insert(prefixes, 0, 1.0, axis=1)[lists.list_index, lists.place] > 0
            is_certain &= 1 - chances > HOPELESS_RATIO * remainder + 1e-9
            text = partial(_describe_certain, rows, chances, is_above and self._takes_position)
            yield Refusal("propensity", is_certain, text)
        if self._logging is not None:
            probabilities = self._target.evaluate_arms(rows)
            self._logging.evaluate_shown(rows)  # targets need this call before that of all arms
            is_never_logged = (probabilities > 0) & (self._logging.evaluate_arms(rows) <= 0)
            text = partial(_describe_never, rows, probabilities, is_never_logged)
            yield Refusal("arm", is_never_logged.any(axis=1), text)
        if self._cluster is not None and len(self._lengths) < len(self._estimators):
            is_missing = np.asarray(rows.batch[self._cluster].is_null())
            remedy = f"{self._cluster} is missing; give such rows ids of their own, or leave them out"
            yield Refusal("cluster", is_missing, remedy)

    def _note_slates(self, rows: LoggedRows) -> None:
        """Store the decision ids of the first and of the last row so far in ``slate_ids``."""
        ids = rows.chunk.batch["decision_id"]
        first = self.slate_ids[0] if self.slate_ids else ids[0].as_py()
        self.slate_ids = first, ids[-1].as_py()

    def sum_up(self, reader: RowReader, learned: bool) -> LogSums:
        """Return all sums, with the counts of the reader of the rows.

        ``learned`` is True if the target is a learner that was fitted to these very rows.
        """
        arms = reader.arms
        tally = np.zeros((len(arms), 4))
        tally[: self._tally.shape[1]] = self._tally.T
        return LogSums(
            tuple(self.sums),
            reader.rows,
            reader.unanswered,
            reader.reward,
            dict(zip(arms, tally, strict=True)),
            frozenset(self._target.select_reachable(arms)),
            self.slate_ids,
            self.segments,
            learned,
            reader.given_above,
            self._reward_range,
        )


def sum_log(
    question: OffPolicyEvaluation, log: Any, first: int = 0, *, progress: Callable[[int], None] | None = None
) -> LogSums:
    """Read a log once and return each estimator's sums, with counts of rows, rewards and arms.

    ``first`` is the number of rows before this part of the log. Propensities that are not logged are
    computed by the propensity model. ``progress`` is called with the number of rows read so far. Warns if
    the target learns per key and nearly every row has a key of its own. Raises UnfitLog if the propensity
    model gives a shown arm probability 0, or the log does not support the target.
    """
    log = open_log(log)
    reward_range = get_reward_range(log)
    reader = question.make_row_reader(
        need_propensity=question.propensities == LOGGED,
        first=first,
        names={key: column for model in question.models for key, column in model.names.items()},
        whole=question.has_slate_estimator,
    )
    summing = LogSummation(question, reward_range)
    propensity_model: Any = None if question.propensities == LOGGED else question.propensities
    if hasattr(propensity_model, "begin"):
        propensity_model = propensity_model.begin()
    # A learner stores the number of rows and a checksum of the rewards of each log that it was fitted to.
    logs, checksum = getattr(getattr(question.target, "learner", None), "logs_learned", ()), 0
    for rows in reader.read(log):
        checksum = crc32(reward_range.to_unit(rows.reward).tobytes(), checksum) if logs else checksum
        summing.add(rows if propensity_model is None else _set_propensities(rows, propensity_model))
        if progress is not None:
            progress(reader.rows)
    # A frozen learner (with ``learner``) has learned its keys before, however many this log has.
    policy = getattr(question.target, "policy", None)
    learns_per_key = policy is not None and policy.key_bytes and not hasattr(question.target, "learner")
    if learns_per_key and (message := reader.user_keys_message):
        warnings.warn(message, AssumptionWarning, stacklevel=4)
    return summing.sum_up(reader, reader.rows >= MIN_ROWS and (reader.rows, checksum) in logs)


def _describe_certain(rows: LoggedRows, chances: Floats, lacks_position: bool, row: int) -> str:
    """Return the text of an error that a row's logged arm was certain, or nearly, but not for the target.

    ``chances`` are the target's probabilities of the logged arms. With ``lacks_position`` propensities at
    positions are needed, and the log has none.
    """
    arm, remainder, certainty, frequency = rows.name_arm(row), 1.0 - rows.propensity[row], "certain", "never"
    if remainder:
        certainty, frequency = f"certain but for {remainder:.1g}", "hardly"
    return (
        f"{arm!r} was {certainty} to be shown, so the log could "
        f"{frequency} have shown another arm, but the target policy shows {arm!r} only with "
        f"probability {chances[row]:g}; log with a policy that randomizes, such as "
        'ExplorationFloor(policy, 0.05) (policy = "exploration-floor(auto, epsilon=0.05)" in the '
        "service's configuration), or ListMix(epsilon=0.1) for lists; where chance chose the arm, "
        f"give that chance{POSITION_REMEDY * lacks_position}"
    )


def _describe_never(rows: LoggedRows, probabilities: Floats, never: Booleans, row: int) -> str:
    """Return the text of an error that the logging policy never shows an arm that the target shows in a row.

    ``never`` marks such arms in each row; ``probabilities`` are the target's of all arms.
    """
    code = int(np.argmax(never[row]))
    return (
        f"the target policy shows {rows.arm.names[code]!r} with probability {probabilities[row, code]:g}, "
        "the logging policy never; leave it out of the target policy"
    )


def _tally_arms(rows: LoggedRows) -> Floats:
    """Return, per arm, how many rows show and how many offer it, and Σ1/p and Σ1/p² of the rows that show it.

    The shape is (4, arms).
    """
    size, row_count = len(rows.arm.names), len(rows.offer)
    # Rows with the same offer are counted together, and their number is added to each arm of the offer.
    rows_of_offer = np.bincount(rows.offer) if len(rows.offers) > 1 else np.array([row_count])
    offer_indices = np.flatnonzero(rows_of_offer)
    offered_arms = [rows.offers[index] for index in offer_indices.tolist()]
    offered_counts = np.repeat(rows_of_offer[offer_indices], [len(arms) for arms in offered_arms])
    inverse = 1.0 / rows.propensity
    codes = (rows.arm.codes, np.concatenate(offered_arms), rows.arm.codes, rows.arm.codes)
    weights = None, offered_counts, inverse, inverse**2
    return np.array([np.bincount(*pair, size) for pair in zip(codes, weights, strict=True)], np.float64)


def largest_possible(rows: LoggedRows, probabilities: Floats, weights: Floats) -> float:
    """Return the largest weight that any of these rows could have had, whichever arm was shown.

    The weight of an arm that was not shown is known with two arms on offer, and with more if the unshown
    arms were equally likely, as under an exploration floor.

    Parameters
    ----------
    rows : LoggedRows
    probabilities : array of float64, shape (rows,)
        The target's probability of the arm that each row shows.
    weights : array of float64, shape (rows,)
        The same over the logged probability.
    """
    other_counts = np.array([len(offer) - 1 for offer in rows.offers], np.float64)
    # In place: what a batch allocates at once, the system takes back and fills with zeros again.
    other_weights = 1.0 - probabilities
    other_weights *= other_counts[rows.offer] if len(other_counts) > 1 else other_counts[0]
    remainder = 1.0 - rows.propensity
    if remainder.min(initial=1.0) > 0:
        other_weights /= remainder
    else:
        zeros = np.zeros(len(remainder))
        other_weights = np.divide(other_weights, remainder, out=zeros, where=remainder > 0)
    return max(float(weights.max(initial=0.0)), float(other_weights.max(initial=0.0)))


def _add_units(before: Sums, units: Units, cluster: Ints | None, tails: bool) -> Sums:
    """Return the sums ``before`` with more units added; with ``tails`` also their cubes and magnitudes.

    ``cluster`` has the bootstrap group of each unit's cluster; None assigns units to groups in turn.
    """
    weights, values, rewards = units
    new = sum_units(weights, values, rewards=rewards, cluster=cluster, first=before.n, tails=tails)
    return before.merge(new)


def _group_by_code(codes: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each distinct code with the indices at which it occurs."""
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for indices in np.split(order, starts[1:]) if len(order) else ():
        yield int(codes[indices[0]]), indices


def _set_propensities(rows: LoggedRows, model: Any) -> LoggedRows:
    """Return the rows with propensities from a fitted model or a logging policy instead of the log's.

    Propensities given the arms above become NaN. Raises UnfitLog if a row's propensity is 0.
    """
    chances = model.evaluate_shown(rows)
    text = "{!r} has 0, as given; give what may show each arm that was shown, or leave such rows out"
    impossible = Refusal("propensity", chances == 0, lambda row: text.format(rows.name_arm(row)))
    refuse_rows(rows.locate_row, [impossible])
    return rows._replace(propensity=chances, given_above=np.full(len(rows.reward), np.nan))
