"""Reward models of one's own, in estimators and as a policy."""

import numpy as np
import pytest

from tacit.errors import UnfitLog
from tacit.evaluate import DirectMethod, DoublyRobust, Greedy, Predicted, Table, off_policy

ARMS = ["a", "b"]
LOG = {
    "key": ["q"] * 4,
    "arm": ["a", "b", "a", "b"],
    "arms": [ARMS] * 3 + [["b"]],
    "propensity": [0.5, 0.5, 0.5, 1.0],
    "reward": [0.0, 1.0, 1.0, 1.0],
    "context": [[0.0], [1.0], [0.0], [1.0]],
}


class Slope:
    """Predict slope × context."""

    def __init__(self, slope):
        self.slope = slope

    def predict(self, contexts):
        return 0.5 + self.slope * contexts[:, 0]


class Both:
    """Predict from contexts and a column for each arm."""

    def predict(self, features):
        return 0.5 + np.where(features[:, 2] == 1, 0.5, -0.5) * features[:, 0]


class Clicks(Both):
    """A classifier: what counts is the last column."""

    def predict(self, features):
        return np.zeros(len(features))

    def predict_proba(self, features):
        share = super().predict(features)
        return np.stack([1 - share, share], axis=1)


MODELS = {
    "one for each arm": Predicted({"a": Slope(-0.5), "b": Slope(0.5)}),
    "one of all": Predicted(Both(), arms=ARMS),
    "classifier": Predicted(Clicks(), arms=ARMS),
    "features of one's own": Predicted(
        Slope(0.5), ARMS, lambda contexts, arm: contexts * (1 if arm == "b" else -1)
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_estimates_by_hand(name):
    log = {column: values[:3] for column, values in LOG.items()}
    found = off_policy(Table({"b": 1.0}), log, [DirectMethod(MODELS[name]), DoublyRobust(MODELS[name])])
    direct, robust = (estimate.value for estimate in found.estimates)
    assert direct == pytest.approx((0.5 + 1.0 + 0.5) / 3)
    assert robust == pytest.approx((0.5 + (1.0 + 2 * (1 - 1.0)) + 0.5) / 3)


@pytest.mark.parametrize("name", MODELS)
def test_the_greedy_policy_by_hand(name):
    log = {column: values[:3] for column, values in LOG.items()}
    (ips, _) = off_policy(Greedy(MODELS[name], epsilon=0.2), log).estimates
    # Where the context is 0 both are alike, and the first is taken: a with 0.9; at 1, b with 0.9.
    assert ips.value == pytest.approx((0 + 0.9 / 0.5 * 1 + 0.9 / 0.5 * 1) / 3)


def test_the_greedy_policy_shows_what_is_on_offer_only():
    log = {column: values[3:] for column, values in LOG.items()}
    (ips, _) = off_policy(Greedy(MODELS["one of all"], epsilon=0.2), log).estimates
    assert (ips.value, ips.mean_weight) == (1.0, 1.0)
    with pytest.raises(UnfitLog, match="of none on offer a reward is predicted"):
        off_policy(Greedy(Predicted({"a": Slope(1)})), log)
