"""What policies have in common that know arms by their relevance and examination features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from tacit.core import checks, dispatch
from tacit.core.arrays import Ints
from tacit.core.dispatch import kernel
from tacit.core.ranges import whole
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

    relevance_dim: Annotated[int, whole(1, MAX_DIM)]
    examination_dim: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        least = int(self.needs_examination)
        dim = checks.integer("examination_dim", self.examination_dim, least, MAX_DIM)
        self._set("examination_dim", dim)

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(dim, dim)

    @property
    def feature_dims(self) -> tuple[int, int]:
        return self.relevance_dim, self.examination_dim

    @staticmethod
    def believed(params: Any, state: Any, lane: int, impression: Impression, arm: int) -> float:
        """Return the click probability that the policy believes in."""
        raise NotImplementedError
