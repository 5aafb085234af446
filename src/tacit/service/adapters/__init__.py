"""Adapters of the service for other protocols: OpenFeature."""
