"""Simulate click logs, whose true click probabilities are known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from tacit.core import checks
from tacit.core.dispatch import shown_in
from tacit.core.seeds import stream
from tacit.environments.base import Environment
from tacit.errors import InvalidValue, with_suggestions
from tacit.learning.learner import Learner
from tacit.policies.base import Policy


@with_suggestions
def simulate_log(policy: Policy, environment: Environment, rounds: int, seed: int = 0) -> Any:
    """Simulate a policy that learns from simulated users, and return the click log of its decisions.

    Warns if a scheduled change of the environment is too late for ``rounds``.

    Parameters
    ----------
    policy : Policy
        A policy over fixed arms; a list policy gives a log of lists.
    environment : Environment
    rounds : int
        Number of decisions.
    seed : int, default 0
        Seed of the policy and of the users.

    Returns
    -------
    pyarrow.Table
        Keys are the environment's lanes; a decision is made every second.

    Raises
    ------
    InvalidValue
        If the environment does not take the policy's kind of action, or the policy reads features
        of arms.

    Examples
    --------
    >>> import tacit
    >>> policy = tacit.ListMix(arms=4, positions=2, epsilon=0.1)
    >>> readers = tacit.environments.CascadeArms([0.4, 0.3, 0.2, 0.1], positions=2)
    >>> log = tacit.environments.simulate_log(policy, readers, rounds=100)
    >>> log.num_rows, log["position"].to_pylist()[:4]
    (200, [0, 1, 0, 1])
    """
    from tacit.logs.writer import click_log

    if environment.takes != policy.shows or policy.feature_dims != (0, 0):
        remedy = f"give one over fixed arms that shows what the users take: a {environment.takes}"
        raise InvalidValue("policy", policy, remedy)
    if policy.arm_count != environment.arm_count:
        raise InvalidValue("policy", policy, f"the users know {environment.arm_count} arms; give as many")
    rounds = checks.integer("rounds", rounds, 1)
    environment.warn_of_late_changes(rounds)
    learner, users = Learner(policy, stream("simulated log", seed)), stream("users", seed)
    world: Any = environment.world(users, rounds)
    names = learner.arms
    decisions, rewards = [], []
    for round in range(rounds):
        lane = environment.arrive(environment.params, world, round, users)  # type: ignore[attr-defined]
        impression = world.impression
        decision = learner.choose(
            str(lane),
            impression.context.copy() if policy.context_dim else None,
            [names[slot] for slot in impression.arms.tolist()],
        )
        feedback = np.zeros(policy.feedback_width)
        shown_arms = shown_in(policy.params, decision.slots)
        environment.react(environment.params, world, lane, shown_arms, feedback)
        reward = feedback.tolist() if policy.feedback_width > 1 else float(feedback[0])
        learner.learn(decision, reward)
        decisions.append(decision)
        rewards.append(feedback.tolist() if policy.showing.listed else reward)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = [start + timedelta(seconds=round) for round in range(rounds)]
    return click_log(policy, decisions, rewards, placement="simulated", times=times)
