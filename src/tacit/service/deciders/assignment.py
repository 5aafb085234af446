"""Assignment of decisions to a holdout's control or to the policy, and the actions of the control."""

# 1. ``Control`` and its subclasses: actions of the control, and their probabilities.
# 2. ``HoldoutAssigner``: assigns decisions by a hash of the unit and the seed, so that all shards agree.

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import is_
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
    >>> Control("baseline").choose_actions([np.array([2, 0, 1])], np.array([7], np.uint64))
    array([[2]])
    >>> Control("uniform").compute_probabilities(np.array([[2], [0]]), [np.arange(4), np.arange(2)])
    array([0.25, 0.5 ])
    """

    width = 1

    def __init__(self, rule: str, arm_index: int | None = None) -> None:
        self._is_baseline, self._arm_index = rule == BASELINE, arm_index

    def choose_actions(self, offers: Sequence[Ints], draws: Any) -> Ints:
        """Return the arm indices of the control's actions, shape (rows, width): one arm at each position.

        Parameters
        ----------
        offers : sequence of array of int64
            Indices of the arms on offer in each row; the first one is the baseline.
        draws : array of uint64
            A draw for each row.
        """
        padded, sizes = _pad_offers(offers)
        if self._arm_index is None and not self._is_baseline:
            places = (draws % sizes.astype(np.uint64)).astype(np.int64)
            arms = padded[np.arange(len(padded)), places]
        else:
            arms = self._find_fixed_arms(padded)
        return np.repeat(arms[:, None], self.width, axis=1)

    def _find_fixed_arms(self, padded: Ints) -> Ints:
        """Return the arm that the control shows for each offer: the constant arm, else the first on offer.

        ``padded`` has an offer in each row. The first arm also replaces a constant arm that is not on offer.
        """
        first: Ints = padded[:, 0]
        if self._arm_index is None:
            return first
        # A request that was checked before the holdout changed may lack the arm. An index of −1, of an arm
        # that the placement does not have, stays.
        return np.where(
            (padded == self._arm_index).any(axis=1) | (self._arm_index < 0), self._arm_index, first
        )

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
        padded, sizes = _pad_offers(offers)
        first = actions[:, 0]
        probabilities: Any = 1.0 / sizes
        if self._arm_index is not None or self._is_baseline:
            probabilities = first == self._find_fixed_arms(padded)
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
    >>> control.choose_actions([np.array([2, 0, 1])], np.array([7], np.uint64))
    array([[2, 0]])
    >>> ListControl("uniform", positions=2).compute_probabilities(np.array([[2, 0]]), [np.arange(3)]).round(3)
    array([0.167])
    """

    def __init__(self, rule: str, positions: int) -> None:
        super().__init__(rule)
        self.width = positions

    def choose_actions(self, offers: Sequence[Ints], draws: Any) -> Ints:
        """Return the arm indices of lists, shape (rows, positions); −1 where too few arms are on offer.

        For a uniform control the order is drawn with a row's draw as the seed.
        """
        if not self._is_baseline:
            generators = [np.random.Generator(np.random.PCG64(draw)) for draw in draws.tolist()]
            offers = [rng.permutation(offer) for rng, offer in zip(generators, offers, strict=True)]
        return self._cut(_pad_offers(offers)[0])

    def _cut(self, padded: Ints) -> Ints:
        """Return the first ``width`` arms of each padded offer; −1 fills positions without an arm."""
        listed = np.full((len(padded), self.width), -1, np.int64)
        count = min(self.width, padded.shape[1])
        listed[:, :count] = padded[:, :count]
        return listed

    def compute_probabilities(self, actions: Ints, offers: Sequence[Ints]) -> Floats:
        """Return, for each row, the probability that the control shows the row's whole list."""
        return self.compute_prefix_probabilities(actions, offers)[:, -1]

    def compute_prefix_probabilities(self, actions: Ints, offers: Sequence[Ints]) -> Floats:
        """Return the probability of all arms down to each position, in their order, shape (rows, width)."""
        conditional = self._compute_conditional_probabilities(actions, offers)
        return np.asarray(np.cumprod(conditional, axis=1), np.float64)

    def compute_position_probabilities(self, actions: Ints, offers: Sequence[Ints]) -> Floats:
        """Return the probability that the control shows each arm at its position, shape (rows, width).

        Unlike in :meth:`compute_prefix_probabilities`, the other positions may show any arms.
        """
        if self._is_baseline:
            return self._compute_conditional_probabilities(actions, offers)
        sizes = _pad_offers(offers)[1][:, None]
        return np.where(actions >= 0, 1.0 / sizes, self._compute_conditional_probabilities(actions, offers))

    def _compute_conditional_probabilities(self, actions: Ints, offers: Sequence[Ints]) -> Floats:
        """Return the probability of each arm at its position, given the arms above it."""
        padded, sizes = _pad_offers(offers)
        if self._is_baseline:
            return np.asarray(actions == self._cut(padded), np.float64)
        remaining = sizes[:, None] - np.arange(self.width)
        # A position is empty if and only if no arm remains.
        return np.where(remaining > 0, (actions >= 0) / np.maximum(remaining, 1), actions < 0)


