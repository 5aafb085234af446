"""Parameters proposed from logs whose truth is known."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from test_cli import tacit as command

import tacit
from tacit.classifiers import classifier_from_spec
from tacit.core.dispatch import arrive, respond
from tacit.errors import InvalidValue, LogError
from tacit.evaluate.proposal import changes, likelihood_ratios
from tacit.policies import policy_from_spec


def click_log(keys, arms, rewards, arm_count=2, contexts=None):
    rows, names = len(arms), [str(arm) for arm in range(arm_count)]
    columns = {
        "timestamp": ["2017-07-04T12:00:00Z"] * rows,
        "decision_id": [str(row) for row in range(rows)],
        "placement": ["home"] * rows,
        "key": list(map(str, keys)),
        "arms": [names] * rows,
        "arm": [names[arm] for arm in arms],
        "propensity": [1.0 / arm_count] * rows,
        "reward": [None if reward is None else float(reward) for reward in rewards],
    }
    return pa.table(columns | ({} if contexts is None else {"context": contexts}))


def shifting_log(rounds=40_000, seed=3, **options):
    """Return a log of uniform choices among shifting arms, and the true events."""
    environment = tacit.ShiftingArms(**({"arms": 5, "keys": 4, "events": (1, 4), "dim": 3} | options))
    rng, choices = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    world, params = environment.world(rng, rounds), environment.params
    keys, arms, rewards, contexts, events = [], [], [], [], []
    segment = world.segment.copy()
    for round in range(rounds):
        keys.append(arrive(params, world, round, rng))
        arms.append(int(choices.integers(5)))
        rewards.append(respond(params, world, keys[-1], arms[-1]))
        contexts.append(world.impression.context.tolist())
        if world.segment[keys[-1]] != segment[keys[-1]]:
            segment[keys[-1]] += 1
            events.append((str(keys[-1]), int(world.seen[keys[-1]])))
    return click_log(keys, arms, rewards, 5, contexts), events


# Changes -------------------------------------------------------------------------------------


def entropy(clicks, plays):
    return sum(k * math.log(k / plays) for k in (clicks, plays - clicks) if k > 0)


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0.0, 0.5, 1.0])), min_size=2, max_size=30))
def test_ratios_are_those_of_every_split(history):
    arms, rewards = (np.array(column) for column in zip(*history, strict=True))
    mine = arms == 0
    ratios = likelihood_ratios(mine, rewards.astype(float))
    for split, ratio in enumerate(ratios.tolist(), start=1):
        parts = rewards[:split][mine[:split]], rewards[split:][mine[split:]]
        apart = sum(entropy(part.sum(), len(part)) for part in parts)
        together = entropy(rewards[mine].sum(), mine.sum())
        assert ratio == pytest.approx(apart - together, abs=1e-9)


def test_changes_are_found_where_they_are():
    rng = np.random.default_rng(5)
    arms = rng.integers(3, size=9000)
    rates = np.array([[0.2, 0.5, 0.1], [0.6, 0.2, 0.1], [0.1, 0.2, 0.8]])
    rewards = (rng.random(9000) < rates[np.arange(9000) // 3000, arms]).astype(float)
    found = changes(arms, rewards, 3, 0.01)
    assert len(found) == 2
    for change, truth in zip(found, (3000, 6000), strict=True):
        assert change.first <= truth <= change.last
        assert abs(change.round - truth) < 30


@examples(5)
@given(st.integers(0, 2**32))
def test_nothing_is_found_in_few_rounds(seed):
    rng = np.random.default_rng(seed)
    arms, rewards = rng.integers(2, size=3), rng.random(3)
    assert changes(arms, rewards, 2, 0.05) == []


def test_false_changes_are_rarer_than_delta():
    """300 keys that never change, δ = 0.05: more than 30 alarms have a chance below 1e-4."""
    alarms = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        arms = rng.integers(3, size=500)
        rewards = (rng.random(500) < np.array([0.1, 0.5, 0.9])[arms]).astype(float)
        alarms += bool(changes(arms, rewards, 3, 0.05))
    assert alarms <= 30


# Proposals -----------------------------------------------------------------------------------


def test_proposals_fit_what_the_log_came_from():
    log, events = shifting_log()
    proposal = tacit.propose(log)
    found = [(shift.key, shift.round) for shift in proposal.shifts]
    assert len(found) >= 0.7 * len(events)
    for key, round in found:
        assert min(abs(round - truth) for other, truth in events if other == key) < 200
    # Events are outside of [0, 0.5]³ by at least 0.1, and shifts are of at least 0.1.
    assert 0.04 <= proposal.margin <= 0.1
    assert 0.05 <= proposal.min_shift <= 0.4
    assert proposal.horizon == max(log["key"].value_counts().to_pylist(), key=lambda v: v["counts"])["counts"]
    assert proposal.rows == 40_000
    assert proposal.keys == proposal.searched == 4
    assert not any("contradict" in warning for warning in proposal.warnings)
    policy = policy_from_spec(proposal.policy, 5)
    assert policy.test_rounds == proposal.test_rounds
    assert policy.classifier == classifier_from_spec(f"rectangle(3, {proposal.margin})")


def test_the_length_of_a_test_follows_its_rule():
    # One shift of 0.4 after 8000 of 16000 rounds; four arms of rates 0.9, 0.5, 0.5, 0.5.
    rng = np.random.default_rng(1)
    arms = rng.integers(4, size=16_000)
    rates = np.full((2, 4), 0.5)
    rates[0, 0] = rates[1, 1] = 0.9
    rewards = rng.random(16_000) < rates[np.arange(16_000) // 8000, arms]
    proposal = tacit.propose(click_log(["q"] * 16_000, arms, rewards, 4))
    (shift,) = proposal.shifts
    assert shift.size == pytest.approx(0.4, abs=0.04)
    assert 0.18 <= proposal.min_shift <= 0.22
    # The median variance is 1/4: L = 4·4/4/min_shift².
    assert proposal.test_rounds == pytest.approx(4 / proposal.min_shift**2, rel=0.02)
    assert proposal.margin is None
    assert proposal.policy == "glr-kl-ucb"
    assert any("no contexts" in warning for warning in proposal.warnings)


def test_contexts_that_tell_nothing_are_told():
    log, _ = shifting_log(signals="noise")
    proposal = tacit.propose(log)
    (warning,) = (w for w in proposal.warnings if "contradict" in w)
    assert int(warning.split()[0]) >= 0.6 * len(proposal.shifts)


def test_shifts_that_are_too_close_are_told():
    """Small shifts ask for long tests, L = 8·0.09/0.1² = 72; two large ones are 100 apart."""
    rng = np.random.default_rng(1)
    edges = [4000, 8000, 12_000, 12_400, 12_500, 12_900, 13_300]
    stretch = np.searchsorted(edges, np.arange(14_000), "right")
    arms = rng.integers(2, size=14_000)
    lead = np.where(stretch < 3, 0.1, 0.4)
    rewards = rng.random(14_000) < np.where(arms == stretch % 2, 0.5 + lead, 0.5 - lead)
    proposal = tacit.propose(click_log(["q"] * 14_000, arms, rewards))
    assert 60 < proposal.test_rounds < 90
    assert any("closer than 2·L" in warning for warning in proposal.warnings)


def test_contexts_outside_of_the_box_are_told():
    rng = np.random.default_rng(1)
    contexts = rng.random((100, 2))
    contexts[7, 1] = 1.5
    log = click_log(["q"] * 100, rng.integers(2, size=100), rng.random(100), 2, contexts.tolist())
    (warning,) = (w for w in tacit.propose(log).warnings if "unit box" in w)
    assert warning.startswith("1 of 100 contexts")
    assert "row 8" in warning


def test_without_clicks_defaults_remain():
    proposal = tacit.propose(click_log(["q", "r"], [0, 1], [None, None]))
    assert (proposal.min_shift, proposal.test_rounds, proposal.horizon) == (0.1, 200, 1)
    assert proposal.shifts == ()


def test_unusable_input_is_refused():
    log = click_log(["q", "q"], [0, 1], [0, 1], 2, [[0.1], [0.1, 0.2]])
    with pytest.raises(LogError, match="row 2: context"):
        tacit.propose(log)
    with pytest.raises(LogError, match="no rows"):
        tacit.propose(log.slice(0, 0))
    with pytest.raises(InvalidValue, match="keys"):
        tacit.propose(log, keys=0)
    with pytest.raises(InvalidValue, match="delta"):
        tacit.propose(log, delta=0.0)


def test_the_command_prints_a_table_or_json(tmp_path):
    log, _ = shifting_log(rounds=8000)
    path = tmp_path / "clicks.parquet"
    tacit.write_log(log, path)
    shown = command("propose", path)
    assert shown.returncode == 0, shown.stderr
    assert "test_rounds" in shown.stdout
    assert "policy: bwc(" in shown.stdout
    content = json.loads(command("propose", path, "--json").stdout)
    assert content["test_rounds"] == tacit.propose(log).test_rounds
    assert set(content["shifts"][0]) >= {"placement", "key", "round", "size", "excess"}
