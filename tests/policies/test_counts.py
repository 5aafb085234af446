"""Counts of arms from a table are priors."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner

import tacit
from tacit.cli import cli

COUNTS = {"Arm": ["film", "holiday"], "clicks": [4, 30], "impressions": [100, 200]}
PRIORS = (("film", 4.0, 96.0), ("holiday", 30.0, 170.0))
pytestmark = pytest.mark.interpreted


@pytest.mark.parametrize("container", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("make", [tacit.auto, tacit.UCB1, tacit.Thompson])
def test_a_table_of_counts_is_a_prior(make, container):
    assert make(arms=["film", "holiday"], priors=container(COUNTS)).priors == PRIORS
    failures = {"Variant": ["holiday", "film"], "Sales": [30, 4], "Failures": [170, 96]}
    assert make(arms=["film", "holiday"], priors=container(failures)).priors == PRIORS
    assert make(arms=["film", "holiday"], priors={"film": (4, 96), "holiday": (30, 170)}).priors == PRIORS


def test_a_learner_begins_with_the_counts_of_a_file(tmp_path):
    pd.DataFrame(COUNTS).to_csv(tmp_path / "counts.csv", index=False)
    options = ["--counts", str(tmp_path / "counts.csv"), "-o", str(tmp_path / "new.tacit")]
    assert CliRunner().invoke(cli, ["fit", *options]).exit_code == 0
    learner = tacit.Learner.load(tmp_path / "new.tacit")
    assert learner.policy == tacit.auto(arms=["film", "holiday"], priors=PRIORS)
    assert learner.decisions == 0
    log = {"arm": ["film", "holiday"] * 50, "reward": [0, 1] * 50}
    pd.DataFrame(log).to_csv(tmp_path / "log.csv", index=False)
    fitted = ["fit", str(tmp_path / "log.csv"), "--arms", "film,holiday", "--policy", "ucb1", *options]
    result = CliRunner().invoke(cli, fitted)
    assert result.exit_code == 0, result.output
    learner = tacit.Learner.load(tmp_path / "new.tacit")
    assert learner.policy.priors == PRIORS
    assert learner.decisions == 100
