"""Tasks of an engine next to its groups of requests.

They log changes of the configuration, read the log, forget users, and exchange learned sums between shards.
"""

# 1. ``ConfigurationLogger``: logs settings of the configuration that differ from those in the log.
# 2. ``LogQueries``: reads the log on the store's thread.
# 3. ``SubjectEraser``: blanks the data of a user in the log and the archive.
# 4. ``ShardExchange``: exports and imports arms and learned sums of shards.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from tacit.errors import ConfigError, TacitError
from tacit.policies.spec import is_compatible, policy_from_stored
from tacit.service.config.file import add_location, encode_settings, find_differences
from tacit.service.config.lift_terms import parse_holdout, parse_look_time
from tacit.service.config.schema import PlacementConfig
from tacit.service.engine.group import apply
from tacit.service.engine.pending_rows import PendingLog
from tacit.service.engine.rebuilding import Rebuilder, with_first_arms
from tacit.service.engine.verdicts import Verdicts
from tacit.service.engine.writer import Serving, Writer
from tacit.service.errors import NotDurable, StoreError
from tacit.service.log import rows
from tacit.service.log.change_events import LoggedChange, read_policy_versions
from tacit.service.log.removal import forget_user
from tacit.service.log.requests import AppendChange, ChangePlacement, Export, Request
from tacit.service.log.search_records import Subject, remove_unit
from tacit.service.log.sql import Store
from tacit.service.log.store import BlankedRows, End, sum_blanked_rows
from tacit.service.placements.arm_changes import check_configured_arms, get_config_change
from tacit.service.placements.changes import check_configured_mode, list_changes
from tacit.service.placements.holdout_changes import check_look, resolve_terms
from tacit.service.placements.placement import Placement
from tacit.service.projections.feedback_rule import IN_ORDER
from tacit.service.projections.shared_learning import SharedUpdate

# ---- Settings of the configuration that the log lacks: arms, holdouts, starts, settings, policies

logger = logging.getLogger(__name__)


