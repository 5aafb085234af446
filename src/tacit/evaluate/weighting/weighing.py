"""What is asked of a log: target policies and estimators by name, options, checked before a row is read."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from tacit.core import checks
from tacit.errors import InvalidValue, UnfitLog, UnknownName
from tacit.evaluate.rows import RowReader, checked_missing_reward
from tacit.evaluate.sums import Sums
from tacit.evaluate.targets.base import PER, Table, Target, Uniform
from tacit.evaluate.targets.learning import Learning, Ranking
from tacit.evaluate.weighting.conclusion import LogSums, SegmentSums, Summing, conclude
from tacit.evaluate.weighting.estimators import (
    IPS,
    SNIPS,
    CascadeIPS,
    DirectMethod,
    DoublyRobust,
    Estimator,
    IndependentIPS,
    SlateEstimator,
    SlateIPS,
    SwitchDR,
)
from tacit.evaluate.weighting.result import Estimate, OffPolicyResult, Segment
from tacit.evaluate.weighting.rewards import ASSUMES, ArmCounts, ArmMeans, Frequencies
from tacit.logs.schema import SEGMENT
from tacit.policies.actions import SlatePolicy
from tacit.policies.base import Policy

# ---- Target policies and estimators by their names, as a command line gives them

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


# ---- What is asked of a log: a target policy, estimators and options, checked together

LOGGED, ESTIMATED = "logged", "estimated"
CLUSTERS = (None, "decision_id", "key", "placement", "policy")


@dataclass(frozen=True)
class Weighing:
    """What is asked of a log, checked; a log can be asked part by part.

    Parameters
    ----------
    target, estimators, cluster, confidence, weight_bound, logging, missing_reward, seed
        As for :func:`off_policy`.
    propensities, by
        As there.

    Raises
    ------
    InvalidValue
        If an option is wrong.
    """

    target: Any
    estimators: Any
    cluster: str | None
    confidence: float
    weight_bound: float | None
    logging: Target | None
    missing_reward: float | None
    seed: int
    propensities: Any = LOGGED
    by: str | None = None

    def __post_init__(self) -> None:
        target = _as_target(self.target, self.seed)
        if isinstance(target, type) or not (hasattr(target, "shown") and hasattr(target, "begin")):
            raise InvalidValue("target", self.target, _meant(self.target))
        if self.cluster not in CLUSTERS:
            raise InvalidValue("cluster", self.cluster, "give decision_id, key, placement or policy")
        object.__setattr__(self, "propensities", _known(self.propensities))
        given = self.estimators
        if given is None:
            given = _defaults(target, self.propensities == LOGGED)
        many = isinstance(given, list | tuple)
        if not many or not given or not all(isinstance(each, Estimator) for each in given):
            raise InvalidValue("estimators", given, f"give {_calls(given)}")
        object.__setattr__(self, "estimators", tuple(map(_with_model, given)))
        if isinstance(target, Ranking) and not all(isinstance(x, SlateEstimator) for x in given):
            raise InvalidValue(
                "estimators", given, "give such as weigh lists, as IndependentIPS and CascadeIPS do"
            )
        if self.propensities != LOGGED and any(getattr(x, "given_above", False) for x in given):
            raise InvalidValue(
                "estimators",
                given,
                "propensities that are not logged are those of arms at positions; of those for "
                "lists, give IndependentIPS",
            )
        if self.weighs_slates and self.cluster not in (None, "decision_id"):
            raise InvalidValue("cluster", self.cluster, "slates are units of their own; leave it out")
        bound = self.weight_bound
        for field, value in (
            ("target", target),
            ("weight_bound", None if bound is None else checks.positive("weight_bound", bound)),
            ("missing_reward", checked_missing_reward(self.missing_reward)),
        ):
            object.__setattr__(self, field, value)
        checks.integer("seed", self.seed, 0)

    @property
    def means(self) -> list[ArmMeans | Frequencies]:
        """The models that are means of the log itself, in the order of their estimators; then the
        frequencies that stand in for propensities."""
        models: list[Any] = [x.model for x in self.estimators if isinstance(x, DirectMethod)]
        return [x for x in [*models, self.propensities] if isinstance(x, (ArmMeans, Frequencies))]

    @property
    def unfitted(self) -> bool:
        """Whether one of these has yet to see the log."""
        return any(not model.fitted for model in self.means)

    @property
    def sequential(self) -> bool:
        """Whether what a row counts for depends on the rows of its key before it."""
        logging = [getattr(given, "logging", None) for given in self.estimators]
        aims = self.target, self.logging, *logging
        return any(isinstance(aim, (Learning, Ranking)) for aim in aims)

    @property
    def weighs_slates(self) -> bool:
        """Whether an estimator takes slates for units."""
        return any(isinstance(given, SlateEstimator) for given in self.estimators)

    @property
    def weighs_lists(self) -> bool:
        """Whether all estimators do."""
        return all(isinstance(given, SlateEstimator) for given in self.estimators)

    def fitted(self, counts: Sequence[ArmCounts]) -> Weighing:
        """Return the same question with its means of the log, given what each counted there."""
        counted = iter(counts)

        def fit(given: Estimator) -> Estimator:
            if not isinstance(given, DirectMethod) or not isinstance(given.model, ArmMeans):
                return given
            found = next(counted)
            return given if given.model.fitted else replace(given, model=given.model.of(found))

        estimators = tuple(map(fit, self.estimators))
        known = self.propensities
        if isinstance(known, Frequencies) and not known.fitted:
            known = known.of(next(counted))
        return replace(self, estimators=estimators, propensities=known)

    def sums_of(self, log: Any, *, first: int = 0, progress: Callable[[int], None] | None = None) -> LogSums:
        """Return the sums over a log, or over a part of it that ``first`` rows come before."""
        names = {key: known for model in self.means for key, known in model.names.items()}
        reader = RowReader(
            self.columns,
            self.missing_reward,
            need_propensity=self.propensities == LOGGED,
            first=first,
            names=names,
            whole=self.weighs_slates,
        )
        summing = Summing(self.target, self.estimators, self.cluster, self.logging, self.by is not None)
        known = None
        if self.propensities != LOGGED:
            known = self.propensities
            known = known.begin() if hasattr(known, "begin") else known
        for rows in reader.read(log):
            if known is not None:
                rows = rows._replace(
                    propensity=known.shown(rows), given_above=np.full(len(rows.reward), np.nan)
                )
            summing.add(rows)
            if progress is not None:
                progress(reader.rows)
        return LogSums(
            tuple(summing.sums),
            reader.rows,
            reader.unanswered,
            reader.reward,
            summing.shown(reader.arms),
            frozenset(summing.reached(reader.arms)),
            summing.slate_ids,
            summing.segments,
        )

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the log that are looked at, besides those that all look at."""
        needed = frozenset().union(self.target.columns, *(each.columns for each in self.estimators))
        needed |= {self.cluster} if self.cluster else set()
        needed |= {SEGMENT} if self.by is not None else set()
        needed |= getattr(self.propensities, "columns", frozenset())
        return needed | (self.logging.columns if self.logging else frozenset())

    def merged(self, before: LogSums, after: LogSums) -> LogSums:
        """Return the sums over two consecutive parts of a log.

        Raises
        ------
        UnfitLog
            If a slate lies across them.
        """
        ends = before.slates, after.slates
        if ends[0] and ends[1]:
            if ends[0][1] == ends[1][0] is not None:
                raise UnfitLog(
                    f"log: decision_id: the slate {ends[0][1]!r} lies in two files, which are read "
                    "apart; write whole slates into each file"
                )
            ends = (ends[0][0], ends[1][1]), None
        return LogSums(
            tuple(map(self._joined, self.estimators, before.sums, after.sums)),
            before.rows + after.rows,
            before.unanswered + after.unanswered,
            before.reward + after.reward,
            {
                arm: before.shown.get(arm, 0) + after.shown.get(arm, 0)
                for arm in {**before.shown, **after.shown}
            },
            before.reached | after.reached,
            ends[0] or ends[1],
            self._segments_merged(before.segments, after.segments),
        )

    def _segments_merged(
        self, before: Mapping[str, SegmentSums], after: Mapping[str, SegmentSums]
    ) -> dict[str, SegmentSums]:
        found = {**after, **before}
        for name in set(before) & set(after):
            one, other = before[name], after[name]
            sums = tuple(map(self._joined, self.estimators, one.sums, other.sums))
            found[name] = SegmentSums(sums, one.rows + other.rows, one.reward + other.reward)
        return found

    def _joined(self, given: Estimator, before: Sums, after: Sums) -> Sums:
        dealt = self.cluster is None or isinstance(given, SlateEstimator)
        return before.merge(after.after(before.n) if dealt else after)

    def concluded(self, found: LogSums) -> OffPolicyResult:
        """Return what follows from the sums over the whole log."""
        return OffPolicyResult(
            target=self.target.label,
            estimates=self._estimates(found.sums),
            logged=self._logged(found),
            rows=found.rows,
            lists=found.sums[0].n if self.weighs_lists else None,
            by=self.by,
            segments={
                name: Segment(self._estimates(part.sums), part.rows, self._logged(part))
                for name, part in sorted(found.segments.items(), key=lambda item: -item[1].rows)
            },
            assumes="" if self.propensities == LOGGED else ASSUMES,
            unanswered=found.unanswered,
            never_shown=tuple(
                arm for arm, count in found.shown.items() if not count and arm in found.reached
            ),
            confidence=self.confidence,
        )

    def _estimates(self, found: Sequence[Sums]) -> tuple[Estimate, ...]:
        return tuple(
            conclude(
                given,
                sums,
                clustered=self.cluster is not None,
                confidence=self.confidence,
                weight_bound=self.weight_bound,
                seed=self.seed,
            )
            for given, sums in zip(self.estimators, found, strict=True)
        )

    def _logged(self, found: LogSums | SegmentSums) -> float:
        units = found.sums[0].n if self.weighs_lists else found.rows
        return found.reward / units if units else math.nan


