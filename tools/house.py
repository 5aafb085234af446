"""Measure the house against its limits: sizes, names, docstrings, and how the source hangs together.

python tools/house.py
"""

from __future__ import annotations

import ast
import io
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from names import Function, measure_names

ROOT = Path(__file__).parent.parent
SOURCE, STUDIES, TESTS = ROOT / "src" / "tacit", ROOT / "studies", ROOT / "tests"
SHARED_NAMES = frozenset({"Params", "State", "World"})
"""Names that every policy, classifier or environment gives to a class of its own."""
SILENT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
"""Tokens that make no line one of code."""
ClassKey = tuple[Path, str]
"""The file of a class, and its name."""


class Measures(NamedTuple):
    """Measures of the source, named as in ``limits.toml``.

    Attributes
    ----------
    src_code_lines, studies_code_lines, tests_code_lines : int
        Lines without blank lines, comments and docstrings.
    names_at_tacit : int
        Public names of ``import tacit``.
    functions_percent, variables_percent, riddles_per_1000 : float
        See ``tools/names.py``.
    import_circles : int
        Groups of files that import each other, imports for types included.
    methods_of_a_class : int
        Largest number of methods of a class, over its whole inheritance within the source.
    code_lines_of_a_class : int
        Largest number of code lines of a class.
    service_rooms : int
    classes_twice : int
        Public class names that stand for several classes.
    """

    src_code_lines: int
    studies_code_lines: int
    tests_code_lines: int
    names_at_tacit: int
    functions_percent: float
    variables_percent: float
    riddles_per_1000: float
    import_circles: int
    methods_of_a_class: int
    code_lines_of_a_class: int
    service_rooms: int
    classes_twice: int


def measure_house() -> Measures:
    """Measure the source, the studies and the tests."""
    import tacit

    trees = parse_files(SOURCE)
    classes = dict(_iterate_classes(trees))
    homes = defaultdict(set)
    for path, name in classes:
        homes[name].add(path)
    names = measure_names(SOURCE.parent)
    return Measures(
        *(count_code(folder) for folder in (SOURCE, STUDIES, TESTS)),
        len(tacit.__all__),
        names.functions_percent,
        names.variables_percent,
        names.riddles_per_1000,
        len(names.circles),
        max(count_methods(trees, classes).values()),
        max(_count_class_code(trees).values()),
        len({path.parent for path in trees if SOURCE / "service" in path.parent.parents}),
        sum(
            len(paths) > 1 and name not in SHARED_NAMES and not name.startswith("_")
            for name, paths in homes.items()
        ),
    )


def read_limits() -> dict[str, float]:
    """Return the limits by the names of the measures."""
    sections = tomllib.loads((ROOT / "limits.toml").read_text())
    return {name: limit for section in sections.values() for name, limit in section.items()}


def parse_files(folder: Path) -> dict[Path, ast.Module]:
    """Return the syntax trees of all Python files below a folder."""
    return {path: ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}


def count_code(folder: Path) -> int:
    """Return the number of lines of code in all Python files below a folder."""
    return sum(len(code_lines(path.read_text(), tree)) for path, tree in parse_files(folder).items())


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that hold code, without docstrings."""
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


def count_methods(
    trees: Mapping[Path, ast.Module], classes: Mapping[ClassKey, ast.ClassDef]
) -> dict[ClassKey, int]:
    """Return the number of methods and properties of each class, inherited ones included."""
    imports = {path: _read_class_imports(tree) for path, tree in trees.items()}

    def list_methods(key: ClassKey) -> set[str]:
        definition = classes[key]
        methods = {node.name for node in definition.body if isinstance(node, Function)}
        for base in definition.bases:
            expression = base.value if isinstance(base, ast.Subscript) else base
            name = ast.unparse(expression).rpartition(".")[2]
            parent = (key[0], name)
            if parent not in classes:
                parent = (imports[key[0]].get(name, key[0]), name)
            if parent in classes and parent != key:
                methods |= list_methods(parent)
        return methods

    return {key: len(list_methods(key)) for key in classes}


def _read_class_imports(tree: ast.Module) -> dict[str, Path]:
    """Return the files of the names that a module imports from the source."""
    files = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tacit"):
            path = SOURCE.parent.joinpath(*node.module.split("."))  # type: ignore[union-attr]
            for alias in node.names:
                files[alias.name] = path.with_suffix(".py")
    return files


def _iterate_classes(trees: Mapping[Path, ast.Module]) -> Iterator[tuple[ClassKey, ast.ClassDef]]:
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield (path, node.name), node


def _count_class_code(trees: Mapping[Path, ast.Module]) -> dict[ClassKey, int]:
    """Return the number of code lines of each class."""
    counts = {}
    for path, tree in trees.items():
        lines = code_lines(path.read_text(), tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                counts[path, node.name] = len(lines & set(range(node.lineno, _end(node) + 1)))
    return counts


def _end(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno


def main() -> None:
    """Print each measure beside its limit."""
    limits = read_limits()
    for name, value in measure_house()._asdict().items():
        limit = limits[name]
        remark = "" if value <= limit else "  above the limit"
        print(f"{name.replace('_', ' '):22} {value:>9,.6g}   at most {limit:>9,.6g}{remark}")


if __name__ == "__main__":
    main()
