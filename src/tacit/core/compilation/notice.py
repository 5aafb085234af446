"""Notices of compilations, and explanations of numba's errors.

A line on standard error while a loop compiles, with the time it took; then errors of numba, whose cause is
located in its frames and explained in one line, with the remedy.
"""

from __future__ import annotations

import dis
import inspect
import linecache
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, NamedTuple

from tacit.core import dispatch
from tacit.errors import KernelError

PATIENCE = 1.0
"""Seconds before a notice."""

Say = Callable[[str], None]

_compiling: ContextVar[Notice | None] = ContextVar("compiling", default=None)
_line = threading.Lock()
"""Held by the thread with an unfinished line."""
_unkept: dict[str, bool] = {}
"""Warnings that code cannot be cached, and whether each was written."""


def on_stderr(text: str) -> None:
    """Write a piece of a line to standard error; do nothing if that is closed."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass


say: Say = on_stderr
"""Output of notices; a service replaces it by its log."""


class Notice:
    """The notice of one compilation: ``tacit: compiling WHAT … 3.2 s``."""

    def __init__(self, what: str) -> None:
        self.what, self.began, self._has_line = what, 0.0, False
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Start the timer of the notice."""
        if self._timer is None:
            self.began = time.monotonic()
            self._timer = threading.Timer(PATIENCE, self._begin_line)
            self._timer.daemon = True
            self._timer.start()

    def _begin_line(self) -> None:
        """Write the beginning of the line, unless another thread has an unfinished one."""
        if not silenced() and _line.acquire(blocking=False):
            self._has_line = True
            say(f"tacit: compiling {self.what}, once; it is kept …")

    def end(self) -> None:
        """Write the time that the compilation took, if a notice was due."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer.join()
        seconds = time.monotonic() - self.began
        if self._has_line:
            say(f" {seconds:.1f} s\n")
            _line.release()
        elif seconds > PATIENCE and not silenced():
            # Another thread's line was unfinished all the time.
            say(f"tacit: compiled {self.what} in {seconds:.1f} s\n")


def silenced() -> bool:
    """True if the environment variable ``TACIT_QUIET`` suppresses notices."""
    return os.environ.get("TACIT_QUIET", "") not in ("", "0")


@contextmanager
def telling(what: str) -> Iterator[None]:
    """Write notices of compilations in the ``with`` block; ``what`` names the loop."""
    notice = Notice(what)
    token = _compiling.set(notice)
    try:
        yield
    finally:
        _compiling.reset(token)
        notice.end()
        _tell_what_is_not_kept()


def compiling() -> None:
    """Start the current notice, as the loop is not in the cache and is compiled now."""
    notice = _compiling.get()
    if notice is not None:
        notice.begin()


def not_kept(folder: Path, error: OSError) -> None:
    """Add a warning that code cannot be cached; it is written once, after the current line."""
    _unkept.setdefault(
        f"tacit: what is compiled cannot be kept in {folder} ({error.strerror}), so every "
        "process compiles it anew; set TACIT_CACHE_DIR to a folder that can be written to\n",
        False,
    )


def _tell_what_is_not_kept() -> None:
    """Write the warnings that code cannot be cached, each once."""
    for text, was_said in list(_unkept.items()):
        if not was_said and not silenced():
            _unkept[text] = True
            with _line:
                say(text)


# ---- numba's errors on a kernel, explained in one line: location, cause and remedy

PACKAGE = str(Path(__file__).parents[2])
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
FRAME = re.compile(r'^File "(?P<file>.+)", line (?P<line>\d+):$')
DURING = re.compile(r"^During: typing of .* at (?P<file>.+) \((?P<line>\d+)\)$")
RAISED_FROM = re.compile(r"\.+ Raised from (?:None|(?P<file>.+) \((?P<line>\d+)\))$")
CALLEE = re.compile(r"resolving callee type: Function\(<function (?P<name>\w+) at")
NESTED = re.compile(r"^\w+(?:Error|Exception): ")
RNG = "NumPyRandomGeneratorType"


class Place(NamedTuple):
    """A line of code; 0 if its number is unknown."""

    file: str
    line: int


def explained(error: Exception, loop: Callable[..., Any], parts: Sequence[type]) -> KernelError:
    """Return an error that explains why numba could not compile a kernel.

    Parameters
    ----------
    error : Exception
        The compiler's error.
    loop : function
        The compiled loop.
    parts : sequence of type
        The parts whose kernels it runs.
    """
    lines = [COLOUR.sub("", line).strip() for line in str(error).splitlines()]
    head = next((i for i, line in enumerate(lines) if line.startswith("During:")), len(lines))
    cause = _cause(lines[:head]) or str(error)
    kernels = list(_kernels(loop, parts))
    place = _place(lines, head, cause, error.__traceback__, kernels)
    if place is None or _ours(place):
        place, cause = _blamed(place, cause, lines[head:], kernels)
    return KernelError(place.file, place.line, _name(place, kernels), _plain(cause, place, parts))


def _kernels(loop: Callable[..., Any], parts: Sequence[Any]) -> Iterator[Callable[..., Any]]:
    """Yield every function that numba may have been compiling."""
    for part in parts:
        for generic in part.kernels:
            kernel = getattr(part, generic.__name__, None)
            if kernel is not None:
                yield kernel
    yield from reversed(dispatch.helpers)
    yield loop


def _cause(head: list[str]) -> str:
    """Return the innermost error of numba's chain of errors."""
    begins = [i for i, line in enumerate(head) if "Failed in nopython mode pipeline" in line]
    lines = head[begins[-1] + 1 :] if begins else head
    lines = [line for line in lines if line and not line.startswith("- Resolution failure")]
    rejected = [i for i, line in enumerate(lines) if line.endswith("raised a specific error:")]
    call = next((line[4:] for line in lines if line.startswith(">>> ")), "")
    if rejected and rejected[-1] + 1 < len(lines):
        cause = NESTED.sub("", lines[rejected[-1] + 1])
        return f"{call.partition('(')[0]}: {cause}" if "argument" in cause else cause
    if call:
        return f"{call} cannot be compiled"
    return NESTED.sub("", lines[0]) if lines else ""


