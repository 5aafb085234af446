"""Statistics of a past click log: rewards per arm, counterfactual values of policies, rewards over time."""

# 1. ``ArmFacts``, ``CounterfactualValue``, ``Period``, ``HistoryFacts``: the statistics.
# 2. ``compute_facts``: one pass over a click log for arms, counterfactual values and periods.

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.core.arrays import Floats, Ints
from tacit.errors import UnfitLog
from tacit.evaluate import SNIPS, Table, Uniform, off_policy
from tacit.evaluate.intervals import wilson
from tacit.policies import policy_from_spec

MAX_PERIODS = 24
AS_LOGGED, AT_RANDOM = "as it was", "an arm at random"
MAX_PRIOR, MAX_PRIOR_ESTIMATED = 100.0, 20.0
"""Most impressions in a prior, with logged propensities and with estimated ones."""


class ArmFacts(NamedTuple):
    """Statistics of an arm.

    Attributes
    ----------
    name : str
    shown : int
    mean, low, high : float
        Mean reward, weighted by inverse propensity, and Wilson's 95 % interval.
    effective : float
        Effective sample size: the number of equally weighted decisions with the same information.
    """

    name: str
    shown: int
    mean: float
    low: float
    high: float
    effective: float

    def prior(self, max_count: float) -> tuple[float, float]:
        """Return the arm's prior as successes and failures, together at most ``max_count`` impressions."""
        count = min(self.effective, max_count)
        return round(count * self.mean, 2), round(count * (1.0 - self.mean), 2)


class CounterfactualValue(NamedTuple):
    """Estimated mean reward if a given policy had chosen.

    Attributes
    ----------
    name : str
    value : float or None
        Mean reward per decision; None if it cannot be estimated from the log.
    low, high : float
        95 % interval; (0, 1) if there is none.
    doubts : tuple of str
        Warnings about the estimate.
    """

    name: str
    value: float | None
    low: float
    high: float
    doubts: tuple[str, ...] = ()


class Period(NamedTuple):
    """Number of decisions in a period, and their mean reward with its 95 % interval.

    Attributes
    ----------
    begin, end : int
        Microseconds since 1970.
    """

    begin: int
    end: int
    decisions: int
    mean: float
    low: float
    high: float


class HistoryFacts(NamedTuple):
    """Statistics of a placement's click log.

    Attributes
    ----------
    placement : str
    decisions, keys, known : int
        Number of decisions, of their keys, and of decisions with a known propensity.
    mean : float
        Mean reward per decision.
    offered : list of str
        Arms on offer.
    arms : list of ArmFacts
        Statistics of the shown arms, best mean first.
    outlooks : list of CounterfactualValue
        The logged mean reward, then estimates for uniform choice, the policy, and the best single arm.
    periods : list of Period
        Mean rewards over time, without empty periods.
    positions : int
        Most positions of a list, whose statistics ``arms`` then has by position, and whose reward is its
        largest one; 0 if single arms were shown.
    """

    placement: str
    decisions: int
    keys: int
    known: int
    mean: float
    offered: list[str]
    arms: list[ArmFacts]
    outlooks: list[CounterfactualValue]
    periods: list[Period]
    positions: int = 0

    @property
    def has_all_propensities(self) -> bool:
        """True if the log has the propensity of every decision."""
        return self.known == self.decisions

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics as a dict for JSON, with a dict for each arm, value and period."""
        parts: dict[str, list[Any]] = {"arms": self.arms, "outlooks": self.outlooks, "periods": self.periods}
        return self._asdict() | {name: [row._asdict() for row in part] for name, part in parts.items()}

    def lines(self) -> list[str]:
        """Return a summary as lines of text: number of decisions and arms, and the counterfactual values.

        A last line warns if a propensity is unknown.
        """
        what, names = ("lists", "items") if self.positions else ("decisions", "arms")
        lines = [f"{self.placement}: {self.decisions:,} {what} of {len(self.offered):,} {names}"]
        for row in self.outlooks:
            text = "not known"
            if row.value is not None:
                text = f"{row.value:.4f} ({row.low:.4f} to {row.high:.4f})"
            lines.append(f"  {row.name}: {text}")
        if self.positions:
            arms = self.arms[:10]
            lines += [f"  {arm.name}: {arm.mean:.4f} ({arm.low:.4f} to {arm.high:.4f})" for arm in arms]
        elif not self.has_all_propensities:
            lines.append("  not proved: not every event says how likely it was that this was shown")
        return lines

    @property
    def max_prior(self) -> float:
        """Largest number of impressions in an arm's prior: 100, or 20 if propensities are estimated."""
        return MAX_PRIOR if self.has_all_propensities else MAX_PRIOR_ESTIMATED

    def priors(self) -> dict[str, tuple[float, float]]:
        """Return the prior of each shown arm, by name, as successes and failures."""
        return {arm.name: arm.prior(self.max_prior) for arm in self.arms}


