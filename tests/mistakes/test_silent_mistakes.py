"""Mistakes that gave a wrong result without a word: each is refused or warned of, with a remedy."""

import gzip
import json
import re
import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas
import pytest
from click.testing import CliRunner

import tacit
from tacit.cli import cli
from tacit.environments import environment_from_spec, simulate_log
from tacit.errors import AssumptionWarning, TacitError
from tacit.evaluate import IPS, Table, Uniform, off_policy
from tacit.evaluate.duels import preferences, read_duels
from tacit.evaluate.interleaved import hits_of, read_interleaved
from tacit.interleaving import CreditRule, TeamDraft, credit_clicks
from tacit.logs import click_log
from tacit.policies.spec import policy_from_spec
from tacit.service.log.sqlite import SqliteStore
from tacit.uplift import HoldoutSums, decisions_needed, duels_needed, holdout_lift

ARMS = ["film", "song", "game"]
SHOWN = TeamDraft(length=3).interleave([["a", "b", "c"], ["b", "a", "c"]], np.random.default_rng(1))
MANY = {"arms": [ARMS] * 200, "arm": ["film", "song"] * 100, "reward": [0, 1, 1, 0] * 50}
RNG = np.random.default_rng(1)
BANNERS = pandas.DataFrame(
    {"banner": ["film", "song"] * 20, "reward": [0, 1, 1, 0] * 10, "propensity": [0.5] * 40, "uid": range(40)}
)
TIMED = pandas.concat([BANNERS] * 3, ignore_index=True)
TIMED["at"] = pandas.date_range("2026-01-01", periods=120, freq="min")
SHUFFLED = (
    pandas.concat([TIMED] * 10, ignore_index=True)
    .assign(at=pandas.date_range("2026-01-01", periods=1200, freq="min"), uid=range(1200))
    .sample(frac=1, random_state=1)
)
NAMED = {"arm": "banner", "timestamp": "at"}
LOG = pandas.DataFrame({"age": [31, 40], "reward": [0, 1], "arm": ["film", "song"]})


@dataclass
class Regression:
    def predict(self, rows):
        return np.zeros(len(rows))


@dataclass
class Classifier(Regression):
    classes_ = ("film", "song")

    def predict_proba(self, rows):
        return np.full((len(rows), 2), 0.5)


@dataclass(frozen=True)
class Replaces(tacit.Policy):
    class State(NamedTuple):
        plays: np.ndarray

    c: float = 1.0

    def init(self, lanes):
        return self.State(np.zeros((lanes, self.arm_count)))

    @staticmethod
    def choose(params, state, lane, impression, rng):
        return 0

    @staticmethod
    def learn(params, state, lane, outcome):
        return state._replace(plays=state.plays + 1.0)


class Undecorated(tacit.UniformRandom):
    tries: int = 10


@dataclass(frozen=True)
class Unannotated(tacit.UniformRandom):
    tries = 10


@dataclass(frozen=True)
class Unfinished(tacit.Policy):
    c: float = 1.0


def lift_of(click, share=0.5):
    sums = HoldoutSums.empty()
    sums.add([0, 1] * 2000, [0, 0, click, click] * 1000)
    return holdout_lift(sums, share)


def learner(**known):
    return tacit.Learner(tacit.auto(**known), seed=1)


def with_items():
    known = learner(relevance_dim=2)
    known.items.put(["p", "q"], [[1, 0], [0, 1]])
    return known


def with_numbered():
    known = learner(relevance_dim=2)
    known.items.put([1, 2], [[1, 0], [0, 1]])
    return known


def with_segments():
    known = learner(relevance_dim=2)
    known.items.put(["p", "q"], [[1, 0], [0, 1]], segments=["sport", None])
    return known


def in_two_orders(as_given):
    one, row = learner(arms=ARMS, context_dim=2), pandas.DataFrame([{"ios": 0, "web": 1}])
    for columns in (["ios", "web"], ["web", "ios"]):
        one.choose(context=as_given(row[columns]))


def weighed(log=BANNERS, **options):
    options = {"columns": {"arm": "banner"}, "arms": ["film", "song"]} | options
    return off_policy(Table({"film": 1.0}), log, **options)


def logged(rewards, **options):
    one = learner(arms=ARMS)
    return click_log(one.policy, [one.choose("a")], rewards, **options)


