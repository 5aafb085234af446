"""What the service says no to, as errors that name the field, the value and the remedy."""

from __future__ import annotations

from typing import Any

from tacit.errors import TacitError

LONGEST_SHOWN = 200


class ServiceError(TacitError):
    """The service did not do what it was asked; its subclasses say what to do about it.

    Parameters
    ----------
    field : str
        What was wrong: ``reward``, ``decisions[1].arms``, ``placement``, ``store``, ``url`` …
    value : object
        What was given for it; None where it is unknown or secret.
    what : str
        What is wrong with it, and after the last semicolon the remedy.
    kind : str
        The end of the problem's type: ``conflict``, ``unknown-decision`` …; ``no-answer`` if there
        was none, ``foreign`` if the answer is not one of the service.
    status : int or None
        The HTTP status, if there was one.

    Examples
    --------
    >>> error = Conflict("feedback_id", "f", "'f' stands for other feedback; send the same")
    >>> print(error)
    feedback_id: 'f' stands for other feedback; send the same
    >>> error.remedy
    'send the same'
    """

    def __init__(self, field: str, value: Any, what: str, kind: str = "", status: int | None = None) -> None:
        shown = repr(value)
        if len(shown) > LONGEST_SHOWN:
            shown = shown[: LONGEST_SHOWN - 3] + "..."
        given = "" if value is None or shown in what else f" (given: {shown})"
        super().__init__(f"{field}: {what}{given}")
        self.field = field
        self.value = value
        self.what = what
        self.remedy = what.rpartition("; ")[2]
        self.kind = kind
        self.status = status

    def __reduce__(self) -> tuple[type[ServiceError], tuple[Any, ...]]:
        return type(self), (self.field, self.value, self.what, self.kind, self.status)


class InvalidRequest(ServiceError, ValueError):
    """A value is missing, unknown or outside what its field allows: ask otherwise."""


class NotFound(ServiceError, LookupError):
    """There is no such placement, or the placement never made this decision."""


class Conflict(ServiceError):
    """The id stands for something else, or the decision has had all the feedback it can have."""


class Denied(ServiceError):
    """The key is missing, unknown, or for something else."""


class Unavailable(ServiceError):
    """The service gave no answer, or could not do it now, however often it was asked.

    Whether it took effect may be unknown. Asking again with the same ids is safe.
    """


def error_for(status: int) -> type[ServiceError]:
    """Return the error that stands for a status.

    Examples
    --------
    >>> [error_for(status).__name__ for status in (301, 403, 404, 409, 422, 429, 503)]
    ['ServiceError', 'Denied', 'NotFound', 'Conflict', 'InvalidRequest', 'Unavailable',
     'Unavailable']
    """
    match status:
        case 401 | 403:
            return Denied
        case 404:
            return NotFound
        case 409:
            return Conflict
        case 408 | 429:
            return Unavailable
    if status >= 500:
        return Unavailable
    return InvalidRequest if status >= 400 else ServiceError
