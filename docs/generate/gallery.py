"""The gallery: every figure of ``python -m studies``, the command that makes it, what it takes.

Run as a program it makes the figures anew: ``python -m generate.gallery [--data FILE] [ITEM ...]``.
``facts.json`` holds, of each figure, what it took and a hash of the code that made it.
"""

# 1. The gallery as a part of a page.
# 2. The code of an item: what its function names, in the studies, and the policies and environments.
# 3. Figures are made and made small.

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import importlib
import inspect
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from studies import ITEMS, item
from tacit import plots

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images" / "gallery"
FACTS = IMAGES / "facts.json"
LIMIT = 60_000
"""Bytes that a figure may take."""
COLOURS = 64

# Runs behind the figures shown here, where an item's own number would take long.
RUNS = {"dueling-practice": 20, "search-interest": 1, "yue2011-figure2-bottom": 10}


def part() -> str:
    """Return every item with its command, what it took, and its figure."""
    facts = json.loads(FACTS.read_text())
    return "\n\n".join(shown(name, facts[name]) for name in ITEMS if name in facts)


def shown(name: str, took: dict[str, Any]) -> str:
    """Return an item of the gallery."""
    found = item(name)
    data = " --data FILE" if found.needs_data else ""
    fewer = f"; its own number is {found.runs}" if took["runs"] != found.runs else ""
    older = "" if "code" in took else " The picture was made before the hash of its code was kept."
    needs = f"FILE is {found.needs_data}.\n\n" if found.needs_data else ""
    return (
        f"## {name}\n\n{found.title}.\n\n"
        f"```console\n$ python -m studies {name} --runs {took['runs']} --seed 1{data}\n```\n\n"
        f"{needs}Seed 1, {counted(took['runs'], 'run')}{fewer}. It took "
        f"{counted(took['processor'], 'second')} of processor time, {took['seconds']} by the "
        f"clock of a busy machine, compiling included.{older}\n\n"
        f"![{found.title}](images/gallery/{name}.png)"
    )


def counted(number: int, what: str) -> str:
    """Return a number of things."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def runs_of(name: str) -> int:
    """Return the number of runs behind an item's figure."""
    return RUNS.get(name, item(name).runs)


# ---- The code of an item

PARTS = ("tacit.policies", "tacit.environments", "tacit.classifiers")
"""Where what a study plays is defined; of it, each definition's own file is followed, no further."""
SHARED = ("studies.study", "tacit.policies.base")
"""Where helpers are that change for many reasons, and whose numbers tests hold: nothing of them is hashed."""


class Definition(NamedTuple):
    """A name at the top of a module."""

    module: str
    name: str


def fingerprint(name: str) -> str:
    """Return a hash of an item's code: all definitions that its function leads to, and its colours.

    Comments, docstrings, formatting, annotations and names of local variables do not change it, nor does
    any code that it does not name.
    """
    definitions = sorted(set(follow(Definition(*ITEMS[name]))))
    code = [f"{one.name}:{as_text(number_locals(tree_of(one)))}" for one in definitions]
    colours = [plots._policy_row(one.name) for one in definitions]
    content = "\n".join([*code, f"{colours} {plots.COLOURS} {plots.STYLES}"])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def as_text(node: Any) -> str:
    """Return a tree as text that is the same in every version of Python."""
    if isinstance(node, list):
        return f"[{','.join(map(as_text, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [
        f"{field}={as_text(value)}" for field, value in ast.iter_fields(node) if value not in (None, [])
    ]
    return f"{type(node).__name__}({','.join(fields)})"


def number_locals(tree: Any) -> Any:
    """Return a copy of a definition with numbers for the names of local variables, and no annotations."""
    tree = copy.deepcopy(tree)
    for function in [tree, *getattr(tree, "body", [])]:
        if not isinstance(function, ast.FunctionDef):
            continue
        nodes = list(ast.walk(function))[1:]
        parameters = [node.arg for node in nodes if isinstance(node, ast.arg)]
        variables = [node for node in nodes if isinstance(node, ast.Name)]
        bound = parameters + [node.id for node in variables if isinstance(node.ctx, ast.Store)]
        numbers = {name: str(number) for number, name in enumerate(dict.fromkeys(bound))}
        for variable in variables:
            variable.id = numbers.get(variable.id, variable.id)
        for node in nodes:
            if isinstance(node, ast.arg):
                node.arg, node.annotation = numbers[node.arg], None
        function.returns = None
    return tree


