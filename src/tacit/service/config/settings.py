"""A placement's configuration as plain settings, so that the log can say what was changed."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tacit.policies import Policy, policy_to_spec
from tacit.policies.spec import AUTO
from tacit.service.config.schema import PlacementConfig


def settings_of(config: PlacementConfig) -> str:
    """Return how a placement is configured, as JSON.

    Examples
    --------
    >>> import tacit
    >>> json.loads(settings_of(PlacementConfig(tacit.Thompson(2))))["durability"]
    'committed'
    """
    fields = {name: getattr(config, name) for name in config.__struct_fields__}
    # Arms that the configuration changes are told apart.
    del fields["arms"]
    # What a placement started from is told by a mark of its own.
    del fields["start"]
    if fields.pop("recommended"):
        fields["policy"] = AUTO
    return json.dumps({name: _plain(value) for name, value in fields.items()}, sort_keys=True)


POLICY_ARMS = "arms"
"""What a policy's own field is called; arms have marks of their own."""


def _plain(value: Any) -> Any:
    if isinstance(value, Policy):
        return _without_arms(policy_to_spec(value))
    return msgspec.to_builtins(value, enc_hook=repr)


def _without_arms(spec: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_arms(value) if isinstance(value, dict) else value
        for name, value in spec.items()
        if name != POLICY_ARMS
    }


def differences(before: str, now: str) -> dict[str, Any]:
    """Return what :func:`settings_of` says otherwise than before, by the names of the settings.

    Examples
    --------
    >>> differences('{"mode": "online", "seed": 7}', '{"mode": "frozen", "seed": 7}')
    {'mode': {'before': 'online', 'after': 'frozen'}}
    """
    old, new = json.loads(before), json.loads(now)
    return {
        name: {"before": old.get(name), "after": new.get(name)}
        for name in sorted(old | new)
        if old.get(name) != new.get(name)
    }
