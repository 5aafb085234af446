"""Policy × environment → regret curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import (
    arrive,
    decide,
    epoch,
    kernel,
    learn,
    learned_propensity,
    observe,
    react,
    regret,
    shown_in,
)
from tacit.core.spread import spread
from tacit.core.text import Tabulated
from tacit.environments.base import Environment, registry
from tacit.errors import InvalidValue
from tacit.policies.base import Impression, Policy, outcome_of

if TYPE_CHECKING:
    import pyarrow

ENVIRONMENT_STREAM, POLICY_STREAM, DELAY_STREAM = range(3)
ROUNDS_A_CALL = 2**18
ROUNDS_A_UNIT = 2**20


class Curve(NamedTuple):
    """What a run records: totals so far, and copies of them at checkpoints.

    Attributes
    ----------
    total : array of float64, shape (2,)
        Regret and reward so far.
    rounds : array of int64, shape (checkpoints,)
    values : array of float64, shape (checkpoints, 2)
    position : array of int64, shape (1,)
        The next checkpoint.
    """

    total: Floats
    rounds: Ints
    values: Floats
    position: Ints


class Round(NamedTuple):
    """Room for what is shown in a round and what comes back for it.

    Attributes
    ----------
    action : array of int64, shape (action_width,)
    feedback : array of float64, shape (feedback_width,)
    """

    action: Ints
    feedback: Floats


class InFlight(NamedTuple):
    """Feedback that is under way: a slot per round and, per due round, a linked list of slots.

    Feedback never takes ``len(lanes)`` rounds or more, so a round modulo that length names both
    a slot and a due round without collision.

    Attributes
    ----------
    lanes, epochs : array of int64, shape (span,)
    actions : array of int64, shape (span, action_width)
    feedback : array of float64, shape (span, feedback_width)
    propensities : array of float64, shape (span,)
    offered : array of int64, shape (span, arms)
    counts : array of int64, shape (span,)
        How many arms were on offer.
    contexts : array of float64, shape (span, context_dim)
    relevance, examination : array of float64, shape (span, arms, d)
    first, last, next : array of int64, shape (span,)
        The lists, −1 where they end.
    """

    lanes: Ints
    epochs: Ints
    actions: Ints
    feedback: Floats
    propensities: Floats
    offered: Ints
    counts: Ints
    contexts: Floats
    relevance: Floats
    examination: Floats
    first: Ints
    last: Ints
    next: Ints

    @classmethod
    def empty(cls, span: int, one: Round, impression: Impression) -> InFlight:
        """Return an empty store for feedback that takes fewer than ``span`` rounds."""

        def ints() -> Ints:
            return np.full(span, -1, np.int64)

        def like(array: Any) -> Any:
            return np.zeros((span, *array.shape), array.dtype)

        return cls(
            lanes=ints(),
            epochs=ints(),
            actions=like(one.action),
            feedback=like(one.feedback),
            propensities=np.zeros(span),
            offered=like(impression.arms),
            counts=ints(),
            contexts=like(impression.context),
            relevance=like(impression.relevance),
            examination=like(impression.examination),
            first=ints(),
            last=ints(),
            next=ints(),
        )


@kernel
def record(curve: Curve, round: int, regret: float, feedback: Floats) -> None:
    """Add a round to the totals, and note them at a checkpoint."""
    curve.total[0] += regret
    for i in range(len(feedback)):
        curve.total[1] += feedback[i]
    position = curve.position[0]
    if position < len(curve.rounds) and curve.rounds[position] == round + 1:
        curve.values[position, 0] = curve.total[0]
        curve.values[position, 1] = curve.total[1]
        curve.position[0] += 1


def play(
    params: Any,
    state: Any,
    env: Any,
    world: Any,
    start: int,
    stop: int,
    rng: Generator,
    env_rng: Generator,
    curve: Curve,
    one: Round,
) -> None:
    """Play the rounds from ``start`` to ``stop``; each is learned before the next begins."""
    impression = world.impression
    action, feedback = one.action, one.feedback
    for round in range(start, stop):
        lane = arrive(env, world, round, env_rng)
        observe(params, state, lane, impression)
        decide(params, state, lane, impression, rng, action)
        shown = shown_in(params, action)
        propensity = learned_propensity(params, state, lane, impression, shown)
        react(env, world, lane, shown, feedback)
        record(curve, round, regret(env, world, lane, shown), feedback)
        learn(params, state, lane, outcome_of(params, impression, action, feedback, propensity))


@kernel
def deliver(params: Any, state: Any, flight: InFlight, due: int) -> None:
    """Learn from the feedback that is due, in the order of its rounds."""
    slot = flight.first[due]
    while slot >= 0:
        lane = flight.lanes[slot]
        if flight.epochs[slot] == epoch(params, state, lane):
            impression = Impression(
                flight.offered[slot, : flight.counts[slot]],
                flight.contexts[slot],
                flight.relevance[slot, : flight.counts[slot]],
                flight.examination[slot, : flight.counts[slot]],
            )
            action, feedback = flight.actions[slot], flight.feedback[slot]
            propensity = flight.propensities[slot]
            outcome = outcome_of(params, impression, action, feedback, propensity)
            learn(params, state, lane, outcome)
        slot = flight.next[slot]
    flight.first[due] = -1


@kernel
def keep(flight: InFlight, slot: int, impression: Impression) -> None:
    """Copy an impression to a slot; by loops, as assigning to slices takes seconds to compile."""
    for a in range(len(impression.arms)):
        flight.offered[slot, a] = impression.arms[a]
    for d in range(len(impression.context)):
        flight.contexts[slot, d] = impression.context[d]
    for a in range(len(impression.relevance)):
        for d in range(impression.relevance.shape[1]):
            flight.relevance[slot, a, d] = impression.relevance[a, d]
    for a in range(len(impression.examination)):
        for d in range(impression.examination.shape[1]):
            flight.examination[slot, a, d] = impression.examination[a, d]


@kernel
def depart(flight: InFlight, slot: int, due: int) -> None:
    """Put a slot at the end of the list of its due round."""
    flight.next[slot] = -1
    if flight.first[due] < 0:
        flight.first[due] = slot
    else:
        flight.next[flight.last[due]] = slot
    flight.last[due] = slot


def play_delayed(
    params: Any,
    state: Any,
    env: Any,
    world: Any,
    start: int,
    stop: int,
    rng: Generator,
    env_rng: Generator,
    curve: Curve,
    flight: InFlight,
    delay_rng: Generator,
    least: int,
    most: int,
    batch: int,
) -> None:
    """Play the rounds from ``start`` to ``stop``; feedback comes late, in batches."""
    impression = world.impression
    span = len(flight.lanes)
    for round in range(start, stop):
        deliver(params, state, flight, round % span)
        lane = arrive(env, world, round, env_rng)
        observe(params, state, lane, impression)
        slot = round % span
        action, feedback = flight.actions[slot], flight.feedback[slot]
        decide(params, state, lane, impression, rng, action)
        shown = shown_in(params, action)
        flight.lanes[slot] = lane
        flight.propensities[slot] = learned_propensity(params, state, lane, impression, shown)
        react(env, world, lane, shown, feedback)
        flight.epochs[slot] = epoch(params, state, lane)
        flight.counts[slot] = len(impression.arms)
        keep(flight, slot, impression)
        record(curve, round, regret(env, world, lane, shown), feedback)
        delay = least + int(delay_rng.random() * (most - least + 1))
        due = (round + delay + batch) // batch * batch
        depart(flight, slot, due % span)


class Run:
    """One run of a policy in an environment, to be advanced at will.

    Parameters
    ----------
    policy : Policy
    environment : Environment
    horizon : int
        Rounds of the whole run.
    seed : int
        At least 0.
    number : int
        Which of the runs of this seed; every policy sees the same streams in the same run.
    checkpoints : array of int64
        Rounds after which regret and reward are noted, increasing.

    Attributes
    ----------
    state : named tuple
        What the policy has learned.
    rng : Generator
        The policy's.
    curve : Curve
    round : int
        Rounds played.
    """

    def __init__(
        self,
        policy: Policy,
        environment: Environment,
        horizon: int,
        seed: int,
        number: int,
        checkpoints: Ints,
    ) -> None:
        from tacit.core.compiled import compiled

        self.policy, self.environment, self.horizon = policy, environment, horizon
        env_rng = run_stream(seed, number, ENVIRONMENT_STREAM)
        self.rng = run_stream(seed, number, POLICY_STREAM)
        self.world = environment.world(env_rng, horizon)
        self.state = policy.init(environment.lanes)
        count = len(checkpoints)
        self.curve = Curve(np.zeros(2), checkpoints, np.zeros((count, 2)), np.zeros(1, np.int64))
        self.round = 0
        self._env_rng = env_rng
        one = Round(np.zeros(policy.action_width, np.int64), np.zeros(policy.feedback_width))
        least, most = environment.delays
        parts = policy.params, environment.params
        if most == 0 and environment.batch == 1:
            self._extra: tuple[Any, ...] = (one,)
            self._play = compiled(play, *parts)
        else:
            span = most + environment.batch + 1
            flight = InFlight.empty(span, one, self.world.impression)
            delay_rng = run_stream(seed, number, DELAY_STREAM)
            self._extra = flight, delay_rng, least, most, environment.batch
            self._play = compiled(play_delayed, *parts)

    def advance(self, rounds: int) -> int:
        """Play up to ``rounds`` more rounds of the horizon; return how many were played."""
        stop = min(self.round + rounds, self.horizon)
        self._play(
            self.policy.params,
            self.state,
            self.environment.params,
            self.world,
            self.round,
            stop,
            self.rng,
            self._env_rng,
            self.curve,
            *self._extra,
        )
        played, self.round = stop - self.round, stop
        return played


def run_stream(seed: int, run: int, which: int) -> Generator:
    """Return the generator of one stream of one run."""
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(run, which)))
    )


@dataclass(frozen=True)
class Comparison:
    """A paired difference of final regrets: the same impressions, the same chances.

    Attributes
    ----------
    first, second : str
        Names of the policies.
    difference : float
        Mean over the runs of first − second; negative where the first is better.
    standard_error : float
        NaN with a single run.
    runs : int
    """

    first: str
    second: str
    difference: float
    standard_error: float
    runs: int

    def __str__(self) -> str:
        return (
            f"regret of {self.first} − regret of {self.second}: "
            f"{self.difference:+,.1f} ± {self.standard_error:,.1f} (s.e., {self.runs} runs)"
        )


@dataclass(frozen=True)
class SimulationResult(Tabulated):
    """What a simulation found.

    Attributes
    ----------
    names : tuple of str
        The policies.
    rounds : array of int64, shape (checkpoints,)
    regret, reward : array of float64, shape (policies, runs, checkpoints)
        Totals up to each checkpoint: expected reward missed, and reward received.
    environment : Environment
    seed : int
    """

    names: tuple[str, ...]
    rounds: Ints
    regret: Floats
    reward: Floats
    environment: Environment
    seed: int

    @property
    def table(self) -> pyarrow.Table:
        """One row per policy, run and checkpoint."""
        import pyarrow as pa

        policies, runs, points = self.regret.shape
        return pa.table(
            {
                "policy": np.repeat(np.array(self.names, object), runs * points),
                "run": np.tile(np.repeat(np.arange(runs), points), policies),
                "round": np.tile(self.rounds, policies * runs),
                "regret": self.regret.ravel(),
                "reward": self.reward.ravel(),
            }
        )

    def records(self) -> list[dict[str, Any]]:
        """Return per policy the final regret and reward per 1000 rounds, means and errors."""
        runs, horizon = self.regret.shape[1], int(self.rounds[-1])
        return [
            {
                "policy": name,
                "regret": float(regret.mean()),
                "regret_se": standard_error(regret),
                "reward_per_1000": float(1000 * reward.mean() / horizon),
                "runs": runs,
                "rounds": horizon,
            }
            for name, regret, reward in zip(
                self.names, self.regret[:, :, -1], self.reward[:, :, -1], strict=True
            )
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Return :meth:`records`."""
        return self.records()

    def summary(self) -> str:
        """Return the final regret of each policy as an aligned table.

        Examples
        --------
        >>> import tacit
        >>> policies = [tacit.UniformRandom(arms=2), tacit.UCB1(arms=2)]
        >>> result = tacit.simulate(policies, tacit.BernoulliArms([0.2, 0.8]), 500, runs=3, seed=1)
        >>> print(result.summary().splitlines()[0])
        policy         regret  ± s.e.  reward/1000  runs
        """
        from tacit.core.text import aligned

        header = ("policy", "regret", "± s.e.", "reward/1000", "runs")
        return aligned(
            [
                header,
                *(
                    (
                        row["policy"],
                        f"{row['regret']:,.1f}",
                        f"{row['regret_se']:,.1f}",
                        f"{row['reward_per_1000']:,.1f}",
                        str(row["runs"]),
                    )
                    for row in self.rows()
                ),
            ]
        )

    def compare(self, first: str | int | Policy, second: str | int | Policy) -> Comparison:
        """Return the mean difference of two policies' final regrets with its standard error.

        Parameters
        ----------
        first, second : str, int or Policy
            A name in ``names``, a position, or the policy itself.

        Raises
        ------
        InvalidValue
            If it is none of the simulated policies, or more than one.
        """
        a, b = self._position(first), self._position(second)
        difference = self.regret[a, :, -1] - self.regret[b, :, -1]
        return Comparison(
            self.names[a],
            self.names[b],
            float(difference.mean()),
            standard_error(difference),
            len(difference),
        )

    def _position(self, which: str | int | Policy) -> int:
        if isinstance(which, int) and -len(self.names) <= which < len(self.names):
            return which
        text = which.label if isinstance(which, Policy) else str(which)
        found = [i for i, name in enumerate(self.names) if text in (name, name.split("(")[0])]
        if len(found) != 1:
            raise InvalidValue("policy", which, f"name one of {', '.join(self.names)}")
        return found[0]

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Any:
        """Draw the mean regret of each policy with a band of two standard errors.

        Parameters
        ----------
        path : path, optional
            Where to write; the suffix gives the format.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default a figure of its own, which a notebook shows unless it is
            written.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        from tacit.plots import drawn, regret_curves

        title = (
            f"{type(self.environment).__name__}, {self.regret.shape[1]} runs, "
            "bands of ±2 standard errors"
        )
        curves = dict(zip(self.names, self.regret, strict=True))
        with drawn(path, ax) as axes:
            regret_curves(axes, curves, self.rounds, title)
        return axes


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean; NaN of fewer than two values."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def simulate(
    policies: Policy | Sequence[Policy],
    environment: Environment,
    horizon: int,
    *,
    runs: int = 1,
    seed: int = 0,
    workers: int | None = None,
    checkpoints: int | Sequence[int] = 200,
) -> SimulationResult:
    """Play policies in an environment and count their regret.

    In the same run every policy sees the same impressions and the same chance behind each
    click, so differences are paired. Runs are spread over threads, or within
    :func:`tacit.cluster.on_ray` over a cluster; the result does not depend on that.

    Beat-the-Mean and Interleaved Filter, on a :class:`tacit.PreferenceMatrix` and with
    ``checkpoints=1``, are simulated without playing every duel: other draws, the same law, and
    billions of duels a second.

    Parameters
    ----------
    policies : Policy or sequence of Policy
    environment : Environment
    horizon : int
        Rounds per run; at least 1.
    runs : int, default 1
        Independent repetitions; at least 1.
    seed : int, default 0
        Where every draw comes from; at least 0. More runs extend fewer: run i is the same.
    workers : int, optional
        Threads; by default one per core.
    checkpoints : int or sequence of int, default 200
        How many evenly spaced rounds to note, or which.

    Returns
    -------
    SimulationResult

    Raises
    ------
    InvalidValue
        If a parameter is out of its range or a policy does not fit the environment.

    Examples
    --------
    >>> import tacit
    >>> policies = [tacit.UCB1(arms=3), tacit.Thompson(arms=3)]
    >>> environment = tacit.BernoulliArms([0.1, 0.5, 0.9])
    >>> result = tacit.simulate(policies, environment, horizon=2000, runs=20, seed=7)
    >>> result.compare("Thompson", "UCB1").difference < 0
    True
    """
    chosen = _fitting(policies, environment)
    horizon = checks.integer("horizon", horizon, 1)
    runs = checks.integer("runs", runs, 1)
    seed = checks.integer("seed", seed, 0, 2**128)
    rounds = _checkpoint_rounds(checkpoints, horizon)
    for policy in chosen:
        # Compiled here, once, before workers would ask for it side by side.
        if is_sampled(policy, environment, horizon, rounds):
            sample_run(policy, environment, 1, seed, 0)
        else:
            Run(policy, environment, horizon, seed, 0, rounds).advance(0)
    size = max(1, ROUNDS_A_UNIT // horizon)
    units = [
        (policy, environment, horizon, seed, first, min(first + size, runs), rounds)
        for policy in chosen
        for first in range(0, runs, size)
    ]
    parts = spread(
        play_runs,
        units,
        [float((stop - first) * horizon) for _, _, _, _, first, stop, _ in units],
        label=f"{len(chosen)} policies × {runs} runs",
        workers=workers,
    )
    values = np.concatenate(parts).reshape(len(chosen), runs, len(rounds), 2)
    return SimulationResult(
        names=tuple(policy.label for policy in chosen),
        rounds=rounds,
        regret=np.ascontiguousarray(values[..., 0]),
        reward=np.ascontiguousarray(values[..., 1]),
        environment=environment,
        seed=seed,
    )


def play_runs(
    policy: Policy,
    environment: Environment,
    horizon: int,
    seed: int,
    first: int,
    stop: int,
    rounds: Ints,
    report: Callable[[float], None],
) -> Floats:
    """Return regret and reward at the checkpoints of the runs from ``first`` to ``stop``."""
    values = np.zeros((stop - first, len(rounds), 2))
    if is_sampled(policy, environment, horizon, rounds):
        for number in range(first, stop):
            values[number - first] = sample_run(policy, environment, horizon, seed, number)
            report(horizon)
        return values
    for number in range(first, stop):
        run = Run(policy, environment, horizon, seed, number, rounds)
        while run.round < horizon:
            report(run.advance(ROUNDS_A_CALL))
        values[number - first] = run.curve.values
    return values


def is_sampled(policy: Policy, environment: Environment, horizon: int, rounds: Ints) -> bool:
    """Whether runs are simulated without playing every duel: only their end is asked for."""
    possible = hasattr(policy, "sample_run") and environment.plain_duels is not None
    return possible and rounds.tolist() == [horizon]


def sample_run(
    policy: Any, environment: Environment, horizon: int, seed: int, number: int
) -> tuple[float, float]:
    """Return the final regret and reward of a run, whose law is that of single duels."""
    duels = environment.plain_duels
    assert duels is not None
    rng = run_stream(seed, number, POLICY_STREAM)
    outcome = policy.sample_run(duels.preferences, duels.gaps, horizon, rng)
    return getattr(outcome, duels.regret), outcome.wins


def _fitting(policies: Policy | Sequence[Policy], environment: Environment) -> list[Policy]:
    """Return the policies as a list, after checking them against the environment."""
    if not isinstance(environment, Environment):
        raise InvalidValue(
            "environment", environment, "give one, such as BernoulliArms([0.1, 0.2])"
        )
    chosen = [policies] if isinstance(policies, Policy) else list(policies)
    if not chosen or not all(isinstance(policy, Policy) for policy in chosen):
        raise InvalidValue("policies", policies, "give a policy or a list of them")
    for policy in chosen:
        if policy.shows != environment.takes:
            fitting = {each.__name__ for each in registry.values() if each.takes == policy.shows}
            raise InvalidValue(
                "policies",
                policy,
                f"{type(policy).__name__} shows: {policy.shows}; "
                f"{type(environment).__name__} takes: {environment.takes}; give one that fits, "
                f"or an environment that takes it: {', '.join(sorted(fitting))}",
            )
        if policy.shows == "slate" and policy.action_width != environment.action_width:
            raise InvalidValue(
                f"{type(policy).__name__}.positions",
                policy.action_width,
                f"the environment has {environment.action_width} positions; give as many",
            )
        if policy.feature_dims != (0, 0) and policy.feature_dims != environment.feature_dims:
            raise InvalidValue(
                f"{type(policy).__name__} features",
                policy.feature_dims,
                f"the environment gives {environment.feature_dims} relevance and examination "
                "features; give as many",
            )
        if policy.arms is not None and policy.arm_count != environment.arm_count:
            raise InvalidValue(
                f"{type(policy).__name__}.arms",
                policy.arms,
                f"the environment has {environment.arm_count} arms; give as many",
            )
        if policy.context_dim > environment.context_dim:
            raise InvalidValue(
                f"{type(policy).__name__} contexts",
                policy.context_dim,
                f"the environment gives contexts of length {environment.context_dim} only",
            )
    return chosen


def _checkpoint_rounds(checkpoints: int | Sequence[int], horizon: int) -> Ints:
    if isinstance(checkpoints, int):
        count = min(checks.integer("checkpoints", checkpoints, 1), horizon)
        return np.unique(np.linspace(horizon / count, horizon, count).round().astype(np.int64))
    rounds = [checks.integer("checkpoints", round, 1, horizon) for round in checkpoints]
    if not rounds or sorted(set(rounds)) != rounds:
        raise InvalidValue("checkpoints", checkpoints, "give rounds in increasing order")
    return np.array(rounds, np.int64)
