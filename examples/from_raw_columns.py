"""From raw columns to decisions: scikit-learn makes features, tacit learns and evaluates.

A shop logged uniform choices among three banners, with what it knew of each visitor: a data frame
of numbers and words. A pipeline turns these columns into numbers. Then

1. a model of the clicks is fitted to the first half of the log, and the policy that follows it,
   with a tenth of exploration, is judged on the second half, besides one fixed banner;
2. a learner decides for new visitors: every number of the visitor times every banner, in a line.

    pip install pandas scikit-learn
    python examples/from_raw_columns.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import tacit
from tacit.evaluate import SNIPS, DoublyRobust, Greedy, Predicted, Table, off_policy

BANNERS = ["shoes", "phones", "books"]
ROWS, ROUNDS = 8_000, 1_000


def visitors(rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return what is known of visitors, as a shop has it."""
    columns = {"device": rng.choice(["phone", "desktop"], rows), "age": rng.integers(18, 80, rows)}
    return pd.DataFrame(columns)


def clicks(seen: pd.DataFrame, banner: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return whether each was clicked: the young like shoes, desktops phones, the old books."""
    young, desktop = (80 - seen["age"]) / 62, seen["device"] == "desktop"
    rates = np.stack([0.05 + 0.25 * young, 0.05 + 0.15 * desktop, 0.3 - 0.25 * young], axis=1)
    return (rng.random(len(seen)) < rates[np.arange(len(seen)), banner]).astype(float)


def main() -> None:
    """Print what each policy would have earned, and what the learner did."""
    rng = np.random.default_rng(1)
    seen, shown = visitors(ROWS, rng), rng.integers(3, size=ROWS)
    log = seen.assign(banner=np.array(BANNERS)[shown], clicked=clicks(seen, shown, rng), key="top")

    encode = make_column_transformer(
        (StandardScaler(), ["age"]), (OneHotEncoder(drop="if_binary"), ["device"])
    )
    log["context"] = list(encode.fit_transform(seen))
    early, late = log[: ROWS // 2], log[ROWS // 2 :]

    models = {}
    for banner in BANNERS:
        mine = early[early["banner"] == banner]
        model = make_pipeline(LogisticRegression())
        models[banner] = model.fit(np.stack(mine["context"]), mine["clicked"])
    rewards = Predicted(models)
    shop = {
        "columns": {"arm": "banner", "reward": "clicked"},
        "constants": {"propensity": 1 / 3},
        "arms": BANNERS,
    }
    for target in (Table({"books": 1.0}), Greedy(rewards, epsilon=0.1)):
        result = off_policy(target, late, [SNIPS(), DoublyRobust(rewards)], by="device", **shop)
        print(result.summary(), end="\n\n")

    # User × arm: one row of the unit matrix is what is known of each banner.
    learner = tacit.Learner(tacit.ClickMixture(len(BANNERS), context_dim=2), seed=1)
    earned = 0.0
    for number in range(ROUNDS):
        visitor = visitors(1, rng)
        (context,) = encode.transform(visitor)
        decision = learner.choose("top", context, relevance=np.eye(len(BANNERS)))
        (reward,) = clicks(visitor, decision.slots, rng)
        learner.learn(decision, reward)
        earned += reward if number >= ROUNDS // 2 else 0.0
    print(f"a learner's visitors {ROUNDS // 2} to {ROUNDS}: {earned / (ROUNDS // 2):.3f} clicks each")


if __name__ == "__main__":
    main()
