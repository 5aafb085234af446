"""What policies, environments and classifiers have in common: fields, ranges, a compiled part, text.

Checks of fields; parts, whose fields are checked when they are made and which become a named tuple for
kernels; parts as text, parsed and never evaluated.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from difflib import get_close_matches
from functools import cache, cached_property
from importlib.util import find_spec
from inspect import get_annotations
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, get_type_hints

from tacit.core import checks, dispatch
from tacit.core.arrays import floats
from tacit.core.dispatch import canonical
from tacit.errors import InvalidValue, UnknownName, check_call

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


def no_text(field: str, value: Any) -> Any:
    """Return ``value`` unless it is text, which a field without a range takes for no number and no truth."""
    if isinstance(value, str):
        raise InvalidValue(field, value, "give a number, or true or false")
    return value


Positive = Annotated[float, checks.positive]
Fraction = Annotated[float, within(0.0, 1.0)]
PositiveFraction = Annotated[float, within(0.0, 1.0, open_low=True)]
Flag = Annotated[bool, checks.flag]


def probabilities(field: str, value: Any, ndim: int = 1) -> Any:
    """Return ``value`` as nested tuples of probabilities, ``ndim`` deep.

    Raises
    ------
    InvalidValue
        If it has another shape or a number outside [0, 1].
    """
    array = floats(value)
    if array.ndim != ndim or array.size == 0 or not ((array >= 0.0) & (array <= 1.0)).all():
        shape = "a list" if ndim == 1 else "a list of equally long lists"
        raise InvalidValue(field, value, f"give {shape} of numbers in [0, 1]")
    return tuple(array.tolist()) if ndim == 1 else tuple(map(tuple, array.tolist()))


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

    def __new__(cls, *given: Any, **named: Any) -> Self:
        for name in named.keys() - cls.__dataclass_fields__.keys():  # type: ignore[attr-defined]
            if name in get_annotations(cls):
                raise TypeError(f"{cls.__name__} is no dataclass; write @dataclass(frozen=True) above it")
            if isinstance(cls.__dict__.get(name), bool | int | float | str | tuple):
                remedy = f"write what it is, as in {name}: float = {cls.__dict__[name]!r}"
                raise TypeError(f"{cls.__name__}.{name} has no annotation, so is no field; {remedy}")
        if given or named:  # a copy is made without any
            check_call(cls.__init__, cls.__name__, (cls, *given), named)  # type: ignore[misc]
        return super().__new__(cls)

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
            elif hint in (int, float, bool):
                found.setdefault(field, no_text)
    made_with = (field.name for field in fields(kind) if field.init)
    return {name: found[name] for name in made_with if name in found}


@cache
def _annotations(kind: Any) -> dict[str, Any]:
    """Return the annotations of a class or function itself; none if they name what only its maker can see."""
    try:
        return get_annotations(kind, eval_str=True)
    except NameError:
        return {}


# ---- What policies, environments and classifiers have in common: a *part* of a compiled loop

if TYPE_CHECKING:
    param = property
else:

    class param(property):
        """A property that kernels read: it is a member of ``Params``, as fields that are numbers are."""


class Part(Checked):
    """A frozen description with kernels, which are found by the type of its ``Params``.

    ``Params`` is the type of the named tuple that kernels read, made with the class. Its members are

    - the fields annotated as ``int``, ``float`` or ``bool``, with or without a range;
    - of fields annotated as another part, the ``params`` of that part;
    - the properties that are marked with :class:`param`.

    A kernel annotates ``params`` as the class itself, so that type checkers know what it may read.
    Where kernels read something else, the class writes its ``Params`` out, as a nested ``NamedTuple``. A
    class that is only a base of others says ``abstract=True``: it has none, and no name in tables.
    """

    kernels: ClassVar[tuple[Callable[..., Any], ...]]
    """The generic functions whose kernels its subclasses give."""
    named: ClassVar[dict[str, Any]]
    """Every class of its kind that has been defined, by its canonical name."""
    learns_from_propensity: ClassVar[bool] = False
    """Whether ``learn`` needs the decision's propensity (as importance weighting does)."""

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if abstract:
            return
        _give_params(cls)
        dispatch.register(cls, cls.kernels)
        dispatch.enlist(cls, cls.named)

    @cached_property
    def params(self) -> Any:
        """The numbers that kernels read, each of the type that its annotation says."""
        layout = type(self).Params  # type: ignore[attr-defined]
        hints = get_type_hints(layout)
        return layout(*(_for_kernels(hints[name], getattr(self, name)) for name in layout._fields))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what kernels read: arrays that come from another process may be read-only, which is
        another type to compiled code."""
        return {name: value for name, value in vars(self).items() if name != "params"}


def _for_kernels(kind: Any, value: Any) -> Any:
    """Return a member of Params from the attribute of its name."""
    if isinstance(value, Part):
        return value.params
    return kind(value) if kind in (int, float, bool) else value


def _give_params(kind: Any) -> None:
    """Give a class the type of its Params, unless one is written out in it or in a base of it."""
    given = getattr(kind, "Params", None)
    if given is None or hasattr(given, "is_derived"):
        named_tuple: Any = NamedTuple
        layout = named_tuple("Params", _read_by_kernels(kind))
        layout.__module__, layout.__qualname__ = kind.__module__, f"{kind.__qualname__}.Params"
        layout.is_derived = True
        kind.Params = layout


def _read_by_kernels(kind: type) -> list[tuple[str, Any]]:
    """Return names and types of the members of Params: fields first, those of bases before others."""
    fields_of: dict[str, Any] = {}
    params_of: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        fields_of |= {name: getattr(hint, "__origin__", hint) for name, hint in _annotations(base).items()}
        properties = {name: value.fget for name, value in vars(base).items() if isinstance(value, param)}
        params_of |= {name: _annotations(get)["return"] for name, get in properties.items()}
    found = [(name, hint) for name, hint in fields_of.items() if _is_number_or_part(hint)]
    return found + list(params_of.items())


def _is_number_or_part(hint: Any) -> bool:
    return hint in (int, float, bool) or (isinstance(hint, type) and issubclass(hint, Part))


# ---- Parts as text: calls such as ``ucb1(alpha=0.5)``, parsed and never evaluated

Kind = TypeVar("Kind")

GRAMMAR = 'give a name, or a call such as "ucb1(alpha=0.5)" or "exploration-floor(ucb1, epsilon=0.1)"'


def named_class(name: str, known: dict[str, type[Kind]], base: type[Kind], also: str = "") -> type[Kind]:
    """Find a class by its name in ``known``, or as ``module:Class`` below ``base``.

    ``also`` is what else may have been meant, which is no class.
    """
    if ":" in name:
        return _imported_class(name, base)
    if canonical(name) in known:
        return known[canonical(name)]
    kind = base.__name__.lower()
    names = ", ".join(sorted(found.__name__ for found in known.values()))
    plain = canonical(name.rpartition(".")[2])
    begins = sorted((each for each in known if len(each) > 4 and plain.startswith(each)), key=len)
    near = begins[-1:] or get_close_matches(plain, [*known, *also.split()], n=1)
    meant = [known[each].__name__ if each in known else each for each in near]
    if not near and name.isidentifier() and (name in sys.modules or find_spec(name)):
        meant = [f"{name}:CLASS"]
    remedy = f"did you mean {meant[0]}?" if meant else f"there are {names};"
    raise UnknownName(f'{kind}: none is called {name!r}; {remedy} "module:Class" is for your own')


def _imported_class(name: str, base: type[Kind]) -> type[Kind]:
    module, _, attribute = name.partition(":")
    kind = base.__name__.lower()
    try:
        found = getattr(importlib.import_module(module), attribute)
    except AttributeError as error:
        known = vars(sys.modules.get(module, base))
        there = [each for each, value in known.items() if isinstance(value, type) and issubclass(value, base)]
        raise UnknownName(
            f"{kind}: {module} has no {attribute!r}; it has {', '.join(there) or 'none'}"
        ) from error
    except (ImportError, ValueError) as error:
        where = f"; call it where {module}.py lies, or install it"
        if module.endswith(".py"):
            where = f"; give it without .py: {module.removesuffix('.py')}:{attribute}"
        raise UnknownName(f"{kind}: cannot import {name!r}: {error}{where}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise UnknownName(f"{kind}: {name!r} is not a subclass of tacit.{base.__name__}")
    return found


def matched(made: type, order: list[str], positional: list[Any], named: dict[str, Any]) -> dict[str, Any]:
    """Match a call's arguments to the fields of a dataclass, or say what it takes."""
    takes = [field.name for field in fields(made) if field.init]
    surplus = [*positional[len(order) :], *(name for name in named if name not in takes)]
    if surplus:
        hint = ""
        if len(positional) > len(order) and all(isinstance(each, int | float) for each in positional):
            kinds = {field.name: str(field.type) for field in fields(made)}
            listed = [name for name in order if "Any" in kinds[name] or "tuple" in kinds[name]]
            hint = f"; a list goes into brackets: {listed[0]}={positional}" if listed else ""
        raise InvalidValue(made.__name__, surplus[0], f"it takes {', '.join(takes)}{hint}")
    given = dict(zip(order, positional, strict=False)) | named
    for field in fields(made):
        lacks = field.default is MISSING and field.default_factory is MISSING
        if field.init and lacks and field.name not in given and field.name != "arms":
            remedy = f"it must be given, as in {made.__name__}({field.name}=…)"
            raise InvalidValue(f"{made.__name__}.{field.name}", None, remedy)
    return given


