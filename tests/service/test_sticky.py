"""Users who keep what they were shown: decided by HTTP, a fold of the log, learned and counted once."""

import contextlib
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest
from harness import Client, Clock, by_clock, folding, logged_decisions, quiet, served, with_home
from placement_access import check_starts, decide, everything, get_sticky_users, patch_internal
from stores import store_at

from tacit.client import Local
from tacit.errors import ConfigError, InvalidValue
from tacit.service.log.requests import DecisionRequest, FeedbackRequest
from tacit.service.log.rows import ACTIVATE
from tacit.service.log.search_records import Subject
from tacit.service.maintenance.log_export import export, import_log
from tacit.wire.control import ArmsOf, EndHoldout, HoldoutOf, ModeOf, PinOf, Unpin

ARMS = ["film", "holiday", "shop"]
SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000
CONTEXT = {"device": ["ios", "web"]}
RATES = dict(zip([*ARMS, "new"], (0.2, 0.3, 0.5, 0.4), strict=True))

sticky = partial(with_home, arms=ARMS, policy="thompson", sticky="user", sticky_for="30 days")


def seen(placement):
    """Return everything that a placement is, with what its users keep."""
    return everything(placement), get_sticky_users(placement)


def ask(client, user, **more):
    status, _, answer = client.post("home/decide", {"key": "k", "user": user} | more)
    assert status == 200, answer
    return answer


def test_a_user_is_shown_the_same_for_a_time(tmp_path):
    clock = Clock()
    with by_clock(sticky(tmp_path / "s.db", policy="uniform-random"), clock) as address:
        client = Client(address)
        first = {user: ask(client, user) for user in map(str, range(30))}
        assert {answer["arm"] for answer in first.values()} == set(ARMS)
        clock.now += 30 * DAY - SECOND
        for user, answer in first.items():
            again = ask(client, user)
            assert again["decision_id"] != answer["decision_id"]
            assert (again["arm"], again["propensity"]) == (answer["arm"], answer["propensity"])
        clock.now += SECOND
        assert [ask(client, user)["arm"] for user in first] != [each["arm"] for each in first.values()]
        # Another key is another thing to show.
        arms = [ask(client, user, key="another")["arm"] for user in first]
        assert arms != [ask(client, user)["arm"] for user in first]


def test_users_of_one_batch_and_their_flags(tmp_path):
    service = by_clock(sticky(tmp_path / "s.db"), Clock())
    with service as address, Local(address, "home", tmp_path / "local") as local:
        client = Client(address)
        impressions = [{"key": "k", "user": f"u{i % 7}"} for i in range(50)]
        _, _, answer = client.post("home/decide/batch", {"decisions": impressions})
        arms = {}
        for impression, made in zip(impressions, answer["decisions"], strict=True):
            arms.setdefault(impression["user"], set()).add((made["arm"], made["propensity"]))
        assert all(len(each) == 1 for each in arms.values())
        # The same user by OpenFeature, and by a client that has no replica and asks the service.
        for user, (drawn,) in arms.items():
            decided, (arm, _) = local.decide("k", user=user), drawn
            assert (decided.arm, decided.propensity) == drawn
            context = {"context": {"targetingKey": user, "key": "k"}}
            assert client.ask("POST", "/ofrep/v1/evaluate/flags/home", context)[2]["value"] == arm
            assert client.ask("POST", "/ofrep/v1/evaluate/flags", context)[2]["flags"][0]["value"] == arm
        _, _, failure = client.ask("POST", "/ofrep/v1/evaluate/flags/home", {"context": {}})
        assert failure["errorCode"] == "TARGETING_KEY_MISSING"
        _, _, anonymous = client.post("home/decide", {"key": "k"})
        assert anonymous["warning"].startswith("user: ")
        status, _, problem = client.ask("GET", "/v1/placements/home/learner")
        assert (status, problem["field"]) == (422, "placement")
        assert "arms that users keep" in problem["detail"]


def test_an_arm_that_goes_or_is_not_on_offer_is_not_kept(tmp_path):
    with by_clock(sticky(tmp_path / "s.db", sticky_for=None), Clock()) as address:
        client = Client(address)
        arm = ask(client, "toto")["arm"]
        others = [each for each in ARMS if each != arm]
        assert ask(client, "toto", arms=others)["arm"] in others
        kept = ask(client, "toto")["arm"]
        assert kept in others
        assert client.post("home/arms", {"retire": [kept]})[0] == 200
        assert ask(client, "toto")["arm"] != kept
        # A pin is for everybody, and is not kept.
        kept = ask(client, "toto")["arm"]
        pinned = next(each for each in ask_arms(client) if each != kept)
        assert client.post("home/pin", {"arms": [pinned], "until": "2999-01-01T00:00:00Z"})[0] == 200
        assert ask(client, "toto")["arm"] == pinned
        assert client.ask("DELETE", "/v1/placements/home/pin")[0] == 200
        assert ask(client, "toto")["arm"] == kept


