"""A guardrail that acts: an arm, or the policy, that is proved to harm a metric is shown no more, once."""

import contextlib
import math

import numpy as np
import placement_access as access
import pytest
from harness import SECOND, as_after_a_crash, everything, folded, folding, served, with_home
from holdouts import FEATURED
from toy_asking import AskingArm

from tacit import Impression
from tacit.errors import ConfigError, InvalidValue
from tacit.logs import read_log
from tacit.service.log.blocks import Block
from tacit.service.log.ids import as_text
from tacit.service.log.requests import ClientDecision, DecisionRequest, Record, encode_metrics
from tacit.service.log.requests import FeedbackRequest as Told
from tacit.service.maintenance.log_export import export
from tacit.service.page.overview import describe_guardrail, list_problems
from tacit.service.page.pages import Pages
from tacit.service.page.timeline import describe_change
from tacit.uplift import ALARM
from tacit.uplift.metric_degradation import DegradationSums, count_comparisons
from tacit.wire.control import ArmsOf, EndHoldout, ModeOf, PinOf, Unpin

ARMS = ["a", "b", "c"]
RETURNS = {"metrics": {"returns": {"range": [0, 1], "better": "less"}}}
RETIRE = {"metric": "returns", "margin": 0.02}
UNBOUNDED = {"metrics": {"returns": {"better": "less"}}}
HELD = {"share": 0.5, "control": {"arm": "a"}}


def guarded(guardrail=RETIRE, **table):
    """Return a configuration of a placement with a guardrail."""
    return with_home(**{"arms": ARMS, "guardrail": guardrail} | RETURNS | table)


@contextlib.asynccontextmanager
async def guarding(tmp_path, guardrail=RETIRE, **table):
    """Yield an engine and its placement with a guardrail, which is in the end what the log says."""
    config = guarded(guardrail, **table)
    async with folding(tmp_path / "s.db", config, seen=seen, crash="snapshot_every" in table) as engine:
        yield engine, engine.placements["home"]


def came_back(row, reward, returns):
    return Told(row.id, reward=float(reward), metrics=encode_metrics({"returns": float(returns)}))


async def traffic(engine, returns, rounds=20, size=256, **more):
    """Decide, click and return, window after window; return the decisions."""
    rows = []
    for i in range(rounds):
        rng = np.random.default_rng((i, size))
        engine.clock.now += 40 * SECOND
        # Names that are the same in each run, so that the draws are.
        asked = [DecisionRequest(f"key {i % 3}", id=f"{engine.clock.now} {j}", **more) for j in range(size)]
        made = await access.decide(engine, *asked)
        chances = rng.random((size, 2))
        await engine.record_many("home", [
            came_back(row, click < 0.2, back < returns[row.arm])
            for row, (click, back) in zip(made, chances, strict=True)
        ])  # fmt: skip
        rows += made
    engine.clock.now += 40 * SECOND
    await engine.wait_until_durable(["home"])
    return rows


def seen(placement):
    """Return everything that a placement is, and what its guardrail knows."""
    return everything(placement), access.save_guardrail(placement), access.get_offer(placement).arms


async def history(engine):
    """Return the changes that a placement's log tells, after those of the configuration."""
    marks = await engine.writer.call_store(engine.store.changes, engine.placements["home"].id)
    return [
        (change.who, describe_change(change))
        for change in access.list_changes(marks, ARMS)
        if change.what != "configuration"
    ]


async def test_an_arm_that_does_harm_is_retired_once_and_the_log_says_so(tmp_path):
    async with guarding(tmp_path, snapshot_every=900) as (engine, home):
        rows = await traffic(engine, {"a": 0.02, "b": 0.3, "c": 0.02})
        assert access.get_offer(home).arms == ["a", "c"]
        assert {row.arm for row in rows[:256]} == set(ARMS)
        assert "b" not in {row.arm for row in rows[-256:]}
        (harm,) = access.get_degradations(home)
        assert (harm.arm, harm.then, harm.metric) == ("b", "retire", "returns")
        assert 0.02 < harm.low < 0.28 < harm.high
        assert await history(engine) == [
            ("guardrail", "returns harmed by b: retire"),
            ("guardrail", "arm retired: b"),
        ]
        assert "b was retired." in describe_guardrail(home)[1]
        # Nobody has to look: it is shown no more.
        assert list_problems(home, engine.clock()) == []
        # Who brings it back knows better: it is not retired twice.
        await engine.ask("home", ArmsOf((), (), ["b"]))
        await traffic(engine, {"a": 0.02, "b": 0.3, "c": 0.02}, rounds=10)
        assert access.get_offer(home).arms == ARMS
        assert len(access.get_degradations(home)) == 1
        assert "b was retired." in list_problems(home, engine.clock())[0]


