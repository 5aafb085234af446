"""A placement starts from a fitted learner: what it held is where the log begins, for good."""

import hashlib
import signal
from contextlib import closing

import harness
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from harness import Client, Clock, as_after_a_crash, folded, is_the_fold, learned
from placement_access import check_request, check_starts, get_learner, store_start_learner
from stores import cluster, schema_of, sql, store_at

import tacit
from tacit.cli import cli
from tacit.errors import ConfigError
from tacit.service.config.file import load_config
from tacit.service.config.schema import Config, PlacementConfig, Rule
from tacit.service.errors import StoreError
from tacit.service.log.requests import DecisionRequest
from tacit.service.log.rows import START
from tacit.service.maintenance.doctor import verify
from tacit.service.maintenance.log_export import export, import_log
from tacit.service.page.timeline import describe_change
from tacit.wire.control import ArmsOf
from tests.service import test_living as living

NAMES = ("a", "b", "c")
POLICIES = {
    **living.POLICIES,
    "features": tacit.policies.LinTS(relevance_dim=2),
    "context": tacit.BWC(NAMES, classifier=tacit.classifiers.Rectangle(dim=2, margin=0.1)),
}
KINDS = {**living.KINDS, "context": "arms"}


def fitted(path, policy, rounds=40, seed=3):
    """Write a learner that has learned a little of two keys."""
    learner, rng = tacit.Learner(policy, seed), np.random.default_rng(seed)
    for i in range(rounds):
        context = rng.random(policy.context_dim) if policy.context_dim else None
        features = {"relevance": rng.random((2, 2))} if policy.feature_dims[0] else {}
        decision = learner.choose(f"key {i % 2}", context, **features)
        clicks = (rng.random(policy.feedback_width) < 0.4).astype(float)
        learner.learn(decision, clicks if len(clicks) > 1 else clicks[0])
    learner.save(path)
    return learner


def starting(path, kind="arms", **more):
    """Return the configuration of a placement that starts from a file."""
    home = living.of_kind(kind if kind in living.POLICIES else "arms", snapshot_every=9)
    home = home.placements["home"]
    if kind == "features":
        more["kind"] = kind
    more = {"policy": POLICIES[kind], "start": str(path), **more}
    return Config({"home": msgspec.structs.replace(home, **more)})


async def traffic(engine, first, count):
    policy = get_learner(engine.placements["home"]).policy
    for i in range(first, first + count):
        engine.clock.now = harness.START + i * living.ROUND_TIME
        key, id = f"key {i % 3}", f"{i}"
        given = {"context": [0.01 * i, 0.5]} if policy.context_dim else {}
        given |= {"relevance": [[0.1 * i, 1], [1, 0.5]]} if policy.feature_dims[0] else {}
        told = living.asked(engine, key, id) if not given else None
        told = told or check_request(engine.placements["home"], DecisionRequest(key, id=id, **given))
        (row,) = await engine.decide_many("home", [told])
        if i % 3:
            await living.feedback(engine, row, i)


