"""Another policy for what was logged, and back: under traffic, after crashes, bit for bit."""

import asyncio
import contextlib
import itertools
from functools import partial

import harness
import msgspec
import numpy as np
import placement_access as access
import pytest
import stores
from click.testing import CliRunner
from drawn import examples
from harness import START, Clock, learned
from hypothesis import example, given
from hypothesis import strategies as st
from stores import SlowStore, WrappedStore, sql, store_at

import tacit
from tacit.cli import cli
from tacit.client import Client, Denied, Impression, InvalidRequest
from tacit.core.arrays import leaves
from tacit.errors import ConfigError, InvalidValue
from tacit.policies import policy_to_spec
from tacit.service.app.server import run_in_thread
from tacit.service.config.schema import Config, PlacementConfig, Rule
from tacit.service.errors import NotDurable, StoreError
from tacit.service.log.change_events import PolicyVersion
from tacit.service.log.ids import Shard, as_text
from tacit.service.log.requests import ClientDecision, DecisionRequest
from tacit.service.log.store import BASES
from tacit.service.maintenance.doctor import verify
from tacit.service.maintenance.log_export import export, import_log
from tacit.wire.control import ArmsOf, ModeOf, PinOf
from tests.service import test_control as control
from tests.service import test_living as living

KEY, NAMES = control.KEY, control.NAMES
OTHERS = {"arms": "ucb1", "shared": "thompson", "slates": "cascade-ucb1", "duels": "double-thompson-sampling"}
DAY = 86_400 * harness.SECOND


configured = partial(harness.with_policy, policy=tacit.Thompson(NAMES), rule=Rule(window=living.WINDOW))


async def traffic(engine, start, count):
    """Let decisions be made and answered; return those that wait still."""
    waiting = []
    for i in range(start, start + count):
        engine.clock.now = max(engine.clock.now, START + i * living.ROUND_TIME)
        waiting.append(await living.decided(engine, f"key {i % 3}", f"{i}"))
        if i % 3:
            await living.feedback(engine, waiting.pop(i % len(waiting)), i)
    return waiting


def policy_of(placement):
    return type(access.get_learner(placement).policy).__name__


def known(placement):
    """Return everything that a placement is, and which policy it has."""
    return harness.everything(placement), policy_of(placement)


is_the_fold = partial(harness.is_the_fold, seen=known)
folding = partial(harness.folding, seen=known, crash=False)


# Bit for bit ----------------------------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_rebuilt_is_the_fold_of_the_log_and_so_is_what_was_gone_back_to(tmp_path, kind, crash):
    config = living.of_kind(kind, snapshot_every=9)
    before = type(living.POLICIES[kind]).__name__

    async def session(path, start, step):
        async with harness.served(path, config, Clock(START + start * living.ROUND_TIME)) as engine:
            waiting = await traffic(engine, start, 12)
            made = await step(engine)
            # What another policy showed is learned still.
            assert await living.feedback(engine, waiting[-1], 1) is not None
            await traffic(engine, start + 12, 12)
            live = learned(engine), policy_of(engine.placements["home"])
            return made, live, harness.as_after_a_crash(path) if crash else path

    made, live, path = asyncio.run(
        session(tmp_path / "s.db", 0, lambda engine: engine.rebuild("home", OTHERS[kind], "lead"))
    )
    assert made.policy_version.approximate == []
    assert made.policy_version.left.endswith(before)
    assert live[1] != before
    is_the_fold(config, path, live)
    made, live, path = asyncio.run(session(path, 30, lambda engine: engine.rollback("home", None, "lead")))
    assert live[1] == before
    is_the_fold(config, path, live)


MOVES = st.lists(
    st.sampled_from(["home"] * 3 + ["other"] * 3 + ["click", "wait", "rebuild", "rollback", "stop"]),
    min_size=4,
    max_size=25,
)


