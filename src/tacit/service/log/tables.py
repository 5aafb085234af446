"""The tables of stores in databases, and how those of an earlier version are brought forward.

Types stand as words in braces, for which each store gives its database's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import NamedTuple

TABLES = """
    CREATE TABLE store (version {int} NOT NULL, probed {big} NOT NULL){strict};
    INSERT INTO store VALUES (0, 0);
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
        seed {big} NOT NULL
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
        shown text
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
        clicks text
    ){strict};
    CREATE INDEX feedback_of ON feedback (decision);
    CREATE UNIQUE INDEX feedback_once ON feedback (decision, id) WHERE id IS NOT NULL;
    CREATE TABLE marks (
        seq {big} PRIMARY KEY,
        placement {int} REFERENCES placements,
        time {big} NOT NULL,
        kind text NOT NULL,
        value text NOT NULL
    ){strict};
    CREATE TABLE records (
        number {number} PRIMARY KEY,
        placement {int} NOT NULL REFERENCES placements,
        kind text NOT NULL,
        id text NOT NULL,
        time {big} NOT NULL,
        content text NOT NULL
    ){strict};
    CREATE UNIQUE INDEX record_ids ON records (id, placement, kind);
    CREATE TABLE bases (
        placement {int} PRIMARY KEY REFERENCES placements,
        seq {big} NOT NULL,
        time {big} NOT NULL,
        plan text NOT NULL,
        pieces {big} NOT NULL DEFAULT 0
    ){strict};
    CREATE TABLE snapshots (
        placement {int} PRIMARY KEY REFERENCES placements,
        seq {big} NOT NULL,
        time {big} NOT NULL,
        plan text NOT NULL,
        pieces {big} NOT NULL
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
"""Of version 0.1 of tacit."""
LATER = (
    """
    ALTER TABLE snapshots ADD COLUMN checksum {bytes};
    ALTER TABLE bases ADD COLUMN checksum {bytes};
    """,
    """
    ALTER TABLE decisions ADD COLUMN control {small};
    ALTER TABLE decisions ADD COLUMN bucket {small};
    ALTER TABLE feedback ADD COLUMN metrics text;
    """,
    """
    ALTER TABLE marks ADD COLUMN who text;
    CREATE INDEX marks_of ON marks (placement, seq) WHERE placement IS NOT NULL;
    ALTER TABLE placements ADD COLUMN configuration text;
    CREATE TABLE states (
        placement {int} NOT NULL REFERENCES placements,
        seq {big} NOT NULL,
        time {big} NOT NULL,
        plan text NOT NULL,
        checksum {bytes},
        pieces {big} NOT NULL,
        PRIMARY KEY (placement, seq)
    ){strict};
    """,
    # Rows of earlier versions have no checksum.
    """
    ALTER TABLE decisions ADD COLUMN checksum {big};
    ALTER TABLE feedback ADD COLUMN checksum {big};
    ALTER TABLE marks ADD COLUMN checksum {big};
    ALTER TABLE records ADD COLUMN checksum {big};
    """,
    "ALTER TABLE store ADD COLUMN salt text;",
)
"""Each brings all stores to their next version."""


class Scripts(NamedTuple):
    """What makes the tables of a store, and brings those of an earlier version forward.

    Attributes
    ----------
    oldest : int
        The version that is made first, and the oldest that can be brought forward.
    tables : str
        Makes it, where there is nothing.
    later : tuple of str
        Each brings a store to the next version.
    """

    oldest: int
    tables: str
    later: tuple[str, ...]

    @property
    def newest(self) -> int:
        """The version that stores have in the end."""
        return self.oldest + len(self.later)

    def since(self, version: int) -> tuple[str, ...]:
        """Return what a store of some version needs; of 0 there is nothing yet."""
        return self.later[version - self.oldest :] if version else (self.tables, *self.later)


def scripts(oldest: int, words: Mapping[str, str], *own: str) -> Scripts:
    """Return the scripts of a store.

    Parameters
    ----------
    oldest : int
        The version of :data:`TABLES` there.
    words : mapping of str to str
        What its database has for each word in braces.
    own : str
        What it does besides in each later version, and in versions that it alone has.
    """
    later = (script.format_map(words) + more for script, more in zip_longest(LATER, own, fillvalue=""))
    return Scripts(oldest, TABLES.format_map(words), tuple(later))
