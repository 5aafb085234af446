"""The service as others ask for it: OpenFeature."""
