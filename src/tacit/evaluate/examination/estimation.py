"""How much each position is examined, from a log.

In the position-based model (Richardson et al. 2007) a click is examination of the position times
relevance of the arm: P(click) = θ_k · γ(key, arm). Clicks alone tell the θ only up to a common
factor, so effects are given relative to the first position. Three ways to tell them from the
relevance of what stood there:

- ``randomization``: where arms were placed at random (or at known odds), what stands at the
  positions is alike, and their click rates differ by examination alone;
- ``harvesting``: the same arm for the same key, shown at two positions by whatever chance or
  change of policy, is an intervention on its own;
- ``em``: relevance is estimated together with examination, perhaps by a regression on features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Floats
from tacit.errors import InvalidValue
from tacit.evaluate.examination.cells import Cells, cells_of
from tacit.evaluate.examination.methods import Regression, em, harvesting, per_place, randomization, relative
from tacit.evaluate.examination.result import Examination
from tacit.evaluate.intervals import CONFIDENCE, normal_quantile, wilson
from tacit.evaluate.rows import checked_missing_reward
from tacit.logs.sources import Reading, opened, say_rejected

METHODS = ("randomization", "harvesting", "em")


def examine(
    log: Any,
    method: str = "harvesting",
    *,
    features: Callable[[str, str], Any] | None = None,
    regression: Any = None,
    missing_reward: float | None = 0.0,
    confidence: float = CONFIDENCE,
    **reading: Unpack[Reading],
) -> Examination:
    """Estimate how much each position is examined, under the position-based model.

    Parameters
    ----------
    log : LogReader, path, or table in memory
        A click log with positions; what :func:`tacit.read_log` takes. What is kept of it grows with
        the number of distinct keys, arms and positions that stood together, not with its rows.
    method : {"randomization", "harvesting", "em"}
        ``randomization`` needs propensities, and weights by them what was not placed uniformly.
        ``harvesting`` uses only what was shown at two positions or more. ``em`` uses all.
    features : callable, optional
        For ``em``: from key and arm to a vector of features.
    regression : object, optional
        For ``em``, with ``features``: has ``fit(features, targets, sample_weight=...)`` and
        ``predict(features)``, whose predictions are taken for relevance. Without it each key
        and arm has a relevance of its own.
    missing_reward : float or None, default 0
        The reward of a row to which no feedback came; None leaves such rows out.
    confidence : float, default 0.95
    **reading
        How a log that is not open yet is read: options of :func:`tacit.read_log`.

    Returns
    -------
    Examination

    Raises
    ------
    LogError
        If there are no rows.
    UnfitLog
        If rows have no position, or no propensity where it is needed.
    InvalidValue
        If an option is wrong.

    References
    ----------
    Joachims, Swaminathan, Schnabel (2017), "Unbiased learning-to-rank with biased feedback",
    section 5 (randomization); Agarwal, Zaitsev, Wang, Li, Najork, Joachims (2019), "Estimating
    position bias without intrusive interventions", section 4 (harvesting: interventional sets
    and the AllPairs estimator); Wang, Golbandi, Bendersky, Metzler, Najork (2018), "Position
    bias estimation for unbiased learning to rank in personal search", section 4 and algorithm 1
    (regression-based EM); Kott (2001), "The delete-a-group jackknife".

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> rng, rows = np.random.default_rng(1), 20_000
    >>> arm, position = rng.integers(2, size=rows), rng.integers(2, size=rows)
    >>> chance = np.array([0.3, 0.6])[arm] * np.array([0.9, 0.45])[position]
    >>> log = pa.table(
    ...     {
    ...         "timestamp": ["2017-07-04T12:00:00Z"] * rows,
    ...         "decision_id": [str(row) for row in range(rows)],
    ...         "placement": ["home"] * rows,
    ...         "key": ["independence day"] * rows,
    ...         "arms": [["film", "holiday"]] * rows,
    ...         "arm": np.array(["film", "holiday"])[arm].tolist(),
    ...         "position": pa.array(position, pa.int32()),
    ...         "propensity": [0.5] * rows,
    ...         "reward": (rng.random(rows) < chance).astype(float),
    ...     }
    ... )
    >>> result = examine(log, "harvesting")
    >>> bool(result.low[1] < 0.5 < result.high[1])
    True
    """
    if method not in METHODS:
        raise InvalidValue("method", method, f"give one of {', '.join(METHODS)}")
    if (features is None) != (regression is None) or (features and method != "em"):
        raise InvalidValue("features", features, "give features and regression, both for 'em'")
    missing_reward = checked_missing_reward(missing_reward)
    checks.number("confidence", confidence, 0.5, 1 - 1e-12)
    reader = opened(log, **reading)
    cells = cells_of(reader, missing_reward, randomized=method == "randomization")
    say_rejected(reader, log)
    places = np.unique(cells.position)
    cells = cells._replace(position=np.searchsorted(places, cells.position))

    def estimated(part: Cells, start: Floats | None) -> Floats:
        if method == "randomization":
            return randomization(part, len(places))
        if method == "harvesting":
            return harvesting(part, len(places))
        return em(part, len(places), start, Regression(cells, features, regression))

    shown, clicks = (per_place(cells, x, len(places)) for x in (cells.shown, cells.clicks))
    effects = estimated(cells, None)
    if method == "em":  # it goes on without end where there are no clicks
        effects[clicks == 0] = np.nan
        effects = relative(effects)
    low, high = _jackknife(cells, effects, estimated, confidence)
    for place in (np.flatnonzero(~(low < high)[1:]) + 1).tolist():
        low[place] = high[place] = np.nan
        if method == "randomization" and not np.isnan(effects[place]):
            least, most = wilson(clicks[0] / shown[0], shown[0], confidence)
            ends = wilson(clicks[place] / shown[place], shown[place], confidence)
            low[place], high[place] = ends[0] / most, ends[1] / least
    return Examination(
        method=method,
        positions=places,
        effects=effects,
        low=low,
        high=high,
        shown=shown,
        clicks=clicks,
        confidence=confidence,
    )


def _jackknife(
    cells: Cells, effects: Floats, estimated: Callable[[Cells, Floats | None], Floats], confidence: float
) -> tuple[Floats, Floats]:
    """Return intervals from estimates that leave out one group of decisions at a time."""
    groups = np.unique(cells.group)
    if len(groups) < 2:
        return np.full_like(effects, np.nan), np.full_like(effects, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [np.log(estimated(cells.without(group), effects)) for group in groups.tolist()]
        spread = np.stack(parts) - np.log(effects)
    size = len(groups)
    error = np.sqrt((size - 1) / size * np.sum(spread**2, axis=0))
    z = normal_quantile(confidence)
    # Student's quantile for size − 1 degrees of freedom, to second order.
    quantile = z + (z**3 + z) / (4 * (size - 1)) + z * (5 * z**4 + 16 * z**2 + 3) / (96 * (size - 1) ** 2)
    factor = np.exp(quantile * error)
    return effects / factor, effects * factor
