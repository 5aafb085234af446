"""Find the files of a log, and read and write them as Parquet, CSV or JSON lines, in a stream.

1. Paths: a folder, a pattern or a URL becomes a list of files.
2. Formats: each reads column names and batches, and writes batches.
3. Folder layouts of other systems, and values that CSV has as text.
"""

from __future__ import annotations

import filecmp
import glob
import io
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.fs
import pyarrow.parquet

from tacit.core.arrow_columns import find_root, get_column, list_nested_names
from tacit.errors import AssumptionWarning, InvalidValue, LogError, suggest_name
from tacit.logs.rows import FALSE_WORDS, TRUE_WORDS, RawRows, convert_values, is_text, nulls_for_missing
from tacit.logs.schema import REWARDS_KEY, SCHEMA, VERSION, VERSION_KEY

# ---- Paths: files, folders, patterns, and URLs of pyarrow's file systems


@dataclass(frozen=True)
class RemoteFile:
    """A file with a URL, such as ``s3://bucket/clicks/part-0.parquet``.

    Examples
    --------
    >>> RemoteFile("s3://bucket/clicks/part-0.parquet").suffix
    '.parquet'
    """

    url: str

    @property
    def name(self) -> str:
        """The file's name: the last part of the URL's path, without a query."""
        return PurePosixPath(self.url.partition("?")[0]).name

    @property
    def suffix(self) -> str:
        """The ending of the file's name, with its dot."""
        return PurePosixPath(self.name).suffix

    def open(self) -> Any:
        """Open the remote file for reading with random access, and return it."""
        files, path = pyarrow.fs.FileSystem.from_uri(self.url)
        return files.open_input_file(path)

    def __str__(self) -> str:
        return self.url


File = Path | RemoteFile
FOLDER_VALUE = re.compile(r"([^\W\d]\w*)=(.*)")
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
MIN_COMPARED_BYTES = 4096
"""Size in bytes from which two files with the same content are reported as copies."""
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


def plain_suffix(path: PurePath | RemoteFile) -> str:
    """Return the suffix that names a file's format, in lower case; of "clicks.csv.gz" it is ".csv".

    Examples
    --------
    >>> plain_suffix(Path("clicks.csv.gz")), plain_suffix(Path("clicks.CSV"))
    ('.csv', '.csv')
    """
    compressed = path.suffix.lower() in COMPRESSED
    return (PurePath(path.name).with_suffix("") if compressed else path).suffix.lower()


def is_url(place: str | Path) -> bool:
    """True if ``place`` is a URL, which contains "://"."""
    return "://" in str(place)


def find_files(place: str | Path, suffixes: Sequence[str]) -> list[File]:
    """Return the data files of a path, folder, pattern or URL, sorted by name.

    Parameters
    ----------
    place : str or path
        A file; a folder, from which all files at any depth are taken that end in one of ``suffixes``
        and of whose path no part begins with ``.`` or ``_``; a pattern with ``*`` (within one name)
        for files and folders; or any of these as a URL.
    suffixes : sequence of str

    Raises
    ------
    LogError
        If a folder has no such file, no file matches a pattern, or a URL does not exist.
    """
    if is_url(place):
        return list(_list_remote(str(place), suffixes))
    path = Path(place)
    if not path.exists() and "*" not in str(place):
        raise LogError(
            f"{place}: cannot be read: there is no such file or folder; give one that is there, "
            "with its path from here or from the root; several values of one option have commas between"
        )
    if path.exists() or "*" not in str(place):
        return list(_list_local(path, suffixes))
    files: list[File] = [file for name in glob.glob(str(place)) for file in _list_local(Path(name), suffixes)]
    if not files:
        raise LogError(f"{place}: no file fits this pattern")
    return sorted(set(files), key=str)


