"""Commands for logs: ``tacit fit`` learns them, ``schema`` suggests a schema, ``ubi`` writes a click log."""

import warnings
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal
from zipfile import is_zipfile

import click

from tacit.cli import options
from tacit.cli.evaluate import read_arms
from tacit.core import checks
from tacit.core.parallel import progress
from tacit.errors import AssumptionWarning


@options.command(configured=True)
def fit(
    logs: tuple[str, ...] = (),
    *,
    reading: options.LogOptions,
    policy: str = "auto",
    counts: options.File | None = None,
    output: Annotated[options.NewFile, options.OptionFormat(("-o", "--output"))],
    relevance: Annotated[str, options.OptionFormat(metavar="COLUMN,…|table:FILE")] | None = None,
    examination: Annotated[str, options.OptionFormat(metavar="COLUMN,…|table:FILE")] | None = None,
    placement: str | None = None,
    answered: bool = False,
    seed: options.Seed = 1,
    as_json: options.Json = False,
) -> None:
    """Learn a click log, and write the learner to a file.

    LOGS are as for evaluate. The learner is a warm start: continue with tacit.Learner.load(FILE), or in
    the service with start = FILE in a placement's configuration.

    Parameters
    ----------
    policy
        Name, call or module:Class, e.g. "thompson(discount=0.999)", or "list-mix(positions=5)" for a log
        of lists.
    counts
        Begin with the counts of arms in this file, with or without LOGS: its columns are arm, successes (or
        clicks), and plays (or impressions) or failures.
    output
        File of the learner, for tacit.Learner.load.
    relevance
        Features of arms, for policies that use them: columns of LOGS with the features of the shown arm, or
        a file with a row for each arm, named in its column arm.
    examination
        Likewise, features of examination.
    placement
        Learn the rows of this placement; by default of the only one.
    answered
        Leave out rows without feedback; by default they count as 0.
    """
    from tacit.learning.learner import Learner
    from tacit.learning.log_learning import count_features
    from tacit.policies import policy_from_spec
    from tacit.policies.context import schema_text
    from tacit.policies.spec import reads_features

    priors = () if counts is None else read_counts(counts)
    if not logs and not priors:
        raise click.UsageError("give LOGS, or counts of arms by --counts FILE")
    if output.exists() and not is_zipfile(output):
        raise click.UsageError(f"--output: {output} is there, and is no learner; give another, or delete it")
    with options.usage_errors():
        if not logs:
            save_counts(policy, priors, seed, output, as_json)
            return
        reader, contexts = reading.with_contexts(reading.open(logs), policy)
        features: dict[str, Any] = {
            "relevance": read_features(relevance),
            "examination": read_features(examination),
        }
        dims = {f"{name}_dim": count_features(where) for name, where in features.items()}
        dims["relevance_dim"] = dims["relevance_dim"] or (reader.items.dim if reader.items else 0)
        by_features = reads_features(policy)
        if by_features and not any(dims.values()):
            raise click.UsageError(
                f"--policy: {by_features} knows arms by their features: give --relevance "
                "price,age, columns of the log with those of the arm shown, --relevance "
                "table:FILE, a row for each arm, or --items FILE, a vector for each id"
            )
    arms = read_arms(reader)
    with options.usage_errors():
        new_policy = policy_from_spec(policy, arms, setting=dims | contexts)
        learner = Learner(options.with_log_range(with_priors(new_policy, priors), reader), seed)
        reader = reader.with_context(learner.policy.schema)
    with options.require_valid_rows(reader):
        features |= {"placement": placement, "missing_reward": None if answered else 0.0}
        learned = learner.fit_log(reader, **features).decisions
    learner.save(output)
    text = f"{learner.policy.label} learned {learned:,} decisions of {len(learner):,} keys: {output}"
    if learner.policy.schema:
        text += f"\n{schema_text(learner.policy.schema)}"
    options.print_result({"decisions": learned, "keys": len(learner)}, text, as_json, reader.report)


def read_counts(path: Path) -> Any:
    """Return the counts in a file as a tuple (arm, successes, failures).

    Raises click.UsageError if it lacks a column, or has a wrong count.
    """
    import pyarrow as pa

    from tacit.logs.reader import open_file
    from tacit.policies.index import COUNTS, read_priors

    aliases = [alias for names in COUNTS.values() for alias in names]

    with options.usage_errors():
        file = open_file(path)
        names = [name for name in file.names if name.lower() in aliases] or file.names
        return read_priors(pa.table(_read_columns(file, names, COUNTS["arm"])))


def save_counts(policy: str, priors: Any, seed: int, output: Path, as_json: bool) -> None:
    """Write a learner that begins with the counts of arms ``priors`` to a file, and print a summary."""
    from tacit.learning.learner import Learner
    from tacit.policies import policy_from_spec

    new_policy = with_priors(policy_from_spec(policy, [arm for arm, *_ in priors]), priors)
    Learner(new_policy, seed).save(output)
    text = f"{new_policy.label} begins with counts of {len(priors)} arms: {output}"
    options.print_result({"decisions": 0, "keys": 0}, text, as_json)


