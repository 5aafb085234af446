"""A table of the rewards of all arms is an environment."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tacit
from tacit.environments import RewardTable
from tacit.errors import InvalidValue
from tests.cli.test_cli import tacit as command

ROWS = 1000
generator = np.random.default_rng(13)
# As many clicks of each arm as the recommendation data "Ads CTR" have in their first rows.
CLICKS = {"ad_1": 22, "ad_2": 37, "ad_3": 144, "ad_4": 32}
WIDE = {
    name: generator.permutation(np.repeat([1, 0], [count, ROWS - count])) for name, count in CLICKS.items()
}


def test_the_sums_of_a_table_in_any_container(tmp_path):
    frame = pd.DataFrame(WIDE)
    frame.to_csv(tmp_path / "wide.csv", index=False)
    frame.to_json(tmp_path / "wide.jsonl", orient="records", lines=True)
    pq.write_table(pa.table(WIDE), tmp_path / "wide.parquet")
    files = [tmp_path / f"wide.{suffix}" for suffix in ("csv", "jsonl", "parquet")]
    for table in (WIDE, frame, pl.DataFrame(WIDE), pa.table(WIDE), *files, str(files[0])):
        environment = RewardTable(table)
        assert environment.sums == CLICKS
        assert environment.arm_count == 4
    chosen = RewardTable(frame.assign(time=range(ROWS)), arms=["ad_2", "ad_3"])
    assert chosen.sums == {"ad_2": 37.0, "ad_3": 144.0}


@pytest.mark.parametrize("shuffled", [False, True])
def test_rewards_and_regrets_sum_to_the_best_column(shuffled):
    environment = RewardTable(WIDE, shuffled=shuffled)
    result = tacit.simulate(tacit.Thompson(4), environment, horizon=ROWS, runs=3, seed=1)
    np.testing.assert_allclose((result.reward + result.regret)[0, :, -1], 144.0)
    assert (result.reward[0, :, -1] > 60.0).all()  # each arm as often earns 59 on average


def test_rows_are_played_in_their_order_and_again():
    table = {"a": [0.0, 0.25, 0.5], "b": [1.0, 0.75, 0.5]}
    rounds = list(range(1, 8))
    always = tacit.simulate(tacit.UniformRandom(1), RewardTable(table, arms=["a"]), 7, checkpoints=rounds)
    assert np.diff(always.reward[0, 0], prepend=0.0).tolist() == [0.0, 0.25, 0.5, 0.0, 0.25, 0.5, 0.0]


def test_the_command_line_plays_some_of_the_columns(tmp_path):
    (tmp_path / "wide.csv").write_text("a,b,c\n1,0,0.5\n0,1,0.5\n1,0,0.5\n1,1,0.5\n")
    told = ["simulate", "--rewards", tmp_path / "wide.csv", "--policy", "ucb1", "--horizon", "8"]
    (always,) = json.loads(command(*told, "--arms", "a", "--json").stdout)
    assert (always["reward_per_1000"], always["regret"]) == (750.0, 0.0)
    (drawn,) = json.loads(command(*told, "--arms", "c,a", "--json").stdout)
    assert drawn["reward_per_1000"] / 125 + drawn["regret"] == 6.0


def test_rewards_of_other_ranges():
    table = {"a": [-1.0, 5.0, 2.0], "b": [0.0, 1.0, 0.0]}
    with pytest.raises(InvalidValue, match=r"table, row 1, a: -1\.0 .* as reward_range=None; .*--arms"):
        RewardTable(table)
    environment = RewardTable(table, reward_range=(-1, 5))
    assert environment.sums == {"a": 6.0, "b": 1.0}
    assert environment.setting["reward_range"] == (-1.0, 5.0)
    result = tacit.simulate(tacit.auto(arms=2, **environment.setting), environment, horizon=3)
    assert (result.reward + result.regret)[0, 0, -1] == pytest.approx(6.0)
