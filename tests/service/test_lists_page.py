"""The page of duels and of features, in a real browser: its numbers are the store's."""

import json
import re

import apsw
import numpy as np
import pytest
from harness import Client, configured

from tacit.service.app.server import run_in_thread
from tests.service.test_page import SCREENS, obstacles, post, shown

RANKERS = ["old", "new", "<i>odd</i>", *(f"ranker {i}" for i in range(9))]


# Learned from at its first feedback, so that no click can come too late.
LISTS = {"kind": "slates", "arms": list("abcde"), "seed": 3, "aggregation": "first"}
BROWSED = 60


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("page") / "s.db"


@pytest.fixture(scope="module")
def address(store):
    duels = {"kind": "duels", "seed": 3, "attribution_window": 600.0}
    articles = {"name": "ec-bandit", "relevance_dim": 2, "examination_dim": 1, "relevance_intercept": True}
    placements = {
        "search": duels | {"rankers": RANKERS[:3]},
        "many": duels | {"rankers": RANKERS},
        "none": duels | {"rankers": ["a", "b"]},
        "lists": LISTS | {"policy": "cascade-ucb1"},
        "tried": LISTS | {"policy": "cascade-ucb1"},
        "places": LISTS | {"policy": "pbm-ucb"},
        "articles": {"kind": "features", "policy": articles},
    }
    with run_in_thread(configured(store, placements=placements)) as address:
        send(address, "search", RANKERS[:3], 20)
        send(address, "many", RANKERS, 6)
        read(address)
        for placement in ("lists", "places"):
            browse(address, placement)
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
        post(address, "articles/feedback", {"decision_id": answer["decision_id"], "reward": reward})


def browse(address, placement):
    """Read lists from the top; later letters are better, and a click ends some of it."""
    rng = np.random.default_rng(5)
    for _ in range(BROWSED):
        answer = post(address, f"{placement}/slate", {"key": "front"})
        likes = [rng.random() < 0.15 * "abcde".index(arm) for arm in answer["slate"]]
        clicks = np.flatnonzero(likes).tolist()[: 1 + (placement == "places")]
        post(address, f"{placement}/clicks", {"decision_id": answer["decision_id"], "clicks": clicks})


def numbers(page, table):
    """Give trials and estimates of a table, by name."""
    rows = page.locator(f'[data-table="{table}"] tbody tr').all()
    return {
        row.locator("th").inner_text(): [
            float(row.locator("td").nth(i).get_attribute("data-value")) for i in range(2)
        ]
        for row in rows
    }


def browsed(store, placement):
    """Give every list of the store with its clicks."""
    connection = apsw.Connection(str(store), apsw.SQLITE_OPEN_READONLY)
    query = (
        "SELECT shown, clicks FROM decisions d JOIN feedback f ON f.decision = d.seq "
        "JOIN placements p ON p.id = d.placement WHERE p.name = ?"
    )
    try:
        rows = connection.execute(query, (placement,)).fetchall()
    finally:
        connection.close()
    return [(json.loads(shown), json.loads(clicks)) for shown, clicks in rows]


@pytest.mark.parametrize("placement", ["lists", "places"])
def test_clicks_examination_and_relevance_are_those_of_the_store(opened, store, placement):
    page = opened(f"/placements/{placement}")
    from playwright.sync_api import expect

    shown_lists = page.locator(f"#placement-{placement} [data-field=lists]")
    expect(shown_lists).to_have_attribute("data-value", str(BROWSED))
    lists = browsed(store, placement)
    assert len(lists) == BROWSED
    clicked = [sum(i in clicks for _, clicks in lists) for i in range(3)]
    found = numbers(page, f"clicks-{placement}")
    assert found == {f"position {i + 1}": [BROWSED, pytest.approx(clicked[i] / BROWSED)] for i in range(3)}
    examined = numbers(page, f"examination-{placement}")
    relevance = numbers(page, f"relevance-{placement}")
    assert set(relevance) == set("abcde")
    if placement == "lists":
        reads = [sum(min(clicks, default=9) >= i for _, clicks in lists) for i in range(3)]
        assert examined == {
            f"position {i + 1}": [BROWSED, pytest.approx(reads[i] / BROWSED)] for i in range(3)
        }
        for arm, (seen, rate) in relevance.items():
            read = [
                shown.index(arm) in clicks for shown, clicks in lists
                if arm in shown and min(clicks, default=9) >= shown.index(arm)
            ]  # fmt: skip
            assert (seen, rate) == (len(read), pytest.approx(sum(read) / max(len(read), 1)))
    else:
        assert max(effect for _, effect in examined.values()) == 1.0
        for arm, (seen, rate) in relevance.items():
            effects = [examined[f"position {s.index(arm) + 1}"][1] for s, _ in lists if arm in s]
            came = sum(s.index(arm) in clicks for s, clicks in lists if arm in s)
            assert seen == pytest.approx(sum(effects))
            assert rate == pytest.approx(min(came / max(sum(effects), 1e-9), 1.0))


