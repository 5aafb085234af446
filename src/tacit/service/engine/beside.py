"""What is done beside the groups: the past is read, somebody is forgotten, shards tell what they learned."""

# Three classes, each given the engine that it serves: ``Logbook`` reads the past on the store's thread,
# ``Forgetting`` blanks somebody in log and archive, ``ShardExchange`` gives and takes what shards learn.

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from tacit.service.engine.following import Configured, Following
from tacit.service.engine.verdicts import Verdicts
from tacit.service.engine.writer import Writer
from tacit.service.errors import NotDurable, StoreError
from tacit.service.log.marks import LoggedChange
from tacit.service.log.requests import Export, Mark
from tacit.service.log.rows import ARMS, FORGET, MERGE, DecisionRow, Event, MarkRow
from tacit.service.log.searches import Subject
from tacit.service.log.store import BlankedRows, End, Store, added
from tacit.service.placements.aspects.shared import Learned
from tacit.service.placements.changes import changes_of
from tacit.service.placements.placement import Placement

# ---- The past: what the log says of decisions and changes


class Logbook:
    """Reads the log of an engine.

    Parameters
    ----------
    store : Store
    writer : Writer
    """

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store, self._writer = store, writer

    async def made(self, placement: Placement, ids: Sequence[str]) -> dict[str, DecisionRow]:
        """Return those decisions that a placement made, by their ids."""
        remembered = self._writer.pending.remembered
        rows = {id: row for id in ids if (row := remembered(placement, id)) is not None}
        wanted = [(placement.id, id) for id in ids if id not in rows]
        found = await self._writer.of_store(self._store.find, wanted) if wanted else {}
        return rows | {id: one.decision for (_, id), one in found.items()}

    async def history(self, placement: Placement) -> list[LoggedChange]:
        """Return who changed what of a placement, in order."""
        first, changes = placement.living.began_with, self._store.changes
        return await self._writer.of_store(lambda: changes_of(changes(placement.id), first))

    async def rows(self, after: int, count: int) -> list[Event]:
        """Return the next rows of the log."""
        return await self._writer.of_store(lambda: list(islice(self._store.events(after), count)))


# ---- Somebody is forgotten: what was learned stays, what the log and the archive tell of them is blank


class Forgetting:
    """Forgets people and keys.

    Parameters
    ----------
    engine : Configured
    store : Store
    writer : Writer
    verdicts : Verdicts
        They read the log from its beginning again afterwards.
    """

    def __init__(self, engine: Configured, store: Store, writer: Writer, verdicts: Verdicts) -> None:
        self._engine, self._store, self._writer, self._verdicts = engine, store, writer, verdicts

    async def forget(self, subject: Subject, who: str | None) -> dict[str, BlankedRows]:
        """Blank what rows of the log and of the archive tell of somebody.

        What was learned stays. Who is to be forgotten again has nothing left.

        Parameters
        ----------
        subject : Subject
        who : str or None
            Who wants it so.

        Returns
        -------
        dict of str to BlankedRows
            How many rows it was, of each placement where there were any.

        Raises
        ------
        NotDurable
            If the store fails; then nothing has changed.
        """
        done: dict[str, BlankedRows] = {}

        async def step() -> None:
            done.update(await self._blanked(subject, who))

        try:
            await self._writer.between_groups(step)
        except StoreError as error:
            raise NotDurable(f"{error}; nothing has changed, try again later") from error
        self._verdicts.begin_anew()
        archive = self._engine.config.store.archive
        # Afterwards: what goes there from now on is blank.
        return done if archive is None else added(done, await self._blanked_in(Path(archive), subject))

    async def _blanked(self, subject: Subject, who: str | None) -> dict[str, BlankedRows]:
        pending, worker = self._writer.pending, self._writer.worker
        with pending.freeze():
            end = End(pending.seq, pending.time.advance())
            try:
                done = await worker.do(self._store.forget, subject, end, who)
            finally:
                # A commit that seemed to fail may have worked.
                pending.seq = (await worker.do(self._store.end)).seq
        for name, placement in self._engine.placements.items():
            if name in done:
                placement.marked(MarkRow(pending.seq, placement.id, end.time, FORGET, ""))
                pending.touch([name])
        return done

    async def _blanked_in(self, folder: Path, subject: Subject) -> dict[str, BlankedRows]:
        from tacit.service.log.archive import forget_archived

        placements = await self._writer.of_store(self._store.placements)
        try:
            return await asyncio.to_thread(forget_archived, folder, subject, placements)
        except OSError as error:
            raise NotDurable(f"store.archive: {error}; do it again") from error


# ---- Shards of one service: what they tell each other of arms, and of what they learned


class ShardExchange:
    """What an engine tells and hears where it is one of several shards.

    Parameters
    ----------
    engine : Configured
    following : Following
    writer : Writer
    """

    def __init__(self, engine: Configured, following: Following, writer: Writer) -> None:
        self._engine, self._following, self._writer = engine, following, writer

    def arms(self) -> dict[str, str]:
        """Return all arms of each placement where they come and go, as marks hold them."""
        living = (each for each in self._engine.placements.values() if each.kind.living)
        return {each.name: each.current_mark(ARMS) or "" for each in living}

    async def follow(self, arms: Mapping[str, str], who: str | None = None) -> None:
        """Have the arms of the first shard, as :meth:`arms` gives them; returns when durable.

        Raises
        ------
        NotDurable
            If that could not be made durable.
        """
        self._following.leading = {**self._following.leading, **arms}
        for name, now in arms.items():
            if name in self._engine.placements:
                await self._writer.ask(Mark(name, now, ARMS, who))

    async def learned(self, placement: str, everything: bool = False) -> Learned:
        """Return what was learned here, as far as it is durable, for other shards.

        Parameters
        ----------
        placement : str
            One that shares what it learns.
        everything : bool
            By default only what was learned since the last call.

        Raises
        ------
        UnknownName, NotDurable
            If there is no such placement, or the store fails.
        """
        self._engine.placement(placement)
        time, parts = await self._writer.ask(Export(placement, everything))
        return Learned(0 if self._engine.shard is None else self._engine.shard.number, time, parts)

    async def take_in(self, placement: str, learned: Learned) -> None:
        """Learn what another shard has learned; returns when it is durable.

        Raises
        ------
        UnknownName, NotDurable
            As :meth:`learned`.
        """
        known = self._engine.placement(placement)
        if known.shared is not None:
            news = known.shared.news(known, learned)
            if news.parts:
                value = msgspec.json.encode(news).decode()
                await self._writer.ask(Mark(placement, value, MERGE))