def with_priors(policy: Any, priors: Any) -> Any:
    """Return a policy that begins with these counts of arms; raise click.UsageError if it takes none."""
    if not priors:
        return policy
    if not hasattr(policy, "priors"):
        raise click.UsageError(f"--counts: {policy.label} takes none; give auto, thompson or ucb1")
    return replace(policy, priors=priors)


@options.command(configured=True)
def schema(
    logs: tuple[str, ...],
    reading: options.LogOptions,
    *,
    first: options.Count = 1000,
    as_json: options.Json = False,
) -> None:
    """Suggest a schema for the context columns of a log, as TOML for a configuration.

    LOGS are as for evaluate; --column context=age,device names the columns. The output, edited or not, can
    be used as --column context=@FILE.

    Parameters
    ----------
    first
        Number of rows to read.
    """
    from tacit.policies.context import normalize_schema, schema_text

    with options.usage_errors():
        if not reading.context_columns:
            raise click.UsageError("--column: name the columns of the context: --column context=age,device")
        # Other columns are not read and may be missing.
        columns = tuple(text for text in reading.column if text.startswith("context="))
        log_options = replace(reading, arms=None, column=columns, constant=("arm=?", 'arms=["?"]'))
        with warnings.catch_warnings(action="ignore", category=AssumptionWarning):
            reader = log_options.open(logs)
    suggested = reader.infer_schema(reading.context_columns, first)
    text = schema_text(normalize_schema("context", suggested))
    options.print_result({"context": suggested}, text, as_json)


def read_features(features: str | None) -> Any:
    """Return the names of feature columns, or for ``table:FILE`` the features by arm, read from the file.

    None without features. Raises click.UsageError if the file has no column ``arm``.
    """
    from tacit.logs.reader import open_file

    if features is None:
        return None
    if not features.startswith("table:"):
        return options.split_names(features)
    file = open_file(Path(features.removeprefix("table:")))
    if "arm" not in file.names:
        raise click.UsageError(f"{file.path}: there is no column 'arm', which names each row's arm")
    columns = _read_columns(file, file.names, ("arm",))
    return dict(zip(columns.pop("arm"), map(list, zip(*columns.values(), strict=True)), strict=True))


def _read_columns(file: Any, names: Sequence[str], texts: Collection[str]) -> dict[str, list[Any]]:
    """Return columns of a file as lists by name: texts for those in ``texts``, else numbers."""
    import pyarrow as pa

    from tacit.logs.rows import convert_values

    columns: dict[str, list[Any]] = {name: [] for name in names}
    for raw in file.read(names, 65_536):
        for name, values in columns.items():
            kind = pa.string() if name.lower() in texts else pa.float64()
            values += convert_values(raw.columns[name], kind).to_pylist()
    return columns


def _read_clicks(text: str) -> list[str] | dict[str, float]:
    """Return the actions of the option --clicks as a list, or as a dict if they have rewards."""
    names = options.split_names(text)
    if "=" not in text:
        return names
    rewards = options.split_pairs("clicks", tuple(names))
    return {name: checks.amount(f"clicks.{name}", reward) for name, reward in rewards.items()}


@options.command(configured=True)
def ubi(
    records: tuple[str, ...],
    out: options.NewFile,
    *,
    clicks: str = "click",
    examined: str = "impression,view",
    seen: Literal["returned", "examined"] = "returned",
    length: options.Count | None = None,
    constant: options.Constants = (),
    strict: options.Strict = False,
    as_json: options.Json = False,
) -> None:
    """Write User Behavior Insights (UBI 1.3) records as the click log OUT.

    RECORDS are files, folders or patterns: JSON lines or Parquet, with queries and events in separate or
    the same files. The suffix of OUT determines its format: .parquet, .csv or .jsonl.

    Parameters
    ----------
    clicks
        Actions that are clicks, separated by commas; or the reward of each: click=0.3,purchase=1.
    examined
        Actions that mean that the user saw an object.
    seen
        Which objects become rows: all that were returned, or those seen or clicked.
    length
        Most objects that a page shows.
    """
    from tacit.logs import read_ubi, write_log
    from tacit.logs.formats import detect_format
    from tacit.logs.ubi import UbiReport

    with options.usage_errors():
        detect_format(out)  # raises for another suffix, before anything is read
        reader = read_ubi(
            records,
            clicks=_read_clicks(clicks),
            examined=options.split_names(examined),
            seen=seen,
            length=length,
            constants=options.split_pairs("constant", constant),
            strict=strict,
        )
    with progress(None, "reading records"):
        write_log(reader, out)
    report: Any = reader.report
    assert isinstance(report, UbiReport)
    content = {
        "rows": report.kept,
        "queries": report.queries,
        "events": report.events,
        "clicks": report.clicks,
        "examined": report.examined,
        "others": report.others,
        "rejected": report.rejected,
    }
    options.print_result(content, f"{report.summary()}\nwrote {out}", as_json)
