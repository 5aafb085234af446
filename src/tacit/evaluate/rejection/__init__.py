"""Replay: the rejection method for logs of uniform choice (Li, Chu, Langford, Wang 2011)."""
