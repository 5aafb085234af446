"""Models of the expected reward, and of propensities: means per arm, fitted models, frequencies.

Tables and functions of expected rewards; means estimated from the log; a user's fitted model, and the greedy
policy that follows it; propensities estimated as frequencies, if the log has none.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.errors import InvalidValue, UnfitLog
from tacit.evaluate.rows import NAMES, LoggedRows, RowReader, positions
from tacit.evaluate.targets import PER, ArmFunction, ArmTables, Probabilities, contexts, offer_matrix

# ---- Models of the expected reward of each arm, for the direct method and doubly robust estimators


class RewardModel(Protocol):
    """Protocol of reward models: the expected reward of each arm in each logged row.

    Attributes
    ----------
    columns : frozenset of str
        The columns of the log that the model reads.
    """

    columns: frozenset[str]

    def begin(self, all_arms: bool = False) -> Self:
        """Return the model reset for a new log; ``all_arms`` if :meth:`evaluate_arms` will be called."""

    def evaluate_shown(self, rows: LoggedRows) -> Floats:
        """Return the expected reward of each row's shown arm."""

    def evaluate_arms(self, rows: LoggedRows) -> Floats:
        """Return the expected reward of each arm, shape (rows, arms)."""


class Rewards(ArmTables):
    """A reward model of fixed expected rewards of arms; arms that are not named have 0.

    Parameters
    ----------
    rewards : dict
        From arms to expected rewards; with ``per``, from the values of that column to such
        dicts.
    per : {None, "key", "placement", "position", "policy"}
        The column with a table of rewards for each value.

    Examples
    --------
    >>> Rewards({"film": 0.1, "holiday": 0.4}).per is None
    True
    """

    def __init__(self, rewards: Mapping[Any, Any], per: str | None = None) -> None:
        super().__init__(rewards, per)


class RewardFunction(ArmFunction):
    """A reward model whose expected rewards a user's function returns for a batch of rows.

    Parameters
    ----------
    function, arms, columns
        As for :class:`~tacit.evaluate.Probabilities`, but the numbers need not add to 1.
    """


# ---- A reward model from the log itself: mean rewards per arm


class ArmCounts(NamedTuple):
    """Counts of rows and sums of rewards of a log, or of a part of one.

    Attributes
    ----------
    rows : int
    values, arms : list of str
        Values of the ``per`` column, and the arms.
    plays, total : array of float64, shape (folds, values, arms)
        Number of rows, and the sum of their rewards. Rows are assigned to folds in turn.
    """

    rows: int
    values: list[str]
    arms: list[str]
    plays: Floats
    total: Floats

    def merge(self, later: ArmCounts) -> ArmCounts:
        """Return the counts of these rows and of a later part of the log.

        Folds of the later part are rotated, as if its rows had followed.
        """
        folds = len(self.plays)
        values = list(dict.fromkeys([*self.values, *later.values]))
        arms = list(dict.fromkeys([*self.arms, *later.arms]))
        plays, total = np.zeros((2, folds, len(values), len(arms)))
        place = {name: i for i, name in enumerate(values)}
        column = {name: i for i, name in enumerate(arms)}
        for part, turn in ((self, 0), (later, self.rows % folds)):
            where = np.ix_(
                (np.arange(folds) + turn) % folds,
                np.array([place[name] for name in part.values], np.int64),
                np.array([column[name] for name in part.arms], np.int64),
            )
            plays[where] += part.plays
            total[where] += part.total
        return ArmCounts(self.rows + later.rows, values, arms, plays, total)


