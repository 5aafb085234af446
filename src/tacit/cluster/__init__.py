"""The same work on Ray, for what outgrows one machine."""

from tacit.cluster.evaluation import arms_of, off_policy, replay
from tacit.cluster.serving import serve
from tacit.cluster.sweeps import on_ray

__all__ = ["arms_of", "off_policy", "on_ray", "replay", "serve"]
