"""Messages of placements that show lists: duels of rankers, lists of one policy, and clicks."""

# 1. Duels of rankers.
# 2. Lists of one policy.
# 3. Clicks in either.
# 4. Verdicts and standings: which ranker users prefer.

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
    """One search, with the list of each ranker.

    Attributes
    ----------
    rankings : mapping from str to sequence of int or str, optional
        From each ranker's name to its items, best first; as many as are shown suffice. If left out, the
        answer is only a pair of rankers: run and interleave these two, and send the outcome as the
        reward.
    key : str, default "all"
    context : sequence of float, optional
    decision_id : str, optional
    deferred : bool, default False
        If true, the search counts only once it is activated.
    session : str, optional
        Id of the visit, for the verdict if no user is known, and for a holdout of sessions. Only its
        hash is stored, to recognize searches of one session.
    user : str, optional
        Id of the user, for the verdict and for a holdout of users. Only its hash is stored, to recognize
        searches of one user.
    segments : mapping from str to str, optional
        Properties of the search, such as its market: a value for each of the names in the placement's
        ``segments``. The verdict is also broken down by them.
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
    """Counterfactual: the pair that the shadow policy would have chosen, in mode ``shadow``.

    Attributes
    ----------
    left, right : str
    propensity : float or None
    """

    left: Ranker
    right: Ranker
    propensity: float | None


class Dueled(Fielded, frozen=True, omit_defaults=True):
    """The decision for a search: the pair of rankers and the interleaved list to show, logged.

    Attributes
    ----------
    decision_id, left, right : str
    propensity : float or None
        Probability with which the policy chose the pair; None if not known.
    epoch : int
        Number of restarts of the key before the decision.
    durability : str
    items : list of int or str, or None
        The list to show, from the top; None if the request had no rankings.
    teams : list of int or None, or None
        Team of each item: 0 the left ranker's, 1 the right one's, None neither. Only for methods
        that draw teams.
    probability : float or None
        Probability of this list, given the pair; left out if not known.
    would : WouldDuel or None
    warning : str or None
        A probable mistake in the request, which counts nevertheless.
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
    """Counterfactual: the list that the policy would have shown if it did not decide, or in mode ``shadow``
    the shadow policy's list.

    Attributes
    ----------
    slate : list of int, str or None
    propensity : float or None
    """

    slate: list[Item | None]
    propensity: float | None


class Listed(Fielded, frozen=True, omit_defaults=True):
    """The list to show, logged.

    Attributes
    ----------
    decision_id : str
    slate : list of int, str or None
        The arm at each position; None at a position that the policy leaves empty.
    propensity : float or None
        Probability of this list; None if it is not known.
    epoch : int
        Number of restarts of the key before the decision.
    durability : str
    would : WouldSlate or None
    warning : str or None
        A probable mistake in the request, which counts nevertheless.
    """

    decision_id: DecisionId
    slate: list[Item | None]
    propensity: float | None
    epoch: int
    durability: Durability
    would: WouldSlate | None = None
    warning: str | None = None


# ---- Clicks in a list


class Clicks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Clicks in a list, given either as positions or as items.

    Attributes
    ----------
    decision_id : str
    clicks : sequence of int, optional
        The clicked positions, counted from 0; empty if none was clicked.
    items : sequence of int or str, optional
        The clicked items, in place of positions.
    feedback_id : str, optional
    metrics : mapping from str to float, optional
    action : str, optional
        Name of an action other than a click, which has a weight in the placement's ``worth``. Only for
        duels.
    rewards : sequence of float, optional
        The reward of each of ``clicks`` or ``items``, in [0, 1], such as 1 for a purchase and 0.3 for a
        click; by default 1. Several of one position count as the largest. Only for lists of one policy.
    """

    decision_id: DecisionId
    clicks: Sequence[Annotated[int, Meta(ge=0)]] | None = None
    items: Sequence[Item] | None = None
    feedback_id: FeedbackId | None = None
    metrics: Metrics | None = None
    action: Annotated[str, Meta(examples=["add_to_cart"])] | None = None
    rewards: Sequence[Annotated[float, Meta(ge=0, le=1)]] | None = None


# ---- Which ranker users prefer


class VerdictOf(msgspec.Struct, frozen=True):
    """The error rates of a verdict on rankers.

    Attributes
    ----------
    confidence : float, default 0.95
    false_share : float, default 0.05
        False discovery rate among the segments that are reported to differ.
    """

    confidence: Annotated[float, Meta(extra_json_schema={"enum": [0.9, 0.95, 0.99]})] = 0.95
    false_share: Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": 1})] = 0.05


class Verdict(msgspec.Struct, frozen=True):
    """Which ranker users prefer, by the weights of their actions in a placement's searches.

    Attributes
    ----------
    verdict : str
        The winner, or the reason why there is none yet, in words.
    report : dict or None
        The report of ``tacit duel --json``: ``leader``, ``winner``, ``comparisons`` of the leader with
        every other ranker, ``segments``, ``credited`` actions, ``warnings``; ``units`` are counted up
        to 100,000. None before two rankers have dueled.
    since : str or None
        Time of the first decision in the log, in ISO 8601.
    until : str or None
        Time up to which the log was read; None before the first row.
    open : int
        Decisions that do not count yet, since their windows are open.
    whole : bool
        Whether the log was read to its end. If not, it is still being read, and the report covers the
        part read so far; ask again.
    beyond : dict of str to int
        Per segment, number of searches with a value that is not counted separately, since 200 others
        came before.
    """

    verdict: str
    report: dict[str, Any] | None
    since: str | None
    until: str | None
    open: int
    whole: bool
    beyond: dict[str, int]


class DuelsOfKey(msgspec.Struct, frozen=True):
    """A key and its number of duels.

    Attributes
    ----------
    key : str
    duels : int
    """

    key: DuelKey
    duels: int


class StandingsOf(msgspec.Struct, frozen=True):
    """The key whose standings are requested, and their confidence.

    Attributes
    ----------
    confidence : float, default 0.95
    key : str, optional
        By default the key with the most duels.
    """

    confidence: Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "exclusiveMaximum": 1})] = (
        0.95
    )
    key: str | None = None


class Standings(msgspec.Struct, frozen=True):
    """The standings of rankers in the duels of a key.

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
