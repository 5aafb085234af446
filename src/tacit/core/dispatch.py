"""Generic functions, resolved to a part's own kernels by the type of its ``Params``.

A *part* is a policy, an environment or a classifier: a frozen configuration whose ``Params`` named
tuple has the numbers, and whose static methods are kernels in numba's subset. The
functions below find the kernel by ``type(params)``; :mod:`tacit.core.compiled` registers the
same rule with numba, so that one loop works for every part, and this module does not import numba.
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
    """Register ``part`` for its ``Params`` type, so that generic functions find its kernels; check their
    signatures.

    Kernels are optional. A class without its own ``Params`` is a variant that shares its parent's kernels.
    Warns of likely errors in kernels outside this package.

    Raises
    ------
    TypeError
        If a kernel has other parameters than its generic function, or could never be resolved.
    """
    if "Params" not in part.__dict__:
        own_kernels = [generic.__name__ for generic in generics if generic.__name__ in part.__dict__]
        if own_kernels and hasattr(part, "Params"):
            raise TypeError(
                f"{part.__qualname__} has its own {own_kernels[0]}, but kernels are found by the type of "
                "Params: give it a nested class Params(NamedTuple) of its own"
            )
        return
    for generic in generics:
        implementation = getattr(part, generic.__name__, None)
        if implementation is None:
            continue
        generic_parameters, parameters = _parameters(generic), _parameters(implementation)
        if len(parameters) != len(generic_parameters):
            raise TypeError(
                f"{part.__qualname__}.{generic.__name__} takes ({', '.join(parameters)}); "
                f"a kernel of this name is a static method that takes ({', '.join(generic_parameters)})"
            )
        foreign = not implementation.__module__.startswith(f"{__name__.partition('.')[0]}.")
        for doubt in _check_kernel_code(generic, implementation) if foreign else ():
            warnings.warn(f"{part.__qualname__}.{generic.__name__} {doubt}", AssumptionWarning, stacklevel=4)
    parts[part.Params] = part


def _check_kernel_code(generic: Callable[..., Any], function: Callable[..., Any]) -> set[str]:
    """Return warnings about a kernel: that it returns an unused value, or draws from numpy's global
    generator.
    """
    code: Any = getattr(function, "__code__", None)
    doubts, silent = set(), generic.__annotations__["return"] == "None"
    for before, step in pairwise([] if code is None else dis.get_instructions(code)):
        # The result of another function's call may be None.
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
    # With hundreds of kernels, inspect.signature() would take half of the time of an import.
    if code is None or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return list(inspect.signature(function).parameters)
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def register_name(part: Any, registry: dict[str, Any]) -> None:
    """Add a part to ``registry`` by its canonical name, if it has ``Params`` of its own.

    Raises TypeError if the name belongs to a part that another module of this package defines.
    """
    if "Params" in part.__dict__:
        registered = registry.get(canonical_name(part.__name__))
        home = getattr(registered, "__module__", "")
        if home.partition(".")[0] == __name__.partition(".")[0] and home != part.__module__:
            raise TypeError(f"{part.__name__} is the name of {registered}; choose another one")
        registry[canonical_name(part.__name__)] = part


def list_parts(registry: dict[str, Part], package: str) -> list[Part]:
    """Return the parts of a registry that are defined in ``tacit.<package>``, sorted by name."""
    package_parts = (part for part in registry.values() if part.__module__.startswith(f"tacit.{package}."))
    return sorted(package_parts, key=lambda part: part.__name__)


def public_names(names: dict[str, Any]) -> list[str]:
    """Return the sorted names of public classes and functions of this package in a module's namespace."""
    return sorted(
        name
        for name, value in names.items()
        if not name.startswith("_")
        and isinstance(value, (type, FunctionType))
        and value.__module__.partition(".")[0] == __name__.partition(".")[0]
    )


def canonical_name(name: str) -> str:
    """Return a part's name in lower case, without hyphens and underscores."""
    return name.lower().replace("-", "").replace("_", "")


def find_kernel(part: Any, generic: Callable[..., Any]) -> Any:
    """Return the kernel of a part for a generic function: its own, else its class's default, else None."""
    name = generic.__name__
    return getattr(part, name, None) or getattr(part, "defaults", {}).get(name)


# A policy's kernels -------------------------------------------------------------------------


def choose(params: Any, state: Any, lane: int, impression: Any, rng: Any) -> Any:
    """Return the arm index to show, or the two of a duel; ``state`` does not change."""
    return parts[type(params)].choose(params, state, lane, impression, rng)


def learn(params: Any, state: Any, lane: int, outcome: Any) -> None:
    """Update ``state`` in place with the outcome of a decision."""
    parts[type(params)].learn(params, state, lane, outcome)


