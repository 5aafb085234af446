"""Hypotheses of each key about when its click rates last changed, weighed by what they foretell.

Bayesian averaging over run lengths (Adams, MacKay 2007; for bandits Mellor, Shapiro 2013), with at
most eight at a time, and with rates of earlier times among what a key may have changed to.
"""

# A round of a lane walks through it from top to bottom:
# 1. ``posterior``, ``drawn``, ``deciding``: which hypothesis decides, by weight.
# 2. ``likelihood_of``, ``weigh``: how likely each made the reward.
# 3. ``believe``, ``recall``, ``remember``: a newer change is likelier than not: it is counted, the epoch
#    kept.
# 4. ``rate_of``, ``pass_round``, ``warn``: the rate of changes, and what a context announces.
# 5. ``add_hypotheses``, ``place_hypothesis``: that the rates have changed just now, in the place of the
#    lightest.

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Floats
from tacit.core.dispatch import enter, kernel
from tacit.core.state_ranges import IntCount, ValueRange
from tacit.policies.shifting.shared_priors import Priors

HYPOTHESES, EPOCHS = 8, 4
INITIAL, FRESH, RECALLED, ANNOUNCED, REVISED = 0, 1, 2, 4, 8
# Below it a hypothesis is dropped.
DROPPED = 1e-12
# No reward is less likely than this, so that one never excludes all hypotheses at once.
IMPOSSIBLE = 1e-100
# An epoch is remembered as at most so many plays of an arm, in thousandths.
RECALLED_PLAYS, THOUSANDTHS = 60.0, 1000.0
# A change every 1000 rounds is expected of a key, as if 0.3 had been seen in 300.
HAZARD_FOUND, HAZARD_ROUNDS, HAZARD_MOST = 0.3, 300.0, 0.05
SPAWN_MOST = 0.5
# A warning that is right less often than this is none.
WORTHLESS, WARNED_ROUNDS = 0.002, 20
MOST_COUNTED = 2.0**23


class Hypotheses(NamedTuple):
    """What each lane has learned.

    Attributes
    ----------
    weight : array of float64, shape (lanes, 8)
        Posterior probability of each hypothesis; 0 where there is none.
    counts : array of float32, shape (lanes, 8, arms, 2)
        Successes and failures of each arm since the change, or before it, if rates recur.
        Fractions are lost above some 10⁶; above 8 388 608 both are halved, since nothing could be
        added to one above twice that, and the other would catch up.
    born : array of int32, shape (lanes, 8)
        Round after which the rates have changed; 0 for the hypothesis that they never have.
    kind : array of int8, shape (lanes, 8)
        1 if the rates are new since, 2 if they are those of an earlier epoch; 4 more if a
        context announced it.
    leading : array of int8, shape (lanes,)
        The hypothesis that is believed.
    rounds : array of int64, shape (lanes,)
    hazard : array of float64, shape (lanes,)
        Probability of a change since hypotheses were last added.
    found : array of int32, shape (lanes,)
        Changes that were believed.
    warnings, announced : array of int32, shape (lanes,)
        Contexts that announced a change, and changes found that were announced.
    epochs : array of int8, shape (lanes,)
        How many are remembered.
    remembered : array of uint16, shape (lanes, 4, arms, 2)
        Thousandths of successes and failures in earlier epochs, the latest first.
    """

    weight: Floats
    counts: Annotated[npt.NDArray[np.float32], ValueRange(0, 2**25)]
    born: Annotated[npt.NDArray[np.int32], ValueRange(0)]
    kind: Annotated[npt.NDArray[np.int8], ValueRange(0, 127)]
    leading: Annotated[npt.NDArray[np.int8], ValueRange(0, -1, "weight")]
    rounds: IntCount
    hazard: Floats
    found: Annotated[npt.NDArray[np.int32], ValueRange(0)]
    warnings: Annotated[npt.NDArray[np.int32], ValueRange(0)]
    announced: Annotated[npt.NDArray[np.int32], ValueRange(0)]
    epochs: Annotated[npt.NDArray[np.int8], ValueRange(0, EPOCHS)]
    remembered: Annotated[npt.NDArray[np.uint16], ValueRange(0)]

    @classmethod
    def unchanged(cls, lanes: int, arms: int) -> Hypotheses:
        """Return lanes that have seen nothing, and believe that nothing has changed."""
        weight = np.zeros((lanes, HYPOTHESES))
        weight[:, 0] = 1.0
        return cls(
            weight=weight,
            counts=np.zeros((lanes, HYPOTHESES, arms, 2), np.float32),
            born=np.zeros((lanes, HYPOTHESES), np.int32),
            kind=np.zeros((lanes, HYPOTHESES), np.int8),
            leading=np.zeros(lanes, np.int8),
            rounds=np.zeros(lanes, np.int64),
            hazard=np.zeros(lanes),
            found=np.zeros(lanes, np.int32),
            warnings=np.zeros(lanes, np.int32),
            announced=np.zeros(lanes, np.int32),
            epochs=np.zeros(lanes, np.int8),
            remembered=np.zeros((lanes, EPOCHS, arms, 2), np.uint16),
        )


