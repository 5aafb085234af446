"""Policies for clicks that need two things: that a result is seen, and that it is relevant.

The click probability is σ(x_C·θ_C)·σ(x_E·θ_E), with features x_C of relevance and x_E of
examination (Qi et al. 2018). Whether an unclicked result was seen is never observed.
"""
