"""Decisions next to the caller: with the service's kernels, and nothing lost whoever is killed."""

import json
import os
import random
import shutil
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from functools import partial

import harness
import pytest
from forked import Forked, ran
from harness import PATIENCE, SECOND, START, Clock, as_after_a_crash, learned, started, stopped, with_policy
from placement_access import check_client_decision, check_request
from stores import free_port

import tacit
from tacit.client import Client, Conflict, InvalidRequest, Local, LocalDecision, NotFound, Unavailable
from tacit.client.replica import ShardReplica, Spool, encode, replace_file
from tacit.errors import BEFORE_0_3, InvalidValue, TacitError
from tacit.service.app.server import run_in_thread
from tacit.service.config.schema import Rule
from tacit.service.log.requests import ClientDecision, DecisionRequest, FeedbackRequest
from tacit.wire.control import ArmsOf, ModeOf

NAMES = ("a", "b", "c")
POLICIES = {
    "thompson": tacit.Thompson(NAMES),
    "shared": tacit.DriftMixture(NAMES),
    "restarts": tacit.policies.baselines.GLRKLUCB(NAMES),
}


configured = partial(with_policy, rule=Rule(window=30 * SECOND))


def made(engine, id, key="k", arm="a", propensity=0.5, arms=None):
    """Return a decision of elsewhere, as the engine is given it."""
    request = DecisionRequest(key, arms, id=id)
    return check_client_decision(engine.placements["home"], request, ClientDecision(arm, propensity))


# The log -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
async def test_what_is_taken_over_is_learned_and_is_a_fold_of_the_log(tmp_path, policy):
    path = tmp_path / "tacit.db"
    async with harness.served(path, configured(POLICIES[policy])) as engine:
        outcomes = set()
        for i in range(30):
            engine.clock.now = START + i * 7_000_000
            asked = [made(engine, f"{i} {j}", f"key {j % 2}", NAMES[j]) for j in range(3)]
            # Among them one that is decided here.
            plain = check_request(engine.placements["home"], DecisionRequest("key 0", id=f"{i} own"))
            rows = await engine.decide_many("home", [asked[0], plain, *asked[1:]])
            assert [row.arm for row in (rows[0], *rows[2:])] == list(NAMES)
            told = [FeedbackRequest(f"{i} {j}", reward=float(j == 2)) for j in range(2)]
            outcomes |= set(await engine.record_many("home", told))
            if i == 10:
                await engine.ask("home", ModeOf("frozen"))
            if i == 12:
                await engine.ask("home", ModeOf("online"))
            if i == 20:
                await engine.ask("home", ArmsOf(retire=["b"]))
        assert {"learned", "frozen"} <= outcomes
        before = learned(engine)
        crashed = as_after_a_crash(path)
    for place in (path, crashed):
        async with harness.served(place, configured(POLICIES[policy]), Clock(START)) as after:
            assert learned(after) == before


def test_a_folder_in_which_another_placement_waits_is_refused(tmp_path):
    config = harness.configured(tmp_path / "s.db", placements={"home": {"arms": 2}, "other": {"arms": 2}})
    with run_in_thread(config) as url, Local(url, "home", tmp_path / "waits", every=1e6) as local:
        shown = local.decide("a")
        local.feedback(shown.decision_id, 1)
        # A typing error leaves its folder to others.
        with pytest.raises(NotFound), Local(url, "hme", tmp_path / "typed") as wrong:
            wrong.decide("a")
        # As after a crash.
        shutil.copytree(tmp_path / "waits", tmp_path / "left")
        with pytest.raises(InvalidValue, match=r"folder: .*'home'; give each a folder of its own"):
            Local(url, "other", tmp_path / "left")
        with Client(url) as client:
            Local(url, "home", tmp_path / "left").close()
            assert client.feedback("home", shown.decision_id, 1).outcome == "repeated"
            Local(url, "home", tmp_path / "typed").close()


@pytest.mark.parametrize(
    ("field", "made_otherwise"),
    [
        ("arm", {"arm": "z"}),
        ("arm", {"arm": "a", "arms": ["b", "c"]}),
        ("propensity", {"propensity": 0.0}),
        ("propensity", {"propensity": 1.5}),
        ("key", {"key": "x" * 513}),
        ("decision_id", {"id": ""}),
    ],
)
async def test_what_cannot_have_been_is_refused(tmp_path, field, made_otherwise):
    async with harness.served(tmp_path / "tacit.db", configured(POLICIES["thompson"])) as engine:
        with pytest.raises(InvalidValue, match=f"^{field}"):
            made(engine, **{"id": "one", **made_otherwise})