def test_over_http_it_goes_on_from_what_was_fitted_whatever_becomes_of_file_and_process(tmp_path, kind):
    file, config = tmp_path / "learner.tacit", tmp_path / "tacit.toml"
    log = tmp_path / "clicks.csv"
    rows = ["holiday,1", "film,0", "film,1", "holiday,0", "film,1"]
    log.write_text("query,shown,clicked\n" + "".join(f"tomato,{row}\n" for row in rows))
    told = CliRunner().invoke(
        cli,
        [
            *("fit", str(log), "--policy", "thompson", "-o", str(file), "--arms", "film,holiday"),
            *("--column", "key=query", "--column", "arm=shown", "--column", "reward=clicked"),
        ],
    )
    assert told.exit_code == 0, told.output
    place = 'path = "s.db"'
    if kind == "postgres":
        place = f'url = "{cluster().url}"\nschema = "{schema_of(tmp_path / "s.db")}"'
    config.write_text(
        f"[server]\nport = 0\n[store]\n{place}\n[placements.home]\n"
        'arms = ["film", "holiday"]\npolicy = "thompson"\nsnapshot_every = 3\n'
        'attribution_window = 1000\nstart = "learner.tacit"\n'
    )
    process, port = harness.started(config)
    client = Client(f":{port}")
    # By hand: film has two clicks and one miss, holiday one each.
    expected = tacit.Learner.load(file).probabilities("tomato")
    counts = {"film": [2.0, 1.0], "holiday": [1.0, 1.0]}
    for i in range(5):
        _, _, made = client.post("home/decide", {"key": "tomato"})
        if not i:
            chance = dict(zip(("film", "holiday"), expected, strict=True))[made["arm"]]
            assert made["propensity"] == pytest.approx(chance, abs=1e-9)
        reward = float(i % 2)
        assert client.post(
            "home/feedback", {"decision_id": made["decision_id"], "reward": reward}
        )[0] == 200  # fmt: skip
        counts[made["arm"]][0 if reward else 1] += 1.0
    _, _, found = client.ask("GET", "/v1/placements/home/history")
    (change,) = found["history"]
    assert (change["what"], change["by"]) == ("start", "configuration")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    held = {"file": "learner.tacit", "sha256": digest, "decisions": 5, "keys": 1}
    assert change["detail"] == held
    harness.stopped(process, signal.SIGKILL)
    file.unlink()
    loaded = load_config(config)
    lives = [harness.everything(folded(tmp_path / "s.db", loaded, snapshot)) for snapshot in (True, False)]
    assert lives[0] == lives[1]
    keys, arrays = lives[0][:2]
    assert keys == ["tomato"]
    by_hand = np.array([counts["film"], counts["holiday"]])
    assert np.frombuffer(arrays["successes"]).tolist() == by_hand[:, 0].tolist()
    assert np.frombuffer(arrays["failures"]).tolist() == by_hand[:, 1].tolist()


@pytest.mark.parametrize("kind", POLICIES)
async def test_what_was_learned_is_the_fold_of_the_log_from_its_start_on(tmp_path, kind):
    file, path = tmp_path / "learner.tacit", tmp_path / "s.db"
    before = harness.arrays(fitted(file, POLICIES[kind]))
    config = starting(file, kind)

    async def session(first, place, step):
        async with harness.served(place, config, Clock(harness.START + first * living.ROUND_TIME)) as engine:
            step(engine)
            await traffic(engine, first, 12)
            return learned(engine), as_after_a_crash(place)

    def begun(engine):
        assert harness.arrays(get_learner(engine.placements["home"])) == before
        file.write_bytes(b"another one by now")

    live, crashed = await session(0, path, begun)
    is_the_fold(config, crashed, live)
    live, _ = await session(12, crashed, lambda engine: file.unlink())
    is_the_fold(config, crashed, live)
    # It goes along to another store.
    with closing(store_at(crashed)) as store, closing(store_at(tmp_path / "other.db")) as other:
        export(config, store, tmp_path / "exported")
        import_log(other, tmp_path / "exported")
    is_the_fold(config, tmp_path / "other.db", live)


async def test_it_is_told_once_and_shown_in_words(tmp_path):
    fitted(tmp_path / "one.tacit", POLICIES["arms"])
    for _ in range(3):
        async with harness.served(tmp_path / "s.db", starting(tmp_path / "one.tacit")) as engine:
            (change,) = await engine.history("home")
    assert describe_change(change) == "started from one.tacit"


def plays(engine):
    known = get_learner(engine.placements["home"]).state
    return known.successes.sum() + known.failures.sum()


async def test_a_rebuild_says_what_the_start_was_for_and_goes_back_to_it(tmp_path):
    fitted(tmp_path / "one.tacit", POLICIES["arms"])
    config, path = starting(tmp_path / "one.tacit"), tmp_path / "s.db"
    async with harness.served(path, config) as engine:
        await traffic(engine, 0, 9)
        at_first = harness.learned_arrays(engine.placements["home"].learner)
        since = plays(engine) - 40
        (note,) = (await engine.rebuild("home", "ucb1")).policy_version.approximate
        assert note.startswith("what one.tacit taught was for Thompson: the new policy")
        assert engine.placements["home"].learner.state.plays.sum() == since > 0
        # The policy that the start was for has it again, with all that was logged since.
        await traffic(engine, 9, 9)
        assert (await engine.rebuild("home", "thompson")).policy_version.approximate == []
        assert plays(engine) > 40 + since
        last = learned(engine)
        await engine.rollback("home", (await engine.states("home"))[0].name)
        assert harness.learned_arrays(engine.placements["home"].learner) == at_first
        await engine.rollback("home")
        assert learned(engine)[:2] == last[:2]
        live = learned(engine)
    is_the_fold(config, path, live)


