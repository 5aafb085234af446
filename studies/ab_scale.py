"""From interleaved searches to the scale of an A/B test: clicks per search, estimated.

Two ways, neither of which needs a search that showed one ranker's list alone:

- ``position``: users see a place with a probability that depends on the place alone. A click is
  weighed by the probability that its item is seen where each ranker puts it, over that with which
  the draft lets it be seen (Bi et al. 2022 credit balanced lists so).
- ``top-down``: users read from the top, and what they do depends on what stands above and not
  below: every model of ``tacit.clicks``. A click counts for a ranker if the list down to it is the
  ranker's own, over the probability of that (as McInerney et al. 2020 for slates). It reaches only
  rankers that differ by little.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.core.text import replace_nan
from tacit.errors import InvalidValue
from tacit.evaluate.interleaved.searches import Search
from tacit.interleaving import METHODS
from tacit.uplift import Interval, Lift, PairSums, boundary, preference
from tacit.uplift.boundary import claim_from_interval
from tacit.uplift.paired import hash_unit

Model = Literal["position", "top-down"]
MODELS = ("position", "top-down")
ENUMERATED = ("Balanced", "DebiasedBalanced", "TeamDraft")
"""Methods that can show so few lists that all their probabilities are known."""
LONGEST = 16
Rankings = tuple[tuple[Any, ...], ...]
"""Of both rankers, the first one's first."""
REACH = 0.999
"""The least share of what the rankers show on top that the lists must reach: what they do not may
outweigh the difference of rankers that are close."""
HIDES = 0.9
"""Readers who click below a click so much less than below none are no position-based ones."""
GROUPS = 32
"""Into so many groups of users the searches are parted, to tell how well the curve is known."""
FEW = 100
"""So many comparisons within a list tell whether clicks hide what is below."""


class Drafts(NamedTuple):
    """All lists that a method shows for two rankings.

    Attributes
    ----------
    chances : array of float64, shape (lists,)
    lists : list of tuple
        The items of each.
    """

    chances: Floats
    lists: list[tuple[Any, ...]]


@lru_cache(maxsize=4096)
def drafts(method: str, rankings: Rankings, length: int) -> Drafts:
    """Return all lists that a method shows for two rankings, each once."""
    chances: dict[tuple[Any, ...], float] = {}
    for chance, shown in METHODS[method](length=length).lists(rankings):
        chances[shown.items] = chances.get(shown.items, 0.0) + chance
    return Drafts(np.array(list(chances.values())), list(chances))


class Scaled(NamedTuple):
    """An estimated difference of clicks per search, as an A/B test would find it.

    Attributes
    ----------
    first, second : str
    lift : Lift or None
        The first one's clicks per search minus the second's, to be looked at at any time; None
        where it cannot be said.
    model : str
        ``position`` or ``top-down``.
    places : int
        So many places of each ranker's own list are compared; 0 if there are none.
    reach : float
        The share of what the rankers show there that the searches tell of.
    hides : float
        How often users click below a click on top, over how often below none, on the same lists: 1
        if it does not matter; NaN where too few lists were shown again to tell.
    curve : tuple of float
        How likely each place is seen, for ``position``.
    why : str or None
        Why it cannot be said.
    """

    first: str
    second: str
    lift: Lift | None
    model: str
    places: int
    reach: float
    hides: float
    curve: tuple[float, ...]
    why: str | None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        lift = None if self.lift is None else self.lift.as_dict()
        return {
            **self._asdict(),
            "lift": lift,
            "curve": [replace_nan(chance) for chance in self.curve],
            "hides": replace_nan(self.hides),
        }

    @property
    def sentence(self) -> str:
        """What it says, in words."""
        if self.lift is None:
            return f"An A/B test's difference cannot be known from this: {self.why}."
        if self.lift.difference is None:
            return "Too early to tell an A/B test's difference."
        estimate, low, high = self.lift.difference
        untested = self.model == "position" and math.isnan(self.hides)
        return (
            f"An A/B test would find {estimate:+.4f} clicks per search on the top {self.places} of "
            f"{self.first} over {self.second} (between {low:+.4f} and {high:+.4f}), if users "
            + ("see a place whatever stands around it" if self.model == "position" else "read from the top")
            + (" (lists seldom come again, so this could not be tested)." if untested else ".")
        )


