"""Play fixed traffic through every kind of placement, and write down what came of it.

Run by hand, with the code whose behaviour is to be recorded::

    PYTHONPATH=src python tests/record_behaviour.py FOLDER

It writes ``store.db.xz`` (the log and a snapshot of each placement, as a crash would leave them),
``placements.json`` (their configuration, and which combinations are refused), ``behaviour.json.xz`` (outcomes
of feedback, and what the log folds to) and ``learners.zip``. Clock, ids, seeds and salt are fixed, so the
same code logs the same rows again; only how many of them a snapshot covers depends on the machine's speed.
``test_written_by_0_3.py`` compares.
"""

import asyncio
import contextlib
import hashlib
import itertools
import json
import lzma
import os
import platform
import secrets
import sys
import tempfile
import warnings
import zipfile
from collections import defaultdict
from pathlib import Path
from unittest import mock

import apsw
import msgspec
import numpy as np
import placement_access as access
from harness import SECOND, START, Clock, as_after_a_crash, configured, quiet

import tacit
from tacit.core.arrays import leaves
from tacit.core.dispatch import list_parts
from tacit.errors import TacitError
from tacit.learning.learner import make_snapshot
from tacit.policies import policy_to_spec
from tacit.policies.base import registry
from tacit.service.log import ids
from tacit.service.log.requests import (
    Clicked,
    ClientDecision,
    DecisionRequest,
    FeedbackRequest,
    encode_metrics,
)
from tacit.service.log.rows import ACTIVATE, CLICKS, EXAMINED, REWARD, decode_list
from tacit.service.log.sqlite import SqliteStore
from tacit.wire.control import ArmsOf, ModeOf, PinOf, RebuildOf, RollbackOf
from tacit.wire.decisions import ItemsGone, ItemsOf, NewItem

# What is recorded: kinds of placements, and what is switched on in each --------------------------

ARMS = ["a", "b", "c"]
CONTEXT = {"device": ["ios", "web"], "age": "number"}
ITEM_DIM = 4
WINDOW = 30
ROUND = 7 * SECOND
ROUNDS = 14

KINDS = {
    "auto": {"arms": ARMS},
    "thompson": {"arms": ARMS, "policy": "thompson"},
    "ucb1": {"arms": ARMS, "policy": "ucb1"},
    "context": {"arms": ARMS, "context": CONTEXT},
    "features": {"kind": "features", "policy": "lin-ts(relevance_dim=2, examination_dim=1)"},
    "lists": {"kind": "slates", "arms": [*ARMS, "d", "e"], "positions": 2},
    "items": {"kind": "features", "policy": f"embedding-mixture(relevance_dim={ITEM_DIM})"},
    "item-lists": {
        "kind": "slates",
        "relevance_dim": ITEM_DIM,
        "positions": 2,
        "policy": "item-list-mix(epsilon=0.1)",
    },
    "duels": {"kind": "duels", "rankers": ARMS, "length": 4},
}
SECOND_POLICY = {
    "auto": "ucb1",
    "thompson": "ucb1",
    "ucb1": "thompson",
    "context": "thompson",
    "features": "laplace-ec(relevance_dim=2, examination_dim=1)",
    "lists": "cascade-kl-ucb",
    "items": f"lin-ts(relevance_dim={ITEM_DIM}, examination_dim=0)",
    "item-lists": "item-list-mix(epsilon=0.2)",
    "duels": "rmed1",
}
"""Of each kind, the policy that is a shadow, or decides for a control."""
REBUILT = SECOND_POLICY | {
    "context": {
        name: value
        for name, value in policy_to_spec(tacit.auto(ARMS, context=CONTEXT, per_key=True)).items()
        if name != "arms"
    },
    "item-lists": f"item-list-mix(relevance_dim={ITEM_DIM}, positions=2, epsilon=0.2)",
}
"""Of each kind, the policy that takes over in a rebuild."""


