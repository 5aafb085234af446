"""Shares that are promised, in the service: beside a holdout, pins, contexts, and arms that come and go."""

import contextlib
import itertools
import json

import numpy as np
import pytest
from harness import SECOND, START, is_the_fold, learned, served, with_home
from msgspec.json import encode as json_of
from placement_access import ArmLifecycle, compute_floor, decode_shown
from toy_asking import AskingDuel, AskingList

import tacit
from tacit.errors import ConfigError, InvalidValue
from tacit.evaluate.duels import always
from tacit.logs import read_log
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.log.ids import as_text
from tacit.service.log.requests import Clicked, DecisionRequest, FeedbackRequest
from tacit.service.log.rows import CLICKS, decode_list
from tacit.service.maintenance.log_export import export
from tacit.service.page.pages import Pages
from tacit.wire.control import ArmsOf, PinOf
from tests.policies.states import assert_frequencies

ARMS = ["control", "new", "bold"]
PROMISED = {"control": 0.2, "new": 0.05}
SIZE = 400


def promising(**table):
    """Return a configuration whose arms are promised shares, of a policy that compiles fast."""
    return with_home(**{"arms": ARMS, "policy": "ucb1", "at_least": PROMISED} | table)


@contextlib.asynccontextmanager
async def folded(tmp_path, config):
    """Serve a placement; what it has learned in the end must be the fold of its log."""
    async with served(tmp_path / "s.db", config) as engine:
        yield engine
        live = learned(engine)
    is_the_fold(config, tmp_path / "s.db", live)


async def ask(engine, rounds, answer, count=SIZE, key="k", **more):
    """Decide and answer, window after window; return the decisions of the last round.

    ``answer(row)`` returns what feedback says of a decision, None for no click.
    """
    rows = []
    for _ in range(rounds):
        engine.clock.now += 40 * SECOND
        home = engine.placements["home"]
        names = [f"{engine.clock.now} {j}" for j in range(count)]
        asked = [home.reader.read(DecisionRequest(key, id=name, **more)) for name in names]
        rows = list(await engine.decide_many("home", asked))
        told = [(row, answer(row)) for row in rows]
        sent = [FeedbackRequest(row.id, **clicks) for row, clicks in told if clicks]
        if sent:
            await engine.record_many("home", sent)
    return rows


async def traffic(engine, rounds=8, best="bold", **more):
    """Decide, and click the best arm alone."""
    return await ask(engine, rounds, lambda row: {"reward": 1.0} if row.arm == best else None, **more)


async def lists(engine, rounds=2, best=("bold",), **more):
    """Decide lists and click the best arms."""

    def answer(row):
        places = [k for k, arm in enumerate(decode_list(row.shown).arms) if arm in best]
        return {"kind": CLICKS, "clicks": Clicked(places)} if places else None

    return await ask(engine, rounds, answer, **more)


def shares(rows):
    """Return how often each arm was shown."""
    return {arm: np.mean([row.arm == arm for row in rows]) for arm in {row.arm for row in rows}}


def chances(rows):
    """Return the propensities of each arm, of which there is one where nothing is learned meanwhile."""
    return {arm: {round(row.propensity, 9) for row in rows if row.arm == arm} for arm in shares(rows)}


async def test_a_control_decides_besides_what_is_promised(tmp_path):
    """(1 − h)·(f + (1 − F)·p) + h/n, and the coin's control is uniform. Counts are within 5.1 sigma."""
    async with folded(tmp_path, promising(holdout={"share": 0.3})) as engine:
        rows = await traffic(engine)
        expected = {"control": 0.7 * 0.2 + 0.1, "new": 0.7 * 0.05 + 0.1, "bold": 0.7 * 0.75 + 0.1}
        for arm, share in shares(rows).items():
            assert max(chances(rows)[arm]) == pytest.approx(expected[arm], abs=0.02)
            assert abs(share - expected[arm]) < 0.02 + 5.1 * np.sqrt(expected[arm] / SIZE)
        assert shares([row for row in rows if row.control]).keys() == set(ARMS)