@examples(15)
@given(moves=MOVES, crash=st.booleans())
@example(moves=["home", "wait", "other", "rebuild", "home", "rollback"], crash=False)
@example(moves=["home", "wait", "other", "rebuild", "home", "rollback", "home", "stop"], crash=True)
def test_beside_others_what_is_gone_back_to_is_the_fold(tmp_path_factory, moves, crash):
    # The rows of another placement move the time on, and windows close that were open.
    path = tmp_path_factory.mktemp("moves") / "s.db"
    home = configured(policy=tacit.Thompson(NAMES, discount=0.9), snapshot_every=5).placements["home"]
    config = Config({"home": home, "other": PlacementConfig(tacit.UCB1(NAMES), 7)})
    policies = itertools.cycle(["thompson", "ucb1", "thompson(discount=0.9)"])
    clock, left, made = Clock(), list(moves), []

    async def session(path):
        async with harness.served(path, config, clock) as engine:
            while left and (move := left.pop(0)) != "stop":
                clock.now += 3 * harness.SECOND
                if move == "home":
                    made.append(await living.decided(engine, f"key {len(made) % 2}"))
                elif move == "other":
                    await access.decide(engine, DecisionRequest("key"), name="other")
                elif move == "click" and made:
                    await engine.feedback("home", made.pop(0).id, 1.0)
                elif move == "wait":
                    clock.now += living.WINDOW
                elif move == "rebuild":
                    await engine.rebuild("home", next(policies))
                elif move == "rollback" and await engine.states("home"):
                    await engine.rollback("home")
            live = learned(engine), policy_of(engine.placements["home"])
            if crash:
                return live, harness.as_after_a_crash(path)
        return (learned(engine), policy_of(engine.placements["home"])), path

    while left:
        live, path = asyncio.run(session(path))
        is_the_fold(config, path, live)


@pytest.mark.usefixtures("kind")
async def test_a_rebuild_equals_having_had_the_policy_and_a_rollback_never_having_learned(tmp_path):
    # Both decide, and learn, as the one that was there from the beginning would have.
    config = configured()
    ucb = configured(policy=tacit.UCB1(NAMES))

    async def session():
        async with folding(tmp_path / "s.db", config) as engine:
            await traffic(engine, 0, 20)
            at_first = harness.learned_arrays(access.get_learner(engine.placements["home"]))
            await engine.rebuild("home", "ucb1")
            assert harness.arrays(access.get_learner(engine.placements["home"])) == await as_if(engine, ucb)
            engine.clock.now += 10 * living.ROUND_TIME
            await traffic(engine, 40, 20)
            (state,) = await engine.states("home")
            assert (await engine.rollback("home", state.name)).policy_version.policy["name"] == "Thompson"
            assert harness.learned_arrays(access.get_learner(engine.placements["home"])) == at_first
            # The one before is now what was left.
            assert (await engine.rollback("home")).policy_version.policy["name"] == "UCB1"

    async def as_if(engine, other):
        # By the store's own thread: another one would use its connections at the same time.
        await engine.writer.call_store(export, config, engine.store, tmp_path / "out")
        store = store_at(tmp_path / "other.db")
        import_log(store, tmp_path / "out")
        with_it = msgspec.structs.replace(other.placements["home"], rebuild=True)
        placement = access.load_placement(
            "home", with_it, store, 7, snapshot=False,
            as_if=PolicyVersion("rebuild", policy_to_spec(with_it.policy), 1, ""),
        )  # fmt: skip
        access.fold({placement.id: placement}, store)
        store.close()
        return harness.arrays(access.get_learner(placement))

    await session()


async def test_pins_arms_and_modes_come_along(tmp_path):
    async with folding(tmp_path / "s.db", configured(snapshot_every=5)) as engine:
        await traffic(engine, 0, 5)
        await engine.ask("home", ArmsOf(["d"], ["a"]))
        await engine.ask("home", PinOf(["d"], as_text(START + DAY)))
        await traffic(engine, 5, 5)
        await engine.ask("home", ModeOf("frozen"))
        await traffic(engine, 10, 5)
        await engine.ask("home", ModeOf("online"))
        await engine.rebuild("home", "epsilon-greedy(0.2)")
        placement = engine.placements["home"]
        offer = access.get_offer(placement)
        assert (offer.arms, offer.retired, access.get_last_pin(placement).arms) == (list("bcd"), ["a"], ["d"])
        await engine.ask("home", ArmsOf(["e"], (), ["a"]))
        await traffic(engine, 15, 5)
        await engine.rollback("home")
        assert access.get_offer(engine.placements["home"]).arms == ["a", "b", "c", "d", "e"]
        await traffic(engine, 20, 5)


