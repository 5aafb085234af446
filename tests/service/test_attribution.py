"""What feedback teaches: windows, rules, modes, ids; always a pure function of the log."""

import asyncio
from functools import partial
from types import SimpleNamespace

import harness
import msgspec
import numpy as np
import placement_access as access
import pytest
import stores
from drawn import examples
from harness import SECOND, Clock, everything, folded, reached, served, with_policy
from hypothesis import example, given
from hypothesis import strategies as st
from policies_of_ones_own import Forgetful
from stores import WrappedStore, store_at

import tacit
from tacit.core.arrays import leaves
from tacit.errors import InvalidValue
from tacit.learning.learner import Learner
from tacit.logs import read_log
from tacit.service.config.schema import BUFFERED, Config, PlacementConfig, Rule, StoreConfig
from tacit.service.errors import InConflict, NotDurable, StoreError, UnknownDecision
from tacit.service.log.ids import Draws, LogClock
from tacit.service.log.requests import DecisionRequest, FeedbackRequest
from tacit.service.log.rows import ACTIVATE, EXAMINED, REWARD, SHADOW, ChangeRow, DecisionRow, FeedbackRow
from tacit.service.log.sql import save_snapshot
from tacit.service.maintenance.doctor import verify
from tacit.service.maintenance.log_export import export, import_log
from tacit.wire.control import ModeOf

ARMS = ("holiday", "film", "recipe")


# The rule, by hand ---------------------------------------------------------------------------


def rewarded(rule, *story):
    """Play (time, what, reward) against one decision at time 0; return what it taught, when."""
    windows, taught, outcomes = access.OpenWindows(rule), [], []

    def advance(time):
        taught.extend((time, reward) for _, reward in windows.advance(time))

    deferred = int(any(what == ACTIVATE for _, what, _ in story))
    windows.open(DecisionRow(1, "a", 1, 1, 0, "key", None, 0, 0.5, 0, None, deferred=deferred))
    for seq, (time, what, reward) in enumerate(story, 2):
        advance(time)
        became, learned = windows.apply(FeedbackRow(seq, 1, 1, None, time, what, reward))
        assert {before for *_, before in learned} <= {rule.default if became == ["corrected"] else None}
        outcomes += became
        taught.extend((time, reward) for _, reward, _ in learned)
    for time in (29, 30, 31, 60, 90, 1000):
        advance(max(time, windows.time))
    assert len(windows) == len(list(windows.export_defaults())) == 0
    return taught, outcomes


CLICK, HALF, NONE = 1.0, 0.5, 0.0
CORRECT = {"late": "correct", "correction": 100, "default": 0.25}


