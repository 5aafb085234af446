"""What can go wrong in the service beyond a wrong value."""

from __future__ import annotations

from tacit.errors import ConfigError, TacitError


class StoreError(TacitError):
    """A store that cannot be opened, read or written; the message names it and the remedy."""


class InUse(StoreError):
    """The store belongs to another process."""


class Fenced(StoreError):
    """The store has another owner by now."""


class Damaged(StoreError):
    """What was read is not what was written."""


class Refused(StoreError):
    """What the store does not take, however well it is: it is about the data."""


class AddressUnavailable(ConfigError):
    """An address that cannot be listened on at present, but perhaps later."""


class NotDurable(TacitError):
    """Nothing can be made durable at present, so nothing is acknowledged; try again."""


class UnknownDecision(TacitError, LookupError):
    """Feedback for a decision that the placement never made."""


class RepeatedFeedback(TacitError):
    """More feedback for one decision than anybody can have."""


class Busy(TacitError):
    """What was asked for would take too much for now; ask again later."""


class Overloaded(TacitError):
    """What would take more memory than the configuration allows; ask again when less is held."""


class Forbidden(TacitError):
    """A key that is not for what it was sent for."""


class InConflict(TacitError):
    """An id that stands for something else already."""
