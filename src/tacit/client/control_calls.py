"""The calls by which a placement is turned, and by which is seen who turned it, each once."""

# Each method is a call: its signature checks nothing, the structures of the wire do. In the order of the
# table of verbs: pins, the holdout, items, other policies, history.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.client.call import Call, ask, call, part
from tacit.core.arrays import Floats
from tacit.learning.catalogue import Catalogue
from tacit.wire import control as wire
from tacit.wire import verbs
from tacit.wire.decisions import Arm, ItemsGone, ItemsNow, ItemsOf, NewItem
from tacit.wire.lift import LATEST, ForWhom, ForWhomOf


class ControlCalls:
    """What both clients ask of a placement itself: the public methods here are calls."""

    @call
    def pin(self, placement: str, arms: Sequence[Arm], until: str | date) -> Call[wire.Pinned | None]:
        """Let every decision of a placement show some arms until a time.

        What does not offer them is decided by the policy. Feedback is learned as ever.

        Parameters
        ----------
        placement : str
        arms : sequence of arms
            One arm or ranker; of a placement that shows lists, the arms from the top.
        until : str, datetime or date
            In ISO 8601; without a zone it is a time in UTC.

        Returns
        -------
        Pinned

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        moment: Any = until
        return part("pinned", ask(verbs.PIN, placement, wire.PinOf(arms, moment)))

    @call
    def unpin(self, placement: str) -> Call[wire.Pinned | None]:
        """Let the policy of a placement decide again; nothing happens where nothing is pinned.

        Parameters
        ----------
        placement : str

        Returns
        -------
        None

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return part("pinned", ask(verbs.UNPIN, placement, wire.Unpin()))

    @call
    def hold_out(
        self,
        placement: str,
        share: float = 0.1,
        control: str | Mapping[str, Arm] = "uniform",
        unit: str = "decision",
        look: str | date | None = None,
    ) -> Call[wire.Holdout | None]:
        """Keep a part of the traffic for a control, so that it shows what learning is worth.

        It takes the place of the holdout that there was, until the one of the configuration is
        changed. A chapter of the lift begins.

        Parameters
        ----------
        placement : str
        share : float, default 0.1
            Of the decisions that are the control's; above 0, at most 0.5.
        control : str or dict, default "uniform"
            What it shows: an arm drawn ``uniform``ly, the ``baseline``, which is the first one on
            offer, or always ``{"arm": …}``.
        unit : str, default "decision"
            Who stays in one group: each ``decision``, all of a ``session`` or of a ``user``.
        look : str, datetime or date, optional
            When one look is planned, in ISO 8601, such as ``2026-06-01``: at that one the interval
            is sharper.

        Returns
        -------
        Holdout

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        # The service says which controls and units there are.
        asked: tuple[Any, ...] = share, control, unit, look
        return part("holdout", ask(verbs.HOLD_OUT, placement, wire.HoldoutOf(*asked)))

    @call
    def end_holdout(self, placement: str) -> Call[wire.Holdout | None]:
        """Show nobody a control any more.

        Parameters
        ----------
        placement : str

        Returns
        -------
        None

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return part("holdout", ask(verbs.END_HOLDOUT, placement, wire.EndHoldout()))

    @call
    def put_items(
        self,
        placement: str,
        ids: Sequence[str],
        vectors: npt.ArrayLike,
        segments: str | Sequence[str | None] | None = None,
    ) -> Call[ItemsNow]:
        """Put items into the catalogue of a placement; those that are there get these vectors.

        Parameters
        ----------
        placement : str
        ids : sequence of str
            1 to 1000; a request holds as many as the service's ``batch_limit`` lets, some 300 of 384
            numbers.
        vectors : array of float, shape (items, numbers)
            Each number within ±65,504; 11 binary digits of it are sent.
        segments : str, or sequence of str or None, optional
            What all of them belong to, or each.

        Returns
        -------
        ItemsNow

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        items = Catalogue(np.shape(vectors)[-1] if np.ndim(vectors) == 2 else 0)
        names, halves, parts = items.checked(ids, vectors, segments)
        numbers = five_digits(halves).tolist()
        made = [NewItem(str(id), *each) for id, *each in zip(names, numbers, parts, strict=True)]
        return ask(verbs.PUT_ITEMS, placement, ItemsOf(made))

    @call
    def remove_items(self, placement: str, ids: Sequence[str]) -> Call[ItemsNow]:
        """Take items out of the catalogue of a placement: all of them, or none.

        Parameters
        ----------
        placement : str
        ids : sequence of str
            1 to 10,000.

        Returns
        -------
        ItemsNow

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return ask(verbs.REMOVE_ITEMS, placement, ItemsGone(list(ids)))

    @call
    def items(self, placement: str) -> Call[ItemsNow]:
        """Return how many items the catalogue of a placement has.

        Parameters
        ----------
        placement : str

        Returns
        -------
        ItemsNow

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return ask(verbs.ITEMS, placement, wire.Nothing())

    @call
    def rebuild(self, placement: str, policy: str | Mapping[str, Any]) -> Call[wire.Rebuilt]:
        """Fold the log of a placement into another policy, and let that decide from then on.

        Requests go on meanwhile. It takes as long as a start without a snapshot: give the client
        such a ``timeout``, and no retries; it goes on whether anybody waits for it or not.

        Parameters
        ----------
        placement : str
        policy : str or dict
            As the configuration says it: ``"ucb1"``, or a dict with the key ``name``.

        Returns
        -------
        Rebuilt

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`; :class:`Conflict` while another one is under way.
        """
        return ask(verbs.REBUILD, placement, wire.RebuildOf(policy))

    @call
    def rollback(self, placement: str, to: str | None = None) -> Call[wire.Rebuilt]:
        """Go back to what a placement had learned before.

        Parameters
        ----------
        placement : str
        to : str, optional
            The name of a state, as :meth:`states` tells it; by default the one left last.

        Returns
        -------
        Rebuilt

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`rebuild`.
        """
        return ask(verbs.ROLLBACK, placement, wire.RollbackOf(to))

    @call
    def states(self, placement: str) -> Call[list[wire.StateKept]]:
        """Return what a placement can go back to, the latest first.

        Parameters
        ----------
        placement : str

        Returns
        -------
        list of StateKept

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return part("states", ask(verbs.STATES, placement, wire.Nothing()))

    @call
    def for_whom(self, placement: str, limit: int = LATEST) -> Call[ForWhom]:
        """Return which users a placement shows what, by what is known of them, and why.

        Parameters
        ----------
        placement : str
            Whose policy learns from who is asking.
        limit : int, default 2000
            How many of the latest decisions are looked at, at most 10,000.

        Returns
        -------
        ForWhom

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return ask(verbs.FOR_WHOM, placement, ForWhomOf(limit))

    @call
    def history(self, placement: str, limit: int = 100) -> Call[list[wire.Change]]:
        """Return who changed what of a placement, the last change first.

        Parameters
        ----------
        placement : str
        limit : int, default 100
            How many changes, at most 1000.

        Returns
        -------
        list of Change

        Raises
        ------
        InvalidValue, ServiceError
            As :meth:`decide`.
        """
        return part("history", ask(verbs.HISTORY, placement, wire.HistoryOf(limit)))


def five_digits(halves: npt.NDArray[np.float16]) -> Floats:
    """Return numbers of half precision in the five decimal digits that tell them apart.

    Examples
    --------
    >>> five_digits(np.array([1 / 3, 0.0, -1234.5], np.float16)).tolist()
    [0.33325, 0.0, -1234.0]
    """
    numbers = halves.astype(np.float64)
    scale = 10.0 ** (4.0 - np.floor(np.log10(np.where(numbers == 0.0, 1.0, np.abs(numbers)))))
    found: Floats = np.round(numbers * scale) / scale
    return found
