"""Faults under load: what was acknowledged must all be there once, and the state be the log's.

Requests are of arms, holdouts, duels, lists and items of a catalogue; two placements get clicks alone, and
silence counts when windows close; a file is fed, and a process spools.

python tests/chaos.py --faults 200
"""

import argparse
import contextlib
import http.client
import itertools
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import msgspec
import numpy as np
import stores
from chaos_beside import FileFeed, SpooledCaller, missing
from click_lessons import check_lessons
from click_traffic import CLICK_PLACEMENTS, CLICK_WINDOWS, ClickTraffic
from forked import Forked
from harness import PATIENCE, Client, eventually
from placement_access import ItemsChange, decode_shown, open_store

from tacit.service.config.file import load_config
from tacit.service.log.rows import DecisionRow, FeedbackRow, decode_list
from tacit.service.log.search_records import SearchFields
from tacit.service.maintenance.doctor import verify

CLIENTS = 6
WORK = 20
SERVE = """
import sys, time
wall, skew = time.time_ns, int(float(sys.argv[2]) * 1e9)
time.time_ns = lambda: wall() + skew
from tacit.service.log import postgres
from tacit.service.engine import upkeep as retention
postgres.START_SECONDS = float(sys.argv[3])
retention.SEARCH_INTERVAL = 500_000
from tacit.service.config.file import load_config
from tacit.service.app.server import serve
serve(load_config(sys.argv[1]), reread=lambda: load_config(sys.argv[1]))
"""
CONFIG = """
[server]
port = {port}
log = "json"
[store]
retention = {days}
archive = "{archive}"
{store}
[placements.home]
arms = {arms}
policy = "thompson(discount=0.99)"
seed = 11
snapshot_every = 400
attribution_window = 0.3
"""
PLACEMENTS = (Path(__file__).parent / "data" / "chaos.toml").read_text() + CLICK_PLACEMENTS
KEPT_SECONDS = 60.0
"""For which rows are kept; what is sent again is so within half of it."""
ITEMS = [f"item {i}" for i in range(6)]
EXTRA = "extra item"
LISTED = {"search": "duel", "lists": "slate"}
"""How placements that show lists, which are clicked, are asked."""
RANKINGS = {"old": ["a", "b", "c"], "new": ["b", "d", "a"]}
USERS = 50
ARMS = ["a", "b", "c", "d"]
MOST_ARMS = 10
POLICIES = ["thompson", "thompson(discount=0.99)", "exp3"]
FOREVER = "2100-01-01"
KILL, SKEW, STOP, FULL = "kill -9", "kill -9, clock skewed", "stop", "disk full"
CUT, SLOW = "cut", "slow database"
FEED, SPOOL = "feed killed", "spooling process killed"
FAULTS = {
    "sqlite": (KILL, SKEW, FEED, STOP, FULL, SPOOL, FULL),
    "postgres": (KILL, SKEW, FEED, STOP, CUT, SPOOL, SLOW, FULL),
}
WRITER = "SELECT pid FROM pg_stat_activity WHERE application_name = 'tacit'"


