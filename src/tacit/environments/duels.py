"""Environments of duels: with a fixed preference matrix, or with preferences that depend on the context."""

# 1. ``DuelEnvironment``: the base class of environments of duels.
# 2. ``PreferenceMatrix``: a matrix of preferences, which may shift once.
# 3. ``ContextualDuels``: the best arm depends on the key's context.

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import canonical_name, kernel
from tacit.core.part import Fraction, Positive, float_range, int_range, one_word, param, parse_call, set_field
from tacit.core.seeds import stream
from tacit.environments import preferences
from tacit.environments.base import Environment
from tacit.errors import InvalidValue, UnknownName
from tacit.policies.base import Impression
from tacit.policies.features.gaussian import sigmoid

# ---- The base class of environments of duels


class DuelEnvironment(Environment, abstract=True):
    """Base class of environments of duels.

    ``respond`` and ``expected`` take a pair of arm indices. The response is 1.0 if the left arm
    won, 0.0 if the right arm won, 0.5 for a tie; ``expected`` is 1/2 minus the mean gap of both arms.
    """

    takes: ClassVar[str] = "duel"

    action_width = 2

    @staticmethod
    def optimum(params: Any, world: Any, lane: int) -> float:
        """Return 0.5, the expected value of a duel of the best arm with itself."""
        return 0.5


# ---- Duels with a preference matrix

KINDS = ("average", "weak", "strong")
AVERAGE, WEAK, STRONG = range(3)
WINNERS = ("condorcet", "copeland", "borda")


def logistic_utilities(arms: int, seed: int = 1) -> Floats:
    """Return the preference matrix of random utilities, shape (arms, arms), best arm first.

    It is :func:`tacit.environments.preferences.logistic_utilities` with a generator seeded by ``seed``.
    """
    rng = stream("logistic utilities", checks.integer("seed", seed, 0))
    return preferences.logistic_utilities(arms, rng)


NAMED: dict[str, Callable[..., Floats]] = {
    canonical_name(matrix.__name__): matrix
    for matrix in (preferences.arxiv, preferences.uniform_gap, preferences.relaxed_chain, logistic_utilities)
}
"""Matrices of the literature, by canonical name."""


def parse_matrix(text: str) -> Floats:
    """Return the preference matrix of the literature that a text names, as a name or a call with arguments.

    Parameters
    ----------
    text : str
        ``arxiv``, ``uniform-gap(arms, epsilon)``, ``relaxed-chain(arms, gamma, epsilon)`` or
        ``logistic-utilities(arms, seed)``, the latter two with defaults 0.1 and 1.

    Raises
    ------
    UnknownName
        If there is no matrix of that name.
    InvalidValue
        If its arguments are invalid.

    Examples
    --------
    >>> parse_matrix("uniform-gap(2, 0.1)").tolist()
    [[0.5, 0.6], [0.4, 0.5]]
    """
    name, positional, named = parse_call(text)
    if canonical_name(name) not in NAMED:
        names = ", ".join(function.__name__.replace("_", "-") for function in NAMED.values())
        raise UnknownName(f"matrix: none is called {name!r}; there are {names}")
    function = NAMED[canonical_name(name)]
    signature = inspect.signature(function)
    try:
        signature.bind(*positional, **named)
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "nothing"
        raise InvalidValue("matrix", text, f"it takes {takes}: {error}") from None
    return function(*positional, **named)


