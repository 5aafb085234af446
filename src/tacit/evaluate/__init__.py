"""Offline evaluation: what a policy would have earned, and what parameters a log suggests."""

from tacit.evaluate.proposal import Proposal, Shift, propose
from tacit.evaluate.rejection import ReplayResult, arms_of, replay

__all__ = ["Proposal", "ReplayResult", "Shift", "arms_of", "propose", "replay"]