class ModelOfLog:
    """Base of models that are fitted to the evaluated log itself, in an additional pass over it.

    Attributes
    ----------
    columns : frozenset of str
        The columns of the log that the model reads.
    is_fitted : bool
        True once the model is fitted.
    names : dict
        From columns to the names that the model was fitted to, in the order of their codes.
    """

    columns: frozenset[str]
    is_fitted = False
    names: Mapping[str, list[str]] = MappingProxyType({})

    def count_log(self, log: Any, reader: RowReader) -> Any:
        """Read a log, or a part of one, and return the counts that the model is fitted to.

        ``reader`` reads at least ``columns``. It must reject the same rows as the reader of the rows that are
        evaluated: a row is in the same fold for both only if the same rows precede it. Counts of
        consecutive parts can be merged by their ``merge``.
        """
        raise NotImplementedError

    def from_counts(self, counts: Any) -> Self:
        """Return a copy of the model that is fitted to counts of a log."""
        raise NotImplementedError

    def fit(self, log: Any, missing_reward: float | None = 0.0) -> Self:
        """Return a copy of the model that is fitted to a log, which is read once.

        ``missing_reward`` is the reward of a row without feedback; None leaves such rows out.
        """
        reader = RowReader(self.columns, missing_reward, need_propensity=False)
        return self.from_counts(self.count_log(log, reader))


class ArmMeans(ModelOfLog):
    """A reward model of mean rewards per arm, cross-fitted: a row's own reward does not enter its prediction.

    Rows are assigned to folds in turn; the model of a fold is fitted to the other folds. Means
    are shrunk towards the mean of all rows: (sum + strength × mean)/(rows + strength).

    Parameters
    ----------
    per : {None, "key", "placement", "position", "policy"}
        The column with means for each value.
    folds : int, default 5
    strength : float, default 10
        Weight of the mean of all rows, in rows.

    References
    ----------
    Chernozhukov et al. (2018), "Double/debiased machine learning for treatment and structural
    parameters" (cross-fitting).
    """

    def __init__(self, per: str | None = None, *, folds: int = 5, strength: float = 10.0) -> None:
        """Validate the parameters; the model is not fitted yet."""
        if per not in PER:
            raise InvalidValue("per", per, f"give one of {', '.join(map(str, PER))}")
        self.per = per
        self.folds = checks.integer("folds", folds, 2, 1000)
        self.strength = checks.positive("strength", strength)
        self.columns = frozenset({per} if per else ())
        self._means: Floats | None = None

    def count_log(self, log: Any, reader: RowReader) -> ArmCounts:
        """Read a log and return the number of rows and sum of rewards per fold, value of ``per``, and arm."""
        shape = (self.folds, 0, 0)
        count, total = np.zeros(shape), np.zeros(shape)
        names: tuple[list[str], list[str]] = ([], [])
        for rows in reader.read(log):
            per, arm = rows.get_column(self.per), rows.arm
            # Each batch names positions up to its own highest one.
            names = per.names if len(per.names) > len(names[0]) else names[0], arm.names
            shape = (self.folds, len(names[0]), len(names[1]))
            count, total = _grow_array(count, shape), _grow_array(total, shape)
            places = np.ravel_multi_index((rows.folds(self.folds), per.codes, arm.codes), shape)
            size = count.size
            count += np.bincount(places, minlength=size).reshape(shape)
            total += np.bincount(places, rows.reward, size).reshape(shape)
        return ArmCounts(reader.rows, list(names[0]), list(names[1]), count, total)

    def from_counts(self, counts: ArmCounts) -> Self:
        """Return a copy of the model fitted to counts: mean rewards of each fold from the other folds."""
        model = copy.copy(self)
        count, total = counts.plays, counts.total
        other_plays, other_sums = count.sum(axis=0) - count, total.sum(axis=0) - total
        overall = (other_sums.sum(axis=(1, 2)) / np.maximum(other_plays.sum(axis=(1, 2)), 1.0))[:, None, None]
        model._means = (other_sums + self.strength * overall) / (other_plays + self.strength)
        model.is_fitted = True
        # Positions are codes themselves, and need no names.
        model.names = ({self.per: counts.values} if self.per in NAMES else {}) | {"arm": counts.arms}
        return model

    def begin(self, all_arms: bool = False) -> Self:
        """Return the model itself: evaluating rows does not change it."""
        return self

    def evaluate_shown(self, rows: LoggedRows) -> Floats:
        """Return the mean reward of each row's shown arm, without the rewards of the row's own fold."""
        means, places = self._locate_means(rows)
        return means[rows.folds(self.folds), places, rows.arm.codes]

    def evaluate_arms(self, rows: LoggedRows) -> Floats:
        """Return the mean reward of each arm for each row, shape (rows, arms), without the row's own fold."""
        means, places = self._locate_means(rows)
        return means[rows.folds(self.folds), places, : len(rows.arm.names)]

    def _locate_means(self, rows: LoggedRows) -> tuple[Floats, Ints]:
        """Return the array of means (folds, values, arms), and the index of each row's value in it.

        Raises InvalidValue if the model is not fitted, or was fitted to another log.
        """
        if self._means is None:
            raise InvalidValue("model", "ArmMeans()", "fit it to a log first")
        per = rows.get_column(self.per)
        if self.names["arm"][: len(rows.arm.names)] != rows.arm.names:
            raise InvalidValue("model", "ArmMeans()", "fit it to the log that is evaluated")
        return self._means, per.codes


