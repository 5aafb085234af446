"""What the service says while it runs: text for people, or JSON for machines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from tacit.service.guard import request_id


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
        return json.dumps(line, ensure_ascii=False)


def set_up(form: str) -> None:
    """Send what tacit says to the standard error stream, as ``text`` or ``json``."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    ours = logging.getLogger("tacit")
    ours.handlers[:] = [handler]
    ours.setLevel(logging.INFO)
    ours.propagate = False
