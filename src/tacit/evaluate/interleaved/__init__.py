"""Evaluation of logs of interleaved searches: credit, preferences valid at any time, and segments."""

from typing import TYPE_CHECKING

from tacit.evaluate.interleaved.report import Comparison, InterleavedReport, Segment
from tacit.evaluate.interleaved.searches import Hit, Search, hits_of
from tacit.lazy_imports import load_lazily

if TYPE_CHECKING:
    from tacit.evaluate.interleaved.comparison import read_interleaved

# The service judges searches, and reads no file: pyarrow is brought along by who does.
__getattr__, _ = load_lazily(__name__, {"comparison": "read_interleaved"})

__all__ = ["Comparison", "Hit", "InterleavedReport", "Search", "Segment", "hits_of", "read_interleaved"]
