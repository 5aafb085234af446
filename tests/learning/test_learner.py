"""The learner: keys, lanes, arms, batches, snapshots."""

import functools
import io
import json
import pickle
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st
from policies_of_ones_own import Forgetful

import tacit
from tacit.errors import InvalidValue, SnapshotError, UnknownName


def play(learner, rounds, keys=("a", "b", "c"), seed=0):
    """Choose and learn for some rounds; return the arms."""
    rng = np.random.default_rng(seed)
    arms = []
    for _ in range(rounds):
        decision = learner.choose(keys[rng.integers(len(keys))])
        arms.append(decision.arm)
        learner.learn(decision, rng.random())
    return arms


def test_a_decision_says_what_was_shown():
    learner = tacit.Learner(tacit.Thompson(["holiday", "film"]), seed=7)
    decision = learner.choose("independence day")
    assert decision.id == 0
    assert decision.key == "independence day"
    assert decision.arm in ("holiday", "film")
    assert decision.propensity == pytest.approx(0.5)
    assert decision.epoch == 0
    assert learner.choose("independence day").id == 1


def test_deterministic_policies_report_no_propensity():
    assert tacit.Learner(tacit.UCB1(3), seed=1).choose("q").propensity is None
    assert tacit.Learner(tacit.Thompson(3), seed=1, propensities=False).choose("q").propensity is None
    # EXP3 cannot learn without it.
    assert tacit.Learner(tacit.policies.EXP3(3), seed=1, propensities=False).choose("q").propensity


@pytest.mark.parametrize("policy", [tacit.UCB1(4), tacit.Thompson(4), tacit.policies.EXP3(4)], ids=repr)
def test_a_batch_equals_its_single_calls(policy):
    one, many = tacit.Learner(policy, seed=3), tacit.Learner(policy, seed=3)
    keys = ["a", "b", "a", "c", "a", "b"] * 20
    rewards = np.random.default_rng(1).random(len(keys))
    for start in range(0, len(keys), 6):
        chunk = slice(start, start + 6)
        singles = [one.choose(key) for key in keys[chunk]]
        decisions = many.choose_many(keys[chunk])
        assert [(d.id, d.key, d.arm, d.propensity) for d in singles] == [
            (d.id, d.key, d.arm, d.propensity) for d in decisions
        ]
        assert decisions.arms == [d.arm for d in singles]
        for decision, reward in zip(singles, rewards[chunk], strict=True):
            one.learn(decision, reward)
        assert many.learn_many(decisions, rewards[chunk]) == 6
    assert pickle.dumps(one) == pickle.dumps(many)
    # A list of single decisions is as good as the columns.
    assert many.learn_many([decisions[0], decisions[3]], [1.0, 0.0]) == 2


def test_a_decision_that_a_list_names_twice_is_learned_not_even_once():
    learner = tacit.Learner(tacit.UCB1(3), seed=1)
    first, second = learner.choose("a"), learner.choose("b")
    before = pickle.dumps(learner)
    for learn in (
        lambda: learner.learn_many([first, second, first], [1.0, 0.0, 1.0]),
        lambda: learner.correct_many([first, second, first], [1.0, 0.0, 1.0], [0.0] * 3),
    ):
        with pytest.raises(InvalidValue, match=r"decisions\[2\].id: 0 .*decisions\[0\] has it too"):
            learn()
        assert pickle.dumps(learner) == before
    assert learner.learn_many([second, first], [1.0, 0.0]) == 2


def test_decisions_are_a_sequence():
    decisions = tacit.Learner(tacit.UCB1(3), seed=1).choose_many(["a", "b", "c"])
    assert len(decisions) == 3
    assert [d.key for d in decisions] == ["a", "b", "c"]
    assert decisions[-1].key == "c"
    assert [d.id for d in decisions[1:]] == [1, 2]
    with pytest.raises(IndexError):
        decisions[3]


@pytest.mark.parametrize("policy", [tacit.EpsilonGreedy(3), tacit.UCB1(3)])
def test_a_decision_keeps_nothing_of_the_generator(policy):
    """A reference for each would be a few bytes of memory for each, and never given back."""
    learner = tacit.Learner(policy, seed=1)
    learner.choose("a")
    before = sys.getrefcount(learner.rng)
    for _ in range(100):
        learner.choose("a")
    after = sys.getrefcount(learner.rng)  # an assert would hold one itself
    assert after == before


