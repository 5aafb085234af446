"""Requests made from the OpenAPI document and bent: none may make the service fail.

python tests/fuzz.py --seconds 300
"""

import argparse
import contextlib
import json
import random
import re
import sys
import tempfile
import time
from pathlib import Path

import hypothesis
import schemathesis
from hypothesis import strategies
from schemathesis.core.failures import FailureGroup
from schemathesis.openapi.checks import RejectedPositiveData

from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config

PLACEMENTS = ("default", "held", "duels", "slates", "features")
DEEP = 2000
UNSAID = (
    # What the placement is, and has.
    r"(^|\.)(placement|arms|context|relevance|examination|rankings|session)\b",
    r"^(retire|restore|add|policy|to|shard): |(^|\.)(segment|unknown): .* leave it out",
    r"(^|\.)metrics\..* the placement watches|^(from|to|control): ",
    r"^mode: '\w+' is not allowed; (configure|give the placement)",
    r"^key: .* there was a duel|the decision showed (a|no) list|not in the catalogue",
    # What two fields are together.
    r"reward: null|^until: .*give a time after|at most 512 bytes",
    # What a schema cannot say, or its reader does not know: categories of characters that are
    # not assigned, and that 1.0 is no integer here.
    r"printable characters|: -?\d+(\.0|(\.\d+)?e\+\d+) is not allowed; give a whole number|out of range",
)
TIMES = strategies.datetimes().map(lambda time: time.isoformat() + "Z")
schemathesis.openapi.format("date-time", TIMES)


def of_all_kinds(folder, **values):
    """Return the configuration of a service with placements of all kinds."""
    return load_config(
        overrides={
            "store.path": str(Path(folder) / "s.db"),
            "server.port": 0,
            "placements.default.shadow": "ucb1",
            "placements.default.attribution_window": 0.05,
            "placements.held": {
                "arms": ["a", "b"],
                "holdout": {"share": 0.5, "unit": "user"},
                "metrics": {"seconds": {}},
                "attribution_window": 0.05,
            },
            "placements.duels": {"kind": "duels", "rankers": ["a", "b"]},
            "placements.slates": {"kind": "slates", "arms": 3},
            "placements.features": {
                "kind": "features",
                "policy": "lin-ts(relevance_dim=1, examination_dim=1)",
            },
            **values,
        }
    )


def unsaid(problem):
    """Whether a problem says what no schema could: what a placement, or another field, allows."""
    return any(re.search(pattern, problem["detail"]) for pattern in UNSAID)


def bent(case, rng):
    """Return bytes that were the body of a request once, and what no JSON is."""
    body = bytearray(json.dumps(case.body if isinstance(case.body, dict | list) else {}).encode())
    for _ in range(rng.randint(1, 3)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    deep = rng.choice((b"[", b'{"a":', b'{"context": {"a": ' + b"[" * DEEP)) * DEEP
    return rng.choice((bytes(body), b'{"key": "\xff"}', b'{"\xff": 1}', deep[: 50 * DEEP // 10]))


def fuzz(folder, seconds, examples):
    """Send requests for a while, to every operation at least once; return what went wrong.

    Those that the document allows and those that it does not are made by schemathesis, and held
    against all of its checks. Bent bytes must only be refused.
    """
    deadline, wrong, sent, rng = time.monotonic() + seconds, [], 0, random.Random(1)
    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=examples < 100,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )

    def send(case):
        nonlocal sent
        sent += 1
        if "name" in (case.path_parameters or {}) and sent % 6:
            case.path_parameters["name"] = PLACEMENTS[sent % len(PLACEMENTS)]
        response = case.call()
        try:
            case.validate_response(response)
        except FailureGroup as group:
            wrong.extend(
                (case.method, case.path, str(failure), response.text)
                for failure in group.exceptions
                if not (isinstance(failure, RejectedPositiveData) and unsaid(response.json()))
            )
        if case.operation.body:
            case.body, case.media_type = bent(case, rng), "application/json"
            response = case.call(headers={"content-type": "application/json"})
            if response.status_code >= 500:
                wrong.append((case.method, case.path, case.body[:100], response.text))

    with run_in_thread(of_all_kinds(folder)) as address:
        document = schemathesis.openapi.from_url(f"{address}/openapi.json")
        operations = [each.ok() for each in document.get_all_operations()]
        while not sent or time.monotonic() < deadline:
            for operation in operations:
                for mode in schemathesis.GenerationMode:
                    case = operation.as_strategy(generation_mode=mode)
                    # Where there is nothing to say, nothing can be said wrong.
                    with contextlib.suppress(hypothesis.errors.Unsatisfiable):
                        settings(hypothesis.given(case=case)(send))()
    print(f"{sent} requests, {len(wrong)} failures", file=sys.stderr)
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    with tempfile.TemporaryDirectory() as folder:
        found = fuzz(folder, parser.parse_args().seconds, examples=200)
    for each in found[:20]:
        print(each)
    sys.exit(bool(found))
