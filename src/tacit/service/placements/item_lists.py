"""Placements that list items known by their features, which come with requests or out of a catalogue."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.learning.catalogue import Located
from tacit.learning.decisions import Arm, Decision
from tacit.service.log.blocks import Block
from tacit.service.log.requests import Impression
from tacit.service.log.rows import DecisionRow, slate_text
from tacit.service.placements.lists import PLACES, FeaturePlacement, SlatePlacement


class ItemsShown(msgspec.Struct, frozen=True):
    """What a decision listed out of a catalogue, as its row of the log holds it.

    Attributes
    ----------
    slate : list of str or int
        From the top.
    prefixes, places : list of float
        As :class:`~tacit.service.log.rows.Slate` has them.
    vectors : bytes
        Of the items that are listed: numbers of half precision, one vector after the other.
    at : list of int
        The places of these items among the candidates, in the order offered.
    of : int
        How many candidates there were.
    """

    slate: list[Arm]
    prefixes: list[float]
    places: list[float]
    vectors: bytes
    at: list[int]
    of: int

    @property
    def relevance(self) -> Floats:
        """The vectors as a decision has them: of what it shows, or in the order offered if that is all."""
        rows = np.frombuffer(self.vectors, np.float16).reshape(len(self.at), -1).astype(np.float64)
        return rows[np.argsort(self.at)] if len(self.at) == self.of else rows


class ItemListPlacement(SlatePlacement, FeaturePlacement):
    """Decides which items to list, best first, and learns from the clicks on each position.

    Parameters are those of :class:`~tacit.service.placements.placement.Placement`.
    """

    named_features = False

    def _listed(self, decision: Decision) -> list[Arm | None]:
        return list(decision.shown)

    def _baseline(self, impression: Impression, decision: Decision) -> tuple[Arm, ...]:
        return tuple(self.can_show(impression)[: self._positions])

    def _slots_shown(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        slots = np.full(self._positions, -1, np.int64)
        slots[: len(shown)] = shown if offered is None else [offered.index(arm) for arm in shown]
        return slots

    # The log ---------------------------------------------------------------------------------

    def _all_shown(
        self,
        asked: Block[Impression],
        decisions: Sequence[Decision],
        ids: Sequence[str],
        control: Sequence[int | None],
    ) -> list[str | None]:
        found = [given[0] if isinstance(given[0], Located) else None for given in asked.column("given")]
        return [self._shown_text(*pair) for pair in zip(found, decisions, strict=True)]

    def _shown_text(self, found: Located | None, decision: Decision) -> str:
        listed, given = self._listed(decision), (decision.prefix_propensities, decision.position_propensities)
        if found is None:
            return slate_text(listed, *given)
        prefixes, places = (chances[: len(listed)].tolist() for chances in given)
        at = decision.slots[: len(listed)].tolist()
        vectors = found.halves[found.rows[at]].tobytes()
        return msgspec.json.encode(
            ItemsShown(list(decision.shown), prefixes, places, vectors, at, len(found))
        ).decode()

    def _known_item(self, row: DecisionRow) -> ItemsShown | None:
        text = row.shown or ""
        return msgspec.json.decode(text, type=ItemsShown) if '"vectors":' in text else None

    def decision_of(self, row: DecisionRow, epoch: int) -> Decision:
        items = self._known_item(row)
        if items is None:
            return super().decision_of(row, epoch).lean()
        by_place = row._replace(offered=None, shown=msgspec.json.encode(items.at).decode())
        at = super().decision_of(by_place, epoch)
        return at._replace(shown=tuple(items.slate), offered=PLACES[: items.of], relevance=items.relevance)

    # Counts ----------------------------------------------------------------------------------

    def _count_impressions(self, rows: Block[DecisionRow]) -> None:
        # Items that come and go have no share of the impressions.
        count = sum(len(self.shown(row)) for row in rows)
        self.series.decided_many(rows[0].time, [0] * count, [None] * count, [1] * count, len(rows))

    def _clicked_slot(self, slot: int) -> None:
        return None
