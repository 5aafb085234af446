"""The tests that a policy is put to, one after the other."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tacit.checking import drivers, kernels
from tacit.checking.trial import Failed, Finding, LeftOut, PolicyCheck, Trial
from tacit.core import checks
from tacit.core import part as ranges
from tacit.core.spread import progress
from tacit.errors import InvalidValue, TacitError
from tacit.policies.base import Policy

Test = Callable[[Trial], str]

FIRST: dict[str, Test] = {"in Python": kernels.runs_in_python, "compiles": kernels.compiles}
"""What must hold before compiled code may run: it looks at no bounds."""

TESTS: dict[str, Test] = {
    "compiled": kernels.compiled_as_in_python,
    "offers": kernels.takes_subsets,
    "new arms": kernels.arms_may_come,
    "seed": kernels.draws_from_its_generator,
    "propensity": kernels.propensities_are_frequencies,
    "ties": kernels.ties_are_broken_at_random,
    "lanes": kernels.lanes_learn_apart,
    "unlearn": kernels.takes_back,
    "snapshot": kernels.goes_on_from_a_snapshot,
    "simulation": drivers.simulates_as_it_learns,
    "replay": drivers.replays_as_it_learns,
    "service": drivers.serves_as_it_learns,
    "speed": drivers.how_fast,
}


def check(
    policy: Policy,
    *,
    only: Sequence[str] | None = None,
    seed: int = 1,
    rounds: int = 200,
    draws: int = 20_000,
    error: float = 1e-6,
) -> PolicyCheck:
    """Test a policy as the package's own are tested.

    Its kernels run in plain Python, where an index out of bounds is noticed, and compiled; what
    they show must be on offer, drawn from ``rng`` alone, with the very propensity that they tell;
    keys must learn apart; a snapshot, a simulation, a replay and the service's engine must come to
    the state of a learner, bit for bit. Impressions and rewards are made up.

    Parameters
    ----------
    policy : Policy
    only : sequence of str, optional
        The names of the tests; by default all. Those of ``in Python`` and ``compiles`` come first
        always.
    seed : int, default 1
        Of the impressions, of rewards and of all draws.
    rounds : int, default 200
        How many are played before something is looked at.
    draws : int, default 20,000
        How many choices are compared with their propensity. A difference of d in a probability of
        p is found where d² > 40·p(1 − p)/draws, about.
    error : float, default 1e-6
        With what probability, at most, a right policy fails a test of frequencies (Chernoff's
        bound).

    Returns
    -------
    PolicyCheck
        ``passed``, ``failures``, ``summary()``.

    Raises
    ------
    InvalidValue
        If something else than a policy is given, or a number is out of its range.

    Examples
    --------
    >>> import tacit
    >>> found = tacit.check(tacit.UCB1(arms=3), only=["lanes"])
    >>> found.passed, [verdict.name for verdict in found.verdicts]
    (True, ['in Python', 'compiles', 'lanes'])
    """
    if not isinstance(policy, Policy):
        raise InvalidValue("policy", policy, "give a policy, such as UCB1(arms=5)")
    trial = Trial(
        policy,
        checks.integer("seed", seed, 0),
        checks.integer("rounds", rounds, 20),
        checks.integer("draws", draws, 100),
        checks.number("error", error, 0.0, 1.0, open_low=True),
    )
    for name in checks.names("only", () if only is None else only):
        ranges.one_of(*FIRST, *TESTS)("only", name)
    tests = {name: test for name, test in TESTS.items() if only is None or name in only}
    verdicts: list[Finding] = []
    with progress(len(FIRST) + len(tests), f"checking {policy.label}") as advance:
        for name, test in (FIRST | tests).items():
            sound = all(v.passed is not False for v in verdicts if v.name in FIRST)
            left_out = Finding(name, None, "not tried, as it failed before")
            verdicts.append(_verdict(name, test, trial) if sound else left_out)
            advance(1)
    return PolicyCheck(policy.label, tuple(verdicts))


def _verdict(name: str, test: Test, trial: Trial) -> Finding:
    """Return what a test says; whatever it raises is a failure of the policy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Finding(name, True, test(trial))
        except LeftOut as why:
            return Finding(name, None, str(why))
        except (Failed, TacitError) as why:
            return Finding(name, False, str(why))
        except Exception as why:
            return Finding(name, False, f"{_place(why)}{type(why).__name__}: {why}")


def _place(error: Exception) -> str:
    """Return the last line of another's that an error passed."""
    ours = str(Path(__file__).parents[1])
    frames: list[Any] = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(ours)]
    return f"{theirs[-1].filename}:{theirs[-1].lineno}: " if theirs else ""
