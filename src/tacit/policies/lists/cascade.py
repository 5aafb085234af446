"""Lists by optimism under the cascade model (Kveton, Szepesvári, Wen, Ashkan 2015)."""

# 1. ``State``: examinations and clicks of arms, down to the last click of each list.
# 2. ``CascadePolicy``: the list of the highest indices; arms below the last click are not learned from.
# 3. ``CascadeUCB1`` and ``CascadeKLUCB``: the two indices.

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import confidence, index
from tacit.core.part import float_range, int_range
from tacit.policies.actions import SlatePolicy
from tacit.policies.base import About, Counts, Impression, Outcome, count
from tacit.policies.index import Indexed, radius_index
from tacit.policies.stationary.ucb import kl_budget, kl_index


class State(NamedTuple):
    """Counts of a cascading bandit, and a workspace.

    Attributes
    ----------
    counts : Counts
        Number of times each arm was read, and of its clicks.
    scores : array of float64, shape (lanes, arms)
        Workspace for the indices of a choice; all zero between choices.
    """

    counts: Counts
    scores: Floats


@dataclass(frozen=True)
class CascadePolicy(SlatePolicy, Indexed, abstract=True):
    """Base of the policies that list the arms of the highest indices, best first.

    A list counts as read down to its last click, or to its end if nothing is clicked. Each arm that was
    read learns its click or skip; the arms below learn nothing. Under the cascade model there is at most
    one click.

    A subclass gives the kernels ``confidence`` and ``index``, as an index policy does; no index is below 0.
    """

    positions: Annotated[int, int_range(1, 10_000)] = 3

    def init(self, lanes: int) -> State:
        """Return zero counts of reads and clicks, and a workspace of zeros, for each lane."""
        return State(Counts.zeros(lanes, self.arm_count), np.zeros((lanes, self.arm_count)))

    @staticmethod
    def decide(
        params: Any, state: State, lane: int, impression: Impression, rng: Generator, action: Ints
    ) -> None:
        """Fill ``action`` with the arms of the highest indices, best first; ties are broken at random.

        Positions for which no arm is left get −1.
        """
        scores = state.scores[lane]
        shared = confidence(params, state, lane)
        for arm in impression.arms:
            scores[arm] = index(params, state, lane, arm, shared)
        for k in range(len(action)):
            best, leader, ties = -1.0, -1, 0.0
            for arm in impression.arms:
                if scores[arm] > best:
                    best, leader, ties = scores[arm], arm, 1.0
                elif scores[arm] == best:
                    ties += 1.0
                    if rng.random() * ties < 1.0:
                        leader = arm
            action[k] = leader
            if leader >= 0:
                scores[leader] = -2.0
        for arm in impression.arms:
            scores[arm] = 0.0

    @staticmethod
    def learn(params: Any, state: State, lane: int, outcome: Outcome) -> None:
        """Count a read and a reward for each arm down to the last click, or for all arms if nothing was
        clicked.

        The list counts as one round; arms below the last click learn nothing.
        """
        action = outcome.shown
        read_count = len(action)
        for k in range(len(action)):
            if outcome.reward[k] > 0.0:
                read_count = k + 1
        rounds = state.counts.rounds[lane] + 1.0
        for k in range(read_count):
            if action[k] >= 0:
                count(state.counts, lane, action[k], outcome.reward[k])
        state.counts.rounds[lane] = rounds


@dataclass(frozen=True)
class CascadeUCB1(CascadePolicy):
    """List the arms of the highest upper confidence bounds μ + sqrt(1.5·ln t/n) on attraction.

    n is the number of times an arm was read, t the number of lists of the key. Arms that were never read come
    first; ties are broken at random.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    positions : int, default 3
        Length of the list; at least 1.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Kveton, Szepesvári, Wen, Ashkan (2015), "Cascading bandits: learning to rank in the cascade
    model", algorithm 1.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.policies.CascadeUCB1(arms=["a", "b", "c"], positions=2), seed=1)
    >>> decision = learner.choose("query")
    >>> learner.learn(decision, [0.0, 1.0])
    True
    """

    about: ClassVar[About] = About(
        source="Kveton, Szepesvári, Wen, Ashkan (2015), algorithm 1",
        regret="Σ 12/Δ·ln T over the arms outside the best list + O(arms)",
        assumes="the cascade model: read from the top, one click at most; attractions never change",
        fails="arms are ranked by clicks that the arms above took from them, or lent them",
        otherwise="CascadeKLUCB, with less regret; RankedBandit where attractions depend on the arms above",
    )

    @staticmethod
    def confidence(params: CascadeUCB1, state: State, lane: int) -> float:
        """Return sqrt(1.5·ln t) for list t of the key; an arm's radius is this over the root of its reads."""
        return float(np.sqrt(1.5 * np.log(state.counts.rounds[lane] + 1.0)))

    @staticmethod
    def index(params: CascadeUCB1, state: State, lane: int, arm: int, confidence: float) -> float:
        """Return the upper confidence bound on an arm's attraction; infinity before its first read."""
        return radius_index(state.counts, lane, arm, confidence)


@dataclass(frozen=True)
class CascadeKLUCB(CascadePolicy):
    """List the arms of the highest Kullback–Leibler upper confidence bounds on attraction.

    The bound of an arm read n times, with a share μ of clicks, is the largest q with
    n·kl(μ, q) ≤ ln t + c·ln ln t after t lists of the key. Arms that were never read come
    first; ties are broken at random.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    positions : int, default 3
        Length of the list; at least 1.
    c : float, default 3
        Weight of ln ln t; at least 0. The proof requires 3; 0 has less regret in practice.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Kveton, Szepesvári, Wen, Ashkan (2015), "Cascading bandits: learning to rank in the cascade
    model", algorithm 1.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.policies.CascadeKLUCB(arms=["a", "b", "c"], positions=2), seed=1)
    >>> for _ in range(300):
    ...     decision = learner.choose("query")
    ...     _ = learner.learn(decision, [float(arm == "b") for arm in decision.slate])
    >>> learner.choose("query").slate[0]
    'b'
    """

    about: ClassVar[About] = CascadeUCB1.about._replace(
        regret="O(Σ Δ/kl(μ, μ of the worst listed)·ln T·ln(1/Δ)) over the arms outside the best list",
        otherwise="RankedBandit where attractions depend on the arms above, or change",
    )

    c: Annotated[float, float_range(0.0, 1000000.0)] = 3.0

    @staticmethod
    def confidence(params: CascadeKLUCB, state: State, lane: int) -> float:
        """Return ln t + c·ln ln t for list t of the key, the bound on reads·kl for the index."""
        return kl_budget(state.counts, lane, params.c)

    @staticmethod
    def index(params: CascadeKLUCB, state: State, lane: int, arm: int, confidence: float) -> float:
        """Return the Kullback–Leibler upper confidence bound on an arm's attraction; infinity before its
        first read.
        """
        return kl_index(state.counts, lane, arm, confidence)
