"""What the shards of a placement learn together, and how each takes in what the others learned.

Each shard tells what it has learned itself, and since when; what it is told by another one takes
the place of what that one told before. So it does no harm if something is told twice, or is lost
and told later. What is told becomes a mark in the log before it counts: the state of a shard stays
a fold over its log.

Safe classifiers are joined. Other arrays that all keys share are added up, where the policy says
that they are sums. Posteriors and counts of placements whose keys are spread over all shards are
sums, too: natural parameters Λ and η, or plays and rewards, of each shard's own impressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

from tacit.learning.learner import Learner
from tacit.policies import Policy
from tacit.service.sharing.added import Added
from tacit.service.sharing.base import Learned, Shared, Value
from tacit.service.sharing.joined import Joined, classifier_of
from tacit.service.sharing.summed import Summed


def shared_of(policy: Policy, spread: bool) -> Shared | None:
    """Return what placements of a policy share; None where every key learns alone."""
    if spread:
        return Summed(policy)
    classifier = classifier_of(policy)
    parts: list[Shared] = [] if classifier is None else [Joined(classifier)]
    if policy.sums:
        parts.append(Added(policy))
    return Several(parts) if len(parts) > 1 else next(iter(parts), None)


class Several:
    """Several things that are shared, each of which knows its part.

    Parameters
    ----------
    parts : sequence of Shared
    """

    def __init__(self, parts: Sequence[Shared]) -> None:
        self.parts = parts

    def told(self, learner: Learner, everything: bool) -> dict[str, Value]:
        """Return the parts of all."""
        return reduce(or_, (part.told(learner, everything) for part in self.parts))

    def news(self, learner: Learner, told: Learned) -> Learned:
        """Return what of each part is not known here."""
        news = (part.news(learner, told).parts for part in self.parts)
        return Learned(told.shard, told.time, reduce(or_, news))

    def take(self, learner: Learner, told: Learned) -> None:
        """Take in what another shard has told, each its part."""
        for part in self.parts:
            part.take(learner, told)

    def reach(self, policy: Policy) -> None:
        """Go on with a policy of more arms."""
        for part in self.parts:
            part.reach(policy)

    def saved(self) -> Any:
        """Return what was taken in by each."""
        return [part.saved() for part in self.parts]

    def restore(self, saved: Any) -> None:
        """Take over what :meth:`saved` gave."""
        for part, own in zip(self.parts, saved or [None] * len(self.parts), strict=True):
            part.restore(own)


def joined_of(shared: Shared | None) -> Joined | None:
    """Return the classifier among what is shared."""
    parts = shared.parts if isinstance(shared, Several) else [shared]
    return next((part for part in parts if isinstance(part, Joined)), None)
