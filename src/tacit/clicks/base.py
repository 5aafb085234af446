"""What every click model is: a user who reads from the top, clicks, and goes on or leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from tacit.core.arrays import Booleans, Floats, Generator, Ints
from tacit.core.part import Checked
from tacit.errors import InvalidValue

NOTHING = -1
"""Stands in a list of kinds where no result was shown, below the end of a shorter list."""


class Chain(NamedTuple):
    """The probabilities of a user's next steps, per session and position.

    Attributes
    ----------
    click : array, shape (sessions, positions)
        Of a click, if the result is examined.
    after_click, after_skip : array, shape (sessions, positions)
        Of examining the next result, after a click on this one and after none.
    """

    click: Floats
    after_click: Floats
    after_skip: Floats


@dataclass(frozen=True)
class ClickModel(Checked):
    """Base of all click models.

    A result is known by its *kind*, a number from 0: its grade of relevance, or whatever else is
    to have parameters of its own, such as a pair of query and document. Sessions are arrays of
    kinds, one row each, −1 below the end of a shorter list; or a single row.

    A user examines the first result; having examined one, the user clicks or skips it and then
    goes on to the next one or leaves. A subclass says with which probabilities (:meth:`chain`);
    everything else here is exact and follows from them.

    Parameters
    ----------
    attraction : sequence of float
        Per kind, the probability in [0, 1] of a click on a result that is examined.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.
    """

    attraction: Annotated[Any, probabilities]

    @property
    def kinds(self) -> int:
        """How many kinds of results there are."""
        return len(self.attraction)

    def chain(self, shown: Ints) -> Chain:
        """Return the probabilities of the user's steps.

        Parameters
        ----------
        shown : array of int64, shape (sessions, positions)
        """
        raise NotImplementedError

    def simulate(self, shown: Any, rng: Generator) -> Booleans:
        """Draw clicks.

        Parameters
        ----------
        shown : array of int, shape (sessions, positions) or (positions,)
            The kind of each result, −1 for none.
        rng : Generator

        Returns
        -------
        array of bool
            Of the same shape.

        Raises
        ------
        InvalidValue
            If there is no such kind.
        """
        table, single = sessions(shown, self.kinds)
        chain = self.chain(table)
        clicks = np.zeros(table.shape, np.bool_)
        examining = np.ones(len(table), np.bool_)
        for position in range(table.shape[1]):
            clicked = examining & (rng.random(len(table)) < chain.click[:, position])
            onward = np.where(clicked, chain.after_click[:, position], chain.after_skip[:, position])
            examining &= rng.random(len(table)) < onward
            clicks[:, position] = clicked
        return clicks[0] if single else clicks

    def click_probabilities(self, shown: Any) -> Floats:
        """Return the probability of a click at each position, knowing no other click.

        Parameters
        ----------
        shown : array of int, shape (sessions, positions) or (positions,)

        Returns
        -------
        array of float64
            Of the same shape; 0 where nothing was shown.

        Raises
        ------
        InvalidValue
            If there is no such kind.
        """
        table, single = sessions(shown, self.kinds)
        chain = self.chain(table)
        found = np.zeros(table.shape)
        examined = np.ones(len(table))
        for position in range(table.shape[1]):
            click = chain.click[:, position]
            found[:, position] = examined * click
            examined = examined * (
                click * chain.after_click[:, position] + (1.0 - click) * chain.after_skip[:, position]
            )
        return found[0] if single else found

    def conditional_probabilities(self, shown: Any, clicks: Any) -> Floats:
        """Return the probability of a click at each position, knowing all above it.

        Parameters
        ----------
        shown : array of int, shape (sessions, positions) or (positions,)
        clicks : array of bool, of the same shape

        Returns
        -------
        array of float64
            Of the same shape; 0 where nothing was shown, and below what cannot happen.

        Raises
        ------
        InvalidValue
            If there is no such kind, or a click on nothing.
        """
        table, clicked, single = log(shown, clicks, self.kinds)
        found = conditional(self.chain(table), clicked)
        return found[0] if single else found

    def log_likelihood(self, shown: Any, clicks: Any) -> Floats:
        """Return the log-probability of each session's clicks; −inf where they cannot happen.

        Parameters
        ----------
        shown : array of int, shape (sessions, positions) or (positions,)
        clicks : array of bool, of the same shape

        Returns
        -------
        array of float64, shape (sessions,) or ()

        Raises
        ------
        InvalidValue
            If there is no such kind, or a click on nothing.
        """
        table, clicked, single = log(shown, clicks, self.kinds)
        found = log_probabilities(conditional(self.chain(table), clicked), clicked).sum(axis=1)
        return np.asarray(found[0] if single else found)


def conditional(chain: Chain, clicks: Booleans) -> Floats:
    """Return the probability of a click at each position, knowing all above it."""
    found = np.zeros(clicks.shape)
    examined = np.ones(len(clicks))
    for position in range(clicks.shape[1]):
        clicked, click = clicks[:, position], chain.click[:, position]
        found[:, position] = examined * click
        unclicked = 1.0 - found[:, position]
        skipped = np.divide(
            examined * (1.0 - click), unclicked, out=np.zeros(len(clicks)), where=unclicked > 0
        )
        examined = np.where(clicked, chain.after_click[:, position], skipped * chain.after_skip[:, position])
    return found


def log_probabilities(chances: Floats, clicks: Booleans) -> Floats:
    """Return the logarithm of the probability of what happened at each position."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.where(clicks, chances, 1.0 - chances)))


