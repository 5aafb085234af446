"""The page: what was learned, and how the service is."""
