"""Simulate policies in an environment over many runs, and report their regret."""

# 1. ``SimulationResult``: curves, summaries, paired comparisons.
# 2. ``simulate``: validates policies for the environment, distributes runs over threads, collects results.

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats, Ints
from tacit.core.parallel import run_tasks
from tacit.core.text import Column, Tabulated, format_table
from tacit.environments.base import Environment, registry
from tacit.errors import InvalidValue, with_suggestions
from tacit.policies.base import Policy
from tacit.simulation.clicks_only import ClicksOnlyRun, ClickTiming, Delay, read_click_timing
from tacit.simulation.rounds import Run

if TYPE_CHECKING:
    import pyarrow


# ---- Results: regret curves, summaries, comparisons


@dataclass(frozen=True)
class Comparison:
    """A paired difference of final regrets: both policies had the same impressions and random numbers.

    Attributes
    ----------
    first, second : str
        Names of the policies.
    difference : float
        Mean over the runs of first − second; negative if the first is better.
    standard_error : float
        NaN with a single run.
    runs : int
    """

    first: str
    second: str
    difference: float
    standard_error: float
    runs: int

    def __str__(self) -> str:
        """Return the difference of regrets with its standard error as a sentence; with one run, a hint
        instead.
        """
        what = f"regret of {self.first} − regret of {self.second}: {self.difference:+,.1f}"
        if self.runs == 1:
            return f"{what}; one run tells nothing of chance: give runs=20"
        return f"{what} ± {self.standard_error:,.1f} (s.e., {self.runs} runs)"


COLUMNS = (
    Column("policy", "{policy}"),
    Column("regret", "{regret:,.1f}"),
    Column("± s.e.", "{regret_se:,.1f}", "nan"),
    Column("reward/1000", "{reward_per_1000:,.1f}"),
    Column("runs", "{runs}"),
)


