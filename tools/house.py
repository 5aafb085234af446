"""Measure the house: how large the source is, and how often it says the same thing.

python tools/house.py
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
SOURCE, STUDIES = ROOT / "src" / "tacit", ROOT / "studies"
NOT_COUNTED = {"Params", "State", "World"}
"""Names that every policy, classifier or environment gives to a class of its own."""
SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
"""Tokens that make no line one of code."""
PIN = re.compile(r"(?<![a-zA-Z])(un)?pin(s|ned|_\w+)?\b|\bPin(ned)?(?![a-z])")


class Measures(NamedTuple):
    """What is measured of the source.

    Attributes
    ----------
    code : int
        Lines that hold code: without blank lines, comments and docstrings.
    files : int
    classes_twice : int
        Names that more than one class has, but those of ``NOT_COUNTED`` and private ones.
    told : int
        How often the word stands anywhere in the source.
    know_pin : int
        Files in which the word pin stands, in whatever form.
    service_rooms : int
    longest_class : int
        Lines from its head to its end.
    imports, comments : float
        Lines of them for each line of code.
    """

    code: int
    files: int
    classes_twice: int
    told: int
    know_pin: int
    service_rooms: int
    longest_class: int
    imports: float
    comments: float


def measured(source: Path = SOURCE) -> Measures:
    """Return the measures of all Python files below a folder."""
    texts, trees = read_files(source)
    code = count_code(source)
    classes = list(_classes(trees))
    homes = defaultdict(set)
    for path, definition in classes:
        homes[definition.name].add((path, definition.lineno))
    rooms = {path.parent for path in texts if "service" in path.relative_to(source).parts[:1]}
    return Measures(
        code=code,
        files=len(texts),
        classes_twice=sum(
            len(found) > 1 and name not in NOT_COUNTED and not name.startswith("_")
            for name, found in homes.items()
        ),
        told=sum(len(re.findall(r"\btold\b", text)) for text in texts.values()),
        know_pin=sum(bool(PIN.search(text)) for text in texts.values()),
        service_rooms=len(rooms),
        longest_class=max(_length(definition) for _, definition in classes),
        imports=sum(map(_import_lines, trees.values())) / code,
        comments=sum(map(_comment_lines, texts.values())) / code,
    )


def read_files(folder: Path) -> tuple[dict[Path, str], dict[Path, ast.Module]]:
    """Return the texts and syntax trees of all Python files below a folder."""
    texts = {path: path.read_text() for path in sorted(folder.rglob("*.py"))}
    return texts, {path: ast.parse(text) for path, text in texts.items()}


def count_code(folder: Path) -> int:
    """Return the number of lines of code in all Python files below a folder."""
    texts, trees = read_files(folder)
    return sum(map(len, map(code_lines, texts.values(), trees.values())))


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that hold code, docstrings left out."""
    prose: set[int] = set()
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            prose |= set(range(value.lineno, _end(value) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - prose


def _classes(trees: dict[Path, ast.Module]) -> Iterator[tuple[Path, ast.ClassDef]]:
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield path, node


def _import_lines(tree: ast.Module) -> int:
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    return sum(map(_length, imports))


def _comment_lines(text: str) -> int:
    return sum(line.lstrip().startswith("#") for line in text.splitlines())


def _length(node: ast.stmt) -> int:
    return _end(node) - node.lineno + 1


def _end(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno


if __name__ == "__main__":
    for name, value in measured()._asdict().items():
        shown = f"{value:.1%}" if isinstance(value, float) else f"{value:,}"
        print(f"{name.replace('_', ' '):16} {shown:>8}")
    print(f"{'code of studies':16} {count_code(STUDIES):>8,}")
