"""Policies played in an environment, run beside run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.core.spread import spread
from tacit.environments.base import Environment, registry
from tacit.errors import InvalidValue
from tacit.policies.base import Policy
from tacit.simulation.result import SimulationResult
from tacit.simulation.run import POLICY_STREAM, Run, run_stream

ROUNDS_A_CALL = 2**18
ROUNDS_A_UNIT = 2**20


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
        raise InvalidValue("environment", environment, "give one, such as BernoulliArms([0.1, 0.2])")
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
