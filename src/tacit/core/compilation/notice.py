"""Say on standard error that something is being compiled, and how long it took.

Only what takes longer than a second is reported, by one line for each loop, which begins while it is
compiled and ends with the seconds. ``TACIT_QUIET=1`` in the environment silences it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

PATIENCE = 1.0
"""Seconds for which nothing is said."""

Say = Callable[[str], None]

_compiling: ContextVar[Notice | None] = ContextVar("compiling", default=None)
_line = threading.Lock()
"""Held by the thread that has begun a line."""
_unkept: dict[str, bool] = {}
"""What there is to say of code that cannot be kept, and whether it was said."""


def on_stderr(text: str) -> None:
    """Write a piece of a line; where nobody can read it, say nothing."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass


say: Say = on_stderr
"""Where notices go; a service logs its own lines."""


class Notice:
    """The notice of one compilation: ``tacit: compiling WHAT … 3.2 s``."""

    def __init__(self, what: str) -> None:
        self.what, self.began, self._has_line = what, 0.0, False
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Tell of it from a second on."""
        if self._timer is None:
            self.began = time.monotonic()
            self._timer = threading.Timer(PATIENCE, self._begin_line)
            self._timer.daemon = True
            self._timer.start()

    def _begin_line(self) -> None:
        if not silenced() and _line.acquire(blocking=False):
            self._has_line = True
            say(f"tacit: compiling {self.what}, once; it is kept …")

    def end(self) -> None:
        """Tell how long it took."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer.join()
        seconds = time.monotonic() - self.began
        if self._has_line:
            say(f" {seconds:.1f} s\n")
            _line.release()
        elif seconds > PATIENCE and not silenced():
            # Another thread's line was open all the time.
            say(f"tacit: compiled {self.what} in {seconds:.1f} s\n")


def silenced() -> bool:
    """Whether nothing shall be said."""
    return os.environ.get("TACIT_QUIET", "") not in ("", "0")


@contextmanager
def telling(what: str) -> Iterator[None]:
    """Tell of what is compiled within, if anything is."""
    notice = Notice(what)
    token = _compiling.set(notice)
    try:
        yield
    finally:
        _compiling.reset(token)
        notice.end()
        _tell_what_is_not_kept()


def compiling() -> None:
    """Note that what is asked for was not found in the cache, and is compiled now."""
    notice = _compiling.get()
    if notice is not None:
        notice.begin()


def not_kept(folder: Path, error: OSError) -> None:
    """Note that what is compiled cannot be kept: it is said once, when this line has ended."""
    _unkept.setdefault(
        f"tacit: what is compiled cannot be kept in {folder} ({error.strerror}), so every "
        "process compiles it anew; set TACIT_CACHE_DIR to a folder that can be written to\n",
        False,
    )


def _tell_what_is_not_kept() -> None:
    for text, was_said in list(_unkept.items()):
        if not was_said and not silenced():
            _unkept[text] = True
            with _line:
                say(text)
