"""Typical mistakes of beginners: the error names the field, the value and the remedy, in a line."""

import sys
import types
import warnings

import numpy as np
import polars
import pytest
from click.testing import CliRunner

import tacit
from tacit.cli import cli
from tacit.errors import AssumptionWarning, TacitError, UnknownName
from tacit.evaluate import (
    IPS,
    SNIPS,
    DirectMethod,
    IndependentIPS,
    Table,
    Uniform,
    arms_of,
    examine,
    off_policy,
)
from tacit.interleaving import TeamDraft
from tacit.policies.spec import policy_from_spec

ARMS = ["film", "holiday"]
KEYS = ["a", "b"]
MISTAKES = {
    "a context that is too long": (
        lambda: tacit.Learner(tacit.auto(3, context_dim=2)).choose("a", context=[1, 2, 3]),
        "context: [1, 2, 3] is not allowed; give 2 finite numbers",
    ),
    "contexts that are too long": (
        lambda: tacit.Learner(tacit.auto(3, context_dim=1)).choose_many(KEYS, [[1, 2], [3, 4]]),
        "context: [[1, 2], [3, 4]] is not allowed; give 1 finite numbers for each impression",
    ),
    "features of one arm in place of all": (
        lambda: tacit.Learner(tacit.policies.LogisticTS(3)).choose("a", relevance=[1, 2, 3]),
        "relevance: [1, 2, 3] is not allowed; give a row of 3 finite numbers for each arm on offer",
    ),
    "features forgotten": (
        lambda: tacit.Learner(tacit.policies.LogisticTS(3)).choose("a"),
        "items: [] is not allowed; the catalogue is empty: put items there, learner.items.put(ids, vectors), "
        "or give relevance=, a row of 3 finite numbers for each arm on offer",
    ),
    "features of one impression for two": (
        lambda: tacit.Learner(tacit.policies.LogisticTS(1)).choose_many(["a", "b"], relevance=[[[1.0]]]),
        "relevance: [[[1.0]]] is not allowed; give, for each of 2 impressions, a row of 1 finite "
        "numbers for each arm on offer",
    ),
    "a click's place in place of a list's clicks": (
        lambda: taught(tacit.ListMix(4, positions=3), 1),
        "reward: 1 is not allowed; give 3 numbers, one for each position: 1 for a click, 0 for none",
    ),
    "a list's clicks, too few": (
        lambda: taught(tacit.ListMix(4, positions=3), [1.0]),
        "reward: [1.0] is not allowed; give 3 numbers, one for each position: 1 for a click, 0 for none",
    ),
    "a list of items in place of the key": (
        lambda: tacit.Learner(tacit.UCB1(ARMS)).choose(["film"]),
        "key: ['film'] is not allowed; give a string, or, by its name, arms=, those on offer",
    ),
    "who asks in place of the key": (
        lambda: tacit.Learner(tacit.auto(ARMS, context={"age": "number"})).choose({"age": 3}),
        "key: {'age': 3} is not allowed; give a string, or, by its name, context=, who is asking",
    ),
    "numbers where a schema names fields": (
        lambda: tacit.Learner(tacit.auto(ARMS, context={"age": "number"})).choose(context=[1, 2, 3]),
        "context: [1, 2, 3] is not allowed; give a dict of age, {} where nothing is known",
    ),
    "nothing of who asks": (
        lambda: tacit.Learner(tacit.auto(ARMS, context={"age": "number"})).choose(),
        "context: None is not allowed; give a dict of age, {} where nothing is known",
    ),
    "one context for two impressions": (
        lambda: tacit.Learner(tacit.auto(ARMS, context={"age": "number"})).choose_many(KEYS, [{"age": 3}]),
        "context: '1 contexts' is not allowed; give one for each of 2 impressions",
    ),
    "positions without a list": (
        lambda: tacit.auto(ARMS, positions=2),
        "positions: 2 is not allowed; leave it out, or show a list of them: shows='slate'",
    ),
    "a seed for a generator": (
        lambda: TeamDraft().interleave([KEYS, KEYS], 7),
        "rng: 7 is not allowed; give a generator, such as np.random.default_rng(1)",
    ),
    "a folder that is not there": (
        lambda: tacit.Learner(tacit.UCB1(ARMS)).save("nowhere/home.tacit"),
        "nowhere/home.tacit: cannot be written: nowhere: No such file or directory; make it, or give another",
    ),
    "a vector that is not finite": (
        lambda: tacit.Learner(tacit.auto(relevance_dim=2)).items.put(["a"], [[1.0, np.nan]]),
        "vectors[0, 1]: nan is not allowed; give finite numbers within ±65,504; divide larger ones, such as "
        "prices",
    ),
    "a key misspelt": (
        lambda: taught(tacit.UCB1(ARMS), 1.0).estimates("tomatoe"),
        "key: nothing was ever chosen for 'tomatoe' by this learner (did you mean 'tomato'?); "
        "choose for it first, give a key that is in keys, or a decision to the learner that made it",
    ),
    "another learner's decision": (
        lambda: tacit.Learner(tacit.UCB1(2)).learn(tacit.Learner(tacit.UCB1(2)).choose("a"), 1.0),
        "key: nothing was ever chosen for 'a' by this learner; choose for it first, give a key that "
        "is in keys, or a decision to the learner that made it",
    ),
    "a file of something else": (
        lambda: tacit.Learner.load(__file__),
        f"{__file__}: foreign: this is no tacit snapshot; give a file that save wrote",
    ),
}


