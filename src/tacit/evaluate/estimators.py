"""Estimators of a policy's value: from rows of one decision each, and from slates."""

# 1. ``WeightedRows`` become ``Units``: a weight and a value each.
# 2. Single rows: IPS, self-normalised, direct, doubly robust, switch; the later ones need a model.
# 3. Slates: whole lists, single positions, down from the top, by examination.
# 4. ``estimators_from_names``: estimators by their command-line names.

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.core.part import Checked, int_range, set_field
from tacit.core.refusals import Refusal, refuse_options, refuse_rows
from tacit.errors import InvalidValue, UnknownName
from tacit.evaluate.rewards import RewardModel
from tacit.evaluate.rows import Lists, LoggedRows
from tacit.evaluate.targets import Target

# ---- Estimators of a policy's value from rows of one decision each
#
# An estimator turns rows into units, a weight and a value each; :mod:`tacit.evaluate.intervals` adds
# them up, and the estimate is Σvalue/n, or Σvalue/Σweight for self-normalised estimators.


class WeightedRows(NamedTuple):
    """Rows with their importance weights.

    Attributes
    ----------
    rows : LoggedRows
    weights : array of float64, shape (rows,)
        π/p: the target's over the logged probability of the arm shown; in a list, of the arm at its
        position, marginal over the other positions.
    given_above : array of float64, shape (rows,)
        In a list, the same ratio conditional on the arms above.
    target : Target
    """

    rows: LoggedRows
    weights: Floats
    given_above: Floats
    target: Target


class Units(NamedTuple):
    """Units of an estimate: rows or slates.

    Attributes
    ----------
    weights, values : array of float64, shape (units,)
    rewards : array of float64, shape (units,), optional
        Rewards in the log; None if the estimator does not use them.
    """

    weights: Floats
    values: Floats
    rewards: Floats | None = None


def check_weight_limit(field: str, value: float) -> float:
    """Return ``value``, the largest weight allowed, if it is above 0; infinity means no limit.

    Raises InvalidValue, which names ``field``, for other values.
    """
    return value if value == math.inf else checks.positive(field, value)


WeightLimit = Annotated[float, check_weight_limit]


@dataclass(frozen=True)
class Estimator(Checked):
    """Base class of estimators, which turn weighted rows into units of an average."""

    ratio: ClassVar[bool] = False
    """Whether the estimate is Σvalue/Σweight."""
    weighted: ClassVar[bool] = True
    """Whether values are weight times reward, as the confidence sequence needs."""
    needs_all_arms: ClassVar[bool] = False
    """Whether the probabilities of all arms are needed, not only that of the arm shown."""
    has_interval: ClassVar[bool] = True
    """Whether the estimate has intervals; not if its error cannot be computed from the rows."""

    @property
    def columns(self) -> frozenset[str]:
        """The log columns that the estimator needs in addition to arm, arms, propensity and reward."""
        return frozenset()

    @property
    def label(self) -> str:
        """The class name, with the numeric parameters that differ from their defaults, as "IPS(clip=10)"."""
        changed = [
            f"{field.name}={value:g}"
            for field in fields(self)
            for value in [getattr(self, field.name)]
            if isinstance(value, (int, float)) and value != field.default
        ]
        return type(self).__name__ + (f"({', '.join(changed)})" if changed else "")

    def units(self, weighted: WeightedRows) -> Units:
        """Return one weight and one value per row, of which the estimate is the mean or the ratio of sums."""
        raise NotImplementedError


@dataclass(frozen=True)
class IPS(Estimator):
    """Inverse propensity score: the mean of weight times reward; unbiased.

    Parameters
    ----------
    clip : float, default infinity
        The largest weight; larger ones are cut to it, which trades variance for a bias downward.

    Raises
    ------
    InvalidValue
        If ``clip`` is not above 0.

    References
    ----------
    Horvitz, Thompson (1952), "A generalization of sampling without replacement from a finite
    universe"; Strehl, Langford, Li, Kakade (2010), "Learning from logged implicit exploration
    data"; Bottou et al. (2013), "Counterfactual reasoning and learning systems", on clipping.

    Examples
    --------
    >>> IPS(clip=10).label
    'IPS(clip=10)'
    """

    clip: WeightLimit = math.inf

    def units(self, weighted: WeightedRows) -> Units:
        """Return per row the clipped weight, and the weight times the reward."""
        weights = clip_weights(weighted.weights, self.clip)
        return Units(weights, weights * weighted.rows.reward, weighted.rows.reward)


