"""Commands for logs: ``tacit evaluate`` policies, ``examine`` positions, ``duel`` between rankers.

``EvaluateOptions`` holds the options of ``evaluate``, for both replay and weighting; ``examine`` and ``duel``
follow.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import click

from tacit.cli import options
from tacit.core import checks
from tacit.core.parallel import progress
from tacit.errors import TacitError, UnfitLog, UnknownName

FILES = {".tacit": "learner", ".csv": "table", ".json": "table"}
"""Kind of policy by suffix of a file, for hints in errors."""


@dataclass(frozen=True, kw_only=True)
class Question:
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
        Treat rows without propensity as uniform choices.
    answered
        Leave out rows without feedback, if the log records zeros, too; by default they count as 0.
    """

    policy: str
    estimator: str | None = None
    clip: float | None = None
    threshold: float = 10.0
    slots: int | None = None
    propensities: str = "logged"
    by: Annotated[str, options.Typed(metavar="COLUMN")] | None = None
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
        """The fixed policy; None for a policy that learns."""
        from tacit import Learner
        from tacit.evaluate import Frozen, fixed_target

        kind, colon, path = self.policy.partition(":")
        if kind == "learner" and colon:
            return Frozen(Learner.load(path))
        return fixed_target(self.policy)

    @property
    def missing_reward(self) -> float | None:
        """Reward of rows without feedback; None leaves these rows out."""
        return None if self.answered else 0.0

    @property
    def columns(self) -> list[str]:
        """Additional columns of the log that the evaluation reads."""
        from tacit.evaluate.rows import further

        looking: Any = [getattr(given, "columns", frozenset()) for given in (self.target, self.known)]
        return further(frozenset(filter(None, [self.cluster])).union(*looking))

    @cached_property
    def lists(self) -> bool:
        """True if the policy shows lists."""
        from tacit.policies.spec import what_shows

        if self.target is not None:
            return self.policy.startswith("list:")
        try:
            shows = what_shows(self.policy)
        except UnknownName as error:
            kind = FILES.get(Path(self.policy).suffix, "always")
            hint = f"; {kind}:{self.policy} may be meant; there are"
            raise UnknownName(str(error).replace("; there are", hint)) from None
        if shows.compared:
            raise click.UsageError(
                f"--policy: {self.policy} shows a {shows.name}, but a click log holds arms and "
                "lists; try it with tacit simulate"
            )
        return shows.listed

    @property
    def learns(self) -> str | None:
        """The policy's specification if it learns rewards of single arms, else None."""
        return self.policy if self.target is None and not self.lists else None

    @cached_property
    def known(self) -> Any:
        """Source of propensities: ``logged``, ``estimated``, or a table."""
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
        """Names of the estimators."""
        if self.estimator is not None:
            return options.names(self.estimator)
        if self.lists:
            logged = self.propensities == "logged"
            return ["independent-ips", *(["cascade-ips", "slate-ips"] if logged else [])]
        return ["replay"] if self.target is None and self.replayable else ["ips", "snips"]

    @property
    def replayable(self) -> bool:
        """True if the log may be of uniform choices, which replay requires."""
        return self.propensities in ("logged", "uniform")

    @property
    def weighted(self) -> list[str]:
        """Names of the estimators that weight the log."""
        return [name for name in self.wanted if name != "replay"]

    def check(self) -> None:
        """Raise an error for options that do not fit together, before the log is read."""
        _ = self.known, self.lists
        if not self.wanted:
            raise click.UsageError("--estimator: name one at least")
        if not self.weighted and any((self.clip, self.cluster, self.weight_bound)):
            unused = "--clip, --cluster, --weight-bound: not used, as a replay weighs nothing"
            click.echo(f"warning: {unused}; give --estimator ips,snips", err=True)
        if "replay" in self.wanted:
            if self.lists:
                raise click.UsageError(
                    "--estimator: replay counts rows that are the same, and hardly ever is a whole "
                    "list; give independent-ips, cascade-ips or slate-ips"
                )
            if self.target is not None:
                raise click.UsageError(f"--estimator: replay needs a policy that learns, not {self.policy!r}")
            if not self.replayable:
                raise click.UsageError(
                    f"--propensities: {self.propensities}: replay takes a log of uniform choices, and weighs "
                    "nothing; give uniform, or --estimator ips,snips"
                )
        self._estimators(self.slots or 3)

    def player(self, reader: Any, shards: int | None, contexts: dict[str, Any]) -> Any:
        """Return the fixed policy, or create the policy for the log's arms if it learns."""
        from tacit.policies import policy_from_spec

        if self.target is not None:
            return self.target
        arms = arms_on_offer(reader, shards)
        with options.usage():
            setting: dict[str, Any] = {"positions": self.slots} if self.lists and self.slots else {}
            return policy_from_spec(self.policy, arms, setting=setting | contexts)

    def replayed(self, reader: Any, shards: int | None, player: Any) -> Any:
        """Replay the log; return the result."""
        from tacit.evaluate.options import ReplayOptions

        given = self._given(ReplayOptions) | {
            "assume_uniform": self.assume_uniform or self.propensities == "uniform"
        }
        return reads("replay", shards)(player, reader, **given)

    def off_policy(self, reader: Any, shards: int | None, player: Any) -> Any:
        """Estimate the policy's value from the weighted log; return the result."""
        from tacit.evaluate.options import OffPolicyOptions

        slots = 3
        if self.lists:
            fixed = self.target is not None
            slots = self.policy.count(",") + 1 if fixed else player.action_width
        return reads("off_policy", shards)(
            player,
            reader,
            self._estimators(self.slots or slots),
            **self._given(OffPolicyOptions) | {"propensities": self.known},
        )

    def _given(self, options: Any) -> dict[str, Any]:
        """Return the values of those options, by name, that the command line has."""
        return {name: getattr(self, name) for name in options.__annotations__ if hasattr(self, name)}

    def _estimators(self, slots: int) -> Any:
        from tacit.evaluate import named_estimators

        return named_estimators(self.weighted, clip=self.clip, threshold=self.threshold, slots=slots)


