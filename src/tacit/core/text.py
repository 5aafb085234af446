"""Plain text that lines up."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as aligned columns: the first flush left, the others flush right.

    Examples
    --------
    >>> print(aligned([("policy", "regret"), ("UCB1", "12.5")]))
    policy  regret
    UCB1      12.5
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
