"""What a target policy would earn, from the log of another: one pass, many estimators."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tacit import checks
from tacit.arrays import Floats, Ints
from tacit.errors import InvalidValue, UnfitLog
from tacit.evaluate import intervals
from tacit.evaluate.estimators import (
    IPS,
    SNIPS,
    DirectMethod,
    DoublyRobust,
    Estimator,
    Terms,
)
from tacit.evaluate.intervals import Bounds
from tacit.evaluate.learning import Learning
from tacit.evaluate.rewards import ArmCounts, ArmMeans
from tacit.evaluate.rows import RowReader, Rows, clusters
from tacit.evaluate.slates import SlateEstimator, SlateReader
from tacit.evaluate.sums import GROUPS, Sums, nothing, summed
from tacit.evaluate.targets import Target
from tacit.policies.base import Policy

INTERVALS = ("normal", "bootstrap", "anytime")


@dataclass(frozen=True)
class Estimate:
    """What one estimator says.

    Attributes
    ----------
    estimator : str
    value : float
        NaN where the log shows nothing of what the target policy would do.
    standard_error : float
        By the central limit theorem.
    intervals : dict
        Per kind (normal, bootstrap, anytime) its bounds; a kind is left out where an estimator
        has none.
    effective_sample_size : float
        (Σw)²/Σw²: how many equally weighted units would tell as much.
    mean_weight : float
        1 in expectation; far from it (in its own standard errors) the log's propensities are
        wrong, or the log could not have shown what the target policy shows.
    largest_weights : tuple of float
    sums : Sums
        All that was kept of the rows.
    """

    estimator: str
    value: float
    standard_error: float
    intervals: dict[str, Bounds]
    effective_sample_size: float
    mean_weight: float
    largest_weights: tuple[float, ...]
    sums: Sums

    def row(self) -> dict[str, Any]:
        """Return it as a flat dict of plain numbers, None for an interval that there is not."""
        bounds = {
            f"{kind}_{side}": self.intervals[kind][end] if kind in self.intervals else None
            for kind in INTERVALS
            for end, side in enumerate(("low", "high"))
        }
        return {
            "estimator": self.estimator,
            "value": self.value,
            "standard_error": self.standard_error,
            **bounds,
            "units": self.sums.n,
            "effective_sample_size": self.effective_sample_size,
            "mean_weight": self.mean_weight,
            "largest_weight": self.largest_weights[0] if self.largest_weights else math.nan,
        }


@dataclass(frozen=True)
class OffPolicyResult:
    """What several estimators say of one target policy.

    Attributes
    ----------
    target : str
    estimates : tuple of Estimate
        In the order of the estimators.
    logged : float
        Mean reward of the log itself; NaN if it is empty.
    rows, unanswered : int
        Rows that were used, and rows without feedback.
    never_shown : tuple of str
        Arms that the target policy would show and that were on offer, but that the log never
        shows: by chance, or because it could not.
    confidence : float
    """

    target: str
    estimates: tuple[Estimate, ...]
    logged: float
    rows: int
    unanswered: int
    never_shown: tuple[str, ...]
    confidence: float

    def table(self) -> list[dict[str, Any]]:
        """Return one flat dict per estimator."""
        return [{"target": self.target, **estimate.row()} for estimate in self.estimates]

    def summary(self) -> str:
        """Return the result as text."""
        from tacit.text import aligned

        head = ["estimator", "value", *INTERVALS, "n_eff", "mean w", "max w"]
        body = [
            [
                estimate.estimator,
                f"{estimate.value:.5f}",
                *(_bounds(estimate.intervals.get(kind)) for kind in INTERVALS),
                f"{estimate.effective_sample_size:,.0f}",
                f"{estimate.mean_weight:.3f}",
                f"{max(estimate.largest_weights, default=math.nan):.4g}",
            ]
            for estimate in self.estimates
        ]
        lines = [
            f"{self.target}: mean reward, from {self.rows:,} logged rows",
            aligned([head, *body]),
            f"the log's own mean reward: {self.logged:.5f}; rows without feedback: "
            f"{self.unanswered:,}; intervals of {self.confidence:.0%}",
        ]
        if self.never_shown:
            shown = ", ".join(map(repr, self.never_shown[:5]))
            more = ", …" if len(self.never_shown) > 5 else ""
            lines.append(
                f"the log never shows {shown}{more}, which the target policy would: by chance, or "
                "because it could not; then these estimates are too low"
            )
        return "\n".join(lines)

    def plot(self, path: str | Path) -> Path:
        """Draw the estimates with their intervals; the suffix of ``path`` says the format."""
        from tacit.plots import COLOURS, figure, save

        drawing, ax = figure(7.0, 1.2 + 0.62 * len(self.estimates))
        for number, kind in enumerate(INTERVALS):
            label = f"{kind} interval"
            for place, estimate in enumerate(self.estimates):
                if kind in estimate.intervals:
                    y = place + 0.2 * (number - 1)
                    bounds = estimate.intervals[kind]
                    ax.plot(bounds, [y, y], color=COLOURS[number], lw=2, label=label)
                    label = "_"
        values = [estimate.value for estimate in self.estimates]
        ax.plot(values, range(len(values)), "o", color="black", ms=4, label="estimate")
        ax.axvline(self.logged, color="grey", lw=1, ls="--", label="the log's own mean")
        ax.set_yticks(range(len(values)), [estimate.estimator for estimate in self.estimates])
        ax.set_ylim(len(values) - 0.5, -0.5)
        ax.grid(axis="x", alpha=0.25, linewidth=0.6)
        ax.set_xlabel(f"mean reward ({self.confidence:.0%} intervals)")
        ax.set_title(f"{self.target}, from {self.rows:,} logged rows", size=10)
        ax.legend(frameon=False, fontsize=8)
        return save(drawing, Path(path))


def _bounds(bounds: Bounds | None) -> str:
    return "–" if bounds is None else f"[{bounds[0]:.5f}, {bounds[1]:.5f}]"


def off_policy(
    target: Target | Policy,
    log: Any,
    estimators: Sequence[Estimator] = (IPS(), SNIPS()),
    *,
    cluster: str | None = None,
    confidence: float = intervals.CONFIDENCE,
    weight_bound: float | None = None,
    logging: Target | None = None,
    missing_reward: float | None = 0.0,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> OffPolicyResult:
    """Estimate what a target policy would have earned, from the log of another policy.

    The log is read once (once more where an estimator fits :class:`~tacit.evaluate.ArmMeans`)
    and in bounded memory: of the rows, sums alone are kept.

    Parameters
    ----------
    target : Target or Policy
        :class:`~tacit.evaluate.Table`, :class:`~tacit.evaluate.Uniform`,
        :class:`~tacit.evaluate.Model`, :class:`~tacit.evaluate.Probabilities`, or a policy,
        which then learns from the log as :class:`~tacit.evaluate.Learning` says.
    log : LogReader, path, pyarrow.Table, or iterable of pyarrow.RecordBatch
        A click log with propensities. An iterable can be read only once.
    estimators : sequence of Estimator, default (IPS(), SNIPS())
    cluster : {None, "decision_id", "key", "placement", "policy"}
        What makes rows depend on one another; normal and bootstrap intervals then take whole
        clusters for independent. None: every row (or slate) is.
    confidence : float, default 0.95
        Of each interval.
    weight_bound : float, optional
        What no weight can exceed, known beforehand (largest target probability over smallest
        logged one). The anytime interval of IPS then takes its upper bound from it: lower where
        clicks are rare, higher where they are frequent. It also gives such an interval to
        :class:`DoublyRobust`, whose model must then stay within [0, 1].
    logging : Target, optional
        The policy that wrote the log, if known: an arm to which it gives probability 0 where
        the target does not is an error.
    missing_reward : float or None, default 0
        The reward of a row to which no feedback came, in [0, 1]. None leaves such rows out,
        which is right only where feedback is lost regardless of what it would have been.
    seed : int, default 0
        For the bootstrap.
    progress : function, optional
        Called with the number of rows read so far.

    Returns
    -------
    OffPolicyResult

    Raises
    ------
    UnfitLog
        If a row has no propensity, or could never have shown an arm that the target would show.
    LogError
        If the log cannot be read.
    InvalidValue
        If an option is wrong.

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from tacit.evaluate import Table
    >>> arms, rng = ["film", "holiday"], np.random.default_rng(1)
    >>> shown = rng.choice(2, size=4000, p=[0.8, 0.2])
    >>> log = pa.table(
    ...     {
    ...         "timestamp": ["2017-07-04T12:00:00Z"] * 4000,
    ...         "decision_id": [str(row) for row in range(4000)],
    ...         "placement": ["home"] * 4000,
    ...         "key": ["independence day"] * 4000,
    ...         "arms": [arms] * 4000,
    ...         "arm": [arms[arm] for arm in shown],
    ...         "propensity": np.array([0.8, 0.2])[shown],
    ...         "reward": (rng.random(4000) < np.array([0.1, 0.4])[shown]).astype(float),
    ...     }
    ... )
    >>> result = off_policy(Table({"film": 0.1, "holiday": 0.9}), log)
    >>> all(low < 0.37 < high for low, high in result.estimates[0].intervals.values())
    True
    """
    weighing = weighing_of(
        target,
        estimators,
        cluster=cluster,
        confidence=confidence,
        weight_bound=weight_bound,
        logging=logging,
        missing_reward=missing_reward,
        seed=seed,
    )
    if any(weighing.unfitted):
        if not isinstance(log, (str, Path, pa.Table, pa.RecordBatch)) and iter(log) is log:
            raise InvalidValue(
                "log", log, "give a log that can be read twice, or an estimator with a fitted model"
            )
        weighing = weighing.fitted([model.counted(log, missing_reward) for model in weighing.means])
    return weighing.concluded(weighing.tally(log, progress=progress))


class Tally(NamedTuple):
    """All that is kept of the rows of a log, or of a part of one.

    Attributes
    ----------
    sums : tuple of Sums
        Per estimator.
    rows, unanswered : int
    reward : float
        Sum of all rewards.
    shown : dict
        From each arm that was on offer to how often it was shown.
    reached : frozenset of str
        Those of these arms that the target policy may have shown.
    slates : tuple of (str, str), optional
        The decisions of the first row and of the last, where slates are weighted.
    """

    sums: tuple[Sums, ...]
    rows: int
    unanswered: int
    reward: float
    shown: dict[str, int]
    reached: frozenset[str]
    slates: tuple[str | None, str | None] | None = None


@dataclass(frozen=True)
class Weighing:
    """What is asked of a log, checked; a log can be asked part by part.

    Attributes
    ----------
    target : Target
    estimators : tuple of Estimator
    cluster, confidence, weight_bound, logging, missing_reward, seed
        As for :func:`off_policy`.
    """

    target: Target
    estimators: tuple[Estimator, ...]
    cluster: str | None
    confidence: float
    weight_bound: float | None
    logging: Target | None
    missing_reward: float | None
    seed: int

    @property
    def means(self) -> list[ArmMeans]:
        """The models that are means of the log itself, in the order of their estimators."""
        models = [given.model for given in self.estimators if isinstance(given, DirectMethod)]
        return [model for model in models if isinstance(model, ArmMeans)]

    @property
    def unfitted(self) -> list[bool]:
        """Whether each of these has yet to see the log."""
        return [not model.fitted for model in self.means]

    @property
    def sequential(self) -> bool:
        """Whether what a row counts for depends on the rows of its key before it."""
        logging = [getattr(given, "logging", None) for given in self.estimators]
        return any(isinstance(aim, Learning) for aim in (self.target, self.logging, *logging))

    @property
    def weighs_slates(self) -> bool:
        """Whether an estimator takes slates for units."""
        return any(isinstance(given, SlateEstimator) for given in self.estimators)

    def fitted(self, counts: Sequence[ArmCounts]) -> Weighing:
        """Return it with its means of the log, given what each of them counted there."""
        counted = iter(counts)

        def fit(given: Estimator) -> Estimator:
            if not isinstance(given, DirectMethod) or not isinstance(given.model, ArmMeans):
                return given
            found = next(counted)
            return given if given.model.fitted else replace(given, model=given.model.of(found))

        return replace(self, estimators=tuple(map(fit, self.estimators)))

    def tally(
        self, log: Any, *, first: int = 0, progress: Callable[[int], None] | None = None
    ) -> Tally:
        """Read a log, or a part of one before which there are ``first`` rows."""
        names = {key: told for model in self.means for key, told in model.names.items()}
        reader = RowReader(self.columns, self.missing_reward, first=first, names=names)
        run = _Run(self.target, self.estimators, self.cluster, self.logging)
        for rows in reader.read(log):
            run.add(rows)
            if progress is not None:
                progress(reader.rows)
        run.end()
        return Tally(
            tuple(run.sums),
            reader.rows,
            reader.unanswered,
            reader.reward,
            run.shown(reader.arms),
            frozenset(run.reached(reader.arms)),
            run.slate_ids,
        )

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the log that are looked at, besides those that all look at."""
        needed = self.target.columns.union(*(given.columns for given in self.estimators))
        needed |= {self.cluster} if self.cluster else set()
        return needed | (self.logging.columns if self.logging else frozenset())

    def merged(self, before: Tally, after: Tally) -> Tally:
        """Return the tally of two consecutive parts of a log.

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
        return Tally(
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
        )

    def _joined(self, given: Estimator, before: Sums, after: Sums) -> Sums:
        dealt = self.cluster is None or isinstance(given, SlateEstimator)
        return before.merge(after.after(before.n) if dealt else after)

    def concluded(self, tally: Tally) -> OffPolicyResult:
        """Return what follows from the tally of the whole log."""
        return OffPolicyResult(
            target=self.target.label,
            estimates=tuple(
                conclude(
                    given,
                    sums,
                    clustered=self.cluster is not None,
                    confidence=self.confidence,
                    weight_bound=self.weight_bound,
                    seed=self.seed,
                )
                for given, sums in zip(self.estimators, tally.sums, strict=True)
            ),
            logged=tally.reward / tally.rows if tally.rows else math.nan,
            rows=tally.rows,
            unanswered=tally.unanswered,
            never_shown=tuple(
                arm for arm, count in tally.shown.items() if not count and arm in tally.reached
            ),
            confidence=self.confidence,
        )


def weighing_of(
    target: Target | Policy,
    estimators: Sequence[Estimator],
    *,
    cluster: str | None,
    confidence: float,
    weight_bound: float | None,
    logging: Target | None,
    missing_reward: float | None,
    seed: int,
) -> Weighing:
    """Return what is asked of a log; the parameters are those of :func:`off_policy`.

    Raises
    ------
    InvalidValue
        If an option is wrong.
    """
    aim: Target = Learning(target) if isinstance(target, Policy) else target
    if not (hasattr(aim, "shown") and hasattr(aim, "begin")):
        raise InvalidValue("target", target, "give a policy, or a target such as Uniform()")
    if cluster not in (None, "decision_id", "key", "placement", "policy"):
        raise InvalidValue("cluster", cluster, "give decision_id, key, placement or policy")
    if not estimators or not all(isinstance(given, Estimator) for given in estimators):
        raise InvalidValue("estimators", estimators, "give estimators, such as [IPS(), SNIPS()]")
    slates = any(isinstance(given, SlateEstimator) for given in estimators)
    if slates and cluster not in (None, "decision_id"):
        raise InvalidValue("cluster", cluster, "slates are units of their own; leave it out")
    if weight_bound is not None:
        weight_bound = checks.positive("weight_bound", weight_bound)
    if missing_reward is not None:
        missing_reward = checks.number("missing_reward", missing_reward, 0.0, 1.0)
    checks.integer("seed", seed, 0)
    return Weighing(
        aim,
        tuple(map(_with_model, estimators)),
        cluster,
        confidence,
        weight_bound,
        logging,
        missing_reward,
        seed,
    )


def _with_model(estimator: Estimator) -> Estimator:
    if isinstance(estimator, DirectMethod) and estimator.model is None:
        return replace(estimator, model=ArmMeans())
    return estimator


class _Run:
    """One pass over a log: the estimators' sums so far."""

    def __init__(
        self,
        target: Target,
        estimators: Collection[Estimator],
        cluster: str | None,
        logging: Target | None,
    ) -> None:
        every = logging is not None or any(given.every for given in estimators)
        self._target = target.begin(every)
        self._logging = logging.begin(True) if logging else None
        self._estimators = [_begun(given) for given in estimators]
        self._cluster = cluster
        self._slates: dict[int, SlateReader] = {
            place: SlateReader(given.slots)
            for place, given in enumerate(estimators)
            if isinstance(given, SlateEstimator)
        }
        self.slate_ids: tuple[str | None, str | None] | None = None
        self.sums = [nothing(GROUPS) for _ in estimators]
        self._counts: Ints = np.zeros(0, np.int64)

    def add(self, rows: Rows) -> None:
        """Take in some rows."""
        shown = self._target.shown(rows)
        weights = shown / rows.propensity
        self._check_support(rows, shown)
        counts = np.bincount(rows.arm.codes, minlength=len(rows.arm.names))
        counts[: len(self._counts)] += self._counts
        self._counts = counts
        terms = Terms(rows, weights, self._target)
        if self._slates:
            self._note_slates(rows)
        group = None
        if self._cluster is not None and len(self._slates) < len(self._estimators):
            group = clusters(rows.chunk.batch[self._cluster], GROUPS)
        for place, estimator in enumerate(self._estimators):
            if isinstance(estimator, SlateEstimator):
                slates = self._slates[place].add(estimator.row_weights(terms), rows)
                self._merge(place, *estimator.slate_units(slates), None)
            else:
                self._merge(place, *estimator.units(terms), group)

    def end(self) -> None:
        """Take in the slates that the last rows completed."""
        for place, estimator in enumerate(self._estimators):
            if isinstance(estimator, SlateEstimator):
                self._merge(place, *estimator.slate_units(self._slates[place].end()), None)

    def _merge(self, place: int, weights: Floats, values: Floats, group: Ints | None) -> None:
        before = self.sums[place]
        new = summed(weights, values, GROUPS, cluster=group, first=before.n)
        self.sums[place] = before.merge(new)

    def _check_support(self, rows: Rows, shown: Floats) -> None:
        certain = (rows.propensity >= 1.0) & (shown < 1.0 - 1e-9)
        if certain.any():
            row = int(np.argmax(certain))
            arm = rows.arm.names[rows.arm.codes[row]]
            raise UnfitLog(
                f"{rows.where(row)}: propensity: {arm!r} was certain to be shown, so the log could "
                f"never have shown another arm, but the target policy shows {arm!r} only with "
                f"probability {shown[row]:g}; log with a policy that randomizes"
            )
        if self._logging is not None:
            wanted = self._target.every(rows)
            self._logging.shown(rows)
            never = (wanted > 0) & (self._logging.every(rows) <= 0)
            if never.any():
                row, code = np.argwhere(never)[0].tolist()
                raise UnfitLog(
                    f"{rows.where(row)}: arm: the target policy shows {rows.arm.names[code]!r} "
                    f"with probability {wanted[row, code]:g}, the logging policy never; leave it "
                    "out of the target policy"
                )

    def _note_slates(self, rows: Rows) -> None:
        ids = rows.chunk.batch["decision_id"]
        first = self.slate_ids[0] if self.slate_ids else ids[0].as_py()
        self.slate_ids = first, ids[-1].as_py()

    def shown(self, arms: Sequence[str]) -> dict[str, int]:
        """Return how often each arm was shown."""
        counts = np.zeros(len(arms), np.int64)
        counts[: len(self._counts)] = self._counts
        return dict(zip(arms, counts.tolist(), strict=True))

    def reached(self, arms: Sequence[str]) -> list[str]:
        """Return those of some arms that the target policy may have shown."""
        return self._target.reached(arms)


