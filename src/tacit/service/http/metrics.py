"""Metrics for Prometheus: counts of requests and commits, the state of the engine, and the lift."""

# 1. ``Metrics``: all metrics, counted while requests run or read from the engine when Prometheus collects.
# 2. Tables of metrics: name, help, label and reader of each.
# 3. ``LiftMetrics``: the lift of placements with a holdout, computed at most once a minute.

from __future__ import annotations

import asyncio
import platform
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ReferenceType, ref

from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.utils import floatToGoString

from tacit import __version__
from tacit.service.config.keys import ANYBODY, Caller
from tacit.service.projections.lift_report import make_lift_report
from tacit.service.projections.series import ARMS, estimate_uniform_reward
from tacit.wire.lift import Bounds, LiftReport

if TYPE_CHECKING:
    from tacit.service.engine.engine import Engine
    from tacit.service.engine.reports import ShardHealth
    from tacit.service.http.feeds import Feeds
    from tacit.service.http.protocol import Connections
    from tacit.service.projections.learning_order import LearningOrder
from tacit.service.placements.placement import Placement

# ---- Counts of requests and commits, and the state of the engine

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
REQUEST = "tacit_request_seconds"
Sample = tuple[list[str], float | None]
"""Values of labels, and the sample's value, or None for no sample."""

format_value = lru_cache(4096)(floatToGoString)
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class Metrics:
    """The metrics of one service.

    Parameters
    ----------
    engine : Engine
    connections : Connections, optional
    feeds : Feeds, optional
    """

    def __init__(
        self, engine: Engine, connections: Connections | None = None, feeds: Feeds | None = None
    ) -> None:
        self._lock, self._lifts = asyncio.Lock(), LiftMetrics(engine)
        durations = Durations()
        sources: list[Any] = [
            partial(_collect_engine, engine, PlacementTexts(OF_PLACEMENT), PlacementTexts(OF_LEARNED)),
            self._lifts.collect,
            ProcessCollector(registry=None),
        ]
        sources += [] if connections is None else [partial(_collect_connections, connections)]
        sources += [] if feeds is None else [partial(_collect_feeds, feeds)]
        self._sources = [*sources, durations.collect]
        self.count_request = durations.count_request
        engine.commits.on_commit = durations.count_commit

    async def text(self, caller: Caller = ANYBODY) -> bytes:
        """Return the metrics that a caller may see, in Prometheus' text format.

        These are all, or those of the placements that its key reaches. Outdated lifts are computed again
        before. Rendering runs in a thread.
        """
        async with self._lock:
            self._lifts.copy_stale()
            return await asyncio.to_thread(lambda: b"".join(self._iterate_texts(caller)))

    async def prepare(self) -> None:
        """Write the metrics of all placements, except their lifts, for the first request, in a thread."""
        async with self._lock:
            # The first source is the engine, which has the metrics of placements.
            await asyncio.to_thread(lambda: list(self._sources[0]()))

    def _iterate_texts(self, caller: Caller) -> Iterator[bytes]:
        """Yield the text of each metric that a caller may see."""
        for source in self._sources:
            if callable(source):
                yield from (family.write(caller).encode() for family in source())
            elif caller.placements is None:
                yield generate_latest(source)


class Family(NamedTuple):
    """A metric and its samples; those of a thousand placements would take Prometheus' client 0.1 s to write.

    Attributes
    ----------
    kind, name, help : str
    texts : list of (str or None, str)
        Pairs of a placement's name, or None, and its samples in Prometheus' text format.
    """

    kind: str
    name: str
    help: str
    texts: Sequence[tuple[str | None, str]]

    @classmethod
    def from_samples(
        cls, kind: str, name: str, help: str, labels: Sequence[str], samples: Sequence[Sample]
    ) -> Family:
        """Return a family of samples, written one by one."""
        lines = _write(kind, name, labels, samples)
        named = labels[:1] == ["placement"]
        return cls(kind, name, help, lines if named else [(None, line) for _, line in lines])

    def write(self, caller: Caller = ANYBODY) -> str:
        """Return the samples that a caller may see in Prometheus' text format; nothing if it may see none."""
        if caller.placements is None:
            text = "".join([text for _, text in self.texts])
        else:
            text = "".join(text for name, text in self.texts if name is not None and caller.reaches(name))
            if not text:
                return ""
        name = _name(self.kind, self.name)
        return f"# HELP {name} {self.help}\n# TYPE {name} {self.kind}\n{text}"


def _name(kind: str, name: str) -> str:
    """Return the name of a metric's samples."""
    return f"{name}_total" if kind == COUNTER else name


