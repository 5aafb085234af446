"""Report on duels of rankers: anytime-valid evidence, preferences, eliminated rankers, a stopping rule."""

# 1. ``log_evidence``, ``safe_interval``: a mixture over means, which is a supermartingale and so valid at any
#    time.
# 2. ``DuelReport``: preferences, eliminated rankers, whether it is safe to stop, or the missing duels.
# 3. ``build_report``, ``preferences``: from single duels to the report.

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.core.text import Column, Tabulated, format_table, replace_nan
from tacit.errors import InvalidValue
from tacit.evaluate.intervals import wilson
from tacit.interleaving import Interleaved, credit_clicks
from tacit.interleaving.rules import CLICK
from tacit.plots import COLOURS, EstimateRow, Plot, draw_estimates

# ---- Evidence from duels that is valid at all times, and the interval that follows


def log_evidence(score: float, plays: float, mean: float) -> float:
    """Return the log of the evidence that outcomes in [0, 1] have another mean than ``mean``.

    The evidence is the likelihood under a Beta(1/2, 1/2) mixture of means over that under ``mean``: a
    supermartingale if ``mean`` is true, so that its log ever exceeds log(1/α) with probability at most α,
    at any time. It is infinite if ``mean`` makes the outcomes impossible.

    Parameters
    ----------
    score : float
        Sum of the outcomes.
    plays : float
        Number of outcomes.
    mean : float
        In [0, 1].

    References
    ----------
    Robbins (1970), "Statistical methods related to the law of the iterated logarithm"; Ville's
    inequality.

    Examples
    --------
    >>> round(log_evidence(8, 10, mean=0.5), 4)
    0.5163
    """
    mixture = math.lgamma(0.5 + score) + math.lgamma(0.5 + plays - score)
    mixture -= math.lgamma(1.0 + plays) + math.log(math.pi)
    for amount, chance in ((score, mean), (plays - score, 1.0 - mean)):
        if amount > 0.0:
            if chance <= 0.0:
                return math.inf
            mixture -= amount * math.log(chance)
    return mixture


def safe_interval(score: float, plays: float, alpha: float) -> tuple[float, float]:
    """Return the interval of means with log evidence below log(1/alpha); it is valid at any time.

    Without outcomes it is (0, 1).

    Parameters
    ----------
    score : float
        Sum of outcomes in [0, 1].
    plays : float
        Number of outcomes.
    alpha : float
        Largest probability that the interval ever excludes the true mean.

    Examples
    --------
    >>> low, high = safe_interval(80, 100, alpha=0.05)
    >>> round(low, 3), round(high, 3)
    (0.648, 0.909)
    """
    if plays == 0:
        return 0.0, 1.0
    bound = math.log(1.0 / alpha)
    ends = []
    for end in (0.0, 1.0):
        inside, outside = score / plays, end
        for _ in range(60):
            middle = (inside + outside) / 2
            if log_evidence(score, plays, middle) < bound:
                inside = middle
            else:
                outside = middle
        ends.append(outside)
    return ends[0], ends[1]


# ---- The report: estimates, eliminated rankers, and whether it is safe to stop

MAX_DUELS = 10**12
STANDINGS = (
    Column("ranker", "{ranker}"),
    Column("duels", "{duels:,}"),
    *(Column(name, f"{{{name}}}") for name in ("mean", "beats", "loses to", "standing")),
)
AGAINST = (
    Column("duels", "{plays:,}"),
    Column("wins", "{estimate:.3f}", "nan"),
    Column("Wilson", "{low:.3f}–{high:.3f}"),
    Column("safe", "{safe_low:.3f}–{safe_high:.3f}"),
    Column("missing", "{needed:,}", "?"),
)


class Pair(NamedTuple):
    """The comparison of two rankers by their duels, from the first one's side.

    Attributes
    ----------
    first, second : str
    plays : int
    estimate : float
        The probability that the first beats the second, ties counted half; NaN without duels.
    low, high : float
        Wilson's interval: for this pair alone, if the number of duels was fixed beforehand.
    safe_low, safe_high : float
        Simultaneous interval for all pairs, valid at any time.
    """

    first: str
    second: str
    plays: int
    estimate: float
    low: float
    high: float
    safe_low: float
    safe_high: float


