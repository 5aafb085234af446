"""Holdouts: the coin, what controls show and teach, and the sums as a fold over the log."""

import asyncio
import math
import threading

import harness
import holdouts
import numpy as np
import placement_access as access
import pytest
from holdouts import asked, shown

from tacit.client import Client, InvalidRequest
from tacit.core.arrays import leaves
from tacit.core.run_mode import compile_loop
from tacit.errors import AssumptionWarning, InvalidValue
from tacit.learning.decisions import NO_VALUES, Decision
from tacit.learning.learner import Learner
from tacit.service.config.holdout import ControlTable, HoldoutConfig
from tacit.service.errors import InConflict
from tacit.service.log.requests import DecisionRequest, FeedbackRequest
from tacit.service.log.rows import EXAMINED
from tacit.uplift.boundary import BUCKETS
from tacit.wire.control import ArmShown, EndHoldout, HoldoutOf, ModeOf
from tests.cli.test_cli import tacit

# The coin ------------------------------------------------------------------------------------


def test_the_coin_stays_with_its_unit_and_has_its_share():
    ids = [f"d{i}" for i in range(4000)]
    offers = [np.arange(4)] * len(ids)
    coin = access.HoldoutAssigner(HoldoutConfig(share=0.1), seed=3, control=access.Control("uniform"))
    tossed = coin.assign(ids, [None] * len(ids), offers)
    assert coin.assign(ids, [None] * len(ids), offers).in_control == tossed.in_control
    # Of 4,000 fair draws, further from 400 than 100 with a probability below 10⁻⁶.
    assert abs(sum(tossed.in_control) - 400) < 100
    assert set(tossed.buckets) == {None}
    imposed = tossed.forced_actions[tossed.forced_actions >= 0]
    assert len(imposed) == sum(tossed.in_control)
    assert np.bincount(imposed, minlength=4).min() > 50
    users = [f"u{i % 400}" for i in range(4000)]
    sticky = access.HoldoutAssigner(
        HoldoutConfig(share=0.1, unit="user"), seed=3, control=access.Control("uniform")
    ).assign(ids, users, offers)
    of_user = np.array(sticky.in_control).reshape(10, 400)
    assert (of_user == of_user[0]).all()
    assert 0 < of_user[0].sum() < 100
    assert (np.array(sticky.buckets).reshape(10, 400)[0] == sticky.buckets[:400]).all()
    assert {*sticky.buckets} <= set(range(BUCKETS))


def test_more_share_keeps_whoever_was_held_out():
    ids = [f"d{i}" for i in range(500)]
    offers = [np.arange(2)] * len(ids)
    few, many = (
        np.array(
            access.HoldoutAssigner(HoldoutConfig(share=share), seed=3, control=access.Control("uniform"))
            .assign(ids, ids, offers)
            .in_control
        )
        for share in (0.1, 0.3)
    )
    assert (few <= many).all()


@pytest.mark.parametrize(
    ("control", "slot", "chances"),
    [("uniform", None, [1 / 3, 1 / 3, 1 / 2]), ("baseline", None, [0, 1, 1]), ("arm c", 2, [0, 1, 0])],
)
def test_propensities_are_those_of_policy_and_control_together(control, slot, chances):
    coin = access.HoldoutAssigner(HoldoutConfig(share=0.2), seed=3, control=access.Control(control, slot))
    offers = [np.array([0, 1, 2]), np.array([2, 1, 0]), np.array([1, 0])]
    policy, shown = np.array([0.9, 0.5, np.nan]), np.array([1, 2, 1])
    own = coin.control.compute_probabilities(shown[:, None], offers)
    mixed = coin.mix_propensities(policy, own)
    np.testing.assert_allclose(mixed, 0.8 * policy + 0.2 * np.array(chances))
    np.testing.assert_allclose(coin.unmix_propensities(mixed, own), policy, atol=1e-12)


@pytest.mark.parametrize(
    ("policy", "holdout", "rounds"),
    [
        ("thompson", {"share": 0.2}, 60),
        ("ucb1", {"share": 0.2}, 60),
        ("exploration-floor(ucb1, epsilon=0.2)", {"share": 0.2}, 60),
        ("epsilon-greedy", {"share": 0.3, "control": {"policy": "uniform-random"}}, 40),
        ("exp3", {"share": 0.3, "control": {"policy": "thompson"}}, 40),
    ],
)
async def test_logged_propensities_are_the_frequencies(tmp_path, policy, holdout, rounds):
    """Each arm's Σ 1/q is the number of decisions; here within 5 standard errors."""
    async with harness.served(
        tmp_path / "s.db", holdouts.configured(holdout=holdout, arms=4, policy=policy)
    ) as engine:
        await holdouts.traffic(engine, rounds, rates=dict(enumerate([0.1, 0.2, 0.3, 0.4])))
        holdouts.check_arm_frequencies(harness.logged_decisions(engine))