async def test_a_propensity_that_a_weighing_policy_cannot_have_given_is_refused(tmp_path):
    """One of 10⁻⁶ would outweigh whatever comes after."""

    config = configured(tacit.policies.EXP3(NAMES, gamma=0.3))
    async with harness.served(tmp_path / "tacit.db", config) as engine:
        for propensity in (1e-6, 0.0999, None):
            with pytest.raises(InvalidValue, match=r"^propensity: .* at least 0\.1 with"):
                made(engine, "one", propensity=propensity)
        with pytest.raises(InvalidValue, match=r"at least 0\.15 with"):
            made(engine, "one", propensity=0.1, arms=["a", "b"])
        asked = [made(engine, "one", propensity=0.1), made(engine, "two", arm="b")]
        assert len(await engine.decide_many("home", asked)) == 2


FLOORED = tacit.ExplorationFloor(tacit.Thompson(NAMES), epsilon=0.3)


@pytest.mark.parametrize(
    ("policy", "propensity"),
    [(POLICIES["thompson"], 1e-300), (POLICIES["thompson"], 1e-17), (FLOORED, 1e-17), (FLOORED, 0.0999)],
)
async def test_a_propensity_that_no_draw_of_the_policy_has_is_refused(tmp_path, policy, propensity):
    """Sums that weigh by it would know nothing else from then on."""
    async with harness.served(tmp_path / "tacit.db", configured(policy)) as engine:
        with pytest.raises(InvalidValue, match=r"^propensity: .* at least"):
            made(engine, "one", propensity=propensity)
        await engine.decide_many("home", [made(engine, "one", propensity=0.1)])


async def test_a_propensity_from_before_a_rebuild_is_taken_over(tmp_path):
    """What waits in a spool was decided by the policy of then, whose floor was another one."""
    async with harness.served(tmp_path / "tacit.db", configured(POLICIES["thompson"])) as engine:
        await engine.rebuild("home", "epsilon-greedy(epsilon=0.3)")
        await engine.decide_many("home", [made(engine, "one", propensity=0.01)])


# Over HTTP -----------------------------------------------------------------------------------


def served_once(folder, **more):
    home = {"placements.home.arms": list(NAMES), "placements.home.policy": {"name": "Thompson"}}
    return run_in_thread(harness.configured(folder / "tacit.db", **home | more))


PATIENT = {"every": 1000.0, "seed": 1, "timeout": PATIENCE}


def local(url, folder, **options):
    return Local(url, "home", folder / "spool", **PATIENT | options)


def test_it_decides_as_the_service_would_and_the_service_learns_of_it(tmp_path):
    with served_once(tmp_path) as url, local(url, tmp_path) as here, Client(url) as client:
        first = [here.decide("k") for _ in range(60)]
        assert {one.durability for one in first} == {"spooled"}
        assert [one.propensity for one in first] == pytest.approx([1 / 3] * 60)
        assert {one.arm for one in first} == set(NAMES)
        for one in first:
            here.feedback(one.decision_id, float(one.arm == "b"))
        here.flush()
        here.flush()
        chances = dict(zip(NAMES, restored(tmp_path, client).probabilities("k"), strict=True))
        second = here.decide("k")
        assert second.propensity == chances[second.arm]
        assert chances["b"] > 0.9
        assert client.feedback("home", first[0].decision_id, 1).outcome == "repeated"


def restored(folder, client):
    """Return a learner of what a placement has learned."""
    path = folder / "learner.tacit"
    path.write_bytes(client.learner("home"))
    return tacit.Learner.load(path)


def test_two_of_them_do_not_draw_the_same(tmp_path):
    with (
        served_once(tmp_path) as url,
        local(url, tmp_path / "1", seed=None) as one,
        local(url, tmp_path / "2", seed=None) as other,
    ):
        # Alike by chance once in 3^40.
        assert [one.decide("k").arm for _ in range(40)] != [other.decide("k").arm for _ in range(40)]


def test_a_decision_id_repeats_its_decision_and_is_delivered_on_close(tmp_path):
    with served_once(tmp_path) as url, Client(url) as client:
        with local(url, tmp_path) as here:
            first = here.decide("k", arms=["a", "b"], decision_id="order 66")
            assert here.decide("k", arms=["a", "b"], decision_id="order 66") == first
            with pytest.raises(Conflict, match="send the same request, or another id"):
                here.decide("other", arms=["a", "b"], decision_id="order 66")
            here.feedback("order 66", 1.0)
        assert client.feedback("home", "order 66", 1).outcome in ("learned", "repeated")


