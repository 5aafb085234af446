"""Sticky users: a user is shown the same arm again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tacit.learning.decisions import Arm
from tacit.service.deciders.assignment import HoldoutAssigner
from tacit.service.deciders.choices import Choices, Decider, ImpressionBatch
from tacit.service.deciders.holdout import assign
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.log.requests import ClientDecision, Impression
from tacit.service.log.rows import KEPT
from tacit.service.log.search_records import SearchFields

STICKY_WARNING = "user: without it another arm may be drawn each time; send user with each decision"


class KeptArm(NamedTuple):
    """The arm that a user was shown for a key.

    Attributes
    ----------
    arm : int or str
    propensity : float or None
        Propensity of the draw.
    time : int
        Time of the draw, in microseconds since 1970.
    seq : int
        Last decision for the user from which the policy may learn.
    is_learned : bool
        Whether the policy learns from that decision, so that further ones are repetitions only: it was made
        online, and is not deferred, or was activated.
    """

    arm: Arm
    propensity: float | None
    time: int
    seq: int
    is_learned: bool


def read_user(asked: str | None) -> str | None:
    """Return the hash of the user from a decision's ``asked`` text; None if it has none.

    Examples
    --------
    >>> read_user('{"unit":"ff"}'), read_user(None)
    ('ff', None)
    """
    return None if asked is None else SearchFields.read(asked).unit


class KeptArms(Protocol):
    """The memory of the arms that users keep."""

    def find(self, key: str, user: str, time: int, offered: Collection[Arm]) -> KeptArm | None:
        """Return the arm that a user keeps for a key.

        None if there is none, it has expired or is not on offer.
        """


class OfferLists(Protocol):
    """The offers of a placement, which depend on its kind."""

    def list_offer(self, impression: Impression) -> Sequence[Arm]:
        """Return the names of the arms on offer to an impression."""


@dataclass
class StickyDecider:
    """Repeats the arms that users were shown, with their propensities; the decider draws for others.

    Parameters
    ----------
    decider : Decider
        Decides all other impressions.
    users : KeptArms
    policy : PolicyDecider
    offers : OfferLists
    assigner : HoldoutAssigner or None
        Assigns users to the holdout.
    mode : str
        Mode that the log gives to decisions from which the policy may learn.
    """

    decider: Decider
    users: KeptArms
    policy: PolicyDecider
    offers: OfferLists
    assigner: HoldoutAssigner | None
    mode: str

    def choose(self, batch: ImpressionBatch) -> Iterator[Choices]:
        """Yield repetitions for users with a kept arm, and the inner decider's decisions for the others.

        They are in order. A part ends before a user who occurs in it already, because the next decision
        depends on the first one.
        """
        users = list(map(read_user, batch.impressions.column("asked")))
        if users.count(None) == len(users):
            yield from self.decider.choose(batch)
            return
        start = 0
        while start < len(users):
            entries, stop = self._find_run(batch, users, start)
            part = batch.select(slice(start, stop))
            if entries:
                yield self._repeat(part, entries)
            else:
                yield from self.decider.choose(part)
            start = stop

    def _find_run(
        self, batch: ImpressionBatch, users: Sequence[str | None], start: int
    ) -> tuple[list[KeptArm], int]:
        """Return the kept arms of the longest run of similar impressions from ``start``, and the run's end.

        Impressions are similar if all have a kept arm that is learned, all have one that is not, or none has
        one. Without kept arms the list is empty. Each user occurs at most once.
        """
        entries: list[KeptArm] = []
        seen: set[tuple[str, str]] = set()
        first: KeptArm | None = None
        stop = start
        while stop < len(users):
            impression, user = batch.impressions[stop], users[stop]
            entry = None
            if user is not None:
                if (impression.key, user) in seen:
                    break
                seen.add((impression.key, user))
                entry = self.users.find(impression.key, user, batch.time, self.offers.list_offer(impression))
            if stop == start:
                first = entry
            elif (entry and entry.is_learned) != (first and first.is_learned):
                break
            if entry is not None:
                entries.append(entry)
            stop += 1
        return entries, stop

    def _repeat(self, batch: ImpressionBatch, entries: Sequence[KeptArm]) -> Choices:
        """Return decisions that show the kept arms, with the propensities of their draws, for recall."""
        learner, keys = self.policy.learner, batch.impressions.column("key")
        learner.lanes.admit(keys)
        decisions: list[Any] = [
            ClientDecision(entry.arm, entry.propensity, learner.epoch(key))
            for entry, key in zip(entries, keys, strict=True)
        ]
        assignment = None
        if self.assigner is not None:
            assignment = assign(batch, self.assigner, offers=None, all_control=False)
        mode = KEPT if entries[0].is_learned else self.mode
        return Choices(batch, decisions, mode, assignment=assignment, is_recalled=True)
