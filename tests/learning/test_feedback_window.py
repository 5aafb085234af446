"""Feedback as it comes: clicks at once and nothing else, learned once, in the order of decisions."""

import copy
import heapq
import pickle
import warnings
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit.errors import AssumptionWarning, InvalidValue, SnapshotError, UnknownName

ARMS = ["film", "holiday", "shop"]
RATES = [0.3, 0.5, 0.1]


def named(seed=1):
    return tacit.Learner(tacit.auto(arms=ARMS), seed=seed)


def earned(learner, seconds, seed, rounds, clicks_only=True):
    """Return the mean reward after the first two windows, one decision a second."""
    rng, coming, total = np.random.default_rng(seed), [], 0
    window = tacit.FeedbackWindow(learner, seconds=seconds)
    for second in range(rounds):
        while coming and coming[0][0] <= second:
            time, id = heapq.heappop(coming)
            window.feedback(id, time=time)
        decision = window.choose(time=float(second))
        clicked = rng.random() < RATES[decision.slot]
        total += clicked and second >= 2 * seconds
        if not clicks_only:
            window.feedback(decision, float(clicked), time=float(second))
        elif clicked and (delay := rng.exponential(0.1 * seconds)) < seconds:
            heapq.heappush(coming, (second + delay, decision.id))
    return total / (rounds - 2 * seconds)


@pytest.mark.parametrize("seconds", [10, 300])
def test_clicks_alone_earn_what_clicks_and_zeros_do(seconds):
    alone = [earned(named(seed), seconds, seed, 3000) for seed in range(3)]
    both = [earned(named(seed), seconds, seed, 3000, clicks_only=False) for seed in range(3)]
    assert np.mean(alone) > 0.95 * np.mean(both)


def test_decisions_are_learned_once_and_in_their_order():
    plain, window = named(), tacit.FeedbackWindow(named(), seconds=10)
    made = [window.choose("home", time=float(second)) for second in range(5)]
    plain.observe_decisions(made)
    assert window.feedback(made[3], time=4.5) == "pending"
    assert window.feedback(str(made[1].id), time=5.0) == "pending"
    assert window.feedback(made[1], 0.0, time=5.5) == "repeated"
    assert window.open_count == 5
    assert window.advance(9.9) == 0
    assert window.advance(12.0) == 4
    assert window.feedback(made[0], time=12.5) == "late"
    assert window.flush() == 1
    assert window.open_count == 0
    plain.learn_many(made, [0.0, 1.0, 0.0, 1.0, 0.0])
    assert plain.estimates("home") == window.learner.estimates("home")


def test_a_click_after_its_decision_was_learned_is_one_more_success():
    window = tacit.FeedbackWindow(named(), seconds=10)
    decision = window.choose("home", time=0.0)
    window.flush()
    before = pickle.dumps(window.learner)
    assert window.feedback(decision, time=5.0) == "learned"
    after = pickle.dumps(window.learner)
    assert before != after
    assert window.feedback(decision, time=6.0) == "repeated"
    assert pickle.dumps(window.learner) == after


def test_nothing_is_open_when_all_is_learned():
    window = tacit.FeedbackWindow(named(), seconds=10)
    for second in range(100):
        decision = window.choose(time=float(second))
        if second % 3 == 0:
            window.feedback(decision, float(second % 2), time=second + 0.5)
    assert window.learner.state.open.any()
    window.advance(110.0)
    assert not window.learner.state.open.any()


def test_the_learning_age_is_the_time_by_which_nearly_all_clicks_come():
    window = tacit.FeedbackWindow(named(), seconds=1000)
    assert window.learning_age == 1000
    for second in range(3000):
        window.feedback(window.choose(time=float(second)), time=second + 0.5)
    assert window.learning_age <= 1.0
    shares = dict(zip(window.delays["arm"], window.delays["share"], strict=True))
    assert list(shares) == ARMS
    assert set(shares.values()) == {1.0}


def test_late_clicks_count_in_the_delays():
    """Otherwise the age would shorten itself: what it cuts off would never be seen."""
    rng, coming = np.random.default_rng(3), []
    window = tacit.FeedbackWindow(tacit.Learner(tacit.auto(arms=2), seed=1), seconds=100)
    for second in range(6000):
        while coming and coming[0][0] <= second:
            time, id = heapq.heappop(coming)
            window.feedback(id, time=time)
        decision = window.choose(time=float(second))
        heapq.heappush(coming, (second + rng.uniform(0.0, 50.0), decision.id))
    assert 40 < window.learning_age < 60


