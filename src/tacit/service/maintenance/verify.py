"""The log as a whole: somebody forgotten in it, and the state checked against it."""

from __future__ import annotations

import itertools
from pathlib import Path

import apsw
import msgspec

from tacit.core.arrays import leaves
from tacit.learning.learner import Learner
from tacit.service.config.schema import Config
from tacit.service.engine.fold import fold, opened
from tacit.service.errors import Damaged, StoreError
from tacit.service.log.archive import forget_archived
from tacit.service.log.marks import marked_start
from tacit.service.log.rows import FeedbackRow
from tacit.service.log.searches import Subject
from tacit.service.log.sql import PLACEMENT
from tacit.service.log.sqlite import APPLICATION_ID
from tacit.service.log.store import DAMAGE, BlankedRows, Store, added, rows_text
from tacit.service.placements.placement import Placement

# ---- Forgetting somebody while no service runs, and finding them in backups


def forget(config: Config, store: Store, kind: str, name: str) -> dict[str, BlankedRows]:
    """Blank what rows of a log and of its archive tell of somebody.

    Parameters
    ----------
    config : Config
    store : Store
        That nobody serves.
    kind, name : str
        As those of a :class:`~tacit.service.log.searches.Subject`.

    Returns
    -------
    dict of str to BlankedRows
        How many rows it was, of each placement where there were any.
    """
    subject = Subject(kind, name)
    done = store.forget(subject, store.end())
    if config.store.archive is None:
        return done
    archive = Path(config.store.archive)
    return added(done, forget_archived(archive, subject, store.placements()))


def holds(path: Path, kind: str, name: str) -> bool:
    """Whether a file is a backup of a store in SQLite that tells of somebody."""
    subject = Subject(kind, name)
    try:
        backup = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
    except apsw.Error:
        return False
    try:
        if backup.pragma("application_id") != APPLICATION_ID:
            return False
        columns = {row[1] for row in backup.execute("PRAGMA table_info(store)")}
        salt = backup.execute("SELECT salt FROM store").get if "salt" in columns else ""
        found = backup.execute("SELECT content FROM records")
        if any(subject.without(content) is not None for (content,) in found):
            return True
        units = [
            f'%"unit":"{unit}"%'
            for _, id, _, _, seed in backup.execute(PLACEMENT)
            for unit in subject.units(salt or "", id, seed)
        ]
        asked = "SELECT count(*) FROM decisions WHERE asked LIKE ?"
        return any(backup.execute(asked, (unit,)).get for unit in units)
    except apsw.Error:
        return False
    finally:
        backup.close()


# ---- The log checked against what was learned from it


def verify(config: Config, store: Store) -> list[str]:
    """Look at each row and index, fold the log anew and compare with what the snapshots lead to.

    Returns
    -------
    list of str
        What is damaged; if nothing is, the first difference of each placement, and the first row
        out of order. Empty if all is well.
    """
    wrong = store.unsound()
    try:
        if damaged := store.damaged():
            wrong.append(f"{rows_text(damaged)} are not what was written; {DAMAGE}")
    except StoreError as error:
        wrong.append(str(error))
    if wrong:
        return wrong
    wrong = _disorder(store)
    for name, each in config.placements.items():
        stored = store.placements().get(name)
        if stored is None:
            continue
        try:
            store.snapshot(stored.id)
        except Damaged as error:
            wrong.append(f"placement {name}: its snapshot is {error}")
        kept = opened(name, each, store, 0)
        marked = marked_start(store.changes(stored.id))
        if marked is not None and marked != kept.start:
            wrong.append(f"placement {name}: the log begins with {kept.start}, a mark says {marked}")
        anew = opened(name, each, store, 0, snapshot=False)
        for placement in (kept, anew):
            fold({placement.id: placement}, store)
        difference = _difference(kept, anew)
        if difference:
            wrong.append(f"placement {name}: {difference}")
    return wrong


def _disorder(store: Store) -> list[str]:
    seq = time = 0
    for event in store.events(0):
        if event.seq == seq:
            return [f"row {seq} is there twice: two servers have written to this log"]
        if event.time < time:
            # Stores of the first version kept the wall's time, which may go back.
            return [f"row {event.seq} is older than the row before it"]
        if isinstance(event, FeedbackRow) and event.decision >= event.seq:
            return [f"row {event.seq} is feedback for the later row {event.decision}"]
        seq, time = event.seq, event.time
    return []


def _difference(kept: Placement, anew: Placement) -> str | None:
    # Both are of one configuration.
    for what, one, other in zip(("policy", "shadow"), kept.learners, anew.learners, strict=False):
        if one.keys != other.keys:
            return f"{what}: the snapshot has {len(one.keys)} keys, the log {len(other.keys)}"
        found = _first_difference(one, other)
        if found is not None:
            return f"{what}: {found}"
    for what in ("mode", "decisions", "feedback", "outcomes"):
        if getattr(kept, what) != getattr(anew, what):
            return f"{what}: {getattr(kept, what)} after the snapshot, {getattr(anew, what)} by the log"
    if kept.series.to_bytes() != anew.series.to_bytes():
        return "series: what was counted over time after the snapshot is not that by the log"
    if (kept.shared and kept.shared.saved(kept)) != (anew.shared and anew.shared.saved(anew)):
        return "shared: what other shards sent after the snapshot is not that by the log"
    if msgspec.json.encode(kept.counts()) != msgspec.json.encode(anew.counts()):
        return f"counts: {kept.counts()} after the snapshot, {anew.counts()} by the log"
    # A snapshot of an earlier version knows nothing of the decisions before it.
    firsts = [(placement.lift.past or [placement.lift])[0].seq for placement in (kept, anew)]
    if firsts[0] == firsts[1] and kept.lift.saved() != anew.lift.saved():
        return "lift: its sums after the snapshot are not those by the log"
    kept_results, results = kept.series.results, anew.series.results
    if kept_results.seq == results.seq and kept_results.saved() != results.saved():
        return "results: what arms earned after the snapshot is not that by the log"
    known = [p.signals and p.signals.saved(p) for p in (kept, anew)]
    if known[0] != known[1]:
        return "signals: those after the snapshot are not those by the log"
    after, by_log = (
        [msgspec.json.encode(open) for open in placement.open_windows()] for placement in (kept, anew)
    )
    for mine, its in itertools.zip_longest(after, by_log):
        if mine != its:
            return f"open windows: {mine!r} after the snapshot, {its!r} by the log"
    return None


def _first_difference(kept: Learner, anew: Learner) -> str | None:
    """Return where what two learners of the same keys have learned differs first."""
    lanes = kept.lanes
    pairs = zip(leaves(lanes.used()), leaves(anew.lanes.used()), lanes.rows, strict=True)
    for (field, a), (_, b), rows in pairs:
        for row in range(len(a)):
            if a[row].tobytes() != b[row].tobytes():
                whose = f"key {kept.keys[row // rows]!r}" if rows else "all keys"
                return f"{field} of {whose} is {a[row]} after the snapshot, {b[row]} by the log"
    return None
