"""What one shard lends, and what it has yet to learn: a learner, and a spool of what was decided."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tacit.client.clients import Client
from tacit.client.errors import Conflict, InvalidRequest
from tacit.client.spool import Spool
from tacit.errors import TacitError
from tacit.learning.learner import Learner, restored
from tacit.learning.snapshot import from_bytes
from tacit.wire.decisions import LocalDecision

LEARNER = "learner.tacit"
DECISION, FEEDBACK = "decision", "feedback"
AT_ONCE = 1000
REFUSED = ("unknown-decision", "conflict", "repeated-feedback", "invalid-value")
"""What becomes of feedback that will never be recorded."""

logger = logging.getLogger("tacit.client")
encode = msgspec.json.Encoder().encode
DECIDED = msgspec.Raw(encode(DECISION))
_decode = msgspec.json.Decoder(list[msgspec.Raw]).decode


class LentState(NamedTuple):
    """What a shard had learned.

    Attributes
    ----------
    learner : Learner
    asked : float
        When it was asked for, by the clock that never goes back.
    row : int or None
        The last row of the shard's log that it surely knows; None if that is not known.
    """

    learner: Learner
    asked: float
    row: int | None


class LentShard:
    """A shard, or the one server, next to the caller.

    Parameters
    ----------
    number : int or None
        Which shard; None of one server.
    placement : str
    folder : Path
        Where what is not yet delivered waits, and where the last that it lent is kept.
    rng : numpy.random.Generator
        Where draws come from.

    Attributes
    ----------
    state : LentState or None
        None where nothing is lent.
    spool : Spool
    """

    def __init__(self, number: int | None, placement: str, folder: Path, rng: np.random.Generator) -> None:
        self.number, self._placement, self._rng = number, placement, rng
        self.spool = Spool(folder)
        self.state: LentState | None = None

    @property
    def _kept(self) -> Path:
        return self.spool.folder / LEARNER

    # What it lends ---------------------------------------------------------------------------

    def pull(self, client: Client, row: int | None) -> None:
        """Go on with what the shard knows by now.

        Parameters
        ----------
        client : Client
        row : int or None
            The last row of its log; None if it does not answer, and then nothing is asked.

        Raises
        ------
        ServiceError
            If it gives none; what was known stays.
        """
        asked = time.monotonic()
        if row is None:
            return
        if self.state is not None and self.state.row == row:
            self.state = self.state._replace(asked=asked)
            os.utime(self._kept)
            return
        content = client.learner(self._placement, self.number)
        self._take(content, asked, row)
        fresh = self._kept.with_suffix(".new")
        fresh.write_bytes(content)
        os.replace(fresh, self._kept)

    def recover(self) -> None:
        """Begin with what was known when another process ended."""
        if not self._kept.exists():
            return
        age = max(0.0, time.time() - self._kept.stat().st_mtime)
        try:
            self._take(self._kept.read_bytes(), time.monotonic() - age, None)
        except TacitError as error:
            logger.warning("%s: it is left out", error)

    def forget(self) -> None:
        """Forget what it lent, also on the disk."""
        self.state = None
        self._kept.unlink(missing_ok=True)

    def _take(self, content: bytes, asked: float, row: int | None) -> None:
        learner = from_bytes(content, f"what {self._placement} has learned", restored)
        # Everybody is lent the same generator, and shall not draw the same.
        (own,) = self._rng.spawn(1)
        learner.rng.bit_generator.state = own.bit_generator.state
        learner.compile()
        self.state = LentState(learner, asked, row)

    # What is delivered -------------------------------------------------------------------------

    def deliver(self, client: Client, appending: threading.RLock) -> None:
        """Deliver what waits, oldest first.

        Parameters
        ----------
        client : Client
        appending : lock
            Who appends to the spool holds it.

        Raises
        ------
        ServiceError
            If it cannot be delivered now; what waits is kept.
        """
        with appending:
            self.spool.close_file()
        self.spool.sync()
        for file in self.spool.files():
            lines = self.spool.lines(file)
            for start in range(0, len(lines), AT_ONCE):
                self._deliver_lines(client, lines[start : start + AT_ONCE])
            self.spool.drop(file)

    def _deliver_lines(self, client: Client, lines: Sequence[bytes]) -> None:
        """Deliver decisions, then feedback; put aside what the service will never take."""
        kept = list(map(_decode, lines))
        made = [_made(fields) for kind, *fields in kept if kind == DECIDED]
        given = [fields[0] for kind, *fields in kept if kind != DECIDED]
        refused: list[Any] = []
        if made:
            taken = self._asked(client.take_over, made)
            refused += [(sent, answer) for sent, answer in zip(made, taken, strict=True) if answer.detail]
        if given:
            recorded = self._asked(client.feedback_many, given)
            refused += [
                (one, became)
                for one, became in zip(given, recorded, strict=True)
                if became.outcome in REFUSED
            ]
        if refused:
            logger.warning(
                "the service refused %d records, the first as %r; they are in %s",
                len(refused), refused[0][1], self.spool.folder,
            )  # fmt: skip
            self.spool.refuse(map(encode, refused))

    def _asked(self, call: Callable[[str, Any], list[Any]], messages: Sequence[Any]) -> list[Any]:
        """Return what became of messages; those that are no good at all are listed apart."""
        try:
            return call(self._placement, messages)
        except (InvalidRequest, Conflict) as error:
            if len(messages) == 1 or error.field == "placement":
                return [_Refused(str(error))] * len(messages)
        return [answer for message in messages for answer in self._asked(call, [message])]


def _made(fields: Sequence[msgspec.Raw]) -> msgspec.Raw:
    """Return a decision as it is sent; up to version 0.2, the fields of one were kept."""
    if len(fields) == 1:
        return fields[0]
    return msgspec.Raw(encode(LocalDecision(*map(msgspec.json.decode, fields))))


class _Refused(msgspec.Struct):
    detail: str
    outcome: str = "invalid-value"
