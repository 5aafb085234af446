"""The Personalizer API: its public clients, unmodified, over HTTP; the fold of its log."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import numpy as np
import pytest
import stores
from azure.ai.personalizer import PersonalizerAdministrationClient
from azure.ai.personalizer import PersonalizerClient as LaterClient
from azure.cognitiveservices.personalizer import PersonalizerClient
from azure.cognitiveservices.personalizer.models import ErrorResponseException, RankableAction, RankRequest
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError
from drawn import examples
from harness import (
    PATIENCE,
    START,
    Client,
    as_after_a_crash,
    eventually,
    is_the_fold,
    learned,
    recovered,
    served,
    with_home,
)
from hypothesis import given
from hypothesis import strategies as st
from msrest.authentication import CognitiveServicesCredentials
from msrest.exceptions import HttpOperationError

from tacit.errors import ConfigError, InvalidValue
from tacit.learning.learner import Learner
from tacit.service.app.server import running
from tacit.service.config.file import load_config
from tacit.service.config.keys import new_key
from tacit.service.doors import personalizer_wire as wire
from tacit.service.doors.personalizer import ShownRanking, impression_of, impressions_of, slot_id
from tacit.service.doors.personalizer_wire import MOST_FEATURES, Settings, features_of, vectors
from tacit.service.errors import InConflict
from tacit.service.log.requests import FeedbackRequest
from tacit.service.log.rows import ACTIVATE, FeedbackRow
from tacit.service.placements.placement import NewSettings
from tacit.wire.control import ModeOf

pytestmark = pytest.mark.interpreted

SECOND = 1_000_000
FOODS = {
    "pasta": {"taste": "salty", "spice": "medium"},
    "ice cream": {"taste": "sweet", "spice": "none"},
    "juice": {"taste": "sweet", "spice": "none", "liquid": True},
    "salad": {"taste": "sour", "spice": "none"},
    "popcorn": {"taste": "salty", "spice": "none"},
    "coffee": {"taste": "bitter", "liquid": True},
    "soup": {"taste": "sour", "spice": "high", "liquid": True},
}
KEYS = {scope: new_key() for scope in ("decide", "feedback", "read", "admin")}


configured = partial(
    with_home,
    values={"personalizer.placement": "home"},
    kind="personalizer",
    policy={"name": "linear-epsilon-greedy", "dim": 32},
)


def rank_of(names=("a", "b", "c"), **more):
    actions = [{"id": name, "features": [{"name": name}]} for name in names]
    return msgspec.convert({"actions": actions} | more, wire.RankRequest)


def slots_of(names, slots, **more):
    actions = [{"id": name, "features": [{"name": name}]} for name in names]
    body = {"actions": actions, "slots": slots} | more
    return msgspec.convert(body, wire.MultiSlotRankRequest)


async def decided(engine, request):
    told = impression_of(request, engine.placements["home"].dim)
    (row,) = await engine.decide_many("home", [told])
    return row


# The public clients --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    config = configured(tmp_path_factory.mktemp("personalizer") / "s.db")
    with running(config) as address:
        yield address


@pytest.fixture
def client(address):
    return PersonalizerClient(address, CognitiveServicesCredentials("unused"))


@pytest.fixture
def untaught(tmp_path):
    """A client of a service that nobody has asked yet."""
    with running(configured(tmp_path / "s.db")) as address:
        yield PersonalizerClient(address, CognitiveServicesCredentials("unused"))


def foods():
    return [RankableAction(id=name, features=[blocks]) for name, blocks in FOODS.items()]


def test_rank_and_reward(untaught):
    client = untaught
    request = RankRequest(
        actions=foods(),
        context_features=[{"timeOfDay": "morning"}, {"device": {"kind": "mobile", "screen": 6.1}}],
        excluded_actions=["juice"],
        event_id="a first event/with a slash",
    )
    answer = client.rank(request)
    assert answer.event_id == request.event_id
    ranking = {each.id: each.probability for each in answer.ranking}
    assert ranking.keys() == FOODS.keys()
    # Excluded actions keep their places; before anything is known, the others are all alike.
    assert answer.ranking[2].id == "juice"
    assert ranking.pop("juice") == 0.0
    assert list(ranking.values()) == pytest.approx([1 / 6] * 6)
    assert answer.reward_action_id == answer.ranking[0].id
    assert client.rank(request).as_dict() == answer.as_dict()
    assert client.events.reward(request.event_id, 1.0) is None
    assert client.events.activate(request.event_id) is None


def test_it_comes_to_prefer_what_is_rewarded(untaught):
    client, liked = untaught, 0
    # The first popcorn comes by luck.
    while liked < 30:
        answer = client.rank(RankRequest(actions=foods(), excluded_actions=["juice"]))
        client.events.reward(answer.event_id, float(answer.reward_action_id == "popcorn"))
        liked += answer.reward_action_id == "popcorn"
    ranking = client.rank(RankRequest(actions=foods(), excluded_actions=["juice"])).ranking
    found = {each.id: each.probability for each in ranking}
    # 0.8 for the best, and a sixth of 0.2 for each that is on offer.
    assert found["popcorn"] == pytest.approx(0.8 + 0.2 / 6)
    assert found["soup"] == pytest.approx(0.2 / 6)
    assert found["juice"] == 0.0


def test_what_the_public_client_sees_of_errors(client):
    with pytest.raises(ErrorResponseException) as none:
        client.rank(RankRequest(actions=[]))
    assert none.value.response.status_code == 400
    assert none.value.error.error.code == "BadRequest"
    assert none.value.error.error.message.startswith("actions: ")
    client.rank(RankRequest(actions=foods(), event_id="once"))
    with pytest.raises(ErrorResponseException) as other:
        client.rank(RankRequest(actions=foods()[:3], event_id="once"))
    assert other.value.response.status_code == 409
    assert other.value.error.error.message.startswith("eventId: 'once'")
    with pytest.raises(HttpOperationError) as unknown:
        client.events.reward("never made", 1.0)
    assert unknown.value.response.status_code == 404
    assert unknown.value.response.json()["error"]["code"] == "ResourceNotFound"
    with pytest.raises(HttpOperationError) as outside:
        client.events.reward("once", 1.5)
    assert outside.value.response.status_code == 400
    with pytest.raises(HttpOperationError) as activated:
        client.events.activate("never made")
    assert activated.value.response.status_code == 404


def test_deferred_events_count_once_they_are_activated(client, address):
    def learned_so_far():
        return ask(address, "GET", "/v1/placements")[1]["placements"][0]["outcomes"]

    request = RankRequest(actions=foods(), defer_activation=True)
    first, second = client.rank(request), client.rank(request)
    before = learned_so_far()
    client.events.reward(first.event_id, 1.0)
    client.events.activate(second.event_id)
    client.events.reward(second.event_id, 1.0)
    after = learned_so_far()
    assert after["inactive"] - before.get("inactive", 0) == 1
    assert after["learned"] - before.get("learned", 0) == 1


def test_the_later_client(address):
    credential = AzureKeyCredential("unused")
    client = LaterClient(address, credential)
    actions = [{"id": name, "features": [{"name": name}]} for name in "abc"]
    answer = client.rank({"actions": actions, "contextFeatures": [{"hour": 9}]})
    client.reward(answer["eventId"], {"value": -0.5})
    client.activate(answer["eventId"])
    slots = [
        {"id": "top", "baselineAction": "a", "features": [{"size": "large"}]},
        {"id": "side", "baselineAction": "b", "excludedActions": ["a", "c"]},
    ]
    answer = client.rank_multi_slot({"actions": actions, "slots": slots, "deferActivation": True})
    assert [slot["id"] for slot in answer["slots"]] == ["top", "side"]
    assert answer["slots"][1]["rewardActionId"] == "b"
    client.activate_multi_slot(answer["eventId"])
    client.reward_multi_slot(answer["eventId"], {"reward": [{"slotId": "side", "value": 1.0}]})
    with pytest.raises(HttpResponseError) as unknown:
        client.reward_multi_slot(answer["eventId"], {"reward": [{"slotId": "no", "value": 1.0}]})
    assert unknown.value.status_code == 400
    with pytest.raises(HttpResponseError) as single:
        client.activate_multi_slot("a first event/with a slash")
    assert single.value.status_code == 404


def test_the_later_client_as_administrator(address, tmp_path):
    LaterClient(address, AzureKeyCredential("unused")).rank({"actions": [{"id": "a"}]})
    client = PersonalizerAdministrationClient(address, AzureKeyCredential("unused"))
    told = client.get_service_configuration()
    assert told["rewardWaitTime"] == "PT600S"
    assert told["learningMode"] == "Online"
    assert client.update_service_configuration(told | {"explorationPercentage": 0.3})[
        "explorationPercentage"
    ] == 0.3  # fmt: skip
    client.update_service_configuration(told)
    policy = client.get_policy()
    assert policy["name"] == "LinearEpsilonGreedy"
    assert client.update_policy(policy) == client.reset_policy() == policy
    path = tmp_path / "model"
    path.write_bytes(b"".join(client.export_model()))
    assert Learner.load(path).policy.dim == 32
    properties = client.get_model_properties()
    assert properties["creationTime"] <= properties["lastModifiedTime"]
    assert client.get_log_properties()["dateRange"]["from"] == properties["creationTime"]
    for refused in (client.reset_model, client.delete_logs):
        with pytest.raises(HttpResponseError) as error:
            refused()
        assert error.value.status_code == 403
    span = {"startTime": "2020-01-01T00:00:00Z", "endTime": "2100-01-01T00:00:00Z"}
    client.create_evaluation("first", {"name": "all", "policies": []} | span)
    times = {"start_time": datetime(2020, 1, 1), "end_time": datetime(2100, 1, 1)}
    done = wait_for(lambda: client.get_evaluation("first", **times))
    assert [each["policySource"] for each in done["policyResults"]] == [
        "Online", "Baseline", "Random",
    ]  # fmt: skip
    assert [each["id"] for each in client.list_evaluations()] == ["first"]
    client.delete_evaluation("first")
    with pytest.raises(HttpResponseError):
        client.get_evaluation("first", **times)


def wait_for(ask_again):
    """Return an evaluation once it is over."""
    answer = eventually(lambda: (each := ask_again())["status"] != "pending" and each)
    assert answer["status"] == "completed"
    return answer


# Over plain HTTP -----------------------------------------------------------------------------


def ask(address, method, path, body=None, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    status, _, content = Client(address).ask(method, path, body, headers)
    return status, content or None


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "inner"),
    [
        ("GET", "nothing", None, 404, "ResourceNotFound"),
        ("GET", "rank", None, 405, "BadRequest"),
        ("POST", "rank", b"{", 400, "InvalidRankRequest"),
        ("POST", "rank", {"actions": [{"id": "a"}, {"id": "a"}]}, 400, "InvalidRankRequest"),
        ("POST", "rank", {"actions": [{"id": "a" * 257}]}, 400, "InvalidRankRequest"),
        ("POST", "rank", {"actions": [{"id": str(i)} for i in range(51)]}, 400, None),
        ("POST", "rank", {"actions": [{"id": "a"}], "excludedActions": ["a"]}, 400, None),
        ("POST", "rank", {"actions": [{"id": "a"}], "eventId": "e" * 257}, 400, None),
        ("POST", "rank", {"actions": [{"id": "a", "features": [{"x": 10**400}]}]}, 400, None),
        ("POST", "rank", {"actions": [{"id": "a", "features": [{"x": 2**64}]}]}, 400, None),
        ("POST", "rank", b'{"actions":[{"id":"a","features":[{"x":1e999}]}]}', 400, None),
        ("POST", "rank", b'{"actions":[{"id":"\\ud800"}]}', 400, None),
        ("POST", "rank", b'{"actions":[{"id":"a\\u0000"}]}', 400, None),
        ("POST", "rank", b" " * 1_100_000, 413, "PayloadSizeExceeded"),
        ("POST", "events/never/reward", {"value": 1}, 404, "EventNotFound"),
        ("POST", "events/never/reward", {"value": -1.01}, 400, "InvalidRewardRequest"),
        ("POST", "events/never/reward", {}, 400, "InvalidRewardRequest"),
        ("POST", "events/" + "e" * 257 + "/activate", None, 400, "BadRequest"),
        ("POST", "multislot/events/never/activate", None, 404, "EventNotFound"),
        ("PUT", "model", None, 403, "OperationNotAllowed"),
        ("DELETE", "logs", None, 403, "OperationNotAllowed"),
        ("POST", "configurations/applyFromEvaluation", {}, 403, "OperationNotAllowed"),
        ("PUT", "configurations/policy", {"name": "x", "arguments": "y"}, 400, None),
        ("GET", "evaluations/none", None, 404, "EvaluationNotFound"),
    ],
)
def test_refusals(address, method, path, body, status, inner):
    found, answer = ask(address, method, f"/personalizer/v1.0/{path}", body)
    assert found == status
    error = answer["error"]
    assert error["code"] == ("ResourceNotFound" if status == 404 else "BadRequest")
    assert error["message"]
    assert inner in (None, error["innerError"]["code"])


def test_every_version_and_placement_is_an_endpoint(address):
    for prefix in ("", "/v1.0", "/v1.1-preview.1", "/v1.1-preview.3"):
        assert ask(address, "GET", f"/personalizer{prefix}/configurations/policy")[0] == 200
    below = "/v1/placements/home/personalizer/v1.0/rank"
    assert ask(address, "POST", below, {"actions": [{"id": "a"}]})[0] == 201
    other = "/v1/placements/other/personalizer/v1.0/rank"
    assert ask(address, "POST", other, {"actions": [{"id": "a"}]})[0] == 404
    assert ask(address, "POST", "/v1/placements/home/decide", {"key": "q"})[0] == 422


def test_the_page_shows_such_placements(address):
    for path in ("/", "/placements/home"):
        status, _, content = Client(address).ask("GET", path)
        assert status == 200
        assert b"home" in content


def test_keys_come_in_the_header_of_that_service(tmp_path):
    tables = {scope: {"sha256": sha256, "scopes": [scope]} for scope, (_, sha256) in KEYS.items()}
    values = {"personalizer.placement": "home", "keys": tables}
    with running(with_home(tmp_path / "s.db", values=values, kind="personalizer")) as address:

        def client(scope):
            key = KEYS[scope][0] if scope in KEYS else scope
            return PersonalizerClient(address, CognitiveServicesCredentials(key))

        answer = client("decide").rank(RankRequest(actions=foods()))
        client("feedback").events.reward(answer.event_id, 1.0)
        client("admin").rank(RankRequest(actions=foods()))
        with pytest.raises(ErrorResponseException) as unknown:
            client("no key").rank(RankRequest(actions=foods()))
        assert unknown.value.response.status_code == 401
        assert unknown.value.error.error.inner_error.code == "Unauthorized"
        with pytest.raises(ErrorResponseException) as other:
            client("feedback").rank(RankRequest(actions=foods()))
        assert other.value.response.status_code == 403
        path = "/personalizer/v1.0/configurations/service"
        for scope, status in (("read", 200), ("decide", 403)):
            header = {"Ocp-Apim-Subscription-Key": KEYS[scope][0]}
            assert ask(address, "GET", path, **header)[0] == status
        header = {"Ocp-Apim-Subscription-Key": KEYS["read"][0]}
        assert ask(address, "PUT", path, {}, **header)[0] == 403
        # The header opens this API and nothing else.
        header = {"Ocp-Apim-Subscription-Key": KEYS["admin"][0]}
        assert ask(address, "GET", "/v1/placements", **header)[0] == 401


# What is learned -----------------------------------------------------------------------------


async def test_a_reward_is_logged_as_it_came_and_learned_between_0_and_1(tmp_path):
    async with served(tmp_path / "s.db", configured(policy="linear-epsilon-greedy(dim=1)")) as engine:
        request = msgspec.convert({"actions": [{"id": "a"}]}, wire.RankRequest)
        row = await decided(engine, request)
        await engine.feedback("home", row.id, -0.5)
        # Nothing but the constant is known: 1/(1 + 1) of the reward (−0.5 + 1)/2.
        mean = engine.placements["home"].learner.posterior("rank").mean
        np.testing.assert_allclose(mean, [0.0, 0.125])
        logged = [e for e in engine.store.events(0) if isinstance(e, FeedbackRow)]
        assert [e.reward for e in logged] == [-0.5]
        with pytest.raises(InvalidValue, match="reward"):
            await engine.feedback("home", row.id, -1.5)


@pytest.mark.parametrize(
    ("aggregation", "rewards", "learns"),
    [
        ("first", [-0.5, 1.0], -0.5),
        ("last", [1.0, -0.5], -0.5),
        ("sum", [1.0, -0.25], 0.75),
        ("sum", [0.75, 0.75, -0.25], 1.0),
        ("sum", [-0.75, -0.75], -1.0),
        ("max", [-0.5, -0.25], -0.25),
        ("first", [], -1.0),
    ],
)
async def test_rewards_of_an_event_together(tmp_path, aggregation, rewards, learns):
    config = configured(policy="linear-epsilon-greedy(dim=1)", aggregation=aggregation, default_reward=-1.0)
    async with served(tmp_path / "s.db", config) as engine:
        row = await decided(engine, msgspec.convert({"actions": [{"id": "a"}]}, wire.RankRequest))
        for reward in rewards:
            await engine.feedback("home", row.id, reward)
        engine.clock.now += 600 * SECOND
        await decided(engine, rank_of())
        mean = engine.placements["home"].learner.posterior("rank").mean
        np.testing.assert_allclose(mean, [0.0, (learns + 1.0) / 4.0], atol=1e-15)


async def traffic(engine, rounds, first=0):
    """Rank, reward, activate; change the settings and the mode on the way."""
    placement = engine.placements["home"]
    for i in range(first, first + rounds):
        rng = np.random.default_rng(i)
        engine.clock.now = START + i * 40 * SECOND
        names = [f"action {j}" for j in rng.permutation(8)[:5]]
        context = [{"hour": int(rng.integers(24)), "tags": ["x", "y"][: int(rng.integers(3))]}]
        told = {"contextFeatures": context, "deferActivation": bool(i % 4 == 1)}
        if i % 3:
            if i % 5 == 0:
                told["eventId"] = f"event {i}"
            row = await decided(engine, rank_of(names, excludedActions=names[1:2], **told))
            ids = [row.id]
        else:
            slots = [{"id": f"s{j}", "baselineAction": names[j]} for j in range(3)]
            request = slots_of(names, slots, **told)
            made = impressions_of(request, placement.dim, f"many {i}")
            ids = [row.id for row in await engine.decide_many("home", made)]
        for id in ids:
            if rng.random() < 0.7:
                await engine.record_many("home", [FeedbackRequest(id, ACTIVATE)])
            if rng.random() < 0.7:
                await engine.feedback("home", id, round(rng.uniform(-1, 1), 2))
        if i == 12:
            new = Settings(60 * SECOND, -0.5, "sum", 0.5)
            await engine.ask("home", NewSettings(new.text))
        if i in (16, 19):
            await engine.ask("home", ModeOf({16: "apprentice", 19: "online"}[i]))


@pytest.mark.parametrize("more", [{}, {"shadow": "linear-epsilon-greedy(dim=32)"}])
async def test_what_was_learned_is_a_fold_over_the_log(tmp_path, more):
    config = configured(snapshot_every=30, **more)
    async with served(tmp_path / "s.db", config) as engine:
        await traffic(engine, 15)
        if more:
            await engine.ask("home", ModeOf("shadow"))
        await traffic(engine, 12, 15)
        live = learned(engine)
        crashed = as_after_a_crash(tmp_path / "s.db")
    with recovered(crashed, config) as again:
        assert 0 < again.store.snapshot(1).seq < again.store.end().seq
        assert learned(again) == live
        assert again.placements["home"].learner.policy.epsilon == 0.5
        assert again.placements["home"].windows.rule.window == 60 * SECOND


def test_the_event_id_seeds_the_draw(tmp_path):
    async def session(path):
        async with served(path, configured()) as engine:
            ids = [f"event {i}" for i in range(40)]
            rows = [await decided(engine, rank_of(eventId=id)) for id in ids]
            again = [await decided(engine, rank_of(eventId=id)) for id in reversed(ids)]
            assert rows == again[::-1]
            together = [impression_of(rank_of(eventId="new"), 32) for _ in range(2)]
            pair = await engine.decide_many("home", together)
            assert pair[0] == pair[1]
            with pytest.raises(InConflict):
                await decided(engine, rank_of(eventId="event 1", contextFeatures=[{"hour": 1}]))
        return [row.arm for row in rows]

    first, second = (asyncio.run(session(tmp_path / name)) for name in ("1.db", "2.db"))
    assert first == second
    assert len(set(first)) == 3


async def test_the_apprentice_shows_the_first_action_that_is_not_excluded(tmp_path):
    async with served(tmp_path / "s.db", configured(mode="apprentice")) as engine:
        row = await decided(engine, rank_of("abcd", excludedActions=["a"]))
        assert (row.arm, row.propensity) == ("b", 1.0)
        assert row.would in "bcd"
        chances = dict(ShownRanking.of(row).ranking)
        assert chances == {"a": None, "b": 1.0, "c": 0.0, "d": 0.0}
        slots = [{"id": str(i), "baselineAction": name} for i, name in enumerate("ca")]
        told = impressions_of(slots_of("abcd", slots), 32, "e")
        assert [row.arm for row in await engine.decide_many("home", told)] == ["c", "a"]


@examples(40)
@given(data=st.data())
def test_every_slot_gets_an_action_of_its_own(data):
    names = [str(i) for i in range(data.draw(st.integers(1, 7)))]
    baselines = data.draw(st.permutations(names))[: data.draw(st.integers(1, len(names)))]
    slots = []
    for i, baseline in enumerate(baselines):
        others = [name for name in names if name != baseline]
        excluded = data.draw(st.lists(st.sampled_from(others), unique=True)) if others else []
        slots.append({"id": f"s{i}", "baselineAction": baseline, "excludedActions": excluded})
    told = impressions_of(slots_of(names, slots), 8, "e")
    # Whatever is chosen where, something is left for the slots after it.
    taken = set()
    for each, slot in zip(told, slots, strict=True):
        left = [arm for arm in each.arms if arm not in taken]
        assert left
        assert not set(left) & set(slot["excludedActions"])
        taken.add(data.draw(st.sampled_from(left)))


async def test_slots_are_rewarded_apart(tmp_path):
    async with served(tmp_path / "s.db", configured(policy="linear-epsilon-greedy(dim=64)")) as engine:
        for i in range(150):
            slots = [
                {"id": "top", "baselineAction": "a", "features": [{"place": "top"}]},
                {"id": "side", "baselineAction": "b", "features": [{"place": "side"}]},
            ]
            told = impressions_of(slots_of("abc", slots), 64, f"e{i}")
            rows = await engine.decide_many("home", told)
            assert len({row.arm for row in rows}) == 2
            for row, best in zip(rows, "ca", strict=True):
                await engine.feedback("home", row.id, 1.0 if row.arm == best else 0.0)
        told = impressions_of(slots_of("abc", slots), 64, "last")
        top, _ = await engine.decide_many("home", told)
        assert dict(ShownRanking.of(top).ranking)["c"] == pytest.approx(0.8 + 0.2 / 3)
        assert (await engine.made("home", [top.id])) == {slot_id("last", 0): top}


async def test_what_was_learned_is_a_fold_over_the_log_in_a_database(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "chosen", "postgres")
    async with served(tmp_path / "s.db", configured()) as engine:
        await traffic(engine, 18)
        live = learned(engine)
    with recovered(tmp_path / "s.db", engine.config) as again:
        assert learned(again) == live


# Settings ------------------------------------------------------------------------------------


def put(address, **changes):
    path = "/personalizer/v1.1-preview.3/configurations/service"
    status, now = ask(address, "GET", path)
    assert status == 200
    return ask(address, "PUT", path, now | changes)


def test_settings_hold_from_now_on_and_survive(tmp_path):
    config = configured(tmp_path / "s.db")
    with running(config) as address:
        client = PersonalizerClient(address, CognitiveServicesCredentials("unused"))
        long = client.rank(RankRequest(actions=foods()))
        client.events.reward(long.event_id, 1.0)
        status, told = put(
            address, rewardWaitTime="PT0.2S", defaultReward=-1.0, rewardAggregation="sum",
            explorationPercentage=0.0, learningMode="Apprentice",
        )  # fmt: skip
        assert status == 200
        assert (told["rewardWaitTime"], told["learningMode"]) == ("PT0.2S", "Apprentice")
        edited = datetime.fromisoformat(told["lastConfigurationEditDate"])
        assert abs(datetime.now(UTC) - edited) < timedelta(seconds=PATIENCE)
        assert client.rank(RankRequest(actions=foods())).reward_action_id == "pasta"
        assert put(address, learningMode="Online")[0] == 200
        short = client.rank(RankRequest(actions=foods()))
        chances = [each.probability for each in short.ranking]
        assert sum(chances) == pytest.approx(1.0)
        assert min(chances) == 0.0
        eventually(lambda: ask(address, "GET", "/v1/placements")[1]["placements"][0]["pending"] <= 1)
        # The short windows are closed, the long one before them is not.
        now = ask(address, "GET", "/personalizer/v1.0/configurations/service")[1]
    with running(config) as address:
        assert ask(address, "GET", "/personalizer/v1.0/configurations/service")[1] == now


@pytest.mark.parametrize(
    "changes",
    [
        {"rewardWaitTime": "PT0S"},
        {"rewardWaitTime": "P31D"},
        {"rewardWaitTime": "10 minutes"},
        {"defaultReward": -1.1},
        {"rewardAggregation": "median"},
        {"explorationPercentage": 1.1},
        {"logRetentionDays": 7},
        {"logMirrorEnabled": True},
        {"isAutoOptimizationEnabled": True},
        {"learningMode": "Offline"},
    ],
)
def test_settings_that_are_refused_change_nothing(address, changes):
    path = "/personalizer/v1.0/configurations/service"
    before = ask(address, "GET", path)
    status, answer = put(address, **changes)
    assert status == 400
    assert answer["error"]["innerError"]["code"] == "InvalidServiceConfiguration"
    assert next(iter(changes)) in answer["error"]["message"]
    assert ask(address, "GET", path) == before


def test_the_log_is_kept_for_as_long_as_the_file_says(tmp_path):
    with running(configured(tmp_path / "s.db", retention=6.5)) as address:
        path = "/personalizer/v1.0/configurations/service"
        assert ask(address, "GET", path)[1]["logRetentionDays"] == 7
        assert put(address, explorationPercentage=0.1)[0] == 200
        assert put(address, logRetentionDays=-1)[0] == 400


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"personalizer.placement": "away"}, "personalizer.placement"),
        ({"placements.home.policy": "lin-ts(1, 1)"}, "probability"),
        ({"placements.home.policy": "thompson"}, "home: arms"),
        ({"placements.home.arms": 3}, "arms"),
        ({"placements.home.default_reward": -2}, "default_reward"),
        ({"placements.home.propensities": False}, "propensities"),
        ({"placements.home.kind": "features"}, "home: arms"),
    ],
)
def test_configurations_that_are_refused(values, message):
    base = {"placements": {"home": {"kind": "personalizer"}}, "personalizer": {"placement": "home"}}
    with pytest.raises(ConfigError, match=message):
        load_config(overrides=base | values)


# Evaluations ---------------------------------------------------------------------------------


@pytest.mark.compiled
def test_an_evaluation_is_importance_weighting_of_the_log(tmp_path):
    rng = np.random.default_rng(3)
    config = configured(tmp_path / "s.db", policy="linear-epsilon-greedy(dim=64, epsilon=0.6)")
    shown = []
    with running(config) as address:
        client = PersonalizerClient(address, CognitiveServicesCredentials("unused"))
        actions = [RankableAction(id=name, features=[{"name": name}]) for name in "abc"]
        for _ in range(120):
            answer = client.rank(RankRequest(actions=actions, excluded_actions=["a"]))
            chance = next(e.probability for e in answer.ranking if e.id == answer.reward_action_id)
            reward = float(rng.choice([-1.0, 0.0, 1.0]))
            client.events.reward(answer.event_id, reward)
            shown.append((answer.reward_action_id, chance, reward))
        # Open windows are left out.
        client.rank(RankRequest(actions=actions))
        span = {"startTime": "2020-01-01T00:00:00Z", "endTime": "2100-01-01T00:00:00Z"}
        own = "LinearEpsilonGreedy(dim=64, epsilon=0.6)"
        policies = [{"name": "the same", "arguments": own}, {"name": "best", "arguments":
                    "LinearEpsilonGreedy(dim=64, epsilon=0.0)"}]  # fmt: skip
        path = "/personalizer/v1.0/evaluations"
        body = {"name": "by hand", "policies": policies} | span
        status, made = ask(address, "POST", path, body)
        assert status == 201
        done = wait_for(lambda: ask(address, "GET", f"{path}/{made['id']}")[1])
        assert [each["id"] for each in ask(address, "GET", path)[1]] == [made["id"]]
        for change, code in (
            ({"endTime": span["startTime"]}, "InvalidEvaluationContract"),
            ({"policies": [policies[0]] * 2}, "DuplicateCustomPolicyNames"),
            ({"policies": [{"name": "x", "arguments": "--cb_explore"}]}, "InvalidPolicyContract"),
            ({"policies": [{"name": "x", "arguments": "ucb1"}]}, "InvalidPolicyContract"),
        ):
            status, answer = ask(address, "POST", path, body | change)
            assert (status, answer["error"]["innerError"]["code"]) == (400, code)
    found = {each["name"]: each["totalSummary"] for each in done["policyResults"]}
    arms, chances, rewards = (np.array(column) for column in zip(*shown, strict=True))
    expected = {
        "Online": np.ones(120), "Baseline": (arms == "b") / chances, "Random": 0.5 / chances,
    }  # fmt: skip
    for name, weights in expected.items():
        total = found[name]
        assert total["ipsEstimatorNumerator"] == pytest.approx(weights @ rewards)
        assert total["ipsEstimatorDenominator"] == 120
        assert total["averageReward"] == pytest.approx(weights @ rewards / weights.sum())
        assert 0 < total["confidenceInterval"] < 1
    # The policy that wrote the log, learning from it anew, would have done all of it again.
    same, online = found["the same"], found["Online"]
    assert same["snipsEstimatorDenominator"] == pytest.approx(120)
    assert same["averageReward"] == pytest.approx(online["averageReward"])
    assert found["best"]["nonZeroProbability"] < 1


# Features ------------------------------------------------------------------------------------


def hash_of(*path):
    text = json.dumps(path, separators=(",", ":")).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def test_features_by_hand():
    told = [
        {"user": {"kind": "guest", "age": 31, "new": False, "gone": None}},
        {"tags": ["a", "b"], "place": [1, 0, -3], "deep": [[1, 1], [{"x": "y"}]]},
    ]
    hashes, worths = features_of("features", told)
    expected = {
        hash_of("user", "kind", "guest"): 1.0,
        hash_of("user", "age"): 5.0,
        hash_of("user", "new", False): 1.0,
        hash_of("tags", "a"): 1.0,
        hash_of("tags", "b"): 1.0,
        hash_of("place", 0): 1.0,
        hash_of("place", 2): -2.0,
        hash_of("deep", 0, 0): 1.0,
        hash_of("deep", 0, 1): 1.0,
        hash_of("deep", 1, "x", "y"): 1.0,
    }
    assert dict(zip(hashes.tolist(), worths.tolist(), strict=True)) == expected


def test_a_vector_by_hand():
    def mixed(x):
        mask = 2**64 - 1
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask
        return x ^ (x >> 31)

    context = [{"hour": 3}, {"day": "monday"}]
    action = [{"name": "tea", "hot": True, "price": 1}]
    dim = 16
    expected = np.zeros(dim)
    of_context = [(hash_of("hour"), 2.0), (hash_of("day", "monday"), 1.0)]
    of_action = [(hash_of("name", "tea"), 1.0), (hash_of("hot", True), 1.0), (hash_of("price"), 1.0)]
    blocks = [
        [(h ^ 0x243F6A8885A308D3, x) for h, x in of_context],
        [(h ^ 0x13198A2E03707344, x) for h, x in of_action],
        [
            (mixed((mixed(h ^ 0xA4093822299F31D0) + g) % 2**64), x * y)
            for h, x in of_context
            for g, y in of_action
        ],
    ]
    for block in blocks:
        for h, x in block:
            expected[h % dim] += (-1.0 if h >> 63 else 1.0) * x / math.sqrt(len(block))
    found = vectors(features_of("c", context), [features_of("a", action)], dim)
    np.testing.assert_allclose(found, [expected])


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@examples(80)
@given(blocks=st.lists(st.dictionaries(st.text(), json_values, max_size=4), max_size=3))
def test_any_features_are_a_vector_or_an_error_that_says_why(blocks):
    try:
        features = features_of("features", blocks)
    except InvalidValue:
        return
    other = [dict(reversed(block.items())) for block in blocks]
    (one,), (two,) = (vectors(features, [features_of("features", b)], 64) for b in (blocks, other))
    assert np.isfinite(one).all()
    np.testing.assert_allclose(one, two, atol=1e-9 * (1 + np.abs(one).max()))


def test_too_many_features_are_refused():
    with pytest.raises(InvalidValue, match=str(MOST_FEATURES)):
        features_of("features", [{str(i): 1 for i in range(MOST_FEATURES + 1)}])
    nested = {}
    for _ in range(40):
        nested = {"x": nested}
    with pytest.raises(InvalidValue, match="deep"):
        features_of("features", [nested])
    wide = {"features": [{str(i): 1 for i in range(250)}]}
    body = {"actions": [{"id": str(i)} | wide for i in range(50)], "contextFeatures": [
            {str(i): 1 for i in range(250)}]}  # fmt: skip
    with pytest.raises(InvalidValue, match="pairs"):
        impression_of(msgspec.convert(body, wire.RankRequest), 8)


# The models of items by embeddings ---------------------------------------------------------------

FLOORED = "exploration-floor(policy=embedding-mixture(relevance_dim=64), epsilon=0.3)"


@pytest.mark.long
async def test_its_features_are_learned_by_the_models_of_items(tmp_path):
    """Mornings like news, evenings sport: each is learned, with exact chances, and the log folds to it."""
    config, rng = configured(policy=FLOORED, snapshot_every=100), np.random.default_rng(3)
    liked = {"morning": "news", "evening": "sport"}
    async with served(tmp_path / "s.db", config) as engine:
        shown = []
        for _ in range(300):
            engine.clock.now += SECOND
            daytime = ("morning", "evening")[int(rng.integers(2))]
            asked = rank_of(("news", "sport", "shop"), contextFeatures=[{"daytime": daytime}])
            row = await decided(engine, asked)
            chances = [chance for _, chance in ShownRanking.of(row).ranking]
            assert sum(chances) == pytest.approx(1.0, abs=1e-9)
            assert min(chances) >= 0.1 - 1e-9
            assert row.propensity == dict(ShownRanking.of(row).ranking)[row.arm]
            await engine.feedback("home", row.id, float(row.arm == liked[daytime]))
            shown.append(row.arm == liked[daytime])
        # Of three actions a third of 300 would be 33 ± 5 of the last 100; the floor leaves 80.
        assert sum(shown[-100:]) > 60
        live = learned(engine)
    is_the_fold(config, tmp_path / "s.db", live)


def test_a_policy_that_no_setting_can_let_explore_is_refused():
    with pytest.raises(ConfigError, match="exploration-floor"):
        configured(policy="embedding-mixture(relevance_dim=64)")
