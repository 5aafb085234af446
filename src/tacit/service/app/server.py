"""The server: one process, uvicorn on uvloop with its own connections, a clean stop."""

# 1. systemd is notified; its watchdog is pinged only while the engine makes progress.
# 2. The process that sends the log to a topic, if configured.
# 3. ``Server``: uvicorn over an engine's application, with tacit's connections.
# 4. ``serve``: opens all that can fail before the first request; answers until a signal comes.

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn

from tacit.core.compiled import cache_statistics
from tacit.errors import ConfigError, InvalidValue, TacitError, require_extra, undo_on_error
from tacit.lazy_imports import pause_collector
from tacit.service.app.app import create_application
from tacit.service.app.early_answers import EarlyAnswers
from tacit.service.app.guard import Guard
from tacit.service.config.file import (
    describe_placements,
    lint_config,
    list_changes,
    list_kept_policies,
    list_restart_changes,
    to_config_keys,
)
from tacit.service.config.keys import is_loopback
from tacit.service.config.schema import Config, ExportConfig, StoreConfig
from tacit.service.engine.engine import Engine
from tacit.service.errors import AddressUnavailable, NotDurable
from tacit.service.http.protocol import Connections, Protocol

if TYPE_CHECKING:
    from tacit.service.log.ids import Shard
    from tacit.service.log.sql import Store

# ---- Notifying systemd, if systemd has started the service (``Type=notify``)

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"
PINGS = 3
"""Pings within the watchdog's timeout."""

logger = logging.getLogger(__name__)


def notify(state: str) -> None:
    """Send a state to systemd's socket, which ``NOTIFY_SOCKET`` names; nothing without the variable.

    A failure is logged as a warning. Source: the manual page sd_notify(3).
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    # "@" stands for the zero byte of an abstract socket.
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(state.encode(), address)
    except OSError as error:
        logger.warning("systemd could not be notified of %s: %s", state, error.strerror)


class Progress:
    """Checks whether an engine makes progress with its pending requests.

    Parameters
    ----------
    engine : Engine
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Number of rows at the last call; -1 before the first.
        self._events = -1

    def has_progressed(self) -> bool:
        """True if no requests are waiting, or rows were logged since the last call.

        Also True while the store fails: the engine tries again and may hold the only copy of rows, which a
        restart would lose.
        """
        health, waiting = self._engine.health(), self._engine.waiting
        before, self._events = self._events, health.events
        return not (waiting and health.ready and health.events == before)


async def watch(engine: Engine) -> None:
    """Ping systemd's watchdog regularly, until cancelled, as long as the engine makes progress.

    Returns at once if there is no watchdog.
    """
    seconds = _read_watchdog_seconds()
    progress = Progress(engine)
    while seconds:
        if progress.has_progressed():
            notify(ALIVE)
        await asyncio.sleep(seconds / PINGS)


def _read_watchdog_seconds() -> float:
    """Return the timeout of systemd's watchdog in seconds, from the environment.

    0 without a watchdog, or if it watches another process.
    """
    time, pid = (os.environ.get(name, "") for name in ("WATCHDOG_USEC", "WATCHDOG_PID"))
    if not time.isdecimal() or pid not in ("", str(os.getpid())):
        return 0.0
    return int(time) / 1e6


# ---- The process that sends the log to a topic, if configured

PROGRAM = "tacit.service.maintenance.kafka_export"
PAUSE_SECONDS = 5.0
"""Pause before the process is restarted."""
LAST_WORDS = 1000


def check_export(export: ExportConfig, *, shards: bool) -> None:
    """Check that the log can be sent to the configured Kafka address; nothing is connected.

    Raises
    ------
    ConfigError
        If the address is invalid, or the log is split over shards.
    MissingExtra
        If the client of Kafka is not installed.
    """
    from tacit.feed.kafka_topics import parse_address

    if shards:
        raise ConfigError("export.kafka: the log is dealt out to shards, which are not sent; leave it out")
    try:
        parse_address(export.kafka)
    except InvalidValue as error:
        raise ConfigError(f"export.kafka: {error}") from error


