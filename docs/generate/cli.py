"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from generate.tables import code, table
from tacit.cli import cli


def commands(command: click.Command = cli, path: str = "tacit") -> Iterator[tuple[str, click.Command]]:
    """Give every command with what is typed to call it."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in dict.fromkeys([*command.commands, *command.list_commands(context)]):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, f"{path} {name}")
    else:
        yield path, command


def part() -> str:
    """Return the commands, each with its options."""
    return "\n\n".join(described(path, command) for path, command in commands())


def described(path: str, command: click.Command) -> str:
    """Return what there is to know of a command."""
    context = click.Context(command, info_name=path)
    pieces = command.collect_usage_pieces(context)
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    rows = [row(path, option) for option in options]
    rows.append([code("--help"), "", "", "Show this message and exit."])
    text = (command.help or "").replace("\b\n", "")
    usage = f"```text\n{path} {' '.join(pieces)}\n```"
    return f"## {path}\n\n{text}\n\n{usage}\n\n{table(['option', 'value', 'default', ''], rows)}"


def row(path: str, option: click.Option) -> list[str]:
    """Return what there is to know of an option."""
    names = " ".join(code(name) for name in option.opts)
    notes = (option.help or "").partition("  [default: ")
    default = given(option.default) or notes[2].rstrip("]")
    said = "more than once" in notes[0]
    many = " May be given more than once." if option.multiple and not said else ""
    must = " Must be given." if option.required else ""
    return [names, value(option), code(default), notes[0] + many + must]


def given(default: Any) -> str:
    """Return a default as it would be typed; nothing for none."""
    # Options without a default have a sentinel in place of None.
    if isinstance(default, bool) or default is None or callable(default):
        return ""
    if isinstance(default, list | tuple):
        return ", ".join(map(str, default))
    return "" if "Sentinel" in type(default).__name__ or "UNSET" in repr(default) else str(default)


def value(option: click.Option) -> str:
    """Return what an option takes; nothing for a flag."""
    kind = option.type
    if option.is_flag:
        return ""
    if option.metavar:
        return code(option.metavar)
    if isinstance(kind, click.Choice):
        return ", ".join(code(choice) for choice in kind.choices)
    if isinstance(kind, click.IntRange | click.FloatRange):
        low = "" if kind.min is None else f" from {kind.min}"
        high = "" if kind.max is None else f" to {kind.max}"
        whole = "whole number" if isinstance(kind, click.IntRange) else "number"
        return f"{whole}{low}{high}"
    return {"path": "path", "text": "text", "float": "number", "integer": "whole number"}.get(
        kind.name, kind.name
    )
