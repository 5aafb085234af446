"""The page, in a real browser: its numbers are the store's, and its policy holds."""

import itertools
import re

import apsw
import numpy as np
import pytest
from harness import START, Client, configured, eventually
from hypothesis import given
from hypothesis import strategies as st
from placement_access import Series
from scipy.stats import beta

from tacit.policies.base import ArmBeliefs
from tacit.policies.stationary.beta_maximum import probability_largest
from tacit.service.app.server import run_in_thread
from tacit.service.config.holdout import RewardScale
from tacit.service.page.charts import (
    ChartLine,
    Point,
    Remark,
    Span,
    choose_ticks,
    choose_time_ticks,
    draw_chart,
    format_age,
)
from tacit.service.page.key import estimate_arms
from tacit.service.page.timeline import TimeBin, compute_rate, merge_time_bins, parse_range, read_time_bins

ARMS = ["holiday", "film", "<b>recipe</b>"]
COLOURS = ["red", "green", "blue"]
HOME = "d.placement = (SELECT id FROM placements WHERE name = 'home')"
SCREENS = [
    (400, "light"),
    (1600, "dark"),
    pytest.param(400, "dark", marks=pytest.mark.long),
    pytest.param(1600, "light", marks=pytest.mark.long),
]
"""Each width and each scheme of colours; all pairs of them in the long form."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("page") / "s.db"


@pytest.fixture(scope="module")
def address(store):
    values = {
        "placements.home.arms": ARMS,
        "placements.home.seed": 7,
        # Surely explores enough to tell what uniform exploration would earn.
        "placements.home.policy": "thompson",
        "placements.home.attribution_window": 3600,
        "placements.answered": {"arms": COLOURS, "seed": 7, "policy": "thompson", "attribution_window": 3600},
        "placements.plain.arms": 10,
        "placements.plain.policy": "ucb1",
        "placements.empty.arms": 2,
        "placements.waiting.arms": 2,
        "placements.unlearned.arms": 2,
        "placements.trial.arms": 2,
    }
    with run_in_thread(configured(store, **values)) as address:
        send(address, "home", 200)
        send(address, "answered", 100, 100)
        send(address, "plain", 60)
        yield address


def post(address, path, body):
    """Return the answer to a request to a placement, which is granted."""
    status, _, answer = Client(address).post(path, body)
    assert status == 200, answer
    return answer


def send(address, placement, count, answered=None):
    """Make decisions for five keys, and answer so many of them, by default three quarters."""
    rng = np.random.default_rng(3)
    for i in range(count):
        decision = post(address, f"{placement}/decide", {"key": f"key {i % 5}"})
        # The last ones wait for as long as clicks seem to take, which may be less than a test takes.
        if i < (answered or count * 3 // 4):
            reward = float(rng.random() < 0.4)
            post(address, f"{placement}/feedback", {"decision_id": decision["decision_id"], "reward": reward})


def shown(page, placement, field):
    return page.locator(f'[data-placement="{placement}"] [data-field="{field}"]').get_attribute("data-value")


def one(store, query):
    connection = apsw.Connection(str(store), apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute(query).get
    finally:
        connection.close()


def test_the_numbers_on_the_page_are_those_of_the_store(opened, store):
    page = opened()
    counts = (f"(SELECT count(*) FROM {table})" for table in ("decisions", "feedback", "marks"))
    events = one(store, f"SELECT {' + '.join(counts)}")
    assert int(page.locator('#store [data-field="events"]').get_attribute("data-value")) == events
    for name in ("home", "plain"):
        page = opened(f"/placements/{name}")
        of = HOME.replace("home", name)
        impressions = one(store, f"SELECT count(*) FROM decisions d WHERE {of}")
        joined = f"FROM feedback f JOIN decisions d ON d.seq = f.decision WHERE {of}"
        feedback, rewards = one(store, f"SELECT count(*), sum(reward) {joined}")
        assert int(shown(page, name, "impressions")) == impressions
        assert int(shown(page, name, "feedback")) == feedback
        assert float(shown(page, name, "ctr")) == pytest.approx(rewards / impressions)
    weights, weighted = one(
        store,
        "SELECT sum(1 / (3 * propensity)), sum(coalesce(reward, 0) / (3 * propensity)) "
        f"FROM decisions d LEFT JOIN feedback f ON d.seq = f.decision WHERE {HOME}",
    )
    assert shown(page, "plain", "uniform") == ""
    page = opened("/placements/home")
    assert float(shown(page, "home", "uniform")) == pytest.approx(weighted / weights)


def test_the_shares_on_the_page_are_those_of_the_store(opened, store):
    legend = opened("/placements/home").locator('[data-placement="home"] figure').nth(1).locator(".legend li")
    total = one(store, f"SELECT count(*) FROM decisions d WHERE {HOME}")
    for arm, text in zip(ARMS, legend.all_inner_texts(), strict=True):
        count = one(store, f"SELECT count(*) FROM decisions WHERE arm = '{arm}'")
        assert text.split() == [arm, f"{100 * count / total:.1f}", "%"]


def test_what_every_arm_earned_is_that_of_the_store(opened, store):
    rows = opened("/placements/home?range=all").locator('[data-table="results"] tbody tr')
    assert sorted(rows.locator("th").all_inner_texts()) == sorted(ARMS)
    for i, arm in enumerate(rows.locator("th").all_inner_texts()):
        count = one(store, f"SELECT count(*) FROM decisions WHERE arm = '{arm}'")
        rewards = one(
            store,
            "SELECT coalesce(sum(reward), 0) FROM feedback f JOIN decisions d "
            f"ON d.seq = f.decision WHERE d.arm = '{arm}'",
        )
        assert cell(rows.nth(i), 0) == count
        assert cell(rows.nth(i), 2) == pytest.approx(rewards / max(count, 1))


def test_what_is_not_known_is_said(opened):
    plain = opened("/placements/plain").locator("#placement-plain").inner_text()
    assert "not known" in plain
    assert "UCB1 is deterministic" in plain
    assert "Not known: decisions carry no propensity." in plain
    assert "never starts a key over" in opened("/placements/home").locator("#placement-home").inner_text()
    page = opened("/placements/empty")
    assert "Nothing was shown here yet" in page.locator("#placement-empty").inner_text()
    assert page.evaluate("location.origin") in page.locator("#placement-empty pre").inner_text()


def test_what_waits_to_be_activated_was_not_shown(opened, address):
    post(address, "waiting/decide", {"key": "a", "deferred": True})
    page = opened("/placements/waiting")
    assert "Nothing was shown here yet" in page.locator("#placement-waiting").inner_text()


def test_the_page_follows_the_traffic_without_moving(opened, address):
    page = opened("/placements/plain", viewport={"width": 400, "height": 600})
    from playwright.sync_api import expect

    expect(page.locator("#live")).to_have_text("live")
    before = int(shown(page, "plain", "impressions"))
    page.evaluate("window.scrollTo(0, 700)")
    send(address, "plain", 5)
    impressions = page.locator("[data-placement=plain] [data-field=impressions]")
    expect(impressions).to_have_attribute("data-value", str(before + 5))
    assert page.evaluate("window.scrollY") == 700


def test_the_page_works_without_scripts(opened):
    page = opened(java_script_enabled=False)
    rows = page.locator("[data-row]").evaluate_all("all => all.map(each => each.dataset.row)")
    assert {"home", "plain", "empty"} <= set(rows)
    page.click('[data-row="home"] a')
    page.wait_for_url("**/placements/home")
    assert int(shown(page, "home", "impressions")) == 200
    assert page.locator("svg.chart").count() == 2


# The overview --------------------------------------------------------------------------------


def lift(address, placement):
    return Client(address).ask("GET", f"/v1/placements/{placement}/lift")[2]


def test_the_overview_says_of_lift_what_the_api_says(opened, address):
    # In how many days a lift would show depends on the moment, so a page may be a day behind.
    for name in ("home", "plain", "empty"):
        row = f'[data-row="{name}"] [data-field="verdict"]'
        eventually(lambda: opened().locator(row).inner_text() == lift(address, name)["verdict"])  # noqa: B023
    field = '[data-field="verdict"]'
    home = lambda: opened("/placements/home?range=all").locator(field).first.inner_text()  # noqa: E731
    eventually(lambda: home() == lift(address, "home")["verdict"])


def test_the_overview_counts_decisions_and_every_chart_speaks(opened):
    row = opened().locator('[data-row="home"]')
    assert row.locator('[data-field="hour"]').get_attribute("data-value") == "200"
    assert row.locator('[data-field="mode"]').inner_text() == "learning"
    charts = opened("/placements/home?range=all").locator("svg.chart")
    assert charts.count() == 2
    for i in range(charts.count()):
        assert charts.nth(i).locator("> title").text_content()
        assert "ll time" in charts.nth(i).locator("> desc").text_content()


def test_a_range_is_chosen_and_a_strange_one_refused(opened, address):
    page = opened("/placements/home?range=hour")
    assert page.locator(".ranges [aria-current]").inner_text() == "last hour"
    page.fill('#span input[name="from"]', "2001-01-01T10:00")
    page.fill('#span input[name="to"]', "2001-01-02T10:00")
    page.click("#span button")
    page.wait_for_url("**from=2001**")
    assert "Nothing was shown in the time chosen" in page.locator("#now").inner_text()
    for query in ("range=year", "from=yesterday", "from=2002-01-01&to=2001-01-01"):
        assert Client(address).ask("GET", f"/placements/home?{query}")[0] == 422


def test_the_page_says_who_changed_what(opened, address):
    post(address, "unlearned/decide", {"key": "first"})
    for mode in ("frozen", "online"):
        post(address, "unlearned/mode", {"mode": mode})
    # Without scripts nothing is put in its place while it is read.
    page = opened("/placements/unlearned?range=all", java_script_enabled=False)
    told = page.locator('[data-table="history"] tbody td:nth-child(2)').all_inner_texts()
    assert told == ["mode: online", "mode: frozen"]
    # The charts mark it, in the order of time.
    marked = page.locator(".remarks li").all_inner_texts()
    assert [text.partition("mode: ")[2] for text in marked] == ["frozen", "online"]
    assert page.locator(".remarked").count() >= 1


def test_keys_are_found_by_a_part_of_them(opened):
    page = opened("/placements/home")
    page.fill("#find input", "KEY 3")
    page.press("#find input", "Enter")
    page.wait_for_url("**find=**")
    assert page.locator(".found a").all_inner_texts() == ["key 3"]
    page.click(".found a")
    page.wait_for_url("**/key?**")


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_the_page_fits_and_no_serious_obstacle_is_found(opened, width, scheme):
    page = opened(viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert obstacles(page) == []
    start = page.url
    page.goto(start + "placements/home")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    # No label of a chart sticks out of the page, and none lies on another one.
    places = page.evaluate(
        "[...document.querySelectorAll('.chart')].map(chart => "
        "[...chart.querySelectorAll(':scope > text')].map(each => each.getBoundingClientRect())"
        ".map(({left, right, top, bottom}) => [left, right, top, bottom]))"
    )
    assert len(places) == 2
    for texts in places:
        assert all(left >= 0 and right <= width for left, right, *_ in texts)
        for (a, b, c, d), (e, f, g, h) in itertools.combinations(texts, 2):
            assert b <= e or f <= a or d <= g or h <= c
    ground, ink = page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    brightness = [sum(map(int, c[4:-1].split(","))) for c in (ground, ink)]
    assert (brightness[0] > brightness[1]) is (scheme == "light")
    assert len(page.screenshot(full_page=True)) > 10_000
    assert obstacles(page) == []
    page.goto(start + "key?placement=home&key=key%201")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert obstacles(page) == []


# Charts --------------------------------------------------------------------------------------

SPAN = Span(0, 4000)


def curve(*values, name="a"):
    """Give a curve of values of a stretch each; None for nobody."""
    points = [
        Point(1000 * i, 1000 * (i + 1), value, value / 2, value * 1.5, 100)
        for i, value in enumerate(values)
        if value is not None
    ]
    return ChartLine(name, "learned", points)


def test_a_line_stands_where_its_times_and_values_are():
    chart = str(draw_chart([curve(0.05, 0.1, 0.1, 0.05)], SPAN, "title", "summary"))
    assert 'd="M125.0 666.7 L375.0 333.3 L625.0 333.3 L875.0 666.7"' in chart
    assert 'class="band learned"' in chart


def test_a_line_has_a_gap_where_nobody_came_for_long():
    chart = str(draw_chart([curve(0.1, *[None] * 8, 0.1)], Span(0, 10_000), "title", "summary"))
    assert chart.count('class="line') == 2
    assert "h0" in chart


def test_names_in_a_chart_are_text():
    chart = str(draw_chart([curve(0.5, name="<script>")], SPAN, "<b>", "&", [Remark(5, "<i>")]))
    assert "<script>" not in chart
    assert "&lt;script&gt;: 50.0 % (25.0 % to 75.0 %)" in chart
    assert "<i>" not in chart
    assert "<b>" not in chart


def test_remarks_that_are_near_each_other_share_a_label():
    remarks = [Remark(time, "x") for time in (10, 20, 3000)]
    chart = str(draw_chart([curve(0.1)], SPAN, "a", "b", remarks))
    assert re.findall(r'class="remarked"[^>]*>([^<]*)<', chart) == ["1–2", "3"]


@pytest.mark.parametrize("highest", [1e-6, 0.003, 0.13, 0.2, 0.55, 1.0, 3.0])
def test_ticks_are_few_and_reach_the_highest_value(highest):
    ticks = choose_ticks(highest)
    assert 3 <= len(ticks) <= 5
    assert ticks[-1] >= highest > ticks[-2] - 1e-12


@given(
    st.integers(1_600_000_000_000_000, 1_900_000_000_000_000),
    st.floats(0, 9).map(lambda power: int(1_000_000 * 10**power)),
)
def test_ticks_of_time_differ(begin, length):
    ticks = choose_time_ticks(Span(begin, begin + length))
    names = [name for _, name in ticks]
    assert len(names) <= 5
    assert len(set(names)) == len(names)
    assert all(begin <= time <= begin + length for time, _ in ticks)


def stretch(shown, rewards, at=0):
    return TimeBin(at, at + 1, np.array([rewards, *[0.0] * 5]), np.array([float(shown)]))


def test_a_late_single_impression_is_no_spike():
    found = merge_time_bins([stretch(400, 40, 0), stretch(400, 40, 1), stretch(1, 1, 2)])
    assert [one.trials for one in found] == [400, 401]
    assert found[-1].end == 3


@given(st.lists(st.integers(1, 300), min_size=1, max_size=50))
def test_stretches_joined_lose_nothing_and_have_enough(counts):
    found = merge_time_bins([stretch(count, count / 2, i) for i, count in enumerate(counts)])
    assert sum(one.trials for one in found) == sum(counts)
    assert all(one.trials >= min(50, sum(counts) / 20) for one in found)


@given(st.integers(1, 1000), st.floats(0, 1), st.sampled_from([0.0, -1.0]))
def test_a_rate_is_within_its_interval(trials, share, lowest):
    rate = compute_rate(trials * (lowest + share * (1 - lowest)), trials, RewardScale(lowest, 1.0 - lowest))
    assert lowest <= rate.low <= rate.value + 1e-12
    assert rate.value - 1e-12 <= rate.high <= 1.0


def test_ages_are_told_in_words():
    second = 1_000_000
    told = [format_age(n * second) for n in (0, 59, 60, 3600, 90_000)]
    assert told == ["now", "59 s ago", "1 min ago", "1 h 0 min ago", "1 d 1 h ago"]


@pytest.mark.parametrize(
    ("plays", "rewards"), [(12, 0), (12, 12), (12, 0.01), (12, 11.99), (12, 1), (12, 6), (1, 1)]
)
def test_an_estimate_is_within_its_interval(plays, rewards):
    (arm,) = estimate_arms(
        ["a"], ArmBeliefs.from_counts(np.array([float(plays)]), np.array([float(rewards)]))
    )
    assert arm.low <= arm.estimate <= arm.high
    posterior = beta(1 + rewards, 1 + plays - rewards)
    assert posterior.cdf(arm.high) - posterior.cdf(arm.low) == pytest.approx(0.95, abs=1e-3)


def test_what_was_never_shown_has_no_mark(address):
    """Its interval is all that is known."""
    assert post(address, "unlearned/decide", {"key": "once"})
    page = Client(address).ask("GET", "/key?placement=unlearned&key=once")[2]
    assert (page.count(b'class="interval"'), page.count(b'class="mean"')) == (2, 0)


# Keys, feedback, and the form ----------------------------------------------------------------


def cell(row, column):
    return float(row.locator("td").nth(column).get_attribute("data-value"))


def of_key(store, placement, key, arm=None):
    """Give how many rewards of a key are in the log, and their sum."""
    which = "" if arm is None else f"AND d.arm = '{arm}'"
    return one(
        store,
        "SELECT count(*), sum(reward) FROM feedback f JOIN decisions d ON d.seq = f.decision "
        f"JOIN placements p ON p.id = d.placement WHERE p.name = '{placement}' "
        f"AND d.key = '{key}' {which}",
    )


def test_the_busiest_keys_are_those_of_the_store(opened, store):
    rows = opened("/placements/answered").locator("#placement-answered .keys tbody tr")
    assert rows.count() == 5
    for i in range(5):
        key, row = rows.nth(i).get_attribute("data-key"), rows.nth(i)
        count, _ = of_key(store, "answered", key)
        assert cell(row, 0) == cell(row, 1) == count
        leader = row.locator("td").nth(2).inner_text().removesuffix(" too early to say")
        plays, rewards = of_key(store, "answered", key, leader)
        # Of its posterior, from a uniform prior.
        assert cell(row, 3) == pytest.approx(((rewards or 0.0) + 1) / (plays + 2))


def test_a_key_leads_to_its_arms(opened, store):
    page = opened("/placements/answered")
    link = page.locator("#placement-answered .keys tbody tr a").first
    key = link.inner_text()
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/key?**")
    rows = page.locator('[data-table="arms"] tbody tr')
    assert rows.locator("th").all_inner_texts() == COLOURS
    chances = 0.0
    for i, arm in enumerate(COLOURS):
        plays, rewards = of_key(store, "answered", key, arm)
        assert cell(rows.nth(i), 0) == cell(rows.nth(i), 1) == plays
        assert cell(rows.nth(i), 2) == pytest.approx(((rewards or 0.0) + 1) / (plays + 2))
        chances += cell(rows.nth(i), 4)
    assert chances == pytest.approx(1.0, abs=0.01)


def test_a_key_that_nobody_asked_for_is_refused(address):
    for place in ("placement=home&key=nobody", "placement=nowhere&key=a", ""):
        assert Client(address).ask("GET", f"/key?{place}")[0] in (400, 404, 422)


def test_what_became_of_feedback_is_on_the_page(opened, address):
    placements = Client(address).ask("GET", "/v1/placements")[2]["placements"]
    home = next(placement for placement in placements if placement["name"] == "home")
    counts = {
        place.get_attribute("data-outcome"): int(place.text_content())
        for place in opened("/placements/home").locator("#health-home [data-outcome]").all()
    }
    assert counts.pop("learned") == 150
    assert counts.pop("open") == home["pending"]
    assert counts == {k: v for k, v in home["outcomes"].items() if k != "learned"}


def test_a_decision_and_a_click_can_be_tried_by_keyboard(opened, address, store):
    page = opened("/placements/trial")
    page.locator("#trial textarea").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#answer button")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Click"
    page.keyboard.press("Space")
    page.wait_for_selector("text=The feedback was learned.")
    assert of_key(store, "trial", "independence day") == (1, 1.0)


def test_what_cannot_be_tried_says_why(opened):
    # The browser notes every refused request on its console; so does this test.
    page = opened("/placements/trial")
    page.fill("#trial textarea", "{}x")
    page.evaluate('window.fetch = async () => new Response(\'{"detail": "no"}\', {status: 422})')
    page.click("#trial button")
    page.wait_for_selector("#answer .bad")
    assert page.inner_text("#answer") == "no"


def obstacles(page):
    """Give what axe-core finds wrong with a page, with all its details open."""
    from axe_playwright_python.sync_playwright import Axe

    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    found = Axe().run(page).response["violations"]
    return [(each["id"], each["impact"], each["nodes"][0]["html"]) for each in found]


# Beliefs -------------------------------------------------------------------------------------


def test_beliefs_of_arms_are_those_of_beta_posteriors():
    rng = np.random.default_rng(0)
    for _ in range(40):
        arms = int(rng.integers(2, 6))
        plays = np.floor(10 ** rng.uniform(0, 5, arms)) * (rng.random(arms) < 0.9)
        rewards = np.floor(plays * rng.random(arms) ** 3)
        believed = estimate_arms([str(i) for i in range(arms)], ArmBeliefs.from_counts(plays, rewards))
        for i, one_arm in enumerate(believed):
            law = beta(1 + rewards[i], 1 + plays[i] - rewards[i])
            # Of an arm without clicks, or of nothing else, the interval begins or ends at its rate.
            without = rewards[i] == 0 < plays[i], rewards[i] == plays[i] > 0
            low, high = law.ppf({(1, 0): [0, 0.95], (0, 1): [0.05, 1]}.get(without, [0.025, 0.975]))
            assert (one_arm.low, one_arm.high) == pytest.approx((low, high), abs=0.01 * law.std())
            exact = probability_largest(1 + rewards, 1 + plays - rewards, i)
            assert one_arm.best == pytest.approx(exact, abs=0.001)


@given(begin=st.integers(1_700_000_000, 1_700_200_000), seconds=st.integers(4, 10_000_000))
def test_names_of_moments_never_lie_on_one_another(begin, seconds):
    span = Span(begin * 10**6, (begin + seconds) * 10**6)
    chart = str(draw_chart([ChartLine("a", "learned", [Point(span.begin, span.end, 0.1, 0.0, 0.2, 9)])],
                           span, "title", "summary"))  # fmt: skip
    found = re.findall(r'<text x="([\d.]+)%" y="\d+" text-anchor="(\w+)">([^<]*)</text>', chart)
    assert found
    right = 0.0
    for x, anchor, name in found:
        # Seven pixels a character, where the chart has 305.
        width, place = 7.0 * len(name), 3.05 * float(x)
        left = place - {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * width
        assert left >= right or right == 0.0
        right = left + width


def test_traffic_of_seconds_is_a_line_and_no_dot():
    series = Series(arms=2)
    for i in range(1200):
        series.count_decisions(START + i * 10_000, [i % 2], [0.5], [2])
    now = START + 60_000_000
    found = read_time_bins(series, parse_range("all", None, None, series, now))
    assert [stretch.trials for stretch in found] == [100.0] * 12
    # Of the last hour, results by five seconds are all there is.
    assert len(read_time_bins(series, parse_range("hour", None, None, series, now))) in (3, 4)


def test_all_time_ends_with_the_last_decision():
    """Or the line of a demo that has ended would shrink into a corner of its chart."""
    series, minute = Series(arms=2), 60_000_000
    for i in range(100):
        series.count_decisions(START + i * minute, [0], [0.5], [2])
    last = START + 99 * minute
    late = parse_range("all", None, None, series, last + 1000 * minute).span
    assert (late.begin, late.end) == (START, last + 99 * minute // 50)
    # While there is traffic it ends now.
    assert parse_range("all", None, None, series, last + 1).span.end == last + 1
    assert parse_range(None, None, None, Series(arms=2), START).span.end == START
