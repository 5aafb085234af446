"""The command ``tacit feed``: send events from files or a topic to a running service."""

# 1. ``SourceOptions``, ``HistoryOptions``: options as dataclasses.
# 2. ``feed``: the command; it bootstraps from past events, checks a map, or feeds.
# 3. ``ProgressLine``: progress, once a second.

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from tacit.cli.options import File, Json, Map, NewFile, NewFolder, Typed, command, interruptible, show, usage
from tacit.cli.placement import connected
from tacit.core.text import escape_controls
from tacit.errors import needing

if TYPE_CHECKING:
    from tacit.feed.feeder import Limits
    from tacit.feed.mapping import Mapper
    from tacit.feed.sources import EventSource, Kept
    from tacit.feed.tally import FeedTally

CHECKED = 1000
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
    most_rejected: Annotated[str, Typed(metavar="SHARE")] = "5%"
    strict: bool = False
    wait: Annotated[float, click.FloatRange(0.0)] = 300.0
    name: str | None = None

    @contextmanager
    def open(self, place: str, *, once: bool, kept: "Kept" = lambda name: {}) -> "Iterator[EventSource]":
        """Open the source at a path or URL; with ``once``, a topic is read to its current end.

        For a topic, ``read_offsets`` returns the saved offsets of a feed, by its name.
        """
        from tacit.feed.sources import EventSource, events_at

        if place.startswith("kafka://"):
            source = self._topic(place, once, kept)
        elif self.properties is not None:
            raise click.UsageError("--properties: they are for kafka://HOST:PORT/TOPIC; leave them out")
        else:
            source = EventSource(events_at(place, self.format, follow=self.follow))
        with closing(source):
            yield source

    def _topic(self, place: str, once: bool, kept: "Kept") -> "EventSource":
        from tacit.feed.kafka import Topic
        from tacit.feed.kafka_topics import address_of, properties_of

        if self.format not in (None, "json"):
            raise click.UsageError("--format: a topic has JSON in its messages; leave it out")
        with usage():
            address, properties = address_of(place), properties_of(self.properties, os.environ)
        return Topic(address, properties, once=once, kept=kept)

    def limits(self) -> "Limits":
        """Return the limits of rejected events."""
        from tacit.feed.feeder import Limits

        return Limits(self.strict, share_of(self.most_rejected))


@dataclass(frozen=True, kw_only=True)
class PastOptions:
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
    output: Annotated[NewFolder, Typed(("-o", "--output"))] = Path("past")


# ---- The command


