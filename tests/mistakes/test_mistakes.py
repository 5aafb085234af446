"""What is said of mistakes: field, value and remedy. The cases are in the text files beside."""

from __future__ import annotations

import os
import shutil
import warnings
from unittest.mock import patch

import numpy as np
import pandas
import pytest
from harness import configured
from mistakes import given
from mistakes.given import FILM, SHARES
from mistakes.transcripts import FOLDER, check_case, read_cases

import tacit
from tacit.errors import AssumptionWarning
from tacit.evaluate import off_policy
from tacit.service.app.server import run_in_thread

CASES = [
    pytest.param(case, marks=[pytest.mark.compiled] if path.stem == "rounds" else [], id=str(case))
    for path in sorted(FOLDER.glob("*.txt"))
    for case in read_cases(path)
]
SERVED = {
    "arms": ["film", "song"],
    "context": {"device": ["ios", "web"], "age": "number"},
    "holdout": {},
    "metrics": {"revenue": {}, "visits": {}},
}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    store = tmp_path_factory.mktemp("mistakes") / "clicks.db"
    with run_in_thread(configured(store, placements={"home": SERVED})) as url:
        yield url


@pytest.mark.interpreted
@pytest.mark.parametrize("case", CASES)
def test_what_a_transcript_says_is_said(case, tmp_path, monkeypatch, request):
    names = dict(vars(given))
    if case.path.stem == "requests":
        names["address"] = request.getfixturevalue("address")
    shutil.copytree(FOLDER / "files", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    with patch.dict(os.environ):
        check_case(case, names)


def test_propensities_that_move_with_what_was_learned_are_not_doubted():
    for seed in range(20):
        learner = tacit.Learner(tacit.ExplorationFloor(tacit.UCB1(["film", "song", "game"]), 0.05), seed=seed)
        rng, rows = np.random.default_rng(seed), []
        for _ in range(500):
            decision = learner.choose("home")
            reward = float(rng.random() < SHARES[decision.arm])
            learner.learn(decision, reward)
            rows.append({"arm": decision.arm, "propensity": decision.propensity, "reward": reward})
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "propensity", AssumptionWarning)
            off_policy(FILM, pandas.DataFrame(rows), arms="shown")
