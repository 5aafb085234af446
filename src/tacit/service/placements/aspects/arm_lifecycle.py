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
from tacit.service.config.file import check_field
from tacit.service.config.holdout import get_drawing_policy
from tacit.service.log.requests import ClientDecision, Impression, as_json
from tacit.service.log.rows import ARMS, ChangeRow, encode_json
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Effect, Note, SavedState
from tacit.service.placements.aspects.lift_periods import parse_holdout
from tacit.wire import control as wire

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement

PAST_TENSES = {"add": "added", "retire": "retired", "restore": "restored"}

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


class ArmLifecycle(Aspect):
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

    change_kind = ARMS

    def __init__(self, learner: Learner) -> None:
        """Begin with the learner's arms and offer; nothing is changed yet."""
        self._load_offer(learner)
        self.initial_indices = learner.offer.arm_indices
        self.full_offers: list[str] = []
        self.logged_arms = _get_logged_arms(learner)

    def _load_offer(self, learner: Learner) -> None:
        """Copy the learner's offer, and rebuild names and indices of arms from it."""
        self.offer = learner.offer
        self.names: list[Arm] = list(learner.offer.names)
        self.arm_indices = {arm: index for index, arm in enumerate(self.names)}
        self._index_arrays = {arm: np.array([index]) for arm, index in self.arm_indices.items()}

    def update_arms(self, placement: Placement) -> None:
        """Load the current offer, names and indices from the placement's learner."""
        self._load_offer(placement.learner)

    def apply_change(self, placement: Placement, change: ChangeRow) -> None:
        """Apply a change event to the arms of learners, aspects, series and lift.

        It counts as one event towards the next snapshot.
        """
        placement.since_snapshot += 1
        self._apply_arms(placement, change.value, change.seq, change.time)

    def current(self, placement: Placement) -> str:
        """Return the current arms as the JSON value of a change event."""
        return encode_json(self.logged_arms)

    def is_change(self, placement: Placement, value: str) -> bool:
        """True if the change event has a higher number of changes than the last one that was applied."""
        return parse_arms(value).changes > self.logged_arms.changes

    @staticmethod
    def parse_change(change: ChangeRow, previous: ChangeRow | None, initial_arms: Sequence[Arm]) -> Note:
        """Return ("arms", {"add": …, "retire": …, "restore": …}): arms that differ from the previous event's.

        The detail "suspended" has promised shares of retired arms, if there are new ones.
        """
        now = parse_arms(change.value)
        then = LoggedArms(_to_logged(initial_arms), []) if previous is None else parse_arms(previous.value)
        old_count, was_retired = len(_iterate_arms(then.arms)), set(then.retired)
        names, retired = _iterate_arms(now.arms), set(now.retired)
        suspended = {arm: share for arm, share in now.suspended.items() if arm not in then.suspended}
        return ARMS, {
            "add": list(names[old_count:]),
            "retire": [arm for arm in names if arm in retired - was_retired],
            "restore": [arm for arm in names if arm in was_retired - retired],
        } | ({"suspended": suspended} if suspended else {})

    @staticmethod
    def format_change(detail: dict[str, Any], clock: Callable[[str], str]) -> str:
        """Format added, retired and restored arms, and suspended shares, as text such as "arm added: a"."""
        texts = [
            f"arm{'s' if len(detail[key]) > 1 else ''} {done}: {', '.join(map(str, detail[key]))}"
            for key, done in PAST_TENSES.items()
            if detail.get(key)
        ]
        shares = [f"{arm} {share:.3g}" for arm, share in detail.get("suspended", {}).items()]
        return "; ".join(texts + ["promised shares suspended: " + ", ".join(shares)] * bool(shares))

    def save_state(self, placement: Placement) -> dict[str, Any]:
        """Return the snapshot's fields: full offers so far, and the logged arms (None if never changed)."""
        return {
            "offers": list(self.full_offers),
            "arms": self.logged_arms if self.logged_arms.changes else None,
        }

    def restore(self, placement: Placement, saved: SavedState, snapshot: Snapshot) -> None:
        """Set logged arms and full offers from a snapshot; the learner must be restored before."""
        arms = saved.arms
        self.logged_arms = (
            _get_logged_arms(placement.learner) if arms is None else msgspec.convert(arms, LoggedArms)
        )
        self.full_offers = saved.offers

    def summary(self, placement: Placement, now: int) -> dict[str, Any]:
        """Return {"arms": arms on offer, "retired": retired arms}."""
        return {"arms": self.offer.arms, "retired": self.offer.retired}

    # Arm indices -----------------------------------------------------------------------------

    def get_indices(self, offered: Sequence[Arm] | None) -> Ints:
        """Return the indices of the named arms; None stands for the initial arms, as in the log."""
        if offered is None:
            return self.initial_indices
        return np.array([self.arm_indices[arm] for arm in offered], np.int64)

    def get_offer_indices(self, offered: Sequence[Arm] | None) -> Ints:
        """Return the indices of the arms on offer to a request; None stands for the current full offer."""
        return self.offer.arm_indices if offered is None and self.full_offers else self.get_indices(offered)

    def get_index_array(self, arm: Arm) -> Ints:
        """Return the index of an arm, as an array of length one."""
        return self._index_arrays[arm]

    def as_offered(self, arms: list[Any]) -> list[str | None]:
        """Format the offers of requests as JSON for the log.

        None (the full offer) stays None until the arms have changed; then it becomes the current full offer.
        """
        offers = encode_lists(arms)
        if not self.full_offers:
            return offers
        return [self.full_offers[-1] if offer is None else offer for offer in offers]

    def check_arms(self, arms: Sequence[Arm]) -> list[Arm]:
        """Return the arms named by a request as the placement names them; retired ones are allowed.

        Raises
        ------
        InvalidValue, UnknownName
            If one never existed or is named twice.
        """
        offer = (
            Offer(self.offer.all) if self.offer.retired and self.arm_indices.keys() >= {*arms} else self.offer
        )
        return [self.names[index] for index in offer.find_arm_indices(arms).tolist()]

    @property
    def initial_arms(self) -> list[Arm]:
        """The arms that the placement began with."""
        return self.names[: len(self.initial_indices)]

    # Changes ---------------------------------------------------------------------------------

    def plan_arms(self, placement: Placement, change: wire.ArmsOf) -> LoggedArms:
        """Return the arms that a request would lead to; changes nothing.

        If the request makes no difference, the current :attr:`logged_arms` are returned.

        Raises
        ------
        InvalidValue, UnknownName
            If an added arm exists, another arm does not, one is named twice, or no arm would be on
            offer; or arms of this placement cannot change.
        """
        check_changeable(placement)
        offer = _change_offer(self.offer, change)
        # The configuration may change the holdout at the same time.
        configured: Any = change.configured if isinstance(change, ConfiguredArms) else None
        holdout = placement.holdout if configured is None else parse_holdout(placement.lift_terms)
        if holdout is not None and holdout.arm is not None and holdout.arm in change.retire:
            raise InvalidValue("retire", holdout.arm, "the control of the holdout shows it")
        if placement.guardrail is not None and placement.guardrail.against in change.retire:
            remedy = "the guardrail holds the others against it; configure another one first (against)"
            raise InvalidValue("retire", placement.guardrail.against, remedy)
        for learner in placement.learners:
            check_field("add", learner.policy.with_arms, offer.all)
        if configured is None:
            # The configuration has already been checked.
            self._check_weighed(placement, change.add, offer)
            configured = self.logged_arms.configured
        now = self.logged_arms
        counters = now.changes, now.suspended
        after = LoggedArms(_to_logged(offer.all), offer.retired, _to_logged(configured), *counters)
        # Without a difference there is no change event.
        suspended, changes = _find_suspended_shares(placement, offer.retired), now.changes + 1
        return now if after == now else replace(after, changes=changes, suspended=suspended)

    @staticmethod
    def _check_weighed(placement: Placement, add: Any, offer: Offer) -> None:
        """Raise InvalidValue if the guardrail, without a holdout, could not compare added arms."""
        if not add or placement.guardrail is None or placement.holdout is not None:
            return
        if not get_drawing_policy(placement.learner.policy.with_arms(offer.all)).randomized:
            remedy = "the guardrail cannot weigh what is promised no share; configure them, with at_least"
            raise InvalidValue("add", add, remedy)

    def get_config_change(self, placement: Placement) -> ConfiguredArms | None:
        """Return the change that leads from the arms configured before to those configured now.

        None if they are the same. Arms that the configuration no longer names are retired; arms that it newly
        names are added or restored. Requests' changes of other arms stay, unless no arm would be on offer.
        """
        config = placement.config
        configured, before = config.config_arms, self.logged_arms.configured
        if before is None:
            before = _to_logged(config.policy.arms)
        new_arms, old_arms = set(_iterate_arms(configured)), set(_iterate_arms(before))
        if new_arms == old_arms:
            return None
        add: Any = [arm for arm in _iterate_arms(configured) if arm not in self.arm_indices]
        retired = [arm for arm in self.offer.arms if arm in old_arms - new_arms]
        # If no arm would be on offer, all configured arms are restored.
        empty = not add and len(retired) == len(self.offer.arms)
        restored = [arm for arm in self.offer.retired if arm in (new_arms if empty else new_arms - old_arms)]
        if isinstance(configured, int):
            add = len(add)
        return ConfiguredArms(add, retired, restored, configured)

    def check_configured(self, placement: Placement) -> None:
        """Check that the current arms can become the configured ones; changes nothing.

        Raises
        ------
        ConfigError
            If the change is impossible.
        """
        change = self.get_config_change(placement)
        try:
            if change is not None:
                self.plan_arms(placement, change)
        except TacitError as error:
            raise ConfigError(
                f"placements.{placement.name}: its arms cannot become those that are configured: "
                f"{error}; set them back to what they were"
            ) from error

    def adopt_arms(self, placement: Placement, value: str, time: int) -> None:
        """Apply the arms of another log's change event, unless they are already known."""
        if self.is_change(placement, value):
            self._apply_arms(placement, value, 0, time)

    def _apply_arms(self, placement: Placement, value: str, seq: int, time: int) -> None:
        """Change the arms of the learners, aspects, series and lift to those of a change event.

        If the lift's control now acts differently, its period ends. Equal arms change only ``logged_arms``.

        Raises
        ------
        ConfigError
            If the arms of this kind of placement cannot change.
        """
        try:
            check_changeable(placement)
        except InvalidValue as error:
            raise ConfigError(
                f"placements.{placement.name}: its arms have changed, but {error.allowed}; set its "
                "configuration back"
            ) from error
        before, self.logged_arms = self.logged_arms, parse_arms(value)
        if (before.arms, before.retired) == (self.logged_arms.arms, self.logged_arms.retired):
            return
        control_action = placement.control_action
        for learner in placement.learners:
            match_arms(learner, self.logged_arms)
        self.full_offers.append(as_json(placement.learner.arms) or "")
        placement.update_arms()
        placement.series.reach(placement.layers)
        counts = len(self.arm_indices), len(placement.learner.arms)
        placement.lift.change_arms(*counts, seq, time, control=control_action != placement.control_action)

    def check_offer(self, impressions: Sequence[Impression]) -> None:
        """Check that the arms named by impressions are still on offer; client-side decisions are not checked.

        Raises
        ------
        InvalidValue, UnknownName
            If one was retired after the request came.
        """
        if self.full_offers:
            for impression in impressions:
                if impression.arms is not None and not isinstance(impression.details, ClientDecision):
                    self.offer.find_arm_indices(impression.arms)


