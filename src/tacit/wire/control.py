"""Messages that change a placement, with a request and an answer each; and messages of its history."""

# Modes, arms, pins, holdouts, rebuilds, replicas, history. The annotations have the allowed ranges, which the
# client, the service and the OpenAPI document read.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

UNTIL = "2026-05-03T18:00:00+00:00"
TIME_NOTE = {"such": f"a time in ISO 8601, such as {UNTIL}"}
Time = Annotated[str, Meta(description="In ISO 8601.", examples=["2026-05-03T12:00:00+00:00"])]
Mode = Literal["online", "frozen", "shadow", "control"]


class Change(msgspec.Struct, frozen=True):
    """A logged change of a placement.

    Attributes
    ----------
    at : str
        Time in ISO 8601.
    by : str or None
        The name of the key with which it was made, ``configuration`` or ``guardrail``; None if no key
        was needed, or if version 0.1 wrote it.
    what : str
        ``mode``, ``arms``, ``pin``, ``unpin``, ``holdout``, ``rebuild``, ``rollback``, ``settings``,
        ``start``, ``guardrail`` or ``configuration``.
    detail : dict
        For ``mode``: the new ``mode``. For ``arms``: the arms added (``add``), retired (``retire``) and
        restored (``restore``). For ``pin``: the ``arms``, and the time ``until`` which they are pinned.
        For ``holdout``: the new holdout, or None. For ``rebuild`` and ``rollback``: the new ``policy``,
        the saved state of the old policy (``left``), the state restored (``to``), and the
        ``approximate`` parts. For ``start``: the ``file`` of the learner, its ``sha256``, the numbers of
        ``decisions`` and ``keys``. For ``guardrail``: the ``arm`` whose ``metric`` has degraded (None for
        the policy), the difference (``estimate``, ``low``, ``high``) and the action taken (``then``). For
        ``configuration``: the value ``before`` and ``after``, by the name of each setting that changed.
    """

    at: Time
    by: str | None
    what: str
    detail: dict[str, Any]


# ---- Modes


class ModeOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new mode of a placement."""

    mode: Mode


class ModeNow(msgspec.Struct):
    """The mode of a placement, logged."""

    mode: str


# ---- Arms that are added, retired and restored


class ArmsOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arms to be added, retired and restored: all of them, or none.

    All changes are made, or none. The answer has the arms after the change; an empty request changes nothing.

    Attributes
    ----------
    add : int or sequence of str, optional
        Names of new arms; or their number, if arms are numbered.
    retire : sequence of int or str, optional
        Arms that are no longer shown; their open decisions still count.
    restore : sequence of int or str, optional
        Retired arms that are shown again, with all that was learned about them.
    """

    add: int | Sequence[Annotated[str, Meta(min_length=1)]] = []
    retire: Sequence[int | str] = []
    restore: Sequence[int | str] = []


class ArmsNow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The arms of a placement, logged.

    Attributes
    ----------
    arms : list of arms
        Arms on offer.
    retired : list of arms
    suspended : dict of arm to float
        Minimum shares (``at_least``) of retired arms, which the policy gets until they are restored.
    warning : str or None
        Two arms on offer whose names are nearly equal.
    """

    arms: list[int | str]
    retired: list[int | str]
    suspended: dict[str, float] = {}
    warning: str | None = None


# ---- Pins


class PinOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An arm or list that all decisions show until a time, in place of the policy's choice.

    The policy still decides requests that do not offer it. Feedback is learned as usual.

    Attributes
    ----------
    arms : sequence of int or str
        One arm or ranker; or the arms of a list, from the top.
    until : str
        Time at which the policy decides again, in ISO 8601, such as 2026-05-03T18:00; without a zone in
        UTC.
    """

    arms: Annotated[Sequence[int | str], Meta(min_length=1)]
    until: Annotated[str, Meta(examples=[UNTIL], extra_json_schema={"format": "date-time"}, extra=TIME_NOTE)]


class Pinned(msgspec.Struct, frozen=True, omit_defaults=True):
    """The arm or list that decisions show if they offer it.

    Attributes
    ----------
    arms : list of arms
        One arm; or the arms of a list, from the top.
    until : str
        Time at which the policy decides again, in ISO 8601.
    warning : str or None
        The length of the pinned list, if it is shorter than other lists of the placement.
    """

    arms: list[int | str]
    until: Time
    warning: str | None = None


class Unpin(msgspec.Struct, frozen=True):
    """The request to let the policy decide again.

    Without a pin, it changes nothing.
    """


class PinNow(msgspec.Struct):
    """The pinned arm or list, logged; null if the policy decides."""

    pinned: Pinned | None


class ArmShown(msgspec.Struct, forbid_unknown_fields=True):
    """A control that always shows one arm."""

    arm: int | str