def _begun(estimator: Estimator) -> Estimator:
    """Return the estimator with its model as it is before the first row."""
    if not isinstance(estimator, DirectMethod) or estimator.model is None:
        return estimator
    return replace(estimator, model=estimator.model.begin(True))


def conclude(
    estimator: Estimator,
    sums: Sums,
    *,
    clustered: bool = False,
    confidence: float = intervals.CONFIDENCE,
    weight_bound: float | None = None,
    seed: int = 0,
) -> Estimate:
    """Return what an estimator says, given the sums over a log.

    Parameters
    ----------
    estimator : Estimator
    sums : Sums
        Perhaps merged from those of the parts of a log.
    clustered : bool, default False
        Whether they were made with a ``cluster``.
    confidence, weight_bound, seed
        As for :func:`off_policy`.
    """
    ratio = estimator.ratio
    found = {
        "normal": intervals.normal(sums, ratio, confidence, clustered=clustered),
        "bootstrap": intervals.bootstrap(sums, ratio, confidence, seed=seed),
    }
    bounds = _anytime(estimator, sums, confidence, weight_bound)
    if bounds is not None and not clustered:
        found["anytime"] = bounds
    return Estimate(
        estimator=estimator.label,
        value=intervals.estimate_of(sums, ratio),
        standard_error=intervals.standard_error(sums, ratio, clustered=clustered),
        intervals=found,
        effective_sample_size=sums.effective_sample_size,
        mean_weight=sums.mean_weight,
        largest_weights=tuple(sums.largest[sums.largest > 0].tolist()),
        sums=sums,
    )


def _anytime(
    estimator: Estimator, sums: Sums, confidence: float, weight_bound: float | None
) -> Bounds | None:
    clip = float(getattr(estimator, "clip", math.inf))
    if weight_bound is not None and sums.largest[0] > weight_bound * (1 + 1e-12):
        raise InvalidValue(
            "weight_bound", weight_bound, f"there is a weight of {sums.largest[0]:g}; give more"
        )
    unclipped = weight_bound is not None and clip >= weight_bound
    if isinstance(estimator, SlateEstimator):
        if not estimator.weighted:
            return None
        return intervals.anytime(sums, confidence, slots=float(estimator.slots))
    if estimator.weighted:
        return intervals.anytime(sums, confidence, weight_bound=weight_bound if unclipped else None)
    threshold = float(getattr(estimator, "threshold", math.inf))
    if not isinstance(estimator, DoublyRobust) or weight_bound is None:
        return None
    if not unclipped or threshold < weight_bound:
        return None
    return intervals.bounded(sums, -weight_bound, 1.0 + weight_bound, confidence)
