"""Where events are: files, folders, standard input, each event with its place, and what is none."""

# 1. ``Found``, ``EventSource``: an event with its place, and how far they were sent.
# 2. JSON lines: cut out of what is read, each with a place that stays the same when the file is read again.
# 3. What grows: the end of a file is followed; if another one comes in its place, that is read from its
#    beginning.
# 4. CSV and Parquet: files that are whole.

from __future__ import annotations

import csv
import io
import os
import select
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

import msgspec
import pyarrow as pa

from tacit.errors import InvalidValue, LogError
from tacit.logs import formats
from tacit.logs.formats import KEPT_OF_LONGER, LONGEST_LINE
from tacit.wire.error_messages import no_json

CHUNK = 2**20
ROWS = 1000
POLL_SECONDS = 0.2
"""How often something that may grow is looked at."""
STANDARD_INPUT = "-"
REJECTED = "tacit_rejected"
"""Under which a rejected event says why, next to ``event``, so that it can be fed again as it was."""


class Found(NamedTuple):
    """Something found in a source.

    Attributes
    ----------
    source : str
    line : int
        Of text, from 1; of Parquet, the row.
    named : str
        An id from the content and the place in the file: the same wherever the file lies.
    event : dict or None
    text : str
        What was found in place of an event; empty if there is one.
    reason, detail : str
        Why it is none; empty if it is one.
    size : int
        Bytes that it takes, about.
    unit : str
        What ``line`` counts: lines, or offsets of a topic.
    """

    source: str
    line: int
    named: str
    event: dict[str, Any] | None
    text: str = ""
    reason: str = ""
    detail: str = ""
    size: int = 0
    unit: str = "line"

    @property
    def place(self) -> str:
        """Where it was found, for people."""
        return f"{self.source}, {self.unit} {self.line}"


Kept = Callable[[str], Mapping[str, int]]
"""Returns how far a feed has come, by its parts, from its name: as the log of a service says it."""


class EventSource:
    """Events in order, and how far they have been sent.

    Parameters
    ----------
    found : iterable of Found or None
        None whenever there is nothing more for now.

    Attributes
    ----------
    name : str
        What the service's log calls it, if that is to know how far it was read.
    """

    name = ""

    def __init__(self, found: Iterable[Found | None]) -> None:
        self._found_events = found

    def __iter__(self) -> Iterator[Found | None]:
        return iter(self._found_events)

    def position(self) -> Any:
        """Return how far it was read; of files nothing is kept, as they can be read again."""
        return None

    def sent(self, position: Any) -> None:
        """Take note that all events before a position are with the service."""

    def close(self) -> None:
        """Give up what it holds."""


def events_at(place: str, format: str | None = None, *, follow: bool = False) -> Iterator[Found | None]:
    """Yield what is found at a place, in order; None whenever there is nothing more for now.

    Parameters
    ----------
    place : str
        A file, a folder, a pattern with ``*``, Parquet by a URL; or ``-``, standard input with JSON lines.
    format : {"json", "csv", "parquet"}, optional
        By default the suffix says it.
    follow : bool, default False
        Whether to wait at the end for what comes. JSON lines may grow and, in a folder, come.

    Raises
    ------
    LogError
        If there is nothing, or it cannot be read.
    InvalidValue
        If the format is unknown, or cannot be followed.
    """
    if format is not None:
        formats.format_of(Path(), format)
    if place == STANDARD_INPUT:
        if format not in (None, "json"):
            raise InvalidValue("format", format, "standard input has JSON lines; give a file instead")
        yield from _standard_input(0)
    elif follow:
        yield from _followed(place, format)
    else:
        for file in formats.files_at(place, formats.suffixes_of(format)):
            yield from _read(file, formats.format_of(file, format))


def _read(file: formats.File, format: str) -> Iterator[Found]:
    read: Callable[[Any], Iterator[Found]] = {"json": _json, "csv": _csv, "parquet": _parquet}[format]
    try:
        yield from read(file)
    except (OSError, pa.ArrowException, EOFError, csv.Error) as error:
        raise LogError(f"{file}: cannot be read as {format}: {error}") from error


# ---- JSON lines


