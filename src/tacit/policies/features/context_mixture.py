"""ContextMixture: arms known by name, chosen by context; and its beliefs in many contexts."""

# 1. Choice: features of a context, mean and deviation of each arm's logit, warnings by signals.
# 2. Learning, and when the scaling of contexts is fitted again.
# 3. ``ContextMixture``: the policy, which calls ``context_inputs``, ``context_models``, ``context_weights``.
# 4. Beliefs in many contexts at once, for reports.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.classifiers.concepts import is_unusual
from tacit.core import dispatch
from tacit.core.arrays import Floats, Generator, Ints, byte_count
from tacit.core.dispatch import kernel
from tacit.core.part import Flag, int_range, one_word, param, set_field
from tacit.policies.base import ADDED_LATER, About, Impression, Outcome
from tacit.policies.context import (
    Schema,
    find_missing_flags,
    normalize_schema,
    resolve_context_dim,
    resolve_signals_dim,
)
from tacit.policies.features import context_inputs, context_models, context_weights, key_levels
from tacit.policies.features.click_model import MAX_DIM, choose_coupled, find_place
from tacit.policies.features.context_models import Base, Models, Workspace
from tacit.policies.features.context_weights import ContextState, MixtureTally
from tacit.policies.features.gaussian import logistic
from tacit.policies.index import PriorsPolicy, envelope_share, read_prior_counts

MARGIN = 0.1
"""Distance from the usual range at which a signal is a warning, as a share of the range's width."""

# ---- Choice


@kernel
def read_context(state: ContextState, model: int, context: Floats, flags: Ints | None) -> None:
    """Fill the workspace from a context: its scaled numbers, their features, and the features' squares and
    products.

    Missing numbers, by ``flags``, count as average.
    """
    work, scaling = state.room, state.measure
    context_inputs.scale_context(scaling, model, context, work.scaled[0])
    if flags is not None:
        context_inputs.zero_missing(flags, context, work.scaled[0])
    context_inputs.fill_features(scaling, model, work.scaled[0], work.features[0])
    dense = context_models.context_layout(len(work.scaled[0])).dense
    context_models.fill_products(work.features[0], dense, work.squares[0], work.products[0])


@kernel
def mix_belief(state: Any, model: int, arm: int, base: Base) -> tuple[float, float]:
    """Return the mean and variance of an arm's logit in the workspace's context, averaged over hypotheses by
    weight.

    Hypotheses of negligible weight are left out; ``base`` is the prior of a new arm's constant.
    """
    models, work, weights = state.models, state.room, state.tally.weights[model]
    least, total = context_weights.weight_in_use(weights)
    mean, square = 0.0, 0.0
    for h in range(context_models.HYPOTHESES):
        if weights[h] >= least:
            logit, variance = context_models.compute_belief(models, work, model, arm, h, base)
            mean += weights[h] / total * logit
            square += weights[h] / total * (variance + logit * logit)
    return mean, square - mean * mean


@kernel
def fill_lines(params: Any, state: Any, lane: int, impression: Impression) -> None:
    """Fill ``state.room.lines`` with the mean and deviation of each offered arm's logit, over all hypotheses.

    Deviations are multiplied by 0.7. With levels by key, the arm's level is added.
    """
    model = lane if params.per_key else 0
    read_context(state, model, impression.context, params.flags)
    base = context_weights.compute_base(state.tally, model)
    for i in range(len(impression.arms)):
        mean, variance = mix_belief(state, model, impression.arms[i], base)
        if params.by_key:
            level, spread = key_levels.mix_level(state.levels, lane, impression.arms[i])
            mean, variance = mean + level, variance + spread
        state.room.lines[0, i, 0] = mean
        state.room.lines[0, i, 1] = context_weights.WIDTH * np.sqrt(max(variance, 0.0))


@kernel
def check_signals(state: ContextState, model: int, context: Floats, margin: float | None) -> None:
    """If a signal of the context is unusual, restart the recent hypothesis; add the signals to their usual
    ranges.

    Do nothing if ``margin`` is None. Signals are the last numbers of the context.
    """
    read = state.room.raw.shape[1]
    if margin is not None and is_unusual(state.tally.announced.usual, margin, context[read:]):
        context_weights.apply_warning(state, model, context_models.context_layout(read))


