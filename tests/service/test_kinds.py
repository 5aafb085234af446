"""Kinds of placements: each a record, which everything that depends on the kind asks."""

import re
from functools import partial
from pathlib import Path

import pytest
import toy_kind
from harness import Client, with_home

import tacit
from tacit.errors import ConfigError
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
