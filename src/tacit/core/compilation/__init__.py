"""Compilation of kernels: compiler settings, cache, progress notices and error messages."""
