"""The house keeps its shape: files import one another one way, rooms and functions stay small."""

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from conftest import ROOT

import tacit

PACKAGE = Path(tacit.__file__).parent
STUDIES = ROOT / "studies"


@cache
def read(file):
    """Return the modules that a file may import, wherever in it; those without what is for types alone; and
    its functions of more than 60 lines."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    for_types = {inner for node in nodes if is_for_types(node) for inner in ast.walk(node)}
    every = [(node, named(node)) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    long = [node.name for node in nodes if is_function(node) and length(node) > 60]
    running = (found for node, found in every if node not in for_types)
    return set().union(*(found for _, found in every)), set().union(*running), long


def imports(file, *, types=True):
    """Return the modules that a file may import, wherever in it; or without those for types alone."""
    return read(file)[0 if types else 1]


def named(node):
    """Return what an import names."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    return {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}


def is_for_types(node):
    test = isinstance(node, ast.If) and node.test
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def is_function(node):
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def length(node):
    """Return the lines of a function, its docstring aside."""
    documented = ast.get_docstring(node) is not None
    body = node.body[1 if documented and len(node.body) > 1 else 0]
    return node.end_lineno - body.lineno + 1


def name_of(file):
    folder = PACKAGE if file.is_relative_to(PACKAGE) else STUDIES
    return ".".join((folder.name, *file.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")


def check(files):
    """Fail if files import one another in a circle; what is small may name the type of what it is part of."""
    modules = {name_of(file): imports(file, types=False) for file in files}
    assert modules
    graph = {name: needed & set(modules) for name, needed in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"a circle: {' → '.join(error.args[1])}") from None


@pytest.mark.parametrize("room", ["core", "learning", "logs", "evaluate"])
def test_the_files_of_a_room_import_one_way(room):
    check(sorted((PACKAGE / room).rglob("*.py")))


def test_all_files_import_one_way():
    """But for the fronts of rooms, which name what is behind them."""
    check([file for file in sorted(PACKAGE.rglob("*.py")) if file.name != "__init__.py"])


def test_studies_import_one_way_and_the_package_does_not_import_them():
    check(sorted(STUDIES.rglob("*.py")))
    needed = {name.partition(".")[0] for file in PACKAGE.rglob("*.py") for name in imports(file)}
    assert "tacit" in needed
    assert "studies" not in needed


FLOORS = """
errors lazy_imports
core
wire
classifiers frames interleaving plots uplift
policies
logs
feed/events
learning
clicks
environments
simulation evaluate
service/errors service/kind
service/log
service/config
service/deciders
service/projections
service/placements
service/engine
service/page
service/http
service/adapters
service/app
service/maintenance client
feed
feed/history
cluster
warmup checking
demo
demo_rankings
cli
"""
"""Rooms from the ground up: a room imports from floors below its own, and from nothing else."""


# The service maps events, too; a start from a log of the past reads them as a feed does.
PARTS_OF_FEED = dict.fromkeys(("event_map", "mapping", "kafka_topics"), "feed/events") | dict.fromkeys(
    ("history_facts", "history_start"), "feed/history"
)


def room_of(file):
    first, *rest = file.relative_to(PACKAGE).with_suffix("").parts
    if first == "feed":
        return PARTS_OF_FEED.get(rest[0], "feed")
    return f"{first}/{rest[0]}" if first == "service" and rest else first


def test_a_room_imports_from_the_floors_below_it():
    floor_of = {room: i for i, line in enumerate(FLOORS.split("\n")) for room in line.split()}
    files = {name_of(file): file for file in sorted(PACKAGE.rglob("*.py"))}
    upwards = set()
    for file in files.values():
        room = room_of(file)
        if room in ("__init__", "__main__", "service/__init__"):
            continue
        for needed in imports(file) & set(files) - {"tacit", "tacit.service"}:
            other = room_of(files[needed])
            if other != room and not floor_of[other] < floor_of[room]:
                upwards.add(f"{room} imports {other}: {file.relative_to(PACKAGE)}")
    assert sorted(upwards) == []


PRIVATE = re.compile(
    r"(?<!self)\._(?!asdict|fields|make|replace|repr_html_)[a-z]\w*"
    r"|import .*(?<!\w)_[a-z]\w*"
    r'|attr\([^)]*"_[a-z]\w*'
)
"""What is another's: a private attribute or name, but for what named tuples and notebooks call so."""


def test_no_test_reaches_a_private_attribute():
    found = [
        f"{file.name}: {match[0]}"
        for file in sorted((ROOT / "tests").rglob("*.py"))
        for match in PRIVATE.finditer(file.read_text())
    ]
    assert found == []


def test_a_room_holds_a_dozen_files_or_so():
    counts = {}
    for file in PACKAGE.rglob("*.py"):
        counts[file.parent] = counts.get(file.parent, 0) + (file.name != "__init__.py")
    assert {str(room): count for room, count in counts.items() if count > 16} == {}


def test_a_function_holds_one_idea():
    """None is longer than 60 lines, its docstring aside."""
    files = [*PACKAGE.rglob("*.py"), *STUDIES.rglob("*.py")]
    assert {file.name: found for file in files if (found := read(file)[2])} == {}
