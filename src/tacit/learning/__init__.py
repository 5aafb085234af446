"""The learner: its keys and lanes, its batches and snapshots."""
