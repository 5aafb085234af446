"""The rows of the log: decisions, feedback, change events and records, and how to read and merge them."""

# 1. A shown list as the text of one column.
# 2. ``DecisionRow``, ``FeedbackRow``, ``ChangeRow``, ``RecordRow``: the four kinds of rows, and their
#    checksums.
# 3. ``Rows``, ``merge_rows``, ``split_into_blocks``: parts of the log, and the whole log in its order.
# 4. Helpers to read rows: propensities, JSON, decisions.

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from tacit.core.arrays import Floats
from tacit.learning.decisions import NO_VALUES, Arm, Decision
from tacit.learning.learner import Learner
from tacit.service.log.blocks import Block
from tacit.service.log.ids import as_datetime

# ---- A shown list, as the log stores it


class ShownList(NamedTuple):
    """A list that was shown.

    Attributes
    ----------
    arms : list
        From the top; None at an empty position.
    prefix_propensities, position_propensities : list of float
        Propensities of the list's prefixes, and of each arm at its position; empty if unknown.
    """

    arms: list[Arm | None]
    prefix_propensities: list[float]
    position_propensities: list[float]


def encode_list(
    arms: Sequence[Arm | None], prefix_propensities: Floats, position_propensities: Floats
) -> str:
    """Return a shown list as JSON: its arms, with their propensities if these are known.

    Examples
    --------
    >>> import numpy as np
    >>> encode_list(["b", "a"], np.array([]), np.array([]))
    '["b","a"]'
    >>> encode_list(["b", "a"], np.array([0.5, 0.25, 0.25]), np.array([0.5, 0.75, 1.0]))
    '{"slate":["b","a"],"prefixes":[0.5,0.25],"places":[0.5,0.75]}'
    """
    if not len(prefix_propensities):
        return encode_json(arms)
    parts = {"slate": arms, "prefixes": prefix_propensities[: len(arms)].tolist()}
    parts["places"] = position_propensities[: len(arms)].tolist()
    return encode_json(parts)


def decode_list(shown: str | None) -> ShownList:
    """Decode the shown list that :func:`encode_list` encoded; propensities are empty if unknown.

    Examples
    --------
    >>> decode_list('["b","a"]')
    ShownList(arms=['b', 'a'], prefix_propensities=[], position_propensities=[])
    """
    parts = decode_json(shown)
    if isinstance(parts, list):
        return ShownList(parts, [], [])
    return ShownList(parts["slate"], parts["prefixes"], parts["places"])


# ---- The rows of the log: decisions, feedback and change events, with one ascending sequence number
#
# Rows are stored as they came; :mod:`tacit.service.projections.attribution` computes rewards from them.

REWARD, CLICKS, EXAMINED, ACTIVATE = "reward", "clicks", "examined", "activate"
TICK, MODE, MERGE, HOLDOUT = "tick", "mode", "merge", "holdout"
FEEDBACK_RULE = "feedback-rule"
ARMS, PIN, POLICY, CONFIGURATION = "arms", "pin", "policy", "configuration"
START, FORGET, ITEMS, GUARDRAIL, FED = "start", "forget", "items", "guardrail", "fed"
HISTORY = MODE, HOLDOUT, ARMS, PIN, POLICY, CONFIGURATION, START, FORGET, GUARDRAIL, FEEDBACK_RULE
"""Kinds of change events that make up a placement's history; they are never dropped."""

QUERY = "query"
"""Kind of a record of a query; all other records are of events."""

READ_ROWS = 4096
FOLD_ROWS = 4096
_seq = attrgetter("seq")
# Stores convert NumPy's numbers to Python's, so the checksum does the same.
_canonical = msgspec.msgpack.Encoder(enc_hook=methodcaller("item")).encode

logger = logging.getLogger(__name__)

ONLINE, FROZEN, SHADOW, CONTROL = MODES = "online", "frozen", "shadow", "control"
APPRENTICE = "apprentice"
"""Mode of decisions of 0.3 that showed the first offered arm; only read from old logs."""
PINNED, PINNED_FROZEN = PIN_MODES = "pinned", "pinned-frozen"
"""Modes of decisions that showed a pinned arm, while the placement learned or was frozen."""
FIXED_MODES = (APPRENTICE, CONTROL, PINNED, PINNED_FROZEN)
"""Modes whose decisions show a fixed arm: their propensities say nothing about other arms."""
KEPT = "kept"
"""Mode of decisions that repeat what a user was shown, after one from which the policy learns."""
UNWEIGHTED_MODES = (*FIXED_MODES, KEPT)
"""Modes whose decisions have no weight of their own in estimates by propensities."""
UNEXPORTED_MODES = (*PIN_MODES, KEPT)
"""Modes whose decisions click logs leave out."""
UNLEARNED_MODES = (FROZEN, PINNED_FROZEN, KEPT)
"""Modes whose decisions are not learned from."""


