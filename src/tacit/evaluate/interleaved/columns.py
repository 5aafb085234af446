"""What the columns of interleaved searches are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tacit.evaluate.interleaved.engines import UNITS

ROW = ("search", "team", "position", "click")
"""The columns of a row for each item shown, or for each one clicked."""
MORE = ("item", "action", "amount")
OWN = ("left", "right", "outcome", "interleaved", "clicks", "rankings", "decision_id")
"""Those of tacit's own log of duels."""


class Columns(NamedTuple):
    """What to read beside the fixed columns.

    Attributes
    ----------
    unit : str or None
        Whose searches are; None: the first of ``user``, ``client_id``, ``session``,
        ``session_id`` that there is.
    by : tuple of str
        Segments.
    renamed : dict
        From our names of columns to the file's.
    """

    unit: str | None = None
    by: tuple[str, ...] = ()
    renamed: Mapping[str, str] = {}

    @property
    def units(self) -> tuple[str, ...]:
        """Where the unit may stand, the likeliest first."""
        return UNITS if self.unit is None else (self.unit,)
