"""Rebuild and rollback: fold the log into another policy while the placement runs, then switch.

The new placement is folded from the log as at a start, while requests are served. Between two groups it
catches up and replaces the old one, and a change event records the new policy version. A start that finds the
change event folds the log in the same way; without the event, after a crash before the switch, nothing has
changed.
"""

from __future__ import annotations

import asyncio
import json
import time as clocks
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from tacit.core.arrays import leaves
from tacit.core.dispatch import learns_from_propensity
from tacit.errors import InvalidValue, TacitError
from tacit.learning.learner import Learner
from tacit.policies import MinimumShares, Policy, policy_from_spec, policy_to_spec
from tacit.policies.spec import is_auto, policy_from_stored
from tacit.service.config.file import check_field
from tacit.service.engine.fold import apply_rows, load_placement
from tacit.service.engine.segments import reads_user_contexts
from tacit.service.engine.writer import Serving, Writer
from tacit.service.errors import InConflict, NotDurable
from tacit.service.log.blocks import Block
from tacit.service.log.change_events import REBUILD, ROLLBACK, PolicyVersion, name_state, read_policy_versions
from tacit.service.log.rows import POLICY, UNLEARNED_MODES, DecisionRow, Event, select_propensities
from tacit.service.log.store import STATES, Draft
from tacit.service.placements.placement import Placement
from tacit.service.placements.snapshots import draft

Result = TypeVar("Result")

SAME = {"arms": "arms", "feature_dims": "numbers of features", "action_width": "positions"}
"""Attributes that a policy must have in common with the one before, with their names in messages."""
ROWS = 2000
"""Rows per read, so that no commit waits long."""


class State(NamedTuple):
    """The stored learned state of a policy at a time, for rollbacks.

    Attributes
    ----------
    name : str
    time : int
        Time up to which windows had closed, in microseconds since 1970.
    seq : int
        Last row that the state includes.
    policy : dict
        The policy as :func:`tacit.policies.policy_to_spec` returns it.
    number : int
        Number of the policy in the store.
    aside : list of (int, int, int)
        Ranges of rows that it did not learn from; see :class:`PolicyVersion`.
    """

    name: str
    time: int
    seq: int
    policy: dict[str, Any]
    number: int
    aside: list[tuple[int, int, int]]


class Replacement(NamedTuple):
    """Result of a rebuild or rollback.

    Attributes
    ----------
    policy_version : PolicyVersion
    rows : int
        Number of rows that were folded.
    decisions : int
        Number of decisions of the placement.
    seconds : float
    """

    policy_version: PolicyVersion
    rows: int
    decisions: int
    seconds: float


