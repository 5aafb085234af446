"""Arm lifecycle: arm indices, the current offer, and the meaning of old rows without an offer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from tacit.core.arrays import Ints
from tacit.learning.decisions import Arm
from tacit.learning.lanes import Offer
from tacit.learning.learner import Learner
from tacit.service.deciders.aspect import Aspect, Note, SavedState
from tacit.service.log.requests import ClientDecision, Impression, as_json
from tacit.service.log.rows import ARMS, ChangeRow, encode_json
from tacit.service.log.store import Snapshot

CALL = 'POST …/arms with "{}"'
"""How a request of a service changes arms, with a place for "add" or "restore"."""
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
        self.load_offer(learner)
        self.initial_indices = learner.offer.arm_indices
        self.full_offers: list[str] = []
        self.logged_arms = self._describe_offer()

    def load_offer(self, learner: Learner) -> None:
        """Copy the learner's offer, and rebuild names and indices of arms from it."""
        self.offer = learner.offer
        self.names: list[Arm] = list(learner.offer.names)
        self.arm_indices = {arm: index for index, arm in enumerate(self.names)}
        self._index_arrays = {arm: np.array([index]) for arm, index in self.arm_indices.items()}

    def set_arms(self, value: str) -> bool:
        """Set the logged arms from a change event's JSON.

        Return whether arms or retired arms differ from before.
        """
        before, self.logged_arms = self.logged_arms, parse_arms(value)
        return (before.arms, before.retired) != (self.logged_arms.arms, self.logged_arms.retired)

    def current(self) -> str:
        """Return the current arms as the JSON value of a change event."""
        return encode_json(self.logged_arms)

    def is_change(self, value: str) -> bool:
        """True if the change event has a higher number of changes than the last one that was applied."""
        return parse_arms(value).changes > self.logged_arms.changes

    @staticmethod
    def parse_change(change: ChangeRow, previous: ChangeRow | None, initial_arms: Sequence[Arm]) -> Note:
        """Return ("arms", {"add": …, "retire": …, "restore": …}): arms that changed since the previous event.

        The key "suspended" has the promised shares of retired arms, if any were suspended since.
        """
        now = parse_arms(change.value)
        then = LoggedArms(to_logged(initial_arms), []) if previous is None else parse_arms(previous.value)
        old_count, was_retired = len(iterate_arms(then.arms)), set(then.retired)
        names, retired = iterate_arms(now.arms), set(now.retired)
        suspended = {arm: share for arm, share in now.suspended.items() if arm not in then.suspended}
        return ARMS, {
            "add": list(names[old_count:]),
            "retire": [arm for arm in names if arm in retired - was_retired],
            "restore": [arm for arm in names if arm in was_retired - retired],
        } | ({"suspended": suspended} if suspended else {})

    @staticmethod
    def format_change(detail: dict[str, Any], clock: Callable[[str], str]) -> str:
        """Format added, retired and restored arms, and suspended shares, as text, such as "arm added: a"."""
        texts = [
            f"arm{'s' if len(detail[key]) > 1 else ''} {done}: {', '.join(map(str, detail[key]))}"
            for key, done in PAST_TENSES.items()
            if detail.get(key)
        ]
        shares = [f"{arm} {share:.3g}" for arm, share in detail.get("suspended", {}).items()]
        return "; ".join(texts + ["promised shares suspended: " + ", ".join(shares)] * bool(shares))

    def save_state(self) -> dict[str, Any]:
        """Return the snapshot's fields: full offers so far, and the logged arms (None if never changed)."""
        logged_arms = self.logged_arms if self.logged_arms.changes else None
        return {"offers": list(self.full_offers), "arms": logged_arms}

    def restore(self, saved: SavedState, snapshot: Snapshot) -> None:
        """Set logged arms and full offers from a snapshot; the learner's offer must be loaded before."""
        arms = saved.arms
        self.logged_arms = self._describe_offer() if arms is None else msgspec.convert(arms, LoggedArms)
        self.full_offers = saved.offers

    def _describe_offer(self) -> LoggedArms:
        """Return the arms and retired arms of the offer as a change event holds them."""
        return LoggedArms(to_logged(self.offer.all), self.offer.retired)

    def summary(self, now: int) -> dict[str, Any]:
        """Return {"arms": arms on offer, "retired": retired arms}."""
        return {"arms": self.offer.arms, "retired": self.offer.retired}

    # Arm indices -----------------------------------------------------------------------------

    def get_indices(self, offered: Sequence[Arm] | None) -> Ints:
        """Return the indices of arms by their names; None stands for the initial arms, as in the log."""
        if offered is None:
            return self.initial_indices
        return np.array([self.arm_indices[arm] for arm in offered], np.int64)

    def get_offer_indices(self, offered: Sequence[Arm] | None) -> Ints:
        """Return the indices of the arms on offer to a request; None stands for the current full offer."""
        return self.offer.arm_indices if offered is None and self.full_offers else self.get_indices(offered)

    def get_index_array(self, arm: Arm) -> Ints:
        """Return the index of an arm, as an array of length one."""
        return self._index_arrays[arm]

    def format_offers(self, arms: list[Any]) -> list[str | None]:
        """Format the offers of requests as JSON for the log; None means that a request names no arms.

        None stays None until the placement's arms have changed; after that it becomes the current full offer.
        """
        offers = encode_lists(arms)
        if not self.full_offers:
            return offers
        return [self.full_offers[-1] if offer is None else offer for offer in offers]

    def check_arms(self, arms: Sequence[Arm]) -> list[Arm]:
        """Return arms of a request as the placement names them, such as numbers for "0".

        Retired arms are allowed.

        Raises
        ------
        InvalidValue, UnknownName
            If one never existed or is named twice.
        """
        offer = (
            Offer(self.offer.all) if self.offer.retired and self.arm_indices.keys() >= {*arms} else self.offer
        )
        return [self.names[index] for index in offer.find_arm_indices(arms, CALL).tolist()]

    @property
    def initial_arms(self) -> list[Arm]:
        """The arms that the placement began with."""
        return self.names[: len(self.initial_indices)]

    def check_offer(self, impressions: Sequence[Impression]) -> None:
        """Check again that the arms named by impressions are on offer; decisions of clients are not checked.

        Raises
        ------
        InvalidValue, UnknownName
            If one was retired after the request came.
        """
        if self.full_offers:
            for impression in impressions:
                if impression.arms is not None and not isinstance(impression.details, ClientDecision):
                    self.offer.find_arm_indices(impression.arms, CALL)


def parse_arms(value: str) -> LoggedArms:
    """Parse the JSON value of a change event of arms."""
    return msgspec.json.decode(value, type=LoggedArms)


def match_arms(learner: Learner, logged_arms: LoggedArms) -> None:
    """Add, restore and retire arms of a learner until they match the logged arms.

    Changes nothing for a policy whose arms come with requests.
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


def to_logged(arms: Any) -> Any:
    """Convert arms to the form of change events: a number, a list, or None."""
    return arms if arms is None or isinstance(arms, int) else list(arms)


def iterate_arms(arms: Any) -> Sequence[Arm]:
    """Return arms as a sequence: numbers from 0 for a count, empty for None."""
    return range(arms) if isinstance(arms, int) else arms or ()


def encode_lists(values: list[Any]) -> list[str | None]:
    """Convert each list to JSON text for the log; None stays None."""
    return values if values.count(None) == len(values) else list(map(as_json, values))