class Clients:
    """Threads that decide and click, resend, delay and reorder, and remember every answer."""

    def __init__(self, port, seed, feed):
        self.decided, self.told, self.since, self.users = {}, {}, {}, {}
        self._feed = feed
        self.answers, self.wrong = Counter(), []
        self._port, self._over = port, threading.Event()
        self._threads = [
            threading.Thread(target=self._play, args=(random.Random(f"{seed} {i}"), i))
            for i in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def acknowledged(self):
        return len(self.decided) + len(self.told)

    def stop(self):
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _play(self, rng, number):
        waiting, connection = [], None
        for count in itertools.count():
            if self._over.is_set():
                return
            placement = rng.choice(["home", "home", "sum", "held", "search", "lists", "items", "fed"])
            id = f"{number} {count}"
            asked = {"key": f"key {rng.randrange(20)}", "decision_id": id}
            if placement in ("held", "search"):
                asked["user"] = f"user {rng.randrange(USERS)}"
            if placement == "search":
                asked["rankings"] = RANKINGS
            if placement == "items":
                asked["arms"] = rng.sample(ITEMS, 4)
            requests = [(placement, LISTED.get(placement, "decide"), asked, (placement, id))]
            if waiting and rng.random() < 0.7:
                # Out of order, and some of it after its window.
                where, what, reward = waiting.pop(rng.randrange(len(waiting)))
                told = {"decision_id": what, "feedback_id": "click"}
                told |= {"clicks": [0]} if where in LISTED else {"reward": reward}
                if where == "held":
                    told["metrics"] = {"seconds": 3.0}
                requests.append((where, "clicks" if where in LISTED else "feedback", told, (where, what)))
            for where, what, body, name in requests:
                for _ in range(1 + (rng.random() < 0.2)):
                    connection, answer = self._sent(connection, where, what, body)
                    if answer is None:
                        break
                    self._note(what, name, body, answer)
            if placement == "fed" and (placement, id) in self.decided:
                self._feed.add(id, float(rng.random() < 0.3), 1 + (rng.random() < 0.2))
            elif rng.random() < 0.7:
                waiting.append((placement, id, float(rng.random() < 0.3)))
            del waiting[:-30]

    def _sent(self, connection, placement, what, body):
        """Send until it is answered: ids make that safe."""
        while not self._over.is_set():
            try:
                if connection is None:
                    connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=15)
                path = f"/v1/placements/{placement}/{what}"
                connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
                response = connection.getresponse()
                answer = json.loads(response.read())
            except (OSError, http.client.HTTPException, ValueError):
                connection = None
                time.sleep(0.02)
                continue
            self.answers[response.status] += 1
            if response.status == 200:
                return connection, answer
            if response.status != 503:
                # A decision that was given up unanswered was never made, and an old one is gone.
                made = self.since.get((placement, body["decision_id"]), 0.0)
                if response.status != 404 or made > time.monotonic() - KEPT_SECONDS / 2:
                    self.wrong.append((what, body, answer))
                return connection, None
            time.sleep(0.02)
        return connection, None

    def _note(self, what, name, body, answer):
        if what in ("feedback", "clicks"):
            self.told[name] = body.get("reward", body.get("clicks"))
            return
        shown = body["key"], answer.get("arm"), answer["propensity"]
        if what == "duel":
            shown = body["key"], answer["items"], None
            self.users[name] = body["user"]
        elif what == "slate":
            shown = body["key"], answer["slate"], answer["propensity"]
        self.since.setdefault(name, time.monotonic())
        if self.decided.setdefault(name, shown) != shown:
            self.wrong.append(("another answer", name, shown))


