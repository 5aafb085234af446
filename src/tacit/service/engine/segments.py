"""Segment reports: which arms a placement shows to which segments of users, and why."""

# 1. ``_SegmentReport``: how much each field matters, and the arms shown to each segment.
# 2. ``SegmentReports``: reports of all placements, made on request in a thread, and reused for a while.

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from time import monotonic
from typing import Any, NamedTuple, TypeGuard

import msgspec
import numpy as np

from tacit.core.arrays import Booleans, Floats, byte_count
from tacit.errors import InvalidValue
from tacit.learning.lanes import Offer
from tacit.learning.segments import (
    Bands,
    FieldEffect,
    HashedValues,
    compute_bands,
    compute_field_effects,
    list_fields,
    split_users,
)
from tacit.policies.base import Policy
from tacit.policies.features.context_mixture import ContextBeliefs
from tacit.service.config.holdout import RewardScale
from tacit.service.engine.writer import Serving
from tacit.service.log.ids import as_text
from tacit.service.log.rows import UNWEIGHTED_MODES, DecisionRow, Event
from tacit.service.placements.placement import Placement
from tacit.wire.lift import LATEST, ArmForAll, ArmForThem, FieldForWhom, ForWhom, UserSegment

READS_NONE = "its policy reads nothing of who is asking; configure its context"

# ---- The report of one placement

MOST_FIELDS, MOST_ARMS, MOST_IN_SEGMENT = 12, 50, 10
LITTLE = 0.1
"""Spread of log-odds between arms, over all fields, below which the context hardly matters."""
HARDLY = 0.1
"""A field hardly matters if its spread is below this share of the first field's."""
UNSURE = 0.2
"""Weight from which on the hypothesis that contexts hardly matter is mentioned."""


class Sample(NamedTuple):
    """The latest decisions and a copy of the learned state, for another thread.

    Attributes
    ----------
    policy : Policy
    state : named tuple
        State of one key, and the state that all keys share.
    hashed_values : HashedValues
    offer : Offer
    key : str or None
        The key of the decisions, if each key has its own models.
    rows : list of DecisionRow
    state_bytes : int
        Size of the whole state.
    scale : RewardScale
    """

    policy: Policy
    state: Any
    hashed_values: HashedValues
    offer: Offer
    key: str | None
    rows: list[DecisionRow]
    state_bytes: int
    scale: RewardScale


