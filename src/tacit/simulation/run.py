"""One run of a policy in an environment, to be advanced at will."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.core.arrays import Generator, Ints
from tacit.environments.base import Environment
from tacit.policies.base import Policy
from tacit.simulation.rounds import Curve, InFlight, Round, play, play_delayed

ENVIRONMENT_STREAM, POLICY_STREAM, DELAY_STREAM = range(3)


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
        self.env_rng = env_rng
        one = Round(np.zeros(policy.action_width, np.int64), np.zeros(policy.feedback_width))
        least, most = environment.delays
        parts = policy.params, environment.params
        if most == 0 and environment.batch == 1:
            self.extra: tuple[Any, ...] = (one,)
            self.loop = compiled(play, *parts)
        else:
            span = most + environment.batch + 1
            flight = InFlight.empty(span, one, self.world.impression)
            delay_rng = run_stream(seed, number, DELAY_STREAM)
            self.extra = flight, delay_rng, least, most, environment.batch
            self.loop = compiled(play_delayed, *parts)

    def advance(self, rounds: int) -> int:
        """Play up to ``rounds`` more rounds of the horizon; return how many were played."""
        stop = min(self.round + rounds, self.horizon)
        self.loop(
            self.policy.params,
            self.state,
            self.environment.params,
            self.world,
            self.round,
            stop,
            self.rng,
            self.env_rng,
            self.curve,
            *self.extra,
        )
        played, self.round = stop - self.round, stop
        return played


def run_stream(seed: int, run: int, which: int) -> Generator:
    """Return the generator of one stream of one run."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(run, which))))
