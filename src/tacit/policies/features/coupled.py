"""One draw for all arms: a single number z = |N(0, 1)| moves every arm's score up its line.

Where the score of arm a has mean L_a and standard deviation D_a, the arm of the largest
L_a + z·D_a is played. Thompson sampling draws the arms' scores apart (or all parameters), and the
more arms it has not learned about, the likelier one of them is drawn too high; here they all move
together. An arm's line is the highest on an interval of z, and the normal distribution of that
interval is its propensity. Arms of one and the same line are played alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tacit.core import dispatch
from tacit.core.arrays import Generator
from tacit.core.dispatch import kernel, line
from tacit.errors import InvalidValue
from tacit.policies.base import Impression
from tacit.policies.features.click_model import ClickModel, place_of
from tacit.policies.one_draw import latest_of, mass

DRAWS = ("parameters", "coupled")


@kernel
def coupled_choice(params: Any, state: Any, lane: int, impression: Impression, rng: Generator) -> int:
    """Return the arm of the largest mean + z·deviation.

    Where rounding makes the scores of different lines equal, the higher line goes first, so that
    no arm is played whose line is never above another one's.
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
            taken, tie = latest_of(ties, tie)
            leader = i if taken else leader
        else:
            best, high, wide, ties, leader = score, mean, deviation, 1.0, i
    return int(impression.arms[leader])


@kernel
def coupled_propensity(params: Any, state: Any, lane: int, impression: Impression, arm: int) -> float:
    """Return the probability that :func:`coupled_choice` plays an arm."""
    own, wide = line(params, state, lane, impression, place_of(impression.arms, arm))
    low, high, ties = 0.0, np.inf, 0.0
    for i in range(len(impression.arms)):
        mean, deviation = line(params, state, lane, impression, i)
        if deviation > wide:
            high = min(high, (own - mean) / (deviation - wide))
        elif deviation < wide:
            low = max(low, (mean - own) / (wide - deviation))
        elif mean > own:
            return 0.0
        elif mean == own:
            ties += 1.0
    return mass(low, high) / ties


def draw_field() -> Any:
    """Return the field ``draw`` of a policy that can draw either way."""
    return field(default=DRAWS[0], metadata={"later": True})


@dataclass(frozen=True)
class Coupled(ClickModel):
    """Base of the click models that can draw one number for all arms.

    A subclass has the kernel ``line(params, state, lane, impression, place)``, which gives mean
    and standard deviation of an arm's score, and a field ``draw``, of which its Params tell
    whether it is ``coupled``.
    """

    kernels: ClassVar[tuple[Any, ...]] = ClickModel.kernels + dispatch.COUPLED_KERNELS

    def __post_init__(self) -> None:
        super().__post_init__()
        draw = self.draw  # type: ignore[attr-defined]
        if draw not in DRAWS:
            raise InvalidValue("draw", draw, f"give one of {', '.join(DRAWS)}")
        if self.coupled and not self.randomized:
            self._set("randomized", True)

    @property
    def coupled(self) -> bool:
        """Whether one number is drawn for all arms."""
        return bool(self.draw == "coupled")  # type: ignore[attr-defined]

    @property
    def knows_propensity(self) -> bool:
        return self.coupled

    @staticmethod
    def propensity(params: Any, state: Any, lane: int, impression: Impression, arm: int) -> float:
        if params.coupled:
            return coupled_propensity(params, state, lane, impression, arm)
        return math.nan
