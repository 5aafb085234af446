"""From files of interleaved searches to a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tacit.core import checks
from tacit.errors import LogError
from tacit.evaluate.interleaved.columns import Columns
from tacit.evaluate.interleaved.folding import Fold, checked_rule
from tacit.evaluate.interleaved.reading import read_searches
from tacit.evaluate.interleaved.report import InterleavedReport
from tacit.evaluate.interleaved.scale import Model, scaled
from tacit.interleaving import CreditRule
from tacit.logs.rows import LogReport


def read_interleaved(
    paths: str | Path | Sequence[str | Path],
    *,
    rule: CreditRule | None = None,
    unit: str | None = None,
    by: Sequence[str] = (),
    wins: bool = False,
    depth: int | None = None,
    ab: Model | None = None,
    confidence: float = 0.95,
    false_share: float = 0.05,
    columns: dict[str, str] | None = None,
    format: str | None = None,
    strict: bool = False,
) -> tuple[InterleavedReport, LogReport]:
    """Compare rankers by a log of searches that showed interleaved lists.

    Parameters
    ----------
    paths : path, or sequence of them
        Parquet, CSV or JSON lines: rows of (search, team, position, click), answers of
        OpenSearch, Elasticsearch or Solr with UBI events, or tacit's own log of duels; see
        docs/interleaving.md.
    rule : CreditRule, optional
        What actions are worth; by default a click 1.
    unit : str, optional
        The column or field that says whose a search is, such as a user or session.
    by : sequence of str
        Columns or fields of segments, such as the market.
    wins : bool, default False
        Whether a search counts 1 for its winner, in place of its difference of credit.
    depth : int, optional
        So many places from the top earn credit.
    ab : {"position", "top-down"}, optional
        Whether to estimate what an A/B test of the leader and its closest rival would find, by
        :func:`scaled`, and how users are taken to read.
    confidence : float, default 0.95
        0.9, 0.95 or 0.99.
    false_share : float, default 0.05
        Of the segments that are found, so much is wrong at most, on average.
    columns : dict, optional
        From our names of columns to the file's.
    format : {"parquet", "csv", "json"}, optional
        By default the suffix says it.
    strict : bool, default False
        Whether to stop at the first row that is wrong, instead of counting it.

    Returns
    -------
    report : InterleavedReport
    rows : LogReport
        What became of the rows.

    Raises
    ------
    LogError
        If a file cannot be read, or there are no two rankers in it.
    InvalidValue
        If an option is wrong.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    depth = None if depth is None else checks.integer("depth", depth, 1)
    read = Columns(unit, tuple(by), dict(columns or {}))
    assembly, rows = read_searches(list(map(Path, given)), read, format=format, strict=strict)
    names = assembly.rankers
    if len(names) < 2:
        raise LogError(
            f"{', '.join(map(str, given))}: two rankers are needed, there are {names}; {rows.summary()}"
        )
    searches = list(assembly.searches())
    rule = checked_rule(rule, searches)
    fold = Fold(rule, by, wins=wins, depth=depth)
    for search in searches:
        fold.add(search)
    found = fold.found(names)
    found.uncredited.update(assembly.uncredited)
    report = InterleavedReport(found, confidence, false_share)
    if ab is not None:
        pair = report.leader, report.comparisons[0].second
        told = scaled(searches, *pair, model=ab, confidence=confidence)
        report = replace(report, ab=told)
    return report, rows
