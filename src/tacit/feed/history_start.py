"""Bootstrap from past events: write a click log, a configuration with priors, and a report."""

# 1. ``HistoryClicks``: converts past events to a click log.
# 2. ``write_start``: writes all files into one folder, without overwriting any.
# 3. The configuration with priors.
# 4. The report, an HTML page in a single file.

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from markupsafe import Markup

from tacit.errors import ConfigError, LogError
from tacit.feed.event_map import EventMap
from tacit.feed.history_facts import HistoryFacts, compute_facts
from tacit.feed.mapping import BadEvent, MappedEvent, Mapper
from tacit.feed.sources import SourceEvent, read_events
from tacit.feed.tally import DUPLICATE, FeedTally
from tacit.logs import write_log
from tacit.logs.schema import SCHEMA
from tacit.policies.spec import AUTO, policy_from_spec, policy_to_spec
from tacit.service.config.file import load_config
from tacit.service.page.charts import ChartLine, Point, Span, choose_ticks, draw_chart, format_time, percent
from tacit.wire.decisions import Event, Feedback, LocalDecision

# ---- Past events as a click log: impressions first, then their feedback

MAX_DECISIONS = 10**12
"""Most decisions in memory, to which events without an id are joined: in effect no limit."""
DECISION, REWARDED, METRIC, EXAMINED = "decision", "rewarded", "metric", "seen"
BATCH_ROWS = 65_536
"""Rows of a batch."""

Events = Callable[[], Iterable[SourceEvent | None]]
"""Returns the events from the beginning, at each call."""


def history_map(event_map: EventMap) -> EventMap:
    """Return a copy of the event map in which every impression is a decision of another system.

    Raises
    ------
    ConfigError
        If the map has no impressions, no time, or no reward of single arms.
    """
    shown_map = event_map.shown
    if shown_map is None or shown_map.arm is None:
        raise ConfigError("shown: a past is made of what was shown; give [shown] with where and arm")
    if event_map.time is None:
        raise ConfigError("time: a past needs to know when; name the field")
    if event_map.reward is None:
        raise ConfigError("reward: a past is judged by what single arms earned; give reward, not lists")
    return msgspec.structs.replace(event_map, shown=msgspec.structs.replace(shown_map, elsewhere=True))


