"""Signals of a placement: contexts that the service computes from the placement's log."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from tacit.core.arrays import Floats, Ints
from tacit.errors import InvalidValue
from tacit.learning.signals import Signals
from tacit.service.config.schema import SignalConfig
from tacit.service.deciders.aspect import Aspect, SavedState
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.log.blocks import Block
from tacit.service.log.requests import Impression
from tacit.service.log.rows import DecisionRow, encode_json
from tacit.service.log.store import Snapshot

SESSION_BYTES = 8


class PlacementSignals(Aspect):
    """The signals of a placement, a fold over its part of the log.

    Times come from the log, lanes from the placement's learner.

    Parameters
    ----------
    config : SignalConfig
    policy : PolicyDecider
        Signals have the lanes of its learner.
    """

    def __init__(self, config: SignalConfig, policy: PolicyDecider) -> None:
        self.names, self._config, self._policy = config.names, config, policy
        self.stream = Signals(config.names, policy.learner.policy.arm_count, config.fast, config.slow)

    def update_arms(self) -> None:
        """Make room for new arms of the placement."""
        self.stream.reserve_arms(len(self._policy.learner.offer.names))

    def hash_session(self, id: str | None) -> str | None:
        """Return the hash of a session id as JSON for the log; None without a session.

        Raises
        ------
        InvalidValue
            If no signal uses sessions.
        """
        if id is None:
            return None
        if not self.stream.follows_sessions:
            raise InvalidValue("session", id, "leave it out: no signal here is 'reformulation'")
        return json.dumps({"session": hashlib.blake2b(id.encode(), digest_size=SESSION_BYTES).hexdigest()})

    def read(self, impressions: Block[Impression], offers: Sequence[Ints], time: int) -> list[Impression]:
        """Return impressions with the signals at ``time`` put before their contexts.

        Count them in the signals.

        ``offers`` are the arm indices on offer to each impression.
        """
        values = self._count_impressions(impressions, time, offers)
        return [
            impression._replace(context=[*signals, *(impression.context or ())])
            for impression, signals in zip(impressions, values.tolist(), strict=True)
        ]

    def recall(self, rows: Block[DecisionRow], offers: Sequence[Ints]) -> list[list[float]]:
        """Count logged decisions in the signals; return the signals of each decision at its time."""
        signals: list[list[float]] = self._count_impressions(rows, rows.column("time"), offers).tolist()
        self.record_epochs(rows)
        return signals

    def _count_impressions(self, rows: Block[Any], times: Any, offers: Sequence[Ints]) -> Floats:
        """Count impressions or decisions in the signals, at their times; return the signals of each as a row.

        New keys are admitted to the learner; deferred decisions are not counted.
        """
        lanes = self._policy.learner.lanes.admit(rows.column("key"))
        sessions = list(map(_parse_session, rows.column("asked")))
        counts = [not deferred for deferred in rows.column("deferred")]
        return self.stream.arrive(lanes, times, offers, sessions, counts)

    def record_epochs(self, rows: Block[DecisionRow]) -> None:
        """Record the keys' epochs at the times of decisions in the signals; admits new keys."""
        lanes = self._policy.learner.lanes.admit(rows.column("key"))
        self.stream.record_epochs(lanes, rows.column("time"), rows.column("epoch"))

    def count_activation(self, row: DecisionRow, offer: Ints, time: int) -> None:
        """Count a deferred decision, activated at ``time``, in the signals."""
        lanes = self._policy.learner.lanes.admit([row.key])
        self.stream.arrive(lanes, time, [offer], [_parse_session(row.asked)])

    def count_answers(self, keys: Sequence[str], times: Sequence[int], clicked: Sequence[bool]) -> None:
        """Count feedback, clicked or not, at its times in the signals; new keys are admitted."""
        self.stream.record_feedback(self._policy.learner.lanes.admit(keys), times, clicked)

    def save_state(self) -> dict[str, Any]:
        """Return the snapshot's field: {"signals": bytes}."""
        return {"signals": self.stream.to_bytes(len(self._policy.learner))}

    def restore(self, saved: SavedState, snapshot: Snapshot) -> None:
        """Set the signals from a snapshot; unchanged if it has none, or was written for other signals."""
        then, now = json.loads(snapshot.plan).get("signals"), msgspec.to_builtins(self._config)
        if saved.signals is not None and then == json.loads(json.dumps(now)):
            # A base with other signals cannot be used: the signals begin there.
            self.stream.restore(saved.signals)

    def get_reason_not_local(self, time: int | None) -> str:
        """Return that signals are computed in the service only."""
        return "its signals are computed here"

    def get_signals(self, row: DecisionRow) -> dict[str, float]:
        """Return the signals in a logged decision's context, by name."""
        # A context of another configuration may be shorter.
        return dict(zip(self.names, json.loads(row.context or "[]"), strict=False))

    def get_client_context(self, row: DecisionRow) -> str | None:
        """Return the client's part of a logged decision's context as JSON; None if it has none."""
        client_values: list[Any] = json.loads(row.context or "[]")[len(self.names) :]
        return encode_json(client_values) if client_values else None


def _parse_session(text: str | None) -> int:
    """Return the session in a decision's ``asked`` JSON as a nonzero number; 0 without a session."""
    if text is None:
        return 0
    digest = bytes.fromhex(json.loads(text)["session"])
    # 0 stands for no session.
    return int.from_bytes(digest, "little", signed=True) or 1
