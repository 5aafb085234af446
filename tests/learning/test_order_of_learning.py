"""Outcomes that are learned sorted are warned of, and those that are not are left alone."""

import heapq
import random
import warnings

import numpy as np
import pytest

import tacit
from tacit.errors import AssumptionWarning

ARMS = ["film", "holiday", "shop"]


def learner(policy=None):
    return tacit.Learner(policy or tacit.auto(arms=ARMS), seed=1, propensities=False)


def serve(one, rng, rate, delay_of, decisions=1500, keys=1):
    """Choose, and learn each decision after a delay in decisions that its outcome may decide."""
    due = []
    for now in range(decisions):
        while due and due[0][0] <= now:
            _, _, decision, reward = heapq.heappop(due)
            one.learn(decision, reward)
        decision = one.choose(f"key {now % keys}")
        reward = float(rng.random() < (rate(now) if callable(rate) else rate))
        delay = delay_of(rng, reward)
        if delay is not None:
            heapq.heappush(due, (now + delay, now, decision, reward))


def clicks_at_once(window):
    return lambda rng, reward: 0 if reward else window


def alike(most):
    return lambda rng, reward: rng.integers(0, most + 1)


SORTED = [
    (0.3, clicks_at_once(30)),
    (0.3, clicks_at_once(100)),
    (0.3, clicks_at_once(1000)),
    (0.05, clicks_at_once(300)),
    (0.5, lambda rng, reward: 0 if reward else None),
    (0.05, lambda rng, reward: 0 if reward else None),
    (0.3, lambda rng, reward: 100 if reward else 0),
    (0.3, lambda rng, reward: rng.exponential(10) if reward else 100),
]


@pytest.mark.parametrize("case", range(len(SORTED)))
def test_what_is_learned_sorted_by_outcome_is_warned_of_once(case):
    rate, delay_of = SORTED[case]
    with pytest.warns(AssumptionWarning, match=r"^reward: .*tacit\.FeedbackWindow") as said:
        serve(learner(), np.random.default_rng(case), rate, delay_of)
    assert len(said) == 1
    assert said[0].filename == __file__


SOUND = [
    (0.3, lambda rng, reward: 0),
    (0.3, lambda rng, reward: 300),
    (0.3, alike(50)),
    (0.3, alike(300)),
    (0.99, lambda rng, reward: 0),
    (0.95, alike(5)),
    (0.9, alike(300)),
    (lambda now: min(0.9, 0.1 + now / 1000), alike(50)),
    (lambda now: 0.9 if now % 400 < 200 else 0.1, lambda rng, reward: 0),
    (0.3, clicks_at_once(8)),
]


@pytest.mark.parametrize("case", range(len(SOUND)))
def test_what_is_learned_as_it_should_be_is_not_warned_of(case):
    rate, delay_of = SOUND[case]
    with warnings.catch_warnings(action="error"):
        for seed in range(5):
            serve(learner(), np.random.default_rng(seed), rate, delay_of)


def test_many_keys_with_few_decisions_in_a_window_are_not_warned_of():
    with warnings.catch_warnings(action="error"):
        serve(learner(), np.random.default_rng(1), 0.3, clicks_at_once(100), keys=50)


def test_counts_do_not_depend_on_the_order():
    with warnings.catch_warnings(action="error"):
        serve(learner(tacit.UCB1(ARMS)), np.random.default_rng(1), 0.3, clicks_at_once(100))


def test_batches_of_clicks_and_of_zeros_are_warned_of():
    one, rng = learner(), np.random.default_rng(1)

    def use():
        for _ in range(5):
            made = one.choose_many(["home"] * 200)
            clicked = rng.random(200) < 0.3
            for outcome in (True, False):
                rows = np.flatnonzero(clicked == outcome)
                one.learn_many([made[row] for row in rows], [float(outcome)] * len(rows))

    with pytest.warns(AssumptionWarning, match=r"^reward: .*tacit\.FeedbackWindow") as said:
        use()
    assert len(said) == 1
    assert said[0].filename == __file__


@pytest.mark.parametrize("policy", [tacit.auto(arms=ARMS), tacit.auto(arms=ARMS, context_dim=1)])
def test_many_are_learned_in_the_order_of_decisions(policy, tmp_path):
    one, two = learner(policy), learner(policy)
    contexts = np.linspace(0, 1, 100)[:, None] if policy.context_dim else None
    decisions, same = (each.choose_many(["home"] * 100, contexts) for each in (one, two))
    rewards = (np.arange(100) % 3 == 0).astype(float)
    one.learn_many(decisions, rewards)
    rows = random.Random(1).sample(range(100), 100)
    two.learn_many([same[row] for row in rows], rewards[rows])
    for name, each in ("one", one), ("two", two):
        each.save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_order_of_decisions_of_several_learners_is_not_known():
    one, other = learner(), learner()
    mine, others = one.choose_many(["home"] * 3), other.choose_many(["home"] * 9)
    with warnings.catch_warnings(action="error"):
        one.learn_many(list(others), [0.0] * 9)
    with pytest.warns(AssumptionWarning, match="decisions: some are of another learner"):
        one.learn_many([others[8], mine[1]], [0.0, 1.0])


def rows_of(count, seed=1):
    rng = np.random.default_rng(seed)
    return {
        "timestamp": np.arange(count).astype("datetime64[m]") + np.timedelta64(30, "D"),
        "key": np.array(["home", "search"])[rng.integers(0, 2, count)],
        "arm": np.array(ARMS)[rng.integers(0, 3, count)],
        "reward": (rng.random(count) < 0.3).astype(float),
    }


def state_after(log, tmp_path, policy, **reading):
    learner(policy).fit_log(log, arms=ARMS, **reading).save(tmp_path / "learned")
    return (tmp_path / "learned").read_bytes()


@pytest.mark.parametrize("form", ["memory", "csv", "parquet"])
def test_a_log_is_learned_by_time_whatever_the_order_of_its_rows(form, tmp_path):
    import pandas

    frame = pandas.DataFrame(rows_of(70_000 if form == "parquet" else 1000))
    states = []
    with warnings.catch_warnings(action="error"):
        for each in frame, frame.sample(frac=1.0, random_state=1), frame[::-1]:
            path = tmp_path / f"log.{form}"
            if form == "memory":
                states.append(state_after(each, tmp_path, None))
                continue
            if form == "csv":
                each.to_csv(path, index=False, date_format="%Y-%m-%dT%H:%M:%SZ")
            else:
                each.to_parquet(path, index=False)
            states.append(state_after(path, tmp_path, None))
    # Keys come in the order of the rows.
    assert states[0] == states[1] == states[2]


def test_lists_of_a_log_are_learned_by_time(tmp_path):
    import pandas

    rng, count = np.random.default_rng(1), 400
    arms = np.concatenate([rng.permutation(3)[:2] for _ in range(count)])
    frame = pandas.DataFrame(
        {
            "timestamp": np.repeat(np.arange(count).astype("datetime64[m]") + np.timedelta64(30, "D"), 2),
            "decision_id": np.repeat([f"d{i}" for i in range(count)], 2),
            "position": np.tile([0, 1], count),
            "key": "home",
            "arm": np.array(ARMS)[arms],
            "reward": (rng.random(2 * count) < 0.3).astype(float),
        }
    )
    order = np.repeat(2 * rng.permutation(count), 2) + np.tile([0, 1], count)
    policy = tacit.auto(arms=ARMS, shows="slate", positions=2)
    states = [state_after(each, tmp_path, policy) for each in (frame, frame.iloc[order])]
    assert states[0] == states[1]
