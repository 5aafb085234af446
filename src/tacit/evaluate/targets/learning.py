"""A policy that learns while it is evaluated: from every row of the log."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import learn, observe, propensity
from tacit.core.state import copied_into
from tacit.errors import InvalidValue
from tacit.evaluate.arms import names_of, unknown_arm
from tacit.evaluate.rows import LoggedRows
from tacit.evaluate.targets.functions import contexts
from tacit.learning.batch import Batch, impression_of
from tacit.policies.base import NO_FEATURES, Outcome, Policy


def check_features(policy: Policy) -> None:
    """Refuse a policy that reads what no click log holds."""
    if policy.feature_dims != (0, 0):
        raise InvalidValue(
            "policy",
            policy,
            "it reads features of arms, which a click log does not hold; judge it with tacit.simulate",
        )


class LogLearner:
    """What a policy has learned from a log so far, each key of a placement on its own.

    Parameters
    ----------
    policy : Policy
        Over the log's arms by their names, or over n numbered arms called 0, 1, …, n − 1.

    Attributes
    ----------
    state : named tuple
    columns : frozenset of str
        The columns of the log that it looks at.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        needed = {"placement", "key"} | ({"context"} if policy.context_dim else set())
        self.columns = frozenset(needed)
        self.state = policy.init(0)
        self._slots = {name: slot for slot, name in enumerate(names_of(policy))}
        self._lanes: dict[int, int] = {}
        self._capacity = 0
        self._codes: Ints = np.zeros(0, np.int64)

    def slots(self, rows: LoggedRows) -> Ints:
        """Return the slot of each arm of the log so far."""
        new = rows.arm.names[len(self._codes) :]
        for name in new:
            if name not in self._slots:
                raise unknown_arm(rows.chunk.source, name, list(self._slots)[:10])
        slots = np.array([self._slots[name] for name in new], np.int64)
        self._codes = np.concatenate([self._codes, slots])
        return self._codes

    def impressions(self, rows: LoggedRows, picked: Ints) -> Batch:
        """Return some of the rows as impressions; their slots were asked for before."""
        lists = [self._codes[offer] for offer in rows.offers]
        stops = np.cumsum([len(offer) for offer in lists])
        starts = stops - np.array([len(offer) for offer in lists])
        dim = self.policy.context_dim
        return Batch(
            self._lane(rows)[picked],
            np.concatenate(lists),
            starts[rows.offer[picked]],
            stops[rows.offer[picked]],
            contexts(rows.chunk.batch)[picked] if dim else np.zeros((len(picked), 0)),
            NO_FEATURES,
            NO_FEATURES,
        )

    def _lane(self, rows: LoggedRows) -> Ints:
        pairs = rows.names["placement"].codes * 2**32 + rows.names["key"].codes
        distinct, which = np.unique(pairs, return_inverse=True)
        lanes = [self._lanes.setdefault(pair, len(self._lanes)) for pair in distinct.tolist()]
        if len(self._lanes) > self._capacity:
            self._capacity = max(len(self._lanes), 2 * self._capacity)
            self.state = copied_into(self.state, self.policy.init(self._capacity))
        return np.array(lanes, np.int64)[which]


class Learning:
    """A policy that learns from each logged row, after saying how likely it was to do the same.

    Before row i the policy has learned from rows 1 … i−1, whatever the log showed in them, and
    is then some policy πᵢ. What is estimated is the mean of the values of π₁ … πₙ: each row's
    weighted reward has, given the rows before it, the value of πᵢ as its expectation. It is
    *not* what the policy would earn if it chose its own arms and learned from those alone; for
    that, see :func:`~tacit.replay`. With a policy that does not learn, both are the same.

    Parameters
    ----------
    policy : Policy
        Over the log's arms by their names, or over n numbered arms called 0, 1, …, n − 1. It
        must know its propensities. A key learns on its own in each placement;
        what all keys share, they share across placements.

    Raises
    ------
    InvalidValue
        If the policy does not know its propensities, or reads features of arms.

    Examples
    --------
    >>> import tacit
    >>> Learning(tacit.Thompson(arms=["film", "holiday"])).label
    'Thompson, learning'
    """

    def __init__(self, policy: Policy) -> None:
        if not isinstance(policy, Policy):
            raise InvalidValue("policy", policy, "give a policy, such as UCB1(arms=5)")
        check_features(policy)
        if policy.shows != "arm":
            remedy = f"it shows a {policy.shows}; give one that shows a single arm"
            raise InvalidValue("policy", policy, remedy)
        if not policy.knows_propensity:
            raise InvalidValue("policy", policy, "give a policy that knows its propensities")
        self.policy = policy
        self.label = f"{policy.label}, learning"
        self._start(False)

    def _start(self, every: bool) -> None:
        self._wants_every = every
        self._learner = LogLearner(self.policy)
        self.columns = self._learner.columns
        self._every: Floats = np.zeros((0, 0))

    def begin(self, every: bool = False) -> Self:
        fresh = copy.copy(self)
        fresh._start(every)
        return fresh

    def shown(self, rows: LoggedRows) -> Floats:
        from tacit.core.compiled import compiled

        learner, everything = self._learner, np.arange(len(rows.reward))
        codes = learner.slots(rows)
        batch = learner.impressions(rows, everything)
        logged = LoggedBatch(batch, codes[rows.arm.codes], rows.reward, rows.propensity)
        found = np.zeros(len(rows.reward))
        size = (len(found), self.policy.arm_count) if self._wants_every else (0, 0)
        slots_every = np.zeros(size)
        params = self.policy.params
        driver = compiled(progress_rows, params)
        driver(params, learner.state, logged, found, slots_every)
        if np.isnan(found).any():
            raise InvalidValue("policy", self.policy, "give a policy that knows its propensities")
        if self._wants_every:
            self._every = slots_every[:, codes]
        return found

    def every(self, rows: LoggedRows) -> Floats:
        return self._every

    def reached(self, arms: Sequence[str]) -> list[str]:
        """Return nothing: what it would have shown depends on what it learned."""
        return []


class LoggedBatch(NamedTuple):
    """Logged rows as columns.

    Attributes
    ----------
    batch : Batch
        The impressions.
    shown : array of int64, shape (rows,)
        Slot of the arm that was shown.
    rewards, propensities : array of float64, shape (rows,)
    """

    batch: Batch
    shown: Ints
    rewards: Floats
    propensities: Floats


def progress_rows(params: Any, state: Any, logged: LoggedBatch, found: Floats, every: Floats) -> None:
    """Row by row put the probability of what was shown into ``found``, then learn from it.

    ``every`` takes the probabilities of all slots, unless it is empty.
    """
    batch, shown, rewards, propensities = logged
    for i in range(len(batch.lanes)):
        lane = batch.lanes[i]
        impression = impression_of(batch, i)
        observe(params, state, lane, impression)
        found[i] = propensity(params, state, lane, impression, shown[i])
        if len(every) > 0:
            for arm in impression.arms:
                every[i, arm] = propensity(params, state, lane, impression, arm)
        learn(params, state, lane, Outcome(impression, shown[i], rewards[i], propensities[i]))
