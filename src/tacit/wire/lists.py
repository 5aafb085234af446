"""What travels for placements that show lists: duels of rankers, and clicks on positions."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tacit.wire.decisions import (
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
    ] = "click"


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