@pytest.mark.parametrize(
    ("rule", "story", "taught", "outcomes"),
    [
        # Nothing comes back: the default, at the end of the window.
        ({}, [], [(30, 0.0)], []),
        ({"default": 0.25}, [], [(30, 0.25)], []),
        # The first counts at once; the others are only recorded.
        ({}, [(5, REWARD, HALF), (6, REWARD, CLICK)], [(5, 0.5)], ["learned", "repeated"]),
        ({}, [(29, REWARD, CLICK)], [(29, 1.0)], ["learned"]),
        # The window's end is no longer in it.
        ({}, [(30, REWARD, CLICK)], [(30, 0.0)], ["late"]),
        ({}, [(31, REWARD, CLICK)], [(31, 0.0)], ["late"]),
        # The last is known only at the end.
        (
            {"aggregation": "last"},
            [(5, REWARD, CLICK), (9, REWARD, HALF)],
            [(30, 0.5)],
            ["pending", "pending"],
        ),
        # Sum and max are known once they are 1.
        (
            {"aggregation": "sum"},
            [(5, REWARD, 0.25), (6, REWARD, HALF)],
            [(30, 0.75)],
            ["pending", "pending"],
        ),
        (
            {"aggregation": "sum"},
            [(5, REWARD, HALF), (6, REWARD, 0.75), (7, REWARD, HALF)],
            [(6, 1.0)],
            ["pending", "learned", "repeated"],
        ),
        ({"aggregation": "max"}, [(5, REWARD, HALF), (6, REWARD, 0.25)], [(30, 0.5)], ["pending", "pending"]),
        ({"aggregation": "max"}, [(5, REWARD, CLICK)], [(5, 1.0)], ["learned"]),
        # What was not looked at says nothing, what was clicked was looked at.
        ({"seen": "examined"}, [], [], []),
        ({"seen": "examined"}, [(3, EXAMINED, None)], [(30, 0.0)], ["noted"]),
        ({"seen": "examined"}, [(3, REWARD, CLICK)], [(3, 1.0)], ["learned"]),
        ({"seen": "examined", "aggregation": "last"}, [(3, REWARD, NONE)], [(30, 0.0)], ["pending"]),
        # A deferred decision counts from its activation, if that comes in time.
        (
            {},
            [(3, REWARD, CLICK), (10, ACTIVATE, None), (39, REWARD, CLICK)],
            [(39, 1.0)],
            ["inactive", "noted", "learned"],
        ),
        ({}, [(10, ACTIVATE, None), (11, ACTIVATE, None)], [(60, 0.0)], ["noted", "repeated"]),
        ({}, [(60, ACTIVATE, None), (61, REWARD, CLICK)], [], ["late", "late"]),
        # The first late reward corrects the default, for a while.
        (CORRECT, [(30, REWARD, CLICK)], [(30, 0.25), (30, 1.0)], ["corrected"]),
        (CORRECT, [(129, REWARD, HALF)], [(129, 0.25), (129, 0.5)], ["corrected"]),
        (CORRECT, [(130, REWARD, CLICK)], [(130, 0.25)], ["late"]),
        (CORRECT, [(40, REWARD, CLICK), (41, REWARD, HALF)], [(40, 0.25), (40, 1.0)], ["corrected", "late"]),
        (CORRECT, [(40, EXAMINED, None), (41, REWARD, HALF)], [(40, 0.25), (41, 0.5)], ["late", "corrected"]),
        # What had its reward has no default to correct.
        (CORRECT, [(10, REWARD, HALF), (40, REWARD, CLICK)], [(10, 0.5)], ["learned", "late"]),
    ],
)
def test_a_decision_earns_what_the_rule_says(rule, story, taught, outcomes):
    assert rewarded(Rule(window=30, activation=60, **rule), *story) == (taught, outcomes)


def test_windows_close_in_the_order_in_which_they_opened():
    windows = access.OpenWindows(Rule(window=30, activation=60))
    for seq, deferred in ((1, 1), (2, 0), (3, 0)):
        windows.open(DecisionRow(seq, str(seq), 1, 1, 0, "k", None, 0, 0.5, 0, None, deferred=deferred))
        windows.advance(seq)
    windows.apply(FeedbackRow(4, 1, 1, None, 3, ACTIVATE, None))
    assert [seq for seq, _ in windows.advance(33)] == [2, 3, 1]


def test_the_log_s_clock_does_not_jump():
    now = SimpleNamespace(wall=1_000_000_000, passed=5_000)
    clock = LogClock(lambda: now.wall, lambda: now.passed)
    assert clock() == 1_000_000
    now.wall, now.passed = 7_000_000_000, 7_000
    assert clock() == 1_000_002


# The engine ----------------------------------------------------------------------------------


configured = partial(with_policy, policy=tacit.UCB1(ARMS))
folding = partial(harness.folding, crash=False)


def plays(engine, key="k"):
    learner = access.get_learner(engine.placements["home"])
    return learner.state.plays[learner.lane(key)].sum(), learner.state.rewards[learner.lane(key)].sum()


async def test_a_window_closes_without_traffic_and_survives_a_restart(tmp_path, monkeypatch, kind):
    access.patch_internal(monkeypatch, TICK_SECONDS=0.01)
    path, config, clock = tmp_path / "s.db", configured(), Clock()
    async with served(path, config, clock) as engine:
        await engine.decide("home", "k")
        clock.now += 29 * SECOND
        await engine.decide("home", "other")
        assert plays(engine) == (0, 0)
    async with folding(path, config, clock) as engine:
        assert access.count_open(engine.placements["home"]) == 2
        clock.now += SECOND
        await reached(lambda: plays(engine) != (0, 0))
        assert plays(engine) == (1, 0)


