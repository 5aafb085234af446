"""The two clients: the same calls, over a connection that blocks and over one that does not."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import numpy as np

from tacit import __version__, checks
from tacit.client import lists, messages
from tacit.client.lists import Clicks, Dueled, Listed, Search, Standings
from tacit.client.messages import (
    Arm,
    Call,
    Decided,
    Feedback,
    Impression,
    Mode,
    Recorded,
)
from tacit.client.retries import Reply, pause
from tacit.errors import InvalidValue

A = TypeVar("A")

CONNECTIONS = 100
# Shorter than the 5 s after which the service closes idle connections, so that no request is
# sent into one that is just being closed.
KEPT_SECONDS = 4.0
HIDDEN = "(hidden)"

_KEY = re.compile(r"[!-~]{1,1024}")

logger = logging.getLogger("tacit.client")


class _Settings:
    """What both clients share: all but the transport."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 5.0,
        retries: int = 3,
        rng: np.random.Generator | None = None,
    ) -> None:
        self._url = _checked_url(url)
        self._retries = checks.integer("retries", retries, 0)
        self._rng = np.random.default_rng() if rng is None else rng
        self._transport: dict[str, Any] = {
            "base_url": self._url,
            "headers": _headers(key),
            "timeout": checks.positive("timeout", timeout),
            "limits": httpx.Limits(
                max_connections=CONNECTIONS,
                max_keepalive_connections=CONNECTIONS,
                keepalive_expiry=KEPT_SECONDS,
            ),
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r})"

    def _pause(self, call: Call[Any], reply: Reply, tries: int) -> float:
        """Return the seconds until the next try; infinity if there is none."""
        seconds = pause(reply, tries, self._retries, time.time(), self._rng)
        if seconds < math.inf:
            logger.info(
                "%s: %s on try %d, again in %.2f s",
                call.path, reply.failure or reply.status, tries, seconds,
            )  # fmt: skip
        return seconds


