"""Where logs are: files, folders, patterns, and what pyarrow's file systems know by a URL."""

from __future__ import annotations

import glob
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs

from tacit.errors import LogError


@dataclass(frozen=True)
class RemoteFile:
    """A file that is known by a URL, such as ``s3://bucket/clicks/part-0.parquet``.

    Examples
    --------
    >>> RemoteFile("s3://bucket/clicks/part-0.parquet").suffix
    '.parquet'
    """

    url: str

    @property
    def name(self) -> str:
        """The last part of the URL's path."""
        return PurePosixPath(self.url.partition("?")[0]).name

    @property
    def suffix(self) -> str:
        """The ending of the name."""
        return PurePosixPath(self.name).suffix

    def open(self) -> Any:
        """Open it for reading at any place."""
        files, path = pyarrow.fs.FileSystem.from_uri(self.url)
        return files.open_input_file(path)

    def __str__(self) -> str:
        return self.url


File = Path | RemoteFile
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


def plain_suffix(path: PurePath | RemoteFile) -> str:
    """Return the ending that says the format: of compressed text, the one before the last.

    Examples
    --------
    >>> plain_suffix(Path("clicks.csv.gz")), plain_suffix(Path("clicks.CSV"))
    ('.csv', '.csv')
    """
    compressed = path.suffix.lower() in COMPRESSED
    return (PurePath(path.name).with_suffix("") if compressed else path).suffix.lower()


def is_url(place: str | Path) -> bool:
    """Whether a place is written as a URL."""
    return "://" in str(place)


def files_at(place: str | Path, suffixes: Sequence[str]) -> list[File]:
    """Return the files of a place, in the order of their names.

    Parameters
    ----------
    place : str or path
        A file; a folder, whose files are those below it that end in one of ``suffixes`` and of
        whose path no part begins with ``.`` or ``_``; a pattern with ``*`` (within a folder's
        name), for files and folders; or the same as a URL.
    suffixes : sequence of str

    Raises
    ------
    LogError
        If a folder has no such file, nothing fits a pattern, or a URL leads nowhere.
    """
    if is_url(place):
        return list(_remote(str(place), suffixes))
    path = Path(place)
    if not path.exists() and "*" not in str(place):
        raise LogError(
            f"{place}: cannot be read: there is no such file or folder; give one that is there, "
            "with its path from here or from the root"
        )
    if path.exists() or "*" not in str(place):
        return list(_local(path, suffixes))
    found: list[File] = [file for name in glob.glob(str(place)) for file in _local(Path(name), suffixes)]
    if not found:
        raise LogError(f"{place}: no file fits this pattern")
    return sorted(set(found), key=str)


def _local(path: Path, suffixes: Sequence[str]) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(
        file for file in path.rglob("*") if _taken(file.relative_to(path).parts, suffixes) and file.is_file()
    )
    if not files:
        raise _nothing_in(path, suffixes)
    return files


def _taken(parts: Sequence[str], suffixes: Collection[str]) -> bool:
    hidden = any(part.startswith((".", "_")) for part in parts)
    return not hidden and plain_suffix(PurePosixPath(parts[-1])) in suffixes


def _nothing_in(place: Any, suffixes: Sequence[str]) -> LogError:
    return LogError(f"{place}: the folder has no file that ends in {', '.join(suffixes)}")


def _remote(url: str, suffixes: Sequence[str]) -> list[RemoteFile]:
    address, question, options = url.partition("?")
    base = address.partition("*")[0].rpartition("/")[0] if "*" in address else address
    try:
        files, root = pyarrow.fs.FileSystem.from_uri(base + question + options)
        info = files.get_file_info(root)
        if info.type == pyarrow.fs.FileType.NotFound:
            raise LogError(f"{url}: there is nothing there")
        if info.type == pyarrow.fs.FileType.File:
            return [RemoteFile(url)]
        infos = files.get_file_info(pyarrow.fs.FileSelector(root, recursive=True))
    except (pa.ArrowException, OSError) as error:
        raise LogError(f"{url}: cannot be read: {error}") from error
    base = base.rstrip("/")
    names = sorted(
        info.path[len(root.rstrip("/")) + 1 :] for info in infos if info.type == pyarrow.fs.FileType.File
    )
    wanted = address[len(base) + 1 :].split("/") if "*" in address else []
    found = [
        RemoteFile(f"{base}/{name}{question}{options}")
        for name in names
        if _taken(name.split("/"), suffixes) and _fits(name.split("/"), wanted)
    ]
    if not found:
        raise (LogError(f"{url}: no file fits this pattern") if wanted else _nothing_in(url, suffixes))
    return found


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path, or a folder that it lies in, fits a pattern."""
    return len(parts) >= len(pattern) and all(map(fnmatchcase, parts, pattern))
