"""Python's habits: pickles, copies, pools, JSON, notebooks, arrays and numbers for text."""

import copy
import json
import pickle
import pydoc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policies_of_ones_own import Forgetful

import tacit
from tacit.core.text import html_table
from tacit.errors import InvalidValue, KernelError, MissingExtra, MissingPackage, SnapshotError, UnknownName
from tacit.evaluate.duels import preferences
from tacit.evaluate.interleaved import InterleavedReport, Search
from tacit.evaluate.interleaved.report import SearchAccumulator
from tacit.interleaving import Action, CreditRule, Interleaved
from tacit.policies.base import registry

ARMS = ("film", "holiday", "recipe")


def taught(policy, rounds=30, seed=7):
    learner = tacit.Learner(policy, seed=seed)
    for round in range(rounds):
        decision = learner.choose(f"key {round % 3}")
        learner.learn(decision, float(decision.slot == 1))
    return learner


def going_on(learner, rounds=20):
    """Return what a learner decides from here on."""
    made = [learner.choose(f"key {round % 4}") for round in range(rounds)]
    return [(decision.id, decision.shown, decision.propensity) for decision in made]


# Pickles --------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [tacit.Thompson(ARMS), Forgetful(3)], ids=lambda p: p.label)
@pytest.mark.parametrize(
    "copied",
    [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy, copy.copy],
    ids=["pickle", "deepcopy", "copy"],
)
def test_a_copy_goes_on_as_the_learner_would_and_is_apart(policy, copied):
    learner = taught(policy)
    learner.retire_arm(learner.arms[0])
    other = copied(learner)
    assert other.policy == policy
    assert other.retired == learner.retired
    expected = going_on(learner)
    assert going_on(copied(other)) == expected
    assert going_on(other) == expected