async def test_what_is_pinned_is_shown_whatever_is_promised(tmp_path):
    async with folded(tmp_path, promising()) as engine:
        await engine.ask("home", PinOf(["bold"], as_text(START + 10_000 * SECOND)))
        rows = await traffic(engine, rounds=2)
        assert shares(rows) == {"bold": 1.0}
        assert chances(rows) == {"bold": {1.0}}
        # A request that does not offer it is the policy's, with its promises.
        asked = [
            engine.placements["home"].reader.read(DecisionRequest("k", ["control", "new"], id=f"x{j}"))
            for j in range(SIZE)
        ]
        rows = list(await engine.decide_many("home", asked))
        assert min(min(chances(rows)[arm]) - PROMISED[arm] for arm in shares(rows)) >= 0


async def test_what_an_arm_was_promised_waits_for_it_while_it_is_retired(tmp_path):
    async with folded(tmp_path, promising()) as engine:
        rows = await traffic(engine)
        assert max(chances(rows)["control"]) == pytest.approx(0.2, abs=0.02)
        await engine.ask("home", ArmsOf(["newer"], ["control"]))
        rows = await traffic(engine, rounds=2)
        assert "control" not in shares(rows)
        assert max(chances(rows)["bold"]) > 0.9
        await engine.ask("home", ArmsOf((), (), ["control"]))
        rows = await traffic(engine, rounds=2)
        assert min(chances(rows)["control"]) >= 0.2
        assert min(chances(rows)["new"]) >= 0.05


async def test_other_promises_are_refused_before_anything_changes(tmp_path):
    path = tmp_path / "s.db"
    async with served(path, promising(arms=["control", "bold"], at_least={"control": 0.2})) as engine:
        await traffic(engine, rounds=3)
        # Not in silence: what it was promised would be dropped.
        with pytest.raises(ConfigError, match=r"at_least: .* new name"):
            await engine.reload(promising())
        assert set(shares(await traffic(engine, rounds=1))) <= {"control", "bold"}


@pytest.mark.long
async def test_promises_hold_for_whoever_is_asking(tmp_path):
    async with folded(tmp_path, promising(policy=None, context_dim=1)) as engine:
        for best, x in (("bold", 1.0), ("new", -1.0)):
            rows = await traffic(engine, best=best, context=[x], rounds=4)
            assert min(chances(rows)["control"]) >= 0.2
            assert min(chances(rows)["new"]) >= 0.05


async def test_lists_have_what_is_promised_at_any_position(tmp_path):
    """Counts are within 5.1 sigma."""
    config = with_home(kind="slates", arms=[*ARMS, "old"], positions=2, at_least={"new": 0.2})
    async with folded(tmp_path, config) as engine:
        rows = await lists(engine, rounds=8, best=("bold", "old"))
        # All has been learned by now that can be: what is promised is all that it gets.
        slates = [decode_list(row.shown).arms for row in rows]
        places = np.array([[slate[k] == "new" for k in range(2)] for slate in slates]).mean(axis=0)
        assert (abs(places - 0.1) < 0.01 + 5.1 * np.sqrt(0.1 / SIZE)).all()


def listed(arm, rows):
    """Return in which share of lists an arm was."""
    return np.mean([arm in decode_list(row.shown).arms for row in rows])