class DecisionRow(NamedTuple):
    """A decision in the log.

    Attributes
    ----------
    seq : int
        Sequence number in the log, from 1; shared with feedback and change events.
    id : str
        Unique among the decisions of its placement. All random draws of the decision come from its id
        and the placement's seed.
    placement, policy : int
        Their numbers in the store.
    time : int
        Microseconds since 1970; never earlier than the row before.
    key : str
    offered : str or None
        JSON list of the offered arms; None for all arms. The first one is the baseline.
    arm : int or str
        The shown arm.
    propensity : float or None
        Propensity of the shown arm; None if the policy is deterministic and there is no holdout.
    epoch : int
    context : str or None
        JSON list of numbers.
    mode : str
        The placement's mode at the time; ``pinned`` or ``pinned-frozen`` if a pinned arm was shown.
    would : int, str or None
        Counterfactual: the arm that the policy would have shown instead of a pinned one, or the arm that
        the shadow policy would have shown (mode ``shadow``).
    would_propensity : float or None
        Propensity of ``would``. If the control group of a holdout has its own policy, and ``would`` is
        None: the propensity of the shown arm by the policy that decided; 0 if unknown.
    deferred : int
        1 if the decision counts only once it is activated.
    asked : str or None
        The other fields of the request, as the placement's kind stores them: the features of the arms, a
        digest of rankings; for a search with segments or a known user, JSON of these.
    shown : str or None
        JSON of the shown pair and its interleaved list, or of the shown list; None for a single arm.
    control : int or None
        1 if the control group of a holdout decided, 0 if the policy did; None without a holdout. The
        propensity is of both together.
    bucket : int or None
        The bucket, of 128, of the user or session, if users or sessions stay in their group.
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


def has_control_policy(row: DecisionRow) -> bool:
    """True if a decision was part of a holdout whose control group has its own policy."""
    return row.control is not None and row.would is None and row.would_propensity is not None


def any_control_policy(rows: Block[DecisionRow]) -> bool:
    """True if any decision was part of a holdout whose control group has its own policy."""
    propensities = rows.column("would_propensity")
    return propensities.count(None) < len(propensities) and any(map(has_control_policy, rows))


Content = tuple[str, float | None, str | None] | tuple[str, float | None, str | None, str]
"""The content of feedback: its kind, reward and clicks, and metrics if there are any."""


class FeedbackRow(NamedTuple):
    """Feedback on a decision in the log.

    Attributes
    ----------
    seq : int
    placement : int
    decision : int
        ``seq`` of the decision.
    id : str or None
        The client's id, unique for the decision: the same id again is a repetition.
    time : int
        Microseconds since 1970.
    kind : str
        ``reward``, ``clicks``, ``examined`` or ``activate``.
    reward : float or None
        The client's reward in [0, 1], or in [−1, 1] if the placement's rule allows it; None for other
        kinds, and where a metric is learned that may be negative or has no largest amount.
    clicks : str or None
        JSON list of the clicked positions from 0, ascending; for an action other than a click, of
        objects with ``position`` and ``action``. None for other kinds.
    metrics : str or None
        JSON of metrics by name.
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
        """The content of the feedback, without its number, id and time."""
        content = self.kind, self.reward, self.clicks
        return content if self.metrics is None else (*content, self.metrics)


class ChangeRow(NamedTuple):
    """A change event in the log.

    Its kind says what changed: the time (``tick``), sums that another shard learned (``merge``), the
    catalogue (``items``), a feed's progress (``fed``), or a setting that :data:`HISTORY` lists.

    Attributes
    ----------
    seq : int
    placement : int or None
        None for all placements.
    time : int
        Microseconds since 1970.
    kind : str
        ``tick``, ``merge``, ``items``, ``fed``, or one of :data:`HISTORY`.
    value : str
        The new mode, or JSON of another new value.
    who : str or None
        Name of the API key that made the change, ``configuration`` or ``guardrail``; None without keys.
    """

    seq: int
    placement: int | None
    time: int
    kind: str
    value: str
    who: str | None = None


class RecordRow(NamedTuple):
    """A record of User Behavior Insights that 0.3 stored besides the log; no new ones are added.

    Attributes
    ----------
    placement : int
    kind : str
        ``query`` or ``event``.
    id : str
        Unique for placement and kind.
    time : int
        Time of arrival, in microseconds since 1970.
    content : str
        JSON.
    """

    placement: int
    kind: str
    id: str
    time: int
    content: str


Event = DecisionRow | FeedbackRow | ChangeRow


def row_checksum(row: tuple[Any, ...]) -> int:
    """Return the checksum that a store keeps with a row.

    It is the CRC-32 of the row's fields as an array of MessagePack: all bits of a number count, and
    an arm that is a number differs from one with its digits as a name.

    Parameters
    ----------
    row : DecisionRow, FeedbackRow, ChangeRow or RecordRow

    Examples
    --------
    >>> row_checksum(ChangeRow(1, 1, 100, "mode", "frozen"))
    3660063694
    """
    return crc32(_canonical(row))


