"""Which of three recipes would be rated best, judged by a log of ratings from 1 to 5 stars?

The log shows recipes with known probabilities; half of those who cook do not rate, and such rows tell nothing
(``missing_reward=None``), where a click that did not come would tell 0. Ratings are made up here.

    python examples/ratings_from_a_log.py
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import tacit

RECIPES = ["soup", "curry", "pie"]
MEANS = np.array([3.4, 3.9, 3.1])
STARS = (1, 5)


def make_log(rows: int, seed: int) -> pa.Table:
    """Return a log of recipes drawn with probabilities .6, .2 and .2, of which half are rated."""
    rng = np.random.default_rng(seed)
    shares = np.array([0.6, 0.2, 0.2])
    shown = rng.choice(3, rows, p=shares)
    stars = np.clip(np.rint(rng.normal(MEANS[shown], 1.0)), *STARS)
    return pa.table(
        {
            "recipe": np.array(RECIPES)[shown],
            "stars": pa.array(stars, mask=rng.random(rows) < 0.5),
            "share": shares[shown],
        }
    )


def main() -> None:
    """Judge each recipe, and fit the default to the log."""
    columns = {"arm": "recipe", "reward": "stars", "propensity": "share"}
    log = tacit.read_log(make_log(3_000, 1), columns=columns, arms=RECIPES, reward_range=STARS)
    for recipe in RECIPES:
        always = tacit.evaluate.Table({recipe: 1.0})
        result = tacit.off_policy(always, log, [tacit.evaluate.SNIPS()], missing_reward=None).estimates[
            "SNIPS"
        ]
        low, high = result.intervals["normal"]
        print(f"{recipe:6} {result.value:.2f} stars, 95 % interval {low:.2f} to {high:.2f}")
    learner = tacit.Learner(tacit.auto(arms=RECIPES, reward_range=STARS), seed=1)
    learner.fit_log(log, missing_reward=None)
    print(learner.estimates("default"))


if __name__ == "__main__":
    main()