async def test_lists_keep_promises_beside_pins_a_holdout_and_arms_that_come_and_go(tmp_path):
    """Counts are within 5.1 sigma."""
    table = {"kind": "slates", "arms": [*ARMS, "old", "odd"], "positions": 2, "at_least": {"new": 0.4}}
    config = with_home(**table, holdout={"share": 0.3, "control": "baseline"})
    error = 5.1 * np.sqrt(0.24 / (0.6 * SIZE))
    async with folded(tmp_path, config) as engine:
        rows = await lists(engine)
        # The control lists what comes first; the policy's lists have what was promised.
        assert all(decode_list(row.shown).arms == ["control", "new"] for row in rows if row.control)
        assert listed("new", [row for row in rows if not row.control]) > 0.4 - error
        await engine.ask("home", PinOf(["odd"], as_text(engine.clock.now + 100 * SECOND)))
        rows = await lists(engine)
        assert {decode_list(row.shown).arms[0] for row in rows} == {"odd"}
        engine.clock.now += 100 * SECOND
        await engine.ask("home", ArmsOf(["newer"], ["new"]))
        assert listed("new", await lists(engine)) == 0
        await engine.ask("home", ArmsOf((), (), ["new"]))
        rows = [row for row in await lists(engine) if not row.control]
        assert listed("new", rows) > 0.4 - error


@pytest.mark.parametrize(
    ("policy", "floor"),
    [
        (tacit.policies.MinimumShares(tacit.UCB1(3), epsilon=0.2, at_least={0: 0.5}), 0.1),
        (tacit.policies.MinimumShares(tacit.EpsilonGreedy(3, epsilon=0.4), at_least={0: 0.25}), 0.3),
        (tacit.policies.MinimumShares(tacit.UCB1(2), at_least={0: 0.1, 1: 0.2}), 0.2),
        (
            tacit.policies.MinimumShares(tacit.UCB1(2), epsilon=0.5, at_least={0: 0.1, 1: 0.2}),
            0.2 + 0.7 * 0.5,
        ),
        (tacit.ExplorationFloor(tacit.EpsilonGreedy(3, epsilon=0.4), epsilon=0.5), 0.7),
        (tacit.policies.MinimumShares(tacit.UCB1(3), at_least={0: 0.1}), 0.0),
    ],
)
def test_a_floor_is_what_every_arm_is_shown_with_whatever_was_learned(policy, floor):
    assert compute_floor(policy) == pytest.approx(floor)
    assert compute_floor(policy, HoldoutConfig(share=0.5)) == pytest.approx(0.5 * floor + 0.5)
    learner = tacit.Learner(policy, seed=1)
    for _ in range(400):
        decision = learner.choose()
        learner.learn(decision, float(decision.arm == 0))
    assert learner.probabilities().min() >= floor / policy.arm_count - 1e-12


def pairs_of(policy, state, offered, context=()):
    """Return the propensity of each pair of arms on offer."""
    impression = tacit.Impression(np.array(offered), np.array(context, np.float64))
    pairs = itertools.product(offered, repeat=2)
    return {pair: policy.propensity(policy.params, state, 0, impression, pair) for pair in pairs}


def test_promised_shares_of_duels_by_hand():
    """Pairs of the policy, and of each the two in which the promised arm took a place."""
    policy = tacit.policies.MinimumDuelShares(tacit.HorizonDraw(3), at_least={2: 0.3})
    state = policy.init(1)
    inner = pairs_of(policy.policy, state, [0, 1, 2])
    found = pairs_of(policy, state, [0, 1, 2])
    assert found[0, 1] == pytest.approx(0.7 * inner[0, 1])
    assert found[2, 0] == pytest.approx(inner[2, 0] + 0.15 * (inner[1, 0] + inner[0, 0]))
    assert found[2, 2] == pytest.approx(inner[2, 2])
    assert pairs_of(policy, state, [0, 1]) == pytest.approx(pairs_of(policy.policy, state, [0, 1]))
    assert compute_floor(policy) == 0.0


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_promised_shares_of_duels_are_kept_and_are_the_frequencies_of_pairs(epsilon):
    """Sixteen binomial counts at 5.1 sigma: error probability 5e-6."""
    promised = {0: 0.2, 3: 0.1}
    policy = tacit.policies.MinimumDuelShares(tacit.HorizonDraw(4), epsilon=epsilon, at_least=promised)
    learner, rng = tacit.Learner(policy, seed=1), np.random.default_rng(2)
    for i in range(300):
        decision = learner.choose("query")
        first, second = decision.pair
        learner.learn(
            decision, 0.5 if first == second else float(rng.random() < 0.5 + 0.1 * (second - first))
        )
        if i in (0, 3, 30, 299):
            for offered in ([0, 1, 2, 3], [1, 3], [0, 2, 3], [3]):
                chances = pairs_of(policy, learner.state, offered)
                assert sum(chances.values()) == pytest.approx(1.0, abs=1e-12)
                for arm in set(offered) & set(promised):
                    assert sum(chances[pair] for pair in chances if arm in pair) >= promised[arm] - 1e-12
    chances, shown = pairs_of(policy, learner.state, [0, 1, 2, 3]), learner.choose_many(["query"] * 20_000)
    counts = [sum(decision.pair == pair for decision in shown) for pair in chances]
    assert_frequencies(counts, 20_000, list(chances.values()))
    assert all(
        decision.propensity == pytest.approx(chances[decision.pair], rel=1e-12) for decision in shown[:500]
    )


