"""Record what a placement does, for each kind with each combination of options, as digests.

The guard of a change that must not change behaviour: traffic goes through the web application, and what
comes of it is compared with what was recorded. Run by hand::

    PYTHONPATH=src python tests/record_combinations.py --check [COMBINATION ...]
    PYTHONPATH=src python tests/record_combinations.py --dump FOLDER [COMBINATION ...]
    PYTHONPATH=src python tests/record_combinations.py --record [COMBINATION ...]

``--check`` prints which parts of which combinations differ; ``--dump`` writes the whole text of each part, so
that two versions of the code can be compared by ``diff -r``; ``--record`` writes ``tests/data/behaviour``. A
combination is named as ``auto.pin_holdout-user``; ``auto.*`` and ``*.pin*`` stand for several.
``test_combinations.py`` compares all of them.

Parts of a combination: ``answers`` to requests, ``rows`` of the log, ``states`` (the content of snapshots:
learners, series, open decisions) and ``reports`` (JSON, metrics, pages) at the end; ``saved``, the snapshot
in the middle; ``folded`` and ``restored``: states and reports from the log alone, and from that snapshot on.
With two shards there are ``merged`` reports.
"""

import argparse
import asyncio
import contextlib
import fnmatch
import functools
import hashlib
import io
import json
import logging
import math
import re
import shutil
import sys
import warnings
import zipfile
from collections import defaultdict
from pathlib import Path
from unittest import mock
from urllib.parse import quote

import apsw
import jinja2
import numpy as np
import record_behaviour as recorder
from harness import START, Clock, configured, quiet
from placement_access import join_shards
from record_behaviour import ITEM_DIM, ROUND, WINDOW

from tacit import __version__
from tacit.cluster import shards
from tacit.errors import ConfigError
from tacit.service.app import app
from tacit.service.engine import writer
from tacit.service.engine.engine import Engine
from tacit.service.log import ids
from tacit.service.log.ids import Shard
from tacit.service.log.sqlite import SqliteStore
from tacit.service.page.timeline import AnswerCounts
from tacit.wire.control import ArmsOf, ModeOf, PinOf, RebuildOf, RollbackOf

DATA = Path(__file__).parent / "data" / "behaviour"

# The combinations ------------------------------------------------------------------------------

