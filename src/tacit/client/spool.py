"""A spool: records kept in a folder until they are delivered, in the order in which they came."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from tacit.errors import TacitError

OPEN = "open.jsonl"
CLOSED = "{:012d}.jsonl"
SET_ASIDE = "refused.jsonl"
LOCK = "lock"

logger = logging.getLogger("tacit.client")


class Spool:
    """Keeps lines in a folder. What was appended outlives the process.

    Lines are appended to one file; :meth:`close_file` puts it behind those that wait, and it is
    dropped when it was delivered. A line that was torn by a crash of the machine is left out.

    Parameters
    ----------
    folder : Path
        Made if it is not there; one process at a time.

    Raises
    ------
    TacitError
        If another process has the folder.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     spool = Spool(Path(folder))
    ...     spool.append(b"one")
    ...     spool.append(b"two")
    ...     spool.close_file()
    ...     for file in spool.files():
    ...         print(spool.lines(file))
    ...         spool.drop(file)
    ...     spool.close()
    [b'one', b'two']
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        self._lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise TacitError(
                f"folder: another process uses {folder}; give each process a folder of its own"
            ) from None
        self._closed: list[int] = []
        self._open()
        # What another process has appended may end within a line.
        self.close_file()
        self.sync()

    def _open(self) -> None:
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
        self._file = os.open(self.folder / OPEN, flags, 0o600)
        self.empty = os.fstat(self._file).st_size == 0

    def append(self, line: bytes) -> None:
        """Keep a line, which holds no line break.

        Raises
        ------
        OSError
            If the disk is full; then nothing of it is kept.
        """
        content = line + b"\n"
        written = os.write(self._file, content)
        if written < len(content):
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError(errno.ENOSPC, "no room for what was decided", str(self.folder))
        self.empty = False

    def close_file(self) -> None:
        """Put what was appended behind what waits; durably once :meth:`sync` was called."""
        if self.empty:
            return
        before, last = self._file, max(map(_number, self.files()), default=0)
        os.rename(self.folder / OPEN, self.folder / CLOSED.format(last + 1))
        self._closed.append(before)
        self._open()

    def sync(self) -> None:
        """Make durable what was put behind; takes its time, and others may append meanwhile."""
        while self._closed:
            file = self._closed.pop()
            os.fsync(file)
            os.close(file)

    def files(self) -> list[Path]:
        """Return the files that wait, oldest first."""
        return sorted(path for path in self.folder.glob("*.jsonl") if path.stem.isdigit())

    @property
    def waiting(self) -> int:
        """How many bytes wait."""
        size = os.fstat(self._file).st_size
        for file in self.files():
            # It may be delivered, and dropped, just now.
            with contextlib.suppress(FileNotFoundError):
                size += file.stat().st_size
        return size

    def lines(self, file: Path) -> list[bytes]:
        """Return the lines of a file that are whole."""
        *whole, rest = file.read_bytes().split(b"\n")
        if rest:
            logger.warning("%s: its last line is not whole, and is left out", file)
        return whole

    def drop(self, file: Path) -> None:
        """Forget a file."""
        file.unlink()

    def refuse(self, lines: Iterable[bytes]) -> None:
        """Put lines aside that can never be delivered."""
        with open(self.folder / SET_ASIDE, "ab") as file:
            file.writelines(line + b"\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Leave the folder to others."""
        self.sync()
        os.close(self._file)
        os.close(self._lock)


def _number(file: Path) -> int:
    return int(file.stem)
