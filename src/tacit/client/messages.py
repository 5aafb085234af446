"""What the client sends and reads: the structures of :mod:`tacit.wire`, and what an address holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

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
from tacit.wire.lift import LiftOf as LiftOf
from tacit.wire.lists import Clicks as Clicks
from tacit.wire.lists import Dueled as Dueled
from tacit.wire.lists import DuelsOfKey as DuelsOfKey
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
