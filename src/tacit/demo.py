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
from tacit.core.text import align_columns
from tacit.environments import Environment, SearchInterest, ShiftingArms
from tacit.errors import InvalidValue, MissingExtra, TacitError
from tacit.learning.learner import Learner
from tacit.policies import Policy, policy_from_spec
from tacit.policies.auto import auto
from tacit.policies.features.gaussian import logistic
from tacit.simulation import ENVIRONMENT_STREAM, POLICY_STREAM, run_stream

PLACEMENT = "search"
CONCURRENT_SENDERS = 4
BATCH_SIZE = 10
"""Searchers per request."""
MAX_SECONDS, MAX_RATE = 10.0, 200.0
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
        """Name of the policy: its label, or only its class without an environment and without lists."""
        return self.policy.label if self.environment or self.positions else type(self.policy).__name__

    @property
    def control_label(self) -> str:
        """Label of the service's results: its policy, and the share of users who see a random arm, if any."""
        return f"tacit: {self.label}" + (f", {self.holdout:.0%} at random" if self.holdout else "")


def build_scenario(
    interest: Path | None,
    policy: str | None,
    impressions: int | None,
    seed: int,
    holdout: float | None = None,
    *,
    context: bool = False,
) -> Scenario:
    """Return a scenario: users with contexts, real search interest from a table, or simulated queries.

    With None, policy and number of impressions are the scenario's default. Raises InvalidValue for contexts
    with a table.

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
        arms, keys, default_impressions, environment = tuple(CLICK_LOG_ODDS), ("home",), 8_000, None
        title = f"a home page, {len(arms)} things to show, users who differ"
        chosen_policy = auto(arms=arms, context=SCHEMA) if policy is None else policy_from_spec(policy, arms)
    elif interest is not None:
        environment = search_interest = SearchInterest(interest)
        days = len(search_interest.dates) - 1
        arms, keys, default_impressions = search_interest.topics, (interest.stem,), 100 * days
        title = f"one query over {days} days of real search interest, {search_interest.dates[0]} on"
        chosen_policy = policy_from_spec(policy or "glr-kl-ucb(local=True, alpha=0.002)", arms)
    else:
        arms, default_impressions = ("reference", "news", "shop", "video", "film"), 15_000
        keys = ("independence day", "tomato", "jaguar")
        title = f"{len(keys)} queries, {len(arms)} kinds of result, intent that shifts"
        environment = ShiftingArms(arms=len(arms), keys=len(keys), events=(3, 4), traffic=0.5, high=0.5)
        chosen_policy = policy_from_spec(policy or "auto", arms)
    return Scenario(
        title, environment, keys, arms, chosen_policy, impressions or default_impressions, seed, holdout
    )


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
    def draw(cls, scene: Scenario) -> Traffic:
        """Return all impressions of a scenario, drawn from its seed."""
        rng = run_stream(scene.seed, 0, ENVIRONMENT_STREAM)
        if scene.environment is None:
            contexts, truth = simulate_users(rng, scene.impressions)
            return cls(np.zeros(len(truth), np.int64), rng.random(len(truth)), truth, contexts)
        environment, params = scene.environment, scene.environment.params
        world = environment.world(rng, scene.impressions)
        arm_indices = range(environment.arm_count)
        lanes = np.empty(scene.impressions, np.int64)
        uniforms = np.empty(scene.impressions)
        truth = np.empty((scene.impressions, environment.arm_count))
        for i in range(scene.impressions):
            lanes[i] = arrive(params, world, i, rng)
            uniforms[i] = world.uniform[0]
            truth[i] = [expected(params, world, lanes[i], arm_index) for arm_index in arm_indices]
        return cls(lanes, uniforms, truth, [])

    def outcome(self, shown_arms: Ints) -> DemoTotals:
        """Return the clicks and regret per impression that follow from ``shown_arms``, the arm index of each
        impression.
        """
        expected_clicks = self.truth[np.arange(len(shown_arms)), shown_arms]
        return DemoTotals(self.uniforms < expected_clicks, self.truth.max(axis=1) - expected_clicks)

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
CLICK_LOG_ODDS: dict[str, dict[str, float]] = {
    "film": {"all": -1.2, "web": 0.6},
    "song": {"all": -1.6, "age": 0.3, "ios": 1.2},
    "game": {"all": -1.5, "age": -1.3, "android": 0.5},
    "news": {"all": -1.5, "age": 1.2, "de": 0.8},
    "shop": {"all": -2.0, "new": 1.6},
}
"""Log-odds of a click on each arm, with effects of the context; age in standard deviations."""


def simulate_users(rng: Generator, count: int) -> tuple[list[dict[str, Any]], Floats]:
    """Return the contexts of random users, and their click probabilities, of shape (users, arms)."""
    ages, new = rng.uniform(16, 80, count).round(), rng.random(count) < 0.25
    devices, countries = rng.choice(SCHEMA["device"], count), rng.choice(COUNTRIES, count)
    features = {"all": np.ones(count), "age": (ages - 48.0) / 18.5, "new": new.astype(float)}
    features |= {name: (devices == name).astype(float) for name in SCHEMA["device"]}
    features |= {name: (countries == name).astype(float) for name in COUNTRIES}
    logits = np.zeros((count, len(CLICK_LOG_ODDS)))
    for arm_index, weights in enumerate(CLICK_LOG_ODDS.values()):
        for name, weight in weights.items():
            logits[:, arm_index] += features[name] * weight
    columns = devices.tolist(), ages.tolist(), countries.tolist(), new.tolist()
    contexts = [dict(zip(SCHEMA, row, strict=True)) for row in zip(*columns, strict=True)]
    return contexts, logistic(logits)


def play(scene: Scenario, folder: Path, port: int, *, keep: bool, as_json: bool, feed: bool = False) -> None:
    """Run the demonstration: start the service, send the traffic, draw a figure, and print the results.

    Files are written to ``folder``. With ``feed``, clicks go through a file of events. With ``keep``, it
    waits at the end until it is interrupted.
    """
    traffic = Traffic.draw(scene)
    with running_service(scene, folder, port) as address:
        print_header(scene, address, as_json)
        with feed_events(folder, PLACEMENT, address) if feed else nullcontext() as write:
            shown_arms, seconds = send(scene, traffic, address, write)
        outcomes = compare_outcomes(scene, traffic, shown_arms)
        figure = draw(scene, outcomes, folder / "demo.png")
        rows: list[Row] = [
            {
                "shown by": name,
                "clicks_per_1000": totals.clicks_per_1000,
                "regret": float(totals.regret.sum()),
            }
            for name, totals in outcomes.items()
        ]
        table = [("shown by", "clicks/1000", "regret (clicks)")]
        table += [(r["shown by"], f"{r['clicks_per_1000']:.1f}", f"{r['regret']:,.0f}") for r in rows]
        feed_note = f"{folder / 'events.jsonl'}, as it grew and then again: each event counts once"
        notes, tables = {"fed": feed_note} if feed else {}, list[Table]([table])
        if traffic.contexts:
            notes["for whom"] = describe_segments(address)
        else:
            tables.append(summarize_last_fifth(scene, traffic, shown_arms))
        notes["lift"] = await_verdict(address)
        result = DemoResult("impressions", len(shown_arms), seconds, rows, tables, figure, notes)
        print_report(result, address, folder, keep=keep, as_json=as_json)


def print_header(scene: Scenario, address: str, as_json: bool) -> None:
    """Print the scenario, the policy and the page's address, unless the output is JSON."""
    if not as_json:
        click.echo(f"tacit demo: {scene.title}")
        click.echo(f"policy {scene.label}; page {address} while it runs")


