"""What a click log of the past says of each arm, and of those who might have chosen."""

# 1. ``ArmFacts``, ``Outlook``, ``Period``, ``PastFacts``: what is said of a past.
# 2. ``facts_of``: one pass over a click log; arms, then who would have earned what, then stretches of time.

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

MOST_PERIODS = 24
AS_IT_WAS, AT_RANDOM = "as it was", "an arm at random"
TRUSTED, DOUBTED = 100.0, 20.0
"""Impressions that a prior counts for at most, with propensities and without."""


class ArmFacts(NamedTuple):
    """What the past says of an arm.

    Attributes
    ----------
    name : str
    shown : int
    mean, low, high : float
        What it earns, each decision weighed by how unlikely it was; and Wilson's 95 % interval.
    effective : float
        How many decisions of one weight would say as much.
    """

    name: str
    shown: int
    mean: float
    low: float
    high: float
    effective: float

    def prior(self, most: float) -> tuple[float, float]:
        """Return it as successes and failures, of so many impressions at most."""
        count = min(self.effective, most)
        return round(count * self.mean, 2), round(count * (1.0 - self.mean), 2)


class Outlook(NamedTuple):
    """What somebody would have earned, had they chosen.

    Attributes
    ----------
    name : str
    value : float or None
        Per decision; None where the past says nothing of it.
    low, high : float
    doubts : tuple of str
    """

    name: str
    value: float | None
    low: float
    high: float
    doubts: tuple[str, ...] = ()


