"""What the client sends, and what it reads: the same structures for one and for many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

Arm = int | str
Mode = Literal["online", "apprentice", "frozen", "shadow"]


class Impression(msgspec.Struct, frozen=True):
    """One of many impressions to decide on; see :meth:`tacit.client.Client.decide`.

    Attributes
    ----------
    key : str
    arms : sequence of int or str, optional
    context : sequence of float, optional
    decision_id : str, optional
    deferred : bool, default False
    relevance, examination : sequence of sequence of float, optional
    session, user : str, optional
    """

    key: str
    arms: Sequence[Arm] | None = None
    context: Sequence[float] | None = None
    decision_id: str | None = None
    deferred: bool = False
    relevance: Sequence[Sequence[float]] | None = None
    examination: Sequence[Sequence[float]] | None = None
    session: str | None = None
    user: str | None = None


class Search(msgspec.Struct, frozen=True):
    """One of many searches for which rankers duel; see :meth:`tacit.client.Client.duel`.

    Attributes
    ----------
    rankings : mapping from str to sequence of int or str, optional
    key : str, default "all"
    context : sequence of float, optional
    decision_id : str, optional
    deferred : bool, default False
    session, user : str, optional
    segments : mapping from str to str, optional
    """

    rankings: Mapping[str, Sequence[Arm]] | None = None
    key: str = "all"
    context: Sequence[float] | None = None
    decision_id: str | None = None
    deferred: bool = False
    session: str | None = None
    user: str | None = None
    segments: Mapping[str, str] | None = None


class Feedback(msgspec.Struct, frozen=True):
    """One of many pieces of feedback; see :meth:`tacit.client.Client.feedback`.

    Attributes
    ----------
    decision_id : str
    reward : float, optional
        In [0, 1]; left out where the placement learns from a metric.
    feedback_id : str, optional
    metrics : mapping from str to float, optional
    """

    decision_id: str
    reward: float | None = None
    feedback_id: str | None = None
    metrics: Mapping[str, float] | None = None


class Clicks(msgspec.Struct, frozen=True):
    """One of many lists and what was clicked; see :meth:`tacit.client.Client.clicks`.

    Attributes
    ----------
    decision_id : str
    clicks : sequence of int, optional
        Positions from 0; empty for none.
    items : sequence of int or str, optional
        In place of positions.
    feedback_id : str, optional
    metrics : mapping from str to float, optional
    action : str, optional
        What was done there, where it is no click.
    """

    decision_id: str
    clicks: Sequence[int] | None = None
    items: Sequence[Arm] | None = None
    feedback_id: str | None = None
    metrics: Mapping[str, float] | None = None
    action: str | None = None


class Event(msgspec.Struct, frozen=True):
    """That something happened to a decision: it was activated, or examined."""

    decision_id: str
    feedback_id: str | None = None


class LocalDecision(msgspec.Struct, frozen=True):
    """A decision that was made next to the caller; see :class:`tacit.client.Local`.

    Attributes
    ----------
    decision_id : str
    key : str
    arm : int or str
    propensity : float, optional
        In (0, 1]; None where the policy is deterministic.
    arms : sequence of int or str, optional
        Those that were on offer; by default all.
    context : sequence of float, optional
    """

    decision_id: str
    key: str
    arm: Arm
    propensity: float | None = None
    arms: Sequence[Arm] | None = None
    context: Sequence[float] | None = None


class TakenOver(msgspec.Struct, frozen=True):
    """What became of a decision that was made next to the caller.

    Attributes
    ----------
    decision_id : str
    outcome : str
        ``logged``, or the kind of problem: ``invalid-value``, ``conflict``.
    detail : str
        What the problem is; empty if there is none.
    """

    decision_id: str
    outcome: str
    detail: str = ""


class StandingsOf(msgspec.Struct, frozen=True):
    """Whose standings are asked for; see :meth:`tacit.client.Client.standings`."""

    confidence: float
    key: str | None = None


class VerdictOf(msgspec.Struct, frozen=True):
    """What is asked of :meth:`tacit.client.Client.verdict`."""

    confidence: float = 0.95
    false_share: float = 0.05


class LiftOf(msgspec.Struct, frozen=True):
    """Which lift is asked for; see :meth:`tacit.client.Client.lift`."""

    confidence: float
    control: str | None = None
    begin: str | None = None
    end: str | None = None
    shown: float | None = None
    share: float | None = None
    rate: float | None = None
    daily: float | None = None


class ModeOf(msgspec.Struct, frozen=True):
    """The mode that a placement shall have, and, as the answer, the one that it has."""

    mode: str


class ArmsOf(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which arms shall come, go and come back."""

    add: int | Sequence[str] = ()
    retire: Sequence[Arm] = ()
    restore: Sequence[Arm] = ()