@dataclass(frozen=True)
class SNIPS(IPS):
    """Self-normalised inverse propensity score: Σ(weight × reward)/Σweight.

    Biased by O(1/n), within the range of the rewards, and of much less variance than IPS where
    weights vary or rewards are far from 0.

    Parameters
    ----------
    clip : float, default infinity
        As for :class:`IPS`.

    References
    ----------
    Swaminathan, Joachims (2015), "The self-normalized estimator for counterfactual learning".
    """

    ratio: ClassVar[bool] = True


@dataclass(frozen=True)
class DirectMethod(Estimator):
    """The mean reward that a reward model expects under the target policy.

    No weights, little variance, and all the bias of the model: the rows do not show that bias, so
    there is no interval; :class:`DoublyRobust` has intervals.

    Parameters
    ----------
    model : RewardModel, optional
        The expected reward of each arm; by default regressions on the context, or without one means,
        from other rows of the log, see :class:`~tacit.evaluate.ArmRidges`.

    References
    ----------
    Dudík, Langford, Li (2011), "Doubly robust policy evaluation and learning", section 2.
    """

    weighted: ClassVar[bool] = False
    needs_all_arms: ClassVar[bool] = True
    has_interval: ClassVar[bool] = False

    model: RewardModel | None = None

    def __post_init__(self) -> None:
        """Raise InvalidValue if the model is no reward model."""
        super().__post_init__()
        if self.model is not None and not hasattr(self.model, "evaluate_shown"):
            remedy = "give a RewardModel, such as ArmMeans(), or Predicted(model, arms=[...])"
            raise InvalidValue("model", self.model, remedy)

    @property
    def columns(self) -> frozenset[str]:
        """The log columns that the reward model reads; none without a model."""
        return self.model.columns if self.model else frozenset()

    def units(self, weighted: WeightedRows) -> Units:
        """Return per row the weight, and the model's expected reward under the target policy."""
        return Units(weighted.weights, self._expect_reward(weighted))

    def _expect_reward(self, weighted: WeightedRows) -> Floats:
        """Return per row the model's expected reward under the target policy: Σ π(a)·q(a) over the arms."""
        probabilities = weighted.target.evaluate_arms(weighted.rows)
        return np.asarray(np.einsum("ra,ra->r", probabilities, self._model.evaluate_arms(weighted.rows)))

    @property
    def _model(self) -> Any:
        """The reward model; an assertion fails if none is set."""
        assert self.model is not None, "a model is fitted before the first row"
        return self.model


@dataclass(frozen=True)
class DoublyRobust(DirectMethod):
    """The direct method, corrected by the weighted errors of its model on the arms shown.

    Unbiased for any model; the better the model, the less variance.

    Parameters
    ----------
    model : RewardModel, optional
        As for :class:`DirectMethod`.
    clip : float, default infinity
        The largest weight; larger ones are cut to it.

    References
    ----------
    Dudík, Langford, Li (2011), "Doubly robust policy evaluation and learning", equation 2;
    Su, Dimakopoulou, Krishnamurthy, Dudík (2020), "Doubly robust off-policy evaluation with
    shrinkage", section 3 (clipping as pessimistic shrinkage).
    """

    has_interval: ClassVar[bool] = True

    clip: WeightLimit = math.inf

    def units(self, weighted: WeightedRows) -> Units:
        """Return per row the clipped weight, and the model's expected reward plus weight times its error."""
        weights = self._limit_weights(weighted.weights)
        errors = weighted.rows.reward - self._model.evaluate_shown(weighted.rows)
        return Units(weights, self._expect_reward(weighted) + weights * errors, weighted.rows.reward)

    def _limit_weights(self, weights: Floats) -> Floats:
        """Return weights cut to at most ``clip``."""
        return clip_weights(weights, self.clip)


