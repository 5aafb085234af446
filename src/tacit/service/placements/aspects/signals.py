"""Signals of a placement: contexts that it computes itself, from its own part of the log."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tacit.core.arrays import Floats, Ints
from tacit.errors import InvalidValue
from tacit.learning.learner import Learner
from tacit.learning.signals import Signals
from tacit.service.config.schema import SignalConfig
from tacit.service.log.blocks import Block
from tacit.service.log.rows import DecisionRow, text_of
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Saved

if TYPE_CHECKING:
    from tacit.service.log.requests import Impression
    from tacit.service.placements.placement import Placement

SESSION_BYTES = 8


class PlacementSignals(Aspect):
    """The signals of a placement, a fold over its part of the log.

    Times are those of the log, the lanes are those of the placement's learner.

    Parameters
    ----------
    config : SignalConfig
    arms : int
        How many arms there are.
    """

    def __init__(self, config: SignalConfig, arms: int) -> None:
        self.names = config.names
        self.stream = Signals(config.names, arms, config.fast, config.slow)

    def arms_named(self, placement: Placement) -> None:
        """Make room for more arms."""
        self.stream.reach(len(placement.living.names))

    def session(self, id: str | None) -> str | None:
        """Return a session as the log keeps it, by its hash.

        Raises
        ------
        InvalidValue
            If no signal looks at sessions.
        """
        if id is None:
            return None
        if not self.stream.follows_sessions:
            raise InvalidValue("session", id, "leave it out: no signal here is 'reformulation'")
        digest = hashlib.blake2b(id.encode(), digest_size=SESSION_BYTES)
        return json.dumps({"session": digest.hexdigest()})

    def read(
        self, learner: Learner, impressions: Block[Impression], offers: Sequence[Ints], time: int
    ) -> list[Impression]:
        """Return impressions with their whole contexts, and count them."""
        values = self._arrive(learner, impressions, time, offers)
        return [
            impression._replace(context=[*signals, *(impression.context or ())])
            for impression, signals in zip(impressions, values.tolist(), strict=True)
        ]

    def recall(self, learner: Learner, rows: Block[DecisionRow], offers: Sequence[Ints]) -> list[list[float]]:
        """Count decisions of the log; return the signals that they were made by."""
        signals: list[list[float]] = self._arrive(learner, rows, rows.column("time"), offers).tolist()
        self.decided(learner, rows)
        return signals

    def _arrive(self, learner: Learner, rows: Block[Any], times: Any, offers: Sequence[Ints]) -> Floats:
        """Count impressions, or their decisions, at a time or each at its own; return their signals."""
        lanes = learner.lanes.admit(rows.column("key"))
        sessions = list(map(_number, rows.column("asked")))
        counts = [not deferred for deferred in rows.column("deferred")]
        return self.stream.arrive(lanes, times, offers, sessions, counts)

    def decided(self, learner: Learner, rows: Block[DecisionRow]) -> None:
        """Take in the epochs of decisions."""
        lanes = learner.lanes.admit(rows.column("key"))
        self.stream.at_epochs(lanes, rows.column("time"), rows.column("epoch"))

    def activated(self, learner: Learner, row: DecisionRow, offer: Ints, time: int) -> None:
        """Count a deferred decision from now on."""
        self.stream.arrive(learner.lanes.admit([row.key]), time, [offer], [_number(row.asked)])

    def answered(
        self, learner: Learner, keys: Sequence[str], times: Sequence[int], clicked: Sequence[bool]
    ) -> None:
        """Count the answers to decisions, each when it came or when its window closed."""
        self.stream.answered(learner.lanes.admit(keys), times, clicked)

    def saved(self, placement: Placement) -> dict[str, Any]:
        """Return its field of a snapshot: everything that is known."""
        return {"signals": self.stream.to_bytes(len(placement.learner))}

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Take over its field of a snapshot, if that is of the same signals."""
        then, now = (json.loads(plan).get("signals") for plan in (snapshot.plan, placement.fold_spec))
        if saved.signals is not None and then == now:
            # Of other signals, the base of a log says nothing: they begin there.
            self.stream.restore(saved.signals)

    def stays_here(self, placement: Placement, time: int | None) -> str:
        """Return why decisions cannot be made next to the caller."""
        return "its signals are computed here"

    def of(self, row: DecisionRow) -> dict[str, float]:
        """Return the signals of a decision by their names."""
        # A context of another configuration may be shorter.
        return dict(zip(self.names, json.loads(row.context or "[]"), strict=False))

    def given(self, row: DecisionRow) -> str | None:
        """Return the client's part of a decision's context, as the log keeps numbers."""
        rest: list[Any] = json.loads(row.context or "[]")[len(self.names) :]
        return text_of(rest) if rest else None


def _number(asked: str | None) -> int:
    """Return the session of a decision as a number; 0 for none."""
    if asked is None:
        return 0
    digest = bytes.fromhex(json.loads(asked)["session"])
    # 0 stands for no session.
    return int.from_bytes(digest, "little", signed=True) or 1
