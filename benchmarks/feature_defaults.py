"""Regret of ClickMixture where features, arms, keys and users are not as one would wish.

python benchmarks/feature_defaults.py SETTING [RUNS]

Settings: crossed (six arms that no linear score orders), fixed (the same ten every time), sizes
(features of other sizes), truths (nothing hides results), keys, users, drift. Regrets are means
over runs, with their standard errors; the policies of a setting meet the same streams.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from feature_regret import few_arms
from feature_truths import KeyedArms, PlainArms, UserArms

import tacit
from tacit.core.arrays import Floats
from tacit.environments.examination import uniform_in_ball

SIZES = (1.0, 0.1, 0.01, 10.0, None)
MIXTURE = tacit.ClickMixture(5, 5)


def regrets(
    policies: Sequence[tacit.Policy],
    environment: tacit.environments.Environment,
    rounds: int,
    runs: int,
    seed: int,
) -> Floats:
    """Return the regret of each policy after each run."""
    found = tacit.simulate(policies, environment, rounds, runs=runs, seed=seed, workers=1)
    return found.regret[:, :, -1]


def tell(setting: str, policies: Sequence[tacit.Policy], found: Floats) -> None:
    """Print means and standard errors."""
    for policy, last in zip(policies, found, strict=True):
        error = last.std(ddof=1) / len(last) ** 0.5
        print(f"{setting:28} {policy.label:70} {last.mean():7.1f} ± {error:.1f}", flush=True)


def problems(
    runs: int, first: int, pool: int, scale: float, size: float | None = 1.0
) -> Iterator[tuple[Floats, Floats]]:
    """Yield features of arms and parameters, uniform in the unit balls of two blocks.

    Features come times ``size``; where that is None, each column times its own number.
    """
    for run in range(runs):
        rng = np.random.default_rng(first + run)
        arms = np.hstack([uniform_in_ball(rng, pool, 5) for _ in range(2)])
        theta = np.hstack([uniform_in_ball(rng, 1, 5) for _ in range(2)])[0]
        factor = np.full(10, size) if size else 10.0 ** rng.uniform(-2.0, 2.0, 10)
        yield factor * arms, scale * theta / factor


def drawn(policies: Sequence[tacit.Policy], made: Iterator[tuple[Floats, Floats]], rounds: int) -> Floats:
    """Return the regret of each policy in each of some problems, ten arms on offer."""
    found = []
    for seed, (arms, theta) in enumerate(made):
        told = {"arms": arms.tolist(), "parameters": theta.tolist()}
        environment = tacit.ExaminationArms(5, 5, offered=10, **told)
        result = tacit.simulate(policies, environment, rounds, runs=1, seed=seed, workers=1)
        found.append(result.regret[:, 0, -1])
    return np.array(found).T


def fixed(runs: int) -> None:
    """The same ten arms every time, which are not crossed."""
    policies = [
        MIXTURE,
        tacit.policies.LinUCB(5, 5, alpha=1.0),
        tacit.policies.LaplaceEC(5, 5, draw="coupled"),
    ]
    for scale in (1.0, 4.0):
        tell(f"fixed, θ × {scale:g}", policies, drawn(policies, problems(runs, 5_000, 10, scale), 5_000))


def sizes(runs: int) -> None:
    """All features times one number; or each column times its own, between 0.01 and 100."""
    policies = [MIXTURE, tacit.policies.LinUCB(5, 5, alpha=1.0)]
    for scale in (1.0, 4.0):
        for size in SIZES:
            setting = f"sizes × {size:g}, θ × {scale:g}" if size else f"any size, θ × {scale:g}"
            made = problems(runs, 7_000, 100, scale, size)
            tell(setting, policies, drawn(policies, made, 2_000))


def truths(runs: int) -> None:
    """Logistic clicks and linear rewards, ten of a hundred arms on offer."""
    policies = [
        MIXTURE,
        tacit.policies.LogisticTS(5, 5, draw="coupled"),
        tacit.policies.LogisticTS(5, 5),
        tacit.policies.LinUCB(5, 5),
    ]
    for name, environment in {
        "logistic, θ × 1": PlainArms(1.0),
        "logistic, θ × 4": PlainArms(4.0),
        "linear": PlainArms(1.0, linear=True),
    }.items():
        tell(name, policies, regrets(policies, environment, 2_000, runs, 77))


def keys(runs: int) -> None:
    """Ten keys: one mixture for all, one for each, and what they share apart."""
    hybrid = tacit.policies.HybridClickMixture(5, 5)
    for unlike in (0.0, 0.5, 2.0):
        for policy, pooled in ((MIXTURE, True), (MIXTURE, False), (hybrid, False)):
            environment = KeyedArms(unlike=unlike, pooled=pooled)
            setting = f"keys differ by {unlike:g}{', as one' * pooled}"
            tell(setting, [policy], regrets([policy], environment, 3_000, runs, 55))


def users(runs: int) -> None:
    """Users as context, beside the arms, and as the product that a client makes."""
    for told, dim, context in (("context", 4, 4), ("beside", 8, 0), ("product", 20, 0)):
        policies: list[tacit.Policy] = [tacit.ClickMixture(dim, context_dim=context)]
        if context:
            policies.append(tacit.EmbeddingMixture(dim, context))
        else:
            policies.append(tacit.policies.LinUCB(dim))
        tell(f"users, {told}", policies, regrets(policies, UserArms(told=told), 2_000, runs, 8_155))


def drift(runs: int) -> None:
    """Parameters that are drawn anew twice in 15,000 rounds; and 5,000 rounds without."""
    policies = [tacit.policies.OracleRestart(MIXTURE), tacit.policies.CUSUMRestart(MIXTURE)]
    for scale in (1.0, 4.0):
        for redraws, rounds in (((5_001, 10_001), 15_000), ((), 5_000)):
            environment = tacit.ExaminationArms(scale=scale, redraws=redraws, announced=True)
            setting = f"{len(redraws)} shifts, θ × {scale:g}"
            tell(setting, policies, regrets(policies, environment, rounds, runs, 88))


SETTINGS = {"fixed": fixed, "sizes": sizes, "truths": truths, "keys": keys, "users": users, "drift": drift}


def main() -> None:
    """Measure one setting and print."""
    warnings.simplefilter("ignore", tacit.policies.IdentifiabilityWarning)
    setting, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 60
    if setting == "crossed":
        few_arms(runs)
    else:
        SETTINGS[setting](runs)


if __name__ == "__main__":
    main()
