"""What travels where something is decided, and where feedback comes back."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

OUTCOMES = {
    "learned": "it taught the policy",
    "pending": "it counts, and is learned when the decision's window closes",
    "repeated": "the decision had its reward already: recorded only",
    "late": "it came after the decision's window: recorded only",
    "corrected": "it came after the window, and took the place of the default",
    "late-epoch": "the key has restarted since the decision: recorded only",
    "inactive": "the decision was deferred and not activated: recorded only",
    "frozen": "the placement does not learn at present: recorded only",
    "noted": "an examination or activation, taken in",
    "tied": "the duel was a tie, from which nothing is learned here: recorded only",
    "held-out": "the control showed one ranker's list, which is no duel: it counts for the lift",
    "duplicate": "this very feedback was recorded before: nothing was done",
}
"""What became of feedback."""

# What is checked elsewhere, said to those who read the document.
PRINTABLE = {"pattern": r"^([^\p{C}\p{Z}]| )*$"}
SHORT = {"maxLength": 512, "pattern": r"^[^\u0000]*$"}

Key = Annotated[
    str,
    Meta(
        description="What the decision is for: a query, a slot. At most 512 bytes in UTF-8.",
        examples=["independence day"],
        extra_json_schema=SHORT,
    ),
]
Arm = Annotated[int | str, Meta(description="An arm: its name, or its number from 0.")]
Features = Annotated[
    list[list[float]],
    Meta(
        description="A row of features for each arm on offer, for policies that know arms by "
        "their features; the arms are then named as the client likes, or numbered from 0."
    ),
]
DecisionId = Annotated[
    str,
    Meta(
        description="Names the decision when feedback comes back.",
        examples=["018bcfe5-687b-774b-9e0c-5a1f3f9f2c11"],
    ),
]


FeedbackId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        description="Names this feedback: sent again with the same name, it counts once.",
        extra_json_schema=PRINTABLE,
    ),
]
NewDecisionId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        description="Names the decision, and is where its draws come from: the same request with "
        "the same name gets the same answer. Left out, the service makes one.",
        extra_json_schema=PRINTABLE,
    ),
]
Durability = Annotated[
    Literal["committed", "buffered"],
    Meta(description="Whether it is durable by now, or in memory until the next commit."),
]


Session = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        description="Whose search this is, for the signal ``reformulation`` and for a holdout of "
        "sessions; only its hash is kept.",
        extra_json_schema=PRINTABLE,
    ),
]
User = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        description="Who is asking, for a holdout of users: all decisions of one user are the "
        "control's, or none. It is not kept.",
        extra_json_schema=PRINTABLE,
    ),
]
Metrics = Annotated[
    dict[str, float],
    Meta(
        description="What is watched beside the reward, by the names of the configuration; "
        "amounts for one decision are added up."
    ),
]


class DecideRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One impression: a key, and perhaps the arms on offer and signals about the key."""

    key: Key
    arms: Annotated[list[int | str], Meta(description="The arms on offer; all if left out.")] | None = None
    context: (
        Annotated[
            list[float],
            Meta(
                description="Signals about the key, for policies that use them; without those "
                "that the placement computes itself."
            ),
        ]
        | None
    ) = None
    relevance: Features | None = None
    examination: Features | None = None
    decision_id: NewDecisionId | None = None
    deferred: Annotated[bool, Meta(description="True: it counts only once it is activated.")] = False
    session: Session | None = None
    user: User | None = None


class Would(msgspec.Struct):
    """What another one would have shown: the policy itself in mode ``apprentice``, the second
    policy in mode ``shadow``."""

    arm: Arm
    propensity: float | None


class DecideAnswer(msgspec.Struct, omit_defaults=True):
    """What to show, logged."""

    decision_id: DecisionId
    arm: Arm
    propensity: Annotated[
        float | None,
        Meta(
            description="Probability with which the policy chose it, with a holdout that of policy "
            "and control together; null if deterministic."
        ),
    ]
    epoch: Annotated[int, Meta(description="How often the key had restarted.")]
    durability: Durability
    would: Would | None = None
    signals: (
        Annotated[
            dict[str, float],
            Meta(description="What the placement computed for this decision, each in [0, 1]."),
        ]
        | None
    ) = None


class DecideManyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Many impressions: all are decided in one commit, or none."""

    decisions: Annotated[list[DecideRequest], Meta(min_length=1, max_length=1000)]


class DecideManyAnswer(msgspec.Struct):
    """What to show, in the order of the request."""

    decisions: list[DecideAnswer]


class FeedbackRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What came back for a decision."""

    decision_id: DecisionId
    reward: (
        Annotated[
            float,
            Meta(
                ge=0.0,
                le=1.0,
                description="A click (1), none (0), or a reward between; left out only where the "
                "placement learns from a metric.",
            ),
        ]
        | None
    ) = None
    feedback_id: FeedbackId | None = None
    metrics: Metrics | None = None


class EventRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Something that happened to a decision: it was examined, or activated."""

    decision_id: DecisionId
    feedback_id: FeedbackId | None = None


class FeedbackAnswer(msgspec.Struct):
    """The feedback is logged."""

    decision_id: DecisionId
    learned: Annotated[bool, Meta(description="Whether it has taught the policy by now.")]
    outcome: Annotated[
        str,
        Meta(
            description="What became of it. "
            + " ".join(f"``{outcome}``: {text}." for outcome, text in OUTCOMES.items())
        ),
    ]
    durability: Durability


class FeedbackManyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Much feedback, in one commit."""

    feedback: Annotated[list[FeedbackRequest], Meta(min_length=1, max_length=1000)]


class FeedbackManyAnswer(msgspec.Struct):
    """What became of each, in the order of the request.

    The outcome of feedback that could not be recorded is the kind of its problem:
    ``unknown-decision``, ``conflict`` or ``repeated-feedback``.
    """

    feedback: list[FeedbackAnswer]


class ModeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The mode that a placement shall have."""

    mode: Literal["online", "apprentice", "frozen", "shadow"]


class ModeAnswer(msgspec.Struct):
    """The mode that a placement has, logged."""

    mode: str


class ArmsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which arms shall come, go and come back: all of them, or none."""

    add: Annotated[
        int | list[str], Meta(description="New arms by their names; or how many, where arms are numbered.")
    ] = []
    retire: Annotated[
        list[int | str], Meta(description="Arms to be shown no more; their open decisions count.")
    ] = []
    restore: Annotated[
        list[int | str], Meta(description="Retired arms to be shown again, as they are known.")
    ] = []


class ArmsAnswer(msgspec.Struct):
    """The arms that a placement has, logged."""

    arms: Annotated[list[int | str], Meta(description="Those on offer.")]
    retired: list[int | str]


class LocalDecision(msgspec.Struct, forbid_unknown_fields=True):
    """A decision that was made next to the caller, with what the service had learned."""

    decision_id: NewDecisionId
    key: Key
    arm: Arm
    propensity: Annotated[
        float | None,
        Meta(description="Probability in (0, 1] with which it was chosen; null if deterministic."),
    ] = None
    arms: Annotated[list[int | str], Meta(description="The arms on offer; all if left out.")] | None = None
    context: list[float] | None = None


class LocalDecisions(msgspec.Struct, forbid_unknown_fields=True):
    """Many decisions that were made next to the caller."""

    decisions: Annotated[list[LocalDecision], Meta(min_length=1, max_length=1000)]


class TakenOver(msgspec.Struct):
    """What became of one."""

    decision_id: DecisionId
    outcome: Annotated[
        str,
        Meta(
            description="``logged``, or the kind of its problem: ``invalid-value``; ``conflict`` "
            "where the id stands for another decision."
        ),
    ]
    detail: Annotated[str, Meta(description="What the problem is; empty if there is none.")] = ""


class TakenOverMany(msgspec.Struct):
    """What became of each, in the order of the request."""

    decisions: list[TakenOver]
