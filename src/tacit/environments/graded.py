"""Arms whose rewards are not clicks: grades, ratings, revenue, durations, profit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.part import param, set_field
from tacit.core.reward_range import UNIT_RANGE, read_range
from tacit.environments.base import Environment
from tacit.errors import InvalidValue
from tacit.policies.base import Impression

CLICK, NORMAL, SALE, PARETO, LEVELS = range(5)
PARAMETERS = {"click": 1, "normal": 2, "sale": 3, "pareto": 2}
"""The names of families, and how many numbers follow each."""
FAMILIES = (*PARAMETERS, "levels")
MOST_LEVELS, LARGE = 8, 1e12
EXAMPLE = '("normal", 0.7, 0.05), ("click", 0.6) or ("sale", 0.03, 40, 1)'


class RewardDraws(NamedTuple):
    """The random numbers of a round, the same whatever arm is shown.

    Attributes
    ----------
    uniform : array of float64, shape (2,)
        Whether an event happens, and the quantile of a Pareto variable.
    normal : array of float64, shape (1,)
    """

    uniform: Floats
    normal: Floats


@dataclass(frozen=True)
class GradedArms(Environment):
    """One key; each arm's rewards follow a distribution, and at each shift distributions move by one arm.

    Parameters
    ----------
    arms : sequence of tuples
        For each arm the name of a distribution and its numbers. ``("click", p)``: 1 with probability p, else
        0. ``("normal", mean, deviation)``. ``("sale", p, mean, sigma)``: with probability p a log-normal
        amount of this mean, whose logarithm has the deviation ``sigma``, else 0. ``("pareto", shape, mean)``:
        Pareto; a shape above 1. ``("levels", value, p, value, p, ...)``: at most eight values with their
        probabilities, which sum to 1.
    events : sequence of int, default ()
        Rounds before which distributions move: arm i gets that of arm i + 1, the last one that of the first.
    price : float or sequence of float, default 0
        Subtracted from each reward, for all arms or for each.
    reward_range : (float, float), (float, None) or None, default (0, 1)
        The lowest and the highest reward, to which rewards are clipped; None where there is none.
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If a distribution is unknown, or a number is out of its range.

    Examples
    --------
    >>> import tacit
    >>> arms = [("normal", 0.5, 0.05), ("click", 0.55)]
    >>> environment = tacit.environments.GradedArms(arms)
    >>> result = tacit.simulate(tacit.auto(arms=2), environment, horizon=1000, runs=2, seed=1)
    >>> bool(result.regret[0, :, -1].mean() < 30)
    True
    """

    class World(NamedTuple):
        impression: Impression
        families: Ints  # (arms,)
        numbers: Floats  # (arms, 16)
        prices: Floats  # (arms,)
        means: Floats  # (arms,)
        starts: Ints  # (events + 1,) the rounds of shifts, and one that never comes
        shifts: Ints  # (1,) shifts so far
        draws: RewardDraws

    arms: Any
    events: Any = ()
    price: Any = 0.0
    reward_range: Annotated[Any, read_range] = UNIT_RANGE

    def __post_init__(self) -> None:
        """Validate the parameters; raise InvalidValue for an unknown distribution or numbers out of range."""
        super().__post_init__()
        distributions = enumerate(checks.as_list(self.arms))
        arms = tuple(_check_distribution(f"arms[{i}]", arm) for i, arm in distributions)
        if not arms:
            raise InvalidValue("arms", self.arms, f"give a distribution for each arm, as {EXAMPLE}")
        if not isinstance(self.events, Sequence) or isinstance(self.events, str):
            raise InvalidValue("events", self.events, "give a list of rounds, such as [1001]")
        rounds = [checks.integer("events", round, 1) for round in self.events]
        if sorted(set(rounds)) != rounds:
            raise InvalidValue("events", self.events, "give rounds in increasing order")
        set_field(self, "arms", arms)
        set_field(self, "events", tuple(rounds))
        prices = checks.as_list(self.price)
        prices = prices if isinstance(prices, list | tuple) else [prices] * len(arms)
        if len(prices) != len(arms):
            raise InvalidValue("price", self.price, f"give one number, or one for each of {len(arms)} arms")
        set_field(self, "price", tuple(checks.number("price", price, -LARGE, LARGE) for price in prices))

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an example: graded arms of increasing means, and a last one that is clicked or not."""
        return cls([*(("normal", 0.3 + 0.2 * i / arms, 0.05) for i in range(arms - 1)), ("click", 0.6)])

    @property
    def arm_count(self) -> int:
        """Number of arms: the number of distributions."""
        return len(self.arms)

    @property
    def scheduled_changes(self) -> tuple[str, Sequence[int], float]:
        """The field's name, the rounds of shifts, and the key's share of traffic, 1."""
        return "events", self.events, 1.0

    def world(self, rng: Generator, horizon: int) -> World:
        """Return the arrays of one run: distributions, their means, and the rounds of shifts."""
        numbers = np.zeros((self.arm_count, 2 * MOST_LEVELS))
        for row, (_, *values) in zip(numbers, self.arms, strict=True):
            row[: len(values)] = values
        return self.World(
            impression=Impression(np.arange(self.arm_count), np.zeros(0)),
            families=np.array([FAMILIES.index(arm[0]) for arm in self.arms], np.int64),
            numbers=numbers,
            prices=np.array(self.price),
            means=np.array(
                [self._compute_mean(arm, price) for arm, price in zip(self.arms, self.price, strict=True)]
            ),
            starts=np.array([*self.events, 2**62], np.int64),
            shifts=np.zeros(1, np.int64),
            draws=RewardDraws(np.zeros(2), np.zeros(1)),
        )

    @param
    def low(self) -> float:
        """The lowest reward, which may be infinite."""
        return -math.inf if self.reward_range.low is None else float(self.reward_range.low)

    @param
    def high(self) -> float:
        """The highest reward, which may be infinite."""
        return math.inf if self.reward_range.high is None else float(self.reward_range.high)

    def _compute_mean(self, arm: Any, price: float) -> float:
        """Return the mean reward of an arm: of its distribution minus the price, clipped to the range.

        Raises InvalidValue if sales or Pareto amounts cannot be 0 in the range.
        """
        family, numbers = arm[0], arm[1:]
        low, high = self.low + price, self.high + price
        if family == "normal":
            return _compute_clipped_mean(numbers[0], numbers[1], low, high) - price
        if family in ("click", "levels"):
            pairs = (1.0, numbers[0], 0.0, 1.0 - numbers[0]) if family == "click" else numbers
            levels = zip(pairs[::2], pairs[1::2], strict=True)
            return float(sum(min(max(value, low), high) * share for value, share in levels)) - price
        if low > 0.0:
            raise InvalidValue("reward_range", self.reward_range.text, f"let it hold {-price:g}, of no sale")
        if family == "sale":
            return float(numbers[0]) * _compute_sale_mean(numbers[1], numbers[2], high) - price
        return _compute_pareto_mean(numbers[0], numbers[1], high) - price

    @staticmethod
    def arrive(params: Any, world: World, round: int, rng: Generator) -> int:
        """Draw the random numbers of this round, move distributions if a shift is due, and return lane 0."""
        world.draws.uniform[0] = rng.random()
        world.draws.uniform[1] = rng.random()
        world.draws.normal[0] = rng.standard_normal()
        if round >= world.starts[world.shifts[0]]:
            world.shifts[0] += 1
        return 0

    @staticmethod
    def respond(params: Any, world: World, lane: int, arm: int) -> float:
        """Return the reward of an arm in this round."""
        place = (arm + world.shifts[0]) % len(world.means)
        family, numbers = world.families[place], world.numbers[place]
        uniform, normal = world.draws.uniform, world.draws.normal[0]
        value = 0.0
        if family == CLICK:
            value = 1.0 if uniform[0] < numbers[0] else 0.0
        elif family == NORMAL:
            value = numbers[0] + numbers[1] * normal
        elif family == SALE:
            if uniform[0] < numbers[0]:
                value = numbers[1] * math.exp(numbers[2] * normal - 0.5 * numbers[2] ** 2)
        elif family == PARETO:
            value = numbers[1] * (1.0 - 1.0 / numbers[0]) * (1.0 - uniform[1]) ** (-1.0 / numbers[0])
        else:
            remaining = uniform[0]
            for k in range(0, len(numbers), 2):
                remaining -= numbers[k + 1]
                if remaining < 0.0:
                    value = numbers[k]
                    break
        return float(min(max(value - world.prices[place], params.low), params.high))

    @staticmethod
    def expected(params: Any, world: World, lane: int, arm: int) -> float:
        """Return the mean reward of an arm in this round, after the shifts so far."""
        return float(world.means[(arm + world.shifts[0]) % len(world.means)])

    @staticmethod
    def optimum(params: Any, world: World, lane: int) -> float:
        """Return the highest mean reward of any arm, which shifts do not change."""
        return float(world.means.max())


