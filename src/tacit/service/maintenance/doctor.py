"""Checks of a log, an installation and a running service, each with its remedy; forgetting of users.

1. Users forgotten in a log, and found in backups.
2. The log's rows, and the learned state compared with their fold.
3. The installation and the configuration.
4. A running service, by its metrics.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import re
import socket
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import apsw
import msgspec

from tacit.core import name_conflict
from tacit.core.arrays import leaves
from tacit.errors import BEFORE_0_3, ConfigError, TacitError
from tacit.learning.learner import Learner
from tacit.service.config.file import lint_config, load_config
from tacit.service.config.schema import Config, StoreConfig
from tacit.service.engine.fold import fold, load_placement
from tacit.service.engine.stores import open_to_read
from tacit.service.errors import Damaged, NoStore, StoreError
from tacit.service.log.archive import blank_archived_rows
from tacit.service.log.change_events import find_start
from tacit.service.log.ids import as_text
from tacit.service.log.removal import find_damaged_rows, forget_user
from tacit.service.log.rows import FeedbackRow
from tacit.service.log.search_records import Subject
from tacit.service.log.sql import PLACEMENT, Store
from tacit.service.log.sqlite import APPLICATION_ID, VERSION
from tacit.service.log.store import DAMAGE, BlankedRows, describe_rows, sum_blanked_rows
from tacit.service.placements.placement import Placement
from tacit.service.placements.snapshots import export_open_windows
from tacit.service.projections.feedback_rule import compare_delays
from tacit.uplift.sentences import SEND_CLICKS

# ---- Users forgotten while no service runs, and found in backups


def forget(config: Config, store: Store, kind: str, name: str) -> dict[str, BlankedRows]:
    """Blank the data of a user, session or client in a log and its archive.

    Return the numbers of blanked rows.

    The log gets change events for it; learned states do not change.

    Parameters
    ----------
    config : Config
    store : Store
        Without a running service.
    kind, name : str
        As for :class:`~tacit.service.log.search_records.Subject`.

    Returns
    -------
    dict of str to BlankedRows
        Number of blanked rows of each placement that had any.
    """
    subject = Subject(kind, name)
    done = forget_user(store, subject, store.end())
    if config.store.archive is None:
        return done
    archive = Path(config.store.archive)
    return sum_blanked_rows(done, blank_archived_rows(archive, subject, store.placements()))


def has_user_data(path: Path, kind: str, name: str) -> bool:
    """True if a file is a backup of an SQLite store with a subject's data; False for any other file.

    Raises
    ------
    StoreError
        If it is a backup of a version before 0.3, which cannot be searched.
    """
    subject = Subject(kind, name)
    try:
        with closing(apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as backup:
            if backup.pragma("application_id") != APPLICATION_ID:
                return False
            number = backup.execute("SELECT version FROM store").get
            if number < VERSION:
                raise StoreError(f"{path} is of version {number} and {BEFORE_0_3}")
            salt = backup.execute("SELECT salt FROM store").get
            records = backup.execute("SELECT content FROM records")
            if any(subject.blank_record(content) is not None for (content,) in records):
                return True
            units = [
                f'%"unit":"{unit}"%'
                for _, id, _, _, seed, _ in backup.execute(PLACEMENT)
                for unit in subject.hash_units(salt, id, seed)
            ]
            query = "SELECT count(*) FROM decisions WHERE asked LIKE ?"
            return any(backup.execute(query, (unit,)).get for unit in units)
    except apsw.Error:
        return False


# ---- The log, and the learned state compared with it


def verify(config: Config, store: Store) -> list[str]:
    """Check each row and index of a log, and compare learned states with a new fold; return all problems.

    Each placement is folded from its snapshot and from the beginning of the log, and both are compared. If
    rows or indexes are damaged, nothing is folded.

    Returns
    -------
    list of str
        Damage; if there is none, the first difference of each placement, and the first row out of
        order. Empty without problems.
    """
    wrong = store.find_damage()
    try:
        if damaged := find_damaged_rows(store):
            wrong.append(f"{describe_rows(damaged)} are not what was written; {DAMAGE}")
        store.placements()
        store.configurations()
    except StoreError as error:
        wrong.append(str(error))
    if wrong:
        return wrong
    wrong = _find_disorder(store)
    for name, placement_config in config.placements.items():
        stored = store.placements().get(name)
        if stored is None:
            continue
        stored_states = {"snapshot": partial(store.snapshots.load, stored.id)}
        for seq, time in store.snapshots.list_states(stored.id):
            stored_states[f"state of {as_text(time)}"] = partial(store.snapshots.load_state, stored.id, seq)
        for what, load in stored_states.items():
            try:
                load()
            except Damaged as error:
                wrong.append(f"placement {name}: its {what} is {error}")
        # The placement is stored with its seed, so that no new one is needed.
        from_snapshot = load_placement(name, placement_config, store, new_seed=0)
        logged_start = find_start(store.changes(stored.id))
        if logged_start is not None and logged_start != from_snapshot.start:
            wrong.append(
                f"placement {name}: the log begins with {from_snapshot.start}, a mark says {logged_start}"
            )
        from_log = load_placement(name, placement_config, store, new_seed=0, snapshot=False)
        for placement in (from_snapshot, from_log):
            fold({placement.id: placement}, store)
        difference = _find_difference(from_snapshot, from_log)
        if difference:
            wrong.append(f"placement {name}: {difference}")
    return wrong


def _find_disorder(store: Store) -> list[str]:
    """Return a message about the first row that is duplicated, out of order, or feedback on a later row.

    In a list, which is empty if the order is right.
    """
    seq = time = 0
    for event in store.events(0):
        if event.seq == seq:
            return [f"row {seq} is there twice: two servers have written to this log"]
        if event.time < time:
            return [f"row {event.seq} is older than the row before it"]
        if isinstance(event, FeedbackRow) and event.decision >= event.seq:
            return [f"row {event.seq} is feedback for the later row {event.decision}"]
        seq, time = event.seq, event.time
    return []


def _find_difference(from_snapshot: Placement, from_log: Placement) -> str | None:
    """Return the first difference between a placement from a snapshot and one from the whole log, as text.

    Compared are policies, counts, series, lift, results, signals and open windows. None if all are equal.
    """
    both = from_snapshot, from_log
    # Both are of one configuration.
    for what, saved, folded in zip(("policy", "shadow"), *(p.learners for p in both), strict=False):
        if saved.keys != folded.keys:
            return f"{what}: the snapshot has {len(saved.keys)} keys, the log {len(folded.keys)}"
        difference = _find_state_difference(saved, folded)
        if difference is not None:
            return f"{what}: {difference}"
    for what in ("mode", "decisions", "feedback", "outcomes"):
        after, by_log = (getattr(placement, what) for placement in both)
        if after != by_log:
            return f"{what}: {after} after the snapshot, {by_log} by the log"

    def differ(read: Callable[[Placement], Any]) -> bool:
        """True if a function returns different values for the two placements."""
        return bool(read(from_snapshot) != read(from_log))

    if differ(lambda placement: placement.series.to_bytes()):
        return "series: what was counted over time after the snapshot is not that by the log"
    if differ(lambda placement: placement.shared and placement.shared.save_state()):
        return "shared: what other shards sent after the snapshot is not that by the log"
    if differ(lambda placement: msgspec.json.encode(placement.results.export_counts())):
        counts, logged_counts = (placement.results.export_counts() for placement in both)
        return f"counts: {counts} after the snapshot, {logged_counts} by the log"
    # A store that 0.1 began lacks the decisions before the snapshot with which 0.3 opened it.
    firsts = [(placement.lift.past_periods or [placement.lift])[0].seq for placement in both]
    is_comparable = firsts[0] == firsts[1] and not from_snapshot.lift.has_old_sums
    if is_comparable and differ(lambda placement: placement.lift.save_state()):
        return "lift: its sums after the snapshot are not those by the log"
    is_comparable = from_snapshot.series.results.seq == from_log.series.results.seq
    if is_comparable and differ(lambda placement: placement.series.results.save_state()):
        return "results: what arms earned after the snapshot is not that by the log"
    if differ(lambda placement: placement.signals and placement.signals.save_state()):
        return "signals: those after the snapshot are not those by the log"
    windows = (map(msgspec.json.encode, export_open_windows(placement)) for placement in both)
    for saved_window, folded_window in itertools.zip_longest(*windows):
        if saved_window != folded_window:
            return f"open windows: {saved_window!r} after the snapshot, {folded_window!r} by the log"
    return None


def _find_state_difference(saved_learner: Learner, folded_learner: Learner) -> str | None:
    """Return the first difference between the states of two learners as text, or None.

    Both must have the same keys in the same order.
    """
    # Each array has some rows for each key, or 0 of them if all keys share it.
    lanes = saved_learner.lanes
    pairs = zip(leaves(lanes.view_all()), leaves(folded_learner.lanes.view_all()), lanes.rows, strict=True)
    for (field, a), (_, b), rows in pairs:
        for row in range(len(a)):
            if a[row].tobytes() != b[row].tobytes():
                whose = f"key {saved_learner.keys[row // rows]!r}" if rows else "all keys"
                return f"{field} of {whose} is {a[row]} after the snapshot, {b[row]} by the log"
    return None


SOUND_SQLITE = (3, 51, 3)
DEFAULT_PORT = 8787
EXTRAS = {
    "service": "apsw httptools jinja2 msgspec prometheus_client starlette uvicorn uvloop",
    "postgres": "psycopg",
    "ray": "ray",
    "otel": "opentelemetry",
    "client": "httpx msgspec",
    "kafka": "confluent_kafka",
    "plots": "matplotlib",
    "interleaving": "scipy",
}


class Check(NamedTuple):
    """Result of one check of the installation.

    Attributes
    ----------
    name : str
    ok : bool or None
        None for a note, neither good nor bad.
    detail : str
        Result in words.
    remedy : str
        Remedy; empty if none is needed.
    """

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""


def checks(port: int = DEFAULT_PORT, config: Path | None = None) -> list[Check]:
    """Check the installation, and a configuration of the service or, without one, a port; return all results.

    Parameters
    ----------
    port : int
        Port of the service, if there is no configuration.
    config : path, optional

    Returns
    -------
    list of Check

    Examples
    --------
    >>> [check.name for check in checks()][:3]
    ['Python', 'numpy', 'numba']
    """
    return [
        Check("Python", True, f"{platform.python_version()} on {platform.platform()}"),
        *_check_namesake(),
        _check_package("numpy"),
        _check_package("numba"),
        _check_cache(),
        _check_shipped_code(),
        *map(_check_extra, EXTRAS),
        _check_sqlite(),
        _check_python_sqlite(),
        *([_check_port(port)] if config is None else _check_configuration(config)),
    ]


def _check_namesake() -> list[Check]:
    """Return [a failed check] if another package named tacit is installed over this one; else []."""
    name = name_conflict.find_namesake()
    remedy = name_conflict.REMEDY
    return [Check("name", False, f"{name}: another tacit is installed over this one", remedy)] if name else []


def _check_package(name: str) -> Check:
    """Return a check whether a required package is installed, with its version."""
    try:
        return Check(name, True, version(name))
    except PackageNotFoundError:
        return Check(name, False, "missing", "install it with: pip install tacit-learn")


def _check_cache() -> Check:
    """Return a check whether the folder of compiled code, created if missing, can be written."""
    from tacit.core.compilation.loops import cache_root

    root = cache_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=root).close()
    except OSError as error:
        detail = f"{root}: {error.strerror}; every start compiles anew"
        return Check("compiled cache", False, detail, "set TACIT_CACHE_DIR to a folder that can be written")
    return Check("compiled cache", True, str(root))


def _check_shipped_code() -> Check:
    """Return a check whether the wheel's compiled code is for the installed version of numba."""
    from tacit.core.compilation.loops import SHIPPED

    name, path = "compiled code", SHIPPED / "made_for.json"
    if not path.exists():
        return Check(name, None, "none came with the wheel: what is used is compiled once")
    made_for, installed_version = json.loads(path.read_text())["numba"], version("numba")
    if made_for != installed_version:
        text = f"made for numba {made_for}, not {installed_version}: what is used is compiled once"
        return Check(name, None, text, f"for a quicker start: pip install numba=={made_for}")
    return Check(name, True, f"came with the wheel, for numba {installed_version}")