class Rebuilder:
    """Replaces the policy of a placement by another policy or by an earlier state.

    Parameters
    ----------
    engine : Engine
    writer : Writer
    """

    def __init__(self, engine: Serving, writer: Writer) -> None:
        self._engine, self._writer = engine, writer
        self.running: set[str] = set()

    async def states(self, name: str) -> list[State]:
        """Return the stored states to which a placement can be rolled back, by their last rows, ascending."""
        placement = self._engine.placement(name)
        store = self._engine.store
        ends = await self._writer.call_store(store.snapshots.list_states, placement.id)
        changes = await self._writer.call_store(store.changes, placement.id)
        stored = (await self._writer.call_store(store.placements))[name]
        versions = read_policy_versions(changes)
        states = []
        for seq, time in ends:
            before = [version for version in versions if version.seq <= seq]
            policy, number, aside = json.loads(stored.spec), stored.policy, []
            if before:
                policy, number, aside = before[-1].policy, before[-1].number, before[-1].aside
            states.append(State(name_state(time, policy), time, seq, policy, number, aside))
        return states

    async def rebuild(self, name: str, policy: Policy, who: str | None) -> Replacement:
        """Fold the log of a placement into another policy, then switch to it and log the new policy version.

        Requests are served meanwhile. The policy and the replaced state are stored.

        Raises
        ------
        InvalidValue
            If the policy does not fit the log.
        InConflict
            If another rebuild or rollback is running, or the configuration was changed meanwhile.
        NotDurable
            If the store fails, or the service is stopping.
        """
        placement = self._check_policy(name, policy)
        before = placement.config.policy
        if reads_user_contexts(before) and not policy.context_dim:
            # Clients send contexts, and their requests would be refused.
            requirement = f"requests say who is asking, in {before.context_dim} numbers"
            raise InvalidValue("policy", policy, f"give one that reads a context: {requirement}")
        spec = policy_to_spec(policy)
        number = await self._writer.call_store(self._engine.store.add_policy, json.dumps(spec))
        return await self._replace(placement, PolicyVersion(REBUILD, spec, number, left=""), who)

    async def rollback(self, name: str, to: str | None, who: str | None) -> Replacement:
        """Restore an earlier state of a placement, by default the one replaced last, and log the change.

        The restored policy learns nothing from the rows between that state and the rollback. The replaced
        state is stored, too.

        Raises
        ------
        InvalidValue
            If there is no such state.
        Conflict, NotDurable
            As :meth:`rebuild`.
        """
        placement = self._engine.placement(name)
        states = {state.name: state for state in await self.states(name)}
        if not states:
            remedy = "there is no state to go back to: one is kept when a rebuild or a rollback leaves it"
            raise InvalidValue("placement", name, remedy)
        if to is None:
            to = next(reversed(states)) if placement.policy_version is None else placement.policy_version.left
        # Early versions of 0.3 did not name nested policies.
        earlier = {
            name_state(stored_state.time, {"name": stored_state.policy["name"]}): stored_state
            for stored_state in states.values()
        }
        state = (earlier | states).get(to)
        if state is None:
            raise InvalidValue("to", to, f"give one of {', '.join(states)}")
        self._check_policy(name, policy_from_stored(state.policy))
        # The end of the new range, and the name of the state that is left, are known at the switch.
        aside = [*state.aside, (state.seq, 0, state.time)]
        version = PolicyVersion(ROLLBACK, state.policy, state.number, "", state.name, state.seq, aside)
        return await self._replace(placement, version, who)

    def _check_policy(self, name: str, policy: Policy) -> Placement:
        """Check that the log of a placement can be folded into a policy, and return the placement.

        Raises InvalidValue if the policy has other arms, features or positions, or needs another context.
        """
        placement = self._engine.placement(name)
        before = placement.config.policy
        try:
            msgspec.structs.replace(placement.config, policy=policy)
        except TacitError as error:
            raise InvalidValue("policy", policy.label, str(error).removeprefix("policy: ")) from error
        for what, named in SAME.items():
            before_value, value = getattr(before, what, None), getattr(policy, what, None)
            if before_value != value:
                remedy = f"it has other {named} than {before.label}, {before_value}; give one with the same"
                raise InvalidValue("policy", policy.label, remedy)
        if policy.context_dim not in (0, before.context_dim):
            remedy = f"give one that reads a context of {before.context_dim} numbers, or none"
            raise InvalidValue("policy", policy, remedy)
        return placement

    # The steps of a rebuild or rollback ------------------------------------------------------

    async def _replace(self, placement: Placement, version: PolicyVersion, who: str | None) -> Replacement:
        """Replace a placement's policy by a policy version; raise InConflict if a replacement is running.

        Waits until no snapshot is being written.
        """
        name = placement.name
        if name in self.running:
            raise InConflict("placement: a rebuild or rollback of it is under way; wait for its end")
        self.running.add(name)
        try:
            # Wait for a base that is being written: the fold must not begin without it.
            await self._writer.run_between_groups(_wait_for_commit)
            await self._writer.upkeep.wait_for_snapshot()
            return await self._fold_and_switch(placement, version, who)
        finally:
            self.running.remove(name)

    async def _fold_and_switch(
        self, placement: Placement, version: PolicyVersion, who: str | None
    ) -> Replacement:
        """Fold a placement's log into a policy version while requests are served, then switch to it.

        The replaced state is stored. Raises NotDurable if the store failed at the switch, which is then
        undone.
        """
        engine, name, begun = self._engine, placement.name, clocks.monotonic()
        config = engine.config.placements[name]
        # Compiled code is shared: this learner does nothing else.
        learner = Learner(policy_from_stored(version.policy), seed=0, propensities=config.propensities)
        # In threads, so that no request waits for the compiler.
        await asyncio.to_thread(learner.compile)
        await self._compile_control(name, learner)
        rebuilt = await self._writer.call_store(
            lambda: load_placement(name, config, engine.store, placement.seed, snapshot=False, as_if=version)
        )
        fold = _Fold(rebuilt)
        while len(rows := await self._writer.call_store(self._read_next_rows, fold)) == ROWS:
            await asyncio.to_thread(fold.apply, rows)
        await asyncio.to_thread(fold.apply, rows)
        # This learner's own loop, from the code that was compiled above.
        await self._compile_control(name, rebuilt.learner)
        old_state = await self._store_state(name)
        version = msgspec.structs.replace(version, left=old_state, approximate=rebuilt.approximate)
        await self._writer.run_between_groups(lambda: self._switch(config, fold, version, who))
        # This step begins once the switch is durable, or undone because the store failed.
        await self._writer.run_between_groups(_wait_for_commit)
        current = engine.placement(name).policy_version
        if rebuilt.policy_version is None or current != rebuilt.policy_version:
            raise NotDurable("store: it failed at the switch, and all is as before; try again")
        return Replacement(rebuilt.policy_version, fold.count, rebuilt.decisions, clocks.monotonic() - begun)

    async def _compile_control(self, name: str, learner: Learner) -> None:
        """Compile a learner's code for the control group in a thread, if the placement has a holdout."""
        if self._engine.placement(name).control.assigner is not None:
            # The loop is compiled when this attribute is first read.
            await asyncio.to_thread(getattr, learner.loops, "force")

    def _read_next_rows(self, fold: _Fold) -> list[Event]:
        """Return the next rows of the log, at most :data:`ROWS`, that a fold has not applied yet."""
        return list(islice(self._engine.store.events(fold.behind), ROWS))

    async def _store_state(self, name: str) -> str:
        """Copy and store the current learned state of a placement; return the name of the stored state."""
        engine, drafts = self._engine, list[Draft]()

        async def copy() -> None:
            """Add a copy of the current learned state to ``drafts``."""
            drafts.append(await self._writer.read_frozen(draft_now))

        def draft_now(seq: int, time: int) -> Draft:
            """Return a copy of the placement's current learned state, as of row ``seq``."""
            placement = engine.placement(name)
            return draft(placement, seq, placement.windows.time)

        await self._writer.run_between_groups(copy)
        steps = engine.store.snapshots.save_in_steps(drafts[0], STATES)
        while await self._writer.call_store(next, steps, steps) is not steps:
            pass
        return name_state(drafts[0].time, policy_to_spec(engine.placement(name).config.policy))

    async def _switch(self, config: Any, fold: _Fold, version: PolicyVersion, who: str | None) -> None:
        """Apply the remaining rows of the log to the new placement, and replace the old placement by it.

        Call it between groups. Raises InConflict if the configuration was changed meanwhile, and InvalidValue
        if a rebuild could not learn from all rows.
        """
        engine, placement = self._engine, fold.placement
        name = placement.name
        if engine.config.placements.get(name) != config:
            raise InConflict("placement: its configuration was changed meanwhile; begin again")

        def catch_up(seq: int, time: int) -> None:
            """Apply all remaining rows to the new placement; ``seq`` and ``time`` are not needed."""
            while rows := self._read_next_rows(fold):
                fold.apply(rows)

        await self._writer.read_frozen(catch_up)
        if version.what == REBUILD:
            fold.check_learned()
        # No await from here on, so that no request comes between.
        self._replace_placement(placement, version, who)

    def _replace_placement(self, placement: Placement, version: PolicyVersion, who: str | None) -> None:
        """Replace the placement of the same name by a new one that has learned from the whole log.

        The new policy version is logged as a change event and applied.
        """
        pending, placements = self._writer.pending, self._engine.placements
        now, seq = pending.time.advance(), pending.seq + 1
        aside = [(after, before or seq, closed) for after, before, closed in version.aside]
        placement.policy_version = msgspec.structs.replace(version, aside=aside, seq=seq)
        change = pending.log_change(placement.id, now, POLICY, placement.policy_version.text, who)
        placement.learning.advance(now)
        placement.learning.learns_nothing = False
        placement.apply_change(change)
        placement.new_ids = placements[placement.name].new_ids
        placements[placement.name] = placement
        pending.touch([placement.name])


