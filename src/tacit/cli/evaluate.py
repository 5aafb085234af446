"""``tacit evaluate``: what would a policy have earned?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
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
@click.option("--by", metavar="COLUMN", help="Tell of each value of a column besides, as of device.")
@click.option("--confidence", default=0.95, show_default=True, help="Of the intervals, but for replay.")
@click.option("--cluster", help="What makes rows depend on one another: decision_id, key, …")
@click.option("--weight-bound", type=float, help="What no weight can exceed; for rare clicks.")
@plot_option("Draw the estimates with their intervals.")
@click.option("--passes", default=10, show_default=True, type=click.IntRange(1), help="Replays.")
@reads_log
@click.option(
    "--window", default=1_000_000, show_default=True, type=click.IntRange(1), help="Rows shuffled at once."
)
@click.option("--assume-uniform", is_flag=True, help="Take rows without propensity for uniform choice.")
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
    read: Any,
    plot: Path | None,
    ray: str | None,
    shards: int,
    as_json: bool,
    **asked: Any,
) -> None:
    """Estimate what a policy would have earned, from the click log of another one.

    LOGS are files, folders or patterns: Parquet (also by URL, such as s3://bucket/clicks), CSV,
    JSON lines, or the Open Bandit Dataset's layout.
    Replay needs a log of uniform choices; the other estimators weight by logged propensities. Of a
    list, the log has a row for each arm.
    """
    from tacit.plots import figure

    question = Question(**asked)
    with usage():
        question.check()
        if plot and not question.weighted:
            raise click.UsageError("--plot: shows estimators other than replay; name one")
        if shards > 1 and ray is None:
            raise click.UsageError("--shards: only with --ray")
        reader = read(logs)
        reader = reader if question.by is None else reader.by(question.by)
        if plot:
            figure()  # the lack of what draws must not show only when the work is done
    with where(ray), concluding(reader):
        evaluation = Evaluation(reader, None if ray is None else shards)
        player = question.player(evaluation)
        replayed = question.replayed(evaluation, player) if "replay" in question.wanted else None
        weighted = question.off_policy(evaluation, player) if question.weighted else None
    if plot and weighted is not None:
        weighted.plot(plot)
    results = [result for result in (replayed, weighted) if result is not None]
    text = "\n".join(result.summary() for result in results)
    show(content_of(replayed, weighted), text, as_json, reader.report)


@dataclass(frozen=True)
class Question:
    """What is asked of a log, as it was typed: each attribute is the option of its name."""

    policy: str
    estimator: str | None
    clip: float | None
    threshold: float
    slots: int | None
    propensities: str
    by: str | None
    confidence: float
    cluster: str | None
    weight_bound: float | None
    passes: int
    window: int
    assume_uniform: bool
    seed: int

    @cached_property
    def target(self) -> Any:
        """The policy, if it is a fixed one; None for one that learns."""
        from tacit.evaluate import fixed_target

        return fixed_target(self.policy)

    @cached_property
    def lists(self) -> bool:
        """Whether the policy shows lists."""
        from tacit.policies.spec import what_shows

        if self.target is not None:
            return self.policy.startswith("list:")
        shows = what_shows(self.policy)
        if shows == "duel":
            raise click.UsageError(
                f"--policy: {self.policy} shows a {shows}, but a click log tells of arms and "
                "lists; try it with tacit simulate"
            )
        return shows == "slate"

    @cached_property
    def known(self) -> Any:
        """Where propensities are from: a word, or a table."""
        from tacit.evaluate import fixed_target

        if self.propensities in ("logged", "estimated"):
            return self.propensities
        table = fixed_target(self.propensities)
        if table is None:
            raise click.UsageError(
                f"--propensities: {self.propensities!r} is none of logged, estimated, uniform and table:FILE"
            )
        return table

    @cached_property
    def wanted(self) -> list[str]:
        """The estimators' names."""
        if self.estimator is not None:
            return names(self.estimator)
        if self.lists:
            logged = self.propensities == "logged"
            return ["independent-ips", *(["cascade-ips", "slate-ips"] if logged else [])]
        return ["replay"] if self.target is None else ["ips", "snips"]

    @property
    def weighted(self) -> list[str]:
        """The names of those that weight the log."""
        return [name for name in self.wanted if name != "replay"]

    def check(self) -> None:
        """Refuse what cannot be answered, before the log is read."""
        _ = self.known, self.lists
        if not self.wanted:
            raise click.UsageError("--estimator: name one at least")
        if "replay" in self.wanted:
            if self.lists:
                raise click.UsageError(
                    "--estimator: replay counts rows that are the same, and hardly ever is a whole "
                    "list; give independent-ips, cascade-ips or slate-ips"
                )
            if self.target is not None:
                raise click.UsageError(f"--estimator: replay needs a policy that learns, not {self.policy!r}")
        self._estimators(self.slots or 3)

    def player(self, evaluation: Evaluation) -> Any:
        """Return the policy, over the log's arms if it learns."""
        from tacit.policies import policy_from_spec

        if self.target is not None:
            return self.target
        with concluding(evaluation.reader):
            arms = evaluation.arms()
        with usage():
            setting = {"positions": self.slots} if self.lists and self.slots else {}
            return policy_from_spec(self.policy, arms, setting=setting)

    def replayed(self, evaluation: Evaluation, player: Any) -> Any:
        """Return what the replay of a policy earns."""
        return evaluation.replay(
            player,
            passes=self.passes,
            seed=self.seed,
            window=self.window,
            assume_uniform=self.assume_uniform,
            by=self.by,
        )

    def off_policy(self, evaluation: Evaluation, player: Any) -> Any:
        """Return what the weighted log says that the policy earns."""
        slots = 3
        if self.lists:
            fixed = self.target is not None
            slots = self.policy.count(",") + 1 if fixed else player.action_width
        return evaluation.off_policy(
            player,
            self._estimators(self.slots or slots),
            cluster=self.cluster,
            weight_bound=self.weight_bound,
            seed=self.seed,
            propensities=self.known,
            by=self.by,
            confidence=self.confidence,
        )

    def _estimators(self, slots: int) -> Any:
        from tacit.evaluate import named_estimators

        return named_estimators(self.weighted, clip=self.clip, threshold=self.threshold, slots=slots)


def content_of(replayed: Any, weighted: Any) -> dict[str, Any]:
    """Return the results of a replay and of weighting as they are printed for machines."""
    content: dict[str, Any] = {}
    if replayed is not None:
        segments = {name: part._asdict() for name, part in replayed.segments.items()}
        content = asdict(replayed) | {"segments": segments}
    if weighted is None:
        return content
    return ({"replay": content} if content else {}) | {
        "estimates": weighted.table(),
        "logged": weighted.logged,
        "rows": weighted.rows,
        "unanswered": weighted.unanswered,
        "never_shown": list(weighted.never_shown),
        "warnings": [each for estimate in weighted.estimates for each in estimate.warnings],
    }


class Evaluation:
    """The functions that read a log, under a progress bar: in one process, or in parts.

    Parameters
    ----------
    reader : LogReader
    shards : int or None
        None for one process.
    """

    def __init__(self, reader: Any, shards: int | None) -> None:
        self.reader, self._shards = reader, shards

    def arms(self) -> tuple[str, ...]:
        """Return the arms on offer."""
        from tacit import cluster
        from tacit.core.spread import progress
        from tacit.evaluate import arms_of

        if self._shards is not None:
            return cluster.arms_of(self.reader)
        with progress(None, "reading the arms"):
            return arms_of(self.reader)

    def replay(self, policy: Any, **options: Any) -> Any:
        """Replay the log."""
        from tacit import cluster
        from tacit.evaluate import replay

        if self._shards is not None:
            return cluster.replay(policy, self.reader, shards=self._shards, **options)
        return self._watched(replay, "replaying", policy, self.reader, **options)

    def off_policy(self, target: Any, estimators: Any, **options: Any) -> Any:
        """Weight the log."""
        from tacit import cluster
        from tacit.evaluate import off_policy

        if self._shards is not None:
            return cluster.off_policy(target, self.reader, estimators, shards=self._shards, **options)
        return self._watched(off_policy, "weighting", target, self.reader, estimators, **options)

    @staticmethod
    def _watched(function: Callable[..., Any], label: str, *given: Any, **options: Any) -> Any:
        from tacit.core.spread import progress

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
