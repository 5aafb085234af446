"""Bootstrap from past events: write a click log, a configuration with priors, and a report."""

# 1. ``HistoryClicks``: converts past events to a click log.
# 2. ``write_start``: writes all files into one folder, without overwriting any.
# 3. The configuration with priors.
# 4. The report, an HTML page in a single file.

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import jinja2
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from markupsafe import Markup

from tacit.errors import ConfigError, InvalidValue, LogError
from tacit.feed.event_map import EventMap
from tacit.feed.history_facts import HistoryFacts, compute_facts, compute_list_facts
from tacit.feed.mapping import BadEvent, MappedEvent, Mapper, PastList, compile_path
from tacit.feed.sources import SourceEvent, read_events
from tacit.feed.tally import DUPLICATE, FeedTally
from tacit.learning.learner import Learner
from tacit.logs import write_log
from tacit.logs.schema import SCHEMA
from tacit.policies.actions import SlatePolicy
from tacit.policies.spec import AUTO, policy_from_spec, policy_to_spec
from tacit.service.config.file import load_config
from tacit.service.page.charts import ChartLine, Point, Span, choose_ticks, draw_chart, format_time, percent
from tacit.wire.decisions import Event, Feedback, LocalDecision
from tacit.wire.lists import Clicks

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
        If the map has no impressions or no time, or rewards of lists for single arms or the reverse.
    """
    shown_map = event_map.shown
    if shown_map is None or (shown_map.arm is None and shown_map.items is None):
        raise ConfigError("shown: past decisions are read by it; give [shown] with where, arm or items")
    if event_map.time is None:
        raise ConfigError("time: a past needs to know when; name the field")
    is_clicked = event_map.items is not None or event_map.clicks is not None
    if is_clicked != (shown_map.items is not None):
        ours, remedy = ("single arms", "reward alone") if is_clicked else ("lists", "items or clicks, too")
        raise ConfigError(f"reward: a past of {ours} is judged by what each earned; give {remedy}")
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
        self._clicked_field = event_map.clicks or event_map.items
        self._each = event_map.each
        self._number_by_id: dict[str, int] = {}
        self._rows: list[tuple[float, str, LocalDecision | PastList]] = []
        # Of a decision and an item of its list; of one without a list, of item 0.
        self._rewards: dict[tuple[int, int], float] = {}
        self._counted_feedback: set[tuple[int, int, str]] = set()
        self.tally = FeedTally(self._mapper.warnings)

    def read(self, events: Events) -> None:
        """Read all events twice: first impressions, then feedback, which may precede its impression.

        Decisions and rewards are stored; the tally counts each event, also those rejected.
        """
        for are_impressions, store in ((True, self._store_impression), (False, self._store_reward)):
            for source_event in filter(None, events()):
                if self._is_impression(source_event) == are_impressions:
                    for part in [source_event] if are_impressions else self._divide_event(source_event):
                        self._store_event(part, store)

    def _divide_event(self, source_event: SourceEvent) -> list[SourceEvent]:
        """Return one event for each element of the map's field ``each``; the event itself without it."""
        event, field = source_event.event, self._each
        elements = None if field is None or event is None else compile_path(field)(event)
        if event is None or field is None or not isinstance(elements, list) or not elements:
            return [source_event]
        return [source_event._replace(event=event | {field: element}) for element in elements]

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
        assert isinstance(decision, LocalDecision | PastList)
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
        """Store the reward of a decision or of items of its list, the largest of several; return the outcome.

        Raises BadEvent for an unknown decision or item. Repeated feedback, metrics and examinations change
        nothing.
        """
        placement, feedback, _ = mapped
        assert isinstance(feedback, Feedback | Event | Clicks)
        number = self._number_by_id.get(f"{placement}\0{feedback.decision_id}")
        if number is None:
            raise BadEvent("unknown-decision", f"decision {feedback.decision_id!r}: it was never shown")
        if isinstance(feedback, Event):
            return EXAMINED
        if isinstance(feedback, Clicks):
            rewards = self._list_rewards(number, feedback)
        else:
            rewards = {0: feedback.reward}
        outcome = DUPLICATE
        for index, reward in rewards.items():
            if reward is None:
                return METRIC
            # As in the service, a feedback id is unique within a decision; an event may be divided by items.
            feedback_key = number, index, str(feedback.feedback_id)
            if feedback_key not in self._counted_feedback:
                self._counted_feedback.add(feedback_key)
                self._rewards[number, index] = max(reward, self._rewards.get((number, index), 0.0))
                outcome = REWARDED
        return outcome

    def _list_rewards(self, number: int, clicks: Clicks) -> dict[int, float | None]:
        """Return the reward of each clicked item of a decision's list, by its index in the list.

        Raises BadEvent if the list has no such item or position.
        """
        past_list: Any = self._rows[number][2]
        # Events may have ids as text where the list has numbers.
        shown = list(map(str, past_list.positions if clicks.items is None else past_list.items))
        clicked = list(map(str, clicks.clicks if clicks.items is None else clicks.items))  # type: ignore[arg-type]
        rewards: dict[int, float | None] = {}
        for place, reward in zip(clicked, clicks.rewards or [1.0] * len(clicked), strict=True):
            if place not in shown:
                detail = f"{place} is not in the list of decision {clicks.decision_id!r}"
                raise BadEvent("not-shown", f"{self._clicked_field}: {detail}")
            rewards[shown.index(place)] = reward
        return rewards

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
        if self._clicked_field and not self._rewards and self.tally.left_out:
            reason, count = self.tally.skip_reasons.most_common(1)[0]
            raise LogError(f"no event is of an item that a list showed; {count:,} are left out: {reason}")
        arm_names: dict[str, dict[str, None]] = {}
        for _, placement, decision in self._rows:
            if isinstance(decision, LocalDecision):
                arm_names.setdefault(placement, {})[str(decision.arm)] = None
        arms = {placement: sorted(names) for placement, names in arm_names.items()}
        order = sorted(range(len(self._rows)), key=lambda number: self._rows[number][0])
        for first in range(0, len(order), BATCH_ROWS):
            numbers = order[first : first + BATCH_ROWS]
            rows = [row for number in numbers for row in self._make_rows(number, arms)]
            yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    def _make_rows(self, number: int, arms: dict[str, list[str]]) -> list[dict[str, Any]]:
        """Return the stored decision of a number as rows of the click log, one for each item of a list.

        A reward is None without feedback, of an item 0. If the decision has no arms on offer, a row has the
        arms of its placement, from ``arms``, or the list.
        """
        time, placement, decision = self._rows[number]
        shared: dict[str, Any] = {
            "timestamp": round(time * 1e6),
            "decision_id": decision.decision_id,
            "placement": placement,
            "key": decision.key,
        }
        if isinstance(decision, LocalDecision):
            offered = arms[placement] if decision.arms is None else list(map(str, decision.arms))
            row = {"arms": offered, "arm": str(decision.arm), "propensity": decision.propensity}
            return [shared | row | {"reward": self._rewards.get((number, 0))}]
        shared["arms"] = items = list(map(str, decision.items))
        return [
            shared | {"arm": item, "position": position, "reward": self._rewards.get((number, i), 0.0)}
            for i, (item, position) in enumerate(zip(items, decision.positions, strict=True))
        ]

    def make_search_rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row of each item of a list whose rankers are known, with its ranker as ``team``."""
        for number, (_, _, past_list) in enumerate(self._rows):
            if isinstance(past_list, PastList) and past_list.teams is not None:
                search = {"search": past_list.decision_id, "user": past_list.user}
                for i, (item, team) in enumerate(zip(past_list.items, past_list.teams, strict=True)):
                    reward = self._rewards.get((number, i), 0.0)
                    row = {"position": i + 1, "item": str(item), "team": team, "click": int(reward > 0.0)}
                    yield search | row | {"amount": reward}


# ---- Writing a click log, a configuration and a report into one folder

HOLDOUT = 0.1
"""Share of the traffic that is shown a random arm, so that lift can be measured from the first day."""
LOG, CONFIGURATION, REPORT = "clicks.parquet", "tacit.toml", "report.html"
SEARCHES = "searches.parquet"
"""Lists of two rankers, for ``tacit duel``."""
OUTPUTS = LOG, CONFIGURATION, REPORT, SEARCHES
SUFFIXES = {".parquet", ".toml", ".html", ".tacit"}
MAX_POSITIONS = 100
MAX_LEARNED = 1_000_000
"""Most keys times items of lists of which a learner is written."""
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
            f"{number:,} rejected, {reason}; the first in {first[reason].place}: {first[reason].detail}"
            for reason, number in self.tally.rejected.most_common()
        ]
        if self.tally.left_out:
            lines.append(f"{self.tally.left_out:,} left out by the map, or of no list")
        if not self.facts:
            return "\n".join([*lines, "nothing was made: mend the map or the source, or allow more"])
        *names, last = sorted(path.name for path in self.folder.iterdir() if path.suffix in SUFFIXES)
        return "\n".join([*lines, f"wrote {', '.join(names)} and {last} into {self.folder}"])


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
    for name in OUTPUTS:
        if (folder / name).exists():
            raise ConfigError(f"output: {folder / name} is there already; give another folder, or remove it")
    # Fails before a large file is read if the map or the policy is unfit.
    clicks = HistoryClicks(history_map(event_map))
    shows_lists = event_map.shown is not None and event_map.shown.items is not None
    if shows_lists:
        make_list_policy(policy, ["a", "b"], 2)
    else:
        policy_from_spec(_with_priors(policy, ["a", "b"], {"a": (1.0, 1.0)}), ["a", "b"])
    clicks.read(lambda: read_events(source, format))
    if clicks.tally.share > max_rejected_share:
        return HistoryStart(folder, clicks.tally, [])
    folder.mkdir(parents=True, exist_ok=True)
    write_log(clicks.batches(), folder / LOG)
    # Read back, so that the statistics describe the file as written.
    log = pq.read_table(folder / LOG)
    names = sorted(log["placement"].unique().to_pylist())
    logs = {name: log.filter(pc.equal(log["placement"], name)) for name in names}
    if searches := list(clicks.make_search_rows()):
        pq.write_table(pa.Table.from_pylist(searches), folder / SEARCHES)
    if shows_lists:
        facts = [compute_list_facts(part, name) for name, part in logs.items()]
        tables = [_make_list_table(fact, logs[fact.placement], policy, folder) for fact in facts]
    else:
        facts = [compute_facts(part, name, policy) for name, part in logs.items()]
        tables = [_make_arm_table(fact, policy) for fact in facts]
    (folder / CONFIGURATION).write_text(render_configuration(facts, tables, source), encoding="utf-8")
    # Check that the service accepts the configuration.
    load_config(folder / CONFIGURATION)
    (folder / REPORT).write_text(render_report(facts, clicks.tally, policy, source), encoding="utf-8")
    return HistoryStart(folder, clicks.tally, facts)


# ---- The configuration


def render_configuration(facts: list[HistoryFacts], tables: list[list[str]], source: str) -> str:
    """Return the TOML text of a configuration of the service, with one placement per item of ``facts``.

    Each placement has its arms, the lines of its table, and a holdout of a tenth.
    """
    lines = [f"# By tacit feed --past {source!r}", "[server]", "port = 8787"]
    lines += ["", "[store]", 'path = "tacit.db"']
    for fact, table in zip(facts, tables, strict=True):
        lines += [
            "",
            f"[placements.{_to_toml(fact.placement)}]",
            f"arms = {_to_toml(fact.offered)}",
            *table,
            "# A tenth is shown a random arm, so that what learning earns can be proved.",
            f'holdout = {{ share = {HOLDOUT}, control = "uniform" }}',
        ]
    return "\n".join(lines) + "\n"


def _make_arm_table(fact: HistoryFacts, policy: str) -> list[str]:
    """Return the lines of a placement's table with its policy and priors."""
    return [
        f"# What is known before: successes and failures, of {fact.max_prior:g} impressions at most.",
        f"policy = {_to_toml(_with_priors(policy, fact.offered, fact.priors()))}",
    ]


