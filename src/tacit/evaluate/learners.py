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

from tacit.core.arrays import Floats, Generator, Ints, copy_to_larger
from tacit.core.dispatch import cells, decide, learn, learns_from_propensity, observe, placed, propensity
from tacit.core.run_mode import compile_loop
from tacit.core.seeds import stream
from tacit.errors import InvalidValue, UnfitLog
from tacit.evaluate.rows import (
    Lists,
    LoggedRows,
    check_first_position,
    check_items,
    group_lists,
    list_arm_names,
    refuse_unknown,
    split_rows,
    unknown_arm_error,
)
from tacit.evaluate.targets import ArmValues, Restartable, contexts
from tacit.learning.batch import Batch, get_impression
from tacit.learning.learner import Learner
from tacit.logs.items import ItemTable
from tacit.policies.actions import SlatePolicy
from tacit.policies.base import NO_FEATURES, Outcome, Policy, can_weigh_places, make_outcome

# ---- A policy of single arms that learns from every row of the log


def check_target_policy(policy: Policy, all_arms: bool = False) -> None:
    """Raise InvalidValue if a policy cannot give the propensity of a single arm.

    With ``all_arms``, also if it has no list of arms, because it then cannot give every arm's propensity.
    """
    if all_arms and policy.arms is None:
        remedy = "it knows arms by their vectors, of which there are many; give IPS() and SNIPS()"
        raise InvalidValue("estimators", "those that need each arm's chance", remedy)
    if not policy.showing.single:
        remedy = f"it shows a {policy.shows}; give one that shows a single arm"
        raise InvalidValue("policy", policy, remedy)
    if not policy.knows_propensity:
        raise InvalidValue("policy", policy, "give a policy that knows its propensities")