def _check_extra(extra: str) -> Check:
    """Return a check whether an extra's packages are installed; missing ones are no failure."""
    missing = [name for name in EXTRAS[extra].split() if find_spec(name) is None]
    if not missing:
        return Check(f"extra {extra}", True, "installed")
    detail = f"without {', '.join(missing)}"
    return Check(f"extra {extra}", None, detail, f"if needed: pip install 'tacit-learn[{extra}]'")


def _check_sqlite() -> Check:
    """Return a check whether apsw is installed, with a version of SQLite that cannot corrupt the store."""
    if find_spec("apsw") is None:
        return Check("SQLite", None, "apsw is missing", "pip install 'tacit-learn[service]'")
    import apsw

    sqlite_version = apsw.sqlite_lib_version()
    detail = f"{sqlite_version}, from apsw"
    if tuple(map(int, sqlite_version.split("."))) >= SOUND_SQLITE:
        return Check("SQLite", True, detail)
    detail += "; before 3.51.3 a write-ahead log can corrupt its database"
    return Check("SQLite", False, detail, "pip install --upgrade apsw")


def _check_python_sqlite() -> Check:
    """Return a note on the version of Python's own SQLite."""
    note = "unused here"
    if sqlite3.sqlite_version_info < SOUND_SQLITE:
        note += "; do not write to the store with it, its write-ahead log can corrupt a database"
    return Check("Python's own SQLite", None, f"{sqlite3.sqlite_version}, {note}")


