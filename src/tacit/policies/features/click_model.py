"""Base classes of policies that know arms by relevance and examination features; one draw for all arms."""

# 1. ``with_seen``, ``encode_seen``: rewards if it is known which results were seen.
# 2. ``ClickModel``: policies with a click probability for every row of features.
# 3. ``Coupled``: each arm's score is a line in one draw z; the probability of a choice is that of an
#    interval of z.

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from tacit.core import checks, dispatch
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel, line
from tacit.core.part import int_range, param, set_field
from tacit.errors import InvalidValue
from tacit.policies.actions import FeaturePolicy
from tacit.policies.base import Impression, Policy
from tacit.policies.index import break_tie, interval_probability

# ---- Policies that know arms by their relevance and examination features

MAX_DIM = 10_000

UNSEEN, SKIPPED = -2.0, -1.0
"""Codes in place of rewards, for kernels: the result was not seen; it was seen and its reward was 0."""


def with_seen(rewards: Floats, seen: Floats) -> Floats:
    """Return rewards, with 0 replaced by the codes UNSEEN and SKIPPED where it is known whether the result
    was seen.

    ``seen`` is 1 for yes, 0 for no, NaN for unknown. Rewards above 0 stay, as they imply that the result was
    seen.

    Examples
    --------
    >>> with_seen(np.array([0.0, 0.0, 0.0, 1.0]), np.array([0.0, 1.0, np.nan, 1.0])).tolist()
    [-2.0, -1.0, 0.0, 1.0]
    """
    unclicked = rewards == 0.0
    return np.where(unclicked & (seen == 0.0), UNSEEN, np.where(unclicked & (seen == 1.0), SKIPPED, rewards))


def encode_seen(policy: Policy, rewards: Floats, seen: Sequence[bool | None]) -> Floats:
    """Validate which results were seen; return rewards of shape (rows, 1) with the codes of ``with_seen``.

    Raises
    ------
    InvalidValue
        If the policy cannot learn from it, or a result with a reward was not seen.
    """
    if not policy.learns_seen:
        remedy = f"leave it out: {policy.label} does not learn what is seen; LaplaceEC(5, 5) does"
        raise InvalidValue("seen", seen, remedy)
    wrong = [value for value in seen if value is not None and not isinstance(value, bool | np.bool_)]
    if wrong or len(seen) != len(rewards):
        remedy = f"give True, False or None for each of {len(rewards)}"
        raise InvalidValue("seen", wrong[0] if wrong else seen, remedy)
    # NumPy takes None for NaN.
    seen_numbers = np.array(seen, np.float64)[:, None]
    if np.any((seen_numbers == 0.0) & (rewards > 0.0)):
        raise InvalidValue("seen", False, "what earned a reward was seen; give True, or a reward of 0")
    return with_seen(rewards, seen_numbers)


@kernel
def find_place(arms: Ints, arm: int) -> int:
    """Return the place of an arm index among the arms on offer; 0 if it is not on offer."""
    if arm < len(arms) and arms[arm] == arm:
        return arm
    for i in range(len(arms)):
        if arms[i] == arm:
            return i
    return 0


