"""A database file that one process owns, and that must stay where it was.

Ownership goes with the file, whatever name it was opened by: a byte of it is locked, beside those
that SQLite locks itself. The lock file beside it keeps two processes from opening it at the same moment,
and by its content tells that there was a store.
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
"""SQLite locks the bytes from 2**30 on, in this file and by the same means."""
SIDES = "-wal", "-shm"
PRIVATE = 0o600
"""What the log holds is nobody's business: neither it nor a copy of it is for others to read."""
MARK = b"The store beside this file is tacit's. To begin a new one, remove this file with it.\n"

_Identity = tuple[int, int]

_owned: weakref.WeakValueDictionary[_Identity, OwnedFile] = weakref.WeakValueDictionary()
_owning = threading.Lock()


class OwnedFile:
    """The file of an SQLite database, locked for this process.

    Parameters
    ----------
    path : path
        Made if missing, with its folder.

    Attributes
    ----------
    path : Path
        Where it is, symbolic links followed.
    close : function
        Gives it up. Call it when every connection to the file is closed: what closes a file
        releases all locks that its process holds on it, SQLite's too.

    Raises
    ------
    StoreError
        If another process owns it, it has several names, it cannot be written, or it is missing
        although there was a store.
    """

    def __init__(self, path: Path) -> None:
        self._given = path.absolute()
        self._name = str(self._given)
        self.path = Path(os.path.realpath(path))
        with contextlib.ExitStack() as cleanup:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._lock = _opened(Path(f"{self.path}.lock"), cleanup)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._check_there()
                with _owning:
                    self._own(cleanup)
            except BlockingIOError:
                raise self._in_use() from None
            except OSError as error:
                raise StoreError(f"store.path: {path} cannot be written: {error.strerror}") from error
            release = cleanup.pop_all().close
        self.close = weakref.finalize(self, release)

    def _in_use(self) -> InUse:
        return InUse(f"store.path: {self._given} is in use by another process; stop it, or give another path")

    def _check_there(self) -> None:
        """Check that no store was here which is missing now."""
        if _size(self.path):
            return
        signs = [name for name in (f"{self.path}-wal", f"{self.path}.lock") if _size(name)]
        if signs:
            raise StoreError(
                f"store.path: {self.path} is missing or empty, but {signs[0]} tells of a store; "
                "put it back or restore a backup, or to begin a new one remove "
                f"{' and '.join(signs)}"
            )

    def _own(self, cleanup: contextlib.ExitStack) -> None:
        if self.path.exists():
            found = self.path.stat()
            if found.st_nlink > 1:
                raise StoreError(
                    f"store.path: {self.path} is one of {found.st_nlink} names (hard links) of a "
                    "file, and its write-ahead log goes by one; remove the others"
                )
            # Opening and closing it again would release the locks of the one that has it.
            if (found.st_dev, found.st_ino) in _owned:
                raise self._in_use()
        self._file = _opened(self.path, cleanup)
        self._take()
        found = os.fstat(self._file)
        identity = found.st_dev, found.st_ino
        self._size, self._known = found.st_size, {self._name: identity}
        _owned[identity] = self
        cleanup.callback(_owned.pop, identity, None)

    def _take(self) -> None:
        # Some systems say that it is locked by another error than others.
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, LOCKED_BYTE)
        except (BlockingIOError, PermissionError):
            raise self._in_use() from None

    def settle(self) -> None:
        """Note that there is a store by now, with the files that SQLite keeps beside it.

        To be called when SQLite is in write-ahead mode.

        Raises
        ------
        StoreError
            If another process has it.
        """
        # Whenever SQLite has no lock left it releases the whole file, as it does while it opens
        # one; in write-ahead mode it always has one.
        self._take()
        for name in (f"{self.path}{side}" for side in SIDES):
            if os.path.exists(name):
                found = os.stat(name)
                if found.st_uid == os.geteuid():
                    # Not by opening it: what closes a file releases the locks that SQLite has.
                    os.chmod(name, PRIVATE)
                self._known[name] = found.st_dev, found.st_ino
        if not os.fstat(self._lock).st_size:
            os.pwrite(self._lock, MARK, 0)

    def check(self) -> None:
        """Check that the names still lead to what was opened.

        Raises
        ------
        StoreError
            If a file was removed, replaced or cut: what is written to it now would be lost.
        """
        for name, known in self._known.items():
            try:
                found = os.stat(name)
            except OSError as error:
                raise self._lost(name, "cannot be found any more", error.strerror) from error
            if (found.st_dev, found.st_ino) != known:
                raise self._lost(name, "was replaced", "it is another file")
            if name == self._name:
                if found.st_size < self._size:
                    raise self._lost(name, "was cut", f"it has {found.st_size} bytes")
                self._size = found.st_size

    def _lost(self, name: str, what: str, why: str | None) -> StoreError:
        return StoreError(
            f"store.path: {name} {what} while it was served ({why}): nothing can be kept; put the "
            "file back or restore a backup, and start again"
        )


def private(path: str | Path, flags: int) -> int:
    """Open a file that nobody but its owner may read, as an ``opener`` does."""
    file = os.open(path, flags, PRIVATE)
    if os.fstat(file).st_uid == os.geteuid():
        # One that was there before may be wider.
        os.fchmod(file, PRIVATE)
    return file


def _opened(path: Path, cleanup: contextlib.ExitStack) -> int:
    """Open a file for writing, made if missing, until the end."""
    file = private(path, os.O_RDWR | os.O_CREAT)
    cleanup.callback(os.close, file)
    return file


def _size(path: str | Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