@dataclass(frozen=True)
class PreferenceMatrix(DuelEnvironment):
    """One key; arm i beats arm j with probability ``matrix[i][j]``, constant or until a shift.

    The best arm b is the Condorcet winner, and arm i has the gap P(b, i) − 1/2. The regret of a
    duel is the mean of both gaps (equation 1 of Yue and Joachims), the smaller of them (``weak``:
    0 if the best arm is shown) or the larger one (``strong``).

    Parameters
    ----------
    matrix : array_like, shape (arms, arms), or str
        P(row beats column), within (0, 1), with P(i, j) + P(j, i) = 1; or a matrix of the
        literature by its name: ``arxiv``, ``uniform-gap(50, 0.1)``, ``relaxed-chain(50, 1.3)``,
        ``logistic-utilities(50)``.
    regret_kind : str, default "average"
        ``average``, ``weak`` or ``strong``.
    winner : str, default "condorcet"
        The definition of gaps. ``condorcet``: P(b, i) − 1/2. ``copeland``: the difference to the
        largest Copeland score, which is the share of other arms that an arm beats (a tie counts
        one half). ``borda``: the difference to the largest Borda score, which is the probability
        of beating another arm drawn at random. The last two exist for every matrix.
    ties : float, default 0
        Share of duels that end in a tie, in [0, 1]; their feedback is 0.5.
    after : array_like, shape (arms, arms), or str, optional
        The preference matrix from round ``shift`` on.
    shift : int, default 0
        Round of the shift, counted from 0; 0 for none.
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, or a matrix has no Condorcet winner but needs one.

    References
    ----------
    Yue, Joachims (2011), "Beat the mean bandit", equation 1. Weak and strong regret: Yue,
    Broder, Kleinberg, Joachims (2012), "The k-armed dueling bandits problem". Copeland regret:
    Zoghi, Karnin, Whiteson, de Rijke (2015), "Copeland dueling bandits".

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.PreferenceMatrix([[0.5, 0.8], [0.2, 0.5]])
    >>> result = tacit.simulate(tacit.policies.RMED1(arms=2), environment, 1000, runs=5, seed=1)
    >>> bool(result.regret[0, :, -1].mean() < 15)
    True
    """

    class World(NamedTuple):
        impression: Impression
        chances: Floats  # (arms, arms)
        levels: npt.NDArray[np.uint8]  # (arms, arms) the chances' first 8 bits
        gaps: Floats  # (arms,)
        uniform: Floats  # (2,) who wins, and whether anyone does
        later: tuple[Floats, npt.NDArray[np.uint8], Floats]  # chances, levels and gaps after the shift

    matrix: Any
    regret_kind: Annotated[str, one_word(*KINDS)] = "average"
    winner: Annotated[str, one_word(*WINNERS)] = "condorcet"
    ties: Fraction = 0.0
    after: Any = None
    shift: Annotated[int, int_range(0)] = 0

    def __post_init__(self) -> None:
        """Validate the matrices and the shift, and store matrices as nested tuples.

        Raises InvalidValue if one is invalid, or they do not fit each other.
        """
        super().__post_init__()
        for field in ("matrix", "after"):
            if getattr(self, field) is not None:
                set_field(self, field, self._validate_matrix(field))
        if (self.after is None) != (self.shift == 0):
            remedy = "give both: after=, and from which round on it holds; or neither"
            raise InvalidValue("shift", self.shift, remedy)
        if self.after is not None and len(self.after) != self.arm_count:
            raise InvalidValue("after", f"{len(self.after)} arms", f"give {self.arm_count}, as in matrix")

    def _validate_matrix(self, field: str) -> tuple[tuple[float, ...], ...]:
        """Return the validated matrix in ``field``, which may be a name, as nested tuples.

        Raises InvalidValue if it is no preference matrix, or lacks a Condorcet winner that gaps need.
        """
        value = getattr(self, field)
        matrix = preferences.validate(parse_matrix(value) if isinstance(value, str) else value, field)
        if self.winner == "condorcet" and preferences.condorcet_winner(matrix) is None:
            raise InvalidValue(
                field,
                f"{len(matrix)} arms without a Condorcet winner",
                'no arm beats all others: give winner="copeland" or winner="borda"',
            )
        return tuple(map(tuple, matrix.tolist()))

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an example in which each arm beats every later one with probability 0.6."""
        return cls(f"uniform-gap({arms}, 0.1)")

    @param
    def kind(self) -> int:
        """The kind of regret as a number for kernels: 0 average, 1 weak, 2 strong."""
        return KINDS.index(self.regret_kind)

    @property
    def arm_count(self) -> int:
        """Number of arms: the number of rows of the matrix."""
        return len(self.matrix)

    @property
    def gaps(self) -> Floats:
        """The gap of each arm to the best one before the shift, shape (arms,)."""
        return self._compute_gaps(np.array(self.matrix))

    def _compute_gaps(self, p: Floats) -> Floats:
        """Return the gap of each arm of matrix ``p`` to the best one, by the definition ``winner``."""
        if self.winner == "condorcet":
            gaps: Floats = p[preferences.condorcet_winner(p)] - 0.5
            return gaps
        other_count = max(len(p) - 1, 1)
        if self.winner == "borda":
            scores = (p.sum(axis=1) - 0.5) / other_count
        else:
            margins = np.where(np.abs(p - 0.5) <= preferences.TOLERANCE, 0.0, np.sign(p - 0.5))
            scores = margins.sum(axis=1) / (2 * other_count) + 0.5
        gaps = scores.max() - scores
        return gaps

    @property
    def scheduled_changes(self) -> tuple[str, Sequence[int], float]:
        """The field's name, the round of the shift if there is one, and the key's share of traffic, 1."""
        return "shift", (self.shift,) if self.after is not None else (), 1.0

    def world(self, rng: Generator, horizon: int) -> World:
        """Return one run's arrays, with preferences and gaps before and after the shift; draws nothing."""
        impression = Impression(np.arange(self.arm_count), np.zeros(0))
        first, later = (
            (chances, (256.0 * chances).astype(np.uint8), self._compute_gaps(chances))
            for chances in (np.array(self.matrix), np.array(self.after or self.matrix))
        )
        return self.World(impression, *first, np.zeros(2), later)

    @staticmethod
    def arrive(params: PreferenceMatrix, world: World, round: int, rng: Generator) -> int:
        """Draw the numbers that decide the duel, and change preferences in the round of the shift.

        Returns lane 0.
        """
        if params.shift > 0 and round == params.shift:
            shift_preferences(world)
        world.uniform[0] = rng.random()
        if params.ties > 0.0:
            world.uniform[1] = rng.random()
        return 0

    @staticmethod
    def respond(params: PreferenceMatrix, world: World, lane: int, pair: tuple[int, int]) -> float:
        """Return 1.0 if the pair's left arm wins this round's duel, 0.0 if the right one, 0.5 for a tie."""
        if params.ties > 0.0 and world.uniform[1] < params.ties:
            return 0.5
        # The first 8 bits nearly always decide the comparison, and the small table stays in the cache.
        uniform, level = world.uniform[0], world.levels[pair[0], pair[1]]
        place = int(256.0 * uniform)
        if place == level:
            return 1.0 if uniform < world.chances[pair[0], pair[1]] else 0.0
        return 1.0 if place < level else 0.0

    @staticmethod
    def regret(params: PreferenceMatrix, world: World, lane: int, shown: Ints) -> float:
        """Return the regret of a duel: the mean, the smaller or the larger of both arms' gaps."""
        left_gap, right_gap = world.gaps[shown[0]], world.gaps[shown[1]]
        if params.kind == AVERAGE:
            return float(0.5 * (left_gap + right_gap))
        return float(min(left_gap, right_gap) if params.kind == WEAK else max(left_gap, right_gap))