class Period(NamedTuple):
    """A stretch of the past, its decisions and what they earned each, with its interval.

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


class PastFacts(NamedTuple):
    """What the past of a placement says.

    Attributes
    ----------
    placement : str
    decisions, keys, known : int
        How many, for how many keys, and of how many the propensity is known.
    mean : float
        What was earned per decision.
    offered : list of str
        The arms that were on offer.
    arms : list of ArmFacts
        Of those that were shown, the best first.
    outlooks : list of Outlook
    periods : list of Period
    """

    placement: str
    decisions: int
    keys: int
    known: int
    mean: float
    offered: list[str]
    arms: list[ArmFacts]
    outlooks: list[Outlook]
    periods: list[Period]

    @property
    def weighed(self) -> bool:
        """Whether every propensity is known."""
        return self.known == self.decisions

    def as_dict(self) -> dict[str, Any]:
        """Return it for machines."""
        parts: dict[str, list[Any]] = {"arms": self.arms, "outlooks": self.outlooks, "periods": self.periods}
        return self._asdict() | {name: [each._asdict() for each in part] for name, part in parts.items()}

    def lines(self) -> list[str]:
        """Return what it comes to, in lines."""
        lines = [f"{self.placement}: {self.decisions:,} decisions of {len(self.offered)} arms"]
        for each in self.outlooks:
            around = f" ({each.low:.4f} to {each.high:.4f})"
            lines.append(
                f"  {each.name}: {'not known' if each.value is None else f'{each.value:.4f}{around}'}"
            )
        if not self.weighed:
            lines.append("  not proved: not every event says how likely it was that this was shown")
        return lines

    @property
    def most(self) -> float:
        """How many impressions a prior counts for at most."""
        return TRUSTED if self.weighed else DOUBTED

    def priors(self) -> dict[str, tuple[float, float]]:
        """Return what is known before: of each arm, successes and failures."""
        return {arm.name: arm.prior(self.most) for arm in self.arms}


def facts_of(log: pa.Table, placement: str, policy: str) -> PastFacts:
    """Return what a click log says of one placement.

    Parameters
    ----------
    log : pyarrow.Table
        Of this placement alone, in the order of time.
    placement : str
    policy : str
        Name or call of a policy that learns.
    """
    known = len(log) - log["propensity"].null_count
    propensities = "logged" if known == len(log) else "estimated"
    rewards = np.nan_to_num(log["reward"].to_numpy())
    arms = sorted(_arms(log, rewards, _weights(log)), key=lambda arm: -arm.mean)
    offered = sorted(pc.unique(pc.list_flatten(log["arms"])).to_pylist())
    outlooks = [
        Outlook(AS_IT_WAS, float(rewards.mean()), *wilson(float(rewards.mean()), len(log))),
        *_outlooks(log, offered, policy, propensities),
    ]
    return PastFacts(
        placement, len(log), len(log["key"].unique()), known, float(rewards.mean()), offered, arms, outlooks,
        list(_periods(log["timestamp"].cast(pa.int64()).to_numpy(), rewards)),
    )  # fmt: skip


def _weights(log: pa.Table) -> Floats:
    """Return how unlikely each decision was: one over its propensity, or how often its key saw its arm."""
    if not log["propensity"].null_count:
        return np.asarray(1.0 / log["propensity"].to_numpy())
    # A key that always saw the same arm has weights of 1: of it nothing can be said but what it earned.
    keys, arms = _codes(log["key"]), _codes(log["arm"])
    of_both = keys * (arms.max() + 1) + arms
    _, both, counts = np.unique(of_both, return_inverse=True, return_counts=True)
    return np.asarray(np.bincount(keys)[keys] / counts[both])


def _codes(column: pa.ChunkedArray) -> Ints:
    encoded = column.combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices.to_numpy(), np.int64)


def _arms(log: pa.Table, rewards: Floats, weights: Floats) -> Iterator[ArmFacts]:
    encoded = log["arm"].combine_chunks().dictionary_encode()
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        own = encoded.indices.to_numpy() == code
        weight = weights[own]
        mean = float(weight @ rewards[own] / weight.sum())
        effective = float(weight.sum() ** 2 / (weight @ weight))
        yield ArmFacts(name, int(own.sum()), mean, *wilson(mean, effective), effective)


def _outlooks(log: pa.Table, offered: list[str], policy: str, propensities: str) -> Iterator[Outlook]:
    """Yield what uniform choice, the policy, and always the best arm would have earned.

    The best arm is that of the first half, and is judged by the second: who wins was lucky, too.
    """

    def of(name: str, target: Any, rows: pa.Table) -> Outlook:
        try:
            return _outlook(name, off_policy(target, rows, [SNIPS()], propensities=propensities))
        except UnfitLog as error:
            return Outlook(name, None, 0.0, 1.0, (f"{name}: {error}",))

    yield of(AT_RANDOM, Uniform(), log)
    if len(offered) > 1:
        yield of(policy, policy_from_spec(policy, offered), log)
    # Who wins in the rows by which it is judged was lucky, too.
    half = len(log) // 2
    first, second = log.slice(0, half), log.slice(half)
    if half:
        found = _arms(first, np.nan_to_num(first["reward"].to_numpy()), _weights(first))
        best = max(found, key=lambda arm: arm.low)
        yield of(f"always {best.name}", Table({best.name: 1.0}), second)


def _outlook(name: str, result: Any) -> Outlook:
    (estimate,), assumed = result.estimates, (result.assumes,) if result.assumes else ()
    if np.isnan(estimate.value):
        return Outlook(
            name, None, 0.0, 1.0, (*assumed, f"{name}: the past shows nothing of what it would choose")
        )
    # Where few rows carry the weight, the interval of the limit does not hold.
    low, high = estimate.intervals.get("anytime" if estimate.warnings else "normal", (0.0, 1.0))
    return Outlook(name, estimate.value, max(0.0, low), min(1.0, high), (*assumed, *estimate.warnings))


def _periods(times: Ints, rewards: Floats) -> Iterator[Period]:
    begin, end = int(times[0]), int(times[-1]) + 1
    count = max(1, min(MOST_PERIODS, len(times) // 50))
    edges = np.linspace(begin, end, count + 1).astype(np.int64)
    places = np.searchsorted(times, edges)
    for i in range(count):
        # Times need not be spread evenly: a stretch may have nobody.
        own = rewards[places[i] : places[i + 1]]
        if len(own):
            mean = float(own.mean())
            yield Period(int(edges[i]), int(edges[i + 1]), len(own), mean, *wilson(mean, len(own)))
