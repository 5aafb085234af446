"""The coin of a holdout: which decisions are the control's, and what the control shows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.proof.sums import BUCKETS
from tacit.service.config.holdout import DECISION, HoldoutConfig
from tacit.service.lift.controls import Control

KEY_BYTES = 16
WHOLE = 2**64


class Tossed(NamedTuple):
    """What the coin says of decisions.

    Attributes
    ----------
    control : list of int
        1 for the control's, 0 for the policy's.
    bucket : list of int or None
        Of their users or sessions.
    imposed : array of int64, shape (rows, width)
        Slots of what the control shows; −1 for decisions of the policy.
    """

    control: list[int]
    bucket: list[int | None]
    imposed: Ints


class Coin:
    """Tosses for each unit, with the same result always: by its id and the placement's seed alone.

    Parameters
    ----------
    config : HoldoutConfig
    seed : int
        The placement's.
    control : Control
        What the control shows; of a policy of its own, nothing is asked.

    Examples
    --------
    >>> coin = Coin(HoldoutConfig(share=0.5, unit="user"), seed=7, control=Control("uniform"))
    >>> tossed = coin.toss(["1", "2", "3"], ["ann", "ann", "bob"], 3 * [np.arange(4)])
    >>> tossed.control[0] == tossed.control[1], tossed.bucket[0] == tossed.bucket[1]
    (True, True)
    """

    def __init__(self, config: HoldoutConfig, seed: int, control: Control) -> None:
        self.config = config
        self.control = control
        self._hash = hashlib.blake2b(
            key=seed.to_bytes(KEY_BYTES, "little"), person=b"holdout", digest_size=24
        )

    def _numbers(self, id: str) -> tuple[int, int, int]:
        """Return three numbers below 2**64 that nobody can foresee without the seed."""
        hashed = self._hash.copy()
        hashed.update(id.encode())
        whole = int.from_bytes(hashed.digest(), "little")
        return whole % WHOLE, (whole >> 64) % WHOLE, whole >> 128

    def toss(self, ids: Sequence[str], units: Sequence[str | None], offers: Sequence[Ints]) -> Tossed:
        """Return which decisions are the control's, and what it shows.

        Parameters
        ----------
        ids : sequence of str
            Of the decisions.
        units : sequence of str or None
            Of their users or sessions, where those stay in their group.
        offers : sequence of array of int64
            Slots of the arms on offer; the first one is the baseline.
        """
        sticky, limit = self.config.unit != DECISION, int(self.config.share * WHOLE)
        control: list[int] = []
        bucket: list[int | None] = []
        imposed = np.full((len(ids), self.control.width), -1, np.int64)
        for i, (id, unit) in enumerate(zip(ids, units, strict=True)):
            coin, place, draw = self._numbers(id)
            if sticky and unit is not None:
                # Not what a decision of the same name has.
                coin, place, _ = self._numbers(f"{self.config.unit}\0{unit}")
            control.append(int(coin < limit))
            bucket.append(place % BUCKETS if sticky else None)
            if coin < limit:
                imposed[i] = self.control.shown(offers[i], draw)
        return Tossed(control, bucket, imposed)

    def mixed(self, policy: Floats, control: Floats) -> Floats:
        """Return with what probability policy and control together show what is shown.

        Parameters
        ----------
        policy, control : array of float64
            With what probability each alone would; NaN where it is not known.
        """
        share = self.config.share
        return (1 - share) * policy + share * control

    def unmixed(self, logged: Floats, control: Floats) -> Floats:
        """Return what :meth:`mixed` was given of the policy, from what it returned."""
        share = self.config.share
        policy = (logged - share * control) / (1 - share)
        # What rounding leaves of 0 is not negative.
        return np.clip(policy, 0.0, 1.0)