class ConfigurationLogger:
    """Applies and logs settings of the configuration that differ from those in the log.

    Parameters
    ----------
    engine : Engine
    pending : PendingLog
    rebuilder : Rebuilder
    writer : Writer

    Attributes
    ----------
    leading_arms : mapping of str to str
        In a shard other than the first: the arms of the first one, as values of change events.
    rebuilding : set of asyncio.Task
        Running rebuilds of placements.
    """

    def __init__(self, engine: Serving, pending: PendingLog, rebuilder: Rebuilder, writer: Writer) -> None:
        self._engine, self._pending = engine, pending
        self._rebuilder, self._writer = rebuilder, writer
        self.leading_arms: Mapping[str, str] = {}
        self.rebuilding: set[asyncio.Task[None]] = set()

    def check(self, placements: Mapping[str, Placement]) -> None:
        """Raise ConfigError if a placement cannot have its configured mode, holdout, guardrail or arms.

        Changes nothing.

        Parameters
        ----------
        placements : mapping of str to Placement

        Raises
        ------
        ConfigError
            If one cannot; in shards, also for any guardrail.
        """
        for placement in placements.values():
            if self._engine.shard is not None and placement.guardrail is not None:
                raise ConfigError(
                    f"placements.{placement.name}.guardrail: of several shards none sees all decisions, so "
                    "that none can prove harm; leave it out, or serve without shards"
                )
            check_configured_mode(placement)
            terms, before = resolve_terms(placement), placement.current_change(rows.HOLDOUT)
            # Only a changed look must be later than now: an unchanged one may have passed.
            if parse_look_time(terms) != parse_look_time(before or terms):
                with add_location(f"placements.{placement.name}.holdout."):
                    check_look(parse_holdout(terms), self._pending.time.get_time())
            if self._is_leader:
                check_configured_arms(placement)

    def log_changes(self) -> list[str]:
        """Apply and log configured settings that differ from the log; return the names of changed placements.

        The settings are start files, feedback rules, arms, holdouts and guardrails. Invalid settings are
        reported by the logger and not applied, but their placements are returned, too. The change events are
        pending: the caller must wait for the commit.
        """
        changes: list[Request] = []
        for name, placement in self._engine.placements.items():
            if placement.start is not None and not placement.start_logged:
                changes.append(AppendChange(name, placement.start.text, rows.START, rows.CONFIGURATION))
            if placement.feedback_rule.version < IN_ORDER:
                # Feedback was learned when it came; from now on it is learned in the learning order.
                # Earlier decisions keep the rule by which they were learned.
                changes.append(AppendChange(name, str(IN_ORDER), rows.FEEDBACK_RULE, rows.CONFIGURATION))
            if self._is_leader and (change := get_config_change(placement)) is not None:
                changes.append(ChangePlacement(name, change, rows.CONFIGURATION))
                # Of named arms, a new one may be a retired one by another name.
                if change.retire and isinstance(change.add, list) and change.add:
                    new, old = change.add[0], change.retire[0]
                    what = "configuration: placements.%s.arms: %s is retired, and %s begins anew; "
                    logger.info(what + "if it is %s renamed, call it that to go on", name, old, new, old)
            arms = self.leading_arms.get(name)
            if arms is not None and placement.is_change(rows.ARMS, arms):
                changes.append(AppendChange(name, arms, rows.ARMS, rows.CONFIGURATION))
            if placement.current_change(rows.HOLDOUT) != resolve_terms(placement):
                changes.append(AppendChange(name, resolve_terms(placement), rows.HOLDOUT, rows.CONFIGURATION))
        for result in apply(self._pending, changes, stored_decisions={}) if changes else ():
            if isinstance(result, TacitError):
                logger.error("the configuration is not followed: %s", result)
        # After the changes of arms, which guardrails refer to.
        guardrail_starts = [
            AppendChange(name, start, rows.GUARDRAIL, rows.CONFIGURATION)
            for name, placement in self._engine.placements.items()
            if placement.guardrail is not None
            and (start := placement.guardrail.make_begin_change()) is not None
        ]
        if guardrail_starts:
            apply(self._pending, guardrail_starts, stored_decisions={})
        # Each name once, in order.
        return list({change.placement: None for change in [*changes, *guardrail_starts]})

    async def finish(self, concerned: Sequence[str]) -> None:
        """Wait until changes of placements are durable.

        Then log other settings and start configured rebuilds.

        Rebuilds run in the background; they are not waited for.
        """
        await self._engine.wait_until_durable(concerned)
        await self._log_settings()
        self._start_rebuilds()

    async def stop(self) -> None:
        """Cancel the running rebuilds, and wait until they have ended."""
        for task in list(self.rebuilding):
            task.cancel()
        await asyncio.gather(*self.rebuilding, return_exceptions=True)

    def _start_rebuilds(self) -> None:
        """Start a background task for each placement with ``rebuild = true``; nothing in a shard."""
        for name, config in self._engine.config.placements.items():
            if config.rebuild and self._engine.shard is None:
                task = asyncio.create_task(self._rebuild_as_configured(name, config))
                self.rebuilding.add(task)
                task.add_done_callback(self.rebuilding.discard)

    async def _rebuild_as_configured(self, name: str, config: PlacementConfig) -> None:
        """Rebuild a placement with its configured policy, unless that is its policy or was rebuilt before.

        Reports the result or the error by the logger; raises nothing.
        """
        try:
            placement = self._engine.placement(name)
            policy = with_first_arms(config.policy, placement.config.policy)
            changes = await self._writer.call_store(self._engine.store.changes, placement.id)
            versions = read_policy_versions(
                [change for change in changes if change.who == rows.CONFIGURATION]
            )
            if is_compatible(policy, placement.config.policy) or (
                # Each configured rebuild runs once, even if the policy was replaced since.
                versions and is_compatible(policy, policy_from_stored(versions[-1].policy))
            ):
                return
            replacement = await self._rebuilder.rebuild(name, policy, rows.CONFIGURATION)
        except TacitError as error:
            logger.error("placement %s: its log was not rebuilt: %s", name, error)
            return
        notes = "; ".join(replacement.policy_version.approximate) or "exactly"
        logger.info("placement %s: %d rows were folded anew: %s", name, replacement.rows, notes)

    async def _log_settings(self) -> None:
        """Log and store the settings of each placement that differ from its stored settings.

        Warns if a configured mode differs from the current one, which stays, or if the store fails.
        """
        store, new = self._engine.store, {}
        try:
            stored = await self._writer.call_store(store.configurations)
            for name, placement in list(self._engine.placements.items()):
                config, before = self._engine.config.placements[name], stored.get(name)
                now, mode = encode_settings(config), config.mode
                if before == now:
                    continue
                if before is not None:
                    changed = find_differences(before, now)
                    if "mode" in changed and mode != placement.mode and self._is_leader:
                        logger.warning(
                            "configuration: placements.%s.mode: %s is for a placement without decisions; "
                            "change it by tacit placement mode %s --mode %s", name, mode, name, mode
                        )  # fmt: skip
                    what = rows.encode_json(changed), rows.CONFIGURATION, rows.CONFIGURATION
                    await self._writer.ask(AppendChange(name, *what))
                new[name] = now
            if new:
                await self._writer.call_store(store.store_configurations, new)
        except NotDurable as error:
            logger.warning("configuration: it was not noted: %s", error)

    @property
    def _is_leader(self) -> bool:
        """True if this engine decides about changes of arms: a single server, or the first shard."""
        return self._engine.shard is None or self._engine.shard.number == 0


