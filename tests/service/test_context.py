"""Who is asking, in the service: contexts by name are learned, logged, folded and refused by name."""

import asyncio
import contextlib
import json
import math
import re
import shlex
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
import stores
from click.testing import CliRunner
from conftest import ROOT
from harness import as_after_a_crash, in_shards, learned, quiet, recovered, served, with_home
from placement_access import Engine, ReadStore, check_request, count_undeclared, decide

import tacit
from tacit.cli import cli
from tacit.client import Client, Impression, InvalidRequest
from tacit.errors import AssumptionWarning, ConfigError, InvalidValue
from tacit.evaluate import Learning, off_policy
from tacit.service.app.server import run_in_thread
from tacit.service.config.file import load_config
from tacit.service.errors import StoreError
from tacit.service.log.requests import DecisionRequest
from tacit.service.log.sqlite import SqliteStore
from tacit.service.page.overview import list_problems
from tacit.wire.control import ArmsOf

pytestmark = pytest.mark.interpreted

DECLARED = {"device": ["ios", "web"], "age": "number", "new": "boolean", "country": "category(4)"}


configured = partial(with_home, arms=["film", "song"], context=DECLARED)


def asked(engine, age, key="all", **more):
    given = {"device": "ios", "age": age, "new": False, "country": "de"} | more
    return engine.placements["home"].reader.read(DecisionRequest(key, context=given))


async def traffic(engine, rounds, first=0):
    """Songs for whoever is above 50, films for others; return how many were right."""
    rng, right = np.random.default_rng(first), 0
    for _ in range(rounds):
        # What came before has been learned by then.
        engine.clock.now += 60_000_000
        age = float(rng.uniform(18, 80))
        (row,) = await engine.decide_many("home", [asked(engine, age)])
        best = row.arm == ("song" if age > 50 else "film")
        await engine.feedback("home", row.id, float(best))
        right += best
    return right


@pytest.mark.compiled
async def test_it_learns_who_likes_what_and_recovers_it_from_the_log(tmp_path):
    path = tmp_path / "s.db"
    config = configured(path, holdout={"share": 0.2})
    async with served(path, config) as engine:
        await traffic(engine, 150)
        await engine.ask("home", ArmsOf(["game"]))
        right = await traffic(engine, 150, 1)
        live, crashed = learned(engine), as_after_a_crash(path)
    # A control of a fifth is right by chance; by chance alone 100 of 150 are in less than 1e-4 of cases.
    assert right >= 100
    for place in (crashed, path):
        with recovered(place, config) as again:
            assert learned(again) == live


