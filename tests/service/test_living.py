"""Arms that come and go while the service decides: over HTTP, in any order, after crashes."""

import asyncio

import harness
import msgspec
import placement_access as access
import pytest
from drawn import examples
from harness import START, Clock, as_after_a_crash, learned
from hypothesis import given
from hypothesis import strategies as st
from stores import store_at

import tacit
from tacit.client import Client, Impression, InvalidRequest
from tacit.errors import InvalidValue, UnknownName
from tacit.interleaving import TeamDraft
from tacit.service.app.server import run_in_thread
from tacit.service.config.schema import Config, PlacementConfig, Rule
from tacit.service.errors import InConflict
from tacit.service.log.requests import Clicked, DecisionRequest, FeedbackRequest
from tacit.service.log.rows import CLICKS, ChangeRow
from tacit.service.maintenance.doctor import verify
from tacit.service.page.pages import Pages
from tacit.wire.control import ArmsOf

NAMES = ("a", "b", "c")
MOST = 5
ROUND_TIME = 7_000_000
WINDOW = 30_000_000
POLICIES = {
    "arms": tacit.Thompson(NAMES),
    "shared": tacit.DriftMixture(NAMES),
    "slates": tacit.policies.CascadeKLUCB(NAMES, positions=2),
    "duels": tacit.policies.RMED1(NAMES),
}
KINDS = {"shared": "arms"}


def of_kind(kind="arms", policy=None, **options):
    """Return the configuration of a placement of a kind, or of arms with a policy of that name."""
    return harness.with_policy(
        policy or POLICIES[kind],
        kind=KINDS.get(kind, kind),
        options=access.DuelOptions(TeamDraft(length=3)) if kind == "duels" else None,
        rule=Rule(window=WINDOW, aggregation="first" if kind in KINDS or kind == "arms" else "union"),
        **options,
    )


def renamed(config, arms, **more):
    """Return a configuration with other arms."""
    home = config.placements["home"]
    policy = more.pop("policy", home.policy).with_arms(arms)
    return Config({"home": msgspec.structs.replace(home, policy=policy, **more)})


def asked(engine, key, id=None, arms=None):
    """Return an impression as a client of this kind asks for it."""
    placement = engine.placements["home"]
    rankings = None
    if access.get_config(placement).kind == "duels":
        rankings = {arm: [f"{arm}1", f"{arm}2", "x"] for arm in placement.arms}
    return access.check_request(placement, DecisionRequest(key, arms, id=id, rankings=rankings))


async def decided(engine, key, id=None, arms=None):
    (row,) = await engine.decide_many("home", [asked(engine, key, id, arms)])
    return row


def shown(engine, row):
    return set(access.get_shown_arms(engine.placements["home"], row))


def steps_of(*changes):
    """Return lists of steps, of which half are decisions and what they earned."""
    kinds = ["decide"] * 4 + ["learn"] * 4 + [*changes, "stop"]
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 2**16)), min_size=3, max_size=14)


async def take_step(engine, i, what, number, waiting):
    """Take one step; return what it came to."""
    if what == "stop":
        return None
    engine.clock.now = START + i * ROUND_TIME
    came = await stepped(engine, i, what, number, waiting)
    # Or windows that have ended by now would close in the last group of the next stop.
    await engine.wait_until_durable(["home"])
    return came


async def stepped(engine, i, what, number, waiting):
    offer = access.get_offer(engine.placements["home"])
    arm = offer.names[number % len(offer.names)]
    if what == "decide":
        impressions = [asked(engine, f"key {(number + j) % 3}", f"{i} {j}") for j in range(3)]
        # Without names of the client's, they are decided together.
        if number % 2:
            impressions = [told._replace(id=None) for told in impressions]
            new_ids = lambda time, keys, seq: [f"s{seq} {j}" for j in range(len(keys))]  # noqa: E731
            access.set_new_ids(engine.placements["home"], new_ids)
        rows = list(await engine.decide_many("home", impressions))
        waiting.extend(rows)
        assert all(shown(engine, row) <= set(offer.arms) for row in rows)
        return rows
    if what == "learn" and waiting:
        return await feedback(engine, waiting.pop(number % len(waiting)), number)
    if what == "add" and len(offer.names) < MOST:
        return (await engine.ask("home", ArmsOf([f"new {i}"]))).arms
    if what == "retire" and offer.arms != [arm]:
        return (await engine.ask("home", ArmsOf((), [arm]))).arms
    if what == "restore":
        return (await engine.ask("home", ArmsOf((), (), [arm]))).arms
    if what == "configure":
        named = [name for i, name in enumerate((*NAMES, "new")) if number >> i & 1]
        if len(named) > 1:
            await engine.reload(renamed(engine.config, named))
        return access.get_offer(engine.placements["home"]).arms
    return None