# ---- Reads of the log: decisions, changes, rows


class LogQueries:
    """Reads the log of an engine.

    Parameters
    ----------
    store : Store
    writer : Writer
    """

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store, self._writer = store, writer

    async def find_decisions(self, placement: Placement, ids: Sequence[str]) -> dict[str, rows.DecisionRow]:
        """Return decisions of a placement by id, from memory or from the store; unknown ids are left out."""
        find_decision = self._writer.pending.find_decision
        open = {id: row for id in ids if (row := find_decision(placement, id)) is not None}
        keys = [(placement.id, id) for id in ids if id not in open]
        stored_decisions = await self._writer.call_store(self._store.find, keys) if keys else {}
        return open | {id: entry.decision for (_, id), entry in stored_decisions.items()}

    async def history(self, placement: Placement) -> list[LoggedChange]:
        """Return the changes of a placement in the order of the log, with kind and details."""
        first, changes = placement.lifecycle.initial_arms, self._store.changes
        return await self._writer.call_store(lambda: list_changes(changes(placement.id), first))

    async def read(self, after: int, count: int) -> list[rows.Event]:
        """Return up to ``count`` rows of the log after row ``after``."""
        return await self._writer.call_store(lambda: list(islice(self._store.events(after), count)))


# ---- Forgetting users: their data in the log and the archive are blanked, learned states stay


class SubjectEraser:
    """Blanks the data of users, sessions and clients.

    Parameters
    ----------
    engine : Serving
    store : Store
    writer : Writer
    verdicts : Verdicts
        Afterwards they read the log from its beginning again.
    """

    def __init__(self, engine: Serving, store: Store, writer: Writer, verdicts: Verdicts) -> None:
        self._engine, self._store, self._writer, self._verdicts = engine, store, writer, verdicts

    async def forget(self, subject: Subject, who: str | None) -> dict[str, BlankedRows]:
        """Blank the data of a user, session or client in the log and the archive.

        Return the numbers of blanked rows.

        Learned states do not change. The sums of verdicts on duels are reset. A repeated call finds no data.

        Parameters
        ----------
        subject : Subject
        who : str or None
            Name of the API key that requested it.

        Returns
        -------
        dict of str to BlankedRows
            Numbers of blanked rows for each placement that had any.

        Raises
        ------
        NotDurable
            If the store fails, and nothing has changed; or if the archive fails, after the log was blanked.
        """
        done: dict[str, BlankedRows] = {}

        async def blank_log() -> None:
            """Blank the subject's rows in the log, and add their numbers to ``done``."""
            done.update(await self._blank_log(subject, who))

        try:
            await self._writer.run_between_groups(blank_log)
        except StoreError as error:
            raise NotDurable(f"{error}; nothing has changed, try again later") from error
        self._verdicts.forget_sums()
        archive = self._engine.config.store.archive
        if archive is None:
            return done
        # After the log: rows that are archived from now on are blank already.
        return sum_blanked_rows(done, await self._blank_archive(Path(archive), subject))

    async def _blank_log(self, subject: Subject, who: str | None) -> dict[str, BlankedRows]:
        """Blank a subject's data in the log; return the numbers of blanked rows by placement.

        Requests wait meanwhile. Affected placements then apply a change event of kind FORGET, already in the
        log.
        """
        pending, worker = self._writer.pending, self._writer.worker
        with pending.freeze():
            end = End(pending.seq, pending.time.advance())
            try:
                done = await worker.do(forget_user, self._store, subject, end, who)
            finally:
                # A commit that seemed to fail may have worked.
                pending.seq = (await worker.do(self._store.end)).seq
        for name, placement in self._engine.placements.items():
            if name in done:
                # As a fold of the log without this user would have it.
                salt, number = placement.reader.hash_key
                units = subject.hash_units(salt, number, placement.seed)
                placement.windows.open.apply_to_field("asked", partial(remove_unit, units=units))
                if placement.sticky is not None:
                    placement.sticky.forget(units)
                placement.apply_change(rows.ChangeRow(pending.seq, placement.id, end.time, rows.FORGET, ""))
                pending.touch([name])
        return done

    async def _blank_archive(self, folder: Path, subject: Subject) -> dict[str, BlankedRows]:
        """Blank a subject's data in the archive, in a thread.

        Return the numbers of blanked rows by placement.
        """
        from tacit.service.log.archive import blank_archived_rows

        placements = await self._writer.call_store(self._store.placements)
        try:
            return await asyncio.to_thread(blank_archived_rows, folder, subject, placements)
        except OSError as error:
            raise NotDurable(f"store.archive: {error}; do it again") from error


