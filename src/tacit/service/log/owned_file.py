"""Exclusive ownership of a database file, and checks that the file is not moved, replaced or cut.

A lock on one byte of the file, next to the bytes that SQLite locks, marks ownership under any name of the
file. A lock file next to it keeps two processes from opening it at the same moment; its content shows that a
store existed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import weakref
from pathlib import Path

from tacit.service.errors import InUse, StoreError

LOCKED_BYTE = 2**30 - 1
"""SQLite locks the bytes from 2**30 on, with the same kind of lock."""
SIDE_SUFFIXES = "-wal", "-shm"
PRIVATE = 0o600
"""Permissions of the log and its copies: only the owner may read them."""
LOCK_FILE_TEXT = b"The store beside this file is tacit's. To begin a new one, remove this file with it.\n"

_Identity = tuple[int, int]

_owned: weakref.WeakValueDictionary[_Identity, OwnedFile] = weakref.WeakValueDictionary()
_owned_lock = threading.Lock()


class OwnedFile:
    """The file of an SQLite database, locked for this process.

    Parameters
    ----------
    path : path
        Created if missing, with its folder.

    Attributes
    ----------
    path : Path
        The file's path, with symbolic links resolved.
    close : function
        Releases the file. Call it after every connection to the file is closed: closing a file releases
        all locks that the process has on it, SQLite's too.

    Raises
    ------
    StoreError
        If another process owns the file, it has several names, it cannot be written, or it is missing
        although a store existed.
    """

    def __init__(self, path: Path) -> None:
        self._absolute_path = path.absolute()
        self._name = str(self._absolute_path)
        self.path = Path(os.path.realpath(path))
        with contextlib.ExitStack() as cleanup:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._lock = _open_file(Path(f"{self.path}.lock"), cleanup)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._check_not_lost()
                with _owned_lock:
                    self._lock_database(cleanup)
            except BlockingIOError:
                raise self._make_use_error() from None
            except OSError as error:
                what = f"store.path: {path} cannot be written: {error.strerror}"
                raise StoreError(f"{what}; let the service's user own it, or give another path") from error
            release = cleanup.pop_all().close
        self.close = weakref.finalize(self, release)

    def _make_use_error(self) -> InUse:
        """Return the error that another process uses the file, for the caller to raise."""
        return InUse(
            f"store.path: {self._absolute_path} is in use by another process; stop it, or give another path"
        )

    def _check_not_lost(self) -> None:
        """Raise StoreError if the file is missing or empty although other files show that a store existed."""
        if _size(self.path):
            return
        signs = [name for name in (f"{self.path}-wal", f"{self.path}.lock") if _size(name)]
        if signs:
            raise StoreError(
                f"store.path: {self.path} is missing or empty, but {signs[0]} tells of a store; "
                "put it back or restore a backup, or to begin a new one remove "
                f"{' and '.join(signs)}"
            )

    def _lock_database(self, cleanup: contextlib.ExitStack) -> None:
        """Open the file, create it if missing, and lock it; ``cleanup`` will close it.

        Raises InUse if this or another process has it, and StoreError if the file has several names.
        """
        if self.path.exists():
            status = self.path.stat()
            if status.st_nlink > 1:
                raise StoreError(
                    f"store.path: {self.path} is one of {status.st_nlink} names (hard links) of a "
                    "file, and its write-ahead log goes by one; remove the others"
                )
            # Opening and closing the file again would release the locks of this process's other store.
            if (status.st_dev, status.st_ino) in _owned:
                raise self._make_use_error()
        self._file = _open_file(self.path, cleanup)
        self._lock_byte()
        status = os.fstat(self._file)
        identity = status.st_dev, status.st_ino
        self._size, self._identities = status.st_size, {self._name: identity}
        _owned[identity] = self
        cleanup.callback(_owned.pop, identity, None)

    def _lock_byte(self) -> None:
        """Lock the byte of the file that marks its owner; raise InUse if another process has it."""
        # Systems differ in the error that reports a lock.
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, LOCKED_BYTE)
        except (BlockingIOError, PermissionError):
            raise self._make_use_error() from None

    def protect_side_files(self) -> None:
        """Lock the file again, protect SQLite's side files, and record in the lock file that a store exists.

        Call it once SQLite is in write-ahead mode.

        Raises
        ------
        StoreError
            If another process owns the file.
        """
        # SQLite releases the whole file, this lock too, whenever it has no lock left, as while it opens
        # a file; in write-ahead mode it always has one.
        self._lock_byte()
        for name in (f"{self.path}{side}" for side in SIDE_SUFFIXES):
            if os.path.exists(name):
                status = os.stat(name)
                if status.st_uid == os.geteuid():
                    # By name: opening and closing the file would release SQLite's locks.
                    os.chmod(name, PRIVATE)
                self._identities[name] = status.st_dev, status.st_ino
        if not os.fstat(self._lock).st_size:
            os.pwrite(self._lock, LOCK_FILE_TEXT, 0)

    def check(self) -> None:
        """Raise StoreError if the file or a side file is not the one that was opened, or was cut.

        Raises
        ------
        StoreError
            If a file was removed, replaced or cut: rows written to it would be lost.
        """
        for name, identity in self._identities.items():
            try:
                status = os.stat(name)
            except OSError as error:
                raise self._make_loss_error(name, "cannot be found any more", error.strerror) from error
            if (status.st_dev, status.st_ino) != identity:
                raise self._make_loss_error(name, "was replaced", "it is another file")
            if name == self._name:
                if status.st_size < self._size:
                    raise self._make_loss_error(name, "was cut", f"it has {status.st_size} bytes")
                self._size = status.st_size

    def _make_loss_error(self, name: str, what: str, why: str | None) -> StoreError:
        """Return the error that a file was removed, replaced or cut, for the caller to raise."""
        return StoreError(
            f"store.path: {name} {what} while it was served ({why}): nothing can be kept; put the "
            "file back or restore a backup, and start again"
        )


def open_private(path: str | Path, flags: int) -> int:
    """Open a file with permissions for its owner only, and return its descriptor.

    Permissions of an existing file are restricted, too. Usable as the ``opener`` of :func:`open`.
    """
    file = os.open(path, flags, PRIVATE)
    if os.fstat(file).st_uid == os.geteuid():
        # An existing file may have wider permissions.
        os.fchmod(file, PRIVATE)
    return file


def _open_file(path: Path, cleanup: contextlib.ExitStack) -> int:
    """Open a file to read and write, and return its descriptor; create it if missing, close it at cleanup."""
    file = open_private(path, os.O_RDWR | os.O_CREAT)
    cleanup.callback(os.close, file)
    return file


def _size(path: str | Path) -> int:
    """Return the size of a file in bytes; 0 if it is missing."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
