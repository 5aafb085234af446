"""CascadeEC: lists of arms with features, for users who read from the top and may leave at any position."""

# 1. The best list: each arm of it has a column of the workspace. Arms are inserted by rank, the arm that
#    adds least is removed; then neighbours, and arms inside and outside, are exchanged while the list gains.
# 2. Learning from a list: each click or skip is a Laplace step along the gradient of its logit, from the top
#    down.
# 3. ``CascadeEC``: draws all parameters and shows the best list under the draw.

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel
from tacit.core.part import Flag, Positive, PositiveFraction, int_range, param
from tacit.policies.actions import SlatePolicy
from tacit.policies.base import About, Impression, Outcome
from tacit.policies.features.click_model import ClickModel, find_place
from tacit.policies.features.ec_bandit import Beliefs, split_beliefs
from tacit.policies.features.gaussian import (
    Gaussian,
    clear,
    dot,
    draw_gaussian,
    draw_samples,
    fade,
    learn_logit,
    log_sigmoid,
    logistic,
    reset,
    score_row,
    sigmoid,
    stack_features,
)

# The best list -------------------------------------------------------------------------------

PLACE, RANK, ATTRACTION, HIDDEN, POSITION = range(5)
"""Rows of the workspace for a list: for each arm its place among the arms on offer, its sort key, the
probability of a click once it is seen, and the odds against seeing it; for each position the
factor on these odds."""

SWEEPS = 2


@kernel
def list_value(columns: Floats, listed: int, left_out: int, one_click: bool) -> float:
    """Return the expected clicks of the list in the first ``listed`` columns, without the arm in column
    ``left_out``.

    ``left_out`` = ``listed`` leaves none out. The sum goes from the last position up: from an arm on down,
    e·(p + (1 − p)·V) clicks are expected, or e·(p + V) if users continue after a click, where e is its
    examination, p its attraction and V the expected clicks below it.
    """
    below = 0.0
    for j in range(listed - 1, -1, -1):
        if j != left_out:
            position = j - 1 if j > left_out else j
            examination = 1.0 / (1.0 + columns[HIDDEN, j] * columns[POSITION, position])
            attraction = columns[ATTRACTION, j]
            go_on = 1.0 - attraction if one_click else 1.0
            below = examination * (attraction + go_on * below)
    return below


@kernel
def write_arm(columns: Floats, j: int, place: int, attraction: float, hidden: float) -> None:
    """Write an arm into column ``j``: its place on offer, click probability once seen, odds against being
    seen, and rank.
    """
    columns[PLACE, j] = place
    columns[RANK, j] = attraction / hidden
    columns[ATTRACTION, j] = attraction
    columns[HIDDEN, j] = hidden


@kernel
def insert_arm(columns: Floats, listed: int, place: int, attraction: float, hidden: float) -> None:
    """Insert an arm into the list in the first ``listed`` columns, before all arms of lower rank.

    These arms move one column to the right, into a free column.
    """
    rank, j = attraction / hidden, listed
    while j > 0 and columns[RANK, j - 1] < rank:
        for i in range(POSITION):
            columns[i, j] = columns[i, j - 1]
        j -= 1
    write_arm(columns, j, place, attraction, hidden)


@kernel
def remove_worst(columns: Floats, listed: int, one_click: bool) -> None:
    """Remove the arm whose removal leaves the most expected clicks from the list in the first ``listed``
    columns.

    The arms to the right of it move one column to the left. Of equal arms, the lowest is removed.
    """
    worst, most_clicks = listed - 1, list_value(columns, listed, listed - 1, one_click)
    for j in range(listed - 2, -1, -1):
        value = list_value(columns, listed, j, one_click)
        # Strictly more: of equal arms, the lowest is removed.
        if value > most_clicks:
            worst, most_clicks = j, value
    for j in range(worst, listed - 1):
        for i in range(POSITION):
            columns[i, j] = columns[i, j + 1]


