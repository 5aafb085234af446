"""What arms earned over time: nothing is lost as stretches become wider, and shards add up."""

import asyncio
import json

import numpy as np
import pytest
from harness import served, with_home
from hypothesis import given
from hypothesis import strategies as st
from placement_access import Series, arm_results, decide, fold, get_series, load_placement, series
from stores import store_at

from tacit.service.log.requests import Clicked, DecisionRequest, FeedbackRequest
from tacit.service.log.rows import CLICKS, REWARD
from tacit.wire.control import ModeOf

START = 1_700_000_000_000_000
ARMS = 3


def counted(events, results=None):
    """Return results of events: seconds until the next, an arm, a reward or None."""
    results, time = results or arm_results.ArmResults(ARMS), START
    for seconds, arm, reward in events:
        time += seconds * 1_000_000
        results.count_decisions(time, 1)[arm_results.FIRST_ARM + 2 * arm] += 1.0
        if reward is not None:
            results.count_reward(time, arm, [reward])
    return results, time


events = st.lists(
    st.tuples(
        st.integers(0, 40_000), st.integers(0, ARMS - 1), st.none() | st.sampled_from([0.25, 0.5, 1.0])
    ),
    min_size=1,
    max_size=60,
)


chances = st.lists(
    st.tuples(st.integers(0, ARMS - 1), st.none() | st.floats(0.0, 1.0), st.integers(1, ARMS)),
    min_size=1,
    max_size=20,
)


@given(chances)
def test_decisions_count_the_same_bits_however_they_are_grouped(made):
    together, alone = Series(ARMS), Series(ARMS)
    together.count_decisions(START, *map(list, zip(*made, strict=True)))
    for one in made:
        alone.count_decisions(START, *([value] for value in one))
    assert together.to_bytes() == alone.to_bytes()
    assert together.results.save_state() == alone.results.save_state()
    weights = [1.0 / (n * max(p, series.MIN_PROPENSITY)) for _, p, n in made if p is not None]
    assert together.table[0, arm_results.W] == pytest.approx(sum(weights))
    assert together.table[0, arm_results.WW] == pytest.approx(sum(weight**2 for weight in weights))


@given(events)
def test_nothing_is_lost_as_time_goes_by(told):
    results, time = counted(told)
    sums = results.sum_range(0)
    shown = np.bincount([arm for _, arm, _ in told], minlength=ARMS)
    earned = [sum(r or 0.0 for _, arm, r in told if arm == slot) for slot in range(ARMS)]
    assert arm_results.get_impressions(sums).tolist() == shown.tolist()
    assert arm_results.get_rewards(sums) == pytest.approx(earned)
    assert sums[arm_results.DECISIONS] == len(told)
    assert sums[arm_results.R] == pytest.approx(sum(earned))
    for most in (1, 7, 96):
        parts = results.sum_periods(0, time + 1, most)
        assert len(parts.begins) <= most
        assert parts.sums.sum(axis=0) == pytest.approx(sums)
        assert (np.diff(parts.begins) > 0).all()
        assert (parts.begins[1:] >= parts.ends[:-1]).all()


@given(events)
def test_what_was_lately_is_known_by_the_minute(told):
    results, time = counted(told)
    minutes = (START + 1_000_000 * np.cumsum([seconds for seconds, *_ in told])) // arm_results.MINUTE
    for ago, width in ((arm_results.HOUR, arm_results.MINUTE), (arm_results.DAY, 15 * arm_results.MINUTE)):
        begin = (time - ago) // width * width
        lately = int((minutes * arm_results.MINUTE // width * width >= begin).sum())
        assert results.sum_range(begin)[arm_results.DECISIONS] == lately


@given(events, st.integers(0, 60))
def test_results_go_on_from_where_they_were_saved(told, cut):
    whole, _ = counted(told)
    before, time = counted(told[:cut] or told[:1])
    again = arm_results.ArmResults(1)
    again.restore(json.loads(json.dumps(before.save_state())))
    for seconds, arm, reward in told[max(cut, 1) :]:
        time += seconds * 1_000_000
        again.count_decisions(time, 1)[arm_results.FIRST_ARM + 2 * arm] += 1.0
        if reward is not None:
            again.count_reward(time, arm, [reward])
    assert again.save_state() == whole.save_state()


@given(events, events)
def test_results_of_shards_add_up(told, others):
    parts = [counted(one)[0] for one in (told, others)]
    both = arm_results.ArmResults(ARMS)
    for part in parts:
        both.merge(part)
    assert both.sum_range(0) == pytest.approx(sum(part.sum_range(0) for part in parts))
    assert both.last == max(part.last for part in parts)


def test_a_new_arm_begins_with_nothing():
    results, time = counted([(0, 0, 1.0), (7200, 1, None)])
    results.extend_arms(4)
    results.count_decisions(time, 1)[arm_results.FIRST_ARM + 6] += 1.0
    assert arm_results.get_impressions(results.sum_range(0)).tolist() == [1, 1, 0, 1]
    assert arm_results.get_rewards(results.sum_range(0)).tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "policy"), [("arms", "thompson"), ("slates", "cascade-ucb1"), ("duels", "rmed1")]
)
def test_what_comes_while_nothing_is_learned_is_counted(tmp_path, kind, policy):
    arms = {"rankers" if kind == "duels" else "arms": ["a", "b", "c"]}
    lists = {"aggregation": "first"} if kind == "slates" else {}
    config = with_home(kind=kind, policy=policy, mode="frozen", **arms, **lists)

    async def session():
        async with served(tmp_path / "s.db", config) as engine:
            home = engine.placements["home"]
            (row,) = await decide(engine, DecisionRequest("k"))
            clicks = Clicked([0], None) if kind == "slates" else None
            feedback = FeedbackRequest(row.id, CLICKS if clicks else REWARD, None if clicks else 1.0)
            await engine.record_many("home", [feedback._replace(clicks=clicks)])
            engine.clock.now += 3600_000_000
            await engine.ask("home", ModeOf("online"))
            sums = get_series(home).results.sum_range(0)
            assert (sums[arm_results.DECISIONS], sums[arm_results.R]) == (1, 1)
            # Metrics and the API tell what was learned from.
            assert get_series(home).rewards == 0
            return get_series(home).results.save_state()

    live = asyncio.run(session())
    store = store_at(tmp_path / "s.db")
    again = load_placement("home", config.placements["home"], store, 0, snapshot=False)
    fold({again.id: again}, store)
    assert get_series(again).results.save_state() == live
    store.close()


def test_years_take_no_more_room_than_a_month():
    results = arm_results.ArmResults(1)
    for day in range(3000):
        results.count_decisions(START + day * arm_results.DAY, 1)[arm_results.FIRST_ARM] += 1.0
    assert results.sum_range(0)[arm_results.DECISIONS] == 3000
    assert sum(map(len, results.save_state()["rows"])) < 400
