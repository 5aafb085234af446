"""What travels: requests and answers as typed structures, the source of the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

Key = Annotated[
    str,
    Meta(
        description="What the decision is for: a query, a slot. At most 512 bytes in UTF-8.",
        examples=["independence day"],
    ),
]
Arm = Annotated[int | str, Meta(description="An arm: its name, or its number from 0.")]
DecisionId = Annotated[
    str,
    Meta(
        description="Names the decision when feedback comes back.",
        examples=["018bcfe5-687b-774b-9e0c-5a1f3f9f2c11"],
    ),
]


class DecideRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One impression: a key, and perhaps the arms on offer and signals about the key."""

    key: Key
    arms: (
        Annotated[list[int | str], Meta(description="The arms on offer; all if left out.")] | None
    ) = None
    context: (
        Annotated[
            list[float], Meta(description="Signals about the key, for policies that use them.")
        ]
        | None
    ) = None


class DecideAnswer(msgspec.Struct):
    """What to show, durably logged."""

    decision_id: DecisionId
    arm: Arm
    propensity: Annotated[
        float | None,
        Meta(description="Probability with which the policy chose it; null if deterministic."),
    ]
    epoch: Annotated[int, Meta(description="How often the key had restarted.")]


class FeedbackRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What came back for a decision."""

    decision_id: DecisionId
    reward: Annotated[
        float, Meta(ge=0.0, le=1.0, description="A click (1), none (0), or a reward between.")
    ]


class FeedbackAnswer(msgspec.Struct):
    """The feedback is durably logged."""

    decision_id: DecisionId
    learned: Annotated[
        bool,
        Meta(description="False if the key has restarted since: recorded, but it taught nothing."),
    ]


class PlacementSummary(msgspec.Struct):
    """A placement and how far it has come."""

    name: str
    policy: Annotated[dict[str, Any], Meta(description="Its name and hyperparameters.")]
    arms: list[int | str]
    keys: int
    decisions: int
    feedback: int
    rewards: Annotated[float, Meta(description="Sum of all rewards.")]


class Placements(msgspec.Struct):
    """All placements."""

    placements: list[PlacementSummary]


class Status(msgspec.Struct):
    """How the service is."""

    status: Annotated[str, Meta(examples=["ok"])]


class Problem(msgspec.Struct):
    """What was wrong with a request (RFC 9457)."""

    type: Annotated[str, Meta(examples=["urn:tacit:problem:invalid-value"])]
    title: str
    status: int
    detail: Annotated[str, Meta(description="The value, and what is allowed.")]
    field: Annotated[str, Meta(description="The field that was wrong.", examples=["reward"])]
