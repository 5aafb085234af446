"""The guardrail of a placement: which metric must not be harmed, and what is done where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from tacit.errors import ConfigError
from tacit.learning.decisions import Arm
from tacit.service.log.rows import CONTROL

if TYPE_CHECKING:
    from tacit.service.config.schema import PlacementConfig
    from tacit.service.kind import Kind


class GuardrailConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is done where an arm, or the policy, is proved to harm a metric.

    Attributes
    ----------
    metric : str
        One of the placement's metrics.
    margin : float
        How much worse it may become, as an amount for a decision; at least 0. Only harm beyond it,
        proved at whichever look, counts.
    then : str
        ``retire`` the arm (with a holdout: let the control decide everything), once; or only ``tell``.
    against : int or str
        The arm that others are held against, which stays on offer; by default the first one. With a
        holdout it is the policy that is held against the control.
    """

    metric: str
    margin: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    then: Literal["retire", "tell"] = "retire"
    against: Arm | None = None

    def check(self, placement: PlacementConfig, kind: Kind) -> None:
        """Check that a placement can have it.

        Parameters
        ----------
        placement : PlacementConfig
        kind : Kind
            Its kind.

        Raises
        ------
        ConfigError
            If not.
        """
        if self.metric not in placement.metrics:
            known = ", ".join(placement.metrics) or "none"
            raise ConfigError(
                f"guardrail.metric: {self.metric!r} is none of the metrics ({known}); add it there"
            )
        if placement.holdout is not None:
            if self.against is not None:
                raise ConfigError(
                    "guardrail.against: leave it out: with a holdout it is the policy that is held against "
                    "the control"
                )
            if CONTROL not in kind.placement.possible_modes:
                raise ConfigError(
                    f"guardrail: a control cannot decide everything at placements of the kind {kind.name!r}; "
                    "leave it out"
                )
            return
        if not (kind.living and kind.showing.single):
            raise ConfigError(
                f"guardrail: which arm of the kind {kind.name!r} does harm, propensities do not tell; "
                "give the placement a holdout, so that the policy is held against its control"
            )
        if not (placement.propensities and placement.policy.randomized):
            raise ConfigError(
                f"guardrail: decisions of {placement.policy.label} carry no propensity, so what an arm does "
                "cannot be weighed; give another policy (such as auto), or a holdout"
            )
        if self.arm_of(placement) not in _named(placement):
            raise ConfigError(f"guardrail.against: {self.against!r} is none of the policy's arms")

    def arm_of(self, placement: PlacementConfig) -> Arm:
        """Return the arm that others are held against."""
        return next(iter(_named(placement))) if self.against is None else self.against


def _named(placement: PlacementConfig) -> tuple[Arm, ...]:
    arms = placement.configured_arms
    return tuple(range(arms)) if isinstance(arms, int) else tuple(arms or ())
