"""Interleaving: rankings in, one list out; clicks in, duels out."""

from tacit.interleaving.base import Credit, Interleaved, InterleavingMethod
from tacit.interleaving.probabilistic import Optimized, Probabilistic, ProbabilisticMultileave
from tacit.interleaving.rules import METHODS, Action, CreditRule, credited
from tacit.interleaving.team_draft import Balanced, DebiasedBalanced, TeamDraft, TeamDraftMultileave

__all__ = [
    "METHODS",
    "Action",
    "Balanced",
    "Credit",
    "CreditRule",
    "DebiasedBalanced",
    "Interleaved",
    "InterleavingMethod",
    "Optimized",
    "Probabilistic",
    "ProbabilisticMultileave",
    "TeamDraft",
    "TeamDraftMultileave",
    "credited",
]
