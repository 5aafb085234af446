"""The study of interleaving in examples/, run small."""

import importlib.util
import math
import sys

import numpy as np
import pytest
from conftest import ROOT


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location(
        "interleaving_study", ROOT / "examples" / "interleaving_study.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_study_runs(example, tmp_path, capsys):
    example.POLICIES = ()
    found = example.study(queries=2, documents=15, rankers=3, length=3, horizon=2000, runs=2, out=tmp_path)
    assert (tmp_path / "interleaving_study.png").stat().st_size > 10_000
    assert "RandomPairs" in capsys.readouterr().out
    assert len(found["cells"]) == 12
    for cell in found["cells"]:
        assert 0 <= cell["ties"] <= 1
        assert (cell["precision"] == 0) == (cell["method"] != "Probabilistic")


def test_impressions_to_decide(example):
    needed = example.impressions_to_decide(0.6, rankers=2)
    # At mean outcomes: the evidence log(1/0.05) is crossed there.
    assert math.isclose(example.log_evidence(0.6 * needed, needed, 0.5), math.log(20), rel_tol=0.01)
    assert example.impressions_to_decide(0.5 + 1e-9, rankers=2) == math.inf


def test_settled(example):
    rounds = np.array([100, 200, 300, 400])
    regret = np.array([[50.0, 60.0, 62.0, 63.0]])
    # Per impression 0.5, 0.1, 0.02, 0.01, against 1 for random pairs.
    assert example.settled(regret, rounds, random=1.0) == 300.0
    assert example.settled(regret, rounds, random=0.05) == math.inf