class LogLearner:
    """A policy's state on a log, which grows by a lane for each new key of a placement.

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
        """Start with an untrained state without lanes; the log's columns are the ones the policy reads."""
        self.policy = policy
        columns = {"placement", "key"} | ({"context"} if policy.context_dim else set())
        self.columns = frozenset(columns)
        self.state = policy.init(0)  # of 0 lanes
        arm_names = [] if policy.arms is None else list_arm_names(policy)
        self._index_by_name = {name: arm_index for arm_index, name in enumerate(arm_names)}
        self._lanes: dict[int, int] = {}
        self._capacity = 0
        self._index_by_code: Ints = np.zeros(0, np.int64)

    def arm_indices(self, rows: LoggedRows) -> Ints:
        """Return the policy's arm index of each arm that the log has so far, by its code in the log.

        For policies of item vectors it is the item's code. Raises UnknownName for an arm that the policy or
        the item table lacks.
        """
        check_items(self.policy, rows.items)
        new = rows.arm.names[len(self._index_by_code) :]
        if self.policy.arms is None:
            assert rows.items is not None
            codes = rows.items.codes(pa.array(new, pa.string()), rows.chunk.source)
            self._index_by_code = np.concatenate([self._index_by_code, codes])
            return self._index_by_code
        for name in new:
            if name not in self._index_by_name:
                raise unknown_arm_error(rows.chunk.source, name, list(self._index_by_name)[:10])
        new_indices = np.array([self._index_by_name[name] for name in new], np.int64)
        self._index_by_code = np.concatenate([self._index_by_code, new_indices])
        return self._index_by_code

    def find_shown_arms(self, rows: LoggedRows) -> Ints:
        """Return the arm index of the arm that each row shows; for items, its place in the row's offer."""
        arm_indices = self.arm_indices(rows)
        if self.policy.arms is not None:
            return np.asarray(arm_indices[rows.arm.codes])
        pairs = zip(rows.offer.tolist(), rows.arm.codes.tolist(), strict=True)
        return np.array([np.flatnonzero(rows.offers[index] == arm)[0] for index, arm in pairs], np.int64)

    def split_rows(self, rows: LoggedRows, picked: Ints) -> Iterator[slice]:
        """Yield slices of ``picked`` (row indices) whose item vectors are looked up together.

        Without item vectors it is one slice of all rows.
        """
        if self.policy.arms is not None:
            return iter([slice(0, len(picked))])
        sizes = np.array([len(rows.offers[index]) for index in rows.offer[picked].tolist()], np.int64)
        return split_rows(sizes * self.policy.feature_dims[0])

    def make_impressions(self, rows: LoggedRows, picked: Ints) -> Batch:
        """Return the picked rows as impressions: lanes, arms on offer, contexts and item vectors.

        New keys get lanes, for which the state grows. :meth:`arm_indices` must have been called for the
        rows.
        """
        if rows.items is not None and self.policy.arms is None:
            arm_indices, starts, stops, relevance = self._look_up_items(rows, rows.items, picked)
        else:
            lists = [self._index_by_code[arms] for arms in rows.offers]
            sizes = np.array(list(map(len, lists)), np.int64)
            arm_indices, ends, offer = np.concatenate(lists), np.cumsum(sizes), rows.offer[picked]
            starts, stops, relevance = (ends - sizes)[offer], ends[offer], NO_FEATURES
        dim = self.policy.context_dim
        context_rows = contexts(rows.chunk.batch)[picked] if dim else np.zeros((len(picked), 0))
        return Batch(
            self._admit_lanes(rows)[picked], arm_indices, starts, stops, context_rows, relevance, NO_FEATURES
        )

    def _look_up_items(
        self, rows: LoggedRows, items: ItemTable, picked: Ints
    ) -> tuple[Ints, Ints, Ints, Floats]:
        """Return for the items on offer in the picked rows: places in the offer, starts, stops, and vectors.

        Starts and stops delimit each row's items in the concatenated arrays.
        """
        offers = [rows.offers[index] for index in rows.offer[picked].tolist()]
        sizes = np.array(list(map(len, offers)), np.int64)
        stops, times = np.cumsum(sizes), None
        if items.has_times:
            times = rows.chunk.batch["timestamp"].take(pa.array(np.repeat(picked, sizes)))
        item_rows = items.rows(self._index_by_code[np.concatenate(offers)], times, rows.chunk.source)
        places = np.arange(len(item_rows)) - np.repeat(stops - sizes, sizes)
        return places, stops - sizes, stops, items.vectors(item_rows)

    def _admit_lanes(self, rows: LoggedRows) -> Ints:
        """Return the lane of each row's placement and key; new ones get lanes, and the state grows."""
        # One number for each pair: there are fewer than 2³² keys.
        pairs = rows.names["placement"].codes * 2**32 + rows.names["key"].codes
        distinct, pair_index = np.unique(pairs, return_inverse=True)
        lanes = [self._lanes.setdefault(pair, len(self._lanes)) for pair in distinct.tolist()]
        if len(self._lanes) > self._capacity:
            self._capacity = max(len(self._lanes), 2 * self._capacity)
            self.state = copy_to_larger(self.state, self.policy.init(self._capacity))
        return np.array(lanes, np.int64)[pair_index]


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
        """Check that the policy knows its propensities; start untrained."""
        if not isinstance(policy, Policy):
            raise InvalidValue("policy", policy, "give a policy, such as UCB1(arms=5)")
        check_target_policy(policy)
        self.policy = policy
        self.label = f"{policy.label}, learning"
        self._reset(all_arms=False)

    @property
    def schema(self) -> Any:
        """The schema by which the policy reads contexts; None if it has none."""
        return self.policy.schema

    def _reset(self, all_arms: bool) -> None:
        """Replace the state by an untrained one; ``all_arms`` if probabilities of all arms will be needed."""
        self._needs_all_arms = all_arms
        self._learner = LogLearner(self.policy)
        self.columns = self._learner.columns
        self._all_probabilities: Floats = np.zeros((0, 0))

    def begin(self, all_arms: bool = False) -> Self:
        """Return an untrained copy; raise InvalidValue if it cannot give the probabilities of all arms."""
        check_target_policy(self.policy, all_arms)
        restarted = copy.copy(self)
        restarted._reset(all_arms)
        return restarted

    def evaluate_shown(self, rows: LoggedRows) -> Floats:
        """Return the policy's probability of each row's shown arm, before it learns that row.

        The policy learns each row in turn. Also stores the probabilities of all arms if they are needed.
        Raises InvalidValue if the policy does not know its propensities.
        """
        learner, all_rows = self._learner, np.arange(len(rows.reward))
        index_by_code, arm_indices = learner.arm_indices(rows), learner.find_shown_arms(rows)
        probabilities = np.zeros(len(rows.reward))
        size = (len(probabilities), self.policy.arm_count) if self._needs_all_arms else (0, 0)
        index_probabilities = np.zeros(size)
        params, rewards = self.policy.params, self.policy.reward_range.to_unit(rows.reward)
        driver = compile_loop(evaluate_rows, params)
        for part in learner.split_rows(rows, all_rows):
            batch = learner.make_impressions(rows, all_rows[part])
            logged = LoggedBatch(batch, arm_indices[part], rewards[part], rows.propensity[part])
            # With all arms there is but one part: policies of item vectors have no list of arms.
            driver(params, learner.state, logged, probabilities[part], index_probabilities)
        if np.isnan(probabilities).any():
            raise InvalidValue("policy", self.policy, "give a policy that knows its propensities")
        if self._needs_all_arms:
            self._all_probabilities = index_probabilities[:, index_by_code]
        return probabilities

    def evaluate_arms(self, rows: LoggedRows) -> Floats:
        """Return the probabilities of all arms that :meth:`evaluate_shown` stored, shape (rows, arms)."""
        return self._all_probabilities

    def select_reachable(self, arms: Sequence[str]) -> list[str]:
        """Return no arms: they depend on the policy's state at each row."""
        return []