def _check_configuration(path: Path) -> list[Check]:
    """Return checks whether a configuration can be loaded and its store and port used, and its warnings."""
    try:
        config = load_config(path)
    except ConfigError as error:
        return [Check("configuration", False, str(error))]
    names = ", ".join(config.placements)
    doubtful = (Check("configuration", None, warning) for warning in lint_config(config))
    return [
        Check("configuration", True, f"{path}: {names}"),
        *doubtful,
        _check_store(config.store),
        _check_port(config.server.port),
    ]


def _check_store(config: StoreConfig) -> Check:
    """Test whether the store can be opened and written, or created if there is none; return the result.

    The store is opened read-only for a moment; nothing is written. A missing store in a database passes the
    test if the database answers.
    """
    place = config.path if config.url is None else f"schema {config.schema} of the database"
    try:
        with closing(open_to_read(config)) as store:
            rows, placements = store.end().seq, len(store.placements())
    except NoStore:
        if config.url is None:
            return _check_new_store(Path(config.path))
        return Check("store", True, f"the database answers; {place} begins at the first start")
    except (TacitError, OSError) as error:
        return Check("store", False, str(error), "mend it before the service is started, or give another")
    if config.url is None and not os.access(config.path, os.W_OK):
        return Check("store", False, f"{place} cannot be written", "let the service's user own it")
    return Check("store", True, f"{place}: {rows:,} rows, {placements} placements")


