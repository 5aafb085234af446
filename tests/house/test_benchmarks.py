"""The C loops of the benchmarks play the same algorithms as tacit: an independent check."""

import importlib

import pytest
from scipy import stats

import tacit

ROUNDS, RUNS = 1000, 1000


@pytest.fixture(scope="module")
def c_loops():
    return importlib.import_module("c_loops")


@pytest.fixture(scope="module")
def program(c_loops, tmp_path_factory):
    return c_loops.build(tmp_path_factory.mktemp("c"))


@pytest.mark.parametrize(
    "policy", [tacit.UCB1(5), tacit.Thompson(5), tacit.policies.EXP3(5)], ids=lambda policy: policy.label
)
def test_regret_agrees_with_an_independent_implementation(policy, c_loops, program):
    """Two-sample test of the mean regrets; error probability 1e-4 per policy."""
    played = c_loops.play(program, policy.label, ROUNDS, RUNS, seed=11)
    environment = tacit.BernoulliArms(c_loops.MEANS)
    regrets = tacit.simulate(policy, environment, ROUNDS, runs=RUNS, seed=11).regret[0, :, -1]
    test = stats.ttest_ind_from_stats(
        regrets.mean(), regrets.std(ddof=1), RUNS, played.regret, played.regret_sd, RUNS, equal_var=False
    )
    assert test.pvalue > 1e-4