def scaled(
    searches: Iterable[Search],
    first: str,
    second: str,
    *,
    model: Model = "position",
    places: int | None = None,
    curve: Sequence[float] | None = None,
    kind: str = "click",
    confidence: float = 0.95,
) -> Scaled:
    """Estimate the difference of clicks per search that an A/B test of two rankers would find.

    Parameters
    ----------
    searches : iterable of Search
        With the rankings of both, and lists of team drafts or balanced interleaving of at most 16
        places; others are not used.
    first, second : str
    model : {"position", "top-down"}, default "position"
        How users read.
    places : int, optional
        So many places of each ranker's own list are compared; by default as many as the lists
        shown reach: at least half of theirs, for ``position``.
    curve : sequence of float, optional
        How likely each place is seen, for ``position``; by default found from the same searches,
        by the draft's coin.
    kind : str, default "click"
        Of the actions that count.
    confidence : float, default 0.95
        0.9, 0.95 or 0.99.

    Returns
    -------
    Scaled
        It says why, where it cannot be said: if lists do not reach what the rankers show, or
        readers are not as ``position`` has them.

    Raises
    ------
    InvalidValue
        If an option is wrong.

    References
    ----------
    Bi et al. (2022), "Debiased balanced interleaving at Amazon Search"; McInerney et al. (2020),
    "Counterfactual evaluation of slate recommendations with sequential reward interactions".
    """
    if model not in MODELS:
        raise InvalidValue("model", model, f"give one of {', '.join(MODELS)}")
    used = [search for search in searches if usable(search, first, second)]
    nothing = f"searches need the rankings of both, and one of {', '.join(ENUMERATED)}"
    if not used:
        return Scaled(first, second, None, model, 0, 0.0, math.nan, (), nothing)
    given = None if curve is None else [checks.number("curve", x, 0.0, 1.0) for x in curve]
    longest = max(len(search.shown.items) for search in used)
    seen = _curves(used, kind) if given is None else np.array([given])
    seen = np.concatenate([seen, np.zeros((len(seen), longest))], axis=1)[:, :longest]
    places_seen = tuple(seen[0].tolist())
    hides = _hides(used, kind)
    reached = np.mean([_reached(search, first, longest, model) for search in used], axis=0)
    # Without a number: the places from the top that are within reach.
    deepest = int(np.argmin([*(reached >= REACH), False]))
    top = deepest if places is None else checks.integer("places", places, 1, longest)
    reach = float(reached[max(top, 1) - 1])
    why = _why(model, reach, hides, seen)
    lift = None if why else _difference(used, first, seen, top, model, kind, confidence)
    return Scaled(first, second, lift, model, top, reach, hides, places_seen, why)


def _difference(
    searches: Sequence[Search], first: str, seen: Floats, top: int, model: Model, kind: str, confidence: float
) -> Lift:
    """Return the difference of clicks, in an interval that knows how well the curve is known."""
    known: dict[Any, Floats] = {}
    differences = np.zeros((len(searches), len(seen)))
    for row, search in zip(differences, searches, strict=True):
        key = search.shown.method, _turned(search, first), search.shown.items
        if key not in known:
            known[key] = _weights(*key, seen, top, model)
        clicked = {action.position for action in search.actions if action.kind == kind}
        for place in clicked:
            row += known[key][place]
    units = [search.unit for search in searches]
    sums = PairSums.empty()
    sums.add(differences[:, 0], units)
    lift = preference(sums, confidence)
    if lift.difference is None or len(seen) == 1:
        return lift
    # Delete-a-group jackknife: each curve was found without its group.
    group = np.array([hash_unit(unit) % GROUPS for unit in units])
    without = [differences[group != g, g + 1].mean() for g in range(GROUPS) if (group != g).any()]
    error = math.sqrt((GROUPS - 1) * float(np.var(without)))
    estimate = lift.difference.estimate
    radius = boundary(confidence) * max(error, float(sums.error))
    interval = Interval(estimate, estimate - radius, estimate + radius)
    return Lift(claim_from_interval(interval.low, interval.high), None, interval)


