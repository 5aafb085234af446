"""How well position effects are told from logs of many tails."""

from __future__ import annotations

from studies import item, position_effects
from studies.study import Setup


def test_position_effects_can_be_measured_anew(written, monkeypatch):
    monkeypatch.setattr(position_effects, "SEARCHES", 1500)
    monkeypatch.setattr(position_effects, "ORDERS", (None, 0.9))
    monkeypatch.setattr(position_effects, "RELEVANCE", position_effects.RELEVANCE[:1])
    found = item("position-effects").reproduce(Setup(runs=2, seed=2, workers=1))
    again = item("position-effects").reproduce(Setup(runs=2, seed=2, workers=2))
    assert found.cells == again.cells
    assert len(found.cells) == 3 * 2 * 4
    _, report = written("position-effects", found)
    assert "examine, em: largest bias" in report
    assert "nan" not in report
    by_em = [cell for cell in found.cells if cell["method"] == "examine, em"]
    assert all(abs(cell["bias"]) < 0.3 and cell["coverage"] >= 0.5 for cell in by_em)
