"""Placements of every kind decide and learn without keeping an array of what is over."""

import gc
import sys
import tracemalloc
import weakref
from itertools import islice

import numpy as np
import pytest
from harness import SECOND, served, with_home
from placement_access import decide, get_learners

from tacit.core.arrays import leaves
from tacit.service.log.requests import Clicked, DecisionRequest, FeedbackRequest
from tacit.service.log.rows import CLICKS
from tacit.wire.control import ModeOf
from tacit.wire.decisions import ItemsOf, NewItem

FIRST, WARM, ROUNDS = 2, 18, 20
"""Rounds until all is compiled, until as much is given back as taken, and those that are compared."""
NAMED, TOGETHER = 30, 20
"""Decisions of each round that are made one by one, as they have ids of their own, and at once."""
GROWTH_LIMIT = 50_000
"""Bytes that the rounds may add: the smallest arrays, one for each named decision, take 72,000."""
DIM = 16
ITEMS = np.random.default_rng(1).normal(size=(30, DIM))
RANKINGS = {"old": ("a", "b", "c"), "new": ("c", "a", "d")}
ARMS = {"arms": ["a", "b", "c"]}
BY_FEATURES = {"kind": "features", "policy": f"lin-ts(relevance_dim={DIM})"}
BY_ID = {"policy": f"embedding-mixture(relevance_dim={DIM})", "relevance_dim": DIM}
LISTS = {"kind": "slates", "positions": 2}
KINDS = {
    "arms": (ARMS, {}),
    "context": (ARMS | {"context": {"device": ["ios", "web"]}}, {"context": {"device": "ios"}}),
    "features": (BY_FEATURES, {"arms": ["i0", "i1", "i2"], "relevance": ITEMS[:3].tolist()}),
    "items by id": ({"kind": "features"} | BY_ID, {"arms": [f"i{i}" for i in range(20)]}),
    "all items": ({"kind": "features"} | BY_ID, {}),
    "lists": (LISTS | {"arms": 5}, {}),
    "item lists": (LISTS | {"policy": "item-list-mix(epsilon=0.1)", "relevance_dim": DIM}, {}),
    "duels": ({"kind": "duels", "rankers": ["old", "new"], "length": 3}, {"rankings": RANKINGS}),
    "shadow": (ARMS | {"shadow": "ucb1"}, {}),
    "holdout": (ARMS | {"holdout": {"share": 0.3, "unit": "user"}}, {"user": "ann"}),
    "control policy": (ARMS | {"holdout": {"share": 0.3, "control": {"policy": "ucb1"}}}, {}),
}


def answer_to(row, kind):
    """Return feedback for a decision: a click on what is shown first."""
    if kind.takes_clicks:
        return FeedbackRequest(row.id, CLICKS, clicks=Clicked([0]))
    return FeedbackRequest(row.id, reward=1.0)


async def play(engine, round, more):
    """Decide one by one and at once, and learn; windows close some rounds later."""
    engine.clock.now += SECOND
    home = engine.placements["home"]
    ids = [*(f"{round} {i}" for i in range(NAMED)), *[None] * TOGETHER]
    rows = await decide(engine, *(DecisionRequest("k", id=id, **more) for id in ids))
    await engine.record_many("home", [answer_to(row, home.kind) for row in rows])


async def begin(engine, table):
    """Put items into the catalogue, and let a second policy decide, where there are any."""
    if "relevance_dim" in table:
        items = [NewItem(f"i{i}", vector.tolist()) for i, vector in enumerate(ITEMS)]
        await engine.ask("home", ItemsOf(items))
    if "shadow" in table:
        await engine.ask("home", ModeOf("shadow"))


def arrays_of(placement):
    """Return the arrays of what a placement has learned, and of its catalogue."""
    return [array for learner in get_learners(placement) for _, array in leaves(learner.lanes.state)]


# A warning about the service's own use of a decision is an error.
@pytest.mark.filterwarnings("error:arm.*is the first alone")
@pytest.mark.parametrize("name", KINDS)
async def test_decisions_and_feedback_keep_no_array(tmp_path, name, monkeypatch):
    monkeypatch.setenv("TACIT_COMPILE", "1")
    table, more = KINDS[name]
    config = with_home(**table, attribution_window=3)
    async with served(tmp_path / "s.db", config) as engine:
        await begin(engine, table)
        rounds = iter(range(FIRST + WARM + ROUNDS))
        for round in islice(rounds, FIRST):
            await play(engine, round, more)
        arrays = arrays_of(engine.placements["home"])
        tracemalloc.start()
        try:
            for round in islice(rounds, WARM):
                await play(engine, round, more)
            gc.collect()
            references = list(map(sys.getrefcount, arrays))
            before, _ = tracemalloc.get_traced_memory()
            for round in rounds:
                await play(engine, round, more)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < GROWTH_LIMIT
        assert list(map(sys.getrefcount, arrays)) == references


async def test_what_a_rebuild_replaces_is_given_back(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_COMPILE", "1")
    table = ARMS | {"holdout": {"share": 0.3}}
    async with served(tmp_path / "s.db", with_home(**table, attribution_window=3)) as engine:
        replaced = []
        for round, policy in enumerate(["ucb1", "thompson", "ucb1", "thompson"]):
            await play(engine, round, {})
            replaced += map(weakref.ref, arrays_of(engine.placements["home"]))
            await engine.rebuild("home", policy)
        await play(engine, 5, {})
        gc.collect()
        assert [ref() is None for ref in replaced] == [True] * len(replaced)
