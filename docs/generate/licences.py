"""The licences of what an installation of tacit brings along."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from generate.tables import code, table

EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
WANTED = re.compile(r"([\w.-]+)(?:\[([^]]*)\])?")


def part() -> str:
    """Return a table of all packages that tacit needs with any of its extras."""
    own = set(distribution("tacit").metadata.get_all("Provides-Extra") or ()) - {"all", "dev", "docs"}
    wanted: dict[str, set[str]] = {}
    for name, _, extra in requirements(distribution("tacit"), own):
        wanted.setdefault(name, set()).add(extra or "tacit")
    found = sorted(needed(own).items())
    return table(
        ["package", "version", "licence", "needed by"],
        [
            [code(name), of.version, licence(of), ", ".join(sorted(wanted.get(name, ())))]
            for name, of in found
        ],
    )


def requirements(of: Distribution, extras: set[str]) -> Iterator[tuple[str, set[str], str]]:
    """Yield what a package needs with some extras: name, extras, and for which of the former."""
    for line in of.requires or ():
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
    seen, waiting = set(), [("tacit", own)]
    while waiting:
        name, extras = waiting.pop()
        if (name, frozenset(extras)) in seen:
            continue
        seen.add((name, frozenset(extras)))
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # of another platform
            continue
        waiting += [(each, inside) for each, inside, _ in requirements(found[name], extras)]
    del found["tacit"]
    return found


def licence(of: Distribution) -> str:
    """Return what a package says of its licence, as short as it does."""
    said = of.metadata
    if expression := said.get("License-Expression"):
        return str(expression)
    classified = [line for line in said.get_all("Classifier") or () if line.startswith("License")]
    named = (said.get("License") or "").strip().splitlines()
    return "; ".join(line.rpartition(" :: ")[2] for line in classified) or (named or ["not said"])[0]