KINDS = {name: table for name, table in recorder.KINDS.items() if name != "thompson"} | {
    "restarts": {"arms": ["a", "b", "c"], "policy": "cusum-ucb(samples=4, threshold=1.0, alpha=0.2)"}
}
"""Of each kind its table; the policy of ``restarts`` begins again when rewards change, as they do there."""
SECOND_POLICY = recorder.SECOND_POLICY | {"restarts": "thompson"}
REBUILT = recorder.REBUILT | {"restarts": "thompson"}
HALF = recorder.HALF
OPTIONS = recorder.OPTIONS | {
    "control-user-policy": {"holdout": HALF | {"unit": "user", "control": {"policy": True}}},
    "control-session-baseline": {"holdout": HALF | {"unit": "session", "control": "baseline"}},
    "look": {"holdout": HALF | {"look": ids.as_text(START + 8 * ROUND)}},
    "hold-out": {
        "changes": {
            3: ("POST", "holdout", {"share": 0.4}),
            7: ("POST", "holdout", {"share": 0.3, "control": "baseline"}),
            11: ("DELETE", "holdout", None),
        }
    },
    "unpin": {"changes": {3: recorder.pin_arms, 6: ("DELETE", "pin", None)}},
    "numbered": {"arms": 3, "changes": {4: ArmsOf(add=1), 7: ArmsOf(retire=[1]), 11: ArmsOf(restore=[1])}},
    "fed": {"changes": {5: ("PUT", "fed", {"feed": "clicks", "offsets": {"0": 7}})}},
    "keys": {"most_keys": 2},
    "segments": {"segments": ["market"]},
    "tell": {"metrics": recorder.RETURNS, "guardrail": {"metric": "returns", "margin": 0.02, "then": "tell"}},
    "buffered": {"durability": "buffered"},
    "restart": {"restart": 8},
    "reload": {"changes": {8: {"holdout": {"share": 0.3, "control": "baseline"}}}},
    "busy": {"busy": 1},
    "sharded": {"sharded": True},
    "spread": {"sharded": True, "spread": True},
}
PAIRS = (
    "holdout_shadow_pin", "holdout-user_pin_arms", "control-policy_pin_arms", "guardrail_at-least",
    "guardrail_holdout_pin", "guardrail_holdout_arms", "guardrail_control-policy", "control-policy_frozen",
    "control-policy_rebuild", "control-policy_deferred_correct", "holdout_rollback", "shadow_rebuild",
    "shadow_deferred", "shadow_rollback", "mode-control_pin", "mode-control_shadow", "mode-control_rebuild",
    "context_pin_holdout-user", "context_control-policy_arms", "no-propensities_holdout",
    "no-propensities_shadow", "signals_holdout_pin", "at-least_shadow", "at-least_unpin", "frozen_shadow",
    "elsewhere_pin", "elsewhere_frozen", "learned-metric_control-policy", "learned-metric_guardrail_holdout",
    "examined_holdout", "sum_correct", "segments_holdout-user", "hold-out_pin_frozen", "hold-out_arms",
    "numbered_pin", "restart_pin_holdout", "restart_shadow_arms", "restart_control-policy_deferred",
    "restart_signals", "restart_guardrail_at-least", "restart_rebuild", "restart_elsewhere", "reload_arms",
    "keys_holdout", "busy_guardrail", "busy_guardrail_holdout", "busy_guardrail_at-least", "busy_tell_pin",
    "busy_holdout-user_shadow", "busy_guardrail_control-policy", "busy_segments",
    "sharded_pin_arms", "sharded_holdout-user", "sharded_control-policy", "sharded_shadow",
    "sharded_guardrail", "sharded_guardrail_holdout", "sharded_mode-control", "sharded_deferred_correct",
    "sharded_signals", "sharded_frozen", "sharded_hold-out", "spread_arms", "spread_holdout",
)  # fmt: skip
MORE_PAIRS = dict.fromkeys(("features", "items", "item-lists"), PAIRS)
MORE_PAIRS |= dict.fromkeys(recorder.PAIRED, (*recorder.PAIRS, *PAIRS))
MORE_PAIRS["auto"] += ("busier_tell", "busier_tell_holdout")
MORE_PAIRS["restarts"] = (
    "correct_holdout", "pin_shadow", "frozen_holdout", "shadow_arms", "control-policy_arms",
    "restart_shadow_arms", "control-policy_deferred_correct", "holdout_shadow_pin",
    "mode-control_rebuild", "restart_rebuild", "shadow_rollback", "restart_control-policy_deferred",
    "sharded_shadow", "elsewhere_frozen",
)  # fmt: skip
"""Of each kind, the pairs and triples of options."""
BUSIER = {"busier": {"busy": 2}}
"""An option of pairs alone."""
SCRIPT_ONLY = (*recorder.SCRIPT_ONLY, "restart", "sharded", "busy")
"""Keys of an option that say what the script does; the others stand in the placement's table."""
ROUNDS, MIDDLE = 14, 9
SIZES = ((1, 1), (7,), (1, 7), (1, 1, 1))
"""How many decisions each request of a round asks for."""
LARGE = {6: (100,)}, {6: (500,)}, {6: (500,), 7: (300,)}
"""How many more in which rounds; and where the traffic is busy, or busy twice."""
TEMPLATES = []


def list_cases():
    """Return the kind and the merged options of each combination by its name."""
    cases = {}
    every = [(kind, names) for kind in KINDS for names in (*OPTIONS, *MORE_PAIRS.get(kind, ()))]
    for kind, names in every:
        merged = {"changes": {}}
        for name in names.split("_"):
            for field, value in (OPTIONS | BUSIER)[name].items():
                both = isinstance(value, dict) and field in merged
                merged[field] = merged[field] | value if both else value
        cases[f"{kind}.{names}"] = kind, merged
    return cases


