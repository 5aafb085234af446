"""What the page shows of keys: the busiest ones, and everything about one of them."""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tacit.errors import UnknownName
from tacit.policies.base import Counts
from tacit.policies.lists.position_based import PositionCounts
from tacit.policies.stationary.thompson import Thompson
from tacit.service.page.amounts import age
from tacit.service.page.beliefs import (
    Believed,
    arms_believed,
    counts_of,
    placed_believed,
    plays_and_rewards,
    rounds_of,
)
from tacit.service.placements.base import Placement
from tacit.service.placements.slates import SlatePlacement

MOST_KEYS = 10
MOST_RESTARTS = 20


class BusyKey(NamedTuple):
    """One of the keys with the most impressions.

    Attributes
    ----------
    name : str
    plays : float
        Impressions learned from since it last restarted.
    epoch : int
    leader : Believed or None
        The arm with the highest rate among those that were shown since then.
    """

    name: str
    plays: float
    epoch: int
    leader: Believed | None


class RestartRow(NamedTuple):
    """A restart of a key: when, and the context that announced it, as far as they are known."""

    when: str
    context: str
    came_true: str


def busiest(placement: Placement) -> list[BusyKey]:
    """Return the busiest keys; nothing where the policy counts no plays."""
    learner = placement.learner
    counts, keys = counts_of(learner.state), learner.keys
    if not isinstance(counts, (Counts, Thompson.State)) or not keys:
        return []
    rounds = rounds_of(counts)[: len(keys)]
    most = np.argsort(-rounds, kind="stable")[:MOST_KEYS].tolist()
    found = []
    for key in (keys[lane] for lane in most if rounds[lane]):
        arms = [arm for arm in KeyView(placement, key).arms if arm.trials]
        leader = max(arms, key=lambda arm: arm.estimate, default=None)
        plays = sum(arm.trials for arm in arms)
        found.append(BusyKey(key, plays, learner.epoch(key), leader))
    return found


class KeyView:
    """One key as the page shows it.

    Parameters
    ----------
    placement : Placement
    key : str
    now : int
        Microseconds since 1970.

    Raises
    ------
    UnknownName
        If nothing was ever decided for the key.
    """

    def __init__(self, placement: Placement, key: str, now: int = 0) -> None:
        self.name = key
        self.placement = placement.name
        self.policy = type(placement.config.policy).__name__
        self.listed = isinstance(placement, SlatePlacement)
        self.epoch = placement.learner.epoch(key)
        self.restarting = placement.restarts
        self._lane = placement.learner.lane(key)
        self._of = placement
        self._now = now

    @cached_property
    def _believed(self) -> tuple[list[Believed], list[Believed]]:
        counts = counts_of(self._of.learner.state)
        names = [str(arm) for arm in self._of.arms]
        if isinstance(counts, PositionCounts):
            return placed_believed(names, counts, self._lane)
        if isinstance(counts, (Counts, Thompson.State)):
            return arms_believed(names, *plays_and_rewards(counts, self._lane)), []
        return [], []

    @property
    def arms(self) -> list[Believed]:
        """What is believed of each arm since the last restart; nothing where it is not known."""
        return self._believed[0]

    @property
    def positions(self) -> list[Believed]:
        """What is believed of each position's examination, where the policy models it."""
        return self._believed[1]

    @property
    def explained(self) -> bool:
        """Whether it is known what announced the restarts."""
        return any(restart.context for restart in self.restarts)

    @cached_property
    def restarts(self) -> list[RestartRow]:
        """The latest restarts: those that the policy keeps, or else those of the time line."""
        with contextlib.suppress(UnknownName):
            kept = self._of.learner.restarts(self.name)[: -MOST_RESTARTS - 1 : -1]
            return [_told(restart) for restart in kept]
        shifts = [shift for shift in self._of.series.shifts if shift.key == self.name]
        return [RestartRow(age(self._now - shift.time), "", "") for shift in reversed(shifts)]


def _told(restart: Any) -> RestartRow:
    context = getattr(restart, "context", None)
    label = {None: "not known yet", True: "yes", False: "no, a false alarm"}
    return RestartRow(
        f"impression {restart.round}",
        "" if context is None else ", ".join(f"{value:.3g}" for value in context),
        label[getattr(restart, "label", None)],
    )
