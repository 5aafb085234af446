"""A shard as an ordinary server: it answers for its keys, and asks other shards for theirs."""

# 1. ``ShardCalls``: what a shard answers to itself and to others.
# 2. ``Sharing``: sends others what a shard learned for all keys.
# 3. ``ShardService``: routes requests by their keys and ids; merges reads over all shards.
# 4. ``MergedService``: the same service with the statistics of all shards, for reads.

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import itertools
import logging
import os
import signal
import time as clocks
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tacit.cluster.peers import Link, ShardState, answer_calls
from tacit.cluster.totals import export_part, merge_parts
from tacit.errors import InvalidValue, TacitError
from tacit.service.config.schema import Config
from tacit.service.engine.engine import Engine
from tacit.service.engine.reports import (
    KeyFacts,
    KeyMatches,
    ReplicaFile,
    ShardHealth,
    merge_busiest,
    merge_matches,
)
from tacit.service.engine.segments import select_shard_report
from tacit.service.engine.service import Verbs
from tacit.service.engine.writer import Waiter
from tacit.service.errors import Fenced, Forbidden, InConflict, NotDurable, UnknownDecision
from tacit.service.log.blocks import column_values
from tacit.service.log.change_events import LoggedChange
from tacit.service.log.ids import find_request_partition, find_shard, hash_partition, parse_partition
from tacit.service.log.requests import Decide, FeedbackRequest, Impression, Record, check_feedback
from tacit.service.log.rows import DecisionRow
from tacit.service.log.search_records import Subject
from tacit.service.log.store import BlankedRows, sum_blanked_rows
from tacit.service.placements.changes import EFFECTS
from tacit.service.projections.shared_learning import SharedUpdate
from tacit.wire import verbs
from tacit.wire.lift import LATEST, ForWhom
from tacit.wire.site import ShardTable

REFRESH_SECONDS = 1.0
MOST_HOMES = 100_000
MOST_KEYS = 500
"""Most keys whose sums are sent at once."""
CHANGES = {verb.name: verb for verb in verbs.CHANGES}

logger = logging.getLogger(__name__)


