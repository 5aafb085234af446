"""Decisions that clients made with a replica of the policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tacit.service.deciders.choices import Choices, Decider, ImpressionBatch
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.log.requests import ClientDecision


@dataclass
class ClientDecider:
    """Takes the decisions of clients as they are; nothing is drawn.

    Parameters
    ----------
    decider : Decider
        Decides all other batches.
    policy : PolicyDecider
        The policy of which clients have replicas.
    mode : str
        Mode that the log gives to clients' decisions.
    """

    decider: Decider
    policy: PolicyDecider
    mode: str

    def choose(self, batch: ImpressionBatch) -> Iterable[Choices]:
        """Return clients' decisions unchanged but for the current epoch of each key; pass other batches on.

        The decisions of a batch are either all clients' or all the service's.
        """
        details = batch.impressions.column("details")
        if not isinstance(details[0], ClientDecision):
            return self.decider.choose(batch)
        learner = self.policy.learner
        pairs = zip(details, batch.impressions.column("key"), strict=True)
        decisions: list[Any] = [
            decision._replace(epoch=learner.epoch(key) if key in learner else 0) for decision, key in pairs
        ]
        return (Choices(batch, decisions, self.mode, by_client=True, is_recalled=True),)
