"""Typical mistakes of beginners: the error names the field, the value and the remedy, in a line."""

import pytest
from click.testing import CliRunner

import tacit
from tacit.cli import cli
from tacit.errors import TacitError

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
        lambda: tacit.Learner(tacit.LogisticTS(3)).choose("a", relevance=[1, 2, 3]),
        "relevance: [1, 2, 3] is not allowed; give a row of 3 finite numbers for each arm on offer",
    ),
    "features forgotten": (
        lambda: tacit.Learner(tacit.LogisticTS(3)).choose("a"),
        "relevance: None is not allowed; give a row of 3 finite numbers for each arm on offer",
    ),
    "features of one impression for two": (
        lambda: tacit.Learner(tacit.LogisticTS(1)).choose_many(["a", "b"], relevance=[[[1.0]]]),
        "relevance: [[[1.0]]] is not allowed; give, for each of 2 impressions, a row of 1 finite "
        "numbers for each arm on offer",
    ),
    "a click's place in place of a list's clicks": (
        lambda: taught(tacit.ListMix(4, positions=3), 1),
        "reward: 1 is not allowed; give 3 numbers, one for each position: 1 for a click, 0 for "
        "none",
    ),
    "a list's clicks, too few": (
        lambda: taught(tacit.ListMix(4, positions=3), [1.0]),
        "reward: [1.0] is not allowed; give 3 numbers, one for each position: 1 for a click, 0 "
        "for none",
    ),
    "a key misspelt": (
        lambda: taught(tacit.UCB1(ARMS), 1.0).estimates("tomatoe"),
        "key: nothing was ever chosen for 'tomatoe' by this learner (did you mean 'tomato'?); "
        "choose for it first, or give a key that is in keys",
    ),
    "another learner's decision": (
        lambda: tacit.Learner(tacit.UCB1(2)).learn(tacit.Learner(tacit.UCB1(2)).choose("a"), 1.0),
        "key: nothing was ever chosen for 'a' by this learner; choose for it first, or give a key "
        "that is in keys",
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
    assert "--column: 'user' is not one of left, right" in told
    assert "whose a search is goes with --unit" in told


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