# A control with a policy of its own ----------------------------------------------------------


def alone(policy, rows, rewards):
    """Return what a learner knows that saw these decisions and no others, by key."""
    learner = Learner(policy, seed=0)
    for row in rows:
        learner.lanes.admit([row.key])
        slots = np.array([holdouts.ARMS.index(row.arm)])
        made = Decision(
            0, row.key, (row.arm,), row.would_propensity or None, 0, np.arange(2), slots, NO_VALUES
        )
        learner.observe_decisions([made])
        learner.learn(made, rewards.get(row.id, 0.0))
    return by_key(learner)


def by_key(learner):
    return {
        key: [array.tobytes() for _, array in leaves(learner.lanes.view(learner.lane(key)))]
        for key in learner.keys
    }


@pytest.mark.parametrize(
    ("policy", "control"), [("thompson", "exp3"), ("exp3", "ucb1"), ("ucb1", "epsilon-greedy")]
)
async def test_each_policy_learns_from_its_own_decisions_alone(tmp_path, policy, control):
    config = holdouts.configured(
        holdout={"share": 0.3, "control": {"policy": control}}, policy=policy, snapshot_every=150
    )
    async with harness.folding(tmp_path / "s.db", config) as engine:
        # In the order of the log: windows close in that order where nothing was clicked.
        await holdouts.traffic(engine, 12, size=40, rates=dict.fromkeys(holdouts.ARMS, 0.0))
        await holdouts.closed(engine)
        home = engine.placements["home"]
        rows = harness.logged_decisions(engine)
    config = config.placements["home"]
    assert {row.control for row in rows} == {0, 1}
    for held, learner, of in (
        (1, access.get_secondary_learner(home), config.shadow),
        (0, access.get_learner(home), config.policy),
    ):
        assert by_key(learner) == alone(of, [row for row in rows if row.control == held], {})
    assert holdouts.count_closed(engine) == len(rows)
    assert access.get_lift(home).scores.overall[0] == len(rows)


async def test_a_control_with_a_policy_of_its_own_while_nothing_is_learned(tmp_path):
    config = holdouts.configured(holdout={"share": 0.5, "control": {"policy": "exp3"}}, mode="frozen")
    async with harness.folding(tmp_path / "s.db", config) as engine:
        await holdouts.traffic(engine, 4, size=20)
        with pytest.raises(InvalidValue, match="second policy as the placement's shadow"):
            await engine.ask("home", ModeOf("shadow"))
        assert {row.control for row in harness.logged_decisions(engine)} == {0, 1}


async def test_without_its_policy_what_the_control_did_teaches_nobody(tmp_path):
    holdout = {"share": 0.5, "control": {"policy": "epsilon-greedy(epsilon=0.1)"}}
    path = tmp_path / "s.db"
    async with harness.served(path, holdouts.configured(holdout=holdout)) as engine:
        await holdouts.traffic(engine, 4, size=20)
        await holdouts.closed(engine)
        before = by_key(access.get_learner(engine.placements["home"]))
    async with harness.served(path, holdouts.configured(holdout=None), engine.clock) as engine:
        assert by_key(access.get_learner(engine.placements["home"])) == before


# The log -------------------------------------------------------------------------------------


async def test_rewards_count_when_windows_close_whenever_they_came(tmp_path):
    async with harness.served(tmp_path / "s.db", holdouts.configured()) as engine:
        home = engine.placements["home"]
        await engine.feedback("home", (await engine.decide("home", "k", id="a")).id, 1.0)
        assert holdouts.count_closed(engine) == 0
        second = await engine.decide("home", "k", id="b")
        engine.clock.now += 31 * harness.SECOND
        await engine.decide("home", "k", id="c")
        assert await engine.feedback("home", second.id, 1.0) == "late"
        assert holdouts.count_closed(engine) == 2
        assert access.get_lift(home).reward.totals.sum() == 1
        assert access.get_lift(home).answered_counts.sum() == 1