@dataclass(frozen=True)
class SwitchDR(DoublyRobust):
    """Doubly robust where the weight is at most a threshold, the direct method elsewhere.

    If a weight is above the threshold, there is no interval, as for :class:`DirectMethod`: the bias of the
    model is unknown. Otherwise it equals :class:`DoublyRobust`.

    Parameters
    ----------
    model : RewardModel, optional
        As for :class:`DirectMethod`.
    threshold : float, default 10
        The largest weight that is used.

    References
    ----------
    Wang, Agarwal, Dudík (2017), "Optimal and adaptive off-policy evaluation in contextual
    bandits", section 4.
    """

    threshold: WeightLimit = 10.0

    def units(self, weighted: WeightedRows) -> Units:
        """Return the units of DoublyRobust with weights above the threshold taken as 0 in the values.

        The returned weights include those above the threshold, so that sums show which ones exceed it.
        """
        return super().units(weighted)._replace(weights=clip_weights(weighted.weights, self.clip))

    def _limit_weights(self, weights: Floats) -> Floats:
        """Return clipped weights, with 0 in place of weights above the threshold."""
        return np.where(weights <= self.threshold, super()._limit_weights(weights), 0.0)


def clip_weights(weights: Floats, clip: float) -> Floats:
    """Return weights, with larger ones than ``clip`` cut to it."""
    return weights if math.isinf(clip) else np.minimum(weights, clip)


# ---- Estimators for slates: lists of arms, one logged row per place, whose clicks add up
#
# The rows of a slate are consecutive in the log and share a ``decision_id``. The estimate is the
# expected number of clicks on a slate. The estimators differ in the arms that a click may depend on.


@dataclass(frozen=True)
class SlateEstimator(Estimator):
    """Base of the estimators for slates.

    Parameters
    ----------
    slots : int
        The most positions that a slate has.
    clip : float, default infinity
        The largest weight of a position; larger ones are cut to it.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.
    """

    given_above: ClassVar[bool] = True
    """Whether weights are conditional on the arms above, rather than marginal over other positions."""

    slots: Annotated[int, int_range(1, 10_000)]
    clip: WeightLimit = math.inf

    @property
    def columns(self) -> frozenset[str]:
        """The log columns that estimators for slates need: decision_id and position."""
        return frozenset({"decision_id", "position"})

    def row_weights(self, weighted: WeightedRows) -> Floats:
        """Return each row's weight: the target's over the logged probability of its arm at its position.

        With ``given_above`` both are conditional on the arms above, else marginal over the other positions.
        """
        return weighted.given_above if self.given_above else weighted.weights

    def list_units(self, weighted: WeightedRows, lists: Lists) -> Units:
        """Return one unit per list: the sums over its positions of weights, weighted rewards, and rewards."""
        weights = lists.table(self.row_weights(weighted), self.slots, empty=1.0)
        rewards = lists.table(weighted.rows.reward, self.slots, empty=0.0)
        position_weights = clip_weights(self._compute_position_weights(weights), self.clip)
        totals = position_weights.sum(axis=1)
        return Units(totals, (position_weights * rewards).sum(axis=1), rewards.sum(axis=1))

    def _compute_position_weights(self, weights: Floats) -> Floats:
        """Return the weight of the reward at each position, computed from the arms' weights.

        Both arrays have the shape (lists, positions).
        """
        raise NotImplementedError


@dataclass(frozen=True)
class SlateIPS(SlateEstimator):
    """Weights whole slates: a click may depend on everything on the page; the most variance.

    The propensity of each row is that of its arm at its position given the arms above it; any other
    factors that multiply to the probability of the whole slate also work.

    References
    ----------
    McInerney et al. (2020), "Counterfactual evaluation of slate recommendations with sequential
    reward interactions", equation 1.
    """

    def _compute_position_weights(self, weights: Floats) -> Floats:
        """Return, at every position, the product of the weights of the whole list."""
        return np.asarray(np.broadcast_to(weights.prod(axis=1, keepdims=True), weights.shape))


