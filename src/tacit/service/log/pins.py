"""Pins: what a placement always shows until some time, whatever its policy would."""

from __future__ import annotations

import msgspec

from tacit.learning.decisions import Arm


class Pin(msgspec.Struct, frozen=True):
    """What is shown always, as a mark of the log holds it.

    Attributes
    ----------
    arms : list of arms
        One; of a list, those from the top.
    until : int
        From then on the policy decides again, in microseconds since 1970.
    """

    arms: list[int | str]
    until: int

    @property
    def shown(self) -> tuple[Arm, ...]:
        """The arms as a decision has them."""
        return tuple(self.arms)


def pin_text(pin: Pin | None) -> str:
    """Return a pin as a mark of the log holds it.

    Examples
    --------
    >>> pin_text(Pin(["a"], 5)), pin_text(None)
    ('{"arms":["a"],"until":5}', 'null')
    """
    return msgspec.json.encode(pin).decode()


def pin_of(text: str) -> Pin | None:
    """Return what :func:`pin_text` was given."""
    return msgspec.json.decode(text, type=Pin | None)
