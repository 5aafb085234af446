"""The recommended policy: what it is for what is known, and that what began goes on."""

import asyncio
import contextlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import DATA
from harness import configured, served, with_home
from placement_access import Engine, count_rounds, find_counts, get_beliefs, get_config

import tacit
from tacit.cli import main
from tacit.demo import Traffic, build_scenario, compare_outcomes, configuration
from tacit.errors import ConfigError
from tacit.policies import policy_from_spec
from tacit.service.config.file import encode_settings, load_config
from tacit.service.log.sqlite import SqliteStore

pytestmark = pytest.mark.interpreted


def tacit_main(arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code


SCHEMA = {"age": "number"}
RECOMMENDED = [
    ({"arms": 5}, tacit.DriftMixture(5)),
    ({"arms": ["a", "b"], "signals_dim": 2}, tacit.DriftMixture(["a", "b"], context_dim=2, announced=0.9)),
    ({"arms": ["a", "b"], "context_dim": 2}, tacit.ContextMixture(["a", "b"], 2)),
    ({"arms": 3, "context_dim": 2, "per_key": True}, tacit.ContextMixture(3, 2, per_key=True)),
    ({"relevance_dim": 64, "per_key": True}, tacit.EmbeddingMixture(64, per_key=True)),
    ({"arms": 3, "context": {"age": "number"}}, tacit.ContextMixture(3, context={"age": "number"})),
    ({"arms": 5, "notice_within": 5000}, tacit.DriftMixture(5, notice_within=5000)),
    ({"arms": 5, "sums": True}, tacit.Thompson(5)),
    ({"arms": 20, "shows": "slate", "positions": 5}, tacit.ListMix(20, positions=5)),
    ({"arms": 20, "shows": "slate", "own_order": True}, tacit.policies.SafeListMix(20, positions=3)),
    ({"arms": ["x", "y"], "shows": "duel"}, tacit.HorizonDraw(["x", "y"])),
    ({"relevance_dim": 5}, tacit.ClickMixture(5)),
    ({"relevance_dim": 5, "examination_dim": 2}, tacit.ClickMixture(5, 2)),
    ({"relevance_dim": 5, "context_dim": 3}, tacit.ClickMixture(5, context_dim=3)),
    ({"relevance_dim": 32}, tacit.ClickMixture(32)),
    ({"relevance_dim": 33, "examination_dim": 1}, tacit.ClickMixture(33, 1)),
    ({"relevance_dim": 33}, tacit.EmbeddingMixture(33)),
    ({"relevance_dim": 384, "context_dim": 32}, tacit.EmbeddingMixture(384, 32)),
    (
        {"relevance_dim": 64, "context": {"age": "number"}},
        tacit.EmbeddingMixture(64, context={"age": "number"}),
    ),
    (
        {"relevance_dim": 3, "shows": "slate", "positions": 5, "context_dim": 2},
        tacit.ItemListMix(3, 2, positions=5),
    ),
    ({"relevance_dim": 64, "shows": "slate", "context": SCHEMA}, tacit.ItemListMix(64, context=SCHEMA)),
]


@pytest.mark.parametrize(("known", "policy"), RECOMMENDED)
def test_what_is_known_leads_to_one_policy(known, policy):
    found = tacit.auto(**known)
    assert found == policy
    suits = found.about.suits or "click probabilities that never change"
    assert found.reason.startswith(found.label)
    assert suits in found.reason
    # It says where another one is better, and by how much.
    if found.about.suits:
        assert re.search(r"\n  weak +.*\d", found.reason)


@pytest.mark.parametrize(("known", "policy"), RECOMMENDED)
def test_a_spec_that_says_auto_means_the_same(known, policy):
    given = {key: value for key, value in known.items() if key != "arms"}
    assert policy_from_spec({"name": "auto", **given}, known.get("arms")) == policy
    assert policy_from_spec("auto", known.get("arms"), setting=given) == policy


@pytest.mark.parametrize(
    ("environment", "policy"),
    [
        (tacit.BernoulliArms([0.1, 0.2]), tacit.DriftMixture(2)),
        (tacit.environments.CascadeArms([0.4, 0.3, 0.2], positions=2), tacit.ListMix(3, positions=2)),
        (tacit.PreferenceMatrix("arxiv"), tacit.HorizonDraw(6)),
    ],
)
def test_an_environment_says_what_it_takes(environment, policy):
    assert policy_from_spec("auto", environment.arm_count, setting=environment.setting) == policy


def test_the_command_line_knows_it(capsys):
    tacit_main(["policies", "auto"])
    named = [line for line in capsys.readouterr().out.splitlines() if line[:1].strip()]
    features = {"ClickMixture", "ContextMixture", "EmbeddingMixture"}
    assert set(named) == features | {"DriftMixture", "HorizonDraw", "ItemListMix", "ListMix", "SafeListMix"}


@pytest.mark.parametrize(
    "policy", ["auto", pytest.param("exploration-floor(auto, epsilon=0.1)", marks=pytest.mark.long)]
)
def test_a_log_says_what_it_would_have_earned(policy, capsys):
    log = DATA / "open_bandit" / "random" / "men"
    tacit_main(["evaluate", str(log), "--policy", policy, "--passes", "1"])
    assert "DriftMixture" in capsys.readouterr().out


# In the service ------------------------------------------------------------------------------


def test_every_kind_of_placement_begins_with_it(tmp_path):
    config = configured(
        tmp_path / "s.db",
        placements={
            "arms": {"arms": 3},
            "signals": {"arms": 3, "signals": ["volume"], "client_signals": 1},
            "corrected": {"arms": 3, "late": "correct"},
            "lists": {"kind": "slates", "arms": 4, "positions": 2},
            "duels": {"kind": "duels", "rankers": ["a", "b"]},
            "features": {"kind": "features", "relevance_dim": 3, "examination_dim": 1},
        },
    )
    assert {name: each.policy for name, each in config.placements.items()} == {
        "arms": tacit.DriftMixture(3),
        "signals": tacit.DriftMixture(3, context_dim=2, announced=0.9),
        "corrected": tacit.DriftMixture(3),
        "lists": tacit.ListMix(4, positions=2),
        "duels": tacit.HorizonDraw(["a", "b"]),
        "features": tacit.ClickMixture(3, 1),
    }


async def session(config, noted=None):
    """Decide once; return the policy that the placement has and the spec that the store has.

    If ``noted``, the store says afterwards that it was configured so, as of an earlier version whose
    recommendation was what ``config`` names.
    """
    async with served(Path(config.store.path), config) as engine:
        await engine.feedback("home", (await engine.decide("home", "key")).id, 1.0)
        (stored,) = engine.store.placements().values()
    if noted is not None:
        with contextlib.closing(SqliteStore(config.store.path)) as store:
            store.store_configurations({"home": encode_settings(noted.placements["home"])})
    return get_config(engine.placement("home")).policy, json.loads(stored.spec)


@pytest.mark.parametrize("policy", [None, "auto(notice_within=5000)", "rmed1"])
def test_the_demo_serves_the_policy_that_it_names(policy, tmp_path):
    scene = build_scenario(None, policy, None, seed=1)
    path = tmp_path / "demo.toml"
    path.write_text(configuration(scene, port=0))
    if policy == "rmed1":
        with pytest.raises(ConfigError, match="shows a duel"):
            load_config(path)
    else:
        assert load_config(path).placements["search"].policy == scene.policy


@pytest.mark.compiled
def test_the_demo_of_users_who_differ_gains_what_one_page_for_all_cannot():
    scene = build_scenario(None, None, 1500, seed=1, context=True)
    traffic = Traffic.draw(scene)
    learner, shown = tacit.Learner(scene.policy, seed=1), []
    for context, uniform, chances in zip(traffic.contexts, traffic.uniforms, traffic.truth, strict=True):
        decision = learner.choose(context=context)
        shown.append(decision.slot)
        learner.learn(decision, float(uniform < chances[decision.slot]))
    ours, fixed, *_ = compare_outcomes(scene, traffic, np.array(shown)).values()
    assert ours.regret.sum() < 0.6 * fixed.regret.sum()
    assert 'context = {device = ["ios", "android", "web"], age = "number"' in configuration(scene, port=0)


def test_the_store_has_it_by_its_own_name(tmp_path):
    policy, spec = asyncio.run(session(with_home(tmp_path / "s.db", arms=3)))
    assert policy == tacit.DriftMixture(3)
    assert spec["name"] == "DriftMixture"


@pytest.mark.parametrize(
    ("began", "policy"),
    [("ucb1(alpha=0.3)", tacit.UCB1(3, alpha=0.3)), ("shift-mixture", tacit.policies.ShiftMixture(3))],
)
def test_a_placement_that_has_learned_keeps_its_policy(began, policy, tmp_path):
    """So it does when a later version recommends another one, as this one does in place of ShiftMixture."""
    recommended = with_home(tmp_path / "s.db", arms=3)
    asyncio.run(session(with_home(tmp_path / "s.db", arms=3, policy=began), noted=recommended))
    kept, spec = asyncio.run(session(recommended))
    assert kept == policy
    assert spec["name"] == type(policy).__name__


@pytest.mark.parametrize("other", [None, {"b": 0.1}])
def test_promised_shares_are_not_dropped_by_what_began_otherwise(other, tmp_path):
    """A placement keeps its policy, but not in silence where its arms are promised other shares."""
    names, path = ["a", "b"], tmp_path / "s.db"
    begun = with_home(path, arms=names, policy="thompson", at_least={"b": 0.2})
    recommended = with_home(path, arms=names, at_least={"b": 0.2})
    kept, spec = asyncio.run(session(begun, noted=recommended))
    assert kept == tacit.policies.MinimumShares(tacit.Thompson(names), at_least={"b": 0.2})
    assert (spec["name"], spec["at_least"]) == ("MinimumShares", [["b", 0.2]])
    assert recommended.placements["home"].policy == tacit.auto(names, at_least={"b": 0.2})
    assert asyncio.run(session(recommended))[0] == kept
    with pytest.raises(ConfigError, match="rebuild"):
        asyncio.run(session(with_home(path, arms=names, at_least=other)))


def test_other_features_are_refused_as_ever(tmp_path):
    def features(dim):
        return with_home(tmp_path / "s.db", kind="features", relevance_dim=dim)

    Engine(features(3), SqliteStore(features(3).store.path)).store.close()
    with pytest.raises(ConfigError, match="give the placement a new name"):
        Engine(features(4), SqliteStore(features(4).store.path))


def test_the_page_counts_what_it_counts():
    learner = tacit.Learner(tacit.DriftMixture(3), seed=1)
    plays = np.zeros((2, 3))
    for i in range(12):
        decision = learner.choose(f"key {i % 2}")
        learner.learn(decision, float(i % 3 == 0))
        plays[i % 2, decision.slot] += 1
    for lane in range(2):
        assert get_beliefs(learner.policy, learner.state, lane).plays.tolist() == plays[lane].tolist()
    assert count_rounds(find_counts(learner.state))[:2].tolist() == [6, 6]


def test_what_signals_cost_is_said():
    assert "announce" in tacit.auto(3, signals_dim=1).reason
    assert "announce" not in tacit.auto(3).reason
    assert "announce" not in tacit.DriftMixture(3, context_dim=1).reason
