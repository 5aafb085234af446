"""Serve a log in shards: each an ordinary server, started by any supervisor or by Ray."""

# 1. ``open_shard``: the service of one shard.
# 2. ``serve_shard``: one shard in this process, with the addresses of all in a file.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from tacit.cluster.tasks import connect, import_ray
from tacit.core import checks
from tacit.errors import ConfigError, undo_on_error
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
    from tacit.service.app.server import news_since
    from tacit.service.engine.engine import Engine
    from tacit.service.engine.shard_layout import FencedStore, shard_store

    layout, salt, _ = read_layout(config, shard.shards)

    def complete_config(config: Config) -> Config:
        """Return a configuration with the store of the shard, and with the seeds of its placements."""
        seeded = read_layout(config, shard.shards)[2]
        return msgspec.structs.replace(seeded, store=shard_store(config.store, layout, shard.number))

    config = complete_config(config)
    store = FencedStore(str(config.store.url), config.store.schema)
    with undo_on_error(store.close):
        say_news = news_since(store, config)
        engine = Engine(config, store, shard=shard)
    say_news()
    token = make_token(salt)
    shards = [Shard(number, shard.shards) for number in range(shard.shards)]
    links = {one.number: Link(one, lambda: service.table.shards, token) for one in shards if one != shard}
    service: ShardService = ShardService(
        ShardCalls(engine), links, token, merge_seconds, read_addresses, complete_config
    )
    return service