def test_a_holdout_set_by_others_stays_until_the_configured_one_changes(tmp_path):
    path, clock = tmp_path / "s.db", harness.Clock()
    arm = HoldoutConfig(0.25, ControlTable(arm="recipe"))

    async def session(path, config, step):
        async with harness.served(path, config, clock) as engine:
            await step(engine)
            await holdouts.traffic(engine, 3, size=40)
            home = engine.placements["home"]
            live, copy = harness.everything(home), harness.as_after_a_crash(path)
            terms, held = access.get_lift(home).terms, access.get_holdout(home)
        harness.is_the_fold(config, copy, live)
        harness.is_the_fold(
            config, path, (terms, held), lambda home: (access.get_lift(home).terms, access.get_holdout(home))
        )
        return held

    def holds(holdout):
        async def step(engine):
            await engine.ask("home", asked(holdout), "lead")
            assert access.get_holdout(engine.placements["home"]) == holdout

        return step

    async def leaves(engine):
        pass

    def run(config, step):
        return asyncio.run(session(path, config, step))

    assert run(holdouts.configured(), holds(arm)) == arm
    # An unchanged file undoes nothing; neither does one that says other things.
    assert run(holdouts.configured(), leaves) == arm
    assert run(holdouts.configured(metrics={"revenue": {}}), leaves) == arm
    assert run(holdouts.configured(), holds(None)) is None
    assert run(holdouts.configured(), leaves) is None
    # What the file says of it now is newer.
    assert run(holdouts.configured(holdout={"share": 0.1}), leaves) == HoldoutConfig(0.1)
    assert run(holdouts.configured(holdout=None), leaves) is None
    assert run(holdouts.configured(holdout=None), holds(HoldoutConfig(0.5))) == HoldoutConfig(0.5)
    assert run(holdouts.configured(holdout=None), leaves) == HoldoutConfig(0.5)


async def test_a_control_shows_nothing_that_was_not_offered(tmp_path):
    config = holdouts.configured(holdout=None, arms=[*holdouts.ARMS, "holiday"], policy="uniform-random")
    async with harness.served(tmp_path / "s.db", config) as engine:
        # What was checked before does not know of the control's arm.
        asked = [
            access.check_request(engine.placements["home"], DecisionRequest("k", ["holiday", "film"], id=id))
            for id in map(str, range(40))
        ]
        await engine.ask("home", HoldoutOf(0.5, ArmShown("recipe")))
        rows = await engine.decide_many("home", asked)
    assert {row.control for row in rows} == {0, 1}
    # Its place takes the first one on offer, in the propensities too.
    assert {row.arm for row in rows if row.control} == {"holiday"}
    chance = {"holiday": 0.75, "film": 0.25}
    assert all(row.propensity == pytest.approx(chance[row.arm]) for row in rows)


def test_a_holdout_is_set_and_ended_over_http(tmp_path):
    clock = harness.Clock()
    learns = {"arms": holdouts.ARMS, "seed": 5, "policy": "epsilon-greedy(epsilon=0.1)"}
    control = {"control": {"policy": "ucb1"}}
    placements = {"home": learns, "own": learns | {"holdout": control}}
    with (
        harness.by_clock(harness.configured(tmp_path / "s.db", placements=placements), clock) as url,
        Client(url) as client,
    ):
        held = client.hold_out("home", 0.4, {"arm": "recipe"})
        assert (held.share, held.control, held.unit) == (0.4, {"arm": "recipe"}, "decision")
        assert client.hold_out("home", 0.4, "uniform", "user").unit == "user"
        assert client.hold_out("home", 0.3).control == "uniform"
        found, _ = shown(client, clock, "home", holdouts.RATES, rounds=2, size=500)
        # Three in ten of the second round are the control's; eight standard errors.
        assert (found.method, found.share) == ("holdout", 0.3)
        control = found.groups["control"].decisions
        assert abs(control - 300) < 8 * math.sqrt(1000 * 0.3 * 0.7)
        for wrong in ({"share": 0.6}, {"control": "best"}, {"unit": "cat"}):
            with pytest.raises((InvalidRequest, InvalidValue), match=next(iter(wrong))):
                client.hold_out("home", **wrong)
        with pytest.raises(InvalidRequest, match="on offer are film, recipe"):
            client.hold_out("home", control={"arm": "soup"})
        with pytest.raises(InvalidRequest, match="configuration"):
            client.hold_out("own")
        client.hold_out("home", control={"arm": "film"})
        with pytest.raises(InvalidRequest, match="the control of the holdout shows it"):
            client.change_arms("home", retire=["film"])
        told = tacit("placement", "holdout", "home", "--control", "arm=film", "--url", url)
        assert told.stdout == "0.1 of decisions, by decision, are the control's: arm film\n"
        told = tacit("placement", "holdout", "home", "--none", "--url", url)
        assert told.stdout == "nobody is shown a control\n"
        assert client.end_holdout("home") is None
        first, *_, last = [one.detail["holdout"] for one in client.history("home")[::-1]]
        assert (first["share"], last) == (0.4, None)
        assert client.lift("home").method == "propensities"


