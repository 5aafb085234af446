"""Windows as columns against a plain account of one decision after the other."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from placement_access import OpenWindows

from tacit.service.config.schema import Rule
from tacit.service.log.rows import ACTIVATE, EXAMINED, REWARD, DecisionRow, FeedbackRow


@dataclass
class Decision:
    """One decision as the rule sees it."""

    seq: int
    active: bool
    deadline: int
    reward: float | None = None
    examined: bool = False
    settled: bool = False
    defaulted: bool = False
    told: int = 0


class Plain:
    """The rule, decision by decision, in the words of its documentation."""

    def __init__(self, rule):
        self.rule, self.open, self.closed = rule, {}, {}

    def decided(self, seq, deferred, time):
        length = self.rule.activation if deferred else self.rule.window
        self.open[seq] = Decision(seq, not deferred, time + length)

    def advance(self, time):
        """Return what is learned of each decision whose window ends by then."""
        learned = []
        for one in sorted(self.open.values(), key=lambda one: one.deadline):
            if one.deadline > time:
                continue
            del self.open[one.seq]
            self.closed[one.seq] = one
            if not one.active or one.settled:
                continue
            if one.reward is not None:
                learned.append((one.seq, one.reward))
            elif self.rule.seen == "decided" or one.examined:
                learned.append((one.seq, self.rule.default))
                one.defaulted = self.rule.late == "correct"
        return learned

    def told(self, seq, kind, reward, time):
        """Return what became of feedback, and what is learned at once."""
        one = self.open.get(seq)
        if one is None:
            one = self.closed.get(seq)
            in_time = one is not None and time < one.deadline + self.rule.correction
            if one is None or kind != REWARD or not one.defaulted or not in_time:
                return "late", None
            one.defaulted = False
            return "corrected", reward
        one.told += 1
        if kind == ACTIVATE:
            if one.active:
                return "repeated", None
            one.active, one.deadline = True, time + self.rule.window
            # Of windows that end at once, those that opened first close first.
            self.open[one.seq] = self.open.pop(one.seq)
            return "noted", None
        if not one.active:
            return "inactive", None
        one.examined = True
        if kind == EXAMINED:
            return "noted", None
        return ("repeated", None) if one.settled else self.rewarded(one, reward)

    def rewarded(self, one, reward):
        before, how = one.reward, self.rule.aggregation
        if before is not None and how == "sum":
            reward = before + reward
        if before is not None and how == "max":
            reward = max(before, reward)
        one.reward = reward
        if how == "first" or (how in ("sum", "max") and reward >= 1.0):
            one.settled = True
            return "learned", min(reward, 1.0)
        return "pending", None


RULES = st.builds(
    Rule,
    window=st.integers(5, 40),
    activation=st.integers(5, 60),
    correction=st.integers(5, 60),
    default=st.sampled_from([0.0, 0.25]),
    aggregation=st.sampled_from(["first", "last", "sum", "max"]),
    seen=st.sampled_from(["decided", "examined"]),
    late=st.sampled_from(["record", "correct"]),
)
# Rewards come most often, and their sums are exact.
TOLD = st.tuples(
    st.integers(0, 6),
    st.sampled_from((REWARD, REWARD, REWARD, EXAMINED, ACTIVATE)),
    st.sampled_from([0.25, 0.5, 0.0, 1.0]),
)
GROUPS = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.lists(st.sampled_from((False, False, True)), max_size=2),
        st.lists(TOLD, min_size=1, max_size=6, unique_by=lambda told: told[0]),
    ),
    min_size=4,
    max_size=12,
)


@examples(300)
@given(rule=RULES, groups=GROUPS, stops=st.sets(st.integers(0, 11)), shorter=st.integers(0, 20))
def test_columns_say_what_decisions_one_by_one_would(rule, groups, stops, shorter):
    windows, plain = OpenWindows(rule), Plain(rule)
    seq = time = 0
    for number, (passed, deferred, told) in enumerate(groups):
        time += passed
        if number == shorter:
            # Its windows end before some that began earlier.
            plain.rule = rule = msgspec.structs.replace(rule, window=1 + rule.window // 4)
            windows.set_rule(rule)
        assert windows.advance(time) == plain.advance(time)
        rows = []
        for waits in deferred:
            seq += 1
            row = DecisionRow(seq, f"id {seq}", 1, 1, time, "k", None, 0, 0.5, 0, None, deferred=int(waits))
            rows.append(row)
            plain.decided(seq, waits, time)
        if rows:
            windows.open(*rows)
        # The latest decisions, and some that are long closed or never were.
        feedback = [
            FeedbackRow(0, 1, seq - back, None, time, kind, reward if kind == REWARD else None)
            for back, kind, reward in told
        ]
        if feedback:
            outcomes, learned = windows.apply(*feedback)
            expected = [plain.told(row.decision, row.kind, row.reward, time) for row in feedback]
            assert outcomes == [outcome for outcome, _ in expected]
            at_once = {
                row.decision: reward
                for row, (_, reward) in zip(feedback, expected, strict=True)
                if reward is not None
            }
            assert {seq: reward for seq, reward, _ in learned} == at_once
            assert len(learned) == len(at_once)
        check_open(windows, plain)
        if number in stops:
            windows = windows.restored(rule)
            check_open(windows, plain)


def check_open(windows, plain):
    """Compare the open decisions, and those whose default may be corrected."""
    saved = list(windows.export_open())
    found = {
        row.seq: (deadline, active, reward, examined, settled, told)
        for row, deadline, active, reward, examined, settled, told, _ in saved
    }
    assert found == {
        one.seq: (one.deadline, one.active, one.reward, one.examined, one.settled, one.told)
        for one in plain.open.values()
    }
    assert len(windows) == len(saved) == len(plain.open)
    assert windows.deferred_count == sum(not one.active for one in plain.open.values())


def decision(seq, time=0):
    return DecisionRow(seq, str(seq), 1, 1, time, "k", None, 0, 0.5, 0, None)


def test_slots_are_given_again():
    windows = OpenWindows(Rule(window=10))
    for seq in range(1, 5_001):
        windows.advance(seq)
        windows.open(decision(seq, seq))
    assert len(windows) == 10
    assert windows.capacity == 256


def test_a_shorter_window_closes_before_a_longer_one_that_began_earlier():
    windows = OpenWindows(Rule(window=100))
    windows.open(decision(1))
    windows.set_rule(Rule(window=10))
    windows.open(decision(2))
    assert windows.next_deadline == 10
    assert windows.advance(10) == [(2, 0.0)]
    assert windows.advance(100) == [(1, 0.0)]


@pytest.mark.parametrize("rows", [1, 300])
def test_what_was_saved_stays_as_it_was(rows):
    windows = OpenWindows(Rule(window=10))
    made = list(map(decision, range(1, rows + 1)))
    windows.open(*made)
    saved = windows.export_open()
    windows.apply(*(FeedbackRow(0, 1, row.seq, "x", 1, REWARD, 1.0) for row in made))
    windows.advance(10)
    windows.open(made[0]._replace(seq=rows + 1, id="new"))
    assert [row for row, *_ in saved] == made
    assert [row.id for row, *_ in windows.export_open()] == ["new"]