class _SegmentReport:
    """Computes which arms are shown to which segments, and why."""

    def __init__(self, sample: Sample) -> None:
        dim = sample.policy.context_dim
        read = [(row, msgspec.json.decode(row.context or "[]")) for row in sample.rows]
        # Contexts of an earlier policy may have another length.
        read = [(row, context) for row, context in read if len(context) == dim]
        self._sample, self._rows = sample, [row for row, _ in read]
        self._contexts = np.array([context for _, context in read]).reshape(len(read), dim)
        self._arm_indices = {name: index for index, name in enumerate(sample.offer.names)}
        self._believes = hasattr(sample.policy, "beliefs_in") and bool(self._rows)
        self._says_nothing: float | None = None
        fields = list_fields(sample.policy.schema, dim)
        self._effects = list(map(FieldEffect, fields))
        if self._believes:
            beliefs = self._get_beliefs(self._contexts)
            self._says_nothing = beliefs.no_effect_weight
            self._effects = compute_field_effects(fields, beliefs, sample.offer.arm_indices)

    def _get_beliefs(self, contexts: Floats) -> ContextBeliefs:
        """Return the policy's beliefs about all arms in some contexts."""
        beliefs: ContextBeliefs = self._sample.policy.beliefs_in(self._sample.state, 0, contexts)  # type: ignore[attr-defined]
        return beliefs

    def build(self) -> ForWhom:
        """Return the report: arms shown to all users and to each segment, with their believed rewards.

        Fields are in descending order of their effect; only the first 12 have segments.
        """
        effects = sorted(self._effects, key=lambda effect: -(effect.matters or 0.0))
        most, hashed_values = effects[:MOST_FIELDS], self._sample.hashed_values
        segments = [split_users(effect.field, self._contexts, hashed_values) for effect in most]
        segments += [[] for _ in effects[MOST_FIELDS:]]
        every = np.ones(len(self._rows), np.bool_)
        masks = [every, *(mask for field_segments in segments for _, mask in field_segments)]
        # One for each mask, taken in this order: all users first, then the segments of each field.
        bands: Iterator[Any] = iter([None] * len(masks))
        if self._believes:
            averages = np.array([self._contexts[mask].mean(axis=0) for mask in masks])
            bands = map(Bands._make, zip(*compute_bands(self._get_beliefs(averages)), strict=True))
        arms = self._list_arms(next(bands), most)
        entries = [
            FieldForWhom(
                effect.field.name,
                effect.matters,
                [self._make_segment(value, mask, effect, next(bands)) for value, mask in field_segments],
            )
            for effect, field_segments in zip(effects, segments, strict=True)
        ]
        since, until = (as_text(self._rows[at].time) if self._rows else None for at in (0, -1))
        verdict = describe_effect(len(self._rows), self._says_nothing, entries)
        sample = self._sample
        model = sample.key, self._says_nothing, sample.state_bytes
        return ForWhom(
            verdict, len(self._rows), since, until, *model, arms, entries, None, sample.scale.named
        )

    def _list_arms(self, bands: Bands | None, most: Sequence[FieldEffect]) -> list[ArmForAll]:
        """Return the 50 most shown arms of all users, with their counts and beliefs, and effects of fields.

        ``bands`` are the beliefs, ``most`` the effects to report.
        """
        # With beliefs, arms on offer are listed even if they were not shown.
        counts: Counter[Any] = Counter(dict.fromkeys(self._sample.offer.arms, 0) if self._believes else {})
        counts.update(row.arm for row in self._rows)
        # Log-odds that each field adds, by decision and arm: its effect on an arm is their spread.
        added = {effect.field.name: effect.added for effect in most if effect.added is not None}
        arms = []
        for arm, count in counts.most_common(MOST_ARMS):
            index = self._arm_indices.get(arm)
            spreads = {} if index is None else {n: float(a[:, index].std()) for n, a in added.items()}
            arms.append(ArmForAll(arm, count, *self._get_band(bands, arm), spreads))
        return arms

    def _make_segment(
        self, name: str, mask: Booleans, effect: FieldEffect, bands: Bands | None
    ) -> UserSegment:
        """Return one segment: its number of decisions, and its 10 most shown arms with their beliefs.

        ``effect`` is the effect of the segment's field, and ``mask`` the mask of the segment's decisions.
        """
        counts = Counter(self._rows[i].arm for i in np.flatnonzero(mask).tolist())
        arms = [
            ArmForThem(arm, count, *self._get_band(bands, arm), self._get_log_odds(effect, mask, arm))
            for arm, count in counts.most_common(MOST_IN_SEGMENT)
        ]
        return UserSegment(name, int(mask.sum()), arms)

    def _get_log_odds(self, effect: FieldEffect, which: Booleans, arm: Any) -> float | None:
        """Return the mean log-odds that a field adds to an arm in a segment.

        None if the policy has no beliefs.
        """
        if effect.added is None or arm not in self._arm_indices:
            return None
        return float(effect.added[which, self._arm_indices[arm]].mean())

    def _get_band(self, bands: Bands | None, arm: Any) -> tuple[float | None, float | None, float | None]:
        """Return mean, low and high end of an arm's believed reward, in its unit.

        None for each if unknown.
        """
        if bands is None or arm not in self._arm_indices:
            return None, None, None
        mean, low, high = (self._sample.scale.convert(values[self._arm_indices[arm]]) for values in bands)
        return mean, low, high


def describe_effect(decisions: int, says_nothing: float | None, fields: Sequence[FieldForWhom]) -> str:
    """Return a sentence that says whether the context matters for what is shown, and which fields do most.

    ``says_nothing`` is the weight of the hypothesis that contexts hardly matter; ``fields`` are in descending
    order of ``matters``.

    Examples
    --------
    >>> age, zip = FieldForWhom("age", 1.5, []), FieldForWhom("zip", 0.01, [])
    >>> describe_effect(900, 0.001, [age, zip])
    'Who is asking matters. age decides most; zip hardly does.'
    >>> describe_effect(900, 0.64, [zip])
    'Who is asking says hardly anything so far: all are shown about the same.'
    """
    if not decisions:
        return "Too early: nothing was decided yet for somebody of whom something is known."
    weighed = [field for field in fields if field.matters is not None]
    if says_nothing is None or not weighed:
        return "By what is known of those who ask, this is what they were shown."
    # Spreads of independent fields add up as squares.
    if math.hypot(*(field.matters or 0.0 for field in weighed)) < LITTLE:
        return "Who is asking says hardly anything so far: all are shown about the same."
    least = HARDLY * (weighed[0].matters or 0.0)
    first, *more = [field.field for field in weighed if (field.matters or 0.0) >= least]
    hardly = [field.field for field in weighed if (field.matters or 0.0) < least]
    most = f"{first} decides most" + (f", then {_join_names(more)}" if more else "")
    if hardly:
        most += f"; {_join_names(hardly)} hardly {'do' if len(hardly) > 1 else 'does'}"
    if says_nothing < UNSURE:
        return f"Who is asking matters. {most}."
    doubt = f"that it says hardly anything still has {100 * says_nothing:.0f} % of the weight"
    return f"Who is asking matters, though the hypothesis {doubt}. {most}."


def _join_names(names: Sequence[str]) -> str:
    """Join names with commas and "and"; of more than four, only the first three are named."""
    if len(names) > 4:
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


# ---- Reports of the placements of an engine, made on request, and reused for a while

