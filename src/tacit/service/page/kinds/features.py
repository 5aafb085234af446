"""What the page shows of a feature placement: what is believed of each feature's weight."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from tacit.service.page.reader import PlacementReader
from tacit.service.page.view import Look, View

MOST_WEIGHTS = 30
DEVIATIONS = 1.96
BLOCKS = ("relevance", "examination")


class Weight(NamedTuple):
    """What is believed of one parameter: its mean, and an interval that holds it with 95 %.

    ``left``, ``middle`` and ``right`` are the places of the interval's ends and the mean on a scale
    from 0 to 100 that all weights share, with 0 at 50.
    """

    name: str
    mean: float
    low: float
    high: float
    left: float
    middle: float
    right: float


class FeatureReader(PlacementReader, Protocol):
    """What may be read of a feature placement besides."""

    @property
    def first_belief(self) -> tuple[str, Any] | None:
        """Return what is believed of the features for the first key."""


class FeatureView(View):
    """A feature placement as the page shows it.

    Parameters
    ----------
    placement : FeatureReader
    look : Look
    """

    template = "features.html"
    deterministic = False

    def __init__(self, placement: FeatureReader, look: Look) -> None:
        super().__init__(placement, look)
        self._dims = placement.config.policy.feature_dims
        self._posterior: Any
        self.key, self._posterior = placement.first_belief or ("", None)

    @cached_property
    def weights(self) -> list[Weight]:
        """What is believed of each weight of the first key; nothing where that is not known."""
        if self._posterior is None:
            return []
        names, means, deviations = self._marginals()
        low, high = means - DEVIATIONS * deviations, means + DEVIATIONS * deviations
        widest = max(float(np.abs([low, high]).max(initial=0.0)), 1e-12)
        return [
            Weight(name, *map(float, values), *(50.0 + 50.0 * float(v) / widest for v in drawn))
            for name, *values, drawn in zip(
                names, means, low, high, zip(low, means, high, strict=True), strict=True
            )
        ]

    def _marginals(self) -> tuple[list[str], Any, Any]:
        """Return name, mean and standard deviation of each weight."""
        posterior = self._posterior
        if hasattr(posterior, "mean"):
            names = [f"{block} {i}" for block, d in zip(BLOCKS, self._dims, strict=True)
                     for i in range(d)]  # fmt: skip
            beliefs = [posterior]
        else:
            beliefs = [getattr(posterior, block) for block in BLOCKS]
            names = [
                f"{block} {i}" if i < d else f"{block}, constant"
                for block, belief, d in zip(BLOCKS, beliefs, self._dims, strict=True)
                for i in range(len(belief.mean))
            ]
        means = np.concatenate([belief.mean for belief in beliefs])
        deviations = np.concatenate([np.sqrt(np.diag(belief.covariance)) for belief in beliefs])
        names += ["constant"] * (len(means) - len(names))
        return names[:MOST_WEIGHTS], means[:MOST_WEIGHTS], deviations[:MOST_WEIGHTS]
