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

from tacit.client.bodies import make_body, read_fields
from tacit.client.call import Conflict, InvalidRequest, ServiceError
from tacit.client.clients import Client
from tacit.client.replica import DECISION, FEEDBACK, ShardReplica, encode, replace_file
from tacit.core import checks
from tacit.core.seeds import Seed, generator
from tacit.errors import InvalidValue, TacitError, undo_on_error, with_suggestions
from tacit.service.log.ids import (
    PARTITIONS,
    create_partition_id,
    find_id_partition,
    find_shard,
    hash_partition,
)
from tacit.service.log.ids import create_decision_ids as new_ids
from tacit.service.log.requests import check_id
from tacit.wire.decisions import Arm, Context, Decided, Feedback, LocalDecision

# The service's learner is pulled periodically. Between pulls, decisions are made with it by the same
# kernels as in the service; each decision is appended to a spool on the disk before it is returned, and
# delivered in batches. The service logs them unchanged, so what it learns is a fold of its log as always.

SPOOLED = "spooled"
ID_BATCH = 16
"""Ids that are made at a time: more cost less each, but delay the first one."""
MOST_REMEMBERED = 100_000
"""Decisions with ids from the caller that are remembered."""
LAYOUT, PLACEMENT = "shards.json", "placement"
PARTITION_STEP = 40503
"""Multiplier that spreads successive numbers evenly over all partitions."""

DecisionInput = tuple[str, list[Arm] | None, Context | None]
"""A key, the arms on offer, and a context."""

logger = logging.getLogger("tacit.client")

_context = {field.name: field.check for field in read_fields(LocalDecision)}["context"]


class ShardLayout(msgspec.Struct, frozen=True):
    """The number of shards of the service, and whether any of them may decide for any key."""

    shards: Annotated[int, msgspec.Meta(ge=1)] = 1
    spread: bool = False