def summarize_last_fifth(scene: Scenario, traffic: Traffic, shown_arms: Ints) -> list[tuple[str, ...]]:
    """Return a table with the arm shown most for each key in the last fifth of the impressions.

    The first row has the titles; keys without impressions are left out.
    """
    in_last_fifth = np.arange(len(shown_arms)) >= 0.8 * len(shown_arms)
    clicked = traffic.outcome(shown_arms).clicks
    rows: list[tuple[str, ...]] = [("in the last fifth", "is shown most", "how often", "clicks/1000")]
    for lane, key in enumerate(scene.keys):
        of_key = in_last_fifth & (traffic.lanes == lane)
        if not of_key.any():
            continue
        counts = np.bincount(shown_arms[of_key], minlength=len(scene.arms))
        arm, share = scene.arms[counts.argmax()], counts.max() / counts.sum()
        rows.append((key, arm, f"{share:.0%}", f"{1000 * clicked[of_key].mean():.0f}"))
    return rows


def compare_outcomes(scene: Scenario, traffic: Traffic, shown_arms: Ints) -> dict[str, DemoTotals]:
    """Return by label the totals of the service, of the best fixed arm, of uniform choice and of the
    optimum.
    """
    uniform = run_stream(scene.seed, 0, POLICY_STREAM).integers(0, len(scene.arms), len(shown_arms))
    fixed_label = "the same page for all, the best" if traffic.contexts else "best fixed arm"
    return {
        scene.control_label: traffic.outcome(shown_arms),
        f"{fixed_label} in hindsight": traffic.outcome(traffic.best_fixed()),
        "uniform choice": traffic.outcome(uniform),
        "clairvoyant optimum": traffic.outcome(traffic.truth.argmax(axis=1)),
    }