@pytest.mark.parametrize("mode", ["frozen", "shadow"])
async def test_other_modes_have_one(tmp_path, mode):
    config = holdouts.configured(mode=mode, shadow="ucb1")
    async with harness.served(tmp_path / "s.db", config) as engine:
        await holdouts.traffic(engine, 4, size=20)
        result = holdouts.report(engine)
    groups = result.groups
    assert sum(group.decisions for group in groups.values()) == 60
    assert min(group.decisions for group in groups.values()) > 10


async def test_a_decision_without_the_unit_of_its_holdout_is_warned_of(tmp_path):
    async with harness.served(
        tmp_path / "s.db", holdouts.configured(holdout={"share": 0.5, "unit": "user"})
    ) as engine:
        with pytest.warns(
            AssumptionWarning, match=r"holdout\.unit: a decision without user is drawn alone; send"
        ):
            await access.decide(engine, DecisionRequest("k", id="d1"))


@pytest.mark.parametrize("told", [True, False])
async def test_what_never_comes_is_said_beside_the_lift(tmp_path, told):
    config = holdouts.configured(holdout={"share": 0.5, "unit": "user"}, seen="examined")
    async with harness.served(tmp_path / "s.db", config) as engine:
        rows = await access.decide(engine, *(DecisionRequest("k", user=str(told and i)) for i in range(150)))
        if told:
            await engine.record_many("home", [FeedbackRequest(rows[0].id, EXAMINED)])
        await engine.record_many("home", [FeedbackRequest(row.id, reward=1.0) for row in rows[1:]])
        await holdouts.closed(engine)
        verdict = holdouts.report(engine).verdict
        assert ("nothing was ever examined" in verdict) is not told
        assert ("all 149 decisions are of one user; send" in verdict) is not told


async def test_a_decision_that_is_asked_for_again_is_the_same(tmp_path):
    async with harness.served(
        tmp_path / "s.db", holdouts.configured(holdout={"share": 0.5, "unit": "user"})
    ) as engine:
        for i in range(20):
            told = DecisionRequest("k", id=f"d{i}", user="ann")
            (first,) = await access.decide(engine, told)
            (again,) = await access.decide(engine, told)
            assert first == again
        rows = harness.logged_decisions(engine)
        assert len(rows) == 20
        assert len({(row.control, row.bucket) for row in rows}) == 1
        for other in ("bob", None):
            with pytest.raises(InConflict, match="decision_id: 'd0'"):
                await access.decide(engine, DecisionRequest("k", id="d0", user=other))
    # What was decided before the holdout had other units cannot be held against these.
    async with harness.served(
        tmp_path / "s.db", holdouts.configured(holdout={"share": 0.5, "unit": "session"})
    ) as engine:
        asked = DecisionRequest("k", id="d0", user="ann", session="s")
        assert await access.decide(engine, asked) == [rows[0]]


@pytest.mark.parametrize("by", ["verb", "configuration"])
async def test_sessions_are_taken_after_their_holdout_is_gone(tmp_path, by):
    """Clients send them until they are changed; none of their requests is refused for it."""
    path = tmp_path / "s.db"
    held = holdouts.configured(holdout={"share": 0.5, "unit": "session"}, snapshot_every=10)
    async with harness.served(path, holdouts.configured(holdout=None)) as engine:
        with pytest.raises(InvalidValue, match="session"):
            access.check_request(engine.placements["home"], DecisionRequest("k", session="s"))
        await engine.reload(held)
        asked = access.check_request(engine.placements["home"], DecisionRequest("k", id="d0", session="s"))
        (before,) = await engine.decide_many("home", [asked])
        if by == "verb":
            await engine.ask("home", EndHoldout())
        else:
            await engine.reload(holdouts.configured(holdout=None))
        for session in ("s", "t"):
            asked = access.check_request(engine.placements["home"], DecisionRequest("k", session=session))
            await engine.decide_many("home", [asked])
        assert await access.decide(engine, DecisionRequest("k", id="d0", session="s")) == [before]
    async with harness.served(path, held if by == "verb" else holdouts.configured(holdout=None)) as engine:
        home = engine.placements["home"]
        assert access.get_holdout(home) is None
        assert access.get_unit(home, access.check_request(home, DecisionRequest("k", session="s"))) is None
        with pytest.raises(InvalidValue, match="session"):
            access.check_request(home, DecisionRequest("k", session=""))