class ShardCalls:
    """What a shard answers to itself and to others; nothing of it is asked of another shard, but for arms.

    Parameters
    ----------
    engine : Engine
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.state: ShardState | None = None
        # By placement, the time at which all other shards had what this one learned.
        self.shared_at: dict[str, float] = {}
        assert engine.shard is not None
        self.shard = engine.shard
        self.up = True

    def report(self) -> ShardHealth:
        """Return the health of this shard."""
        engine = self.engine
        health = engine.health()
        return ShardHealth(self.shard.number, os.getpid(), health.ready, 0, None, engine.waiting, health)

    def read_state(self) -> ShardState:
        """Return what the shard says of itself."""
        now = clocks.monotonic()
        return ShardState(
            os.getpid(),
            self.engine.waiting,
            self.engine.health(),
            {name: export_part(placement) for name, placement in self.engine.placements.items()},
            {name: now - time for name, time in self.shared_at.items()},
        )

    async def call(self, method: str, *arguments: Any) -> Any:
        """Return the result of one of :data:`tacit.cluster.peers.METHODS`."""
        engine = self.engine
        match method:
            case "find_decisions":
                return list(await engine.find_decisions(*arguments))
            case "ask":
                placement, name, fields, who = arguments
                return await engine.ask(placement, msgspec.convert(fields, CHANGES[name].request), who)
            case "lend":
                file = await engine.export_replica(*arguments)
                return file.seq, b"".join(file)
            case "arms":
                return engine.exchange.arms()
            case "look":
                return self.read_state()
        target = engine.exchange if hasattr(engine.exchange, method) else engine
        return await getattr(target, method)(*arguments)


class Sharing:
    """Sends all other shards what this one has learned for all keys.

    Parameters
    ----------
    calls : ShardCalls
        Of this shard.
    others : sequence of Link
    """

    def __init__(self, calls: ShardCalls, others: Sequence[Link]) -> None:
        self._calls, self._others = calls, others
        # Shards that lack nothing of the last exchange.
        self._current: set[Link] = set()

    async def share(self) -> None:
        """Send all other shards what this one has learned since; everything if one may lack a part.

        What a shard has already changes nothing there.
        """
        began = clocks.monotonic()
        everything = not self._current.issuperset(self._others)
        shared = [
            name for name, placement in self._calls.engine.placements.items() if placement.shared is not None
        ]
        updates = {
            name: await self._calls.engine.exchange.export_learning(name, everything) for name in shared
        }
        self._current.clear()
        await asyncio.gather(*(self._send_updates(link, updates) for link in self._others if link.up))
        if self._current.issuperset(self._others):
            self._calls.shared_at = dict.fromkeys(shared, began)

    async def _send_updates(self, link: Link, updates: Mapping[str, SharedUpdate]) -> None:
        """Send a shard updates, some keys at a time; then it is current, unless it does not answer."""
        try:
            for name, update in updates.items():
                keys = list(update.parts)
                for i in range(0, len(keys), MOST_KEYS):
                    parts = {key: update.parts[key] for key in keys[i : i + MOST_KEYS]}
                    await link.call("import_learning", name, SharedUpdate(update.shard, update.time, parts))
            self._current.add(link)
        except TacitError as error:
            logger.debug("shard %d did not learn: %s", link.shard.number, error)

    def get_age(self, placement: str) -> float | None:
        """Return the seconds since the least recent exchange between any two shards.

        None if nothing is shared for this placement, or not yet between all shards.
        """
        states = [link.state for link in self._others]
        shared_at = self._calls.shared_at.get(placement)
        ages = [state and state.shared_seconds.get(placement) for state in states]
        if shared_at is None or None in ages:
            return None
        return max(clocks.monotonic() - shared_at, *filter(None, ages))


class ShardService(Verbs):
    """A service that serves a shard's keys by its engine, and forwards requests for other keys.

    What it does not have itself is its engine's.

    Parameters
    ----------
    calls : ShardCalls
        Of this shard.
    links : mapping of int to Link
        The other shards by number.
    table : ShardTable
    token : str
        Secret by which shards know each other.
    merge_seconds : float
        Seconds between two times at which all others are sent what this shard learned for all keys.
    read_addresses : function
        Returns the present addresses of all shards.
    complete_config : function
        Returns a configuration with this shard's store, and with the seeds of placements.

    Attributes
    ----------
    table : ShardTable
    answer_headers : list of (bytes, bytes)
        Headers of all answers, which say the version of the table.
    merged : MergedService
    """

    def __init__(
        self,
        calls: ShardCalls,
        links: Mapping[int, Link],
        token: str = "",
        merge_seconds: float = 1.0,
        read_addresses: Callable[[], Sequence[str]] = lambda: (),
        complete_config: Callable[[Config], Config] = lambda config: config,
    ) -> None:
        self.engine, self.calls, self.number = calls.engine, calls, calls.shard.number
        self.links: list[Any] = [calls if i == self.number else links[i] for i in range(calls.shard.shards)]
        self.others = [link for link in self.links if link is not calls]
        self._token, self._merge_seconds, self.sharing = token, merge_seconds, Sharing(calls, self.others)
        self._read_addresses, self._complete_config = read_addresses, complete_config
        self.sharing_seconds, self.merged = self.sharing.get_age, MergedService(self)
        self._round_robin = itertools.cycle(range(len(self.links)))
        # Shards of the decisions whose ids clients chose, by placement and id.
        self._shard_by_id: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.read_table()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def read_table(self) -> None:
        """Read the addresses of all shards again; the version of the table depends on nothing else."""
        addresses = list(self._read_addresses())
        version = hashlib.blake2b("\n".join(addresses).encode(), digest_size=6).hexdigest()
        spread = [name for name, config in self.engine.config.placements.items() if config.spread]
        self.table = ShardTable(addresses, version, spread)
        self.answer_headers = [(b"x-tacit-shards", version.encode())]

    async def start(self) -> None:
        """Start the engine and the background tasks; other shards need not answer yet.

        Arms that changed while this shard was down have changed before it serves.
        """
        await self.engine.start()
        with contextlib.suppress(TacitError):
            await self.look()
        self._keep(self._repeat(REFRESH_SECONDS, self.look))
        self._keep(self._repeat(self._merge_seconds, self.sharing.share))

    def _keep(self, work: Any) -> asyncio.Task[Any]:
        """Start a task, and keep a reference to it while it runs."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self) -> None:
        """Cancel the background tasks, close the connections to other shards, and stop the engine."""
        for task in self._tasks:
            task.cancel()
        for link in self.others:
            link.close()
        await self.engine.stop()

    async def reload(self, config: Config) -> None:
        """Apply another configuration in this shard; errors are those of ``Engine.reload``."""
        config = await asyncio.to_thread(self._complete_config, config)
        # All shards but the first, number 0, follow its arms.
        leading = await self.links[0].call("arms") if self.number and self.links[0].up else None
        await self.engine.reload(config, leading)
        self.read_table()

    async def answer_calls(self, body: bytes) -> bytes:
        """Answer calls of another shard, of which nothing is forwarded again; see :meth:`check_peer`."""
        return await answer_calls(self.calls.shard, body, lambda name, given: self.calls.call(name, *given))

    def check_peer(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise Forbidden unless the headers of a request have the secret by which shards know each other."""
        if not hmac.compare_digest(headers.get(b"authorization", b""), f"Bearer {self._token}".encode()):
            raise Forbidden("authorization: only other shards of this log may ask this")

    # Routing ---------------------------------------------------------------------------------

    def _find_shard(self, placement: str, impression: Impression) -> int:
        """Return the shard of an impression, by its key or id, or in turn if neither determines it.

        An id that the client chose is remembered with its shard; InConflict is raised if it is used again for
        a key of another shard.
        """
        spread = self.engine.config.placements[placement].spread
        partition = find_request_partition(placement, impression.key, impression.id, spread)
        if partition is None:
            return next(self._round_robin)
        shard = find_shard(partition, len(self.links))
        # Shards do not know each other's decisions; only ids without a partition can occur in several shards.
        if impression.id is not None and (id_partition := parse_partition(impression.id)) != partition:
            # An id with another partition was made for a decision of another key.
            known_shard = self._shard_by_id.setdefault((placement, impression.id), shard)
            if known_shard != shard or id_partition is not None:
                raise InConflict(
                    f"decision_id: {impression.id!r} stands for a decision of another key; "
                    "send the same request, or another id"
                )
            if len(self._shard_by_id) > MOST_HOMES:
                self._shard_by_id.popitem(last=False)
        return shard

    def _find_home(self, placement: str, id: str) -> int | None:
        """Return the shard that has a decision, by its id; None if the id does not say it."""
        partition = parse_partition(id)
        if partition is None:
            return self._shard_by_id.get((placement, id))
        return find_shard(partition, len(self.links))

    async def _locate(self, placement: str, ids: Sequence[str]) -> dict[str, int | TacitError]:
        """Return the shard, or the error, for each id of a client; ask this shard first, then the others.

        Raises
        ------
        NotDurable
            If an id is not found, and a shard is down.
        """
        known = await self.calls.call("find_decisions", placement, ids)
        shards: dict[str, int | TacitError] = dict.fromkeys(known, self.number)
        if unknown := [id for id in ids if id not in shards]:
            calls = (link.call("find_decisions", placement, unknown) for link in self.others)
            answers = await _gather_all(calls, NotDurable)
            for id in unknown:
                homes = [
                    link.shard.number
                    for link, answer in zip(self.others, answers, strict=True)
                    if not isinstance(answer, NotDurable) and id in answer
                ]
                if not homes and any(isinstance(answer, NotDurable) for answer in answers):
                    raise NotDurable("shard: one that may know the decision is down; try again later")
                shards[id] = homes[0] if len(homes) == 1 else _make_error(placement, id, homes)
        return shards

    # Requests --------------------------------------------------------------------------------

    def begin(self, request: Decide | Record, reply: Waiter) -> None:
        """Begin a request for one decision or one piece of feedback; the result or error goes to ``reply``.

        Raises
        ------
        TacitError
            If the request is refused at once.
        """
        placement = request.placement
        if isinstance(request, Decide):
            shard: int | None = self._find_shard(placement, request.impressions[0])
        else:
            shard = self._find_home(placement, request.feedback[0].decision)
        if shard == self.number:
            self.engine.begin(request, reply)
        elif shard is None:
            # Feedback by an id of a client: all shards are asked for the decision.
            self._keep(self._record(request, reply))
        else:
            method = "decide_many" if isinstance(request, Decide) else "record_many"
            # The second field of both is the block of impressions or feedback.
            self.links[shard].begin(method, (placement, list(request[1])), reply)

    async def _record(self, request: Any, reply: Waiter) -> None:
        """Serve a request of feedback, and give its result or error to ``reply``."""
        try:
            reply.set_result(await self.record_many(*request))
        except TacitError as error:
            reply.set_exception(error)

    async def decide_many(self, placement: str, impressions: Sequence[Impression]) -> Sequence[DecisionRow]:
        """Decide for a batch of impressions in their shards; return the decisions in order.

        A shard decides all of its impressions or none. Raises the errors of ``Engine.decide_many``.
        """
        spread, count = self.engine.placement(placement).config.spread, len(self.links)
        if not spread and set(column_values(impressions, "id")) == {None}:
            keys = column_values(impressions, "key")
            shards = [find_shard(hash_partition(placement, key), count) for key in keys]
        else:
            shards = [self._find_shard(placement, impression) for impression in impressions]
        return await self._dispatch("decide_many", placement, impressions, shards)

    async def record_many(
        self, placement: str, feedback: Sequence[FeedbackRequest]
    ) -> list[str | TacitError]:
        """Record feedback in the shards of its decisions; return outcomes, or errors of unknown ids.

        Raises
        ------
        UnknownName, InvalidValue
            As ``Engine.record_many``; then nothing was recorded.
        NotDurable
            If a shard is down. Other shards may have recorded their part: feedback with an id can be sent
            again.
        """
        check_feedback(feedback, self.engine.placement(placement))
        homes: dict[str, Any] = {row.decision: self._find_home(placement, row.decision) for row in feedback}
        if unknown := [id for id, home in homes.items() if home is None]:
            homes |= await self._locate(placement, unknown)
        shards = [homes[row.decision] for row in feedback]
        return await self._dispatch("record_many", placement, feedback, shards)

    async def _dispatch(
        self, method: str, placement: str, requests: Sequence[Any], shards: Sequence[int | TacitError]
    ) -> list[Any]:
        """Send requests to their shards, one batch per shard; return the answers in the requests' order.

        An error in the place of a shard is the answer. If a shard fails, wait for the others, then raise the
        first error.
        """
        results: list[Any] = list(shards)
        if set(shards) == {self.number}:
            results = await getattr(self.engine, method)(placement, requests)
            return results
        groups: dict[int, list[int]] = {}
        for index, shard in enumerate(shards):
            if isinstance(shard, int):
                groups.setdefault(shard, []).append(index)
        answers = await _gather_all(
            self.links[shard].call(method, placement, [requests[index] for index in indices])
            for shard, indices in groups.items()
        )
        for indices, answer in zip(groups.values(), answers, strict=True):
            for index, result in zip(indices, answer, strict=True):
                results[index] = result
        return results

    # Changes ---------------------------------------------------------------------------------

    async def ask(self, placement: str, request: Any, who: str | None = None) -> Any:
        """Apply a change request to a placement, in the first shard first; return the answer of that.

        Where the first shard leads, the others follow, one that is down when it is back.

        Raises
        ------
        UnknownName, InvalidValue
            As ``Engine.ask``; then nothing changes.
        NotDurable
            If a shard is down that is needed; then nothing changes.
        """
        self.engine.placement(placement)
        (verb,) = (verb for verb in verbs.CHANGES if verb.request is type(request))
        leads = EFFECTS[type(request)].leads
        if not leads and not all(link.up for link in self.links):
            raise NotDurable("shard: one is being started again, and nothing was changed; try again later")
        arguments = "ask", placement, verb.name, msgspec.to_builtins(request), who
        first, *followers = self.links
        answer = await first.call(*arguments)
        if leads:
            arms = await first.call("arms")
            # A shard that is lost follows when it is back.
            calls = (link.call("apply_arms", arms, who) for link in followers if link.up)
            await _gather_all(calls, NotDurable)
        else:
            await _gather_all(link.call(*arguments) for link in followers)
        self.merged.expire()
        return msgspec.convert(answer, verb.answer)

    async def forget(self, subject: Subject, who: str | None = None) -> dict[str, BlankedRows]:
        """Erase a person's data in every shard; return the numbers of blanked rows by placement."""
        return sum_blanked_rows(*await _gather_all(link.call("forget", subject, who) for link in self.links))

    # Reads -----------------------------------------------------------------------------------

    async def key(self, placement: str, key: str) -> KeyFacts:
        """Return the learned state of a key from its shard; raise UnknownName if it has no decisions."""
        spread = self.engine.placement(placement).config.spread
        partition = find_request_partition(placement, key, None, spread)
        # Of a spread placement, each shard has all keys.
        shard = self.number if partition is None else find_shard(partition, len(self.links))
        facts: KeyFacts = await self.links[shard].call("key", placement, key)
        return facts

    async def busiest(self, placement: str) -> list[KeyFacts]:
        """Return the learned state of the keys with most decisions, merged from all shards."""
        return merge_busiest(await self._query_shards("busiest", placement))

    async def find_keys(self, placement: str, text: str) -> KeyMatches:
        """Return the keys that contain a text, merged from all shards."""
        return merge_matches(await self._query_shards("find_keys", placement, text))

    async def report_segments(self, placement: str, limit: int = LATEST) -> ForWhom:
        """Return the arms shown per segment in the latest decisions, as the busiest shard reports them."""
        return select_shard_report(await self._query_shards("report_segments", placement, limit))

    async def _query_shards(self, method: str, placement: str, *arguments: Any) -> list[Any]:
        """Call a method in every shard, or only in this one if all have the same keys."""
        links = [self.calls] if self.engine.placement(placement).config.spread else self.links
        return await _gather_all(link.call(method, placement, *arguments) for link in links)

    async def history(self, placement: str) -> list[LoggedChange]:
        """Return the logged changes of a placement from the first shard, which makes each change first."""
        self.engine.placement(placement)
        return await self.links[0].call("history", placement)  # type: ignore[no-any-return]

    async def export_replica(self, placement: str, shard: int | None = None) -> ReplicaFile:
        """Return a file with a placement's learned state in one shard, and its log position.

        Raises
        ------
        InvalidValue
            As ``Engine.export_replica``; also without a shard, because no shard has learned everything.
        """
        self.engine.placement(placement)
        if shard is None or shard >= len(self.links):
            raise InvalidValue("shard", shard, f"give one of 0 to {len(self.links) - 1}: each learned a part")
        if shard == self.number:
            return await self.engine.export_replica(placement)
        seq, content = await self.links[shard].call("lend", placement)
        # The file is sent once, so its ``placement``, by which a file is reused, may be any object.
        return ReplicaFile(self, seq, [content])

    async def list_replica_rows(self, placement: str) -> list[int | None]:
        """Return the log position of a placement in each shard; None for a shard that is down."""
        self.engine.placement(placement)
        calls = (link.call("list_replica_rows", placement) for link in self.links)
        results = await _gather_all(calls, NotDurable)
        return [None if isinstance(result, NotDurable) else result[0] for result in results]

    def shards(self) -> list[ShardHealth]:
        """Return the health and connection state of every shard, by number."""
        return [link.report() for link in self.links]

    # Background tasks ------------------------------------------------------------------------

    async def _repeat(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Do a piece of work at an interval, forever; log its errors, but the same one only once."""
        last_error = ""
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
                last_error = ""
            except TacitError as error:
                if str(error) != last_error:
                    logger.warning("shard %d: %s", self.number, error)
                last_error = str(error)
            except Exception:
                logger.exception("shard %d", self.number)

    async def look(self) -> None:
        """Read the table again, look for lost shards, and follow the first one's arms.

        Raises
        ------
        ConfigError, NotDurable
            If addresses cannot be read, or the first shard does not answer.
        """
        if isinstance(self.engine.writer.failure, Fenced):
            logger.error("another process serves shard %d: this one ends", self.number)
            signal.raise_signal(signal.SIGTERM)
        try:
            self.read_table()
        finally:
            await _gather_all((link.call("arms") for link in self.others if not link.up), NotDurable)
            if self.number:
                await self.calls.call("apply_arms", await self.links[0].call("arms"), None)


class MergedService(Verbs):
    """A shard's service whose placements have the statistics of all shards, at most a second old.

    Parameters
    ----------
    service : ShardService
    """

    def __init__(self, service: ShardService) -> None:
        self._service, self.placements = service, service.engine.placements
        self._reading: asyncio.Task[None] | None = None
        self.expire()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def expire(self) -> None:
        """Read the statistics again before the next read."""
        self._read_at = float("-inf")

    async def refresh(self) -> None:
        """Read the statistics of all shards if they are older than a second; of a lost one, keep the last."""
        if clocks.monotonic() - self._read_at < REFRESH_SECONDS:
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        """Read the states of the other shards, and merge the statistics of all."""
        links = self._service.links
        results = await _gather_all((link.call("look") for link in links), NotDurable)
        for link, result in zip(links, results, strict=True):
            if not isinstance(result, NotDurable):
                link.state = result
        states = [link.state for link in links if link.state is not None]
        self.placements = {
            name: merge_parts(placement, [state.parts[name] for state in states if name in state.parts])
            for name, placement in self._service.engine.placements.items()
        }
        self._read_at = clocks.monotonic()


async def _gather_all(calls: Iterable[Awaitable[Any]], *allowed: type[TacitError]) -> list[Any]:
    """Wait for all calls, even if one fails; return their results in order, or raise the first error.

    Errors of the allowed types are returned in the place of results.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, allowed):
            raise result
    return list(results)


def _make_error(placement: str, id: str, homes: Sequence[int]) -> TacitError:
    """Return the error for an id of a client that several shards have, or none."""
    if homes:
        return InConflict(f"decision_id: {id!r} stands for decisions of several keys")
    return UnknownDecision(
        f"decision_id: placement {placement!r} made no decision {id!r}; send the id that its answer gave"
    )
