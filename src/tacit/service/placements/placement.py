"""A placement: a chain that decides, learning from feedback, and projections, as a fold over its log."""

# 1. ``Kind``-specific parts: what is shown, how requests are read, and how rewards are counted.
# 2. ``Placement``: made of its parts; restored by :mod:`tacit.service.placements.snapshots`.
# 3. ``decide``: the chain decides for runs of similar impressions, and each run is recorded.
# 4. ``learning``: opens windows, learns feedback, and folds logged decisions without deciding again.
# 5. ``apply_change``: change events change the parts, and the chain is composed again.
# Random draws depend on decisions' ids alone, so a replay of the log and a client's replica draw the same.

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple, Self

from tacit.errors import ConfigError, InvalidValue
from tacit.learning.decisions import Arm, split_by_size
from tacit.learning.lanes import Offer
from tacit.learning.learner import Learner
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.config.schema import PlacementConfig
from tacit.service.deciders.arm_lifecycle import ArmLifecycle, match_arms
from tacit.service.deciders.aspect import Aspect
from tacit.service.deciders.choices import Decider, ImpressionBatch
from tacit.service.deciders.control_group import ControlGroup
from tacit.service.deciders.holdout import HoldoutDecider, PolicyHoldoutDecider
from tacit.service.deciders.items import Items, has_catalogue
from tacit.service.deciders.modes import Modes
from tacit.service.deciders.pinned import PinnedDecider
from tacit.service.deciders.pins import Pins
from tacit.service.deciders.policy import ClientDecider, PlainDecider, PolicyDecider
from tacit.service.deciders.shadow import ShadowDecider
from tacit.service.deciders.signals import PlacementSignals
from tacit.service.deciders.sticky import StickyDecider
from tacit.service.log import rows as log_rows
from tacit.service.log.blocks import Block
from tacit.service.log.change_events import PolicyVersion, StartFile
from tacit.service.log.ids import Draws, create_decision_ids
from tacit.service.log.requests import ClientDecision, Impression, as_json
from tacit.service.log.rows import ChangeRow, DecisionRow
from tacit.service.log.store import StoredPlacement
from tacit.service.placements.duels import DuelReader, DuelResults, DuelShows
from tacit.service.placements.features import (
    FeatureReader,
    FeatureResults,
    FeatureShows,
    ItemListResults,
    ItemListShows,
)
from tacit.service.placements.learning import FeedbackLearning
from tacit.service.placements.lists import ListResults, ListShows
from tacit.service.placements.requests import RequestReader
from tacit.service.placements.results import Results
from tacit.service.placements.shows import Shows
from tacit.service.projections.attribution import Attribution, attribute_clicks, make_attribution
from tacit.service.projections.feed_offsets import FeedOffsets
from tacit.service.projections.feedback_rule import FeedbackRule
from tacit.service.projections.guardrail import Guardrail
from tacit.service.projections.projection import Projections
from tacit.service.projections.reward_sums import LiftSums, RewardSums
from tacit.service.projections.series import Series
from tacit.service.projections.shared_learning import SharedLearning, make_shared_states
from tacit.service.projections.sticky_users import StickyUsers

ASPECTS = (
    "feedback_rule lifecycle modes pins reward_sums control guardrail shared signals items feed_offsets "
    "sticky"
)
"""Attributes of a placement that hold its aspects, in the order in which they are restored."""


_prepared: set[tuple[Any, ...]] = set()
"""Policies and options whose loops this process has compiled."""


class KindParts(NamedTuple):
    """The classes of a placement's parts that depend on its kind.

    Attributes
    ----------
    shows, reader, results, attribution : type
    stages : sequence of function
        Each returns a stage of the chain, from the placement and the stages inside it.
    aspects : sequence of function
        Each returns a further aspect from the placement; its class names it.
    """

    shows: Callable[..., Shows] = Shows
    reader: Callable[..., RequestReader] = RequestReader
    results: Callable[..., Results] = Results
    attribution: Callable[..., Attribution] = Attribution
    stages: Sequence[Callable[[Placement, Decider], Decider]] = ()
    aspects: Sequence[Callable[[Placement], Aspect]] = ()


ARM_PARTS = KindParts()
FEATURE_PARTS = KindParts(FeatureShows, FeatureReader, FeatureResults)
LIST_PARTS = KindParts(ListShows, RequestReader, ListResults, attribute_clicks)
ITEM_LIST_PARTS = KindParts(ItemListShows, FeatureReader, ItemListResults, attribute_clicks)
DUEL_PARTS = KindParts(DuelShows, DuelReader, DuelResults, attribute_clicks)


