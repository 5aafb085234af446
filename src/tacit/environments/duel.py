"""What environments have in common that compare two arms."""

from __future__ import annotations

from typing import ClassVar

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
