"""Interleaving: combine rankings into one list, and turn its clicks into duels."""

from tacit.core.dispatch import public_names as _public
from tacit.interleaving.base import Credit as Credit
from tacit.interleaving.base import Interleaved as Interleaved
from tacit.interleaving.base import InterleavingMethod as InterleavingMethod
from tacit.interleaving.probabilistic import Optimized as Optimized
from tacit.interleaving.probabilistic import Probabilistic as Probabilistic
from tacit.interleaving.probabilistic import ProbabilisticMultileave as ProbabilisticMultileave
from tacit.interleaving.rules import METHODS as METHODS
from tacit.interleaving.rules import Action as Action
from tacit.interleaving.rules import CreditRule as CreditRule
from tacit.interleaving.rules import credit_clicks as credit_clicks
from tacit.interleaving.team_draft import Balanced as Balanced
from tacit.interleaving.team_draft import DebiasedBalanced as DebiasedBalanced
from tacit.interleaving.team_draft import TeamDraft as TeamDraft
from tacit.interleaving.team_draft import TeamDraftMultileave as TeamDraftMultileave

# Computed, as no tool reads it: type checkers and the reference go by the imports above.
globals()["__all__"] = sorted([*_public(globals()), "METHODS"])
