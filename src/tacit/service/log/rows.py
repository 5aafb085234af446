"""The rows of the log; before them, what a decision on a list showed, and last, how rows are read again."""

# 1. A list as one text of a row.
# 2. ``DecisionRow``, ``FeedbackRow``, ``MarkRow``, ``RecordRow``: the four kinds, and the checksum beside
#    each.
# 3. ``Rows``, ``in_order``, ``stretches``: parts of the log, and the whole in its order.
# 4. How rows are read again: propensities, JSON, decisions.

from __future__ import annotations

import json
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from tacit.core.arrays import Floats
from tacit.learning.decisions import NOTHING, Arm, Decision
from tacit.learning.learner import Learner
from tacit.service.log.blocks import Block, BlockList, tuples

# ---- What a decision on a list showed, as the log keeps it


class Slate(NamedTuple):
    """A list that was shown.

    Attributes
    ----------
    arms : list
        From the top; None at an empty position.
    prefixes, places : list of float
        The propensities of its beginnings and of its arms at their positions; empty where they are
        not known.
    """

    arms: list[Arm | None]
    prefixes: list[float]
    places: list[float]


def slate_text(arms: Sequence[Arm | None], prefixes: Floats, places: Floats) -> str:
    """Return a list as JSON: its arms alone, or with their propensities.

    Examples
    --------
    >>> import numpy as np
    >>> slate_text(["b", "a"], np.array([]), np.array([]))
    '["b","a"]'
    >>> slate_text(["b", "a"], np.array([0.5, 0.25, 0.25]), np.array([0.5, 0.75, 1.0]))
    '{"slate":["b","a"],"prefixes":[0.5,0.25],"places":[0.5,0.75]}'
    """
    if not len(prefixes):
        return text_of(arms)
    parts = {"slate": arms, "prefixes": prefixes[: len(arms)].tolist()}
    parts["places"] = places[: len(arms)].tolist()
    return text_of(parts)


def slate_of(shown: str | None) -> Slate:
    """Return the list of what :func:`slate_text` gave.

    Examples
    --------
    >>> slate_of('["b","a"]')
    Slate(arms=['b', 'a'], prefixes=[], places=[])
    """
    parts = json.loads(shown or "")
    if isinstance(parts, list):
        return Slate(parts, [], [])
    return Slate(parts["slate"], parts["prefixes"], parts["places"])


# ---- The rows of the log: decisions, feedback and marks, under one ascending sequence number
#
# They are kept as they came: what they teach is worked out from them, by
# :mod:`tacit.service.placements.attribution`.

REWARD, CLICKS, EXAMINED, ACTIVATE = "reward", "clicks", "examined", "activate"
TICK, MODE, MERGE, HOLDOUT = "tick", "mode", "merge", "holdout"
FEEDBACK_RULE = "feedback-rule"
ARMS, PIN, POLICY, CONFIGURATION = "arms", "pin", "policy", "configuration"
START, FORGET, ITEMS, GUARDRAIL, FED = "start", "forget", "items", "guardrail", "fed"
HISTORY = MODE, HOLDOUT, ARMS, PIN, POLICY, CONFIGURATION, START, FORGET, GUARDRAIL, FEEDBACK_RULE
"""Marks that say who changed what; they are kept for good."""

QUERY = "query"
"""Kind of a record of a query; another record is of an event."""

READ_ROWS = 4096
FOLD_ROWS = 4096
_seq = attrgetter("seq")
# A store takes a number of NumPy for the number, and so does the checksum.
_canonical = msgspec.msgpack.Encoder(enc_hook=methodcaller("item")).encode

logger = logging.getLogger(__name__)

ONLINE, FROZEN, SHADOW, CONTROL = MODES = "online", "frozen", "shadow", "control"
APPRENTICE = "apprentice"
"""Mode of decisions of 0.3 that showed the first arm on offer; only read from logs."""
PINNED, PINNED_FROZEN = OF_PINS = "pinned", "pinned-frozen"
"""Modes of decisions that showed what was pinned, while the placement learned or was frozen."""
FIXED = (APPRENTICE, CONTROL, PINNED, PINNED_FROZEN)
"""Modes whose decisions show what is fixed: they say nothing about what else could be shown."""
UNLEARNED = (FROZEN, PINNED_FROZEN)
"""Modes whose decisions teach nothing."""


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
        Of what was shown; None where the policy is deterministic and there is no holdout.
    epoch : int
    context : str or None
        JSON list of numbers.
    mode : str
        The placement's mode at the time; ``pinned`` or ``pinned-frozen`` where it showed what was
        pinned.
    would : int, str or None
        What the policy would have shown where something was pinned, or the second one
        (``shadow``).
    would_propensity : float or None
        Its propensity. Where the control of a holdout has a policy of its own, and ``would`` is
        None: with what probability the one of both that decided chose this; 0 if not known.
    deferred : int
        1 where it counts only once it is activated.
    asked : str or None
        What else the request said, as the placement's kind keeps it: the features of the arms, a
        digest of rankings; of a search with segments or a known user JSON of these.
    shown : str or None
        JSON of what was shown, where one arm does not say it: a pair and its interleaved list, a
        slate.
    control : int or None
        1 where the control of a holdout decided, 0 where the policy did beside it; None without a
        holdout. The propensity is that of both together.
    bucket : int or None
        Where users or sessions stay in their group: to which of 128 buckets this one belongs.
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
    control: int | None = None
    bucket: int | None = None


