"""How often the intervals of off-policy estimates hold the truth."""

from __future__ import annotations

from studies import item
from studies.study import Setup, write


def test_coverage_can_be_measured_anew(tmp_path):
    found = item("offline-coverage").reproduce(Setup(runs=4, seed=2, workers=1))
    again = item("offline-coverage").reproduce(Setup(runs=4, seed=2, workers=2))
    assert found.cells == again.cells
    assert {cell["runs"] for cell in found.cells} == {4}
    paths = write("offline-coverage", found, tmp_path)
    assert all(path.stat().st_size > 1000 for path in paths)
