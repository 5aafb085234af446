"""Placements: what they show, and what they learn from what comes back."""
