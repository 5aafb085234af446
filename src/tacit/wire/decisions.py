"""Messages of decisions and feedback, and of the catalogue of items."""

# 1. The catalogue of items.
# 2. Types of fields; impressions and decisions, one or many.
# 3. Feedback and its outcome.
# 4. Client-side decisions that are sent to be logged.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Generic, Literal, Never, TypeVar

import msgspec
from msgspec import Meta

# ---- The catalogue of items of a placement

MOST_ITEMS = 1000

Segment = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        description="What an item belongs to, such as a category; decisions may be among those of one.",
        examples=["news"],
        extra_json_schema={"pattern": r"^[^\u0000]*$"},
    ),
]
ItemId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=512,
        description="The item's id, which decisions name among their ``arms``; at most 512 bytes in UTF-8.",
        examples=["doc-17"],
        extra_json_schema={"pattern": r"^[^\u0000]*$"},
    ),
]


class NewItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An item with its vector.

    Attributes
    ----------
    id : str
    vector : sequence of float
        The item's features, as many numbers as the policy reads, each within ±65,504; stored with 11
        binary digits.
    segment : str, optional
    """

    id: ItemId
    vector: Sequence[Annotated[float, Meta(ge=-65504.0, le=65504.0)]]
    segment: Segment | None = None


class ItemsOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Items to be added to the catalogue; existing items get these vectors and segments."""

    items: Annotated[list[NewItem], Meta(min_length=1, max_length=MOST_ITEMS)]


class ItemsGone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Items to be removed from the catalogue: all of them, or none.

    Attributes
    ----------
    ids : list of str
        Ids of the items.
    """

    ids: Annotated[list[ItemId], Meta(min_length=1, max_length=10 * MOST_ITEMS)]


class ItemsNow(msgspec.Struct, frozen=True):
    """The state of the catalogue, logged.

    Attributes
    ----------
    count : int
        Number of items.
    version : int
        Number of changes of the catalogue.
    segments : dict of str to int
        Number of items of each segment.
    """

    count: int
    version: int
    segments: dict[str, int]


# ---- Decisions

OUTCOMES = {
    "learned": "it taught the policy",
    "pending": "it counts, and is learned in the order of decisions: once those before it are, at the latest "
    "when its window closes",
    "repeated": "the decision had its reward, or was active, already: recorded only",
    "late": "it came after the decision's window: recorded only",
    "corrected": "it came after the window, and took the place of the default",
    "late-epoch": "the key has restarted since the decision: recorded only",
    "inactive": "the decision was deferred and not activated: recorded only",
    "frozen": "the placement does not learn at present: recorded only",
    "noted": "an examination or activation; or an amount after its decision was learned, or of a decision "
    "that repeats what its user was shown, for the lift",
    "tied": "the duel was a tie, from which nothing is learned here: recorded only",
    "held-out": "the control showed one ranker's list, which is no duel: it counts for the lift",
    "duplicate": "it was recorded before: nothing was done",
}
"""Outcomes of feedback, with explanations."""

# Checked elsewhere; these are for the OpenAPI document only.
PRINTABLE = {"pattern": r"^([^\p{C}\p{Z}]| )*$"}
SHORT = {"maxLength": 512, "pattern": r"^[^\u0000]*$"}

Key = Annotated[
    str,
    Meta(
        description="What the decision is for: a query, a place on a page. At most 512 bytes in UTF-8.",
        examples=["independence day"],
        extra_json_schema=SHORT,
    ),
]
Arm = Annotated[int | str, Meta(description="An arm: its name, or its number from 0.")]
DecisionId = Annotated[
    str,
    Meta(
        description="Names the decision when feedback comes back.",
        examples=["018bcfe5-687b-774b-9e0c-5a1f3f9f2c11"],
        extra={"such": "the id, as text, that the decision's answer has"},
    ),
]


Name = Annotated[str, Meta(min_length=1, max_length=256, extra_json_schema=PRINTABLE)]
FeedbackId = Annotated[
    Name, Meta(description="Names this feedback: sent again with the same name, it counts once.")
]
NewDecisionId = Annotated[
    Name,
    Meta(
        description="Names the decision, and is where its draws come from: the same request with "
        "the same name gets the same answer. Left out, the service makes one."
    ),
]
Durability = Annotated[
    str,
    Meta(
        description="Whether it is durable by now, or in memory until the next commit.",
        extra_json_schema={"enum": ["committed", "buffered"]},
    ),
]


Metrics = Annotated[
    Mapping[str, float],
    Meta(
        description="What is watched beside the reward, by the names of the configuration; "
        "amounts for one decision are added up."
    ),
]


Context = Annotated[
    Sequence[float] | Mapping[str, str | float | bool | None],
    Meta(
        description="Who is asking, by the names of the placement's ``context``; or numbers, for policies "
        "that read numbers, without the signals that the placement computes itself.",
        examples=[{"device": "ios", "age": 31}, [0.5, 0.25]],
    ),
]


T = TypeVar("T")


class Fielded(msgspec.Struct, frozen=True):
    """Base of answers whose fields are attributes; indexing raises an error that says so."""

    def __getitem__(self, name: object) -> Never:
        """Raise a ``TypeError`` that says to use the attribute."""
        raise TypeError(f"{type(self).__name__} has fields; give .{name} in place of [{name!r}]")


class ManyDecisions(msgspec.Struct, Generic[T], forbid_unknown_fields=True):
    """Many impressions, which are all decided or none; or their outcomes, in the same order."""

    decisions: Annotated[list[T], Meta(min_length=1, max_length=1000)]


class ManyFeedback(msgspec.Struct, Generic[T], forbid_unknown_fields=True):
    """Many pieces of feedback, recorded in one commit; or their outcomes, in the same order.

    The outcome of feedback that could not be recorded is the kind of its problem:
    ``unknown-decision``, ``conflict`` or ``repeated-feedback``.
    """

    feedback: Annotated[list[T], Meta(min_length=1, max_length=1000)]


class Impression(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One impression: a key, and perhaps the arms on offer and signals about the key.

    Attributes
    ----------
    key : str
    arms : sequence of int or str, optional
        The arms on offer; all if left out.
    context : sequence of float, or mapping from str to str, float, bool or None, optional
    decision_id : str, optional
    deferred : bool, default False
        If true, the decision counts only once it is activated.
    relevance, examination : sequence of sequence of float, optional
        A row of features for each arm on offer, for policies that read features of arms; the client may
        then name the arms freely, or number them from 0.
    session : str, optional
        Id of the session, for the signal ``reformulation`` and for a holdout of sessions; only its hash
        is stored.
    user : str, optional
        Id of the user, for a holdout of users: all decisions of one user are in one group. It is not
        stored.
    segment : str, optional
        Without ``arms``, all items of this segment of the catalogue are on offer.
    unknown : str, optional
        ``skip`` arms that are not in the catalogue, or ``refuse`` the request, which is the default.
    """

    key: Key
    arms: Sequence[int | str] | None = None
    context: Context | None = None
    decision_id: NewDecisionId | None = None
    deferred: bool = False
    relevance: Sequence[Sequence[float]] | None = None
    examination: Sequence[Sequence[float]] | None = None
    session: Name | None = None
    user: Name | None = None
    segment: Segment | None = None
    unknown: Literal["refuse", "skip"] | None = None


