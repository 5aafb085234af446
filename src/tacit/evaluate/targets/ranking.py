"""A policy that ranks, and learns while it is evaluated: from every list of the log."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import decide, learn, learns_from_propensity, observe, placed
from tacit.core.seeds import stream
from tacit.errors import InvalidValue, UnfitLog
from tacit.evaluate.lists import Lists, lists_of
from tacit.evaluate.rows import LoggedRows, unanswerable
from tacit.evaluate.targets.learning import LogLearner, check_features
from tacit.learning.batch import Batch, impression_of
from tacit.policies.actions import SlatePolicy
from tacit.policies.base import outcome_of


class Ranking:
    """A list policy that learns from each logged list, after saying how likely it was to show it.

    As :class:`~tacit.evaluate.Learning`, list by list: what is estimated is the mean of the values
    of the policies that it has been, having learned from the lists of the log, not from its own.

    Where the policy knows its propensities (``ListMix``, ``SafeListMix``), they are taken. From any
    other one list is drawn for each list of the log, and what it has in common with it counts: that
    is unbiased, too, of more variance.

    Parameters
    ----------
    policy : SlatePolicy
        Over the log's arms by their names, or over n numbered arms called 0, 1, …, n − 1, with as
        many positions as the log's lists have.
    seed : int, default 0
        Where lists are drawn from.

    Raises
    ------
    InvalidValue
        If the policy shows no lists, or reads features of arms.

    Examples
    --------
    >>> import tacit
    >>> Ranking(tacit.ListMix(arms=["film", "holiday"], positions=2)).label
    'ListMix(positions=2), learning'
    """

    def __init__(self, policy: SlatePolicy, seed: int = 0) -> None:
        if not isinstance(policy, SlatePolicy):
            raise InvalidValue("policy", policy, "give one that shows lists, such as ListMix")
        check_features(policy)
        self.policy, self.seed = policy, seed
        self.label = f"{policy.label}, learning"
        self._start()

    def _start(self) -> None:
        self._learner = LogLearner(self.policy)
        self._rng = stream("ranking", self.seed)
        self.columns = self._learner.columns | {"decision_id", "position"}
        self._places: Floats = np.zeros(0)

    def begin(self, every: bool = False) -> Self:
        """Return it as it is before the first row of a log.

        Raises
        ------
        InvalidValue
            If the probabilities of all arms are needed: those of lists are not kept.
        """
        if every:
            remedy = "give estimators of lists, such as IndependentIPS"
            raise InvalidValue("estimators", "of single arms", remedy)
        fresh = copy.copy(self)
        fresh._start()
        return fresh

    def shown(self, rows: LoggedRows) -> Floats:
        """Return the probability of each row's arm at its position, given those above it."""
        from tacit.core.compiled import compiled

        learner = self._learner
        slots, lists = learner.slots(rows), lists_of(rows)
        self._check(rows, lists)
        width = self.policy.action_width
        actions = np.full((len(lists.first), width), -1, np.int64)
        actions[lists.of, lists.place] = slots[rows.arm.codes]
        logged = LoggedLists(
            learner.impressions(rows, lists.first),
            actions,
            lists.table(rows.reward, width, 0.0),
            lists.table(rows.given_above, width, 1.0).prod(axis=1),
        )
        if learns_from_propensity(self.policy.params) and np.isnan(logged.propensities).any():
            raise unanswerable(rows, int(np.argmax(np.isnan(rows.given_above))))
        found = np.empty((2, len(actions), width))
        known, params = self.policy.knows_places, self.policy.params
        if known:
            compiled(progress_lists, params)(params, learner.state, logged, *found)
        else:
            driver = compiled(progress_drawn, params)
            driver(params, learner.state, logged, self._rng, *found)
        prefixes, places = found
        above = np.concatenate([np.ones((len(actions), 1)), prefixes[:, :-1]], axis=1)
        given = np.divide(prefixes, above, out=np.zeros_like(above), where=above > 0)
        self._places = places[lists.of, lists.place]
        return np.asarray(given[lists.of, lists.place])

    def at_position(self, rows: LoggedRows) -> Floats:
        """Return the probability of each row's arm at its position, whatever stands elsewhere.

        Called after :meth:`shown` of the same rows.
        """
        return self._places

    def every(self, rows: LoggedRows) -> Floats:
        raise NotImplementedError

    def reached(self, arms: Sequence[str]) -> list[str]:
        """Return nothing: what it would have shown depends on what it learned."""
        return []

    def _check(self, rows: LoggedRows, lists: Lists) -> None:
        """Refuse lists of another length than the policy's."""
        length = np.zeros(len(lists.first), np.int64)
        np.maximum.at(length, lists.of, lists.place + 1)
        sizes = np.array([len(offer) for offer in rows.offers])
        wanted = np.minimum(self.policy.action_width, sizes[rows.offer[lists.first]])
        if (length != wanted).any():
            one = int(np.argmax(length != wanted))
            raise UnfitLog(
                f"{rows.where(int(lists.first[one]))}: position: the list has {length[one]} "
                f"places, the policy fills {wanted[one]}; give it as many positions as the log's "
                "lists have"
            )


class LoggedLists(NamedTuple):
    """Logged lists as columns.

    Attributes
    ----------
    batch : Batch
        The impressions.
    actions : array of int64, shape (lists, positions)
        Slots of what was shown; −1 where there is nothing.
    feedback : array of float64, shape (lists, positions)
    propensities : array of float64, shape (lists,)
        Of whole lists.
    """

    batch: Batch
    actions: Ints
    feedback: Floats
    propensities: Floats


def progress_lists(params: Any, state: Any, logged: LoggedLists, prefixes: Floats, places: Floats) -> None:
    """List by list fill in the probabilities of what was shown, then learn from it."""
    batch, actions, feedback, propensities = logged
    for i in range(len(actions)):
        lane = batch.lanes[i]
        impression = impression_of(batch, i)
        observe(params, state, lane, impression)
        placed(params, state, lane, impression, actions[i], prefixes[i], places[i])
        known = propensities[i]
        learn(params, state, lane, outcome_of(params, impression, actions[i], feedback[i], known))


def progress_drawn(
    params: Any, state: Any, logged: LoggedLists, rng: Generator, prefixes: Floats, places: Floats
) -> None:
    """The same for policies that do not know them: 1 where a list that is drawn has the same."""
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
        known = propensities[i]
        learn(params, state, lane, outcome_of(params, impression, actions[i], feedback[i], known))
