"""Client-side decisions: decide with a local replica of the service's learner, deliver decisions later."""

# 1. ``ShardLayout``, ``ReplicaState``: number and state of the replicas.
# 2. ``Local``: ``decide`` with a replica and spool the decision, ``feedback`` likewise; a thread pulls
#    learners and delivers records.
# 3. Earlier decisions, so that a second call with the same id gets the same answer.

from __future__ import annotations

import atexit
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Self

import msgspec

from tacit.client.bodies import body, fields_of
from tacit.client.call import Conflict, InvalidRequest, ServiceError
from tacit.client.clients import Client
from tacit.client.replica import DECISION, FEEDBACK, LentShard, encode, write_anew
from tacit.core import checks
from tacit.core.seeds import Seed, generator
from tacit.errors import InvalidValue, TacitError, suggesting, undoing
from tacit.service.log.ids import PARTITIONS, id_within, partition_by_id, partition_of, shard_of
from tacit.service.log.ids import decision_ids as new_ids
from tacit.service.log.requests import checked_id
from tacit.wire.decisions import Arm, Context, Decided, Feedback, LocalDecision

# The service's learner is pulled periodically. Between pulls, decisions are made with it by the same
# kernels as in the service; each decision is appended to a spool on the disk before it is returned, and
# delivered in batches. The service logs them unchanged, so what it learns is a fold of its log as always.

SPOOLED = "spooled"
IDS = 16
"""Ids that are made at a time: more cost less each, but delay the first one."""
MOST_REMEMBERED = 100_000
"""Decisions with ids from the caller that are remembered."""
LAYOUT, PLACEMENT = "shards.json", "placement"
ODD = 40503
"""Multiplier that spreads successive numbers evenly over all partitions."""

Asked = tuple[str, list[Arm] | None, Context | None]
"""A key, the arms on offer, and a context."""

logger = logging.getLogger("tacit.client")

_context = {field.name: field.check for field in fields_of(LocalDecision)}["context"]


class ShardLayout(msgspec.Struct, frozen=True):
    """The number of shards of the service, and whether any of them may decide for any key."""

    shards: Annotated[int, msgspec.Meta(ge=1)] = 1
    spread: bool = False


class Known(msgspec.Struct, frozen=True):
    """State of the local replica of a shard, or of a single server.

    Attributes
    ----------
    row : int or None
        The last row of the shard's log that the replica has learned for sure; None if not known.
    age : float
        Seconds since the replica was pulled; infinite if there is none.
    waiting : int
        Size in bytes of the records that are not yet delivered.
    """

    row: int | None
    age: float
    waiting: int


