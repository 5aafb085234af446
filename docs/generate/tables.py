"""Markdown tables, and the sections of docstrings that fill them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any

from tacit.core.text import parse_docstring


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table.

    Examples
    --------
    >>> print(table(["a", "b"], [["1", "x|y"]]))
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """
    lines = ["| " + " | ".join(cell(text) for text in row) + " |" for row in [head, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def cell(text: str) -> str:
    """Return a text that may stand in a table."""
    return re.sub(r"[ \t\n]+", " ", text).strip().replace("|", "\\|")


def code(text: Any) -> str:
    """Return a text as code; nothing for nothing."""
    return f"`{text}`" if str(text) else ""


def summary(documented: Any) -> str:
    """Return the first paragraph of a docstring, in Markdown."""
    return markdown((inspect.getdoc(documented) or "").partition("\n\n")[0])


def attributes(documented: type) -> dict[str, str]:
    """Return what a class says of its attributes, in Markdown; bases first.

    Names that share a line share the text.
    """
    found: dict[str, str] = {}
    for kind in reversed(documented.__mro__):
        found |= {name: markdown(text) for name, text in parse_docstring(kind.__doc__)[1].items()}
    return found


def markdown(text: str) -> str:
    """Return reStructuredText of docstrings as Markdown.

    Examples
    --------
    >>> markdown("See :class:`~tacit.UCB1` and ``null``.")
    'See `UCB1` and `null`.'
    """
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
    return text.replace("``", "`")