def test_what_is_believed_of_features_is_on_the_page(opened):
    rows = opened("/placements/articles").locator("#placement-articles .weights tbody tr")
    names = rows.locator("th").all_inner_texts()
    assert names == ["relevance 0", "relevance 1", "relevance, constant", "examination 0"]
    mean = float(rows.nth(0).locator("td").nth(0).get_attribute("data-value"))
    assert 0 < float(rows.nth(0).locator("td").nth(1).inner_text().split()[0]) < mean


def standings(address, placement):
    return Client(address).ask("GET", f"/v1/placements/{placement}/duels")[2]


def test_the_matrix_on_the_page_is_that_of_the_report(opened, address):
    answer = standings(address, "search")
    # Who won duels with itself, which count for nothing: either key may have had more duels.
    assert answer["key"] == answer["keys"][0]["key"]
    from playwright.sync_api import expect

    report, page = answer["report"], opened("/placements/search")
    expect(page.locator("#live")).to_have_text("live")
    assert page.locator('#placement-search [data-field="verdict"]').inner_text() == report["verdict"]
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
                # What the ids draw may be half a percent exactly, rounded up here and down there.
                assert list(map(int, re.findall(r"\d+", cells.nth(j).inner_text()))) == pytest.approx(
                    [100 * estimate, 100 * low, 100 * high], abs=0.5 + 1e-9
                )


def test_every_ranker_has_its_standing(opened, address):
    report, page = standings(address, "many")["report"], opened("/placements/many")
    rows = page.locator("#placement-many .standings tbody tr")
    assert rows.count() == 12
    for name, text in zip(rows.locator("th").all_inner_texts(), rows.all_inner_texts(), strict=True):
        state = "wins" if name == report["winner"] else "out" if name in report["out"] else "in the"
        assert state in text
    assert page.locator("#placement-many .matrix tbody tr").count() == 10
    assert "2 rankers with the lowest means are left out" in page.locator("#placement-many").inner_text()


def test_a_placement_without_duels_says_how_to_begin(opened):
    text = opened("/placements/none").locator("#placement-none pre").inner_text()
    assert text.endswith("/v1/placements/none/duel")


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_the_page_fits(opened, width, scheme, tmp_path):
    page = opened(viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    # How long clicks take, and what to do about it, is a long sentence.
    long = "text => document.querySelector('[data-field=mode]').textContent = text"
    page.evaluate(
        long, "learning, 95 % of clicks come within 0.0188 s; " + "a window of 600 s is far longer; " * 6
    )
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert len(page.screenshot(full_page=True, path=tmp_path / "page.png")) > 10_000
    assert obstacles(page) == []
    start = page.url
    for placement in ("search", "lists", "articles"):
        page.goto(f"{start}placements/{placement}")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert obstacles(page) == []


@pytest.mark.parametrize("placement", ["search", "tried", "articles"])
def test_every_kind_can_be_tried(opened, placement):
    page = opened(f"/placements/{placement}")
    page.click("#trial button[type=submit]")
    page.locator("#answer button").first.click()
    send = page.locator("#answer >> text=Send the clicks")
    if send.count():
        assert page.locator("#answer li button").first.get_attribute("aria-pressed") == "true"
        send.click()
    page.wait_for_selector("text=The feedback")
    assert page.locator("#answer .bad").count() == 0
