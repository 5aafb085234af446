"""Another distribution that installs a package ``tacit``: files of both are then mixed in one folder."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

DISTRIBUTION = "tacit-learn"
SITE = Path(__file__).parents[2]
REMEDY = f"run: pip uninstall tacit {DISTRIBUTION}; then: pip install {DISTRIBUTION}"


def find_namesake(folder: Path = SITE) -> str:
    """Return the name of the metadata folder of a distribution named ``tacit`` in ``folder``; an empty text
    if none.

    Only names are read: ``importlib.metadata`` would take most of the time of an import.
    """
    try:
        names = os.listdir(folder)
    except OSError:  # in an archive
        return ""
    return next((n for n in names if n.startswith("tacit-") and n.endswith((".dist-info", ".egg-info"))), "")


def warn_of_namesake(folder: Path = SITE) -> None:
    """Warn if another distribution named ``tacit``, which overwrites files of this one, is installed in
    ``folder``.
    """
    if name := find_namesake(folder):
        both = f"{name.rpartition('.')[0]} is installed next to {DISTRIBUTION}"
        warnings.warn(f"tacit: {both}, and each overwrites files of the other; {REMEDY}", stacklevel=3)
