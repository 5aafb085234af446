"""A log is judged as long as few of its rows are rejected, as those may be rejected for their outcome."""

from contextlib import nullcontext
from functools import partial

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

import tacit
from tacit import cluster
from tacit.errors import TooManyRejected
from tacit.evaluate import examine, fixed_target
from tests.cli.test_cli import tacit as command

FILM, SHOWN = fixed_target("always:film"), {"arms": ["film", "song"], "most_rejected": 0.05}
COMMANDS = "evaluate --policy uniform", "evaluate --policy ucb1", "fit -o x --policy ucb1", "examine", "duel"


def sales(folder, form="csv", count=1500, amount=680.0, **columns):
    """Return a log of two arms as a file or table; it sells for an amount in every 15th row."""
    rows, path = np.arange(count), folder / f"log.{form}"
    reward, arm = np.where(rows % 15 == 0, amount, rows % 4 == 0), np.array(["film", "song"])[rows % 2]
    columns = {"arm": arm, "reward": reward, "propensity": 0.5, "position": rows // 2 % 3} | columns
    frame = pandas.DataFrame(columns).assign(decision_id=rows)
    lines = partial(frame.to_json, orient="records", lines=True)
    write = {"csv": frame.to_csv, "parquet": frame.to_parquet, "jsonl": lines}.get(form)
    return form(frame) if write is None else write(path) or path


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", pandas.DataFrame, polars.from_pandas, pa.table])
def test_a_log_that_loses_its_sales_is_refused(form, tmp_path):
    log, ucb1 = sales(tmp_path, form), tacit.UCB1(arms=["film", "song"])
    said = r"100 of 1,500 rows .* from 680 to 680 (.|\n)* reward_range=\(0, None\) \(--reward-range 0 open\)"
    for judge in tacit.Learner(ucb1).fit_log, examine, lambda *x, **y: tacit.replay(ucb1, *x, **y):
        with pytest.raises(TooManyRejected, match=said):
            judge(log, **SHOWN)
    value = tacit.off_policy(FILM, sales(tmp_path, form, amount=1.0), **SHOWN).estimates["IPS"].value
    assert value == pytest.approx(8 / 15)  # the mean of twice the reward in rows that show it


@pytest.mark.parametrize("judge", [tacit.off_policy, cluster.off_policy])
@pytest.mark.parametrize("case", [(90, "reward", 1), (999, "propensity", 0), (1000, "propensity", 1)])
def test_short_logs_are_judged_by_rewards_alone(case, judge, tmp_path):
    count, name, refused = case
    path = sales(tmp_path, count=count, amount=1.0, **{name: np.where(np.arange(count) % 10, 0.5, -1)})
    with pytest.raises(TooManyRejected, match="rows are left out") if refused else nullcontext():
        judge(FILM, tacit.read_log(path, arms=["film", "song"]))


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_refuse_with_3_or_say_what_is_left_out(words, tmp_path):
    columns = {"left": "a", "right": "b", "outcome": np.where(np.arange(1500) % 15, 1.0, -1.0)}
    name, *options = *words.split(), *([] if words == "duel" else ["--arms", "film,song"])
    log, said = sales(tmp_path, **columns), "100 of 1,500 rows are left out"
    refusal = command(name, log, *options, cwd=tmp_path)
    answer = command(name, log, *options, "--most-rejected", "7%", cwd=tmp_path)
    assert [refusal.returncode, answer.returncode] == [3, 0], refusal.stderr + answer.stderr
    assert [said in refusal.stderr, said in answer.stdout] == [True, True]
