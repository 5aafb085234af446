"""The learner in columns: what it decides and learns for many impressions at once.

:class:`~tacit.Learner` shows it to people; the service, which folds its log in columns, uses it
as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Booleans, Floats, Generator, Ints, leaves
from tacit.core.dispatch import learns_from_propensity
from tacit.errors import InvalidValue
from tacit.learning.batch import Batch
from tacit.learning.decisions import NOTHING, Arm, Decision, Decisions
from tacit.learning.impressions import ImpressionReader, Offer
from tacit.learning.lanes import Lanes, Loops
from tacit.policies.actions import SlatePolicy
from tacit.policies.base import NO_FEATURES, Impression, Policy

# ---- Decisions and what came back for them as columns, whoever holds them, checked


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


# ---- The learner

BOOLEANS = bool, np.bool_
ROUNDING = 1e-9


class BatchLearner:
    """The columns of a learner: a policy, the lanes of its keys, its arms on offer, its generator.

    Parameters
    ----------
    policy : Policy
    rng : Generator
    propensities : bool
        Whether decisions carry their propensity, where the policy draws at random.

    Attributes
    ----------
    lanes : Lanes
    offer : Offer
    made : int
        How many decisions were made.
    plain : bool
        Whether the policy reads neither contexts nor features.
    reports_propensities : bool
    """

    def __init__(self, policy: Policy, rng: Generator, propensities: bool) -> None:
        self.rng = rng
        self.made = 0
        self._least_share = math.inf
        self.reports_propensities = propensities and policy.randomized
        self.reports_places = self.reports_propensities and knows_places(policy)
        self.lanes = Lanes(policy)
        self.reader = ImpressionReader(policy)
        self.set_offer(policy, Offer(policy.arms))

    def set_offer(self, policy: Policy, offer: Offer) -> None:
        """Go on with other arms on offer."""
        self.policy, self.offer = policy.with_arms(policy.arms), offer
        self._prepare()

    def _prepare(self) -> None:
        """Make anew what depends on the policy and on the arms on offer."""
        self.plain = not self.policy.context_dim and self.policy.feature_dims == (0, 0)
        share = self.policy.least_share if learns_from_propensity(self.policy.params) else 0.0
        # What was decided before it was tuned keeps the propensity that it had.
        self._least_share = min(self._least_share, share * (1.0 - ROUNDING))
        self.loops = Loops(self.policy, self.offer, self.lanes, self.rng, self.reports_propensities)
        self._decisions = DecisionReader(self.policy, self.offer, self.lanes)

    def tune(self, hyperparameters: dict[str, Any]) -> None:
        """Go on with other hyperparameters of the policy.

        Raises
        ------
        InvalidValue
            If a value is out of its range, or the policy would keep its state otherwise.
        """
        tuned = replace(self.policy, **hyperparameters)
        for (name, now), (_, then) in zip(leaves(self.policy.init(1)), leaves(tuned.init(1)), strict=True):
            if now.shape != then.shape:
                raise InvalidValue(name, then.shape, f"keep the shape of the state, {now.shape}")
        self.policy = tuned
        self.lanes.fit(tuned)
        self._prepare()
        self.refit()

    def add_arms(self, arms: int | Sequence[str]) -> list[Any]:
        """Put new arms on offer; return them."""
        before = self.policy.arm_count
        added, offer = self.offer.with_new(arms)
        policy = self.policy.with_arms(offer.all)
        self.lanes.fit(policy)
        policy.enrol(self.lanes.state, len(self.lanes.of), before)
        self.set_offer(policy, offer)
        self.refit()
        return added

    def refit(self) -> None:
        """Compute anew what follows from the sums that all keys share."""
        if self.policy.sums:
            self.loops.refit(self.loops.params, self.lanes.state)

    # Decide ----------------------------------------------------------------------------------

    def choose_one(self, key: str) -> Decision[Any]:
        """Choose among all arms on offer, for a policy that reads nothing else."""
        loops, lanes = self.loops, self.lanes
        lane = lanes.of.get(key)
        loops.one.lanes[0] = lanes.add(key) if lane is None else lane
        loops.choose(loops.params, lanes.state, loops.one, self.rng, loops.action, loops.epoch, loops.asked)
        slots, names = loops.shown.copy(), self.offer.names
        propensity = None if loops.asked is None else loops.asked.item()
        prefixes = places = NOTHING
        if self.reports_places:
            loops.place(loops.params, lanes.state, loops.one, loops.action, loops.prefixes, loops.places)
            prefixes, places = loops.prefixes[0].copy(), loops.places[0].copy()
        made = self.made
        self.made += 1
        # Calling Decision would take half as long again.
        return Decision._make(
            (
                made,
                key,
                (names[slots.item()],)
                if len(slots) == 1
                else tuple([names[slot] for slot in slots.tolist() if slot >= 0]),
                propensity if propensity == propensity else None,
                loops.epoch.item(),
                self.offer.slots,
                slots,
                loops.context,
                NO_FEATURES,
                NO_FEATURES,
                prefixes,
                places,
            )
        )

    def choose(
        self, keys: Sequence[str], given: tuple[Any, Any, Any, Any], imposed: Ints | None = None
    ) -> Decisions[Any]:
        """Choose for many impressions, in their order.

        Parameters
        ----------
        keys : sequence of str
        given : tuple
            Contexts, arms, relevance and examination as ``Learner.choose_many`` takes them.
        imposed : array of int64, shape (rows, width), optional
            Slots to show whatever the policy chooses; −1 first for its choice. Propensities are
            then those of the policy for what is shown, which are 1 or 0 for one that is
            deterministic.

        Raises
        ------
        InvalidValue, UnknownName
            As ``Learner.choose_many``; then nothing was decided.
        """
        rows = len(checks.names("keys", keys))
        arms = given[1]
        if arms is not None and len(checks.names("arms", arms)) != rows:
            remedy = f"give one list of arms for each of {rows} impressions"
            raise InvalidValue("arms", arms, remedy)
        columns = self.reader.read(self.policy, self.offer, rows, given)
        batch = Batch(self.lanes.admit(keys), *columns)
        self.reader.advise(self.policy, batch.relevance, batch.examination)
        actions = np.empty((rows, self.policy.action_width), np.int64)
        epochs, propensities = np.empty(rows, np.int64), np.empty(rows)
        propensities.fill(np.nan)
        asked = None if self.loops.asked is None else propensities
        state = self.loops.params, self.lanes.state
        if imposed is None:
            self.loops.choose(*state, batch, self.rng, actions, epochs, asked)
        else:
            drawn = self.policy.randomized
            wanted = imposed, drawn, actions, epochs, propensities
            self.loops.impose(*state, batch, self.rng, *wanted)
            if drawn and asked is None:
                propensities[:] = np.nan
        offers = (arms or [None] * rows) if self.policy.arms is None else None
        told = self.made, tuple(keys), self.offer.names, offers, actions, epochs, propensities
        made = Decisions(*told, batch, self.lanes.of)
        self.made += rows
        if not self.reports_places:
            return made
        prefixes, places = np.empty((2, *actions.shape))
        self.loops.place(self.loops.params, self.lanes.state, batch, actions, prefixes, places)
        return replace(made, prefixes=prefixes, places=places)

    def probabilities(self, key: str, given: tuple[Any, Any, Any, Any]) -> Floats | None:
        """Return with what probability each arm on offer would be chosen; None if not known.

        Of a list, at each position.

        Raises
        ------
        InvalidValue, UnknownName
            As :meth:`choose`; or if the policy shows duels.
        """
        if self.policy.shows == "duel":
            raise InvalidValue("policy", self.policy, "give one that shows an arm, or a list")
        columns = self.reader.read(self.policy, self.offer, 1, given)
        batch = Batch(self.lanes.admit([key]), *columns)
        arms = len(batch.arms)
        if self.policy.shows == "slate":
            if not knows_places(self.policy):
                return None
            places = np.empty((arms, min(arms, self.policy.action_width)))
            self.loops.weigh_cells(self.loops.params, self.lanes.state, batch, places)
            return places
        found = np.empty(arms)
        self.loops.weigh(self.loops.params, self.lanes.state, batch, found)
        return None if np.isnan(found).any() else found

    def reward_draws(
        self, key: str, given: tuple[Any, Any, Any, Any], rng: Generator, draws: int
    ) -> tuple[list[Arm], Floats]:
        """Return the arms on offer, and draws of their mean rewards from what is believed.

        Raises
        ------
        InvalidValue, UnknownName
            As :meth:`choose`; or if nothing was ever chosen for the key.
        """
        lane = self.lanes.lane(key)
        slots, _, _, contexts, *blocks = self.reader.read(self.policy, self.offer, 1, given)
        names = self.offer.names or (given[1][0] if given[1] else range(len(slots)))
        drawn = self.policy.reward_draws  # type: ignore[attr-defined]
        found = drawn(self.lanes.state, lane, Impression(slots, contexts[0], *blocks), rng, draws)
        return [names[slot] for slot in slots.tolist()], found

    def plays_of(self, lane: int) -> Floats:
        """Return how often each arm was shown to a key and learned from, ever; NaN if not known."""
        told = getattr(self.policy, "beliefs", None)
        if self.policy.forgets or told is None:
            return self.lanes.plays_of(lane)
        # All count still, and what was told before.
        found: Floats = told(self.lanes.state, lane).plays - told(self.policy.init(1), 0).plays
        return found

    # Learn -----------------------------------------------------------------------------------

    def learn_one(self, decision: Decision, reward: Any) -> bool:
        """Learn from what came back for a decision; return whether it taught something."""
        loops = self.loops
        if self.policy.feedback_width > 1:
            loops.feedback[:] = self._decisions.feedback("reward", [reward], 1)
        else:
            value = float(reward) if isinstance(reward, BOOLEANS) else reward
            loops.feedback[0, 0] = checks.number("reward", value, 0.0, 1.0)
        refuse_others(decision)
        least = self._least_share
        if least and (decision.propensity or 0.0) * len(decision.offered) < least:
            self.check_propensities([decision.propensity], [len(decision.offered)])
        one = loops.one
        one.lanes[0] = self.lanes.lane(decision.key)
        if decision.offered is not self.offer.slots or len(decision.context):
            one = self._decisions.batch([decision])
            self._decisions.actions([decision], one)
        loops.action[0] = decision.slots
        loops.epoch[0] = decision.epoch
        loops.propensity[0] = math.nan if decision.propensity is None else decision.propensity
        row = loops.action, loops.feedback, loops.propensity, loops.epoch, loops.fresh
        return bool(loops.learn(loops.params, self.lanes.state, one, self.lanes.plays, *row))

    def learn(self, decisions: Sequence[Decision], rewards: npt.ArrayLike) -> Booleans:
        """Learn in the order of decisions; return of each whether it taught something.

        Raises
        ------
        InvalidValue, UnknownName
            As ``Learner.learn_many``; then nothing was learned.
        """
        values = self._decisions.feedback("rewards", rewards, len(decisions))
        if not len(decisions):
            return np.zeros(0, np.bool_)
        batch, actions, propensities, epochs = self._decisions.columns(decisions)
        self.check_propensities(propensities, batch.stops - batch.starts)
        return self.learn_rows(batch, actions, values, propensities, epochs)

    def check_propensities(
        self,
        propensities: Sequence[float | None] | Floats,
        offered: Sequence[int] | Ints,
        error: Callable[[int, str], Exception] | None = None,
    ) -> None:
        """Check that the policy can have given propensities, if it weighs by them.

        Parameters
        ----------
        propensities : array of float64, shape (rows,)
            NaN, or None, where there is none.
        offered : array of int64, shape (rows,)
            How many arms were on offer.
        error : function, optional
            Returns what to raise for a row and what is wrong; by default an ``InvalidValue``.

        Raises
        ------
        InvalidValue
            If one is missing, or below what the policy gives at least.
        """
        if not self._least_share:
            return
        given = np.array(propensities, np.float64)  # NumPy takes None for NaN.
        least = self._least_share / np.asarray(offered, np.float64) ** self.policy.action_width
        wrong = ~(given >= least)
        if wrong.any():
            row = int(np.argmax(wrong))
            value = None if np.isnan(given[row]) else float(given[row])
            remedy = (
                f"{type(self.policy).__name__} weighs by it, and gives at least {least[row]:.6g} "
                "with so many arms on offer; give the propensity with which this was chosen, or "
                "have a policy that does not weigh by it"
            )
            if error is not None:
                raise error(row, f"propensity: {value} is not allowed; {remedy}")
            raise InvalidValue("propensity", value, remedy)

    def learn_rows(
        self, batch: Batch, actions: Ints, feedback: Floats, propensities: Floats, epochs: Ints
    ) -> Booleans:
        """Learn from columns that are known to fit; return of each row whether it taught something.

        Parameters
        ----------
        batch : Batch
            The impressions, in lanes of this learner.
        actions : array of int64, shape (rows, action_width)
        feedback : array of float64, shape (rows, feedback_width)
        propensities : array of float64, shape (rows,)
        epochs : array of int64, shape (rows,)
        """
        fresh = np.empty(len(actions), np.bool_)
        given = batch, self.lanes.plays, actions, feedback, propensities, epochs, fresh
        self.loops.learn(self.loops.params, self.lanes.state, *given)
        return fresh

    def correct(self, decisions: Sequence[Decision], before: npt.ArrayLike, after: npt.ArrayLike) -> int:
        """Put other rewards in the place of those that were learned; return how many were.

        Raises
        ------
        InvalidValue, UnknownName
            As ``Learner.correct_many``; then nothing was corrected.
        """
        if not self.policy.correctable:
            raise InvalidValue(
                "policy", self.policy, "it cannot take out what it has learned; see correctable"
            )
        old = self._decisions.feedback("before", before, len(decisions))
        new = self._decisions.feedback("after", after, len(decisions))
        if not decisions:
            return 0
        batch, actions, propensities, epochs = self._decisions.columns(decisions)
        given = batch, actions, old, new, propensities, epochs
        return int(self.loops.correct(self.loops.params, self.lanes.state, *given))

    # What a log holds ------------------------------------------------------------------------

    def recall(self, decisions: Sequence[Decision]) -> None:
        """Take in decisions that were made before, as read from a log, without deciding again.

        Their keys get lanes and their impressions are observed; learning what came back for
        them then gives the very state that the learner had.
        """
        if isinstance(decisions, Decisions) and decisions.lanes is self.lanes.of:
            batch = decisions.batch
        elif decisions:
            self.lanes.admit([d.key for d in decisions])
            batch = self._decisions.batch(decisions)
        else:
            return
        self.loops.observe(self.loops.params, self.lanes.state, batch)
        self.made += len(decisions)

    def relive(self, batch: Batch, actions: Ints, feedback: Floats, propensities: Floats) -> None:
        """Learn from what was shown elsewhere, as if it had been decided here and answered at once.

        Parameters
        ----------
        batch : Batch
            The impressions, in lanes of this learner.
        actions : array of int64, shape (rows, action_width)
        feedback : array of float64, shape (rows, feedback_width)
        propensities : array of float64, shape (rows,)
        """
        fresh = np.ones(len(actions), np.bool_)
        given = batch, self.lanes.plays, actions, feedback, propensities, fresh
        self.loops.relive(self.loops.params, self.lanes.state, *given)
        self.made += len(actions)

    def impressions(self, lanes: Ints, contexts: Floats) -> Batch:
        """Return impressions with all arms on offer, as columns.

        Parameters
        ----------
        lanes : array of int64, shape (rows,)
            As :meth:`Lanes.admit` gave them.
        contexts : array of float64, shape (rows, context_dim)
        """
        return self.loops.plain_batch(lanes, contexts)

    def decisions(self, batch: Batch, actions: Ints, epochs: Ints, propensities: Floats) -> Decisions[Any]:
        """Return decisions that were made here as columns, without their keys.

        Parameters
        ----------
        batch : Batch
            The impressions, in lanes of this learner.
        actions : array of int64, shape (rows, action_width)
            Slots of what was shown.
        epochs : array of int64, shape (rows,)
        propensities : array of float64, shape (rows,)
            NaN where the policy is deterministic.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.UCB1(arms=2), seed=1)
        >>> made = learner.choose_many(["tomato", "tomato"])
        >>> columns = made.batch, made.actions, made.epochs, made.propensities
        >>> again = learner.columns.decisions(*columns)
        >>> learner.learn_many(again, [0.0, 1.0])
        2
        """
        made = self.made, (), self.offer.names, None, actions, epochs, propensities
        return Decisions(*made, batch, self.lanes.of)


def knows_places(policy: Policy) -> bool:
    """Whether a policy shows lists and knows where in them its arms are likely to be."""
    return isinstance(policy, SlatePolicy) and policy.knows_places