REFUSED = {
    "a log for a context": (lambda: tacit.auto(arms=3, context=LOG), "context: ['reward', 'arm']", "frame[["),
    "names and features": (lambda: tacit.auto(arms=ARMS, relevance_dim=4), "arms: ['film'", "choose(arms="),
    "a number as text": (lambda: tacit.auto(arms=3, context_dim="8"), "context_dim: '8'", "whole number"),
    "a list in a list": (lambda: learner(arms=ARMS).choose(arms=[ARMS]), "arms: [['film'", "in one list"),
    "a list for an item": (
        lambda: with_items().choose(arms=[["p"], ["q"]], relevance=[[1, 0], [0, 1]]),
        "arms: [['p']",
        "give names, in one list",
    ),
    "a list for an arm": (
        lambda: learner(relevance_dim=2).choose(arms=[["p"], ["q"]], relevance=[[1, 0], [0, 1]]),
        "arms: [['p']",
        "give names, in one list",
    ),
    "signals as text": (lambda: tacit.auto(arms=3, signals_dim="2"), "signals_dim: '2'", "whole number"),
    "examination alone": (
        lambda: tacit.auto(examination_dim=2),
        "examination_dim: 2",
        "give relevance_dim, too",
    ),
    "text in a context": (
        lambda: learner(arms=3, context_dim=2).choose(context=["1", "2"]),
        "context: ['1', '2']",
        "give 2 finite numbers",
    ),
    "text in features": (
        lambda: learner(relevance_dim=2).choose(relevance=[["1", "2"]]),
        "relevance: [['1', '2']]",
        "2 finite numbers",
    ),
    "text in vectors": (
        lambda: learner(relevance_dim=2).items.put(["q"], [["1", "2"]]),
        "vectors: [['1', '2']]",
        "give rows of 2 numbers",
    ),
    "a click that is no list": (lambda: credit_clicks(SHOWN, clicks=1), "clicks: 1", "list of positions"),
    "users of other arms": (
        lambda: simulate_log(tacit.auto(arms=4), tacit.BernoulliArms([0.1, 0.2]), rounds=10),
        "policy: ",
        "the users know 2 arms",
    ),
    "a log of one decision": (
        lambda: (lambda one: click_log(one.policy, one.choose("a"), 1.0))(learner(arms=ARMS)),
        "decisions: <Decision 0",
        "give a list of them",
    ),
    "a log of a learner": (
        lambda: click_log(learner(arms=ARMS), [], []),
        "policy: <Learner",
        "learner.policy",
    ),
    "one reward for a log": (lambda: logged(1.0), "rewards: 1.0", "one for each of 1 decisions"),
    "fewer times than decisions": (
        lambda: logged([1.0], times=[]),
        "times: []",
        "one for each of 1 decisions",
    ),
    "seconds for times": (
        lambda: logged([1.0], times=[1_760_000_000]),
        "times: 1760000000",
        "give datetimes",
    ),
    "text for times": (lambda: logged([1.0], times=["2026-01-01"]), "times: '2026-01-01'", "give datetimes"),
    "an own order in words": (
        lambda: tacit.auto(arms=ARMS, shows="slate", own_order="no"),
        "own_order: 'no'",
        "true or false",
    ),
    "a reward of five": (lambda: logged([5.0]), "rewards[0]: 5.0", "give numbers in [0, 1]"),
    "more edge than ties leave": (lambda: duels_needed(edge=0.2, ties=0.9), "edge: 0.2", "0.05"),
    "a column for arms": (
        lambda: weighed(arms=["banner"]),
        "arms: ['banner']",
        "or 'shown' (--arms shown): all it shows",
    ),
    "a number of arms for a log": (lambda: weighed(arms=3), "arms: 3", "give arms by name"),
    "two columns of a name": (
        lambda: weighed(BANNERS.assign(shown=[["film", "song"]] * 40), arms="shown"),
        "arms: 'shown'",
        "columns={'arms': 'shown'} (--column arms=shown)",
    ),
    "an arm that was not on offer": (
        lambda: weighed(arms=["film", "game"]),
        "log: row 2: arm: 'song'",
        "; here ['film', 'game']",
    ),
    "no rewards": (
        lambda: weighed(BANNERS.drop(columns="reward")),
        "log: reward: there is no column 'reward'",
        "(--column reward=...)",
    ),
    "clusters by keys that are not there": (
        lambda: weighed(cluster="key"),
        "log: key: there is no column 'key'",
        "columns={'key': ...}",
    ),
    "columns in a list": (lambda: weighed(columns=["banner"]), "columns: ['banner']", "{'arm': 'banner'}"),
    "strict in words": (lambda: tacit.read_log(BANNERS, strict="no"), "strict: 'no'", "true or false"),
    "propensities in words": (
        lambda: weighed(propensities="uniform"),
        "propensities: 'uniform'",
        "Uniform()",
    ),
    "a table for a path": (lambda: tacit.write_log("log.csv", BANNERS), "path: ", "the name of a file"),
    "an empty catalogue": (
        lambda: learner(relevance_dim=2).choose(),
        "items: []",
        "the catalogue is empty: put items there, learner.items.put(ids, vectors)",
    ),
    "segments by item": (
        lambda: with_items().items.put(["r"], [[1, 1]], segments={"r": "news"}),
        "segments: {'r': 'news'}",
        "one for each of 1 items",
    ),
    "items of no catalogue": (lambda: learner(arms=ARMS).items, "items: ", "tacit.auto(relevance_dim=…)"),
    "a reward before its decision": (
        lambda: (lambda one: one.learn(1.0, one.choose("a")))(learner(arms=ARMS)),
        "decision: 1.0",
        "give what choose returned",
    ),
    "who won, by name": (
        lambda: (lambda one: one.learn(one.choose("a"), "film"))(learner(arms=ARMS, shows="duel")),
        "reward: 'film'",
        "1.0 if the left one of decision.pair won",
    ),
    "a pair of one": (lambda: learner(arms=ARMS).choose("a").pair, "pair: ('", "take .arm"),
    "clicks by item": (
        lambda: credit_clicks(SHOWN, clicks=["a"]),
        "clicks: ['a']",
        "from 0 (did you mean [0]?)",
    ),
    "a list as it was written": (lambda: credit_clicks(SHOWN.as_dict(), [0]), "interleaved: ", "from_dict"),
    "a seed for draws": (lambda: credit_clicks(SHOWN, [0]).draw_outcome(7), "rng: 7", "default_rng(1)"),
    "rankings by name": (
        lambda: TeamDraft().interleave({"old": ["a"], "new": ["b"]}, RNG),
        "rankings: {'old'",
        "in the order of decision.pair where a learner decided: [rankings[name] for name in …]",
    ),
    "an own policy's number as text": (
        lambda: policy_from_spec("policies_of_ones_own:OfMyOwn(c=high)", arms=2),
        "c: 'high'",
        "give a number",
    ),
    "what an own policy refuses": (
        lambda: policy_from_spec("policies_of_ones_own:OfMyOwn(c=-1)", arms=2),
        "OfMyOwn: {'c': -1, 'arms': 2}",
        "c must not be below 0",
    ),
    "users misspelt": (
        lambda: weighed(cluster="user"),
        "log: cluster: there is no column 'user'",
        "give one of these",
    ),
    "a hit whose id is called otherwise": (
        lambda: hits_of({"hits": {"hits": [{"id": "a"}]}}),
        "hits.",
        "say its field, hits_of(answer, key='id')",
    ),
    "a decision that was read from JSON": (
        lambda: tacit.Decision.from_json({"id": 1}),
        "decision: {'id': 1}",
        "to_json returned",
    ),
    "duels by name": (
        lambda: preferences([{"left": "a", "right": "b", "outcome": 1}]),
        "log: {'left': 'a'",
        "give (left, right, outcome)",
    ),
    "who won a duel, by side": (
        lambda: preferences([("a", "b", "left")]),
        "outcome: 'left'",
        "give 1 where the left one won, 0 where the right one did",
    ),
    "several segments at once": (
        lambda: with_segments().items.ids(["sport"]),
        "segment: ['sport']",
        "string",
    ),
    "results by reward": (
        lambda: weighed(by="reward"),
        "log: by: 'reward' is the log's reward",
        "leave it out",
    ),
    "results by arm": (
        lambda: weighed(by="banner"),
        "log: by: 'banner' is the log's arm",
        "a policy that always shows it",
    ),
    "an arm with a capital": (
        lambda: off_policy(Table({"Film": 1.0}), BANNERS, columns={"arm": "banner"}, arms=ARMS[:2]),
        "log: row 1: arms: the target policy shows 'Film'",
        "(did you mean 'film'?), so the log could never have shown it; there were 'film', 'song'",
    ),
    "a schema's file in a policy": (
        lambda: policy_from_spec("auto(context=@schema.toml)", arms=2),
        "policy: 'auto(context=@schema.toml)'",
        "--column context=@FILE",
    ),
    "no call of users": (
        lambda: environment_from_spec("0.1,0.2"),
        "environment: '0.1,0.2'",
        '"bernoulli-arms([0.1, 0.2])"',
    ),
    "a policy by its file": (
        lambda: policy_from_spec("policies_of_ones_own.py:OfMyOwn", arms=2),
        "policy: cannot import 'policies_of_ones_own.py:OfMyOwn'",
        "give it without .py: policies_of_ones_own:OfMyOwn",
    ),
    "a policy by its module": (
        lambda: policy_from_spec("tacit.UCB1", arms=2),
        "policy: none is called 'tacit.UCB1'",
        "did you mean UCB1?",
    ),
    "groups from 1": (
        lambda: HoldoutSums.empty().add([1, 2], [0, 1]),
        "groups: [1, 2]",
        "0 for the control, 1 for the policy",
    ),
    "groups by name": (
        lambda: HoldoutSums.empty().add(["control", "policy"], [0, 1]),
        "groups: ['control', 'policy']",
        "0 for the control, 1 for the policy",
    ),
    "fewer rewards than groups": (
        lambda: HoldoutSums.empty().add([0, 1], [1.0]),
        "rewards: [1.0]",
        "a finite number for each of 2 decisions",
    ),
    "a reward that is none": (
        lambda: HoldoutSums.empty().add([0, 1], [1.0, np.nan]),
        "rewards: [1.0, nan]",
        "a finite number for each of 2 decisions",
    ),
    "rewards in percent": (lambda: lift_of(100), "largest: 1.0", "the control and the policy earned 50"),
    "sums in words": (lambda: tacit.auto(arms=3, sums="no"), "sums: 'no'", "true or false"),
    "an own policy that cannot begin": (
        lambda: tacit.Learner(Unfinished(arms=2)),
        "Unfinished.init: None",
        "define init(self, lanes), which returns its State",
    ),
    "hits for ids": (
        lambda: TeamDraft().interleave([[{"_id": "a"}], [{"_id": "b"}]], RNG),
        "rankings[0]: {'_id': 'a'}",
        "give ids: text, or whole numbers",
    ),
    "an answer as text": (lambda: hits_of("{}"), "answer: '{}'", "json.loads"),
    "a table of searches": (lambda: read_interleaved(BANNERS), "paths: ", "give files"),
    "searches' columns turned round": (
        lambda: read_interleaved("rows.csv", columns={"qid": "search"}),
        "columns: 'qid'",
        "did you mean {'search': 'qid'}?",
    ),
    "likeness of whom": (lambda: duels_needed(edge=0.02, likeness=0.1), "per_user: None", "give both"),
    "duels of users how alike": (lambda: duels_needed(edge=0.02, per_user=20), "likeness: None", "give both"),
    "examples of a boolean": (
        lambda: tacit.auto(arms=ARMS, context={"vip": [True, False]}),
        "context.vip: [True, False]",
        "say 'boolean'",
    ),
    "contexts of an environment without": (
        lambda: tacit.simulate(
            tacit.auto(arms=2, context_dim=3), tacit.BernoulliArms([0.1, 0.2]), 100, runs=1, seed=1
        ),
        "ContextMixture contexts: 3",
        "take ShiftingArms(dim=…)",
    ),
    "nothing but ties": (lambda: duels_needed(edge=0.01, ties=1.0), "edge: 0.01", "which is 0"),
    "the reward in a context": (
        lambda: weighed(BANNERS.assign(age=30.0), columns={"arm": "banner", "context": ["age", "reward"]}),
        "log: context: 'reward' is the log's reward",
        "leave it out",
    ),
    "the arm in a context": (
        lambda: weighed(columns={"arm": "banner", "context": {"uid": "number", "banner": "category"}}),
        "log: context: 'banner' is the log's arm",
        "leave it out",
    ),
    "the reward for a feature": (
        lambda: learner(relevance_dim=1).fit_log(
            BANNERS, relevance=["reward"], columns={"arm": "banner"}, arms=ARMS[:2]
        ),
        "log: feature: 'reward' is the log's reward",
        "leave it out",
    ),
    "a propensity for a reward": (
        lambda: weighed(columns={"arm": "banner", "reward": "propensity"}),
        "columns['reward']: 'propensity'",
        "the column serves as propensity already",
    ),
    "a place for a click": (
        lambda: read_interleaved("rows.csv", columns={"click": "position"}),
        "columns['click']: 'position'",
        "the column serves as position already",
    ),
    "a place for a team": (
        lambda: read_interleaved("rows.csv", columns={"team": "position", "search": "qid"}),
        "columns['team']: 'position'",
        "the column serves as position already",
    ),
    "rows that are all wrong": (
        lambda: list(tacit.read_log(MANY | {"timestamp": ["13/04/2024"] * 200})),
        "log: nothing can be concluded from it: 200 rows read, 0 kept",
        "timestamp: give",
    ),
    "a log for a schema": (lambda: tacit.infer_schema(LOG), "context: ['reward', 'arm']", "frame[["),
    "a number beyond all floats": (
        lambda: learner(arms=3, context_dim=2).choose(context=[10**400, 1]),
        "context: [1000",
        "give 2 finite numbers",
    ),
    "a feature beyond all floats": (
        lambda: learner(relevance_dim=2).choose(relevance=[[10**400, 1]]),
        "relevance: [[1000",
        "a row of 2 finite numbers",
    ),
    "a vector beyond all floats": (
        lambda: learner(relevance_dim=2).items.put(["a"], [[10**400, 1]]),
        "vectors: [[1000",
        "give rows of 2 numbers",
    ),
    "what comes after no shift": (
        lambda: tacit.PreferenceMatrix("arxiv", after="arxiv"),
        "shift: 0",
        "after=, and from which round on",
    ),
    "a table of keys": (
        lambda: learner(arms=ARMS).choose_many(pandas.DataFrame({"query": ["a", "b"]})),
        "keys:",
        "in a list or a column of a table",
    ),
    "keys with what they are for": (
        lambda: learner(arms=ARMS).choose_many({"a": [31], "b": [40]}),
        "keys: {'a': [31]",
        "give one for each impression, in a list",
    ),
    "one dict for many": (
        lambda: learner(arms=3, context={"age": "number"}).choose_many(["a", "b"], {"age": 3}),
        "context: {'age': 3}",
        "give a dict for each impression, in a list",
    ),
    "columns in another order": (
        lambda: [
            one.choose_many(["a"], pandas.DataFrame({name: [1] for name in names}))
            for one in [learner(arms=3, context_dim=2)]
            for names in ("xy", "xy", "yx")
        ],
        "context: ['y', 'x']",
        "in their order of before: ['x', 'y']",
    ),
    "an id that is a number elsewhere": (
        lambda: with_numbered().choose(arms=["1", "2"]),
        "arms: '1' (did you mean 1?)",
        "put it there",
    ),
    "a number that is an id elsewhere": (
        lambda: with_items().items.check_present([7]),
        "ids: 7",
        "put it there",
    ),
    "how many keys": (lambda: learner(arms=ARMS).choose_many(5), "keys: 5", "give one for each impression"),
    "one decision for many": (
        lambda: (lambda one: one.learn_many(one.choose("a"), [1.0]))(learner(arms=ARMS)),
        "decisions: <Decision 0",
        "give a list of what choose returned, or learn one",
    ),
    "decisions in a stream": (
        lambda: learner(arms=ARMS).learn_many((each for each in ()), []),
        "decisions: <generator",
        "give a list",
    ),
    "many decisions for one": (
        lambda: (lambda one: one.learn(one.choose_many(["a"]), 1.0))(learner(arms=ARMS)),
        "decision: <1 decisions",
        "; learn_many learns many",
    ),
    "a decision's JSON": (
        lambda: (lambda one: one.learn(one.choose("a").to_json(), 1.0))(learner(arms=ARMS)),
        "decision: '{",
        "Decision.from_json(text)",
    ),
    "columns of one row in another order": (
        lambda: in_two_orders(lambda row: row),
        "context: ['web', 'ios']",
        "give the columns in their order of before: ['ios', 'web']",
    ),
    "a row in another order": (
        lambda: in_two_orders(lambda row: row.iloc[0]),
        "context: ['web', 'ios']",
        "give the columns in their order of before: ['ios', 'web']",
    ),
    "a key before who is asking": (
        lambda: learner(arms=ARMS, context={"age": "number"}).explain("home", {"age": 31}),
        "context: 'home'",
        "give who is asking first: explain({…}, 'home')",
    ),
    "a learner among policies": (
        lambda: tacit.simulate([learner(arms=2), tacit.UCB1(2)], tacit.BernoulliArms([0.1, 0.2]), horizon=10),
        "policies: ",
        "such as its .policy",
    ),
    "the class of a target": (
        lambda: weighed(propensities=Uniform),
        "propensities: <class",
        "give Uniform(), made of the class",
    ),
    "an A/B test that is certain": (
        lambda: weighed(BANNERS.assign(propensity=1.0)),
        "log: row 2: propensity: 'song' was certain to be shown",
        "where chance chose the arm, give that chance",
    ),
    "a dict for none": (
        lambda: learner(arms=ARMS).choose("home", context={"age": 31}),
        "context: {'age': 31}",
        "tacit.auto(arms=…, context={…}), which says what each field holds",
    ),
    "a table for one": (
        lambda: learner(arms=ARMS, context={"age": "number"}).choose(context=LOG[["age"]]),
        "context: '2 contexts'",
        "give one for each of 1 impressions; choose_many takes several",
    ),
    "a correction of what cannot be": (
        lambda: (lambda one: one.correct_many([one.choose("a")], [0.0], [1.0]))(learner(arms=ARMS)),
        "policy: DriftMixture",
        "take one of sums, such as tacit.auto(arms=…, sums=True)",
    ),
    "a rate in percent": (lambda: decisions_needed(rate=5, lift=0.1), "rate: 5", "0.05 for 5 %"),
    "a lift in percent": (lambda: decisions_needed(rate=0.5, lift=10), "lift: 10", "0.1 is 10 % more"),
    "an estimator that was not asked": (
        lambda: weighed(estimators=[IPS()]).estimates["SNIPS"],
        "estimator: there is no 'SNIPS'",
        "there are ['IPS']",
    ),
    "flags for clicks": (
        lambda: credit_clicks(SHOWN, clicks=[False, True, True]),
        "clicks: [False, True, True]",
        "give the positions of those clicked: [1, 2]",
    ),
    "an item as an arm": (
        lambda: with_items().retire_arms(["p"]),
        "arms: there is no arm 'p'",
        "items are put and removed by .items",
    ),
    "an arm that came later": (
        lambda: learner(arms=ARMS).choose(arms=["film", "news"]),
        "arms: 'news' is not on offer",
        "put it on offer (add_arms)",
    ),
    "arms in one list for many": (
        lambda: learner(arms=ARMS).choose_many(["a", "b"], arms=["film", "song"]),
        "arms: 'film'",
        "give a list for each impression, such as ['film']",
    ),
    "the size of an A/B test": (
        lambda: tacit.policies.sample_size(0.05, 0.1, 0.05),
        "arms: 0.05 is not allowed; give a whole number of at least 2",
        "for an A/B test it is tacit.uplift.decisions_needed(rate, lift)",
    ),
    "a classifier for a target": (
        lambda: off_policy(Classifier(), BANNERS),
        "target: Classifier() is not allowed",
        "give ByClassifier(model)",
    ),
    "a regression for a target": (
        lambda: off_policy(Regression(), BANNERS),
        "target: Regression() is not allowed",
        "give Greedy(Predicted(model, arms=[...]))",
    ),
    "several numbers for a list": (
        lambda: environment_from_spec("bernoulli-arms(0.1, 0.2)"),
        "BernoulliArms: 0.2 is not allowed",
        "a list goes into brackets: means=[0.1, 0.2]",
    ),
    "an edge of one half": (lambda: tacit.policies.sample_size(2, 0.5, 0.05), "epsilon: 0.5", "below 0.5"),
    "a shift to nothing": (lambda: tacit.PreferenceMatrix("arxiv", shift=9), "shift: 9", "after=, and"),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_a_mistake_is_refused_with_its_remedy(mistake):
    made, field, remedy = REFUSED[mistake]
    with pytest.raises(TacitError) as caught:
        made()
    assert str(caught.value).startswith(field)
    assert remedy in str(caught.value)


WARNED = {
    "seconds as milliseconds": (
        lambda: list(tacit.read_log(MANY | {"timestamp": range(10**9, 10**9 + 200)}, time_unit="ms")),
        "time_unit: 'ms' puts no time into this century; give 's'",
    ),
    "a clip below all weights": (
        lambda: off_policy(Table({"film": 1.0}), MANY | {"propensity": [0.5] * 200}, [IPS(clip=0.5)]),
        "clip: every weight is cut to 0.5, and they are 0.25 on average in place of 1; give a larger",
    ),
    "ids as numbers": (
        lambda: tacit.infer_schema({"age": [30, 40] * 50, "user": range(1000, 1100)}),
        r"context\.user: it rises or falls .*, as an id or a time does; leave it out, or make text of it",
    ),
    "numbers with their unit": (
        lambda: tacit.infer_schema({"age": [f"{18 + i % 60} years" for i in range(200)]}),
        r"context\.age: all are numbers with 'years' behind, .*; give them without it",
    ),
    "vectors of nothing": (
        lambda: with_items().items.put(["r", "s"], [[0, 0], [0, 0]]),
        "vectors: all 2 are alike, .*; give embeddings",
    ),
    "another share than configured": (
        lambda: lift_of(1, 0.1),
        "share: Do not trust this: the control has 0.5 of the decisions, not 0.1; give the share",
    ),
    "a lift that is a ratio": (
        lambda: decisions_needed(rate=0.05, lift=1.1),
        "lift: 1.1 is 110 % more; give 0.1 if",
    ),
    "arms in a context": (
        lambda: tacit.auto(arms=ARMS, context={"banner": ["film", "song"]}),
        "context.banner: it holds arms",
    ),
    "a duel of one": (lambda: tacit.auto(arms=["a"], shows="duel"), "arms: a duel of one arm"),
    "a floor in a floor": (
        lambda: tacit.ExplorationFloor(tacit.ExplorationFloor(tacit.UCB1(ARMS), 0.1), 0.1),
        r"policy: it has a floor already, epsilon=0\.1, .*; give the policy without it",
    ),
    "an arm without a name": (
        lambda: tacit.UCB1(["film", ""]),
        "arms: '' is an empty name, .*; leave it out",
    ),
    "a number whose square is none": (
        lambda: learner(arms=3, context_dim=2).choose(context=[1e200, 1]),
        r"context: 1e\+200 is so large .*; leave it out, or divide it",
    ),
    "an item's vector given anew": (
        lambda: with_items().choose(arms=["p", "q"], relevance=[[0, 1], [1, 0]]),
        "relevance: 'p' has a vector in items, .*; leave relevance out",
    ),
    "a log that was learned before": (
        lambda: learner(arms=ARMS).fit_log(MANY).fit_log(MANY),
        "log: the same 200 decisions in a row were learned .*; let each learner learn a log once",
    ),
    "numbers and no number": (
        lambda: tacit.auto(arms=3, context=pandas.DataFrame({"age": ["31", "44", "n/a"]})),
        r"context\.age: 'n/a' is no number .*; give None in place of it",
    ),
    "one cluster for all": (
        lambda: weighed(BANNERS.assign(page="home"), cluster="page"),
        "IPS: cluster: all rows have the same, so it has no interval; give a column",
    ),
    "few clusters": (
        lambda: weighed(cluster="banner"),
        "IPS: cluster: it has about 2 values, too few .*; give a column of more values",
    ),
    "nothing but clicks": (
        lambda: weighed(pandas.concat([BANNERS.assign(reward=1)] * 3)),
        "reward: 120 rows have the same, and no row has another, first log row 1: 1.0; are the rows without",
    ),
    "rewards in percent": (
        lambda: off_policy(
            Table({"film": 1.0}),
            tacit.read_log(
                BANNERS.assign(reward=BANNERS.reward * 100), columns={"arm": "banner"}, arms=ARMS[:2]
            ),
        ),
        "reward: 20 rows have the same, and no row has more, but for those that are rejected, .*: divide by",
    ),
    "clicks by place": (lambda: credit_clicks(SHOWN, clicks=[1, 0, 0]), "the positions 0 and 1"),
    "a segment misspelt": (
        lambda: with_segments().items.ids("sprot"),
        r"segment: no item is of 'sprot' \(did you mean 'sport'\?\); items\.segments\(\)",
    ),
    "the same rows twice": (
        lambda: weighed(pandas.concat([TIMED, TIMED]), columns={"arm": "banner", "timestamp": "at"}),
        r"timestamp: 120 rows repeat time, key, arm and reward .*, first log row 121: .*2026-01-01.*; "
        "leave copies out",
    ),
    "a number of arms in a policy's text": (
        lambda: policy_from_spec("thompson(3)", arms=2),
        "Thompson: 3 is its prior_successes, as arms are given elsewhere; give prior_successes by name",
    ),
    "a generator for each list": (
        lambda: [
            TeamDraft(length=3).interleave([["a", "b"], ["c", "d"]], np.random.default_rng(7))
            for _ in range(21)
        ],
        "rng: 20 lists were drawn from the same state, and so .*; make a generator at the start, and keep it",
    ),
    "an arm of several": (
        lambda: learner(arms=ARMS, shows="slate", positions=2).choose("home").arm,
        "arm: '.*' is the first alone of what is shown; decision.shown has all",
    ),
    "rows that are shuffled": (
        lambda: off_policy(tacit.UCB1(["film", "song"]), SHUFFLED, columns=NAMED, arms=["film", "song"]),
        r"timestamp: \d{3} rows are earlier than the one before, first .*; what learns .*: sort them by time",
    ),
    "what is not on offer, of a policy of one's own": (
        lambda: tacit.Learner(Replaces(ARMS), seed=1).choose_many(["a"] * 2, arms=[ARMS, ["song", "game"]]),
        r"Replaces\.choose: 0 is not on offer; return what is, as impression\.arms has it: \[1, 2\]",
    ),
    "a mask without a click": (
        lambda: credit_clicks(SHOWN, clicks=[0, 0, 0]),
        r"clicks: \[0, 0, 0\] reads as position 0; if it says 1 where .*, give the positions of these",
    ),
    "arms in a set": (
        lambda: learner(arms=ARMS).choose(arms={"film", "song"}),
        r"arms: the order of a set .*; give a list, such as sorted\(arms\)",
    ),
    "arms that differ by capitals": (
        lambda: tacit.UCB1(["Film", "film", "A", "a"]),
        "arms: 1 differ from another one by capitals alone, first 'film': .*; write each in one way",
    ),
    "the reward in a schema": (
        lambda: tacit.auto(arms=ARMS, context={"reward": "number"}),
        r"context\.reward: its name is of what is known only .*; leave it out",
    ),
    "arms without a name": (
        lambda: off_policy(Table({"song": 1.0}), BANNERS.assign(arm=["", "song"] * 20), arms=["", "song"]),
        "arm: 20 rows have blanks around the name, or none, first log row 1: ''",
    ),
    "an event behind the horizon": (
        lambda: tacit.simulate(tacit.UCB1(2), tacit.ShiftingArms(2, events=[3, 100]), horizon=100),
        r"events: 100 is too late to show in a horizon of 100, .*; give earlier rounds, or a longer horizon",
    ),
    "an event behind the rounds of every key": (
        lambda: tacit.simulate(tacit.UCB1(2), tacit.ShiftingArms(2, keys=10, events=[50]), horizon=100),
        r"events: 50 is too late .* over 34 rounds on average; give earlier",
    ),
    "an event behind the rounds of a log": (
        lambda: simulate_log(tacit.UCB1(2), tacit.ShiftingArms(2, events=[9]), rounds=9),
        "events: 9 is too late to show in a horizon of 9, .*; give earlier",
    ),
    "a shift behind the horizon": (
        lambda: tacit.simulate(
            tacit.policies.RMED1(6), tacit.PreferenceMatrix("arxiv", after="arxiv", shift=9), 9
        ),
        "shift: 9 is too late",
    ),
    "redraws behind the horizon": (
        lambda: tacit.simulate(tacit.UniformRandom(10), tacit.ExaminationArms(redraws=(9,)), horizon=9),
        "redraws: 9 is too late",
    ),
    "duels lost by -1": (
        lambda: read_duels({"left": ["a"] * 3, "right": ["b"] * 3, "outcome": [1, -1, 1]}),
        r"row 2: outcome = '?-1'?; give 1 where .*; such rows are left out, and the others may favour",
    ),
    "rankers that differ by capitals": (
        lambda: read_duels({"left": ["old"] * 3, "right": ["new", "New", "new"], "outcome": [1, 0, 1]}),
        r"rankers: 'New', 'new' differ .*, and count apart; write each in one way",
    ),
}


@pytest.mark.parametrize("mistake", WARNED)
def test_what_may_be_a_mistake_is_warned_of(mistake):
    made, message = WARNED[mistake]
    with pytest.warns(AssumptionWarning, match=message):
        made()


def test_a_kernel_that_gives_back_a_state_is_doubted_and_told_what_to_do():
    with pytest.warns(AssumptionWarning, match=r"Copies\.learn returns something, .*; let it write into"):

        class Copies(tacit.UniformRandom):
            class Params(NamedTuple):
                pass

            @staticmethod
            def learn(params, state, lane, outcome):
                plays = state.plays.copy()
                return (plays,)

    with pytest.warns(AssumptionWarning, match=r"Loose\.learn draws from np\.random, .*; draw from rng"):

        class Loose(tacit.UniformRandom):
            class Params(NamedTuple):
                pass

            @staticmethod
            def learn(params, state, lane, outcome):
                state.plays[lane, 0] += np.random.random()  # noqa: NPY002

    one = tacit.Learner(Replaces(2), seed=1)
    made = one.choose("home")
    with pytest.raises(TacitError, match=r"Replaces\.learn: .*a kernel writes into the arrays of its state"):
        one.learn(made, 1.0)


def test_estimates_are_found_by_their_names():
    found = weighed(estimators=[IPS()]).estimates
    assert found["IPS"] is found[0]
    one = learner(arms=ARMS)
    one.choose("home")
    assert one.estimates("home")["song"].arm == "song"


def test_a_column_of_vectors_is_taken():
    known = learner(relevance_dim=2)
    known.items.put(["p", "q"], pandas.Series([np.array([0.0, 1.0]), np.array([1.0, 0.0])]))
    assert len(known.items) == 2


def test_a_learner_keeps_its_policy():
    one = learner(arms=ARMS)
    with pytest.raises(AttributeError, match="policy"):
        one.policy = tacit.UCB1(ARMS)


def test_one_run_tells_nothing_of_chance():
    played = tacit.simulate([tacit.UCB1(2), tacit.Thompson(2)], tacit.BernoulliArms([0.1, 0.2]), horizon=10)
    assert "one run tells nothing of chance: give runs=20" in str(played.compare("UCB1", "Thompson"))


def test_learners_are_merged_elsewhere():
    with pytest.raises(AttributeError, match=r"did you mean tacit\.learning\.merging\.merge_states"):
        _ = learner(arms=ARMS).merge


def test_the_order_of_a_log_is_not_doubted_where_nothing_learns_from_it():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weighed(SHUFFLED, columns=NAMED)
        weighed(SHUFFLED.sort_values("at", ascending=False), columns=NAMED)


def test_what_is_no_mistake_is_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tacit.auto(arms=np.array(ARMS)).arms == tuple(ARMS)
        items = learner(relevance_dim=2).items
        items.put(["a", "b"], [[1, 0], [0, 1]], segments="none")
        assert items.ids() == ["a", "b"]
        lift_of(1, 0.45)
        list(tacit.read_log(MANY | {"timestamp": range(200)}, time_unit="s"))
        tacit.infer_schema(
            {"pay": RNG.permutation(200), "at": [f"{i} {i}" for i in range(200)], "city": ["Rom"] * 200}
        )
        off_policy(Table({"film": 1.0}), MANY | {"propensity": [0.5] * 200}, [IPS(clip=2)])
        with_items().choose(arms=["new", "other"], relevance=[[0, 1], [1, 0]])
        with_items().choose(relevance=[[0, 1], [1, 0]])
        other = MANY | {"reward": [1, 0, 1, 0] * 50}
        learner(arms=ARMS).fit_log(MANY).fit_log(other)
        tacit.simulate(tacit.UCB1(2), tacit.ShiftingArms(2, keys=10, events=[33]), horizon=100)
        tacit.simulate(tacit.UCB1(2), tacit.ShiftingArms(2), horizon=100)


def test_a_click_where_nothing_stood_is_refused():
    choosing = tacit.Learner(tacit.auto(arms=ARMS[:2], shows="slate", positions=4), seed=1)
    first = choosing.choose("home")
    with pytest.raises(TacitError, match=r"reward\[2\]: 1.0 .* nothing stood at that position"):
        choosing.learn(first, [1.0, 0.0, 1.0, 0.0])
    many = choosing.choose_many(["home", "home"])
    with pytest.raises(TacitError, match=r"rewards\[1, 3\]: 1.0 .* nothing stood"):
        choosing.learn_many(many, [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    assert choosing.learn(first, [1.0, 1.0, 0.0, 0.0])


@pytest.mark.parametrize("clicks", [[0.0, 1.0], [0.0, 1.0, 0.0, 0.0, 0.0], np.array([0, 1])])
def test_a_short_list_takes_a_click_for_each_arm_that_it_shows(clicks):
    known, other = learner(arms=2, shows="slate", positions=5), learner(arms=2, shows="slate", positions=5)
    assert known.learn(known.choose("a"), clicks)
    assert other.learn_many(other.choose_many(["a"]), [clicks]) == 1
    assert [len(each.choose("a").shown) for each in (known, other)] == [2, 2]
    assert [each.mean for each in known.estimates("a")] == [each.mean for each in other.estimates("a")]
    with pytest.raises(TacitError, match=r"reward: .*; give 5 numbers"):
        known.learn(known.choose("a"), [0, 1, 0])


def test_a_row_of_a_frame_says_who_asks():
    known = learner(arms=3, context={"age": "number", "device": "category"})
    users = pandas.DataFrame({"age": [31, 40], "device": ["ios", "web"]})
    unknown = pandas.DataFrame({"age": [pandas.NA, 40], "device": ["ios", "web"]}).iloc[0]
    assert (
        known.choose(context=unknown).context.tolist()
        == known.choose(context={"device": "ios"}).context.tolist()
    )
    assert (
        known.choose(context=users.iloc[:1]).context.tolist()
        == known.choose(context=users.iloc[0]).context.tolist()
    )
    with pytest.raises(TacitError, match="context: '2 contexts' is not allowed; give one for each"):
        known.choose(context=users)


def test_the_arms_of_a_placement_are_no_mistake_where_the_policy_knows_features():
    assert policy_from_spec("auto(relevance_dim=4)", ARMS) == tacit.auto(relevance_dim=4)


def test_a_share_of_ties_that_leaves_just_the_edge_is_allowed():
    assert duels_needed(edge=0.1, ties=0.8) > 0


@pytest.fixture
def searches(tmp_path):
    path = tmp_path / "searches.jsonl"
    row = {"user": "u", "market": "de", "left": "old", "right": "new", "outcome": 1.0}
    path.write_text("".join(json.dumps(row | {"search": str(i)}) + "\n" for i in range(9)))
    return path


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"unit": "usr"}, "unit: there is no column 'usr' (did you mean 'user'?)"),
        ({"by": ["markt"]}, "by: there is no column 'markt' (did you mean 'market'?)"),
        ({"rule": CreditRule({"klick": 1})}, "worth.klick: 1 is not allowed; no search has such an action"),
    ],
)
def test_what_a_log_of_searches_lacks_is_refused_by_name(searches, given, message):
    with pytest.raises(TacitError) as caught:
        read_interleaved(searches, **given)
    assert str(caught.value).startswith(message)


