"""Models of the expected reward that are made of the log that is judged."""
