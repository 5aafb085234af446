"""Aspects of a placement besides deciding and learning: each is an object with a few hooks."""
