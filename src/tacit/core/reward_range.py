"""The range of rewards: which values a reward may have, and its place in the unit of a policy's state."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.errors import InvalidValue

LARGEST = 1e30
"""The largest absolute reward of an open range."""
REMEDY = "give (lowest, highest), (lowest, None) if there is no highest, or None if there is neither"


class RewardRange(NamedTuple):
    """The lowest and the highest reward there can be; None where an end is open.

    Attributes
    ----------
    low, high : float or None
        If ``low`` is None, so is ``high``.

    Examples
    --------
    >>> RewardRange(1.0, 5.0).to_unit(2.0), RewardRange(1.0, 5.0).from_unit(0.25)
    (0.25, 2.0)
    >>> RewardRange(0.0, None).to_unit(59.9)
    59.9
    """

    low: float | None = 0.0
    high: float | None = 1.0

    def __repr__(self) -> str:
        """Return the range as it is given: a pair or None."""
        return self.text

    @property
    def is_open(self) -> bool:
        """True if there is no highest reward."""
        return self.high is None

    @property
    def ends(self) -> int:
        """Number of known ends: 0, 1 or 2."""
        return (self.low is not None) + (self.high is not None)

    @property
    def width(self) -> float:
        """The highest minus the lowest reward; 1 where an end is open."""
        return 1.0 if self.high is None or self.low is None else self.high - self.low

    @property
    def text(self) -> str:
        """The range as an argument: ``(0, 1)``, ``(0, None)`` or ``None``."""
        if self.low is None:
            return "None"
        return f"({self.low:g}, {'None' if self.high is None else f'{self.high:g}'})"

    @property
    def option(self) -> str:
        """The range as an option of a command: ``--reward-range 0 open``."""
        return " ".join(["--reward-range", *("open" if end is None else f"{end:g}" for end in self)])

    def holds(self, other: RewardRange) -> bool:
        """True if every reward of the range ``other`` is within this one."""
        low, high = (-math.inf if end is None else end for end in (self.low, other.low))
        below = low <= high
        low, high = (math.inf if end is None else end for end in (other.high, self.high))
        return below and low <= high

    def to_unit(self, rewards: Any) -> Any:
        """Return rewards, numbers or an array, scaled as a policy's state has them.

        With two known ends they are scaled to [0, 1]; with a known lowest reward only, it is subtracted; else
        they are unchanged.
        """
        return rewards if self == UNIT_RANGE or self.low is None else (rewards - self.low) / self.width

    def from_unit(self, rewards: Any) -> Any:
        """Return rewards in the caller's unit; the inverse of :meth:`to_unit`."""
        return rewards if self == UNIT_RANGE or self.low is None else self.low + self.width * rewards

    def contains(self, rewards: Any) -> Any:
        """Return for each reward, of a number or an array, whether it is finite and within the range.

        An open end stands for 1e30, beyond which fourth powers of sums would be infinite.
        """
        rewards = np.asarray(rewards, dtype=np.float64)
        low = -LARGEST if self.low is None else self.low
        high = LARGEST if self.high is None else self.high
        return np.isfinite(rewards) & (rewards >= low) & (rewards <= high)

    def read_number(self, field: str, reward: Any) -> float:
        """Return one reward scaled as by :meth:`to_unit`; raise InvalidValue unless it is a number within the
        range.
        """
        if self is UNIT_RANGE and type(reward) is float and 0.0 <= reward <= 1.0:
            return reward
        try:
            value = checks.number(field, reward, -math.inf, math.inf)
        except InvalidValue:
            value = math.nan
        if not self.contains(value):
            raise InvalidValue(field, reward, self.remedy(value))
        return float(self.to_unit(value))

    def check_missing(self, reward: float | None) -> None:
        """Raise InvalidValue if the reward of rows without feedback is outside the range; None is allowed."""
        if reward is not None and not self.contains(reward):
            remedy = f"give {self.limits_text}, as rewards are, or missing_reward=None (--answered)"
            raise InvalidValue("missing_reward", reward, f"{remedy}, which leaves out rows without feedback")

    def remedy(self, value: float) -> str:
        """Return the remedy, for an error, for a reward outside of the range."""
        if LARGEST < abs(value) < math.inf and self.is_open:
            return "give amounts of a larger unit: at most 1e30"
        if not math.isfinite(value) or self.low is None:
            return f"give {self.limits_text}"
        wider = self.widen(value).text
        return f"give {self.limits_text}, or say what rewards there can be, as reward_range={wider}"

    @property
    def limits_text(self) -> str:
        """The rewards within the range in words: ``a number in [0, 1]``."""
        if self.low is None:
            return "a finite number"
        return f"a number in [{self.low:g}, {'infinity)' if self.high is None else f'{self.high:g}]'}"

    def widen(self, value: float) -> RewardRange:
        """Return an open range that includes a reward outside of this one, as the user may mean it."""
        is_below = self.low is not None and value < min(self.low, 0.0)
        return RewardRange(None, None) if is_below else RewardRange(0.0, None)


UNIT_RANGE = RewardRange()


def read_range(field: str, value: Any) -> RewardRange:
    """Return the range of rewards that a user gave: a pair, a list of up to two ends, or None.

    Raises
    ------
    InvalidValue
        If it is none of these, or the highest is not above the lowest.

    Examples
    --------
    >>> read_range("reward_range", (-1, 1)), read_range("reward_range", None)
    ((-1, 1), None)
    """
    ends = () if value is None else checks.as_list(value)
    if not isinstance(ends, list | tuple) or len(ends) > 2:
        raise InvalidValue(field, value, REMEDY)
    low, high = (*ends, None, None)[:2]
    if low is None and high is not None:
        raise InvalidValue(field, value, f"{REMEDY}; with a highest alone, change the sign of rewards")
    if low is not None:
        low = checks.number(field, low, -LARGEST, LARGEST)
    if high is not None:
        high = checks.number(field, high, -LARGEST, LARGEST)
        if high <= low:
            raise InvalidValue(field, value, REMEDY)
    reward_range = RewardRange(low, high)
    return UNIT_RANGE if reward_range == UNIT_RANGE else reward_range
