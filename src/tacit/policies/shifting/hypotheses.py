"""Hypotheses of each key about when its click rates last changed, weighed by their predictions.

Bayesian averaging over run lengths (Adams, MacKay 2007; for bandits Mellor, Shapiro 2013), with at
most eight hypotheses at a time. A change may be to new rates or back to an earlier epoch's rates.
"""

# In the order of a lane's round:
# 1. ``posterior``, ``draw_hypothesis``, ``active_weight``: draw the hypothesis that decides, by weight.
# 2. ``reward_likelihood``, ``update_weights``: weigh each hypothesis by the likelihood of the reward.
# 3. ``accept_change``, ``add_recalled_epochs``, ``store_epoch``: once a newer change has more than half of
#    the weight, count it and store the counts of the epoch before it.
# 4. ``change_rate``, ``advance_round``, ``weigh_warning``: the rate of changes, and announced changes.
# 5. ``add_hypotheses``, ``set_hypothesis``: add that the rates have changed just now, in the place of the
#    lightest hypothesis.

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.core.arrays import Floats
from tacit.core.dispatch import enter, kernel
from tacit.core.state_ranges import IntCount, ValueRange
from tacit.policies.shifting.graded_rewards import Evidence
from tacit.policies.shifting.shared_priors import Priors

HYPOTHESES, EPOCHS = 8, 4
INITIAL, FRESH, RECALLED, ANNOUNCED, REVISED = 0, 1, 2, 4, 8
# Below it a hypothesis is dropped.
DROP_BELOW = 1e-12
# No reward is less likely than this, so that one never excludes all hypotheses at once.
MIN_LIKELIHOOD = 1e-100
# An epoch is stored as at most this many plays of an arm, in thousandths.
RECALLED_PLAYS, THOUSANDTHS = 60.0, 1000.0
# Prior of a key's rate of changes: one in 1000 rounds, as if 0.3 had been seen in 300.
HAZARD_FOUND, HAZARD_ROUNDS, HAZARD_MOST = 0.3, 300.0, 0.05
SPAWN_MOST = 0.5
# A warning that is less likely to be right than this is ignored.
MIN_WARNING_CHANCE, WARNED_ROUNDS = 0.002, 20
MOST_COUNTED = 2.0**23


