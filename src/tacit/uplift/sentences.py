"""Guardrails, and sentences on a lift for the page, the HTTP API and the terminal."""

# 1. ``guardrail_status``: whether a metric got worse.
# 2. Sentences on lift, planning, dates, traffic, winner and guardrails, with a remedy if there is one.
# 3. How much of a sum a few amounts bring; numbers in words.

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Literal

from tacit.core import checks
from tacit.uplift.boundary import Interval, Lift

# ---- Guardrails: metrics that learning must not harm

Safety = Literal["early", "harm", "safe", "unknown"]


def guardrail_status(
    lift: Lift, margin: float = 0.0, *, better: Literal["more", "less"] = "more", span: float = 1.0
) -> Safety:
    """Return whether a guardrail metric is worse than the control's: harm, safe, unknown or early.

    Parameters
    ----------
    lift : Lift
        Of the metric; with m guardrail metrics, computed with ``comparisons=m``.
    margin : float, default 0
        Tolerated degradation, as a share of the control's metric; in [0, 1). Without a ratio, as a
        share of the ``span``.
    better : str, default "more"
        Whether ``more`` of the metric is better or ``less``.
    span : float, default 1
        The largest amount minus the least, used if there is a difference only.

    Returns
    -------
    str
        ``harm`` if it is significantly worse, ``safe`` if it is not worse by more than the margin, else
        ``unknown``; ``early`` if there is too little traffic.

    Raises
    ------
    InvalidValue
        If the margin is out of its range.

    References
    ----------
    See benchmarks/FORMULAS.md.

    Examples
    --------
    >>> from tacit.uplift import Interval
    >>> guardrail_status(Lift("undecided", Interval(1.0, 0.99, 1.01)), margin=0.02)
    'safe'
    >>> guardrail_status(Lift("worse", Interval(0.9, 0.85, 0.95)), margin=0.02)
    'harm'
    """
    margin = checks.number("margin", margin, 0.0, 1.0)
    if lift.difference is not None and lift.ratio is None:
        no_change, allowed, interval = 0.0, margin * span, lift.difference
    elif lift.ratio is not None:
        no_change, allowed, interval = 1.0, margin, lift.ratio
    else:
        return "early" if lift.claim == "early" else "unknown"
    _, low, high = interval
    # Harm is significant: the whole interval is on the worse side of no change.
    if high < no_change if better == "more" else low > no_change:
        return "harm"
    is_safe = low >= no_change - allowed if better == "more" else high <= no_change + allowed
    return "safe" if is_safe else "unknown"


# ---- Sentences on a lift, for the page, the HTTP API and the command line

ANY_TIME = "You may look at this at any time."
EARLY = "Too early: the control has had too little traffic."
PER_DECISION = " per decision"
SEND_CLICKS = "send clicks (reward 1, or places)"
UNDECIDED = "No difference shown yet."


def lift_sentence(
    lift: Lift,
    days: float | None = None,
    shown: float = 0.1,
    who: str = "Learning",
    whom: str = "the control",
) -> str:
    """Return a sentence on a lift: who earned how much more or less than whom, with the interval.

    Without a significant difference it says so, with the expected number of days if given.

    Parameters
    ----------
    lift : Lift
    days : float, optional
        Number of days until a lift of ``shown`` is shown, with a power of 0.8, at today's traffic.
    shown : float, default 0.1
    who, whom : str, optional
        Names of the policy and of the control.

    Examples
    --------
    >>> print(lift_sentence(Lift("better", Interval(1.2, 1.04, 1.4))))
    Learning earned 20 % more than the control (between 4 % and 40 %).
    You may look at this at any time.
    >>> print(lift_sentence(Lift("undecided"), days=12.2))
    No difference shown yet.
    At today's traffic a lift of 10 % would show in about 12 days (4 times in 5).
    """
    if lift.claim == "early":
        return EARLY
    if lift.claim == "undecided":
        return UNDECIDED if days is None else f"{UNDECIDED} {planner_sentence(days, shown)}"
    unit: Callable[[float], str]
    if lift.ratio is not None:
        estimate, low, high = lift.ratio
        amount, unit = Interval(estimate - 1, low - 1, high - 1), percent
    else:
        assert lift.difference is not None
        amount, unit = lift.difference, per_decision
    word = "more"
    if lift.claim == "worse":
        word, amount = "less", Interval(-amount.estimate, -amount.high, -amount.low)
    between = f"between {unit(amount.low).removesuffix(PER_DECISION)} and {unit(amount.high)}"
    if math.isinf(amount.high):
        between = f"at least {unit(amount.low)}"
    estimate_text = f"{unit(amount.estimate)} " if math.isfinite(amount.estimate) else ""
    return f"{who} earned {estimate_text}{word} than {whom} ({between}). {ANY_TIME}"


