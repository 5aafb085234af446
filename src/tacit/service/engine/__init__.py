"""The engine: one writer that decides, learns and logs in groups."""
