"""The service as others ask for it: Personalizer, OpenFeature, User Behavior Insights."""
