"""What travels over HTTP for lists and duels, and for what turns a placement."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tacit.interleaving.rules import CLICK
from tacit.service.http.wire import (
    PRINTABLE,
    SHORT,
    DecisionId,
    Durability,
    FeedbackId,
    Key,
    Metrics,
    NewDecisionId,
    Session,
    User,
)

# ---- What travels for placements that show lists: duels of rankers, and clicks on positions

Item = int | str
HASHED = "Only its hash is kept, so that searches which may be alike are known."
Ranker = Annotated[str, Meta(description="A ranker's name.", examples=["new"])]
DuelKey = Annotated[
    str,
    Meta(
        description="What is learned on its own, such as a market or a class of queries: every "
        "key finds its own best ranker. At most 512 bytes in UTF-8.",
        examples=["all"],
        extra_json_schema=SHORT,
    ),
]
Positions = Annotated[
    list[Annotated[int, Meta(ge=0)]],
    Meta(description="The clicked positions from 0; empty: none was clicked."),
]


Segments = Annotated[
    dict[str, Annotated[str, Meta(min_length=1, max_length=256, extra_json_schema=PRINTABLE)]],
    Meta(
        description="What else is known of the search, such as its market: a value for each of "
        "the names that the placement's ``segments`` have. The verdict tells them apart.",
        examples=[{"market": "de"}],
    ),
]


class DuelRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One search: every ranker's list for it."""

    key: DuelKey = "all"
    rankings: (
        Annotated[
            dict[str, list[Item]],
            Meta(
                description="From each ranker's name to its items, best first; as many as are "
                "shown suffice. Left out, the answer is a pair alone: run and interleave those "
                "two, and send the outcome as the reward."
            ),
        ]
        | None
    ) = None
    context: list[float] | None = None
    decision_id: NewDecisionId | None = None
    deferred: Annotated[bool, Meta(description="True: it counts only once it is activated.")] = False
    session: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=256,
                description="Whose visit this search belongs to, for the verdict where no user is "
                "told, and for a holdout of sessions. " + HASHED,
                extra_json_schema=PRINTABLE,
            ),
        ]
        | None
    ) = None
    user: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=256,
                description="Who searches, for the verdict and for a holdout of users. " + HASHED,
                extra_json_schema=PRINTABLE,
            ),
        ]
        | None
    ) = None
    segments: Segments | None = None


class WouldDuel(msgspec.Struct):
    """The pair that the second policy would have let duel, in mode ``shadow``."""

    left: Ranker
    right: Ranker
    propensity: float | None


class DuelAnswer(msgspec.Struct, omit_defaults=True):
    """The list to show, logged with all that its clicks need."""

    decision_id: DecisionId
    left: Ranker
    right: Ranker
    propensity: Annotated[
        float | None, Meta(description="Probability with which the policy chose the pair; null if not known.")
    ]
    epoch: Annotated[int, Meta(description="How often the key had restarted.")]
    durability: Durability
    items: Annotated[list[Item], Meta(description="What to show, from the top.")] | None = None
    teams: (
        Annotated[
            list[int | None],
            Meta(
                description="Per item, whose it is: 0 the left ranker's, 1 the right one's, null "
                "nobody's. Only of methods that draw teams."
            ),
        ]
        | None
    ) = None
    probability: (
        Annotated[float, Meta(description="Of this very list, given the pair; left out if not known.")] | None
    ) = None
    would: WouldDuel | None = None


class DuelManyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Many searches: all are decided in one commit, or none."""

    decisions: Annotated[list[DuelRequest], Meta(min_length=1, max_length=1000)]


class DuelManyAnswer(msgspec.Struct):
    """What to show, in the order of the request."""

    decisions: list[DuelAnswer]


class SlateRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One impression: a key, and perhaps the arms on offer."""

    key: Key
    arms: Annotated[list[Item], Meta(description="The arms on offer; all if left out.")] | None = None
    context: list[float] | None = None
    decision_id: NewDecisionId | None = None
    deferred: Annotated[bool, Meta(description="True: it counts only once it is activated.")] = False
    session: Session | None = None
    user: User | None = None


class WouldSlate(msgspec.Struct):
    """What another one would have listed: the policy itself in mode ``apprentice``, the second
    policy in mode ``shadow``."""

    slate: list[Item | None]
    propensity: float | None


