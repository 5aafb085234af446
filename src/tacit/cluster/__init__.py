"""The same work on Ray, for what outgrows one machine."""

from tacit.cluster.sweeps import on_ray

__all__ = ["on_ray"]
