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

from tacit.cluster.shard import DECIDE, MADE, RECORD, ShardedView, sharded_view
from tacit.cluster.shard_link import Link
from tacit.errors import InvalidValue, TacitError
from tacit.service.config.schema import Config
from tacit.service.engine.rebuilding import Replacement, State
from tacit.service.engine.reports import Health, KeyFacts, KeysFound, Lent, ShardHealth, busiest_of, found_in
from tacit.service.engine.segments import of_shards
from tacit.service.engine.service import NO_REBUILD_IN_SHARDS, Verbs
from tacit.service.engine.verdicts import NOT_IN_SHARDS, ReadVerdict
from tacit.service.engine.writer import Commits
from tacit.service.errors import InConflict, NotDurable, UnknownDecision
from tacit.service.kind import check_path
from tacit.service.log.change_events import LoggedChange
from tacit.service.log.ids import LogClock, partition_asked, partition_in, shard_of
from tacit.service.log.requests import FeedbackRequest, Impression, checked_feedback
from tacit.service.log.rows import DecisionRow
from tacit.service.log.search_records import Subject
from tacit.service.log.store import BlankedRows, added
from tacit.service.placements.placement import CHANGES
from tacit.wire.lift import LATEST, ForWhom

LOOK_SECONDS = 1.0
MOST_REMEMBERED = 100_000

logger = logging.getLogger(__name__)


