"""The holdout of a placement, the metrics that are watched beside the reward, and the guardrail over them.

The configuration of each, with its checks against the placement that it is a part of.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec

from tacit.errors import ConfigError, InvalidValue, meant
from tacit.learning.decisions import Arm
from tacit.policies import MinimumShares, Policy
from tacit.service.log.ids import as_time

if TYPE_CHECKING:
    from tacit.service.config.schema import PlacementConfig
    from tacit.service.kind import Kind

MOST_AMOUNT = 1e100
"""The largest amount of a metric: the squares of sums stay finite."""
BASELINE, UNIFORM = "baseline", "uniform"
DECISION, SESSION, USER = "decision", "session", "user"


class ControlTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A control that shows one arm always, or what a policy of its own chooses: one of both.

    Attributes
    ----------
    arm : int or str
        Its name, or its number from 0.
    policy : str or table
        As the placement's. It learns from what comes back for the control's decisions, and the
        placement's policy from what comes back for the others.
    """

    arm: Arm | None = None
    policy: str | dict[str, Any] | None = None


class HoldoutConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the traffic for a control, so that the lift is known.

    Attributes
    ----------
    share : float
        Of the decisions that are the control's; above 0, at most 0.5.
    control : str or table
        What it shows: an arm on offer drawn ``uniform``ly, the ``baseline``, which is the first
        one on offer, one arm always: ``{arm = "NAME"}``, or what another policy chooses, which
        learns from its own decisions: ``{policy = "ucb1"}``.
    unit : str
        Who stays in one group: each ``decision`` is a draw of its own, or all of a ``session`` or
        of a ``user`` have the same one. Requests that name none are decisions of their own.
    look : str
        When one look at the lift is planned, in ISO 8601, such as ``2026-06-01``: at that one the
        interval is sharper. By default none is.
    """

    share: Annotated[float, msgspec.Meta(gt=0.0, le=0.5)] = 0.1
    control: Literal["uniform", "baseline"] | ControlTable = "uniform"
    unit: Literal["decision", "session", "user"] = "decision"
    look: str | None = None

    @property
    def looked(self) -> int | None:
        """When a look is planned, in microseconds since 1970."""
        return None if self.look is None else as_time("look", self.look)

    @property
    def arm(self) -> Arm | None:
        """The arm that the control shows always, if it does."""
        return self.control.arm if isinstance(self.control, ControlTable) else None

    @property
    def policy(self) -> str | dict[str, Any] | None:
        """The policy of the control's own, if it has one."""
        return self.control.policy if isinstance(self.control, ControlTable) else None

    @property
    def named(self) -> str:
        """What the control is, in words: also the form in which the kinds allow it."""
        if not isinstance(self.control, ControlTable):
            return self.control
        return f"arm {self.arm}" if self.policy is None else f"policy {self._label}"

    @property
    def _label(self) -> str:
        return self.policy if isinstance(self.policy, str) else (self.policy or {}).get("name", "?")

    def check(self, kind: str, controls: Collection[str]) -> None:
        """Check that a kind of placement can have it.

        Parameters
        ----------
        kind : str
        controls : collection of str
            Those that the kind knows.

        Raises
        ------
        ConfigError
            If not.
        """
        if not controls:
            raise ConfigError(f"holdout: the kind {kind!r} has none; leave it out")
        if isinstance(self.control, ControlTable) and (self.arm is None) == (self.policy is None):
            raise ConfigError("holdout.control: give an arm, or a policy; one of both")
        control = self.named.partition(" ")[0]
        if control not in controls:
            raise ConfigError(
                f"holdout.control: of the kind {kind!r} it is one of {', '.join(controls)}, not {control}"
            )
        try:
            _ = self.looked
        except InvalidValue as error:
            raise ConfigError(f"holdout.{error}") from error


class MetricConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A metric that feedback carries beside the reward; what comes for a decision is added up.

    Attributes
    ----------
    range : list of float
        The least and the largest amount for a decision, to which others are clipped: [low, high];
        by default any amount from 0. Nothing that came is 0.
    half : float
        Where it is learned, and has no range: the amount that is worth one half. An amount x is
        worth x/(x + half), in a range (x − low)/(high − low).
    better : str
        Whether ``more`` of it is better, or ``less``.
    margin : float
        How much worse it may become, as a share of the control's, or of the range where that does
        not begin at 0; for the verdict.
    """

    range: Annotated[list[float], msgspec.Meta(min_length=2, max_length=2)] | None = None
    better: Literal["more", "less"] = "more"
    margin: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.0
    half: Annotated[float, msgspec.Meta(gt=0.0)] | None = None

    @property
    def low(self) -> float:
        """The least amount for a decision."""
        return 0.0 if self.range is None else self.range[0]

    @property
    def least(self) -> float:
        """The least amount that may come."""
        return 0.0 if self.low >= 0 else -math.inf

    @property
    def most(self) -> float:
        """The largest amount that may come."""
        return MOST_AMOUNT

    @property
    def largest(self) -> float:
        """The largest amount for a decision, above the least one."""
        return math.inf if self.range is None else self.range[1] - self.range[0]

    def above_low(self, amount: float) -> float:
        """Return by how much a decision's amount exceeds the least one: what is summed."""
        return min(max(amount - self.low, 0.0), self.largest)

    def worth(self, amount: float) -> float:
        """Return what an amount is worth as a reward, in [0, 1].

        Examples
        --------
        >>> MetricConfig(range=[0, 200]).worth(50.0), MetricConfig(half=20.0).worth(60.0)
        (0.25, 0.75)
        """
        if self.half is not None:
            return amount / (amount + self.half)
        return self.above_low(amount) / self.largest

    def doubt(self, name: str, amount: float) -> str | None:
        """Return what is said of an amount beyond the range; None of others."""
        if self.range is None or min(self.low, 0.0) <= amount <= self.range[1]:
            return None
        counts = f"is beyond its range, {self.range}, and counts as the end of that"
        return f"metrics.{name}: {amount:g} {counts}; widen it, or send amounts within"

    def check(self, name: str) -> None:
        """Check the range.

        Raises
        ------
        ConfigError
            If it is empty, or there is a half as well.
        """
        if self.range is None:
            return
        if not -math.inf < self.range[0] < self.range[1] < math.inf:
            raise ConfigError(
                f"metrics.{name}.range: {list(self.range)}: give the least amount, and a larger one"
            )
        if self.half is not None:
            raise ConfigError(f"metrics.{name}.half: leave it out: the range says what is worth 1")

    def check_learned(self, name: str) -> None:
        """Check that it can be learned.

        Raises
        ------
        ConfigError
            If not.
        """
        if self.range is None and self.half is None:
            raise ConfigError(
                f"metrics.{name}: to be learned it needs range = [low, high], or half = the amount "
                "that is worth one half"
            )
        if self.low < 0:
            raise ConfigError(
                f"metrics.{name}.range: what is learned begins at 0 or above, as nothing is worth 0"
            )
        if self.better == "less":
            remedy = "what is learned is to be more; leave it out, or learn another and give this a guardrail"
            raise ConfigError(f"metrics.{name}.better: 'less': {remedy}")


class RewardScale(NamedTuple):
    """The unit in which people read rewards.

    Attributes
    ----------
    low, span : float
        What the least reward is worth in it, and how much more the largest one is.
    of : str
        What is counted: the metric that is learned; empty where the reward is one of its own.
    """

    low: float = 0.0
    span: float = 1.0
    of: str = ""

    @property
    def shares(self) -> bool:
        """Whether amounts are read as shares of 1."""
        return self.low + self.span == 1.0

    @property
    def named(self) -> str:
        """What amounts are of."""
        return self.of + " as a share of its scale" * (self.of != "" and self.shares) or "reward"

    @property
    def ends(self) -> str:
        """What rewards from 0 to 1 stand for; nothing where they stand for themselves."""
        return f"{self.low:g} to {self.low + self.span:g} of {self.named}" if self != RewardScale() else ""

    def amount(self, total: float, count: float = 1.0) -> float:
        """Return the sum of so many rewards from 0 to 1 in this unit."""
        return float(total) * self.span + float(count) * self.low

    def logged(self, total: float, count: float) -> float:
        """Return the sum of so many rewards as they are logged in this unit: a metric's are from 0 to 1."""
        return self.amount(total, count) if self.of else total


# ---- The guardrail of a placement: which metric must not be harmed, and what is done where it is


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
            remedy = meant(self.metric, placement.metrics) or f"; add metrics.{self.metric} = {{}}"
            raise ConfigError(f"guardrail.metric: {self.metric!r} is none of the metrics, {known}{remedy}")
        if self.margin >= (widest := placement.metrics[self.metric].largest):
            raise ConfigError(
                f"guardrail.margin: {self.margin:g}: no two means of {self.metric} differ by more than "
                f"{widest:g}, its range; give less: a difference of means, as {widest / 50:g}"
            )
        if placement.holdout is not None:
            if self.against is not None:
                raise ConfigError(
                    "guardrail.against: leave it out: with a holdout it is the policy that is held against "
                    "the control"
                )
            return
        if not (kind.living and kind.showing.single):
            raise ConfigError(
                f"guardrail: which arm of the kind {kind.name!r} does harm, propensities do not tell; "
                "give the placement a holdout, so that the policy is held against its control"
            )
        policy = whose_draws(placement.policy)
        if not (placement.propensities and policy.randomized):
            raise ConfigError(
                f"guardrail: decisions of {policy.label} carry no propensity, so what an arm does "
                "cannot be weighed; give another policy (such as auto), or a holdout"
            )
        if self.arm_of(placement) not in _named(placement):
            arms = ", ".join(map(str, _named(placement)))
            raise ConfigError(f"guardrail.against: {self.against!r} is none of the arms, {arms}")

    def arm_of(self, placement: PlacementConfig) -> Arm:
        """Return the arm that others are held against."""
        return next(iter(_named(placement))) if self.against is None else self.against


def whose_draws(policy: Policy) -> Policy:
    """Return the policy whose draws let what every arm does be weighed, if it draws."""
    # What is promised to some says nothing of the others.
    return policy.policy if isinstance(policy, MinimumShares) and not policy.covers_all else policy


def _named(placement: PlacementConfig) -> tuple[Arm, ...]:
    arms = placement.configured_arms
    return tuple(range(arms)) if isinstance(arms, int) else tuple(arms or ())