async def _wait_for_commit() -> None:
    """Do nothing; as a step between groups, it begins once all earlier rows are in the log."""
    pass


class _Fold:
    """A placement into which the log is folded in steps."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.behind, self.count = placement.snapshot_seq, 0
        self._needs_propensities = learns_from_propensity(placement.config.policy.params)
        self._missing_count, self._first_missing = 0, ""

    def apply(self, rows: list[Event]) -> None:
        """Apply the next rows to the placement, and count them.

        Decisions that lack the propensity that the policy needs are counted for :meth:`check_learned`.
        """
        apply_rows({self.placement.id: self.placement}, rows)
        if self._needs_propensities:
            decisions = [row for row in rows if isinstance(row, DecisionRow) and self._learns(row)]
            propensities = select_propensities(Block.from_rows(DecisionRow, decisions))
            missing = [row.id for row, value in zip(decisions, propensities, strict=True) if value is None]
            self._first_missing = self._first_missing or "".join(missing[:1])
            self._missing_count += len(missing)
        self.behind = rows[-1].seq if rows else self.behind
        self.count += len(rows)

    def _learns(self, row: DecisionRow) -> bool:
        """True if a row is a decision of the placement, made in a mode whose decisions are learned."""
        return row.placement == self.placement.id and row.mode not in UNLEARNED_MODES

    def check_learned(self) -> None:
        """Raise InvalidValue if the policy could not learn from all rows.

        Raises
        ------
        InvalidValue
            If the policy weights by propensities and some decisions have none, or if its state has
            values that are not numbers.
        """
        policy, state = self.placement.config.policy, self.placement.learner.state
        if self._missing_count:
            remedy = (
                f"it weighs by propensities, and {self._missing_count} decisions of the log have none, "
                f"{self._first_missing!r} first; give one that does not"
            )
            raise InvalidValue("policy", policy, remedy)
        for field, array in leaves(state):
            if array.dtype.kind == "f" and np.isnan(array).any():
                remedy = f"its {field} are no numbers after what was logged; give another one"
                raise InvalidValue("policy", policy, remedy)


def parse_requested_policy(placement: Placement, configured: Any, spec: Any) -> Policy:
    """Return the policy that a request names, with the first arms of a placement.

    ``auto`` is the configuration's recommended policy. The number of positions and the minimum shares of arms
    are the current policy's, unless the request has its own.

    Parameters
    ----------
    placement : Placement
    configured : PlacementConfig
        The placement's configuration.
    spec : str or dict
        The policy as in a configuration, but without imports.

    Raises
    ------
    InvalidValue, UnknownName
        If there is no such policy.
    """
    before = placement.config.policy
    if is_auto(spec):
        if not configured.recommended:
            remedy = 'say policy = "auto" and rebuild = true in the configuration'
            raise InvalidValue("policy", spec, remedy)
        return with_first_arms(configured.policy, before)
    arms = getattr(before, "arms", None)
    policy = check_field(
        "policy",
        lambda text: policy_from_spec(text, arms, imports=False).with_range(before.reward_range),
        spec,
    )
    positions = getattr(before, "positions", None)
    # In either form of a specification, text or table, its settings are named.
    if positions is not None and "positions" not in str(spec) and hasattr(policy, "positions"):
        policy = replace(policy, positions=positions)  # type: ignore[call-arg]
    return _with_minimum_shares(policy, before)


def _with_minimum_shares(policy: Policy, before: Policy) -> Policy:
    """Return a policy with the minimum shares of arms of ``before``, unless it has its own.

    Raises InvalidValue if the policy cannot promise minimum shares.
    """
    shares: Any = getattr(before, "at_least", None)
    if not shares or getattr(policy, "at_least", None):
        return policy
    # This one wraps any policy; other policies promise shares themselves.
    if isinstance(before, MinimumShares):
        return replace(before, policy=policy)
    if hasattr(policy, "at_least"):
        return replace(policy, at_least=shares)  # type: ignore[call-arg]
    remedy = f"give one that promises shares, as {before.label} does, or end at_least first"
    raise InvalidValue("policy", policy, remedy)


def with_first_arms(policy: Policy, before: Policy) -> Policy:
    """Return ``policy`` with the arms of the policy ``before``; unchanged if it has the same arms."""
    if getattr(policy, "arms", None) == getattr(before, "arms", None):
        return policy
    return policy.with_arms(before.arms)
