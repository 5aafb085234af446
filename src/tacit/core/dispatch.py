"""Generic functions, resolved to a part's own kernels by the type of its ``Params``.

A *part* is a policy, an environment or a classifier: a frozen description whose ``Params`` named
tuple carries the numbers, and whose static methods are kernels in numba's subset. The
functions below find the kernel by ``type(params)``; :mod:`tacit.core.compiled` teaches numba the
same rule, so one compiled loop serves every part, and this module stays free of numba.
"""

from __future__ import annotations

import dis
import inspect
import math
import warnings
from collections.abc import Callable
from itertools import pairwise
from types import FunctionType
from typing import Any, TypeVar

from tacit.errors import AssumptionWarning

Function = TypeVar("Function", bound=Callable[..., Any])
Part = TypeVar("Part", bound=type)

parts: dict[type, Any] = {}
"""From a ``Params`` type to the part it belongs to."""

helpers: list[Callable[..., Any]] = []
"""Plain functions that kernels may call; compiled along with them."""


def kernel(function: Function) -> Function:
    """Mark a module-level function as one that kernels may call.

    The function itself is returned unchanged and stays callable from Python.

    Parameters
    ----------
    function : function
        A function in numba's subset.

    Examples
    --------
    >>> import tacit
    >>> @tacit.kernel
    ... def halve(x):
    ...     return x / 2
    >>> halve(3.0)
    1.5
    """
    helpers.append(function)
    return function


def register(part: Any, generics: tuple[Callable[..., Any], ...]) -> None:
    """Bind ``part`` to its ``Params`` type, after checking that its kernels fit.

    A class without ``Params`` of its own is a variant that shares its parent's kernels. A kernel
    that neither it nor a base has is an ability that it lacks.

    Raises
    ------
    TypeError
        If a kernel takes other arguments, or could never be found.
    """
    if "Params" not in part.__dict__:
        own = [generic.__name__ for generic in generics if generic.__name__ in part.__dict__]
        if own and hasattr(part, "Params"):
            raise TypeError(
                f"{part.__qualname__} has its own {own[0]}, but kernels are found by the type of "
                "Params: give it a nested class Params(NamedTuple) of its own"
            )
        return
    for generic in generics:
        implementation = getattr(part, generic.__name__, None)
        if implementation is None:
            continue
        expected, given = _parameters(generic), _parameters(implementation)
        if len(given) != len(expected):
            raise TypeError(
                f"{part.__qualname__}.{generic.__name__} takes ({', '.join(given)}); "
                f"a kernel of this name is a static method that takes ({', '.join(expected)})"
            )
        foreign = not implementation.__module__.startswith(f"{__name__.partition('.')[0]}.")
        for doubt in _doubts(generic, implementation) if foreign else ():
            warnings.warn(f"{part.__qualname__}.{generic.__name__} {doubt}", AssumptionWarning, stacklevel=4)
    parts[part.Params] = part


def _doubts(generic: Callable[..., Any], function: Callable[..., Any]) -> set[str]:
    """Return what a kernel does that is lost, or that no seed reaches."""
    code: Any = getattr(function, "__code__", None)
    doubts, silent = set(), generic.__annotations__["return"] == "None"
    for before, step in pairwise([] if code is None else dis.get_instructions(code)):
        # What another function returns may be none.
        if (
            step.opname == "RETURN_VALUE"
            and silent
            and before.argval is not None
            and before.opname[:4] != "CALL"
        ):
            remedy = "let it write into the arrays of the state, as in state.plays[lane, arm] += 1"
            doubts.add(f"returns something, which nobody reads; {remedy}")
        if before.argval in ("np", "numpy") and step.argval == "random":
            doubts.add("draws from np.random, which no seed reaches; draw from rng, as in rng.random()")
    return doubts


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's parameters."""
    code = getattr(function, "__code__", None)
    # For the hundreds of kernels that there are, inspect.signature() would take half of an import.
    if code is None or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return list(inspect.signature(function).parameters)
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def enlist(part: Any, registry: dict[str, Any]) -> None:
    """Make a part known by its name, which no part of the package may lose to another."""
    if "Params" in part.__dict__:
        known = registry.get(canonical(part.__name__))
        own = __name__.partition(".")[0]
        if known is not None and known.__module__.partition(".")[0] == own != part.__module__:
            raise TypeError(f"{part.__name__} is the name of {known}; choose another one")
        registry[canonical(part.__name__)] = part


def shipped(registry: dict[str, Part], package: str) -> list[Part]:
    """Return the parts of a registry that were defined in a package of ours, by name."""
    found = (part for part in registry.values() if part.__module__.startswith(f"tacit.{package}."))
    return sorted(found, key=lambda part: part.__name__)


def public(names: dict[str, Any]) -> list[str]:
    """Return the names of the classes and functions of the package among those of a module."""
    return sorted(
        name
        for name, value in names.items()
        if not name.startswith("_")
        and isinstance(value, (type, FunctionType))
        and value.__module__.partition(".")[0] == __name__.partition(".")[0]
    )


