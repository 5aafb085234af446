"""Arms that come and go: what a mark of the log says of them, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tacit.errors import ConfigError, InvalidValue
from tacit.learning.learner import Learner
from tacit.learning.offer import Offer
from tacit.service.config.holdout import OneArm
from tacit.service.config.validation import checked_as
from tacit.service.log.impressions import Impression, as_json
from tacit.service.log.requests import ChangeArms
from tacit.service.placements.state import State


class ArmsNow(msgspec.Struct, frozen=True):
    """All arms, as a mark of the log holds them.

    Attributes
    ----------
    arms : int or list of str
        In the order of their slots.
    retired : list of arms
    """

    arms: int | list[str]
    retired: list[int | str]


class Living(State):
    """Lets arms come and go.

    The log says "all arms" of a decision only where these are the ones that the placement began
    with. Once they have changed, each decision says which arms were on offer.
    """

    @property
    def offer(self) -> Offer:
        """The arms, and which of them are on offer."""
        return self.learner.batch.offer

    @property
    def arms_now(self) -> str:
        """All arms, as a mark of the log holds them."""
        return _encoded(self.offer)

    def arms_after(self, change: ChangeArms) -> str:
        """Return what :attr:`arms_now` is after a change; nothing is changed yet.

        Raises
        ------
        InvalidValue, UnknownName
            If an arm that is to come is there already, another one is not, one is named twice, or
            none would be on offer; or arms of this placement cannot change.
        """
        self.check_living()
        gone = [*change.retire, *change.restore]
        for field, arms in (("retire", change.retire), ("restore", gone)):
            if len(set(arms)) < len(arms):
                raise InvalidValue(field, arms, "name each arm once")
        offer = self.offer
        if change.add:
            _, offer = checked_as("add", offer.with_new, change.add)
        offer = checked_as("restore", offer.restored, change.restore)
        offer = checked_as("retire", offer.without, change.retire)
        holdout = self.config.holdout
        if holdout is not None and isinstance(holdout.control, OneArm):
            arm = holdout.control.arm
            if arm in change.retire:
                raise InvalidValue("retire", arm, "the control of the holdout shows it")
        for learner in self._learners:
            checked_as("add", learner.policy.with_arms, offer.all)
        return _encoded(offer)

    def check_living(self) -> None:
        """Check that arms of this placement can come and go.

        Raises
        ------
        InvalidValue
            If not.
        """
        why = None
        if not self.kind.living:
            why = f"arms of kind {self.kind.name!r} come with each request"
        elif self.signals is not None:
            why = "its signals count the arms that it began with"
        elif self.config.spread:
            why = "its keys are spread over shards"
        if why is not None:
            raise InvalidValue("placement", self.name, f"its arms cannot change: {why}")

    def _arms_changed(self, now: str, seq: int, time: int) -> None:
        """Go on with the arms of a mark."""
        try:
            self.check_living()
        except InvalidValue as error:
            raise ConfigError(
                f"placements.{self.name}: its arms have changed, but {error.allowed}; set its "
                "configuration back"
            ) from error
        arms = msgspec.json.decode(now, type=ArmsNow)
        for learner in self._learners:
            fit(learner, arms)
        self._wholes.append(as_json(self.learner.arms) or "")
        self._name_arms()
        self.series.reach(self._layers)
        self.lift.begin_with(len(self._slots), len(self.learner.arms), seq, time)

    @property
    def _learners(self) -> list[Learner]:
        return [self.learner] if self.shadow is None else [self.learner, self.shadow]

    def check_offered(self, impressions: Sequence[Impression]) -> None:
        """Check that the arms which impressions name are on offer still.

        Raises
        ------
        InvalidValue, UnknownName
            If one was retired since it was asked for.
        """
        if self._wholes:
            for told in impressions:
                if told.arms is not None:
                    self.offer.slots_of(told.arms)


def fit(learner: Learner, now: ArmsNow) -> None:
    """Let a learner have these arms, which are its own and perhaps more."""
    known = len(learner.batch.offer.names)
    new: Any = now.arms - known if isinstance(now.arms, int) else now.arms[known:]
    if new:
        learner.add_arms(new)
    before = set(learner.retired)
    learner.restore_arms([arm for arm in before if arm not in now.retired])
    learner.retire_arms([arm for arm in now.retired if arm not in before])


def _encoded(offer: Offer) -> str:
    arms: Any = offer.all if isinstance(offer.all, int) else list(offer.names)
    return msgspec.json.encode(ArmsNow(arms, offer.retired)).decode()
