"""The two clients, blocking and asynchronous, with the same calls."""

# 1. The transports, blocking and asynchronous, which share the loop of tries of each part of a call.
# 2. ``_add_calls``: gives a client each call as a method.
# 3. ``Client`` and ``AsyncClient``.

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import wraps
from typing import Any, Generic, Never, TypeVar, cast, get_args, get_type_hints

import httpx
import numpy as np

from tacit import __version__
from tacit.client.call import Asynchronous, Blocking, Call, Reply, compute_pause, read_answer
from tacit.client.control_calls import ControlCalls
from tacit.client.decision_calls import DecisionCalls
from tacit.client.feedback_calls import FeedbackCalls
from tacit.client.routes import VERSION, CallPart, Routes, is_refused, join_replies
from tacit.core import checks
from tacit.errors import InvalidValue, with_suggestions

A = TypeVar("A")
C = TypeVar("C", bound="type[DecisionCalls]")
H = TypeVar("H", httpx.Client, httpx.AsyncClient)

CONNECTIONS = 100
# Shorter than the 5 s after which the service closes idle connections, so that no request is
# sent over a connection that is just being closed.
KEEPALIVE_SECONDS = 4.0
HIDDEN = "(hidden)"

_KEY = re.compile(r"[!-~]{1,1024}")

logger = logging.getLogger("tacit.client")


class _Transport(Generic[H]):
    """Base of both transports: everything except sending and waiting."""

    request: Callable[[str, str, bytes | None], Awaitable[httpx.Response]]
    pause: Callable[[float], Awaitable[None]]
    gather: Callable[[Iterable[Awaitable[Any]]], Awaitable[list[Any]]]

    def __init__(
        self, connect: Callable[..., H], url: str, key: str | None, timeout: float, retries: int, rng: Any
    ) -> None:
        self.url = _check_url(url)
        self._retries = checks.integer("retries", retries, 0)
        self._rng = np.random.default_rng() if rng is None else rng
        self.routes = Routes(self.url, self._rng)
        self.http: H = connect(
            headers=_make_headers(key),
            timeout=checks.positive("timeout", timeout),
            limits=httpx.Limits(
                max_connections=CONNECTIONS,
                max_keepalive_connections=CONNECTIONS,
                keepalive_expiry=KEEPALIVE_SECONDS,
            ),
        )

    async def send(self, call: Call[A]) -> A:
        """Send a call, with retries after pauses, and return its answer or raise a ``ServiceError``."""
        if self.routes.is_outdated:
            self.routes.read_table(await self._try("GET", self.routes.table_url, body=None))
        parts = self.routes.split_call(call)
        replies = await self.gather([self._send_part(part) for part in parts])
        if is_refused(parts, replies):
            replies = [await self._send_part(CallPart(shard=None, places=(), call=call))]
        return read_answer(call, join_replies(call, parts, replies), self.url)

    async def _send_part(self, part: CallPart) -> list[Reply]:
        """Send a part of a call until no further try is due; return the replies to all tries.

        Each retry is logged. Raises ``InvalidValue`` if the client is closed.
        """
        if self.http.is_closed:
            raise InvalidValue("client", "closed", "make another: its connections are gone")
        replies: list[Reply] = []
        call, body, seconds = part.call, part.call.body, 0.0
        while seconds < math.inf:
            await self.pause(seconds)
            address = self.routes.choose_address(part.shard, len(replies))
            reply = await self._try(call.method, address + call.path, body)
            replies.append(reply)
            self.routes.note_reply(address, reply)
            seconds = compute_pause(reply, len(replies), self._retries, time.time(), self._rng)
            if seconds < math.inf:
                logger.info(
                    "%s: %s on try %d, again in %.2f s",
                    call.path, reply.failure or reply.status, len(replies), seconds,
                )  # fmt: skip
        return replies

    async def _try(self, method: str, url: str, body: bytes | None) -> Reply:
        """Send a request once; return the response, or the error as text if there is none."""
        try:
            response = await self.request(method, url, body)
        except httpx.RequestError as error:
            return Reply(None, failure=f"{type(error).__name__}: {error}".removesuffix(": "))
        retry_after, shards = (response.headers.get(name, "") for name in ("retry-after", VERSION))
        return Reply(response.status_code, response.content, retry_after, shards=shards)


class _AsynchronousTransport(_Transport[httpx.AsyncClient]):
    """Sends calls in an event loop; the parts of one at the same time."""

    async def request(self, method: str, url: str, body: bytes | None) -> httpx.Response:
        return await self.http.request(method, url, content=body)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def gather(self, sends: Iterable[Awaitable[A]]) -> list[A]:
        return await asyncio.gather(*sends)


