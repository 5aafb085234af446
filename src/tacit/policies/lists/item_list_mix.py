"""ItemListMix: lists of items that are described by embeddings, averaged over user models.

From top to bottom: the state, with user models and item effects; learning from one item of a list; learning
from a whole list; the policy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Generator
from tacit.core.dispatch import kernel
from tacit.core.part import int_range, param
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.context import find_missing_flags
from tacit.policies.features import context_models, context_weights, embedding_items
from tacit.policies.features.click_model import find_place
from tacit.policies.features.context_inputs import Singles, load_context, notice_changes, store_event
from tacit.policies.features.context_models import Base, Design, Observation
from tacit.policies.features.context_weights import ContextState
from tacit.policies.features.embedding_mixture import EmbeddingPolicy
from tacit.policies.features.gaussian import copy_row, logistic
from tacit.policies.lists.one_draw import LinePolicy, Lines
from tacit.policies.lists.user_models import (
    AFTER_CLICK,
    AFTER_SKIP,
    MIN_CHANCE,
    next_examination,
    position_effect,
)

POSITION_MODELS = 5
"""Number of position-based user models: position k, from 1, is seen with probability k^−a,
a ∈ {0, ½, 1, 1½, 2½}."""
LEARNED_MODEL = POSITION_MODELS + len(AFTER_SKIP) * len(AFTER_CLICK)
"""Index of the last user model: it estimates from clicks how often a position is seen, by the position and
the last click above it. The chain models are between."""
USER_MODELS = LEARNED_MODEL + 1
PRIOR_CLICKS = 5.0
"""Prior clicks of the last user model at each position, at the rate that the other models expect."""
LEAST_SEEN = 0.005
EFFECT_VARIANCE = 0.35**2
"""Prior variance of an item effect."""
RATE, MOST_RATE = 0.25, 0.9
"""Click rate of an item that is seen: before the first list, and at most."""
MAX_STORED_ITEMS, MIN_STORED_LISTS = 640, 8
"""At most this many items of the first lists are stored, but at least this many lists."""
VARIANCE_STEP = np.float32(1e-10)
"""Each list adds this to the variances, which rounding in single precision could make negative."""


def count_stored_lists(positions: int, users: int) -> int:
    """Return the number of first lists to store: 8 to 32, or to 64 with a user context.

    Stored lists are learned again whenever features are rescaled. The number aims at 640 stored items in all.
    """
    return int(min(64 if users else 32, max(MIN_STORED_LISTS, MAX_STORED_ITEMS // positions)))


class ItemListState(NamedTuple):
    """State of ItemListMix; ``models`` is 1 if all keys share one model.

    Attributes
    ----------
    relevance : EmbeddingState
        Model of clicks on items that are seen; its tally counts lists.
    readers : array of float64, shape (models, 14)
        Weights of the user models, of sum 1.
    cells : array of float64, shape (models, 2, positions, positions)
        Clicks and expected clicks, by the position of the last click above (0: none) and
        the position.
    totals : array of float64, shape (models, 2)
        Clicks on all items, and the expected number of items seen.
    own : array of float32, shape (models, 2, 4,096)
        Item effects, the part of an item's logit that its numbers do not explain: mean and variance.
    order : array of float32, shape (models, events)
        Score of each stored item by its place in the order offered.
    """

    relevance: embedding_items.EmbeddingState
    readers: Floats
    cells: Floats
    totals: Floats
    own: Singles
    order: Singles

    @classmethod
    def blank(cls, models: int, layout: Design, positions: int) -> ItemListState:
        """Return the state of ``models`` models before the first list: equal user models, no clicks."""
        lists = count_stored_lists(positions, layout.user)
        relevance = embedding_items.EmbeddingState.empty(models, layout, lists * positions, lists)
        effects = np.zeros((models, 2, embedding_items.ITEM_HASHES), np.float32)
        effects[:, 1] = EFFECT_VARIANCE
        order = np.zeros((models, lists * positions), np.float32)
        cells, totals = np.zeros((models, 2, positions, positions)), np.zeros((models, 2))
        return cls(
            relevance, np.full((models, USER_MODELS), 1.0 / USER_MODELS), cells, totals, effects, order
        )


@kernel
def click_base(state: ItemListState, model: int) -> Base:
    """Return the prior mean and variance of the constant of all items, in log-odds of a click once seen.

    The mean follows from the click rate of all items so far, 0.25 before the first list; the variance is 1.
    """
    clicks, looks = state.totals[model, 0], state.totals[model, 1]
    rate = min((clicks + 0.5) / (looks + 1.0), MOST_RATE) if looks > 0.0 else RATE
    return Base(np.log(rate) - np.log(1.0 - rate), 1.0)


# ---- Learning from one item of a list


@kernel
def reward_likelihood(chance: float, reward: float) -> float:
    """Return the likelihood of a reward in [0, 1] under a click probability, ``chance``.

    A fraction is weighed as a geometric mean of click and no click. The probability is kept away from 0 and
    1, so that no user model is ruled out.
    """
    chance = min(max(chance, MIN_CHANCE), 1.0 - MIN_CHANCE)
    if 0.0 < reward < 1.0:
        return np.exp(reward * np.log(chance) + (1.0 - reward) * np.log(1.0 - chance))  # type: ignore[no-any-return]
    return chance if reward > 0.0 else 1.0 - chance


@kernel
def fill_learned_examination(
    state: ItemListState, model: int, last: int, k: int, examination: Floats
) -> tuple[float, float]:
    """Write the probability that position ``k`` is seen, by the last user model, into
    ``examination[LEARNED_MODEL]``.

    That model learns it from clicks. The other entries must hold the probabilities by the other user models.
    Returns their mean, and the mean over all user models, both by weight. ``k`` counts from 0; ``last`` is 1
    + the position of the last click above, or 0.

    Returns
    -------
    expected, mean : float
        The mean probability by all other user models, and by all.
    """
    weights, total, expected = state.readers[model], 0.0, 0.0
    for r in range(LEARNED_MODEL):
        total += weights[r]
        expected += weights[r] * examination[r]
    expected /= total
    clicks, expected_clicks = state.cells[model, 0, last, k], state.cells[model, 1, last, k]
    learned = expected * (clicks + PRIOR_CLICKS) / (expected_clicks + PRIOR_CLICKS)
    examination[LEARNED_MODEL] = 1.0 if k == 0 else min(1.0, max(LEAST_SEEN, learned))
    return expected, min(1.0, total * expected + weights[LEARNED_MODEL] * examination[LEARNED_MODEL])


@kernel
def advance_examination(k: int, attraction: float, reward: float, examination: Floats) -> None:
    """Overwrite ``examination`` with each user model's probability, except the last one's, to see the
    position after ``k``.

    It depends on the item at position ``k``: its click probability if seen (``attraction``) and its reward.
    """
    for r in range(LEARNED_MODEL):
        if r < POSITION_MODELS:
            examination[r] = position_effect(r, k + 1)
        else:
            examination[r] = next_examination(r - POSITION_MODELS, examination[r], attraction, reward)


@kernel
def learn_item(
    state: ItemListState,
    learning: ContextState,
    model: int,
    layout: Design,
    effect_index: int,
    observation: Observation,
) -> float:
    """Learn from the feedback on one item; return the click probability, if seen, that was predicted before.

    Updates the models and weights of all hypotheses, and the item's effect. The item's features must be in
    the workspace of ``learning``.
    """
    weights, effects, base = learning.tally.weights[model], state.own[model], click_base(state, model)
    offset, variance = np.float64(effects[0, effect_index]), np.float64(effects[1, effect_index])
    mean, gain, precision = 0.0, 0.0, 0.0
    for h in range(context_models.HYPOTHESES):
        if not learning.models.met[model, 0, h]:
            context_models.start_arm(learning.models, model, 0, h, base)
        offset_observation = Observation(observation.reward, 1.0, observation.examination, offset)
        logit, s, c, g = context_models.learn_arm(
            learning.models, learning.room, model, 0, h, layout, offset_observation
        )
        chance = context_weights.click_probability(logit + offset, s + variance)
        # Averages over hypotheses: the click probability, and gain and precision of this observation.
        mean += weights[h] * chance
        if h != context_models.NO_EFFECT:
            gain += weights[h] * g
            precision += weights[h] * c
        weights[h] *= reward_likelihood(observation.examination * chance, observation.reward)
    context_weights.share_weights(weights, 0.0)
    # A Gaussian update of the item's effect by the averaged precision and gain.
    part = variance / (1.0 + variance * precision)
    effects[0, effect_index] += np.float32(part * gain)
    effects[1, effect_index] -= np.float32(part * variance * precision)
    return min(mean, 1.0 - MIN_CHANCE)


@kernel
def learn_position(
    state: ItemListState,
    learning: ContextState,
    model: int,
    layout: Design,
    effect_index: int,
    reward: float,
    last: int,
    k: int,
    examination: Floats,
    first: bool,
) -> None:
    """Learn the reward of the item at position ``k``: update item and user models, and prepare the next
    position.

    ``examination`` has each user model's probability that the position is seen, and is overwritten with those
    of the next. ``first`` is False if the item is learned again from a stored list: then total clicks are not
    counted again. ``last`` is 1 + the position of the last click above, or 0.
    """
    expected, mean_examination = fill_learned_examination(state, model, last, k, examination)
    chance = learn_item(
        state, learning, model, layout, effect_index, Observation(reward, 1.0, mean_examination, 0.0)
    )
    weights, cells = state.readers[model], state.cells[model]
    for r in range(USER_MODELS):
        # Each user model is weighed by its probability of the reward.
        weights[r] *= reward_likelihood(examination[r] * chance, reward)
    context_weights.share_weights(weights, 0.0)
    cells[0, last, k] += reward
    cells[1, last, k] += expected * chance
    if first:
        state.totals[model, 0] += reward
        state.totals[model, 1] += mean_examination
    advance_examination(k, chance, reward, examination)


# ---- Learning from a list


@kernel
def forget_lists(state: ItemListState, learning: ContextState, model: int, layout: Design) -> None:
    """Reset the models of items and users, the effects of items included, to the prior.

    Feature scales and the overall click rate stay.
    """
    context_weights.forget_all(learning, model, layout, None)
    state.readers[model, :] = 1.0 / USER_MODELS
    state.cells[model, :, :, :] = 0.0
    forget_effects(state, model)


@kernel
def forget_effects(state: ItemListState, model: int) -> None:
    """Reset the effects of all items of a model to their prior: mean 0 and the prior variance."""
    state.own[model, 0] = np.float32(0.0)
    state.own[model, 1] = np.float32(EFFECT_VARIANCE)


@kernel
def end_list(state: ItemListState, learning: ContextState, model: int, layout: Design) -> None:
    """Count a learned list, and give small weights and variances a little more, so that changes can be
    followed.

    Restarts the hypothesis of recent data if that is due; if it was far ahead, all item effects are reset.
    """
    tally = learning.tally
    tally.rounds[model] += 1.0
    tally.age[model] += 1.0
    share = 1.0 / (tally.rounds[model] + 1.0)
    context_weights.share_weights(tally.weights[model], share)
    context_weights.share_weights(state.readers[model], share)
    for h in range(context_models.FULL):
        k = 0
        for j in range(layout.dense):
            learning.models.spread[model, 0, h, k] += VARIANCE_STEP
            k += layout.dense - j
    if context_weights.begin_recent(learning, model, layout):
        forget_effects(state, model)


@kernel
def store_list(state: ItemListState, model: int, number: int, outcome: Outcome, user: Floats) -> None:
    """Store a list as number ``number``: the user context, and each item's numbers, place on offer and
    reward.
    """
    impression, action, relevance = outcome.impression, outcome.shown, state.relevance
    weights = embedding_items.hash_weights(impression.relevance.shape[1])
    store_event(relevance.kept_users, model, number, user, 0, 0.0)
    for k in range(len(action)):
        # An empty position stores the first arm on offer, with effect index −1: it is not learned from.
        event = number * len(action) + k
        place = find_place(impression.arms, action[k if action[k] >= 0 else 0])
        item = impression.relevance[place]
        effect_index = embedding_items.hash_item(item, weights) if action[k] >= 0 else -1
        store_event(relevance.kept, model, event, item, effect_index, outcome.reward[k])
        state.order[model, event] = np.float32(embedding_items.order_score(place, len(impression.arms)))


@kernel
def learn_list(
    state: ItemListState,
    learning: ContextState,
    model: int,
    layout: Design,
    outcome: Outcome,
    stored: int,
    first: bool,
) -> None:
    """Learn from all items of a list: of the stored list ``stored`` or, if that is negative, of ``outcome``.

    Updates item and user models and counts the list. ``first`` is False if the list is learned again.
    """
    impression, action = outcome.impression, outcome.shown
    relevance, workspace = state.relevance, learning.room
    item, user, examination, last = workspace.raw[0], np.zeros(layout.user), np.ones(USER_MODELS), 0
    weights = embedding_items.hash_weights(len(item))
    copy_row(impression.context, user)
    if stored >= 0:
        load_context(relevance.kept_users, model, stored, user)
    for k in range(len(action)):
        event, effect_index, reward, order = stored * len(action) + k, -1, outcome.reward[k], 0.0
        if stored >= 0:
            effect_index, reward = relevance.kept.arms[model, event], relevance.kept.rewards[model, event]
            order = np.float64(state.order[model, event])
            load_context(relevance.kept, model, event, item)
        elif action[k] >= 0:
            place = find_place(impression.arms, action[k])
            copy_row(impression.relevance[place], item)
            effect_index = embedding_items.hash_item(item, weights)
            order = embedding_items.order_score(place, len(impression.arms))
        if effect_index >= 0:
            embedding_items.read_event(relevance, model, item, user, order, layout, workspace)
            learn_position(state, learning, model, layout, effect_index, reward, last, k, examination, first)
            last = k + 1 if reward > 0.0 else last
    end_list(state, learning, model, layout)


@kernel
def learn_outcome(state: ItemListState, model: int, outcome: Outcome, layout: Design) -> None:
    """Learn from a list; store it if it is one of the first, else note how its features have changed.

    After 1, 2, 4, … stored lists, the features are rescaled, and all stored lists are learned again from the
    prior.
    """
    relevance, impression = state.relevance, outcome.impression
    workspace = embedding_items.make_workspace(layout)
    learning = ContextState(relevance.models, relevance.tally, relevance.items, relevance.kept, workspace)
    number = int(relevance.tally.rounds[model])
    first, stores = number, number < relevance.kept_users.rewards.shape[1]
    if stores:
        store_list(state, model, number, outcome, impression.context)
        if number & (number + 1) == 0:
            embedding_items.refit_scaling(relevance, model, number + 1, len(outcome.shown))
            forget_lists(state, learning, model, layout)
            first = 0
    else:
        for k in range(len(outcome.shown)):
            if outcome.shown[k] >= 0:
                place = find_place(impression.arms, outcome.shown[k])
                notice_changes(relevance.items, model, impression.relevance[place])
        notice_changes(relevance.users, model, impression.context)
    for index in range(first, number + 1):
        learn_list(state, learning, model, layout, outcome, index if stores else -1, index == number)


# ---- The policy


@kernel
def score_lines(state: ItemListState, model: int, impression: Impression, layout: Design) -> Lines:
    """Return the mean and deviation of the score, the log-odds of a click once seen, of each item on offer.

    They are the :class:`Lines` by which a list is drawn. ``rank`` is an item's place on offer, −1 for arm
    indices that are not on offer. Before the first list, deviations are 0.
    """
    arms, tally = impression.arms, state.relevance.tally
    moments = embedding_items.candidate_moments(
        state.relevance, model, impression, layout, click_base(state, model)
    )
    arm_count, width = 0, context_weights.WIDTH if tally.rounds[model] > 0.0 else 0.0
    for i in range(len(arms)):
        arm_count = max(arm_count, arms[i] + 1)
    mean, spread, rank = np.zeros(arm_count), np.zeros(arm_count), np.full(arm_count, -1, np.int64)
    weights = embedding_items.hash_weights(impression.relevance.shape[1])
    for i in range(len(arms)):
        effect_index = embedding_items.hash_item(impression.relevance[i], weights)
        mean[arms[i]] = moments[i, 0] + np.float64(state.own[model, 0, effect_index])
        spread[arms[i]] = width * np.sqrt(moments[i, 1] + np.float64(state.own[model, 1, effect_index]))
        rank[arms[i]] = i
    return Lines(mean, spread, rank)


@dataclass(frozen=True)
class ItemListMix(LinePolicy, EmbeddingPolicy):
    """List the best of many items that are described by embeddings, for users who do not see all positions.

    Needs no tuning. It suits search results or recommendations, personalized if a user context is given;
    items of a few numbers or of hundreds; users who look at all positions, at fewer lower ones, or until they
    find something; tastes that change.

    The model of a click on an item that is *seen* is that of :class:`EmbeddingMixture`, with the order
    offered as a first guess: offer the best first. The first list is that order. One hypothesis is that only
    that order matters. In addition, each item has an effect of its own, as it may be better or worse than its
    numbers say; it is learned when the item is shown repeatedly.

    Which items are seen is estimated under fourteen user models, weighed by how well each predicted the
    clicks: position k is seen with probability k^−a (a of 0, ½, 1, 1½, 2½); or users read from the top and
    continue with probability 1 or 0.85 after a skip and with 0, 0.3, 0.6 or 0.9 after a click; or the
    probability is estimated from clicks, for each position and position of the last click above. An item
    without a click counts with the probability that it was seen.

    The list has the items of the highest mean + 0.7·z·deviation of their logits, with one z = \\|N(0, 1)\\|
    per list. So the probabilities of a list, of its first items, and of an item at a position are exact.

    Parameters
    ----------
    relevance_dim : int
        Length of an item's embedding; at least 1.
    context_dim : int, default 0
        Length of a user's context. It follows from ``context`` if that is given.
    positions : int, default 3
        Length of the list; in [1, 100].
    epsilon : float, default 0
        Probability in [0, 1] that an item drawn uniformly is put at a position drawn uniformly;
        above 0 for logs on which every other policy can be evaluated.
    context : dict of str to str or list of str, optional
        Type of each field of a context, if contexts are dicts. See :mod:`tacit.policies.context`.
    per_key : bool, default False
        Whether each key has a separate model. Otherwise all keys share one, and the key has no effect.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Notes
    -----
    Means, scales and leading directions are computed from the items of the first lists: 32 lists, or 64 with
    a user context, but at most about 640 items. After 1, 2, 4, … of these lists they are computed again and
    all stored lists are learned again. The state is a fold over the lists in the order of learning; feedback
    may come late. There are 4,096 item effects, selected by a hash of an item's numbers; in a larger
    catalogue some items share one.

    References
    ----------
    tacit's own. User models: Chuklin, Markov, de Rijke (2015), "Click models for web search", as in
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
        "epsilon, here as in ListMix(epsilon=0.1), for logs that shall answer for all",
        suits="lists of items known by embeddings, however they are read: no knobs, exact propensities",
        weak="readers who may stop at a click, 1.13 ± 0.05 times the regret of logistic Thompson sampling "
        "that knows how often each position is clicked",
    )

    arms: Any = field(default=None, init=False, repr=False, compare=False)
    positions: Annotated[int, int_range(1, 100)] = 3

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance for items of ``dim`` numbers with min(``arms``, 3) positions and ε of 0.1."""
        return cls(relevance_dim=dim, positions=min(arms, 3), epsilon=0.1)

    @param
    def layout(self) -> Design:
        """How the numbers of an item and a user become features: numbers, products of both, and constants."""
        return embedding_items.list_layout(
            self.relevance_dim, self.context_dim, find_missing_flags(self.context)
        )

    def init(self, lanes: int) -> ItemListState:
        """Return the initial state of one model for all keys, or, with ``per_key``, of one model for each
        lane.
        """
        return ItemListState.blank(lanes if self.per_key else 1, self.layout, self.positions)

    def reward_draws(
        self, state: ItemListState, lane: int, impression: Impression, rng: Generator, draws: int
    ) -> Floats:
        """Return posterior draws of each item's click probability once it is seen: shape (draws, items on
        offer).
        """
        model, count, chances = lane if self.per_key else 0, len(impression.arms), []
        base, weights = click_base(state, model), embedding_items.hash_weights(impression.relevance.shape[1])
        effect_indices = [embedding_items.hash_item(item, weights) for item in impression.relevance]
        offset, variance = state.own[model][:, effect_indices].astype(float)
        for h, share in enumerate(rng.multinomial(draws, state.relevance.tally.weights[model])):
            logits, variances = embedding_items.compute_beliefs(
                state.relevance, model, impression, self.layout, h, base
            ).T
            noise = rng.standard_normal((int(share), count))
            chances.append(logistic(logits + offset + np.sqrt(variances + variance) * noise))
        return np.concatenate(chances)

    @staticmethod
    def arrange(params: ItemListMix, state: ItemListState, lane: int, impression: Impression) -> Lines:
        """Return the scores of the items on offer as lines mean + z·deviation, of which a draw of z makes a
        list.
        """
        return score_lines(state, lane if params.per_key else 0, impression, params.layout)

    @staticmethod
    def learn(params: ItemListMix, state: ItemListState, lane: int, outcome: Outcome) -> None:
        """Update the lane's model, or the model of all keys, with the rewards of a list, by
        :func:`learn_outcome`.
        """
        learn_outcome(state, lane if params.per_key else 0, outcome, params.layout)