@kernel
def swap_columns(columns: Floats, j: int, k: int) -> None:
    """Exchange the arms of two columns; the positions' factors stay."""
    for i in range(POSITION):
        columns[i, j], columns[i, k] = columns[i, k], columns[i, j]


@kernel
def replace_arm(columns: Floats, listed: int, one_click: bool) -> None:
    """Exchange the arm in column ``listed`` for an arm of the list, in the columns before it, if clicks are
    gained.

    The exchange of the largest gain is made; if none gains, nothing changes.
    """
    most_clicks, best_column = list_value(columns, listed, listed, one_click), listed
    for j in range(listed):
        swap_columns(columns, j, listed)
        value = list_value(columns, listed, listed, one_click)
        if value > most_clicks:
            most_clicks, best_column = value, j
        swap_columns(columns, j, listed)
    swap_columns(columns, best_column, listed)


@kernel
def order_list(columns: Floats, listed: int, one_click: bool) -> None:
    """Exchange neighbours in the list if that raises its expected clicks, in as many passes as it has
    arms.
    """
    most_clicks = list_value(columns, listed, listed, one_click)
    for _ in range(listed):
        for j in range(listed - 1):
            swap_columns(columns, j, j + 1)
            value = list_value(columns, listed, listed, one_click)
            if value > most_clicks:
                most_clicks = value
            else:
                swap_columns(columns, j, j + 1)


@kernel
def has_arm(columns: Floats, listed: int, place: int) -> bool:
    """True if the arm that is number ``place`` on offer is in the first ``listed`` columns."""
    is_listed = False
    for j in range(listed):
        is_listed = is_listed or columns[PLACE, j] == place
    return is_listed


@kernel
def fill_list(
    impression: Impression, theta: Floats, split: int, one_click: bool, columns: Floats, action: Ints
) -> None:
    """Fill ``action`` with the list of the most expected clicks under parameters ``theta``, as far as
    exchanges find it.

    Arms are kept in the order of p·e/(1 − e), with p the attraction and e the examination: an exchange
    argument shows that the larger one belongs above if examination depends on the arms alone or on the
    positions alone (Kempe, Mahdian 2008). Each arm on offer in turn replaces one in the list if the list
    gains; this is done twice. With constants of positions, examination may depend on both: then there are
    further sweeps, in which neighbours are exchanged and arms replace others at their positions as long as
    the list gains. Positions without an arm get −1. ``columns`` is a workspace and stays filled.
    """
    constants_start, positions, listed = split + impression.examination.shape[1], len(action), 0
    for k in range(positions):
        constant = theta[constants_start + k] if len(theta) > constants_start else 0.0
        # Odds against being seen multiply, so a position is a factor; beyond 350 exp would overflow.
        columns[POSITION, k] = np.exp(min(max(-constant, -350.0), 350.0))
    mixed = len(theta) > constants_start
    for sweep in range(2 * SWEEPS if mixed else SWEEPS):
        for i in range(len(impression.arms)):
            # An arm that was left out in the first sweep may fit once others have changed.
            if not has_arm(columns, listed, i):
                attraction = sigmoid(score_row(impression.relevance[i], theta[:split]))
                logit = dot(impression.examination[i], theta[split:constants_start])
                hidden = np.exp(min(max(-logit, -350.0), 350.0))
                # The first sweeps keep the list in the order of p·e/(1 − e); further ones exchange at a
                # position.
                if sweep >= SWEEPS:
                    write_arm(columns, listed, i, attraction, hidden)
                    replace_arm(columns, listed, one_click)
                else:
                    insert_arm(columns, listed, i, attraction, hidden)
                    if listed < positions:
                        listed += 1
                    else:
                        remove_worst(columns, listed + 1, one_click)
        if sweep >= SWEEPS - 1 and mixed:
            order_list(columns, listed, one_click)
    for k in range(positions):
        action[k] = impression.arms[int(columns[PLACE, k])] if k < listed else -1


