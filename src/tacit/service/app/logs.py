"""What the service says while it runs: text for people, or JSON for machines; a line an event."""

from __future__ import annotations

import json
import logging
import sys
import threading
import warnings
from datetime import UTC, datetime
from typing import Any

from tacit.core.compilation import notice
from tacit.errors import AssumptionWarning
from tacit.service.http.messages import request_id

TEXT = "%(levelname)s %(name)s: %(message)s"

logger = logging.getLogger(__name__)


class TextLines(logging.Formatter):
    """One line of text for each record, a traceback with it; what cannot be printed is escaped."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        text = super().format(record)
        if text.isprintable():
            return text
        return "".join(
            each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
        )


class JsonLines(logging.Formatter):
    """One JSON object for each record, with the request that it belongs to."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id.get():
            line["request_id"] = request_id.get()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Nothing but ASCII, whatever the stream's encoding; JSON leaves one control character.
        return json.dumps(line).replace("\x7f", "\\u007f")


class Pieces:
    """Logs what is said in pieces, a line at a time."""

    def __init__(self) -> None:
        self._line = ""

    def __call__(self, text: str) -> None:
        self._line += text
        if self._line.endswith("\n"):
            logger.info("%s", self._line.strip().removeprefix("tacit: "))
            self._line = ""


def set_up(form: str) -> None:
    """Send what is logged to the standard error stream, as ``text`` or ``json``.

    All of it: what tacit says, what other packages say, and warnings.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines(TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    for name in list(root.manager.loggerDict):
        other = logging.getLogger(name)
        if other.handlers:
            # Ray's, for one, would print in a form of its own.
            other.handlers.clear()
            other.propagate = True
    logging.getLogger("tacit").setLevel(logging.INFO)
    logging.captureWarnings(True)
    warnings.formatwarning = _worded
    notice.say = Pieces()


def _worded(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return a warning as it is logged: of ours its words, of others also where they come from."""
    ours = issubclass(category, AssumptionWarning)
    return str(message) if ours else f"{filename}:{lineno}: {category.__name__}: {message}"


def log_the_uncaught() -> None:
    """Log every exception that nobody catches, in place of printing it: for whole processes."""

    def of_process(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        logger.critical("the process ends", exc_info=(kind, error, trace))

    def of_thread(hook: threading.ExceptHookArgs) -> None:
        logger.error("a thread ends", exc_info=hook.exc_value)

    def ignored(hook: sys.UnraisableHookArgs) -> None:
        logger.error("%s: %r", hook.err_msg or "an exception", hook.object, exc_info=hook.exc_value)

    sys.excepthook, threading.excepthook, sys.unraisablehook = of_process, of_thread, ignored
