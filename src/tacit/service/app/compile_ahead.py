"""Compile ahead: serve a configuration once from a temporary store, so that its code is in the cache."""

from __future__ import annotations

import http.client
import json
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.parallel import progress
from tacit.errors import TacitError
from tacit.service.app.server import run_in_thread
from tacit.service.config.schema import Config, PlacementConfig, ServerConfig, StoreConfig
from tacit.service.engine.engine import Engine
from tacit.service.log.sqlite import SqliteStore
from tacit.service.placements.placement import Placement


def compile_served(config: Config) -> tuple[int, int, Path]:
    """Compile the code of a configuration into the cache, by serving it twice from a temporary store.

    Each placement gets one request and feedback on it. Returns cache hits, compilations and the cache folder.

    Parameters
    ----------
    config : Config
        Its address, keys and store are not used.
    """
    from tacit.core.compilation.loops import cache_root
    from tacit.core.compiled import cache_statistics

    with tempfile.TemporaryDirectory() as folder:
        config = msgspec.structs.replace(
            config,
            server=ServerConfig(port=0),
            store=StoreConfig(path=str(Path(folder) / "tacit.db")),
            keys={},
            traces=None,
        )
        placements = _make_examples(config)
        with run_in_thread(config) as address, progress(len(placements), "compiling") as advance:
            connection = http.client.HTTPConnection(address.removeprefix("http://"))
            for example in placements:
                _request_once(connection, *example)
                advance(1)
            connection.close()
        # A second start compiles the fold of the log.
        with run_in_thread(config):
            pass
    return *cache_statistics(), cache_root()


def _make_examples(config: Config) -> list[tuple[str, Placement, dict[str, Any]]]:
    """Create the placements of a configuration in its store.

    Return name, placement and an example request of each.
    """
    with closing(SqliteStore(config.store.path)) as store:
        return [
            (name, placement, placement.kind.example(placement))
            for name, placement in Engine(config, store).placements.items()
        ]


def _request_once(
    connection: http.client.HTTPConnection, name: str, placement: Placement, request: Any
) -> None:
    """Request one decision of a placement by HTTP, and send feedback on it; raise TacitError if one fails."""

    def post(path: str, body: Any) -> Any:
        """Send a JSON body to a path of the placement; return the decoded answer, or raise TacitError."""
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"/v1/placements/{name}/{path}", json.dumps(body), headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status >= 300:
            raise TacitError(f"placements.{name}: {path} was answered with {answer['detail']}")
        return answer

    # Answers of another API have no field of that name.
    decision_id = post(placement.kind.path, request).get("decision_id")
    if decision_id is not None and placement.kind.takes_clicks:
        post("clicks", {"decision_id": decision_id, "clicks": [0]})
    elif decision_id is not None:
        post("feedback", {"decision_id": decision_id, **_make_feedback(placement.config)})


def _make_feedback(config: PlacementConfig) -> dict[str, Any]:
    """Return a body of feedback for a placement: a reward of 1, or its learned metric's least amount."""
    if config.learned is None:
        return {"reward": 1.0}
    return {"metrics": {config.learned: config.metrics[config.learned].low}}
