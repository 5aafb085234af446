"""The reference of errors: exceptions, exit codes, and the problems of the service."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import re
from collections.abc import Iterator

import tacit
from generate.tables import code, summary, table
from tacit.cli import EPILOG
from tacit.errors import AssumptionWarning, TacitError
from tacit.policies import IdentifiabilityWarning
from tacit.service.http.messages import PROBLEMS


def part() -> str:
    """Return exceptions, warnings, exit codes and problems."""
    raised = [[code(name(kind)), code(name(kind.__bases__[0])), summary(kind)] for kind in errors()]
    warned = [[code(name(kind)), summary(kind)] for kind in (AssumptionWarning, IdentifiabilityWarning)]
    problems = [[code(kind), str(status), title + "."] for kind, (status, title) in PROBLEMS.items()]
    return (
        f"## Exceptions\n\n{table(['exception', 'is a', 'when'], raised)}\n\n"
        f"## Warnings\n\n{table(['warning', 'when'], warned)}\n\n"
        f"## Exit codes\n\n{table(['code', 'meaning'], exit_codes())}\n\n"
        "## Problems of the service\n\n"
        "Bodies are `application/problem+json` (RFC 9457); `type` is `urn:tacit:problem:` and "
        f"the kind, `field` names the field.\n\n{table(['kind', 'status', 'when'], problems)}"
    )


def errors(base: type[Exception] = TacitError) -> Iterator[type[Exception]]:
    """Give every exception that tacit raises on purpose, bases first."""
    for module in pkgutil.walk_packages(tacit.__path__, "tacit."):
        # What an extra brings has no errors of its own without it.
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    seen = {base}
    queue = [base]
    while queue:
        kind = queue.pop(0)
        yield kind
        new = [one for one in kind.__subclasses__() if one.__module__.startswith("tacit")]
        queue += [one for one in new if one not in seen]
        seen.update(new)


def name(kind: type) -> str:
    """Return where an exception is found."""
    module = "tacit" if kind is TacitError else kind.__module__
    return kind.__name__ if module == "builtins" else f"{module}.{kind.__name__}"


def exit_codes() -> list[list[str]]:
    """Return the exit codes as the command line's help tells them."""
    told = re.search(r"Exit codes: (.+)\.", EPILOG)
    assert told is not None
    return [[code(one.split()[0]), one.partition(" ")[2]] for one in told.group(1).split(", ")]
