"""Environments with cascading users, who read a list from the top until a click or until they leave."""

# 1. ``CascadeArms``: users read a list until the first attractive arm.
# 2. ``ContextualCascade``: arms with features, and users who may leave at any position; the best list is
#    computed by dynamic programming over sets of arms.

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints, floats
from tacit.core.dispatch import kernel
from tacit.core.part import Flag, Positive, int_range, probabilities, set_field
from tacit.environments.base import Environment
from tacit.environments.examination import offer_arms, uniform_in_ball
from tacit.errors import InvalidValue
from tacit.policies.base import Impression
from tacit.policies.features.click_model import MAX_DIM, find_place
from tacit.policies.features.gaussian import dot, sigmoid

# ---- The cascade model of clicks


@dataclass(frozen=True)
class CascadeArms(Environment):
    """One key; its users read a list from the top and click the first arm that attracts them.

    Arm i attracts with probability ``attraction[i]``, independently of other arms. Users stop
    reading after the click. The regret of a list is the probability of a click on the best list
    (the arms with the highest attraction) minus that of the list.

    Parameters
    ----------
    attraction : sequence of float, shape (arms,)
        In [0, 1].
    positions : int, default 3
        Length of the list; at least 1 and at most the number of arms.
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Craswell, Zoeter, Taylor, Ramsey (2008), "An experimental comparison of click position-bias
    models"; Kveton, Szepesvári, Wen, Ashkan (2015), "Cascading bandits", section 2.

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.environments.CascadeArms([0.5, 0.4, 0.1, 0.1], positions=2)
    >>> policy = tacit.policies.CascadeKLUCB(arms=4, positions=2)
    >>> result = tacit.simulate(policy, environment, 2000, runs=5, seed=1)
    >>> bool(result.regret[0, :, -1].mean() < 60)
    True
    """

    takes: ClassVar[str] = "slate"

    class World(NamedTuple):
        impression: Impression
        attraction: Floats  # (arms,)
        uniforms: Floats  # (arms,) this round's uniform numbers
        best: Floats  # (1,) probability of a click on the best list

    attraction: Annotated[Any, probabilities]
    positions: int = 3

    def __post_init__(self) -> None:
        """Validate the parameters; raise InvalidValue if the list is longer than the number of arms."""
        super().__post_init__()
        positions = checks.integer("positions", self.positions, 1, len(self.attraction))
        set_field(self, "positions", positions)

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an example whose attraction increases evenly, with lists of at most three arms."""
        return cls(np.arange(1, arms + 1) / (arms + 1), positions=min(arms, 3))

    @property
    def arm_count(self) -> int:
        """Number of arms: the number of attraction probabilities."""
        return len(self.attraction)

    def world(self, rng: Generator, horizon: int) -> World:
        """Return the arrays of one run, with the probability of a click on the best list."""
        attraction = np.array(self.attraction)
        top = np.sort(attraction)[-self.positions :]
        impression = Impression(np.arange(len(attraction)), np.zeros(0))
        best = np.array([1.0 - np.prod(1.0 - top)])
        return self.World(impression, attraction, np.zeros(len(attraction)), best)

    @staticmethod
    def arrive(params: CascadeArms, world: World, round: int, rng: Generator) -> int:
        """Draw a uniform number for each arm, which decides whether it attracts; return lane 0."""
        for arm in range(len(world.uniforms)):
            world.uniforms[arm] = rng.random()
        return 0

    @staticmethod
    def react(params: CascadeArms, world: World, lane: int, shown: Ints, feedback: Floats) -> None:
        """Fill ``feedback`` with 1 at the first shown arm that attracts, and with 0 elsewhere."""
        feedback[:] = 0.0
        for k in range(len(shown)):
            if shown[k] >= 0 and world.uniforms[shown[k]] < world.attraction[shown[k]]:
                feedback[k] = 1.0
                break

    @staticmethod
    def regret(params: CascadeArms, world: World, lane: int, shown: Ints) -> float:
        """Return the probability of a click on the best list minus that of the shown list."""
        no_click = 1.0
        for arm in shown:
            if arm >= 0:
                no_click *= 1.0 - world.attraction[arm]
        return float(world.best[0] - (1.0 - no_click))


# ---- Lists of arms with features, and users who may leave before any position

MAX_OFFERED = 16
"""Most arms on offer, as the best list is computed over all their subsets."""


@kernel
def sum_clicks(look_chance: float, attraction: float, below: float, one_click: int) -> float:
    """Return the expected clicks on a list, from its first arm and the expected clicks ``below`` that arm.

    ``look_chance`` is the probability of examining the first arm, ``attraction`` the probability of clicking
    it once examined, and ``below`` the expected clicks of a user who reads on; with ``one_click`` users leave
    after a click.
    """
    read_on = 1.0 - attraction if one_click else 1.0
    return look_chance * (attraction + read_on * below)


@kernel
def find_best_clicks(world: Any, one_click: int) -> float:
    """Return the expected number of clicks on the best list of the arms on offer.

    Dynamic programming over sets of arms, as bits of a number, from the largest set to the empty one:
    ``world.rest`` becomes, for each set of arms above a position, the largest expected number of clicks on
    the positions below.
    """
    offered, positions = world.seen.shape
    for above in range(len(world.sizes) - 1, -1, -1):
        k, best = world.sizes[above], 0.0
        if k < positions:
            for i in range(offered):
                if not (above >> i) & 1:
                    below = world.rest[above | (1 << i)]
                    clicks = sum_clicks(world.seen[i, k], world.attraction[i], below, one_click)
                    best = max(best, clicks)
        world.rest[above] = best
    return float(world.rest[0])


@dataclass(frozen=True)
class ContextualCascade(Environment):
    """One key; its users read a list from the top, and may leave before any position.

    A user at position k − 1 examines the arm at position k with probability σ(x_E·θ_E + b_k),
    otherwise leaves, and clicks an examined arm with probability σ(x_C·θ_C). Features of a pool
    of arms and parameters are drawn once per run, uniformly in the unit ball, the parameters
    times ``scale``; in each round some arms of the pool are on offer. The regret of a list is
    the expected number of clicks on the best list, computed exactly, minus its own.

    Parameters
    ----------
    relevance_dim, examination_dim : int, default 5
        Numbers of relevance and of examination features; at least 1.
    positions : int, default 3
        Length of the list; at least 1 and at most ``offered``.
    pool : int, default 100
        Number of arms.
    offered : int, default 10
        Number of arms on offer in a round; at most 16 and at most ``pool``.
    scale : float, default 1
        Factor on the parameters; above 0.
    position_constants : sequence of float, shape (positions,), optional
        b_k; by default 0.
    one_click : bool, default True
        Whether users stop at a click; otherwise they may read on.
    identified : bool, default False
        Whether arms have their indices in the pool, for policies that learn about single arms;
        otherwise, for policies that identify arms by features, their indices among the arms on offer.
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Kempe, Mahdian (2008), "A cascade model for externalities in sponsored search"; Qi, Wu, Wang,
    Tang, Sun (2018), "Bandit learning with implicit feedback", for the two probabilities.

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.environments.ContextualCascade(scale=4, pool=20, identified=True)
    >>> policies = [tacit.policies.CascadeEC(5, 5), tacit.policies.CascadeKLUCB(20)]
    >>> result = tacit.simulate(policies, environment, 2000, runs=5, seed=1)
    >>> result.compare(0, 1).difference < 0
    True
    """

    takes: ClassVar[str] = "slate"

    class World(NamedTuple):
        impression: Impression
        relevance: Floats  # (pool, relevance_dim)
        examination: Floats  # (pool, examination_dim)
        theta_c: Floats  # (relevance_dim,)
        theta_e: Floats  # (examination_dim,)
        constants: Floats  # (positions,)
        order: Ints  # (pool,) the first ones are on offer
        attraction: Floats  # (offered,) chance of a click once seen
        seen: Floats  # (offered, positions) chance that the reader looks
        clicking: Floats  # (offered,) this round's uniform numbers
        looking: Floats  # (positions,) likewise
        sizes: Ints  # (2^offered,) of each set of arms
        rest: Floats  # (2^offered,) clicks below it
        best: Floats  # (1,)

    relevance_dim: Annotated[int, int_range(1, MAX_DIM)] = 5
    examination_dim: Annotated[int, int_range(1, MAX_DIM)] = 5
    positions: int = 3
    pool: Annotated[int, int_range(1, 2**20)] = 100
    offered: int = 10
    scale: Positive = 1.0
    position_constants: Any = None
    one_click: Flag = True
    identified: Flag = False

    def __post_init__(self) -> None:
        """Validate the parameters; raise InvalidValue if one is out of its range."""
        super().__post_init__()
        most = min(self.pool, MAX_OFFERED)
        set_field(self, "offered", checks.integer("offered", self.offered, 1, most))
        set_field(self, "positions", checks.integer("positions", self.positions, 1, self.offered))
        if self.position_constants is not None:
            set_field(self, "position_constants", self._check_constants(self.position_constants))

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an example with ``arms`` arms, all on offer, and ``dim`` features of each kind."""
        return cls(dim, dim, positions=min(arms, 3), pool=arms, offered=arms)

    def _check_constants(self, constants: Any) -> tuple[float, ...]:
        """Return the constants as a tuple; raise InvalidValue unless each position has a finite one."""
        values = floats(constants)
        if values.shape != (self.positions,) or not np.isfinite(values).all():
            remedy = f"give {self.positions} finite numbers"
            raise InvalidValue("position_constants", constants, remedy)
        return tuple(values.tolist())

    @property
    def arm_count(self) -> int:
        """Number of arms that a policy sees: the pool if arms are identified, else the arms on offer."""
        return self.pool if self.identified else self.offered

    def world(self, rng: Generator, horizon: int) -> World:
        """Draw features of the pool and parameters; return them with work arrays for the best list."""
        dims = self.relevance_dim, self.examination_dim
        relevance, examination = (uniform_in_ball(rng, self.pool, dim) for dim in dims)
        theta_c, theta_e = (self.scale * uniform_in_ball(rng, 1, dim)[0] for dim in dims)
        sets = np.arange(2**self.offered)
        return self.World(
            impression=Impression(
                np.arange(self.offered), np.zeros(0), *(np.zeros((self.offered, dim)) for dim in dims)
            ),
            relevance=relevance,
            examination=examination,
            theta_c=theta_c,
            theta_e=theta_e,
            constants=np.array(self.position_constants or (0.0,) * self.positions),
            order=np.arange(self.pool),
            attraction=np.zeros(self.offered),
            seen=np.zeros((self.offered, self.positions)),
            clicking=np.zeros(self.offered),
            looking=np.zeros(self.positions),
            sizes=np.array([int(above).bit_count() for above in sets], np.int64),
            rest=np.zeros(len(sets)),
            best=np.zeros(1),
        )

    @staticmethod
    def arrive(params: ContextualCascade, world: World, round: int, rng: Generator) -> int:
        """Draw the arms on offer and the round's random numbers, and compute the best list; return lane 0."""
        impression = world.impression
        offer_arms(world, rng)
        for i in range(len(impression.arms)):
            impression.arms[i] = world.order[i] if params.identified else i
            world.attraction[i] = sigmoid(dot(impression.relevance[i], world.theta_c))
            logit = dot(impression.examination[i], world.theta_e)
            for k in range(len(world.constants)):
                world.seen[i, k] = sigmoid(logit + world.constants[k])
            world.clicking[i] = rng.random()
        for k in range(len(world.looking)):
            world.looking[k] = rng.random()
        world.best[0] = find_best_clicks(world, params.one_click)
        return 0

    @staticmethod
    def react(params: ContextualCascade, world: World, lane: int, shown: Ints, feedback: Floats) -> None:
        """Fill ``feedback`` with the clicks of a user who reads from the top until leaving."""
        feedback[:] = 0.0
        for k in range(len(shown)):
            if shown[k] < 0:
                break
            place = find_place(world.impression.arms, shown[k])
            if world.looking[k] >= world.seen[place, k]:
                break
            if world.clicking[place] < world.attraction[place]:
                feedback[k] = 1.0
                if params.one_click:
                    break

    @staticmethod
    def regret(params: ContextualCascade, world: World, lane: int, shown: Ints) -> float:
        """Return the expected clicks on the best list minus those on the shown list."""
        clicks = 0.0
        for k in range(len(shown) - 1, -1, -1):
            if shown[k] >= 0:
                place = find_place(world.impression.arms, shown[k])
                look_chance, attraction = world.seen[place, k], world.attraction[place]
                clicks = sum_clicks(look_chance, attraction, clicks, params.one_click)
        return float(world.best[0] - clicks)
