"""EmbeddingMixture, the default for items known by embeddings, with or without features of the user."""

# 1. ``EmbeddingPolicy``: the inputs of policies over embeddings.
# 2. ``EmbeddingMixture``: each candidate's score is a line in one draw z; the highest is shown, and its
#    probability is that of an interval of z.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from tacit.core import dispatch
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.core.part import Flag, int_range, one_word, param, set_field
from tacit.errors import InvalidValue
from tacit.policies.actions import FeaturePolicy
from tacit.policies.base import ADDED_LATER, About, Impression, Outcome
from tacit.policies.context import (
    Schema,
    count_signals,
    find_missing_flags,
    normalize_schema,
    resolve_context_dim,
)
from tacit.policies.features import context_weights, embedding_items
from tacit.policies.features.click_model import MAX_DIM, choose_coupled, find_place
from tacit.policies.features.context_inputs import (
    BUFFER_SIZE,
    is_due,
    load_context,
    notice_changes,
    store_event,
)
from tacit.policies.features.context_models import Design
from tacit.policies.features.embedding_items import EmbeddingState
from tacit.policies.features.gaussian import copy_row, logistic
from tacit.policies.index import envelope_share


@dataclass(frozen=True)
class EmbeddingPolicy(FeaturePolicy, abstract=True):
    """Base of the policies that know items, and optionally users, by embeddings."""

    relevance_dim: Annotated[int, int_range(1, MAX_DIM)]
    context_dim: Annotated[int, int_range(0, MAX_DIM)] = 0
    context: Annotated[Any, normalize_schema] = field(default=(), kw_only=True, metadata=ADDED_LATER)
    per_key: Flag = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        """Validate the hyperparameters; normalize the schema, and set ``context_dim`` from it.

        Raises InvalidValue if the schema has signals.
        """
        set_field(self, "context", normalize_schema("context", self.context))
        set_field(self, "context_dim", resolve_context_dim(self.context, self.context_dim))
        super().__post_init__()
        if count_signals(self.context):
            remedy = "it heeds no signals: let each be a number, or leave it out"
            raise InvalidValue("context", self.context, remedy)

    @property
    def schema(self) -> Schema:  # type: ignore[override]
        """Schema of contexts that are dicts; empty if contexts are numbers."""
        return self.context  # type: ignore[no-any-return]

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance for items of ``dim`` numbers; ``arms`` is ignored."""
        return cls(dim)


@kernel
def read_lines(params: Any, state: EmbeddingState, lane: int, impression: Impression) -> Floats:
    """Return the mean and deviation of each candidate's logit in a lane; shape (candidates, 2)."""
    return embedding_items.candidate_lines(state, lane if params.per_key else 0, impression, params.layout)


