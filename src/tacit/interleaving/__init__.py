"""Interleaving: rankings in, one list out; clicks in, duels out."""

from tacit.interleaving.balanced import Balanced
from tacit.interleaving.base import Credit, Interleaved, InterleavingMethod
from tacit.interleaving.credited import METHODS, credited
from tacit.interleaving.optimized import Optimized
from tacit.interleaving.probabilistic import Probabilistic
from tacit.interleaving.probabilistic_multileave import ProbabilisticMultileave
from tacit.interleaving.team_draft import TeamDraft
from tacit.interleaving.team_draft_multileave import TeamDraftMultileave

__all__ = [
    "METHODS",
    "Balanced",
    "Credit",
    "Interleaved",
    "InterleavingMethod",
    "Optimized",
    "Probabilistic",
    "ProbabilisticMultileave",
    "TeamDraft",
    "TeamDraftMultileave",
    "credited",
]
