"""Policies for rewards that change: they forget, or notice and restart."""