def rows(path):
    store = store_at(path)
    events = list(store.events(0))
    store.close()
    return events


async def test_another_rule_folds_the_log_anew(tmp_path, caplog, kind):
    path = tmp_path / "s.db"
    async with served(path, configured()) as engine:
        row = await engine.decide("home", "k")
        await engine.feedback("home", row.id, 0.25)
        await engine.feedback("home", row.id, 0.5)
        engine.clock.now += 31 * SECOND
        await engine.feedback("home", row.id, 0.25)
        assert plays(engine) == (1, 0.25)
    for rule, learned in (
        (Rule(aggregation="sum"), (0, 0)),
        (Rule(window=32 * SECOND), (1, 0.25)),
        (Rule(window=31 * SECOND, aggregation="sum"), (1, 0.75)),
        (Rule(window=32 * SECOND, aggregation="sum"), (1, 1.0)),
        (Rule(), (1, 0.25)),
    ):
        async with served(path, configured(rule=rule)) as engine:
            # Under a sum, the reward is known when the window has closed.
            expected = (1, 0.75) if rule == Rule(aggregation="sum") else learned
            assert plays(engine) == expected
    assert "folding anew what the log holds" in caplog.text


async def test_a_clock_that_is_set_back_or_forward_breaks_nothing(tmp_path, kind):
    path, config, clock = tmp_path / "s.db", configured(), Clock()
    # The second decision of the first session still waits when the last one comes.
    for skew, expected in (
        (-86_400 * SECOND, "learned"),
        (365 * 86_400 * SECOND, "late"),
        (-SECOND, "pending"),
    ):
        async with folding(path, config, clock) as engine:
            row = await engine.decide("home", "k")
            clock.now += skew
            assert await engine.feedback("home", row.id, 1.0) == expected
            await engine.decide("home", "k")
    times = [event.time for event in rows(path)]
    assert times == sorted(times)


def test_time_goes_on_although_the_clock_was_set_back_before_the_start(tmp_path, kind):
    path, clock = tmp_path / "s.db", Clock()

    async def session(passed):
        async with served(path, configured(), clock) as engine:
            row = await engine.decide("home", "k")
            clock.now += passed
            return await engine.feedback("home", row.id, 1.0)

    assert asyncio.run(session(SECOND)) == "learned"
    clock.now -= 7200 * SECOND
    assert asyncio.run(session(29 * SECOND)) == "learned"
    clock.now -= 60 * SECOND
    assert asyncio.run(session(31 * SECOND)) == "late"


async def test_the_same_id_gets_the_same_answer_also_later(tmp_path, kind):
    path, config = tmp_path / "s.db", with_policy(tacit.Thompson(ARMS))
    async with served(path, config) as engine:
        asked = {"key": "k", "arms": ["film", "recipe"], "id": "page 1"}
        both = await asyncio.gather(*(engine.decide("home", **asked) for _ in range(2)))
        assert both[0] == both[1]
        for changed in ({"key": "l"}, {"arms": None}, {"deferred": True}):
            with pytest.raises(InConflict):
                await engine.decide("home", **{**asked, **changed})
        one, other = await asyncio.gather(
            engine.decide("home", "a", id="both"), engine.decide("home", "b", id="both"),
            return_exceptions=True,
        )  # fmt: skip
        assert (one.key, type(other)) == ("a", InConflict)
        assert await engine.feedback("home", "page 1", 1.0, id="click") == "learned"
    async with served(path, config) as engine:
        assert await engine.decide("home", **asked) == both[0]
        engine.clock.now += 3600 * SECOND
        assert await engine.decide("home", **asked) == both[0]
        assert await engine.feedback("home", "page 1", 1.0, id="click") == "duplicate"
        both = [engine.feedback("home", "page 1", 1.0, id="late") for _ in range(2)]
        assert await asyncio.gather(*both) == ["late", "duplicate"]
        with pytest.raises(InConflict):
            await engine.feedback("home", "page 1", 0.5, id="late")
        for id in ("", "x" * 257, "a\nb"):
            with pytest.raises(InvalidValue, match="decision_id"):
                await engine.decide("home", "k", id=id)
    kinds = [type(row) for row in rows(path) if not isinstance(row, ChangeRow)]
    assert kinds == [DecisionRow, DecisionRow, FeedbackRow, FeedbackRow]


