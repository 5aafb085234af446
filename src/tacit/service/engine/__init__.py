"""The engine: a single writer that decides, learns and logs requests in groups."""
