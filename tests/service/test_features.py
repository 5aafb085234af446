"""Feature placements: arms come with the request; the log keeps their features."""

from functools import partial

import numpy as np
import pytest
from drawn import is_long
from harness import START, folding, served, with_home
from placement_access import decide, get_config, get_learner, get_lift

from tacit.learning.learner import Learner
from tacit.service.app.server import run_in_thread
from tacit.service.log.ids import Draws
from tacit.service.log.requests import DecisionRequest

pytestmark = pytest.mark.interpreted

POLICIES = {
    "lin": "lin-ts(relevance_dim=2, examination_dim=1)",
    "logistic": "logistic-ts(relevance_dim=2, examination_dim=1)",
    "ec": "ec-bandit(relevance_dim=2, examination_dim=1)",
    "laplace": "laplace-ec(relevance_dim=2, examination_dim=1)",
    "mixture": "click-mixture(relevance_dim=2, examination_dim=1)",
    "hybrid": "hybrid-click-mixture(relevance_dim=2, examination_dim=1)",
    "floor": "exploration-floor(lin-ucb(relevance_dim=2, examination_dim=1), epsilon=0.2)",
    "candidates": "exploration-floor(lin-ts(relevance_dim=2, examination_dim=1), epsilon=0.2)",
}


configured = partial(with_home, kind="features", policy=POLICIES["lin"])


async def traffic(engine, rounds):
    """Offer arms by name or number, one by one and together; click on some."""
    for i in range(rounds):
        rng = np.random.default_rng(i)
        engine.clock.now = START + i * 7_000_000
        count = int(rng.integers(2, 5))
        names = [f"article {j}" for j in rng.permutation(9)[:count]] if i % 2 else None
        told = [DecisionRequest(
                f"key {rng.integers(2)}", names,
                relevance=rng.normal(size=(count, 2)).tolist(),
                examination=rng.random((count, 1)).tolist(),
            )
            for _ in range(1 + i % 3)
        ]  # fmt: skip
        for row in await decide(engine, *told):
            if rng.random() < 0.6:
                await engine.feedback("home", row.id, float(rng.random() < 0.5))


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
async def test_what_was_learned_is_a_fold_over_the_log(tmp_path, policy):
    config = configured(policy=policy, snapshot_every=40)
    async with folding(tmp_path / "s.db", config, partly=True) as engine:
        await traffic(engine, 25)


async def test_a_holdout_may_begin_and_end_after_restarts(tmp_path):
    for rounds, holdout in (5, None), (20, {"share": 0.5}), (40, None):
        async with folding(tmp_path / "s.db", configured(holdout=holdout)) as engine:
            await traffic(engine, rounds)
            assert len(get_lift(engine.placements["home"]).read_copy().frequencies.offered) == 1


async def test_it_learns_what_the_learner_learns(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        placement = engine.placements["home"]
        expected = Learner(get_config(placement).policy, seed=0)
        rng = np.random.default_rng(3)
        for i in range(20):
            relevance, examination = rng.normal(size=(3, 2)), rng.random((3, 1))
            told = DecisionRequest("k", None, None, f"d{i}", False, relevance.tolist(), examination.tolist())
            (row,) = await decide(engine, told)
            assert (await decide(engine, told)) == [row]
            Draws(7).begin(expected.rng, f"d{i}")
            decision = expected.choose("k", relevance=relevance, examination=examination)
            assert decision.arm == row.arm
            assert await engine.feedback("home", row.id, i % 2) == "learned"
            expected.learn(decision, i % 2)
        mean = get_learner(placement).posterior("k").mean
        np.testing.assert_array_equal(mean, expected.posterior("k").mean)


async def test_a_policy_with_fixed_arms_and_features(tmp_path):
    config = configured(policy="hlin-ucb(relevance_dim=1, examination_dim=1)", arms=["a", "b", "c"])
    async with folding(tmp_path / "s.db", config) as engine:
        told = DecisionRequest("k", ["c", "a"], relevance=[[1], [2]], examination=[[0], [1]])
        (row,) = await decide(engine, told)
        assert row.arm in ("a", "c")
        assert await engine.feedback("home", row.id, 1.0) == "learned"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    config = configured(tmp_path_factory.mktemp("features") / "s.db", shadow=POLICIES["ec"])
    with run_in_thread(config) as address:
        yield address


FEATURES = {"relevance": [[1, 0], [0, 1]], "examination": [[1], [0.5]]}


def test_over_http(client):
    body = {"key": "k", "arms": ["a", "b"], **FEATURES}
    for mode, extra in (("online", set()), ("shadow", {"would"})):
        assert client.post("home/mode", {"mode": mode})[0] == 200
        status, _, answer = client.post("home/decide", body)
        assert status == 200
        assert answer["arm"] in body["arms"]
        assert answer.keys() >= extra
        assert client.post("home/feedback", {"decision_id": answer["decision_id"], "reward": 1})[2]["learned"]
    client.post("home/mode", {"mode": "online"})
    _, _, answer = client.post("home/decide/batch", {"decisions": [{"key": "k", **FEATURES}] * 3})
    assert {one["arm"] for one in answer["decisions"]} <= {0, 1}


SAID = {"context": {"age": "number", "new": "boolean"}}


@pytest.mark.parametrize(
    ("table", "reads"),
    [
        ({"relevance_dim": 40, "policy": "auto"} | SAID, "EmbeddingMixture(relevance_dim=40, context_dim=4"),
        ({"relevance_dim": 4, "policy": "auto"} | SAID, "EmbeddingMixture(relevance_dim=4, context_dim=4"),
        ({"policy": "embedding-mixture(40)"} | SAID, "EmbeddingMixture(relevance_dim=40, context_dim=4"),
        (
            {"relevance_dim": 4, "context_dim": 3, "policy": "auto"},
            "ClickMixture(relevance_dim=4, context_dim=3",
        ),
    ],
)
def test_the_policy_reads_the_context_that_a_placement_declares(table, reads):
    assert configured(**table).placements["home"].policy.label.startswith(reads)


@pytest.mark.compiled
async def test_items_known_by_embeddings_are_shown_to_a_user_who_is_known(tmp_path):
    # To learn from what a control shows takes it 13 s of compilation.
    held = {"holdout": {"share": 0.2}} if is_long() else {}
    config = configured(policy="auto", relevance_dim=40, snapshot_every=40, **SAID, **held)
    async with folding(tmp_path / "s.db", config, partly=True) as engine:
        rng = np.random.default_rng(1)
        for i in range(30):
            engine.clock.now = START + i * 60_000_000
            names = [f"item {j}" for j in rng.permutation(9)[:5]]
            said = {"age": float(rng.uniform(18, 80)), "new": None if i % 3 else True}
            request = DecisionRequest("all", names, said, relevance=rng.normal(size=(5, 40)).tolist())
            (row,) = await decide(engine, request)
            assert row.arm in names
            await engine.feedback("home", row.id, float(rng.random() < 0.5))


def test_a_name_that_is_too_long_is_refused(client):
    status, _, answer = client.post("home/decide", {"key": "k", **FEATURES, "arms": ["a", "ä" * 257]})
    assert (status, answer["field"]) == (422, "arms")