@dataclass(frozen=True)
class EmbeddingMixture(EmbeddingPolicy):
    """Play the best of many items that are known by embeddings, for a user if user features are given.

    Needs no tuning: some dozen numbers of an item or many hundreds, in few directions or in all; rare or
    frequent clicks; users who change; features without information.

    A logistic regression on an item's numbers, and on their products with the user's, under four
    hypotheses: that features matter little, much, or not at all, and one that restarts every 200 events,
    or a fifth of all, and replaces the others if they have become wrong. The weight of a hypothesis is how
    well it predicted the rewards. Numbers are scaled to a common size and rotated to the directions of
    largest variance, 24 of items (32 if users have less than five numbers) and 6 of users. For the
    products of these directions the model has full covariances; for the residual of an item, up to 1,024 of
    its products with directions of users, and up to 32 more numbers of a user, it has variances only.
    If user and item have the same length, their inner product is a feature of its own. Scales and
    directions come from the first 128 events, as in :class:`ContextMixture`: before the eighth event
    all items are equal.

    For a decision each item's logit has a mean and a deviation over all hypotheses, and the item with
    the highest mean + 0.7·z·deviation is shown, with one z = \\|N(0, 1)\\| for all; ties are broken
    uniformly. The propensity is exact, and the propensities of all items add up to 1. Many items have
    propensity 0: for logs that can evaluate all items, put an ``ExplorationFloor`` over it.

    Parameters
    ----------
    relevance_dim : int
        Length of an item's embedding; at least 1. It is meant for more than 32; for fewer, or if some items
        go unseen, use :class:`ClickMixture`.
    context_dim : int, default 0
        Length of a user's embedding. It follows from ``context``, if that is given.
    context : dict of str to str or list of str, optional
        Schema of contexts that are dicts. See :mod:`tacit.policies.context`.
    per_key : bool, default False
        Whether each key has its own model. Otherwise all keys share one, and the key has no effect.
    spread : "item" or "all", default "item"
        Whose rewards determine how many clicks a graded reward counts as: those of its item (of 256 hashes of
        items, so some share one), or those of all items, as in version 0.3.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Notes
    -----
    With 384 numbers the model takes 68 kB (:meth:`model_bytes`), 296 kB with a user of 32 numbers,
    and the buffer of first events 0.2 MB. The time of a decision is about linear in the number of items on
    offer: 10,000 of 64 numbers take two milliseconds. The state is a fold of the events; feedback may
    come late. Sums are of single precision, in a fixed order.

    References
    ----------
    Ours. Products of user and item features: Chu, Park (2009), "Personalized recommendation on
    dynamic content using predictive bilinear models". Weights and directions: see
    :class:`ContextMixture`.

    Examples
    --------
    >>> import numpy as np
    >>> import tacit
    >>> rng = np.random.default_rng(1)
    >>> items, taste = rng.standard_normal((1000, 40)), rng.standard_normal(40)
    >>> learner = tacit.Learner(tacit.EmbeddingMixture(relevance_dim=40), seed=1)
    >>> for _ in range(600):
    ...     offer = items[rng.integers(1000, size=20)]
    ...     decision = learner.choose("home", relevance=offer)
    ...     _ = learner.learn(decision, float(offer[decision.arm] @ taste > 5.0))
    >>> offer = items[:20]
    >>> bool((offer @ taste)[learner.choose("home", relevance=offer).arm] > 5.0)
    True
    """

    State = EmbeddingState
    earlier: ClassVar[Mapping[str, Any]] = MappingProxyType({"spread": "all"})
    kernels: ClassVar[tuple[Any, ...]] = dispatch.POLICY_KERNELS + dispatch.COUPLED_KERNELS
    about: ClassVar[About] = About(
        source="ours; products of users and items by Chu, Park (2009), weights of hypotheses with a share "
        "for all by Herbster, Warmuth (1998)",
        regret="none proved",
        assumes="that a click's logit is about linear in an item's numbers and their products with a user's",
        fails="what items are beyond their numbers is not seen; of users only what lies in few directions",
        otherwise="ClickMixture where items go unseen or have few numbers; of large catalogues offer what a "
        "search finds; ExplorationFloor over it where logs shall answer for all",
        suits="items known by embeddings, for a user or for all: no knobs, exact propensities",
        weak="clusters in 50 directions, 1.3 times the regret of a tuned logistic UCB that knew all scales",
    )

    spread: Annotated[str, one_word("item", "all")] = field(
        default="item", kw_only=True, metadata=ADDED_LATER
    )

    @param
    def by_item(self) -> bool:
        """Whether each item has its own estimate of the spread of its rewards."""
        return self.spread == "item"

    @param
    def layout(self) -> Design:
        """How the numbers of an item and a user become features: numbers, products of both, and a
        constant.
        """
        return embedding_items.embedding_layout(
            self.relevance_dim, self.context_dim, find_missing_flags(self.context)
        )

    @property
    def model_bytes(self) -> int:
        """Bytes of the model, without the buffer of first events."""
        return self.init(1).model_bytes

    def init(self, lanes: int) -> EmbeddingState:
        """Return the initial state of one model for all keys, or, with ``per_key``, of one model for each
        lane.
        """
        models, spreads = lanes if self.per_key else 1, embedding_items.SPREADS if self.by_item else 0
        return EmbeddingState.empty(models, self.layout, BUFFER_SIZE, BUFFER_SIZE, spreads)

    def reward_draws(
        self, state: EmbeddingState, lane: int, impression: Impression, rng: Generator, draws: int
    ) -> Floats:
        """Return posterior draws of each candidate's click probability, of shape (draws, candidates)."""
        model, count, samples = lane if self.per_key else 0, len(impression.arms), []
        base = context_weights.compute_base(state.tally, model)
        for h, share in enumerate(rng.multinomial(draws, state.tally.weights[model])):
            logits, variances = embedding_items.compute_beliefs(
                state, model, impression, self.layout, h, base
            ).T
            samples.append(logistic(logits + np.sqrt(variances) * rng.standard_normal((int(share), count))))
        return np.concatenate(samples)

    @staticmethod
    def choose(
        params: EmbeddingMixture, state: EmbeddingState, lane: int, impression: Impression, rng: Generator
    ) -> int:
        """Return the candidate with the highest mean + 0.7·z·deviation of its logit, with one random z for
        all.
        """
        lines = read_lines(params, state, lane, impression)
        return choose_coupled(params, lines, lane, impression, rng)

    @staticmethod
    def decide_and_weigh(
        params: EmbeddingMixture,
        state: EmbeddingState,
        lane: int,
        impression: Impression,
        rng: Generator,
        action: Ints,
    ) -> float:
        """Fill ``action`` with the candidate that ``choose`` would return; return its propensity."""
        lines = read_lines(params, state, lane, impression)
        action[0] = choose_coupled(params, lines, lane, impression, rng)
        return envelope_share(lines, len(lines), find_place(impression.arms, action[0]))

    @staticmethod
    def line(params: EmbeddingMixture, state: Floats, lane: int, impression: Impression, place: int) -> Any:
        """Return the mean and deviation of the candidate at a place on offer; ``state`` has those of all
        candidates.
        """
        return state[place, 0], state[place, 1]

    @staticmethod
    def propensity(
        params: EmbeddingMixture, state: EmbeddingState, lane: int, impression: Impression, arm: int
    ) -> float:
        """Return the probability that ``choose`` returns a candidate."""
        lines = read_lines(params, state, lane, impression)
        return envelope_share(lines, len(lines), find_place(impression.arms, arm))

    @staticmethod
    def learn(params: EmbeddingMixture, state: EmbeddingState, lane: int, outcome: Outcome) -> None:
        """Update all hypotheses about clicks, and their weights, with the reward of the shown item.

        The first 128 events are also stored; when a fit of the scaling is due, the model is reset, and all
        stored events are learned again.
        """
        model, layout, tally = lane if params.per_key else 0, params.layout, state.tally
        impression, work = outcome.impression, embedding_items.make_workspace(params.layout)
        item, user, reward = work.raw[0], np.zeros(layout.user), outcome.reward
        copy_row(impression.relevance[find_place(impression.arms, outcome.shown)], item)
        copy_row(impression.context, user)
        hashed = embedding_items.find_spread(item) if params.by_item else 0
        learning = context_weights.ContextState(state.models, tally, state.items, state.kept, work)
        events = int(tally.rounds[model])
        first = events
        if events < BUFFER_SIZE:
            store_event(state.kept, model, events, item, hashed, reward)
            store_event(state.kept_users, model, events, user, 0, reward)
            if is_due(events + 1):
                embedding_items.refit_scaling(state, model, events + 1, 1)
                context_weights.forget_all(learning, model, layout, None)
                first = 0
        else:
            notice_changes(state.items, model, item)
            notice_changes(state.users, model, user)
        for event in range(first, events + 1):
            if events < BUFFER_SIZE:
                hashed, reward = state.kept.arms[model, event], state.kept.rewards[model, event]
                load_context(state.kept, model, event, item)
                load_context(state.kept_users, model, event, user)
            embedding_items.read_event(state, model, item, user, 0.0, layout, work)
            times = 1.0
            if not context_weights.is_binary(tally, model, reward):
                mean = embedding_items.expected_click(state, model, layout, work)
                times = context_weights.equivalent_clicks(tally, model, hashed, mean, reward, params.by_item)
            context_weights.learn_event(learning, model, 0, reward, times, layout)
