"""Decisions and what came back for them as columns, whoever holds them, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.errors import InvalidValue
from tacit.learning.batch import Batch
from tacit.learning.decisions import Decision, Decisions
from tacit.learning.impressions import Offer
from tacit.learning.lanes import Lanes
from tacit.policies.base import NO_FEATURES, Policy


class DecisionReader(NamedTuple):
    """Read decisions for a policy, if they fit it."""

    policy: Policy
    offer: Offer
    lanes: Lanes

    def columns(self, decisions: Sequence[Decision]) -> tuple[Batch, Ints, Floats, Ints]:
        """Return impressions, actions, propensities and epochs of decisions, each made once.

        Raises
        ------
        InvalidValue
            If a decision stands there twice, or is of a learner of another kind.
        UnknownName
            If nothing was ever chosen for a decision's key.
        """
        if isinstance(decisions, Decisions) and decisions.lanes is self.lanes.of:
            return decisions.batch, decisions.actions, decisions.propensities, decisions.epochs
        batch = self.batch(decisions)
        refuse_repeated(decisions)
        return (
            batch,
            self.actions(decisions, batch),
            # NumPy takes None for NaN.
            np.array([d.propensity for d in decisions], np.float64),
            np.array([d.epoch for d in decisions], np.int64),
        )

    def batch(self, decisions: Sequence[Decision]) -> Batch:
        """Return the impressions of one decision or more."""
        rows = len(decisions)
        for decision in decisions if set(map(type, decisions)) != {Decision} else ():
            refuse_others(decision)
        _, keys, _, _, _, offered, _, contexts, relevance, examination, *_ = zip(*decisions, strict=True)
        lanes = list(map(self.lanes.of.get, keys))
        if None in lanes:
            lanes = list(map(self.lanes.lane, keys))
        featured = self.policy.feature_dims != (0, 0)
        arms, starts, stops = offered[0], np.zeros(rows, np.int64), np.full(rows, len(offered[0]))
        if featured or len(set(map(id, offered))) > 1:
            sizes = np.array([len(offer) for offer in offered], np.int64)
            stops = np.cumsum(sizes)
            arms, starts = np.concatenate(offered), stops - sizes
        blocks = NO_FEATURES, NO_FEATURES
        fits = set(map(len, contexts)) == {self.policy.context_dim}
        if featured:
            blocks = np.concatenate(relevance), np.concatenate(examination)
            wanted = [(len(arms), dim) if dim else (0, 0) for dim in self.policy.feature_dims]
            fits &= [block.shape for block in blocks] == wanted
        if self.policy.arms is not None and arms.size:
            fits &= bool(arms.max() < len(self.offer.names))
        if not fits:
            raise self._foreign(decisions)
        dim = self.policy.context_dim
        context_rows = np.concatenate(contexts).reshape(rows, dim) if dim else np.empty((rows, 0))
        return Batch(np.array(lanes, np.int64), arms, starts, stops, context_rows, *blocks)

    def actions(self, decisions: Sequence[Decision], batch: Batch) -> Ints:
        """Return what decisions showed, if the policy could have shown it.

        Compiled code looks at no bounds: a slot that is none would be written elsewhere.
        """
        width = self.policy.action_width
        slots = [d.slots for d in decisions]
        if set(map(len, slots)) != {width}:
            raise self._foreign(decisions)
        actions = np.concatenate(slots, dtype=np.int64).reshape(-1, width)
        limits = batch.stops - batch.starts if self.policy.arms is None else len(self.offer.names)
        least = -1 if self.policy.shows == "slate" else 0
        if ((actions < least) | (actions >= np.reshape(limits, (-1, 1)))).any():
            raise self._foreign(decisions)
        return actions

    def feedback(self, field: str, rewards: Any, rows: int) -> Floats:
        """Return feedback as an array of rows.

        Raises
        ------
        InvalidValue
            If there is not one number within [0, 1] for each, or one for each position.
        """
        width = self.policy.feedback_width
        try:
            given = np.asarray(rewards)
        except ValueError:
            given = np.empty(0, object)
        shape = (rows,) if width == 1 else (rows, width)
        if given.shape != shape or (given.dtype.kind not in "fiub" and given.size):
            if field == "reward":
                remedy = f"give {width} numbers, one for each position: 1 for a click, 0 for none"
                raise InvalidValue(field, rewards[0], remedy)
            each = "one" if width == 1 else f"{width} numbers"
            raise InvalidValue(field, rewards, f"give {each} for each of {rows} decisions")
        values = np.ascontiguousarray(given, dtype=np.float64)
        wrong = ~((values >= 0.0) & (values <= 1.0))
        if wrong.any():
            first = np.unravel_index(int(np.argmax(wrong)), shape)
            place = ", ".join(map(str, first))
            raise InvalidValue(f"{field}[{place}]", float(values[first]), "give a number in [0, 1]")
        return values.reshape(rows, width)

    def _foreign(self, decisions: Sequence[Decision]) -> InvalidValue:
        given = decisions[0] if len(decisions) == 1 else f"{len(decisions)} decisions"
        return InvalidValue("decision", given, f"give decisions of a learner of {self.policy}")


def refuse_others(decision: Any) -> None:
    """Refuse what is no decision."""
    if type(decision) is not Decision:
        raise InvalidValue("decision", decision, "give what choose returned")


def refuse_repeated(decisions: Sequence[Decision]) -> None:
    """Refuse a list that names a decision twice; columns number theirs one after the other."""
    if isinstance(decisions, Decisions):
        return
    ids = [decision.id for decision in decisions]
    if len(set(ids)) == len(ids):
        return
    place = {id: row for row, id in enumerate(ids)}
    first = next(row for row, id in enumerate(ids) if place[id] != row)
    raise InvalidValue(
        f"decisions[{place[ids[first]]}].id",
        ids[first],
        f"decisions[{first}] has it too; give each decision once, and those of different learners apart",
    )
