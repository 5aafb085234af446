"""A chain decides in columns, and projections watch: new ones are a class and a line."""

import dataclasses
import json
import sys
import warnings
from itertools import count

import numpy as np
import pytest
import toy_kind
from harness import SECOND, START, Client, everything, folded, with_home
from placement_access import load_placement
from toy_parts import EveryTenth, HourlyCounts

from tacit.service.app.server import run_in_thread
from tacit.service.kind import KINDS, get_kind
from tacit.service.log.blocks import Block
from tacit.service.log.requests import DecisionRequest, Impression
from tacit.service.log.rows import ChangeRow, DecisionRow, FeedbackRow
from tacit.service.log.sqlite import SqliteStore

ARMS = ["a", "b", "c"]


@pytest.fixture
def toys(monkeypatch, tmp_path):
    """Return the configuration of a kind with a stage and a projection of its own."""
    parts = toy_kind.KIND.parts._replace(
        stages=[lambda placement, decider: EveryTenth(placement, decider, "dime")],
        aspects=[lambda placement: HourlyCounts()],
    )
    monkeypatch.setitem(KINDS, "coins", dataclasses.replace(toy_kind.KIND, parts=parts))
    coins = ["penny", "nickel", "dime"]
    return with_home(tmp_path / "s.db", "home", kind="coins", coins=coins, policy="thompson", seed=7)


def test_a_stage_of_ones_own_decides_and_a_projection_of_ones_own_is_on_the_page(toys, tmp_path):
    with run_in_thread(toys) as address:
        client = Client(address)
        made = [client.post("home/decide", {"key": "k"})[2] for _ in range(7)]
        made += client.post("home/decide/batch", {"decisions": [{"key": "k"}] * 25})[2]["decisions"]
        assert [each["arm"].upper() for each in made[9::10]] == ["DIME"] * 3
        assert [each["propensity"] for each in made[9::10]] == [1.0] * 3
        assert all(each["propensity"] < 1.0 for i, each in enumerate(made) if i % 10 != 9)
        for each in made:
            assert client.post("home/feedback", {"decision_id": each["decision_id"], "reward": 1.0})[0] == 200
        page = client.ask("GET", "/placements/home")[2].decode()
        assert "decisions in this hour: 32" in page
    # After a stop the projection comes from its snapshot, and from the log it is the same.
    with run_in_thread(toys) as address:
        page = Client(address).ask("GET", "/placements/home")[2].decode()
        assert "decisions in this hour: 32" in page
    assert folded(tmp_path / "s.db", toys).added["HourlyCounts"].counts.total() == 32


# What is on stays in columns ------------------------------------------------------------------

INNER, OUTER = "policies_of_ones_own:InTurn(tries=2)", "policies_of_ones_own:InTurn(tries=5)"
CONTROL = {"share": 0.5, "control": {"policy": INNER}}
CASES = {
    "pin": ({}, ("pin", json.dumps({"arms": ["b"], "until": START * 2}))),
    "frozen": ({}, ("mode", "frozen")),
    "shadow": ({"shadow": INNER}, ("mode", "shadow")),
    "holdout": ({"holdout": {"share": 0.5, "unit": "user", "control": "baseline"}}, None),
    "control policy": ({"holdout": CONTROL | {"unit": "user"}}, None),
    "shadow of a holdout": (
        {"shadow": INNER, "holdout": {"share": 0.5, "control": "baseline"}},
        ("mode", "shadow"),
    ),
}


