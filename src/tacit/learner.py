"""The learner: a policy, its state, its keys and its random generator in one object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from tacit import checks
from tacit.arrays import Floats, Ints
from tacit.assumptions import ContextWatch
from tacit.batch import Batch, choose_rows, learn_rows, observe_rows
from tacit.dispatch import learns_from_propensity
from tacit.errors import InvalidValue, UnknownName
from tacit.policies.base import Policy
from tacit.state import copied_into

Arm = int | str
Seed = int | np.random.SeedSequence | np.random.Generator | None

SPARE_LANES = 64


class Decision(NamedTuple):
    """What was shown for one impression.

    Attributes
    ----------
    id : int
        Counts the decisions of the learner from 0.
    key : str
    arm : int or str
        The arm, by the name that the policy's ``arms`` gives it.
    propensity : float or None
        Probability with which the policy chose it; None where the policy is deterministic.
    epoch : int
        How often the key's lane had restarted.
    offered : array of int64
        Slots of the arms that were on offer.
    slot : int
        Slot of the arm.
    context : array of float64
    """

    id: int
    key: str
    arm: Arm
    propensity: float | None
    epoch: int
    offered: Ints
    slot: int
    context: Floats


@dataclass(frozen=True)
class Decisions(Sequence[Decision]):
    """Decisions as columns; a sequence of :class:`Decision`.

    Attributes
    ----------
    first_id : int
    keys : sequence of str
    names : tuple
        The arm of each slot.
    slots, epochs : array of int64, shape (rows,)
    propensities : array of float64, shape (rows,)
        NaN where the policy is deterministic.
    batch : Batch
        The impressions.
    """

    first_id: int
    keys: Sequence[str]
    names: tuple[Arm, ...]
    slots: Ints
    epochs: Ints
    propensities: Floats
    batch: Batch

    @property
    def arms(self) -> list[Arm]:
        """The arm of each decision."""
        return [self.names[slot] for slot in self.slots.tolist()]

    def __len__(self) -> int:
        return len(self.slots)

    @overload
    def __getitem__(self, index: int) -> Decision: ...
    @overload
    def __getitem__(self, index: slice) -> list[Decision]: ...
    def __getitem__(self, index: int | slice) -> Decision | list[Decision]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        slot = int(self.slots[i])
        propensity = float(self.propensities[i])
        return Decision(
            id=self.first_id + i,
            key=self.keys[i],
            arm=self.names[slot],
            propensity=None if propensity != propensity else propensity,
            epoch=int(self.epochs[i]),
            offered=self.batch.arms[self.batch.starts[i] : self.batch.stops[i]],
            slot=slot,
            context=self.batch.contexts[i],
        )

    def __iter__(self) -> Iterator[Decision]:
        return (self[i] for i in range(len(self)))


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
        self._set_arms(policy.arms, retired=())

    @property
    def state(self) -> Any:
        """What was learned: named arrays with a leading lane axis (some lanes may be spare)."""
        return self._state

    @property
    def keys(self) -> list[str]:
        """All keys in the order of their lanes."""
        return list(self._lanes)

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

    def _set_arms(self, arms: int | tuple[str, ...], retired: Sequence[Arm]) -> None:
        self.policy = self.policy.with_arms(arms)
        self._names: tuple[Arm, ...] = tuple(range(arms)) if isinstance(arms, int) else arms
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

    def _lanes_of(self, keys: Sequence[str]) -> Ints:
        lanes = list(map(self._lanes.get, keys))
        if None in lanes:
            for key in keys:
                checks.name("key", key)
            lanes = [self._lanes[k] if k in self._lanes else self._new_lane(k) for k in keys]
        return np.array(lanes, dtype=np.int64)

    # Decide ----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Compile the loops, or find them in the cache, and keep their entry points."""
        from tacit.compiled import compiled

        params = self.policy.params
        self._params = params
        self._one = self._shared_batch(1)
        self._chosen, self._epochs = np.empty(1, np.int64), np.empty(1, np.int64)
        self._reward, self._propensity = np.empty(1), np.full(1, np.nan)
        asked = self._propensity if self._asks else None
        one, chosen, epochs = self._one, self._chosen, self._epochs
        self._choose = compiled(choose_rows, params).entry(
            (params, self._state, one, self.rng, chosen, epochs, asked)
        )
        self._observe = compiled(observe_rows, params).entry((params, self._state, one))
        self._learn = compiled(learn_rows, params).entry(
            (params, self._state, one, chosen, self._reward, self._propensity, epochs)
        )

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
    ) -> Decision:
        """Choose an arm for one impression.

        Parameters
        ----------
        key : str
            What the decision is for: a query, a slot; at most 512 bytes.
        context : array of float, shape (context_dim,), optional
            Signals about the key, for policies that read them.
        arms : sequence of arms, optional
            The arms on offer for this impression; by default all that are not retired.

        Returns
        -------
        Decision

        Raises
        ------
        InvalidValue
            If the key is too long or the context does not fit.
        UnknownName
            If an arm is unknown or retired.

        Warns
        -----
        AssumptionWarning
            Once, if a context is outside of what the policy's classifier knows.
        """
        one = self._one
        if arms is not None or context is not None or one.contexts.shape[1]:
            contexts: Any = None if context is None else [context]
            return self.choose_many([key], contexts, None if arms is None else [arms])[0]
        lane = self._lanes.get(key)
        one.lanes[0] = self._new_lane(key) if lane is None else lane
        asked = self._propensity if self._asks else None
        self._choose(self._params, self._state, one, self.rng, self._chosen, self._epochs, asked)
        slot = int(self._chosen[0])
        propensity = float(self._propensity[0]) if self._asks else None
        decision = Decision(
            self.decisions,
            key,
            self._names[slot],
            propensity,
            int(self._epochs[0]),
            self._offered,
            slot,
            one.contexts[0],
        )
        self.decisions += 1
        return decision

    def choose_many(
        self,
        keys: Sequence[str],
        contexts: npt.ArrayLike | None = None,
        arms: Sequence[Sequence[Arm] | None] | None = None,
    ) -> Decisions:
        """Choose an arm for each of many impressions, in their order.

        Parameters
        ----------
        keys : sequence of str
            A key per impression; the same key may stand there many times.
        contexts : array of float, shape (impressions, context_dim), optional
        arms : sequence, optional
            Per impression the arms on offer, or None for all.

        Returns
        -------
        Decisions

        Raises
        ------
        InvalidValue, UnknownName
            As :meth:`choose`; then nothing was decided.
        """
        rows = len(keys)
        offers = self._offers(arms, rows)
        context_rows = self._checked_contexts(contexts, rows)
        batch = Batch(self._lanes_of(keys), *offers, context_rows)
        slots, epochs = np.empty(rows, np.int64), np.empty(rows, np.int64)
        propensities = np.full(rows, np.nan)
        asked = propensities if self._asks else None
        self._choose(self._params, self._state, batch, self.rng, slots, epochs, asked)
        first = self.decisions
        self.decisions += rows
        return Decisions(first, tuple(keys), self._names, slots, epochs, propensities, batch)

    def _offers(
        self, arms: Sequence[Sequence[Arm] | None] | None, rows: int
    ) -> tuple[Ints, Ints, Ints]:
        if arms is None:
            return self._offered, np.zeros(rows, np.int64), np.full(rows, len(self._offered))
        if len(arms) != rows:
            raise InvalidValue(
                "arms", arms, f"give one list of arms for each of {rows} impressions"
            )
        offered = [self._offered if offer is None else self.slots(offer) for offer in arms]
        sizes = np.array([len(offer) for offer in offered], np.int64)
        stops = np.cumsum(sizes)
        joined = np.concatenate(offered) if offered else self._offered
        return joined, stops - sizes, stops

    # Learn -----------------------------------------------------------------------------------

    def learn(self, decision: Decision, reward: float) -> bool:
        """Learn from what came back for a decision.

        Parameters
        ----------
        decision : Decision
            A decision of this learner.
        reward : float
            A click (1.0), none (0.0), or a reward between.

        Returns
        -------
        bool
            False if the key's lane has restarted since: then it taught nothing.

        Raises
        ------
        InvalidValue
            If the reward is outside [0, 1].
        """
        value = float(reward) if isinstance(reward, bool | np.bool_) else reward
        self._reward[0] = checks.number("reward", value, 0.0, 1.0)
        one = self._one
        one.lanes[0] = self.lane(decision.key)
        if decision.offered is not self._offered or len(decision.context):
            one = self._batch_of([decision])
        self._chosen[0] = decision.slot
        self._epochs[0] = decision.epoch
        self._propensity[0] = np.nan if decision.propensity is None else decision.propensity
        learned = self._learn(
            self._params,
            self._state,
            one,
            self._chosen,
            self._reward,
            self._propensity,
            self._epochs,
        )
        return bool(learned)

    def learn_many(self, decisions: Sequence[Decision], rewards: npt.ArrayLike) -> int:
        """Learn from what came back for many decisions, in their order.

        Parameters
        ----------
        decisions : Decisions or sequence of Decision
        rewards : array of float, shape (decisions,)
            Each in [0, 1].

        Returns
        -------
        int
            How many taught something; the others were made before their lane's last restart.

        Raises
        ------
        InvalidValue
            If there is not one reward within [0, 1] for each; then nothing was learned.
        """
        given = np.asarray(rewards)
        if given.shape != (len(decisions),) or (given.dtype.kind not in "fiub" and len(given)):
            raise InvalidValue(
                "rewards", rewards, f"give one for each of {len(decisions)} decisions"
            )
        values = np.ascontiguousarray(given, dtype=np.float64)
        wrong = ~((values >= 0.0) & (values <= 1.0))
        if wrong.any():
            first = int(np.argmax(wrong))
            raise InvalidValue(f"rewards[{first}]", float(values[first]), "give a number in [0, 1]")
        if isinstance(decisions, Decisions):
            batch, slots, epochs = decisions.batch, decisions.slots, decisions.epochs
            propensities = decisions.propensities
        else:
            batch = self._batch_of(decisions)
            slots = np.array([d.slot for d in decisions], np.int64)
            epochs = np.array([d.epoch for d in decisions], np.int64)
            propensities = np.array(
                [np.nan if d.propensity is None else d.propensity for d in decisions], np.float64
            )
        return int(
            self._learn(self._params, self._state, batch, slots, values, propensities, epochs)
        )

    def _batch_of(self, decisions: Sequence[Decision]) -> Batch:
        sizes = np.array([len(d.offered) for d in decisions], np.int64)
        stops = np.cumsum(sizes)
        contexts = [d.context for d in decisions]
        return Batch(
            lanes=np.array([self.lane(d.key) for d in decisions], np.int64),
            arms=np.concatenate([d.offered for d in decisions]) if decisions else self._offered,
            starts=stops - sizes,
            stops=stops,
            contexts=np.array(contexts, np.float64).reshape(
                len(decisions), self.policy.context_dim
            ),
        )

    def recall(self, decisions: Sequence[Decision]) -> None:
        """Take in decisions that were made before, as read from a log, without deciding again.

        Their keys get lanes and their impressions are observed; learning what came back for
        them then gives the very state that the learner had.
        """
        self._lanes_of([d.key for d in decisions])
        self._observe(self._params, self._state, self._batch_of(decisions))
        self.decisions += len(decisions)

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
