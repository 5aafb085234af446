"""Expected rewards by a ridge regression on the context for each arm, cross-fitted."""

# 1. ``Products``: the sufficient statistics of ridge regression are sums of products, so parts of a log can
#    be merged.
# 2. ``ArmRidges``: folds are left out by subtraction; the model that predicts a row is not fitted to it.
# 3. Group rows by the length of their context, and sum their products.

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.core.reward_range import UNIT_RANGE, RewardRange
from tacit.errors import InvalidValue, UnfitLog
from tacit.evaluate.rewards import ModelOfLog
from tacit.evaluate.rows import LoggedRows, RowReader
from tacit.evaluate.targets import ArmValues
from tacit.logs.rows import lengths
from tacit.logs.sources import get_reward_range, open_log

PENALTIES = 1.0, 10.0, 100.0, 1e3, 1e4, 1e5
"""Candidates for the penalty of slopes, in rows of the log."""
MOST_LENGTHS = 20
"""Most different lengths of contexts in a log."""
MOST_BYTES = 2**30


class Products(NamedTuple):
    """Sums of products of (1, context, reward) over a log, or over a part of one.

    Attributes
    ----------
    rows : int
    arms : list of str
    sums : dict
        From the length of contexts to an array, shape (folds, arms, length + 2, length + 2); rows
        without a context have length 0.
    origins : dict
        From that length to a vector that is subtracted from each context, so that large numbers that
        hardly vary keep their precision.
    reward_range : RewardRange
        Of the log.
    """

    rows: int
    arms: list[str]
    sums: dict[int, Floats]
    origins: dict[int, Floats]
    reward_range: RewardRange = UNIT_RANGE

    def merge(self, later: Products) -> Products:
        """Return the sums over these rows and a later part of the log.

        Folds of the later part are rotated, as if its rows had followed; its sums are shifted to one
        origin.
        """
        arms = list(dict.fromkeys([*self.arms, *later.arms]))
        column = {name: i for i, name in enumerate(arms)}
        sums: dict[int, Floats] = {}
        origins = later.origins | self.origins
        for length, origin in origins.items():
            for part, turn in ((self, 0), (later, self.rows)):
                if length not in part.sums:
                    continue
                part_sums = part.sums[length]
                folds, size = len(part_sums), length + 2
                total = sums.setdefault(length, np.zeros((folds, len(arms), size, size)))
                # From contexts minus the part's origin to contexts minus the common one.
                shift = _shift_matrix(part.origins[length] - origin)
                places = np.array([column[name] for name in part.arms], np.int64)
                where = np.ix_((np.arange(folds) + turn) % folds, places)
                total[where] += shift @ part_sums @ shift.T
        return Products(self.rows + later.rows, arms, sums, origins, self.reward_range)


def _shift_matrix(by: Floats, scale: Floats | None = None, reward: float = 0.0) -> Floats:
    """Return the matrix that maps (1, x, r) to (1, (x + by)·scale, r − reward), of context x and reward r."""
    matrix: Floats = np.eye(len(by) + 2)
    matrix[1:-1, 0], matrix[-1, 0] = by, -reward
    if scale is not None:
        matrix[1:-1] *= scale[:, None]
    return matrix


class LengthModels(NamedTuple):
    """Ridge models of the expected reward, one per fold and arm, for contexts of one length.

    Attributes
    ----------
    center, scale : array of float64, shape (folds, length)
        Standardise a context x to (x − center)·scale.
    weights : array of float64, shape (folds, arms, length + 1)
        Intercepts first.
    ends : (float or None, float or None)
        The lowest and the highest reward, between which predictions are.
    """

    center: Floats
    scale: Floats
    weights: Floats
    ends: RewardRange = UNIT_RANGE

    def predict(self, contexts: Floats, fold: int) -> Floats:
        """Return the expected reward of each arm by a fold's model, shape (rows, arms), within ``ends``."""
        features = contexts - self.center[fold]
        features *= self.scale[fold]
        weights = self.weights[fold]
        rewards = features @ weights[:, 1:].T
        rewards += weights[:, 0]
        return rewards if self.ends.low is None else np.asarray(np.clip(rewards, *self.ends, out=rewards))


