"""End-to-end demonstration: run the service, send simulated users, and report what it learned.

1. ``Scenario`` and ``Traffic``: the setting, and its impressions, drawn in advance.
2. ``play`` and the report.
3. The service, in a separate process, and the senders of requests.
4. Clicks as events in a file, sent by ``tacit feed``.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import click
import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import arrive, expected
from tacit.core.parallel import progress
from tacit.core.text import aligned
from tacit.environments import Environment, SearchInterest, ShiftingArms
from tacit.errors import InvalidValue, MissingExtra, TacitError
from tacit.learning.learner import Learner
from tacit.policies import Policy, policy_from_spec
from tacit.policies.auto import auto
from tacit.policies.features.gaussian import logistic
from tacit.simulation import ENVIRONMENT_STREAM, POLICY_STREAM, run_stream

PLACEMENT = "search"
SEARCHERS = 4
TOGETHER = 10
"""Searchers per request."""
LASTING, FASTEST = 10.0, 200.0
"""Duration of the traffic in seconds; with few searchers it is shorter, at this number per second."""
PATIENCE = 600.0
HOLDOUT = 0.1
"""Share of searchers who see a random arm, to measure the lift."""

Row = dict[str, Any]
Table = Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class Scenario:
    """Setting of a demonstration: environment, keys, arms and policy.

    Without an environment, users of a home page with the context ``SCHEMA`` are simulated.
    """

    title: str
    environment: Environment | None
    keys: tuple[str, ...]
    arms: tuple[str, ...]
    policy: Policy
    impressions: int
    seed: int
    holdout: float | None = None
    positions: int = 0
    """Positions of a list; 0 for single arms."""
    rankers: bool = False
    """Whether the arms are rankers that are compared in duels."""

    @property
    def label(self) -> str:
        """Name of the policy, without its context schema."""
        return self.policy.label if self.environment or self.positions else type(self.policy).__name__

    @property
    def shown_by(self) -> str:
        """Name of the policy, with the share of the control."""
        return f"tacit: {self.label}" + (f", {self.holdout:.0%} at random" if self.holdout else "")


def scenario(
    interest: Path | None,
    policy: str | None,
    impressions: int | None,
    seed: int,
    holdout: float | None = None,
    *,
    context: bool = False,
) -> Scenario:
    """Return a scenario: of real search interest if a table is given, else simulated.

    Raises
    ------
    InvalidValue
        If a table is given together with ``context``, or the policy does not fit.
    """
    environment: Environment | None
    arms: tuple[str, ...]
    keys: tuple[str, ...]
    if context and interest is not None:
        raise InvalidValue("interest", str(interest), "leave it out: users who differ are simulated")
    if context:
        arms, keys, count, environment = tuple(TASTES), ("home",), 8_000, None
        title = f"a home page, {len(arms)} things to show, users who differ"
        made = auto(arms=arms, context=SCHEMA) if policy is None else policy_from_spec(policy, arms)
    elif interest is not None:
        environment = real = SearchInterest(interest)
        days = len(real.dates) - 1
        arms, keys, count = real.topics, (interest.stem,), 100 * days
        title = f"one query over {days} days of real search interest, {real.dates[0]} on"
        made = policy_from_spec(policy or "glr-kl-ucb(local=True, alpha=0.002)", arms)
    else:
        arms, count = ("reference", "news", "shop", "video", "film"), 15_000
        keys = ("independence day", "tomato", "jaguar")
        title = f"{len(keys)} queries, {len(arms)} kinds of result, intent that shifts"
        environment = ShiftingArms(arms=len(arms), keys=len(keys), events=(3, 4), traffic=0.5, high=0.5)
        made = policy_from_spec(policy or "auto", arms)
    return Scenario(title, environment, keys, arms, made, impressions or count, seed, holdout)


@dataclass(frozen=True)
class Traffic:
    """All impressions of a run, drawn in advance so that all policies get the same ones.

    Attributes
    ----------
    lanes : array of int64, shape (impressions,)
    uniforms : array of float64, shape (impressions,)
        Uniform draw that decides each click.
    truth : array of float64, shape (impressions, arms)
        Click probabilities of all arms at each impression.
    contexts : list of dict
        Context of each user; empty without contexts.
    """

    lanes: Ints
    uniforms: Floats
    truth: Floats
    contexts: list[dict[str, Any]]

    @classmethod
    def drawn(cls, scene: Scenario) -> Traffic:
        """Draw the impressions of a scenario from its seed."""
        rng = run_stream(scene.seed, 0, ENVIRONMENT_STREAM)
        if scene.environment is None:
            contexts, truth = users(rng, scene.impressions)
            return cls(np.zeros(len(truth), np.int64), rng.random(len(truth)), truth, contexts)
        environment, params = scene.environment, scene.environment.params
        world = environment.world(rng, scene.impressions)
        slots = range(environment.arm_count)
        lanes = np.empty(scene.impressions, np.int64)
        uniforms = np.empty(scene.impressions)
        truth = np.empty((scene.impressions, environment.arm_count))
        for i in range(scene.impressions):
            lanes[i] = arrive(params, world, i, rng)
            uniforms[i] = world.uniform[0]
            truth[i] = [expected(params, world, lanes[i], slot) for slot in slots]
        return cls(lanes, uniforms, truth, [])

    def outcome(self, shown: Ints) -> DemoTotals:
        """Return clicks and regret per impression if the given arm indices are shown."""
        got = self.truth[np.arange(len(shown)), shown]
        return DemoTotals(self.uniforms < got, self.truth.max(axis=1) - got)

    def best_fixed(self) -> Ints:
        """Return, per impression, the index of the arm that is best for its key in hindsight."""
        best = np.array(
            [self.truth[self.lanes == lane].sum(axis=0).argmax() for lane in range(self.lanes.max() + 1)]
        )
        return np.asarray(best[self.lanes])


@dataclass(frozen=True)
class DemoTotals:
    """Clicks and regret per impression."""

    clicks: Any
    regret: Floats

    @property
    def clicks_per_1000(self) -> float:
        """Clicks per thousand impressions."""
        return float(1000 * self.clicks.mean())


# Users of a home page, and their preferences

COUNTRIES = ("de", "fr", "it", "us")
SCHEMA = {"device": ["ios", "android", "web"], "age": "number", "country": "category", "new": "boolean"}
"""Context of each user."""
TASTES: dict[str, dict[str, float]] = {
    "film": {"all": -1.2, "web": 0.6},
    "song": {"all": -1.6, "age": 0.3, "ios": 1.2},
    "game": {"all": -1.5, "age": -1.3, "android": 0.5},
    "news": {"all": -1.5, "age": 1.2, "de": 0.8},
    "shop": {"all": -2.0, "new": 1.6},
}
"""Log-odds of a click on each arm, with effects of the context; age in standard deviations."""


def users(rng: Generator, count: int) -> tuple[list[dict[str, Any]], Floats]:
    """Simulate users; return their contexts, and click probabilities of shape (users, arms)."""
    ages, new = rng.uniform(16, 80, count).round(), rng.random(count) < 0.25
    devices, countries = rng.choice(SCHEMA["device"], count), rng.choice(COUNTRIES, count)
    known = {"all": np.ones(count), "age": (ages - 48.0) / 18.5, "new": new.astype(float)}
    known |= {name: (devices == name).astype(float) for name in SCHEMA["device"]}
    known |= {name: (countries == name).astype(float) for name in COUNTRIES}
    logits = np.zeros((count, len(TASTES)))
    for slot, taste in enumerate(TASTES.values()):
        for name, adds in taste.items():
            logits[:, slot] += known[name] * adds
    columns = devices.tolist(), ages.tolist(), countries.tolist(), new.tolist()
    contexts = [dict(zip(SCHEMA, row, strict=True)) for row in zip(*columns, strict=True)]
    return contexts, logistic(logits)


def play(scene: Scenario, folder: Path, port: int, *, keep: bool, as_json: bool, feed: bool = False) -> None:
    """Run the demonstration and print its results; with ``feed``, clicks go through a file of events."""
    traffic = Traffic.drawn(scene)
    with running_service(scene, folder, port) as address:
        begin(scene, address, as_json)
        with feeding(folder, PLACEMENT, address) if feed else nullcontext() as write:
            shown, seconds = send(scene, traffic, address, write)
        outcomes = compared(scene, traffic, shown)
        figure = draw(scene, outcomes, folder / "demo.png")
        rows: list[Row] = [
            {"shown by": name, "clicks_per_1000": each.clicks_per_1000, "regret": float(each.regret.sum())}
            for name, each in outcomes.items()
        ]
        table = [("shown by", "clicks/1000", "regret (clicks)")]
        table += [(r["shown by"], f"{r['clicks_per_1000']:.1f}", f"{r['regret']:,.0f}") for r in rows]
        fed = f"{folder / 'events.jsonl'}, as it grew and then again: each event counts once"
        words, tables = {"fed": fed} if feed else {}, list[Table]([table])
        if traffic.contexts:
            words["for whom"] = for_whom(address)
        else:
            tables.append(shown_last(scene, traffic, shown))
        words["lift"] = said(address)
        found = Played("impressions", len(shown), seconds, rows, tables, figure, words)
        report(found, address, folder, keep=keep, as_json=as_json)


def begin(scene: Scenario, address: str, as_json: bool) -> None:
    """Print the scenario, the policy and the page's address, unless the output is JSON."""
    if not as_json:
        click.echo(f"tacit demo: {scene.title}")
        click.echo(f"policy {scene.label}; page {address} while it runs")