# Duels -----------------------------------------------------------------------------------------

LISTS = {name: [f"{name} {k}" for k in range(3)] for name in ARMS}
DUELS = {"kind": "duels", "rankers": ARMS, "length": 3, "at_least": {"control": 0.2}}


async def searches(engine, rounds=3, best="bold", **more):
    """Search and click what one ranker found."""

    def answer(row):
        items = [item for item in decode_shown(row.shown).interleaved.items if best in item]
        return {"kind": CLICKS, "clicks": Clicked(items=items)} if items else None

    return await ask(engine, rounds, answer, rankings=LISTS, **more)


def pairs(rows):
    return [set(json.loads(row.shown)["pair"]) for row in rows]


def had(arm, rows):
    """Return in which share of searches a ranker was one of the two."""
    return np.mean([arm in pair for pair in pairs(rows)])


async def test_duels_have_what_is_promised_as_one_of_the_two(tmp_path):
    """A binomial count at 5.1 sigma: the chance of what is settled is its promise and little more."""
    async with folded(tmp_path, with_home(**DUELS)) as engine:
        rows = await searches(engine)
        assert abs(had("control", rows) - 0.2) < 0.03 + 5.1 * np.sqrt(0.16 / SIZE)
        # It meets who leads, at the left as at the right.
        duels = zip(rows, pairs(rows), strict=True)
        assert min(row.propensity for row, pair in duels if pair == {"control", "bold"}) >= 0.09


async def test_a_holdout_of_duels_leaves_promises_to_the_policy(tmp_path):
    """Counts are within 5.1 sigma."""
    config = with_home(**DUELS, holdout={"share": 0.3, "control": {"arm": "new"}})
    async with folded(tmp_path, config) as engine:
        rows = await searches(engine)
        held = [row for row in rows if row.control]
        assert all(pair == {"new"} for pair in pairs(held))
        assert abs(len(held) / SIZE - 0.3) < 5.1 * np.sqrt(0.21 / SIZE)
        rest = [row for row in rows if not row.control]
        assert had("control", rest) > 0.2 - 5.1 * np.sqrt(0.16 / len(rest))
        # Over both groups a pair with the promised one has (1 − h) of its chance, its control's pair h more.
        met = {row.propensity for row in rest if set(json.loads(row.shown)["pair"]) == {"control", "bold"}}
        assert min(met) >= 0.7 * 0.09
        assert min(row.propensity for row in held) >= 0.3


