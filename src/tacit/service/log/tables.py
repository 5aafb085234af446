"""The tables of stores in databases.

Types are placeholders in braces, which each store replaces by the types of its database.
"""

from __future__ import annotations

from collections.abc import Mapping

TABLES = """
    CREATE TABLE store (version {int} NOT NULL, probed {big} NOT NULL, salt text){strict};
    INSERT INTO store VALUES (0, 0, NULL);
    CREATE TABLE policies (
        id {id} PRIMARY KEY,
        hash text NOT NULL UNIQUE,
        spec text NOT NULL,
        version text
    ){strict};
    CREATE TABLE placements (
        id {id} PRIMARY KEY,
        name text NOT NULL UNIQUE,
        policy {int} NOT NULL REFERENCES policies,
        seed {big} NOT NULL,
        configuration text
    ){strict};
    CREATE TABLE decisions (
        seq {big} PRIMARY KEY,
        id text NOT NULL,
        placement {int} NOT NULL REFERENCES placements,
        policy {int} NOT NULL REFERENCES policies,
        time {big} NOT NULL,
        key text NOT NULL,
        offered text,
        arm {any} NOT NULL,
        propensity {real},
        epoch {big} NOT NULL,
        context text,
        mode text NOT NULL DEFAULT 'online',
        would {any},
        would_propensity {real},
        deferred {small} NOT NULL DEFAULT 0,
        asked text,
        shown text,
        control {small},
        bucket {small},
        checksum {big}
    ){strict};
    CREATE UNIQUE INDEX decision_ids ON decisions (id, placement);
    CREATE TABLE feedback (
        seq {big} PRIMARY KEY,
        placement {int} NOT NULL REFERENCES placements,
        decision {big} NOT NULL REFERENCES decisions,
        id text,
        time {big} NOT NULL,
        kind text NOT NULL,
        reward {real} CHECK (reward BETWEEN -1 AND 1),
        clicks text,
        metrics text,
        checksum {big}
    ){strict};
    CREATE INDEX feedback_of ON feedback (decision);
    CREATE UNIQUE INDEX feedback_once ON feedback (decision, id) WHERE id IS NOT NULL;
    CREATE TABLE marks (
        seq {big} PRIMARY KEY,
        placement {int} REFERENCES placements,
        time {big} NOT NULL,
        kind text NOT NULL,
        value text NOT NULL,
        who text,
        checksum {big}
    ){strict};
    CREATE INDEX marks_of ON marks (placement, seq) WHERE placement IS NOT NULL;
    CREATE TABLE records (
        number {number} PRIMARY KEY,
        placement {int} NOT NULL REFERENCES placements,
        kind text NOT NULL,
        id text NOT NULL,
        time {big} NOT NULL,
        content text NOT NULL,
        checksum {big}
    ){strict};
    CREATE UNIQUE INDEX record_ids ON records (id, placement, kind);
    CREATE TABLE bases (
        placement {int} PRIMARY KEY REFERENCES placements,
        seq {big} NOT NULL,
        time {big} NOT NULL,
        plan text NOT NULL,
        pieces {big} NOT NULL DEFAULT 0,
        checksum {bytes}
    ){strict};
    CREATE TABLE snapshots (
        placement {int} PRIMARY KEY REFERENCES placements,
        seq {big} NOT NULL,
        time {big} NOT NULL,
        plan text NOT NULL,
        pieces {big} NOT NULL,
        checksum {bytes}
    ){strict};
    CREATE TABLE states (
        placement {int} NOT NULL REFERENCES placements,
        seq {big} NOT NULL,
        time {big} NOT NULL,
        plan text NOT NULL,
        checksum {bytes},
        pieces {big} NOT NULL,
        PRIMARY KEY (placement, seq)
    ){strict};
    -- In one row, a snapshot would be written in one transaction, and be a gigabyte at most.
    CREATE TABLE pieces (
        number {number} PRIMARY KEY,
        snapshot {big} NOT NULL,
        field text NOT NULL,
        content {bytes} NOT NULL
    ){strict};
    CREATE INDEX pieces_of ON pieces (snapshot);
"""


def create_tables(words: Mapping[str, str]) -> str:
    """Return the SQL statements that create the tables of an empty store.

    Parameters
    ----------
    words : mapping of str to str
        The database's type for each placeholder.
    """
    return TABLES.format_map(words)