@dataclass(frozen=True)
class DemoResult:
    """Results of a demonstration.

    Attributes
    ----------
    unit : str
        Unit of ``count``, the number of requests that the service answered in ``seconds``.
    count : int
    seconds : float
    rows : list of dict
    tables : sequence of tables
        Tables for text output.
    figure : Path or None
    notes : dict of str to str
        Further notes for text output, by title.
    """

    unit: str
    count: int
    seconds: float
    rows: list[Row]
    tables: Sequence[Table]
    figure: Path | None
    notes: dict[str, str]


def print_report(
    result: DemoResult, address: str, folder: Path, query: str = "", *, keep: bool, as_json: bool
) -> None:
    """Print the results as text or JSON, and save the service's page as a file in ``folder``.

    With ``keep``, wait until the program is interrupted, so that the service stays up.
    """
    page = folder / "page.html"
    page.write_text(render_static_page(address, query), encoding="utf-8")
    page_address = f"{address}placements/{PLACEMENT}{query}"
    if as_json:
        summary = {result.unit: result.count, "seconds": result.seconds, "rows": result.rows}
        files = {"figure": result.figure and str(result.figure), "page": str(page), "address": page_address}
        click.echo(json.dumps(summary | result.notes | files, indent=1))
    else:
        for table in result.tables:
            click.echo(f"\n{align_columns(table)}")
        for name, note in result.notes.items():
            click.echo(f"\n{name}: {note}")
        click.echo(
            f"\n{result.count:,} {result.unit} through the service in {result.seconds:.1f} s, "
            "each a decision, and its click if there was one, in its log"
        )
        click.echo(f"plot {result.figure or 'none: install it with: pip install tacit-learn[plots]'}")
        click.echo(f"page {page}, as it was at the end: open it in a browser")
        page_state = "is open" if keep else "has ended; tacit demo --keep leaves it open"
        click.echo(f"the live page {page_address} {page_state}")
    if keep:
        click.echo("the page stays open until Ctrl-C", err=True)
        threading.Event().wait()


SERVICE_ELEMENTS = re.compile(
    r'<script.*?</script>|<noscript>.*?</noscript>|<nav class="ranges".*?</nav>'
    r'|<section class="store".*?</section>| · <a href="/.*?</a>| href="/[^"]*"',
    re.DOTALL,
)
"""Elements of the page that do not work without the service."""


def render_static_page(address: str, query: str) -> str:
    """Return the placement's page as one HTML file that works without the service.

    The page, its style and its icon are fetched from the service.
    """
    page, style, icon = (
        fetch(f"{address}{path}")
        for path in (f"placements/{PLACEMENT}{query}", "static/page.css", "static/icon.svg")
    )
    text = page.replace(
        '<link rel="stylesheet" href="/static/page.css">',
        f"<style>{style}a:not([href]) {{ color: inherit; }}</style>",
    )
    text = text.replace("/static/icon.svg", f"data:image/svg+xml,{quote(icon)}")
    return SERVICE_ELEMENTS.sub("", text).replace("as of loading", "as it was when tacit demo ended")


