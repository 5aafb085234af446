"""What the page shows of placements that are not plain arms: duels, features, lists."""

# A view for each kind that is no plain arms: duels, features, lists. Each adds to ``View`` what its template
# shows.

from __future__ import annotations

import math
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats
from tacit.evaluate.duels import Pair
from tacit.service.page.charts import percent
from tacit.service.page.key import Believed, KeyView, share_believed
from tacit.service.page.lift import Preferences
from tacit.service.page.view import Look, View
from tacit.service.placements.duels import DuelOptions, DuelPlacement
from tacit.service.placements.lists import CLICKED, FIRST, SHOWN, FeaturePlacement, SlatePlacement

# ---- What the page shows of a duel placement: standings, the matrix of preferences, the verdict

MOST_RANKERS = 10
"""So many have a row and a column in the matrix; the best ones."""
SHADES = 9
"""An odd number, so that one shade stands for neither."""


class Cell(NamedTuple):
    """Two rankers in the matrix.

    Attributes
    ----------
    style : str
        Class of its shade.
    estimate : str
        How often the row's ranker wins; empty without duels.
    interval : str
    sentence : str
        The same as a sentence.
    value : float or None
    """

    style: str
    estimate: str
    interval: str
    sentence: str
    value: float | None


class Standing(NamedTuple):
    """A ranker among all."""

    name: str
    duels: int
    mean: float | None
    state: str
    against: Pair | None
    needed: int | None


class DuelView(View):
    """A duel placement as the page shows it.

    Parameters
    ----------
    placement : DuelPlacement
    look : Look

    Attributes
    ----------
    report : DuelReport
        What the duels of the key say.
    """

    template = "duels.html"
    what = "ranker"
    counted = "list"
    each = 2
    judged = True

    def __init__(self, placement: DuelPlacement, look: Look) -> None:
        super().__init__(placement, look)
        self.key, self.report = placement.report()
        self.other_keys = max(len(placement.tallies) - 1, 0)
        duels: DuelOptions = self.config.options
        self.method = type(duels.method).__name__
        self.unclicked_is_nothing = duels.unclicked == "nothing"
        self.duels = placement.duels
        self.preferred = None if look.verdict is None else Preferences(look.verdict)

    @classmethod
    def verdict_of(cls, placement: Any) -> str:
        """Return the sentence of the report."""
        verdict: str = placement.report()[1].verdict
        return verdict

    @cached_property
    def _order(self) -> list[int]:
        """The rankers' places, the best mean first."""
        return np.argsort(-self._means, kind="stable").tolist()  # type: ignore[no-any-return]

    @cached_property
    def _means(self) -> Floats:
        known = np.where(np.isnan(self.report.estimates), 0.5, self.report.estimates)
        np.fill_diagonal(known, 0.0)
        means: Floats = known.sum(axis=1) / (len(known) - 1)
        return means

    @cached_property
    def standings(self) -> list[Standing]:
        """Every ranker, the best mean first."""
        return [self._standing(i) for i in self._order]

    def _standing(self, i: int) -> Standing:
        report = self.report
        name, duels = report.names[i], int(report.plays[i].sum())
        state = "wins" if name == report.winner else "out" if name in report.out else "in the race"
        leads = i == report.leader
        return Standing(
            name,
            duels,
            float(self._means[i]) if duels else None,
            state,
            None if leads else report.pair(report.leader, i),
            None if leads else report.still_needed(i),
        )

    @cached_property
    def matrix(self) -> list[tuple[str, list[Cell | None]]]:
        """A row for each of the best rankers: how often it beats each of them."""
        shown = self._order[:MOST_RANKERS]
        return [(self.report.names[i], [None if i == j else self._cell(i, j) for j in shown]) for i in shown]

    @property
    def hidden(self) -> int:
        """How many rankers are not in the matrix."""
        return max(len(self.report.names) - MOST_RANKERS, 0)

    def _cell(self, i: int, j: int) -> Cell:
        pair = self._pair(i, j)
        if not pair.plays:
            sentence = f"{pair.first} against {pair.second}: no duel yet"
            return Cell("", "", "", sentence, None)
        shade = min(int(pair.estimate * SHADES), SHADES - 1)
        sure = " sure" if self.report.beats[i, j] or self.report.beats[j, i] else ""
        interval = f"{100 * pair.safe_low:.0f}\N{EN DASH}{100 * pair.safe_high:.0f}"
        sentence = (
            f"{pair.first} beats {pair.second} in {percent(pair.estimate)} of {pair.plays} duels; "
            f"safe interval {interval} %, for this pair alone "
            f"{100 * pair.low:.0f}\N{EN DASH}{100 * pair.high:.0f} %"
        )
        style = f"shade-{shade}{sure}"
        return Cell(style, f"{100 * pair.estimate:.0f} %", interval, sentence, pair.estimate)

    def _pair(self, i: int, j: int) -> Pair:
        """Return what is known of a pair; of its mirror image it is the mirror image."""
        pair = self._pairs[min(i, j), max(i, j)]
        if i < j:
            return pair
        return Pair(
            pair.second,
            pair.first,
            pair.plays,
            1.0 - pair.estimate,
            1.0 - pair.high,
            1.0 - pair.low,
            1.0 - pair.safe_high,
            1.0 - pair.safe_low,
        )

    @cached_property
    def _pairs(self) -> dict[tuple[int, int], Pair]:
        """What is known of each pair in the matrix."""
        shown = sorted(self._order[:MOST_RANKERS])
        return {(i, j): self.report.pair(i, j) for i, j in combinations(shown, 2)}


