"""A bandit that weighs a warning instead of believing it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tacit import checks
from tacit.arrays import Floats, Generator, Ints
from tacit.classifiers import Classifier
from tacit.dispatch import kernel, learn_false, predict
from tacit.errors import InvalidValue
from tacit.policies.base import About, Impression, Policy
from tacit.policies.kl_ucb import kl_upper_bound

BASES = ("thompson", "kl-ucb")
THOMPSON, KL_UCB = range(2)

# Odds of e⁴ = 55 to 1 end a probation.
SURE = 4.0


class Lanes(NamedTuple):
    """What each lane has learned, and where it stands in its probation.

    Attributes
    ----------
    old, new : array of float64, shape (lanes, arms, 2)
        Rewards and missed rewards before the present probation, and in it.
    factor : array of float64, shape (lanes, arms)
        Logarithm of the Bayes factor for "this arm has changed".
    odds : array of float64, shape (lanes,)
        Logarithm of the prior odds of an event at the start of the probation.
    length : array of int64, shape (lanes,)
        Rounds of the probation that were learned.
    warned : array of int64, shape (lanes,)
        1 if a warning began the probation, 0 if it is one of those that run all the time, −1
        before the first round.
    restarts : array of int64, shape (lanes,)
    context : array of float64, shape (lanes, dim)
        Of the warning.
    """

    old: Floats
    new: Floats
    factor: Floats
    odds: Floats
    length: Ints
    warned: Ints
    restarts: Ints
    context: Floats


@kernel
def event_odds(params: Any, lanes: Lanes, lane: int) -> float:
    """Give the logarithm of the posterior odds of an event."""
    total = lanes.odds[lane]
    for arm in range(lanes.factor.shape[1]):
        change = np.exp(min(lanes.factor[lane, arm], 600.0))
        total += np.log(params.changes * change + 1.0 - params.changes)
    return float(total)


@kernel
def change_probability(params: Any, factor: float) -> float:
    """Give the probability that an arm has changed, given an event."""
    change = params.changes * np.exp(min(factor, 600.0))
    return float(change / (change + 1.0 - params.changes))


@kernel
def begin_probation(lanes: Lanes, lane: int, odds: float, warned: int) -> None:
    """Start to count anew beside the old counts, after adding what was new to the old."""
    lanes.old[lane] += lanes.new[lane]
    lanes.new[lane] = 0.0
    lanes.factor[lane] = 0.0
    lanes.odds[lane] = odds
    lanes.length[lane] = 0
    lanes.warned[lane] = warned


@kernel
def believe(params: Any, lanes: Lanes, lane: int) -> None:
    """Let the arms that have changed forget what they were, and start over."""
    for arm in range(lanes.factor.shape[1]):
        if change_probability(params, lanes.factor[lane, arm]) > 0.5:
            lanes.old[lane, arm, :] = 0.0
    lanes.restarts[lane] += 1


@dataclass(frozen=True)
class ProbationBandit(Policy):
    """Weigh whether intent has shifted, round by round, and act on the odds.

    After a warning (a context that the classifier takes for an event) the counts so far are
    kept, and new ones are begun beside them. Two explanations compete: nothing has changed, or
    there was an event, in which each arm changed with probability ``changes``. What an arm does
    from then on moves the Bayes factor between its old and its new counts. For each decision an
    explanation is drawn from the posterior, so a warning costs only as much exploration as it is
    worth; once one explanation has won, the counts are merged or the changed arms' old ones
    dropped. The warnings' own record sets their prior odds. Between warnings the same test
    runs all the time at long odds, so that events without a warning are found from the clicks
    alone. A context is labelled false, for the classifier, only on evidence from the clicks.

    Decisions carry no propensity: it would sum over all subsets of the arms.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    classifier : Classifier
        What warns, such as ``Rectangle(dim=2, margin=0.1)``.
    base : str, default "thompson"
        How arms are ranked under the drawn explanation: ``thompson`` or ``kl-ucb``.
    patience : int, default 600
        Most rounds of a probation after a warning; at least 2.
    window : int, default 300
        Rounds of a probation without a warning; at least 2.
    changes : float, default 0.8
        Probability with which an event changes an arm, in (0, 1).
    surprise : float, default 0.001
        Prior probability of an event in a window without a warning, in (0, 0.5].
    trust : float, default 0.25
        Least prior probability of an event after a warning, however often warnings were wrong;
        in (0, 0.5].
    evidence : float, default 7.5
        Bayes factor against an event from which on a warning's context is labelled false; at
        least 1.
    per_key : bool, default False
        Whether each key has a classifier of its own, instead of one for all.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    Ours. Syed, Slivkins, Mishra (2009), section 9, asks for resilience against wrong labels and
    missed events. The defaults were chosen on simulated shifts; nothing is proved.

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.ShiftingArms(arms=3, events=5, dim=2, announced=True)
    >>> rectangle = tacit.Rectangle(dim=2, margin=0.1)
    >>> weighing = tacit.ProbationBandit(arms=3, classifier=rectangle)
    >>> result = tacit.simulate([weighing, tacit.Thompson(arms=3)], environment, 20_000, runs=10)
    >>> result.compare(0, 1).difference < 0
    True
    """

    class Params(NamedTuple):
        base: int
        classifier: Any
        patience: int
        window: int
        changes: float
        surprise: float
        trust: float
        evidence: float
        shared: bool

    class State(NamedTuple):
        lanes: Lanes
        classifier: Any
        record: Floats  # (1, 2) warnings that were right, and that were wrong

    about: ClassVar[About] = About(
        source="ours; the setting is that of Syed, Slivkins, Mishra (2009), section 9",
        regret="none proved",
        assumes="clicks that are stationary between abrupt events",
        otherwise="Thompson with a discount where intent drifts",
    )

    arms: Any
    classifier: Classifier = field(kw_only=True)
    base: str = field(default="thompson", kw_only=True)
    patience: int = field(default=600, kw_only=True)
    window: int = field(default=300, kw_only=True)
    changes: float = field(default=0.8, kw_only=True)
    surprise: float = field(default=1e-3, kw_only=True)
    trust: float = field(default=0.25, kw_only=True)
    evidence: float = field(default=7.5, kw_only=True)
    per_key: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.classifier, Classifier):
            remedy = "give a safe classifier, such as Rectangle(dim=2, margin=0.1)"
            raise InvalidValue("classifier", self.classifier, remedy)
        if self.base not in BASES:
            raise InvalidValue("base", self.base, f"give one of {', '.join(BASES)}")
        self._set("patience", checks.integer("patience", self.patience, 2, 2**40))
        self._set("window", checks.integer("window", self.window, 2, 2**40))
        self._set("changes", checks.number("changes", self.changes, 1e-6, 1 - 1e-6))
        self._set("surprise", checks.number("surprise", self.surprise, 1e-12, 0.5))
        self._set("trust", checks.number("trust", self.trust, 1e-12, 0.5))
        self._set("evidence", checks.number("evidence", self.evidence, 1.0, 1e12))

    @property
    def context_dim(self) -> int:
        return self.classifier.dim

    @cached_property
    def params(self) -> Params:
        return self.Params(
            BASES.index(self.base),
            self.classifier.params,
            self.patience,
            self.window,
            self.changes,
            math.log(self.surprise / (1.0 - self.surprise)),
            math.log(self.trust / (1.0 - self.trust)),
            math.log(self.evidence),
            not self.per_key,
        )

    def init(self, lanes: int) -> State:
        arms, dim = self.arm_count, self.classifier.dim
        state = Lanes(
            old=np.zeros((lanes, arms, 2)),
            new=np.zeros((lanes, arms, 2)),
            factor=np.zeros((lanes, arms)),
            odds=np.full(lanes, -np.inf),
            length=np.zeros(lanes, np.int64),
            warned=np.full(lanes, -1, np.int64),
            restarts=np.zeros(lanes, np.int64),
            context=np.zeros((lanes, dim)),
        )
        rows = lanes if self.per_key else 1
        return self.State(state, self.classifier.init(rows), np.ones((1, 2)))

    @staticmethod
    def observe(params: Params, state: State, lane: int, impression: Impression) -> None:
        lanes = state.lanes
        context = impression.context[: lanes.context.shape[1]]
        row = 0 if params.shared else lane
        if lanes.warned[lane] <= 0 and predict(params.classifier, state.classifier, row, context):
            odds = max(np.log(state.record[0, 0] / state.record[0, 1]), params.trust)
            begin_probation(lanes, lane, odds, 1)
            lanes.context[lane, :] = context

    @staticmethod
    def choose(
        params: Params, state: State, lane: int, impression: Impression, rng: Generator
    ) -> int:
        lanes = state.lanes
        odds = event_odds(params, lanes, lane)
        event = rng.random() < 1.0 / (1.0 + np.exp(-odds))
        total = 0.0
        if params.base == KL_UCB:
            for i in range(len(impression.arms)):
                arm = impression.arms[i]
                for k in range(2):
                    total += lanes.old[lane, arm, k] + lanes.new[lane, arm, k]
        best, leader, ties = -1.0, -1, 0.0
        for i in range(len(impression.arms)):
            arm = impression.arms[i]
            successes, failures = lanes.new[lane, arm, 0], lanes.new[lane, arm, 1]
            changed = event and rng.random() < change_probability(params, lanes.factor[lane, arm])
            if not changed:
                successes += lanes.old[lane, arm, 0]
                failures += lanes.old[lane, arm, 1]
            if params.base == THOMPSON:
                score = rng.beta(1.0 + successes, 1.0 + failures)
            elif successes + failures == 0.0:
                score = 2.0
            else:
                plays = successes + failures
                score = kl_upper_bound(successes / plays, np.log(total + 1.0) / plays)
            if score > best:
                best, leader, ties = score, arm, 1.0
            elif score == best:
                ties += 1.0
                if rng.random() * ties < 1.0:
                    leader = arm
        return int(leader)

    @staticmethod
    def learn(
        params: Params,
        state: State,
        lane: int,
        impression: Impression,
        arm: int,
        reward: float,
        propensity: float,
    ) -> None:
        lanes = state.lanes
        new = lanes.new[lane, arm]
        old = lanes.old[lane, arm]
        plays, before = new[0] + new[1], old[0] + old[1]
        fresh = (1.0 + new[0]) / (2.0 + plays)
        steady = (1.0 + new[0] + old[0]) / (2.0 + plays + before)
        lanes.factor[lane, arm] += reward * np.log(fresh / steady) + (1.0 - reward) * np.log(
            (1.0 - fresh) / (1.0 - steady)
        )
        lanes.new[lane, arm, 0] += reward
        lanes.new[lane, arm, 1] += 1.0 - reward
        lanes.length[lane] += 1
        odds = event_odds(params, lanes, lane)
        warned = lanes.warned[lane] == 1
        over = lanes.length[lane] >= (params.patience if warned else params.window)
        if odds > SURE or (over and odds > 0.0):
            if warned:
                state.record[0, 0] += 1.0
            believe(params, lanes, lane)
            begin_probation(lanes, lane, params.surprise, 0)
        elif over or (warned and odds < -SURE):
            if warned:
                state.record[0, 1] += 1.0
                if lanes.odds[lane] - odds > params.evidence:
                    row = 0 if params.shared else lane
                    learn_false(params.classifier, state.classifier, row, lanes.context[lane])
            begin_probation(lanes, lane, params.surprise, 0)

    @staticmethod
    def epoch(params: Params, state: State, lane: int) -> int:
        return int(state.lanes.restarts[lane])