def _make_list_table(fact: HistoryFacts, log: pa.Table, policy: str, folder: Path) -> list[str]:
    """Return the lines of the table of a placement of lists; write the learner from which it starts.

    Where keys and items are too many, there is no learner, and the placement starts without one.
    """
    positions = min(fact.positions, MAX_POSITIONS)
    table = policy_to_spec(made := make_list_policy(policy, fact.offered, positions))
    del table["arms"], table["positions"]
    lines = ['kind = "slates"', f"positions = {positions}"]
    lines += [] if policy == AUTO else [f"policy = {_to_toml(table)}"]
    if fact.keys * len(fact.offered) > MAX_LEARNED:
        return [*lines, "# Nothing is known before: keys and items are too many to learn one by one."]
    path = folder / f"{quote(fact.placement, safe='')}.tacit"
    Learner(made, seed=1).fit_log(log.filter(pc.less(log["position"], positions))).save(path)
    return [*lines, f"# What is known before, as tacit fit learns {LOG}.", f"start = {_to_toml(path.name)}"]


def make_list_policy(policy: str, arms: list[str], positions: int) -> SlatePolicy:
    """Return a policy that shows lists of a length, by its name or call.

    Raises
    ------
    InvalidValue
        If it shows something else.
    """
    made = policy_from_spec(policy, arms, setting={"shows": "slate", "positions": positions})
    if not isinstance(made, SlatePolicy):
        raise InvalidValue("policy", policy, "the events show lists; give a policy of lists: list-mix")
    return replace(made, positions=positions)  # type: ignore[call-arg]


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
        policy = self.outlooks[2] if len(self.outlooks) > 2 else None
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
