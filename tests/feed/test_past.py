"""Past events become a start: a click log, what it says, a configuration with priors, and a report."""

import json
import random
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from tacit.client import Client
from tacit.errors import ConfigError, InvalidValue
from tacit.feed.event_map import example_map, parse_map
from tacit.feed.history_start import write_start
from tacit.learning.learner import Learner
from tacit.logs import read_log
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config
from tests.cli.test_cli import tacit

MAP = """
placement = { value = "home" }
decision_id = "view"
id = "id"
time = "at"
event = "type"

[reward]
click = 1

[shown]
where = { type = "view" }
decision_id = "id"
elsewhere = true
key = "page"
arm = "item"
propensity = "p"
"""
CHANCE = {"holiday": 0.3, "film": 0.2, "recipe": 0.1}
SHOWN = {"holiday": 0.2, "film": 0.3, "recipe": 0.5}


def events(count, *, known=True, seed=7):
    """Return events of a page that shows what earns least most often, each click after what it is for."""
    draws, found = random.Random(seed), []
    for i in range(count):
        arm = draws.choices(list(SHOWN), list(SHOWN.values()))[0]
        view = {"type": "view", "id": f"v{i}", "page": f"p{i % 3}", "item": arm, "at": 1_700_000_000 + 60 * i}
        found.append(view | ({"p": SHOWN[arm]} if known else {}))
        if draws.random() < CHANCE[arm]:
            found.append({"type": "click", "id": f"c{i}", "view": f"v{i}", "at": 1_700_000_005 + 60 * i})
    return found


def made(folder, found, text=MAP, *, policy="auto", most=0.05):
    """Make a start of events."""
    source = folder / "events.jsonl"
    source.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in found))
    return write_start(
        parse_map(text), str(source), None, policy=policy, folder=folder / "past", max_rejected_share=most
    )


def test_a_past_becomes_a_log_a_configuration_that_can_be_served_and_a_report(tmp_path):
    (facts,) = made(tmp_path, events(4000)).facts
    assert (facts.decisions, facts.keys, facts.has_all_propensities) == (4000, 3, True)
    assert [arm.name for arm in facts.arms] == ["holiday", "film", "recipe"]
    assert all(arm.low <= CHANCE[arm.name] <= arm.high for arm in facts.arms)
    was, at_random, policy, best = facts.outlooks
    assert was.low <= sum(SHOWN[arm] * CHANCE[arm] for arm in SHOWN) <= was.high
    assert at_random.low <= 0.2 <= at_random.high
    assert policy.low > was.high
    assert best.name == "always holiday"
    assert best.low <= 0.3 <= best.high
    folder = tmp_path / "past"
    log = read_log(folder / "clicks.parquet")
    rewards = [reward for batch in log for reward in batch["reward"].to_pylist()]
    assert len(rewards) == 4000
    assert sum(filter(None, rewards)) == 4000 * facts.mean
    overrides = {"server.port": 0, "store.path": str(tmp_path / "t.db"), "placements.home.seed": 7}
    config = load_config(folder / "tacit.toml", overrides)
    # A prior counts for a hundred impressions at most, however long the past is.
    assert all(sum(prior) == pytest.approx(100) for prior in facts.priors().values())
    with run_in_thread(config) as url, Client(url) as client:
        assert client.decide("home", "p0").arm in CHANCE
    page = (folder / "report.html").read_text()
    assert "more than chance explains" in page
    assert "Nothing below is proved" not in page
    assert page.count("<svg") == 4 + 3 + 2
    assert "http" not in page.replace("http://www.w3.org", "")


def test_without_propensities_nothing_is_proved_and_priors_weigh_less(tmp_path):
    with pytest.warns(match="propensities are estimated"):
        came = made(tmp_path, events(2000, known=False))
    (facts,) = came.facts
    assert not facts.has_all_propensities
    assert all(sum(prior) == pytest.approx(20) for prior in facts.priors().values())
    assert "not proved" in came.summary()
    page = (tmp_path / "past" / "report.html").read_text()
    assert "Nothing below is proved: no event says" in page
    assert "If that is right, learning would have earned" in page