class Frozen(ArmValues):
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
        """Copy the learner; raise InvalidValue if its policy does not know the propensity of single arms."""
        check_target_policy(learner.policy)
        self.learner = copy.deepcopy(learner)
        self.policy = learner.policy
        self.label = f"{self.policy.label}, frozen"
        self._reset()

    def _reset(self) -> None:
        """Discard lanes, arm codes and cached probabilities of earlier rows; the learner stays as it is."""
        self._log_learner = LogLearner(self.policy)
        self.columns = self._log_learner.columns
        super()._reset()

    @property
    def schema(self) -> Any:
        """The schema by which the policy reads contexts; None if it has none."""
        return self.policy.schema

    def begin(self, all_arms: bool = False) -> Self:
        """Return a copy for a new log, with its own copy of the learner.

        Raises InvalidValue if all arms are needed and the policy has no list of arms.
        """
        check_target_policy(self.policy, all_arms)
        restarted = super().begin(all_arms)
        # Parts of a log are read in parallel, and new keys change the learner.
        restarted.learner = copy.deepcopy(self.learner)
        return restarted

    def evaluate_shown(self, rows: LoggedRows) -> Floats:
        """Return the learner's probability of each row's shown arm or item; it does not learn the row."""
        if self.policy.arms is None:
            return self._weigh_items(rows)
        return super().evaluate_shown(rows)

    def _admit_lanes(self, rows: LoggedRows) -> Ints:
        """Return the learner's lane of each row's key; new keys are added to the learner's copy."""
        key = rows.names["key"]
        used_codes = np.unique(key.codes)
        lane = np.zeros(len(key.names), np.int64)
        lane[used_codes] = self.learner.lanes.admit([key.names[code] for code in used_codes.tolist()])
        return np.asarray(lane[key.codes])

    def _weigh_items(self, rows: LoggedRows) -> Floats:
        """Return the learner's probability of each row's shown item."""
        arm_indices, params = self._log_learner.find_shown_arms(rows), self.policy.params
        lanes = self._admit_lanes(rows)
        all_rows, probabilities = np.arange(len(arm_indices)), np.zeros(len(arm_indices))
        # Lanes belong to the learner's keys, not to the log's placements and keys.
        driver = compile_loop(weigh_shown, params)
        for part in self._log_learner.split_rows(rows, all_rows):
            batch = self._log_learner.make_impressions(rows, all_rows[part])._replace(lanes=lanes[part])
            driver(params, self.learner.lanes.state, batch, arm_indices[part], probabilities[part])
        return probabilities

    def _evaluate(self, rows: LoggedRows) -> Floats:
        """Return the learner's probability of each arm in each row, shape (rows, arms).

        Raises InvalidValue if the policy does not know its propensities.
        """
        index_by_code, lanes = self._log_learner.arm_indices(rows), self._admit_lanes(rows)
        batch = self._log_learner.make_impressions(rows, np.arange(len(rows.reward)))._replace(lanes=lanes)
        probabilities = np.zeros((len(rows.reward), self.policy.arm_count))
        params = self.policy.params
        compile_loop(weigh_logged, params)(params, self.learner.lanes.state, batch, probabilities)
        if np.isnan(probabilities).any():
            raise InvalidValue("policy", self.policy, "give a policy that knows its propensities")
        return probabilities[:, index_by_code]

    def select_reachable(self, arms: Sequence[str]) -> list[str]:
        """Return no arms: they depend on keys and contexts."""
        return []


