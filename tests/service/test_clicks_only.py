"""Clicks only: silence is known when windows close; each decision is learned once, in order."""

import asyncio
import re

import harness
import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from placement_access import decide, get_learner, save_delays

import tacit
from tacit.cli import cli
from tacit.client import Client, Feedback, Impression
from tacit.service.config.schema import Rule
from tacit.service.log.requests import DecisionRequest, FeedbackRequest

RATES = {"a": 0.5, "b": 0.3, "c": 0.1}
SECOND = 1_000_000
WINDOW = 10 * SECOND


def placement(policy, **rule):
    return harness.with_policy(policy, rule=Rule(window=WINDOW, **rule))


async def share_of_best(engine, rng, decisions, per_second, mean_delay, zeros=False):
    """Serve decisions to users who click after exponential delays; return each decision's expected reward."""
    step, waiting, earned = SECOND / per_second, [], []
    for i in range(decisions):
        now = harness.START + int(i * step)
        while waiting and waiting[0][0] <= now:
            time, id, reward = waiting.pop(0)
            engine.clock.now = time
            await engine.feedback("home", id, reward)
        engine.clock.now = now
        row = await engine.decide("home", "k")
        earned.append(RATES[row.arm])
        clicked = rng.random() < RATES[row.arm]
        if clicked or zeros:
            due = now + (int(rng.exponential(mean_delay)) if clicked else 1)
            waiting.append((due, row.id, float(clicked)))
            waiting.sort()
    return np.array(earned)


@pytest.mark.parametrize(
    "policy", [tacit.auto(list(RATES)), tacit.Thompson(list(RATES))], ids=["auto", "thompson"]
)
async def test_clicks_alone_teach_as_much_as_clicks_and_zeros(tmp_path, policy):
    clicks_only, all_sent = [], []
    for seed in range(2):
        for zeros, means in (False, clicks_only), (True, all_sent):
            rng, clock = np.random.default_rng(seed), harness.Clock(harness.START)
            async with harness.served(tmp_path / f"{seed}{zeros}.db", placement(policy), clock) as engine:
                means.append((await share_of_best(engine, rng, 4000, 50, SECOND, zeros))[1000:].mean())
    # .355 of .496 before; a run of 3,000 decisions has a standard error of .003.
    assert np.mean(clicks_only) > 0.97 * np.mean(all_sent)
    assert np.mean(clicks_only) > 0.475


MOMENTS = st.lists(
    st.tuples(
        st.integers(0, 12 * SECOND),
        st.integers(0, 4),
        st.lists(st.tuples(st.integers(0, 40), st.sampled_from([0.0, 1.0, 1.0])), max_size=4),
        st.booleans(),
    ),
    min_size=1,
    max_size=25,
)
RULES = [{}, {"aggregation": "sum"}, {"late": "correct", "default": 0.1}, {"seen": "examined"}]


def state_of(live):
    """Return everything that a placement is, and how long it knows that clicks take."""
    return harness.everything(live), save_delays(live)


@pytest.mark.parametrize("rule", RULES, ids=str)
@given(moments=MOMENTS, snapshot_every=st.integers(1, 20))
@examples(15)
def test_what_was_learned_is_the_fold_from_a_snapshot_at_any_moment(
    tmp_path_factory, rule, moments, snapshot_every
):
    path = tmp_path_factory.mktemp("cut") / "s.db"
    config = placement(tacit.auto(list(RATES)), **rule)
    config.placements["home"] = replace(config.placements["home"], snapshot_every=snapshot_every)
    config.placements["other"] = config.placements["home"]

    async def play():
        async with harness.folding(path, config, seen=state_of, crash=False) as engine:
            ids, now = [], harness.START
            for i, (step, count, feedback, of_another) in enumerate(moments):
                now += step
                engine.clock.now = now
                if of_another:
                    await engine.decide("other", "k")
                names = [f"{i} {j}" for j in range(count)]
                asked = [engine.decide("home", f"k{j % 2}", None, None, id) for j, id in enumerate(names)]
                ids += [row.id for row in await asyncio.gather(*asked)]
                for which, reward in feedback:
                    if ids:
                        await engine.feedback("home", ids[which % len(ids)], reward)
                await harness.quiet(engine)

    asyncio.run(play())