@command()
def feed(
    source: str | None = None,
    *,
    map: Map | None = None,
    url: str = "http://127.0.0.1:8787",
    key: str | None = None,
    reading: SourceOptions,
    past: PastOptions,
    check: bool = False,
    example: Literal["segment", "posthog", "posthog-webhook", "cloudevents", "ubi", "ga4"] | None = None,
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
        API key with the scope feedback; better set as TACIT_FEED_KEY.
    check
        Print how the first thousand events are mapped, and send nothing.
    example
        Print an example map for events of this system, and exit.
    """
    with needing("client"):
        from tacit.feed.event_map import example_map, map_at
        from tacit.feed.mapping import Mapper
    if example is not None:
        click.echo(example_map(example), nl=False)
        return
    if source is None or map is None:
        raise click.UsageError("give SOURCE and --map FEED.TOML; tacit feed --example segment prints a map")
    if reading.follow and reading.once:
        raise click.UsageError("--follow and --once: give one of them")
    if check and (reading.follow or reading.rejected):
        raise click.UsageError(
            "--check: it writes nothing and does not wait; leave out --follow and --rejected"
        )
    if not past.past and past != PastOptions():
        raise click.UsageError("--policy, --output: only with --past")
    if past.past and (check or reading.follow or reading.rejected):
        raise click.UsageError("--past: leave out --check, --follow and --rejected")
    same_file(source, reading.rejected)
    with usage():
        event_map = map_at(map)
    shown = event_map.shown
    if shown is not None and shown.elsewhere and shown.propensity is None:
        remedy = 'name the field that has it, or give "uniform" with the arms'
        click.echo(f"warning: shown.propensity: without it no lift will be known; {remedy}", err=True)
    if past.past:
        click.get_current_context().exit(_start(event_map, source, reading, past, as_json))
    mapper = Mapper(event_map)
    if check:
        _check(mapper, source, reading, as_json)
    else:
        click.get_current_context().exit(_feed(mapper, source, reading, (url, key), as_json))


def share_of(text: str) -> float:
    """Parse a share, such as ``5%`` or ``0.05``.

    Examples
    --------
    >>> share_of("5%"), share_of("0.05")
    (0.05, 0.05)
    """
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(%?)", text.strip())
    share = float("nan") if found is None else float(found[1]) / (100.0 if found[2] else 1.0)
    if not 0.0 <= share <= 1.0:
        raise click.UsageError(f"--most-rejected: {text!r} is no share; give one such as 5% or 0.05")
    return share


def name_of(source: str) -> str:
    """Return the default name of a feed.

    Examples
    --------
    >>> name_of("kafka://a:9092,b:9092/clicks?group=g"), name_of("/data/clicks.jsonl"), name_of("-")
    ('clicks', 'clicks.jsonl', 'standard input')
    """
    return "standard input" if source == "-" else Path(source.partition("?")[0]).name[-128:] or "events"


def same_file(source: str, rejected: Path | None) -> None:
    """Raise an error if the file of rejected events is part of the source."""
    if rejected is None or "://" in source or source == "-":
        return
    place = Path(source).resolve()
    if rejected.resolve() == place or (place.is_dir() and rejected.resolve().is_relative_to(place)):
        raise click.UsageError(f"--rejected: {rejected} is a part of SOURCE; give another file")


# ---- Actions: bootstrap, check, or feed


def _start(event_map: Any, source: str, reading: SourceOptions, past: PastOptions, as_json: bool) -> int:
    """Bootstrap from past events, print the result, and return the exit code."""
    with needing("service"):
        from tacit.feed.history_start import start
    if source == "-" or "://" in source:
        raise click.UsageError("--past: it reads events twice; give files or a folder")
    limits = reading.limits()
    most = 0.0 if limits.strict else limits.share
    with usage():
        made = start(event_map, source, reading.format, policy=past.policy, folder=past.output, most=most)
    show(made.as_dict(), made.summary(), as_json)
    return 0 if made.facts else REJECTED


def _check(mapper: "Mapper", source: str, reading: SourceOptions, as_json: bool) -> None:
    from tacit.feed.feeder import foreseen
    from tacit.feed.tally import FeedTally

    tally = FeedTally(mapper.doubts)
    lines = []
    with reading.open(source, once=True) as events:
        for line in foreseen(mapper, events, tally, CHECKED):
            if as_json:
                lines.append(line)
            else:
                click.echo(escape_controls(line))
    text = "nothing was sent; whether the service knows these decisions is said when they are fed"
    show(tally.as_dict() | {"events": lines}, f"{tally.summary()}\n{text}", as_json)


def _feed(
    mapper: "Mapper", source: str, reading: SourceOptions, service: tuple[str, str | None], as_json: bool
) -> int:
    """Feed a source, print the counts, and return the exit code."""
    from tacit.feed.feeder import Feeder, Reporter, Sender, TooManyRejected
    from tacit.feed.tally import FeedTally, RejectedFile

    tally, code, limits = FeedTally(mapper.doubts), 0, reading.limits()
    endless = reading.follow or (source.startswith("kafka://") and not reading.once)
    (url, key), line = service, ProgressLine(tally)
    with (
        RejectedFile(reading.rejected) as rejected,
        connected(url, key, timeout=TIMEOUT) as client,
        connected(url, key, timeout=REPORT_TIMEOUT, retries=0) as beside,
        interruptible() as stopping,
        nullcontext(Sender(client, reading.wait, stopping, line.waiting)) as sender,
        reading.open(source, once=reading.once, kept=sender.kept) as events,
    ):
        report = Reporter(beside, reading.name or name_of(source), tally)

        def progress() -> None:
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
    show(tally.as_dict(), tally.summary(), as_json)
    return code


# ---- The progress line


class ProgressLine:
    """A line on a terminal with a feed's progress, once a second."""

    def __init__(self, tally: "FeedTally") -> None:
        from tacit.core.parallel import is_watched

        self._tally = tally
        self._watched = is_watched()
        self._before = time.monotonic(), 0
        self._width = 0

    def __call__(self) -> None:
        """Show the progress if the last time is at least a second ago."""
        since, read = self._before
        now = time.monotonic()
        if not self._watched or now - since < 1.0:
            return
        tally, rate = self._tally, (self._tally.read - read) / (now - since)
        self._before = now, tally.read
        sent = tally.sent
        parts = [f"{tally.read:,} events", f"{rate:,.0f}/s", f"{sent['learned'] + sent['pending']:,} learned"]
        parts += [f"{sent[name]:,} {name}" for name in ("late", "duplicate") if sent[name]]
        parts += [f"{count:,} {reason}" for reason, count in tally.rejected.most_common(3)]
        parts += [] if tally.last is None else [f"lag {max(0.0, time.time() - tally.last):,.0f} s"]
        self._show(", ".join(parts))

    def waiting(self, why: str) -> None:
        """Show that the service does not answer; without a terminal, print a line for logs now and then."""
        if self._watched:
            self._show(f"waiting for the service: {why}")
        elif time.monotonic() - self._before[0] > 10.0:
            self._before = time.monotonic(), self._tally.read
            click.echo(f"waiting for the service: {why}", err=True)

    def clear(self) -> None:
        """Erase the line."""
        if self._width:
            self._show("")
            self._width = 0

    def _show(self, text: str) -> None:
        text = text[: shutil.get_terminal_size().columns - 1]
        click.echo(f"\r{text.ljust(self._width)}\r{text}", err=True, nl=False)
        self._width = len(text)
