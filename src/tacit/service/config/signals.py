"""Which signals a placement computes for its contexts."""

from __future__ import annotations

import msgspec

from tacit.errors import InvalidValue
from tacit.learning.signals import check
from tacit.policies import Policy


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
