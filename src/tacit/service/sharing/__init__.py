"""What the shards of a placement learn together."""