def test_a_column_that_only_some_searches_have_is_read(searches):
    lines = searches.read_text().splitlines()
    lines[0] = json.dumps(json.loads(lines[0]) | {"device": "ios"})
    searches.write_text("\n".join(lines))
    report, rows = read_interleaved(searches, by=["device"], unit="user")
    assert rows.kept == 9
    assert re.search(r"^device ios +1 +1 +0 ", report.summary(), re.MULTILINE)


@pytest.mark.parametrize(("command", "file"), [("backup", "copy.db"), ("export", "decisions.parquet")])
def test_what_a_command_writes_over_is_said(tmp_path, command, file):
    SqliteStore(tmp_path / "s.db").close()
    target = tmp_path / "out" / file if command == "backup" else tmp_path / "out"
    (tmp_path / "out").mkdir()
    typed = ["log", command, "--store", str(tmp_path / "s.db"), str(target)]
    once, again = (CliRunner().invoke(cli, typed) for _ in range(2))
    assert (once.exit_code, again.exit_code) == (0, 0)
    assert "replaced" not in once.output
    assert file in again.output
    assert "replaced, as such files were there" in again.output


MISCALLED = {
    "no generator": (lambda: TeamDraft().interleave([["a"], ["b"]]), "'rng'; it takes rankings, rng"),
    "who is asking, misspelt": (
        lambda: learner(arms=3, context_dim=1).choose(contxt=[1]),
        "'contxt'; did you mean 'context'?",
    ),
    "a policy that is no dataclass": (
        lambda: Undecorated(arms=2, tries=3),
        r"Undecorated is no dataclass; write @dataclass\(frozen=True\) above it",
    ),
    "what a policy has, and does not take": (
        lambda: tacit.UCB1(arms=2, confidence=0.95),
        "'confidence'; it takes arms, alpha, t0, priors",
    ),
    "a field without an annotation": (
        lambda: Unannotated(arms=2, tries=3),
        r"Unannotated\.tries has no annotation, so is no field; write what it is, as in tries: float = 10",
    ),
    "who is asking twice": (
        lambda: learner(arms=ARMS, context={"age": "number"}).explain("home", context={"age": 31}),
        "multiple values for argument 'context'; it takes context, key",
    ),
    "arms of a learner": (
        lambda: tacit.Learner(arms=ARMS),
        r"'arms'; a policy takes it: Learner\(tacit\.auto",
    ),
    "a seed of a policy": (
        lambda: tacit.auto(arms=ARMS, seed=7),
        r"'seed'; give it to what draws: Learner\(policy, seed=",
    ),
    "the segment of items": (
        lambda: with_items().items.put(["r"], [[0, 1]], segment="news"),
        "'segment'; did you mean 'segments'?",
    ),
    "a segment to choose from": (
        lambda: with_items().choose(segment="news"),
        r"'segment'; give it to items\.ids\(segment\), as arms=",
    ),
    "a horizon of another name": (
        lambda: tacit.simulate([], None, rounds=5),
        "'rounds'; did you mean 'runs'?",
    ),
    "an option of the log for an estimator": (
        lambda: IPS(cluster="uid"),
        r"'cluster'; give it to off_policy\(",
    ),
    "no clicks": (lambda: credit_clicks(SHOWN), "missing a required argument: 'clicks'; it takes"),
    "an option of a log misspelt": (lambda: tacit.read_log(BANNERS, colums={}), "did you mean 'columns'?"),
    "chance for the default": (
        lambda: tacit.auto(arms=3, epsilon=0.1),
        r"ExplorationFloor\(policy, epsilon=",
    ),
}