@contextlib.contextmanager
def limited(pid, as_owner=()):
    """Let no file that a process writes grow beyond a page; the process may end of it."""
    for soft in ("4096", "unlimited"):
        command = [*as_owner, "prlimit", f"--pid={pid}", f"--fsize={soft}:"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or "No such process" in done.stderr, done.stderr
        if soft == "4096":
            yield


class Operator:
    """A thread that pins arms, changes a holdout, rebuilds with another policy and rolls back, and
    lets arms come and go: over HTTP, and by the configuration."""

    def __init__(self, port, configure, reread, seed):
        self.wrong, self.forgotten = [], []
        self.acknowledged = {kind: [] for kind in CHANGES}
        self._client, self._rng = Client(f"http://127.0.0.1:{port}"), random.Random(f"arms {seed}")
        self._configure, self._reread = configure, reread
        self._over = threading.Event()
        assert self.put_items(ITEMS)
        self._thread = threading.Thread(target=self._turn)
        self._thread.start()

    def stop(self):
        self._over.set()
        self._thread.join(PATIENCE)

    def _turn(self):
        for count in itertools.count():
            time.sleep(self._rng.uniform(0.0, 0.2))
            if self._over.is_set():
                return
            if self._rng.random() < 0.2:
                self._configure(self._rng.sample([*ARMS, "of a file"], self._rng.randint(2, 5)))
                self._reread()
                continue
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                turn = self._rng.random()
                if turn < 0.2:
                    self._pin(self._rng.choice([None, *ARMS]))
                elif turn < 0.3:
                    self._regime("rebuild", {"policy": self._rng.choice(POLICIES)})
                elif turn < 0.35:
                    self._regime("rollback", {})
                elif turn < 0.4:
                    self._forget(f"user {self._rng.randrange(USERS)}")
                elif turn < 0.45:
                    self._change_items()
                elif turn < 0.5:
                    self._hold(self._rng.choice([None, 0.1, 0.2, 0.4]))
                else:
                    self._change(f"new {count}")

    def _pin(self, arm):
        """Pin an arm, if it is on offer, or none; whether it holds unless it is said, who knows."""
        path = "/v1/placements/home/pin"
        if arm is None:
            answer = self._ask("DELETE", path, None, 422)
        else:
            answer = self._ask("POST", path, {"arms": [arm], "until": FOREVER}, 422)
        if answer is not None:
            self.acknowledged["pin"].append(answer["pinned"] and answer["pinned"]["arms"])

    def put_items(self, items):
        """Put items into the catalogue, or give them other vectors; whether that is acknowledged."""
        vectors = [[self._rng.randrange(-32, 33) / 4 for _ in range(4)] for _ in items]
        put = [{"id": id, "vector": vector} for id, vector in zip(items, vectors, strict=True)]
        return self._ask_items("PUT", "items", {"items": put}, (items, vectors))

    def _change_items(self):
        if self._rng.random() < 0.3 and self.put_items([EXTRA]):
            self._ask_items("POST", "items/remove", {"ids": [EXTRA]}, ([EXTRA], None))
        else:
            self.put_items(self._rng.sample(ITEMS, self._rng.randint(1, 3)))

    def _ask_items(self, method, what, body, change):
        is_acknowledged = self._ask(method, f"/v1/placements/items/{what}", body, 422) is not None
        if is_acknowledged:
            self.acknowledged["items"].append(change)
        return is_acknowledged

    def _forget(self, user):
        """Let a user be forgotten, and remember since when that holds."""
        begun = time.monotonic()
        if self._ask("DELETE", f"/v1/subjects/user/{quote(user)}") is not None:
            self.forgotten.append((user, begun))

    def _hold(self, share):
        """Give a control another share, or end the holdout."""
        path = "/v1/placements/held/holdout"
        if share is None:
            answer = self._ask("DELETE", path)
        else:
            answer = self._ask("POST", path, {"share": share, "unit": "user"})
        if answer is not None:
            self.acknowledged["holdout"].append(answer["holdout"] and answer["holdout"]["share"])

    def _regime(self, what, asked):
        """Let another policy decide; 422 where there is nothing to roll back to, or not with these
        arms, 409 where the configuration was changed meanwhile."""
        answer = self._ask("POST", f"/v1/placements/home/{what}", asked, 422, 409)
        if answer is not None:
            self.acknowledged["policy"].append(answer["left"])

    def _ask(self, method, path, body=None, *refusals):
        """Return the answer to a request, or None; 503 and the refusals may be, others are noted as wrong."""
        status, _, answer = self._client.ask(method, path, body)
        if status not in (200, 503, *refusals):
            self.wrong.append((method, path, body, answer))
        return answer if status == 200 else None

    def _change(self, name):
        """Change arms once: whether a change that is not acknowledged holds is not known."""
        known = self._change_arms({})
        if known is None:
            return
        every = [*known["arms"], *known["retired"]]
        change = {"restore": [self._rng.choice(every)]}
        if len(known["arms"]) > 2:
            change = {"retire": [self._rng.choice(known["arms"])]}
        if self._rng.random() < 0.5 and len(every) < MOST_ARMS:
            change = {"add": [name]} | (change if "retire" in change else {})
        became = self._change_arms(change)
        if became is not None:
            self.acknowledged["arms"].append((became["arms"], became["retired"]))

    def _change_arms(self, change):
        refusals = [422] if "of a file" in str(change) else []
        return self._ask("POST", "/v1/placements/home/arms", change, *refusals)


class Run:
    """A server on one store, its clients, and the faults that it suffers."""

    def __init__(self, kind, folder, seed):
        self.kind, self.folder, self.rng = kind, folder, random.Random(f"{kind} {seed}")
        self.counts, self.problems, self.checks = Counter(), [], 0
        self.ahead, self.archived = 0.0, 0
        if kind == "postgres":
            self.cluster = stores.cluster()
            url, self.schema = self.cluster.url, stores.schema_of(folder)
            store = f'url = "{url}"\nschema = "{self.schema}"'
        else:
            store = 'path = "s.db"'
        self.port = stores.free_port()
        self.path = folder / "tacit.toml"
        self.store, self.serving, self.lock = store, False, threading.Lock()
        self.configure(ARMS)
        self.log = (folder / "server.log").open("w")
        self.start(0.0)
        self.operator = Operator(self.port, self.configure, self.reread, seed)
        url = f"http://127.0.0.1:{self.port}"
        self.feed, self.caller = FileFeed(url, folder), SpooledCaller(url, folder)
        self.clients = Clients(self.port, seed, self.feed)
        self.traffic, self.lessons, self.moments = ClickTraffic(self.port, seed), Counter(), Counter()

    def configure(self, arms):
        """Let the configuration name other arms; whoever reads it meanwhile reads a whole file."""
        new = self.path.with_suffix(".new")
        new.write_text(
            CONFIG.format(
                port=self.port,
                store=self.store,
                arms=json.dumps(arms),
                days=KEPT_SECONDS / 86_400,
                archive=self.folder / "archive",
            )
            + PLACEMENTS
        )
        new.replace(self.path)

    def reread(self):
        """Let the service read its configuration, if it listens to signals by now."""
        with self.lock:
            if self.serving:
                self.process.send_signal(signal.SIGHUP)

    def start(self, skew):
        self.await_database()
        command = "-c", SERVE, self.path, skew, PATIENCE
        self.process = Forked(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("tacit serves at"), (self.folder / "server.log").read_text()[-2000:]
        self.serving = True

    def end(self, number):
        with self.lock:
            self.serving = False
            self.process.send_signal(number)
        self.process.wait(PATIENCE)
        self.process.stdout.close()

    def suffer(self, fault):
        self.counts[fault] += 1
        self.await_work()
        time.sleep(self.rng.uniform(0.1, 0.6))
        if fault == FEED:
            self.feed.kill()
        elif fault == SPOOL:
            self.caller.kill()
        elif fault == FULL:
            fill = self.fill_database if self.kind == "postgres" else self.fill_disk
            fill(self.rng.uniform(0.05, 0.4))
        elif fault == CUT:
            with self.database() as connection:
                connection.execute(f"SELECT pg_terminate_backend(pid) FROM ({WRITER}) AS writer")
        elif fault == SLOW:
            with self.database() as connection, connection.transaction():
                connection.execute(f"LOCK TABLE {self.schema}.decisions")
                time.sleep(self.rng.uniform(0.3, 2.0))
        else:
            if fault != STOP and self.rng.random() < 0.5:
                self.traffic.await_close(self.rng)
            self.end(signal.SIGTERM if fault == STOP else signal.SIGKILL)
            self.check(killed=fault != STOP)
            # Forward by less than rows are kept for, or those that are sent again would be gone.
            skew = self.rng.uniform(-7200, KEPT_SECONDS / 4) if fault == SKEW else self.ahead
            # One that was set forward stays so: the log's time never goes back.
            self.ahead = max(self.ahead, skew)
            self.start(skew)

    def await_work(self):
        """Let the service get some work done between faults, however slow the machine."""
        enough = self.clients.acknowledged + WORK
        eventually(lambda: self.clients.acknowledged >= enough)

    def fill_disk(self, seconds):
        """Let no file of the service grow for a while."""
        with limited(self.process.pid):
            time.sleep(seconds)

    def fill_database(self, seconds):
        """Let no file of the database's writer grow for a while, its write-ahead log included.

        The server then ends in a panic, as it does when its disk is full, and recovers.
        """
        with self.database() as connection:
            pids = [pid for (pid,) in connection.execute(WRITER)]
        with contextlib.ExitStack() as limits:
            for pid in pids:
                limits.enter_context(limited(pid, self.cluster.prefix))
            time.sleep(seconds)

    def await_database(self):
        """Wait until the database, if there is one, has recovered."""
        if self.kind == "postgres":
            self.database().close()

    def database(self):
        """Connect to the database, once it is there."""
        import psycopg

        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return psycopg.connect(self.cluster.url, autocommit=True)
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def check(self, killed=False, last=False):
        """Compare the log with what was acknowledged, and what was learned with the log.

        The ``last`` time also with all that was fed and spooled; where the service was ``killed``, say at
        which moment of its windows.
        """
        self.checks += 1
        decided, told = dict(self.clients.decided), dict(self.clients.told)
        # Copied in one step each: the threads go on.
        decided |= self.traffic.decided.copy()
        told |= self.traffic.told.copy()
        acknowledged = {kind: list(changes) for kind, changes in self.operator.acknowledged.items()}
        forgotten = list(self.operator.forgotten)
        config = load_config(self.path)
        self.await_database()
        store = open_store(config.store)
        try:
            names = {p.id: name for name, p in store.placements().items()}
            decisions, rewards, ids = Counter(), Counter(), {}
            logged = {kind: [] for kind in CHANGES} | {"arms": [(ARMS, [])], "pin": [None]}
            shown, rewarded, units = {}, {}, {}
            self.seqs = {row.seq for row in store.events(0) if isinstance(row, DecisionRow)}
            gone = self.archive(names, decisions, rewards, shown, rewarded, units)
            for event in store.events(0):
                if isinstance(event, DecisionRow):
                    name = names[event.placement], event.id
                    ids[event.seq] = name
                    decisions[name] += 1
                    self.take_decision(name, event, shown, units)
                    if name[0] == "home" and event.arm not in self.offered(event, logged["arms"]):
                        self.problems.append(f"not on offer: {event}")
                elif isinstance(event, FeedbackRow):
                    rewards[ids[event.decision]] += 1
                    rewarded[ids[event.decision]] = read_feedback(event.reward, event.clicks)
                elif event.kind in CHANGES:
                    logged[event.kind].append(CHANGES[event.kind](event.value))
            for kind, changes in logged.items():
                self.problems += lost_of(acknowledged[kind], changes)
            self.problems += repeated_arms(*logged["arms"][-1])
            if last:
                self.problems += missing(self.feed, self.caller, shown, rewarded)
            self.problems += self.remembered(forgotten, units)
            for what, answered, stored, counted in (
                ("decision", decided, shown, decisions),
                ("feedback", told, rewarded, rewards),
            ):
                lost = [name for name, v in answered.items() if stored.get(name) != v]
                twice = [name for name, count in counted.items() if count > 1]
                self.problems += [f"{what} lost: {name}" for name in lost]
                self.problems += [f"{what} twice: {name}" for name in twice]
            self.problems += verify(config, store)
            self.check_clicks(config, store, killed)
            self.rows, self.archived = store.end().seq, gone
        finally:
            store.close()

    def check_clicks(self, config, store, killed):
        """Check that each decision that had clicks alone was learned once, or waits."""
        for name in CLICK_WINDOWS:
            report = check_lessons(name, config, store)
            self.problems += report.problems
            self.lessons[name] = max(self.lessons[name], report.lessons)
            if killed:
                self.moments[f"{name}: decisions wait"] += report.waiting > 0
                self.moments[f"{name}: between a click and its window's close"] += report.waiting_clicked > 0
                self.moments[f"{name}: while windows close"] += report.closing > 0

    def archive(self, names, decisions, rewards, shown, rewarded, units):
        """Take in the rows that were archived; return how many.

        After a crash those of one step may be there again, in the archive or in the store.
        """
        ids, found = {}, 0
        for name in names.values():
            for row in self.archived_rows(name, "decisions"):
                known = name, row["id"]
                ids[row["seq"]] = known
                decisions[known] = int(row["seq"] not in self.seqs)
                logged = SimpleNamespace(**row | {"arm": json.loads(row["arm"])})
                self.take_decision(known, logged, shown, units)
                found += 1
            for row in self.archived_rows(name, "feedback"):
                rewards[ids[row["decision"]]] = int(row["decision"] not in self.seqs)
                rewarded[ids[row["decision"]]] = read_feedback(row["reward"], row["clicks"])
        return found

    def take_decision(self, name, row, shown, units):
        """Note what a decision of the log or of the archive showed, and the unit of a search."""
        shown[name] = row.key, row.arm, row.propensity
        if name[0] == "lists":
            shown[name] = row.key, decode_list(row.shown).arms, row.propensity
        elif name[0] == "search":
            shown[name] = row.key, list(decode_shown(row.shown).interleaved.items), None
            units[name] = SearchFields.read(row.asked).unit

    def archived_rows(self, name, kind):
        import pyarrow.parquet as pq

        for path in sorted((self.folder / "archive" / name).glob(f"{kind}-*.parquet")):
            yield from pq.read_table(path).to_pylist()

    def remembered(self, forgotten, units):
        """Return the decisions that tell of somebody who was forgotten after them."""
        since, users = dict(self.clients.since), dict(self.clients.users)
        last = dict(forgotten)
        return [
            f"remembered: {name}"
            for name, user in users.items()
            if user in last and since[name] < last[user] and units.get(name) is not None
        ]

    def offered(self, row, arms):
        """Return the arms on offer at a decision, which are those of the last change."""
        now = arms[-1][0]
        told = ARMS if row.offered is None else json.loads(row.offered)
        if told != now or not 0.0 < row.propensity <= 1.0:
            self.problems.append(f"offered {told} in place of {now}: {row}")
        return now

    def finish(self):
        self.operator.stop()
        self.clients.stop()
        self.traffic.close()
        self.problems += self.feed.finish() + self.caller.finish()
        self.end(signal.SIGTERM)
        self.check(last=True)
        self.log.close()
        wrong = [*self.clients.wrong, *self.operator.wrong, *self.traffic.wrong]
        self.problems += [f"wrong answer: {w}" for w in wrong]
        return {
            "store": self.kind,
            "faults": dict(self.counts),
            "checks": self.checks,
            "rows": self.rows,
            "acknowledged": self.clients.acknowledged,
            "archived": self.archived,
            "forgotten": len(self.operator.forgotten),
            "changes": {kind: len(changes) for kind, changes in self.operator.acknowledged.items()},
            "decided with clicks alone": len(self.traffic.decided),
            "clicks": len(self.traffic.told),
            "lessons of one check": dict(self.lessons),
            "moments of kills": dict(self.moments),
            "events": len(self.feed.sent),
            "spooled": len(self.caller.decided),
            "answers": dict(self.clients.answers),
            "problems": self.problems,
        }


def read_feedback(reward, clicks):
    """Return a reward, or the clicks of a list."""
    return reward if clicks is None else json.loads(clicks)


def changed_items(mark):
    """Return the items of a mark, and their vectors; None where they were taken out."""
    change = msgspec.json.decode(mark, type=ItemsChange)
    if change.vectors is None:
        return change.ids, None
    return change.ids, np.frombuffer(change.vectors, np.float16).reshape(-1, 4).astype(float).tolist()


def on_offer(mark):
    """Return the arms on offer, and those retired, of a mark."""
    now = json.loads(mark)
    return [arm for arm in now["arms"] if arm not in now["retired"]], now["retired"]


def repeated_arms(offered, retired):
    """Return the arms that are twice among those on offer and retired, as problems."""
    return [f"arm twice: {name}" for name, count in Counter([*offered, *retired]).items() if count > 1]


CHANGES = {
    "arms": on_offer,
    "policy": lambda change: json.loads(change)["left"],
    "holdout": lambda change: (json.loads(change)["holdout"] or {}).get("share"),
    "items": changed_items,
    "pin": lambda change: (json.loads(change) or {}).get("arms"),
}
"""What a change event of each kind says, as the operator remembers it of the answer."""


def lost_of(acknowledged, logged):
    """Return the first change that is not in the log after those before it."""
    states = iter(logged)
    last, lost = object(), []
    for change in acknowledged:
        # What changed nothing is no event.
        if change != last and change not in states:
            lost.append(f"change lost: {change}")
            break
        last = change
    return lost


def chaos(kind, folder, faults, seed):
    """Let a service suffer faults; return the report."""
    run = Run(kind, folder, seed)
    try:
        kinds = FAULTS[kind]
        for i in range(faults):
            run.suffer(kinds[i % len(kinds)])
    finally:
        report = run.finish()
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    bad = False
    for kind in stores.KINDS:
        with tempfile.TemporaryDirectory() as folder:
            report = chaos(kind, Path(folder), told.faults // len(stores.KINDS), told.seed)
        print(json.dumps(report, indent=1), flush=True)
        bad |= bool(report["problems"])
    sys.exit(bad)
