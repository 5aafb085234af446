"""The application: one table of all routes, and what reads it."""