ROWS = 500
"""Rows per read, so that no commit waits long."""
FARTHEST = 20_000
"""Greatest number of rows that are read."""
REUSE_SECONDS, REUSE_FACTOR = 2.0, 10.0
"""Time for which a report is reused: in seconds, and as a multiple of the time to make it."""


def reads_user_contexts(policy: Policy) -> bool:
    """True if a policy learns from contexts that describe users, not only from signals of shifts."""
    return bool(policy.context_dim) and (hasattr(policy, "beliefs_in") or any(policy.feature_dims))


def select_shard_report(reports: Sequence[ForWhom]) -> ForWhom:
    """Return the report of the shard with the most decisions, because each shard has a model of its own.

    With several shards, its verdict and its field ``shard`` name the shard.

    Parameters
    ----------
    reports : sequence of ForWhom
        Reports of all shards.
    """
    # With equal numbers of decisions, the later first decision means more decisions per time.
    # Of equal ones the first shard.
    shard, most = max(enumerate(reports), key=lambda pair: (pair[1].decisions, pair[1].since or "", -pair[0]))
    if len(reports) == 1:
        return most
    verdict = f"Of shard {shard}, which decides most and has a model of its own: {most.verdict}"
    return msgspec.structs.replace(most, shard=shard, verdict=verdict)


class SegmentReports:
    """Segment reports of the placements of an engine.

    Parameters
    ----------
    engine : Serving
    end : function
        Returns the last row of the log.
    """

    def __init__(self, engine: Serving, end: Callable[[], int]) -> None:
        self._engine, self._end = engine, end
        self._cache: dict[tuple[str, int], tuple[float, ForWhom]] = {}
        self._lock = asyncio.Lock()

    async def report(self, name: str, limit: int = LATEST) -> ForWhom:
        """Return the segment report of a placement, made from its latest decisions, or cached for a while.

        Parameters
        ----------
        name : str
        limit : int
            Number of the latest decisions to read.

        Raises
        ------
        UnknownName, Unavailable
            If there is no such placement, or the store fails.
        InvalidValue
            If its policy does not learn from contexts.
        """
        placement = self._engine.placement(name)
        if not reads_user_contexts(placement.learner.policy):
            raise InvalidValue("placement", name, READS_NONE)
        async with self._lock:
            now = monotonic()
            self._cache = {key: cached for key, cached in self._cache.items() if now < cached[0]}
            if (name, limit) not in self._cache:
                rows = await self._read_latest(placement, self._end(), limit)
                begun, sample = monotonic(), take_sample(placement, rows)
                report = await asyncio.to_thread(lambda: _SegmentReport(sample).build())
                until = monotonic() + max(REUSE_SECONDS, REUSE_FACTOR * (monotonic() - begun))
                self._cache[name, limit] = until, report
            return self._cache[name, limit][1]

    async def _read_latest(self, placement: Placement, end: int, limit: int) -> list[DecisionRow]:
        """Return up to ``limit`` latest decisions by the placement's policy that have contexts, in order.

        Reads the log backwards from row ``end``, at most 20,000 rows.
        """
        decisions: list[DecisionRow] = []
        last = max(end - FARTHEST, 0)
        while end > last and len(decisions) < limit:
            after = max(end - ROWS, last)
            rows = await self._engine.read_log(placement.name, after, end - after)
            decisions[:0] = [row for row in rows if _is_policy_decision(row, placement, end)]
            end = after
        return decisions[-limit:]


def _is_policy_decision(row: Event, placement: Placement, end: int) -> TypeGuard[DecisionRow]:
    """True if a row, up to row ``end``, is a decision with a context that the placement's policy made."""
    return (
        isinstance(row, DecisionRow)
        # Numbers have gaps where rows were dropped: a read may end behind the rows that it is for.
        and row.seq <= end
        and row.placement == placement.id
        and row.context is not None
        and not row.control
        and row.mode not in UNWEIGHTED_MODES
    )


def take_sample(placement: Placement, rows: list[DecisionRow]) -> Sample:
    """Return decisions and a copy of the learned state, to be read by another thread.

    If each key has its own models, only the busiest key's decisions and state are taken. From a policy
    without ``beliefs_in`` the report needs no state, so all decisions are taken.
    """
    learner, key, lane = placement.learner, None, 0
    if any(learner.lanes.rows) and hasattr(learner.policy, "beliefs_in") and rows:
        key = Counter(row.key for row in rows).most_common(1)[0][0]
        rows, lane = [row for row in rows if row.key == key], learner.lane(key)
    state = deepcopy(learner.lanes.view(lane))
    encoder = placement.reader.encoder
    hashed_values = {} if encoder is None else deepcopy(encoder.hashed_values)
    state_bytes, scale = byte_count(learner.state), placement.config.scale
    return Sample(learner.policy, state, hashed_values, placement.offer, key, rows, state_bytes, scale)
