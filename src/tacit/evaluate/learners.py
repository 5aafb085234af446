"""Target policies that are learning policies: of single arms, or of lists.

A policy of single arms either learns from every row of the log (:class:`Learning`) or stays as it is
(:class:`Frozen`); compiled loops compute the propensity of a row, then learn from it. :class:`Ranking` does
the same for a policy of lists, list by list.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from tacit.core.arrays import Floats, Generator, Ints, copied_into
from tacit.core.dispatch import cells, decide, learn, learns_from_propensity, observe, placed, propensity
from tacit.core.run_mode import compiled
from tacit.core.seeds import stream
from tacit.errors import InvalidValue, UnfitLog
from tacit.evaluate.rows import (
    Lists,
    LoggedRows,
    check_first,
    check_items,
    lists_of,
    names_of,
    stretches,
    unanswerable,
    unknown_arm,
)
from tacit.evaluate.targets import EachArm, Restarted, contexts
from tacit.learning.batch import Batch, impression_of
from tacit.learning.learner import Learner
from tacit.logs.items import ItemTable
from tacit.policies.actions import SlatePolicy
from tacit.policies.base import NO_FEATURES, Outcome, Policy, outcome_of

# ---- A policy of single arms that learns from every row of the log


def check_shown(policy: Policy, every: bool = False) -> None:
    """Raise if a policy cannot give the probability of the arm shown, or of all arms if ``all_arms``."""
    if every and policy.arms is None:
        remedy = "it knows arms by their vectors, of which there are many; give IPS() and SNIPS()"
        raise InvalidValue("estimators", "those that need each arm's chance", remedy)
    if not policy.showing.single:
        remedy = f"it shows a {policy.shows}; give one that shows a single arm"
        raise InvalidValue("policy", policy, remedy)
    if not policy.knows_propensity:
        raise InvalidValue("policy", policy, "give a policy that knows its propensities")


class LogLearner:
    """A policy's state while it learns from a log, with one lane for each key of a placement.

    Parameters
    ----------
    policy : Policy
        Over the log's arms by their names, or over n numbered arms called 0, 1, …, n − 1.

    Attributes
    ----------
    state : named tuple
    columns : frozenset of str
        The columns of the log that the policy reads.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        needed = {"placement", "key"} | ({"context"} if policy.context_dim else set())
        self.columns = frozenset(needed)
        self.state = policy.init(0)
        named = [] if policy.arms is None else names_of(policy)
        self._slots = {name: slot for slot, name in enumerate(named)}
        self._lanes: dict[int, int] = {}
        self._capacity = 0
        self._codes: Ints = np.zeros(0, np.int64)

    def slots(self, rows: LoggedRows) -> Ints:
        """Return the arm index of each arm of the log so far; for items, the item's code."""
        check_items(self.policy, rows.items)
        new = rows.arm.names[len(self._codes) :]
        if self.policy.arms is None:
            assert rows.items is not None
            codes = rows.items.codes(pa.array(new, pa.string()), rows.chunk.source)
            self._codes = np.concatenate([self._codes, codes])
            return self._codes
        for name in new:
            if name not in self._slots:
                raise unknown_arm(rows.chunk.source, name, list(self._slots)[:10])
        slots = np.array([self._slots[name] for name in new], np.int64)
        self._codes = np.concatenate([self._codes, slots])
        return self._codes

    def shown(self, rows: LoggedRows) -> Ints:
        """Return the arm index of the arm that each row shows; for items, its place in the offer."""
        slots = self.slots(rows)
        if self.policy.arms is not None:
            return np.asarray(slots[rows.arm.codes])
        pairs = zip(rows.offer.tolist(), rows.arm.codes.tolist(), strict=True)
        return np.array([np.flatnonzero(rows.offers[offer] == arm)[0] for offer, arm in pairs], np.int64)

    def stretches(self, rows: LoggedRows, picked: Ints) -> Iterator[slice]:
        """Yield slices of picked rows whose items are looked up together."""
        if self.policy.arms is not None:
            return iter([slice(0, len(picked))])
        sizes = np.array([len(rows.offers[offer]) for offer in rows.offer[picked].tolist()], np.int64)
        return stretches(sizes * self.policy.feature_dims[0])

    def impressions(self, rows: LoggedRows, picked: Ints) -> Batch:
        """Return the picked rows as impressions; :meth:`arm_indices` must have been called for the rows."""
        if rows.items is not None and self.policy.arms is None:
            slots, starts, stops, relevance = self._offered_items(rows, rows.items, picked)
        else:
            lists = [self._codes[offer] for offer in rows.offers]
            sizes = np.array(list(map(len, lists)), np.int64)
            slots, ends, of = np.concatenate(lists), np.cumsum(sizes), rows.offer[picked]
            starts, stops, relevance = (ends - sizes)[of], ends[of], NO_FEATURES
        dim = self.policy.context_dim
        given = contexts(rows.chunk.batch)[picked] if dim else np.zeros((len(picked), 0))
        return Batch(self._lane(rows)[picked], slots, starts, stops, given, relevance, NO_FEATURES)

    def _offered_items(
        self, rows: LoggedRows, items: ItemTable, picked: Ints
    ) -> tuple[Ints, Ints, Ints, Floats]:
        """Return the numbers of items on offer, each row's start and stop in them, and their vectors."""
        offers = [rows.offers[offer] for offer in rows.offer[picked].tolist()]
        sizes = np.array(list(map(len, offers)), np.int64)
        stops, times = np.cumsum(sizes), None
        if items.dated:
            times = rows.chunk.batch["timestamp"].take(pa.array(np.repeat(picked, sizes)))
        found = items.rows(self._codes[np.concatenate(offers)], times, rows.chunk.source)
        numbers = np.arange(len(found)) - np.repeat(stops - sizes, sizes)
        return numbers, stops - sizes, stops, items.vectors(found)

    def _lane(self, rows: LoggedRows) -> Ints:
        """Return the lane of each row's placement and key; grow the state for new ones."""
        pairs = rows.names["placement"].codes * 2**32 + rows.names["key"].codes
        distinct, which = np.unique(pairs, return_inverse=True)
        lanes = [self._lanes.setdefault(pair, len(self._lanes)) for pair in distinct.tolist()]
        if len(self._lanes) > self._capacity:
            self._capacity = max(len(self._lanes), 2 * self._capacity)
            self.state = copied_into(self.state, self.policy.init(self._capacity))
        return np.array(lanes, np.int64)[which]