def _why(model: str, reach: float, hides: float, curve: Floats) -> str | None:
    if reach < REACH:
        return f"the lists shown reach {reach:.1%} of what the rankers would show on top"
    if model == "position" and not np.isfinite(curve).all():
        return "too few items change places to tell how well each place is seen"
    if model == "position" and hides < HIDES:
        return (
            f"users click {1 - hides:.0%} less below a click on top, so that what they see depends "
            "on what stands above; 'top-down' may do, for rankers that differ by little"
        )
    return None


def usable(search: Search, first: str, second: str) -> bool:
    """Whether a search can tell of an A/B test of two rankers."""
    return (
        search.rankings is not None
        and search.shown.method in ENUMERATED
        and len(search.shown.items) <= LONGEST
        and set(search.rankers) == {first, second}
    )


def _turned(search: Search, first: str) -> Rankings:
    """Return both rankings, the first ranker's first."""
    assert search.rankings is not None
    pair = tuple(map(tuple, search.rankings))
    return pair if search.rankers[0] == first else pair[::-1]


def _reached(search: Search, first: str, places: int, model: Model) -> Floats:
    """Return the share of the rankers' first 1, 2, … places that the draft's lists reach."""
    own, length = _turned(search, first), len(search.shown.items)
    found = np.ones(places)
    if own[0][:length] != own[1][:length]:
        found[:] = _reached_by(search.shown.method, own, length, places, model)
    return found


@lru_cache(maxsize=65536)
def _reached_by(method: str, own: Rankings, length: int, places: int, model: Model) -> Floats:
    lists = drafts(method, own, length).lists
    there = np.zeros((2, places))
    for ranker, given in enumerate(own):
        for place in range(places):
            if place >= len(given):
                there[ranker, place] = 1.0
            elif model == "top-down":
                prefix = given[: place + 1]
                there[ranker, place] = any(items[: place + 1] == prefix for items in lists)
            else:
                there[ranker, place] = any(given[place] in items for items in lists)
    return np.asarray(np.cumsum(there.mean(axis=0)) / np.arange(1, places + 1))


def _weights(
    method: str, own: Rankings, shown: tuple[Any, ...], seen: Floats, top: int, model: Model
) -> Floats:
    """Return what a click at each place is worth, by each curve; shape (places, curves)."""
    if own[0][:top] == own[1][:top]:
        return np.zeros((len(shown), len(seen)))
    if model == "top-down":
        return np.repeat(_top_down(method, own, shown, top)[:, None], len(seen), axis=1)
    return position_weights(method, own, shown, top, seen)


def position_weights(method: str, own: Rankings, shown: tuple[Any, ...], top: int, seen: Floats) -> Floats:
    """Return what a click at each place says of the first ranker's clicks minus the second's.

    Parameters
    ----------
    method : str
    own : tuple of tuples
        Both rankings.
    shown : tuple
        The list that was shown.
    top : int
        So many places of each ranking count.
    seen : array of float64, shape (curves, places)
        How likely each place is seen.

    Returns
    -------
    array of float64, shape (places, curves)
    """
    # A team draft does not depend on which ranker is called the first.
    chances, lists = drafts(method, own, len(shown))
    found: dict[Any, Floats] = {}
    for chance, items in zip(chances, lists, strict=True):
        for place, item in enumerate(items):
            found[item] = found.get(item, 0.0) + chance * seen[:, place]
    weights = np.zeros((len(shown), len(seen)))
    for sign, given in zip((1.0, -1.0), own, strict=True):
        ranks = {item: rank for rank, item in enumerate(given[: min(top, seen.shape[1])])}
        for place, item in enumerate(shown):
            if item in ranks:
                weights[place] += sign * seen[:, ranks[item]]
    below = np.array([found[item] for item in shown])
    return np.asarray(np.divide(weights, below, out=np.zeros_like(weights), where=below > 0))


