"""Compile policies ahead of time into the cache: all of them, or the named ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.core.dispatch import shipped
from tacit.core.parallel import progress
from tacit.environments import BernoulliArms, Environment
from tacit.environments.base import registry as environments
from tacit.learning.learner import Learner
from tacit.learning.signals import NAMES, Signals
from tacit.policies import (
    ContextMixture,
    DriftMixture,
    ExplorationFloor,
    Policy,
    ProbationBandit,
    ShiftMixture,
)
from tacit.policies.base import registry as policies
from tacit.policies.spec import is_auto, policy_class, policy_from_spec
from tacit.service.placements.windows import loops
from tacit.simulation import simulate

CLICKS_ONLY: dict[str, Any] = {"feedback": "clicks only", "window": 5}
"""Options of additional simulations, with delayed clicks as the only feedback."""


def all_policies() -> list[Policy]:
    """Return an example of each policy, and of policies of single arms also one with an exploration floor."""
    examples: list[Policy] = [kind.example() for kind in shipped(policies, "policies")]
    # Signals change the loops of these policies.
    examples += [ShiftMixture(2), DriftMixture(2), ContextMixture(2, 2, signals_dim=1)]
    plain = [each for each in examples if each.showing.single and each.feature_dims == (0, 0)]
    bare = [each for each in plain if not isinstance(each, (ExplorationFloor, ProbationBandit))]
    return examples + [ExplorationFloor(each) for each in bare]


def all_environments() -> list[Environment]:
    """Return an example of each environment, with immediate and with delayed feedback."""
    examples = (kind.example() for kind in shipped(environments, "environments"))
    found: list[Environment] = [each for each in examples if each is not None]
    return found + [replace(each, delay=1) for each in found]


def compile_all() -> tuple[int, int, Path]:
    """Compile every policy for every driver; return cache hits, compilations and the cache's folder."""
    _shared()
    parts, worlds = all_policies(), all_environments()
    with progress(len(parts) * (1 + len(worlds)), "compiling") as advance:
        for policy in parts:
            _learned(policy)
            advance(1)
            for environment in worlds:
                if policy.shows == environment.takes and _reads(policy, environment):
                    simulate(policy, environment, horizon=10, workers=1)
                    if environment.delays == (0, 0):
                        simulate(policy, environment, horizon=10, workers=1, **CLICKS_ONLY)
                advance(1)
    return _counted()


def compile_named(names: Sequence[str]) -> tuple[int, int, Path]:
    """Compile the loops of named policies for choosing, learning and simulation.

    Parameters
    ----------
    names : sequence of str
        Policies, as on the command line. ``auto`` stands for all recommended policies.

        Returns
        -------
        tuple
            As for :func:`compile_all`.

        Raises
    ------
    UnknownName, InvalidValue
        If a name is not a policy.
    """
    recommended = [each for each in all_policies() if each.about.suits]
    named: list[Policy] = []
    for name in names:
        named += recommended if is_auto(name) else [_example(name)]
    with progress(2 * len(named), "compiling") as advance:
        for policy in named:
            _learned(policy)
            advance(1)
            _simulated(policy)
            _simulated(policy, **CLICKS_ONLY)
            advance(1)
    return _counted()


def _counted() -> tuple[int, int, Path]:
    """Return the number of cache hits, that of compilations, and the cache's folder."""
    from tacit.core.compilation.loops import cache_root
    from tacit.core.compiled import cache_statistics

    return *cache_statistics(), cache_root()


def compile_shipped() -> None:
    """Compile the cache that platform wheels contain.

    This covers, for every policy, the loops of learners and of the service, and a simulation in its
    default environment.
    """
    _shared()
    parts = all_policies()
    with progress(len(parts), "compiling") as advance:
        for policy in parts:
            _learned(policy)
            _served(policy)
            _simulated(policy)
            advance(1)


def _example(name: str) -> Policy:
    """Return the policy of a call such as ``ucb1(alpha=0.3)``, or the example of a named class."""
    if "(" in name:
        return policy_from_spec(name, arms=2)
    return policy_class(name).example()


def _usual() -> list[type[Environment]]:
    """Return all environments, the default one first."""
    return sorted(shipped(environments, "environments"), key=lambda kind: kind is not BernoulliArms)


def _reads(policy: Policy, environment: Environment) -> bool:
    fits = policy.feature_dims in ((0, 0), environment.feature_dims)
    return fits and policy.context_dim <= environment.context_dim


def _shared() -> None:
    """Compile loops that do not depend on a policy."""
    Signals(NAMES, arms=2, fast=1.0, slow=2.0)
    loops()
    # Only if the service's packages are installed.
    with suppress(ImportError):
        from tacit.service.placements.series import counting

        counting()


def _simulated(policy: Policy, **feedback: Any) -> None:
    """Compile a simulation of a policy in its default environment, with the given feedback options."""
    for environment in filter(None, (kind.example() for kind in _usual())):
        if environment.takes == policy.shows and _reads(policy, environment):
            simulate(policy, environment, horizon=10, workers=1, **feedback)
            break


def _served(policy: Policy) -> None:
    """Compile further loops of a learner: replaying decisions, refitting, sampling, propensities."""
    learner: Learner = Learner(policy, seed=0)
    nothing = learner.loops.plain_batch(np.empty(0, np.int64), np.empty((0, policy.context_dim)))
    actions = np.empty((0, policy.action_width), np.int64)
    learner.relive(nothing, actions, np.empty((0, policy.feedback_width)), np.empty(0))
    learner.refit()
    each = learner.loops
    _ = each.impose, policy.showing.single and each.weigh
    _ = policy.knows_places and each.weigh_cells
    if policy.randomized:
        _ = Learner(policy, seed=0, propensities=False).loops.choose


def _learned(policy: Policy) -> None:
    """Compile the loops of a learner for choosing, learning and corrections."""
    learner = Learner(policy, seed=0)
    learner.compile()
    if policy.correctable:
        decisions = learner.choose_many(["key"])
        learner.learn_many(decisions, [0.0])
        learner.correct_many(decisions, [0.0], [1.0])
