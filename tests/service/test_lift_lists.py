"""Holdouts of placements that show lists, or let rankers duel."""

from __future__ import annotations

import asyncio
import json
import math
from itertools import permutations

import harness
import msgspec
import numpy as np
import placement_access as access
import pytest
from holdouts import check_frequency

from tacit.client import Clicks as Sent
from tacit.client import Client, InvalidRequest
from tacit.errors import ConfigError, InvalidValue
from tacit.service.log.requests import DecisionRequest, encode_metrics
from tacit.service.log.rows import decode_list
from tacit.service.maintenance.log_export import export
from tacit.wire.control import ModeOf
from tacit.wire.decisions import Impression as Wanted
from tests.cli.test_cli import tacit

LISTS = {"kind": "slates", "arms": ["a", "b", "c", "d"], "policy": "list-mix", "positions": 2}
DUELS = {"kind": "duels", "rankers": ["old", "new"], "policy": "rmed1"}
RANKINGS = {"old": [1, 2, 3, 4], "new": [4, 3, 2, 1]}


async def told(engine, *asked):
    """Decide, each a second after the other; return the rows."""
    rows = []
    for one in asked:
        engine.clock.now += harness.SECOND
        rows += await access.decide(engine, one)
    return rows


async def finished(engine, path, config):
    """Let all windows close, and check the fold; return what is said of the lift."""
    engine.clock.now += 3600 * harness.SECOND
    await engine.ask("home", ModeOf("online"))
    with harness.recovered(harness.as_after_a_crash(path), config) as again:
        assert harness.learned(again) == harness.learned(engine)
    return access.make_lift_report(engine.placements["home"], engine.clock())


# Lists ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["uniform", "baseline"])
def test_what_a_control_lists_with_what_probability(named):
    """Over all lists that there are, chances add up to 1; beginnings and places are their sums."""
    for offer, positions in ((np.array([2, 0, 1]), 2), (np.array([1, 0]), 3)):
        control = access.ListControl(named, positions)
        count = min(positions, len(offer))
        lists = np.array([
            [*some, *[-1] * (positions - count)] for some in permutations(offer.tolist(), count)
        ])  # fmt: skip
        offers = [offer] * len(lists)
        chances = control.compute_probabilities(lists, offers)
        assert math.isclose(chances.sum(), 1.0)
        prefixes, places = (
            control.prefix_probabilities(lists, offers),
            control.position_probabilities(lists, offers),
        )
        for k in range(positions):
            begun = [chances[(lists[:, : k + 1] == one[: k + 1]).all(axis=1)].sum() for one in lists]
            there = [chances[lists[:, k] == one[k]].sum() for one in lists]
            np.testing.assert_allclose(prefixes[:, k], begun)
            np.testing.assert_allclose(places[:, k], there)
        drawn = [control.choose_action(offer, draw).tolist() for draw in range(600)]
        for one, chance in zip(lists.tolist(), chances, strict=True):
            # Within 6 standard errors.
            assert abs(drawn.count(one) / 600 - chance) <= 6 * math.sqrt(chance / 600)


@pytest.mark.parametrize(
    ("control", "policy"), [("uniform", "list-mix"), ("baseline", "list-mix"), ("uniform", "cascade-kl-ucb")]
)
def test_lists_have_a_holdout(tmp_path, control, policy):
    async def session():
        config = harness.with_home(
            **LISTS | {"policy": policy},
            holdout={"share": 0.4, "control": control, "unit": "user"},
            metrics={"revenue": {}},
            snapshot_every=200,
        )
        path, rng = tmp_path / "s.db", np.random.default_rng(1)
        async with harness.served(path, config) as engine:
            asked = [DecisionRequest("k", user=f"u{i % 30}") for i in range(400)]
            rows = await told(engine, *asked)
            return await _clicked_lists(engine, rows, rng, path, config)

    rows, found = asyncio.run(session())
    sides = {row.control for row in rows}
    assert sides == {0, 1}
    of = {}
    for i, row in enumerate(rows):
        of.setdefault(i % 30, set()).add((row.control, row.bucket))
    assert all(len(one) == 1 for one in of.values())
    if control == "baseline":
        assert {tuple(decode_list(row.shown).arms) for row in rows if row.control} == {("a", "b")}
    assert (found.control, found.unit, found.winner) == (control, "user", None)
    assert sum(group.decisions for group in found.groups.values()) == len(rows)
    assert found.metrics[0].name == "revenue"
    with pytest.raises(InvalidValue, match="hardly tell"):
        asyncio.run(_refused(tmp_path, harness.with_home(**LISTS, holdout={"share": 0.4})))