@pytest.mark.parametrize("mistake", MISCALLED)
def test_a_call_that_cannot_be_says_what_is_taken(mistake):
    made, remedy = MISCALLED[mistake]
    with pytest.raises(TypeError, match=remedy):
        made()


def test_rewards_beside_a_log_are_told_to_go_into_it():
    frame = pandas.DataFrame(MANY)
    with pytest.raises(TypeError, match=r"one log, with .* frame\.assign\(reward=rewards\)"):
        learner(arms=ARMS).fit_log(frame[["arms", "arm"]], frame["reward"])


def test_a_method_of_other_packages_says_what_it_is_called():
    with pytest.raises(AttributeError, match=r"a Learner has no 'predict'; did you mean choose\?"):
        learner(arms=ARMS).predict("a")
    with pytest.raises(AttributeError, match=r"'ThompsonSampling'.*'Thompson'"):
        _ = tacit.ThompsonSampling
    assert not hasattr(learner(arms=ARMS), "relearn")


def test_a_learner_replaces_no_other_file(tmp_path):
    path = tmp_path / "clicks.csv"
    path.write_text("arm,reward\nfilm,1\n")
    with pytest.raises(TacitError, match=r"clicks\.csv: it is there, and holds no learner; give another"):
        learner(arms=ARMS).save(path)
    assert path.read_text() == "arm,reward\nfilm,1\n"
    for _ in range(2):
        learner(arms=ARMS).save(tmp_path / "home.tacit")