def ask_arms(client):
    return client.ask("GET", "/v1/placements")[2]["placements"][0]["arms"]


def test_the_policy_learns_one_decision_of_each_draw(tmp_path):
    with by_clock(sticky(tmp_path / "s.db", policy="ucb1"), Clock()) as address:
        client = Client(address)
        outcomes = []
        for _ in range(5):
            feedback = {"decision_id": ask(client, "toto")["decision_id"], "reward": 1.0}
            outcomes.append(client.post("home/feedback", feedback)[2]["outcome"])
        assert outcomes[0] in ("learned", "pending")
        assert outcomes[1:] == ["noted"] * 4


def test_a_deferred_draw_is_learned_where_it_is_used(tmp_path):
    """All flags of a page are drawn, and one is used on a later page: that is the one to learn from."""
    with by_clock(sticky(tmp_path / "s.db"), Clock()) as address:
        client = Client(address)
        made = [ask(client, "toto", deferred=True) for _ in range(4)]
        assert len({(answer["arm"], answer["propensity"]) for answer in made}) == 1
        for i, outcomes in ((1, ("learned", "pending")), (3, ("learned", "pending"))):
            decision = {"decision_id": made[i]["decision_id"]}
            assert client.post("home/activate", decision)[2]["outcome"] == "noted"
            assert client.post("home/feedback", decision | {"reward": 1.0})[2]["outcome"] in outcomes
        later = ask(client, "toto", deferred=True)
        decision = {"decision_id": later["decision_id"]}
        assert later["arm"] == made[0]["arm"]
        assert client.post("home/activate", decision)[2]["outcome"] == "noted"
        assert client.post("home/feedback", decision | {"reward": 1.0})[2]["outcome"] == "noted"


TABLES = {
    "plain": {},
    "auto": {"policy": "auto"},
    "restarts": {"policy": "cusum-ucb(samples=4, threshold=1.0, alpha=0.2)"},
    "observes": {"policy": "exp3"},
    "context": {"policy": "auto", "context": CONTEXT},
    "holdout": {"holdout": {"share": 0.4, "unit": "user"}},
    "baseline": {"holdout": {"share": 0.4, "unit": "user", "control": "baseline"}},
    "at-least": {"at_least": {"film": 0.2}},
    "hours": {"sticky_for": "2 hours"},
    "forever": {"sticky_for": None},
    "buffered": {"durability": "buffered"},
}
CHANGES = {
    3: ArmsOf(add=["new"]),
    5: ArmsOf(retire=["holiday"]),
    7: PinOf(arms=["shop"], until="2999-01-01T00:00:00Z"),
    8: Unpin(),
    9: ModeOf("frozen"),
    11: ModeOf("online"),
    13: ArmsOf(restore=["holiday"]),
}


async def play(engine, rounds, changes, context=None):
    rng = np.random.default_rng(5)
    for i in range(rounds):
        engine.clock.now += 1_200 * SECOND
        if i in changes:
            await engine.ask("home", changes[i])
        users = [None if u == 0 else f"u{u}" for u in rng.integers(12, size=10).tolist()]
        requests = [
            DecisionRequest(
                f"k{j % 2}", context=context, id=f"{i} {j}" if j % 3 else None, user=user,
                deferred=bool(rng.random() < 0.3),
            )
            for j, user in enumerate(users)
        ]  # fmt: skip
        for row in await decide(engine, *requests):
            if row.deferred and rng.random() < 0.5:
                await engine.record_many("home", [FeedbackRequest(row.id, ACTIVATE)])
            if rng.random() < RATES[row.arm]:
                await engine.feedback("home", row.id, 1.0)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("partly", [False, True])
async def test_the_log_tells_what_users_keep(tmp_path, table, partly):
    options = TABLES[table]
    config = sticky(tmp_path / "s.db", snapshot_every=60 if partly else 100_000, **options)
    changes = CHANGES if "at_least" not in options else {}
    if "holdout" in options:
        changes = changes | {6: HoldoutOf(share=0.2, unit="user"), 12: EndHoldout()}
    context = {"device": "ios"} if "context" in options else None
    # A crash may lose what was answered before it was committed.
    crash = table != "buffered"
    async with folding(tmp_path / "s.db", config, seen=seen, partly=partly and crash, crash=crash) as engine:
        await play(engine, 16, changes, engine.placements["home"].reader.encoder and context)
        await quiet(engine)
        assert {row.mode for row in logged_decisions(engine)} >= {"online", "kept"}
        assert get_sticky_users(engine.placements["home"])
    # A start goes on with what users keep.
    async with served(tmp_path / "s.db", config, Clock(engine.clock.now)) as again:
        assert get_sticky_users(again.placements["home"]) == get_sticky_users(engine.placements["home"])