@dataclass(frozen=True)
class IndependentIPS(SlateEstimator):
    """Weights each position alone: a click depends on its own arm and position only.

    The propensity of each row is its ``position_propensity``, the marginal probability of its arm at its
    position; if the log has none, its ``propensity`` is used instead.

    References
    ----------
    Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay, Wen (2018), "Offline evaluation of ranking
    policies with click models" (the item-position model); McInerney et al. (2020), equation 2.
    """

    given_above: ClassVar[bool] = False

    def _compute_position_weights(self, weights: Floats) -> Floats:
        """Return the weights unchanged: each position counts alone."""
        return weights


@dataclass(frozen=True)
class CascadeIPS(SlateEstimator):
    """Weights each position together with all above: a click depends on no arm below it.

    Known as reward-interaction IPS. The propensity of each row is that of its arm at its
    position given the arms above it, so that they multiply to the probability of the list down
    to that position; the target's probabilities likewise.

    References
    ----------
    McInerney et al. (2020), equations 3 and 4.
    """

    def _compute_position_weights(self, weights: Floats) -> Floats:
        """Return, at each position, the product of the weights down to it."""
        return np.asarray(np.cumprod(weights, axis=1))


@dataclass(frozen=True)
class PositionBasedIPS(SlateEstimator):
    """Weights each arm by how much it is examined: clicks follow the position-based model.

    The probability of a click is relevance (of the arm) times examination (of the position), so an arm's
    clicks at one position are informative for every other: the weight of arm a is
    Σₖ θₖ π(a at k) / Σₖ θₖ p(a at k), of less variance than one ratio per position.

    Parameters
    ----------
    slots, clip
        As for the others.
    examination : sequence of float, or Examination
        θₖ per position, from 0 on; only their ratios matter. For example the result of
        :func:`~tacit.evaluate.examine`.
    logging : Target
        The policy that wrote the log, for its probabilities of each arm at every position. The
        log has a propensity for one position only.

    References
    ----------
    Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay, Wen (2018), "Offline evaluation of ranking
    policies with click models" (the position-based model).
    """

    weighted: ClassVar[bool] = False
    given_above: ClassVar[bool] = False

    examination: Any = ()
    logging: Target | None = None

    def __post_init__(self) -> None:
        """Validate ``examination`` and ``logging``; raise InvalidValue if one is wrong.

        ``examination`` becomes a tuple of numbers.
        """
        super().__post_init__()
        probabilities = getattr(self.examination, "probabilities", self.examination)
        try:
            effects = np.asarray(probabilities, np.float64)
        except (TypeError, ValueError):
            effects = np.zeros(0)
        is_wrong = effects.ndim != 1 or not len(effects) or not (effects >= 0).all() or not effects.any()
        remedy = "give the logging policy, such as Uniform()"
        refuse_options(
            [
                Refusal("examination", is_wrong, "give numbers ≥ 0, one a position", self.examination),
                Refusal("logging", self.logging is None, remedy),
                Refusal("logging", lacks_methods(self.logging, "evaluate_shown"), NO_LOGGING, self.logging),
            ]
        )
        set_field(self, "examination", tuple(effects.tolist()))

    @property
    def columns(self) -> frozenset[str]:
        """The log columns that estimators for slates and the logging policy need."""
        assert self.logging is not None
        return super().columns | self.logging.columns

    def row_weights(self, weighted: WeightedRows) -> Floats:
        """Return, for each row's arm, its examination under the target over that under the logging policy.

        Raises UnfitLog if the logging policy never shows a logged arm where it would be examined.
        """
        assert self.logging is not None
        target_exposure = self._compute_target_exposure(weighted)
        logged_exposure = self._compute_exposure(self.logging, weighted.rows)
        rows = weighted.rows
        text = "was shown, but the logging policy gives it probability 0 wherever it would be examined; "
        text += "give the policy that wrote the log"
        unseen = Refusal("arm", logged_exposure <= 0, lambda row: f"{rows.name_arm(row)!r} {text}")
        refuse_rows(rows.locate_row, [unseen])
        return target_exposure / logged_exposure

    def _compute_target_exposure(self, weighted: WeightedRows) -> Floats:
        """Return, for each row's arm, its examination under the target policy: Σₖ θₖ π(a at k).

        A target that learns can evaluate a row only once, so it returns all positions together.
        """
        effects = np.array(self.examination)
        if hasattr(weighted.target, "all_position_probabilities"):
            chances = weighted.target.all_position_probabilities()[:, : len(effects)]
            return np.asarray(chances @ effects[: chances.shape[1]])
        if "position" not in weighted.target.columns:
            # The same probability π at every position, and π is weight times propensity.
            return np.asarray(effects.sum() * weighted.weights * weighted.rows.propensity)
        return self._compute_exposure(weighted.target, weighted.rows)

    def _compute_exposure(self, target: Target, rows: LoggedRows) -> Floats:
        """Return, for each row's arm, its examination Σₖ θₖ π(a at k) under a target that does not learn."""
        exposure = np.zeros(len(rows.reward))
        for position, effect in enumerate(self.examination):
            if effect > 0:
                exposure += effect * target.evaluate_shown(_move_to_position(rows, position))
        return exposure

    def _compute_position_weights(self, weights: Floats) -> Floats:
        """Return the weights unchanged."""
        return weights


