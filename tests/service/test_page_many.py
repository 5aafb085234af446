"""The page of many arms, and of many who look: decisions go on, and nothing is worked out twice."""

import asyncio
import re
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from harness import PATIENCE, SECOND, Clock, by_clock, configured, served, with_home
from placement_access import count_decisions, get_lift, get_series, read_copy

from tacit.client import Client
from tacit.learning.learner import restore_learner
from tacit.learning.snapshot import from_bytes
from tacit.service.app.server import run_in_thread
from tacit.service.config.keys import Caller
from tacit.service.http.metrics import Metrics
from tacit.service.log.requests import Impression
from tacit.service.page import pages
from tacit.service.page.pages import REUSE_FACTOR, PageCache
from tacit.wire.control import ArmsOf, ModeOf
from tacit.wire.decisions import Feedback, LocalDecision
from tests.service.test_page import lift, post

ARMS = 10_000


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "s.db"
    with run_in_thread(with_home(path, arms=ARMS, policy="ucb1", holdout={"share": 0.1})) as address:
        for i in range(40):
            post(address, "home/decide", {"key": f"key {i % 10}", "decision_id": f"d {i}"})
            post(address, "home/feedback", {"decision_id": f"d {i}", "reward": float(i % 3 == 0)})
        yield address


def page(address, path):
    with urllib.request.urlopen(address + path, timeout=PATIENCE) as answer:
        return answer.read().decode()


def test_a_page_of_many_arms_shows_those_that_matter(address):
    text = page(address, "/placements/home")
    assert "9970 more were shown less." in text
    # Ten keys, each with its leading arm.
    assert text.count('<tr data-key="key ') == 10
    assert len(text) < 400_000
    assert text.count("<option") < 2500


def test_a_page_of_a_key_shows_the_arms_that_are_likely_the_best(address):
    text = page(address, "/key?placement=home&key=key+0")
    assert text.count('<th scope="row">') == 30
    assert "9,970 more" in text


@pytest.fixture
def held(monkeypatch):
    """Let pages wait until this is set; whether one waits."""
    go, waits = threading.Event(), threading.Event()
    render = pages.render_placement

    def slowly(*given, **more):
        waits.set()
        assert go.wait(PATIENCE)
        return render(*given, **more)

    monkeypatch.setattr(pages, "render_placement", slowly)
    return go, waits


def test_decisions_are_answered_while_a_page_is_made(address, held):
    go, waits = held
    with ThreadPoolExecutor(1) as threads:
        # An address that no page is kept of.
        looking = threads.submit(page, address, "/placements/home?range=hour")
        assert waits.wait(PATIENCE)
        for path in ("/metrics", "/v1/placements", "/v1/placements/home/lift"):
            assert page(address, path)
        assert post(address, "home/decide", {"key": "beside"})["arm"] in range(ARMS)
        assert not looking.done()
        go.set()
        assert "beside" not in looking.result(PATIENCE)


async def test_what_many_look_at_is_made_once():
    clock, made, go = [0.0], [], asyncio.Event()

    async def make():
        made.append(clock[0])
        await go.wait()
        clock[0] += 1.0
        return f"page {len(made)}"

    looks = PageCache(lambda: clock[0], lambda: clock[0])
    some = [asyncio.create_task(looks.get_page("home", make)) for _ in range(20)]
    other = asyncio.create_task(looks.get_page("shop", make))
    await asyncio.sleep(0)
    # Whoever leaves takes the page from nobody.
    some[0].cancel()
    await asyncio.sleep(0)
    assert made == [0.0]
    go.set()
    assert set(await asyncio.gather(*some[1:])) == {"page 1"}
    assert await other == "page 2"
    # What took long is shown again for a while, and what is made then is new.
    assert await looks.get_page("shop", make) == "page 2"
    clock[0] += REUSE_FACTOR
    assert await looks.get_page("shop", make) == "page 3"


async def test_a_page_that_fails_fails_for_all_and_is_made_again():
    calls = []

    async def fails():
        calls.append(1)
        await asyncio.sleep(0)
        raise ValueError("no page")

    looks = PageCache()
    found = await asyncio.gather(*(looks.get_page("home", fails) for _ in range(3)), return_exceptions=True)
    assert [str(each) for each in found] == ["no page"] * 3
    assert len(calls) == 1
    with pytest.raises(ValueError, match="no page"):
        await looks.get_page("home", fails)
    assert len(calls) == 2


async def test_what_is_seen_stays_as_it_was_while_decisions_go_on(tmp_path):
    config = with_home(arms=3, holdout={"share": 0.5})
    async with served(tmp_path / "s.db", config) as engine:
        await engine.decide_many("home", [Impression("a", None, None)] * 10)
        placement = engine.placement("home")
        seen = read_copy(placement)
        before = count_decisions(seen), get_lift(seen).decided_counts.tolist(), len(get_series(seen).shifts)
        await engine.decide_many("home", [Impression("a", None, None)] * 10)
        assert (
            count_decisions(seen),
            get_lift(seen).decided_counts.tolist(),
            len(get_series(seen).shifts),
        ) == before
        assert count_decisions(placement) == 20
        assert get_lift(placement).decided_counts.sum() == 20