def _check_new_store(path: Path) -> Check:
    """Test whether a store in a file can be created: whether the nearest existing folder can be written."""
    folder = next(each for each in path.absolute().parents if each.exists())
    if folder.is_dir() and os.access(folder, os.W_OK):
        return Check("store", True, f"{path} begins at the first start")
    remedy = "let the service's user own it, or give another store.path"
    return Check("store", False, f"{path}: {folder} cannot be written", remedy)


def _check_port(port: int) -> Check:
    """Return a check whether a port of this machine is free; the port is opened for a moment."""
    name = f"port {port}"
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        return Check(name, False, str(error.strerror), "stop what listens there, or serve at another --port")
    return Check(name, True, "free")


# ---- A running service

PATIENCE = 10.0
"""Timeout of its answer in seconds."""
WINDOW = "tacit_attribution_window_seconds"
FEW = 100
"""Fewest decisions without a reward of which it warns."""
_SAMPLE = re.compile(r"^(tacit_\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def check_service(url: str, key: str | None = None) -> list[Check]:
    """Check a running service by its metrics; return one failed check if it does not answer.

    The results are the memory of each placement, the delays of clicks, and undeclared values of contexts.

    Parameters
    ----------
    url : str
        Address of the service.
    key : str, optional
        Key with the scope to read, if the service has keys.
    """
    try:
        text = _fetch_metrics(url, key)
    except HTTPError as error:
        is_refused = error.code in (401, 403)
        remedy = "give a key that may read, in TACIT_PLACEMENT_KEY" if is_refused else "see its log"
        return [Check("service", False, f"{url} answered {error.code}", remedy)]
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return [Check("service", False, f"{url}: {reason}", "start it with tacit serve, or give its --url")]
    checks = [Check("service", True, f"answers at {url}")]
    matches = _SAMPLE.findall(text)
    samples = [(name, dict(_LABEL.findall(labels)), float(value)) for name, labels, value in matches]
    values = {(name, tags.get("placement")): value for name, tags, value in samples}
    unlearned = {tags["placement"] for _, tags, count in samples if tags.get("outcome") == "noted" and count}
    for name, tags, number in samples:
        placement = f"placement {tags.get('placement')}"
        if name == "tacit_state_bytes":
            checks.append(Check(placement, True, f"what was learned takes {number:,.0f} bytes"))
        elif name == "tacit_open_windows_bytes":
            detail = f"decisions whose windows are open take {number:,.0f} bytes"
            checks.append(Check(placement, True, detail))
        elif name == "tacit_click_delay_seconds":
            report = compare_delays(tags["placement"], number, values[WINDOW, tags["placement"]])
            checks.append(Check(placement, None if report.remedy else True, *report))
        elif name == "tacit_decisions_total" and not values["tacit_rewards_total", tags["placement"]]:
            closed = number - values["tacit_open_windows", tags["placement"]]
            if closed >= FEW and tags["placement"] not in unlearned:
                detail = f"none of {closed:,.0f} decisions has earned a reward above 0"
                checks.append(Check(placement, None, detail, SEND_CLICKS))
        elif name == "tacit_metric_silent" and number:
            metric = tags["metric"]
            remedy = f'send it with feedback: metrics = {{"{metric}": 5.9}}'
            checks.append(Check(placement, None, f"no amount of {metric} has come", remedy))
        elif name == "tacit_context_others_total" and number:
            field = tags["field"]
            detail = f"{number:,.0f} values of {field} were none of those declared; all count as other"
            remedy = f'declare them in context.{field}, or let any be: {field} = "category"'
            checks.append(Check(placement, None, detail, remedy))
    return checks


def _fetch_metrics(url: str, key: str | None) -> str:
    """Return the metrics of a service as text; raise an error of urllib, or ValueError for a wrong scheme."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("give an address that begins with http:// or https://")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = Request(f"{url.rstrip('/')}/metrics", headers=headers)  # noqa: S310
    with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
        return str(answer.read().decode())
