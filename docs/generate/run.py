"""Run a page as a reader would, and compare what happens with what the page shows.

    python -m generate.run PAGE...            # says what differs
    python -m generate.run --write PAGE...    # takes over outputs and pictures instead

Everything runs in one empty folder, in the page's order:

- a block with ``title="FILE"`` is written to that file;
- ``python`` blocks share one interpreter; a ``text`` block shows what those before it printed;
- ``console`` blocks share one bash; lines after ``$`` are commands, the others what they print;
- in what is shown, ``…`` stands for anything;
- a picture of the page that lies beside it is one that the page's code makes.

Where a page says 8787, a port that is free is meant.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"!\[[^\]]*\]\(([\w.-]+\.png)\)")
PORT = "8787"
ROOT = Path(__file__).parents[2]


@dataclass
class Difference:
    """Something that a page shows otherwise than it is.

    Attributes
    ----------
    what : str
    shown, found : str
    """

    what: str
    shown: str
    found: str

    def __str__(self) -> str:
        return f"{self.what}\n--- shown\n{self.shown}--- found\n{self.found}"


class Shell:
    """One bash that runs commands one after the other.

    Parameters
    ----------
    folder : path
    """

    def __init__(self, folder: Path) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        # The commands of a page run in an empty folder, as if in that of the repository.
        modules = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            ["/bin/bash"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=os.environ | {"PATH": path, "PYTHONPATH": modules, "COLUMNS": "100"},
        )

    def run(self, command: str) -> tuple[str, int]:
        """Run a command; return what it printed, and its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        end = secrets.token_hex(8)
        self._process.stdin.write(f"{command}\nprintf '{end} %d\\n' $?\n")
        self._process.stdin.flush()
        output = ""
        for line in self._process.stdout:
            before, found, code = line.partition(end)
            output += before
            if found:
                return output + ("\n" if output and not output.endswith("\n") else ""), int(code)
        raise RuntimeError(f"the shell is gone after: {command}\n{output}")

    def close(self) -> None:
        """Stop it and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait()


def run(page: Path, folder: Path) -> tuple[list[Difference], str]:
    """Run a page in an empty folder; return what differs, and the page as it should be."""
    text = page.read_text(encoding="utf-8")
    port = free_port()
    differences: list[Difference] = []
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    shell = Shell(folder)

    def compare(what: str, shown: str, found: str) -> str:
        if matches(shown, found):
            return shown
        differences.append(Difference(f"{page.name}: {what}", shown, found))
        return found

    def block(match: re.Match[str]) -> str:
        nonlocal printed
        language, title, shown = match.groups()
        content = shown.replace(PORT, port)
        after = shown
        if title:
            (folder / title).write_text(content, encoding="utf-8")
        elif language == "python":
            printed += execute(content, names, page.name).replace(port, PORT)
        elif language == "text":
            after, printed = compare("printed by Python", shown, printed), ""
        elif language == "console":
            after = ""
            for command, expected in commands(content):
                output, code = shell.run(command)
                if code:
                    output += f"(exit code {code})\n"
                found = compare(command, expected.replace(port, PORT), output.replace(port, PORT))
                after += "$ " + command.replace(port, PORT) + "\n" + found
        return match.group().replace(shown, after) if shown else match.group()

    before = Path.cwd()
    try:
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        after = BLOCK.sub(block, text)
    finally:
        sys.path.remove(str(folder))
        os.chdir(before)
        shell.close()
    differences += [
        Difference(f"{page.name}: {picture}", "a picture\n", "none\n")
        for picture in pictures(text)
        if not (folder / picture).exists()
    ]
    return differences, after


def pictures(text: str) -> list[str]:
    """Return the names of the pictures beside a page."""
    return PICTURE.findall(text)


def execute(code: str, names: dict[str, Any], name: str) -> str:
    """Run a block of Python in a namespace; return what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), names)
    return printed.getvalue()


def commands(block: str) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with the output shown for it.

    Examples
    --------
    >>> commands("$ echo a \\\\\\n    b\\na b\\n$ true\\n")
    [('echo a \\\\\\n    b', 'a b\\n'), ('true', '')]
    """
    found: list[tuple[str, str]] = []
    continues = False
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif continues:
            found[-1] = (f"{found[-1][0]}\n{line}", "")
        else:
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
        continues = line.endswith("\\") and (line.startswith("$ ") or continues)
    return found


def matches(shown: str, found: str) -> bool:
    """Say whether an output is the one shown, in which ``…`` stands for anything.

    Examples
    --------
    >>> matches("id …, arm 3\\n", "id 018b, arm 3\\n"), matches("a\\n", "b\\n")
    (True, False)
    """
    pattern = ".*?".join(map(re.escape, stripped(shown).split("…")))
    return re.fullmatch(pattern, stripped(found), re.DOTALL) is not None


def stripped(text: str) -> str:
    """Return a text without blanks at the ends of lines and of the text."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def free_port() -> str:
    """Return the number of a port that is free."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def main() -> None:
    """Run pages from the command line."""
    parser = argparse.ArgumentParser(description="Run pages and compare, or take over.")
    parser.add_argument("--write", action="store_true", help="Take over outputs and pictures.")
    parser.add_argument("pages", nargs="+", type=Path)
    options = parser.parse_args()
    wrong = 0
    for page in options.pages:
        with tempfile.TemporaryDirectory() as folder:
            differences, after = run(page.resolve(), Path(folder))
            for difference in differences:
                print(difference)
            if options.write:
                from generate.gallery import small

                page.write_text(after, encoding="utf-8")
                for picture in pictures(after):
                    (page.parent / picture).write_bytes(small(Path(folder) / picture))
        wrong += len(differences)
    sys.exit(0 if options.write else min(wrong, 1))


if __name__ == "__main__":
    main()