def test_the_same_seed_gives_the_same_decisions_and_another_does_not():
    first, second, other = (tacit.Learner(tacit.Thompson(5), seed=s) for s in (7, 7, 8))
    arms = play(first, 200)
    assert play(second, 200) == arms
    assert play(other, 200) != arms
    assert pickle.dumps(first) == pickle.dumps(second)


def test_offered_arms_are_respected():
    learner = tacit.Learner(tacit.UniformRandom(["a", "b", "c", "d"]), seed=1)
    decisions = learner.choose_many(["q"] * 300, arms=[["b", "d"]] * 150 + [None] * 150)
    assert set(decisions.arms[:150]) == {"b", "d"}
    assert set(decisions.arms[150:]) == {"a", "b", "c", "d"}
    assert decisions[0].propensity == 0.5
    assert decisions[200].propensity == 0.25


def test_one_arm_comes_and_goes_as_several_do():
    learner = tacit.Learner(tacit.UCB1(["a", "b"]), seed=1)
    play(learner, 50, keys=("q",))
    before = learner.state.plays[0].tolist()
    assert learner.add_arm("c") == "c"
    assert learner.choose("q").arm == "c"  # never played, so first
    learner.retire_arm("a")
    assert (learner.arms, learner.retired) == (["b", "c"], ["a"])
    assert learner.add_arm("a") == "a"
    assert (learner.arms, learner.state.plays[0].tolist()) == (["a", "b", "c"], [*before, 0])
    numbered = tacit.Learner(tacit.Thompson(2), seed=1)
    assert numbered.add_arm() == 2
    numbered.retire_arm(0)
    assert numbered.arms == [1, 2]
    with pytest.raises(InvalidValue, match="numbered"):
        numbered.add_arm("x")


def test_many_keys_keep_what_each_learned():
    learner = tacit.Learner(tacit.UCB1(2), seed=1)
    keys = [f"key {i}" for i in range(5000)]
    for start in range(0, 5000, 700):
        decisions = learner.choose_many(keys[start : start + 700])
        learner.learn_many(decisions, np.full(len(decisions), 0.5))
    assert learner.keys == keys
    assert (learner.state.rewards[:5000].sum(axis=1) == 0.5).all()
    assert (learner.state.plays[5000:] == 0).all()


@pytest.mark.parametrize("key", ["x" * 513, "é" * 257, "\ud800", 7.0, True, None, b"q", ["a"]])
def test_bad_keys_are_refused_before_anything_changes(key):
    learner = tacit.Learner(tacit.UCB1(2), seed=1)
    for choose in (lambda: learner.choose(key), lambda: learner.choose_many(["good", key])):
        with pytest.raises(InvalidValue, match=r"^key: "):
            choose()
    assert learner.keys == []
    assert learner.decisions == 0


@pytest.mark.parametrize("key", ["", "x" * 512, "é" * 256, "🎬" * 128])
def test_keys_of_up_to_512_bytes_are_fine(key):
    assert tacit.Learner(tacit.UCB1(2), seed=1).choose(key).key == key


def test_a_click_may_be_a_bool():
    learner = tacit.Learner(tacit.UCB1(2), seed=1)
    learner.learn(learner.choose("q"), True)
    assert learner.state.rewards[0].sum() == 1.0


# Epochs --------------------------------------------------------------------------------------


class TestEpochs:
    """A policy that restarts after each third reward of a lane."""

    def test_feedback_of_an_earlier_epoch_teaches_nothing(self):
        learner = tacit.Learner(Forgetful(2, patience=3), seed=1)
        old, older = learner.choose("q"), learner.choose("q")
        for _ in range(3):
            assert learner.learn(learner.choose("q"), 1.0)
        assert learner.epoch("q") == 1
        assert learner.choose("q").epoch == 1
        before = pickle.dumps(learner)
        assert not learner.learn(old, 1.0)
        assert learner.learn_many([old, older], [1.0, 1.0]) == 0
        assert pickle.dumps(learner) == before


# Snapshots -----------------------------------------------------------------------------------


def test_snapshots_keep_retired_arms_and_odd_keys(tmp_path):
    path = tmp_path / "learner.tacit"
    learner = tacit.Learner(tacit.UCB1(["a", "b"]), seed=1)
    play(learner, 20, keys=("", "🎬", 'quote " and \n newline'))
    learner.add_arm("c")
    learner.retire_arm("a")
    learner.save(path)
    loaded = tacit.Learner.load(path)
    assert loaded.keys == learner.keys
    assert loaded.arms == ["b", "c"]
    assert loaded.retired == ["a"]
    assert play(loaded, 20) == play(learner, 20)


