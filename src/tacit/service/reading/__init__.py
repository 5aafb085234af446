"""What may be read of a placement by those who look at it."""
