"""Preferences from logs of duels, and when it is safe to stop."""

import json
import math
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tacit.errors import AssumptionWarning, LogError
from tacit.evaluate.duels import DuelReport, log_evidence, preferences, read_duels, safe_interval
from tacit.evaluate.intervals import wilson
from tacit.interleaving import Balanced, Probabilistic, TeamDraft, TeamDraftMultileave
from tests.cli.test_cli import tacit

DUELS = [("a", "b", 1.0)] * 40 + [("b", "a", 0.0)] * 20 + [("a", "b", 0.5)] * 4


# Numbers ------------------------------------------------------------------------------------


def test_wilson_by_hand():
    # The ends p solve |8/10 - p| = z·sqrt(p(1 - p)/10).
    for end in wilson(8 / 10, 10):
        assert math.isclose(abs(0.8 - end), 1.959964 * math.sqrt(end * (1 - end) / 10), rel_tol=1e-6)
    assert wilson(math.nan, 0) == (0.0, 1.0)
    assert wilson(0.0, 10)[0] == 0.0


def test_evidence_is_the_mixture_of_likelihoods():
    """Against quadrature over the arcsine density; x = sin² u makes it flat."""
    p = np.sin((np.arange(20_000) + 0.5) * math.pi / 2 / 20_000) ** 2
    for score, plays, mean in ((8, 10, 0.5), (3.5, 9, 0.2), (0, 4, 0.7)):
        mixture = np.mean(p**score * (1 - p) ** (plays - score))
        likelihood = mean**score * (1 - mean) ** (plays - score)
        assert math.isclose(log_evidence(score, plays, mean), math.log(mixture / likelihood))
    assert abs(log_evidence(0, 0, 0.3)) < 1e-12
    assert log_evidence(1, 2, 0.0) == math.inf


@pytest.mark.parametrize("ties", [0.0, 0.5])
def test_looking_at_every_time_is_safe(ties):
    """2000 fair pairs, looked at 2000 times each: few are ever called unequal."""
    rng, alpha = np.random.default_rng(3), 0.1
    outcomes = rng.integers(0, 2, (2000, 2000)).astype(float)
    outcomes[rng.random(outcomes.shape) < ties] = 0.5
    scores, plays = outcomes.cumsum(axis=1), np.arange(1, 2001)
    # The evidence grows with the lead: per number of plays, the least lead that is enough.
    enough = [
        next(
            (
                lead
                for lead in np.arange(0, n + 0.5, 0.5)
                if log_evidence((n + lead) / 2, n, 0.5) >= -math.log(alpha)
            ),
            math.inf,
        )
        for n in range(1, 2001, 20)
    ]
    wrong = (abs(2 * scores - plays)[:, ::20] >= np.array(enough)).any(axis=1).mean()
    # Three standard deviations above the bound: 1.4e-3.
    assert wrong <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / 2000)


def test_safe_intervals_are_where_there_is_no_evidence():
    low, high = safe_interval(30, 50, 0.05)
    for end in (low, high):
        assert math.isclose(log_evidence(30, 50, end), math.log(20), rel_tol=1e-6)
    assert low < wilson(30 / 50, 50)[0] < 0.6 < wilson(30 / 50, 50)[1] < high
    assert safe_interval(0, 0, 0.05) == (0.0, 1.0)


# Reports ------------------------------------------------------------------------------------


def test_a_clear_winner():
    report = preferences(DUELS)
    assert report.names == ("a", "b")
    assert report.plays[0, 1] == 64
    assert report.scores[0, 1] == 62
    assert report.ties == 4
    assert (report.winner, report.out, report.left) == ("a", ("b",), ("a",))
    assert report.safe_to_stop
    assert report.count_missing_duels(1) == 0
    assert report.verdict == "Safe to stop: a beats every other ranker, with confidence 0.95."


def test_too_few_duels_and_how_many_are_missing():
    report = preferences([("a", "b", 1.0)] * 6 + [("a", "b", 0.0)] * 4)
    assert not report.safe_to_stop
    assert report.left == ("a", "b")
    needed = report.count_missing_duels(1)
    # At 60 %, so many more decide, and one fewer does not.
    for more, decided in ((needed, True), (needed - 1, False)):
        total = 10 + more
        assert (log_evidence(0.6 * total, total, 0.5) >= math.log(20)) == decided
    assert f"some {needed:,} more duels" in report.verdict


def test_without_a_winner_the_last_one_left_is_the_only_candidate():
    # b and c were never compared; both lose to a, or c to b: a alone is left.
    plays = np.array([[0, 100, 0], [100, 0, 100], [0, 100, 0]])
    report = DuelReport(["a", "b", "c"], plays, np.array([[0, 90, 0], [10, 0, 90], [0, 10, 0]]))
    assert (report.winner, report.left, report.safe_to_stop) == (None, ("a",), True)
    assert "if any ranker beats all others" in report.verdict
    assert report.count_missing_duels(2) is None


def test_in_a_cycle_everybody_is_out():
    plays = 100 * (1 - np.eye(3))
    report = DuelReport(["a", "b", "c"], plays, np.array([[0, 90, 10], [10, 0, 90], [90, 10, 0]]))
    assert report.left == ()
    assert not report.safe_to_stop
    assert "none beats all others" in report.verdict


def test_confidence_is_shared_by_all_pairs():
    assert DuelReport(["a", "b"], [[0, 9], [9, 0]], [[0, 9], [0, 0]], confidence=0.95).winner == "a"
    many = np.zeros((20, 20))
    many[0, 1] = many[1, 0] = 9
    scores = np.zeros((20, 20))
    scores[0, 1] = 9
    assert DuelReport(list("abcdefghijklmnopqrst"), many, scores).out == ()


