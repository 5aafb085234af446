"""Shards that learn apart: what merging gives them, and the item that measures it."""

import numpy as np
import pytest

from studies import item
from studies import sharded_learning as sharded
from studies.study import Setup

SHIFT, EXAMINATION = "intent shift, BWC", "examination, LaplaceEC"
SMALL = {
    SHIFT: sharded.BENCHMARKS[SHIFT]._replace(horizon=60_000),
    EXAMINATION: sharded.BENCHMARKS[EXAMINATION]._replace(horizon=1_500),
}


@pytest.mark.parametrize("name", SMALL)
def test_shards_that_merge_after_every_round_are_one_shard(name):
    one = sharded.sharded_regret(SMALL[name], 1, None, 1, 0)
    assert sharded.sharded_regret(SMALL[name], 8, 1, 1, 0) == one
    assert sharded.sharded_regret(SMALL[name], 1, 7, 1, 0) == one


def test_a_shard_that_never_merges_learns_from_its_own_rounds_alone():
    # 16 posteriors of some 94 rounds each: nearly every run has more regret than one posterior.
    more = [
        sharded.sharded_regret(SMALL[EXAMINATION], 16, None, 1, run)
        - sharded.sharded_regret(SMALL[EXAMINATION], 1, None, 1, run)
        for run in range(8)
    ]
    # By a sign test this many of 8 would be as large by chance once in 28 times at most.
    assert np.sum(np.array(more) > 0) >= 7


def test_the_item_gives_the_same_for_any_number_of_workers_and_writes_its_files(monkeypatch, written):
    monkeypatch.setattr(sharded, "BENCHMARKS", SMALL)
    monkeypatch.setattr(sharded, "SHARDS", (4,))
    monkeypatch.setattr(sharded, "INTERVALS", (1, 100, None))
    found = item("sharded-learning")
    first, second = (found.reproduce(Setup(2, 3, workers)) for workers in (1, 2))
    assert first.cells == second.cells
    assert [cell["more_than_one_shard"] for cell in first.cells[:2]] == [0.0, 0.0]
    cells, report = written("sharded-learning", first)
    assert cells[2]["shards"] == 4
    assert "never merged" in report
