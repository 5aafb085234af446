"""Arm lifecycle: add, retire and restore arms of a placement; arm indices and the current offer."""

# 1. ``LoggedArms``: all arms, as a change event holds them.
# 2. ``ArmLifecycle``: permanent arm indices; the offer; the meaning of old rows without an offer.
# 3. The verb that changes arms, and its answer.

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import replace

from tacit.core.arrays import Ints
from tacit.errors import ConfigError, InvalidValue, TacitError
from tacit.learning.decisions import Arm
from tacit.learning.lanes import Offer
from tacit.learning.learner import Learner
from tacit.service.config.file import checked_as
from tacit.service.config.holdout import whose_draws
from tacit.service.log.requests import Impression, Made, as_json
from tacit.service.log.rows import ARMS, MarkRow, text_of
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Effect, Note, Saved
from tacit.service.placements.aspects.lift_periods import holdout_in
from tacit.wire import control as wire

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement

DONE = {"add": "added", "retire": "retired", "restore": "restored"}

# ---- Arms as change events hold them


class LoggedArms(msgspec.Struct, frozen=True, omit_defaults=True):
    """All arms, as a change event of the log holds them.

    Attributes
    ----------
    arms : int or list of str
        In the order of their indices.
    retired : list of arms
    configured : int, list of str, or None
        Configured arms at the configuration's last change; None without one.
    changes : int
        Number of changes so far, by which shards recognize new ones.
    suspended : dict of arm to float
        Promised shares of retired arms.
    """

    arms: int | list[str]
    retired: list[int | str]
    configured: int | list[str] | None = None
    changes: int = 0
    suspended: dict[str, float] = {}


class ConfiguredArms(wire.ArmsOf, frozen=True):
    """A change of arms by the configuration.

    Attributes
    ----------
    configured : int, sequence of str, or None
        Arms of the configuration.
    """

    configured: int | Sequence[str] | None = None


