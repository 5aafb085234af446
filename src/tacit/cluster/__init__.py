"""The same work on Ray, for what outgrows one machine."""

from tacit.cluster.evaluation import arms_of, off_policy, on_ray, replay
from tacit.cluster.serving import serve

__all__ = ["arms_of", "off_policy", "on_ray", "replay", "serve"]
