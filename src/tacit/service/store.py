"""What the engine asks of a store, and the rows that pass between them.

The log is the truth. A store keeps decisions, feedback and marks under one ascending sequence
number, appends a group of them whole or not at all, and gives them back in that order. Rows are
kept as they came: what they teach is worked out from them, by :mod:`tacit.service.attribution`.
"""

from __future__ import annotations

import io
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tacit.decisions import Arm
from tacit.errors import MissingExtra
from tacit.service.blocks import Run
from tacit.service.errors import StoreError

if TYPE_CHECKING:
    from tacit.service.config import StoreConfig

REWARD, CLICKS, EXAMINED, ACTIVATE = "reward", "clicks", "examined", "activate"
TICK, MODE, SETTINGS, MERGE = "tick", "mode", "settings", "merge"

QUERY, EVENT = "query", "event"

READ_ROWS = 4096
BATCH = 2**20
"""Bytes of a snapshot that are written at once, so that no commit waits long."""
SWEPT = 4
"""Pieces of a snapshot that are removed at once, for the same reason."""
SNAPSHOTS, BASES = "snapshots", "bases"
_seq = attrgetter("seq")

ONLINE, APPRENTICE, FROZEN, SHADOW = MODES = ("online", "apprentice", "frozen", "shadow")


class DecisionRow(NamedTuple):
    """A decision in the log.

    Attributes
    ----------
    seq : int
        Place in the log, from 1; shared with feedback and marks.
    id : str
        Unique among the decisions of its placement. Where the client gave it, every draw behind
        the decision comes from it and from the placement's seed.
    placement, policy : int
        The store's numbers for them.
    time : int
        Microseconds since 1970; never less than that of the row before.
    key : str
    offered : str or None
        JSON list of the arms that were on offer; None for all of them. The first one is the
        baseline.
    arm : int or str
        What was shown.
    propensity : float or None
        None where the policy is deterministic.
    epoch : int
    context : str or None
        JSON list of numbers.
    mode : str
        The placement's mode at the time.
    would : int, str or None
        What the policy would have shown (mode ``apprentice``), or the second one (``shadow``).
    would_propensity : float or None
    deferred : int
        1 where it counts only once it is activated.
    asked : str or None
        What else the request said, as the placement's kind keeps it: the features of the arms, a
        digest of rankings.
    shown : str or None
        JSON of what was shown, where one arm does not say it: a pair and its interleaved list, a
        slate.
    """

    seq: int
    id: str
    placement: int
    policy: int
    time: int
    key: str
    offered: str | None
    arm: Arm
    propensity: float | None
    epoch: int
    context: str | None
    mode: str = ONLINE
    would: Arm | None = None
    would_propensity: float | None = None
    deferred: int = 0
    asked: str | None = None
    shown: str | None = None


class FeedbackRow(NamedTuple):
    """Feedback in the log: something that happened to what was shown.

    Attributes
    ----------
    seq : int
    placement : int
    decision : int
        ``seq`` of the decision.
    id : str or None
        Given by the client, unique for the decision: sent again, it is the same feedback.
    time : int
        Microseconds since 1970.
    kind : str
        ``reward``, ``clicks``, ``examined`` or ``activate``.
    reward : float or None
        As the client sent it, in [0, 1] or where the placement's rule says so in [−1, 1]; None
        unless the kind is ``reward``.
    clicks : str or None
        JSON list of the clicked positions from 0, ascending; None unless the kind is ``clicks``.
    """

    seq: int
    placement: int
    decision: int
    id: str | None
    time: int
    kind: str
    reward: float | None
    clicks: str | None = None

    @property
    def content(self) -> tuple[str, float | None, str | None]:
        """What it says, whenever it came."""
        return self.kind, self.reward, self.clicks


class MarkRow(NamedTuple):
    """What else happened: time went by (``tick``), a placement's mode or settings changed, another
    shard told what it has learned (``merge``).

    Attributes
    ----------
    seq : int
    placement : int or None
        None for all.
    time : int
        Microseconds since 1970.
    kind : str
        ``tick``, ``mode``, ``settings`` or ``merge``.
    value : str
        The new mode, JSON of the settings, or JSON of what was told.
    """

    seq: int
    placement: int | None
    time: int
    kind: str
    value: str