def shown_last(scene: Scenario, traffic: Traffic, shown: Ints) -> list[tuple[str, ...]]:
    """Return table rows with the arm shown most per key, in the last fifth of the impressions."""
    last = np.arange(len(shown)) >= 0.8 * len(shown)
    clicked = traffic.outcome(shown).clicks
    rows: list[tuple[str, ...]] = [("in the last fifth", "is shown most", "how often", "clicks/1000")]
    for lane, key in enumerate(scene.keys):
        each = last & (traffic.lanes == lane)
        if not each.any():
            continue
        counts = np.bincount(shown[each], minlength=len(scene.arms))
        arm, share = scene.arms[counts.argmax()], counts.max() / counts.sum()
        rows.append((key, arm, f"{share:.0%}", f"{1000 * clicked[each].mean():.0f}"))
    return rows


def compared(scene: Scenario, traffic: Traffic, shown: Ints) -> dict[str, DemoTotals]:
    """Return the totals of the policy and of three baselines."""
    rng = run_stream(scene.seed, 0, POLICY_STREAM)
    uniform = rng.integers(0, len(scene.arms), len(shown))
    fixed = "the same page for all, the best" if traffic.contexts else "best fixed arm"
    return {
        scene.shown_by: traffic.outcome(shown),
        f"{fixed} in hindsight": traffic.outcome(traffic.best_fixed()),
        "uniform choice": traffic.outcome(uniform),
        "clairvoyant optimum": traffic.outcome(traffic.truth.argmax(axis=1)),
    }


