"""The study of how many searches interleaving takes: its exact moments, and that it runs."""

import numpy as np
import pytest

from studies import item, sensitivity
from studies.study import Setup
from tacit.interleaving import credit_clicks

GRADES = np.array([0, 3, 1, 4, 0, 2, 1, 0, 2, 0])
QUERY = sensitivity.GradedQuery(GRADES, (3, 1, 5, 8, 2, 6, 0, 4, 7, 9), (1, 3, 8, 5, 0, 2, 6, 4, 9, 7))


@pytest.mark.parametrize("name", ["TeamDraft", "Balanced", "Optimized"])
def test_moments_are_those_of_simulated_searches(name):
    rng = np.random.default_rng(1)
    user, method = sensitivity.READERS["navigational"], sensitivity.METHODS[name]
    shown = [method.interleave([QUERY.better, QUERY.worse], rng) for _ in range(4000)]
    clicks = user.simulate(np.array([GRADES[list(each.items)] for each in shown]), rng)
    credits = [
        credit_clicks(each, np.flatnonzero(row).tolist()).credits
        for each, row in zip(shown, clicks, strict=True)
    ]
    leads = np.subtract(*np.array(credits).T)
    lists = sensitivity.listed([QUERY], name, 0)
    for score, found in ((sensitivity.CREDITS, leads), (sensitivity.WINS, np.sign(leads))):
        moments = sensitivity.of_interleaving([QUERY], lists, sensitivity.ClickChances(user), score)
        error = found.std() / np.sqrt(len(found))
        assert abs(found.mean() - moments.mean) < 4 * error
        assert np.isclose(found.var(), moments.variance, rtol=0.15)


def test_an_ab_test_is_that_of_simulated_searches():
    rng = np.random.default_rng(2)
    user = sensitivity.READERS["position-based"]
    tops = np.array([GRADES[list(each[: sensitivity.LENGTH])] for each in (QUERY.better, QUERY.worse)])
    clicks = [user.simulate(np.repeat(top[None], 20_000, axis=0), rng).sum(axis=1) for top in tops]
    moments = sensitivity.of_ab_test([QUERY], "clicks", sensitivity.ClickChances(user))
    assert abs(np.mean(clicks[0]) - np.mean(clicks[1]) - moments.mean) < 0.03
    assert np.isclose(2 * sum(map(np.var, clicks)), moments.variance, rtol=0.05)
    assert set(sensitivity.METRICS) == {"clicks", "any click", "clicks, by 1/log"}


def test_rankers_differ_in_a_tenth_of_the_queries():
    queries = sensitivity.rankers(sensitivity.SWAP, np.random.default_rng(3))
    differ = [
        query for query in queries if query.better[: sensitivity.LENGTH] != query.worse[: sensitivity.LENGTH]
    ]
    assert 1 <= len(differ) <= len(queries) / 10
    # Queries on which both agree need no list.
    assert {each.query for each in sensitivity.listed(queries, "TeamDraft", 0)} <= set(range(4))


def test_the_study_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(sensitivity, "QUERIES", 10)
    monkeypatch.setattr(sensitivity, "CLOSENESS", {sensitivity.SWAP: 0.2, sensitivity.SMALL: 0.1})
    found = item("interleaving-power").reproduce(Setup(runs=1))
    assert min([cell["times"] for cell in found.cells if cell["method"] == "Optimized"]) > 1
    assert "| TeamDraft, by rank, credits |" in found.report
    found.draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
