"""Decisions whose windows have just closed, with the columns that projections read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tacit.core.arrays import Booleans, Floats, Ints
from tacit.service.deciders.assignment import HoldoutAssigner
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.deciders.windows import Closing
from tacit.service.projections.attribution import Attribution


class ClosedSource(Protocol):
    """The parts of a placement from which columns of closed decisions are read."""

    windows: Attribution
    policy: PolicyDecider
    shows: Any

    def count_offers(self, entries: Ints) -> list[int]:
        """Return the number of arms on offer to each open decision."""

    def scale_rewards(self, rewards: list[float]) -> list[float]:
        """Return rewards scaled to [0, 1]."""


class ClosedBatch:
    """Decisions whose windows have just closed; a column is read when it is first asked for.

    Parameters
    ----------
    closed : Closing
    source : ClosedSource
    assigner : HoldoutAssigner or None
        Assigner of the current holdout.
    has_control_policy : bool
        Whether the control of the holdout has a policy of its own.

    Attributes
    ----------
    entries : array of int64
    rewards : array of float64
        NaN without a reward.
    is_answered : array of bool
        Whether the reward is feedback, not the default.
    single : bool
        Whether one arm is shown, not a list or a pair.
    has_holdout : bool
    """

    def __init__(
        self,
        closed: Closing,
        source: ClosedSource,
        assigner: HoldoutAssigner | None,
        *,
        has_control_policy: bool,
    ) -> None:
        self._closed, self.entries = closed, closed.entries
        self.rewards, self.is_answered = closed.rewards, closed.is_answered
        self.single = source.shows.single
        self._open, self._policy, self._source = source.windows.open, source.policy, source
        self._assigner, self._has_control_policy = assigner, has_control_policy
        self.has_holdout = assigner is not None

    def select(self, mask: Booleans) -> ClosedBatch:
        """Return the decisions for which a mask is True."""
        return ClosedBatch(
            Closing._make(column[mask] for column in self._closed),
            self._source,
            self._assigner,
            has_control_policy=self._has_control_policy,
        )

    def is_deterministic(self, *, has_metrics: bool) -> bool:
        """True if the decisions add to no sum of the lift: no holdout, metric, group or known propensity."""
        if self._assigner is not None:
            return False
        if not self.single:
            return True
        if has_metrics or np.isfinite(self._policy.columns.propensities[self.entries]).any():
            return False
        return set(self.get_column("control")) == {None}

    # Columns of the log ----------------------------------------------------------------------

    @property
    def seqs(self) -> list[int]:
        """Row numbers in the log."""
        seqs: list[int] = self._open.windows.seq[self.entries].tolist()
        return seqs

    def get_column(self, field: str) -> list[Any]:
        """Return a field of the logged rows, such as ``time``, ``key`` or ``mode``."""
        return self._open.get_columns(self.entries, field)[0]

    # Actions and rewards ---------------------------------------------------------------------

    @property
    def arm_indices(self) -> Ints:
        """Indices of the shown arms, the first of lists and pairs; 0 if arms come with requests."""
        if not self._source.shows.lifecycle.arm_indices:
            return np.zeros_like(self.entries)
        return self._policy.columns.actions[self.entries][:, 0]

    @property
    def offers(self) -> Sequence[Ints]:
        """Indices of the arms on offer to each decision."""
        return self._policy.get_offers(self.entries)

    @property
    def offered_counts(self) -> list[int]:
        """Numbers of arms on offer."""
        return self._source.count_offers(self.entries)

    @property
    def scaled_rewards(self) -> Floats:
        """Rewards in [0, 1]; the reward of a list is 1 if it has a click, else 0."""
        if self.single:
            return np.array(self._source.scale_rewards(self.rewards.tolist()))
        return np.array(list(map(float, self._open.is_clicked(self.entries))))

    # Propensities: by policy and control together, and by each alone --------------------------

    def compute_propensities(self, *, sticky: bool) -> tuple[Floats, Floats]:
        """Return the propensities of decisions as logged, and the probabilities of the policy alone for them.

        If units stay in their group (``sticky``), the first are conditional on the group, because a known
        unit's group is not random. Without a holdout both are the logged ones; for lists with a holdout both
        are NaN.
        """
        logged = self._get_logged()
        if self._assigner is None:
            return logged, logged
        if not self.single:
            # Propensities of whole lists are too small to estimate the rewards of other lists.
            return np.full_like(logged, np.nan), np.full_like(logged, np.nan)
        if self._has_control_policy:
            # Stored under the policy that decided; under the other one, they follow from the logged ones.
            group_propensities = self._policy.columns.propensities[self.entries]
            unmixed = self._assigner.unmix_propensities(logged, group_propensities)
            policy = np.where(self._is_control(), unmixed, group_propensities)
        else:
            policy = self._assigner.unmix_propensities(logged, self._get_control_propensities())
        return self.compute_group_propensities() if sticky else logged, policy

    def compute_group_propensities(self) -> Floats:
        """Return the propensities of decisions given their assigned group; as logged without a holdout."""
        logged = self._get_logged()
        if self._assigner is None:
            return logged
        if self._has_control_policy:
            # They are stored under the policy that decided; the logged ones are over both.
            return self._policy.columns.propensities[self.entries]
        control_propensities = self._get_control_propensities()
        unmixed = self._assigner.unmix_propensities(logged, control_propensities)
        return np.where(self._is_control(), control_propensities, unmixed)

    def _get_logged(self) -> Floats:
        """Return the logged propensities, at most 1; NaN if unknown."""
        if self._has_control_policy:
            # NumPy takes None for NaN.
            logged = np.array(self.get_column("propensity"), np.float64)
        else:
            logged = self._policy.columns.propensities[self.entries]
        # Earlier versions logged values that rounding had left above 1.
        return np.minimum(logged, 1.0)

    def _get_control_propensities(self) -> Floats:
        """Return the probability with which the control shows each decision's action."""
        assert self._assigner is not None
        return self._assigner.control.compute_probabilities(
            self._policy.columns.actions[self.entries], self.offers
        )

    def _is_control(self) -> Any:
        """Return a boolean array: True where the control decided."""
        return np.array([group == 1 for group in self.get_column("control")])
