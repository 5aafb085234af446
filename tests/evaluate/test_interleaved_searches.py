"""Logs of interleaved searches: what is read, credited, told of, and concluded."""

import json
import math
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

from tacit.cli import cli
from tacit.errors import AssumptionWarning, InvalidValue, LogError
from tacit.evaluate.duels import read_duels
from tacit.evaluate.interleaved import hits_of, read_interleaved
from tacit.interleaving import (
    Action,
    Balanced,
    CreditRule,
    DebiasedBalanced,
    Interleaved,
    Optimized,
    TeamDraft,
    credit_clicks,
)
from tacit.uplift import PairSums, chance_of_score, discoveries, duels_needed, preference
from tests.logs.test_logs import lines


def rows(path, text):
    path.write_text(text)
    return path


def click(query, object=None, ordinal=1, action="click", **attributes):
    return {
        "action_name": action,
        "query_id": query,
        "client_id": "ann",
        "timestamp": "2026-08-01T10:00:00Z",
        "event_attributes": {"object": {"object_id": object, **attributes}, "position": {"ordinal": ordinal}},
    }


# Formats -------------------------------------------------------------------------------------


def test_rows_of_a_plain_file(tmp_path):
    log = rows(
        tmp_path / "log.csv",
        "search,team,position,click\n1,new,1,1\n1,old,2,0\n1,,3,1\n2,old,1,0\n2,new,2,1\n",
    )
    report, read = read_interleaved(log)
    found = report.as_dict()
    assert found["rankers"] == ["new", "old"]
    assert (found["searches"], found["clicked"], found["credited"]) == (2, 2, {"click": 2})
    assert found["uncredited"] == {"no-team": 1}
    assert "cannot be credited: 1 on an item that no ranker gave" in report.summary()
    comparison = report.comparisons[0]
    assert (comparison.first, comparison.won, comparison.lost) == ("new", 2, 0)
    assert comparison.lift.claim == "early"
    assert read.kept == 5


def test_foreign_names_of_columns(tmp_path):
    log = rows(tmp_path / "log.csv", "q,ranker,rank,hit\n1,a,1,1\n1,b,2,0\n")
    columns = {"search": "q", "team": "ranker", "position": "rank", "click": "hit"}
    report, _ = read_interleaved(log, columns=columns)
    assert report.comparisons[0].won == 1
    with pytest.raises(LogError, match="--column"):
        read_interleaved(log)


def test_rows_of_clicks_alone_need_no_column_that_says_so(tmp_path):
    log = rows(tmp_path / "log.csv", "search,team,position\n1,new,1\n2,old,2\n")
    assert read_interleaved(log)[0].as_dict()["credited"] == {"click": 2}


def opensearch(query, *hits):
    """An answer of an OpenSearch team-draft test: the team is a search configuration's UUID."""
    return {
        "query_id": query,
        "test_id": "bm25-or-hybrid",
        "hits": [
            {"_index": "shop", "_id": id, "_score": 1.0, "_source": {}, "_search_configuration_id": team}
            for id, team in hits
        ],
    }


def test_an_opensearch_test_and_its_ubi_events(tmp_path):
    answers = lines(
        tmp_path / "answers.ndjson",
        [opensearch("1", ("x", "A"), ("y", "B")), opensearch("2", ("x", "B"), ("y", "A"))],
    )
    events = lines(
        tmp_path / "events.ndjson",
        [
            click("1", "y", 2),
            click("2", "x", 1),
            click("2", "x", 1, "add_to_cart"),
            click("2", "q", 3),
            click("9", "x", 1),
            click("1", "x", 1, "impression"),
        ],
    )
    report, _ = read_interleaved([answers, events], rule=CreditRule({"click": 1, "add_to_cart": 5}))
    found = report.as_dict()
    assert found["credited"] == {"click": 2, "add_to_cart": 1}
    assert found["uncredited"] == {"not-shown": 1, "unknown-search": 1}
    assert found["leader"] == "B"
    assert found["units"] == 1  # the client's searches are one unit
    assert report.compare("B", "A").won == 2


def test_events_that_say_themselves_who_gave_the_object(tmp_path):
    """As Chorus for OpenSearch sends them: the team stands in the object."""
    events = lines(
        tmp_path / "events.ndjson",
        [
            {"query_id": "1", "user_query": "toner", "client_id": "ann"},
            click("1", "x", 1, "impression", search_config="TeamA"),
            click("1", "y", 2, "impression", search_config="TeamB"),
            click("1", "y", 2, search_config="TeamB"),
            click("2", "z", 4, search_config="TeamA"),
        ],
    )
    report, _ = read_interleaved(events)
    pair = report.compare("TeamA", "TeamB")
    assert (pair.searches, pair.won, pair.lost) == (2, 1, 1)


