"""User Behavior Insights (UBI) 1.3: what its records say, and reading them as a click log."""
