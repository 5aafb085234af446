"""What is asked of the engine; many requests make a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tacit import checks
from tacit.service.blocks import Block
from tacit.service.impressions import Clicks, Impression, checked_id
from tacit.service.rows import MODE, REWARD


class Told(NamedTuple):
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
    """

    decision: str
    kind: str = REWARD
    reward: float | None = None
    id: str | None = None
    clicks: Clicks | None = None


def rewards(
    decisions: Sequence[str], values: Sequence[float], ids: Sequence[str | None] | None = None
) -> Block[Told]:
    """Return a reward for each of many decisions, for :meth:`Engine.tell_many`.

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
    clicks: list[Any] = [None] * count
    return Block(Told, [list(decisions), [REWARD] * count, list(values), names, clicks])


class Ask(NamedTuple):
    """To decide for impressions: for all, or for none."""

    placement: str
    impressions: Sequence[Impression]


class Tell(NamedTuple):
    """To take feedback in."""

    placement: str
    told: Sequence[Told]


class Switch(NamedTuple):
    """To change a placement's mode, or what else a mark says."""

    placement: str
    value: str
    kind: str = MODE


class Share(NamedTuple):
    """To tell what was learned, for other shards."""

    placement: str
    everything: bool


Request = Ask | Tell | Switch | Share


def checked_told(told: Sequence[Told], lowest: float) -> Sequence[Told]:
    """Return feedback, its rewards and its ids checked; a block as a block.

    Parameters
    ----------
    told : sequence of Told
    lowest : float
        The least reward.

    Raises
    ------
    InvalidValue
        If one does not fit.
    """
    if type(told) is not Block:
        return [_checked(one, lowest) for one in told]
    for id in told.column("id"):
        if id is not None:
            checked_id("feedback_id", id)
    kinds, rewards = told.column("kind"), told.column("reward")
    if set(kinds) == {REWARD} and set(map(type, rewards)) == {float}:
        values = np.array(rewards)
        if ((values >= lowest) & (values <= 1.0)).all():
            return told
    checked = [
        _checked_reward(reward, lowest) if kind == REWARD else reward
        for kind, reward in zip(kinds, rewards, strict=True)
    ]
    return told.having("reward", checked)


def _checked(told: Told, lowest: float) -> Told:
    if told.id is not None:
        checked_id("feedback_id", told.id)
    if told.kind != REWARD:
        return told
    reward = _checked_reward(told.reward, lowest)
    return told if reward is told.reward else told._replace(reward=reward)


def _checked_reward(reward: float | None, lowest: float) -> float:
    if type(reward) is float and lowest <= reward <= 1.0:
        return reward
    return checks.number("reward", reward, lowest, 1.0)  # type: ignore[arg-type]
