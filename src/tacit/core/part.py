"""Base of policies, environments and classifiers: checked fields, parameters of kernels, text notation.

Checks of fields; parts, whose fields are checked at construction and become a named tuple for
kernels; parts as text, which is parsed and never evaluated.
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
from tacit.core.dispatch import canonical_name
from tacit.errors import InvalidValue, UnknownName, check_call
from tacit.lazy_imports import add_import_folders

# ---- Fields with ranges: constructor arguments are checked and stored in canonical form

Check = Callable[[str, Any], Any]
"""Takes a field's name and value; returns the value in its canonical form, or raises."""


def float_range(low: float, high: float, *, open_low: bool = False) -> Check:
    """Return a check of a field: it returns a number within [low, high] as a float, or raises InvalidValue.

    With ``open_low`` the range is (low, high].
    """
    return lambda field, value: checks.number(field, value, low, high, open_low=open_low)


def int_range(low: int, high: int = 2**62) -> Check:
    """Return a check of a field: it returns a whole number within [low, high] as an int, or raises
    InvalidValue.
    """
    return lambda field, value: checks.integer(field, value, low, high)


def one_word(*allowed: str) -> Check:
    """Return a check of a field: it returns one of the allowed words as text, or raises InvalidValue."""

    def check(field: str, value: Any) -> str:
        """Return the value as text if it is an allowed word; raise InvalidValue otherwise."""
        if value not in allowed:
            raise InvalidValue(field, value, f"give one of {', '.join(allowed)}")
        return str(value)

    return check


def optional(check: Check) -> Check:
    """Return a check of a field: it returns None unchanged, and passes any other value to ``check``."""
    return lambda field, value: None if value is None else check(field, value)


def check_not_text(field: str, value: Any) -> Any:
    """Return ``value`` unless it is text, which raises InvalidValue; the check of numeric fields without a
    range.
    """
    if isinstance(value, str):
        raise InvalidValue(field, value, "give a number, or true or false")
    return value