class RecordRow(NamedTuple):
    """A record that stands beside the log: of what was not decided here, so it teaches nothing.

    Attributes
    ----------
    placement : int
    kind : str
        ``query`` or ``event``.
    id : str
        Unique for placement and kind.
    time : int
        When it came, in microseconds since 1970.
    content : str
        JSON.
    """

    placement: int
    kind: str
    id: str
    time: int
    content: str


Event = DecisionRow | FeedbackRow | MarkRow


class Rows(NamedTuple):
    """A stretch of the log, each kind in ascending order."""

    decisions: Run[DecisionRow] | list[DecisionRow]
    feedback: Run[FeedbackRow] | list[FeedbackRow]
    marks: list[MarkRow]

    @classmethod
    def none(cls) -> Rows:
        """Return an empty stretch, to be extended."""
        return cls(Run(), Run(), [])

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self.decisions) + len(self.feedback) + len(self.marks)

    def all(self) -> Iterator[DecisionRow | FeedbackRow | MarkRow]:
        """Give every row, kind by kind."""
        yield from self.decisions
        yield from self.feedback
        yield from self.marks

    def those(self, wanted: Callable[[Any], bool]) -> Rows:
        """Return some of the rows."""
        return Rows(*(list(filter(wanted, rows)) for rows in self))  # type: ignore[arg-type]

    def and_then(self, more: Rows) -> Rows:
        """Return these rows and those after them."""
        joined = Rows.none()
        for rows in (self, more):
            joined.decisions.extend(rows.decisions)
            joined.feedback.extend(rows.feedback)
            joined.marks.extend(rows.marks)
        return joined


def in_order(parts: Sequence[Iterator[Event]]) -> Iterator[Event]:
    """Merge parts of the log, each in ascending order, stretch by stretch.

    Rows of a kind come in groups, so that few comparisons tell where each stretch ends.
    """
    read: list[list[Event]] = [[] for _ in parts]
    done = [0] * len(parts)
    while True:
        for i, part in enumerate(parts):
            if done[i] == len(read[i]):
                read[i], done[i] = list(islice(part, READ_ROWS)), 0
        heads = sorted((rows[done[i]].seq, i) for i, rows in enumerate(read) if rows)
        if not heads:
            return
        first, stop = heads[0][1], len(read[heads[0][1]])
        if len(heads) > 1:
            stop = bisect_left(read[first], heads[1][0], done[first], key=_seq)
        yield from read[first][done[first] : stop]
        done[first] = stop


class Found(NamedTuple):
    """A decision, and what came back for it so far."""

    decision: DecisionRow
    feedback: list[FeedbackRow]


class StoredPlacement(NamedTuple):
    """A placement as the store has it."""

    id: int
    policy: int
    spec: str
    seed: int


class End(NamedTuple):
    """The last row's sequence number and time; zeros where there is none."""

    seq: int
    time: int


class Snapshot(NamedTuple):
    """What a placement had learned from the log up to ``seq``.

    Attributes
    ----------
    placement, seq, time : int
    plan : str
        How the log was folded; another plan needs the whole fold anew.
    learner : bytes
    shadow : bytes or None
        The second policy's learner.
    series : bytes
    windows : bytes
        Decisions whose windows are open, the mode, the counts.
    """

    placement: int
    seq: int
    time: int
    plan: str
    learner: bytes
    shadow: bytes | None
    series: bytes
    windows: bytes

    def draft(self) -> Draft:
        """Return it as it is written."""
        whole = zip(self._fields[4:], self[4:], strict=True)
        pieces = ((field, content) for field, content in whole if content is not None)
        return Draft(*self[:4], pieces)


class Draft(NamedTuple):
    """A snapshot that is still to be encoded, of what stood when it was made.

    Attributes
    ----------
    placement, seq, time, plan
        As those of the :class:`Snapshot`.
    pieces : iterator
        Pairs of a field of the snapshot, from ``learner`` on, and the next bytes of it.
    """

    placement: int
    seq: int
    time: int
    plan: str
    pieces: Iterator[tuple[str, bytes]]

    def batches(self) -> Iterator[list[tuple[str, bytes]]]:
        """Give the pieces, small ones together."""
        batch: list[tuple[str, bytes]] = []
        size = 0
        for field, content in self.pieces:
            batch.append((field, content))
            size += len(content)
            if size >= BATCH:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


