"""Commands for logs: ``tacit evaluate`` policies, ``examine`` positions, ``duel`` between rankers.

``EvaluateOptions`` holds the options of ``evaluate``, for both replay and weighting; ``examine`` and ``duel``
follow.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import click

from tacit.cli import options
from tacit.core import checks
from tacit.core.parallel import progress
from tacit.errors import TacitError, UnfitLog, UnknownName

FILE_KINDS = {".tacit": "learner", ".csv": "table", ".json": "table"}
"""Kind of policy by suffix of a file, for hints in errors."""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Options of an evaluation, as typed.

    Parameters
    ----------
    policy
        Name, call or module:Class of a policy that learns, e.g. "thompson" or "ucb1(alpha=0.3)", or
        "list-mix(positions=5)" for a log of lists; or a fixed one: uniform, always:ARM, list:ARM,ARM,…,
        table:FILE with probabilities, or learner:FILE, a saved learner without further learning.
    estimator
        Any of replay, ips, snips, dm, dr, switch-dr, slate-ips, independent-ips, cascade-ips, separated by
        commas; by default replay, for a fixed policy ips,snips, for lists the last three.
    clip
        Clip larger weights to this value.
    threshold
        Largest weight of switch-dr.
    slots
        Most positions of a list; by default the policy's, or 3.
    propensities
        logged: those of the log; estimated: the share of each arm for a key at a position; uniform, or
        table:FILE with the probability of each arm.
    by
        Also report results for each value of a column, such as device.
    confidence
        Confidence level of the intervals, except for replay.
    cluster
        A column whose rows of equal value are dependent, such as key or user.
    weight_bound
        An upper bound on all weights; for rare clicks.
    passes
        Number of replays.
    window
        Rows shuffled together.
    assume_uniform
        Treat rows without propensity as uniform choices, in a replay.
    answered
        Leave out rows without feedback, if the log records zeros, too; by default they count as 0.
    """

    policy: str
    estimator: str | None = None
    clip: float | None = None
    threshold: float = 10.0
    slots: int | None = None
    propensities: str = "logged"
    by: Annotated[str, options.OptionFormat(metavar="COLUMN")] | None = None
    confidence: float = 0.95
    cluster: str | None = None
    weight_bound: float | None = None
    passes: options.Count = 10
    window: options.Count = 1_000_000
    assume_uniform: bool = False
    answered: bool = False
    seed: options.Seed = 1

    @cached_property
    def target(self) -> Any:
        """The fixed policy, loaded from a file if one is named; None for a policy that learns."""
        from tacit import Learner
        from tacit.evaluate import Frozen, fixed_target

        kind, colon, path = self.policy.partition(":")
        return Frozen(Learner.load(path)) if kind == "learner" and colon else fixed_target(self.policy)

    @property
    def missing_reward(self) -> float | None:
        """Reward of rows without feedback: 0, or None to leave these rows out."""
        return None if self.answered else 0.0

    @property
    def columns(self) -> list[str]:
        """Names of additional columns of the log that the cluster, the policy or the propensities need."""
        from tacit.evaluate.rows import extra_columns

        sources = self.target, self.propensity_source
        column_sets: Any = [getattr(source, "columns", frozenset()) for source in sources]
        return extra_columns(frozenset(filter(None, [self.cluster])).union(*column_sets))

    @cached_property
    def shows_lists(self) -> bool:
        """True if the policy shows lists, False if single arms.

        Raises
        ------
        UnknownName
            If there is no such policy.
        click.UsageError
            If it shows another kind of action, such as duels, which no click log holds.
        """
        from tacit.policies.spec import read_action_kind

        if self.target is not None:
            return self.policy.startswith("list:")
        try:
            action_kind = read_action_kind(self.policy)
        except UnknownName as error:
            kind = FILE_KINDS.get(Path(self.policy).suffix, "always")
            hint = f"; {kind}:{self.policy} may be meant; there are"
            raise UnknownName(str(error).replace("; there are", hint)) from None
        if action_kind.compared:
            raise click.UsageError(
                f"--policy: {self.policy} shows a {action_kind.name}, but a click log holds arms and "
                "lists; try it with tacit simulate"
            )
        return action_kind.listed

    @property
    def learning_policy(self) -> str | None:
        """The policy's specification if it learns rewards of single arms, else None."""
        return self.policy if self.target is None and not self.shows_lists else None

    @cached_property
    def propensity_source(self) -> Any:
        """Source of propensities: the text ``logged`` or ``estimated``, or a table of probabilities.

        Raises click.UsageError for any other text.
        """
        from tacit.evaluate import fixed_target

        if self.propensities in ("logged", "estimated"):
            return self.propensities
        table = fixed_target(self.propensities)
        if table is None:
            choices = "logged, estimated, uniform and table:FILE"
            raise click.UsageError(f"--propensities: {self.propensities!r} is none of {choices}")
        return table

    @cached_property
    def estimator_names(self) -> list[str]:
        """Names of the estimators, as typed, or the defaults for the kind of policy and of propensities."""
        if self.estimator is not None:
            return options.split_names(self.estimator)
        if self.shows_lists:
            logged = self.propensities == "logged"
            return ["independent-ips", *(["cascade-ips", "slate-ips"] if logged else [])]
        return ["replay"] if self.target is None and self.can_replay else ["ips", "snips"]

    @property
    def can_replay(self) -> bool:
        """True unless ``--propensities`` excludes a log of uniform choices, which replay requires."""
        return self.propensities in ("logged", "uniform")

    @property
    def weighting_names(self) -> list[str]:
        """Names of the estimators that weight the log: all but replay."""
        return [name for name in self.estimator_names if name != "replay"]

    def check(self) -> None:
        """Raise click.UsageError for options that do not fit together; print a warning for unused options.

        It is called before the log is read.
        """
        # Both raise an error for options that are wrong by themselves.
        _ = self.propensity_source, self.shows_lists
        if not self.estimator_names:
            raise click.UsageError("--estimator: name one at least")
        if not self.weighting_names and any((self.clip, self.cluster, self.weight_bound)):
            unused = "--clip, --cluster, --weight-bound: not used, as a replay weighs nothing"
            click.echo(f"warning: {unused}; give --estimator ips,snips", err=True)
        if self.assume_uniform and "replay" not in self.estimator_names:
            raise click.UsageError(
                f"--assume-uniform: {', '.join(self.weighting_names)} weigh by propensities; give "
                "--propensities uniform, or --estimator replay for a policy that learns"
            )
        if "replay" in self.estimator_names:
            if self.shows_lists:
                raise click.UsageError(
                    "--estimator: replay counts rows that are the same, and hardly ever is a whole "
                    "list; give independent-ips, cascade-ips or slate-ips"
                )
            if self.target is not None:
                raise click.UsageError(f"--estimator: replay needs a policy that learns, not {self.policy!r}")
            if not self.can_replay:
                raise click.UsageError(
                    f"--propensities: {self.propensities}: replay takes a log of uniform choices, and weighs "
                    "nothing; give uniform, or --estimator ips,snips"
                )
        # Raises for estimators that do not exist or do not fit.
        self._make_estimators(self.slots or 3)

    def make_policy(self, reader: Any, shards: int | None, contexts: dict[str, Any]) -> Any:
        """Return the fixed policy or, for a policy that learns, a new one for the arms read from the log.

        ``contexts`` has the policy's settings for contexts. If ``shards`` is given, the arms are read in
        parallel. Raises click.UsageError if the policy cannot be created.
        """
        from tacit.policies import policy_from_spec

        if self.target is not None:
            return self.target
        arms = read_arms(reader, shards)
        with options.usage_errors():
            setting: dict[str, Any] = {"positions": self.slots} if self.shows_lists and self.slots else {}
            policy = policy_from_spec(self.policy, arms, setting=setting | contexts)
            return options.with_log_range(policy, reader)

    def run_replay(self, reader: Any, shards: int | None, policy: Any) -> Any:
        """Replay the log with the policy; return the result.

        If ``shards`` is given, the log is read in parallel, with a separate learner for each shard of keys.
        """
        from tacit.evaluate.options import ReplayOptions

        is_uniform = self.assume_uniform or self.propensities == "uniform"
        replay_options = self._select_options(ReplayOptions) | {"assume_uniform": is_uniform}
        return get_reading_function("replay", shards)(policy, reader, **replay_options)

    def run_off_policy(self, reader: Any, shards: int | None, policy: Any) -> Any:
        """Estimate the policy's value by weighting the log; return the result.

        If ``shards`` is given, the log is read in parallel, with a separate learner for each shard of keys.
        """
        from tacit.evaluate.options import OffPolicyOptions

        slots = 3
        if self.shows_lists:
            slots = policy.action_width if self.target is None else self.policy.count(",") + 1
        estimators = self._make_estimators(self.slots or slots)
        weighting_options = self._select_options(OffPolicyOptions) | {"propensities": self.propensity_source}
        return get_reading_function("off_policy", shards)(policy, reader, estimators, **weighting_options)

    def _select_options(self, options: Any) -> dict[str, Any]:
        """Return the values of this object's fields, by name, that the typed dict ``options`` has, too."""
        return {name: getattr(self, name) for name in options.__annotations__ if hasattr(self, name)}

    def _make_estimators(self, slots: int) -> Any:
        """Return the estimators that weight the log, for lists of at most so many positions."""
        from tacit.evaluate import estimators_from_names

        names, clip, threshold = self.weighting_names, self.clip, self.threshold
        return estimators_from_names(names, clip=clip, threshold=threshold, slots=slots)


