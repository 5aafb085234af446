"""The ingress: validates requests as a single server does, and forwards each to the shard of its key."""

# 1. Routing: the partition of a key, or of a decision's id, determines the shard.
# 2. Requests: dispatched to their shards; answers are returned in order.
# 3. Queries and changes for all shards: answers are merged; changes go to the first shard first.

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from tacit.cluster.shard import DECIDE, KNOWN_IDS, RECORD, ShardedView, make_sharded_view
from tacit.cluster.shard_link import Link
from tacit.errors import InvalidValue, TacitError
from tacit.service.config.schema import Config
from tacit.service.engine.rebuilding import Replacement, State
from tacit.service.engine.reports import (
    Health,
    KeyFacts,
    KeyMatches,
    ReplicaFile,
    ShardHealth,
    merge_busiest,
    merge_matches,
)
from tacit.service.engine.segments import select_shard_report
from tacit.service.engine.service import NO_REBUILD_IN_SHARDS, Verbs
from tacit.service.engine.verdicts import NOT_IN_SHARDS, ReadVerdict
from tacit.service.engine.writer import Commits
from tacit.service.errors import InConflict, NotDurable, UnknownDecision
from tacit.service.kind import check_path
from tacit.service.log.change_events import LoggedChange
from tacit.service.log.ids import LogClock, find_request_partition, find_shard, parse_partition
from tacit.service.log.requests import FeedbackRequest, Impression, check_feedback
from tacit.service.log.rows import DecisionRow
from tacit.service.log.search_records import Subject
from tacit.service.log.store import BlankedRows, sum_blanked_rows
from tacit.service.placements.changes import EFFECTS
from tacit.wire.lift import LATEST, ForWhom

REFRESH_SECONDS = 1.0
MAX_HOMES = 100_000

logger = logging.getLogger(__name__)


