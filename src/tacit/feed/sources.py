"""Read events from files, folders and standard input, with their places; malformed ones get a reason."""

# 1. ``SourceEvent``, ``EventSource``: an event with its place; a source with a position.
# 2. JSON lines: cut from chunks; an event's id is the same whenever the file is read again.
# 3. Following: the end of a growing file is followed; if a new file replaces it, that is read from its
#    beginning.
# 4. CSV and Parquet: complete files only.

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
from tacit.logs.formats import LONG_LINE_PREFIX, LONGEST_LINE
from tacit.wire.error_messages import explain_invalid_json

CHUNK_BYTES = 2**20
PARQUET_ROWS = 1000
POLL_SECONDS = 0.2
"""Seconds between checks of a source that may grow."""
STANDARD_INPUT = "-"
REJECTED_KEY = "tacit_rejected"
"""Key of the reason in a line of rejected events, next to ``event``; such a line can be fed again."""


class SourceEvent(NamedTuple):
    """An event of a source, or a malformed entry with a reason.

    Attributes
    ----------
    source : str
    line : int
        Line of text, from 1; row of Parquet.
    event_id : str
        An id from content and place in the file, independent of the file's path.
    event : dict or None
    text : str
        The malformed entry; empty for an event.
    reason, detail : str
        Why the entry is no event; empty for an event.
    size : int
        Approximate size in bytes.
    unit : str
        Unit of ``line``: lines, or offsets of a topic.
    """

    source: str
    line: int
    event_id: str
    event: dict[str, Any] | None
    text: str = ""
    reason: str = ""
    detail: str = ""
    size: int = 0
    unit: str = "line"

    @property
    def place(self) -> str:
        """Source, unit and number of the event as text for messages, such as "clicks.jsonl, line 7"."""
        return f"{self.source}, {self.unit} {self.line}"


OffsetReader = Callable[[str], Mapping[str, int]]
"""Returns the saved offsets of a feed's partitions, given the feed's name, from a service's log."""


class EventSource:
    """Events in order, with the position up to which they were sent.

    This base class iterates over given events and has no position.

    Parameters
    ----------
    events : iterable of SourceEvent or None
        None whenever there are no more events for now.

    Attributes
    ----------
    name : str
        Name of the feed in the service's log, if its position is saved there; else empty.
    """

    name = ""

    def __init__(self, events: Iterable[SourceEvent | None]) -> None:
        self._events = events

    def __iter__(self) -> Iterator[SourceEvent | None]:
        return iter(self._events)

    def position(self) -> Any:
        """Return the position after the last event read; here None, as files can be read again."""
        return None

    def commit(self, position: Any) -> None:
        """Record that the service has all events before a position; here nothing happens."""

    def close(self) -> None:
        """Release the resources of the source; here nothing happens."""


def read_events(
    place: str, format: str | None = None, *, follow: bool = False
) -> Iterator[SourceEvent | None]:
    """Yield the events at a path or URL, in order; None whenever there are no more for now.

    Malformed entries are yielded, too, with a reason and no event.

    Parameters
    ----------
    place : str
        A file, a folder, a pattern with ``*``, Parquet by a URL; or ``-``, standard input with JSON lines.
    format : {"json", "csv", "parquet"}, optional
        By default that of the suffix.
    follow : bool, default False
        Whether to wait at the end for more. JSON lines may grow, and new files may appear in a folder.

    Raises
    ------
    LogError
        If there is no such file, or it cannot be read.
    InvalidValue
        If the format is unknown, or cannot be followed.
    """
    if format is not None:
        # Raises InvalidValue for an unknown format, before the source is waited for.
        formats.detect_format(Path(), format)
    if place == STANDARD_INPUT:
        if format not in (None, "json"):
            raise InvalidValue("format", format, "standard input has JSON lines; give a file instead")
        yield from _read_standard_input(descriptor=0)
    elif follow:
        yield from _follow(place, format)
    else:
        for file in formats.find_files(place, formats.list_suffixes(format)):
            yield from _read_file(file, formats.detect_format(file, format))