class Ingress(Verbs):
    """A service that forwards requests to shards.

    Parameters
    ----------
    config : Config
        Configuration, with a seed for each placement.
        links : sequence of Link
    """

    def __init__(self, config: Config, links: Sequence[Link]) -> None:
        self.config = config
        self.clock: Callable[[], int] = LogClock()
        self.commits = Commits()
        self.links = links
        self.placements = {name: sharded_view(name, each) for name, each in config.placements.items()}
        self._turns = itertools.cycle(range(len(links)))
        self._homes: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self) -> None:
        """Start serving, once every shard has opened its log."""
        await asyncio.gather(*(link.open() for link in self.links))
        await self._look()
        await self._lead(self.links[0].arms)
        self._tasks.append(asyncio.create_task(self._keep_looking()))

    async def stop(self) -> None:
        """Stop sending requests to shards."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(link.stop() for link in self.links), return_exceptions=True)

    # Routing ---------------------------------------------------------------------------------

    def _shard_asked(self, placement: str, impression: Impression) -> int:
        spread = self.config.placements[placement].spread
        partition = partition_asked(placement, impression.key, impression.id, spread)
        if partition is None:
            return next(self._turns)
        shard = shard_of(partition, len(self.links))
        # Shards do not know each other's decisions; only ids without a partition can occur in several shards.
        if impression.id is not None and partition_in(impression.id) != partition:
            home = self._homes.setdefault((placement, impression.id), shard)
            if home != shard or partition_in(impression.id) not in (None, partition):
                raise InConflict(
                    f"decision_id: {impression.id!r} stands for a decision of another key; "
                    "send the same request, or another id"
                )
            if len(self._homes) > MOST_REMEMBERED:
                self._homes.popitem(last=False)
        return shard

    async def _shards_of(self, placement: str, ids: Iterable[str]) -> dict[str, int | TacitError]:
        """Return the shard of each decision; for ids chosen by clients, query all shards."""
        homes: dict[str, int | TacitError] = {}
        strange = []
        for id in ids:
            partition = partition_in(id)
            home = self._homes.get((placement, id))
            if home is not None:
                homes[id] = home
            elif partition is not None:
                homes[id] = shard_of(partition, len(self.links))
            else:
                strange.append(id)
        if strange:
            answers = await asyncio.gather(
                *(link.serve((MADE, placement, strange)) for link in self.links), return_exceptions=True
            )
            for id in strange:
                known = [answer if isinstance(answer, BaseException) else id in answer for answer in answers]
                homes[id] = _home(placement, id, known)
        return homes

    # Requests --------------------------------------------------------------------------------

    async def decide_many(self, placement: str, impressions: Sequence[Impression]) -> Sequence[DecisionRow]:
        """Decide for a batch of impressions; for those of one shard, all or none.

        Raises
        ------
        UnknownName, InvalidValue, Conflict, NotDurable
            As ``Engine.decide_many``.
        """
        self.placement(placement)
        shards = [self._shard_asked(placement, impression) for impression in impressions]
        if len(shards) == 1:
            rows: list[DecisionRow] = await self.links[shards[0]].serve((DECIDE, placement, impressions))
        else:
            rows = await self._dealt(DECIDE, placement, impressions, shards)
        return rows

    async def record_many(
        self, placement: str, feedback: Sequence[FeedbackRequest]
    ) -> list[str | TacitError]:
        """Record a batch of feedback; otherwise as ``Engine.record_many``.

        Raises
        ------
        UnknownName, InvalidValue
            As there; then nothing was recorded.
        NotDurable
            If a shard is down. Other shards may have recorded their part: feedback with an id can be sent
            again.
        """
        feedback = checked_feedback(feedback, self.placement(placement))
        homes = await self._shards_of(placement, dict.fromkeys(row.decision for row in feedback))
        outcomes: list[Any] = [homes[row.decision] for row in feedback]
        known = [i for i, home in enumerate(outcomes) if isinstance(home, int)]
        unavailable = [home for home in outcomes if isinstance(home, NotDurable)]
        if unavailable:
            raise unavailable[0]
        if known:
            answers = await self._dealt(
                RECORD, placement, [feedback[i] for i in known], [outcomes[i] for i in known]
            )
            for i, answer in zip(known, answers, strict=True):
                outcomes[i] = answer
        return outcomes

    async def _dealt(
        self, what: str, placement: str, given: Sequence[Any], shards: Sequence[int]
    ) -> list[Any]:
        """Send each request to its shard, one batch per shard; return the answers in order."""
        parts: dict[int, list[int]] = {}
        for place, shard in enumerate(shards):
            parts.setdefault(shard, []).append(place)
        answers = await self._of_all(
            self.links[shard].serve((what, placement, [given[place] for place in places]))
            for shard, places in parts.items()
        )
        results: list[Any] = [None] * len(given)
        for places, answer in zip(parts.values(), answers, strict=True):
            for place, result in zip(places, answer, strict=True):
                results[place] = result
        return results

    async def ask(self, placement: str, request: Any, who: str | None = None) -> Any:
        """Change a placement in every shard; otherwise as ``Engine.ask``.

        For some changes the first shard decides and the others follow; a shard that is down follows before
        it serves again.

        Raises
        ------
        UnknownName, InvalidValue
            As ``Engine.ask``; then nothing changes.
        NotDurable
            If a shard is down. If the first shard leads and is down, nothing changes.
        """
        view, change = self.placement(placement), CHANGES[type(request)]
        first, asked = self.links[0], (placement, request, who)
        if change.leads:
            await first.engine("ask", *asked)
            await self._lead({placement: (await first.call("arms"))[placement]}, who)
            return change.answer(view, self.clock())
        if change.in_shards:
            return await self._ask_shards(asked)
        change.mark(view, request, self.clock())
        answers = await self._of_all(link.engine("ask", *asked) for link in self.links)
        await self._look()
        return answers[0]

    async def _ask_shards(self, asked: tuple[Any, ...]) -> Any:
        """Apply a change to the first shard, then to all others; if the first refuses, nothing changes."""
        first, *others = self.links
        if not all(link.up for link in self.links):
            raise NotDurable("shard: one is being started again, and nothing was changed; try again later")
        answer = await first.engine("ask", *asked)
        await self._of_all(link.engine("ask", *asked) for link in others)
        await self._look()
        return answer

    async def forget(self, subject: Subject, who: str | None = None) -> dict[str, BlankedRows]:
        """Erase a person's data in every shard; otherwise as ``Engine.forget``."""
        calls = (link.engine("forget", subject, who) for link in self.links)
        return added(*await asyncio.gather(*calls))

    async def key(self, placement: str, key: str) -> KeyFacts:
        """Return the state of a key from its shard; otherwise as ``Engine.key``."""
        spread = self.placement(placement).config.spread
        partition = partition_asked(placement, key, None, spread)
        shard = 0 if partition is None else shard_of(partition, len(self.links))
        facts: KeyFacts = await self.links[shard].engine("key", placement, key)
        return facts

    async def busiest(self, placement: str) -> list[KeyFacts]:
        """Return the busiest keys of all shards; otherwise as ``Engine.busiest``."""
        return busiest_of(await self._of_each("busiest", placement))

    async def find_keys(self, placement: str, text: str) -> KeysFound:
        """Return the matching keys of all shards; otherwise as ``Engine.find_keys``."""
        return found_in(await self._of_each("find_keys", placement, text))

    async def _of_each(self, what: str, placement: str, *given: Any) -> list[Any]:
        """Query every shard, or only the first if all have the same keys."""
        spread = self.placement(placement).config.spread
        links = self.links[:1] if spread else self.links
        parts = await asyncio.gather(*(link.engine(what, placement, *given) for link in links))
        return list(parts)

    async def for_whom(self, placement: str, limit: int = LATEST) -> ForWhom:
        """Return the arms shown per segment, from the busiest shard; otherwise as ``Engine.for_whom``."""
        return of_shards(await self._of_each("for_whom", placement, limit))

    async def verdict(self, placement: str, *asked: Any, **options: Any) -> ReadVerdict:
        """Raise an error: no shard has the whole log of duels."""
        check_path(self.placement(placement), "duel")
        raise InvalidValue("placement", placement, NOT_IN_SHARDS)

    async def states(self, placement: str) -> list[State]:
        """Return an empty list: shards keep no states for a rollback."""
        self.placement(placement)
        return []

    async def rebuild(self, placement: str, spec: Any, who: str | None = None) -> Replacement:
        """Raise an error: shards cannot switch to another policy at the same time."""
        self.placement(placement)
        raise InvalidValue("placement", placement, NO_REBUILD_IN_SHARDS)

    async def rollback(self, placement: str, to: str | None = None, who: str | None = None) -> Replacement:
        """Raise an error, as :meth:`rebuild`."""
        return await self.rebuild(placement, to, who)

    async def history(self, placement: str) -> list[LoggedChange]:
        """Return the change history of a placement, which is the same in every shard."""
        self.placement(placement)
        return await self.links[0].engine("history", placement)  # type: ignore[no-any-return]

    async def _lead(self, arms: dict[str, str], who: str | None = None) -> None:
        """Give the arms of the first shard to all other shards and to this ingress."""
        for name, now in arms.items():
            if name in self.placements:
                known = self.placements[name]
                known.living.have(known, now, self.clock())
        behind = []
        for link in self.links[1:]:
            link.leading |= arms
            if link.up and any(link.arms.get(name) != now for name, now in arms.items()):
                behind.append(link)
        calls = (link.call("follow", arms, who) for link in behind)
        results = await asyncio.gather(*calls, return_exceptions=True)
        for link, result in zip(behind, results, strict=True):
            # A lost shard gets the arms when it is back.
            if isinstance(result, BaseException) and link.up:
                raise result
            link.arms = link.arms | arms

    async def lend(self, placement: str, shard: int | None = None) -> Lent:
        """Return a shard's learned state; otherwise as ``Engine.lend``.

        Raises
        ------
        InvalidValue
            As there; also without a shard, because no shard has learned everything.
        """
        self.placement(placement)
        if shard is None or shard >= len(self.links):
            raise InvalidValue("shard", shard, f"give one of 0 to {len(self.links) - 1}: each learned a part")
        seq, content = await self.links[shard].call("lend", placement)
        return Lent(self, seq, [content])

    async def lends(self, placement: str) -> list[int | None]:
        """Return the log position of each shard, None if it is down; otherwise as ``Engine.lends``."""
        self.placement(placement)
        calls = (link.engine("lends", placement) for link in self.links)
        rows: list[int | None] = []
        for found in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(found, BaseException) and not isinstance(found, NotDurable):
                raise found
            rows += [None] if isinstance(found, BaseException) else found
        return rows

    async def reload(self, config: Config) -> None:
        """Adopt a new configuration, which every shard has adopted.

        Raises
        ------
        TacitError
            As :class:`LeadingIngress`.
        """
        before, self.config = self.config, config
        self.placements = {
            name: self.placements[name] if before.placements.get(name) == each else sharded_view(name, each)
            for name, each in config.placements.items()
        }
        await self._look()
        await self._lead(self.links[0].arms)

    @staticmethod
    async def _of_all(calls: Iterable[Awaitable[Any]]) -> list[Any]:
        """Wait for all calls; return the answers, or raise the first error."""
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return list(results)

    # Monitoring ------------------------------------------------------------------------------

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
                # Includes shards that could not be reached before.
                await self._lead(self.links[0].arms)
            except Exception:
                logger.exception("the shards could not be looked at")

    async def _look(self) -> None:
        """Refresh the data behind the page and the metrics from all shards."""
        await asyncio.gather(*(link.look() for link in self.links))
        for name, placement in self.placements.items():
            assert isinstance(placement, ShardedView)
            placement.show([link.snapshots[name] for link in self.links if name in link.snapshots])

    @property
    def waiting(self) -> int:
        """Number of pending requests, here and in the shards."""
        return sum(link.waiting for link in self.links)

    def health(self) -> Health:
        """Return the combined health of all shards; events and bytes are sums."""
        known = [link.health for link in self.links if link.health is not None]
        times = [vitals.committed for vitals in known if vitals.committed is not None]
        return Health(
            ready=not self._stopping
            and len(known) == len(self.links)
            and all(vitals.ready for vitals in known)
            and all(link.up for link in self.links),
            events=sum(vitals.events for vitals in known),
            bytes=sum(vitals.bytes for vitals in known),
            rate=sum(vitals.rate for vitals in known),
            committed=max(times, default=None),
            commit_seconds=max((vitals.commit_seconds for vitals in known), default=0.0),
            buffered=sum(vitals.buffered for vitals in known),
            recovery_seconds=max((vitals.recovery_seconds for vitals in known), default=0.0),
            wall_ahead=max((vitals.wall_ahead for vitals in known), key=abs, default=0.0),
        )

    def shards(self) -> list[ShardHealth]:
        """Return the health of every shard."""
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

    def shared_seconds(self, placement: str) -> float | None:
        """Return None: only the leading ingress knows the age of what shards share."""
        return None


def _home(placement: str, id: str, known: Sequence[bool | BaseException]) -> int | TacitError:
    """Return the shard that has a decision, from the answers of all, or the error if none or several do."""
    knowing = [shard for shard, answer in enumerate(known) if answer is True]
    if len(knowing) > 1:
        return InConflict(f"decision_id: {id!r} stands for decisions of several keys")
    if knowing:
        return knowing[0]
    for answer in known:
        if isinstance(answer, BaseException):
            return NotDurable("shard: one that may know the decision is down; try again later")
    return UnknownDecision(
        f"decision_id: placement {placement!r} made no decision {id!r}; send the id that its answer gave"
    )