def _place(
    lines: list[str],
    head: int,
    cause: str,
    traceback: TracebackType | None,
    kernels: Iterable[Callable[..., Any]],
) -> Place | None:
    """Return the location of the cause, if numba's message or traceback has it."""
    end = next((i for i in range(head, len(lines)) if "During: Pass" in lines[i]), head)
    for pattern in (DURING, RAISED_FROM, FRAME):
        for line in lines[: end + 1]:
            found = pattern.search(line)
            if found and found["file"]:
                return Place(_absolute(found["file"]), int(found["line"]))
    name = re.match(r"name '(\w+)' is not defined", cause)
    if name:
        callee = next((CALLEE.search(line) for line in lines[head:] if CALLEE.search(line)), None)
        return _where_named(name[1], callee["name"] if callee else None, kernels)
    return _in_frames(traceback)


def _absolute(file: str) -> str:
    """Return a file's full path; names of a prompt or a notebook's cell are returned unchanged."""
    return os.path.abspath(file) if os.path.exists(file) else file


def _where_named(name: str, function: str | None, kernels: Iterable[Callable[..., Any]]) -> Place | None:
    """Return the first line of a kernel that uses a name; ``function`` restricts it to that kernel."""
    for kernel in kernels:
        if function in (None, kernel.__name__) and name in kernel.__code__.co_names:
            line = 0
            for step in dis.get_instructions(kernel):
                line = (step.positions and step.positions.lineno) or line
                if step.argval == name:
                    return Place(kernel.__code__.co_filename, line)
    return None