def check_changeable(placement: Placement) -> None:
    """Check that arms of a placement can change, which depends on its kind.

    Raises
    ------
    InvalidValue
        If they cannot.
    """
    if not placement.kind.has_arm_lifecycle:
        why = f"its arms cannot change: arms of kind {placement.kind.name!r} come with each request"
        raise InvalidValue("placement", placement.name, why)


def _change_offer(offer: Offer, change: wire.ArmsOf) -> Offer:
    """Return the offer after adding, restoring and retiring arms; raises InvalidValue or UnknownName."""
    changed_arms = [*change.retire, *change.restore]
    for field, arms in (("retire", change.retire), ("restore", changed_arms)):
        if len(set(arms)) < len(arms):
            raise InvalidValue(field, arms, "name each arm once")
    if change.add:
        _, offer = check_field("add", offer.with_new_arms, change.add)
    offer = check_field("restore", offer.with_restored_arms, change.restore)
    after: Offer = check_field("retire", offer.exclude_arms, change.retire)
    return after


def _find_suspended_shares(placement: Placement, retired: Sequence[Arm]) -> dict[str, float]:
    """Return the shares that the configured policy promises (``at_least``) to retired arms, by arm."""
    shares = dict(getattr(placement.config.policy, "at_least", ()))
    return {str(arm): shares[arm] for arm in retired if arm in shares}