class Would(msgspec.Struct, frozen=True):
    """Counterfactual: the arm that the policy would have shown if it did not decide, or in mode ``shadow``
    the shadow policy's arm.

    Attributes
    ----------
    arm : int or str
    propensity : float or None
    """

    arm: Arm
    propensity: float | None


class Decided(Fielded, frozen=True, omit_defaults=True):
    """The decision: the arm to show, logged.

    Attributes
    ----------
    decision_id : str
        Id of the decision, for its feedback.
    arm : int or str
    propensity : float or None
        Probability with which the policy chose the arm, with a holdout that of policy and control
        together; None if deterministic.
    epoch : int
        Number of restarts of the key before the decision.
    durability : str
        ``committed``, or ``buffered``: in memory until the next commit.
    would : Would or None
    signals : dict or None
        Signals that the placement computed for this decision, by name; each in [0, 1].
    warning : str or None
        A probable mistake in the request, which counts nevertheless.
    """

    decision_id: DecisionId
    arm: Arm
    propensity: float | None
    epoch: int
    durability: Durability
    would: Would | None = None
    signals: dict[str, float] | None = None
    warning: str | None = None


REWARD = {"such": 'a number in [0, 1]; amounts have names, and go to metrics, as metrics = {"revenue": 59.9}'}


class Feedback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reward of a decision, and its metrics.

    Attributes
    ----------
    decision_id : str
    reward : float, optional
        A click (1), none (0), or a reward between; left out only if the placement learns from a metric.
    feedback_id : str, optional
    metrics : mapping from str to float, optional
    """

    decision_id: DecisionId
    reward: Annotated[float, Meta(ge=0.0, le=1.0, extra=REWARD)] | None = None
    feedback_id: FeedbackId | None = None
    metrics: Metrics | None = None


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event of a decision: its examination or activation."""

    decision_id: DecisionId
    feedback_id: FeedbackId | None = None


class Recorded(Fielded, frozen=True, omit_defaults=True):
    """The outcome of feedback, logged.

    Attributes
    ----------
    decision_id : str
    learned : bool
        Whether the policy has learned from it by now.
    outcome : str
        ``learned``, ``pending``, ``late`` …; ``duplicate`` also if an earlier try, whose answer was
        lost, recorded it.
    durability : str
        ``committed`` or ``buffered``.
    warning : str or None
        A probable mistake in the feedback, which counts nevertheless.
    learned_within : float or None
        The most seconds until pending feedback is learned.
    """

    decision_id: DecisionId
    learned: bool
    outcome: Annotated[
        str,
        Meta(
            description="What became of it. "
            + " ".join(f"``{outcome}``: {text}." for outcome, text in OUTCOMES.items())
        ),
    ]
    durability: Durability
    warning: str | None = None
    learned_within: float | None = None


class LocalDecision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decision that a client made with a copy of the service's learner.

    Attributes
    ----------
    decision_id, key : str
    arm : int or str
    propensity : float, optional
        Probability with which the arm was chosen, in (0, 1]; left out if the policy is deterministic.
    arms : sequence of int or str, optional
        The arms on offer; all if left out.
    context : sequence of float, or mapping from str to str, float, bool or None, optional
    """

    decision_id: NewDecisionId
    key: Key
    arm: Arm
    propensity: Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": 1})] | None = None
    arms: Sequence[int | str] | None = None
    context: Context | None = None


class TakenOver(msgspec.Struct, frozen=True):
    """The outcome of a client-side decision that was sent to be logged.

    Attributes
    ----------
    decision_id : str
    outcome : str
        ``logged``; ``duplicate`` if it was logged before; or the kind of its problem: ``invalid-value``;
        ``conflict`` if another decision has the id.
    detail : str
        Message of the problem; empty if there is none.
    """

    decision_id: DecisionId
    outcome: str
    detail: str = ""
