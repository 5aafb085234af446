"""Expected rewards that a model of one's own predicts, and the policy that follows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.errors import InvalidValue, UnfitLog
from tacit.evaluate.rows import LoggedRows
from tacit.evaluate.targets.base import offered
from tacit.evaluate.targets.functions import Probabilities, contexts
from tacit.evaluate.weighting.rewards import RewardFunction


class Predicted(RewardFunction):
    """Expected rewards that fitted models predict from the logged contexts.

    A model has ``predict_proba(X)``, whose last column is taken, or ``predict(X)``: those of
    scikit-learn, LightGBM, XGBoost and more, or anything of one's own. It should be fitted to
    other rows than those that are evaluated.

    Parameters
    ----------
    models : object, or dict of str to object
        From each arm to its model of the contexts, shape (rows, dim); or one model of all arms,
        of contexts followed by one column for each arm, 1 for its own: shape (rows, dim + arms).
    arms : sequence of str, optional
        For one model, the arms in the order of these columns.
    features : callable, optional
        From contexts and an arm's name to what the one model takes, in place of that.

    Raises
    ------
    InvalidValue
        If a model predicts nothing, or arms are missing.

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
        super().__init__(self._predicted, names, ("context",))

    def _predicted(self, batch: Any) -> Floats:
        given = contexts(batch)
        return np.stack([self._of(given, place) for place in range(len(self.arms))], axis=1)

    def _of(self, given: Floats, place: int) -> Floats:
        name = self.arms[place]
        model, rows = self.models[name], given
        if self._features is not None:
            rows = self._features(given, name)
        elif not self._separate:
            own = np.zeros((len(given), len(self.arms)))
            own[:, place] = 1.0
            rows = np.hstack([given, own])
        if hasattr(model, "predict_proba"):
            return np.asarray(model.predict_proba(rows), np.float64)[:, -1]
        return np.asarray(model.predict(rows), np.float64)


class Greedy(Probabilities):
    """Show the arm of the highest predicted reward, and with probability ε any on offer.

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
        if not isinstance(rewards, RewardFunction):
            raise InvalidValue("rewards", rewards, "give such as Predicted(model, arms=[...])")
        self.epsilon = checks.number("epsilon", epsilon, 0.0, 1.0)
        self.rewards = rewards
        super().__init__(rewards.function, rewards.arms, tuple(rewards.columns), label)

    def _evaluated(self, rows: LoggedRows) -> Floats:
        expected = self.rewards.begin().every(rows)
        known = {name: code for code, name in enumerate(rows.arm.names)}
        on_offer = offered(rows)[rows.offer]
        told = np.zeros(len(rows.arm.names), np.bool_)
        told[[known[name] for name in self.arms if name in known]] = True
        scores = np.where(on_offer & told, expected, -np.inf)
        unknown = ~np.isfinite(scores).any(axis=1)
        if unknown.any():
            where = rows.where(int(np.argmax(unknown)))
            raise UnfitLog(f"{where}: arms: of none on offer a reward is predicted: {self.arms}")
        best = np.zeros(scores.shape)
        best[np.arange(len(scores)), scores.argmax(axis=1)] = 1.0
        share = on_offer / on_offer.sum(axis=1, keepdims=True)
        found = (1 - self.epsilon) * best + self.epsilon * share
        self._reached.update(rows.arm.names[code] for code in np.flatnonzero(found.any(axis=0)).tolist())
        return np.asarray(found, np.float64)
