"""Compile policies ahead of time into the cache: all of them, or the named ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.core.dispatch import list_parts
from tacit.core.parallel import progress
from tacit.environments import BernoulliArms, Environment
from tacit.environments.base import registry as environments
from tacit.learning.columns import refit_sums, replay_rows
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
from tacit.policies.base import can_weigh_places, is_correctable
from tacit.policies.base import registry as policies
from tacit.policies.spec import is_auto, policy_class, policy_from_spec
from tacit.service.deciders.windows import compile_loops
from tacit.simulation import simulate

CLICKS_ONLY_OPTIONS: dict[str, Any] = {"feedback": "clicks only", "window": 5}
"""Options of additional simulations, with delayed clicks as the only feedback."""


def all_policies() -> list[Policy]:
    """Return the policies to compile: an example of each class, three more with signals, and floors over
    simple ones.

    Simple ones show one arm, known by name.
    """
    examples: list[Policy] = [kind.example() for kind in list_parts(policies, "policies")]
    # Signals change the loops of these policies.
    examples += [ShiftMixture(2), DriftMixture(2), ContextMixture(2, 2, signals_dim=1)]
    plain_policies = [each for each in examples if each.showing.single and each.feature_dims == (0, 0)]
    unwrapped = [each for each in plain_policies if not isinstance(each, (ExplorationFloor, ProbationBandit))]
    return examples + [ExplorationFloor(policy) for policy in unwrapped]


def all_environments() -> list[Environment]:
    """Return the environments to compile for: an example of each class, with immediate and with delayed
    feedback.
    """
    examples = (kind.example() for kind in list_parts(environments, "environments"))
    examples_at_once: list[Environment] = [environment for environment in examples if environment is not None]
    return examples_at_once + [replace(environment, delay=1) for environment in examples_at_once]


def compile_all() -> tuple[int, int, Path]:
    """Compile every policy for every driver into the cache, with a progress bar.

    Returns the numbers of loops loaded from the cache and compiled, and the cache's folder.
    """
    _compile_shared()
    policy_list, environment_list = all_policies(), all_environments()
    with progress(len(policy_list) * (1 + len(environment_list)), "compiling") as advance:
        for policy in policy_list:
            _compile_learning(policy)
            advance(1)
            for environment in environment_list:
                if policy.shows == environment.takes and _can_read(policy, environment):
                    simulate(policy, environment, horizon=10, workers=1)
                    if environment.delays == (0, 0):
                        simulate(policy, environment, horizon=10, workers=1, **CLICKS_ONLY_OPTIONS)
                advance(1)
    return _get_cache_counts()


def compile_named(names: Sequence[str]) -> tuple[int, int, Path]:
    """Compile the loops of named policies for choosing, learning and simulation into the cache, with a
    progress bar.

    Returns the numbers of loops loaded from the cache and compiled, and the cache's folder.

    Parameters
    ----------
    names : sequence of str
        Policies, as on the command line. ``auto`` stands for all recommended policies.

    Returns
    -------
    tuple
        Cache hits, compilations and the cache's folder, as for :func:`compile_all`.

    Raises
    ------
    UnknownName, InvalidValue
        If a name is not a policy.
    """
    recommended = [example for example in all_policies() if example.about.suits]
    selected: list[Policy] = []
    for name in names:
        selected += recommended if is_auto(name) else [_example(name)]
    with progress(2 * len(selected), "compiling") as advance:
        for policy in selected:
            _compile_learning(policy)
            advance(1)
            _compile_simulation(policy)
            _compile_simulation(policy, **CLICKS_ONLY_OPTIONS)
            advance(1)
    return _get_cache_counts()


def _get_cache_counts() -> tuple[int, int, Path]:
    """Return the number of loops loaded from the cache, the number compiled, and the cache's folder."""
    from tacit.core.compilation.loops import cache_root
    from tacit.core.compiled import cache_statistics

    return *cache_statistics(), cache_root()


def compile_shipped() -> None:
    """Compile the loops that platform wheels contain into the cache, with a progress bar.

    They are, for every policy, the loops of learners and of the service, and a simulation in its default
    environment.
    """
    _compile_shared()
    policy_list = all_policies()
    with progress(len(policy_list), "compiling") as advance:
        for policy in policy_list:
            _compile_learning(policy)
            _compile_service_loops(policy)
            _compile_simulation(policy)
            advance(1)


def _example(name: str) -> Policy:
    """Return the policy of a call such as ``ucb1(alpha=0.3)``, or the example of the named policy's class."""
    return policy_from_spec(name, arms=2) if "(" in name else policy_class(name).example()


def _can_read(policy: Policy, environment: Environment) -> bool:
    """True if an environment has the features and contexts that a policy needs."""
    fits_features = policy.feature_dims in ((0, 0), environment.feature_dims)
    return fits_features and policy.context_dim <= environment.context_dim


def _compile_shared() -> None:
    """Compile the loops that do not depend on a policy: of signals, feedback windows, and the service's
    series.
    """
    Signals(NAMES, arms=2, fast=1.0, slow=2.0)
    compile_loops()
    # Only if the service's packages are installed.
    with suppress(ImportError):
        from tacit.service.projections.series import compile_counting

        compile_counting()


def _compile_simulation(policy: Policy, **feedback: Any) -> None:
    """Run a short simulation of a policy, to compile its loops; do nothing if no environment fits.

    Environments are tried in the order of their names, but ``BernoulliArms`` first. ``feedback`` has options
    of the simulation.
    """
    kinds = sorted(list_parts(environments, "environments"), key=lambda kind: kind is not BernoulliArms)
    for environment in filter(None, (kind.example() for kind in kinds)):
        if environment.takes == policy.shows and _can_read(policy, environment):
            simulate(policy, environment, horizon=10, workers=1, **feedback)
            break


def _compile_service_loops(policy: Policy) -> None:
    """Compile the loops of a learner that the service uses in addition: replays, refits, forced arms and
    propensities.
    """
    learner: Learner = Learner(policy, seed=0)
    empty_batch = learner.loops.make_plain_batch(np.empty(0, np.int64), np.empty((0, policy.context_dim)))
    actions = np.empty((0, policy.action_width), np.int64)
    replay_rows(learner, empty_batch, actions, np.empty((0, policy.feedback_width)), np.empty(0))
    refit_sums(learner)
    loop_set = learner.loops
    _ = loop_set.force, policy.showing.single and loop_set.weigh
    _ = can_weigh_places(policy) and loop_set.weigh_cells
    if policy.randomized:
        _ = Learner(policy, seed=0, propensities=False).loops.choose


def _compile_learning(policy: Policy) -> None:
    """Compile a learner's loops for choosing, learning and corrections, by a few decisions."""
    learner = Learner(policy, seed=0)
    learner.compile()
    if is_correctable(policy):
        decisions = learner.choose_many(["key"])
        learner.learn_many(decisions, [0.0])
        learner.correct_many(decisions, [0.0], [1.0])
