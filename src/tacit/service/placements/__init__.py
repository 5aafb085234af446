"""Placements: deciding, attribution of feedback, learning, reports and snapshots."""