async def test_what_earlier_versions_let_in_hides_no_harm_and_is_no_damage(tmp_path):
    """A propensity that no draw has, and an amount whose square is infinite, are rows of such logs."""
    async with guarding(tmp_path, RETIRE | {"then": "tell"}, **UNBOUNDED) as (engine, home):
        await traffic(engine, {"a": 0.02, "b": 0.02, "c": 0.02}, rounds=1)
        wrong = access.check_request(home, DecisionRequest("key 0", id="wrong"))._replace(
            details=ClientDecision("b", 1e-300)
        )
        large = access.check_request(home, DecisionRequest("key 0", id="large"))
        await engine.decide_many("home", [wrong, large])
        told = [Told(id, reward=1.0, metrics=encode_metrics({"returns": 1e308})) for id in ("wrong", "large")]
        # Past the checks of today.
        await engine.writer.ask(Record("home", Block.from_rows(Told, told)))
        engine.clock.now += 40 * SECOND
        await engine.wait_until_durable(["home"])
        access.settle_sums(home)
        for saved in (access.save_guardrail(home), access.get_lift(home).save_state()):
            assert math.isfinite(sum(numbers(saved)))


def numbers(saved):
    """Yield all numbers of JSON data."""
    for value in saved.values() if isinstance(saved, dict) else saved:
        if isinstance(value, (dict, list, tuple)):
            yield from numbers(value)
        elif isinstance(value, (int, float)):
            yield value


async def test_an_amount_that_no_sum_can_hold_is_refused(tmp_path):
    async with served(tmp_path / "s.db", guarded(**UNBOUNDED)) as engine:
        row = await engine.decide("home", "key")
        with pytest.raises(InvalidValue, match=r"^metrics\.returns: 1e\+101 .*1e\+100"):
            await engine.record_many("home", [came_back(row, 1.0, 1e101)])


async def test_harm_is_only_told_where_nothing_is_to_be_done(tmp_path):
    async with guarding(tmp_path, RETIRE | {"then": "tell"}) as (engine, home):
        await traffic(engine, {"a": 0.02, "b": 0.3, "c": 0.02})
        assert access.get_offer(home).arms == ARMS
        assert await history(engine) == [("guardrail", "returns harmed by b: tell")]
        assert "Nothing was done" in list_problems(home, engine.clock())[0]
        *_, change = await engine.history("home")
        assert change.detail["at"] == as_text(change.time)


async def test_what_others_are_held_against_stays_whatever_they_do(tmp_path):
    async with guarding(tmp_path) as (engine, home):
        await traffic(engine, {"a": 0.02, "b": 0.3, "c": 0.35, "d": 0.4})
        assert access.get_offer(home).arms == ["a"]
        with pytest.raises(InvalidValue, match="the guardrail holds the others against it"):
            await engine.ask("home", ArmsOf(["d"], ["a"]))
        # One that comes later is watched, too.
        await engine.ask("home", ArmsOf(["d"]))
        await traffic(engine, {"a": 0.02, "d": 0.4}, rounds=30)
        assert (access.get_offer(home).arms, access.get_offer(home).retired) == (["a"], ["b", "c", "d"])


async def test_arms_that_some_requests_do_not_offer_are_held_against_what_these_showed(tmp_path):
    async with served(tmp_path / "s.db", guarded()) as engine:
        await traffic(engine, {"a": 0.02, "c": 0.02}, arms=["a", "c"], rounds=10)
        # Seldom on offer, where everything is returned more often: that is no harm of its own.
        await traffic(engine, {"a": 0.3, "b": 0.3}, arms=["b", "a"], rounds=10)
        assert access.get_degradations(engine.placements["home"]) == []


