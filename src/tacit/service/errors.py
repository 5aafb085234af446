"""Errors of the service, besides invalid values."""

from __future__ import annotations

from tacit.errors import ConfigError, TacitError


class StoreError(TacitError):
    """The store cannot be opened, read or written; the message names the store and the remedy."""


class NoStore(StoreError):
    """There is no store at this place."""


class InUse(StoreError):
    """The store is in use by another process."""


class Fenced(StoreError):
    """Another process has taken over the store."""


class Damaged(StoreError):
    """The store's data is damaged: what was read is not what was written."""


class Refused(StoreError):
    """The store refuses the data itself; trying again does not help."""


class AddressUnavailable(ConfigError):
    """The address cannot be listened on at present, but perhaps later."""


class NotDurable(TacitError):
    """The service cannot commit to its store at present, so it acknowledges no request; try again."""


class UnknownDecision(TacitError, LookupError):
    """Feedback for a decision that the placement never made."""


class RepeatedFeedback(TacitError):
    """The decision has had too much feedback to be plausible."""


class Busy(TacitError):
    """The request would take too many resources at present; try again later."""


class Overloaded(TacitError):
    """The request would take more memory than the configuration allows; try again later."""


class Forbidden(TacitError):
    """The key does not allow the request."""


class InConflict(TacitError):
    """The id is already in use for another request."""