@pytest.mark.usefixtures("kind")
async def test_what_retention_folded_away_is_told_and_can_be_gone_back_to(tmp_path):
    config = configured(retention=1.0)

    async def aged(engine, start):
        await traffic(engine, start, 10)
        engine.clock.now += 2 * DAY
        await engine.decide("home", "late")
        await harness.quiet(engine)

    async with folding(tmp_path / "s.db", config) as engine:
        await aged(engine, 0)
        assert engine.store.snapshots.find_base_end(1) is not None
        (said,) = (await engine.rebuild("home", "ucb1")).policy_version.approximate
        assert "10 decisions" in said
        assert "folded away by retention" in said
        placement = engine.placements["home"]
        assert access.count_decisions(placement) == 11
        assert await engine.writer.call_store(folded_in, config, engine.store, False) == known(placement)
        # By now the log begins with what the new policy has learned.
        await aged(engine, 20)
        await engine.rollback("home")
        await traffic(engine, 40, 5)
        assert policy_of(engine.placements["home"]) == "Thompson"


class Failing(WrappedStore):
    """A store that fails when a rebuild is to be made durable, before or after it is."""

    def __init__(self, store, after):
        super().__init__(store)
        self._after, self.fails = after, True

    def append(self, rows):
        failing = self.fails and any(mark.kind == "policy" for mark in rows.changes)
        if not failing or self._after:
            self._store.append(rows)
        if failing:
            self.fails = False
            raise StoreError("store: the disk went away")

    def insert(self, rows):
        self.append(rows)

    def commit(self):
        pass


@pytest.mark.parametrize("durability", ["committed", "buffered"])
@pytest.mark.parametrize("after", [False, True])
async def test_a_store_that_fails_at_the_switch_leaves_one_or_the_other(
    tmp_path, monkeypatch, durability, after
):
    access.patch_internal(monkeypatch, RETRY_SECONDS=0.01)
    config, path = configured(durability=durability), tmp_path / "s.db"
    async with folding(path, config, wrap=lambda store: Failing(store, after)) as engine:
        await traffic(engine, 0, 9)
        # What is buffered waits for the store; what is committed is what the store has.
        expected = "UCB1" if after or durability == "buffered" else "Thompson"
        if expected == "Thompson":
            with pytest.raises(NotDurable, match="as before"):
                await engine.rebuild("home", "ucb1")
        else:
            await engine.rebuild("home", "ucb1")
            assert engine.store.changes(1)[-1].kind == "policy"
        await harness.reached(lambda: engine.health().ready)
        assert policy_of(engine.placements["home"]) == expected
        await traffic(engine, 9, 9)


