"""Maintenance of a log as a whole: check, export, import, reshard, forget."""
