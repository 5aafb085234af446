"""Whole runs of elimination duels drawn at once, exactly as duel by duel."""
