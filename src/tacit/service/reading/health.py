"""How the engine, its store and its shards are."""

from __future__ import annotations

from typing import NamedTuple


class Health(NamedTuple):
    """How the engine and its store are.

    Attributes
    ----------
    ready : bool
        Whether the last commit worked.
    events : int
        Rows of the log.
    bytes : int
        What the store takes.
    rate : float
        Events per second over the last 10 seconds.
    committed : int or None
        Time of the last commit since the start, in microseconds since 1970.
    commit_seconds : float
        How long it took.
    buffered : int
        Rows that are in memory only.
    recovery_seconds : float
        How long it took at the start to read what was learned from the store.
    wall_ahead : float
        By how many seconds this machine's clock is ahead of the log's time; negative if behind.
    """

    ready: bool
    events: int
    bytes: int
    rate: float
    committed: int | None
    commit_seconds: float
    buffered: int
    recovery_seconds: float
    wall_ahead: float = 0.0


class ShardHealth(NamedTuple):
    """How one of several shards is.

    Attributes
    ----------
    number : int
    pid : int or None
        Of its process, on the machine where it is.
    up : bool
        Whether it answers.
    losses : int
        How often it was lost since the start.
    recovery_seconds : float or None
        How long it took to come back the last time.
    waiting : int
        Requests on their way to it.
    health : Health or None
        As it told last.
    """

    number: int
    pid: int | None
    up: bool
    losses: int
    recovery_seconds: float | None
    waiting: int
    health: Health | None