def _write(kind: str, name: str, labels: Sequence[str], samples: Iterable[Sample]) -> list[tuple[str, str]]:
    """Return samples in Prometheus' text format, each after the value of its first label, "" without labels.

    Samples without a value are left out.
    """
    order, form = _make_form(_name(kind, name), tuple(labels))
    return [
        (
            values[0] if values else "",
            form % (*[_escape(values[i]) for i in order], format_value(float(value))),
        )
        for values, value in samples
        if value is not None
    ]


@cache
def _make_form(name: str, labels: tuple[str, ...]) -> tuple[list[int], str]:
    """Return the indices of labels in the order of their names, and the form of a sample's line."""
    order = sorted(range(len(labels)), key=labels.__getitem__)
    pairs = ",".join(f'{labels[i]}="%s"' for i in order)
    return order, f"{name}{{{pairs}}} %s\n" if order else f"{name} %s\n"


class PlacementTexts:
    """The metrics of placements as text; a placement's text is written again only after it has changed.

    Parameters
    ----------
    table : Table
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._entries: dict[str, tuple[ReferenceType[Placement], int, list[str]]] = {}

    def collect(self, placements: Mapping[str, Placement]) -> Iterator[Family]:
        """Yield a metric family for each row of the table."""
        # An entry has a text for each row of the table, in its order.
        old, self._entries = self._entries, {}
        changed = []
        for name, placement in placements.items():
            # Read first: what changes meanwhile is written again the next time.
            version, entry = placement.version, old.get(name)
            if entry is None or entry[1] != version or entry[0]() is not placement:
                changed.append(([name], placement))
                entry = ref(placement), version, []
            self._entries[name] = entry
        for row in self._table:
            lines = {name: "" for (name,), _ in changed}
            for name, line in _write(*row[:2], *_read_samples(row, ["placement"], changed)):
                lines[name] += line
            for name, text in lines.items():
                self._entries[name][2].append(text)
        for i, (kind, metric, help, *_) in enumerate(self._table):
            yield Family(
                kind, metric, help, [(name, texts[i]) for name, (_, _, texts) in self._entries.items()]
            )


@lru_cache(4096)
def _escape(text: str) -> str:
    """Return a label's value as it stands between quotation marks."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class _Histogram:
    """A histogram: counts by upper bound, and a sum. Only one thread counts, so it needs no lock."""

    def __init__(self, name: str, bounds: Sequence[float]) -> None:
        # The last count is of the values above all bounds.
        self._name, self._bounds, self._counts, self._sum = name, bounds, [0.0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Add a value to the count of its bucket and to the sum."""
        self._counts[bisect_left(self._bounds, value)] += 1.0
        self._sum += value

    def write(self, labels: str = "") -> str:
        """Return the cumulative counts, their number and the sum in Prometheus' text format.

        ``labels`` is text such as ``path="/v1",status="200"``.
        """
        bounds, counts = [*map(floatToGoString, self._bounds), "+Inf"], list(accumulate(self._counts))
        pairs, whole = (f",{labels}", f"{{{labels}}}") if labels else ("", "")
        form = f'{self._name}_bucket{{le="%s"{pairs}}} %s\n'
        buckets = "".join(form % bucket for bucket in zip(bounds, counts, strict=True))
        total = f"{self._name}_sum{whole} {format_value(self._sum)}\n"
        return f"{buckets}{self._name}_count{whole} {counts[-1]}\n{total}"


class Durations:
    """Histograms of requests, by path and status, and of commits."""

    def __init__(self) -> None:
        self._requests = defaultdict[tuple[str, int], _Histogram](partial(_Histogram, REQUEST, SECONDS))
        self._seconds = _Histogram("tacit_commit_seconds", SECONDS)
        self._rows = _Histogram("tacit_commit_rows", ROWS)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Add a request's duration in seconds to the histogram of its path and status."""
        self._requests[path, status].observe(seconds)

    def count_commit(self, rows: int, seconds: float) -> None:
        """Add a commit to the histograms of durations in seconds and of rows."""
        self._seconds.observe(seconds)
        self._rows.observe(rows)

    def collect(self) -> Iterator[Family]:
        """Yield the histograms of the durations of requests and commits, and of the rows of commits."""
        requests = [
            (None, times.write(f'path="{_escape(path)}",status="{status}"'))
            for (path, status), times in list(self._requests.items())
        ]
        yield Family(HISTOGRAM, REQUEST, "Time from a request to its answer.", requests)
        yield Family(HISTOGRAM, "tacit_commit_seconds", "Time of a commit.", [(None, self._seconds.write())])
        yield Family(HISTOGRAM, "tacit_commit_rows", "Rows of a commit.", [(None, self._rows.write())])


def _collect_connections(connections: Connections) -> Iterator[Family]:
    """Yield the number of open connections, and the counts of ended ones by reason."""
    yield Family.from_samples(GAUGE, "tacit_connections", "Open connections.", [], [([], connections.live)])
    yield Family.from_samples(
        COUNTER, "tacit_connections_ended",
        "Connections that the service refused or ended, by the limit.", ["reason"],
        [([reason], count) for reason, count in connections.ended.items()],
    )  # fmt: skip


def _collect_feeds(feeds: Feeds) -> Iterator[Family]:
    """Yield the metrics of all feeds by name and key."""
    named = [([feed.name, feed.key or ""], feed) for feed in feeds.list_feeds()]
    return _collect_table(OF_FEED, ["feed", "key"], named)


def _collect_engine(
    engine: Engine, of_placement: PlacementTexts, of_learned: PlacementTexts
) -> Iterator[Family]:
    """Yield the metrics of the engine, its placements and, if it has any, its shards.

    With shards, metrics of the learning state are left out, because it is in the shards' processes.
    """
    health = engine.health()
    for name, help, value in (
        ("tacit_ready", "Whether commits work and it is not stopping.", health.ready),
        ("tacit_log_rows", "Rows of the log.", health.events),
        ("tacit_store_bytes", "What the store takes.", health.bytes),
        ("tacit_buffered_rows", "Rows that are in memory only.", health.buffered),
        ("tacit_waiting_requests", "Requests that wait for a group.", engine.waiting),
        ("tacit_recovery_seconds", "Time that reading the store took at the start.", health.recovery_seconds),
        ("tacit_clock_ahead_seconds", "Of this machine's clock to the log.", health.wall_ahead),
    ):
        yield Family.from_samples(GAUGE, name, help, [], [([], value)])
    yield Family.from_samples(
        GAUGE, "tacit_build", "1 for the version that runs.", ["version", "python"],
        [([__version__, platform.python_version()], 1.0)],
    )  # fmt: skip
    placements = dict(engine.placements)
    yield from of_placement.collect(placements)
    yield from _collect_table(OF_REQUESTS, ["placement"], _label_by_name(placements))
    # With shards, the state of learning is in their processes.
    yield from of_learned.collect({} if engine.shards() else placements)
    now = engine.clock()
    yield Family.from_samples(
        GAUGE, "tacit_snapshot_age_seconds", "Time since the latest snapshot was written.",
        ["placement"],
        [
            ([placement_name], (now - placement.snapshot_time) / 1e6)
            for placement_name, placement in placements.items()
            if placement.snapshot_time is not None
        ],
    )  # fmt: skip
    yield Family.from_samples(
        GAUGE, "tacit_mode", "1 for the mode.", ["placement", "mode"],
        [([placement_name, placement.mode], 1.0) for placement_name, placement in placements.items()],
    )  # fmt: skip
    if shards := engine.shards():
        yield from _collect_shards(engine, shards, placements)


def _collect_shards(
    engine: Engine, shards: Sequence[ShardHealth], placements: Iterable[str]
) -> Iterator[Family]:
    """Yield the health of each shard, and for each placement the age of the sums shared between shards."""
    yield from _collect_table(OF_SHARD, ["shard"], [([str(shard.number)], shard) for shard in shards])
    yield Family.from_samples(
        GAUGE, "tacit_shared_seconds", "How old what shards know of each other is, at most.",
        ["placement"], [([placement], engine.sharing_seconds(placement)) for placement in placements],
    )  # fmt: skip


def _label_by_name(things: Mapping[str, Any]) -> list[tuple[list[str], Any]]:
    """Return ([name], object) pairs: the name is the value of the object's label in metrics."""
    return [([name], thing) for name, thing in things.items()]


def _collect_table(
    table: Table, labels: list[str], labelled: Sequence[tuple[list[str], Any]]
) -> Iterator[Family]:
    """Yield a metric family for each row of a table, with a sample of each object.

    ``labelled`` has pairs of the values of ``labels`` and an object. A row with an additional label has
    several samples of an object, one for each value of that label.
    """
    for row in table:
        yield Family.from_samples(*row[:3], *_read_samples(row, labels, labelled))


def _read_samples(
    row: TableRow, labels: list[str], labelled: Sequence[tuple[list[str], Any]]
) -> tuple[list[str], list[Sample]]:
    """Return all labels of a metric, and the samples of objects; other values are as for the table."""
    *_, label, read = row
    if label:
        pairs = [([*values, key], value) for values, thing in labelled for key, value in read(thing)]
        return [*labels, label], pairs
    return labels, [(values, read(thing)) for values, thing in labelled]


def _read_uniform_reward(placement: Placement) -> float | None:
    """Return the estimated mean reward of uniform exploration; None if it cannot be estimated."""
    estimate = estimate_uniform_reward(placement.series.table[:, :ARMS].sum(axis=0))
    return None if estimate is None else estimate.value


def _count_undeclared(placement: Placement) -> list[tuple[str, int]]:
    """Return (context field, number of undeclared values) pairs.

    Empty if contexts have no declared fields.
    """
    encoder = placement.reader.encoder
    return [] if encoder is None else [(field, encoder.undeclared_counts[field]) for field in encoder.listed]


def _read_order(placement: Placement, read: Callable[[LearningOrder, int], float | None]) -> float | None:
    """Return ``read`` of the placement's learning order and the log's time; None without an order."""
    order, now = placement.windows.order, placement.windows.time
    return None if order is None else read(order, now)


TableRow = tuple[str, str, str, str, Callable[[Any], Any]]
Table = tuple[TableRow, ...]
"""Rows of kind, name, help, an additional label or "", and a function that reads the value of an object.

With an additional label, the function returns pairs of a label's value and a metric's value.
"""
OF_PLACEMENT: Table = (
    (COUNTER, "tacit_decisions", "Decisions.", "", attrgetter("decisions")),
    (COUNTER, "tacit_rewards", "Sum of all rewards.", "", attrgetter("series.rewards")),
    (GAUGE, "tacit_open_windows", "Decisions whose windows are open.", "", attrgetter("pending")),
    (GAUGE, "tacit_keys", "Keys.", "", attrgetter("key_count")),
    (GAUGE, "tacit_guardrail_harms", "Harms that the guardrail has proved, of arms or of the policy.", "",
     lambda placement: None if placement.guardrail is None else len(placement.guardrail.degradations)),
    (COUNTER, "tacit_restarts", "Restarts of keys that were seen.", "", attrgetter("series.restarts")),
    (GAUGE, "tacit_uniform_reward",
     "What uniform exploration would earn for each impression, estimated.", "", _read_uniform_reward),
    (COUNTER, "tacit_feedback",
     "Feedback, once each: learned if its reward is final, pending if more may come until the window closes; "
     "window-closed: decisions that were final only then, those with pending feedback again.", "outcome",
     lambda placement: placement.outcomes.copy().items()),
)  # fmt: skip
OF_REQUESTS: Table = (
    (COUNTER, "tacit_context_others",
     "Values in contexts, since the start, that are none of those declared for their field.", "field",
     _count_undeclared),
)  # fmt: skip
"""Counts that also change when a request is refused, which does not change the placement."""
OF_LEARNED: Table = (
    (GAUGE, "tacit_unlearned_decisions", "Decisions that wait for their turn to be learned.", "",
     lambda placement: _read_order(placement, lambda order, now: order.waiting_count)),
    (GAUGE, "tacit_learning_age_seconds",
     "Age at which decisions are learned: by then nearly all clicks have come.", "",
     lambda placement: _read_order(placement, lambda order, now: order.get_learning_age(now) / 1e6)),
    (GAUGE, "tacit_click_delay_seconds", "Time within which 95 % of clicks come; from 100 clicks on.", "",
     lambda placement: _read_order(placement, lambda order, now: order.click_delay)),
    (GAUGE, "tacit_attribution_window_seconds", "For how long clicks count.", "",
     lambda placement: _read_order(placement, lambda order, now: order.rule.window / 1e6)),
    (GAUGE, "tacit_unlearned_seconds", "For how long the first decision waits that is not yet learned.", "",
     lambda placement: _read_order(placement, lambda order, now: order.get_waiting_time(now) / 1e6)),
    (GAUGE, "tacit_state_bytes", "What the policy's state takes in memory.", "",
     attrgetter("learner.lanes.bytes")),
    (GAUGE, "tacit_open_windows_bytes", "What decisions whose windows are open take in memory, nearly.", "",
     attrgetter("open_bytes")),
)  # fmt: skip
OF_SHARD: Table = (
    (GAUGE, "tacit_shard_up", "Whether the shard answers.", "", attrgetter("up")),
    (COUNTER, "tacit_shard_losses", "Losses of the shard.", "", attrgetter("losses")),
    (GAUGE, "tacit_shard_log_rows", "Rows of its log.", "",
     lambda shard: None if shard.health is None else shard.health.events),
    (GAUGE, "tacit_shard_waiting_requests", "Requests on their way to it.", "", attrgetter("waiting")),
)  # fmt: skip
OF_FEED: Table = (
    (COUNTER, "tacit_feed_events", "Events that a feed has read.", "", attrgetter("read")),
    (COUNTER, "tacit_feed_sent", "Events of a feed by what the service made of them.", "outcome",
     lambda feed: feed.sent.items()),
    (COUNTER, "tacit_feed_rejected", "Events of a feed that could not be sent, by reason.", "reason",
     lambda feed: feed.rejected.items()),
    (GAUGE, "tacit_feed_lag_seconds", "From the last event of a feed to its report.", "", attrgetter("lag")),
    (GAUGE, "tacit_feed_silent_seconds", "Since a feed that has not ended reported last.", "",
     lambda feed: None if feed.ended else feed.seconds),
)  # fmt: skip


# ---- The lift of placements with a holdout, computed at most once a minute

FRESH = 60.0
"""Seconds for which a computed lift is reused."""
AT_ONCE = 4
"""Lifts that one collection computes; the others keep their last values."""
MOST = 100
"""Placements whose lifts are shown, the first ones by name."""


class _CachedReport(NamedTuple):
    """A lift report and the time at which it was computed, in seconds of the monotonic clock."""

    time: float
    report: LiftReport


class LiftMetrics:
    """The lifts of placements with a holdout; ``copy_stale`` must be called before ``collect``.

    Parameters
    ----------
    engine : Engine
    now : function
        Returns seconds of a monotonic clock.
    """

    def __init__(self, engine: Engine, now: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._now = engine, now
        self._cached: dict[str, _CachedReport] = {}
        self._stale: dict[str, Placement] = {}

    def copy_stale(self) -> None:
        """Copy the placements with the most outdated lift reports, which ``collect`` reads in another thread.

        At most ``AT_ONCE`` are copied. Cached reports of removed placements are dropped. Call it in the event
        loop's thread.
        """
        placements = self._engine.placements
        names = sorted(name for name, placement in placements.items() if placement.holdout is not None)[:MOST]
        now = self._now()
        self._cached = {name: entry for name, entry in self._cached.items() if name in names}
        # Minus infinity if it was never computed.
        times = {name: getattr(self._cached.get(name), "time", float("-inf")) for name in names}
        stale = sorted((name for name in names if now - times[name] >= FRESH), key=times.__getitem__)
        self._stale = {name: placements[name].read_copy() for name in stale[:AT_ONCE]}

    def collect(self) -> Iterable[Family]:
        """Compute the lifts of the copied placements, and yield the metrics of all cached lifts."""
        return _collect_table(OF_LIFT, ["placement"], _label_by_name(self._compute_reports()))

    def _compute_reports(self) -> dict[str, LiftReport]:
        """Compute and cache the lift reports of the copied placements; return all cached reports by name."""
        now = self._now()
        for name, placement in self._stale.items():
            self._cached[name] = _CachedReport(now, make_lift_report(placement, self._engine.clock()))
        self._stale = {}
        return {name: self._cached[name].report for name in sorted(self._cached)}


def _label_ends(bounds: Bounds | None) -> list[tuple[str, float | None]]:
    """Return (name, value) pairs of an interval: estimate, low and high; empty without an interval."""
    return [] if bounds is None else [(end, getattr(bounds, end)) for end in ("estimate", "low", "high")]


OF_LIFT: Table = (
    (GAUGE, "tacit_lift_ratio",
     "Mean reward of the policy over that of the holdout's control, and its interval.", "bound",
     lambda report: _label_ends(report.ratio)),
    (GAUGE, "tacit_lift_difference",
     "Mean reward of the policy minus that of the holdout's control, and its interval.", "bound",
     lambda report: _label_ends(report.difference)),
    (GAUGE, "tacit_srm_alarm", "1 where traffic is not what holdout and propensities say.", "what",
     lambda report: [(srm.what, srm.alarm) for srm in report.srm]),
    (GAUGE, "tacit_srm_evidence", "Logarithm of the evidence for that; above 4.6 there is an alarm.", "what",
     lambda report: [(srm.what, srm.evidence) for srm in report.srm]),
    (GAUGE, "tacit_metric_harm", "1 where learning harms a metric that is watched.", "metric",
     lambda report: [(metric.name, metric.safety == "harm") for metric in report.metrics]),
    (GAUGE, "tacit_metric_silent", "1 where no amount of a metric has come for 100 decisions or more.",
     "metric", lambda report: [(metric.name, metric.silent) for metric in report.metrics]),
)  # fmt: skip
