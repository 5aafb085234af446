"""What tests of holdouts share: a placement with one, its traffic, and what is said of it."""

from functools import partial

import numpy as np
from harness import SECOND, with_home
from placement_access import decide, get_lift, get_mode, make_lift_report

from tacit.client import Feedback, Impression
from tacit.service.log.requests import DecisionRequest, FeedbackRequest
from tacit.wire.control import ArmShown, EndHoldout, HoldoutOf, ModeOf

ARMS = ["film", "recipe"]
RATES = {"film": 0.45, "recipe": 0.2}
HALF = {"share": 0.5}
METRICS = {"revenue": {}, "returns": {"range": [0, 1], "better": "less", "margin": 0.05}}
FEATURED = "lin-ts(relevance_dim=2, examination_dim=1)"


configured = partial(with_home, holdout=HALF, arms=ARMS, policy="epsilon-greedy(epsilon=0.1)")


async def traffic(engine, rounds, size=50, rates=RATES, name="home", **more):
    """Decide and click, window after window."""
    for i in range(rounds):
        rng = np.random.default_rng((i, size))
        engine.clock.now += 40 * SECOND
        users = rng.integers(100, size=size).tolist()
        told = [
            DecisionRequest(f"key {i % 3}", id=f"{engine.clock.now} {j}", user=f"u{users[j]}", **more)
            for j in range(size)
        ]
        clicked = [row for row in await decide(engine, *told, name=name) if rng.random() < rates[row.arm]]
        if clicked:
            await engine.record_many(name, [FeedbackRequest(row.id, reward=1.0) for row in clicked])


async def decide_rounds(engine, rounds, size=50, **request):
    """Decide for many at once, window after window; yield number and rows of each round."""
    for i in range(rounds):
        engine.clock.now += 40 * SECOND
        yield i, await decide(engine, *(DecisionRequest("k", id=f"{i} {j}", **request) for j in range(size)))


def asked(holdout):
    """Return what a configured holdout is as a request."""
    if holdout is None:
        return EndHoldout()
    control = holdout.control if holdout.arm is None else ArmShown(holdout.arm)
    return HoldoutOf(holdout.share, control, holdout.unit, holdout.look)


async def closed(engine, name="home"):
    """Let all windows close."""
    engine.clock.now += 3600 * SECOND
    await engine.ask(name, ModeOf(get_mode(engine.placements[name])))


def report(engine, **more):
    return make_lift_report(engine.placements["home"], engine.clock(), **more)


def shown(client, clock, placement, rates, rounds=8, size=1000):
    """Decide and click over HTTP, let the windows close; return the lift, and what was shown."""
    rng = np.random.default_rng(3)
    arms = []
    for _ in range(rounds):
        made = client.decide_many(placement, [Impression("tomato")] * size)
        clicks = [Feedback(one.decision_id, 1.0) for one in made if rng.random() < rates[one.arm]]
        client.feedback_many(placement, clicks)
        arms += [one.arm for one in made]
        clock.now += 40 * SECOND
    client.decide(placement, "tomato")
    return client.lift(placement), arms


def count_closed(engine):
    """Return how many decisions count in the lift by now, in all groups."""
    return int(get_lift(engine.placements["home"]).reward.counts.sum())


def check_frequency(happened, q):
    """Check within 5 standard errors that Σ 1/q over what happened is the number of trials."""
    terms = np.where(happened, 1 / q, 0.0)
    error = np.sqrt((terms**2).mean() / len(q))
    assert abs(terms.mean() - 1) < 5 * error


def check_arm_frequencies(rows, arms=4):
    """Check that each arm was shown as often as the propensities in the log say."""
    q, shown = np.array([row.propensity for row in rows]), np.array([row.arm for row in rows])
    assert {row.control for row in rows} == {0, 1}
    for arm in range(arms):
        check_frequency(shown == arm, q)


def count_reported(found):
    """Return over how many decisions of all groups a lift is reported."""
    return sum(group.decisions for group in found.groups.values())
