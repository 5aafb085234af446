"""Measure a decision with its feedback over HTTP, in batches, beside that of a plain placement.

    OPENBLAS_NUM_THREADS=1 python benchmarks/feedback_modes.py              # processor time, a minute
    OPENBLAS_NUM_THREADS=1 python benchmarks/feedback_modes.py --walk       # functions and calls of feedback
    python benchmarks/feedback_modes.py --walk --list plain                 # the same with their names

Each placement has a service of its own. The processor time is that of the service's process, without the
client. A walk counts the functions of the package that one request passes, and the calls of Python functions,
for one decision, for feedback on it, and for feedback on a batch. Ratios can be compared between machines,
microseconds cannot.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

BATCH = 1000
WARM_UP, ROUNDS = 8, 24
TRIES = 7
RANKERS = 3
JSON = "application/json"
UNTIL = "2100-01-01T00:00:00Z"

SERVICE = """
import sys, threading, time
from collections import Counter
from pathlib import Path
import tacit
from tacit.service.config.file import load_config
from tacit.service.app.server import serve
package, counts, counting = str(Path(tacit.__file__).parent), Counter(), False

def hook(frame, event, arg):
    global counting
    code = frame.f_code
    # What follows once the answer is out belongs to no request.
    if counting and event == "return" and code.co_qualname in ("PendingAnswer.send", "send_answer"):
        counting = not counts[code.co_filename[len(package) + 1:], code.co_qualname]
    if counting and event == "call":
        if code.co_filename.startswith(package):
            if not code.co_qualname.endswith(("comp>", "genexpr>")):
                counts[code.co_filename[len(package) + 1:], code.co_qualname] += 1
        else:
            counts["", ""] += 1

def obey():
    global counting
    for line in sys.stdin:
        if line == "time\\n":
            print(time.process_time(), flush=True)
        else:
            counting = line == "begin\\n"
            noted = [f"{count} {file} {name}" for (file, name), count in counts.items()]
            counts.clear()
            print(*noted, "end", sep="\\n", flush=True)

threading.Thread(target=obey, daemon=True).start()
if len(sys.argv) > 2:
    threading.setprofile(hook)
    sys.setprofile(hook)
