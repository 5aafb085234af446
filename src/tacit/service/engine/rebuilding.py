"""Another policy for what was logged: the log is folded beside the running one, then they change.

What takes the place of a placement is made as a start would make it, from the log, while requests
go on. Between two groups it catches up, a mark of the log says from when on it holds, and that is
all: a start that finds the mark folds the log in the same way, one that does not find it has never
heard of it.
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
from tacit.service.config.file import checked_as
from tacit.service.engine.fold import opened, take_in
from tacit.service.engine.segments import reads_who_asks
from tacit.service.engine.writer import Serving, Writer
from tacit.service.errors import InConflict, NotDurable
from tacit.service.log.blocks import Block
from tacit.service.log.change_events import REBUILD, ROLLBACK, Regime, regimes_of, state_name
from tacit.service.log.rows import POLICY, UNLEARNED, DecisionRow, Event, learned_propensities
from tacit.service.log.store import STATES, Draft
from tacit.service.placements.placement import Placement

Result = TypeVar("Result")

SAME = {"arms": "arms", "feature_dims": "numbers of features", "action_width": "positions"}
"""What a policy must have in common with the one before."""
ROWS = 2000
"""Rows that are read at once, so that no commit waits long."""


class State(NamedTuple):
    """What a policy had learned at a time.

    Attributes
    ----------
    name : str
    time : int
        Until which windows had closed, in microseconds since 1970.
    seq : int
        The last row that it had taken in.
    policy : dict
        As :func:`tacit.policies.policy_to_spec` gives it.
    number : int
        The store's for it.
    aside : list of (int, int, int)
        Rows between the first two of each taught it nothing; see :class:`Regime`.
    """

    name: str
    time: int
    seq: int
    policy: dict[str, Any]
    number: int
    aside: list[tuple[int, int, int]]


class Replacement(NamedTuple):
    """What became of a rebuild, or of a rollback.

    Attributes
    ----------
    regime : Regime
    rows : int
        Rows of the log that were read.
    decisions : int
        Decisions that the placement knows.
    seconds : float
    """

    regime: Regime
    rows: int
    decisions: int
    seconds: float


class Rebuilder:
    """Puts another policy, or what was learned before, in the place of what a placement has.

    Parameters
    ----------
    engine : Engine
    writer : Writer
    """

    def __init__(self, engine: Serving, writer: Writer) -> None:
        self._engine, self._writer = engine, writer
        self.under_way: set[str] = set()

    async def states(self, name: str) -> list[State]:
        """Return what can be gone back to, in order."""
        placement = self._engine.placement(name)
        store = self._engine.store
        kept = await self._writer.of_store(store.states, placement.id)
        marks = await self._writer.of_store(store.changes, placement.id)
        stored = (await self._writer.of_store(store.placements))[name]
        regimes = regimes_of(marks)
        found = []
        for seq, time in kept:
            before = [regime for regime in regimes if regime.seq <= seq]
            policy, number, aside = json.loads(stored.spec), stored.policy, []
            if before:
                policy, number, aside = before[-1].policy, before[-1].number, before[-1].aside
            found.append(State(state_name(time, policy), time, seq, policy, number, aside))
        return found

    async def rebuild(self, name: str, policy: Policy, who: str | None) -> Replacement:
        """Fold the log of a placement into another policy, and go on with that.

        Raises
        ------
        InvalidValue
            If the policy is not fit for what was logged.
        InConflict
            If another one is under way, or the configuration was changed meanwhile.
        NotDurable
            If the store fails, or the service is stopping.
        """
        placement = self._checked(name, policy)
        before = placement.config.policy
        if reads_who_asks(before) and not policy.context_dim:
            # Those who ask go on to say it, and would be refused from then on.
            asked = f"requests say who is asking, in {before.context_dim} numbers"
            raise InvalidValue("policy", policy, f"give one that reads a context: {asked}")
        spec = policy_to_spec(policy)
        number = await self._writer.of_store(self._engine.store.policy, json.dumps(spec))
        return await self._replace(placement, Regime(REBUILD, spec, number, ""), who)

    async def rollback(self, name: str, to: str | None, who: str | None) -> Replacement:
        """Go back to what was learned before.

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
            to = next(reversed(states)) if placement.regime is None else placement.regime.left
        # The first 0.3 did not name the policy within.
        earlier = {state_name(each.time, {"name": each.policy["name"]}): each for each in states.values()}
        state = (earlier | states).get(to)
        if state is None:
            raise InvalidValue("to", to, f"give one of {', '.join(states)}")
        self._checked(name, policy_from_stored(state.policy))
        aside = [*state.aside, (state.seq, 0, state.time)]
        regime = Regime(ROLLBACK, state.policy, state.number, "", state.name, state.seq, aside)
        return await self._replace(placement, regime, who)

    def _checked(self, name: str, policy: Policy) -> Placement:
        """Return a placement whose log can be folded into a policy."""
        placement = self._engine.placement(name)
        before = placement.config.policy
        try:
            msgspec.structs.replace(placement.config, policy=policy)
        except TacitError as error:
            raise InvalidValue("policy", policy.label, str(error).removeprefix("policy: ")) from error
        for what, named in SAME.items():
            mine, its = getattr(before, what, None), getattr(policy, what, None)
            if mine != its:
                remedy = f"it has other {named} than {before.label}, {mine}; give one with the same"
                raise InvalidValue("policy", policy.label, remedy)
        if policy.context_dim not in (0, before.context_dim):
            remedy = f"give one that reads a context of {before.context_dim} numbers, or none"
            raise InvalidValue("policy", policy, remedy)
        return placement

    # The work --------------------------------------------------------------------------------

    async def _replace(self, placement: Placement, regime: Regime, who: str | None) -> Replacement:
        name = placement.name
        if name in self.under_way:
            raise InConflict("placement: a rebuild or rollback of it is under way; wait for its end")
        self.under_way.add(name)
        try:
            # A base of what was learned before must not come after the fold began without it.
            await self._writer.between_groups(_nothing)
            await self._writer.upkeep.written()
            return await self._replaced(placement, regime, who)
        finally:
            self.under_way.remove(name)

    async def _replaced(self, placement: Placement, regime: Regime, who: str | None) -> Replacement:
        engine, name, begun = self._engine, placement.name, clocks.monotonic()
        config = engine.config.placements[name]
        policy = policy_from_stored(regime.policy)
        learner = Learner(policy, 0, propensities=config.propensities)
        # Nobody's request shall wait for the compiler, nor for the store meanwhile.
        await asyncio.to_thread(learner.compile)
        await self._compile_control(name, learner)
        made = await self._writer.of_store(
            lambda: opened(name, config, engine.store, placement.seed, snapshot=False, as_if=regime)
        )
        fold = _Fold(made)
        while len(rows := await self._writer.of_store(self._next, fold)) == ROWS:
            await asyncio.to_thread(fold.take, rows)
        await asyncio.to_thread(fold.take, rows)
        await self._compile_control(name, made.learner)
        left = await self._keep(name)
        regime = msgspec.structs.replace(regime, left=left, approximate=made.approximate)
        await self._writer.between_groups(lambda: self._switch(config, fold, regime, who))
        # The next step begins when all before it is durable, or undone because the store failed.
        await self._writer.between_groups(_nothing)
        there = engine.placement(name).regime
        if made.regime is None or there != made.regime:
            raise NotDurable("store: it failed at the switch, and all is as before; try again")
        return Replacement(made.regime, fold.count, made.decisions, clocks.monotonic() - begun)

    async def _compile_control(self, name: str, learner: Learner) -> None:
        """Compile what a learner runs beside the holdout of a placement, in another thread."""
        if self._engine.placement(name).control.coin is not None:
            await asyncio.to_thread(getattr, learner.loops, "impose")

    def _next(self, fold: _Fold) -> list[Event]:
        return list(islice(self._engine.store.events(fold.behind), ROWS))

    async def _keep(self, name: str) -> str:
        """Keep what a placement has learned by now; return its name."""
        engine, drafts = self._engine, list[Draft]()

        async def copy() -> None:
            drafts.append(await self._writer.frozen(as_of_now))

        def as_of_now(seq: int, time: int) -> Draft:
            placement = engine.placement(name)
            return placement.draft(seq, placement.windows.time)

        await self._writer.between_groups(copy)
        steps = engine.store.saving(drafts[0], STATES)
        while await self._writer.of_store(next, steps, steps) is not steps:
            pass
        return state_name(drafts[0].time, policy_to_spec(engine.placement(name).config.policy))

    async def _switch(self, config: Any, fold: _Fold, regime: Regime, who: str | None) -> None:
        """Put what was folded in the place of what there was."""
        engine, made = self._engine, fold.placement
        name = made.name
        if engine.config.placements.get(name) != config:
            raise InConflict("placement: its configuration was changed meanwhile; begin again")

        def catch_up(seq: int, time: int) -> None:
            while rows := self._next(fold):
                fold.take(rows)

        await self._writer.frozen(catch_up)
        if regime.what == REBUILD:
            fold.check_learned()
        # From here on nothing waits, so that nothing comes between.
        self._put(made, regime, who)

    def _put(self, made: Placement, regime: Regime, who: str | None) -> None:
        """Put a placement that has taken in the whole log in the place of what there was."""
        pending, placements = self._writer.pending, self._engine.placements
        now, seq = pending.time.advance(), pending.seq + 1
        aside = [(after, before or seq, closed) for after, before, closed in regime.aside]
        made.regime = msgspec.structs.replace(regime, aside=aside, seq=seq)
        mark = pending.log_mark(made.id, now, POLICY, made.regime.text, who)
        made.advance(now)
        made.sets_aside = False
        made.marked(mark)
        made.new_ids = placements[made.name].new_ids
        placements[made.name] = made
        pending.touch([made.name])


