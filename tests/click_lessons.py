"""Check that a log of clicks alone teaches each decision once, in the order of decisions."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from dataclasses import dataclass, field

import placement_access as access

from tacit.service.log.rows import DecisionRow, FeedbackRow

CLOSING = 20_000
"""A window closes at the moment of a kill if it does so by so many µs before or after the log's end."""


@dataclass
class Report:
    """What was found of a placement at the end of its log."""

    problems: list[str] = field(default_factory=list)
    lessons: int = 0
    waiting: int = 0
    waiting_clicked: int = 0
    closing: int = 0


def check_lessons(name, config, store):
    """Compare what a log of clicks alone teaches with its rows, and with a restart; return a report."""
    report, each = Report(), config.placements[name]
    anew = access.load_placement(name, each, store, 0, snapshot=False)
    kept = access.load_placement(name, each, store, 0)
    begin = access.get_snapshot_seq(anew)
    lessons, waited = access.record_lessons(anew), {row.seq for row in access.list_waiting(anew)}
    for placement in (anew, kept):
        access.fold({placement.id: placement}, store)
    decisions, clicks = {}, {}
    for event in store.events(0):
        if event.placement != anew.id:
            continue
        if isinstance(event, DecisionRow):
            decisions[event.seq] = event
        elif isinstance(event, FeedbackRow):
            clicks.setdefault(event.decision, event.time)
    report.lessons = len(lessons)
    waiting = [row.seq for row in access.list_waiting(anew)]
    report.waiting, report.waiting_clicked = len(waiting), len(clicks.keys() & set(waiting))
    end, window = store.end().time, each.rule.window
    report.closing = sum(abs(row.time + window - end) <= CLOSING for row in decisions.values())
    # What was learned before the log begins left only its effect; a later click on it may follow, once.
    earlier = [lesson for lesson in lessons if lesson.seq <= begin and lesson.seq not in waited]
    lessons = [lesson for lesson in lessons if lesson not in earlier]
    again = len(earlier) - len({lesson.seq for lesson in earlier if lesson.reward == 1.0})
    problems = [
        *([f"learned again: {earlier}"] if again else []),
        *wrong_order(list(decisions), waiting, [lesson.seq for lesson in lessons if lesson.before is None]),
        *differences_after_restart(kept, anew),
    ]
    of_decisions = {}
    for lesson in lessons:
        of_decisions.setdefault(lesson.seq, []).append(lesson)
    for seq, row in decisions.items():
        if seq > begin or seq in waited:
            learned = of_decisions.pop(seq, [])
            wrong = wrong_lessons(row, clicks.get(seq), learned, each.rule, end, seq in waiting)
            problems += [f"{wrong}: {row}, clicked at {clicks.get(seq)}, learned {learned}"] if wrong else []
    problems += [f"learned again: {learned}" for learned in of_decisions.values()]
    report.problems = [f"{name}: {problem}" for problem in problems]
    return report


def wrong_order(decisions, waiting, learned):
    """Return what is wrong unless decisions are learned in their order, and the last ones wait."""
    first = list(dict.fromkeys(learned))
    problems = [f"{b} was learned after {a}" for a, b in itertools.pairwise(first) if a > b]
    if waiting and waiting != decisions[bisect_left(decisions, waiting[0]) :]:
        problems.append(f"{waiting} wait, which are not the last decisions")
    return problems


def differences_after_restart(kept, anew):
    """Return what a restart from a snapshot has otherwise than the log: what waits, and delays."""
    problems = []
    if [row.seq for row in access.list_waiting(kept)] != [row.seq for row in access.list_waiting(anew)]:
        problems.append("other decisions wait after a restart")
    if access.export_open_windows(kept) != access.export_open_windows(anew):
        problems.append("open windows are not those of the log")
    after, by_log = access.save_delays(kept), access.save_delays(anew)
    for what, value in by_log.items():
        problems += [] if after[what] == value else [f"{what}: {after[what]}, by the log {value}"]
    return problems


def wrong_lessons(row, click, lessons, rule, end, waits):
    """Return what is wrong about the lessons of a decision; None if they are by the rule.

    A decision is learned once, as 1 if its click came before and as 0 otherwise; a click that comes after
    that, but in the window, is one more success; a later one may correct the 0, of a policy that can do so.
    """
    deadline = row.time + rule.window
    if waits:
        return "learned, and waits" if lessons else "waits after its window" if deadline <= end else None
    if not lessons:
        return "not learned"
    first, *more = lessons
    in_window = click is not None and click < deadline
    if first.before is not None or (first.reward == 1.0 and not in_window):
        return "learned otherwise than by its turn"
    if in_window and click != first.time and first.reward != float(click < first.time):
        return "not learned as what was known"
    if click is None or first.reward == 1.0:
        expected = []
    elif in_window:
        expected = [(1.0, None)]
    elif rule.late == "correct" and click < deadline + rule.correction:
        expected = [(1.0, 0.0)]
    else:
        expected = []
    if [(lesson.reward, lesson.before) for lesson in more] != expected:
        return "not learned once"
    return None