@pytest.mark.parametrize("learned", [False, True])
def test_metrics_that_are_watched_stand_beside_the_reward(tmp_path, learned):
    """Once: the one that is learned is the reward."""
    shop, clock = {"arms": 2, "attribution_window": 30, "holdout": {"share": 0.5}}, Clock()
    shop |= {"metrics": {"revenue": {"range": [0, 100]}}} | ({"reward": "revenue"} if learned else {})
    came = {"metrics": {"revenue": 30.0}} | ({} if learned else {"reward": 1.0})
    with by_clock(with_home(tmp_path / "s.db", "shop", **shop), clock) as address:
        for i in range(10):
            post(address, "shop/decide", {"key": "a", "decision_id": f"{i}"})
            post(address, "shop/feedback", {"decision_id": f"{i}"} | came)
        clock.now += 40 * SECOND
        post(address, "shop/decide", {"key": "a"})
        text = page(address, "/placements/shop")
        plan = lift(address, "shop")["planner"]
    assert "over 10 decisions" in text
    # When a lift would show is said where the rate is known, and not where every decision earns all.
    assert (plan is not None) == learned == ('data-field="planner"' in text)
    assert plan is None or f">{plan['verdict']}</p>" in text
    assert ('data-field="metric-revenue" data-value="30.0"' in text) == (not learned)
    assert text.count("<dt>revenue</dt>") == 1


def test_the_leading_arm_of_a_key_is_the_one_that_the_policy_shows(tmp_path):
    """Where what other keys have says more than the key's few own clicks."""
    arms, rng = ["red", "green", "blue"], np.random.default_rng(1)
    with run_in_thread(with_home(tmp_path / "s.db", arms=arms, attribution_window=36_000)) as address:
        made = [
            LocalDecision(f"d{i}", f"k{rng.integers(10)}", arms[rng.integers(3)], 1 / 3) for i in range(1000)
        ]
        rates = {f"k{k}": dict(zip(arms, rng.permutation([0.3, 0.2, 0.1]), strict=True)) for k in range(10)}
        came = [Feedback(one.decision_id, float(rng.random() < rates[one.key][one.arm])) for one in made]
        with Client(address) as client:
            client.log_decisions("home", made)
            client.feedback_many("home", sorted(came, key=lambda one: -one.reward))
            learner = from_bytes(client.learner("home"), "home", restore_learner)
            text = page(address, "/placements/home")
            # A control that is drawn here would decide nothing, until decisions are asked for here.
            assert ('data-act="Set the holdout"' in text, "Decisions were made elsewhere" in text) == (
                False,
                True,
            )
            assert 'data-field="planner"' not in text
            client.decide("home", "k0")
            assert 'data-act="Set the holdout"' in page(address, "/placements/home")
    shown = dict(re.findall(r'<tr data-key="(k\d)">.*?<td class="key">(\w+)', text, re.DOTALL))
    chances = {key: learner.probabilities(key) for key in rates}
    assert len(shown) == len(rates)
    for key, each in chances.items():
        # The page has the mean of what decides most, a decision a draw of all: they may differ where close.
        assert each[arms.index(shown[key])] > each.max() - 0.2, key


async def test_metrics_of_placements_are_the_same_text_whether_they_were_kept_or_not(tmp_path):
    table, clock = {"arms": ["a", "b"], "policy": "ucb1"}, Clock()
    config = configured(**{"placements": {"home": table, "other": table}})
    async with served(tmp_path / "s.db", config, clock) as engine:
        kept = Metrics(engine)

        async def texts():
            """Return the lines of placements, by metrics that were asked for before and by new ones."""
            both = [(await metrics.text()).decode() for metrics in (kept, Metrics(engine))]
            return [[line for line in text.splitlines() if 'placement="' in line] for text in both]

        seen = []
        for change in (
            lambda: engine.decide("home", "k", id="first"),
            lambda: engine.feedback("home", "first", 1.0),
            lambda: engine.ask("home", ModeOf("frozen")),
            lambda: engine.ask("home", ArmsOf(add=["c"])),
            lambda: engine.reload(configured(**{"placements": {"home": table | {"attribution_window": 90}}})),
        ):
            await change()
            before, new = await texts()
            assert before == new
            seen.append(before)
        assert len(set(map(tuple, seen))) == len(seen)
        assert (await texts())[0] == seen[-1]


async def test_metrics_that_are_prepared_at_a_start_tell_a_key_of_its_placement_alone(tmp_path):
    config = configured(placements={"home": {"arms": 2}, "other": {"arms": 2}})
    async with served(tmp_path / "s.db", config) as engine:
        metrics, shop = Metrics(engine), Caller("shop", ("home",))
        await metrics.prepare()
        metrics.count_request("decide", 200, 0.25)
        prepared, new = [(await each.text(shop)).decode() for each in (metrics, Metrics(engine))]
        assert prepared == new
        assert 'tacit_decisions_total{placement="home"} 0.0' in prepared
        assert not any(text in prepared for text in ("other", "tacit_request_seconds", "tacit_commit"))
        assert 'tacit_request_seconds_count{path="decide",status="200"} 1' in (await metrics.text()).decode()
        await engine.decide("home", "k")
        assert 'tacit_decisions_total{placement="home"} 1.0' in (await metrics.text(shop)).decode()
