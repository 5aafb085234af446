"""The table of a placement in the configuration: what the kinds have in common."""

# 1. ``PlacementTable``: keys of the table, then how they become a ``PlacementConfig``: rule, signals,
#    policies.
# 2. ``AskingTable``: the same where it is known who is asking.

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from tacit.errors import InvalidValue
from tacit.policies import Policy, policy_from_spec
from tacit.policies.context import declared
from tacit.policies.spec import AUTO, is_auto
from tacit.service.config.holdout import GuardrailConfig, HoldoutConfig, MetricConfig
from tacit.service.config.schema import ARMS, Count, Days, PlacementConfig, Rule, Seconds, SignalConfig

MOST_KEY_BYTES = 2**20
"""What a key may take of a policy that has a model for each."""


AS_THEY_ARE = (
    "seed", "snapshot_every", "mode", "durability", "propensities", "kind", "spread", "holdout", "metrics",
    "learned", "rebuild", "start", "most_keys", "guardrail",
)  # fmt: skip
"""What a placement's table says that its configuration takes over as it is."""


class PlacementTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What is decided, and how.

    Attributes
    ----------
    kind : str
        What it decides for: one of the ``arms``, one of arms known by their ``features``, which
        rankers' ``duels``, or which arms stand in ``slates``.
    policy : str or table
        As on the command line, or a table with the key ``name``. ``auto`` is the recommended one,
        and goes on with the one that an earlier version recommended.
    seed : int
        Where its random draws come from; by default drawn once, and kept in the store.
    snapshot_every : int
        Events after which a snapshot is written, so that recovery replays no more than these; if
        the last one held more keys and open windows than that, after as many events as it held.
    attribution_window : float
        Seconds in which feedback counts.
    seen : str
        Which decisions without a reward earn the default: all that were ``decided``, or only those
        that were ``examined`` or clicked. For policies with examination features also ``learned``: all
        earn it, and which were examined teaches how likely each is seen.
    activation_window : float
        Seconds in which a deferred decision must be activated; else it never counts.
    mode : str
        Mode of a new placement; later the log says. ``frozen`` learns nothing, ``shadow`` lets a
        second policy decide beside, unseen.
    shadow : str or table
        The second policy.
    durability : str
        ``committed`` answers once it is durable; ``buffered`` at once, and goes on from memory
        while the store fails.
    propensities : bool
        Whether decisions carry their propensity, which may cost time.
    signals : list of str
        What the placement computes for its contexts: ``volume``, ``abandonment``,
        ``reformulation``, ``new-arms``, ``since-shift``.
    signals_fast : float
        Time constant of the signals' fast averages, in seconds.
    signals_slow : float
        Time constant of the slow averages that they are held against, in seconds.
    client_signals : int
        How many numbers the client adds to the signals.
    retention : float
        Days after which rows are dropped, once a snapshot covers them; by default the store's,
        ``inf`` for never.
    most_keys : int
        Keys above which a decision for one more is refused; in shards of each shard. By default as many
        as 1 GiB holds where each key has a model of its own (``per_key``), otherwise any number.
    spread : bool
        In shards: whether impressions of a key go to all of them, and what they learn is added up.
    holdout : table
        A part of the traffic for a control, so that the lift is known.
    metrics : table of tables
        What feedback carries beside the reward, by name: watched over the holdout, or by the guardrail.
    guardrail : table
        Which metric must not be harmed, by which margin, and what is done where it is.
    rebuild : bool
        Whether another policy than before takes over what was logged: the log is folded into it
        while the one before decides, once for each policy that is configured so.
    start : str
        File of a learner, as ``tacit fit`` writes it, from which a new placement starts: of the
        same policy and the same arms. Read before the first decision, and never again. In a
        configuration file, relative to that file.
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
    rebuild: bool = False
    start: str | None = None

    @property
    def choices(self) -> Any:
        """The arms among which the policy chooses."""
        raise NotImplementedError

    @property
    def signals_dim(self) -> int:
        """How many signals there are."""
        return len(self.signals) + self.client_signals

    @property
    def learned(self) -> str | None:
        """The metric that is learned, in place of a reward of its own."""
        return None

    @property
    def setting(self) -> dict[str, Any]:
        """What the recommended policy depends on, besides the arms."""
        return {}

    @property
    def attribution(self) -> dict[str, Any]:
        """What the rule says besides the windows."""
        raise NotImplementedError

    @property
    def options(self) -> Any:
        """What only placements of this kind need to know."""
        return None

    def fitted(self, policy: Policy) -> Policy:
        """Return a policy as this kind has it.

        Raises
        ------
        InvalidValue
            If it is not fit for the kind, or no log folds to what it learns.
        """
        policy.check_folds()
        arms = tuple(self.choices) if isinstance(self.choices, list) else self.choices
        if arms is not None and policy.arms is None:
            remedy = f"leave it out: {policy.label} knows arms by their features, which come with requests"
            raise InvalidValue("arms", self.choices, remedy)
        if arms not in (None, policy.arms):
            raise InvalidValue(
                "policy", self.policy, f"leave its arms out: those of the placement are {arms}"
            )
        if getattr(policy, "per_key", False) and policy.key_bytes > MOST_KEY_BYTES:
            remedy = (
                f"each key would take {policy.key_bytes:,} bytes, {MOST_KEY_BYTES:,} are allowed: let keys "
                "share what is learned (per_key = false), or give fewer arms or numbers"
            )
            raise InvalidValue("policy", policy.label, remedy)
        return policy

    def parts(self) -> tuple[Policy, Policy | None, Any]:
        """Return the policy, the second policy and the options.

        Raises
        ------
        InvalidValue, UnknownName
            If one cannot be made.
        """
        control = self.holdout and self.holdout.policy
        if control is not None and self.shadow is not None:
            remedy = "leave it out: the policy of the holdout's control is the second one"
            raise InvalidValue("shadow", self.shadow, remedy)
        policies = [
            None if spec is None else self.fitted(policy_from_spec(spec, self.choices, setting=self.setting))
            for spec in (self.policy, control or self.shadow)
        ]
        policy, second = policies
        assert policy is not None
        return policy, second, self.options

    def configuration(
        self, policy: Policy, second: Policy | None, options: Any, retention: float | None
    ) -> PlacementConfig:
        """Return what the table says, complete.

        Parameters
        ----------
        policy, second, options
            As :meth:`parts` gives them.
        retention : float or None
            Days after which rows are dropped, where the table does not say it.

        Raises
        ------
        ConfigError, InvalidValue
            If the parts do not fit each other.
        """
        return PlacementConfig(
            policy,
            rule=self._rule,
            shadow=second,
            options=options,
            retention=retention if self.retention is None else self.retention,
            signals=self._signals,
            recommended=is_auto(self.policy),
            **{name: getattr(self, name) for name in AS_THEY_ARE},
        )

    @property
    def _rule(self) -> Rule:
        return Rule(
            window=round(1_000_000 * self.attribution_window),
            seen=self.seen,
            activation=round(1_000_000 * self.activation_window),
            **self.attribution,
        )

    @property
    def _signals(self) -> SignalConfig | None:
        if not self.signals and not self.client_signals:
            return None
        names = tuple(self.signals)
        return SignalConfig(names, self.signals_fast, self.signals_slow, self.client_signals)