def weigh_logged(params: Any, state: Any, batch: Batch, probabilities: Floats) -> None:
    """Write the propensity of each arm on offer in impression i to ``probabilities[i, arm]``.

    The state does not change.
    """
    for i in range(len(batch.lanes)):
        impression = get_impression(batch, i)
        for arm in impression.arms:
            probabilities[i, arm] = propensity(params, state, batch.lanes[i], impression, arm)


def weigh_shown(params: Any, state: Any, batch: Batch, arm_indices: Ints, probabilities: Floats) -> None:
    """Write the propensity of each row's arm, from ``arm_indices``, to ``probabilities``; keep the state."""
    for i in range(len(batch.lanes)):
        probabilities[i] = propensity(params, state, batch.lanes[i], get_impression(batch, i), arm_indices[i])


class LoggedBatch(NamedTuple):
    """Logged rows as columns for compiled loops: impressions, arms shown and rewards.

    Attributes
    ----------
    batch : Batch
        The impressions.
    arm_indices : array of int64, shape (rows,)
        Arm index of the arm shown.
    rewards, propensities : array of float64, shape (rows,)
        Rewards are in the unit of the policy's state.
    """

    batch: Batch
    arm_indices: Ints
    rewards: Floats
    propensities: Floats


def evaluate_rows(
    params: Any, state: Any, logged: LoggedBatch, probabilities: Floats, all_arms: Floats
) -> None:
    """For each row, write the propensity of its shown arm to ``probabilities``, then learn from the row.

    The policy observes the impression first, and learns the logged reward with the logged propensity. The
    propensities of all arms are written to ``all_arms``, unless it is empty. Changes ``state``.
    """
    batch, arm_indices, rewards, propensities = logged
    for i in range(len(batch.lanes)):
        lane = batch.lanes[i]
        impression = get_impression(batch, i)
        observe(params, state, lane, impression)
        probabilities[i] = propensity(params, state, lane, impression, arm_indices[i])
        if len(all_arms) > 0:
            for arm in impression.arms:
                all_arms[i, arm] = propensity(params, state, lane, impression, arm)
        learn(params, state, lane, Outcome(impression, arm_indices[i], rewards[i], propensities[i]))


# ---- A policy of lists that learns from every list of the log