async def feedback(engine, row, number):
    if access.shows_one_arm(engine.placements["home"]):
        return await engine.feedback("home", row.id, float(number % 2))
    told = FeedbackRequest(row.id, CLICKS, clicks=Clicked([0] if number % 2 else []))
    return await engine.record_many("home", [told])


def check_stops(folder, config, steps, crash, take_step, seen):
    """Check that stops on the way change nothing of what comes, and of what is known in the end."""

    async def straight():
        came, waiting = [], []
        async with harness.served(folder / "a.db", config) as engine:
            for i, (what, number) in enumerate(steps):
                came.append(await take_step(engine, i, what, number, waiting))
            return came, learned(engine), seen(engine.placements["home"])

    async def piecewise():
        came, waiting, path, clock = [], [], folder / "b.db", Clock()
        engine = access.Engine(config, store_at(path), clock)
        await engine.start()
        for i, (what, number) in enumerate(steps):
            if what == "stop":
                path = as_after_a_crash(path) if crash else path
                await engine.stop()
                engine = access.Engine(engine.config, store_at(path), clock)
                await engine.start()
            came.append(await take_step(engine, i, what, number, waiting))
        await engine.stop()
        with harness.recovered(path, engine.config, clock) as again:
            return came, learned(again), seen(again.placements["home"])

    assert asyncio.run(straight()) == asyncio.run(piecewise())


@pytest.mark.parametrize("kind", POLICIES)
@examples(12)
@given(
    steps=steps_of("add", "retire", "restore", "configure"),
    snapshot_every=st.sampled_from([1, 5, 50_000]),
    crash=st.booleans(),
)
def test_going_on_after_stops_equals_never_having_stopped(
    tmp_path_factory, kind, steps, snapshot_every, crash
):
    folder = tmp_path_factory.mktemp("stops")
    config = of_kind(kind, snapshot_every=snapshot_every)
    # The last group closes all windows that have ended.
    check_stops(
        folder, config, [*steps, ("decide", 0)], crash, take_step, lambda home: access.get_offer(home).retired
    )


@pytest.mark.usefixtures("kind")
def test_an_arm_comes_and_goes_and_comes_back_over_http(tmp_path):
    path = tmp_path / "s.db"
    config = harness.with_home(path, arms=["a", "b"], policy="thompson")
    with run_in_thread(config) as address, Client(address) as client:
        first = client.decide("home", "q", arms=["a"])
        arms = set()

        def ask():
            made = mine.decide_many("home", [Impression(f"q {i}") for i in range(20)])
            arms.update(one.arm for one in made)
            mine.feedback("home", made[0].decision_id, 1.0)

        with Client(address) as mine, harness.meanwhile(ask) as errors:
            now = client.change_arms("home", add=["c"])
            assert (now.arms, now.retired) == (["a", "b", "c"], [])
            harness.eventually(lambda: "c" in arms or errors)
            now = client.change_arms("home", retire=["a"])
            assert (now.arms, now.retired) == (["b", "c"], ["a"])
            after = client.decide_many("home", [Impression(f"r {i}") for i in range(50)])
        assert {one.arm for one in after} == {"b", "c"}
        assert [one.propensity for one in after] == pytest.approx([0.5] * 50)
        # What it showed before is learned still.
        assert client.feedback("home", first.decision_id, 1.0).outcome == "learned"
        with pytest.raises(InvalidRequest, match="'a' is not on offer, as it is retired; on offer"):
            client.decide("home", "q", arms=["a", "b"])
        with pytest.raises(InvalidRequest, match=r"'z' is not on offer; on offer are \['b', 'c'\]"):
            client.decide("home", "q", arms=["z", "b"])
        with pytest.raises(InvalidRequest, match="add"):
            client.change_arms("home", add=["c", "d"], retire=["b"])
    with run_in_thread(config) as address, Client(address) as client:
        assert {client.decide("home", f"s {i}").arm for i in range(30)} == {"b", "c"}
        now = client.change_arms("home", restore=["a"])
        assert (now.arms, now.retired) == (["a", "b", "c"], [])
        assert "a" in {client.decide("home", f"t {i}").arm for i in range(60)}
    assert verify(config, store_at(path)) == []


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"add": ["b"]}, InvalidValue, "^add: 'b' .*on offer already"),
        ({"add": ["a"]}, InvalidValue, "^add: 'a' .*retired; restore it"),
        ({"add": ["d", "d"]}, InvalidValue, "^add: .*name of its own"),
        ({"add": 2}, InvalidValue, "^add: .*names"),
        ({"retire": ["z"]}, UnknownName, "^retire: there is no arm 'z'"),
        ({"restore": ["z"]}, UnknownName, "^restore: there is no arm 'z'"),
        ({"retire": ["b", "c"]}, InvalidValue, "^retire: .*no arm would be on offer"),
        ({"retire": ["b", "b"]}, InvalidValue, "^retire: .*once"),
        ({"retire": ["b"], "restore": ["b"]}, InvalidValue, "^restore: .*once"),
        ({"add": ["d"], "retire": ["z"]}, UnknownName, "^retire: "),
    ],
)
async def test_what_is_wrong_changes_nothing(tmp_path, change, error, message):
    async with harness.served(tmp_path / "s.db", of_kind()) as engine:
        await engine.ask("home", ArmsOf(retire=["a"]))
        end = engine.store.end()
        with pytest.raises(error, match=message):
            await engine.ask("home", ArmsOf(**change))
        assert engine.store.end() == end
        assert access.get_offer(engine.placements["home"]).arms == ["b", "c"]
        # To retire what is retired says nothing new.
        await engine.ask("home", ArmsOf(retire=["a"]))
        assert engine.store.end() == end


