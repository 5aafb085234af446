"""How much each position is examined, from a log."""

from tacit.evaluate.examination.estimation import METHODS, examine
from tacit.evaluate.examination.result import Examination, plot

__all__ = ["METHODS", "Examination", "examine", "plot"]