@options.command(configured=True)
def evaluate(
    logs: tuple[str, ...],
    question_options: EvaluateOptions,
    reading: options.LogOptions,
    *,
    plot: Path | None = None,
    ray: options.Ray | None = None,
    shards: options.Count = 1,
    as_json: options.Json = False,
) -> None:
    """Estimate the reward of a policy from the click log of another policy.

    LOGS are files, folders or patterns: Parquet (also by URL, such as s3://bucket/clicks), CSV,
    JSON lines, or the Open Bandit Dataset's layout.
    Replay needs a log of uniform choices; the other estimators weight by logged propensities. A log of
    lists has one row for each arm of a list.

    Parameters
    ----------
    plot
        Draw the estimates with their intervals.
    ray
        Run on Ray; give LOGS before this option.
    shards
        With --ray: number of separate learners among which the keys of a policy that learns are divided.
    """
    from tacit.plots import check_plot

    with options.usage_errors():
        question_options.check()
        if plot and not question_options.weighting_names:
            raise click.UsageError("--plot: shows estimators other than replay; name one")
        if shards > 1 and ray is None:
            raise click.UsageError("--shards: only with --ray")
        reader, contexts = reading.with_contexts(reading.open(logs), question_options.learning_policy)
        reader = reader.with_columns(question_options.columns, question_options.cluster)
        reader = reader if question_options.by is None else reader.with_segment(question_options.by)
        if plot:
            check_plot(plot)
    shard_count = None if ray is None else shards
    with options.execution_context(ray):
        player = question_options.make_policy(reader, shard_count, contexts)
        # The report covers contexts, too, which are built by the policy's schema.
        reader = reader.with_context(getattr(player, "schema", ()))
        with options.require_valid_rows(reader):
            replayed, weighted = None, None
            if "replay" in question_options.estimator_names:
                replayed = question_options.run_replay(reader, shard_count, player)
            if question_options.weighting_names:
                weighted = question_options.run_off_policy(reader, shard_count, player)
    if plot and weighted is not None:
        weighted.plot(plot)
    results = [result for result in (replayed, weighted) if result is not None]
    text = "\n".join(result.summary() for result in results)
    options.print_result(results_as_dict(replayed, weighted), text, as_json, reader.report)