def test_a_column_that_is_told_otherwise_says_how(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("search,team,position,click,uid\n1,new,1,0,7\n1,old,2,1,7\n")
    run = CliRunner().invoke(cli, ["duel", str(path), "--column", "user=uid"])
    assert run.exit_code == 2
    told = " ".join(run.output.split())
    assert "columns: 'user' is not allowed; a log of searches has the columns search, team" in told
    assert "whose a search is goes with unit= (--unit)" in told


def test_a_policy_misspelt_is_told_the_one_that_was_meant_and_not_all_of_them():
    run = CliRunner().invoke(cli, ["simulate", "--policy", "tomson"])
    assert run.exit_code == 2
    told = " ".join(run.output.split())
    assert told.endswith(
        "policy: none is called 'tomson'; did you mean Thompson? \"module:Class\" is for your own"
    )


def taught(policy, reward):
    learner = tacit.Learner(policy, seed=1)
    learner.learn(learner.choose("tomato"), reward)
    return learner


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_remedy(mistake):
    made, told = MISTAKES[mistake]
    with pytest.raises(TacitError) as caught:
        made()
    assert str(caught.value) == told


# Wrong inputs over the public interface --------------------------------------------------------

ROWS = 6


def log_of(**columns):
    """Return a sound log of uniform choices, but for some columns; None leaves one out."""
    sound = {
        "decision_id": [str(row) for row in range(ROWS)],
        "key": ["tomato"] * ROWS,
        "arms": [ARMS] * ROWS,
        "arm": ARMS * (ROWS // 2),
        "propensity": [0.5] * ROWS,
        "reward": [0.0, 1.0, 0.0] * (ROWS // 3),
        "device": ["desk", "phone"] * (ROWS // 2),
    }
    return {name: values for name, values in (sound | columns).items() if values is not None}


def learner():
    return tacit.Learner(tacit.UCB1(ARMS), seed=1)


def interleaved(rankings, clicks=()):
    method = TeamDraft()
    return method.credit(method.interleave(rankings, np.random.default_rng(1)), clicks)


SOUND = log_of()
FILM = Table({"film": 1.0})
WRONG = {
    # what is wrong: the call, and what the error names: field, value and remedy
    "a dict for a target": (
        lambda: off_policy({"film": 1.0}, SOUND),
        ("target", "{'film': 1.0}", "give Table({'film': 1.0})"),
    ),
    "an arm for a target": (
        lambda: off_policy("film", SOUND),
        ("target", "'film'", "give Table({'film': 1.0})"),
    ),
    "a number for a target": (
        lambda: off_policy(3, SOUND),
        ("target", "3", "give a policy, or a target such as Uniform()"),
    ),
    "a class for a target": (lambda: off_policy(Uniform, SOUND), ("target", "Uniform", "give Uniform()")),
    "a policy that reads features for a target": (
        lambda: off_policy(tacit.EmbeddingMixture(3), SOUND),
        ("items", "None", "give a table with the columns id and vector"),
    ),
    "a policy that shows duels for a target": (
        lambda: off_policy(tacit.policies.RMED1(ARMS), SOUND),
        ("policy", "RMED1", "give one that shows a single arm"),
    ),
    "names for estimators": (
        lambda: off_policy(FILM, SOUND, ["snips"]),
        ("estimators", "['snips']", "give [SNIPS()]"),
    ),
    "one name for estimators": (
        lambda: off_policy(FILM, SOUND, "snips"),
        ("estimators", "'snips'", "give [SNIPS()]"),
    ),
    "an estimator that is not in a list": (
        lambda: off_policy(FILM, SOUND, SNIPS()),
        ("estimators", "SNIPS(", "give [SNIPS()]"),
    ),
    "a class for an estimator": (
        lambda: off_policy(FILM, SOUND, [IPS]),
        ("estimators", "IPS", "give [IPS()]"),
    ),
    "no estimators": (
        lambda: off_policy(FILM, SOUND, []),
        ("estimators", "[]", "give estimators, such as [IPS(), SNIPS()]"),
    ),
    "an estimator of lists for rows without positions": (
        lambda: off_policy(FILM, SOUND, [IndependentIPS(2)]),
        ("position", "there is none", "log the place of each arm"),
    ),
    "a clip of nothing": (lambda: IPS(clip=0), ("clip", "0", "give a finite number above 0")),
    "a model of nothing": (lambda: DirectMethod(model="linear"), ("model", "'linear'", "give a RewardModel")),
    "a list of dicts for a log": (
        lambda: off_policy(FILM, [{"key": "tomato"}]),
        ("log", "{'key': 'tomato'}", "pyarrow.Table.from_pylist"),
    ),
    "a polars frame that is not collected": (
        lambda: off_policy(FILM, polars.DataFrame(SOUND).lazy()),
        ("log", "LazyFrame", "collect()"),
    ),
    "an empty frame": (
        lambda: off_policy(FILM, {name: [] for name in SOUND}),
        ("log", "no rows", "give one that has some"),
    ),
    "a number for a log": (
        lambda: off_policy(FILM, 5),
        ("log", "5", "give a path, a LogReader, or a table in memory"),
    ),
    "a file that is not there": (
        lambda: off_policy(FILM, "nowhere/clicks.csv"),
        ("nowhere/clicks.csv", "there is no such file", "give one that is there"),
    ),
    "values of two types in a column": (
        lambda: off_policy(FILM, log_of(reward=[0, 1, "yes", 0, 1, 0])),
        ("reward", "row 3: 'yes'", "those of a column one type"),
    ),
    "columns of different lengths": (
        lambda: off_policy(FILM, log_of(reward=[1.0])),
        ("reward", "length 1", "as many values"),
    ),
    "a number for a column": (
        lambda: off_policy(FILM, log_of(reward=1.0)),
        ("reward", "1.0", "give an array"),
    ),
    "a column that is missing": (
        lambda: off_policy(FILM, log_of(arm=None)),
        ("arm", "there is no column 'arm'", "columns={'arm': ...}"),
    ),
    "a column of another name": (
        lambda: off_policy(FILM, SOUND, columns={"reward": "clicks"}),
        ("reward", "'clicks'", "columns={'reward': ...}"),
    ),
    "a column that the schema has not": (
        lambda: off_policy(FILM, SOUND, columns={"query": "key"}),
        ("columns", "'query'", "did you mean {'key': 'query'}? a click log has the columns"),
    ),
    "a column of the schema misspelt": (
        lambda: off_policy(FILM, SOUND, columns={"rewad": "reward"}),
        ("columns", "'rewad'", "did you mean 'reward'?"),
    ),
    "one name for a log's arms": (
        lambda: off_policy(FILM, log_of(arms=None), arms="film"),
        ("arms", "'film'", "give arms by name, arms=['film', 'song'] (--arms film,song), or 'shown'"),
    ),
    "a policy of lists for a log of single arms": (
        lambda: off_policy(tacit.ListMix(ARMS, positions=2), log_of(decision_id=None)),
        ("decision_id", "there is none", "of single arms give a policy", "columns={'decision_id'"),
    ),
    "a segment's column that is not there": (
        lambda: off_policy(FILM, SOUND, by="devise"),
        ("by", "'devise'", "did you mean 'device'?"),
    ),
    "a segment's column that is like none": (
        lambda: off_policy(FILM, SOUND, by="land"),
        ("by", "'land'", "'device'; give one of these"),
    ),
    "a number for a segment's column": (
        lambda: off_policy(FILM, SOUND, by=3),
        ("by", "3", "give the name of a column"),
    ),
    "a column of lists for segments": (
        lambda: off_policy(FILM, SOUND, by="arms"),
        ("by", "'arms'", "give a column of text or numbers"),
    ),
    "a propensity of 0": (
        lambda: off_policy(FILM, log_of(propensity=[0.5, 0.0] * 3)),
        ("row 2: propensity", "0.0", "give a number in (0, 1]"),
    ),
    "no propensities": (
        lambda: off_policy(FILM, log_of(propensity=None)),
        ("row 1: propensity", "there is none", "propensities=Uniform()", "propensities=Table("),
    ),
    "propensities from nowhere": (
        lambda: off_policy(FILM, SOUND, propensities="guessed"),
        ("propensities", "'guessed'", "give 'logged', 'estimated'"),
    ),
    "a reward of 5": (
        lambda: off_policy(FILM, log_of(reward=[0.0, 5.0] * 3)),
        ("row 2: reward", "5.0", "give a number in [0, 1]"),
    ),
    "an arm that was not on offer": (
        lambda: off_policy(FILM, log_of(arm=["film", "flim"] * 3)),
        ("row 2: arm", "'flim'", "give"),
    ),
    "a target's arm that is never on offer": (
        lambda: off_policy(Table({"flim": 1.0}), SOUND),
        ("row 1: arms", "'flim'", "leave it out of the target policy"),
    ),
    "probabilities that do not add up": (
        lambda: Table({"film": 0.5}),
        ("probabilities", "{'film': 0.5}", "give probabilities that add to 1"),
    ),
    "text for a probability": (
        lambda: Table({"film": "1"}),
        ("probabilities[film]", "'1'", "give a number in [0, 1]"),
    ),
    "names for probabilities": (
        lambda: Table(["film"]),
        ("probabilities", "['film']", "give a dict from arms to probabilities"),
    ),
    "tables that do not say for each of what": (
        lambda: Table({"tomato": {"film": 1.0}}),
        ("probabilities", "{'tomato': {'film': 1.0}}", "per='key'"),
    ),
    "a table for each of nothing": (
        lambda: Table({"tomato": {"film": 1.0}}, per=""),
        ("per", "''", "give the name of a column, such as key or device"),
    ),
    "a confidence in percent": (
        lambda: off_policy(FILM, SOUND, confidence=95),
        ("confidence", "95", "give a number in [0.5, 1)"),
    ),
    "a confidence of everything": (
        lambda: off_policy(FILM, SOUND, confidence=1),
        ("confidence", "1", "give a number in [0.5, 1)"),
    ),
    "clusters of nothing": (
        lambda: off_policy(FILM, SOUND, cluster="user"),
        ("column", "'user'", "the columns are", "give one of these"),
    ),
    "a bound that a weight exceeds": (
        lambda: off_policy(FILM, SOUND, weight_bound=1.0),
        ("weight_bound", "1.0", "there is a weight of 2; give more"),
    ),
    "a way to tell examination that is none": (
        lambda: examine(SOUND, "guess"),
        ("method", "'guess'", "give one of randomization, harvesting, em"),
    ),
    "a name for a policy to replay": (
        lambda: tacit.replay("ucb1", SOUND),
        ("policy", "'ucb1'", "give a policy, such as UCB1(arms=5)"),
    ),
    "no passes": (
        lambda: tacit.replay(tacit.UCB1(ARMS), SOUND, passes=0),
        ("passes", "0", "give a whole number of at least 1"),
    ),
    "a replay of choices that were not uniform": (
        lambda: tacit.replay(tacit.UCB1(ARMS), log_of(propensity=[0.8] * ROWS)),
        ("row 1: propensity", "0.8", "off_policy"),
    ),
    "a replay of other arms": (
        lambda: tacit.replay(tacit.UCB1(["song", "play"]), SOUND),
        ("arms", "'film'", "arms=arms_of(log)"),
    ),
    "other arms in a log to learn from": (
        lambda: tacit.Learner(tacit.UCB1(["song"])).fit_log(SOUND),
        ("arms", "'film'", "arms_of(log)"),
    ),
    "a placement that the log has not": (
        lambda: learner().fit_log(SOUND, placement="shop"),
        ("placement", "'shop'", "give one of 'placement'"),
    ),
    "arms of a dict that is no log": (
        lambda: arms_of({"film": 1.0}),
        ("arms", "there is no column 'arms'", "columns={'arms': ..., 'arm': ...}"),
    ),
    "a format that is not known": (
        lambda: tacit.read_log(__file__),
        ("format", ".py", "give parquet, csv, json, or a file that ends in .parquet, .csv"),
    ),
    "a format misspelt": (
        lambda: tacit.read_log(__file__, format="jsonl"),
        ("format", "'jsonl'", "did you mean 'json'?"),
    ),
    "a file that is not of its format": (
        lambda: tacit.read_log(__file__, format="parquet"),
        (__file__, "cannot be read as parquet", "say what it is with format= (--format)"),
    ),
    "a unit of time that is none": (
        lambda: tacit.read_log(SOUND, time_unit="min"),
        ("time_unit", "'min'", "give"),
    ),
    "a class for a learner's policy": (
        lambda: tacit.Learner(tacit.UCB1),
        ("policy", "UCB1", "such as UCB1(arms=5)"),
    ),
    "a key with a fraction": (lambda: learner().choose(1.5), ("key", "1.5", "give a string")),
    "an arm that is not on offer": (
        lambda: learner().choose("tomato", arms=["flim"]),
        ("arm", "'flim'", "film"),
    ),
    "a reward beyond 1": (
        lambda: learner().learn(learner().choose("tomato"), 2.0),
        ("reward", "2.0", "give a number in [0, 1]"),
    ),
    "an arm for a decision": (
        lambda: learner().learn("film", 1.0),
        ("decision", "'film'", "give what choose returned"),
    ),
    "fewer rewards than decisions": (
        lambda: (made := learner()).learn_many(made.choose_many(KEYS), [1.0]),
        ("rewards", "[1.0]", "2"),
    ),
    "an arm twice": (
        lambda: tacit.UCB1(["film", "holiday", "film"]),
        ("arms", "'film'", "give each arm a name of its own"),
    ),
    "numbers for arms' names": (
        lambda: tacit.auto([1, 2, 3]),
        ("arms", "[1, 2, 3]", "give names in quotes, such as ['1', '2', '3'], or their number: 3"),
    ),
    "a fraction for the number of arms": (
        lambda: tacit.auto(3.0),
        ("arms", "3.0", "give the number of arms (at least 1)"),
    ),
    "features of no number": (
        lambda: tacit.auto(relevance_dim=0),
        ("arms", "None", "relevance_dim, at least 1"),
    ),
    "vectors of another width": (
        lambda: tacit.Learner(tacit.auto(relevance_dim=2)).choose(relevance=np.zeros((50, 3))),
        ("relevance", "array(", "a row of 2 finite numbers", "these have 3 numbers each"),
    ),
    "estimates of what has none": (
        lambda: tacit.Learner(tacit.auto(ARMS, shows="duel")).estimates("tomato"),
        ("estimates", "HorizonDraw", "tacit duel gives a verdict"),
    ),
    "a context of no field": (lambda: tacit.auto(3, context={}), ("context", "{}", "name each field")),
    "a number that nobody has": (
        lambda: tacit.Learner(tacit.auto(3, context={"age": "number"})).choose(context={"age": 1e300}),
        ("context.age", "1e+300", "give a finite number (up to 1e+100)"),
    ),
    "a folder to save into": (lambda: learner().save("."), (".", "it is a folder", "name a file in it")),
    "a number to save into": (lambda: learner().save(5), ("path", "5", "give the name of a file")),
    "a number to load": (lambda: tacit.Learner.load(5), ("path", "5", "give the name of a file")),
    "no arms": (lambda: tacit.auto(0), ("arms", "0", "at least 1")),
    "something that auto does not show": (lambda: tacit.auto(3, shows="list"), ("shows", "'list'", "slate")),
    "an environment by name": (
        lambda: tacit.simulate(tacit.UCB1(2), "bernoulli", 10),
        ("environment", "'bernoulli'", "give one, such as BernoulliArms([0.1, 0.2])"),
    ),
    "a policy by name to simulate": (
        lambda: tacit.simulate("ucb1", tacit.BernoulliArms([0.1, 0.2]), 10),
        ("policies", "'ucb1'", "give a policy or a list of them"),
    ),
    "a learner to simulate": (
        lambda: tacit.simulate(learner(), tacit.BernoulliArms([0.1, 0.2]), 10),
        ("policies", "<Learner of UCB1", "give a policy or a list of them, such as its .policy"),
    ),
    "a policy of fewer arms than the environment": (
        lambda: tacit.simulate(tacit.UCB1(2), tacit.BernoulliArms([0.1, 0.2, 0.3]), 10),
        ("UCB1.arms", "2", "the environment has 3 arms; give as many"),
    ),
    "an item twice in a ranking": (
        lambda: interleaved([["a", "b"], ["c", "d", "c"]]),
        ("rankings[1]", "'c' is in it 2 times", "give each item once"),
    ),
    "one ranking for two": (
        lambda: interleaved([["a", "b"]]),
        ("rankings", "[['a', 'b']]", "give two rankings"),
    ),
    "a text for a ranking": (
        lambda: interleaved(["ab", "cd"]),
        ("rankings[0]", "'ab'", "give a list of at least one id"),
    ),
    "a click below the list": (
        lambda: interleaved([["a", "b"], ["b", "a"]], [2]),
        ("clicks", "2", "give a whole number of at least 0 and at most 1"),
    ),
}


@pytest.mark.parametrize("given", ["IOS", "ios ", "Ios"])
def test_a_value_that_differs_by_its_capitals_is_doubted(given):
    learner = tacit.Learner(tacit.auto(ARMS, context={"device": ["ios", "web"]}))
    with pytest.warns(AssumptionWarning, match=r"context\.device: '.*' counts as other; send 'ios'"):
        learner.choose(context={"device": given})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.choose(context={"device": "android"})


@pytest.mark.parametrize(("declared", "given"), [("é", "e\u0301"), ("e\u0301", "É"), ("fi", "ﬁ")])
def test_a_value_in_another_form_of_unicode_is_doubted(declared, given):
    learner = tacit.Learner(tacit.auto(ARMS, context={"accent": [declared, "none"]}))
    with pytest.warns(AssumptionWarning, match=r"context\.accent: .* counts as other; send .*") as said:
        learner.choose(context={"accent": given})
    if given == "e\u0301":
        assert r"'e\u0301' counts as other; send '\xe9'" in str(said[0].message)


ONE_KEY = "key: there is no such column, so all rows are of one key, 'default'"


def test_an_experiments_log_needs_no_key_and_its_results_say_so_once():
    log = log_of(key=None, decision_id=None, arms=None, propensity=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        weighed = off_policy(FILM, log, arms="shown", propensities=Uniform())
    assert weighed.estimates[1].value == pytest.approx(1 / 3)
    assert weighed.summary().count(ONE_KEY) == 1
    assert (
        weighed.assumes
        == "propensities are not logged, but as given (uniform): right only if arms were drawn so"
    )
    replayed = tacit.replay(tacit.UCB1(ARMS), log, arms="shown", assume_uniform=True)
    assert replayed.summary().count(ONE_KEY) == 1
    assert ONE_KEY not in off_policy(FILM, SOUND).summary()


@pytest.mark.parametrize("estimator", [(), ("--estimator", "replay"), ("--estimator", "ips")])
def test_a_command_takes_uniform_choice_at_its_word_and_needs_no_key(tmp_path, estimator):
    path = tmp_path / "test.csv"
    path.write_text("arm,reward\n" + "film,1\nholiday,0\n" * 200)
    options = ["--arms", "shown", "--propensities", "uniform", *estimator]
    run = CliRunner().invoke(cli, ["evaluate", str(path), "--policy", "ucb1", *options])
    assert run.exit_code == 0, run.output
    assert run.output.count(ONE_KEY) == 1


def test_files_of_which_only_some_have_keys_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("key,arm,reward\ntomato,film,1\n")
    (tmp_path / "b.csv").write_text("arm,reward\nfilm,1\n")
    with pytest.raises(
        TacitError, match=r"b\.csv: key: there is no column 'key'; .*columns=\{'key': \.\.\.\}"
    ):
        tacit.read_log(tmp_path, arms=ARMS)


def test_a_log_of_who_asks_needs_no_key_and_says_so():
    log = tacit.read_log(log_of(key=None, age=[30, 60] * 3), columns={"context": ["age"]})
    assert {key for batch in log for key in batch["key"].to_pylist()} == {"default"}
    assert log.report.notes()[0] == ONE_KEY
    log = tacit.read_log(log_of(age=[30, 60] * 3), columns={"context": ["age"]})
    assert {key for batch in log for key in batch["key"].to_pylist()} == {"tomato"}
    assert not log.report.one_key


MISSPELT = {
    "off_policy() got an unexpected keyword argument 'confidense'; did you mean 'confidence'?": (
        lambda: off_policy(FILM, SOUND, confidense=0.9)
    ),
    "replay() got an unexpected keyword argument 'colums'; did you mean 'columns'?": (
        lambda: tacit.replay(tacit.UCB1(ARMS), SOUND, colums={})
    ),
    "examine() got an unexpected keyword argument 'columms'; did you mean 'columns'?": (
        lambda: examine(SOUND, "randomization", columms={})
    ),
    "replay() got an unexpected keyword argument 'propensities'; did you mean 'assume_uniform'?": (
        lambda: tacit.replay(tacit.UCB1(ARMS), SOUND, propensities=Uniform())
    ),
    "auto() got an unexpected keyword argument 'prior'; did you mean 'priors'?": (
        lambda: tacit.auto(ARMS, prior={})
    ),
    "auto() got an unexpected keyword argument 'discout'; it takes arms, shows, positions,": (
        lambda: tacit.auto(ARMS, discout=0.9)
    ),
    "Learner() got an unexpected keyword argument 'sed'; did you mean 'seed'?": (
        lambda: tacit.Learner(tacit.UCB1(ARMS), sed=1)
    ),
    "ExplorationFloor() got an unexpected keyword argument 'eps'; did you mean 'epsilon'?": (
        lambda: tacit.ExplorationFloor(tacit.UCB1(ARMS), eps=0.1)
    ),
    "fit_log() got an unexpected keyword argument 'passes'; it takes log, placement, missing_reward,": (
        lambda: learner().fit_log(SOUND, passes=2)
    ),
}


@pytest.mark.parametrize("what", MISSPELT)
def test_an_option_misspelt_names_what_was_called_and_what_was_meant(what):
    with pytest.raises(TypeError) as caught:
        MISSPELT[what]()
    assert str(caught.value).startswith(what)


def test_a_name_misspelt_says_which_was_meant():
    with pytest.raises(AttributeError, match=r"no attribute 'atuo' \(did you mean 'auto'\?\)"):
        tacit.atuo  # noqa: B018


@pytest.mark.parametrize(
    ("policy", "remedy"),
    [
        ("atuo", "did you mean auto?"),
        ("pathlib", "did you mean pathlib:CLASS?"),
        ("tacit.policies:UBC1", "tacit.policies has no 'UBC1'; it has "),
    ],
)
def test_a_policy_by_another_name_says_how_it_is_called(policy, remedy):
    run = CliRunner().invoke(cli, ["check", policy])
    assert run.exit_code == 2
    assert remedy in " ".join(run.output.split())


def test_a_policy_called_as_a_module_of_no_file_is_refused_as_any_other(monkeypatch):
    # As __main__ is, in a notebook.
    monkeypatch.setitem(sys.modules, "nb_zyx", types.ModuleType("nb_zyx"))
    with pytest.raises(UnknownName, match="none is called 'nb_zyx'; did you mean nb_zyx:CLASS"):
        policy_from_spec("nb_zyx", 3)


@pytest.mark.parametrize("rewards", [[None] * ROWS, [float("nan")] * ROWS])
def test_a_log_whose_rewards_are_all_empty_is_doubted(rewards):
    with pytest.warns(AssumptionWarning, match=r"reward: 6 rows have none, .* columns=\{'reward': \.\.\.\}"):
        off_policy(FILM, log_of(reward=rewards))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "reward: .*", AssumptionWarning)
        warnings.filterwarnings("ignore", ".*n_eff", AssumptionWarning)
        off_policy(FILM, log_of(reward=[None, 1.0] * 3))


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_input_is_told_by_field_value_and_remedy(mistake):
    made, told = WRONG[mistake]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        with pytest.raises(TacitError) as caught:
            made()
    for part in told:
        assert part in str(caught.value)
