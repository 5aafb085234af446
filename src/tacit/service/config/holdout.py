"""Configuration of a placement's holdout, metrics and guardrail, with their checks.

1. ``HoldoutConfig``: share and control of the holdout.
2. ``MetricConfig`` and ``RewardScale``: metrics besides the reward, and the unit of rewards.
3. ``GuardrailConfig``: the metric that must not degrade.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from tacit.errors import ConfigError, InvalidValue
from tacit.learning.decisions import Arm
from tacit.policies import MinimumShares, Policy
from tacit.service.log.ids import parse_time

MAX_AMOUNT = 1e100
"""Largest amount of a metric, so that the squares of sums are finite."""
MAX_OPEN = 1e30
"""Largest amount of a metric whose range is open, so that a policy still tells other amounts from 0."""
GIVE_LEAST = "give the least amount there can be, as range = [-100]"
SIGNED_AMOUNTS, OPEN_AMOUNTS = 2, 3
"""Versions of the rule of attribution for learned metrics: of a range with a largest amount that begins below
0, and of one without a largest amount. Several rewards of a decision then add up as their amounts do."""
BASELINE, UNIFORM = "baseline", "uniform"
DECISION, SESSION, USER = "decision", "session", "user"


class ControlTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A control that always shows one arm, or has a policy of its own; exactly one of both.

    Attributes
    ----------
    arm : int or str
        Name of the arm, or its number from 0.
    policy : str or table
        Policy of the control, as for a placement. It learns from feedback for the control's decisions, and
        the placement's policy from feedback for the others.
    """

    arm: Arm | None = None
    policy: str | dict[str, Any] | None = None


class HoldoutConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A share of the traffic for a control, by which the lift is measured.

    Attributes
    ----------
    share : float
        Share of the control's decisions; above 0, at most 0.5.
    control : str or table
        Action of the control: ``uniform``, an arm drawn uniformly; ``baseline``, the first arm on offer;
        ``{arm = "NAME"}``, always one arm; or ``{policy = "ucb1"}``, another policy, which learns from its
        own decisions.
    unit : str
        Unit of the assignment: each ``decision`` alone, or all decisions of a ``session`` or of a ``user``
        together. Requests without a session or user are assigned alone.
    look : str
        Time of one planned look at the lift, in ISO 8601, such as ``2026-06-01``: at that look the
        confidence interval is narrower. By default there is none.
    """

    share: Annotated[float, msgspec.Meta(gt=0.0, le=0.5)] = 0.1
    control: Literal["uniform", "baseline"] | ControlTable = "uniform"
    unit: Literal["decision", "session", "user"] = "decision"
    look: str | None = None

    @property
    def look_time(self) -> int | None:
        """Time of the planned look, in microseconds since 1970; None without one.

        Raises InvalidValue if the configured look is not a time.
        """
        return None if self.look is None else parse_time("look", self.look)

    @property
    def arm(self) -> Arm | None:
        """The arm that the control always shows; None if it draws or has a policy."""
        return self.control.arm if isinstance(self.control, ControlTable) else None

    @property
    def policy(self) -> str | dict[str, Any] | None:
        """The control's own policy; None if it has none."""
        return self.control.policy if isinstance(self.control, ControlTable) else None

    @property
    def named(self) -> str:
        """The control as text: ``uniform``, ``baseline``, ``arm NAME`` or ``policy NAME``."""
        if not isinstance(self.control, ControlTable):
            return self.control
        return f"arm {self.arm}" if self.policy is None else f"policy {self._label}"

    @property
    def _label(self) -> str:
        """Name of the control's own policy; "?" if its table has none."""
        return self.policy if isinstance(self.policy, str) else (self.policy or {}).get("name", "?")

    def check(self, kind: str, controls: Collection[str]) -> None:
        """Check that a kind of placement supports the control, and that the look is a time.

        Parameters
        ----------
        kind : str
        controls : collection of str
            Controls that the kind supports.

        Raises
        ------
        ConfigError
            If the kind does not support the control, or the look is no time.
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
            _ = self.look_time
        except InvalidValue as error:
            raise ConfigError(f"holdout.{error}") from error


class MetricConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A metric that feedback carries besides the reward; the amounts for a decision are added.

    Attributes
    ----------
    range : list of float
        Least and largest amount for a decision: ``[low, high]``, to which amounts are clipped; ``[low]`` if
        there is no largest, ``[]`` if there is neither. By default ``[0]``. Without feedback the amount is 0.
    half : float
        Not for new placements. Of a learned metric without a range: the amount whose reward is one half.
        The policy learns the mean of x/(x + half), another aim than the mean of x.
    better : str
        Whether ``more`` of the metric is better, or ``less``.
    margin : float
        Tolerated degradation for the verdict, as a share of the control's mean, or of the range if that
        does not begin at 0.
    """

    range: Annotated[list[float], msgspec.Meta(max_length=2)] | None = None
    better: Literal["more", "less"] = "more"
    margin: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.0
    half: Annotated[float, msgspec.Meta(gt=0.0)] | None = None

    @property
    def has_low(self) -> bool:
        """True if there is a least amount."""
        return self.range is None or len(self.range) > 0

    @property
    def is_open(self) -> bool:
        """True if a range is configured that has no largest amount."""
        return self.range is not None and len(self.range) < 2

    @property
    def low(self) -> float:
        """Least amount for a decision: the range's lower end; 0 without a range or a lower end."""
        return self.range[0] if self.range else 0.0

    @property
    def least(self) -> float:
        """Least amount that one feedback may carry: 0, or −1e100 if amounts may be negative."""
        return 0.0 if self.has_low and self.low >= 0 else -MAX_AMOUNT

    @property
    def most(self) -> float:
        """Largest amount that one feedback may carry."""
        return MAX_OPEN if self.is_open else MAX_AMOUNT

    @property
    def largest(self) -> float:
        """Width of the range, high − low; inf without an end or a range."""
        return self.range[1] - self.range[0] if self.range and len(self.range) == 2 else math.inf

    def subtract_low(self, amount: float) -> float:
        """Return a decision's amount minus the least one, clipped to [0, width of the range].

        Without a least amount, the amount itself is returned.
        """
        return min(max(amount - self.low, 0.0), self.largest) if self.has_low else amount

    def to_reward(self, amount: float) -> float:
        """Convert an amount to a reward: its place in the range, or x/(x + half), both in [0, 1].

        Without a largest amount, the reward is the amount minus the least one. Amounts that may be negative
        are not clipped, because the amounts of a decision are added before.

        Examples
        --------
        >>> MetricConfig(range=[0, 200]).to_reward(50.0), MetricConfig(half=20.0).to_reward(60.0)
        (0.25, 0.75)
        >>> MetricConfig(range=[0]).to_reward(50.0), MetricConfig(range=[-100, 100]).to_reward(-150.0)
        (50.0, -0.25)
        """
        if self.half is not None:
            return amount / (amount + self.half)
        if self.is_open:
            return amount - self.low
        return (amount - self.low if self.low < 0 else self.subtract_low(amount)) / self.largest

    @property
    def attribution(self) -> dict[str, Any]:
        """Fields of the rule of attribution that follow from the range if the metric is learned.

        Empty for a range with a largest amount that begins at 0 or above.
        """
        if self.is_open:
            return {"default": self.to_reward(0.0), "version": OPEN_AMOUNTS}
        if self.low < 0 < self.largest:
            return {"default": self.to_reward(0.0), "version": SIGNED_AMOUNTS}
        return {}

    def find_warning(self, name: str, amount: float) -> str | None:
        """Return a warning if an amount lies beyond the range of metric ``name``; None otherwise."""
        if not self.range or min(self.low, 0.0) <= amount <= self.low + self.largest:
            return None
        counts = f"is beyond its range, {self.range}, and counts as the end of that"
        return f"metrics.{name}: {amount:g} {counts}; widen it, or send amounts within"

    def check(self, name: str) -> None:
        """Check the range of metric ``name``, and that its margin has a meaning.

        Raises
        ------
        ConfigError
            If the range is empty, or ``half`` is given, too, or the margin were a share of an open range.
        """
        if self.range is None:
            return
        if not -math.inf < self.low < self.low + self.largest or not math.isfinite(sum(self.range)):
            raise ConfigError(
                f"metrics.{name}.range: {list(self.range)}: give the least amount, and a larger one"
            )
        if self.half is not None:
            raise ConfigError(f"metrics.{name}.half: leave it out: the range says what is worth 1")
        # Of an open range that begins at 0, the margin is a share of the control's mean.
        if self.margin and self.is_open and (self.low or not self.has_low):
            remedy = "it is a share of the range, which is open; give range = [low, high], or leave it out"
            raise ConfigError(f"metrics.{name}.margin: {self.margin:g}: {remedy}")

    def check_learned(self, name: str) -> None:
        """Check that metric ``name`` can be learned as the reward.

        Raises
        ------
        ConfigError
            If it has neither ``range`` nor ``half``, or no least amount, its range does not hold 0, or less
            of it is better.
        """
        if self.range is None and self.half is None:
            raise ConfigError(
                f"metrics.{name}: to be learned it needs range = [low, high], or range = [0] if there is no "
                "largest amount"
            )
        if not self.has_low:
            raise ConfigError(f"metrics.{name}.range: []: to be learned {GIVE_LEAST}")
        if self.low + self.largest <= 0 or (self.is_open and self.low > 0):
            raise ConfigError(
                f"metrics.{name}.range: {list(self.range or ())}: without feedback the amount is 0; give a "
                "range that holds it"
            )
        if self.better == "less":
            remedy = "what is learned is to be more; leave it out, or learn another and give this a guardrail"
            raise ConfigError(f"metrics.{name}.better: 'less': {remedy}")


