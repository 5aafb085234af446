"""Click models: users to simulate, and to fit to a click log."""

from tacit.clicks.base import ClickModel, Fit, Sessions, perplexity, sessions_of
from tacit.clicks.models import (
    Cascade,
    DependentClick,
    DynamicBayesian,
    PositionBased,
    informational,
    navigational,
    perfect,
)

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
