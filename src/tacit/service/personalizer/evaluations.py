"""Offline evaluations: what baseline, chance and other settings would have earned, from the log.

The value of a policy π is estimated by importance weighting: each reward counts π/p, the
probability under π of the action that was shown over the logged one. The mean reward is
self-normalised (SNIPS), and so is its interval. Settings that are evaluated learn from the log
as they go, one decision after the other, and are weighed before they learn.

What was shown in apprentice mode was never drawn, and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from tacit.core.calls import parsed_call
from tacit.core.dispatch import canonical
from tacit.errors import TacitError
from tacit.evaluate.intervals import estimate_of, normal
from tacit.evaluate.sums import Sums, summed
from tacit.learning.learner import Learner
from tacit.policies import LinearEpsilonGreedy, policy_from_spec
from tacit.service.attribution.attribution import Attribution, Rewards
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.blocks import distinct
from tacit.service.log.rows import APPRENTICE, SETTINGS, DecisionRow, Event, FeedbackRow, stretches
from tacit.service.personalizer.errors import Refused
from tacit.service.personalizer.hashing import features_of, vectors
from tacit.service.personalizer.placement import Shown
from tacit.service.personalizer.requests import KEY, Asked
from tacit.service.personalizer.settings import Settings
from tacit.service.personalizer.wire import (
    EvaluationContract,
    PolicyContract,
    PolicyResult,
    PolicyResultSummary,
)

ONLINE, BASELINE, RANDOM = "Online", "Baseline", "Random"


class _Shown(NamedTuple):
    """What was shown, and what it weighs under each policy."""

    row: DecisionRow
    weights: list[float]
    decisions: list[Any]


class Run:
    """One evaluation, fed with the log in parts.

    Parameters
    ----------
    contract : EvaluationContract
    config : PlacementConfig
    placement : int
        The store's number for it.

    Raises
    ------
    Refused
        If the contract cannot be kept.
    """

    def __init__(self, contract: EvaluationContract, config: PlacementConfig, placement: int) -> None:
        self._contract, self._config, self._placement = contract, config, placement
        self._first, self._last = _micro(contract.start_time), _micro(contract.end_time)
        if self._last <= self._first:
            raise Refused("InvalidEvaluationContract", "endTime: give a time after startTime")
        asked = contract.policies or []
        names = [policy.name for policy in asked]
        if len(set(names)) < len(names):
            raise Refused("DuplicateCustomPolicyNames", "policies: give each a name of its own")
        self._learners = [Learner(policy_of(each), seed=0) for each in asked]
        self._windows = Attribution(config.rule)
        self._open: dict[int, _Shown] = {}
        self._weights: list[list[float]] = [[] for _ in range(3 + len(asked))]
        self._rewards: list[float] = []

    def take(self, events: Sequence[Event]) -> None:
        """Take in a part of the log."""
        for rows in stretches(events):
            self._learn(self._windows.advance(rows[0].time))
            if rows[0].placement != self._placement:
                continue
            if rows.kind is DecisionRow:
                self._windows.decided(rows)
                for row in rows:
                    if self._first <= row.time <= self._last and row.mode != APPRENTICE:
                        self._open[row.seq] = self._weighed(row)
            elif rows.kind is FeedbackRow:
                for part in distinct(rows, "decision"):
                    for rewards in self._windows.told(part)[1]:
                        self._learn(rewards)
            else:
                for mark in rows:
                    if mark.kind == SETTINGS:
                        rule = Settings.read(mark.value).rule(self._config.rule)
                        self._windows.rule = rule

    def _weighed(self, row: DecisionRow) -> _Shown:
        shown, asked = Shown.of(row), Asked.read(row.asked)
        candidates, chance = shown.candidates, row.propensity or 1.0
        baseline = asked.baseline or next(name for name, _ in asked.actions if name in candidates)
        weights = [1.0, float(row.arm == baseline) / chance, 1.0 / len(candidates) / chance]
        decisions = []
        for learner in self._learners:
            features = dict(asked.actions)
            rows = vectors(
                features_of("contextFeatures", asked.context),
                [features_of("features", features[name]) for name in candidates],
                learner.policy.feature_dims[0],
            )
            place = candidates.index(str(row.arm))
            chances = learner.probabilities(KEY, None, candidates, relevance=rows)
            assert chances is not None
            weights.append(float(chances[place]) / chance)
            decision = learner.choose(KEY, None, [row.arm], relevance=rows[[place]])
            decisions.append(decision)
        return _Shown(row, weights, decisions)

    def _learn(self, rewards: Rewards) -> None:
        for seq, reward in self._windows.earned(rewards):
            made = self._open.pop(seq, None)
            if made is None:
                continue
            for weights, weight in zip(self._weights, made.weights, strict=True):
                weights.append(weight)
            self._rewards.append(reward)
            lowest = self._config.rule.lowest
            for learner, decision in zip(self._learners, made.decisions, strict=True):
                learner.learn(decision, (reward - lowest) / (1.0 - lowest))

    def results(self) -> list[PolicyResult]:
        """Return what each policy would have earned."""
        policy = self._config.policy
        told: list[tuple[str, str, Any]] = [
            (ONLINE, repr(policy), "Online"), (BASELINE, "", "Baseline"), (RANDOM, "", "Random"),
            *((each.name, each.arguments, "Custom") for each in self._contract.policies or []),
        ]  # fmt: skip
        rewards = np.array(self._rewards)
        results = []
        for (name, arguments, source), weights in zip(told, self._weights, strict=True):
            drawn = np.array(weights)
            total = self._summary(summed(drawn, drawn * rewards), float((drawn > 0).sum()))
            result = PolicyResult(
                name=name, arguments=arguments, policy_source=source, summary=[total], total_summary=total
            )
            results.append(result)
        return results

    def _summary(self, sums: Sums, reached: float) -> PolicyResultSummary:
        low, high = normal(sums, ratio=True)
        mean, radius = estimate_of(sums, ratio=True), (high - low) / 2
        return PolicyResultSummary(
            ips_estimator_numerator=sums.y,
            ips_estimator_denominator=float(sums.n),
            snips_estimator_denominator=sums.w,
            non_zero_probability=reached / sums.n if sums.n else 0.0,
            sum_of_squares=sums.yy,
            average_reward=None if np.isnan(mean) else mean,
            confidence_interval=None if np.isnan(radius) else radius,
            time_stamp=self._contract.start_time,
            aggregate_time_window=timedelta(microseconds=self._last - self._first),
        )


def policy_of(contract: PolicyContract) -> LinearEpsilonGreedy:
    """Return the policy whose text a contract holds.

    Raises
    ------
    Refused
        If it holds another text.
    """
    try:
        name, *_ = parsed_call(contract.arguments)
        if canonical(name) == canonical(LinearEpsilonGreedy.__name__):
            # Any other name could have a module imported, and so run.
            policy = policy_from_spec(contract.arguments)
            assert isinstance(policy, LinearEpsilonGreedy)
            return policy
    except TacitError as error:
        raise Refused("InvalidPolicyContract", f"policies.arguments: {error}") from error
    raise Refused(
        "InvalidPolicyContract",
        f"policies.arguments: {contract.arguments!r}; give a LinearEpsilonGreedy(dim=…)",
    )


def _micro(moment: datetime) -> int:
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round((aware - datetime.fromtimestamp(0, UTC)) / timedelta(microseconds=1))
