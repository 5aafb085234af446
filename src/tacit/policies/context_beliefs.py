"""What models of a user's context believe, for many contexts at once: to look at, never to decide by.

The same numbers as the compiled kernels of :mod:`~tacit.policies.features.context_models`, in NumPy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats
from tacit.policies.features.context_inputs import FURTHEST, Measure
from tacit.policies.features.context_models import FULL, NOTHING, Base, Models


class ContextBeliefs(NamedTuple):
    """What is believed of each arm in each of many contexts.

    Attributes
    ----------
    weights : array of float64, shape (4,)
        Of the hypotheses; of sum 1.
    logits, variances : array of float64, shape (contexts, arms, 4)
        Of a click's log-odds, under each hypothesis.
    slopes : array of float64, shape (arms, d)
        What a number of a context, at its common size, adds to the log-odds: the mean over hypotheses.
    scaled : array of float64, shape (contexts, d)
        The contexts' numbers at their common size, 0 for the average.
    """

    weights: Floats
    logits: Floats
    variances: Floats
    slopes: Floats
    scaled: Floats

    @property
    def says_nothing(self) -> float:
        """The weight of the hypothesis that contexts say hardly anything."""
        return float(self.weights[NOTHING])

    def added(self) -> Floats:
        """Return what each number adds to the log-odds of each arm, beside an average context.

        Returns
        -------
        array of float64, shape (contexts, arms, d)
        """
        added: Floats = self.scaled[:, None, :] * self.slopes
        return added


def beliefs_in(
    models: Models, measure: Measure, weights: Floats, base: Base, model: int, contexts: Floats
) -> ContextBeliefs:
    """Return what one of the models believes in contexts.

    Parameters
    ----------
    models : Models
    measure : Measure
    weights : array of float64, shape (4,)
    base : Base
        What is expected of an arm that was not met.
    model : int
    contexts : array of float64, shape (contexts, d)
    """
    off = (contexts - measure.mean[model]) * measure.factor[model]
    scaled = np.clip(off, -FURTHEST, FURTHEST)
    directions = measure.directions[model].astype(float)
    known = 1 + (len(directions) or contexts.shape[1])
    along = scaled @ directions.T
    parts = [along, scaled - along @ directions] if len(directions) else [scaled]
    x = np.column_stack([np.ones(len(scaled)), *parts])
    means = models.mean[model].astype(float)
    logits = np.einsum("nf,khf->nkh", x, means)
    variances = _variances(models, model, x, known)
    first = _first(models, model, base)
    unmet = ~models.met[model]
    logits += np.where(unmet, first[0] - means[..., 0], 0.0)
    variances += np.where(unmet, first[1] - _constant(models, model), 0.0)
    return ContextBeliefs(
        weights.copy(), logits, np.maximum(variances, 0.0), _slopes(weights, means, directions), scaled
    )


def _variances(models: Models, model: int, x: Floats, known: int) -> Floats:
    """Return the variance of the logit of each arm, under each hypothesis."""
    # The lower triangle column by column is the upper one row by row.
    column, row = np.triu_indices(known)
    products = x[:, column] * x[:, row] * np.where(column == row, 1.0, 2.0)
    products = np.column_stack([products, x[:, known:] ** 2])
    narrow = models.narrow[model].astype(float)
    found = np.empty((len(x), *models.met[model].shape))
    found[..., :FULL] = np.einsum("np,khp->nkh", products, models.spread[model].astype(float), optimize=True)
    found[..., NOTHING] = x[:, : narrow.shape[1]] ** 2 @ narrow.T
    return found


def _constant(models: Models, model: int) -> Floats:
    """Return the variance of each arm's constant; before its first event, what stands in its place."""
    narrow = models.narrow[model, :, :1]
    return np.column_stack([models.spread[model, :, :, 0], narrow]).astype(float)


def _first(models: Models, model: int, base: Base) -> Any:
    """Return mean and variance of the constants of arms before their first event."""
    precision, pull = _constant(models, model), models.mean[model, :, :, 0]
    variance = 1.0 / (1.0 / base.variance + precision)
    return variance * (base.logit / base.variance + pull), variance


def _slopes(weights: Floats, means: Floats, directions: Floats) -> Floats:
    """Return what each number of a context adds to the logit of each arm."""
    mixed: Floats = np.tensordot(weights, means, (0, 1))[:, 1:]
    if not len(directions):
        return mixed
    along, rest = mixed[:, : len(directions)], mixed[:, len(directions) :]
    return rest + (along - rest @ directions.T) @ directions
