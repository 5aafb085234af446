"""A safe classifier of all keys, joined: what any shard knows, all may know."""

from __future__ import annotations

from typing import Any

from tacit.classifiers import Classifier
from tacit.learning.learner import Learner
from tacit.policies import Policy
from tacit.service.sharing.base import CLASSIFIER, Learned, Value, arrays_of, put, value_of


def classifier_of(policy: Policy) -> Classifier | None:
    """Return the classifier that all keys of a policy share."""
    classifier = getattr(policy, "classifier", None)
    if isinstance(classifier, Classifier):
        return None if getattr(policy, "per_key", False) else classifier
    inner = getattr(policy, "policy", None)
    wraps = isinstance(inner, Policy) and hasattr(policy.init(0), "classifier")
    return classifier_of(inner) if wraps else None  # type: ignore[arg-type]


class Joined:
    """A safe classifier, of which each shard has one: what any has learned, all may know.

    Parameters
    ----------
    classifier : Classifier
    """

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier
        self._before: Value = value_of(classifier.init(1))

    def told(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return the classifier if it has changed since the last time."""
        now = value_of(learner.state.classifier)
        before, self._before = self._before, now
        return {CLASSIFIER: now} if everything or now != before else {}

    def news(self, learner: Learner, told: Learned) -> Learned:
        """Return nothing if the join would change nothing."""
        own = learner.state.classifier
        part = {name: value for name, value in told.parts.items() if name == CLASSIFIER}
        known = not part or value_of(self._join(own, told)) == value_of(own)
        return Learned(told.shard, told.time, {} if known else part)

    def take(self, learner: Learner, told: Learned) -> None:
        """Join what another shard knows."""
        if CLASSIFIER in told.parts:
            own = learner.state.classifier
            put(own, self._join(own, told))

    def _join(self, own: Any, told: Learned) -> Any:
        other = arrays_of(told.parts[CLASSIFIER], self._classifier.init(1))
        return self._classifier.merged(own, other)

    def reach(self, policy: Policy) -> None:
        """Go on as before: it knows no arms."""

    def saved(self) -> Any:
        """Return nothing: what was joined is in the state."""
        return None

    def restore(self, saved: Any) -> None:
        """Take over nothing."""
