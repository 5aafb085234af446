"""What leaves a log: old rows, the data of a user, and damaged rows."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tacit.service.errors import Damaged, StoreError
from tacit.service.log import rows as log_rows
from tacit.service.log.search_records import Subject, remove_unit
from tacit.service.log.sql import NUMBERS, READS, Store, columns, list_columns
from tacit.service.log.store import SNAPSHOTS, BlankedRows, End, OldRows, StoredPlacement, describe_rows

# The inserted names are constants.
# ruff: noqa: S608
OLD_DECISIONS = (
    f"SELECT {list_columns('decisions')} FROM decisions d WHERE placement = ? AND seq < ? "
    "AND time < ? AND NOT EXISTS (SELECT 1 FROM feedback f WHERE f.decision = d.seq "
    "AND f.seq >= ?) ORDER BY seq LIMIT ?"
)
OLD_MARKS = (
    f"SELECT {list_columns('marks')} FROM marks WHERE placement IS NOT DISTINCT FROM ? "
    f"AND seq < ? AND time < ? AND kind NOT IN {log_rows.HISTORY} ORDER BY seq LIMIT ?"
)
OLD_RECORDS = (
    f"SELECT {list_columns('records')} FROM records WHERE placement = ? AND time < ? ORDER BY number LIMIT ?"
)
DROP_RECORD = "DELETE FROM records WHERE placement = ? AND kind = ? AND id = ?"
DECISION, RECORD = columns(log_rows.DecisionRow), columns(log_rows.RecordRow)
DECISIONS_OF_UNIT = f"SELECT {DECISION} FROM decisions WHERE placement = ? AND asked LIKE ?"
RECORDS_WITH = f"SELECT number, {RECORD} FROM records WHERE placement = ? AND content LIKE ? ESCAPE '!'"
FOLLOWING = {t: f"SELECT min({number}) FROM {t} WHERE {number} > ?" for t, number in NUMBERS.items()}
LEAVE_OUT = {
    "decisions": ("DELETE FROM feedback WHERE decision = ?", "DELETE FROM decisions WHERE seq = ?"),
    "feedback": ("DELETE FROM feedback WHERE seq = ?",),
    "records": ("DELETE FROM records WHERE number = ?",),
}
"""Statements that delete a damaged row, and the rows that refer to it."""
MANY = 5000


# ---- Rows past a placement's retention


def find_old_rows(store: Store, placement: int | None, before: int, time: int, limit: int) -> OldRows:
    """Return a placement's oldest rows before row ``before`` and ``time``, at most ``limit`` of each kind.

    With ``placement`` None they are the change events of all placements. Change events of the history are
    left out. Decisions come with their feedback, and only if all of it is before row ``before``.
    """
    with store.reading() as connection:
        cursor = store.run(connection, OLD_DECISIONS, (placement, before, time, before, limit))
        decisions = list(store.check_rows("decisions", cursor))
        feedback_cursor = store.select_feedback(connection, [row.seq for row in decisions])
        feedback = list(store.check_rows("feedback", feedback_cursor))
        cursor = store.run(connection, OLD_MARKS, (placement, before, time, limit))
        marks = list(store.check_rows("marks", cursor))
        cursor = store.run(connection, OLD_RECORDS, (placement, time, limit))
        return OldRows(log_rows.Rows(decisions, feedback, marks), list(store.check_rows("records", cursor)))


def drop_rows(store: Store, old: OldRows) -> None:
    """Delete old decisions, feedback, change events and records from the store, in one transaction."""
    with store.transaction() as writer:
        # Feedback refers to decisions, so it goes first.
        for table, rows in (
            ("feedback", old.rows.feedback),
            ("decisions", old.rows.decisions),
            ("marks", old.rows.changes),
        ):
            store.run_many(writer, f"DELETE FROM {table} WHERE seq = ?", [(row.seq,) for row in rows])
        store.run_many(writer, DROP_RECORD, [(row.placement, row.kind, row.id) for row in old.records])


# ---- The data of a user


def forget_user(store: Store, subject: Subject, end: End, who: str | None = None) -> dict[str, BlankedRows]:
    """Blank a user, session or client in all rows, drop snapshots, and append change events, at once.

    Learned states stay the same: folds of the log do not read the blanked fields. Then the store overwrites
    the old data.

    Parameters
    ----------
    subject : Subject
    end : End
        The end of the log.
    who : str, optional
        Name of the API key that requested it.

    Returns
    -------
    dict of str to BlankedRows
        Numbers of blanked rows for each placement that had any; each gets a change event.
    """
    done: dict[str, BlankedRows] = {}
    marks = []
    placements = store.placements()
    with store.transaction() as writer:
        for name, stored in placements.items():
            counts = BlankedRows(
                _forget_decisions(store, writer, subject, stored),
                _forget_records(store, writer, subject, stored.id),
            )
            if any(counts):
                done[name] = counts
                # Its open decisions may hold the user. Until the next one, a start folds the whole log.
                store.run(writer, "DELETE FROM snapshots WHERE placement = ?", (stored.id,))
                seq = end.seq + len(done)
                # The forgotten name must not be logged.
                note = log_rows.encode_json(counts._asdict())
                marks.append(log_rows.ChangeRow(seq, stored.id, end.time, log_rows.FORGET, note, who))
        store.insert_rows(writer, log_rows.Rows([], [], marks))
    # Copies of open decisions, too, from before they were blanked.
    store.snapshots.abandon_drafts()
    # The blanking is committed: if this fails, as on a full disk, old pages remain for a while.
    with contextlib.suppress(StoreError):
        while store.snapshots.sweep_pieces():
            pass
        store.scrub()
    return done


def _forget_decisions(store: Store, writer: Any, subject: Subject, stored: StoredPlacement) -> int:
    """Remove the hashes of a subject from a placement's decisions; return the number of changed rows."""
    blank = []
    for unit in subject.hash_units(stored.salt, stored.id, stored.seed):
        rows = store.run(writer, DECISIONS_OF_UNIT, (stored.id, f'%"unit":"{unit}"%'))
        for row in map(store.parse_decision, rows):
            blanked_row = row._replace(asked=remove_unit(row.asked))
            blank.append((blanked_row.asked, log_rows.row_checksum(blanked_row), row.seq))
    store.run_many(writer, "UPDATE decisions SET asked = ?, checksum = ? WHERE seq = ?", blank)
    return len(blank)


