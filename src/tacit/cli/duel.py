"""``tacit duel``: which ranker wins?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tacit.cli.options import (
    column_option,
    config_option,
    json_option,
    names,
    pairs,
    plot_option,
    show,
    strict_option,
)
from tacit.errors import TacitError

POSITIONS = "equal, inverse, dcg, effort, or numbers with commas, from the top"


@click.command()
@config_option
@click.argument(
    "logs",
    metavar="LOG...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option("--format", help="parquet, csv or json.  [default: from the suffix]")
@column_option
@click.option(
    "--unit",
    help="Column or field that says whose a search is.  [default: user, client_id, session or "
    "session_id, else each search]",
)
@click.option("--by", multiple=True, metavar="NAME", help="Tell apart by this column or field, e.g. market.")
@click.option(
    "--worth",
    multiple=True,
    metavar="ACTION=WORTH",
    help="What an action counts, e.g. purchase=10.  [default: click=1]",
)
@click.option("--position", help=f"What a place counts: {POSITIONS}.  [default: equal]")
@click.option("--most", type=float, help="The most that an amount, as of dwelling, counts.")
@click.option("--distinct", is_flag=True, help="Count items so far as the rankers disagree.")
@click.option("--credits", is_flag=True, help="Compare mean credits, also of tacit's own log.")
@click.option("--wins", is_flag=True, help="Count each search 1 for its winner.")
@click.option("--depth", type=click.IntRange(1), help="So many places from the top earn credit.")
@click.option(
    "--ab",
    is_flag=False,
    flag_value="position",
    type=click.Choice(["position", "top-down"]),
    help="Say what an A/B test would find, if users see a place whatever stands around it, or read "
    "from the top.",
)
@click.option(
    "--confidence",
    default=0.95,
    show_default=True,
    type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True),
    help="Of all that is decided, together; of searches 0.9, 0.95 or 0.99.",
)
@click.option(
    "--false-share",
    default=0.05,
    show_default=True,
    type=click.FloatRange(0.0, 1.0, min_open=True),
    help="Of the segments found to differ, so much is wrong at most, on average.",
)
@strict_option
@plot_option("Draw the comparisons into this file.")
@json_option
def duel(
    config: Path | None,
    logs: tuple[Path, ...],
    format: str | None,
    column: tuple[str, ...],
    confidence: float,
    strict: bool,
    plot: Path | None,
    as_json: bool,
    **crediting: Any,
) -> None:
    """Say which ranker wins, from logs of interleaved searches, and when to stop.

    LOG is a file of Parquet, CSV or JSON lines. It has the columns search, team (the ranker that
    gave the item), position and click; or it is tacit's own, with left, right and outcome, or
    interleaved and clicks; or JSON lines of what OpenSearch, Elasticsearch or Solr answered, and
    of UBI events, in as many files as you like.
    """
    from tacit.core.spread import progress
    from tacit.evaluate.duels import read_duels
    from tacit.evaluate.interleaved import read_interleaved
    from tacit.evaluate.interleaved.method import tells_pairs
    from tacit.plots import figure

    if crediting["credits"] and crediting["wins"]:
        raise click.UsageError("--credits, --wins: give one of them")
    if plot:
        figure()  # the lack of what draws must not show only when the work is done
    columns = columns_of(column)
    report: Any
    plain = len(logs) == 1 and not any(crediting[name] for name in OPTIONS)
    with progress(None, "reading duels"):
        if plain and tells_pairs(logs[0], format, columns):
            report, rows = read_duels(
                logs[0], format=format, columns=columns, strict=strict, confidence=confidence
            )
        else:
            report, rows = read_interleaved(
                logs,
                rule=rule_of(**{name: crediting[name] for name in RULE}),
                unit=crediting["unit"],
                by=crediting["by"],
                wins=crediting["wins"],
                depth=crediting["depth"],
                ab=crediting["ab"],
                confidence=confidence,
                false_share=crediting["false_share"],
                columns=columns,
                format=format,
                strict=strict,
            )
    if plot:
        report.plot(plot)
    show(report.as_dict(), report.summary(), as_json, rows)


def columns_of(texts: tuple[str, ...]) -> dict[str, str]:
    """Return what the columns that are read are called in the file."""
    from tacit.evaluate.duels import COLUMNS
    from tacit.evaluate.interleaved.searches import OWN, ROW

    columns = pairs("column", texts)
    known = dict.fromkeys([*COLUMNS, *OWN, *ROW, "item", "action", "amount"])
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise click.UsageError(
            f"--column: {unknown[0]!r} is not one of {', '.join(known)}; the column that says "
            "whose a search is goes with --unit, one that tells segments apart with --by"
        )
    return columns


RULE = ("worth", "position", "most", "distinct")
OPTIONS = (*RULE, "unit", "by", "credits", "wins", "depth", "ab")


def rule_of(worth: tuple[str, ...], position: str | None, most: float | None, distinct: bool) -> Any:
    """Return the rule of credit that options ask for."""
    from tacit.interleaving import CreditRule

    given: dict[str, Any] = {"distinct": distinct}
    try:
        if worth:
            given["worth"] = {kind: float(amount) for kind, amount in pairs("worth", worth).items()}
        if position:
            numbers = any(sign in position for sign in "0123456789")
            given["position"] = list(map(float, names(position))) if numbers else position
        if most is not None:
            given["most"] = most
        return CreditRule(**given)
    except (ValueError, TacitError) as error:
        raise click.UsageError(f"--worth, --position, --most: {error}") from error
