"""Click models: users to simulate, and to fit to a click log."""

from tacit.clicks.base import ClickModel
from tacit.clicks.cascade import Cascade
from tacit.clicks.dependent_click import DependentClick
from tacit.clicks.dynamic_bayesian import DynamicBayesian
from tacit.clicks.fitting import Fit
from tacit.clicks.logged import Sessions, sessions_of
from tacit.clicks.perplexity import perplexity
from tacit.clicks.position_based import PositionBased
from tacit.clicks.users import informational, navigational, perfect

__all__ = [
    "Cascade",
    "ClickModel",
    "DependentClick",
    "DynamicBayesian",
    "Fit",
    "PositionBased",
    "Sessions",
    "informational",
    "navigational",
    "perfect",
    "perplexity",
    "sessions_of",
]
