"""Logging setup: text for people or JSON for machines, one line per record."""

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
    """Formats each record as one line of text with its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text with its traceback; unprintable characters and line breaks are escaped."""
        text = super().format(record)
        if text.isprintable():
            return text
        return "".join(
            character if character.isprintable() else character.encode("unicode_escape").decode()
            for character in text
        )


class JsonLines(logging.Formatter):
    """Formats each record as one JSON object, with the id of the request in which it was logged."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line of JSON: time, level, logger, message, request id and traceback."""
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
        # Only ASCII, for any encoding of the stream; JSON does not escape one control character.
        return json.dumps(line).replace("\x7f", "\\u007f")


class Pieces:
    """Logs text that is written in pieces, line by line."""

    def __init__(self) -> None:
        self._line = ""

    def __call__(self, text: str) -> None:
        """Append text to the current line; log the line once it ends with a line break."""
        self._line += text
        if self._line.endswith("\n"):
            logger.info("%s", self._line.strip().removeprefix("tacit: "))
            self._line = ""


def set_up(form: str) -> None:
    """Send all log records and warnings to the standard error stream, as ``text`` or ``json``.

    Replaces the handlers of the root logger, and removes other packages' handlers. Sets tacit's level to
    INFO, and logs notices of the compiler.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines(TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    for name in list(root.manager.loggerDict):
        package_logger = logging.getLogger(name)
        if package_logger.handlers:
            # Other packages' handlers, such as Ray's, have another format.
            package_logger.handlers.clear()
            package_logger.propagate = True
    logging.getLogger("tacit").setLevel(logging.INFO)
    logging.captureWarnings(True)
    warnings.formatwarning = _format_warning
    notice.say = Pieces()


def _format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return the text of a warning; before it file, line and category if it is another package's."""
    ours = issubclass(category, AssumptionWarning)
    return str(message) if ours else f"{filename}:{lineno}: {category.__name__}: {message}"


def log_the_uncaught() -> None:
    """Replace the hooks of the process, so that uncaught exceptions are logged, not printed.

    Also exceptions in threads, and exceptions that Python ignores.
    """

    def log_process_error(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        """Log an exception that ends the process, with its traceback."""
        logger.critical("the process ends", exc_info=(kind, error, trace))

    def log_thread_error(hook: threading.ExceptHookArgs) -> None:
        """Log an exception that ends a thread, with its traceback."""
        logger.error("a thread ends", exc_info=hook.exc_value)

    def log_ignored_error(hook: sys.UnraisableHookArgs) -> None:
        """Log an exception that Python ignores, with the object in which it was raised and its traceback."""
        logger.error("%s: %r", hook.err_msg or "an exception", hook.object, exc_info=hook.exc_value)

    sys.excepthook, threading.excepthook = log_process_error, log_thread_error
    sys.unraisablehook = log_ignored_error