# Over HTTP ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("kind")
def test_nobody_is_refused_while_a_log_is_rebuilt_over_http(tmp_path, monkeypatch):
    monkeypatch.setattr(access.rebuilding, "ROWS", 50)
    path = tmp_path / "s.db"
    config = control.with_keys(path)
    with run_in_thread(config) as url, Client(url, KEY) as client:
        for i in range(10):
            shown = client.decide_many("home", [Impression(f"q {i} {j}") for j in range(20)])
            client.feedback("home", shown[0].decision_id, 1.0)
        made = []

        def ask():
            one = mine.decide("home", "busy")
            made.append((one.decision_id, one.propensity))
            mine.feedback("home", one.decision_id, float(len(made) % 2))

        mine, patient = Client(url, KEY, retries=0, timeout=60), Client(url, KEY, timeout=600)
        with mine, patient, harness.meanwhile(ask) as errors:
            found = patient.rebuild("home", {"name": "epsilon-greedy", "epsilon": 0.3})
            assert found.policy["epsilon"] == 0.3
            count = len(made)
            harness.eventually(lambda: len(made) > count + 20 or errors)
            back = patient.rollback("home", to=found.left)
            assert back.policy["name"] == "Thompson"
        states = client.states("home")
        assert [one.policy["name"] for one in states] == ["EpsilonGreedy", "Thompson"]
        assert (states[1].name, states[0].name) == (found.left, back.left)
        last, first = client.history("home")
        assert (first.by, first.what, first.detail) == (
            "lead", "rebuild", {"policy": "EpsilonGreedy", "left": found.left},
        )  # fmt: skip
        assert (last.what, last.detail["to"]) == ("rollback", found.left)
        with Client(url, control.READING) as reader:
            with pytest.raises(Denied):
                reader.rebuild("home", "ucb1")
            assert reader.states("home") == states
        for call, wrong in (
            (lambda: client.rebuild("home", "rmed1"), "policy"),
            (lambda: client.rebuild("home", "os:system"), "policy"),
            (lambda: client.rebuild("home", "auto"), "policy"),
            (lambda: client.rebuild("home", "nothing"), "policy"),
            (lambda: client.rollback("home", "yesterday"), "to"),
        ):
            with pytest.raises(InvalidRequest, match=wrong):
                call()
        assert len(client.history("home")) == 2
        key = ["--url", url, "--key", KEY]
        told = CliRunner().invoke(cli, ["placement", "rebuild", "home", "--policy", "ucb1", *key])
        assert told.output.startswith("UCB1 decides now: "), told.output
        told = CliRunner().invoke(cli, ["placement", "states", "home", *key])
        assert len(told.output.splitlines()) == 3
        told = CliRunner().invoke(cli, ["placement", "rollback", "home", *key])
        assert told.output.startswith("Thompson decides now: "), told.output
    assert verify(config, store_at(path)) == []


def test_a_configuration_rebuilds_once_and_leaves_what_came_after(tmp_path):
    path = tmp_path / "s.db"
    first = configured()
    with pytest.raises(ConfigError, match="rebuild = true"):
        asyncio.run(reloaded(path, first, configured(policy=tacit.UCB1(NAMES))))
    other = configured(policy=tacit.UCB1(NAMES), rebuild=True)

    async def by_file():
        async with harness.served(path, first) as engine:
            await traffic(engine, 0, 8)
            await engine.reload(other)
            await harness.reached(lambda: policy_of(engine.placements["home"]) == "UCB1")
            await harness.reached(lambda: not engine.configuration_logger.rebuilding)
            (change,) = [c for c in await engine.history("home") if c.what == "rebuild"]
            assert change.who == "configuration"
            await engine.rollback("home")

    async def again(config, expected):
        async with harness.served(path, config) as engine:
            await harness.reached(lambda: not engine.configuration_logger.rebuilding)
            assert policy_of(engine.placements["home"]) == expected
            return len(await engine.history("home"))

    asyncio.run(by_file())
    # What came after holds, whichever of both the file names.
    count = asyncio.run(again(other, "Thompson"))
    assert asyncio.run(again(other, "Thompson")) == count
    asyncio.run(again(first, "Thompson"))


TOLD = {"name": "auto", "priors": {"a": [4, 96]}}
SURER = {"name": "auto", "priors": {"a": [400, 96]}}


@pytest.mark.parametrize(("then", "now"), [("ucb1", "auto"), ("ucb1", SURER), (TOLD, SURER), ("auto", TOLD)])
async def test_another_policy_than_what_was_learned_with_is_refused_where_it_is_recommended(
    tmp_path, then, now
):
    """It was served on, without a word."""
    path = tmp_path / "s.db"
    before, other = (harness.with_home(arms=list(NAMES), policy=p) for p in (then, now))
    more = msgspec.structs.replace(other, placements={"new": before.placements["home"], **other.placements})
    refused = pytest.raises(ConfigError, match=r"home\.policy: .* set it back, rebuild it with rebuild = t")
    async with harness.served(path, before) as engine:
        await traffic(engine, 0, 3)
        with refused:
            await engine.reload(other)
    with contextlib.closing(store_at(path)) as store:
        with refused:
            access.Engine(more, store, Clock())
        # A start that is refused stores nothing.
        assert list(store.placements()) == ["home"]
    async with harness.served(path, harness.with_home(arms=list(NAMES), policy=now, rebuild=True)) as engine:
        await harness.reached(lambda: not engine.configuration_logger.rebuilding)
    async with harness.served(path, other) as engine:
        assert access.get_config(engine.placements["home"]).policy == other.placements["home"].policy