def test_the_draw_of_a_decision_comes_from_its_id(tmp_path):
    async def session(name, order):
        async with served(tmp_path / name, with_policy(tacit.UniformRandom(20))) as engine:
            decided = {i: (await engine.decide("home", "k", id=f"id {i}")).arm for i in order}
            assert len(set(decided.values())) > 5
            return decided

    forward = asyncio.run(session("a.db", range(30)))
    assert asyncio.run(session("b.db", reversed(range(30)))) == forward
    learner = Learner(tacit.UniformRandom(20), seed=0)
    for i, arm in forward.items():
        Draws(7).begin(learner.rng, f"id {i}")
        assert learner.choose("k").arm == arm


async def test_modes(tmp_path, kind):
    path = tmp_path / "s.db"
    config = with_policy(tacit.Thompson(ARMS), shadow=tacit.UCB1(ARMS))
    async with served(path, config) as engine:
        placement = engine.placements["home"]

        async def decide_and_click(key="k"):
            row = await engine.decide("home", key, ["recipe", "film"])
            return row, await engine.feedback("home", row.id, 1.0)

        def state():
            return [a.tobytes() for _, a in leaves(access.get_learner(placement).state)]

        row, outcome = await decide_and_click()
        assert (row.mode, outcome) == ("online", "learned")
        assert access.get_learner(placement).state.successes[0].sum() == 1

        await engine.ask("home", ModeOf("frozen"))
        before = state()
        row, outcome = await decide_and_click()
        assert (row.mode, outcome) == ("frozen", "frozen")
        engine.clock.now += 40 * SECOND
        await engine.decide("home", "k")
        assert state() == before

        await engine.ask("home", ModeOf("shadow"))
        shown = [await decide_and_click() for _ in range(10)]
        assert {outcome for _, outcome in shown} == {"learned"}
        # UCB1 plays what it knows nothing of, whatever is shown.
        assert access.get_secondary_learner(placement).state.plays[0].sum() == 10
        assert {row.would for row, _ in shown} <= {"film", "recipe"}
        assert access.get_learner(placement).state.successes[0].sum() == 11
        with pytest.raises(InvalidValue, match="mode"):
            await engine.ask("home", ModeOf("asleep"))
    async with folding(path, config) as engine:
        assert access.get_mode(engine.placements["home"]) == "shadow"


async def test_frozen_leaves_a_policy_that_observes_as_it_was(tmp_path):
    policy = tacit.BWC(
        classifier=tacit.classifiers.Rectangle(dim=1, margin=0.2), policy=tacit.Thompson(ARMS), test_rounds=3
    )
    async with folding(tmp_path / "s.db", with_policy(policy)) as engine:
        await engine.decide("home", "k", context=[0.5])
        before = everything(engine.placements["home"])[1]
        await engine.ask("home", ModeOf("frozen"))
        for i in range(5):
            await engine.decide("home", "k", context=[i / 5])
        assert everything(engine.placements["home"])[1] == before
        await engine.decide("home", "new", context=[0.1])


