"""Snapshots: a learner as one file of arrays and a JSON header.

The file is an uncompressed zip archive: ``header.json``, ``keys.json``, and one ``.npy`` member
per array of the state. zip keeps a checksum per member, so damage is noticed. Nothing in it is
code, and the policy is looked up by name among those that the program has already imported.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tacit.errors import SnapshotError, TacitError
from tacit.policies.spec import policy_from_spec, policy_to_spec
from tacit.state import leaves, rebuilt, trimmed

if TYPE_CHECKING:
    from tacit.learner import Learner

FORMAT = "tacit-snapshot"
VERSION = 1
PIECE = 2**20
"""Bytes of a snapshot from which on they are given away."""
KEYS_AT_ONCE = 10_000


class Frozen(NamedTuple):
    """What a snapshot holds of a learner, still to be encoded."""

    header: dict[str, Any]
    keys: list[str]
    arrays: list[tuple[str, Any]]


def write(learner: Learner, path: Path) -> None:
    """Write ``learner`` to ``path``, replacing what was there only when complete."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces(_parts(learner)):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def to_bytes(learner: Learner) -> bytes:
    """Return the snapshot of ``learner``."""
    return b"".join(pieces(_parts(learner)))


def frozen(learner: Learner) -> Frozen:
    """Return what a snapshot of ``learner`` holds now, whatever it learns from here on."""
    parts = _parts(learner)
    copies = [(name, np.array(array, order="C")) for name, array in parts.arrays]
    return parts._replace(arrays=copies)


def _parts(learner: Learner) -> Frozen:
    keys = learner.keys
    state = trimmed(learner.state, learner.policy.init(len(keys)))
    header = {
        "format": FORMAT,
        "version": VERSION,
        "policy": policy_to_spec(learner.policy),
        "retired": learner.retired,
        "propensities": learner.reports_propensities,
        "decisions": learner.decisions,
        "generator": learner.rng.bit_generator.state,
        "arrays": {name: [str(a.dtype), list(a.shape)] for name, a in leaves(state)},
    }
    return Frozen(header, keys, list(leaves(state)))


def pieces(parts: Frozen) -> Iterator[bytes]:
    """Give a snapshot in pieces of about a megabyte, so that nobody need hold all of it."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w") as archive:  # type: ignore[call-overload]
        for name, blocks in _members(parts):
            with archive.open(name, "w", force_zip64=True) as member:
                for block in blocks:
                    member.write(block)
                    if sink.size >= PIECE:
                        yield sink.taken()
    yield sink.taken()


def _members(parts: Frozen) -> Iterator[tuple[str, Iterator[Any]]]:
    yield "header.json", iter([json.dumps(parts.header, indent=1).encode()])
    yield "keys.json", _key_blocks(parts.keys)
    for name, array in parts.arrays:
        yield f"{name}.npy", _array_blocks(np.ascontiguousarray(array))


def _key_blocks(keys: list[str]) -> Iterator[bytes]:
    """Give a JSON list block by block: no other thread runs while one is encoded."""
    yield b"["
    for first in range(0, len(keys), KEYS_AT_ONCE):
        block = json.dumps(keys[first : first + KEYS_AT_ONCE])[1:-1]
        yield f"{', ' if first else ''}{block}".encode()
    yield b"]"


def _array_blocks(array: Any) -> Iterator[Any]:
    header = io.BytesIO()
    described = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(header, described)
    yield header.getvalue()
    content = array.reshape(-1).view(np.uint8)
    for first in range(0, len(content), PIECE):
        yield memoryview(content[first : first + PIECE])


class _Sink:
    """Takes what is written until it is taken away; it cannot seek, so nothing is written twice."""

    def __init__(self) -> None:
        self.size = 0
        self._written: list[bytes] = []

    def write(self, content: Any) -> int:
        self._written.append(bytes(content))
        size = len(self._written[-1])
        self.size += size
        return size

    def flush(self) -> None:
        pass

    def taken(self) -> bytes:
        taken, self._written, self.size = b"".join(self._written), [], 0
        return taken


def read(path: Path) -> Learner:
    """Read a learner from ``path``."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SnapshotError(f"{path}: cannot be read: {error.strerror}") from error
    return from_bytes(content, str(path))


def from_bytes(content: bytes, source: str) -> Learner:
    """Return the learner of a snapshot; ``source`` names it in errors."""
    if not content.startswith(b"PK\x03\x04"):
        raise SnapshotError(f"{source}: foreign: this is no tacit snapshot")
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except zipfile.BadZipFile as error:
        raise SnapshotError(f"{source}: truncated: the end of the file is missing") from error
    except Exception as error:
        raise SnapshotError(f"{source}: damaged: {error}") from error
    with archive:
        try:
            return _learner(archive, _header(archive, source))
        except TacitError:
            raise
        except Exception as error:
            # A damaged archive makes zipfile and NumPy raise almost anything.
            raise SnapshotError(f"{source}: damaged: {error}") from error


def _header(archive: zipfile.ZipFile, source: str) -> dict[str, Any]:
    foreign = SnapshotError(f"{source}: foreign: a zip file, but no tacit snapshot")
    if "header.json" not in archive.namelist():
        raise foreign
    header = json.loads(archive.read("header.json"))
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise foreign
    if header["version"] > VERSION:
        raise SnapshotError(
            f"{source}: newer: it is of version {header['version']}, this tacit reads up to "
            f"{VERSION}; update tacit"
        )
    return header


def _learner(archive: zipfile.ZipFile, header: dict[str, Any]) -> Learner:
    from tacit.learner import Learner

    policy = policy_from_spec(header["policy"], imports=False)
    keys = json.loads(archive.read("keys.json"))
    like = policy.init(len(keys))
    arrays = []
    for name, expected in leaves(like):
        with archive.open(f"{name}.npy") as member:
            array = np.lib.format.read_array(member, allow_pickle=False)
            if member.read(1):
                raise ValueError(f"{name} is longer than it says")
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise ValueError(
                f"{name} is {array.dtype}{array.shape}, not {expected.dtype}{expected.shape}"
            )
        arrays.append(array)
    learner = Learner(policy, seed=0, propensities=header["propensities"])
    learner.rng.bit_generator.state = header["generator"]
    learner.restore(rebuilt(like, iter(arrays)), keys, header["retired"], header["decisions"])
    return learner
