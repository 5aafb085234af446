"""Commands from functions: arguments and options are what a signature and its docstring say.

A parameter before the ``*`` is an argument, one behind it an option. Its type says what it takes, its
default what it is if it is not given, and its text under ``Parameters`` is its help. A parameter whose
type is a dataclass stands for the options that are the fields of that class. What types cannot say
stands in ``Annotated``: a type of click's (a range, a path that must exist), a text that several
commands share, which their own follow, or an :class:`Typed`.

All commands are made at every start. Their files do without ``from __future__ import annotations``, for
types that are objects already are read much faster than texts.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import click

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Typed:
    """What a signature cannot say of an argument or option.

    Parameters
    ----------
    flags
        As it is typed, where that is not the parameter's name.
    metavar
        What help texts call its value.
    envvar
        A variable of the environment that has it, besides that of the command.
    bare
        Its value where the option is typed without one.
    """

    flags: tuple[str, ...] = ()
    metavar: str | None = None
    envvar: str | None = None
    bare: str | None = None


def command(
    *, group: click.Group | None = None, name: str | None = None, configured: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator that makes a function a command.

    Parameters
    ----------
    group
        The group it belongs to.
    name
        What it is called, where that is not the function's name.
    configured
        Whether a TOML file can give its options.
    """

    def made(function: Callable[..., None]) -> click.Command:
        found = click.Command(
            name or function.__name__,
            callback=with_records(function),
            params=[*([config_file()] if configured else []), *parameters(function)],
            help=described(function)[0],
        )
        if group is not None:
            group.add_command(found)
        return found

    return made


def parameters(function: Callable[..., Any]) -> Iterator[click.Parameter]:
    """Yield the arguments and options of a function, or of a dataclass."""
    hints = get_type_hints(function, include_extras=True)
    _, texts = described(function)
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if is_record(hint):
            yield from parameters(hint)
        elif parameter.kind is parameter.KEYWORD_ONLY:
            yield option(name, Hint.of(hint), parameter.default, texts.get(name))
        else:
            yield argument(name, Hint.of(hint), parameter.default)


def described(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the text of a docstring, and what it says of each parameter."""
    text, _, listed = (inspect.getdoc(function) or "").partition("\n\nParameters\n----------\n")
    texts: dict[str, str] = {}
    name = ""
    for line in listed.splitlines():
        if line.startswith(" "):
            texts[name] = f"{texts[name]} {line.strip()}".strip()
        else:
            name = line
            texts[name] = ""
    return text, texts


def is_record(hint: Any) -> bool:
    """Whether a type is a dataclass, whose fields are options."""
    return isinstance(hint, type) and is_dataclass(hint)


class Hint(NamedTuple):
    """What the type of a parameter says: its values, whether there are many, and what is annotated."""

    type: Any
    many: bool
    text: str | None
    more: Typed

    @classmethod
    def of(cls, hint: Any) -> Hint:
        """Read a type."""
        hint = without_none(hint)
        kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        many = get_origin(kind) is tuple
        kind = get_args(kind)[0] if many else kind
        if get_origin(kind) is Literal:
            kind = click.Choice(get_args(kind))
        elif kind is Path:
            kind = click.Path(path_type=Path)
        text, more = None, Typed()
        for note in notes:
            if isinstance(note, click.ParamType):
                kind = note
            elif isinstance(note, Typed):
                more = note
            else:
                text = note
        return cls(kind, many, text, more)


def without_none(hint: Any) -> Any:
    """Return what else a parameter may be that may be None."""
    kinds = get_args(hint)
    return kinds[0] if type(None) in kinds else hint


def argument(name: str, hint: Hint, default: Any) -> click.Argument:
    """Return the argument for a parameter."""
    required = default is inspect.Parameter.empty
    nargs = -1 if hint.many else 1
    return click.Argument([name], type=hint.type, nargs=nargs, required=required, metavar=hint.more.metavar)


def option(name: str, hint: Hint, default: Any, text: str | None) -> click.Option:
    """Return the option for a parameter."""
    more: dict[str, Any] = {}
    if default is inspect.Parameter.empty:
        more["required"] = True
    elif hint.type is bool:
        more["is_flag"] = True
    elif default not in (None, ()):
        more |= {"default": default, "show_default": True}
    if hint.more.bare is not None:
        more |= {"is_flag": False, "flag_value": hint.more.bare}
    if hint.type is not bool:
        more |= {"type": hint.type, "multiple": hint.many}
    flags = hint.more.flags or ("--" + name.replace("_", "-"),)
    text = " ".join(filter(None, (hint.text, text)))
    return click.Option([*flags, name], help=text, metavar=hint.more.metavar, envvar=hint.more.envvar, **more)


def with_records(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function, taking for each dataclass the options that are its fields."""
    hints = get_type_hints(function)
    records: dict[str, Any] = {name: hint for name, hint in hints.items() if is_record(hint)}

    @wraps(function)
    def called(**given: Any) -> None:
        for name, record in records.items():
            given[name] = record(**{field.name: given.pop(field.name) for field in fields(record)})
        function(**given)

    return called if records else function


def config_file() -> click.Option:
    """Return the option ``--config``, which is read before all others."""
    return click.Option(
        ["--config"],
        type=FILE,
        callback=take_defaults,
        is_eager=True,
        expose_value=False,
        help="TOML file with defaults for these options.",
    )


def take_defaults(context: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    """Take defaults from the command's table of a TOML file."""
    if path is not None:
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise click.UsageError(f"{path}: {error}") from error
        table: Mapping[str, Any] = tables.get(str(context.info_name), {})
        options = {
            flag.lstrip("-").replace("-", "_"): str(parameter.name)
            for parameter in context.command.params
            for flag in parameter.opts
        }
        for name in table:
            if name.replace("-", "_") not in options:
                raise click.UsageError(f"{path}: [{context.info_name}] has no option {name!r}")
        context.default_map = {options[name.replace("-", "_")]: value for name, value in table.items()}
    return path