def pin_arms(kind):
    return PinOf({"items": ["doc-1"], "item-lists": ["doc-1"], "features": ["x1"]}.get(kind, ["b"]), UNTIL)


UNTIL = ids.as_text(START + 10 * ROUND)
HALF = {"share": 0.4}
RETURNS = {"returns": {"range": [0, 1], "better": "less"}}
OPTIONS = {
    "plain": {},
    "pin": {"changes": {5: pin_arms}},
    "frozen": {"changes": {4: ModeOf("frozen"), 9: ModeOf("online")}},
    "shadow": {"shadow": True, "changes": {3: ModeOf("shadow"), 11: ModeOf("online")}},
    "holdout": {"holdout": HALF},
    "holdout-session": {"holdout": HALF | {"unit": "session"}},
    "holdout-user": {"holdout": HALF | {"unit": "user"}},
    "control-baseline": {"holdout": HALF | {"control": "baseline"}},
    "control-arm": {"holdout": HALF | {"control": {"arm": "a"}}},
    "control-policy": {"holdout": HALF | {"control": {"policy": True}}},
    "mode-control": {"holdout": HALF, "changes": {4: ModeOf("control"), 9: ModeOf("online")}},
    "signals": {"signals": ["volume", "since-shift"], "client_signals": 1},
    "context": {"context": CONTEXT},
    "at-least": {"at_least": {"b": 0.2}},
    "guardrail": {"metrics": RETURNS, "guardrail": {"metric": "returns", "margin": 0.02}},
    "elsewhere": {"elsewhere": True},
    "deferred": {"deferred": True, "activation_window": 20},
    "sum": {"aggregation": "sum"},
    "last": {"aggregation": "last"},
    "max": {"aggregation": "max"},
    "first": {"aggregation": "first"},
    "correct": {"late": "correct", "default_reward": 0.2},
    "examined": {"seen": "examined"},
    "learned-seen": {"seen": "learned"},
    "learned-metric": {"metrics": {"revenue": {"range": [0, 10]}}, "reward": "revenue"},
    "no-propensities": {"propensities": False},
    "rebuild": {"changes": {8: RebuildOf}},
    "rollback": {"changes": {7: RebuildOf, 12: RollbackOf()}},
    "arms": {"changes": {4: ArmsOf(add=["f"]), 7: ArmsOf(retire=["b"]), 11: ArmsOf(restore=["b"])}},
    "ties-keep": {"ties": "keep", "unclicked": "nothing"},
}
PAIRS = (
    "pin_holdout-user", "pin_control-policy", "pin_shadow", "pin_arms", "frozen_holdout", "frozen_pin",
    "control-policy_arms", "control-policy_mode-control", "shadow_arms", "deferred_holdout-session",
    "deferred_control-policy", "correct_holdout", "correct_shadow", "correct_control-policy",
    "correct_deferred",
    "signals_holdout-session", "signals_shadow", "signals_deferred", "guardrail_holdout", "guardrail_arms",
    "at-least_arms", "at-least_holdout", "rebuild_arms", "rebuild_holdout", "rollback_deferred",
    "sum_holdout-user", "learned-metric_holdout", "examined_deferred", "elsewhere_arms", "elsewhere_deferred",
    "elsewhere_rebuild", "context_holdout", "context_shadow",
)  # fmt: skip
PAIRED = ("auto", "context", "lists", "duels")
"""Kinds in which pairs of options are recorded as well."""
SCRIPT_ONLY = ("changes", "elsewhere", "deferred")
"""Keys of an option that say what the script does; the others stand in the placement's table."""


def list_cases():
    """Return the name of every combination, with its kind and its options merged."""
    cases = {}
    for kind, names in itertools.product(KINDS, (*OPTIONS, *PAIRS)):
        if names in PAIRS and kind not in PAIRED:
            continue
        option = {"changes": {}}
        for name in names.split("_"):
            part = OPTIONS[name]
            option = option | part | {"changes": option["changes"] | part.get("changes", {})}
        cases[f"{kind}.{names}"] = kind, option
    return cases


