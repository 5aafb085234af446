"""How much each position is examined, from a log."""

from tacit.evaluate.examination.estimation import METHODS, Examination, examine, plot

__all__ = ["METHODS", "Examination", "examine", "plot"]
