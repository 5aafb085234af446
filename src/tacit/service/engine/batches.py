"""Batches of decisions: with many candidates they are decided in steps, between which other requests run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tacit.errors import InvalidValue
from tacit.learning.decisions import split_by_size
from tacit.service.engine.writer import MOST_NUMBERS, Writer
from tacit.service.log.blocks import Block
from tacit.service.log.requests import CheckDecisions, Decide, Impression
from tacit.service.log.rows import DecisionRow
from tacit.service.placements.placement import Placement


class Batches:
    """Decides batches of impressions: in one group of requests, or in several if there are many candidates.

    All impressions are checked before the first step. If a later step fails, because an item was removed
    or the store failed, the decisions of the steps before it stand.

    Parameters
    ----------
    writer : Writer
    most_candidates : function
        Returns the allowed number of candidates of a batch, over all its decisions.
    """

    def __init__(self, writer: Writer, most_candidates: Callable[[], int]) -> None:
        self._writer, self._most_candidates = writer, most_candidates
        self._turn = asyncio.Lock()

    async def decide(self, placement: Placement, impressions: Sequence[Impression]) -> Sequence[DecisionRow]:
        """Decide for impressions, in steps if they have many candidates; return the decisions in order.

        Requests of others are served between steps, but steps of another batch only after the last one.

        Raises
        ------
        InvalidValue
            If several impressions together have more candidates than a batch may have.
        TacitError
            As ``Engine.decide_many``.
        """
        block: Block[Impression] = Block.from_rows(Impression, impressions)
        sizes = placement.reader.count_candidates(block)
        self._check_candidates(sizes)
        steps = list(split_by_size(sizes, placement.reader.candidate_size, MOST_NUMBERS))
        if len(steps) == 1:
            rows: Sequence[DecisionRow] = await self._writer.ask(Decide(placement.name, block))
            return rows
        decided: list[DecisionRow] = []
        # One batch at a time: other requests wait for one step, not for a step of each batch.
        async with self._turn:
            await self._writer.ask(CheckDecisions(placement.name, block))
            for step in steps:
                decided += await self._writer.ask(Decide(placement.name, block[step]))
                # For buffered placements, the writer answers without yielding to the event loop.
                await asyncio.sleep(0)
        return decided

    def _check_candidates(self, sizes: Sequence[int]) -> None:
        """Raise InvalidValue if decisions together have more candidates than the configuration allows.

        One decision alone may have any number.
        """
        most, count = self._most_candidates(), sum(sizes)
        if len(sizes) > 1 and count > most:
            raise InvalidValue(
                "decisions",
                f"{len(sizes):,} with {count:,} candidates",
                f"server.batch_candidates allows {most:,} in one request: send fewer decisions at once, "
                "offer each fewer candidates, or raise it",
            )