def test_a_learner_is_loaded_by_its_class_alone(tmp_path):
    one = learner(arms=ARMS)
    one.save(tmp_path / "learner.tacit")
    with pytest.raises(AttributeError, match=r"no 'load'; did you mean Learner.load\(path\), which returns"):
        one.load(tmp_path / "learner.tacit")
    assert tacit.Learner.load(tmp_path / "learner.tacit").arms == one.arms


def test_a_column_may_serve_twice_where_that_makes_sense():
    log = {"place": [0, 1], "who": ["a", "b"], "reward": [0, 1]}
    columns = {"arm": "place", "position": "place", "key": "who", "decision_id": "who"}
    assert sum(map(len, tacit.read_log(log, columns=columns, arms=["0", "1"]))) == 2


def test_clusters_are_of_any_column():
    by_user, by_key = weighed(cluster="uid"), weighed(cluster="key", columns={"arm": "banner", "key": "uid"})
    assert by_user.estimates[0].intervals == by_key.estimates[0].intervals


@pytest.mark.parametrize("given", ["false", "no", "off"])
def test_whether_loops_are_compiled_is_said_in_one_way(given, monkeypatch):
    monkeypatch.setenv("TACIT_COMPILE", given)
    with pytest.raises(TacitError, match=f"TACIT_COMPILE: '{given}' is not allowed; give 0, "):
        learner(arms=ARMS).choose("a")


