"""``tacit evaluate``: what would a policy have earned?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tacit.cli.options import (
    concluding,
    config_option,
    json_option,
    names,
    plot_option,
    ray_option_as,
    reads_log,
    seed_option,
    show,
    usage,
    where,
)


@click.command()
@config_option
@click.argument("logs", nargs=-1, required=True)
@click.option(
    "--policy",
    required=True,
    help='Name, call or module:Class of a policy that learns, e.g. "thompson" or '
    '"ucb1(alpha=0.3)", or "list-mix(positions=5)" for a log of lists; or a fixed one: uniform, '
    "always:ARM, list:ARM,ARM,…, or table:FILE with probabilities.",
)
@click.option(
    "--estimator",
    help="Any of replay, ips, snips, dm, dr, switch-dr, slate-ips, independent-ips, cascade-ips; "
    "with commas between them; by default replay, of a fixed policy ips,snips, of lists the last "
    "three.",
)
@click.option("--clip", type=float, help="Cut larger weights to this.")
@click.option("--threshold", default=10.0, show_default=True, help="Largest weight of switch-dr.")
@click.option("--slots", type=int, help="Most places of a list; by default the policy's, or 3.")
@click.option(
    "--propensities",
    default="logged",
    show_default=True,
    help="logged: those of the log; estimated: how often it shows each arm for a key at a "
    "position; uniform, or table:FILE with the chance of each arm.",
)
@click.option(
    "--by", metavar="COLUMN", help="Tell of each value of a column besides, as of device."
)
@click.option(
    "--confidence", default=0.95, show_default=True, help="Of the intervals, but for replay."
)
@click.option("--cluster", help="What makes rows depend on one another: decision_id, key, …")
@click.option("--weight-bound", type=float, help="What no weight can exceed; for rare clicks.")
@plot_option("Draw the estimates with their intervals.")
@click.option("--passes", default=10, show_default=True, type=click.IntRange(1), help="Replays.")
@reads_log
@click.option(
    "--window",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(1),
    help="Rows shuffled at once.",
)
@click.option(
    "--assume-uniform", is_flag=True, help="Take rows without propensity for uniform choice."
)
@ray_option_as("ray", "Give LOGS first.")
@click.option(
    "--shards",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="With --ray: deal the keys of a policy that learns to so many separate learners.",
)
@seed_option
@json_option
def evaluate(
    config: Path | None,
    logs: tuple[str, ...],
    policy: str,
    estimator: str | None,
    clip: float | None,
    threshold: float,
    slots: int | None,
    propensities: str,
    by: str | None,
    confidence: float,
    cluster: str | None,
    weight_bound: float | None,
    plot: Path | None,
    passes: int,
    read: Any,
    window: int,
    assume_uniform: bool,
    ray: str | None,
    shards: int,
    seed: int,
    as_json: bool,
) -> None:
    """Estimate what a policy would have earned, from the click log of another one.

    LOGS are files, folders or patterns: Parquet (also by URL, such as s3://bucket/clicks), CSV,
    JSON lines, or the Open Bandit Dataset's layout.
    Replay needs a log of uniform choices; the other estimators weight by logged propensities. Of a
    list, the log has a row for each arm.
    """
    from tacit.evaluate import fixed_target, named_estimators
    from tacit.plots import figure
    from tacit.policies import policy_from_spec
    from tacit.policies.spec import what_shows

    with usage():
        known: Any = propensities
        if propensities not in ("logged", "estimated"):
            known = fixed_target(propensities)
            if known is None:
                raise click.UsageError(
                    f"--propensities: {propensities!r} is none of logged, estimated, uniform and "
                    "table:FILE"
                )
        target = fixed_target(policy)
        lists = policy.startswith("list:")
        if target is None:
            shows = what_shows(policy)
            lists = shows == "slate"
            if shows == "duel":
                raise click.UsageError(
                    f"--policy: {policy} shows a {shows}, but a click log tells of arms and lists; "
                    "try it with tacit simulate"
                )
        if estimator is None:
            fit = "independent-ips,cascade-ips,slate-ips"
            fit = fit if propensities == "logged" else "independent-ips"
            estimator = fit if lists else "replay" if target is None else "ips,snips"
        wanted = names(estimator)
        weighted = [name for name in wanted if name != "replay"]
        if lists and "replay" in wanted:
            raise click.UsageError(
                "--estimator: replay counts rows that are the same, and hardly ever is a whole "
                "list; give independent-ips, cascade-ips or slate-ips"
            )
        if slots is None and policy.startswith("list:"):
            slots = policy.count(",") + 1
        options: dict[str, Any] = {"clip": clip, "threshold": threshold}
        estimators = named_estimators(weighted, **options, slots=slots or 3)
        reader = read(logs)
        reader = reader if by is None else reader.by(by)
        if plot:
            figure()  # the lack of what draws must not show only when the work is done
    if not wanted:
        raise click.UsageError("--estimator: name one at least")
    if target is not None and "replay" in wanted:
        raise click.UsageError(f"--estimator: replay needs a policy that learns, not {policy!r}")
    if plot and not weighted:
        raise click.UsageError("--plot: shows estimators other than replay; name one")
    if shards > 1 and ray is None:
        raise click.UsageError("--shards: only with --ray")
    content: dict[str, Any] = {}
    texts = []
    result: Any = None
    with where(ray), concluding(reader):
        evaluation = Evaluation(reader, None if ray is None else shards)
        player: Any = target
        if target is None:
            with concluding(reader):
                arms = evaluation.arms()
            with usage():
                setting = {"positions": slots} if lists and slots else {}
                player = policy_from_spec(policy, arms, setting=setting)
                if lists and slots is None:
                    width = player.action_width
                    estimators = named_estimators(weighted, **options, slots=width)
        if "replay" in wanted:
            replayed = evaluation.replay(
                player,
                passes=passes,
                seed=seed,
                window=window,
                assume_uniform=assume_uniform,
                by=by,
            )
            segments = {name: part._asdict() for name, part in replayed.segments.items()}
            content |= asdict(replayed) | {"segments": segments}
            texts.append(replayed.summary())
        if weighted:
            result = evaluation.off_policy(
                player,
                estimators,
                cluster=cluster,
                weight_bound=weight_bound,
                seed=seed,
                propensities=known,
                by=by,
                confidence=confidence,
            )
    if result is not None:
        if plot:
            result.plot(plot)
        content = {"replay": content} if content else {}
        content |= {
            "estimates": result.table(),
            "logged": result.logged,
            "rows": result.rows,
            "unanswered": result.unanswered,
            "never_shown": list(result.never_shown),
            "warnings": [each for estimate in result.estimates for each in estimate.warnings],
        }
        texts.append(result.summary())
    show(content, "\n".join(texts), as_json, reader.report)


class Evaluation:
    """The functions that read a log, under a progress bar: in one process, or in parts.

    Parameters
    ----------
    reader : LogReader
    shards : int or None
        None for one process.
    """

    def __init__(self, reader: Any, shards: int | None) -> None:
        self._reader, self._shards = reader, shards

    def arms(self) -> tuple[str, ...]:
        """Return the arms on offer."""
        from tacit import cluster
        from tacit.core.progress import progress
        from tacit.evaluate import arms_of

        if self._shards is not None:
            return cluster.arms_of(self._reader)
        with progress(None, "reading the arms"):
            return arms_of(self._reader)

    def replay(self, policy: Any, **options: Any) -> Any:
        """Replay the log."""
        from tacit import cluster
        from tacit.evaluate import replay

        if self._shards is not None:
            return cluster.replay(policy, self._reader, shards=self._shards, **options)
        return self._watched(replay, "replaying", policy, self._reader, **options)

    def off_policy(self, target: Any, estimators: Any, **options: Any) -> Any:
        """Weight the log."""
        from tacit import cluster
        from tacit.evaluate import off_policy

        if self._shards is not None:
            return cluster.off_policy(
                target, self._reader, estimators, shards=self._shards, **options
            )
        return self._watched(off_policy, "weighting", target, self._reader, estimators, **options)

    @staticmethod
    def _watched(function: Callable[..., Any], label: str, *given: Any, **options: Any) -> Any:
        from tacit.core.progress import progress

        with progress(None, label) as advance:
            return function(*given, progress=increments(advance), **options)


def increments(advance: Callable[[float], None]) -> Callable[[int], None]:
    """Return a function of all rows so far that passes on how many are new."""
    done = 0

    def report(rows: int) -> None:
        nonlocal done
        advance(rows - done)
        done = rows

    return report