def results_as_dict(replay: Any, weighted: Any) -> dict[str, Any]:
    """Return the results of a replay and of weighting, each of which may be None, as a dict for JSON.

    Weighting has the estimates at the top level, with the replay below ``replay``; a replay alone is at the
    top level. Without both the dict is empty.
    """
    content: dict[str, Any] = {}
    if replay is not None:
        segments = {name: part._asdict() for name, part in replay.segments.items()}
        content = asdict(replay) | {"segments": segments}
    if weighted is None:
        return content
    return ({"replay": content} if content else {}) | {
        "estimates": weighted.table(),
        "logged": weighted.logged,
        "rows": weighted.rows,
        "unanswered": weighted.unanswered,
        "never_shown": list(weighted.never_shown),
        "warnings": [warning for estimate in weighted.estimates for warning in estimate.warnings],
    }


def get_reading_function(name: str, shards: int | None) -> Callable[..., Any]:
    """Return ``replay`` or ``off_policy`` of :mod:`tacit.evaluate`, as ``name`` says.

    If ``shards`` is given, return the function of :mod:`tacit.cluster` with that argument set.
    """
    from tacit import cluster, evaluate

    return getattr(evaluate, name) if shards is None else partial(getattr(cluster, name), shards=shards)


def read_arms(log: Any, shards: int | None = None) -> tuple[str, ...]:
    """Return the arms on offer in a log, which is read once, in parallel if ``shards`` is given.

    The log's report is replaced by the report of this reading. Raises LogError if the log has no valid row.
    """
    reader = log.without_context()
    with options.require_valid_rows(reader):
        if shards is None:
            from tacit.evaluate import arms_of

            with progress(None, "reading the arms"):
                arms = arms_of(reader)
        else:
            from tacit import cluster

            arms = cluster.arms_of(reader)
    log.report = reader.report
    return arms