async def test_what_is_pinned_is_no_evidence_and_the_policy_is_watched_again_afterwards(tmp_path):
    returns = {"a": 0.02, "b": 0.3, "c": 0.02}
    async with guarding(tmp_path, policy="uniform-random") as (engine, home):
        await engine.ask("home", PinOf(["b"], as_text(engine.clock.now + 3600 * SECOND)))
        rows = await traffic(engine, returns, rounds=10)
        assert {(row.arm, row.propensity) for row in rows} == {("b", 1.0)}
        # Nothing was shown to compare it with.
        assert (access.get_degradations(home), access.get_offer(home).arms) == ([], ARMS)
        await engine.ask("home", Unpin())
        await traffic(engine, returns)
        assert access.get_offer(home).arms == ["a", "c"]
        # What was retired cannot be pinned; another one can, and nobody is retired by that.
        with pytest.raises(InvalidValue, match="on offer are a, c"):
            await engine.ask("home", PinOf(["b"], as_text(engine.clock.now + 3600 * SECOND)))
        await engine.ask("home", PinOf(["c"], as_text(engine.clock.now + 3600 * SECOND)))
        await traffic(engine, returns, rounds=2)
        assert access.get_offer(home).arms == ["a", "c"]


async def test_a_pin_on_an_arm_that_is_retired_for_harm_leaves_its_place_to_the_policy(tmp_path):
    table = {"policy": "uniform-random", "attribution_window": 3000}
    async with guarding(tmp_path, **table) as (engine, home):
        made, rng = [], np.random.default_rng(1)
        for i in range(12):
            made += await access.decide(engine, *(DecisionRequest("k", id=f"{i} {j}") for j in range(256)))
        # All windows are open yet: what harms is not known, and is pinned.
        await engine.ask("home", PinOf(["b"], as_text(engine.clock.now + 10_000 * SECOND)))
        told = [came_back(row, 0.0, row.arm == "b" and rng.random() < 0.5) for row in made]
        await engine.record_many("home", told)
        engine.clock.now += 4000 * SECOND
        await engine.wait_until_durable(["home"])
        assert access.get_offer(home).arms == ["a", "c"]
        rows = await access.decide(engine, *(DecisionRequest("k", id=f"later {j}") for j in range(50)))
        assert {row.arm for row in rows} <= {"a", "c"}
        assert {row.mode for row in rows} == {"online"}


async def test_a_promised_arm_that_does_harm_is_retired_and_the_other_promises_hold(tmp_path):
    async with guarding(tmp_path, at_least={"b": 0.2, "c": 0.1}) as (engine, home):
        await traffic(engine, {"a": 0.02, "b": 0.3, "c": 0.02})
        assert access.get_offer(home).arms == ["a", "c"]
        rows = await traffic(engine, {"a": 0.02, "c": 0.02}, rounds=2)
        assert min(row.propensity for row in rows if row.arm == "c") >= 0.1
        # Who brings it back, brings back its promise.
        await engine.ask("home", ArmsOf((), (), ["b"]))
        rows = await traffic(engine, {"a": 0.02, "b": 0.02, "c": 0.02}, rounds=2)
        assert min(row.propensity for row in rows if row.arm == "b") >= 0.2


async def test_promises_and_a_control_that_takes_over_for_harm(tmp_path):
    """Until then the policy shows what it promised, afterwards the control decides everything."""
    table = {"at_least": {"b": 0.3}, "holdout": HELD, "policy": "ucb1"}
    async with guarding(tmp_path, **table) as (engine, home):
        rows = await traffic(engine, {"a": 0.02, "b": 0.5, "c": 0.5})
        assert min(row.propensity for row in rows if row.arm == "b") >= 0.5 * 0.3
        assert len(access.get_degradations(home)) == 1
        assert access.get_mode(home) == "control"
        rows = await traffic(engine, {"a": 0.02}, rounds=2)
        assert {(row.arm, row.propensity) for row in rows} == {("a", 1.0)}


async def test_an_arm_that_the_guardrail_could_not_weigh_does_not_come(tmp_path):
    config = guarded(at_least={"a": 0.1, "b": 0.1, "c": 0.1}, policy="ucb1")
    async with served(tmp_path / "s.db", config) as engine:
        await engine.ask("home", ArmsOf(retire=["c"]))
        with pytest.raises(InvalidValue, match=r"add: \['d'\] .* guardrail cannot weigh .* at_least"):
            await engine.ask("home", ArmsOf(add=["d"]))
        await engine.ask("home", ArmsOf(restore=["c"]))
        assert access.get_offer(engine.placements["home"]).arms == ARMS
    async with served(tmp_path / "t.db", guarded(policy="auto", at_least={"a": 0.1})) as engine:
        await engine.ask("home", ArmsOf(add=["d"]))
        assert access.get_offer(engine.placements["home"]).arms == [*ARMS, "d"]