class Hypotheses(NamedTuple):
    """State of each lane.

    Attributes
    ----------
    weight : array of float64, shape (lanes, 8)
        Posterior probability of each hypothesis; 0 for an empty place.
    counts : array of float32, shape (lanes, 8, arms, 2)
        Successes and failures of each arm since the change, and in the earlier epoch if its rates recur.
        Fractions are lost above some 10⁶. Above 8 388 608 both counts are halved, as above twice that single
        precision could add nothing to the larger one while the smaller one grew.
    born : array of int32, shape (lanes, 8)
        Round after which the rates changed; 0 for the hypothesis that they never have.
    kind : array of int8, shape (lanes, 8)
        1 if the change was to new rates, 2 if to the rates of an earlier epoch; plus 4 if a
        context announced it.
    leading : array of int8, shape (lanes,)
        The accepted hypothesis.
    rounds : array of int64, shape (lanes,)
    hazard : array of float64, shape (lanes,)
        Probability of a change since hypotheses were last added.
    found : array of int32, shape (lanes,)
        Number of accepted changes.
    warnings, announced : array of int32, shape (lanes,)
        Contexts that announced a change, and accepted changes that were announced.
    epochs : array of int8, shape (lanes,)
        Number of stored epochs.
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
    def initial(cls, lanes: int, arms: int) -> Hypotheses:
        """Return the state of lanes before the first round: all weight is on "nothing has changed"."""
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


class ChangeTotals(NamedTuple):
    """Numbers of changes and warnings over all keys; every array has shape (1,).

    Attributes
    ----------
    fresh, recalled : array of float64
        Accepted changes to new rates, and to the rates of an earlier epoch.
    warnings, announced : array of float64
        Contexts that announced a change, and accepted changes that were announced.
    """

    fresh: Floats
    recalled: Floats
    warnings: Floats
    announced: Floats


@kernel
def posterior(
    lanes: Hypotheses, priors: Priors, lane: int, h: int, arm: int, factor: float
) -> tuple[float, float]:
    """Return the parameters, a and b, of the Beta posterior of an arm under hypothesis ``h``.

    Counts are multiplied by ``factor``, the number of clicks that a play counts as. Only the hypothesis that
    nothing has changed starts with the arm's own prior; the others start with the common prior of all arms,
    as a change of all keys at once would make the arm's prior wrong.
    """
    # Row 0 is the common prior of all arms, row 1 + arm the prior of this arm.
    row = 1 + arm if lanes.kind[lane, h] == INITIAL else 0
    a = priors.beta[0, row, 0] + factor * float(lanes.counts[lane, h, arm, 0])
    b = priors.beta[0, row, 1] + factor * float(lanes.counts[lane, h, arm, 1])
    return a, b


@kernel
def draw_hypothesis(lanes: Hypotheses, lane: int, uniform: float, idle: float) -> int:
    """Return the index of the active hypothesis that ``uniform``, a draw in [0, 1), selects by weight.

    Active are those whose weight is at least ``idle``.
    """
    remaining = uniform * active_weight(lanes, lane, idle)
    last = 0
    for h in range(HYPOTHESES):
        if lanes.weight[lane, h] >= idle:
            last = h
            remaining -= lanes.weight[lane, h]
            if remaining < 0.0:
                break
    return last


@kernel
def active_weight(lanes: Hypotheses, lane: int, idle: float) -> float:
    """Return the total weight of the active hypotheses, whose weight is at least ``idle``."""
    total = 0.0
    for h in range(HYPOTHESES):
        if lanes.weight[lane, h] >= idle:
            total += lanes.weight[lane, h]
    return total


@kernel
def reward_likelihood(a: float, b: float, reward: float, scale: float) -> float:
    """Return the likelihood of a reward in [0, 1] under Beta(a, b), raised to ``scale``, the clicks it counts
    as.

    A fraction is weighed as a geometric mean of success and failure. The result is at least 1e-100.
    """
    if reward == 1.0:
        likelihood = a / (a + b)
    elif reward == 0.0:
        likelihood = b / (a + b)
    else:
        odds = reward * np.log(a) + (1.0 - reward) * np.log(b) - np.log(a + b)
        likelihood = float(np.exp(odds))
    if scale > 1.0:
        likelihood = float(np.exp(scale * np.log(likelihood)))
    return max(likelihood, MIN_LIKELIHOOD)


@kernel
def update_weights(lanes: Hypotheses, priors: Priors, lane: int, arm: int, evidence: Evidence) -> float:
    """Multiply each hypothesis's weight by its likelihood of a reward, and add the reward to its counts.

    Weights are normalized to a sum of 1, and those below 1e-12 become 0, except the accepted hypothesis's.
    Returns the sum of weights before normalization, which is the likelihood of the reward under the mixture.
    """
    total = 0.0
    hit, miss = evidence.plays * evidence.reward, evidence.plays * (1.0 - evidence.reward)
    for h in range(HYPOTHESES):
        if lanes.weight[lane, h] > 0.0:
            a, b = posterior(lanes, priors, lane, h, arm, evidence.factor)
            lanes.weight[lane, h] *= reward_likelihood(a, b, evidence.likely, evidence.clicks)
            total += lanes.weight[lane, h]
            lanes.counts[lane, h, arm, 0] = float(lanes.counts[lane, h, arm, 0]) + hit
            lanes.counts[lane, h, arm, 1] = float(lanes.counts[lane, h, arm, 1]) + miss
            # Single precision stops counting at 2²⁴; halving keeps the mean, and new rewards still count.
            if max(lanes.counts[lane, h, arm, 0], lanes.counts[lane, h, arm, 1]) > MOST_COUNTED:
                lanes.counts[lane, h, arm, 0] *= np.float32(0.5)
                lanes.counts[lane, h, arm, 1] *= np.float32(0.5)
    for h in range(HYPOTHESES):
        # Never 0 for the accepted hypothesis: its counts are stored as an epoch at the next change.
        lanes.weight[lane, h] /= total
        if lanes.weight[lane, h] < DROP_BELOW:
            lanes.weight[lane, h] = DROP_BELOW if h == lanes.leading[lane] else 0.0
    return total


@kernel
def accept_change(params: Any, state: Any, lane: int) -> None:
    """Accept a change that is newer than the accepted one and has a weight above ½; if there is none, do
    nothing.

    The counts before the change are stored as an epoch, and the change is counted for the lane and over all
    keys. After a change to new rates, hypotheses that it was to the rates of a stored epoch are added.
    """
    lanes, changes = state.own, state.shared.found
    old = lanes.leading[lane]
    new = old
    for h in range(HYPOTHESES):
        # At most one hypothesis can have more than half, so the result does not depend on their order.
        if lanes.weight[lane, h] > 0.5 and lanes.born[lane, h] > lanes.born[lane, old]:
            new = h
    kind = lanes.kind[lane, new]
    if new == old:
        return
    lanes.leading[lane] = new
    # The change was counted as one to new rates when it was accepted; now it is one to earlier rates.
    if kind & REVISED:
        changes.fresh[0] -= 1.0
        changes.recalled[0] += 1.0
        return
    lanes.found[lane] += 1
    for h in range(HYPOTHESES):
        lanes.kind[lane, h] &= ~REVISED
    if kind & ANNOUNCED:
        lanes.announced[lane] += 1
        changes.announced[0] += 1.0
    store_epoch(lanes, state.shared.priors, lane, old)
    if kind & RECALLED:
        changes.recalled[0] += 1.0
    else:
        changes.fresh[0] += 1.0
        add_recalled_epochs(params, state, lane)


@kernel
def add_recalled_epochs(params: Any, state: Any, lane: int) -> None:
    """Add hypotheses that the change just accepted was to the rates of a stored epoch, other than the latest
    one.

    Together they get the share of accepted changes that were to earlier rates; all other weights are reduced.
    With fewer than two epochs, do nothing.
    """
    lanes, changes = state.own, state.shared.found
    epochs = lanes.epochs[lane] - 1
    if epochs > 0:
        recalled_share = (0.5 + changes.recalled[0]) / (1.5 + changes.recalled[0] + changes.fresh[0])
        for h in range(HYPOTHESES):
            lanes.weight[lane, h] *= 1.0 - recalled_share
        for epoch in range(1, 1 + epochs):
            enter(params, state, lane, recalled_share / epochs, RECALLED | REVISED, epoch)


@kernel
def find_leader(lanes: Hypotheses, priors: Priors, lane: int, counts: Any, scale: float) -> int:
    """Return the arm of the highest posterior mean under the common prior.

    ``counts``, of shape (arms, 2), are successes and failures times ``scale``.
    """
    leader, best = 0, -1.0
    a, b = priors.beta[0, 0, 0], priors.beta[0, 0, 1]
    for arm in range(counts.shape[0]):
        successes = a + float(counts[arm, 0]) / scale
        mean = successes / (successes + b + float(counts[arm, 1]) / scale)
        if mean > best:
            leader, best = arm, mean
    return leader


@kernel
def store_epoch(lanes: Hypotheses, priors: Priors, lane: int, h: int) -> None:
    """Store the counts of hypothesis ``h`` as the lane's latest epoch, and move the other epochs back.

    It replaces the epoch with the same best arm or, if four are stored, the oldest one. An arm's counts are
    scaled down to at most 60 plays.
    """
    leader = find_leader(lanes, priors, lane, lanes.counts[lane, h], 1.0)
    # One epoch per best arm is stored: four suffice to recognize an intent that recurs.
    place = lanes.epochs[lane]
    for epoch in range(lanes.epochs[lane]):
        if find_leader(lanes, priors, lane, lanes.remembered[lane, epoch], THOUSANDTHS) == leader:
            place = epoch
            break
    if place == lanes.epochs[lane] and place < EPOCHS:
        lanes.epochs[lane] += 1
    arms = lanes.counts.shape[2]
    # Epochs before the replaced one move back by one place; the latest comes first.
    for epoch in range(min(place, EPOCHS - 1), 0, -1):
        for arm in range(arms):
            for k in range(2):
                lanes.remembered[lane, epoch, arm, k] = lanes.remembered[lane, epoch - 1, arm, k]
    for arm in range(arms):
        plays = float(lanes.counts[lane, h, arm, 0]) + float(lanes.counts[lane, h, arm, 1])
        scale = THOUSANDTHS * min(1.0, RECALLED_PLAYS / max(plays, 1.0))
        for k in range(2):
            # Rounded to thousandths of a play.
            part = int(scale * float(lanes.counts[lane, h, arm, k]) + 0.5)
            lanes.remembered[lane, 0, arm, k] = part


@kernel
def change_rate(lanes: Hypotheses, lane: int) -> float:
    """Return the estimated number of changes per round of the lane."""
    return float((HAZARD_FOUND + lanes.found[lane]) / (HAZARD_ROUNDS + lanes.rounds[lane]))


@kernel
def advance_round(params: Any, state: Any, lane: int, unannounced: float) -> None:
    """Count a round of the lane; every ``params.spawn`` rounds, add hypotheses that the rates changed in
    these rounds.

    Their weight is the rate of changes, at least ``params.hazard``, summed over the rounds. ``unannounced``
    is the share of changes without an announcement.
    """
    lanes = state.own
    rate = params.pace * change_rate(lanes, lane) * unannounced
    # With only eight hypotheses, none can be added every round: the probability of a change is summed over
    # the rounds between two additions.
    lanes.hazard[lane] += min(max(rate, params.hazard), HAZARD_MOST)
    lanes.rounds[lane] += 1
    if lanes.rounds[lane] % params.spawn == 0:
        add_hypotheses(params, state, lane, min(lanes.hazard[lane], SPAWN_MOST), 0)
        lanes.hazard[lane] = 0.0


@kernel
def weigh_warning(params: Any, state: Any, lane: int) -> float:
    """Count a context that announces a change, and add hypotheses of that change; return its probability.

    The probability follows from how many earlier announcements were right. If it is below 0.002, or if
    another announcement was less than 20 rounds ago, no hypotheses are added, and 0 is returned.
    """
    lanes, changes = state.own, state.shared.found
    for h in range(HYPOTHESES):
        if lanes.kind[lane, h] & ANNOUNCED and lanes.born[lane, h] + WARNED_ROUNDS > lanes.rounds[lane]:
            return 0.0
    # The share of right warnings over all keys is the prior of the share for this key.
    general = (0.5 + changes.announced[0]) / (1.0 + changes.warnings[0])
    change = (general + lanes.announced[lane]) / (1.0 + lanes.warnings[lane])
    lanes.warnings[lane] += 1
    changes.warnings[0] += 1.0
    if change < MIN_WARNING_CHANCE:
        return 0.0
    # A certain change would leave the earlier hypotheses no weight, and no way back if it was wrong.
    change = min(change, 0.98)
    add_hypotheses(params, state, lane, change, ANNOUNCED)
    return float(change)


@kernel
def add_hypotheses(params: Any, state: Any, lane: int, change: float, flag: int) -> None:
    """Add hypotheses that the rates have just changed: to new rates, and back to the rates of each stored
    epoch.

    ``change`` is the probability of the change: all other weights are multiplied by 1 − ``change``. ``flag``
    (0 or ANNOUNCED) is added to the kind of the new hypotheses.
    """
    lanes, changes = state.own, state.shared.found
    for h in range(HYPOTHESES):
        lanes.weight[lane, h] *= 1.0 - change
    epochs, recalled_share = lanes.epochs[lane], 0.0
    if epochs > 0:
        recalled_share = (0.5 + changes.recalled[0]) / (1.5 + changes.recalled[0] + changes.fresh[0])
    for epoch in range(-1, epochs):
        weight = change * (1.0 - recalled_share) if epoch < 0 else change * recalled_share / epochs
        enter(params, state, lane, weight, flag | (FRESH if epoch < 0 else RECALLED), epoch)


@kernel
def find_heaviest(lanes: Hypotheses, lane: int) -> int:
    """Return the index of the lane's hypothesis of the largest weight."""
    heaviest = 0
    for h in range(HYPOTHESES):
        if lanes.weight[lane, h] > lanes.weight[lane, heaviest]:
            heaviest = h
    return heaviest


