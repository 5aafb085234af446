"""Slate placements: a list of arms out, clicks on its positions in."""

from functools import partial

import numpy as np
import pytest
from harness import SECOND, START, folding, with_home
from placement_access import decide, get_config, get_learner, restore_decision

from tacit.core.arrays import leaves
from tacit.learning.learner import Learner
from tacit.service.app.server import run_in_thread
from tacit.service.log.requests import Clicked, DecisionRequest, FeedbackRequest
from tacit.service.log.rows import CLICKS, decode_list

ARMS = ["a", "b", "c", "d", "e"]


configured = partial(with_home, kind="slates", arms=ARMS, policy="cascade-kl-ucb")


async def traffic(engine, rounds):
    """List arms, sometimes of fewer than there are positions; click on some, a few with grades that grow."""
    shown = []
    for i in range(rounds):
        rng = np.random.default_rng(i)
        engine.clock.now = START + i * 7 * SECOND
        told = [DecisionRequest(f"key {rng.integers(2)}", offer) for offer in (None, ["d", "b"], None)]
        for row in await decide(engine, *told):
            clicks = {}
            if rng.random() < 0.6:
                places = [k for k, arm in enumerate(decode_list(row.shown).arms) if arm is not None]
                clicks = dict.fromkeys(sorted(rng.permutation(places)[: rng.integers(3)].tolist()), 1.0)
                told = [Clicked([*clicks])]
                if rng.random() < 0.5:
                    clicks = dict.fromkeys(clicks, 0.7)
                    told = [Clicked([*clicks], rewards=[grade] * len(clicks)) for grade in (0.3, 0.7, 0.5)]
                sent = [FeedbackRequest(row.id, CLICKS, clicks=each) for each in told]
                assert set(await engine.record_many("home", sent)) == {"pending"}
            shown.append((row, clicks))
    return shown


@pytest.mark.parametrize(
    "policy", ["cascade-kl-ucb", "pbm-ucb", "list-mix(at_least={'e': 0.2})", "safe-list-mix(epsilon=0.1)"]
)
async def test_what_was_learned_is_a_fold_over_the_log(tmp_path, policy):
    config = configured(policy=policy, snapshot_every=40)
    async with folding(tmp_path / "s.db", config, partly=True) as engine:
        shown = await traffic(engine, 20)
        engine.clock.now += 60 * SECOND
        await decide(engine, DecisionRequest("key 0"))
        placement = engine.placements["home"]
        expected = Learner(get_config(placement).policy, seed=0)
        for row, _ in shown:
            expected.observe_decisions([restore_decision(placement, row, row.epoch)])
        for row, clicks in shown:
            rewards = [clicks.get(k, 0.0) for k in range(3)]
            expected.learn(restore_decision(placement, row, row.epoch), rewards)
        used = len(expected.keys)
        for (_, a), (_, b) in zip(leaves(get_learner(placement).state), leaves(expected.state), strict=True):
            np.testing.assert_array_equal(a[:used], b[:used])


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("slates") / "s.db"
    with run_in_thread(configured(path, positions=2, shadow="cascade-ucb1", aggregation="first")) as address:
        yield address


def test_over_http(client):
    for mode, extra in (("online", set()), ("shadow", {"would"})):
        assert client.post("home/mode", {"mode": mode})[0] == 200
        body = {"key": "k", "arms": ["e", "c", "a"], "decision_id": mode}
        status, _, answer = client.post("home/slate", body)
        assert status == 200
        assert len(answer["slate"]) == 2
        assert answer.keys() >= extra
        assert client.post("home/slate", body)[2] == answer
        assert client.post("home/clicks", {"decision_id": mode, "items": answer["slate"][1:]})[2]["learned"]
    client.post("home/mode", {"mode": "online"})
    _, _, many = client.post("home/slate/batch", {"decisions": [{"key": "k"}] * 3})
    assert all(set(one["slate"]) <= set(ARMS) for one in many["decisions"])
