"""The chain that decides for a placement: stages around a policy, each in columns."""
