"""Reference numbers from the public package obp, for the estimators that both have.

    python -m venv /tmp/obp
    /tmp/obp/bin/pip install 'numpy<2' 'pandas<2' scipy scikit-learn tqdm pyyaml matplotlib seaborn
    /tmp/obp/bin/pip install --no-deps --ignore-requires-python obp==0.5.7
    /tmp/obp/bin/python tests/reference/obp.py tests/data/open_bandit > tests/reference/obp.json

Its releases ask for Python below 3.11 and for torch; the estimators used here need neither, so
torch is replaced by an empty stand-in.
"""

import json
import sys
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from unittest.mock import MagicMock

from inputs import ITEMS, PLACES, rewards, slate_log, target

sys.path.pop(0)  # this file's own name would hide the package's
TORCH = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.utils.data")
stand_in = MagicMock()
for kind in ("Tensor", "Module", "Dataset"):
    for part in (stand_in, stand_in.nn, stand_in.utils.data):
        setattr(part, kind, type(kind, (), {}))
sys.modules |= {
    name: attrgetter(name.removeprefix("torch."))(stand_in) if "." in name else stand_in for name in TORCH
}

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from obp import ope  # noqa: E402

for name in TORCH:  # scipy would take it for the real one
    del sys.modules[name]


def single(folder, policy):
    """Return the estimates from one part of the Open Bandit Dataset."""
    log = pd.read_csv(Path(folder) / policy / "men" / "men.csv")
    n = len(log)
    common = {
        "reward": log["click"].to_numpy(),
        "action": log["item_id"].to_numpy(),
        "position": log["position"].to_numpy() - 1,
        "pscore": log["propensity_score"].to_numpy(),
        "action_dist": np.broadcast_to(target(), (n, ITEMS, PLACES)),
    }
    model = {"estimated_rewards_by_reg_model": np.broadcast_to(rewards(), (n, ITEMS, PLACES))}
    clip = 1.5
    return {
        "rounds": n,
        "ips": ope.InverseProbabilityWeighting().estimate_policy_value(**common),
        "ips-clipped": ope.InverseProbabilityWeighting(lambda_=clip).estimate_policy_value(**common),
        "snips": ope.SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**common),
        "dm": ope.DirectMethod().estimate_policy_value(**common, **model),
        "dr": ope.DoublyRobust().estimate_policy_value(**common, **model),
        "dr-clipped": ope.DoublyRobust(lambda_=clip).estimate_policy_value(**common, **model),
        "switch-dr": ope.SwitchDoublyRobust(lambda_=clip).estimate_policy_value(**common, **model),
    }


def slates():
    """Return the estimates from the log of slates."""
    log = slate_log()
    logged, wanted = (log[name].reshape(-1, 3) for name in ("logged", "target"))
    common = {name: log[name] for name in ("slate_id", "position", "reward")}
    whole = {
        "pscore": np.repeat(logged.prod(axis=1), 3),
        "evaluation_policy_pscore": np.repeat(wanted.prod(axis=1), 3),
    }
    each = {"pscore_item_position": log["logged"], "evaluation_policy_pscore_item_position": log["target"]}
    cascade = {
        "pscore_cascade": logged.cumprod(axis=1).ravel(),
        "evaluation_policy_pscore_cascade": wanted.cumprod(axis=1).ravel(),
    }
    return {
        "sips": ope.SlateStandardIPS(len_list=3).estimate_policy_value(**common, **whole),
        "iips": ope.SlateIndependentIPS(len_list=3).estimate_policy_value(**common, **each),
        "rips": ope.SlateRewardInteractionIPS(len_list=3).estimate_policy_value(**common, **cascade),
    }


if __name__ == "__main__":
    folder = sys.argv[1]
    content = {
        "obp": version("obp"),
        "random": single(folder, "random"),
        "bts": single(folder, "bts"),
        "slates": slates(),
    }
    print(json.dumps(content, indent=1, default=float))