class Living(Aspect):
    """The arms of a placement, their indices, and the current offer.

    Until the arms change, decisions in the log hold no offer, which means all initial arms. After a change,
    each decision holds its offer.

    Parameters
    ----------
    learner : Learner
        Learner of the placement.

    Attributes
    ----------
    offer : Offer
        Arms of the learner, and the current offer.
    names : list of arms
        All arms in the order of their indices, with retired ones.
    arm_indices : dict
        Index of each arm.
    initial_indices : array of int64
        Indices of the arms that the placement began with.
    full_offers : list of str
        All full offers since the first change of arms, as the log holds them.
    logged_arms : LoggedArms
        Arms after the last change.
    """

    mark = ARMS

    def __init__(self, learner: Learner) -> None:
        self._name(learner)
        self.first = learner.offer.slots
        self.wholes: list[str] = []
        self.now = _known(learner)

    def _name(self, learner: Learner) -> None:
        self.offer = learner.offer
        self.names: list[Arm] = list(learner.offer.names)
        self.slots = {arm: slot for slot, arm in enumerate(self.names)}
        self._alone = {arm: np.array([slot]) for arm, slot in self.slots.items()}

    def arms_named(self, placement: Placement) -> None:
        """Load the learner's current arms."""
        self._name(placement.learner)

    def marked(self, placement: Placement, mark: MarkRow) -> None:
        """Apply the arms of a change event."""
        placement.since_snapshot += 1
        self._become(placement, mark.value, mark.seq, mark.time)

    def current(self, placement: Placement) -> str:
        """Return the arms as the value of a change event."""
        return text_of(self.now)

    def is_news(self, placement: Placement, value: str) -> bool:
        """True if the change event has a change of arms that is unknown here."""
        return decoded(value).changes > self.now.changes

    @staticmethod
    def change(mark: MarkRow, before: MarkRow | None, arms: Sequence[Arm]) -> Note:
        """Return the arms that a change event added, retired and restored, by the names of its request."""
        now = decoded(mark.value)
        then = LoggedArms(_listed(arms), []) if before is None else decoded(before.value)
        known, was_gone = len(_each(then.arms)), set(then.retired)
        names, gone = _each(now.arms), set(now.retired)
        suspended = {arm: share for arm, share in now.suspended.items() if arm not in then.suspended}
        return ARMS, {
            "add": list(names[known:]),
            "retire": [arm for arm in names if arm in gone - was_gone],
            "restore": [arm for arm in names if arm in was_gone - gone],
        } | ({"suspended": suspended} if suspended else {})

    @staticmethod
    def words(detail: dict[str, Any], clock: Callable[[str], str]) -> str:
        """Format added, retired and restored arms as text."""
        said = [
            f"arm{'s' if len(detail[key]) > 1 else ''} {done}: {', '.join(map(str, detail[key]))}"
            for key, done in DONE.items()
            if detail.get(key)
        ]
        shares = [f"{arm} {share:.3g}" for arm, share in detail.get("suspended", {}).items()]
        return "; ".join(said + ["promised shares suspended: " + ", ".join(shares)] * bool(shares))

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return the aspect's fields of a snapshot."""
        return {"offers": list(self.wholes), "arms": self.now if self.now.changes else None}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Restore the arms from a snapshot, after the placement's learner."""
        arms = saved.arms
        self.now = _known(placement.learner) if arms is None else msgspec.convert(arms, LoggedArms)
        self.wholes = saved.offers

    def summary(self, placement: Placement, now: int) -> dict[str, Any]:
        """Return the arms on offer and the retired arms."""
        return {"arms": self.offer.arms, "retired": self.offer.retired}

    # Arm indices -----------------------------------------------------------------------------

    def slots_of(self, offered: Sequence[Arm] | None) -> Ints:
        """Return the indices of arms; None stands for the initial arms, as in the log."""
        if offered is None:
            return self.first
        return np.array([self.slots[arm] for arm in offered], np.int64)

    def slots_asked(self, offered: Sequence[Arm] | None) -> Ints:
        """Return the indices of the arms on offer to a request, as the log will hold them."""
        return self.offer.slots if offered is None and self.wholes else self.slots_of(offered)

    def slot_of(self, arm: Arm) -> Ints:
        """Return the index of an arm, as an array of length one."""
        return self._alone[arm]

    def as_offered(self, arms: list[Any]) -> list[str | None]:
        """Format the offers of requests for the log."""
        offers = listed_as_json(arms)
        if not self.wholes:
            return offers
        return [self.wholes[-1] if offer is None else offer for offer in offers]

    def named(self, arms: Sequence[Arm]) -> list[Arm]:
        """Check arms of a request, which may have been retired since it first came.

        Raises
        ------
        InvalidValue, UnknownName
            If one never existed or is named twice.
        """
        known = Offer(self.offer.all) if self.offer.retired and self.slots.keys() >= {*arms} else self.offer
        return [self.names[slot] for slot in known.slots_of(arms).tolist()]

    @property
    def began_with(self) -> list[Arm]:
        """The arms that the placement began with."""
        return self.names[: len(self.first)]

    # Changes ---------------------------------------------------------------------------------

    def after(self, placement: Placement, change: wire.ArmsOf) -> LoggedArms:
        """Return :attr:`logged_arms` after a change; changes nothing.

        Raises
        ------
        InvalidValue, UnknownName
            If an added arm exists, another arm does not, one is named twice, or no arm would be on
            offer; or arms of this placement cannot change.
        """
        check_living(placement)
        offer = _after(self.offer, change)
        # The configuration may change the holdout at the same time.
        configured: Any = change.configured if isinstance(change, ConfiguredArms) else None
        holdout = placement.holdout if configured is None else holdout_in(placement.lift_terms)
        if holdout is not None and holdout.arm is not None and holdout.arm in change.retire:
            raise InvalidValue("retire", holdout.arm, "the control of the holdout shows it")
        if placement.guardrail is not None and placement.guardrail.against in change.retire:
            remedy = "the guardrail holds the others against it; configure another one first (against)"
            raise InvalidValue("retire", placement.guardrail.against, remedy)
        for learner in placement.learners:
            checked_as("add", learner.policy.with_arms, offer.all)
        if configured is None:
            # The configuration has already been checked.
            self._check_weighed(placement, change.add, offer)
            configured = self.now.configured
        now = self.now
        kept = now.changes, now.suspended
        after = LoggedArms(_listed(offer.all), offer.retired, _listed(configured), *kept)
        # Without a difference there is no change event.
        suspended, changes = _suspended(placement, offer.retired), now.changes + 1
        return now if after == now else replace(after, changes=changes, suspended=suspended)

    @staticmethod
    def _check_weighed(placement: Placement, add: Any, offer: Offer) -> None:
        """Check that the guardrail can compare arms that are added."""
        if not add or placement.guardrail is None or placement.holdout is not None:
            return
        if not whose_draws(placement.learner.policy.with_arms(offer.all)).randomized:
            remedy = "the guardrail cannot weigh what is promised no share; configure them, with at_least"
            raise InvalidValue("add", add, remedy)

    def configured_change(self, placement: Placement) -> ConfiguredArms | None:
        """Return the change of arms in the configuration, or None.

        Arms that the configuration no longer names are retired; arms that it newly names are added or
        restored. Requests' changes of other arms stay, unless no arm would be on offer.
        """
        config = placement.config
        configured, before = config.configured_arms, self.now.configured
        if before is None:
            before = _listed(config.policy.arms)
        named, known = set(_each(configured)), set(_each(before))
        if named == known:
            return None
        add: Any = [arm for arm in _each(configured) if arm not in self.slots]
        gone = [arm for arm in self.offer.arms if arm in known - named]
        # If no arm would be on offer, all configured arms are restored.
        empty = not add and len(gone) == len(self.offer.arms)
        back = [arm for arm in self.offer.retired if arm in (named if empty else named - known)]
        if isinstance(configured, int):
            add = len(add)
        return ConfiguredArms(add, gone, back, configured)

    def check_configured(self, placement: Placement) -> None:
        """Check that the arms can become the configured ones.

        Raises
        ------
        ConfigError
            If the change is impossible.
        """
        change = self.configured_change(placement)
        try:
            if change is not None:
                self.after(placement, change)
        except TacitError as error:
            raise ConfigError(
                f"placements.{placement.name}: its arms cannot become those that are configured: "
                f"{error}; set them back to what they were"
            ) from error

    def have(self, placement: Placement, now: str, time: int) -> None:
        """Adopt the arms of another log's change event, unless they are known."""
        if self.is_news(placement, now):
            self._become(placement, now, 0, time)

    def _become(self, placement: Placement, now: str, seq: int, time: int) -> None:
        """Apply the arms of a change event."""
        try:
            check_living(placement)
        except InvalidValue as error:
            raise ConfigError(
                f"placements.{placement.name}: its arms have changed, but {error.allowed}; set its "
                "configuration back"
            ) from error
        before, self.now = self.now, decoded(now)
        if (before.arms, before.retired) == (self.now.arms, self.now.retired):
            return
        shown = placement.control_shows
        for learner in placement.learners:
            fit(learner, self.now)
        self.wholes.append(as_json(placement.learner.arms) or "")
        placement.name_arms()
        placement.series.reach(placement.layers)
        counts = len(self.slots), len(placement.learner.arms)
        placement.lift.arms_changed(*counts, seq, time, control=shown != placement.control_shows)

    def check_offered(self, impressions: Sequence[Impression]) -> None:
        """Check that the arms named by impressions are still on offer.

        Raises
        ------
        InvalidValue, UnknownName
            If one was retired after the request came.
        """
        if self.wholes:
            for impression in impressions:
                if impression.arms is not None and not isinstance(impression.given, Made):
                    self.offer.slots_of(impression.arms)