class ChangesFound(NamedTuple):
    """What changes were like, of all keys; every array has shape (1,).

    Attributes
    ----------
    fresh, recalled : array of float64
        Changes to new rates, and to those of an earlier epoch.
    warnings, announced : array of float64
        Contexts that announced a change, and changes found that were announced.
    """

    fresh: Floats
    recalled: Floats
    warnings: Floats
    announced: Floats


@kernel
def posterior(own: Hypotheses, priors: Priors, lane: int, h: int, arm: int) -> tuple[float, float]:
    """Return the parameters of the Beta posterior of an arm under a hypothesis.

    Only that nothing has changed begins with the arm's own prior: a change of all keys at once
    would make it wrong.
    """
    # Row 0 is the prior of any arm, row 1 + arm that of this one.
    row = 1 + arm if own.kind[lane, h] == INITIAL else 0
    a = priors.beta[0, row, 0] + float(own.counts[lane, h, arm, 0])
    b = priors.beta[0, row, 1] + float(own.counts[lane, h, arm, 1])
    return a, b


@kernel
def drawn(own: Hypotheses, lane: int, uniform: float, idle: float) -> int:
    """Return a hypothesis, drawn by weight among those that decide."""
    left = uniform * deciding(own, lane, idle)
    last = 0
    for h in range(HYPOTHESES):
        if own.weight[lane, h] >= idle:
            last = h
            left -= own.weight[lane, h]
            if left < 0.0:
                break
    return last


@kernel
def deciding(own: Hypotheses, lane: int, idle: float) -> float:
    """Return the weight of the hypotheses that decide: of at least ``idle``."""
    total = 0.0
    for h in range(HYPOTHESES):
        if own.weight[lane, h] >= idle:
            total += own.weight[lane, h]
    return total


@kernel
def likelihood_of(a: float, b: float, reward: float, scale: float) -> float:
    """Return how likely Beta(a, b) makes a reward that tells as much as ``scale`` clicks."""
    if reward == 1.0:
        likelihood = a / (a + b)
    elif reward == 0.0:
        likelihood = b / (a + b)
    else:
        odds = reward * np.log(a) + (1.0 - reward) * np.log(b) - np.log(a + b)
        likelihood = float(np.exp(odds))
    if scale > 1.0:
        likelihood = float(np.exp(scale * np.log(likelihood)))
    return max(likelihood, IMPOSSIBLE)


@kernel
def weigh(own: Hypotheses, priors: Priors, lane: int, arm: int, reward: float, scale: float) -> float:
    """Weigh each hypothesis by how likely it made a reward, and count the reward for it.

    Returns how likely all of them made it.
    """
    total = 0.0
    for h in range(HYPOTHESES):
        if own.weight[lane, h] > 0.0:
            a, b = posterior(own, priors, lane, h, arm)
            own.weight[lane, h] *= likelihood_of(a, b, reward, scale)
            total += own.weight[lane, h]
            own.counts[lane, h, arm, 0] = float(own.counts[lane, h, arm, 0]) + scale * reward
            own.counts[lane, h, arm, 1] = float(own.counts[lane, h, arm, 1]) + scale * (1.0 - reward)
            # Single precision stops counting at 2²⁴; halved, the mean stays and new rewards still count.
            if max(own.counts[lane, h, arm, 0], own.counts[lane, h, arm, 1]) > MOST_COUNTED:
                own.counts[lane, h, arm, 0] *= np.float32(0.5)
                own.counts[lane, h, arm, 1] *= np.float32(0.5)
    for h in range(HYPOTHESES):
        # Never 0 for the one that is believed: the epoch that is remembered is its.
        own.weight[lane, h] /= total
        if own.weight[lane, h] < DROPPED:
            own.weight[lane, h] = DROPPED if h == own.leading[lane] else 0.0
    return total