def make_table(kind, option):
    """Return the table of a placement in the configuration."""
    table = {"seed": 7, "attribution_window": WINDOW, "snapshot_every": 1_000_000} | KINDS[kind]
    table |= {key: value for key, value in option.items() if key not in SCRIPT_ONLY}
    if "shadow" in table:
        table["shadow"] = SECOND_POLICY[kind]
    if table.get("holdout", {}).get("control") == {"policy": True}:
        table["holdout"] = table["holdout"] | {"control": {"policy": SECOND_POLICY[kind]}}
    return table


# The application, without a server --------------------------------------------------------------


class Application:
    """The web application of an engine, or of a shard."""

    def __init__(self, engine):
        self.engine, self._application = engine, app.create_application(engine)

    async def read(self, method, path, body=None):
        """Send a request; return the status and the content of the answer."""
        content, parts = b"" if body is None else json.dumps(body).encode(), []

        async def receive():
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message):
            parts.append(message)

        path, _, query = path.partition("?")
        headers = {b"host": b"localhost", b"content-type": b"application/json"}
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "root_path": "",
            "query_string": query.encode(), "headers": list(headers.items()), "client": ("127.0.0.1", 5),
            "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80),
        }  # fmt: skip
        await self._application(scope, receive, send)
        return parts[0]["status"], b"".join(part.get("body", b"") for part in parts)


# The traffic -----------------------------------------------------------------------------------