def _as_target(target: Any, seed: int) -> Any:
    if isinstance(target, SlatePolicy):
        return Ranking(target, seed)
    return Learning(target) if isinstance(target, Policy) else target


def _meant(target: Any) -> str:
    """Return what to give in place of what is no target."""
    if isinstance(target, type):
        return f"give {target.__name__}(), made of the class"
    if isinstance(target, Mapping):
        return f"give Table({target!r})"
    if isinstance(target, str):
        return f"give Table({{{target!r}: 1.0}}) for what always shows this arm, or a policy"
    return "give a policy, or a target such as Uniform()"


def _calls(given: Any) -> str:
    """Return how estimators are written that were given by name, by class, or not in a list."""
    found = []
    for each in given if isinstance(given, list | tuple) else [given]:
        kind = each if isinstance(each, type) else type(each)
        if isinstance(each, str):
            kind = type(named_estimators([each])[0]) if each in NAMES else kind
        if not issubclass(kind, Estimator):
            return "estimators, such as [IPS(), SNIPS()]"
        found.append(f"{kind.__name__}({'slots' * issubclass(kind, SlateEstimator)})")
    return f"[{', '.join(found)}]" if found else "estimators, such as [IPS(), SNIPS()]"


def _known(propensities: Any) -> Any:
    if propensities == ESTIMATED:
        return Frequencies()
    if propensities == LOGGED or hasattr(propensities, "shown"):
        return propensities
    remedy = f"give {LOGGED!r}, {ESTIMATED!r} or a target policy: the one that wrote the log"
    raise InvalidValue("propensities", propensities, remedy)


def _defaults(target: Any, logged: bool) -> tuple[Estimator, ...]:
    if not isinstance(target, Ranking):
        return IPS(), SNIPS()
    slots = target.policy.action_width
    if not logged:
        return (IndependentIPS(slots),)
    return IndependentIPS(slots), CascadeIPS(slots), SlateIPS(slots)


def _with_model(estimator: Estimator) -> Estimator:
    if isinstance(estimator, DirectMethod) and estimator.model is None:
        return replace(estimator, model=ArmMeans())
    return estimator
