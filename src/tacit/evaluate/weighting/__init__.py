"""Off-policy evaluation: rows weighted by how likely the target policy makes what was shown."""
