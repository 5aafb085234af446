"""A kind of placement that is no part of the package: tosses one of its coins.

All of it is here: its table in the configuration, its placements, and what the page shows of it.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tacit.service.config.tables import PlacementTable
from tacit.service.http.arms import FORM, make_example
from tacit.service.kind import Kind
from tacit.service.page.view import View
from tacit.service.placements.placement import ARM_PARTS, Placement
from tacit.service.placements.results import Results


class CoinsTable(PlacementTable, forbid_unknown_fields=True, kw_only=True):
    """Shows one of its coins.

    Attributes
    ----------
    coins : list of str
        Their names.
    stake : float
        What share of a reward is learned.
    """

    coins: list[str]
    stake: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.5

    @property
    def choices(self) -> Any:
        return self.coins

    @property
    def attribution(self) -> dict[str, Any]:
        return {}

    @property
    def options(self) -> float:
        return self.stake


class CoinResults(Results):
    """Learns from a share of each reward."""

    def convert_rewards(self, rewards: Any) -> list[Any]:
        return [self.shows.config.options * reward for reward in rewards.values]


class CoinView(View):
    """A placement of coins as the page shows it."""

    what = "coin"


def write(placement: Placement, row: Any, durability: Any) -> Any:
    """Say the coin in capitals."""
    return msgspec.structs.replace(FORM.write(placement, row, durability), arm=str(row.arm).upper())


PARTS = ARM_PARTS._replace(results=CoinResults)
KIND = Kind(
    "coins", FORM.verb.path, "arm", CoinsTable, PARTS, CoinView, make_example,
    form=FORM._replace(write=write),
)  # fmt: skip