def fetch(address: str) -> str:
    """Return the text at a URL; errors of the connection are raised."""
    with urlopen(address, timeout=30) as answer:  # noqa: S310
        return str(answer.read().decode())


# The service ---------------------------------------------------------------------------------


@contextmanager
def running_service(scene: Scenario, folder: Path, port: int) -> Iterator[str]:
    """Run the service in a process with a new store in ``folder``; yield its address once it is ready.

    The store of an earlier demonstration is deleted. At the end the process is stopped.
    """
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
    """Return the service's configuration for a scenario as TOML."""
    from tacit.policies import policy_to_spec

    def toml(value: Any) -> str:
        """Return a value as TOML on one line."""
        if isinstance(value, dict):
            # TOML has no null: omit the value to use its default.
            items = (f"{k} = {toml(v)}" for k, v in value.items() if v is not None)
            return "{" + ", ".join(items) + "}"
        return json.dumps(value)

    policy = policy_to_spec(scene.policy)
    arms = policy.pop("arms", list(scene.arms))
    # The verdict counts decisions whose window has closed, so use a short window.
    placement_options = "attribution_window = 5"
    if scene.rankers:
        placement_options = 'kind = "duels"\naggregation = "first"\nattribution_window = 5'
    elif scene.positions:
        policy.pop("positions")
        # Lists are learned when their window closes.
        placement_options = f'kind = "slates"\npositions = {scene.positions}\nattribution_window = 0.5'
    elif scene.environment is None:
        # The placement declares the context schema, which determines the dimension.
        policy = {name: value for name, value in policy.items() if name not in ("context", "context_dim")}
        placement_options += f"\ncontext = {toml(SCHEMA)}"
    return f"""[server]
host = "127.0.0.1"
port = {port}

[store]
path = "demo.sqlite"

[placements.{PLACEMENT}]
{"rankers" if scene.rankers else "arms"} = {toml(arms)}
policy = {toml(policy)}
seed = {scene.seed}
{placement_options}
{f"holdout = {{ share = {scene.holdout} }}" if scene.holdout else ""}
"""


def free_port(port: int = 0) -> int:
    """Return ``port`` if it is free on the loopback interface, or any free port for 0; else raise
    InvalidValue.

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
    """Wait until the service is ready, with a progress bar.

    Raises TacitError if its process ends, or its log does not grow for ten minutes; MissingExtra if packages
    are missing.
    """
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


def send(
    scene: Scenario, traffic: Traffic, address: str, write: EventWriter | None = None
) -> tuple[Ints, float]:
    """Send all searches and clicks; return the arm index shown for each search, and the duration in seconds.

    Clicks are sent as feedback or, if ``write`` is passed, written by it.
    """
    index_by_arm = {arm: arm_index for arm_index, arm in enumerate(scene.arms)}
    shown_arms = np.empty(scene.impressions, np.int64)

    def make_request(i: int) -> Row:
        """Return the JSON data of impression ``i``: its key and, if users have one, its context."""
        context_field = {"context": traffic.contexts[i]} if traffic.contexts else {}
        return {"key": scene.keys[traffic.lanes[i]], **context_field}

    def send_batch(connection: HTTPConnection, indices: range) -> None:
        """Request a batch of decisions, store the arms shown, and send or write the simulated clicks."""
        answers = post_batch(connection, "decide", "decisions", map(make_request, indices))
        shown_arms[indices] = [index_by_arm[answer["arm"]] for answer in answers]
        clicked = traffic.uniforms[indices] < traffic.truth[indices, shown_arms[indices]]
        # Only clicks are sent: their absence is known when the window closes.
        ids = [answer["decision_id"] for answer, click in zip(answers, clicked, strict=True) if click]
        if write is not None:
            for id in ids:
                write(id, 1.0, time.time())
        elif ids:
            post_batch(connection, "feedback", "feedback", ({"decision_id": id, "reward": 1} for id in ids))

    return shown_arms, send_concurrently(address, len(shown_arms), "searchers", send_batch)


def send_concurrently(
    address: str, count: int, label: str, send: Callable[[HTTPConnection, range], None]
) -> float:
    """Call ``send`` in parallel threads with batches of the indices 0 to ``count`` − 1; return the duration
    in seconds.

    Each batch is one request, as from a web server. Requests are spread over some seconds, so that the page
    shows how the policy learns.
    """
    port = int(address.rstrip("/").rpartition(":")[2])
    stopped = threading.Event()
    groups = iter(range(0, count, BATCH_SIZE))
    lock = threading.Lock()
    start, duration = time.monotonic(), min(MAX_SECONDS, count / MAX_RATE)

    def user() -> None:
        """Send batches over one connection, each at its time, until all are sent or another thread fails."""
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        while True:
            with lock:
                first = next(groups, None)
            if first is None or stopped.wait(max(start + duration * first / count - time.monotonic(), 0.0)):
                return
            indices = range(first, min(first + BATCH_SIZE, count))
            send(connection, indices)
            advance(len(indices))

    with progress(count, label) as advance, ThreadPoolExecutor(CONCURRENT_SENDERS) as pool:
        try:
            for future in [pool.submit(user) for _ in range(CONCURRENT_SENDERS)]:
                future.result()
        finally:
            stopped.set()
    return time.monotonic() - start


def await_results(address: str, resource: str) -> Row:
    """Wait until all windows have closed, at most ten minutes; return the placement's lift, for-whom or
    verdict.

    ``resource`` names which; the result is JSON data.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        answer: Row = json.loads(fetch(f"{address}v1/placements/{PLACEMENT}/{resource}"))
        is_open = answer.get("pending") or answer.get("open") or not answer.get("whole", True)
        if not is_open or time.monotonic() > deadline:
            return answer
        threading.Event().wait(0.1)