class Traffic:
    """Requests of one placement that follow from the number of the round and from earlier answers."""

    def __init__(self, name, kind, option, table):
        self.kind, self.option, self.table = kind, option, table
        self.application, self.answers = None, []
        self.seed = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)
        self.count = 0
        self.due = defaultdict(list)
        self.arms = []
        self.path = {"slates": "slate", "duels": "duel"}.get(table.get("kind"), "decide")

    async def ask(self, method, path, body=None):
        """Send a request, and keep the answer; return its content, None if it was refused."""
        status, content = await self.application.read(method, f"/v1/placements/home/{path}", body)
        text = re.sub(r'"seconds":[-+.\de]+', '"seconds":0', content.decode())
        self.answers.append(f"{method} {path} {status} {text}")
        return json.loads(content) if status == 200 else None

    async def begin(self):
        if self.kind in ("items", "item-lists"):
            await self.put_items(8, 1)

    async def put_items(self, count, seed, first=0):
        vectors = np.random.default_rng(seed).integers(-8, 9, (count, ITEM_DIM)) / 4.0
        segments = [{"segment": "news"}, {"segment": "sport"}, {}]
        named = [{"id": f"doc-{first + i}", "vector": vector.tolist()} for i, vector in enumerate(vectors)]
        await self.ask("PUT", "items", {"items": [item | segments[i % 3] for i, item in enumerate(named)]})

    async def play(self, i):
        """Play one round: a change, decisions, and the feedback that is due."""
        rng = np.random.default_rng((self.seed, i))
        if i == 0:
            await self.begin()
        await self.change(i)
        _, content = await self.application.read("GET", "/v1/placements")
        self.arms = json.loads(content)["placements"][0]["arms"]
        for size in (*SIZES[i % 4], *LARGE[self.option.get("busy", 0)].get(i, ())):
            await self.decide(i, size, rng)
        await self.send_feedback(i)

    async def change(self, i):
        if self.kind in ("items", "item-lists") and i in (5, 9):
            await self.put_items(2, i, 4)
            await self.ask("POST", "items/remove", {"ids": [f"doc-{i - 2}"]})
        request = self.option["changes"].get(i)
        if isinstance(request, dict):
            engine = self.application.engine
            self.table |= request
            await engine.reload(configured(engine.config.store.path, placements={"home": self.table}))
        elif request is not None:
            await self.ask(*write_change(request, self.kind))

    async def decide(self, i, size, rng):
        named = [bool(rng.integers(3)) for _ in range(size)]
        requests = [
            self.make_request(rng, f"d{i}.{self.count + j}" if named[j] else None) for j in range(size)
        ]
        if self.option.get("elsewhere") and size == 7:
            await self.decide_locally(requests, i, rng)
            return
        path, body = (
            (self.path, requests[0]) if size == 1 else (f"{self.path}/batch", {"decisions": requests})
        )
        answer = await self.ask("POST", path, body)
        if answer is None:
            return
        for request, decision in zip(requests, [answer] if size == 1 else answer["decisions"], strict=True):
            self.plan_feedback(decision, request.get("deferred", False), i, rng)
        if i % 5 == 4 and named[0]:
            await self.ask("POST", path, body)

    async def decide_locally(self, requests, i, rng):
        """Send decisions that a client made."""
        decisions = []
        for j, request in enumerate(requests):
            arms = request.get("arms") or self.arms or ["x0", "x1"]
            fields = {name: request[name] for name in ("key", "arms", "context") if name in request}
            chance = {} if self.table.get("policy") == "ucb1" else {"propensity": 0.5}
            arm = arms[rng.integers(len(arms))]
            decisions.append({"decision_id": f"l{i}.{j}", "arm": arm, **fields, **chance})
        answer = await self.ask("POST", "local/batch", {"decisions": decisions})
        for decision in decisions if answer else ():
            self.plan_feedback(decision, False, i, rng)

    def make_request(self, rng, id):
        """Return the body of a request of the kind, with the fields that its configuration reads."""
        body = {"key": f"key {rng.integers(3)}"} | ({} if id is None else {"decision_id": id})
        if self.option.get("deferred") and rng.random() < 0.4:
            body["deferred"] = True
        if "context" in self.table:
            body["context"] = {"device": ["ios", "web"][rng.integers(2)], "age": float(rng.integers(60))}
        if "client_signals" in self.table:
            body["context"] = [float(rng.integers(4)) / 4.0]
        unit = self.table.get("holdout", {}).get("unit")
        if unit is not None:
            body[unit] = f"{unit} {rng.integers(6)}"
        if self.kind != "duels":
            return body | recorder.draw_offer(self.kind, self.arms, rng)
        if "segments" in self.table:
            body["segments"] = {"market": ["de", "fr"][rng.integers(2)]}
        rankings = {arm: rng.permutation(list("stuvwx")).tolist() for arm in self.arms}
        return body | ({"rankings": rankings} if rng.random() < 0.7 or "holdout" in self.table else {})

    def plan_feedback(self, decision, deferred, i, rng):
        """Plan the feedback on a decision: at once, later, too late, twice, zero, or none."""
        n, self.count = self.count % 10, self.count + 1
        rate = RATES.get(str(decision.get("arm", decision.get("left"))), 0.3)
        reward = float(rng.random() < (1 - rate if self.kind == "restarts" and i > 5 else rate))
        id = decision["decision_id"]
        if deferred and n != 2:
            self.due[i + n % 4].append(("activate", {"decision_id": id}))
        if self.count % 3 == 0:
            # Clients that send clicks alone: what is not clicked, the window closes.
            plan = [(1, self.make_feedback(decision, 1.0, rng))] if reward else []
        elif n == 4:
            plan = [(2, self.make_feedback(decision, reward, rng, f"f{self.count}"))]
        elif n == 5:
            plan = [(6, self.make_feedback(decision, 1.0, rng))]
        elif n == 6:
            first = self.make_feedback(decision, 0.0, rng, f"f{self.count}")
            plan = [(0, first), (0, first), (1, self.make_feedback(decision, 0.75, rng, f"g{self.count}")),
                    (1, self.make_feedback(decision, 0.5, rng))]  # fmt: skip
        elif n == 7:
            plan = [(1, self.make_feedback(decision, 0.0, rng))]
        elif n == 8:
            late = 2 + 3 * (i % 2)
            plan = [(1, ("examined", {"decision_id": id})), (late, self.make_feedback(decision, reward, rng))]
        else:
            plan = [(0, self.make_feedback(decision, reward, rng))]
        for later, feedback in plan:
            self.due[i + later].append(feedback)

    def make_feedback(self, decision, reward, rng, id=None):
        """Return the path and the body of a reward; or of clicks, where a list was shown."""
        body = {"decision_id": decision["decision_id"]} | ({} if id is None else {"feedback_id": id})
        shown = decision.get("slate") or [decision.get("left")]
        if "guardrail" in self.table:
            harms = str(decision.get("arm", shown[0])) in ("b", "x1", "doc-1")
            body["metrics"] = {"returns": float(rng.random() < (0.9 if harms else 0.0))}
        if "reward" in self.table:
            return "feedback", body | {"metrics": {"revenue": 10.0 * reward}}
        if "slate" in decision:
            places = [k for k, arm in enumerate(decision["slate"]) if arm is not None]
        elif decision.get("items"):
            places = [0, 1]
        else:
            return "feedback", body | {"reward": reward}
        return "clicks", body | {"clicks": [place for place in places if rng.random() < reward * 0.7]}

    async def send_feedback(self, i):
        """Send what is due: alone, or in every other round all of a path together."""
        due = self.due.pop(i, [])
        if i % 2 == 0 or len(due) > 20:
            for path in ("examined", "feedback", "clicks"):
                bodies = [body for to, body in due if to == path]
                if bodies:
                    await self.ask("POST", f"{path}/batch", {"feedback": bodies})
            due = [(path, body) for path, body in due if path == "activate"]
        for path, body in due:
            await self.ask("POST", path, body)


