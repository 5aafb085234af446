"""Requests to the engine: impressions and clicks are checked, then wait for their group."""

# 1. What callers ask for: impressions and clicks, checked once, at the edge.
# 2. What the engine is given: ``Decide``, ``CheckDecisions``, ``Record`` and so on; many make a group.
# 3. Feedback, checked as a block.

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tacit.core import checks
from tacit.errors import AssumptionWarning, InvalidValue
from tacit.interleaving.rules import CLICK
from tacit.learning.decisions import Arm
from tacit.service.log import blocks
from tacit.service.log.blocks import Block
from tacit.service.log.rows import CLICKS, MODE, REWARD, DecisionRow, text_of
from tacit.service.log.search_records import without_unit

# ---- What callers ask for and report, checked: impressions to decide for, clicks in a list

LONGEST_ID = 256

FeatureRows = Sequence[Sequence[float]]


class DecisionRequest(NamedTuple):
    """What a caller wants decided, as it came.

    Attributes
    ----------
    key : str
    arms : sequence of arms, optional
        Those on offer; by default all, or numbers from 0 where they are known by their features.
    context : sequence of float or mapping, optional
    id : str, optional
        The decision's.
    deferred : bool
        Whether it counts only once it is activated.
    relevance, examination : sequence of sequence of float, optional
        A row of features for each arm on offer, as the policy reads them.
    session : str, optional
        Whose visit it is, where signals are computed.
    user : str, optional
        Who it is, where that decides what belongs to the holdout.
    rankings : mapping, optional
        From every ranker's name to its list of items, best first; None for a pair alone.
    segments : mapping, optional
        What else is known of a search, by the names that its placement tells apart.
    segment : str, optional
        Of the catalogue: without arms, all items of it are on offer.
    unknown : str, optional
        ``skip`` arms that are not in the catalogue; by default they are refused.
    """

    key: str
    arms: Sequence[Arm] | None = None
    context: Sequence[float] | Mapping[str, Any] | None = None
    id: str | None = None
    deferred: bool = False
    relevance: FeatureRows | None = None
    examination: FeatureRows | None = None
    session: str | None = None
    user: str | None = None
    rankings: Mapping[str, Sequence[Arm]] | None = None
    segments: Mapping[str, str] | None = None
    segment: str | None = None
    unknown: str | None = None


class Impression(NamedTuple):
    """What a caller wants decided; checked.

    Attributes
    ----------
    key, arms, context, id, deferred
        As in a :class:`DecisionRequest`.
    asked : str or None
        What else was said, as the log keeps it.
    given : object
        The same, as the placement uses it.
    session, user : str or None
        As in a :class:`DecisionRequest`: either may stay in its group of a holdout that begins before the
        decision.
    """

    key: str
    arms: Sequence[Arm] | None
    context: Sequence[float] | None
    id: str | None = None
    deferred: bool = False
    asked: str | None = None
    given: Any = None
    session: str | None = None
    user: str | None = None

    def asks_for(self, row: DecisionRow, context: str | None) -> bool:
        """Whether a decision answers this very impression; its context is as it was asked."""
        asked = self.key, as_json(self.arms), as_json(self.context), int(self.deferred), self.asked
        kept = row.key, row.offered, context, row.deferred, row.asked
        # Of somebody who was forgotten the log does not know any more whose it was.
        return kept in (asked, (*asked[:-1], without_unit(self.asked)))


class Made(NamedTuple):
    """How an impression was decided elsewhere.

    Attributes
    ----------
    arm : int or str
    propensity : float or None
        In (0, 1]; None where the policy is deterministic.
    epoch : int
        How often the key has restarted here.
    """

    arm: Arm
    propensity: float | None
    epoch: int = 0


class Clicked(NamedTuple):
    """What was clicked in a list, as a client reports it: positions from 0, or items.

    Another action than a click, such as a purchase, is named.
    """

    positions: Sequence[int] | None = None
    items: Sequence[Arm] | None = None
    action: str = CLICK


def checked_id(field: str, id: str) -> str:
    """Return an id that a client gave.

    Raises
    ------
    InvalidValue
        If it is empty, too long, or holds what cannot be stored or printed.
    """
    if not 0 < len(id) <= LONGEST_ID or not id.isprintable():
        raise InvalidValue(field, id, f"give 1 to {LONGEST_ID} printable characters")
    return id


