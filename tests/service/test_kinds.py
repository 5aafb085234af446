"""Kinds of placements: each a record, which everything that depends on the kind asks."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
import toy_kind
from harness import Client, with_home

import tacit
from tacit.errors import ConfigError, InvalidValue
from tacit.service.app.server import run_in_thread
from tacit.service.kind import KINDS, get_kind

COINS = {"kind": "coins", "coins": ["penny", "dime"], "policy": "ucb1", "seed": 7}
SERVICE = Path(tacit.__file__).parent / "service"


@pytest.fixture
def coins(monkeypatch, tmp_path):
    monkeypatch.setitem(KINDS, "coins", toy_kind.KIND)

    return partial(with_home, tmp_path / "s.db", "toss", **COINS)


def test_a_kind_from_outside_is_configured_served_shown_and_recovered(coins):
    config = coins(stake=0.25)
    assert (config.placements["toss"].kind, config.placements["toss"].options) == ("coins", 0.25)
    with run_in_thread(config) as address:
        client = Client(address)
        decision = client.post("toss/decide", {"key": "k"})[2]
        assert decision["arm"].lower() in COINS["coins"]
        assert decision["arm"].isupper()
        told = {"decision_id": decision["decision_id"], "reward": 1.0}
        assert client.post("toss/feedback", told)[2]["outcome"] == "learned"
        page = client.ask("GET", "/placements/toss")[2].decode()
        assert "share of impressions of each coin over time" in page
        assert client.ask("GET", "/v1/placements")[2]["placements"][0]["kind"] == "coins"
    with run_in_thread(config) as address:
        client = Client(address)
        (placement,) = client.ask("GET", "/v1/placements")[2]["placements"]
        assert (placement["decisions"], placement["feedback"]) == (1, 1)
        page = client.ask("GET", "/key?placement=toss&key=k")[2].decode()
        # A reward of 1 taught a quarter.
        assert "25.0 %" in page or "25 %" in page


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"stake": 2.0}, "placements.toss.stake"),
        ({"arms": 3}, "placements.toss"),
        ({"policy": "rmed1"}, "not for the kind 'coins'"),
        ({"kind": "dice"}, "placements.toss.kind: 'dice'"),
    ],
)
def test_its_table_is_as_strict_as_the_others(coins, change, told):
    with pytest.raises(ConfigError, match=re.escape(told)):
        coins(**change)


def test_an_unknown_kind_is_named_with_those_there_are():
    with pytest.raises(InvalidValue, match="arms, features, duels, slates"):
        get_kind("dice")


@pytest.mark.parametrize("name", list(KINDS))
def test_a_record_says_its_own_name(name):
    assert get_kind(name).name == name


def test_only_the_rooms_of_kinds_tell_them_apart():
    rooms = ("placements", "page", "doors")
    records = tuple(SERVICE / "http" / f"{name}.py" for name in KINDS)
    names = "|".join(KINDS)
    telling = re.compile(rf"isinstance\([^)]*Placement\)|(==|!=|\bin) \(?\"({names})\"")
    found = [
        f"{file.relative_to(SERVICE)}: {line.strip()}"
        for file in sorted(SERVICE.rglob("*.py"))
        if file.relative_to(SERVICE).parts[0] not in rooms and file not in records
        for line in file.read_text().splitlines()
        if telling.search(line)
    ]
    assert found == []


RANKERS = ["old", "new", "odd"]
DUELS = {"kind": "duels", "rankers": RANKERS, "length": 4}
VERDICTS = DUELS | {
    "policy": "rmed1",
    "worth": {"click": 1.0, "purchase": 10.0},
    "segments": ["market", "key"],
}
SLATES = {"kind": "slates", "arms": list("abcde"), "policy": "cascade-kl-ucb"}
FEATURES = {"kind": "features", "policy": "lin-ts(relevance_dim=2, examination_dim=1)"}
ITEM_LISTS = {
    "kind": "slates",
    "policy": "item-list-mix(epsilon=0.1)",
    "relevance_dim": 4,
    "context": {"device": ["ios", "web"]},
}


@pytest.mark.parametrize(
    ("table", "more", "said"),
    [
        (DUELS, {"rankers": ["one"]}, "placements.home.rankers"),
        (DUELS, {"rankers": ["one", "one"]}, "placements.home: arms"),
        (DUELS, {"interleaving": "round-robin"}, "placements.home.interleaving"),
        (DUELS, {"interleaving": "optimized", "length": 13}, "placements.home: length"),
        (DUELS, {"length": 0}, "placements.home.length"),
        (DUELS, {"ties": "maybe"}, "placements.home.ties"),
        (DUELS, {"unclicked": "loss"}, "placements.home.unclicked"),
        (DUELS, {"default_reward": 0.5}, "placements.home.default_reward"),
        (DUELS, {"aggregation": "sum"}, "placements.home.aggregation"),
        (DUELS, {"arms": 3}, "placements.home.arms"),
        (DUELS, {"mode": "asleep"}, "placements.home.mode"),
        (DUELS, {"policy": "ucb1"}, "placements.home.policy"),
        (DUELS, {"kind": "duel"}, "placements.home.kind"),
        (DUELS, {"kind": "arms"}, "placements.home"),
        (SLATES, {"policy": "ucb1"}, "placements.home.policy"),
        (SLATES, {"policy": "ranked-bandit(ucb1)"}, "placements.home: policy"),
        (SLATES, {"positions": 0}, "placements.home.positions"),
        (SLATES, {"default_reward": 1}, "placements.home.default_reward"),
        (SLATES, {"aggregation": "max"}, "placements.home.aggregation"),
        (FEATURES, {"policy": "ucb1", "arms": 2}, "placements.home.policy"),
        (FEATURES, {"policy": "rmed1", "arms": 2}, "placements.home.policy"),
        (FEATURES, {"shadow": "lin-ts(relevance_dim=1, examination_dim=1)"}, "placements.home.shadow"),
        (FEATURES, {"rankers": ["a", "b"]}, "placements.home.rankers"),
        (ITEM_LISTS, {"arms": ["a", "b"]}, "arms"),
        (ITEM_LISTS, {"policy": "embedding-mixture"}, "policy"),
        (ITEM_LISTS, {"policy": "list-mix", "arms": 3}, "context"),
        (ITEM_LISTS, {"policy": "item-list-mix", "relevance_dim": None}, "relevance_dim"),
        (ITEM_LISTS, {"policy": "auto", "relevance_dim": None, "context": None}, "arms"),
        (ITEM_LISTS, {"holdout": {"share": 0.1, "control": {"policy": "item-list-mix"}}}, "policy"),
        (VERDICTS, {"worth": {"purchase": -1.0}}, r"placements\.home\.?.*worth.purchase"),
        (VERDICTS, {"worth": {}}, r"placements\.home\.?.*worth"),
        (VERDICTS, {"segments": ["left"]}, r"placements\.home\.?.*segments"),
        (VERDICTS, {"segments": ["session"]}, r"placements\.home\.?.*segments"),
        (VERDICTS, {"segments": [""]}, r"placements\.home\.?.*segments"),
    ],
)
def test_a_wrong_configuration_is_refused_by_key(table, more, said):
    with pytest.raises(ConfigError, match=f"configuration: .*{said}"):
        with_home(**table | more)
