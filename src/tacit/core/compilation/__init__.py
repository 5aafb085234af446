"""Compilation: how kernels are compiled, what is said meanwhile, and why it failed."""
