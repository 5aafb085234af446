"""Tables of placements in the configuration file: the keys that all kinds share."""

# 1. ``PlacementTable``: keys of the table, and their conversion to a ``PlacementConfig``.
# 2. ``ContextTable``: with keys for contexts.

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from tacit.core.reward_range import UNIT_RANGE
from tacit.errors import InvalidValue
from tacit.policies import Policy, policy_from_spec
from tacit.policies.base import check_folds
from tacit.policies.context import normalize_schema
from tacit.policies.spec import AUTO, is_auto
from tacit.service.config.holdout import GuardrailConfig, HoldoutConfig, MetricConfig
from tacit.service.config.schema import (
    ARMS,
    Count,
    Days,
    Lifetime,
    PlacementConfig,
    Rule,
    Seconds,
    SignalConfig,
    make_sticky,
)

MAX_KEY_BYTES = 2**20
"""Limit on the bytes of a key for a policy with a model for each key."""


COPIED_KEYS = (
    "seed", "snapshot_every", "mode", "durability", "propensities", "kind", "spread", "holdout", "metrics",
    "learned", "rebuild", "start", "most_keys", "guardrail",
)  # fmt: skip
"""Keys of a placement's table that its configuration copies unchanged."""


class PlacementTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The keys of a placement's table.

    Attributes
    ----------
    kind : str
        Kind of decisions: one of the ``arms``, one of arms with ``features``, rankers' ``duels``, or
        ``slates``, lists of arms.
    policy : str or table
        As on the command line, or a table with the key ``name``. ``auto`` is the recommended policy; a
        placement keeps the one that an earlier version recommended.
    seed : int
        Seed of the random draws; by default drawn once and kept in the store.
    snapshot_every : int
        Events after which a snapshot is written, which bounds the replay after a crash. If the last
        snapshot held more keys and open windows than this, that number of events.
    attribution_window : float
        Seconds in which feedback counts.
    seen : str
        Which decisions without a reward get the default: all (``decided``), or only ``examined`` or clicked
        ones. For policies with examination features also ``learned``: all get it, and the policy learns
        from examinations how likely each position is seen.
    activation_window : float
        Seconds in which a deferred decision must be activated; otherwise it never counts.
    mode : str
        Mode of a new placement; later the log holds the mode. ``frozen`` learns nothing, ``shadow`` lets a
        secondary policy compute counterfactual decisions.
    shadow : str or table
        The secondary policy.
    durability : str
        ``committed`` answers once the decision is durable; ``buffered`` at once, and continues in memory
        while the store fails.
    propensities : bool
        Whether decisions have a propensity, which may cost time.
    signals : list of str
        Signals that the placement computes for its contexts: ``volume``, ``abandonment``,
        ``reformulation``, ``new-arms``, ``since-shift``.
    signals_fast : float
        Time constant of the signals' fast averages, in seconds.
    signals_slow : float
        Time constant of the slow averages with which they are compared, in seconds.
    client_signals : int
        Number of signals that the client adds.
    retention : float
        Days after which rows are dropped, once a snapshot covers them; by default the store's;
        ``inf`` for never.
    most_keys : int
        Maximum number of keys, in each shard; decisions for more are refused. By default the number that
        1 GiB holds if each key has a model of its own (``per_key``), otherwise unlimited.
    spread : bool
        In shards: whether impressions of a key go to all shards, whose learning is added.
    holdout : table
        A share of the traffic for a control, by which the lift is measured.
    metrics : table of tables
        Metrics that feedback carries besides the reward, by name, for the holdout or the guardrail.
    guardrail : table
        The metric that must not degrade, a margin, and the action for a degradation.
    sticky : str
        ``user``: a user, by key, is shown the same arm again, with the propensity of its draw.
        The policy learns one decision of each draw; the lift counts all, by user.
    sticky_for : str
        How long a user keeps a drawn arm, such as ``30 days``, ``12 hours`` or ``90 minutes``; by default
        until the arm goes.
    rebuild : bool
        Whether a new policy learns the log: the log is folded into it while the previous policy decides,
        once for each policy configured in this way.
    start : str
        File of a learner, as ``tacit fit`` writes it, from which a new placement starts, with the same
        policy and arms. Read only before the first decision. In a configuration file, relative to that
        file.
    """

    kind: str = ARMS
    policy: str | dict[str, Any] = AUTO
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    snapshot_every: Count = 50_000
    attribution_window: Seconds = 30.0
    seen: Literal["decided", "examined", "learned"] = "decided"
    activation_window: Seconds = 3600.0
    mode: Literal["online", "frozen", "shadow"] = "online"
    shadow: str | dict[str, Any] | None = None
    durability: Literal["committed", "buffered"] = "committed"
    propensities: bool = True
    retention: Days | None = None
    signals: list[str] = []
    signals_fast: Seconds = 600.0
    signals_slow: Seconds = 86_400.0
    client_signals: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    most_keys: Count | None = None
    spread: bool = False
    holdout: HoldoutConfig | None = None
    metrics: dict[str, MetricConfig] = {}
    guardrail: GuardrailConfig | None = None
    sticky: Literal["user"] | None = None
    sticky_for: Lifetime | None = None
    rebuild: bool = False
    start: str | None = None

    @property
    def choices(self) -> Any:
        """Number or names of the policy's arms; None if arms come with requests. Each kind defines it."""
        raise NotImplementedError

    @property
    def signals_dim(self) -> int:
        """Number of signals in a context: the placement's and the client's."""
        return len(self.signals) + self.client_signals

    @property
    def learned(self) -> str | None:
        """Name of the metric whose amounts are learned as rewards; None if rewards are sent by themselves."""
        return None

    @property
    def setting(self) -> dict[str, Any]:
        """Settings besides the arms on which the recommended policy depends; by default none."""
        return {}

    @property
    def attribution(self) -> dict[str, Any]:
        """Fields of :class:`Rule` besides ``window``, ``activation`` and ``seen``; each kind defines them."""
        raise NotImplementedError

    @property
    def options(self) -> Any:
        """Options that only this kind of placement has; None without any."""
        return None

    def fit_policy(self, policy: Policy) -> Policy:
        """Check that a policy fits this kind, and return it in the form that the kind needs; here unchanged.

        Raises
        ------
        InvalidValue
            If the policy does not fit the kind, or its learning cannot be restored from a log.
        """
        check_folds(policy)
        arms = tuple(self.choices) if isinstance(self.choices, list) else self.choices
        if arms is not None and policy.arms is None:
            remedy = f"leave it out: {policy.label} knows arms by their features, which come with requests"
            raise InvalidValue("arms", self.choices, remedy)
        if arms not in (None, policy.arms):
            remedy = f"leave its arms out: those of the placement are {arms}"
            raise InvalidValue("policy", self.policy, remedy)
        if policy.reward_range != UNIT_RANGE:
            remedy = "leave reward_range out: the range of a metric says it, with reward = the metric's name"
            raise InvalidValue("policy", policy.label, remedy)
        if getattr(policy, "per_key", False) and policy.key_bytes > MAX_KEY_BYTES:
            remedy = (
                f"each key would take {policy.key_bytes:,} bytes, {MAX_KEY_BYTES:,} are allowed: let keys "
                "share what is learned (per_key = false), or give fewer arms or numbers"
            )
            raise InvalidValue("policy", policy.label, remedy)
        return policy

    def make_parts(self) -> tuple[Policy, Policy | None, Any]:
        """Make policy, secondary policy and the kind's options from the table, and return them.

        The secondary policy is the shadow or the policy of the holdout's control; None without either.

        Raises
        ------
        InvalidValue, UnknownName
            If a policy is invalid.
        """
        control = self.holdout and self.holdout.policy
        if control is not None and self.shadow is not None:
            remedy = "leave it out: the policy of the holdout's control is the second one"
            raise InvalidValue("shadow", self.shadow, remedy)
        policies: list[Policy | None] = [None, None]
        for i, spec in enumerate((self.policy, control or self.shadow)):
            if spec is not None:
                policies[i] = self.fit_policy(policy_from_spec(spec, self.choices, setting=self.setting))
        policy, secondary = policies
        assert policy is not None
        return policy, secondary, self.options

    def configuration(
        self, policy: Policy, secondary: Policy | None, options: Any, retention: float | None
    ) -> PlacementConfig:
        """Return the complete configuration of the placement.

        Parameters
        ----------
        policy, secondary, options
            As :meth:`make_parts` returns them.
        retention : float or None
            Days after which rows are dropped, if the table has no retention.

        Raises
        ------
        ConfigError, InvalidValue
            If the parts do not fit each other.
        """
        return PlacementConfig(
            policy,
            rule=self._rule,
            shadow=secondary,
            options=options,
            retention=retention if self.retention is None else self.retention,
            signals=self._signals,
            sticky=make_sticky(self.sticky, self.sticky_for),
            recommended=is_auto(self.policy),
            **{name: getattr(self, name) for name in COPIED_KEYS},
        )

    @property
    def _rule(self) -> Rule:
        """The rule of attribution, with windows in microseconds."""
        return Rule(
            window=round(1_000_000 * self.attribution_window),
            seen=self.seen,
            activation=round(1_000_000 * self.activation_window),
            **self.attribution,
        )

    @property
    def _signals(self) -> SignalConfig | None:
        """Configuration of the signals; None without any."""
        if not self.signals and not self.client_signals:
            return None
        return SignalConfig(tuple(self.signals), self.signals_fast, self.signals_slow, self.client_signals)