def _check_distribution(field: str, arm: Any) -> tuple[Any, ...]:
    """Return a distribution as a tuple of its name and floats; raise InvalidValue for an unknown one."""
    family, *numbers = arm if isinstance(arm, Sequence) and not isinstance(arm, str) and arm else ("",)
    is_valid = len(numbers) == PARAMETERS.get(family)
    if family == "levels":
        is_valid = len(numbers) in range(2, 2 * MOST_LEVELS + 1, 2)
    if not is_valid:
        raise InvalidValue(field, arm, f"give a distribution's name and its numbers, as {EXAMPLE}")
    values = [checks.number(field, number, -math.inf, math.inf) for number in numbers]
    shares = values[1::2] if family == "levels" else values[:1] if family in ("click", "sale") else []
    if any(not 0.0 <= share <= 1.0 for share in shares):
        raise InvalidValue(field, arm, "give probabilities in [0, 1]")
    if family == "levels" and not math.isclose(sum(shares), 1.0, abs_tol=1e-9):
        raise InvalidValue(field, arm, "give probabilities that sum to 1")
    if family == "pareto" and values[0] <= 1.0:
        raise InvalidValue(field, arm, "give a shape above 1: below it there is no mean")
    return family, *values


def _compute_clipped_mean(mean: float, deviation: float, low: float, high: float) -> float:
    """Return the mean of a normal variable that is clipped to [low, high]."""
    if deviation == 0.0:
        return min(max(mean, low), high)

    def excess(end: float) -> float:
        """Return the mean of max(X − end, 0) for the normal variable X."""
        z = (mean - end) / deviation
        density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
        return deviation * (z * _compute_normal_cdf(z) + density)

    most = 0.0 if math.isinf(high) else excess(high)
    return mean - most if math.isinf(low) else low + excess(low) - most


def _compute_normal_cdf(z: float) -> float:
    """Return the probability that a standard normal variable is below ``z``."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def _compute_sale_mean(mean: float, sigma: float, high: float) -> float:
    """Return the mean of min(X, high) for a log-normal X of this mean; log X has the deviation ``sigma``."""
    if math.isinf(high) or sigma == 0.0:
        return min(mean, high)
    z = (math.log(high) - math.log(mean) + 0.5 * sigma**2) / sigma
    return mean * _compute_normal_cdf(z - sigma) + high * _compute_normal_cdf(-z)


def _compute_pareto_mean(shape: float, mean: float, high: float) -> float:
    """Return the mean of min(X, high) for a Pareto variable X of this shape and mean."""
    least = mean * (1.0 - 1.0 / shape)
    tail: float = least * (least / max(high, least)) ** (shape - 1.0)
    return min(high, mean - tail / (shape - 1.0))
