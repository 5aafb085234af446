"""What travels about a guardrail: what it watches, and which harm it has proved."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class Harm(msgspec.Struct, frozen=True):
    """Harm that is proved: by how much a metric exceeds that of what it is held against, per decision.

    Attributes
    ----------
    arm : int, str or None
        None for the policy, held against the control of the holdout.
    metric : str
    estimate, low, high : float
        Negative where there is less of the metric; the ends hold at any time.
    then : str
        What was done: ``retire`` or ``tell``.
    at : str or None
        When, in ISO 8601; a mark of the log has a time of its own.
    """

    arm: Annotated[
        int | str | None, Meta(description="Null for the policy, held against the holdout's control.")
    ]
    metric: str
    estimate: Annotated[float, Meta(description="How much more of the metric there is per decision.")]
    low: float
    high: float
    then: Annotated[str, Meta(description="What was done: ``retire`` or ``tell``.")]
    at: Annotated[str | None, Meta(description="When, in ISO 8601.")] = None

    @property
    def interval(self) -> tuple[float, float, float]:
        """The estimate, and what it lies between."""
        return self.estimate, self.low, self.high


class GuardrailNow(msgspec.Struct, frozen=True):
    """The guardrail of a placement."""

    metric: str
    margin: Annotated[float, Meta(description="How much worse it may be, per decision.")]
    then: Annotated[str, Meta(description="``retire`` or ``tell``.")]
    against: Annotated[
        int | str | None,
        Meta(
            description="The arm that others are held against; null where the policy is, against the control."
        ),
    ]
    harms: Annotated[list[Harm], Meta(description="That were proved, each once.")]
