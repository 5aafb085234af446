"""ProbationBandit: tests a warning of a shift by clicks before it forgets anything."""

# One policy, its kernels in the order of a round: ``observe`` handles a warning; ``choose`` draws an
# explanation and plays the best arm under it; ``learn`` counts, and ends the probation when the odds are
# clear; ``epoch`` counts restarts. The odds are computed in ``probation_odds.py``.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np

from tacit.classifiers import Classifier, Rectangle
from tacit.classifiers.base import check_classifier
from tacit.core.arrays import Ints
from tacit.core.dispatch import learn_false, predict
from tacit.core.part import float_range, int_range, one_word, param
from tacit.policies.actions import delegate_property
from tacit.policies.base import About, Impression, Outcome, Policy
from tacit.policies.shifting import probation_odds


@dataclass(frozen=True)
class ProbationBandit(Policy):
    """Weigh in each round whether intent has shifted, and act on the posterior odds.

    A warning is a context that the classifier takes for an event. After a warning the old counts are
    kept, and new counts start in addition. Three explanations compete: nothing has changed,
    all arms have, or one has. Each reward updates the Bayes factor between an arm's
    old and new counts. For each decision an explanation is drawn from the posterior, so a
    warning causes only as much exploration as it is likely to be right. Once one explanation has won, old and
    new counts are merged, or the old counts of changed arms dropped.

    Between warnings each arm is tested continuously: its newest clicks are kept separate until they
    favour "no change", and an arm that was not tested for long becomes more and more likely to be
    tried. So events without a warning are found from the clicks alone.

    All priors are learned from earlier events, over all keys: the rates of events with
    and without a warning, the share that change all arms, and which keys have more of them. The prior
    probability that a warning is right is the rate of announced events over the present rate of warnings, so
    a frequent warning counts for little and a rare one for much. A warning's context is labelled false, for
    the classifier, only if an event is almost excluded.

    The propensity is exact: a sum over the explanations of the probability that the arm's score is
    the largest, integrated to 1e-8 with the base ``thompson``. During a probation there are
    arms + 2 explanations, and the propensity costs as many times as much.

    Parameters
    ----------
    arms : int or sequence of str
        How many arms there are, or their names.
    classifier : Classifier
        Classifier of contexts that gives the warnings, such as ``Rectangle(dim=2, margin=0.1)``.
    base : str, default "thompson"
        How arms are ranked under the drawn explanation: ``thompson`` or ``kl-ucb``.
    patience : int, default 200
        Most rounds of a probation; at least 2.
    changes : float, default 0.99
        Probability with which an event that changes all arms changes any one of them, in (0, 1).
    announced : float, default 0.001
        Prior rate of events with a warning, per impression of any key; in
        (0, 0.5]. It counts as three events.
    surprise : float, default 0.001
        Prior rate of events without a warning, per impression of any key; in (0, 0.5]. It counts as a
        tenth of an event.
    excluded : float, default 0.003
        Probability of an event below which it is excluded, and the warning's context is
        labelled false; in (0, 0.5].
    per_key : bool, default False
        Whether each key has a separate classifier and event record, instead of one for all.

    Raises
    ------
    InvalidValue
        If a parameter is out of its range.

    References
    ----------
    tacit's own. Syed, Slivkins, Mishra (2009), section 9, ask for resilience against wrong labels and
    missed events. The defaults were chosen on simulated shifts; nothing is proved.

    Examples
    --------
    >>> import tacit
    >>> environment = tacit.ShiftingArms(arms=3, events=5, dim=2, announced=True)
    >>> rectangle = tacit.classifiers.Rectangle(dim=2, margin=0.1)
    >>> weighing = tacit.policies.ProbationBandit(arms=3, classifier=rectangle)
    >>> result = tacit.simulate([weighing, tacit.Thompson(arms=3)], environment, 20_000, runs=10)
    >>> result.compare(0, 1).difference < 0
    True
    """

    class State(NamedTuple):
        lanes: probation_odds.ProbationLanes
        classifier: Any
        record: probation_odds.EventRecord

    about: ClassVar[About] = About(
        source="ours; the setting is that of Syed, Slivkins, Mishra (2009), section 9",
        regret="none proved",
        assumes="clicks that are stationary between abrupt events",
        fails="follows drift late",
        otherwise="ShiftMixture, which reads signals without a classifier and shares over keys; "
        "Thompson with a discount where intent drifts",
    )

    arms: Any
    classifier: Annotated[Classifier, check_classifier] = field(kw_only=True)
    base: Annotated[str, one_word(*probation_odds.BASES)] = field(default="thompson", kw_only=True)
    patience: Annotated[int, int_range(2, 2**40)] = field(default=200, kw_only=True)
    changes: Annotated[float, float_range(1e-6, 1 - 1e-6)] = field(default=0.99, kw_only=True)
    announced: Annotated[float, float_range(1e-12, 0.5)] = field(default=1e-3, kw_only=True)
    surprise: Annotated[float, float_range(1e-12, 0.5)] = field(default=1e-3, kw_only=True)
    excluded: Annotated[float, float_range(1e-12, 0.5)] = field(default=3e-3, kw_only=True)
    per_key: bool = field(default=False, kw_only=True)

    @classmethod
    def example(cls, arms: int = 2, dim: int = 1) -> Self:
        """Return an instance with a rectangle of ``dim`` context numbers."""
        return cls(arms, classifier=Rectangle(dim, margin=0.1))

    context_dim = delegate_property("dim", part="classifier")

    @param
    def base_place(self) -> int:
        """Index of the base in ``BASES``."""
        return probation_odds.BASES.index(self.base)

    def init(self, lanes: int) -> State:
        """Return the initial state: counts of zero, the classifier's state and an empty event record."""
        arms, dim = self.arm_count, self.classifier.dim

        def ints() -> Ints:
            """Return zeros of int64, one for each lane."""
            return np.zeros(lanes, np.int64)

        state = probation_odds.ProbationLanes(
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
        record = probation_odds.EventRecord(*(np.zeros(rows) for _ in probation_odds.EventRecord._fields))
        return self.State(state, self.classifier.init(rows), record)

    @staticmethod
    def observe(params: ProbationBandit, state: State, lane: int, impression: Impression) -> None:
        """Count the round; if the classifier takes the context for an event, weigh this warning.

        The probability of an event follows from how often warnings come and how many were right. A probable
        event starts a probation; in a probation that favours "no change" it raises the event's probability
        instead. If an event is almost excluded, the classifier learns that the context announces nothing.
        """
        lanes, record = state.lanes, state.record
        row = lane if params.per_key else 0
        lanes.rounds[lane] += 1.0
        record.rounds[row] += 1.0
        record.span[row] += 1.0
        context = impression.context[: lanes.context.shape[1]]
        if not predict(params.classifier, state.classifier, row, context):
            return
        # Present rate of warnings, this one included; then both counts are discounted.
        rate = (record.warnings[row] + 1.0) / record.span[row]
        record.warnings[row] = probation_odds.FORGET * (record.warnings[row] + 1.0)
        record.span[row] *= probation_odds.FORGET
        rounds = probation_odds.ANNOUNCED_WEIGHT / params.announced + record.rounds[row]
        announced_rate = (probation_odds.ANNOUNCED_WEIGHT + record.announced[row]) / rounds
        # Probability that the warning is right, for an average lane and then for this one.
        event = min(announced_rate / rate, 0.9)
        odds = event / (1.0 - event) * probation_odds.relative_event_rate(lanes, lane)
        event = odds / (1.0 + odds)
        if lanes.mode[lane] == probation_odds.WARNED:
            weights = probation_odds.weigh_explanations(params, state, lane)
            if weights.whole + weights.single <= weights.nothing:
                lanes.prior[lane] += (1.0 - lanes.prior[lane]) * event
                return
        if lanes.mode[lane] != probation_odds.QUIET:
            probation_odds.end_mode(params, state, lane)
        if event < params.excluded:
            learn_false(params.classifier, state.classifier, row, context)
        if event >= probation_odds.LEAST:
            for arm in range(lanes.factor.shape[1]):
                probation_odds.merge_counts(lanes, lane, arm)
            lanes.due[lane] += event
            lanes.context[lane, :] = context
            probation_odds.set_mode(lanes, lane, probation_odds.WARNED, event)

    choose = staticmethod(probation_odds.choose_by_explanation)
    propensity = staticmethod(probation_odds.choice_chance)

    @staticmethod
    def learn(params: ProbationBandit, state: State, lane: int, outcome: Outcome) -> None:
        """Add the outcome to the arm's new counts, and update its Bayes factor.

        In a probation, end it if its odds are clear or its rounds are over. Without one, merge the arm's new
        counts into the old ones if they favour "no change"; if they clearly favour a change, drop its old
        counts, count a restart, and determine in further rounds whether the other arms changed, too.
        """
        arm, reward = outcome.shown, outcome.reward
        lanes, record = state.lanes, state.record
        new, old = lanes.new[lane, arm], lanes.old[lane, arm]
        plays, before = new[0] + new[1], old[0] + old[1]
        # Predicted reward by the new counts alone (changed), and by all counts (unchanged).
        fresh = (1.0 + new[0]) / (2.0 + plays)
        steady = (1.0 + new[0] + old[0]) / (2.0 + plays + before)
        lanes.factor[lane, arm] += reward * np.log(fresh / steady) + (1.0 - reward) * np.log(
            (1.0 - fresh) / (1.0 - steady)
        )
        new[0] += reward
        new[1] += 1.0 - reward
        lanes.length[lane] += 1
        if lanes.mode[lane] == probation_odds.WARNED:
            odds = probation_odds.weigh_explanations(params, state, lane)
            event = 1.0 - odds.nothing / (odds.whole + odds.single + odds.nothing)
            over = lanes.length[lane] >= (
                probation_odds.SORTED if event > probation_odds.CERTAIN else params.patience
            )
            if over or event < 0.5 * probation_odds.LEAST:
                probation_odds.end_mode(params, state, lane)
            return
        if lanes.mode[lane] == probation_odds.SORTING:
            if lanes.length[lane] >= probation_odds.SORTED:
                probation_odds.end_mode(params, state, lane)
            return
        row = lane if params.per_key else 0
        # In mode ``QUIET``: the prior odds of a change without a warning, and its Bayes factor.
        rate = probation_odds.surprise_rate(params, record, row)
        odds_of_change = rate * probation_odds.relative_event_rate(lanes, lane)
        lanes.due[lane] += rate
        factor, arms = lanes.factor[lane, arm], lanes.factor.shape[1]
        # The new counts fit the old ones, or are many and hardly contradict them.
        if factor < probation_odds.RENEWAL or (plays + 1.0 >= 20.0 + before and factor < 1.0):
            probation_odds.merge_counts(lanes, lane, arm)
            return
        share = probation_odds.whole_share(record, row)
        # Probability that an event concerns this arm: it changes all arms, or this one of them.
        arm_share = share + (1.0 - share) / arms
        # The event may have been in any round since the arm's counts were last merged.
        odds_of_change *= arm_share * (lanes.rounds[lane] - lanes.start[lane, arm])
        if odds_of_change * probation_odds.bayes_factor(lanes, lane, arm) > probation_odds.COMMIT:
            # The arm has changed without a warning.
            record.surprises[row] += 1.0
            lanes.found[lane] += 1.0
            lanes.restarts[lane] += 1
            probation_odds.forget_old(lanes, lane, arm)
            for arm_index in range(arms):
                if arm_index != arm:
                    probation_odds.merge_counts(lanes, lane, arm_index)
            probation_odds.set_mode(lanes, lane, probation_odds.SORTING, share / arm_share)

    @staticmethod
    def epoch(params: ProbationBandit, state: State, lane: int) -> int:
        """Return how often old counts were dropped in the lane."""
        return int(state.lanes.restarts[lane])