def missing(needed: int | None) -> str:
    """Return, in words, how many duels are missing.

    Examples
    --------
    >>> missing(0), missing(1200), missing(None)
    ('decided', '1,200', '?')
    """
    if needed is None or not math.isfinite(needed):
        return "?"
    return f"{needed:,}" if needed else "decided"


# ---- What the page shows of a feature placement: what is believed of each feature's weight

MOST_WEIGHTS = 30
DEVIATIONS = 1.96
BLOCKS = ("relevance", "examination")


class Weight(NamedTuple):
    """What is believed of one parameter: its mean, and an interval that holds it with 95 %.

    ``left``, ``middle`` and ``right`` are the places of the interval's ends and the mean on a scale
    from 0 to 100 that all weights share, with 0 at 50.
    """

    name: str
    mean: float
    low: float
    high: float
    left: float
    middle: float
    right: float


class FeatureView(View):
    """A feature placement as the page shows it.

    Parameters
    ----------
    placement : FeaturePlacement
    look : Look
    """

    template = "features.html"
    deterministic = False

    def __init__(self, placement: FeaturePlacement, look: Look) -> None:
        super().__init__(placement, look)
        self._dims = placement.config.policy.feature_dims
        self._posterior: Any
        self.key, self._posterior = placement.first_belief or ("", None)

    @cached_property
    def weights(self) -> list[Weight]:
        """What is believed of each weight of the first key; nothing where that is not known."""
        if self._posterior is None:
            return []
        names, means, deviations = self._marginals()
        low, high = means - DEVIATIONS * deviations, means + DEVIATIONS * deviations
        widest = max(float(np.abs([low, high]).max(initial=0.0)), 1e-12)
        return [
            Weight(name, *map(float, values), *(50.0 + 50.0 * float(v) / widest for v in drawn))
            for name, *values, drawn in zip(
                names, means, low, high, zip(low, means, high, strict=True), strict=True
            )
        ]

    def _marginals(self) -> tuple[list[str], Any, Any]:
        """Return name, mean and standard deviation of each weight."""
        posterior = self._posterior
        if hasattr(posterior, "mean"):
            names = [f"{block} {i}" for block, d in zip(BLOCKS, self._dims, strict=True)
                     for i in range(d)]  # fmt: skip
            beliefs = [posterior]
        else:
            beliefs = [getattr(posterior, block) for block in BLOCKS]
            names = [
                f"{block} {i}" if i < d else f"{block}, constant"
                for block, belief, d in zip(BLOCKS, beliefs, self._dims, strict=True)
                for i in range(len(belief.mean))
            ]
        means = np.concatenate([belief.mean for belief in beliefs])
        deviations = np.concatenate([np.sqrt(np.diag(belief.covariance)) for belief in beliefs])
        names += ["constant"] * (len(means) - len(names))
        return names[:MOST_WEIGHTS], means[:MOST_WEIGHTS], deviations[:MOST_WEIGHTS]


# ---- What the page shows of a slate placement: clicks and examination down the list, relevance


class SlateView(View):
    """A slate placement as the page shows it.

    Parameters
    ----------
    placement : SlatePlacement
    look : Look
    """

    template = "slates.html"
    counted = "place in a list"

    def __init__(self, placement: SlatePlacement, look: Look) -> None:
        super().__init__(placement, look)
        self.tally = placement.tally
        self.key: KeyView | None = None
        self.cascade = False
        if look.busiest:
            busiest = look.busiest[0]
            self.key = KeyView(busiest, placement, look.now)
            self.cascade = busiest.believed is not None

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
