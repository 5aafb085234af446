"""What the engine knows ahead of the log: placements, and the rows that are not written yet.

A group of requests is applied here at once: time goes by, modes are switched, decisions chosen and
feedback taken in, and the rows of all this wait in the order in which it was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from tacit.arrays import Ints
from tacit.errors import InvalidValue, TacitError
from tacit.service.attribution import DUPLICATE, Content
from tacit.service.blocks import Block, distinct, values
from tacit.service.errors import Conflict, RepeatedFeedback, UnknownDecision
from tacit.service.impressions import Impression
from tacit.service.placement import Placement
from tacit.service.requests import Ask, Request, Share, Switch, Tell, Told
from tacit.service.rows import REWARD, TICK, DecisionRow, FeedbackRow, Found, MarkRow, Rows
from tacit.service.sharing import Told as Learned
from tacit.service.slots import Shard

MOST_FEEDBACK = 100

Key = tuple[int, str]
"""A placement's number and a decision's id."""
Outcome = str | TacitError


class Memory:
    """Placements, and what happened to them that is not in the log yet.

    Parameters
    ----------
    placements : dict of str to Placement
    seq : int
        The last row of the log.
    buffers : function
        Says of a placement's name whether it may run ahead of the log.
    shard : Shard, optional
        Which one of several this is.

    Attributes
    ----------
    tail : Rows
        Rows that wait to be written.
    flight : Rows
        Rows that are being written.
    broken : set of str
        Names of the placements that have run ahead of the log and may not.
    """

    def __init__(
        self,
        placements: dict[str, Placement],
        seq: int,
        buffers: Callable[[str], bool],
        shard: Shard | None = None,
    ) -> None:
        self.placements = placements
        self.seq = seq
        self.tail = Rows.none()
        self.flight = Rows.none()
        self.broken: set[str] = set()
        self._buffers = buffers
        self._shard = shard
        self._aloft: dict[Key, Found] = {}

    # What is known ---------------------------------------------------------------------------

    def unknown(self, requests: Sequence[Request]) -> list[Key]:
        """Return what only the store can tell of."""
        unknown: dict[Key, None] = {}
        for placement, ids in self._named(requests):
            if None in map(placement.windows.find, ids):
                find = placement.windows.find
                keys = [(placement.id, id) for id in ids if find(id) is None]
                unknown.update((key, None) for key in keys if key not in self._aloft)
        return list(unknown)

    def remembered(self, placement: Placement, id: str) -> DecisionRow | None:
        """Return a decision, if it is not too long ago."""
        slot = placement.windows.find(id)
        if slot is not None:
            return placement.windows.row(slot)
        # A short window may have closed before its decision was committed.
        made = self._aloft.get((placement.id, id))
        return None if made is None else made.decision

    def _named(self, requests: Sequence[Request]) -> Iterator[tuple[Placement, list[str]]]:
        """Give the decisions that each request names."""
        for request in requests:
            if isinstance(request, Ask):
                ids = [id for id in values(request.impressions, "id") if id is not None]
            elif isinstance(request, Tell):
                ids = values(request.told, "decision")
            else:
                continue
            if ids:
                yield self.placements[request.placement], ids

    # Writing ---------------------------------------------------------------------------------

    def take_off(self) -> None:
        """Begin a commit."""
        self.flight, self.tail = self.tail, Rows.none()

    def land(self, *, keep: bool) -> None:
        """End a commit; if it failed, keep the rows that memory may run ahead with."""
        flight, self.flight = self.flight, Rows.none()
        if keep:
            self.tail = self._undone(flight).and_then(self.tail)
        if not self._aloft:
            return
        behind = self._committing
        for row in flight.decisions:
            if not keep or row.placement in behind:
                self._aloft.pop((row.placement, row.id), None)

    def forget(self) -> None:
        """Take all placements for broken: nobody knows how far a group has come."""
        self.broken |= set(self.placements)
        self.tail = Rows.none()

    @property
    def _committing(self) -> dict[int, str]:
        """The placements whose rows may not be ahead of the log."""
        return {p.id: name for name, p in self.placements.items() if not self._buffers(name)}

    def _undone(self, rows: Rows) -> Rows:
        """Mark the placements whose rows may not be ahead of the log; return the others' rows."""
        behind = self._committing
        for row in rows.all():
            if row.placement in behind:
                self.broken.add(behind[row.placement])
        return rows.those(lambda row: row.placement not in behind)

    # One group -------------------------------------------------------------------------------

    def apply(
        self, requests: Sequence[Request], found: dict[Key, Found], now: int
    ) -> list[Any | Exception]:
        """Let time go by, switch modes, decide, take feedback in: in this order.

        Parameters
        ----------
        requests : sequence of Request
        found : dict
            What the store told of what is :meth:`unknown`.
        now : int
            Time of the log.

        Returns
        -------
        list
            For each request its result, or the error that it met.
        """
        closing = [p for p in self.placements.values() if (p.windows.due or now + 1) <= now]
        if closing:
            self._keep_closing(requests, found, now)
        for placement in self.placements.values():
            placement.advance(now)
        before = self.seq
        results: dict[int, Any] = {}
        for i, request in enumerate(requests):
            if isinstance(request, Switch):
                self._switch(request, now)
                results[i] = None
        asks = {i: request for i, request in enumerate(requests) if isinstance(request, Ask)}
        results |= self._choose(asks, found, now)
        tells = {i: request for i, request in enumerate(requests) if isinstance(request, Tell)}
        results |= self._take_in(tells, found, now)
        for i, request in enumerate(requests):
            if isinstance(request, Share):
                results[i] = self._share(request, now)
        if closing and self.seq == before:
            # Nothing else in the log says that these windows have closed.
            self.tail.marks.append(MarkRow(self._next(), None, now, TICK, ""))
        return [results[i] for i in range(len(requests))]

    def _keep_closing(self, requests: Sequence[Request], found: dict[Key, Found], now: int) -> None:
        """Remember the decisions that are asked for while their windows close."""
        for placement, named in self._named(requests):
            windows = placement.windows
            for id in named:
                slot = windows.find(id)
                if slot is not None and windows.deadline(slot) <= now:
                    row, contents = windows.row(slot), windows.contents(slot)
                    times = windows.times_told(slot)
                    nameless = [(None, (REWARD, None, None))] * times
                    told = [
                        FeedbackRow(0, placement.id, row.seq, name, 0, *content)
                        for name, content in [*contents.items(), *nameless]
                    ]
                    found[placement.id, id] = Found(row, told[:times])

    def _next(self) -> int:
        self.seq += 1
        return self.seq

    def _switch(self, request: Switch, now: int) -> None:
        placement = self.placements[request.placement]
        if placement.stands(request.kind) != request.value:
            mark = MarkRow(self._next(), placement.id, now, request.kind, request.value)
            placement.marked(mark)
            self.tail.marks.append(mark)

    def _share(self, request: Share, now: int) -> Learned:
        placement = self.placements[request.placement]
        shared, parts = placement.shared, {}
        if shared is not None:
            parts = shared.told(placement.learner, request.everything)
        return Learned(0 if self._shard is None else self._shard.number, now, parts)

    # Decide ----------------------------------------------------------------------------------

    def _choose(self, asks: dict[int, Ask], found: dict[Key, Found], now: int) -> dict[int, Any]:
        """Decide what was not decided before; those of a placement at once."""
        results: dict[int, Any] = {}
        fresh: dict[str, _Fresh] = {}
        for i, ask in asks.items():
            new = fresh.get(ask.placement)
            if new is None:
                new = fresh[ask.placement] = _Fresh()
            try:
                placement = self.placements[ask.placement]
                results[i] = self._sorted(placement, ask.impressions, found, new)
            except Conflict as error:
                results[i] = error
        for name, new in fresh.items():
            new.rows = self._chosen(name, new.block(), now) if new.size else []
        for i, result in results.items():
            if not isinstance(result, Exception):
                results[i] = fresh[asks[i].placement].picked(result)
        return results

    def _chosen(self, name: str, asked: Block[Impression], now: int) -> Block[DecisionRow]:
        rows = self.placements[name].choose(asked, self.seq + 1, now)
        self.seq += len(rows)
        self.tail.decisions.extend(rows)
        if self._buffers(name):
            self._aloft.update(((row.placement, row.id), Found(row, [])) for row in rows)
        return rows

    def _sorted(
        self,
        placement: Placement,
        asked: Sequence[Impression],
        found: dict[Key, Found],
        new: _Fresh,
    ) -> range | list[DecisionRow | int]:
        """Take over what is new; say for each the decision, or its place in what is new.

        Raises
        ------
        Conflict
            If an id stands for another decision; then nothing is taken over.
        """
        ids = values(asked, "id")
        if ids.count(None) == len(ids):
            return new.take(asked)
        answers: list[DecisionRow | int] = []
        begun = new.mark()
        try:
            for told in asked:
                answer = None
                if told.id is not None:
                    answer = self._made_before(placement, told, found, new)
                answers.append(new.take_one(told) if answer is None else answer)
        except Conflict:
            # Of a batch all or nothing is decided.
            new.undo(begun)
            raise
        return answers

    def _made_before(
        self, placement: Placement, told: Impression, found: dict[Key, Found], new: _Fresh
    ) -> DecisionRow | int | None:
        """Return the decision of this id, or its place in this group, or None if it is new."""
        assert told.id is not None
        row = self.remembered(placement, told.id)
        if row is None and (placement.id, told.id) in found:
            row = found[placement.id, told.id].decision
        answer: DecisionRow | int
        if row is not None:
            same, answer = placement.asked_before(told, row), row
        elif told.id in new.named:
            answer = new.named[told.id]
            same = new.at(answer) == told
        else:
            return None
        if not same:
            raise Conflict(
                f"decision_id: {told.id!r} stands for a decision on other terms; "
                "send the same request, or another id"
            )
        return answer

    # Feedback --------------------------------------------------------------------------------

    def _take_in(
        self, tells: dict[int, Tell], found: dict[Key, Found], now: int
    ) -> dict[int, list[Outcome]]:
        """Take feedback in; that of a placement at once."""
        told: dict[str, list[Sequence[Told]]] = {}
        for tell in tells.values():
            told.setdefault(tell.placement, []).append(tell.told)
        outcomes = {
            name: iter(self._tell(name, Block.joined(Told, parts), found, now))
            for name, parts in told.items()
        }
        return {
            i: list(islice(outcomes[tell.placement], len(tell.told))) for i, tell in tells.items()
        }

    def _tell(
        self, name: str, told: Block[Told], found: dict[Key, Found], now: int
    ) -> list[Outcome]:
        placement = self.placements[name]
        outcomes: list[Outcome] = []
        for part in distinct(told, "decision"):
            outcomes += self._tell_distinct(placement, part, found, now)
        return outcomes

    def _tell_distinct(
        self, placement: Placement, told: Block[Told], found: dict[Key, Found], now: int
    ) -> list[Outcome]:
        """Take in feedback in which no decision comes twice."""
        slots = self._all_fit(placement, told)
        if slots is not None:
            seqs, clicks = placement.windows.seqs(slots), [None] * len(told)
            return list(placement.told(self._logged(placement, told, seqs, clicks, now), slots))
        judged = [self._judged(placement, one, found) for one in told]
        accepted = [i for i, (row, _) in enumerate(judged) if row is not None]
        seqs = [row.seq for row, _ in judged if row is not None]
        clicks = [judged[i][1] for i in accepted]
        rows = self._logged(placement, told.those(accepted), seqs, clicks, now)
        for i, row in zip(accepted, rows, strict=True) if found or self._aloft else ():
            key = placement.id, told[i].decision
            before = found.get(key) or self._aloft.get(key)
            if before is not None:
                before.feedback.append(row)
        became = iter(placement.told(rows) if accepted else ())
        return [next(became) if row is not None else why for row, why in judged]

    def _all_fit(self, placement: Placement, told: Block[Told]) -> Ints | None:
        """Return the slots of the decisions where all feedback is fit at first sight."""
        plain = placement.shows_one and set(told.column("kind")) == {REWARD}
        if self._aloft or not plain or any(told.column("id")):
            return None
        windows = placement.windows
        found = list(map(windows.find, told.column("decision")))
        if None in found:
            return None
        slots = np.array(found, np.int64)
        return slots if windows.told_less(slots, MOST_FEEDBACK) else None

    def _logged(
        self,
        placement: Placement,
        told: Block[Told],
        seqs: list[int],
        clicks: Sequence[str | None],
        now: int,
    ) -> Block[FeedbackRow]:
        """Log feedback that is accepted."""
        count = len(told)
        columns = (
            list(range(self.seq + 1, self.seq + 1 + count)),
            [placement.id] * count,
            seqs,
            told.column("id"),
            [now] * count,
            told.column("kind"),
            told.column("reward"),
            list(clicks),
        )
        rows: Block[FeedbackRow] = Block(FeedbackRow, columns)
        self.seq += count
        self.tail.feedback.extend(rows)
        return rows

    def _judged(
        self, placement: Placement, told: Told, found: dict[Key, Found]
    ) -> tuple[DecisionRow | None, Any]:
        """Return the decision and the clicked positions as the log keeps them; or why not."""
        windows = placement.windows
        slot = windows.find(told.decision)
        if slot is not None:
            decision, known = windows.row(slot), windows.contents(slot)
            times = windows.times_told(slot)
        else:
            key = placement.id, told.decision
            before = found.get(key) or self._aloft.get(key)
            if before is None:
                return None, UnknownDecision(
                    f"decision_id: placement {placement.name!r} made no decision "
                    f"{told.decision!r}; send the id that its answer gave"
                )
            rows = before.feedback
            decision, known, times = before.decision, _contents(rows), len(rows)
        try:
            clicks = placement.positions(decision, told.kind, told.clicks)
        except InvalidValue as error:
            return None, error
        if told.id is not None and told.id in known:
            if known[told.id] == (told.kind, told.reward, clicks):
                return None, DUPLICATE
            return None, Conflict(
                f"feedback_id: {told.id!r} stands for other feedback; send the same, or another id"
            )
        if times >= MOST_FEEDBACK:
            return None, RepeatedFeedback(
                f"decision_id: {told.decision!r} has had feedback {times} times; send no more"
            )
        return decision, clicks


