"""The base class of environments: sources of impressions that know the true click probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Self

from tacit.core import checks, dispatch
from tacit.core.arrays import Floats, Generator
from tacit.core.part import Part, int_range, set_field
from tacit.core.reward_range import UNIT_RANGE
from tacit.errors import AssumptionWarning, InvalidValue

registry: dict[str, type[Environment]] = {}
"""Every environment class that has been defined, by its canonical name."""


@dataclass(frozen=True)
class Environment(Part, abstract=True):
    """Base of all environments.

    A subclass is a frozen dataclass with the method :meth:`world` that returns the mutable arrays of
    one run (among them ``impression``), and the static methods ``arrive``, ``respond``, ``expected``
    and ``optimum``; or, for a slate, ``react`` and ``regret`` in place of the last three. Impressions
    and the random numbers behind responses must not depend on the arms shown, so that all policies
    of a simulation see the same streams.

    Parameters
    ----------
    delay : int or (int, int), default 0
        Rounds before feedback arrives, or the smallest and the largest number of a uniform draw.
    batch : int, default 1
        Feedback is delivered only before rounds that are multiples of this number.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.
    """

    takes: ClassVar[str] = "arm"
    """The kind of action: an ``arm``, a ``duel`` or a ``slate``."""
    kernels: ClassVar[tuple[Any, ...]] = dispatch.ENVIRONMENT_KERNELS
    named: ClassVar[dict[str, Any]] = registry

    delay: int | tuple[int, int] = field(default=0, kw_only=True)
    batch: Annotated[int, int_range(1, 2**31)] = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        """Validate the parameters, and store a delay of equal bounds as one number."""
        super().__post_init__()
        least, most = self.delays
        set_field(self, "delay", least if least == most else (least, most))

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self | None:
        """Return an example of the class, for warm-up and tests; None if it needs the user's data.

        Parameters
        ----------
        arms : int, default 2
            Number of arms.
        dim : int, default 1
            Number of signals in a context, or of features of each kind, if it has any.
        """
        return None

    @property
    def delays(self) -> tuple[int, int]:
        """The smallest and the largest number of rounds that feedback may take; raises InvalidValue."""
        if isinstance(self.delay, Sequence):
            if len(self.delay) != 2 or self.delay[0] > self.delay[1]:
                raise InvalidValue("delay", self.delay, "give one number, or (least, most)")
            least, most = self.delay
        else:
            least = most = self.delay
        return checks.integer("delay", least, 0, 2**31), checks.integer("delay", most, 0, 2**31)

    reward_range = UNIT_RANGE
    """The lowest and the highest reward there can be."""

    @property
    def arm_count(self) -> int:
        """Number of arms; by default the field ``arms``."""
        return int(self.arms)  # type: ignore[attr-defined]

    @property
    def lanes(self) -> int:
        """Number of keys; by default the field ``keys``, or 1 without it."""
        return getattr(self, "keys", 1)

    @property
    def context_dim(self) -> int:
        """Length of the contexts; by default 0."""
        return 0

    @property
    def feature_dims(self) -> tuple[int, int]:
        """Numbers of relevance and of examination features per arm; by default its fields, or 0."""
        return getattr(self, "relevance_dim", 0), getattr(self, "examination_dim", 0)

    @property
    def action_width(self) -> int:
        """Number of arms in an action: by default 1, or for lists the field ``positions``."""
        return 1 if self.takes == "arm" else getattr(self, "positions", 1)

    @property
    def scheduled_changes(self) -> tuple[str, Sequence[int], float]:
        """The field with scheduled changes, their rounds, and the largest share of traffic that a key has.

        Rounds are a key's own. By default there are no changes: ``("", (), 1.0)``.
        """
        return "", (), 1.0

    @property
    def setting(self) -> dict[str, Any]:
        """A dict of the arguments of :func:`tacit.auto`, without ``arms``, that suit the environment."""
        if self.takes == "slate":
            arguments = {"shows": self.takes, "positions": self.action_width}
            relevance, examination = self.feature_dims
            by_relevance = {"relevance_dim": relevance, "context_dim": self.context_dim}
            return arguments | (by_relevance if relevance and not examination else {})
        if self.feature_dims != (0, 0):
            return dict(zip(("relevance_dim", "examination_dim"), self.feature_dims, strict=True))
        return {"shows": self.takes, "signals_dim": self.context_dim}

    def warn_of_late_changes(self, horizon: int) -> None:
        """Warn if a scheduled change is too late to happen within ``horizon`` rounds.

        Changes are scheduled by a key's own rounds, and even the busiest key has only a share of all rounds.
        """
        field, rounds, share = self.scheduled_changes
        late = next((round for round in rounds if round >= share * horizon), None)
        if late is not None:
            what = f"{field}: {late:,} is too late to show in a horizon of {horizon:,}, of which no key has"
            remedy = (
                f"over {share * horizon:,.0f} rounds on average; give earlier rounds, or a longer horizon"
            )
            warnings.warn(f"{what} {remedy}", AssumptionWarning, stacklevel=4)

    def world(self, rng: Generator, horizon: int) -> Any:
        """Draw and return the mutable arrays of one run of ``horizon`` rounds, before its first round."""
        raise NotImplementedError

    @staticmethod
    def arrive(params: Any, world: Any, round: int, rng: Generator) -> int:
        """Draw a round's impression and random numbers into ``world``; return the lane of its key."""
        raise NotImplementedError

    @staticmethod
    def respond(params: Any, world: Any, lane: int, arm: Any) -> float:
        """Return the reward of showing ``arm`` in this round.

        By default it is a click, 1, if the round's uniform number is below the expected reward, else 0.
        """
        return 1.0 if world.uniform[0] < dispatch.expected(params, world, lane, arm) else 0.0

    @staticmethod
    def expected(params: Any, world: Any, lane: int, arm: Any) -> float:
        """Return the expected reward of showing ``arm`` (of duels, a pair) in this round."""
        raise NotImplementedError

    @staticmethod
    def optimum(params: Any, world: Any, lane: int) -> float:
        """Return the highest expected reward of any arm for a lane in this round."""
        raise NotImplementedError

    @staticmethod
    def react(params: Any, world: Any, lane: int, shown: Any, feedback: Floats) -> None:
        """Write the feedback on the shown arms to ``feedback``, one number per position.

        By default one arm is shown, and its feedback is its reward.
        """
        feedback[0] = dispatch.respond(params, world, lane, shown)

    @staticmethod
    def regret(params: Any, world: Any, lane: int, shown: Any) -> float:
        """Return the expected regret of the shown arms in this round.

        By default it is the best expected reward minus the expected reward of the one arm shown.
        """
        best = dispatch.optimum(params, world, lane)
        return float(best - dispatch.expected(params, world, lane, shown))