def unlearn(params: Any, state: Any, lane: int, outcome: Any) -> None:
    """Undo ``learn`` of the same outcome, in place."""
    parts[type(params)].unlearn(params, state, lane, outcome)


def observe(params: Any, state: Any, lane: int, impression: Any) -> None:
    """Update ``state`` in place with an impression, before any choice for it."""
    find_kernel(parts[type(params)], observe)(params, state, lane, impression)


def propensity(params: Any, state: Any, lane: int, impression: Any, shown: Any) -> Any:
    """Return the probability that the policy shows exactly ``shown``."""
    return parts[type(params)].propensity(params, state, lane, impression, shown)


def epoch(params: Any, state: Any, lane: int) -> Any:
    """Return how often the policy has restarted for a lane."""
    return find_kernel(parts[type(params)], epoch)(params, state, lane)


def decide(params: Any, state: Any, lane: int, impression: Any, rng: Any, action: Any) -> None:
    """Fill ``action`` with the arm indices to show; ``state`` does not change."""
    find_kernel(parts[type(params)], decide)(params, state, lane, impression, rng, action)


def decide_and_weigh(params: Any, state: Any, lane: int, impression: Any, rng: Any, action: Any) -> Any:
    """Fill ``action`` with the arm indices to show, and return the probability of showing exactly these."""
    return find_kernel(parts[type(params)], decide_and_weigh)(params, state, lane, impression, rng, action)


def shown_in(params: Any, action: Any) -> Any:
    """Return the arm index, the pair, or the whole row, as the policy reads it, of ``action``, a row of arm
    indices.
    """
    return find_kernel(parts[type(params)], shown_in)(params, action)


def reward_in(params: Any, feedback: Any) -> Any:
    """Return the reward, or one for each position, as the policy reads it, from a row of feedback."""
    return find_kernel(parts[type(params)], reward_in)(params, feedback)


def learned_propensity(params: Any, state: Any, lane: int, impression: Any, shown: Any) -> Any:
    """Return the propensity if the policy learns from it; else NaN, without computing it."""
    learns = learns_from_propensity(params)
    return propensity(params, state, lane, impression, shown) if learns else math.nan


def learns_from_propensity(params: Any) -> bool:
    """True if the part of ``params``, or a part inside it, learns from propensities."""
    part = parts.get(type(params))
    return part is not None and (
        part.learns_from_propensity or any(learns_from_propensity(inner) for inner in params)
    )


def restart(params: Any, state: Any, lane: int) -> None:
    """Reset a lane of ``state``, in place, to its initial values; shared arrays stay."""
    parts[type(params)].restart(params, state, lane)


def refit(params: Any, state: Any) -> None:
    """Recompute, in ``state``, the values that follow from sums over all lanes."""
    find_kernel(parts[type(params)], refit)(params, state)


def estimate(params: Any, state: Any, lane: int, arm: int) -> Any:
    """Return the mean reward of an arm so far; 0 before its first play."""
    return parts[type(params)].estimate(params, state, lane, arm)


OPEN_UNIT = 1024
"""Pending decisions are counted in units of 1/1024, which floats represent exactly."""


def count_open(params: Any, state: Any, lane: int, arm: int, hits: int, plays: int) -> None:
    """Add clicks (``hits``) and plays of pending decisions to an arm's counts, in units of 1/1024."""
    find_kernel(parts[type(params)], count_open)(params, state, lane, arm, hits, plays)


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
    """Return the policy's estimate of the click probability of an arm on offer."""
    return parts[type(params)].believed(params, state, lane, impression, arm)


FEATURE_KERNELS = (believed,)


def line(params: Any, state: Any, lane: int, impression: Any, place: int) -> Any:
    """Return the mean and standard deviation of the score of the arm that is number ``place`` on offer."""
    return parts[type(params)].line(params, state, lane, impression, place)


COUPLED_KERNELS = (line,)

# The kernels of a mixture over the time of the last shift of rates -----------------------------


def odds(params: Any, state: Any, lane: int, h: int, arm: int) -> Any:
    """Return the two parameters of an arm's Beta posterior under hypothesis ``h``, and its log-odds'
    deviation.
    """
    return parts[type(params)].odds(params, state, lane, h, arm)


def enter(params: Any, state: Any, lane: int, weight: float, kind: int, epoch: int) -> None:
    """Add a hypothesis of a change just now, of a weight and kind, to a lane.

    Its counts are those stored for ``epoch``; a negative epoch stands for none.
    """
    parts[type(params)].enter(params, state, lane, weight, kind, epoch)


SHIFT_KERNELS = (odds, enter)

# An index policy's kernels ------------------------------------------------------------------


def confidence(params: Any, state: Any, lane: int) -> Any:
    """Return the value that the indices of all arms of a lane share, computed once per round."""
    return parts[type(params)].confidence(params, state, lane)


