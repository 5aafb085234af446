"""How often the intervals of off-policy estimates hold the truth."""

from studies import item
from studies.study import Setup


def test_coverage_can_be_measured_anew(written):
    found = item("offline-coverage").reproduce(Setup(runs=4, seed=2, workers=1))
    assert found.cells == item("offline-coverage").reproduce(Setup(runs=4, seed=2, workers=2)).cells
    assert {cell["runs"] for cell in found.cells} == {4}
    written("offline-coverage", found)
