"""Logs whose arms are items with vectors: read, learned, replayed and weighed with a table beside them."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drawn import examples, is_long
from hypothesis import given
from hypothesis import strategies as st
from items_of_ones_own import LikedItems

import tacit
from tacit.core.arrays import leaves
from tacit.core.seeds import stream
from tacit.errors import InvalidValue, UnknownName
from tacit.evaluate import DirectMethod
from tacit.logs import click_log, read_log
from tacit.logs.items import ItemTable

DIM, ITEMS, OFFERED = 384, 60, 40
START = datetime(2026, 1, 1, tzinfo=UTC)


def names(count=ITEMS):
    return [f"doc-{i}" for i in range(count)]


def vectors(seed=1, count=ITEMS):
    return np.random.default_rng(seed).integers(-8, 9, (count, DIM)) / 8.0


def item_table(values, **more):
    return pa.table({"id": names(len(values)), "vector": list(values), **more})


def policy():
    """Return one that compiles fast; the page on items and the long form have the real one."""
    return (tacit.EmbeddingMixture if is_long() else LikedItems)(relevance_dim=DIM)


def uniform_log(rounds=300, seed=7):
    """Return a log of uniform choice, its offers, and when each decision was made."""
    rng = np.random.default_rng(seed)
    taste, known = rng.standard_normal(DIM) / np.sqrt(DIM), vectors()
    offers = [rng.choice(ITEMS, OFFERED, replace=False).tolist() for _ in range(rounds)]
    shown = [offer[rng.integers(OFFERED)] for offer in offers]
    rewards = [float(known[item] @ taste > 0.2) for item in shown]
    times = [START + timedelta(minutes=i) for i in range(rounds)]
    log = pa.table(
        {
            "timestamp": times,
            "key": ["home"] * rounds,
            "arms": [[names()[item] for item in offer] for offer in offers],
            "arm": [names()[item] for item in shown],
            "propensity": [1.0 / OFFERED] * rounds,
            "reward": rewards,
        }
    )
    return log, offers, shown, rewards


def same(one, other):
    return all(np.array_equal(a, b) for (_, a), (_, b) in zip(leaves(one), leaves(other), strict=True))


def by_hand(offers, shown, rewards, seed=1):
    """Return a learner that learned what was shown, and the chance it gave each before."""
    learner, chances, known = tacit.Learner(policy(), seed), [], vectors()
    for offer, item, reward in zip(offers, shown, rewards, strict=True):
        at = offer.index(item)
        chances.append(learner.probabilities("home", arms=offer, relevance=known[offer])[at])
        decision = learner.choose("home", arms=offer, relevance=known[offer])
        learner.learn(decision._replace(slots=np.array([at])), reward)
    return learner, chances


def test_fit_log_learns_what_the_learner_would_have_learned():
    log, offers, shown, rewards = uniform_log()
    expected, _ = by_hand(offers, shown, rewards)
    assert same(tacit.Learner(policy(), 1).fit_log(log, items=item_table(vectors())).state, expected.state)
    by_catalogue = tacit.Learner(policy(), 1)
    by_catalogue.items.put(names(), vectors())
    assert same(by_catalogue.fit_log(log).state, expected.state)
    with pytest.raises(InvalidValue, match="items"):
        tacit.Learner(policy(), 1).fit_log(log)


def test_replay_makes_the_draws_of_a_learner():
    log, offers, shown, rewards = uniform_log()
    learner, known = tacit.Learner(policy(), stream("replay", 3, 0)), vectors()
    matched = []
    for offer, item, reward in zip(offers, shown, rewards, strict=True):
        decision = learner.choose("home", arms=offer, relevance=known[offer])
        if decision.arm == item:
            learner.learn(decision, reward)
            matched.append(reward)
    found = tacit.replay(policy(), log, passes=2, seed=3, items=item_table(known))
    assert found.matched[0] == len(matched)
    assert found.clicks[0] == sum(matched)
    halves = tacit.replay(policy(), log, passes=2, seed=3, window=170, items=item_table(known))
    assert halves.matched[0] == found.matched[0]
    with pytest.raises(InvalidValue, match="items"):
        tacit.replay(policy(), log)
    with pytest.raises(InvalidValue, match="items: '7 numbers'"):
        tacit.replay(policy(), log, items=item_table(vectors()[:, :7]))


def test_a_policy_that_learns_is_weighed_by_its_chances_for_items():
    log, offers, shown, rewards = uniform_log()
    learner, chances = by_hand(offers, shown, rewards)
    weights = np.array(chances) * OFFERED
    found = tacit.off_policy(policy(), log, items=item_table(vectors()))
    assert found.estimates[0].value == pytest.approx(np.mean(weights * rewards), rel=1e-12)
    known = vectors()
    later = [
        learner.probabilities("home", arms=offer, relevance=known[offer])[offer.index(item)]
        for offer, item in zip(offers, shown, strict=True)
    ]
    frozen = tacit.off_policy(learner, log, items=item_table(known))
    assert frozen.estimates[0].value == pytest.approx(np.mean(np.array(later) * OFFERED * rewards), rel=1e-12)
    with pytest.raises(InvalidValue, match=r"IPS\(\) and SNIPS\(\)"):
        tacit.off_policy(learner, log, [DirectMethod()], items=item_table(known))
    with pytest.raises(InvalidValue, match="items"):
        tacit.off_policy(learner, log)


def test_vectors_are_those_of_the_time(tmp_path):
    log = uniform_log()[0]
    since = START + timedelta(minutes=100)
    both = pa.concat_tables(
        [
            item_table(vectors(5), **{"from": [since] * ITEMS}),
            item_table(vectors(), **{"from": [START - timedelta(days=1)] * ITEMS}),
        ]
    )
    pq.write_table(both, tmp_path / "items.parquet")
    by_time = tacit.Learner(policy(), 1).fit_log(log, items=tmp_path / "items.parquet")
    expected = tacit.Learner(policy(), 1).fit_log(log.slice(0, 100), items=item_table(vectors()))
    expected.fit_log(log.slice(100), items=item_table(vectors(5)))
    assert same(by_time.state, expected.state)
    whole = tacit.replay(policy(), log.slice(0, 100), passes=1, items=item_table(vectors()))
    assert tacit.replay(policy(), log.slice(0, 100), passes=1, items=both).matched == whole.matched
    one = tacit.off_policy(expected, log.slice(100), items=item_table(vectors(5)))
    assert tacit.off_policy(expected, log.slice(100), items=both).estimates[0].value == one.estimates[0].value
    late = item_table(vectors(), **{"from": [since] * ITEMS})
    for ask in (
        tacit.Learner(policy(), 1).fit_log,
        lambda log, items: tacit.replay(policy(), log, items=items),
    ):
        with pytest.raises(UnknownName, match="no vector of 'doc-"):
            ask(log, items=late)


@examples(50)
@given(
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 6)), min_size=1),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7))),
)
def test_the_latest_row_by_then_is_taken(rows, asked):
    rows = sorted(rows, key=lambda row: (row[1] * 5 + row[0]) % 7)
    time = [START + timedelta(seconds=at) for _, at in rows]
    vectors = [[float(i), at] for i, at in rows]
    table = ItemTable({"id": [f"{i}" for i, _ in rows], "vector": vectors, "from": time})
    for item, at in asked:
        latest = max((when for i, when in rows if i == item and when <= at), default=None)
        times = pa.array([START + timedelta(seconds=at)])
        try:
            codes = table.codes(pa.array([str(item)]), "log")
            found = table.vectors(table.rows(codes, times, "log")).tolist()
        except UnknownName:
            assert latest is None
        else:
            assert found == [[float(item), latest]]


def test_what_a_learner_decided_on_items_is_a_log():
    learner = tacit.Learner(policy(), seed=1)
    learner.items.put(names(), vectors())
    offers = [names()[i : i + 5] for i in range(20)]
    decisions = learner.choose_many(["home"] * 20, arms=offers)
    log = click_log(learner.policy, decisions, [1.0] * 20, arms=offers)
    assert log["arms"].to_pylist() == offers
    assert log["arm"].to_pylist() == decisions.arms
    again = tacit.Learner(policy(), seed=1).fit_log(log, items=learner.items)
    learner.learn_many(decisions, [1.0] * 20)
    assert same(again.state, learner.state)
    with pytest.raises(InvalidValue, match="arms"):
        click_log(learner.policy, decisions, [1.0] * 20)
    assert read_log(log, items=learner.items).items.dim == DIM