class ReplicaState(msgspec.Struct, frozen=True):
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
    crash of the machine may lose the last ``every`` seconds. The service is asked for each
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
    >>> from tacit.service.app.server import run_in_thread
    >>> folder = tempfile.TemporaryDirectory()
    >>> values = {"server.port": 0, "store.path": f"{folder.name}/tacit.db"}
    >>> with folder, run_in_thread(load_config(overrides=values)) as url:
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
        self._decisions: dict[str, tuple[DecisionInput, Decided]] = {}
        self._shards: list[ShardReplica] = []
        self._stopping = threading.Event()
        if self._folder_placement not in ("", placement):
            remedy = f"it is of placement {self._folder_placement!r}; give each a folder of its own"
            raise InvalidValue("folder", str(folder), remedy)
        self._open_replicas(self._read_layout())
        with undo_on_error(self._close_replicas):
            for shard in self._shards:
                shard.recover()
            self._exchange()
        self._thread = threading.Thread(target=self._exchange_periodically, name="tacit", daemon=True)
        self._thread.start()
        atexit.register(self._warn_undelivered)

    def __repr__(self) -> str:
        return f"<Local of {self._placement}: {self._client!r}>"

    # Decisions and feedback ------------------------------------------------------------------

    @with_suggestions
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

        A decision of the replica is stored in the folder and delivered to the service later.

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
        decision = self._decide_locally(key, arms, context, decision_id)
        if decision is not None:
            return decision
        ask = partial(self._client.decide, self._placement, key, arms=arms, context=context)
        return ask(decision_id=decision_id, session=session, user=user)

    def _decide_locally(
        self, key: str, arms: Sequence[Arm] | None, context: Context | None, decision_id: str | None
    ) -> Decided | None:
        """Decide with the local replica and spool the decision; a known id gets its earlier decision back.

        Return None if the service must be asked, since there is no replica or it is too old. A request with
        an earlier id gets the earlier decision, which is not appended again.
        """
        context = None if context is None else _context("context", context)
        offered = None if arms is None else list(arms)
        with self._lock:
            shard, partition = self._find_replica(key)
            state = shard.state
            if state is None or time.monotonic() - state.request_time > self._stale:
                return None
            if decision_id is not None:
                earlier = self._decisions.get(decision_id)
                if earlier is not None:
                    return _repeat_decision(earlier, (key, offered, context))
                check_id("decision_id", decision_id)
            decision = state.learner.choose(key, context, offered)
            id = self._new_id(partition) if decision_id is None else decision_id
            local_decision = LocalDecision(id, key, decision.arm, decision.propensity, offered, context)
            self._find_owner(id).spool.append(encode((DECISION, local_decision)))
            answer = Decided(id, decision.arm, decision.propensity, decision.epoch, SPOOLED)
            if decision_id is not None:
                self._remember((key, offered, context), answer)
            return answer

    def feedback(
        self,
        decision_id: str,
        reward: float | None = None,
        *,
        metrics: Mapping[str, float] | None = None,
        feedback_id: str | None = None,
    ) -> None:
        """Store the reward and the metrics of a decision in the folder; they are delivered later.

        The decision may be the replica's or the service's.

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
        message = make_body(Feedback(decision_id, reward, feedback_id, metrics))
        with self._lock:
            self._find_owner(decision_id).spool.append(encode((FEEDBACK, message)))

    def read_replicas(self) -> list[ReplicaState]:
        """Return row, age and undelivered bytes of the replica of each shard, or of the single server."""
        now, states = time.monotonic(), []
        with self._lock:
            for shard in self._shards:
                state = shard.state
                age = math.inf if state is None else now - state.request_time
                states.append(ReplicaState(state and state.row, age, shard.spool.waiting))
        return states

    def flush(self) -> None:
        """Deliver all spooled records to the service, and pull current learners.

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
        """Stop the thread, deliver all records, and close files and connections.

        If the service does not answer, a warning is logged and the records stay for the next ``Local``.
        """
        self._stopping.set()
        self._thread.join()
        with self._exchanging:
            for error in self._deliver():
                logger.warning("%s: what waits in %s is kept", error, self._folder)
        with self._lock:
            self._close_replicas()
        self._client.close()
        atexit.unregister(self._warn_undelivered)

    def _warn_undelivered(self) -> None:
        """Log a warning at the end of the process if there are undelivered records."""
        # Without the lock, so that an exchange cannot delay the exit.
        if waiting := sum(shard.spool.waiting for shard in self._shards):
            what = "%d bytes of decisions and feedback wait in %s for the next Local of this folder; "
            logger.warning(what + "use it by `with`, or close() it, to deliver them", waiting, self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Deliver all records and close."""
        self.close()

    def _find_replica(self, key: str) -> tuple[ShardReplica, int]:
        """Return the replica that decides for a key, and the partition of the decision's id.

        If any shard may decide for any key, calls take the partitions in turn. Raises ``TacitError`` if
        closed.
        """
        shards = self._shards
        if len(shards) == 1:
            return shards[0], 0
        self._check_open()
        if self._layout.spread:
            partition = next(self._turns) * PARTITION_STEP % PARTITIONS
        else:
            partition = hash_partition(self._placement, checks.key(key))
        return shards[find_shard(partition, len(shards))], partition

    def _check_open(self) -> None:
        """Raise ``TacitError`` if the object is closed."""
        if not self._shards:
            raise TacitError("local: it is closed; make another one")

    def _find_owner(self, id: str) -> ShardReplica:
        """Return the replica of the shard that logs a decision and its feedback, by the decision's id."""
        shards = self._shards
        if len(shards) == 1:
            return shards[0]
        self._check_open()
        return shards[find_shard(find_id_partition(self._placement, id), len(shards))]

    def _remember(self, request: DecisionInput, answer: Decided) -> None:
        """Store a request and its decision by id; forget the oldest beyond ``MOST_REMEMBERED``."""
        self._decisions[answer.decision_id] = request, answer
        if len(self._decisions) > MOST_REMEMBERED:
            del self._decisions[next(iter(self._decisions))]

    def _new_id(self, partition: int) -> str:
        """Return a new decision id, of the partition if there are several shards.

        For a single server, ids are taken from a batch, which is made when it is empty.
        """
        if len(self._shards) > 1:
            return create_partition_id(time.time_ns() // 1000, partition, next(self._places))
        if not self._ids:
            self._ids = new_ids(time.time_ns() // 1000, ID_BATCH)
        return self._ids.pop()

    # Exchange with the service ---------------------------------------------------------------

    def _exchange_periodically(self) -> None:
        """Exchange with the service every ``every`` seconds until the object is closed; errors are logged."""
        while not self._stopping.wait(self._every):
            try:
                self._exchange()
            except Exception:  # Without this, the thread would end silently.
                logger.exception("the exchange with the service failed; it is tried again")

    def _exchange(self) -> None:
        """Deliver records and pull learners once; log a warning if that fails."""
        try:
            self.flush()
        except (ServiceError, OSError) as error:
            logger.warning("%s: what waits is kept, and delivered later", error)

    def _deliver(self) -> list[ServiceError]:
        """Deliver the spooled records of all shards.

        Return the errors of the shards for which this failed.
        """
        return _collect_errors(partial(shard.deliver, self._client, self._lock) for shard in self._shards)

    def _pull(self) -> list[ServiceError]:
        """Pull the learners of all shards, and change the layout to the service's; return errors of shards.

        If the service refuses client-side decisions, all replicas are dropped with a logged warning, so that
        it decides. The first success writes the placement's name to the folder.
        """
        try:
            parts = self._client.list_replicas(self._placement)
        except InvalidRequest as error:
            if any(shard.state for shard in self._shards):
                logger.warning("%s: from now on the service is asked for each decision", error)
            for shard in self._shards:
                shard.state = None
            return []
        if not self._folder_placement:
            replace_file(self._folder / PLACEMENT, self._placement.encode())
        self._change_layout(ShardLayout(len(parts.rows), parts.spread))
        pairs = zip(self._shards, parts.rows, strict=True)
        return _collect_errors(partial(shard.pull, self._client, row) for shard, row in pairs)

    # The layout of shards --------------------------------------------------------------------

    @property
    def _folder_placement(self) -> str:
        """The placement to which the folder belongs; empty if that is not known."""
        path = self._folder / PLACEMENT
        return path.read_text() if path.exists() else ""

    def _read_layout(self) -> ShardLayout:
        """Return the stored layout of shards; a single server if there is none.

        If the file is damaged, a warning is logged and the number of shards is taken from the subfolders.
        """
        path = self._folder / LAYOUT
        if not path.exists():
            return ShardLayout()
        try:
            return msgspec.json.decode(path.read_bytes(), type=ShardLayout)
        except (UnicodeDecodeError, msgspec.MsgspecError) as error:
            what = "%s: it is damaged (%s), and each folder in there taken for a shard's"
            logger.warning(what, path, error)
            names = [subfolder.name for subfolder in self._folder.iterdir()]
            return ShardLayout(1 + max(map(int, filter(str.isdecimal, names)), default=0))

    def _open_replicas(self, layout: ShardLayout) -> None:
        """Set the layout and open a replica for each shard, with its spool.

        The first is in the folder itself, the others in its subfolders.
        """
        numbers = range(layout.shards) if layout.shards > 1 else (None,)
        folders = (self._folder / str(number) if number else self._folder for number in numbers)
        self._layout = layout
        for number, folder in zip(numbers, folders, strict=True):
            self._shards.append(ShardReplica(number, self._placement, folder, self._rng))

    def _close_replicas(self) -> None:
        """Close the spools of all replicas and remove the replicas."""
        for shard in self._shards:
            shard.spool.close()
        self._shards = []

    def _change_layout(self, layout: ShardLayout) -> None:
        """Deliver all records, store another layout of shards, and open new replicas without learners.

        Nothing happens if the layout is the current one.

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
            self._close_replicas()
            replace_file(self._folder / LAYOUT, encode(layout))
            self._open_replicas(layout)


def _collect_errors(calls: Iterable[Callable[[], None]]) -> list[ServiceError]:
    """Call all functions and return the errors of type ``ServiceError`` that they raised."""
    failures = []
    for call in calls:
        try:
            call()
        except ServiceError as error:
            failures.append(error)
    return failures


def _repeat_decision(earlier: tuple[DecisionInput, Decided], request: DecisionInput) -> Decided:
    """Return an earlier decision if the request is the same.

    Raises
    ------
    Conflict
        If the id belongs to another request.
    """
    before, answer = earlier
    if before != request:
        id, what = answer.decision_id, "it stands for another decision; send the same request, or another id"
        raise Conflict("decision_id", id, what, kind="conflict", status=409)
    return answer
