"""The effect of a request that changes a placement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tacit.service.placements.placement import Placement


class Effect(NamedTuple):
    """The change event that a request makes, and the answer to it.

    Attributes
    ----------
    kind : str
        Kind of the change event.
    change_value : function
        Returns the event's value from the placement, the request and the time of the log; None if
        nothing changes. Raises TacitError if the change is impossible; has no side effects.
    answer : function
        Returns the current state from the placement and the time.
    leads : bool
        Whether the first of several shards changes first.
    """

    kind: str
    change_value: Callable[[Placement, Any, int], str | None]
    answer: Callable[[Placement, int], Any]
    leads: bool = False