async def test_a_pinned_ranker_is_shown_alone_whatever_is_promised(tmp_path):
    async with folded(tmp_path, with_home(**DUELS)) as engine:
        await engine.ask("home", PinOf(["bold"], as_text(START + 100 * SECOND)))
        rows = await searches(engine, rounds=2, count=40)
        assert all(pair == {"bold"} for pair in pairs(rows))
        assert {row.propensity for row in rows} == {1.0}
        # What the policy would have shown has its promises, with what chance is logged, too.
        would = [set(json.loads(row.would)) for row in rows]
        assert any("control" in pair for pair in would)
        assert min(row.would_propensity for row in rows) > 0
        # The pin ends, and the promise holds again.
        rows = await searches(engine)
        assert had("control", rows) > 0.2 - 5.1 * np.sqrt(0.16 / SIZE)


async def test_a_promised_ranker_that_is_retired_comes_back_with_its_promise(tmp_path):
    async with folded(tmp_path, with_home(**DUELS)) as engine:
        await searches(engine)
        await engine.ask("home", ArmsOf(["newer"], ["control"]))
        rows = await searches(engine, rounds=1)
        assert had("control", rows) == 0
        # Nothing is kept free for who is away: the others share all of it.
        assert had("bold", rows) > 0.5
        await engine.ask("home", ArmsOf((), (), ["control"]))
        rows = await searches(engine)
        assert abs(had("control", rows) - 0.2) < 0.05 + 5.1 * np.sqrt(0.16 / SIZE)


async def test_what_began_without_promises_takes_them_over_by_a_rebuild(tmp_path):
    async with folded(tmp_path, with_home(**DUELS | {"at_least": None})) as engine:
        # All clicks go to one of three: the others are hardly shown any more.
        rows = await searches(engine, rounds=4)
        assert had("control", rows) < 0.15
        await engine.rebuild("home", with_home(**DUELS).placements["home"].policy)
        rows = await searches(engine, rounds=1)
        assert abs(had("control", rows) - 0.2) < 0.05 + 5.1 * np.sqrt(0.16 / SIZE)


async def test_another_policy_keeps_what_was_promised(tmp_path):
    async with folded(tmp_path, promising()) as engine:
        await traffic(engine, rounds=2)
        made = await engine.rebuild("home", "kl-ucb")
        assert made.policy_version.left.endswith("Z-MinimumShares-UCB1")
        assert [state.name for state in await engine.states("home")] == [made.policy_version.left]
        policy = engine.placements["home"].config.policy
        assert dict(policy.at_least) == PROMISED
        assert isinstance(policy.policy, tacit.KLUCB)
        rows = await traffic(engine, rounds=2)
        assert abs(shares(rows)["control"] - 0.2) < 0.05 + 5.1 * np.sqrt(0.16 / SIZE)
        # One that says itself what it promises does so.
        await engine.rebuild("home", "minimum-shares(ucb1, at_least={'new': 0.3})")
        assert dict(engine.placements["home"].config.policy.at_least) == {"new": 0.3}
        # What the first 0.3 called it is its name still.
        await engine.rollback("home", made.policy_version.left.removesuffix("-UCB1"))
        assert isinstance(engine.placements["home"].config.policy.policy, tacit.UCB1)


async def test_the_share_of_a_retired_arm_is_said_to_be_suspended_until_it_comes_back(tmp_path):
    path, config = tmp_path / "s.db", promising()
    async with folded(tmp_path, config) as engine:
        await traffic(engine, rounds=1)
        assert (await engine.ask("home", ArmsOf(retire=["control", "bold"]))).suspended == {"control": 0.2}
        assert b"suspended" not in json_of(await engine.ask("home", ArmsOf(restore=["control"])))
        *_, gone, back = [change.detail for change in await engine.history("home")]
        assert (gone["suspended"], "suspended" in back) == ({"control": 0.2}, False)
        assert ArmLifecycle.format_change(gone, str).endswith("; promised shares suspended: control 0.2")
    async with served(path, config) as engine:
        # To ask which arms there are says it again, and is no event.
        changes = await engine.history("home")
        await engine.ask("home", ArmsOf(retire=["control"]))
        assert (await engine.ask("home", ArmsOf())).suspended == {"control": 0.2}
        assert len(await engine.history("home")) == len(changes) + 1