def test_unknown_and_foreign_decisions():
    window, other = tacit.FeedbackWindow(named(), seconds=10), named(2)
    with pytest.warns(AssumptionWarning, match="3 is not of this window"):
        assert window.feedback(3, time=1.0) == "unknown"
    decision = other.choose("home")
    with pytest.raises(UnknownName, match="key: nothing was ever chosen"):
        window.add(decision, time=1.0)
    window.choose("home", time=2.0)
    later = [other.choose("home") for _ in range(5)][-1]
    assert window.add(later.to_json(), time=3.0).id == later.id
    assert window.feedback(later.to_json(), time=3.0) == "pending"
    alien = tacit.Learner(tacit.auto(arms=9), seed=1).choose("home")
    for wrong, message in [
        (lambda: window.add(decision, time=3.0), "of this id is open"),
        (lambda: window.add(alien, time=3.0), "decision"),
        (lambda: window.feedback(0, 2.0), "reward"),
        (lambda: window.feedback(0, time=float("nan")), "time"),
        (lambda: window.feedback(0, time=datetime(2026, 1, 1)), "time"),
        (lambda: window.feedback_many([0, 1], times=[1.0]), "times"),
        (lambda: tacit.FeedbackWindow(named(), seconds=0), "seconds"),
        (lambda: tacit.FeedbackWindow(tacit.auto(arms=2), seconds=1), "learner"),
    ]:
        with pytest.raises(InvalidValue, match=message):
            wrong()


def test_times_of_any_kind_and_times_that_go_back():
    window = tacit.FeedbackWindow(named(), seconds=10)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    first = window.choose(time=start)
    second = window.choose(time=np.datetime64("2026-01-01T00:00:08"))
    assert window.feedback(first, time=start.timestamp()) == "pending"
    assert window.choose(time=0.0).id == 2  # is taken as the last time, 8 s after the first
    assert window.feedback(second, time=start.timestamp() + 17.9) == "pending"
    now = tacit.FeedbackWindow(named(), seconds=10)
    assert now.feedback_many([d.id for d in now.choose_many(["a", "b"])]) == ["pending"] * 2


def duels():
    return tacit.Learner(tacit.auto(arms=ARMS, shows="duel"), seed=1)


def lists():
    return tacit.Learner(tacit.auto(arms=ARMS, shows="slate", positions=2), seed=1)


def with_contexts():
    return tacit.Learner(tacit.auto(arms=ARMS, context_dim=2), seed=1)


def items():
    return tacit.Learner(tacit.auto(relevance_dim=2), seed=1)


FORMS = {
    named: ({}, [1.0, 0.0, 0.5]),
    duels: ({}, [1.0, 0.0, 0.5]),
    lists: ({}, [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]),
    with_contexts: ({"context": [0.5, 1.0]}, [1.0, 0.0]),
    items: ({"relevance": [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]}, [1.0, 0.0]),
}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_what_is_due_at_once_is_learned_as_by_learn(form):
    """Every kind of decision: explicit feedback of all in order is what ``learn`` learns."""
    given, rewards = FORMS[form]
    plain, window = form(), tacit.FeedbackWindow(form(), seconds=60)
    for second in range(30):
        expected = plain.choose("home", **given)
        decision = window.choose("home", time=float(second), **given)
        assert decision.shown == expected.shown
        reward = rewards[second % len(rewards)]
        plain.learn(expected.lean(), reward)
        window.feedback(decision, reward, time=float(second))
        window.flush()
    assert pickle.dumps(plain) == pickle.dumps(window.learner)


def test_silence_is_a_zero_and_of_duels_a_tie():
    for form, silence in (named, 0.0), (duels, 0.5), (lists, [0.0, 0.0]):
        plain, window = form(), tacit.FeedbackWindow(form(), seconds=60)
        for second in range(10):
            plain.learn(plain.choose(), silence)
            window.choose(time=float(second))
            window.flush()
        assert pickle.dumps(plain) == pickle.dumps(window.learner)


def test_clicks_of_a_list_may_come_one_by_one():
    plain, window = lists(), tacit.FeedbackWindow(lists(), seconds=60)
    plain.learn(plain.choose(), [1.0, 1.0])
    decision = window.choose(time=0.0)
    assert window.feedback(decision, [0.0, 1.0], time=1.0) == "pending"
    assert window.feedback(decision, [1.0, 0.0], time=2.0) == "pending"
    assert window.feedback(decision, [1.0, 0.0], time=3.0) == "repeated"
    window.flush()
    assert pickle.dumps(plain) == pickle.dumps(window.learner)


