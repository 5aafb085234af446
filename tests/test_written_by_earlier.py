"""What versions 0.1 and 0.2 wrote: log and snapshots open, agree, and learning goes on from there. What their
clients ask is answered as they know it."""

from __future__ import annotations

import gzip
import json
import shutil
import urllib.error
import urllib.request

import harness
import numpy as np
import pytest
from conftest import DATA
from harness import Clock

import tacit
from tacit.core.arrays import leaves
from tacit.service.app.server import running
from tacit.service.config.file import load_config
from tacit.service.engine.engine import Engine
from tacit.service.log.requests import Clicked, DecisionRequest, FeedbackRequest
from tacit.service.log.rows import CLICKS
from tacit.service.log.sqlite import SqliteStore
from tacit.service.maintenance.doctor import verify
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


def unpacked(written, path):
    """Return the configuration over a copy of a store."""
    shutil.copy(written / "tacit.toml", path)
    with gzip.open(written / "store.db.gz") as packed:
        (path / "store.db").write_bytes(packed.read())
    return load_config(path / "tacit.toml")


@pytest.fixture
def config(tmp_path):
    return unpacked(WRITTEN, tmp_path)


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
            told = FeedbackRequest("d48", CLICKS, clicks=Clicked([0]))
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


# Version 0.2 ---------------------------------------------------------------------------------

WRITTEN_BY_2 = DATA / "written_by_0.2"


def found(placement):
    """Return what is known of a placement, as ``folded.json`` has it."""
    return {
        "decisions": placement.decisions,
        "feedback": placement.feedback,
        "outcomes": dict(placement.outcomes),
        "mode": placement.mode,
        "open": placement.pending,
        "arms": list(map(str, placement.offer.arms)),
        "lift": placement.lift.decided.tolist(),
        "keys": placement.learner.keys,
    }


def summed(learner):
    """Return of each array of a state the sum of its finite numbers, and that of their absolute values."""
    sums = {}
    for field, array in leaves(learner.lanes.used()):
        finite = np.where(np.isfinite(array), array, 0.0)
        sums[field] = [float(finite.sum()), float(np.abs(finite).sum())]
    return sums


async def test_the_states_of_its_store_are_those_that_version_2_folded(tmp_path):
    """With holdouts, a control's own policy, pins, arms that change, late rewards, and frozen."""
    config, said = unpacked(WRITTEN_BY_2, tmp_path), json.loads((WRITTEN_BY_2 / "folded.json").read_text())
    store = SqliteStore(config.store.path)
    assert verify(config, store) == []
    store.close()
    clock = Clock(end_of(config).time)
    async with harness.served(SqliteStore(config.store.path), config, clock) as engine:
        assert set(engine.placements) == set(said)
        for name, placement in engine.placements.items():
            states = said[name].pop("states")
            assert found(placement) == said[name], name
            for learner, state in zip(placement.learners, states, strict=True):
                # Decisions that are not yet learned are counted since 0.4.
                sums = {field: sum for field, sum in summed(learner).items() if field != "open"}
                assert {field: pytest.approx(state[field], rel=1e-9, abs=1e-9) for field in state} == sums
        clock.now += 3600 * harness.SECOND
        for name in said:
            await engine.ask(name, ModeOf(engine.placements[name].mode))
        assert engine.placements["shelf"].tally[1].sum() == 35
        assert engine.placements["rankers"].duels > 0
    again = Engine(config, SqliteStore(config.store.path), clock)
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


LATER = WRITTEN_BY_2 / "learners"
WIDTHS = {"auto-slate": 2}
"""How many rewards a decision takes, where it is more than one."""


@pytest.mark.parametrize("name", sorted(path.stem for path in LATER.glob("*.tacit")))
def test_learners_of_version_2_decide_as_they_would_have(name):
    """The defaults of that version and others: what they show, and its propensity, after they were saved."""
    learner = tacit.Learner.load(LATER / f"{name}.tacit")
    for i, (slots, propensity) in enumerate(json.loads((LATER / "next.json").read_text())[name], 60):
        given, rng = {}, np.random.default_rng(i)
        if any(learner.policy.feature_dims):
            given = {"relevance": rng.random((3, 2)), "examination": rng.random((3, 1))}
        decision = learner.choose(f"key {i % 3}", **given)
        assert (list(decision.slots), decision.propensity) == (slots, pytest.approx(propensity, abs=1e-6))
        rewards = [float((i * 7 + slot * 3) % 5 < 2) for slot in slots[: WIDTHS.get(name, 1)]]
        learner.learn(decision, rewards if name in WIDTHS else rewards[0])


# The wire -------------------------------------------------------------------------------------


def answered(address, method, path, body):
    """Return the status and the answer to a request, None where it is no JSON."""
    sent = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        address + path, sent, {"Content-Type": "application/json"}, method=method
    )
    try:
        answer = urllib.request.urlopen(request, timeout=harness.PATIENCE)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status, json.loads(text) if (text := answer.read()) else None


def known(answer, before, at=""):
    """Yield what somebody who knows an answer of before misses in this one: fields may only be added."""
    if isinstance(before, dict) and isinstance(answer, dict):
        for name, value in before.items():
            if name in answer:
                yield from known(answer[name], value, f"{at}.{name}")
            else:
                yield f"{at}.{name}"
    elif isinstance(before, list) and isinstance(answer, list):
        for i, (now, then) in enumerate(zip(answer, before, strict=False)):
            yield from known(now, then, f"{at}[{i}]")
    elif None not in (before, answer) and not alike(before, answer):
        yield f"{at}: {answer!r} in place of {before!r}"


def alike(one, other):
    """Whether values are of one type, all numbers being of one."""
    of = [float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)
          for value in (one, other)]  # fmt: skip
    return of[0] is of[1]


@pytest.mark.parametrize("written", [WRITTEN, WRITTEN_BY_2], ids=["0.1", "0.2"])
def test_what_clients_of_before_ask_is_answered_as_they_know_it(written, tmp_path):
    """The same status, fields and types of problems, and the same word on what became of feedback."""
    overrides = {"server.port": 0, "store.path": str(tmp_path / "s.db")}
    with running(load_config(written / "wire.toml", overrides)) as address:
        for row in json.loads((written / "wire.json").read_text()):
            asked = row["method"], row["path"], row["body"]
            status, answer = answered(address, *asked)
            assert (status, list(known(answer, row["answer"]))) == (row["status"], []), (asked, answer)
            for word in ("type", "outcome", "mode"):
                if word in (row["answer"] or {}):
                    assert answer[word] == row["answer"][word], asked