class RewardScale(NamedTuple):
    """The unit of rewards in reports.

    Attributes
    ----------
    low, span : float
        Offset and width of the reward range in the unit.
    of : str
        The learned metric; empty if rewards do not come from a metric.
    is_open : bool
        Whether there is no largest reward; the span is then 1.
    """

    low: float = 0.0
    span: float = 1.0
    of: str = ""
    is_open: bool = False

    @property
    def shares(self) -> bool:
        """True if the largest reward is 1 in the unit, so that rewards are shown as percentages."""
        return self.low + self.span == 1.0 and not self.is_open

    @property
    def named(self) -> str:
        """Name of the unit: the learned metric, "METRIC as a share of its scale", or "reward"."""
        return self.of + " as a share of its scale" * (self.of != "" and self.shares) or "reward"

    @property
    def legend(self) -> str:
        """Text that explains the unit, such as "0 to 1 stand for 0 to 200 of revenue".

        "" for plain rewards.
        """
        if self.is_open:
            return f"rewards are amounts of {self.of}" + f" above {self.low:g}" * bool(self.low)
        ends = f"{self.low:g} to {self.low + self.span:g}"
        return f"0 to 1 stand for {ends} of {self.named}" if self != RewardScale() else ""

    @property
    def largest(self) -> float:
        """Largest reward in the sums of the log: 1, or inf without one."""
        return math.inf if self.is_open else 1.0

    def convert(self, total: float, count: float = 1.0) -> float:
        """Convert the sum of ``count`` rewards in [0, 1] to the unit: total · span + count · low."""
        return float(total) * self.span + float(count) * self.low

    def convert_logged(self, total: float, count: float) -> float:
        """Convert the sum of ``count`` rewards, as a series counts them, to the unit.

        A series counts a metric's rewards in [0, 1]; if the metric may be negative, its amounts as a share of
        the span. Other rewards are in the unit already, and are returned unchanged.
        """
        return float(total) * self.span + float(count) * max(self.low, 0.0) if self.of else total


# ---- The guardrail of a placement: the metric that it protects, and its action


class GuardrailConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Action for a proved degradation of a metric by an arm, or by the policy.

    Attributes
    ----------
    metric : str
        One of the placement's metrics.
    margin : float
        Tolerated degradation, as an amount for a decision; at least 0. Only degradation beyond it counts;
        proofs are valid at any time.
    then : str
        ``retire`` the arm once (with a holdout: let the control decide everything), or only ``tell``.
    against : int or str
        Baseline arm, with which others are compared and which stays on offer; by default the first one.
        With a holdout, the policy is compared with the control.
    """

    metric: str
    margin: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    then: Literal["retire", "tell"] = "retire"
    against: Arm | None = None


def get_drawing_policy(policy: Policy) -> Policy:
    """Return the policy whose random draws reach every arm: the policy itself, or its inner policy.

    The inner policy is returned if the policy promises minimum shares to some arms only.
    """
    # Promised shares of some arms give no data on the others.
    return policy.policy if isinstance(policy, MinimumShares) and not policy.covers_all else policy
