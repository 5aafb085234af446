"""Preferences between rankers, estimated from a log of duels, with a safe stopping rule."""

from typing import TYPE_CHECKING

from tacit.evaluate.duels.report import DuelReport, Pair, log_evidence, preferences, safe_interval
from tacit.lazy_imports import load_lazily

if TYPE_CHECKING:
    from tacit.evaluate.duels.duel_log import COLUMNS, Always, always, read_duels

__getattr__, _ = load_lazily(__name__, {"duel_log": "COLUMNS Always always read_duels"})

__all__ = [
    "COLUMNS",
    "Always",
    "DuelReport",
    "Pair",
    "always",
    "log_evidence",
    "preferences",
    "read_duels",
    "safe_interval",
]