def probabilities(field: str, values: Any) -> tuple[float, ...]:
    """Return ``values`` as a tuple of at least one probability.

    Raises
    ------
    InvalidValue
        If it is none.
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.ndim != 1 or array.size == 0 or not ((array >= 0.0) & (array <= 1.0)).all():
        raise InvalidValue(field, values, "give a list of numbers in [0, 1]")
    return tuple(array.tolist())


def sessions(shown: Any, kinds: int | None = None) -> tuple[Ints, bool]:
    """Return ``shown`` as a table of kinds, and whether it was a single row.

    Raises
    ------
    InvalidValue
        If it is no such table or there is no such kind.
    """
    table = np.asarray(shown)
    if table.ndim not in (1, 2) or table.size == 0 or table.dtype.kind not in "iu":
        raise InvalidValue("shown", shown, "give whole numbers: a row of kinds for each session")
    most = np.iinfo(np.int64).max if kinds is None else kinds - 1
    wrong = table[(table < NOTHING) | (table > most)]
    if wrong.size:
        raise InvalidValue("shown", int(wrong[0]), f"kinds go from 0 to {most}, -1 is for none")
    return np.atleast_2d(table).astype(np.int64), table.ndim == 1


def log(shown: Any, clicks: Any, kinds: int | None = None) -> tuple[Ints, Booleans, bool]:
    """Return shown results and clicks as tables, and whether they were single rows.

    Raises
    ------
    InvalidValue
        If they are no such tables, there is no such kind, or there is a click on nothing.
    """
    table, single = sessions(shown, kinds)
    clicked = np.atleast_2d(np.asarray(clicks))
    if clicked.shape != table.shape or clicked.dtype.kind not in "biu":
        raise InvalidValue("clicks", clicks, f"give true or false in the shape {table.shape}")
    if not np.isin(clicked, (0, 1)).all():
        raise InvalidValue("clicks", clicks, "give true or false")
    clicked = clicked.astype(np.bool_)
    if (clicked & (table == NOTHING)).any():
        raise InvalidValue("clicks", clicks, "there can be no click where nothing was shown")
    return table, clicked, single


def by_kind(values: Sequence[float], shown: Ints, nothing: float) -> Floats:
    """Return each result's value by its kind, and ``nothing`` where none was shown."""
    return np.asarray([*values, nothing])[shown]
