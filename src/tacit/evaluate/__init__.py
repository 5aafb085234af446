"""Offline evaluation: what a policy would have earned, from the log of another one."""

from tacit.evaluate.rejection import ReplayResult, arms_of, replay

__all__ = ["ReplayResult", "arms_of", "replay"]