@options.command(configured=True)
def examine(
    log: options.ExistingPath,
    reading: options.LogOptions,
    *,
    method: str | None = None,
    plot: Path | None = None,
    as_json: options.Json = False,
) -> None:
    """Estimate how much each position is examined, from a click log with positions.

    LOG is a file or a folder: Parquet, CSV, JSON lines, or the Open Bandit Dataset's layout.

    Parameters
    ----------
    method
        How to tell examination from relevance; with commas between several.  [default: randomization,
        if the log has propensities, harvesting,em]
    plot
        Draw the effects into this file.
    """
    from tacit.evaluate import examination
    from tacit.plots import check_plot

    methods = list(examination.METHODS) if method is None else options.split_names(method)
    with options.usage_errors():
        reader = reading.open(log)
        if plot:
            check_plot(plot)
    if not methods or not set(methods) <= set(examination.METHODS):
        raise click.UsageError(f"--method: {method!r}: give any of {', '.join(examination.METHODS)}")
    with options.require_valid_rows(reader):
        results = []
        for name in methods:
            try:
                result = examination.examine(reader, name)
                results.append(replace(result, positions=result.positions + reading.positions_from))
            except UnfitLog as error:
                if method is not None or examination.UNKNOWN not in str(error):
                    raise
                click.echo(f"warning: {name}: left out, as {error}", err=True)
    if plot:
        examination.plot(results, plot)
    text = "\n\n".join(result.summary() for result in results)
    table = [row for result in results for row in result.table()]
    options.print_result({"effects": table}, text, as_json, reader.report)


