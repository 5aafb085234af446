"""Placements that show one of the arms that a request describes by their features."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tacit.service.config.schema import Count
from tacit.service.http import arms
from tacit.service.http.arms import ArmsTable
from tacit.service.kind import Kind
from tacit.service.page.kinds import FeatureView
from tacit.service.placements.lists import FeaturePlacement
from tacit.service.placements.placement import Placement


class FeaturesTable(ArmsTable, forbid_unknown_fields=True, kw_only=True):
    """Shows one of the arms that a request describes by their features.

    Attributes
    ----------
    arms : int or list of str
        Only for policies that keep something for each arm.
    relevance_dim, examination_dim : int
        Features of each arm that the recommended policy reads; at least one of the first.
    """

    arms: Count | list[str] | None = None  # type: ignore[assignment]
    relevance_dim: Annotated[int, msgspec.Meta(ge=0)] = 0
    examination_dim: Annotated[int, msgspec.Meta(ge=0)] = 0

    @property
    def setting(self) -> dict[str, Any]:
        return {
            "relevance_dim": self.relevance_dim,
            "examination_dim": self.examination_dim,
            "context_dim": self.context_dim or self.signals_dim,
            "context": self.context,
        }


def example(placement: Placement) -> dict[str, Any]:
    """Return a request with features of each arm, of three where they come with it."""
    asked, count = arms.example(placement), len(placement.arms) or 3
    dims = placement.config.policy.feature_dims
    for field, dim in zip(("relevance", "examination"), dims, strict=True):
        if dim:
            asked[field] = [[float((i + j) % 2) for j in range(dim)] for i in range(count)]
    return asked


KIND = Kind(
    "features", arms.FORM.verb.path, "arm", FeaturesTable, FeaturePlacement, FeatureView, example,
    form=arms.FORM,
    by_features=True,
    controls=("uniform", "baseline", "arm", "policy"),
)  # fmt: skip