@dataclass(frozen=True, repr=False)
class DuelReport(Tabulated, Plot):
    """Estimated preferences between rankers, with eliminated rankers and a safe stopping rule.

    Outcomes of a pair must be independent with a constant mean; the choice of the next pair and
    the time of the report may depend on all earlier outcomes. All decisions are based on
    evidence that is valid at any time and for all pairs simultaneously: with
    probability ``confidence`` none is ever wrong.

    Parameters
    ----------
    names : sequence of str
        The rankers' names.
    plays : array, shape (rankers, rankers)
        Number of duels of each pair; symmetric.
    scores : array, shape (rankers, rankers)
        The sum of the outcomes of the first ranker against the second: 1 a win, 0.5 a tie.
    confidence : float, default 0.95
        In (0, 1).
    ties, unclicked : int
        Number of duels that were ties, and number of lists known to have no click.

    Raises
    ------
    InvalidValue
        If the counts do not fit together.

    Examples
    --------
    >>> report = DuelReport(["new", "old"], [[0, 200], [200, 0]], [[0, 140], [60, 0]])
    >>> report.winner, report.out
    ('new', ('old',))
    """

    names: Any
    plays: Any
    scores: Any
    confidence: float = 0.95
    ties: int = 0
    unclicked: int = 0

    def __post_init__(self) -> None:
        """Convert names and counts to arrays; raise InvalidValue if they do not fit together."""
        names = checks.arms("arms", list(self.names)) if len(self.names) else ()
        plays = np.asarray(self.plays, np.float64)
        scores = np.asarray(self.scores, np.float64)
        shape = (len(self.names), len(self.names))
        if isinstance(names, int) or len(names) < 2:
            raise InvalidValue("names", self.names, "give two or more")
        if plays.shape != shape or scores.shape != shape:
            raise InvalidValue("plays", self.plays, "give a number for each pair of two or more")
        if not (plays == plays.T).all() or (plays < 0).any() or plays.diagonal().any():
            remedy = "give counts that do not depend on the order, 0 on the diagonal"
            raise InvalidValue("plays", self.plays, remedy)
        off_diagonal = ~np.eye(len(plays), dtype=bool)
        if (scores < 0).any() or not np.allclose((scores + scores.T)[off_diagonal], plays[off_diagonal]):
            raise InvalidValue("scores", self.scores, "of each pair they must sum to its plays")
        confidence = checks.number("confidence", self.confidence, 0.0, 1.0, open_low=True)
        if confidence == 1.0:
            raise InvalidValue("confidence", confidence, "give a number in (0, 1)")
        for field, value in (("names", names), ("plays", plays), ("scores", scores)):
            object.__setattr__(self, field, value)

    @property
    def alpha(self) -> float:
        """The error probability of each pair, by Bonferroni's correction: (1 − confidence)/pairs."""
        pairs = len(self.names) * (len(self.names) - 1) // 2
        return (1.0 - self.confidence) / pairs

    def pair(self, first: int, second: int) -> Pair:
        """Return estimate and intervals of a pair of rankers, given by their indices in ``names``."""
        plays, score = float(self.plays[first, second]), float(self.scores[first, second])
        estimate = score / plays if plays else math.nan
        return Pair(
            self.names[first],
            self.names[second],
            int(plays),
            estimate,
            *wilson(estimate, plays, self.confidence),
            *safe_interval(score, plays, self.alpha),
        )

    @cached_property
    def estimates(self) -> Floats:
        """Matrix of estimated probabilities that the row's ranker beats the column's.

        1/2 on the diagonal; NaN for pairs without duels.
        """
        unknown = np.full(self.plays.shape, np.nan)
        estimates = np.divide(self.scores, self.plays, out=unknown, where=self.plays > 0)
        np.fill_diagonal(estimates, 0.5)
        return np.asarray(estimates)

    @cached_property
    def beats(self) -> Any:
        """Matrix of bool: True where the row's ranker significantly beats the column's."""
        count = len(self.names)
        beats = np.zeros((count, count), np.bool_)
        for first in range(count):
            for second in range(count):
                score, plays = float(self.scores[first, second]), float(self.plays[first, second])
                if first != second and 2 * score > plays:
                    beats[first, second] = log_evidence(score, plays, 0.5) >= -math.log(self.alpha)
        return beats

    @property
    def out(self) -> tuple[str, ...]:
        """The names of the eliminated rankers, which significantly lose to another one."""
        lost = self.beats.any(axis=0)
        return tuple(name for name, beaten in zip(self.names, lost, strict=True) if beaten)

    @property
    def winner(self) -> str | None:
        """The ranker that significantly beats every other one (the Condorcet winner), or None."""
        wins = self.beats.sum(axis=1)
        best = int(wins.argmax())
        return self.names[best] if wins[best] == len(self.names) - 1 else None

    @property
    def leader(self) -> int:
        """Index of the ranker that beats most others by estimate; among equals, the one of the best mean."""
        filled = np.where(np.isnan(self.estimates), 0.5, self.estimates)
        return int(np.lexsort((filled.mean(axis=1), (filled > 0.5).sum(axis=1)))[-1])

    @property
    def left(self) -> tuple[str, ...]:
        """The names of the rankers that are not eliminated."""
        return tuple(name for name in self.names if name not in self.out)

    @property
    def safe_to_stop(self) -> bool:
        """True if one ranker significantly beats all others, or all but one are eliminated."""
        return self.winner is not None or len(self.left) == 1

    def count_missing_duels(self, second: int) -> int | None:
        """Return how many more duels would decide between the leader and a ranker, if the estimate stays.

        Parameters
        ----------
        second : int
            The other ranker's index in ``names``.

        Returns
        -------
        int or None
            0 if it is decided; None if there is no estimate, if it is 1/2, or if the total number of duels
            would exceed ``MAX_DUELS``.
        """
        first = self.leader
        if self.beats[first, second] or self.beats[second, first]:
            return 0
        estimate, plays = self.estimates[first, second], float(self.plays[first, second])
        if math.isnan(estimate) or estimate == 0.5:
            return None
        low, high = plays, max(2.0 * plays, 16.0)
        while log_evidence(estimate * high, high, 0.5) < -math.log(self.alpha):
            low, high = high, 2.0 * high
            if high > MAX_DUELS:
                return None
        while high - low > 1.0:
            middle = (low + high) // 2
            if log_evidence(estimate * middle, middle, 0.5) < -math.log(self.alpha):
                low = middle
            else:
                high = middle
        return math.ceil(high - plays)

    @property
    def verdict(self) -> str:
        """A sentence for the user: the winner and that it is safe to stop, or how many duels are missing."""
        with_confidence = f"with confidence {self.confidence:g}"
        if self.winner is not None:
            return f"Safe to stop: {self.winner} beats every other ranker, {with_confidence}."
        if len(self.left) == 1:
            return (
                f"Safe to stop: all but {self.left[0]} lose to another ranker, {with_confidence}; it is the "
                "best if any ranker beats all others."
            )
        if not self.left:
            return f"Every ranker loses to another one, {with_confidence}: none beats all others."
        rivals = [i for i, name in enumerate(self.names) if i != self.leader and name in self.left]
        missing = [self.count_missing_duels(i) for i in rivals]
        if None in missing:
            remark = "at present estimates it cannot be said how many duels are missing"
        else:
            remark = f"some {sum(filter(None, missing)):,} more duels of it with the others left"
            remark += " would decide, at present estimates"
        return f"Go on: {self.names[self.leader]} leads, {len(self.left)} are left; {remark}."

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON data, with estimates as matrices by ranker; NaN becomes None."""
        count = range(len(self.names))
        table = [[self.pair(i, j) for j in count] for i in count]
        matrices = {
            field: [[replace_nan(getattr(cell, field)) for cell in row] for row in table]
            for field in ("estimate", "low", "high", "safe_low", "safe_high", "plays")
        }
        for i in count:
            for field in ("estimate", "low", "high", "safe_low", "safe_high"):
                matrices[field][i][i] = 0.5
        return {
            "rankers": list(self.names),
            "confidence": self.confidence,
            **matrices,
            "ties": self.ties,
            "unclicked": self.unclicked,
            "out": list(self.out),
            "left": list(self.left),
            "leader": self.names[self.leader],
            "winner": self.winner,
            "safe_to_stop": self.safe_to_stop,
            "still_needed": {self.names[i]: self.count_missing_duels(i) for i in count if i != self.leader},
            "verdict": self.verdict,
        }

    def summary(self) -> str:
        """Return counts, standings, the leader's comparisons and the verdict as text."""
        total = int(np.triu(self.plays).sum())
        counts = f"{total:,} duels, {self.ties:,} ties ({self.unclicked:,} known to have no click)"
        tables = format_table(self.records(), STANDINGS), self._format_rivals()
        return "\n\n".join([counts, *tables, self.verdict])

    def _order_rankers(self) -> list[int]:
        """Return the rankers' indices by descending mean estimate; missing estimates count 1/2."""
        mean = np.nan_to_num(self.estimates, nan=0.5).mean(axis=1)
        return list(np.argsort(-mean, kind="stable").tolist())

    def records(self) -> list[dict[str, Any]]:
        """Return one flat dict per ranker, best first: duels, mean, numbers of wins and losses, standing."""
        loss_counts, win_counts = self.beats.sum(axis=0).tolist(), self.beats.sum(axis=1).tolist()
        records = []
        for i in self._order_rankers():
            mean = np.nanmean(np.delete(self.estimates[i], i)) if self.plays[i].any() else math.nan
            row = {
                "ranker": self.names[i],
                "duels": int(self.plays[i].sum()),
                "mean": f"{mean:.3f}",
                "beats": win_counts[i],
                "loses to": loss_counts[i],
                "standing": "wins" if self.names[i] == self.winner else "out" if loss_counts[i] else "left",
            }
            records.append(row)
        return records

    def _format_rivals(self) -> str:
        """Return a text table of the leader's comparison with each other ranker."""
        rows = [
            self.pair(self.leader, i)._asdict() | {"needed": self.count_missing_duels(i)}
            for i in self._order_rankers()
            if i != self.leader
        ]
        return format_table(rows, [Column(f"{self.names[self.leader]} against", "{second}"), *AGAINST])

    @property
    def height(self) -> float:
        """Height of the figure in inches, by the number of rankers."""
        return 1.5 + 0.28 * (len(self.names) - 1)

    def draw(self, ax: Any) -> None:
        """Draw, for each other ranker, the leader's estimated win rate with both intervals on axes."""
        rivals = [i for i in range(len(self.names)) if i != self.leader]
        pairs = sorted((self.pair(self.leader, i) for i in rivals), key=lambda pair: pair.low)
        thin = {"color": COLOURS[4], "lw": 1.5}
        thick = {"color": COLOURS[0], "lw": 4, "solid_capstyle": "butt"}
        rows = [
            EstimateRow(
                pair.second,
                pair.estimate,
                [((pair.safe_low, pair.safe_high), thin), ((pair.low, pair.high), thick)],
                {"color": COLOURS[1], "ms": 4},
            )
            for pair in pairs
        ]
        draw_estimates(ax, rows, 0.5)
        ax.set_xlim(0.0, 1.0)
        ax.set_xlabel(f"probability that {self.names[self.leader]} beats it")
        ax.set_title(
            f"thick: Wilson, {self.confidence:.0%} for each pair; thin: safe for all pairs at all times",
            size=9,
        )


