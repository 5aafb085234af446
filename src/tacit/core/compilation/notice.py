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
_line_lock = threading.Lock()
"""Held by the thread with an unfinished line."""
_cache_warnings: dict[str, bool] = {}
"""Warnings that code cannot be cached, and whether each was written."""


def on_stderr(text: str) -> None:
    """Write text to standard error and flush it; do nothing if that is closed."""
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
        """Create a notice of the compilation of ``what`` (a loop's name); no timer runs yet."""
        self.what, self.began, self._has_line = what, 0.0, False
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Start the timer after which the beginning of the line is written; do nothing if it runs already."""
        if self._timer is None:
            self.began = time.monotonic()
            self._timer = threading.Timer(PATIENCE, self._begin_line)
            self._timer.daemon = True
            self._timer.start()

    def _begin_line(self) -> None:
        """Write the beginning of the line, unless notices are suppressed or another thread has an unfinished
        line.
        """
        if not is_quiet() and _line_lock.acquire(blocking=False):
            self._has_line = True
            say(f"tacit: compiling {self.what}, once; it is kept …")

    def end(self) -> None:
        """Stop the timer, and write the time that the compilation took if it took longer than a second."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer.join()
        seconds = time.monotonic() - self.began
        if self._has_line:
            say(f" {seconds:.1f} s\n")
            _line_lock.release()
        elif seconds > PATIENCE and not is_quiet():
            # Another thread's line was unfinished all the time.
            say(f"tacit: compiled {self.what} in {seconds:.1f} s\n")


def is_quiet() -> bool:
    """True if the environment variable ``TACIT_QUIET`` suppresses notices."""
    return os.environ.get("TACIT_QUIET", "") not in ("", "0")


@contextmanager
def announce(what: str) -> Iterator[None]:
    """Write a notice if the ``with`` block compiles a loop for more than a second; ``what`` names the loop.

    Warnings that code cannot be cached are written after the block.
    """
    notice = Notice(what)
    token = _compiling.set(notice)
    try:
        yield
    finally:
        _compiling.reset(token)
        notice.end()
        _write_cache_warnings()


def start_notice() -> None:
    """Start the timer of the present notice, if there is one, as a loop is being compiled."""
    notice = _compiling.get()
    if notice is not None:
        notice.begin()


def warn_not_cached(folder: Path, error: OSError) -> None:
    """Record a warning that code cannot be cached in a folder, which is written once, after the present
    notice.
    """
    _cache_warnings.setdefault(
        f"tacit: what is compiled cannot be kept in {folder} ({error.strerror}), so every "
        "process compiles it anew; set TACIT_CACHE_DIR to a folder that can be written to\n",
        False,
    )


def _write_cache_warnings() -> None:
    """Write the recorded warnings that code cannot be cached, each once, unless notices are suppressed."""
    for text, was_said in list(_cache_warnings.items()):
        if not was_said and not is_quiet():
            _cache_warnings[text] = True
            with _line_lock:
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


def explain_error(error: Exception, loop: Callable[..., Any], parts: Sequence[type]) -> KernelError:
    """Return an error with the place and kernel, and a plain explanation, of numba's compilation error.

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
    place = _find_place(lines, head, cause, error.__traceback__, kernels)
    if place is None or _is_in_package(place):
        place, cause = _blame_kernel(place, cause, lines[head:], kernels)
    return KernelError(place.file, place.line, _name(place, kernels), _explain_cause(cause, place, parts))


def _kernels(loop: Callable[..., Any], parts: Sequence[Any]) -> Iterator[Callable[..., Any]]:
    """Yield every function that numba may have been compiling: the parts' kernels, the helpers, the loop."""
    for part in parts:
        for generic in part.kernels:
            kernel = dispatch.find_kernel(part, generic)
            if kernel is not None:
                yield kernel
    yield from reversed(dispatch.helpers)
    yield loop


def _cause(head: list[str]) -> str:
    """Return the innermost error of numba's chain of errors, from the lines of its message, or ""."""
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


