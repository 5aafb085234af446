"""What a placement's table says of its rule of attribution and of the signals that it computes."""

from __future__ import annotations

from typing import Literal

import msgspec

from tacit.errors import InvalidValue
from tacit.learning.signals import check
from tacit.policies import Policy

# ---- Which feedback counts for a decision, and what it makes: the rule of attribution

Aggregation = Literal["first", "last", "sum", "max"]
ClickAggregation = Literal["union", "first", "last"]


class Rule(msgspec.Struct, frozen=True):
    """How rewards are attributed to decisions.

    Attributes
    ----------
    window : int
        Microseconds from a decision (from its activation, if it was deferred) in which feedback
        counts.
    default : float
        Reward of a decision for which none came in its window.
    aggregation : str
        What several rewards for one decision make: the ``first``, the ``last``, their ``sum``
        (at most 1, at least ``lowest``), or the ``max``; where clicks are given by their
        positions, the ``union``.
    seen : str
        Which decisions without a reward earn the default: all that were ``decided``, or only those
        ``examined``; the others teach nothing.
    late : str
        What a reward after the window does: ``record``, or ``correct`` the default, if it is the
        first one.
    correction : int
        Microseconds after the end of a window in which it may be corrected.
    activation : int
        Microseconds in which a deferred decision must be activated; else it never counts.
    name : str
    version : int
        Of the meaning of all this.
    lowest : float
        The least reward, in [−1, 0]. A reward r is learned as (r − lowest)/(1 − lowest).
    """

    window: int = 30_000_000
    default: float = 0.0
    aggregation: Aggregation | ClickAggregation = "first"
    seen: Literal["decided", "examined"] = "decided"
    late: Literal["record", "correct"] = "record"
    activation: int = 3_600_000_000
    correction: int = 3_600_000_000
    name: str = "window"
    version: int = 1
    lowest: float = 0.0


# ---- Which signals a placement computes for its contexts


class SignalConfig(msgspec.Struct, frozen=True):
    """Which signals a placement computes.

    Attributes
    ----------
    names : tuple of str
        Of :data:`tacit.learning.signals.NAMES`; contexts begin with them, in this order.
    fast, slow : float
        Their time constants in seconds.
    client : int
        How many numbers the client adds to each context.
    """

    names: tuple[str, ...]
    fast: float = 600.0
    slow: float = 86_400.0
    client: int = 0


def check_config(config: SignalConfig, policy: Policy) -> None:
    """Check that signals are what a policy reads.

    Raises
    ------
    InvalidValue
        If they are not.
    """
    check(config.names, config.fast, config.slow)
    given, read = len(config.names) + config.client, policy.context_dim
    if given != read:
        raise InvalidValue(
            "signals", list(config.names),
            f"with client_signals = {config.client} a context has {given} numbers, and "
            f"{policy.label} reads {read}; give its classifier dim={given}, or other signals",
        )  # fmt: skip
