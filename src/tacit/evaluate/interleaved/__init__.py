"""Interleaved searches as logs have them: credit, preferences at any time, and segments."""

from tacit.evaluate.interleaved.engines import Hit, hits_of
from tacit.evaluate.interleaved.method import read_interleaved
from tacit.evaluate.interleaved.report import Comparison, InterleavedReport, Segment
from tacit.evaluate.interleaved.scale import Scaled, examination_curve, scaled
from tacit.evaluate.interleaved.searches import Search

__all__ = [
    "Comparison",
    "Hit",
    "InterleavedReport",
    "Scaled",
    "Search",
    "Segment",
    "examination_curve",
    "hits_of",
    "read_interleaved",
    "scaled",
]