@pytest.mark.parametrize(
    ("policy", "refused"), [("safe-list-mix", None), ("cascade-kl-ucb", "promises shares, as ListMix")]
)
async def test_another_policy_of_lists_promises_the_same_or_is_refused(tmp_path, policy, refused):
    lists = {"kind": "slates", "arms": ARMS, "positions": 2, "policy": "list-mix", "at_least": PROMISED}
    async with served(tmp_path / "s.db", with_home(**lists)) as engine:
        if refused is None:
            await engine.rebuild("home", policy)
            assert dict(engine.placements["home"].config.policy.at_least) == PROMISED
            return
        with pytest.raises(InvalidValue, match=refused):
            await engine.rebuild("home", policy)


async def test_the_page_tells_of_duels_with_promised_shares(tmp_path):
    async with served(tmp_path / "s.db", with_home(**DUELS)) as engine:
        await searches(engine, rounds=2, count=60)
        page = await Pages(engine).placement("home", {})
    assert "MinimumDuelShares(HorizonDraw, at_least={&#39;control&#39;: 0.2})" in page
    assert "Shown at least, whatever is learned: control 20.0 %." in page
    # Both tables are there: how often each won against each, and how often it was shown.
    assert all(page.count(name) > 3 for name in ARMS)


async def test_a_log_of_promised_duels_says_how_often_one_would_win(tmp_path):
    """An interval that holds at any time: error probability 5 %, and the seed is fixed."""
    async with served(tmp_path / "s.db", with_home(**DUELS, ties="keep")) as engine:
        found = []
        for _ in range(6):
            for row in await searches(engine, rounds=1):
                left, right = json.loads(row.shown)["pair"]
                won = 0.5 + 0.5 * ((left == "bold") - (right == "bold"))
                found.append((left, right, won, row.propensity))
    best, worst = always(found, "bold", "control"), always(found, "new", "control")
    # The promised one is met so often that the log tells, and as the truth is.
    assert 0.5 < best.low <= best.high <= 1.0
    assert worst.low <= 0.5 <= worst.high
    # Each pair of different ones counts by its chance: they are one of all on average.
    weights = [0.5 / chance for left, right, _, chance in found if {left, right} == {"bold", "control"}]
    assert sum(weights) / len(found) == pytest.approx(1.0, abs=0.2)


# Who is asking ---------------------------------------------------------------------------------
#
# No policy of duels or of lists by name that comes with the package reads a context; one that somebody
# writes may, and what is promised holds in each.


def pairs_drawn(inner, offered, epsilon, promised):
    """Return the chance of each pair by going through all draws: of two arms, then of who takes a place."""
    found = dict.fromkeys(inner, 0.0)
    for pair, chance in inner.items():
        drawn = epsilon / len(offered) ** 2 + (1 - epsilon) * chance
        found[pair] += drawn * (1 - sum(promised.get(arm, 0.0) for arm in offered))
        for arm in set(promised) & set(offered):
            for taken in ((arm, pair[1]), (pair[0], arm)):
                found[pair if arm in pair else taken] += 0.5 * promised[arm] * drawn
    return found


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_promised_shares_of_duels_for_each_who_asks_are_those_of_enumeration(epsilon):
    promised = {0: 0.2, 3: 0.1}
    policy = tacit.policies.MinimumDuelShares(AskingDuel(4), epsilon=epsilon, at_least=promised)
    learner = tacit.Learner(policy, seed=1)
    for i in range(200):
        # Who asks with 1 wants the last arm, who asks with −1 the second.
        context = [1.0 - 2.0 * (i % 2)]
        decision = learner.choose("query", context)
        left, right = decision.pair
        wanted = 3 if context[0] > 0 else 1
        learner.learn(decision, 0.5 + 0.5 * ((left == wanted) - (right == wanted)))
        chances = pairs_of(policy, learner.state, range(4), context)
        assert decision.propensity is not None
        if i in (0, 1, 50, 199):
            for offered in ([0, 1, 2, 3], [1, 3], [2, 1, 0], [3]):
                inner = pairs_of(policy.policy, learner.state, offered, context)
                expected = pairs_drawn(inner, offered, epsilon, promised)
                found = pairs_of(policy, learner.state, offered, context)
                assert found == pytest.approx(expected, abs=1e-12)
                assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
    # The two who ask are shown other pairs, and those that are logged have the chances of their own.
    leads = [max(chances, key=chances.get)[0] for chances in (
        pairs_of(policy.policy, learner.state, range(4), [x]) for x in (1.0, -1.0)
    )]  # fmt: skip
    assert leads == [3, 1]
    for x in (1.0, -1.0):
        chances = pairs_of(policy, learner.state, range(4), [x])
        for decision in learner.choose_many(["query"] * 200, [[x]] * 200):
            assert decision.propensity == pytest.approx(chances[decision.pair], rel=1e-12)