def play(path, table, change, size):
    """Decide for 60 impressions in batches of a size, with a reward for each; return rows and placement."""
    config = with_home(path, arms=ARMS, policy=OUTER, **table)
    store = SqliteStore(path)
    placement = load_placement("home", config.placements["home"], store, 7)
    numbers = count()
    # Ids do not depend on how decisions are grouped.
    placement.new_ids = lambda time, keys, seq: [f"id {next(numbers)}" for _ in keys]
    seq, time, rows = 1, START, []
    placement.learning.advance(time)
    if change is not None:
        placement.apply_change(ChangeRow(seq, placement.id, time, *change, None))
    impressions = [placement.reader.read(DecisionRequest(f"k{i % 3}", user=f"u{i % 20}")) for i in range(60)]
    for first in range(0, 60, 20):
        time += SECOND
        for start in range(first, first + 20, size):
            part = Block.from_rows(Impression, impressions[start : start + size])
            rows += placement.decide(part, seq + 1, time)
            seq += len(part)
        told = [
            FeedbackRow(seq + 1 + i, placement.id, row.seq, None, time, "reward", float(i % 3 == 0), None)
            for i, row in enumerate(rows[-20:])
        ]
        placement.learning.apply_feedback(Block.from_rows(FeedbackRow, told))
        seq += len(told)
    store.close()
    return rows, everything(placement)


@pytest.mark.parametrize("case", CASES)
def test_a_batch_is_decided_as_one_by_one_where_nothing_is_drawn(case, tmp_path):
    table, change = CASES[case]
    runs = [play(tmp_path / f"{size}.db", table, change, size) for size in (1, 20)]
    assert runs[0][0] == runs[1][0]
    for alone, together in zip(runs[0][1], runs[1][1], strict=True):
        assert repr(alone) == repr(together)
    assert len({row.mode for row in runs[0][0]}) == 1
    assert len({row.arm for row in runs[0][0]}) >= (1 if case in ("pin", "frozen") else 2)


def test_a_policy_that_observes_contexts_is_restored_after_each_decision_while_frozen(tmp_path):
    config = with_home(tmp_path / "s.db", policy="auto", arms=ARMS, signals=["volume"])
    store = SqliteStore(tmp_path / "s.db")
    placement = load_placement("home", config.placements["home"], store, 7)
    assert placement.learner.policy.observes
    placement.learning.advance(START)
    impressions = Block.from_rows(Impression, [placement.reader.read(DecisionRequest("k"))] * 30)
    placement.decide(impressions, 1, START)
    placement.apply_change(ChangeRow(31, placement.id, START, "mode", "frozen", None))
    before = [array.copy() for array in placement.learner.state.own]
    placement.decide(impressions, 32, START + 9 * SECOND)
    after = placement.learner.state.own
    assert all(np.array_equal(*pair, equal_nan=True) for pair in zip(before, after, strict=True))
    store.close()


MOST_CALLS = {"plain": 0.1, "pin": 0.14, "holdout": 0.15, "shadow": 0.13, "control policy": 0.2}
"""Python functions called for each decision of a batch of 1,000, with its row and its window."""


@pytest.mark.parametrize("case", MOST_CALLS)
def test_a_decision_of_a_batch_calls_few_functions(case, tmp_path):
    table, change = CASES.get(case, ({}, None))
    config = with_home(tmp_path / "s.db", arms=ARMS, policy="ucb1", **table)
    store = SqliteStore(tmp_path / "s.db")
    placement = load_placement("home", config.placements["home"], store, 7)
    placement.learning.advance(START)
    if change is not None:
        placement.apply_change(ChangeRow(1, placement.id, START, *change, None))
    requests = [DecisionRequest("k", user=f"u{i}") for i in range(1000)]
    impressions = Block.from_rows(Impression, list(map(placement.reader.read, requests)))
    placement.decide(impressions, 2, START)
    calls = []

    def note(frame, event, argument):
        calls[-1] += event == "call"

    # The collector may run, and call functions of others: the least counts.
    for i in range(1, 4):
        calls.append(0)
        with warnings.catch_warnings(action="ignore"):
            sys.setprofile(note)
            rows = placement.decide(impressions, 2 + 1000 * i, START + i * SECOND)
            sys.setprofile(None)
    store.close()
    assert isinstance(rows, Block)
    assert rows.kind is DecisionRow
    assert len(rows) == 1000
    assert min(calls) / 1000 <= MOST_CALLS[case]


def test_the_kinds_of_the_package_have_the_parts_of_the_chain():
    for name in ("arms", "features", "duels", "slates"):
        parts = get_kind(name).parts
        assert parts.stages == ()
        assert parts.aspects == ()
