"""A replica of one shard for client-side decisions: a copy of its learner, and a spool of records for it.

The spool stores decisions and feedback in a folder until they are delivered to the shard, in order.
"""

# 1. ``Spool``: a queue of lines in files of a folder.
# 2. ``ShardReplica``: pull the learner of a shard, deliver the spool's records to it.

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tacit.client.call import Conflict, InvalidRequest
from tacit.client.clients import Client
from tacit.errors import BEFORE_0_3, InvalidValue, TacitError
from tacit.learning.learner import Learner, restore_learner
from tacit.learning.snapshot import from_bytes
from tacit.wire.decisions import Feedback, LocalDecision

# ---- A spool: a queue of lines in files of a folder

OPEN = "open.jsonl"
CLOSED = "{:012d}.jsonl"
SET_ASIDE = "refused.jsonl"
LOCK = "lock"


class Spool:
    """A queue of lines, stored in files of a folder, which survives the process.

    Lines are appended to an open file; :meth:`close_file` moves it to the end of the queue of closed
    files, and a file is dropped once it is delivered. After a crash of the machine, the last line may
    be incomplete.

    Parameters
    ----------
    folder : Path
        Created if it does not exist; one process at a time may use it.

    Raises
    ------
    TacitError
        If another process has the folder.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     spool = Spool(Path(folder))
    ...     spool.append(b"one")
    ...     spool.append(b"two")
    ...     spool.close_file()
    ...     for file in spool.files():
    ...         print(spool.lines(file))
    ...         spool.drop(file)
    ...     spool.close()
    [b'one', b'two']
    """

    def __init__(self, folder: Path) -> None:
        if folder.is_file():
            remedy = "it is a file; give a folder, or one that is to be made"
            raise InvalidValue("folder", str(folder), remedy)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        self._lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            remedy = "give each process a folder of its own"
            raise TacitError(f"folder: another process uses {folder}; {remedy}") from None
        self._closed: list[int] = []
        self._open()
        # A file of a process that crashed may end within a line, so nothing is appended to it.
        self.close_file()
        self.sync()

    def _open(self) -> None:
        """Open the file to which lines are appended, and set whether it is empty."""
        self._file = os.open(self.folder / OPEN, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self.empty = os.fstat(self._file).st_size == 0

    def append(self, line: bytes) -> None:
        """Append a line, which must not contain a line break.

        Raises
        ------
        OSError
            If the disk is full; then no part of the line is stored.
        """
        content = line + b"\n"
        written = os.write(self._file, content)
        if written < len(content):
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError(errno.ENOSPC, "no room for what was decided", str(self.folder))
        self.empty = False

    def close_file(self) -> None:
        """Move the open file to the end of the queue and open a new one, unless it is empty.

        The moved file is durable after :meth:`sync`.
        """
        if self.empty:
            return
        before, last = self._file, max((int(file.stem) for file in self.files()), default=0)
        os.rename(self.folder / OPEN, self.folder / CLOSED.format(last + 1))
        self._closed.append(before)
        self._open()

    def sync(self) -> None:
        """Flush moved files to the disk and close them.

        This is slow, but needs no lock against :meth:`append`.
        """
        while self._closed:
            file = self._closed.pop()
            os.fsync(file)
            os.close(file)

    def files(self) -> list[Path]:
        """Return the closed files, oldest first."""
        return sorted(path for path in self.folder.glob("*.jsonl") if path.stem.isdigit())

    @property
    def waiting(self) -> int:
        """Size of all undelivered lines in bytes."""
        size = os.fstat(self._file).st_size
        for file in self.files():
            # Another thread may deliver and drop the file at this moment.
            with contextlib.suppress(FileNotFoundError):
                size += file.stat().st_size
        return size

    def lines(self, file: Path) -> list[bytes]:
        """Return the lines of a file, including an incomplete one at its end."""
        *whole, last = file.read_bytes().split(b"\n")
        return [*whole, last] if last else whole

    def drop(self, file: Path) -> None:
        """Delete a closed file, whose lines are delivered."""
        file.unlink()

    def set_aside(self, lines: Iterable[bytes]) -> None:
        """Append lines that can never be delivered to the file ``SET_ASIDE``, durably."""
        with open(self.folder / SET_ASIDE, "ab") as file:
            file.writelines(line + b"\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Flush and close all files and release the folder for other processes."""
        self.sync()
        os.close(self._file)
        os.close(self._lock)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file by new content, atomically and durably, through a temporary file beside it."""
    fresh = path.with_suffix(".new")
    with open(fresh, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


LEARNER = "learner.tacit"
DECISION, FEEDBACK = "decision", "feedback"
AT_ONCE = 1000
REFUSED = ("unknown-decision", "conflict", "repeated-feedback", "invalid-value")
"""Outcomes of feedback that will never be recorded."""

logger = logging.getLogger("tacit.client")
encode = msgspec.json.Encoder().encode
ENCODED_DECISION = msgspec.Raw(encode(DECISION))
_decode = msgspec.json.Decoder(list[msgspec.Raw]).decode
_DECODERS = {
    DECISION: msgspec.json.Decoder(LocalDecision).decode,
    FEEDBACK: msgspec.json.Decoder(Feedback).decode,
}
Record = tuple[str, msgspec.Raw]
"""The content of a line: its kind, and the encoded message."""
UNREADABLE = ValueError, KeyError, TypeError, msgspec.MsgspecError
"""Errors that damaged lines raise."""


class LearnerCopy(NamedTuple):
    """A copy of a shard's learner.

    Attributes
    ----------
    learner : Learner
    request_time : float
        Time of the request for it, by the monotonic clock.
    row : int or None
        The last row of the shard's log that it has learned for sure; None if that is not known.
    """

    learner: Learner
    request_time: float
    row: int | None


class ShardReplica:
    """A local replica of a shard, or of a single server.

    Parameters
    ----------
    number : int or None
        Number of the shard; None for a single server.
    placement : str
    folder : Path
        Folder of the spool and of the last copy of the learner.
    rng : numpy.random.Generator
        Source of random draws.

    Attributes
    ----------
    state : LearnerCopy or None
        None if there is no copy of the learner.
    spool : Spool
    """

    def __init__(self, number: int | None, placement: str, folder: Path, rng: np.random.Generator) -> None:
        self.number, self._placement, self._rng = number, placement, rng
        self.spool = Spool(folder)
        self.state: LearnerCopy | None = None

    @property
    def _learner_path(self) -> Path:
        """Path of the stored copy of the learner."""
        return self.spool.folder / LEARNER

    # The copy of the learner -----------------------------------------------------------------

    def pull(self, client: Client, row: int | None) -> None:
        """Replace the copy of the learner, also on the disk, by the shard's current one.

        If the shard's log has no new row, only the copy's age is reset.

        Parameters
        ----------
        client : Client
        row : int or None
            The last row of the shard's log; None if it does not answer, and then no request is sent.

        Raises
        ------
        ServiceError
            If the request fails; the copy is not changed.
        """
        request_time = time.monotonic()
        if row is None:
            return
        if self.state is not None and self.state.row == row:
            self.state = self.state._replace(request_time=request_time)
            os.utime(self._learner_path)
            return
        content = client.learner(self._placement, self.number)
        self._load_learner(content, request_time, row)
        replace_file(self._learner_path, content)

    def recover(self) -> None:
        """Load the copy of the learner that an earlier process stored, with its age.

        Nothing happens if there is none; one that cannot be read is left out with a logged warning.
        """
        if not self._learner_path.exists():
            return
        age = max(0.0, time.time() - self._learner_path.stat().st_mtime)
        try:
            self._load_learner(self._learner_path.read_bytes(), time.monotonic() - age, row=None)
        except TacitError as error:
            logger.warning("%s: it is left out", error)

    def forget(self) -> None:
        """Delete the copy of the learner, also on the disk; spooled records stay."""
        self.state = None
        self._learner_path.unlink(missing_ok=True)

    def _load_learner(self, content: bytes, request_time: float, row: int | None) -> None:
        """Set the copy of the learner from a file's content, with new random draws, and compile it.

        Raises ``TacitError`` if the content is not a learner.
        """
        learner = from_bytes(content, f"what {self._placement} has learned", restore_learner)
        # All replicas get the same generator with the learner, but must draw differently.
        (child_rng,) = self._rng.spawn(1)
        learner.rng.bit_generator.state = child_rng.bit_generator.state
        learner.compile()
        self.state = LearnerCopy(learner, request_time, row)

    # Delivery ----------------------------------------------------------------------------------

    def deliver(self, client: Client, lock: threading.RLock) -> None:
        """Deliver the records of the spool to the service, oldest first, and delete each delivered file.

        Parameters
        ----------
        client : Client
        lock : lock
            Lock that callers hold while they append to the spool.

        Raises
        ------
        ServiceError
            If records cannot be delivered now; they stay in the spool.
        """
        with lock:
            self.spool.close_file()
        self.spool.sync()
        for file in self.spool.files():
            records = self._read_records(file)
            for start in range(0, len(records), AT_ONCE):
                self._deliver_records(client, records[start : start + AT_ONCE])
            self.spool.drop(file)

    def _read_records(self, file: Path) -> list[Record]:
        """Return the records of a spool file; move damaged lines to another file, with a logged warning."""
        records: list[Record] = []
        valid, damaged = list[bytes](), list[bytes]()
        for line in self.spool.lines(file):
            try:
                records.append(_read_record(line, file))
                valid.append(line)
            except UNREADABLE:
                damaged.append(line)
        if damaged:
            what = "%s: %d damaged lines are not delivered; they are in %s"
            logger.warning(what, file, len(damaged), self.spool.folder / SET_ASIDE)
            self.spool.set_aside(damaged)
            replace_file(file, b"".join(line + b"\n" for line in valid))
        return records

    def _deliver_records(self, client: Client, records: Sequence[Record]) -> None:
        """Send decisions, then feedback; store refused records in a separate file, with a logged warning."""
        calls: dict[str, Any] = {DECISION: client.log_decisions, FEEDBACK: client.feedback_many}
        refusals = []
        for kind, call in calls.items():
            messages = [message for record_kind, message in records if record_kind == kind]
            answers = self._send_messages(call, messages) if messages else []
            for message, answer in zip(messages, answers, strict=True):
                if getattr(answer, "detail", "") or answer.outcome in REFUSED:
                    refusals.append((message, answer))
        if refusals:
            logger.warning(
                "the service refused %d records, the first as %r; they are in %s",
                len(refusals), refusals[0][1], self.spool.folder,
            )  # fmt: skip
            self.spool.set_aside(map(encode, refusals))

    def _send_messages(self, call: Callable[[str, Any], list[Any]], messages: Sequence[Any]) -> list[Any]:
        """Send messages by a client's method and return the outcome of each.

        If a batch is refused, they are sent one by one; a refused message's outcome has the error as its
        detail.
        """
        try:
            return call(self._placement, messages)
        except (InvalidRequest, Conflict) as error:
            if len(messages) == 1 or error.field == "placement":
                return [_Refused(str(error))] * len(messages)
        return [answer for message in messages for answer in self._send_messages(call, [message])]


def _read_record(line: bytes, file: Path) -> Record:
    """Return the kind of record in a line and its encoded message; ``file`` names the file in errors.

    Raises
    ------
    TacitError
        If a version before 0.3 wrote it.
    UNREADABLE
        If it is damaged.
    """
    kind, *fields = _decode(line)
    if kind == ENCODED_DECISION and len(fields) == len(LocalDecision.__struct_fields__):
        # Older versions wrote the fields of a decision, not a message.
        raise TacitError(f"{file}: {BEFORE_0_3}")
    (message,) = fields
    name = msgspec.json.decode(kind)
    _DECODERS[name](message)
    return name, message


class _Refused(msgspec.Struct):
    detail: str
    outcome: str = "invalid-value"
