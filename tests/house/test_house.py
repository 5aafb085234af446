"""The measures of the house only get better: what makes one better lowers its limit here."""

import pytest
from house import measured

MOST = {
    "classes_twice": 5,
    "told": 0,
    "know_pin": 12,
    "service_rooms": 11,
    "longest_class": 400,
    "imports": 0.0929,
}
LEAST = {"comments": 0.0335}


@pytest.fixture(scope="module")
def measures():
    return measured()._asdict()


@pytest.mark.parametrize("name", MOST)
def test_it_does_not_grow(measures, name):
    assert measures[name] <= MOST[name]


@pytest.mark.parametrize("name", LEAST)
def test_it_does_not_shrink(measures, name):
    assert measures[name] >= LEAST[name]
