"""The item that plays the recommended policy beside tuned ones."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import tacit
from tacit.reproduce import defaults as study
from tacit.reproduce import item
from tacit.reproduce.study import Setup, write


def test_ratios_and_their_errors_worked_by_hand():
    # Ratio 4/8; differences from half the other: 0, −1, 1 with a deviation of 1.
    ratio, error = study.ratio_of(np.array([4.0, 3.0, 5.0]), np.array([8.0, 8.0, 8.0]))
    assert (ratio, error) == (0.5, pytest.approx(1.0 / math.sqrt(3) / 8.0))


@pytest.mark.parametrize("name", study.SETTINGS)
def test_candidates_and_the_recommended_policy_suit_each_setting(name):
    setting = study.SETTINGS[name]
    world = setting.environment
    candidates = setting.candidates(world, setting.horizon)
    own = tacit.policy_from_spec("auto", world.arm_count, setting=world.setting)
    assert len({each.label for each in candidates}) == len(candidates) > 4
    assert all(each.shows == own.shows == world.takes for each in candidates)
    assert own not in candidates


def test_the_item_writes_its_four_files(tmp_path, monkeypatch):
    kept = {"1 shift": study.SETTINGS["1 shift"], "again": study.SETTINGS["3 stealthy shifts"]}
    few = {
        name: setting._replace(
            horizon=500, candidates=lambda world, horizon: [tacit.KLUCB(5), tacit.Thompson(5)]
        )
        for name, setting in kept.items()
    }
    monkeypatch.setattr(study, "SETTINGS", few)
    result = item("defaults").reproduce(Setup(6, seed=1, workers=2))
    paths = write("defaults", result, tmp_path)
    assert sorted(path.suffix for path in paths) == [".csv", ".json", ".md", ".png"]
    first, second = json.loads(paths[0].read_text())["cells"]
    assert (first["policy"], first["candidates"], first["tuning_runs"]) == ("DriftMixture", 2, 5)
    assert first["best"] in ("KLUCB", "Thompson")
    assert first["ratio"] == pytest.approx(first["regret_mean"] / first["best_mean"])
    assert (first["stealthy"], second["stealthy"]) == (False, True)
    assert paths[2].read_bytes().startswith(b"\x89PNG")
    assert "Without stealthy shifts: geometric mean" in paths[3].read_text()
