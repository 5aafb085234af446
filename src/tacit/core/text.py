"""Format rows as aligned text, and as tables for notebooks, pandas, Markdown and LaTeX."""

from __future__ import annotations

import html
import importlib
import inspect
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from string import Formatter
from typing import Any, ClassVar, NamedTuple, TypeVar

from tacit.errors import MissingPackage, UnknownName

Value = TypeVar("Value")

LATEX = {c: rf"\{c}" for c in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "–": "--",
}

MISSING = "–"

_CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters, including those that change the direction of text."""


def parse_docstring(docstring: str | None, section: str = "Attributes") -> tuple[str, dict[str, str]]:
    r"""Return the text before a section of a docstring, and a dict from each name in the section to its
    description.

    Names on the same line share their description.

    Examples
    --------
    >>> parse_docstring("A share.\n\nAttributes\n----------\nlow, high : float\n    Its\n    ends.")
    ('A share.', {'low': 'Its ends.', 'high': 'Its ends.'})
    """
    text, _, section_text = inspect.cleandoc(docstring or "").partition(
        f"\n\n{section}\n{'-' * len(section)}\n"
    )
    descriptions: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", re.split(r"\n\n\S+\n-+\n", section_text)[0]):
        names, _, words = entry.partition("\n")
        descriptions |= dict.fromkeys(names.partition(" : ")[0].split(", "), " ".join(words.split()))
    return text, descriptions


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec\w*|m|min\w*|h|hrs?|hours?|d|days?|w|weeks?)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def convert_duration(value: Any, unit: str = "seconds") -> str:
    """Convert a duration such as ``1h`` to a number of ``unit``, as text; "" if it is not a duration.

    Examples
    --------
    >>> convert_duration("1h"), convert_duration("36 hours", "days"), convert_duration("soon")
    ('3600', '1.5', '')
    """
    match = _DURATION.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if match is None:
        return ""
    seconds = float(match[1]) * (_SECONDS.get(match[2]) or _SECONDS[match[2][0]])
    return f"{seconds / _SECONDS[unit[0]]:.10g}"


def no_toml(error: ValueError) -> str:
    """Return the message for a text that is not TOML: the parser's error and the remedy.

    Examples
    --------
    >>> no_toml(ValueError("Invalid value (at line 2, column 9)"))
    'is not TOML: Invalid value (at line 2, column 9); write lines such as name = "text", tables as [name]'
    """
    return f'is not TOML: {error}; write lines such as name = "text", tables as [name]'


def escape_controls(text: str) -> str:
    """Return text with terminals' control characters escaped as in JSON, except ends of lines and tabs.

    Examples
    --------
    >>> print(escape_controls("red: \x1b[31m, left: \u202e, é"))
    red: \\u001b[31m, left: \\u202e, é
    """
    return _CONTROLS.sub(lambda each: f"\\u{ord(each[0]):04x}", text)


def align_columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as aligned lines of text: the first column flush left, the others flush right.

    Examples
    --------
    >>> print(align_columns([("policy", "regret"), ("UCB1", "12.5")]))
    policy  regret
    UCB1      12.5
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def align_left(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as aligned lines of text, with all columns flush left.

    Examples
    --------
    >>> print(align_left([("ok", "lanes", "learn apart"), ("FAILED", "ties", "never")]))
    ok      lanes  learn apart
    FAILED  ties   never
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


class Column(NamedTuple):
    """A column of a table as text.

    Attributes
    ----------
    head : str
    form : str
        Format of a cell, with names of the record's fields in braces.
    missing : str
        The cell if one of these fields is None or NaN.
    """

    head: str
    form: str
    missing: str = MISSING

    def cell(self, record: Mapping[str, Any]) -> str:
        """Return the formatted cell of a record; the column's ``missing`` text if one of its fields is None
        or NaN.
        """
        values = [record[name] for _, name, _, _ in Formatter().parse(self.form) if name]
        return self.missing if None in map(replace_nan, values) else self.form.format_map(record)


def format_table(records: Iterable[Mapping[str, Any]], columns: Sequence[Column]) -> str:
    """Return records as lines of aligned columns, with the columns' heads above.

    Examples
    --------
    >>> arms = [{"arm": "film", "low": 0.25, "high": 0.5}, {"arm": "holiday", "low": None, "high": None}]
    >>> print(format_table(arms, [Column("arm", "{arm}"), Column("95 %", "[{low:.3f}, {high:.3f}]")]))
    arm                95 %
    film     [0.250, 0.500]
    holiday               –
    """
    body = [[column.cell(record) for column in columns] for record in records]
    return align_columns([[column.head for column in columns], *body])


def replace_nan(value: Any) -> Any:
    """Return None if a value is NaN, else the value itself."""
    return None if isinstance(value, float) and math.isnan(value) else value


class ByName(tuple[Value, ...]):
    """A tuple whose values can also be looked up by name."""

    by: ClassVar[str]
    """The attribute that holds the name."""

    def __getitem__(self, which: Any) -> Any:
        """Return the value at an index, or with a name; raise UnknownName for a name that no value has."""
        if not isinstance(which, str):
            return super().__getitem__(which)
        by_name = {getattr(value, self.by): value for value in self}
        if which not in by_name:
            raise UnknownName(f"{self.by}: there is no {which!r}; there are {list(by_name)}")
        return by_name[which]


class Tabulated:
    """Base of results with rows, for output as text, in notebooks, pandas, Markdown and LaTeX."""

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as flat dicts, all with the same names, from which all other formats are made."""
        raise NotImplementedError

    def summary(self) -> str:
        """Return the result as text, as ``print`` shows it."""
        raise NotImplementedError

    def __str__(self) -> str:
        """Return :meth:`summary`."""
        return self.summary()

    def __repr__(self) -> str:
        """Return the same text as ``str``, so that a prompt shows the result in full."""
        return str(self)

    def to_pandas(self) -> Any:
        """Return the rows as a ``pandas.DataFrame``.

        Raises
        ------
        MissingPackage
            If pandas is not installed.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise MissingPackage("pandas") from None
        return pandas.DataFrame(self.records())

    def to_markdown(self) -> str:
        """Return the rows as a table in GitHub's Markdown."""
        head, body, numeric = _cells(self.records())
        dashes = ["---:" if number else "---" for number in numeric]
        escaped = [[cell.replace("|", r"\|") for cell in row] for row in (head, *body)]
        return "\n".join(f"| {' | '.join(row)} |" for row in (escaped[0], dashes, *escaped[1:]))

    def to_latex(self) -> str:
        """Return the rows as a LaTeX ``tabular`` with rules of the package booktabs."""
        head, body, numeric = _cells(self.records())
        lines = [
            " & ".join("".join(LATEX.get(c, c) for c in cell) for cell in row) + r" \\"
            for row in (head, *body)
        ]
        columns = "".join("r" if number else "l" for number in numeric)
        return "\n".join(
            [
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                lines[0],
                r"\midrule",
                *lines[1:],
                r"\bottomrule",
                r"\end{tabular}",
            ]
        )

    def _repr_html_(self) -> str:
        """Return the rows as a table in HTML, which notebooks show."""
        return html_table(self.records())


def html_table(records: Sequence[dict[str, Any]]) -> str:
    """Return rows as a table in HTML, with all cells escaped.

    Examples
    --------
    >>> html_table([{"policy": "<b>", "regret": 1.0}])
    '<table><thead><tr><th>policy</th><th>regret</th></tr></thead><tbody><tr><td>&lt;b&gt;</td><td style="text-align:right">1</td></tr></tbody></table>'
    """  # noqa: E501
    head, body, numeric = _cells(records)
    styles = [' style="text-align:right"' if number else "" for number in numeric]
    heading = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    rows = "".join(
        "<tr>"
        + "".join(f"<td{style}>{html.escape(cell)}</td>" for style, cell in zip(styles, row, strict=True))
        + "</tr>"
        for row in body
    )
    return f"<table><thead><tr>{heading}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(records: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]], list[bool]]:
    """Return the column names, the rows' cells as text, and for each column whether all its values are
    numbers or None.
    """
    head = list(records[0]) if records else []
    numeric = [all(row[name] is None or _is_number(row[name]) for row in records) for name in head]
    return head, [[_text(row[name]) for name in head] for row in records], numeric


def _is_number(value: Any) -> bool:
    """True if a value is an int or a float, and no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    """Return a value as text for a cell: rounded, with thousands separators; a dash for None and NaN."""
    if replace_nan(value) is None:
        return MISSING
    if isinstance(value, float):
        return f"{value:,.1f}" if 1000 <= abs(value) < 1e15 else f"{value:.5g}"
    return f"{value:,}" if _is_number(value) else str(value)
