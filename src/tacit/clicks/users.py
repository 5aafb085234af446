"""The simulated users of the literature on interleaving and online learning to rank."""

from __future__ import annotations

from tacit.clicks.models import DynamicBayesian
from tacit.core import checks
from tacit.errors import InvalidValue

# By the number of grades: the probability of a click, and of being done after one, per grade.
PERFECT = {
    2: ((0.0, 1.0), (0.0, 0.0)),
    3: ((0.0, 0.5, 1.0), (0.0, 0.0, 0.0)),
    5: ((0.0, 0.2, 0.4, 0.8, 1.0), (0.0, 0.0, 0.0, 0.0, 0.0)),
}
NAVIGATIONAL = {
    2: ((0.05, 0.95), (0.2, 0.9)),
    3: ((0.05, 0.5, 0.95), (0.2, 0.5, 0.9)),
    5: ((0.05, 0.3, 0.5, 0.7, 0.95), (0.2, 0.3, 0.5, 0.7, 0.9)),
}
INFORMATIONAL = {
    2: ((0.4, 0.9), (0.1, 0.5)),
    3: ((0.4, 0.7, 0.9), (0.1, 0.3, 0.5)),
    5: ((0.4, 0.6, 0.7, 0.8, 0.9), (0.1, 0.2, 0.3, 0.4, 0.5)),
}

Table = dict[int, tuple[tuple[float, ...], tuple[float, ...]]]


def _user(table: Table, grades: int) -> DynamicBayesian:
    if checks.integer("grades", grades, 2) not in table:
        raise InvalidValue("grades", grades, "there are users for 2, 3 and 5 grades")
    attraction, satisfaction = table[grades]
    return DynamicBayesian(attraction, satisfaction)


def perfect(grades: int = 5) -> DynamicBayesian:
    """Return a user who examines everything and clicks the better the likelier.

    Parameters
    ----------
    grades : {2, 3, 5}, default 5
        How many grades of relevance there are, from 0.

    Raises
    ------
    InvalidValue
        If there is no such user for so many grades.

    References
    ----------
    Hofmann, Whiteson, de Rijke (2011 and 2013) for 2 grades; Schuth et al. (2014) and others
    after them for 3 and 5. Some code lets this user stop after any click instead; here it never
    stops.

    Examples
    --------
    >>> perfect(3).click_probabilities([2, 0, 1])
    array([1. , 0. , 0.5])
    """
    return _user(PERFECT, grades)


def navigational(grades: int = 5) -> DynamicBayesian:
    """Return a user who looks for one good result, and is done with it.

    Parameters
    ----------
    grades : {2, 3, 5}, default 5
        How many grades of relevance there are, from 0.

    Raises
    ------
    InvalidValue
        If there is no such user for so many grades.

    References
    ----------
    As for :func:`perfect`.

    Examples
    --------
    >>> navigational(2).click_probabilities([1, 1]).round(4)
    array([0.95  , 0.1378])
    """
    return _user(NAVIGATIONAL, grades)


def informational(grades: int = 5) -> DynamicBayesian:
    """Return a user who reads around: many clicks, little difference between good and bad.

    Parameters
    ----------
    grades : {2, 3, 5}, default 5
        How many grades of relevance there are, from 0.

    Raises
    ------
    InvalidValue
        If there is no such user for so many grades.

    References
    ----------
    As for :func:`perfect`.

    Examples
    --------
    >>> informational(2).click_probabilities([1, 0]).round(3)
    array([0.9 , 0.22])
    """
    return _user(INFORMATIONAL, grades)
