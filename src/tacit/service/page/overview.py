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
from tacit.service.page.charts import age, sparkline, written
from tacit.service.placements.arm_results import DAY, DECISIONS, HOUR, R
from tacit.service.placements.aspects.guardrail import Guardrail
from tacit.service.placements.attribution import LATE, LATE_EPOCH
from tacit.service.placements.learning import CLOSED
from tacit.service.placements.placement import Placement
from tacit.uplift.sentences import harm_sentence
from tacit.wire.lift import Harm

# ---- Problems of a placement, in sentences for the person on call

LATE_SNAPSHOT = 3
"""Warn when a snapshot is overdue by this factor."""
MUCH_LATE = 0.2
FEW, ALL = 100, 0.99
"""Fewest decisions for a warning; share of the greatest reward that counts as all of it."""
SURE = math.log(1e4)


def complaints(placement: Placement, now: int, answered: timeline.Answered | None = None) -> list[str]:
    """Return a sentence for each problem of a placement.

    Parameters
    ----------
    placement : Placement
    now : int
        Microseconds since 1970.
    answered : AnswerStatistics, optional
        Statistics of the answers to its requests.
    """
    failing = [] if answered is None or not answered.wrong else [answered.wrong]
    looks = _silent, _unanswered, _always, _unrewarded, _late, _misspelt, _harmed, _old_snapshot
    return failing + [sentence for look in looks if (sentence := look(placement, now))]


def _silent(placement: Placement, now: int) -> str:
    """Return a warning if requests for decisions have stopped; empty otherwise."""
    hour = timeline.decisions_since(placement.series, now - HOUR)
    day = timeline.decisions_since(placement.series, now - DAY)
    if hour or day < FEW:
        return ""
    last = placement.series.results.last
    return f"No decision was asked for in the last hour; the last one was {age(now - last)}."


def _unanswered(placement: Placement, now: int) -> str:
    """Return a warning if decisions have had no feedback at all; empty otherwise."""
    closed = placement.decisions - placement.pending
    if _feedback_count(placement) or closed < FEW:
        return ""
    return f"No feedback has come for {closed:,} decisions: nothing can be learned from clicks."


def _always(placement: Placement, now: int) -> str:
    """Return a warning if nearly all decisions earn the greatest reward; empty otherwise."""
    earned, made = placement.series.rewards, placement.decisions
    single = placement.kind.showing.single and not placement.config.rule.default
    if made < FEW or earned < ALL * made or not single:
        return ""
    return (
        f"{100 * earned / made:.0f} % of {made:,} decisions earned the most that there is, which teaches "
        "nothing. Is a reward sent for what was shown, in place of what was clicked?"
    )


def _misspelt(placement: Placement, now: int) -> str:
    """Return warnings for values of contexts that look like misspelled ones; empty if there are none."""
    return "" if placement.encoder is None else ". ".join([*placement.encoder.doubts.values(), ""]).rstrip()


def _feedback_count(placement: Placement) -> int:
    """Return the count of all feedback."""
    return sum(count for what, count in placement.outcomes.items() if what != CLOSED)


def _unrewarded(placement: Placement, now: int) -> str:
    """Return a warning if rewards have stopped in the last hour, unless that may be chance; else empty."""
    results, window = placement.series.results, placement.config.rule.window
    before, lately = now - HOUR - window, results.over(now - HOUR, now - window)
    was = results.over(now - DAY - HOUR, before)
    if lately[R] > 0 or was[R] <= 0 or not was[DECISIONS]:
        return ""
    expected = float(lately[DECISIONS] * was[R] / was[DECISIONS])
    if expected < SURE:
        return ""
    return (
        f"No reward has come for {int(lately[DECISIONS]):,} decisions of the last hour; at the rate "
        f"of the day before there would be {expected:.0f}. Is feedback still sent?"
    )


def _late(placement: Placement, now: int) -> str:
    """Return a warning if much feedback comes too late to be learned; empty otherwise."""
    total = _feedback_count(placement)
    late = placement.outcomes.get(LATE, 0) + placement.outcomes.get(LATE_EPOCH, 0)
    if total < FEW or late < MUCH_LATE * total:
        return ""
    window = placement.config.rule.window / 1e6
    return (
        f"{100 * late / total:.0f} % of all feedback came after its window of {window:g} s and was "
        "not learned; a longer attribution_window would let it count."
    )


def _harmed(placement: Placement, now: int) -> str:
    """Return the sentences for metric degradations that still need attention; empty if there are none."""
    guardrail = placement.guardrail
    if guardrail is None:
        return ""
    lasting = (harm for harm in guardrail.harms if _lasts(placement, harm))
    return " ".join(harm_words(guardrail, harm) for harm in lasting)


def _lasts(placement: Placement, harm: Harm) -> bool:
    """True if a metric degradation still needs attention: its arm is on offer, or no action ended it."""
    if harm.arm is not None:
        return harm.arm in placement.offer.arms
    return harm.then == "tell" or placement.mode == CONTROL


def acted(placement: Placement) -> list[str]:
    """Return the sentences for metric degradations that have ended, as their arm is no longer shown."""
    guardrail = placement.guardrail
    harms = [] if guardrail is None else guardrail.harms
    return [harm_words(guardrail, harm) for harm in harms if guardrail and not _lasts(placement, harm)]


