"""The learner: decide and learn, each key on its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.core.seeds import Seed, generator
from tacit.core.text import html_table
from tacit.errors import InvalidValue, UnknownName
from tacit.learning.columns import BatchLearner
from tacit.learning.decisions import NEWEST, Arm, ArmT_co, Decision, Decisions, Key, Learned
from tacit.learning.estimates import (
    DRAWS,
    Coefficients,
    Estimates,
    coefficients_of,
    estimates_by_draws,
    estimates_of,
)
from tacit.learning.impressions import Offer
from tacit.learning.snapshot import LearnerSnapshot, from_bytes, pieces, read, write
from tacit.policies.base import Policy

ONLY_KEY = "default"
"""The key of those who have one problem only."""
SHOWN = 12
"""Arms that a notebook names."""


class Learner(Generic[ArmT_co]):
    """Decide and learn, each key on its own.

    Not safe for use from several threads at once. What is given is checked before anything
    changes: ``InvalidValue`` names what is out of its range, ``UnknownName`` what is not known.
    A type checker may be told what arms are: ``learner: tacit.Learner[str] = …``. ``columns`` is the
    same learner for many impressions at once, unchecked.

    Parameters
    ----------
    policy : Policy
        The algorithm and its hyperparameters.
    seed : int, SeedSequence, Generator or None
        Where every random draw comes from: the same seed and calls give the same decisions and
        states, bit for bit. The draws of a number are the learner's alone, apart from those of
        ``numpy.random.default_rng``; nothing else should draw from a Generator that is given. None
        draws a seed from the system.
    propensities : bool, default True
        Whether decisions carry their propensity; it costs time where it must be integrated.

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
        self.columns = BatchLearner(policy, generator("learner", seed), propensities)
        self._learned = Learned()
        self._ring = self._learned.ring

    def __repr__(self) -> str:
        return f"<Learner of {self.policy}: {len(self)} keys, {self.decisions} decisions>"

    def _repr_html_(self) -> str:
        arms = ", ".join(map(str, self.arms[:SHOWN])) + (", …" if len(self.arms) > SHOWN else "")
        told = {"policy": self.policy.label, "arms": arms or "known by features"}
        return html_table([{**told, "keys": len(self), "decisions": self.decisions}])

    def __reduce__(self) -> tuple[Any, ...]:
        # The policy goes along, so that its class is imported where it is a user's own.
        return _unpickled, (self.policy, b"".join(pieces(snapshot_of(self))))

    @property
    def policy(self) -> Policy:
        """The algorithm and its hyperparameters, as they are now."""
        return self.columns.policy

    @property
    def rng(self) -> np.random.Generator:
        """Where every random draw comes from."""
        return self.columns.rng

    @property
    def decisions(self) -> int:
        """How many decisions were made."""
        return self.columns.made

    @property
    def state(self) -> Any:
        """What was learned: arrays with a leading lane axis (some spare), of 1 where shared."""
        return self.columns.lanes.state

    @property
    def keys(self) -> list[str]:
        """All keys in the order of their lanes."""
        return list(self.columns.lanes.of)

    def __len__(self) -> int:
        return len(self.columns.lanes.of)

    def __contains__(self, key: Key) -> bool:
        return checks.key(key) in self.columns.lanes.of

    def __bool__(self) -> bool:
        return True

    @property
    def arms(self) -> list[ArmT_co]:
        """The arms on offer."""
        return self.columns.offer.arms

    @property
    def retired(self) -> list[ArmT_co]:
        """The arms that are no longer on offer."""
        return self.columns.offer.retired

    def lane(self, key: Key = ONLY_KEY) -> int:
        """Return the lane of a known key."""
        return self.columns.lanes.lane(checks.key(key))

    def epoch(self, key: Key = ONLY_KEY) -> int:
        """Return how often the lane of ``key`` has restarted."""
        return int(self.policy.epoch(self.policy.params, self.state, self.lane(key)))

    def restarts(self, key: Key = ONLY_KEY) -> list[Any]:
        """Return when the lane of ``key`` restarted, oldest first, if the policy keeps that."""
        restarts = self._kept("restarts", "keeps no record of them; see epoch()")
        return list(restarts(self.state, self.lane(key)))

    def posterior(self, key: Key = ONLY_KEY) -> Any:
        """Return what is believed about the parameters of ``key``, as the policy describes it."""
        return self._kept("posterior", "has none")(self.state, self.lane(key))

    def diagnostics(self) -> Any:
        """Return what the policy's record says of its assumptions, all keys together.

        For policies that keep one, such as :class:`~tacit.BWC`.
        """
        diagnostics = self._kept("diagnostics", "keeps no record for them")
        return diagnostics(self.state)._replace(outside=self.columns.reader.watch.outside)

    def _kept(self, name: str, otherwise: str) -> Any:
        """Return what only some policies can say of their state."""
        try:
            return getattr(self.policy, name)
        except AttributeError:
            policy = type(self.policy).__name__
            raise UnknownName(f"{name}: {policy} {otherwise}") from None

    def add_arms(self, arms: int | Sequence[str]) -> list[ArmT_co]:
        """Put new arms on offer, for all keys; return them.

        They begin as arms do of which nothing is known; where a policy has learned over all keys
        what arms are like, with that.

        Parameters
        ----------
        arms : int or sequence of str
            How many, where arms are numbered; or their names, which must be new.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.UCB1(arms=["holiday"]), seed=1)
        >>> learner.add_arms(["film"])
        ['film']
        >>> learner.retire_arms(["holiday"])
        >>> learner.arms, learner.retired
        (['film'], ['holiday'])
        """
        return self.columns.add_arms(checks.listed(arms))

    def retire_arms(self, arms: Sequence[Arm]) -> None:
        """Take arms off offer; one at least must stay.

        What was learned of them is kept, and decisions that showed them still teach it. Those that
        are off offer stay so.
        """
        self.columns.set_offer(self.policy, self.columns.offer.without(checks.listed(arms)))

    def restore_arms(self, arms: Sequence[Arm]) -> None:
        """Put retired arms on offer again, with all that was learned of them; others stay."""
        self.columns.set_offer(self.policy, self.columns.offer.restored(checks.listed(arms)))

    def add_arm(self, name: str | None = None) -> ArmT_co:
        """Put one arm on offer, a new or a retired one; return it. Numbered ones need no name."""
        if name is not None and name in self.retired:
            self.restore_arms([name])
            return name
        (added,) = self.add_arms(1 if name is None else [name])
        return added

    def retire_arm(self, arm: Arm) -> None:
        """Take one arm off offer, as :meth:`retire_arms`."""
        self.retire_arms([arm])

    def tune(self, **hyperparameters: Any) -> None:
        """Go on with other hyperparameters, if the state keeps its shape, and all that was learned.

        ``learner.tune(epsilon=0.1)`` leaves the others as they are.
        """
        self.columns.tune(hyperparameters)

    def compile(self) -> None:
        """Compile what choosing and learning run, or find it in the cache.

        Without this, each is compiled when it is first called, which takes some seconds.
        """
        loops = self.columns.loops
        _ = loops.choose, loops.observe, loops.learn, self.columns.reports_places and loops.place

    def choose(
        self,
        key: Key = ONLY_KEY,
        context: npt.ArrayLike | None = None,
        arms: Sequence[Arm] | None = None,
        *,
        relevance: npt.ArrayLike | None = None,
        examination: npt.ArrayLike | None = None,
    ) -> Decision[ArmT_co]:
        """Choose what to show for one impression.

        Parameters
        ----------
        key : str or int, optional
            What the decision is for: a query, a slot; at most 512 bytes. A number stands for its
            digits. Where there is one problem only, leave it out: it is ``"default"``.
        context : array of float, shape (context_dim,), optional
            Signals about the key, for policies that read them. One that the policy's classifier
            does not know is warned of once, by an :class:`~tacit.errors.AssumptionWarning`.
        arms : sequence of arms, optional
            The arms on offer for this impression; by default all that are not retired. Where
            the policy knows arms by their features only, names for those that have them.
        relevance, examination : array of float, shape (arms on offer, d), optional
            Features of each arm on offer, for policies that read them.
        """
        name = key if type(key) is str else checks.key(key)
        if self.columns.plain and arms is None and context is None:
            return self.columns.choose_one(name)
        offer = checks.listed(arms)
        return self.columns.choose([name], _one(context, offer, relevance, examination))[0]

    def choose_many(
        self,
        keys: Sequence[Key],
        contexts: npt.ArrayLike | None = None,
        arms: Sequence[Sequence[Arm] | None] | None = None,
        *,
        relevance: Sequence[npt.ArrayLike] | None = None,
        examination: Sequence[npt.ArrayLike] | None = None,
    ) -> Decisions[ArmT_co]:
        """Choose what to show for each of many impressions, in their order.

        Parameters
        ----------
        keys : sequence of str or int
            A key per impression; the same key may stand there many times.
        contexts : array of float, shape (impressions, context_dim), optional
        arms : sequence, optional
            Per impression the arms on offer, or None for all.
        relevance, examination : sequence of array, optional
            Per impression the features of each arm on offer; or one array of shape
            (impressions, arms on offer, d).
        """
        offers = checks.listed(arms)
        if offers is not None and not isinstance(offers, str):
            offers = list(map(checks.listed, offers))
        return self.columns.choose(checks.keys(keys), (contexts, offers, relevance, examination))

    def probabilities(
        self,
        key: Key = ONLY_KEY,
        context: npt.ArrayLike | None = None,
        arms: Sequence[Arm] | None = None,
        *,
        relevance: npt.ArrayLike | None = None,
        examination: npt.ArrayLike | None = None,
    ) -> Floats | None:
        """Return with what probability each arm on offer would be chosen now; None if not known.

        Takes what :meth:`choose` does, of policies that show an arm or a list: for a list the array
        is of shape (arms on offer, positions), with what probability each arm would be at each
        position.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.EpsilonGreedy(arms=4, epsilon=0.2), seed=1)
        >>> learner.probabilities("tomato").tolist()
        [0.25, 0.25, 0.25, 0.25]
        """
        offer = checks.listed(arms)
        given = _one(context, offer, relevance, examination)
        return self.columns.probabilities(checks.key(key), given)

    def learn(self, decision: Decision, reward: float | Sequence[float]) -> bool:
        """Learn from what came back for a decision.

        Calling this twice for one decision learns it twice. The first time that this happens to one
        of the learner's own, among the 8,192 learned last, an
        :class:`~tacit.errors.AssumptionWarning` says so; snapshots do not remember it. The
        decision's ``id`` tells them apart, as the decision service does by itself.

        Parameters
        ----------
        decision : Decision
            Of this learner, or of another one of such a policy.
        reward : float or sequence of float
            In [0, 1]. For an arm: a click (1.0), none (0.0), or a reward between. For a duel: 1.0
            if the left one won, 0.0 if the right one did, 0.5 for a tie. For a slate: a number
            for each position.

        Returns
        -------
        bool
            False if the key's lane has restarted since: then it taught nothing.
        """
        taught = self.columns.learn_one(decision, reward)
        ring, number = self._ring, decision.id
        place = number & NEWEST
        if ring[place] == number:
            self._learned.tell(decision, self.columns.made)
        ring[place] = number
        return taught

    def learn_many(self, decisions: Sequence[Decision], rewards: npt.ArrayLike) -> int:
        """Learn from what came back for many decisions, in their order.

        Parameters
        ----------
        decisions : Decisions or sequence of Decision
            Each once, as for :meth:`learn`.
        rewards : array of float, shape (decisions,) or, for slates, (decisions, positions)
            Each in [0, 1].

        Returns
        -------
        int
            How many taught something; the others were made before their lane's last restart.
        """
        taught = int(np.count_nonzero(self.columns.learn(decisions, rewards)))
        self._learned.many(decisions, self.columns.made)
        return taught

    def correct_many(self, decisions: Sequence[Decision], before: npt.ArrayLike, after: npt.ArrayLike) -> int:
        """Put other rewards in the place of those that were learned, whatever was learned since.

        For policies that can take out what they have learned (``correctable``).

        Parameters
        ----------
        decisions : Decisions or sequence of Decision
        before, after : array of float, shape (decisions,)
            What was learned for each, and what it shall be; in [0, 1].

        Returns
        -------
        int
            How many were corrected; the others were made before their lane's last restart.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.UCB1(arms=2), seed=1)
        >>> decisions = learner.choose_many(["tomato", "tomato"])
        >>> learner.learn_many(decisions, [0.0, 0.0])
        2
        >>> learner.correct_many(decisions[:1], [0.0], [1.0])
        1
        """
        return self.columns.correct(decisions, before, after)

    def fit_log(
        self,
        log: Any,
        *,
        placement: str | None = None,
        missing_reward: float | None = 0.0,
        relevance: Any = None,
        examination: Any = None,
        **reading: Any,
    ) -> int:
        """Learn a click log from its beginning to its end, whatever policy wrote it.

        Each row is learned as if it had been decided here and answered before the next one. What a
        policy concludes from it is only as good as the log: arms that were hardly shown stay
        hardly known.

        Parameters
        ----------
        log : LogReader, path, or table in memory
            What :func:`tacit.read_log` takes.
        placement : str, optional
            Which placement's rows to learn; by default those of the only one.
        missing_reward : float or None, default 0
            The reward of a row to which no feedback came; None leaves such rows out.
        relevance, examination : sequence of str, or table, optional
            For policies that know arms by their features: columns of the log, where rows have those
            of the arm they show; or a dict from arms to their features, or a table with a column
            ``arm``, where arms have theirs for good.
        **reading
            ``columns``, ``constants``, ``arms``, ``time_unit``, ``strict`` and ``format`` of
            :func:`tacit.read_log`.

        Returns
        -------
        int
            How many decisions were learned.

        Raises
        ------
        UnknownName
            If the log has an arm that the policy does not know.
        LogError, InvalidValue
            If the log cannot be read, or the policy learns from what no click log holds. Nothing
            was learned then.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.Thompson(arms=["film", "holiday"]), seed=1)
        >>> learner.fit_log(
        ...     {
        ...         "query": ["independence day"] * 3,
        ...         "shown": ["film", "holiday", "holiday"],
        ...         "clicked": [0, 1, 1],
        ...     },
        ...     columns={"key": "query", "arm": "shown", "reward": "clicked"},
        ...     arms=["film", "holiday"],
        ... )
        3
        >>> [round(each.mean, 2) for each in learner.estimates("independence day")]
        [0.33, 0.75]
        """
        from tacit.learning.logged import learn_log
        from tacit.logs.sources import opened, say_rejected

        reader = opened(log, **reading)
        features = relevance, examination
        learned = learn_log(self.columns, reader, placement, missing_reward, features)
        say_rejected(reader, log)
        return learned

    def estimates(
        self,
        key: Key = ONLY_KEY,
        context: npt.ArrayLike | None = None,
        arms: Sequence[Arm] | None = None,
        *,
        relevance: npt.ArrayLike | None = None,
        examination: npt.ArrayLike | None = None,
        confidence: float = 0.95,
    ) -> Estimates:
        """Return what is believed of each arm of a key: its mean reward and how sure that is.

        Parameters
        ----------
        key : str
        context, arms, relevance, examination
            As for :meth:`choose`, of policies that know arms by their features: those to compare.
        confidence : float, default 0.95
            Of the intervals, in (0, 1).

        Returns
        -------
        Estimates
            For each arm its plays, ever, and how many of them count now; its mean reward; an
            interval around that and the chance to be the best arm on offer: by Beta posteriors, the
            policy's own or those of a uniform prior, or, where arms are known by features, by
            10,000 draws from the policy's posterior; least squares take the noise of rewards for
            ½, its most.

        Raises
        ------
        UnknownName, InvalidValue
            If the key is unknown, the policy believes nothing of single arms, or features do not
            fit.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.UCB1(arms=["film", "holiday"]), seed=1)
        >>> for reward in (0.0, 1.0):
        ...     _ = learner.learn(learner.choose("tomato"), reward)
        >>> print(learner.estimates("tomato"))
        arm      plays  count now   mean            95 %    best
        film         1          1  0.000  [0.000, 0.776]  16.7 %
        holiday      1          1  1.000  [0.224, 1.000]  83.3 %
        """
        if self.policy.feature_dims == (0, 0):
            otherwise = "believes nothing of single arms; see state, or posterior(key) if it has it"
            believed = self._kept("beliefs", otherwise)(self.state, self.lane(key))
            plays = self.columns.plays_of(self.lane(key))
            return estimates_of(believed, plays, self.columns.offer, confidence)
        self._kept("reward_draws", "says nothing of what arms with these features would earn")
        if relevance is None and examination is None:
            remedy = "give the features of the arms to compare, or see coefficients(key)"
            raise InvalidValue("relevance", None, f"arms are known by their features: {remedy}")
        given = _one(context, checks.listed(arms), relevance, examination)
        rng = np.random.default_rng(0)
        offered, rewards = self.columns.reward_draws(checks.key(key), given, rng, DRAWS)
        return estimates_by_draws(offered, rewards, confidence)

    def coefficients(self, key: Key = ONLY_KEY, *, confidence: float = 0.95) -> Coefficients:
        """Return what is believed of each feature: its parameter, and how sure that is.

        Of a mixture, what its heaviest component believes.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.LogisticTS(relevance_dim=1), seed=1)
        >>> for click in [0.0, 1.0] * 40:
        ...     _ = learner.learn(learner.choose("tomato", relevance=[[click]]), click)
        >>> print(learner.coefficients("tomato"))
        feature         mean              95 %  above 0
        relevance[0]   3.752    [2.816, 4.689]  100.0 %
        constant      -1.699  [-2.355, -1.044]    0.0 %
        >>> print(learner.estimates("tomato", arms=["film", "song"], relevance=[[1.0], [0.0]]))
        arm    mean            95 %     best
        film  0.881  [0.786, 0.942]  100.0 %
        song  0.160  [0.087, 0.261]    0.0 %
        """
        if self.policy.feature_dims == (0, 0):
            policy = type(self.policy).__name__
            raise UnknownName(f"coefficients: {policy} reads no features; see estimates(key)")
        found = self._kept("posterior", "has none")(self.state, self.lane(key))
        return coefficients_of(self.policy, found, confidence)

    def save(self, path: str | Path) -> None:
        """Write a snapshot; going on from it equals never having stopped, bit for bit.

        The file holds arrays and a JSON header; it replaces an older one only when complete.
        """
        write(snapshot_of(self), Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Learner[Any]:
        """Read what :meth:`save` wrote; runs no code that the file could choose.

        A policy of one's own must have been imported before, so that its name is known.

        Raises
        ------
        SnapshotError
            If the file is damaged, truncated, foreign or of a newer version.
        """
        return read(Path(path), restored)


def _unpickled(policy: Policy, content: bytes) -> Learner:
    """Return the learner that went through a pickle."""
    return from_bytes(content, "pickle", restored)


def _one(*given: Any) -> tuple[Any, Any, Any, Any]:
    """Return what is given of one impression as that of many."""
    first, second, third, fourth = (None if each is None else [each] for each in given)
    return first, second, third, fourth


def snapshot_of(learner: Learner) -> LearnerSnapshot:
    """Return what a snapshot of a learner holds; its arrays are the learner's own."""
    batch = learner.columns
    return LearnerSnapshot(
        policy=batch.policy,
        retired=batch.offer.retired,
        propensities=batch.reports_propensities,
        decisions=batch.made,
        generator=batch.rng.bit_generator.state,
        keys=learner.keys,
        state=batch.lanes.used(),
        plays=batch.lanes.plays[: len(batch.lanes.of)],
    )


def restored(snapshot: LearnerSnapshot) -> Learner:
    """Return the learner of a snapshot; its broken lanes begin anew."""
    learner = Learner(snapshot.policy, seed=0, propensities=snapshot.propensities)
    batch = learner.columns
    batch.rng.bit_generator.state = snapshot.generator
    batch.lanes.restore(snapshot.state, snapshot.plays, snapshot.keys)
    batch.lanes.begin_anew(snapshot.broken)
    batch.made = snapshot.decisions
    batch.set_offer(batch.policy, Offer(batch.policy.arms, snapshot.retired))
    return learner
