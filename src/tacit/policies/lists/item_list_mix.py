"""The default for lists of items that are known by embeddings, and a user: a mixture, for any readers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from tacit.core.arrays import Floats, Generator, byte_count
from tacit.core.dispatch import kernel
from tacit.core.part import param, whole
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.features.context_models import Design
from tacit.policies.features.context_weights import WIDTH
from tacit.policies.features.embedding_items import beliefs_by, candidate_moments, list_layout
from tacit.policies.features.embedding_mixture import EmbeddingPolicy
from tacit.policies.features.gaussian import logistic
from tacit.policies.lists.item_readers import ItemListState, own_place, own_weights, rate_of, take_list
from tacit.policies.lists.one_draw import LinePolicy, Lines


@kernel
def lines_of(state: ItemListState, model: int, impression: Impression, layout: Design) -> Lines:
    """Return mean and deviation of the score of each item on offer; none deviates before the first list."""
    arms, tally = impression.arms, state.relevance.tally
    moments = candidate_moments(state.relevance, model, impression, layout, rate_of(state, model))
    slots, width = 0, WIDTH if tally.rounds[model] > 0.0 else 0.0
    for i in range(len(arms)):
        slots = max(slots, arms[i] + 1)
    mean, spread, rank = np.zeros(slots), np.zeros(slots), np.full(slots, -1, np.int64)
    weights = own_weights(impression.relevance.shape[1])
    for i in range(len(arms)):
        own = own_place(impression.relevance[i], weights)
        mean[arms[i]] = moments[i, 0] + np.float64(state.own[model, 0, own])
        spread[arms[i]] = width * np.sqrt(moments[i, 1] + np.float64(state.own[model, 1, own]))
        rank[arms[i]] = i
    return Lines(mean, spread, rank)


@dataclass(frozen=True)
class ItemListMix(LinePolicy, EmbeddingPolicy):
    """List the best of many items that are known by embeddings, for readers who do not see everything.

    Needs no tuning: search results or recommendations for the user who is asking, if one is said; items of
    some numbers or of hundreds; readers who look at all, at less the lower it is, or until they find
    something; tastes that change.

    What is believed of a click on an item that is *seen* is that of :class:`EmbeddingMixture`, and goes by
    the order offered besides, as a first guess: offer the best first. The first list is that order. One
    hypothesis is that nothing but that order says anything. Each item may besides be better or worse
    than its numbers say, as one finds out that shows it again.

    Which items are seen is believed under fourteen hypotheses, weighed by how well each predicted the
    clicks: position k is seen with probability k^−a (a of 0, ½, 1, 1½, 2½); or readers go from the top, on
    with probability 1 or 0.85 after a skip and with 0, 0.3, 0.6 or 0.9 after a click; or as clicks at each
    position, below a click at each other one, have said. An item that was not clicked counts as far as it was
    seen.

    The list is that of the highest mean + 0.7·z·deviation of their logits, one z = \\|N(0, 1)\\| a list. So
    the probability of a list, of its beginning, and of an item at a position are exact.

    Parameters
    ----------
    relevance_dim : int
        Numbers of an item; at least 1.
    context_dim : int, default 0
        Numbers of a user. It follows from ``context``, where that is given.
    positions : int, default 3
        Length of the list; in [1, 100].
    epsilon : float, default 0
        Probability in [0, 1] that an item drawn uniformly is put at a position drawn uniformly;
        above 0 for logs that shall answer for every other policy.
    context : dict of str to str or list of str, optional
        What each field of a context holds, where contexts are dicts. See :mod:`tacit.policies.context`.
    per_key : bool, default False
        Whether each key has a model of its own. Otherwise all keys share it, and the key says nothing.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Notes
    -----
    Means, scales and leading directions are those of what the first 32 lists showed, 64 where users are
    known, or as many as have 640 items; all is learned anew after 1, 2, 4, … of them. What is learned is
    a fold of the lists; feedback may come late. Of own effects there are 4,096, found by an item's
    numbers; of a larger catalogue some items share one.

    References
    ----------
    Ours. Readers: Chuklin, Markov, de Rijke (2015), "Click models for web search", as in
    :class:`ListMix`; models of items: see :class:`EmbeddingMixture`.

    Examples
    --------
    >>> import numpy as np
    >>> import tacit
    >>> rng = np.random.default_rng(1)
    >>> items, taste = rng.standard_normal((500, 20)), rng.standard_normal(20)
    >>> learner = tacit.Learner(tacit.ItemListMix(relevance_dim=20, positions=3), seed=1)
    >>> for _ in range(300):
    ...     offer = items[rng.integers(500, size=15)]
    ...     decision = learner.choose("home", relevance=offer)
    ...     liked = offer[decision.slots] @ taste > 3.0
    ...     _ = learner.learn(decision, liked * (rng.random(3) < [1.0, 0.6, 0.4]))
    >>> offer = items[:15]
    >>> shown = learner.choose("home", relevance=offer).slots
    >>> bool((offer @ taste)[shown].mean() > np.sort(offer @ taste)[-5])
    True
    """

    State = ItemListState
    about: ClassVar[About] = About(
        source="ours; the models of EmbeddingMixture and the readers of ListMix",
        regret="none proved",
        assumes="that the logit of a click on an item that is seen is about linear in its numbers and their "
        "products with a user's, and readers near one of fourteen hypotheses",
        fails="lists are ordered by what clicks their places won or lost them",
        otherwise="ListMix for a few items that stay; CascadeEC where features say who looks on; "
        "ListMix(epsilon=0.1) as here for logs that shall answer for all",
        suits="lists of items known by embeddings, however they are read: no knobs, exact propensities",
        weak="readers who may stop at a click, 1.13 ± 0.05 times the regret of logistic Thompson sampling "
        "that knows how often each position is clicked",
    )

    arms: Any = field(default=None, init=False, repr=False, compare=False)
    positions: Annotated[int, whole(1, 100)] = 3

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(relevance_dim=dim, positions=min(arms, 3), epsilon=0.1)

    @param
    def layout(self) -> Design:
        """The features of an item for a user."""
        return list_layout(self.relevance_dim, self.context_dim)

    @property
    def model_bytes(self) -> int:
        """What the model takes, without the first lists."""
        state = self.init(1)
        return (
            byte_count(state) - byte_count(state.relevance) - state.order.nbytes + state.relevance.model_bytes
        )

    def init(self, lanes: int) -> ItemListState:
        return ItemListState.blank(lanes if self.per_key else 1, self.layout, self.positions)

    def reward_draws(
        self, state: ItemListState, lane: int, impression: Impression, rng: Generator, draws: int
    ) -> Floats:
        """Return draws of the candidates' chances of a click, if they are seen."""
        model, count, found = lane if self.per_key else 0, len(impression.arms), []
        base, weights = rate_of(state, model), own_weights(impression.relevance.shape[1])
        kept = [own_place(item, weights) for item in impression.relevance]
        offset, variance = state.own[model][:, kept].astype(float)
        for h, share in enumerate(rng.multinomial(draws, state.relevance.tally.weights[model])):
            logits, variances = beliefs_by(state.relevance, model, impression, self.layout, h, base).T
            noise = rng.standard_normal((int(share), count))
            found.append(logistic(logits + offset + np.sqrt(variances + variance) * noise))
        return np.concatenate(found)

    @staticmethod
    def arrange(params: ItemListMix, state: ItemListState, lane: int, impression: Impression) -> Lines:
        return lines_of(state, lane if params.per_key else 0, impression, params.layout)

    @staticmethod
    def clear(params: ItemListMix, state: ItemListState, lane: int) -> None:
        pass

    @staticmethod
    def learn(params: ItemListMix, state: ItemListState, lane: int, outcome: Outcome) -> None:
        take_list(state, lane if params.per_key else 0, outcome, params.layout)