def with_checksums(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows as plain tuples with their checksum as an additional last field."""
    # A function call per row would cost as much as the checksum.
    # A block's rows are plain tuples here, which are created faster than named ones.
    plain_rows = zip(*rows.columns, strict=True) if type(rows) is Block else rows
    return [(*row, crc32(_canonical(row))) for row in plain_rows]


class Rows(NamedTuple):
    """Consecutive rows of the log by kind, each kind in ascending order."""

    decisions: Block[DecisionRow] | list[DecisionRow]
    feedback: Block[FeedbackRow] | list[FeedbackRow]
    changes: list[ChangeRow]

    @property
    def size(self) -> int:
        """Number of rows of all kinds."""
        return len(self.decisions) + len(self.feedback) + len(self.changes)

    def all(self) -> Iterator[DecisionRow | FeedbackRow | ChangeRow]:
        """Yield every row: all decisions, then all feedback, then all change events."""
        yield from self.decisions
        yield from self.feedback
        yield from self.changes

    def select(self, predicate: Callable[[Any], bool]) -> Rows:
        """Return new rows: the rows of each kind for which ``predicate`` is true."""
        return Rows(*(list(filter(predicate, rows)) for rows in self))  # type: ignore[arg-type]


def merge_rows(parts: Sequence[Iterator[Event]]) -> Iterator[Event]:
    """Merge several ascending iterators of rows; yield the rows in the order of their sequence numbers.

    Rows of a kind come in long runs, so a binary search finds the end of each run. A duplicate number, which
    only two concurrent writers can cause, is logged as an error.
    """
    warned = False
    # For each part, rows that were read, and how many of them were yielded.
    read: list[list[Event]] = [[] for _ in parts]
    done = [0] * len(parts)
    while True:
        for i, part in enumerate(parts):
            if done[i] == len(read[i]):
                read[i], done[i] = list(islice(part, READ_ROWS)), 0
        heads = sorted((rows[done[i]].seq, i) for i, rows in enumerate(read) if rows)
        if not heads:
            return
        # The part with the lowest number is next: its rows below all others, and at least one.
        first, stop = heads[0][1], len(read[heads[0][1]])
        if len(heads) > 1:
            stop = bisect_left(read[first], heads[1][0], done[first] + 1, key=_seq)
            if heads[0][0] == heads[1][0] and not warned:
                warned = True
                logger.error("log: row %d is there twice; see: tacit log verify", heads[0][0])
        yield from read[first][done[first] : stop]
        done[first] = stop


def split_into_blocks(events: Iterable[Event]) -> Iterator[Block[Any]]:
    """Yield consecutive rows of the log as blocks, each of one kind, placement, time and mode.

    A block has at most 4096 rows.
    """
    for (kind, *_), run in groupby(events, key=_get_group):
        while rows := list(islice(run, FOLD_ROWS)):
            yield Block.from_rows(kind, rows)


def _get_group(event: Event) -> tuple[Any, ...]:
    """Return type, placement, time and, for a decision, mode of a row: equal for all rows of a block."""
    mode = event.mode if isinstance(event, DecisionRow) else None
    return type(event), event.placement, event.time, mode


class DecisionWithFeedback(NamedTuple):
    """A decision and its feedback so far."""

    decision: DecisionRow
    feedback: list[FeedbackRow]


# ---- Helpers to read rows


def make_click_row(row: DecisionRow, name: str, policy: Any) -> dict[str, Any]:
    """Return the columns of a click log that all arms of a decision share.

    They are time, id, placement (``name``), key, names of the offered arms, context and the policy's label.
    """
    arms = range(policy.arms) if isinstance(policy.arms, int) else policy.arms
    return {
        "timestamp": as_datetime(row.time),
        "decision_id": row.id,
        "placement": name,
        "key": row.key,
        "arms": [str(arm) for arm in (arms if row.offered is None else decode_json(row.offered))],
        "context": decode_json(row.context),
        "policy": policy.label,
    }


def select_propensities(rows: Block[DecisionRow]) -> list[float | None]:
    """Return the propensity with which a policy learns from each decision; None if unknown.

    It is the logged one; if a holdout's control group has its own policy, the one of the policy that decided.
    """
    logged: list[float | None] = rows.column("propensity")
    if not any_control_policy(rows):
        return logged
    # 0 stands for an unknown propensity.
    return [(row.would_propensity or None) if has_control_policy(row) else row.propensity for row in rows]


def encode_json(value: Any) -> str:
    """Return a value as JSON text for a column of the log."""
    return msgspec.json.encode(value).decode()


def decode_json(text: str | None) -> Any:
    """Return the value of a JSON column; None for a missing one."""
    return None if text is None else msgspec.json.decode(text)


def drop_unread_context(learner: Learner, decision: Decision) -> Decision:
    """Return a decision without its context if the learner's policy reads no contexts."""
    return decision if learner.policy.context_dim else decision._replace(context=NO_VALUES)
