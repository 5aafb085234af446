"""What becomes of BWC's events and labels, counted by hand and in simulations."""

import numpy as np
import pytest

import tacit
from studies.eventful import syed2009 as study
from studies.eventful import syed2009_labels as item
from studies.eventful.syed2009 import Anatomy, counted, dissect, event_rounds, is_witness, means
from studies.study import Setup

BOX = tacit.classifiers.Rectangle(dim=2, margin=0.1, anchored=True)
FALSE, TRUE, NONE = 0, 1, -1


def bwc(**options):
    return tacit.BWC(3, classifier=BOX, **({"test_rounds": 100} | options))


def test_event_rounds_are_told_apart_by_key():
    # Keys with two events, none, and one; the last start is a sentinel.
    starts = np.array([1, 50, 90, 1, 1, 30, 2**62])
    assert event_rounds(np.array([0, 3, 4]), starts) == [[50, 90], [], [30]]


def test_events_and_labels_by_hand():
    """L = 100. Key 0: alarm at 200, noticed at 500, tested at 550, missed at 900. Key 1: labelled false."""
    labels = {(0, 1): NONE, (0, 200): FALSE, (0, 500): TRUE, (1, 1): NONE, (1, 300): FALSE}
    became = {"events": 4, "noticed": 2, "testing": 1, "missed": 1, "alarms": 1}
    became |= {"false_labels": 2, "contaminated": 1, "true_labels": 1, "mistaken": 0}
    assert counted(labels, {0: [500, 550, 900], 1: [300], 2: []}, bwc(), 7.0) == Anatomy(regret=7.0, **became)


def test_witnesses_can_be_contaminated():
    """Two witnesses of L = 100 are rounds 12 and 24 after the one that began the phase."""
    policy = bwc(witnesses=2)
    assert [age for age in range(100) if is_witness(policy, age)] == [12, 24]
    labels = {(0, 1): NONE, (0, 200): FALSE}
    assert counted(labels, {0: [212]}, policy, 0.0).contaminated == 1
    assert counted(labels, {0: [213]}, policy, 0.0).contaminated == 0
    assert counted(labels | {(0, 200): TRUE}, {0: [212]}, policy, 0.0).contaminated == 0


@pytest.mark.parametrize("options", [{}, {"witnesses": 8}], ids=str)
def test_a_dissected_run_is_the_simulation(options):
    environment = tacit.ShiftingArms(arms=3, keys=4, events=(2, 4), dim=2)
    policy = bwc(**options)
    result = tacit.simulate(policy, environment, 30_000, runs=2, seed=4, checkpoints=1)
    for number in range(2):
        found = dissect(policy, environment, 30_000, 4, number)
        assert found.regret == result.regret[0, number, -1]
        assert found.noticed + found.testing + found.missed == found.events >= 8
        assert found.noticed > 0
        assert found.true_labels - found.mistaken <= found.noticed


def test_witnesses_teach_faster():
    """Eight runs: with witnesses hardly any context but an event's begins a testing phase."""
    environment = tacit.ShiftingArms(arms=3, keys=4, shifting=0.0, dim=2)
    runs = {
        witnesses: means([dissect(bwc(witnesses=witnesses), environment, 10_000, 1, n) for n in range(8)])
        for witnesses in (0, 16)
    }
    assert runs[16]["alarms"] < 0.7 * runs[0]["alarms"]
    assert runs[16]["contaminated"] == runs[0]["contaminated"] == 0.0


@pytest.mark.interpreted
@pytest.mark.parametrize("reading", study.READINGS)
def test_each_reading_changes_one_choice(reading):
    queries, rng = study.environment(1.0, 3, reading), np.random.default_rng(1)
    world = queries.world(rng, 3_000_000)
    apart = [np.diff(rounds) for rounds in event_rounds(world.segment, world.starts)]
    assert (np.concatenate(apart).min() >= 1000) == (reading == "spaced")
    world, contexts = queries.world(rng, 20_000), []
    for round in range(4000):
        queries.arrive(queries.params, world, round, rng)
        contexts.append(world.impression.context.copy())
    *signals, event = np.array(contexts).T
    largest = np.abs(signals).max(axis=0)
    assert largest[event == 1].min() >= 0.6
    assert largest[event == 0].max() <= 0.5
    assert np.mean(np.array(signals) < 0) == (pytest.approx(0.5, abs=0.02) if reading == "ball" else 0)
    bwc = study.policies(3, reading)[1]
    assert bwc.merge_phases == (reading != "faithful")
    assert bwc.classifier.diameter == 1 + 3 * (19 if reading == "ball" else 9)
    assert bwc.classifier.feasible(np.array([[-1.0, 0.0, 1.0]])) == (reading == "ball")


@pytest.mark.interpreted
def test_figure_2b_has_all_readings(monkeypatch, written):
    monkeypatch.setattr(study, "HORIZON", 300)
    monkeypatch.setattr(study, "PAPER_FRACTIONS", {0.5: study.PAPER_FRACTIONS[0.5]})
    cells, report = written("syed2009-figure2b", study.figure_2b(Setup(2, seed=1, workers=1)))
    assert len(cells) == len(study.READINGS) * len(study.NAMES)
    assert all(f"| {reading} | BWC |" in report for reading in study.READINGS)


def test_the_item_writes_its_files(monkeypatch, written):
    monkeypatch.setattr(item, "HORIZON", 3000)
    _, report = written("syed2009-labels", item.reproduce(Setup(2, seed=1, workers=2)))
    assert "16 witnesses" in report
    assert "contaminated" in report


def test_workers_change_nothing():
    environment = tacit.ShiftingArms(arms=3, keys=4, events=(2, 4), dim=2)
    alone, together = (
        study.dissect_all(bwc(), environment, 5000, Setup(3, seed=1, workers=workers)) for workers in (1, 3)
    )
    assert alone == together
