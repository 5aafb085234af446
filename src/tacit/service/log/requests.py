"""Requests to the engine; many make a group."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
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
    """To change a placement's mode, or what else a mark says."""

    placement: str
    value: str
    kind: str = MODE


class ChangeArms(NamedTuple):
    """To let arms of a placement come, go and come back: all of them, or none.

    Attributes
    ----------
    placement : str
    add : int or list of str
        How many new arms, where they are numbered; or their names.
    retire, restore : sequence of arms
    """

    placement: str
    add: int | Sequence[str] = ()
    retire: Sequence[Arm] = ()
    restore: Sequence[Arm] = ()


class Export(NamedTuple):
    """To return what was learned, for other shards."""

    placement: str
    everything: bool


Request = Decide | Record | Switch | ChangeArms | Export


def checked_feedback(
    feedback: Sequence[Feedback], lowest: float, metrics: Collection[str] = ()
) -> Sequence[Feedback]:
    """Return feedback, its rewards, metrics and ids checked; a block as a block.

    Parameters
    ----------
    feedback : sequence of Feedback
    lowest : float
        The least reward.
    metrics : collection of str
        The names of those that may come.

    Raises
    ------
    InvalidValue
        If one does not fit.
    """
    for content in blocks.values(feedback, "metrics"):
        if content is not None:
            _check_metrics(content, metrics)
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


def _check_metrics(content: str, known: Collection[str]) -> None:
    for name, amount in msgspec.json.decode(content).items():
        if name not in known:
            remedy = f"the placement watches {', '.join(known) or 'none'}"
            raise InvalidValue(f"metrics.{name}", amount, remedy)
        # JSON has no infinity.
        checks.number(f"metrics.{name}", amount, 0.0, math.inf)


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
    return checks.number("reward", reward, lowest, 1.0)  # type: ignore[arg-type]
