"""Snapshots: save a learner to one file of arrays and a JSON header, and load it.

The file is an uncompressed zip archive: ``header.json``, ``keys.json``, and one ``.npy`` member
per array of the state. zip stores a checksum per member, so damage is detected. The file holds no
code, and the policy is looked up by name among the classes that the program has already imported.
"""

# 1. ``LearnerSnapshot``: a learner's arrays and header; ``CopyBuffer``: memory for a copy.
# 2. Writing: ``write_snapshot`` to a path, ``iter_pieces`` and ``iter_views`` for sending; in blocks, so that
#    other threads are not blocked for long.
# 3. Reading: ``read_snapshot``, ``from_bytes``; each array must have the policy state's shape and type.

from __future__ import annotations

import io
import json
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tacit.core import dispatch
from tacit.core.arrays import Ints, copy_state, leaves, rebuild_state
from tacit.core.state_ranges import check_state
from tacit.errors import BEFORE_0_3, SnapshotError, TacitError, UnknownName, undo_on_error
from tacit.learning.catalogue import Catalogue
from tacit.learning.lanes import make_plays
from tacit.policies.base import Policy, registry
from tacit.policies.spec import policy_from_stored, policy_to_spec

Learned = TypeVar("Learned")

FORMAT = "tacit-snapshot"
VERSION = 2
PLAIN = 1
"""The version of a snapshot without a catalogue."""
PIECE = 2**20
"""Minimum size in bytes of a piece of a snapshot."""
JSON_BLOCK_SIZE = 10_000
PLAYS = "counted/plays"
"""Member name of the plays; no array of a state has a slash in its name."""
WINDOW_HEADER = "window.json"
"""Member name of the header in the file of a feedback window."""
IDS, SEGMENTS, VECTORS = "items/ids.json", "items/segments.json", "items/vectors.npy"
LOCAL_HEADER = struct.Struct("<4s22xHH")
"""Header of a member in a zip archive: a mark, and the lengths of its name and of its extra field."""
SPARE = 16
"""A copy buffer has one spare lane for each 16 lanes."""
OPEN_SUFFIX = "open"
"""Suffix of state arrays that count decisions not yet learned."""
ADDED_ARRAYS = frozenset({OPEN_SUFFIX, "graded", "surprises", "levels"})
"""Parts of the names of state arrays that snapshots of version 0.3 lack; they are as at the start there."""


class LearnerSnapshot(NamedTuple):
    """The content of a learner's snapshot.

    Attributes
    ----------
    policy : Policy
    retired : list of arms
    propensities : bool
        Whether decisions carry their propensity.
    decisions : int
        Number of decisions made.
    generator : dict
        The state of the random generator.
    keys : sequence of str
        In the order of their lanes.
    state : named tuple
        Arrays with a lane for each key.
    plays : array of int64, shape (lanes, arms)
        How often each arm was ever shown and learned from.
    items : Catalogue or None
    logs : collection of (int, int)
        For each learned log the number of its decisions and a hash of their rewards.
    """

    policy: Policy
    retired: list[Any]
    propensities: bool
    decisions: int
    generator: Mapping[str, Any]
    keys: Sequence[str]
    state: Any
    plays: Ints
    items: Catalogue | None = None
    logs: Collection[tuple[int, int]] = ()

    @property
    def arrays(self) -> Any:
        """All arrays, the state and the plays, as a named tuple."""
        return Arrays(self.state, self.plays)

    def copy(self, buffer: CopyBuffer | None = None) -> LearnerSnapshot:
        """Return a copy of arrays and items that later learning does not change.

        With a buffer, the copy is in its memory, and the next copy into the same buffer overwrites it.
        """
        copies = buffer.copy_state(self.arrays) if buffer is not None else copy_state(self.arrays)
        return self._replace(**copies._asdict(), items=self.items and self.items.copy())

    @property
    def header(self) -> dict[str, Any]:
        """The content except keys and arrays as a dict for JSON, with the type and shape of each array."""
        return {
            "format": FORMAT,
            "version": PLAIN if self.items is None else VERSION,
            "policy": policy_to_spec(self.policy),
            "retired": self.retired,
            "propensities": self.propensities,
            "decisions": self.decisions,
            "generator": self.generator,
            "arrays": {name: [str(a.dtype), list(a.shape)] for name, a in leaves(self.state)},
            **({} if self.items is None else {"items": self.items.version}),
            **({"logs": sorted(self.logs)} if self.logs else {}),
        }


class Arrays(NamedTuple):
    """All arrays of a learner: its state and the plays of its arms."""

    state: Any
    plays: Any


