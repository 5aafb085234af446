"""Assignment of decisions to a holdout's control or to the policy, and the actions of the control."""

# 1. ``Control`` and its subclasses: actions of the control, and their probabilities.
# 2. ``HoldoutAssigner``: assigns decisions by a hash of the unit and the seed, so that all shards agree.

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.errors import AssumptionWarning
from tacit.service.config.holdout import BASELINE, DECISION, HoldoutConfig
from tacit.uplift.boundary import BUCKETS

# ---- Actions of the control, and their probabilities


class Control:
    """A control that shows one arm: uniformly drawn, the first on offer, or a constant one.

    Parameters
    ----------
    rule : str
        ``uniform`` or ``baseline``; ignored with an arm index.
    arm_index : int, optional
        Index of the constant arm.

    Examples
    --------
    >>> Control("baseline").choose_action(np.array([2, 0, 1]), draw=7)
    array([2])
    >>> Control("uniform").compute_probabilities(np.array([[2], [0]]), [np.arange(4), np.arange(2)])
    array([0.25, 0.5 ])
    """

    width = 1

    def __init__(self, rule: str, arm_index: int | None = None) -> None:
        self._is_baseline, self._arm_index = rule == BASELINE, arm_index

    def choose_action(self, offer: Ints, draw: int) -> Ints:
        """Return the arm indices of the control's action, shape (width,): the same arm at each position.

        Parameters
        ----------
        offer : array of int64
            Indices of the arms on offer; the first one is the baseline.
        draw : int
            Below 2**64.
        """
        return np.full(self.width, self._arm(offer, draw), np.int64)

    def _arm(self, offer: Ints, draw: int) -> int:
        """Return the index of the arm that the control shows: the constant, the first, or number ``draw``.

        If the constant arm is not on offer, it is the first one.
        """
        if self._arm_index is not None:
            # A request that was checked before the holdout changed may lack the arm.
            return self._arm_index if self._arm_index < 0 or self._arm_index in offer else int(offer[0])
        return int(offer[0 if self._is_baseline else draw % len(offer)])

    def compute_probabilities(self, actions: Ints, offers: Sequence[Ints]) -> Floats:
        """Return, for each row, the probability that the control shows the row's action.

        Parameters
        ----------
        actions : array of int64, shape (rows, width)
            Arm indices of each row's action.
        offers : sequence of array of int64
            Indices of the arms on offer in each row.

        Returns
        -------
        array of float64, shape (rows,)
        """
        first = actions[:, 0]
        if self._arm_index is not None:
            probabilities = first == [self._arm(offer, 0) for offer in offers]
        elif self._is_baseline:
            probabilities = first == [offer[0] for offer in offers]
        else:
            probabilities = 1.0 / np.array(list(map(len, offers)), np.float64)
        return np.asarray((actions == first[:, None]).all(axis=1) * probabilities, np.float64)


class PairControl(Control):
    """A control of duels: the list of one ranker alone."""

    width = 2


class ListControl(Control):
    """A control that lists arms: in random order, or in the order of the offer.

    Parameters
    ----------
    rule : str
    positions : int

    Examples
    --------
    >>> control = ListControl("baseline", positions=2)
    >>> control.choose_action(np.array([2, 0, 1]), draw=7)
    array([2, 0])
    >>> ListControl("uniform", positions=2).compute_probabilities(np.array([[2, 0]]), [np.arange(3)]).round(3)
    array([0.167])
    """

    def __init__(self, rule: str, positions: int) -> None:
        super().__init__(rule)
        self.width = positions

    def choose_action(self, offer: Ints, draw: int) -> Ints:
        """Return the arm indices of a list, shape (positions,); −1 where too few arms are on offer.

        For a uniform control the order is drawn with ``draw`` as the seed.
        """
        listed = np.full(self.width, -1, np.int64)
        if not self._is_baseline:
            offer = np.random.Generator(np.random.PCG64(draw)).permutation(offer)
        count = min(self.width, len(offer))
        listed[:count] = offer[:count]
        return listed

    def compute_probabilities(self, actions: Ints, offers: Sequence[Ints]) -> Floats:
        """Return, for each row, the probability that the control shows the row's whole list."""
        return self.prefix_probabilities(actions, offers)[:, -1]

    def prefix_probabilities(self, actions: Ints, offers: Sequence[Ints]) -> Floats:
        """Return, for each position, the probability of the row's list down to it, shape (rows, width)."""
        return np.asarray(np.cumprod(self._conditional_probabilities(actions, offers), axis=1), np.float64)

    def position_probabilities(self, actions: Ints, offers: Sequence[Ints]) -> Floats:
        """Return the probability that the control shows each arm at its position, shape (rows, width)."""
        if self._is_baseline:
            return self._conditional_probabilities(actions, offers)
        sizes = np.array(list(map(len, offers)), np.float64)[:, None]
        return np.where(actions >= 0, 1.0 / sizes, self._conditional_probabilities(actions, offers))

    def _conditional_probabilities(self, actions: Ints, offers: Sequence[Ints]) -> Floats:
        """Return the probability of each arm at its position, conditional on the arms above."""
        probabilities = np.empty(actions.shape)
        for row, indices, offer in zip(probabilities, actions, offers, strict=True):
            if self._is_baseline:
                row[:] = indices == self.choose_action(offer, 0)
            else:
                remaining = len(offer) - np.arange(self.width)
                # A position is empty if and only if no arm remains.
                row[:] = np.where(remaining > 0, (indices >= 0) / np.maximum(remaining, 1), indices < 0)
        return probabilities


