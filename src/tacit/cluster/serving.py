"""The service in shards: an ingress in this process, each shard an actor on Ray."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from tacit.cluster.sweeps import connected, imported
from tacit.core import checks
from tacit.errors import ConfigError
from tacit.service.log.slots import MOST_SHARDS, Shard

if TYPE_CHECKING:
    from tacit.cluster.ingress import Ingress
    from tacit.service.config.schema import Config

MERGE_SECONDS = 1.0


def serve(
    config: Config,
    address: str = "local",
    shards: int | None = None,
    *,
    merge_seconds: float = MERGE_SECONDS,
    **options: Any,
) -> None:
    """Run the service in shards until it is told to stop (SIGTERM or SIGINT).

    Parameters
    ----------
    config : Config
        Its store must be in PostgreSQL, where every machine of the cluster reaches it.
    address : str, default "local"
        As for :func:`tacit.cluster.on_ray`.
    shards : int, optional
        As many as the log is dealt out to; of a new log by default one per core of the cluster.
    merge_seconds : float, default 1
        How often shards share what is learned for all keys; above 0.
    **options
        As for :func:`tacit.service.running.server.serve`.

    Raises
    ------
    MissingExtra, NoCluster
        As :func:`tacit.cluster.on_ray`.
    ConfigError
        As :func:`tacit.service.running.server.serve`; and if the store is a file, or the log is
        dealt out to another number of shards.
    StoreError
        If the store cannot be opened, or is served already.
    """
    from tacit.service.running.server import serve as run

    if shards is not None:
        checks.integer("shards", shards, 1, MOST_SHARDS)
    checks.number("merge_seconds", merge_seconds, 0.0, 86_400.0, open_low=True)
    if config.store.url is None:
        raise ConfigError(
            "store.url: shards keep their log in PostgreSQL; give --store "
            "postgresql://user@host/database"
        )
    from tacit.service.stores.layout import check_kinds

    check_kinds(config)
    with connected(address):
        run(config, engine=lambda given: opened(given, shards, merge_seconds), **options)


def opened(config: Config, shards: int | None, merge_seconds: float) -> Ingress:
    """Return an ingress over as many shards as there must be."""
    import msgspec

    from tacit.cluster.ingress import Ingress
    from tacit.cluster.link import Link
    from tacit.cluster.spares import Spares
    from tacit.service.stores.layout import LayoutStore, shard_store

    assert config.store.url is not None
    # Held open while it serves: nobody else serves this log, or deals it out anew.
    layouts = LayoutStore(config.store.url, config.store.schema)
    try:
        cores = int(imported().cluster_resources().get("CPU", 1))
        layout = layouts.begun(shards, default=max(cores, 1))

        def seeded(config: Config) -> Config:
            return layouts.seeded(config, lambda: secrets.randbits(63))

        config = seeded(config)
        spares = Spares(config)
        links = [
            Link(
                Shard(number, layout.shards),
                msgspec.structs.replace(config, store=shard_store(config.store, layout, number)),
                spares,
            )
            for number in range(layout.shards)
        ]
        return Ingress(config, links, spares, merge_seconds, seeded, layouts.close)
    except BaseException:
        layouts.close()
        raise