def harm_words(guardrail: Guardrail, harm: Harm) -> str:
    """Return the sentence for a metric degradation and the action that the guardrail took."""
    done = {
        ("retire", False): f"{harm.arm} was retired.",
        ("retire", True): "Since then the control decides everything.",
    }
    sentence = harm_sentence(harm.metric, harm.arm, guardrail.against, harm.interval)
    return (
        f"{sentence} {done.get((harm.then, harm.arm is None), 'Nothing was done about it: this tells only.')}"
    )


def guarded_words(placement: Placement) -> list[str]:
    """Return sentences for the guardrail's metric and the degradations found; none without a guardrail."""
    guardrail = placement.guardrail
    if guardrail is None:
        return []
    now = guardrail.now
    whom = "the control" if now.against is None else str(now.against)
    deed = {"tell": "it is shown here", "retire": "the control is to decide everything"}[now.then]
    if now.then == "retire" and now.against is not None:
        deed = "that arm is to be retired"
    watched = (
        f"{now.metric} may be worse than with {whom} by {now.margin:g} per decision; "
        f"where more is proved, {deed}."
    )
    return [watched, *(harm_words(guardrail, harm) for harm in now.harms)]


def _old_snapshot(placement: Placement, now: int) -> str:
    """Return a warning if the last snapshot is so old that a restart would take long; empty otherwise."""
    since, every = placement.since_snapshot, placement.snapshot_after
    if since < LATE_SNAPSHOT * every:
        return ""
    return (
        f"The snapshot is late: {since:,} events came since, and there should be one every {every:,}. "
        "A restart will take longer."
    )


# ---- The overview: a row for each placement, those with problems first

LEARNS = {
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
KEPT_SECONDS = 30
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

    def __init__(self, placement: Placement, now: int, answered: timeline.Answered | None = None) -> None:
        config = placement.config
        self.name, self.kind, self.policy = placement.name, config.kind, name_of(config.policy)
        self.mode, self.mode_hint = mode_of(placement, now), MODES.get(placement.mode, "")
        self.hour, day = (timeline.decisions_since(placement.series, now - ago) for ago in (HOUR, DAY))
        hours = max(min((now - (placement.series.start or now)) / HOUR, 24.0), 1.0)
        self.day = round(day / hours)
        self._draw(placement, now)
        report = lifts.lift_of(placement, now)
        self.lift = None if report is None else lifts.shown(report)
        self.verdict = placement.kind.view.verdict_of(placement) if report is None else report.verdict
        self.claim = "none" if report is None else report.claim
        self.without = "" if report is None else lifts.compared(report)
        self.acted = acted(placement)
        self.wrong = ([] if report is None else lifts.alarms(report)) + complaints(placement, now, answered)

    def _draw(self, placement: Placement, now: int) -> None:
        """Draw the sparkline, and set its labels."""
        view = placement.kind.view
        asked = timeline.asked_range(None, None, None, placement.series, now)
        found = timeline.together(timeline.stretches(placement.series, asked, SPARK_POINTS))
        points = timeline.rate_points(found, view.each, placement.config.scale)
        trials = sum(point.trials for point in points)
        rate = sum(point.value * point.trials for point in points) / trials if trials else None
        unit = placement.config.scale
        self.rewards = f"{unit.named} per {view.counted}"
        self.rate = "\N{EN DASH}" if rate is None else written(rate, unit)
        values = [point.value for point in points]
        between = f", between {written(min(values), unit)} and {written(max(values), unit)}" if values else ""
        title = f"{placement.name}: rewards per {view.counted} in {asked.label}: {self.rate}{between}"
        self.spark = sparkline(points, asked.span, title)
        self.range = asked.label if points else f"nothing shown in {asked.label}"


def name_of(policy: Policy) -> str:
    """Return the label of a policy with its settings, or its name if that is too long."""
    return policy.label if len(policy.label) <= LONGEST_LABEL else type(policy).__name__


def mode_of(placement: Placement, now: int) -> str:
    """Return the mode of a placement and remarks of its aspects, in a few words."""
    remarks = (aspect.remark(placement, now) for aspect in placement.aspects.values())
    return ", ".join([LEARNS.get(placement.mode, placement.mode), *filter(None, remarks)])


def seconds_kept(placements: int) -> int:
    """Return the seconds for which rows are reused, for a number of placements."""
    return KEPT_SECONDS if placements > MANY else 0


class OverviewRows:
    """Rows of all placements, which are reused if there are many placements.

    Parameters
    ----------
    clock : function
        Returns the time in microseconds since 1970.
    answers : AnswerCounts
    """

    def __init__(self, clock: Callable[[], int], answers: timeline.Answers) -> None:
        self._clock, self._answers = clock, answers
        self._kept: dict[str, _Kept] = {}

    async def of(self, placements: Mapping[str, Placement]) -> list[Row]:
        """Return a row for each placement, those with problems first."""
        now = self._clock()
        lasting = 1_000_000 * seconds_kept(len(placements))
        known, self._kept = self._kept, {}
        for name, placement in list(placements.items()):
            before = known.get(name)
            if before is not None and before.of is placement and now - before.time < lasting:
                self._kept[name] = before
                continue
            row = await run_in_threadpool(Row, placement.still(), now, self._answers.of(name))
            self._kept[name] = _Kept(now, placement, row)
        return sorted((kept.row for kept in self._kept.values()), key=lambda row: not row.wrong)


class _Kept(NamedTuple):
    time: int
    of: Placement
    row: Row