def test_an_interleaved_answer_of_solr(tmp_path):
    answers = lines(
        tmp_path / "answers.jsonl",
        [
            {
                "responseHeader": {"status": 0, "params": {"query_id": "1"}},
                "response": {
                    "numFound": 2,
                    "docs": [
                        {"id": "GB18030TEST", "score": 1.0, "[interleaving]": "modelB"},
                        {"id": "UTF8TEST", "score": 0.8, "[interleaving]": "_OriginalRanking_"},
                    ],
                },
            },
            click("1", "UTF8TEST", 2),
        ],
    )
    report, _ = read_interleaved(answers)
    assert report.rankers == ("_OriginalRanking_", "modelB")
    assert report.compare("_OriginalRanking_", "modelB").won == 1


def test_lists_of_results_for_interleaving_oneself():
    elastic = {"took": 3, "hits": {"total": {"value": 2}, "hits": [{"_id": "a"}, {"_id": "b"}]}}
    solr = {"response": {"docs": [{"sku": "b"}, {"sku": "a"}]}}
    lists = [[hit.id for hit in hits_of(elastic)], [hit.id for hit in hits_of(solr, "sku")]]
    assert lists == [["a", "b"], ["b", "a"]]


def test_tacits_own_log_with_users_and_rankings(tmp_path):
    rng = np.random.default_rng(1)
    method = TeamDraft(length=2)
    records = []
    for number, lists in enumerate(([["a", "b"], ["b", "a"]], [["a", "b"], ["a", "b"]])):
        shown = method.interleave(lists, rng)
        left = shown.memory["teams"].index(0)
        record = {"search": str(number), "left": "old", "right": "new", "user": "ann"}
        record |= {"interleaved": shown.as_dict(), "clicks": [left]}
        records.append(record | {"rankings": {"old": lists[0], "new": lists[1]}})
    report, _ = read_interleaved(lines(tmp_path / "log.jsonl", records), unit="user")
    found = report.as_dict()
    assert (found["searches"], found["alike"]) == (2, 1)
    # A click where both lists are the same says nothing; the search counts all the same.
    pair = report.compare("old", "new")
    assert (pair.searches, pair.won, pair.lost) == (2, 1, 0)


def test_an_item_of_a_log_that_was_clicked_twice_is_no_doubt(tmp_path):
    shown = TeamDraft(length=3).interleave([["a", "b", "c"], ["b", "c", "a"]], np.random.default_rng(3))
    record = {"left": "x", "right": "y", "interleaved": shown.as_dict(), "clicks": [0, 1, 1]}
    log = lines(tmp_path / "log.jsonl", [record] * 3)
    with warnings.catch_warnings(action="error", category=AssumptionWarning):
        read_interleaved(log)


def test_the_old_log_of_duels_reads_as_before(tmp_path):
    log = rows(tmp_path / "log.csv", "left,right,outcome,interleaved\n" + "a,b,1,\n" * 40 + "b,a,0.5,\n")
    assert "Safe to stop: a beats every other ranker" in CliRunner().invoke(cli, ["duel", str(log)]).output
    found = json.loads(CliRunner().invoke(cli, ["duel", str(log), "--wins", "--json"]).output)
    assert found["winner"] == "a"
    assert found["searches"] == 41


def test_what_a_log_says_does_not_depend_on_where_it_lies(tmp_path):
    text = "left,right,outcome\n" + "a,b,1\n" * 40 + "b,a,0.5\n"
    logs = [rows(tmp_path / f"log-{i}.csv", text) for i in range(8)]
    said = [read_interleaved(log, wins=True)[0].as_dict() for log in logs]
    assert said == said[:1] * 8


def test_lists_are_compared_by_credits_whether_options_are_given_or_not(tmp_path):
    method, rng, records = TeamDraft(length=4), np.random.default_rng(2), []
    for number in range(40):
        shown = method.interleave([list("abcd"), list("dcba")], rng)
        teams = np.array(shown.memory["teams"])
        clicks = np.flatnonzero(teams == 0).tolist() if number % 4 == 0 else [int(np.argmax(teams == 1))]
        records.append({"left": "deep", "right": "often", "interleaved": shown.as_dict(), "clicks": clicks})
        records[-1]["outcome"] = float(number % 4 == 0)
    log = str(lines(tmp_path / "log.jsonl", records))
    said = [CliRunner().invoke(cli, ["duel", log, *more]).output for more in ([], ["--credits"], ["--wins"])]
    assert said[0] == said[1] != said[2]


