"""Deciding for a group: what was decided before is answered again, the rest is chosen at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit.errors import TacitError
from tacit.service.engine.pending import Key, PendingLog
from tacit.service.errors import Conflict
from tacit.service.log.blocks import Block, values
from tacit.service.log.impressions import Impression
from tacit.service.log.requests import Decide
from tacit.service.log.rows import DecisionRow, Found

Answers = range | list[DecisionRow | int]
"""Decisions that were made before, and the places of new ones."""


def decide(
    pending: PendingLog, requests: Mapping[int, Decide], found: Mapping[Key, Found], now: int
) -> dict[int, Any]:
    """Return the decisions of each request, or the error that it met; then nothing of it is new.

    Parameters
    ----------
    pending : PendingLog
    requests : dict of int to Decide
    found : dict
        Decisions that the store knows.
    now : int
        Time of the log.
    """
    batches: dict[str, _Batch] = {}
    answers: dict[int, Any] = {}
    for i, request in requests.items():
        batch = batches.get(request.placement)
        if batch is None:
            batch = batches[request.placement] = _Batch(pending, request.placement, found)
        try:
            answers[i] = batch.add(request.impressions)
        except TacitError as error:
            answers[i] = error
    for batch in batches.values():
        batch.choose(now)
    return {
        i: answer if isinstance(answer, TacitError) else batches[requests[i].placement].decisions(answer)
        for i, answer in answers.items()
    }


class _Batch:
    """What a placement is to decide, of all requests of a group."""

    def __init__(self, pending: PendingLog, name: str, found: Mapping[Key, Found]) -> None:
        self._pending, self._name, self._found = pending, name, found
        self._placement = pending.placements[name]
        self._parts: list[Sequence[Impression]] = []
        self._size = 0
        # Impressions whose ids the clients gave, and their places.
        self._named: dict[str, tuple[int, Impression]] = {}
        self._rows: Sequence[DecisionRow] = []
        self._each: list[DecisionRow] | None = None

    def add(self, impressions: Sequence[Impression]) -> Answers:
        """Return each impression's decision if it was made before, or else its place.

        Raises
        ------
        Conflict
            If an id stands for another decision; then nothing is added.
        InvalidValue, UnknownName
            If an arm is no longer on offer; likewise.
        """
        ids = values(impressions, "id")
        if ids.count(None) == len(ids):
            self._placement.check_offered(impressions)
            return self._extended(impressions)
        answers: list[DecisionRow | int] = []
        new: list[Impression] = []
        named: dict[str, tuple[int, Impression]] = {}
        for impression in impressions:
            answer = self._made_before(impression, named)
            if answer is None:
                answer = self._size + len(new)
                new.append(impression)
                if impression.id is not None:
                    named[impression.id] = answer, impression
            answers.append(answer)
        self._placement.check_offered(new)
        self._named |= named
        self._extended(new)
        return answers

    def _extended(self, impressions: Sequence[Impression]) -> range:
        start = self._size
        self._parts.append(impressions)
        self._size += len(impressions)
        return range(start, self._size)

    def _made_before(
        self, impression: Impression, named: Mapping[str, tuple[int, Impression]]
    ) -> DecisionRow | int | None:
        """Return the decision of this id, or its place in this group, or None if it is new."""
        id = impression.id
        if id is None:
            return None
        row = self._pending.remembered(self._placement, id)
        if row is None and (self._placement.id, id) in self._found:
            row = self._found[self._placement.id, id].decision
        answer: DecisionRow | int
        if row is not None:
            same, answer = self._placement.asked_before(impression, row), row
        elif id in named or id in self._named:
            answer, earlier = named.get(id) or self._named[id]
            same = earlier == impression
        else:
            return None
        if not same:
            raise Conflict(
                f"decision_id: {id!r} stands for a decision on other terms; "
                "send the same request, or another id"
            )
        return answer

    def choose(self, now: int) -> None:
        """Decide for all that is new."""
        if self._size:
            impressions = Block.joined(Impression, self._parts)
            rows = self._placement.choose(impressions, self._pending.seq + 1, now)
            self._pending.log_decisions(self._name, rows)
            self._rows = rows

    def decisions(self, answers: Answers) -> Sequence[DecisionRow]:
        """Return the decisions that answer a request."""
        if len(answers) == self._size and isinstance(answers, range):
            return self._rows
        if self._each is None:
            self._each = list(self._rows)
        each = self._each
        if isinstance(answers, range):
            return each[answers.start : answers.stop]
        return [each[answer] if isinstance(answer, int) else answer for answer in answers]
