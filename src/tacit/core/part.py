"""What policies, environments and classifiers have in common: fields with ranges, a compiled part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache, cached_property
from inspect import get_annotations
from typing import Annotated, Any, ClassVar, get_type_hints

from tacit.core import checks, dispatch
from tacit.errors import InvalidValue

# ---- Fields that say their ranges: what a class is made with is checked, and kept as it should be

Check = Callable[[str, Any], Any]
"""Takes a field's name and value; returns the value in its canonical form, or raises."""


def within(low: float, high: float, *, open_low: bool = False) -> Check:
    """Return the check for a float within [low, high], or (low, high] if ``open_low``."""
    return lambda field, value: checks.number(field, value, low, high, open_low=open_low)


def whole(low: int, high: int = 2**62) -> Check:
    """Return the check for an int within [low, high]."""
    return lambda field, value: checks.integer(field, value, low, high)


def one_of(*allowed: str) -> Check:
    """Return the check for one of some words."""

    def check(field: str, value: Any) -> str:
        if value not in allowed:
            raise InvalidValue(field, value, f"give one of {', '.join(allowed)}")
        return str(value)

    return check


def optional(check: Check) -> Check:
    """Return a check that lets None through."""
    return lambda field, value: None if value is None else check(field, value)


Positive = Annotated[float, checks.positive]
Fraction = Annotated[float, within(0.0, 1.0)]
PositiveFraction = Annotated[float, within(0.0, 1.0, open_low=True)]
Flag = Annotated[bool, checks.flag]


class Checked:
    """Base of frozen dataclasses whose fields are annotated with what checks them.

    Raises
    ------
    InvalidValue
        If a value is out of its field's range.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Radius(Checked):
    ...     scale: Positive = 1
    >>> Radius(2)
    Radius(scale=2.0)
    """

    def __post_init__(self) -> None:
        kind: type = type(self)
        for field, check in ranges(kind).items():
            self._set(field, check(field, getattr(self, field)))

    def _set(self, field: str, value: Any) -> None:
        """Store the canonical form of a field while the object is being made."""
        object.__setattr__(self, field, value)


@cache
def ranges(kind: type) -> dict[str, Check]:
    """Return the check of each field that a class is made with and that has one.

    A subclass that declares a field again keeps its check, unless it says another.
    """
    found: dict[str, Check] = {}
    for base in reversed(kind.__mro__):
        for field, hint in _annotations(base).items():
            if hasattr(hint, "__metadata__"):
                found[field] = hint.__metadata__[0]
    made_with = (field.name for field in fields(kind) if field.init)
    return {name: found[name] for name in made_with if name in found}


def _annotations(kind: type) -> dict[str, Any]:
    """Return the annotations of a class itself; none if they name what only its maker can see."""
    try:
        return get_annotations(kind, eval_str=True)
    except NameError:
        return {}


# ---- What policies, environments and classifiers have in common: a *part* of a compiled loop


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
