"""What a simulation found: regret curves, summaries, comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.arrays import Floats, Ints
from tacit.core.text import Column, Tabulated, laid_out
from tacit.environments.base import Environment
from tacit.errors import InvalidValue
from tacit.policies.base import Policy

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class Comparison:
    """A paired difference of final regrets: the same impressions, the same chances.

    Attributes
    ----------
    first, second : str
        Names of the policies.
    difference : float
        Mean over the runs of first − second; negative where the first is better.
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
        return (
            f"regret of {self.first} − regret of {self.second}: "
            f"{self.difference:+,.1f} ± {self.standard_error:,.1f} (s.e., {self.runs} runs)"
        )


COLUMNS = (
    Column("policy", "{policy}"),
    Column("regret", "{regret:,.1f}"),
    Column("± s.e.", "{regret_se:,.1f}", "nan"),
    Column("reward/1000", "{reward_per_1000:,.1f}"),
    Column("runs", "{runs}"),
)


@dataclass(frozen=True)
class SimulationResult(Tabulated):
    """What a simulation found.

    Attributes
    ----------
    names : tuple of str
        The policies.
    rounds : array of int64, shape (checkpoints,)
    regret, reward : array of float64, shape (policies, runs, checkpoints)
        Totals up to each checkpoint: expected reward missed, and reward received.
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
        """One row per policy, run and checkpoint."""
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
        """Return per policy the final regret and reward per 1000 rounds, means and errors."""
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
        """Return :meth:`records`."""
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
        return laid_out(self.rows(), COLUMNS)

    def compare(self, first: str | int | Policy, second: str | int | Policy) -> Comparison:
        """Return the mean difference of two policies' final regrets with its standard error.

        Parameters
        ----------
        first, second : str, int or Policy
            A name in ``names``, a position, or the policy itself.

        Raises
        ------
        InvalidValue
            If it is none of the simulated policies, or more than one.
        """
        a, b = self._position(first), self._position(second)
        difference = self.regret[a, :, -1] - self.regret[b, :, -1]
        return Comparison(
            self.names[a],
            self.names[b],
            float(difference.mean()),
            standard_error(difference),
            len(difference),
        )

    def _position(self, which: str | int | Policy) -> int:
        if isinstance(which, int) and -len(self.names) <= which < len(self.names):
            return which
        text = which.label if isinstance(which, Policy) else str(which)
        found = [i for i, name in enumerate(self.names) if text in (name, name.split("(")[0])]
        if len(found) != 1:
            raise InvalidValue("policy", which, f"name one of {', '.join(self.names)}")
        return found[0]

    def plot(self, path: str | Path | None = None, *, ax: Any = None) -> Any:
        """Draw the mean regret of each policy with a band of two standard errors.

        Parameters
        ----------
        path : path, optional
            Where to write; the suffix gives the format.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default a figure of its own, which a notebook shows unless it is
            written.

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        MissingExtra
            If matplotlib is not installed.
        """
        from tacit.plots import drawn, regret_curves

        title = f"{type(self.environment).__name__}, {self.regret.shape[1]} runs, bands of ±2 standard errors"
        curves = dict(zip(self.names, self.regret, strict=True))
        with drawn(path, ax) as axes:
            regret_curves(axes, curves, self.rounds, title)
        return axes


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean; NaN of fewer than two values."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