def compute_facts(log: pa.Table, placement: str, policy: str) -> HistoryFacts:
    """Return the statistics of one placement's click log: its arms, counterfactual values and periods.

    If any propensity is missing, all are estimated.

    Parameters
    ----------
    log : pyarrow.Table
        Rows of this placement alone, sorted by time.
    placement : str
    policy : str
        Specification of a policy that learns, as its name or call.
    """
    known_count = len(log) - log["propensity"].null_count
    propensities = "logged" if known_count == len(log) else "estimated"
    rewards = _get_rewards(log)
    mean = float(rewards.mean())
    offered = sorted(pc.unique(pc.list_flatten(log["arms"])).to_pylist())
    return HistoryFacts(
        placement=placement,
        decisions=len(log),
        keys=len(log["key"].unique()),
        known=known_count,
        mean=mean,
        offered=offered,
        arms=sorted(_compute_arm_facts(log), key=lambda arm: -arm.mean),
        outlooks=[
            CounterfactualValue(AS_LOGGED, mean, *wilson(mean, len(log))),
            *_estimate_counterfactuals(log, offered, policy, propensities),
        ],
        periods=list(_compute_periods(log["timestamp"].cast(pa.int64()).to_numpy(), rewards)),
    )


def compute_list_facts(log: pa.Table, placement: str) -> HistoryFacts:
    """Return the statistics of one placement's click log of lists, whose rows are sorted by time and list.

    The reward of a list is its largest one: of clicks alone, 1 if it has any.
    """
    first = np.flatnonzero(np.diff(_encode_column(log["decision_id"]), prepend=-1))
    rewards, positions = _get_rewards(log), log["position"].to_numpy()
    list_rewards = np.maximum.reduceat(rewards, first)
    mean, arms = float(list_rewards.mean()), []
    for position in np.unique(positions).tolist():
        at_position = rewards[positions == position]
        share, count = float(at_position.mean()), len(at_position)
        arms.append(ArmFacts(f"position {position + 1}", count, share, *wilson(share, count), float(count)))
    return HistoryFacts(
        placement=placement,
        decisions=len(first),
        keys=len(log["key"].unique()),
        known=0,
        mean=mean,
        offered=sorted(log["arm"].unique().to_pylist()),
        arms=arms,
        outlooks=[CounterfactualValue(AS_LOGGED, mean, *wilson(mean, len(first)))],
        periods=list(_compute_periods(log["timestamp"].cast(pa.int64()).to_numpy()[first], list_rewards)),
        positions=int(positions.max()) + 1,
    )


def _get_rewards(log: pa.Table) -> Floats:
    """Return the reward of each row; 0 for a row without feedback."""
    return np.asarray(np.nan_to_num(log["reward"].to_numpy()))


def _compute_weights(log: pa.Table) -> Floats:
    """Return the inverse propensity of each row.

    If any propensity is missing, all are estimated: as the share of the row's arm among the rows of its key.
    """
    if not log["propensity"].null_count:
        return np.asarray(1.0 / log["propensity"].to_numpy())
    # A key with a single arm has weights of 1: its rows do not compare arms.
    keys, arms = _encode_column(log["key"]), _encode_column(log["arm"])
    pairs = keys * (arms.max() + 1) + arms
    _, pair_indices, counts = np.unique(pairs, return_inverse=True, return_counts=True)
    return np.asarray(np.bincount(keys)[keys] / counts[pair_indices])


