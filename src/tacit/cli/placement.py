"""A placement of a running service: ``tacit lift``, what it earned; ``placement``, by hand; ``items``.

What a placement earned; each way to turn it, a command for a verb; last, its catalogue of items.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from tacit.cli.options import Existing, Json, Typed, command, show, usage
from tacit.core.spread import progress
from tacit.errors import MissingExtra

if TYPE_CHECKING:
    from tacit.wire.lift import Bounds, ChapterLift

LONGEST = 86_400.0
"""Seconds that a rebuild may take."""


def connected(url: str, key: str | None, **options: Any) -> Any:
    """Return a client of the service."""
    try:
        from tacit.client import Client
    except ImportError as error:
        raise MissingExtra(error.name or "the client", "client") from error
    return Client(url, key, **options)


def show_answer(answer: Any, text: str, as_json: bool) -> None:
    """Print what the service answered."""
    import msgspec

    show(msgspec.to_builtins(answer), text, as_json)


@dataclass(frozen=True, kw_only=True)
class LiftOptions:
    """What a lift is asked for, by the names that the client has for it.

    Parameters
    ----------
    confidence
        Of the intervals, at whatever time they are looked at.
    control
        In place of the holdout, what propensities compare with: uniform, or 'arm NAME'.
    begin
        Only decisions from then on: a day, or a chapter's number.
    end
        Only decisions before then, or to that chapter's end.
    shown
        The lift that the planner asks about: 0.1 is 10 %.
    share
        The control's share that it reckons with.
    rate
        The mean reward that it reckons with, such as 0.05.
    daily
        The decisions a day that it reckons with.
    """

    confidence: Literal["0.9", "0.95", "0.99"] = "0.95"
    control: str | None = None
    begin: Annotated[str, Typed(("--from",))] | None = None
    end: Annotated[str, Typed(("--to",))] | None = None
    shown: float | None = None
    share: float | None = None
    rate: float | None = None
    daily: float | None = None


@command(configured=True)
def lift(
    placement: str,
    options: LiftOptions,
    *,
    url: str = "http://127.0.0.1:8787",
    key: str | None = None,
    as_json: Json = False,
) -> None:
    """Say what learning earned more than a control, at a PLACEMENT of a running service.

    Parameters
    ----------
    url
        Where the service answers.
    key
        API key with the scope read; better in TACIT_LIFT_KEY.
    """
    with connected(url, key) as client:
        found = client.lift(placement, **vars(options) | {"confidence": float(options.confidence)})
    lines = [found.verdict, found.counted]
    if found.look is not None:
        lines.append(found.look.verdict)
    for name, interval in (("ratio", found.ratio), ("difference", found.difference)):
        if interval is not None:
            ends = [number(x) for x in (interval.estimate, interval.low, interval.high)]
            lines.append("{}: {}, between {} and {}".format(name, *ends))
    for group, counts in found.groups.items():
        earned = f"{counts.decisions:,} decisions, {counts.rewards:,.6g} rewards"
        lines.append(f"{group}: {earned}")
    if len(found.chapters) > 1 or any(len(each.parts) > 1 for each in found.chapters):
        lines += [line for each in found.chapters for line in chapter(each)]
    lines += [metric.verdict for metric in found.metrics]
    if found.winner_verdict:
        lines.append(found.winner_verdict)
    if found.planner is not None and found.planner.verdict not in found.verdict:
        lines.append(found.planner.verdict)
    show_answer(found, "\n".join(lines), as_json)


def chapter(found: "ChapterLift") -> list[str]:
    """Return a chapter and its parts as lines."""
    since, until = ((time or "now")[:10] for time in (found.since, found.until))
    what = f"{found.share:.3g} for {found.control}, by {found.unit}"
    lines = [f"chapter {found.number}, {since} to {until}: {what}; {_ratio(found.ratio)}"]
    for part in found.parts if len(found.parts) > 1 else ():
        counts = sum(group.decisions for group in part.groups.values())
        label = f"{part.what or 'at first'}, from {(part.since or '?')[:10]}"
        lines.append(f"  {label}: {counts:,.0f} decisions, ratio {number(part.ratio)}")
    if found.ended:
        lines.append(f"  ended: {found.ended}")
    if not found.counted:
        lines.append("  not counted above")
    return lines


def _ratio(ends: "Bounds | None") -> str:
    if ends is None:
        return "too early, or no ratio"
    shown = map(number, (ends.estimate, ends.low, ends.high))
    return "ratio {}, between {} and {}".format(*shown)


def number(x: float | None) -> str:
    """Return a number as it is printed; one that is infinite or not known has no digits."""
    return "?" if x is None else f"{x:.4g}"


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Where the service answers, and with which key.

    Parameters
    ----------
    url
        Where the service answers.
    key
        API key; better in TACIT_PLACEMENT_KEY.
    """

    url: Annotated[str, Typed(envvar="TACIT_PLACEMENT_URL")] = "http://127.0.0.1:8787"
    key: Annotated[str, Typed(envvar="TACIT_PLACEMENT_KEY")] | None = None

    def client(self, **options: Any) -> Any:
        """Return a client of the service."""
        return connected(self.url, self.key, **options)


