"""What a log suggests: parameters, what they were derived from, and warnings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tacit.core.text import Tabulated


class Shift(NamedTuple):
    """A change after which another arm was best.

    Attributes
    ----------
    placement, key : str
    round : int
        The most likely round of the key, from 1.
    size : float
        By how much the old best arm fell behind the new one.
    excess : float or None
        By how much the loudest context around that round leaves the normal box in some
        coordinate; at most 0 where none does, None without contexts.
    """

    placement: str
    key: str
    round: int
    size: float
    excess: float | None


@dataclass(frozen=True)
class Proposal(Tabulated):
    """What a log suggests for BWC and its like.

    Attributes
    ----------
    min_shift : float
        By how much an event lowers an arm that was best, against the new best one.
    margin : float or None
        Least distance of an event's context from the normal ones; None without contexts.
    test_rounds : int
        L, the rounds of a testing phase.
    horizon : int
        Rounds of a key.
    derived : dict
        What each of these was derived from, by its name.
    warnings : tuple of str
        Where the log contradicts what the policies assume.
    shifts : tuple of Shift
        The changes of the best arm that were found.
    rows, keys, searched : int
        Rows and keys of the log, and keys in which changes were searched.
    policy : str
        A policy with these parameters, as the command line takes it.
    """

    min_shift: float
    margin: float | None
    test_rounds: int
    horizon: int
    derived: dict[str, str]
    warnings: tuple[str, ...]
    shifts: tuple[Shift, ...]
    rows: int
    keys: int
    searched: int
    policy: str

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per parameter: its value, and what it was derived from."""
        return [
            {"parameter": name, "value": getattr(self, name), "derived": told}
            for name, told in self.derived.items()
        ]

    def summary(self) -> str:
        """Return the proposals, what they were derived from, and the warnings as text."""
        width = max(map(len, self.derived))
        values = {name: getattr(self, name) for name in self.derived}
        shown = {name: "–" if value is None else f"{value:g}" for name, value in values.items()}
        room = max(map(len, shown.values()))
        lines = [
            f"{self.rows:,} rows, {self.keys:,} keys; {len(self.shifts)} shifts found in "
            f"{self.searched:,} keys",
            *(
                f"  {name.ljust(width)}  {shown[name].rjust(room)}  {told}"
                for name, told in self.derived.items()
            ),
            f"  policy: {self.policy}",
            *(f"warning: {warning}" for warning in self.warnings),
        ]
        return "\n".join(lines)