def _in_frames(traceback: TracebackType | None) -> Place | None:
    """Return the location that numba was compiling when it raised, from the frames of its traceback."""
    found = None
    while traceback is not None:
        for name in ("inst", "self", "func_id"):
            held = traceback.tb_frame.f_locals.get(name)
            place: Any = getattr(held, "loc", None)
            code = getattr(getattr(held, "func_id", held), "code", None)
            if isinstance(getattr(place, "line", None), int):
                found = Place(place.filename, place.line)
            elif isinstance(code, CodeType):
                found = Place(code.co_filename, code.co_firstlineno)
        traceback = traceback.tb_next
    return found


def _ours(place: Place) -> bool:
    return place.file.startswith(PACKAGE)


def _blamed(
    place: Place | None, cause: str, way_up: list[str], kernels: list[Callable[..., Any]]
) -> tuple[Place, str]:
    """Return the location of a user's kernel that the package's failing line calls, and the cause."""
    called = [] if place is None else re.findall(r"(\w+)\(", _source(place))
    called += [found["name"] for line in way_up for found in [CALLEE.search(line)] if found]
    for kernel in kernels:
        code = kernel.__code__
        found = Place(code.co_filename, code.co_firstlineno)
        if kernel.__name__ in called and not _ours(found):
            returned = " none)" in cause or " generator(" in cause
            what = "it returns no slot of an arm, or not always" if returned else cause
            return found, what
    return place or Place("<unknown>", 0), cause


def _source(place: Place) -> str:
    return linecache.getline(place.file, place.line).strip()


def _name(place: Place, kernels: Iterable[Callable[..., Any]]) -> str:
    """Return the name of the kernel at a place."""
    found = ""
    for kernel in kernels:
        code = kernel.__code__
        lines = [line for _, _, line in code.co_lines() if line]
        if code.co_filename == place.file and min(lines) <= place.line <= max(lines):
            found = kernel.__qualname__.rpartition("<locals>.")[2]
            break
    return found


def _plain(cause: str, place: Place, parts: Sequence[Any]) -> str:
    """Return a cause in plain words, with the remedy if there is one."""
    source = _source(place)
    quoted = f"`{source}`: " if source and not source.startswith(("@", "def ")) else ""
    lacking = re.match(r"Unknown attribute '(\w+)' of type (.+)", cause)
    unmarked = re.match(r"Untyped global name '(\w+)'.*(?:'function'|type\(CPUDispatcher)", cause)
    if cause.startswith(f"{RNG}_integers: missing"):
        cause = "rng.integers needs both its arguments in a kernel: rng.integers(0, n)"
    elif lacking and lacking[2] == RNG:
        cause = f"kernels have no {lacking[1]} of a generator; integers, random, normal, beta, … work"
    elif lacking and lacking[1] == "_replace":
        cause = "a kernel writes into the arrays of its state, as in state.plays[lane, arm] += 1"
    elif lacking and lacking[2].startswith(("Params(", "State(")):
        kind = lacking[2].partition("(")[0]
        layouts = [_fields(part, kind) for part in parts]
        has = next((fields for fields in layouts if fields), ())
        cause = f"{kind} has no {lacking[1]}; it has {', '.join(has) or 'none'}"
        if kind == "Params":
            cause += f"; a field of the class becomes one, as in {lacking[1]}: float = …"
    elif lacking and lacking[2].startswith("Module("):
        cause = f"kernels have no {lacking[1]} of that module"
    elif unmarked:
        cause = f"mark the function {unmarked[1]} with @tacit.kernel, so that kernels can call it"
    return quoted + RAISED_FROM.sub("", cause.replace(f"{RNG}_", "rng.").replace(RNG, "Generator"))


def _fields(part: Any, kind: str) -> tuple[str, ...]:
    """Return the fields of a part's layout of this name."""
    layout = inspect.getattr_static(part, kind, None)
    return getattr(layout, "_fields", ())
