"""``tacit placement`` and ``tacit lift``: turn a placement of a running service, and see what it earned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tacit.cli.options import config_option, json_option, show
from tacit.errors import MissingExtra

# ---- ``tacit lift``: what did learning earn at a placement of a running service?


@click.command()
@config_option
@click.argument("placement")
@click.option("--url", default="http://127.0.0.1:8787", show_default=True, help="Where the service answers.")
@click.option("--key", help="API key with the scope read; better in TACIT_LIFT_KEY.")
@click.option(
    "--confidence",
    default="0.95",
    show_default=True,
    type=click.Choice(["0.9", "0.95", "0.99"]),
    help="Of the intervals, at whatever time they are looked at.",
)
@click.option(
    "--control", help="In place of the holdout, what propensities compare with: uniform, or 'arm NAME'."
)
@click.option("--from", "begin", help="Only decisions from then on: a day, or a chapter's number.")
@click.option("--to", "end", help="Only decisions before then, or to that chapter's end.")
@click.option("--shown", type=float, help="The lift that the planner asks about: 0.1 is 10 %.")
@click.option("--share", type=float, help="The control's share that it reckons with.")
@click.option("--rate", type=float, help="The mean reward that it reckons with, such as 0.05.")
@click.option("--daily", type=float, help="The decisions a day that it reckons with.")
@json_option
def lift(
    config: Path | None,
    placement: str,
    url: str,
    key: str | None,
    confidence: str,
    as_json: bool,
    **asked: Any,
) -> None:
    """Say what learning earned more than a control, at a PLACEMENT of a running service."""
    try:
        import msgspec

        from tacit.client import Client
    except ImportError as error:
        raise MissingExtra(error.name or "the client", "client") from error
    with Client(url, key) as client:
        found = client.lift(placement, confidence=float(confidence), **asked)
    lines = [found.verdict, found.counted]
    if found.look is not None:
        lines.append(found.look["verdict"])
    for name, interval in (("ratio", found.ratio), ("difference", found.difference)):
        if interval is not None:
            ends = [number(x) for x in (interval.estimate, interval.low, interval.high)]
            lines.append("{}: {}, between {} and {}".format(name, *ends))
    for group, counts in found.groups.items():
        earned = f"{counts['decisions']:,.0f} decisions, {counts['rewards']:,.6g} rewards"
        lines.append(f"{group}: {earned}")
    if len(found.chapters) > 1 or any(len(one["parts"]) > 1 for one in found.chapters):
        lines += [line for one in found.chapters for line in chapter(one)]
    lines += [metric["verdict"] for metric in found.metrics]
    if found.winner_verdict:
        lines.append(found.winner_verdict)
    if found.planner is not None and found.planner["verdict"] not in found.verdict:
        lines.append(found.planner["verdict"])
    show(msgspec.to_builtins(found), "\n".join(lines), as_json)


def chapter(told: dict[str, Any]) -> list[str]:
    """Return a chapter and its parts as lines."""
    since, until = ((told[name] or "now")[:10] for name in ("since", "until"))
    what = f"{told['share']:.3g} for {told['control']}, by {told['unit']}"
    lines = [f"chapter {told['number']}, {since} to {until}: {what}; {_ratio(told['ratio'])}"]
    for part in told["parts"] if len(told["parts"]) > 1 else ():
        counts = sum(group["decisions"] for group in part["groups"].values())
        label = f"{part['what'] or 'at first'}, from {(part['since'] or '?')[:10]}"
        lines.append(f"  {label}: {counts:,.0f} decisions, ratio {number(part['ratio'])}")
    if told["ended"]:
        lines.append(f"  ended: {told['ended']}")
    if not told["counted"]:
        lines.append("  not counted above")
    return lines


def _ratio(ends: dict[str, float | None] | None) -> str:
    if ends is None:
        return "too early, or no ratio"
    shown = (number(ends[name]) for name in ("estimate", "low", "high"))
    return "ratio {}, between {} and {}".format(*shown)


def number(x: float | None) -> str:
    """Return a number as it is printed; one that is infinite or not known has no digits."""
    return "?" if x is None else f"{x:.4g}"


# ---- ``tacit placement``: turn a placement of a running service, and see who turned it

LONGEST = 86_400.0
"""Seconds that a rebuild may take."""


def service_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where the service answers, and with which key."""
    key = click.option("--key", envvar="TACIT_PLACEMENT_KEY", help="API key; better in TACIT_PLACEMENT_KEY.")
    url = click.option(
        "--url",
        default="http://127.0.0.1:8787",
        show_default=True,
        envvar="TACIT_PLACEMENT_URL",
        help="Where the service answers.",
    )
    return url(key(json_option(command)))


def connected(url: str, key: str | None, **options: Any) -> Any:
    """Return a client of the service."""
    try:
        from tacit.client import Client
    except ImportError as error:
        raise MissingExtra(error.name or "the client", "client") from error
    return Client(url, key, **options)


@click.group()
def placement() -> None:
    """Turn a placement of a running service, and see who turned it."""


@placement.command()
@click.argument("name")
@click.argument("arms", nargs=-1, required=True)
@click.option("--until", required=True, help="When it ends, such as 2026-05-03T18:00 (UTC).")
@service_options
def pin(name: str, arms: tuple[str, ...], until: str, url: str, key: str | None, as_json: bool) -> None:
    """Let every decision of the placement NAME show ARMS: one, or a list from the top."""
    with connected(url, key) as client:
        _show_pin(client.pin(name, list(arms), until), as_json)