@pytest.mark.parametrize("snapshot_every", [1, 1000])
async def test_a_window_closed_by_a_row_of_another_placement_leaves_what_the_fold_has(
    tmp_path, snapshot_every
):
    config = placement(tacit.auto(list(RATES)))
    config.placements["home"] = replace(config.placements["home"], snapshot_every=snapshot_every)
    config.placements["other"] = config.placements["home"]
    async with harness.folding(tmp_path / "s.db", config, seen=state_of, crash=False) as engine:
        # Clicks take 6 s, so that open decisions count more as they grow older.
        for _ in range(20):
            row = await engine.decide("home", "k")
            engine.clock.now += 6 * SECOND
            await engine.feedback("home", row.id, 1.0)
            engine.clock.now += 6 * SECOND
        await engine.decide("home", "k")
        engine.clock.now += 8 * SECOND
        await engine.decide("home", "k")
        engine.clock.now += 2 * SECOND + 5
        # It closes the first one's window, and the log has no row of its own of that.
        await engine.decide("other", "k")
        engine.clock.now += 5 * SECOND
        await engine.decide("other", "k")
        await harness.quiet(engine)


async def test_a_zero_that_comes_after_its_decision_was_learned_as_one_is_not_learned_again(tmp_path):
    async with harness.served(
        tmp_path / "s.db", placement(tacit.Thompson(list(RATES))), harness.Clock(harness.START)
    ) as engine:

        def counts():
            state = get_learner(engine.placements["home"]).state
            return state.successes[0].sum(), state.failures[0].sum()

        # Clicks come within a second, so that decisions are learned long before their window closes.
        for _ in range(40):
            row = await engine.decide("home", "k")
            engine.clock.now += SECOND // 2
            await engine.feedback("home", row.id, 1.0)
        silent = await engine.decide("home", "k")
        engine.clock.now += 8 * SECOND
        await engine.decide("home", "k")
        assert counts() == (40, 1)
        await engine.feedback("home", silent.id, 0.0)
        assert counts() == (40, 1)


DAY, MONTH = 86_400.0, 2_592_000.0
ADVICE = {
    "late": (60.0, 58.0, "note", "59.8 s of a window of 60 s, which may cut others off", "120"),
    "late in a month": (20 * DAY, 19 * DAY, "note", "1720000 s of a window of 1728000 s", "2592000"),
    "late in the longest window": (MONTH, 0.99 * MONTH, "note", "2590000 s of a window of 2592000 s", ""),
    "early": (DAY, 1.0, "note", "1.9 s; a window of 86400 s is far longer than they take", "190"),
    "well within the window": (60.0, 6.0, "ok  ", "7.35 s", None),
}


@pytest.mark.parametrize("case", ADVICE)
def test_the_doctor_and_the_page_propose_another_window_where_it_does_not_suit_clicks(tmp_path, case):
    window, delay, mark, text, proposed = ADVICE[case]
    clock = harness.Clock(harness.START)
    config = harness.with_home(tmp_path / "s.db", arms=2, attribution_window=window)
    with harness.by_clock(config, clock) as url, Client(url) as client:

        def click(count):
            decisions = client.decide_many("home", [Impression("k")] * count)
            clock.now += round(delay * SECOND)
            client.feedback_many("home", [Feedback(each.decision_id, 1.0) for each in decisions])
            clock.now += round(window * SECOND)
            client.decide("home", "k")

        # Too few to say how long clicks take.
        click(99)
        assert "of clicks come" not in diagnose(url) + httpx.get(f"{url}/placements/home").text
        click(1)
        found, text = diagnose(url), f"95 % of clicks come within {text}"
        # A page that took long to make is shown again for some time.
        page = harness.eventually(lambda: text in (page := httpx.get(f"{url}/placements/home").text) and page)
    remedy = f"give attribution_window = {proposed} in [placements.home]" if proposed else "no window can be"
    assert re.search(f"^{mark}   placement home: {re.escape(text)}", found, re.MULTILINE)
    assert (remedy in found, remedy in page) == ((False,) * 2 if proposed is None else (True,) * 2)


def diagnose(url):
    """Return what the doctor says of a service."""
    found = CliRunner().invoke(cli, ["doctor", "--url", url])
    assert found.exit_code == 0, found.output
    return found.output


@pytest.mark.filterwarnings("error::tacit.errors.AssumptionWarning")
async def test_a_service_that_names_its_decisions_is_not_told_that_it_learns_nothing(tmp_path):
    async with harness.served(
        tmp_path / "s.db", placement(tacit.UCB1(list(RATES))), harness.Clock(harness.START)
    ) as engine:
        home = engine.placements["home"]
        for batch in range(11):
            rows = await decide(engine, *(DecisionRequest("k", id=f"{batch} {i}") for i in range(1000)))
            await engine.record_many("home", [FeedbackRequest(row.id, reward=1.0) for row in rows[::3]])
            engine.clock.now += 2 * WINDOW
        assert get_learner(home).decisions == 11_000