def make_table(kind, option, seed):
    """Return the table of a placement in the configuration."""
    table = {"seed": seed, "attribution_window": WINDOW, "snapshot_every": 45} | KINDS[kind]
    table |= {key: value for key, value in option.items() if key not in SCRIPT_ONLY}
    if table.get("shadow"):
        table["shadow"] = SECOND_POLICY[kind]
    if table.get("holdout", {}).get("control") == {"policy": True}:
        table["holdout"] = table["holdout"] | {"control": {"policy": SECOND_POLICY[kind]}}
    return table


# The script ------------------------------------------------------------------------------------


def draw_offer(kind, arms, rng):
    """Return the arms on offer to a request of a kind of placement, and their features."""
    if kind == "features":
        count = 2 + int(rng.integers(2))
        relevance = (rng.integers(-4, 5, (count, 2)) / 4.0).tolist()
        names = [f"x{i}" for i in range(count)]
        return {"arms": names, "relevance": relevance, "examination": [[i / 2] for i in range(count)]}
    if kind in ("items", "item-lists"):
        offers = (
            {"arms": ["doc-0", "doc-1", "doc-2"]},
            {"segment": "news"},
            {},
            {"arms": ["x", "y"], "relevance": (rng.integers(-4, 5, (2, ITEM_DIM)) / 4.0).tolist()},
        )
        return offers[rng.integers(4)]
    return {"arms": [arms[0], arms[-1]]} if rng.random() < 0.25 else {}