def planner_sentence(days: float, shown: float = 0.1) -> str:
    """Return a sentence on the days until a lift of ``shown`` is shown, for a running experiment.

    Examples
    --------
    >>> planner_sentence(0.4)
    "At today's traffic a lift of 10 % would show in less than a day (4 times in 5)."
    >>> planner_sentence(0.0)
    'A lift of 10 % would have shown by now (4 times in 5).'
    """
    if days <= 0:
        return f"A lift of {percent(shown)} would have shown by now (4 times in 5)."
    return (
        f"At today's traffic a lift of {percent(shown)} would show in {_duration_text(days)} (4 times in 5)."
    )


def plan_sentence(decisions: float, days: float | None, shown: float = 0.1, share: float = 0.1) -> str:
    """Return a sentence on the decisions and days until a lift is shown, for a planned experiment.

    Parameters
    ----------
    decisions : float
        Number of decisions needed, of both groups.
    days : float or None
        Number of days with so many decisions, if known.
    shown : float, default 0.1
        The lift.
    share : float, default 0.1
        Share of the control.

    Examples
    --------
    >>> print(plan_sentence(331_451, 12.4))  # doctest: +NORMALIZE_WHITESPACE
    With a holdout of 10 % a lift of 10 % would show after 331,000 decisions, in about 12 days
    (4 times in 5).
    """
    when = "" if days is None else f", in {_duration_text(days)}"
    count = f"{float(f'{decisions:.3g}'):,.0f}"  # rounded to three digits
    return (
        f"With a holdout of {percent(share)} a lift of {percent(shown)} would show after {count} "
        f"decisions{when} (4 times in 5)."
    )


def _duration_text(days: float) -> str:
    """Return a number of days in words, such as "about 12 days"."""
    if days < 1:
        return "less than a day"
    return "about a day" if days < 1.5 else f"about {_round_number(days)} days"


def since_sentence(moment: datetime, now: datetime, changed: str = "") -> str:
    """Return a sentence that a lift is the average since the day of ``moment``, with the clause ``changed``.

    Examples
    --------
    >>> since_sentence(datetime(2026, 5, 3), datetime(2026, 6, 1))
    "This is the average since 3 May, not today's lift."
    """
    addition = f"; {changed}" if changed else ""
    return f"This is the average since {day(moment, now)}, not today's lift{addition}."


def day(moment: datetime, now: datetime) -> str:
    """Return the date of a moment in words, with its year unless it is that of ``now``.

    Examples
    --------
    >>> day(datetime(2026, 5, 3), datetime(2026, 6, 1)), day(datetime(2025, 5, 3), datetime.max)
    ('3 May', '3 May 2025')
    """
    year = "" if moment.year == now.year else f" {moment.year}"
    return f"{moment.day} {moment:%B}{year}"


