"""Windows as columns against a plain account of one decision after the other."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from tacit.service.config.schema import Rule
from tacit.service.log.blocks import Block
from tacit.service.log.rows import ACTIVATE, EXAMINED, REWARD, DecisionRow, FeedbackRow
from tacit.service.placements.attribution import (
    CORRECTED,
    INACTIVE,
    LATE,
    LEARNED,
    NOTED,
    PENDING,
    REPEATED,
    Attribution,
)


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
                return LATE, None
            one.defaulted = False
            return CORRECTED, reward
        one.told += 1
        if kind == ACTIVATE:
            if one.active:
                return REPEATED, None
            one.active, one.deadline = True, time + self.rule.window
            return NOTED, None
        if not one.active:
            return INACTIVE, None
        one.examined = True
        if kind == EXAMINED:
            return NOTED, None
        if one.settled:
            return REPEATED, None
        return self.rewarded(one, reward)

    def rewarded(self, one, reward):
        before, how = one.reward, self.rule.aggregation
        if before is not None and how == "sum":
            reward = before + reward
        if before is not None and how == "max":
            reward = max(before, reward)
        one.reward = reward
        if how == "first" or (how in ("sum", "max") and reward >= 1.0):
            one.settled = True
            return LEARNED, min(reward, 1.0)
        return PENDING, None


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


def block_of(kind, rows):
    return Block.from_rows(kind, rows)


@examples(300)
@given(rule=RULES, groups=GROUPS, stops=st.sets(st.integers(0, 11)))
def test_columns_say_what_decisions_one_by_one_would(rule, groups, stops):
    attribution, plain = Attribution(rule), Plain(rule)
    seq = time = 0
    for number, (passed, deferred, told) in enumerate(groups):
        time += passed
        learned = dict(attribution.iterate_rewards(attribution.advance(time)))
        assert learned == dict(plain.advance(time))
        rows = []
        for waits in deferred:
            seq += 1
            id = f"id {seq}"
            row = DecisionRow(seq, id, 1, 1, time, "k", None, 0, 0.5, 0, None, deferred=int(waits))
            rows.append(row)
            plain.decided(seq, waits, time)
        if rows:
            attribution.open_windows(block_of(DecisionRow, rows))
        # The latest decisions, and some that are long closed or never were.
        feedback = [
            FeedbackRow(0, 1, seq - back, None, time, kind, reward if kind == REWARD else None)
            for back, kind, reward in told
        ]
        if feedback:
            outcomes, parts = attribution.apply_feedback(block_of(FeedbackRow, feedback))
            expected = [plain.told(row.decision, row.kind, row.reward, time) for row in feedback]
            assert outcomes == [outcome for outcome, _ in expected]
            at_once = {
                row.decision: reward
                for row, (_, reward) in zip(feedback, expected, strict=True)
                if reward is not None
            }
            taught = [pair for part in parts for pair in attribution.iterate_rewards(part)]
            assert dict(taught) == at_once
            assert len(taught) == len(at_once)
        check_open(attribution, plain)
        if number in stops:
            attribution = restored(attribution, rule)
            check_open(attribution, plain)


def check_open(attribution, plain):
    """Compare the open decisions, and those whose default may be corrected."""
    saved = list(attribution.export_open(lambda slots: ()))
    found = {
        row.seq: (deadline, active, reward, examined, settled, told)
        for row, deadline, active, reward, examined, settled, told, _ in saved
    }
    assert found == {
        one.seq: (one.deadline, one.active, one.reward, one.examined, one.settled, one.told)
        for one in plain.open.values()
    }
    assert len(attribution) == len(saved) == len(plain.open)


def restored(attribution, rule):
    """Return the same after a stop."""
    anew = Attribution(rule)
    anew.advance(attribution.time)
    # Both at first: what is given later must not depend on the order.
    open = list(attribution.export_open(lambda slots: ()))
    defaulted = list(attribution.export_defaults(lambda slots: ()))
    anew.restore(open)
    anew.restore(defaulted, defaulted=True)
    return anew


def test_slots_are_given_again():
    attribution = Attribution(Rule(window=10))
    for seq in range(1, 5_001):
        row = DecisionRow(seq, str(seq), 1, 1, seq, "k", None, 0, 0.5, 0, None)
        attribution.advance(seq)
        attribution.open_windows(block_of(DecisionRow, [row]))
    assert len(attribution) == 10
    assert attribution.capacity == 256


def test_a_shorter_window_closes_before_a_longer_one_that_began_earlier():
    attribution = Attribution(Rule(window=100))
    first, second = (DecisionRow(seq, str(seq), 1, 1, 0, "k", None, 0, 0.5, 0, None) for seq in (1, 2))
    attribution.open_windows(block_of(DecisionRow, [first]))
    attribution.rule = Rule(window=10)
    attribution.open_windows(block_of(DecisionRow, [second]))
    assert attribution.next_deadline == 10
    assert list(attribution.iterate_rewards(attribution.advance(10))) == [(2, 0.0)]
    assert list(attribution.iterate_rewards(attribution.advance(100))) == [(1, 0.0)]


@pytest.mark.parametrize("rows", [1, 300])
def test_what_was_saved_stays_as_it_was(rows):
    attribution = Attribution(Rule(window=10))
    made = [DecisionRow(seq, str(seq), 1, 1, 0, "k", None, 0, 0.5, 0, None) for seq in range(1, rows + 1)]
    attribution.open_windows(block_of(DecisionRow, made))
    saved = attribution.export_open(lambda slots: ())
    told = [FeedbackRow(0, 1, row.seq, "x", 1, REWARD, 1.0) for row in made]
    attribution.apply_feedback(block_of(FeedbackRow, told))
    attribution.advance(10)
    attribution.open_windows(block_of(DecisionRow, [made[0]._replace(seq=rows + 1, id="new")]))
    assert [row for row, *_ in saved] == made
    again = attribution.export_open(lambda slots: ())
    assert [row.id for row, *_ in again] == ["new"]
