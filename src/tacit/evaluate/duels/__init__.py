"""Who wins: preferences estimated from a log of duels, and when it is safe to stop."""

from tacit.evaluate.duels.counting import preferences
from tacit.evaluate.duels.evidence import log_evidence, safe_interval
from tacit.evaluate.duels.reading import COLUMNS, read_duels
from tacit.evaluate.duels.report import DuelReport, Pair

__all__ = [
    "COLUMNS",
    "DuelReport",
    "Pair",
    "log_evidence",
    "preferences",
    "read_duels",
    "safe_interval",
]