class _Fresh:
    """What is to be decided for a placement, of all requests of a group.

    Attributes
    ----------
    named : dict of str to int
        Where the impressions are whose ids the clients gave.
    size : int
        How many there are.
    rows : sequence of DecisionRow
        What was decided, once it is.
    """

    def __init__(self) -> None:
        self.named: dict[str, int] = {}
        self.size = 0
        self.rows: Sequence[DecisionRow] = []
        self._parts: list[Sequence[Impression]] = []
        self._each: list[DecisionRow] | None = None

    def take(self, asked: Sequence[Impression]) -> range:
        """Take impressions over; return their places."""
        self._parts.append(asked)
        self.size += len(asked)
        return range(self.size - len(asked), self.size)

    def take_one(self, told: Impression) -> int:
        """Take an impression over; return its place."""
        (place,) = self.take([told])
        if told.id is not None:
            self.named[told.id] = place
        return place

    def at(self, place: int) -> Impression:
        """Return the impression at a place."""
        return next(islice(chain.from_iterable(self._parts), place, None))

    def mark(self) -> int:
        """Return a moment for :meth:`undo`."""
        return len(self._parts)

    def undo(self, mark: int) -> None:
        """Give back what was taken over since."""
        for part in self._parts[mark:]:
            self.size -= len(part)
            for id in values(part, "id"):
                self.named.pop(id, None)
        del self._parts[mark:]

    def block(self) -> Block[Impression]:
        """Return all of it."""
        return Block.joined(Impression, self._parts)

    def picked(self, answers: range | list[DecisionRow | int]) -> Sequence[DecisionRow]:
        """Return the decisions that answer a request."""
        if len(answers) == len(self.rows) and isinstance(answers, range):
            return self.rows
        if self._each is None:
            self._each = list(self.rows)
        if isinstance(answers, range):
            return self._each[answers.start : answers.stop]
        each = self._each
        return [each[answer] if isinstance(answer, int) else answer for answer in answers]


def _contents(rows: Sequence[FeedbackRow]) -> dict[str, Content]:
    return {row.id: row.content for row in rows if row.id}
