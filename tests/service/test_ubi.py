"""The log of the service as records of User Behavior Insights."""

import json
from contextlib import closing
from functools import partial

import harness
import jsonschema_rs
import numpy as np
import pytest
from conftest import DATA
from harness import SECOND, START, served
from placement_access import check_request, decide
from stores import store_at

from tacit.logs import read_ubi
from tacit.logs.writer import conditional_propensity
from tacit.service.log.requests import Clicked, DecisionRequest, FeedbackRequest
from tacit.service.log.rows import (
    ACTIVATE,
    CLICKS,
    EXAMINED,
    DecisionRow,
    FeedbackRow,
    RecordRow,
    decode_list,
)
from tacit.service.log.sql import add_records, read_records
from tacit.service.maintenance.log_export import export, import_log
from tacit.service.maintenance.ubi_export import export_ubi, list_items
from tests.cli.test_cli import tacit as tacit_command
from tests.logs.test_ubi import event, query, rows


def schema(name):
    """Return a schema of UBI as a validator."""
    content = json.loads((DATA / "ubi-1.3.0" / f"{name}.schema.json").read_text())
    if name == "event":
        # As published, the action "click" is allowed twice where it must be allowed once.
        action = content["properties"]["action_name"]
        action["anyOf"] = action.pop("oneOf")
    return jsonschema_rs.Draft202012Validator(content, validate_formats=True)


PLACEMENTS = {
    "shelf": {"kind": "slates", "arms": ["a", "b", "c", "d"], "positions": 3, "seed": 7},
    "search": {"kind": "duels", "rankers": ["old", "new"], "seed": 7, "length": 3},
    "home": {"arms": 3, "seed": 7},
    "front": {"kind": "features", "policy": "lin-ts(relevance_dim=1, examination_dim=1)", "seed": 7},
}
RANKINGS = {"old": [1, 2, 3, 4], "new": ["x", 2, "y", 1]}


configured = partial(harness.configured, placements=PLACEMENTS)


async def slated(engine, id=None, arms=None):
    (row,) = await decide(engine, DecisionRequest("tea", arms, None, id), name="shelf")
    return row


def keep_records(store, placement, queries, events):
    """Add records to a store, as 0.3 kept those of what it had not decided."""
    number = store.placements()[placement].id
    add_records(
        store,
        [
            RecordRow(number, kind, str(i), START, json.dumps(record))
            for kind, records in (("query", queries), ("event", events))
            for i, record in enumerate(records)
        ],
    )


async def traffic(engine, rounds):
    """Decide and tell in every kind of placement, with ids and without; return the decisions."""
    made = []
    for i in range(rounds):
        rng = np.random.default_rng(i)
        engine.clock.now = START + i * 7 * SECOND
        shelf = await slated(engine, f"s{i}" if i % 2 else None, arms=["d", "b"] if i % 3 else None)
        told = check_request(
            engine.placements["search"], DecisionRequest("all", rankings=None if i % 4 == 3 else RANKINGS)
        )
        (duel,) = await engine.decide_many("search", [told])
        home = await engine.decide("home", f"key {i % 2}", arms=[2, 0] if i % 2 else None)
        names = ["n", "m"] if i % 2 else None
        features = {"relevance": [[1.0], [0.5]], "examination": [[1.0], [0.1]]}
        told = check_request(engine.placements["front"], DecisionRequest("k", names, **features))
        (front,) = await engine.decide_many("front", [told])
        for name, row in (("shelf", shelf), ("search", duel)):
            items = list_items(row)
            if items is None:
                await engine.feedback(name, row.id, 0.5)
            elif rng.random() < 0.8:
                places = [place for place, item in enumerate(items) if item is not None]
                clicks = sorted(rng.permutation(places)[: rng.integers(3)].tolist())
                id = f"f{i}" if i % 2 else None
                await engine.record_many(name, [FeedbackRequest(row.id, CLICKS, None, id, Clicked(clicks))])
        await engine.record_many("shelf", [FeedbackRequest(shelf.id, EXAMINED, id=f"e{i}")])
        await engine.feedback("home", home.id, float(rng.integers(3)) / 2, f"f{i}")
        await engine.feedback("front", front.id, 1.0)
        made += [("shelf", shelf), ("search", duel), ("home", home), ("front", front)]
    late = await engine.decide("home", "long id", id="x" * 200, deferred=True)
    await engine.record_many("home", [FeedbackRequest(late.id, ACTIVATE)])
    return [*made, ("home", late)]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.usefixtures("kind")
