"""What the configuration says and the log not yet: arms, holdouts, starts, settings, policies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from tacit.errors import ConfigError, TacitError
from tacit.policies.spec import goes_on, policy_from_stored
from tacit.service.config.file import differences, settings_of
from tacit.service.config.schema import PlacementConfig
from tacit.service.engine.group import apply
from tacit.service.engine.pending import PendingLog
from tacit.service.engine.rebuilding import Rebuilder, Serving, as_begun
from tacit.service.engine.writer import Writer
from tacit.service.errors import NotDurable
from tacit.service.log.ids import Shard
from tacit.service.log.marks import regimes_of
from tacit.service.log.requests import Ask, Mark, Request
from tacit.service.log.rows import ARMS, CONFIGURATION, GUARDRAIL, HOLDOUT, START
from tacit.service.placements.placement import Placement

logger = logging.getLogger(__name__)


class Configured(Serving, Protocol):
    """What following a configuration needs of an engine.

    Attributes
    ----------
    placements : dict of str to Placement
    shard : Shard or None
    """

    placements: dict[str, Placement]
    shard: Shard | None

    async def logged_by_now(self, names: Sequence[str]) -> None:
        """Wait until all that happened to placements is durable."""


class Following:
    """Does what the configuration says and the log not yet, and lets the log say so.

    Parameters
    ----------
    engine : Engine
    pending : PendingLog
    rebuilder : Rebuilder
    writer : Writer

    Attributes
    ----------
    leading : mapping of str to str
        In a shard that is not the first: the arms of the first one, as its marks hold them.
    rebuilding : set of asyncio.Task
        Logs that are being folded into policies.
    """

    def __init__(self, engine: Configured, pending: PendingLog, rebuilder: Rebuilder, writer: Writer) -> None:
        self._engine, self._pending = engine, pending
        self._rebuilder, self._writer = rebuilder, writer
        self.leading: Mapping[str, str] = {}
        self.rebuilding: set[asyncio.Task[None]] = set()

    def check(self, placements: Mapping[str, Placement]) -> None:
        """Check that placements can have the arms that are configured.

        Raises
        ------
        ConfigError
            If one cannot.
        """
        for placement in placements.values():
            if self._engine.shard is not None and placement.guardrail is not None:
                raise ConfigError(
                    f"placements.{placement.name}.guardrail: of several shards none sees all decisions, so "
                    "that none can prove harm; leave it out, or serve without shards"
                )
            placement.modes.check_configured(placement)
            if self._leads:
                placement.living.check_configured(placement)

    def log(self) -> list[str]:
        """Log what the configuration says of starts, arms and holdouts, and the log not yet.

        Returns the placements which that concerns.
        """
        changes: list[Request] = []
        for name, placement in self._engine.placements.items():
            if placement.start is not None and not placement.start_marked:
                changes.append(Mark(name, placement.start.text, START, CONFIGURATION))
            if self._leads and (change := placement.living.configured_change(placement)) is not None:
                changes.append(Ask(name, change, CONFIGURATION))
            arms = self.leading.get(name)
            if arms is not None and placement.is_news(ARMS, arms):
                changes.append(Mark(name, arms, ARMS, CONFIGURATION))
            if placement.current_mark(HOLDOUT) != placement.lift_terms:
                changes.append(Mark(name, placement.lift_terms, HOLDOUT, CONFIGURATION))
        for result in apply(self._pending, changes, {}) if changes else ():
            if isinstance(result, TacitError):
                logger.error("the configuration is not followed: %s", result)
        # Among the arms that there are by now.
        begun = [
            Mark(name, began, GUARDRAIL, CONFIGURATION)
            for name, placement in self._engine.placements.items()
            if placement.guardrail is not None
            and (began := placement.guardrail.beginning(placement)) is not None
        ]
        if begun:
            apply(self._pending, begun, {})
        return list({change.placement: None for change in [*changes, *begun]})

    async def follow(self, concerned: Sequence[str]) -> None:
        """Wait until :meth:`log` of some placements is durable; then do what takes longer."""
        await self._engine.logged_by_now(concerned)
        await self._note_configurations()
        self._rebuild()

    async def stop(self) -> None:
        """Give up what is under way."""
        for task in list(self.rebuilding):
            task.cancel()
        await asyncio.gather(*self.rebuilding, return_exceptions=True)

    def _rebuild(self) -> None:
        """Begin to fold logs into the policies that are configured so, once for each of them."""
        for name, config in self._engine.config.placements.items():
            if config.rebuild and self._engine.shard is None:
                task = asyncio.create_task(self._rebuild_as_configured(name, config))
                self.rebuilding.add(task)
                task.add_done_callback(self.rebuilding.discard)

    async def _rebuild_as_configured(self, name: str, config: PlacementConfig) -> None:
        try:
            placement = self._engine.placement(name)
            policy = as_begun(config.policy, placement.config.policy)
            marks = await self._writer.of_store(self._engine.store.changes, placement.id)
            done = regimes_of([mark for mark in marks if mark.who == CONFIGURATION])
            if goes_on(policy, placement.config.policy) or (
                # Whatever others have put in its place since.
                done and goes_on(policy, policy_from_stored(done[-1].policy))
            ):
                return
            made = await self._rebuilder.rebuild(name, policy, CONFIGURATION)
        except TacitError as error:
            logger.error("placement %s: its log was not rebuilt: %s", name, error)
            return
        notes = "; ".join(made.regime.approximate) or "exactly"
        logger.info("placement %s: %d rows were folded anew: %s", name, made.rows, notes)

    async def _note_configurations(self) -> None:
        """Let the log say where placements are configured otherwise than before."""
        for name, placement in list(self._engine.placements.items()):
            now = settings_of(self._engine.config.placements[name])
            try:
                before = await self._writer.of_store(self._engine.store.configuration, placement.id)
                if before == now:
                    continue
                if before is not None:
                    changed = msgspec.json.encode(differences(before, now)).decode()
                    await self._writer.ask(Mark(name, changed, CONFIGURATION, CONFIGURATION))
                await self._writer.of_store(self._engine.store.configure, placement.id, now)
            except NotDurable as error:
                logger.warning("placement %s: its configuration was not noted: %s", name, error)

    @property
    def _leads(self) -> bool:
        """Whether arms change here first: the other shards have those of the first one."""
        return self._engine.shard is None or self._engine.shard.number == 0
