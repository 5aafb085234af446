"""What is pinned: shown by every decision until a time, which the time of the decision decides."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.errors import InvalidValue
from tacit.learning.decisions import Arm
from tacit.service.log.clock import as_text
from tacit.service.log.impressions import Impression
from tacit.service.log.pins import Pin
from tacit.service.log.requests import PinArms
from tacit.service.log.rows import FROZEN, PINNED, PINNED_FROZEN
from tacit.service.placements.living import Living


class Pinned(Living):
    """Shows what is pinned, with propensity 1, where an impression offers it.

    What could not be shown is decided by the policy, as if nothing were pinned.
    """

    def check_pin(self, arms: Sequence[Arm]) -> list[Arm]:
        """Return arms that can be pinned, by the names that the placement has for them.

        Raises
        ------
        InvalidValue
            If an arm is not on offer, one is named twice, or there are too many.
        """
        if not self.kind.pinned:
            why = f"what is on offer at a placement of kind {self.kind.name!r} comes with requests"
            raise InvalidValue("placement", self.name, f"nothing can be pinned: {why}")
        most = self._most_pinned
        if not 0 < len(arms) <= most or len(set(arms)) < len(arms):
            some = "one arm" if most == 1 else f"1 to {most} arms, each once"
            raise InvalidValue("arms", list(arms), f"pin {some}")
        return self._named_pins(arms)

    @property
    def _most_pinned(self) -> int:
        return 1

    def _named_pins(self, arms: Sequence[Arm]) -> list[Arm]:
        offered = {str(arm): arm for arm in self.offer.arms}
        for arm in arms:
            if str(arm) not in offered:
                raise InvalidValue("arms", arm, f"on offer are {', '.join(offered)}")
        return [offered[str(arm)] for arm in arms]

    def pin_after(self, asked: PinArms, time: int) -> Pin | None:
        """Return what is pinned after a request at a time of the log; nothing is changed yet.

        Raises
        ------
        InvalidValue
            If that cannot be.
        """
        if not asked.arms:
            return None
        if asked.until <= time:
            remedy = f"give a time after that of the service, which is {as_text(time)}"
            raise InvalidValue("until", as_text(asked.until), remedy)
        return Pin(self.check_pin(asked.arms), asked.until)

    def pin_at(self, time: int) -> Pin | None:
        """Return what is pinned at a time."""
        return self.pin if self.pin is not None and time < self.pin.until else None

    def _pinned(self, told: Impression, time: int) -> tuple[Arm, ...] | None:
        """Return what is pinned for an impression; None where the policy decides."""
        pin = self.pin_at(time)
        if pin is None or not set(pin.arms) <= set(self._can_show(told)):
            return None
        return pin.shown

    def _can_show(self, told: Impression) -> Sequence[Arm]:
        """Return the arms that an impression offers."""
        return self.offer.arms if told.arms is None else told.arms

    @property
    def _mode_pinned(self) -> str:
        """How the log tells a decision that shows what is pinned."""
        return PINNED_FROZEN if self.mode == FROZEN else PINNED