@kernel
def believe(params: Any, state: Any, lane: int) -> None:
    """If a newer change than the one believed is likelier than not, believe it."""
    own, found = state.own, state.shared.found
    old = own.leading[lane]
    new = old
    for h in range(HYPOTHESES):
        # More than half: at most one hypothesis can have it, so what is believed is not a matter of order.
        if own.weight[lane, h] > 0.5 and own.born[lane, h] > own.born[lane, old]:
            new = h
    kind = own.kind[lane, new]
    if new == old:
        return
    own.leading[lane] = new
    # Counted as a change when it was found; now it is known that it was one to earlier rates.
    if kind & REVISED:
        found.fresh[0] -= 1.0
        found.recalled[0] += 1.0
        return
    own.found[lane] += 1
    for h in range(HYPOTHESES):
        own.kind[lane, h] &= ~REVISED
    if kind & ANNOUNCED:
        own.announced[lane] += 1
        found.announced[0] += 1.0
    remember(own, state.shared.priors, lane, old)
    if kind & RECALLED:
        found.recalled[0] += 1.0
    else:
        found.fresh[0] += 1.0
        recall(params, state, lane)


@kernel
def recall(params: Any, state: Any, lane: int) -> None:
    """Add that a change just found was to an earlier epoch's rates, but the last one's."""
    own, found = state.own, state.shared.found
    epochs = own.epochs[lane] - 1
    if epochs > 0:
        again = (0.5 + found.recalled[0]) / (1.5 + found.recalled[0] + found.fresh[0])
        for h in range(HYPOTHESES):
            own.weight[lane, h] *= 1.0 - again
        for epoch in range(1, 1 + epochs):
            enter(params, state, lane, again / epochs, RECALLED | REVISED, epoch)


@kernel
def leader_of(own: Hypotheses, priors: Priors, lane: int, counts: Any, scale: float) -> int:
    """Return the arm of the highest mean among counts in so many parts of a play."""
    leader, best = 0, -1.0
    a, b = priors.beta[0, 0, 0], priors.beta[0, 0, 1]
    for arm in range(counts.shape[0]):
        successes = a + float(counts[arm, 0]) / scale
        mean = successes / (successes + b + float(counts[arm, 1]) / scale)
        if mean > best:
            leader, best = arm, mean
    return leader


@kernel
def remember(own: Hypotheses, priors: Priors, lane: int, h: int) -> None:
    """Put counts at the front of what is remembered, for the epoch of the same best arm, or for
    the oldest."""
    leader = leader_of(own, priors, lane, own.counts[lane, h], 1.0)
    # One epoch is kept for each best arm: an intent that recurs is found again, and four suffice.
    place = own.epochs[lane]
    for e in range(own.epochs[lane]):
        if leader_of(own, priors, lane, own.remembered[lane, e], THOUSANDTHS) == leader:
            place = e
            break
    if place == own.epochs[lane] and place < EPOCHS:
        own.epochs[lane] += 1
    arms = own.counts.shape[2]
    for e in range(min(place, EPOCHS - 1), 0, -1):
        for arm in range(arms):
            for k in range(2):
                own.remembered[lane, e, arm, k] = own.remembered[lane, e - 1, arm, k]
    for arm in range(arms):
        plays = float(own.counts[lane, h, arm, 0]) + float(own.counts[lane, h, arm, 1])
        scale = THOUSANDTHS * min(1.0, RECALLED_PLAYS / max(plays, 1.0))
        for k in range(2):
            part = int(scale * float(own.counts[lane, h, arm, k]) + 0.5)
            own.remembered[lane, 0, arm, k] = part


@kernel
def rate_of(own: Hypotheses, lane: int) -> float:
    """Return how many changes a round of the lane brings, by what was found."""
    return float((HAZARD_FOUND + own.found[lane]) / (HAZARD_ROUNDS + own.rounds[lane]))


@kernel
def pass_round(params: Any, state: Any, lane: int, unannounced: float) -> None:
    """Count a round of the lane, in which the rates may have changed, as far as nothing announces it.

    They do at a rate of ``params.hazard`` or more; hypotheses are added every ``params.spawn`` rounds.
    """
    own = state.own
    rate = params.pace * rate_of(own, lane) * unannounced
    # The probability gathers over the rounds between two additions: eight hypotheses cannot begin every
    # round.
    own.hazard[lane] += min(max(rate, params.hazard), HAZARD_MOST)
    own.rounds[lane] += 1
    if own.rounds[lane] % params.spawn == 0:
        add_hypotheses(params, state, lane, min(own.hazard[lane], SPAWN_MOST), 0)
        own.hazard[lane] = 0.0


