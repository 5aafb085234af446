"""Read logs of duels, and estimate the counterfactual win rate of one arm against another."""

# 1. ``read_duels``: read rows with outcomes, or interleaved impressions with clicks, and report preferences.
# 2. ``always``: the win rate of an arm if all duels were of one pair, weighted by inverse propensities.

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.errors import AssumptionWarning, InvalidValue, LogError
from tacit.evaluate.duels.report import Duel, DuelReport, build_report, parse_duel
from tacit.evaluate.interleaved.searches import UNIT_FIELDS, UNIT_NAME
from tacit.evaluate.intervals import CONFIDENCE, anytime, sum_units
from tacit.frames import is_frame
from tacit.logs.reader import BATCH_ROWS, Frame, LogFile, check_columns, missing_columns_text, open_file
from tacit.logs.rows import MALFORMED, MAX_REJECTED, Example, LogReport, convert_values

COLUMNS = ("left", "right", "outcome", "interleaved", "clicks", "user")
CREDITS = (
    "lists of Optimized or DebiasedBalanced interleaving are to be compared by their mean credits; who has "
    "more of them on a list may favour a ranker: give --credits, or use tacit.evaluate.interleaved"
)
REPEATED_USER = (
    "{0}: {1!r} comes back, and each duel counts as if of another user, so that a verdict may come too soon; "
    "give --unit {0}, or use tacit.evaluate.interleaved"
)


def read_duels(
    log: Any,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    strict: bool = False,
    confidence: float = 0.95,
    most_rejected: float = MAX_REJECTED,
) -> tuple[DuelReport, LogReport]:
    """Read a log of duels of rankers, one row each, and return the report on them and counts of rows.

    Warns if lists need another way of credit, a user returns, or rejected rows may favour a ranker.

    Parameters
    ----------
    log : path, or table in memory
        Parquet, CSV, JSON lines or a table in memory as for :func:`tacit.read_log`, with the columns
        ``left`` and ``right`` (the rankers' names) and either ``outcome`` (1 if the left one won, 0
        if the right one did, 0.5 for a tie, or between) or ``interleaved`` (JSON of
        :meth:`Interleaved.as_dict`) and ``clicks`` (a JSON list of positions from 0). An outcome
        takes precedence; other columns are ignored.
    format : {"parquet", "csv", "json"}, optional
        By default from the suffix.
    columns : dict, optional
        From these columns to the file's names of them.
    strict : bool, default False
        Whether to stop at the first invalid row, instead of counting it.
    confidence : float, default 0.95
        Of the report, in (0, 1).
    most_rejected : float, default 0.05
        The largest share of invalid rows, as for :func:`tacit.read_log`.

    Returns
    -------
    report : DuelReport
    rows : LogReport
        Counts of valid and rejected rows.

    Raises
    ------
    LogError
        If the file cannot be read, lacks a column, or has no duel of two rankers; TooManyRejected.
    InvalidValue
        If an option is wrong.
    """
    renamed = columns or {}
    check_columns(renamed, COLUMNS, "a log of duels")
    rows, share = LogReport(), checks.number("most_rejected", most_rejected, 0.0, 1.0)
    path = Frame(log) if is_frame(log) else Path(log)
    duels = _iter_duels(open_file(path, format), renamed, rows, strict)
    try:
        report = build_report(duels, confidence)
        rows.check_limit(share)
        warn_of_rows(report.names, rows)
        return report, rows
    except InvalidValue as error:
        if error.field != "names":
            raise
        raise LogError(f"{path}: there is no duel of two rankers in it; {rows.summary()}") from None


def _iter_duels(file: LogFile, renamed: Mapping[str, str], rows: LogReport, strict: bool) -> Iterator[Duel]:
    """Yield the duel of each valid row: left, right, outcome and the number of clicks, or None if unknown.

    ``renamed`` maps our names of columns to the file's. Counts valid and rejected rows in ``rows``; an
    invalid row raises LogError under ``strict``, as does a missing column. Warns at the end if credits are
    needed or a user returns.
    """
    path, present = file.path, file.names
    has_credits, users, repeated_user = False, set[str](), ""
    names_in_file = {name: renamed.get(name, name) for name in COLUMNS}
    for name, name_in_file in names_in_file.items():
        if name_in_file not in present and (name in renamed or name in ("left", "right")):
            raise LogError(f"{path}: {missing_columns_text({name: name_in_file}, present)}")
    columns = {name: name_in_file for name, name_in_file in names_in_file.items() if name_in_file in present}
    if "outcome" not in columns and not {"interleaved", "clicks"} <= set(columns):
        missing = missing_columns_text({"outcome": "outcome"}, present)
        raise LogError(f"{path}: {missing}, or of interleaved and clicks")
    candidates = present if "user" not in columns else ()
    unit = next((name for name in candidates if name in UNIT_FIELDS or UNIT_NAME.fullmatch(name)), None)
    for row, cells in read_rows(file, columns if unit is None else columns | {"user": unit}):
        rows.read += 1
        if not isinstance(cells, Mapping):
            rows.reject_row(MALFORMED, Example(str(path), row, "row", cells), strict)
            continue
        try:
            duel = parse_duel(cells)
        except InvalidValue as error:
            rows.reject_error(error, str(path), row, strict)
        else:
            rows.kept += 1
            has_credits = has_credits or needs_credits(cells.get("interleaved"))
            user = str(cells.get("user") or "")
            repeated_user = user if user in users and not repeated_user else repeated_user
            users |= {user} if user and not repeated_user else set()
            yield duel
    repeated = REPEATED_USER.format(unit or "user", repeated_user) * bool(repeated_user)
    for message in (CREDITS * has_credits, repeated):
        if message:
            warnings.warn(message, AssumptionWarning, stacklevel=2)


