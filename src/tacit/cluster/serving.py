"""Serve a log in shards: each an ordinary server, started by any supervisor or by Ray."""

# 1. ``open_shard``: the service of one shard.
# 2. ``serve_shard``: one shard in this process; a file lists the addresses of all shards.
# 3. ``serve``: all shards as actors of a Ray cluster, which replaces those that are lost.

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import threading
import time as clocks
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from tacit.cluster.tasks import connect, import_ray
from tacit.core import checks
from tacit.errors import ConfigError, TacitError
from tacit.service.log.ids import MOST_SHARDS, Shard

if TYPE_CHECKING:
    from tacit.service.config.schema import Config
    from tacit.service.engine.shard_layout import Layout

MERGE_SECONDS = 1.0
LAYOUT_SECONDS = 60.0
"""Seconds for which a shard waits until others, which start too, have read the layout of the log."""

logger = logging.getLogger(__name__)

# ---- One shard


def check_shards(config: Config) -> None:
    """Raise ConfigError unless shards can serve a configuration."""
    from tacit.service.engine.shard_layout import check_starts

    if config.store.url is None:
        raise ConfigError(
            "store.url: shards keep their log in PostgreSQL; give --store postgresql://user@host/database"
        )
    check_starts(config)


def read_layout(config: Config, shards: int | None, cores: int = 1) -> tuple[Layout, str, Config]:
    """Return the layout of a log in shards, its salt, and the configuration with the seeds of placements.

    The layout of a new log is stored, with ``shards`` or else a shard for each core.

    Raises
    ------
    ConfigError, StoreError
        If the log has another number of shards, does not fit the configuration, or cannot be opened.
    """
    from tacit.service.engine import shard_layout
    from tacit.service.errors import InUse
    from tacit.service.log.postgres import PostgresStore

    check_shards(config)
    deadline = clocks.monotonic() + LAYOUT_SECONDS
    while True:
        try:
            store = PostgresStore(str(config.store.url), config.store.schema)
            break
        except InUse:
            if clocks.monotonic() > deadline:
                raise
    with contextlib.closing(store):
        layout = shard_layout.ensure_layout(store, shards, default=cores)
        seeded = shard_layout.add_stored_seeds(store, config, lambda: secrets.randbits(63))
        return layout, store.salt, seeded


def open_shard(
    config: Config, shard: Shard, merge_seconds: float, read_addresses: Callable[[], Sequence[str]]
) -> Any:
    """Return the service of a shard, which takes over its log, also from a process that still serves it.

    Parameters
    ----------
    config : Config
        With the store of the whole log.
    shard : Shard
    merge_seconds : float
        Seconds between exchanges of what shards learned for all keys.
    read_addresses : function
        Returns the present addresses of all shards, by number.

    Raises
    ------
    ConfigError, StoreError
        As :func:`read_layout`.
    """
    from tacit.cluster.peers import Link, make_token
    from tacit.cluster.shards import ShardCalls, ShardService
    from tacit.service.app.server import open_engine
    from tacit.service.engine.shard_layout import FencedStore, shard_store
    from tacit.service.log.sql import adopt_salt

    layout, salt, _ = read_layout(config, shard.shards)

    def complete_config(config: Config) -> Config:
        """Return a configuration with the store of the shard, and with the seeds of its placements."""
        seeded = read_layout(config, shard.shards)[2]
        return msgspec.structs.replace(seeded, store=shard_store(config.store, layout, shard.number))

    config = complete_config(config)
    store = FencedStore(str(config.store.url), config.store.schema)
    # A user has the same hash in all shards, whichever hashes it, so that all can forget it.
    adopt_salt(store, salt)
    engine = open_engine(config, store, shard)
    token = make_token(salt)
    shards = [Shard(number, shard.shards) for number in range(shard.shards)]
    links = {one.number: Link(one, lambda: service.table.shards, token) for one in shards if one != shard}
    service: ShardService = ShardService(
        ShardCalls(engine), links, token, merge_seconds, read_addresses, complete_config
    )
    return service


