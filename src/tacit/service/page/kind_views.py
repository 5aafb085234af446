"""Views of duels, features and lists, which add to ``View`` the data of their templates."""

# 1. ``DuelView``: standings and the matrix of preferences.
# 2. ``FeatureView``: weights of features.
# 3. ``SlateView``: clicks and examination by position.

from __future__ import annotations

import contextlib
import math
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats
from tacit.errors import UnknownName
from tacit.evaluate.duels import Pair
from tacit.learning.learner import Learner
from tacit.service.page.charts import percent
from tacit.service.page.key import KeyView, RateEstimate, estimate_share
from tacit.service.page.lift import Preferences
from tacit.service.page.view import PageData, View
from tacit.service.placements.duels import DuelOptions
from tacit.service.placements.lists import CLICKED_COUNTS, FIRST_COUNTS, SHOWN_COUNTS
from tacit.service.placements.placement import Placement

# ---- Duels: standings, the matrix of preferences, the verdict

MOST_RANKERS = 10
"""Rankers in the matrix, the best ones."""
SHADES = 9
"""Number of shades; odd, so that the middle one means no preference."""


class Cell(NamedTuple):
    """Cell of the matrix: a pair of rankers.

    Attributes
    ----------
    style : str
        CSS class of the shade.
    estimate : str
        Share of duels that the row's ranker wins; empty without duels.
    interval : str
    sentence : str
        Estimate and interval as a sentence.
    value : float or None
    """

    style: str
    estimate: str
    interval: str
    sentence: str
    value: float | None


class Standing(NamedTuple):
    """A ranker's row in the standings."""

    name: str
    duels: int
    mean: float | None
    state: str
    against: Pair | None
    needed: int | None


class DuelView(View):
    """The page's view of a placement of duels.

    Parameters
    ----------
    placement : Placement
    page_data : PageData

    Attributes
    ----------
    report : DuelReport
        Standings of the key with the most duels.
    """

    template = "duels.html"
    what = "ranker"
    counted = "list"
    arms_per_reward = 2
    judged = True

    def __init__(self, placement: Placement, page_data: PageData) -> None:
        super().__init__(placement, page_data)
        results: Any = placement.results
        self.key, self.report = results.report()
        self.other_keys = max(len(results.tallies) - 1, 0)
        duels: DuelOptions = self.config.options
        self.method = type(duels.method).__name__
        self.unclicked_is_nothing = duels.unclicked == "nothing"
        self.duels = results.duels
        self.preferred = None if page_data.verdict is None else Preferences(page_data.verdict)

    @classmethod
    def get_verdict(cls, placement: Any) -> str:
        """Return the verdict on the duels of the key with the most duels.

        Pages show it in place of a lift.
        """
        verdict: str = placement.results.report()[1].verdict
        return verdict

    @cached_property
    def _order(self) -> list[int]:
        """Indices of rankers, the best mean first."""
        return np.argsort(-self._means, kind="stable").tolist()  # type: ignore[no-any-return]

    @cached_property
    def _means(self) -> Floats:
        """Mean estimated preference of each ranker over the others; 1/2 for pairs without duels."""
        estimates = np.where(np.isnan(self.report.estimates), 0.5, self.report.estimates)
        np.fill_diagonal(estimates, 0.0)
        means: Floats = estimates.sum(axis=1) / (len(estimates) - 1)
        return means

    @cached_property
    def standings(self) -> list[Standing]:
        """Rows of all rankers in the standings, the best mean first."""
        return [self._make_standing(i) for i in self._order]

    def _make_standing(self, ranker: int) -> Standing:
        """Return a ranker's row of the standings, compared with the leader; ``ranker`` is its index."""
        report = self.report
        name, duels = report.names[ranker], int(report.plays[ranker].sum())
        state = "wins" if name == report.winner else "out" if name in report.out else "in the race"
        mean = float(self._means[ranker]) if duels else None
        if ranker == report.leader:
            return Standing(name, duels, mean, state, None, None)
        pair, missing_duels = report.pair(report.leader, ranker), report.count_missing_duels(ranker)
        return Standing(name, duels, mean, state, pair, missing_duels)

    @cached_property
    def matrix(self) -> list[tuple[str, list[Cell | None]]]:
        """Name and row of cells of each of the best rankers; None for the cell of a ranker with itself."""
        indices = self._order[:MOST_RANKERS]
        return [
            (self.report.names[i], [None if i == j else self._get_cell(i, j) for j in indices])
            for i in indices
        ]

    @property
    def hidden(self) -> int:
        """Number of rankers that are not in the matrix."""
        return max(len(self.report.names) - MOST_RANKERS, 0)

    def _get_cell(self, i: int, j: int) -> Cell:
        """Return the cell of ranker ``i`` against ranker ``j``; its texts are empty if they had no duel."""
        pair = self._get_pair(i, j)
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

    def _get_pair(self, i: int, j: int) -> Pair:
        """Return the results of ranker ``i`` against ranker ``j``, also if i > j."""
        pair = self._pairs[min(i, j), max(i, j)]
        if i < j:
            return pair
        interval = 1.0 - pair.high, 1.0 - pair.low
        safe_interval = 1.0 - pair.safe_high, 1.0 - pair.safe_low
        return Pair(pair.second, pair.first, pair.plays, 1.0 - pair.estimate, *interval, *safe_interval)

    @cached_property
    def _pairs(self) -> dict[tuple[int, int], Pair]:
        """Results of each pair of rankers in the matrix, by their indices in ascending order."""
        indices = sorted(self._order[:MOST_RANKERS])
        return {(i, j): self.report.pair(i, j) for i, j in combinations(indices, 2)}