def _encode_column(column: pa.ChunkedArray) -> Ints:
    """Return an integer code per row of a column: equal values have equal codes, from 0."""
    encoded = column.combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices.to_numpy(), np.int64)


def _compute_arm_facts(log: pa.Table) -> Iterator[ArmFacts]:
    """Yield the statistics of each shown arm, with means weighted by inverse propensity."""
    rewards, weights = _get_rewards(log), _compute_weights(log)
    encoded = log["arm"].combine_chunks().dictionary_encode()
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        is_shown = encoded.indices.to_numpy() == code
        weight = weights[is_shown]
        mean = float(weight @ rewards[is_shown] / weight.sum())
        effective = float(weight.sum() ** 2 / (weight @ weight))
        yield ArmFacts(name, int(is_shown.sum()), mean, *wilson(mean, effective), effective)


def _estimate_counterfactuals(
    log: pa.Table, offered: list[str], policy: str, propensities: str
) -> Iterator[CounterfactualValue]:
    """Yield the estimated values of uniform choice, of the policy, and of the best single arm.

    The best arm is selected on the first half and evaluated on the second, to avoid selection bias. The
    policy is left out for a single arm, the best arm for a log of one row.
    """

    def estimate(name: str, target: Any, rows: pa.Table) -> CounterfactualValue:
        """Return the SNIPS estimate of a target policy's mean reward; its value is None for an unfit log."""
        try:
            return _to_counterfactual(name, off_policy(target, rows, [SNIPS()], propensities=propensities))
        except UnfitLog as error:
            return CounterfactualValue(name, None, low=0.0, high=1.0, doubts=(f"{name}: {error}",))

    yield estimate(AT_RANDOM, Uniform(), log)
    if len(offered) > 1:
        yield estimate(policy, policy_from_spec(policy, offered), log)
    # Select and evaluate on different rows: the best arm of a sample is overestimated on it.
    half = len(log) // 2
    first, second = log.slice(0, half), log.slice(half)
    if half:
        best = max(_compute_arm_facts(first), key=lambda arm: arm.low)
        yield estimate(f"always {best.name}", Table({best.name: 1.0}), second)


def _to_counterfactual(name: str, result: Any) -> CounterfactualValue:
    """Return an off-policy result of one estimator as a counterfactual value, clipped to [0, 1].

    The value is None if no row shows an arm of the target. Assumptions and warnings become its doubts; with
    warnings the interval is the anytime one, else the normal one.
    """
    (estimate,), assumptions = result.estimates, (result.assumes,) if result.assumes else ()
    if np.isnan(estimate.value):
        doubt = f"{name}: the past shows nothing of what it would choose"
        return CounterfactualValue(name, None, low=0.0, high=1.0, doubts=(*assumptions, doubt))
    # If few rows carry most of the weight, the normal approximation does not hold.
    low, high = estimate.intervals.get("anytime" if estimate.warnings else "normal", (0.0, 1.0))
    doubts = *assumptions, *estimate.warnings
    return CounterfactualValue(name, estimate.value, max(0.0, low), min(1.0, high), doubts)


def _compute_periods(times: Ints, rewards: Floats) -> Iterator[Period]:
    """Yield mean rewards, with Wilson intervals, of up to 24 equal periods; empty ones are left out.

    ``times`` are ascending microseconds since 1970; about 50 decisions or more are in a period on average.
    """
    begin, end = int(times[0]), int(times[-1]) + 1
    count = max(1, min(MAX_PERIODS, len(times) // 50))
    edges = np.linspace(begin, end, count + 1).astype(np.int64)
    bounds = np.searchsorted(times, edges)
    for i in range(count):
        # A period may have no decisions.
        period_rewards = rewards[bounds[i] : bounds[i + 1]]
        if decisions := len(period_rewards):
            mean = float(period_rewards.mean())
            yield Period(int(edges[i]), int(edges[i + 1]), decisions, mean, *wilson(mean, decisions))