async def test_promises_pins_and_who_asks_beside_a_guardrail_that_retires_all_but_one(tmp_path):
    """All at once: what is left at each step has its exact chance, in decisions, log and export."""
    promised, fine = {"b": 0.2, "c": 0.1}, dict.fromkeys(ARMS, 0.02)
    table = {"at_least": promised, "policy": "toy_asking:AskingArm", "context_dim": 1}
    async with guarding(tmp_path, **table) as (engine, home):

        async def both(returns, rounds=3):
            """Let two who ask something else decide, and return the decisions that taught nothing yet."""
            rows = []
            for x in (1.0, -1.0):
                await traffic(engine, returns, rounds=rounds, context=[x])
                names = [f"{engine.clock.now} {j}" for j in range(100)]
                asked = [DecisionRequest("key 1", id=name, context=[x]) for name in names]
                made = await access.decide(engine, *asked)
                for row, chance in zip(made, chances(x, made), strict=True):
                    assert row.propensity == pytest.approx(chance, rel=1e-12)
                rows += made
            return rows

        def chances(x, rows):
            """Return f + (1 − F)·p of what was shown, by enumeration of the policy's own p."""
            offer = access.get_arm_indices(home, access.get_offer(home).arms)
            learner, own = access.get_learner(home), access.get_config(home).policy.policy
            impression, lane = Impression(np.array(offer), np.array([x])), learner.keys.index("key 1")
            kept = sum(promised.get(arm, 0.0) for arm in access.get_offer(home).arms)
            found = {
                arm: promised.get(arm, 0.0)
                + (1 - kept) * own.propensity(own.params, learner.state, lane, impression, slot)
                for arm, slot in zip(access.get_offer(home).arms, offer, strict=True)
            }
            assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
            return [found[row.arm] for row in rows]

        assert {row.arm for row in await both(fine)} == set(ARMS)
        assert access.get_degradations(home) == []
        # A pin stands above promises, and what is pinned is no evidence, however it harms.
        await engine.ask("home", PinOf(["b"], as_text(engine.clock.now + 3600 * SECOND)))
        for x in (1.0, -1.0):
            rows = await traffic(engine, fine | {"b": 0.6}, rounds=3, context=[x])
            assert {(row.arm, row.propensity) for row in rows} == {("b", 1.0)}
        assert access.get_degradations(home) == []
        await engine.ask("home", Unpin())
        # The other promised one does harm: it goes, its promise with it, and the first promise holds.
        assert {row.arm for row in await both(fine | {"c": 0.7}, rounds=8)} == {"a", "b"}
        assert [harm.arm for harm in access.get_degradations(home)] == ["c"]
        # Another policy keeps promises and who was retired.
        await engine.rebuild("home", AskingArm(ARMS))
        home = engine.placements["home"]
        assert dict(access.get_config(home).policy.at_least) == promised
        assert {row.arm for row in await both(fine)} == {"a", "b"}
        # The last but one goes, too; the last one stays, alone, with whatever it does.
        assert {row.arm for row in await both(fine | {"b": 0.7, "a": 0.1}, rounds=10)} == {"a"}
        rows = await traffic(engine, {"a": 0.9}, rounds=3, context=[1.0])
        assert {(row.arm, row.propensity) for row in rows} == {("a", 1.0)}
        assert access.get_offer(home).arms == ["a"]
        assert [harm.arm for harm in access.get_degradations(home)] == ["c", "b"]
        pages = Pages(engine)
        page, overview = await pages.placement("home", {}), await pages.overview()
        assert all(f"arm retired: {arm}" in page for arm in "bc")
        assert "Shown at least" not in page
        # Nobody has to look, but who looks is not left in the belief that nothing happened.
        assert "none needs a look; a guardrail has acted" in overview
        assert all(f"{arm} was retired." in overview for arm in "bc")
        export(engine.config, engine.store, tmp_path / "log")
    log = [row for part in read_log(tmp_path / "log" / "clicks.parquet") for row in part.to_pylist()]
    least = {arm: min(row["propensity"] for row in log if row["arm"] == arm) for arm in ARMS}
    assert all(least[arm] >= promised[arm] - 1e-12 for arm in promised)
    assert {len(row["arms"]) for row in log} == {1, 2, 3}


@pytest.mark.long
async def test_harm_to_some_who_ask_is_found_and_is_none_where_contexts_differ_alone(tmp_path):
    async with guarding(tmp_path, context_dim=1) as (engine, home):
        # Those of one context return more whatever they are shown.
        for i in range(6):
            for x, returns in ((1.0, 0.3), (-1.0, 0.02)):
                await traffic(engine, dict.fromkeys(ARMS, returns), rounds=2, context=[x])
            assert access.get_degradations(home) == [], i
        # To one of two contexts b does harm.
        for _ in range(8):
            for x, more in ((1.0, 0.5), (-1.0, 0.0)):
                await traffic(engine, {"a": 0.02, "b": 0.02 + more, "c": 0.02}, rounds=2, context=[x])
        assert access.get_offer(home).arms == ["a", "c"]


