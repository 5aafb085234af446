"""Holdouts of placements that show lists, or let rankers duel."""

import json
import math
import urllib.request
from itertools import permutations

import harness
import numpy as np
import placement_access as access
import pytest
from holdouts import check_frequency, closed, count_reported, report

from tacit.client import Clicks as Sent
from tacit.client import Client, InvalidRequest
from tacit.errors import InvalidValue
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


async def finished(engine):
    """Let all windows close; return what is said of the lift."""
    await closed(engine)
    return report(engine)


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
        prefixes = control.compute_prefix_probabilities(lists, offers)
        places = control.compute_position_probabilities(lists, offers)
        for k in range(positions):
            begun = [chances[(lists[:, : k + 1] == one[: k + 1]).all(axis=1)].sum() for one in lists]
            there = [chances[lists[:, k] == one[k]].sum() for one in lists]
            np.testing.assert_allclose(prefixes[:, k], begun)
            np.testing.assert_allclose(places[:, k], there)
        drawn = control.choose_actions([offer] * 600, np.arange(600, dtype=np.uint64)).tolist()
        for one, chance in zip(lists.tolist(), chances, strict=True):
            # Within 6 standard errors.
            assert abs(drawn.count(one) / 600 - chance) <= 6 * math.sqrt(chance / 600)


@pytest.mark.parametrize(
    ("control", "policy"), [("uniform", "list-mix"), ("baseline", "list-mix"), ("uniform", "cascade-kl-ucb")]
)
async def test_lists_have_a_holdout(tmp_path, control, policy):
    config = harness.with_home(
        **LISTS | {"policy": policy},
        holdout={"share": 0.4, "control": control, "unit": "user"},
        metrics={"revenue": {}},
        snapshot_every=200,
    )
    rng, asked = np.random.default_rng(1), [DecisionRequest("k", user=f"u{i % 30}") for i in range(400)]
    async with harness.folding(tmp_path / "s.db", config) as engine:
        early, rows, clicks = await told(engine, *asked), await access.decide(engine, *asked), 0
        # The windows of the first are closed by now: what is clicked counts for the second alone.
        for row in rows:
            positions = [0] if rng.random() < 0.4 else [0, 1] if rng.random() < 0.2 else []
            clicks += bool(positions)
            await harness.clicked(engine, row, positions, metrics=encode_metrics({"revenue": 2.0}))
        lift = access.get_lift(engine.placements["home"])
        assert lift.reward.totals.sum() == 0
        found = await finished(engine)
        assert lift.reward.totals.sum() == clicks
        assert lift.metrics["revenue"].totals.sum() == 2.0 * len(rows)
        counted = [row for row in early if row.seq >= lift.seq]
    assert {row.control for row in counted} == {0, 1}
    assert len({(i % 30, row.control, row.bucket) for i, row in enumerate(counted)}) == 30
    if control == "baseline":
        assert {tuple(decode_list(row.shown).arms) for row in counted if row.control} == {("a", "b")}
    assert (found.control, found.unit, found.winner) == (control, "user", None)
    assert count_reported(found) == len(counted) + len(rows)
    assert found.metrics[0].name == "revenue"


async def test_lists_are_hardly_told_by_their_propensities(tmp_path):
    config = harness.with_home(**LISTS, holdout={"share": 0.4})
    async with harness.served(tmp_path / "s.db", config) as engine:
        with pytest.raises(InvalidValue, match="hardly tell"):
            report(engine, control="uniform")


@pytest.mark.parametrize("control", ["uniform", "baseline"])
async def test_logged_propensities_of_lists_are_the_frequencies(tmp_path, control):
    """Over every list, and every arm at every position: Σ 1/q is the number of decisions."""
    config = harness.with_home(**LISTS | {"arms": 3}, holdout={"share": 0.3, "control": control})
    async with harness.served(tmp_path / "s.db", config) as engine:
        rows = []
        for i in range(20):
            engine.clock.now += 40 * harness.SECOND
            rows += await access.decide(engine, *[DecisionRequest("k")] * 100)
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
    async with harness.folding(tmp_path / "s.db", config) as engine:
        home = engine.placements["home"]
        asked = [DecisionRequest("k", session=f"s{i % 20}", rankings=RANKINGS) for i in range(120)]
        rows = []
        for one in asked:
            (row,) = await told(engine, one)
            assert (await harness.clicked(engine, row, [0]) == "held-out") == bool(row.control)
            rows.append(row)
        with pytest.raises(InvalidValue, match="rankings"):
            access.check_request(home, DecisionRequest("k"))
        found = await finished(engine)
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
        assert list(access.decode_shown(row.shown).interleaved.items) == RANKINGS[left][:3]
    others = [row for row in rows if not row.control]
    assert duels == sum(len(set(json.loads(row.shown)["pair"])) == 2 for row in others)
    assert counted == len(rows)
    assert sum(group.rewards for group in found.groups.values()) == len(rows)
    assert len({(i % 20, row.control) for i, row in enumerate(rows)}) == 20


async def test_logged_propensities_of_duels_are_the_frequencies(tmp_path):
    config = harness.with_home(**DUELS, holdout={"share": 0.3, "control": "uniform"})
    async with harness.served(tmp_path / "s.db", config) as engine:
        rows = []
        for _ in range(20):
            engine.clock.now += 40 * harness.SECOND
            rows += await access.decide(engine, *[DecisionRequest("k", rankings=RANKINGS)] * 100)
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
        rows = await access.decide(engine, *[DecisionRequest("k", rankings=RANKINGS)] * 40)
        held = [row for row in rows if row.control]
        assert held
        for row in held:
            await harness.clicked(engine, row, [0])
        engine.clock.now += 3600 * harness.SECOND
        # What closes the windows is committed.
        await engine.ask("home", ModeOf("online"))
        assert access.count_open(home) == 0
        assert access.count_duels(home) == (0 if mode == "frozen" else len(rows) - len(held))


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
    # What a holdout found is still said when it has ended, here and on the page.
    ended = harness.configured(tmp_path / "s.db", placements=placements | {"lists": LISTS, "duels": DUELS})
    with harness.by_clock(ended, clock) as address, Client(address) as client:
        for name in ("lists", "duels"):
            found = client.lift(name)
            assert (found.claim, found.share, found.verdict[:20]) == ("better", 0.5, "Of chapters 1 to 1: ")
            assert client.lift(name, begin="1").verdict == found.verdict.replace("1:", "2:")
            assert b"Of chapters 1 to 1: " in urllib.request.urlopen(f"{address}/placements/{name}").read()
