"""``tacit demo``: the whole thing on simulated searchers."""

from __future__ import annotations

from pathlib import Path

import click

from tacit.cli.options import config_option, json_option, seed_option, usage


@click.command()
@config_option
@click.option("--policy", default=None, help='The learning policy, e.g. "ucb1" or "exp3s(gamma=0.05)".')
@click.option(
    "--interest",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Play this date × topic table of search interest instead of simulated shifts.",
)
@click.option("--impressions", type=click.IntRange(100), help="How much traffic.  [default: 15000]")
@click.option(
    "--holdout",
    type=click.FloatRange(0, 0.5, min_open=True),
    help="Show this share of searchers an arm at random, and say what learning earned beside them.",
)
@click.option("--out", default="demo", show_default=True, type=click.Path(path_type=Path), help="Folder.")
@click.option(
    "--port", default=0, type=click.IntRange(0, 65535), help="Port of the page; 0 takes a free one."
)
@click.option("--keep", is_flag=True, help="Keep the page open afterwards, until Ctrl-C.")
@seed_option
@json_option
def demo(
    config: Path | None,
    policy: str | None,
    interest: Path | None,
    impressions: int | None,
    holdout: float | None,
    out: Path,
    port: int,
    keep: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Start the service, send it searchers whose intent shifts, show what it learned."""
    import tacit.demo as show_case

    with usage():
        scenario = show_case.scenario(interest, policy, impressions, seed, holdout)
    show_case.play(scenario, out, port, keep=keep, as_json=as_json)