@dataclass(frozen=True)
class Played:
    """Results of a demonstration.

    Attributes
    ----------
    of : str
        Unit of ``count``, the number of requests that the service answered in ``seconds``.
    count : int
    seconds : float
    rows : list of dict
    tables : sequence of tables
        Tables for text output.
    figure : Path or None
    words : dict of str to str
        Further notes for text output, by title.
    """

    of: str
    count: int
    seconds: float
    rows: list[Row]
    tables: Sequence[Table]
    figure: Path | None
    words: dict[str, str]


def report(found: Played, address: str, folder: Path, query: str = "", *, keep: bool, as_json: bool) -> None:
    """Print the results, save the page as a file, and with ``keep`` wait so that the service stays up."""
    page = folder / "page.html"
    page.write_text(still(address, query), encoding="utf-8")
    here = f"{address}placements/{PLACEMENT}{query}"
    if as_json:
        of = {found.of: found.count, "seconds": found.seconds, "rows": found.rows}
        files = {"figure": found.figure and str(found.figure), "page": str(page), "address": here}
        click.echo(json.dumps(of | found.words | files, indent=1))
    else:
        for table in found.tables:
            click.echo(f"\n{aligned(table)}")
        for name, words in found.words.items():
            click.echo(f"\n{name}: {words}")
        click.echo(
            f"\n{found.count:,} {found.of} through the service in {found.seconds:.1f} s, "
            "each a decision, and its click if there was one, in its log"
        )
        click.echo(f"plot {found.figure or 'none: install it with: pip install tacit-learn[plots]'}")
        click.echo(f"page {page}, as it was at the end: open it in a browser")
        kept = "is open" if keep else "has ended; tacit demo --keep leaves it open"
        click.echo(f"the live page {here} {kept}")
    if keep:
        click.echo("the page stays open until Ctrl-C", err=True)
        threading.Event().wait()