def follow(start: Definition) -> Iterator[Definition]:
    """Yield a definition and all that it leads to within the studies and what they play."""
    seen, ahead = set(), [start]
    while ahead:
        one = ahead.pop()
        if one in seen:
            continue
        seen.add(one)
        tree = tree_of(one)
        if tree is None:
            continue
        yield one
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                ahead += resolved(one.module, [node.id])
            elif isinstance(node, ast.Attribute):
                ahead += resolved(one.module, path_of(node))


def path_of(node: ast.expr) -> list[str]:
    """Return the names of ``a.b.c``, none where it does not begin with a name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []


def resolved(module: str, names: list[str]) -> list[Definition]:
    """Return the definition that names lead to, seen from a module; none if it is not followed."""
    home: Any = importlib.import_module(module)
    for i, name in enumerate(names):
        if name in definitions_of(home.__name__):
            return [Definition(home.__name__, name)]
        target = getattr(home, name, None)
        if not isinstance(target, ModuleType):
            return home_of(module, target)
        home = target
        if i == 0 and not home.__name__.startswith(("studies", *PARTS)):
            return []
    return []


def home_of(module: str, target: Any) -> list[Definition]:
    """Return where a class or function is defined, if a study may follow it there."""
    origin, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if not isinstance(origin, str) or not isinstance(name, str) or origin in SHARED:
        return []
    allowed = ("studies", *PARTS) if module.startswith("studies") else ()
    return [Definition(origin, name)] if origin.startswith(allowed) and allowed else []


def tree_of(one: Definition) -> Any:
    """Return the code of a definition without docstrings; None if there is none."""
    return None if one.module in SHARED else definitions_of(one.module).get(one.name)


@cache
def definitions_of(module: str) -> dict[str, ast.stmt]:
    """Return the statements at the top of a module that define a name, by that name."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    found: dict[str, ast.stmt] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            found[statement.name] = statement
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            found |= {n.id: statement for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return found


# ---- Figures are made


def make(name: str, data: Path | None) -> dict[str, Any]:
    """Run an item's command, keep its figure, and return what it took and which code it was."""
    found = item(name)
    runs = runs_of(name)
    with tempfile.TemporaryDirectory() as folder:
        command = ["studies", name, "--runs", str(runs), "--seed", "1", "--out", folder]
        if found.needs_data:
            command += ["--data", str(data)]
        before, start = _processor(), time.monotonic()
        subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True, cwd=ROOT)
        seconds, processor = time.monotonic() - start, _processor() - before
        (IMAGES / f"{name}.png").write_bytes(small(Path(folder) / f"{name}.png"))
    took = {"runs": runs, "seconds": round(seconds), "processor": round(processor)}
    return took | {"code": fingerprint(name)}


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def small(path: Path, colours: int = COLOURS) -> bytes:
    """Return a figure as a PNG of fewer colours, scaled down until it is below the limit."""
    from PIL import Image

    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    width = min(picture.width, 1050)
    while True:
        height = round(picture.height * width / picture.width)
        scaled = picture.resize((width, height), Image.Resampling.LANCZOS)
        # Thin lines are few pixels: their colours must be kept all the same.
        kept = scaled.quantize(colours, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        buffer = io.BytesIO()
        kept.save(buffer, "PNG", optimize=True)
        if buffer.tell() <= LIMIT:
            return buffer.getvalue()
        width = round(0.92 * width)


def main() -> None:
    """Make the figures of some items, or of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("items", nargs="*", metavar="ITEM", help="default: each")
    parser.add_argument("--data", type=Path, help="a table of search interest: dates and topics")
    asked = parser.parse_args()
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name in asked.items or list(ITEMS):
        if item(name).needs_data and asked.data is None:
            print(f"left out: {name}, for want of --data")
            continue
        took = make(name, asked.data)
        facts = (json.loads(FACTS.read_text()) if FACTS.exists() else {}) | {name: took}
        ordered = {known: facts[known] for known in ITEMS if known in facts}
        FACTS.write_text(json.dumps(ordered, indent=1) + "\n")
        print(name, facts[name], flush=True)


if __name__ == "__main__":
    main()