def count_sentence(now: datetime, decisions: int) -> str:
    """Return a sentence on the time and the number of decisions of a lift.

    Examples
    --------
    >>> count_sentence(datetime(2026, 5, 3, 12), 8000)
    'As of 3 May 12:00:00 (UTC), over 8,000 decisions.'
    """
    return f"As of {day(now, now)} {now:%H:%M:%S} (UTC), over {decisions:,} decisions."


def pending_sentence(pending: int, now: datetime, closes: datetime | None, deferred: int = 0) -> str:
    """Return a sentence on the number of pending decisions, and why they do not count yet.

    Open windows have closed by ``closes``, which is None without any; ``deferred`` of the decisions have not
    been activated.

    Examples
    --------
    >>> noon = datetime(2026, 5, 3, 12)
    >>> pending_sentence(20, noon, noon.replace(minute=5))
    '20 decisions do not count yet, as windows are open until 12:05:00 (UTC).'
    >>> pending_sentence(20, noon, None, deferred=20)
    '20 decisions do not count yet, as nobody has activated them.'
    """
    decisions = "1 decision does" if pending == 1 else f"{pending:,} decisions do"
    if closes is None:
        return f"{decisions} not count yet, as nobody has activated {'it' if pending == 1 else 'them'}."
    inactive = f", and nobody has activated {deferred:,} of them" if deferred else ""
    return f"{decisions} not count yet, as windows are open until {_format_clock(closes, now)}{inactive}."


def no_decision_sentence(open_count: int, now: datetime, closes: datetime | None) -> str:
    """Return a sentence for a lift without closed decisions, with the number of open windows.

    Examples
    --------
    >>> noon = datetime(2026, 5, 3, 12)
    >>> no_decision_sentence(20, noon, noon.replace(minute=5))
    "Too early: no decision's window has closed yet (20 are open until 12:05:00 (UTC))."
    >>> no_decision_sentence(0, noon, None)
    'Too early: no decision counts yet.'
    """
    if closes is None:
        return "Too early: no decision counts yet."
    windows = f"{open_count:,} {'is' if open_count == 1 else 'are'} open until {_format_clock(closes, now)}"
    return f"Too early: no decision's window has closed yet ({windows})."


def _format_clock(moment: datetime, now: datetime) -> str:
    """Return a UTC time in words, with its date unless that is the date of ``now``."""
    on = "" if moment.date() == now.date() else f"{day(moment, now)} "
    return f"{on}{moment:%H:%M:%S} (UTC)"


def no_reward_sentence(decisions: float) -> str:
    """Return the sentence that no decision has earned a reward, so that nothing can be compared.

    Examples
    --------
    >>> no_reward_sentence(10_302)
    'Not known: none of 10,302 decisions has earned a reward above 0; send clicks (reward 1, or places).'
    """
    return f"Not known: none of {decisions:,.0f} decisions has earned a reward above 0; {SEND_CLICKS}."


def no_amount_sentence(metric: str, decisions: float) -> str:
    """Return the sentence that feedback has brought no amount of a metric.

    Examples
    --------
    >>> no_amount_sentence("tips", 200)
    'Not known: no amount of tips has come for 200 decisions; send it with feedback: metrics = {"tips": 5.9}.'
    """
    count = f"no amount of {metric} has come for {decisions:,.0f} decisions"
    return f'Not known: {count}; send it with feedback: metrics = {{"{metric}": 5.9}}.'


def mismatch_sentence(what: str, share: float, expected: float) -> str:
    """Return a warning that the control does not have its share of the traffic.

    Parameters
    ----------
    what : str
        ``decisions``, ``activations`` or ``feedback``.
    share, expected : float
        The control's observed and configured share.

    Examples
    --------
    >>> mismatch_sentence("feedback", 0.06, 0.1)
    'Do not trust this: the control reports less feedback than its share.'
    """
    verb = "reports" if what == "feedback" else "has"
    amount = ("less" if what == "feedback" else "fewer") if share < expected else "more"
    return f"Do not trust this: the control {verb} {amount} {what} than its share."


