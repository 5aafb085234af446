"""Empirical Bayes: priors of arms' click rates, fitted to all keys of a placement as they learn.

The beta-binomial likelihood needs only the number of keys that have more than j clicks, misses and plays of
an arm, however the played arms were chosen. The maximum of that likelihood is the prior of new keys.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.dispatch import kernel
from tacit.policies.index import PriorsPolicy, read_prior_counts

# The first plays of an arm by a key that count.
BINS = 256
SUCCESSES, FAILURES, PLAYS = range(3)
# Imaginary keys of this many plays regularize a fit: keys of a uniform prior the fit of the common prior,
# keys of the common prior the fit of each arm's prior.
IMAGINARY_PLAYS = 32
COMMON_KEYS, ARM_KEYS = 2.0, 5.0
STEPS = 20
MIN_PARAMETER, MAX_WEIGHT = 0.02, 500.0
# Rewards before the first fit; then the least number, and the least factor, to the next one.
FIRST_FIT, MIN_STEP, GROWTH = 20.0, 10.0, 1.15


class Priors(NamedTuple):
    """Priors of arms and the statistics that they are fitted to; every array has a leading axis of 1.

    Attributes
    ----------
    tails : array of float64, shape (1, 1 + arms, 256, 3)
        Number of keys that had more than j successes, failures and plays of an arm before their first
        shift, with fractions apportioned; the first row is the sum over all arms.
    beta : array of float64, shape (1, 1 + arms, 2)
        Parameters of each arm's Beta prior for a new key; the first row is the common prior of all arms.
    imagined : array of float64, shape (1, 32, 2)
        The tails of successes and failures of one imaginary key.
    rounds, due : array of float64, shape (1,)
        Rewards learned over all keys, and their number at the next fit.
    """

    tails: Floats
    beta: Floats
    imagined: Floats
    rounds: Floats
    due: Floats

    @classmethod
    def uniform(cls, arms: int) -> Priors:
        """Return Beta(1, 1) priors of ``arms`` arms without statistics."""
        return cls(
            tails=np.zeros((1, 1 + arms, BINS, 3)),
            beta=np.ones((1, 1 + arms, 2)),
            imagined=np.zeros((1, IMAGINARY_PLAYS, 2)),
            rounds=np.zeros(1),
            due=np.full(1, FIRST_FIT),
        )


def beta_priors(policy: PriorsPolicy) -> Floats:
    """Return the parameters of arms' Beta priors from the policy's configured successes and failures.

    Each is the count + 1; a pair with a sum above 500 is scaled down to 500.

    Parameters
    ----------
    policy : PriorsPolicy

    Returns
    -------
    array of float64, shape (arms, 2)
        0 for arms without counts.
    """
    counts = read_prior_counts(policy)
    betas = counts + 1.0
    betas *= np.minimum(1.0, MAX_WEIGHT / betas.sum(axis=1, keepdims=True))
    betas[~counts.any(axis=1)] = 0.0
    return betas


@kernel
def raise_tail(priors: Priors, arm: int, column: int, before: float, after: float) -> None:
    """Count in the tails of an arm, and of all arms, that a key's count grew from ``before`` to ``after``.

    Tail j is the number of keys whose count exceeds j; a fraction of a step counts in part. ``column`` is
    SUCCESSES, FAILURES or PLAYS.
    """
    low, level = before, int(before)
    while low < after:
        high = min(after, level + 1.0)
        priors.tails[0, 0, level, column] += high - low
        priors.tails[0, 1 + arm, level, column] += high - low
        low, level = high, level + 1


@kernel
def count_play(priors: Priors, arm: int, successes: float, failures: float, hit: float, miss: float) -> None:
    """Add a play of an arm by a key to the tails; ignore it if the key then has more than 256 plays of the
    arm.

    ``successes`` and ``failures`` are the key's counts of the arm before the play, ``hit`` and ``miss`` the
    play's; they may be fractions.
    """
    plays = successes + failures
    # The likelihood covers a key's first plays: a later play must not count in part.
    if plays + hit + miss > BINS:
        return
    raise_tail(priors, arm, SUCCESSES, successes, successes + hit)
    raise_tail(priors, arm, FAILURES, failures, failures + miss)
    raise_tail(priors, arm, PLAYS, plays, plays + hit + miss)


@kernel
def fill_imaginary_tails(priors: Priors, a: float, b: float) -> None:
    """Set ``priors.imagined`` to the expected tails of an imaginary key: 32 plays whose rate follows Beta(a,
    b).

    Its successes are beta-binomial.
    """
    mass, cumulative = 1.0, 0.0
    for i in range(IMAGINARY_PLAYS):
        mass *= (b + i) / (a + b + i)
    for x in range(IMAGINARY_PLAYS):
        cumulative += mass
        priors.imagined[0, x, SUCCESSES] = max(1.0 - cumulative, 0.0)
        priors.imagined[0, IMAGINARY_PLAYS - 1 - x, FAILURES] = min(cumulative, 1.0)
        mass *= (IMAGINARY_PLAYS - x) * (a + x)
        mass /= (x + 1.0) * (b + IMAGINARY_PLAYS - 1.0 - x)


@kernel
def fit(priors: Priors, row: int, keys: float, steps: int, floor: float) -> None:
    """Fit the Beta prior of a row, in place, by ``steps`` fixed-point steps towards the maximum of the
    likelihood.

    The steps are Minka's (2000, equation 55). ``keys`` is the number of imaginary keys that are added to the
    data. If a parameter is below ``floor``, both are scaled up so that it equals ``floor``.
    """
    a, b = priors.beta[0, row, 0], priors.beta[0, row, 1]
    for _ in range(steps):
        hits, misses, plays = 0.0, 0.0, 0.0
        for j in range(BINS):
            play = priors.tails[0, row, j, PLAYS]
            hit, miss = priors.tails[0, row, j, SUCCESSES], priors.tails[0, row, j, FAILURES]
            if j < IMAGINARY_PLAYS:
                play += keys
                hit += keys * priors.imagined[0, j, SUCCESSES]
                miss += keys * priors.imagined[0, j, FAILURES]
            elif play == 0.0:
                break
            # In sum, ψ(a + successes) − ψ(a) over all keys; for failures and plays likewise.
            hits += hit / (a + j)
            misses += miss / (b + j)
            plays += play / (a + b + j)
        a, b = max(a * hits / plays, MIN_PARAMETER), max(b * misses / plays, MIN_PARAMETER)
        # The prior counts as at most ``MAX_WEIGHT`` plays.
        shrink = min(1.0, MAX_WEIGHT / (a + b))
        a, b = a * shrink, b * shrink
    if min(a, b) < floor:
        grow = floor / min(a, b)
        a, b = a * grow, b * grow
    priors.beta[0, row, 0], priors.beta[0, row, 1] = a, b


@kernel
def fill_prior_tails(priors: Priors, betas: Floats, arm: int) -> None:
    """Set the imaginary key's tails to the tails expected under the arm's configured prior.

    ``betas`` has the configured priors; 0 for an arm without one, for which the common prior is used.
    """
    if betas[arm, 0] > 0.0:
        fill_imaginary_tails(priors, betas[arm, 0], betas[arm, 1])
    else:
        fill_imaginary_tails(priors, priors.beta[0, 0, 0], priors.beta[0, 0, 1])


@kernel
def fit_all(priors: Priors, betas: Floats | None, floor: float) -> None:
    """Fit the common prior of all arms, then each arm's prior, in place, and set the round of the next fit.

    Imaginary keys pull the common prior to Beta(1, 1), and an arm's prior to the configured one (``betas``)
    or to the common prior. ``floor`` is the minimum of each parameter.
    """
    fill_imaginary_tails(priors, 1.0, 1.0)
    fit(priors, 0, COMMON_KEYS, STEPS, floor)
    fill_imaginary_tails(priors, priors.beta[0, 0, 0], priors.beta[0, 0, 1])
    for row in range(1, priors.beta.shape[1]):
        if betas is not None:
            fill_prior_tails(priors, betas, row - 1)
        fit(priors, row, ARM_KEYS, STEPS, floor)
    priors.due[0] = max(FIRST_FIT, priors.rounds[0] + MIN_STEP, GROWTH * priors.rounds[0])


@kernel
def count_round(priors: Priors, betas: Floats | None, floor: float) -> None:
    """Count a reward of any key; if a fit is due, fit all priors."""
    priors.rounds[0] += 1.0
    if priors.rounds[0] >= priors.due[0]:
        fit_all(priors, betas, floor)