AGE, DEVICE = {"age": "number"}, {"device": ["ios", "web"]}


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ({}, {"arms": 3}, r"home\.arms: .*\('a', 'b', 'c'\), which is not for 3; set it back, or give"),
        (
            {"context": AGE},
            {"context": AGE | DEVICE},
            r"home\.context: .*, which is not for .*; set it back, or",
        ),
        ({"context": AGE}, {"context": None}, r"home\.context: .* not for no context; set it back, or give"),
    ],
)
@pytest.mark.parametrize("rebuild", [False, True])
async def test_a_log_that_cannot_be_folded_into_what_is_configured_is_kept_as_it_was(
    tmp_path, then, now, said, rebuild
):
    """It was taken over, and refused in the background."""
    before = {"arms": list(NAMES)} | then
    async with harness.served(tmp_path / "s.db", harness.with_home(**before)) as engine:
        with pytest.raises(ConfigError, match=said):
            await engine.reload(harness.with_home(**before | now, rebuild=rebuild))


async def test_going_back_to_an_earlier_policy_in_the_file_takes_a_rebuild_too(tmp_path):
    first, path = harness.with_home(arms=list(NAMES), policy="thompson"), tmp_path / "s.db"
    other = harness.with_home(arms=list(NAMES), policy="ucb1", rebuild=True)
    async with harness.served(path, first) as engine:
        await traffic(engine, 0, 3)
        await engine.reload(other)
        await harness.reached(lambda: not engine.configuration_logger.rebuilding)
        with pytest.raises(
            ConfigError, match=r"policy: the store holds what was learned with UCB1.* rebuild = true"
        ):
            await engine.reload(first)


async def test_another_mode_or_policy_in_the_file_is_said_where_the_log_has_one(tmp_path, caplog):
    said, path = "placements.home.mode: frozen is for a placement without decisions", tmp_path / "s.db"
    caplog.set_level("INFO")
    home = {"arms": list(NAMES), "policy": "ucb1"}
    async with harness.served(path, harness.with_home(**home)) as engine:
        await traffic(engine, 0, 3)
        await engine.rebuild("home", "thompson")
    async with harness.served(path, harness.with_home(**home, mode="frozen")) as engine:
        assert (access.get_mode(engine.placements["home"]), said in caplog.text) == ("online", True)
        assert "tacit placement mode home --mode frozen" in caplog.text
        assert "Thompson, set by a request, goes on, not the configured UCB1" in caplog.text


async def reloaded(path, config, other):
    async with harness.served(path, config) as engine:
        await traffic(engine, 0, 3)
        await engine.reload(other)


async def test_what_cannot_be_is_refused_and_changes_nothing(tmp_path):
    async with harness.served(tmp_path / "s.db", configured()) as engine:
        await traffic(engine, 0, 5)
        end = engine.store.end()
        with pytest.raises(InvalidValue, match=r"placement: 'home' .*there is no state to go back to"):
            await engine.rollback("home")
        for spec in ("linucb(3)", "cascade-ucb1", "thompson(arms=5)", 7):
            with pytest.raises(InvalidValue):
                await engine.rebuild("home", spec)
        both = [engine.rebuild("home", "ucb1") for _ in range(2)]
        first, second = await asyncio.gather(*both, return_exceptions=True)
        assert first.policy_version.what == "rebuild"
        assert "under way" in str(second)
        assert engine.store.end().seq == end.seq + 1