class SlateAnswer(msgspec.Struct, omit_defaults=True):
    """What to list, logged."""

    decision_id: DecisionId
    slate: Annotated[
        list[Item | None],
        Meta(description="The arm at each position; null where the policy leaves one empty."),
    ]
    propensity: Annotated[float | None, Meta(description="Of this very list; null if it is not known.")]
    epoch: Annotated[int, Meta(description="How often the key had restarted.")]
    durability: Durability
    would: WouldSlate | None = None


class SlateManyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Many impressions: all are decided in one commit, or none."""

    decisions: Annotated[list[SlateRequest], Meta(min_length=1, max_length=1000)]


class SlateManyAnswer(msgspec.Struct):
    """What to list, in the order of the request."""

    decisions: list[SlateAnswer]


class ClicksRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What was clicked in a list: positions, or items; one of both."""

    decision_id: DecisionId
    clicks: Positions | None = None
    items: Annotated[list[Item], Meta(description="The clicked items.")] | None = None
    feedback_id: FeedbackId | None = None
    metrics: Metrics | None = None
    action: Annotated[
        str,
        Meta(
            description="What was done there, where it is no click: an action to which the "
            "placement's ``worth`` gives an amount. Of duels only.",
            examples=["add_to_cart"],
        ),
    ] = CLICK


class ClicksManyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Clicks in many lists, in one commit."""

    feedback: Annotated[list[ClicksRequest], Meta(min_length=1, max_length=1000)]


class DuelVerdict(msgspec.Struct):
    """What the searches of a placement say, by what their actions are worth."""

    verdict: Annotated[str, Meta(description="Who wins, or what is missing, in words.")]
    report: Annotated[
        dict[str, Any] | None,
        Meta(
            description="As ``tacit duel --json`` gives it: ``leader``, ``winner``, "
            "``comparisons`` of the leader with every other ranker, ``segments``, ``credited`` "
            "actions, ``warnings``; ``units`` are counted up to 100,000. Null before two rankers "
            "have dueled."
        ),
    ]
    since: Annotated[
        str | None, Meta(description="When the first decision that the log has was made, in ISO 8601.")
    ]
    until: Annotated[str | None, Meta(description="Up to when the log was read; null before the first row.")]
    open: Annotated[int, Meta(description="Decisions that do not count yet: their windows are open.")]
    whole: Annotated[
        bool,
        Meta(
            description="Whether the log was read to its end. If not, it is being read, and this "
            "is what its beginning says; ask again."
        ),
    ]
    beyond: Annotated[
        dict[str, int],
        Meta(
            description="Per segment, how many searches had a value that is not told apart, as "
            "200 others came before."
        ),
    ]


class DuelsOfKey(msgspec.Struct):
    """A key and how many duels it had."""

    key: DuelKey
    duels: int


class DuelStandings(msgspec.Struct):
    """What the duels of a key say."""

    key: DuelKey
    keys: Annotated[list[DuelsOfKey], Meta(description="Keys with duels, most duels first.")]
    report: Annotated[
        dict[str, Any],
        Meta(
            description="``estimate[i][j]``: the probability that ranker i beats ranker j, with "
            "Wilson's interval ``low``–``high`` of this pair alone and ``safe_low``–``safe_high``, "
            "which holds for all pairs at all times; ``out``, ``left``, ``leader``, ``winner``, "
            "``safe_to_stop``, ``still_needed``, ``verdict``."
        ),
    ]


# ---- What travels where a placement is turned: who changed what, and what shall be

Time = Annotated[str, Meta(description="In ISO 8601.", examples=["2026-05-03T12:00:00+00:00"])]


class Change(msgspec.Struct):
    """A change of a placement, as its log has it."""

    at: Time
    by: Annotated[
        str | None,
        Meta(
            description="The name of the key with which it was made, or ``configuration``; null "
            "where no key was needed, or an earlier version did not keep it."
        ),
    ]
    what: Annotated[
        str,
        Meta(
            description="``mode``, ``arms``, ``pin``, ``unpin``, ``holdout``, ``rebuild``, "
            "``rollback``, ``settings``, ``start`` or ``configuration``."
        ),
    ]
    detail: Annotated[
        dict[str, Any],
        Meta(
            description="Of ``mode``: the new ``mode``. Of ``arms``: which came (``add``), went "
            "(``retire``) and came back (``restore``). Of ``pin``: which ``arms``, ``until`` "
            "when. Of ``holdout``: the new one, null for none. Of ``rebuild`` and ``rollback``: "
            "the new ``policy``, the state that was ``left``, the one gone back ``to``, and what "
            "is ``approximate``. Of ``start``: the ``file`` of the learner, its ``sha256``, how "
            "many ``decisions`` and ``keys``. Of ``configuration``: by the name of each setting "
            "that is another one, what it was "
            "(``before``) and is (``after``)."
        ),
    ]


class PinRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What every decision shall show, whatever the policy would."""

    arms: Annotated[
        list[int | str],
        Meta(min_length=1, description="One arm or ranker; of a list, its arms from the top."),
    ]
    until: Annotated[
        str,
        Meta(
            description="From then on the policy decides again; a time in ISO 8601, without a zone in UTC.",
            examples=["2026-05-03T18:00:00+00:00"],
            extra_json_schema={"format": "date-time"},
        ),
    ]


