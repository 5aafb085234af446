"""Small cases in which another package does not do what the paper says, run in its environment.

python benchmarks/wrong.py

A file in ``wrong`` says what the paper says, what the code does and the smallest case that shows
it, and prints what is expected and what is found. Corrections are welcome.
"""

from __future__ import annotations

import ast
import json
from typing import Any

import venvs
from venvs import HERE

CASES = {path.stem: path for path in sorted((HERE / "wrong").glob("*.py"))}
WITHIN = 0.1
"""Relative error up to which what is found is what is expected; chance explains no more."""


def run(case: str) -> dict[str, Any]:
    """Run a case.

    Raises
    ------
    PeerFailed
        If the package does not install, or the case fails.
    """
    peer = case.partition("_")[0]
    python = venvs.install(peer)
    printed = venvs.output([str(python), "-P", "-W", "ignore", str(CASES[case])], 300.0)
    found = json.loads(printed.splitlines()[-1])
    return {"package": venvs.pinned(peer)[0], **said(case), **found}


def said(case: str) -> dict[str, str]:
    """Return what a case's file says, by the words before its colons."""
    text = ast.get_docstring(ast.parse(CASES[case].read_text())) or ""
    title, _, body = text.partition("\n\n")
    parts: dict[str, str] = {"title": title.rstrip(".")}
    for line in body.splitlines():
        word, colon, rest = line.partition(": ")
        if colon and word in ("Paper", "Definition", "Documentation", "Code", "Case", "Shown"):
            parts[last := word] = rest
        else:
            parts[last] += " " + line
    return parts


def differs(result: dict[str, Any]) -> bool:
    """Tell whether what is found is not what is expected."""
    expected, found = float(result["expected"]), float(result["found"])
    return bool(abs(found - expected) > WITHIN * max(abs(expected), 1e-9))


def main() -> None:
    """Run all cases and print what was found."""
    for case in CASES:
        try:
            result = run(case)
        except venvs.PeerFailed as error:
            print(f"{case}: {error}")
            continue
        verdict = "differs" if differs(result) else "agrees"
        told = f"expected {result['expected']:.4g}, found {result['found']:.4g}: {verdict}"
        print(f"{result['package']}, {result['title'].lower()}: {told}", flush=True)


if __name__ == "__main__":
    main()
