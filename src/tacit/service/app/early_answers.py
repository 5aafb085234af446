"""Health checks while the service starts: a thread answers them until the server takes over the listener."""

from __future__ import annotations

import selectors
import socket
import threading
from http import HTTPStatus

import msgspec

from tacit.service.http.endpoint import JSON
from tacit.service.http.messages import answer_problem as answer_with_problem
from tacit.service.http.messages import encode_headers, make_problem
from tacit.service.http.route import Answer
from tacit.wire.site import Status

HEAD_BYTES = 64
"""Bytes of a request that say which path it asks for."""
MOST_HELD = 1024
"""Connections that wait for the server; further ones are told that it is starting."""
RETRY = (b"retry-after", b"1")


def _encode(answer: Answer) -> bytes:
    """Return an HTTP answer as bytes, with the header that closes the connection."""
    status = HTTPStatus(answer.status)
    line = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    return line + encode_headers(answer) + b"connection: close\r\n\r\n" + answer.body


ALIVE = _encode(Answer(200, JSON, msgspec.json.encode(Status("ok"))))
STARTING = _encode(
    answer_with_problem(
        make_problem("unavailable", "service", "service: it is starting; ask again later"), RETRY
    )
)
ANSWERS = {b"GET /healthz": ALIVE, b"GET /readyz": STARTING}
"""Answers to requests by their beginning, which ends before a space or a question mark."""


class EarlyAnswers:
    """Answers health checks at a listener in a thread, until :meth:`stop`.

    Loops compile and logs are folded for minutes at a first start, in which an orchestrator must not take
    the process for dead. Other requests wait: their connections are handed to the server unread.

    Parameters
    ----------
    listener : socket
        Listens already.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        # A byte sent to the first socket wakes the thread, which ends.
        self._waker, self._woken = socket.socketpair()
        self._held: list[socket.socket] = []
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="tacit-early-answers", daemon=True)
        self._thread.start()

    def stop(self) -> list[socket.socket]:
        """End the thread.

        Return the connections whose requests wait for the server, which the caller must close.
        """
        if self._thread.is_alive():
            self._waker.send(b"\0")
            self._thread.join()
        connections, self._held = self._held, []
        return connections

    def close(self) -> None:
        """End the thread, and close the connections whose requests wait for the server."""
        for connection in self.stop():
            connection.close()

    def _run(self) -> None:
        """Accept connections and answer their health checks, until the thread is woken."""
        while True:
            ready = [key.fileobj for key, _ in self._selector.select()]
            if self._woken in ready:
                break
            for each in ready:
                if each is self._listener:
                    self._accept()
                else:
                    assert isinstance(each, socket.socket)
                    self._selector.unregister(each)
                    self._answer(each)
        # Connections that have sent nothing yet wait, too.
        sockets = [key.fileobj for key in self._selector.get_map().values()]
        for each in sockets:
            assert isinstance(each, socket.socket)
            if each is not self._listener and each is not self._woken:
                self._held.append(each)
        self._selector.close()
        self._waker.close()
        self._woken.close()

    def _accept(self) -> None:
        """Accept a connection, unless its client has left, and watch it for a request."""
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ)

    def _answer(self, connection: socket.socket) -> None:
        """Answer the request on a connection if it is a health check; otherwise keep it for the server.

        Beyond ``MOST_HELD`` connections, the answer is that the service is starting.
        """
        try:
            # Bytes that are only looked at are there for the server.
            head = connection.recv(HEAD_BYTES, socket.MSG_PEEK)
            answer = ANSWERS.get(head.partition(b" HTTP/")[0].partition(b"?")[0])
            if answer is None and len(self._held) < MOST_HELD:
                self._held.append(connection)
                return
            # Unread bytes would reset the connection before the answer is read.
            connection.recv(65_536)
            connection.sendall(answer or STARTING)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        connection.close()
