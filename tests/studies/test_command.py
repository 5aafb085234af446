"""The command that computes a table or figure: ``python -m studies``."""

import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT
from forked import ran
from harness import PATIENCE


def run(*arguments):
    """Run the command in the repository."""
    return ran(["-m", "studies", *arguments], cwd=ROOT)


def test_it_writes_data_figure_and_report(tmp_path):
    assert "regret-basics" in run("--list").stdout
    result = run("regret-basics", "--out", tmp_path, "--runs", "2")
    assert result.returncode == 0, result.stderr
    content = json.loads((tmp_path / "regret-basics.json").read_text())
    assert content["settings"].items() >= {"seed": 1, "runs": 2, "horizon": 100_000}.items()
    assert {"policy", "regret_mean", "regret_std", "runs"} <= set(content["cells"][0])
    assert len(content["cells"]) == 15
    assert (tmp_path / "regret-basics.png").read_bytes().startswith(b"\x89PNG")
    assert "Lai and Robbins" in (tmp_path / "regret-basics.md").read_text()
    assert len((tmp_path / "regret-basics.csv").read_text().splitlines()) == 16
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["nothing"], "regret-basics"),
        ([], "python -m studies --list names it all"),
        (["regret-basics", "--reading", "none"], "practical"),
        (["search-interest"], "--data"),
        (["regret-basics", "--runs", "0"], "--runs"),
    ],
)
def test_wrong_usage_exits_with_2_and_names_the_remedy(arguments, remedy):
    result = run(*arguments)
    assert result.returncode == 2, result.stderr
    assert remedy in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_extra_is_reported_before_the_work(tmp_path):
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, "-m", "studies", "regret-basics", "--runs", "1000000"],
        env=os.environ | {"PYTHONPATH": path}, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert "pip install 'tacit-learn[plots]'" in result.stderr
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