@dataclass(frozen=True)
class ClickModel(FeaturePolicy, abstract=True):
    """Base of the policies that predict a click probability for every row of features.

    A subclass has the kernels of a policy, ``believed`` and ``restart``.

    Parameters
    ----------
    relevance_dim, examination_dim : int
        Numbers of relevance and of examination features per arm; at least 1.

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.
    """

    kernels: ClassVar[tuple[Any, ...]] = dispatch.POLICY_KERNELS + dispatch.FEATURE_KERNELS
    # Draws of parameters are not integrated over, so propensities are unknown.
    randomized: ClassVar[bool] = False

    needs_examination: ClassVar[bool] = True
    hides: ClassVar[bool] = False
    """Whether a click requires that the result is seen."""

    relevance_dim: Annotated[int, int_range(1, MAX_DIM)]
    examination_dim: int = 0

    def __post_init__(self) -> None:
        """Validate the hyperparameters; raise InvalidValue if ``examination_dim`` is 0 but the policy needs
        such features.
        """
        super().__post_init__()
        least = int(self.needs_examination)
        dim = checks.integer("examination_dim", self.examination_dim, least, MAX_DIM)
        set_field(self, "examination_dim", dim)

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance with ``dim`` features of each kind; ``arms`` is ignored."""
        return cls(dim, dim)

    @property
    def learns_seen(self) -> bool:  # type: ignore[override]
        """Whether the policy learns which results were seen: it models examination and reads its features."""
        return self.hides and self.examination_dim > 0

    @staticmethod
    def believed(params: Any, state: Any, lane: int, impression: Impression, arm: int) -> float:
        """Return the click probability of an arm on offer, as the policy predicts it."""
        raise NotImplementedError


# ---- One draw for all arms: every arm's score is a line in a single number z = |N(0, 1)|
#
# If the score of arm a has mean L_a and standard deviation D_a, the arm with the largest L_a + z·D_a is
# played. Thompson sampling draws the scores independently (or all parameters), and the more unknown
# arms there are, the likelier one of them is drawn too high; here all scores move together. An arm's line
# is the highest on an interval of z, and the normal probability of that interval is its propensity. Arms
# with the same line have the same propensity.

DRAWS = ("parameters", "coupled")


@kernel
def choose_coupled(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> int:
    r"""Return the arm with the largest mean + z·deviation, with one random z = \|N(0, 1)\| for all arms.

    Mean and deviation are those of the policy's kernel ``line``; ties between equal lines are broken at
    random. If rounding makes the scores of different lines equal, the line with the larger deviation wins, so
    that no arm is played whose line is never the highest.
    """
    z, tie = abs(rng.standard_normal()), rng.random()
    best, high, wide, ties, leader = -np.inf, -np.inf, -np.inf, 0.0, 0
    for i in range(len(impression.arms)):
        mean, deviation = line(params, state, lane, impression, i)
        score = mean + z * deviation
        if score < best or (score == best and (deviation, mean) < (wide, high)):
            continue
        if score == best and deviation == wide and mean == high:
            ties += 1.0
            replaces, tie = break_tie(ties, tie)
            leader = i if replaces else leader
        else:
            best, high, wide, ties, leader = score, mean, deviation, 1.0, i
    return int(impression.arms[leader])


@kernel
def compute_coupled_propensity(params: Any, state: Any, lane: int, impression: Impression, arm: int) -> float:
    """Return the exact probability that :func:`choose_coupled` returns ``arm``.

    It is the probability of the interval of z on which the arm's line is the highest, divided among equal
    lines.
    """
    chosen_mean, chosen_deviation = line(params, state, lane, impression, find_place(impression.arms, arm))
    low, high, ties = 0.0, np.inf, 0.0
    for i in range(len(impression.arms)):
        mean, deviation = line(params, state, lane, impression, i)
        if deviation > chosen_deviation:
            high = min(high, (chosen_mean - mean) / (deviation - chosen_deviation))
        elif deviation < chosen_deviation:
            low = max(low, (mean - chosen_mean) / (chosen_deviation - deviation))
        elif mean > chosen_mean:
            return 0.0
        elif mean == chosen_mean:
            ties += 1.0
    return interval_probability(low, high) / ties


def draw_field() -> Any:
    """Return a dataclass field ``draw``, by default ``parameters``, for policies that can also draw
    ``coupled``.
    """
    return field(default=DRAWS[0], metadata={"later": True})


@dataclass(frozen=True)
class Coupled(ClickModel, abstract=True):
    """Base of the click models that can draw one number for all arms.

    A subclass has the kernel ``line(params, state, lane, impression, place)``, which returns mean
    and standard deviation of an arm's score, and a field ``draw``.
    """

    kernels: ClassVar[tuple[Any, ...]] = ClickModel.kernels + dispatch.COUPLED_KERNELS

    def __post_init__(self) -> None:
        """Validate the hyperparameters; with ``draw="coupled"``, propensities are known and may be logged.

        Raises InvalidValue for an unknown ``draw``.
        """
        super().__post_init__()
        draw = self.draw  # type: ignore[attr-defined]
        if draw not in DRAWS:
            raise InvalidValue("draw", draw, f"give one of {', '.join(DRAWS)}")
        if self.coupled and not self.randomized:
            set_field(self, "randomized", True)

    @param
    def coupled(self) -> bool:
        """Whether one number is drawn for all arms, instead of all parameters."""
        return bool(self.draw == "coupled")  # type: ignore[attr-defined]

    @property
    def knows_propensity(self) -> bool:
        """Whether propensities are known: only if one number is drawn for all arms."""
        return self.coupled

    @staticmethod
    def propensity(params: Any, state: Any, lane: int, impression: Impression, arm: int) -> float:
        """Return the probability of an arm if one number is drawn for all arms; else NaN."""
        if params.coupled:
            return compute_coupled_propensity(params, state, lane, impression, arm)
        return math.nan
