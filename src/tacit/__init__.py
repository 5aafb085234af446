"""tacit learns what to show from clicks, although clicks lie."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tacit.core.name_conflict import warn_of_namesake as _warn_of_namesake
from tacit.errors import TacitError as TacitError

if TYPE_CHECKING:
    from tacit.checking import check as check
    from tacit.core.dispatch import kernel as kernel
    from tacit.environments import BernoulliArms as BernoulliArms
    from tacit.environments import ExaminationArms as ExaminationArms
    from tacit.environments import PreferenceMatrix as PreferenceMatrix
    from tacit.environments import ShiftingArms as ShiftingArms
    from tacit.evaluate import examine as examine
    from tacit.evaluate import off_policy as off_policy
    from tacit.evaluate import replay as replay
    from tacit.learning.decisions import Decision as Decision
    from tacit.learning.feedback_window import FeedbackWindow as FeedbackWindow
    from tacit.learning.learner import Learner as Learner
    from tacit.logs import read_log as read_log
    from tacit.logs import read_open_bandit as read_open_bandit
    from tacit.logs import read_ubi as read_ubi
    from tacit.logs import write_log as write_log
    from tacit.policies import BWC as BWC
    from tacit.policies import KLUCB as KLUCB
    from tacit.policies import UCB1 as UCB1
    from tacit.policies import ClickMixture as ClickMixture
    from tacit.policies import ContextMixture as ContextMixture
    from tacit.policies import DriftMixture as DriftMixture
    from tacit.policies import EmbeddingMixture as EmbeddingMixture
    from tacit.policies import EpsilonGreedy as EpsilonGreedy
    from tacit.policies import ExplorationFloor as ExplorationFloor
    from tacit.policies import HorizonDraw as HorizonDraw
    from tacit.policies import Impression as Impression
    from tacit.policies import ItemListMix as ItemListMix
    from tacit.policies import ListMix as ListMix
    from tacit.policies import Policy as Policy
    from tacit.policies import Thompson as Thompson
    from tacit.policies import UniformRandom as UniformRandom
    from tacit.policies import infer_schema as infer_schema
    from tacit.policies.auto import auto as auto
    from tacit.simulation import simulate as simulate

__version__ = "0.4.0"

_warn_of_namesake()

# All that ``import tacit`` loads is in this file: a policy loads its dependencies when it is named.
_LAZY_MODULES = {
    "checking": "check",
    "core.dispatch": "kernel",
    "environments": "BernoulliArms ExaminationArms PreferenceMatrix ShiftingArms",
    "evaluate": "examine off_policy replay",
    "learning.decisions": "Decision",
    "learning.feedback_window": "FeedbackWindow",
    "learning.learner": "Learner",
    "logs": "read_log read_open_bandit read_ubi write_log",
    "policies": "BWC KLUCB UCB1 ClickMixture ContextMixture DriftMixture EmbeddingMixture EpsilonGreedy "
    "ExplorationFloor HorizonDraw Impression ItemListMix ListMix Policy Thompson UniformRandom "
    "auto infer_schema",
    "simulation": "simulate",
}
_LAZY_NAMES = {name: f"tacit.{home}" for home, names in _LAZY_MODULES.items() for name in names.split()}

# Public subpackages, loaded on first use.
_SUBPACKAGES = "classifiers clicks environments errors evaluate interleaving logs policies uplift"

# Packages that may have a name that is missing here, for the hint in the error.
_PACKAGES_WITH_NAMES = "policies policies.baselines environments classifiers simulation evaluate"

# Set indirectly, so that type checkers and the reference use the imports above.
globals()["__all__"] = sorted(["TacitError", *_LAZY_NAMES])


def __getattr__(name: str) -> Any:
    """Import a public name or subpackage on first use; raise AttributeError with a hint for any other."""
    if name in _LAZY_NAMES:
        value = globals()[name] = getattr(importlib.import_module(_LAZY_NAMES[name]), name)
        return value
    if name in ("learning", "simulation", *_SUBPACKAGES.split()):
        return importlib.import_module(f"tacit.{name}")
    for package in _PACKAGES_WITH_NAMES.split():
        if name in importlib.import_module(f"tacit.{package}").__all__:
            raise AttributeError(f"module 'tacit' has no attribute {name!r}; it is tacit.{package}.{name}")
    hint = importlib.import_module("tacit.errors").suggest_name(name, __dir__())
    raise AttributeError(f"module 'tacit' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted([*globals()["__all__"], *_SUBPACKAGES.split(), "__version__"])
