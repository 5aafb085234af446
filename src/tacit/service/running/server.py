"""Running the service: one process, uvicorn on uvloop, a clean stop."""

from __future__ import annotations

import contextlib
import gc
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tacit.errors import ConfigError, MissingExtra
from tacit.service.errors import AddressUnavailable, Unavailable

if TYPE_CHECKING:
    import uvicorn

    from tacit.service.app.guard import Guard
    from tacit.service.config.schema import Config
    from tacit.service.engine.service import Service
    from tacit.service.running.answering import Server

BACKLOG = 2048
GC_THRESHOLDS = 20_000, 20, 50
SWITCH_SECONDS = 0.0005
"""For how long a page that is made holds the interpreter while decisions wait; ten times as long by
default."""
UNSENT = 131_072
"""Bytes of an answer that the system takes of each connection before it can send them."""

Ready = Callable[[str], None]
Opening = Callable[["Config"], "Service"]


def serve(
    config: Config,
    *,
    host: str | None = None,
    port: int | None = None,
    ready: Ready | None = None,
    reread: Callable[[], Config] | None = None,
    engine: Opening | None = None,
    shared: bool = False,
) -> None:
    """Run the service until it is told to stop (SIGTERM or SIGINT).

    Stopping answers what has arrived, writes a snapshot per placement, and closes the store.

    Parameters
    ----------
    config : Config
    host, port : optional
        In place of the configuration's; port 0 takes any free one.
    ready : function, optional
        Called with the address once requests are answered; by default the address is printed.
    reread : function, optional
        Gives the configuration anew on SIGHUP: placements, keys and limits change without loss.
        What cannot change while running (address, store) stays as it is.
    engine : function, optional
        Opens what decides, in place of an engine in this process.
    shared : bool, default False
        Whether other processes of this user may answer at the address, too.

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
        # It would end the process that is not ready for it yet.
        signal.signal(signal.SIGHUP, lambda number, _: missed.append(number))
    if shared:
        # Nobody who is no part of this may be there by accident.
        _listener(host or config.server.host, config.server.port if port is None else port).close()
    server, listener = bound(
        config, host, port, ready or print_address, reread=reread, opening=engine, missed=missed, joins=shared
    )
    from tacit.service.running.logs import set_up

    set_up(config.server.log)
    settle_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    with listener, _stopped_by_signals(server):
        server.run(sockets=[listener])


def settle_memory() -> None:
    """Let the garbage collector leave alone what is there by now."""
    # A collection that walks it all would halt answers for 50 ms.
    gc.collect()
    gc.freeze()
    # Open windows are many objects, none of them in a cycle.
    gc.set_threshold(*GC_THRESHOLDS)


@contextlib.contextmanager
def running(config: Config) -> Iterator[str]:
    """Run the service in a thread of its own, and give its address.

    Raises
    ------
    MissingExtra, ConfigError, StoreError
        As :func:`serve`.
    Unavailable
        If it ended before it answered.

    Examples
    --------
    >>> import tempfile, urllib.request
    >>> from tacit.service.config.file import load_config
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     values = {"server.port": 0, "store.path": f"{folder}/tacit.db"}
    ...     with running(load_config(overrides=values)) as address:
    ...         urllib.request.urlopen(address + "/healthz").read()
    b'{"status":"ok"}'
    """
    answering = threading.Event()
    addresses: list[str] = []

    def ready(address: str) -> None:
        addresses.append(address)
        answering.set()

    def run() -> None:
        try:
            server.run(sockets=[listener])
        finally:
            answering.set()

    server, listener = bound(config, None, None, ready)
    thread = threading.Thread(target=run, name="tacit-service")
    with listener:
        thread.start()
        try:
            answering.wait()
            if not addresses:
                raise Unavailable("service: it did not start; its log says why")
            yield addresses[0]
        finally:
            server.should_exit = True
            thread.join()


def bound(
    config: Config,
    host: str | None,
    port: int | None,
    ready: Ready,
    *,
    reread: Callable[[], Config] | None = None,
    opening: Opening | None = None,
    missed: Sequence[int] = (),
    joins: bool = False,
) -> tuple[Server, socket.socket]:
    """Open everything that can fail before the first request.

    Parameters
    ----------
    config : Config
    host, port, ready, reread
        As for :func:`serve`.
    opening : function, optional
        Opens what decides.
    missed : sequence of int
        Signals to read the configuration anew that came before it could be.
    joins : bool
        Whether others may listen at the address, too.
    """
    try:
        import httptools  # noqa: F401 (uvicorn would look for it only later)
        import uvloop  # noqa: F401

        from tacit.service.http.protocol import raise_descriptors
        from tacit.service.running.answering import Server
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "a package", "service") from error

    raise_descriptors(config.server.connections)
    traced = _traces(config)
    listener = _allowed_listener(config, host, port, joins=joins)
    try:
        engine = (opening or _opened)(config)
    except BaseException:
        listener.close()
        raise
    answering = partial(ready, _address(listener))
    return Server(config, engine, answering, reread=reread, missed=missed, traced=traced), listener


def _traces(config: Config) -> Callable[[Guard, Service], Any] | None:
    """Return what lets an application be traced, if that is wanted."""
    if config.traces is None:
        return None
    try:
        from tacit.service.running.traces import Traced, provider_of

        provider = provider_of(config.traces)
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "opentelemetry", "otel") from error
    return lambda app, engine: Traced(app, engine, provider)


def _opened(config: Config) -> Service:
    """Open the store and an engine over it."""
    from tacit.service.engine.engine import Engine
    from tacit.service.stores.opening import open_store

    store = open_store(config.store)
    try:
        return Engine(config, store)
    except BaseException:
        store.close()
        raise


def _allowed_listener(config: Config, host: str | None, port: int | None, *, joins: bool) -> socket.socket:
    """Listen where nobody from another machine is answered without a key."""
    from tacit.service.config.keys import is_loopback

    host = config.server.host if host is None else host
    if not config.keys and not is_loopback(host):
        raise ConfigError(
            f"server.host: {host} answers to other machines, which needs keys; make one with: tacit key NAME"
        )
    return _listener(host, config.server.port if port is None else port, joins=joins)


def _listener(host: str, port: int, *, joins: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=joins)
    except OSError as error:
        forbidden = isinstance(error, PermissionError)
        raise (ConfigError if forbidden else AddressUnavailable)(
            f"server.port: cannot listen on {host} port {port}: {error.strerror}; "
            "stop what listens there, or give another port (0 takes any free one)"
        ) from error
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        # Of its connections, too. Otherwise megabytes wait in the system for a slow reader, and
        # nobody sees for minutes that it takes them.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
    return made


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def print_address(address: str) -> None:
    print(f"tacit serves at {address} (stop with Ctrl-C)", flush=True)


@contextlib.contextmanager
def _stopped_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Stop cleanly on SIGTERM and SIGINT.

    uvicorn hands a signal on to the handler from before when it is done; the usual ones would
    end the process with an error then.
    """

    def stop(*_: Any) -> None:
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
