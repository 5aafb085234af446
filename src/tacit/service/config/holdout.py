"""The holdout of a placement, and the metrics that are watched beside the reward."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from tacit.errors import ConfigError
from tacit.learning.decisions import Arm

BASELINE = "baseline"
DECISION, SESSION, USER = "decision", "session", "user"


class OneArm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A control that shows one arm always.

    Attributes
    ----------
    arm : int or str
        Its name, or its number from 0.
    """

    arm: Arm


class HoldoutConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the traffic for a control that does not learn, so that the lift is known.

    Attributes
    ----------
    share : float
        Of the decisions that are the control's; above 0, at most 0.5.
    control : str or table
        What it shows: an arm on offer drawn ``uniform``ly, the ``baseline``, which is the first
        one on offer, or one arm always: ``{arm = "NAME"}``.
    unit : str
        Who stays in one group: each ``decision`` is a draw of its own, or all of a ``session`` or
        of a ``user`` have the same one. Requests that name none are decisions of their own.
    """

    share: Annotated[float, msgspec.Meta(gt=0.0, le=0.5)] = 0.1
    control: Literal["uniform", "baseline"] | OneArm = "uniform"
    unit: Literal["decision", "session", "user"] = "decision"


class MetricConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A metric that feedback carries beside the reward; what comes for a decision is added up.

    Attributes
    ----------
    range : list of float
        The least and the largest amount for a decision, within which sums are kept: [0, high];
        by default any amount from 0.
    better : str
        Whether ``more`` of it is better, or ``less``.
    margin : float
        How much worse it may become, as a share of the control's; for the verdict.
    """

    range: Annotated[list[float], msgspec.Meta(min_length=2, max_length=2)] | None = None
    better: Literal["more", "less"] = "more"
    margin: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.0

    @property
    def largest(self) -> float:
        """The largest amount for a decision."""
        return math.inf if self.range is None else self.range[1]

    def check(self, name: str) -> None:
        """Check the range.

        Raises
        ------
        ConfigError
            If it does not begin at 0, or is empty.
        """
        if self.range is not None and not (self.range[0] == 0 < self.range[1] < math.inf):
            raise ConfigError(
                f"metrics.{name}.range: {list(self.range)}: give 0 and a number above it; a ratio "
                "of amounts that may be negative has no meaning"
            )
