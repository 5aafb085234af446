"""Retention: rows that are old enough are dropped, once what they taught is kept elsewhere.

A placement's log then begins at a *base*: a snapshot of all that was learned up to some row. What
was learned is a fold over the log from there on, so the log can be verified as before. A decision
goes with all that came back for it, and not while its window is open; the last row stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tacit.errors import ConfigError
from tacit.service.config.schema import Config
from tacit.service.errors import StoreError
from tacit.service.log.clock import as_text
from tacit.service.placements.base import Placement
from tacit.service.stores.base import Old, Store

DAY = 86_400_000_000
EVERY = HELD = 3_600_000_000
"""Microseconds between two looks for old rows, and without one after the clock has jumped."""
JUMP = 60_000_000
"""By so many microseconds the wall and the log's time come apart where a clock was set."""
ROWS = 1000
"""Decisions that go at once, so that no commit waits long."""


def check_clock(config: Config, last: int, wall: int) -> int:
    """Return by how much the wall is further ahead of the log than a pause explains.

    Parameters
    ----------
    config : Config
    last : int
        The time of the last row; 0 where there is none.
    wall : int
        Microseconds since 1970.

    Raises
    ------
    ConfigError
        If rows would go by a clock that nobody has confirmed: it is ahead of the last row by more
        than a day, and more than half of what the rows are kept for.
    """
    ahead = wall - last if last else 0
    kept = [one.retention for one in config.placements.values() if one.retention is not None]
    if not kept or ahead <= max(DAY, min(kept) * DAY / 2):
        return 0
    if not config.store.clock_is_right:
        raise ConfigError(
            f"store.retention: this machine's clock says {as_text(wall)}, and the last row of the "
            f"log is of {as_text(last)}: by that clock rows would be dropped that may not be old. "
            "Set the clock; or, if it is right, confirm it for this start with --clock-is-right"
        )
    return ahead


class Retention:
    """Drops old rows, some at a time.

    Parameters
    ----------
    store : Store

    Attributes
    ----------
    busy : bool
        Whether there may be more to drop now.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.busy = False
        self._next = self._held = 0
        self._before: dict[int, int] = {}

    def due(self, now: int) -> bool:
        """Say whether there may be something to drop."""
        return now >= max(self._next, self._held)

    def hold(self, now: int) -> None:
        """Drop nothing for an hour: the clock has jumped, and somebody may set it back."""
        self._held = now + HELD

    def step(
        self, placements: Sequence[Placement], seq: int, now: int, archive: str | None
    ) -> Placement | None:
        """Drop some rows, or return a placement that needs a base before any of its rows may go.

        Parameters
        ----------
        placements : sequence of Placement
            All of the service.
        seq : int
            The end of the log, up to which the placements have learned.
        now : int
            Microseconds since 1970.
        archive : str or None
            Folder to which the rows are written before.

        Returns
        -------
        Placement or None
            To :meth:`rest` as soon as there is a base of what it has learned by now.

        Raises
        ------
        StoreError
            If the store fails, or the rows cannot be written; then they are not dropped.
        """
        # What fails is tried again at the next look.
        self._next, self.busy = now + EVERY, False
        for placement in placements:
            if placement.config.retention is None:
                continue
            time = int(max(now - placement.config.retention * DAY, 0))
            before = self._before.get(placement.id)
            if before is None:
                if self._store.old(placement.id, seq, time, 1).size:
                    return placement
                continue
            old = self._store.old(placement.id, before, time, ROWS)
            if old.size:
                self._drop(old, archive, placement.name)
                self._next, self.busy = now, True
                return None
            del self._before[placement.id]
            self._store.scrub()
        self._drop_ticks()
        return None

    def rest(self, placement: Placement, before: int) -> None:
        """Let the rows of a placement before ``before`` go, which its base now covers."""
        self._before[placement.id] = before
        self._next, self.busy = 0, True

    def _drop(self, old: Old, archive: str | None, name: str) -> None:
        if archive is not None:
            from tacit.service.stores.archive import write_old

            try:
                write_old(old, Path(archive) / name)
            except OSError as error:
                raise StoreError(f"store.archive: {archive} cannot be written: {error}") from error
        self._store.drop(old)

    def _drop_ticks(self) -> None:
        """Drop the marks of all placements that the bases of all of them cover."""
        bases = [self._store.begins(stored.id) for stored in self._store.placements().values()]
        known = [base for base in bases if base is not None]
        if known and len(known) == len(bases):
            before, time = min(base.seq for base in known), min(base.time for base in known)
            self._store.drop(self._store.old(None, before, time, ROWS))
