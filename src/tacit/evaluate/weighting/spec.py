"""Target policies and estimators by their names, as a command line gives them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tacit.errors import InvalidValue, UnknownName
from tacit.evaluate.targets.base import Target, Uniform
from tacit.evaluate.targets.tables import PER, Table
from tacit.evaluate.weighting.estimators import IPS, SNIPS, DirectMethod, DoublyRobust, Estimator, SwitchDR
from tacit.evaluate.weighting.slates import CascadeIPS, IndependentIPS, SlateIPS

NAMES = ("ips", "snips", "dm", "dr", "switch-dr", "slate-ips", "independent-ips", "cascade-ips")


def named_estimators(
    names: Sequence[str], *, clip: float | None = None, threshold: float = 10.0, slots: int = 3
) -> list[Estimator]:
    """Return estimators by their names.

    Parameters
    ----------
    names : sequence of str
        Any of ips, snips, dm, dr, switch-dr, slate-ips, independent-ips, cascade-ips.
    clip : float, optional
        The largest weight of those that weight.
    threshold : float, default 10
        The largest weight that switch-dr uses.
    slots : int, default 3
        The most places of a slate.

    Raises
    ------
    UnknownName
        If there is no such estimator.
    InvalidValue
        If a number is out of its range.

    Examples
    --------
    >>> [estimator.label for estimator in named_estimators(["ips", "dr"], clip=5)]
    ['IPS(clip=5)', 'DoublyRobust(clip=5)']
    """
    cut: dict[str, Any] = {} if clip is None else {"clip": clip}
    known: dict[str, Callable[[], Estimator]] = {
        "ips": lambda: IPS(**cut),
        "snips": lambda: SNIPS(**cut),
        "dm": DirectMethod,
        "dr": lambda: DoublyRobust(**cut),
        "switch-dr": lambda: SwitchDR(threshold=threshold),
        "slate-ips": lambda: SlateIPS(slots, **cut),
        "independent-ips": lambda: IndependentIPS(slots, **cut),
        "cascade-ips": lambda: CascadeIPS(slots, **cut),
    }
    for name in names:
        if name not in known:
            raise UnknownName(f"estimator: there is no {name!r}; there are replay, {', '.join(NAMES)}")
    return [known[name]() for name in names]


def fixed_target(text: str) -> Target | None:
    """Return the fixed target policy of a text; None if it names none.

    Parameters
    ----------
    text : str
        ``uniform``, ``always:ARM``, ``list:ARM,ARM,…`` for a fixed list, or ``table:FILE`` with a
        JSON file that holds an object from arms to probabilities, or a CSV file with the columns
        ``arm`` and ``probability``, and perhaps one of ``key``, ``placement``, ``position`` or
        ``policy``.

    Raises
    ------
    InvalidValue
        If the file cannot be read, or holds no probabilities.

    Examples
    --------
    >>> fixed_target("always:film").tables
    {'': {'film': 1.0}}
    >>> fixed_target("list:film,holiday").tables
    {'0': {'film': 1.0}, '1': {'holiday': 1.0}}
    >>> fixed_target("thompson") is None
    True
    """
    kind, colon, rest = text.partition(":")
    if text == "uniform":
        return Uniform()
    if kind == "always" and colon:
        return Table({rest: 1.0})
    if kind == "list" and colon:
        arms = [name.strip() for name in rest.split(",")]
        if len(set(arms)) < len(arms) or not all(arms):
            raise InvalidValue("policy", text, "give each arm of the list once, commas between")
        return Table({str(k): {arm: 1.0} for k, arm in enumerate(arms)}, per="position")
    if kind == "table" and colon:
        return _table(Path(rest))
    like = get_close_matches(kind, ("always", "list", "table"), 1, cutoff=0.8)
    if colon and like:
        raise InvalidValue("policy", text, f"did you mean {like[0]}:{rest}?")
    return None


def _table(path: Path) -> Table:
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix.lower() == ".csv":
            return _from_rows(list(csv.DictReader(text.splitlines())))
        return Table(json.loads(text))
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue("policy", f"table:{path}", f"give a readable file ({error})") from error


def _from_rows(rows: list[dict[str, Any]]) -> Table:
    if not rows or not {"arm", "probability"} <= set(rows[0]):
        raise InvalidValue("policy", rows[:1], "give the columns arm and probability")
    per = next((name for name in PER if name and name in rows[0]), None)
    if per is None:
        return Table({row["arm"]: float(row["probability"]) for row in rows})
    tables: dict[str, dict[str, float]] = {}
    for row in rows:
        tables.setdefault(row[per], {})[row["arm"]] = float(row["probability"])
    return Table(tables, per=per)
