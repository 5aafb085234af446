"""Estimators for slates: lists of arms, one logged row per place, whose clicks add up.

The rows of a slate stand together in the log and have one ``decision_id``. The estimate is the
expected number of clicks on a slate. The estimators differ in what a click may depend on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.errors import InvalidValue, UnfitLog
from tacit.evaluate.lists import Lists
from tacit.evaluate.rows import LoggedRows
from tacit.evaluate.targets.base import Target
from tacit.evaluate.weighting.estimators import Estimator, Units, WeightedRows, clipped


@dataclass(frozen=True)
class SlateEstimator(Estimator):
    """Base of the estimators for slates.

    Parameters
    ----------
    slots : int
        The most places that a slate has.
    clip : float, default infinity
        The largest weight of a slot; larger ones are cut to it.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.
    """

    given_above: ClassVar[bool] = True
    """Whether an arm is weighed given those above it, rather than whatever stands elsewhere."""

    slots: int
    clip: float = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", checks.integer("slots", self.slots, 1, 10_000))
        self._positive("clip")

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({"decision_id", "position"})

    def row_weights(self, terms: WeightedRows) -> Floats:
        """Return the weight of each row, before slots are told apart."""
        return terms.given_above if self.given_above else terms.weights

    def list_units(self, terms: WeightedRows, lists: Lists) -> Units:
        """Return the units of the lists of some rows."""
        weights = lists.table(self.row_weights(terms), self.slots, 1.0)
        rewards = lists.table(terms.rows.reward, self.slots, 0.0)
        used = clipped(self._slot_weights(weights), self.clip)
        return Units(used.sum(axis=1), (used * rewards).sum(axis=1), rewards.sum(axis=1))

    def _slot_weights(self, weights: Floats) -> Floats:
        raise NotImplementedError


@dataclass(frozen=True)
class SlateIPS(SlateEstimator):
    """Weights whole slates: a click may depend on everything on the page; the most variance.

    The propensity of each row is that of its arm at its position given the arms above it, or
    whatever else multiplies to the probability of the whole slate.

    References
    ----------
    McInerney et al. (2020), "Counterfactual evaluation of slate recommendations with sequential
    reward interactions", equation 1.
    """

    def _slot_weights(self, weights: Floats) -> Floats:
        return np.asarray(np.broadcast_to(weights.prod(axis=1, keepdims=True), weights.shape))


@dataclass(frozen=True)
class IndependentIPS(SlateEstimator):
    """Weights each slot alone: a click depends on its own arm and position only.

    The propensity of each row is its ``position_propensity``, that of its arm at its position
    whatever stands elsewhere; where the log has none, its ``propensity`` is taken for that.

    References
    ----------
    Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay, Wen (2018), "Offline evaluation of ranking
    policies with click models" (the item-position model); McInerney et al. (2020), equation 2.
    """

    given_above: ClassVar[bool] = False

    def _slot_weights(self, weights: Floats) -> Floats:
        return weights


@dataclass(frozen=True)
class CascadeIPS(SlateEstimator):
    """Weights each slot by itself and those above: a click depends on no arm below it.

    Known as reward-interaction IPS. The propensity of each row is that of its arm at its
    position given the arms above it, so that they multiply to the probability of the list down
    to there; the target's probabilities likewise.

    References
    ----------
    McInerney et al. (2020), equations 3 and 4.
    """

    def _slot_weights(self, weights: Floats) -> Floats:
        return np.asarray(np.cumprod(weights, axis=1))


@dataclass(frozen=True)
class PositionBasedIPS(SlateEstimator):
    """Weights each arm by how much it is examined: clicks follow the position-based model.

    A click is relevance (of the arm) times examination (of the position), so an arm's click at
    one position tells of it at every other: the weight of arm a is Σₖ θₖ π(a at k) / Σₖ θₖ
    p(a at k), of less variance than one ratio per position.

    Parameters
    ----------
    slots, clip
        As for the others.
    examination : sequence of float
        θₖ per position, from 0 on; only their ratios matter. From
        :func:`~tacit.evaluate.examine`, for example.
    logging : Target
        The policy that wrote the log: its probabilities of each arm at every position. The
        log's propensities, each of one position, do not tell them.

    References
    ----------
    Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay, Wen (2018), "Offline evaluation of ranking
    policies with click models" (the position-based model).
    """

    weighted: ClassVar[bool] = False
    given_above: ClassVar[bool] = False

    examination: tuple[float, ...] = ()
    logging: Target | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        effects = np.asarray(self.examination, np.float64)
        if effects.ndim != 1 or not len(effects) or not (effects >= 0).all() or not effects.any():
            raise InvalidValue("examination", self.examination, "give numbers ≥ 0, one a position")
        object.__setattr__(self, "examination", tuple(effects.tolist()))
        if self.logging is None:
            raise InvalidValue("logging", None, "give the logging policy, such as Uniform()")

    @property
    def columns(self) -> frozenset[str]:
        assert self.logging is not None
        return super().columns | self.logging.columns

    def row_weights(self, terms: WeightedRows) -> Floats:
        assert self.logging is not None
        wanted = self._exposure(terms.target, terms.rows)
        given = self._exposure(self.logging, terms.rows)
        if (given <= 0).any():
            row = int(np.argmax(given <= 0))
            arm = terms.rows.arm.names[terms.rows.arm.codes[row]]
            raise UnfitLog(
                f"{terms.rows.where(row)}: arm: {arm!r} was shown, but the logging policy gives it "
                "probability 0 wherever it would be examined; give the policy that wrote the log"
            )
        return wanted / given

    def _exposure(self, target: Target, rows: LoggedRows) -> Floats:
        """Return Σₖ θₖ π(a at k) for the arm of each row."""
        found = np.zeros(len(rows.reward))
        for position, effect in enumerate(self.examination):
            if effect > 0:
                found += effect * target.shown(_moved(rows, position))
        return found

    def _slot_weights(self, weights: Floats) -> Floats:
        return weights


def _moved(rows: LoggedRows, position: int) -> LoggedRows:
    """Return rows as if all had been shown at one position."""
    batch = rows.chunk.batch
    place = pa.repeat(pa.scalar(position, pa.int32()), len(batch))
    index = batch.schema.get_field_index("position")
    return rows._replace(chunk=rows.chunk._replace(batch=batch.set_column(index, "position", place)))