def test_optimized_lists_are_compared_by_credits(tmp_path):
    method = Optimized(length=3)
    rng = np.random.default_rng(2)
    records = []
    for _ in range(20):
        shown = method.interleave([["a", "b", "c"], ["b", "c", "a"]], rng)
        records.append({"left": "x", "right": "y", "interleaved": shown.as_dict(), "clicks": [0]})
    log = lines(tmp_path / "log.jsonl", records)
    with pytest.warns(AssumptionWarning, match="--credits"):
        read_duels(log)
    found = CliRunner().invoke(cli, ["duel", str(log), "--credits", "--json"])
    assert json.loads(found.output)["searches"] == 20
    assert CliRunner().invoke(cli, ["duel", str(log), "--credits", "--wins"]).exit_code == 2


# What is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1,new,one,1", "wrong-position"),
        ("1,new,1,nan", "wrong-click"),
        ("1,new,1,-1", "wrong-click"),
        (",new,1,1", "missing-search"),
        ("0,old,1,0", "wrong-team"),
        ("1,new,1", "malformed-row"),
    ],
)
def test_a_wrong_row_is_counted_or_stops(tmp_path, row, reason):
    log = rows(tmp_path / "log.csv", f"search,team,position,click\n0,new,1,1\n0,old,2,0\n{row}\n")
    report, read = read_interleaved(log)
    assert read.rejected == {reason: 1}
    assert report.sums.searches >= 1
    with pytest.raises(LogError):
        read_interleaved(log, strict=True)


SHOWN = {"items": ["x"], "rankers": 2, "method": "TeamDraft", "memory": {"teams": [0]}}


@pytest.mark.parametrize(
    "record",
    [
        {"hits": 3},
        {"query_id": "1", "hits": [{"_id": {}}]},
        {"left": "a", "right": "b", "interleaved": "{", "clicks": []},
        {"left": "a", "right": "b", "interleaved": {}, "clicks": []},
        {"action_name": "click", "query_id": 3},
        {"search": "1", "team": [], "position": 1, "click": 1},
        {"search": "1", "team": "a", "position": True, "click": {}},
        {"search": "1", "team": "a", "position": 10**400, "click": 1},
        {"left": "a", "right": "b", "outcome": 2},
        {"left": "a", "right": "b", "interleaved": SHOWN | {"method": "None"}, "clicks": [0]},
        {"left": "a", "right": "b", "interleaved": SHOWN | {"memory": {}}, "clicks": [0]},
        {"left": "a", "right": "b", "interleaved": SHOWN, "clicks": [0], "rankings": [[{}], ["x"]]},
        {"left": "a", "right": "b", "interleaved": SHOWN, "clicks": [0], "rankings": [["y"] * 2] * 2},
        {},
    ],
    ids=str,
)
def test_hostile_records_are_counted(tmp_path, record):
    good = [{"search": "7", "team": t, "position": p, "click": 1} for p, t in enumerate("ab")]
    report, read = read_interleaved(lines(tmp_path / "log.jsonl", [record, *good]), most_rejected=1.0)
    assert report.sums.searches == 1
    assert sum(read.rejected.values()) == 1


SHOWN3 = TeamDraft(length=3).interleave([["x", "y", "z"]] * 2, np.random.default_rng(1)).as_dict()
OWN = {"left": "old", "right": "new", "clicks": [0], "interleaved": SHOWN3}
OF_A_PLACE = [
    {"search": f"{s}", "team": team, "position": p + 1, "click": p * s % 2, "user": "a"}
    for s in range(4)
    for p, team in enumerate(["old", "new"])
]
CLICKED = [row | {"search": f"{n} {row['search']}", "click": 1} for n in range(30) for row in OF_A_PLACE]


@pytest.mark.parametrize(
    ("records", "options", "message"),
    [
        (
            [OWN, OWN | {"clicks": [3]}],
            {"most_rejected": 0.5},
            r"clicks = 3; .*count from 0, not from 1\); such rows are left out",
        ),
        (CLICKED, {}, "click: 240 of 240 results have one; are the rows without a click missing"),
        (
            OF_A_PLACE,
            {"unit": "position"},
            "unit: 'position' varies within searches, .*: '0' is of '1' and of '2'; ",
        ),
    ],
)
def test_searches_that_say_too_much_are_doubted(tmp_path, records, options, message):
    with pytest.warns(AssumptionWarning, match=message):
        read_interleaved(lines(tmp_path / "log.jsonl", records), **options)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (OWN | {"left": None, "right": None}, "there is no column 'left' .and none for right"),
        (OWN | {"right": "old"}, "there are ..old..: .* or two others in left and right"),
    ],
)
def test_a_log_of_our_own_without_two_rankers_is_refused(tmp_path, record, message):
    record = {name: value for name, value in record.items() if value is not None}
    with pytest.raises(LogError, match=message):
        read_interleaved(lines(tmp_path / "log.jsonl", [record | {"search": f"{s}"} for s in range(3)]))


