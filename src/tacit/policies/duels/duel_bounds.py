"""Which arms surely lose to which: confidence bounds on all pairs, kept up in O(K) a duel.

Arm i surely loses to arm j in round t if its upper confidence bound is below one half,

    w(i, j)/n + sqrt(α·ln t/n) < 1/2,  that is  ln t < (w(j, i) − w(i, j))²/(4·α·n).

The right side changes with the pair's own duels only. It says until when the verdict will stand,
so a round looks again at the arms whose verdicts have run out, not at all pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats
from tacit.core.dispatch import kernel
from tacit.policies.base import Impression


class Bounds(NamedTuple):
    """Wins of all pairs, and the verdicts on them.

    Attributes
    ----------
    wins : array of float64, shape (lanes, arms, arms)
        How often the row's arm beat the column's; a tie is half a win for both.
    lost : array of float64, shape (lanes, arms, arms)
        1 where the row's arm surely loses to the column's, else 0.
    losses : array of float64, shape (lanes, arms)
        To how many others an arm surely loses.
    until : array of float64, shape (lanes, arms)
        No verdict on the arm's losses runs out while ln t is below this.
    soonest : array of float64, shape (lanes,)
        The least of these.
    rounds : array of float64, shape (lanes,)
    """

    wins: Floats
    lost: Floats
    losses: Floats
    until: Floats
    soonest: Floats
    rounds: Floats

    @classmethod
    def zeros(cls, lanes: int, arms: int) -> Bounds:
        """Return the bounds of lanes that have seen nothing."""
        pairs = (lanes, arms, arms)
        return cls(
            np.zeros(pairs),
            np.zeros(pairs),
            np.zeros((lanes, arms)),
            np.full((lanes, arms), np.inf),
            np.full(lanes, np.inf),
            np.zeros(lanes),
        )


@kernel
def log_round(bounds: Bounds, lane: int) -> float:
    """Return ln t of the coming round."""
    return float(np.log(bounds.rounds[lane] + 1.0))


@kernel
def judge(bounds: Bounds, lane: int, alpha: float, arm: int, other: int, now: float) -> None:
    """Decide anew whether ``arm`` surely loses to ``other``."""
    won, lost = bounds.wins[lane, arm, other], bounds.wins[lane, other, arm]
    verdict = 0.0
    if lost > won:
        until = (lost - won) * (lost - won) / (4.0 * alpha * (lost + won))
        if now < until:
            verdict = 1.0
            bounds.until[lane, arm] = min(bounds.until[lane, arm], until)
            bounds.soonest[lane] = min(bounds.soonest[lane], until)
    bounds.losses[lane, arm] += verdict - bounds.lost[lane, arm, other]
    bounds.lost[lane, arm, other] = verdict


@kernel
def review(bounds: Bounds, lane: int, alpha: float, now: float) -> None:
    """Look again at the arms of which a verdict may have run out."""
    bounds.soonest[lane] = np.inf
    for arm in range(bounds.losses.shape[1]):
        if bounds.until[lane, arm] <= now:
            bounds.until[lane, arm] = np.inf
            for other in range(bounds.losses.shape[1]):
                if bounds.lost[lane, arm, other] > 0.0:
                    judge(bounds, lane, alpha, arm, other, now)
        bounds.soonest[lane] = min(bounds.soonest[lane], bounds.until[lane, arm])


@kernel
def record_duel(bounds: Bounds, lane: int, alpha: float, left: int, right: int, outcome: float) -> bool:
    """Count a round and its outcome; say whether all verdicts surely stand.

    An arm's duel against itself tells nothing.
    """
    bounds.rounds[lane] += 1.0
    now = log_round(bounds, lane)
    if left != right:
        bounds.wins[lane, left, right] += outcome
        bounds.wins[lane, right, left] += 1.0 - outcome
        judge(bounds, lane, alpha, left, right, now)
        judge(bounds, lane, alpha, right, left, now)
    if now >= bounds.soonest[lane]:
        review(bounds, lane, alpha, now)
        return False
    return left == right


@kernel
def sure_losses(bounds: Bounds, lane: int, impression: Impression, arm: int) -> float:
    """Return to how many of the arms on offer ``arm`` surely loses."""
    if len(impression.arms) == bounds.losses.shape[1]:
        return float(bounds.losses[lane, arm])
    count = 0.0
    for other in impression.arms:
        count += bounds.lost[lane, arm, other]
    return count