RATES = recorder.RATES


def write_change(request, kind):
    """Return the method, the path and the body of a change."""
    if request is RebuildOf:
        return "POST", "rebuild", {"policy": REBUILT[kind]}
    request = request(kind) if callable(request) else request
    match request:
        case ModeOf(mode):
            return "POST", "mode", {"mode": mode}
        case PinOf(arms, until):
            return "POST", "pin", {"arms": arms, "until": until}
        case ArmsOf(add, retire, restore):
            return "POST", "arms", {"add": add, "retire": retire, "restore": restore}
        case RollbackOf():
            return "POST", "rollback", {}
    return request


# What came of it: texts ------------------------------------------------------------------------


async def read_reports(application, kind, shards=0):
    """Return the text of each report on the placement by its path."""
    home = "/v1/placements/home"
    paths = ["/v1/placements", f"{home}/lift", f"{home}/history", f"{home}/states", f"{home}/for-whom",
             f"{home}/lent", "/placements/home?range=all", "/metrics"]  # fmt: skip
    paths += [f"/key?placement=home&key={quote(key)}" for key in ("key 0", "key 1")]
    paths += [f"{home}/items"] if kind in ("items", "item-lists") else []
    paths += [f"{home}/duels", f"{home}/verdict"] if kind == "duels" else []
    texts = {}
    for path in paths:
        content = b'"whole":false'
        while b'"whole":false' in content:
            status, content = await application.read("GET", path)
        lines = content.decode().splitlines()
        if path == "/metrics":
            # Memory is none of the behaviour.
            lines = [line for line in lines if 'placement="home"' in line and "_bytes{" not in line]
        texts[path] = "\n".join([str(status), *lines])
    for query in [f"?shard={i}" for i in range(shards)] or [""]:
        status, content = await application.read("GET", f"{home}/learner{query}")
        text = read_learner(content) if status == 200 else content.decode()
        texts[f"{home}/learner{query}"] = f"{status}\n{text}"
    return texts


def read_rows(path):
    """Return the rows of each table of a log as text."""
    texts = {}
    with contextlib.closing(apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as connection:
        for table in ("decisions", "feedback", "marks", "records", "placements"):
            rows = connection.execute(f"SELECT * FROM {table} ORDER BY 1")
            texts[table] = "\n".join(map(repr, rows))
    return texts


def read_states(path):
    """Return the text of each snapshot and each saved state of a store by its table."""
    texts = {}
    with contextlib.closing(apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)) as connection:
        for table in ("snapshots", "states", "bases"):
            for seq, time, plan, number in connection.execute(f"SELECT seq, time, plan, pieces FROM {table}"):
                fields = defaultdict(bytes)
                pieces = "SELECT field, content FROM pieces WHERE snapshot = ? ORDER BY number"
                for field, content in connection.execute(pieces, (number,)):
                    fields[field] += content
                texts[f"{table}.{seq}.plan"] = f"{seq} {time} {plan}"
                for field, content in fields.items():
                    read = FIELD_READERS.get(field, bytes.decode)
                    texts[f"{table}.{seq}.{field}"] = read(content)
    return texts