@dataclass(frozen=True, kw_only=True)
class CreditOptions:
    """Options of how searches give credit to rankers.

    Parameters
    ----------
    unit
        Column or field of the unit to which a search belongs.  [default: user, client_id, session or
        session_id, else each search]
    by
        Report segments by this column or field, e.g. market.
    worth
        Credit of an action, e.g. purchase=10.  [default: click=1]
    position
        Weight of a position: equal, inverse, dcg, effort, or numbers separated by commas, from the
        top.  [default: equal]
    most
        Upper limit of an amount, such as dwell time.
    distinct
        Weight items by how much the rankers disagree.
    credits
        Compare mean credits, also for tacit's own log.
    wins
        Count each search as 1 for its winner.
    depth
        Number of positions, from the top, that give credit.
    """

    unit: str | None = None
    by: Annotated[tuple[str, ...], options.OptionFormat(metavar="NAME")] = ()
    worth: Annotated[tuple[str, ...], options.OptionFormat(metavar="ACTION=WORTH")] = ()
    position: str | None = None
    most: float | None = None
    distinct: bool = False
    credits: bool = False
    wins: bool = False
    depth: options.Count | None = None

    @property
    def is_default(self) -> bool:
        """True if no option differs from its default."""
        return not any(vars(self).values())

    def as_options(self) -> dict[str, Any]:
        """Return the credit rule, unit, by, wins and depth as arguments of ``read_interleaved``, by name."""
        named_options = {name: getattr(self, name) for name in ("unit", "by", "wins", "depth")}
        return {"rule": self.make_rule(), **named_options}

    def make_rule(self) -> Any:
        """Return the credit rule of the typed options; raise click.UsageError if one is invalid."""
        from tacit.interleaving import CreditRule

        arguments: dict[str, Any] = {"distinct": self.distinct}
        try:
            if self.worth:
                worth = options.split_pairs("worth", self.worth).items()
                arguments["worth"] = {kind: checks.amount(f"worth.{kind}", value) for kind, value in worth}
            if self.position and any(digit in self.position for digit in "0123456789"):
                weights = options.split_names(self.position)
                arguments["position"] = [checks.amount("position", amount) for amount in weights]
            elif self.position:
                arguments["position"] = self.position
            if self.most is not None:
                arguments["most"] = self.most
            return CreditRule(**arguments)
        except TacitError as error:
            raise click.UsageError(f"--worth, --position, --most: {error}") from error


@options.command(configured=True)
def duel(
    logs: Annotated[tuple[str, ...], options.OptionFormat(metavar="LOG...")],
    crediting: CreditOptions,
    *,
    format: str | None = None,
    column: options.Columns = (),
    confidence: Annotated[float, click.FloatRange(0.0, 1.0, min_open=True, max_open=True)] = 0.95,
    false_share: options.Share = 0.05,
    strict: options.Strict = False,
    most_rejected: options.MostRejected = "5%",
    plot: Path | None = None,
    as_json: options.Json = False,
) -> None:
    """Find the better ranker from logs of interleaved searches, and when to stop.

    LOG is a file, folder or pattern: Parquet, CSV or JSON lines. It has the columns search, team (the
    ranker that gave the item), position and click; or it is tacit's own, with left, right and outcome,
    or interleaved and clicks; or JSON lines of answers of OpenSearch, Elasticsearch or Solr, and of
    UBI events, in any number of files.

    Parameters
    ----------
    format
        parquet, csv or json.  [default: from the suffix]
    confidence
        Simultaneous confidence level of all decisions; for logs of searches 0.9, 0.95 or 0.99.
    false_share
        False discovery rate of the segments reported as different.
    plot
        Draw the comparisons into this file.
    """
    from tacit.evaluate.duels import read_duels
    from tacit.evaluate.interleaved import read_interleaved
    from tacit.evaluate.interleaved.comparison import check_search_columns, is_duel_log
    from tacit.logs.formats import find_files, list_suffixes
    from tacit.plots import check_plot

    if crediting.credits and crediting.wins:
        raise click.UsageError("--credits, --wins: give one of them")
    with options.usage_errors():
        if plot:
            check_plot(plot)
        columns = check_search_columns(options.split_pairs("column", column))
        files = [file for log in logs for file in find_files(log, list_suffixes(format))]
    share = options.parse_share(most_rejected)
    reading: Any = {"format": format, "strict": strict, "confidence": confidence, "most_rejected": share}
    report: Any
    is_single_default = len(files) == 1 and crediting.is_default
    with progress(None, "reading duels"):
        if is_single_default and is_duel_log(files[0], format, columns):
            report, rows = read_duels(files[0], columns=columns, **reading)
        else:
            report, rows = read_interleaved(
                logs, columns=columns, false_share=false_share, **crediting.as_options(), **reading
            )
    if plot:
        report.plot(plot)
    options.print_result(report.as_dict(), report.summary(), as_json, rows)