def _pad_offers(offers: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return offers as the rows of one array, filled up with −1, and the number of arms of each."""
    if len(offers) and all(map(is_, offers, repeat(offers[0]))):
        sizes = np.full(len(offers), len(offers[0]), np.int64)
        return np.broadcast_to(offers[0], (len(offers), len(offers[0]))), sizes
    sizes = np.array(list(map(len, offers)), np.int64)
    padded = np.full((len(offers), sizes.max(initial=1)), -1, np.int64)
    if len(offers):
        padded[np.arange(padded.shape[1]) < sizes[:, None]] = np.concatenate(offers)
    return padded, sizes


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
        digests, copy = [], self._hash.copy
        for text in map(str.encode, ids):
            hashed = copy()
            hashed.update(text)
            digests.append(hashed.digest())
        return np.frombuffer(b"".join(digests), "<u8").reshape(-1, 3).T

    def assign(
        self,
        ids: Sequence[str],
        units: Sequence[str | None],
        offers: Sequence[Ints] | None = None,
        *,
        all_control: bool = False,
    ) -> Assignment:
        """Assign decisions to the control or the policy, and choose the control's actions from the offers.

        Warns (AssumptionWarning) if units stay in their group and a decision lacks its unit; the decision is
        then assigned by its id.

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
        texts: Sequence[str] = ids
        if sticky:
            # The prefix separates units from decisions with the same id.
            pairs = zip(ids, units, strict=True)
            texts = [id if unit is None else f"{name}\0{unit}" for id, unit in pairs]
        numbers, bucket_numbers, draws = self._hash_ids(texts)
        buckets: list[int | None] = (bucket_numbers % BUCKETS).tolist() if sticky else [None] * len(ids)
        in_control = np.ones(len(ids), np.bool_)
        if not all_control:
            in_control = numbers < np.uint64(int(self.config.share * WHOLE))
        forced_actions = np.full((len(ids), self.control.width), -1, np.int64)
        (rows,) = in_control.nonzero()
        if offers is not None and len(rows):
            places = rows.tolist()
            # Units stay in their group, but the control draws for each decision.
            draws = self._hash_ids([ids[i] for i in places])[2] if sticky else draws[rows]
            forced_actions[rows] = self.control.choose_actions([offers[i] for i in places], draws)
        return Assignment(in_control.astype(np.int64).tolist(), buckets, forced_actions)

    def get_bucket(self, id: str, unit: str | None) -> int:
        """Return the bucket (below ``BUCKETS``) of a user or session; of the decision's id without a unit."""
        text = id if unit is None else f"{self.config.unit}\0{unit}"
        return int(self._hash_ids([text])[1, 0]) % BUCKETS

    def mix_propensities(self, policy: Floats, control: Floats) -> Floats:
        """Return the probabilities of actions over all traffic: (1 − share) · policy + share · control.

        Parameters
        ----------
        policy, control : array of float64
            Probabilities of each alone; NaN if unknown.
        """
        share = self.config.share
        return (1 - share) * policy + share * control

    def unmix_propensities(self, logged: Floats, control: Floats) -> Floats:
        """Return the policy's probabilities of actions from the control's and ``logged``, over all traffic.

        They are clipped to [0, 1].
        """
        share = self.config.share
        policy = (logged - share * control) / (1 - share)
        # Rounding may yield values slightly below 0.
        return np.clip(policy, 0.0, 1.0)


def format_unit_warning(unit: str) -> str:
    """Return the text of the warning for a decision without its user or session."""
    return f"holdout.unit: a decision without {unit} is drawn alone; send {unit} with each"
