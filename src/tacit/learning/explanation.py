"""Estimates of a learner, and explanations of its choice in a context.

First ``Explanation``; then the base class of ``Learner`` with restarts, posteriors, probabilities of arms,
estimates, explanations and coefficients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.core import checks, dispatch
from tacit.core.arrays import Floats
from tacit.core.checks import ONLY_KEY
from tacit.core.text import Tabulated
from tacit.errors import InvalidValue, UnknownName, with_suggestions
from tacit.learning.batch import Batch
from tacit.learning.columns import ColumnLearner, add_candidates, count_plays
from tacit.learning.decisions import Arm, ArmT_co, Key
from tacit.learning.estimates import (
    DRAW_COUNT,
    Coefficients,
    Estimates,
    compute_coefficients,
    compute_estimates,
    estimate_from_draws,
)
from tacit.plots import COLOURS, EstimateRow, Plot, draw_estimates
from tacit.policies.base import Impression, can_weigh_places, read_unit
from tacit.policies.context import list_column_fields, list_columns

MAX_FIELDS_NAMED = 3
"""Number of fields that a summary names for each arm; ``records`` has all columns."""


@dataclass(frozen=True, repr=False)
class Explanation(Tabulated, Plot):
    """An explanation of the choice in a context: estimates of arms, and contributions of columns.

    Attributes
    ----------
    estimates : Estimates
        Of the arms on offer: mean reward in this context, its interval, the probability of being the best.
    chances : array of float64 or None
        The probability of choosing each arm now.
    columns, fields : tuple of str
        Names of the context's columns, and the field of each; without a schema each column is a field.
    added : array of float64, shape (arms, columns)
        The contribution of each column to the log-odds of a click, relative to an average context.
    slopes : array of float64, shape (arms, columns)
        The contribution of a column at its typical size, about its standard deviation over all contexts.
    says_nothing : float
        The weight, in [0, 1], of the hypothesis that contexts have hardly any effect.
    """

    estimates: Estimates
    chances: Floats | None
    columns: tuple[str, ...]
    fields: tuple[str, ...]
    added: Floats
    slopes: Floats
    says_nothing: float

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per arm: its estimate, the probability ``shown``, and each column's
        contribution.
        """
        chances = [None] * len(self.estimates) if self.chances is None else self.chances.tolist()
        return [
            {
                "arm": estimate.arm,
                "mean": estimate.mean,
                "low": estimate.low,
                "high": estimate.high,
                "shown": chance,
            }
            | dict(zip(self.columns, added.tolist(), strict=True))
            for estimate, chance, added in zip(self.estimates, chances, self.added, strict=True)
        ]

    @property
    def contributions_by_field(self) -> dict[str, Floats]:
        """A dict from each field to its contribution to the log-odds of each arm, summed over its columns."""
        return {
            field: self.added[:, [name == field for name in self.fields]].sum(axis=1)
            for field in dict.fromkeys(self.fields)
        }

    @property
    def matters(self) -> dict[str, float]:
        """A dict from each field to its effect on the differences between arms over all contexts, largest
        first.

        In log-odds of a click: the standard deviation due to the field's columns, as if uncorrelated.
        """
        apart = ((self.slopes - self.slopes.mean(axis=0)) ** 2).mean(axis=0)
        effects = {
            field: float(np.sqrt(apart[[name == field for name in self.fields]].sum()))
            for field in dict.fromkeys(self.fields)
        }
        return dict(sorted(effects.items(), key=lambda pair: -pair[1]))

    def _describe_contributions(self, arm: int) -> str:
        """Return a text with the three largest contributions of fields to an arm; "" if all are 0."""
        added = {field: float(values[arm]) for field, values in self.contributions_by_field.items()}
        most = sorted(added, key=lambda field: -abs(added[field]))[:MAX_FIELDS_NAMED]
        return ", ".join(f"{field} {added[field]:+.2f}" for field in most if added[field])

    def summary(self) -> str:
        """Return a text with the estimates, each arm's largest contributions, and the main fields."""
        lines = [str(self.estimates), ""]
        for arm, estimate in enumerate(self.estimates):
            described = self._describe_contributions(arm) or "nothing of the context says anything"
            lines.append(f"{estimate.arm}: {described}")
        lines.append("in log-odds of a click, beside an average context")
        matters = [f"{field} {size:.2f}" for field, size in self.matters.items() if size][:MAX_FIELDS_NAMED]
        if matters:
            lines.append(f"over all who ask, between arms: {', '.join(matters)}")
        lines.append(f"weight of the models that ignore the context: {100 * self.says_nothing:.1f} %")
        return "\n".join(lines)

    @property
    def height(self) -> float:
        """Height of a new figure, in inches, which grows with the number of arms."""
        return 1.4 + 0.5 * len(self.estimates)

    def draw(self, ax: Any) -> None:
        """Draw each arm's estimate and interval on ``ax``, labelled by its three largest contributions."""
        best = max(range(len(self.estimates)), key=lambda arm: self.estimates[arm].mean or 0.0)
        rungs = []
        for arm, estimate in reversed(list(enumerate(self.estimates))):
            look = {"color": COLOURS[0 if arm == best else -1]}
            bars = [((estimate.low, estimate.high), look | {"lw": 3, "solid_capstyle": "round"})]
            rungs.append(
                EstimateRow(
                    f"{estimate.arm}\n{self._describe_contributions(arm)}".strip(), estimate.mean, bars, look
                )
            )
        draw_estimates(ax, rungs, float(self.estimates[best].mean or 0.0))
        ax.tick_params(axis="y", labelsize=8)
        ax.set_xlim(0.0, max(1.05 * max(estimate.high for estimate in self.estimates), 1e-3))
        ax.grid(axis="x", alpha=0.25, linewidth=0.6)
        ax.set_xlabel(f"mean reward for who is asking, {self.estimates.confidence:.0%} interval")
        ax.set_title("what is believed of each arm, and what adds most to it in log-odds", size=9)


