"""Policies for rewards that do not change."""
