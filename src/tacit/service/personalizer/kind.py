"""Placements that answer the Personalizer API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from tacit.errors import ConfigError
from tacit.policies import LinearEpsilonGreedy, Policy
from tacit.service.config.rule import Aggregation
from tacit.service.config.schema import PERSONALIZER, Seconds
from tacit.service.config.tables import PlacementTable
from tacit.service.kind import Kind
from tacit.service.page.kinds.features import FeatureView
from tacit.service.personalizer.placement import PersonalizerPlacement
from tacit.service.placements.base import Placement


class PersonalizerTable(PlacementTable, forbid_unknown_fields=True, kw_only=True):
    """Answers the interface of Personalizer.

    Attributes
    ----------
    default_reward : float
        Reward of a decision for which none came in its window.
    aggregation : str
        What several rewards for one decision make: the ``first``, the ``last``, their ``sum`` (at
        most 1), or the ``max``.
    """

    policy: str | dict[str, Any] = "linear-epsilon-greedy(dim=256)"
    attribution_window: Seconds = 600.0
    default_reward: Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)] = 0.0
    aggregation: Aggregation = "first"
    propensities: Literal[True] = True

    @property
    def slots(self) -> Any:
        return None

    @property
    def attribution(self) -> dict[str, Any]:
        return {"default": self.default_reward, "aggregation": self.aggregation, "lowest": -1.0}


def example(placement: Placement) -> dict[str, Any]:
    """Return a request for one of two actions."""
    actions = [{"id": name, "features": [{"topic": name}]} for name in ("news", "sport")]
    return {"contextFeatures": [{"time": "morning"}], "actions": actions}


def check(policy: Policy) -> None:
    """Check that a policy says with what probability it chooses each action.

    Raises
    ------
    ConfigError
        If it does not.
    """
    if not isinstance(policy, LinearEpsilonGreedy):
        raise ConfigError(
            f"policy: {type(policy).__name__} does not say with what "
            "probability it chooses each action; give linear-epsilon-greedy(dim=256)"
        )


KIND = Kind(
    PERSONALIZER, "personalizer/v1.0/rank", "arm", PersonalizerTable, PersonalizerPlacement,
    FeatureView, example,
    by_features=True,
    sharded=False,
    controls=("uniform", "baseline"),
    units=("decision",),
    pinned=False,
    check=check,
)  # fmt: skip