def _get_logged_arms(learner: Learner) -> LoggedArms:
    """Return the arms and retired arms of a learner as a change event holds them."""
    return LoggedArms(_to_logged(learner.offer.all), learner.offer.retired)


def parse_arms(value: str) -> LoggedArms:
    """Parse the JSON value of a change event of arms."""
    return msgspec.json.decode(value, type=LoggedArms)


def match_arms(learner: Learner, logged_arms: LoggedArms) -> None:
    """Add, restore and retire arms of a learner until they match the logged arms.

    Nothing changes if arms come with requests.
    """
    if logged_arms.arms is None:  # they come with requests
        return
    old_count = len(learner.offer.names)
    new: Any = (
        logged_arms.arms - old_count if isinstance(logged_arms.arms, int) else logged_arms.arms[old_count:]
    )
    if new:
        learner.add_arms(new)
    before = set(learner.retired)
    learner.restore_arms([arm for arm in before if arm not in logged_arms.retired])
    learner.retire_arms([arm for arm in logged_arms.retired if arm not in before])


def _to_logged(arms: Any) -> Any:
    """Convert arms to a number, a list or None, as change events hold them."""
    return arms if arms is None or isinstance(arms, int) else list(arms)


def _iterate_arms(arms: Any) -> Sequence[Arm]:
    """Return arms as a sequence: numbers from 0 for a count, empty for None."""
    return range(arms) if isinstance(arms, int) else arms or ()


def encode_lists(values: list[Any]) -> list[str | None]:
    """Convert each list to JSON text for the log; None stays None."""
    return values if values.count(None) == len(values) else list(map(as_json, values))


# ---- The verbs that change them


def _change(placement: Placement, request: wire.ArmsOf, time: int) -> str:
    """Return the change event's value for a request to change arms; changes nothing."""
    return encode_json(placement.lifecycle.plan_arms(placement, request))


def _get_status(placement: Placement, time: int) -> wire.ArmsNow:
    """Return the arms on offer, the retired ones and the suspended shares as the answer."""
    offer = placement.lifecycle.offer
    return wire.ArmsNow(offer.arms, offer.retired, _find_suspended_shares(placement, offer.retired))


ArmLifecycle.effects = {
    wire.ArmsOf: Effect(ARMS, _change, _get_status, leads=True),
    ConfiguredArms: Effect(ARMS, _change, _get_status),
}