async def _clicked_lists(engine, rows, rng, path, config):
    # The windows are closed by now: what is clicked below counts, what was shown above does not.
    home = engine.placements["home"]
    told = [DecisionRequest("k", user=f"u{i % 30}") for i in range(len(rows))]
    made = await access.decide(engine, *told)
    some = 0
    for row in made:
        positions = [0] if rng.random() < 0.4 else [0, 1] if rng.random() < 0.2 else []
        some += bool(positions)
        await harness.clicked(engine, row, positions, metrics=encode_metrics({"revenue": 2.0}))
    before = access.get_lift(home).reward.totals.copy()
    assert before.sum() == 0
    found = await finished(engine, path, config)
    assert access.get_lift(home).reward.totals.sum() == some
    assert access.get_lift(home).metrics["revenue"].totals.sum() == 2.0 * len(made)
    rows = [row for row in rows if row.seq >= access.get_lift(home).seq]
    groups = {name: type(g)(g.decisions - n, g.rewards) for (name, g), n in zip(
        found.groups.items(),
        (sum(r.control == 1 for r in made), sum(r.control == 0 for r in made)),
        strict=True,
    )}  # fmt: skip
    return rows, msgspec.structs.replace(found, groups=groups)


async def _refused(tmp_path, config):
    async with harness.served(tmp_path / "refused.db", config) as engine:
        access.make_lift_report(engine.placements["home"], engine.clock(), control="uniform")


@pytest.mark.parametrize("control", ["uniform", "baseline"])
async def test_logged_propensities_of_lists_are_the_frequencies(tmp_path, control):
    """Over every list, and every arm at every position: Σ 1/q is the number of decisions."""
    config = harness.with_home(**LISTS | {"arms": 3}, holdout={"share": 0.3, "control": control})
    async with harness.served(tmp_path / "s.db", config) as engine:
        rows = []
        for i in range(20):
            engine.clock.now += 40 * harness.SECOND
            asked = [DecisionRequest("k") for _ in range(100)]
            rows += await access.decide(engine, *asked)
            for row in rows[-100::3]:
                await harness.clicked(engine, row, [i % 2])
    slates = [decode_list(row.shown) for row in rows]
    for slate, row in zip(slates, rows, strict=True):
        assert math.isclose(slate.prefix_propensities[-1], row.propensity)
        assert slate.prefix_propensities[0] == pytest.approx(slate.position_propensities[0])
    # Beside a fixed list, only that one can be shown always.
    always = [(0, 1)] if control == "baseline" else permutations(range(3), 2)
    q = np.array([row.propensity for row in rows])
    for one in always:
        check_frequency(np.array([tuple(slate.arms) == one for slate in slates]), q)
    for k in range(2):
        q = np.array([slate.position_propensities[k] for slate in slates])
        for arm in [k] if control == "baseline" else range(3):
            check_frequency(np.array([slate.arms[k] == arm for slate in slates]), q)


# Duels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "control"),
    [("probabilistic", "baseline"), ("team-draft", {"arm": "new"}), ("balanced", "uniform")],
)
async def test_the_control_of_duels_shows_one_list_alone(tmp_path, method, control):
    config = harness.with_home(
        **DUELS,
        holdout={"share": 0.4, "control": control, "unit": "session"},
        interleaving=method,
        length=3,
        unclicked="nothing",
        aggregation="first",
    )
    path = tmp_path / "s.db"
    async with harness.served(path, config) as engine:
        home = engine.placements["home"]
        asked = [DecisionRequest("k", session=f"s{i % 20}", rankings=RANKINGS) for i in range(120)]
        rows = []
        for one in asked:
            (row,) = await told(engine, one)
            outcome = await harness.clicked(engine, row, [0])
            assert (outcome == "held-out") == bool(row.control)
            rows.append(row)
        with pytest.raises(InvalidValue, match="rankings"):
            access.check_request(home, DecisionRequest("k"))
        found = await finished(engine, path, config)
        written = export(config, engine.store, tmp_path / "out")
        assert written["duels-home"] == sum(not row.control for row in rows)
        duels, counted = access.get_tallies(home)["k"].duels, access.get_lift(home).reward.counts.sum()
    held = [row for row in rows if row.control]
    assert 0 < len(held) < len(rows)
    alone = {"baseline": {"old"}, "uniform": {"old", "new"}}.get(str(control), {"new"})
    assert {json.loads(row.shown)["pair"][0] for row in held} == alone
    for row in held:
        left, right = json.loads(row.shown)["pair"]
        assert left == right
        assert access.parse_interleaved(row)["items"] == RANKINGS[left][:3]
    others = [row for row in rows if not row.control]
    assert duels == sum(len(set(json.loads(row.shown)["pair"])) == 2 for row in others)
    assert counted == len(rows)
    assert sum(group.rewards for group in found.groups.values()) == len(rows)
    of = {}
    for i, row in enumerate(rows):
        of.setdefault(i % 20, set()).add(row.control)
    assert all(len(one) == 1 for one in of.values())


