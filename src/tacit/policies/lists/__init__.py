"""Policies that show a list of arms."""
