"""The item on long horizons: its events, its names, and what it writes."""

import numpy as np
import pytest

from studies import item
from studies.eventful import shift_horizons as study
from studies.study import Setup


def test_events_are_spread_evenly():
    environment = study.environment(6000, 5, "plain", "right")
    assert list(environment.events) == [1001, 2001, 3001, 4001, 5001]
    world = environment.world(np.random.default_rng(1), 6000)
    assert world.starts[:-1].tolist() == [1, 1001, 2001, 3001, 4001, 5001]


@pytest.mark.parametrize("horizon", study.HORIZONS)
def test_rows_have_the_same_names_at_every_horizon(horizon):
    names = [study.named(row) for row in study.rows(horizon, 5)]
    assert len(set(names)) == len(names)
    assert names == [study.named(row) for row in study.rows(1000, 2)]
    assert {"GLRKLUCB(alpha=0)", "Thompson(discount=0.999)"} < set(names)


def test_the_item_writes_its_four_files(monkeypatch, written):
    monkeypatch.setattr(study, "HORIZONS", (2000, 11_000))
    few = ("KLUCB", "GLRKLUCB.from_horizon", "ProbationBandit(Rectangle), noise signals")
    everyone = study.rows
    monkeypatch.setattr(
        study, "rows", lambda horizon, events: [r for r in everyone(horizon, events) if study.named(r) in few]
    )
    cells, report = written("shift-horizons", item("shift-horizons").reproduce(Setup(2, seed=1, workers=2)))
    assert {cell["policy"] for cell in cells} == set(few)
    settings = {(cell["horizon"], cell["count"]) for cell in cells}
    assert settings == {(2000, 5), (2000, 2), (11_000, 5), (11_000, 2), (11_000, 11)}
    assert len(cells) == 2 * len(settings) * len(few)
    for cell in cells:
        assert 0 < cell["regret_mean"] < cell["horizon"]
    assert "## Stealth events" in report
