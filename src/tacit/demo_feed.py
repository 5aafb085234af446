"""The demonstration with events: clicks go to a file, and ``tacit feed`` sends them to the service."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import TacitError

MAP = """\
placement = {{ value = "{placement}" }}
decision_id = "decision"
id = "id"
time = "time"
event = "event"

[reward]
click = 1
leave = 0
"""

Write = Callable[[str, float, float], None]
"""Takes a decision's id, its reward and the time."""


@contextmanager
def feeding(folder: Path, placement: str, address: str) -> Iterator[Write]:
    """Yield what writes an event to a file that is followed; in the end the file is fed once more.

    What was sent while it was followed counts once all the same.

    Raises
    ------
    TacitError
        If events could not be fed.
    """
    events, table = folder / "events.jsonl", folder / "feed.toml"
    events.write_bytes(b"")
    table.write_text(MAP.format(placement=placement), encoding="utf-8")
    command = [sys.executable, "-m", "tacit", "feed", str(events), "--map", str(table), "--url", address]
    with events.open("ab", buffering=0) as file, (folder / "feed.log").open("w") as log:
        follower = subprocess.Popen([*command, "--follow"], stdout=log, stderr=subprocess.STDOUT)  # noqa: S603

        def write(decision: str, reward: float, time: float) -> None:
            event = {"id": f"e-{decision}", "event": "click" if reward else "leave"}
            file.write(json.dumps(event | {"decision": decision, "time": time}).encode() + b"\n")

        try:
            yield write
        finally:
            # An interrupt would be lost on one that still imports.
            follower.terminate()
            follower.wait()
    last = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    if last.returncode:
        raise TacitError(f"{events}: could not be fed: {last.stderr}{last.stdout}")
