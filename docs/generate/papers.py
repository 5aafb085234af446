"""The three papers, number by number: where it is, how it is checked, what deviates.

A row of ``papers.json`` holds what a paper numbers; the names in the code that it is, which can be imported;
its checks, ``FILE::TEST`` under tests or an item of ``python -m studies``; and what deviates.
``tests/house/test_papers.py`` says that each of these exists.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAPERS: dict[str, list[dict[str, Any]]] = json.loads(
    Path(__file__).with_name("papers.json").read_text("utf-8")
)


def part(paper: str) -> str:
    """Return the rows of a paper as a Markdown table."""
    lines = ["| number | where | how it is checked | what deviates |", "|---|---|---|---|"]
    for row in PAPERS[paper]:
        where = ", ".join(
            f"`{name.removeprefix('tacit.').removeprefix('studies.')}`" for name in row["where"]
        )
        checks = ", ".join(map(as_link, row["checks"]))
        lines.append(f"| {row['number']} | {where or '–'} | {checks} | {row['deviation'] or '–'} |")
    return "\n".join(lines)


def as_link(check: str) -> str:
    """Return a check as Markdown: an item with a link to its figure, a test by its name."""
    name = check.rpartition("::")[2]
    return f"`{name}`" if "::" in check else f"[{name}](gallery.md#{name})"
