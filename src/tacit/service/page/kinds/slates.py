"""What the page shows of a slate placement: clicks and examination down the list, relevance."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

from tacit.core.arrays import Ints
from tacit.service.page.beliefs import Believed, share_believed
from tacit.service.page.key import KeyView
from tacit.service.page.reader import PlacementReader
from tacit.service.page.view import Look, View
from tacit.service.placements.slates import CLICKED, FIRST, SHOWN


class SlateReader(PlacementReader, Protocol):
    """What may be read of a slate placement besides.

    Attributes
    ----------
    tally : array of int64, shape (3, positions)
        Of each position: lists with something there, with a click, with their first click.
    """

    tally: Ints


class SlateView(View):
    """A slate placement as the page shows it.

    Parameters
    ----------
    placement : SlateReader
    look : Look
    """

    template = "slates.html"
    counted = "place in a list"

    def __init__(self, placement: SlateReader, look: Look) -> None:
        super().__init__(placement, look)
        self.tally = placement.tally
        self.key: KeyView | None = None
        self.cascade = False
        if look.busiest:
            busiest = look.busiest[0]
            self.key = KeyView(busiest, placement, look.now)
            self.cascade = busiest.counts is not None

    @property
    def lists(self) -> int:
        """How many lists were learned from."""
        return int(self.tally[SHOWN].max(initial=0))

    @property
    def clicked(self) -> float | None:
        """The share of these lists with a click."""
        return float(self.tally[FIRST].sum()) / self.lists if self.lists else None

    @cached_property
    def clicks(self) -> list[Believed]:
        """The share of lists that were clicked at each position."""
        return [
            share_believed(f"position {i + 1}", float(clicked), float(shown))
            for i, (shown, clicked) in enumerate(zip(self.tally[SHOWN], self.tally[CLICKED], strict=True))
        ]

    @cached_property
    def examination(self) -> list[Believed]:
        """The share of lists that were read as far as each position.

        Of a cascade, that is where no click came before; where the policy models examination, it
        is what the policy believes of the busiest key.
        """
        if not self.cascade:
            return self.key.positions if self.key else []
        read, found = float(self.tally[SHOWN][0]), []
        for i, first in enumerate(self.tally[FIRST]):
            found.append(share_believed(f"position {i + 1}", read, float(self.tally[SHOWN][0])))
            read -= float(first)
        return found
