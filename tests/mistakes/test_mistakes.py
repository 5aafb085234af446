"""What is said of mistakes: field, value and remedy. The cases are in the text files beside."""

import json
import os
import shutil
import signal
import warnings
from unittest.mock import patch

import numpy as np
import pandas
import pytest
from harness import started, stopped
from mistakes import given
from mistakes.given import FILM, SHARES
from mistakes.transcripts import FOLDER, check_case, read_cases

import tacit
from tacit.errors import AssumptionWarning
from tacit.evaluate import off_policy

CASES = [
    pytest.param(case, marks=[pytest.mark.compiled] if path.stem == "rounds" else [], id=str(case))
    for path in sorted(FOLDER.glob("*.txt"))
    for case in read_cases(path)
]
RANKERS = ["old", "new", "odd"]
SERVED = {
    "home": {
        "arms": ["film", "song"],
        "context": {"device": ["ios", "web"], "age": "number"},
        "holdout": {},
        "metrics": {"revenue": {}, "visits": {}},
    },
    "users": {"arms": 2, "context": {"device": ["ios", "web"]}, "holdout": {"unit": "user"}},
    "words": {"arms": ["holiday", "film", "recipe"]},
    "numbers": {"arms": 3, "policy": "ucb1"},
    "search": {"kind": "duels", "rankers": RANKERS, "length": 4},
    "market": {"kind": "duels", "rankers": RANKERS, "segments": ["market"], "worth": {"purchase": 10.0}},
    "lists": {"kind": "slates", "arms": list("abcde"), "policy": "cascade-kl-ucb", "positions": 2},
    "features": {"kind": "features", "policy": "lin-ts(relevance_dim=2, examination_dim=1)"},
}


SERVE = """
import json, sys
from tacit.service.app.server import serve
from tacit.service.config.file import load_config
serve(load_config(overrides=json.loads(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Serve in a process of its own: warnings of one thread are lost while another compiles."""
    store = str(tmp_path_factory.mktemp("mistakes") / "clicks.db")
    service, port = started(json.dumps({"server.port": 0, "store.path": store, "placements": SERVED}), SERVE)
    yield f"http://127.0.0.1:{port}"
    stopped(service, signal.SIGTERM)


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


WRONG = {
    "another value": (">>> 1 + 1\n3", "output='2"),
    "an error that does not come": (">>> 1 + 1\n! InvalidValue: […]", "error=''"),
    "an error that is not expected": (">>> tacit.auto(0)", "error='InvalidValue: arms: 0 is"),
    "an error of another type": (
        ">>> tacit.auto(0)\n! TypeError: arms: […]",
        "error='InvalidValue: arms: 0 is",
    ),
    "a warning that is not expected": ('>>> tacit.UCB1(["a", ""])', "'? arms: '' is an empty name"),
    "a warning that points elsewhere": ('>>> tacit.UCB1(["a", ""])\n?? arms: […]', "'? arms: '' is an empty"),
    "a command that does not fail": ("$ tacit version\n! exit 2: […]", "error=''"),
    "a command that fails": ("$ tacit version now", "error='exit 2: Error: Got unexpected"),
    "a configuration without a fault": ("seed = 1\n! ConfigError: […]", "error=''"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_transcript_of_what_is_not_said_fails(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.txt").write_text(WRONG[case][0])
    (wrong,) = read_cases(tmp_path / "wrong.txt")
    with pytest.raises(AssertionError) as found:
        check_case(wrong, dict(vars(given)))
    assert WRONG[case][1] in str(found.value).rpartition("Answer(")[2].replace('"', "'")


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
