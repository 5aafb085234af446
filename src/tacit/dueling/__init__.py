"""Duels by the billion: exact simulations that leap over comparisons that decide nothing."""

from tacit.dueling.outcome import Outcome

__all__ = ["Outcome"]
