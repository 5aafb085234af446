"""What learning earned more than a control: what windows that close add to the sums behind the lift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.service.config.holdout import MetricConfig
from tacit.service.log.blocks import Block
from tacit.service.log.rows import CONTROL, FIXED, DecisionRow, FeedbackRow
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Saved
from tacit.service.placements.aspects.lift_sums import Closed, LiftSums
from tacit.service.placements.attribution import Ended

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement


class Earnings(Aspect):
    """The sums behind the lift.

    Parameters
    ----------
    arms : int
        How many have slots of their own.
    metrics : mapping of str to MetricConfig
        What is watched beside the reward.

    Attributes
    ----------
    sums : LiftSums
    """

    def __init__(self, arms: int, metrics: Mapping[str, MetricConfig]) -> None:
        self.sums = LiftSums(max(arms, 1), metrics)

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return its field of a snapshot."""
        return {"lift": self.sums.saved()}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Take over its field of a snapshot."""
        self.sums.reach(len(placement.living.slots), len(placement.learner.arms))
        if saved.lift is None:
            # A snapshot of an earlier version: what came before is not known.
            self.sums.begin(None, snapshot.seq + 1, snapshot.time)
        else:
            self.sums.restore(saved.lift)

    def part(self, placement: Placement) -> LiftSums:
        """Return the sums of a shard, with all that has closed in them."""
        return deepcopy(placement.lift)

    def show(self, placement: Placement, parts: Sequence[LiftSums]) -> None:
        """Show the sums of all shards together."""
        self.sums = LiftSums.merged(parts)

    def still(self) -> Earnings:
        """Return a copy, for another thread to read while this one goes on."""
        self.sums.settle()
        seen = super().still()
        seen.sums = self.sums.still()
        return seen

    def made(self, rows: Block[DecisionRow]) -> None:
        """Count decisions as they are made."""
        modes, control = rows.column("mode"), rows.column("control")
        if CONTROL in modes:
            # The coin was not asked.
            control = [None if mode == CONTROL else held for mode, held in zip(modes, control, strict=True)]
        self.sums.made(control, rows.column("time")[0])

    def noted(self, feedback: Block[FeedbackRow], outcomes: Sequence[str]) -> None:
        """Note the metrics that came with feedback."""
        if any(contents := feedback.column("metrics")):
            self.sums.note(feedback.column("decision"), contents, outcomes)

    def closed(self, placement: Placement, ended: Ended) -> None:
        """Add decisions whose windows have closed."""
        if not len(ended.entries) or (not placement.kind.showing.single and placement.control.coin is None):
            return
        if self._no_chance(placement, ended.entries):
            return
        windows, sums = placement.windows, self.sums
        seqs = np.array(windows.seqs(ended.entries))
        metrics = sums.amounts_of(seqs.tolist())
        counts = seqs >= sums.seq
        # Nobody decided to show what was fixed, or what the caller would have shown.
        counts &= [mode not in FIXED for mode in windows.values(ended.entries, "mode")]
        self._count_shown(placement, ended.entries[counts & (seqs >= sums.scored)])
        counts &= ended.rewards == ended.rewards
        entries = ended.entries[counts]
        if not len(entries):
            return
        shown = placement.open.actions(entries)[:, 0] if placement.living.slots else np.zeros_like(entries)
        control, bucket = (windows.values(entries, name) for name in ("control", "bucket"))
        logged, policy = _chances(placement, entries, control)
        closed = Closed(
            seqs[counts].tolist(),
            windows.values(entries, "time"),
            np.array(_rewards(placement, entries, ended.rewards[counts])),
            ended.answered[counts],
            control,
            bucket,
            shown,
            np.array(placement.sizes(entries)),
            logged,
            policy,
            {name: amounts[counts] for name, amounts in metrics.items()},
        )
        sums.add(closed)
        if placement.guardrail is not None:
            placement.guardrail.closed(placement, entries, closed)

    @staticmethod
    def _no_chance(placement: Placement, entries: Ints) -> bool:
        """Whether decisions add to no sum: nothing about them was drawn."""
        if placement.control.coin is not None or placement.config.metrics:
            return False
        if np.isfinite(placement.open.propensities(entries)).any():
            return False
        return set(placement.windows.values(entries, "control")) == {None}

    def _count_shown(self, placement: Placement, entries: Ints) -> None:
        if len(entries) and placement.living.slots and placement.kind.showing.single:
            shown, offers = placement.open.actions(entries)[:, 0], placement.open.offers(entries)
            control = placement.windows.values(entries, "control")
            self.sums.shown(shown, _after_coin(placement, entries, control), offers)


def _rewards(placement: Placement, entries: Ints, earned: Floats) -> list[float]:
    """Return what decisions have earned, in [0, 1]; a list 1 if there was a click in it."""
    if placement.kind.showing.single:
        return placement.scaled(earned.tolist())
    return list(map(float, placement.windows.clicked(entries)))


# ---- With what probability decisions were shown: by policy and control together, and by each alone


def _logged(placement: Placement, entries: Ints) -> Floats:
    """Return the propensities of decisions as the log has them; NaN where not known."""
    if placement.two:
        # NumPy takes None for NaN.
        logged = np.array(placement.windows.values(entries, "propensity"), np.float64)
    else:
        logged = placement.open.propensities(entries)
    # What rounding leaves above 1 is no more than that, and earlier versions logged it.
    return np.minimum(logged, 1.0)


def _chances(placement: Placement, entries: Ints, control: list[int | None]) -> tuple[Floats, Floats]:
    """Return with what probability decisions were shown, and would be by the policy alone.

    Where units stay in their group, the first is that of their group: once a unit is known, its
    coin is no chance any more.
    """
    logged, coin = _logged(placement, entries), placement.control.coin
    if coin is None:
        return logged, logged
    if not placement.kind.showing.single:
        # What another list would have earned, propensities of whole lists hardly tell.
        return np.full_like(logged, np.nan), np.full_like(logged, np.nan)
    if placement.two:
        own = placement.open.propensities(entries)
        policy = np.where(_held(control), coin.unmixed(logged, own), own)
    else:
        policy = coin.unmixed(logged, placement.control_chances(entries))
    sticky = placement.earnings.sums.clustered
    return _after_coin(placement, entries, control) if sticky else logged, policy


def _after_coin(placement: Placement, entries: Ints, control: list[int | None]) -> Floats:
    """Return with what probability decisions were shown by the one that the coin chose."""
    logged, coin = _logged(placement, entries), placement.control.coin
    if coin is None:
        return logged
    if placement.two:
        return placement.open.propensities(entries)
    of_control = placement.control_chances(entries)
    return np.where(_held(control), of_control, coin.unmixed(logged, of_control))


def _held(control: list[int | None]) -> Any:
    return np.array([each == 1 for each in control])