def clicked_positions(
    feedback: FeedbackRequest, items: Sequence[Arm], actions: Collection[str] = ()
) -> str | None:
    """Return clicked positions in a list of items as the log keeps them; None of feedback of another kind.

    Parameters
    ----------
    feedback : FeedbackRequest
    items : sequence of arms
    actions : collection of str
        Those that are known besides clicks.

    Raises
    ------
    InvalidValue
        If a position or an item is not in the list, the action is not known, or it is a reward.

    Examples
    --------
    >>> clicked = FeedbackRequest("d", CLICKS, None, None, Clicked(items=["c", "a"]))
    >>> clicked_positions(clicked, ["a", "b", "c"])
    '[0,2]'
    >>> bought = clicked._replace(clicks=Clicked([1], action="purchase"))
    >>> clicked_positions(bought, ["a", "b"], ["purchase"])
    '[{"position":1,"action":"purchase"}]'
    """
    if feedback.kind == REWARD:
        remedy = "a list was shown; send the places that were clicked to clicks, from 0, such as [0], or []"
        raise InvalidValue("reward", feedback.reward, remedy)
    clicks = feedback.clicks
    if feedback.kind != CLICKS or clicks is None:
        return None
    if clicks.action != CLICK and clicks.action not in actions:
        known = ", ".join(dict.fromkeys([CLICK, *actions]))
        remedy = f"here there are {known}; a placement of duels names others by their worth"
        raise InvalidValue("action", clicks.action, remedy)
    positions = {
        checks.integer(f"clicks[{i}]", position, 0, len(items) - 1)
        for i, position in enumerate(clicks.positions or ())
    }
    places = {item: place for place, item in enumerate(items)}
    for i, item in enumerate(clicks.items or ()):
        if item not in places:
            raise InvalidValue(f"items[{i}]", item, f"the list that was shown is {list(items)}")
        positions.add(places[item])
    done: list[Any] = sorted(positions)
    if clicks.action != CLICK:
        done = [{"position": position, "action": clicks.action} for position in done]
    return text_of(done)


def action_of(done: int | Mapping[str, Any]) -> tuple[int, str]:
    """Return the position and the action that one of :func:`clicked_positions` tells.

    Examples
    --------
    >>> action_of(3), action_of({"position": 1, "action": "purchase"})
    ((3, 'click'), (1, 'purchase'))
    """
    return (done, CLICK) if isinstance(done, int) else (done["position"], done["action"])


def clicks_in(done: Sequence[int | Mapping[str, Any]]) -> list[int]:
    """Return the positions that were clicked, without those of other actions."""
    return [action for action in done if isinstance(action, int)]


def as_json(values: Sequence[Arm] | Sequence[float] | None) -> str | None:
    """Return a list as the log keeps it."""
    return None if values is None else text_of(values)


# ---- Requests to the engine; many make a group


class FeedbackRequest(NamedTuple):
    """Feedback as a client sends it.

    Attributes
    ----------
    decision : str
        The decision's id.
    kind : str
        ``reward``, ``clicks``, ``examined`` or ``activate``.
    reward : float or None
        In [0, 1] where the kind is ``reward``.
    id : str or None
        Sent again, it is the same feedback.
    clicks : Clicked or None
        Where the kind is ``clicks``.
    metrics : str or None
        JSON of the metrics that come with it, by name.
    """

    decision: str
    kind: str = REWARD
    reward: float | None = None
    id: str | None = None
    clicks: Clicked | None = None
    metrics: str | None = None


def as_content(metrics: Mapping[str, float] | None) -> str | None:
    """Return metrics as the log keeps them; None for none.

    Examples
    --------
    >>> as_content({"seconds": 12.5, "revenue": 3.0})
    '{"revenue":3.0,"seconds":12.5}'
    """
    return msgspec.json.encode(metrics, order="sorted").decode() if metrics else None


def rewards(
    decisions: Sequence[str], values: Sequence[float], ids: Sequence[str | None] | None = None
) -> Block[FeedbackRequest]:
    """Return a reward for each of many decisions, for :meth:`Engine.record_many`.

    Parameters
    ----------
    decisions : sequence of str
        Their ids.
    values : sequence of float
    ids : sequence of str or None, optional
        The ids of the feedback.

    Examples
    --------
    >>> rewards(["a", "b"], [1.0, 0.0])[1].reward
    0.0
    """
    count = len(decisions)
    names = [None] * count if ids is None else list(ids)
    nothing: list[Any] = [None] * count
    columns = list(decisions), [REWARD] * count, list(values), names
    return Block(FeedbackRequest, [*columns, nothing, nothing])


class Decide(NamedTuple):
    """To decide for impressions: for all, or for none."""

    placement: str
    impressions: Sequence[Impression]


class CheckDecisions(NamedTuple):
    """To check that all impressions can be decided, as :class:`Decide` does, and decide none."""

    placement: str
    impressions: Sequence[Impression]


