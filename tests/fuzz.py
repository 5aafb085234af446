"""Requests made from the OpenAPI document and bent: none may make the service fail.

python tests/fuzz.py --seconds 300
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import hypothesis
import schemathesis
from schemathesis.core.failures import FailureGroup

from tacit.service.config_file import load_config
from tacit.service.server import running

PLACEMENTS = ("default", "duels", "slates", "features", "default")


def fuzz(folder, seconds, examples):
    """Send requests for a while; return what went wrong."""
    config = load_config(
        overrides={
            "store.path": str(Path(folder) / "s.db"),
            "server.port": 0,
            "placements.default.shadow": "ucb1",
            "placements.default.attribution_window": 0.05,
            "placements.duels": {"kind": "duels", "rankers": ["a", "b"]},
            "placements.slates": {"kind": "slates", "arms": 3},
            "placements.features": {
                "kind": "features",
                "policy": "lin-ts(relevance_dim=1, examination_dim=1)",
            },
            "placements.personalizer": {
                "kind": "personalizer",
                "policy": "linear-epsilon-greedy(dim=8)",
            },
            "personalizer.placement": "personalizer",
        }
    )
    deadline, wrong, sent = time.monotonic() + seconds, [], 0
    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=examples < 100,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    with running(config) as address:
        document = schemathesis.openapi.from_url(f"{address}/openapi.json")
        operations = [each.ok() for each in document.get_all_operations()]
        first = True
        while first or time.monotonic() < deadline:
            first = False
            for operation in operations:

                @hypothesis.given(case=operation.as_strategy())
                @settings
                def send(case):
                    nonlocal sent
                    sent += 1
                    if "name" in (case.path_parameters or {}) and sent % 4:
                        case.path_parameters["name"] = PLACEMENTS[sent % len(PLACEMENTS)]
                    response = case.call()
                    if response.status_code >= 500:
                        wrong.append((case.method, case.path, case.body, response.text))
                    try:
                        case.validate_response(
                            response, checks=[schemathesis.checks.not_a_server_error]
                        )
                    except FailureGroup as error:
                        wrong.append((case.method, case.path, str(error)))

                send()
                if time.monotonic() > deadline:
                    break
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