class Ingress(Verbs):
    """A service that forwards requests to shards.

    Parameters
    ----------
    config : Config
        Configuration, with a seed for each placement.
    links : sequence of Link
        Connections to the shards, by number.
    """

    def __init__(self, config: Config, links: Sequence[Link]) -> None:
        self.config = config
        self.clock: Callable[[], int] = LogClock()
        self.commits = Commits()
        self.links = links
        self.placements = {
            name: make_sharded_view(name, placement_config)
            for name, placement_config in config.placements.items()
        }
        self._round_robin = itertools.cycle(range(len(links)))
        self._shard_by_id: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self) -> None:
        """Wait until every shard has opened its log, read all states, and send the first shard's arms to all.

        Afterwards a background task refreshes them every second.
        """
        await asyncio.gather(*(link.open() for link in self.links))
        await self.refresh()
        await self.propagate_arms(self.links[0].arms)
        self._tasks.append(asyncio.create_task(self._refresh_forever()))

    async def stop(self) -> None:
        """Stop the background tasks and all links, so that no more requests are sent to shards."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(link.stop() for link in self.links), return_exceptions=True)

    # Routing ---------------------------------------------------------------------------------

    def _choose_shard(self, placement: str, impression: Impression) -> int:
        """Return the shard for an impression, by its key or id, or in turn if neither determines it.

        An id that the client chose is remembered with its shard; InConflict is raised if it is reused for a
        key of another shard.
        """
        spread = self.config.placements[placement].spread
        partition = find_request_partition(placement, impression.key, impression.id, spread)
        if partition is None:
            return next(self._round_robin)
        shard = find_shard(partition, len(self.links))
        # Shards do not know each other's decisions; only ids without a partition can occur in several shards.
        if impression.id is not None and parse_partition(impression.id) != partition:
            known_shard = self._shard_by_id.setdefault((placement, impression.id), shard)
            if known_shard != shard or parse_partition(impression.id) not in (None, partition):
                raise InConflict(
                    f"decision_id: {impression.id!r} stands for a decision of another key; "
                    "send the same request, or another id"
                )
            if len(self._shard_by_id) > MAX_HOMES:
                self._shard_by_id.popitem(last=False)
        return shard

    async def _locate_shards(self, placement: str, ids: Iterable[str]) -> dict[str, int | TacitError]:
        """Return the shard, or the error, for each decision's id; query all shards for ids of clients."""
        shards: dict[str, int | TacitError] = {}
        client_ids = []
        for id in ids:
            partition = parse_partition(id)
            home = self._shard_by_id.get((placement, id))
            if home is not None:
                shards[id] = home
            elif partition is not None:
                shards[id] = find_shard(partition, len(self.links))
            else:
                client_ids.append(id)
        if client_ids:
            answers = await asyncio.gather(
                *(link.serve((KNOWN_IDS, placement, client_ids)) for link in self.links),
                return_exceptions=True,
            )
            for id in client_ids:
                answers_by_shard = [
                    answer if isinstance(answer, BaseException) else id in answer for answer in answers
                ]
                shards[id] = _find_home(placement, id, answers_by_shard)
        return shards

    # Requests --------------------------------------------------------------------------------

    async def decide_many(self, placement: str, impressions: Sequence[Impression]) -> Sequence[DecisionRow]:
        """Decide for a batch of impressions in their shards; return the decisions in order.

        Of the impressions of one shard, all or none are decided.

        Raises
        ------
        UnknownName, InvalidValue, Conflict, NotDurable
            As ``Engine.decide_many``.
        """
        self.placement(placement)
        shards = [self._choose_shard(placement, impression) for impression in impressions]
        if len(shards) == 1:
            rows: list[DecisionRow] = await self.links[shards[0]].serve((DECIDE, placement, impressions))
        else:
            rows = await self._dispatch(DECIDE, placement, impressions, shards)
        return rows

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
        feedback = check_feedback(feedback, self.placement(placement))
        shards = await self._locate_shards(placement, dict.fromkeys(row.decision for row in feedback))
        outcomes: list[Any] = [shards[row.decision] for row in feedback]
        indices = [i for i, home in enumerate(outcomes) if isinstance(home, int)]
        unavailable = [home for home in outcomes if isinstance(home, NotDurable)]
        if unavailable:
            raise unavailable[0]
        if indices:
            answers = await self._dispatch(
                RECORD, placement, [feedback[i] for i in indices], [outcomes[i] for i in indices]
            )
            for i, answer in zip(indices, answers, strict=True):
                outcomes[i] = answer
        return outcomes

    async def _dispatch(
        self, method: str, placement: str, requests: Sequence[Any], shards: Sequence[int]
    ) -> list[Any]:
        """Send requests to their shards, one batch per shard; return the answers in the requests' order.

        If a shard fails, wait for the others, then raise the first error.
        """
        groups: dict[int, list[int]] = {}
        for index, shard in enumerate(shards):
            groups.setdefault(shard, []).append(index)
        answers = await self._gather_all(
            self.links[shard].serve((method, placement, [requests[index] for index in indices]))
            for shard, indices in groups.items()
        )
        results: list[Any] = [None] * len(requests)
        for indices, answer in zip(groups.values(), answers, strict=True):
            for index, result in zip(indices, answer, strict=True):
                results[index] = result
        return results

    async def ask(self, placement: str, request: Any, who: str | None = None) -> Any:
        """Apply a change request to a placement in every shard; return the answer to the request.

        For some changes the first shard decides and the others follow; a shard that is down follows before
        it serves again.

        Raises
        ------
        UnknownName, InvalidValue
            As ``Engine.ask``; then nothing changes.
        NotDurable
            If a shard is down. If the first shard leads and is down, nothing changes.
        """
        view, change = self.placement(placement), EFFECTS[type(request)]
        first, arguments = self.links[0], (placement, request, who)
        if change.leads:
            await first.engine("ask", *arguments)
            await self.propagate_arms({placement: (await first.call("arms"))[placement]}, who)
            return change.answer(view, self.clock())
        if change.in_shards:
            return await self._change_shards(arguments)
        change.change_value(view, request, self.clock())
        answers = await self._gather_all(link.engine("ask", *arguments) for link in self.links)
        await self.refresh()
        return answers[0]

    async def _change_shards(self, arguments: tuple[Any, ...]) -> Any:
        """Apply a change to the first shard, then to all others; return the first shard's answer.

        If the first refuses, or a shard is down, nothing changes. Statistics are refreshed.
        """
        first, *followers = self.links
        if not all(link.up for link in self.links):
            raise NotDurable("shard: one is being started again, and nothing was changed; try again later")
        answer = await first.engine("ask", *arguments)
        await self._gather_all(link.engine("ask", *arguments) for link in followers)
        await self.refresh()
        return answer

    async def forget(self, subject: Subject, who: str | None = None) -> dict[str, BlankedRows]:
        """Erase a person's data in every shard; return the numbers of blanked rows by placement."""
        calls = (link.engine("forget", subject, who) for link in self.links)
        return sum_blanked_rows(*await asyncio.gather(*calls))

    async def key(self, placement: str, key: str) -> KeyFacts:
        """Return the learned state of a key from its shard; raise UnknownName if it has no decisions.

        If all shards have the same keys, the first shard is queried.
        """
        spread = self.placement(placement).config.spread
        partition = find_request_partition(placement, key, None, spread)
        shard = 0 if partition is None else find_shard(partition, len(self.links))
        facts: KeyFacts = await self.links[shard].engine("key", placement, key)
        return facts

    async def busiest(self, placement: str) -> list[KeyFacts]:
        """Return the learned state of the keys with most decisions, merged from all shards."""
        return merge_busiest(await self._query_shards("busiest", placement))

    async def find_keys(self, placement: str, text: str) -> KeyMatches:
        """Return the keys that contain a text, merged from all shards."""
        return merge_matches(await self._query_shards("find_keys", placement, text))

    async def _query_shards(self, method: str, placement: str, *arguments: Any) -> list[Any]:
        """Call an engine's coroutine in every shard, or only in the first if all have the same keys."""
        spread = self.placement(placement).config.spread
        links = self.links[:1] if spread else self.links
        answers = await asyncio.gather(*(link.engine(method, placement, *arguments) for link in links))
        return list(answers)

    async def report_segments(self, placement: str, limit: int = LATEST) -> ForWhom:
        """Return the arms shown per segment in the latest decisions, as the busiest shard reports them."""
        return select_shard_report(await self._query_shards("report_segments", placement, limit))

    async def verdict(self, placement: str, *asked: Any, **options: Any) -> ReadVerdict:
        """Raise InvalidValue: no shard has the whole log of duels."""
        check_path(self.placement(placement), "duel")
        raise InvalidValue("placement", placement, NOT_IN_SHARDS)

    async def states(self, placement: str) -> list[State]:
        """Return an empty list for any existing placement: shards keep no states for a rollback."""
        self.placement(placement)
        return []

    async def rebuild(self, placement: str, spec: Any, who: str | None = None) -> Replacement:
        """Raise InvalidValue: shards cannot switch to another policy at the same time."""
        self.placement(placement)
        raise InvalidValue("placement", placement, NO_REBUILD_IN_SHARDS)

    async def rollback(self, placement: str, to: str | None = None, who: str | None = None) -> Replacement:
        """Raise InvalidValue, as :meth:`rebuild`: shards keep no earlier states."""
        return await self.rebuild(placement, to, who)

    async def history(self, placement: str) -> list[LoggedChange]:
        """Return the logged changes of a placement from the first shard; they are the same in every shard."""
        self.placement(placement)
        return await self.links[0].engine("history", placement)  # type: ignore[no-any-return]

    async def propagate_arms(self, arms: dict[str, str], who: str | None = None) -> None:
        """Adopt the first shard's arms in this ingress, and send them to all shards that have others.

        A shard that is down gets them when it is back; an error of a running shard is raised.
        """
        for name, arms_record in arms.items():
            if name in self.placements:
                placement = self.placements[name]
                if placement.lifecycle.is_change(arms_record):
                    placement.set_arms(arms_record, 0, self.clock())
        outdated = []
        for link in self.links[1:]:
            link.leading |= arms
            if link.up and any(link.arms.get(name) != arms_record for name, arms_record in arms.items()):
                outdated.append(link)
        calls = (link.call("follow", arms, who) for link in outdated)
        results = await asyncio.gather(*calls, return_exceptions=True)
        for link, result in zip(outdated, results, strict=True):
            # A lost shard gets the arms when it is back.
            if isinstance(result, BaseException) and link.up:
                raise result
            link.arms = link.arms | arms

    async def export_replica(self, placement: str, shard: int | None = None) -> ReplicaFile:
        """Return a file with a placement's learned state in one shard, and its log position.

        Raises
        ------
        InvalidValue
            As ``Engine.export_replica``; also without a shard, because no shard has learned everything.
        """
        self.placement(placement)
        if shard is None or shard >= len(self.links):
            raise InvalidValue("shard", shard, f"give one of 0 to {len(self.links) - 1}: each learned a part")
        seq, content = await self.links[shard].call("lend", placement)
        return ReplicaFile(self, seq, [content])

    async def list_replica_rows(self, placement: str) -> list[int | None]:
        """Return the log position of a placement in each shard; None for a shard that is down."""
        self.placement(placement)
        calls = (link.engine("list_replica_rows", placement) for link in self.links)
        rows: list[int | None] = []
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, NotDurable):
                raise result
            rows += [None] if isinstance(result, BaseException) else result
        return rows

    async def reload(self, config: Config) -> None:
        """Adopt a new configuration, which every shard has adopted; refresh statistics and propagate arms.

        Views of placements whose configuration is new are replaced by empty ones.

        Raises
        ------
        TacitError
            As :class:`LeadingIngress`.
        """
        before, self.config = self.config, config
        self.placements = {
            name: self.placements[name]
            if before.placements.get(name) == placement_config
            else make_sharded_view(name, placement_config)
            for name, placement_config in config.placements.items()
        }
        await self.refresh()
        await self.propagate_arms(self.links[0].arms)

    @staticmethod
    async def _gather_all(calls: Iterable[Awaitable[Any]]) -> list[Any]:
        """Wait for all calls, even if one fails; return their results in order, or raise the first error."""
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return list(results)

    # Monitoring ------------------------------------------------------------------------------

    async def _refresh_forever(self) -> None:
        """Refresh statistics and propagate arms every second, forever; errors are logged."""
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await self.refresh()
                # Includes shards that could not be reached before.
                await self.propagate_arms(self.links[0].arms)
            except Exception:
                logger.exception("the shards could not be looked at")

    async def refresh(self) -> None:
        """Read health and statistics of all shards, and update the placements' combined views."""
        await asyncio.gather(*(link.refresh() for link in self.links))
        for name, placement in self.placements.items():
            assert isinstance(placement, ShardedView)
            placement.show([link.snapshots[name] for link in self.links if name in link.snapshots])

    @property
    def waiting(self) -> int:
        """Number of pending requests, in this ingress and in the shards."""
        return sum(link.waiting for link in self.links)

    def health(self) -> Health:
        """Return the combined health of all shards as of the last refresh; events and bytes are sums.

        It is ready only if every shard is.
        """
        reports = [link.health for link in self.links if link.health is not None]
        times = [report.committed for report in reports if report.committed is not None]
        return Health(
            ready=not self._stopping
            and len(reports) == len(self.links)
            and all(report.ready for report in reports)
            and all(link.up for link in self.links),
            events=sum(report.events for report in reports),
            bytes=sum(report.bytes for report in reports),
            rate=sum(report.rate for report in reports),
            committed=max(times, default=None),
            commit_seconds=max((report.commit_seconds for report in reports), default=0.0),
            buffered=sum(report.buffered for report in reports),
            recovery_seconds=max((report.recovery_seconds for report in reports), default=0.0),
            wall_ahead=max((report.wall_ahead for report in reports), key=abs, default=0.0),
        )

    def shards(self) -> list[ShardHealth]:
        """Return the health and connection state of every shard, by number."""
        return [
            ShardHealth(
                link.shard.number,
                link.pid,
                link.up,
                link.losses,
                link.recovery_seconds,
                link.waiting,
                link.health,
            )
            for link in self.links
        ]

    def sharing_seconds(self, placement: str) -> float | None:
        """Return None: only the leading ingress knows when shards last exchanged what they learned."""
        return None


def _find_home(placement: str, id: str, answers: Sequence[bool | BaseException]) -> int | TacitError:
    """Return the shard whose answer is True, by number; return (not raise) an error if none or several are.

    A failed answer means that a shard is down, which makes the error NotDurable.
    """
    shards = [shard for shard, answer in enumerate(answers) if answer is True]
    if len(shards) > 1:
        return InConflict(f"decision_id: {id!r} stands for decisions of several keys")
    if shards:
        return shards[0]
    for answer in answers:
        if isinstance(answer, BaseException):
            return NotDurable("shard: one that may know the decision is down; try again later")
    return UnknownDecision(
        f"decision_id: placement {placement!r} made no decision {id!r}; send the id that its answer gave"
    )