class HistoryClicks:
    """Decisions and rewards of past events.

    Parameters
    ----------
    event_map : EventMap
        A map by which every impression is a decision.

    Attributes
    ----------
    tally : FeedTally
        Counts of the events by outcome.
    """

    def __init__(self, event_map: EventMap) -> None:
        self._mapper = Mapper(event_map, MAX_DECISIONS)
        self._number_by_id: dict[str, int] = {}
        self._rows: list[tuple[float, str, LocalDecision]] = []
        self._rewards: dict[int, float] = {}
        self._counted_feedback: set[tuple[int, str]] = set()
        self.tally = FeedTally(self._mapper.warnings)

    def read(self, events: Events) -> None:
        """Read all events twice: first impressions, then feedback, which may precede its impression.

        Decisions and rewards are stored; the tally counts each event, also those rejected.
        """
        for are_impressions, store in ((True, self._store_impression), (False, self._store_reward)):
            for source_event in filter(None, events()):
                if self._is_impression(source_event) == are_impressions:
                    self._store_event(source_event, store)

    def _is_impression(self, source_event: SourceEvent) -> bool:
        """True if an event is well-formed and, by the map, an impression."""
        return source_event.event is not None and self._mapper.is_impression(source_event.event)

    def _store_event(self, source_event: SourceEvent, store: Callable[[MappedEvent], str]) -> None:
        """Map an event and pass it to ``store``; count the outcome that it returns, or the rejection."""
        mapped = self.tally.map_event(self._mapper, source_event)
        if isinstance(mapped, MappedEvent):
            try:
                self.tally.sent[store(mapped)] += 1
            except BadEvent as error:
                self.tally.reject(source_event, error)

    def _store_impression(self, mapped: MappedEvent) -> str:
        """Store an impression as a decision; return the event's outcome: a decision, or a duplicate of one.

        Raises BadEvent if another impression has the same decision's id.
        """
        placement, decision, time = mapped
        assert isinstance(decision, LocalDecision)
        assert time is not None
        number = self._number_by_id.setdefault(f"{placement}\0{decision.decision_id}", len(self._rows))
        row = time, placement, decision
        if number < len(self._rows):
            if self._rows[number] != row:
                raise BadEvent("conflict", f"decision {decision.decision_id!r} has shown something else")
            return DUPLICATE
        self._rows.append(row)
        return DECISION

    def _store_reward(self, mapped: MappedEvent) -> str:
        """Store the reward of a feedback event's decision; return the event's outcome.

        Of several rewards the largest is kept. Repeated feedback, metrics and examinations are not stored.
        Raises BadEvent for an unknown decision.
        """
        placement, feedback, _ = mapped
        assert isinstance(feedback, Feedback | Event)
        number = self._number_by_id.get(f"{placement}\0{feedback.decision_id}")
        if number is None:
            raise BadEvent("unknown-decision", f"decision {feedback.decision_id!r}: it was never shown")
        if isinstance(feedback, Event):
            return EXAMINED
        if feedback.reward is None:
            return METRIC
        # As in the service, a feedback id is unique within a decision.
        feedback_key = number, str(feedback.feedback_id)
        if feedback_key in self._counted_feedback:
            return DUPLICATE
        self._counted_feedback.add(feedback_key)
        self._rewards[number] = max(feedback.reward, self._rewards.get(number, 0.0))
        return REWARDED

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the stored decisions and rewards as record batches of a click log, sorted by time.

        If an event does not name the arms on offer, these are all arms ever shown at its placement.

        Raises
        ------
        LogError
            If there was no impression.
        """
        if not self._rows:
            raise LogError("no event says what was shown; see shown.where in the map")
        arm_names: dict[str, dict[str, None]] = {}
        for _, placement, decision in self._rows:
            arm_names.setdefault(placement, {})[str(decision.arm)] = None
        arms = {placement: sorted(names) for placement, names in arm_names.items()}
        order = sorted(range(len(self._rows)), key=lambda number: self._rows[number][0])
        for first in range(0, len(order), BATCH_ROWS):
            rows = [self._make_row(number, arms) for number in order[first : first + BATCH_ROWS]]
            yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    def _make_row(self, number: int, arms: dict[str, list[str]]) -> dict[str, Any]:
        """Return the stored decision with the index ``number`` as a row of the click log.

        The reward is None without feedback. If the decision names no arms on offer, the row has the arms of
        its placement, from ``arms``.
        """
        time, placement, decision = self._rows[number]
        offered = arms[placement] if decision.arms is None else list(map(str, decision.arms))
        return {
            "timestamp": round(time * 1e6),
            "decision_id": decision.decision_id,
            "placement": placement,
            "key": decision.key,
            "arms": offered,
            "arm": str(decision.arm),
            "propensity": decision.propensity,
            "reward": self._rewards.get(number),
        }


# ---- Writing a click log, a configuration and a report into one folder

HOLDOUT = 0.1
"""Share of the traffic that is shown a random arm, so that lift can be measured from the first day."""
LOG, CONFIGURATION, REPORT = "clicks.parquet", "tacit.toml", "report.html"
MEANINGS = {
    DECISION: "say what was shown",
    REWARDED: "say what came back",
    DUPLICATE: "were there before",
    METRIC: "bring an amount alone, which nobody learns from here",
}


class HistoryStart(NamedTuple):
    """Result of a bootstrap from past events.

    Attributes
    ----------
    folder : path
    tally : FeedTally
        Counts of the events by outcome.
    facts : list of HistoryFacts
        Statistics of each placement; empty if nothing was written because too many events were rejected.
    """

    folder: Path
    tally: FeedTally
    facts: list[HistoryFacts]

    def as_dict(self) -> dict[str, Any]:
        """Return the counts of events and the statistics of each placement as a dict for JSON."""
        return self.tally.as_dict() | {"placements": [facts.as_dict() for facts in self.facts]}

    def summary(self) -> str:
        """Return the statistics, the rejected events and the written files in lines of text."""
        first = self.tally.first
        lines = [line for facts in self.facts for line in facts.lines()]
        lines += [
            f"{count:,} rejected, {reason}; the first in {first[reason].place}: {first[reason].detail}"
            for reason, count in self.tally.rejected.most_common()
        ]
        if not self.facts:
            return "\n".join([*lines, "nothing was made: mend the map or the source, or allow more"])
        return "\n".join([*lines, f"wrote {LOG}, {CONFIGURATION} and {REPORT} into {self.folder}"])


def write_start(
    event_map: EventMap,
    source: str,
    format: str | None,
    *,
    policy: str,
    folder: Path,
    max_rejected_share: float,
) -> HistoryStart:
    """Write a click log, a configuration with priors, and a report of past events; return their statistics.

    The folder is created if necessary. If too many events are rejected, nothing is written.

    Parameters
    ----------
    event_map : EventMap
    source : str
        Path of the files, as for a feed.
    format : str or None
        Format of the files.
    policy : str
        Name or call of a policy that accepts priors.
    folder : path
        Folder of the output.
    max_rejected_share : float
        Nothing is written if the share of rejected events is larger.

    Raises
    ------
    TacitError
        If the map is incomplete, the policy accepts no priors, a file cannot be read or written, or an output
        file exists.
    """
    for name in (LOG, CONFIGURATION, REPORT):
        if (folder / name).exists():
            raise ConfigError(f"output: {folder / name} is there already; give another folder, or remove it")
    policy_from_spec(_with_priors(policy, ["a", "b"], {"a": (1.0, 1.0)}), ["a", "b"])
    # Fails before a large file is read if the map is unfit.
    clicks = HistoryClicks(history_map(event_map))
    clicks.read(lambda: read_events(source, format))
    if clicks.tally.share > max_rejected_share:
        return HistoryStart(folder, clicks.tally, [])
    folder.mkdir(parents=True, exist_ok=True)
    write_log(clicks.batches(), folder / LOG)
    # Read back, so that the statistics describe the file as written.
    log = pq.read_table(folder / LOG)
    names = sorted(log["placement"].unique().to_pylist())
    facts = [compute_facts(log.filter(pc.equal(log["placement"], name)), name, policy) for name in names]
    (folder / CONFIGURATION).write_text(render_configuration(facts, policy, source), encoding="utf-8")
    # Check that the service accepts the configuration.
    load_config(folder / CONFIGURATION)
    (folder / REPORT).write_text(render_report(facts, clicks.tally, policy, source), encoding="utf-8")
    return HistoryStart(folder, clicks.tally, facts)


# ---- The configuration


def render_configuration(facts: list[HistoryFacts], policy: str, source: str) -> str:
    """Return the TOML text of a configuration of the service, with one placement per item of ``facts``.

    Each placement has its arms, the policy with priors, and a holdout of a tenth.
    """
    lines = [f"# By tacit feed --past {source!r}", "[server]", "port = 8787"]
    lines += ["", "[store]", 'path = "tacit.db"']
    for fact in facts:
        lines += [
            "",
            f"[placements.{_to_toml(fact.placement)}]",
            f"arms = {_to_toml(fact.offered)}",
            f"# What is known before: successes and failures, of {fact.max_prior:g} impressions at most.",
            f"policy = {_to_toml(_with_priors(policy, fact.offered, fact.priors()))}",
            "# A tenth is shown a random arm, so that what learning earns can be proved.",
            f'holdout = {{ share = {HOLDOUT}, control = "uniform" }}',
        ]
    return "\n".join(lines) + "\n"


def _with_priors(policy: str, arms: list[str], priors: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """Return a policy's specification as a dict for the configuration: without its arms, with ``priors``.

    ``priors`` are successes and failures by arm. Raises InvalidValue or UnknownName for an unknown policy.
    """
    if policy == AUTO:
        table: dict[str, Any] = {"name": AUTO}
    else:
        table = policy_to_spec(policy_from_spec(policy, arms))
        del table["arms"]
    return table | {"priors": priors}


def _to_toml(value: Any) -> str:
    """Return a dict, list, text or number as TOML on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_to_toml(name)} = {_to_toml(item)}" for name, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_to_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


