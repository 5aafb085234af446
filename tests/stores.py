"""Stores for tests: each path stands for a store of its own, of whatever kind is tested."""

import contextlib
import functools
import hashlib
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

from tacit.service.errors import StoreError

KINDS = ("sqlite", "postgres")
"""Each test that asks for a ``kind`` of store runs once on each."""
chosen = "sqlite"


ports = itertools.count(20_000 + os.getpid() % 240 * 50)


def free_port():
    """Return a port that is given to nobody who asks for any one, so that it stays free until it is used."""
    for port in ports:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def store_at(path):
    """Open the store that a path stands for."""
    if chosen == "sqlite":
        from tacit.service.log.sqlite import SqliteStore

        return SqliteStore(path)
    from tacit.service.log.postgres import PostgresStore

    return PostgresStore(cluster().url, schema_of(path))


def schema_of(path):
    return "t" + hashlib.sha256(str(path).encode()).hexdigest()[:20]


def sql(path, kind, *statements):
    """Change a store behind its back; return the rows that the last statement finds."""
    import apsw
    import psycopg

    if kind == "sqlite":
        connection = apsw.Connection(str(path))
        connection.set_busy_timeout(600_000)
        for statement in statements:
            found = connection.execute(statement).fetchall()
        connection.close()
        return found
    options = f"-c search_path={schema_of(path)}"
    with psycopg.connect(cluster().url, options=options) as connection:
        for statement in statements:
            made = connection.execute(statement)
        return made.fetchall() if made.description else []


class WrappedStore:
    """A store that passes on to another one what its class does not change."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store if hasattr(self._store, name) else self._store.snapshots, name)

    snapshots = property(lambda self: self)


class SlowStore(WrappedStore):
    """A store that takes any number of steps more for a snapshot, or a base, until it is let go on."""

    def __init__(self, store, *which):
        super().__init__(store)
        self.goes_on, self.fails, self.begun, self._which = threading.Event(), False, 0, which

    def save_in_steps(self, *told):
        steps = self._store.snapshots.save_in_steps(*told)
        if self._which and told[1:] != self._which:
            return (yield from steps)
        self.begun += 1
        yield next(steps)
        while not self.goes_on.is_set():
            yield
        if self.fails:
            raise StoreError("store: the disk is full")
        yield from steps


class Cluster:
    """A PostgreSQL of its own, on the loopback, in a temporary folder."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="tacit-postgres-"))
        # The server refuses to run as root.
        self.prefix = []
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self.prefix = ["runuser", "-u", "postgres", "--"]
        self.data = self.folder / "data"
        self.port = free_port()
        self.url = f"postgresql://tacit@127.0.0.1:{self.port}/postgres"
        self._run("initdb", "-D", self.data, "-U", "tacit", "-A", "trust", "-E", "UTF8", "-N")
        self.start()

    def _run(self, program, *arguments):
        command = [*self.prefix, str(binary(program)), *map(str, arguments)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder)

    def start(self):
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} "
            "-c max_connections=60 -c shared_buffers=32MB"
        )
        log = self.folder / "log"
        self._run("pg_ctl", "-D", self.data, "-l", log, "-w", "-t", "600", "-s", "-o", options, "start")

    def stop(self, how="immediate"):
        self._run("pg_ctl", "-D", self.data, "-w", "-s", "-m", how, "stop")

    def remove(self):
        with contextlib.suppress(subprocess.CalledProcessError):
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def binary(program):
    """Find a program of PostgreSQL, which Debian keeps off the path."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
    if found:
        return found[-1]
    path = shutil.which(program)
    assert path, f"{program} is missing; install it with: apt-get install postgresql"
    return Path(path)


@functools.cache
def cluster():
    import atexit

    from tacit.service.log import postgres

    # A busy server takes its time to see that a writer is gone.
    postgres.START_SECONDS = 60.0
    made = Cluster()
    atexit.register(made.remove)
    return made
