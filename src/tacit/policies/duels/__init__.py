"""Policies that learn from comparisons of two arms."""
