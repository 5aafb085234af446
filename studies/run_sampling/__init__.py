"""Whole runs of dueling policies, drawn from their exact law without playing every comparison."""

from __future__ import annotations

from studies.run_sampling.beat_the_mean import beat_the_mean
from studies.run_sampling.interleaved_filter import interleaved_filter
from studies.run_sampling.result import SampledRun
from tacit.core.arrays import Floats, Generator
from tacit.policies import BeatTheMean, BeatTheMeanPAC, InterleavedFilter1, InterleavedFilter2

Sampled = BeatTheMean | BeatTheMeanPAC | InterleavedFilter1 | InterleavedFilter2


def sample_run(
    policy: Sampled, preferences: Floats, gaps: Floats, horizon: int, rng: Generator
) -> SampledRun:
    """Draw the outcome of one run of a policy.

    Parameters
    ----------
    policy : BeatTheMean, BeatTheMeanPAC, InterleavedFilter1 or InterleavedFilter2
    preferences : array of float64, shape (arms, arms)
        P(row beats column).
    gaps : array of float64, shape (arms,)
        P(best arm beats this one) − 1/2.
    horizon : int
    rng : Generator
    """
    sizes = policy.kappa, horizon, rng
    if isinstance(policy, BeatTheMean | BeatTheMeanPAC):
        return beat_the_mean(preferences, gaps, *sizes, budget=policy.budget, enough=policy.enough)
    return interleaved_filter(preferences, gaps, *sizes, budget=policy.budget, prunes=policy.prunes)
