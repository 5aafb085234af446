"""Mistakes with commands, files and logs that would give a wrong result without a word."""

import gzip
import json
import re
import warnings

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

import tacit
from tacit.cli import cli
from tacit.errors import AssumptionWarning, TacitError
from tacit.evaluate import Table, Uniform, off_policy
from tacit.evaluate.duels import read_duels
from tacit.evaluate.interleaved import read_interleaved
from tacit.evaluate.targets import fixed_target
from tacit.interleaving import TeamDraft
from tacit.logs import read_ubi

BARE = pandas.DataFrame({"arm": ["film", "song"] * 200, "reward": [0, 1, 1, 0] * 100, "propensity": 0.5})
SEARCHES = pandas.DataFrame(
    {
        "search": [f"s{row // 2}" for row in range(400)],
        "team": ["new", "old"] * 200,
        "position": [0, 1] * 200,
        "click": [1, 0, 0, 1, 0, 0, 0, 0] * 50,
    }
)


def told(made, *given, **options):
    """Return what is warned of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made(*given, **options)
    return [str(each.message) for each in said if issubclass(each.category, AssumptionWarning)]


# What is typed twice ------------------------------------------------------------------------------

TWICE = {
    "evaluate log.csv --policy ucb1 --arms film --arms song": "'--arms': 'film', 'song': only one can count",
    "fit log.csv --output a.tacit -o b.tacit": "'--output': 'a.tacit', 'b.tacit': only one can count",
    "simulate --horizon 10 --horizon 20": "'--horizon': '10', '20': only one can count; give it once",
    "evaluate log.csv --policy ucb1 --ray --ray far:1": "'--ray': 'far:1': only one can count; give it once",
    "serve --store a.db --store b.db": "'--store': 'a.db', 'b.db': only one can count; give it once",
    "evaluate log.csv --policy ucb1 --column arm=a --column arm=b": "--column: arm: 'a', 'b': only one can",
    "duel log.csv --worth click=1 --worth click=5": "--worth: click: '1', '5': only one can count; give it",
}


@pytest.mark.parametrize("typed", TWICE)
def test_what_can_be_said_once_is_refused_where_it_is_said_in_two_ways(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("key,arms,arm,reward\n")
    said = CliRunner().invoke(cli, typed.split(), prog_name="tacit")
    assert said.exit_code == 2
    assert TWICE[typed] in " ".join(said.output.split())


@pytest.mark.parametrize("typed", ["evaluate log.csv -policy ucb1", "fit log.csv -output=a.tacit"])
def test_an_option_with_one_dash_is_told_the_other(typed):
    said = CliRunner().invoke(cli, typed.split())
    assert said.exit_code == 2
    assert re.search("No such option '-(.*?)(=.*)?'; did you mean --(policy|output)[?]", said.output)


UNUSED = {
    "feed log.jsonl --map feed.toml --output start": "--policy, --output: only with --past",
    "feed log.jsonl --map feed.toml --past --check": "--past: leave out --check, --follow and --rejected",
    "evaluate log.csv --policy ucb1 --clip 3": "--clip, --cluster, --weight-bound: not used, as a replay",
}


@pytest.mark.parametrize("typed", UNUSED)
def test_an_option_that_would_do_nothing_is_said(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    BARE.assign(arms='["film", "song"]').to_csv("log.csv")
    example = CliRunner().invoke(cli, ["feed", "--example", "segment"]).stdout
    (tmp_path / "feed.toml").write_text(example)
    (tmp_path / "log.jsonl").write_text("{}\n")
    said = CliRunner().invoke(cli, typed.split())
    assert said.exit_code == (0 if "evaluate" in typed else 2)
    assert UNUSED[typed] in " ".join(said.stderr.split())
    assert {path.name for path in tmp_path.iterdir()} == {"log.csv", "feed.toml", "log.jsonl"}


def test_what_is_said_twice_alike_and_lists_are_taken():
    typed = "key home --scope read --scope decide --placement a --placement b --json --json"
    assert CliRunner().invoke(cli, typed.split()).exit_code == 0
    again = CliRunner().invoke(cli, ["policies", "ucb1", "--json", "--json"])
    assert again.exit_code == 0


# Files that are there twice, or are no such files ---------------------------------------------------


def test_a_file_that_is_named_in_two_ways_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    BARE.to_csv("a.csv")
    SEARCHES.to_csv("s.csv")
    (tmp_path / "link.csv").symlink_to("a.csv")
    for places in (["a.csv", "./a.csv"], ["*.csv", "a.csv"], ["a.csv", tmp_path], ["a.csv", "link.csv"]):
        with pytest.raises(TacitError, match=r"path: '.*\.csv' is not allowed; .* twice; name it once"):
            tacit.read_log(places, arms="shown")
    with pytest.raises(TacitError, match=r"path: 's\.csv' is not allowed; .* twice; name it once"):
        read_interleaved(["s.csv", "./s.csv"])


def test_a_copy_of_a_file_is_warned_of_and_a_file_of_the_same_size_is_not(tmp_path):
    for name, log in (("a", BARE), ("b", BARE[::-1]), ("c", BARE[:10]), ("d", BARE[:10])):
        log.to_csv(tmp_path / f"{name}.csv", index=False)
    assert told(tacit.read_log, tmp_path, arms="shown") == []
    BARE.to_csv(tmp_path / "e.csv", index=False)
    (text,) = told(tacit.read_log, tmp_path, arms="shown")
    assert "e.csv' has the same content as" in text
    assert "a.csv', and its rows count twice; leave one out" in text


def test_two_columns_of_a_name_are_refused_if_they_are_read(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("arm,reward,reward,uid,uid\nfilm,1,0,1,2\n")
    with pytest.raises(TacitError, match=r"log\.csv: reward: 2 columns are called so; .*leave one out"):
        list(tacit.read_log(path, arms=["film"]))
    pyarrow.parquet.write_table(pa.table([[1.0], [0.0]], names=["reward", "reward"]), tmp_path / "l.parquet")
    with pytest.raises(TacitError, match="reward: 2 columns are called so"):
        list(tacit.read_log(tmp_path / "l.parquet", arms=["film"], constants={"arm": "film"}))
    path.write_text("arm,reward,uid,uid\nfilm,1,1,2\n")
    assert [len(batch) for batch in tacit.read_log(path, arms=["film"])] == [1]


def test_what_is_no_learner_or_no_click_log_is_not_written_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    BARE.to_csv("log.csv")
    query = {"query_id": "1", "user_query": "q", "timestamp": "2025-02-26T12:00:00Z"}
    event = {"action_name": "click", "query_id": "1", "event_attributes": {"object": {"object_id": "b"}}}
    for name, record in (("q.ndjson", query | {"query_response_hit_ids": ["a", "b"]}), ("e.ndjson", event)):
        (tmp_path / name).write_text(json.dumps(record) + "\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for typed, field in (
        (
            "fit log.csv --arms shown --policy ucb1 -o log.csv",
            "--output: log.csv is there, and is no learner",
        ),
        ("ubi q.ndjson e.ndjson", "path: 'e.ndjson' is not allowed; it is there, and is no click log"),
    ):
        said = CliRunner().invoke(cli, typed.split())
        assert field in f"{said.output}{said.exception}"
        assert said.exit_code
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["clicks.csv", "clicks.parquet", "clicks.jsonl"])
def test_a_click_log_and_a_learner_are_written_over(tmp_path, name):
    for _ in range(2):
        tacit.write_log(tacit.read_log(BARE, arms="shown"), tmp_path / name)
        typed = f"fit {tmp_path / name} --policy ucb1 -o {tmp_path / 'learner.tacit'}"
        assert CliRunner().invoke(cli, typed.split()).exit_code == 0


def test_searches_are_read_from_folders_and_compressed_files(tmp_path):
    for part, rows in enumerate((SEARCHES[:200], SEARCHES[200:])):
        lines = rows.to_json(orient="records", lines=True)
        (tmp_path / f"{part}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    whole = tmp_path / "whole.csv"
    SEARCHES.to_csv(whole)
    one, _ = read_interleaved(whole)
    other, rows = read_interleaved(tmp_path / "*.gz")
    assert rows.kept == 400
    assert other.as_dict() == one.as_dict()


def test_an_export_names_the_duels_in_it(tmp_path):
    for name in ("placements.json", "clicks.parquet", "decisions.parquet", "duels.parquet"):
        (tmp_path / name).write_text("")
    said = CliRunner().invoke(cli, ["duel", str(tmp_path)])
    assert said.exit_code == 2
    assert "duels.parquet to tacit duel" in " ".join(said.output.split())


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('{"ARM": "film"}\n', "it is JSON lines: say so with format='json' (--format json)"),
        ("ARM,Reward\nfilm,1\n", "there is no column 'arm' (did you mean 'ARM'?)"),
    ],
)
def test_what_a_table_was_meant_to_be_is_said(tmp_path, text, hint):
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(TacitError) as said:
        tacit.read_log(tmp_path / "log.csv", arms=["film"])
    assert hint in str(said.value)


def test_a_value_for_what_a_log_says_itself_is_doubted(tmp_path):
    BARE.to_csv(tmp_path / "a.csv")
    BARE.drop(columns="propensity").to_csv(tmp_path / "b.csv")
    known = {"constants": {"propensity": 0.2}, "arms": ["film", "song"]}
    (text,) = told(tacit.read_log, tmp_path / "a.csv", **known)
    assert text.startswith(
        "propensity: 0.2 is not used, as the log's column 'propensity' says it; leave it out"
    )
    assert told(tacit.read_log, tmp_path, **known) == []
    log = BARE.assign(arms=[["film", "song"]] * 400, age=range(400))
    (text,) = told(tacit.read_log, log, arms="shown")
    assert text.startswith("arms: ['film', 'song'] is not used, as the log's column 'arms' says it")
    log.to_parquet(tmp_path / "c.parquet")
    typed = ["schema", str(tmp_path / "c.parquet"), "--column", "context=propensity"]
    assert told(CliRunner().invoke, cli, typed) == []


def test_ids_that_are_taken_for_arms_are_doubted():
    log = BARE.assign(id=[f"r{row}" for row in range(400)], item=[f"i{row % 300}" for row in range(400)])
    (text,) = told(tacit.read_log, log, columns={"arm": "id"}, arms="shown")
    assert text.startswith("arms: 400 are shown in 400 rows, nearly each of them once; ")
    assert "(--column arm=...)" in text
    assert told(tacit.read_log, log, columns={"arm": "item"}, arms="shown") == []


def test_a_folder_that_holds_no_export_makes_no_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    said = CliRunner().invoke(cli, ["log", "import", "folder"])
    assert said.exit_code == 2
    assert "FOLDER: folder holds no log; give one that tacit log export wrote" in said.output
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_table_is_no_record_of_ubi(tmp_path):
    BARE.to_csv(tmp_path / "log.csv")
    with pytest.raises(TacitError, match=r"path: '.*log\.csv' is not allowed; give JSON lines, or Parquet"):
        read_ubi(tmp_path / "log.csv")


# Searches -------------------------------------------------------------------------------------------

DOUBTED_SEARCHES = {
    "what was shown for what was clicked": (
        {"click": [0, *[1] * 19] * 20},
        "click: 380 of 400 results have one; .*a row for each result that was shown",
    ),
    "no click": ({"click": 0}, r"click: no result of 200 searches has one; .*\(--column click=\.\.\.\)"),
    "rows for searches": ({"search": range(400)}, "search: each shows one result; .*--column search="),
}


@pytest.mark.parametrize("mistake", DOUBTED_SEARCHES)
def test_searches_that_are_alike_are_doubted(mistake, tmp_path):
    columns, doubt = DOUBTED_SEARCHES[mistake]
    SEARCHES.assign(**columns).to_csv(tmp_path / "log.csv")
    (text,) = told(read_interleaved, tmp_path / "log.csv")
    assert re.match(doubt, text)
    SEARCHES.assign(**columns)[-20:].to_csv(tmp_path / "log.csv")
    assert told(read_interleaved, tmp_path / "log.csv") == []


def test_ties_and_searches_with_many_clicks_are_not_doubted(tmp_path):
    pairs = pandas.DataFrame({"left": ["new", "old"] * 100, "right": ["old", "new"] * 100, "outcome": 0.5})
    pairs.to_csv(tmp_path / "pairs.csv")
    assert told(read_interleaved, tmp_path / "pairs.csv") == []
    SEARCHES.assign(click=[1, 1, 1, 0] * 100).to_csv(tmp_path / "log.csv")
    assert told(read_interleaved, tmp_path / "log.csv") == []


@pytest.mark.parametrize("column", ["click", "team", "position"])
def test_searches_are_not_told_apart_by_what_was_done_in_them(column, tmp_path):
    SEARCHES.to_csv(tmp_path / "log.csv")
    with pytest.raises(TacitError, match=f"by: '{column}' is not allowed; .* whole searches, such as"):
        read_interleaved(tmp_path / "log.csv", by=[column])


def test_an_empty_cell_is_no_click_but_where_an_action_is_named(tmp_path):
    SEARCHES.assign(click=SEARCHES.click.replace(0, None)).to_csv(tmp_path / "empty.csv")
    SEARCHES.to_csv(tmp_path / "log.csv")
    empty, log = (read_interleaved(tmp_path / name)[0].as_dict() for name in ("empty.csv", "log.csv"))
    assert empty == log
    named = SEARCHES.assign(action=["click" if click else "" for click in SEARCHES.click], click=None)
    named.to_csv(tmp_path / "named.csv")
    assert read_interleaved(tmp_path / "named.csv")[0].as_dict() == log


def test_duels_of_a_ranker_with_itself_are_none(tmp_path):
    pairs = pandas.DataFrame({"left": ["new", "old"] * 5, "right": ["new", "old"] * 5, "outcome": 1})
    pairs.to_csv(tmp_path / "pairs.csv")
    with pytest.raises(TacitError, match="there is no duel of two rankers in it"):
        read_duels(tmp_path / "pairs.csv")


# Rows, taken together -------------------------------------------------------------------------------


def listed(first=0, click=None):
    """Return a log of 200 lists of three."""
    return {
        "decision_id": [f"d{row // 3}" for row in range(600)],
        "arms": [["film", "song", "game"]] * 600,
        "arm": ["film", "song", "game"] * 200,
        "position": [first, first + 1, first + 2] * 200,
        "reward": click or [1, 0, 0, 0, 0, 0] * 100,
    }


def single(**columns):
    """Return a log of 2000 decisions, an hour apart."""
    times = pandas.date_range("2026-01-01", periods=2000, freq="h", tz="UTC")
    return {
        "timestamp": times,
        "arms": [["film", "song"]] * 2000,
        "arm": ["film", "song"] * 1000,
        "reward": [0.0, 1.0, 1.0, 0.0] * 500,
    } | columns


HOURS = single()["timestamp"]
DOUBTED_ROWS = {
    "places from 1": (listed(first=1), "position: 600 rows are of lists, .*: 1; positions count from 0"),
    "what was shown for what was clicked": (
        listed(click=[0, *[1] * 29] * 20),
        "reward: 580 rows of lists have a click, nearly all .* row 2: 1.0; .*name that of clicks",
    ),
    "no click": (
        single(reward=[0.0] * 2000),
        r"reward: 2,000 rows have the same, and no row has more, .*\(--column reward=\.\.\.\)",
    ),
    "the latest first": (
        single(timestamp=HOURS[::-1]),
        "timestamp: 2,000 rows go from the latest .*: sort them",
    ),
}
SOUND_ROWS = {
    "lists": listed(),
    "the places below the first": listed(first=1) | {"decision_id": [f"d{row}" for row in range(600)]},
    "many clicks in lists": listed(click=[1, 1, 1, 1, 0, 1] * 100),
    "good marks": single(reward=[1.0] * 99 * 20 + [0.0] * 20),
    "few rows without a click": {name: values[:500] for name, values in single(reward=[0.0] * 2000).items()},
    "no click where none may come": single(reward=[0.0, None] * 1000),
    "one time": single(timestamp=[HOURS[0]] * 2000),
    "in no order": single(timestamp=[*HOURS[1000:], *HOURS[:1000]]),
    "in the order of days": single(timestamp=HOURS.floor("D")),
}


@pytest.mark.parametrize("form", ["memory", "csv", "parquet"])
@pytest.mark.parametrize("mistake", DOUBTED_ROWS)
def test_rows_that_are_alike_are_doubted(mistake, form, tmp_path):
    columns, doubt = DOUBTED_ROWS[mistake]
    (text,) = doubts_of(columns, form, tmp_path)
    assert re.match(doubt, text)
    few = doubts_of({name: values[:60] for name, values in columns.items()}, form, tmp_path)
    assert len(few) == (mistake == "places from 1")


@pytest.mark.parametrize("sound", SOUND_ROWS)
def test_rows_as_they_can_be_are_not_doubted(sound, tmp_path):
    assert doubts_of(SOUND_ROWS[sound], "memory", tmp_path) == []
    assert doubts_of(SOUND_ROWS[sound], "parquet", tmp_path) == []


def doubts_of(columns, form, folder):
    """Return what is doubted of a log, read in batches."""
    log = columns
    if form != "memory":
        log = folder / f"log.{form}"
        tacit.write_log(tacit.read_log(columns), log)
    reader = tacit.read_log(log, batch_rows=170)
    list(reader)
    return reader.report.warning_lines()


def test_searches_of_one_ranker_each_are_refused(tmp_path):
    path = tmp_path / "searches.csv"
    of_search = SEARCHES["search"].str[1:].astype(int)
    SEARCHES.assign(team=(of_search % 2).map({0: "old", 1: "new"})).to_csv(path, index=False)
    said = r"team: none of 200 searches shows results of two rankers.*tacit evaluate judges it"
    with pytest.raises(TacitError, match=said):
        read_interleaved(path)
    # Lists of one result can show no more, however many there are.
    SEARCHES.assign(search=[f"s{row}" for row in range(400)]).to_csv(path, index=False)
    assert [said.split(":")[0] for said in told(read_interleaved, path)] == ["search"]


@pytest.mark.parametrize("right", [False, True])
def test_rankings_in_the_other_order_than_the_list_that_was_shown_are_doubted(right, tmp_path):
    path, lists = tmp_path / "searches.jsonl", [list("abcd"), list("abdc")]
    rng = np.random.default_rng(1)
    with path.open("w") as log:
        for number in range(200):
            shown = TeamDraft(length=4).interleave(lists, rng).as_dict()
            row = {"search": str(number), "left": "old", "right": "new", "interleaved": shown, "clicks": [1]}
            print(json.dumps(row | {"rankings": lists if right else lists[::-1]}), file=log)
    said = told(read_interleaved, path)
    assert right or re.match("rankings: in 200 of 200 searches .* in one order", *said)
    assert len(said) == (not right)


SHARES = {"film": 0.5, "song": 0.3, "game": 0.2}
DRAWN = pandas.DataFrame({"arm": np.random.default_rng(1).choice([*SHARES], 4000, p=[*SHARES.values()])})
DRAWN = DRAWN.assign(propensity=DRAWN["arm"].map(SHARES), reward=np.arange(4000) % 5 == 0)
WRONG = {
    "constant": DRAWN.assign(propensity=1 / 3),
    "of the row before": DRAWN.assign(propensity=np.roll(DRAWN["propensity"], 1)),
    "none": DRAWN.drop(columns="propensity"),
}


@pytest.mark.parametrize("log", WRONG)
def test_propensities_that_an_arm_contradicts_are_doubted_whatever_the_target_shows(log):
    given = {} if log != "none" else {"propensities": Uniform()}
    said = told(off_policy, Table({"song": 1.0}), WRONG[log], arms="shown", **given)
    assert re.search("propensity: mean w of 'film' alone is 1.[45].*they are wrong", said[0]), said


def test_uniform_choice_that_an_arm_contradicts_is_doubted_in_replay():
    policy, uniform = tacit.UCB1([*SHARES]), {"arms": "shown", "assume_uniform": True}
    (said,) = told(tacit.replay, policy, WRONG["none"], **uniform)
    assert re.match("propensity: mean w of 'film' alone is 1.[45].*they are wrong", said)
    even = DRAWN[["reward"]].assign(arm=[*SHARES, *SHARES] * 666 + [*SHARES, "film"])
    assert told(tacit.replay, policy, even, **uniform) == []


def test_propensities_that_move_with_what_was_learned_are_not_doubted():
    for seed in range(20):
        learner = tacit.Learner(tacit.ExplorationFloor(tacit.UCB1(["film", "song", "game"]), 0.05), seed=seed)
        rng, rows = np.random.default_rng(seed), []
        for _ in range(500):
            decision = learner.choose("home")
            reward = float(rng.random() < SHARES[decision.arm])
            learner.learn(decision, reward)
            rows.append({"arm": decision.arm, "propensity": decision.propensity, "reward": reward})
        said = told(off_policy, Table({"film": 1.0}), pandas.DataFrame(rows), arms="shown")
        assert not [each for each in said if each.startswith("propensity")]


def test_searches_whose_rows_contradict_or_repeat_one_another_are_doubted(tmp_path):
    path, again = (
        tmp_path / "searches.csv",
        SEARCHES.assign(search=[f"s{row // 2 % 100}" for row in range(400)]),
    )
    again["team"] = ["new", "old", "old", "new"] * 100
    made = {
        "team = .*'s0' has another item or team at position 0; give each search an id": again[:200].assign(
            position=0
        ),
        "team = .*'s1' has another item or team at position 0; give": pandas.concat([SEARCHES, again[200:]]),
        "search: 300 rows repeat search and position": pandas.concat([SEARCHES, SEARCHES]),
        "unit: 200 searches are of 'ann' alone, .*--unit user": SEARCHES.assign(user="ann"),
    }
    for expected, log in made.items():
        log.to_csv(path, index=False)
        said = told(read_interleaved, path)
        assert len(said) == 1, said
        assert re.search(expected, said[0])


def test_a_segment_that_varies_within_a_search_is_said(tmp_path):
    path = tmp_path / "searches.csv"
    SEARCHES.assign(device=["web", "app"] * 200).to_csv(path, index=False)
    (said,) = told(read_interleaved, path, by=["device"])
    assert said.startswith(
        "by: 'device' varies within searches, and the first counts: 's0' is of 'web' and of 'app'"
    )


def test_a_table_that_says_two_chances_of_an_arm_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "table.csv"
    table.write_text("key,arm,probability\nhome,song,0.7\nhome,film,0.3\nhome,song,0.2\n")
    with pytest.raises(
        TacitError, match=r"table\.csv' is not allowed; home, song, 0.2: the arm has two of them"
    ):
        fixed_target("table:table.csv")
    table.write_text("arm,probability\nsong,0.7\nfilm,0.3\nsong,0.7\n")
    assert fixed_target("table:table.csv").tables == {"": {"song": 0.7, "film": 0.3}}


def test_given_propensities_that_rule_out_what_was_shown_are_refused():
    with pytest.raises(
        TacitError, match=r"row [0-9]+: propensity: 'game' has 0, as given; give what may show"
    ):
        off_policy(Table({"song": 1.0}), DRAWN, arms="shown", propensities=Table({"song": 0.5, "film": 0.5}))


def test_a_schema_that_is_not_there_is_named_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    BARE.to_csv("log.csv")
    said = (
        CliRunner()
        .invoke(cli, ["fit", "log.csv", "--arms", "shown", "--column", "context=@s.toml", "-o", "a.tacit"])
        .output
    )
    assert "context: s.toml cannot be read: No such file or directory; give a schema" in " ".join(
        said.split()
    )


def test_a_schema_whose_sign_is_forgotten_is_taken_for_no_column(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    BARE.to_csv("log.csv")
    (tmp_path / "schema.toml").write_text('context = { age = "number" }')
    typed = ["evaluate", "log.csv", "--policy", "auto", "--arms", "shown", "--column", "context=schema.toml"]
    said = " ".join(CliRunner().invoke(cli, typed).output.split())
    assert "--column: context: schema.toml is a file; give context=@schema.toml" in said


def test_the_verdict_of_an_uneven_draft_is_none(tmp_path):
    SEARCHES.assign(click=[1, 0] * 200).to_csv(tmp_path / "s.csv")
    report, _ = read_interleaved(tmp_path / "s.csv")
    assert report.warnings[0].startswith("Do not trust this: new has more first places")
    assert report.verdict.startswith("No verdict: new leads, but")
