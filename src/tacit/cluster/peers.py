"""Calls from one shard to another: their encoding, and connections over HTTP that are kept.

While a group of requests is on its way to a shard, new ones are queued for the next group, so groups grow
with the load, without a timer. If the shard does not answer, its requests are refused and not sent again,
because it may have executed them; a client that gave its decision an id may repeat the request.
"""

# 1. ``METHODS``: what shards ask of each other, with the types of arguments and results.
# 2. ``encode_calls``, ``answer_calls``: many calls as one body of MessagePack.
# 3. ``Link``: the connections to one shard.

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import time as clocks
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
import numpy as np

from tacit import errors
from tacit.cluster.totals import PlacementPart
from tacit.service import errors as service_errors
from tacit.service.deciders.items import CandidateQuery
from tacit.service.engine.reports import Health, KeyFacts, KeyMatches, ShardHealth
from tacit.service.engine.writer import Waiter
from tacit.service.errors import NotDurable
from tacit.service.log.blocks import Block
from tacit.service.log.change_events import LoggedChange
from tacit.service.log.ids import Shard
from tacit.service.log.requests import ClientDecision, FeedbackRequest, Impression
from tacit.service.log.rows import DecisionRow
from tacit.service.log.search_records import Subject
from tacit.service.log.store import BlankedRows
from tacit.service.projections.shared_learning import SharedUpdate
from tacit.wire.lift import ForWhom

logger = logging.getLogger(__name__)

# ---- Methods


class ShardState(NamedTuple):
    """What a shard says of itself.

    Attributes
    ----------
    pid : int
    waiting : int
        Number of pending requests.
    health : Health
    parts : dict of PlacementPart
        Statistics by placement.
    shared_seconds : dict of float
        By placement, the seconds since all other shards had what this one learned.
    """

    pid: int
    waiting: int
    health: Health
    parts: dict[str, PlacementPart]
    shared_seconds: dict[str, float]


METHODS: dict[str, tuple[Any, Any]] = {
    "decide_many": (tuple[str, list[Impression]], list[DecisionRow]),
    "record_many": (tuple[str, list[FeedbackRequest]], list[Any]),
    "find_decisions": (tuple[str, list[str]], list[str]),
    "ask": (tuple[str, str, Any, str | None], Any),
    "forget": (tuple[Subject, str | None], dict[str, BlankedRows]),
    "key": (tuple[str, str], KeyFacts),
    "busiest": (tuple[str], list[KeyFacts]),
    "find_keys": (tuple[str, str], KeyMatches),
    "report_segments": (tuple[str, int], ForWhom),
    "list_replica_rows": (tuple[str], list[int | None]),
    "history": (tuple[str], list[LoggedChange]),
    "lend": (tuple[str], tuple[int, bytes]),
    "arms": (tuple[()], dict[str, str]),
    "apply_arms": (tuple[dict[str, str], str | None], None),
    "import_learning": (tuple[str, SharedUpdate], None),
    "look": (tuple[()], ShardState),
}
"""What shards ask of each other, with the types of arguments and result."""

# ---- Calls as MessagePack

ARRAY, ERROR, RECORD = 1, 2, 3
"""Extensions for arrays, errors of tacit, and records in the details of a request."""
ERRORS = {
    name: kind
    for module in (errors, service_errors)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, errors.TacitError)
}
RECORDS: dict[str, Callable[..., Any]] = {
    "ClientDecision": ClientDecision,
    "CandidateQuery": CandidateQuery,
    "tuple": lambda *items: items,
}
"""Records in the details of a request, by the names of their types."""
Call = tuple[str, tuple[Any, ...]]
"""A method and its arguments."""


class PeerFrame(msgspec.Struct, array_like=True):
    """Calls to a shard, which it refuses if it is another one."""

    shard: Shard
    calls: list[tuple[str, msgspec.Raw]]


def _extend(value: Any) -> Any:
    """Return a value that MessagePack can encode for a block, an array, an error or a number of NumPy."""
    if isinstance(value, Block):
        return list(zip(*value.columns, strict=True))
    if isinstance(value, np.ndarray):
        return msgspec.msgpack.Ext(ARRAY, _encode((value.dtype.str, value.shape, value.tobytes())))
    if isinstance(value, errors.TacitError):
        _, arguments, *_ = value.__reduce__()
        return msgspec.msgpack.Ext(ERROR, _encode((type(value).__name__, arguments)))
    return value.item()