async def _nothing() -> None:
    pass


class _Fold:
    """A placement that follows the log."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.behind, self.count = placement.covered, 0
        self._weighs = learns_from_propensity(placement.config.policy.params)
        self._without, self._first = 0, ""

    def take(self, rows: list[Event]) -> None:
        """Take in the next rows."""
        take_in({self.placement.id: self.placement}, rows)
        if self._weighs:
            mine = [row for row in rows if isinstance(row, DecisionRow) and self._learns(row)]
            known = learned_propensities(Block.of(DecisionRow, mine))
            without = [row.id for row, decision in zip(mine, known, strict=True) if decision is None]
            self._first = self._first or "".join(without[:1])
            self._without += len(without)
        self.behind = rows[-1].seq if rows else self.behind
        self.count += len(rows)

    def _learns(self, row: DecisionRow) -> bool:
        return row.placement == self.placement.id and row.mode not in UNLEARNED

    def check_learned(self) -> None:
        """Check that the policy could learn from all that it was given.

        Raises
        ------
        InvalidValue
            If it weighs by propensities, and there were decisions without; or if what it has
            learned is no numbers, for whatever reason.
        """
        policy, state = self.placement.config.policy, self.placement.learner.state
        if self._without:
            remedy = (
                f"it weighs by propensities, and {self._without} decisions of the log have none, "
                f"{self._first!r} first; give one that does not"
            )
            raise InvalidValue("policy", policy, remedy)
        for field, array in leaves(state):
            if array.dtype.kind == "f" and np.isnan(array).any():
                remedy = f"its {field} are no numbers after what was logged; give another one"
                raise InvalidValue("policy", policy, remedy)


def asked_policy(placement: Placement, configured: Any, spec: Any) -> Policy:
    """Return the policy that is asked for, over the arms that a placement began with.

    Parameters
    ----------
    placement : Placement
    configured : PlacementConfig
        As the configuration says it.
    spec : str or dict
        As the configuration would say it; nothing is imported for it.

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
        return as_begun(configured.policy, before)
    arms = getattr(before, "arms", None)
    policy = checked_as("policy", lambda text: policy_from_spec(text, arms, imports=False), spec)
    positions = getattr(before, "positions", None)
    if positions is not None and "positions" not in str(spec) and hasattr(policy, "positions"):
        policy = replace(policy, positions=positions)  # type: ignore[call-arg]
    return _promising_the_same(policy, before)


def _promising_the_same(policy: Policy, before: Policy) -> Policy:
    """Return a policy that keeps the shares that are promised to arms, unless it promises others itself."""
    shares: Any = getattr(before, "at_least", None)
    if not shares or getattr(policy, "at_least", None):
        return policy
    if isinstance(before, MinimumShares):
        return replace(before, policy=policy)
    if hasattr(policy, "at_least"):
        return replace(policy, at_least=shares)  # type: ignore[call-arg]
    remedy = f"give one that promises shares, as {before.label} does, or end at_least first"
    raise InvalidValue("policy", policy, remedy)


def as_begun(policy: Policy, before: Policy) -> Policy:
    """Return a policy over the arms that its placement began with."""
    if getattr(policy, "arms", None) == getattr(before, "arms", None):
        return policy
    return policy.with_arms(before.arms)
