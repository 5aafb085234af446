"""Lists of items known by vectors in click logs: learned, and weighed by what other policies would show."""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from drawn import is_long
from items_of_ones_own import LikedLists

import tacit
from tacit.evaluate import CascadeIPS, IndependentIPS, Ranking
from tacit.logs import click_log
from tacit.policies.features.embedding_mixture import EmbeddingPolicy
from tacit.policies.lists.one_draw import LinePolicy, Lines
from tests.policies.test_context_mixture import state_bytes
from tests.policies.test_item_list_mix import read, sigmoid

pytestmark = pytest.mark.interpreted

ITEMS = np.random.default_rng(1).standard_normal((200, 6)).astype(np.float32)
NAMES = [f"item {i}" for i in range(len(ITEMS))]
TABLE = {"id": NAMES, "vector": ITEMS.tolist()}
# One that compiles fast; the real one's loops over logs take 40 s.
LOGGING = (tacit.ItemListMix if is_long() else LikedLists)(6, positions=3, epsilon=0.3)


def logged(policy, lists, seed=2, **reading):
    """Return the learner that listed three of six out of 200 items, and its log."""
    rng, learner = np.random.default_rng(seed), tacit.Learner(policy, seed=seed)
    chances = sigmoid(ITEMS @ np.random.default_rng(7).standard_normal(6) - 1)
    made, clicks, offers = [], [], []
    for _ in range(lists):
        offer = rng.choice(len(ITEMS), 6, replace=False)
        decision = learner.choose("all", relevance=ITEMS[offer].astype(float))
        made.append(decision)
        clicks.append(read(rng, chances[offer[decision.slots]], **reading))
        offers.append([NAMES[i] for i in offer])
        learner.learn(decision, clicks[-1])
    return learner, click_log(policy, made, clicks, arms=offers)


def test_a_learner_learns_from_the_log_what_it_learned_when_it_decided():
    learner, log = logged(LOGGING, 50, seen=[1.0, 0.6, 0.4])
    again = tacit.Learner(LOGGING, seed=5).fit_log(log, items=TABLE)
    assert again.decisions == 50
    assert state_bytes(again) == state_bytes(learner)


def test_the_policy_that_wrote_a_log_is_worth_what_it_earned():
    """It decides as it did, having learned the same: each weight is 1."""
    _, log = logged(LOGGING, 60, on=(0.9, 0.4))
    found = tacit.off_policy(Ranking(LOGGING), log, [IndependentIPS(3), CascadeIPS(3)], items=TABLE)
    for estimate in found.estimates:
        assert estimate.value == pytest.approx(np.sum(log["reward"].to_numpy()) / 60)
        assert estimate.intervals["normal"]


def test_candidates_may_come_from_the_catalogue():
    """By id, in half precision; a decision knows them all when it is learned."""
    by_id, by_vector = tacit.Learner(LOGGING, seed=3), tacit.Learner(LOGGING, seed=3)
    by_id.items.put(NAMES, ITEMS)
    for first in range(0, 40, 8):
        names, vectors = NAMES[first : first + 8], ITEMS[first : first + 8].astype(np.float16).astype(float)
        decision = by_id.choose(arms=names)
        other = by_vector.choose(arms=names, relevance=vectors)
        assert decision.slate == other.slate
        assert set(decision.slate) <= set(names)
        by_id.learn(decision, [0.0, 1.0, 0.0])
        by_vector.learn(other, [0.0, 1.0, 0.0])
    assert state_bytes(by_id) == state_bytes(by_vector)


@dataclass(frozen=True)
class ByFirst(LinePolicy, EmbeddingPolicy):
    """Lists items by their first numbers, whatever comes back."""

    arms: Any = field(default=None, init=False, repr=False, compare=False)

    class State(NamedTuple):
        nothing: np.ndarray

    def init(self, lanes):
        return self.State(np.zeros((lanes, 1)))

    @staticmethod
    def arrange(params, state, lane, impression):
        count = len(impression.arms)
        return Lines(impression.relevance[:, 0].copy(), np.zeros(count), np.arange(count))

    @staticmethod
    def clear(params, state, lane):
        pass

    @staticmethod
    def learn(params, state, lane, outcome):
        pass


@pytest.mark.parametrize(
    ("reading", "estimator"),
    [({"seen": [1.0, 0.6, 0.4]}, IndependentIPS(3)), ({"on": (0.9, 0.4)}, CascadeIPS(3))],
)
def test_another_order_is_worth_what_it_would_earn(reading, estimator):
    """From 2,000 lists of one that explores; a fault at 5 standard errors, of probability 6e-7."""
    _, log = logged(ByFirst(6, positions=3, epsilon=1.0), 2_000, **reading)
    target = ByFirst(6, positions=3)
    found = tacit.off_policy(Ranking(target), log, [estimator], items=TABLE).estimates[0]
    _, own = logged(target, 2_000, 3, **reading)
    earned = own["reward"].to_numpy().reshape(-1, 3).sum(axis=1)
    errors = math.hypot(found.standard_error, earned.std() / math.sqrt(2_000))
    assert abs(found.value - earned.mean()) <= 5 * errors
    low, high = found.intervals["normal"]
    assert 0 < high - low < 0.5