class Learning:
    """A policy that learns from each logged row, after computing its propensity of the arm shown.

    Before row i the policy has learned from rows 1 … i−1, with the arms that the log shows, and
    is then some policy πᵢ. The estimand is the mean of the values of π₁ … πₙ: each row's
    weighted reward has, given the rows before it, the value of πᵢ as its expectation. It is
    *not* the reward of the policy if it chose its own arms and learned from those alone; for
    that, see :func:`~tacit.replay`. For a policy that does not learn, both are the same.

    Parameters
    ----------
    policy : Policy
        Over the log's arms by their names, or over n numbered arms called 0, 1, …, n − 1. It
        must know its propensities. Each key of a placement learns separately;
        state that all keys share is shared across placements.

    Raises
    ------
    InvalidValue
        If the policy does not know its propensities.

    Examples
    --------
    >>> import tacit
    >>> Learning(tacit.Thompson(arms=["film", "holiday"])).label
    'Thompson, learning'
    """

    def __init__(self, policy: Policy) -> None:
        if not isinstance(policy, Policy):
            raise InvalidValue("policy", policy, "give a policy, such as UCB1(arms=5)")
        check_shown(policy)
        self.policy = policy
        self.label = f"{policy.label}, learning"
        self._start(False)

    @property
    def schema(self) -> Any:
        """The policy's schema of contexts, or None."""
        return self.policy.schema

    def _start(self, every: bool) -> None:
        self._wants_every = every
        self._learner = LogLearner(self.policy)
        self.columns = self._learner.columns
        self._every: Floats = np.zeros((0, 0))

    def begin(self, every: bool = False) -> Self:
        check_shown(self.policy, every)
        fresh = copy.copy(self)
        fresh._start(every)
        return fresh

    def shown(self, rows: LoggedRows) -> Floats:
        learner, everything = self._learner, np.arange(len(rows.reward))
        codes, slots = learner.slots(rows), learner.shown(rows)
        found = np.zeros(len(rows.reward))
        size = (len(found), self.policy.arm_count) if self._wants_every else (0, 0)
        slots_every = np.zeros(size)
        params = self.policy.params
        driver = compiled(progress_rows, params)
        for part in learner.stretches(rows, everything):
            batch = learner.impressions(rows, everything[part])
            logged = LoggedBatch(batch, slots[part], rows.reward[part], rows.propensity[part])
            driver(params, learner.state, logged, found[part], slots_every)
        if np.isnan(found).any():
            raise InvalidValue("policy", self.policy, "give a policy that knows its propensities")
        if self._wants_every:
            self._every = slots_every[:, codes]
        return found

    def every(self, rows: LoggedRows) -> Floats:
        return self._every

    def reached(self, arms: Sequence[str]) -> list[str]:
        """Return no arms: they depend on the policy's state at each row."""
        return []


