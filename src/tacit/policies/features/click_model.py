"""What policies have in common that know arms by their relevance and examination features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tacit.core import checks, dispatch
from tacit.core.arrays import Ints
from tacit.core.dispatch import kernel
from tacit.policies.actions import FeaturePolicy
from tacit.policies.base import Impression

MAX_DIM = 10_000


@kernel
def place_of(arms: Ints, arm: int) -> int:
    """Return the row of an arm among those on offer, whether its slot is that row or not."""
    if arm < len(arms) and arms[arm] == arm:
        return arm
    for i in range(len(arms)):
        if arms[i] == arm:
            return i
    return 0


@dataclass(frozen=True)
class ClickModel(FeaturePolicy):
    """Base of the policies that believe in a click probability for every row of features.

    A subclass has, besides a policy's kernels, ``believed`` and ``restart``.

    Parameters
    ----------
    relevance_dim, examination_dim : int
        Numbers of relevance and of examination features per arm; at least 1.

    Raises
    ------
    InvalidValue
        If a hyperparameter is out of its range.
    """

    kernels: ClassVar[tuple[Any, ...]] = dispatch.POLICY_KERNELS + dispatch.FEATURE_KERNELS
    # A draw of parameters is integrated over nowhere, so no propensity is known.
    randomized: ClassVar[bool] = False

    needs_examination: ClassVar[bool] = True

    relevance_dim: int
    examination_dim: int = 0

    def __post_init__(self) -> None:
        least = {"relevance_dim": 1, "examination_dim": int(self.needs_examination)}
        for field, low in least.items():
            self._set(field, checks.integer(field, getattr(self, field), low, MAX_DIM))

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(dim, dim)

    def _check_positive(self, *names: str) -> None:
        """Put numbers above 0 into their canonical form."""
        for field in names:
            self._set(field, checks.positive(field, getattr(self, field)))

    def _check_flags(self, *names: str) -> None:
        """Refuse what is neither true nor false."""
        for field in names:
            self._set(field, checks.flag(field, getattr(self, field)))

    def _check_discount(self) -> None:
        value = checks.number("discount", self.discount, 0.0, 1.0, open_low=True)  # type: ignore[attr-defined]
        self._set("discount", value)

    @property
    def feature_dims(self) -> tuple[int, int]:
        return self.relevance_dim, self.examination_dim

    @staticmethod
    def believed(params: Any, state: Any, lane: int, impression: Impression, arm: int) -> float:
        """Return the click probability that the policy believes in."""
        raise NotImplementedError
