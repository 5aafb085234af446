"""Contexts that a placement computes itself: in the log, in the answer, a function of the log."""

import asyncio
import json
from functools import partial

import harness
import numpy as np
import placement_access as access
import pytest
import stores
from drawn import examples
from harness import quiet
from hypothesis import given
from hypothesis import strategies as st

import tacit
from tacit.core.arrays import leaves
from tacit.errors import InvalidValue
from tacit.learning.signals import NAMES
from tacit.logs import read_log
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config
from tacit.service.config.schema import Config, PlacementConfig, Rule, SignalConfig
from tacit.service.errors import InConflict
from tacit.service.log.requests import DecisionRequest, FeedbackRequest
from tacit.service.log.rows import ACTIVATE, REWARD
from tacit.service.maintenance.log_export import export
from tacit.service.page.pages import Pages
from tacit.wire.control import ArmsOf

ARM_NAMES = ("holiday", "film", "recipe")
SIGNALS = SignalConfig(NAMES, fast=20.0, slow=200.0, client=1)
POLICY = tacit.BWC(
    classifier=tacit.classifiers.Rectangle(dim=6, margin=0.2), policy=tacit.Thompson(ARM_NAMES), test_rounds=6
)


configured = partial(
    harness.with_policy,
    POLICY,
    signals=SIGNALS,
    rule=Rule(window=30 * harness.SECOND, activation=60 * harness.SECOND),
)


async def traffic(engine, rounds, start=0):
    """Send groups of decisions, feedback and activations, each a function of its number alone."""
    for i in range(start, start + rounds):
        rng = np.random.default_rng((5, i))
        engine.clock.now = harness.START + i * 7 * harness.SECOND
        asked = [
            DecisionRequest(
                f"key {rng.integers(4)}",
                [None, list(rng.permutation(ARM_NAMES)[:2])][rng.integers(2)],
                [rng.random()],
                f"{i} {j}" if rng.integers(3) else None,
                bool(rng.integers(4) == 0),
                session=[None, "ann", "bob"][rng.integers(3)],
            )
            for j in range(3)
        ]
        rows = await access.decide(engine, *asked)
        ids = [row.id for row in rows if rng.integers(2)]
        told = [FeedbackRequest(id, REWARD, float(rng.integers(2))) for id in ids]
        told += [FeedbackRequest(row.id, ACTIVATE) for row in rows if row.deferred and rng.integers(2)]
        await engine.record_many("home", told)


def known(placement):
    """Return everything that the placement is, bit for bit, but for ids that it made up."""
    learner = access.get_learner(placement)
    arrays = [array[: len(learner.keys)].tobytes() for _, array in leaves(learner.state)]
    return learner.keys, arrays, access.save_signals(placement), dict(access.get_outcomes(placement))


@examples(6)
@given(
    lengths=st.lists(st.integers(1, 8), min_size=2, max_size=4),
    snapshot_every=st.sampled_from([1, 7, 50_000]),
    crash=st.booleans(),
)
def test_signals_go_on_after_stops_and_crashes(tmp_path_factory, lengths, snapshot_every, crash):
    path, clock = tmp_path_factory.mktemp("stops") / "s.db", harness.Clock()
    config = configured(snapshot_every=snapshot_every)

    async def piecewise():
        nonlocal path
        start = 0
        for length in lengths:
            async with harness.served(path, config, clock) as engine:
                await traffic(engine, length, start)
                start += length
                before = known(engine.placements["home"])
                path = harness.as_after_a_crash(path) if crash else path
            harness.is_the_fold(config, path, before, known)

    asyncio.run(piecewise())


@pytest.mark.parametrize("snapshot_every", [3, 50_000])
async def test_arms_come_and_go_beside_signals_and_new_ones_are_noticed(tmp_path, snapshot_every):
    config = configured(snapshot_every=snapshot_every)
    async with harness.folding(tmp_path / "s.db", config, seen=known) as engine:
        await traffic(engine, 8)
        home = engine.placements["home"]
        await engine.ask("home", ArmsOf(["spring"], ["film"]))
        for row in await access.decide(engine, *(DecisionRequest(f"key {i}", None, [0.5]) for i in range(4))):
            assert json.loads(row.offered) == ["holiday", "recipe", "spring"]
            # One of the three was never offered before.
            assert access.read_signals(home, row)["new-arms"] >= 1 / 3
        for i, arms in enumerate((["holiday", "spring"], None)):
            (row,) = await access.decide(engine, DecisionRequest("key 1", arms, [0.5], f"late {i}"))
            await engine.feedback("home", row.id, 1.0)