# Logs ---------------------------------------------------------------------------------------


def impressions(method, count=60):
    """Rows in which a user clicks the item that the first ranker has on top."""
    rng = np.random.default_rng(1)
    rows = []
    for number in range(count):
        left, right = ("new", "old") if number % 2 else ("old", "new")
        rankings = {"new": ["good", "x", "y"], "old": ["y", "x", "good"]}
        shown = method.interleave([rankings[left], rankings[right]], rng)
        clicks = [] if number % 10 == 0 else [shown.items.index("good")]
        rows.append((left, right, shown.as_dict(), clicks))
    return rows


@pytest.mark.parametrize(
    "method", [TeamDraft(), Balanced(), Probabilistic(), Probabilistic(marginalised=False)], ids=str
)
def test_clicks_on_what_was_shown_become_outcomes(method, tmp_path):
    path = tmp_path / "impressions.jsonl"
    rows = impressions(method)
    path.write_text(
        "\n".join(
            json.dumps({"left": a, "right": b, "interleaved": shown, "clicks": clicks})
            for a, b, shown, clicks in rows
        )
    )
    report, log = read_duels(path)
    assert (log.read, log.kept) == (60, 60)
    assert report.unclicked == 6
    assert report.names == ("new", "old")
    assert report.estimates[0, 1] > 0.6


def test_the_same_in_csv_and_parquet(tmp_path):
    rows = impressions(TeamDraft())
    columns = {
        "left": [row[0] for row in rows],
        "right": [row[1] for row in rows],
        "interleaved": [json.dumps(row[2]) for row in rows],
        "clicks": [json.dumps(row[3]) for row in rows],
    }
    table = pa.table(columns)
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
    pa.csv.write_csv(table, tmp_path / "log.csv")
    reports = [read_duels(tmp_path / name)[0].as_dict() for name in ("log.parquet", "log.csv")]
    assert reports[0] == reports[1]
    assert reports[0]["plays"][0][1] == 60


def test_wrong_rows_are_counted_or_stop(tmp_path):
    path = tmp_path / "log.csv"
    shown = TeamDraftMultileave().interleave([["a"], ["b"], ["c"]], np.random.default_rng(1))
    quoted = json.dumps(shown.as_dict()).replace('"', '""')
    path.write_text(
        "left,right,outcome,interleaved,clicks\n"
        "a,b,1,,\n"
        "a,b,2,,\n"
        ",b,1,,\n"
        "a,b,,,[0]\n"
        "a,b,,,\n"
        f'a,b,,"{quoted}",[0]\n'
        f'a,b,,"{quoted}",[7]\n'
        "a,a,1,,\n"
        "a,b\n"
    )
    report, rows = read_duels(path)
    assert report.plays[0, 1] == 1
    assert rows.kept == 2
    assert rows.rejected == {
        "wrong-outcome": 1,
        "missing-left": 1,
        "missing-interleaved": 1,
        "missing-outcome": 1,
        "wrong-interleaved": 1,
        "wrong-clicks": 1,
        "malformed-row": 1,
    }
    with pytest.raises(LogError, match="row 2: outcome: '2' is not allowed; give 1 where the left one won"):
        read_duels(path, strict=True)
    with pytest.raises(LogError, match="no column 'winner'"):
        read_duels(path, columns={"outcome": "winner"})


def test_the_command_prints_a_table_json_and_a_plot(tmp_path):
    path = tmp_path / "log.csv"
    rows = "\n".join(f"{a},{b},{won}" for a, b, won in DUELS)
    path.write_text(f"ours,theirs,outcome\n{rows}\n")
    columns = ["--column", "left=ours", "--column", "right=theirs"]
    result = tacit("duel", path, *columns, "--plot", tmp_path / "duels.png")
    assert result.returncode == 0, result.stderr
    assert "64 duels, 4 ties" in result.stdout
    assert "Safe to stop: a beats every other ranker" in result.stdout
    assert (tmp_path / "duels.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(tacit("duel", path, *columns, "--json").stdout)
    assert (found["winner"], found["out"], found["safe_to_stop"]) == ("a", ["b"], True)
    assert found["estimate"][0][1] == 62 / 64
    assert found["safe_low"][0][1] < found["low"][0][1] < found["estimate"][0][1]
    assert tacit("duel", path).returncode == 1
    assert tacit("duel", path, "--column", "winner=x").returncode == 2


@pytest.mark.parametrize(
    ("rows", "field"),
    [
        ("left,right,outcome\nOld,New,0\nOld,New ,0\n", "right"),
        ("search,team,position,click\ns,Old,0,1\ns,New,1,0\nt,Old,0,1\nt,New ,1,0\n", "team"),
    ],
)
def test_a_blank_at_the_end_makes_no_other_ranker(tmp_path, rows, field):
    path = tmp_path / "duels.csv"
    path.write_text(rows)
    came = tacit("duel", path)
    assert came.returncode == 0, came.stderr
    assert f"wrong-{field}: 1" in came.stderr + came.stdout
    came = tacit("duel", path, "--strict")
    assert came.returncode == 1
    assert f"{field}: 'New ' is not allowed" in came.stderr


@pytest.mark.parametrize("unit", ["session", "visitor_id"])
def test_sessions_that_come_back_are_warned_of(unit):
    log = {"left": ["a", "b"] * 20, "right": ["b", "a"] * 20, "outcome": [1, 0] * 20}
    with pytest.warns(AssumptionWarning, match=rf"{unit}: 's0' comes back, .* give --unit {unit}"):
        read_duels(log | {unit: [f"s{row % 7}" for row in range(40)]})
    with warnings.catch_warnings(action="error"):
        read_duels(log | {unit: [f"s{row}" for row in range(40)], "market": ["de", "fr"] * 20})
