"""Whether a placement's configuration fits what the store has of it."""

from __future__ import annotations

import json

import msgspec

from tacit.errors import ConfigError
from tacit.policies import Policy
from tacit.policies.spec import goes_on, policy_from_stored
from tacit.service.config.schema import PlacementConfig
from tacit.service.stores.base import StoredPlacement


def as_stored(name: str, config: PlacementConfig, stored: StoredPlacement) -> PlacementConfig:
    """Return a placement's configuration with the policy and the seed that the store has of it.

    The policy may differ in defaults that an earlier version had; the recommended one gives way to
    the one that the store has.

    Raises
    ------
    ConfigError
        If the placement has learned with another policy, other arms or another seed.
    """
    before = policy_from_stored(json.loads(stored.spec))
    if not (goes_on(config.policy, before) or (config.recommended and _for_same(config, before))):
        raise ConfigError(
            f"placements.{name}.policy: the store holds what {before} learned, which is not for "
            f"{config.policy}; set it back, or give the placement a new name"
        )
    if config.seed not in (None, stored.seed):
        raise ConfigError(
            f"placements.{name}.seed: the store holds draws of seed {stored.seed}, not "
            f"{config.seed}; leave it out, or give the placement a new name"
        )
    return msgspec.structs.replace(config, policy=before, seed=stored.seed)


def _for_same(config: PlacementConfig, before: Policy) -> bool:
    """Whether a policy decides over the same arms and features as the recommended one."""
    told = config.policy
    return (getattr(told, "arms", None), told.feature_dims, told.action_width) == (
        getattr(before, "arms", None), before.feature_dims, before.action_width
    )  # fmt: skip
