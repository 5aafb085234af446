"""Requests to the engine: impressions, feedback and changes, and the checks of their values."""

# 1. Requests of callers: impressions and clicks, checked once on arrival.
# 2. Requests to the engine: ``Decide``, ``CheckDecisions``, ``Record`` and so on; many form a group.
# 3. Checks of feedback, for a whole block.

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
from tacit.service.log.blocks import Block
from tacit.service.log.rows import CLICKS, MODE, REWARD, DecisionRow, encode_json
from tacit.service.log.search_records import remove_unit

# ---- Requests of callers: impressions to decide for, clicks in a list

LONGEST_ID = 256

FeatureRows = Sequence[Sequence[float]]


class DecisionRequest(NamedTuple):
    """A request for one decision, not yet checked.

    Attributes
    ----------
    key : str
    arms : sequence of arms, optional
        The offered arms; by default all, or numbers from 0 if arms are described by features.
    context : sequence of float or mapping, optional
    id : str, optional
        The decision's id.
    deferred : bool
        Whether the decision counts only once it is activated.
    relevance, examination : sequence of sequence of float, optional
        A row of features for each offered arm, as the policy reads them.
    session : str, optional
        The session, for placements that compute signals.
    user : str, optional
        The user, for placements whose holdout assigns users.
    rankings : mapping, optional
        From every ranker's name to its list of items, best first; None for a pair alone.
    segments : mapping, optional
        Segments of a search, by the names that the placement configures.
    segment : str, optional
        Segment of the catalogue: without arms, all its items are offered.
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
    """A checked request for one decision.

    Attributes
    ----------
    key, arms, context, id, deferred
        As in a :class:`DecisionRequest`.
    asked : str or None
        The other fields of the request as text, for the log.
    details : object
        The other fields of the request, for the placement.
    session, user : str or None
        As in a :class:`DecisionRequest`; needed if sessions or users stay in their group of a holdout, also
        for a holdout that begins before the decision is made.
    """

    key: str
    arms: Sequence[Arm] | None
    context: Sequence[float] | None
    id: str | None = None
    deferred: bool = False
    asked: str | None = None
    details: Any = None
    session: str | None = None
    user: str | None = None

    def matches_decision(self, row: DecisionRow, context: str | None) -> bool:
        """True if a logged decision answers this impression; ``context`` is the decision's context as JSON.

        The user's hash is not compared if the user was forgotten.
        """
        request = self.key, as_json(self.arms), as_json(self.context), int(self.deferred), self.asked
        logged_request = row.key, row.offered, context, row.deferred, row.asked
        # The log has no unit for decisions of a forgotten user.
        return logged_request in (request, (*request[:-1], remove_unit(self.asked)))


class ClientDecision(NamedTuple):
    """A decision that a client made with a replica of the learner.

    Attributes
    ----------
    arm : int or str
    propensity : float or None
        In (0, 1]; None if the policy is deterministic.
    epoch : int
        Number of restarts of the key on the server.
    """

    arm: Arm
    propensity: float | None
    epoch: int = 0


class Clicked(NamedTuple):
    """Clicks in a list as a client reports them, by positions from 0 or by items.

    ``action`` may name another action than a click, such as a purchase; ``rewards`` has the reward of each,
    in [0, 1].
    """

    positions: Sequence[int] | None = None
    items: Sequence[Arm] | None = None
    action: str = CLICK
    rewards: Sequence[float] | None = None


def check_id(field: str, id: str) -> str:
    """Return an id from a client if it is valid: 1 to 256 printable characters.

    Raises
    ------
    InvalidValue
        If it is empty, too long, or has unprintable characters.
    """
    if not 0 < len(id) <= LONGEST_ID or not id.isprintable():
        raise InvalidValue(field, id, f"give 1 to {LONGEST_ID} printable characters")
    return id


def encode_clicks(
    feedback: FeedbackRequest, items: Sequence[Arm], actions: Collection[str] = ()
) -> str | None:
    """Return the clicked positions of feedback on a shown list as JSON for the log; None for other kinds.

    Parameters
    ----------
    feedback : FeedbackRequest
    items : sequence of arms
        The shown list.
    actions : collection of str
        Known actions besides clicks.

    Raises
    ------
    InvalidValue
        If a position or an item is not in the list, the action is unknown, the feedback is a reward, or
        ``rewards`` are not as many as the clicks.

    Examples
    --------
    >>> clicks = FeedbackRequest("d", CLICKS, None, None, Clicked(items=["c", "a"]))
    >>> encode_clicks(clicks, ["a", "b", "c"])
    '[0,2]'
    >>> purchase = clicks._replace(clicks=Clicked([1], action="purchase"))
    >>> encode_clicks(purchase, ["a", "b"], ["purchase"])
    '[{"position":1,"action":"purchase"}]'
    >>> graded = clicks._replace(clicks=Clicked([1, 0], rewards=[0.3, 1]))
    >>> encode_clicks(graded, ["a", "b"])
    '[0,{"position":1,"reward":0.3}]'
    """
    if feedback.kind == REWARD:
        remedy = "a list was shown; send the places that were clicked to clicks, from 0, such as [0], or []"
        raise InvalidValue("reward", feedback.reward, remedy)
    clicks = feedback.clicks
    if feedback.kind != CLICKS or clicks is None:
        return None
    if clicks.action != CLICK and clicks.action not in actions:
        names = ", ".join(dict.fromkeys([CLICK, *actions]))
        remedy = f"here there are {names}; a placement of duels names others by their worth"
        raise InvalidValue("action", clicks.action, remedy)
    positions = [
        checks.integer(f"clicks[{i}]", position, 0, len(items) - 1)
        for i, position in enumerate(clicks.positions or ())
    ]
    places = {item: place for place, item in enumerate(items)} if clicks.items else {}
    for i, item in enumerate(clicks.items or ()):
        if item not in places:
            raise InvalidValue(f"items[{i}]", item, f"the list that was shown is {list(items)}")
        positions.append(places[item])
    rewards = [1.0] * len(positions) if clicks.rewards is None else clicks.rewards
    if len(rewards) != len(positions):
        raise InvalidValue("rewards", rewards, f"give one for each click: {len(positions)}")
    # Sorted, so that the largest reward of a position is the last.
    entries: list[Any] = [
        position if reward == 1.0 else {"position": position, "reward": reward}
        for position, reward in dict(sorted(zip(positions, rewards, strict=True))).items()
        if reward > 0.0
    ]
    # Only duels have other actions, and they refuse rewards: the entries are positions.
    if clicks.action != CLICK:
        entries = [{"position": position, "action": clicks.action} for position in entries]
    return encode_json(entries)


def parse_action(entry: int | Mapping[str, Any]) -> tuple[int, str]:
    """Return position and action of one element of the JSON that :func:`encode_clicks` returns.

    Examples
    --------
    >>> parse_action(3), parse_action({"position": 1, "action": "purchase"})
    ((3, 'click'), (1, 'purchase'))
    """
    return (entry, CLICK) if isinstance(entry, int) else (entry["position"], entry.get("action", CLICK))


def select_clicks(entries: Sequence[int | Mapping[str, Any]]) -> dict[int, float]:
    """Return the reward of each clicked position in decoded feedback, without those of other actions.

    Examples
    --------
    >>> select_clicks([0, {"position": 2, "reward": 0.3}, {"position": 1, "action": "purchase"}])
    {0: 1.0, 2: 0.3}
    """
    return {
        parse_action(entry)[0]: get_click_reward(entry)
        for entry in entries
        if parse_action(entry)[1] == CLICK
    }


def get_click_reward(entry: int | Mapping[str, Any]) -> float:
    """Return the reward of one element that :func:`encode_clicks` encoded, 1 unless it has one."""
    return 1.0 if isinstance(entry, int) else entry.get("reward", 1.0)


def as_json(values: Sequence[Arm] | Sequence[float] | None) -> str | None:
    """Return a sequence as JSON for the log; None for None."""
    return None if values is None else encode_json(values)


# ---- Requests to the engine; many form a group


class FeedbackRequest(NamedTuple):
    """A request to record feedback on one decision.

    Attributes
    ----------
    decision : str
        The decision's id.
    kind : str
        ``reward``, ``clicks``, ``examined`` or ``activate``.
    reward : float or None
        In [0, 1] if the kind is ``reward``.
    id : str or None
        The feedback's id; the same id again is a repetition.
    clicks : Clicked or None
        If the kind is ``clicks``.
    metrics : str or None
        JSON of metrics by name.
    """

    decision: str
    kind: str = REWARD
    reward: float | None = None
    id: str | None = None
    clicks: Clicked | None = None
    metrics: str | None = None


def encode_metrics(metrics: Mapping[str, float] | None) -> str | None:
    """Return metrics as JSON for the log, sorted by name; None without metrics.

    Examples
    --------
    >>> encode_metrics({"seconds": 12.5, "revenue": 3.0})
    '{"revenue":3.0,"seconds":12.5}'
    """
    return msgspec.json.encode(metrics, order="sorted").decode() if metrics else None


def make_reward_requests(
    decisions: Sequence[str], values: Sequence[float], ids: Sequence[str | None] | None = None
) -> Block[FeedbackRequest]:
    """Return feedback with a reward for each decision, as a block for :meth:`Engine.record_many`.

    Parameters
    ----------
    decisions : sequence of str
        Ids of the decisions.
    values : sequence of float
        Rewards.
    ids : sequence of str or None, optional
        Ids of the feedback.

    Examples
    --------
    >>> make_reward_requests(["a", "b"], [1.0, 0.0])[1].reward
    0.0
    """
    count = len(decisions)
    names = [None] * count if ids is None else list(ids)
    nothing: list[Any] = [None] * count
    columns = list(decisions), [REWARD] * count, list(values), names
    return Block(FeedbackRequest, [*columns, nothing, nothing])


class Decide(NamedTuple):
    """Request to decide for all impressions, or for none if one cannot be decided."""

    placement: str
    impressions: Block[Impression]


class CheckDecisions(NamedTuple):
    """Request to check that all impressions can be decided, without deciding."""

    placement: str
    impressions: Block[Impression]


class Record(NamedTuple):
    """Request to record feedback."""

    placement: str
    feedback: Block[FeedbackRequest]


class AppendChange(NamedTuple):
    """Request to log a change event with this value, made by ``who``."""

    placement: str
    value: str
    kind: str = MODE
    who: str | None = None


class ChangePlacement(NamedTuple):
    """Request to change a placement, of a type in :mod:`tacit.service.placements.placement`."""

    placement: str
    request: Any
    who: str | None = None


class Export(NamedTuple):
    """Request to export learned sums for other shards: new ones, or all."""

    placement: str
    everything: bool


Request = Decide | CheckDecisions | Record | AppendChange | ChangePlacement | Export


def check_feedback(feedback: Sequence[FeedbackRequest], placement: Any) -> Block[FeedbackRequest]:
    """Check the rewards, metrics and ids of feedback, and return it as a block.

    If the placement learns a metric, each reward is set to the value of the metric's amount, or to None if
    the log holds the amount alone. A doubtful amount gives a warning, once for each metric.

    Parameters
    ----------
    feedback : sequence of FeedbackRequest
    placement : Placement
        Its configuration is read. It remembers the metrics of which it has warned.

    Raises
    ------
    InvalidValue
        If a value is invalid.
    """
    config = placement.config
    lowest, learned = config.rule.lowest, config.learned
    block: Block[FeedbackRequest] = Block.from_rows(FeedbackRequest, feedback)
    for content in filter(None, block.column("metrics")):
        _check_metrics(content, placement)
    if learned is not None:
        metric = config.metrics[learned]
        pieces = [_set_metric_reward(piece, learned, metric) for piece in block]
        block = Block.from_rows(FeedbackRequest, pieces)
    for id in block.column("id"):
        if id is not None:
            check_id("feedback_id", id)
    kinds, rewards = block.column("kind"), block.column("reward")
    # If the amounts of a decision are added up first, the log holds amounts and no rewards.
    if learned is not None and config.metrics[learned].attribution:
        return block
    # Most often all are rewards in range, which NumPy compares at once.
    if set(kinds) == {REWARD} and set(map(type, rewards)) == {float}:
        reward_array = np.array(rewards)
        if ((reward_array >= lowest) & (reward_array <= 1.0)).all():
            return block
    checked = [
        _check_reward(reward, lowest) if kind == REWARD else reward
        for kind, reward in zip(kinds, rewards, strict=True)
    ]
    return block.with_column("reward", checked)


def _set_metric_reward(feedback: FeedbackRequest, name: str, metric: Any) -> FeedbackRequest:
    """Return feedback with the value of its amount of metric ``name`` as its reward; other kinds unchanged.

    The reward is None if the amounts of a decision are to be added first. Raises InvalidValue if the amount
    is missing, or the feedback has another reward.
    """
    if feedback.kind != REWARD:
        return feedback
    amounts = msgspec.json.decode(feedback.metrics) if feedback.metrics else {}
    if name not in amounts:
        example = f'metrics = {{"{name}": {feedback.reward or 0:g}}}'
        raise InvalidValue(
            f"metrics.{name}", None, f"send its amount, or 0, as {example}: it is what is learned"
        )
    reward = metric.to_reward(amounts[name])
    # A shard that forwards feedback may have set the reward.
    if feedback.reward not in (None, reward):
        remedy = f"leave it out: what is learned is the worth of metrics.{name}"
        raise InvalidValue("reward", feedback.reward, remedy)
    return feedback._replace(reward=None if metric.attribution else reward)


def _check_metrics(content: str, placement: Any) -> None:
    """Check the metrics of feedback: raise InvalidValue if one is not configured, or out of range.

    A doubtful amount gives an AssumptionWarning, once for each metric of a placement.
    """
    metrics = placement.config.metrics
    for name, amount in msgspec.json.decode(content).items():
        if name not in metrics:
            watched = f"the placement watches {', '.join(metrics) or 'none'}"
            remedy = f"{watched}; leave it out, or configure metrics.{name}"
            raise InvalidValue(f"metrics.{name}", amount, remedy)
        least = metrics[name].least
        # JSON has no infinity.
        if isinstance(amount, int | float) and amount < least:
            remedy = f"give a number from {least:g} on; what is given back is a metric of its own"
            raise InvalidValue(f"metrics.{name}", amount, f'{remedy}, with better = "less"')
        checks.number(f"metrics.{name}", amount, least, metrics[name].most)
        if name not in placement.warned and (doubt := metrics[name].find_warning(name, amount)):
            placement.warned.add(name)
            warnings.warn(f"{placement.name}: {doubt}", AssumptionWarning, stacklevel=2)


LEARNED = '; to learn a metric in its place, configure reward = "METRIC"'


def _check_reward(reward: float | None, lowest: float) -> float:
    """Return a reward as a float; raise InvalidValue if it is missing or not in [``lowest``, 1]."""
    if type(reward) is float and lowest <= reward <= 1.0:
        return reward
    if reward is None:
        remedy = f"give a number from {lowest:g} to 1 (a click or a sale is 1), also with metrics"
        raise InvalidValue("reward", None, remedy + LEARNED)
    return checks.number("reward", reward, lowest, 1.0)  # type: ignore[arg-type]
