"""What the page shows of keys: the busiest ones, and everything about one of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from tacit.learning.decisions import none_for_nan
from tacit.service.page.amounts import age
from tacit.service.page.beliefs import Believed, arms_believed, placed_believed
from tacit.service.page.reader import PlacementReader
from tacit.service.reading.keys import KeyFacts

MOST_RESTARTS = 20
MOST_ARMS = 30


class BusyKey(NamedTuple):
    """One of the keys with the most impressions.

    Attributes
    ----------
    name : str
    ever : float
        Impressions learned from; NaN if not known.
    plays : float
        Those that count now: since it last restarted, or by a window or a discount.
    epoch : int
    leader : Believed or None
        The arm that is most likely the best one; None where none was shown since then.
    """

    name: str
    ever: float
    plays: float
    epoch: int
    leader: Believed | None


class RestartRow(NamedTuple):
    """A restart of a key: when, and the context that announced it, as far as they are known."""

    when: str
    context: str
    came_true: str


def rows_of(facts: Sequence[KeyFacts], arms: Sequence[str]) -> list[BusyKey]:
    """Return keys with their leading arms, where plays and rewards of arms are known."""
    rows = []
    for one in facts:
        if one.counts is None:
            continue
        (leader,) = arms_believed(arms, *one.counts, most=1)
        plays = float(one.counts[0].sum())
        ever = float(one.plays.sum())
        rows.append(BusyKey(one.name, ever, plays, one.epoch, leader if plays else None))
    return rows


class KeyView:
    """One key as the page shows it.

    Parameters
    ----------
    facts : KeyFacts
    placement : PlacementReader
        Of which it is one.
    now : int
        Microseconds since 1970.
    """

    def __init__(self, facts: KeyFacts, placement: PlacementReader, now: int) -> None:
        self.name, self.epoch = facts.name, facts.epoch
        self.placement = placement.name
        self.policy = type(placement.config.policy).__name__
        self.listed = placement.kind.shows == "slate"
        self.restarting = placement.restarts
        self._facts, self._of, self._now = facts, placement, now

    @cached_property
    def _believed(self) -> tuple[list[Believed], list[Believed]]:
        names = [str(arm) for arm in self._of.arms]
        if self._facts.placed is not None:
            arms, positions = placed_believed(names, *self._facts.placed)
            seen = sorted(range(len(arms)), key=lambda i: -arms[i].trials)[:MOST_ARMS]
            return [arms[i] for i in sorted(seen)], positions
        if self._facts.counts is not None:
            return arms_believed(names, *self._facts.counts, most=MOST_ARMS), []
        return [], []

    @property
    def arms(self) -> list[Believed]:
        """What is believed of each arm since the last restart; nothing where it is not known."""
        ever = dict(zip(map(str, self._of.arms), none_for_nan(self._facts.plays), strict=False))
        return [arm._replace(ever=ever.get(arm.name)) for arm in self._believed[0]]

    @property
    def counted(self) -> bool:
        """Whether it is known how often some arm was shown, ever."""
        return any(arm.ever is not None for arm in self.arms)

    @property
    def left_out(self) -> int:
        """How many arms are not shown, which are less likely the best."""
        return max(len(self._of.arms) - len(self.arms), 0) if self.arms else 0

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
        if self._facts.restarts is not None:
            return [_told(restart) for restart in self._facts.restarts[: -MOST_RESTARTS - 1 : -1]]
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
