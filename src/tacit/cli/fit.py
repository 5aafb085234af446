"""Commands for logs: ``tacit fit`` learns them, ``schema`` suggests a schema, ``ubi`` writes a click log."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal
from zipfile import is_zipfile

import click

from tacit.cli import options
from tacit.core.parallel import progress
from tacit.errors import AssumptionWarning


@options.command(configured=True)
def fit(
    logs: tuple[str, ...],
    reading: options.LogOptions,
    *,
    policy: str = "auto",
    output: Annotated[options.NewFile, options.Typed(("-o", "--output"))],
    relevance: Annotated[str, options.Typed(metavar="COLUMN,…|table:FILE")] | None = None,
    examination: Annotated[str, options.Typed(metavar="COLUMN,…|table:FILE")] | None = None,
    placement: str | None = None,
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
    output
        File of the learner, for tacit.Learner.load.
    relevance
        Features of arms, for policies that use them: columns of LOGS with the features of the shown arm, or
        a file with a row for each arm, named in its column arm.
    examination
        Likewise, features of examination.
    placement
        Learn the rows of this placement; by default of the only one.
    """
    from tacit.evaluate import arms_of
    from tacit.learning.learner import Learner
    from tacit.learning.log_learning import features_given
    from tacit.policies import policy_from_spec
    from tacit.policies.context import schema_text
    from tacit.policies.spec import reads_features

    if output.exists() and not is_zipfile(output):
        raise click.UsageError(f"--output: {output} is there, and is no learner; give another, or delete it")
    with options.usage():
        reader, contexts = reading.contextual(reading.open(logs), policy)
        features = {"relevance": features_at(relevance), "examination": features_at(examination)}
        dims = {f"{name}_dim": features_given(where) for name, where in features.items()}
        dims["relevance_dim"] = dims["relevance_dim"] or (reader.items.dim if reader.items else 0)
        by_features = reads_features(policy)
        if by_features and not any(dims.values()):
            raise click.UsageError(
                f"--policy: {by_features} knows arms by their features: give --relevance "
                "price,age, columns of the log with those of the arm shown, --relevance "
                "table:FILE, a row for each arm, or --items FILE, a vector for each id"
            )
    offering = reader.without_context()
    with options.concluding(offering), progress(None, "reading the arms"):
        arms = arms_of(offering)
    reader.report = offering.report
    with options.usage():
        learner = Learner(policy_from_spec(policy, arms, setting=dims | contexts), seed)
        reader = reader.with_context(learner.policy.schema)
    with options.concluding(reader):
        learned = learner.fit_log(reader, placement=placement, **features).decisions
    learner.save(output)
    text = f"{learner.policy.label} learned {learned:,} decisions of {len(learner):,} keys: {output}"
    if learner.policy.schema:
        text += f"\n{schema_text(learner.policy.schema)}"
    options.show({"decisions": learned, "keys": len(learner)}, text, as_json, reader.report)


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
    from tacit.policies.context import declared, schema_text

    with options.usage():
        if not reading.contexts:
            raise click.UsageError("--column: name the columns of the context: --column context=age,device")
        # Other columns are not read and may be missing.
        kept = tuple(each for each in reading.column if each.startswith("context="))
        harmless = replace(reading, arms=None, column=kept, constant=("arm=?", 'arms=["?"]'))
        with warnings.catch_warnings(action="ignore", category=AssumptionWarning):
            reader = harmless.open(logs)
    suggested = reader.schema_of(reading.contexts, first)
    text = schema_text(declared("context", suggested))
    options.show({"context": suggested}, text, as_json)


def features_at(features: str | None) -> Any:
    """Return the names of feature columns, or a table of features by arm from a file."""
    import pyarrow as pa

    from tacit.logs.reader import file_at
    from tacit.logs.rows import converted

    if features is None:
        return None
    if not features.startswith("table:"):
        return options.names(features)
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
        Actions that are clicks, separated by commas.
    examined
        Actions that mean that the user saw an object.
    seen
        Which objects become rows: all that were returned, or those seen or clicked.
    length
        Most objects that a page shows.
    """
    from tacit.logs import read_ubi, write_log
    from tacit.logs.formats import format_of
    from tacit.logs.ubi import UbiReport

    with options.usage():
        format_of(out)
        reader = read_ubi(
            records,
            clicks=options.names(clicks),
            examined=options.names(examined),
            seen=seen,
            length=length,
            constants=options.pairs("constant", constant),
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
    options.show(content, f"{report.summary()}\nwrote {out}", as_json)