async def test_promises_of_duels_hold_for_each_who_asks_in_the_service(tmp_path):
    async with folded(tmp_path, with_home(**DUELS, policy="toy_asking:AskingDuel")) as engine:
        for best, x in (("bold", 1.0), ("new", -1.0)) * 2:
            rows = await searches(engine, rounds=2, count=120, best=best, context=[x])
        for x in (1.0, -1.0):
            rows = await searches(engine, rounds=1, best="nobody", context=[x])
            learner = engine.placements["home"].learner
            inner = pairs_of(learner.policy.policy, learner.state, range(3), [x])
            chances = pairs_drawn(inner, range(3), 0.0, {0: 0.2})
            for row in rows:
                left, right = map(ARMS.index, json.loads(row.shown)["pair"])
                assert row.propensity == pytest.approx(chances[left, right], rel=1e-12)
            assert had("control", rows) > 0.2 - 5.1 * np.sqrt(0.16 / SIZE)
        await engine.rebuild(
            "home", tacit.policies.MinimumDuelShares(AskingDuel(ARMS), at_least={"new": 0.4})
        )
        rows = await searches(engine, rounds=1, best="nobody", context=[1.0])
        assert had("new", rows) > 0.4 - 5.1 * np.sqrt(0.24 / SIZE)


async def test_promises_of_lists_hold_for_each_who_asks_in_the_service(tmp_path):
    """From any log: what is promised stands at each position with its half at least, whoever asked."""
    table = {"kind": "slates", "arms": [*ARMS, "old"], "positions": 2, "at_least": {"new": 0.4}}
    config = with_home(**table, policy="toy_asking:AskingList", context_dim=1)
    assert config.placements["home"].policy == AskingList([*ARMS, "old"], 2, at_least={"new": 0.4})
    async with folded(tmp_path, config) as engine:
        for x in (1.0, -1.0):
            rows = await lists(engine, rounds=3, context=[x])
            assert listed("new", rows) > 0.4 - 5.1 * np.sqrt(0.24 / SIZE)
        engine.clock.now += 100 * SECOND
        await engine.ask("home", ArmsOf(["newer"], ["old"]))
        await lists(engine, rounds=1, context=[1.0])
        await engine.rebuild("home", AskingList([*ARMS, "old"], 2, epsilon=0.2))
        assert dict(engine.placements["home"].config.policy.at_least) == {"new": 0.4}
        rows = await lists(engine, context=[1.0])
        assert listed("new", rows) > 0.4 - 5.1 * np.sqrt(0.24 / SIZE)
        engine.clock.now += 100 * SECOND
        await engine.wait_until_durable(["home"])
        export(engine.config, engine.store, tmp_path / "log")
    log = [row for part in read_log(tmp_path / "log" / "lists-home.parquet") for row in part.to_pylist()]
    assert {row["context"][0] for row in log} == {1.0, -1.0}
    assert min(row["position_propensity"] for row in log if row["arm"] == "new") >= 0.2 - 1e-12
