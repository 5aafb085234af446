"""What is known of arms before they are shown: worked by hand, and in all that runs a policy."""

import asyncio
import json
import math

import harness
import numpy as np
import pytest
from placement_access import get_learner

import tacit
from tacit.errors import ConfigError, InvalidValue
from tacit.policies import policy_from_spec, policy_to_spec
from tacit.policies.spec import is_compatible
from tests.policies.states import assert_propensities_are_frequencies
from tests.service import test_living as living

pytestmark = pytest.mark.interpreted

NAMES = ("film", "holiday")
KINDS = (
    tacit.Thompson,
    tacit.UCB1,
    tacit.KLUCB,
    tacit.EpsilonGreedy,
    tacit.policies.ShiftMixture,
    tacit.DriftMixture,
)
# Beta(4, 4) and Beta(1, 2): odds of 1 and ½, so the second is played where z is beyond what divides them by
# how much steeper its line is; one draw in two leaves it out. Two arms with 0.3 changes in 300 rounds flatten
# lines by 1 + 2·0.001.
TOLD = {"film": (3, 3), "holiday": (0, 1)}
STEEP = [
    math.sqrt(1 / (a + 0.85 * math.sqrt(a) + 0.5) + (b + 1.6 + 0.9 * math.sqrt(b)) / b**2)
    for a, b in ((4, 4), (1, 2))
]
LESSER = 0.5 * math.erfc(math.log(2) * (1 + 2 * 0.001) / (STEEP[1] - STEEP[0]) / math.sqrt(2))


def test_thompson_begins_each_key_at_the_posterior():
    learner = tacit.Learner(tacit.Thompson(NAMES, priors={"film": (3, 1), "holiday": (1, 1)}), 1)
    # ∫ 20·x³·(1 − x)·(3x² − 2x³) dx, for Beta(4, 2) against Beta(2, 2).
    for key in ("tomato", "new"):
        assert learner.probabilities(key).tolist() == pytest.approx([5 / 7, 2 / 7], abs=1e-8)
    assert [each.plays_now for each in learner.estimates("tomato")] == [4, 2]
    assert [each.plays for each in learner.estimates("tomato")] == [0, 0]
    assert learner.estimates("tomato")[0].mean == pytest.approx(4 / 6)


def test_ucb1_begins_each_key_as_if_it_had_been_shown_so_often():
    learner = tacit.Learner(tacit.UCB1(NAMES, priors={"film": (3, 1), "holiday": (1, 3)}), 1)
    misses = 0
    while (decision := learner.choose("tomato")).arm == "film":
        learner.learn(decision, 0.0)
        misses += 1
    # The round is the ninth; then film has three clicks in more and more plays.
    index = [
        (3 / (4 + k) + math.sqrt(2 * math.log(9 + k) / (4 + k)))
        - (1 / 4 + math.sqrt(2 * math.log(9 + k) / 4))
        for k in range(misses + 1)
    ]
    assert misses > 0
    assert min(index[:-1]) > 0 > index[-1]


@pytest.mark.parametrize("kind", [tacit.UCB1, tacit.KLUCB, tacit.EpsilonGreedy, tacit.Thompson])
def test_counts_that_are_told_equal_those_that_were_learned(kind):
    told = tacit.Learner(kind(NAMES, priors={"film": (2, 1), "holiday": (0, 2)}), 5)
    seen = tacit.Learner(kind(NAMES), 5)
    arms = ["film", "film", "film", "holiday", "holiday"]
    table = {"query": ["tomato"] * 5, "shown": arms, "clicked": [1, 0, 1, 0, 0]}
    seen.fit_log(table, columns={"key": "query", "arm": "shown", "reward": "clicked"}, arms=NAMES)
    for _ in range(20):
        mine, its = told.choose("tomato"), seen.choose("tomato")
        assert (mine.arm, mine.propensity) == (its.arm, its.propensity)
        told.learn(mine, float(mine.arm == "holiday"))
        seen.learn(its, float(its.arm == "holiday"))
    assert harness.arrays(told) == harness.arrays(seen)


def test_the_default_begins_at_what_is_told_and_stays_there_until_keys_teach_otherwise():
    learner = tacit.Learner(tacit.auto(NAMES, priors=TOLD), 1)
    assert learner.probabilities("tomato").tolist() == pytest.approx([1 - LESSER, LESSER], 1e-9)
    told = [[4.0, 4.0], [1.0, 2.0]]
    betas = learner.state.shared.priors.beta[0]
    assert betas[1:].tolist() == told
    # Imaginary keys that are as told say nothing else than what was told.
    learner.loops.refit(learner.loops.params, learner.state)
    assert betas[1:] == pytest.approx(np.array(told), rel=1e-9)
    assert betas[0].tolist() == pytest.approx([1.0, 1.0])
    # Forty keys that click on holiday every time know better, and one to come begins so.
    for key in range(40):
        for _ in range(10):
            learner.learn(learner.choose(key, arms=["holiday"]), 1.0)
    film, holiday = learner.estimates("0")
    assert (film.mean, holiday.mean > 0.9) == (pytest.approx(0.5), True)
    learner.choose("new")
    assert learner.estimates("new")[1].mean > 0.8


def test_what_is_told_is_as_sure_as_500_impressions_at_most():
    policy = tacit.policies.ShiftMixture(NAMES, priors={"film": (1e5 - 1, 3e5 - 1)})
    beta = policy.init(1).shared.priors.beta[0]
    assert beta.tolist() == [[1.0, 1.0], pytest.approx([125.0, 375.0]), [1.0, 1.0]]