def missing_shards_sentence(shards: int) -> str:
    """Return a sentence on the number of shards that are not included yet.

    Examples
    --------
    >>> missing_shards_sentence(1)
    'This leaves out 1 shard, which has not begun with this holdout yet.'
    """
    which = "1 shard, which has" if shards == 1 else f"{shards} shards, which have"
    return f"This leaves out {which} not begun with this holdout yet."


def late_rewards_sentence(rewards: int) -> str:
    """Return a sentence on the number of rewards that came after their windows and so do not count.

    Examples
    --------
    >>> late_rewards_sentence(376)
    'This leaves out rewards that came after the window: 376 so far; a longer attribution_window counts them.'
    """
    late_rewards = f"rewards that came after the window: {rewards:,} so far"
    return f"This leaves out {late_rewards}; a longer attribution_window counts them."


def one_unit_sentence(decisions: float, unit: str) -> str:
    """Return a warning that all decisions belong to one user or one session.

    Examples
    --------
    >>> one_unit_sentence(600, "user")
    'Do not trust this: all 600 decisions are of one user; send with each whose it is.'
    """
    return f"Do not trust this: all {decisions:,.0f} decisions are of one {unit}; send with each whose it is."


NEVER_EXAMINED = (
    'Do not trust this: nothing was ever examined, so of seen = "examined" only what earned a reward counts. '
    "Send /examined for what was looked at, or a reward of 0."
)

PROPENSITIES = "Do not trust this: arms were not shown as often as their propensities say."

NO_PROPENSITIES = (
    "Not known: decisions carry no propensity. Set up a holdout, or a policy that draws at random; "
    "decisions that are made elsewhere bring their propensity along."
)

EARLY_WEIGHED = (
    "Too early: there is no holdout, and too few decisions tell yet what others would have earned. Set up a "
    "holdout, or let whoever decides show other arms more often, and say with what propensity."
)

NOT_COVERED = (
    "Not known: some arms are hardly ever shown to some who ask, so the log does not tell what they "
    "would have earned. Set up a holdout, or an exploration floor; who decides elsewhere must show everybody "
    "each arm now and then."
)

EVEN = (
    "Each arm was as likely as any other, as with the uniform control: there is nothing to compare. "
    'Compare with an arm: give "arm NAME" for the control.'
)


def winner_sentence(arm: str | None) -> str:
    """Return a sentence on the best arm, or that there is none yet for None.

    Examples
    --------
    >>> winner_sentence("b")
    'b is best on average so far. You may look at this at any time.'
    """
    if arm is None:
        return "No arm is shown to be the best yet."
    return f"{arm} is best on average so far. {ANY_TIME}"


EARLY_WINNER = "Too early to say which arm is best."

SOME_ARMS = (
    "A winner cannot be declared: some decisions did not have every arm on offer. Compare the "
    "policy with uniform."
)

NO_WINNER = (
    "A winner cannot be declared: some arms may never be shown. Set up a holdout with a uniform "
    "control and without a unit, or an exploration floor; what is decided elsewhere must show all arms alike."
)


def guardrail_sentence(metric: str, safety: Safety, margin: float) -> str:
    """Return a sentence on ``safety``, a guardrail metric's status; if safe, with a margin other than 0.

    Examples
    --------
    >>> guardrail_sentence("returns", "harm", 0.02)
    'Learning harms returns.'
    """
    match safety:
        case "harm":
            return f"Learning harms {metric}."
        case "safe":
            return f"{metric} is not worse{f' by more than {percent(margin)}' if margin else ''}."
        case "early":
            return f"Too early to say whether learning harms {metric}."
    return f"It is not known yet whether learning harms {metric}."