def canonical(name: str) -> str:
    """Return a part's name without case, hyphens and underscores."""
    return name.lower().replace("-", "").replace("_", "")


# A policy's kernels -------------------------------------------------------------------------


def choose(params: Any, state: Any, lane: int, impression: Any, rng: Any) -> Any:
    """Choose an arm (its slot), or a duel's two, for the impression; reads ``state``."""
    return parts[type(params)].choose(params, state, lane, impression, rng)


def learn(params: Any, state: Any, lane: int, outcome: Any) -> None:
    """Update ``state`` in place with the outcome of a decision."""
    parts[type(params)].learn(params, state, lane, outcome)


def unlearn(params: Any, state: Any, lane: int, outcome: Any) -> None:
    """Take out of ``state`` what ``learn`` with the same outcome has put in."""
    parts[type(params)].unlearn(params, state, lane, outcome)


def observe(params: Any, state: Any, lane: int, impression: Any) -> None:
    """Take in what an impression reveals before any choice; writes ``state``."""
    parts[type(params)].observe(params, state, lane, impression)


def propensity(params: Any, state: Any, lane: int, impression: Any, shown: Any) -> Any:
    """Return the probability of showing just that."""
    return parts[type(params)].propensity(params, state, lane, impression, shown)


def epoch(params: Any, state: Any, lane: int) -> Any:
    """Return how often the lane has restarted."""
    return parts[type(params)].epoch(params, state, lane)


def decide(params: Any, state: Any, lane: int, impression: Any, rng: Any, action: Any) -> None:
    """Fill ``action``, a row of slots, with what is shown; reads ``state``."""
    parts[type(params)].decide(params, state, lane, impression, rng, action)


def decide_and_weigh(params: Any, state: Any, lane: int, impression: Any, rng: Any, action: Any) -> Any:
    """Fill ``action`` as ``decide`` does; return the propensity of what it shows."""
    return parts[type(params)].decide_and_weigh(params, state, lane, impression, rng, action)


def shown_in(params: Any, action: Any) -> Any:
    """Return what a row of slots shows: an arm, a pair, or the row itself."""
    return parts[type(params)].shown_in(params, action)


def reward_in(params: Any, feedback: Any) -> Any:
    """Return what a row of feedback says: a reward, or the row itself."""
    return parts[type(params)].reward_in(params, feedback)


def learned_propensity(params: Any, state: Any, lane: int, impression: Any, shown: Any) -> Any:
    """Return the propensity to a policy that learns from it; NaN, at no cost, to any other."""
    wanted = learns_from_propensity(params)
    return propensity(params, state, lane, impression, shown) if wanted else math.nan


def learns_from_propensity(params: Any) -> bool:
    """Return whether the part of ``params``, or a part inside it, learns from propensities."""
    part = parts.get(type(params))
    return part is not None and (
        part.learns_from_propensity or any(learns_from_propensity(inner) for inner in params)
    )


def restart(params: Any, state: Any, lane: int) -> None:
    """Let the lane forget all it has learned."""
    parts[type(params)].restart(params, state, lane)


def refit(params: Any, state: Any) -> None:
    """Compute anew what follows from the sums that all lanes share."""
    parts[type(params)].refit(params, state)


def estimate(params: Any, state: Any, lane: int, arm: int) -> Any:
    """Return the mean reward of an arm so far; 0 before its first play."""
    return parts[type(params)].estimate(params, state, lane, arm)


OPEN_UNIT = 1024
"""Decisions that are not yet learned are counted in whole parts of this: nothing is lost by rounding."""


def count_open(params: Any, state: Any, lane: int, arm: int, hits: int, plays: int) -> None:
    """Count more clicks and plays of decisions that are not yet learned, in units of 1/1024."""
    parts[type(params)].count_open(params, state, lane, arm, hits, plays)


POLICY_KERNELS = (
    choose,
    learn,
    unlearn,
    observe,
    propensity,
    epoch,
    restart,
    refit,
    estimate,
    decide,
    decide_and_weigh,
    shown_in,
    reward_in,
    count_open,
)

# A click model's kernels ---------------------------------------------------------------------


def believed(params: Any, state: Any, lane: int, impression: Any, arm: int) -> Any:
    """Return the click probability that the policy believes in for an arm on offer."""
    return parts[type(params)].believed(params, state, lane, impression, arm)


FEATURE_KERNELS = (believed,)


def line(params: Any, state: Any, lane: int, impression: Any, place: int) -> Any:
    """Return mean and standard deviation of the score of the arm at a place on offer."""
    return parts[type(params)].line(params, state, lane, impression, place)


COUPLED_KERNELS = (line,)

# The kernels of a mixture over when rates last shifted ------------------------------------------


def odds(params: Any, state: Any, lane: int, h: int, arm: int) -> Any:
    """Return parameters of the Beta posterior of an arm under a hypothesis, and its log-odds' deviation."""
    return parts[type(params)].odds(params, state, lane, h, arm)