class Frozen(EachArm):
    """A trained learner as a target policy, which does not learn from the log.

    Parameters
    ----------
    learner : Learner
        For example from :meth:`tacit.Learner.load`; it is copied. Keys of the log are the learner's
        keys, regardless of the placement.

    Raises
    ------
    InvalidValue
        If the learner's policy does not know its propensities, or does not show single arms.

    Examples
    --------
    >>> import tacit
    >>> Frozen(tacit.Learner(tacit.Thompson(arms=["film", "holiday"]), seed=1)).label
    'Thompson, frozen'
    """

    def __init__(self, learner: Learner) -> None:
        check_shown(learner.policy)
        self.learner = copy.deepcopy(learner)
        self.policy = learner.policy
        self.label = f"{self.policy.label}, frozen"
        self._start()

    def _start(self) -> None:
        self._rows = LogLearner(self.policy)
        self.columns = self._rows.columns
        super()._start()

    @property
    def schema(self) -> Any:
        """The policy's schema of contexts, or None."""
        return self.policy.schema

    def begin(self, every: bool = False) -> Self:
        check_shown(self.policy, every)
        fresh = super().begin(every)
        # Parts of a log are read in parallel, and new keys change the learner.
        fresh.learner = copy.deepcopy(self.learner)
        return fresh

    def shown(self, rows: LoggedRows) -> Floats:
        if self.policy.arms is None:
            return self._weighed_items(rows)
        return super().shown(rows)

    def _lanes(self, rows: LoggedRows) -> Ints:
        """Return the learner's lane of each row's key, adding new keys."""
        key = rows.names["key"]
        used = np.unique(key.codes)
        lane = np.zeros(len(key.names), np.int64)
        lane[used] = self.learner.lanes.admit([key.names[code] for code in used.tolist()])
        return np.asarray(lane[key.codes])

    def _weighed_items(self, rows: LoggedRows) -> Floats:
        """Return the probability of the item shown, per row."""
        slots, lanes, params = self._rows.shown(rows), self._lanes(rows), self.policy.params
        everything, found = np.arange(len(slots)), np.zeros(len(slots))
        driver = compiled(weigh_shown, params)
        for part in self._rows.stretches(rows, everything):
            batch = self._rows.impressions(rows, everything[part])._replace(lanes=lanes[part])
            driver(params, self.learner.lanes.state, batch, slots[part], found[part])
        return found

    def _evaluated(self, rows: LoggedRows) -> Floats:
        codes, lanes = self._rows.slots(rows), self._lanes(rows)
        batch = self._rows.impressions(rows, np.arange(len(rows.reward)))._replace(lanes=lanes)
        found = np.zeros((len(rows.reward), self.policy.arm_count))
        params = self.policy.params
        compiled(weigh_logged, params)(params, self.learner.lanes.state, batch, found)
        if np.isnan(found).any():
            raise InvalidValue("policy", self.policy, "give a policy that knows its propensities")
        return found[:, codes]

    def reached(self, arms: Sequence[str]) -> list[str]:
        """Return no arms: they depend on keys and contexts."""
        return []


def weigh_logged(params: Any, state: Any, batch: Batch, every: Floats) -> None:
    """Write the probability of each arm on offer to ``probabilities[i, arm]`` for each impression i."""
    for i in range(len(batch.lanes)):
        impression = impression_of(batch, i)
        for arm in impression.arms:
            every[i, arm] = propensity(params, state, batch.lanes[i], impression, arm)


def weigh_shown(params: Any, state: Any, batch: Batch, shown: Ints, found: Floats) -> None:
    """Write the probability of the arm shown in each row to ``probabilities``."""
    for i in range(len(batch.lanes)):
        found[i] = propensity(params, state, batch.lanes[i], impression_of(batch, i), shown[i])


