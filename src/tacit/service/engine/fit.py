"""Whether a placement's configuration fits what the store has of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from tacit.errors import ConfigError, InvalidValue
from tacit.policies import Policy
from tacit.policies.spec import goes_on, policy_from_stored
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.store import StoredPlacement


def as_stored(
    name: str, config: PlacementConfig, stored: StoredPlacement, rebuilt: Sequence[dict[str, Any]] = ()
) -> PlacementConfig:
    """Return a placement's configuration with the policy and the seed that the store has of it.

    The policy may differ in defaults that an earlier version had; the recommended one gives way to
    the one that the store has. Where arms come and go, both policies get the arms that the
    placement began with; which arms are configured is compared apart. Where the log was folded into
    other policies since, the last one holds, whichever of them is configured.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    stored : StoredPlacement
    rebuilt : sequence of dict
        The policies, as the log has them.

    Raises
    ------
    ConfigError
        If the placement has learned with another policy, other arms or another seed.
    """
    before = policy_from_stored(json.loads(stored.spec))
    if config.served_as.living:
        config = _as_begun(config, before)
    known = [before, *map(policy_from_stored, rebuilt)]
    same = any(goes_on(config.policy, earlier) for earlier in known)
    if not (same or ((config.recommended or config.rebuild) and _for_same(config, before))):
        raise ConfigError(
            f"placements.{name}.policy: the store holds what {before} learned, which is not for "
            f"{config.policy}; set it back, rebuild it with rebuild = true, or give the "
            "placement a new name"
        )
    if config.seed not in (None, stored.seed):
        raise ConfigError(
            f"placements.{name}.seed: the store holds draws of seed {stored.seed}, not "
            f"{config.seed}; leave it out, or give the placement a new name"
        )
    return msgspec.structs.replace(config, policy=known[-1], seed=stored.seed)


def _as_begun(config: PlacementConfig, before: Policy) -> PlacementConfig:
    """Return a configuration over the arms that its placement began with."""
    if type(config.policy.arms) is not type(before.arms):
        return config
    with contextlib.suppress(InvalidValue):
        return msgspec.structs.replace(
            config,
            policy=config.policy.with_arms(before.arms),
            shadow=config.shadow and config.shadow.with_arms(before.arms),
            arms=config.configured_arms,
        )
    return config


def _for_same(config: PlacementConfig, before: Policy) -> bool:
    """Whether a policy decides over the same arms and features as the recommended one, and promises the same.

    A policy to which the log is folded anew may promise other shares.
    """
    one, other = (
        (getattr(policy, "arms", None), policy.feature_dims, policy.action_width)
        + (() if config.rebuild else (getattr(policy, "at_least", ()),))
        for policy in (config.policy, before)
    )
    return one == other
