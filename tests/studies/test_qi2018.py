"""The items of Qi et al. (2018): their parts, and the reader of their log."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

import tacit
from studies import course_convert, qi2018, qi2018_course
from studies.qi2018 import RealizedArms, largest_discrepancy, proposition_1
from studies.qi2018_course import course_log, read_course_log
from studies.study import Setup
from tacit.errors import InvalidValue
from tacit.policies.base import Impression, Outcome
from tacit.simulation import ENVIRONMENT_STREAM, POLICY_STREAM, run_stream


def rows_of_the_published_form(number=5):
    """Return rows as the data set is described: seven columns, arms from 1."""
    rng = np.random.default_rng(3)
    rows = []
    for n in range(number):
        arms = [1 + 6 * question + position for question in range(2) for position in range(6)]
        shown = int(rng.choice(arms))
        relevance, examination = rng.random((12, 72)), rng.random((12, 18))
        rows.append([f"v{n % 2}", shown, n % 2, arms, relevance, examination, (shown - 1) % 6])
    return rows


def converted(rows, folder):
    """Pickle rows, and run the converter on them as its page says."""
    (folder / "log.pkl").write_bytes(pickle.dumps(rows))
    command = [sys.executable, "-I", course_convert.__file__, "log.pkl", "log.npz"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_the_published_form_is_read(tmp_path):
    rows = rows_of_the_published_form()
    assert converted(rows, tmp_path).returncode == 0
    log = read_course_log(tmp_path / "log.npz")
    assert log.video.tolist() == [0, 1, 0, 1, 0]
    assert log.shown.tolist() == [row[1] - 1 for row in rows]
    assert log.reward.tolist() == [0.0, 1.0, 0.0, 1.0, 0.0]
    np.testing.assert_array_equal(log.relevance[12:24], rows[1][4])
    np.testing.assert_array_equal(log.examination[log.examination_row[48:]], rows[4][5])
    assert log.arms[:12].tolist() == list(range(12))


class Evil:
    def __reduce__(self):
        import os

        return os.system, ("touch owned",)


def test_a_pickle_that_runs_something_is_stopped(tmp_path):
    done = converted([Evil()], tmp_path)
    assert done.returncode != 0
    assert "system; stopped" in done.stderr
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("kind", ["pickle", "objects", "short", "missing"])
def test_other_files_are_refused_unread(tmp_path, kind):
    path = tmp_path / "log.npz"
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Evil()))
    elif kind == "objects":
        np.savez(path, video=np.array([Evil()], object))
    elif kind == "short":
        arrays = course_convert.arrays_of(rows_of_the_published_form())
        np.savez(path, **(arrays | {"arms": arrays["arms"][:-1]}))
    with pytest.raises(InvalidValue, match="never unpickles"):
        read_course_log(path)


def test_rows_of_another_form_are_named():
    rows = rows_of_the_published_form()
    with pytest.raises(ValueError, match="row 1 has 6 columns"):
        course_convert.arrays_of([rows[0], rows[1][:6]])
    rows[2][1] = 99
    with pytest.raises(ValueError, match="row 2"):
        course_convert.arrays_of(rows)


def test_the_synthetic_log_has_the_papers_sizes():
    log = course_log(np.random.default_rng(1), 20_000)
    sizes = np.diff(log.starts)
    assert set((sizes % 6).tolist()) == {0}
    assert sizes.min() >= 18
    assert sizes.max() <= 48
    assert log.examination.shape == (144, 18)
    assert log.examination.sum(axis=1).tolist() == [4.0] * 144
    assert (log.arms[log.starts[:-1] + log.shown] == log.shown).all()
    # Uniform choice: the mean of (slot + ½)/size is ½, here within 5 standard errors.
    assert abs(((log.shown + 0.5) / sizes).mean() - 0.5) < 5.0 * 0.29 / np.sqrt(20_000)
    assert 0.03 < log.reward.mean() < 0.2


def test_a_replay_counts_what_matches():
    log = course_log(np.random.default_rng(1), 3000)
    matches, rate = qi2018_course.replayed(tacit.UniformRandom(int(log.arms.max()) + 1), log, 0, 1)
    expected = (1.0 / np.diff(log.starts)).sum()
    assert abs(matches - expected) < 5.0 * np.sqrt(expected)
    assert 0.0 <= rate <= 1.0


def test_realized_regret_counts_clicks():
    environment = RealizedArms(identified=True)
    rng = np.random.default_rng(1)
    world, params = environment.world(rng, 10), environment.params
    RealizedArms.arrive(params, world, 0, rng)
    arms = world.impression.arms.tolist()
    clicks = [RealizedArms.respond(params, world, 0, arm) for arm in arms]
    assert [RealizedArms.expected(params, world, 0, arm) for arm in arms] == clicks
    assert RealizedArms.optimum(params, world, 0) == max(clicks)
    assert isinstance(world.impression, Impression)


def test_proposition_1_is_vacuous_at_the_papers_horizon():
    assert proposition_1(10_000) > 10.0 * largest_discrepancy(10_000)


def test_discrepancy_judges_the_present_estimate_on_all_arms_shown(monkeypatch):
    """The same six rounds in plain Python: every second one, the estimate that is left judges all of them."""
    monkeypatch.setattr(qi2018, "HORIZON", 6)
    monkeypatch.setattr(qi2018, "DISCREPANCY_POINTS", 3)
    policy, environment = tacit.policies.ECBandit(5, 5), tacit.ExaminationArms(identified=True)
    found = qi2018.discrepancies(policy, environment, Setup(1, seed=4))
    env_rng, rng = run_stream(4, 0, ENVIRONMENT_STREAM), run_stream(4, 0, POLICY_STREAM)
    world, state, params = environment.world(env_rng, 6), policy.init(1), environment.params
    pool = Impression(np.arange(100), np.zeros(0), world.relevance, world.examination)
    shown, running, expected = [], 0.0, []
    for round in range(6):
        environment.arrive(params, world, round, env_rng)
        arm = policy.choose(policy.params, state, 0, world.impression, rng)
        shown.append((arm, environment.expected(params, world, 0, arm)))
        errors = [(policy.believed(policy.params, state, 0, pool, a) - p) ** 2 for a, p in shown]
        running += errors[-1]
        if round % 2:
            expected.append((sum(errors), running))
        reward = environment.respond(params, world, 0, arm)
        policy.learn(policy.params, state, 0, Outcome(world.impression, arm, reward, 1.0))
    np.testing.assert_allclose(found[:, 0].T, expected, rtol=1e-12)
    assert found[0, 0, 0] != found[1, 0, 0]


def test_hlinucb_starts_elsewhere_in_each_run_and_then_is_hlinucb():
    policy, starts = qi2018.StartedHLinUCB(3, 1, 1), []
    plain = tacit.policies.baselines.HLinUCB(3, 1, 1)
    impression = Impression(np.arange(3), np.zeros(0), np.eye(3)[:, :1], np.eye(3)[:, 1:2])
    for seed in (1, 2):
        state, same = policy.init(1), plain.init(1)
        policy.choose(policy.params, state, 0, impression, np.random.default_rng(seed))
        starts.append(state.start.copy())
        same.start[:] = same.hidden[:] = starts[-1]
        for arm, reward in ((0, 1.0), (2, 0.0), (1, 1.0)):
            for each, kind in ((state, policy), (same, plain)):
                kind.learn(kind.params, each, 0, Outcome(impression, arm, reward, 1.0))
            rng = np.random.default_rng(3)
            chosen = [k.choose(k.params, s, 0, impression, rng) for s, k in ((state, policy), (same, plain))]
            assert chosen[0] == chosen[1]
    assert np.isfinite(starts).all()
    assert (starts[0] != starts[1]).all()


def test_figure_3_projects_nine_arms(written):
    cells, report = written("qi2018-figure3", qi2018_course.figure_3(Setup(1, seed=1)))
    assert [cell["arm"] for cell in cells] == list("abcdefghi")
    assert len({(cell["question"], cell["position"]) for cell in cells}) == 9
    assert all(0.0 <= cell["click rate"] < 0.3 and cell["error"] > 0.0 for cell in cells)
    assert "not the paper's data" in report


def test_theorem_1_and_equation_9_are_the_papers_formulas():
    """λ₀ = 3/(1/m + 1/(1 − M))², γ = M_ρ/2, d = 10: by hand at t = 100, α = 1/t², δ = 1/t."""
    least, most = 1 / (1 + np.e) ** 2, 1 / (1 + np.exp(-1)) ** 2
    rate, gamma = 3 / (1 / least + 1 / (1 - most)) ** 2, np.sqrt(most) / 2
    eta = 4 * most + 1 / least
    covering = 10 * np.log(gamma / 1e-4) + np.log(100)
    beta = 2 / rate * covering + 2 * 1e-4 * eta * 100
    assert qi2018.proposition_1(100) == pytest.approx(beta)
    assert qi2018.equation_9(100) == pytest.approx(2 / rate * 10 * np.log(gamma * 1e6) + eta / 100)
    assert qi2018.theorem_1(100) == pytest.approx(1 + 101 + 4 * np.sqrt(100 * beta * 100))