def test_an_empty_learner_can_be_saved(tmp_path):
    tacit.Learner(tacit.UCB1(2), seed=1).save(tmp_path / "x")
    assert tacit.Learner.load(tmp_path / "x").choose("q").arm in (0, 1)


@pytest.fixture
def snapshot(tmp_path):
    path = tmp_path / "learner.tacit"
    learner = tacit.Learner(tacit.UCB1(3), seed=1)
    play(learner, 30)
    learner.save(path)
    return path


def rewrite(path, name, change):
    """Rewrite one member of a snapshot."""
    with zipfile.ZipFile(path) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    members[name] = change(members[name])
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)


def change_header(path, **changes):
    rewrite(path, "header.json", lambda content: json.dumps(json.loads(content) | changes).encode())


def replace_plays(path, array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    rewrite(path, "plays.npy", lambda _: buffer.getvalue())


def ask_for_an_impossible_version(path):
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")
    content[entry + 6] = 109  # the version needed to extract, in the archive's directory
    path.write_bytes(content)


def write_another_archive(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "hello")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-40]), "truncated"),
        (ask_for_an_impossible_version, "damaged"),
        (lambda path: path.write_bytes(b"not a snapshot"), "foreign"),
        (write_another_archive, "foreign"),
        (lambda path: path.unlink(), "cannot be read"),
        (lambda path: change_header(path, version=3), "newer: it is of version 3"),
        (lambda path: replace_plays(path, np.zeros((3, 7))), r"damaged: plays is float64\(3, 7\)"),
        (lambda path: replace_plays(path, np.array([[{}]], dtype=object)), "damaged"),
    ],
)
def test_a_file_that_is_no_snapshot_of_this_version_is_refused(snapshot, change, message):
    change(snapshot)
    with pytest.raises(SnapshotError, match=message):
        tacit.Learner.load(snapshot)


@examples(60)
@given(data=st.data())
def test_a_damaged_snapshot_is_refused_or_unharmed(data, tmp_path_factory):
    """One flipped bit anywhere: refused with an error of ours, or read as it was written."""
    learner = tacit.Learner(tacit.UCB1(3), seed=1)
    play(learner, 10)
    path = tmp_path_factory.mktemp("damage") / "x.tacit"
    learner.save(path)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        loaded = tacit.Learner.load(path)
    except SnapshotError:
        return
    assert pickle.dumps(loaded) == pickle.dumps(learner)


def test_loading_never_imports_what_the_file_names(snapshot, tmp_path):
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    sys.path.insert(0, str(tmp_path))
    try:
        change_header(snapshot, policy={"name": "evil:Policy", "arms": 3})
        with pytest.raises((SnapshotError, UnknownName)):
            tacit.Learner.load(snapshot)
    finally:
        sys.path.remove(str(tmp_path))
    assert "evil" not in sys.modules


def test_a_failed_save_leaves_the_old_snapshot(snapshot, monkeypatch):
    before = snapshot.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        tacit.Learner(tacit.UCB1(3), seed=2).save(snapshot)
    assert snapshot.read_bytes() == before
    assert list(snapshot.parent.iterdir()) == [snapshot]


# The package ---------------------------------------------------------------------------------


def test_import_loads_nothing_heavy():
    code = "import sys, tacit; print(*sorted(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numba", "llvmlite", "matplotlib", "pyarrow", "starlette", "msgspec", "rich", "scipy"}
    assert not heavy & set(told.stdout.split())