def lacks_methods(value: Any, *names: str) -> bool:
    """True if a value lacks one of the named methods, or is a class, of which no object was made."""
    return isinstance(value, type) or not all(hasattr(value, name) for name in names)


NO_LOGGING = "give its probabilities as a target, such as Uniform() or Table({'film': 0.8, ...})"


def _move_to_position(rows: LoggedRows, position: int) -> LoggedRows:
    """Return a copy of the rows in which every row has the position ``position``."""
    batch = rows.chunk.batch
    column = pa.repeat(pa.scalar(position, pa.int32()), len(batch))
    index = batch.schema.get_field_index("position")
    return rows._replace(chunk=rows.chunk._replace(batch=batch.set_column(index, "position", column)))


# ---- Estimators by their command-line names

NAMES = ("ips", "snips", "dm", "dr", "switch-dr", "slate-ips", "independent-ips", "cascade-ips")


def estimators_from_names(
    names: Sequence[str], *, clip: float | None = None, threshold: float = 10.0, slots: int = 3
) -> list[Estimator]:
    """Return new estimators for command-line names, in their order.

    Parameters
    ----------
    names : sequence of str
        Any of ips, snips, dm, dr, switch-dr, slate-ips, independent-ips, cascade-ips.
    clip : float, optional
        The largest weight, for all but dm and switch-dr.
    threshold : float, default 10
        The largest weight that switch-dr uses.
    slots : int, default 3
        The most positions of a slate.

    Raises
    ------
    UnknownName
        If there is no such estimator.
    InvalidValue
        If a number is out of its range.

    Examples
    --------
    >>> [estimator.label for estimator in estimators_from_names(["ips", "dr"], clip=5)]
    ['IPS(clip=5)', 'DoublyRobust(clip=5)']
    """
    clip_option: dict[str, Any] = {} if clip is None else {"clip": clip}
    factories: dict[str, Callable[[], Estimator]] = {
        "ips": lambda: IPS(**clip_option),
        "snips": lambda: SNIPS(**clip_option),
        "dm": DirectMethod,
        "dr": lambda: DoublyRobust(**clip_option),
        "switch-dr": lambda: SwitchDR(threshold=threshold),
        "slate-ips": lambda: SlateIPS(slots, **clip_option),
        "independent-ips": lambda: IndependentIPS(slots, **clip_option),
        "cascade-ips": lambda: CascadeIPS(slots, **clip_option),
    }
    for name in names:
        if name not in factories:
            raise UnknownName(f"estimator: there is no {name!r}; there are replay, {', '.join(NAMES)}")
    return [factories[name]() for name in names]