Positive = Annotated[float, checks.positive]
Fraction = Annotated[float, float_range(0.0, 1.0)]
PositiveFraction = Annotated[float, float_range(0.0, 1.0, open_low=True)]
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
    """Base of frozen dataclasses whose fields are annotated with their checks.

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
        """Create an instance, after checking that the call's arguments fit the constructor.

        Raises TypeError for a class that is no dataclass, or for an argument whose field lacks an annotation.
        """
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
        """Run the check of each field, and store the value that it returns."""
        kind: type = type(self)
        for field, check in field_checks(kind).items():
            set_field(self, field, check(field, getattr(self, field)))


def set_field(part: Checked, field: str, value: Any) -> None:
    """Set a field of a frozen instance, which is only right during its construction."""
    object.__setattr__(part, field, value)


@cache
def field_checks(kind: type) -> dict[str, Check]:
    """Return the checks of a class's constructor fields by field name; fields without a check are left out.

    A subclass that declares a field again keeps its check, unless it annotates another one.
    """
    checks_by_field: dict[str, Check] = {}
    for base in reversed(kind.__mro__):
        for field, hint in _annotations(base).items():
            if hasattr(hint, "__metadata__"):
                checks_by_field[field] = hint.__metadata__[0]
            elif hint in (int, float, bool):
                checks_by_field.setdefault(field, check_not_text)
    init_fields = (field.name for field in fields(kind) if field.init)
    return {name: checks_by_field[name] for name in init_fields if name in checks_by_field}


@cache
def _annotations(kind: Any) -> dict[str, Any]:
    """Return the annotations of a class or function, without inherited ones; {} if a name in them is not
    defined.
    """
    try:
        return get_annotations(kind, eval_str=True)
    except NameError:
        return {}


# ---- Parts of a compiled loop: base of policies, environments and classifiers

if TYPE_CHECKING:
    param = property
else:

    class param(property):
        """A property that kernels read: a member of ``Params``, like numeric fields."""


class Part(Checked):
    """A frozen configuration with kernels, which are resolved by the type of its ``Params``.

    ``Params`` is the type of the named tuple that kernels read, derived from the class. Its members are

    - the fields annotated as ``int``, ``float`` or ``bool``, with or without a range;
    - of fields annotated as another part, the ``params`` of that part;
    - the properties that are marked with :class:`param`.

    A kernel annotates ``params`` as the class itself, so that type checkers know its attributes.
    If kernels read other values, the class declares its ``Params`` as a nested ``NamedTuple``. A
    class that is only a base of others is declared with ``abstract=True``: it has no ``Params`` and is not
    registered.
    """

    kernels: ClassVar[tuple[Callable[..., Any], ...]]
    """The generic functions that its subclasses may implement as kernels."""
    defaults: ClassVar[dict[str, Callable[..., Any]]] = {}
    """Kernels, by name, of the generic functions that a subclass need not implement."""
    named: ClassVar[dict[str, Any]]
    """Registry of all defined classes of its kind, by canonical name."""
    keeps_repr: ClassVar[bool] = False
    """Whether subclasses keep the inherited ``__repr__``, which a dataclass would replace by its own."""
    learns_from_propensity: ClassVar[bool] = False
    """Whether ``learn`` needs the decision's propensity (as importance weighting does)."""

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: Any) -> None:
        """Derive the ``Params`` of a new class and register its kernels and name, unless it is abstract."""
        super().__init_subclass__(**kwargs)
        if cls.keeps_repr and "__repr__" not in cls.__dict__:
            cls.__repr__ = cls.__repr__  # type: ignore[method-assign]
        if abstract:
            return
        _define_params(cls)
        dispatch.register(cls, cls.kernels)
        dispatch.register_name(cls, cls.named)

    @cached_property
    def params(self) -> Any:
        """The named tuple of values that kernels read, each of its annotated type; computed once."""
        layout = type(self).Params  # type: ignore[attr-defined]
        hints = _read_hints(layout)
        return layout(*(_convert_param(hints[name], getattr(self, name)) for name in layout._fields))

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without ``params``: unpickled arrays may be read-only, which is
        another type to compiled code."""
        return {name: value for name, value in vars(self).items() if name != "params"}


_read_hints = cache(get_type_hints)


def _convert_param(kind: Any, value: Any) -> Any:
    """Return an attribute as a member of ``Params``: a part as its params, a number converted to type
    ``kind``.
    """
    if isinstance(value, Part):
        return value.params
    return kind(value) if kind in (int, float, bool) else value


def _define_params(kind: Any) -> None:
    """Set ``Params`` of a class to a named tuple derived from its fields, unless it or a base declares one
    itself.
    """
    params_type = getattr(kind, "Params", None)
    if params_type is None or hasattr(params_type, "is_derived"):
        named_tuple: Any = NamedTuple
        layout = named_tuple("Params", _param_fields(kind))
        layout.__module__, layout.__qualname__ = kind.__module__, f"{kind.__qualname__}.Params"
        layout.is_derived = True
        kind.Params = layout


def _param_fields(kind: type) -> list[tuple[str, Any]]:
    """Return names and types of the members of ``Params``: fields before properties, bases first."""
    fields_of: dict[str, Any] = {}
    params_of: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        # The origin of an Annotated is its type, without the check.
        fields_of |= {name: getattr(hint, "__origin__", hint) for name, hint in _annotations(base).items()}
        properties = {name: value.fget for name, value in vars(base).items() if isinstance(value, param)}
        params_of |= {name: _annotations(get)["return"] for name, get in properties.items()}
    numbers_and_parts = [(name, hint) for name, hint in fields_of.items() if _is_number_or_part(hint)]
    return numbers_and_parts + list(params_of.items())


def _is_number_or_part(hint: Any) -> bool:
    """True if an annotation is int, float, bool or a class of parts."""
    return hint in (int, float, bool) or (isinstance(hint, type) and issubclass(hint, Part))


# ---- Parts as text: calls such as ``ucb1(alpha=0.5)``, parsed and never evaluated

Kind = TypeVar("Kind")

GRAMMAR = 'give a name, or a call such as "ucb1(alpha=0.5)" or "exploration-floor(ucb1, epsilon=0.1)"'


def find_class(
    name: str, registry: dict[str, type[Kind]], base: type[Kind], other_names: str = ""
) -> type[Kind]:
    """Return the class of this name from ``registry``, or import it as ``module:Class``.

    An imported class must be a subclass of ``base``. Raise UnknownName, with a suggestion, if there is none.
    ``other_names`` has further names, separated by blanks, that may be suggested.
    """
    if ":" not in name and canonical_name(name) in registry:
        return registry[canonical_name(name)]
    add_import_folders()
    if ":" in name:
        return _import_class(name, base)
    kind = base.__name__.lower()
    names = ", ".join(sorted(entry.__name__ for entry in registry.values()))
    plain = canonical_name(name.rpartition(".")[2])
    # Shorter names begin others by chance.
    prefixes = sorted(
        (candidate for candidate in registry if len(candidate) > 4 and plain.startswith(candidate)), key=len
    )
    near = prefixes[-1:] or get_close_matches(plain, [*registry, *other_names.split()], n=1)
    suggestions = [registry[candidate].__name__ if candidate in registry else candidate for candidate in near]
    if not near and name.isidentifier() and (name in sys.modules or find_spec(name)):
        suggestions = [f"{name}:CLASS"]
    remedy = f"did you mean {suggestions[0]}?" if suggestions else f"there are {names};"
    raise UnknownName(f'{kind}: none is called {name!r}; {remedy} "module:Class" is for your own')


def _import_class(name: str, base: type[Kind]) -> type[Kind]:
    """Import the class that ``name``, ``module:Class``, stands for; raise UnknownName unless it is a subclass
    of ``base``.
    """
    module, _, attribute = name.partition(":")
    kind = base.__name__.lower()
    try:
        imported = getattr(importlib.import_module(module), attribute)
    except AttributeError as error:
        namespace = vars(sys.modules.get(module, base))
        classes = [
            attribute_name
            for attribute_name, value in namespace.items()
            if isinstance(value, type) and issubclass(value, base)
        ]
        problem = f"{kind}: {module} has no {attribute!r}; it has {', '.join(classes) or 'none'}"
        raise UnknownName(problem) from error
    except (ImportError, ValueError) as error:
        where = f"; call it where {module}.py lies, or install it"
        if module.endswith(".py"):
            where = f"; give it without .py: {module.removesuffix('.py')}:{attribute}"
        raise UnknownName(f"{kind}: cannot import {name!r}: {error}{where}") from error
    if not (isinstance(imported, type) and issubclass(imported, base)):
        raise UnknownName(f"{kind}: {name!r} is not a subclass of tacit.{base.__name__}")
    return imported


def match_arguments(
    kind: type, order: list[str], positional: list[Any], named: dict[str, Any]
) -> dict[str, Any]:
    """Return a call's arguments as a dict by the names of the dataclass fields that they set.

    ``order`` names the fields of positional arguments. Fields with defaults may be absent, and so may
    ``arms``, which the caller adds.

    Raises
    ------
    InvalidValue
        If there are too many arguments, a name is no field, a field is given by position and by name, or a
        field without a default is absent.
    """
    # Those that may be given by position come first.
    field_names = [f.name for f in sorted(fields(kind), key=lambda f: bool(f.kw_only)) if f.init]
    surplus = [*positional[len(order) :], *(name for name in named if name not in field_names)]
    if surplus:
        hint = ""
        if len(positional) > len(order) and all(isinstance(argument, int | float) for argument in positional):
            kinds = {field.name: str(field.type) for field in fields(kind)}
            listed = [name for name in order if "Any" in kinds[name] or "tuple" in kinds[name]]
            hint = f"; a list goes into brackets: {listed[0]}={positional}" if listed else ""
        raise InvalidValue(kind.__name__, surplus[0], f"it takes {', '.join(field_names)}{hint}")
    arguments = dict(zip(order, positional, strict=False))
    for name in filter(named.__contains__, arguments):
        remedy = "give it by position or by name, not by both"
        raise InvalidValue(f"{kind.__name__}.{name}", named[name], remedy)
    arguments |= named
    for field in fields(kind):
        lacks = field.default is MISSING and field.default_factory is MISSING
        if field.init and lacks and field.name not in arguments and field.name != "arms":
            remedy = f"it must be given, as in {kind.__name__}({field.name}=…)"
            raise InvalidValue(f"{kind.__name__}.{field.name}", None, remedy)
    return arguments


SplitCall = tuple[str, list[Any], dict[str, Any]]
"""A name, and its arguments by position and by name."""


def read_call(kind: str, spec: Any, remedy: str, *, imports: bool) -> SplitCall:
    """Split a part's spec, text or a dict with ``name``, into its name, positional and named arguments.

    Raises
    ------
    InvalidValue
        If ``spec`` is neither.
    UnknownName
        If the part must be imported, but not ``imports``.
    """
    if isinstance(spec, str):
        name, positional, named = parse_call(spec, kind, remedy)
    elif isinstance(spec, dict) and isinstance(spec.get("name"), str):
        name, positional = spec["name"], []
        named = {key: value for key, value in spec.items() if key != "name"}
    else:
        raise InvalidValue(kind, spec, remedy)
    if ":" in name and not imports:
        raise UnknownName(f"{kind}: {name!r} may not be imported from here; import it yourself")
    return name, positional, named


def parse_call(text: str, kind: str = "policy", remedy: str = GRAMMAR) -> SplitCall:
    """Split ``name(literal, name=literal, …)`` into a name and arguments, without evaluating anything.

    Raises InvalidValue with ``remedy`` if the text has another form.
    """
    match = re.fullmatch(r"\s*([\w.:-]+)\s*(\(.*\))?\s*", text, re.DOTALL)
    if not match:
        hint = f"; several: --{kind} once for each" if re.fullmatch(r"[\w, -]+", text) else ""
        raise InvalidValue(kind, text, remedy + hint)
    name, arguments = match.group(1), match.group(2) or "()"
    try:
        call = ast.parse("_" + _replace_hyphens(arguments), mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ValueError(text)
        positional = [_parse_literal(node) for node in call.args]
        named = {str(keyword.arg): _parse_literal(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        remedy = f"{remedy}; a schema in a file goes with --column context=@FILE" if "=@" in text else remedy
        raise InvalidValue(kind, text, remedy) from None
    return name, positional, named


def _replace_hyphens(arguments: str) -> str:
    """Return a call's arguments with hyphens inside bare names replaced by underscores, as Python reads them
    as minus.

    Text in quotes stays.
    """
    pieces = re.split(r"""("[^"]*"|'[^']*')""", arguments)
    return "".join(
        piece if i % 2 else re.sub(r"(?<=[A-Za-z])-(?=[A-Za-z])", "_", piece)
        for i, piece in enumerate(pieces)
    )


def _parse_literal(node: ast.expr) -> Any:
    """Return the value of a literal, or of ``true`` and ``false``; return a bare name or a call as text.

    Raises ValueError for other expressions.
    """
    if isinstance(node, (ast.Name, ast.Call)):
        word = ast.unparse(node)
        return {"true": True, "false": False}.get(word, word)
    return ast.literal_eval(node)