def _find_place(
    lines: list[str],
    head: int,
    cause: str,
    traceback: TracebackType | None,
    kernels: Iterable[Callable[..., Any]],
) -> Place | None:
    """Return the cause's place, by numba's message, an undefined name's first use, or the traceback; or None.

    ``head`` is the number of lines before the first "During:".
    """
    end = next((i for i in range(head, len(lines)) if "During: Pass" in lines[i]), head)
    for pattern in (DURING, RAISED_FROM, FRAME):
        for line in lines[: end + 1]:
            match = pattern.search(line)
            if match and match["file"]:
                return Place(_absolute(match["file"]), int(match["line"]))
    name = re.match(r"name '(\w+)' is not defined", cause)
    if name:
        callee = next((CALLEE.search(line) for line in lines[head:] if CALLEE.search(line)), None)
        return _find_name_use(name[1], callee["name"] if callee else None, kernels)
    return _find_in_frames(traceback)


def _absolute(file: str) -> str:
    """Return a file's full path; names of a prompt or a notebook's cell are returned unchanged."""
    return os.path.abspath(file) if os.path.exists(file) else file


def _find_name_use(name: str, function: str | None, kernels: Iterable[Callable[..., Any]]) -> Place | None:
    """Return the place where a kernel first uses a name; None if none does.

    ``function``, unless None, restricts the search to the kernel of that name.
    """
    for kernel in kernels:
        if function in (None, kernel.__name__) and name in kernel.__code__.co_names:
            line = 0
            for step in dis.get_instructions(kernel):
                line = (step.positions and step.positions.lineno) or line
                if step.argval == name:
                    return Place(kernel.__code__.co_filename, line)
    return None


def _find_in_frames(traceback: TracebackType | None) -> Place | None:
    """Return the place that numba was compiling when it raised, from the frames of its traceback; None if
    unknown.
    """
    location = None
    while traceback is not None:
        # Locals of numba's passes: an instruction with its place, or a function; the innermost frame wins.
        for name in ("inst", "self", "func_id"):
            value = traceback.tb_frame.f_locals.get(name)
            place: Any = getattr(value, "loc", None)
            code = getattr(getattr(value, "func_id", value), "code", None)
            if isinstance(getattr(place, "line", None), int):
                location = Place(place.filename, place.line)
            elif isinstance(code, CodeType):
                location = Place(code.co_filename, code.co_firstlineno)
        traceback = traceback.tb_next
    return location


def _is_in_package(place: Place) -> bool:
    """True if a place is in a file of this package."""
    return place.file.startswith(PACKAGE)


def _blame_kernel(
    place: Place | None, cause: str, way_up: list[str], kernels: list[Callable[..., Any]]
) -> tuple[Place, str]:
    """Return the first line of the user's kernel that an error inside the package comes from, and the cause.

    It is a kernel outside of the package that the failing line, or a line of ``way_up``, calls. If numba's
    message shows that a kernel does not return an arm, the cause says so in words. Without such a kernel,
    place and cause stay.
    """
    called_names = [] if place is None else re.findall(r"(\w+)\(", _source(place))
    called_names += [location["name"] for line in way_up for location in [CALLEE.search(line)] if location]
    for kernel in kernels:
        code = kernel.__code__
        location = Place(code.co_filename, code.co_firstlineno)
        if kernel.__name__ in called_names and not _is_in_package(location):
            returned = " none)" in cause or " generator(" in cause
            what = "it returns no slot of an arm, or not always" if returned else cause
            return location, what
    return place or Place("<unknown>", 0), cause


def _source(place: Place) -> str:
    """Return the line of code at a place, without indentation; empty if it cannot be read."""
    return linecache.getline(place.file, place.line).strip()


def _name(place: Place, kernels: Iterable[Callable[..., Any]]) -> str:
    """Return the name of the kernel whose code contains a place; "" if there is none."""
    kernel_name = ""
    for kernel in kernels:
        code = kernel.__code__
        lines = [line for _, _, line in code.co_lines() if line]
        if code.co_filename == place.file and min(lines) <= place.line <= max(lines):
            kernel_name = kernel.__qualname__.rpartition("<locals>.")[2]
            break
    return kernel_name


def _explain_cause(cause: str, place: Place, parts: Sequence[Any]) -> str:
    """Return the source line, numba's cause in plain words, and a remedy if one is known, all in one line."""
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
    """Return the fields of a part's named tuple ``kind`` (``Params`` or ``State``); () if it has none."""
    return getattr(inspect.getattr_static(part, kind, None), "_fields", ())
