"""Models of the expected reward of each arm: what the direct method and its kin lean on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self

from tacit.core.arrays import Floats
from tacit.evaluate.rows import LoggedRows
from tacit.evaluate.targets.functions import ArmFunction
from tacit.evaluate.targets.tables import PerArm


class RewardModel(Protocol):
    """Expected rewards of arms.

    Attributes
    ----------
    columns : frozenset of str
        The columns of the log that it looks at.
    """

    columns: frozenset[str]

    def begin(self, every: bool = False) -> Self:
        """Return it as it is before the first row of a log."""

    def shown(self, rows: LoggedRows) -> Floats:
        """Return the expected reward of the arm that was shown, per row."""

    def every(self, rows: LoggedRows) -> Floats:
        """Return the expected reward of each arm, shape (rows, arms)."""


class Rewards(PerArm):
    """Fixed expected rewards of arms, 0 for those that are not named.

    Parameters
    ----------
    rewards : dict
        From arms to expected rewards; with ``per``, from the values of that column to such
        dicts.
    per : {None, "key", "placement", "position", "policy"}
        What has rewards of its own.

    Examples
    --------
    >>> Rewards({"film": 0.1, "holiday": 0.4}).per is None
    True
    """

    def __init__(self, rewards: Mapping[Any, Any], per: str | None = None) -> None:
        super().__init__(rewards, per)


class RewardFunction(ArmFunction):
    """The expected rewards that a function gives for each batch of rows.

    Parameters
    ----------
    function, arms, columns
        As for :class:`~tacit.evaluate.Probabilities`; the numbers need not add to anything.
    """