class Local:
    """Decides in the client's process, in microseconds, with a replica of a placement's learner.

    Decisions and feedback are stored in a folder until the service has logged them, so they survive a
    crash of this process or of the service once :meth:`decide` or :meth:`feedback` has returned; a
    crash of the machine may lose those of the last ``every`` seconds. The service is asked for each
    decision while the replica is older than ``stale`` seconds, or if decisions need data that only the
    service has (signals, a holdout, a mode other than ``online`` and ``frozen``). If the service has
    shards, there is a replica of each: while a shard is down, its replica still decides, and the shard
    learns from these decisions once it is back. Several threads may share an object.

    Parameters
    ----------
    url : str
        Address of the service.
    placement : str
        A placement of kind ``arms``.
    folder : str or Path
        Folder for records that are not yet delivered; for one process and placement only.
    key : str, optional
        API key, with the scopes ``decide``, ``feedback`` and ``read``.
    every : float, default 5
        Seconds between two exchanges with the service. The service shows the time of its delivery as
        the time of a decision.
    stale : float, default 3600
        Greatest age of a replica, in seconds.
    seed : int, SeedSequence or Generator, optional
        Seed of random draws, which must differ between processes; by default from the system.
    timeout : float, default 5
        As for :class:`Client`.

    Raises
    ------
    InvalidValue
        If an argument is not allowed, or the folder belongs to another placement.
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
    ...     with Client(url) as client:  # closing local has delivered all records
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
        self._folder = Path(folder)
        self._lock, self._exchanging = threading.RLock(), threading.Lock()
        self._ids: list[str] = []
        self._places, self._turns = itertools.count(), itertools.count()
        self._named: dict[str, tuple[Asked, Decided]] = {}
        self._shards: list[LentShard] = []
        self._stopping = threading.Event()
        if self._kept_name not in ("", placement):
            remedy = f"it is of placement {self._kept_name!r}; give each a folder of its own"
            raise InvalidValue("folder", str(folder), remedy)
        self._begin(self._kept_layout())
        with undoing(self._leave):
            for shard in self._shards:
                shard.recover()
            self._exchange()
        self._thread = threading.Thread(target=self._exchange_often, name="tacit", daemon=True)
        self._thread.start()
        atexit.register(self._say_left)

    def __repr__(self) -> str:
        return f"<Local of {self._placement}: {self._client!r}>"

    # Decisions and feedback ------------------------------------------------------------------

    @suggesting
    def decide(
        self,
        key: str,
        *,
        arms: Sequence[Arm] | None = None,
        context: Context | None = None,
        decision_id: str | None = None,
        session: str | None = None,
        user: str | None = None,
    ) -> Decided:
        """Choose an arm to show, with the local replica or else by the service.

        Parameters
        ----------
        key : str
            Key of the decision, such as a query; at most 512 bytes in UTF-8.
        arms : sequence of int or str, optional
            The arms on offer; all if left out.
        context : sequence of float or mapping, optional
            Properties of the user, for policies that read a context.
        decision_id : str, optional
            Id of the decision; by default a new one. The same id gets the same decision again, within
            the life of this process and its last 100,000 decisions with ids.
        session, user : str, optional
            Unit of a holdout, if the service is asked.

        Returns
        -------
        Decided
            Its durability is ``spooled`` if the replica decided.

        Raises
        ------
        InvalidValue, UnknownName
            If an argument is not allowed; then there is no decision.
        Conflict
            If another decision has the id.
        OSError
            If the disk is full; then there is no decision.
        ServiceError
            If the service is asked, as for :meth:`Client.decide`.
        """
        made = self._decide_locally(key, arms=arms, context=context, decision_id=decision_id)
        if made is not None:
            return made
        ask = partial(self._client.decide, self._placement, key, arms=arms, context=context)
        return ask(decision_id=decision_id, session=session, user=user)

    def _decide_locally(
        self,
        key: str,
        *,
        arms: Sequence[Arm] | None = None,
        context: Context | None = None,
        decision_id: str | None = None,
    ) -> Decided | None:
        """Decide from the local replica and spool the decision; None if the service must be asked."""
        context = None if context is None else _context("context", context)
        offered = None if arms is None else list(arms)
        with self._lock:
            shard, partition = self._shard_of(key)
            state = shard.state
            if state is None or time.monotonic() - state.asked > self._stale:
                return None
            if decision_id is not None:
                known = self._named.get(decision_id)
                if known is not None:
                    return _again(known, (key, offered, context))
                checked_id("decision_id", decision_id)
            made = state.learner.choose(key, context, offered)
            id = self._new_id(partition) if decision_id is None else decision_id
            kept = LocalDecision(id, key, made.arm, made.propensity, offered, context)
            self._taker_of(id).spool.append(encode((DECISION, kept)))
            decided = Decided(id, made.arm, made.propensity, made.epoch, SPOOLED)
            if decision_id is not None:
                self._remember((key, offered, context), decided)
            return decided

    def feedback(
        self,
        decision_id: str,
        reward: float | None = None,
        *,
        metrics: Mapping[str, float] | None = None,
        feedback_id: str | None = None,
    ) -> None:
        """Record the reward of a decision, of the replica or the service, and its metrics.

        Parameters
        ----------
        decision_id : str
        reward : float, optional
            In [0, 1]; left out if the placement learns from a metric.
        metrics : mapping from str to float, optional
            Amounts of metrics besides the reward, by name.
        feedback_id : str, optional
            Id of the feedback, with which it counts once; by default a new one.

        Raises
        ------
        InvalidValue
            If an argument is not allowed.
        OSError
            If the disk is full; then nothing was stored.
        """
        sent = body(Feedback(decision_id, reward, feedback_id, metrics))
        with self._lock:
            self._taker_of(decision_id).spool.append(encode((FEEDBACK, sent)))

    def known(self) -> list[Known]:
        """Return the state of the replica of each shard, or of the single server."""
        now = time.monotonic()
        with self._lock:
            return [_known(shard, now) for shard in self._shards]

    def flush(self) -> None:
        """Deliver all records, and pull the learners.

        Raises
        ------
        Unavailable
            If the service or a shard does not answer; its records stay in the folder.
        """
        with self._exchanging:
            failures = [*self._deliver(), *self._pull()]
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Deliver all records and close; if the service does not answer, they stay for the next ``Local``."""
        self._stopping.set()
        self._thread.join()
        with self._exchanging:
            for error in self._deliver():
                logger.warning("%s: what waits in %s is kept", error, self._folder)
        with self._lock:
            self._leave()
        self._client.close()
        atexit.unregister(self._say_left)

    def _say_left(self) -> None:
        """Warn at the end of the process if there are undelivered records."""
        # Without the lock, so that an exchange cannot delay the exit.
        if waiting := sum(shard.spool.waiting for shard in self._shards):
            what = "%d bytes of decisions and feedback wait in %s for the next Local of this folder; "
            logger.warning(what + "use it by `with`, or close() it, to deliver them", waiting, self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _shard_of(self, key: str) -> tuple[LentShard, int]:
        """Return the replica that decides for a key, and the partition of the decision."""
        shards = self._shards
        if len(shards) == 1:
            return shards[0], 0
        self._check_open()
        if self._layout.spread:
            partition = next(self._turns) * ODD % PARTITIONS
        else:
            partition = partition_of(self._placement, checks.key(key))
        return shards[shard_of(partition, len(shards))], partition

    def _check_open(self) -> None:
        if not self._shards:
            raise TacitError("local: it is closed; make another one")

    def _taker_of(self, id: str) -> LentShard:
        """Return the replica of the shard that logs a decision and its feedback."""
        shards = self._shards
        if len(shards) == 1:
            return shards[0]
        self._check_open()
        return shards[shard_of(partition_by_id(self._placement, id), len(shards))]

    def _remember(self, asked: Asked, decided: Decided) -> None:
        self._named[decided.decision_id] = asked, decided
        if len(self._named) > MOST_REMEMBERED:
            del self._named[next(iter(self._named))]

    def _new_id(self, partition: int) -> str:
        if len(self._shards) > 1:
            return id_within(time.time_ns() // 1000, partition, next(self._places))
        if not self._ids:
            self._ids = new_ids(time.time_ns() // 1000, IDS)
        return self._ids.pop()

    # Exchange with the service ---------------------------------------------------------------

    def _exchange_often(self) -> None:
        while not self._stopping.wait(self._every):
            try:
                self._exchange()
            except Exception:  # Without this, the thread would end silently.
                logger.exception("the exchange with the service failed; it is tried again")

    def _exchange(self) -> None:
        try:
            self.flush()
        except (ServiceError, OSError) as error:
            logger.warning("%s: what waits is kept, and delivered later", error)

    def _deliver(self) -> list[ServiceError]:
        """Deliver the records of all shards; return the errors of those that failed."""
        calls = (partial(shard.deliver, self._client, self._lock) for shard in self._shards)
        return _failures(calls)

    def _pull(self) -> list[ServiceError]:
        """Pull the learners of all shards; return the errors of those that failed."""
        try:
            lent = self._client.lent(self._placement)
        except InvalidRequest as error:
            if any(shard.state for shard in self._shards):
                logger.warning("%s: from now on the service is asked for each decision", error)
            for shard in self._shards:
                shard.state = None
            return []
        if not self._kept_name:
            write_anew(self._folder / PLACEMENT, self._placement.encode())
        self._go_on(ShardLayout(len(lent.rows), lent.spread))
        pairs = zip(self._shards, lent.rows, strict=True)
        return _failures(partial(shard.pull, self._client, row) for shard, row in pairs)

    # The layout of shards --------------------------------------------------------------------

    @property
    def _kept_name(self) -> str:
        """The placement to which the folder belongs; empty if that is not known."""
        path = self._folder / PLACEMENT
        return path.read_text() if path.exists() else ""

    def _kept_layout(self) -> ShardLayout:
        path = self._folder / LAYOUT
        if not path.exists():
            return ShardLayout()
        try:
            return msgspec.json.decode(path.read_bytes(), type=ShardLayout)
        except (UnicodeDecodeError, msgspec.MsgspecError) as error:
            logger.warning(
                "%s: it is damaged (%s), and each folder in there taken for a shard's", path, error
            )
            folders = [int(each.name) for each in self._folder.iterdir() if each.name.isdecimal()]
            return ShardLayout(1 + max(folders, default=0))

    def _begin(self, layout: ShardLayout) -> None:
        """Open a replica for each shard: the first in the folder itself, the others in its subfolders."""
        numbers = range(layout.shards) if layout.shards > 1 else (None,)
        folders = (self._folder / str(number) if number else self._folder for number in numbers)
        self._layout = layout
        for number, folder in zip(numbers, folders, strict=True):
            self._shards.append(LentShard(number, self._placement, folder, self._rng))

    def _leave(self) -> None:
        for shard in self._shards:
            shard.spool.close()
        self._shards = []

    def _go_on(self, layout: ShardLayout) -> None:
        """Change to the service's current layout of shards.

        Raises
        ------
        ServiceError
            If records cannot be delivered before: a decision and its feedback must be in one spool.
        """
        if layout == self._layout:
            return
        with self._lock:
            for error in self._deliver():
                raise error
            for shard in self._shards:
                shard.forget()
            self._leave()
            write_anew(self._folder / LAYOUT, encode(layout))
            self._begin(layout)


def _failures(calls: Iterable[Callable[[], None]]) -> list[ServiceError]:
    """Call all functions and return the errors that they raised."""
    failures = []
    for call in calls:
        try:
            call()
        except ServiceError as error:
            failures.append(error)
    return failures


def _again(known: tuple[Asked, Decided], asked: Asked) -> Decided:
    """Return an earlier decision if the request is the same.

    Raises
    ------
    Conflict
        If the id belongs to another request.
    """
    before, decided = known
    if before != asked:
        id, what = decided.decision_id, "it stands for another decision; send the same request, or another id"
        raise Conflict("decision_id", id, what, "conflict", 409)
    return decided


def _known(shard: LentShard, now: float) -> Known:
    state = shard.state
    return Known(state and state.row, now - state.asked if state else math.inf, shard.spool.waiting)
