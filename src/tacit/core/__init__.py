"""Foundations of all other packages: dispatch of kernels, compilation, checks of values."""
