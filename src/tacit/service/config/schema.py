"""Types of the service's configuration, and their checks.

1. ``Rule``: attribution of rewards; ``SignalConfig``: signals of contexts.
2. ``ServerConfig``, ``StoreConfig``, ``TracesConfig``, ``ExportConfig``: tables of the file.
3. ``PlacementConfig``: a placement, with its checks; ``Config``: everything.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Annotated, Any, Literal

from tacit.core.arrays import lane_rows
from tacit.errors import ConfigError, InvalidValue, MissingExtra, suggest_name
from tacit.policies import Policy

try:
    import msgspec
except ModuleNotFoundError as error:
    raise MissingExtra("msgspec", "service") from error

from tacit.learning.decisions import Arm
from tacit.learning.lanes import WARNING_BYTES
from tacit.learning.merging import compute_delta
from tacit.learning.signals import check_signals
from tacit.service.config.holdout import (
    GIVE_LEAST,
    OPEN_AMOUNTS,
    SIGNED_AMOUNTS,
    GuardrailConfig,
    HoldoutConfig,
    MetricConfig,
    RewardScale,
    get_drawing_policy,
)
from tacit.service.config.keys import HookConfig, KeyConfig
from tacit.service.kind import Kind, get_kind
from tacit.service.log.rows import ONLINE, SHADOW

# ---- The rule of attribution

Aggregation = Literal["first", "last", "sum", "max"]
ClickAggregation = Literal["union", "first", "last"]


class Rule(msgspec.Struct, frozen=True):
    """How rewards are attributed to decisions.

    Attributes
    ----------
    window : int
        Microseconds in which feedback counts, from the decision, or from its activation if it was deferred.
    default : float
        Reward of a decision without a reward in its window.
    aggregation : str
        Aggregation of several rewards of a decision: the ``first``, the ``last``, their ``sum`` (at most 1,
        at least ``lowest``), or the ``max``; for clicks on positions the ``union``.
    seen : str
        Which decisions without a reward get the default: all (``decided``), or only ``examined`` ones, while
        others are not learned; or all, and examination itself is ``learned``.
    late : str
        Effect of a reward after the window: ``record`` it, or ``correct`` the default, if it is the first.
    correction : int
        Microseconds after the end of a window in which it may be corrected.
    activation : int
        Microseconds in which a deferred decision must be activated; otherwise it never counts.
    name : str
    version : int
        Version of the rule's semantics: 1; :data:`SIGNED_AMOUNTS` or :data:`OPEN_AMOUNTS` where a metric is
        learned that may be negative or has no largest amount.
    lowest : float
        Least reward, in [−1, 0]. A reward r is learned as (r − lowest)/(1 − lowest).
    """

    window: int = 30_000_000
    default: float = 0.0
    aggregation: Aggregation | ClickAggregation = "first"
    seen: Literal["decided", "examined", "learned"] = "decided"
    late: Literal["record", "correct"] = "record"
    activation: int = 3_600_000_000
    correction: int = 3_600_000_000
    name: str = "window"
    version: int = 1
    lowest: float = 0.0

    @property
    def highest(self) -> float:
        """Largest reward: 1; inf if a metric without a largest amount is learned."""
        return math.inf if self.version == OPEN_AMOUNTS else 1.0

    @property
    def zero(self) -> float:
        """Reward of the amount 0 if a metric is learned that may be negative or has no largest amount.

        Else 0.
        """
        return self.default if self.version in (SIGNED_AMOUNTS, OPEN_AMOUNTS) else 0.0


# ---- Signals of a placement's contexts


class SignalConfig(msgspec.Struct, frozen=True):
    """The signals that a placement computes for its contexts.

    Attributes
    ----------
    names : tuple of str
        Names from :data:`tacit.learning.signals.NAMES`; contexts begin with them, in this order.
    fast, slow : float
        Time constants of the averages, in seconds.
    client : int
        Number of signals that the client adds to each context.
    """

    names: tuple[str, ...]
    fast: float = 600.0
    slow: float = 86_400.0
    client: int = 0


def check_config(config: SignalConfig, policy: Policy) -> None:
    """Check the names and time constants of signals, and their number: contexts must be as long.

    Signals that clients add count, too.

    Raises
    ------
    InvalidValue
        If a signal is unknown, the number differs, or arms come with requests.
    """
    check_signals(config.names, config.fast, config.slow)
    signal_count, context_dim = len(config.names) + config.client, policy.context_dim
    if signal_count != context_dim:
        remedy = f"{context_dim}; give its classifier dim={signal_count}, or other signals"
        remedy = remedy if context_dim else "no context; leave signals out"
        what = (
            f"with client_signals = {config.client} a context has {signal_count} numbers, and {policy.label}"
        )
        raise InvalidValue("signals", list(config.names), f"{what} reads {remedy}")
    if policy.arms is None:
        raise InvalidValue("signals", list(config.names), "arms come with requests; leave all signals out")


# ---- Users who keep their arms

MICROSECONDS = {"minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
LIFETIME = {"such": 'a number of minutes, hours or days, such as "30 days"'}
Lifetime = Annotated[str, msgspec.Meta(pattern=r"^[1-9][0-9]{0,4} (minute|hour|day)s?$", extra=LIFETIME)]


class StickyConfig(msgspec.Struct, frozen=True):
    """Units that are shown the same arm again.

    Attributes
    ----------
    unit : str
        ``user``.
    lifetime : int or None
        Microseconds for which a draw is kept; None until the arm goes.
    """

    unit: str = "user"
    lifetime: int | None = None


def make_sticky(unit: str | None, lifetime: str | None) -> StickyConfig | None:
    """Return the configuration of users who keep their arms; None if no unit is configured.

    Raises
    ------
    ConfigError
        If there is a lifetime without a unit.

    Examples
    --------
    >>> make_sticky("user", "2 hours")
    StickyConfig(unit='user', lifetime=7200000000)
    """
    if unit is None:
        if lifetime is not None:
            raise ConfigError('sticky_for: nothing is kept; give sticky = "user", or leave it out')
        return None
    if lifetime is None:
        return StickyConfig(unit)
    count, name = lifetime.split(" ")
    return StickyConfig(unit, int(count) * MICROSECONDS[name.removesuffix("s")])


def check_sticky(config: PlacementConfig) -> None:
    """Check that the other settings of a placement allow users to keep their arms.

    Raises
    ------
    ConfigError
        If another setting does not go with it.
    """
    holdout, kind = config.holdout, config.kind
    # False, or the reason as the end of a message.
    reasons = {
        "kind": kind != ARMS and f"{kind!r} cannot be, as one arm is repeated; give 'arms'",
        "holdout.unit": holdout is not None
        and holdout.unit != "user"
        and f'{holdout.unit!r} would show a user two things; give "user"',
        "holdout.control.policy": holdout is not None
        and holdout.policy is not None
        and "two policies cannot learn from the same draws; give another control",
        "shadow": config.shadow is not None
        and "a repetition has no draw with which a second policy could be compared; leave it out",
        "signals": config.signals is not None and "each decision would count as a draw; leave them out",
        "guardrail": config.guardrail is not None
        and "each decision would count as a draw, and its proof hold too soon; leave it out",
        "spread": config.spread and "one shard alone would know a key's users; leave it out",
    }
    for field, reason in reasons.items():
        if reason:
            raise ConfigError(f'{field}: with sticky = "user" {reason}')


# ---- The tables

COMMITTED, BUFFERED = "committed", "buffered"
ARMS = "arms"

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
LONGEST_SECONDS = 2_592_000.0
"""30 days: longer windows could fill the memory unnoticed."""
Seconds = Annotated[float, msgspec.Meta(ge=0.001, le=LONGEST_SECONDS, extra={"unit": "seconds"})]
Days = Annotated[float, msgspec.Meta(gt=0.0, extra={"unit": "days"})]
HOST = {"such": "an address alone, such as 127.0.0.1; the port is server.port"}
COLLECTOR = {"such": "an address, such as http://127.0.0.1:4318/v1/traces"}
TOPIC = {"such": "a topic, such as kafka://localhost:9092/clicks"}
SCHEMA = {"such": "lower-case letters, digits and underscores, such as tacit"}
ORIGIN = {"such": "an origin alone, such as https://shop.example"}
Origin = Annotated[str, msgspec.Meta(pattern=r"^https?://[a-z0-9.:\[\]-]+$", extra=ORIGIN)]
Count = Annotated[int, msgspec.Meta(ge=1)]
ArmCount = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Address and limits of the server.

    Attributes
    ----------
    host : str
        Address; the default is reachable from this machine only.
    port : int
        Port; 0 for any free one.
    body_limit : int
        Maximum size of a request's body in bytes.
    batch_limit : int
        Maximum size of the body of a request with many decisions or much feedback, in bytes.
    batch_candidates : int
        Maximum number of candidates of all decisions of a request; a single decision is never refused.
        Large batches are decided in steps, between which other requests are answered. The default allows
        the largest batch, 1,000 decisions among 10,000 candidates each, which takes seconds to minutes.
    url_limit : int
        Maximum length of a request's URL, with its query, in bytes.
    header_limit : int
        Maximum size of all headers of a request, in bytes.
    header_count : int
        Maximum number of headers of a request.
    concurrency : int
        Maximum number of concurrent requests.
    open_decisions : int
        Maximum number of open decisions of all placements; each takes about 600 bytes of memory, and 8 more
        for each number of a context.
    connections : int
        Maximum number of connections; fewer if the process may not have that many file descriptors.
    first_byte_timeout : float
        Seconds in which a connection must begin its first request.
    header_timeout : float
        Seconds in which the URL and headers must arrive.
    body_timeout : float
        Seconds in which a body must arrive.
    idle_timeout : float
        Seconds for which an idle connection is kept after a response.
    send_timeout : float
        Seconds in which a client must receive 48 KiB of its pending response, or the whole rest.
    rate : float
        Maximum requests per second of each key (without keys, of each address); 0 for no limit.
    allow_origins : list of str
        Origins of other web pages that may call the service from browsers (CORS), such as
        ``https://shop.example``.
    log : str
        ``text`` or ``json``.
    access_log : bool
        Whether each request is logged.
    """

    host: Annotated[str, msgspec.Meta(pattern=r"^[^/:]*$|^[^/:]*:[^/]*:[^/]*$", extra=HOST)] = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8787
    body_limit: Count = 65536
    batch_limit: Count = 1_048_576
    batch_candidates: Count = 10_000_000
    url_limit: Count = 8192
    header_limit: Count = 32768
    header_count: Count = 100
    concurrency: Count = 4096
    open_decisions: Count = 10_000_000
    connections: Count = 4096
    first_byte_timeout: Seconds = 10.0
    header_timeout: Seconds = 10.0
    body_timeout: Seconds = 30.0
    idle_timeout: Seconds = 20.0
    send_timeout: Seconds = 60.0
    rate: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    allow_origins: list[Origin] = []
    log: Literal["text", "json"] = "text"
    access_log: bool = False

    @property
    def peer_limit(self) -> int:
        """Maximum size of what one shard sends to another in bytes: many requests in another encoding."""
        return 8 * self.batch_limit


class StoreConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Storage of the log.

    Attributes
    ----------
    path : str
        SQLite file, created if missing. In a configuration file, relative to that file; by default
        ``tacit.db`` in the current folder.
    url : str or None
        PostgreSQL database instead of the file, as ``postgresql://user@host/database``; store its password
        in ``~/.pgpass`` or ``PGPASSWORD``.
    schema : str
        Schema of that database, created if missing.
    buffer : int
        Maximum number of rows in memory for placements with ``durability = "buffered"`` while the store
        fails.
    retention : float or None
        Days after which rows are dropped, once a snapshot covers them; by default never.
    archive : str or None
        Folder to which dropped rows are first written as Parquet. In a configuration file, relative to that
        file.
    clock_is_right : bool
        Whether to start although the clock is far ahead of the last row (more than a day, and more than
        half of ``retention``) and rows would be dropped by age.
    """

    path: str = "tacit.db"
    url: str | None = None
    schema: Annotated[str, msgspec.Meta(pattern=r"^[a-z_][a-z0-9_]{0,62}$", extra=SCHEMA)] = "tacit"
    buffer: Count = 100_000
    retention: Days | None = None
    archive: str | None = None
    clock_is_right: bool = False


class TracesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Destination of OpenTelemetry traces.

    Attributes
    ----------
    endpoint : str
        The collector's URL for OTLP over HTTP, such as ``http://127.0.0.1:4318/v1/traces``.
    sample : float
        Share of requests and commits that are traced, in [0, 1]. A request whose caller traces it is always
        traced.
    service : str
        Name of the service in the traces.
    """

    endpoint: Annotated[str, msgspec.Meta(pattern="^https?://", extra=COLLECTOR)]
    sample: Share = 1.0
    service: str = "tacit"


class ExportConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Destination of a continuous export of the log's rows.

    Attributes
    ----------
    kafka : str
        A topic, as ``kafka://HOST:PORT/TOPIC?group=NAME``; the consumer group ``NAME-export`` (by default
        ``tacit-export``) holds the last row that was sent.
    properties : str or None
        File with properties of librdkafka, ``name=value`` in each line. In a configuration file, relative
        to that file.
    """

    kafka: Annotated[str, msgspec.Meta(pattern="^kafka://", extra=TOPIC)]
    properties: str | None = None


class PlacementConfig(msgspec.Struct, frozen=True):
    """Complete configuration of a placement.

    Raises
    ------
    ConfigError, InvalidValue
        If a policy does not fit the placement, or the policies do not fit each other.

    Attributes
    ----------
    policy : Policy
        The policy over the placement's arms.
    seed : int or None
        Seed of the random draws; None for a seed that is drawn once and kept in the store.
    snapshot_every : int
        Events after which a snapshot is written, which bounds the replay after a crash.
    rule : Rule
        How rewards are attributed to decisions.
    mode : str
        Mode of a new placement; later the log holds the mode. ``online``; ``frozen`` learns nothing;
        ``shadow`` lets a secondary policy compute counterfactual decisions.
    shadow : Policy or None
        The secondary policy: the shadow, or the policy of the holdout's control.
    durability : str
        ``committed`` answers once the decision is durable; ``buffered`` at once, and continues in memory
        while the store fails.
    propensities : bool
        Whether decisions have a propensity, which may cost time.
    kind : str
        Kind of the placement, one of :data:`tacit.service.kind.KINDS`.
    options : object
        Options that only the kind has.
    retention : float or None
        Days after which rows are dropped.
    signals : SignalConfig or None
        Signals that the placement computes.
    spread : bool
        In shards: whether impressions of each key go to all shards, whose learning is added.
    holdout : HoldoutConfig or None
        The share of the traffic that a control decides.
    metrics : dict of str to MetricConfig
        Metrics besides the reward.
    learned : str or None
        Metric that is learned instead of a separate reward.
    recommended : bool
        Whether the policy is the one that ``auto`` recommends; a store with another policy for these arms
        keeps that.
    arms : int, tuple of str, or None
        Configured arms, if the policy has the initial arms of the placement.
    rebuild : bool
        Whether the log is folded into the policy if another one learned it.
    start : str or None
        File of the learner from which the placement starts, before its first decision.
    most_keys : int or None
        Maximum number of keys, if configured.
    guardrail : GuardrailConfig or None
        The metric that must not degrade, and the action for a degradation.
    sticky : StickyConfig or None
        Units that are shown the same arm again.
    """

    policy: Policy
    seed: int | None = None
    snapshot_every: int = 50_000
    rule: Rule = Rule()
    mode: str = ONLINE
    shadow: Policy | None = None
    durability: str = COMMITTED
    propensities: bool = True
    kind: str = ARMS
    options: Any = None
    retention: float | None = None
    signals: SignalConfig | None = None
    spread: bool = False
    holdout: HoldoutConfig | None = None
    metrics: dict[str, MetricConfig] = {}
    learned: str | None = None
    recommended: bool = False
    arms: int | tuple[str, ...] | None = None
    rebuild: bool = False
    start: str | None = None
    most_keys: int | None = None
    guardrail: GuardrailConfig | None = None
    sticky: StickyConfig | None = None

    def __post_init__(self) -> None:
        """Check that the policies, mode, signals, holdout, metrics and guardrail fit each other."""
        for policy in (self.policy, self.shadow or self.policy):
            self._check_policy(policy)
        if self.mode == SHADOW and not self.can_shadow:
            raise ConfigError("mode: 'shadow' needs a second policy; give one, such as shadow = \"ucb1\"")
        if self.spread:
            _check_sums(self.policy)
        if self.signals is not None:
            reads = max((self.policy, self.shadow or self.policy), key=attrgetter("context_dim"))
            check_config(self.signals, reads)
        self._check_holdout()
        if self.sticky is not None:
            check_sticky(self)

    def _check_holdout(self) -> None:
        """Check that metrics, learned metric, guardrail and holdout fit the placement.

        Raise ConfigError if not.
        """
        for name, metric in self.metrics.items():
            metric.check(name)
        if self.learned is not None:
            if self.learned not in self.metrics:
                what = f"{self.learned!r} is none of the metrics{suggest_name(self.learned, self.metrics)}"
                remedy = f"add metrics.{self.learned} = {{ range = [0, LARGEST] }}"
                raise ConfigError(f"reward: {what}; {remedy}")
            self.metrics[self.learned].check_learned(self.learned)
            self._check_amounts(self.learned)
        if self.guardrail is not None:
            check_guardrail(self.guardrail, self)
        if self.holdout is None:
            if self.metrics.keys() - {self.learned, self.guardrail and self.guardrail.metric}:
                raise ConfigError("metrics: they need a holdout, or a guardrail; add one")
            return
        self.holdout.check(self.kind, self.policy_kind.controls)
        allowed_arms, arm = _list_arms(self), self.holdout.arm
        if arm is not None and arm not in allowed_arms:
            raise ConfigError(
                f"holdout.control.arm: {arm!r} is none of the arms, {', '.join(map(str, allowed_arms))}"
            )
        if self.holdout.policy is not None and self.spread:
            raise ConfigError(
                "holdout.control.policy: with spread, shards add up what the placement's policy "
                "learns, and not what the control's does; leave spread out"
            )

    def _check_amounts(self, learned: str) -> None:
        """Raise ConfigError if the rule or a policy cannot have the learned metric's amounts as rewards."""
        metric = self.metrics[learned]
        if metric.attribution and self.rule.default != metric.to_reward(0.0):
            raise ConfigError("default_reward: leave it out: without feedback the amount is 0")
        for policy in filter(None, (self.policy, self.shadow)):
            if metric.is_open != policy.reward_range.is_open:
                raise ConfigError(f"metrics.{learned}.range: {metric.range}: {needs_ends(policy)}")

    def _check_policy(self, policy: Policy) -> None:
        """Raise ConfigError if the policy, main or secondary, does not fit the kind, rule or main policy."""
        kind = self.policy_kind
        reads = policy.feature_dims != (0, 0)
        if policy.shows != kind.shows or reads != kind.by_features:
            article = "an" if policy.shows[0] in "aeiou" else "a"
            remedy = " with relevance_dim in place of arms" * (kind.by_features and not reads)
            raise ConfigError(
                f"policy: {type(policy).__name__} shows {article} {policy.shows} and reads "
                f"{'' if reads else 'no '}features of arms, which is not for the kind "
                f"{self.kind!r}; give a policy that is, such as auto{remedy}"
            )
        if policy.feature_dims != self.policy.feature_dims:
            raise ConfigError("shadow: it must read as many features as the policy")
        if policy.context_dim and self.policy.context_dim not in (0, policy.context_dim):
            raise ConfigError(
                f"shadow: it reads {policy.context_dim} numbers of context and the policy "
                f"{self.policy.context_dim}; give one that reads as many, or none"
            )
        if self.rule.seen == "learned" and policy is self.policy:
            if not policy.learns_seen:
                raise ConfigError(
                    f"seen: {policy.label} does not learn what is seen; give the kind 'features' an "
                    'examination_dim and policy = "auto" or "laplace-ec", or take seen = "examined"'
                )
            if self.rule.default != self.rule.lowest:
                raise ConfigError(
                    f"default_reward: {self.rule.default:g} is not the least reward, {self.rule.lowest:g}; "
                    'leave it out, as what was not seen earns nothing where seen = "learned"'
                )

    @property
    def policy_kind(self) -> Kind:
        """The record of the placement's kind, in the variant for its policy."""
        return get_kind(self.kind).select_variant(self.policy)

    @property
    def scale(self) -> RewardScale:
        """The unit of rewards in reports: amounts of the learned metric, or rewards from ``lowest`` to 1.

        A learned metric without a range has rewards in [0, 1].
        """
        if self.learned is None:
            return RewardScale(self.rule.lowest, 1.0 - self.rule.lowest)
        metric = self.metrics[self.learned]
        if metric.is_open:
            return RewardScale(metric.low, 1.0, self.learned, is_open=True)
        ends = (0.0, 1.0) if metric.range is None else (metric.low, metric.largest)
        return RewardScale(*ends, self.learned)

    @property
    def can_shadow(self) -> bool:
        """True if there is a secondary policy that is not the policy of the holdout's control."""
        controls = self.holdout is not None and self.holdout.policy is not None
        return self.shadow is not None and not controls

    @property
    def config_arms(self) -> int | tuple[str, ...] | None:
        """The configured arms, as a number or names; None if arms come with requests."""
        return self.policy.arms if self.arms is None else self.arms

    @property
    def key_limit(self) -> int | None:
        """Maximum number of keys: ``most_keys``, or the number whose models take 1 GiB; None for no limit."""
        models = [
            policy for policy in (self.policy, self.shadow) if policy and getattr(policy, "per_key", False)
        ]
        if self.most_keys is not None or not models:
            return self.most_keys
        return max(1, WARNING_BYTES // sum(policy.key_bytes for policy in models))

    @property
    def context_dim(self) -> int:
        """Length of contexts: the larger one that main and secondary policy read; 0 for none."""
        return max(policy.context_dim for policy in (self.policy, self.shadow or self.policy))


def check_guardrail(guardrail: GuardrailConfig, placement: PlacementConfig) -> None:
    """Check that a guardrail fits its placement: metric, margin, baseline, and data to compare arms.

    Raises
    ------
    ConfigError
        If the metric, the margin or the baseline does not fit, or arms cannot be compared.
    """
    metric, margin, kind = guardrail.metric, guardrail.margin, placement.policy_kind
    if metric not in placement.metrics:
        allowed = ", ".join(placement.metrics) or "none"
        remedy = suggest_name(metric, placement.metrics) or f"; add metrics.{metric} = {{}}"
        raise ConfigError(f"guardrail.metric: {metric!r} is none of the metrics, {allowed}{remedy}")
    if not placement.metrics[metric].has_low:
        raise ConfigError(f"guardrail.metric: a guardrail on {metric} needs an end: {GIVE_LEAST}")
    if margin >= (widest := placement.metrics[metric].largest):
        raise ConfigError(
            f"guardrail.margin: {margin:g}: no two means of {metric} differ by more than "
            f"{widest:g}, its range; give less: a difference of means, as {widest / 50:g}"
        )
    if placement.holdout is not None:
        if guardrail.against is not None:
            raise ConfigError(
                "guardrail.against: leave it out: with a holdout it is the policy that is held against "
                "the control"
            )
        return
    if not (kind.has_arm_lifecycle and kind.showing.single):
        raise ConfigError(
            f"guardrail: which arm of the kind {kind.name!r} does harm, propensities do not tell; "
            "give the placement a holdout, so that the policy is held against its control"
        )
    policy = get_drawing_policy(placement.policy)
    if not (placement.propensities and policy.randomized):
        raise ConfigError(
            f"guardrail: decisions of {policy.label} carry no propensity, so what an arm does "
            "cannot be weighed; give another policy (such as auto), or a holdout"
        )
    if find_baseline(guardrail, placement) not in _list_arms(placement):
        arms = ", ".join(map(str, _list_arms(placement)))
        raise ConfigError(f"guardrail.against: {guardrail.against!r} is none of the arms, {arms}")


def find_baseline(guardrail: GuardrailConfig, placement: PlacementConfig) -> Arm:
    """Return the arm with which others are compared: ``against``, or the placement's first arm."""
    return next(iter(_list_arms(placement))) if guardrail.against is None else guardrail.against


def _list_arms(placement: PlacementConfig) -> tuple[Arm, ...]:
    """Return the configured arms as a tuple; numbers from 0 for a count, empty if arms come with requests."""
    arms = placement.config_arms
    return tuple(range(arms)) if isinstance(arms, int) else tuple(arms or ())


def needs_ends(policy: Policy) -> str:
    """Return the remedy for a policy that cannot learn a metric without a largest amount."""
    remedy = 'give range = [low, high], or policy = "auto", which needs none for named arms without contexts'
    return f"{policy.label} must know the largest amount; {remedy}"


class Config(msgspec.Struct, frozen=True):
    """Complete configuration of the service.

    Attributes
    ----------
    placements : dict of str to PlacementConfig
    server : ServerConfig
    store : StoreConfig
    keys : dict of str to KeyConfig
        Without keys, every caller may do everything, and the address must be the loopback.
    traces : TracesConfig or None
    feeds : dict of str to HookConfig
        Webhook feeds, which senders push.
    export : ExportConfig or None
    idle : tuple of str
        Placements with a correction window whose rule corrects nothing.
    """

    placements: dict[str, PlacementConfig]
    server: ServerConfig = ServerConfig()
    store: StoreConfig = StoreConfig()
    keys: dict[str, KeyConfig] = {}
    traces: TracesConfig | None = None
    feeds: dict[str, HookConfig] = {}
    export: ExportConfig | None = None
    idle: tuple[str, ...] = ()


def _check_sums(policy: Policy) -> None:
    """Check that a policy's state is a sum over impressions, which shards can add (setting ``spread``).

    Raises
    ------
    InvalidValue
        If it is not.
    """
    try:
        # 0 rows of a lane stand for a part of the state that all keys share; the error is replaced below.
        forgets = getattr(policy, "discount", 1.0) != 1.0
        if forgets or policy.feedback_width > 1 or 0 in lane_rows(policy.init):
            raise InvalidValue("policy", policy, "")
        compute_delta(policy.init(1), policy.init(1))
    except InvalidValue:
        raise InvalidValue(
            "spread", True, f"what {policy.label} learns is no sum over impressions; give a policy "
            "of counts or Gaussians that does not forget, or leave it out"
        ) from None  # fmt: skip