async def test_another_policy_keeps_what_users_were_shown(tmp_path):
    config = sticky(tmp_path / "s.db")
    async with folding(tmp_path / "s.db", config, seen=seen) as engine:
        await play(engine, 8, {})
        before = get_sticky_users(engine.placements["home"])
        await engine.rebuild("home", "ucb1")
        assert get_sticky_users(engine.placements["home"]) == before
        await play(engine, 4, {})
        before = get_sticky_users(engine.placements["home"])
        await engine.rollback("home")
        assert get_sticky_users(engine.placements["home"]) == before
        await play(engine, 4, {})


async def test_a_user_stays_in_its_group_of_a_holdout(tmp_path):
    holdout = {"share": 0.5, "unit": "user", "control": "baseline"}
    async with served(tmp_path / "s.db", sticky(tmp_path / "s.db", holdout=holdout)) as engine:
        await play(engine, 12, {})
        groups = {}
        for row in logged_decisions(engine):
            if row.asked is not None:
                groups.setdefault(row.asked, set()).add((row.control, row.bucket))
                assert not row.control or row.arm == "film"
        assert all(len(each) == 1 for each in groups.values())
        with pytest.raises(InvalidValue, match="unit: 'decision' is not allowed"):
            await engine.ask("home", HoldoutOf(share=0.2, unit="decision"))


async def test_a_user_who_is_forgotten_is_drawn_anew(tmp_path):
    config = sticky(tmp_path / "s.db")
    async with folding(tmp_path / "s.db", config, seen=seen) as engine:
        await play(engine, 6, {})
        await engine.forget(Subject("user", "u3"))
        kept = get_sticky_users(engine.placements["home"])
        await decide(engine, DecisionRequest("k0", user="u3"))
        assert len(get_sticky_users(engine.placements["home"])) == len(kept) + 1
        assert logged_decisions(engine)[-1].mode == "online"
        await play(engine, 2, {})


async def test_users_keep_what_they_were_shown_in_an_imported_log_and_are_found_there(tmp_path):
    async with served(tmp_path / "s.db", sticky(tmp_path / "s.db")) as engine:
        (shown,) = await decide(engine, DecisionRequest("k0", user="u3"))
    with contextlib.closing(store_at(tmp_path / "s.db")) as store:
        export(sticky(), store, tmp_path / "log")
    with contextlib.closing(store_at(tmp_path / "new.db")) as store:
        assert import_log(store, tmp_path / "log") == 1
    async with served(tmp_path / "new.db", sticky(tmp_path / "new.db")) as engine:
        (again,) = await decide(engine, DecisionRequest("k0", user="u3"))
        assert (again.mode, again.arm) == ("kept", shown.arm)
        assert (await engine.forget(Subject("user", "u3")))["home"].decisions == 2


async def test_click_logs_and_estimates_have_one_decision_of_each_draw(tmp_path):
    config = sticky(tmp_path / "s.db", policy="uniform-random")
    async with served(tmp_path / "s.db", config) as engine:
        await play(engine, 10, {})
        engine.clock.now += HOUR
        await decide(engine, DecisionRequest("k0"))
        rows = logged_decisions(engine)
    with contextlib.closing(store_at(tmp_path / "s.db")) as store:
        export(config, store, tmp_path / "log")
    exported = set(pq.read_table(tmp_path / "log" / "clicks.parquet").column("decision_id").to_pylist())
    ids = {mode: {row.id for row in rows if row.mode == mode} for mode in ("online", "kept")}
    assert exported <= ids["online"]
    assert len(exported) > 20
    assert len(ids["kept"]) > 20


def test_shards_refuse_it(tmp_path):
    with pytest.raises(ConfigError, match=r"placements\.home\.sticky: shards do not know"):
        check_starts(sticky(tmp_path / "s.db"))


def test_the_page_tells_how_many_users_keep_something(tmp_path):
    with by_clock(sticky(tmp_path / "s.db"), Clock()) as address:
        client = Client(address)
        for user in ("ann", "bob", "ann"):
            ask(client, user)
        assert "users who keep their arms: 2" in client.ask("GET", "/placements/home")[2].decode()


async def test_the_memory_is_bounded(tmp_path, monkeypatch):
    patch_internal(monkeypatch, MOST_KEPT=5)
    async with folding(tmp_path / "s.db", sticky(tmp_path / "s.db"), seen=seen) as engine:
        for i in range(8):
            await decide(engine, DecisionRequest("k", user=f"u{i}"))
        assert len(get_sticky_users(engine.placements["home"])) == 5
        rows = [await decide(engine, DecisionRequest("k", user=f"u{i}")) for i in (7, 0)]
        assert [row.mode for (row,) in rows] == ["kept", "online"]