class _BlockingTransport(_Transport[httpx.Client]):
    """Sends calls one after another, in coroutines that never suspend."""

    async def request(self, method: str, url: str, body: bytes | None) -> httpx.Response:
        return self.http.request(method, url, content=body)

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    async def gather(self, sends: Iterable[Awaitable[A]]) -> list[A]:
        return [await send for send in sends]


def _add_calls(method_of: Callable[[Callable[..., Call[Any]]], Any]) -> Callable[[C], C]:
    """Return a class decorator that adds a method to a client for each call.

    ``method_of`` makes the method from the function that returns the call. The method has the function's
    name, documentation and parameters, and the type of the answer.
    """

    def decorate(client: C) -> C:
        """Add a method for each public call to the client's class and return the class."""
        for name, make in (vars(DecisionCalls) | vars(FeedbackCalls) | vars(ControlCalls)).items():
            if name.startswith("_"):
                continue
            make.__qualname__ = f"{client.__name__}.{name}"
            method: Any = wraps(make)(method_of(with_suggestions(make)))
            (answer_type,) = get_args(get_type_hints(make)["return"])
            method.__annotations__ = {**make.__annotations__, "return": answer_type}
            method.__signature__ = inspect.signature(make).replace(return_annotation=answer_type)
            setattr(client, name, method)
        return client

    return decorate


def _make_method(make: Callable[..., Call[A]]) -> Callable[..., A]:
    """Return a method that makes a call, sends it, and returns its answer."""

    def method(self: Client, *args: Any, **options: Any) -> A:
        # The blocking transport never suspends: the coroutine ends at its first step.
        try:
            self._transport.send(make(self, *args, **options)).send(None)
        except StopIteration as end:
            return cast(A, end.value)
        raise AssertionError("it suspended")

    return method


def _make_async_method(make: Callable[..., Call[A]]) -> Callable[..., Coroutine[Any, Any, A]]:
    """Return a coroutine method that makes a call, sends it, and returns its answer."""

    async def method(self: AsyncClient, *args: Any, **options: Any) -> A:
        return await self._transport.send(make(self, *args, **options))

    return method


def _refuse_plain_with(client: object, *raised: object) -> Never:
    """Raise a ``TypeError`` that says to use ``async with``."""
    raise TypeError("an AsyncClient is opened by async with, in place of with")


