"""Signals of a key's own stream: what they come to, worked by hand; that they stay in [0, 1]."""

import math

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

from tacit.core.arrays import leaves
from tacit.errors import SnapshotError
from tacit.learning.signals import NAMES, SESSION_PLACES, Signals

FAST, SLOW = 60.0, 600.0
SECOND = 1_000_000


def reader(*names, arms=3):
    return Signals(names or NAMES, arms, FAST, SLOW)


def at(signals, lane, second, **told):
    """Return the signals of one decision by their names."""
    told = {name: [value] for name, value in told.items()}
    (values,) = signals.arrive([lane], round(second * SECOND), **told)
    return dict(zip(signals.names, values.tolist(), strict=True))


def test_a_key_of_which_nothing_is_known_is_as_always():
    assert at(reader(), 0, 5) == {
        "volume": 0.5,
        "abandonment": 0.5,
        "reformulation": 0.5,
        "new-arms": 0.0,
        "since-shift": 1.0,
    }


def test_volume_is_what_is_now_against_what_was_to_be_expected():
    signals = reader()
    for second in (0, 10, 40):
        at(signals, 0, second)
    # The first decision starts the clock; those at 10 s and 40 s count.
    count = math.exp(-90 / FAST) + math.exp(-60 / FAST)
    slow = math.exp(-90 / SLOW) + math.exp(-60 / SLOW)
    windows = [scale * (1 - math.exp(-100 / scale)) for scale in (FAST, SLOW)]
    expected = slow * windows[0] / windows[1]
    assert at(signals, 0, 100)["volume"] == pytest.approx((count + 1) / (count + expected + 2), rel=1e-12)


def test_volume_of_steady_traffic_is_a_half_and_of_four_times_as_much_near_four_fifths():
    rng = np.random.default_rng(1)
    signals = Signals(["volume"], 2, fast=100.0, slow=100_000.0)
    times = np.cumsum(rng.exponential(1.0, 20_000))
    steady = signals.arrive(np.zeros(20_000, np.int64), (times * SECOND).astype(np.int64))
    # The sum over 100 s has a mean of 100 and a deviation of √50, so the signal one of 0.02; the
    # mean of some 200 independent stretches, five deviations wide.
    assert abs(steady[1000:].mean() - 0.5) < 5 * 0.02 / math.sqrt(190)
    more = times[-1] + np.cumsum(rng.exponential(0.25, 4000))
    assert abs(signals.arrive(np.zeros(4000, np.int64), (more * SECOND).astype(np.int64))[-1, 0] - 0.8) < 0.05


def test_abandonment_is_the_share_without_a_click_held_at_the_past():
    signals = reader()
    at(signals, 0, 0)
    for second, clicked in ((10, True), (20, False), (50, False)):
        signals.record_feedback([0], [second * SECOND], [clicked])
    fast, slow = (
        [sum(math.exp(-(80 - s) / scale) for s in seconds) for seconds in ((20, 50), (10, 20, 50))]
        for scale in (FAST, SLOW)
    )
    past = (slow[0] + 1) / (slow[1] + 2)
    expected = (fast[0] + 2 * past) / (fast[1] + 2)
    assert at(signals, 0, 80)["abandonment"] == pytest.approx(expected, rel=1e-12)


def test_a_reformulation_is_the_same_session_on_another_key_soon():
    signals = reader()
    at(signals, 0, 0, sessions=7)
    at(signals, 1, 30, sessions=7)  # leaves key 0
    at(signals, 0, 40, sessions=8)
    at(signals, 0, 50, sessions=8)  # the same key again is none
    at(signals, 1, 200, sessions=8)  # too late to be one
    at(signals, 1, 201)
    # At 60 s key 0 had decisions at 0, 40 and 50 s, of which the one at 0 s was left.
    again = reader()
    for lane, second, session in ((0, 0, 7), (1, 30, 7), (0, 40, 8), (0, 50, 8)):
        at(again, lane, second, sessions=session)
    shares = []
    for scale in (FAST, SLOW):
        left = math.exp(-60 / scale)
        shares.append((left, left + math.exp(-20 / scale) + math.exp(-10 / scale)))
    past = (shares[1][0] + 1) / (shares[1][1] + 2)
    told = at(again, 0, 60, counted=False)["reformulation"]
    assert told == pytest.approx((shares[0][0] + 2 * past) / (shares[0][1] + 2), rel=1e-12)
    # Nobody left key 1, whose two decisions of a session were at 30 and 200 s.
    past = 1 / (math.exp(-170 / SLOW) + 1 + 2)
    expected = 2 * past / (math.exp(-170 / FAST) + 1 + 2)
    assert at(signals, 1, 200, counted=False)["reformulation"] != expected
    fresh = reader()
    at(fresh, 1, 30, sessions=7)
    at(fresh, 1, 200, sessions=8)
    assert at(fresh, 1, 200, counted=False)["reformulation"] == pytest.approx(expected, rel=1e-12)