# ---- The report: an HTML page in a single file


class Ruler(NamedTuple):
    """A scale from 0 to ``last``, its last tick, which places values in percent of its width."""

    last: float

    def format_position(self, value: float) -> str:
        """Return the position of a value on the scale as text, such as "12.50%"; clip values outside."""
        return f"{100.0 * min(max(value / self.last, 0.0), 1.0):.2f}%"


def scale_ruler(values: list[tuple[float, float]]) -> Ruler:
    """Return a scale from 0 to the largest upper limit, or to twice the largest value if that is less.

    ``values`` are pairs of a value and its upper limit. Wide intervals are cut, so that the values stay
    visible.
    """
    highest = max((value for value, _ in values), default=0.01)
    limit = max((high for _, high in values), default=0.01)
    return Ruler(choose_ticks(min(limit, 2.0 * highest or 0.01))[-1])


class HistoryView:
    """A placement's statistics for the report's template.

    Parameters
    ----------
    facts : HistoryFacts
    """

    def __init__(self, facts: HistoryFacts) -> None:
        self.facts = facts
        self.outlooks = facts.outlooks
        self.arm_scale = scale_ruler([(arm.mean, arm.high) for arm in facts.arms])
        values = [(row.value, row.high) for row in facts.outlooks if row.value is not None]
        self.value_scale = scale_ruler(values)

    @property
    def since(self) -> str:
        """First and last time of the log as text: "… to … UTC"."""
        # Periods without decisions are left out, but never the first and the last one.
        begin, end = self.facts.periods[0].begin, self.facts.periods[-1].end
        return f"{format_time(begin)} to {format_time(end)} UTC"

    @property
    def verdict(self) -> str:
        """One sentence that compares the policy's estimated reward with the logged one.

        If propensities were estimated, it begins with "If that is right".
        """
        logged_mean = self.facts.mean
        policy = self.outlooks[2] if len(self.facts.offered) > 1 else None
        if policy is None or policy.value is None:
            return "The past does not say what learning would have earned."
        policy_text, logged_text = percent(policy.value), percent(logged_mean)
        text = f"learning would have earned {policy_text} per decision, where it was {logged_text}: "
        if policy.low > logged_mean:
            text += "more than chance explains."
        elif policy.high < logged_mean:
            text += "less, and chance does not explain it."
        else:
            text += "chance may explain the difference."
        return text.capitalize() if self.facts.has_all_propensities else f"If that is right, {text}"

    @property
    def doubts(self) -> list[str]:
        """Warnings about the estimates, each once, and about arms with an effective sample size below 100."""
        messages = list(dict.fromkeys(doubt for row in self.outlooks for doubt in row.doubts))
        uncertain_arms = [arm.name for arm in self.facts.arms if arm.effective < 100.0]
        if uncertain_arms:
            names = f"{', '.join(uncertain_arms[:5])}{', …' if len(uncertain_arms) > 5 else ''}"
            messages.append(f"{names}: fewer than 100 decisions count, so their figures may be luck")
        return messages

    def chart(self) -> Markup:
        """Return an SVG chart of the mean reward per period, with its intervals."""
        periods = self.facts.periods
        points = [Point(row.begin, row.end, row.mean, row.low, row.high, row.decisions) for row in periods]
        span = Span(periods[0].begin, periods[-1].end)
        summary = f"from {percent(points[0].value)} to {percent(points[-1].value)}"
        return draw_chart([ChartLine("reward", "learned", points)], span, "Rewards over time", summary)


def render_report(facts: list[HistoryFacts], tally: FeedTally, policy: str, source: str) -> str:
    """Return the report of all placements as the text of an HTML page; nothing is written.

    Parameters
    ----------
    facts : list of HistoryFacts
    tally : FeedTally
        Counts of the events by outcome.
    policy : str
    source : str
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tacit.feed", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "grouped": lambda number: f"{number:,}"}
    style = Markup((Path(__file__).parents[1] / "service/page/static/page.css").read_text("utf-8"))  # noqa: S704
    return environment.get_template("report.html").render(
        pasts=list(map(HistoryView, facts)), tally=tally, meanings=MEANINGS, policy=policy, source=source,
        style=style,
    )  # fmt: skip