# ---- From single duels to a report

Duel = tuple[str, str, float, int | None]
"""Left, right, outcome and the number of clicks, if known."""


def build_report(duels: Iterable[Duel], confidence: float) -> DuelReport:
    """Count duels by pair and return the report; duels of a ranker with itself are ignored.

    Raises
    ------
    InvalidValue
        If there are fewer than two rankers.
    """
    outcomes: dict[tuple[str, str], list[float]] = {}
    ties = unclicked = 0
    for left_name, right_name, outcome, clicks in duels:
        if left_name != right_name:
            count = outcomes.setdefault((left_name, right_name), [0.0, 0.0])
            count[0] += 1.0
            count[1] += outcome
            ties += outcome == 0.5
            unclicked += clicks == 0
    names = sorted({name for pair in outcomes for name in pair})
    places = {name: i for i, name in enumerate(names)}
    plays, scores = np.zeros((2, len(names), len(names)))
    for (left_name, right_name), (count_of_pair, score) in outcomes.items():
        first, second = places[left_name], places[right_name]
        plays[first, second] += count_of_pair
        plays[second, first] += count_of_pair
        scores[first, second] += score
        scores[second, first] += count_of_pair - score
    return DuelReport(names, plays, scores, confidence, ties, unclicked)


def parse_duel(cells: Mapping[str, Any]) -> Duel:
    """Return a row's left and right ranker, outcome, and number of clicks or None.

    Without an outcome it follows from the clicks on the interleaved list.

    Raises
    ------
    InvalidValue
        If the row is not a valid duel; names the column.
    """
    left_name, right_name = checks.ranker("left", cells["left"]), checks.ranker("right", cells["right"])
    clicks = cells.get("clicks")
    clicks = checks.parse_json("clicks", clicks) if clicks is not None else None
    if clicks is not None and not isinstance(clicks, list):
        raise InvalidValue("clicks", clicks, "give a list of positions")
    if clicks is not None:
        # Other actions count only in evaluation by credit.
        clicks = [_get_position(action) for action in clicks if _is_click(action)]
    outcome = cells.get("outcome")
    if outcome is None:
        if clicks is None:
            raise InvalidValue("outcome", None, "give it, or interleaved and clicks")
        interleaved = Interleaved.from_dict(checks.parse_json("interleaved", cells.get("interleaved")))
        credit = credit_clicks(interleaved, clicks)
        if interleaved.rankers != 2:
            raise InvalidValue("interleaved.rankers", interleaved.rankers, "give a list of two rankers")
        return left_name, right_name, credit.chance, credit.clicks
    return left_name, right_name, parse_outcome(outcome), None if clicks is None else len(clicks)