class Ranking(Restartable):
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

    needs_positions = False
    """Whether :meth:`all_position_probabilities` will be called."""

    def __init__(self, policy: SlatePolicy, seed: int = 0) -> None:
        """Start untrained; raise InvalidValue if the policy shows no lists. ``seed`` is of sampled lists."""
        if not isinstance(policy, SlatePolicy):
            remedy = "give one that shows lists, such as ListMix; a fixed list is fixed_target('list:a,b,c')"
            raise InvalidValue("policy", policy, remedy)
        self.policy, self.seed = policy, seed
        self.label = f"{policy.label}, learning"
        self._reset()

    def _reset(self) -> None:
        """Replace the state by an untrained one, restart the random generator, and discard probabilities."""
        self._learner = LogLearner(self.policy)
        self._rng = stream("ranking", self.seed)
        self.columns = self._learner.columns | {"decision_id", "position"}
        self._marginals: Floats = np.zeros(0)
        self._lists: Lists | None = None
        self._position_chances: Floats = np.zeros((0, 0, 0))

    def begin(self, all_arms: bool = False) -> Self:
        """Return an untrained copy.

        Raises
        ------
        InvalidValue
            If the probabilities of all arms are needed: a list policy does not have them.
        """
        if all_arms:
            remedy = "give estimators of lists, such as IndependentIPS"
            raise InvalidValue("estimators", "of single arms", remedy)
        return super().begin(all_arms)

    def evaluate_shown(self, rows: LoggedRows) -> Floats:
        """Return the probability of each row's arm at its position, given the arms above it in its list.

        After each list is evaluated, the policy learns it. Stores marginal probabilities for
        :meth:`position_probabilities`, and those at every position if ``needs_positions``. Raises UnfitLog
        if a list has gaps, another length than the policy's, or no propensity and the policy learns from
        it.
        """
        learner = self._learner
        arm_indices, lists = learner.find_shown_arms(rows), group_lists(rows)
        self._check_lists(rows, lists)
        width = self.policy.action_width
        actions = np.full((len(lists.first), width), -1, np.int64)
        actions[lists.list_index, lists.place] = arm_indices
        clicks = lists.table(self.policy.reward_range.to_unit(rows.reward), width, empty=0.0)
        propensities = lists.table(rows.given_above, width, empty=1.0).prod(axis=1)
        if learns_from_propensity(self.policy.params):
            refuse_unknown(rows, rows.given_above)
        # Probabilities, which the compiled loop writes, as :func:`evaluate_lists` says.
        prefixes, places = np.empty((2, len(actions), width))
        self._position_chances = np.zeros((len(actions), width, width) if self.needs_positions else (0, 0, 0))
        knows_propensities, params = can_weigh_places(self.policy), self.policy.params
        driver = compile_loop(evaluate_lists if knows_propensities else evaluate_sampled_lists, params)
        generators = () if knows_propensities else (self._rng,)
        for part in learner.split_rows(rows, lists.first):
            batch = learner.make_impressions(rows, lists.first[part])
            logged = LoggedLists(batch, actions[part], clicks[part], propensities[part])
            chances = self._position_chances[part]
            driver(params, learner.state, logged, *generators, prefixes[part], places[part], chances)
        # P(arm k | arms above) is P(first k + 1 arms)/P(first k arms).
        above = np.concatenate([np.ones((len(actions), 1)), prefixes[:, :-1]], axis=1)
        conditional = np.divide(prefixes, above, out=np.zeros_like(above), where=above > 0)
        self._lists, self._marginals = lists, places[lists.list_index, lists.place]
        return np.asarray(conditional[lists.list_index, lists.place])

    def position_probabilities(self, rows: LoggedRows) -> Floats:
        """Return the marginal probability of each row's arm at its position, whatever is shown elsewhere.

        :meth:`evaluate_shown` of the same rows has computed it and must have been called.
        """
        return self._marginals

    def all_position_probabilities(self) -> Floats:
        """Return the marginal probability of each row's arm at every position, shape (rows, positions).

        :meth:`evaluate_shown` of the same rows, with ``needs_positions``, must have been called.
        """
        assert self._lists is not None
        return np.asarray(self._position_chances[self._lists.list_index, self._lists.place])

    def evaluate_arms(self, rows: LoggedRows) -> Floats:
        """Raise NotImplementedError: a list policy has no probabilities of single arms."""
        raise NotImplementedError

    def select_reachable(self, arms: Sequence[str]) -> list[str]:
        """Return no arms: they depend on the policy's state at each row."""
        return []

    def _check_lists(self, rows: LoggedRows, lists: Lists) -> None:
        """Raise UnfitLog if a list has another length than the policy's, or a position without a row."""
        check_first_position(rows, lists.place)
        length = np.zeros(len(lists.first), np.int64)
        np.maximum.at(length, lists.list_index, lists.place + 1)
        sizes = np.array([len(offer) for offer in rows.offers])
        policy_length = np.minimum(self.policy.action_width, sizes[rows.offer[lists.first]])
        if (length != policy_length).any():
            wrong = int(np.argmax(length != policy_length))
            raise UnfitLog(
                f"{rows.locate_row(int(lists.first[wrong]))}: position: the list has {length[wrong]} "
                f"places, the policy fills {policy_length[wrong]}; give it as many positions as the log's "
                "lists have, which count from 0; if rows of a list stand apart, sort by decision_id and "
                "position"
            )
        gaps = np.bincount(lists.list_index) < length
        if gaps.any():
            list_number = int(np.argmax(gaps))
            taken = set(lists.place[lists.list_index == list_number].tolist())
            free = min(set(range(length[list_number])) - taken)
            raise UnfitLog(
                f"{rows.locate_row(int(lists.first[list_number]))}: position: the list has no row at {free}; "
                "give one for the arm at each position, clicked or not"
            )