class AskingTable(PlacementTable, forbid_unknown_fields=True, kw_only=True):
    """What is decided for who is asking.

    Attributes
    ----------
    context : table
        Who is asking: what each field of a context holds: ``number``, ``boolean``, ``category``, or a list
        of its values. Requests then say it by name, and the best is shown for each.
    context_dim : int
        In its place, how many numbers a context has, where requests give numbers.
    """

    context: dict[str, str | list[str]] | None = None
    context_dim: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0

    def parts(self) -> tuple[Policy, Policy | None, Any]:
        if self.signals_dim and (self.context or self.context_dim not in (0, self.signals_dim)):
            field = "signals" if self.signals else "client_signals"
            remedy = (
                'leave it out: beside a context clients send signals in it, as fields that hold a "signal"'
            )
            raise InvalidValue(field, getattr(self, field), remedy)
        policy, second, options = super().parts()
        learns = [policy] if second is None else [policy, second]
        remedy = f"leave it out, or take a policy that reads it, such as auto; {policy.label} does not"
        if self.context and not any(each.schema == declared("context", self.context) for each in learns):
            raise InvalidValue("context", self.context, remedy)
        if self.context_dim and not any(each.context_dim == self.context_dim for each in learns):
            raise InvalidValue("context_dim", self.context_dim, remedy)
        return policy, second, options