@click.group()
def placement() -> None:
    """Turn a placement of a running service, and see who turned it."""


@command(group=placement)
def pin(
    name: str, arms: tuple[str, ...], service: ServiceOptions, *, until: str, as_json: Json = False
) -> None:
    """Let every decision of the placement NAME show ARMS: one, or a list from the top.

    Parameters
    ----------
    until
        When it ends, such as 2026-05-03T18:00 (UTC).
    """
    with service.client() as client:
        _show_pin(client.pin(name, list(arms), until), as_json)


@command(group=placement)
def unpin(name: str, service: ServiceOptions, *, as_json: Json = False) -> None:
    """Let the policy of the placement NAME decide again."""
    with service.client() as client:
        _show_pin(client.unpin(name), as_json)


def _show_pin(pinned: Any, as_json: bool) -> None:
    text = "the policy decides"
    if pinned is not None:
        text = f"{', '.join(map(str, pinned.arms))} until {pinned.until}"
    show_answer({"pinned": pinned}, text, as_json)


@command(group=placement)
def holdout(
    name: str,
    service: ServiceOptions,
    *,
    share: float = 0.1,
    control: str = "uniform",
    unit: Literal["decision", "session", "user"] = "decision",
    look: str | None = None,
    none: bool = False,
    as_json: Json = False,
) -> None:
    """Keep a part of the traffic of the placement NAME for a control, which shows the lift.

    A chapter of the lift begins.

    Parameters
    ----------
    share
        Of decisions; to 0.5.
    control
        What it shows: uniform, baseline, or arm=NAME.
    unit
        Who stays in one group.
    look
        When one look is planned, such as 2026-06-01: it will be sharper.
    none
        Show nobody a control any more.
    """
    word, _, arm = control.partition("=")
    with service.client() as client:
        if none:
            held = client.end_holdout(name)
        elif word == "arm":
            shows = {"arm": int(arm) if arm.isdecimal() else arm}
            held = client.hold_out(name, share, shows, unit, look)
        else:
            held = client.hold_out(name, share, control, unit, look)
    text = "nobody is shown a control"
    if held is not None:
        shown = control if isinstance(held.control, str) else f"arm {held.control['arm']}"
        text = f"{held.share:.3g} of decisions, by {held.unit}, are the control's: {shown}"
        text += f"; one look is planned at {held.look}" if held.look else ""
    show_answer({"holdout": held}, text, as_json)


@command(group=placement)
def rebuild(name: str, service: ServiceOptions, *, policy: str, as_json: Json = False) -> None:
    """Fold the log of the placement NAME into another policy, and let that decide.

    The one before decides meanwhile; what it has learned is kept for rollback.

    Parameters
    ----------
    policy
        As the configuration says it, such as ucb1.
    """
    with service.client(timeout=LONGEST, retries=0) as client:
        _show_rebuilt(client.rebuild(name, policy), as_json)


@command(group=placement)
def rollback(name: str, service: ServiceOptions, *, to: str | None = None, as_json: Json = False) -> None:
    """Let the placement NAME go back to what it had learned before.

    Parameters
    ----------
    to
        Name of a state, as states lists it.  [default: the one left last]
    """
    with service.client(timeout=LONGEST, retries=0) as client:
        _show_rebuilt(client.rollback(name, to), as_json)


def _show_rebuilt(made: Any, as_json: bool) -> None:
    text = (
        f"{made.policy['name']} decides now: {made.rows:,} rows of the log taken in, "
        f"{made.seconds:.1f} s\nto go back: --to {made.left}"
    )
    text += "".join(f"\napproximate: {reason}" for reason in made.approximate)
    show_answer(made, text, as_json)


@command(group=placement)
def states(name: str, service: ServiceOptions, *, as_json: Json = False) -> None:
    """List what the placement NAME can go back to, the latest first."""
    with service.client() as client:
        kept = client.states(name)
    text = "\n".join(state.name for state in kept) or "nothing was left yet"
    show_answer(kept, text, as_json)


