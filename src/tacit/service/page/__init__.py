"""The HTML pages of the service: results of placements and health."""