@_add_calls(_make_method)
class Client(DecisionCalls, FeedbackCalls, ControlCalls, Blocking, AbstractContextManager["Client"]):
    """A client of the decision service.

    All decisions and feedback are sent with ids, which the client makes unless they are given. So a
    request without an answer (a timeout, a lost connection), or with a status of 408, 429 or 5xx, is
    retried unchanged, and never decides or counts twice. Several threads may share a client.

    Parameters
    ----------
    url : str
        Address of the service: ``http://127.0.0.1:8787``.
    key : str, optional
        API key. It is not part of the client's ``repr`` or logs.
    timeout : float, default 5
        Seconds that each try waits for a connection, and for any progress on it.
    retries : int, default 3
        Number of tries that may follow the first. The pause before each is random, of at most 0.1 s,
        0.2 s, 0.4 s … up to 10 s, and the time that ``Retry-After`` asks for is added; if that is more
        than 60 s, there is no further try.
    rng : numpy.random.Generator, optional
        Generator of the pauses; by default seeded by the system.

    Raises
    ------
    InvalidValue
        If an argument is not allowed; then nothing is sent.

    Examples
    --------
    >>> import tempfile
    >>> from tacit.client import Client, Feedback, Impression
    >>> from tacit.service.config.file import load_config
    >>> from tacit.service.app.server import run_in_thread
    >>> values = {
    ...     "server.port": 0,
    ...     "placements.banner.arms": ["holiday", "film"],
    ...     "placements.shelf": {"kind": "slates", "arms": ["a", "b"], "positions": 2},
    ...     "placements.rankers": {"kind": "duels", "rankers": ["old", "new"]},
    ... }
    >>> folder = tempfile.TemporaryDirectory()
    >>> service = run_in_thread(load_config(overrides={**values, "store.path": f"{folder.name}/t.db"}))
    >>> with folder, service as url, Client(url) as client:
    ...     shown = client.decide("banner", "independence day")
    ...     print(client.feedback("banner", shown.decision_id, 1).outcome)
    ...     page = client.decide_many("banner", [Impression("tomato"), Impression("film")])
    ...     many = client.feedback_many("banner", [Feedback(one.decision_id, 0) for one in page])
    ...     print([recorded.outcome for recorded in many])
    ...     listed = client.slate("shelf", "tomato")
    ...     print(sorted(listed.slate), client.clicks("shelf", listed.decision_id, [0]).outcome)
    ...     dueled = client.duel("rankers", {"old": ["a", "b"], "new": ["b", "c"]})
    ...     print(client.clicks("rankers", dueled.decision_id, items=["b"]).outcome)
    ...     print(client.standings("rankers").report["safe_to_stop"])
    ...     print(client.mode("banner", "frozen"))
    learned
    ['learned', 'learned']
    ['a', 'b'] pending
    pending
    False
    frozen
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 5.0,
        retries: int = 3,
        rng: np.random.Generator | None = None,
    ) -> None:
        self._transport = _BlockingTransport(httpx.Client, url, key, timeout, retries, rng)

    def __repr__(self) -> str:
        return f"Client({self._transport.url!r})"

    def close(self) -> None:
        """Close all connections."""
        self._transport.http.close()

    def __exit__(self, *raised: object) -> None:
        """Close all connections."""
        self.close()


@_add_calls(_make_async_method)
class AsyncClient(
    DecisionCalls, FeedbackCalls, ControlCalls, Asynchronous, AbstractAsyncContextManager["AsyncClient"]
):
    """:class:`Client` for asyncio: the same methods as coroutines.

    Parameters
    ----------
    url, key, timeout, retries, rng : optional
        As for :class:`Client`.

    Raises
    ------
    InvalidValue
        If an argument is not allowed; nothing is sent then.

    Examples
    --------
    >>> import asyncio, tempfile
    >>> from tacit.client import AsyncClient
    >>> from tacit.service.config.file import load_config
    >>> from tacit.service.app.server import run_in_thread
    >>> async def asked(url):
    ...     async with AsyncClient(url) as client:
    ...         decided = await client.decide("default", "independence day")
    ...         return await client.feedback("default", decided.decision_id, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     values = {"server.port": 0, "store.path": f"{folder}/tacit.db"}
    ...     with run_in_thread(load_config(overrides=values)) as url:
    ...         asyncio.run(asked(url)).outcome
    'learned'
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 5.0,
        retries: int = 3,
        rng: np.random.Generator | None = None,
    ) -> None:
        self._transport = _AsynchronousTransport(httpx.AsyncClient, url, key, timeout, retries, rng)

    def __repr__(self) -> str:
        return f"AsyncClient({self._transport.url!r})"

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.http.aclose()

    async def __aexit__(self, *raised: object) -> None:
        """Close all connections."""
        await self.close()

    __enter__ = __exit__ = _refuse_plain_with


def _make_headers(key: str | None) -> dict[str, str]:
    """Return the headers of all requests, with the key as a bearer token if there is one.

    Raises ``InvalidValue`` without the key in its text if the key is malformed.
    """
    headers = {"content-type": "application/json", "user-agent": f"tacit/{__version__}"}
    if key is None:
        return headers
    if not (isinstance(key, str) and _KEY.fullmatch(key)):
        # The message must not contain the key.
        wrong = {
            "it is of several lines": "\n" in str(key).strip(),
            "it ends with a line break, which .strip() takes away": str(key).endswith("\n"),
            "it begins with Bearer, which the client adds": str(key).startswith("Bearer "),
        }
        why = "".join(f"{what}; " for what in [what for what, so in wrong.items() if so][:1])
        raise InvalidValue("key", HIDDEN, f"{why}give the key as `tacit key` printed it, and no more")
    return {**headers, "authorization": f"Bearer {key}"}


def _check_url(url: str) -> str:
    """Return the address of a service, checked and without a trailing slash.

    Raises
    ------
    InvalidValue
        If it cannot be the address of a service.
    """
    try:
        parts = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        parts = httpx.URL("")
    is_address = parts.scheme in ("http", "https") and parts.host
    has_more = parts.userinfo or parts.query or parts.fragment or parts.path.rstrip("/").endswith("/v1")
    if has_more or not is_address:
        # The part before an @ may contain a password.
        text = HIDDEN if "@" in str(url) else url
        remedy = "give http://HOST:PORT or https://HOST, without /v1; the key goes apart"
        raise InvalidValue("url", text, remedy)
    return str(parts).rstrip("/")