def assembled(head: Sequence[Any], pieces: Iterable[tuple[str, bytes]]) -> Snapshot:
    """Return a snapshot from its first four fields and its pieces, in order."""
    written: dict[str, io.BytesIO] = {}
    for field, content in pieces:
        written.setdefault(field, io.BytesIO()).write(content)
    whole = {field: buffer.getvalue() for field, buffer in written.items()}
    fields = (whole.get("learner", b""), whole.get("shadow"))
    return Snapshot._make([*head, *fields, whole.get("series", b""), whole.get("windows", b"")])


class Old(NamedTuple):
    """What is older than a placement keeps: decisions with all that came back for them, marks,
    records."""

    rows: Rows
    records: list[RecordRow]

    @property
    def size(self) -> int:
        """How many rows there are."""
        return self.rows.size + len(self.records)


class Store(Protocol):
    """A log that survives.

    Writing methods run one at a time, in one thread; the others may run beside them, also one
    at a time. Each raises StoreError if the store fails.
    """

    def placement(self, name: str, spec: str, seed: int) -> StoredPlacement:
        """Return a placement, which gets ``spec`` and ``seed`` if it is new."""

    def placements(self) -> dict[str, StoredPlacement]:
        """Return all placements by their names."""

    def append(self, rows: Rows) -> None:
        """Make a group durable: all of it, or nothing."""

    def keep(self, records: Sequence[RecordRow]) -> list[str | None]:
        """Make records durable that are not there yet; return the content of those that are."""

    def records(self) -> Iterator[RecordRow]:
        """Give all records that were kept, in the order in which they came."""

    def find(self, wanted: Sequence[tuple[int, str]]) -> dict[tuple[int, str], Found]:
        """Return those decisions that exist, from their placements and ids."""

    def events(self, after: int) -> Iterator[Event]:
        """Give the log after a sequence number, in order."""

    def end(self) -> End:
        """Return where the log ends."""

    def snapshot(self, placement: int) -> Snapshot | None:
        """Return a placement's latest snapshot."""

    def saving(self, draft: Draft, what: str = SNAPSHOTS) -> Iterator[None]:
        """Write a snapshot, or a base, step by step; then it is in place of the one before.

        Each step is a transaction of its own, so that others may be committed in between. If the
        steps come to no end, the one before stands.
        """

    def base(self, placement: int) -> Snapshot | None:
        """Return where a placement's log begins, if what was before has been dropped."""

    def begins(self, placement: int) -> End | None:
        """Return the row and the time of a placement's base."""

    def old(self, placement: int | None, before: int, time: int, limit: int) -> Old:
        """Return the first rows of a placement, or of none, that are older than ``time``.

        Of decisions, those whose feedback came before the sequence number ``before``, too; each
        with all its feedback.
        """

    def drop(self, old: Old) -> None:
        """Remove rows for good: all of them, or none."""

    def probe(self, time: int) -> None:
        """Commit something small, to show that commits work."""

    def size(self) -> int:
        """Return the bytes that the store takes."""

    def close(self) -> None:
        """Release everything; the store cannot be used afterwards."""


def save(store: Store, snapshot: Snapshot, what: str = SNAPSHOTS) -> None:
    """Keep a snapshot, or a base, in place of the one before."""
    for _ in store.saving(snapshot.draft(), what):
        pass


def open_store(config: StoreConfig) -> Store:
    """Open the store that a configuration names.

    Raises
    ------
    MissingExtra
        If a package that it needs is not installed.
    StoreError
        If it cannot be opened, or the log is dealt out to shards.
    """
    if config.url is not None:
        from tacit.service.layout import LayoutStore

        store = LayoutStore(config.url, config.schema)
        layout = store.layout()
        if layout is not None:
            store.close()
            raise StoreError(
                f"store.schema: {config.schema} is dealt out to {layout.shards} shards; serve it "
                "with --ray, or give another schema"
            )
        return store
    try:
        from tacit.service.sqlite import SqliteStore
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "apsw", "service") from error
    return SqliteStore(config.path)