@pytest.mark.parametrize(
    "error",
    [
        InvalidValue("arms", 0, "give one"),
        KernelError("a.py", 3, "choose", "why"),
        MissingPackage("pandas"),
        MissingExtra("matplotlib", "plots"),
        UnknownName("no such arm"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_out_of_a_pool_as_it_was_raised(error):
    """Else a pool of processes says no more than that it broke."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_a_pickle_holds_a_snapshot_and_nothing_that_runs():
    learner = taught(tacit.UCB1(3))
    assert b"header.json" in pickle.dumps(learner)
    decisions = learner.choose_many(["a", "b"])
    assert [d.shown for d in pickle.loads(pickle.dumps(decisions))] == [d.shown for d in decisions]


def test_a_learner_goes_through_joblib(tmp_path):
    joblib = pytest.importorskip("joblib", reason="joblib comes with scikit-learn")
    learner, own = taught(tacit.Thompson(ARMS)), taught(Forgetful(3))
    joblib.dump(learner, tmp_path / "learner.joblib", compress=3)
    loaded = joblib.load(tmp_path / "learner.joblib")
    there = joblib.Parallel(n_jobs=2, backend="loky")(
        joblib.delayed(going_on)(each) for each in (learner, own)
    )
    assert there == [going_on(learner), going_on(own)]
    assert going_on(loaded) == there[0]


def test_a_saved_learner_says_which_class_it_wants(tmp_path, monkeypatch):
    taught(Forgetful(3)).save(tmp_path / "own.tacit")
    for name in [name for name, kind in registry.items() if kind is Forgetful]:
        monkeypatch.delitem(registry, name)
    with pytest.raises(SnapshotError) as caught:
        tacit.Learner.load(tmp_path / "own.tacit")
    told = "own.tacit: policy: none is called 'Forgetful'; import or define that class first"
    assert told in str(caught.value)
    assert len(str(caught.value)) < 250


# JSON -----------------------------------------------------------------------------------------


def same(one, other):
    assert one._fields == other._fields
    for field, mine, its in zip(one._fields, one, other, strict=True):
        if isinstance(mine, np.ndarray):
            assert mine.dtype == its.dtype, field
            np.testing.assert_array_equal(mine, its, err_msg=field)
        else:
            assert mine == its, field
            assert type(mine) is type(its), field


def decided():
    """Yield a learner and a decision of each kind, with a reward."""
    yield tacit.Learner(tacit.Thompson(ARMS), seed=1), {}, 1.0
    yield tacit.Learner(tacit.policies.RMED1(3), seed=1), {}, 0.5
    yield tacit.Learner(tacit.ListMix(4, positions=2), seed=1), {}, [1.0, 0.0]
    features = {"relevance": [[0.1, 0.2], [0.3, -0.4]], "examination": [[1.0, 0.0], [0.5, 0.5]]}
    yield tacit.Learner(tacit.policies.LinTS(2, 2), seed=1), features, 1.0


@pytest.mark.parametrize("case", range(4))
def test_a_decision_comes_back_from_json_bit_for_bit_and_teaches_the_same(case):
    learner, given, reward = list(decided())[case]
    decision = learner.choose("independence day", **given)
    again = tacit.Decision.from_json(decision.to_json())
    same(decision, again)
    other = copy.deepcopy(learner)
    learner.learn(decision, reward)
    other.learn(again, reward)
    assert pickle.dumps(learner) == pickle.dumps(other)


WRONG = {
    "id": -1,
    "key": "x" * 600,
    "shown": [],
    "propensity": 2.0,
    "epoch": 0.5,
    "offered": ["film"],
    "slots": [[1]],
    "context": [float("nan")],
    "relevance": [[1.0], [1.0, 2.0]],
}


@pytest.mark.parametrize("field", WRONG)
def test_json_that_is_no_decision_names_the_field(field):
    decision = tacit.Learner(tacit.UCB1(3), seed=1).choose("tomato")
    content = json.loads(decision.to_json()) | {field: WRONG[field]}
    with pytest.raises(InvalidValue, match=rf"^{field}: "):
        tacit.Decision.from_json(json.dumps(content))


@given(st.one_of(st.text(), st.recursive(st.none() | st.integers(), st.lists).map(json.dumps)))
def test_any_other_text_is_refused(text):
    with pytest.raises(InvalidValue):
        tacit.Decision.from_json(text)


# Arrays and numbers ---------------------------------------------------------------------------


class Column:
    """What a column of a data frame has of an array: ``tolist`` and iteration, and no truth."""

    def __init__(self, values):
        self._values = list(values)

    def tolist(self):
        return self._values

    def __iter__(self):
        return iter(self._values)

    def __len__(self):
        return len(self._values)

    def __bool__(self):
        raise ValueError("the truth of a column is ambiguous")


@pytest.mark.parametrize("kind", [np.array, Column])
def test_arrays_and_columns_name_arms_and_keys(kind):
    learner, plain = tacit.Learner(tacit.UCB1(kind(ARMS)), 1), tacit.Learner(tacit.UCB1(ARMS), 1)
    assert learner.policy == plain.policy
    keys, offers = ["a", "b"], [list(ARMS[:2]), list(ARMS[1:])]
    made = learner.choose_many(kind(keys), arms=[kind(offer) for offer in offers])
    assert made.arms == plain.choose_many(keys, arms=offers).arms
    assert learner.choose("a", arms=kind(ARMS[1:])).arm in ARMS[1:]
    assert learner.learn_many(made, np.array([0.0, 1.0])) == 2
    learner.retire_arms(kind(ARMS[:1]))
    learner.restore_arms(kind(ARMS[:1]))
    assert learner.add_arms(kind(["song"])) == ["song"]
    assert {type(key) for key in learner.keys} == {str}


def test_one_array_of_offers_is_an_offer_for_each():
    learner = tacit.Learner(tacit.UCB1(4), seed=1)
    made = learner.choose_many(np.arange(3), arms=np.array([[0, 1], [2, 3], [1, 2]]))
    assert all(d.arm in offer for d, offer in zip(made, [[0, 1], [2, 3], [1, 2]], strict=True))


@pytest.mark.parametrize("key", [17, np.int64(17), "17"])
def test_a_whole_number_stands_for_its_digits(key, tmp_path):
    learner = tacit.Learner(tacit.UCB1(2), seed=1)
    decision = learner.choose(key)
    assert decision.key == "17"
    assert learner.keys == ["17"]
    assert key in learner
    assert learner.epoch(key) == learner.lane(key) == 0
    learner.learn(decision, 1.0)
    learner.learn_many(learner.choose_many([key, 18]), [0.0, 1.0])
    assert learner.keys == ["17", "18"]
    learner.save(tmp_path / "a.tacit")
    assert tacit.Learner.load(tmp_path / "a.tacit").keys == ["17", "18"]


def test_who_has_one_problem_needs_no_key():
    learner = tacit.Learner(tacit.EpsilonGreedy(ARMS), seed=1)
    assert learner.learn(learner.choose(), 1.0)
    assert learner.keys == ["default"]
    assert learner.epoch() == 0
    assert learner.probabilities().sum() == pytest.approx(1.0)
    assert tacit.Learner(tacit.auto(2, context_dim=1), seed=1).choose(context=[0.5]).key == "default"
    with pytest.raises(UnknownName, match="restarts"):
        learner.restarts()


# Notebooks, papers, tables --------------------------------------------------------------------


def results():
    policies = [tacit.UniformRandom(3), tacit.UCB1(3)]
    result = tacit.simulate(policies, tacit.BernoulliArms([0.1, 0.2, 0.3]), 200, runs=2, seed=1)
    log = tacit.environments.simulate_log(tacit.UniformRandom(3), tacit.BernoulliArms([0.1, 0.2, 0.3]), 200)
    target = tacit.EpsilonGreedy(["0", "1", "2"])
    yield result
    yield tacit.replay(tacit.UCB1(["0", "1", "2"]), log, passes=2)
    yield tacit.off_policy(target, log)
    yield tacit.check(tacit.UCB1(3), only=["offers"])
    yield preferences([("new", "old", 1.0)] * 30 + [("old", "other", 0.5)] * 2)
    yield InterleavedReport(folded())


def folded():
    """Return what 40 searches of two markets say of two rankers."""
    fold = SearchAccumulator(CreditRule(), ("market",))
    for number in range(40):
        shown = Interleaved((0, 1), 2, "TeamDraft", {"teams": [number % 2, 1 - number % 2]})
        market = {"market": "us" if number % 3 else "de"}
        fold.add(Search(str(number), str(number), market, ("new", "old"), shown, [Action(number % 2)]))
    return fold.compute_sums(("new", "old"))


def test_results_are_tables_for_notebooks_and_papers():
    for result in results():
        records = result.records()
        shown, markdown, latex = result._repr_html_(), result.to_markdown(), result.to_latex()
        assert shown.count("<tr>") == len(records) + 1
        assert {line.count(" | ") for line in markdown.splitlines()} == {len(records[0]) - 1}
        assert latex.startswith(r"\begin{tabular}{")
        assert latex.count(r"\\") == len(records) + 1
        assert r"\_" in latex or not any("_" in name for name in records[0])


def test_print_and_a_prompt_show_words_and_no_arrays():
    learner = tacit.Learner(tacit.auto(2, context={"age": "number"}), seed=1)
    learner.choose(context={"age": 30})
    for result in (*results(), learner.explain({"age": 30})):
        assert repr(result) == str(result) == result.summary()
        assert "array(" not in str(result)


def test_what_a_table_holds_is_escaped():
    assert "<script>" not in html_table([{"arm": "<script>alert(1)</script>"}])
    learner = tacit.Learner(tacit.UCB1(["<b>", "a|b"]), seed=1)
    assert "<b>" not in learner._repr_html_()
    assert "&lt;b&gt;" in learner._repr_html_()


def test_a_data_frame_of_the_rows(monkeypatch):
    result = next(results())
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(MissingPackage, match="pip install pandas"):
        result.to_pandas()
    monkeypatch.undo()
    pandas = pytest.importorskip("pandas")
    frame = result.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["policy"].tolist() == ["UniformRandom", "UCB1"]


def test_a_plot_returns_its_axes_and_takes_those_it_is_given(tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    result, _, estimates, _, duels, searches = results()
    mine = Figure().subplots()
    for drawn in (result, estimates, duels, searches):
        assert drawn.plot(ax=mine) is mine
    assert len(mine.lines) >= 2
    assert pyplot.get_fignums() == []
    axes = result.plot(tmp_path / "deep" / "regret.png")
    assert (tmp_path / "deep" / "regret.png").read_bytes().startswith(b"\x89PNG")
    assert axes.get_xlabel() == "round"
    assert pyplot.get_fignums() == []
    shown = result.plot()
    assert pyplot.gcf() is shown.figure  # what a notebook shows at the end of a cell
    pyplot.close("all")


def test_the_help_of_a_learner_fits_some_screens():
    told = pydoc.render_doc(tacit.Learner, renderer=pydoc.plaintext).splitlines()
    # A screen has some 50 lines; two of ten are about whole columns, at the end.
    assert len(told) < 500
    assert not any(line.startswith((" |  batch", " |  _batch")) for line in told)
