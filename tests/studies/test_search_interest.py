"""The study of a query over a year of search interest."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

import tacit
from studies import item
from studies.eventful import search_interest as study
from studies.eventful.search_interest import WatchedInterest, best_clicks, day_ends, season
from studies.study import Setup
from tacit.classifiers import Rectangle
from tacit.core.dispatch import arrive, respond
from tacit.environments import SearchInterest
from tacit.errors import InvalidValue
from tacit.policies import BWC, KLUCB, UCB1, Policy, Thompson
from tacit.policies.baselines import GLRKLUCB

pytestmark = pytest.mark.interpreted

DAYS = 12


def table(path: Path) -> Path:
    """Write a table whose three topics take turns, each with a burst of interest."""
    rows = ["date,news,shop,film"]
    for day in range(DAYS + 1):
        wanted = day // 4 % 3
        values = [200 if topic == wanted and day % 4 == 0 else 3 for topic in range(3)]
        values[wanted] += 9
        rows.append(f"2021-03-{day + 1:02d},{','.join(map(str, values))}")
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def interest(tmp_path: Path) -> SearchInterest:
    return SearchInterest(table(tmp_path / "interest.csv"))


def level(path: Path, *, floor: float, ceiling: float) -> SearchInterest:
    """Return a query of two days without any change: all want the first of two topics."""
    path.write_text("date,a,b\n2021-03-01,1,0\n2021-03-02,1,0\n2021-03-03,1,0\n")
    return SearchInterest(path, floor=floor, ceiling=ceiling)


def test_signals_of_the_first_impressions_by_hand(tmp_path: Path) -> None:
    # Two days of eight impressions, 1/8 day apart from 1/16 on; arm 0 is always clicked, 1 never.
    certain = level(tmp_path / "level.csv", floor=0.0, ceiling=1.0)
    environment = WatchedInterest(certain, fast=1 / 8, slow=1.0, prior=2.0)
    rng = np.random.default_rng(1)
    world = environment.world(rng, 16)
    context = world.impression.context

    assert arrive(environment.params, world, 0, rng) == 0
    # Time is S = span·(1 − exp(−age/span)); one impression, fast and slow.
    fast, slow = (1 - math.exp(-0.5)) / 8, 1 - math.exp(-1 / 16)
    assert context[0] == pytest.approx((1 + 2) / (1 + fast * 1 / slow + 2 * 2))
    assert context[1] == 0.5
    assert respond(environment.params, world, 0, 0) == 1.0

    arrive(environment.params, world, 1, rng)
    # The one impression answered so far was clicked: nothing unusual in a click rate of one.
    assert context[1] == pytest.approx(0.5)
    fast, slow = (1 - math.exp(-1.5)) / 8, 1 - math.exp(-3 / 16)
    many, few = 1 + math.exp(-1.0), 1 + math.exp(-1 / 8)
    assert context[0] == pytest.approx((many + 2) / (many + fast * few / slow + 4))
    assert respond(environment.params, world, 0, 1) == 0.0

    arrive(environment.params, world, 2, rng)
    # Impressions and clicks 1/8 and 2/8 days ago, for the fast and the slow average.
    usual = math.exp(-1 / 8) / (math.exp(-1 / 8) + math.exp(-2 / 8))
    seen, missed = math.exp(-1) + math.exp(-2), math.exp(-1)
    recent = (missed + 2 * usual) / (seen + 2)
    assert context[1] == pytest.approx((1 + recent - usual) / 2)


def test_signals_tell_a_burst_and_a_loss_of_clicks(interest: SearchInterest) -> None:
    environment = WatchedInterest(interest, fast=0.25, slow=2.0, prior=20.0)
    rng = np.random.default_rng(3)
    horizon = 12_000
    world = environment.world(rng, horizon)
    seen = np.array(
        [
            [*world.impression.context, world.interest.day[0]]
            for round in range(horizon)
            if arrive(environment.params, world, round, rng) == 0
            and respond(environment.params, world, 0, 0) >= 0.0
        ]
    )
    volume, abandonment, day = seen.T
    # On day 3 the burst of day 4 sets in, and with it the first topic is no longer wanted.
    assert volume[day == 3].max() > 0.6 > 0.55 > volume[day == 2].max()
    assert abandonment[day == 4].max() > 0.55 > abandonment[day == 2].max()


@examples(20)
@given(
    fast=st.floats(0.001, 10),
    slow=st.floats(0.001, 10),
    prior=st.floats(0.001, 1000),
    arms=st.lists(st.integers(0, 2), min_size=5, max_size=60),
)
def test_signals_stay_between_0_and_1(
    tmp_path_factory: pytest.TempPathFactory, fast: float, slow: float, prior: float, arms: list[int]
) -> None:
    path = table(tmp_path_factory.mktemp("interest") / "interest.csv")
    environment = WatchedInterest(SearchInterest(path), fast=fast, slow=slow, prior=prior)
    rng = np.random.default_rng(5)
    world = environment.world(rng, len(arms))
    for round, arm in enumerate(arms):
        arrive(environment.params, world, round, rng)
        assert ((world.impression.context >= 0) & (world.impression.context <= 1)).all()
        respond(environment.params, world, 0, arm)


@pytest.mark.parametrize(
    "policy",
    [
        KLUCB(3),
        pytest.param(GLRKLUCB(3), marks=pytest.mark.long),
        pytest.param(Thompson(3), marks=pytest.mark.long),
    ],
    ids=lambda p: p.label,
)
def test_a_season_is_the_simulation_day_by_day(interest: SearchInterest, policy: Policy) -> None:
    environment, horizon = WatchedInterest(interest), 3000
    ends = day_ends(environment, horizon)
    for run in range(2):
        one = season(policy, environment, horizon, 7, run)
        whole = tacit.simulate(policy, environment, horizon, runs=2, seed=7, checkpoints=ends.tolist())
        assert one.regret.tolist() == whole.regret[0, run].tolist()
        assert one.clicks.tolist() == whole.reward[0, run].tolist()
        assert one.shown.sum(axis=1).tolist() == np.diff(ends, prepend=0).tolist()


def test_the_signals_change_nothing_for_a_policy_without_contexts(interest: SearchInterest) -> None:
    watched = tacit.simulate(KLUCB(3), WatchedInterest(interest), 2000, seed=3)
    plain = tacit.simulate(KLUCB(3), interest, 2000, seed=3)
    assert watched.regret.tolist() == plain.regret.tolist()


@pytest.mark.compiled
def test_bwc_restarts_on_the_signals(interest: SearchInterest) -> None:
    policy = BWC(policy=KLUCB(3), classifier=Rectangle(dim=2, margin=0.06), test_rounds=300)
    environment = WatchedInterest(interest)
    announced = [season(policy, environment, 40_000, 1, run) for run in range(3)]
    plain = [season(KLUCB(3), environment, 40_000, 1, run) for run in range(3)]
    assert min(one.epochs[-1] for one in announced) > 0
    assert max(one.epochs[-1] for one in plain) == 0
    assert sum(one.regret[-1] for one in announced) < sum(one.regret[-1] for one in plain)


@pytest.mark.compiled
def test_the_optimum_is_what_was_got_and_missed(interest: SearchInterest) -> None:
    environment, horizon = WatchedInterest(interest), 60_000
    best = best_clicks(interest, day_ends(environment, horizon))
    one = season(KLUCB(3), environment, horizon, 2, 0)
    # Clicks are a sum of Bernoulli draws: five standard deviations at most.
    assert abs(best[-1] - one.regret[-1] - one.clicks[-1]) < 5 * math.sqrt(horizon) / 2


def test_the_item_writes_its_four_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written) -> None:
    monkeypatch.setattr(study, "TRAFFIC", {"practical": (50, 200)})
    monkeypatch.setattr(
        study,
        "contenders",
        lambda arms: [
            KLUCB(arms),
            GLRKLUCB(arms),
            BWC(policy=KLUCB(arms), classifier=Rectangle(dim=2, margin=0.06), test_rounds=100),
        ],
    )
    setup = Setup(2, seed=1, workers=2, data=table(tmp_path / "interest.csv"))
    found = item("search-interest")
    assert found.needs_data
    cells, report = written("search-interest", found.reproduce(setup))
    assert [cell["impressions_a_day"] for cell in cells] == [50] * 3 + [200] * 3
    for cell in cells:
        assert 0 < cell["regret_mean"] < cell["impressions_a_day"] * DAYS
        assert 0 < cell["clicks_per_1000"] < 1.2 * cell["optimum_per_1000"]
        assert cell["runs"] == 2
    assert "Regret is counted from 2021-03-04 on" in report
    assert "times the regret of KLUCB" in report


def test_results_do_not_depend_on_the_workers(
    interest: SearchInterest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "contenders", lambda arms: [KLUCB(arms), UCB1(arms)])
    alone, together = (
        study.played(WatchedInterest(interest), 2000, Setup(2, seed=1, workers=workers)) for workers in (1, 3)
    )
    for first, second in zip(alone, together, strict=True):
        for one, other in zip(first, second, strict=True):
            assert one.regret.tolist() == other.regret.tolist()


def test_unusable_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="data"):
        study.reproduce(Setup(1))
    level(tmp_path / "short.csv", floor=0.1, ceiling=0.5)
    with pytest.raises(InvalidValue, match="five days"):
        study.reproduce(Setup(1, data=tmp_path / "short.csv"))
    with pytest.raises(InvalidValue, match="fast"):
        WatchedInterest(level(tmp_path / "a.csv", floor=0.1, ceiling=0.5), fast=0.0)
