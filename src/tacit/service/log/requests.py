"""Requests to the engine; many make a group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.learning.decisions import Arm
from tacit.service.log import blocks
from tacit.service.log.blocks import Block
from tacit.service.log.impressions import Clicks, Impression, checked_id
from tacit.service.log.rows import MODE, REWARD


class Feedback(NamedTuple):
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
    clicks : Clicks or None
        Where the kind is ``clicks``.
    metrics : str or None
        JSON of the metrics that come with it, by name.
    """

    decision: str
    kind: str = REWARD
    reward: float | None = None
    id: str | None = None
    clicks: Clicks | None = None
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
) -> Block[Feedback]:
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
    told = list(decisions), [REWARD] * count, list(values), names
    return Block(Feedback, [*told, nothing, nothing])


class Decide(NamedTuple):
    """To decide for impressions: for all, or for none."""

    placement: str
    impressions: Sequence[Impression]


class Record(NamedTuple):
    """To record feedback."""

    placement: str
    feedback: Sequence[Feedback]


class Switch(NamedTuple):
    """To change a placement's mode, or what else a mark says; ``who`` does."""

    placement: str
    value: str
    kind: str = MODE
    who: str | None = None


class ChangeArms(NamedTuple):
    """To let arms of a placement come, go and come back: all of them, or none.

    Attributes
    ----------
    placement : str
    add : int or list of str
        How many new arms, where they are numbered; or their names.
    retire, restore : sequence of arms
    who : str or None
        Who does it, as the log keeps it.
    configured : int, sequence of str, or None
        The arms that the configuration names, where it is the configuration that changes them.
    """

    placement: str
    add: int | Sequence[str] = ()
    retire: Sequence[Arm] = ()
    restore: Sequence[Arm] = ()
    who: str | None = None
    configured: int | Sequence[str] | None = None


class PinArms(NamedTuple):
    """To let every decision of a placement show some arms until a time.

    Attributes
    ----------
    placement : str
    arms : sequence of arms
        One; of a list, those from the top. None to let the policy decide again.
    until : int
        Microseconds since 1970.
    who : str or None
    """

    placement: str
    arms: Sequence[Arm] = ()
    until: int = 0
    who: str | None = None


class ChangeHoldout(NamedTuple):
    """To give a placement another holdout.

    Attributes
    ----------
    placement : str
    holdout : HoldoutConfig or None
        None for none.
    who : str or None
    """

    placement: str
    holdout: Any
    who: str | None = None


class Export(NamedTuple):
    """To return what was learned, for other shards."""

    placement: str
    everything: bool


Request = Decide | Record | Switch | ChangeArms | PinArms | ChangeHoldout | Export


def checked_feedback(
    feedback: Sequence[Feedback],
    lowest: float,
    metrics: Mapping[str, Any] = MappingProxyType({}),
    learned: str | None = None,
) -> Sequence[Feedback]:
    """Return feedback, its rewards, metrics and ids checked; a block as a block.

    Parameters
    ----------
    feedback : sequence of Feedback
    lowest : float
        The least reward.
    metrics : mapping from str to MetricConfig
        Those that may come.
    learned : str, optional
        The one whose worth is the reward.

    Raises
    ------
    InvalidValue
        If one does not fit.
    """
    for content in blocks.values(feedback, "metrics"):
        if content is not None:
            _check_metrics(content, metrics)
    if learned is not None:
        feedback = [_worth(one, learned, metrics[learned]) for one in feedback]
    if type(feedback) is not Block:
        return [_checked(one, lowest) for one in feedback]
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


def _worth(feedback: Feedback, name: str, metric: Any) -> Feedback:
    """Return feedback with the worth of a metric's amount as its reward."""
    if feedback.kind != REWARD:
        return feedback
    amounts = msgspec.json.decode(feedback.metrics) if feedback.metrics else {}
    if name not in amounts:
        raise InvalidValue(f"metrics.{name}", None, "give its amount: it is what is learned")
    worth = metric.worth(amounts[name])
    # A shard is told what its ingress has worked out.
    if feedback.reward not in (None, worth):
        remedy = f"leave it out: what is learned is the worth of metrics.{name}"
        raise InvalidValue("reward", feedback.reward, remedy)
    return feedback._replace(reward=worth)


def _check_metrics(content: str, known: Mapping[str, Any]) -> None:
    for name, amount in msgspec.json.decode(content).items():
        if name not in known:
            remedy = f"the placement watches {', '.join(known) or 'none'}"
            raise InvalidValue(f"metrics.{name}", amount, remedy)
        # JSON has no infinity.
        checks.number(f"metrics.{name}", amount, known[name].least, math.inf)


def _checked(feedback: Feedback, lowest: float) -> Feedback:
    if feedback.id is not None:
        checked_id("feedback_id", feedback.id)
    if feedback.kind != REWARD:
        return feedback
    reward = _checked_reward(feedback.reward, lowest)
    return feedback if reward is feedback.reward else feedback._replace(reward=reward)


def _checked_reward(reward: float | None, lowest: float) -> float:
    if type(reward) is float and lowest <= reward <= 1.0:
        return reward
    if reward is None:
        raise InvalidValue("reward", None, f"give a number from {lowest:g} to 1")
    return checks.number("reward", reward, lowest, 1.0)  # type: ignore[arg-type]
