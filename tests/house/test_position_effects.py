"""The benchmark of position effects tells what it measures, whatever the number of workers."""

import sys
from importlib import import_module

from studies.study import Setup
from tests.house.test_bench_peers import BENCHMARKS


def test_position_effects_can_be_measured_again(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    position_effects = import_module("position_effects")
    monkeypatch.setattr(position_effects, "SEARCHES", 1500)
    monkeypatch.setattr(position_effects, "ORDERS", (None, 0.9))
    monkeypatch.setattr(position_effects, "RELEVANCE", position_effects.RELEVANCE[:1])
    cells = position_effects.compare_methods(Setup(runs=2, seed=2, workers=1))
    assert cells == position_effects.compare_methods(Setup(runs=2, seed=2, workers=2))
    assert len(cells) == 3 * 2 * 4
    assert "examine, em: largest bias" in position_effects.format_cells(cells)
    by_em = [cell for cell in cells if cell["method"] == "examine, em"]
    assert all(abs(cell["bias"]) < 0.3 and cell["coverage"] >= 0.5 for cell in by_em)
    sys.modules.pop("position_effects")