def test_each_event_counts_once_in_whichever_order_and_what_is_wrong_is_rejected(tmp_path):
    view = {"type": "view", "id": "v", "page": "p", "item": "a", "at": 1_700_000_000, "p": 0.5}
    click = {"type": "click", "id": "c", "view": "v", "at": 1_700_000_001}
    wrong = [view | {"item": "b"}, view | {"id": "w", "p": 2}, click | {"view": "?"}]
    wrong += [{"type": "click"}, {"type": "x"}]
    came = made(tmp_path, [click, view, view, click, *wrong], most=1.0)
    assert came.tally.sent == {"decision": 1, "rewarded": 1, "duplicate": 2}
    assert came.tally.left_out == 1
    assert came.tally.rejected == {
        "conflict": 1, "bad-propensity": 1, "unknown-decision": 1, "missing-field": 1,
    }  # fmt: skip
    (row,) = pq.read_table(tmp_path / "past" / "clicks.parquet").to_pylist()
    assert (row["arm"], row["arms"], row["reward"]) == ("a", ["a"], 1.0)


def test_events_are_joined_to_what_was_shown_before(tmp_path):
    text = MAP.replace('decision_id = "view"', 'user = "who"').replace('key = "page"', 'user = "who"')
    view = {"type": "view", "item": "a", "who": "ann"}
    found = [view | {"id": f"v{i}", "at": 1_700_000_000 + 600 * i} for i in range(3)]
    found += [{"type": "click", "id": "c", "who": "ann", "at": 1_700_000_700}]
    with pytest.warns(match="propensities are estimated"):
        made(tmp_path, found, text)
    rows = pq.read_table(tmp_path / "past" / "clicks.parquet").to_pylist()
    assert [row["reward"] for row in rows] == [None, 1.0, None]
    assert {row["key"] for row in rows} == {"default"}


def test_each_placement_has_its_own_part(tmp_path):
    text = MAP.replace('{ value = "home" }', '"place"')
    found = [event | {"place": place} for place in ("home", "shop") for event in events(200, seed=len(place))]
    names = [facts.placement for facts in made(tmp_path, found, text).facts]
    assert names == ["home", "shop"]
    assert [*load_config(tmp_path / "past" / "tacit.toml").placements] == names


def test_what_the_past_shows_nothing_of_is_not_known(tmp_path):
    view = {"type": "view", "page": "p", "item": "a", "p": 1.0}
    found = [view | {"id": f"v{i}", "at": 1_700_000_000 + i, "offer": ["a", "b"]} for i in range(60)]
    (facts,) = made(tmp_path, found, f'{MAP}arms = "offer"\n').facts
    assert facts.offered == ["a", "b"]
    values = {each.name: each.value for each in facts.outlooks}
    assert (values["an arm at random"], values["always a"]) == (None, 0.0)
    assert "could never have shown another arm" in (tmp_path / "past" / "report.html").read_text()
    assert "home" in load_config(tmp_path / "past" / "tacit.toml").placements


def test_where_too_much_is_rejected_nothing_is_made(tmp_path):
    (tmp_path / "feed.toml").write_text(MAP)
    (tmp_path / "e.jsonl").write_text('{"type": "click"}\nno\n')
    given = "--map", tmp_path / "feed.toml", "-o", tmp_path / "past"
    came = tacit("feed", "--past", tmp_path / "e.jsonl", *given)
    assert came.returncode == 3
    assert "nothing was made" in came.stdout
    assert not (tmp_path / "past").exists()
    came = tacit("feed", "--past", "-", *given)
    assert came.returncode == 2
    assert "it reads events twice" in came.stderr


def test_a_configuration_that_is_there_is_not_written_over(tmp_path):
    (tmp_path / "past").mkdir()
    (tmp_path / "past" / "tacit.toml").write_text("# mine\n")
    with pytest.raises(ConfigError, match=r"output: .*tacit\.toml is there already; give another folder"):
        made(tmp_path, events(100))
    assert [path.read_text() for path in (tmp_path / "past").iterdir()] == ["# mine\n"]


def test_a_map_that_says_too_little_or_a_policy_without_priors_is_refused(tmp_path):
    for text, said in (
        (MAP[: MAP.index("[shown]")], "shown"),
        (MAP.replace('time = "at"\n', ""), "time"),
        (MAP.replace('event = "type"', 'clicks = "at"').replace("[reward]\nclick = 1\n", ""), "reward"),
        (MAP.replace('arm = "item"\n', ""), "arm"),
    ):
        with pytest.raises(ConfigError, match=said):
            made(tmp_path, [], text)
    with pytest.raises(InvalidValue, match="priors"):
        made(tmp_path, [], policy="exp3")