def parse_outcome(value: Any) -> float:
    """Return an outcome, which may be text, as a number in [0, 1]: 1 if the left ranker won.

    Raises
    ------
    InvalidValue
        If it is no number in that range.
    """
    try:
        return checks.number("outcome", checks.amount("outcome", value), 0.0, 1.0)
    except InvalidValue:
        remedy = "give 1 where the left one won, 0 where the right one did, 0.5 for a tie, or between"
        raise InvalidValue("outcome", value, remedy) from None


def _is_click(action: Any) -> bool:
    """True if an entry of the list of clicks is a click: a position, or an object with that action."""
    return not isinstance(action, Mapping) or action.get("action", CLICK) == CLICK


def _get_position(action: Any) -> Any:
    """Return the position of a click, which is a number or an object."""
    return action.get("position") if isinstance(action, Mapping) else action


def preferences(log: Sequence[tuple[str, str, float]], confidence: float = 0.95) -> DuelReport:
    """Return the report on duels in memory: estimated preferences, eliminated rankers, verdict.

    Parameters
    ----------
    log : sequence of (left, right, outcome)
        Names of the rankers, and 1 for the left one, 0 for the right one, 0.5 for a tie.
    confidence : float, default 0.95

    Raises
    ------
    InvalidValue
        If a duel does not have this form, or there are fewer than two rankers.

    Examples
    --------
    >>> preferences([("a", "b", 1.0)] * 30 + [("b", "a", 0.5)] * 2).winner
    'a'
    """
    if mapping := next((duel for duel in log if isinstance(duel, Mapping)), None):
        raise InvalidValue("log", mapping, "give (left, right, outcome) for each duel")
    return build_report(
        (
            parse_duel({"left": left_name, "right": right_name, "outcome": outcome})
            for left_name, right_name, outcome in log
        ),
        confidence,
    )