def collect_files(places: Iterable[str | Path], suffixes: Sequence[str]) -> list[File]:
    """Return the data files of all places, in order; warn of the first file that is a copy of an earlier one.

    Only local files of at least 4 KiB are compared. ``places`` and ``suffixes`` are as for
    :func:`find_files`.

    Raises
    ------
    LogError
        As :func:`find_files`.
    InvalidValue
        If a file occurs twice.
    """
    files = [file for place in places for file in find_files(place, suffixes)]
    refuse_duplicates(files)
    local = [file for file in files if isinstance(file, Path)]
    sizes = Counter(file.stat().st_size for file in local)
    file_by_content: dict[tuple[int, int], Path] = {}
    for file in local:
        size = file.stat().st_size
        if size >= MIN_COMPARED_BYTES and sizes[size] > 1:
            with file.open("rb") as opened:
                earlier = file_by_content.setdefault((size, hash(opened.read(65_536))), file)
            if earlier is not file and filecmp.cmp(earlier, file, shallow=False):
                message = f"path: {str(file)!r} has the same content as {str(earlier)!r}, and its rows count"
                warnings.warn(f"{message} twice; leave one out", AssumptionWarning, stacklevel=3)
                break
    return files


def find_folder_values(file: File) -> dict[str, str | None]:
    """Return the columns whose values are in the names of a file's folders, as ``country=de``; None for null.

    Examples
    --------
    >>> find_folder_values(Path("log/country=de/day=2026-01-01/part-0.parquet"))
    {'country': 'de', 'day': '2026-01-01'}
    """
    folders = PurePosixPath(str(file).partition("?")[0]).parts[:-1]
    pairs = [match.groups() for folder in folders if (match := FOLDER_VALUE.fullmatch(folder))]
    return {name: None if value == NO_VALUE else unquote(value) for name, value in pairs}


def refuse_duplicates(places: Iterable[Any]) -> None:
    """Raise InvalidValue if a place occurs twice, possibly by two spellings of its path."""
    resolved_places = set()
    for place in places:
        resolved = place if isinstance(place, RemoteFile) or is_url(place) else Path(place).resolve()
        if resolved in resolved_places:
            raise InvalidValue("path", str(place), "its rows would count twice; name it once")
        resolved_places.add(resolved)


