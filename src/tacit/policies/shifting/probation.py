"""A bandit that weighs a warning instead of believing it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.classifiers import Classifier, Rectangle
from tacit.core import checks
from tacit.core.arrays import Floats, Generator, Ints
from tacit.core.dispatch import kernel, learn_false, predict
from tacit.errors import InvalidValue
from tacit.policies.base import About, Impression, Outcome, Policy
from tacit.policies.stationary.kl_ucb import kl_upper_bound

BASES = ("thompson", "kl-ucb")
THOMPSON, KL_UCB = range(2)

QUIET, WARNED, SORTING = range(3)

# Below this probability of an event a warning is not tried; at half of it a probation ends.
LEAST = 0.02
# From this probability on an event is certain, and its arms are sorted for so many rounds more.
CERTAIN, SORTED = 0.95, 60
# Posterior odds at which an arm has changed without a warning.
COMMIT = 5.0
# Bayes factor, as a logarithm, at which an arm's new counts join the old.
RENEWAL = -1.5
# Share of the events that change all arms in which the arm being played shows nothing.
UNSEEN = 0.03
# How fast the rate of warnings forgets, per warning: the classifier learns, and warns less.
FORGET = 0.7
# Weights of the priors, as numbers of events.
ANNOUNCED_WEIGHT, SURPRISE_WEIGHT, LANE_WEIGHT = 3.0, 0.1, 0.3
WHOLE_WEIGHT, SINGLE_WEIGHT = 1.0, 0.5


class Lanes(NamedTuple):
    """What each lane has learned, and where it stands.

    Attributes
    ----------
    old, new : array of float64, shape (lanes, arms, 2)
        Rewards and missed rewards before the present window of the arm, and in it.
    factor : array of float64, shape (lanes, arms)
        Logarithm of the Bayes factor for "this arm has changed", of the new counts.
    start : array of float64, shape (lanes, arms)
        The lane's round before the window.
    rounds : array of float64, shape (lanes,)
    found, due : array of float64, shape (lanes,)
        Events found, and those that the rates of all lanes made expect; sums of probabilities.
    prior : array of float64, shape (lanes,)
        Prior probability of the event that is being weighed.
    mode : array of int64, shape (lanes,)
        0 if quiet, 1 in a probation after a warning, 2 after an arm has changed without one.
    length : array of int64, shape (lanes,)
        Rounds of the mode that were learned.
    restarts : array of int64, shape (lanes,)
    context : array of float64, shape (lanes, dim)
        Of the warning.
    """

    old: Floats
    new: Floats
    factor: Floats
    start: Floats
    rounds: Floats
    found: Floats
    due: Floats
    prior: Floats
    mode: Ints
    length: Ints
    restarts: Ints
    context: Floats


class Record(NamedTuple):
    """What the events so far have taught, of all lanes or of each.

    Attributes
    ----------
    rounds : array of float64, shape (rows,)
    warnings, span : array of float64, shape (rows,)
        Warnings, and rounds in which they came; both fade with each warning.
    announced, surprises : array of float64, shape (rows,)
        Events with a warning (a sum of probabilities) and without.
    whole, single : array of float64, shape (rows,)
        Events that changed all arms, and that changed one; sums of probabilities.
    """

    rounds: Floats
    warnings: Floats
    span: Floats
    announced: Floats
    surprises: Floats
    whole: Floats
    single: Floats


class Odds(NamedTuple):
    """Posterior weights of three explanations; they need not add up to 1."""

    whole: float
    single: float
    nothing: float


@kernel
def propensity_to_shift(lanes: Lanes, lane: int) -> float:
    """Return how many times more often the lane has events than all lanes on average."""
    found, due = LANE_WEIGHT + lanes.found[lane], LANE_WEIGHT + lanes.due[lane]
    return float(min(found / due, 20.0))


@kernel
def surprise_rate(params: Any, record: Record, row: int) -> float:
    """Return the rate of events without a warning, per round of any lane."""
    rounds = SURPRISE_WEIGHT / params.surprise + record.rounds[row]
    return float((SURPRISE_WEIGHT + record.surprises[row]) / rounds)


@kernel
def whole_share(record: Record, row: int) -> float:
    """Return the share of the events that change all arms."""
    whole = WHOLE_WEIGHT + record.whole[row]
    return float(whole / (whole + SINGLE_WEIGHT + record.single[row]))


@kernel
def bayes_factor(lanes: Lanes, lane: int, arm: int) -> float:
    """Return the Bayes factor for a change of the arm, kept finite."""
    return float(np.exp(min(lanes.factor[lane, arm], 100.0)))


@kernel
def weigh(params: Any, state: Any, lane: int) -> Odds:
    """Weigh "all arms changed", "one arm changed" and "nothing changed"."""
    lanes = state.lanes
    share = whole_share(state.record, 0 if params.shared else lane)
    arms = lanes.factor.shape[1]
    prior, together, one = lanes.prior[lane], 0.0, 0.0
    for arm in range(arms):
        factor = bayes_factor(lanes, lane, arm)
        together += np.log(params.changes * factor + 1.0 - params.changes)
        one += factor
    whole = prior * share * np.exp(min(together, 300.0))
    single = prior * (1.0 - share) * one / arms if lanes.mode[lane] == WARNED else 0.0
    return Odds(float(whole), float(single), float(1.0 - prior))


@kernel
def merge_counts(lanes: Lanes, lane: int, arm: int) -> None:
    """Add what is new of an arm to the old, and begin its next window."""
    for k in range(2):
        lanes.old[lane, arm, k] += lanes.new[lane, arm, k]
        lanes.new[lane, arm, k] = 0.0
    lanes.factor[lane, arm] = 0.0
    lanes.start[lane, arm] = lanes.rounds[lane]


@kernel
def forget_old(lanes: Lanes, lane: int, arm: int) -> None:
    """Keep of an arm only what is new."""
    lanes.old[lane, arm, 0] = 0.0
    lanes.old[lane, arm, 1] = 0.0
    lanes.factor[lane, arm] = 0.0


@kernel
def enter(lanes: Lanes, lane: int, mode: int, prior: float) -> None:
    """Begin a mode, with a prior probability of what is weighed in it."""
    lanes.mode[lane] = mode
    lanes.prior[lane] = prior
    lanes.length[lane] = 0


@kernel
def note_outcome(params: Any, state: Any, lane: int, odds: Odds) -> None:
    """Enter what came of a probation or a surprise in the record; label the context."""
    lanes, record = state.lanes, state.record
    row = 0 if params.shared else lane
    if lanes.mode[lane] == SORTING:
        changed_all = odds.whole / (odds.whole + odds.nothing)
        record.whole[row] += changed_all
        record.single[row] += 1.0 - changed_all
        return
    changed = odds.whole + odds.single
    event = changed / (changed + odds.nothing)
    record.announced[row] += event
    lanes.found[lane] += event
    if event > 0.5:
        record.whole[row] += odds.whole / changed
        record.single[row] += odds.single / changed
    if event < params.excluded:
        learn_false(params.classifier, state.classifier, row, lanes.context[lane])


@kernel
def settle(params: Any, state: Any, lane: int) -> None:
    """End a mode: the arms that have probably changed start over, the others go on."""
    lanes = state.lanes
    odds = weigh(params, state, lane)
    note_outcome(params, state, lane, odds)
    total = odds.whole + odds.single + odds.nothing
    factors = 0.0
    for arm in range(lanes.factor.shape[1]):
        factors += bayes_factor(lanes, lane, arm)
    restarted = False
    for arm in range(lanes.factor.shape[1]):
        factor = bayes_factor(lanes, lane, arm)
        change = params.changes * factor
        changed = odds.whole * change / (change + 1.0 - params.changes)
        changed += odds.single * factor / factors
        if changed > 0.5 * total:
            forget_old(lanes, lane, arm)
            restarted = True
        merge_counts(lanes, lane, arm)
    if restarted:
        lanes.restarts[lane] += 1
    enter(lanes, lane, QUIET, 0.0)


@kernel
def draw_single(lanes: Lanes, lane: int, uniform: float) -> int:
    """Draw which arm changed, given that one did."""
    last = lanes.factor.shape[1] - 1
    total = 0.0
    for arm in range(last + 1):
        total += bayes_factor(lanes, lane, arm)
    left = uniform * total
    for arm in range(last):
        left -= bayes_factor(lanes, lane, arm)
        if left < 0.0:
            return arm
    return int(last)


@dataclass(frozen=True)
class ProbationBandit(Policy):
    """Weigh whether intent has shifted, round by round, and act on the odds.

    After a warning (a context that the classifier takes for an event) the counts so far are
    kept, and new ones are begun beside them. Three explanations compete: nothing has changed,
    all arms have, or one has. What an arm does from then on moves the Bayes factor between its
    old and its new counts. For each decision an explanation is drawn from the posterior, so a
    warning costs only as much exploration as it is worth; once one explanation has won, the
    counts are merged or the changed arms' old ones dropped.

    Between warnings each arm is tested all the time: its newest clicks are kept apart until they
    favour "no change", and an arm whose clicks were not tested for long is, by and by, worth a
    try. So events without a warning are found from the clicks alone.

    All priors are learned from what was found before, over all keys: how often events come with
    and without a warning, how often they change all arms, and which keys have more of them. A
    warning is worth the rate of announced events over the present rate of warnings, so that one
    of many counts for little and a rare one for much. Its context is labelled false, for the
    classifier, only where an event is all but excluded.

    Decisions carry no propensity: it would sum over all subsets of the arms.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    classifier : Classifier
        What warns, such as ``Rectangle(dim=2, margin=0.1)``.
    base : str, default "thompson"
        How arms are ranked under the drawn explanation: ``thompson`` or ``kl-ucb``.
    patience : int, default 200
        Most rounds of a probation; at least 2.
    changes : float, default 0.99
        Probability with which an event that changes all arms changes any one of them, in (0, 1).
    announced : float, default 0.001
        Rate of events with a warning, per impression of any key, before any was seen; in
        (0, 0.5]. It weighs three events.
    surprise : float, default 0.001
        The same for events without a warning; it weighs a tenth of an event.
    excluded : float, default 0.003
        Probability of an event below which it is excluded, and the warning's context is
        labelled false; in (0, 0.5].
    per_key : bool, default False
        Whether each key has a classifier and a record of its own, instead of one for all.

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
        changes: float
        announced: float
        surprise: float
        excluded: float
        shared: bool

    class State(NamedTuple):
        lanes: Lanes
        classifier: Any
        record: Record

    about: ClassVar[About] = About(
        source="ours; the setting is that of Syed, Slivkins, Mishra (2009), section 9",
        regret="none proved",
        assumes="clicks that are stationary between abrupt events",
        fails="follows drift late",
        otherwise="Thompson with a discount where intent drifts",
    )

    arms: Any
    classifier: Classifier = field(kw_only=True)
    base: str = field(default="thompson", kw_only=True)
    patience: int = field(default=200, kw_only=True)
    changes: float = field(default=0.99, kw_only=True)
    announced: float = field(default=1e-3, kw_only=True)
    surprise: float = field(default=1e-3, kw_only=True)
    excluded: float = field(default=3e-3, kw_only=True)
    per_key: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.classifier, Classifier):
            remedy = "give a safe classifier, such as Rectangle(dim=2, margin=0.1)"
            raise InvalidValue("classifier", self.classifier, remedy)
        if self.base not in BASES:
            raise InvalidValue("base", self.base, f"give one of {', '.join(BASES)}")
        self._set("patience", checks.integer("patience", self.patience, 2, 2**40))
        self._set("changes", checks.number("changes", self.changes, 1e-6, 1 - 1e-6))
        for name in ("announced", "surprise", "excluded"):
            self._set(name, checks.number(name, getattr(self, name), 1e-12, 0.5))

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        return cls(arms, classifier=Rectangle(dim, margin=0.1))

    @property
    def context_dim(self) -> int:
        return self.classifier.dim

    @cached_property
    def params(self) -> Params:
        return self.Params(
            BASES.index(self.base),
            self.classifier.params,
            self.patience,
            self.changes,
            self.announced,
            self.surprise,
            self.excluded,
            not self.per_key,
        )

    def init(self, lanes: int) -> State:
        arms, dim = self.arm_count, self.classifier.dim

        def ints() -> Ints:
            return np.zeros(lanes, np.int64)

        state = Lanes(
            old=np.zeros((lanes, arms, 2)),
            new=np.zeros((lanes, arms, 2)),
            factor=np.zeros((lanes, arms)),
            start=np.zeros((lanes, arms)),
            rounds=np.zeros(lanes),
            found=np.zeros(lanes),
            due=np.zeros(lanes),
            prior=np.zeros(lanes),
            mode=ints(),
            length=ints(),
            restarts=ints(),
            context=np.zeros((lanes, dim)),
        )
        rows = lanes if self.per_key else 1
        record = Record(*(np.zeros(rows) for _ in Record._fields))
        return self.State(state, self.classifier.init(rows), record)

    @staticmethod
    def observe(params: Params, state: State, lane: int, impression: Impression) -> None:
        lanes, record = state.lanes, state.record
        row = 0 if params.shared else lane
        lanes.rounds[lane] += 1.0
        record.rounds[row] += 1.0
        record.span[row] += 1.0
        context = impression.context[: lanes.context.shape[1]]
        if not predict(params.classifier, state.classifier, row, context):
            return
        rate = (record.warnings[row] + 1.0) / record.span[row]
        record.warnings[row] = FORGET * (record.warnings[row] + 1.0)
        record.span[row] *= FORGET
        rounds = ANNOUNCED_WEIGHT / params.announced + record.rounds[row]
        right = (ANNOUNCED_WEIGHT + record.announced[row]) / rounds
        event = min(right / rate, 0.9)
        odds = event / (1.0 - event) * propensity_to_shift(lanes, lane)
        event = odds / (1.0 + odds)
        if lanes.mode[lane] == WARNED:
            weights = weigh(params, state, lane)
            if weights.whole + weights.single <= weights.nothing:
                lanes.prior[lane] += (1.0 - lanes.prior[lane]) * event
                return
        if lanes.mode[lane] != QUIET:
            settle(params, state, lane)
        if event < params.excluded:
            learn_false(params.classifier, state.classifier, row, context)
        if event >= LEAST:
            for arm in range(lanes.factor.shape[1]):
                merge_counts(lanes, lane, arm)
            lanes.due[lane] += event
            lanes.context[lane, :] = context
            enter(lanes, lane, WARNED, event)

    @staticmethod
    def choose(
        params: Params, state: State, lane: int, impression: Impression, rng: Generator
    ) -> int:
        lanes = state.lanes
        arms = lanes.factor.shape[1]
        quiet = lanes.mode[lane] == QUIET
        whole, single = False, -1
        recently, long_ago, tested = 0.0, 0.0, 0.0
        uniform = rng.random()
        if quiet:
            row = 0 if params.shared else lane
            rate = surprise_rate(params, state.record, row) * propensity_to_shift(lanes, lane)
            share = whole_share(state.record, row)
            recently = rate * share
            long_ago = rate * (share * UNSEEN + (1.0 - share) / arms)
            for arm in range(arms):
                tested = max(tested, lanes.start[lane, arm])
        else:
            odds = weigh(params, state, lane)
            drawn = uniform * (odds.whole + odds.single + odds.nothing)
            whole = drawn < odds.whole
            if odds.whole <= drawn < odds.whole + odds.single:
                single = draw_single(lanes, lane, (drawn - odds.whole) / odds.single)
        total = 0.0
        if params.base == KL_UCB:
            for i in range(len(impression.arms)):
                arm = impression.arms[i]
                for k in range(2):
                    total += lanes.new[lane, arm, k] + (0.0 if whole else lanes.old[lane, arm, k])
        best, leader, ties = -1.0, -1, 0.0
        for i in range(len(impression.arms)):
            arm = impression.arms[i]
            changed = arm == single
            if quiet or whole:
                factor = bayes_factor(lanes, lane, arm)
                if quiet:
                    age = lanes.rounds[lane] - lanes.start[lane, arm]
                    change = recently * (lanes.rounds[lane] - tested) + long_ago * age
                    change, unchanged = change * factor, 1.0
                else:
                    change, unchanged = params.changes * factor, 1.0 - params.changes
                changed = rng.random() * (change + unchanged) < change
            successes, failures = lanes.new[lane, arm, 0], lanes.new[lane, arm, 1]
            if not changed:
                successes += lanes.old[lane, arm, 0]
                failures += lanes.old[lane, arm, 1]
            plays = successes + failures
            if params.base == THOMPSON:
                score = rng.beta(1.0 + successes, 1.0 + failures)
            elif plays == 0.0:
                score = 2.0
            else:
                score = kl_upper_bound(successes / plays, np.log(total + 1.0) / plays)
            if score > best:
                best, leader, ties = score, arm, 1.0
            elif score == best:
                ties += 1.0
                if rng.random() * ties < 1.0:
                    leader = arm
        return int(leader)

    @staticmethod
    def learn(params: Params, state: State, lane: int, outcome: Outcome) -> None:
        arm, reward = outcome.shown, outcome.reward
        lanes, record = state.lanes, state.record
        new, old = lanes.new[lane, arm], lanes.old[lane, arm]
        plays, before = new[0] + new[1], old[0] + old[1]
        fresh = (1.0 + new[0]) / (2.0 + plays)
        steady = (1.0 + new[0] + old[0]) / (2.0 + plays + before)
        lanes.factor[lane, arm] += reward * np.log(fresh / steady) + (1.0 - reward) * np.log(
            (1.0 - fresh) / (1.0 - steady)
        )
        new[0] += reward
        new[1] += 1.0 - reward
        lanes.length[lane] += 1
        if lanes.mode[lane] == WARNED:
            odds = weigh(params, state, lane)
            event = 1.0 - odds.nothing / (odds.whole + odds.single + odds.nothing)
            over = lanes.length[lane] >= (SORTED if event > CERTAIN else params.patience)
            if over or event < 0.5 * LEAST:
                settle(params, state, lane)
            return
        if lanes.mode[lane] == SORTING:
            if lanes.length[lane] >= SORTED:
                settle(params, state, lane)
            return
        row = 0 if params.shared else lane
        rate = surprise_rate(params, record, row)
        odds_of_change = rate * propensity_to_shift(lanes, lane)
        lanes.due[lane] += rate
        factor, arms = lanes.factor[lane, arm], lanes.factor.shape[1]
        if factor < RENEWAL or (plays + 1.0 >= 20.0 + before and factor < 1.0):
            merge_counts(lanes, lane, arm)
            return
        share = whole_share(record, row)
        here = share + (1.0 - share) / arms
        odds_of_change *= here * (lanes.rounds[lane] - lanes.start[lane, arm])
        if odds_of_change * bayes_factor(lanes, lane, arm) > COMMIT:
            record.surprises[row] += 1.0
            lanes.found[lane] += 1.0
            lanes.restarts[lane] += 1
            forget_old(lanes, lane, arm)
            for other in range(arms):
                if other != arm:
                    merge_counts(lanes, lane, other)
            enter(lanes, lane, SORTING, share / here)

    @staticmethod
    def epoch(params: Params, state: State, lane: int) -> int:
        return int(state.lanes.restarts[lane])
