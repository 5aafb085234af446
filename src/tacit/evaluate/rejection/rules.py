"""How a log is replayed, and for which policy."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.evaluate.rows import checked_missing_reward
from tacit.evaluate.targets.learning import check_features
from tacit.policies.base import Policy


@dataclass(frozen=True)
class Rules:
    """How a log is replayed, and for which policy.

    Parameters
    ----------
    policy, seed, window, tolerance, assume_uniform, missing_reward, by
        As for :func:`~tacit.replay`.

    Raises
    ------
    InvalidValue
        If one of them is not allowed.
    """

    policy: Policy
    seed: int = 0
    window: int = 1_000_000
    tolerance: float = 1e-6
    assume_uniform: bool = False
    missing_reward: float | None = 0.0
    by: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.policy, Policy):
            raise InvalidValue("policy", self.policy, "give a policy, such as UCB1(arms=5)")
        if self.policy.shows != "arm":
            raise InvalidValue(
                "policy",
                self.policy,
                f"it shows a {self.policy.shows}, and the log hardly ever shows the same; weigh "
                "the log by off_policy if it is one of lists, or judge it with tacit.simulate",
            )
        check_features(self.policy)
        for field, value in (
            ("missing_reward", checked_missing_reward(self.missing_reward)),
            ("seed", checks.integer("seed", self.seed, 0)),
            ("window", checks.integer("window", self.window, 1)),
            ("tolerance", checks.number("tolerance", self.tolerance, 0.0, 1.0)),
        ):
            object.__setattr__(self, field, value)
