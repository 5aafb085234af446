"""``tacit propose`` and ``tacit fit``: what a log gives to a policy, parameters or a start."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tacit.cli.options import (
    concluding,
    config_option,
    json_option,
    reads_log,
    seed_option,
    show,
    usage,
)


@click.command()
@config_option
@click.argument("log", type=click.Path(exists=True, path_type=Path))
@reads_log
@click.option(
    "--keys",
    default=200,
    show_default=True,
    type=click.IntRange(1),
    help="Search shifts in so many of the busiest keys.",
)
@json_option
def propose(
    config: Path | None,
    log: Path,
    read: Any,
    keys: int,
    as_json: bool,
) -> None:
    """Propose parameters for policies that follow shifting intent, from a click log.

    Says where the log contradicts what such policies assume. LOG is as for evaluate.
    """
    from tacit.core.progress import progress
    from tacit.evaluate import propose as proposed

    with usage():
        reader = read(log)
    with progress(None, "searching shifts") as advance, concluding(reader):
        result = proposed(reader, keys=keys, progress=lambda done: advance(1))
    content = asdict(result) | {"shifts": [shift._asdict() for shift in result.shifts]}
    show(content, result.summary(), as_json, reader.report)


@click.command()
@config_option
@click.argument("logs", nargs=-1, required=True)
@click.option(
    "--policy",
    default="auto",
    show_default=True,
    help='Name, call or module:Class, e.g. "thompson(discount=0.999)", or "list-mix(positions=5)" '
    "for a log of lists.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The learner, as tacit.Learner.load reads it.",
)
@click.option("--placement", help="Learn the rows of this one; by default of the only one.")
@reads_log
@seed_option
@json_option
def fit(
    config: Path | None,
    logs: tuple[str, ...],
    policy: str,
    output: Path,
    placement: str | None,
    read: Any,
    seed: int,
    as_json: bool,
) -> None:
    """Learn a click log, and write the learner to a file.

    LOGS are as for evaluate. What was learned is a warm start: go on with it by
    tacit.Learner.load(FILE).
    """
    from tacit.core.progress import progress
    from tacit.evaluate import arms_of
    from tacit.learning.learner import Learner
    from tacit.policies import policy_from_spec

    with usage():
        reader = read(logs)
    with concluding(reader), progress(None, "reading the arms"):
        arms = arms_of(reader)
    with usage():
        learner = Learner(policy_from_spec(policy, arms), seed)
    with concluding(reader), progress(None, "learning"):
        learned = learner.fit_log(reader, placement=placement)
    learner.save(output)
    text = (
        f"{learner.policy.label} learned {learned:,} decisions of {len(learner):,} keys: {output}"
    )
    show({"decisions": learned, "keys": len(learner)}, text, as_json, reader.report)
