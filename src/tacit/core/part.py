"""What policies, environments and classifiers have in common: a *part* of a compiled loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, get_type_hints

from tacit.core import dispatch
from tacit.core.ranges import Checked


class Part(Checked):
    """A frozen description with kernels, found by the type of its ``Params``."""

    kernels: ClassVar[tuple[Callable[..., Any], ...]]
    """The generic functions whose kernels its subclasses give."""
    named: ClassVar[dict[str, Any]]
    """Every class of its kind that has been defined, by its canonical name."""
    learns_from_propensity: ClassVar[bool] = False
    """Whether ``learn`` needs the decision's propensity (as importance weighting does)."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dispatch.register(cls, cls.kernels)
        dispatch.enlist(cls, cls.named)

    @cached_property
    def params(self) -> Any:
        """The numbers that kernels read, each of the type that its annotation says."""
        layout = type(self).Params  # type: ignore[attr-defined]
        hints = get_type_hints(layout)
        values = ((hints[field], getattr(self, field)) for field in layout._fields)
        return layout(*(kind(value) if kind in (int, float) else value for kind, value in values))