class ArmsNow(msgspec.Struct, frozen=True):
    """The arms that a placement has.

    Attributes
    ----------
    arms : list of arms
        Those on offer.
    retired : list of arms
    """

    arms: list[Arm]
    retired: list[Arm]


class PinOf(msgspec.Struct, frozen=True):
    """What shall be pinned, and until when."""

    arms: Sequence[Arm]
    until: str


class Pinned(msgspec.Struct, frozen=True):
    """What every decision shows that offers it.

    Attributes
    ----------
    arms : list of arms
        One; of a list, those from the top.
    until : str
        When the policy decides again, in ISO 8601.
    """

    arms: list[Arm]
    until: str


class HoldoutOf(msgspec.Struct, frozen=True):
    """What shall be held out."""

    share: float
    control: str | Mapping[str, Arm]
    unit: str
    look: str | None = None


class Holdout(msgspec.Struct, frozen=True):
    """A part of the traffic that a control has.

    Attributes
    ----------
    share : float
        Of the decisions that are the control's.
    control : str or dict
        What it shows: ``uniform``, ``baseline``, or ``{"arm": …}`` always.
    unit : str
        Who stays in one group: each ``decision``, all of a ``session`` or of a ``user``.
    look : str or None
        When one look at the lift is planned, in ISO 8601.
    """

    share: float
    control: str | dict[str, Any]
    unit: str
    look: str | None = None


class RebuildOf(msgspec.Struct, frozen=True):
    """The policy into which a log shall be folded."""

    policy: str | Mapping[str, Any]


class RollbackOf(msgspec.Struct, frozen=True):
    """The state that shall be gone back to."""

    to: str | None = None


class Rebuilt(msgspec.Struct, frozen=True):
    """What became of a rebuild or of a rollback.

    Attributes
    ----------
    policy : dict
        That decides now.
    left : str
        The name of the state that was left.
    rows : int
        Rows of the log that were taken in.
    decisions : int
        Decisions that the placement knows of.
    seconds : float
    approximate : list of str
        What of the log could not be taken in as it was.
    """

    policy: dict[str, Any]
    left: str
    rows: int
    decisions: int
    seconds: float
    approximate: list[str]


class StateKept(msgspec.Struct, frozen=True):
    """What a policy had learned at a time.

    Attributes
    ----------
    name : str
    at : str
        In ISO 8601.
    policy : dict
    """

    name: str
    at: str
    policy: dict[str, Any]


class HistoryOf(msgspec.Struct, frozen=True):
    """How many changes are asked for; see :meth:`tacit.client.Client.history`."""

    limit: int


class Change(msgspec.Struct, frozen=True):
    """A change of a placement.

    Attributes
    ----------
    at : str
        When, in ISO 8601.
    by : str or None
        The name of the key with which it was made, or ``configuration``; None where no key was
        needed.
    what : str
        ``mode``, ``arms``, ``configuration`` …
    detail : dict
    """

    at: str
    by: str | None
    what: str
    detail: dict[str, Any]


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
    | ModeOf
    | ArmsOf
    | HistoryOf
    | PinOf
    | HoldoutOf
    | RebuildOf
    | RollbackOf
)


class Would(msgspec.Struct, frozen=True):
    """What another policy would have shown, in the modes ``apprentice`` and ``shadow``.

    Attributes
    ----------
    arm : int or str
    propensity : float or None
    """

    arm: Arm
    propensity: float | None


