"""The clients' calls that change a placement, and return its saved states, segments and history."""

# The structures of the wire check the arguments, not these methods. In the order of the table of verbs: pins,
# the holdout, items, rebuilds, reports by segment, history.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.client.call import Call, call, make_verb_call, select_field
from tacit.core.arrays import Floats
from tacit.learning.catalogue import Catalogue
from tacit.wire import control as wire
from tacit.wire import verbs
from tacit.wire.decisions import Arm, ItemsGone, ItemsNow, ItemsOf, NewItem
from tacit.wire.lift import LATEST, ForWhom, ForWhomOf


class ControlCalls:
    """Calls that both clients have as methods: changes of a placement, and its history."""

    @call
    def pin(self, placement: str, arms: Sequence[Arm], until: str | date) -> Call[wire.Pinned | None]:
        """Pin an arm or a list, which all decisions of a placement show until a time.

        The policy still decides requests that do not offer it. Feedback is learned as usual.

        Parameters
        ----------
        placement : str
        arms : sequence of arms
            One arm or ranker; or the arms of a list, from the top.
        until : str, datetime or date
            In ISO 8601; without a zone it is a time in UTC.

        Returns
        -------
        Pinned

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        moment: Any = until
        return select_field("pinned", make_verb_call(verbs.PIN, placement, wire.PinOf(arms, moment)))

    @call
    def unpin(self, placement: str) -> Call[wire.Pinned | None]:
        """Remove the pin of a placement, so that the policy decides again; without a pin, nothing changes.

        Parameters
        ----------
        placement : str

        Returns
        -------
        None

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return select_field("pinned", make_verb_call(verbs.UNPIN, placement, wire.Unpin()))

    @call
    def hold_out(
        self,
        placement: str,
        share: float = 0.1,
        control: str | Mapping[str, Arm] = "uniform",
        unit: str = "decision",
        look: str | date | None = None,
    ) -> Call[wire.Holdout | None]:
        """Hold out a share of the traffic for a control, to measure the lift.

        It replaces the current holdout, until the one in the configuration is changed. A new period
        of the lift begins.

        Parameters
        ----------
        placement : str
        share : float, default 0.1
            Share of decisions in the control group; above 0, at most 0.5.
        control : str or dict, default "uniform"
            The control group is shown an arm drawn ``uniform``ly, the ``baseline``, which is the first
            arm on offer, or always ``{"arm": …}``.
        unit : str, default "decision"
            Unit of assignment to a group: each ``decision``, all of a ``session`` or of a ``user``.
        look : str, datetime or date, optional
            Planned time of one analysis, in ISO 8601, such as ``2026-06-01``, at which the interval
            is narrower.

        Returns
        -------
        Holdout

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        # Any, since the service checks controls and units.
        fields: tuple[Any, ...] = share, control, unit, look
        return select_field("holdout", make_verb_call(verbs.HOLD_OUT, placement, wire.HoldoutOf(*fields)))

    @call
    def end_holdout(self, placement: str) -> Call[wire.Holdout | None]:
        """End the holdout of a placement, so that the policy decides all requests.

        Parameters
        ----------
        placement : str

        Returns
        -------
        None

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return select_field("holdout", make_verb_call(verbs.END_HOLDOUT, placement, wire.EndHoldout()))

    @call
    def put_items(
        self,
        placement: str,
        ids: Sequence[str],
        vectors: npt.ArrayLike,
        segments: str | Sequence[str | None] | None = None,
    ) -> Call[ItemsNow]:
        """Put items into the catalogue of a placement, in place of existing ones with the same ids.

        Parameters
        ----------
        placement : str
        ids : sequence of str
            1 to 1000 ids; the service's ``batch_limit`` may allow fewer, such as 300 items of 384
            numbers.
        vectors : array of float, shape (items, numbers)
            Each number within ±65,504; 11 binary digits of it are sent.
        segments : str, or sequence of str or None, optional
            The segment of all items, or of each.

        Returns
        -------
        ItemsNow

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        items = Catalogue(np.shape(vectors)[-1] if np.ndim(vectors) == 2 else 0)
        names, halves, parts = items.validate(ids, vectors, segments)
        numbers = round_halves(halves).tolist()
        new_items = [NewItem(str(id), *fields) for id, *fields in zip(names, numbers, parts, strict=True)]
        return make_verb_call(verbs.PUT_ITEMS, placement, ItemsOf(new_items))

    @call
    def remove_items(self, placement: str, ids: Sequence[str]) -> Call[ItemsNow]:
        """Remove items from the catalogue of a placement: all of these ids, or none.

        Parameters
        ----------
        placement : str
        ids : sequence of str
            1 to 10,000 ids.

        Returns
        -------
        ItemsNow

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_verb_call(verbs.REMOVE_ITEMS, placement, ItemsGone(list(ids)))

    @call
    def items(self, placement: str) -> Call[ItemsNow]:
        """Return the size, version and segments of a placement's catalogue.

        Parameters
        ----------
        placement : str

        Returns
        -------
        ItemsNow

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_verb_call(verbs.ITEMS, placement, wire.Nothing())

    @call
    def rebuild(self, placement: str, policy: str | Mapping[str, Any]) -> Call[wire.Rebuilt]:
        """Replace the policy of a placement by another one, which first learns from the log.

        The service keeps deciding in the meantime. A rebuild takes as long as a start without a
        snapshot: give the client such a ``timeout``, and no retries. It continues if the client leaves.

        Parameters
        ----------
        placement : str
        policy : str or dict
            The policy as in the configuration: ``"ucb1"``, or a dict with the key ``name``.

        Returns
        -------
        Rebuilt

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer;
            :class:`Conflict` while another rebuild runs.
        """
        return make_verb_call(verbs.REBUILD, placement, wire.RebuildOf(policy))

    @call
    def rollback(self, placement: str, to: str | None = None) -> Call[wire.Rebuilt]:
        """Restore a saved state of a placement's policy, which then decides; the present state is saved.

        Parameters
        ----------
        placement : str
        to : str, optional
            The name of a state, as :meth:`states` lists it; by default the one saved last.

        Returns
        -------
        Rebuilt

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_verb_call(verbs.ROLLBACK, placement, wire.RollbackOf(to))

    @call
    def states(self, placement: str) -> Call[list[wire.StateKept]]:
        """Return name, time and policy of each saved state that a placement can restore, the latest first.

        Parameters
        ----------
        placement : str

        Returns
        -------
        list of StateKept

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return select_field("states", make_verb_call(verbs.STATES, placement, wire.Nothing()))

    @call
    def for_whom(self, placement: str, limit: int = LATEST) -> Call[ForWhom]:
        """Return which arms a placement shows which users, by the fields of the context, and why.

        Parameters
        ----------
        placement : str
            A placement whose policy reads the context.
        limit : int, default 2000
            Number of the latest decisions in the report, at most 10,000.

        Returns
        -------
        ForWhom

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return make_verb_call(verbs.FOR_WHOM, placement, ForWhomOf(limit))

    @call
    def history(self, placement: str, limit: int = 100) -> Call[list[wire.Change]]:
        """Return the logged changes of a placement, such as of its mode or arms, the last change first.

        Parameters
        ----------
        placement : str
        limit : int, default 100
            Number of changes, at most 1000.

        Returns
        -------
        list of Change

        Raises
        ------
        InvalidValue, ServiceError
            If an argument is not valid; if the service refuses the request or does not answer.
        """
        return select_field("history", make_verb_call(verbs.HISTORY, placement, wire.HistoryOf(limit)))


def round_halves(halves: npt.NDArray[np.float16]) -> Floats:
    """Round numbers of half precision to five decimal digits, which distinguish them.

    Examples
    --------
    >>> round_halves(np.array([1 / 3, 0.0, -1234.5], np.float16)).tolist()
    [0.33325, 0.0, -1234.0]
    """
    numbers = halves.astype(np.float64)
    scale = 10.0 ** (4.0 - np.floor(np.log10(np.where(numbers == 0.0, 1.0, np.abs(numbers)))))
    rounded: Floats = np.round(numbers * scale) / scale
    return rounded