@options.command(configured=True)
def evaluate(
    logs: tuple[str, ...],
    question: Question,
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
    from tacit.plots import ready

    with options.usage():
        question.check()
        if plot and not question.weighted:
            raise click.UsageError("--plot: shows estimators other than replay; name one")
        if shards > 1 and ray is None:
            raise click.UsageError("--shards: only with --ray")
        reader, contexts = reading.contextual(reading.open(logs), question.learns)
        reader = reader.with_columns(question.columns, question.cluster)
        reader = reader if question.by is None else reader.by(question.by)
        if plot:
            ready(plot)
    parts = None if ray is None else shards
    with options.where(ray):
        player = question.player(reader, parts, contexts)
        # The report covers contexts, too, which are built by the policy's schema.
        reader = reader.with_context(getattr(player, "schema", ()))
        with options.concluding(reader):
            replayed = question.replayed(reader, parts, player) if "replay" in question.wanted else None
            weighted = question.off_policy(reader, parts, player) if question.weighted else None
    if plot and weighted is not None:
        weighted.plot(plot)
    results = [result for result in (replayed, weighted) if result is not None]
    text = "\n".join(result.summary() for result in results)
    options.show(content_of(replayed, weighted), text, as_json, reader.report)


def content_of(replayed: Any, weighted: Any) -> dict[str, Any]:
    """Return the results of a replay and of weighting for JSON output."""
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


def reads(name: str, shards: int | None) -> Callable[..., Any]:
    """Return an evaluation function by name: for one process, or for shards."""
    from tacit import cluster, evaluate

    return getattr(evaluate, name) if shards is None else partial(getattr(cluster, name), shards=shards)


def arms_on_offer(log: Any, shards: int | None) -> tuple[str, ...]:
    """Read the arms on offer in a log."""
    from tacit import cluster
    from tacit.evaluate import arms_of

    reader = log.without_context()
    with options.concluding(reader):
        if shards is not None:
            return cluster.arms_of(reader)
        with progress(None, "reading the arms"):
            found = arms_of(reader)
    log.report = reader.report
    return found


@options.command(configured=True)
def examine(
    log: options.Existing,
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
    from tacit.plots import ready

    methods = list(examination.METHODS) if method is None else options.names(method)
    with options.usage():
        reader = reading.open(log)
        if plot:
            ready(plot)
    if not methods or not set(methods) <= set(examination.METHODS):
        raise click.UsageError(f"--method: give any of {', '.join(examination.METHODS)}")
    with options.concluding(reader):
        results = []
        for name in methods:
            try:
                results.append(examination.examine(reader, name))
            except UnfitLog as error:
                if method is not None or examination.UNKNOWN not in str(error):
                    raise
                click.echo(f"warning: {name}: left out, as {error}", err=True)
    if plot:
        examination.plot(results, plot)
    text = "\n\n".join(result.summary() for result in results)
    table = [row for result in results for row in result.table()]
    options.show({"effects": table}, text, as_json, reader.report)


@dataclass(frozen=True, kw_only=True)
class Crediting:
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
    by: Annotated[tuple[str, ...], options.Typed(metavar="NAME")] = ()
    worth: Annotated[tuple[str, ...], options.Typed(metavar="ACTION=WORTH")] = ()
    position: str | None = None
    most: float | None = None
    distinct: bool = False
    credits: bool = False
    wins: bool = False
    depth: options.Count | None = None

    @property
    def plain(self) -> bool:
        """True if no option is set."""
        return not any(vars(self).values())

    def given(self) -> dict[str, Any]:
        """Return the options of :func:`~tacit.evaluate.interleaved.read_interleaved`."""
        named = {name: getattr(self, name) for name in ("unit", "by", "wins", "depth")}
        return {"rule": self.rule(), **named}

    def rule(self) -> Any:
        """Return the credit rule."""
        from tacit.interleaving import CreditRule

        given: dict[str, Any] = {"distinct": self.distinct}
        try:
            if self.worth:
                worth = options.pairs("worth", self.worth)
                given["worth"] = {kind: checks.amount(f"worth.{kind}", each) for kind, each in worth.items()}
            if self.position:
                given["position"] = self.position
            if self.position and any(sign in self.position for sign in "0123456789"):
                places = options.names(self.position)
                given["position"] = [checks.amount("position", each) for each in places]
            if self.most is not None:
                given["most"] = self.most
            return CreditRule(**given)
        except TacitError as error:
            raise click.UsageError(f"--worth, --position, --most: {error}") from error


@options.command(configured=True)
def duel(
    logs: Annotated[tuple[str, ...], options.Typed(metavar="LOG...")],
    crediting: Crediting,
    *,
    format: str | None = None,
    column: options.Columns = (),
    confidence: Annotated[float, click.FloatRange(0.0, 1.0, min_open=True, max_open=True)] = 0.95,
    false_share: options.Share = 0.05,
    strict: options.Strict = False,
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
    from tacit.evaluate.interleaved.comparison import searched, tells_pairs
    from tacit.logs.formats import files_at, suffixes_of
    from tacit.plots import ready

    if crediting.credits and crediting.wins:
        raise click.UsageError("--credits, --wins: give one of them")
    if plot:
        with options.usage():
            ready(plot)
    with options.usage():
        columns = searched(options.pairs("column", column))
        files = [file for log in logs for file in files_at(log, suffixes_of(format))]
    reading: Any = {"format": format, "strict": strict, "confidence": confidence}
    report: Any
    plain = len(files) == 1 and crediting.plain
    with progress(None, "reading duels"):
        if plain and tells_pairs(files[0], format, columns):
            report, rows = read_duels(files[0], columns=columns, **reading)
        else:
            report, rows = read_interleaved(
                logs, columns=columns, false_share=false_share, **crediting.given(), **reading
            )
    if plot:
        report.plot(plot)
    options.show(report.as_dict(), report.summary(), as_json, rows)