# Decisions of others -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "options"),
    [
        (tacit.UCB1(arms=50), {}),
        (tacit.policies.BeatTheMean(arms=50, horizon=1000), {}),
        (tacit.policies.CascadeUCB1(arms=50, positions=4), {}),
        (tacit.policies.LaplaceEC(3, 2), {"relevance": np.ones((4, 3)), "examination": np.ones((4, 2))}),
    ],
)
@pytest.mark.parametrize("many", [False, True])
def test_a_decision_of_another_kind_of_learner_is_refused(other, options, many):
    """Compiled code would write to places that are not there."""
    ours, theirs = tacit.Learner(tacit.UCB1(arms=2), seed=1), tacit.Learner(other, seed=1)
    ours.choose("k")
    before = pickle.dumps(ours)
    for _ in range(50):
        decision = theirs.choose("k", **options)
        if max(decision.slots) > 1:
            break
    with pytest.raises(InvalidValue, match="decision"):
        ours.learn_many([decision], [1.0]) if many else ours.learn(decision, 1.0)
    assert pickle.dumps(ours) == before


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    "kind",
    [tacit.UCB1, tacit.policies.RMED1, functools.partial(tacit.policies.CascadeUCB1, positions=2)],
    ids=str,
)
def test_a_decision_among_other_arms_is_refused(kind, many):
    """As many arms, called otherwise or in another order, would be taken for one another."""
    ours, theirs = (tacit.Learner(kind(arms=arms), seed=1) for arms in (["a", "b", "c"], ["b", "c", "a"]))
    ours.choose("k")
    before, decision = pickle.dumps(ours), theirs.choose("k")
    reward = [0.0, 1.0] if len(decision.shown) == 2 and kind is not tacit.policies.RMED1 else 1.0
    with pytest.raises(InvalidValue, match="give decisions of a learner of"):
        ours.learn_many([decision], [reward]) if many else ours.learn(decision, reward)
    assert pickle.dumps(ours) == before


def test_decisions_of_another_learner_teach_their_own_keys():
    """The lanes of the same keys need not be the same."""
    theirs, ours = (tacit.Learner(tacit.UCB1(arms=2), seed=1) for _ in range(2))
    made = theirs.choose_many(["a", "b", "c"])
    ours.choose_many(["c", "a", "b"])
    ours.learn_many(made, [1.0, 0.0, 0.5])
    assert [ours.state.rewards[ours.lane(key)].sum() for key in "abc"] == [1.0, 0.0, 0.5]
    with pytest.raises(UnknownName):
        ours.learn_many(theirs.choose_many(["d"]), [1.0])


def test_a_learner_tells_its_keys():
    learner = tacit.Learner(tacit.UCB1(2), seed=1)
    assert "tomato" not in learner
    learner.choose("tomato")
    assert "tomato" in learner
    assert len(learner) == 1
    assert learner.keys == ["tomato"]


@pytest.mark.parametrize(
    ("policy", "given"),
    [
        (tacit.BWC(2, classifier=tacit.classifiers.Rectangle(dim=1, margin=0.1)), {"context": [7.0]}),
        (tacit.policies.LaplaceEC(2, 2), {"relevance": np.ones((9, 2)), "examination": np.ones((9, 2))}),
    ],
)
@pytest.mark.parametrize("many", [False, True])
def test_a_warning_points_at_the_call_that_caused_it(policy, given, many):
    learner = tacit.Learner(policy, seed=1)
    with warnings.catch_warnings(record=True, action="always") as warned:
        if many:
            several = {{"context": "contexts"}.get(n, n): [value] for n, value in given.items()}
            learner.choose_many(["k"], **several)
        else:
            learner.choose("k", **given)
    assert [warning.filename for warning in warned] == [__file__]


@pytest.mark.parametrize(
    "again",
    [
        lambda learner, decisions: learner.learn(decisions[0], 1.0),
        lambda learner, decisions: learner.learn_many(decisions, [1.0]),
    ],
    ids=["one", "many"],
)
def test_a_warning_of_what_is_learned_twice_points_at_the_second_time(again):
    learner = tacit.Learner(tacit.UCB1(2), seed=1)
    decisions = learner.choose_many(["k"])
    learner.learn_many(decisions, [1.0])
    with pytest.warns(tacit.errors.AssumptionWarning, match="counted twice") as warned:
        again(learner, decisions)
    assert [warning.filename for warning in warned] == [__file__]


def test_estimates_of_some_arms_hold_these_against_one_another_alone():
    learner = tacit.Learner(tacit.Thompson(["a", "b", "c"]), seed=1)
    learner.choose("home")
    some = learner.estimates("home", arms=["c", "a"])
    assert [each.arm for each in some] == ["c", "a"]
    # Two of the same posterior are equally likely to be the better one.
    assert [each.chance_best for each in some] == pytest.approx([0.5, 0.5])
    assert len(learner.estimates("home")) == 3
    with pytest.raises(UnknownName, match="arms: 'd' is not on offer"):
        learner.estimates("home", arms=["d"])


def test_decisions_are_equal_by_their_values():
    first, second = (tacit.Learner(tacit.auto(arms=2, context_dim=2), seed=1) for _ in range(2))
    decision, same = (learner.choose("a", [0.5, 1.0]) for learner in (first, second))
    assert decision == same
    assert hash(decision) == hash(same)
    assert decision != second.choose("a", [0.5, 1.0])
    assert decision != tuple(decision)