SplitCall = tuple[str, list[Any], dict[str, Any]]
"""A name, and its arguments by position and by name."""


def read_call(kind: str, spec: Any, remedy: str, *, imports: bool) -> SplitCall:
    """Return name and arguments of a part that is given as text or as a table with its ``name``.

    Raises
    ------
    InvalidValue
        If it is neither.
    UnknownName
        If it would be imported where ``imports`` forbids it.
    """
    if isinstance(spec, str):
        name, positional, named = parsed_call(spec, kind, remedy)
    elif isinstance(spec, dict) and isinstance(spec.get("name"), str):
        name, positional = spec["name"], []
        named = {key: value for key, value in spec.items() if key != "name"}
    else:
        raise InvalidValue(kind, spec, remedy)
    if ":" in name and not imports:
        raise UnknownName(f"{kind}: {name!r} may not be imported from here; import it yourself")
    return name, positional, named


def parsed_call(text: str, kind: str = "policy", remedy: str = GRAMMAR) -> SplitCall:
    """Split ``name(literal, name=literal, …)`` without evaluating anything."""
    match = re.fullmatch(r"\s*([\w.:-]+)\s*(\(.*\))?\s*", text, re.DOTALL)
    if not match:
        several = f"; several: --{kind} once for each" if re.fullmatch(r"[\w, -]+", text) else ""
        raise InvalidValue(kind, text, remedy + several)
    name, arguments = match.group(1), match.group(2) or "()"
    try:
        call = ast.parse("_" + _without_hyphens(arguments), mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ValueError(text)
        positional = [_value(node) for node in call.args]
        named = {str(keyword.arg): _value(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        remedy = f"{remedy}; a schema in a file goes with --column context=@FILE" if "=@" in text else remedy
        raise InvalidValue(kind, text, remedy) from None
    return name, positional, named


def _without_hyphens(arguments: str) -> str:
    """Replace hyphens inside bare names, which would be read as minus signs, by underscores."""
    pieces = re.split(r"""("[^"]*"|'[^']*')""", arguments)
    return "".join(
        piece if i % 2 else re.sub(r"(?<=[A-Za-z])-(?=[A-Za-z])", "_", piece)
        for i, piece in enumerate(pieces)
    )


def _value(node: ast.expr) -> Any:
    """Return a literal's value, also true and false; a bare name or a call stands for a policy, as text."""
    if isinstance(node, (ast.Name, ast.Call)):
        word = ast.unparse(node)
        return {"true": True, "false": False}.get(word, word)
    return ast.literal_eval(node)
