"""What data must be like for a policy, and what is said where they are not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tacit.classifiers import Classifier
from tacit.core.arrays import Booleans, Floats, Ints
from tacit.errors import AssumptionWarning

WATCHED = 30
"""Decisions whose features are looked at: so many that flags are not alike by chance."""


def classifier_of(policy: Any) -> Classifier | None:
    """Return the classifier to which a policy, or one inside of it, shows contexts."""
    while policy is not None:
        found = getattr(policy, "classifier", None)
        if isinstance(found, Classifier):
            return found
        policy = getattr(policy, "policy", None)
    return None


class ContextWatch:
    """Count the contexts that a policy's classifier does not know, and warn of the first.

    Parameters
    ----------
    policy : Policy

    Attributes
    ----------
    outside : int
        Contexts so far that are outside of the classifier's universe.
    """

    def __init__(self, policy: Any) -> None:
        self._classifier = classifier_of(policy)
        self.outside = 0

    def look(self, contexts: Floats) -> None:
        """Look at the contexts of some impressions, shape (impressions, context_dim)."""
        classifier = self._classifier
        if classifier is None:
            return
        feasible = classifier.feasible(contexts[:, : classifier.dim])
        if feasible.all():
            return
        if self.outside == 0:
            first = contexts[int(np.argmin(feasible)), : classifier.dim].tolist()
            warnings.warn(
                f"context: {first} is outside of what {type(classifier).__name__} is safe for; "
                f"give {classifier.universe}",
                AssumptionWarning,
                stacklevel=5,
            )
        self.outside += int(np.count_nonzero(~feasible))


class UserWatch:
    """Warn of relevance features that put no arm before another, as all on offer have the same.

    Features of a user are such. The first decisions tell: a column must have varied from one to
    another, and within none of them.
    """

    def __init__(self) -> None:
        self._left = WATCHED
        self._first: Floats | None = None
        self._alike: Booleans | None = None
        self._varied: Booleans | None = None

    def look(self, relevance: Floats, sizes: Ints) -> None:
        """Look at the features of some decisions.

        Parameters
        ----------
        relevance : array of float64, shape (arms on offer, d)
            Of all decisions, one below the other.
        sizes : array of int64, shape (decisions,)
            How many arms were on offer in each.
        """
        if self._left <= 0 or not relevance.size or (sizes < 2).any():
            return
        self._left -= len(sizes)
        firsts = relevance[np.cumsum(sizes) - sizes]
        alike = (relevance == np.repeat(firsts, sizes, axis=0)).all(axis=0)
        if self._first is None:
            self._first, self._alike = firsts[0], alike
            self._varied = np.zeros(len(alike), np.bool_)
        self._alike = self._alike & alike
        self._varied = self._varied | (firsts != self._first).any(axis=0)
        if self._left <= 0:
            self._warn(np.flatnonzero(self._alike & self._varied).tolist())

    def _warn(self, columns: list[int]) -> None:
        if columns:
            warnings.warn(
                f"relevance: the columns {columns} are the same for all arms of a decision, as "
                "features of a user are, and put no arm before another; give them as context to a "
                "policy that multiplies them with those of arms: "
                f"ClickMixture(…, context_dim={len(columns)})",
                AssumptionWarning,
                stacklevel=6,
            )