def read_peers(path: Path, shards: int) -> list[str]:
    """Return the addresses of all shards in a file: a line for each, by number.

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


def watch_peers(path: Path, shards: int) -> Callable[[], list[str]]:
    """Return a function that reads the addresses in a file again; while it has an error, they stay.

    Raises
    ------
    ConfigError
        As :func:`read_peers`, for the first time.
    """
    addresses, last_error = read_peers(path, shards), ""

    def read() -> list[str]:
        """Return the addresses of all shards; a new error is logged."""
        nonlocal addresses, last_error
        try:
            addresses, last_error = read_peers(path, shards), ""
        except ConfigError as error:
            if str(error) != last_error:
                logger.error("the addresses of shards stay as they were: %s", error)
            last_error = str(error)
        return addresses

    return read


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
    addresses = watch_peers(peers, shard.shards)
    run(config, engine=lambda given: open_shard(given, shard, merge_seconds, addresses), **options)


# ---- All shards on a Ray cluster

PULSE_SECONDS = 40.0
"""Seconds without an answer after which a shard counts as lost."""


class ShardActor:
    """A Ray actor that runs one shard as a server in a thread; Ray starts it again when it is lost."""

    _config: Config | None = None
    _addresses: Sequence[str] = ()
    _stopping = False

    def look(
        self, config: Config, shard: Shard, merge_seconds: float, place: tuple[str, int], addresses: list[str]
    ) -> str:
        """Start the server, or apply another configuration, and use these addresses of all shards.

        Return the address of the server, which accepts requests.

        Raises
        ------
        TacitError
            If the server does not start, or cannot apply the configuration.
        """
        before, self._addresses = self._addresses, addresses
        if self._config is None:
            self._start(config, shard, merge_seconds, place)
        elif before != addresses:
            asyncio.run_coroutine_threadsafe(self._service.look(), self._loop).result()
        if self._config not in (None, config):
            applying = self._server.apply_configuration(config)
            asyncio.run_coroutine_threadsafe(applying, self._loop).result()
        self._config = config
        return self._address

    def _start(self, config: Config, shard: Shard, merge_seconds: float, place: tuple[str, int]) -> None:
        """Start the server in a thread, and wait until it accepts requests."""
        from tacit.service.app.logging_setup import set_up
        from tacit.service.app.server import open_server, settle_memory

        # Only the main process notifies systemd.
        os.environ.pop("NOTIFY_SOCKET", None)
        set_up(config.server.log)
        answering = threading.Event()

        def ready(address: str) -> None:
            self._loop, self._address = asyncio.get_running_loop(), address
            answering.set()

        def run() -> None:
            """Run the server; if nobody stopped it, the process ends with it."""
            self._server.run(sockets=[listener])
            if not self._stopping:
                os._exit(1)

        def opening(given: Config) -> Any:
            """Open the shard, and record its service."""
            self._service = open_shard(given, shard, merge_seconds, lambda: self._addresses)
            return self._service

        self._server, listener = open_server(config, *place, ready, opening=opening)
        settle_memory()
        self._thread = threading.Thread(target=run, name="tacit-shard", daemon=True)
        self._thread.start()
        answering.wait()
        bound = urlsplit(self._address)
        if bound.hostname in ("0.0.0.0", "::"):  # noqa: S104
            self._address = f"http://{import_ray().util.get_node_ip_address()}:{bound.port}"

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

    Attributes
    ----------
    config : Config
        Applied by all shards with the next :meth:`watch`.
    addresses : list of str
        Addresses of the shards; empty for one that has not started yet.
    """

    def __init__(self, config: Config, shards: int, merge_seconds: float, host: str, port: int) -> None:
        self.config, self.addresses = config, [""] * shards
        options = {"max_restarts": -1, "max_task_retries": 0, "max_concurrency": 2}
        actor = import_ray().remote(ShardActor).options(**options, scheduling_strategy="SPREAD")
        self._actors = [actor.remote() for _ in range(shards)]
        self._arguments = [
            (Shard(number, shards), merge_seconds, (host, port and port + number)) for number in range(shards)
        ]
        self._looks: dict[Any, tuple[int, float]] = {}
        self._lost: set[int] = set()

    def watch(self, seconds: float) -> None:
        """Look at all shards, and wait for so long for what they say.

        Raises
        ------
        TacitError
            If a shard does not start that never has.
        """
        ray = import_ray()
        watched = {number for number, _ in self._looks.values()}
        for number, actor in enumerate(self._actors):
            if number not in watched:
                look = actor.look.remote(self.config, *self._arguments[number], self.addresses)
                self._looks[look] = number, clocks.monotonic()
        ended, silent = ray.wait(list(self._looks), num_returns=len(self._looks), timeout=seconds)
        for look in ended:
            number, _ = self._looks.pop(look)
            try:
                self.addresses[number] = ray.get(look)
                self._lost.discard(number)
            except ray.exceptions.RayTaskError as error:
                if not self.addresses[number]:
                    raise error.cause from error
                logger.error("shard %d: %s", number, error.cause)
            except ray.exceptions.RayActorError as error:
                if number not in self._lost:
                    logger.error("shard %d is lost: %s", number, str(error).partition("\n")[0])
                self._lost.add(number)
        for look in silent:
            number, since = self._looks[look]
            if self.addresses[number] and clocks.monotonic() - since > PULSE_SECONDS:
                ray.kill(self._actors[number], no_restart=False)

    def stop(self) -> None:
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
    received: list[int] = []
    signals = [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if reread is not None else [])]
    # Ray starts workers at low priority (nice 15): on a busy machine shards would answer late or never start.
    os.environ.setdefault("RAY_worker_niceness", "0")
    with connect(address):
        before = {number: signal.signal(number, lambda got, _: received.append(got)) for number in signals}
        cores = int(import_ray().cluster_resources().get("CPU", 1))
        layout, _, _ = read_layout(config, shards, max(cores, 1))
        server = config.server
        launcher = Launcher(
            config,
            layout.shards,
            merge_seconds,
            server.host if host is None else host,
            server.port if port is None else port,
        )
        try:
            is_ready = False
            while not {signal.SIGTERM, signal.SIGINT}.intersection(received):
                launcher.watch(0.5)
                if not is_ready and all(launcher.addresses):
                    # Another time, so that all shards know the addresses.
                    launcher.watch(PULSE_SECONDS)
                    is_ready = True
                    (ready or print_address)(launcher.addresses[0])
                if received and reread is not None:
                    received.clear()
                    launcher.config = _reread(reread, launcher.config)
        finally:
            launcher.stop()
            for number, handler in before.items():
                signal.signal(number, handler)


def _reread(reread: Callable[[], Config], present: Config) -> Config:
    """Return the configuration that is read again, or the present one if that is wrong, which is logged."""
    from tacit.errors import TacitError

    try:
        return reread()
    except TacitError as error:
        logger.error("the configuration stays as it was: %s", error)
        return present
