"""User Behavior Insights (UBI 1.3): records in and out."""