@pytest.mark.parametrize(
    "policy",
    [tacit.Thompson(ARMS, discount=0.9), Forgetful(ARMS), tacit.policies.EXP3(ARMS)],
    ids=lambda policy: policy.label,
)
@examples(6)
# A snapshot whose time is later than the log's end, and a clock that was set back since.
@example(5441, Rule(window=5 * SECOND, activation=3 * SECOND), 20)
# Open decisions of two modes come out of one snapshot.
@example(197, Rule(window=5 * SECOND, activation=3 * SECOND), 1)
@given(
    seed=st.integers(0, 2**32),
    rule=st.builds(
        Rule,
        window=st.sampled_from([1, 5 * SECOND, 20 * SECOND]),
        default=st.sampled_from([0.0, 0.3]),
        aggregation=st.sampled_from(["first", "last", "sum", "max"]),
        seen=st.sampled_from(["decided", "examined"]),
        activation=st.sampled_from([3 * SECOND, 30 * SECOND]),
    ),
    snapshot_every=st.sampled_from([1, 20, 50_000]),
)
def test_whatever_happens_the_state_is_the_fold_of_the_log(
    tmp_path_factory, kind, policy, seed, rule, snapshot_every
):
    path = tmp_path_factory.mktemp("fold") / "s.db"
    config = with_policy(policy, rule=rule, snapshot_every=snapshot_every, shadow=tacit.Thompson(ARMS))
    rng = np.random.default_rng(seed)
    clock, ids = Clock(), ["never made"]

    async def session(steps):
        async with folding(path, config, clock) as engine:
            for _ in range(steps):
                clock.now += int(rng.integers(-2, 4)) * SECOND
                work = [step(engine) for _ in range(rng.integers(1, 4))]
                for result in await asyncio.gather(*work, return_exceptions=True):
                    if isinstance(result, DecisionRow):
                        ids.append(result.id)
                    elif isinstance(result, Exception):
                        assert isinstance(result, (UnknownDecision, InConflict))

    def step(engine):
        what = rng.integers(12)
        id = ids[int(rng.integers(max(len(ids) - 12, 0), len(ids)))]
        if what < 5:
            new = [None, f"id {rng.integers(30)}"][what % 2]
            key, deferred = f"k {rng.integers(2)}", bool(rng.integers(4) == 0)
            return engine.decide("home", key, ["film", "recipe"], id=new, deferred=deferred)
        if what < 9:
            feedback_id = [None, "a", "b"][rng.integers(3)]
            return engine.feedback("home", id, rng.integers(3) / 2, id=feedback_id)
        if what < 11:
            return engine.record_many("home", [FeedbackRequest(id, EXAMINED if what == 9 else ACTIVATE)])
        return engine.ask("home", ModeOf(["online", "frozen", SHADOW][rng.integers(3)]))

    for _ in range(2):
        asyncio.run(session(15))


# Buffered ------------------------------------------------------------------------------------


class Broken(WrappedStore):
    """A store that can be broken."""

    broken = False

    def __getattr__(self, name):
        if self.broken and name in ("append", "insert", "find", "end", "probe", "placement", "events"):
            raise StoreError("store: it is gone")
        return super().__getattr__(name)


async def test_buffered_decisions_keep_coming_while_the_store_is_gone(tmp_path, monkeypatch, kind):
    access.patch_internal(monkeypatch, RETRY_SECONDS=0.05)
    path = tmp_path / "s.db"
    placements = {
        "home": PlacementConfig(tacit.UCB1(ARMS), 7, durability=BUFFERED),
        "safe": PlacementConfig(tacit.UCB1(ARMS), 7),
    }
    async with folding(path, Config(placements, store=StoreConfig(buffer=20)), wrap=Broken) as engine:
        first = await engine.decide("home", "k", id="first")
        await engine.decide("safe", "k")
        engine.store.broken = True
        refused = 0
        made = [first.id]
        for _ in range(15):
            try:
                row = await engine.decide("home", "k")
                made.append(row.id)
                # The first decision waits for its reward.
                assert await engine.feedback("home", row.id, 1.0) == "pending"
            except NotDurable:
                refused += 1
        assert (len(made) - 1, refused) == (10, 5)
        for request in (engine.decide("safe", "k"), engine.feedback("home", "unknown", 1.0)):
            with pytest.raises(NotDurable):
                await request
        assert engine.health()[0] is False
        assert engine.health().buffered == 20
        engine.store.broken = False
        await reached(lambda: engine.health().ready)
        assert engine.health().buffered == 0
        await engine.decide("safe", "k")
    assert [id for id in [e.id for e in rows(path) if isinstance(e, DecisionRow)] if id in made] == made


