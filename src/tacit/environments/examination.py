"""An environment of the examination model: arms with features are clicked if examined and relevant."""

# Features are drawn, arms are put on offer without replacement, and a click needs both examination and
# relevance. ``ExaminationArms`` knows the probabilities of both, for comparison with policies' estimates.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints, floats
from tacit.core.dispatch import kernel
from tacit.core.part import Positive, int_range, one_word, set_field
from tacit.environments.base import Environment
from tacit.environments.shifting import NO_EVENT
from tacit.errors import InvalidValue
from tacit.policies.base import Impression
from tacit.policies.features.click_model import MAX_DIM, find_place
from tacit.policies.features.gaussian import dot, sigmoid

BALLS = ("blocks", "joint")


def uniform_in_ball(rng: Generator, rows: int, dim: int) -> Floats:
    """Draw ``rows`` points uniformly in the unit ball; return them, shape (rows, dim)."""
    points = rng.standard_normal((rows, dim))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return points * rng.random((rows, 1)) ** (1.0 / dim)


@kernel
def offer_arms(world: Any, rng: Generator) -> None:
    """Draw the arms on offer without replacement, and write their features to ``world.impression``.

    The first entries of ``world.order`` become the indices of these arms in the pool.
    """
    impression, order = world.impression, world.order
    pool, offered = len(order), len(impression.arms)
    for i in range(offered):
        if offered < pool:
            j = i + int(rng.random() * (pool - i))
            order[i], order[j] = order[j], order[i]
        for j in range(impression.relevance.shape[1]):
            impression.relevance[i, j] = world.relevance[order[i], j]
        for j in range(impression.examination.shape[1]):
            impression.examination[i, j] = world.examination[order[i], j]


