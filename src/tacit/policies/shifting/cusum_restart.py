"""Restart a click model when its clicks no longer are what it expects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.core.dispatch import believed, learn, restart
from tacit.core.part import Positive, whole, within
from tacit.errors import InvalidValue
from tacit.policies.base import About, Outcome
from tacit.policies.features.click_model import ClickModel
from tacit.policies.features.laplace import LaplaceEC
from tacit.policies.shifting.restarting import Restarting


@dataclass(frozen=True)
class CUSUMRestart(Restarting):
    """Run a policy over features and restart it when a two-sided CUSUM of its residuals says so.

    A residual is the reward minus the probability f that the policy's mean gives it, over
    sqrt(f(1 − f)). Two walks that never go below 0 add up residuals − k and −residuals − k; when
    one of them exceeds h, the policy starts over. The test is armed some rounds after each start,
    when the policy has found its feet.

    Parameters
    ----------
    policy : Policy
        What is restarted: LaplaceEC, ECBandit, LogisticTS and the like.
    drift : float, default 0.15
        The drift k that is tolerated, in standard deviations of a click; at least 0.
    threshold : float, default 30
        The height h of an alarm; above 0. The default suits parameters of scale 1 to 4 that are
        drawn anew every 10,000 rounds; at 20 false alarms cost more than the delay at 30.
    armed : int, default 200
        Rewards after a start before the test begins; at least 0.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range, or the policy is not over features or shows lists.

    References
    ----------
    Page (1954), "Continuous inspection schemes".

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.ExaminationArms(scale=4, redraws=(4000,))
    >>> policies = [tacit.CUSUMRestart(tacit.LaplaceEC(5, 5)), tacit.LaplaceEC(5, 5)]
    >>> result = tacit.simulate(policies, environment, horizon=12_000, runs=5, seed=1)
    >>> result.compare(0, 1).difference < 0
    True
    """

    class State(NamedTuple):
        policy: Any
        walks: Floats  # (lanes, 2)
        rounds: Ints  # (lanes,) since the last start
        restarts: Ints  # (lanes,)

    about: ClassVar[About] = About(
        source="Page (1954), on the residuals of any model of clicks",
        regret="no bound is known",
        assumes="abrupt shifts, large enough that clicks on what is shown change",
        fails="slow drift, and shifts that leave the clicks on what is shown as they are, go unnoticed",
        otherwise="a discount below 1 of the policy itself, for slow drift",
    )

    arms: Any = field(init=False, repr=False, compare=False)
    policy: ClickModel
    drift: Annotated[float, within(0.0, 1000000.0)] = 0.15
    threshold: Positive = 30.0
    armed: Annotated[int, whole(0)] = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.policy, ClickModel):
            raise InvalidValue("policy", self.policy, "give one over features, as LaplaceEC(5, 5)")
        if not self.policy.showing.single:
            remedy = "give one that shows one arm; for lists there are OracleRestart and a discount"
            raise InvalidValue("policy", self.policy, remedy)
        self._set("arms", self.policy.arms)
        self._set("randomized", self.policy.randomized)

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(LaplaceEC(dim, dim))

    def init(self, lanes: int) -> State:
        counts = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
        return self.State(self.policy.init(lanes), np.zeros((lanes, 2)), *counts)

    @staticmethod
    def learn(params: CUSUMRestart, state: State, lane: int, outcome: Outcome) -> None:
        state.rounds[lane] += 1
        if state.rounds[lane] > params.armed:
            chance = believed(params.policy, state.policy, lane, outcome.impression, outcome.shown)
            residual = (outcome.reward - chance) / np.sqrt(max(chance * (1.0 - chance), 1e-6))
            rise = max(0.0, state.walks[lane, 0] + residual - params.drift)
            fall = max(0.0, state.walks[lane, 1] - residual - params.drift)
            state.walks[lane, 0] = rise
            state.walks[lane, 1] = fall
            if max(rise, fall) > params.threshold:
                restart(params.policy, state.policy, lane)
                state.walks[lane, 0] = 0.0
                state.walks[lane, 1] = 0.0
                state.rounds[lane] = 0
                state.restarts[lane] += 1
                return
        learn(params.policy, state.policy, lane, outcome)

    @staticmethod
    def epoch(params: CUSUMRestart, state: State, lane: int) -> int:
        return int(state.restarts[lane])
