"""Run evaluation, simulation and the service on a Ray cluster."""

from typing import TYPE_CHECKING

from tacit.lazy_imports import load_lazily

if TYPE_CHECKING:
    from tacit.cluster.evaluation import arms_of as arms_of
    from tacit.cluster.evaluation import off_policy as off_policy
    from tacit.cluster.evaluation import replay as replay
    from tacit.cluster.serving import serve as serve
    from tacit.cluster.tasks import on_ray as on_ray

# Loaded on demand: a shard starts faster without the modules that read logs.
__getattr__, __dir__ = load_lazily(
    __name__, {"evaluation": "arms_of off_policy replay", "serving": "serve", "tasks": "on_ray"}
)

# Set indirectly, so that type checkers and the reference use the imports above.
globals()["__all__"] = __dir__()