@command(group=placement)
def history(
    name: str,
    service: ServiceOptions,
    *,
    limit: Annotated[int, click.IntRange(1, 1000)] = 20,
    as_json: Json = False,
) -> None:
    """Say who changed what of the placement NAME, and when; the last change first.

    Parameters
    ----------
    limit
        How many changes.
    """
    with service.client() as client:
        changes = client.history(name, limit)
    rows = [
        (change.at[:19].replace("T", " "), change.by or "-", change.what, _said(change.detail))
        for change in changes
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
    lines = [
        "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    ]
    show_answer(changes, "\n".join(lines) or "nothing was changed yet", as_json)


def _said(detail: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {_value(value)}" for name, value in detail.items() if value != [])


def _value(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"before", "after"}:
        return f"{value['before']} → {value['after']}"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


@command(group=placement)
def arms(
    name: str,
    service: ServiceOptions,
    *,
    add: tuple[str, ...] = (),
    retire: tuple[str, ...] = (),
    restore: tuple[str, ...] = (),
    as_json: Json = False,
) -> None:
    """Let arms of the placement NAME come, go and come back; all of it, or nothing.

    Each option can be given more than once. Says which arms there are then; without an option
    nothing changes.

    Parameters
    ----------
    add
        A new arm; where arms are numbered, how many come.
    retire
        An arm that is shown no more.
    restore
        A retired arm that comes back.
    """
    with service.client() as client:
        # To change nothing says which arms there are.
        now = client.change_arms(name)
        numbered = all(isinstance(arm, int) for arm in now.arms)
        if numbered and len(add) > 1:
            raise click.UsageError("--add: arms are numbered here; say how many come, once")
        coming: Any = _number("--add", add[0]) if numbered and add else list(add)
        gone, back = (
            [_number(option, arm) for arm in given] if numbered else list(given)
            for option, given in (("--retire", retire), ("--restore", restore))
        )
        if add or retire or restore:
            now = client.change_arms(name, add=coming, retire=gone, restore=back)
    lines = [f"on offer: {_listed(now.arms)}", f"retired: {_listed(now.retired)}"]
    show_answer(now, "\n".join(lines), as_json)


def _number(option: str, text: str) -> int:
    if not text.isdecimal():
        raise click.UsageError(f"{option}: {text!r}: arms are numbered here; give a number")
    return int(text)


def _listed(arms: list[Any]) -> str:
    return ", ".join(map(str, arms)) or "none"


# ---- ``tacit items``: the catalogue of a placement of a running service, filled and looked at

BYTES = 800_000
"""Of a request, below the service's usual batch_limit."""
DIGITS = 9
"""Bytes of a number in it, at most, with what separates it."""
MOST = 1000


@click.group()
def items() -> None:
    """Fill the catalogue of a placement of a running service, and look at it."""


@command(group=items)
def load(name: str, file: Existing, service: ServiceOptions, *, as_json: Json = False) -> None:
    """Put the items of FILE into the catalogue of the placement NAME.

    FILE has the columns id and vector, a list of numbers, perhaps segment: Parquet, or JSON lines. Items that
    are there get these vectors; none is taken out. Stopped half-way, load it again.
    """
    with usage():
        batches = list(_batches(file))
    now: Any = None
    with service.client() as client, progress(len(batches), "putting items") as advance:
        for ids, vectors, segments in batches:
            now = client.put_items(name, ids, vectors, segments)
            advance(1)
    show_answer(now, said(now), as_json)


def _batches(file: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the items of a file, as many at once as a request holds."""
    from tacit.logs.items import item_batches

    for batch in item_batches(file):
        size = max(1, min(MOST, BYTES // (DIGITS * batch.vectors.shape[1] + 600)))
        ids, segments = batch.ids.to_pylist(), batch.segments.to_pylist()
        for start in range(0, len(ids), size):
            part = slice(start, start + size)
            yield ids[part], batch.vectors[part], segments[part]


@command(group=items)
def remove(name: str, ids: tuple[str, ...], service: ServiceOptions, *, as_json: Json = False) -> None:
    """Take items, by their IDS, out of the catalogue of the placement NAME: all of them, or none."""
    with service.client() as client:
        now = client.remove_items(name, ids)
    show_answer(now, said(now), as_json)


@command(group=items)
def count(name: str, service: ServiceOptions, *, as_json: Json = False) -> None:
    """Say how many items the catalogue of the placement NAME has."""
    with service.client() as client:
        now = client.items(name)
    show_answer(now, said(now), as_json)


def said(now: Any) -> str:
    """Return what a catalogue has, as text."""
    segments = [f"  {segment}: {size:,}" for segment, size in sorted(now.segments.items())]
    return "\n".join([f"{now.count:,} items, version {now.version:,}", *segments[:20]])
