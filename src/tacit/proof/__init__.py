"""Proof that learning helps: what a policy earned more than a control, at any time."""

from tacit.proof.boundary import (
    HoldoutSums,
    Interval,
    Lift,
    boundary,
    decisions_needed,
    duels_needed,
    searches_needed,
)
from tacit.proof.harms import HarmSums
from tacit.proof.holdout import dispersion, holdout_lift
from tacit.proof.paired import PairSums, chance_of_score, discoveries, preference
from tacit.proof.scores import Scores, ScoreSums, Winner, winner
from tacit.proof.sentences import guarded, lift_sentence
from tacit.proof.traffic import ALARM, FrequencySums, PropensitySums, share_evidence

__all__ = [
    "ALARM",
    "FrequencySums",
    "HarmSums",
    "HoldoutSums",
    "Interval",
    "Lift",
    "PairSums",
    "PropensitySums",
    "ScoreSums",
    "Scores",
    "Winner",
    "boundary",
    "chance_of_score",
    "decisions_needed",
    "discoveries",
    "dispersion",
    "duels_needed",
    "guarded",
    "holdout_lift",
    "lift_sentence",
    "preference",
    "searches_needed",
    "share_evidence",
    "winner",
]
