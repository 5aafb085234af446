"""BWC and the oracle restart: phases and labels worked by hand, and what they are good for."""

import warnings

import numpy as np
import pyarrow as pa
import pytest

import tacit
from tacit.cli import print_warning
from tacit.errors import AssumptionWarning, UnknownName
from tacit.evaluate.windows import ReplayConfig, WindowReader
from tacit.policies import policy_from_spec
from tacit.policies.base import Outcome

pytestmark = pytest.mark.interpreted

BOX = tacit.classifiers.Rectangle(dim=1, margin=0.1)
QUIET, LOUD = [0.2], [0.9]


class Session:
    """A learner with one key, fed contexts and fixed click probabilities of 0 or 1."""

    def __init__(self, policy):
        self.learner = tacit.Learner(policy, seed=1)
        self.clicked = 0

    def play(self, rounds, context=QUIET):
        """Play rounds in which only one arm is ever clicked; return the arms shown."""
        arms = []
        for _ in range(rounds):
            decision = self.learner.choose("query", context=context)
            arms.append(decision.arm)
            self.learner.learn(decision, float(decision.arm == self.clicked))
        return arms

    @property
    def phase(self):
        phases = self.learner.state.phases
        return int(phases.number[0]), int(phases.length[0])

    @property
    def labels(self):
        return [(r.round, r.context.tolist(), r.label) for r in self.learner.restarts("query")]


def bwc(**options):
    return tacit.BWC(2, classifier=BOX, **({"test_rounds": 10, "min_shift": 0.5} | options))


def test_phases_alternate_as_in_algorithm_1():
    session = Session(bwc())
    session.play(1)
    assert session.phase == (1, 1)  # the first phase tests
    session.play(9)
    assert session.phase == (2, 0)  # after L rounds it adapts
    # Nothing is labelled false yet, so the next context is taken for an event, and the round in
    # which that happens is the first of the next testing phase.
    session.play(1)
    assert session.phase == (3, 1)
    assert session.labels == [(1, QUIET, None), (11, QUIET, None)]
    session.play(9)
    # The best arm has not changed since phase 1, the most recent full one: a false label.
    assert session.labels == [(1, QUIET, None), (11, QUIET, False)]
    # Now quiet contexts are known, and the adapting phase lasts.
    session.play(50)
    assert session.phase == (4, 50)
    session.play(1, context=[0.31])
    assert session.phase == (5, 1)  # 0.31 is farther than the margin from 0.2


def test_a_change_is_not_labelled_false():
    session = Session(bwc())
    session.play(60)
    assert session.phase == (4, 40)
    session.clicked = 1
    session.play(20, context=LOUD)
    assert session.labels[2][2] is True  # the loud context announced a change
    # After it the loud context begins phase after phase: nothing changes any more, so once
    # such a phase has ended it is labelled false, and loud is as normal as quiet.
    session.play(25, context=LOUD)
    assert session.labels[-1][2] is False
    before = session.phase[0]
    session.play(30, context=LOUD)
    session.play(30, context=QUIET)
    assert session.phase[0] == before


def test_the_most_recent_full_phase_is_the_reference():
    """An adapting phase of at least L rounds replaces the testing phase before it."""
    session = Session(bwc(merge_phases=False))
    session.play(20)  # phases 1 and 3 test, arm 0 is best in both
    session.clicked = 1
    session.play(30)  # an unannounced change: phase 4 adapts, cold, and finds arm 1 best
    assert session.phase == (4, 30)
    session.play(10, context=LOUD)
    # Against phase 4 nothing has changed; against phase 3 it would have.
    assert session.labels[-1] == (51, LOUD, False)


def test_faithful_phases_start_cold_and_merged_ones_do_not():
    for merge, plays in ((True, 10.0), (False, 0.0)):
        session = Session(bwc(merge_phases=merge))
        session.play(10)
        assert session.learner.state.policy.plays[0].sum() == plays
        # A restart makes decisions that were under way void.
        assert session.learner.epoch("query") == (0 if merge else 1)


