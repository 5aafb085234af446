"""Transcripts of mistakes: what somebody does, and what tacit says to it.

A file holds cases, with a blank line between two. A case is a title behind ``#``, where its steps do not
speak for themselves, and steps, each with its answer below:

    >>> code             Python; lines with ``...`` continue it, and any other step
    $ tacit command      a command, in a folder with a copy of ``files``; then ``output`` is what it printed
    POST path {body}     a request to a service, below /v1/placements but for a path that begins with /
    GET path             the same, without a body
    anything else        lines of a configuration, below those of ``HOME`` if they name no placement

    ! type: text         the error: its class, the exit code, or the status
    ? text               a warning (?? if it points at the line of the transcript)
    text                 the output: the value of an expression, what a command prints

``[…]`` stands for any text; a line that begins with two blanks continues an answer. What an answer does not
have must not come: no error, no warning. Output is only compared where the transcript has some.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from tacit.cli import main
from tacit.errors import AssumptionWarning, TacitError
from tacit.service.config.file import lint_config, load_config

FOLDER = Path(__file__).parent
SIGNS = (">>> ", "$ ", "POST ", "GET ")
DOUBTS = ("? ", "?? ")
HOME = '[placements.home]\narms = ["film", "song"]\n'


class Answer(NamedTuple):
    """What is said to a step: an error, warnings, an output."""

    error: str = ""
    warnings: tuple[str, ...] = ()
    output: str = ""


class Step(NamedTuple):
    """One thing that is done: its sign, its text, its line in the file, and the expected answer."""

    sign: str
    text: str
    line: int
    answer: Answer


class Case(NamedTuple):
    """One case: where it stands, its title or beginning, its steps."""

    path: Path
    title: str
    steps: list[Step]

    def __str__(self) -> str:
        return f"{self.path.stem}: {self.title}"


def read_cases(path: Path) -> Iterator[Case]:
    """Yield the cases of a transcript."""
    lines, start = path.read_text().splitlines(), 0
    for end in [number for number, line in enumerate(lines) if not line] + [len(lines)]:
        if lines[start:end]:
            has_title = lines[start].startswith("# ")
            steps = list(read_steps(lines[start + has_title : end], start + 1 + has_title))
            title = lines[start].removeprefix("# ") if has_title else " ".join(steps[0].text.split())
            yield Case(path, title, steps)
        start = end + 1


def read_steps(block: list[str], first: int) -> Iterator[Step]:
    """Yield the steps of a case whose lines begin at a line of the file."""
    is_configuration = not block[0].startswith(SIGNS)
    starts = [0] if is_configuration else [i for i, line in enumerate(block) if line.startswith(SIGNS)]
    for start, end in zip(starts, [*starts[1:], len(block)], strict=True):
        sign = "" if is_configuration else block[start].partition(" ")[0]
        body = start + 1
        while body < end and (
            block[body].startswith("... ") or not (sign or block[body].startswith(("! ", *DOUBTS)))
        ):
            body += 1
        text = "\n".join(line.removeprefix("... ") for line in block[start:body])
        text = text.removeprefix(sign).removeprefix(" ")
        yield Step(sign, text, first + start, read_answer(block[body:end]))


def read_answer(lines: list[str]) -> Answer:
    """Return the answer that lines of a transcript say."""
    said: list[str] = []
    for line in lines:
        if line.startswith("  ") and said:
            said[-1] += line
        else:
            said.append(line)
    errors = [line[2:] for line in said if line.startswith("! ")]
    doubts = [line for line in said if line.startswith(DOUBTS)]
    output = " ".join(line for line in said if not line.startswith(("! ", *DOUBTS)))
    return Answer("".join(errors), tuple(doubts), output)


def run_python(step: Step, path: Path, names: dict[str, object]) -> Answer:
    """Run a statement; warnings must point at its line of the transcript."""
    code = compile("\n" * (step.line - 1) + step.text + "\n", str(path), "single")
    error, printed = "", StringIO()
    with warnings.catch_warnings(record=True, action="always") as caught, redirect_stdout(printed):
        try:
            exec(code, names)
        except (TacitError, TypeError, AttributeError) as raised:
            error = f"{type(raised).__name__}: {raised}"
    doubts = [
        f"{'??' if each.filename == str(path) else '?'} {each.message}"
        for each in caught
        if issubclass(each.category, AssumptionWarning)
    ]
    return Answer(error, tuple(doubts), printed.getvalue())


def run_command(step: Step, path: Path, names: dict[str, object]) -> Answer:
    """Type a command; one that is refused must leave the folder as it was."""
    before = list_files()
    with (
        CliRunner().isolation() as (_, _, output),
        warnings.catch_warnings(action="always", category=AssumptionWarning),
    ):
        try:
            main(step.text.split()[1:])
        except SystemExit as ended:
            code = ended.code
    names["output"] = output.getvalue().decode()
    lines = names["output"].splitlines()
    doubts = tuple(line.replace("warning:", "?", 1) for line in lines if line.startswith("warning: "))
    printed = " ".join(line for line in lines if not line.startswith("warning: "))
    if not code:
        return Answer(warnings=doubts, output=printed)
    assert list_files() == before
    return Answer(f"exit {code}: {re.sub('^Usage: .*?(?=Error: )', '', printed)}", doubts)


def list_files() -> dict[Path, bytes]:
    """Return the files of the current folder and what is in them."""
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def ask_service(step: Step, path: Path, names: dict[str, object]) -> Answer:
    """Send a request to the service."""
    path, _, body = step.text.partition(" ")
    request = urllib.request.Request(
        names["address"] + (path if path.startswith("/") else f"/v1/placements/{path}"),
        body.encode() if step.sign == "POST" else None,
        {"content-type": "application/json"},
    )
    try:
        return Answer(output=urllib.request.urlopen(request).read().decode())
    except urllib.error.HTTPError as refused:
        problem = json.load(refused)
        assert problem["detail"].startswith(f"{problem['field']}: ")
        return Answer(f"{problem['status']} {problem['detail']}")


def load_configuration(step: Step, path: Path, names: dict[str, object]) -> Answer:
    """Load a configuration and look for what can hardly be meant."""
    text = step.text if "[placements" in step.text else HOME + step.text
    Path("tacit.toml").write_text(text)
    try:
        return Answer(warnings=tuple(f"? {doubt}" for doubt in lint_config(load_config(Path("tacit.toml")))))
    except TacitError as refused:
        return Answer(f"{type(refused).__name__}: {refused}")


EXECUTORS = {
    ">>>": run_python,
    "$": run_command,
    "POST": ask_service,
    "GET": ask_service,
    "": load_configuration,
}


def check_case(case: Case, names: dict[str, object]) -> None:
    """Take the steps of a case, and check that what is said to each is what its transcript says."""
    for step in case.steps:
        said, expected = EXECUTORS[step.sign](step, case.path, names), step.answer
        if not expected.output:
            said = said._replace(output="")
        wanted = (expected.error, *expected.warnings, expected.output)
        texts = (said.error, *said.warnings, said.output)
        if len(texts) != len(wanted) or not all(map(fits, wanted, texts)):
            raise AssertionError(f"{case.path.name}, line {step.line}: {step.text}\n{expected}\n{said}")


def fits(expected: str, said: str) -> bool:
    """True if a text is the expected one, in which ``[…]`` stands for any text and spacing does not count."""
    parts = (re.escape(" ".join(part.split())) for part in expected.split("[…]"))
    return re.fullmatch(r" ?.* ?".join(parts), " ".join(said.split()), re.DOTALL) is not None