class LoggedLists(NamedTuple):
    """Logged lists as columns for compiled loops: impressions, lists shown and rewards.

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


def evaluate_lists(
    params: Any, state: Any, logged: LoggedLists, prefixes: Floats, places: Floats, chances: Floats
) -> None:
    """For each logged list, write its probabilities under the policy, then learn from the list.

    ``prefixes[i, k]`` is the probability of the first k + 1 arms of list i, ``places[i, k]`` that of its
    arm k at position k, and ``chances[i, k, j]`` that of its arm k at position j, unless ``chances`` is
    empty. Changes ``state``.
    """
    batch, actions, feedback, propensities = logged
    for i in range(len(actions)):
        lane = batch.lanes[i]
        impression = get_impression(batch, i)
        observe(params, state, lane, impression)
        placed(params, state, lane, impression, actions[i], prefixes[i], places[i])
        if len(chances) > 0:
            arms = impression.arms
            cell_chances = np.zeros((len(arms), min(actions.shape[1], len(arms))))
            cells(params, state, lane, impression, cell_chances)
            for k in range(actions.shape[1]):
                for j in range(len(arms)):
                    if arms[j] == actions[i, k]:
                        chances[i, k, : cell_chances.shape[1]] = cell_chances[j]
        list_propensity = propensities[i]
        learn(params, state, lane, make_outcome(params, impression, actions[i], feedback[i], list_propensity))


def evaluate_sampled_lists(
    params: Any,
    state: Any,
    logged: LoggedLists,
    rng: Generator,
    prefixes: Floats,
    places: Floats,
    chances: Floats,
) -> None:
    """For each logged list, write where a list sampled from the policy agrees, then learn the logged one.

    This serves policies without known propensities. The outputs are those of :func:`evaluate_lists`, with 1
    for agreement and 0 for none: ``prefixes[i, k]`` for the first k + 1 arms, ``places[i, k]`` for the arm
    at position k, and ``chances[i, k, j]`` for the logged arm k at position j of the sampled list, unless
    ``chances`` is empty. Changes ``state`` and draws from ``rng``.
    """
    batch, actions, feedback, propensities = logged
    sampled_list = np.empty(actions.shape[1], np.int64)
    for i in range(len(actions)):
        lane = batch.lanes[i]
        impression = get_impression(batch, i)
        observe(params, state, lane, impression)
        decide(params, state, lane, impression, rng, sampled_list)
        same = 1.0
        for k in range(len(sampled_list)):
            places[i, k] = 1.0 if sampled_list[k] == actions[i, k] else 0.0
            same *= places[i, k]
            prefixes[i, k] = same
            for j in range(len(sampled_list) if len(chances) > 0 else 0):
                chances[i, k, j] = 1.0 if sampled_list[j] == actions[i, k] else 0.0
        list_propensity = propensities[i]
        learn(params, state, lane, make_outcome(params, impression, actions[i], feedback[i], list_propensity))
