"""What a placement may show just now: arms that come and go, and pins until a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tacit.errors import ConfigError, InvalidValue, TacitError
from tacit.learning.decisions import Arm
from tacit.learning.lanes import Offer
from tacit.learning.learner import Learner
from tacit.service.config.file import checked_as
from tacit.service.config.holdout import UNIFORM
from tacit.service.log.ids import as_text, as_time
from tacit.service.log.marks import Pin
from tacit.service.log.requests import Impression, Made, as_json
from tacit.service.log.rows import FROZEN, PINNED, PINNED_FROZEN
from tacit.service.placements.chapters import holdout_in
from tacit.service.placements.state import State
from tacit.wire.control import ArmsOf, PinOf

# ---- Arms that come and go: what a mark of the log says of them, and what follows from it


class LoggedArms(msgspec.Struct, frozen=True, omit_defaults=True):
    """All arms, as a mark of the log holds them.

    Attributes
    ----------
    arms : int or list of str
        In the order of their slots.
    retired : list of arms
    configured : int, list of str, or None
        Those that the configuration named when it last changed any; None if it never did.
    changes : int
        How many changes there were by then, so that shards know what is news.
    """

    arms: int | list[str]
    retired: list[int | str]
    configured: int | list[str] | None = None
    changes: int = 0


class ConfiguredArms(ArmsOf, frozen=True):
    """A change of arms that the configuration makes.

    Attributes
    ----------
    configured : int, sequence of str, or None
        The arms that it names.
    """

    configured: int | Sequence[str] | None = None


class Living(State):
    """Lets arms come and go.

    The log says "all arms" of a decision only where these are the ones that the placement began
    with. Once they have changed, each decision says which arms were on offer.

    Attributes
    ----------
    arms_now : LoggedArms
        As the last change left them.
    """

    def _begin(self) -> None:
        super()._begin()
        self.arms_now = self._arms_known()

    def _arms_known(self) -> LoggedArms:
        """Return the arms of the learner."""
        return LoggedArms(_listed(self.offer.all), self.offer.retired)

    @property
    def offer(self) -> Offer:
        """The arms, and which of them are on offer."""
        return self.learner.offer

    @property
    def first_arms(self) -> list[Arm]:
        """The arms that it began with."""
        return self.arms[: len(self._all)]

    # Changes ---------------------------------------------------------------------------------

    def arms_after(self, change: ArmsOf) -> LoggedArms:
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
        # The configuration may change the holdout in the same moment.
        configured: Any = change.configured if isinstance(change, ConfiguredArms) else None
        holdout = self.holdout if configured is None else holdout_in(self.lift_terms)
        if holdout is not None and holdout.arm is not None and holdout.arm in change.retire:
            raise InvalidValue("retire", holdout.arm, "the control of the holdout shows it")
        for learner in self._learners:
            checked_as("add", learner.policy.with_arms, offer.all)
        if configured is None:
            configured = self.arms_now.configured
        now = self.arms_now
        after = LoggedArms(_listed(offer.all), offer.retired, _listed(configured), now.changes)
        # What changes nothing is no event.
        return now if after == now else msgspec.structs.replace(after, changes=now.changes + 1)

    @property
    def configured_change(self) -> ConfiguredArms | None:
        """What the configuration changes: it names other arms than it did before.

        An arm that it names no longer is retired; one that it names anew comes, or comes back.
        What others did to the arms that it has always named, or never, stays, unless no arm would
        be on offer.
        """
        configured, before = self.config.configured_arms, self.arms_now.configured
        if before is None:
            before = _listed(self.config.policy.arms)
        named, known = set(_each(configured)), set(_each(before))
        if named == known:
            return None
        add: Any = [arm for arm in _each(configured) if arm not in self._slots]
        gone = [arm for arm in self.offer.arms if arm in known - named]
        # Where nothing would be on offer, all that it names comes back.
        empty = not add and len(gone) == len(self.offer.arms)
        back = [arm for arm in self.offer.retired if arm in (named if empty else named - known)]
        if isinstance(configured, int):
            add = len(add)
        return ConfiguredArms(add, gone, back, configured)

    def check_configured(self) -> None:
        """Check that the arms can be those that are configured.

        Raises
        ------
        ConfigError
            If they cannot.
        """
        change = self.configured_change
        try:
            if change is not None:
                self.arms_after(change)
        except TacitError as error:
            raise ConfigError(
                f"placements.{self.name}: its arms cannot become those that are configured: "
                f"{error}; set them back to what they were"
            ) from error

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
        if why is not None:
            raise InvalidValue("placement", self.name, f"its arms cannot change: {why}")

    def have_arms(self, now: str, time: int) -> None:
        """Have the arms of a mark in another log, unless these are known."""
        if self.lacks_arms(now):
            self._arms_changed(now, 0, time)

    def lacks_arms(self, now: str) -> bool:
        """Whether a mark tells of a change that is not known here."""
        return decoded(now).changes > self.arms_now.changes

    def _arms_changed(self, now: str, seq: int, time: int) -> None:
        """Go on with the arms of a mark."""
        try:
            self.check_living()
        except InvalidValue as error:
            raise ConfigError(
                f"placements.{self.name}: its arms have changed, but {error.allowed}; set its "
                "configuration back"
            ) from error
        before, self.arms_now = self.arms_now, decoded(now)
        if (before.arms, before.retired) == (self.arms_now.arms, self.arms_now.retired):
            return
        shown = self._control_shows
        for learner in self._learners:
            fit(learner, self.arms_now)
        self._wholes.append(as_json(self.learner.arms) or "")
        self._reach_arms()
        self.series.reach(self._layers)
        counts = len(self._slots), len(self.learner.arms)
        self._lift.arms_changed(*counts, seq, time, control=shown != self._control_shows)

    @property
    def _control_shows(self) -> list[int] | None:
        """What the control shows where all arms are on offer; None where it draws, or learns."""
        if self.coin is None or self.two or self.coin.config.control == UNIFORM:
            return None
        return self.coin.control.shown(self.offer.slots, 0).tolist()  # type: ignore[no-any-return]

    def _reach_arms(self) -> None:
        """Let all that is kept for each arm have the arms of the learner."""
        self._name_arms()
        if self.signals is not None:
            self.signals.reach(len(self.arms))
        if self.shared is not None:
            self.shared.reach(self.learner.policy)

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
            for impression in impressions:
                if impression.arms is not None and not isinstance(impression.given, Made):
                    self.offer.slots_of(impression.arms)


def encoded(now: LoggedArms) -> str:
    """Return all arms as the value of a mark."""
    return msgspec.json.encode(now).decode()


def decoded(mark: str) -> LoggedArms:
    """Return all arms from the value of a mark."""
    return msgspec.json.decode(mark, type=LoggedArms)


def fit(learner: Learner, now: LoggedArms) -> None:
    """Let a learner have these arms, which are its own and perhaps more."""
    known = len(learner.offer.names)
    new: Any = now.arms - known if isinstance(now.arms, int) else now.arms[known:]
    if new:
        learner.add_arms(new)
    before = set(learner.retired)
    learner.restore_arms([arm for arm in before if arm not in now.retired])
    learner.retire_arms([arm for arm in now.retired if arm not in before])


def _listed(arms: Any) -> Any:
    """Return arms as a mark holds them: a number, a list, or None."""
    return arms if arms is None or isinstance(arms, int) else list(arms)


def _each(arms: Any) -> Sequence[Arm]:
    return range(arms) if isinstance(arms, int) else arms or ()


# ---- What is pinned: shown by every decision until a time, which the time of the decision decides


class Pinning(Living):
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

    def pin_after(self, asked: PinOf, time: int) -> Pin:
        """Return what is pinned after a request at a time of the log; nothing is changed yet.

        Raises
        ------
        InvalidValue
            If that cannot be.
        """
        until = as_time("until", asked.until)
        if until <= time:
            remedy = f"give a time after that of the service, which is {as_text(time)}"
            raise InvalidValue("until", as_text(until), remedy)
        return Pin(self.check_pin(asked.arms), until)

    def pin_at(self, time: int) -> Pin | None:
        """Return what is pinned at a time."""
        return self.pin if self.pin is not None and time < self.pin.until else None

    def _pinned(self, impression: Impression, time: int) -> tuple[Arm, ...] | None:
        """Return what is pinned for an impression; None where the policy decides."""
        pin = self.pin_at(time)
        if pin is None or not set(pin.arms) <= set(self._can_show(impression)):
            return None
        return pin.shown

    def _can_show(self, impression: Impression) -> Sequence[Arm]:
        """Return the arms that an impression offers."""
        return self.offer.arms if impression.arms is None else impression.arms

    @property
    def _mode_pinned(self) -> str:
        """How the log tells a decision that shows what is pinned."""
        return PINNED_FROZEN if self.mode == FROZEN else PINNED