def warn_of_rows(rankers: Sequence[str], rows: LogReport) -> None:
    """Warn if names of rankers differ only in case, or rows were rejected for outcome, team or clicks."""
    folded_counts = Counter(name.casefold() for name in rankers)
    if similar := [name for name in rankers if folded_counts[name.casefold()] > 1]:
        message = f"rankers: {', '.join(map(repr, similar))} differ by capitals alone, and count apart"
        warnings.warn(f"{message}; write each in one way", AssumptionWarning, stacklevel=3)
    for reason, hint in (
        ("wrong-outcome", ""),
        ("wrong-team", ""),
        ("wrong-clicks", " (positions count from 0, not from 1)"),
    ):
        if example := rows.examples.get(reason):
            message = f"{example.source}: row {example.row}: {example}{hint}; such rows are left out"
            warnings.warn(f"{message}, and the others may favour a ranker", AssumptionWarning, stacklevel=3)


def read_rows(file: LogFile, names: Mapping[str, str]) -> Iterator[tuple[int, Any]]:
    """Yield each row of a file as its number and a dict of its cells; a malformed row as its raw text.

    Cells of tables are texts or None; cells of JSON lines keep their JSON values.

    Parameters
    ----------
    file : LogFile
    names : mapping of str to str
        From the names of cells to the file's columns.
    """
    import pyarrow as pa

    for raw in file.read(list(dict.fromkeys(names.values())), BATCH_ROWS):
        yield from raw.malformed
        columns = {name: raw.columns[theirs] for name, theirs in names.items()}
        texts = {
            name: values if isinstance(values, list) else convert_values(values, pa.string()).to_pylist()
            for name, values in columns.items()
        }
        for place, row in enumerate(raw.rows):
            yield int(row), {name: values[place] for name, values in texts.items()}


def needs_credits(interleaved: Any) -> bool:
    """True if an interleaved list, as text or JSON, names a method that is fair only for mean credits."""
    text = interleaved if isinstance(interleaved, str) else str(interleaved)
    return "Optimized" in text or "DebiasedBalanced" in text


# ---- The counterfactual win rate of a pair: its duels in a log, weighted by inverse propensities


class Always(NamedTuple):
    """The estimated win rate of an arm if all duels were against one other arm; a tie counts one half.

    Attributes
    ----------
    value : float
        Importance-weighted: unbiased, but not confined to [low, high], nor to [0, 1].
    low, high : float
        Confidence sequence: valid at any time.
    met : int
        Number of duels of the two arms in the log.
    duels : int
        Number of rows of the log.
    """

    value: float
    low: float
    high: float
    met: int
    duels: int


def always(
    duels: Iterable[tuple[Any, Any, float, float | None]],
    first: Any,
    second: Any,
    *,
    confidence: float = CONFIDENCE,
) -> Always:
    """Estimate the win rate of ``first`` if all duels were against ``second``, on random sides.

    The observed share of wins is biased: a policy chooses duels by earlier outcomes, and shows a pair to
    some keys more often than to others. Here each duel of the two is weighted by its inverse propensity,
    which only assumes that propensities are logged correctly. The interval is valid for any weights; it is
    wide if the policy hardly showed the two.

    Parameters
    ----------
    duels : iterable of (left, right, outcome, propensity)
        All duels of the log, of all pairs: the outcome is 1.0 if the left one won, 0.0 if the right one
        did, 0.5 for a tie, or between; the propensity is the decision's.
    first, second : arm
        Two different arms, as in the log.
    confidence : float, default 0.95

    Raises
    ------
    InvalidValue
        If the arms are equal, an outcome or a propensity is missing or out of its range, or there is no row.

    References
    ----------
    Karampatziakis, Mineiro, Ramdas (2021), "Off-policy confidence sequences".

    Examples
    --------
    >>> import tacit
    >>> from tacit.evaluate.duels import always
    >>> policy = tacit.ExplorationFloor(tacit.auto(["a", "b", "c"], shows="duel"), 0.5)
    >>> learner, log = tacit.Learner(policy, seed=1), []
    >>> for _ in range(2000):
    ...     decision = learner.choose("query")
    ...     outcome = 0.5 + (decision.pair[0] == "a") / 2 - (decision.pair[1] == "a") / 2  # a always wins
    ...     _ = learner.learn(decision, outcome)
    ...     log.append((*decision.pair, outcome, decision.propensity))
    >>> always(log, "a", "b").low > 0.5
    True
    """
    if first == second:
        raise InvalidValue("second", second, "give two different arms")
    weights, values, met_count = [], [], 0
    for left_arm, right_arm, outcome, propensity in duels:
        outcome_value = checks.number("outcome", outcome, 0.0, 1.0)
        weight = 0.0
        if {left_arm, right_arm} == {first, second}:
            remedy = "give the decision's, in (0, 1]; a policy that has none needs an ExplorationFloor"
            if propensity is None or not 0.0 < propensity <= 1.0:
                raise InvalidValue("propensity", propensity, remedy)
            weight, met_count = 0.5 / propensity, met_count + 1
        weights.append(weight)
        values.append(weight * (outcome_value if left_arm == first else 1.0 - outcome_value))
    if not weights:
        raise InvalidValue("duels", "no row", "give a log with duels")
    sums = sum_units(np.array(weights), np.array(values))
    return Always(sums.y / sums.n, *anytime(sums, confidence), met_count, sums.n)
