"""Decisions next to the caller: what the service has learned comes here, and decisions go back by a spool."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np

from tacit.client.bodies import body, fields_of
from tacit.client.clients import Client
from tacit.client.errors import Conflict, InvalidRequest, ServiceError
from tacit.client.spool import Spool
from tacit.core import checks
from tacit.core.seeds import Seed, generator
from tacit.errors import TacitError
from tacit.learning.learner import Learner, restored
from tacit.learning.snapshot import from_bytes
from tacit.service.log.ids import decision_ids as new_ids
from tacit.wire.decisions import Arm, Context, Decided, Feedback, LocalDecision

# ---- Decisions next to the caller: what the service has learned comes here, what they were goes there
#
# A file of the service's learner is pulled again and again. In between, decisions are made with it
# by the very kernels of the service; each is appended to a spool on the disk before it is returned,
# and delivered in batches. The log of the service takes them over as they were made, so what it
# learns is a fold of its log as ever.

LEARNER = "learner.tacit"
SPOOLED = "spooled"
DECISION, FEEDBACK = "decision", "feedback"
AT_ONCE = 1000
IDS = 16
"""Ids that are made together: more cost less each, but the first is ready only with all."""
REFUSED = ("unknown-decision", "conflict", "repeated-feedback", "invalid-value")
"""What becomes of feedback that will never be recorded."""

logger = logging.getLogger("tacit.client")

_encode = msgspec.json.Encoder().encode
_context = {field.name: field.check for field in fields_of(LocalDecision)}["context"]


class Local:
    """Decide next to the caller, in microseconds, with what a placement of the service has learned.

    What was decided and what came back is kept in a folder until the service has it in its log, so
    neither a crash of this process nor one of the service loses what :meth:`decide` and
    :meth:`feedback` have returned from; a crash of the machine may lose what was decided in the
    last ``every`` seconds. Where each decision needs something that only the service has (signals,
    a holdout, a mode other than ``online`` and ``frozen``, shards), and while what is known here is
    older than ``stale`` seconds, the service is asked for each decision. It may be used by several
    threads.

    Parameters
    ----------
    url : str
        Address of the service.
    placement : str
        One of kind ``arms``.
    folder : str or Path
        Where decisions wait that the service has not got yet; of one process and placement.
    key : str, optional
        API key, with the scopes ``decide``, ``feedback`` and ``read``.
    every : float, default 5
        Seconds between two exchanges with the service. What the service shows as the time of a
        decision is when it was delivered.
    stale : float, default 3600
        How old what is known here may become, in seconds.
    seed : int, SeedSequence or Generator, optional
        Of the draws; by default one of the system. Two processes need two.
    timeout : float, default 5
        As for :class:`Client`.

    Raises
    ------
    InvalidValue
        If an argument is not allowed.
    TacitError
        If another process uses the folder.

    Examples
    --------
    >>> import tempfile
    >>> from tacit.client import Client, Local
    >>> from tacit.service.config.file import load_config
    >>> from tacit.service.app.server import running
    >>> folder = tempfile.TemporaryDirectory()
    >>> values = {"server.port": 0, "store.path": f"{folder.name}/tacit.db"}
    >>> with folder, running(load_config(overrides=values)) as url:
    ...     with Local(url, "default", f"{folder.name}/spool") as local:
    ...         shown = local.decide("independence day")
    ...         local.feedback(shown.decision_id, 1)
    ...     with Client(url) as client:  # what was left is delivered at the end
    ...         again = client.feedback("default", shown.decision_id, 1)
    >>> shown.durability, again.learned
    ('spooled', False)
    """

    def __init__(
        self,
        url: str,
        placement: str,
        folder: str | Path,
        key: str | None = None,
        *,
        every: float = 5.0,
        stale: float = 3600.0,
        seed: Seed = None,
        timeout: float = 5.0,
    ) -> None:
        self._every = checks.positive("every", every)
        self._stale = checks.positive("stale", stale)
        self._placement = placement
        self._rng = generator("local", seed)
        self._client = Client(url, key, timeout=timeout, retries=0)
        self._spool = Spool(Path(folder))
        self._lock, self._exchanging = threading.Lock(), threading.Lock()
        self._learner: Learner | None = None
        self._known = -np.inf
        self._ids: list[str] = []
        self._stopping = threading.Event()
        self._recover()
        self._exchange()
        self._thread = threading.Thread(target=self._exchange_often, name="tacit", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Local of {self._placement}: {self._client!r}>"

    # What callers ask ------------------------------------------------------------------------

    def decide(
        self, key: str, *, arms: Sequence[Arm] | None = None, context: Context | None = None
    ) -> Decided:
        """Return what to show.

        Parameters
        ----------
        key : str
            What the decision is for; at most 512 bytes in UTF-8.
        arms : sequence of int or str, optional
            The arms on offer; all if left out.
        context : sequence of float or mapping, optional
            Who is asking, for policies that use it.

        Returns
        -------
        Decided
            Its durability is ``spooled`` where it was made here.

        Raises
        ------
        InvalidValue, UnknownName
            If an argument is not allowed; then nothing was decided.
        OSError
            If the disk is full; likewise.
        ServiceError
            Where the service was asked, as :meth:`Client.decide`.
        """
        context = None if context is None else _context("context", context)
        offered = None if arms is None else list(arms)
        with self._lock:
            if time.monotonic() - self._known <= self._stale and self._learner is not None:
                made = self._learner.choose(key, context, offered)
                id = self._new_id()
                kept = DECISION, id, key, made.arm, made.propensity, offered, context
                self._spool.append(_encode(kept))
                return Decided(id, made.arm, made.propensity, made.epoch, SPOOLED)
        return self._client.decide(self._placement, key, arms=offered, context=context)

    def feedback(
        self,
        decision_id: str,
        reward: float,
        *,
        metrics: Mapping[str, float] | None = None,
        feedback_id: str | None = None,
    ) -> None:
        """Say what came back for a decision, made here or by the service.

        Parameters
        ----------
        decision_id : str
        reward : float
            In [0, 1].
        metrics : mapping from str to float, optional
            What the placement watches beside it.
        feedback_id : str, optional
            Given again, it is the same feedback; by default a new one.

        Raises
        ------
        InvalidValue
            If an argument is not allowed.
        OSError
            If the disk is full; then nothing was kept.
        """
        sent = body(Feedback(decision_id, reward, feedback_id, metrics))
        with self._lock:
            self._spool.append(_encode((FEEDBACK, sent)))

    def flush(self) -> None:
        """Deliver what waits, and pull what is known.

        Raises
        ------
        Unavailable
            If the service gives no answer; what waits is kept.
        """
        self._deliver()
        self._pull()

    def close(self) -> None:
        """Deliver what waits, if the service answers, and end; what is left waits for the next."""
        self._stopping.set()
        self._thread.join()
        try:
            self._deliver()
        except ServiceError as error:
            logger.warning("%s: what waits in %s is kept", error, self._spool.folder)
        self._spool.close()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _new_id(self) -> str:
        if not self._ids:
            self._ids = new_ids(time.time_ns() // 1000, IDS)
        return self._ids.pop()

    # What is exchanged -----------------------------------------------------------------------

    def _exchange_often(self) -> None:
        while not self._stopping.wait(self._every):
            self._exchange()

    def _exchange(self) -> None:
        try:
            self.flush()
        except (ServiceError, OSError) as error:
            logger.warning("%s: what waits is kept, and delivered later", error)

    def _pull(self) -> None:
        """Go on with what the service knows by now."""
        asked = time.monotonic()
        try:
            content = self._client.learner(self._placement)
        except InvalidRequest as error:
            if self._learner is not None:
                logger.warning("%s: from now on the service is asked for each decision", error)
            with self._lock:
                self._learner = None
            return
        self._take(content, asked)
        self._keep(content)

    def _take(self, content: bytes, asked: float) -> None:
        learner = from_bytes(content, f"what {self._placement} has learned", restored)
        # Everybody is lent the same generator, and shall not draw the same.
        (own,) = self._rng.spawn(1)
        learner.rng.bit_generator.state = own.bit_generator.state
        learner.compile()
        with self._lock:
            self._learner, self._known = learner, asked

    def _keep(self, content: bytes) -> None:
        """Keep what is known for a start without the service."""
        path = self._spool.folder / LEARNER
        fresh = path.with_suffix(".new")
        fresh.write_bytes(content)
        os.replace(fresh, path)

    def _recover(self) -> None:
        """Begin with what was known when another process ended."""
        path = self._spool.folder / LEARNER
        if not path.exists():
            return
        age = max(0.0, time.time() - path.stat().st_mtime)
        try:
            self._take(path.read_bytes(), time.monotonic() - age)
        except TacitError as error:
            logger.warning("%s: it is left out", error)

    def _deliver(self) -> None:
        """Deliver what waits, oldest first."""
        with self._exchanging:
            with self._lock:
                self._spool.close_file()
            for file in self._spool.files():
                lines = self._spool.lines(file)
                for start in range(0, len(lines), AT_ONCE):
                    self._deliver_lines(lines[start : start + AT_ONCE])
                self._spool.drop(file)

    def _deliver_lines(self, lines: Sequence[bytes]) -> None:
        """Deliver decisions, then feedback; put aside what the service will never take."""
        kept = [msgspec.json.decode(line) for line in lines]
        made = [LocalDecision(*fields) for kind, *fields in kept if kind == DECISION]
        given = [Feedback(**fields[0]) for kind, *fields in kept if kind == FEEDBACK]
        refused: list[Any] = []
        if made:
            taken = self._asked(self._client.take_over, made)
            refused += [(sent, answer) for sent, answer in zip(made, taken, strict=True) if answer.detail]
        if given:
            recorded = self._asked(self._client.feedback_many, given)
            refused += [
                (one, became)
                for one, became in zip(given, recorded, strict=True)
                if became.outcome in REFUSED
            ]
        if refused:
            logger.warning(
                "the service refused %d records, the first as %r; they are in %s",
                len(refused), refused[0][1], self._spool.folder,
            )  # fmt: skip
            self._spool.refuse(map(_encode, refused))

    def _asked(self, call: Any, messages: Sequence[Any]) -> list[Any]:
        """Return what became of messages; those that are no good at all are listed apart."""
        try:
            answers: list[Any] = call(self._placement, messages)
            return answers
        except (InvalidRequest, Conflict) as error:
            if len(messages) == 1 or error.field == "placement":
                return [_Refused(str(error))] * len(messages)
        return [answer for message in messages for answer in self._asked(call, [message])]


class _Refused(msgspec.Struct):
    detail: str
    outcome: str = "invalid-value"