class ShardTotals(NamedTuple):
    """Numbers of keys and of open decisions over all shards, and when the last open window closes."""

    key_count: int
    pending: int
    deferred: int
    last_deadline: int | None


class Placement:
    """A placement: its policy, windows, aspects and results, in the state before its first decision.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    stored : StoredPlacement
        The placement's row in the store.
    policy_version : PolicyVersion, optional
        Current policy version, if the policy was replaced since the beginning.

    Attributes
    ----------
    shows, reader, results : Shows, RequestReader, Results
        The parts that depend on the kind.
    policy, secondary : PolicyDecider
        The placement's policy; the policy of the shadow or of the holdout's control, or None.
    decider : Decider
        The chain that decides.
    windows : Attribution
        The open decisions.
    added : dict of str to Aspect
        Aspects that the kind adds.
    decides_alone : bool
        Whether each decision is made alone, since the state of its key must be restored afterwards.
    new_ids : function or None
        Makes the ids of decisions in shards, whose ids contain the shard; other ids contain the time alone.
    has_control_policy : bool
        Whether the control of the holdout has a policy of its own.
    restarts : bool
        Whether the policy, or the control's policy, restarts keys.
    totals : ShardTotals or None
        Of a copy that shows the statistics of all shards.
    start, start_logged : StartFile or None, bool
        Start file of the placement, and whether the log has its change event.
    version : int
        Number of groups and changes that changed the placement since it was loaded.
    warned : set of str
        Warnings already given since the start.
    has_client_decisions : bool
        Whether clients made the last decisions; not in the log.
    """

    shows: Shows
    reader: RequestReader
    results: Results
    windows: Attribution
    totals: ShardTotals | None = None

    def __init__(
        self,
        name: str,
        config: PlacementConfig,
        stored: StoredPlacement,
        policy_version: PolicyVersion | None = None,
    ) -> None:
        self.name, self.config, self.kind = name, config, config.policy_kind
        self.id, self.policy_id, self.seed = stored.id, stored.policy, stored.seed
        self._stored = stored
        self.new_ids: Callable[[int, Sequence[str], int], list[str]] | None = None
        self.policy_version = policy_version
        self.approximate: list[str] = []
        self.start: StartFile | None = None
        self.start_logged = False
        self.snapshot_time: int | None = None
        self.version = 0
        self.warned: set[str] = set()
        self.has_client_decisions = False
        self.has_control_policy = config.holdout is not None and config.holdout.policy is not None
        self.begin()

    def begin(self) -> None:
        """Make all parts again, in their state before the first decision; the previous state is lost."""
        config, stored = self.config, self._stored
        parts: KindParts = self.kind.parts
        learner = Learner(config.policy, self.seed, propensities=config.propensities)
        self.lifecycle = ArmLifecycle(learner)
        self.shows = parts.shows(config, self.lifecycle, self.seed)
        self.windows = make_attribution(parts.attribution, config)
        shared_parts = self.shows, self.lifecycle.initial_indices, self.windows.open
        self.policy = PolicyDecider(learner, Draws(self.seed), *shared_parts, self.policy_id)
        self.secondary: PolicyDecider | None = None
        if config.shadow is not None:
            shadow_draws = Draws(self.seed, "shadow")
            self.secondary = PolicyDecider(self.make_secondary_learner(), shadow_draws, *shared_parts)
        self.results = parts.results(self.name, self.shows, self.windows, self.policy)
        self.feedback_rule = FeedbackRule(
            stored.feedback_rule, self.windows, self.policy, self.name, self.kind.showing
        )
        self.modes, self.pins, self.feed_offsets = Modes(), Pins(), FeedOffsets()
        self.reward_sums = RewardSums(config.metrics, self.lifecycle)
        self.control = ControlGroup(
            config.holdout, self.seed, self.shows.make_control, lambda: self.reward_sums.sums
        )
        self.guardrail = (
            None if config.guardrail is None else Guardrail(config, self.lifecycle, self.reward_sums)
        )
        states = make_shared_states(config.policy, config.spread)
        self.shared = SharedLearning(states, self.policy, self.modes) if states else None
        self.signals = None if config.signals is None else PlacementSignals(config.signals, self.policy)
        self.items = Items(self.policy) if has_catalogue(config.policy) else None
        self.sticky = None if config.sticky is None else StickyUsers(config.sticky)
        self.reader = parts.reader(self.name, self.shows, self.policy, self.control, self.signals)
        self.reader.hash_key = stored.salt, self.id
        self.added = {type(aspect).__name__: aspect for aspect in (make(self) for make in parts.aspects)}
        self._projections = Projections(list(self.aspects.values()))
        self.learning = FeedbackLearning(
            self.results, self.secondary, self.modes, self.control, self.signals, self._projections
        )
        self.counts = self.learning.counts
        self.restarts = self.learning.restarts
        self.snapshot_seq, self.snapshot_after = 0, config.snapshot_every
        self.build_deciders()

    def make_secondary_learner(self) -> Learner:
        """Return a new learner of the secondary policy, which must be configured."""
        assert self.config.shadow is not None
        return Learner(self.config.shadow, self.seed, propensities=self.config.propensities)

    def compile(self) -> None:
        """Compile all loops, or load them from the cache: no request should wait for the compiler.

        Placements of equal policies share compiled code, which only the first one of a process prepares.
        """
        config = self.config
        has_control = self.control.assigner is not None
        form = self._stored.spec, repr(config.shadow), config.propensities, has_control
        if form in _prepared:
            return
        _prepared.add(form)
        for learner in self.learners:
            learner.compile()
            if self.control.assigner is not None:
                _ = learner.loops.force  # the property compiles the loop
        if self.windows.order is not None:
            self.windows.order.compile()

    def build_deciders(self) -> None:
        """Compose the chain of deciders from the current mode, holdout and pin.

        Called after each change event; also sets ``decides_alone``.
        """
        modes, assigner, policy = self.modes, self.control.assigner, self.policy
        decider: Decider = PlainDecider(policy, modes.mode, keeps_state=modes.frozen)
        options = {"keeps_state": modes.frozen, "all_control": modes.control_decides}
        if assigner is not None and not self.has_control_policy:
            decider = HoldoutDecider(policy, assigner, self.shows, modes.mode, **options)
        elif assigner is not None and self.secondary is not None:
            decider = PolicyHoldoutDecider(policy, self.secondary, assigner, modes.mode, **options)
        if self.secondary is not None and modes.has_counterfactuals and not self.has_control_policy:
            decider = ShadowDecider(decider, self.secondary, self.shows)
        if self.sticky is not None and not modes.control_decides:
            decider = StickyDecider(decider, self.sticky, policy, self.shows, assigner, modes.mode)
        if (pin := self.pins.last) is not None:
            pinned_mode = log_rows.PINNED_FROZEN if modes.frozen else log_rows.PINNED
            decider = PinnedDecider(decider, pin, policy, self.shows, pinned_mode, keeps_state=modes.frozen)
        for make_stage in self.kind.parts.stages:
            decider = make_stage(self, decider)
        self.decider = decider
        self._client_decider = ClientDecider(policy, log_rows.FROZEN if modes.frozen else log_rows.ONLINE)
        learners = [policy] if self.secondary is None else [policy, self.secondary]
        # Where the state of a key must be restored after its decision, each decision is made alone.
        restores = modes.frozen or self.has_control_policy
        self.decides_alone = restores and any(each.observes for each in learners)

    # Parts and their states ------------------------------------------------------------------

    @property
    def learner(self) -> Learner:
        """The learner of the placement's policy."""
        return self.policy.learner

    @property
    def learners(self) -> list[Learner]:
        """The placement's learner, and the learner of the secondary policy if there is one."""
        return [self.learner] if self.secondary is None else [self.learner, self.secondary.learner]

    @property
    def aspects(self) -> dict[str, Aspect]:
        """Aspects of the placement by name, including the kind's; without aspects that are not configured."""
        aspects = {name: aspect for name in ASPECTS.split() if (aspect := getattr(self, name)) is not None}
        return aspects | self.added

    @property
    def series(self) -> Series:
        """Impressions and rewards over time."""
        return self.results.series

    @property
    def arms(self) -> list[Arm]:
        """All arms in the order of their indices, with retired ones."""
        return self.lifecycle.names

    @property
    def offer(self) -> Offer:
        """The arms on offer and the retired arms."""
        return self.learner.offer

    @property
    def mode(self) -> str:
        """Mode of the placement: ``online``, ``frozen``, ``shadow`` or ``control``."""
        return self.modes.mode

    @property
    def holdout(self) -> HoldoutConfig | None:
        """The current holdout, or None."""
        return self.control.holdout

    @property
    def control_action(self) -> list[int] | None:
        """Arm indices that the control always shows if all arms are on offer.

        None without a holdout, and if the control draws at random or learns.
        """
        return None if self.has_control_policy else self.control.get_constant_action(self.offer.arm_indices)

    @property
    def lift(self) -> LiftSums:
        """The reward sums behind the lift; queued decisions are added to them first."""
        self.reward_sums.sums.settle()
        return self.reward_sums.sums

    @property
    def decisions(self) -> int:
        """Number of decisions."""
        return self.counts.decisions

    @property
    def feedback(self) -> int:
        """Number of rewards."""
        return self.counts.feedback

    @property
    def outcomes(self) -> Counter[str]:
        """Number of feedback rows by their outcome."""
        return self.counts.outcomes

    @property
    def key_count(self) -> int:
        """Number of keys."""
        return len(self.learner) if self.totals is None else self.totals.key_count

    @property
    def open_bytes(self) -> int:
        """Approximate size of the open decisions in bytes."""
        return self.windows.bytes

    @property
    def pending(self) -> int:
        """Number of decisions with an open window."""
        if self.totals is None:
            return len(self.windows.open.by_id) - self.windows.deferred_count
        return self.totals.pending

    @property
    def deferred(self) -> int:
        """Number of deferred decisions that wait for their activation."""
        return self.windows.deferred_count if self.totals is None else self.totals.deferred

    @property
    def last_deadline(self) -> int | None:
        """Time at which the last open window closes; None without any."""
        return self.windows.last_deadline if self.totals is None else self.totals.last_deadline

    def read_copy(self) -> Self:
        """Return a copy for reader threads, with copies of results, counts and aspects."""
        reader_copy = copy(self)
        reader_copy.results = self.results.read_copy()
        reader_copy.counts = replace(self.counts, outcomes=self.counts.outcomes.copy())
        reader_copy.added = {name: aspect.read_copy() for name, aspect in self.added.items()}
        for name, aspect in self.aspects.items():
            if name not in self.added:
                setattr(reader_copy, name, aspect.read_copy())
        return reader_copy

    # Deciding --------------------------------------------------------------------------------

    def decide(self, impressions: Block[Impression], seq: int, time: int) -> Block[DecisionRow]:
        """Decide for impressions; return rows for the log, with the sequence numbers from ``seq`` on.

        The decisions are stored as open, new keys are admitted and signals updated. The random draws of a
        decision with a client's id depend on that id. Consecutive decisions whose ids the service makes draw
        from one generator, seeded by the first id, so that they can be made together.
        """
        block = self.shows.limit_offers(impressions) if self.lifecycle.full_offers else impressions
        self.has_client_decisions = False
        if self.signals is not None:
            offers = list(map(self.lifecycle.get_offer_indices, block.column("arms")))
            block = Block.from_rows(Impression, self.signals.read(block, offers, time))
        ids = block.column("id")
        split = self.split_unnamed if ids.count(None) == len(ids) else self._split_named
        parts: list[Block[DecisionRow]] = []
        for batch in split(block, seq, time):
            self.has_client_decisions |= batch.by_client
            for choices in (self._client_decider if batch.by_client else self.decider).choose(batch):
                # Each part is recorded before the next one is decided.
                parts.append(part := self.shows.make_rows(choices, self.id, self.policy_id))
                if choices.is_recalled:
                    self.learning.recall(part)
                else:
                    by_others = choices.secondary, choices.by_control
                    self.learning.open_decisions(part, choices.decisions, *by_others)
        rows = parts[0] if len(parts) == 1 else Block.concatenate(DecisionRow, parts)
        if self.signals is not None:
            self.signals.record_epochs(rows)
        return rows

    def _split_named(self, impressions: Block[Impression], seq: int, time: int) -> Iterator[ImpressionBatch]:
        """Yield batches of impressions of which some have ids.

        Each impression with an id is a batch of its own, unless clients decided; runs of others are batches.
        """
        ids = impressions.column("id")
        # Clients' decisions always have ids.
        sources = zip(ids, impressions.column("details"), strict=True)
        start = 0
        for (named, by_client), run in groupby(sources, _classify_source):
            stop = start + len(list(run))
            if not named:
                yield from self.split_unnamed(impressions[start:stop], seq + start, time)
            elif by_client:
                yield ImpressionBatch(
                    impressions[start:stop], ids[start:stop], seq + start, time, by_client=True
                )
            else:
                for i in range(start, stop):
                    yield ImpressionBatch(impressions[i : i + 1], [ids[i]], seq + i, time)
            start = stop

    def split_unnamed(self, impressions: Block[Impression], seq: int, time: int) -> Iterable[ImpressionBatch]:
        """Return batches of impressions without ids, with new ids.

        One batch, unless each decision is made alone, or features would take too much memory at once.
        """
        keys = impressions.column("key")
        ids = create_decision_ids(time, len(keys)) if self.new_ids is None else self.new_ids(time, keys, seq)
        batch = ImpressionBatch(impressions, ids, seq, time)
        if self.decides_alone:
            parts: Any = [slice(i, i + 1) for i in range(len(impressions))]
        elif self.kind.by_features:
            parts = split_by_size(self.reader.count_candidates(impressions), self.reader.candidate_size)
        else:
            return (batch,)
        return map(batch.select, parts)

    # Change events ---------------------------------------------------------------------------

    def current_change(self, kind: str) -> str | None:
        """Return the value of the last change event of a kind.

        None without any, or if no aspect has the kind.
        """
        if kind == log_rows.START:
            return self.start.text if self.start is not None and self.start_logged else None
        aspect = self._find_aspect(kind)
        return None if aspect is None else aspect.current()

    def is_change(self, kind: str, value: str) -> bool:
        """True if a change event of this kind and value would change anything."""
        aspect = self._find_aspect(kind)
        return self.current_change(kind) != value if aspect is None else aspect.is_change(value)

    def _find_aspect(self, kind: str) -> Aspect | None:
        """Return the aspect that change events of a kind change; None if there is none."""
        return next((aspect for aspect in self.aspects.values() if aspect.change_kind == kind), None)

    def apply_change(self, change: ChangeRow) -> None:
        """Apply a change event of the log to the placement's parts, and compose the chain again.

        Events of other placements are ignored. A snapshot is due at once after a new policy version; also
        after a user is forgotten, if earlier snapshots hold users.
        """
        if change.placement != self.id:
            return
        self.version += 1
        if change.kind == log_rows.ARMS:
            self.counts.since_snapshot += 1
            self.set_arms(change.value, change.seq, change.time)
        elif (aspect := self._find_aspect(change.kind)) is not None:
            self.counts.since_snapshot += aspect.apply_change(change)
        for add_change in self._projections.changed:
            add_change(change)
        if change.kind == log_rows.START:
            self.start_logged = True
        if change.kind in (log_rows.POLICY, log_rows.FORGET):
            self.counts.since_snapshot = max(self.counts.since_snapshot, self.snapshot_after)
        self.build_deciders()

    def set_arms(self, value: str, seq: int, time: int) -> None:
        """Change the arms of learners, aspects, series and lift to the ones in a change event's JSON.

        If the control of the lift now acts differently, its period ends. If the arms are the same, nothing
        else changes.

        Raises
        ------
        ConfigError
            If the arms of this kind of placement cannot change.
        """
        try:
            check_changeable(self)
        except InvalidValue as error:
            raise ConfigError(
                f"placements.{self.name}: its arms have changed, but {error.allowed}; set its "
                "configuration back"
            ) from error
        if not self.lifecycle.set_arms(value):
            return
        control_action = self.control_action
        for learner in self.learners:
            match_arms(learner, self.lifecycle.logged_arms)
        self.lifecycle.full_offers.append(as_json(self.learner.arms) or "")
        self.update_arms()
        self.series.extend_arms(self.shows.layers)
        self.reward_sums.change_arms(seq, time, control=control_action != self.control_action)

    def update_arms(self) -> None:
        """Update all aspects after the learner's arms changed."""
        self.lifecycle.load_offer(self.learner)
        for aspect in self.aspects.values():
            aspect.update_arms()


def _classify_source(request: tuple[str | None, Any]) -> tuple[bool, bool]:
    """Return for (id, details of an impression) whether there is an id, and whether a client decided."""
    id, source = request
    return id is not None, isinstance(source, ClientDecision)


def check_changeable(placement: Placement) -> None:
    """Raise InvalidValue if the arms of a placement cannot change, because of its kind.

    Raises
    ------
    InvalidValue
        If they cannot.
    """
    if not placement.kind.has_arm_lifecycle:
        why = f"its arms cannot change: arms of kind {placement.kind.name!r} come with each request"
        raise InvalidValue("placement", placement.name, why)
