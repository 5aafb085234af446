"""Compile ahead what a configuration serves, by serving it once from a store of its own."""

from __future__ import annotations

import http.client
import json
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from tacit.core.spread import progress
from tacit.errors import TacitError
from tacit.service.app.server import running
from tacit.service.config.schema import Config, PlacementConfig, ServerConfig, StoreConfig
from tacit.service.engine.engine import Engine
from tacit.service.log.sqlite import SqliteStore
from tacit.service.placements.placement import Placement


def compile_served(config: Config) -> tuple[int, int, Path]:
    """Compile what a configuration serves; return cache hits, compilations and the folder.

    Parameters
    ----------
    config : Config
        Its address, keys and store are left alone.
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
        placements = _examples(config)
        with running(config) as address, progress(len(placements), "compiling") as advance:
            connection = http.client.HTTPConnection(address.removeprefix("http://"))
            for each in placements:
                _once(connection, *each)
                advance(1)
            connection.close()
        # What a start folds from the log.
        with running(config):
            pass
    return *cache_statistics(), cache_root()


def _examples(config: Config) -> list[tuple[str, Placement, dict[str, Any]]]:
    with closing(SqliteStore(config.store.path)) as store:
        return [
            (name, placement, placement.kind.example(placement))
            for name, placement in Engine(config, store).placements.items()
        ]


def _once(connection: http.client.HTTPConnection, name: str, placement: Placement, asked: Any) -> None:
    """Ask a placement what it would be asked, and tell what came back."""

    def post(path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"/v1/placements/{name}/{path}", json.dumps(body), headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status >= 300:
            raise TacitError(f"placements.{name}: {path} was answered with {answer['detail']}")
        return answer

    # What is asked by another API's names is not said in ours.
    shown = post(placement.kind.path, asked).get("decision_id")
    if shown is not None and placement.kind.takes_clicks:
        post("clicks", {"decision_id": shown, "clicks": [0]})
    elif shown is not None:
        post("feedback", {"decision_id": shown, **_worth(placement.config)})


def _worth(config: PlacementConfig) -> dict[str, Any]:
    """Return what feedback says of the reward."""
    if config.learned is None:
        return {"reward": 1.0}
    return {"metrics": {config.learned: config.metrics[config.learned].low}}