# Credit --------------------------------------------------------------------------------------


def test_credit_by_action_place_and_amount():
    shown = Interleaved(("a", "b", "c"), 2, "TeamDraft", {"teams": [0, 1, None]})
    done = [Action(0), Action(0), Action(1, "dwell", 90.0), Action(2), Action(1, "scroll")]
    assert CreditRule().credits(shown, done) == (1.0, 0.0)
    assert CreditRule(once=False).credits(shown, done) == (2.0, 0.0)
    rule = CreditRule({"click": 1, "dwell": 1 / 30}, position="inverse", most=60)
    assert rule.credits(shown, done) == (1.0, 1.0)
    assert CreditRule({"click": 1, "dwell": 1}, position=[0.5]).credits(shown, done) == (0.5, 0.0)


def test_credit_by_distinctness():
    shown = Interleaved(("a", "b", "c"), 2, "TeamDraft", {"teams": [0, 1, 0]})
    rule = CreditRule(distinct=True)
    done = [Action(0), Action(1), Action(2)]
    left, right = rule.credits(shown, done, [["a", "c", "b"], ["a", "b", "c"]])
    assert math.isclose(left, 1 / 2 - 1 / 3)
    assert math.isclose(right, 1 / 2 - 1 / 3)
    with pytest.raises(InvalidValue, match="rankings"):
        rule.credits(shown, done)


@pytest.mark.parametrize("method", [TeamDraft(length=5), Balanced(length=5), DebiasedBalanced(5)])
def test_a_plain_rule_is_the_methods_own_credit(method):
    rng = np.random.default_rng(4)
    for _ in range(50):
        shown = method.interleave([rng.permutation(8).tolist() for _ in range(2)], rng)
        clicks = np.flatnonzero(rng.random(5) < 0.4).tolist()
        expected = credit_clicks(shown, clicks).credits
        assert np.allclose(CreditRule().credits(shown, map(Action, clicks)), expected)


# Debiased credit -----------------------------------------------------------------------------


def favoured(method, lists, curve):
    """The mean difference of credits if users click whatever they see, by a curve."""
    total = 0.0
    for chance, shown in method.lists(lists):
        for place in range(len(shown.items)):
            left, right = method.credit(shown, [place]).credits
            total += chance * curve[place] * (left - right)
    return total


def test_debiased_credit_favours_nobody_where_balanced_credit_does():
    curve = 1 / np.arange(1, 5)
    lists = ["a", "b", "c", "d"], ["b", "c", "d", "a"]
    assert abs(favoured(Balanced(length=4), lists, curve)) > 0.1
    assert abs(favoured(DebiasedBalanced(length=4), lists, curve)) < 1e-12
    # What the lists do not reach would favour one of them, and so would another curve.
    assert abs(favoured(DebiasedBalanced(length=2, top=2), lists, curve)) > 0.1
    assert abs(favoured(DebiasedBalanced(length=4), lists, np.ones(4))) > 0.01


def test_debiased_credit_is_the_clicks_that_each_ranker_would_get_alone():
    rng = np.random.default_rng(2)
    for _ in range(20):
        curve = np.sort(rng.random(6))[::-1]
        attraction = rng.random(6)
        lists = [rng.permutation(6).tolist() for _ in range(2)]
        method = DebiasedBalanced(length=6, examined=curve.tolist(), top=6)
        earned = np.zeros(2)
        for chance, shown in method.lists(lists):
            seen = curve * attraction[list(shown.items)]
            earned += chance * np.array(shown.memory["credits"]) @ seen
        assert np.allclose(earned, [curve @ attraction[given] for given in lists])


# Preferences ---------------------------------------------------------------------------------


def test_sums_merge_and_turn():
    d, users = np.random.default_rng(5).integers(-2, 3, 200), [f"u{i % 30}" for i in range(200)]
    whole, first, second = PairSums.empty(), PairSums.empty(), PairSums.empty()
    whole.add(d, users)
    first.add(d[:77], users[:77])
    second.add(d[77:], users[77:])
    merged = first.merge(second)
    assert np.array_equal(merged.sums, whole.sums)
    assert np.array_equal(merged.buckets, whole.buckets)
    here, there = preference(whole).difference, preference(whole.swap_sides()).difference
    assert here.low == -there.high
    assert here.estimate == -there.estimate


