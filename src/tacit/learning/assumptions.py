"""What data must be like for a policy, and what is said where they are not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tacit.classifiers import Classifier
from tacit.core.arrays import Floats
from tacit.errors import AssumptionWarning


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
