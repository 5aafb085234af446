"""Tables and figures, each a function of a seed.

An item is a module with ``TITLE``, ``RUNS`` (the default number of runs) and
``reproduce(runs, seed, workers) -> Reproduction``.
"""

from __future__ import annotations

import importlib
from typing import Any

from tacit.errors import UnknownName

ITEMS = {
    "regret-basics": "tacit.papers.regret_basics",
}


def item(name: str) -> Any:
    """Return the module of an item.

    Raises
    ------
    UnknownName
        If there is none of that name.
    """
    if name not in ITEMS:
        raise UnknownName(f"item: there is no {name!r}; there are {', '.join(ITEMS)}")
    return importlib.import_module(ITEMS[name])
