"""Batches of decisions: those among many candidates are decided in steps, which let others in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tacit.errors import InvalidValue
from tacit.learning.decisions import in_pieces
from tacit.service.engine.writer import MOST_NUMBERS, Writer
from tacit.service.log.requests import CheckDecisions, Decide, Impression
from tacit.service.log.rows import DecisionRow
from tacit.service.placements.placement import Placement


class Batches:
    """Decides batches: in one group of requests, or in several if there are many candidates.

    Before the first step all are checked. If one cannot be decided any more when its turn comes, since
    an item went or the store fails, those before it stay decided.

    Parameters
    ----------
    writer : Writer
    most_candidates : function
        Returns how many candidates all decisions of a batch may have together.
    """

    def __init__(self, writer: Writer, most_candidates: Callable[[], int]) -> None:
        self._writer, self._most_candidates = writer, most_candidates
        self._turn = asyncio.Lock()

    async def decide(self, placement: Placement, impressions: Sequence[Impression]) -> Sequence[DecisionRow]:
        """Decide for impressions, in as many steps as it takes.

        Raises
        ------
        InvalidValue
            If several have more candidates together than a batch may have.
        TacitError
            As ``Engine.decide_many``.
        """
        sizes = placement.count_candidates(impressions)
        self._check_candidates(sizes)
        steps = list(in_pieces(sizes, placement.candidate_size, MOST_NUMBERS))
        if len(steps) == 1:
            rows: Sequence[DecisionRow] = await self._writer.ask(Decide(placement.name, impressions))
            return rows
        decided: list[DecisionRow] = []
        # One batch at a time, so that others wait for one step and not for one of each batch.
        async with self._turn:
            await self._writer.ask(CheckDecisions(placement.name, impressions))
            for step in steps:
                decided += await self._writer.ask(Decide(placement.name, impressions[step]))
                # The writer answers at once what is buffered, without giving way.
                await asyncio.sleep(0)
        return decided

    def _check_candidates(self, sizes: Sequence[int]) -> None:
        """Check that decisions have no more candidates together than a batch may have."""
        most, count = self._most_candidates(), sum(sizes)
        if len(sizes) > 1 and count > most:
            raise InvalidValue(
                "decisions",
                f"{len(sizes):,} with {count:,} candidates",
                f"server.batch_candidates allows {most:,} in one request: send fewer decisions at once, "
                "offer each fewer candidates, or raise it",
            )