def test_what_is_too_old_is_not_decided_with(tmp_path):
    with served_once(tmp_path) as url, local(url, tmp_path, stale=1e-9) as here:
        assert here.decide("k").durability == "committed"


@pytest.mark.parametrize(
    "more",
    [
        {"placements.home.holdout": {"share": 0.1, "control": "uniform", "unit": "user"}},
        {
            "placements.home.signals": ["volume", "abandonment"],
            "placements.home.policy": {"name": "DriftMixture", "context_dim": 2},
        },
        {"placements.home.mode": "shadow", "placements.home.shadow": "ucb1"},
    ],
    ids=["holdout", "signals", "shadow"],
)
def test_where_only_the_service_can_decide_it_is_asked(tmp_path, more):
    with served_once(tmp_path, **more) as url, local(url, tmp_path) as here, Client(url) as client:
        shown = here.decide("k", user="ann")
        assert (shown.durability, shown.warning) == ("committed", None)
        here.feedback(shown.decision_id, 1)
        here.flush()
        assert client.feedback("home", shown.decision_id, 0).outcome == "repeated"
        with pytest.raises(InvalidRequest, match="ask the service"):
            client.learner("home")


def test_what_was_decided_before_a_pin_or_another_mode_is_taken_over(tmp_path):
    more = {"placements.home.shadow": "ucb1"}
    with served_once(tmp_path, **more) as url, local(url, tmp_path) as here, Client(url) as client:
        shown = [here.decide("k")]
        client.pin("home", ["a"], until=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
        here.flush()
        pinned = here.decide("k")
        assert (pinned.arm, pinned.propensity, pinned.durability) == ("a", 1.0, "committed")
        shown.append(pinned)
        client.unpin("home")
        here.flush()
        shown.append(here.decide("k"))
        assert shown[-1].durability == "spooled"
        client.mode("home", "shadow")
        here.flush()
        assert [client.feedback("home", one.decision_id, 1).outcome for one in shown] == ["learned"] * 3


def test_a_batch_is_taken_over_but_for_what_cannot_be(tmp_path):
    with served_once(tmp_path) as url, Client(url) as client:
        batch = [
            LocalDecision("one", "k", "a", 0.5),
            LocalDecision("two", "k", "z", 0.5),
            LocalDecision("one", "k", "b", 0.5),
            LocalDecision("three", "k", "c", 0.5),
        ]
        outcomes = [one.outcome for one in client.log_decisions("home", batch)]
        assert outcomes == ["logged", "invalid-value", "conflict", "logged"]
        # Sent again, it is the one that is there.
        outcomes = [one.outcome for one in client.log_decisions("home", batch)]
        assert outcomes == ["duplicate", "invalid-value", "conflict", "duplicate"]
        placements = harness.Client(url).ask("GET", "/v1/placements")[2]["placements"]
        assert {placement["name"]: placement["decisions"] for placement in placements}["home"] == 2
        # It waits for the decision before it.
        assert client.feedback("home", "three", 1).outcome == "pending"
        assert client.feedback("home", "one", 1).outcome == "learned"


def test_what_the_service_never_takes_is_put_aside(tmp_path):
    with served_once(tmp_path) as url, local(url, tmp_path) as here:
        here.feedback("nobody's", 1.0)
        shown = here.decide("k")
        here.flush()
        (refused,) = (tmp_path / "spool" / "refused.jsonl").read_text().splitlines()
        assert "nobody's" in refused
        with Client(url) as client:
            assert client.feedback("home", shown.decision_id, 1).outcome == "learned"


DAMAGED = (
    b'{"torn', b"[]", b"5", b"", b'["decision"]', b'["decision",7]', b'["other",{}]', b"\xff\x00",
    b'["feedback",{"decision_id":"\xff"}]', b'["decision",{"decision_id":"one"}]', b'["feedback",{},{}]',
    b'["decision","id","k","a"]',
)  # fmt: skip


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_is_set_aside_and_said_and_the_rest_is_delivered(line, tmp_path, caplog):
    with served_once(tmp_path) as url, local(url, tmp_path) as here, Client(url) as client:
        shown = [here.decide("k") for _ in range(2)]
        with open(tmp_path / "spool" / "open.jsonl", "ab") as file:
            file.write(line + b"\n")
        shown.append(here.decide("k"))
        here.flush()
        here.flush()
        assert here.read_replicas()[0].waiting == 0
        refused = (tmp_path / "spool" / "refused.jsonl").read_bytes()
        assert refused.count(b"\n") == caplog.text.count("refused.jsonl") == 1
        assert [client.feedback("home", one.decision_id, 1).outcome for one in shown] == ["learned"] * 3


def test_any_flip_in_a_spool_leaves_the_other_lines_to_be_delivered(tmp_path):
    rng = random.Random(1)
    with served_once(tmp_path) as url, local(url, tmp_path) as here, Client(url) as client:
        for _ in range(100):
            shown = [here.decide("k") for _ in range(3)]
            path = tmp_path / "spool" / "open.jsonl"
            content = bytearray(path.read_bytes())
            first = content.index(b"\n")
            # The line's end is spared: without it the line after is no line of its own.
            second = content.index(b"\n", first + 1)
            content[rng.randrange(first + 1, second)] ^= 1 << rng.randrange(8)
            path.write_bytes(content)
            here.flush()
            assert here.read_replicas()[0].waiting == 0
            # The one in the middle may be lost, or wait.
            for one in shown[::2]:
                assert client.feedback("home", one.decision_id, 1).outcome in {"learned", "pending"}


def test_whatever_an_exchange_meets_the_next_one_is_tried(tmp_path, monkeypatch):
    failures = [ZeroDivisionError("of a test")]
    deliver = ShardReplica.deliver

    def failing(self, *given):
        if failures:
            raise failures.pop()
        deliver(self, *given)

    with served_once(tmp_path) as url, local(url, tmp_path, every=0.01) as here:
        here.decide("k")
        monkeypatch.setattr(ShardReplica, "deliver", failing)
        harness.eventually(lambda: not failures)
        harness.eventually(lambda: here.read_replicas()[0].waiting == 0)


@pytest.mark.parametrize("content", [b"", b"{", b'{"shards":0}', b"\xff"])
def test_a_damaged_layout_is_said_and_what_waits_is_delivered(content, tmp_path, caplog):
    with served_once(tmp_path) as url:
        with local(url, tmp_path) as here:
            shown = here.decide("k")
        left = tmp_path / "spool" / "1"
        left.mkdir()
        line = encode(("decision", LocalDecision("apart", "k", "a", 0.5)))
        (left / "000000000001.jsonl").write_bytes(line + b"\n")
        (tmp_path / "spool" / "shards.json").write_bytes(content)
        with local(url, tmp_path), Client(url) as client:
            assert "shards.json" in caplog.text
            for id in (shown.decision_id, "apart"):
                assert client.feedback("home", id, 1).outcome == "learned"


def test_what_takes_the_place_of_a_file_is_durable_before(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr("os.fsync", lambda file: (calls.append("fsync"), fsync(file)))
    monkeypatch.setattr("os.replace", lambda *paths: (calls.append("replace"), replace(*paths)))
    replace_file(tmp_path / "shards.json", b"{}")
    # The file, then the folder that names it.
    assert calls == ["fsync", "replace", "fsync"]


def test_without_the_service_it_goes_on_and_delivers_later(tmp_path):
    port = {"server.port": free_port()}
    with served_once(tmp_path, **port) as url, local(url, tmp_path) as here:
        shown = [here.decide("k")]
    with local(url, tmp_path) as here:  # nobody is there, and what was known is on the disk
        shown += [here.decide("k") for _ in range(5)]
        assert {one.durability for one in shown} == {"spooled"}
        for one in shown:
            here.feedback(one.decision_id, 1.0)
        with pytest.raises(Unavailable):
            here.flush()
    with served_once(tmp_path, **port) as url, local(url, tmp_path) as here, Client(url) as client:
        assert not list((tmp_path / "spool").glob("0*.jsonl"))
        assert {client.feedback("home", one.decision_id, 1).outcome for one in shown} == {"repeated"}


def test_what_version_0_2_kept_is_refused_and_stays(tmp_path):
    folder = tmp_path / "spool"
    folder.mkdir()
    decision = ["decision", "one", "k", "a", 0.5, None, None]
    content = f'{json.dumps(decision)}\n["feedback",{{"decision_id":"one","reward":1.0}}]\n'
    (folder / "open.jsonl").write_text(content)
    with served_once(tmp_path) as url, Client(url) as client:
        # As often as it is tried.
        for _ in range(2):
            with pytest.raises(TacitError) as caught:
                local(url, tmp_path)
            (file,) = folder.glob("0*.jsonl")
            assert str(caught.value) == f"{file}: {BEFORE_0_3}"
            assert file.read_text() == content
        with pytest.raises(NotFound):
            client.feedback("home", "one", 1)


def test_who_has_nothing_to_decide_with_says_so(tmp_path):
    with served_once(tmp_path) as url:
        pass
    with local(url, tmp_path) as here, pytest.raises(Unavailable, match="no answer"):
        here.decide("k")


def test_one_that_is_closed_says_so(tmp_path):
    with served_once(tmp_path) as url, local(url, tmp_path) as here:
        shown = here.decide("k")
    for call in (lambda: here.decide("k"), lambda: here.feedback(shown.decision_id, 1.0)):
        with pytest.raises(TacitError, match="closed"):
            call()
    assert here.read_replicas() == []


@pytest.mark.parametrize(("end", "said"), [("", True), ("local.close()", False), ("local.flush()", False)])
def test_what_is_not_delivered_when_a_script_ends_is_said(end, said, tmp_path):
    script = f"""
import sys
from tacit.client import Local
local = Local(sys.argv[1], "home", sys.argv[2], every=1000)
local.feedback(local.decide("k").decision_id, 1)
{end}
"""
    with served_once(tmp_path) as url:
        ended = ran(["-c", script, url, tmp_path / "spool"])
    assert (ended.returncode, ended.stdout) == (0, "")
    assert said == ("wait in " in ended.stderr and "use it by `with`, or close() it" in ended.stderr)
    assert said == (ended.stderr != "")


# Kills ---------------------------------------------------------------------------------------

CALLER = """
import sys
from tacit.client import Local
from tacit.wire.control import ArmsOf, ModeOf
local = Local(sys.argv[1], "home", sys.argv[2], every=0.02)
while True:
    shown = local.decide("k")
    local.feedback(shown.decision_id, 1.0)
    print(shown.decision_id, flush=True)
"""


def test_kills_of_either_side_lose_and_double_nothing(tmp_path):
    config = tmp_path / "tacit.toml"
    config.write_text(
        f'[server]\nport = {free_port()}\n[store]\npath = "{tmp_path}/tacit.db"\n'
        f"[placements.home]\narms = {json.dumps(NAMES)}\npolicy = {{ name = 'Thompson' }}\n"
        "attribution_window = 3600\n"  # however busy the machine is, what is sent again is in time
    )
    told = []
    for round in range(2):
        service, port = started(config)
        command = "-c", CALLER, f"http://127.0.0.1:{port}", tmp_path / "spool"
        caller = Forked(command, stdout=subprocess.PIPE, text=True)
        told += [caller.stdout.readline().strip() for _ in range(150)]
        for victim in (service, caller) if round % 2 else (caller, service):
            stopped(victim, signal.SIGKILL)
    service, port = started(config)
    url = f"http://127.0.0.1:{port}"
    with service:
        with local(url, tmp_path) as here, Client(url) as client:
            here.flush()
            assert not (tmp_path / "spool" / "refused.jsonl").exists()
            (summary,) = harness.Client(url).ask("GET", "/v1/placements")[2]["placements"]
            assert {client.feedback("home", id, 1).outcome for id in told} == {"repeated"}
            assert len(set(told)) == len(told) == 300
            assert summary["decisions"] >= summary["feedback"] >= 300
        service.terminate()


# The spool -----------------------------------------------------------------------------------


def test_a_spool_gives_back_what_was_appended_whoever_ended(tmp_path):
    spool = Spool(tmp_path)
    spool.append(b"one")
    spool.close_file()
    spool.append(b"two")
    spool.close()
    with open(tmp_path / "open.jsonl", "ab") as file:
        file.write(b"torn")
    spool = Spool(tmp_path)
    spool.append(b"three")
    spool.close_file()
    spool.close_file()
    assert [spool.lines(file) for file in spool.files()] == [[b"one"], [b"two", b"torn"], [b"three"]]
    spool.close()


def test_a_folder_is_for_one_process(tmp_path):
    spool = Spool(tmp_path)
    with pytest.raises(TacitError, match="another process"):
        Spool(tmp_path)
    spool.close()
    Spool(tmp_path).close()