# ---- Assignment to the holdout

KEY_BYTES = 16
WHOLE = 2**64


class Assignment(NamedTuple):
    """Assignment of decisions to the control or the policy.

    Attributes
    ----------
    in_control : list of int
        1 for the control, 0 for the policy.
    buckets : list of int or None
        Buckets of the users or sessions.
    forced_actions : array of int64, shape (rows, width)
        Arm indices of the control's actions; −1 for decisions of the policy.
    """

    in_control: list[int]
    buckets: list[int | None]
    forced_actions: Ints


class HoldoutAssigner:
    """Assigns units to the control or the policy, by a hash of the unit's id and the placement's seed.

    A unit always gets the same group.

    Parameters
    ----------
    config : HoldoutConfig
    seed : int
        Seed of the placement.
    control : Control
        Chooses the control's actions; unused if the control has its own policy.

    Examples
    --------
    >>> assigner = HoldoutAssigner(HoldoutConfig(share=0.5, unit="user"), seed=7, control=Control("uniform"))
    >>> assignment = assigner.assign(["1", "2", "3"], ["ann", "ann", "bob"], 3 * [np.arange(4)])
    >>> assignment.in_control[0] == assignment.in_control[1], assignment.buckets[0] == assignment.buckets[1]
    (True, True)
    """

    def __init__(self, config: HoldoutConfig, seed: int, control: Control) -> None:
        """Prepare the hash, which is keyed by the seed."""
        self.config = config
        self.control = control
        self._hash = hashlib.blake2b(
            key=seed.to_bytes(KEY_BYTES, "little"), person=b"holdout", digest_size=24
        )

    def _hash_ids(self, ids: Iterable[str]) -> Any:
        """Hash each id to three numbers below 2**64: for the group, the bucket and the control's draw.

        Returns an array of uint64, shape (3, ids).
        """
        copies = [(self._hash.copy(), id.encode()) for id in ids]
        for hashed, text in copies:
            hashed.update(text)
        digests = b"".join([hashed.digest() for hashed, _ in copies])
        return np.frombuffer(digests, "<u8").reshape(-1, 3).T

    def assign(
        self,
        ids: Sequence[str],
        units: Sequence[str | None],
        offers: Sequence[Ints] | None = None,
        *,
        all_control: bool = False,
    ) -> Assignment:
        """Assign decisions to the control or the policy, and choose the control's actions among offers.

        Warns (AssumptionWarning) if units stay in their group and a decision lacks its unit.

        Parameters
        ----------
        ids : sequence of str
            Ids of the decisions.
        units : sequence of str or None
            Users or sessions, if those stay in their group.
        offers : sequence of array of int64, optional
            Indices of the arms on offer; the first one is the baseline. Without them the control, a policy of
            its own, chooses its actions itself.
        all_control : bool, default False
            Whether to assign every decision to the control.
        """
        sticky, name = self.config.unit != DECISION, self.config.unit
        if sticky and None in units:
            warnings.warn(format_unit_warning(name), AssumptionWarning, stacklevel=2)
        numbers, bucket_numbers, draws = self._hash_ids(ids)
        buckets: list[int | None] = [None] * len(ids)
        if sticky:
            # The prefix separates units from decisions with the same id.
            pairs = zip(ids, units, strict=True)
            texts = [id if unit is None else f"{name}\0{unit}" for id, unit in pairs]
            numbers, bucket_numbers, _ = self._hash_ids(texts)
            buckets = (bucket_numbers % BUCKETS).tolist()
        in_control = np.ones(len(ids), np.bool_)
        if not all_control:
            in_control = numbers < np.uint64(int(self.config.share * WHOLE))
        forced_actions = np.full((len(ids), self.control.width), -1, np.int64)
        if offers is not None:
            for i in np.flatnonzero(in_control).tolist():
                forced_actions[i] = self.control.choose_action(offers[i], int(draws[i]))
        return Assignment(in_control.astype(np.int64).tolist(), buckets, forced_actions)

    def get_bucket(self, id: str, unit: str | None) -> int:
        """Return the bucket number (below ``BUCKETS``) of a user or session, or of a decision without one."""
        text = id if unit is None else f"{self.config.unit}\0{unit}"
        return int(self._hash_ids([text])[1, 0]) % BUCKETS

    def mix_propensities(self, policy: Floats, control: Floats) -> Floats:
        """Return (1 − share) · policy + share · control: probabilities of actions under the whole traffic.

        Parameters
        ----------
        policy, control : array of float64
            Probabilities of each alone; NaN if unknown.
        """
        share = self.config.share
        return (1 - share) * policy + share * control

    def unmix_propensities(self, logged: Floats, control: Floats) -> Floats:
        """Return the policy's probabilities, in [0, 1], from mixed ones and those of the control."""
        share = self.config.share
        policy = (logged - share * control) / (1 - share)
        # Rounding may yield values slightly below 0.
        return np.clip(policy, 0.0, 1.0)


def format_unit_warning(unit: str) -> str:
    """Return the text of the warning for a decision without its user or session."""
    return f"holdout.unit: a decision without {unit} is drawn alone; send {unit} with each"