async def test_what_has_decided_nothing_yet_may_still_start(tmp_path):
    first, second = tmp_path / "one.tacit", tmp_path / "two.tacit"
    fitted(first, POLICIES["arms"])
    later = harness.arrays(fitted(second, POLICIES["arms"], seed=4))
    without, path = starting(first, start=None), tmp_path / "s.db"
    async with harness.served(path, without):
        pass
    # A process that died before a mark said that it had started.
    with closing(store_at(path)) as store:
        store_start_learner("home", starting(first).placements["home"], store, 7)
        assert all(mark.kind != START for mark in store.changes(1))
    async with harness.served(path, starting(second)) as engine:
        assert harness.arrays(engine.placements["home"].learner) == later
    async with harness.served(path, starting(second)) as engine:
        await engine.ask("home", ArmsOf(["new"]))
        await traffic(engine, 0, 4)
        with pytest.raises(ConfigError, match=r"it has started from two.tacit, not from one.tacit"):
            await engine.reload(starting(first))
        # It may be left out by then.
        await engine.reload(starting(first, start=None))
        # What comes with a reload starts, too.
        await engine.reload(Config(engine.config.placements | {"more": starting(first).placements["home"]}))
        assert engine.placements["more"].key_count == 2
        live = learned(engine)
    is_the_fold(starting(second), path, live)


@pytest.mark.usefixtures("kind")
async def test_what_cannot_start_says_why_and_changes_nothing(tmp_path):
    file, path = tmp_path / "one.tacit", tmp_path / "s.db"

    def refused(why, config):
        with closing(store_at(path)) as store, pytest.raises(ConfigError, match=why):
            store_start_learner("home", config.placements["home"], store, 7)

    refused(
        r"placements.home.start: .*one.tacit cannot be read: No such file or directory; "
        r"write it with: tacit fit LOG -o one.tacit",
        starting(file),
    )
    file.write_bytes(b"PK\x03\x04")
    refused(r"start: .*one.tacit: truncated", starting(file))
    fitted(file, tacit.Thompson(NAMES, discount=0.9))
    refused(r"Thompson\(.*discount=0.9\) has learned it, the placement's policy", starting(file))
    fitted(file, tacit.Thompson(("a", "b", "d")))
    refused(r"it has learned the arms \['a', 'b', 'd'\], and the placement has", starting(file))
    fitted(file, tacit.Thompson(("b", "a", "c")))
    refused(r"the arms \['b', 'a', 'c'\], in this order, and", starting(file))
    fitted(file, tacit.UCB1(NAMES))
    refused(r"UCB1\(.* has learned it", starting(file))
    with pytest.raises(ConfigError, match="start: shards start from nothing"):
        check_starts(starting(file))
    with closing(store_at(path)) as store:
        assert store.placements() == {}
    async with harness.served(path, starting(file, start=None)) as engine:
        await traffic(engine, 0, 3)
    refused("it has started from nothing, not from one.tacit; set that back", starting(file))


async def test_numbered_arms_are_those_that_a_log_names_so(tmp_path):
    fitted(tmp_path / "one.tacit", tacit.UCB1(("0", "1")))
    numbered = PlacementConfig(tacit.UCB1(2), 7, rule=Rule(), start=str(tmp_path / "one.tacit"))
    async with harness.served(tmp_path / "s.db", Config({"home": numbered})) as engine:
        (row,) = await engine.decide_many("home", [living.asked(engine, "key 0")])
        assert row.arm in (0, 1)
        assert engine.placements["home"].learner.state.plays[0].sum() == 20


async def test_a_lost_start_is_no_empty_one(tmp_path):
    fitted(tmp_path / "one.tacit", POLICIES["arms"])
    config, path = starting(tmp_path / "one.tacit"), tmp_path / "s.db"
    async with harness.served(path, config) as engine:
        await traffic(engine, 0, 3)
    sql(path, "sqlite", "DELETE FROM bases")
    said = r"it started from one\.tacit, and what that had learned"
    with closing(store_at(path)) as store, pytest.raises(StoreError, match=said):
        verify(config, store)
