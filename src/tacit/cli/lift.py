"""``tacit lift``: what did learning earn at a placement of a running service?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tacit.cli.options import config_option, json_option, show
from tacit.errors import MissingExtra


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