@pytest.mark.parametrize("control", [{"arm": "a"}, "uniform", {"policy": "uniform-random"}])
async def test_a_policy_that_does_harm_gives_way_to_the_control(tmp_path, control):
    # Clicks draw the policy to what is returned.
    held = {"share": 0.5, "control": control}
    async with guarding(tmp_path, holdout=held, policy="auto") as (engine, home):
        for i in range(30):
            rng = np.random.default_rng(i)
            engine.clock.now += 40 * SECOND
            rows = await access.decide(engine, *(DecisionRequest("k", id=f"{i} {j}") for j in range(128)))
            harm = {"b": 0.5}
            told = [came_back(row, row.arm == "b", rng.random() < harm.get(row.arm, 0.02)) for row in rows]
            await engine.record_many("home", told)
            if access.get_mode(home) == "control":
                break
        assert access.get_mode(home) == "control"
        assert await history(engine) == [
            ("guardrail", "returns harmed by the policy: retire"),
            ("guardrail", "mode: control"),
        ]
        assert "the control decides everything" in list_problems(home, engine.clock())[0]
        chance = 1.0 if control == {"arm": "a"} else 1 / 3
        rows = await traffic(engine, {"a": 0.02, "b": 0.02, "c": 0.02}, rounds=4)
        assert {row.mode for row in rows} == {"control"}
        assert {row.arm for row in rows} == ({"a"} if chance == 1.0 else set(ARMS))
        assert [row.propensity for row in rows] == pytest.approx([chance] * len(rows))
        # Shares of the coin are those of before.
        found = access.make_lift_report(home, engine.clock())
        assert not any(one.evidence > ALARM for one in found.srm)
        with pytest.raises(InvalidValue, match=r"its control decides everything|a control's own policy"):
            await engine.ask("home", EndHoldout())
        with pytest.raises(ConfigError, match="its control decides everything"):
            await engine.reload(with_home(arms=ARMS))
        # Who lets the policy decide again knows better.
        await engine.ask("home", ModeOf("online"))
        await traffic(engine, {"a": 0.02, "b": 0.5, "c": 0.02}, rounds=6)
        assert access.get_mode(home) == "online"
        assert len(access.get_degradations(home)) == 1


async def test_other_terms_begin_anew_and_the_same_ones_go_on(tmp_path):
    path = tmp_path / "s.db"
    telling = guarded(RETIRE | {"then": "tell"})
    async with served(path, telling) as engine:
        await traffic(engine, {"a": 0.02, "b": 0.4, "c": 0.02})
        told = access.get_degradations(engine.placements["home"])
        assert [harm.arm for harm in told] == ["b"]
    async with folding(path, telling, clock=engine.clock, crash=False, seen=seen) as engine:
        assert access.get_degradations(engine.placements["home"]) == told
        await engine.reload(guarded())
        assert access.get_degradations(engine.placements["home"]) == []
        await traffic(engine, {"a": 0.02, "b": 0.3, "c": 0.02}, rounds=40)
        assert access.get_offer(engine.placements["home"]).arms == ["a", "c"]


async def test_a_guardrail_is_the_fold_of_its_log_wherever_the_process_ends(tmp_path):
    path, config = tmp_path / "s.db", guarded(snapshot_every=700)
    async with served(path, config) as engine:
        for _ in range(9):
            await traffic(engine, {"a": 0.02, "b": 0.4, "c": 0.02}, rounds=1, size=200)
            live = seen(engine.placements["home"])
            copy = as_after_a_crash(path)
            assert seen(folded(copy, config)) == live
            assert seen(folded(copy, config, snapshot=True)) == live
            copy.unlink()


