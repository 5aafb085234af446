"""What a policy can do beyond deciding and learning: corrections, propensities, logs, new arms."""

from __future__ import annotations

from typing import Any

from tacit.errors import InvalidValue
from tacit.policies.base import Policy


def is_correctable(policy: Policy) -> bool:
    """True if a reward that was learned can be replaced by another one.

    This requires a kernel ``unlearn`` that belongs to the ``learn`` in use.
    """
    kind = type(policy)
    return (
        hasattr(kind, "unlearn")
        and issubclass(_defining_class(kind, "unlearn"), _defining_class(kind, "learn"))
        and policy.unlearns_exactly
    )


def _defining_class(kind: type, method: str) -> type:
    """Return the class in the method resolution order of ``kind`` that defines ``method``."""
    return next(base for base in kind.__mro__ if method in base.__dict__)


def can_weigh_places(policy: Policy) -> bool:
    """True if the policy shows lists and can compute the probability of each arm at each position."""
    return hasattr(policy, "placed") and hasattr(policy, "cells")


def describe_propensities(policy: Policy) -> str:
    """Return how the propensities of a policy's decisions are known, as a word or two.

    ``exact``: decisions carry them. ``exact in a floor``: the choice is deterministic, so they are
    null, except under an :class:`~tacit.ExplorationFloor`. ``drawn in a floor``: they are not
    known, but an exploration floor draws candidates that make them exact. ``null``: they are
    not known.
    """
    if policy.randomized and policy.knows_propensity:
        return "exact"
    if policy.showing.listed:
        return "null"
    return "exact in a floor" if policy.knows_propensity else "drawn in a floor"


def check_folds(policy: Policy) -> None:
    """Raise if a policy cannot learn its decisions from a log.

    Raises
    ------
    InvalidValue
        If it :attr:`~tacit.Policy.remembers` something about its decisions.
    """
    if policy.remembers:
        remedy = "give one that learns from what was shown alone, as CascadeKLUCB or PBMUCB do"
        why = f"it remembers {policy.remembers}, which no log holds"
        raise InvalidValue("policy", policy, f"{why}; {remedy}")


def enrol_arms(policy: Policy, state: Any, lanes: int, known: int) -> None:
    """Initialise new arms in lanes that have learned; without ``enrol`` they are as at the start.

    Parameters
    ----------
    policy : Policy
    state : State
        State of this policy; the new part of each array is as ``init`` returns it.
    lanes : int
        Number of lanes that have learned.
    known : int
        Number of arms before; arms from this index on are new.
    """
    if hasattr(policy, "enrol"):
        policy.enrol(state, lanes, known)