# Lists

EVENTS = Path(__file__).parents[1] / "data" / "lists"
LISTS = example_map("metarank")
RANKING, CLICK = map(msgspec.json.decode, (EVENTS / "metarank.jsonl").read_bytes().splitlines()[1:3])


@pytest.mark.parametrize(("example", "left_out"), [("metarank", 3), ("ubi-lists", 1), ("ga4-lists", 2)])
def test_lists_that_others_decided_become_a_log_and_a_start(tmp_path, example, left_out):
    map, output = tmp_path / "map.toml", tmp_path / "past"
    map.write_text(example_map(example))
    came = tacit("feed", "--past", EVENTS / f"{example}.jsonl", "--map", map, "-o", output)
    assert came.returncode == 0, came.stderr
    assert f"{left_out} left out by the map, or of no list" in came.stdout
    names = ["key", "arms", "arm", "position", "reward"]
    log = read_log(output / "clicks.parquet")
    rows = [tuple(row.values()) for batch in log for row in batch.select(names).to_pylist()]
    cat, dog = ["c", "a", "b"], ["b", "c"]
    assert [(key, arm, position, reward) for key, _, arm, position, reward in rows] == [
        ("cat", "c", 0, 0.0), ("cat", "a", 1, 1.0), ("cat", "b", 2, 0.0), ("dog", "b", 0, 0.0),
        ("dog", "c", 1, 0.3),
    ]  # fmt: skip
    assert [arms for _, arms, *_ in rows] == [cat] * 3 + [dog] * 2
    assert tacit("examine", output / "clicks.parquet", "--method", "harvesting").returncode == 0
    assert Learner.load(next(output.glob("*.tacit"))).keys == ["cat", "dog"]
    config = load_config(output / "tacit.toml", {"server.port": 0, "store.path": str(tmp_path / "t.db")})
    with run_in_thread(config) as url, Client(url) as client:
        assert set(client.slate(next(iter(config.placements)), "cat", arms=cat).slate) == set(cat)
    # The largest reward of each list, 1 and 0.3.
    report = (output / "report.html").read_text()
    assert "<dt>Lists</dt><dd>2</dd>" in report
    assert "<dt>Earned per list</dt><dd>65.0" in report


def test_lists_of_two_rankers_are_compared_by_tacit_duel(tmp_path):
    ranked = [{"id": "c", "by": "old"}, {"id": "a", "by": "new"}]
    found = [{"t": 1_599_391_467 + i, "event": "ranking", "id": f"r{i}", "items": ranked} for i in range(3)]
    found += [{"t": 1_599_391_500, "event": "click", "ranking": f"r{i}", "at": 2} for i in range(2)]
    text = """
        placement = { value = "search" }
        decision_id = "ranking"
        clicks = "at"
        positions_from = 1
        time = "t"
        [shown]
        where = { event = "ranking" }
        elsewhere = true
        decision_id = "id"
        items = "items.*.id"
        teams = "items.*.by"
    """
    made(tmp_path, found, text)
    came = tacit("duel", tmp_path / "past" / "searches.parquet", "--json")
    (comparison,) = json.loads(came.stdout)["comparisons"]
    assert (comparison["first"], comparison["won"], comparison["lost"]) == ("new", 2, 0)


@pytest.mark.parametrize(
    ("change", "event", "reason"),
    [
        (("items.*.id", "items.*.no"), {}, "missing-field"),
        ((), {"items": [{"id": "a"}, {"id": "a"}]}, "invalid-value"),
        (('*.id"', '*.id"\npositions = "items.*.at"'), {"items": [{"id": "a", "at": 1.5}]}, "bad-clicks"),
        (('*.id"', '*.id"\nteams = "by"'), {"by": ["old"]}, "invalid-value"),
    ],
)
def test_a_wrong_list_is_rejected_by_its_field(tmp_path, change, event, reason):
    text = LISTS.replace(*change) if change else LISTS
    assert made(tmp_path, [RANKING | event], text, most=0.5).tally.rejected == {reason: 1}


def test_an_item_that_its_list_did_not_show_is_rejected_and_lists_go_to_no_service(tmp_path):
    came = made(tmp_path, [RANKING, CLICK, CLICK | {"id": "y", "item": "z"}], LISTS, most=0.5)
    assert came.tally.rejected == {"not-shown": 1}