def read_learner(content):
    """Return the text of a learner's file: each member, arrays with all of their numbers."""
    lines = []
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            member = archive.read(name)
            if name.endswith(".npy"):
                array = read_array(member)
                lines.append(f"{name} {array.dtype} {array.shape} {array.tolist()}")
            else:
                lines.append(f"{name} {member.decode()}")
    return "\n".join(lines)


def read_array(content):
    """Return the array of a file as ``np.load`` does, which takes three times as long."""
    end = content.index(b"\n") + 1
    kind, order, shape = HEAD.search(content[:end].decode("latin-1")).groups()
    array = np.frombuffer(content, kind, offset=end)
    return array.reshape(
        [int(size) for size in shape.split(",") if size.strip()], order="FC"[order == "False"]
    )


FIELD_READERS = {
    "learner": read_learner,
    "shadow": read_learner,
    "windows": lambda content: recorder.read_windows(content).decode(),
}
HEAD = re.compile(r"'descr': '([^']+)', 'fortran_order': (\w+), 'shape': \(([^)]*)\)")


# Play ------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serve(path, table, clock, number=None):
    """Yield an engine on a store; at the end it has written a snapshot."""
    config = configured(path, placements={"home": table})
    engine = Engine(config, SqliteStore(path), clock, None if number is None else Shard(number, SHARDS))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def reopen(path, table, clock, kind):
    """Open a store again; return its states and reports."""
    async with serve(path, table, clock) as engine:
        reports = await read_reports(Application(engine), kind)
    return read_states(path) | reports


async def play(folder, traffic):
    """Play the traffic of one combination; return the texts of each part by their names."""
    kind, clock = traffic.kind, Clock()
    path, middle = folder / "live.db", folder / "middle.db"
    restart = traffic.option.get("restart", ROUNDS)
    for rounds in (range(restart), range(restart, ROUNDS)) if restart < ROUNDS else (range(ROUNDS),):
        async with serve(path, traffic.table, clock) as engine:
            traffic.application = Application(engine)
            for i in rounds:
                clock.now = START + i * ROUND
                await traffic.play(i)
                await quiet(engine)
                if i == MIDDLE:
                    copy_store(path, middle)
            reports = await read_reports(traffic.application, kind)
    answers = {"answers": "\n".join(traffic.answers)}
    parts = {"answers": answers, "rows": read_rows(path), "states": read_states(path), "reports": reports}
    end, clock.now = clock.now, START + MIDDLE * ROUND
    drop_snapshot(middle)
    async with serve(middle, traffic.table, clock):
        pass
    parts["saved"] = read_states(middle)
    clock.now = end
    for part in ("folded", "restored"):
        copy = folder / f"{part}.db"
        copy_store(path, copy)
        drop_snapshot(copy, middle if part == "restored" else None)
        parts[part] = await reopen(copy, traffic.table, clock, kind)
    return parts


# Shards ----------------------------------------------------------------------------------------

SHARDS = 2


async def gather_in_turn(*calls, return_exceptions=False, gather=asyncio.gather):
    """Wait for one shard after another: their ids are drawn in one order, however long commits take."""
    return [(await gather(call, return_exceptions=return_exceptions))[0] for call in calls]


