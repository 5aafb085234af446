"""A request for the page's form: what a first decision of a placement could ask for."""

from __future__ import annotations

from typing import Any

from tacit.service.duels import DuelPlacement
from tacit.service.features import FeaturePlacement
from tacit.service.placement import Placement

ITEMS = ("a", "b", "c", "d")


def example(placement: Placement) -> dict[str, Any]:
    """Return a request that the placement will answer, as JSON data."""
    asked: dict[str, Any] = {"key": "independence day"}
    if placement.config.policy.context_dim:
        asked["context"] = [0.5] * placement.config.policy.context_dim
    if isinstance(placement, DuelPlacement):
        turns = [i % len(ITEMS) for i in range(len(placement.arms))]
        asked["rankings"] = {
            str(name): [*ITEMS[turn:], *ITEMS[:turn]]
            for turn, name in zip(turns, placement.arms, strict=True)
        }
    if isinstance(placement, FeaturePlacement):
        arms = len(placement.arms) or 3
        relevance, examination = placement.config.policy.feature_dims
        for field, dim in (("relevance", relevance), ("examination", examination)):
            if dim:
                asked[field] = [[float((i + j) % 2) for j in range(dim)] for i in range(arms)]
    return asked
