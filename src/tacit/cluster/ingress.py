"""The ingress: it checks requests as one server does, and hands each to the shard of its key."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from tacit.cluster.exchange import Exchange
from tacit.cluster.link import Link
from tacit.cluster.overview import ShardedView, sharded_view
from tacit.cluster.shard import DECIDE, KEEP, MADE, RECORD
from tacit.cluster.spares import Spares
from tacit.errors import InvalidValue, TacitError
from tacit.learning.offer import Offer
from tacit.service.config.schema import Config
from tacit.service.engine.commits import Commits
from tacit.service.engine.health import Health, ShardHealth
from tacit.service.engine.service import NOT_IN_SHARDS
from tacit.service.engine.verbs import Verbs
from tacit.service.errors import Conflict, Unavailable, UnknownDecision
from tacit.service.log.clock import LogClock
from tacit.service.log.impressions import Impression
from tacit.service.log.requests import ChangeArms, Feedback, checked_feedback
from tacit.service.log.rows import DecisionRow, RecordRow
from tacit.service.log.slots import shard_of, slot_asked, slot_in, slot_of
from tacit.service.stores.layout import check_kinds

LOOK_SECONDS = 1.0
MOST_REMEMBERED = 100_000

logger = logging.getLogger(__name__)


class Ingress(Verbs):
    """A service whose requests shards answer.

    Parameters
    ----------
    config : Config
        Its placements have seeds.
    links : sequence of Link
    spares : Spares
    merge_seconds : float
        How often what is learned for all keys is shared.
    seeded : function
        Returns a configuration with the seeds of its placements.
    closed : function
        Called at the end.
    """

    def __init__(
        self,
        config: Config,
        links: Sequence[Link],
        spares: Spares,
        merge_seconds: float,
        seeded: Callable[[Config], Config],
        closed: Callable[[], None],
    ) -> None:
        self.config = config
        self.clock: Callable[[], int] = LogClock()
        self.kept: Counter[tuple[str, str]] = Counter()
        self.commits = Commits()
        self.links = links
        self._spares = spares
        self.placements = {
            name: sharded_view(name, each) for name, each in config.placements.items()
        }
        self._exchange = Exchange(links, merge_seconds)
        self._seeded, self._closed = seeded, closed
        self._turns = itertools.cycle(range(len(links)))
        self._homes: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    async def start(self) -> None:
        """Begin to serve, once every shard has opened its log."""
        await asyncio.gather(*(link.open() for link in self.links))
        await self._look()
        self._tasks = [
            asyncio.create_task(self._keep_looking()),
            asyncio.create_task(self._exchange.run()),
            asyncio.create_task(self._spares.refill()),
        ]

    async def stop(self) -> None:
        """Let every shard finish what waits."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(link.stop() for link in self.links), return_exceptions=True)
        self._spares.close()
        self._closed()

    # Where to --------------------------------------------------------------------------------

    def _shard_asked(self, placement: str, impression: Impression) -> int:
        spread = self.config.placements[placement].spread
        slot = slot_asked(placement, impression.key, impression.id, spread)
        if slot is None:
            return next(self._turns)
        shard = shard_of(slot, len(self.links))
        if impression.id is not None:
            # A shard cannot know what another one has decided.
            home = self._homes.setdefault((placement, impression.id), shard)
            if home != shard or slot_in(impression.id) not in (None, slot):
                raise Conflict(
                    f"decision_id: {impression.id!r} stands for a decision of another key; "
                    "send the same request, or another id"
                )
            if len(self._homes) > MOST_REMEMBERED:
                self._homes.popitem(last=False)
        return shard

    async def _shards_of(self, placement: str, ids: Iterable[str]) -> dict[str, int | TacitError]:
        """Return the shard of each decision; of ids that clients gave, by asking all shards."""
        homes: dict[str, int | TacitError] = {}
        strange = []
        for id in ids:
            slot = slot_in(id)
            home = self._homes.get((placement, id))
            if home is not None:
                homes[id] = home
            elif slot is not None:
                homes[id] = shard_of(slot, len(self.links))
            else:
                strange.append(id)
        if strange:
            answers = await asyncio.gather(
                *(link.serve((MADE, placement, strange)) for link in self.links),
                return_exceptions=True,
            )
            for id in strange:
                known = [one if isinstance(one, BaseException) else id in one for one in answers]
                homes[id] = _home(placement, id, known)
        return homes

    # Requests --------------------------------------------------------------------------------

    async def decide_many(
        self, placement: str, impressions: Sequence[Impression]
    ) -> Sequence[DecisionRow]:
        """Choose for many impressions; of those of one shard, all or none.

        Raises
        ------
        UnknownName, InvalidValue, Conflict, Unavailable
            As ``Engine.decide_many``.
        """
        self.placement(placement)
        shards = [self._shard_asked(placement, one) for one in impressions]
        if len(shards) == 1:
            rows: list[DecisionRow] = await self.links[shards[0]].serve(
                (DECIDE, placement, impressions)
            )
        else:
            rows = await self._dealt(DECIDE, placement, impressions, shards)
        return rows

    async def record_many(
        self, placement: str, feedback: Sequence[Feedback]
    ) -> list[str | TacitError]:
        """Record much feedback; otherwise as ``Engine.record_many``.

        Raises
        ------
        UnknownName, InvalidValue
            As there; then nothing was recorded.
        Unavailable
            If a shard is down. What others recorded stays: feedback with an id can be sent again.
        """
        lowest = self.placement(placement).config.rule.lowest
        feedback = checked_feedback(feedback, lowest)
        homes = await self._shards_of(placement, dict.fromkeys(one.decision for one in feedback))
        outcomes: list[Any] = [homes[one.decision] for one in feedback]
        known = [i for i, home in enumerate(outcomes) if isinstance(home, int)]
        unavailable = [home for home in outcomes if isinstance(home, Unavailable)]
        if unavailable:
            raise unavailable[0]
        if known:
            answers = await self._dealt(
                RECORD, placement, [feedback[i] for i in known], [outcomes[i] for i in known]
            )
            for i, answer in zip(known, answers, strict=True):
                outcomes[i] = answer
        return outcomes

    async def made(self, placement: str, ids: Sequence[str]) -> dict[str, DecisionRow]:
        """Return those decisions that a placement made; otherwise as ``Engine.made``."""
        self.placement(placement)
        homes = await self._shards_of(placement, dict.fromkeys(ids))
        parts: dict[int, list[str]] = {}
        for id, home in homes.items():
            if isinstance(home, int):
                parts.setdefault(home, []).append(id)
            elif not isinstance(home, UnknownDecision):
                raise home
        found = await asyncio.gather(
            *(self.links[shard].serve((MADE, placement, some)) for shard, some in parts.items())
        )
        return {id: row for rows in found for id, row in rows.items()}

    async def keep(self, placement: str, records: Sequence[RecordRow]) -> list[str | None]:
        """Keep records, each in the shard of its id; otherwise as ``Engine.keep``."""
        self.placement(placement)
        shards = [shard_of(slot_of(placement, row.id), len(self.links)) for row in records]
        before = await self._dealt(KEEP, placement, records, shards)
        new = (row.kind for row, content in zip(records, before, strict=True) if content is None)
        self.kept.update((placement, kind) for kind in new)
        return before

    async def _dealt(
        self, what: str, placement: str, given: Sequence[Any], shards: Sequence[int]
    ) -> list[Any]:
        """Hand each of many to its shard; return the answers in their order."""
        parts: dict[int, list[int]] = {}
        for place, shard in enumerate(shards):
            parts.setdefault(shard, []).append(place)
        answers = await asyncio.gather(
            *(
                self.links[shard].serve((what, placement, [given[place] for place in places]))
                for shard, places in parts.items()
            ),
            return_exceptions=True,
        )
        results: list[Any] = [None] * len(given)
        for places, answer in zip(parts.values(), answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            for place, one in zip(places, answer, strict=True):
                results[place] = one
        return results

    async def switch(self, placement: str, mode: str) -> None:
        """Change a placement's mode in every shard; otherwise as ``Engine.switch``."""
        self.check_mode(placement, mode)
        await self._of_all(link.call("switch", placement, mode) for link in self.links)
        await self._look()

    async def note_settings(self, placement: str, settings: str) -> None:
        """Give a placement other settings in every shard; otherwise as for an engine."""
        self.placement(placement)
        await self._of_all(link.call("note_settings", placement, settings) for link in self.links)

    async def change_arms(self, change: ChangeArms) -> Offer:
        """Refuse to change arms: shards would not all have the same at every moment."""
        self.placement(change.placement)
        raise InvalidValue("placement", change.placement, NOT_IN_SHARDS)

    async def reload(self, config: Config) -> None:
        """Take over another configuration in every shard.

        Raises
        ------
        ConfigError, Unavailable
            If a shard cannot; another one may have by then.
        """
        check_kinds(config)
        config = await asyncio.to_thread(self._seeded, config)
        for link in self.links:
            link.config = msgspec.structs.replace(config, store=link.config.store)
        await self._of_all(link.call("reload", link.config) for link in self.links)
        before, self.config = self.config, config
        self.placements = {
            name: self.placements[name]
            if before.placements.get(name) == each
            else sharded_view(name, each)
            for name, each in config.placements.items()
        }
        await self._look()

    @staticmethod
    async def _of_all(calls: Iterable[Awaitable[Any]]) -> None:
        """Wait for all calls; raise the first error."""
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    # What there is to see --------------------------------------------------------------------

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except Exception:
                logger.exception("the shards could not be looked at")

    async def _look(self) -> None:
        """Bring up to date what the page and the metrics show."""
        await asyncio.gather(*(link.look() for link in self.links))
        for name, placement in self.placements.items():
            assert isinstance(placement, ShardedView)
            placement.show([link.snapshots[name] for link in self.links if name in link.snapshots])

    @property
    def waiting(self) -> int:
        """How many requests wait, here or in a shard."""
        return sum(link.waiting for link in self.links)

    def health(self) -> Health:
        """Return how all shards are, together: events and bytes are sums."""
        known = [link.health for link in self.links if link.health is not None]
        times = [one.committed for one in known if one.committed is not None]
        return Health(
            ready=not self._stopping
            and len(known) == len(self.links)
            and all(one.ready for one in known)
            and all(link.up for link in self.links),
            events=sum(one.events for one in known),
            bytes=sum(one.bytes for one in known),
            rate=sum(one.rate for one in known),
            committed=max(times, default=None),
            commit_seconds=max((one.commit_seconds for one in known), default=0.0),
            buffered=sum(one.buffered for one in known),
            recovery_seconds=max((one.recovery_seconds for one in known), default=0.0),
        )

    def shards(self) -> list[ShardHealth]:
        """Return every shard."""
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
        """Return how old what its shards know of each other is; None if they share nothing."""
        return self._exchange.age(placement)


def _home(placement: str, id: str, known: Sequence[bool | BaseException]) -> int | TacitError:
    """Return the shard that knows a decision, from what each has said."""
    knowing = [shard for shard, one in enumerate(known) if one is True]
    if len(knowing) > 1:
        return Conflict(f"decision_id: {id!r} stands for decisions of several keys")
    if knowing:
        return knowing[0]
    for one in known:
        if isinstance(one, BaseException):
            return Unavailable("shard: one that may know the decision is down; try again later")
    return UnknownDecision(
        f"decision_id: placement {placement!r} made no decision {id!r}; send the id that its "
        "answer gave"
    )