# Learning from a list ------------------------------------------------------------------------


@kernel
def relevance_logit(impression: Impression, place: int, mean: Floats, split: int) -> float:
    """Return x_C·m_C, the log-odds of a click once the arm is seen, at the posterior mean m.

    ``place`` is the arm's number on offer; m_C are the first ``split`` parameters.
    """
    return score_row(impression.relevance[place], mean[:split])


@kernel
def examination_logit(impression: Impression, place: int, k: int, mean: Floats, split: int) -> float:
    """Return x_E·m_E, the log-odds that an arm is seen, plus the constant of position ``k`` if there is one.

    ``place`` is the arm's number on offer; m_E are the parameters from ``split`` on.
    """
    row = impression.examination[place]
    logit, past = dot(row, mean[split:]), split + len(row)
    if len(mean) > past:
        logit += mean[past + k]
    return logit


@kernel
def add_features(
    impression: Impression, place: int, k: int, split: int, by_c: float, by_e: float, h: Floats
) -> None:
    """Add an arm's relevance features times by_c, and its examination features times by_e, to the gradient
    ``h``.

    Intercept and position constant, if there are any, count as features of 1. ``place`` is the arm's number
    on offer, ``k`` its position.
    """
    relevance, examination = impression.relevance[place], impression.examination[place]
    for i in range(len(relevance)):
        h[i] += by_c * relevance[i]
    if split > len(relevance):
        h[len(relevance)] += by_c
    past = split + len(examination)
    for i in range(len(examination)):
        h[split + i] += by_e * examination[i]
    if len(h) > past:
        h[past + k] += by_e


@kernel
def click_gradient(
    impression: Impression, action: Ints, start: int, k: int, mean: Floats, split: int, h: Floats, g: Floats
) -> float:
    """Fill ``h`` with the gradient of the logit of a click at position ``k`` by all parameters, and return
    the logit.

    ``g`` is a workspace, which must be 0 before. The click is conditional on the clicks above: the last one
    is at position ``start`` − 1, so the user reached position ``start``. There w, the probability that the
    user comes so far, is 1. The click at a position has probability f = w·e·p. Without a click, w becomes w′
    = w·e·(1 − p)/(1 − f) at the next position. So with g = ∇ln w

      ∇logit f = (g + (1 − p)·x_C + (1 − e)·x_E)/(1 − f),
      ∇ln w′ = (g + (1 − e)·x_E)/(1 − f) − (1 − w′)·p·x_C,

    and 1 − f and 1 − w′ are computed as sums of positive numbers, to avoid cancellation. For k = ``start``
    this is the click of :class:`~tacit.policies.LaplaceEC`.
    """
    reach_chance, exit_chance, logit = 1.0, 0.0, 0.0
    for j in range(start, k + 1):
        place = find_place(impression.arms, action[j])
        relevance = relevance_logit(impression, place, mean, split)
        examination = examination_logit(impression, place, j, mean, split)
        skipped, unseen = sigmoid(-relevance), sigmoid(-examination)
        hidden = exit_chance + reach_chance * unseen
        passed = reach_chance * sigmoid(examination) * skipped
        no_click = max(hidden + passed, 1e-300)
        if j < k:
            for i in range(len(g)):
                g[i] /= no_click
            exit_chance, reach_chance = hidden / no_click, passed / no_click
            by_c = -exit_chance * sigmoid(relevance)
            add_features(impression, place, j, split, by_c, unseen / no_click, g)
        else:
            for i in range(len(g)):
                h[i] = g[i] / no_click
            add_features(impression, place, j, split, skipped / no_click, unseen / no_click, h)
            log_reached = np.log(max(reach_chance, 1e-300))
            logit = log_reached + log_sigmoid(relevance) + log_sigmoid(examination) - np.log(no_click)
    return logit