def _forget_records(store: Store, writer: Any, subject: Subject, placement: int) -> int:
    """Blank the data of a subject in a placement's records; return the number of changed rows.

    The rows stay, with the content of :meth:`Subject.blank_record` and a new checksum.
    """
    # "!" escapes the wildcards of LIKE.
    pattern = re.sub(r"([%_!])", r"!\1", log_rows.encode_json(subject.name))
    blank = []
    for number, *row in store.run(writer, RECORDS_WITH, (placement, f"%{pattern}%")):
        record = log_rows.RecordRow._make(row)
        content = subject.blank_record(record.content)
        if content is not None:
            blank.append((content, log_rows.row_checksum(record._replace(content=content)), number))
    store.run_many(writer, "UPDATE records SET content = ?, checksum = ? WHERE number = ?", blank)
    return len(blank)


# ---- Damaged rows


def find_damaged_rows(store: Store) -> dict[str, list[int]]:
    """Return the numbers of rows that are unreadable or have wrong checksums, by table.

    Tables without damage are left out.
    """
    return {table: numbers for table in READS if (numbers := list(_scan_damage(store, table)))}


def _scan_damage(store: Store, table: str) -> Iterator[int]:
    """Yield the numbers of a table's rows that are unreadable or have wrong checksums."""
    after, at_once = 0, MANY
    while True:
        try:
            with store.streaming() as read:
                rows = read(READS[table], (after,), at_once)
                for number, _, sound in store.verify_rows(table, rows):
                    if not sound:
                        yield number
                    after = number
            return
        except Damaged:
            # An unreadable row is located by reading row by row.
            if at_once == 1:
                with store.reading() as connection:
                    after = store.select_one(connection, FOLLOWING[table], after)
                yield after
            at_once = MANY if at_once == 1 else 1


def remove_damaged_rows(store: Store, damaged: Mapping[str, Sequence[int]]) -> None:
    """Delete damaged rows from the log, and append a change event that lists them.

    Feedback on a deleted decision is deleted, too, and so are all snapshots, because the learned state is
    folded again from the remaining rows.

    Parameters
    ----------
    damaged : mapping of str to sequence of int
        As :meth:`find_damaged_rows` returns it.

    Raises
    ------
    Damaged
        If a change event is among them: later rows depend on it.
    """
    if "marks" in damaged:
        raise Damaged(
            f"{store.location}: {describe_rows({'marks': damaged['marks']})}, which say what was "
            "changed and cannot be left out; restore a backup"
        )
    end, note = store.end(), log_rows.encode_json({"left_out": damaged})
    mark = log_rows.ChangeRow(end.seq + 1, None, end.time, log_rows.TICK, note)
    with store.transaction() as writer:
        for table, numbers in damaged.items():
            for statement in LEAVE_OUT[table]:
                store.run_many(writer, statement, [(number,) for number in numbers])
        store.run(writer, f"DELETE FROM {SNAPSHOTS}")
        store.insert_rows(writer, log_rows.Rows([], [], [mark]))