NEEDS_SERVICE = re.compile(
    r'<script.*?</script>|<noscript>.*?</noscript>|<nav class="ranges".*?</nav>'
    r'|<section class="store".*?</section>| · <a href="/.*?</a>| href="/[^"]*"',
    re.DOTALL,
)
"""Elements of the page that do not work without the service."""


def still(address: str, query: str) -> str:
    """Return the placement's page as a single file that works without the service."""
    page, style, icon = (
        fetched(f"{address}{path}")
        for path in (f"placements/{PLACEMENT}{query}", "static/page.css", "static/icon.svg")
    )
    text = page.replace(
        '<link rel="stylesheet" href="/static/page.css">',
        f"<style>{style}a:not([href]) {{ color: inherit; }}</style>",
    )
    text = text.replace("/static/icon.svg", f"data:image/svg+xml,{quote(icon)}")
    return NEEDS_SERVICE.sub("", text).replace("as of loading", "as it was when tacit demo ended")


def fetched(address: str) -> str:
    """Return the text at an address."""
    with urlopen(address, timeout=30) as answer:  # noqa: S310
        return str(answer.read().decode())


# The service ---------------------------------------------------------------------------------


@contextmanager
def running_service(scene: Scenario, folder: Path, port: int) -> Iterator[str]:
    """Start the service on a new store in ``folder``, yield its address, and stop it at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("demo.sqlite*"):
        old.unlink()
    port = free_port(port)
    config = folder / "demo.toml"
    config.write_text(configuration(scene, port), encoding="utf-8")
    log = (folder / "service.log").open("w")
    command = [sys.executable, "-m", "tacit", "serve", "--config", str(config)]
    if threading.current_thread() is threading.main_thread():
        # SIGTERM must also stop the service's process.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603
    try:
        with progress(None, "compiling, the first time"):
            # Compiles the slowest loop while the service compiles the others; both share the cache.
            _ = Learner(scene.policy, 0).loops.learn
        await_ready(process, port, folder / "service.log")
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        log.close()


def configuration(scene: Scenario, port: int) -> str:
    """Return the service's configuration as TOML."""
    from tacit.policies import policy_to_spec

    def toml(value: Any) -> str:
        if isinstance(value, dict):
            # TOML has no null: omit the value to use its default.
            shown = (f"{k} = {toml(v)}" for k, v in value.items() if v is not None)
            return "{" + ", ".join(shown) + "}"
        return json.dumps(value)

    policy = policy_to_spec(scene.policy)
    arms = policy.pop("arms", list(scene.arms))
    # The verdict counts decisions whose window has closed, so use a short window.
    context = "attribution_window = 5"
    if scene.rankers:
        context = 'kind = "duels"\naggregation = "first"\nattribution_window = 5'
    elif scene.positions:
        policy.pop("positions")
        # Lists are learned when their window closes.
        context = f'kind = "slates"\npositions = {scene.positions}\nattribution_window = 0.5'
    elif scene.environment is None:
        # The placement declares the context schema, which determines the dimension.
        policy = {name: value for name, value in policy.items() if name not in ("context", "context_dim")}
        context += f"\ncontext = {toml(SCHEMA)}"
    return f"""[server]
host = "127.0.0.1"
port = {port}

[store]
path = "demo.sqlite"

[placements.{PLACEMENT}]
{"rankers" if scene.rankers else "arms"} = {toml(arms)}
policy = {toml(policy)}
seed = {scene.seed}
{context}
{f"holdout = {{ share = {scene.holdout} }}" if scene.holdout else ""}
"""


