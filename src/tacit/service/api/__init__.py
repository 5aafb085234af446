"""The service's own routes: what they take, do and answer."""