def missing(needed: int | None) -> str:
    """Format the number of duels that are still needed for a decision; "?" if unknown.

    Examples
    --------
    >>> missing(0), missing(1200), missing(None)
    ('decided', '1,200', '?')
    """
    if needed is None or not math.isfinite(needed):
        return "?"
    return f"{needed:,}" if needed else "decided"


# ---- Features: the posterior of each feature's weight

MOST_WEIGHTS = 30
DEVIATIONS = 1.96
BLOCKS = ("relevance", "examination")


class Weight(NamedTuple):
    """Posterior mean and 95 % credible interval of one weight.

    ``left``, ``middle`` and ``right`` are the coordinates of the interval's ends and the mean on a scale
    from 0 to 100 that all weights share, with weight 0 at 50.
    """

    name: str
    mean: float
    low: float
    high: float
    left: float
    middle: float
    right: float


def _find_first_belief(learner: Learner) -> tuple[str, Any] | None:
    """Return the first key and its posterior over weights of features.

    None if there is no key or posterior.
    """
    # A restarting policy delegates to its inner policy, which may have no posterior.
    with contextlib.suppress(UnknownName, AttributeError, StopIteration):
        first = next(iter(learner.lanes.lane_of_key))
        return first, learner.posterior(first)
    return None


class FeatureView(View):
    """The page's view of a placement of arms with features.

    Parameters
    ----------
    placement : Placement
    page_data : PageData
    """

    template = "features.html"
    deterministic = False

    def __init__(self, placement: Placement, page_data: PageData) -> None:
        super().__init__(placement, page_data)
        self._dims = placement.config.policy.feature_dims
        self._posterior: Any
        self.key, self._posterior = _find_first_belief(placement.learner) or ("", None)

    @cached_property
    def weights(self) -> list[Weight]:
        """Posterior mean and interval of each weight of the first key; empty without a posterior."""
        if self._posterior is None:
            return []
        names, means, deviations = self._get_marginals()
        low, high = means - DEVIATIONS * deviations, means + DEVIATIONS * deviations
        widest = max(float(np.abs([low, high]).max(initial=0.0)), 1e-12)
        weights = []
        for name, mean, *ends in zip(names, means, low, high, strict=True):
            coordinates = (50.0 + 50.0 * float(value) / widest for value in (ends[0], mean, ends[1]))
            weights.append(Weight(name, *map(float, (mean, *ends)), *coordinates))
        return weights

    def _get_marginals(self) -> tuple[list[str], Any, Any]:
        """Return names, posterior means and standard deviations of the first ``MOST_WEIGHTS`` weights."""
        posterior = self._posterior
        # One posterior over all weights, or one for each block, whose last weight is a constant.
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


# ---- Lists: clicks and examination by position, relevance of arms


class SlateView(View):
    """The page's view of a placement of lists.

    Parameters
    ----------
    placement : Placement
    page_data : PageData
    """

    template = "slates.html"
    counted = "place in a list"

    def __init__(self, placement: Placement, page_data: PageData) -> None:
        super().__init__(placement, page_data)
        results: Any = placement.results
        self.tally = results.tally
        self.key: KeyView | None = None
        self.cascade = False
        if page_data.busiest:
            busiest = page_data.busiest[0]
            self.key = KeyView(busiest, placement, page_data.now)
            self.cascade = busiest.believed is not None

    @property
    def lists(self) -> int:
        """Number of lists whose clicks are known."""
        return int(self.tally[SHOWN_COUNTS].max(initial=0))

    @property
    def clicked(self) -> float | None:
        """Share of lists with a click; None without lists."""
        return float(self.tally[FIRST_COUNTS].sum()) / self.lists if self.lists else None

    @cached_property
    def clicks(self) -> list[RateEstimate]:
        """Estimated share of lists that were clicked at each position, with intervals."""
        counts = zip(self.tally[CLICKED_COUNTS], self.tally[SHOWN_COUNTS], strict=True)
        return [
            estimate_share(f"position {position}", float(clicked), float(shown))
            for position, (clicked, shown) in enumerate(counts, 1)
        ]

    @cached_property
    def examination(self) -> list[RateEstimate]:
        """Estimated share of lists that users read as far as each position; empty if unknown.

        In a cascade model these are the lists without a click above; if the policy models examination, they
        are its estimates for the busiest key.
        """
        if not self.cascade:
            return self.key.positions if self.key else []
        reader_count, rows = float(self.tally[SHOWN_COUNTS][0]), []
        for i, first in enumerate(self.tally[FIRST_COUNTS]):
            rows.append(estimate_share(f"position {i + 1}", reader_count, float(self.tally[SHOWN_COUNTS][0])))
            reader_count -= float(first)
        return rows