def check_living(placement: Placement) -> None:
    """Check that arms of a placement can change.

    Raises
    ------
    InvalidValue
        If they cannot.
    """
    if not placement.kind.living:
        why = f"its arms cannot change: arms of kind {placement.kind.name!r} come with each request"
        raise InvalidValue("placement", placement.name, why)


def _after(offer: Offer, change: wire.ArmsOf) -> Offer:
    """Return the offer after a change."""
    gone = [*change.retire, *change.restore]
    for field, arms in (("retire", change.retire), ("restore", gone)):
        if len(set(arms)) < len(arms):
            raise InvalidValue(field, arms, "name each arm once")
    if change.add:
        _, offer = checked_as("add", offer.with_new, change.add)
    offer = checked_as("restore", offer.restored, change.restore)
    after: Offer = checked_as("retire", offer.without, change.retire)
    return after


def _suspended(placement: Placement, retired: Sequence[Arm]) -> dict[str, float]:
    """Return the promised shares of retired arms."""
    shares = dict(getattr(placement.config.policy, "at_least", ()))
    return {str(arm): shares[arm] for arm in retired if arm in shares}


def _known(learner: Learner) -> LoggedArms:
    """Return the arms of a learner."""
    return LoggedArms(_listed(learner.offer.all), learner.offer.retired)


def decoded(mark: str) -> LoggedArms:
    """Parse the value of a change event."""
    return msgspec.json.decode(mark, type=LoggedArms)


def fit(learner: Learner, now: LoggedArms) -> None:
    """Add, restore and retire arms of a learner until they match the logged arms."""
    if now.arms is None:  # they come with requests
        return
    known = len(learner.offer.names)
    new: Any = now.arms - known if isinstance(now.arms, int) else now.arms[known:]
    if new:
        learner.add_arms(new)
    before = set(learner.retired)
    learner.restore_arms([arm for arm in before if arm not in now.retired])
    learner.retire_arms([arm for arm in now.retired if arm not in before])


def _listed(arms: Any) -> Any:
    """Convert arms to a number, a list or None, as change events hold them."""
    return arms if arms is None or isinstance(arms, int) else list(arms)


def _each(arms: Any) -> Sequence[Arm]:
    return range(arms) if isinstance(arms, int) else arms or ()


def listed_as_json(values: list[Any]) -> list[str | None]:
    """Convert lists to JSON text for the log; fast if all are None."""
    return values if values.count(None) == len(values) else list(map(as_json, values))


# ---- The verbs that change them


def _change(placement: Placement, asked: wire.ArmsOf, time: int) -> str:
    return text_of(placement.living.after(placement, asked))


def _now(placement: Placement, time: int) -> wire.ArmsNow:
    offer = placement.living.offer
    return wire.ArmsNow(offer.arms, offer.retired, _suspended(placement, offer.retired))


Living.changes = {
    wire.ArmsOf: Effect(ARMS, _change, _now, leads=True),
    ConfiguredArms: Effect(ARMS, _change, _now),
}
