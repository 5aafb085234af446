"""What the client sends and reads: the structures of :mod:`tacit.wire`, and what an address holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from tacit.wire.control import ArmsNow as ArmsNow
from tacit.wire.control import ArmsOf as ArmsOf
from tacit.wire.control import Change as Change
from tacit.wire.control import EndHoldout as EndHoldout
from tacit.wire.control import History as History
from tacit.wire.control import HistoryOf as HistoryOf
from tacit.wire.control import Holdout as Holdout
from tacit.wire.control import HoldoutNow as HoldoutNow
from tacit.wire.control import HoldoutOf as HoldoutOf
from tacit.wire.control import ModeOf as ModeOf
from tacit.wire.control import Nothing as Nothing
from tacit.wire.control import Pinned as Pinned
from tacit.wire.control import PinNow as PinNow
from tacit.wire.control import PinOf as PinOf
from tacit.wire.control import RebuildOf as RebuildOf
from tacit.wire.control import Rebuilt as Rebuilt
from tacit.wire.control import RollbackOf as RollbackOf
from tacit.wire.control import StateKept as StateKept
from tacit.wire.control import States as States
from tacit.wire.control import Unpin as Unpin
from tacit.wire.decisions import Decided as Decided
from tacit.wire.decisions import Event as Event
from tacit.wire.decisions import Feedback as Feedback
from tacit.wire.decisions import Impression as Impression
from tacit.wire.decisions import LocalDecision as LocalDecision
from tacit.wire.decisions import Recorded as Recorded
from tacit.wire.decisions import TakenOver as TakenOver
from tacit.wire.decisions import Would as Would
from tacit.wire.items import ItemsGone as ItemsGone
from tacit.wire.items import ItemsNow as ItemsNow
from tacit.wire.items import ItemsOf as ItemsOf
from tacit.wire.items import NewItem as NewItem
from tacit.wire.lists import Clicks as Clicks
from tacit.wire.lists import Dueled as Dueled
from tacit.wire.lists import DuelsOfKey as DuelsOfKey
from tacit.wire.lists import LiftOf as LiftOf
from tacit.wire.lists import Listed as Listed
from tacit.wire.lists import Search as Search
from tacit.wire.lists import Standings as Standings
from tacit.wire.lists import StandingsOf as StandingsOf
from tacit.wire.lists import Verdict as Verdict
from tacit.wire.lists import VerdictOf as VerdictOf
from tacit.wire.lists import WouldDuel as WouldDuel
from tacit.wire.lists import WouldSlate as WouldSlate
from tacit.wire.whom import LATEST as LATEST
from tacit.wire.whom import ArmForAll as ArmForAll
from tacit.wire.whom import ArmForThem as ArmForThem
from tacit.wire.whom import FieldForWhom as FieldForWhom
from tacit.wire.whom import ForWhom as ForWhom
from tacit.wire.whom import ForWhomOf as ForWhomOf
from tacit.wire.whom import UserSegment as UserSegment

Arm = int | str
Context = Sequence[float] | Mapping[str, str | float | bool | None]
Mode = Literal["online", "apprentice", "frozen", "shadow"]


Message = (
    Impression
    | Search
    | LocalDecision
    | Feedback
    | Clicks
    | Event
    | StandingsOf
    | VerdictOf
    | LiftOf
    | ForWhomOf
    | ModeOf
    | ArmsOf
    | HistoryOf
    | PinOf
    | HoldoutOf
    | RebuildOf
    | RollbackOf
    | Nothing
    | Unpin
    | EndHoldout
    | ItemsOf
    | ItemsGone
)


class Between(msgspec.Struct, frozen=True):
    """An estimate and its interval; None for an end that is infinite, or not known.

    Attributes
    ----------
    estimate, low, high : float or None
    """

    estimate: float | None
    low: float | None
    high: float | None


class Earned(msgspec.Struct, frozen=True):
    """What learning earned more than a control.

    Attributes
    ----------
    placement : str
    method : str
        ``holdout``, or ``propensities`` where the control is worked out from those.
    control : str
        ``uniform``, ``baseline``, ``arm NAME`` or ``policy NAME``.
    share : float or None
        Of the control.
    unit : str or None
        Who stays in one group: ``decision``, ``session`` or ``user``.
    since : str or None
        From when on decisions count, in ISO 8601.
    until : str or None
        Until when, of a stretch of time.
    confidence : float
    groups : dict
        ``decisions`` and ``rewards`` of ``control`` and ``policy``.
    claim : str
        ``early``, ``undecided``, ``better`` or ``worse``.
    ratio, difference : Between or None
    verdict : str
        What all this says, in words.
    srm : list of dict
        Whether the control has its share of the traffic, and arms that of their propensities:
        ``what``, ``share``, ``evidence``, ``alarm``.
    planner : dict or None
        When a ``lift`` would show: after how many ``decisions``, in how many ``days``; ``verdict``
        says it in words.
    winner : dict or None
        The best ``arm``, whether it is ``declared``, how far others are ``behind``.
    metrics : list of dict
        The same of what is watched beside the reward, and whether it is harmed.
    winner_verdict : str
        What can be said of the best arm.
    as_of : str
        When this was worked out, by the log's clock, in ISO 8601.
    pending : int
        Decisions that do not count yet.
    pending_until : str or None
        When the last of their windows closes, as they are now.
    counted : str
        The time and the count of all this, in words.
    chapters : list of dict
        Of the holdout, in order: ``number``, ``since``, ``until``, ``ended`` (what ended it, in
        words), ``control``, ``share``, ``unit``, ``groups``, ``claim``, ``ratio``, ``difference``,
        ``counted`` (whether the lift counts it), ``alarm``, and its ``parts``, since each change of
        arms, policy or mode: ``what``, ``since``, ``groups``, ``ratio``.
    look : dict or None
        The look that was planned: ``at``, ``reached``, ``claim``, ``ratio``, ``difference``,
        ``verdict``.
    """

    placement: str
    method: str
    control: str
    share: float | None
    unit: str | None
    since: str | None
    until: str | None
    confidence: float
    groups: dict[str, dict[str, float]]
    claim: str
    ratio: Between | None
    difference: Between | None
    verdict: str
    srm: list[dict[str, Any]]
    planner: dict[str, Any] | None
    winner: dict[str, Any] | None
    metrics: list[dict[str, Any]]
    winner_verdict: str = ""
    as_of: str = ""
    pending: int = 0
    pending_until: str | None = None
    counted: str = ""
    chapters: list[dict[str, Any]] = []
    look: dict[str, Any] | None = None
