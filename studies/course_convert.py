"""Turn the course-video log of Qi et al. (2018), a pickle, into arrays that are safe to read.

    python -I course_convert.py LOG.pkl LOG.npz

A pickle is a program: reading one that somebody has tampered with runs what they wrote. This
script is therefore run by itself, by hand, on a file that you trust; tacit never calls it. It
reads lists, numbers and NumPy arrays only, and stops at anything else that a pickle may ask for;
that is a safeguard and no proof.

Each of the pickle's rows has seven columns: video, shown arm, reward, arms on offer, a matrix of
relevance features and one of examination features with a row per arm on offer, and position. Arms
are numbered 1 + 6·question + position.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np

ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("_codecs", "encode"),
}


class Restricted(pickle.Unpickler):
    """An unpickler that knows NumPy arrays and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"the file asks for {module}.{name}; stopped")
        return super().find_class(module, name)


def arrays_of(rows: Any) -> dict[str, Any]:
    """Return the rows as flat arrays, as ``qi2018_course.read_course_log`` has them.

    Raises
    ------
    ValueError
        If a row has another form.
    """
    columns: dict[str, list[Any]] = {name: [] for name in ("video", "shown", "reward", "offered")}
    blocks: dict[str, list[Any]] = {"arms": [], "relevance": [], "examination": []}
    for number, row in enumerate(rows):
        if len(row) != 7:
            raise ValueError(f"row {number} has {len(row)} columns, not 7")
        video, shown, reward, arms, relevance, examination, _ = row
        if not len(arms) == len(relevance) == len(examination) or shown not in list(arms):
            raise ValueError(f"row {number}: matrices or the shown arm do not fit the arms on offer")
        for name, value in zip(columns, (video, shown, reward, len(arms)), strict=True):
            columns[name].append(value)
        for name, block in zip(blocks, (arms, relevance, examination), strict=True):
            blocks[name].append(np.asarray(block))
    stacked = {name: np.concatenate(parts) for name, parts in blocks.items()}
    return {name: np.asarray(values) for name, values in columns.items()} | stacked


def main(source: str, target: str) -> None:
    """Convert one file."""
    with Path(source).open("rb") as file:
        rows = Restricted(file).load()
    np.savez_compressed(target, **arrays_of(rows))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