class EventLines:
    """Cuts what is read into lines that know their places, and makes events of them.

    Parameters
    ----------
    source : str
        What it is called.

    Examples
    --------
    >>> lines = EventLines("clicks.jsonl")
    >>> [(found.line, found.event) for found in lines.cut(b'{"a": 1}\\n{"a"')], lines.size
    ([(1, {'a': 1})], 13)
    >>> [(found.line, found.event) for found in lines.cut(b': 2}\\n')]
    [(2, {'a': 2})]
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.size = 0
        self._pending = bytearray()
        self._dropped = 0
        self._line = 0

    def cut(self, chunk: bytes) -> Iterator[Found]:
        """Yield the events whose lines end in the next chunk."""
        begin = self.size - len(self._pending) - self._dropped
        self.size += len(chunk)
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._keep(part)
            line, dropped = bytes(self._pending), self._dropped
            self._pending.clear()
            self._dropped = 0
            self._line += 1
            if line.strip():
                yield self._found(line, begin, dropped)
            begin += len(line) + dropped + 1
        self._keep(rest)

    def rest(self) -> Iterator[Found]:
        """Yield the last event, if its line has no end."""
        if self._pending:
            yield from self.cut(b"\n")

    def _keep(self, part: bytes) -> None:
        if self._dropped or len(self._pending) + len(part) > LONGEST_LINE:
            whole = len(self._pending) + len(part)
            self._pending += part[:KEPT_OF_LONGER]
            del self._pending[KEPT_OF_LONGER:]
            self._dropped += whole - len(self._pending)
        else:
            self._pending += part

    def _found(self, line: bytes, begin: int, dropped: int) -> Found:
        if begin == 0:
            line = line.removeprefix(b"\xef\xbb\xbf")
        name = named(line, begin)
        if dropped:
            return _none(line, self.source, self._line, name, *_too_long(len(line) + dropped))
        return found_in(line, self.source, self._line, name)


def found_in(content: bytes, source: str, place: int, name: str) -> Found:
    """Return the event that a line or a message holds, or why it is none.

    Parameters
    ----------
    content : bytes
    source : str
    place : int
        The line or the offset.
    name : str
        Its id, unless it was rejected once and has one.
    """
    where = content, source, place, name
    if len(content) > LONGEST_LINE:
        return _none(content[:KEPT_OF_LONGER], *where[1:], *_too_long(len(content)))
    try:
        event = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = no_json(error, content)
        return _none(*where, "not-json", f"{why}; give one JSON object in each line or message")
    if not isinstance(event, dict):
        return _none(*where, "not-an-object", "it is JSON, but no object; give one in each line or message")
    if not isinstance(before := event.get(REJECTED), dict):
        return Found(source, place, name, event, size=len(content))
    event, id = event.get("event"), before.get("named")
    if not isinstance(event, dict):
        return _none(*where, "not-json", "it was no event when it was rejected; mend the source")
    return Found(source, place, id if isinstance(id, str) and id else name, event, size=len(content))


def _none(content: bytes, source: str, place: int, name: str, reason: str, detail: str) -> Found:
    text = content.decode(errors="replace")
    return Found(source, place, name, None, text, reason, detail, len(content))


def _too_long(size: int) -> tuple[str, str]:
    return "too-long", f"an event of {size:,} bytes; at most {LONGEST_LINE:,} are read"


def named(content: bytes, place: int) -> str:
    """Return an id from the content of an event and its place in the file.

    Examples
    --------
    >>> named(b'{"clicked": 1}', 120)
    'fe91c37ffc957df75989a60d@120'
    """
    return f"{blake2b(content, digest_size=12).hexdigest()}@{place}"


def _json(file: Path) -> Iterator[Found]:
    lines = EventLines(str(file))
    with pa.input_stream(str(file), compression="detect") as stream:
        while chunk := stream.read(CHUNK):
            yield from lines.cut(chunk)
    yield from lines.rest()


def _standard_input(number: int) -> Iterator[Found | None]:
    lines = EventLines("standard input")
    while True:
        if not select.select([number], [], [], POLL_SECONDS)[0]:
            yield None
        elif chunk := os.read(number, CHUNK):
            yield from lines.cut(chunk)
        else:
            break
    yield from lines.rest()


# ---- What grows


class Tail:
    """A file of JSON lines that grows; what comes in its place is read from its beginning.

    Parameters
    ----------
    path : path
    kept : bool
        Whether it stays open, so that nothing is lost of a file that is renamed while it grows.
    """

    def __init__(self, path: Path, kept: bool) -> None:
        self._path = path
        self._kept = kept
        self._open: BinaryIO | None = None
        self._node: tuple[int, int] | None = None
        self._lines = EventLines(str(path))

    def news(self) -> Iterator[Found]:
        """Yield the events that were not there before."""
        try:
            now = self._path.stat()
        except FileNotFoundError:
            # Between an old file and a new one.
            yield from self._read()
            return
        node = now.st_dev, now.st_ino
        if self._node not in (None, node) or now.st_size < self._lines.size:
            if self._node != node:
                yield from self._read()
                yield from self._lines.rest()
            self.close()
            self._lines = EventLines(str(self._path))
        self._node = node
        if now.st_size > self._lines.size:
            if self._open is None:
                self._open = self._path.open("rb")
                self._open.seek(self._lines.size)
            yield from self._read()
            if not self._kept:
                self.close()

    def close(self) -> None:
        """Close the file."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _read(self) -> Iterator[Found]:
        while self._open is not None and (chunk := self._open.read(CHUNK)):
            yield from self._lines.cut(chunk)


