"""Working sets of duel policies that eliminate arms, with the arms of fewest comparisons in front."""

# 1. ``WorkingSet``: the arms not eliminated yet; all updates are exchanges of two arms.
# 2. ``EliminationPolicy``: base of such policies, with their result and guarantee.

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from tacit.core import dispatch
from tacit.core.arrays import Generator, Ints
from tacit.core.state_ranges import Permutation, ValueRange
from tacit.policies.actions import DuelPolicy
from tacit.policies.base import Impression

MANY = 2**62


class WorkingSet(NamedTuple):
    """The arms of each lane that are not eliminated; those with the fewest comparisons come first.

    Attributes
    ----------
    members : array of int64, shape (lanes, arms)
        The arms in the working set, then the others.
    place : array of int64, shape (lanes, arms)
        Index of each arm in ``members``.
    size, due : array of int64, shape (lanes,)
        Number of arms in the working set, and of those among them with the fewest comparisons.
    left : array of int64, shape (lanes, arms)
        Number of comparisons when an arm was eliminated; −1 if it was not.
    """

    members: Permutation
    place: Permutation
    size: Annotated[Ints, ValueRange(0, 0, "arms")]
    due: Annotated[Ints, ValueRange(0, 0, "arms")]
    left: Annotated[Ints, ValueRange(-1)]

    @classmethod
    def full(cls, lanes: int, arms: int) -> WorkingSet:
        """Return working sets of all arms, for lanes before the first comparison."""
        members = np.tile(np.arange(arms), (lanes, 1))
        sizes = np.full(lanes, arms)
        return cls(members, members.copy(), sizes, sizes.copy(), np.full((lanes, arms), -1))


@dispatch.kernel
def is_member(working: WorkingSet, lane: int, arm: int) -> bool:
    """True if an arm is in the lane's working set, that is, not eliminated."""
    return bool(working.place[lane, arm] < working.size[lane])


@dispatch.kernel
def swap_places(working: WorkingSet, lane: int, arm: int, place: int) -> None:
    """Exchange an arm with the arm at index ``place`` of ``members``."""
    members, places = working.members, working.place
    displaced, old_place = members[lane, place], places[lane, arm]
    members[lane, place], members[lane, old_place] = arm, displaced
    places[lane, arm], places[lane, displaced] = place, old_place


@dispatch.kernel
def remove_arm(working: WorkingSet, lane: int, arm: int, moment: int) -> None:
    """Remove an arm from the working set, and store ``moment``, the number of comparisons so far.

    A ``moment`` of −1 says that the arm was not eliminated. The caller calls :func:`regroup` next.
    """
    working.size[lane] -= 1
    swap_places(working, lane, arm, working.size[lane])
    working.left[lane, arm] = moment


@dispatch.kernel
def regroup(working: WorkingSet, lane: int, plays: Ints) -> int:
    """Move the arms with the fewest comparisons to the front of ``members``, and store their number in
    ``due``.

    Returns the fewest comparisons that an arm has. ``plays`` has the number of comparisons by arm.
    """
    size = working.size[lane]
    least = plays[lane, working.members[lane, 0]]
    for i in range(1, size):
        count = plays[lane, working.members[lane, i]]
        least = count if count < least else least
    due = 0
    for i in range(size):
        arm = working.members[lane, i]
        if plays[lane, arm] == least:
            if due < i:
                swap_places(working, lane, arm, due)
            due += 1
    working.due[lane] = due
    return int(least)


@dispatch.kernel
def mark_compared(working: WorkingSet, lane: int, arm: int) -> bool:
    """Count an arm as compared, if it has the fewest comparisons; return True once all such arms were
    compared.
    """
    if working.place[lane, arm] < working.due[lane]:
        working.due[lane] -= 1
        swap_places(working, lane, arm, working.due[lane])
    return bool(working.due[lane] == 0)


@dispatch.kernel
def draw_arm(
    working: WorkingSet, lane: int, plays: Ints, impression: Impression, fewest: bool,
    rng: Generator,
) -> int:  # fmt: skip
    """Return an arm on offer, drawn uniformly from the working set; −1 if there is none.

    With ``fewest``, it is drawn from the arms of the fewest comparisons.
    """
    if len(impression.arms) == working.members.shape[1]:
        count = working.due[lane] if fewest else working.size[lane]
        return int(working.members[lane, int(rng.random() * count)])
    winner, ties, least = -1, 0, MANY
    for arm in impression.arms:
        if is_member(working, lane, arm):
            n = int(plays[lane, arm]) if fewest else 0
            if n < least:
                ties, least = 0, n
            if n == least:
                ties += 1
                if rng.random() * ties < 1.0:
                    winner = arm
    return winner


