"""A field of a user that is missing counts as the average, not as the number 0."""

import numpy as np
import pytest

import tacit

pytestmark = pytest.mark.interpreted

CONTEXT = {"device": ["ios", "web"], "age": "number"}


def ages(rng, count=160):
    """Return users of whom all is known, of ages far from 0; those above 40 want what the others do not."""
    return [
        {"device": str(rng.choice(["ios", "web"])), "age": float(age)} for age in rng.normal(40, 8, count)
    ]


def average(users, first=128):
    """Return the mean age of the first users, which says how numbers are measured."""
    return float(np.mean([user["age"] for user in users[:first]]))


def test_who_does_not_tell_an_age_is_believed_to_be_average():
    rng = np.random.default_rng(1)
    learner, users = tacit.Learner(tacit.auto(arms=["film", "song"], context=CONTEXT), seed=2), ages(rng)
    for user in users:
        decision = learner.choose(context=user)
        learner.learn(decision, float((user["age"] > 40) == (decision.arm == "film")))
    near = learner.estimates(context={"device": "ios", "age": average(users)})
    untold = learner.estimates(context={"device": "ios"})
    zero = learner.estimates(context={"device": "ios", "age": 0})
    for arm in range(2):
        assert untold[arm].mean == pytest.approx(near[arm].mean, abs=1e-4)
        assert abs(untold[arm].mean - zero[arm].mean) > 0.1
    told = {
        line.split(":")[0]: line
        for line in str(learner.explain({"device": "ios"})).splitlines()
        if ":" in line
    }
    assert "age" not in told["film"]


@pytest.mark.parametrize("shows", ["arm", "slate"])
def test_items_are_chosen_for_who_does_not_tell_an_age_as_for_the_average(shows):
    rng = np.random.default_rng(3)
    lists = {"shows": "slate", "positions": 2} if shows == "slate" else {}
    learner = tacit.Learner(tacit.auto(relevance_dim=33, context=CONTEXT, **lists), seed=4)
    items, users = rng.standard_normal((3, 33)), ages(rng, 10)
    for user in users:
        decision = learner.choose(context=user, relevance=items)
        wanted = (items[np.atleast_1d(decision.slots)] @ items[0] > 0) == (user["age"] > 40)
        learner.learn(decision, wanted.astype(float) if lists else float(wanted[0]))
    mean = average(users, 8)
    near, untold, zero = (
        [each.mean for each in learner.estimates(context=user, relevance=items)]
        for user in ({"device": "ios", "age": mean}, {"device": "ios"}, {"device": "ios", "age": 0})
    )
    assert untold == pytest.approx(near, abs=1e-3)
    assert np.abs(np.subtract(untold, zero)).max() > 0.02


def test_that_an_age_is_missing_is_learned_where_it_tells():
    rng = np.random.default_rng(5)
    learner = tacit.Learner(tacit.auto(arms=["film", "song"], context=CONTEXT), seed=6)
    for user in ages(rng, 300):
        told = user if rng.random() < 0.5 else {"device": user["device"]}
        decision = learner.choose(context=told)
        learner.learn(decision, float(("age" in told) == (decision.arm == "film")))
    film = [
        learner.estimates(context=user)[0].mean for user in ({"device": "ios"}, {"device": "ios", "age": 40})
    ]
    assert film[0] < 0.4 < 0.6 < film[1]