def _list_local(path: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return a path that is no folder, or the data files of a folder at any depth, sorted.

    Raises LogError if the folder has none, or is an export of the service; the error names the logs in it.
    """
    if not path.is_dir():
        return [path]
    files = sorted(
        file
        for file in path.rglob("*")
        if _is_data_file(file.relative_to(path).parts, suffixes) and file.is_file()
    )
    if not files:
        raise _no_files_error(path, suffixes)
    if any((file.parent / "placements.json").is_file() for file in files):
        command_hints = {"clicks": "", "lists": "", "duels": " to tacit duel"}
        file_hints = [(file, command_hints.get(file.stem.partition("-")[0])) for file in files]
        logs = ", or ".join(f"{file}{hint}" for file, hint in file_hints if hint is not None)
        remedy = f"give {logs}" if logs else "export it with --config, so that it has clicks.parquet"
        raise LogError(f"{path}: it is an export, of which not all is a log; {remedy}")
    return files


def _is_data_file(parts: Sequence[str], suffixes: Collection[str]) -> bool:
    """True if the parts of a path end in one of ``suffixes`` and none begins with "." or "_"."""
    is_hidden = any(part.startswith((".", "_")) for part in parts)
    return not is_hidden and plain_suffix(PurePosixPath(parts[-1])) in suffixes


def _no_files_error(place: Any, suffixes: Sequence[str]) -> LogError:
    """Return, not raise, the error that a folder has no file with one of ``suffixes``."""
    return LogError(f"{place}: the folder has no file that ends in {', '.join(suffixes)}")


def _list_remote(url: str, suffixes: Sequence[str]) -> list[RemoteFile]:
    """Return the files of a URL: of a file, a folder at any depth, or a pattern; sorted by name.

    Raises LogError if there is none, or the file system cannot be read.
    """
    address, question, options = url.partition("?")
    # The file, or the folder above the first name with a star; options such as a region stand behind "?".
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
        remedy = "give a path, or a URL of s3://, gs://, hdfs:// or file://"
        raise LogError(f"{url}: cannot be read: {error}; {remedy}") from error
    base = base.rstrip("/")
    names = sorted(info.path[len(root.rstrip("/")) + 1 :] for info in infos if info.is_file)
    pattern = address[len(base) + 1 :].split("/") if "*" in address else []
    matches = [
        RemoteFile(f"{base}/{name}{question}{options}")
        for name in names
        if _is_data_file(name.split("/"), suffixes) and _matches(name.split("/"), pattern)
    ]
    if not matches:
        raise (LogError(f"{url}: no file fits this pattern") if pattern else _no_files_error(url, suffixes))
    return matches


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """True if the names of a path, or of a folder above it, match the names of a pattern one by one."""
    return len(parts) >= len(pattern) and all(map(fnmatchcase, parts, pattern))


# ---- The file formats: Parquet, CSV and JSON lines, each read and written in a stream
#
# In CSV a list is JSON text, nothing between two commas is null, and ``""`` is empty text.

JSON_NAME_LINES = 1000
LONGEST_LINE = 16 * 2**20
"""Most bytes of a line; a longer line is cut to its beginning and is neither a row nor an event."""
LONG_LINE_PREFIX = 1000
TRUNCATION_MARK = "…\n".encode()
"""End of a line that was cut."""
UTF_16 = "in UTF-16; save it in UTF-8"
GZIP = b"\x1f\x8b"
SIGNATURES = {
    GZIP: "compressed by gzip; call it {}.gz",
    b"PK\x03\x04": "a workbook or a zip file; give what is in it, saved as CSV",
    b"PAR1": "Parquet; say so with format='parquet' (--format parquet)",
} | dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), UTF_16)
"""First bytes of files that are not text in UTF-8, and their description in errors."""
DELIMITERS = ",;\t|"


class Format(NamedTuple):
    """How to read and write one file format.

    Attributes
    ----------
    suffixes : tuple of str
        Suffixes of its files.
    names : function
        From a file to the names of its columns.
    read : function
        From a file, names of columns and a number of rows to batches of at most so many rows.
    write : function
        Writes batches of the schema, and if the format can store it a note on the unit of rewards, to an
        open file.
    sparse : bool
        Whether rows omit columns without a value, so that ``names`` may not list all of them.
    """

    suffixes: tuple[str, ...]
    names: Callable[[Any], list[str]]
    read: Callable[[Any, Sequence[str], int], Iterator[RawRows]]
    write: Callable[[BinaryIO, Iterable[Any], str], None]
    sparse: bool = False


def detect_format(path: File, name: str | None = None) -> str:
    """Return a file's format: ``name`` if it is not None, else the format of the file's suffix.

    Raises
    ------
    InvalidValue
        If there is no such format, the suffix names none, or the format cannot be read from a URL.
    """
    suffix = plain_suffix(path)
    format_name = next((candidate for candidate, form in FORMATS.items() if suffix in form.suffixes), None)
    format_name = format_name if name is None else name
    if format_name in FORMATS:
        if isinstance(path, RemoteFile) and format_name != "parquet":
            raise InvalidValue("format", format_name, f"give Parquet at {path}; copy other logs here")
        return format_name
    if name is None:
        endings = ", ".join(suffix for form in FORMATS.values() for suffix in form.suffixes)
        remedy = f"give {', '.join(FORMATS)}, or a file that ends in {endings}"
        raise InvalidValue("format", path.name, remedy)
    raise InvalidValue("format", name, f"give one of {', '.join(FORMATS)}{suggest_name(name, FORMATS)}")


def list_suffixes(format: str | None) -> list[str]:
    """Return the suffixes of a format's files; for None, of all formats' files."""
    formats = FORMATS if format is None else {format: FORMATS[detect_format(Path(), format)]}
    return [suffix for form in formats.values() for suffix in form.suffixes]


# Parquet ------------------------------------------------------------------------------------


def parquet_file(file: File, **options: Any) -> Any:
    """Open a local or remote Parquet file and return its pyarrow ParquetFile; ``options`` are pyarrow's."""
    return pyarrow.parquet.ParquetFile(file.open() if isinstance(file, RemoteFile) else file, **options)


def _read_parquet_names(path: File) -> list[str]:
    """Return the column names of a Parquet file; raise LogError if a later tacit has written it."""
    with parquet_file(path) as file:
        schema = file.schema_arrow
    version = (schema.metadata or {}).get(VERSION_KEY, b"1")
    if not version.isdigit() or int(version) > VERSION:
        raise LogError(
            f"{path}: its click-log schema is of version {version.decode(errors='replace')}, "
            f"this tacit reads up to {VERSION}; update tacit"
        )
    return list_nested_names(schema)


def number_rows(batches: Iterable[Any], names: Sequence[str], first: int = 1) -> Iterator[RawRows]:
    """Yield the named columns of record batches as raw rows, whose numbers count from ``first`` on."""
    for batch in batches:
        rows = np.arange(first, first + len(batch))
        yield RawRows({name: get_column(batch, name) for name in names}, rows, [])
        first += len(batch)


def _read_parquet(path: File, names: Sequence[str], batch_rows: int) -> Iterator[RawRows]:
    """Yield the named columns of a Parquet file in batches; rows are numbered from 1."""
    with parquet_file(path) as file:
        yield from number_rows(file.iter_batches(batch_rows, columns=list(names)), names)


def read_rewards_note(path: Any) -> str:
    """Return the note on the unit of rewards in a Parquet file's metadata, or an empty text."""
    with parquet_file(path) as file:
        note: bytes = (file.schema_arrow.metadata or {}).get(REWARDS_KEY, b"")
    return note.decode(errors="replace")


def _write_parquet(file: BinaryIO, batches: Iterable[Any], rewards: str) -> None:
    """Write batches as Parquet to an open file, with the note on rewards in its metadata."""
    schema = SCHEMA.with_metadata({**SCHEMA.metadata, REWARDS_KEY: rewards}) if rewards else SCHEMA
    with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


# CSV ----------------------------------------------------------------------------------------


def _open_csv(path: Path, names: Sequence[str], malformed: list[tuple[int, str]]) -> Any:
    """Open a CSV file and return a streaming reader of the named columns as bytes.

    While it reads, it appends number and text of rows with too many or too few fields to ``malformed``, and
    skips them.
    """

    def skip(row: Any) -> str:
        """Append a malformed row's number and text to ``malformed``, and have pyarrow skip it."""
        # pyarrow counts the header as row 1.
        malformed.append((row.number - 1, row.text))
        return "skip"

    delimiter = detect_delimiter(path)
    has_blanks = _has_blanks(path, delimiter)
    return pyarrow.csv.open_csv(
        pa.TransformInputStream(_open_stream(path), _make_blank_remover(delimiter)) if has_blanks else path,
        # Only a reader without threads reports the numbers of malformed rows.
        read_options=pyarrow.csv.ReadOptions(use_threads=False),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, invalid_row_handler=skip
        ),
        # Bytes, so that a row that is not UTF-8 does not invalidate its whole block.
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(names),
            column_types=dict.fromkeys(names, pa.binary()),
            check_utf8=False,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _open_stream(path: Path) -> Any:
    """Open a text file for reading, decompressed by its suffix.

    Raises LogError if its first bytes are those of another kind of file, or do not fit the suffix ".gz".
    """
    with path.open("rb") as file:
        first = file.read(4)
    for signature, description in SIGNATURES.items():
        if first.startswith(signature) and path.suffix.lower() not in COMPRESSED:
            raise LogError(f"{path}: it is {description.format(path.name)}")
    if path.suffix.lower() == ".gz" and first and not first.startswith(GZIP):
        raise LogError(f"{path}: its name says that it is compressed; call it otherwise if it is not")
    return pa.input_stream(str(path), compression="detect")


def detect_delimiter(path: Path) -> str:
    """Return the delimiter that occurs most often in a file's header, outside quotes; a comma on a tie."""
    return max(DELIMITERS, key=_read_unquoted_header(path).count)


def _read_unquoted_header(path: Path) -> str:
    """Return the header of a CSV file without its quoted cells."""
    with _open_stream(path) as file:
        header = file.read(65_536).decode(errors="replace").partition("\n")[0]
    # Every other part is between quotes.
    return "".join(header.split('"')[::2])


def _has_blanks(path: Path, delimiter: str) -> bool:
    """True if a blank follows each delimiter in the header of a CSV file."""
    fields = _read_unquoted_header(path).split(delimiter)[1:]
    return bool(fields) and all(field.startswith(" ") for field in fields)


def _make_blank_remover(delimiter: str) -> Callable[[bytes], bytes]:
    """Return a function that removes blanks between delimiter and quotes from the blocks of a CSV file.

    It is called with the blocks in order, and with b"" at the end.
    """
    blanks, pending = re.compile(rb"(?<=%b) +(?=\")" % re.escape(delimiter.encode())), b""

    def remove_blanks(block: bytes) -> bytes:
        """Return the whole lines of a block, with the end of the previous one, without such blanks."""
        nonlocal pending
        text = pending + block
        end = text.rfind(b"\n") + 1 if block else len(text)
        pending = text[end:]
        return blanks.sub(b"", text[:end])

    return remove_blanks


def header_hint(names: Sequence[str]) -> str:
    """Return a hint that a file lacks a header or is JSON lines, if its column names look so; else ""."""
    if names and names[0].lstrip().startswith("{"):
        return " (it is JSON lines: say so with format='json' (--format json))"
    values = [name for name in names if name[:1].isdigit() or name.startswith(("[", "-", "."))]
    if not values:
        return ""
    return f" (does the first line hold a row? {values[0]!r} is no name; write names above it)"


def _read_csv_names(path: Path) -> list[str]:
    """Return the column names in the header of a CSV file."""
    with _open_csv(path, [], []) as reader:
        return [name.strip() for name in reader.schema.names]


def _read_csv(path: Path, names: Sequence[str], batch_rows: int) -> Iterator[RawRows]:
    """Yield the named columns of a CSV file as bytes, in batches, with malformed rows apart.

    Rows are numbered from 1, below the header.
    """
    malformed: list[tuple[int, str]] = []
    first = 1
    with _open_csv(path, [], []) as reader:
        stored = {name.strip(): name for name in reader.schema.names}
    has_blanks = _has_blanks(path, detect_delimiter(path))
    with _open_csv(path, [stored.get(name, name) for name in names], malformed) as reader:
        for block in reader:
            for start in range(0, len(block), batch_rows):
                batch = block.slice(start, batch_rows)
                # The parser reads ahead, so ``malformed`` may have rows beyond this batch.
                # Rows are numbered in the file's order, malformed rows included.
                skipped = np.array([row for row, _ in malformed], np.int64)
                span = np.arange(first, first + len(batch) + len(skipped))
                rows = np.setdiff1d(span, skipped)[: len(batch)]
                first = int(rows[-1]) + 1
                passed = [bad for bad in malformed if bad[0] < first]
                del malformed[: len(passed)]
                columns = map(_trim_start, batch.columns) if has_blanks else batch.columns
                # Without names, pyarrow reads all columns: then only the rows count.
                yield RawRows(dict(zip(names, columns, strict=bool(names))), rows, passed)
    if malformed:
        yield RawRows({name: pa.nulls(0) for name in names}, np.arange(0), malformed)


def _trim_start(values: Any) -> Any:
    """Return a column of bytes as text without blanks at the start; unchanged if a value is not in UTF-8."""
    try:
        return pc.utf8_ltrim_whitespace(values.cast(pa.string()))
    except pa.ArrowInvalid:
        return values


CSV_SCHEMA = pa.schema(
    [
        field.with_type(pa.string())
        if pa.types.is_list(field.type) or pa.types.is_timestamp(field.type)
        else field
        for field in SCHEMA
    ]
)


def _to_json(value: Any) -> str:
    """Return a value as compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _format_times(times: Any) -> Any:
    """Return times as ISO 8601 texts in UTC that end in "Z"."""
    return pc.binary_join_element_wise(times.cast(pa.timestamp("us")).cast(pa.string()), "Z", "")


def _write_csv(file: BinaryIO, batches: Iterable[Any], rewards: str) -> None:
    """Write batches as CSV to an open file; the note on rewards cannot be stored and is ignored."""
    with pyarrow.csv.CSVWriter(file, CSV_SCHEMA) as writer:
        for batch in batches:
            columns = [_convert_csv_column(batch.column(field.name)) for field in SCHEMA]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=CSV_SCHEMA))


def _convert_csv_column(values: Any) -> Any:
    """Return a column as CSV holds it: times as ISO 8601, lists as JSON text, others unchanged."""
    if pa.types.is_timestamp(values.type):
        return _format_times(values)
    if pa.types.is_list(values.type):
        texts = (None if value is None else _to_json(value) for value in values.to_pylist())
        return pa.array(texts, pa.string())
    return values


# JSON lines ---------------------------------------------------------------------------------


def parse_object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a line; None if it is no object, or has text that is not Unicode."""
    try:
        value = json.loads(line.decode("utf-8-sig"))
        if b"\\ud" in line.lower():  # perhaps half of a surrogate pair, which cannot be encoded
            _to_json(value).encode()
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@contextmanager
def open_lines(path: Path) -> Iterator[Iterator[bytes]]:
    """Open a text file, for a ``with`` block, as an iterator of its lines, decompressed by its suffix.

    A line of more than 16 MiB is cut, so that it is no JSON.
    """
    with io.BufferedReader(_open_stream(path)) as file:
        yield _read_bounded_lines(file)


def _read_bounded_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; a line of 16 MiB or more is cut to 1,000 bytes and a mark."""
    while line := file.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            part = line
            while part and not part.endswith(b"\n"):
                part = file.readline(LONGEST_LINE)
            line = line[:LONG_LINE_PREFIX] + TRUNCATION_MARK
        yield line


def _read_next_lines(lines: Iterator[bytes], most: int) -> list[bytes]:
    """Take the next lines from an iterator: at most ``most``, or fewer if they exceed 16 MiB."""
    block, size = [], 0
    for line in lines:
        block.append(line)
        size += len(line)
        if len(block) == most or size >= LONGEST_LINE:
            break
    return block


def _read_json_names(path: Path) -> list[str]:
    """Return all names in the objects of the first 1,000 lines of a file of JSON lines.

    Raises LogError if no line is a JSON object.
    """
    with open_lines(path) as file:
        lines = [line for line in _read_next_lines(file, JSON_NAME_LINES) if line.strip()]
        objects = list(map(parse_object, lines))
        if lines and not any(objects):
            remedy = "write one in UTF-8 a line, as by frame.to_json(path, orient='records', lines=True)"
            raise LogError(f"{path}: no line of it is a JSON object; {remedy}")
        return list(dict.fromkeys(name for record in objects if record for name in _iter_names(record)))


def _iter_names(record: dict[str, Any]) -> Iterator[str]:
    """Yield the names of a JSON object's fields and, with dots, of the fields of objects in it."""
    for name, value in record.items():
        yield name
        if isinstance(value, dict):
            yield from (f"{name}.{inner}" for inner in _iter_names(value))


def get_field(record: Any, path: str) -> Any:
    """Return the value of a JSON object's field, or at a dotted path of nested objects; None without one.

    Examples
    --------
    >>> record = {"user": {"age": 30}, "user.id": "u1"}
    >>> get_field(record, "user.age"), get_field(record, "user.id"), get_field(record, "arm.id")
    (30, 'u1', None)
    """
    if not isinstance(record, dict) or path in record or "." not in path:
        return record.get(path) if isinstance(record, dict) else None
    root = find_root(path, record)
    return None if root == path else get_field(record[root], path[len(root) + 1 :])


def _read_json(path: Path, names: Sequence[str], batch_rows: int) -> Iterator[RawRows]:
    """Yield the named fields of JSON lines in batches; a missing field is None.

    Rows are numbered by line, from 1. Lines that are no objects are malformed; empty lines are skipped.
    """
    first = 1
    with open_lines(path) as file:
        while lines := _read_next_lines(file, batch_rows):
            objects = [(row, line, parse_object(line)) for row, line in enumerate(lines, first)]
            first += len(lines)
            records = [record for _, _, record in objects if record is not None]
            rows = [row for row, _, record in objects if record is not None]
            yield RawRows(
                {name: [get_field(record, name) for record in records] for name in names},
                np.array(rows, np.int64),
                [
                    (row, line.decode(errors="replace").rstrip("\n"))
                    for row, line, record in objects
                    if record is None and line.strip()
                ],
            )


def _write_json(file: BinaryIO, batches: Iterable[Any], rewards: str) -> None:
    """Write batches as JSON lines to an open file; the note on rewards cannot be stored and is ignored."""
    names = [field.name for field in SCHEMA]
    for batch in batches:
        columns = [
            (_format_times(values) if pa.types.is_timestamp(values.type) else values).to_pylist()
            for values in (batch.column(name) for name in names)
        ]
        for row in zip(*columns, strict=True):
            file.write(_to_json(dict(zip(names, row, strict=True))).encode() + b"\n")


FORMATS = {
    "parquet": Format((".parquet",), _read_parquet_names, _read_parquet, _write_parquet),
    "csv": Format((".csv", ".tsv"), _read_csv_names, _read_csv, _write_csv),
    "json": Format((".jsonl", ".ndjson", ".json"), _read_json_names, _read_json, _write_json, sparse=True),
}


# ---- Folder layouts of other systems


class FolderLayout(NamedTuple):
    """A layout of files that other systems write, read as a click log.

    Attributes
    ----------
    name : str
        The layout's name in the option ``format``.
    recognises : function
        True for a path that has this layout.
    open : function
        Returns a reader, given places, columns and the other options of :func:`read_log`.
    """

    name: str
    recognises: Callable[[Path], bool]
    open: Callable[..., Any]


# ---- Values that CSV has as text

BOOLEAN_TEXTS = dict.fromkeys((*TRUE_WORDS, "1"), True) | dict.fromkeys((*FALSE_WORDS, "0"), False)
"""Texts of booleans."""


def parse_values(column: Any, format: str) -> list[Any]:
    """Return a column's values as a list; texts of CSV become booleans or numbers if all of them are such.

    Examples
    --------
    >>> parse_values(pa.array(["1", None, "2.5"]), "csv"), parse_values(pa.array(["true", "FALSE"]), "csv")
    ([1.0, None, 2.5], [True, False])
    """
    if isinstance(column, list):
        return column
    if is_text(column.type):
        column = convert_values(column, pa.string())
    values: list[Any] = column.to_pylist()
    if format != "csv":
        return values
    texts = {text.lower() for text in values if text is not None}
    if texts <= {"true", "false"}:
        return [text if text is None else BOOLEAN_TEXTS[text.lower()] for text in values]
    column = nulls_for_missing(column, pa.float64())
    numbers = convert_values(column, pa.float64())
    # Numbers, unless a value is none; a column without any value is one of missing numbers.
    is_numeric = numbers.null_count == column.null_count < len(column)
    return numbers.to_pylist() if is_numeric or not any(texts) else values