def index(params: Any, state: Any, lane: int, arm: int, confidence: float) -> Any:
    """Return the index of ``arm``, by which an index policy ranks arms."""
    return parts[type(params)].index(params, state, lane, arm, confidence)


INDEX_KERNELS = (confidence, index)

# A list policy's kernels over one draw ---------------------------------------------------------


def arrange(params: Any, state: Any, lane: int, impression: Any) -> Any:
    """Return the data by which ``line_up`` orders the arms on offer; the workspace of ``state`` may be
    filled.
    """
    return parts[type(params)].arrange(params, state, lane, impression)


def line_up(params: Any, arranged: Any, lane: int, impression: Any, draw: Any, action: Any) -> None:
    """Fill ``action`` with the arms on offer in the order that the draw's ``z`` gives.

    The draw's ``arm``, unless −1, is put at its ``place``.
    """
    parts[type(params)].line_up(params, arranged, lane, impression, draw, action)


def share(
    params: Any, arranged: Any, lane: int, impression: Any, begin: Any, count: int, without: int
) -> Any:
    """Return the probability that the order begins with the first ``count`` arms of ``begin``.

    The arm ``without``, unless −1, is removed from the order and from ``begin``.
    """
    return parts[type(params)].share(params, arranged, lane, impression, begin, count, without)


def shares(params: Any, arranged: Any, lane: int, impression: Any, begin: Any, count: int) -> Any:
    """Return the sum of ``share`` over the arms that are not in ``begin``, each left out in turn."""
    return parts[type(params)].shares(params, arranged, lane, impression, begin, count)


def ranks(
    params: Any, arranged: Any, lane: int, impression: Any, arm: int, without: int, chances: Any
) -> None:
    """Fill ``chances`` with the probability that the arm has rank 0, 1, … in the order; 0 beyond the last
    rank.

    The arm ``without``, unless −1, is removed from the order.
    """
    parts[type(params)].ranks(params, arranged, lane, impression, arm, without, chances)


def clear(params: Any, state: Any, lane: int) -> None:
    """Reset the workspace of ``state``, which ``arrange`` filled."""
    find_kernel(parts[type(params)], clear)(params, state, lane)


def placed(
    params: Any, state: Any, lane: int, impression: Any, action: Any, prefixes: Any, places: Any
) -> None:
    """Fill ``prefixes`` and ``places`` with probabilities of the list ``action``, for each position.

    They are the probability that ``decide`` shows the same arms down to the position, and that it shows the
    same arm at the position.
    """
    parts[type(params)].placed(params, state, lane, impression, action, prefixes, places)


def cells(params: Any, state: Any, lane: int, impression: Any, found: Any) -> None:
    """Fill the table ``found`` with the probability that ``decide`` shows each arm on offer (row) at each
    position.
    """
    parts[type(params)].cells(params, state, lane, impression, found)


LIST_KERNELS = (arrange, line_up, share, shares, ranks, clear, placed, cells)

# An environment's kernels -------------------------------------------------------------------


def arrive(params: Any, world: Any, round: int, rng: Any) -> Any:
    """Fill ``world.impression`` with the round's impression; return its lane."""
    return parts[type(params)].arrive(params, world, round, rng)


def respond(params: Any, world: Any, lane: int, arm: Any) -> Any:
    """Return the reward of ``arm``, or of a pair, for the current impression; it may be drawn at random."""
    return parts[type(params)].respond(params, world, lane, arm)


def expected(params: Any, world: Any, lane: int, arm: Any) -> Any:
    """Return the mean reward of ``arm`` (or a pair) for the current impression."""
    return parts[type(params)].expected(params, world, lane, arm)


def optimum(params: Any, world: Any, lane: int) -> Any:
    """Return the mean reward of the best arm, or pair, for the current impression."""
    return parts[type(params)].optimum(params, world, lane)


def react(params: Any, world: Any, lane: int, shown: Any, feedback: Any) -> None:
    """Fill ``feedback`` with the feedback to the arms shown, for each position."""
    parts[type(params)].react(params, world, lane, shown, feedback)


def regret(params: Any, world: Any, lane: int, shown: Any) -> Any:
    """Return the regret of the arms shown: the expected reward of the best action minus theirs."""
    return parts[type(params)].regret(params, world, lane, shown)


ENVIRONMENT_KERNELS = (arrive, respond, expected, optimum, react, regret)

# A classifier's kernels ---------------------------------------------------------------------


def predict(params: Any, state: Any, row: int, context: Any) -> Any:
    """Return True if the context may be an event; ``state`` does not change, except its workspace."""
    return parts[type(params)].predict(params, state, row, context)


def learn_false(params: Any, state: Any, row: int, context: Any) -> None:
    """Update ``state`` in place with a context that was no event."""
    parts[type(params)].learn_false(params, state, row, context)


CLASSIFIER_KERNELS = (predict, learn_false)