def test_a_users_searches_are_not_independent():
    one, many = PairSums.empty(), PairSums.empty()
    d = np.repeat(np.random.default_rng(6).choice([-1.0, 1.0], 100), 20)
    one.add(d, [f"u{i // 20}" for i in range(2000)])
    many.add(d, [f"s{i}" for i in range(2000)])
    assert float(many.dispersion) < 2
    assert 10 < float(one.dispersion) < 40
    assert float(one.error) > 3 * float(many.error)


def test_looks_at_any_time_mislead_seldom():
    """Daily looks at 400 experiments without a difference, users of 5 to 50 searches."""
    rng = np.random.default_rng(7)
    days, users, runs = 30, 300, 400
    shape = users, runs
    taste, left = rng.normal(0, 0.2, shape), rng.integers(5, 51, shape)
    sums = PairSums(np.zeros((4, runs)), np.zeros((2, 128, runs)))
    wrong = np.zeros(runs, bool)
    for day in range(days):
        n = rng.binomial(left, 1 / (days - day))
        left -= n
        decided = rng.binomial(n, 0.4)
        d = 2.0 * rng.binomial(decided, np.clip(0.5 + taste, 0, 1)) - decided
        for row, each in enumerate((n, d, decided, decided)):
            sums.sums[row] += each.sum(axis=0)
        for row, each in enumerate((n, d)):
            np.add.at(sums.buckets[row], np.arange(users) % 128, each)
        wrong |= abs(sums.score) > 3.25
    # Were 5 % true, more than 34 of 400 would come with a probability of 0.1 %.
    assert wrong.sum() <= 34


def test_discoveries_are_few_false_ones():
    assert discoveries([]) == []
    assert discoveries([0.04, 0.04, 0.04]) == [True, True, True]
    assert discoveries([0.04, 0.9, 0.9]) == [False, False, False]
    assert chance_of_score(10.0) < 1e-15


def test_the_planner_counts_users_and_rankers():
    assert duels_needed(0.02, 0.3) == pytest.approx(6300)
    assert duels_needed(0.02, 0.3, per_user=20, likeness=1.0) == pytest.approx(20 * 6300)
    assert 1.1 < duels_needed(0.02, 0.3, comparisons=4) / 6300 < 1.5


# The whole report ----------------------------------------------------------------------------


def simulated(path, *, searches=3000, edge=0.2, uneven=False):
    """A log in which new is better in Sweden and nowhere else."""
    rng = np.random.default_rng(8)
    lines = ["search,team,position,click,user,market"]
    for search in range(searches):
        user = search // 10
        market = ["se", "de", "fr", "us"][user % 4]
        teams = rng.permutation(["new", "old"]).tolist() + (["old"] if uneven else [])
        better = edge if market == "se" else 0.0
        for place, team in enumerate(teams):
            chance = 0.3 + (better if team == "new" else 0.0)
            lines.append(f"{search},{team},{place + 1},{int(rng.random() < chance)},{user},{market}")
    path.write_text("\n".join(lines))
    return path


def test_segments_and_the_figure(tmp_path):
    log, figure = simulated(tmp_path / "log.csv"), tmp_path / "figure.png"
    arguments = ["duel", str(log), "--by", "market", "--plot", str(figure), "--json"]
    found = json.loads(CliRunner().invoke(cli, arguments).output)
    assert [s["value"] for s in found["segments"] if s["found"]] == ["se"]
    assert found["units"] == 300
    assert not found["warnings"]
    assert figure.stat().st_size > 5000
    text = CliRunner().invoke(cli, ["duel", str(log), "--by", "market"]).output
    assert "market se" in text
    assert "you may look at this at any time" in text.lower()


def test_an_unfair_draft_is_told(tmp_path):
    log = simulated(tmp_path / "log.csv", uneven=True)
    report, _ = read_interleaved(log)
    assert "old has more places than new, by 1 a search" in " ".join(report.warnings)
    assert not read_interleaved(log, depth=2)[0].warnings


@pytest.mark.parametrize(
    "options", [["--worth", "click"], ["--worth", "click=x"], ["--position", "low"], ["--most", "0"]]
)
def test_wrong_options_are_told(tmp_path, options):
    log = simulated(tmp_path / "log.csv", searches=20)
    assert CliRunner().invoke(cli, ["duel", str(log), *options]).exit_code == 2


def test_unknown_columns_are_told(tmp_path):
    log = simulated(tmp_path / "log.csv", searches=20)
    for options in ({"by": ["planet"]}, {"unit": "planet"}):
        with pytest.raises(LogError, match="planet"):
            read_interleaved(log, **options)
