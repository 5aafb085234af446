"""What the page shows of a slate placement: clicks and examination down the list, relevance."""

from __future__ import annotations

from functools import cached_property

from tacit.policies.base import Counts
from tacit.service.page.beliefs import Believed, counts_of, rounds_of, share_believed
from tacit.service.page.key import KeyView
from tacit.service.page.view import View
from tacit.service.placements.series import ARMS, R
from tacit.service.placements.slates import CLICKED, FIRST, SHOWN, SlatePlacement


class SlateView(View):
    """A slate placement as the page shows it.

    Parameters
    ----------
    placement : SlatePlacement
    now : int
        Microseconds since 1970.
    """

    template = "slates.html"

    def __init__(self, placement: SlatePlacement, now: int) -> None:
        super().__init__(placement, now)
        self.tally = placement.tally
        counts, keys = counts_of(placement.learner.state), placement.learner.keys
        self.cascade = isinstance(counts, Counts)
        self.key: KeyView | None = None
        if counts is not None and keys:
            busiest = int(rounds_of(counts)[: len(keys)].argmax())
            self.key = KeyView(placement, keys[busiest], now)

    @property
    def lists(self) -> int:
        """How many lists were learned from."""
        return int(self.tally[SHOWN].max(initial=0))

    @property
    def clicked(self) -> float | None:
        """The share of these lists with a click."""
        return float(self.tally[FIRST].sum()) / self.lists if self.lists else None

    @property
    def per_place(self) -> float | None:
        """Clicks for each arm that was shown."""
        shown = float(self.total[ARMS:].sum())
        return float(self.total[R]) / shown if self.lists else None

    @cached_property
    def clicks(self) -> list[Believed]:
        """The share of lists that were clicked at each position."""
        return [
            share_believed(f"position {i + 1}", float(clicked), float(shown))
            for i, (shown, clicked) in enumerate(
                zip(self.tally[SHOWN], self.tally[CLICKED], strict=True)
            )
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