@pytest.mark.parametrize(
    ("table", "request_of", "shown"),
    [
        ({"kind": "slates", "positions": 2, "arms": ARMS}, {}, ("a", "b")),
        (
            {"kind": "duels", "rankers": ARMS, "holdout": HELD},
            {"rankings": {arm: [f"{arm}1", "s"] for arm in ARMS}},
            ("a", "a"),
        ),
        (
            {"kind": "features", "policy": FEATURED},
            {"arms": ["x", "y"], "relevance": [[0.1, 0.2], [0.3, 0.4]], "examination": [[1.0], [1.0]]},
            ("x",),
        ),
    ],
    ids=["slates", "duels", "features"],
)
async def test_a_control_that_decides_everything_shows_what_it_always_showed(
    tmp_path, table, request_of, shown
):
    path, config = tmp_path / "s.db", with_home(**{"holdout": {"share": 0.3, "control": "baseline"}} | table)
    async with folding(path, config, crash=False) as engine:
        home = engine.placements["home"]
        await engine.ask("home", ModeOf("control"))
        for i in range(3):
            asked = [DecisionRequest("k", id=f"{i} {j}", **request_of) for j in range(10)]
            rows = await access.decide(engine, *asked)
            assert {access.get_shown_arms(home, row) for row in rows} == {shown}
            assert {(row.mode, row.propensity, row.control) for row in rows} == {("control", 1.0, 1)}
            engine.clock.now += 40 * SECOND
        await engine.wait_until_durable(["home"])
        # Nobody was held out: the coin was not asked.
        assert not access.get_lift(home).reward.counts.any()
        assert not access.get_lift(home).decided_counts.any()


async def test_the_mode_control_is_for_placements_with_a_holdout(tmp_path):
    async with served(tmp_path / "s.db", with_home(arms=ARMS)) as engine:
        with pytest.raises(InvalidValue, match="give the placement a holdout first"):
            await engine.ask("home", ModeOf("control"))


def test_sums_of_harm_are_the_same_however_decisions_are_parted():
    rng = np.random.default_rng(5)
    n, arms = 500, 4
    shown, amounts, q = rng.integers(arms, size=n), rng.random(n), rng.uniform(0.1, 1.0, n)
    offered = rng.random((n, arms)) < 0.8
    offered[np.arange(n), shown] = True
    buckets = rng.integers(3, size=n)
    whole, parts = DegradationSums(arms), DegradationSums(arms)
    whole.add(shown, amounts, q, offered, 1, buckets)
    for cut in np.split(np.arange(n), [1, 7, 200, 201, 300]):
        parts.add(shown[cut], amounts[cut], q[cut], offered[cut], 1, buckets[cut])
        parts = DegradationSums.from_dict(parts.as_dict())
    assert parts.as_dict() == whole.as_dict()
    assert not whole.sums[:, 1].any()


def test_the_first_decision_of_a_key_weighs_arms_alike_and_the_next_one_by_what_was_shown():
    sums, both = DegradationSums(2), np.ones((2, 2), bool)
    sums.add([1, 0], [1.0, 0.0], [0.5, 0.2], both, baseline=0)
    # 1/2 · 1/2 over 1, and so it is after arm 1 was shown with one half.
    n, total, _, weight, d, _, gg = sums.sums[:, 1]
    assert (n, total, weight) == (2, 1.0, 0.5)
    assert d == pytest.approx(0.5 * (1.0 - 0.0) - 1.25 * (0.0 - 1.0))
    assert gg == pytest.approx(0.5**2 + 1.25**2)
    # Then arm 0 was shown with one fifth: the other one is likely.
    sums.add([1], [0.0], [0.8], both[:1], baseline=0)
    assert sums.sums[3, 1] == pytest.approx(0.5 + 0.2 * 0.8)


def test_a_difference_between_keys_is_no_harm_of_an_arm():
    """Arm 1 is shown where more is returned, whatever is shown there."""
    rng = np.random.default_rng(11)
    sums, n = DegradationSums(2), 40_000
    buckets = rng.integers(2, size=n)
    q = np.where(buckets == 1, 0.9, 0.1)
    shown = (rng.random(n) < q).astype(int)
    returned = rng.random(n) < np.where(buckets == 1, 0.5, 0.1)
    sums.add(shown, returned, np.where(shown == 1, q, 1 - q), np.ones((n, 2), bool), 0, buckets)
    assert returned[shown == 1].mean() > returned[shown == 0].mean() + 0.2
    assert sums.find_degradations(0.0, "less", [2, 2]) == {}
    assert abs(sums.sums[4, 1] / sums.sums[3, 1]) < 0.03


@pytest.mark.parametrize("begun", [1, 2, 3, 7])
def test_all_arms_that_may_ever_come_share_one_error(begun):
    shares = [1 / m for m in count_comparisons(5000, begun)[1:]]
    assert sum(shares) <= 1.0
    assert sum(shares) == pytest.approx(1.0, abs=1e-3)