class ContextTable(PlacementTable, forbid_unknown_fields=True, kw_only=True):
    """The keys of a placement's table whose policy may read contexts.

    Attributes
    ----------
    context : table
        Type of each field of a context: ``number``, ``boolean``, ``category``, or a list of its values.
        Requests then give contexts by field name.
    context_dim : int
        Instead, the length of a context, if requests give numbers.
    """

    context: dict[str, str | list[str]] | None = None
    context_dim: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0

    def make_parts(self) -> tuple[Policy, Policy | None, Any]:
        """Check signals and contexts; make policy, secondary policy (or None) and options.

        Raises
        ------
        InvalidValue, UnknownName
            If a policy is invalid, signals are combined with a context, or no policy reads the context.
        """
        if self.signals_dim and (self.context or self.context_dim not in (0, self.signals_dim)):
            field = "signals" if self.signals else "client_signals"
            remedy = (
                'leave it out: beside a context clients send signals in it, as fields that hold a "signal"'
            )
            raise InvalidValue(field, getattr(self, field), remedy)
        policy, secondary, options = super().make_parts()
        policies = [policy] if secondary is None else [policy, secondary]
        remedy = f"leave it out, or take a policy that reads it, such as auto; {policy.label} does not"
        if self.context and not any(
            candidate.schema == normalize_schema("context", self.context) for candidate in policies
        ):
            raise InvalidValue("context", self.context, remedy)
        if self.context_dim and not any(candidate.context_dim == self.context_dim for candidate in policies):
            raise InvalidValue("context_dim", self.context_dim, remedy)
        return policy, secondary, options