def _grow_array(array: Floats, shape: tuple[int, ...]) -> Floats:
    """Return an array padded with zeros at its ends to ``shape``."""
    if array.shape == shape:
        return array
    padded = np.zeros(shape)
    padded[tuple(map(slice, array.shape))] = array
    return padded


# ---- Expected rewards from a user's fitted model, and the greedy policy that follows them


class Predicted(RewardFunction):
    """A reward model whose expected rewards a user's fitted models predict from the logged contexts.

    A model has ``predict_proba(X)``, of which the last column is used, or ``predict(X)``, as in
    scikit-learn, LightGBM and XGBoost. Fit it to other rows than the evaluated ones.

    Parameters
    ----------
    models : object, or dict of str to object
        From each arm to its model of the contexts, shape (rows, dim); or one model of all arms,
        whose inputs are contexts followed by the one-hot encoded arm: shape (rows, dim + arms).
    arms : sequence of str, optional
        For one model, the arms in the order of these columns.
    features : callable, optional
        For one model, a function from contexts and an arm's name to the model's inputs, in place of the
        one-hot encoding.

    Raises
    ------
    InvalidValue
        If a model cannot predict, or arms are missing.

    Examples
    --------
    >>> class Half:
    ...     def predict(self, features):
    ...         return 0.5 + 0 * features[:, 0]
    >>> Predicted({"film": Half(), "holiday": Half()}).arms
    ('film', 'holiday')
    """

    def __init__(
        self,
        models: Any,
        arms: Sequence[str] | None = None,
        features: Callable[[Floats, str], Any] | None = None,
    ) -> None:
        """Validate models and arms; raise InvalidValue if a model cannot predict or an arm has none."""
        separate = isinstance(models, Mapping)
        if arms is None and not separate:
            raise InvalidValue("arms", arms, "name the arms of which the model tells")
        names = checks.arms("arms", list(models) if arms is None else list(arms))
        assert isinstance(names, tuple)
        if separate and set(models) != set(names):
            raise InvalidValue("models", sorted(models), f"give a model for each of {names}")
        self.models = {name: models[name] if separate else models for name in names}
        for name, model in self.models.items():
            if not (hasattr(model, "predict") or hasattr(model, "predict_proba")):
                raise InvalidValue(f"models[{name}]", model, "give an object with predict")
        self._features = features
        self._separate = separate
        super().__init__(self._predict_arms, names, ("context",))

    def _predict_arms(self, batch: Any) -> Floats:
        """Return the predicted rewards of all arms, shape (rows, arms)."""
        context_rows = contexts(batch)
        return np.stack([self._predict_arm(context_rows, place) for place in range(len(self.arms))], axis=1)

    def _predict_arm(self, context_rows: Floats, place: int) -> Floats:
        """Return the predicted reward of the arm with the index ``place`` in ``arms``, for each context.

        Of ``predict_proba`` it is the last column.
        """
        name = self.arms[place]
        model, inputs = self.models[name], context_rows
        if self._features is not None:
            inputs = self._features(context_rows, name)
        elif not self._separate:
            one_hot = np.zeros((len(context_rows), len(self.arms)))
            one_hot[:, place] = 1.0
            inputs = np.hstack([context_rows, one_hot])
        if hasattr(model, "predict_proba"):
            return np.asarray(model.predict_proba(inputs), np.float64)[:, -1]
        return np.asarray(model.predict(inputs), np.float64)