@dataclass(frozen=True)
class ExaminationArms(Environment):
    """One key; an arm is clicked with probability σ(x_C·θ_C)·σ(x_E·θ_E) of its features.

    Features of a pool of arms and parameters are drawn once per run, uniformly in the unit ball,
    the parameters times ``scale``; in each round some arms of the pool are on offer. In the
    paper's setting (the default) there are 100 arms, 10 on offer, d_C = d_E = 5.

    With ``positions`` an arm is an item at a position: its relevance features are its item's,
    and its examination features are indicators of the position. With ``devices`` the effects of
    positions differ between devices, of which one is drawn in every round.

    Parameters
    ----------
    relevance_dim, examination_dim : int, default 5
        Numbers of relevance and of examination features; at least 1. With positions there are
        positions·devices examination features.
    pool : int, default 100
        Number of arms.
    offered : int, default 10
        Number of arms on offer in a round; at most ``pool``.
    scale : float, default 1
        Factor on the parameters; above 0.
    ball : str, default "blocks"
        ``blocks``: each block of features, and of parameters, is uniform in its own ball.
        ``joint``: the concatenation of both blocks is uniform in a ball.
    redraws : sequence of int, default ()
        Rounds, from 2, in increasing order, at which the parameters are drawn again.
    positions : int, default 0
        Number of positions; ``pool`` is a multiple of it. 0 for none.
    devices : int, default 1
        Number of devices with different effects of positions; above 1 only with positions.
    identified : bool, default False
        Whether arms have their indices in the pool, for policies that learn about single arms or
        positions; otherwise, for policies that identify arms by features, their indices among the
        arms on offer.
    announced : bool, default False
        Whether a context announces redraws: 1 in a round of ``redraws``, else 0.
    arms, parameters : sequence, optional
        Features of each arm, shape (pool, relevance_dim + examination_dim), and the parameters,
        in place of random ones.
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Qi, Wu, Wang, Tang, Sun (2018), "Bandit learning with implicit feedback", section 6.2 and
    appendix F.

    Examples
    --------
    >>> import tacit
    >>> policies = [tacit.policies.LaplaceEC(5, 5), tacit.UniformRandom(10)]
    >>> result = tacit.simulate(policies, tacit.ExaminationArms(), 2000, runs=5, seed=1)
    >>> result.compare(0, 1).difference < 0
    True
    """

    class World(NamedTuple):
        impression: Impression
        relevance: Floats  # (pool, relevance_dim)
        examination: Floats  # (pool, examination_dim)
        theta_c: Floats  # (segments, relevance_dim)
        theta_e: Floats  # (segments, examination_dim)
        starts: Ints  # (segments + 1,) first round of each
        segment: Ints  # (1,) the present one
        order: Ints  # (pool,) the first ones are on offer
        chances: Floats  # (offered,)
        round: Floats  # (2,) the best chance, and the uniform number behind the click

    relevance_dim: Annotated[int, int_range(1, MAX_DIM)] = 5
    examination_dim: int = 5
    pool: int = 100
    offered: int = 10
    scale: Positive = 1.0
    ball: Annotated[str, one_word(*BALLS)] = "blocks"
    redraws: Any = ()
    positions: Annotated[int, int_range(0, 1000)] = 0
    devices: Annotated[int, int_range(1, 1000)] = 1
    identified: bool = False
    announced: bool = False
    arms: Any = None
    parameters: Any = None

    def __post_init__(self) -> None:
        """Validate the parameters, and set ``examination_dim`` and ``pool`` where others determine them.

        Raises InvalidValue if a parameter is out of its range.
        """
        super().__post_init__()
        if self.positions:
            set_field(self, "examination_dim", self.positions * self.devices)
        elif self.devices > 1:
            raise InvalidValue("devices", self.devices, "give positions too")
        dim = checks.integer("examination_dim", self.examination_dim, 1, MAX_DIM)
        set_field(self, "examination_dim", dim)
        if self.arms is not None:
            set_field(self, "arms", self._check_table("arms", self.arms))
            set_field(self, "pool", len(self.arms))
        set_field(self, "pool", checks.integer("pool", self.pool, 1, 2**20))
        set_field(self, "offered", checks.integer("offered", self.offered, 1, self.pool))
        if self.positions and self.pool % self.positions:
            raise InvalidValue("pool", self.pool, f"give a multiple of {self.positions} positions")
        redraws = tuple(checks.integer("redraws", round, 2) for round in self.redraws)
        if sorted(set(redraws)) != list(redraws):
            raise InvalidValue("redraws", self.redraws, "give rounds in increasing order")
        set_field(self, "redraws", redraws)
        if self.parameters is not None:
            if redraws:
                raise InvalidValue("redraws", redraws, "leave them out where parameters are given")
            set_field(self, "parameters", self._check_table("parameters", [self.parameters])[0])

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an example with ``arms`` arms, all on offer, and ``dim`` features of each kind."""
        return cls(dim, dim, pool=arms, offered=arms)

    @property
    def scheduled_changes(self) -> tuple[str, Sequence[int], float]:
        """The field's name, the rounds of new parameters, and the key's share of traffic, 1."""
        return "redraws", self.redraws, 1.0

    def _check_table(self, field: str, table: Any) -> Any:
        """Return rows as nested tuples; raise InvalidValue unless each has a number for each feature.

        Numbers must be finite; ``field`` names the rows in the error.
        """
        width = self.relevance_dim + self.examination_dim
        rows = floats(table)
        if rows.ndim != 2 or rows.shape[1] != width or not np.isfinite(rows).all():
            raise InvalidValue(field, table, f"give {width} finite numbers each")
        return tuple(map(tuple, rows.tolist()))

    @classmethod
    def make_crossed(cls) -> Self:
        """Return an environment of four arms that no linear score of their features orders correctly.

        θ = (1, 2) and the arms are on a line, with click probabilities .509, .117, .509, .117 in the
        order of the line. A linear score increases or decreases along the line, so its best arm is one
        of the two ends, and for one sign that is among the worst arms. These arms replace the ones in the
        paper's appendix F, whose printed order is impossible for a product of two logistic functions.
        """
        arms = ((-2.0, 2.0), (0.5, 0.75), (1.5, 0.25), (4.0, -1.0))
        return cls(1, 1, offered=4, arms=arms, parameters=(1.0, 2.0))

    @property
    def arm_count(self) -> int:
        """Number of arms that a policy sees: the pool if arms are identified, else the arms on offer."""
        return self.pool if self.identified else self.offered

    @property
    def context_dim(self) -> int:
        """Length of the contexts: 1 if redraws are announced, else 0."""
        return int(self.announced)

    def world(self, rng: Generator, horizon: int) -> World:
        """Draw features of the pool and parameters for each segment between redraws, and return them."""
        features = self._make_features(rng)
        segments = [self._draw_points(rng, 1)[0] for _ in range(1 + len(self.redraws))]
        theta = self.scale * np.array(segments)
        if self.parameters is not None:
            theta = np.array([self.parameters])
        split = self.relevance_dim
        return self.World(
            impression=Impression(
                np.arange(self.offered),
                np.zeros(self.context_dim),
                np.zeros((self.offered, split)),
                np.zeros((self.offered, self.examination_dim)),
            ),
            relevance=np.ascontiguousarray(features[:, :split]),
            examination=np.ascontiguousarray(features[:, split:]),
            theta_c=np.ascontiguousarray(theta[:, :split]),
            theta_e=np.ascontiguousarray(theta[:, split:]),
            starts=np.array([1, *self.redraws, NO_EVENT], np.int64),
            segment=np.zeros(1, np.int64),
            order=np.arange(self.pool),
            chances=np.zeros(self.offered),
            round=np.zeros(2),
        )

    def _make_features(self, rng: Generator) -> Floats:
        """Return the features of the pool, shape (pool, all features): ``arms`` if it is set, or random ones.

        With positions, an arm has its item's features and an indicator of its position.
        """
        if self.arms is not None:
            return np.array(self.arms)
        if not self.positions:
            return self._draw_points(rng, self.pool)
        items = uniform_in_ball(rng, self.pool // self.positions, self.relevance_dim)
        features = np.zeros((self.pool, self.relevance_dim + self.examination_dim))
        features[:, : self.relevance_dim] = np.repeat(items, self.positions, axis=0)
        arm_indices = np.arange(self.pool)
        features[arm_indices, self.relevance_dim + arm_indices % self.positions] = 1.0
        return features

    def _draw_points(self, rng: Generator, rows: int) -> Floats:
        """Draw points in the unit ball, jointly or per block of features, shape (rows, all features)."""
        if self.ball == "joint":
            return uniform_in_ball(rng, rows, self.relevance_dim + self.examination_dim)
        relevance = uniform_in_ball(rng, rows, self.relevance_dim)
        return np.hstack([relevance, uniform_in_ball(rng, rows, self.examination_dim)])

    @staticmethod
    def arrive(params: ExaminationArms, world: World, round: int, rng: Generator) -> int:
        """Draw the arms on offer, the device and the number that decides the click; return lane 0.

        Also moves to the next parameters in the round of a redraw, and stores each arm's click probability
        and the largest one.
        """
        impression = world.impression
        redrawn = round + 1 == world.starts[world.segment[0] + 1]
        if redrawn:
            world.segment[0] += 1
        if len(impression.context) > 0:
            impression.context[0] = 1.0 if redrawn else 0.0
        offer_arms(world, rng)
        device = int(rng.random() * params.devices) if params.devices > 1 else 0
        theta_c = world.theta_c[world.segment[0]]
        theta_e = world.theta_e[world.segment[0]]
        best = 0.0
        for i in range(len(impression.arms)):
            impression.arms[i] = world.order[i] if params.identified else i
            if device > 0:
                position = world.order[i] % params.positions
                impression.examination[i, position] = 0.0
                impression.examination[i, device * params.positions + position] = 1.0
            chance = sigmoid(dot(impression.relevance[i], theta_c))
            chance *= sigmoid(dot(impression.examination[i], theta_e))
            world.chances[i] = chance
            best = max(best, chance)
        world.round[0] = best
        world.round[1] = rng.random()
        return 0

    @staticmethod
    def respond(params: ExaminationArms, world: World, lane: int, arm: int) -> float:
        """Return 1.0 if this round's user clicks the arm, else 0.0."""
        place = find_place(world.impression.arms, arm)
        return 1.0 if world.round[1] < world.chances[place] else 0.0

    @staticmethod
    def expected(params: ExaminationArms, world: World, lane: int, arm: int) -> float:
        """Return the click probability of an arm on offer in this round."""
        return float(world.chances[find_place(world.impression.arms, arm)])

    @staticmethod
    def optimum(params: ExaminationArms, world: World, lane: int) -> float:
        """Return the highest click probability of the arms on offer in this round."""
        return float(world.round[0])