async def run_export(store: StoreConfig, export: ExportConfig) -> None:
    """Run a process that sends the log of a store to a topic, until this task is cancelled.

    If the process ends, a warning is logged, and it is started again after 5 seconds.
    """
    task = msgspec.json.encode({"store": store, "export": export}) + b"\n"
    while True:
        # The process ends with its input, and so even if this process is killed.
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            message = await asyncio.to_thread(_read_error_output, process, task)
        finally:
            process.kill()
        logger.warning("export: it ended and is started anew in %g s: %s", PAUSE_SECONDS, message)
        await asyncio.sleep(PAUSE_SECONDS)


def _read_error_output(process: subprocess.Popen[bytes], task: bytes) -> str:
    """Send a task to a process, wait for its end, and return the last 1000 characters of its error output."""
    assert process.stdin is not None
    assert process.stderr is not None
    with process:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(task)
            process.stdin.flush()
        return process.stderr.read().decode(errors="replace").strip()[-LAST_WORDS:]


# ---- uvicorn over the application of an engine, with tacit's connections

DRAIN_SECONDS = 30


class Server(uvicorn.Server):
    """uvicorn's server of an engine's application, which calls ``ready`` once it answers.

    Parameters
    ----------
    config : Config
    engine : Engine
        Decides and learns.
    ready : function
        Called once requests are answered.
    reread : function, optional
        Reads the configuration again on SIGHUP.
    missed : sequence of int
        SIGHUP signals that came before the server was ready.
    traced : function, optional
        Wraps the application with traces.
    early_answers : EarlyAnswers, optional
        Answers health checks until the server is ready.
    """

    def __init__(
        self,
        config: Config,
        engine: Engine,
        ready: Callable[[], None],
        *,
        early_answers: EarlyAnswers | None = None,
        reread: Callable[[], Config] | None = None,
        missed: Sequence[int] = (),
        traced: Callable[[Guard, Engine], Any] | None = None,
    ) -> None:
        self._engine, self._ready, self._reread, self._missed = engine, ready, reread, missed
        self._first_config, self._early_answers = config, early_answers
        self._connections = Connections(config.server)
        self._app = create_application(engine, self._connections)
        self._watching: list[asyncio.Task[None]] = []
        self._reloading = asyncio.Lock()
        if traced is not None:
            # Only requests that pass through the application have a span.
            self._connections.usual = None
        super().__init__(
            uvicorn.Config(
                self._app if traced is None else traced(self._app, engine),
                loop="uvloop",
                http=_make_protocol_class(self._connections),
                ws="none",
                lifespan="on",
                access_log=False,
                log_config=None,
                log_level="warning",
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen for requests, start background tasks, log the configuration, and report readiness.

        The tasks check connections, ping systemd, and send the log to a topic if configured. From now on
        SIGHUP reloads the configuration.
        """
        await super().startup(sockets)
        await self._take_over_connections()
        self._hosts = [listener.getsockname()[0] for listener in sockets or ()]
        if self.started:
            self._watching = [
                asyncio.create_task(self._connections.watch(self.server_state.connections)),
                asyncio.create_task(watch(self._engine)),
            ]
            if self._engine.config.export is not None:
                exporting = run_export(self._engine.config.store, self._engine.config.export)
                self._watching.append(asyncio.create_task(exporting))
            if self._reread is not None and hasattr(signal, "SIGHUP"):
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._start_reload)
                if self._missed:
                    self._start_reload()
            self._log_configuration(self._first_config)
            self._ready()
            notify(READY)
            # The first metrics of a thousand placements take 0.1 s to write, later ones a tenth of that.
            self._watching.append(asyncio.create_task(self._app.metrics.prepare()))

    async def _take_over_connections(self) -> None:
        """End the early answers, and serve the connections that they kept."""
        for connection in () if self._early_answers is None else self._early_answers.stop():
            await asyncio.get_running_loop().connect_accepted_socket(self._make_protocol, connection)

    def _make_protocol(self) -> Protocol:
        """Return a new connection's protocol, made as uvicorn makes it."""
        make: Any = self.config.http_protocol_class
        protocol: Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    async def on_tick(self, counter: int) -> bool:
        """Renew the headers of all answers once a second; return True if the server should end."""
        self.config.encoded_headers = list(self._engine.answer_headers)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the server: end streamed answers, answer the open requests, and cancel the background tasks.

        A service manager is notified at the beginning.
        """
        notify(STOPPING)
        self._app.close()
        await super().shutdown(sockets)
        for task in self._watching:
            task.cancel()

    async def apply_configuration(self, config: Config) -> None:
        """Apply another configuration to engine, guard and connections, and log what changed.

        If keys have changed, streamed answers end. Settings that need a restart are logged as warnings.

        Raises
        ------
        TacitError
            If it cannot be applied; then nothing changes.
        """
        before = self._engine.config
        if not config.keys and not all(map(is_loopback, self._hosts)):
            raise ConfigError(
                f"keys: there is none, and {', '.join(self._hosts)} answers to other machines, "
                "which needs keys; keep one, or start the service anew on another server.host"
            )
        await self._engine.reload(config)
        self._app.configure(config)
        self._connections.configure(config.server)
        if config.keys != before.keys:
            self._app.close()
        _log_sentences(logging.WARNING, list_restart_changes(self._first_config, config))
        logger.info("the configuration was read anew: %d placements", len(config.placements))
        if before.keys and not config.keys:
            logger.warning("it has no keys any more: everybody on this machine may do everything")
        _log_sentences(logging.INFO, list_changes(describe_placements(before), self._engine.config))
        self._log_configuration(config)

    def _log_configuration(self, config: Config) -> None:
        """Log policies that the store keeps in place of configured ones, and warnings about settings."""
        learned = {name: placement.config.policy for name, placement in self._engine.placements.items()}
        _log_sentences(logging.INFO, list_kept_policies(config, learned))
        _log_sentences(logging.WARNING, lint_config(config))

    def _start_reload(self) -> None:
        """Start a task that reloads the configuration, without waiting."""
        self._renewing = asyncio.ensure_future(self._reload())

    async def _reload(self) -> None:
        """Read and apply the configuration again; if it is invalid, log an error and keep the current one."""
        assert self._reread is not None
        # One after the other: the file that was read last must hold in the end.
        async with self._reloading:
            try:
                await self.apply_configuration(await asyncio.to_thread(self._reread))
            except TacitError as error:
                logger.error("the configuration stays as it was: %s", error)


def _log_sentences(level: int, sentences: Iterable[str]) -> None:
    """Log each sentence with the prefix ``configuration:``."""
    for sentence in sentences:
        logger.log(level, "configuration: %s", sentence)


def _make_protocol_class(connections: Connections) -> type[Protocol]:
    """Return a new subclass of :class:`Protocol` whose instances share ``connections``."""

    class Connection(Protocol):
        """A connection of one server."""

        shared = connections

    return Connection


# ---- Running the service: one process, uvicorn on uvloop, a clean stop

BACKLOG = 2048
GC_THRESHOLDS = 20_000, 20, 50
SWITCH_SECONDS = 0.0005
"""Switch interval of threads, a tenth of the default: decisions wait that long while a page is made."""
UNSENT = 131_072
"""Unsent bytes of an answer that the system buffers for each connection."""

Ready = Callable[[str], None]
Opening = Callable[[Config], Engine]


def serve(
    config: Config,
    *,
    host: str | None = None,
    port: int | None = None,
    ready: Ready | None = None,
    reread: Callable[[], Config] | None = None,
    engine: Opening | None = None,
) -> None:
    """Run the service until it is stopped (SIGTERM or SIGINT).

    A stop answers the requests that have arrived, writes a snapshot per placement, and closes the store.

    Parameters
    ----------
    config : Config
    host, port : optional
        Replace the configured ones; port 0 takes any free one.
    ready : function, optional
        Called with the address once requests are answered; by default the address is printed.
    reread : function, optional
        Reads the configuration again on SIGHUP: placements, keys and limits change without loss.
        Address and store cannot change while the service runs.
    engine : function, optional
        Opens the service that decides, instead of an engine in this process.

    Raises
    ------
    MissingExtra
        If a package of the extra ``service`` is missing.
    ConfigError
        If the address cannot be taken (:class:`~tacit.service.errors.AddressUnavailable` where it
        may be later), or a placement does not fit what the store holds.
    StoreError
        If the store cannot be opened.
    """
    missed: list[int] = []
    if reread is not None and hasattr(signal, "SIGHUP"):
        # Without a handler, SIGHUP would end the process.
        signal.signal(signal.SIGHUP, lambda number, _: missed.append(number))
    server, listener = open_server(
        config, host, port, ready or print_address, reread=reread, opening=engine, missed=missed
    )
    from tacit.service.app.logging_setup import set_up

    set_up(config.server.log)
    settle_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    with listener, stop_on_signals(server):
        server.run(sockets=[listener])


def settle_memory() -> None:
    """Exclude all present objects from later collections, and make collections rarer."""
    # A collection of all objects would halt answers for 50 ms. Now, it takes a start 0.2 s with a thousand
    # placements; only compiling, which the second number counts, leaves much to collect.
    if cache_statistics()[1]:
        gc.collect()
    gc.freeze()
    # Open windows are many objects without cycles.
    gc.set_threshold(*GC_THRESHOLDS)


@contextlib.contextmanager
def run_in_thread(config: Config) -> Iterator[str]:
    """In a ``with`` block: run the service in a thread, and yield its address; the service stops at the end.

    Raises
    ------
    MissingExtra
        If a package of the extra ``service`` is missing.
    ConfigError
        If the address cannot be taken, or a placement does not fit what the store holds.
    StoreError
        If the store cannot be opened.
    NotDurable
        If the service ended before it answered.

    Examples
    --------
    >>> import tempfile, urllib.request
    >>> from tacit.service.config.file import load_config
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     values = {"server.port": 0, "store.path": f"{folder}/tacit.db"}
    ...     with run_in_thread(load_config(overrides=values)) as address:
    ...         urllib.request.urlopen(address + "/healthz").read()
    b'{"status":"ok"}'
    """
    answering = threading.Event()
    addresses: list[str] = []

    def ready(address: str) -> None:
        """Store the address, and end the wait for it."""
        addresses.append(address)
        answering.set()

    def run() -> None:
        """Run the server until it stops, and end the wait for its address in any case."""
        try:
            server.run(sockets=[listener])
        finally:
            answering.set()

    server, listener = open_server(config, None, None, ready)
    thread = threading.Thread(target=run, name="tacit-service")
    with listener:
        thread.start()
        try:
            answering.wait()
            if not addresses:
                raise NotDurable("service: it did not start; its log says why")
            yield addresses[0]
        finally:
            server.should_exit = True
            thread.join()


@pause_collector()
def open_server(
    config: Config,
    host: str | None,
    port: int | None,
    ready: Ready,
    *,
    reread: Callable[[], Config] | None = None,
    opening: Opening | None = None,
    missed: Sequence[int] = (),
) -> tuple[Server, socket.socket]:
    """Open store and engine, and return a server and its listening socket; it serves nothing yet.

    All that can fail before the first request is done here; if it fails, the listener is closed. Meanwhile
    health checks are answered.

    Parameters
    ----------
    config : Config
    host, port, ready, reread
        As for :func:`serve`.
    opening : function, optional
        Opens the service that decides.
    missed : sequence of int
        SIGHUP signals that came before the server was ready.
    """
    with require_extra("service"):
        import httptools  # noqa: F401 (uvicorn would look for it only later)
        import uvloop  # noqa: F401

        from tacit.service.http.protocol import raise_descriptor_limit

    raise_descriptor_limit(config.server.connections)
    traced = _make_tracing(config)
    if config.export is not None:
        check_export(config.export, shards=opening is not None)
    listener = _open_allowed_listener(config, host, port)
    early_answers = EarlyAnswers(listener)
    with undo_on_error(listener.close), undo_on_error(early_answers.close):
        engine = (opening or _open_configured_engine)(config)
    server = Server(
        config,
        engine,
        partial(ready, get_address(listener)),
        early_answers=early_answers,
        reread=reread,
        missed=missed,
        traced=traced,
    )
    return server, listener


def _make_tracing(config: Config) -> Callable[[Guard, Engine], Any] | None:
    """Return a function that wraps an application to trace requests and commits; None if not configured.

    Raises MissingExtra if OpenTelemetry is not installed.
    """
    if config.traces is None:
        return None
    with require_extra("otel"):
        from tacit.service.app.traces import TracedApplication, create_provider

        provider = create_provider(config.traces)
    return lambda app, engine: TracedApplication(app, engine, provider)


def _open_configured_engine(config: Config) -> Engine:
    """Open the configured store and an engine over it; log that a log file is new."""
    from tacit.service.engine.stores import open_store

    path = Path(config.store.path).absolute()
    folder_existed = path.parent.exists()
    store = open_store(config.store)
    if not store.end().seq and config.store.url is None:
        level, folder = (
            (logging.INFO, "") if folder_existed else (logging.WARNING, ", in a folder that was not there")
        )
        logger.log(level, "store.path: there is a new log at %s%s", path, folder)
    return open_engine(config, store)


def open_engine(config: Config, store: Store, shard: Shard | None = None) -> Engine:
    """Return an engine over a store, which is closed if that fails.

    Logs how the configuration differs from the stored one.
    """
    with undo_on_error(store.close):
        # The engine replaces the notes.
        notes = store.configurations()
        engine = Engine(config, store, shard=shard)
    # Without notes the store is new, and the configuration is compared with itself.
    noted = {name: to_config_keys(json.loads(note or "{}")) for name, note in notes.items()}
    _log_sentences(logging.INFO, list_changes(noted or describe_placements(config), config))
    return engine


def _open_allowed_listener(config: Config, host: str | None, port: int | None) -> socket.socket:
    """Return a listening socket at the given address, or at the configured one for None.

    Raises ConfigError if other machines can reach it and there are no keys.
    """
    host = config.server.host if host is None else host
    if not config.keys and not is_loopback(host):
        raise ConfigError(
            f"server.host: {host} answers to other machines, which needs keys; make one with: tacit key NAME"
        )
    return open_listener(host, config.server.port if port is None else port)


def open_listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens for TCP connections at an address.

    Parameters
    ----------
    host : str
    port : int
        0 for any free port.

    Raises
    ------
    ConfigError
        If the system forbids this process to listen there.
    AddressUnavailable
        If it is impossible for another reason, such as another listener at the address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        forbidden = isinstance(error, PermissionError)
        raise (ConfigError if forbidden else AddressUnavailable)(
            f"server.port: cannot listen on {host} port {port}: {error.strerror}; "
            "stop what listens there, or give another port (0 takes any free one)"
        ) from error
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        # Holds for its connections, too. Otherwise the system buffers megabytes for a slow reader,
        # whose slowness stays unnoticed for minutes.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
    return listener


def get_address(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def print_address(address: str) -> None:
    """Print the address of the service to standard output, with how to stop it."""
    print(f"tacit serves at {address} (stop with Ctrl-C)", flush=True)


@contextlib.contextmanager
def stop_on_signals(server: uvicorn.Server) -> Iterator[None]:
    """In a ``with`` block: SIGTERM and SIGINT stop the server cleanly; afterwards the previous handlers hold.

    uvicorn passes a signal on to the previous handler at the end; the default ones would end the process with
    an error.
    """

    def stop(*_: Any) -> None:
        """Let the server stop after the current requests."""
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