@pytest.mark.parametrize("kind", stores.KINDS)
async def test_signals_outlive_the_rows_that_made_them(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(stores, "chosen", kind)
    monkeypatch.setattr(access.upkeep, "ROWS", 8)
    config = configured(retention=60 / 86_400)
    async with harness.folding(tmp_path / "s.db", config, seen=known, crash=False) as engine:
        await traffic(engine, 40)
        # An hour later nearly all rows are too old.
        engine.clock.now += 3601 * harness.SECOND
        await engine.decide("home", "key 1", context=[0.5])
        await quiet(engine)
        assert 0 < len(harness.logged_decisions(engine)) < 40


async def test_the_contexts_in_the_log_are_those_that_the_log_gives(tmp_path, monkeypatch):
    path, config, read = tmp_path / "s.db", configured(), []
    async with harness.served(path, config) as engine:
        await traffic(engine, 40)
        logged = [json.loads(row.context) for row in harness.logged_decisions(engine)]
        before = access.save_signals(engine.placements["home"])
    recall = access.PlacementSignals.recall

    def noted(self, rows, offers):
        signals = recall(self, rows, offers)
        read.extend(zip((row.context for row in rows), signals, strict=True))
        return signals

    monkeypatch.setattr(access.PlacementSignals, "recall", noted)
    assert access.save_signals(harness.folded(path, config)) == before
    assert len(read) == len(logged) == 120
    assert [context[:5] for context in logged] == [signals for _, signals in read]
    # Nothing here was trivial.
    assert (np.ptp(np.array(logged), axis=0) > 0.1).all()


async def test_an_exported_log_has_the_whole_contexts(tmp_path):
    async with harness.served(tmp_path / "s.db", configured()) as engine:
        await traffic(engine, 20)
        export(engine.config, engine.store, tmp_path / "log")
        logged = [json.loads(row.context) for row in harness.logged_decisions(engine)]
    contexts = [c for part in read_log(tmp_path / "log" / "clicks.parquet") for c in part["context"]]
    assert [context.as_py() for context in contexts] == logged


async def test_the_volume_of_a_burst_is_seen_and_told(tmp_path):
    signals = SignalConfig(("volume", "since-shift"), fast=60.0, slow=6000.0)
    policy = tacit.BWC(
        classifier=tacit.classifiers.Rectangle(dim=2, margin=0.2),
        policy=tacit.Thompson(ARM_NAMES),
        test_rounds=6,
    )
    config = Config({"home": PlacementConfig(policy, 7, signals=signals)})
    async with harness.served(tmp_path / "s.db", config) as engine:
        placement = engine.placements["home"]
        for second in [*range(0, 3000, 30), *range(3000, 3120, 2)]:
            engine.clock.now = harness.START + second * harness.SECOND
            row = await engine.decide("home", "independence day")
            if second == 2970:
                quiet = access.read_signals(placement, row)
        busy = access.read_signals(placement, row)
        assert abs(quiet["volume"] - 0.5) < 0.05
        assert busy["volume"] > 0.85
        assert json.loads(row.context) == list(busy.values())
        shift = access.get_series(placement).shifts[-1]
        assert json.loads(shift.context)[0] > quiet["volume"] + 0.2
        told = [f"{name} {x:.2f}" for name, x in zip(busy, json.loads(shift.context), strict=True)]
        assert f"epoch {shift.epoch}; {', '.join(told)}" in await Pages(engine).placement("home", {})


async def test_the_client_adds_its_own_and_nothing_more(tmp_path):
    async with harness.served(tmp_path / "s.db", configured()) as engine:
        placement = engine.placements["home"]
        row = await engine.decide("home", "tomato", None, [0.25], id="a")
        assert json.loads(row.context) == [0.5, 0.5, 0.5, 0.0, 1.0, 0.25]
        assert access.read_signals(placement, row) == dict(zip(NAMES, [0.5, 0.5, 0.5, 0, 1], strict=True))
        engine.clock.now += 10 * harness.SECOND
        # Asked again, it is the same decision, and counts once.
        before = access.save_signals(placement)
        assert await engine.decide("home", "tomato", None, [0.25], id="a") == row
        assert access.save_signals(placement) == before
        with pytest.raises(InConflict):
            await engine.decide("home", "tomato", None, [0.5], id="a")
        other = DecisionRequest("tomato", None, [0.25], "a", session="ann")
        with pytest.raises(InConflict):
            await access.decide(engine, other)
        for context in (None, [], [0.1, 0.2]):
            with pytest.raises(InvalidValue, match="1 finite number"):
                await engine.decide("home", "tomato", None, context)


async def test_no_session_is_in_the_log(tmp_path):
    async with harness.served(tmp_path / "s.db", configured()) as engine:
        (row,) = await access.decide(engine, DecisionRequest("tomato", None, [0.5], session="ann 1934"))
        assert "ann" not in str(row)
        assert len(json.loads(row.asked)["session"]) == 16


TOML = """
    [placements.home]
    arms = 3
    policy = "bwc(classifier=rectangle(dim=3, margin=0.1))"
"""


def test_signals_are_read_from_toml(tmp_path):
    path = tmp_path / "tacit.toml"
    path.write_text(f"""{TOML}
        signals = ["volume", "abandonment"]
        signals_fast = 60
        client_signals = 1
    """)
    signals = load_config(path).placements["home"].signals
    assert signals == SignalConfig(("volume", "abandonment"), 60.0, 86_400.0, 1)


async def test_other_signals_fold_the_log_anew(tmp_path):
    async with harness.served(tmp_path / "s.db", configured()) as engine:
        await traffic(engine, 10)
    slower = configured(signals=SignalConfig(NAMES, fast=30.0, slow=300.0, client=1))
    anew, whole = (harness.folded(tmp_path / "s.db", slower, snapshot) for snapshot in (True, False))
    assert access.save_signals(anew) == access.save_signals(whole)


def test_signals_over_http(tmp_path):
    policy = "bwc(policy=thompson, classifier=rectangle(dim=2, margin=0.1))"
    signals = ["volume", "reformulation"]
    home = {"arms": ["old", "new"], "policy": policy, "signals": signals}
    placements = {"home": home, "plain": {"arms": 2}}
    with run_in_thread(harness.configured(tmp_path / "s.db", placements=placements)) as address:
        client = harness.Client(address)
        asked = {"key": "tomato", "session": "ann", "decision_id": "a"}
        status, _, answer = client.post("home/decide", asked)
        assert status == 200
        assert answer["signals"] == dict.fromkeys(signals, 0.5)
        assert client.post("home/decide", asked)[2] == answer
        many = {"decisions": [{"key": "tomato"}, {"key": "film", "session": "ann"}]}
        _, _, answers = client.post("home/decide/batch", many)
        assert [list(one["signals"]) for one in answers["decisions"]] == [signals, signals]
        for path, body, field in (
            ("home/decide", {"key": "a", "context": [0.5]}, "context"),
            ("plain/decide", {"key": "a", "session": "x"}, "session"),
        ):
            status, _, problem = client.post(path, body)
            assert (status, problem["field"]) == (422, field)
        assert "signals" not in client.post("plain/decide", {"key": "a"})[2]


@pytest.mark.parametrize("eventful", ["policy", "shadow"])
async def test_a_second_policy_may_read_the_signals_or_none(tmp_path, eventful):
    both = {"policy": tacit.Thompson(ARM_NAMES), "shadow": tacit.Thompson(ARM_NAMES)}
    both[eventful] = POLICY
    policy = both.pop("policy")
    rule = Rule(window=30 * harness.SECOND, activation=60 * harness.SECOND)
    options = {"seed": 7, "rule": rule, "signals": SIGNALS, "mode": "shadow", "snapshot_every": 20}
    config = Config({"home": PlacementConfig(policy, **both, **options)})
    async with harness.folding(tmp_path / "s.db", config, seen=known, crash=False) as engine:
        await traffic(engine, 12)
        assert access.get_secondary_learner(engine.placements["home"]).keys


def test_a_second_policy_that_came_later_skips_what_it_cannot_read(tmp_path):
    plain = PlacementConfig(tacit.Thompson(3), 7, mode="shadow", shadow=tacit.Thompson(3))
    bwc = tacit.BWC(3, classifier=tacit.classifiers.Rectangle(dim=1, margin=0.2), policy=tacit.Thompson(3))
    later = PlacementConfig(tacit.Thompson(3), 7, mode="shadow", shadow=bwc)

    async def session(config, context):
        async with harness.served(tmp_path / "s.db", Config({"home": config})) as engine:
            await engine.feedback("home", (await engine.decide("home", "tomato", None, context)).id, 1.0)
            return list(access.get_secondary_learner(engine.placements["home"]).keys)

    assert asyncio.run(session(plain, None)) == ["tomato"]
    assert asyncio.run(session(later, [0.5])) == ["tomato"]
    assert asyncio.run(session(later, [0.5])) == ["tomato"]
