"""What a placement does besides deciding and learning: each an object with a few hooks."""
