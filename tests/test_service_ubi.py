"""User Behavior Insights in the service: records in, as feedback or kept; the log out."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import harness
import jsonschema_rs
import numpy as np
import pytest
from harness import SECOND, START, Client, served
from stores import store_at
from test_cli import tacit as tacit_command
from test_ubi import event, query, rows

from tacit.errors import InvalidValue
from tacit.logs import read_ubi
from tacit.logs.decided import given_above
from tacit.logs.ubi_records import event_of
from tacit.service.app.server import running
from tacit.service.doors.ubi_routes import UbiRequest, export_ubi, feedback_of, listed, take
from tacit.service.http.route import RouteCall
from tacit.service.log.requests import Clicked, DecisionRequest, FeedbackRequest
from tacit.service.log.rows import CLICKS, DecisionRow, FeedbackRow, slate_of
from tacit.service.maintenance.copies import export, take_in
from tacit.service.maintenance.doctor import verify


def schema(name):
    """Return a schema of UBI as a validator."""
    path = Path(__file__).parent / "data" / "ubi-1.3.0" / f"{name}.schema.json"
    content = json.loads(path.read_text())
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


def learned(engine):
    """Return everything that the placements are, bit for bit."""
    return {name: harness.learned(engine, name) for name in engine.placements}


async def slated(engine, id=None, deferred=False, arms=None):
    told = engine.placements["shelf"].checked(DecisionRequest("tea", arms, None, id, deferred))
    (row,) = await engine.decide_many("shelf", [told])
    return row


async def sent(engine, name, queries=(), events=()):
    """Send records; return what became of them, with the fields of the wrong ones."""
    answer = await take(engine, RouteCall(name, request=UbiRequest([*queries], [*events])))
    return tuple(
        [one.outcome if one.field is None else (one.outcome, one.field) for one in part]
        for part in (answer.queries, answer.events)
    )


def about(row, action, place, **ours):
    """Return an event about what stands at a place of a decision."""
    record = event(action, row.id, listed(row)[place], place + 1)
    if ours:
        record["event_attributes"]["tacit"] = ours
    return record


# Records in ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("kind")
async def test_records_of_our_decisions_are_feedback_and_others_are_kept(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        row = await slated(engine)
        queries = [query(row.id, listed(row)), query("theirs", ["z", "a"])]
        events = [
            about(row, "impression", 0),
            about(row, "view", 1),
            about(row, "click", 2),
            about(row, "add_to_cart", 2),
            event("click", "theirs", "z", 1),
        ]
        expected = (["known", "kept"], ["noted", "duplicate", "pending", "kept", "kept"])
        assert await sent(engine, "shelf", queries, events) == expected
        ((_, _, _, came, examined, *_),) = engine.placements["shelf"].open_windows()
        assert (came, examined) == ([2], True)
        live = learned(engine)
        again = ["known", "duplicate"], ["duplicate"] * 5
        assert await sent(engine, "shelf", queries, events) == again
        assert learned(engine) == live
        other = query("theirs", ["a"])
        assert await sent(engine, "shelf", [other]) == ([("conflict", "query_id")], [])
        # Each placement keeps its own.
        assert await sent(engine, "home", [other]) == (["kept"], [])
        assert engine.kept == {
            ("shelf", "query"): 1, ("shelf", "event"): 2, ("home", "query"): 1,
        }  # fmt: skip
    store = store_at(tmp_path / "s.db")
    assert [(r.placement, r.kind, json.loads(r.content)) for r in store.records()] == [
        (1, "query", queries[1]), (1, "event", events[3]), (1, "event", events[4]),
        (3, "query", other),
    ]  # fmt: skip
    assert verify(configured(), store) == []
    store.close()
    # After a restart nothing is forgotten.
    async with served(tmp_path / "s.db", configured()) as engine:
        assert await sent(engine, "shelf", queries, events) == again


def test_what_was_kept_leaves_what_is_learned_as_it_was(tmp_path):
    async def session(folder, noisy):
        folder.mkdir()
        async with served(folder / "s.db", configured()) as engine:
            for i in range(6):
                engine.clock.now = START + 20 * i * SECOND
                row = await slated(engine, str(i))
                if noisy:
                    foreign = [query(f"theirs {i}", "abc")]
                    await sent(engine, "shelf", foreign, [event(id=f"theirs {i}", object="c")])
                await sent(engine, "shelf", [], [about(row, "click", i % 3)])
            return learned(engine)

    quiet = asyncio.run(session(tmp_path / "quiet", False))
    assert asyncio.run(session(tmp_path / "noisy", True)) == quiet


def test_clicks_told_as_records_teach_what_clicks_teach(tmp_path):
    async def session(path, as_records):
        async with served(path, configured()) as engine:
            row = await slated(engine, "one")
            if as_records:
                events = [about(row, "click", place) for place in (2, 0)]
                assert await sent(engine, "shelf", [], events) == ([], ["pending"] * 2)
            else:
                told = FeedbackRequest(row.id, CLICKS, clicks=Clicked([0, 2]))
                assert await engine.record_many("shelf", [told]) == ["pending"]
            engine.clock.now += 60 * SECOND
            await slated(engine, "two")
            return harness.learned(engine, "shelf")[1]

    assert asyncio.run(session(tmp_path / "a.db", True)) == asyncio.run(session(tmp_path / "b.db", False))


async def test_a_duel_is_decided_by_clicks_and_one_arm_by_a_click(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        told = engine.placements["search"].checked(DecisionRequest("all", id="d", rankings=RANKINGS))
        (row,) = await engine.decide_many("search", [told])
        # Items may be numbers; in records they are text.
        click = about(row, "click", 1, decision_id="d", team="new", policy="RMED1", version="1")
        assert await sent(engine, "search", [], [click]) == ([], ["pending"])
        told = engine.placements["search"].checked(DecisionRequest("all", id="pair"))
        await engine.decide_many("search", [told])
        pair = event(id="pair", object="old")
        won = {"ordinal": 0}, {"reward": 1.0}
        won = event("reward", "pair", None) | {"event_attributes": {"position": won[0], "tacit": won[1]}}
        became = await sent(engine, "search", [], [pair, won])
        assert became == ([], [("invalid-value", "action_name"), "learned"])
        row = await engine.decide("home", "k", id="one")
        wrong = event(id="one", object=str((row.arm + 1) % 3))
        right = event(id="one", object=row.arm)
        became = await sent(engine, "home", [], [wrong, right])
        assert became == ([], [("invalid-value", "event_attributes.object"), "learned"])
        told = engine.placements["front"].checked(
            DecisionRequest("k", ["n"], id="f", relevance=[[1.0]], examination=[[1.0]])
        )
        await engine.decide_many("front", [told])
        became = await sent(engine, "front", [], [event(id="f", object="n")])
        assert became == ([], ["learned"])


async def test_a_query_record_activates_a_deferred_decision(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        row = await slated(engine, "later", deferred=True)
        click = about(row, "click", 0)
        assert await sent(engine, "shelf", [], [click]) == ([], ["inactive"])
        became = await sent(engine, "shelf", [query("later")], [about(row, "click", 1)])
        assert became == (["noted"], ["pending"])
        assert await sent(engine, "shelf", [query("later")]) == (["duplicate"], [])


async def test_a_wrong_record_is_named_and_stops_no_other(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        row = await slated(engine, "d")
        good = about(row, "click", 0)
        wrong = {
            "query_id": good | {"query_id": 1},
            "timestamp": good | {"timestamp": "soon"},
            "event_attributes.object": event(id="d", object="z"),
            "decision_id": about(row, "click", 0, decision_id="nobody's"),
            "event_attributes.tacit.reward": about(row, "reward", 0, reward="much"),
            "event_attributes.tacit.feedback_id": about(row, "click", 0, feedback_id="\n"),
            "event_attributes.tacit.clicks": about(row, "click", 0, clicks=1),
            "clicks[0]": about(row, "click", 0, clicks=[9]),
            "reward": about(row, "reward", 0, reward=0.5),
        }
        outcomes = await sent(engine, "shelf", [], [*wrong.values(), good])
        fields = [one[1] for one in outcomes[1][:-1]]
        assert fields == [*wrong]
        assert outcomes[1][-1] == "pending"
        assert {one[0] for one in outcomes[1][:-1]} == {"invalid-value", "unknown-decision"}
        bad = query("x\0")
        assert await sent(engine, "shelf", [bad]) == ([("invalid-value", "query_id")], [])


def test_over_http(tmp_path):
    with running(configured(tmp_path / "s.db")) as address:
        client = Client(address)
        shown = client.post("shelf/slate", {"key": "tea"})[2]
        click = event(id=shown["decision_id"], object=shown["slate"][1])
        body = {"queries": [query("q")], "events": [click, event() | {"timestamp": 1.5}]}
        status, _, answer = client.post("shelf/ubi", body)
        assert (status, answer["durability"]) == (200, "committed")
        assert answer["queries"] == [{"outcome": "kept"}]
        first, second = answer["events"]
        assert (first["outcome"], first["decision_id"]) == ("pending", shown["decision_id"])
        assert (second["outcome"], second["field"]) == ("invalid-value", "timestamp")
        assert "1.5" in second["detail"]
        assert client.post("nowhere/ubi", body)[0] == 404
        assert client.post("shelf/ubi", {"events": 1})[0] == 422
        assert client.post("shelf/ubi", {"events": [{}] * 1001})[0] == 422
        assert client.post("shelf/ubi", {})[2]["events"] == []
        metrics = client.ask("GET", "/metrics")[2].decode()
        assert 'tacit_records_total{kind="query",placement="shelf"} 1.0' in metrics


# The log out --------------------------------------------------------------------------------


async def traffic(engine, rounds):
    """Decide and tell in every kind of placement, with ids and without; return the decisions."""
    made = []
    for i in range(rounds):
        rng = np.random.default_rng(i)
        engine.clock.now = START + i * 7 * SECOND
        shelf = await slated(engine, f"s{i}" if i % 2 else None, arms=["d", "b"] if i % 3 else None)
        told = engine.placements["search"].checked(
            DecisionRequest("all", rankings=None if i % 4 == 3 else RANKINGS)
        )
        (duel,) = await engine.decide_many("search", [told])
        home = await engine.decide("home", f"key {i % 2}", arms=[2, 0] if i % 2 else None)
        names = ["n", "m"] if i % 2 else None
        features = {"relevance": [[1.0], [0.5]], "examination": [[1.0], [0.1]]}
        told = engine.placements["front"].checked(DecisionRequest("k", names, **features))
        (front,) = await engine.decide_many("front", [told])
        for name, row in (("shelf", shelf), ("search", duel)):
            items = listed(row)
            if items is None:
                await engine.feedback(name, row.id, 0.5)
            elif rng.random() < 0.8:
                places = [place for place, item in enumerate(items) if item is not None]
                clicks = sorted(rng.permutation(places)[: rng.integers(3)].tolist())
                id = f"f{i}" if i % 2 else None
                await engine.record_many(name, [FeedbackRequest(row.id, CLICKS, None, id, Clicked(clicks))])
        await engine.examined("shelf", shelf.id, f"e{i}")
        await engine.feedback("home", home.id, float(rng.integers(3)) / 2, f"f{i}")
        await engine.feedback("front", front.id, 1.0)
        made += [("shelf", shelf), ("search", duel), ("home", home), ("front", front)]
    late = await engine.decide("home", "long id", id="x" * 200, deferred=True)
    await engine.activate("home", late.id)
    return [*made, ("home", late)]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.usefixtures("kind")
async def test_exported_records_keep_to_the_schema_and_come_back(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        made = await traffic(engine, 12)
        await sent(engine, "shelf", [query("theirs", ["z", "a"])], [event(id="theirs")])
    store = store_at(tmp_path / "s.db")
    counts = export_ubi(store, tmp_path / "out")
    log = [row for row in store.events(0) if not isinstance(row, DecisionRow)]
    store.close()
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
        items = listed(row) or []
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
        slate = slate_of(row.shown) if name == "shelf" else None
        if slate is not None and slate.places:
            offered["shelf"] = json.loads(row.offered) if row.offered else PLACEMENTS["shelf"]["arms"]
        for at, item in enumerate(items):
            if item is not None:
                if slate is not None:
                    alone = given_above(slate.prefixes, at)
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
    pairs = sum(listed(row) is None for _, row in made)
    rejected = {"unknown-object": 1, "missing-query_response_hit_ids": pairs}
    assert reader.report.rejected == {**rejected}


def check_teams(made, queries, events):
    """Whose each item of a duel is stands with the query and with the clicks."""
    duels = {
        row.id: query["query_attributes"]["tacit"]
        for (name, row), query in zip(made, queries, strict=False)
        if name == "search" and listed(row) is not None
    }
    assert all(set(ours["teams"]) <= {"old", "new", None} for ours in duels.values())
    clicked = [
        (duels[one["query_id"]]["teams"][ordinal - 1], one["event_attributes"]["tacit"])
        for one in events
        if one["query_id"] in duels and (ordinal := one["event_attributes"]["position"]["ordinal"])
    ]
    assert clicked
    assert all(ours.get("team") == team for team, ours in clicked)


async def test_what_was_exported_and_sent_again_changes_nothing(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        await traffic(engine, 8)
    store = store_at(tmp_path / "s.db")
    export_ubi(store, tmp_path / "out")
    store.close()
    events = lines(tmp_path / "out" / "ubi_events.ndjson")
    named = [e for e in events if "feedback_id" in e["event_attributes"]["tacit"]]
    assert len(named) > 20
    async with served(tmp_path / "s.db", configured()) as engine:
        before = learned(engine)
        for name in PLACEMENTS:
            mine = [e for e in named if e["event_attributes"]["tacit"]["placement"] == name]
            _, outcomes = await sent(engine, name, [], mine)
            assert set(outcomes) <= {"duplicate"}
        assert learned(engine) == before


@pytest.mark.usefixtures("kind")
async def test_kept_records_move_with_the_log(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        await slated(engine)
        await sent(engine, "front", [query("theirs")], [event(id="theirs")])
    old, new = store_at(tmp_path / "s.db"), store_at(tmp_path / "new.db")
    counts = export(configured(), old, tmp_path / "out")
    assert counts["records"] == 2
    assert take_in(new, tmp_path / "out") == counts["decisions"] + counts["marks"] + 2
    places = [{stored.id: name for name, stored in store.placements().items()} for store in (old, new)]
    kept = [
        [(place[row.placement], *row[1:]) for row in store.records()]
        for place, store in zip(places, (old, new), strict=True)
    ]
    assert kept[0] == kept[1]
    old.close()
    new.close()


def test_the_command_line_exports_records(tmp_path):
    async def session():
        async with served(tmp_path / "s.db", configured()) as engine:
            row = await slated(engine)
            await sent(engine, "shelf", [], [about(row, "click", 1)])

    asyncio.run(session())
    out = tmp_path / "out"
    result = tacit_command("log", "export", "--store", tmp_path / "s.db", "--format", "ubi", "--json", out)
    assert json.loads(result.stdout).items() >= {"ubi_queries": 1, "ubi_events": 1}.items()
    result = tacit_command("ubi", out, tmp_path / "clicks.parquet", "--json")
    assert json.loads(result.stdout)["rows"] == 3


def test_a_decision_with_an_empty_position():
    row = DecisionRow(1, "d", 1, 1, START, "k", None, "a", None, 0, None, shown='["a",null,"b"]')
    told = feedback_of(row, event_of(event(object="b", ordinal=2)))
    assert told.clicks.positions == [2]
    with pytest.raises(InvalidValue, match=r"event_attributes\.object"):
        feedback_of(row, event_of(event(object=None, ordinal=2)))
