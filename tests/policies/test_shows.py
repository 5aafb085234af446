"""What is shown at once is one record: a new thing to show is played, logged, served and folded by it."""

import re
from pathlib import Path

import pytest
import toy_set
from harness import Client, learned, recovered, served, with_home
from placement_access import decide, get_shown_arms

import tacit
from tacit.errors import InvalidValue
from tacit.evaluate import replay
from tacit.logs.writer import click_log
from tacit.policies.action_kind import ACTION_KINDS
from tacit.service.app.server import run_in_thread
from tacit.service.kind import KINDS
from tacit.service.log.requests import Clicked, DecisionRequest, FeedbackRequest
from tacit.service.log.rows import CLICKS

SOURCE = Path(tacit.__file__).parent


@pytest.fixture(autouse=True)
def sets(monkeypatch):
    monkeypatch.setitem(ACTION_KINDS, "set", toy_set.SHOWS)
    monkeypatch.setitem(KINDS, "sets", toy_set.KIND)


def config(path):
    return with_home(path, kind="sets", arms=["a", "b", "c", "d"], positions=2, policy="toy_set:Basket")


def test_sets_are_played_against_users_who_take_them_and_no_others():
    shelf = toy_set.Shelf([0.7, 0.1, 0.1, 0.6], positions=2)
    result = tacit.simulate(toy_set.Basket(4), shelf, 2000, runs=5, seed=1)
    # Of the pairs the best has a click with .88; one drawn at random with .64 on average, which is 490 fewer.
    assert result.regret[0, :, -1].mean() < 100
    with pytest.raises(InvalidValue, match="Basket shows: set; CascadeArms takes: slate"):
        tacit.simulate(
            toy_set.Basket(4), tacit.environments.CascadeArms([0.5, 0.4, 0.1, 0.1], positions=2), 10, seed=1
        )


def test_sets_are_decided_learned_logged_and_refused_where_one_arm_is_asked_for():
    learner = tacit.Learner(toy_set.Basket(["a", "b", "c"], positions=2), seed=1)
    decision = learner.choose("shelf")
    assert list(decision.shown) == sorted(decision.shown)
    assert learner.learn(decision, [1.0, 0.0])
    log = click_log(learner.policy, [decision], [[1.0, 0.0]]).to_pylist()
    assert [(row["arm"], row["position"], row["reward"]) for row in log] == [
        (decision.shown[0], 0, 1.0),
        (decision.shown[1], 1, 0.0),
    ]
    with pytest.raises(InvalidValue, match="it shows a set"):
        replay(learner.policy, {"key": ["k"], "arm": ["a"], "reward": [1.0], "propensity": [0.5]}, arms=["a"])


async def test_sets_are_served_and_folded_from_the_log(tmp_path):
    path = tmp_path / "s.db"
    async with served(path, config(path)) as engine:
        placement = engine.placements["home"]
        for _ in range(5):
            (row,) = await decide(engine, DecisionRequest("shelf"))
            await engine.record_many("home", [FeedbackRequest(row.id, CLICKS, clicks=Clicked([1]))])
            engine.clock.now += 60_000_000
        assert get_shown_arms(placement, row) == tuple(sorted(get_shown_arms(placement, row)))
    live = learned(engine)
    with recovered(path, config(path)) as again:
        assert learned(again) == live


def test_sets_have_a_page(tmp_path):
    with run_in_thread(config(tmp_path / "s.db")) as address:
        client = Client(address)
        answer = client.post("home/slate", {"key": "shelf"})[2]
        told = {"decision_id": answer["decision_id"], "items": [answer["slate"][0]]}
        assert client.post("home/clicks", told)[2]["outcome"] == "pending"
        assert "Results of each" in client.ask("GET", "/placements/home")[2].decode()


def test_nobody_asks_for_what_is_shown_by_its_name():
    # What to recommend for each is the one thing that the record cannot say.
    by_name = re.compile(r"\b(shows|takes) ?(==|!=) ?[\"']")
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if by_name.search(path.read_text())
    }
    assert found <= {"policies/auto.py", "environments/base.py"}
