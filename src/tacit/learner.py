"""The learner: a policy, its state, its keys and its random generator in one object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit import checks
from tacit.arrays import Booleans, Floats, Ints
from tacit.assumptions import ContextWatch
from tacit.batch import Batch, choose_rows, correct_rows, learn_rows, observe_rows, weigh_rows
from tacit.decisions import Arm, Decision, Decisions
from tacit.dispatch import learns_from_propensity
from tacit.errors import InvalidValue, UnknownName
from tacit.policies.base import NO_FEATURES, Policy
from tacit.state import copied_into, leaves

Seed = int | np.random.SeedSequence | np.random.Generator | None

SPARE_LANES = 64


class Learner:
    """Decide and learn, each key on its own.

    Not safe for use from several threads at once.

    Parameters
    ----------
    policy : Policy
        The algorithm and its hyperparameters.
    seed : int, SeedSequence, Generator or None
        Where every random draw comes from. The same seed and the same calls give the same
        decisions and states, bit for bit. None draws a seed from the system.
    propensities : bool, default True
        Whether decisions carry their propensity. It costs time where it must be integrated
        (:class:`~tacit.Thompson`).

    Raises
    ------
    InvalidValue
        If ``policy`` is no policy or ``seed`` no seed.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.UCB1(arms=5), seed=7)
    >>> decision = learner.choose("independence day")
    >>> learner.learn(decision, reward=1.0)
    True
    >>> decisions = learner.choose_many(["tomato", "independence day"])
    >>> learner.learn_many(decisions, [0.0, 1.0])
    2
    >>> learner.keys
    ['independence day', 'tomato']
    """

    def __init__(self, policy: Policy, seed: Seed = None, *, propensities: bool = True) -> None:
        if not isinstance(policy, Policy):
            raise InvalidValue("policy", policy, "give a policy, such as UCB1(arms=5)")
        self.policy = policy
        self.rng = generator(seed)
        self.decisions = 0
        self.reports_propensities = propensities and policy.randomized
        self._lanes: dict[str, int] = {}
        self._capacity = 0
        self._state = policy.init(0)
        self._watch = ContextWatch(policy)
        self._first_features: list[tuple[Floats, Floats]] | None = []
        self._set_arms(policy.arms, retired=())

    def __repr__(self) -> str:
        return f"<Learner of {self.policy}: {len(self._lanes)} keys, {self.decisions} decisions>"

    @property
    def state(self) -> Any:
        """What was learned: named arrays with a leading lane axis (some lanes may be spare)."""
        return self._state

    @property
    def keys(self) -> list[str]:
        """All keys in the order of their lanes."""
        return list(self._lanes)

    def __len__(self) -> int:
        return len(self._lanes)

    def __contains__(self, key: str) -> bool:
        return key in self._lanes

    def __bool__(self) -> bool:
        return True

    @property
    def arms(self) -> list[Arm]:
        """The arms on offer."""
        return [self._names[slot] for slot in self._offered.tolist()]

    @property
    def retired(self) -> list[Arm]:
        """The arms that are no longer on offer."""
        offered = set(self._offered.tolist())
        return [name for slot, name in enumerate(self._names) if slot not in offered]

    def lane(self, key: str) -> int:
        """Return the lane of a known key.

        Raises
        ------
        UnknownName
            If nothing was ever chosen for ``key``.
        """
        try:
            return self._lanes[key]
        except KeyError:
            raise UnknownName(f"key: nothing was ever chosen for {key!r}") from None

    def epoch(self, key: str) -> int:
        """Return how often the lane of ``key`` has restarted."""
        return int(self.policy.epoch(self.policy.params, self._state, self.lane(key)))

    def restarts(self, key: str) -> list[Any]:
        """Return when the lane of ``key`` restarted, oldest first.

        Raises
        ------
        UnknownName
            If nothing was ever chosen for ``key``, or the policy keeps no such record.
        """
        try:
            restarts = self.policy.restarts  # type: ignore[attr-defined]
        except AttributeError:
            name = type(self.policy).__name__
            raise UnknownName(f"restarts: {name} keeps no record of them; see epoch()") from None
        return list(restarts(self._state, self.lane(key)))

    def posterior(self, key: str) -> Any:
        """Return what is believed about the parameters of ``key``, as the policy describes it.

        Raises
        ------
        UnknownName
            If nothing was ever chosen for ``key``, or the policy has no posterior.
        """
        try:
            posterior = self.policy.posterior  # type: ignore[attr-defined]
        except AttributeError:
            name = type(self.policy).__name__
            raise UnknownName(f"posterior: {name} has none") from None
        return posterior(self._state, self.lane(key))

    def diagnostics(self) -> Any:
        """Return what the policy's record says of its assumptions, all keys together.

        Raises
        ------
        UnknownName
            If the policy keeps no such record.

        Examples
        --------
        >>> import tacit
        >>> policy = tacit.BWC(arms=2, classifier=tacit.Rectangle(dim=1, margin=0.1))
        >>> learner = tacit.Learner(policy, seed=1)
        >>> decision = learner.choose("independence day", context=[0.2])
        >>> learner.diagnostics().restarts
        1
        """
        try:
            diagnostics = self.policy.diagnostics  # type: ignore[attr-defined]
        except AttributeError:
            name = type(self.policy).__name__
            raise UnknownName(f"diagnostics: {name} keeps no record for them") from None
        return diagnostics(self._state)._replace(outside=self._watch.outside)

    # Arms ------------------------------------------------------------------------------------

    def _set_arms(self, arms: int | tuple[str, ...] | None, retired: Sequence[Arm]) -> None:
        self.policy = self.policy.with_arms(arms)
        self._names: tuple[Arm, ...] = tuple(range(arms)) if isinstance(arms, int) else arms or ()
        self._slots = {name: slot for slot, name in enumerate(self._names)}
        out = {self._slots[name] for name in retired}
        self._offered = np.array([s for s in range(len(self._names)) if s not in out], np.int64)
        self._prepare()

    def add_arm(self, name: str | None = None) -> Arm:
        """Put a new arm on offer, or a retired one with what was learned of it.

        Parameters
        ----------
        name : str, optional
            The arm's name; none where arms are numbered.

        Returns
        -------
        int or str
            The arm.

        Raises
        ------
        InvalidValue
            If the arm is on offer already, or named where arms are numbered, or the reverse.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.UCB1(arms=["holiday"]), seed=1)
        >>> learner.add_arm("film")
        'film'
        >>> learner.arms
        ['holiday', 'film']
        """
        arms = self.policy.arms
        retired = self.retired
        if arms is None:
            raise InvalidValue(
                "arm", name, "this policy knows arms by features; say at each decision what is on"
            )
        if isinstance(arms, int):
            if name is not None and name not in retired:
                raise InvalidValue(
                    "arm", name, "arms are numbered here; call add_arm() without a name"
                )
            added: Arm = arms if name is None else name
        else:
            added = checks.name("arm", name)
            if added in self._slots and added not in retired:
                raise InvalidValue("arm", name, "it is on offer already")
        if added in retired:
            retired.remove(added)
            self._set_arms(arms, retired)
            return added
        grown = arms + 1 if isinstance(arms, int) else (*arms, str(added))
        self.policy = self.policy.with_arms(grown)
        self._state = copied_into(self._state, self.policy.init(self._capacity))
        self._set_arms(grown, retired)
        return added

    def retire_arm(self, arm: Arm) -> None:
        """Take an arm off offer; what was learned of it is kept.

        Raises
        ------
        UnknownName
            If there is no such arm.
        InvalidValue
            If it is the last one on offer.
        """
        if arm not in self._slots:
            raise UnknownName(f"arm: there is no arm {arm!r}; the arms are {list(self._names)}")
        retired = self.retired
        if arm in retired:
            return
        if len(self._offered) == 1:
            raise InvalidValue("arm", arm, "it is the last arm on offer; add another one first")
        self._set_arms(self.policy.arms, [*retired, arm])

    # Lanes -----------------------------------------------------------------------------------

    def _new_lane(self, key: str) -> int:
        lane = len(self._lanes)
        self._lanes[checks.name("key", key)] = lane
        if lane >= self._capacity:
            self._capacity = max(SPARE_LANES, 2 * self._capacity)
            self._state = copied_into(self._state, self.policy.init(self._capacity))
        return lane

    def lanes(self, keys: Sequence[str]) -> Ints:
        """Return the lanes of keys; a key that was never seen gets one.

        Raises
        ------
        InvalidValue
            If a key is too long.
        """
        return self._lanes_of(keys)

    def _lanes_of(self, keys: Sequence[str]) -> Ints:
        lanes = list(map(self._lanes.get, keys))
        if None in lanes:
            new = dict.fromkeys(k for k, lane in zip(keys, lanes, strict=True) if lane is None)
            for key in new:
                checks.name("key", key)
            for key in new:
                self._new_lane(key)
            lanes = list(map(self._lanes.get, keys))
        return np.array(lanes, dtype=np.int64)

    def admit(self, keys: Sequence[str]) -> Ints:
        """Return the lanes of keys, which are made for those that are new.

        Raises
        ------
        InvalidValue
            If a key is empty or too long.
        """
        return self._lanes_of(keys)

    # Decide ----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Compile the loops, or find them in the cache, and keep their entry points."""
        from tacit.compiled import compiled

        params = self.policy.params
        self._params = params
        self._weigh: Any = None
        self._one = self._shared_batch(1)
        self._action = np.empty((1, self.policy.action_width), np.int64)
        self._feedback = np.empty((1, self.policy.feedback_width))
        self._epochs, self._propensity = np.empty(1, np.int64), np.full(1, np.nan)
        self._fresh = np.zeros(1, np.bool_)
        asked = self._propensity if self._asks else None
        one, action, epochs = self._one, self._action, self._epochs
        self._choose = compiled(choose_rows, params).entry(
            (params, self._state, one, self.rng, action, epochs, asked)
        )
        self._observe = compiled(observe_rows, params).entry((params, self._state, one))
        told = self._feedback, self._propensity, epochs, self._fresh
        self._learn = compiled(learn_rows, params).entry((params, self._state, one, action, *told))

    @property
    def _asks(self) -> bool:
        return self.reports_propensities or learns_from_propensity(self._params)

    def _shared_batch(self, rows: int) -> Batch:
        """Return a batch in which every row is offered all arms and has no context yet."""
        return Batch(
            lanes=np.zeros(rows, np.int64),
            arms=self._offered,
            starts=np.zeros(rows, np.int64),
            stops=np.full(rows, len(self._offered)),
            contexts=np.zeros((rows, self.policy.context_dim)),
            relevance=NO_FEATURES,
            examination=NO_FEATURES,
        )

    def slots(self, arms: Sequence[Arm]) -> Ints:
        """Return the slots of arms that may be offered.

        Raises
        ------
        InvalidValue
            If there is none, or one twice.
        UnknownName
            If an arm is unknown or retired.
        """
        offered = set(self._offered.tolist())
        slots = []
        for arm in arms:
            slot = self._slots.get(arm)
            if slot is None or slot not in offered:
                raise UnknownName(f"arms: {arm!r} is not on offer; on offer are {self.arms}")
            slots.append(slot)
        if not slots or len(set(slots)) < len(slots):
            raise InvalidValue("arms", arms, "offer at least one arm, and each only once")
        return np.array(slots, np.int64)

    def _checked_contexts(self, contexts: Any, rows: int) -> Floats:
        dim = self.policy.context_dim
        if contexts is None and dim == 0:
            return np.zeros((rows, 0))
        try:
            array = np.ascontiguousarray(contexts, dtype=np.float64)
        except (TypeError, ValueError):
            array = np.full((0, 0), np.nan)
        if dim == 0 and array.ndim == 2 and len(array) == rows:
            return np.zeros((rows, 0))
        if array.shape != (rows, dim) or not np.isfinite(array).all():
            raise InvalidValue(
                "context", contexts, f"give {dim} finite numbers for each impression"
            )
        self._watch.look(array)
        return array

    def choose(
        self,
        key: str,
        context: npt.ArrayLike | None = None,
        arms: Sequence[Arm] | None = None,
        *,
        relevance: npt.ArrayLike | None = None,
        examination: npt.ArrayLike | None = None,
    ) -> Decision:
        """Choose what to show for one impression.

        Parameters
        ----------
        key : str
            What the decision is for: a query, a slot; at most 512 bytes.
        context : array of float, shape (context_dim,), optional
            Signals about the key, for policies that read them.
        arms : sequence of arms, optional
            The arms on offer for this impression; by default all that are not retired. Where
            the policy knows arms by their features only, names for those that have them.
        relevance, examination : array of float, shape (arms on offer, d), optional
            Features of each arm on offer, for policies that read them.

        Returns
        -------
        Decision

        Raises
        ------
        InvalidValue
            If the key is too long, or the context or the features do not fit.
        UnknownName
            If an arm is unknown or retired.

        Warns
        -----
        AssumptionWarning
            Once, if a context is outside of what the policy's classifier knows.
        """
        one = self._one
        if arms is not None or context is not None or one.contexts.shape[1] or self._featured:
            return self.choose_many(
                [key],
                None if context is None else [context],  # type: ignore[arg-type]
                None if arms is None else [arms],
                relevance=None if relevance is None else [relevance],
                examination=None if examination is None else [examination],
            )[0]
        lane = self._lanes.get(key)
        one.lanes[0] = self._new_lane(key) if lane is None else lane
        asked = self._propensity if self._asks else None
        self._choose(self._params, self._state, one, self.rng, self._action, self._epochs, asked)
        slots, propensity = self._action[0].copy(), float(self._propensity[0])
        decision = Decision(
            self.decisions,
            key,
            tuple([self._names[slot] for slot in slots.tolist() if slot >= 0]),
            propensity if self._asks and propensity == propensity else None,
            int(self._epochs[0]),
            self._offered,
            slots,
            one.contexts[0],
        )
        self.decisions += 1
        return decision

    def choose_many(
        self,
        keys: Sequence[str],
        contexts: npt.ArrayLike | None = None,
        arms: Sequence[Sequence[Arm] | None] | None = None,
        *,
        relevance: Sequence[npt.ArrayLike] | None = None,
        examination: Sequence[npt.ArrayLike] | None = None,
    ) -> Decisions:
        """Choose what to show for each of many impressions, in their order.

        Parameters
        ----------
        keys : sequence of str
            A key per impression; the same key may stand there many times.
        contexts : array of float, shape (impressions, context_dim), optional
        arms : sequence, optional
            Per impression the arms on offer, or None for all.
        relevance, examination : sequence of array, optional
            Per impression the features of each arm on offer; or one array of shape
            (impressions, arms on offer, d).

        Returns
        -------
        Decisions

        Raises
        ------
        InvalidValue, UnknownName
            As :meth:`choose`; then nothing was decided.
        """
        rows = len(keys)
        if arms is not None and len(arms) != rows:
            remedy = f"give one list of arms for each of {rows} impressions"
            raise InvalidValue("arms", arms, remedy)
        blocks, sizes = self._checked_features(relevance, examination, rows)
        offers = self._offers(arms, sizes, rows)
        context_rows = self._checked_contexts(contexts, rows)
        batch = Batch(self._lanes_of(keys), *offers, context_rows, *blocks)
        self._advise(*blocks)
        actions = np.empty((rows, self.policy.action_width), np.int64)
        epochs, propensities = np.empty(rows, np.int64), np.full(rows, np.nan)
        asked = propensities if self._asks else None
        self._choose(self._params, self._state, batch, self.rng, actions, epochs, asked)
        first = self.decisions
        self.decisions += rows
        named = (arms or [None] * rows) if self.policy.arms is None else None
        return Decisions(
            first,
            tuple(keys),
            self._names,
            named,
            actions,
            epochs,
            propensities,
            batch,
            self._lanes,
        )

    def probabilities(
        self,
        key: str,
        context: npt.ArrayLike | None = None,
        arms: Sequence[Arm] | None = None,
        *,
        relevance: npt.ArrayLike | None = None,
        examination: npt.ArrayLike | None = None,
    ) -> Floats | None:
        """Return with what probability each arm on offer would be chosen, now.

        Parameters
        ----------
        key, context, arms, relevance, examination
            As for :meth:`choose`.

        Returns
        -------
        array of float, shape (arms on offer,), or None
            None where the policy does not know them.

        Raises
        ------
        InvalidValue, UnknownName
            As :meth:`choose`; or if the policy does not show single arms.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.EpsilonGreedy(arms=4, epsilon=0.2), seed=1)
        >>> learner.probabilities("tomato").tolist()
        [0.25, 0.25, 0.25, 0.25]
        """
        if self.policy.shows != "arm":
            raise InvalidValue("policy", self.policy, "give one that shows a single arm")
        blocks, sizes = self._checked_features(
            None if relevance is None else [relevance],
            None if examination is None else [examination],
            1,
        )
        offers = self._offers(None if arms is None else [arms], sizes, 1)
        contexts = self._checked_contexts(None if context is None else [context], 1)
        batch = Batch(self._lanes_of([key]), *offers, contexts, *blocks)
        found = np.empty(len(batch.arms))
        if self._weigh is None:
            from tacit.compiled import compiled

            # Few ask for it, so it is not compiled for all.
            driver = compiled(weigh_rows, self._params)
            self._weigh = driver.entry((self._params, self._state, batch, found))
        self._weigh(self._params, self._state, batch, found)
        return None if np.isnan(found).any() else found

    def tune(self, **hyperparameters: Any) -> None:
        """Go on with other hyperparameters, and with all that was learned.

        Raises
        ------
        InvalidValue
            If a value is out of its range, or the policy would keep its state otherwise.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.EpsilonGreedy(arms=4, epsilon=0.2), seed=1)
        >>> learner.tune(epsilon=0.1)
        >>> learner.policy.epsilon
        0.1
        """
        tuned = replace(self.policy, **hyperparameters)
        for (name, now), (_, then) in zip(
            leaves(self.policy.init(1)), leaves(tuned.init(1)), strict=True
        ):
            if now.shape != then.shape:
                raise InvalidValue(name, then.shape, f"keep the shape of the state, {now.shape}")
        self.policy = tuned
        self._prepare()

    @property
    def _featured(self) -> bool:
        return self.policy.feature_dims != (0, 0)

    def _advise(self, relevance: Floats, examination: Floats) -> None:
        """Let the policy judge the features once, when there are enough of them."""
        if self._first_features is None:
            return
        if 0 in self.policy.feature_dims:
            self._first_features = None
            return
        self._first_features.append((relevance, examination))
        if sum(len(block) for block, _ in self._first_features) > 2 * sum(self.policy.feature_dims):
            self.policy.advise(*map(np.concatenate, zip(*self._first_features, strict=True)))
            self._first_features = None

    def _checked_features(
        self, relevance: Any, examination: Any, rows: int
    ) -> tuple[tuple[Floats, Floats], Ints | None]:
        """Return both blocks of features with how many arms each row of them is for."""
        blocks, sizes = [NO_FEATURES, NO_FEATURES], None
        names = "relevance", "examination"
        for i, (field, given) in enumerate(zip(names, (relevance, examination), strict=True)):
            dim = self.policy.feature_dims[i]
            if dim == 0:
                continue
            blocks[i], block_sizes = _stacked(field, given, rows, dim)
            if sizes is not None and not np.array_equal(sizes, block_sizes):
                raise InvalidValue(
                    field, given, "give as many rows as of relevance: one for each arm on offer"
                )
            sizes = block_sizes
        return (blocks[0], blocks[1]), sizes

    def _offers(
        self, arms: Sequence[Sequence[Arm] | None] | None, sizes: Ints | None, rows: int
    ) -> tuple[Ints, Ints, Ints]:
        """Return the slots on offer, all rows in one array, and where each row's are."""
        if arms is None and sizes is None:
            return self._offered, np.zeros(rows, np.int64), np.full(rows, len(self._offered))
        each = [None] * rows if arms is None else arms
        if self.policy.arms is None:
            assert sizes is not None
            for names, size in zip(each, sizes.tolist(), strict=True):
                _check_names(names, size)
            offered = [np.arange(size) for size in sizes.tolist()]
        else:
            offered = [self._offered if offer is None else self.slots(offer) for offer in each]
        counts = np.array([len(offer) for offer in offered], np.int64)
        if sizes is not None and not np.array_equal(sizes, counts):
            raise InvalidValue(
                "relevance", sizes.tolist(), f"give a row for each arm on offer: {counts.tolist()}"
            )
        stops = np.cumsum(counts)
        joined = np.concatenate(offered) if offered else self._offered
        return joined, stops - counts, stops

    # Learn -----------------------------------------------------------------------------------

    def learn(self, decision: Decision, reward: float | Sequence[float]) -> bool:
        """Learn from what came back for a decision.

        Parameters
        ----------
        decision : Decision
            A decision of this learner.
        reward : float or sequence of float
            For an arm: a click (1.0), none (0.0), or a reward between. For a duel: 1.0 if the
            left one won, 0.0 if the right one did, 0.5 for a tie. For a slate: a number for
            each position.

        Returns
        -------
        bool
            False if the key's lane has restarted since: then it taught nothing.

        Raises
        ------
        InvalidValue
            If a reward is outside [0, 1], or the decision is of a learner of another kind.
        UnknownName
            If nothing was ever chosen for the decision's key.
        """
        if self._feedback.shape[1] > 1:
            self._feedback[:] = self._checked_feedback("reward", [reward], 1)
        else:
            value = float(reward) if isinstance(reward, bool | np.bool_) else reward
            self._feedback[0, 0] = checks.number("reward", value, 0.0, 1.0)  # type: ignore[arg-type]
        if not isinstance(decision, Decision):
            raise _no_decision(decision)
        one = self._one
        one.lanes[0] = self.lane(decision.key)
        if decision.offered is not self._offered or len(decision.context):
            one = self._batch_of([decision])
            self._checked_actions([decision], one)
        self._action[0] = decision.slots
        self._epochs[0] = decision.epoch
        self._propensity[0] = np.nan if decision.propensity is None else decision.propensity
        learned = self._learn(
            self._params,
            self._state,
            one,
            self._action,
            self._feedback,
            self._propensity,
            self._epochs,
            self._fresh,
        )
        return bool(learned)

    def learn_many(self, decisions: Sequence[Decision], rewards: npt.ArrayLike) -> int:
        """Learn from what came back for many decisions, in their order.

        Parameters
        ----------
        decisions : Decisions or sequence of Decision
        rewards : array of float, shape (decisions,) or, for slates, (decisions, positions)
            Each in [0, 1].

        Returns
        -------
        int
            How many taught something; the others were made before their lane's last restart.

        Raises
        ------
        InvalidValue
            If there is not one reward within [0, 1] for each, or a decision is of a learner of
            another kind; then nothing was learned.
        UnknownName
            If nothing was ever chosen for a decision's key.
        """
        return int(np.count_nonzero(self.learn_each(decisions, rewards)))

    def learn_each(self, decisions: Sequence[Decision], rewards: npt.ArrayLike) -> Booleans:
        """Learn as :meth:`learn_many`; say of each decision whether it taught something.

        Returns
        -------
        array of bool, shape (decisions,)

        Raises
        ------
        InvalidValue, UnknownName
            As :meth:`learn_many`; then nothing was learned.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.UCB1(arms=2), seed=1)
        >>> decisions = learner.choose_many(["tomato", "tomato"])
        >>> learner.learn_each(decisions, [0.0, 1.0]).tolist()
        [True, True]
        """
        values = self._checked_feedback("rewards", rewards, len(decisions))
        fresh = np.zeros(len(decisions), np.bool_)
        if len(decisions):
            batch, actions, propensities, epochs = self._columns(decisions)
            given = batch, actions, values, propensities, epochs, fresh
            self._learn(self._params, self._state, *given)
        return fresh

    def correct_many(
        self, decisions: Sequence[Decision], before: npt.ArrayLike, after: npt.ArrayLike
    ) -> int:
        """Put other rewards in the place of those that were learned, whatever was learned since.

        Parameters
        ----------
        decisions : Decisions or sequence of Decision
        before, after : array of float, shape (decisions,)
            What was learned for each, and what it shall be; in [0, 1].

        Returns
        -------
        int
            How many were corrected; the others were made before their lane's last restart.

        Raises
        ------
        InvalidValue
            If the policy cannot take out what it has learned, or a reward is outside [0, 1].

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.UCB1(arms=2), seed=1)
        >>> decisions = learner.choose_many(["tomato", "tomato"])
        >>> learner.learn_many(decisions, [0.0, 0.0])
        2
        >>> learner.correct_many(decisions[:1], [0.0], [1.0])
        1
        >>> float(learner.state.rewards.sum()), float(learner.state.plays.sum())
        (1.0, 2.0)
        """
        from tacit.compiled import compiled

        if not self.policy.correctable:
            raise InvalidValue(
                "policy", self.policy, "it cannot take out what it has learned; see correctable"
            )
        old = self._checked_feedback("before", before, len(decisions))
        new = self._checked_feedback("after", after, len(decisions))
        if not decisions:
            return 0
        correct = compiled(correct_rows, self._params)
        batch, actions, propensities, epochs = self._columns(decisions)
        return int(
            correct(self._params, self._state, batch, actions, old, new, propensities, epochs)
        )

    def _columns(self, decisions: Sequence[Decision]) -> tuple[Batch, Ints, Floats, Ints]:
        """Return impressions, actions, propensities and epochs of decisions."""
        if isinstance(decisions, Decisions) and decisions.lanes is self._lanes:
            return decisions.batch, decisions.actions, decisions.propensities, decisions.epochs
        batch = self._batch_of(decisions)
        return (
            batch,
            self._checked_actions(decisions, batch),
            # NumPy takes None for NaN.
            np.array([d.propensity for d in decisions], np.float64),
            np.array([d.epoch for d in decisions], np.int64),
        )

    def _checked_feedback(self, field: str, rewards: Any, rows: int) -> Floats:
        """Return feedback as an array of rows."""
        width = self.policy.feedback_width
        try:
            given = np.asarray(rewards)
        except ValueError:
            given = np.empty(0, object)
        shape = (rows,) if width == 1 else (rows, width)
        if given.shape != shape or (given.dtype.kind not in "fiub" and given.size):
            each = "one" if width == 1 else f"{width} numbers"
            raise InvalidValue(field, rewards, f"give {each} for each of {rows} decisions")
        values = np.ascontiguousarray(given, dtype=np.float64)
        wrong = ~((values >= 0.0) & (values <= 1.0))
        if wrong.any():
            first = np.unravel_index(int(np.argmax(wrong)), shape)
            place = ", ".join(map(str, first))
            raise InvalidValue(f"{field}[{place}]", float(values[first]), "give a number in [0, 1]")
        return values.reshape(rows, width)

    def _batch_of(self, decisions: Sequence[Decision]) -> Batch:
        """Return decisions as columns, whoever made them, if they fit."""
        rows = len(decisions)
        if not rows:
            return self._shared_batch(0)
        if set(map(type, decisions)) != {Decision}:
            raise _no_decision(next(d for d in decisions if type(d) is not Decision))
        _, keys, _, _, _, offered, _, contexts, relevance, examination = zip(
            *decisions, strict=True
        )
        lanes = list(map(self._lanes.get, keys))
        if None in lanes:
            lanes = list(map(self.lane, keys))
        arms, starts, stops = offered[0], np.zeros(rows, np.int64), np.full(rows, len(offered[0]))
        if self._featured or len(set(map(id, offered))) > 1:
            sizes = np.array([len(offer) for offer in offered], np.int64)
            stops = np.cumsum(sizes)
            arms, starts = np.concatenate(offered), stops - sizes
        blocks = NO_FEATURES, NO_FEATURES
        if self._featured:
            blocks = np.concatenate(relevance), np.concatenate(examination)
            wanted = [(len(arms), dim) if dim else (0, 0) for dim in self.policy.feature_dims]
            if [block.shape for block in blocks] != wanted:
                raise self._foreign(decisions)
        dim = self.policy.context_dim
        if set(map(len, contexts)) != {dim}:
            raise self._foreign(decisions)
        if self.policy.arms is not None and arms.size and arms.max() >= len(self._names):
            raise self._foreign(decisions)
        return Batch(
            np.array(lanes, np.int64),
            arms,
            starts,
            stops,
            np.concatenate(contexts).reshape(rows, dim) if dim else np.empty((rows, 0)),
            *blocks,
        )

    def _checked_actions(self, decisions: Sequence[Decision], batch: Batch) -> Ints:
        """Return what decisions showed, if this learner could have shown it.

        Compiled code looks at no bounds: a slot that is none would be written elsewhere.
        """
        width = self.policy.action_width
        slots = [d.slots for d in decisions]
        if set(map(len, slots)) != {width}:
            raise self._foreign(decisions)
        actions = np.concatenate(slots, dtype=np.int64).reshape(-1, width)
        limits = batch.stops - batch.starts if self.policy.arms is None else len(self._names)
        least = -1 if self.policy.shows == "slate" else 0
        if ((actions < least) | (actions >= np.reshape(limits, (-1, 1)))).any():
            raise self._foreign(decisions)
        return actions

    def _foreign(self, decisions: Sequence[Decision]) -> InvalidValue:
        given = decisions[0] if len(decisions) == 1 else f"{len(decisions)} decisions"
        return InvalidValue("decision", given, f"give decisions of a learner of {self.policy}")

    def recall(self, decisions: Sequence[Decision]) -> None:
        """Take in decisions that were made before, as read from a log, without deciding again.

        Their keys get lanes and their impressions are observed; learning what came back for
        them then gives the very state that the learner had.
        """
        if isinstance(decisions, Decisions) and decisions.lanes is self._lanes:
            batch = decisions.batch
        else:
            self._lanes_of([d.key for d in decisions])
            batch = self._batch_of(decisions)
        self._observe(self._params, self._state, batch)
        self.decisions += len(decisions)

    def impressions(self, lanes: Ints, contexts: Floats) -> Batch:
        """Return impressions with all arms on offer, as columns.

        Parameters
        ----------
        lanes : array of int64, shape (rows,)
            As :meth:`lanes` gave them.
        contexts : array of float64, shape (rows, context_dim)
        """
        return self._shared_batch(len(lanes))._replace(lanes=lanes, contexts=contexts)

    def columns(self, batch: Batch, actions: Ints, epochs: Ints, propensities: Floats) -> Decisions:
        """Return decisions that were made here before as columns, without their keys.

        Parameters
        ----------
        batch : Batch
            The impressions, in lanes of this learner.
        actions : array of int64, shape (rows, action_width)
            Slots of what was shown.
        epochs : array of int64, shape (rows,)
        propensities : array of float64, shape (rows,)
            NaN where the policy is deterministic.

        Returns
        -------
        Decisions
            For :meth:`learn_each`, :meth:`correct_many` and :meth:`recall`.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.UCB1(arms=2), seed=1)
        >>> made = learner.choose_many(["tomato", "tomato"])
        >>> again = learner.columns(made.batch, made.actions, made.epochs, made.propensities)
        >>> learner.learn_many(again, [0.0, 1.0])
        2
        """
        made = self.decisions, (), self._names, None, actions, epochs, propensities
        return Decisions(*made, batch, self._lanes)

    # Snapshots -------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write a snapshot; going on from it equals never having stopped, bit for bit.

        The file holds arrays and a JSON header; it replaces an older one only when complete.
        """
        from tacit.snapshot import write

        write(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Learner:
        """Read a snapshot; runs no code that the file could choose.

        A policy of one's own must have been imported before, so that its name is known.

        Parameters
        ----------
        path : path
            Written by :meth:`save`.

        Raises
        ------
        SnapshotError
            If the file is damaged, truncated, foreign or of a newer version.
        UnknownName
            If its policy is not known here.
        """
        from tacit.snapshot import read

        return read(Path(path))

    def restore(
        self, state: Any, keys: Sequence[str], retired: Sequence[Arm], decisions: int
    ) -> None:
        """Take over the parts of a snapshot."""
        self._lanes = {checks.name("key", key): lane for lane, key in enumerate(keys)}
        self._state, self._capacity = state, len(keys)
        self.decisions = decisions
        self._set_arms(self.policy.arms, retired)


def _no_decision(given: Any) -> InvalidValue:
    return InvalidValue("decision", given, "give what choose returned")


def _stacked(field: str, given: Any, rows: int, dim: int) -> tuple[Floats, Ints]:
    """Return the feature matrices of all rows one below the other, with their lengths."""

    def refusal() -> InvalidValue:
        # Made only when needed: its message prints the features, which takes its time.
        each = f"for each of {rows} impressions, {dim} finite numbers per arm on offer"
        return InvalidValue(field, given, f"give {each}")

    try:
        matrices = [np.asarray(matrix, dtype=np.float64) for matrix in given]
    except (TypeError, ValueError):
        raise refusal() from None
    sizes = np.array([len(matrix) if matrix.ndim == 2 else 0 for matrix in matrices], np.int64)
    fits = all(matrix.shape[1] == dim for matrix in matrices) if sizes.all() else False
    if len(matrices) != rows or not fits:
        raise refusal()
    stacked = np.concatenate(matrices) if rows else np.zeros((0, dim))
    if not np.isfinite(stacked).all():
        raise refusal()
    return stacked, sizes


def _check_names(names: Sequence[Arm] | None, size: int) -> None:
    """Refuse names that do not fit the arms on offer."""
    if names is not None and not len(names) == len(set(names)) == size:
        raise InvalidValue("arms", names, f"name each of the {size} arms on offer, all differently")


def generator(seed: Seed) -> np.random.Generator:
    """Return a generator for a seed.

    Raises
    ------
    InvalidValue
        If the seed is none, or a generator whose state a snapshot could not hold.
    """
    if isinstance(seed, np.random.Generator) and isinstance(seed.bit_generator, np.random.PCG64):
        return seed
    number = isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0
    if seed is None or number or isinstance(seed, np.random.SeedSequence):
        return np.random.Generator(np.random.PCG64(seed))  # type: ignore[arg-type]
    raise InvalidValue(
        "seed", seed, "give a whole number of at least 0, a SeedSequence, or a Generator over PCG64"
    )