# ---- Learning


@kernel
def expected_click(state: ContextState, model: int, arm: int) -> float:
    """Return the probability of a click on an arm in the workspace's context, averaged over hypotheses by
    weight.
    """
    base, mean = context_weights.compute_base(state.tally, model), 0.0
    for h in range(context_models.HYPOTHESES):
        logit, variance = context_models.compute_belief(state.models, state.room, model, arm, h, base)
        mean += state.tally.weights[model, h] * context_weights.click_probability(logit, variance)
    return mean


@kernel
def refit_scaling(state: ContextState, model: int, events: int, prior: Any) -> None:
    """Fit the scaling to the first ``events`` contexts in the buffer, and reset the model to its prior.

    The caller must learn these events again.
    """
    work, buffer, scaling = state.room, state.kept, state.measure
    context_inputs.fit_scales(scaling, buffer, model, events)
    if scaling.directions.shape[1] > 0:
        context_inputs.find_directions(
            scaling, buffer, model, events, work.raw[0], work.scaled[0], work.turned[0]
        )
    context_weights.forget_all(state, model, context_models.context_layout(len(work.raw[0])), prior)


@dataclass(frozen=True)
class ContextMixture(PriorsPolicy):
    """Play the best arm for a context, among arms that are known by name.

    Needs no tuning: a context of few numbers or of hundreds, of any scale, with much, little or no
    effect; rare or frequent clicks; users who change.

    Each arm has logistic regressions on the context, under four hypotheses: three by the effect of
    contexts, from very small to large, and one that restarts every 200 events, or a fifth of all, and
    replaces the others if they have become wrong. The weight of a hypothesis is how well it predicted
    the rewards. Numbers are scaled to a common size and, if there are more than 22, rotated to the 22
    directions of largest variance, which have full covariances; the residual has variances only. The
    scaling is fitted to the first 128 events: after 8, 16, 32, 64 and 128 events, and they are learned
    again; only a number that was constant until then is scaled when it first changes. Of several keys, each
    may like an arm more or less than the average: its level is learned, under three hypotheses about how
    much keys differ (:mod:`~tacit.policies.features.key_levels`). Rewards that
    vary less than clicks count as more than one click, as in :class:`DriftMixture`.

    For a decision each arm's logit has a mean and a deviation over all hypotheses, and the arm with
    the highest mean + 0.7·z·deviation is played, with one z = \\|N(0, 1)\\| for all; ties are broken
    uniformly. The propensity is exact, and the propensities of all arms add up to 1. Some arms have
    propensity 0: for logs that can evaluate all arms, put an ``ExplorationFloor`` over it.

    Parameters
    ----------
    arms : int or sequence of str
        Number of arms, or their names.
    context_dim : int, optional
        Length of a context; at least 1. It follows from ``context``, if that is given.
    context : dict of str to str or list of str, optional
        Schema of contexts that are dicts: the type of each field, ``"number"``, ``"boolean"``, a list of
        values, ``"category"`` or ``"signal"``. See :mod:`tacit.policies.context`.
    signals_dim : int, default 0
        How many of the last numbers are signals: they do not describe the user, but may announce a change
        of tastes. It follows from ``context``, if that is given. An unusual signal, as in
        :class:`DriftMixture`, restarts the recent hypothesis, with the weight that it gained after earlier
        such warnings; before 128 events warnings are ignored.
    per_key : bool, default False
        Whether each key has its own models, which take :attr:`key_bytes` for each key. Otherwise all keys
        share them, and a key has levels of arms alone.
    priors : dict of arm to (float, float), optional
        Prior successes and failures of arms: ``{"film": (4, 96)}`` is 4 clicks in 100 impressions of
        the average user. At most 500 count.
    spread : "arm" or "all", default "arm"
        Whose rewards determine how many clicks a graded reward counts as: those of its arm, or those of all
        arms, as in version 0.3.
    key_levels : bool, default True
        Whether keys that share a model have levels of arms; in version 0.3 they had none.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Notes
    -----
    The models of ten arms and 64 numbers take 65 kB (:meth:`model_bytes`), the buffer of first events
    another 35 kB. The state is a fold of the events; feedback may come late. Sums are of single
    precision, in a fixed order. A key takes 16 bytes an arm.

    References
    ----------
    Ours. Weights with a share for all: Herbster, Warmuth (1998), "Tracking the best expert".
    Directions: power iteration on blocks, as in Halko, Martinsson, Tropp (2011), "Finding structure
    with randomness", from a fixed start.

    Examples
    --------
    >>> import numpy as np
    >>> import tacit
    >>> learner = tacit.Learner(tacit.ContextMixture(["film", "holiday"], context_dim=2), seed=1)
    >>> rng = np.random.default_rng(2)
    >>> for _ in range(300):
    ...     age, visits = rng.uniform(18, 80), rng.poisson(3)
    ...     decision = learner.choose("all", context=[age, visits])
    ...     _ = learner.learn(decision, float((decision.arm == "holiday") == (age > 50)))
    >>> learner.choose("all", context=[75, 2]).arm, learner.choose("all", context=[20, 2]).arm
    ('holiday', 'film')
    """

    class State(NamedTuple):
        models: Models
        tally: MixtureTally
        measure: context_inputs.Scaling
        kept: context_inputs.EventBuffer
        room: Workspace
        levels: key_levels.KeyLevels

    earlier: ClassVar[Mapping[str, Any]] = MappingProxyType({"spread": "all", "key_levels": False})
    kernels: ClassVar[tuple[Any, ...]] = dispatch.POLICY_KERNELS + dispatch.COUPLED_KERNELS
    about: ClassVar[About] = About(
        source="ours; weights of hypotheses with a share for all by Herbster, Warmuth (1998)",
        regret="none proved",
        assumes="that the logit of a click is about linear in the context, for each arm",
        fails="plays what is best on such a line; curves and products of numbers are not seen",
        otherwise="give curves and products as numbers of the context; ExplorationFloor over it where logs "
        "shall answer for all arms",
        suits="a user's context and arms known by their names: no knobs, exact propensities",
        weak="clicks of 2 % or a dozen telling numbers, 1.2 times the regret of LinUCB, tuned",
    )

    context_dim: Annotated[int, int_range(1, MAX_DIM)] = 0  # 0 is refused: the length must be given
    context: Annotated[Any, normalize_schema] = field(default=(), kw_only=True, metadata=ADDED_LATER)
    signals_dim: Annotated[int, int_range(0, MAX_DIM)] = field(default=0, kw_only=True, metadata=ADDED_LATER)
    per_key: Flag = field(default=False, kw_only=True)
    priors: Any = field(default=(), kw_only=True, metadata=ADDED_LATER)
    spread: Annotated[str, one_word("arm", "all")] = field(default="arm", kw_only=True, metadata=ADDED_LATER)
    key_levels: Flag = field(default=True, kw_only=True, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        """Validate the hyperparameters; normalize the schema, and set ``context_dim`` and ``signals_dim``
        from it.
        """
        set_field(self, "context", normalize_schema("context", self.context))
        set_field(self, "context_dim", resolve_context_dim(self.context, self.context_dim))
        super().__post_init__()
        set_field(self, "signals_dim", resolve_signals_dim(self.context, self.context_dim, self.signals_dim))

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        """Schema of contexts that are dicts; empty if contexts are numbers."""
        return self.context  # type: ignore[no-any-return]

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance with ``arms`` arms and a context of ``dim`` numbers."""
        return cls(arms, dim)

    @param
    def by_arm(self) -> bool:
        """Whether each arm has its own estimate of the spread of its rewards."""
        return self.spread == "arm"

    @param
    def by_key(self) -> bool:
        """Whether arms have a level for each key; never if each key has a model of its own."""
        return self.key_levels and not self.per_key

    @property
    def observes(self) -> bool:
        """True if contexts have signals, whose unusual values announce a change."""
        return self.signal_margin is not None

    @param
    def signal_margin(self) -> float | None:
        """Distance from the usual range at which a signal is unusual; None without signals, so that loops
        omit the check.
        """
        return MARGIN if self.signals_dim else None

    @param
    def prior(self) -> Floats | None:
        """For each arm, what its prior adds to the precision of its constant and to precision × mean; None
        without priors.
        """
        return context_models.prior_observations(read_prior_counts(self)) if self.priors else None

    @param
    def flags(self) -> Ints | None:
        """For each number of a context the index of the flag that says that it is missing, or −1; None
        without a schema.
        """
        flags = find_missing_flags(self.context)
        return None if flags is None else flags[: self.read_dim]

    @property
    def read_dim(self) -> int:
        """Length of a context without its signals, which come last."""
        return self.context_dim - self.signals_dim

    @property
    def reads(self) -> str:
        """Inputs in words: context, signals, and whether models are shared or how many bytes each takes."""
        signals = f", of which {self.signals_dim} may announce a shift" if self.signals_dim else ""
        shared = "one model for all keys" + ", levels of arms by key" * self.by_key
        if self.per_key:
            shared = f"a model for each key, which takes {self.key_bytes:,} bytes"
        return f"{super().reads}{signals}; {shared}"

    @property
    def model_bytes(self) -> int:
        """Bytes of the models of all arms, without the buffer of first events and the workspace."""
        state = self.init(1)
        return sum(byte_count(part) for part in (state.models, state.tally, state.measure))

    def init(self, lanes: int) -> State:
        """Return the initial state: one model for all keys, or one for each lane with ``per_key``."""
        models, arms, dim = lanes if self.per_key else 1, self.arm_count, self.read_dim
        layout = context_models.context_layout(dim)
        return self.State(
            Models.prior(models, arms, layout, self.prior),
            MixtureTally.empty(models, self.signals_dim, arms),
            context_inputs.Scaling.empty(models, dim, layout.leading if layout.residual else 0),
            context_inputs.EventBuffer.empty(models, dim),
            Workspace.empty(arms, layout),
            key_levels.KeyLevels.initial(lanes if self.by_key else 0, arms),
        )

    def beliefs_in(self, state: ContextState, lane: int, contexts: Floats) -> ContextBeliefs:
        """Return the beliefs about each arm in each of many contexts, for reports; the state does not change.

        Parameters
        ----------
        contexts : array of float64, shape (contexts, d)
        """
        model = lane if self.per_key else 0
        weights, base = state.tally.weights[model], context_weights.compute_base(state.tally, model)
        read = contexts[:, : self.read_dim]
        beliefs = compute_beliefs(state.models, state.measure, weights, base, model, read, self.flags)
        mean, variance = self._read_levels(state, lane, np.arange(self.arm_count))[..., None]
        return beliefs._replace(logits=beliefs.logits + mean, variances=beliefs.variances + variance)

    def _read_levels(self, state: Any, lane: int, arms: Ints) -> Floats:
        """Return the mean and variance of arms' levels for a key, of shape (2, arms); zeros if there are no
        levels.
        """
        if not self.by_key:
            return np.zeros((2, len(arms)))
        return np.array([key_levels.mix_level(state.levels, lane, arm) for arm in arms]).T

    def reward_draws(
        self, state: ContextState, lane: int, impression: Impression, rng: Generator, draws: int
    ) -> Floats:
        """Return posterior draws of each arm's click probability in a context, of shape (draws, arms on
        offer).
        """
        model = lane if self.per_key else 0
        base, weights = context_weights.compute_base(state.tally, model), state.tally.weights[model]
        read_context(state, model, impression.context, self.flags)
        samples, levels = [], self._read_levels(state, lane, impression.arms)
        for h, share in enumerate(rng.multinomial(draws, weights)):
            beliefs = [
                context_models.compute_belief(state.models, state.room, model, arm, h, base)
                for arm in impression.arms
            ]
            logits, variances = np.array(beliefs).T + levels
            shape = int(share), len(logits)
            samples.append(logistic(logits + np.sqrt(variances) * rng.standard_normal(shape)))
        context_models.clear_workspace(state.room)
        return np.concatenate(samples)

    @staticmethod
    def observe(params: ContextMixture, state: ContextState, lane: int, impression: Impression) -> None:
        """Restart the recent hypothesis if a signal is unusual; do nothing without signals."""
        check_signals(state, lane if params.per_key else 0, impression.context, params.signal_margin)

    @staticmethod
    def choose(
        params: ContextMixture, state: ContextState, lane: int, impression: Impression, rng: Generator
    ) -> int:
        """Return the arm with the highest mean + 0.7·z·deviation of its logit, with one random z for all
        arms.
        """
        fill_lines(params, state, lane, impression)
        arm = choose_coupled(params, state, lane, impression, rng)
        context_models.clear_workspace(state.room)
        return arm

    @staticmethod
    def decide_and_weigh(
        params: ContextMixture,
        state: ContextState,
        lane: int,
        impression: Impression,
        rng: Generator,
        action: Ints,
    ) -> float:
        """Fill ``action`` with the arm that ``choose`` would return; return its propensity."""
        fill_lines(params, state, lane, impression)
        action[0] = choose_coupled(params, state, lane, impression, rng)
        place = find_place(impression.arms, action[0])
        share = envelope_share(state.room.lines[0], len(impression.arms), place)
        context_models.clear_workspace(state.room)
        return share

    @staticmethod
    def line(
        params: ContextMixture, state: ContextState, lane: int, impression: Impression, place: int
    ) -> Any:
        """Return the mean and deviation of the arm at a place on offer, which :func:`fill_lines` stored."""
        return state.room.lines[0, place, 0], state.room.lines[0, place, 1]

    @staticmethod
    def propensity(
        params: ContextMixture, state: ContextState, lane: int, impression: Impression, arm: int
    ) -> float:
        """Return the probability that ``choose`` returns an arm."""
        fill_lines(params, state, lane, impression)
        place = find_place(impression.arms, arm)
        share = envelope_share(state.room.lines[0], len(impression.arms), place)
        context_models.clear_workspace(state.room)
        return share

    @staticmethod
    def learn(params: ContextMixture, state: Any, lane: int, outcome: Outcome) -> None:
        """Update the shown arm under each hypothesis, and the hypotheses' weights, with the reward.

        The first 128 events are also stored; when a fit of the scaling is due, all stored events are learned
        again. Where keys have levels, the arm's level for the key is updated, too.
        """
        model, context, work = lane if params.per_key else 0, outcome.impression.context, state.room
        events = int(state.tally.rounds[model])
        first = events
        if events < context_inputs.BUFFER_SIZE:
            context_inputs.store_event(state.kept, model, events, context, outcome.shown, outcome.reward)
            if context_inputs.is_due(events + 1):
                refit_scaling(state, model, events + 1, params.prior)
                first = 0
        else:
            context_inputs.notice_changes(state.measure, model, context)
        for event in range(first, events + 1):
            arm, reward = outcome.shown, outcome.reward
            if events < context_inputs.BUFFER_SIZE:
                arm, reward = state.kept.arms[model, event], state.kept.rewards[model, event]
                context_inputs.load_context(state.kept, model, event, work.raw[0])
            else:
                for j in range(work.raw.shape[1]):
                    work.raw[0, j] = context[j]
            read_context(state, model, work.raw[0], params.flags)
            times = 1.0
            if not context_weights.is_binary(state.tally, model, reward):
                mean = expected_click(state, model, arm)
                times = context_weights.equivalent_clicks(
                    state.tally, model, arm, mean, reward, params.by_arm
                )
            if params.by_key and event == events:
                base = context_weights.compute_base(state.tally, model)
                logit, variance = mix_belief(state, model, arm, base)
                key_levels.learn_level(state.levels, lane, arm, logit, variance, reward, times)
            context_weights.learn_event(
                state, model, arm, reward, times, context_models.context_layout(work.raw.shape[1])
            )
        context_models.clear_workspace(work)


# ---- Beliefs in many contexts at once
#
# The same numbers as the compiled kernels of :mod:`~tacit.policies.features.context_models`, in NumPy.


class ContextBeliefs(NamedTuple):
    """Beliefs about each arm in each of many contexts.

    Attributes
    ----------
    weights : array of float64, shape (4,)
        Weights of the hypotheses, of sum 1.
    logits, variances : array of float64, shape (contexts, arms, 4)
        Mean and variance of a click's log-odds, under each hypothesis.
    slopes : array of float64, shape (arms, d)
        Slope of the log-odds in each scaled number of a context: the mean over hypotheses.
    scaled : array of float64, shape (contexts, d)
        The scaled numbers of the contexts, 0 for the average.
    """

    weights: Floats
    logits: Floats
    variances: Floats
    slopes: Floats
    scaled: Floats

    @property
    def no_effect_weight(self) -> float:
        """Weight of the hypothesis that contexts have hardly any effect."""
        return float(self.weights[context_models.NO_EFFECT])

    def contributions(self) -> Floats:
        """Return how much each number of a context adds to each arm's log-odds, compared with an average
        context.

        Returns
        -------
        array of float64, shape (contexts, arms, d)
        """
        added: Floats = self.scaled[:, None, :] * self.slopes
        return added


def compute_beliefs(
    models: Models,
    scaling: context_inputs.Scaling,
    weights: Floats,
    base: Base,
    model: int,
    contexts: Floats,
    flags: Ints | None,
) -> ContextBeliefs:
    """Return the beliefs of one model in many contexts, for reports; the state does not change.

    Parameters
    ----------
    models : Models
    scaling : Scaling
    weights : array of float64, shape (4,)
        Weights of the hypotheses.
    base : Base
        Mean and variance of the log-odds of a new arm.
    model : int
        Index of the model.
    contexts : array of float64, shape (contexts, d)
    flags : array of int64, shape (d,), or None
        For each column the index of its missing flag, or -1.
    """
    off = (contexts - scaling.mean[model]) * scaling.factor[model]
    scaled = np.clip(off, -context_inputs.FURTHEST, context_inputs.FURTHEST)
    if flags is not None:
        scaled[(flags >= 0) & (contexts[:, flags] != 0.0)] = 0.0
    # Features as the kernels have them: the constant, coordinates along the directions, the residual.
    directions = scaling.directions[model].astype(float)
    dense = 1 + (len(directions) or contexts.shape[1])
    along = scaled @ directions.T
    parts = [along, scaled - along @ directions] if len(directions) else [scaled]
    x = np.column_stack([np.ones(len(scaled)), *parts])
    means = models.mean[model].astype(float)
    logits = np.einsum("nf,khf->nkh", x, means)
    variances = _variances(models, model, x, dense)
    first = _first_constants(models, model, base)
    unmet = ~models.met[model]
    logits += np.where(unmet, first[0] - means[..., 0], 0.0)
    variances += np.where(unmet, first[1] - _constant_variances(models, model), 0.0)
    return ContextBeliefs(
        weights.copy(), logits, np.maximum(variances, 0.0), _slopes(weights, means, directions), scaled
    )


def _variances(models: Models, model: int, x: Floats, dense: int) -> Floats:
    """Return the variance of each arm's logit under each hypothesis, of shape (contexts, arms, 4).

    ``x`` has a row of features for each context; the first ``dense`` features have full covariances.
    """
    # The lower triangle column by column is the upper one row by row.
    column, row = np.triu_indices(dense)
    products = x[:, column] * x[:, row] * np.where(column == row, 1.0, 2.0)
    products = np.column_stack([products, x[:, dense:] ** 2])
    narrow = models.narrow[model].astype(float)
    variances = np.empty((len(x), *models.met[model].shape))
    variances[..., : context_models.FULL] = np.einsum(
        "np,khp->nkh", products, models.spread[model].astype(float), optimize=True
    )
    variances[..., context_models.NO_EFFECT] = x[:, : narrow.shape[1]] ** 2 @ narrow.T
    return variances


def _constant_variances(models: Models, model: int) -> Floats:
    """Return the variance of each arm's constant under each hypothesis, of shape (arms, 4).

    For an arm before its first event, it is the precision of its prior instead.
    """
    narrow = models.narrow[model, :, :1]
    return np.column_stack([models.spread[model, :, :, 0], narrow]).astype(float)


def _first_constants(models: Models, model: int, base: Base) -> Any:
    """Return mean and variance of the constants of arms before their first event, each of shape (arms, 4)."""
    precision, pull = _constant_variances(models, model), models.mean[model, :, :, 0]
    variance = 1.0 / (1.0 / base.variance + precision)
    return variance * (base.logit / base.variance + pull), variance


def _slopes(weights: Floats, means: Floats, directions: Floats) -> Floats:
    """Return the slope of each arm's logit in each scaled number of a context, of shape (arms, d).

    It is the mean over hypotheses, by ``weights``. Slopes along leading ``directions`` are turned back to
    numbers.
    """
    mixed: Floats = np.tensordot(weights, means, (0, 1))[:, 1:]
    if not len(directions):
        return mixed
    along, residual = mixed[:, : len(directions)], mixed[:, len(directions) :]
    return residual + (along - residual @ directions.T) @ directions