@pytest.mark.parametrize("by", ["verb", "configuration"])
async def test_a_rebuild_beside_a_holdout_keeps_no_request_waiting_for_the_compiler(
    tmp_path, monkeypatch, by
):
    first = {}

    def noting(loop, params):
        # What is found compiled from then on takes no time.
        first.setdefault((type(params).__qualname__, loop.__name__), threading.current_thread().name)
        return compile_loop(loop, params)

    async with harness.served(
        tmp_path / "s.db", holdouts.configured(holdout=holdouts.HALF if by == "configuration" else None)
    ) as engine:
        if by == "verb":
            await engine.ask("home", HoldoutOf(0.5))
        monkeypatch.setattr("tacit.learning.lanes.compile_loop", noting)
        await engine.rebuild("home", "ucb1")
        await holdouts.traffic(engine, 1)
    # Neither in the loop of events nor in the thread of the store.
    ((of_control, thread),) = ((loop, name) for loop, name in first.items() if loop[1] == "force_rows")
    assert of_control[0].startswith("UCB1")
    assert thread.startswith("asyncio_")


@pytest.mark.parametrize("control", ["uniform", {"policy": "ucb1"}])
@pytest.mark.parametrize("unit", ["user", "session"])
async def test_who_asked_before_a_holdout_began_in_the_same_group_is_in_its_group(tmp_path, unit, control):
    sticky = holdouts.configured(holdout={"share": 0.5, "unit": unit, "control": control})
    async with harness.served(tmp_path / "s.db", holdouts.configured(holdout=None)) as engine:
        # Checked while there was none; a session is let in by an earlier one.
        await engine.reload(holdouts.configured(holdout={"unit": "session"}))
        await engine.reload(holdouts.configured(holdout=None))
        request = DecisionRequest("k", **{unit: "ann"})
        asked = [
            access.check_request(engine.placements["home"], request._replace(id=f"d{i}")) for i in range(20)
        ]
        await engine.reload(sticky)
        rows = await engine.decide_many("home", asked)
        assert len({(row.control, row.bucket) for row in rows}) == 1
        for row in rows:
            again = access.check_request(engine.placements["home"], request._replace(id=row.id))
            assert await engine.decide_many("home", [again]) == [row]


async def test_without_a_holdout_one_id_of_two_users_in_one_batch_is_one_decision(tmp_path):
    async with harness.served(tmp_path / "s.db", holdouts.configured(holdout=None)) as engine:
        asked = [DecisionRequest("k", id="d0", user=user) for user in ("ann", "bob", None)]
        first, *others = await access.decide(engine, *asked)
        assert others == [first, first]


@pytest.mark.parametrize(
    ("control", "said", "rounds"),
    [("uniform", "uniform", 200), ({"policy": holdouts.FEATURED}, f"policy {holdouts.FEATURED}", 60)],
)
async def test_features_have_a_holdout(tmp_path, control, said, rounds):
    holdout = {"share": 0.5, "control": control}
    config = holdouts.configured(arms=None, kind="features", policy=holdouts.FEATURED, holdout=holdout)
    async with harness.folding(tmp_path / "s.db", config) as engine:
        for i in range(rounds):
            engine.clock.now += harness.SECOND
            count = 2 + i % 2
            offer = ["a", "b", "c"][:count], [[1, 0], [0, 1], [1, 1]][:count], [[1]] * count
            request = DecisionRequest("k", offer[0], relevance=offer[1], examination=offer[2])
            (row,) = await access.decide(engine, request)
            await engine.feedback("home", row.id, float(row.arm == "b"))
        await holdouts.closed(engine)
        found = holdouts.report(engine)
    assert found.control == said
    assert control != "uniform" or (found.claim, found.winner) == ("better", None)
    assert holdouts.count_reported(found) == rounds


# Configuration -------------------------------------------------------------------------------


async def test_requests_that_do_not_fit_are_refused(tmp_path):
    config = holdouts.configured(holdout={"control": {"arm": "film"}, "unit": "session"})
    async with harness.served(tmp_path / "s.db", config) as engine:
        home = engine.placements["home"]
        assert access.get_unit(home, access.check_request(home, DecisionRequest("k", session="s1"))) == "s1"
        assert access.get_unit(home, access.check_request(home, DecisionRequest("k", user="u1"))) is None
        with pytest.raises(InvalidValue, match="film"):
            access.check_request(home, DecisionRequest("k", ["recipe"]))
        with pytest.raises(InvalidValue, match="user"):
            access.check_request(home, DecisionRequest("k", user="\n"))
