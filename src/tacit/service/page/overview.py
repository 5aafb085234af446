"""The overview of placements: their health, with placements that have problems first."""

# 1. ``list_problems``: a sentence for each problem of a placement.
# 2. ``Row``, ``OverviewRows``: the rows of the overview.

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

from tacit.policies import Policy
from tacit.service.log.rows import CONTROL
from tacit.service.page import lift as lifts
from tacit.service.page import timeline
from tacit.service.page.charts import draw_sparkline, format_age, format_reward
from tacit.service.placements.learning import CLOSED
from tacit.service.placements.placement import Placement
from tacit.service.projections.arm_results import DAY, DECISIONS, HOUR, R
from tacit.service.projections.attribution import LATE, LATE_EPOCH
from tacit.service.projections.guardrail import Guardrail
from tacit.uplift.sentences import degradation_sentence
from tacit.wire.lift import Harm

# ---- Problems of a placement, in sentences for the person on call

LATE_SNAPSHOT = 3
"""Warn when a snapshot is overdue by this factor."""
MUCH_LATE = 0.2
FEW, ALL = 100, 0.99
"""Fewest decisions for a warning; share of the greatest reward that counts as all of it."""
SURE = math.log(1e4)
"""Expected number of rewards from which on none at all has a chance of at most 1 in 10,000 (Poisson)."""


def list_problems(
    placement: Placement, now: int, answered: timeline.AnswerStatistics | None = None
) -> list[str]:
    """Return a sentence for each problem of a placement that needs attention; [] if there is none.

    Parameters
    ----------
    placement : Placement
    now : int
        Microseconds since 1970.
    answered : AnswerStatistics, optional
        Statistics of the answers to its requests.
    """
    failing = [] if answered is None or not answered.wrong else [answered.wrong]
    checks = (
        _check_requests,
        _check_feedback,
        _check_constant_reward,
        _check_rewards,
        _check_late_feedback,
        _check_context_values,
        _check_guardrail,
        _check_snapshot,
    )
    return failing + [sentence for check in checks if (sentence := check(placement, now))]


def _check_requests(placement: Placement, now: int) -> str:
    """Return a warning if decisions were requested in the last day but not in the last hour; "" otherwise."""
    hour = timeline.count_decisions(placement.series, now - HOUR)
    day = timeline.count_decisions(placement.series, now - DAY)
    if hour or day < FEW:
        return ""
    last = placement.series.results.last
    return f"No decision was asked for in the last hour; the last one was {format_age(now - last)}."


def _check_feedback(placement: Placement, now: int) -> str:
    """Return a warning if no decision of at least ``FEW`` has had feedback, or a reward; "" otherwise."""
    # Deferred decisions that nobody activated were not shown: no feedback is expected.
    closed = timeline.count_decisions(placement.series, 0) - placement.pending
    has_feedback = _count_feedback(placement)
    # What a placement that does not learn is told of lists is not counted.
    if closed < FEW or (has_feedback and (placement.series.rewards or not placement.feedback)):
        return ""
    what = "reward above 0" if has_feedback else "feedback"
    return f"No {what} has come for {closed:,} decisions: nothing can be learned from clicks."


def _check_constant_reward(placement: Placement, now: int) -> str:
    """Return a warning if nearly all decisions earn the greatest reward; "" otherwise.

    Only for placements that show a single arm and have no default reward, once ``FEW`` decisions are made.
    """
    rewards, decisions = placement.series.rewards, placement.decisions
    single = placement.kind.showing.single and not placement.config.rule.default
    if decisions < FEW or rewards < ALL * decisions * placement.config.rule.highest or not single:
        return ""
    return (
        f"{100 * rewards / decisions:.0f} % of {decisions:,} decisions earned the most that there is, "
        "which teaches nothing. Is a reward sent for what was shown, in place of what was clicked?"
    )


def _check_context_values(placement: Placement, now: int) -> str:
    """Return warnings about values of contexts that look misspelled; "" if there are none."""
    if placement.reader.encoder is None:
        return ""
    return ". ".join([*placement.reader.encoder.data_warnings.values(), ""]).rstrip()


def _count_feedback(placement: Placement) -> int:
    """Return the number of all feedback of a placement by outcome, without closed windows."""
    return sum(count for what, count in placement.outcomes.items() if what != CLOSED)


def _check_rewards(placement: Placement, now: int) -> str:
    """Return a warning if rewards have stopped in the last hour, more surely than by chance; "" otherwise."""
    results, window = placement.series.results, placement.config.rule.window
    # Decisions whose windows are closed, and the same for the day before.
    before, last_hour = now - HOUR - window, results.sum_range(now - HOUR, now - window)
    day_before = results.sum_range(now - DAY - HOUR, before)
    if last_hour[R] > 0 or day_before[R] <= 0 or not day_before[DECISIONS]:
        return ""
    expected = float(last_hour[DECISIONS] * day_before[R] / day_before[DECISIONS])
    if expected < SURE:
        return ""
    return (
        f"No reward has come for {int(last_hour[DECISIONS]):,} decisions of the last hour; at the rate "
        f"of the day before there would be {expected:.0f}. Is feedback still sent?"
    )