class CascadeState(NamedTuple):
    """State of CascadeEC.

    Attributes
    ----------
    posterior : Gaussian
        Posterior of the parameters of relevance, examination and the positions' constants, in this order.
    room : array of float64, shape (lanes, 5, positions + 1)
        Workspace for building a list; all zeros between choices.
    """

    posterior: Gaussian
    room: Floats


@dataclass(frozen=True)
class CascadeEC(ClickModel, SlatePolicy):
    """Show the best list under a draw of the parameters from one joint Gaussian, as LaplaceEC does for arms.

    A user who has examined position k − 1 examines position k with probability
    e = σ(x_E·θ_E + b_k), which depends on the arm there and the position, and then clicks with
    probability p = σ(x_C·θ_C). A user who does not examine a position leaves the list.

    A click shows that its position and all above it were seen; positions below the last click
    may have been seen or not. The likelihood of a list is the product over its positions of
    w·e·p for a click and 1 − w·e·p for none, where w is the probability, given the clicks above, that
    the user came so far: w = 1 at the top and below a click, and otherwise
    w·e·(1 − p)/(1 − w·e·p) at the next position. Each factor updates the posterior as a click does in
    :class:`LaplaceEC`, from the top: its logit, a function of all features down to there, is
    linearized at the mean, and the posterior's mode along the gradient is solved exactly. The
    information of a click about the positions above it enters by the gradient of w. (Separate updates for
    examination and click, where a click shows both, would count more information than there is:
    clicks in full, and their absence by its expectation.) Learning from a list costs
    O(positions·d·(d + positions)), choosing one O(arms·(d + positions²)).

    Parameters
    ----------
    relevance_dim, examination_dim : int
        Numbers of relevance and of examination features per arm; at least 1.
    positions : int, default 3
        Length of the list; at least 1.
    one_click : bool, default True
        Whether users stop at a click, as in the cascade model. Then positions below a click are not
        learned from, and the best list has the largest probability of a click. Otherwise
        users continue after a click as after a skip, and the best list has the most expected clicks.
    position_constants : bool, default True
        Whether each position has a constant b_k, in addition to the arms' features.
    prior_variance : float, default 1
        Variance of each parameter before the first click; above 0.
    relevance_intercept : bool, default False
        Whether a constant is put at the end of the relevance features.
    discount : float, default 1
        Factor on the precision of what was learned before, at each list, in (0, 1]. Below 1 the
        policy forgets and so can follow shifting intent.

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.

    References
    ----------
    The model of one position: Qi, Wu, Wang, Tang, Sun (2018), "Bandit learning with implicit
    feedback". The cascade: Craswell, Zoeter, Taylor, Ramsey (2008). Users who may leave at any position, and
    the order of the list: Kempe, Mahdian (2008), "A cascade model for externalities in sponsored search".

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.policies.CascadeEC(2, 1, positions=2), seed=1)
    >>> decision = learner.choose(
    ...     "query",
    ...     arms=["film", "holiday", "parade"],
    ...     relevance=[[0.2, 0.9], [0.8, 0.1], [0.5, 0.5]],
    ...     examination=[[1.0], [0.5], [0.0]],
    ... )
    >>> learner.learn(decision, [0.0, 1.0])
    True
    >>> learner.posterior("query").examination.mean.shape
    (3,)
    """

    about: ClassVar[About] = About(
        source="tacit; the click model of Qi et al. (2018) at each position of a cascade",
        regret="no bound is known",
        assumes="readers from the top who look and click by logistic functions of features",
        fails="lists are ordered by a model that does not hold; what that costs was not measured",
        otherwise="CascadeKLUCB where arms are few and stay; RankedBandit where an arm's "
        "attraction depends on those above",
    )

    positions: Annotated[int, int_range(1, 10_000)] = 3
    one_click: Flag = True
    position_constants: Flag = True
    prior_variance: Positive = 1.0
    relevance_intercept: Flag = False
    discount: PositiveFraction = 1.0

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance with ``dim`` features of each kind and min(``arms``, 3) positions."""
        return cls(dim, dim, positions=min(arms, 3))

    @param
    def split(self) -> int:
        """Number of relevance parameters: the parameters from this index on belong to examination."""
        return self.relevance_dim + int(self.relevance_intercept)

    def init(self, lanes: int) -> CascadeState:
        """Return the prior of all parameters, and a workspace of zeros, for each lane."""
        constants = self.positions if self.position_constants else 0
        width = self.split + self.examination_dim + constants
        workspace = np.zeros((lanes, 5, self.positions + 1))
        return CascadeState(Gaussian.prior(lanes, width, self.prior_variance), workspace)

    def posterior(self, state: CascadeState, lane: int) -> Beliefs:
        """Return the posteriors of a key's parameters: of relevance, of examination, and of all jointly.

        Constants of positions come last among the parameters.
        """
        gaussian = state.posterior
        return split_beliefs(gaussian.mean[lane], gaussian.root[lane], self.split)

    def reward_draws(
        self, state: CascadeState, lane: int, impression: Impression, rng: Generator, draws: int
    ) -> Floats:
        """Return ``draws`` posterior draws of each arm's click probability at the top of a list; shape
        (draws, arms on offer).
        """
        gaussian, split = state.posterior, self.split
        theta = draw_samples(gaussian.mean[lane], gaussian.root[lane], rng, draws)
        first = split + self.examination_dim + int(self.position_constants)
        examination_logits = (
            stack_features(impression.examination, width=first - split) @ theta[:, split:first].T
        )
        relevance_logits = stack_features(impression.relevance, width=split) @ theta[:, :split].T
        return (logistic(relevance_logits) * logistic(examination_logits)).T

    @staticmethod
    def decide(
        params: CascadeEC,
        state: CascadeState,
        lane: int,
        impression: Impression,
        rng: Generator,
        action: Ints,
    ) -> None:
        """Draw the parameters from the posterior, and fill ``action`` with the best list under this draw."""
        gaussian, workspace = state.posterior, state.posterior.room[lane]
        draw_gaussian(gaussian.mean[lane], gaussian.root[lane], 1.0, rng, workspace[0], workspace[1])
        fill_list(impression, workspace[1], params.split, params.one_click, state.room[lane], action)
        clear(workspace)
        clear(state.room[lane])

    @staticmethod
    def learn(params: CascadeEC, state: CascadeState, lane: int, outcome: Outcome) -> None:
        """Discount earlier evidence, then update the posterior with each position's click or skip, from the
        top down.

        With ``one_click``, positions below the first click are ignored.
        """
        action = outcome.shown
        gaussian, split = state.posterior, params.split
        mean, root, workspace = gaussian.mean[lane], gaussian.root[lane], gaussian.room[lane]
        fade(root, params.discount, params.prior_variance)
        start = 0
        for k in range(len(action)):
            if action[k] < 0 or (params.one_click and start > 0):
                break
            logit = click_gradient(
                outcome.impression, action, start, k, mean, split, workspace[0], workspace[2]
            )
            learn_logit(mean, root, workspace, logit, outcome.reward[k])
            if outcome.reward[k] > 0.0:
                start = k + 1

    @staticmethod
    def restart(params: CascadeEC, state: CascadeState, lane: int) -> None:
        """Reset a lane's posterior to the prior."""
        reset(state.posterior.mean[lane], state.posterior.root[lane], params.prior_variance)

    @staticmethod
    def believed(
        params: CascadeEC, state: CascadeState, lane: int, impression: Impression, arm: int
    ) -> float:
        """Return the click probability of an arm at the top of the list, with all parameters at the posterior
        mean.
        """
        place, mean = find_place(impression.arms, arm), state.posterior.mean[lane]
        relevance = relevance_logit(impression, place, mean, params.split)
        examination = examination_logit(impression, place, 0, mean, params.split)
        return sigmoid(relevance) * sigmoid(examination)
