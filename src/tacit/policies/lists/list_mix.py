"""Lists by one draw over a mixture of what readers may be like, with exact propensities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from tacit.core.part import Flag
from tacit.policies.base import About, ArmBeliefs, Impression, Outcome
from tacit.policies.lists.one_draw import LinePolicy, Lines
from tacit.policies.lists.readers import Readers, beliefs_of, believe, forget_beliefs, read_list


@dataclass(frozen=True)
class ListMix(LinePolicy):
    """List the arms of the largest mean + z·deviation of their attraction, z drawn once a list.

    Attraction is believed under twelve hypotheses about reading: positions are seen with
    probability k^−a (a of 0, ½, 1, 1½); or readers go from the top, on with probability 1 or 0.85
    after a skip and with 0, 0.3, 0.6 or 0.9 after a click. Each key weighs the hypotheses by how
    well they predicted its clicks. The order in which arms are offered counts as a first guess, in doubt:
    offer them best first.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    positions : int, default 3
        Length of the list; at least 1.
    epsilon : float, default 0
        Probability in [0, 1] that an arm drawn uniformly is put at a position drawn uniformly;
        above 0 for logs that shall answer for every other policy.
    doubt : bool, default True
        Whether it is in doubt how far the order in which arms are offered says how good they are. Without,
        the first arms begin at nine times the rate of the last, as in earlier versions; what began so goes
        on so.
    at_least : dict of arm to float, optional
        With what probability some arms are in the list at least, each at a position drawn uniformly, whatever
        is learned: shares in (0, 0.5] by their names, together at most 0.5. What is promised to an arm that
        is not on offer is left to the policy.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    Notes
    -----
    Each arm's mean + z·deviation is a line in z, so the lists belong to intervals of z and their
    propensities are exact: of a list (``propensity`` of a decision), of its beginnings
    (``prefix_propensities``), and of each arm at its position (``position_propensities``);
    :meth:`~tacit.Learner.probabilities` gives those of all arms at all positions.

    Examples
    --------
    >>> import tacit
    >>> learner = tacit.Learner(tacit.ListMix(arms=["a", "b", "c"], positions=2), seed=1)
    >>> for _ in range(300):
    ...     decision = learner.choose("query")
    ...     _ = learner.learn(decision, [float(arm == "c") for arm in decision.slate])
    >>> learner.choose("query").slate[0]
    'c'
    """

    about: ClassVar[About] = About(
        source="tacit's own: Bayesian averaging over position-based and chain models of clicks "
        "(Chuklin, Markov, de Rijke 2015), one draw for all arms",
        regret="no bound is known",
        assumes="readers near one of twelve hypotheses; attractions never change and do not "
        "depend on the arms beside",
        fails="arms are ranked by clicks that their places won or lost them",
        otherwise="SafeListMix where the order on offer is good already; RankedBandit where "
        "attractions depend on the arms above, or change",
        suits="lists, however they are read: no knobs, exact propensities",
        weak="readers whom a click may content: 13 % of the best list's clicks are missed, as by all others; "
        "an order that is good, 1.05 ± 0.03 times what is missed if that is known (doubt=False)",
    )

    earlier: ClassVar[Mapping[str, Any]] = MappingProxyType({"doubt": False})

    doubt: Flag = True

    def init(self, lanes: int) -> Readers:
        return Readers.blank(lanes, self.arm_count)

    def beliefs(self, state: Readers, lane: int) -> ArmBeliefs:
        """Return what it believes of the arms' attraction, over all hypotheses."""
        return beliefs_of(state, lane, self.doubt)

    @staticmethod
    def arrange(params: ListMix, state: Readers, lane: int, impression: Impression) -> Lines:
        believe(state, lane, impression.arms, params.doubt)
        return Lines(state.mean[lane], state.spread[lane], state.rank[lane])

    @staticmethod
    def clear(params: ListMix, state: Readers, lane: int) -> None:
        forget_beliefs(state, lane)

    @staticmethod
    def learn(params: ListMix, state: Readers, lane: int, outcome: Outcome) -> None:
        read_list(state, lane, outcome.impression.arms, outcome.shown, outcome.reward, params.doubt)