@dataclass(frozen=True, repr=False)
class SimulationResult(Tabulated):
    """The result of a simulation.

    Attributes
    ----------
    names : tuple of str
        Names of the policies.
    rounds : array of int64, shape (checkpoints,)
    regret, reward : array of float64, shape (policies, runs, checkpoints)
        Totals up to each checkpoint: regret in expected reward, and reward received.
    environment : Environment
    seed : int
    """

    names: tuple[str, ...]
    rounds: Ints
    regret: Floats
    reward: Floats
    environment: Environment
    seed: int

    @property
    def table(self) -> pyarrow.Table:
        """One row per policy, run and checkpoint, with the regret and the reward up to the checkpoint."""
        import pyarrow as pa

        policies, runs, points = self.regret.shape
        return pa.table(
            {
                "policy": np.repeat(np.array(self.names, object), runs * points),
                "run": np.tile(np.repeat(np.arange(runs), points), policies),
                "round": np.tile(self.rounds, policies * runs),
                "regret": self.regret.ravel(),
                "reward": self.reward.ravel(),
            }
        )

    def records(self) -> list[dict[str, Any]]:
        """Return a flat dict per policy: mean final regret with standard error, reward per 1000 rounds."""
        runs, horizon = self.regret.shape[1], int(self.rounds[-1])
        return [
            {
                "policy": name,
                "regret": float(regret.mean()),
                "regret_se": standard_error(regret),
                "reward_per_1000": float(1000 * reward.mean() / horizon),
                "runs": runs,
                "rounds": horizon,
            }
            for name, regret, reward in zip(
                self.names, self.regret[:, :, -1], self.reward[:, :, -1], strict=True
            )
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat dict per policy, as :meth:`records` does."""
        return self.records()

    def summary(self) -> str:
        """Return the final regret of each policy as an aligned table.

        Examples
        --------
        >>> import tacit
        >>> policies = [tacit.UniformRandom(arms=2), tacit.UCB1(arms=2)]
        >>> result = tacit.simulate(policies, tacit.BernoulliArms([0.2, 0.8]), 500, runs=3, seed=1)
        >>> print(result.summary().splitlines()[0])
        policy         regret  ± s.e.  reward/1000  runs
        """
        return format_table(self.rows(), COLUMNS)

    def compare(self, first: str | int | Policy, second: str | int | Policy) -> Comparison:
        """Return the mean difference of two policies' final regrets with its standard error.

        Parameters
        ----------
        first, second : str, int or Policy
            A name in ``names``, an index, or the policy itself.

        Raises
        ------
        InvalidValue
            If an argument matches none of the simulated policies, or more than one.
        """
        a, b = self._find_policy(first), self._find_policy(second)
        difference = self.regret[a, :, -1] - self.regret[b, :, -1]
        return Comparison(
            self.names[a],
            self.names[b],
            float(difference.mean()),
            standard_error(difference),
            len(difference),
        )

    def _find_policy(self, which: str | int | Policy) -> int:
        """Return the index of a policy by index, name or the policy itself.

        Raises InvalidValue if none or several match.
        """
        if isinstance(which, int) and -len(self.names) <= which < len(self.names):
            return which
        text = which.label if isinstance(which, Policy) else str(which)
        matches = [i for i, name in enumerate(self.names) if text in (name, name.split("(")[0])]
        if len(matches) != 1:
            raise InvalidValue("policy", which, f"name one of {', '.join(self.names)}")
        return matches[0]

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Any:
        """Draw the mean regret of each policy with a band of two standard errors; return the axes.

        Parameters
        ----------
        path : path, optional
            File to write; the suffix determines the format.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; by default a new figure, which a notebook shows unless it is written to
            a file.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        from tacit.plots import open_axes, regret_curves

        title = f"{type(self.environment).__name__}, {self.regret.shape[1]} runs, bands of ±2 standard errors"
        curves = dict(zip(self.names, self.regret, strict=True))
        with open_axes(path, ax) as axes:
            regret_curves(axes, curves, self.rounds, title)
        return axes


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean of ``values``; NaN for fewer than two."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


# ---- Simulation of policies over many runs


ROUNDS_PER_CALL = 2**18
ROUNDS_PER_UNIT = 2**20


@with_suggestions
def simulate(
    policies: Policy | Sequence[Policy],
    environment: Environment,
    horizon: int,
    *,
    runs: int = 1,
    seed: int = 0,
    workers: int | None = None,
    checkpoints: int | Sequence[int] = 200,
    feedback: str = "at once",
    window: int | None = None,
    delay: Delay | None = None,
) -> SimulationResult:
    """Play policies in an environment for many runs, and return their regrets and rewards at checkpoints.

    In a run every policy sees the same impressions and the same random numbers behind clicks, so differences
    are paired. Runs are distributed over threads, or within :func:`tacit.cluster.on_ray` over a cluster; the
    result does not depend on the distribution. Warns if a scheduled change of the environment is too late for
    the horizon.

    Beat-the-Mean and Interleaved Filter, on a :class:`tacit.PreferenceMatrix` and with ``checkpoints=1``, are
    simulated without playing every duel: with other draws but the same distribution, at billions of duels a
    second.

    Parameters
    ----------
    policies : Policy or sequence of Policy
    environment : Environment
    horizon : int
        Rounds per run; at least 1.
    runs : int, default 1
        Independent repetitions; at least 1.
    seed : int, default 0
        Seed of all random draws; at least 0. Run i does not depend on the number of runs.
    workers : int, optional
        Threads; by default one per core.
    checkpoints : int or sequence of int, default 200
        Number of evenly spaced rounds to record, or the rounds.
    feedback : "at once" or "clicks only", default "at once"
        "at once": each round is learned before the next begins (or with the environment's delay). "clicks
        only": only clicks are sent, with delays, as to a service; the absence of a click is known when the
        round's window closes. Rounds are then learned once, in order, when nearly all clicks have come.
    window : int, optional
        For "clicks only": rounds after which the absence of a click is known; later clicks are lost.
    delay : number, function, or sequence of these, optional
        For "clicks only": the mean of exponential delays, in rounds; or a function from shares in (0, 1) to
        quantiles of delays, such as ``lambda share: 300 * share``; or one of these for each arm. By default
        a tenth of the window.

    Returns
    -------
    SimulationResult

    Raises
    ------
    InvalidValue
        If a parameter is out of its range or a policy does not fit the environment.

    Examples
    --------
    >>> import tacit
    >>> policies = [tacit.UCB1(arms=3), tacit.Thompson(arms=3)]
    >>> environment = tacit.BernoulliArms([0.1, 0.5, 0.9])
    >>> result = tacit.simulate(policies, environment, horizon=2000, runs=20, seed=7)
    >>> result.compare("Thompson", "UCB1").difference < 0
    True

    Clicks come after 30 rounds on average, and their absence is known after 300:

    >>> late = tacit.simulate(policies, environment, 2000, feedback="clicks only", window=300, delay=30)
    >>> bool(late.regret[1, 0, -1] < 200)
    True
    """
    policy_list = _check_policies(policies, environment)
    horizon = checks.integer("horizon", horizon, 1)
    runs = checks.integer("runs", runs, 1)
    seed = checks.integer("seed", seed, 0, 2**128)
    rounds = _checkpoint_rounds(checkpoints, horizon)
    clicks = read_click_timing(feedback, window, delay, environment)
    environment.warn_of_late_changes(horizon)
    for policy in policy_list:
        # Compile once here, before several workers would compile at the same time.
        begin_run(policy, environment, horizon, seed, 0, rounds, clicks).advance(0)
    size = max(1, ROUNDS_PER_UNIT // horizon)
    units = [
        (policy, environment, horizon, seed, first, min(first + size, runs), rounds, clicks)
        for policy in policy_list
        for first in range(0, runs, size)
    ]
    results = run_tasks(
        play_runs,
        units,
        [float((stop - first) * horizon) for _, _, _, _, first, stop, _, _ in units],
        label=f"{len(policy_list)} policies × {runs} runs",
        workers=workers,
    )
    values = np.concatenate(results).reshape(len(policy_list), runs, len(rounds), 2)
    return SimulationResult(
        names=tuple(policy.label for policy in policy_list),
        rounds=rounds,
        regret=np.ascontiguousarray(values[..., 0]),
        reward=np.ascontiguousarray(values[..., 1]),
        environment=environment,
        seed=seed,
    )


def play_runs(
    policy: Policy,
    environment: Environment,
    horizon: int,
    seed: int,
    first: int,
    stop: int,
    rounds: Ints,
    clicks: ClickTiming | None,
    report: Callable[[float], None],
) -> Floats:
    """Play runs ``first`` to ``stop`` − 1; return regret and reward at each checkpoint, shape (runs,
    checkpoints, 2).

    ``report`` is called with the number of rounds played, at most 2**18, after each step.
    """
    values = np.zeros((stop - first, len(rounds), 2))
    for number in range(first, stop):
        run = begin_run(policy, environment, horizon, seed, number, rounds, clicks)
        while run.round < horizon:
            report(run.advance(ROUNDS_PER_CALL))
        values[number - first] = run.curve.values
    return values


def begin_run(
    policy: Policy,
    environment: Environment,
    horizon: int,
    seed: int,
    number: int,
    rounds: Ints,
    clicks: ClickTiming | None,
) -> Run:
    """Return a new run before its first round; with ``clicks``, its only feedback is delayed clicks."""
    if clicks is None:
        return Run(policy, environment, horizon, seed, number, rounds)
    return ClicksOnlyRun(policy, environment, horizon, seed, number, rounds, clicks)


def _check_policies(policies: Policy | Sequence[Policy], environment: Environment) -> list[Policy]:
    """Return the policies as a list; raise InvalidValue unless each fits the environment.

    It must have the environment's kind of action and reward range, and its numbers of positions, features and
    arms, and read no longer context.
    """
    if not isinstance(environment, Environment):
        raise InvalidValue("environment", environment, "give one, such as BernoulliArms([0.1, 0.2])")
    iterable: Any = policies if isinstance(policies, Iterable) else [policies]
    policy_list = list(iterable)
    if not policy_list or not all(isinstance(policy, Policy) for policy in policy_list):
        inner = ", such as its .policy" if any(hasattr(each, "policy") for each in policy_list) else ""
        raise InvalidValue("policies", policies, f"give a policy or a list of them{inner}")
    for policy in policy_list:
        if policy.shows != environment.takes:
            environments = {each.__name__ for each in registry.values() if each.takes == policy.shows}
            raise InvalidValue(
                "policies",
                policy,
                f"{type(policy).__name__} shows: {policy.shows}; "
                f"{type(environment).__name__} takes: {environment.takes}; give one that fits, "
                f"or an environment that takes it: {', '.join(sorted(environments))}",
            )
        if policy.showing.listed and policy.action_width != environment.action_width:
            raise InvalidValue(
                f"{type(policy).__name__}.positions",
                policy.action_width,
                f"the environment has {environment.action_width} positions; give as many",
            )
        if policy.feature_dims != (0, 0) and policy.feature_dims != environment.feature_dims:
            raise InvalidValue(
                f"{type(policy).__name__} features",
                policy.feature_dims,
                f"the environment gives {environment.feature_dims} relevance and examination "
                "features; give as many",
            )
        if not policy.reward_range.holds(environment.reward_range):
            raise InvalidValue(
                f"{type(policy).__name__}.reward_range",
                policy.reward_range.text,
                f"the environment's rewards are in {environment.reward_range.text}; give that",
            )
        if policy.arms is not None and policy.arm_count != environment.arm_count:
            raise InvalidValue(
                f"{type(policy).__name__}.arms",
                policy.arms,
                f"the environment has {environment.arm_count} arms; give as many",
            )
        if policy.context_dim > environment.context_dim:
            raise InvalidValue(
                f"{type(policy).__name__} contexts",
                policy.context_dim,
                f"the environment gives contexts of length {environment.context_dim} only; "
                "take ShiftingArms(dim=…), or a policy that reads so many",
            )
    return policy_list


def _checkpoint_rounds(checkpoints: int | Sequence[int], horizon: int) -> Ints:
    """Return the rounds to record: ``checkpoints`` evenly spaced ones, or the listed ones.

    Raises InvalidValue unless listed rounds increase and are within the horizon.
    """
    if isinstance(checkpoints, int):
        count = min(checks.integer("checkpoints", checkpoints, 1), horizon)
        return np.unique(np.linspace(horizon / count, horizon, count).round().astype(np.int64))
    rounds = [checks.integer("checkpoints", round, 1, horizon) for round in checkpoints]
    if not rounds or sorted(set(rounds)) != rounds:
        raise InvalidValue("checkpoints", checkpoints, "give rounds in increasing order")
    return np.array(rounds, np.int64)
