"""Run the service in shards: an ingress in this process, and each shard in a Ray actor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from typing import TYPE_CHECKING, Any

from tacit.cluster.tasks import connect, import_ray
from tacit.core import checks
from tacit.errors import ConfigError, undo_on_error
from tacit.service.log.ids import MOST_SHARDS, Shard

if TYPE_CHECKING:
    from tacit.cluster.leading_ingress import LeadingIngress
    from tacit.service.config.schema import Config

MERGE_SECONDS = 1.0
MOST_INGRESSES = 64


def serve(
    config: Config,
    address: str = "local",
    shards: int | None = None,
    *,
    merge_seconds: float = MERGE_SECONDS,
    ingresses: int = 1,
    **options: Any,
) -> None:
    """Run the service in shards until it is stopped (SIGTERM or SIGINT).

    Parameters
    ----------
    config : Config
        Its store must be PostgreSQL, which every machine of the cluster can reach.
    address : str, default "local"
        As for :func:`tacit.cluster.on_ray`.
    shards : int, optional
        Number of shards, which is fixed for an existing log; for a new log by default one per core of
        the cluster.
    merge_seconds : float, default 1
        Seconds between exchanges of what shards learned for all keys; above 0.
    ingresses : int, default 1
        Number of processes on this machine that serve at the address.
    **options
        As for :func:`tacit.service.app.server.serve`.

    Raises
    ------
    MissingExtra, NoCluster
        As :func:`tacit.cluster.on_ray`.
    ConfigError
        As :func:`tacit.service.app.server.serve`; also if the store is a file, or the log has
        another number of shards.
    StoreError
        If the store cannot be opened, or is served already.
    """
    from tacit.service.app.server import print_address
    from tacit.service.app.server import serve as run

    if shards is not None:
        checks.integer("shards", shards, 1, MOST_SHARDS)
    checks.integer("ingresses", ingresses, 1, MOST_INGRESSES)
    checks.number("merge_seconds", merge_seconds, 0.0, 86_400.0, open_low=True)
    if config.store.url is None:
        raise ConfigError(
            "store.url: shards keep their log in PostgreSQL; give --store postgresql://user@host/database"
        )
    from tacit.service.engine.shard_layout import check_starts

    check_starts(config)
    announce = options.pop("ready", print_address)
    leading: list[LeadingIngress] = []
    tasks = set()

    def engine(given: Config) -> LeadingIngress:
        """Return a new leading ingress for a configuration, and record it."""
        leading.append(open_ingress(given, shards, merge_seconds, ingresses))
        return leading[0]

    async def open_doors(place: str) -> None:
        """Start the further ingresses at the address, then announce it."""
        host, _, port = place.removeprefix("http://").rpartition(":")
        await leading[0].open_further_ingresses(host.strip("[]"), int(port))
        announce(place)

    def ready(place: str) -> None:
        """Announce the address, after the further ingresses have started there, if there are any."""
        if ingresses == 1:
            announce(place)
        else:
            tasks.add(asyncio.ensure_future(open_doors(place)))

    # Ray starts workers at low priority (nice 15): on a busy machine shards would answer late or never start.
    os.environ.setdefault("RAY_worker_niceness", "0")
    with connect(address):
        run(config, engine=engine, ready=ready, shared=ingresses > 1, **options)


def open_ingress(
    config: Config, shards: int | None, merge_seconds: float, ingresses: int = 1
) -> LeadingIngress:
    """Return a leading ingress with a link to each shard; create the layout of a new log.

    An actor is started for each shard; it opens its log when the ingress starts. The layout's store stays
    open as a lock until the ingress stops. ``ingresses`` includes this one.
    """
    import msgspec

    from tacit.cluster.leading_ingress import FurtherIngresses, LeadingIngress
    from tacit.cluster.shard import Spares
    from tacit.cluster.shard_link import OwnLink
    from tacit.service.app.server import news_since
    from tacit.service.engine import shard_layout
    from tacit.service.errors import StoreError
    from tacit.service.log.postgres import PostgresStore

    url = config.store.url
    assert url is not None
    # Stays open while serving, as a lock against other services of this log and changes of its layout.
    layout_store = PostgresStore(url, config.store.schema)
    with undo_on_error(layout_store.close):
        cores = int(import_ray().cluster_resources().get("CPU", 1))
        layout = shard_layout.ensure_layout(layout_store, shards, default=max(cores, 1))

        def add_seeds(config: Config) -> Config:
            return shard_layout.add_stored_seeds(layout_store, config, lambda: secrets.randbits(63))

        config = add_seeds(config)
        # A new shard has no log to read.
        with contextlib.suppress(StoreError):
            first = shard_layout.ReadStore(url, shard_layout.name_schema(config.store.schema, layout, 0))
            with contextlib.closing(first):
                news_since(first, config)()
        spares, further_ingresses = Spares(config), FurtherIngresses(ingresses - 1)
        links = [
            OwnLink(
                Shard(number, layout.shards),
                msgspec.structs.replace(config, store=shard_layout.shard_store(config.store, layout, number)),
                spares,
                further_ingresses.attach,
            )
            for number in range(layout.shards)
        ]
        return LeadingIngress(
            config, links, spares, further_ingresses, merge_seconds, add_seeds, layout_store.close
        )