class Script:
    """The traffic of one placement: requests and feedback that follow from the number of the round."""

    def __init__(self, engine, name, kind, option, table):
        self.engine, self.name, self.kind, self.option, self.table = engine, name, kind, option, table
        self.seed = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)
        self.count = 0
        self.due = defaultdict(list)
        self.outcomes = []

    @property
    def placement(self):
        return self.engine.placements[self.name]

    async def begin(self):
        """Put the items of a catalogue; raise if client-side decisions are not possible."""
        if self.kind in ("items", "item-lists"):
            await self.put_items(8, 1)
        if self.option.get("elsewhere"):
            access.check_client_side(self.placement)

    async def put_items(self, count, seed, first=0):
        vectors = np.random.default_rng(seed).integers(-8, 9, (count, ITEM_DIM)) / 4.0
        segments = ["news", "sport", None]
        items = [NewItem(f"doc-{first + i}", v.tolist(), segments[i % 3]) for i, v in enumerate(vectors)]
        await self.engine.ask(self.name, ItemsOf(items))

    async def play(self, i):
        """Play one round: a change, decisions, and the feedback that is due."""
        rng = np.random.default_rng((self.seed, i))
        await self.change(i)
        for size in ((1, 1), (3,), (2, 1))[i % 3]:
            named = [bool(rng.integers(3)) if size < 3 else False for _ in range(size)]
            asked = [self.make_request(rng, f"d{i}.{self.count + j}" if named[j] else None)
                     for j in range(size)]  # fmt: skip
            impressions = [self.make_impression(request, rng) for request in asked]
            rows = await self.engine.decide_many(self.name, impressions)
            for row in rows:
                self.plan_feedback(row, i, rng)
            if i % 5 == 4 and named[0]:
                assert (await self.engine.decide_many(self.name, impressions[:1]))[0].seq == rows[0].seq
        for feedback in self.due.pop(i, []):
            outcomes = await self.engine.record_many(self.name, [feedback])
            self.outcomes += [type(x).__name__ if isinstance(x, Exception) else x for x in outcomes]

    async def change(self, i):
        if self.kind in ("items", "item-lists") and i in (5, 9):
            await self.put_items(2, i, 4)
            await self.engine.ask(self.name, ItemsGone([f"doc-{i - 2}"]))
        request = self.option["changes"].get(i)
        if request is None:
            return
        if request is RebuildOf:
            await self.engine.rebuild(self.name, REBUILT[self.kind])
        elif isinstance(request, RollbackOf):
            await self.engine.rollback(self.name)
        else:
            await self.engine.ask(self.name, request(self.kind) if callable(request) else request)

    def make_impression(self, request, rng):
        if self.option.get("elsewhere") and request.id is not None and rng.random() < 0.6:
            arms = list(request.arms or self.placement.offer.arms)
            chance = None if self.table.get("policy") == "ucb1" else 0.5
            return access.check_client_decision(
                self.placement, request, ClientDecision(arms[rng.integers(len(arms))], chance)
            )
        return access.check_request(self.placement, request)

    def make_request(self, rng, id):
        """Return a request of the kind, with what its configuration has it say."""
        said = {"id": id, "deferred": bool(self.option.get("deferred")) and rng.random() < 0.4}
        if "context" in self.table:
            said["context"] = {"device": ["ios", "web"][rng.integers(2)], "age": float(rng.integers(60))}
        if "client_signals" in self.table:
            said["context"] = [float(rng.integers(4)) / 4.0]
        unit = self.table.get("holdout", {}).get("unit")
        if unit is not None:
            said[unit] = f"{unit} {rng.integers(6)}"
        if self.kind == "duels":
            lists = {str(arm): rng.permutation(list("stuvwx")).tolist() for arm in self.placement.offer.arms}
            said["rankings"] = lists if rng.random() < 0.7 or "holdout" in self.table else None
        else:
            said |= draw_offer(self.kind, self.placement.offer.arms, rng)
        return DecisionRequest(f"key {rng.integers(2)}", **said)

    def plan_feedback(self, row, i, rng):
        """Plan what comes back for a decision: at once, later, too late, twice, zero, or nothing."""
        n, self.count = self.count % 10, self.count + 1
        reward = float(rng.random() < RATES.get(str(row.arm), 0.3))
        if row.deferred and n != 2:
            self.due[i + n % 4].append(FeedbackRequest(row.id, ACTIVATE))
        if n in (0, 1, 2):
            self.due[i].append(self.make_feedback(row, reward, rng))
        elif n == 4:
            self.due[i + 2].append(self.make_feedback(row, reward, rng, f"f{self.count}"))
        elif n == 5:
            self.due[i + 6].append(self.make_feedback(row, 1.0, rng))
        elif n == 6:
            first = self.make_feedback(row, 0.0, rng, f"f{self.count}")
            self.due[i] += [first, first]
            self.due[i + 1] += [self.make_feedback(row, 0.75, rng, f"g{self.count}"),
                                self.make_feedback(row, 0.5, rng)]  # fmt: skip
        elif n == 7:
            self.due[i + 1].append(self.make_feedback(row, 0.0, rng))
        elif n == 8:
            self.due[i + 1].append(FeedbackRequest(row.id, EXAMINED))
            self.due[i + 2 + 3 * (i % 2)].append(self.make_feedback(row, reward, rng))

    def make_feedback(self, row, reward, rng, id=None):
        """Return a reward; or clicks, where a list was shown."""
        metrics = None
        if "guardrail" in self.table:
            metrics = encode_metrics({"returns": float(rng.random() < (0.9 if row.arm == "b" else 0.0))})
        if "reward" in self.table:
            return FeedbackRequest(
                row.id, REWARD, None, id, metrics=encode_metrics({"revenue": 10.0 * reward})
            )
        if self.table.get("kind") == "slates":
            places = [k for k, arm in enumerate(decode_list(row.shown).arms) if arm is not None]
        elif self.kind == "duels" and row.shown is not None and "interleaved" in row.shown:
            places = [0, 1]
        else:
            return FeedbackRequest(row.id, REWARD, reward, id, metrics=metrics)
        clicks = [place for place in places if rng.random() < reward * 0.7]
        return FeedbackRequest(row.id, CLICKS, id=id, clicks=Clicked(clicks), metrics=metrics)