def difference_sentence(lift: Lift) -> str:
    """Return a sentence on the difference of a metric, in its unit, with its interval, after a blank.

    Return "" if the difference is unknown or infinite.

    Examples
    --------
    >>> difference_sentence(Lift("better", None, Interval(0.31, -0.1, 12.4)))
    ' The policy has 0.31 more per decision than the control (a difference of −0.1 to 12).'
    """
    if lift.difference is None or not all(map(math.isfinite, lift.difference)):
        return ""
    estimate, low, high = lift.difference
    word = "more" if estimate >= 0 else "less"
    between = " to ".join(_round_number(end).replace("-", "\N{MINUS SIGN}") for end in (low, high))
    size = f"{_round_number(abs(estimate))} {word}"
    return f" The policy has {size} per decision than the control (a difference of {between})."


def degradation_sentence(
    metric: str, arm: int | str | None, against: int | str | None, harm: tuple[float, float, float]
) -> str:
    """Return a sentence that a metric is significantly worse with an arm: by how much, against whom.

    Parameters
    ----------
    metric : str
    arm, against : int, str or None
        The arm with the worse metric and the baseline arm; None for the policy and the control.
    harm : (float, float, float)
        Difference of the metric per decision, arm minus baseline: estimate and bounds.

    Examples
    --------
    >>> degradation_sentence("returns", "b", "a", (0.061, 0.032, 0.09))
    'Proved: with b there is 0.061 more of returns per decision than with a (0.032 to 0.09).'
    >>> degradation_sentence("margin", None, None, (-1.25, -2.0, -0.5))
    'Proved: with the policy there is 1.2 less of margin per decision than with the control (0.5 to 2).'
    """
    # Without signs, the bounds of a negative difference change places.
    sizes = [f"{_round_number(abs(end))}" for end in (harm if harm[0] >= 0 else (harm[0], harm[2], harm[1]))]
    more = "more" if harm[0] >= 0 else "less"
    arm_name, baseline = ("the policy", "the control") if arm is None else (arm, against)
    return (
        f"Proved: with {arm_name} there is {sizes[0]} {more} of {metric} per decision than with {baseline} "
        f"({sizes[1]} to {sizes[2]})."
    )


MAX_SHARES = 0.1, 0.3
"""Shares of a sum, of the largest amount and of the five largest, above which an estimate is in doubt."""


def are_heavy(shares: tuple[float, float]) -> bool:
    """True if the largest amount brings more than 10 % of a sum, or the five largest more than 30 %."""
    return shares[0] > MAX_SHARES[0] or shares[1] > MAX_SHARES[1]


def describe_shares(shares: tuple[float, float], unit: str = "reward") -> str:
    """Return as text the shares of a sum that the largest amount and the five largest bring.

    If they are heavy, the text says so.

    Examples
    --------
    >>> describe_shares((0.02, 0.07))
    'the largest reward brings 2.0 % of the sum, the five largest 7.0 %'
    """
    largest, five = (f"{100 * share:.1f} %" for share in shares)
    note = ", so a few rows decide, and no interval tells of larger rewards to come" * are_heavy(shares)
    return f"the largest {unit} brings {largest} of the sum, the five largest {five}{note}"


def percent(share: float) -> str:
    """Return a share as a percentage with two significant digits, as text.

    Examples
    --------
    >>> percent(0.2), percent(0.0123), percent(0.00456), percent(1.234), percent(12.0)
    ('20 %', '1.2 %', '0.46 %', '123 %', '1200 %')
    """
    return f"{_round_number(100 * share)} %"


def per_decision(amount: float) -> str:
    """Return an amount of reward in words: rounded, per decision.

    Examples
    --------
    >>> per_decision(0.0123)
    '0.012 per decision'
    """
    return f"{_round_number(amount)}{PER_DECISION}"


def _round_number(x: float) -> str:
    """Return a number as text with two significant digits, or all digits before the point."""
    # 9.95 is rounded to 10, which has two digits already.
    return f"{x:.0f}" if abs(x) >= 9.95 else f"{x:.2g}"