class Decided(msgspec.Struct, frozen=True):
    """What to show.

    Attributes
    ----------
    decision_id : str
        Names the decision when feedback comes back.
    arm : int or str
    propensity : float or None
        Probability with which the policy chose it; None if it is deterministic.
    epoch : int
        How often the key had restarted.
    durability : str
        ``committed``, or ``buffered``: in memory until the next commit.
    would : Would or None
    signals : dict or None
        What the placement computed for this decision, by name; each in [0, 1].
    """

    decision_id: str
    arm: Arm
    propensity: float | None
    epoch: int
    durability: str
    would: Would | None = None
    signals: dict[str, float] | None = None


class Recorded(msgspec.Struct, frozen=True):
    """What became of feedback.

    Attributes
    ----------
    decision_id : str
    learned : bool
        Whether it has taught the policy by now.
    outcome : str
        ``learned``, ``pending``, ``late`` …; ``duplicate`` also if an earlier try, whose answer
        was lost, recorded it.
    durability : str
        ``committed`` or ``buffered``.
    """

    decision_id: str
    learned: bool
    outcome: str
    durability: str


class WouldSlate(msgspec.Struct, frozen=True):
    """What another policy would have listed.

    Attributes
    ----------
    slate : list of int, str or None
    propensity : float or None
    """

    slate: list[Arm | None]
    propensity: float | None


class Listed(msgspec.Struct, frozen=True):
    """What to list.

    Attributes
    ----------
    decision_id : str
    slate : list of int, str or None
        The arm at each position; None where it stays empty.
    propensity : float or None
        Of this very list; None if it is not known.
    epoch : int
    durability : str
    would : WouldSlate or None
    """

    decision_id: str
    slate: list[Arm | None]
    propensity: float | None
    epoch: int
    durability: str
    would: WouldSlate | None = None


class WouldDuel(msgspec.Struct, frozen=True):
    """The pair that another policy would have let duel.

    Attributes
    ----------
    left, right : str
    propensity : float or None
    """

    left: str
    right: str
    propensity: float | None


class Dueled(msgspec.Struct, frozen=True):
    """Which rankers duel, and the list to show.

    Attributes
    ----------
    decision_id : str
    left, right : str
    propensity : float or None
        Of this pair; None if it is not known.
    epoch : int
    durability : str
    items : list of int or str, or None
        From the top; None where no rankings were given.
    teams : list of int or None, or None
        Whose each item is: 0 the left one's, 1 the right one's.
    probability : float or None
        Of this very list, given the pair.
    would : WouldDuel or None
    """

    decision_id: str
    left: str
    right: str
    propensity: float | None
    epoch: int
    durability: str
    items: list[Arm] | None = None
    teams: list[int | None] | None = None
    probability: float | None = None
    would: WouldDuel | None = None


class DuelsOfKey(msgspec.Struct, frozen=True):
    """A key and how many duels it had.

    Attributes
    ----------
    key : str
    duels : int
    """

    key: str
    duels: int


class Standings(msgspec.Struct, frozen=True):
    """What the duels of a key say.

    Attributes
    ----------
    key : str
    keys : list of DuelsOfKey
        Those with the most duels first.
    report : dict
        ``winner``, ``leader``, ``out``, ``safe_to_stop``, ``verdict``, ``estimate`` …
    """

    key: str
    keys: list[DuelsOfKey]
    report: dict[str, Any]


class Verdict(msgspec.Struct, frozen=True):
    """Which ranker users prefer, by what their actions are worth.

    Attributes
    ----------
    verdict : str
        Who wins, or what is missing, in words.
    report : dict or None
        ``leader``, ``winner``, ``comparisons``, ``segments``, ``credited``, ``warnings`` …, as
        ``tacit duel --json`` gives it; None before two rankers have dueled.
    since, until : str or None
        When the first decision that the log has was made, and up to when it was read, in ISO 8601.
    open : int
        Decisions that do not count yet, as their windows are open.
    whole : bool
        Whether the log was read to its end; else ask again.
    beyond : dict of str to int
        Per segment, searches whose value is not told apart, as 200 others came before.
    """

    verdict: str
    report: dict[str, Any] | None
    since: str | None
    until: str | None
    open: int
    whole: bool
    beyond: dict[str, int]


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
