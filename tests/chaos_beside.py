"""What runs next to a service that suffers faults: a feed of a file of events, and a process with a spool."""

import contextlib
import json
import signal
import subprocess
import threading
from collections import Counter

from forked import Forked, ran
from harness import PATIENCE, eventually

from tacit.client import Local, Unavailable

MAP = 'placement = { value = "fed" }\ndecision_id = "decision"\nreward = "clicked"\nid = "id"\n'
CALLER = """
import sys, time
from tacit.client import Local
from tacit.errors import TacitError
local = Local(sys.argv[1], "near", sys.argv[2], every=0.1)
while True:
    try:
        shown = local.decide("k")
    except TacitError:  # Nothing was learned yet, and the service is away.
        time.sleep(0.05)
        continue
    local.feedback(shown.decision_id, 1.0)
    print(shown.decision_id, shown.arm, flush=True)
    time.sleep(0.01)
"""


class Killable:
    """A process that goes on where the one before was killed."""

    def kill(self):
        """End the process, and start another one."""
        self.end()
        self._start()

    def end(self):
        """End the process."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE)


class FileFeed(Killable):
    """A file of events about decisions, which a process of ``tacit feed`` follows."""

    def __init__(self, url, folder):
        self.sent = {}
        self._events, self._lock = folder / "events.jsonl", threading.Lock()
        self._rejected = folder / "rejected.jsonl"
        self._events.touch()
        (folder / "feed.toml").write_text(MAP)
        self._command = [
            "-m", "tacit", "feed", self._events, "--url", url, "--map", folder / "feed.toml",
            "--name", "events", "--rejected", self._rejected, "--wait", PATIENCE,
        ]  # fmt: skip
        self._log = (folder / "feed.log").open("w")
        self._start()

    def _start(self):
        self._process = Forked([*self._command, "--follow"], stdout=self._log, stderr=self._log)

    def add(self, decision, clicked, times):
        """Append an event about a decision, so many times."""
        event = {"decision": decision, "clicked": clicked, "id": f"event {decision}"}
        with self._lock, self._events.open("a") as file:
            file.write(times * (json.dumps(event) + "\n"))
            self.sent[decision] = clicked

    def finish(self):
        """Feed what is left, while the service answers; return what is wrong."""
        self.end()
        ended = ran(self._command)
        self._log.close()
        problems = [] if ended.returncode == 0 else [f"the feed ended with {ended.stderr}"]
        if self._rejected.exists():
            problems += [f"event rejected: {line}" for line in self._rejected.read_text().splitlines()]
        return problems


class SpooledCaller(Killable):
    """A process that decides next to itself, and delivers from a spool."""

    def __init__(self, url, folder):
        self.decided = {}
        self._url, self._folder = url, folder / "spool"
        self._log = (folder / "caller.log").open("w")
        self._start()

    def _start(self):
        command = "-c", CALLER, self._url, self._folder
        self._process = Forked(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._reader.start()

    def _read(self, lines):
        with lines:
            for line in lines:
                # The last one may be torn by the kill; nobody was told of it.
                if line.endswith("\n"):
                    id, arm = line.split()
                    self.decided[id] = arm

    def end(self):
        super().end()
        self._reader.join(PATIENCE)

    def finish(self):
        """Deliver what is left, while the service answers; return what is wrong."""
        self.end()
        self._log.close()
        with Local(self._url, "near", self._folder, timeout=PATIENCE) as local:
            eventually(lambda: has_delivered(local))
        refused = self._folder / "refused.jsonl"
        return [f"refused: {line}" for line in refused.read_text().splitlines()] if refused.exists() else []


def has_delivered(local):
    """True if all that waits was delivered; a service whose disk was full a moment ago may need another."""
    with contextlib.suppress(Unavailable):
        local.flush()
        return True
    return False


def missing(feed, caller, shown, rewarded):
    """Return which events and spooled decisions the log does not have as they were.

    By placement and id, ``shown`` has the key, arm and propensity of logged decisions, ``rewarded`` rewards.
    """
    lost = Counter()
    for id, arm in caller.decided.items():
        lost["spooled decision"] += shown.get(("near", id), (None, None))[1] != arm
        lost["spooled feedback"] += rewarded.get(("near", id)) != 1.0
    for id, clicked in feed.sent.items():
        lost["event"] += rewarded.get(("fed", id)) != clicked
    return [f"{what} lost: {count}" for what, count in lost.items() if count]