async def test_logged_propensities_of_duels_are_the_frequencies(tmp_path):
    config = harness.with_home(**DUELS, holdout={"share": 0.3, "control": "uniform"})
    async with harness.served(tmp_path / "s.db", config) as engine:
        rows = []
        for _ in range(20):
            engine.clock.now += 40 * harness.SECOND
            asked = [DecisionRequest("k", rankings=RANKINGS) for _ in range(100)]
            rows += await access.decide(engine, *asked)
            for row in rows[-100::2]:
                await harness.clicked(engine, row, [0])
    pairs = [tuple(json.loads(row.shown)["pair"]) for row in rows]
    q = np.array([row.propensity for row in rows])
    for pair in {("old", "old"), ("new", "new")}:
        check_frequency(np.array([one == pair for one in pairs]), q)


@pytest.mark.parametrize("mode", ["frozen", "online"])
async def test_clicks_on_the_list_of_a_control_teach_nothing_and_stop_nothing(tmp_path, mode):
    """While nothing was learned, windows of such decisions could not close, and no group was committed."""
    config = harness.with_home(**DUELS, holdout={"share": 0.5, "control": {"arm": "old"}})
    async with harness.folding(tmp_path / "s.db", config, crash=False) as engine:
        home = engine.placements["home"]
        await engine.ask("home", ModeOf(mode))
        asked = [DecisionRequest("k", rankings=RANKINGS) for _ in range(40)]
        rows = await access.decide(engine, *asked)
        held = [row for row in rows if row.control]
        assert held
        for row in held:
            await harness.clicked(engine, row, [0])
        engine.clock.now += 3600 * harness.SECOND
        # What closes the windows is committed.
        await engine.ask("home", ModeOf("online"))
        assert access.count_open(home) == 0
        assert home.duels == (0 if mode == "frozen" else len(rows) - len(held))


# What cannot be ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "holdout", "message"),
    [
        (LISTS, {"control": {"arm": "a"}}, "it is one of uniform, baseline, not arm"),
        (LISTS, {"control": {"policy": "list-mix"}}, "not policy"),
        (DUELS, {"control": {"policy": "rmed1"}}, "uniform, baseline, arm, not policy"),
        (DUELS, {"control": {"arm": "soup"}}, "none of the arms"),
    ],
)
def test_what_a_kind_does_not_have_refuses_to_start(placement, holdout, message):
    with pytest.raises(ConfigError, match=message):
        harness.with_home(**placement, holdout=holdout)


# Over HTTP -----------------------------------------------------------------------------------


def test_the_lift_of_lists_and_duels_over_http(tmp_path):
    clock = harness.Clock()
    held = {"seed": 3, "holdout": {"share": 0.5, "control": "baseline"}}
    placements = {"lists": LISTS | held, "duels": DUELS | held, "plain": LISTS, "alone": DUELS}
    rng = np.random.default_rng(4)
    with (
        harness.by_clock(harness.configured(tmp_path / "s.db", placements=placements), clock) as address,
        Client(address) as client,
    ):
        for _ in range(6):
            made = client.slate_many("lists", [Wanted("k", user="ann")] * 300)
            # Only d is ever clicked, which the control never lists.
            sent = [Sent(one.decision_id, items=["d"] if "d" in one.slate else []) for one in made]
            client.clicks_many("lists", sent)
            clock.now += 40 * harness.SECOND
        client.slate("lists", "k", user="bob")
        found = client.lift("lists")
        assert found.claim == "better"
        assert found.groups["control"].rewards == 0
        for _ in range(300):
            one = client.duel("duels", RANKINGS, key="k", user="ann")
            hits = [item for item in one.items[:1] if item == 4 or rng.random() < 0.05]
            client.clicks("duels", one.decision_id, items=hits)
        clock.now += 40 * harness.SECOND
        client.duel("duels", RANKINGS, user="u")
        found = client.lift("duels")
        assert found.claim == "better"
        # Which ranker is best is no question of what learning earned.
        assert found.winner_verdict == client.standings("duels").report["verdict"]
        said = tacit("placement", "duels", "duels", "--url", address).stdout
        assert said.splitlines()[0] == found.winner_verdict
        assert "key k; in the race: " in said
        assert tacit("placement", "duels", "duels", "--of-key", "k", "--url", address).stdout == said
        assert found.winner_verdict in tacit("lift", "duels", "--url", address).stdout
        with pytest.raises(InvalidRequest, match="give it a holdout"):
            client.lift("plain")
        with pytest.raises(InvalidRequest, match="tacit placement duels alone says"):
            client.lift("alone")
        assert {row.alarm for row in found.srm} == {False}