def test_new_arms_take_part():
    window = tacit.FeedbackWindow(named(), seconds=20)
    for second in range(100):
        if second == 50:
            window.learner.add_arms(["song"])
        window.feedback(window.choose(time=float(second)), time=second + 0.1)
    assert len(set(window.delays["arm"])) == 4
    assert pickle.dumps(pickle.loads(pickle.dumps(window))) == pickle.dumps(window)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["choose", "many", "click", "zero", "advance", "flush", "arms", "cut", "cut"]),
        st.integers(0, 30),
        st.floats(0.0, 4.0),
    ),
    max_size=60,
)


@pytest.mark.parametrize("form", [named, duels, lists, with_contexts, items], ids=lambda form: form.__name__)
@settings(max_examples=25, deadline=None)
@given(events=EVENTS)
def test_a_window_goes_on_from_its_file_as_if_it_had_never_stopped(tmp_path_factory, form, events):
    path = tmp_path_factory.mktemp("windows") / "home.window"
    options = FORMS[form][0]
    one, other = (tacit.FeedbackWindow(form(), seconds=10) for _ in range(2))
    click = {duels: 1.0, lists: [0.0, 1.0]}.get(form, 1.0)
    zero = {duels: 0.5, lists: [0.0, 0.0]}.get(form, 0.0)
    now = 0.0
    for event, number, step in events:
        now += step
        if event == "cut":
            other.save(path)
            other = tacit.FeedbackWindow.load(path)
            continue
        results = []
        for window in one, other:
            made = window.learner.decisions
            if event == "choose":
                decision = window.choose(f"key {number % 2}", time=now, **options)
                results.append((decision.shown, decision.propensity))
            elif event == "many":
                many = [np.array(each) for each in options.values()]
                names = {"context": "contexts"}
                columns = {names.get(n, n): [v] * 3 for n, v in zip(options, many, strict=True)}
                decisions = window.choose_many(["key 0", "key 1", "key 0"], time=now, **columns)
                results.append([decision.shown for decision in decisions])
            elif event in ("click", "zero") and made:
                reward = click if event == "click" else zero
                results.append(window.feedback(max(0, made - 1 - number), reward, time=now))
            elif event == "arms" and form is named and window.learner.policy.arm_count < 5:
                results.append(window.learner.add_arms([f"arm {window.learner.policy.arm_count}"]))
            elif event == "flush":
                results.append(window.flush())
            elif event == "advance":
                results.append(window.advance(now))
        assert results[:1] == results[1:]
        assert one.open_count == other.open_count
    assert pickle.dumps(one) == pickle.dumps(other)


def test_files_that_are_no_window_are_refused(tmp_path):
    window = tacit.FeedbackWindow(named(), seconds=10)
    for second in range(5):
        window.choose(time=float(second))
    path = tmp_path / "home.window"
    window.save(path)
    window.save(path)
    whole = path.read_bytes()
    plain = tmp_path / "home.tacit"
    window.learner.save(plain)
    assert not tacit.Learner.load(plain).state.open.any()  # nobody will ever learn what was open
    for content in (
        b"",
        b"arm,reward",
        plain.read_bytes(),
        whole[:-100],
        whole.replace(b"cursor", b"Cursor"),
    ):
        path.write_bytes(content)
        with pytest.raises(SnapshotError):
            tacit.FeedbackWindow.load(path)
    with pytest.raises(SnapshotError):
        tacit.Learner.load(path)
    with pytest.raises(SnapshotError, match="cannot be read"):
        tacit.FeedbackWindow.load(tmp_path / "none")
    again = copy.deepcopy(window)
    again.choose(time=6.0)
    assert (window.open_count, again.open_count) == (5, 6)


def test_a_window_is_not_doubted():
    with warnings.catch_warnings(action="error"):
        window = tacit.FeedbackWindow(named(), seconds=1e6)
        for second in range(11):
            window.choose_many(["home"] * 1000, time=float(second))
            window.feedback(window.choose("home", time=float(second)), time=float(second))
    assert "decisions open" in repr(window)
    assert "learned at" in tacit.FeedbackWindow._repr_html_(window)