class EstimatingLearner(ColumnLearner[ArmT_co]):
    """Base class of :class:`~tacit.Learner` with its estimates, explanations and probabilities of arms."""

    def epoch(self, key: Key = ONLY_KEY) -> int:
        """Return how often the lane of ``key`` has restarted; raise UnknownName for an unknown key."""
        return int(dispatch.epoch(self.policy.params, self.state, self.lane(key)))

    def restarts(self, key: Key = ONLY_KEY) -> list[Any]:
        """Return the restarts of the lane of ``key``, oldest first; raise UnknownName if the policy records
        none.
        """
        restarts = require_method(self, "restarts", "keeps no record of them; see epoch()")
        return list(restarts(self.state, self.lane(key)))

    def posterior(self, key: Key = ONLY_KEY) -> Any:
        """Return the posterior of the parameters of ``key``, in the policy's own form.

        Raises UnknownName if the policy has none, or the key is unknown.
        """
        return require_method(self, "posterior", "has none")(self.state, self.lane(key))

    def diagnostics(self) -> Any:
        """Return the policy's record of violations of its assumptions, such as that of :class:`~tacit.BWC`.

        Includes the number of contexts outside of the classifier's universe. Raises UnknownName without a
        record.
        """
        diagnostics = require_method(self, "diagnostics", "keeps no record for them")
        return diagnostics(self.state)._replace(outside=self.impression_reader.watch.outside)

    def probabilities(
        self,
        key: Key = ONLY_KEY,
        context: npt.ArrayLike | None = None,
        arms: Sequence[Arm] | None = None,
        *,
        relevance: npt.ArrayLike | None = None,
        examination: npt.ArrayLike | None = None,
    ) -> Floats | None:
        """Return the probability of choosing each arm on offer now, without deciding; None if unknown.

        Takes the arguments of :meth:`choose`, for policies that show an arm or a list; for a list the array
        has the shape (arms on offer, positions). A new key gets a lane. They hold for one decision: for
        shares of traffic that stay for a batch, or a week, take each arm's ``chance_best`` of
        :meth:`estimates`. Raises InvalidValue for policies that show duels.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.EpsilonGreedy(arms=4, epsilon=0.2), seed=1)
        >>> learner.probabilities("tomato").tolist()
        [0.25, 0.25, 0.25, 0.25]
        """
        if self.policy.showing.compared:
            raise InvalidValue("policy", self.policy, "give one that shows an arm, or a list")
        batch = read_impression(self, key, as_rows(context, arms, relevance, examination))
        chances = np.empty(len(batch.arms))
        if self.policy.showing.listed:
            if not can_weigh_places(self.policy):
                return None
            chances = np.empty((len(chances), min(len(chances), self.policy.action_width)))
            self.loops.weigh_cells(self.loops.params, self.state, batch, chances)
            return chances
        self.loops.weigh(self.loops.params, self.state, batch, chances)
        return None if np.isnan(chances).any() else chances

    def estimates(
        self,
        key: Key = ONLY_KEY,
        context: npt.ArrayLike | None = None,
        arms: Sequence[Arm] | None = None,
        *,
        relevance: npt.ArrayLike | None = None,
        examination: npt.ArrayLike | None = None,
        confidence: float = 0.95,
    ) -> Estimates:
        """Return the estimate of each arm of a key: mean reward, interval, probability of being the best.

        Raises UnknownName if the key is unknown or the policy estimates no single arms.

        Parameters
        ----------
        key : str
        context, relevance, examination
            As for :meth:`choose`, for policies that read contexts or features of arms.
        arms : sequence of arms, optional
            The arms to compare; by default all, including retired ones.
        confidence : float, default 0.95
            Of the intervals, in (0, 1).

        Returns
        -------
        Estimates
            For each arm its plays, in total and not forgotten, its mean reward with an interval, and the
            probability of being the best on offer: by Beta posteriors, the policy's own or with a uniform
            prior; for features by 10,000 draws from the policy's posterior (least squares assume the largest
            possible noise, ½).

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.UCB1(arms=["film", "holiday"]), seed=1)
        >>> for reward in (0.0, 1.0):
        ...     _ = learner.learn(learner.choose("tomato"), reward)
        >>> print(learner.estimates("tomato"))
        arm      plays  count now   mean            95 %    best
        film         1          1  0.000  [0.000, 0.776]  16.7 %
        holiday      1          1  1.000  [0.224, 1.000]  83.3 %
        """
        by_context = self.policy.context_dim and hasattr(self.policy, "reward_draws")
        unit = read_unit(self.policy, self.state)
        if self.policy.feature_dims == (0, 0) and not by_context:
            if not self.policy.context_dim:
                # Raises if arguments were passed that the policy does not read.
                inputs = as_rows(context, None, relevance, examination)
                self.impression_reader.read(self.policy, self.offer, 1, inputs)
            otherwise = "believes nothing of single arms"
            if self.policy.showing.compared:
                otherwise += "; tacit duel gives a verdict on interleaved lists and clicks that were kept"
            beliefs = require_method(self, "beliefs", otherwise)(self.state, self.lane(key))
            plays, inner = count_plays(self, self.lane(key)), getattr(self.policy, "policy", self.policy)
            if not getattr(inner, "priors", ()):
                # The counts of some policies have a graded reward as several clicks.
                beliefs = beliefs._replace(plays=np.fmin(beliefs.plays, plays))
            return compute_estimates(beliefs, plays, self.offer, confidence, arms).in_range(unit)
        draws = require_method(
            self, "reward_draws", "says nothing of what arms with these features would earn"
        )
        inputs = add_candidates(self, 1, as_rows(context, arms, relevance, examination))
        # ``inputs`` are contexts, arms, relevance and examination of one impression; None if absent.
        if inputs[2] is None and inputs[3] is None and not by_context:
            remedy = "give the features of the arms to compare, or see coefficients(key)"
            raise InvalidValue("relevance", None, f"arms are known by their features: {remedy}")
        key = resolve_key(self, key)
        # Before the impression is read, which would give an unknown key a lane.
        lane, arms = self.lane(key), inputs[1] and inputs[1][0]
        _, slots, _, _, contexts, *blocks = read_impression(self, key, inputs)
        impression = Impression(slots, contexts[0], *blocks)
        rewards = draws(self.state, lane, impression, np.random.default_rng(0), DRAW_COUNT)
        names = self.offer.names or arms or range(len(slots))
        return estimate_from_draws([names[i] for i in slots.tolist()], rewards, confidence).in_range(unit)

    @with_suggestions
    def explain(
        self,
        context: npt.ArrayLike | None = None,
        key: Key = ONLY_KEY,
        arms: Sequence[Arm] | None = None,
        *,
        confidence: float = 0.95,
    ) -> Explanation:
        """Return an explanation of the choice in a context: estimates of arms, and contributions of the
        context's fields.

        Decides nothing. Raises UnknownName if the policy cannot tell contributions of a context.

        Parameters
        ----------
        context, key, arms, confidence
            As for :meth:`choose` and :meth:`estimates`.

        Examples
        --------
        >>> import tacit
        >>> policy = tacit.auto(arms=["film", "song"], context={"age": "number"})
        >>> learner = tacit.Learner(policy, seed=1)
        >>> for age in [20, 70, 30, 60, 25, 65] * 40:
        ...     decision = learner.choose(context={"age": age})
        ...     _ = learner.learn(decision, float((decision.arm == "song") == (age > 50)))
        >>> print(learner.explain({"age": 70}).summary().splitlines()[4])
        film: age -4.29
        """
        if isinstance(context, str):
            raise InvalidValue("context", context, f"give who is asking first: explain({{…}}, {context!r})")
        if not hasattr(self.policy, "beliefs_in"):
            remedy = "does not say what a context adds; tacit.auto(arms=…, context=…) does"
            raise UnknownName(f"explain: {type(self.policy).__name__} {remedy}")
        key = resolve_key(self, key)
        lane, batch = self.lane(key), read_impression(self, key, as_rows(context, arms, None, None))
        beliefs = self.policy.beliefs_in(self.state, lane, batch.contexts)
        numbered = tuple(f"context[{j}]" for j in range(self.policy.context_dim))
        # Signals are the last columns, and the policy has no slopes for them.
        read = beliefs.slopes.shape[1]
        return Explanation(
            self.estimates(key, context, arms, confidence=confidence),
            self.probabilities(key, context, arms),
            (list_columns(self.policy.schema) or numbered)[:read],
            (list_column_fields(self.policy.schema) or numbered)[:read],
            beliefs.contributions()[0, batch.arms],
            beliefs.slopes[batch.arms],
            beliefs.no_effect_weight,
        )

    def coefficients(self, key: Key = ONLY_KEY, *, confidence: float = 0.95) -> Coefficients:
        """Return the estimated coefficient of each feature with its interval; a mixture's by its heaviest
        component.

        Raises UnknownName if the policy reads no features.

        Examples
        --------
        >>> import tacit
        >>> learner = tacit.Learner(tacit.policies.LogisticTS(relevance_dim=1), seed=1)
        >>> for click in [0.0, 1.0] * 40:
        ...     _ = learner.learn(learner.choose("tomato", relevance=[[click]]), click)
        >>> print(learner.coefficients("tomato"))
        feature         mean              95 %  above 0
        relevance[0]   3.752    [2.816, 4.689]  100.0 %
        constant      -1.699  [-2.355, -1.044]    0.0 %
        """
        if self.policy.feature_dims == (0, 0):
            policy = type(self.policy).__name__
            raise UnknownName(f"coefficients: {policy} reads no features; see estimates(key)")
        posterior = require_method(self, "posterior", "has none")(self.state, self.lane(key))
        return compute_coefficients(self.policy, posterior, confidence)


