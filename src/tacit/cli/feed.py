"""The command ``tacit feed``: send events from files or a topic to a running service."""

# 1. ``SourceOptions``, ``HistoryOptions``: options as dataclasses.
# 2. ``feed``: the command; it bootstraps from past events, checks a map, or feeds.
# 3. ``ProgressLine``: progress, once a second.

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from tacit.cli.options import (
    KEY_VARIABLE,
    File,
    Json,
    Map,
    NewFile,
    NewFolder,
    OptionFormat,
    command,
    interruptible,
    parse_share,
    print_result,
    usage_errors,
)
from tacit.cli.placement import open_client
from tacit.core.text import escape_controls
from tacit.errors import TooManyRejected, require_extra

if TYPE_CHECKING:
    from tacit.feed.feeder import Limits
    from tacit.feed.mapping import Mapper
    from tacit.feed.sources import EventSource, OffsetReader
    from tacit.feed.tally import FeedTally

Example = Literal[
    "segment", "posthog", "posthog-webhook", "cloudevents", "ubi", "ga4", "metarank", "ubi-lists", "ga4-lists"
]
CHECKED_EVENTS = 1000
"""Number of events that ``--check`` reads."""
REJECTED, INTERRUPTED = 3, 130
"""Exit codes."""
TIMEOUT, REPORT_TIMEOUT = 30.0, 2.0
"""Timeouts of a batch and of a report, in seconds."""


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Options of how events are read, and when reading ends.

    Parameters
    ----------
    format
        Format of the files.  [default: from the suffix]
    follow
        Wait for more events at the end, until Ctrl-C; a topic is always followed.
    once
        Read a topic to its current end, and stop.
    properties
        File of librdkafka's properties for a topic, name=value on each line; or use variables such as
        TACIT_KAFKA_SASL_PASSWORD.
    rejected
        File to which rejected events are appended, with the reason; it can be fed again.
    most_rejected
        Largest share of rejected events, after the first thousand or at the end; more is exit code 3.
    strict
        Stop at the first rejected event, with exit code 3.
    wait
        Seconds without an answer after which the feed fails.
    name
        Name of the feed on the page and in the metrics of the service.  [default: from the source]
    """

    format: Literal["json", "csv", "parquet"] | None = None
    follow: bool = False
    once: bool = False
    properties: File | None = None
    rejected: NewFile | None = None
    most_rejected: Annotated[str, OptionFormat(metavar="SHARE")] = "5%"
    strict: bool = False
    wait: Annotated[float, click.FloatRange(0.0)] = 300.0
    name: str | None = None

    @contextmanager
    def open(
        self, url: str, *, once: bool, read_offsets: "OffsetReader" = lambda name: {}
    ) -> "Iterator[EventSource]":
        """Open the source at a path or URL within the ``with`` block; with ``once``, read a topic to its end.

        For a topic, ``read_offsets`` returns the saved offsets of a feed, by its name.
        """
        from tacit.feed.sources import EventSource, read_events

        if url.startswith("kafka://"):
            source = self._open_topic(url, once, read_offsets)
        elif self.properties is not None:
            raise click.UsageError("--properties: they are for kafka://HOST:PORT/TOPIC; leave them out")
        else:
            source = EventSource(read_events(url, self.format, follow=self.follow))
        with closing(source):
            yield source

    def _open_topic(self, url: str, once: bool, read_offsets: "OffsetReader") -> "EventSource":
        """Return the source of a Kafka topic; raise a usage error for a wrong address, property or format."""
        from tacit.feed.kafka import Topic
        from tacit.feed.kafka_topics import parse_address, read_properties

        if self.format not in (None, "json"):
            raise click.UsageError("--format: a topic has JSON in its messages; leave it out")
        with usage_errors():
            address, properties = parse_address(url), read_properties(self.properties, os.environ)
        return Topic(address, properties, until_end=once, read_offsets=read_offsets)

    def make_limits(self) -> "Limits":
        """Return the limits of rejected events beyond which a feed stops."""
        from tacit.feed.feeder import Limits

        return Limits(self.strict, parse_share(self.most_rejected))


@dataclass(frozen=True, kw_only=True)
class HistoryOptions:
    """Options of the bootstrap from past events.

    Parameters
    ----------
    past
        Bootstrap from past events instead of sending them: write a click log, estimates of what a random
        arm and the policy would have earned, a configuration with priors, and a report.
    policy
        With --past: name or call of a policy that accepts priors.
    output
        With --past: the output folder.
    """

    past: bool = False
    policy: str = "auto"
    output: Annotated[NewFolder, OptionFormat(("-o", "--output"))] = Path("past")


# ---- The command


@command()
def feed(
    source: str | None = None,
    *,
    map: Map | None = None,
    url: str = "http://127.0.0.1:8787",
    key: Annotated[str, OptionFormat(envvar=("TACIT_FEED_KEY", KEY_VARIABLE))] | None = None,
    reading: SourceOptions,
    past: HistoryOptions,
    check: bool = False,
    example: Example | None = None,
    as_json: Json = False,
) -> None:
    """Send the events in SOURCE to a running service as feedback on its decisions, each once.

    SOURCE is a file or folder of JSON lines, CSV or Parquet, compressed or not; - for JSON lines on
    standard input; or kafka://HOST:PORT/TOPIC?group=NAME, a topic of JSON. Events that are fed again change
    nothing. Exit code 3: too many events were rejected.

    Parameters
    ----------
    map
        TOML file that maps fields of events to feedback; begin with --example.
    url
        Address of the service.
    key
        API key with the scope feedback; better set as TACIT_KEY.
    check
        Print how the first thousand events are mapped, and send nothing.
    example
        Print an example map for events of this system, and exit.
    """
    with require_extra("client"):
        from tacit.feed.event_map import example_map, load_map
        from tacit.feed.mapping import Mapper
    if example is not None:
        click.echo(example_map(example), nl=False)
        return
    if source is None or map is None:
        raise click.UsageError("give SOURCE and --map FEED.TOML; tacit feed --example segment prints a map")
    if reading.follow and reading.once:
        raise click.UsageError("--follow and --once: give one of them")
    if check and (reading.follow or reading.rejected):
        message = "--check: it writes nothing and does not wait; leave out --follow and --rejected"
        raise click.UsageError(message)
    if not past.past and past != HistoryOptions():
        raise click.UsageError("--policy, --output: only with --past")
    if past.past and (check or reading.follow or reading.rejected):
        raise click.UsageError("--past: leave out --check, --follow and --rejected")
    refuse_same_file(source, reading.rejected)
    with usage_errors():
        event_map = load_map(map)
        if not past.past:
            event_map.check_live()
    shown_map = event_map.shown
    if shown_map is not None and shown_map.elsewhere and shown_map.arm and shown_map.propensity is None:
        remedy = 'name the field that has it, or give "uniform" with the arms'
        click.echo(f"warning: shown.propensity: without it no lift will be known; {remedy}", err=True)
    if past.past:
        click.get_current_context().exit(_bootstrap(event_map, source, reading, past, as_json))
    mapper = Mapper(event_map)
    if check:
        _preview_map(mapper, source, reading, as_json)
    else:
        click.get_current_context().exit(_send_events(mapper, source, reading, (url, key), as_json))


def default_name(source: str) -> str:
    """Return the default name of a feed: the last part of its source's path or URL.

    Examples
    --------
    >>> default_name("kafka://a:9092,b:9092/clicks?group=g")
    'clicks'
    >>> default_name("/data/clicks.jsonl"), default_name("-")
    ('clicks.jsonl', 'standard input')
    """
    return "standard input" if source == "-" else Path(source.partition("?")[0]).name[-128:] or "events"


def refuse_same_file(source: str, rejected: Path | None) -> None:
    """Raise click.UsageError if the file of rejected events is the source or lies in its folder."""
    if rejected is None or "://" in source or source == "-":
        return
    place = Path(source).resolve()
    if rejected.resolve() == place or (place.is_dir() and rejected.resolve().is_relative_to(place)):
        raise click.UsageError(f"--rejected: {rejected} is a part of SOURCE; give another file")


# ---- Actions: bootstrap, check, or feed


def _bootstrap(
    event_map: Any, source: str, reading: SourceOptions, past: HistoryOptions, as_json: bool
) -> int:
    """Write the files of a bootstrap from past events, print the result, and return the exit code.

    The exit code is 3, and nothing is written, if too many events are rejected.
    """
    with require_extra("service"):
        from tacit.feed.history_start import write_start
    if source == "-" or "://" in source:
        raise click.UsageError("--past: it reads events twice; give files or a folder")
    limits = reading.make_limits()
    max_rejected = 0.0 if limits.strict else limits.share
    with usage_errors():
        result = write_start(
            event_map,
            source,
            reading.format,
            policy=past.policy,
            folder=past.output,
            max_rejected_share=max_rejected,
        )
    print_result(result.as_dict(), result.summary(), as_json)
    return 0 if result.facts else REJECTED


def _preview_map(mapper: "Mapper", source: str, reading: SourceOptions, as_json: bool) -> None:
    """Print the messages of the first thousand events, and their counts; send nothing."""
    from tacit.feed.feeder import preview_events
    from tacit.feed.tally import FeedTally

    tally = FeedTally(mapper.warnings)
    lines = []
    with reading.open(source, once=True) as events:
        for line in preview_events(mapper, events, tally, CHECKED_EVENTS):
            if as_json:
                lines.append(line)
            else:
                click.echo(escape_controls(line))
    text = "nothing was sent; whether the service knows these decisions is said when they are fed"
    print_result(tally.as_dict() | {"events": lines}, f"{tally.summary()}\n{text}", as_json)


def _send_events(
    mapper: "Mapper", source: str, reading: SourceOptions, service: tuple[str, str | None], as_json: bool
) -> int:
    """Send all events of a source to the service, print the counts, and return the exit code.

    The exit code is 3 after too many rejected events, and 130 after an interrupt of a feed that has an end.
    """
    from tacit.feed.feeder import Feeder, Reporter, Sender
    from tacit.feed.tally import FeedTally, RejectedFile

    tally, code, limits = FeedTally(mapper.warnings), 0, reading.make_limits()
    endless = reading.follow or (source.startswith("kafka://") and not reading.once)
    (url, key), line = service, ProgressLine(tally)
    with (
        RejectedFile(reading.rejected) as rejected,
        open_client(url, key, timeout=TIMEOUT) as client,
        open_client(url, key, timeout=REPORT_TIMEOUT, retries=0) as report_client,
        interruptible() as stopping,
        # A context of its own, since the source, opened next, reads its offsets by the sender.
        nullcontext(Sender(client, reading.wait, stopping, line.show_waiting)) as sender,
        reading.open(source, once=reading.once, read_offsets=sender.read_offsets) as events,
    ):
        report = Reporter(report_client, reading.name or default_name(source), tally)

        def progress() -> None:
            """Update the line on the terminal, and send the service a report if one is due."""
            line()
            report()

        feeder = Feeder(events, mapper, sender, tally, rejected, limits, stopping, progress)
        try:
            feeder.feed()
        except TooManyRejected as error:
            line.clear()
            click.echo(escape_controls(f"error: {error}"), err=True)
            code = REJECTED
        except BaseException:
            line.clear()
            if tally.read:
                summary = escape_controls(tally.summary())
                click.echo(f"{summary}\nfeed it again: what is sent counts once", err=True)
            raise
        line.clear()
        report(ended=True)
        if stopping():
            click.echo("interrupted after a whole batch; feed it again to go on", err=True)
            code = code or (0 if endless else INTERRUPTED)
    print_result(tally.as_dict(), tally.summary(), as_json)
    return code


# ---- The progress line


class ProgressLine:
    """A line on a terminal with a feed's progress, once a second."""

    def __init__(self, tally: "FeedTally") -> None:
        from tacit.core.parallel import is_watched

        self._tally = tally
        self._is_terminal = is_watched()
        self._last_shown = time.monotonic(), 0
        self._width = 0

    def __call__(self) -> None:
        """Show counts, rate and lag on the terminal if the last time is at least a second ago."""
        last_time, last_read = self._last_shown
        now = time.monotonic()
        if not self._is_terminal or now - last_time < 1.0:
            return
        tally, rate = self._tally, (self._tally.read - last_read) / (now - last_time)
        self._last_shown = now, tally.read
        sent = tally.sent
        parts = [f"{tally.read:,} events", f"{rate:,.0f}/s", f"{sent['learned'] + sent['pending']:,} learned"]
        parts += [f"{sent[name]:,} {name}" for name in ("late", "duplicate") if sent[name]]
        parts += [f"{count:,} {reason}" for reason, count in tally.rejected.most_common(3)]
        parts += [] if tally.last is None else [f"lag {max(0.0, time.time() - tally.last):,.0f} s"]
        self._show(", ".join(parts))

    def show_waiting(self, reason: str) -> None:
        """Show that the service does not answer; without a terminal, print a line for logs now and then."""
        if self._is_terminal:
            self._show(f"waiting for the service: {reason}")
        elif time.monotonic() - self._last_shown[0] > 10.0:
            self._last_shown = time.monotonic(), self._tally.read
            click.echo(f"waiting for the service: {reason}", err=True)

    def clear(self) -> None:
        """Erase the line from the terminal, if it is shown."""
        if self._width:
            self._show("")
            self._width = 0

    def _show(self, text: str) -> None:
        """Replace the line on the terminal by a text, cut to its width."""
        text = text[: shutil.get_terminal_size().columns - 1]
        click.echo(f"\r{text.ljust(self._width)}\r{text}", err=True, nl=False)
        self._width = len(text)