async def test_many_at_once_share_one_commit(tmp_path, kind):
    async with served(tmp_path / "s.db", configured()) as engine:
        made = await access.decide(engine, *(DecisionRequest(f"k {i}") for i in range(50)))
        told = [FeedbackRequest(row.id, REWARD, 1.0) for row in made]
        outcomes = await engine.record_many("home", [*told, FeedbackRequest("never made", REWARD, 1.0)])
        assert outcomes[:50] == ["learned"] * 50
        assert isinstance(outcomes[50], UnknownDecision)
        with pytest.raises(InConflict):
            await access.decide(engine, DecisionRequest("k", id="twice"), DecisionRequest("l", id="twice"))
        assert engine.store.end().seq == 100


# The log as a whole --------------------------------------------------------------------------


async def test_a_log_is_verified_exported_and_imported(tmp_path, kind):
    path, config = tmp_path / "s.db", with_policy(tacit.Thompson(ARMS), snapshot_every=5)
    async with served(path, config) as engine:
        for i in range(12):
            row = await engine.decide("home", f"k {i % 2}", id=None if i % 2 else f"id {i}")
            if i % 3:
                await engine.feedback("home", row.id, i % 2, id="click")
            engine.clock.now += 4 * SECOND
        await engine.ask("home", ModeOf("frozen"))
        await engine.decide("home", "k 0", ["film", "recipe"])
    store = store_at(path)
    events = list(store.events(0))
    assert verify(config, store) == []
    counts = export(config, store, tmp_path / "log")
    assert counts.items() >= {"decisions": 13, "feedback": 8, "marks": 1, "records": 0, "clicks": 13}.items()
    clicks = [c for batch in read_log(tmp_path / "log" / "clicks.parquet") for c in batch.to_pylist()]
    # The windows of the first decisions have closed without a reward, those of the last are open.
    assert [c["reward"] for c in clicks] == [
        0, 1, 0, 0, 0, 1, None, 1, 0, None, 0, 1, None,
    ]  # fmt: skip
    snapshot = store.snapshots.load(1)
    save_snapshot(store.snapshots, snapshot._replace(learner=snapshot.learner, windows=msgspec.json.encode(
        msgspec.json.decode(snapshot.windows) | {"feedback": 99}
    )))  # fmt: skip
    (wrong,) = verify(config, store)
    assert wrong == "placement home: feedback: 99 after the snapshot, 8 by the log"
    with pytest.raises(StoreError, match="not empty"):
        import_log(store, tmp_path / "log")
    store.close()
    new = store_at(tmp_path / "new.db")
    assert import_log(new, tmp_path / "log") == 22
    assert list(new.events(0)) == events
    new.close()
    assert everything(folded(tmp_path / "new.db", config)) == everything(folded(path, config))


# PostgreSQL ----------------------------------------------------------------------------------


@pytest.fixture
def postgres(monkeypatch):
    monkeypatch.setattr(stores, "chosen", "postgres")
    return stores.cluster()


def test_no_message_names_the_password():
    from tacit.service.log.postgres import PostgresStore

    with pytest.raises(StoreError) as caught:
        PostgresStore("postgresql://tacit:hush@127.0.0.1:1/nowhere")
    assert "127.0.0.1:1/nowhere" in str(caught.value)
    assert "hush" not in str(caught.value)


async def test_large_groups_are_copied(tmp_path, postgres):
    async with served(tmp_path / "s.db", with_policy(tacit.UCB1(3))) as engine:
        keys = ["tab\t", "line\n", "\\N", "ü", "quote'\"", *map(str, range(20))]
        made = await access.decide(engine, *(DecisionRequest(key, id=f"#{key!r}") for key in keys))
        found = engine.store.find([(row.placement, row.id) for row in made])
        assert [found[row.placement, row.id].decision for row in made] == made
        assert all(isinstance(row.arm, int) for row in made)