@pytest.mark.parametrize("kind", [tacit.policies.ShiftMixture, tacit.DriftMixture, tacit.EpsilonGreedy])
def test_propensities_are_the_frequencies(kind):
    learner = tacit.Learner(kind(3, priors={0: (3, 7), 1: (2, 3), 2: (0, 1)}), 3)
    assert_propensities_are_frequencies(learner, 20_000, "tomato")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_told_is_part_of_the_policy_as_text_and_as_a_table(kind):
    policy = kind(NAMES, priors={"holiday": (0, 9.5), "film": (3, 1)})
    assert policy.priors == (("film", 3.0, 1.0), ("holiday", 0.0, 9.5))
    assert hash(policy) == hash(kind(NAMES, priors=policy.priors))
    assert policy_from_spec(json.loads(json.dumps(policy_to_spec(policy)))) == policy
    text = f"{kind.__name__}(priors={{'film': (3, 1), 'holiday': (0, 9.5)}})"
    assert policy_from_spec(text, NAMES) == policy
    # Without it all is as it was.
    assert "priors" not in policy_to_spec(kind(NAMES))
    assert "priors" not in repr(kind(NAMES))
    assert "priors=(('film', 3.0, 1.0)" in repr(policy)
    assert kind(2, priors={"1": (1, 2)}).priors == ((1, 1.0, 2.0),)
    assert is_compatible(kind(NAMES, priors={"film": (3, 1)}), policy)
    assert not is_compatible(policy, kind(NAMES, priors={"film": (3, 1)}))
    assert not is_compatible(kind(NAMES, priors={"film": (3, 2)}), policy)


@pytest.mark.parametrize(
    ("priors", "field", "remedy"),
    [
        ({"pizza": (1, 2)}, "priors", "name arms that there are: film, holiday"),
        ({"film": 3}, "priors", "give successes and failures of arms"),
        ({"film": (3,)}, "priors.film", "give successes and failures of arms"),
        ({"film": (-1, 3)}, "priors.film", r"give a number in \[0, 1e\+06\]"),
        ({"film": (math.nan, 3)}, "priors.film", "give a number"),
        ([("film", 1, 2), ("film", 1, 2)], "priors", "tell each arm once"),
        (7, "priors", "give successes and failures of arms"),
    ],
)
def test_what_cannot_be_told_says_why(priors, field, remedy):
    with pytest.raises(InvalidValue, match=remedy) as caught:
        tacit.Thompson(NAMES, priors=priors)
    assert caught.value.field == field


def test_an_arm_that_comes_later_begins_without_and_the_others_keep_theirs():
    learner = tacit.Learner(tacit.auto(["film"], priors={"film": (9, 1)}), 1)
    learner.choose("tomato")
    learner.add_arms(["new"])
    film, new = learner.estimates("tomato")
    assert film.mean == pytest.approx(10 / 12, rel=1e-9)
    assert new.mean == pytest.approx(0.5, abs=1e-3)


def test_simulations_and_floors_take_it():
    told = {0: (0, 30), 1: (30, 0), 2: (0, 30)}
    world = tacit.BernoulliArms([0.1, 0.9, 0.1])
    policies = [tacit.UCB1(3), tacit.ExplorationFloor(tacit.UCB1(3, priors=told), epsilon=0.01)]
    result = tacit.simulate(policies, world, horizon=200, runs=8, seed=1)
    without, with_it = result.regret[:, :, -1].mean(axis=1)
    assert with_it < without / 3


# In the service -------------------------------------------------------------------------------


def test_a_placement_begins_with_it_and_the_log_folds_to_the_same(tmp_path):
    policy = {"name": "auto", "priors": TOLD}
    config = harness.with_home(arms=list(NAMES), policy=policy, snapshot_every=3)

    async def session():
        async with harness.served(tmp_path / "s.db", config) as engine:
            (row,) = await engine.decide_many("home", [living.asked(engine, "tomato")])
            assert row.propensity == pytest.approx({"film": 1 - LESSER, "holiday": LESSER}[row.arm], rel=1e-9)
            for i in range(30):
                (row,) = await engine.decide_many("home", [living.asked(engine, f"key {i % 4}")])
                await engine.feedback("home", row.id, float(i % 3 == 0))
            return harness.learned(engine)

    live = asyncio.run(session())
    with harness.recovered(tmp_path / "s.db", config) as again:
        assert harness.learned(again) == live


async def test_what_began_with_it_keeps_it_and_what_did_not_is_rebuilt(tmp_path):
    begun = harness.with_policy(tacit.Thompson((*NAMES, "pizza"), priors={"film": (3, 1), "pizza": (1, 1)}))
    async with harness.served(tmp_path / "s.db", begun) as engine:
        await engine.decide_many("home", [living.asked(engine, "tomato")])
        known = get_learner(engine.placements["home"]).state
        # An arm of which something is told goes.
        await engine.reload(harness.with_policy(tacit.Thompson(NAMES, priors={"film": (3, 1)})))
        home = get_learner(engine.placements["home"])
        assert (home.retired, home.state.successes[0].tolist()) == (["pizza"], [3, 0, 1])
        assert known.successes[0].tolist() == [3, 0, 1]
        for other in ({"film": (3, 2)}, {"film": (3, 1), "holiday": (1, 1)}):
            with pytest.raises(ConfigError, match="rebuild it with rebuild = true"):
                await engine.reload(harness.with_policy(tacit.Thompson(NAMES, priors=other)))
        await engine.rebuild("home", {"name": "thompson", "priors": {"holiday": [5, 0]}})
        assert get_learner(engine.placements["home"]).state.successes[0].tolist() == [0, 5, 0]
