"""``tacit ubi``: records of User Behavior Insights, made into a click log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tacit.cli.options import (
    config_option,
    constant_option,
    json_option,
    names,
    pairs,
    show,
    strict_option,
    usage,
)


@click.command()
@config_option
@click.argument("records", nargs=-1, required=True)
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--clicks",
    default="click",
    show_default=True,
    help="Actions that are clicks; with commas between several.",
)
@click.option(
    "--examined", default="impression,view", show_default=True, help="Actions that say an object was seen."
)
@click.option(
    "--seen",
    default="returned",
    show_default=True,
    type=click.Choice(["returned", "examined"]),
    help="Which objects become rows: all that were returned, or those seen or clicked.",
)
@click.option("--length", type=click.IntRange(1), help="The most objects that a page shows.")
@constant_option
@strict_option
@json_option
def ubi(
    config: Path | None,
    records: tuple[str, ...],
    out: Path,
    clicks: str,
    examined: str,
    seen: str,
    length: int | None,
    constant: tuple[str, ...],
    strict: bool,
    as_json: bool,
) -> None:
    """Write User Behavior Insights (UBI 1.3) records as the click log OUT.

    RECORDS are files, folders or patterns: JSON lines or Parquet, with queries and events apart or
    mixed. The suffix of OUT says its format: .parquet, .csv or .jsonl.
    """
    from tacit.core.spread import progress
    from tacit.logs import read_ubi, write_log
    from tacit.logs.formats import format_of
    from tacit.logs.ubi import UbiReport

    with usage():
        format_of(out)
        reader = read_ubi(
            records,
            clicks=names(clicks),
            examined=names(examined),
            seen=seen,
            length=length,
            constants=pairs("constant", constant),
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
    show(content, f"{report.summary()}\nwrote {out}", as_json)