def test_two_sessions_in_the_same_place_forget_each_other():
    signals = reader()
    at(signals, 0, 0, sessions=5)
    at(signals, 1, 1, sessions=5 + SESSION_PLACES)
    at(signals, 2, 2, sessions=5)
    assert signals.state.fast[:3, 4].tolist() == [0.0, 0.0, 0.0]


def test_new_arms_are_those_first_offered_after_the_first_decision():
    signals = reader()
    assert at(signals, 0, 0, arms=[0, 1])["new-arms"] == 0.0
    assert at(signals, 0, 10, arms=[0, 1, 2])["new-arms"] == pytest.approx(1 / 3)
    assert at(signals, 0, 70, arms=[1, 2])["new-arms"] == pytest.approx(math.exp(-60 / SLOW) / 2)
    assert at(signals, 1, 70, arms=[1, 2])["new-arms"] == 0.0


def test_a_shift_counts_from_the_next_moment():
    signals = reader()
    at(signals, 0, 0)
    signals.record_epochs([0], [0], [0])
    assert at(signals, 0, 100)["since-shift"] == 1.0
    signals.record_epochs([0], [100 * SECOND], [1])
    assert at(signals, 0, 100)["since-shift"] == 1.0
    assert at(signals, 0, 130)["since-shift"] == pytest.approx(1 - math.exp(-30 / SLOW))
    signals.record_epochs([0], [200 * SECOND], [2])
    assert at(signals, 0, 200)["since-shift"] == pytest.approx(1 - math.exp(-100 / SLOW))
    assert at(signals, 0, 260)["since-shift"] == pytest.approx(1 - math.exp(-60 / SLOW))


def test_what_only_asks_changes_nothing():
    signals = reader()
    at(signals, 0, 0, arms=[0])
    before = [array.copy() for _, array in leaves(signals.state)]
    told = {"arms": [1, 2], "sessions": 9, "counted": False}
    assert at(signals, 0, 0, **told) == at(signals, 0, 0, **told)
    for array, kept in zip((a for _, a in leaves(signals.state)), before, strict=True):
        assert (array == kept).all()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["arrive", "answer", "epoch"]),
        st.integers(0, 3),  # lane
        st.integers(0, 10**10),  # microseconds since the last step
        st.integers(0, 7),  # arms, session, click, epoch
    ),
    max_size=60,
)


def play(signals, steps, time=10**15):
    told = [np.empty((0, len(signals.names)))]
    for what, lane, pause, number in steps:
        time += pause
        if what == "arrive":
            arms = [[arm for arm in range(3) if number + 1 >> arm & 1] or [0]]
            told.append(signals.arrive([lane], time, arms, [number % 4]))
        elif what == "answer":
            signals.record_feedback([lane], [time], [number % 2])
        else:
            signals.record_epochs([lane], [time], [number % 3])
    return np.concatenate(told), time


@examples(150)
@given(STEPS)
def test_every_signal_is_in_the_unit_box(steps):
    told, _ = play(reader(), steps)
    assert ((told >= 0.0) & (told <= 1.0)).all()


@examples(50)
@given(STEPS, st.integers(0, 60))
def test_going_on_from_what_was_saved_equals_never_having_stopped(steps, stop):
    straight, first, second = reader(), reader(), reader()
    told, _ = play(straight, steps)
    begun, time = play(first, steps[:stop])
    second.restore(first.to_bytes(4))
    went_on, _ = play(second, steps[stop:], time)
    assert np.concatenate((begun, went_on)).tobytes() == told.tobytes()
    assert second.to_bytes(4) == straight.to_bytes(4)


def test_many_rows_at_once_are_as_one_after_the_other():
    rng = np.random.default_rng(3)
    one, many = reader(), reader()
    lanes, sessions = rng.integers(5, size=200), rng.integers(9, size=200)
    times = 10**15 + np.cumsum(rng.integers(0, 10**7, size=200))
    arms = [rng.permutation(3)[: rng.integers(1, 4)] for _ in range(200)]
    together = many.arrive(lanes, times, arms, sessions)
    for i in range(200):
        apart = one.arrive([lanes[i]], times[i], [arms[i]], [sessions[i]])
        assert apart.tobytes() == together[i : i + 1].tobytes()


def test_what_was_saved_must_fit():
    content = reader().to_bytes(2)
    with pytest.raises(SnapshotError, match="damaged"):
        reader().restore(content[: len(content) // 2])
    with pytest.raises(SnapshotError, match="damaged"):
        reader(arms=7).restore(content)
