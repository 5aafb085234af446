"""The service's configuration."""