def free_port(port: int = 0) -> int:
    """Return ``port`` if it is free on the loopback interface, or a free port for 0.

    Raises
    ------
    InvalidValue
        If another process listens there, which would be mistaken for the service.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise InvalidValue("port", port, "something listens there: give another, or 0") from None
        return int(probe.getsockname()[1])


def await_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until the service is ready, as long as its log makes progress."""
    with progress(None, "starting the service (the first time it compiles)") as advance:
        while time.time() < log.stat().st_mtime + PATIENCE:
            if process.poll() is not None:
                text = log.read_text(encoding="utf-8", errors="replace").strip()
                if "tacit-learn[service]" in text:
                    raise MissingExtra("the service", "service")
                raise TacitError(f"the service stopped: {text[-2000:]}")
            try:
                connection = HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return
            except (OSError, HTTPException):
                threading.Event().wait(0.05)
            advance(0)
    raise TacitError(f"the service is not ready, and said nothing for {PATIENCE:.0f} s; see {log}")


def send(scene: Scenario, traffic: Traffic, address: str, write: Write | None = None) -> tuple[Ints, float]:
    """Send all searches and clicks; return the indices of the shown arms, and the duration in seconds.

    Clicks are sent as feedback, or passed to ``write`` if given.
    """
    slots = {arm: slot for slot, arm in enumerate(scene.arms)}
    shown = np.empty(scene.impressions, np.int64)

    def asked(i: int) -> Row:
        known = {"context": traffic.contexts[i]} if traffic.contexts else {}
        return {"key": scene.keys[traffic.lanes[i]], **known}

    def search(connection: HTTPConnection, some: range) -> None:
        answers = post(connection, "decide", "decisions", map(asked, some))
        shown[some] = [slots[answer["arm"]] for answer in answers]
        clicked = traffic.uniforms[some] < traffic.truth[some, shown[some]]
        # Only clicks are sent: their absence is known when the window closes.
        ids = [answer["decision_id"] for answer, click in zip(answers, clicked, strict=True) if click]
        if write is not None:
            for id in ids:
                write(id, 1.0, time.time())
        elif ids:
            post(connection, "feedback", "feedback", ({"decision_id": id, "reward": 1} for id in ids))

    return shown, each_sent(address, len(shown), "searchers", search)


def each_sent(address: str, count: int, who: str, send: Callable[[HTTPConnection, range], None]) -> float:
    """Call ``send`` for all indices in batches from parallel threads; return the duration in seconds.

    Each batch is one request, as from a web server. Requests are spread over some seconds, so that the
    page shows how the policy learns.
    """
    port = int(address.rstrip("/").rpartition(":")[2])
    stopped = threading.Event()
    groups = iter(range(0, count, TOGETHER))
    turn = threading.Lock()
    began, lasting = time.monotonic(), min(LASTING, count / FASTEST)

    def user() -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        while True:
            with turn:
                first = next(groups, None)
            if first is None or stopped.wait(max(began + lasting * first / count - time.monotonic(), 0.0)):
                return
            some = range(first, min(first + TOGETHER, count))
            send(connection, some)
            advance(len(some))

    with progress(count, who) as advance, ThreadPoolExecutor(SEARCHERS) as pool:
        try:
            for future in [pool.submit(user) for _ in range(SEARCHERS)]:
                future.result()
        finally:
            stopped.set()
    return time.monotonic() - began


