"""Lists of items with embeddings, for various tastes of users and ways of reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.core.part import Fraction, Positive, float_range, int_range, param, set_field
from tacit.environments.base import Environment
from tacit.environments.examination import offer_arms
from tacit.errors import InvalidValue
from tacit.policies.base import Impression
from tacit.policies.features.click_model import MAX_DIM, find_place
from tacit.policies.features.gaussian import dot, sigmoid


@kernel
def compute_reach(params: Any, world: Any, k: int, reach: float, attraction: float) -> float:
    """Return the probability that a user reaches the position after k.

    ``reach`` is the probability of reaching k, ``attraction`` the probability of a click on the item there.
    The result is 1 if users see each position independently.
    """
    if params.by_position:
        return 1.0
    return float(reach * (attraction * params.after_click + (1.0 - attraction) * params.after_skip))


@dataclass(frozen=True)
class ItemLists(Environment):
    """One key; the items on offer change each round, and users click items that they see and like.

    An item that is seen is clicked with probability σ(base + scale·x·θ(u)), with standard normal features
    x and a taste θ(u) that is drawn once per run: constant, or linear in a user's features u. Users see
    position k with probability ``seen[k]``; or they read from the top, and continue to the next position
    with probability ``after_skip`` or ``after_click``. The regret of a list is the expected number of
    clicks on the best items on offer, the best first, minus its own.

    Parameters
    ----------
    relevance_dim : int, default 20
        Number of features of an item; at least 1.
    context_dim : int, default 0
        Number of features of a user.
    positions : int, default 5
        Length of the list; at least 1 and at most ``offered``.
    pool : int, default 1000
        Number of items.
    offered : int, default 20
        Number of items, drawn in each round, on offer; at most ``pool``.
    scale : float, default 1.5
        Standard deviation of logits; above 0.
    base : float, default -1.5
        Logit of the average item, in [-20, 20].
    seen : sequence of float, shape (positions,), optional
        In [0, 1], not increasing; by default users read from the top.
    after_skip, after_click : float, default 1
        In [0, 1]; the second at most the first.
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.environments.ItemLists(relevance_dim=5, positions=3, after_click=0.3)
    >>> tacit.auto(**environment.setting).label
    'ItemListMix(relevance_dim=5)'
    """

    takes: ClassVar[str] = "slate"

    class World(NamedTuple):
        impression: Impression
        relevance: Floats  # (pool, relevance_dim)
        examination: Floats  # (pool, 0)
        taste: Floats  # (1 + context_dim, relevance_dim)
        seen: Floats  # (positions,)
        order: Ints  # (pool,) the first ones are on offer
        attraction: Floats  # (offered,) chance of a click once seen
        best: Floats  # (offered,) the same, the largest first
        clicking: Floats  # (offered,) this round's uniform numbers
        looking: Floats  # (positions,) likewise

    relevance_dim: Annotated[int, int_range(1, MAX_DIM)] = 20
    context_dim: Annotated[int, int_range(0, MAX_DIM)] = 0
    positions: int = 5
    pool: Annotated[int, int_range(1, 2**20)] = 1000
    offered: int = 20
    scale: Positive = 1.5
    base: Annotated[float, float_range(-20.0, 20.0)] = -1.5
    seen: Any = None
    after_skip: Fraction = 1.0
    after_click: Fraction = 1.0

    def __post_init__(self) -> None:
        """Validate the parameters; raise InvalidValue if one is out of its range or ``seen`` increases."""
        super().__post_init__()
        set_field(self, "offered", checks.integer("offered", self.offered, 1, self.pool))
        set_field(self, "positions", checks.integer("positions", self.positions, 1, self.offered))
        checks.number("after_click", self.after_click, 0.0, self.after_skip)
        if self.seen is not None:
            chances = [checks.number("seen", value, 0.0, 1.0) for value in self.seen]
            if len(chances) != self.positions or sorted(chances, reverse=True) != chances:
                raise InvalidValue("seen", self.seen, f"give {self.positions} numbers, none above one before")
            set_field(self, "seen", tuple(chances))

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an example with ``arms`` items, all on offer, of ``dim`` features."""
        return cls(dim, positions=min(arms, 3), pool=arms, offered=arms, after_click=0.5)

    @param
    def by_position(self) -> bool:
        """True if users see each position with its own probability, independently of others."""
        return self.seen is not None

    @property
    def arm_count(self) -> int:
        """Number of items on offer in a round."""
        return self.offered

    def world(self, rng: Generator, horizon: int) -> World:
        """Draw the features of the pool and the taste, and return them with work arrays."""
        dim, users = self.relevance_dim, self.context_dim
        offered, none = np.zeros((self.offered, dim)), np.zeros((self.offered, 0))
        attraction, best, clicking = np.zeros((3, self.offered))
        return self.World(
            impression=Impression(np.arange(self.offered), np.zeros(users), offered, none),
            relevance=rng.standard_normal((self.pool, dim)),
            examination=np.zeros((self.pool, 0)),
            taste=rng.standard_normal((1 + users, dim)) / np.sqrt(dim * (1 + users)),
            seen=np.array(self.seen or (1.0,) * self.positions),
            order=np.arange(self.pool),
            attraction=attraction,
            best=best,
            clicking=clicking,
            looking=np.zeros(self.positions),
        )

    @staticmethod
    def arrive(params: ItemLists, world: World, round: int, rng: Generator) -> int:
        """Draw the items on offer, the user's features and the numbers that decide clicks; return lane 0.

        Also computes each item's probability of a click once seen, and the same sorted.
        """
        impression, taste = world.impression, world.taste
        offer_arms(world, rng)
        for j in range(len(impression.context)):
            impression.context[j] = rng.standard_normal()
        for i in range(len(impression.arms)):
            liked = dot(impression.relevance[i], taste[0])
            for j in range(len(impression.context)):
                liked += impression.context[j] * dot(impression.relevance[i], taste[1 + j])
            world.attraction[i] = sigmoid(params.base + params.scale * liked)
            place = i
            while place > 0 and world.best[place - 1] < world.attraction[i]:
                world.best[place] = world.best[place - 1]
                place -= 1
            world.best[place] = world.attraction[i]
            world.clicking[i] = rng.random()
        for k in range(len(world.looking)):
            world.looking[k] = rng.random()
        return 0

    @staticmethod
    def react(params: ItemLists, world: World, lane: int, shown: Ints, feedback: Floats) -> None:
        """Fill ``feedback`` with the clicks of this round's user on the shown items."""
        reach = 1.0
        for k in range(len(shown)):
            place = find_place(world.impression.arms, shown[k])
            looked = shown[k] >= 0 and world.looking[k] < reach * world.seen[k]
            clicked = looked and world.clicking[place] < world.attraction[place]
            feedback[k] = 1.0 if clicked else 0.0
            reach = compute_reach(params, world, k, 1.0 if looked else 0.0, feedback[k])

    @staticmethod
    def regret(params: ItemLists, world: World, lane: int, shown: Ints) -> float:
        """Return the expected clicks on the best list, the best items in order, minus those on ``shown``."""
        best_clicks, clicks, best_reach, reach = 0.0, 0.0, 1.0, 1.0
        for k in range(min(len(shown), len(world.best))):
            best_clicks += best_reach * world.seen[k] * world.best[k]
            best_reach = compute_reach(params, world, k, best_reach, world.best[k])
            if shown[k] >= 0:
                attraction = world.attraction[find_place(world.impression.arms, shown[k])]
                clicks += reach * world.seen[k] * attraction
                reach = compute_reach(params, world, k, reach, attraction)
        return float(best_clicks - clicks)
