"""What travels where a placement is turned: who changed what, and what shall be."""

# A structure for what is asked and one for what is so after it: modes, arms, pins, holdouts, other policies,
# what is lent, history. Ranges stand in the annotations, from which client, service and document read them.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

UNTIL = "2026-05-03T18:00:00+00:00"
SUCH = {"such": f"a time in ISO 8601, such as {UNTIL}"}
Time = Annotated[str, Meta(description="In ISO 8601.", examples=["2026-05-03T12:00:00+00:00"])]
Mode = Literal["online", "frozen", "shadow", "control"]


class Change(msgspec.Struct, frozen=True):
    """A change of a placement, as its log has it.

    Attributes
    ----------
    at : str
        When, in ISO 8601.
    by : str or None
        The name of the key with which it was made, ``configuration`` or ``guardrail``; None where no
        key was needed, or 0.1 wrote it.
    what : str
        ``mode``, ``arms``, ``pin``, ``unpin``, ``holdout``, ``rebuild``, ``rollback``, ``settings``,
        ``start``, ``guardrail`` or ``configuration``.
    detail : dict
        Of ``mode``: the new ``mode``. Of ``arms``: which came (``add``), went (``retire``) and came
        back (``restore``). Of ``pin``: which ``arms``, ``until`` when. Of ``holdout``: the new one,
        None for none. Of ``rebuild`` and ``rollback``: the new ``policy``, the state that was ``left``,
        the one gone back ``to``, and what is ``approximate``. Of ``start``: the ``file`` of the
        learner, its ``sha256``, how many ``decisions`` and ``keys``. Of ``guardrail``: the ``arm`` that
        does harm (None for the policy), the ``metric``, by how much it exceeds the other's
        (``estimate``, ``low``, ``high``) and what was done ``then``. Of ``configuration``: by the name
        of each setting that is another one, what it was (``before``) and is (``after``).
    """

    at: Time
    by: str | None
    what: str
    detail: dict[str, Any]


# ---- Modes


class ModeOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The mode that a placement shall have."""

    mode: Mode


class ModeNow(msgspec.Struct):
    """The mode that a placement has, logged."""

    mode: str


# ---- Arms that come and go


class ArmsOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which arms shall come, go and come back: all of them, or none.

    All of it happens, or nothing. Says which arms there are then; where nothing is given, nothing changes.

    Attributes
    ----------
    add : int or sequence of str, optional
        New arms by their names; or how many, where arms are numbered.
    retire : sequence of int or str, optional
        Arms to be shown no more; their open decisions count.
    restore : sequence of int or str, optional
        Retired arms to be shown again, as they are known.
    """

    add: int | Sequence[str] = []
    retire: Sequence[int | str] = []
    restore: Sequence[int | str] = []


class ArmsNow(msgspec.Struct, frozen=True, omit_defaults=True):
    """The arms that a placement has, logged.

    Attributes
    ----------
    arms : list of arms
        Those on offer.
    retired : list of arms
    suspended : dict of arm to float
        What ``at_least`` promises to retired arms: the policy has it until they are restored.
    """

    arms: list[int | str]
    retired: list[int | str]
    suspended: dict[str, float] = {}


# ---- Pins


class PinOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What every decision shall show, whatever the policy would.

    What does not offer it, the policy decides. Feedback is learned as ever.

    Attributes
    ----------
    arms : sequence of int or str
        One arm or ranker; of a list, its arms from the top.
    until : str
        From then on the policy decides again: a time in ISO 8601, such as 2026-05-03T18:00; without a
        zone in UTC.
    """

    arms: Annotated[Sequence[int | str], Meta(min_length=1)]
    until: Annotated[str, Meta(examples=[UNTIL], extra_json_schema={"format": "date-time"}, extra=SUCH)]


class Pinned(msgspec.Struct, frozen=True):
    """What every decision shows that offers it.

    Attributes
    ----------
    arms : list of arms
        One; of a list, those from the top.
    until : str
        When the policy decides again, in ISO 8601.
    """

    arms: list[int | str]
    until: Time


class Unpin(msgspec.Struct, frozen=True):
    """To let the policy decide again.

    Nothing happens where nothing is pinned.
    """


class PinNow(msgspec.Struct):
    """What is pinned, logged; null where the policy decides."""

    pinned: Pinned | None


class ArmShown(msgspec.Struct, forbid_unknown_fields=True):
    """A control that shows one arm always."""

    arm: int | str


# ---- A part of the traffic for a control


class HoldoutOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the traffic for a control, from the next decision on.

    It takes the place of the holdout that there was, until the one of the configuration is changed. A chapter
    of the lift begins.

    Attributes
    ----------
    share : float, default 0.1
        Of the decisions that are the control's.
    control : str or ArmShown, default "uniform"
        What the control shows: an arm drawn ``uniform``ly, the ``baseline``, which is the first one on
        offer, or always ``{"arm": …}``.
    unit : str, default "decision"
        Who stays in one group: each ``decision``, all of a ``session``, or all of a ``user``.
    look : str, optional
        When one look is planned, such as 2026-06-01: at that one the lift is sharper.
    """

    share: Annotated[float, Meta(gt=0.0, le=0.5)] = 0.1
    control: Annotated[
        Literal["uniform", "baseline"] | ArmShown, Meta(examples=["uniform", "baseline", {"arm": "a"}])
    ] = "uniform"
    unit: Literal["decision", "session", "user"] = "decision"
    look: Annotated[str, Meta(extra=SUCH)] | None = None


class EndHoldout(msgspec.Struct, frozen=True):
    """To show nobody a control any more."""


class Holdout(msgspec.Struct, frozen=True):
    """A holdout.

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


class HoldoutNow(msgspec.Struct):
    """The holdout, logged; null where there is none."""

    holdout: Holdout | None


# ---- Another policy, and the way back


class RebuildOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The policy into which the log shall be folded.

    The one before decides meanwhile; what it has learned is kept, to go back to it.

    Attributes
    ----------
    policy : str or mapping from str to object
        As the configuration says it, such as ``ucb1``, over the arms of the placement.
    """

    policy: Annotated[
        str | Mapping[str, Any], Meta(examples=["ucb1", {"name": "epsilon-greedy", "epsilon": 0.05}])
    ]


class RollbackOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state that shall be gone back to.

    Attributes
    ----------
    to : str, optional
        Its name, as ``states`` lists it; if left out, the one that was left last.
    """

    to: str | None = None


class Rebuilt(msgspec.Struct, frozen=True):
    """The policy that decides now, logged.

    Attributes
    ----------
    policy : dict
        That decides now: its name and hyperparameters.
    left : str
        The name of the state that was left, to go back to it.
    rows : int
        Rows of the log that were taken in.
    decisions : int
        Decisions that the placement knows of.
    seconds : float
    approximate : list of str
        What of the log could not be taken in as it was; empty if all was.
    """

    policy: dict[str, Any]
    left: str
    rows: int
    decisions: int
    seconds: float
    approximate: list[str]


class StateKept(msgspec.Struct, frozen=True):
    """What a policy had learned at a time, kept.

    Attributes
    ----------
    name : str
    at : str
        In ISO 8601.
    policy : dict
    """

    name: Annotated[str, Meta(examples=["2026-05-03T12:00:00.000000Z-Thompson"])]
    at: Time
    policy: dict[str, Any]


class States(msgspec.Struct):
    """What a placement can go back to, the latest first."""

    states: list[StateKept]


class Nothing(msgspec.Struct, frozen=True):
    """A question that needs no words."""


# ---- What is lent to those who decide next to the caller


class LearnerOf(msgspec.Struct, frozen=True):
    """Whose part of what was learned is asked for.

    Attributes
    ----------
    shard : int, optional
        Which shard's part; left out where the service is one.
    """

    shard: Annotated[int, Meta(ge=0)] | None = None


class LentParts(msgspec.Struct, frozen=True):
    """In which parts what was learned is lent, and how far each of them is.

    Attributes
    ----------
    rows : list of int or None
        For each shard, or for the one server, the last row of its log; None of one that does not
        answer.
    spread : bool
        Whether any shard may decide for any key.
    """

    rows: list[int | None]
    spread: bool


# ---- Who changed what


class HistoryOf(msgspec.Struct, frozen=True):
    """How many changes are asked for.

    The last change comes first.

    Attributes
    ----------
    limit : int, default 100
        How many changes.
    """

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class History(msgspec.Struct):
    """Who changed what of a placement, the last change first."""

    history: list[Change]
