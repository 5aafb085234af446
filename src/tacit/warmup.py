"""Compile ahead what later runs would compile on first use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tacit.core.dispatch import shipped
from tacit.core.progress import progress
from tacit.environments import Environment
from tacit.environments.base import registry as environments
from tacit.learning.learner import Learner
from tacit.learning.signals import NAMES, Signals
from tacit.policies import ExplorationFloor, Policy, ProbationBandit
from tacit.policies.base import registry as policies
from tacit.service.attribution.windows import Terms, Windows, entries
from tacit.simulation import simulate


def all_policies() -> list[Policy]:
    """Return one policy of each kind, and those over named arms under a floor as well."""
    examples: list[Policy] = [kind.example() for kind in shipped(policies, "policies")]
    plain = [each for each in examples if each.shows == "arm" and each.feature_dims == (0, 0)]
    bare = [each for each in plain if not isinstance(each, (ExplorationFloor, ProbationBandit))]
    return examples + [ExplorationFloor(each) for each in bare]


def all_environments() -> list[Environment]:
    """Return one environment of each kind, at once and with delay."""
    examples = (kind.example() for kind in shipped(environments, "environments"))
    found: list[Environment] = [each for each in examples if each is not None]
    return found + [replace(each, delay=1) for each in found]


def compile_all() -> tuple[int, int, Path]:
    """Compile every policy for every driver; return cache hits, compilations and the folder."""
    from tacit.core.compiled import cache_root, cache_statistics

    Signals(NAMES, arms=2, fast=1.0, slow=2.0)
    entries(Windows.zeros(0), Terms(1, 0.0, 0.0, 0, False, False))
    parts, worlds = all_policies(), all_environments()
    with progress(len(parts) * (1 + len(worlds)), "compiling") as advance:
        for policy in parts:
            _learned(policy)
            advance(1)
            for environment in worlds:
                fits = policy.shows == environment.takes and policy.feature_dims in (
                    (0, 0),
                    environment.feature_dims,
                )
                if fits and policy.context_dim <= environment.context_dim:
                    simulate(policy, environment, horizon=10, workers=1)
                advance(1)
    return *cache_statistics(), cache_root()


def _learned(policy: Policy) -> None:
    """Compile what a learner of a policy does."""
    learner = Learner(policy, seed=0)
    learner.compile()
    if policy.correctable:
        decisions = learner.choose_many(["key"])
        learner.learn_many(decisions, [0.0])
        learner.correct_many(decisions, [0.0], [1.0])
