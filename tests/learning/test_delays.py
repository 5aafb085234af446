"""When decisions are learned whose clicks come late: delays, the age of learning, and what is open."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit.core.arrays import leaves
from tacit.core.dispatch import OPEN_UNIT
from tacit.learning import delayed_feedback as late
from tacit.learning.delayed_feedback import EDGES, RELEASED, Delays, OpenFeedback, Queue

WINDOW = 2048
"""Its edges are the powers of two."""
POLICY = tacit.Thompson(2)


class Feed:
    """Decisions of one key, their clicks, and what is open of them."""

    def __init__(self, window=WINDOW, arms=2, room=64):
        self.state = POLICY.init(1)
        self.delays, self.queue = Delays.create(window, arms), Queue.empty(room)
        self.answers, self.count = OpenFeedback.empty(room), 0

    def decide(self, time, arm=0, lane=0):
        entry, self.count = self.count, self.count + 1
        self.answers.lane[entry], self.answers.arm[entry] = lane, arm
        late.enqueue(POLICY.params, self.state, self.delays, self.queue, self.answers, entry, time)
        return entry

    def answer(self, entry, delay, reward=1.0, final=True):
        late.record_feedback(POLICY.params, self.state, self.answers, entry, delay, reward, final)

    def grow(self, time):
        late.pass_edges(POLICY.params, self.state, self.delays, self.queue, self.answers, time)

    def release(self, time, age):
        begin = int(self.queue.cursor[RELEASED])
        end = late.release(POLICY.params, self.state, self.delays, self.queue, self.answers, time, age)
        return self.queue.entry[begin:end].tolist()

    def open(self, arm=0):
        return (self.state.open[0, arm] / OPEN_UNIT).tolist()


def counted(delays_of_arms, window=WINDOW):
    """Return the distribution after clicks with these delays, all as old as the window."""
    feed = Feed(window, arms=len(delays_of_arms), room=4096)
    for arm, each in enumerate(delays_of_arms):
        for delay in each:
            feed.answer(feed.decide(0, arm=min(arm, 1)), delay)
            feed.answers.arm[feed.count - 1] = arm
    feed.answers.lane[:] = -1
    feed.grow(2 * window)
    late.refit_delays(feed.delays)
    return feed.delays


# The distribution ------------------------------------------------------------------------------


def test_edges_are_octaves_and_end_with_the_window():
    assert Delays.create(WINDOW, 1).edges.tolist() == [2**b for b in range(12)]
    assert Delays.create(10, 1).edges.tolist() == [1] * 9 + [2, 5, 10]
    assert Delays.create(1, 1).edges.tolist() == [1] * 12


def test_the_curve_is_the_reverse_product_limit():
    # Of 4 clicks 1 took 1,025 to 2,048; of the other 3 one took 513 to 1,024; two took 1.
    curve = counted([[1, 1, 700, 1500]]).curve[0]
    # Shrunk towards all arms together, which are the same here: h = (came + 5h)/(risk + 5) = came/risk.
    assert curve[12] == 1.0
    assert curve[11] == pytest.approx(3 / 4)
    assert curve[1:11].tolist() == pytest.approx([2 / 4] * 10)
    assert curve[0] == 0.0


def test_an_arm_is_held_to_be_like_all_until_its_clicks_say_otherwise():
    delays = counted([[1] * 6, [1500] * 2])
    # Of all 8 clicks 2 took the last octave; of the first arm's 6 none, of the second's 2 both.
    assert delays.curve[0, 11] == pytest.approx(1 - (0 + 5 * 0.25) / (6 + 5))
    assert delays.curve[1, 11] == pytest.approx(1 - (2 + 5 * 0.25) / (2 + 5))


def test_clicks_of_young_decisions_do_not_make_delays_look_short():
    """Decisions of age 100 show their clicks of up to 64 only, and these are counted up to there only."""
    feed = Feed()
    for delay in (1, 1500):
        feed.answer(feed.decide(0), delay)
    feed.grow(1900)
    for entry in range(8):
        feed.answer(feed.decide(1900 + entry), 1)
    feed.grow(2048 + 1)
    late.refit_delays(feed.delays)
    assert feed.delays.risk[0].tolist() == [9.0] * 7 + [9.0, 1.0, 1.0, 1.0, 2.0]
    assert feed.delays.curve[0, 11] == pytest.approx(0.5)


def test_a_delay_of_just_an_edge_is_counted():
    """Feedback of the instant at which a decision reaches an edge may come after it was asked for."""
    feed = Feed()
    entry = feed.decide(0)
    feed.grow(64)
    feed.answer(entry, 64)
    feed.grow(10 * WINDOW)
    assert feed.delays.clicks.tolist() == [1.0, 0.0]
    assert feed.delays.clicked[0].tolist() == [0.0] * 6 + [1.0] + [0.0] * 5


def test_clicks_after_release_are_counted_among_delays():
    """Else the distribution would end where decisions are learned, and they would be ever earlier."""
    feed = Feed()
    entry = feed.decide(0)
    feed.grow(100)
    assert feed.release(100, 50) == [entry]
    feed.answer(entry, 1500)
    assert feed.open() == [0.0, 0.0]
    feed.grow(2 * WINDOW)
    assert feed.delays.clicked[0, 11] == 1.0
    assert feed.open() == [0.0, 0.0]


def test_counts_are_halved_as_they_come():
    feed = Feed(room=2048)
    for _ in range(450):
        feed.answer(feed.decide(0), 1)
    feed.grow(2)
    # 401 are too many: halved, and 49 more.
    assert feed.delays.risk[0, 0] == feed.delays.clicked[0, 0] == 0.5 * 401 + 49
    assert feed.delays.clicks[0] == 450.0


# The age ---------------------------------------------------------------------------------------


def test_the_age_is_the_quantile_within_its_bin():
    # 18 of 20 took 1, two took 1,536 on average: 5 % are missing half way through the last octave.
    assert counted([[1] * 18 + [1400, 1672]]).age[0] == pytest.approx(1024 + 1024 / 2, abs=1)
    assert counted([[1] * 20]).age[0] == 1


@pytest.mark.parametrize("delay", [1, 3, 513, 600, 1000, 1023, 1024, 1025, 1500, 2000, 2047, 2048])
def test_clicks_that_all_take_as_long_come_before_they_are_learned(delay):
    assert delay <= counted([[delay] * 30]).age[0] <= delay * 1.5 + 1
    assert counted([[delay] * 30, [1] * 30]).age[0] >= delay


def test_within_a_bin_delays_are_about_their_mean():
    quantile = late.compute_quantile_in_bin
    assert quantile(8.0, 16.0, 12.0, 0.5) == 12.0
    assert quantile(8.0, 16.0, 12.0, 0.75) == 14.0
    assert quantile(8.0, 16.0, 14.0, 0.5) == 14.0, "uniform from 12 to 16"
    assert quantile(8.0, 16.0, 10.0, 0.5) == 10.0, "uniform from 8 to 12"
    assert quantile(8.0, 16.0, 16.0, 0.9) == 16.0


def test_the_slowest_arm_sets_the_age_once_it_has_ten_clicks():
    fast = [1] * 1000
    assert counted([fast, [1500] * 9]).age[0] < 1024
    assert counted([fast, [1500] * 10]).age[0] > 1024


def test_the_age_is_the_window_below_ten_clicks():
    assert counted([[1] * 9]).age[0] == WINDOW
    assert counted([[1] * 10]).age[0] == 1


def test_in_the_first_window_only_a_third_of_the_time_so_far_is_trusted():
    delays = counted([[60] * 20])
    assert delays.age[0] == 64  # 56 + .95·8 = 63.6
    assert late.compute_learning_age(delays, 191) == WINDOW
    assert late.compute_learning_age(delays, 192) == 64
    delays.age[0] = 1500
    assert late.compute_learning_age(delays, WINDOW - 1) == WINDOW
    assert late.compute_learning_age(delays, WINDOW) == 1500


def test_it_is_estimated_again_after_a_twentieth_more():
    delays = counted([[1] * 100])
    assert not late.is_outgrown(delays)
    delays.clicks[0] = 105.0
    assert not late.is_outgrown(delays)
    delays.clicks[0] = 106.0
    assert late.is_outgrown(delays)
    # Of what is remembered: after a million clicks, too.
    delays.clicks[0] = delays.fitted[0] = 1e6
    delays.clicks[0] += 41
    assert late.is_outgrown(delays)


# A decision's life -----------------------------------------------------------------------------


def test_decisions_are_released_in_order_when_old_enough_or_answered():
    feed = Feed()
    first, second, third, fourth = (feed.decide(time) for time in (0, 10, 20, 30))
    feed.answer(second, 5)
    assert feed.release(40, 50) == []  # the second is known, but not its turn
    assert feed.release(50, 50) == [first, second]
    feed.answer(third, 0, reward=0.0)
    assert feed.release(51, 50) == [third]
    feed.answer(fourth, 10, final=False)  # an amount: more may come
    assert feed.release(79, 50) == []
    assert feed.release(80, 50) == [fourth]


def test_what_is_open_counts_as_far_as_clicks_would_have_come():
    feed = Feed()
    feed.delays.curve[0] = np.linspace(0.0, 1.0, EDGES + 1)
    entry = feed.decide(0)
    assert feed.open() == [0.0, pytest.approx(0.5 / 12, abs=1e-3)]
    feed.grow(65)  # past seven edges
    assert feed.open() == [0.0, pytest.approx(7.5 / 12, abs=1e-3)]
    feed.answer(entry, 65)
    assert feed.open() == [1.0, pytest.approx(7.5 / 12, abs=1e-3)]
    other = feed.decide(65, arm=1)
    feed.answer(other, 0, reward=0.0)
    assert feed.open(1) == [0.0, 1.0]
    feed.grow(1000)
    assert feed.open(1) == [0.0, 1.0], "no click is to come: it counts whole"
    assert feed.release(1000, WINDOW) == [entry, other]
    assert feed.open(0) == feed.open(1) == [0.0, 0.0]


def test_what_shows_no_single_arm_counts_whole():
    delays = counted([[1, 1, 700, 1500]])
    assert late.compute_share_in_bin(delays, -1, 0) == OPEN_UNIT > late.compute_share_in_bin(delays, 0, 0)


def test_what_was_open_before_delays_were_known_follows_the_curve_as_well():
    feed = Feed()
    feed.decide(0)
    feed.grow(10)
    assert feed.open() == [0.0, 1.0]  # nothing is known of delays
    feed.delays.curve[0] = np.linspace(0.0, 1.0, EDGES + 1)
    feed.grow(65)
    assert feed.open() == [0.0, pytest.approx(7.5 / 12, abs=1e-3)]


def test_a_queue_makes_room_and_forgets_what_all_cursors_have_passed():
    feed = Feed(room=4)
    for time in range(4):
        feed.decide(time)
    feed.release(2 * WINDOW, WINDOW)
    feed.grow(WINDOW + 1)  # the windows of two have closed
    queue = late.enlarge_queue(feed.queue, 10)
    assert queue.size[0] == 2
    assert queue.start[:2].tolist() == [2, 3]
    assert queue.cursor[EDGES - 1] == 0
    assert queue.cursor[RELEASED] == 2
    assert len(queue.start) >= 12


def test_arms_that_come_are_as_all_together():
    delays = counted([[1, 1, 700, 1500], [1]])
    more = late.enlarge_delays(delays, 3)
    all_hazard = 1 / 5
    assert more.curve[2, 11] == pytest.approx(1 - all_hazard)
    assert more.curve[:2] == pytest.approx(delays.curve)


events = st.lists(
    st.tuples(
        st.integers(0, 300),  # time since the one before
        st.integers(0, 1),  # arm
        st.one_of(st.none(), st.integers(0, 4000)),  # after what time it is answered
        st.booleans(),  # with a click
    ),
    min_size=1,
    max_size=40,
)


def lived(decisions, looks):
    """Play decisions and their answers in the order of time, with more looks; return all that is counted."""
    feed, queue = Feed(), []
    time = 0
    for gap, arm, delay, click in decisions:
        time += gap
        queue.append((time, 1, "decide", arm))
        if delay is not None:
            queue.append((time + delay, 0, len([each for each in queue if each[2] == "decide"]) - 1, click))
    queue += [(look, 2, "look", 0) for look in looks]
    learned, starts = [], []
    for now, _, what, value in sorted(queue, key=lambda each: each[:2]):
        if what == "look":
            feed.grow(now)
            continue
        feed.grow(now)
        if what == "decide":
            learned += feed.release(now, 500)
            starts.append(now)
            feed.decide(now, arm=value)
        elif what < len(starts):
            feed.answer(what, now - starts[what], reward=float(value))
    feed.grow(time + 5000)
    learned += feed.release(time + 5000, 500)
    return feed, learned


@settings(deadline=None)
@given(events, st.lists(st.integers(0, 15_000), max_size=60))
def test_edges_may_be_passed_in_any_steps(decisions, looks):
    feed, learned = lived(decisions, ())
    other, also = lived(decisions, looks)
    assert learned == also == list(range(len(decisions)))
    assert feed.state.open.tolist() == np.zeros((1, 2, 2)).tolist(), "whole numbers return to just 0"
    for name in ("delays", "queue", "answers", "state"):
        for (leaf, mine), (_, its) in zip(
            leaves(getattr(feed, name)), leaves(getattr(other, name)), strict=True
        ):
            assert mine.tolist() == its.tolist(), (name, leaf)