@kernel
def find_lightest(lanes: Hypotheses, lane: int) -> int:
    """Return the index of the hypothesis of the least weight that is neither the heaviest nor accepted."""
    heaviest, lightest = find_heaviest(lanes, lane), -1
    for h in range(HYPOTHESES):
        free = h != heaviest and h != lanes.leading[lane]
        if free and (lightest < 0 or lanes.weight[lane, h] < lanes.weight[lane, lightest]):
            lightest = h
    return lightest


@kernel
def add_hypothesis(lanes: Hypotheses, lane: int, weight: float, kind: int, epoch: int) -> None:
    """Replace the lightest hypothesis by a new one, if the new one has more weight; otherwise do nothing.

    Its counts are those of the stored ``epoch``, or 0 if ``epoch`` is −1.
    """
    lightest = find_lightest(lanes, lane)
    # The number of hypotheses is fixed, so a new one must be likelier than the one that it replaces.
    if lanes.weight[lane, lightest] < weight:
        set_hypothesis(lanes, lane, lightest, weight, kind)
        for arm in range(lanes.counts.shape[2]):
            for k in range(2):
                lanes.counts[lane, lightest, arm, k] = epoch_count(lanes, lane, epoch, arm, k)


@kernel
def epoch_count(lanes: Hypotheses, lane: int, epoch: int, arm: int, k: int) -> float:
    """Return the successes (k = 0) or failures (k = 1) of an arm in a stored epoch; 0 if ``epoch`` is -1."""
    return float(lanes.remembered[lane, epoch, arm, k]) / THOUSANDTHS if epoch >= 0 else 0.0


@kernel
def set_hypothesis(lanes: Hypotheses, lane: int, h: int, weight: float, kind: int) -> None:
    """Write weight, kind and the present round to place ``h`` of a lane's hypotheses; the caller writes the
    counts.
    """
    lanes.weight[lane, h] = weight
    lanes.kind[lane, h] = kind
    lanes.born[lane, h] = 1 + lanes.rounds[lane]


@kernel
def reset_lane(lanes: Hypotheses, lane: int) -> None:
    """Reset a lane to the state before its first round, stored epochs included."""
    lanes.weight[lane] = 0.0
    lanes.weight[lane, 0] = 1.0
    lanes.kind[lane] = INITIAL
    lanes.born[lane] = 0
    lanes.counts[lane] = 0.0
    lanes.remembered[lane] = 0
    lanes.leading[lane] = 0
    lanes.rounds[lane] = 0
    lanes.hazard[lane] = 0.0
    lanes.found[lane] = 0
    lanes.warnings[lane] = 0
    lanes.announced[lane] = 0
    lanes.epochs[lane] = 0
