"""What becomes of BWC's events and labels, counted where the truth is known."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.core.spread import Report, spread
from tacit.environments import ShiftingArms
from tacit.policies import BWC
from tacit.reproduce.study import Setup
from tacit.simulation import Run

STRETCH = 10_000
"""Rounds between two looks at the record of restarts, which holds the latest 1024."""


def ignored(rounds: float) -> None:
    """Take a report of progress that nobody waits for."""


class Anatomy(NamedTuple):
    """What happened in a run of BWC, by kind.

    Attributes
    ----------
    regret : float
    events : int
        Rounds in which click probabilities changed.
    noticed : int
        Events that began a testing phase.
    testing : int
        Events within a testing phase, which can begin none.
    missed : int
        Events in an adapting phase whose context was taken for none.
    alarms : int
        Testing phases that no event began, the first of each key left out.
    false_labels : int
        Contexts that were labelled false because they had begun a testing phase.
    contaminated : int
        False labels on contexts of events, those of witnesses included.
    true_labels : int
    mistaken : int
        True labels on contexts of no event.
    """

    regret: float
    events: int
    noticed: int
    testing: int
    missed: int
    alarms: int
    false_labels: int
    contaminated: int
    true_labels: int
    mistaken: int


def dissect(
    policy: BWC, environment: ShiftingArms, horizon: int, seed: int, number: int, report: Report = ignored
) -> Anatomy:
    """Play a run of BWC; compare its record with the truth, event by event.

    Parameters
    ----------
    policy : BWC
    environment : ShiftingArms
    horizon : int
        Rounds of all keys.
    seed, number : int
        Which run of which seed, as :func:`tacit.simulate` numbers them.
    report : callable, optional
        Is called with the number of rounds just played.
    """
    run = Run(policy, environment, horizon, seed, number, np.zeros(0, np.int64))
    first = run.world.segment.copy()
    labels: dict[tuple[int, int], int] = {}
    while played := run.advance(STRETCH):
        report(played)
        diary = run.state.diary
        known = diary.lane[0] >= 0
        entries = zip(diary.lane[0, known], diary.round[0, known], strict=True)
        labels.update(zip(entries, diary.label[0, known].tolist(), strict=True))
    events = {
        lane: [round for round in rounds if round <= run.world.seen[lane]]
        for lane, rounds in enumerate(event_rounds(first, run.world.starts))
    }
    return counted(labels, events, policy, float(run.curve.total[0]))


def dissect_all(policy: BWC, environment: ShiftingArms, horizon: int, setup: Setup) -> list[Anatomy]:
    """Play every run of a setup; the result does not depend on the workers."""
    # Compiled here, once, before threads would ask for it side by side.
    Run(policy, environment, horizon, setup.seed, 0, np.zeros(0, np.int64)).advance(0)
    units = [(policy, environment, horizon, setup.seed, number) for number in range(setup.runs)]
    return spread(dissect, units, [horizon] * len(units), label="dissecting", workers=setup.workers)


def event_rounds(first: Ints, starts: Ints) -> list[list[int]]:
    """Return the rounds of each key's events, from where its segments begin in ``starts``."""
    ends = [*first[1:].tolist(), len(starts) - 1]
    return [starts[at + 1 : end].tolist() for at, end in zip(first.tolist(), ends, strict=True)]


def counted(
    labels: dict[tuple[int, int], int], events: dict[int, list[int]], policy: BWC, regret: float
) -> Anatomy:
    """Compare labelled restarts with events; both by key and round of the key."""
    restarts: dict[int, list[int]] = {lane: [] for lane in events}
    for lane, round in sorted(labels):
        restarts[lane].append(round)
    noticed = testing = missed = witnessed = 0
    for lane, rounds in events.items():
        for event in rounds:
            # A key's first testing phase begins with its first round.
            began = [round for round in restarts[lane] if round <= event][-1]
            age = event - began
            noticed += age == 0
            testing += 0 < age < policy.test_rounds
            missed += age >= policy.test_rounds
            witnessed += labels[lane, began] == 0 and is_witness(policy, age)
    true_events = {(lane, event) for lane, rounds in events.items() for event in rounds}
    false = {place for place, label in labels.items() if label == 0}
    true = {place for place, label in labels.items() if label == 1}
    return Anatomy(
        regret=regret,
        events=len(true_events),
        noticed=noticed,
        testing=testing,
        missed=missed,
        alarms=sum(round > 1 and (lane, round) not in true_events for lane, round in labels),
        false_labels=len(false),
        contaminated=len(false & true_events) + witnessed,
        true_labels=len(true),
        mistaken=len(true - true_events),
    )


def is_witness(policy: BWC, age: int) -> bool:
    """Whether the context of a testing phase's round, from 0, is one of the witnesses."""
    if policy.witnesses == 0:
        return False
    step = max(policy.test_rounds // 4 // policy.witnesses, 1)
    return age % step == 0 and 0 < age // step <= policy.witnesses


def means(anatomies: list[Anatomy]) -> dict[str, Any]:
    """Return the mean of each count over runs, and the standard error of the regret."""
    table: Floats = np.array(anatomies, dtype=np.float64)
    error = table[:, 0].std(ddof=1) / np.sqrt(len(table)) if len(table) > 1 else np.nan
    found = dict(zip(Anatomy._fields, table.mean(axis=0).tolist(), strict=True))
    return {"regret": found.pop("regret"), "regret_se": float(error), **found}
