"""What environments have in common that compare two arms."""

from __future__ import annotations

from typing import Any, ClassVar

from tacit.core import dispatch
from tacit.core.arrays import Floats, Ints
from tacit.environments.base import Environment


class DuelEnvironment(Environment):
    """Base of the environments that compare two arms.

    ``respond`` and ``expected`` are given a pair of slots. The response is 1.0 where the left
    one won, 0.0 where the right one did, 0.5 for a tie.
    """

    takes: ClassVar[str] = "duel"

    @property
    def action_width(self) -> int:
        return 2

    @staticmethod
    def react(params: Any, world: Any, lane: int, action: Ints, feedback: Floats) -> None:
        feedback[0] = dispatch.respond(params, world, lane, (action[0], action[1]))

    @staticmethod
    def regret(params: Any, world: Any, lane: int, action: Ints) -> float:
        best = dispatch.optimum(params, world, lane)
        return float(best - dispatch.expected(params, world, lane, (action[0], action[1])))