serve(load_config(sys.argv[1]))
"""


class Mode(NamedTuple):
    """A placement that is measured.

    Attributes
    ----------
    table : str
        Its table in the configuration.
    decide, feedback : str
        The routes of decisions and feedback.
    setup : sequence of tuple of str, str, dict
        Requests before the first decision: method, route and body.
    """

    table: str
    decide: str = "decide"
    feedback: str = "feedback"
    setup: Sequence[tuple[str, str, dict[str, Any]]] = ()


PLAIN = 'arms = ["a", "b", "c", "d", "e"]\nattribution_window = 1.0\nseed = 5\n'
ITEMS = [{"id": f"doc-{i}", "vector": [(i * j % 7) / 7.0 for j in range(1, 9)]} for i in range(100)]
MODES = {
    "plain": Mode(PLAIN),
    "holdout": Mode(PLAIN + "holdout = {share = 0.2}\n"),
    "holdout by user": Mode(PLAIN + 'holdout = {share = 0.2, unit = "user"}\n'),
    "context": Mode(PLAIN + 'context = {device = ["ios", "web"], age = "number"}\n'),
    "lists 5 of 20": Mode(
        f'kind = "slates"\narms = {[f"a{i}" for i in range(20)]}\npositions = 5\nattribution_window = 1.0\n',
        "slate",
        "clicks",
    ),
    "pin": Mode(PLAIN, setup=[("POST", "pin", {"arms": ["b"], "until": UNTIL})]),
    "shadow": Mode(PLAIN + 'mode = "shadow"\nshadow = "thompson"\n'),
    "20 items by id": Mode(
        'kind = "features"\npolicy = "embedding-mixture(relevance_dim=8)"\nattribution_window = 1.0\n',
        setup=[("PUT", "items", {"items": ITEMS})],
    ),
    "control policy": Mode(PLAIN + 'holdout = {share = 0.2, control = {policy = "thompson"}}\n'),
    "duels": Mode(
        'kind = "duels"\nrankers = ["r0", "r1", "r2"]\nlength = 10\nattribution_window = 1.0\n',
        "duel",
        "clicks",
    ),
}


class Service:
    """A service of one placement in a process of its own, with a connection to it.

    Parameters
    ----------
    name : str
        Name of the mode.
    walks : bool
        Whether functions can be counted, which makes the service slow.
    """

    def __init__(self, name: str, *, walks: bool) -> None:
        self._name, self._mode = name, MODES[name]
        self._folder = tempfile.TemporaryDirectory()
        config = Path(self._folder.name, "tacit.toml")
        store = f'[store]\npath = "{self._folder.name}/log.db"\n[server]\nport = 0\n'
        # Windows must not close in a request whose functions are counted.
        table = self._mode.table.replace("window = 1.0", "window = 60.0") if walks else self._mode.table
        config.write_text(f"{store}[placements.home]\n{table}")
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVICE, str(config), *(["walk"] if walks else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        port = int(self._read_line().split()[3].rpartition(":")[2])
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        for method, route, body in self._mode.setup:
            self._ask(method, route, body)
        self._round = 0

    def close(self) -> None:
        """End the process and remove its files."""
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def decide(self, count: int) -> list[dict[str, Any]]:
        """Decide ``count`` times in one request; return the decisions."""
        self._round += 1
        body = {"decisions": [self._make_impression(row) for row in range(count)]}
        decisions: list[dict[str, Any]] = self._ask("POST", f"{self._mode.decide}/batch", body)["decisions"]
        return decisions

    def _make_impression(self, row: int) -> dict[str, Any]:
        """Return the body of a decision."""
        if self._name == "duels":
            rankings = {
                f"r{i}": [(row + i * position) % 31 for position in range(10)] for i in range(1, RANKERS + 1)
            }
            return {"rankings": {f"r{i}": list(dict.fromkeys(rankings[f"r{i + 1}"])) for i in range(RANKERS)}}
        impression: dict[str, Any] = {"key": f"k{row % 5}"}
        if self._name == "holdout by user":
            impression["user"] = f"u{(7 * self._round + row) % 3000}"
        elif self._name == "context":
            impression["context"] = {"device": "ios" if row % 3 else "web", "age": float(row % 60)}
        elif self._name == "20 items by id":
            impression["arms"] = [f"doc-{(row + 3 * i) % len(ITEMS)}" for i in range(20)]
        return impression

    def decide_alone(self) -> None:
        """Decide once, in a request for one decision."""
        self._ask("POST", self._mode.decide, self._make_impression(1))

    def reward(self, decisions: Sequence[dict[str, Any]]) -> None:
        """Send feedback on all decisions in one request."""
        ids = [decision["decision_id"] for decision in decisions]
        if self._mode.feedback == "clicks":
            feedback = [{"decision_id": id, "clicks": [row % 5]} for row, id in enumerate(ids)]
        else:
            feedback = [{"decision_id": id, "reward": row % 4 // 3} for row, id in enumerate(ids)]
        if len(feedback) == 1:
            self._ask("POST", self._mode.feedback, feedback[0])
        else:
            self._ask("POST", f"{self._mode.feedback}/batch", {"feedback": feedback})

    def read_time(self) -> float:
        """Return the processor time of the service's process in seconds."""
        self._write_line("time")
        return float(self._read_line())

    def count_calls(self, act: Callable[[], object]) -> Counter[tuple[str, str]]:
        """Return how often functions, by file and name, are called while ``act`` makes a request.

        Functions outside the package are counted together, under empty names.
        """
        counts: Counter[tuple[str, str]] = Counter()
        for order in ("begin", "end"):
            self._write_line(order)
            while (line := self._read_line()) != "end\n":
                count, _, place = line.rstrip("\n").partition(" ")
                file, _, function = place.partition(" ")
                counts[file, function] += int(count or 0)
            if order == "begin":
                counts.clear()
                act()
        return counts

    def _write_line(self, line: str) -> None:
        """Give the service's process an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _read_line(self) -> str:
        """Return the next line that the service's process prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _ask(self, method: str, route: str, body: dict[str, Any]) -> Any:
        """Return the service's answer to a request."""
        request = method, f"/v1/placements/home/{route}", json.dumps(body), {"content-type": JSON}
        try:
            self._connection.request(*request)
            response = self._connection.getresponse()
        except ConnectionError:
            # On a busy machine an idle connection may have been closed in between.
            self._connection.close()
            self._connection.request(*request)
            response = self._connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            raise SystemExit(f"{self._name}: {answer}")
        return answer