def by_two(row: DecisionRow) -> bool:
    """Whether a control with a policy of its own stood beside a decision, or made it."""
    return row.control is not None and row.would is None and row.would_propensity is not None


def some_by_two(rows: Block[DecisionRow]) -> bool:
    """Whether that is so of some of many decisions; most often of none."""
    own = rows.column("would_propensity")
    return own.count(None) < len(own) and any(map(by_two, rows))


Content = tuple[str, float | None, str | None] | tuple[str, float | None, str | None, str]
"""What feedback says: its kind, its reward, its clicks, and metrics if there are any."""


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
        JSON list of the clicked positions from 0, ascending; of another action than a click, of
        objects with ``position`` and ``action``. None unless the kind is ``clicks``.
    metrics : str or None
        JSON of the metrics that came with it, by name.
    """

    seq: int
    placement: int
    decision: int
    id: str | None
    time: int
    kind: str
    reward: float | None
    clicks: str | None = None
    metrics: str | None = None

    @property
    def content(self) -> Content:
        """What it says, whenever it came."""
        said = self.kind, self.reward, self.clicks
        return said if self.metrics is None else (*said, self.metrics)


class MarkRow(NamedTuple):
    """What else happened: time went by (``tick``), another shard has sent what it learned
    (``merge``), the catalogue was changed (``items``), or what :data:`HISTORY` lists was changed.

    Attributes
    ----------
    seq : int
    placement : int or None
        None for all.
    time : int
        Microseconds since 1970.
    kind : str
        ``tick``, ``merge``, ``items``, ``fed``, or one of :data:`HISTORY`.
    value : str
        The new mode, or JSON of what is new.
    who : str or None
        The name of the key with which it was changed, ``configuration`` or ``guardrail``; None without
        keys.
    """

    seq: int
    placement: int | None
    time: int
    kind: str
    value: str
    who: str | None = None


class RecordRow(NamedTuple):
    """A record of User Behavior Insights that 0.3 kept beside the log; none are added any more.

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


def row_checksum(row: tuple[Any, ...]) -> int:
    """Return the checksum that stands beside a row in its store.

    It is the CRC-32 of the row's fields as an array of MessagePack: all bits of a number count, and
    an arm that is a number differs from one with its digits as a name.

    Parameters
    ----------
    row : DecisionRow, FeedbackRow, MarkRow or RecordRow

    Examples
    --------
    >>> row_checksum(MarkRow(1, 1, 100, "mode", "frozen"))
    3660063694
    """
    return crc32(_canonical(row))


def with_checksums(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows as a table takes them: each with its checksum."""
    # No function of its own for each: that would cost as much as the checksum.
    return [(*row, crc32(_canonical(row))) for row in tuples(rows)]


class Rows(NamedTuple):
    """A stretch of the log, each kind in ascending order."""

    decisions: BlockList[DecisionRow] | list[DecisionRow]
    feedback: BlockList[FeedbackRow] | list[FeedbackRow]
    marks: list[MarkRow]

    @classmethod
    def none(cls) -> Rows:
        """Return an empty stretch, to be extended."""
        return cls(BlockList(), BlockList(), [])

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self.decisions) + len(self.feedback) + len(self.marks)

    def all(self) -> Iterator[DecisionRow | FeedbackRow | MarkRow]:
        """Yield every row, kind by kind."""
        yield from self.decisions
        yield from self.feedback
        yield from self.marks

    def where(self, wanted: Callable[[Any], bool]) -> Rows:
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
    """Yield the rows of parts of the log, each in ascending order, stretch by stretch.

    Rows of a kind come in groups, so that few comparisons tell where each stretch ends. Where a
    number is there twice, which only two writers can have caused, the log says so.
    """
    warned = False
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
            stop = bisect_left(read[first], heads[1][0], done[first] + 1, key=_seq)
            if heads[0][0] == heads[1][0] and not warned:
                warned = True
                logger.error("log: row %d is there twice; see: tacit log verify", heads[0][0])
        yield from read[first][done[first] : stop]
        done[first] = stop


def stretches(events: Iterable[Event]) -> Iterator[Block[Any]]:
    """Yield the log in blocks, each of one kind of row, placement, time and mode."""
    for (kind, *_), run in groupby(events, key=_kind):
        while rows := list(islice(run, FOLD_ROWS)):
            yield Block.of(kind, rows)


def _kind(event: Event) -> tuple[Any, ...]:
    mode = event.mode if isinstance(event, DecisionRow) else None
    return type(event), event.placement, event.time, mode


class FoundDecision(NamedTuple):
    """A decision, and what came back for it so far."""

    decision: DecisionRow
    feedback: list[FeedbackRow]


# ---- How rows are read again


def learned_propensities(rows: Block[DecisionRow]) -> list[float | None]:
    """Return the propensities of decisions to those who learn from them."""
    logged: list[float | None] = rows.column("propensity")
    if not some_by_two(rows):
        return logged
    # One that rounding made 0 is not known.
    return [(row.would_propensity or None) if by_two(row) else row.propensity for row in rows]


def text_of(value: Any) -> str:
    """Return what a column keeps of a value: JSON, which msgspec reads back as the value's type."""
    return msgspec.json.encode(value).decode()


def parsed(text: str | None) -> Any:
    """Return what JSON of the log says; None where there is none."""
    return None if text is None else json.loads(text)


def read_by(learner: Learner, decision: Decision) -> Decision:
    """Return a decision without its context where that is not read."""
    return decision if learner.policy.context_dim else decision._replace(context=NOTHING)
