"""Logs of Vowpal Wabbit, read as click logs."""