async def test_of_two_who_add_the_same_arm_at_once_one_is_told_so(tmp_path):
    async with harness.served(tmp_path / "s.db", of_kind()) as engine:
        both = [engine.ask("home", ArmsOf(["d"])) for _ in range(2)]
        first, second = await asyncio.gather(*both, return_exceptions=True)
        assert first.arms == ["a", "b", "c", "d"]
        assert isinstance(second, InvalidValue)
        marks = [row for row in engine.store.events(0) if isinstance(row, ChangeRow)]
        assert [mark.kind for mark in marks] == ["arms"]


async def test_the_log_says_what_was_on_offer_once_arms_have_changed(tmp_path):
    async with harness.served(tmp_path / "s.db", of_kind()) as engine:
        before = await decided(engine, "q", "before")
        await engine.ask("home", ArmsOf(["d"], ["a"]))
        after = await decided(engine, "q", "after")
        assert (before.offered, after.offered) == (None, '["b","c","d"]')
        assert after.propensity == pytest.approx(1 / 3)
        await engine.ask("home", ArmsOf(retire=["b"]))
        # Who asks again gets the same answer, whatever is on offer by now.
        assert await decided(engine, "q", "before") == before
        assert await decided(engine, "q", "after") == after
        with pytest.raises(InConflict):
            await decided(engine, "q", "after", ["c", "d"])
        with pytest.raises(UnknownName, match="'b' is not on offer"):
            await decided(engine, "q", "new", ["b", "c"])


async def test_a_request_checked_before_an_arm_was_retired_is_refused_alone(tmp_path):
    async with harness.served(tmp_path / "s.db", of_kind()) as engine:
        late, fine = asked(engine, "q", None, ["a", "b"]), asked(engine, "q")
        came = await asyncio.gather(
            engine.decide_many("home", [late]),
            engine.decide_many("home", [fine]),
            engine.ask("home", ArmsOf(retire=["a"])),
            return_exceptions=True,
        )
        assert isinstance(came[0], UnknownName)
        assert came[1][0].arm in ("b", "c")


async def test_numbered_arms_are_told_by_their_numbers(tmp_path):
    config = of_kind(policy=tacit.Thompson(2))
    async with harness.served(tmp_path / "s.db", config) as engine:
        offer = await engine.ask("home", ArmsOf(2, [0]))
        assert (offer.arms, offer.retired) == ([1, 2, 3], [0])
        rows = [await decided(engine, f"q {i}") for i in range(40)]
        assert {row.arm for row in rows} == {1, 2, 3}


async def test_rankers_whose_lists_came_duel(tmp_path):
    async with harness.served(tmp_path / "s.db", of_kind("duels")) as engine:
        placement = engine.placements["home"]
        await engine.ask("home", ArmsOf(["d"], ["a"]))
        lists = {name: [f"{name}1", "x"] for name in "abc"}
        for i in range(20):
            told = access.check_request(placement, DecisionRequest("q", rankings=lists, id=f"{i}"))
            (row,) = await engine.decide_many("home", [told])
            assert row.offered == '["b","c"]'
            assert shown(engine, row) <= {"b", "c"}
            assert await engine.decide_many("home", [told]) == [row]
        told = access.check_request(placement, DecisionRequest("q", rankings={"a": ["x"]}))
        with pytest.raises(InvalidValue, match="on offer are b, c, d"):
            await engine.decide_many("home", [told])


def test_arms_that_come_with_requests_do_not_change(tmp_path):
    async def session(config):
        async with harness.served(tmp_path / "s.db", config) as engine:
            await engine.ask("home", ArmsOf(["d"]))

    features = Config({"home": PlacementConfig(tacit.policies.LinTS(1, 1), 7, kind="features")})
    with pytest.raises(InvalidValue, match="come with each request"):
        asyncio.run(session(features))


@pytest.mark.parametrize("kind", ["arms", "slates", "duels"])
async def test_the_page_shows_arms_that_came(tmp_path, kind):
    async with harness.served(tmp_path / "s.db", of_kind(kind)) as engine:
        await engine.ask("home", ArmsOf(["arrived"], ["a"]))
        for i in range(9):
            await feedback(engine, await decided(engine, f"q {i % 2}", f"{i}"), i)
        assert "arrived" in await Pages(engine).placement("home", {})