class Client(_Settings):
    """A client of the decision service.

    Every decision and all feedback is sent with an id, made here unless one is given. So a request
    that got no answer (a timeout, a lost connection), or one of 408, 429 and 5xx, is sent again as
    it was, and decides and counts nothing twice. It may be used by several threads.

    Parameters
    ----------
    url : str
        Address of the service: ``http://127.0.0.1:8787``.
    key : str, optional
        API key. No representation and no log shows it.
    timeout : float, default 5
        Seconds that each try waits for a connection, and for any progress on it.
    retries : int, default 3
        How many tries may follow the first. The pause before each is random, of at most 0.1 s,
        0.2 s, 0.4 s … up to 10 s, on top of what ``Retry-After`` asks for; if that is more than
        60 s, there is no further try.
    rng : numpy.random.Generator, optional
        Where the pauses are drawn from; by default one seeded by the system.

    Raises
    ------
    InvalidValue
        If an argument is not allowed; nothing is sent then.

    Examples
    --------
    >>> import tempfile
    >>> from tacit.client import Client
    >>> from tacit.service.config_file import load_config
    >>> from tacit.service.server import running
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     values = {"server.port": 0, "store.path": f"{folder}/tacit.db"}
    ...     with running(load_config(overrides=values)) as url, Client(url) as client:
    ...         decided = client.decide("default", "independence day")
    ...         client.feedback("default", decided.decision_id, 1).outcome
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
        super().__init__(url, key, timeout=timeout, retries=retries, rng=rng)
        self._http = httpx.Client(**self._transport)

    def decide(
        self,
        placement: str,
        key: str,
        *,
        arms: Sequence[Arm] | None = None,
        context: Sequence[float] | None = None,
        decision_id: str | None = None,
        deferred: bool = False,
        relevance: Sequence[Sequence[float]] | None = None,
        examination: Sequence[Sequence[float]] | None = None,
        session: str | None = None,
    ) -> Decided:
        """Ask what to show.

        Parameters
        ----------
        placement : str
        key : str
            What the decision is for; at most 512 bytes in UTF-8.
        arms : sequence of int or str, optional
            The arms on offer; all if left out.
        context : sequence of float, optional
            Signals about the key, for policies that use them.
        decision_id : str, optional
            Names the decision: the same question with the same id gets the same answer. By
            default a new UUID of version 7.
        deferred : bool, default False
            True: it counts only once it is activated.
        relevance, examination : sequence of sequence of float, optional
            A row of features for each arm on offer, for policies that know arms by these.
        session : str, optional
            Whose search this is, for placements with the signal ``reformulation``.

        Returns
        -------
        Decided

        Raises
        ------
        InvalidValue
            If an argument is not allowed; nothing is sent then.
        ServiceError
            What the service says no to: :class:`InvalidRequest`, :class:`NotFound`,
            :class:`Conflict`, :class:`Denied`; :class:`Unavailable` after the last try.
        """
        impression = Impression(
            key, arms, context, decision_id, deferred, relevance, examination, session
        )
        return self._ask(messages.decide(placement, impression))

    def decide_many(self, placement: str, impressions: Iterable[Impression]) -> list[Decided]:
        """Ask what to show for 1 to 1000 impressions: all are decided in one commit, or none.

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`; the field names the place: ``decisions[1].arms``.
        """
        return self._ask(messages.decide_many(placement, impressions))

    def feedback(
        self, placement: str, decision_id: str, reward: float, *, feedback_id: str | None = None
    ) -> Recorded:
        """Tell what came back for a decision.

        Parameters
        ----------
        placement : str
        decision_id : str
        reward : float
            A click (1), none (0), or a reward between.
        feedback_id : str, optional
            Names this feedback: sent again with the same id, it counts once. By default a new
            UUID of version 7.

        Returns
        -------
        Recorded

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return self._ask(messages.feedback(placement, Feedback(decision_id, reward, feedback_id)))

    def feedback_many(self, placement: str, feedback: Iterable[Feedback]) -> list[Recorded]:
        """Tell what came back for 1 to 1000 decisions, in one commit.

        What cannot be recorded refuses nothing else: its outcome is the kind of its problem
        (``unknown-decision``, ``conflict``, ``repeated-feedback``).

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`; the field names the place: ``feedback[1].reward``.
        """
        return self._ask(messages.feedback_many(placement, feedback))

    def slate(
        self,
        placement: str,
        key: str,
        *,
        arms: Sequence[Arm] | None = None,
        context: Sequence[float] | None = None,
        decision_id: str | None = None,
        deferred: bool = False,
    ) -> Listed:
        """Ask which arms to list; arguments are those of :meth:`decide`.

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        impression = Impression(key, arms, context, decision_id, deferred)
        return self._ask(lists.slate(placement, impression))

    def slate_many(self, placement: str, impressions: Iterable[Impression]) -> list[Listed]:
        """Ask for 1 to 1000 lists: all are decided in one commit, or none.

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide_many`.
        """
        return self._ask(lists.slate_many(placement, impressions))

    def duel(
        self,
        placement: str,
        rankings: Mapping[str, Sequence[Arm]] | None = None,
        *,
        key: str = "all",
        context: Sequence[float] | None = None,
        decision_id: str | None = None,
        deferred: bool = False,
    ) -> Dueled:
        """Ask which two rankers duel, and for one list of both.

        Parameters
        ----------
        placement : str
        rankings : mapping from str to sequence of int or str, optional
            From every ranker's name to its items, best first; without it the answer is a pair
            alone, whose outcome is the reward of :meth:`feedback`.
        key : str, default "all"
            What finds a best ranker of its own, such as a market.
        context, decision_id, deferred : optional
            As for :meth:`decide`.

        Returns
        -------
        Dueled

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return self._ask(
            lists.duel(placement, Search(rankings, key, context, decision_id, deferred))
        )

    def duel_many(self, placement: str, searches: Iterable[Search]) -> list[Dueled]:
        """Ask for 1 to 1000 searches which rankers duel: all are decided in one commit, or none.

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide_many`.
        """
        return self._ask(lists.duel_many(placement, searches))

    def clicks(
        self,
        placement: str,
        decision_id: str,
        clicks: Sequence[int] | None = None,
        *,
        items: Sequence[Arm] | None = None,
        feedback_id: str | None = None,
    ) -> Recorded:
        """Tell what was clicked in a list.

        Parameters
        ----------
        placement : str
        decision_id : str
        clicks : sequence of int, optional
            The clicked positions from 0; empty for none.
        items : sequence of int or str, optional
            The clicked items, in place of positions.
        feedback_id : str, optional
            As for :meth:`feedback`.

        Returns
        -------
        Recorded

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return self._ask(lists.clicks(placement, Clicks(decision_id, clicks, items, feedback_id)))

    def clicks_many(self, placement: str, told: Iterable[Clicks]) -> list[Recorded]:
        """Tell what was clicked in 1 to 1000 lists, in one commit; as :meth:`feedback_many`.

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`feedback_many`.
        """
        return self._ask(lists.clicks_many(placement, told))

    def standings(
        self, placement: str, key: str | None = None, *, confidence: float = 0.95
    ) -> Standings:
        """Ask who wins the duels of a key (by default that with the most duels).

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return self._ask(lists.standings(placement, key, confidence))

    def activate(
        self, placement: str, decision_id: str, *, feedback_id: str | None = None
    ) -> Recorded:
        """Tell that a deferred decision counts from now on.

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return self._ask(messages.event(placement, "activate", decision_id, feedback_id))

    def examined(
        self, placement: str, decision_id: str, *, feedback_id: str | None = None
    ) -> Recorded:
        """Tell that what was shown was looked at.

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return self._ask(messages.event(placement, "examined", decision_id, feedback_id))

    def mode(self, placement: str, mode: Mode) -> str:
        """Switch the mode of a placement, and return it.

        A switch has no id: one that is sent again also overrides what others set meanwhile.

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return self._ask(messages.switch(placement, mode))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, call: Call[A]) -> A:
        tries = 1
        reply = self._send(call)
        while (seconds := self._pause(call, reply, tries)) < math.inf:
            time.sleep(seconds)
            reply = self._send(call)
            tries += 1
        return messages.answer(call, reply, self._url, tries)

    def _send(self, call: Call[Any]) -> Reply:
        try:
            return _reply(self._http.request(call.method, call.path, content=call.body))
        except httpx.RequestError as error:
            return _lost(error)


class AsyncClient(_Settings):
    """:class:`Client` for asyncio: the same methods, to be awaited.

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
    >>> from tacit.service.config_file import load_config
    >>> from tacit.service.server import running
    >>> async def asked(url):
    ...     async with AsyncClient(url) as client:
    ...         decided = await client.decide("default", "independence day")
    ...         return await client.feedback("default", decided.decision_id, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     values = {"server.port": 0, "store.path": f"{folder}/tacit.db"}
    ...     with running(load_config(overrides=values)) as url:
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
        super().__init__(url, key, timeout=timeout, retries=retries, rng=rng)
        self._http = httpx.AsyncClient(**self._transport)

    async def decide(
        self,
        placement: str,
        key: str,
        *,
        arms: Sequence[Arm] | None = None,
        context: Sequence[float] | None = None,
        decision_id: str | None = None,
        deferred: bool = False,
        relevance: Sequence[Sequence[float]] | None = None,
        examination: Sequence[Sequence[float]] | None = None,
        session: str | None = None,
    ) -> Decided:
        """As :meth:`Client.decide`."""
        impression = Impression(
            key, arms, context, decision_id, deferred, relevance, examination, session
        )
        return await self._ask(messages.decide(placement, impression))

    async def decide_many(self, placement: str, impressions: Iterable[Impression]) -> list[Decided]:
        """As :meth:`Client.decide_many`."""
        return await self._ask(messages.decide_many(placement, impressions))

    async def feedback(
        self, placement: str, decision_id: str, reward: float, *, feedback_id: str | None = None
    ) -> Recorded:
        """As :meth:`Client.feedback`."""
        told = Feedback(decision_id, reward, feedback_id)
        return await self._ask(messages.feedback(placement, told))

    async def feedback_many(self, placement: str, feedback: Iterable[Feedback]) -> list[Recorded]:
        """As :meth:`Client.feedback_many`."""
        return await self._ask(messages.feedback_many(placement, feedback))

    async def slate(
        self,
        placement: str,
        key: str,
        *,
        arms: Sequence[Arm] | None = None,
        context: Sequence[float] | None = None,
        decision_id: str | None = None,
        deferred: bool = False,
    ) -> Listed:
        """As :meth:`Client.slate`."""
        impression = Impression(key, arms, context, decision_id, deferred)
        return await self._ask(lists.slate(placement, impression))

    async def slate_many(self, placement: str, impressions: Iterable[Impression]) -> list[Listed]:
        """As :meth:`Client.slate_many`."""
        return await self._ask(lists.slate_many(placement, impressions))

    async def duel(
        self,
        placement: str,
        rankings: Mapping[str, Sequence[Arm]] | None = None,
        *,
        key: str = "all",
        context: Sequence[float] | None = None,
        decision_id: str | None = None,
        deferred: bool = False,
    ) -> Dueled:
        """As :meth:`Client.duel`."""
        return await self._ask(
            lists.duel(placement, Search(rankings, key, context, decision_id, deferred))
        )

    async def duel_many(self, placement: str, searches: Iterable[Search]) -> list[Dueled]:
        """As :meth:`Client.duel_many`."""
        return await self._ask(lists.duel_many(placement, searches))

    async def clicks(
        self,
        placement: str,
        decision_id: str,
        clicks: Sequence[int] | None = None,
        *,
        items: Sequence[Arm] | None = None,
        feedback_id: str | None = None,
    ) -> Recorded:
        """As :meth:`Client.clicks`."""
        return await self._ask(
            lists.clicks(placement, Clicks(decision_id, clicks, items, feedback_id))
        )

    async def clicks_many(self, placement: str, told: Iterable[Clicks]) -> list[Recorded]:
        """As :meth:`Client.clicks_many`."""
        return await self._ask(lists.clicks_many(placement, told))

    async def standings(
        self, placement: str, key: str | None = None, *, confidence: float = 0.95
    ) -> Standings:
        """As :meth:`Client.standings`."""
        return await self._ask(lists.standings(placement, key, confidence))

    async def activate(
        self, placement: str, decision_id: str, *, feedback_id: str | None = None
    ) -> Recorded:
        """As :meth:`Client.activate`."""
        return await self._ask(messages.event(placement, "activate", decision_id, feedback_id))

    async def examined(
        self, placement: str, decision_id: str, *, feedback_id: str | None = None
    ) -> Recorded:
        """As :meth:`Client.examined`."""
        return await self._ask(messages.event(placement, "examined", decision_id, feedback_id))

    async def mode(self, placement: str, mode: Mode) -> str:
        """As :meth:`Client.mode`."""
        return await self._ask(messages.switch(placement, mode))

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _ask(self, call: Call[A]) -> A:
        tries = 1
        reply = await self._send(call)
        while (seconds := self._pause(call, reply, tries)) < math.inf:
            await asyncio.sleep(seconds)
            reply = await self._send(call)
            tries += 1
        return messages.answer(call, reply, self._url, tries)

    async def _send(self, call: Call[Any]) -> Reply:
        try:
            return _reply(await self._http.request(call.method, call.path, content=call.body))
        except httpx.RequestError as error:
            return _lost(error)


def _reply(response: httpx.Response) -> Reply:
    return Reply(response.status_code, response.content, response.headers.get("retry-after", ""))


def _lost(error: httpx.RequestError) -> Reply:
    return Reply(None, failure=f"{type(error).__name__}: {error}".removesuffix(": "))


def _headers(key: str | None) -> dict[str, str]:
    headers = {"content-type": "application/json", "user-agent": f"tacit/{__version__}"}
    if key is None:
        return headers
    if not (isinstance(key, str) and _KEY.fullmatch(key)):
        raise InvalidValue("key", HIDDEN, "give the key as `tacit key` printed it")
    return {**headers, "authorization": f"Bearer {key}"}


def _checked_url(url: str) -> str:
    """Return the address without a slash at its end, if it can be that of a service."""
    try:
        parts = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        parts = httpx.URL("")
    if (
        parts.scheme not in ("http", "https")
        or not parts.host
        or parts.userinfo
        or parts.query
        or parts.fragment
    ):
        # What stands before an @ may be a password.
        shown = HIDDEN if "@" in str(url) else url
        raise InvalidValue(
            "url", shown, "give http://HOST:PORT or https://HOST; the key goes apart"
        )
    return str(parts).rstrip("/")