SEARCHES = {
    "search,team,position,clik\n": ("click", "did you mean 'clik'?", "--column click=..."),
    "search,team,rank,hit\n": ("position", "and none for click", "--column position=... --column click=..."),
    "left,rigth\n": ("right", "did you mean 'rigth'?", "--column right=..."),
}


@pytest.mark.parametrize("head", SEARCHES)
def test_columns_that_lack_are_named_with_those_that_are_there(tmp_path, head):
    field, hint, remedy = SEARCHES[head]
    path = tmp_path / "rows.csv"
    path.write_text(head + "1,old,0,1\n1,new,1,0\n")
    with pytest.raises(TacitError) as caught:
        read_interleaved(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: {field}: there is no column '{field}'")
    assert all(part in said for part in (hint, remedy, repr(head.strip().split(",")[0])))


def test_a_column_that_may_have_clicks_is_asked_for(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("search,team,position,hit\n1,old,0,1\n1,new,1,0\n")
    with pytest.warns(
        AssumptionWarning, match=r"click: there is no column 'click'; the columns are .*'hit', so"
    ):
        read_interleaved(path)
    with pytest.raises(TacitError, match=r"click: there is no column 'hits' \(did you mean 'hit'\?\)"):
        read_interleaved(path, columns={"click": "hits"})


def test_rankers_that_differ_by_capitals_are_doubted_in_searches(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("search,team,position,click\n1,old,0,1\n1,new,1,0\n2,New,0,1\n2,old,1,0\n")
    with pytest.warns(AssumptionWarning, match="rankers: 'New', 'new' differ"):
        read_interleaved(path)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_column_that_may_say_whose_searches_are_is_named(form, tmp_path):
    path, rows = tmp_path / f"rows.{form}", range(800)
    shown = pandas.DataFrame(
        {
            "search": [f"s{row // 2}" for row in rows],
            "team": ["new", "old"] * 400,
            "position": [0, 1] * 400,
            "click": [1, 0, 0, 1, 0, 0, 0, 0] * 100,
        }
    )

    def said(**columns):
        frame = shown.assign(**columns)
        frame.to_csv(path) if form == "csv" else frame.to_json(path, orient="records", lines=True)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            read_interleaved(path, by=["CustomerID"] * ("CustomerID" in columns))
        return [str(each.message) for each in found]

    (text,) = said(customer_id=[f"c{row // 20}" for row in rows])
    assert text.startswith(
        "unit: each search counts as of a user of its own; if 'customer_id', of 40 values,"
    )
    assert text.endswith("give unit='customer_id' (--unit customer_id)")
    many = [f"c{row // 20}" for row in rows]
    assert said(customer_id=many, user=many) == said(market=many) == said(CustomerID=many) == []
    # A search each, none, and a yes or no tell of nobody who comes back.
    assert said(customer_id=[row // 2 for row in rows]) == said(customer_id=None) == []
    assert said(customer=[f"{row // 20 % 2}" for row in rows]) == []


def test_users_of_a_log_of_pairs_who_come_back_are_doubted(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("left,right,outcome,user\na,b,1,u\nb,a,0,u\na,b,1,\n")
    with pytest.warns(AssumptionWarning, match=r"user: 'u' comes back, .*; give --unit user"):
        read_duels(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path.write_text("left,right,outcome,user\na,b,1,u\nb,a,0,v\na,b,1,\na,b,1,\n")
        read_duels(path)


TYPED = {
    "--seed 3 simulate": "No such option '--seed'; options follow their command: tacit simulate --seed …",
    "evaluate log.csv --policy film": "none is called 'film'; always:film may be meant; there are",
    "duel log.csv --worth click=ten": "worth.click: 'ten' is not allowed; give a number",
    "duel log.csv --position 1,0.5x": "position: '0.5x' is not allowed; give a number",
    "evaluate log.csv --policy plan.csv": "none is called 'plan.csv'; table:plan.csv may be meant",
    "evaluate --policy ucb1 ips": "ips: cannot be read: .*several values of one option have commas between",
    "schema log.csv --context uid": "who is asking is a column: --column context=age,device",
    "evaluate log.csv --policy ucb1 --arms [film,song]": "give names with commas .* without brackets",
    "lift log.csv": "PLACEMENT: log.csv is a file; tacit evaluate judges what is logged",
    "simulate --policy thompson,ucb1": "policy: 'thompson,ucb1' is not allowed; .*: --policy once for each",
    "evaluate log.csv --policy home.tacit": "none is called 'home.tacit'; learner:home.tacit may be meant",
}


@pytest.mark.parametrize("typed", TYPED)
def test_what_was_meant_by_a_command_is_said(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    BANNERS.to_csv("log.csv")
    said = CliRunner().invoke(cli, typed.split(), prog_name="tacit")
    assert said.exit_code == 2
    assert re.search(TYPED[typed], said.output, re.DOTALL), said.output


@pytest.mark.parametrize("none", [-1, "-"])
def test_rewards_that_leave_out_what_was_not_clicked_are_doubted(none, tmp_path):
    path = tmp_path / "log.csv"
    BANNERS.assign(reward=[1 if reward else none for reward in BANNERS["reward"]]).to_csv(path)
    with pytest.warns(
        AssumptionWarning, match=f"reward = '{none}'; .*left out, and the others may earn more"
    ):
        weighed(path)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_names_that_are_not_in_utf_8_are_said_to_be_so(suffix, tmp_path):
    rows = (
        ["banner,reward", "café,1", "film,0"]
        if suffix == ".csv"
        else ['{"banner": "film"}', '{"banner": "café"}']
    )
    path = tmp_path / f"log{suffix}"
    path.write_bytes("\n".join(rows * 2).encode("latin-1"))
    log = tacit.read_log(path, columns={"arm": "banner"}, arms=["film", "café"], batch_rows=1)
    list(log)
    assert "which is not in UTF-8: save the file in UTF-8" in log.report.summary()


def test_an_empty_file_is_called_empty(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("")
    with pytest.raises(TacitError, match=r"log\.csv: it is empty; give one that has rows"):
        tacit.read_log(path, arms=ARMS)


@pytest.mark.parametrize("uid", [[None, 7] * 20, [None] * 40], ids=["some", "all"])
def test_rows_without_what_tells_clusters_apart_are_refused(uid):
    with pytest.raises(TacitError, match="row 1: cluster: uid is missing; give such rows ids of their own"):
        weighed(BANNERS.assign(uid=uid), cluster="uid")


@pytest.mark.parametrize("context", [{"age": "number", "dev": ["ios", "web"]}, ["age", "dev"]])
def test_a_policy_of_other_fields_than_the_log_is_read_with_is_refused(context):
    log = BANNERS.assign(age=30.0, dev="ios")
    policy = tacit.auto(arms=["film", "song"], context={"agee": "number", "dev": ["ios", "web"]})
    with pytest.raises(TacitError, match=r"the policy reads .*agee.*, the log .*age.*make both alike"):
        off_policy(policy, log, columns={"arm": "banner", "context": context}, arms=["film", "song"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"banner,reward\n", "it has no rows"),
        (b"banner,reward\nfilm,0,5\nsong,1,0\n", "2 rows have more or fewer fields than the header"),
        ("banner,reward\nfilm,0\n".encode("utf-16"), "it is in UTF-16; save it in UTF-8"),
        (gzip.compress(b"banner,reward\nfilm,0\n", mtime=0), "compressed by gzip; call it log.csv.gz"),
        (b"PAR1\x15\x04", "it is Parquet; say so with format='parquet' (--format parquet)"),
        (b"PK\x03\x04\x14", "it is a workbook or a zip file; give what is in it, saved as CSV"),
    ],
    ids=["no rows", "more fields", "UTF-16", "gzip", "Parquet", "a workbook"],
)
def test_what_a_file_without_usable_rows_lacks_is_said(tmp_path, text, why):
    log = tmp_path / "log.csv"
    log.write_bytes(text)
    asked = "--policy always:film --arms shown --column arm=banner --constant propensity=0.5"
    failed = CliRunner().invoke(cli, ["evaluate", str(log), *asked.split()])
    assert failed.exit_code
    assert "log.csv" in failed.output
    assert why in failed.output


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (
            "log.json",
            '[{"banner": "film"},\n{"banner": "song"}]',
            "no line of it is a JSON object; write one",
        ),
        ("log.csv.gz", "banner,reward\nfilm,1\n", "its name says that it is compressed; call it otherwise"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path, name, text, why):
    (tmp_path / name).write_text(text)
    with pytest.raises(TacitError, match=f"{name}: .*{why}"):
        tacit.read_log(tmp_path / name, columns={"arm": "banner"}, arms=ARMS)


WRONG_SEARCHES = {
    "1,old,0,yes\n1,new,1,no\n": "none of its rows can be used; .*click = 'yes'; give a number",
    "1,old,0,1\n1,new,0,1\n": "another item or team at position 0",
}


@pytest.mark.parametrize("rows", WRONG_SEARCHES)
def test_why_rows_of_searches_are_wrong_is_said_with_the_remedy(rows, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("search,team,position,click\n" + rows)
    with pytest.raises(TacitError, match=re.compile(WRONG_SEARCHES[rows], re.DOTALL)):
        read_interleaved(path)


def test_a_column_of_users_that_is_empty_is_called_so(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("search,team,position,click,user\n1,old,0,1,\n1,new,1,0,\n")
    with pytest.raises(TacitError, match="unit: no row has anything in 'user'"):
        read_interleaved(path, unit="user")


def test_a_value_that_is_written_otherwise_is_doubted_once_in_a_log():
    log = BANNERS.assign(device="iOS")
    policy = tacit.auto(arms=["film", "song"], context={"device": ["ios", "web"]})
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        learner(arms=["film", "song"], context=policy.context).fit_log(
            log, columns={"arm": "banner"}, arms=["film", "song"]
        )
    assert sum("counts as other" in str(each.message) for each in found) == 1


def test_a_schema_is_suggested_beside_other_columns(tmp_path):
    BANNERS.assign(age=30.0).to_csv(tmp_path / "mine.csv")
    typed = f"schema {tmp_path / 'mine.csv'} --arms shown --column arm=banner --column context=age"
    assert CliRunner().invoke(cli, typed.split()).output == 'context = { age = "number" }\n'


def test_what_is_said_twice_of_a_log_is_refused(tmp_path):
    log = tmp_path / "log.csv"
    BANNERS.to_csv(log, index=False)
    with pytest.raises(TacitError, match=r"path: '.*log.csv' is not allowed; its rows would count twice"):
        weighed([log, log])
    with pytest.raises(TacitError, match=r"constants: 'arm' is not allowed; columns says it, too"):
        weighed(constants={"arm": "film"})
    with pytest.raises(TacitError, match=r"columns: 5 is not allowed; give a dict from our names"):
        weighed(columns=5)


def test_ids_that_are_text_and_numbers_are_warned_of_if_they_look_alike():
    with pytest.warns(AssumptionWarning, match="rankings: '1' is another item than 1; give all ids as text"):
        TeamDraft().interleave([["1", "2"], [1, 2]], RNG)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssumptionWarning)
        TeamDraft().interleave([["x", 2], [2, 1]], RNG)


def test_a_learner_judged_by_the_log_that_it_learned_says_so(tmp_path):
    log = MANY | {"propensity": [0.5] * 200}
    fitted = learner(arms=ARMS).fit_log(log)
    fitted.save(tmp_path / "home.tacit")
    for known in (fitted, tacit.Learner.load(tmp_path / "home.tacit")):
        with pytest.warns(AssumptionWarning, match="fitted to this very log, .*; judge it by later rows"):
            judged = off_policy(known, log)
        assert "fitted to this very log" in judged.summary()
        with pytest.warns(AssumptionWarning, match="learned from a log before, and count twice"):
            known.fit_log(log)
    later = log | {"reward": [1, 0, 1, 0] * 50}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        assert not off_policy(fitted, later).assumes
        assert not off_policy(learner(arms=ARMS), log).assumes


@pytest.mark.parametrize(("given", "asked"), [({}, "home"), ({"key": ["home"] * 200}, "default")])
def test_a_key_of_which_the_log_says_nothing_is_doubted(tmp_path, given, asked):
    fitted = tacit.Learner(tacit.UCB1(ARMS), seed=1).fit_log(MANY | given)
    fitted.save(tmp_path / "home.tacit")
    for known in (fitted, tacit.Learner.load(tmp_path / "home.tacit")):
        with pytest.warns(
            AssumptionWarning, match=f"key: nothing is known of '{asked}', .* columns="
        ) as said:
            known.choose(asked)
        assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for known in (
            fitted,
            tacit.Learner(tacit.UCB1(ARMS), seed=1).fit_log(MANY | {"key": ["a", "b"] * 100}),
        ):
            known.choose_many(["home", "new", "b"])
        learner(arms=ARMS).fit_log(MANY | given).choose(asked)


AGES = [18 + row * 7 % 60 for row in range(1000)]
IDS = RNG.permutation(10_000)[:1000]


def coded(code):
    return [code if row % 20 == 0 else age for row, age in enumerate(AGES)]


DOUBTED = {
    "999 for none": ("number", coded(999), "999 stands for no number, and counts as one; give None in its"),
    "-1 for none": (
        "number",
        coded(-1),
        "-1 stands for no number, and counts as one; give None in its place",
    ),
    "-9999 for none": ("number", coded(-9999.0), "-9999 stands for no number"),
    "a time": ("number", [1_760_000_000 + i * 7919 % 4001 for i in range(1000)], "all are times .* the hour"),
    "a time in ms": (
        "number",
        [(1_760_000_000 + i * 7919 % 4001) * 1000 for i in range(1000)],
        "all are times",
    ),
    "a number that counts": ("number", list(range(1000)), "it rises or falls from row to row"),
    "ids": ("category", [f"u{i}" for i in IDS], "nearly every value is another, .*; leave it out"),
}
SOUND_FIELDS = {
    "ages": ("number", AGES),
    "ages, some of them missing": ("number", coded(None)),
    "a share": ("number", [row * 37 % 100 / 100 for row in range(1000)]),
    "prices": ("number", [999 if row % 3 == 0 else 5 + row * 7 % 900 for row in range(1000)]),
    "one very high price": ("number", [9999 if row == 5 else price for row, price in enumerate(AGES)]),
    "how warm it is": ("number", [row % 30 - 1 for row in range(1000)]),
    "moods": ("number", [row * 7 % 3 - 1 for row in range(1000)]),
    "bytes": ("number", [2**30 * (1 + row * 7 % 2) for row in range(1000)]),
    "always the same": ("number", [0] * 1000),
    "pay": ("number", [int(i) for i in IDS]),
    "towns": ("category", [f"town {i % 700}" for i in IDS]),
}


TEXTS = {"ages": [str(age) for age in AGES], "amounts": [f"{i % 700 / 7:.2f}" for i in IDS]}
SOUND_TEXTS = {
    "post codes": [str(10_000 + i * 97 % 70_000) for i in IDS % 700],
    "codes with zeros": [f"{i % 100:03}" for i in IDS],
    "few numbers": [str(i % 20) for i in IDS],
}


@pytest.mark.parametrize("field", TEXTS)
def test_numbers_in_text_are_doubted_in_a_schema_that_is_learned(field):
    said = r"context\.age: all are numbers in text, such as '.*', .*frame\.astype\({'age': float}\)"
    with pytest.warns(AssumptionWarning, match=said):
        assert tacit.infer_schema({"age": TEXTS[field]}) == {"age": "category"}


@pytest.mark.parametrize("field", SOUND_TEXTS)
def test_numbers_in_text_that_name_something_are_not_doubted(field):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tacit.infer_schema({"code": SOUND_TEXTS[field]})
        tacit.infer_schema({"user_id": TEXTS["ages"]})


def asked(holds, values):
    one = learner(arms=ARMS, context={"field": holds})
    for value in values:
        one.choose(context={"field": value})


@pytest.mark.parametrize("field", DOUBTED)
def test_what_the_first_contexts_have_is_doubted_once_and_so_in_a_table(field):
    holds, values, doubt = DOUBTED[field]
    for given in (lambda: asked(holds, values), lambda: tacit.infer_schema({"field": values})):
        with pytest.warns(AssumptionWarning, match=rf"context\.field: {doubt}") as said:
            given()
        assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked(holds, values[:999])


@pytest.mark.parametrize("field", SOUND_FIELDS)
def test_fields_that_are_as_they_should_be_are_not_doubted(field):
    holds, values = SOUND_FIELDS[field]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked(holds, values)
        tacit.infer_schema({"field": values})


def test_a_field_that_is_never_sent_is_said_once():
    one = learner(arms=ARMS, context={"age": "number", "device": ["ios", "web"], "town": "category"})
    contexts = [{"age": age, "town": None} for age in AGES]
    with pytest.warns(AssumptionWarning) as said:
        one.choose_many(["home"] * 2000, contexts * 2)
    assert [str(each.message).partition(";")[0] for each in said] == [
        "context.device: none of the first 1,000 contexts has it"
    ]


def test_values_of_which_none_is_listed_are_said_once():
    doubt = r"context\.field: none of the schema's values came, .*; list those that come: 'desktop', …"
    with pytest.warns(AssumptionWarning, match=doubt) as said:
        asked(["ios", "web"], ["desktop"] * 2000)
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked(["ios", "web"], ["desktop"] * 999 + ["web"])


@pytest.mark.parametrize("name", ["user_id", "id", "userId", "uid"])
def test_an_id_is_no_number(name):
    with pytest.warns(AssumptionWarning, match=rf"context\.{name}: its name is of an id, .* 'category'"):
        tacit.auto(arms=ARMS, context={name: "number"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tacit.auto(
            arms=ARMS, context={name: "category", "bid": "number", "is_paid": "boolean", "grid": "number"}
        )


HUNDREDS = 10_001


def never_learned(one):
    for _ in range(HUNDREDS):
        one.choose("home")


def clicks_alone(one):
    for row in range(HUNDREDS):
        decision = one.choose("home")
        if row % 10 == 0:
            one.learn(decision, 1.0)


def clicks_alone_in_batches(one):
    for _ in range(HUNDREDS // 1000 + 1):
        made = one.choose_many(["home"] * 1000)
        one.learn_many(made[::10], [1.0] * 100)


def keys_of_users(one):
    for row in range(HUNDREDS):
        one.learn(one.choose(f"user {row}"), float(row % 10 == 0))


def percent(one):
    for row in range(HUNDREDS):
        one.learn(one.choose("home"), 0.01 * (row % 5 == 0))


def percent_in_batches(one):
    for _ in range(HUNDREDS // 1000 + 1):
        one.learn_many(one.choose_many(["home"] * 1000), [0.0, 0.01] * 500)


def percent_in_a_log(one):
    rows = {"key": "home", "arms": ARMS, "arm": "film", "reward": 0.01}
    one.fit_log({name: [value] * HUNDREDS for name, value in rows.items()})


USED_WRONGLY = {
    percent: r"reward: none is above 0\.01, .*; give 1 for as much as there can be",
    percent_in_batches: r"reward: none is above 0\.01, .*; give 1 for as much as there can be",
    percent_in_a_log: r"log: reward: none is above 0\.01, .*; give 1 for as much as there can be",
    never_learned: r"learn: of 10,000 decisions none was learned; call learn\(decision, reward\)",
    clicks_alone: r"reward: of 1,000 decisions few were learned, and none with 0\.0; learn each",
    clicks_alone_in_batches: r"reward: of 1,000 decisions few were learned, and none with 0\.0; learn each",
    keys_of_users: r"key: 10,000 decisions are for 10,000 keys.*; give as key a query .* as context=",
}


@pytest.mark.parametrize("use", USED_WRONGLY, ids=lambda use: use.__name__)
def test_what_many_decisions_lack_is_said_once(use):
    one = tacit.Learner(tacit.UCB1(ARMS), seed=1)
    with pytest.warns(AssumptionWarning) as said:
        use(one)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        never_learned(one)
    assert len(said) == 1
    assert re.match(USED_WRONGLY[use], str(said[0].message))
    assert said[0].filename == __file__


def learned_by_halves(one):
    for row in range(HUNDREDS):
        decision = one.choose("home")
        if row % 4:
            one.learn(decision, 0.5)


def misses_among_them(one):
    for row in range(HUNDREDS):
        decision = one.choose("home")
        if row % 100 == 0:
            one.learn(decision, float(row % 200 == 0))


def lanes_side_by_side(one):
    for _ in range(2):
        made = one.choose_many([str(lane) for lane in range(HUNDREDS)])
        one.learn_many(made, [0.0] * HUNDREDS)


def one_batch(one):
    one.learn_many(one.choose_many(["home"] * HUNDREDS), [0.0] * HUNDREDS)
    one.choose("home")


def learned_from_a_log(one):
    never_learned(one.fit_log(MANY | {"key": ["home"] * 200}))


@pytest.mark.parametrize(
    "use", [learned_by_halves, misses_among_them, lanes_side_by_side, one_batch, learned_from_a_log]
)
def test_use_that_is_as_it_should_be_is_not_doubted(use):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        use(tacit.Learner(tacit.UCB1(ARMS), seed=1))


def test_learners_that_have_nothing_to_learn_or_went_on_from_a_file_are_not_doubted(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        never_learned(tacit.Learner(tacit.UniformRandom(ARMS), seed=1))
        learner(arms=ARMS).save(tmp_path / "home.tacit")
        never_learned(tacit.Learner.load(tmp_path / "home.tacit"))
        # What it learned of some keys is shared with all others.
        keys_of_users(learner(arms=ARMS))


def test_a_list_without_a_click_is_a_lesson_like_others():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lists = learner(arms=ARMS, shows="slate", positions=2)
        lists.learn(lists.choose("home"), [0, 0])
        lists.choose_many(["home"] * HUNDREDS)
        lists.choose("home")