async def test_a_damaged_state_is_found_and_not_gone_back_to(tmp_path):
    path, config = tmp_path / "s.db", configured()
    async with harness.served(path, config) as engine:
        await traffic(engine, 0, 5)
        await engine.rebuild("home", "ucb1")
        sql(path, stores.chosen, "DELETE FROM pieces WHERE snapshot IN (SELECT pieces FROM states)")
        with pytest.raises(InvalidValue, match=r"to: '.*Z-Thompson' .*is damaged: .*roll back to another"):
            await engine.rollback("home")
    with contextlib.closing(store_at(path)) as store:
        assert ["its state of" in problem for problem in verify(config, store)] == [True]


async def test_a_policy_that_weighs_by_propensities_needs_them(tmp_path):
    config = configured(policy=tacit.UCB1(NAMES))
    async with harness.served(tmp_path / "s.db", config) as engine:
        await traffic(engine, 0, 9)
        why = "it weighs by propensities, and 9 decisions of the log have none, '0' first"
        with pytest.raises(InvalidValue, match=why):
            await engine.rebuild("home", "exp3")
        assert policy_of(engine.placements["home"]) == "UCB1"
        assert await engine.states("home") != []


async def test_propensities_too_small_for_a_policy_that_weighs_by_them_are_bounded(tmp_path):
    """They are no reason to refuse it: another policy may have given them."""

    config, path = configured(policy=tacit.Thompson(NAMES)), tmp_path / "s.db"
    async with harness.served(path, config) as engine:
        await traffic(engine, 0, 9)
        request = DecisionRequest("key 0", id="rare")
        told = access.check_client_decision(engine.placements["home"], request, ClientDecision("a", 1e-6))
        await engine.decide_many("home", [told])
        await engine.feedback("home", "rare", 1.0)
        await engine.rebuild("home", "exp3s")
        before = learned(engine)
        state = access.get_learner(engine.placements["home"]).state
        assert all(np.isfinite(array).all() for _, array in leaves(state))
        assert access.get_learner(engine.placements["home"]).probabilities("key 0").max() < 0.99
    async with harness.served(path, config) as engine:
        assert learned(engine) == before


async def test_shards_say_that_they_cannot(tmp_path):
    async with harness.served(tmp_path / "s.db", configured(), shard=Shard(0, 2)) as engine:
        with pytest.raises(InvalidValue, match="in shards a log is not folded anew"):
            await engine.rebuild("home", "ucb1")


@pytest.mark.usefixtures("kind")
async def test_it_moves_to_another_store(tmp_path):
    config, path = configured(), tmp_path / "s.db"
    async with harness.served(path, config) as engine:
        await traffic(engine, 0, 8)
        await engine.rebuild("home", "ucb1")
        await traffic(engine, 8, 4)
        await engine.rollback("home")
        await traffic(engine, 12, 4)
        export(config, engine.store, tmp_path / "out")
        live = harness.arrays(access.get_learner(engine.placements["home"]))
    store = store_at(tmp_path / "t.db")
    import_log(store, tmp_path / "out")
    assert harness.arrays(access.get_learner(access.Engine(config, store).placements["home"])) == live
    store.close()


def folded_in(config, store, snapshot):
    placement = access.load_placement("home", config.placements["home"], store, 0, snapshot=snapshot)
    access.fold({placement.id: placement}, store)
    return harness.everything(placement), policy_of(placement)


async def test_a_base_that_is_being_written_is_awaited_by_those_who_go_back(tmp_path):
    """Or the log would begin with what was learned and set aside since."""
    path, config = tmp_path / "s.db", configured(retention=1.0)

    async with folding(path, config, wrap=lambda store: SlowStore(store, BASES)) as engine:
        await traffic(engine, 0, 20)
        await engine.rebuild("home", "ucb1")
        await traffic(engine, 20, 20)
        (state,) = await engine.states("home")
        engine.clock.now += 2 * DAY
        await living.decided(engine, "key 1", "late")
        await harness.reached(lambda: engine.store.begun)
        back = asyncio.create_task(engine.rollback("home", state.name))
        for i in range(5):
            await living.decided(engine, "key 1", f"later {i}")
        assert not back.done()
        engine.store.goes_on.set()
        await back
        await harness.quiet(engine)