class Greedy(Probabilities):
    """A target policy that is ε-greedy on predicted rewards: with probability ε, any arm on offer.

    Parameters
    ----------
    rewards : Predicted or RewardFunction
    epsilon : float, default 0.1
        In [0, 1].
    label : str, default "greedy"

    Raises
    ------
    InvalidValue
        If a parameter is wrong.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit.evaluate import RewardFunction, off_policy
    >>> rewards = RewardFunction(lambda batch: np.tile([0.2, 0.4], (len(batch), 1)), ["a", "b"])
    >>> log = {"key": ["q"] * 4, "arm": list("abab"), "propensity": [0.5] * 4, "reward": [0, 1] * 2}
    >>> result = off_policy(Greedy(rewards), log | {"context": [[0.0]] * 4}, arms=["a", "b"])
    >>> round(result.estimates[0].value, 3)
    0.95
    """

    def __init__(self, rewards: RewardFunction, epsilon: float = 0.1, label: str = "greedy") -> None:
        """Validate the parameters; raise InvalidValue if ``rewards`` is no reward function."""
        if not isinstance(rewards, RewardFunction):
            raise InvalidValue("rewards", rewards, "give such as Predicted(model, arms=[...])")
        self.epsilon = checks.number("epsilon", epsilon, 0.0, 1.0)
        self.rewards = rewards
        super().__init__(rewards.function, rewards.arms, tuple(rewards.columns), label)

    def _evaluate(self, rows: LoggedRows) -> Floats:
        """Return the probability of each arm in each row, shape (rows, arms).

        It is 1 − ε for the arm on offer with the highest predicted reward, and ε in equal parts for all on
        offer. Records the arms of positive probability as reachable. Raises UnfitLog if a row offers no arm
        with a predicted reward.
        """
        expected = self.rewards.begin().evaluate_arms(rows)
        arm_codes = {name: code for code, name in enumerate(rows.arm.names)}
        on_offer = offer_matrix(rows)[rows.offer]
        # Arms without a prediction have 0 in ``expected``, with which they must not win.
        predicted = np.zeros(len(rows.arm.names), np.bool_)
        predicted[[arm_codes[name] for name in self.arms if name in arm_codes]] = True
        scores = np.where(on_offer & predicted, expected, -np.inf)
        unknown = ~np.isfinite(scores).any(axis=1)
        if unknown.any():
            where = rows.locate_row(int(np.argmax(unknown)))
            raise UnfitLog(f"{where}: arms: of none on offer a reward is predicted: {self.arms}")
        best = np.zeros(scores.shape)
        best[np.arange(len(scores)), scores.argmax(axis=1)] = 1.0
        share = on_offer / on_offer.sum(axis=1, keepdims=True)
        probabilities = (1 - self.epsilon) * best + self.epsilon * share
        codes = np.flatnonzero(probabilities.any(axis=0)).tolist()
        self._reachable.update(rows.arm.names[code] for code in codes)
        return np.asarray(probabilities, np.float64)


# ---- Propensities that a log does not have, estimated from how often it shows each arm

FOLDS = 5
STRENGTH = 10.0
ASSUMES = (
    "propensities are estimated from what the log shows, not logged: right only if nothing else "
    "than was looked at (by default key and position) moved both what was shown and what was "
    "clicked, such as who asked, when, or what the policy had learned meanwhile; where the log "
    "always shows the same, it tells nothing"
)
ASSUMES_GIVEN = "propensities are not logged, but as given ({}): right only if arms were drawn so"