class ArmRidges(ArmValues, ModelOfLog):
    """A reward model by a ridge regression on the context for each arm, cross-fitted over folds of rows.

    Rows are assigned to folds in turn, and a row's reward is predicted by a model of the other folds.
    Contexts are standardised to mean 0 and variance 1; the intercept of an arm is shrunk towards the mean
    of all rows as in :class:`ArmMeans`, its slopes towards 0; predictions are clipped to the range of
    rewards. Each length of contexts, as of several placements, has its own models; for rows without a
    context they reduce to :class:`ArmMeans`. Memory holds sums of products: folds · arms · (dim + 2)²
    numbers.

    Parameters
    ----------
    folds : int, default 5
        At least 2.
    strength : float, default 10
        Weight of the mean of all rows, in rows; above 0.
    penalty : float, optional
        Ridge penalty of slopes, in rows, above 0; by default chosen from 1, 10, …, 100,000 by
        generalised cross-validation.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Golub, Heath, Wahba (1979), "Generalized cross-validation as a method for choosing a good ridge
    parameter"; Chernozhukov et al. (2018), "Double/debiased machine learning for treatment and
    structural parameters" (cross-fitting).

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.evaluate import DoublyRobust, Uniform, off_policy
    >>> rng = np.random.default_rng(1)
    >>> age, arm = rng.normal(size=1000), rng.choice(["film", "song"], 1000)
    >>> log = {
    ...     "key": ["home"] * 1000,
    ...     "arm": arm,
    ...     "propensity": [0.5] * 1000,
    ...     "reward": ((arm == "song") == (age > 0)).astype(float),
    ...     "context": age[:, None].tolist(),
    ... }
    >>> (found,) = off_policy(Uniform(), log, [DoublyRobust(ArmRidges())], arms=["film", "song"]).estimates
    >>> abs(found.value - 0.5) < 2 * found.standard_error
    True
    """

    columns = frozenset({"context"})

    def __init__(self, *, folds: int = 5, strength: float = 10.0, penalty: float | None = None) -> None:
        """Validate the parameters; the model is not fitted yet."""
        self.folds = checks.integer("folds", folds, 2, 1000)
        self.strength = checks.positive("strength", strength)
        self.penalty = None if penalty is None else checks.positive("penalty", penalty)
        self._models: dict[int, LengthModels] | None = None

    def count_log(self, log: Any, reader: RowReader) -> Products:
        """Return the sums of products of contexts and rewards of a log, per fold, arm and length of contexts.

        With ``is_weighed``, rows without a propensity are left out if others have one. Raises UnfitLog if
        contexts have too many lengths, or the sums need too much memory.
        """
        log = open_log(log)
        sums: dict[int, Floats] = {}
        origins: dict[int, Floats] = {}
        for rows in reader.read(log):
            fold = rows.folds(self.folds)
            for picked, context_rows in group_by_length(rows):
                length, arms = context_rows.shape[1], len(reader.arms)
                # Relative to the first context, large numbers that hardly vary keep their precision.
                origin = origins.setdefault(length, context_rows[0].copy())
                self._check_size(rows, length, len(sums), arms)
                total = _pad_arms(sums.get(length), self.folds, arms, length + 2)
                cell = fold[picked] * arms + rows.arm.codes[picked]
                columns = context_rows, origin, rows.reward[picked]
                add_products(total.reshape(-1, length + 2, length + 2), cell, *columns)
                sums[length] = total
        arms = len(reader.arms)
        sums = {length: _pad_arms(x, self.folds, arms, length + 2) for length, x in sums.items()}
        return Products(reader.rows, list(reader.arms), sums, origins, get_reward_range(log))

    def _check_size(self, rows: LoggedRows, length: int, lengths: int, arms: int) -> None:
        """Raise UnfitLog if contexts have too many different lengths, or the sums need more than 1 GiB."""
        if lengths > MOST_LENGTHS:
            raise UnfitLog(
                f"{rows.chunk.source}: context: of more than {MOST_LENGTHS} different lengths; give "
                "contexts of as many numbers in each row, or a model that needs none, such as ArmMeans()"
            )
        size = 8 * self.folds * arms * (length + 2) ** 2  # bytes
        if size > MOST_BYTES:
            raise UnfitLog(
                f"{rows.chunk.source}: context: a regression for each of {arms:,} arms on {length:,} "
                f"numbers takes {size / 1e9:.1f} GB; give a model, such as Predicted(…) or ArmMeans()"
            )

    def from_counts(self, counts: Products) -> Self:
        """Return a copy of the model that is fitted to sums of a log."""
        model = copy.copy(self)
        model.is_fitted, model.names = True, {"arm": counts.arms}
        model._models = {
            size: self._fit_length(x, counts.origins[size])._replace(ends=counts.reward_range)
            for size, x in counts.sums.items()
        }
        return model

    def _fit_length(self, sums: Floats, origin: Floats) -> LengthModels:
        """Return the models for contexts of one length: for each fold, fitted to the other folds.

        ``sums`` are of contexts minus ``origin``, as in :class:`Products`.
        """
        other_sums = sums.sum(axis=0) - sums
        fits = [self._fit_fold(fold_sums) for fold_sums in other_sums]
        center, scale, weights = (np.stack(part) for part in zip(*fits, strict=True))
        return LengthModels(center + origin, scale, weights)

    def _fit_fold(self, sums: Floats) -> tuple[Floats, Floats, Floats]:
        """Return center and scale of contexts, and each arm's weights, fitted to sums of products.

        ``sums`` has the shape (arms, size, size). Features that do not vary get scale 0.
        """
        total = sums.sum(axis=0)
        n = max(total[0, 0], 1.0)
        mean = total[0] / n
        center, reward = mean[1:-1], mean[-1]
        spread = np.sqrt(np.maximum(np.diag(total)[1:-1] / n - center**2, 0.0))
        varies = spread > 1e-12 * np.abs(center)  # less is rounding error of a constant
        scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=varies & (spread > 0))
        # Fitted to rewards minus their mean, which then goes into the intercepts.
        shift = _shift_matrix(-center, scale, reward)
        weights = self._solve_weights(shift @ sums @ shift.T)
        weights[:, 0] += reward
        return center, scale, weights

    def _solve_weights(self, moved: Floats) -> Floats:
        """Return each arm's ridge weights, intercept first, from sums of products of standardised contexts.

        ``moved`` are sums as in :class:`Products`, shape (arms, size, size). Unless the penalty is set, it is
        the candidate with the smallest generalised cross-validation criterion.
        """
        products, targets, squares = moved[:, :-1, :-1], moved[:, :-1, -1], moved[:, -1, -1]
        rows = float(products[:, 0, 0].sum())
        best, smallest = np.zeros_like(targets), np.inf
        width = products.shape[1]
        # Without contexts (width 1) there are no slopes, and any penalty is the same.
        for penalty in PENALTIES if self.penalty is None and width > 1 else (self.penalty or 1.0,):
            penalties = np.diag([self.strength, *[penalty] * (width - 1)])
            inverse = np.linalg.inv(products + penalties)
            weights = np.einsum("aij,aj->ai", inverse, targets)
            degrees_of_freedom = float(np.einsum("aij,aji->", inverse, products))
            # Of each arm, the sum of squared errors: Σ(r − wx)² = Σr² − 2w·Σxr + wᵀ(Σxxᵀ)w.
            errors = squares - 2 * (weights * targets).sum(axis=1)
            errors += np.einsum("ai,aij,aj->a", weights, products, weights)
            criterion = float(errors.sum()) / max(rows - degrees_of_freedom, 1e-9) ** 2
            if criterion < smallest:
                best, smallest = weights, criterion
        return best

    def _evaluate(self, rows: LoggedRows) -> Floats:
        """Return the expected reward of each arm in each row, by the model of the row's fold.

        Raises InvalidValue if the model is not fitted, or was fitted to another log.
        """
        if self._models is None:
            raise InvalidValue("model", "ArmRidges()", "fit it to a log first")
        arms = len(rows.arm.names)
        if self.names["arm"][:arms] != rows.arm.names:
            raise InvalidValue("model", "ArmRidges()", "fit it to the log that is evaluated")
        rewards = np.zeros((len(rows.reward), arms))
        fold = rows.folds(self.folds)
        for picked, context_rows in group_by_length(rows):
            models = self._models.get(context_rows.shape[1])
            if models is None:
                raise InvalidValue("model", "ArmRidges()", "fit it to the log that is evaluated")
            for number in range(self.folds):
                in_fold: Any = fold[picked] == number
                # Of all rows, every ``folds``-th is of a fold: a slice of them copies no contexts.
                if len(picked) == len(rewards):
                    in_fold = slice((number - rows.first) % self.folds, None, self.folds)
                rewards[picked[in_fold]] = models.predict(context_rows[in_fold], number)[:, :arms]
        return rewards