async def test_exported_records_keep_to_the_schema_and_come_back(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        made = await traffic(engine, 12)
    with closing(store_at(tmp_path / "s.db")) as store:
        keep_records(store, "shelf", [query("theirs", ["z", "a"])], [event(id="theirs")])
        counts = export_ubi(store, tmp_path / "out")
        log = [row for row in store.events(0) if not isinstance(row, DecisionRow)]
    queries = lines(tmp_path / "out" / "ubi_queries.ndjson")
    events = lines(tmp_path / "out" / "ubi_events.ndjson")
    assert (counts["ubi_queries"], counts["ubi_events"]) == (len(queries), len(events))
    for name, records in (("query.request", queries), ("event", events)):
        validator = schema(name)
        for record in records:
            validator.validate(record)
    assert len(queries) == len(made) + 1
    assert queries[-1] == query("theirs", ["z", "a"])
    for record, (name, row) in zip(queries, made, strict=False):
        ours = record["query_attributes"]["tacit"]
        assert (ours["decision_id"], ours["placement"]) == (row.id, name)
        assert ours["propensity"] == row.propensity
        assert len(ours["version"]) == 16
    check_log(made, log, tmp_path / "out")
    check_teams(made, queries, events)


def check_log(made, log, folder):
    """The click log of the records says what was shown, and every click of the log."""
    told = {}
    for row in log:
        if isinstance(row, FeedbackRow):
            told.setdefault(row.decision, []).append(row)
    expected = []
    for name, row in made:
        items = list_items(row) or []
        clicked = {}
        for one in told.get(row.seq, ()):
            clicked |= dict.fromkeys(json.loads(one.clicks or "[]"), 1.0)
            if one.reward is not None:
                clicked[0] = one.reward
        alone = row.propensity or None if name in ("home", "front") else None
        offered = {
            "front": ["n", "m"] if row.offered else ["0", "1"],
            "home": ["2", "0"] if row.offered else ["0", "1", "2"],
        }
        slate = decode_list(row.shown) if name == "shelf" else None
        if slate is not None and slate.position_propensities:
            offered["shelf"] = json.loads(row.offered) if row.offered else PLACEMENTS["shelf"]["arms"]
        for at, item in enumerate(items):
            if item is not None:
                if slate is not None:
                    alone = conditional_propensity(slate.prefix_propensities, at)
                expected.append(
                    (row.id, name, row.key, item, at, alone, clicked.get(at, 0.0),
                     offered.get(name, [each for each in items if each is not None]))
                )  # fmt: skip
    names = "decision_id", "placement", "key", "arm", "position", "propensity", "reward", "arms"
    reader = read_ubi(folder)
    found = rows(reader, *names)
    assert found[: len(expected)] == expected
    assert [row[0] for row in found[len(expected) :]] == ["theirs", "theirs"]
    # The lost click on the kept query, whose object was not among its hits, and pairs alone.
    pairs = sum(list_items(row) is None for _, row in made)
    rejected = {"unknown-object": 1, "missing-query_response_hit_ids": pairs}
    assert reader.report.rejected == {**rejected}


def check_teams(made, queries, events):
    """Whose each item of a duel is stands with the query and with the clicks."""
    duels = {
        row.id: query["query_attributes"]["tacit"]
        for (name, row), query in zip(made, queries, strict=False)
        if name == "search" and list_items(row) is not None
    }
    assert all(set(ours["teams"]) <= {"old", "new", None} for ours in duels.values())
    clicked = [
        (duels[one["query_id"]]["teams"][ordinal - 1], one["event_attributes"]["tacit"])
        for one in events
        if one["query_id"] in duels and (ordinal := one["event_attributes"]["position"]["ordinal"])
    ]
    assert clicked
    assert all(ours.get("team") == team for team, ours in clicked)


@pytest.mark.usefixtures("kind")
async def test_kept_records_move_with_the_log(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        await slated(engine)
    old, new = store_at(tmp_path / "s.db"), store_at(tmp_path / "new.db")
    keep_records(old, "front", [query("theirs")], [event(id="theirs")])
    counts = export(configured(), old, tmp_path / "out")
    assert counts["records"] == 2
    assert import_log(new, tmp_path / "out") == counts["decisions"] + counts["marks"] + 2
    places = [{stored.id: name for name, stored in store.placements().items()} for store in (old, new)]
    kept = [
        [(place[row.placement], *row[1:]) for row in read_records(store)]
        for place, store in zip(places, (old, new), strict=True)
    ]
    assert kept[0] == kept[1]
    old.close()
    new.close()


async def test_the_command_line_exports_records(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        row = await slated(engine)
        await engine.record_many("shelf", [FeedbackRequest(row.id, CLICKS, clicks=Clicked([1]))])
    out = tmp_path / "out"
    result = tacit_command("log", "export", "--store", tmp_path / "s.db", "--format", "ubi", "--json", out)
    assert json.loads(result.stdout).items() >= {"ubi_queries": 1, "ubi_events": 1}.items()
    result = tacit_command("ubi", out, tmp_path / "clicks.parquet", "--json")
    assert json.loads(result.stdout)["rows"] == 3