async def test_what_the_log_keeps_are_the_columns(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        (row,) = await engine.decide_many("home", [asked(engine, 31, device="tv", new=None)])
        others = count_undeclared(engine.placements["home"])
    expected = tacit.ContextMixture(2, context=DECLARED)
    assert row.context.count(",") + 1 == expected.context_dim == 13
    assert row.context.startswith("[0.0,0.0,1.0,0.0,31.0,0.0,0.0,1.0,")
    assert others == {"device": 1}


async def test_a_value_that_is_nearly_one_of_those_declared_is_said_on_the_page(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        home = engine.placements["home"]
        assert list_problems(home, engine.clock()) == []
        with pytest.warns(AssumptionWarning, match="counts as other"):
            await engine.decide_many(
                "home", [asked(engine, 31, device="iOS"), asked(engine, 31, device="IOS")]
            )
        (said,) = list_problems(home, engine.clock())
    assert said.startswith("context.device: 'iOS' counts as other; send 'ios', as the schema has it")


def test_over_http(tmp_path):
    with run_in_thread(configured(tmp_path / "s.db")) as url, Client(url) as client:
        assert client.decide("home", "all", context={"device": "ios", "age": 31}).arm in ("film", "song")
        numbers = {"device": np.str_("web"), "age": np.float32(31), "new": np.bool_(True)}
        assert client.decide("home", "all", context=numbers).arm in ("film", "song")
        client.decide("home", "all", context={"device": "tv", "age": math.nan})
        metrics = httpx.get(f"{url}/metrics").text
        assert 'tacit_context_others_total{field="device",placement="home"} 1.0' in metrics
        assert re.search(r'tacit_state_bytes\{placement="home"\} \d{5}', metrics)
        found = CliRunner().invoke(cli, ["doctor", "--url", url])
        assert found.exit_code == 0, found.output
        assert "placement home: 1 values of device were none of those declared" in found.output
        assert 'or let any be: device = "category"' in found.output
        assert re.search("placement home: what was learned takes [0-9,]* bytes", found.output)
        many = [Impression("all", context={"age": age}) for age in (20, 70)]
        assert len(client.decide_many("home", many)) == 2
        assert client.decide("home", "all", context=[0.0] * 13).arm in ("film", "song")
        for given, message in (
            ({"browser": "x"}, r"context\.browser: .*the schema has the fields device, age, new, country"),
            ({"age": "31"}, r"context\.age: .*give a finite number"),
            ([1.0], "give a list of 13 finite numbers, or what is known of device, age, new, country"),
            (None, "give a list of 13 finite numbers"),
        ):
            with pytest.raises(InvalidRequest, match=message):
                client.decide("home", "all", context=given)


def test_the_doctor_says_that_nobody_answers():
    found = CliRunner().invoke(cli, ["doctor", "--url", "http://127.0.0.1:9"])
    assert (found.exit_code, "start it with tacit serve" in found.output) == (1, True)


def test_an_evaluation_context_is_who_is_asking(tmp_path):
    with run_in_thread(configured(tmp_path / "s.db")) as url:
        asked = {"context": {"targetingKey": "u", "age": 70, "device": "ios", "zip": "12345"}}
        answer = httpx.post(f"{url}/ofrep/v1/evaluate/flags/home", json=asked)
        assert (answer.status_code, answer.json()["value"] in ("film", "song")) == (200, True)
        asked["context"]["age"] = "old"
        answer = httpx.post(f"{url}/ofrep/v1/evaluate/flags/home", json=asked)
        assert (answer.status_code, answer.json()["errorCode"]) == (400, "INVALID_CONTEXT")


@pytest.mark.parametrize("other", [{"device": ["ios", "web"], "country": ["de", "fr"]}, None])
def test_another_context_than_what_was_learned_with_is_refused(tmp_path, other):
    before = with_home(tmp_path / "s.db", arms=["film", "song"], context={"device": ["ios", "web"]})
    Engine(before, SqliteStore(before.store.path)).store.close()
    now = with_home(tmp_path / "s.db", arms=["film", "song"], **({"context": other} if other else {}))
    with pytest.raises(ConfigError, match=r"home\.context: the store holds .*device.*, which is not for"):
        Engine(now, SqliteStore(now.store.path))


async def test_a_log_without_contexts_is_not_folded_into_a_policy_that_reads_them(tmp_path):
    async with served(tmp_path / "s.db", with_home(arms=["film", "song"], policy="thompson")) as engine:
        await engine.decide("home", "all")
        await quiet(engine)
        with pytest.raises(InvalidValue, match="reads a context of 0 numbers"):
            await engine.rebuild("home", {"name": "context-mixture", "context_dim": 2})


def test_items_for_users_are_exported_with_their_vectors_and_judge_another_policy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tacit.toml").write_text(
        'server = { port = 0 }\nstore = { path = "s.db" }\n[placements.shop]\nkind = "features"\n'
        'relevance_dim = 2\ncontext = { device = ["ios", "web"] }\nattribution_window = 0.01\n'
        'policy = "exploration-floor(auto, epsilon=0.5)"\n'
    )
    with run_in_thread(load_config("tacit.toml")) as url, Client(url) as client:
        features = {"a": [0.0, 1.0], "b": [1.0, 0.0], "c": [1.0, 1.0]}
        for i in range(40):
            if i == 20:
                features["a"] = [0.5, 0.5]
            arms = ["a", "b", "c"][i % 2 :]
            given = {"arms": arms, "relevance": [features[arm] for arm in arms]}
            decision = client.decide("shop", "all", context={"device": "ios"}, **given)
            client.feedback("shop", decision.decision_id, float(decision.arm == "b"))
        # Two vectors of one item at one moment: the second one is another item.
        both = [
            Impression("all", context={}, arms=["d", "e"], relevance=[[i, 0.0], [9.0, 9.0]])
            for i in (1.0, 2.0)
        ]
        client.decide_many("shop", both)
        commands = [
            ["log", "export", "log", "--config", "tacit.toml"],
            ["evaluate", "log/clicks-shop.parquet", "--items", "log/items-shop.parquet", "--estimator", "ips",
             "--policy", "items_of_ones_own:LikedItems(relevance_dim=2, context_dim=4)"],
        ]  # fmt: skip
        found = [CliRunner().invoke(cli, command) for command in commands]
    assert [each.exit_code for each in found] == [0, 0], found[-1].output
    assert "from 42 logged rows" in found[1].output
    items = pq.read_table("log/items-shop.parquet").to_pylist()
    assert [each["vector"] for each in items if each["id"] == "a"] == [[0.0, 1.0], [0.5, 0.5]]
    names = [each["id"] for each in items]
    assert (names.count("b"), names.count("e"), len(names)) == (1, 1, 7)
    assert sum(name.startswith("d#") for name in names) == 1


async def test_what_asks_for_somebody_is_not_left_to_a_policy_that_does_not_listen(tmp_path):
    async with served(tmp_path / "s.db", configured()) as engine:
        await engine.decide_many("home", [asked(engine, 31)])
        await quiet(engine)
        with pytest.raises(InvalidValue, match="requests say who is asking, in 13 numbers"):
            await engine.rebuild("home", "thompson")
        await engine.rebuild("home", {"name": "context-mixture", "context": DECLARED, "per_key": True})
        await engine.decide_many("home", [asked(engine, 31)])
        await engine.rollback("home")
        await engine.decide_many("home", [asked(engine, 31)])


def test_what_was_served_is_exported_while_it_serves_and_judges_another_policy(tmp_path, kind):
    written, path = tmp_path / "tacit.toml", tmp_path / "s.db"
    place, told = f'path = "{path}"', ["--store", str(path)]
    if kind == "postgres":
        place = f'url = "{stores.cluster().url}", schema = "{stores.schema_of(path)}"'
        told = ["--config", str(tmp_path / "store.toml")]
    (tmp_path / "store.toml").write_text(f'store = {{ {place} }}\n[placements.shop]\narms = ["a", "b"]\n')
    written.write_text(
        f"server = {{ port = 0 }}\nstore = {{ {place} }}\n"
        '[placements.home]\narms = ["film", "song"]\nattribution_window = 0.01\n'
        'policy = "exploration-floor(auto, epsilon=0.5)"\n'
        'context = { device = ["ios", "web"], age = "number" }\n'
    )
    with run_in_thread(load_config(written)) as url, Client(url) as client:
        for age in np.random.default_rng(1).uniform(18, 80, 60):
            decision = client.decide("home", "all", context={"device": "ios", "age": age})
            client.feedback("home", decision.decision_id, float((decision.arm == "song") == (age > 50)))
        found = CliRunner().invoke(cli, ["log", "export", str(tmp_path / "log"), "--config", str(written)])
        assert found.exit_code == 0, found.output
        assert client.decide("home", "all", context={"age": 31}).arm in ("film", "song")
        found = CliRunner().invoke(cli, ["log", "export", str(tmp_path / "alone"), *told])
        assert "placements: home: not in the configuration, so no click log has them" in found.output
        # An empty one would pass for a log without a click.
        assert "there is no clicks.parquet; give --config" in found.output
        assert not (tmp_path / "alone" / "clicks.parquet").exists()
        counts = [pq.read_metadata(tmp_path / of / "decisions.parquet").num_rows for of in ("log", "alone")]
        assert counts == [60, 61]
    other = tacit.ContextMixture(["film", "song"], 6, per_key=True)
    found = off_policy(Learning(other), tmp_path / "log" / "clicks.parquet", missing_reward=0.0)
    assert found.rows == 60
    assert 0.0 <= found.estimates[1].value <= 1.0


def test_the_two_commands_of_the_page_judge_another_policy_while_it_serves(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "who-is-asking.md").read_text(encoding="utf-8")
    (declared,) = re.findall(r"```toml\n(.*?)```", page, re.S)
    commands = [shlex.split(line) for line in re.findall(r"^\$ tacit (.*)", page, re.M)]
    assert [command[0] for command in commands] == ["log", "evaluate"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tacit.toml").write_text('server = { port = 0 }\nstore = { path = "s.db" }\n' + declared)
    with run_in_thread(load_config(tmp_path / "tacit.toml")) as url, Client(url) as client:
        for age in range(20, 80):
            decision = client.decide("home", "all", context={"device": "ios", "age": age, "country": "de"})
            client.feedback("home", decision.decision_id, float(age > 50))
        found = [CliRunner().invoke(cli, command) for command in commands]
    assert [each.exit_code for each in found] == [0, 0], found
    assert "learning: mean reward, from 60 logged rows" in found[1].output


async def test_a_store_in_postgresql_is_read_as_it_was_at_one_moment_and_never_taken_over(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(stores, "chosen", "postgres")
    url, schema = stores.cluster().url, stores.schema_of(tmp_path)
    with pytest.raises(StoreError, match="there is no log; give the schema that was served"):
        ReadStore(url, schema)
    async with served(tmp_path, with_home(arms=2)) as engine:
        await engine.decide("home", "all")
        with contextlib.closing(ReadStore(url, schema)) as reader:
            (before,) = reader.events(0)
            await engine.decide("home", "all")
            assert list(reader.events(0)) == [before]
            assert reader.end().seq == before.seq
            with pytest.raises(StoreError, match="open for reading only"):
                reader.store_configurations({"home": "{}"})
        await engine.decide("home", "all")


# For whom ---------------------------------------------------------------------------------------


async def test_it_says_which_users_get_what_and_why(tmp_path):
    async with served(tmp_path / "s.db", configured(holdout={"share": 0.2})) as engine:
        early = await engine.report_segments("home", 10)
        assert (early.decisions, early.since, early.arms) == (0, None, [])
        assert early.verdict.startswith("Too early")
        await traffic(engine, 400)
        await engine.decide_many("home", [asked(engine, 31, device="tv", new=True)] * 20)
        found = await engine.report_segments("home", 1000)
        assert found is await engine.report_segments("home", 1000)
    # A control of a fifth is not for whom the policy decides.
    assert 300 < found.decisions < 370
    assert 0.0 < found.says_nothing < 0.2
    first, *others = found.fields
    assert (first.field, {each.field for each in others}) == ("age", {"device", "country", "new"})
    assert first.matters > 10 * max(each.matters for each in others)
    assert found.verdict.startswith("Who is asking matters. age decides most; ")
    youngest, *_, oldest = first.segments
    assert youngest.value.startswith("up to ")
    assert oldest.value.startswith("above ")
    assert (youngest.arms[0].arm, oldest.arms[0].arm) == ("film", "song")
    assert youngest.arms[0].adds > 0.5
    assert youngest.arms[0].low > 0.5
    for arm in (youngest.arms[0], oldest.arms[0], *found.arms):
        assert 0.0 <= arm.low <= arm.mean <= arm.high <= 1.0
    for field in found.fields:
        assert sum(segment.decisions for segment in field.segments) == found.decisions
        for segment in field.segments:
            assert sum(arm.shown for arm in segment.arms) == segment.decisions
    named = {field.field: [segment.value for segment in field.segments] for field in others}
    assert named == {"device": ["ios", "other"], "country": ["de"], "new": ["yes", "no"]}
    assert found.bytes > 10_000


def test_for_whom_is_on_the_page_as_it_is_over_http(tmp_path):
    with run_in_thread(configured(tmp_path / "s.db")) as url, Client(url) as client:
        for age in range(20, 40):
            client.decide("home", "all", context={"age": age, "device": "ios"})
        found = client.for_whom("home")
        page = httpx.get(f"{url}/placements/home").text
        command = ["placement", "for-whom", "home", "--url", url]
        printed = CliRunner().invoke(cli, command).stdout
        whole = json.loads(CliRunner().invoke(cli, [*command, "--limit", "5", "--json"]).stdout)
    assert found.decisions == sum(arm.shown for arm in found.arms) == 20
    assert printed == f"{found}\n" == f"{found!r}\n"
    assert printed.splitlines()[-1].startswith("this adds: to the log-odds of a reward")
    verdict, head, first, *_ = printed.splitlines()
    assert (verdict, head.split()[:3]) == (found.verdict, ["who", "is", "asking"])
    assert first.split()[:2] == [f"{found.fields[0].field}:", found.fields[0].segments[0].value.split()[0]]
    assert whole["decisions"] == 5
    (age,) = (field for field in found.fields if field.field == "age")
    rows = [row for row in found.records() if row["field"] == "age"]
    assert sum(row["shown"] for row in rows) == sum(each.decisions for each in age.segments) == 20
    assert found.verdict in page
    assert page.count('data-table="whom-') == 4
    assert "Reward of an average user" in page
    assert "reward of an average one" in head
    assert 'data-segment="up to 24.8"' in page


async def test_in_shards_it_is_what_the_one_says_that_decides_most(tmp_path):
    async with in_shards(tmp_path, configured(tmp_path / "s.db")) as (service, engines):
        await traffic(engines[0], 3)
        await traffic(engines[1], 9)
        own, found = await engines[1].report_segments("home"), await service.report_segments("home")
        assert (found.shard, found.decisions, found.fields) == (1, 9, own.fields)
        assert found.verdict == f"Of shard 1, which decides most and has a model of its own: {own.verdict}"
        # Of as many that are looked at, those of the shard that made them in less time.
        alike = await service.report_segments("home", 3)
        assert (alike.shard, alike.decisions) == (1, 3)


def test_what_is_said_of_items_is_refused_where_arms_have_names(tmp_path):
    with run_in_thread(configured(tmp_path / "s.db")) as url:
        for field, value in {"segment": "film", "unknown": "skip", "relevance": [[1.0]]}.items():
            body = {"key": "all", "context": {"age": 30}, field: value}
            for path, sent in (("decide", body), ("decide/batch", {"decisions": [body]})):
                answer = httpx.post(f"{url}/v1/placements/home/{path}", json=sent)
                assert answer.status_code == 422, answer.text
                assert answer.json()["detail"].partition(":")[0].endswith(field)


def test_where_nothing_is_read_a_context_is_refused_and_there_is_no_for_whom(tmp_path):
    with run_in_thread(with_home(tmp_path / "s.db", arms=2)) as url, Client(url) as client:
        for context in ([0.5], {"age": 31}, {}, []):
            with pytest.raises(InvalidRequest, match="configure the placement's context"):
                client.decide("home", "all", context=context)
        assert client.decide("home", "all").arm in (0, 1)
        with pytest.raises(InvalidRequest, match="reads nothing of who is asking"):
            client.for_whom("home")
        assert "For whom" not in httpx.get(f"{url}/placements/home").text


def test_keys_with_models_of_their_own_are_looked_at_one_by_one(tmp_path):
    policy = {"name": "context-mixture", "per_key": True}
    config = configured(tmp_path / "s.db", policy=policy, attribution_window=0.01)
    with run_in_thread(config) as url, Client(url) as client:
        for key in ("all", "other", "all"):
            client.decide("home", key, context={"age": 20})
        found = client.for_whom("home")
    assert (found.key, found.decisions) == ("all", 2)


def test_items_known_by_features_are_counted_by_who_was_asking(tmp_path):
    values = {"kind": "features", "relevance_dim": 2, "context": {"device": ["ios", "web"]}}
    with run_in_thread(with_home(tmp_path / "s.db", **values)) as url, Client(url) as client:
        for device in ("ios", "web", "web"):
            features = {"arms": ["a", "b"], "relevance": [[0.0, 1.0], [1.0, 0.0]]}
            client.decide("home", "all", context={"device": device}, **features)
        found = client.for_whom("home")
        assert found.verdict in httpx.get(f"{url}/placements/home").text
    (device,) = found.fields
    assert [(each.value, each.decisions, each.arms[0].mean) for each in device.segments] == [
        ("ios", 1, None),
        ("web", 2, None),
    ]


async def test_a_field_that_is_a_signal_is_heeded_and_recovered_from_the_log(tmp_path):
    path, schema = tmp_path / "s.db", {"age": "number", "volume": "signal"}
    config = with_home(path, arms=["film", "song"], context=schema)
    async with served(path, config) as engine:
        home = engine.placements["home"]
        for round in range(160):
            engine.clock.now += 60_000_000
            given = {"age": float(round % 60), "volume": 90.0 if round == 150 else float(round % 2)}
            (row,) = await decide(engine, DecisionRequest("all", context=given))
            await engine.feedback("home", row.id, float(row.arm == "song"))
        with pytest.raises(InvalidValue, match=r"context\.volume: .*a signal is never missing"):
            check_request(home, DecisionRequest("all", context={"age": 3.0}))
        live = learned(engine)
    with recovered(path, config) as again:
        assert learned(again) == live


# How many keys there may be where each has a model of its own ---------------------------------

OWN = {"name": "context-mixture", "context": DECLARED, "per_key": True}


async def test_a_key_too_many_is_refused_before_anything_changes_and_those_that_came_go_on(tmp_path):
    path, config = tmp_path / "s.db", configured(tmp_path / "s.db", policy=OWN, most_keys=2)
    async with served(path, config) as engine:
        await engine.decide_many("home", [asked(engine, 30, "a")])
        both = [asked(engine, 30, "b"), asked(engine, 30, "c")]
        with pytest.raises(
            InvalidValue, match=r"^key: '[bc]' .* 'home' lets in 2 keys, .* and has 1: raise its"
        ):
            await engine.decide_many("home", both)
        answers = await asyncio.gather(
            *(engine.decide_many("home", [asked(engine, 30, key)]) for key in ("b", "c", "b", "a")),
            return_exceptions=True,
        )
        assert [isinstance(answer, InvalidValue) for answer in answers] == [False, True, False, False]
        live = learned(engine)
        assert engine.placements["home"].key_count == 2
    with recovered(path, config) as again:
        assert learned(again) == live


async def test_fewer_keys_than_there_are_refuse_only_new_ones(tmp_path):
    path = tmp_path / "s.db"
    async with served(path, configured(path, policy=OWN)) as engine:
        await engine.decide_many("home", [asked(engine, 30, key) for key in "abc"])
    async with served(path, configured(path, policy=OWN, most_keys=1)) as engine:
        await engine.decide_many("home", [asked(engine, 30, key) for key in "abc"])
        with pytest.raises(InvalidValue, match=r"^key: 'd'"):
            await engine.decide_many("home", [asked(engine, 30, "d")])


def test_a_model_for_each_key_is_bounded_whatever_stands_around_it(tmp_path):
    wide = {"name": "context-mixture", "context_dim": 256, "per_key": True}
    with pytest.raises((ConfigError, InvalidValue), match="each key would take"):
        with_home(
            tmp_path / "s.db", arms=100, policy={"name": "exploration-floor", "policy": wide, "epsilon": 0.1}
        )
    config = configured(tmp_path / "s.db", policy=OWN).placements["home"]
    assert config.key_limit == 2**30 // config.policy.key_bytes
    assert configured(tmp_path / "s.db").placements["home"].key_limit is None
