"""Decisions next to the caller: what the service has learned comes here, and decisions go back by a spool."""

# 1. ``ShardLayout``, ``Known``: what is lent, in how many parts, and how old it is.
# 2. ``Local``: ``decide`` with what was lent and spool it, ``feedback`` likewise; a thread pulls and
#    delivers.
# 3. Decisions that were made before, so that a second call with the same id gets the same answer.

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

# A file of the service's learner is pulled again and again. In between, decisions are made with it
# by the very kernels of the service; each is appended to a spool on the disk before it is returned,
# and delivered in batches. The log of the service takes them over as they were made, so what it
# learns is a fold of its log as ever.

SPOOLED = "spooled"
IDS = 16
"""Ids that are made together: more cost less each, but the first is ready only with all."""
MOST_REMEMBERED = 100_000
"""Decisions whose names were given."""
LAYOUT, PLACEMENT = "shards.json", "placement"
ODD = 40503
"""Its multiples meet every partition, evenly."""

Asked = tuple[str, list[Arm] | None, Context | None]
"""A key, the arms on offer, and a context."""

logger = logging.getLogger("tacit.client")

_context = {field.name: field.check for field in fields_of(LocalDecision)}["context"]


class ShardLayout(msgspec.Struct, frozen=True):
    """In how many parts what was learned is lent, and whether any of them may decide for any key."""

    shards: Annotated[int, msgspec.Meta(ge=1)] = 1
    spread: bool = False


class Known(msgspec.Struct, frozen=True):
    """What is known next to the caller of a shard, or of the one server.

    Attributes
    ----------
    row : int or None
        The last row of its log that what was learned surely knows; None if that is not known.
    age : float
        Seconds since it was learned; infinite if nothing is lent.
    waiting : int
        Bytes that are not yet delivered.
    """

    row: int | None
    age: float
    waiting: int


class Local:
    """Decide next to the caller, in microseconds, with what a placement of the service has learned.

    What was decided and what came back is kept in a folder until the service has it in its log, so
    neither a crash of this process nor one of the service loses what :meth:`decide` and
    :meth:`feedback` have returned from; a crash of the machine may lose what was decided in the
    last ``every`` seconds. Where each decision needs something that only the service has (signals,
    a holdout, a mode other than ``online`` and ``frozen``), and while what is known here is older
    than ``stale`` seconds, the service is asked for each decision. A service in shards lends what
    each of them learned: while one is gone, decisions go on with what it knew, and it learns of them when it
    is back; the others notice nothing. It may be used by several threads.

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
        If an argument is not allowed, or the folder is of another placement.
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

    # What callers ask ------------------------------------------------------------------------

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
        """Return what to show.

        Parameters
        ----------
        key : str
            What the decision is for; at most 512 bytes in UTF-8.
        arms : sequence of int or str, optional
            The arms on offer; all if left out.
        context : sequence of float or mapping, optional
            Who is asking, for policies that use it.
        decision_id : str, optional
            Names the decision; by default a new one. Given again, it is the same decision, as long as
            this process lives and has not decided under 100,000 other names since.
        session, user : str, optional
            Of which a holdout is, where the service is asked.

        Returns
        -------
        Decided
            Its durability is ``spooled`` where it was made here.

        Raises
        ------
        InvalidValue, UnknownName
            If an argument is not allowed; then nothing was decided.
        Conflict
            If the id stands for another decision.
        OSError
            If the disk is full; likewise.
        ServiceError
            Where the service was asked, as :meth:`Client.decide`.
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
        """Say what came back for a decision, made here or by the service.

        Parameters
        ----------
        decision_id : str
        reward : float, optional
            In [0, 1]; left out where the placement learns from a metric.
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
            self._taker_of(decision_id).spool.append(encode((FEEDBACK, sent)))

    def known(self) -> list[Known]:
        """Return what is known of each shard, or of the one server."""
        now = time.monotonic()
        with self._lock:
            return [_known(shard, now) for shard in self._shards]

    def flush(self) -> None:
        """Deliver what waits, and pull what is known.

        Raises
        ------
        Unavailable
            If the service, or a shard, gives no answer; what waits for it is kept.
        """
        with self._exchanging:
            failures = [*self._deliver(), *self._pull()]
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Deliver what waits, if the service answers, and end; what is left waits for the next."""
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
        """Say at the end of the process that what waits was not delivered."""
        # Without the lock, so that no exchange holds up the end.
        if waiting := sum(shard.spool.waiting for shard in self._shards):
            what = "%d bytes of decisions and feedback wait in %s for the next Local of this folder; "
            logger.warning(what + "use it by `with`, or close() it, to deliver them", waiting, self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _shard_of(self, key: str) -> tuple[LentShard, int]:
        """Return who decides for a key, and the partition of the decision."""
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
        """Return the shard that takes a decision, and then its feedback."""
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

    # What is exchanged -----------------------------------------------------------------------

    def _exchange_often(self) -> None:
        while not self._stopping.wait(self._every):
            try:
                self._exchange()
            except Exception:  # Nobody else would say that nothing is delivered any more.
                logger.exception("the exchange with the service failed; it is tried again")

    def _exchange(self) -> None:
        try:
            self.flush()
        except (ServiceError, OSError) as error:
            logger.warning("%s: what waits is kept, and delivered later", error)

    def _deliver(self) -> list[ServiceError]:
        """Deliver what waits to each shard that takes it; return what kept it from others."""
        calls = (partial(shard.deliver, self._client, self._lock) for shard in self._shards)
        return _failures(calls)

    def _pull(self) -> list[ServiceError]:
        """Go on with what each shard knows by now; return what kept others from saying it."""
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

    # In how many shards ----------------------------------------------------------------------

    @property
    def _kept_name(self) -> str:
        """The placement whose decisions the folder has; empty if that is not known."""
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
        """Have a spool for each shard: the first one's is in the folder, the others' are in there."""
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
        """Go on with as many shards as there are by now.

        Raises
        ------
        ServiceError
            If what waits cannot be delivered before: a decision and its feedback must not wait apart.
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
    """Call all; return what they raised."""
    failures = []
    for call in calls:
        try:
            call()
        except ServiceError as error:
            failures.append(error)
    return failures


def _again(known: tuple[Asked, Decided], asked: Asked) -> Decided:
    """Return a decision that was made before, if the same is asked for."""
    before, decided = known
    if before != asked:
        id, what = decided.decision_id, "it stands for another decision; send the same request, or another id"
        raise Conflict("decision_id", id, what, "conflict", 409)
    return decided


def _known(shard: LentShard, now: float) -> Known:
    state = shard.state
    return Known(state and state.row, now - state.asked if state else math.inf, shard.spool.waiting)