async def play_sharded(folder, traffic):
    """Play the traffic of a combination in two shards, which share what they learn after each round."""
    paths, clock, table = [folder / f"{i}.db" for i in range(SHARDS)], Clock(), traffic.table
    async with contextlib.AsyncExitStack() as stack:
        serving = [serve(path, table, clock, number) for number, path in enumerate(paths)]
        engines = [await stack.enter_async_context(each) for each in serving]
        services = [join_shards(engines, number) for number in range(SHARDS)]
        traffic.application = Application(services[0])
        for i in range(ROUNDS):
            clock.now = START + i * ROUND
            await traffic.play(i)
            for service in services:
                await service.sharing.share()
            services[0].merged.expire()
        reports = await read_reports(traffic.application, traffic.kind, SHARDS)
    parts = {"answers": {"answers": "\n".join(traffic.answers)}, "rows": {}, "states": {}, "merged": reports}
    parts["folded"] = {}
    for number, path in enumerate(paths):
        parts["rows"] |= {f"{number}.{title}": text for title, text in read_rows(path).items()}
        parts["states"] |= {f"{number}.{title}": text for title, text in read_states(path).items()}
        drop_snapshot(path)
        async with serve(path, table, clock, number):
            pass
        parts["folded"] |= {f"{number}.{title}": text for title, text in read_states(path).items()}
    return parts


def copy_store(source, target):
    """Copy a store that may be open."""
    with contextlib.closing(apsw.Connection(str(source), apsw.SQLITE_OPEN_READONLY)) as connection:
        connection.execute("VACUUM INTO ?", (str(target),))


def drop_snapshot(path, other=None):
    """Remove the snapshot of a store, and put that of another store in its place, if there is one."""
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        connection.execute("DELETE FROM snapshots")
        if other is not None:
            connection.execute("ATTACH ? AS other", (str(other),))
            connection.execute(
                "INSERT INTO pieces (snapshot, field, content) SELECT 1000000 + snapshot, field, content "
                "FROM other.pieces WHERE snapshot IN (SELECT pieces FROM other.snapshots) ORDER BY number"
            )
            columns = "placement, seq, time, plan, {}pieces, checksum"
            connection.execute(
                f"INSERT INTO snapshots ({columns.format('')}) "
                f"SELECT {columns.format('1000000 + ')} FROM other.snapshots"
            )


@contextlib.contextmanager
def same_application():
    """Have pages tell no durations of answers, and share what takes long to make and is the same for all.

    Windows close when requests come: a clock that closes them would do so while code is compiled, too.
    """
    with (
        mock.patch.object(AnswerCounts, "count"),
        mock.patch.object(app, "document", dict),
        mock.patch.object(shards.os, "getpid", return_value=0),
        mock.patch.object(shards, "REFRESH_SECONDS", 1e6),
        mock.patch.object(writer, "TICK_SECONDS", 1e6),
        mock.patch.object(asyncio, "gather", gather_in_turn),
        mock.patch.object(jinja2, "Environment", functools.partial(share_templates, jinja2.Environment)),
    ):
        yield


def share_templates(make, **options):
    """Return the environment of templates that was made first: compiling them takes 0.1 s."""
    if not TEMPLATES:
        TEMPLATES.append(make(**options))
    return TEMPLATES[0]


def run(name):
    """Play a combination; return its parts, or the name of the error that refuses its configuration."""
    kind, option = list_cases()[name]
    traffic = Traffic(name, kind, option, make_table(kind, option))
    play_traffic = play_sharded if option.get("sharded") else play
    with recorder.make_folder() as folder, recorder.fixed_chance(), same_application():
        try:
            return asyncio.run(play_traffic(Path(folder), traffic))
        except ConfigError as error:
            return type(error).__name__


# Digests ---------------------------------------------------------------------------------------

NUMBER = re.compile(r"(?<![\w.#-])-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)(?![\w.])")


def digest(texts):
    """Return the hash of texts, and of texts without numbers; the count of numbers, and a sum over them.

    All but the first survive that floats are rounded otherwise.
    """
    # Recordings hold version 0.3.0, as which the present one counts.
    text = "\n".join(f"{name}\n{text}" for name, text in texts.items()).replace(__version__, "0.3.0")
    total, count = 0.0, 0

    def leave_out(match):
        nonlocal total, count
        total, count = total + math.asinh(float(match[0])), count + 1
        return "~"

    return [
        *(hashlib.sha256(each.encode()).hexdigest()[:12] for each in (text, NUMBER.sub(leave_out, text))),
        count,
        round(total, 6),
    ]


