"""The rows of the log, and what becomes a row: impressions, requests, ids."""