class Pinned(msgspec.Struct):
    """What every decision shows that offers it."""

    arms: list[int | str]
    until: Time


class PinAnswer(msgspec.Struct):
    """What is pinned, logged; null where the policy decides."""

    pinned: Pinned | None


class ArmShown(msgspec.Struct, forbid_unknown_fields=True):
    """A control that shows one arm always."""

    arm: int | str


class HoldoutRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A part of the traffic for a control, from the next decision on."""

    share: Annotated[float, Meta(gt=0.0, le=0.5, description="Of the decisions that are the control's.")] = (
        0.1
    )
    control: Annotated[
        Literal["uniform", "baseline"] | ArmShown,
        Meta(
            description="What the control shows: an arm drawn ``uniform``ly, the ``baseline``, "
            'which is the first one on offer, or always ``{"arm": …}``.',
            examples=["uniform", "baseline", {"arm": "a"}],
        ),
    ] = "uniform"
    unit: Annotated[
        Literal["decision", "session", "user"],
        Meta(
            description="Who stays in one group: each ``decision``, all of a ``session``, or all "
            "of a ``user``."
        ),
    ] = "decision"
    look: Annotated[
        str | None,
        Meta(description="When one look is planned, in ISO 8601: at that one the lift is sharper."),
    ] = None


class HoldoutKept(msgspec.Struct):
    """A holdout."""

    share: float
    control: str | dict[str, Any]
    unit: str
    look: str | None = None


class HoldoutAnswer(msgspec.Struct):
    """The holdout, logged; null where there is none."""

    holdout: HoldoutKept | None


class RebuildRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The policy into which the log shall be folded."""

    policy: Annotated[
        str | dict[str, Any],
        Meta(
            description="As the configuration says it, over the arms of the placement.",
            examples=["ucb1", {"name": "epsilon-greedy", "epsilon": 0.05}],
        ),
    ]


class RollbackRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The state that shall be gone back to."""

    to: Annotated[str | None, Meta(description="Its name; if left out, the one that was left last.")] = None


class Rebuilt(msgspec.Struct):
    """The policy that decides now, logged."""

    policy: Annotated[dict[str, Any], Meta(description="Its name and hyperparameters.")]
    left: Annotated[str, Meta(description="The name of the state that was left, to go back to it.")]
    rows: Annotated[int, Meta(description="Rows of the log that were taken in.")]
    decisions: Annotated[int, Meta(description="Decisions that the placement knows of.")]
    seconds: float
    approximate: Annotated[
        list[str], Meta(description="What of the log could not be taken in as it was; empty if all was.")
    ]


class StateKept(msgspec.Struct):
    """What a policy had learned at a time, kept."""

    name: Annotated[str, Meta(examples=["2026-05-03T12:00:00.000000Z-Thompson"])]
    at: Time
    policy: dict[str, Any]


class States(msgspec.Struct):
    """What a placement can go back to, the latest first."""

    states: list[StateKept]


class History(msgspec.Struct):
    """Who changed what of a placement, the last change first."""

    history: list[Change]