class CopyBuffer:
    """Memory for a copy of a state, whose pages are touched in advance.

    Copying into untouched pages takes many times as long.

    Parameters
    ----------
    state : named tuple
        Arrays; they may have a few more lanes by the time of the copy.

    Examples
    --------
    >>> from tacit.policies import UCB1
    >>> state = UCB1(arms=2).init(3)
    >>> buffer = CopyBuffer(state)
    >>> for _ in buffer.touch_pages():
    ...     pass
    >>> type(buffer.copy_state(state)) is type(state)
    True
    """

    def __init__(self, state: Any) -> None:
        """Reserve an array for each array of the state, with one spare lane for each 16."""
        shapes = ((len(a) + len(a) // SPARE, *a.shape[1:]) for _, a in leaves(state))
        types = (array.dtype for _, array in leaves(state))
        self._arrays = list(map(np.empty, shapes, types))

    def touch_pages(self) -> Iterator[None]:
        """Write zeros to the whole buffer, a megabyte at each step of the iteration, so that copies are
        fast.
        """
        for array in self._arrays:
            content = array.reshape(-1).view(np.uint8)
            for first in range(0, len(content), PIECE):
                content[first : first + PIECE] = 0
                yield

    def copy_state(self, state: Any) -> Any:
        """Return a copy of a state in the buffer's memory; the next copy overwrites it.

        Arrays that do not fit into the buffer get new memory.
        """
        return rebuild_state(state, map(_copy_into, (a for _, a in leaves(state)), self._arrays))


def _copy_into(array: Any, buffer: Any) -> Any:
    """Return a copy of an array: a view of ``buffer`` if it fits, else a new array."""
    fits = buffer.dtype == array.dtype and buffer.shape[1:] == array.shape[1:]
    if not fits or len(buffer) < len(array):
        return np.array(array, order="C")
    buffer[: len(array)] = array
    return buffer[: len(array)]


def write_snapshot(snapshot: LearnerSnapshot, path: Path) -> None:
    """Write a snapshot to ``path``; an existing file is replaced only when the new one is complete."""
    replace_file(path, iter_pieces(snapshot))


def replace_file(path: Path, content: Iterable[bytes]) -> None:
    """Write pieces of content to a file; replace an existing file only when the new one is complete.

    Raises SnapshotError if ``path`` is a folder, cannot be written, or holds a file of another kind.
    """
    if path.is_dir():
        raise SnapshotError(f"{path}: cannot be written: it is a folder; name a file in it")
    # A damaged snapshot may be replaced, a file of another kind may not.
    if path.is_file() and not _is_snapshot_or_empty(path):
        raise SnapshotError(f"{path}: it is there, and holds no learner; give another, or delete it")
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        what = f"cannot be written: {path.parent}: {error.strerror}; make it, or give another"
        raise SnapshotError(f"{path}: {what}") from error
    with undo_on_error(os.unlink, temporary):
        with os.fdopen(handle, "wb") as file:
            for piece in content:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)


def _is_snapshot_or_empty(path: Path) -> bool:
    """True if a file begins like a snapshot or is empty."""
    with path.open("rb") as file:
        return file.read(2) in (b"", b"PK")


def iter_pieces(snapshot: LearnerSnapshot) -> Iterator[bytes]:
    """Yield the content of a snapshot's file in pieces of about a megabyte, so that it is never in memory as
    a whole.
    """
    piece: list[bytes | memoryview] = []
    for part in iter_views(snapshot):
        piece.append(part)
        if sum(map(len, piece)) >= PIECE:
            yield b"".join(piece)
            piece = []
    yield b"".join(piece)


def iter_views(snapshot: LearnerSnapshot) -> Iterator[bytes | memoryview]:
    """Yield the content of a snapshot's file in parts; arrays are not copied, and must not change before the
    end.
    """
    sink = _Sink()
    with zipfile.ZipFile(sink, "w") as archive:  # type: ignore[call-overload]
        for name, blocks in _iter_members(snapshot):
            with archive.open(name, "w", force_zip64=True) as member:
                for block in blocks:
                    member.write(block)
                    yield from sink.take_blocks()
    yield from sink.take_blocks()


def _iter_members(snapshot: LearnerSnapshot) -> Iterator[tuple[str, Iterator[Any]]]:
    """Yield the name and the blocks of content of each member of the snapshot's zip archive."""
    yield "header.json", iter([json.dumps(snapshot.header, indent=1).encode()])
    yield "keys.json", _iter_json_blocks(snapshot.keys)
    for name, array in leaves(snapshot.state):
        yield f"{name}.npy", _iter_array_blocks(np.ascontiguousarray(array))
    yield f"{PLAYS}.npy", _iter_array_blocks(np.ascontiguousarray(snapshot.plays))
    if snapshot.items is not None:
        ids, segments, vectors = snapshot.items.columns()
        yield IDS, _iter_json_blocks(ids)
        yield SEGMENTS, _iter_json_blocks(segments)
        yield VECTORS, _iter_array_blocks(np.ascontiguousarray(vectors))


def _iter_json_blocks(values: Sequence[Any]) -> Iterator[bytes]:
    """Yield the text of a JSON list in blocks of 10,000 values, so that other threads can run in between."""
    yield b"["
    for first in range(0, len(values), JSON_BLOCK_SIZE):
        block = json.dumps(values[first : first + JSON_BLOCK_SIZE])[1:-1]
        yield f"{', ' if first else ''}{block}".encode()
    yield b"]"


def _iter_array_blocks(array: Any) -> Iterator[Any]:
    """Yield an array as the content of a ``.npy`` file, in blocks of a megabyte."""
    yield _make_array_header(array.dtype.str, array.shape)
    content = array.reshape(-1).view(np.uint8)
    for first in range(0, len(content), PIECE):
        yield memoryview(content[first : first + PIECE])


@lru_cache(1024)
def _make_array_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of a ``.npy`` file of a contiguous array."""
    header = io.BytesIO()
    described = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    return header.getvalue()


class _Sink:
    """A file object that collects written blocks; it cannot seek, so zipfile never rewrites any."""

    def __init__(self) -> None:
        """Create a sink without blocks."""
        self._written: list[bytes | memoryview] = []

    def write(self, content: bytes | memoryview) -> int:
        """Collect a block, and return its length, as a file does."""
        self._written.append(content)
        return len(content)

    def flush(self) -> None:
        """Do nothing; zipfile requires the method."""

    def take_blocks(self) -> list[bytes | memoryview]:
        """Return the blocks written since the last call."""
        blocks, self._written = self._written, []
        return blocks


def read_snapshot(path: Path, restore: Callable[[LearnerSnapshot], Learned]) -> Learned:
    """Read the snapshot in the file ``path`` and return ``restore(snapshot)``, such as a learner.

    Raises SnapshotError if the file cannot be read or is invalid.
    """
    return from_bytes(read_file(path), str(path), restore)


def read_file(path: Path) -> bytes:
    """Return the content of a file that ``save`` wrote; raise SnapshotError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise SnapshotError(f"{path}: cannot be read: {error.strerror}; give one that save wrote") from error


def from_bytes(content: bytes, source: str, restore: Callable[[LearnerSnapshot], Learned]) -> Learned:
    """Decode the content of a snapshot's file and return ``restore(snapshot)``.

    ``source`` names the file in errors.

    Raises
    ------
    SnapshotError
        If it is damaged, truncated, of another format or of another version.
    """
    if not content.startswith(b"PK\x03\x04"):
        raise SnapshotError(f"{source}: foreign: this is no tacit snapshot; give a file that save wrote")
    try:
        archive = StoredArchive(content)
    except zipfile.BadZipFile as error:
        raise SnapshotError(f"{source}: truncated: the end of the file is missing") from error
    except Exception as error:
        raise SnapshotError(f"{source}: damaged: {error}") from error
    with archive:
        try:
            archive.refuse_inflating()
            return restore(_read_snapshot(archive, _read_header(archive, source), source))
        except TacitError:
            raise
        except Exception as error:
            # A damaged archive makes zipfile and NumPy raise almost anything.
            raise SnapshotError(f"{source}: damaged: {error}") from error


class StoredArchive(zipfile.ZipFile):
    """A zip archive in memory, whose members are not compressed and are read without a copy.

    Raises zipfile.BadZipFile if the content is no archive.

    Parameters
    ----------
    content : bytes
    """

    def __init__(self, content: bytes) -> None:
        """Read the directory of the archive."""
        super().__init__(io.BytesIO(content))
        self._content = memoryview(content)

    def refuse_inflating(self) -> None:
        """Raise ValueError if members are compressed or larger than the archive.

        This bounds the memory that reading takes.
        """
        members, size = self.infolist(), len(self._content)
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("a part of it is compressed, and save compresses none")
        if sum(member.file_size for member in members) > size:
            raise ValueError(f"its parts say that they are longer than its {size} bytes")

    def view(self, name: str) -> memoryview:
        """Return the content of a member; raise ValueError if it is damaged."""
        # ZipFile.open takes most of the time of reading the small arrays of a thousand learners.
        member, encoded = self.getinfo(name), name.encode()
        mark, name_size, extra_size = LOCAL_HEADER.unpack_from(self._content, member.header_offset)
        name_at = member.header_offset + LOCAL_HEADER.size
        first = name_at + name_size + extra_size
        content = self._content[first : first + member.file_size]
        if (
            mark != b"PK\x03\x04"
            or self._content[name_at : name_at + name_size] != encoded
            or zlib.crc32(content) != member.CRC
        ):
            raise ValueError(f"Bad CRC-32 for file {name!r}")
        return content


def _read_header(archive: StoredArchive, source: str) -> dict[str, Any]:
    """Return the header of a snapshot's archive.

    Raises SnapshotError if it is of another format, of a newer version, or from before version 0.3.
    """
    names = archive.namelist()
    header = json.loads(bytes(archive.view("header.json"))) if "header.json" in names else None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        content = "a zip file, but no tacit snapshot; give a file that save wrote"
        if WINDOW_HEADER in names:
            content = "a feedback window with its learner; load it by FeedbackWindow.load"
        raise SnapshotError(f"{source}: foreign: {content}")
    if header["version"] > VERSION:
        raise SnapshotError(
            f"{source}: newer: it is of version {header['version']}, this tacit reads up to "
            f"{VERSION}; update tacit"
        )
    # Versions before 0.3 wrote the same version number, but no plays.
    if f"{PLAYS}.npy" not in names:
        raise SnapshotError(f"{source}: {BEFORE_0_3}, and save it again")
    return header


def _read_snapshot(archive: StoredArchive, header: dict[str, Any], source: str) -> LearnerSnapshot:
    """Return the snapshot in an archive; raise if its policy's class is unknown or an array does not fit."""
    keys = json.loads(bytes(archive.view("keys.json")))
    try:
        # A new class may take an earlier one's name, so cached layouts hold only for the same numbers.
        definitions = len(dispatch.parts), len(registry)
        policy, layout = _read_layout(json.dumps(header["policy"]), len(keys), definitions)
    except UnknownName as error:
        unknown = str(error).partition(";")[0]
        remedy = "import or define that class first, as where the learner was saved"
        raise SnapshotError(f"{source}: {unknown}; {remedy}") from error
    members = frozenset(archive.namelist())
    # A layout has shapes and types alone: numbers are made only for a snapshot that lacks added arrays.
    is_whole = all(f"{name}.npy" in members for name, _ in leaves(layout))
    arrays = [
        expected
        if ADDED_ARRAYS.intersection(name.split(".")) and f"{name}.npy" not in members
        else read_array(archive, name, expected)
        for name, expected in leaves(layout if is_whole else policy.init(len(keys)))
    ]
    plays = read_array(archive, PLAYS, make_plays(policy, len(keys)))
    state = rebuild_state(layout, iter(arrays))
    check_state(state, policy.arms)
    return LearnerSnapshot(
        policy=policy,
        retired=header["retired"],
        propensities=header["propensities"],
        decisions=header["decisions"],
        generator=header["generator"],
        keys=keys,
        state=state,
        plays=plays,
        items=_read_items(archive, header, policy),
        logs=[(count, reward_hash) for count, reward_hash in header.get("logs", ())],
    )


@lru_cache(16)
def _read_layout(spec: str, lanes: int, definitions: tuple[int, int]) -> tuple[Policy, Any]:
    """Return a stored policy, and its state with arrays of the right types and shapes that take no memory.

    ``definitions`` is the number of classes and of names: when it changes, a name may be another class's.
    """
    policy = policy_from_stored(json.loads(spec), imports=False)
    state = policy.init(lanes)
    empty = (np.broadcast_to(np.empty((), array.dtype), array.shape) for _, array in leaves(state))
    return policy, rebuild_state(state, empty)


def _read_items(archive: StoredArchive, header: dict[str, Any], policy: Policy) -> Catalogue | None:
    """Return the catalogue in an archive, or None if its header names none."""
    if "items" not in header:
        return None
    ids, segments = (json.loads(archive.read(name)) for name in (IDS, SEGMENTS))
    expected = np.empty((len(ids), policy.feature_dims[0]), np.float16)
    vectors = read_array(archive, VECTORS.removesuffix(".npy"), expected)
    return Catalogue.from_columns(ids, segments, vectors, header["items"])


def read_array(archive: StoredArchive, name: str, expected: Any) -> Any:
    """Return the array ``name`` of an archive; raise ValueError unless it has the shape and type of
    ``expected``.
    """
    content, header = archive.view(f"{name}.npy"), _make_array_header(expected.dtype.str, expected.shape)
    if content[: len(header)] == header and len(content) == len(header) + expected.nbytes:
        return np.ndarray(expected.shape, expected.dtype, content, len(header)).copy()
    # Another version of NumPy may write another header.
    with io.BytesIO(content) as member:
        if np.lib.format.read_magic(member) != (1, 0):
            raise ValueError(f"{name} is of another version of NumPy's format")
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        if shape != expected.shape or dtype != expected.dtype:
            raise ValueError(f"{name} is {dtype}{shape}, not {expected.dtype}{expected.shape}")
        member.seek(0)
        array = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):
            raise ValueError(f"{name} is longer than it says")
    return array
