"""The licences of what an installation of tacit brings along."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from generate.tables import code, table

EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
WANTED = re.compile(r"([\w.-]+)(?:\[([^]]*)\])?")

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def project_requirements() -> list[str]:
    """Return what pyproject.toml requires, as the metadata of an installed package says it."""
    extras = PROJECT["optional-dependencies"].items()
    inside = [f"{each}; extra == '{extra}'" for extra, requires in extras for each in requires]
    return [*PROJECT["dependencies"], *inside]


def part() -> str:
    """Return a table of all packages that tacit needs with any of its extras."""
    own = set(PROJECT["optional-dependencies"]) - {"all", "dev", "docs"}
    wanted: dict[str, set[str]] = {}
    for name, _, extra in requirements(project_requirements(), own):
        wanted.setdefault(name, set()).add(extra or "tacit")
    found = sorted(needed(own).items())
    return table(
        ["package", "version", "licence", "needed by"],
        [
            [code(name), of.version, licence(of), ", ".join(sorted(wanted.get(name, ())))]
            for name, of in found
        ],
    )


def requirements(requires: Iterable[str], extras: set[str]) -> Iterator[tuple[str, set[str], str]]:
    """Yield what a package needs with some extras: name, extras, and for which of the former."""
    for line in requires:
        head, _, marker = line.partition(";")
        extra, named = EXTRA.search(marker), WANTED.match(head)
        if named and (extra is None or extra[1] in extras):
            inside = {each.strip() for each in (named[2] or "").split(",")}
            yield canonical(named[1]), inside, extra[1] if extra else ""


def canonical(name: str) -> str:
    """Return a package's name in the one spelling that all others are compared in."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(own: set[str]) -> dict[str, Distribution]:
    """Return what is installed of all that tacit needs, directly or not."""
    found: dict[str, Distribution] = {}
    seen = set()
    waiting = [(each, inside) for each, inside, _ in requirements(project_requirements(), own)]
    while waiting:
        name, extras = waiting.pop()
        if (name, frozenset(extras)) in seen:
            continue
        seen.add((name, frozenset(extras)))
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # of another platform
            continue
        waiting += [(each, inside) for each, inside, _ in requirements(found[name].requires or (), extras)]
    # An extra may name the package itself, with another extra.
    found.pop(canonical(PROJECT["name"]), None)
    return found


def licence(of: Distribution) -> str:
    """Return what a package says of its licence, as short as it does."""
    said = of.metadata
    if expression := said.get("License-Expression"):
        return str(expression)
    classified = [line for line in said.get_all("Classifier") or () if line.startswith("License")]
    named = (said.get("License") or "").strip().splitlines()
    return "; ".join(line.rpartition(" :: ")[2] for line in classified) or (named or ["not said"])[0]