def enter(params: Any, state: Any, lane: int, weight: float, kind: int, epoch: int) -> None:
    """Put a hypothesis among those of a lane, with the counts of an earlier epoch where it is not -1."""
    parts[type(params)].enter(params, state, lane, weight, kind, epoch)


SHIFT_KERNELS = (odds, enter)

# An index policy's kernels ------------------------------------------------------------------


def confidence(params: Any, state: Any, lane: int) -> Any:
    """Return what the indices of a lane's arms have in common, computed once a round."""
    return parts[type(params)].confidence(params, state, lane)


def index(params: Any, state: Any, lane: int, arm: int, confidence: float) -> Any:
    """Return the number by which an index policy ranks ``arm``."""
    return parts[type(params)].index(params, state, lane, arm, confidence)


INDEX_KERNELS = (confidence, index)

# A list policy's kernels over one draw ---------------------------------------------------------


def arrange(params: Any, state: Any, lane: int, impression: Any) -> Any:
    """Return what lining up the arms on offer takes; it may lie in the scratch of ``state``."""
    return parts[type(params)].arrange(params, state, lane, impression)


def line_up(params: Any, arranged: Any, lane: int, impression: Any, draw: Any, action: Any) -> None:
    """Fill ``action`` with the arms in the order of the draw's ``z``, its ``arm``, if not −1, put at its
    ``place``."""
    parts[type(params)].line_up(params, arranged, lane, impression, draw, action)


def share(
    params: Any, arranged: Any, lane: int, impression: Any, begin: Any, count: int, without: int
) -> Any:
    """Return the probability that the order, one arm taken out, begins with the first ``count`` arms of
    ``begin``, that arm left out there, too."""
    return parts[type(params)].share(params, arranged, lane, impression, begin, count, without)


def shares(params: Any, arranged: Any, lane: int, impression: Any, begin: Any, count: int) -> Any:
    """Return the sum of ``share`` over the arms that are not in ``begin``, each taken out."""
    return parts[type(params)].shares(params, arranged, lane, impression, begin, count)


def ranks(
    params: Any, arranged: Any, lane: int, impression: Any, arm: int, without: int, chances: Any
) -> None:
    """Fill ``chances`` with the probabilities of the arm's ranks 0, 1, …, 0 behind the last, with another
    arm, if not −1, taken out."""
    parts[type(params)].ranks(params, arranged, lane, impression, arm, without, chances)


def clear(params: Any, state: Any, lane: int) -> None:
    """Put the scratch of ``state`` back as it was before ``arrange``."""
    parts[type(params)].clear(params, state, lane)


def placed(
    params: Any, state: Any, lane: int, impression: Any, action: Any, prefixes: Any, places: Any
) -> None:
    """Fill in, for each position of a list, with what probability ``decide`` begins so down to
    there, and with what probability it puts this arm there."""
    parts[type(params)].placed(params, state, lane, impression, action, prefixes, places)


def cells(params: Any, state: Any, lane: int, impression: Any, found: Any) -> None:
    """Fill in with what probability ``decide`` puts each arm on offer at each position."""
    parts[type(params)].cells(params, state, lane, impression, found)


LIST_KERNELS = (arrange, line_up, share, shares, ranks, clear, placed, cells)

# An environment's kernels -------------------------------------------------------------------


def arrive(params: Any, world: Any, round: int, rng: Any) -> Any:
    """Bring the round's impression into ``world.impression``; return its lane."""
    return parts[type(params)].arrive(params, world, round, rng)


def respond(params: Any, world: Any, lane: int, arm: Any) -> Any:
    """Return the reward that ``arm`` (or a pair) gets from the impression that has just arrived."""
    return parts[type(params)].respond(params, world, lane, arm)


def expected(params: Any, world: Any, lane: int, arm: Any) -> Any:
    """Return the expected reward of ``arm`` for the impression that has just arrived."""
    return parts[type(params)].expected(params, world, lane, arm)


def optimum(params: Any, world: Any, lane: int) -> Any:
    """Return the expected reward of the best arm for the impression that has just arrived."""
    return parts[type(params)].optimum(params, world, lane)


def react(params: Any, world: Any, lane: int, shown: Any, feedback: Any) -> None:
    """Fill ``feedback`` with what comes back for what is shown."""
    parts[type(params)].react(params, world, lane, shown, feedback)


def regret(params: Any, world: Any, lane: int, shown: Any) -> Any:
    """Return the regret of what is shown: the expected reward that the best one has above it."""
    return parts[type(params)].regret(params, world, lane, shown)


ENVIRONMENT_KERNELS = (arrive, respond, expected, optimum, react, regret)

# A classifier's kernels ---------------------------------------------------------------------


def predict(params: Any, state: Any, row: int, context: Any) -> Any:
    """Return whether the context may be an event; reads ``state`` (and may use its scratch)."""
    return parts[type(params)].predict(params, state, row, context)


def learn_false(params: Any, state: Any, row: int, context: Any) -> None:
    """Update ``state`` in place: the context was no event."""
    parts[type(params)].learn_false(params, state, row, context)


CLASSIFIER_KERNELS = (predict, learn_false)
