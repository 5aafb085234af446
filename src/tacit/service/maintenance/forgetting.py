"""Forgetting somebody while no service runs, and finding them in backups."""

from __future__ import annotations

from pathlib import Path

import apsw

from tacit.service.config.schema import Config
from tacit.service.log.searches import Subject
from tacit.service.stores.archive import forget_archived
from tacit.service.stores.base import Forgotten, Store, added
from tacit.service.stores.sql import PLACEMENT
from tacit.service.stores.sqlite import APPLICATION_ID


def forget(config: Config, store: Store, kind: str, name: str) -> dict[str, Forgotten]:
    """Blank what rows of a log and of its archive tell of somebody.

    Parameters
    ----------
    config : Config
    store : Store
        That nobody serves.
    kind, name : str
        As those of a :class:`~tacit.service.log.searches.Subject`.

    Returns
    -------
    dict of str to Forgotten
        How many rows it was, of each placement where there were any.
    """
    subject = Subject(kind, name)
    done = store.forget(subject, store.end())
    if config.store.archive is None:
        return done
    archive = Path(config.store.archive)
    return added(done, forget_archived(archive, subject, store.placements()))


def holds(path: Path, kind: str, name: str) -> bool:
    """Whether a file is a backup of a store in SQLite that tells of somebody."""
    subject = Subject(kind, name)
    try:
        backup = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
    except apsw.Error:
        return False
    try:
        if backup.pragma("application_id") != APPLICATION_ID:
            return False
        columns = {row[1] for row in backup.execute("PRAGMA table_info(store)")}
        salt = backup.execute("SELECT salt FROM store").get if "salt" in columns else ""
        found = backup.execute("SELECT content FROM records")
        if any(subject.without(content) is not None for (content,) in found):
            return True
        units = [
            f'%"unit":"{unit}"%'
            for _, id, _, _, seed in backup.execute(PLACEMENT)
            for unit in subject.units(salt or "", id, seed)
        ]
        asked = "SELECT count(*) FROM decisions WHERE asked LIKE ?"
        return any(backup.execute(asked, (unit,)).get for unit in units)
    except apsw.Error:
        return False
    finally:
        backup.close()
