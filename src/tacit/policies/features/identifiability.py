"""What clicks can never tell about relevance and examination, seen in the features alone."""

from __future__ import annotations

import warnings

import numpy as np

from tacit.core.arrays import Floats
from tacit.errors import AssumptionWarning

SAME_DIRECTION = 1e-6


class IdentifiabilityWarning(AssumptionWarning):
    """Clicks cannot tell apart what the policy is asked to learn."""


def identifiability(
    relevance: Floats,
    examination: Floats,
    *,
    relevance_intercept: bool = False,
    examination_intercept: bool = False,
) -> list[str]:
    """Return what rows of features leave undetermined in σ(x_C·θ_C)·σ(x_E·θ_E).

    Parameters
    ----------
    relevance, examination : array of float, shape (rows, d)
        Features of arms that were or may be on offer; more rows than features in all.
    relevance_intercept, examination_intercept : bool, default False
        Whether the policy adds a constant to the block.

    Returns
    -------
    list of str
        A sentence for each finding; empty where there is none.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> items, slots = rng.standard_normal((50, 3)), np.eye(4)[rng.integers(4, size=50)]
    >>> identifiability(items, slots)
    []
    >>> for finding in identifiability(items, items):
    ...     print(finding.partition(":")[0])
    neither block has a constant
    the blocks share 3 directions
    """
    rows = len(relevance)
    ones = np.ones((rows, 1))
    first = np.hstack([relevance, ones]) if relevance_intercept else np.asarray(relevance)
    second = np.hstack([examination, ones]) if examination_intercept else np.asarray(examination)
    constants = [_spans(block, ones[:, 0]) for block in (first, second)]
    found = []
    if not any(constants):
        found.append(
            "neither block has a constant: results whose features are all 0 are believed to be "
            "clicked a quarter of the time, for ever; set relevance_intercept=True if they are not"
        )
    if all(constants):
        found.append(
            "both blocks have a constant: while clicks are rare only the sum of the two is "
            "determined, the rest is the prior's; keep it in one block"
        )
    shared = _rank(first) + _rank(second) - _rank(np.hstack([first, second])) - int(all(constants))
    if shared > 0:
        found.append(
            f"the blocks share {shared} directions: along them clicks cannot tell relevance from "
            "examination (with the same features in both, the two may be swapped); give each "
            "feature to one block"
        )
    return found


def warn_of(findings: list[str]) -> None:
    """Warn of each finding."""
    for finding in findings:
        warnings.warn(finding, IdentifiabilityWarning, stacklevel=6)


def _rank(block: Floats) -> int:
    return int(np.linalg.matrix_rank(_scaled(block), tol=SAME_DIRECTION * max(block.shape)))


def _scaled(block: Floats) -> Floats:
    """Return the columns at length 1, those of zeros as they are."""
    lengths = np.linalg.norm(block, axis=0)
    return block / np.where(lengths > 0.0, lengths, 1.0)


def _spans(block: Floats, column: Floats) -> bool:
    """Return whether a column is a combination of a block's columns."""
    columns = _scaled(block)
    rest = column - columns @ np.linalg.lstsq(columns, column, rcond=None)[0]
    return bool(np.linalg.norm(rest) <= SAME_DIRECTION * np.linalg.norm(column))