def _read_file(file: formats.File, format: str) -> Iterator[SourceEvent]:
    """Yield the events of a file in a format; raise LogError if the file cannot be read."""
    read: Any = {"json": _read_json, "csv": _read_csv, "parquet": _read_parquet}[format]
    try:
        yield from read(file)
    except (OSError, pa.ArrowException, EOFError, csv.Error) as error:
        raise LogError(f"{file}: cannot be read as {format}: {error}") from error


# ---- JSON lines


class EventLines:
    """Split chunks of bytes into lines, and parse the JSON event of each.

    ``size`` is the number of bytes received. The incomplete last line is kept for the next chunk.

    Parameters
    ----------
    source : str
        Name of the source.

    Examples
    --------
    >>> lines = EventLines("clicks.jsonl")
    >>> [(found.line, found.event) for found in lines.parse_chunk(b'{"a": 1}\\n{"a"')], lines.size
    ([(1, {'a': 1})], 13)
    >>> [(found.line, found.event) for found in lines.parse_chunk(b': 2}\\n')]
    [(2, {'a': 2})]
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.size = 0
        self._pending = bytearray()
        self._dropped_bytes = 0
        self._line = 0

    def parse_chunk(self, chunk: bytes) -> Iterator[SourceEvent]:
        """Add a chunk of bytes; yield the events of the lines that end in it, except blank lines."""
        begin = self.size - len(self._pending) - self._dropped_bytes
        self.size += len(chunk)
        *parts, remainder = chunk.split(b"\n")
        for part in parts:
            self._append(part)
            line, dropped = bytes(self._pending), self._dropped_bytes
            self._pending.clear()
            self._dropped_bytes = 0
            self._line += 1
            if line.strip():
                yield self._parse_line(line, begin, dropped)
            begin += len(line) + dropped + 1
        self._append(remainder)

    def parse_rest(self) -> Iterator[SourceEvent]:
        """Yield the event of the last line, if it does not end with a newline."""
        if self._pending:
            yield from self.parse_chunk(b"\n")

    def _append(self, part: bytes) -> None:
        """Add bytes to the current line; if it is too long, keep a prefix and count the dropped bytes."""
        if self._dropped_bytes or len(self._pending) + len(part) > LONGEST_LINE:
            size = len(self._pending) + len(part)
            self._pending += part[:LONG_LINE_PREFIX]
            del self._pending[LONG_LINE_PREFIX:]
            self._dropped_bytes += size - len(self._pending)
        else:
            self._pending += part

    def _parse_line(self, line: bytes, begin: int, dropped: int) -> SourceEvent:
        """Return the event of a line that begins at byte ``begin``; a line with dropped bytes is rejected."""
        if begin == 0:
            line = line.removeprefix(b"\xef\xbb\xbf")
        name = make_event_id(line, begin)
        if dropped:
            return _make_rejected(line, self.source, self._line, name, *_too_long_reason(len(line) + dropped))
        return parse_event(line, self.source, self._line, name)


def parse_event(content: bytes, source: str, place: int, name: str) -> SourceEvent:
    """Return the event in the JSON of a line or message; a malformed one is returned with a reason.

    Parameters
    ----------
    content : bytes
    source : str
    place : int
        The line or offset.
    name : str
        The event's id, unless it is a rejected event that has one.
    """
    location = content, source, place, name
    if len(content) > LONGEST_LINE:
        return _make_rejected(content[:LONG_LINE_PREFIX], *location[1:], *_too_long_reason(len(content)))
    try:
        event = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = explain_invalid_json(error, content)
        return _make_rejected(*location, "not-json", f"{why}; give one JSON object in each line or message")
    if not isinstance(event, dict):
        detail = "it is JSON, but no object; give one in each line or message"
        return _make_rejected(*location, "not-an-object", detail)
    if not isinstance(rejection := event.get(REJECTED_KEY), dict):
        return SourceEvent(source, place, name, event, size=len(content))
    event, id = event.get("event"), rejection.get("named")
    if not isinstance(event, dict):
        return _make_rejected(*location, "not-json", "it was no event when it was rejected; mend the source")
    return SourceEvent(source, place, id if isinstance(id, str) and id else name, event, size=len(content))


def _make_rejected(
    content: bytes, source: str, place: int, name: str, reason: str, detail: str
) -> SourceEvent:
    """Return a malformed entry with its text, a reason code and a message, without an event."""
    text = content.decode(errors="replace")
    return SourceEvent(source, place, name, None, text, reason, detail, len(content))


def _too_long_reason(size: int) -> tuple[str, str]:
    """Return the reason code and message for an event of so many bytes."""
    return "too-long", f"an event of {size:,} bytes; at most {LONGEST_LINE:,} are read"


def make_event_id(content: bytes, place: int) -> str:
    """Return an event's id: a hash of its content, "@", and its place in the file or topic.

    Examples
    --------
    >>> make_event_id(b'{"clicked": 1}', 120)
    'fe91c37ffc957df75989a60d@120'
    """
    return f"{blake2b(content, digest_size=12).hexdigest()}@{place}"


def _read_json(file: Path) -> Iterator[SourceEvent]:
    """Yield the events of a file of JSON lines, which may be compressed."""
    lines = EventLines(str(file))
    with pa.input_stream(str(file), compression="detect") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield from lines.parse_chunk(chunk)
    yield from lines.parse_rest()


def _read_standard_input(descriptor: int) -> Iterator[SourceEvent | None]:
    """Yield events of JSON lines from a file descriptor until its end; None while nothing arrives."""
    lines = EventLines("standard input")
    while True:
        if not select.select([descriptor], [], [], POLL_SECONDS)[0]:
            yield None
        elif chunk := os.read(descriptor, CHUNK_BYTES):
            yield from lines.parse_chunk(chunk)
        else:
            break
    yield from lines.parse_rest()


# ---- Following files that grow


class Tail:
    """A growing file of JSON lines; a file that replaces it is read from its beginning.

    Parameters
    ----------
    path : path
    stays_open : bool
        Whether the file stays open, so that no event is lost if it is renamed while it grows.
    """

    def __init__(self, path: Path, stays_open: bool) -> None:
        self._path, self._stays_open = path, stays_open
        self._file: BinaryIO | None = None
        self._node: tuple[int, int] | None = None
        self._lines = EventLines(str(path))

    def read_new(self) -> Iterator[SourceEvent]:
        """Yield the events added since the last call, and advance behind them.

        A replaced or shortened file is read from its beginning, after the rest of the replaced one. If the
        file does not exist, only the rest of an open one is read.
        """
        try:
            now = self._path.stat()
        except FileNotFoundError:
            # The old file was removed, and the new one does not exist yet.
            yield from self._read()
            return
        node = now.st_dev, now.st_ino
        if self._node not in (None, node) or now.st_size < self._lines.size:
            if self._node != node:
                yield from self._read()
                yield from self._lines.parse_rest()
            self.close()
            self._lines = EventLines(str(self._path))
        self._node = node
        if now.st_size > self._lines.size:
            if self._file is None:
                self._file = self._path.open("rb")
                self._file.seek(self._lines.size)
            yield from self._read()
            if not self._stays_open:
                self.close()

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> Iterator[SourceEvent]:
        """Yield the events of the remaining lines of the open file, if there is one."""
        while self._file is not None and (chunk := self._file.read(CHUNK_BYTES)):
            yield from self._lines.parse_chunk(chunk)


def _follow(place: str, format: str | None) -> Iterator[SourceEvent | None]:
    """Yield new events of a growing file, or of all files in a folder, forever; None after each round.

    Raises LogError if a file cannot be read; closes all files at the end.
    """
    is_folder = Path(place).is_dir()
    tails: dict[Path, Tail] = {}
    try:
        while True:
            for file in _find_growing(place, format, first=not tails):
                if file not in tails:
                    tails[file] = Tail(file, stays_open=not is_folder)
                try:
                    yield from tails[file].read_new()
                except OSError as error:
                    raise LogError(f"{file}: cannot be read: {error}") from error
            yield None
            time.sleep(POLL_SECONDS)
    finally:
        for tail in tails.values():
            tail.close()


def _find_growing(place: str, format: str | None, first: bool) -> list[Path]:
    """Return the paths to follow: all files in a folder, or the one path, even if the file was removed.

    Raises InvalidValue for a pattern, URL or other format, LogError if nothing exists at the ``first`` call.
    """
    if "*" in place or "://" in place:
        raise InvalidValue("follow", place, "follow a file or a folder")
    path = Path(place)
    if first and not path.exists():
        remedy = "there is no such file or folder; make it before it is followed"
        raise LogError(f"{place}: cannot be read: {remedy}")
    files = formats.find_files(place, formats.list_suffixes(format)) if path.is_dir() else [path]
    return [_check_followable(file, format) for file in files if isinstance(file, Path)]


def _check_followable(path: Path, format: str | None) -> Path:
    """Return the path; raise InvalidValue unless it is a file of uncompressed JSON lines."""
    if formats.detect_format(path, format) != "json" or path.suffix.lower() in formats.COMPRESSED:
        raise InvalidValue("follow", str(path), "only JSON lines that are not compressed can be followed")
    return path


# ---- CSV and Parquet


class _RowLines:
    """Lines of a CSV file for its reader, with an error for a row of too many characters.

    Attributes
    ----------
    chars_left : int
        Characters that the current row may still have.
    line_number : int
        Number of lines read.
    """

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
        self.chars_left, self.line_number = LONGEST_LINE, 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        """Return the next line and count it; raise csv.Error if the current row has too many characters."""
        line = self._text.readline(self.chars_left + 1)
        if not line:
            raise StopIteration
        self.line_number += 1
        self.chars_left -= len(line)
        if self.chars_left >= 0:
            return line
        while line and not line.endswith(("\n", "\r")):
            line = self._text.readline(LONGEST_LINE)
        raise csv.Error(f"a row of more than {LONGEST_LINE:,} characters")


def _read_csv(file: Path) -> Iterator[SourceEvent]:
    """Yield the events of a CSV file by its header; a bad row becomes a rejected entry.

    Raises csv.Error if the header is not in UTF-8.
    """
    with (
        pa.input_stream(str(file), compression="detect") as stream,
        io.TextIOWrapper(
            io.BufferedReader(stream, CHUNK_BYTES), encoding="utf-8-sig", errors="surrogateescape", newline=""
        ) as text,
    ):
        lines = _RowLines(text)
        rows = csv.reader(lines, delimiter=formats.detect_delimiter(file), strict=True)
        names = next(rows, [])
        try:
            "".join(names).encode()
        except UnicodeEncodeError:
            raise csv.Error("its header is not in UTF-8") from None
        while True:
            lines.chars_left, line = LONGEST_LINE, lines.line_number + 1
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                yield SourceEvent(str(file), line, "", None, "", "bad-row", detail=f"{error}; mend the row")
                continue
            if row:
                yield _parse_csv_row(file, line, names, row)


def _parse_csv_row(file: Path, line: int, names: list[str], row: list[str]) -> SourceEvent:
    """Return the event of a row, with None for empty fields, or a rejected entry.

    A row is rejected if it is not in UTF-8, or its length differs from the header's.
    """
    joined = ",".join(row)
    try:
        content = joined.encode()
    except UnicodeEncodeError:
        text = joined.encode(errors="surrogateescape").decode(errors="replace")
        detail = "the row is not in UTF-8; mend the row"
        return SourceEvent(str(file), line, "", None, text=text, reason="not-utf-8", detail=detail)
    if len(row) != len(names):
        detail = f"{len(row)} fields below {len(names)} names; mend the row"
        return SourceEvent(str(file), line, "", None, text=joined, reason="bad-row", detail=detail)
    event = {name: value or None for name, value in zip(names, row, strict=True)}
    return SourceEvent(str(file), line, make_event_id(content, line), event, size=len(content))


def _read_parquet(file: formats.File) -> Iterator[SourceEvent]:
    """Yield an event for each row of a Parquet file, numbered from 1."""
    number = 0
    with formats.parquet_file(file) as opened:
        for batch in opened.iter_batches(PARQUET_ROWS):
            for event in batch.to_pylist():
                number += 1
                content = msgspec.json.encode(event, enc_hook=str)
                yield SourceEvent(str(file), number, make_event_id(content, number), event, size=len(content))