def await_verdict(address: str, resource: str = "lift") -> str:
    """Wait until all windows have closed; return the verdict of a result, lift or verdict, as text."""
    return str(await_results(address, resource)["verdict"])


def describe_segments(address: str) -> str:
    """Wait until all windows have closed; return the arms shown per segment of users as text with a table."""
    from msgspec import convert

    from tacit.wire.lift import ForWhom

    return str(convert(await_results(address, "for-whom"), ForWhom))


def post_batch(connection: HTTPConnection, action: str, field: str, content: Iterable[Row]) -> list[Row]:
    """Send a batch to the demonstration's placement in one request; return the answers, in order.

    Raises TacitError if the service refuses it.
    """
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
    """Draw click rates and regret over time, write the figure to ``path``, and return ``path``.

    Without matplotlib, nothing is written, and None is returned.
    """
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

EVENT_MAP = """\
placement = {{ value = "{placement}" }}
decision_id = "decision"
id = "id"
time = "time"
event = "event"

[reward]
click = 1
leave = 0
"""

EventWriter = Callable[[str, float, float], None]
"""Function that writes an event, given a decision's id, its reward and the time."""


@contextmanager
def feed_events(folder: Path, placement: str, address: str) -> Iterator[EventWriter]:
    """Run ``tacit feed`` on a growing file of events; yield a function that appends an event to the file.

    At the end the feed is stopped, and the whole file is fed again: each event still counts once.

    Raises
    ------
    TacitError
        If events could not be fed.
    """
    events, map_file = folder / "events.jsonl", folder / "feed.toml"
    events.write_bytes(b"")
    map_file.write_text(EVENT_MAP.format(placement=placement), encoding="utf-8")
    command = [sys.executable, "-m", "tacit", "feed", str(events), "--map", str(map_file), "--url", address]
    with events.open("ab", buffering=0) as file, (folder / "feed.log").open("w") as log:
        follower = subprocess.Popen([*command, "--follow"], stdout=log, stderr=subprocess.STDOUT)  # noqa: S603

        def write(decision: str, reward: float, time: float) -> None:
            """Append an event to the file: a click for a reward above 0, else that the user left."""
            event = {"id": f"e-{decision}", "event": "click" if reward else "leave"}
            file.write(json.dumps(event | {"decision": decision, "time": time}).encode() + b"\n")

        try:
            yield write
        finally:
            # SIGINT would be lost while the process is still importing.
            follower.terminate()
            follower.wait()
    feed_run = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    if feed_run.returncode:
        raise TacitError(f"{events}: could not be fed: {feed_run.stderr}{feed_run.stdout}")