@kernel
def shift_preferences(world: PreferenceMatrix.World) -> None:
    """Overwrite the preferences and gaps in ``world`` by the ones of ``world.later``, after the shift."""
    chances, levels, gaps = world.later
    for i in range(len(gaps)):
        world.gaps[i] = gaps[i]
        for j in range(len(gaps)):
            world.chances[i, j] = chances[i, j]
            world.levels[i, j] = levels[i, j]


# ---- Duels whose best arm depends on the key's context


@dataclass(frozen=True)
class ContextualDuels(DuelEnvironment):
    """Many keys, each with a context that determines its best arm: queries, and rankers that suit them.

    A key's context is drawn once per run, standard normal divided by √context_dim. The arms'
    utilities for a key are linear in its context, times ``scale``, plus a constant, plus a
    key-specific deviation, times ``own``. An arm wins with the logistic function of the difference
    of utilities. Keys are equally frequent. The regret of a duel is the mean gap of both arms: the
    probability of losing to the key's best arm, minus 1/2.

    Parameters
    ----------
    arms : int, default 5
        At least 2.
    context_dim : int, default 4
        Number of signals in a context; at least 1.
    keys : int, default 50
        At least 1.
    scale : float, default 2
        Scale of the context's effect; above 0.
    own : float, default 0
        Standard deviation of the key-specific deviation; 0 to 100.
    delay, batch
        See :class:`~tacit.environments.Environment`.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.environments.ContextualDuels(arms=3, context_dim=2, keys=10)
    >>> environment.lanes, environment.context_dim
    (10, 2)
    """

    class World(NamedTuple):
        impression: Impression
        contexts: Floats  # (keys, context_dim)
        utilities: Floats  # (keys, arms)
        best: Floats  # (keys,)
        uniform: Floats  # (1,)

    arms: Annotated[int, int_range(2, 2**16)] = 5
    context_dim: Annotated[int, int_range(1, 256)] = 4
    keys: Annotated[int, int_range(1, 2**20)] = 50
    scale: Positive = 2.0
    own: Annotated[float, float_range(0.0, 100.0)] = 0.0

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an example with ``arms`` arms, contexts of length ``dim`` and 4 keys."""
        return cls(arms, dim, 4)

    def world(self, rng: Generator, horizon: int) -> World:
        """Draw the keys' contexts and the arms' utilities for each key, and return them."""
        contexts = rng.standard_normal((self.keys, self.context_dim)) / np.sqrt(self.context_dim)
        slopes = rng.standard_normal((self.context_dim, self.arms))
        constants = 0.3 * rng.standard_normal(self.arms)
        deviations = self.own * rng.standard_normal((self.keys, self.arms))
        utilities = self.scale * (contexts @ slopes) + constants + deviations
        return self.World(
            impression=Impression(np.arange(self.arms), np.zeros(self.context_dim)),
            contexts=contexts,
            utilities=utilities,
            best=utilities.max(axis=1),
            uniform=np.zeros(1),
        )

    @staticmethod
    def arrive(params: ContextualDuels, world: World, round: int, rng: Generator) -> int:
        """Draw a key and the number that decides the duel; return the key's lane.

        The key's context is written to the impression.
        """
        key = int(rng.random() * len(world.contexts))
        world.impression.context[:] = world.contexts[key]
        world.uniform[0] = rng.random()
        return key

    @staticmethod
    def respond(params: ContextualDuels, world: World, lane: int, pair: Any) -> float:
        """Return 1.0 if the left arm of the pair wins this round's duel for the key, else 0.0."""
        utility_difference = world.utilities[lane, pair[0]] - world.utilities[lane, pair[1]]
        return 1.0 if world.uniform[0] < sigmoid(utility_difference) else 0.0

    @staticmethod
    def expected(params: ContextualDuels, world: World, lane: int, pair: Any) -> float:
        """Return 1/2 minus the mean gap of both arms of the pair to the key's best arm."""
        best = world.best[lane]
        left_gap = sigmoid(best - world.utilities[lane, pair[0]]) - 0.5
        right_gap = sigmoid(best - world.utilities[lane, pair[1]]) - 0.5
        return float(0.5 - 0.5 * (left_gap + right_gap))
