"""Decisions in the terms of OpenFeature: the Remote Evaluation Protocol (OFREP)."""