@placement.command()
@click.argument("name")
@service_options
def unpin(name: str, url: str, key: str | None, as_json: bool) -> None:
    """Let the policy of the placement NAME decide again."""
    with connected(url, key) as client:
        _show_pin(client.unpin(name), as_json)


def _show_pin(pinned: Any, as_json: bool) -> None:
    if pinned is None:
        show({"pinned": None}, "the policy decides", as_json)
        return
    text = f"{', '.join(map(str, pinned.arms))} until {pinned.until}"
    show({"pinned": {"arms": pinned.arms, "until": pinned.until}}, text, as_json)


@placement.command()
@click.argument("name")
@click.option("--share", type=float, default=0.1, show_default=True, help="Of decisions; to 0.5.")
@click.option(
    "--control", default="uniform", show_default=True, help="What it shows: uniform, baseline, or arm=NAME."
)
@click.option(
    "--unit",
    default="decision",
    show_default=True,
    type=click.Choice(["decision", "session", "user"]),
    help="Who stays in one group.",
)
@click.option("--look", help="When one look is planned, such as 2026-06-01: it will be sharper.")
@click.option("--none", is_flag=True, help="Show nobody a control any more.")
@service_options
def holdout(
    name: str,
    share: float,
    control: str,
    unit: str,
    look: str | None,
    none: bool,
    url: str,
    key: str | None,
    as_json: bool,
) -> None:
    """Keep a part of the traffic of the placement NAME for a control, which shows the lift.

    A chapter of the lift begins.
    """
    import msgspec

    word, _, arm = control.partition("=")
    with connected(url, key) as client:
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
    show({"holdout": msgspec.to_builtins(held)}, text, as_json)


@placement.command()
@click.argument("name")
@click.option("--policy", required=True, help="As the configuration says it, such as ucb1.")
@service_options
def rebuild(name: str, policy: str, url: str, key: str | None, as_json: bool) -> None:
    """Fold the log of the placement NAME into another policy, and let that decide.

    The one before decides meanwhile; what it has learned is kept for rollback.
    """
    with connected(url, key, timeout=LONGEST, retries=0) as client:
        _show_rebuilt(client.rebuild(name, policy), as_json)


@placement.command()
@click.argument("name")
@click.option("--to", help="Name of a state, as states lists it.  [default: the one left last]")
@service_options
def rollback(name: str, to: str | None, url: str, key: str | None, as_json: bool) -> None:
    """Let the placement NAME go back to what it had learned before."""
    with connected(url, key, timeout=LONGEST, retries=0) as client:
        _show_rebuilt(client.rollback(name, to), as_json)


def _show_rebuilt(made: Any, as_json: bool) -> None:
    import msgspec

    text = (
        f"{made.policy['name']} decides now: {made.rows:,} rows of the log taken in, "
        f"{made.seconds:.1f} s\nto go back: --to {made.left}"
    )
    text += "".join(f"\napproximate: {one}" for one in made.approximate)
    show(msgspec.to_builtins(made), text, as_json)


@placement.command()
@click.argument("name")
@service_options
def states(name: str, url: str, key: str | None, as_json: bool) -> None:
    """List what the placement NAME can go back to, the latest first."""
    import msgspec

    with connected(url, key) as client:
        kept = client.states(name)
    text = "\n".join(one.name for one in kept) or "nothing was left yet"
    show(msgspec.to_builtins(kept), text, as_json)


@placement.command()
@click.argument("name")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000))
@service_options
def history(name: str, limit: int, url: str, key: str | None, as_json: bool) -> None:
    """Say who changed what of the placement NAME, and when; the last change first."""
    import msgspec

    with connected(url, key) as client:
        changes = client.history(name, limit)
    rows = [(one.at[:19].replace("T", " "), one.by or "-", one.what, _said(one.detail)) for one in changes]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
    lines = [
        "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    ]
    show(msgspec.to_builtins(changes), "\n".join(lines) or "nothing was changed yet", as_json)


def _said(detail: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {_value(value)}" for name, value in detail.items() if value != [])


def _value(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"before", "after"}:
        return f"{value['before']} → {value['after']}"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


@placement.command()
@click.argument("name")
@click.option("--add", multiple=True, help="A new arm; where arms are numbered, how many come.")
@click.option("--retire", multiple=True, help="An arm that is shown no more.")
@click.option("--restore", multiple=True, help="A retired arm that comes back.")
@service_options
def arms(
    name: str,
    add: tuple[str, ...],
    retire: tuple[str, ...],
    restore: tuple[str, ...],
    url: str,
    key: str | None,
    as_json: bool,
) -> None:
    """Let arms of the placement NAME come, go and come back; all of it, or nothing.

    Each option can be given more than once. Says which arms there are then; without an option
    nothing changes.
    """
    import msgspec

    with connected(url, key) as client:
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
    show(msgspec.to_builtins(now), "\n".join(lines), as_json)


def _number(option: str, text: str) -> int:
    if not text.isdecimal():
        raise click.UsageError(f"{option}: {text!r}: arms are numbered here; give a number")
    return int(text)


def _listed(arms: list[Any]) -> str:
    return ", ".join(map(str, arms)) or "none"