def _top_down(method: str, own: Rankings, shown: tuple[Any, ...], top: int) -> Floats:
    chances, lists = drafts(method, own, len(shown))
    weights = np.zeros(len(shown))
    for sign, given in zip((1.0, -1.0), own, strict=True):
        for place in range(min(top, len(shown), len(given))):
            prefix = given[: place + 1]
            if shown[: place + 1] != prefix:
                break
            alike = [items[: place + 1] == prefix for items in lists]
            weights[place] += sign / chances[alike].sum()
    return weights


# Only items that the draft shows at several places tell how much a place is seen: their relevance is the
# same.
def _curves(searches: Sequence[Search], kind: str) -> Floats:
    """Return how likely each place is seen: by all searches, and by those without each group of units.

    The coin of the draft moves items between places, so that the same items' clicks at two places compare
    these places; NaN where no item with a click ever changes to. Interventional sets of Agarwal, Zaitsev,
    Wang, Li, Najork, Joachims (2019), "Estimating position bias without intrusive interventions", with the
    draft's own probabilities.
    """
    clicks = np.zeros((GROUPS, LONGEST, LONGEST))
    places = 0
    for search in searches:
        assert search.rankings is not None
        shown = search.shown.items
        places = max(places, len(shown))
        own = tuple(map(tuple, search.rankings))
        if own[0][: len(shown)] == own[1][: len(shown)]:
            continue
        table = _places(search.shown.method, own, len(shown))
        group = clicks[hash_unit(search.unit) % GROUPS]
        for place in {action.position for action in search.actions if action.kind == kind}:
            chance = table[shown[place]]
            group[place, : len(chance)] += (chance > 0) / chance[place]
    clicks = clicks[:, :places, :places]
    total = clicks.sum(axis=0)
    return np.array([_curve(total), *(_curve(total - group) for group in clicks)])


@lru_cache(maxsize=65536)
def _places(method: str, own: Rankings, length: int) -> dict[Any, Floats]:
    """Return with which probability each item stands at each place."""
    chances, lists = drafts(method, own, length)
    table: dict[Any, Floats] = {}
    for chance, items in zip(chances, lists, strict=True):
        for place, item in enumerate(items):
            table.setdefault(item, np.zeros(length))[place] += chance
    return table


def _curve(clicks: Floats) -> tuple[float, ...]:
    """Return the curve that fits all ratios of places, each weighed by its clicks."""
    places = len(clicks)
    if places < 2:
        return (1.0,) * places
    rows, targets, sizes = [], [], []
    for low in range(places):
        for high in range(low + 1, places):
            here, there = clicks[low, high], clicks[high, low]
            if here > 0 and there > 0:
                row = np.zeros(places)
                row[low], row[high] = -1.0, 1.0
                size = np.sqrt(here * there / (here + there))
                rows.append(row * size)
                targets.append(np.log(there / here) * size)
                sizes.append(size)
    if not rows:
        return (1.0, *[float("nan")] * (places - 1))
    matrix = np.array(rows)[:, 1:]
    found, _, rank, _ = np.linalg.lstsq(matrix, np.array(targets), rcond=None)
    if rank < places - 1:
        return (1.0, *[float("nan")] * (places - 1))
    return (1.0, *np.minimum(np.exp(found), 1.0).tolist())


def _hides(searches: Sequence[Search], kind: str) -> float:
    """Return how often users click below a click on top, over how often below none.

    Only searches that showed the same list are compared, as Mantel and Haenszel (1959) do; NaN
    where too few lists were shown again.
    """
    below: dict[tuple[Any, ...], Floats] = {}
    for search in searches:
        clicked = {action.position for action in search.actions if action.kind == kind}
        sums = below.setdefault(search.shown.items, np.zeros((2, 2)))
        sums[int(0 in clicked)] += 1.0, float(len(clicked - {0}))
    tables = np.array(list(below.values()))
    (none, without), (top, after) = tables[:, 0].T, tables[:, 1].T
    shown = none + top
    if (none * top / shown).sum() < FEW or (without * top / shown).sum() == 0:
        return float("nan")
    return float((after * none / shown).sum() / (without * top / shown).sum())
