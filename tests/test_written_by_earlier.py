"""What version 0.1 wrote: log and snapshots open, agree, and learning goes on from there."""

from __future__ import annotations

import gzip
import json
import shutil

import harness
import numpy as np
import pytest
from conftest import DATA
from harness import Clock

import tacit
from tacit.service.config.file import load_config
from tacit.service.engine.engine import Engine
from tacit.service.log.requests import Clicks, DecisionRequest, FeedbackRequest
from tacit.service.log.rows import CLICKS
from tacit.service.log.sqlite import SqliteStore
from tacit.service.maintenance.verify import verify
from tacit.wire.control import ArmsOf, ModeOf

WRITTEN = DATA / "written_by_0.1"
PLACEMENTS = ("home", "news", "rankers", "shelf", "video")
DECISIONS = 50
ASKED = {
    "home": {},
    "news": {"context": [0.9]},
    "rankers": {"rankings": {"old": ["x", "y", "z"], "new": ["z", "y", "x"]}},
    "shelf": {},
    "video": {"relevance": [[0.1], [0.9]], "examination": [[1.0], [0.5]]},
}


@pytest.fixture
def config(tmp_path):
    """Yield the configuration over a copy of the store."""
    shutil.copy(WRITTEN / "tacit.toml", tmp_path)
    with gzip.open(WRITTEN / "store.db.gz") as packed:
        (tmp_path / "store.db").write_bytes(packed.read())
    return load_config(tmp_path / "tacit.toml")


def end_of(config):
    store = SqliteStore(config.store.path)
    end = store.end()
    store.close()
    return end


def test_its_snapshots_and_its_log_say_the_same(config):
    store = SqliteStore(config.store.path)
    assert {name: store.snapshot(each.id) is not None for name, each in store.placements().items()}
    assert verify(config, store) == []
    store.close()


async def test_its_service_goes_on(config):
    """With open decisions, ids that were given, a change of mode, and arms that come."""

    end = end_of(config)
    clock = Clock(end.time + 1_000_000)
    path = config.store.path
    async with harness.served(SqliteStore(path), config, clock) as engine:
        assert {n: engine.placements[n].decisions for n in PLACEMENTS} == dict.fromkeys(PLACEMENTS, DECISIONS)
        assert engine.placements["home"].mode == "shadow"
        # The same request again gets the same answer.
        seqs = {}
        for name in PLACEMENTS:
            told = engine.placements[name].checked(DecisionRequest("key 0", id="d48", **ASKED[name]))
            (row,) = await engine.decide_many(name, [told])
            seqs[name] = row.seq
            assert engine.placements[name].decisions == DECISIONS
        assert max(seqs.values()) <= end.seq
        for name in ("home", "news", "video"):
            assert await engine.feedback(name, "d48", 1.0, "late") == "learned"
        for name in ("rankers", "shelf"):
            told = FeedbackRequest("d48", CLICKS, clicks=Clicks([0]))
            assert await engine.record_many(name, [told]) in (["pending"], ["learned"])
        await engine.ask("home", ModeOf("online"))
        await engine.ask("home", ArmsOf(["d"], ["a"]))
        row = await engine.decide("home", "key 0")
        assert row.offered == '["b","c","d"]'
        before = {name: harness.learned(engine, name) for name in PLACEMENTS}
    again = Engine(config, SqliteStore(path), clock)
    assert {name: harness.learned(again, name) for name in PLACEMENTS} == before
    assert verify(config, again.store) == []
    again.store.close()


# Learners -------------------------------------------------------------------------------------

LEARNERS = WRITTEN / "learners"


@pytest.mark.parametrize("name", ["thompson", "exp3", "glr-kl-ucb", "laplace-ec"])
def test_its_learners_decide_as_they_would_have(name):
    """Each goes on with the decisions that version 0.1 made after it had saved the file."""
    learner = tacit.Learner.load(LEARNERS / f"{name}.tacit")
    for i, (arm, propensity) in enumerate(json.loads((LEARNERS / "next.json").read_text())[name]):
        decision = learner.choose(f"key {(60 + i) % 3}", **features(name, 60 + i))
        assert (decision.arm, decision.propensity) == (arm, pytest.approx(propensity))
        place = arm if isinstance(arm, int) else ["film", "holiday", "shop"].index(arm)
        learner.learn(decision, float(((60 + i) * 7 + place * 3) % 5 < 2))


def features(name, i):
    """Return what the decision of number i was asked with."""
    if name != "laplace-ec":
        return {}
    rng = np.random.default_rng(i)
    return {"relevance": rng.random((3, 2)), "examination": rng.random((3, 1))}