class LoggedBatch(NamedTuple):
    """Logged rows as columns.

    Attributes
    ----------
    batch : Batch
        The impressions.
    shown : array of int64, shape (rows,)
        Arm index of the arm shown.
    rewards, propensities : array of float64, shape (rows,)
    """

    batch: Batch
    shown: Ints
    rewards: Floats
    propensities: Floats


def progress_rows(params: Any, state: Any, logged: LoggedBatch, found: Floats, every: Floats) -> None:
    """For each row, write the probability of the arm shown to ``probabilities``, then learn from the row.

    The probabilities of all arms are written to ``all_arms``, unless it is empty.
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


# ---- A policy of lists that learns from every list of the log


class Ranking(Restarted):
    """A list policy that learns from each logged list, after computing its propensities for the list.

    As :class:`~tacit.evaluate.Learning`, list by list: the estimand is the mean of the values
    of the policy's successive states, each learned from the earlier lists of the log, not from its own.

    If the policy knows its propensities (``ListMix``, ``SafeListMix``), they are used. For any
    other policy, one list is sampled for each list of the log, and a position has probability 1 if both
    agree there, else 0: this is also unbiased, with more variance.

    Parameters
    ----------
    policy : SlatePolicy
        Over the log's arms by their names, or over n numbered arms called 0, 1, …, n − 1, with as
        many positions as the log's lists.
    seed : int, default 0
        Seed of the sampled lists.

    Raises
    ------
    InvalidValue
        If the policy does not show lists.

    Examples
    --------
    >>> import tacit
    >>> Ranking(tacit.ListMix(arms=["film", "holiday"], positions=2)).label
    'ListMix(positions=2), learning'
    """

    everywhere = False
    """Whether :meth:`all_position_probabilities` will be called."""

    def __init__(self, policy: SlatePolicy, seed: int = 0) -> None:
        if not isinstance(policy, SlatePolicy):
            raise InvalidValue(
                "policy",
                policy,
                "give one that shows lists, such as ListMix; a fixed list is fixed_target('list:a,b,c')",
            )
        self.policy, self.seed = policy, seed
        self.label = f"{policy.label}, learning"
        self._start()

    def _start(self) -> None:
        self._learner = LogLearner(self.policy)
        self._rng = stream("ranking", self.seed)
        self.columns = self._learner.columns | {"decision_id", "position"}
        self._places: Floats = np.zeros(0)
        self._lists: Lists | None = None
        self._everywhere: Floats = np.zeros((0, 0, 0))

    def begin(self, every: bool = False) -> Self:
        """Return the target reset for a new log.

        Raises
        ------
        InvalidValue
            If the probabilities of all arms are needed: a list policy does not have them.
        """
        if every:
            remedy = "give estimators of lists, such as IndependentIPS"
            raise InvalidValue("estimators", "of single arms", remedy)
        return super().begin(every)

    def shown(self, rows: LoggedRows) -> Floats:
        """Return the probability of each row's arm at its position, given the arms above it."""
        learner = self._learner
        slots, lists = learner.shown(rows), lists_of(rows)
        self._check(rows, lists)
        width = self.policy.action_width
        actions = np.full((len(lists.first), width), -1, np.int64)
        actions[lists.of, lists.place] = slots
        clicks = lists.table(rows.reward, width, 0.0)
        weights = lists.table(rows.given_above, width, 1.0).prod(axis=1)
        if learns_from_propensity(self.policy.params) and np.isnan(weights).any():
            raise unanswerable(rows, int(np.argmax(np.isnan(rows.given_above))))
        prefixes, places = np.empty((2, len(actions), width))
        self._everywhere = np.zeros((len(actions), width, width) if self.everywhere else (0, 0, 0))
        known, params = self.policy.knows_places, self.policy.params
        driver = compiled(progress_lists if known else progress_drawn, params)
        drawn = () if known else (self._rng,)
        for part in learner.stretches(rows, lists.first):
            batch = learner.impressions(rows, lists.first[part])
            logged = LoggedLists(batch, actions[part], clicks[part], weights[part])
            chances = self._everywhere[part]
            driver(params, learner.state, logged, *drawn, prefixes[part], places[part], chances)
        above = np.concatenate([np.ones((len(actions), 1)), prefixes[:, :-1]], axis=1)
        given = np.divide(prefixes, above, out=np.zeros_like(above), where=above > 0)
        self._lists, self._places = lists, places[lists.of, lists.place]
        return np.asarray(given[lists.of, lists.place])

    def at_position(self, rows: LoggedRows) -> Floats:
        """Return the marginal probability of each row's arm at its position.

        Call it after :meth:`evaluate_shown` of the same rows.
        """
        return self._places

    def at_each_position(self) -> Floats:
        """Return the probability of each row's arm at every position, shape (rows, positions).

        Call it after :meth:`evaluate_shown` of the same rows, with ``needs_positions``.
        """
        assert self._lists is not None
        return np.asarray(self._everywhere[self._lists.of, self._lists.place])

    def every(self, rows: LoggedRows) -> Floats:
        raise NotImplementedError

    def reached(self, arms: Sequence[str]) -> list[str]:
        """Return no arms: they depend on the policy's state at each row."""
        return []

    def _check(self, rows: LoggedRows, lists: Lists) -> None:
        """Raise UnfitLog if a list differs in length from the policy's, or has gaps."""
        check_first(rows, lists.place)
        length = np.zeros(len(lists.first), np.int64)
        np.maximum.at(length, lists.of, lists.place + 1)
        sizes = np.array([len(offer) for offer in rows.offers])
        wanted = np.minimum(self.policy.action_width, sizes[rows.offer[lists.first]])
        if (length != wanted).any():
            wrong = int(np.argmax(length != wanted))
            raise UnfitLog(
                f"{rows.where(int(lists.first[wrong]))}: position: the list has {length[wrong]} "
                f"places, the policy fills {wanted[wrong]}; give it as many positions as the log's "
                "lists have, which count from 0; if rows of a list stand apart, sort by decision_id and "
                "position"
            )
        gaps = np.bincount(lists.of) < length
        if gaps.any():
            of = int(np.argmax(gaps))
            free = min(set(range(length[of])) - set(lists.place[lists.of == of].tolist()))
            raise UnfitLog(
                f"{rows.where(int(lists.first[of]))}: position: the list has no row at {free}; give one "
                "for the arm at each position, clicked or not"
            )


