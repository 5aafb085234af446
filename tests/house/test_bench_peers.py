"""The benchmark against other packages: its streams, its accounts and its page."""

import importlib
import json
import runpy

import numpy as np
import pytest
from conftest import DATA, ROOT

BENCHMARKS = ROOT / "benchmarks"
NAMES = ("bench_peers", "page", "streams", "wrong")


@pytest.fixture(scope="module")
def modules():
    return {name: importlib.import_module(name) for name in NAMES}


@pytest.fixture(scope="module")
def play():
    return runpy.run_path(str(BENCHMARKS / "peers" / "play.py"))["play"]


@pytest.fixture(scope="module")
def results():
    return json.loads((BENCHMARKS / "peers.json").read_text())


def test_the_pages_show_the_results(modules, results):
    for page in modules["page"].PAGES:
        text = page.read_text()
        assert modules["page"].filled(text, results) == text


def test_every_package_has_the_same_budget(results):
    learned = results["learned"]
    assert {row["candidates"] <= 8 for row in learned["rows"]} == {True}
    assert {row["runs"] for row in learned["rows"]} == {learned["effort"]["testing"]}


def test_streams_repeat(modules, tmp_path):
    streams = modules["streams"]
    for seed in (3, streams.TEST):
        paths = [streams.write(tmp_path, "shifting", seed) for _ in range(2)]
        np.testing.assert_array_equal(*[np.load(path)["chances"] for path in paths])


def test_real_interest_is_halved_for_tuning_and_testing(modules):
    streams, table = modules["streams"], DATA / "search_interest_us_news_2017.csv"
    tuned, tested = (
        streams.interest(np.random.default_rng(1), seed, table)["chances"] for seed in (3, streams.TEST)
    )
    assert tuned.shape == tested.shape == (5_000, 19)
    # Floor and share, on the first day and on the last: 1 September's favourites.
    assert tuned[0].argmax() == 18
    assert tuned[0, 18] == 0.5
    assert not np.array_equal(tuned[-1], tested[0])


def test_names_of_girls_are_for_tuning_and_of_boys_for_testing(modules, monkeypatch):
    """Two years, in proportion to each year's favourite: 0.02 + 0.48·share."""
    streams = modules["streams"]
    given = {"F": np.array([[4.0, 1.0], [1.0, 2.0]]), "M": np.array([[3.0, 3.0], [0.0, 8.0]])}
    monkeypatch.setattr(streams, "popularity", given.__getitem__)
    tuned, tested = (streams.names(np.random.default_rng(1), seed)["chances"] for seed in (3, streams.TEST))
    assert tuned.shape == tested.shape == (5_000, 2)
    np.testing.assert_allclose(tuned[[0, -1]], [[0.5, 0.14], [0.26, 0.5]])
    np.testing.assert_allclose(tested[[0, -1]], [[0.5, 0.5], [0.02, 0.5]])


def test_shifting_intent_is_as_the_paper_draws_it(modules):
    stream = modules["streams"].shifting(np.random.default_rng(1), 1)
    ordered = np.sort(stream["chances"], axis=1)
    assert (ordered[:, -1] - ordered[:, -2] >= 0.1).all()
    for key in range(5):
        segments = stream["which"][stream["keys"] == key]
        assert (np.diff(segments) >= 0).all()
        seen = np.unique(segments)
        assert len(seen) in (2, 3)
        best = stream["chances"][seen].argmax(axis=1)
        assert (best[1:] != best[:-1]).all()


def test_regret_by_hand(play):
    """Two rounds of arm 0, then two of arm 1, of two keys: gaps 0.5, 0, 0 and 0.25."""
    stream = {
        "kind": np.array("arms"),
        "seed": np.array(5),
        "chances": np.array([[0.25, 0.75], [0.5, 0.25]]),
        "which": np.array([0, 1, 0, 1]),
        "keys": np.array([0, 0, 1, 1]),
        "uniforms": np.array([0.1, 0.6, 0.7, 0.2]),
    }
    told = []

    def make(seed):
        return (lambda: seed - 5), (lambda arm, reward: told.append((seed, arm, reward)))

    _, rounds, scores = play(make, stream)
    assert (rounds, scores) == (4, [0.75])
    assert told == [(5, 0, 1.0), (5, 0, 0.0), (6, 1, 1.0), (6, 1, 1.0)]


def test_differences_are_paired_by_stream(modules):
    """Differences 1, 2 and 3: their mean is 2, its error 1/√3."""
    found = modules["bench_peers"].paired([11.0, 22.0, 33.0], [10.0, 20.0, 30.0])
    assert found["score"] == 2.0
    assert found["standard_error"] == pytest.approx(3.0**-0.5)


def test_times_of_one_package_in_one_role_replace_its_own_alone(modules):
    def row(who, score, role="weighing"):
        return {"role": role, "entrant": who, "score": score}

    before = {"machine": {}, "rows": [row("obp", 1, "replay"), row("obp", 2), row("river", 3)]}
    found = modules["bench_peers"].replaced(before, {"machine": {"load": 1}, "rows": [row("obp", 4)]})
    assert [each["score"] for each in found["rows"]] == [1, 4, 3]
    assert found["machine"] == {}


def test_a_ratio_of_regrets_knows_that_they_were_paired(modules):
    """Regrets 2, 4, 6 are twice 1, 2, 3, seed by seed: no error; 3, 4, 5 are off by 1, 0, -1."""
    over = importlib.import_module("items_kept").over
    assert over([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]) == {"score": 2.0, "standard_error": 0.0}
    found = over([3.0, 4.0, 5.0], [1.0, 2.0, 3.0])
    assert found == {"score": 2.0, "standard_error": pytest.approx(3.0**-0.5 / 2.0)}


def test_scores_of_many_loops_are_pooled(modules):
    """Two C loops, means 2 and 4, deviations 3 of 9 runs: each error is 1, the mean's √2/2."""
    found = modules["bench_peers"].scored("C", [[[1.0, 10, [2.0, 3.0, 9]]], [[1.0, 10, [4.0, 3.0, 9]]]])
    assert found["score"] == 3.0
    assert found["standard_error"] == pytest.approx(0.5**0.5)
    assert found["runs"] == 18


def test_what_was_measured_is_not_measured_again(modules, tmp_path, monkeypatch):
    bench_peers = modules["bench_peers"]
    monkeypatch.setattr(bench_peers, "MEASURED", tmp_path)
    calls = []

    def job():
        calls.append(1)
        if len(calls) == 2:
            raise bench_peers.PeerFailed("no luck")
        return {"a": 1.5}

    for _ in range(2):
        bench = bench_peers.Bench("learned", bench_peers.SHORT)
        assert bench.once("one", job) == {"result": {"a": 1.5}}
        assert bench.once("two", job) == {"error": "no luck"}
    assert len(calls) == 2


@pytest.mark.parametrize("case", sorted(path.stem for path in (BENCHMARKS / "wrong").glob("*.py")))
def test_every_case_says_what_it_shows(modules, case):
    told = modules["wrong"].said(case)
    assert {"Code", "Case", "Shown"} <= told.keys()
    assert {"Paper", "Definition", "Documentation"} & told.keys()


def test_numbers_are_told_to_their_precision(modules):
    page = modules["page"]
    assert page.uncertain(123.456, 1.234) == "123.5 ± 1.2"
    assert page.uncertain(0.38746, 0.00123) == "0.3875 ± 0.0012"
    assert page.uncertain(12345.6, 123.4) == "12,346 ± 123"
    assert page.uncertain(None, None) == "–"
