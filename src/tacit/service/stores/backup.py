"""Backups of a store while the service runs."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from tacit.service.errors import StoreError
from tacit.service.stores.owned_file import private
from tacit.service.stores.sqlite import APPLICATION_ID


def backup(path: str | Path, target: str | Path) -> int:
    """Copy an SQLite store, as it is at one moment, to a file; return its size in bytes.

    The store may be in use: reading takes no lock that its writer would wait for. The copy holds
    all that was committed when it began.

    Parameters
    ----------
    path : path
        The store.
    target : path
        Replaced only by a whole copy.

    Raises
    ------
    StoreError
        If there is no store, the target is the store itself, or the copy cannot be written.
    """
    path, target = Path(path), Path(target)
    part = target.with_name(f".{target.name}.part")
    if not path.is_file():
        raise StoreError(f"store.path: there is no store at {path}")
    if target.exists() and path.samefile(target):
        raise StoreError(f"{target}: is the store itself; give another path for the backup")
    try:
        part.unlink(missing_ok=True)
        os.close(private(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        source = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
        try:
            if source.pragma("application_id") != APPLICATION_ID:
                raise StoreError(f"store.path: {path} is no tacit store; give another path")
            source.execute("VACUUM INTO ?", (str(part),))
        finally:
            source.close()
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, target)
    except (apsw.Error, OSError) as error:
        raise StoreError(f"{target}: the backup cannot be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    return target.stat().st_size
