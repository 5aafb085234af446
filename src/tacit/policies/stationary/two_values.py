"""The probability that one of several independent variables of two values each is the largest."""

from __future__ import annotations

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.dispatch import kernel


@kernel
def two_valued_largest(values: Floats, shares: Floats, count: int, chosen: int) -> float:
    """Return the probability that variable ``chosen`` is the largest, or drawn among the largest.

    Of several that are largest, each is drawn alike. It costs O(count²).

    Parameters
    ----------
    values, shares : array of float64, shape (2·count,)
        What a variable may be, and how likely it is. First come the first values of all
        variables, then the second ones.
    count : int
        How many variables there are.
    chosen : int
        Which variable.

    Examples
    --------
    >>> import numpy as np
    >>> values, shares = np.array([1.0, 1.0, 2.0, 0.0]), np.array([0.8, 0.5, 0.2, 0.5])
    >>> round(two_valued_largest(values, shares, 2, 0), 9)   # 0.2 + 0.8·(0.5/2 + 0.5)
    0.8
    """
    alike = np.empty(count)
    found = 0.0
    for own in range(chosen, 2 * count, count):
        # How likely none of the others so far is larger, and so many are as large.
        alike[0], most = 1.0, 0
        for other in range(count):
            if other == chosen:
                continue
            below, level = 0.0, 0.0
            for k in range(other, 2 * count, count):
                if values[k] < values[own]:
                    below += shares[k]
                elif values[k] == values[own]:
                    level += shares[k]
            most += 1
            alike[most] = alike[most - 1] * level
            for n in range(most - 1, 0, -1):
                alike[n] = alike[n] * below + alike[n - 1] * level
            alike[0] *= below
        for n in range(most + 1):
            found += shares[own] * alike[n] / (n + 1.0)
    return float(found)
