"""Whether a placement's configuration fits what the store has of it."""

from __future__ import annotations

import json

import msgspec

from tacit.errors import ConfigError
from tacit.policies import policy_from_spec
from tacit.policies.spec import goes_on
from tacit.service.config.schema import PlacementConfig
from tacit.service.stores.base import StoredPlacement


def as_stored(name: str, config: PlacementConfig, stored: StoredPlacement) -> PlacementConfig:
    """Return a placement's configuration with the policy and the seed that the store has of it.

    The policy may differ in defaults that an earlier version had.

    Raises
    ------
    ConfigError
        If the placement has learned with another policy, other arms or another seed.
    """
    before = policy_from_spec(json.loads(stored.spec))
    if not goes_on(config.policy, before):
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
