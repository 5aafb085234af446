"""Processes that begin with what takes longest to load, forked off one that has loaded it.

Each is a process of its own, with signals, files and an end of its own, as if Python had been started anew.
What is about a start itself (caches, packages that are missing, what is loaded) starts Python anew.
"""

import atexit
import contextlib
import functools
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

LOADED = "tacit.cli", "tacit.client.local", "tacit.core.compiled", "tacit.service.app.server"
"""None of them starts a thread, which would be missing in what is forked off."""
# A process with the threads of a library could not be forked.
SERVE = """
import os, sys; os.environ["OPENBLAS_NUM_THREADS"] = "1"
sys.path.append(sys.argv[1])
import forked
sys.path.pop()
forked.serve(int(sys.argv[2]))
"""
PATIENCE = 600.0
"""Seconds after which a command is taken to hang."""
LENGTH = 1_000_000
"""Bytes that a request may have."""


class Forked:
    """A process of Python, with what tests use of ``subprocess.Popen``.

    Parameters
    ----------
    command : list of str
        What follows the name of the interpreter: ``-c CODE`` or ``-m MODULE``, and arguments.
    stdin, stdout, stderr : int, file or None
    text : bool
    env : mapping of str to str, optional
    cwd : path, optional
    """

    def __init__(self, command, *, stdin=None, stdout=None, stderr=None, text=False, env=None, cwd=None):
        self.stdin = self.stdout = self.stderr = self.returncode = None
        theirs = []
        for number, (name, given) in enumerate((("stdin", stdin), ("stdout", stdout), ("stderr", stderr))):
            if given == subprocess.PIPE:
                ends = os.pipe()
                ours, its = ends if number else reversed(ends)
                setattr(self, name, os.fdopen(ours, ("r" if number else "w") + ("" if text else "b")))
            elif given == subprocess.STDOUT:
                its = os.dup(theirs[1])
            elif given == subprocess.DEVNULL:
                its = os.open(os.devnull, os.O_RDWR)
            else:
                its = os.dup(number if given is None else given if isinstance(given, int) else given.fileno())
            theirs.append(its)
        self._end, said = socket.socketpair(type=socket.SOCK_SEQPACKET)
        asked = [list(map(str, command)), dict(os.environ if env is None else env), str(cwd or os.getcwd())]
        with said:
            socket.send_fds(origin(), [json.dumps(asked).encode()], [*theirs, said.fileno()])
        for one in theirs:
            os.close(one)
        self.pid = int(self._end.recv(20))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        # What a test that failed would have ended runs for ever otherwise.
        if kind:
            self.kill()
        self.wait(PATIENCE)
        for pipe in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(AttributeError, BrokenPipeError):
                pipe.close()

    def poll(self):
        """Return how it ended, or None while it runs."""
        return self._ended(0.0)

    def wait(self, timeout=None):
        """Return how it ended: its exit code, or less than 0 for a signal."""
        if self._ended(timeout) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return self.returncode

    def _ended(self, timeout):
        if self.returncode is None:
            self._end.settimeout(timeout)
            with contextlib.suppress(BlockingIOError, TimeoutError):
                self.returncode = int(self._end.recv(20))
                self._end.close()
        return self.returncode

    def communicate(self, timeout=None):
        """Wait for its end; return what came on its pipes."""
        if self.stdin:
            self.stdin.close()
        with ThreadPoolExecutor(2) as readers:
            read = [pipe and readers.submit(pipe.read) for pipe in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        for pipe in (self.stdout, self.stderr):
            if pipe:
                pipe.close()
        return tuple(one and one.result() for one in read)

    def send_signal(self, number):
        """Send it a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self):
        """End it."""
        self.send_signal(signal.SIGKILL)


def ran(command, **options):
    """Return what came of a command: how it ended, and what it said."""
    process = Forked(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    output, errors = process.communicate(PATIENCE)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


@functools.cache
def origin():
    """Start what processes are forked off; return the connection to it. It ends when that is closed."""
    ours, its = socket.socketpair(type=socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LENGTH)
    command = [sys.executable, "-c", SERVE, os.path.dirname(__file__), str(its.fileno())]
    with its:
        subprocess.Popen(command, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)
    atexit.register(ours.close)
    return ours


# In the process that processes are forked off ------------------------------------------------


def serve(number):
    """Fork a process for each request, and say how each ended, until nobody asks any more."""
    for name in LOADED:
        import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be missing in what is forked off"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    requests, running = socket.socket(fileno=number), {}
    with selectors.DefaultSelector() as ready:
        ready.register(requests, selectors.EVENT_READ)
        ready.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is woken:
                    woken.recv(1000)
                    reap(running)
                    continue
                message, files, _, _ = socket.recv_fds(requests, LENGTH, 4)
                if not message:
                    # Nothing outlives the tests, whatever they were waiting for.
                    for pid in running:
                        os.kill(pid, signal.SIGKILL)
                    return
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    ready.close()
                    for one in (requests, woken, wakes, *running.values()):
                        one.close()
                    become(*json.loads(message), files)
                    return
                end = socket.socket(fileno=files.pop())
                end.send(str(pid).encode())
                running[pid] = end
                for one in files:
                    os.close(one)


def reap(running):
    """Say of each process that has ended how it ended."""
    for pid in list(running):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            with running.pop(pid) as end, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                end.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(command, environment, folder, files):
    """Run a command as an interpreter does that was started for it."""
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    sys.stdin, sys.stdout = os.fdopen(0, "r", closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGCHLD, signal.SIG_DFL)):
        signal.signal(number, handler)
    assert environment.get("PYTHONPATH") == os.environ.get("PYTHONPATH"), "start Python anew for another path"
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    kind, what, *arguments = command
    sys.argv = [kind, *arguments]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
