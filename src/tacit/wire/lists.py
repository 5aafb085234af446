"""What travels for placements that show lists: duels of rankers, and clicks on positions."""

# Duels of rankers first, then lists of one policy, then clicks in either, then which ranker users prefer.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tacit.wire.decisions import (
    SHORT,
    DecisionId,
    Durability,
    FeedbackId,
    Fielded,
    Metrics,
    Name,
    NewDecisionId,
)

Item = int | str
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


class Search(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One search: every ranker's list for it.

    Attributes
    ----------
    rankings : mapping from str to sequence of int or str, optional
        From each ranker's name to its items, best first; as many as are shown suffice. Left out, the
        answer is a pair alone: run and interleave those two, and send the outcome as the reward.
    key : str, default "all"
    context : sequence of float, optional
    decision_id : str, optional
    deferred : bool, default False
        True: it counts only once it is activated.
    session : str, optional
        Whose visit this search belongs to, for the verdict where no user is known, and for a holdout of
        sessions. Only its hash is kept, so that searches which may be alike are known.
    user : str, optional
        Who searches, for the verdict and for a holdout of users. Only its hash is kept, so that
        searches which may be alike are known.
    segments : mapping from str to str, optional
        What else is known of the search, such as its market: a value for each of the names that the
        placement's ``segments`` have. The verdict tells them apart.
    """

    rankings: Mapping[str, Sequence[Item]] | None = None
    key: DuelKey = "all"
    context: Sequence[float] | None = None
    decision_id: NewDecisionId | None = None
    deferred: bool = False
    session: Name | None = None
    user: Name | None = None
    segments: Annotated[Mapping[str, Name], Meta(examples=[{"market": "de"}])] | None = None


class WouldDuel(msgspec.Struct, frozen=True):
    """The pair that the second policy would have let duel, in mode ``shadow``.

    Attributes
    ----------
    left, right : str
    propensity : float or None
    """

    left: Ranker
    right: Ranker
    propensity: float | None


class Dueled(Fielded, frozen=True, omit_defaults=True):
    """The list to show, logged with all that its clicks need.

    Attributes
    ----------
    decision_id, left, right : str
    propensity : float or None
        Probability with which the policy chose the pair; None if not known.
    epoch : int
        How often the key had restarted.
    durability : str
    items : list of int or str, or None
        What to show, from the top; None where no rankings were given.
    teams : list of int or None, or None
        Per item, whose it is: 0 the left ranker's, 1 the right one's, None nobody's. Only of methods
        that draw teams.
    probability : float or None
        Of this very list, given the pair; left out if not known.
    would : WouldDuel or None
    warning : str or None
        What of the request is hardly meant, though it counts as it stands.
    """

    decision_id: DecisionId
    left: Ranker
    right: Ranker
    propensity: float | None
    epoch: int
    durability: Durability
    items: list[Item] | None = None
    teams: list[int | None] | None = None
    probability: float | None = None
    would: WouldDuel | None = None
    warning: str | None = None


# ---- Lists of one policy


class WouldSlate(msgspec.Struct, frozen=True):
    """What another policy would have listed: the placement's where it did not decide, the second one in
    mode ``shadow``.

    Attributes
    ----------
    slate : list of int, str or None
    propensity : float or None
    """

    slate: list[Item | None]
    propensity: float | None


class Listed(Fielded, frozen=True, omit_defaults=True):
    """What to list, logged.

    Attributes
    ----------
    decision_id : str
    slate : list of int, str or None
        The arm at each position; None where the policy leaves one empty.
    propensity : float or None
        Of this very list; None if it is not known.
    epoch : int
        How often the key had restarted.
    durability : str
    would : WouldSlate or None
    warning : str or None
        What of the request is hardly meant, though it counts as it stands.
    """

    decision_id: DecisionId
    slate: list[Item | None]
    propensity: float | None
    epoch: int
    durability: Durability
    would: WouldSlate | None = None
    warning: str | None = None


# ---- What was clicked in a list


class Clicks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was clicked in a list: positions, or items; one of both.

    Attributes
    ----------
    decision_id : str
    clicks : sequence of int, optional
        The clicked positions from 0; empty: none was clicked.
    items : sequence of int or str, optional
        The clicked items, in place of positions.
    feedback_id : str, optional
    metrics : mapping from str to float, optional
    action : str, optional
        What was done there, where it is no click: an action to which the placement's ``worth`` gives an
        amount. Of duels only.
    """

    decision_id: DecisionId
    clicks: Sequence[Annotated[int, Meta(ge=0)]] | None = None
    items: Sequence[Item] | None = None
    feedback_id: FeedbackId | None = None
    metrics: Metrics | None = None
    action: Annotated[str, Meta(examples=["add_to_cart"])] | None = None


# ---- Which ranker users prefer


class VerdictOf(msgspec.Struct, frozen=True):
    """How sure a verdict on rankers shall be.

    Attributes
    ----------
    confidence : float, default 0.95
    false_share : float, default 0.05
        Of the segments that are found to differ, so much is wrong at most, on average.
    """

    confidence: Annotated[float, Meta(extra_json_schema={"enum": [0.9, 0.95, 0.99]})] = 0.95
    false_share: Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": 1})] = 0.05


class Verdict(msgspec.Struct, frozen=True):
    """What the searches of a placement say, by what their actions are worth.

    Attributes
    ----------
    verdict : str
        Who wins, or what is missing, in words.
    report : dict or None
        As ``tacit duel --json`` gives it: ``leader``, ``winner``, ``comparisons`` of the leader with
        every other ranker, ``segments``, ``credited`` actions, ``warnings``; ``units`` are counted up
        to 100,000. None before two rankers have dueled.
    since : str or None
        When the first decision that the log has was made, in ISO 8601.
    until : str or None
        Up to when the log was read; None before the first row.
    open : int
        Decisions that do not count yet: their windows are open.
    whole : bool
        Whether the log was read to its end. If not, it is being read, and this is what its beginning
        says; ask again.
    beyond : dict of str to int
        Per segment, how many searches had a value that is not counted apart, as 200 others came before.
    """

    verdict: str
    report: dict[str, Any] | None
    since: str | None
    until: str | None
    open: int
    whole: bool
    beyond: dict[str, int]


class DuelsOfKey(msgspec.Struct, frozen=True):
    """A key and how many duels it had.

    Attributes
    ----------
    key : str
    duels : int
    """

    key: DuelKey
    duels: int


class StandingsOf(msgspec.Struct, frozen=True):
    """Whose standings are asked for, and how sure they shall be.

    Attributes
    ----------
    confidence : float, default 0.95
    key : str, optional
        By default that with the most duels.
    """

    confidence: Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "exclusiveMaximum": 1})] = (
        0.95
    )
    key: str | None = None


class Standings(msgspec.Struct, frozen=True):
    """What the duels of a key say.

    Attributes
    ----------
    key : str
    keys : list of DuelsOfKey
        Keys with duels, most duels first.
    report : dict
        ``estimate[i][j]``: the probability that ranker i beats ranker j, with Wilson's interval
        ``low``–``high`` of this pair alone and ``safe_low``–``safe_high``, which holds for all pairs at
        all times; ``out``, ``left``, ``leader``, ``winner``, ``safe_to_stop``, ``still_needed``,
        ``verdict``.
    """

    key: DuelKey
    keys: list[DuelsOfKey]
    report: dict[str, Any]
