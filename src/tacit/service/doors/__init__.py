"""The service in the terms of others: Personalizer, OpenFeature, User Behavior Insights."""
