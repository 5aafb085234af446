"""Rank requests as impressions: checked, and their features made vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from tacit.core.arrays import Floats
from tacit.errors import InvalidValue
from tacit.service.log.impressions import Impression, checked_id
from tacit.service.personalizer.hashing import Features, features_of, vectors
from tacit.service.personalizer.wire import (
    Blocks,
    MultiSlotRankRequest,
    RankableAction,
    RankRequest,
    SlotRequest,
)

KEY = "rank"
"""All events of a placement learn together: as one key."""
MOST_PAIRS = 500_000


class Asked(msgspec.Struct, omit_defaults=True):
    """A rank request as the log keeps it; of a multi-slot one, for one of its slots.

    Attributes
    ----------
    actions : list of (id, features)
    context : list of dict
        Features of the context and of the slot.
    slots : list of str
        Ids of all slots of the event; empty where there are none.
    slot : int
        Which of them this is.
    baseline : str or None
        The slot's baseline action; None for the first that is not excluded.
    """

    actions: list[tuple[str, Blocks]]
    context: Blocks
    slots: list[str] = []
    slot: int = 0
    baseline: str | None = None

    @classmethod
    def read(cls, text: str | None) -> Asked:
        """Return a request of the log."""
        return msgspec.json.decode(text or "", type=cls)


@dataclass(frozen=True)
class Offer:
    """What a request describes, as the placement uses it.

    Attributes
    ----------
    asked : Asked
    relevance : array of float64, shape (candidates, dim)
    baseline : str
    """

    asked: Asked = field(compare=False)
    relevance: Floats = field(compare=False)
    baseline: str


def impression_of(request: RankRequest, dim: int) -> Impression:
    """Return a rank request as an impression.

    Parameters
    ----------
    request : RankRequest
    dim : int
        Length of the vectors.

    Raises
    ------
    InvalidValue
        If something does not fit.
    """
    actions = _checked(request.actions)
    excluded = set(request.excluded_actions or ())
    candidates = [action for action in actions if action not in excluded]
    if not candidates:
        raise InvalidValue("excludedActions", request.excluded_actions, "leave at least one of the actions")
    asked = Asked(_described(request.actions), request.context_features or [])
    features = _features(asked.actions)
    context = features_of("contextFeatures", asked.context)
    _check_size([context], features)
    return _impression(asked, candidates, candidates[0], context, features, dim, request)


def impressions_of(request: MultiSlotRankRequest, dim: int, event: str) -> list[Impression]:
    """Return a rank request for many slots as an impression for each.

    An action stands in one slot only. A slot that excludes so many actions that the slots before
    it could leave none has its baseline action kept for it.

    Parameters
    ----------
    request : MultiSlotRankRequest
    dim : int
        Length of the vectors.
    event : str
        The event's id; its slots' decisions are numbered.

    Raises
    ------
    InvalidValue
        If something does not fit.
    """
    actions = _checked(request.actions)
    slots, candidates = request.slots, []
    _check_slots(slots, set(actions))
    for slot in slots:
        excluded = set(slot.excluded_actions or ())
        candidates.append([action for action in actions if action not in excluded])
    scarce = [
        slot.baseline_action if len(left) < len(slots) else None
        for slot, left in zip(slots, candidates, strict=True)
    ]
    described, names = _described(request.actions), [slot.id for slot in slots]
    features = _features(described)
    blocks = [[*(request.context_features or []), *(slot.features or [])] for slot in slots]
    contexts = [features_of(f"context of {slot.id!r}", c) for slot, c in zip(slots, blocks, strict=True)]
    _check_size(contexts, features)
    impressions = []
    for i, slot in enumerate(slots):
        kept, baseline = set(scarce[i + 1 :]), slot.baseline_action
        asked = Asked(described, blocks[i], names, i, baseline)
        left = [action for action in candidates[i] if action not in kept]
        told = _impression(asked, left, baseline, contexts[i], features, dim, request)
        impressions.append(told._replace(id=slot_id(event, i)))
    return impressions


def slot_id(event: str, slot: int) -> str:
    """Return the id of the decision for a slot, counted from 0."""
    return f"{event}#{slot}"


def vector_of(asked: Asked, action: str, dim: int) -> Floats:
    """Return the vector of one of the actions, of shape (1, dim)."""
    (features,) = (features for name, features in asked.actions if name == action)
    context = features_of("contextFeatures", asked.context)
    return vectors(context, [features_of("features", features)], dim)


def _impression(
    asked: Asked,
    candidates: Sequence[str],
    baseline: str,
    context: Features,
    features: Mapping[str, Features],
    dim: int,
    request: RankRequest | MultiSlotRankRequest,
) -> Impression:
    relevance = vectors(context, [features[name] for name in candidates], dim)
    return Impression(
        KEY,
        candidates,
        None,
        checked_id("eventId", request.event_id) if request.event_id else None,
        bool(request.defer_activation),
        msgspec.json.encode(asked).decode(),
        Offer(asked, relevance, baseline),
    )


def _described(actions: Sequence[RankableAction]) -> list[tuple[str, Blocks]]:
    return [(action.id, action.features or []) for action in actions]


def _features(actions: Sequence[tuple[str, Blocks]]) -> dict[str, Features]:
    return {name: features_of(f"features of {name!r}", blocks) for name, blocks in actions}


def _check_size(contexts: Sequence[Features], actions: Mapping[str, Features]) -> None:
    """Refuse a request whose pairs of features would keep others waiting."""
    of_actions = sum(len(hashes) for hashes, _ in actions.values())
    pairs = of_actions * sum(len(hashes) for hashes, _ in contexts)
    if pairs > MOST_PAIRS:
        raise InvalidValue(
            "features", pairs, f"give fewer: at most {MOST_PAIRS} pairs of one feature of the "
            "context and one of an action, all slots together",
        )  # fmt: skip


def _checked(actions: Sequence[RankableAction]) -> list[str]:
    names = [checked_id(f"actions[{i}].id", action.id) for i, action in enumerate(actions)]
    return _distinct("actions", names)


def _check_slots(slots: Sequence[SlotRequest], actions: set[str]) -> None:
    _distinct("slots", [checked_id(f"slots[{i}].id", slot.id) for i, slot in enumerate(slots)])
    _distinct("slots.baselineAction", [slot.baseline_action for slot in slots])
    for i, slot in enumerate(slots):
        if slot.baseline_action not in actions.difference(slot.excluded_actions or ()):
            raise InvalidValue(
                f"slots[{i}].baselineAction",
                slot.baseline_action,
                "name one of the actions that the slot does not exclude",
            )


def _distinct(field: str, names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise InvalidValue(field, names, "give each only once")
    return names