def test_late_plays_are_those_of_the_last_half():
    """L = 5: the last ⌊5/2⌋ = 2 rounds decide which arm the guess is measured against."""
    policy = bwc(test_rounds=5)
    cls, params, state = type(policy), policy.params, policy.init(1)
    impression = tacit.Impression(np.arange(2), np.array(QUIET))
    for arm in (1, 1, 1, 0, 0):
        cls.observe(params, state, 0, impression)
        late = state.phases.late[0].copy()
        cls.learn(params, state, 0, Outcome(impression, arm, 1.0, np.nan))
    assert late.tolist() == [1, 0]  # before the last round
    # All means are 1, so both arms are good.
    assert state.phases.good[0].tolist() == [True, True]


def test_keys_share_the_classifier_or_not():
    for per_key, phase in ((False, 2), (True, 3)):
        learner = tacit.Learner(bwc(per_key=per_key), seed=1)

        def play(key, rounds, learner=learner):
            for _ in range(rounds):
                decision = learner.choose(key, context=QUIET)
                learner.learn(decision, float(decision.arm == 0))

        play("a", 30)  # teaches that quiet contexts are normal
        play("b", 11)  # one testing phase, and one round more
        assert learner.state.phases.number[1] == phase


def test_a_restart_takes_place_with_the_impression_and_voids_what_was_under_way():
    session = Session(bwc())
    session.play(30)
    pending = session.learner.choose("query", context=QUIET)
    session.learner.choose("query", context=LOUD)
    assert session.learner.epoch("query") == pending.epoch + 1
    assert not session.learner.learn(pending, 1.0)


def test_the_diary_forgets_the_oldest():
    learner = tacit.Learner(bwc(test_rounds=2, per_key=True), seed=1)
    for i in range(700):
        for _ in range(3):  # a key restarts in its third round
            learner.learn(learner.choose(f"key {i}", context=QUIET), 0.0)
    assert learner.restarts("key 0") == []
    assert [r.round for r in learner.restarts("key 699")] == [1, 3]


# Labels on negatives ------------------------------------------------------------------------


def test_witnesses_share_a_false_label():
    """L = 8, two witnesses: rounds 2 and 3 of a testing phase, from its first quarter."""
    session = Session(bwc(test_rounds=8, witnesses=2))
    session.play(8)
    for context in ([0.2], [0.25], [0.45], *[[0.7]] * 5):  # phase 3: trigger, witnesses, others
        session.play(1, context=context)
    assert session.labels[-1] == (9, [0.2], False)
    box = session.learner.state.classifier
    assert (box.low[0, 0], box.high[0, 0]) == (0.2, 0.45)


def test_witnesses_that_never_came_are_the_trigger():
    learner = tacit.Learner(bwc(test_rounds=8, witnesses=2), seed=1)
    for context in [QUIET] * 8 + [[0.3]]:
        learner.learn(learner.choose("query", context=context), 1.0)
    assert learner.state.phases.witnesses[0].tolist() == [[0.3], [0.3]]


def test_an_audit_ends_an_adapting_phase_and_repairs_a_missed_event():
    session = Session(bwc(audit_rounds=30))
    session.play(50)  # phases 1 and 3 test; phase 4 adapts
    assert session.phase == (4, 30)
    session.clicked = 1  # no context tells
    session.play(1)
    assert session.phase == (5, 1)  # a quiet context, taken for none, is tested all the same
    session.play(9)
    assert session.labels[-1] == (51, QUIET, True)
    assert session.play(20)[-10:].count(1) > 5


# Diagnostics --------------------------------------------------------------------------------


def test_diagnostics_count_what_the_record_tells():
    session = Session(bwc())
    session.play(60)
    session.clicked = 1
    session.play(11, context=LOUD)  # an event; the round after its test begins another one
    found = session.learner.diagnostics()
    assert (found.restarts, found.false_labels, found.true_labels, found.unlabelled) == (4, 1, 1, 2)
    assert (found.close, found.contradictions, found.outside, found.warnings) == (0, 0, 0, ())
    session.play(9, context=LOUD)  # nothing has changed: loud is labelled false
    found = session.learner.diagnostics()
    assert (found.false_labels, found.contradictions) == (2, 1)
    assert "contradict" in found.warnings[0]