RATES = {"a": 0.2, "b": 0.7, "c": 0.4}


async def play(path, cases, tables):
    """Play the script of each placement on a new store.

    Returns the outcomes of the feedback, what each placement is at the end, and what refused to begin.
    The store is copied while it is open, to the path that comes first.
    """
    clock = Clock()
    engine = access.Engine(configured(path, placements=tables), SqliteStore(path), clock)
    await engine.start()
    refused, scripts = {}, {}
    try:
        for name, table in tables.items():
            script = Script(engine, name, *cases[name], table)
            try:
                await script.begin()
                scripts[name] = script
            except TacitError as error:
                refused[name] = type(error).__name__
        for i in range(ROUNDS):
            clock.now = START + i * ROUND
            for name, script in list(scripts.items()):
                try:
                    await script.play(i)
                except TacitError as error:
                    refused[name] = f"{type(error).__name__} in round {i}: {error}"
                    del scripts[name]
            await quiet(engine)
        copy = as_after_a_crash(path)
    finally:
        await engine.stop()
    outcomes = {name: script.outcomes for name, script in scripts.items()}
    return copy, outcomes, {name: describe(engine.placements[name]) for name in scripts}, refused


@contextlib.contextmanager
def fixed_chance():
    """Have ids and the salt of a store be the same in each run."""
    numbers = itertools.count()

    def draw(count):
        return b"".join(next(numbers).to_bytes(12, "big") for _ in range(-(-count // 12)))[-count:]

    with mock.patch.object(ids, "urandom", draw), mock.patch.object(secrets, "token_hex", lambda n: "5a" * n):
        yield


# What a placement is ----------------------------------------------------------------------------


def describe(placement):
    """Return what a placement is, as JSON data: a digest of each array by its name, and everything else.

    An array that counts open decisions (``open``) did not exist in 0.3: it must be zero, and is left out.
    """
    arrays = {}
    for number, learner in enumerate(access.get_learners(placement)):
        for field, array in leaves(learner.lanes.view_all()):
            if field.rpartition(".")[2] == "open":
                assert not array.any(), (placement.name, field)
            else:
                arrays[f"{number}.{field}"] = digest(array)
        arrays[f"{number}.plays"] = digest(make_snapshot(learner).plays)
        if learner.catalogue is not None and learner.catalogue.version:
            item_ids, segments, vectors = learner.catalogue.columns()
            arrays[f"{number}.items"] = [*map(str, item_ids), *map(str, segments), digest(vectors)]
    fields = defaultdict(bytes)
    for field, piece in access.snapshots_module.draft(placement, 0, 0).pieces:
        fields[field] += piece
    return {
        "arrays": arrays,
        "keys": [list(learner.keys) for learner in access.get_learners(placement)],
        "retired": list(map(str, make_snapshot(access.get_learner(placement)).retired)),
        "offer": list(map(str, access.get_offer(placement).arms)),
        "saved": json.loads(read_windows(fields["windows"])),
        "series": json.loads(fields["series"]),
    }


def read_windows(content):
    """Return the JSON of a snapshot, without arrays, with a list for each open decision as 0.3 wrote it."""
    saved = msgspec.json.decode(content)
    for field in ("defaults", "open"):
        decisions = []
        for count, *columns in saved[field]:
            columns = [column * (count // len(column)) for column in columns]
            rows = columns[: access.ROW_COLUMNS]
            fields = columns[access.ROW_COLUMNS : access.WINDOW_COLUMNS + 2]
            turns = columns[access.WINDOW_COLUMNS + 2 :]
            fields += [list(zip(*turns, strict=True))] if turns else []
            decisions += zip(zip(*rows, strict=True), *fields, strict=True)
        saved[field] = decisions
    return msgspec.json.encode(saved)


def digest(array):
    """Return the hash of an array's exact bytes; of floats also two sums, which survive other rounding."""
    array = np.ascontiguousarray(array)
    exact = hashlib.sha256(f"{array.dtype}{array.shape}".encode() + array.tobytes()).hexdigest()[:16]
    if array.dtype.kind != "f":
        return [exact]
    finite = np.where(np.isfinite(array), array, 0.0)
    return [exact, float(finite.sum()), float(np.abs(finite).sum())]


def fold_store(path, config, *, snapshot):
    """Return what the log of a store folds to, from the snapshots on or anew; and where each began."""
    with contextlib.closing(SqliteStore(path)) as store:
        names = {name: each for name, each in config.placements.items() if name in store.placements()}
        placements = {
            name: access.load_placement(name, each, store, 0, snapshot=snapshot)
            for name, each in names.items()
        }
        began = {name: access.get_snapshot_seq(placement) for name, placement in placements.items()}
        access.fold({placement.id: placement for placement in placements.values()}, store)
        return {name: describe(placement) for name, placement in placements.items()}, began


def read_rows(path):
    """Return the rows of a log by their placements, as JSON data."""
    rows = defaultdict(list)
    with contextlib.closing(SqliteStore(path)) as store:
        names = {stored.id: name for name, stored in store.placements().items()}
        for event in store.events(0):
            rows[names.get(event.placement, "")].append(list(event))
    return rows


# Learners ----------------------------------------------------------------------------------------

TAUGHT, NEXT = 60, 20


def list_policies():
    """Return an example of every policy that comes with the package, by its class's name."""
    return {kind.__name__: kind.example(arms=3, dim=2) for kind in list_parts(registry, "policies")}


def teach(learner, numbers):
    """Have a learner decide and learn, and return the arm slots and propensity of each decision."""
    policy, shown = learner.policy, []
    relevance_dim, examination_dim = policy.feature_dims
    for i in numbers:
        rng, said = np.random.default_rng(i), {}
        if relevance_dim:
            said["relevance"] = rng.random((3, relevance_dim))
        if examination_dim:
            said["examination"] = rng.random((3, examination_dim))
        if policy.context_dim:
            said["context"] = rng.random(policy.context_dim)
        decision = learner.choose(f"key {i % 3}", **said)
        shown.append([np.asarray(decision.slots).tolist(), decision.propensity])
        rewards = [float((i * 7 + int(slot) * 3) % 5 < 2) for slot in decision.slots]
        width = policy.feedback_width
        learner.learn(decision, rewards[0] if width == 1 else (rewards + [0.0] * width)[:width])
    return shown


def teach_next(file):
    """Load a learner and return its next decisions."""
    return teach(tacit.Learner.load(file), range(TAUGHT, TAUGHT + NEXT))


def record_learners(path):
    """Save a learner of every policy after some decisions into a zip file, and what each decides next."""
    following = {}
    with tempfile.TemporaryDirectory() as place, zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, policy in list_policies().items():
            learner = tacit.Learner(policy, seed=7)
            teach(learner, range(TAUGHT))
            file = Path(place) / f"{name}.tacit"
            learner.save(file)
            following[name] = {"compiled": teach_next(file)}
            with interpreting():
                following[name]["interpreted"] = teach_next(file)
            archive.write(file, file.name)
        archive.writestr("next.json", json.dumps(following))


# The machine, files ------------------------------------------------------------------------------


def interpreting():
    """Have loops run as plain Python: they round otherwise than compiled ones, in the last bit."""
    return mock.patch.dict(os.environ, TACIT_COMPILE="0")


def read_form():
    """Return in which form loops run at present."""
    return "interpreted" if os.environ.get("TACIT_COMPILE") == "0" else "compiled"


def make_folder():
    """Return a temporary folder, in memory if possible: a disk may take 10 ms for each of 20,000 commits."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)


def read_machine():
    """Return what floats may depend on to the last bit: the processor, NumPy and numba."""
    model = platform.machine()
    with contextlib.suppress(OSError):
        lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
        values = {name.strip(): value.strip() for name, _, value in lines}
        # One name stands for several generations, for which NumPy and numba have different loops.
        names = "model name", "cpu family", "model", "stepping"
        model = " ".join(values.get(name, "") for name in names).strip() or model
    import numba

    return [model, np.__version__, numba.__version__]


def find_allowed(cases):
    """Return the tables of the combinations that the configuration allows, and what refused the others."""
    tables, refused = {}, {}
    for seed, (name, (kind, option)) in enumerate(cases.items(), 1):
        table = make_table(kind, option, seed)
        try:
            configured(placements={name: table})
            tables[name] = table
        except TacitError as error:
            refused[name] = str(error)
    return tables, refused


def record(folder):
    """Record everything into a folder."""
    cases = list_cases()
    tables, refused = find_allowed(cases)
    with make_folder() as place:
        # Once to see what is refused, and once without that.
        for attempt in range(2):
            with fixed_chance():
                copy, outcomes, live, late = asyncio.run(play(Path(place) / f"{attempt}.db", cases, tables))
            if not late:
                break
            for name, why in late.items():
                print(name, why)
                refused[name] = why
                del tables[name]
        config = configured(copy, placements=tables)
        folded, _ = fold_store(copy, config, snapshot=False)
        restored, began = fold_store(copy, config, snapshot=True)
        assert live == folded == restored
        with interpreting():
            interpreted, _ = fold_store(copy, config, snapshot=False)
        whole = Path(place) / "whole.db"
        with contextlib.closing(apsw.Connection(str(copy))) as connection:
            connection.execute("VACUUM INTO ?", (str(whole),))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "store.db.xz").write_bytes(lzma.compress(whole.read_bytes()))
    about = {"machine": read_machine(), "placements": tables, "snapshots": began, "refused": sorted(refused)}
    (folder / "placements.json").write_text(json.dumps(about) + "\n")
    behaviour = {"outcomes": outcomes, "compiled": folded, "interpreted": interpreted}
    (folder / "behaviour.json.xz").write_bytes(lzma.compress(json.dumps(behaviour).encode()))
    record_learners(folder / "learners.zip")


def find_differences(found, recorded, exact, place=""):
    """Yield where JSON data differ from those recorded; fields may be added.

    Unless exact, floats may differ by rounding, and neither hashes of floats nor signals, a text of floats,
    are compared.
    """
    if found == recorded:
        return
    if isinstance(recorded, dict) and isinstance(found, dict):
        for name, value in recorded.items():
            if name not in found:
                yield f"{place}.{name} is missing"
            elif exact or name != "signals":
                yield from find_differences(found[name], value, exact, f"{place}.{name}")
    elif isinstance(recorded, list) and isinstance(found, list) and len(found) == len(recorded):
        is_digest = len(recorded) == 3 and ".arrays." in place and isinstance(recorded[1], float)
        for i, (one, other) in enumerate(zip(found, recorded, strict=True)):
            if exact or not (is_digest and i == 0):
                yield from find_differences(one, other, exact, f"{place}[{i}]")
    elif not exact and all(isinstance(each, str) and each[:1] in ("[", "{") for each in (found, recorded)):
        yield from find_differences(json.loads(found), json.loads(recorded), exact, place)
    elif isinstance(recorded, float) and isinstance(found, float) and not exact:
        if not np.isclose(found, recorded, rtol=1e-6, atol=1e-9):
            yield f"{place}: {found} in place of {recorded}"
    else:
        yield f"{place}: {found!r} in place of {recorded!r}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    record(Path(sys.argv[1]))