# ---- Exchange between shards of one service: arms, and learned sums


class ShardExchange:
    """Exchange of arms and learned sums between an engine and the other shards.

    Parameters
    ----------
    engine : Serving
    following : ConfigurationLogger
    writer : Writer
    """

    def __init__(self, engine: Serving, following: ConfigurationLogger, writer: Writer) -> None:
        self._engine, self._following, self._writer = engine, following, writer

    def arms(self) -> dict[str, str]:
        """Return the current arms of each placement whose arms can change, by the placement's name.

        They are JSON, as in change events; "" if the arms have never changed.
        """
        placements = (
            placement for placement in self._engine.placements.values() if placement.kind.has_arm_lifecycle
        )
        return {placement.name: placement.current_change(rows.ARMS) or "" for placement in placements}

    async def apply_arms(self, arms: Mapping[str, str], who: str | None = None) -> None:
        """Apply and log the arms of the first shard, from its :meth:`arms`; return once they are durable.

        Placements that this shard does not have yet get the arms when they are added.

        Raises
        ------
        NotDurable
            If they could not be made durable.
        """
        self._following.leading_arms = {**self._following.leading_arms, **arms}
        present = self.arms()
        for name, now in arms.items():
            if name in present and present[name] != now:
                await self._writer.ask(AppendChange(name, now, rows.ARMS, who))

    async def export_learning(self, placement: str, everything: bool = False) -> SharedUpdate:
        """Return what this shard has learned of a placement, once it is durable, as an update.

        Exported sums count as sent: the next call returns only later changes, unless ``everything`` is true.

        Parameters
        ----------
        placement : str
            A placement whose learning is shared by shards.
        everything : bool
            Whether to return all sums; by default only sums that changed since the last call.

        Raises
        ------
        UnknownName, NotDurable
            If there is no such placement, or the store fails.
        """
        self._engine.placement(placement)
        time, parts = await self._writer.ask(Export(placement, everything))
        return SharedUpdate(0 if self._engine.shard is None else self._engine.shard.number, time, parts)

    async def import_learning(self, placement: str, learned: SharedUpdate) -> None:
        """Merge and log an update that another shard has exported; return once it is durable.

        Sums that are known already are left out. Nothing happens if the placement does not share its
        learning.

        Raises
        ------
        UnknownName, NotDurable
            As :meth:`export_learning`.
        """
        target = self._engine.placement(placement)
        if target.shared is not None:
            news = target.shared.filter_update(learned)
            if news.parts:
                await self._writer.ask(AppendChange(placement, rows.encode_json(news), rows.MERGE))