def read_peers(path: Path, shards: int) -> list[str]:
    """Read the addresses of all shards from a file with one address per line, in the order of the shards.

    Empty lines and those that begin with ``#`` are left out.

    Raises
    ------
    ConfigError
        If the file cannot be read, or does not have an address for each shard.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     _ = file.write("# ours\\nhttp://10.0.0.1:8787\\nhttp://10.0.0.2:8787/\\n")
    ...     file.flush()
    ...     read_peers(Path(file.name), 2)
    ['http://10.0.0.1:8787', 'http://10.0.0.2:8787']
    """
    try:
        lines = [line.strip().rstrip("/") for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--peers: {path} cannot be read: {error}") from error
    addresses = [line for line in lines if line and not line.startswith("#")]
    for address in addresses:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query:
            raise ConfigError(f"--peers: {path}: {address!r} is no address; give http://HOST:PORT")
    if len(addresses) != shards or len(set(addresses)) != shards:
        raise ConfigError(
            f"--peers: {path} has {len(set(addresses))} addresses for {shards} shards; give one for each, "
            "a line each, in the order of their numbers"
        )
    return addresses


def serve_shard(
    config: Config, shard: Shard, peers: Path, *, merge_seconds: float = MERGE_SECONDS, **options: Any
) -> None:
    """Run one shard of a log until it is stopped (SIGTERM or SIGINT).

    Parameters
    ----------
    config : Config
        Its store must be PostgreSQL, which all shards reach; the same for all but for the address.
    shard : Shard
    peers : Path
        File with the addresses of all shards, a line each, by number; read again when it changes.
    merge_seconds : float, default 1
        Seconds between exchanges of what shards learned for all keys; above 0.
    **options
        As for :func:`tacit.service.app.server.serve`.

    Raises
    ------
    ConfigError, StoreError
        As :func:`tacit.service.app.server.serve`; also if the store is a file, or the log has another number
        of shards.
    """
    from tacit.service.app.server import serve as run

    check_shards(config)
    read_addresses = partial(read_peers, peers, shard.shards)
    read_addresses()
    run(config, engine=lambda given: open_shard(given, shard, merge_seconds, read_addresses), **options)


# ---- All shards on a Ray cluster

LOOK_SECONDS = 0.5
PULSE_SECONDS = 40.0
"""Seconds without an answer after which a shard counts as lost."""


class ShardActor:
    """A Ray actor that runs one shard as a server in a thread; Ray starts it again when it is lost."""

    _config: Config | None = None
    _addresses: Sequence[str] = ()
    _stopping = False

    def look(
        self, config: Config, shard: Shard, merge_seconds: float, host: str, port: int, addresses: list[str]
    ) -> str:
        """Start the server, or apply another configuration, and use these addresses of all shards.

        Return the address of the server, which accepts requests.

        Raises
        ------
        TacitError
            If the server does not start, or cannot apply the configuration.
        """
        self._addresses = addresses
        if self._config is None:
            self._loop, self._address = self._start(config, shard, merge_seconds, host, port)
        elif self._config != config:
            asyncio.run_coroutine_threadsafe(self._server.apply_configuration(config), self._loop).result()
        self._service.read_table()
        self._config = config
        return self._address

    def _start(self, config: Config, *place: Any) -> tuple[asyncio.AbstractEventLoop, str]:
        """Start the server in a thread; return its event loop and its address when it accepts requests."""
        from tacit.service.app.logging_setup import set_up
        from tacit.service.app.server import open_server, settle_memory

        shard, merge_seconds, host, port = place
        # Only the main process notifies systemd.
        os.environ.pop("NOTIFY_SOCKET", None)
        set_up(config.server.log)
        answering: Future[tuple[asyncio.AbstractEventLoop, str]] = Future()

        def run() -> None:
            """Run the server; end the process if the server ends without :meth:`stop`."""
            self._server.run(sockets=[listener])
            if not self._stopping:
                os._exit(1)

        def opening(given: Config) -> Any:
            """Open the shard, and record its service."""
            self._service = open_shard(given, shard, merge_seconds, lambda: self._addresses)
            return self._service

        self._server, listener = open_server(
            config,
            host,
            port,
            lambda address: answering.set_result((asyncio.get_running_loop(), address)),
            opening=opening,
        )
        settle_memory()
        self._thread = threading.Thread(target=run, name="tacit-shard", daemon=True)
        self._thread.start()
        loop, address = answering.result()
        bound = urlsplit(address)
        if bound.hostname in ("0.0.0.0", "::"):  # noqa: S104
            address = f"http://{import_ray().util.get_node_ip_address()}:{bound.port}"
        return loop, address

    def stop(self) -> None:
        """Stop the server, and wait until pending requests are answered."""
        if self._config is not None:
            self._stopping = self._server.should_exit = True
            self._thread.join()


class Launcher:
    """Runs the shards of a log as actors.

    Parameters
    ----------
    config : Config
    shards : int
    merge_seconds : float
    host, port
        Shard number i listens at the port plus i; at any free port if it is 0.
    """

    def __init__(self, config: Config, shards: int, merge_seconds: float, host: str, port: int) -> None:
        self._config, self._addresses = config, [""] * shards
        # Two calls at once, so that ``stop`` need not wait for ``look``.
        options = {"max_restarts": -1, "max_task_retries": 0, "max_concurrency": 2}
        actor = import_ray().remote(ShardActor).options(**options, scheduling_strategy="SPREAD")
        self._actors = [actor.remote() for _ in range(shards)]
        self._arguments = [
            (Shard(number, shards), merge_seconds, host, port and port + number) for number in range(shards)
        ]

    async def run(self, ready: Callable[[str], None], reread: Callable[[], Config] | None) -> None:
        """Start all shards, and those again that are lost, until SIGTERM or SIGINT; then stop them.

        Parameters
        ----------
        ready : function
            Called with the address of the first shard, once each shard knows the addresses of all.
        reread : function, optional
            Reads the configuration again on SIGHUP.

        Raises
        ------
        TacitError
            If a shard does not start that never has.
        """
        loop, informed = asyncio.get_running_loop(), asyncio.Barrier(len(self._actors))
        watching = asyncio.gather(*(self._watch(i, informed, ready) for i in range(len(self._actors))))
        for number in signal.SIGTERM, signal.SIGINT:
            loop.add_signal_handler(number, watching.cancel)
        if reread is not None:
            loop.add_signal_handler(signal.SIGHUP, self._reload, reread)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        finally:
            self._stop()

    async def _watch(self, number: int, informed: asyncio.Barrier, ready: Callable[[str], None]) -> None:
        """Look at a shard again and again, and note its address; kill one that is silent for long."""
        ray, actor, is_informed, is_lost = import_ray(), self._actors[number], False, False
        while True:
            addresses = list(self._addresses)
            try:
                # A first start compiles and folds the log, for as long as it takes.
                async with asyncio.timeout(PULSE_SECONDS if addresses[number] else None):
                    look = actor.look.remote(self._config, *self._arguments[number], addresses)
                    self._addresses[number] = await look
                is_lost = False
                if all(addresses) and not is_informed:
                    is_informed = True
                    # One of the waiting tasks gets 0.
                    if await informed.wait() == 0:
                        ready(addresses[0])
            except ray.exceptions.RayTaskError as error:
                # Without an address it has never started.
                if not addresses[number]:
                    raise error.cause from error
                logger.error("shard %d: %s", number, error.cause)
            except ray.exceptions.RayActorError as error:
                if not is_lost:
                    logger.error("shard %d is lost: %s", number, str(error).partition("\n")[0])
                is_lost = True
            except TimeoutError:
                # Ray starts it again.
                ray.kill(actor, no_restart=False)
            await asyncio.sleep(LOOK_SECONDS)

    def _reload(self, reread: Callable[[], Config]) -> None:
        """Read the configuration again; if it is wrong, log an error and keep the present one."""
        try:
            self._config = reread()
        except TacitError as error:
            logger.error("the configuration stays as it was: %s", error)

    def _stop(self) -> None:
        """Let all shards answer pending requests and close their logs; then end their actors."""
        ray = import_ray()
        ending = [actor.stop.remote() for actor in self._actors]
        ray.wait(ending, num_returns=len(ending), timeout=PULSE_SECONDS)
        for actor in self._actors:
            ray.kill(actor)


def serve(
    config: Config,
    address: str = "local",
    shards: int | None = None,
    *,
    merge_seconds: float = MERGE_SECONDS,
    host: str | None = None,
    port: int | None = None,
    ready: Callable[[str], None] | None = None,
    reread: Callable[[], Config] | None = None,
) -> None:
    """Run the service in shards on a Ray cluster until it is stopped (SIGTERM or SIGINT).

    Every shard is a server that answers for all keys: shard i at the configured port plus i.

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
    host, port, ready, reread : optional
        As for :func:`tacit.service.app.server.serve`; the address is that of the first shard.

    Raises
    ------
    MissingExtra, NoCluster
        As :func:`tacit.cluster.on_ray`.
    ConfigError, StoreError
        As :func:`serve_shard`.
    """
    from tacit.service.app.server import print_address

    if shards is not None:
        checks.integer("shards", shards, 1, MOST_SHARDS)
    checks.number("merge_seconds", merge_seconds, 0.0, 86_400.0, open_low=True)
    check_shards(config)
    # Ray starts workers at low priority (nice 15): on a busy machine shards would answer late or never start.
    os.environ.setdefault("RAY_worker_niceness", "0")
    with connect(address):
        cores = int(import_ray().cluster_resources().get("CPU", 1))
        layout, _, _ = read_layout(config, shards, max(cores, 1))
        place = config.server.host if host is None else host, config.server.port if port is None else port
        launcher = Launcher(config, layout.shards, merge_seconds, *place)
        asyncio.run(launcher.run(ready or print_address, reread))