@kernel
def warn(params: Any, state: Any, lane: int) -> float:
    """Take in a context that announces a change, as far as such were right before: return how far.

    So soon after another one it would only crowd out what was added then.
    """
    own, found = state.own, state.shared.found
    for h in range(HYPOTHESES):
        if own.kind[lane, h] & ANNOUNCED and own.born[lane, h] + WARNED_ROUNDS > own.rounds[lane]:
            return 0.0
    # How right warnings were for all keys is the prior of how right they are for this one.
    general = (0.5 + found.announced[0]) / (1.0 + found.warnings[0])
    change = (general + own.announced[lane]) / (1.0 + own.warnings[lane])
    own.warnings[lane] += 1
    found.warnings[0] += 1.0
    if change < WORTHLESS:
        return 0.0
    # Something is left for what was believed: a certain warning would leave no way back.
    change = min(change, 0.98)
    add_hypotheses(params, state, lane, change, ANNOUNCED)
    return float(change)


@kernel
def add_hypotheses(params: Any, state: Any, lane: int, change: float, flag: int) -> None:
    """Add that the rates have just changed with some probability, to new or to earlier ones."""
    own, found = state.own, state.shared.found
    for h in range(HYPOTHESES):
        own.weight[lane, h] *= 1.0 - change
    epochs, again = own.epochs[lane], 0.0
    if epochs > 0:
        again = (0.5 + found.recalled[0]) / (1.5 + found.recalled[0] + found.fresh[0])
    for epoch in range(-1, epochs):
        weight = change * (1.0 - again) if epoch < 0 else change * again / epochs
        enter(params, state, lane, weight, flag | (FRESH if epoch < 0 else RECALLED), epoch)


@kernel
def heaviest_of(own: Hypotheses, lane: int) -> int:
    """Return the hypothesis of most weight."""
    heaviest = 0
    for h in range(HYPOTHESES):
        if own.weight[lane, h] > own.weight[lane, heaviest]:
            heaviest = h
    return heaviest


@kernel
def lightest_of(own: Hypotheses, lane: int) -> int:
    """Return the hypothesis of least weight that is neither the heaviest nor believed."""
    heaviest, lightest = heaviest_of(own, lane), -1
    for h in range(HYPOTHESES):
        free = h != heaviest and h != own.leading[lane]
        if free and (lightest < 0 or own.weight[lane, h] < own.weight[lane, lightest]):
            lightest = h
    return lightest


@kernel
def add_hypothesis(own: Hypotheses, lane: int, weight: float, kind: int, epoch: int) -> None:
    """Put a hypothesis in the place of the lightest, unless that is heavier or believed."""
    lightest = lightest_of(own, lane)
    # The number of hypotheses is fixed, so a new one must be likelier than what it replaces.
    if own.weight[lane, lightest] < weight:
        place_hypothesis(own, lane, lightest, weight, kind)
        for arm in range(own.counts.shape[2]):
            for k in range(2):
                own.counts[lane, lightest, arm, k] = remembered_of(own, lane, epoch, arm, k)


@kernel
def remembered_of(own: Hypotheses, lane: int, epoch: int, arm: int, k: int) -> float:
    """Return the successes or failures of an arm in an earlier epoch; 0 where ``epoch`` is -1."""
    return float(own.remembered[lane, epoch, arm, k]) / THOUSANDTHS if epoch >= 0 else 0.0


@kernel
def place_hypothesis(own: Hypotheses, lane: int, h: int, weight: float, kind: int) -> None:
    """Put a hypothesis at a place, its counts still to be filled in."""
    own.weight[lane, h] = weight
    own.kind[lane, h] = kind
    own.born[lane, h] = 1 + own.rounds[lane]


@kernel
def forget_lane(own: Hypotheses, lane: int) -> None:
    """Let a lane begin anew."""
    own.weight[lane] = 0.0
    own.weight[lane, 0] = 1.0
    own.kind[lane] = INITIAL
    own.born[lane] = 0
    own.counts[lane] = 0.0
    own.remembered[lane] = 0
    own.leading[lane] = 0
    own.rounds[lane] = 0
    own.hazard[lane] = 0.0
    own.found[lane] = 0
    own.warnings[lane] = 0
    own.announced[lane] = 0
    own.epochs[lane] = 0
