"""The page of duels and of features, in a real browser: its numbers are the store's."""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from tacit.service.config import load_config
from tacit.service.server import running

sys.path.insert(0, str(Path(__file__).parent))
from test_service_page import browser, opened, post, shown

# Fixtures are used by their names.
# ruff: noqa: F401, F811

RANKERS = ["old", "new", "<i>odd</i>", *(f"ranker {i}" for i in range(9))]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    duels = {"kind": "duels", "seed": 3, "attribution_window": 600.0}
    overrides = {
        "store.path": str(tmp_path_factory.mktemp("page") / "s.db"),
        "server.port": 0,
        "placements": {
            "search": duels | {"rankers": RANKERS[:3]},
            "many": duels | {"rankers": RANKERS},
            "none": duels | {"rankers": ["a", "b"]},
            "articles": {
                "kind": "features",
                "policy": {
                    "name": "ec-bandit",
                    "relevance_dim": 2,
                    "examination_dim": 1,
                    "relevance_intercept": True,
                },
            },
        },
    }
    with running(load_config(overrides=overrides)) as address:
        send(address, "search", RANKERS[:3], 20)
        send(address, "many", RANKERS, 6)
        read(address)
        yield address


def send(address, placement, rankers, rounds):
    """Let rankers duel without lists; the earlier one in the list is the better one."""
    rng = np.random.default_rng(5)
    for i in range(rounds):
        pairs = [{"key": "shop" if i % 5 else "blog"}] * 25
        answers = post(address, f"{placement}/duel/batch", {"decisions": pairs})["decisions"]
        feedback = []
        for answer in answers:
            left, right = (rankers.index(answer[side]) for side in ("left", "right"))
            outcome = float(rng.random() < 0.5 + 0.3 * np.sign(right - left))
            feedback.append({"decision_id": answer["decision_id"], "reward": outcome})
        post(address, f"{placement}/feedback/batch", {"feedback": feedback})
    lists = {"rankings": {name: ["a", "b", "c"] for name in rankers}, "key": "shop"}
    for _ in range(4):
        post(address, f"{placement}/duel", lists)


def read(address):
    """Offer articles; those with the first feature are clicked."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        relevance = rng.normal(size=(3, 2)).tolist()
        asked = {"key": "front", "relevance": relevance, "examination": [[1.0]] * 3}
        answer = post(address, "articles/decide", asked)
        reward = float(relevance[answer["arm"]][0] > 0)
        told = {"decision_id": answer["decision_id"], "reward": reward}
        post(address, "articles/feedback", told)


def test_what_is_believed_of_features_is_on_the_page(opened):
    page = opened()
    rows = page.locator("#placement-articles .weights tbody tr")
    names = rows.locator("th").all_inner_texts()
    assert names == ["relevance 0", "relevance 1", "relevance, constant", "examination 0"]
    mean = float(rows.nth(0).locator("td").nth(0).get_attribute("data-value"))
    low = float(rows.nth(0).locator("td").nth(1).inner_text().split()[0])
    assert 0 < low < mean


def standings(address, placement):
    with urllib.request.urlopen(f"{address}/v1/placements/{placement}/duels") as answer:
        return json.load(answer)


def test_the_matrix_on_the_page_is_that_of_the_report(opened, address):
    answer = standings(address, "search")
    assert answer["key"] == "shop"
    report, page = answer["report"], opened()
    assert (
        page.locator('#placement-search [data-field="verdict"]').inner_text() == report["verdict"]
    )
    assert int(shown(page, "search", "left")) == len(report["left"])
    assert int(shown(page, "search", "duels")) == sum(key["duels"] for key in answer["keys"])
    rows = page.locator("#placement-search .matrix tbody tr")
    names = rows.locator("th").all_inner_texts()
    assert sorted(names) == sorted(RANKERS[:3])
    for i, row in enumerate(names):
        cells = rows.nth(i).locator("td")
        for j, column in enumerate(names):
            if i != j:
                place = report["rankers"].index(row), report["rankers"].index(column)
                value = float(cells.nth(j).get_attribute("data-value"))
                estimate = report["estimate"][place[0]][place[1]]
                assert value == pytest.approx(estimate)
                low, high = (report[end][place[0]][place[1]] for end in ("safe_low", "safe_high"))
                lines = cells.nth(j).inner_text().split("\n")
                assert lines == [f"{100 * estimate:.0f} %", f"{100 * low:.0f}–{100 * high:.0f}"]


def test_every_ranker_has_its_standing(opened, address):
    report, page = standings(address, "many")["report"], opened()
    rows = page.locator("#placement-many .standings tbody tr")
    assert rows.count() == 12
    for name, text in zip(
        rows.locator("th").all_inner_texts(), rows.all_inner_texts(), strict=True
    ):
        state = "wins" if name == report["winner"] else "out" if name in report["out"] else "in the"
        assert state in text
    assert page.locator("#placement-many .matrix tbody tr").count() == 10
    assert (
        "2 rankers with the lowest means are left out"
        in page.locator("#placement-many").inner_text()
    )


def test_a_placement_without_duels_says_how_to_begin(opened):
    text = opened().locator("#placement-none pre").inner_text()
    assert text.endswith("/v1/placements/none/duel")


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits(opened, width, scheme, tmp_path):
    page = opened(viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert len(page.screenshot(full_page=True, path=tmp_path / "page.png")) > 10_000