def answered(address: str, of: str) -> Row:
    """Wait until all windows have closed; return a result (lift, segments or verdict) of the placement."""
    latest = time.monotonic() + PATIENCE
    while True:
        found: Row = json.loads(fetched(f"{address}v1/placements/{PLACEMENT}/{of}"))
        open_still = found.get("pending") or found.get("open") or not found.get("whole", True)
        if not open_still or time.monotonic() > latest:
            return found
        threading.Event().wait(0.1)


def said(address: str, of: str = "lift") -> str:
    """Wait until all windows have closed; return the verdict of a result."""
    return str(answered(address, of)["verdict"])


def for_whom(address: str) -> str:
    """Return the arms shown per segment of users, as text with a table."""
    from msgspec import convert

    from tacit.wire.lift import ForWhom

    return str(convert(answered(address, "for-whom"), ForWhom))


def post(connection: HTTPConnection, action: str, field: str, content: Iterable[Row]) -> list[Row]:
    """Send a batch to the placement in one request; return the answers."""
    body = json.dumps({field: list(content)})
    headers = {"Content-Type": "application/json"}
    connection.request("POST", f"/v1/placements/{PLACEMENT}/{action}/batch", body, headers)
    response = connection.getresponse()
    answer = json.loads(response.read() or b"null")
    if response.status >= 300:
        raise TacitError(f"{action} was answered with {response.status}: {answer}")
    answers: list[Row] = answer[field]
    return answers


def draw(scene: Scenario, outcomes: dict[str, DemoTotals], path: Path) -> Path | None:
    """Draw click rates and regret over time; return the file, or None without matplotlib."""
    from tacit.plots import figure, save

    try:
        drawing, (rates, regrets) = figure(7.5, 6.5, rows=2, sharex=True)
    except MissingExtra:
        return None
    width = max(scene.impressions // 40, 1)
    ends = np.arange(width, scene.impressions + 1, width)
    for name, outcome in outcomes.items():
        style = {"color": "black", "ls": ":", "lw": 1} if "clairvoyant" in name else {}
        windows = outcome.clicks[: ends[-1]].reshape(-1, width)
        error = np.sqrt(windows.mean(axis=1) * (1 - windows.mean(axis=1)) / width)
        (line,) = rates.plot(ends - width / 2, windows.mean(axis=1), label=name, **style)
        if name.startswith("tacit"):
            low, high = windows.mean(axis=1) - 2 * error, windows.mean(axis=1) + 2 * error
            rates.fill_between(ends - width / 2, low, high, color=line.get_color(), alpha=0.2, lw=0)
        regrets.plot(np.cumsum(outcome.regret), label=name, **style)
    rates.set_ylabel(f"clicks per impression\n(windows of {width:,}; band: ±2 s.e.)")
    rates.set_ylim(bottom=0)
    rates.set_title(scene.title, size=10)
    regrets.set_ylabel("cumulative regret (clicks missed)")
    regrets.set_xlabel("impressions")
    regrets.set_xlim(0, scene.impressions)
    regrets.xaxis.set_major_formatter("{x:,.0f}")
    regrets.yaxis.set_major_formatter("{x:,.0f}")
    regrets.legend(frameon=False, fontsize=8)
    return save(drawing, path)


# ---- Clicks as events: a growing file that tacit feed follows

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
"""Function that writes an event, given a decision's id, its reward and the time."""


@contextmanager
def feeding(folder: Path, placement: str, address: str) -> Iterator[Write]:
    """Yield a function that appends an event to a file that ``tacit feed`` follows.

    At the end, the whole file is fed again; each event still counts once.

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
            # SIGINT would be lost while the process is still importing.
            follower.terminate()
            follower.wait()
    last = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    if last.returncode:
        raise TacitError(f"{events}: could not be fed: {last.stderr}{last.stdout}")