def summarize(parts):
    """Return what is recorded of a combination: a digest of each part, or why it is refused."""
    return parts if isinstance(parts, str) else {part: digest(texts) for part, texts in parts.items()}


def find_differences(found, recorded, exact):
    """Return the names of the parts that differ from those recorded; unless exact, but for rounding."""
    if isinstance(found, str) or isinstance(recorded, str) or recorded is None:
        return [] if found == recorded else [f"{found} in place of {recorded}"]
    return [part for part in recorded if not is_same(found.get(part), recorded[part], exact, part == "rows")]


def find_states_unlike_log(parts):
    """Return the states that are not what the log alone says."""
    states = {} if isinstance(parts, str) else parts["states"]
    return [f"{title} is not folded" for title, text in states.items() if parts["folded"][title] != text]


def is_same(found, recorded, exact, has_checksums):
    """True if two digests are the same, or but for rounding; checksums of rows change with that."""
    if exact or found is None:
        return found == recorded
    texts_and_counts = slice(2 if has_checksums else 1, 3)
    is_close = abs(found[3] - recorded[3]) <= 1e-6 * (1 + found[2])
    return found[texts_and_counts] == recorded[texts_and_counts] and is_close


def load(kind):
    """Return what was recorded of a kind."""
    path = DATA / f"{kind}.json"
    return json.loads(path.read_text()) if path.exists() else {"machine": None, "combinations": {}}


def is_exact(recorded):
    """True if floats are the same to the last bit on this machine."""
    return recorded["machine"] == recorder.read_machine()


# Commands --------------------------------------------------------------------------------------


def select_names(patterns):
    """Return the names of the combinations that match a pattern, all without one."""
    names = list(list_cases())
    if not patterns:
        return names
    return [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def check(patterns):
    """Print which part of which combination differs; return whether none does."""
    wrong, names = 0, select_names(patterns)
    recorded = {kind: load(kind) for kind in KINDS}
    for name in names:
        about = recorded[name.partition(".")[0]]
        parts = run(name)
        differences = find_differences(summarize(parts), about["combinations"].get(name), is_exact(about))
        differences += find_states_unlike_log(parts)
        if differences:
            wrong += 1
            print(f"{name}: {', '.join(differences)}", flush=True)
    print(f"{len(names) - wrong} of {len(names)} combinations are as recorded")
    return not wrong


def dump(folder, patterns):
    """Write the texts of each part of combinations into a folder; long lines are broken at commas."""
    for name in select_names(patterns):
        parts = run(name)
        shutil.rmtree(folder / name, ignore_errors=True)
        for part, texts in {"refused": {"why": parts}}.items() if isinstance(parts, str) else parts.items():
            (folder / name / part).mkdir(parents=True)
            for title, text in texts.items():
                path = folder / name / part / re.sub(r"[^\w.=-]+", "_", title).strip("_")
                path.write_text(re.sub(r", ?", ",\n", text) + "\n")


def record(patterns):
    """Record combinations; others of their kinds stay as they were recorded.

    If those are of another machine, no machine is named: none has the floats of both to the last bit.
    """
    names = list_cases()
    selected = set(select_names(patterns))
    for kind in KINDS:
        of_kind = [name for name in names if name.startswith(f"{kind}.")]
        if selected.isdisjoint(of_kind):
            continue
        machine, about = recorder.read_machine(), load(kind)
        before = about["combinations"]
        if about["machine"] != machine and not selected.issuperset(of_kind):
            machine = None
        combinations = {
            name: summarize(run(name)) if name in selected or name not in before else before[name]
            for name in of_kind
        }
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in combinations.items())
        text = f'{{"machine": {json.dumps(machine)}, "combinations": {{\n{lines}\n}}}}\n'
        (DATA / f"{kind}.json").write_text(text)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true")
    what.add_argument("--dump", type=Path, metavar="FOLDER")
    what.add_argument("--record", action="store_true")
    parser.add_argument("names", nargs="*", metavar="COMBINATION")
    given = parser.parse_args()
    if given.record:
        record(given.names)
    elif given.dump:
        dump(given.dump, given.names)
    else:
        sys.exit(not check(given.names))