class Frequencies(ModelOfLog):
    """Propensities estimated as the frequency of each arm for a key at a position, cross-fitted.

    Rows are assigned to folds in turn, and the propensity of a row is estimated from the other folds. A key's
    frequencies are shrunk towards all keys' values: (count + 10 × frequency at the position)/(rows + 10),
    then normalised over the arms on offer.

    References
    ----------
    Hirano, Imbens, Ridder (2003), "Efficient estimation of average treatment effects using the
    estimated propensity score"; Chernozhukov et al. (2018), "Double/debiased machine learning for
    treatment and structural parameters" (cross-fitting).
    """

    columns = frozenset({"placement", "key", "position"})

    def __init__(self) -> None:
        """Create a model that is not fitted yet."""
        self._shares: Floats | None = None
        self._cells: dict[str, int] = {}

    def count_log(self, log: Any, reader: RowReader) -> ArmCounts:
        """Read a log and return how often it shows each arm per fold and per placement, key and position."""
        cells: dict[str, int] = {}
        batch_counts: list[tuple[Ints, ...]] = []
        for rows in reader.read(log):
            codes = np.array([cells.setdefault(cell, len(cells)) for cell in _name_cells(rows)])
            fold = rows.folds(FOLDS)
            triples = np.stack([fold, codes, rows.arm.codes])
            distinct, count = np.unique(triples, axis=1, return_counts=True)
            batch_counts.append((*distinct, count))
        plays = np.zeros((FOLDS, len(cells), len(reader.arms)))
        for fold, codes, arms, count in batch_counts:
            np.add.at(plays, (fold, codes, arms), count)
        return ArmCounts(reader.rows, list(cells), list(reader.arms), plays, np.zeros_like(plays))

    def from_counts(self, counts: ArmCounts) -> Self:
        """Return a copy of the model with the frequencies of arms for each fold, fitted to the other folds.

        Frequencies of a cell are shrunk toward the frequencies at its position.
        """
        model = copy.copy(self)
        other_plays = counts.plays.sum(axis=0) - counts.plays
        # The position is the last part of a cell's name, see _name_cells.
        place = np.array([cell.rpartition("\0")[2] for cell in counts.values])
        at_place = np.zeros_like(other_plays)
        for position in np.unique(place):
            # One more of each arm: none gets frequency 0.
            total = other_plays[:, place == position].sum(axis=1, keepdims=True) + 1.0
            at_place[:, place == position] = total / total.sum(axis=2, keepdims=True)
        rows = other_plays.sum(axis=2, keepdims=True)
        model._shares = (other_plays + STRENGTH * at_place) / (rows + STRENGTH)
        model._cells = {cell: code for code, cell in enumerate(counts.values)}
        model.is_fitted, model.names = True, {"arm": counts.arms}
        return model

    def evaluate_shown(self, rows: LoggedRows) -> Floats:
        """Return the estimated propensity of each row's arm at its position, without the row's own fold."""
        assert self._shares is not None, "it is fitted before the first row"
        codes = np.array([self._cells[cell] for cell in _name_cells(rows)])
        fold = rows.folds(FOLDS)
        shares = self._shares[fold, codes, : len(rows.arm.names)] * offer_matrix(rows)[rows.offer]
        return np.asarray(shares[np.arange(len(codes)), rows.arm.codes] / shares.sum(axis=1))


def _name_cells(rows: LoggedRows) -> list[str]:
    """Return placement, key and position of each row as one text.

    All positions are 0 if a row of the batch has none.
    """
    has_column = "position" in rows.chunk.batch.schema.names
    has_positions = has_column and not rows.chunk.batch["position"].null_count
    place = positions(rows) if has_positions else np.zeros(len(rows.reward), np.int64)
    placement, key = rows.names["placement"], rows.names["key"]
    triples = np.stack([placement.codes, key.codes, place])
    distinct, cell_index = np.unique(triples, axis=1, return_inverse=True)
    triples = distinct.T.tolist()
    # Names, as codes differ between parts of a log.
    cells = [f"{placement.names[code]}\0{key.names[key_code]}\0{at}" for code, key_code, at in triples]
    return [cells[i] for i in cell_index.ravel().tolist()]