def _read_extension(code: int, content: memoryview) -> Any:
    """Return the array, the error or the record that an extension of MessagePack holds."""
    if code == ARRAY:
        dtype, shape, numbers = msgspec.msgpack.decode(content)
        return np.frombuffer(numbers, dtype).reshape(shape).copy()
    name, arguments = msgspec.msgpack.decode(content, ext_hook=_read_extension)
    if code == ERROR:
        return ERRORS.get(name, NotDurable)(*arguments)
    return RECORDS[name](*arguments)


_encode = msgspec.msgpack.Encoder(enc_hook=_extend).encode


def _make_decoder(kind: Any) -> Callable[[Any], Any]:
    """Return a decoder of a type from MessagePack; values from extensions are taken as they are."""
    return msgspec.msgpack.Decoder(kind, ext_hook=_read_extension, dec_hook=lambda _, value: value).decode


_decode_frame, _decode_any = _make_decoder(PeerFrame), _make_decoder(Any)
_decode_answers = _make_decoder(list[tuple[bool, msgspec.Raw]])
_DECODERS = {name: tuple(map(_make_decoder, method)) for name, method in METHODS.items()}


def _pack_arguments(method: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a call, with records in the details of impressions as extensions."""
    if method != "decide_many":
        return arguments
    placement, impressions = arguments
    return placement, [_pack_details(impression) for impression in impressions]


def _pack_details(impression: Impression) -> Impression:
    """Return an impression whose details, if they are a record, are an extension of MessagePack."""
    name = type(impression.details).__name__
    if name not in RECORDS:
        return impression
    record = msgspec.msgpack.Ext(RECORD, _encode((name, tuple(impression.details))))
    return impression._replace(details=record)


async def answer_calls(
    shard: Shard, body: bytes, answer: Callable[[str, Sequence[Any]], Awaitable[Any]]
) -> bytes:
    """Return the encoded results or errors of calls, which are answered concurrently, in order.

    Raises
    ------
    NotDurable
        If they are for another shard, because addresses are being changed.
    """
    frame: PeerFrame = _decode_frame(body)
    if frame.shard != shard:
        raise NotDurable(f"shard: this is {shard.number} of {shard.shards}; read the table of shards again")
    results = await asyncio.gather(
        *(answer(method, _DECODERS[method][0](arguments)) for method, arguments in frame.calls),
        return_exceptions=True,
    )
    return _encode([(not isinstance(result, BaseException), _make_encodable(result)) for result in results])


def _make_encodable(result: Any) -> Any:
    """Return a result; an error that is none of tacit is logged, and becomes NotDurable."""
    if isinstance(result, BaseException) and not isinstance(result, errors.TacitError):
        logger.error("a call of another shard failed", exc_info=result)
        return NotDurable("shard: it failed; try again later")
    return result


def make_token(salt: str) -> str:
    """Return the secret by which shards know each other, from the salt of the log, which all of them read."""
    return hmac.new(salt.encode(), b"tacit shards", hashlib.sha256).hexdigest()


# ---- Connections to one shard

PATH = "/v1/shards/calls"
MAX_REQUESTS, MAX_GROUPS = 1024, 2
"""Most requests of a group, and most groups on their way: while one is committed, the next one arrives."""
CONNECT_SECONDS, PATIENCE_SECONDS = 2.0, 20.0
"""Seconds in which a shard must accept a connection, and answer; one that compiles may be slow."""
IDLE_SECONDS = 5.0
"""Seconds for which an idle connection is used again; the other end closes it later."""
FAILURES = OSError, EOFError, TimeoutError, ValueError, msgspec.MsgspecError
_STATUS = re.compile(rb"HTTP/1\.1 (\d+)")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Link:
    """The connections to another shard.

    Parameters
    ----------
    shard : Shard
    read_addresses : function
        Returns the present addresses of all shards, by number.
    token : str
        Secret by which shards know each other.
    """

    def __init__(self, shard: Shard, read_addresses: Callable[[], Sequence[str]], token: str) -> None:
        self.shard, self._read_addresses, self._token = shard, read_addresses, token
        self.state: ShardState | None = None
        self.losses = 0
        self.recovery_seconds: float | None = None
        self._lost_at: float | None = None
        self._queue: deque[tuple[Call, Waiter]] = deque()
        self._groups: set[asyncio.Task[None]] = set()
        # Idle connections, each with the time since which it is idle.
        self._idle: list[tuple[float, asyncio.StreamReader, asyncio.StreamWriter]] = []

    @property
    def up(self) -> bool:
        """Whether the shard answered when it was asked last."""
        return self._lost_at is None

    def report(self) -> ShardHealth:
        """Return the last known health of the shard, and the number of calls that wait for it."""
        pid, waiting, health = (None, 0, None) if self.state is None else self.state[:3]
        waiting += len(self._queue)
        return ShardHealth(
            self.shard.number, pid, self.up, self.losses, self.recovery_seconds, waiting, health
        )

    def begin(self, method: str, arguments: tuple[Any, ...], reply: Waiter) -> None:
        """Queue a call for the next group, without waiting; its result or error is set in ``reply``."""
        if not self.up:
            reply.set_exception(self._make_error())
            return
        self._queue.append(((method, arguments), reply))
        if len(self._groups) < MAX_GROUPS:
            task = asyncio.create_task(self._send_groups())
            self._groups.add(task)
            task.add_done_callback(self._groups.discard)

    async def _send_groups(self) -> None:
        """Send the queued calls in groups until the queue is empty."""
        # Requests of the same moment join the group.
        await asyncio.sleep(0)
        while self._queue:
            size = min(len(self._queue), MAX_REQUESTS)
            calls, replies = zip(*(self._queue.popleft() for _ in range(size)), strict=True)
            for reply, result in zip(replies, await self._send(calls), strict=True):
                if not reply.done():
                    (reply.set_exception if isinstance(result, BaseException) else reply.set_result)(result)

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the shard, without queueing the call for a group; return its result.

        Unlike :meth:`begin` it also tries to reach a shard that did not answer the last call.

        Raises
        ------
        TacitError
            The shard's error, or NotDurable if it does not answer.
        """
        (result,) = await self._send([(method, arguments)])
        if isinstance(result, BaseException):
            raise result
        return result

    def _make_error(self) -> NotDurable:
        return NotDurable(
            f"shard: {self.shard.number} of {self.shard.shards} does not answer; try again later"
        )

    async def _send(self, calls: Sequence[Call]) -> list[Any]:
        """Send calls; return their results and errors, in order: NotDurable for each if the shard is lost."""
        frame = self.shard, [(method, _pack_arguments(method, arguments)) for method, arguments in calls]
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                answers = _decode_answers(await self.post(_encode(frame)))
            results = [
                (_DECODERS[method][1] if is_result else _decode_any)(content)
                for (method, _), (is_result, content) in zip(calls, answers, strict=True)
            ]
        except FAILURES as error:
            # A shard without an address has not started yet, and is not lost.
            if self.up and self._read_addresses()[self.shard.number]:
                self._lost_at = clocks.monotonic()
                self.losses += 1
                logger.error("shard %d does not answer: %s", self.shard.number, error or type(error).__name__)
            return [self._make_error()] * len(calls)
        if self._lost_at is not None:
            self.recovery_seconds, self._lost_at = clocks.monotonic() - self._lost_at, None
            logger.warning("shard %d answers again after %.1f s", self.shard.number, self.recovery_seconds)
        return results

    async def post(self, body: bytes) -> bytes:
        """Send a body to the shard over a kept or a new connection, and return that of its answer."""
        address = urlsplit(self._read_addresses()[self.shard.number])
        self.close(older=IDLE_SECONDS)
        if self._idle:
            _, reader, writer = self._idle.pop()
        else:
            port = address.port or (443 if address.scheme == "https" else 80)
            connecting = asyncio.open_connection(
                address.hostname, port, ssl=address.scheme == "https" or None
            )
            reader, writer = await asyncio.wait_for(connecting, CONNECT_SECONDS)
        head = f"POST {PATH} HTTP/1.1\r\nhost: {address.netloc}\r\nauthorization: Bearer {self._token}\r\n"
        with errors.undo_on_error(writer.close):
            writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            status, length = _STATUS.match(answer), _LENGTH.search(answer)
            if status is None or length is None:
                raise ValueError("it is no service of tacit")
            content = await reader.readexactly(int(length[1]))
            if status[1] != b"200":
                raise ValueError(content.decode(errors="replace"))
        self._idle.append((clocks.monotonic(), reader, writer))
        return content

    def close(self, older: float = 0.0) -> None:
        """Close the connections that have been idle for so many seconds, or that the other end has closed.

        By default all of them.
        """
        before = clocks.monotonic() - older
        for since, reader, writer in tuple(self._idle):
            if since <= before or reader.at_eof():
                self._idle.remove((since, reader, writer))
                writer.close()