class Record(NamedTuple):
    """To record feedback."""

    placement: str
    feedback: Sequence[FeedbackRequest]


class Mark(NamedTuple):
    """To log a mark as it is; ``who`` does."""

    placement: str
    value: str
    kind: str = MODE
    who: str | None = None


class Ask(NamedTuple):
    """To change a placement: ``request`` is of a type in :mod:`tacit.service.placements.placement`."""

    placement: str
    request: Any
    who: str | None = None


class Export(NamedTuple):
    """To return what was learned, for other shards."""

    placement: str
    everything: bool


Request = Decide | CheckDecisions | Record | Mark | Ask | Export


def checked_feedback(feedback: Sequence[FeedbackRequest], placement: Any) -> Sequence[FeedbackRequest]:
    """Return feedback, its rewards, metrics and ids checked; a block as a block.

    Parameters
    ----------
    feedback : sequence of FeedbackRequest
    placement : Placement
        Its configuration is read; what is doubted once is not said again.

    Raises
    ------
    InvalidValue
        If one does not fit.
    """
    config = placement.config
    lowest, learned = config.rule.lowest, config.learned
    for content in blocks.values(feedback, "metrics"):
        if content is not None:
            _check_metrics(content, placement)
    if learned is not None:
        feedback = [_worth(piece, learned, config.metrics[learned]) for piece in feedback]
    if type(feedback) is not Block:
        return [_checked(piece, lowest) for piece in feedback]
    for id in feedback.column("id"):
        if id is not None:
            checked_id("feedback_id", id)
    kinds, rewards = feedback.column("kind"), feedback.column("reward")
    if set(kinds) == {REWARD} and set(map(type, rewards)) == {float}:
        known = np.array(rewards)
        if ((known >= lowest) & (known <= 1.0)).all():
            return feedback
    checked = [
        _checked_reward(reward, lowest) if kind == REWARD else reward
        for kind, reward in zip(kinds, rewards, strict=True)
    ]
    return feedback.with_column("reward", checked)


def _worth(feedback: FeedbackRequest, name: str, metric: Any) -> FeedbackRequest:
    """Return feedback with the worth of a metric's amount as its reward."""
    if feedback.kind != REWARD:
        return feedback
    amounts = msgspec.json.decode(feedback.metrics) if feedback.metrics else {}
    if name not in amounts:
        such = f'metrics = {{"{name}": {feedback.reward or 0:g}}}'
        raise InvalidValue(
            f"metrics.{name}", None, f"send its amount, or 0, as {such}: it is what is learned"
        )
    worth = metric.worth(amounts[name])
    # A shard gets what its ingress has worked out.
    if feedback.reward not in (None, worth):
        remedy = f"leave it out: what is learned is the worth of metrics.{name}"
        raise InvalidValue("reward", feedback.reward, remedy)
    return feedback._replace(reward=worth)


def _check_metrics(content: str, placement: Any) -> None:
    known = placement.config.metrics
    for name, amount in msgspec.json.decode(content).items():
        if name not in known:
            watched = f"the placement watches {', '.join(known) or 'none'}"
            remedy = f"{watched}; leave it out, or configure metrics.{name}"
            raise InvalidValue(f"metrics.{name}", amount, remedy)
        # JSON has no infinity.
        if isinstance(amount, int | float) and amount < known[name].least:
            remedy = f"give a number from {known[name].least:g} on; what is given back is a metric of its own"
            raise InvalidValue(f"metrics.{name}", amount, f'{remedy}, with better = "less"')
        checks.number(f"metrics.{name}", amount, known[name].least, known[name].most)
        if name not in placement.doubted and (doubt := known[name].doubt(name, amount)):
            placement.doubted.add(name)
            warnings.warn(f"{placement.name}: {doubt}", AssumptionWarning, stacklevel=2)


def _checked(feedback: FeedbackRequest, lowest: float) -> FeedbackRequest:
    if feedback.id is not None:
        checked_id("feedback_id", feedback.id)
    if feedback.kind != REWARD:
        return feedback
    reward = _checked_reward(feedback.reward, lowest)
    return feedback if reward is feedback.reward else feedback._replace(reward=reward)


LEARNED = '; to learn a metric in its place, configure reward = "METRIC"'


def _checked_reward(reward: float | None, lowest: float) -> float:
    if type(reward) is float and lowest <= reward <= 1.0:
        return reward
    if reward is None:
        raise InvalidValue(
            "reward", None, f"give a number from {lowest:g} to 1, beside metrics, too{LEARNED}"
        )
    return checks.number("reward", reward, lowest, 1.0)  # type: ignore[arg-type]