def _followed(place: str, format: str | None) -> Iterator[Found | None]:
    folder = Path(place).is_dir()
    tails: dict[Path, Tail] = {}
    try:
        while True:
            for file in _growing(place, format, first=not tails):
                if file not in tails:
                    tails[file] = Tail(file, kept=not folder)
                try:
                    yield from tails[file].news()
                except OSError as error:
                    raise LogError(f"{file}: cannot be read: {error}") from error
            yield None
            time.sleep(POLL_SECONDS)
    finally:
        for tail in tails.values():
            tail.close()


def _growing(place: str, format: str | None, first: bool) -> list[Path]:
    if "*" in place or "://" in place:
        raise InvalidValue("follow", place, "follow a file or a folder")
    path = Path(place)
    if not path.is_dir():
        return [_followable(path, format)] if path.exists() or not first else _missing(place)
    return [
        _followable(file, format)
        for file in formats.files_at(place, formats.suffixes_of(format))
        if isinstance(file, Path)
    ]


def _missing(place: str) -> list[Path]:
    raise LogError(f"{place}: cannot be read: there is no such file or folder; make it before it is followed")


def _followable(path: Path, format: str | None) -> Path:
    if formats.format_of(path, format) != "json" or path.suffix.lower() in formats.COMPRESSED:
        raise InvalidValue("follow", str(path), "only JSON lines that are not compressed can be followed")
    return path


# ---- CSV and Parquet


class _RowLines:
    """Lines of a CSV file for its reader, with an error where a row takes too many characters.

    Attributes
    ----------
    left : int
        Characters that the row under way may have still.
    number : int
        Lines that were read.
    """

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
        self.left, self.number = LONGEST_LINE, 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = self._text.readline(self.left + 1)
        if not line:
            raise StopIteration
        self.number += 1
        self.left -= len(line)
        if self.left >= 0:
            return line
        while line and not line.endswith(("\n", "\r")):
            line = self._text.readline(LONGEST_LINE)
        raise csv.Error(f"a row of more than {LONGEST_LINE:,} characters")


def _csv(file: Path) -> Iterator[Found]:
    with (
        pa.input_stream(str(file), compression="detect") as stream,
        io.TextIOWrapper(
            io.BufferedReader(stream, CHUNK), encoding="utf-8-sig", errors="surrogateescape", newline=""
        ) as text,
    ):
        lines = _RowLines(text)
        rows = csv.reader(lines, delimiter=formats.delimiter_of(file), strict=True)
        names = next(rows, [])
        try:
            "".join(names).encode()
        except UnicodeEncodeError:
            raise csv.Error("its header is not in UTF-8") from None
        while True:
            lines.left, line = LONGEST_LINE, lines.number + 1
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield Found(str(file), line, "", None, "", "bad-row", f"{error}; mend the row")
                continue
            if row:
                yield _csv_row(file, line, names, row)


def _csv_row(file: Path, line: int, names: list[str], row: list[str]) -> Found:
    joined = ",".join(row)
    try:
        content = joined.encode()
    except UnicodeEncodeError:
        text = joined.encode(errors="surrogateescape").decode(errors="replace")
        return Found(str(file), line, "", None, text, "not-utf-8", "the row is not in UTF-8; mend the row")
    if len(row) != len(names):
        detail = f"{len(row)} fields below {len(names)} names; mend the row"
        return Found(str(file), line, "", None, joined, "bad-row", detail)
    event = {name: value or None for name, value in zip(names, row, strict=True)}
    return Found(str(file), line, named(content, line), event, size=len(content))


def _parquet(file: formats.File) -> Iterator[Found]:
    number = 0
    with formats.parquet_file(file) as opened:
        for batch in opened.iter_batches(ROWS):
            for event in batch.to_pylist():
                number += 1
                content = msgspec.json.encode(event, enc_hook=str)
                yield Found(str(file), number, named(content, number), event, size=len(content))