def as_rows(context: Any, arms: Any, *features: Any) -> tuple[Any, Any, Any, Any]:
    """Return the arguments of one impression as a batch of one: each in a list of length 1; None stays
    None.
    """
    values = context, checks.as_list(arms), *features
    first, second, third, fourth = (None if value is None else [value] for value in values)
    return first, second, third, fourth


def require_method(learner: ColumnLearner[Any], name: str, otherwise: str) -> Any:
    """Return the policy's method ``name``; raise UnknownName, with the reason ``otherwise``, if it has
    none.
    """
    try:
        return getattr(learner.policy, name)
    except AttributeError:
        called = "estimates" if name in ("beliefs", "reward_draws") else name
        hint = f"; one of your own does by a method {name}" if called != name else ""
        raise UnknownName(f"{called}: {type(learner.policy).__name__} {otherwise}{hint}") from None


def read_impression(learner: ColumnLearner[Any], key: Key, inputs: tuple[Any, Any, Any, Any]) -> Batch:
    """Validate the arguments of one impression and return it as a batch of one; nothing is decided.

    A new key gets a lane.
    """
    name = checks.key(key)
    inputs = add_candidates(learner, 1, inputs)
    columns = learner.impression_reader.read(learner.policy, learner.offer, 1, inputs)
    return Batch(learner.lanes.admit([name]), *columns)


def resolve_key(learner: ColumnLearner[Any], key: Key) -> Key:
    """Return ``key`` or, if it is unknown, the first known key where that is right: if all keys share their
    state.

    The only known key is also returned if no key was passed.
    """
    known = len(learner.keys)
    stands_for_all = not any(learner.lanes.rows) or (known == 1 and key == ONLY_KEY)
    return learner.keys[0] if stands_for_all and known and key not in learner else key
