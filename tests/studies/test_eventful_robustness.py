"""The item on imperfect warnings: its ratios by hand, its peer, and what it writes."""

import numpy as np
import pytest

import tacit
from studies import item
from studies.eventful import eventful_robustness as study
from studies.study import Setup
from tacit.errors import InvalidValue


def test_a_paired_ratio_by_hand():
    """Residuals 0, 1 and −1 around the line of slope 2: deviation 1, mean of the oracle 2."""
    value, error = study.study.ratio_of(np.array([2.0, 5.0, 5.0]), np.array([1.0, 2.0, 3.0]))
    assert value == pytest.approx(2.0)
    assert error == pytest.approx(1.0 / np.sqrt(3.0) / 2.0)


def test_around_kl_ucb_the_ratio_restart_is_glr_kl_ucb_but_for_its_clock():
    """Forced on the same rounds and restarted by the same test."""
    environment = tacit.ShiftingArms(arms=2, events=[2001], clicks=[[0.8, 0.2], [0.1, 0.6]], keys=1)
    policies = [study.RatioRestart(tacit.KLUCB(2)), tacit.policies.baselines.GLRKLUCB(2), tacit.KLUCB(2)]
    around, own, plain = (
        tacit.simulate(policies, environment, 6000, runs=20, seed=1).regret[:, :, -1].mean(axis=1)
    )
    assert around == pytest.approx(own, rel=0.2)
    assert around < 0.6 * plain


def test_the_ratio_restart_refuses_what_cannot_restart():
    with pytest.raises(InvalidValue) as caught:
        study.RatioRestart(tacit.policies.baselines.GLRKLUCB(2))
    assert caught.value.field == "policy"


def test_the_item_writes_its_four_files(monkeypatch, written):
    monkeypatch.setattr(study, "SCALES", {"practical": study.Scale(4, 2000)})
    monkeypatch.setattr(study, "FRACTIONS", (0.0, 0.25))
    monkeypatch.setattr(study, "SIGNALS", {"clean": {}, "20 % missed": {"missed": 0.2}})
    names = {"ORA", "plain", study.PROBATION, "GLR"}
    everyone = study.entrants(study.Scale(4, 2000))
    few = [row for row in everyone if row.name in names and row.base != "UCB1"]
    monkeypatch.setattr(study, "entrants", lambda scale: few)
    found = item("eventful-robustness")
    assert found.runs >= 12
    cells, report = written("eventful-robustness", found.reproduce(Setup(2, seed=1, workers=2)))
    assert len(cells) == 2 * 2 * (len(few) + sum(row.reads for row in few))
    for cell in cells:
        if cell["policy"] == "ORA" or (cell["policy"] == "plain" and cell["fraction"] == 0.0):
            assert cell["ratio"] == 1.0
            assert cell["ratio_se"] == 0.0
    assert "without events, at most 1.03 times the plain base: reached in" in report
    assert "### Stealth events, fraction 0.25" in report
    assert len(everyone) == len({(row.name, row.base) for row in everyone})