def measure_times(names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return the processor times of one decision and of its feedback in a batch, in microseconds.

    Placements take turns, so that other work of the machine meets all of them.
    """
    services = {name: Service(name, walks=False) for name in names}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    try:
        for _ in range(WARM_UP + ROUNDS):
            for name, service in services.items():
                start = service.read_time()
                decisions = service.decide(BATCH)
                decided = service.read_time()
                service.reward(decisions)
                times[name].append((decided - start, service.read_time() - decided))
    finally:
        for service in services.values():
            service.close()
    return {
        name: (
            statistics.median(deciding for deciding, _ in pairs[WARM_UP:]) / BATCH * 1e6,
            statistics.median(rewarding for _, rewarding in pairs[WARM_UP:]) / BATCH * 1e6,
        )
        for name, pairs in times.items()
    }


def print_times(names: Sequence[str]) -> None:
    """Print the times of placements, and the ratios of their sums to that of the first one."""
    print(f"{'placement':<18}{'µs a decision':>14}{'µs a feedback':>15}{'both':>8}{'× plain':>9}")
    times = measure_times(names)
    plain = sum(times[names[0]])
    for name, (deciding, rewarding) in times.items():
        both = deciding + rewarding
        print(f"{name:<18}{deciding:>14.2f}{rewarding:>15.2f}{both:>8.1f}{both / plain:>9.2f}")


def print_walks(names: Sequence[str], *, lists: bool) -> None:
    """Print how many functions feedback passes, and how many Python calls it takes."""
    heads = f"{'one decision':>14}{'one feedback':>14}{f'{BATCH} feedbacks':>16}"
    print(f"{'functions, calls':<18}{heads}{'calls for each':>16}")
    for name in names:
        service = Service(name, walks=True)
        try:
            service.reward(service.decide(BATCH))
            service.decide_alone()
            groups = [[service.count_calls(service.decide_alone) for _ in range(TRIES)]]
            for size, tries in ((1, TRIES), (BATCH, 3)):
                acts = (partial(service.reward, service.decide(size)) for _ in range(tries))
                groups.append(list(map(service.count_calls, acts)))
        finally:
            service.close()
        # The others met a sweep, an alarm, or a commit in the other thread.
        walks = [min(group, key=lambda counts: (len(counts), counts.total())) for group in groups]
        pairs = (f"{len(counts) - 1:>7}, {counts.total():>5}" for counts in walks)
        print(f"{name:<18}{'  '.join(pairs)}{walks[2].total() / BATCH:>16.1f}", flush=True)
        for place in sorted(set().union(*walks)) if lists else ():
            print("".join(f"{counts[place]:>6}" for counts in walks), f" {place[0]:<42} {place[1]}")


def main() -> None:
    """Measure the placements named on the command line, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(MODES), help=", ".join(MODES))
    parser.add_argument("--walk", action="store_true", help="count functions and calls")
    parser.add_argument("--list", action="store_true", help="name the functions")
    options = parser.parse_args()
    if options.walk:
        print_walks(options.names, lists=options.list)
    else:
        print_times(options.names)


if __name__ == "__main__":
    main()
