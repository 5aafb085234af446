"""Version of the learning rule: feedback is learned when it comes, or in the order of decisions.

Placements of version 0.3 learned each reward when it came. They get the new rule at their next start, by a
change event; earlier rows are folded by the old rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tacit.learning.decisions import Arm
from tacit.policies.action_kind import ActionKind
from tacit.service.config.schema import LONGEST_SECONDS
from tacit.service.deciders.aspect import Aspect, Note, SavedState
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.log import rows
from tacit.service.log.store import Snapshot
from tacit.service.projections.attribution import Attribution
from tacit.service.projections.learning_order import LearningOrder

WHEN_IT_COMES, IN_ORDER = 1, 2
"""Versions of the rule: feedback is learned when it comes, or in the :class:`LearningOrder`."""
FIRST = "first"
LATE_SHARE, EARLY_SHARE = 0.9, 0.001
"""Shares of the window: above the first clicks are late, below the second the window is far too long."""
LONGER, AMPLE = 2, 100
"""Factors of the proposed window: of one that cuts clicks off, and of the delay of early clicks."""


class DelayReport(NamedTuple):
    """Delay of clicks, and a remedy if the window does not suit it.

    Attributes
    ----------
    text : str
    remedy : str
        Empty if the window suits.
    """

    text: str
    remedy: str = ""


def compare_delays(name: str, delay: float, window: float) -> DelayReport:
    """Compare the time within which 95 % of clicks come with a placement's window, both in seconds.

    The remedy proposes a longer window if clicks may be cut off, a shorter one if it is far too long.

    Examples
    --------
    >>> compare_delays("home", 12.3, 60)
    DelayReport(text='95 % of clicks come within 12.3 s', remedy='')
    >>> compare_delays("home", 58, 60).remedy
    'give attribution_window = 120 in [placements.home]'
    """
    text, length = f"95 % of clicks come within {_as_text(delay, digits=3)} s", f"{window:.15g} s"
    if delay > LATE_SHARE * window:
        text = f"{text} of a window of {length}, which may cut others off"
        longer = min(LONGER * window, LONGEST_SECONDS)
        return DelayReport(
            text, _propose_window(longer, 15, name) if longer > window else "no window can be longer"
        )
    if delay < EARLY_SHARE * window:
        # Delays have long tails, which the 95 % quantile does not show.
        remedy = f"{_propose_window(AMPLE * delay, 2, name)}: fewer decisions wait in memory"
        return DelayReport(f"{text}; a window of {length} is far longer than they take", remedy)
    return DelayReport(text)


def _propose_window(window: float, digits: int, name: str) -> str:
    """Return the sentence "give attribution_window = SECONDS in [placements.NAME]"."""
    return f"give attribution_window = {_as_text(window, digits)} in [placements.{name}]"


def _as_text(seconds: float, digits: int) -> str:
    """Format seconds with at most ``digits`` significant digits."""
    return f"{float(f'{seconds:.{digits}g}'):.15g}"


class FeedbackRule(Aspect):
    """The version of the learning rule.

    Parameters
    ----------
    version : int
    windows : Attribution
        Gets the order in which decisions are learned.
    policy : PolicyDecider
    name : str
        Name of the placement, for remedies.
    showing : ActionKind

    Attributes
    ----------
    version : int
        1, when feedback comes; 2, in the order of decisions.
    """

    change_kind = rows.FEEDBACK_RULE

    def __init__(
        self, version: int, windows: Attribution, policy: PolicyDecider, name: str, showing: ActionKind
    ) -> None:
        """Begin with an empty order of learning."""
        self.version, self._windows, self._policy = version, windows, policy
        self._name, self._showing = name, showing
        self.begin_order()

    def begin_order(self) -> None:
        """Give the attribution a new, empty learning order, or none if the version is 1."""
        self._windows.order = None
        if self.version < IN_ORDER:
            return
        rule = self._windows.rule
        learns_late = self._showing.compared or (self._showing.single and rule.aggregation == FIRST)
        # The examination of a decision may become known after any click.
        waits_whole = rule.seen != "decided"
        self._windows.order = LearningOrder(
            self._policy.learner,
            self._windows.open,
            self._windows.params,
            self._windows.form.get_values,
            waits_whole=waits_whole,
            learns_late=learns_late,
        )

    def apply_change(self, change: rows.ChangeRow) -> int:
        """Apply a change event: set the version, and begin a new learning order."""
        self.version = int(change.value)
        self.begin_order()
        return 0

    def current(self) -> str:
        """Return the version as text, as a change event holds it."""
        return str(self.version)

    @staticmethod
    def parse_change(
        change: rows.ChangeRow, previous: rows.ChangeRow | None, initial_arms: Sequence[Arm]
    ) -> Note:
        """Return the kind and {"version": version} of a change event."""
        return rows.FEEDBACK_RULE, {"version": int(change.value)}

    @staticmethod
    def format_change(detail: dict[str, Any], clock: Callable[[str], str]) -> str:
        """Return a constant sentence: feedback is learned in the order of decisions."""
        return "feedback is learned in the order of decisions, clicks and silence alike"

    def update_arms(self) -> None:
        """Make room for the click delays of new arms."""
        if self._windows.order is not None:
            self._windows.order.extend_arms(self._policy.learner.policy.arm_count)

    def make_remark(self, now: int) -> str | None:
        """Return the delay of clicks as text, and a remedy if the window does not suit; None if unknown."""
        order = self._windows.order
        if order is None or (delay := order.click_delay) is None:
            return None
        report = compare_delays(self._name, delay, order.rule.window / 1e6)
        is_learned_then = order.get_learning_age(self._windows.time) / 1e6 == delay
        then = ", and decisions are learned then" if is_learned_then else ""
        return f"{report.text}; {report.remedy}" if report.remedy else f"{report.text}{then}"

    def save_state(self) -> dict[str, Any]:
        """Return the snapshot's fields: version of the rule, and the state of the learning order or None."""
        order = self._windows.order
        return {"feedback_rule": self.version, "delays": None if order is None else order.save_state()}

    def restore(self, saved: SavedState, snapshot: Snapshot) -> None:
        """Set the version and the learning order from a snapshot; version 1 and no order for tacit 0.3."""
        self.version = saved.feedback_rule
        self.begin_order()
        if self._windows.order is not None:
            self._windows.order.restore(saved.delays)
