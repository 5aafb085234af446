"""obp, the Open Bandit Pipeline: estimates from logs."""

import sys
from operator import attrgetter
from unittest.mock import MagicMock

# Importing it asks for torch, which the estimators here never call: it is shown an empty one.
TORCH = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.utils.data")
stand_in = MagicMock()
for kind in ("Tensor", "Module", "Dataset"):
    for part in (stand_in, stand_in.nn, stand_in.utils.data):
        setattr(part, kind, type(kind, (), {}))
for name in TORCH:
    sys.modules[name] = attrgetter(name[len("torch.") :])(stand_in) if "." in name else stand_in

import numpy as np  # noqa: E402
from obp import ope  # noqa: E402

for name in TORCH:  # SciPy would take it for the real one
    del sys.modules[name]


def weighing(stream):
    """Its estimators, without their bootstrap."""
    rows, arms = len(stream["logged"]), len(stream["means"])
    given = {
        "reward": stream["rewards"],
        "action": stream["logged"],
        "position": np.zeros(rows, int),
        "pscore": stream["propensities"],
    }
    target, model = (
        np.broadcast_to(stream[name][:, None], (rows, arms, 1)).copy() for name in ("target", "model")
    )
    last = np.zeros((rows, arms, 1))
    last[:, -1] = 1.0

    def player(estimator, shown, **more):
        def seeded(seed):
            def play():
                return rows, [estimator.estimate_policy_value(action_dist=shown, **given, **more)]

            return play

        return seeded

    by_model = {"estimated_rewards_by_reg_model": model}
    return {
        "IPS": player(ope.InverseProbabilityWeighting(), target),
        "SNIPS": player(ope.SelfNormalizedInverseProbabilityWeighting(), target),
        "DR": player(ope.DoublyRobust(), target, **by_model),
        "DR of the last arm": player(ope.DoublyRobust(), last, **by_model),
    }
