"""The kinds of placements, each a record."""
