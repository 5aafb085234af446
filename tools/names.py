"""Measure how the source names things, as a stranger reads it.

python tools/names.py [FOLDER] [--list]

Functions: the share whose name begins with a participle or particle (found, given, of_, in_) or ends in
a preposition; from_, to_, as_, with_, is_, has_, can_ and the like are conventions. Variables: the share
that say how a value came about, not what it is (found, given, kept, own). Riddles: "what is", "those of",
"somebody" per 1,000 words of docstrings. Circles: groups of files that import each other, imports for types
included.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PARTICIPLES = _words(
    """
given found made kept known shown told drawn held taken sent left lent written chosen seen said
meant begun done gone put laid paid built bought brought caught dealt fed felt got grown heard hid
hurt led lost met sold sought spent stood taught thought thrown understood won wound read_by let
"""
)
PARTICLES = _words(
    """
of in by at beside besides over under within without between among here there where whose what who
how when now then once anew alike aloft elsewhere still yet all every each those these such other
others own some any none
"""
)
PREPOSITIONS = _words(
    "of in by for at from with on into than as beside over under within without between among to"
)
CONVENTIONS = _words("from to as with is has can should on all any")
NO_PARTICIPLES = _words("need feed seed speed bleed breed embed red bed shed sped wed led")
EMPTY_VARIABLES = _words(
    """
given found made kept known own each those these such other others one some shown told drawn held
taken left lent chosen seen said meant asked wanted needed used besides rest here there
"""
)
RIDDLE = re.compile(
    r"\b(what (is|was|it|they|has|had|can|may|would|came|comes)|those (who|of|that)|who(m)?ever|"
    r"somebody|nobody|such a )\b",
    re.IGNORECASE,
)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | Function


class NameMeasures(NamedTuple):
    """Shares of names and docstring words, and groups of files that import each other.

    Attributes
    ----------
    function_count, variable_count, word_count : int
    odd_functions, odd_variables, riddles : Counter
        How often each occurs that the measure counts.
    circles : list of list of str
        Modules of each group.
    """

    function_count: int
    variable_count: int
    word_count: int
    odd_functions: Counter[str]
    odd_variables: Counter[str]
    riddles: Counter[str]
    circles: list[list[str]]

    @property
    def functions_percent(self) -> float:
        """Share of functions with an odd name, in percent."""
        return 100 * self.odd_functions.total() / max(self.function_count, 1)

    @property
    def variables_percent(self) -> float:
        """Share of assignments to variables with an empty name, in percent."""
        return 100 * self.odd_variables.total() / max(self.variable_count, 1)

    @property
    def riddles_per_1000(self) -> float:
        """Riddles per 1,000 words of docstrings."""
        return 1000 * self.riddles.total() / max(self.word_count, 1)


def is_odd_function(name: str) -> bool:
    """True if a function's name begins with a participle or particle, or ends in a preposition.

    Examples
    --------
    >>> is_odd_function("found_rows"), is_odd_function("rows_of"), is_odd_function("find_rows")
    (True, True, False)
    """
    words = [word for word in name.strip("_").lower().split("_") if word]
    if not words:
        return False
    first, last = words[0], words[-1]
    is_participle = first in PARTICIPLES or (
        first.endswith("ed") and len(first) > 3 and first not in NO_PARTICIPLES
    )
    is_odd_first = (is_participle or first in PARTICLES) and first not in CONVENTIONS
    return is_odd_first or (len(words) > 1 and last in PREPOSITIONS)


def measure_names(folder: Path) -> NameMeasures:
    """Measure all Python files below a folder."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    functions = [n.name for n in nodes if isinstance(n, Function) and not n.name.startswith("__")]
    variables = [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    docstrings = [ast.get_docstring(node) or "" for node in nodes if isinstance(node, Documented)]
    return NameMeasures(
        len(functions),
        len(variables),
        sum(len(text.split()) for text in docstrings),
        Counter(filter(is_odd_function, functions)),
        Counter(name for name in variables if name.strip("_").lower() in EMPTY_VARIABLES),
        Counter(match[0].lower() for text in docstrings for match in RIDDLE.finditer(text)),
        list(find_circles(read_imports(folder, trees))),
    )


def read_imports(folder: Path, trees: Mapping[Path, ast.Module]) -> dict[str, set[str]]:
    """Return the modules below a folder that each of them imports, wherever in the file."""
    root = folder if (folder / "tacit").is_dir() else folder.parent
    dotted = {path: ".".join(path.relative_to(root).with_suffix("").parts) for path in trees}
    modules = {path: module.removesuffix(".__init__") for path, module in dotted.items()}
    names, imports = set(modules.values()), {}
    for path, tree in trees.items():
        targets = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    module = f"{node.module}.{alias.name}"
                    targets.add(module if module in names else node.module)
        is_package = path.name == "__init__.py"
        imports[modules[path]] = set() if is_package else targets & names - {modules[path]}
    return imports


def find_circles(imports: Mapping[str, Iterable[str]]) -> Iterator[list[str]]:
    """Yield the groups of modules that import each other.

    Examples
    --------
    >>> list(find_circles({"a": ["b"], "b": ["a"], "c": ["a"]}))
    [['a', 'b']]
    """
    graph = {module: set(targets) for module, targets in imports.items()}
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            group = _reach_both_ways(graph, error.args[1][0])
            yield sorted(group)
            for module in group:
                graph[module] -= group
        else:
            return


def _reach_both_ways(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Return the modules that a module reaches and that reach it."""
    back: dict[str, set[str]] = {}
    for module, targets in graph.items():
        for target in targets:
            back.setdefault(target, set()).add(module)
    return _reach(graph, start) & _reach(back, start)


def _reach(graph: Mapping[str, set[str]], start: str) -> set[str]:
    reached, waiting = {start}, [start]
    while waiting:
        new = graph.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return reached


def main(arguments: list[str]) -> None:
    """Print the measures of a folder; with ``--list`` the most frequent names and words, too."""
    folders = [argument for argument in arguments if not argument.startswith("-")]
    measures = measure_names(Path(folders[0] if folders else "src"))
    print(f"functions {measures.functions_percent:.1f} % of {measures.function_count:,}")
    print(f"variables {measures.variables_percent:.1f} % of {measures.variable_count:,}")
    print(f"riddles   {measures.riddles_per_1000:.2f} per 1,000 of {measures.word_count:,} docstring words")
    print(f"circles   {len(measures.circles)}, files in them {sum(map(len, measures.circles))}")
    if "--list" in arguments:
        for title in ("odd_functions", "odd_variables", "riddles"):
            counts = getattr(measures, title).most_common(60)
            print(title, ", ".join(f"{name} {count}" for name, count in counts))
        for circle in measures.circles:
            print("circle", *circle)


if __name__ == "__main__":
    main(sys.argv[1:])