class LoggedLists(NamedTuple):
    """Logged lists as columns.

    Attributes
    ----------
    batch : Batch
        The impressions.
    actions : array of int64, shape (lists, positions)
        Arm indices of the arms shown; −1 at empty positions.
    feedback : array of float64, shape (lists, positions)
    propensities : array of float64, shape (lists,)
        Propensities of whole lists.
    """

    batch: Batch
    actions: Ints
    feedback: Floats
    propensities: Floats


def progress_lists(
    params: Any, state: Any, logged: LoggedLists, prefixes: Floats, places: Floats, chances: Floats
) -> None:
    """For each list, write the probabilities of the arms shown, then learn from the list.

    The probability of each shown arm at every position is written to ``chances``, unless it is empty.
    """
    batch, actions, feedback, propensities = logged
    for i in range(len(actions)):
        lane = batch.lanes[i]
        impression = impression_of(batch, i)
        observe(params, state, lane, impression)
        placed(params, state, lane, impression, actions[i], prefixes[i], places[i])
        if len(chances) > 0:
            arms = impression.arms
            found = np.zeros((len(arms), min(actions.shape[1], len(arms))))
            cells(params, state, lane, impression, found)
            for k in range(actions.shape[1]):
                for j in range(len(arms)):
                    if arms[j] == actions[i, k]:
                        chances[i, k, : found.shape[1]] = found[j]
        known = propensities[i]
        learn(params, state, lane, outcome_of(params, impression, actions[i], feedback[i], known))


def progress_drawn(
    params: Any,
    state: Any,
    logged: LoggedLists,
    rng: Generator,
    prefixes: Floats,
    places: Floats,
    chances: Floats,
) -> None:
    """Do the same for policies without propensities: 1 at positions where a sampled list agrees, else 0."""
    batch, actions, feedback, propensities = logged
    drawn = np.empty(actions.shape[1], np.int64)
    for i in range(len(actions)):
        lane = batch.lanes[i]
        impression = impression_of(batch, i)
        observe(params, state, lane, impression)
        decide(params, state, lane, impression, rng, drawn)
        same = 1.0
        for k in range(len(drawn)):
            places[i, k] = 1.0 if drawn[k] == actions[i, k] else 0.0
            same *= places[i, k]
            prefixes[i, k] = same
            for j in range(len(drawn) if len(chances) > 0 else 0):
                chances[i, k, j] = 1.0 if drawn[j] == actions[i, k] else 0.0
        known = propensities[i]
        learn(params, state, lane, outcome_of(params, impression, actions[i], feedback[i], known))