def group_by_length(rows: LoggedRows) -> Iterator[tuple[Ints, Floats]]:
    """Yield, for each length of contexts, the indices of its rows and their contexts, shape (rows, length).

    Rows without a context have length 0.
    """
    batch = rows.chunk.batch
    if "context" not in batch.schema.names:
        yield np.arange(len(batch)), np.zeros((len(batch), 0))
        return
    column = batch["context"]
    length = lengths(column)
    numbers = np.asarray(column.flatten().to_numpy(), np.float64)
    if len(length) and (length == length[0]).all():
        yield np.arange(len(length)), numbers.reshape(len(length), -1)
        return
    start = np.cumsum(length) - length
    for dim in np.unique(length).tolist():
        picked = np.flatnonzero(length == dim)
        yield picked, numbers[start[picked, None] + np.arange(dim)]


def add_products(total: Floats, cell: Ints, contexts: Floats, origin: Floats, rewards: Floats) -> None:
    """Add the outer product of each row's (1, context − origin, reward) to its cell of ``total``, in place.

    ``total`` has the shape (cells, width, width); ``cell`` has the cell of each row.
    """
    # NumPy sorts short whole numbers by their digits, in a fifth of the time.
    order = np.argsort(cell.astype(np.uint16) if len(total) <= 2**16 else cell, kind="stable")
    columns = np.ones((len(order), total.shape[1]))
    np.subtract(contexts[order], origin, out=columns[:, 1:-1])
    columns[:, -1] = rewards[order]
    ends = np.cumsum(np.bincount(cell, minlength=len(total))).tolist()
    for number, (start, stop) in enumerate(pairwise([0, *ends])):
        if start < stop:
            cell_columns = columns[start:stop]
            total[number] += cell_columns.T @ cell_columns


def _pad_arms(array: Floats | None, folds: int, arms: int, size: int) -> Floats:
    """Return sums of shape (folds, arms, size, size), padded with zeros; all zeros if ``array`` is None."""
    if array is not None and array.shape[1] == arms:
        return array
    padded = np.zeros((folds, arms, size, size))
    if array is not None:
        padded[:, : array.shape[1]] = array
    return padded
