"""Policies that know arms by their features."""