def _check_late_feedback(placement: Placement, now: int) -> str:
    """Return a warning if at least a fifth of the feedback comes too late to be learned; "" otherwise."""
    total = _count_feedback(placement)
    late = placement.outcomes.get(LATE, 0) + placement.outcomes.get(LATE_EPOCH, 0)
    if total < FEW or late < MUCH_LATE * total:
        return ""
    window = placement.config.rule.window / 1e6
    return (
        f"{100 * late / total:.0f} % of all feedback came after its window of {window:g} s and was "
        "not learned; a longer attribution_window would let it count."
    )


def _check_guardrail(placement: Placement, now: int) -> str:
    """Return sentences about metric degradations that still need attention; "" if there are none."""
    return " ".join(list_harms(placement, are_open=True))


def _needs_attention(placement: Placement, harm: Harm) -> bool:
    """True if a degradation still matters: its arm is on offer, nothing was done, or the control decides."""
    if harm.arm is not None:
        return harm.arm in placement.offer.arms
    return harm.then == "tell" or placement.mode == CONTROL


def list_harms(placement: Placement, *, are_open: bool) -> list[str]:
    """Return a sentence for each degradation that needs attention, or for each that needs none any more.

    Of the latter, the arm is not on offer any more, or the policy decides again.
    """
    guardrail = placement.guardrail
    if guardrail is None:
        return []
    harms = (harm for harm in guardrail.degradations if _needs_attention(placement, harm) is are_open)
    return [describe_harm(guardrail, harm) for harm in harms]


def describe_harm(guardrail: Guardrail, harm: Harm) -> str:
    """Return the sentence about a metric degradation and the action that the guardrail took."""
    actions = {
        ("retire", False): f"{harm.arm} was retired.",
        ("retire", True): "Since then the control decides everything.",
    }
    sentence = degradation_sentence(harm.metric, harm.arm, guardrail.against, harm.interval)
    action = actions.get((harm.then, harm.arm is None), "Nothing was done about it: this tells only.")
    return f"{sentence} {action}"


def describe_guardrail(placement: Placement) -> list[str]:
    """Return a sentence about the guardrail's metric, and one for each degradation.

    [] without a guardrail.
    """
    guardrail = placement.guardrail
    if guardrail is None:
        return []
    now = guardrail.status
    whom = "the control" if now.against is None else str(now.against)
    action = {"tell": "it is shown here", "retire": "the control is to decide everything"}[now.then]
    if now.then == "retire" and now.against is not None:
        action = "that arm is to be retired"
    sentence = (
        f"{now.metric} may be worse than with {whom} by {now.margin:g} per decision; "
        f"where more is proved, {action}."
    )
    return [sentence, *(describe_harm(guardrail, harm) for harm in now.harms)]


def _check_snapshot(placement: Placement, now: int) -> str:
    """Return a warning if the last snapshot is so old that a restart would take long; "" otherwise."""
    since, every = placement.counts.since_snapshot, placement.snapshot_after
    if since < LATE_SNAPSHOT * every:
        return ""
    return (
        f"The snapshot is late: {since:,} events came since, and there should be one every {every:,}. "
        "A restart will take longer."
    )


# ---- The overview: a row for each placement, those with problems first

MODE_LABELS = {
    "online": "learning",
    "frozen": "frozen",
    "shadow": "learning, with a shadow",
    "control": "the control decides",
}
MODES = {
    "online": "The policy decides and learns.",
    "frozen": "The policy decides and learns nothing.",
    "shadow": "The policy decides and learns; a second one does so unseen.",
    "control": "The holdout's control decides everything; the policy learns from it.",
}
LONGEST_LABEL = 60
"""Longest label of a policy in characters; for a longer one, the name is shown."""
SPARK_POINTS = 48
REUSE_SECONDS = 30
MANY = 50
"""With more placements than this, rows are reused for ``REUSE_SECONDS``."""


