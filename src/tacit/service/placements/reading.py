"""How rows of the log are read again."""

from __future__ import annotations

import json
from typing import Any

from tacit.learning.decisions import NOTHING, Decision
from tacit.learning.learner import Learner
from tacit.service.log.blocks import Block
from tacit.service.log.rows import DecisionRow, by_two, some_by_two


def learned_propensities(rows: Block[DecisionRow]) -> list[float | None]:
    """Return the propensities of decisions to those who learn from them."""
    logged: list[float | None] = rows.column("propensity")
    if not some_by_two(rows):
        return logged
    # One that rounding made 0 is not known.
    return [(row.would_propensity or None) if by_two(row) else row.propensity for row in rows]


def parsed(text: str | None) -> Any:
    """Return what JSON of the log says; None where there is none."""
    return None if text is None else json.loads(text)


def read_by(learner: Learner, decision: Decision) -> Decision:
    """Return a decision without its context where that is not read."""
    return decision if learner.policy.context_dim else decision._replace(context=NOTHING)