def test_events_closer_than_two_tests_are_told():
    session = Session(bwc())
    session.play(60)
    for clicked in (1, 0):
        session.clicked = clicked
        session.play(10, context=LOUD)
        session.play(2)
    found = session.learner.diagnostics()
    assert (found.true_labels, found.close) == (2, 1)
    assert "test_rounds" in found.warnings[0]


@pytest.mark.parametrize(
    "policy", [bwc(), tacit.policies.ProbationBandit(2, classifier=BOX)], ids=lambda policy: policy.label
)
def test_contexts_outside_of_the_universe_are_told_once_and_counted(policy):
    learner = tacit.Learner(policy, seed=1)
    with pytest.warns(AssumptionWarning, match="context: \\[1.5\\]") as caught:
        learner.choose_many(["query"] * 3, contexts=[[1.0], [1.5], [-0.5]])
    assert len(caught) == 1
    if isinstance(policy, tacit.BWC):
        assert learner.diagnostics().outside == 2
    with warnings.catch_warnings(action="error"):
        learner.choose("query", context=[2.0])


def test_replay_tells_of_contexts_too():
    log = pa.table(
        {
            "timestamp": ["2017-07-04T12:00:00Z"] * 2,
            "decision_id": ["1", "2"],
            "placement": ["home"] * 2,
            "key": ["query"] * 2,
            "arms": [["0", "1"]] * 2,
            "arm": ["0", "1"],
            "propensity": [0.5] * 2,
            "reward": [0.0, 1.0],
            "context": [[0.5], [1.5]],
        }
    )
    with pytest.warns(AssumptionWarning, match="context: \\[1.5\\]"):
        list(WindowReader(ReplayConfig(policy=tacit.ExplorationFloor(bwc()), window=10)).read(log))


def test_the_command_line_prints_warnings_for_people(capsys):
    print_warning(AssumptionWarning("contexts lie"), AssumptionWarning, "file.py", 1)
    assert capsys.readouterr().err == "warning: contexts lie\n"
    print_warning("old", DeprecationWarning, "file.py", 1)
    assert "file.py:1: DeprecationWarning: old" in capsys.readouterr().err


def test_policies_without_a_classifier_take_any_context():
    policy = tacit.policies.OracleRestart(tacit.UCB1(2))
    with warnings.catch_warnings(action="error"):
        tacit.Learner(policy, seed=1).choose("query", context=[2.0])
    with pytest.raises(UnknownName, match="keeps no record"):
        tacit.Learner(policy, seed=1).diagnostics()


# What it is good for -------------------------------------------------------------------------


def test_without_events_the_oracle_is_the_policy_itself():
    environment = tacit.ShiftingArms(arms=3, keys=4, shifting=0.0, announced=True)
    policies = [tacit.policies.OracleRestart(tacit.UCB1(3)), tacit.UCB1(3)]
    result = tacit.simulate(policies, environment, 4000, runs=3, seed=1)
    np.testing.assert_array_equal(result.regret[0], result.regret[1])


@pytest.mark.compiled
def test_bwc_is_near_the_oracle_where_contexts_tell():
    """The paper's setting, smaller: BWC within 30 % of ORA, UCB1 beyond that (paired runs)."""
    environment = tacit.ShiftingArms(arms=5, keys=20, shifting=0.25, events=(3, 3), dim=5, announced=True)
    policies = [
        tacit.policies.OracleRestart(tacit.UCB1(5), signal=5),
        tacit.BWC(5, classifier=tacit.classifiers.Rectangle(5, 0.1, anchored=True)),
        tacit.UCB1(5),
    ]
    result = tacit.simulate(policies, environment, 600_000, runs=6, seed=2)
    oracle, classified, plain = result.regret[:, :, -1].mean(axis=1)
    assert oracle < classified < 1.3 * oracle
    assert plain > 1.5 * oracle


# Boundaries ----------------------------------------------------------------------------------


def test_policies_come_from_text():
    policy = tacit.BWC(policy=tacit.Thompson(3), classifier=tacit.classifiers.Rectangle(2, 0.1), per_key=True)
    text = "bwc(classifier=rectangle(dim=2, margin=0.1), policy=thompson, per_key=True)"
    assert policy_from_spec(text, 3) == policy
    assert policy.with_arms(5).inner == tacit.Thompson(5)