class Row:
    """A placement in the overview.

    Parameters
    ----------
    placement : Placement
    now : int
        Microseconds since 1970.
    answered : AnswerStatistics, optional
        Statistics of the answers to its requests.

    Attributes
    ----------
    name, kind, policy : str
    mode, mode_hint : str
        The mode in a word or two, and in a sentence.
    hour, day : int
        Decisions of the last hour; and per hour over the last day.
    rate, rewards : str
        Rewards per impression in the range of the sparkline; and its label.
    spark : Markup
    range : str
        Label of the sparkline's range of time.
    lift : ScaledLift or None
        Numbers of the lift.
    verdict, without : str
        The sentence of the lift; and the note on its control.
    claim : str
    wrong : list of str
        Problems that need attention.
    acted : list of str
        Actions of the guardrail that need no attention any more.
    """

    def __init__(
        self, placement: Placement, now: int, answered: timeline.AnswerStatistics | None = None
    ) -> None:
        config = placement.config
        self.name, self.kind, self.policy = placement.name, config.kind, label_policy(config.policy)
        self.mode, self.mode_hint = describe_mode(placement, now), MODES.get(placement.mode, "")
        self.hour, day = (timeline.count_decisions(placement.series, now - ago) for ago in (HOUR, DAY))
        hours = max(min((now - (placement.series.start or now)) / HOUR, 24.0), 1.0)
        self.day = round(day / hours)
        self._draw_sparkline(placement, now)
        report = lifts.compute_lift(placement, now)
        self.lift = None if report is None else lifts.scale_lift(report)
        self.verdict = placement.kind.view.get_verdict(placement) if report is None else report.verdict
        self.claim = "none" if report is None else report.claim
        self.without = "" if report is None else lifts.describe_control(report)
        self.acted = list_harms(placement, are_open=False)
        alarms = [] if report is None else lifts.list_alarms(report)
        self.wrong = alarms + list_problems(placement, now, answered)

    def _draw_sparkline(self, placement: Placement, now: int) -> None:
        """Set the row's rate, sparkline and labels from the rewards in the default range of time."""
        view = placement.kind.view
        time_range = timeline.parse_range(None, None, None, placement.series, now)
        time_bins = timeline.merge_time_bins(
            timeline.read_time_bins(placement.series, time_range, SPARK_POINTS)
        )
        points = timeline.make_rate_points(time_bins, view.arms_per_reward, placement.config.scale)
        trials = sum(point.trials for point in points)
        rate = sum(point.value * point.trials for point in points) / trials if trials else None
        unit = placement.config.scale
        self.rewards = f"{unit.named} per {view.counted}"
        self.rate = "\N{EN DASH}" if rate is None else format_reward(rate, unit)
        values = [point.value for point in points]
        between = (
            f", between {format_reward(min(values), unit)} and {format_reward(max(values), unit)}"
            if values
            else ""
        )
        title = f"{placement.name}: rewards per {view.counted} in {time_range.label}: {self.rate}{between}"
        self.spark = draw_sparkline(points, time_range.span, title)
        self.range = time_range.label if points else f"nothing shown in {time_range.label}"


def label_policy(policy: Policy) -> str:
    """Return a policy's label with its settings; only its name if the label is too long."""
    return policy.label if len(policy.label) <= LONGEST_LABEL else type(policy).__name__


def describe_mode(placement: Placement, now: int) -> str:
    """Return a placement's mode in a word or two, followed by the remarks of its aspects."""
    remarks = (aspect.make_remark(now) for aspect in placement.aspects.values())
    return ", ".join([MODE_LABELS.get(placement.mode, placement.mode), *filter(None, remarks)])


def choose_reuse_seconds(placements: int) -> int:
    """Return for how many seconds rows of so many placements are reused; 0 for at most ``MANY``."""
    return REUSE_SECONDS if placements > MANY else 0


class OverviewRows:
    """Rows of all placements, which are reused if there are many placements.

    Parameters
    ----------
    clock : function
        Returns the time in microseconds since 1970.
    answers : AnswerCounts
    """

    def __init__(self, clock: Callable[[], int], answers: timeline.AnswerCounts) -> None:
        self._clock, self._answers = clock, answers
        self._cached: dict[str, _CachedRow] = {}

    async def make_rows(self, placements: Mapping[str, Placement]) -> list[Row]:
        """Return a row for each placement, placements with problems first.

        Rows are made in threads. With many placements, rows of the last ``REUSE_SECONDS`` are reused.
        """
        now = self._clock()
        reuse_time = 1_000_000 * choose_reuse_seconds(len(placements))
        previous, self._cached = self._cached, {}
        for name, placement in list(placements.items()):
            before = previous.get(name)
            if before is not None and before.placement is placement and now - before.time < reuse_time:
                self._cached[name] = before
                continue
            row = await run_in_threadpool(
                Row, placement.read_copy(), now, self._answers.read_statistics(name)
            )
            self._cached[name] = _CachedRow(now, placement, row)
        return sorted((entry.row for entry in self._cached.values()), key=lambda row: not row.wrong)


class _CachedRow(NamedTuple):
    """A row of the overview, the placement it is about, and when it was made, in µs since 1970."""

    time: int
    placement: Placement
    row: Row