@dispatch.kernel
def draw_pair(
    working: WorkingSet, lane: int, plays: Ints, impression: Impression, rng: Generator
) -> tuple[int, int]:
    """Return two arms, drawn uniformly: one of the fewest comparisons, and any one of the working set.

    Both are −1 if none is on offer.
    """
    if len(impression.arms) == working.members.shape[1]:
        # The fraction of one draw is a second draw, with a resolution of 2⁻⁵³ · ``due``.
        place = rng.random() * working.due[lane]
        first = int(place)
        second = int((place - first) * working.size[lane])
        return int(working.members[lane, first]), int(working.members[lane, second])
    left_arm = draw_arm(working, lane, plays, impression, True, rng)
    right_arm = draw_arm(working, lane, plays, impression, False, rng) if left_arm >= 0 else -1
    return left_arm, right_arm


@dispatch.kernel
def draw_chance(
    working: WorkingSet, lane: int, plays: Ints, impression: Impression, fewest: bool, arm: int
) -> float:
    """Return the probability that :func:`draw_arm` returns ``arm``, where −1 stands for no arm."""
    matches, ties, least = 0, 0, MANY
    for candidate in impression.arms:
        if is_member(working, lane, candidate):
            n = int(plays[lane, candidate]) if fewest else 0
            if n < least:
                matches, ties, least = 0, 0, n
            if n == least:
                ties += 1
                matches += candidate == arm
    if ties == 0:
        return 1.0 if arm < 0 else 0.0
    return matches / ties


@dispatch.kernel
def is_on_offer(impression: Impression, arm: int) -> bool:
    """True if an arm is on offer."""
    offered = False
    for i in range(len(impression.arms)):
        offered |= impression.arms[i] == arm
    return offered


@dispatch.kernel
def draw_any_pair(impression: Impression, rng: Generator) -> tuple[int, int]:
    """Return two arms on offer, drawn uniformly and independently; they may be the same."""
    count = len(impression.arms)
    left_arm = impression.arms[int(rng.random() * count)]
    return int(left_arm), int(impression.arms[int(rng.random() * count)])


class EliminationResult(NamedTuple):
    """Result of a lane of a policy that eliminates arms.

    Attributes
    ----------
    winner : int or None
        Index of the best arm; None while the policy explores.
    eliminated : tuple of int
        Indices of eliminated arms, in the order of elimination; simultaneous ones by index.
    comparisons : int
        Number of comparisons that exploration has learned from.
    guarantee : str
        Guarantee for the winner, with its assumptions.
    """

    winner: int | None
    eliminated: tuple[int, ...]
    comparisons: int
    guarantee: str


class EliminationPolicy(DuelPolicy, abstract=True):
    """Base of the policies that eliminate arms: ``working``, ``spent``, ``winner`` in the State."""

    @property
    def guarantee(self) -> str:
        """Guarantee for the winner, with its assumptions."""
        raise NotImplementedError

    def result(self, state: Any, lane: int) -> EliminationResult:
        """Return winner, eliminated arms, number of comparisons and guarantee of a lane.

        The winner is None while the policy explores.

        Parameters
        ----------
        state : State
        lane : int

        Returns
        -------
        EliminationResult
        """
        winner = int(state.winner[lane])
        return EliminationResult(
            winner if winner >= 0 else None,
            elimination_order(state.working.left[lane]),
            int(state.spent[lane]),
            self.guarantee,
        )


def elimination_order(eliminated_at: Any) -> tuple[int, ...]:
    """Return the indices of eliminated arms in the order of elimination; simultaneous ones by index.

    Parameters
    ----------
    eliminated_at : array of int64, shape (arms,)
        Number of comparisons when each arm was eliminated; −1 if it was not.
    """
    order = np.argsort(eliminated_at, kind="stable")
    return tuple(int(arm) for arm in order if eliminated_at[arm] >= 0)