# ---- Holdouts


class HoldoutOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A share of the traffic that is shown a control, from the next decision on.

    It replaces the current holdout, until the one in the configuration is changed. A new period of the lift
    begins.

    Attributes
    ----------
    share : float, default 0.1
        Share of decisions in the control group.
    control : str or ArmShown, default "uniform"
        The control group is shown an arm drawn ``uniform``ly, the ``baseline``, which is the first arm on
        offer, or always ``{"arm": …}``.
    unit : str, default "decision"
        Unit of assignment to a group: each ``decision``, all of a ``session``, or all of a ``user``.
    look : str, optional
        Planned time of one analysis, such as 2026-06-01, at which the lift is more precise.
    """

    share: Annotated[float, Meta(gt=0.0, le=0.5)] = 0.1
    control: Annotated[
        Literal["uniform", "baseline"] | ArmShown, Meta(examples=["uniform", "baseline", {"arm": "a"}])
    ] = "uniform"
    unit: Literal["decision", "session", "user"] = "decision"
    look: Annotated[str, Meta(extra=TIME_NOTE)] | None = None


class EndHoldout(msgspec.Struct, frozen=True):
    """The request to end the holdout."""


class Holdout(msgspec.Struct, frozen=True):
    """A holdout.

    Attributes
    ----------
    share : float
        Share of decisions in the control group.
    control : str or dict
        The control: ``uniform``, ``baseline``, or always ``{"arm": …}``.
    unit : str
        Unit of assignment to a group: each ``decision``, all of a ``session`` or of a ``user``.
    look : str or None
        Planned time of one analysis of the lift, in ISO 8601.
    """

    share: float
    control: str | dict[str, Any]
    unit: str
    look: str | None = None


class HoldoutNow(msgspec.Struct):
    """The holdout, logged; null if there is none."""

    holdout: Holdout | None


# ---- Rebuilds and rollbacks


class RebuildOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The policy to which the placement changes, after it has learned from the log.

    The current policy decides in the meantime; its state is saved, so that a rollback can restore it.

    Attributes
    ----------
    policy : str or mapping from str to object
        The policy as in the configuration, such as ``ucb1``, over the arms of the placement.
    """

    policy: Annotated[
        str | Mapping[str, Any], Meta(examples=["ucb1", {"name": "epsilon-greedy", "epsilon": 0.05}])
    ]


class RollbackOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The saved state to restore.

    Attributes
    ----------
    to : str, optional
        Name of the state, as ``states`` lists it; by default the one saved last.
    """

    to: str | None = None


class Rebuilt(msgspec.Struct, frozen=True):
    """The policy that decides now, logged.

    Attributes
    ----------
    policy : dict
        Name and hyperparameters of the policy.
    left : str
        Name of the saved state of the previous policy, for a rollback.
    rows : int
        Rows of the log that were read.
    decisions : int
        Decisions of the placement so far.
    seconds : float
    approximate : list of str
        Parts of the log that the policy could learn only approximately; empty if there are none.
    """

    policy: dict[str, Any]
    left: str
    rows: int
    decisions: int
    seconds: float
    approximate: list[str]


class StateKept(msgspec.Struct, frozen=True):
    """A saved state of a policy.

    Attributes
    ----------
    name : str
    at : str
        Time in ISO 8601.
    policy : dict
    """

    name: Annotated[str, Meta(examples=["2026-05-03T12:00:00.000000Z-Thompson"])]
    at: Time
    policy: dict[str, Any]


class States(msgspec.Struct):
    """The saved states that a placement can restore, the latest first."""

    states: list[StateKept]


class Nothing(msgspec.Struct, frozen=True):
    """A request without parameters."""


# ---- Replicas of the learner for client-side decisions


class LearnerOf(msgspec.Struct, frozen=True):
    """The query for a replica of the learner.

    It is refused where the service must make each decision: with a holdout, signals, a pin, users who keep
    their arm, in the mode ``shadow``, and for other kinds than ``arms``.

    Attributes
    ----------
    shard : int, optional
        Number of the shard; left out if the service is a single server.
    """

    shard: Annotated[int, Meta(ge=0)] | None = None


class LentParts(msgspec.Struct, frozen=True):
    """The replicas of the learner that there are, one for each shard, and their versions.

    Attributes
    ----------
    rows : list of int or None
        For each shard, or for the single server, the last row of its log; None if it does not answer.
    spread : bool
        Whether any shard may decide for any key.
    """

    rows: list[int | None]
    spread: bool


# ---- History


class HistoryOf(msgspec.Struct, frozen=True):
    """The query for the latest changes.

    The last change comes first.

    Attributes
    ----------
    limit : int, default 100
        Number of changes.
    """

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class History(msgspec.Struct):
    """The changes of a placement, the last change first."""

    history: list[Change]
