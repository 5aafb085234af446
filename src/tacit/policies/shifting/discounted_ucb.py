"""D-UCB: optimism over counts that fade (Garivier, Moulines 2011)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.core.ranges import Positive, within
from tacit.policies.base import About, Outcome
from tacit.policies.shifting.forgetting import ForgettingUCB

HEAVIEST = 1e100
"""Weight of the latest round at which all weights are scaled back to 1."""


@dataclass(frozen=True)
class DiscountedUCB(ForgettingUCB):
    """Play the arm with the highest upper confidence bound over discounted counts.

    A round that is k rounds of its key old counts γ^k. With N the discounted plays of an arm, μ
    its discounted mean reward and n the discounted plays of all arms, its index is
    μ + 2·sqrt(ξ·ln n/N). An arm that was never played comes before all that were.

    The defaults suit few arms. Played equally often, K arms have 1/(K·(1 − γ)) discounted plays
    each; with the defaults and 40 arms that is 12, the radius 2·sqrt(0.6·ln 500/12) is above 1,
    and arms are played almost uniformly. With many arms take a longer memory and a smaller ξ: on
    the 40 arms of ``tacit reproduce search-interest`` γ = 0.9999 and ξ = 0.01 did best of those
    tried.

    The discount is applied lazily, by growing the weight of what is new: a round costs O(1) but
    for the indices, and nothing is lost but what fades below the smallest number. A lane takes
    16·arms + 16 bytes.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    discount : float, default 0.998
        The factor γ, in [0.5, 1]; the memory is 1/(1 − γ) rounds. The default suits about one
        shift in 20 000 rounds; :meth:`tuned` gives the published value.
    xi : float, default 0.6
        Scale ξ of the confidence radius; above 0, and above 1/2 for the regret bound to hold.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Garivier, Moulines (2011), "On upper-confidence bound policies for switching bandit
    problems", theorem 1, with rewards in [0, 1], so B = 1. The paper itself was not at hand to
    check against: radius and γ are those of other implementations, among them that of the authors
    of GLR-klUCB (which has KL-UCB's index in the place of the radius).

    Examples
    --------
    >>> DiscountedUCB.tuned(arms=5, horizon=40_000, shifts=4).discount
    0.9975
    """

    class Params(NamedTuple):
        discount: float
        xi: float

    class State(NamedTuple):
        plays: Floats  # (lanes, arms) in units of the weight
        rewards: Floats  # (lanes, arms) in units of the weight
        total: Floats  # (lanes,) discounted plays of all arms
        weight: Floats  # (lanes,) of the latest round

    about: ClassVar[About] = About(
        source="Garivier, Moulines (2011), D-UCB",
        regret="O(K·sqrt(Υ·T)·ln T) with Υ shifts in T rounds, tuned (theorem 1)",
        assumes="click probabilities that change at rounds few enough to be known in number",
        fails="re-learns for ever what has not changed, or follows late",
        otherwise="SlidingWindowUCB, which is close; GLRKLUCB, which forgets only at a shift",
    )

    discount: Annotated[float, within(0.5, 1.0)] = 0.998
    xi: Positive = 0.6

    @classmethod
    def tuned(cls, arms: int | tuple[str, ...], horizon: int, shifts: int) -> Self:
        """Return the policy with the published γ = 1 − sqrt(shifts/horizon)/4.

        Parameters
        ----------
        arms : int or sequence of str
        horizon : int
            Rounds of a key; at least 2.
        shifts : int
            How often its click probabilities change in them; from 1 to half of the rounds.

        Raises
        ------
        InvalidValue
            If a parameter is out of its range.
        """
        rounds = checks.integer("horizon", horizon, 2)
        changes = checks.integer("shifts", shifts, 1, rounds // 2)
        return cls(arms, discount=1.0 - math.sqrt(changes / rounds) / 4.0)

    def init(self, lanes: int) -> State:
        shape = (lanes, self.arm_count)
        return self.State(np.zeros(shape), np.zeros(shape), np.zeros(lanes), np.ones(lanes))

    @staticmethod
    def confidence(params: Params, state: State, lane: int) -> float:
        log_total = np.log(max(state.total[lane], 1.0))
        return float(2.0 * np.sqrt(params.xi * log_total * state.weight[lane]))

    @staticmethod
    def learn(params: Params, state: State, lane: int, outcome: Outcome) -> None:
        state.weight[lane] /= params.discount
        state.plays[lane, outcome.shown] += state.weight[lane]
        state.rewards[lane, outcome.shown] += state.weight[lane] * outcome.reward
        state.total[lane] = params.discount * state.total[lane] + 1.0
        if state.weight[lane] > HEAVIEST:
            for other in range(state.plays.shape[1]):
                state.plays[lane, other] /= state.weight[lane]
                state.rewards[lane, other] /= state.weight[lane]
            state.weight[lane] = 1.0
