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
    names,
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
def propose(config: Path | None, log: Path, read: Any, keys: int, as_json: bool) -> None:
    """Propose parameters for policies that follow shifting intent, from a click log.

    Says where the log contradicts what such policies assume. LOG is as for evaluate.
    """
    from tacit.core.spread import progress
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
@click.option(
    "--relevance",
    metavar="COLUMN,…|table:FILE",
    help="Features of arms, for policies that read them: columns of LOGS with those of the arm "
    "shown, or a file with a row for each arm, named in its column arm.",
)
@click.option("--examination", metavar="COLUMN,…|table:FILE", help="Likewise, of being seen.")
@click.option("--placement", help="Learn the rows of this one; by default of the only one.")
@reads_log
@seed_option
@json_option
def fit(
    config: Path | None,
    logs: tuple[str, ...],
    policy: str,
    output: Path,
    relevance: str | None,
    examination: str | None,
    placement: str | None,
    read: Any,
    seed: int,
    as_json: bool,
) -> None:
    """Learn a click log, and write the learner to a file.

    LOGS are as for evaluate. What was learned is a warm start: go on with it by
    tacit.Learner.load(FILE), or in the service by start = FILE in a placement's configuration.
    """
    from tacit.core.spread import progress
    from tacit.evaluate import arms_of
    from tacit.learning.learner import Learner
    from tacit.learning.logged import features_told
    from tacit.policies import policy_from_spec
    from tacit.policies.spec import reads_features

    with usage():
        reader = read(logs)
        features = {"relevance": _told(relevance), "examination": _told(examination)}
        dims = {f"{name}_dim": features_told(told) for name, told in features.items()}
        by_features = reads_features(policy)
        if by_features and not any(dims.values()):
            raise click.UsageError(
                f"--policy: {by_features} knows arms by their features: give --relevance "
                "price,age, columns of the log with those of the arm shown, or --relevance "
                "table:FILE, a row for each arm"
            )
    with concluding(reader), progress(None, "reading the arms"):
        arms = arms_of(reader)
    with usage():
        learner = Learner(policy_from_spec(policy, arms, setting=dims), seed)
    with concluding(reader), progress(None, "learning"):
        learned = learner.fit_log(reader, placement=placement, **features)
    learner.save(output)
    text = f"{learner.policy.label} learned {learned:,} decisions of {len(learner):,} keys: {output}"
    show({"decisions": learned, "keys": len(learner)}, text, as_json, reader.report)


def _told(features: str | None) -> Any:
    """Return what says where features are: names of columns, or a table of arms."""
    import pyarrow as pa

    from tacit.logs.reader import file_at
    from tacit.logs.rows import converted

    if features is None:
        return None
    if not features.startswith("table:"):
        return names(features)
    file = file_at(Path(features.removeprefix("table:")))
    if "arm" not in file.names:
        raise click.UsageError(f"{file.path}: there is no column 'arm', which names each row's arm")
    table: dict[str, list[float]] = {}
    for raw in file.read(file.names, 65_536):
        columns = [raw.columns[name] for name in file.names if name != "arm"]
        arms = converted(raw.columns["arm"], pa.string()).to_pylist()
        numbers = [converted(column, pa.float64()).to_pylist() for column in columns]
        table |= zip(arms, map(list, zip(*numbers, strict=True)), strict=True)
    return table
