"""Regimes: which policy folds the log, and what of it teaches that policy."""

from __future__ import annotations

from typing import Any

import msgspec

from tacit.service.log.clock import as_text
from tacit.service.log.rows import POLICY, MarkRow

REBUILD, ROLLBACK = "rebuild", "rollback"


class Regime(msgspec.Struct, frozen=True):
    """From when on a placement has which policy, as a mark of the log holds it.

    Attributes
    ----------
    what : str
        ``rebuild`` or ``rollback``.
    policy : dict
        As :func:`tacit.policies.policy_to_spec` gives it, over the arms that the placement began
        with.
    number : int
        The store's for it.
    left : str
        The name of the state that was left.
    state : str or None
        The name of the state that was gone back to.
    origin : int or None
        The last row that this state had taken in.
    aside : list of (int, int, int)
        Rows between the first two of each teach the policy nothing; 0 stands for the row of the
        mark, while there is none yet. The third is the time until which windows had closed before.
    approximate : list of str
        What of the log could not be taken in as it was.
    seq : int
        The row of the mark; 0 while there is none yet.
    """

    what: str
    policy: dict[str, Any]
    number: int
    left: str
    state: str | None = None
    origin: int | None = None
    aside: list[tuple[int, int, int]] = []
    approximate: list[str] = []
    seq: int = 0

    @property
    def text(self) -> str:
        """It as the value of a mark."""
        return msgspec.json.encode(msgspec.structs.replace(self, seq=0)).decode()

    def sets_aside(self, seq: int) -> int | None:
        """Return, of a row that teaches nothing, until when windows had closed before it.

        Examples
        --------
        >>> regime = Regime("rollback", {}, 1, "", aside=[(5, 9, 1_700_000_000_000_000)])
        >>> [seq for seq in range(12) if regime.sets_aside(seq) is not None]
        [6, 7, 8]
        """
        for after, before, closed in self.aside:
            if after < seq and (seq < before or not before):
                return closed
        return None


def regimes_of(marks: list[MarkRow]) -> list[Regime]:
    """Return the regimes that marks of a placement tell, in order."""
    return [regime_of(mark) for mark in marks if mark.kind == POLICY]


def regime_of(mark: MarkRow) -> Regime:
    """Return the regime that a mark tells."""
    regime = msgspec.json.decode(mark.value, type=Regime)
    return msgspec.structs.replace(regime, seq=mark.seq)


def state_name(time: int, policy: str) -> str:
    """Return the name of what a policy had learned at a time.

    Examples
    --------
    >>> state_name(1_700_000_000_123_456, "UCB1")
    '2023-11-14T22:13:20.123456Z-UCB1'
    """
    return f"{as_text(time).removesuffix('+00:00')}Z-{policy}"
