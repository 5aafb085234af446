"""What policies share that move the scores of all arms by one draw, z = |N(0, 1)|."""

from __future__ import annotations

import math

from tacit.core.arrays import Floats
from tacit.core.dispatch import kernel


@kernel
def mass(low: float, high: float) -> float:
    """Return the probability that |z|, z being standard normal, is in an interval."""
    if high <= low:
        return 0.0
    return math.erfc(low * math.sqrt(0.5)) - math.erfc(high * math.sqrt(0.5))


@kernel
def latest_of(ties: float, tie: float) -> tuple[bool, float]:
    """Return whether the latest of so many alike is taken, and the rest of a uniform draw.

    Asked after each of them, with the rest of the draw before, it takes any one with probability
    1/ties; the rest is again uniform.
    """
    if tie * ties < 1.0:
        return True, tie * ties
    return False, (tie * ties - 1.0) / (ties - 1.0)


@kernel
def note_crossing(crossings: Floats, count: int, z: float, rises: bool) -> None:
    """Put in order where another line crosses one's own: negative where it falls below it."""
    k = count
    while k > 0 and abs(crossings[k - 1]) > z:
        crossings[k] = crossings[k - 1]
        k -= 1
    crossings[k] = z if rises else -z


@kernel
def mass_alone(crossings: Floats, count: int, low: float, above: int) -> float:
    """Return the probability that \\|z\\| is above ``low`` and all lines above are left out there.

    Each is left out with probability ½; ``above`` are so at ``low``. The crossings are put back
    to 0.
    """
    found, reached = 0.0, math.erfc(low * math.sqrt(0.5))
    for k in range(count):
        left = math.erfc(abs(crossings[k]) * math.sqrt(0.5))
        found += math.ldexp(reached - left, -above)
        above += 1 if crossings[k] > 0.0 else -1
        reached = left
        crossings[k] = 0.0
    return found + math.ldexp(reached, -above)
