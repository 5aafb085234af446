"""Build commands from functions, and share options, error messages and output between commands.

1. From a function to a command: type hints of parameters, click's arguments and options, help from
   docstrings.
2. Option types and groups of options that several commands have.
3. Printing of results, and parsing of option values.
"""

import inspect
import json
import math
import os
import re
import signal
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import click

from tacit.core.reward_range import UNIT_RANGE, read_range
from tacit.core.text import convert_duration, escape_controls, no_toml, parse_docstring
from tacit.errors import AssumptionWarning, ConfigError, LogError, TacitError, suggest_name
from tacit.lazy_imports import add_import_folders

if TYPE_CHECKING:
    from tacit.logs.reader import LogReader
    from tacit.logs.rows import LogReport

# ---- Commands from functions: a signature and its docstring define arguments and options


class ExistingPathType(click.Path):
    """Type of a path that must exist; the error has a remedy."""

    def __init__(
        self,
        remedy: str = "give one that is there, with its path from here or from the root",
        **settings: Any,
    ) -> None:
        super().__init__(exists=True, path_type=Path, **settings)
        self.remedy = remedy

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as a Path; raise click.BadParameter with the remedy if it does not exist."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            raise click.BadParameter(f"{error.message.rstrip('.')}; {self.remedy}", ctx, param) from None


class SingleOption(click.Option):
    """An option that refuses a second, different value instead of replacing the first one."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add the option to the parser, which collects all its values, unless it is a flag or repeatable."""
        if self.multiple or self.is_flag:
            super().add_to_parser(parser, ctx)
        else:
            parser.add_option(obj=self, opts=self.opts, dest=self.name, action="append", nargs=self.nargs)

    def consume_value(self, ctx: click.Context, opts: Any) -> Any:
        """Return the option's value; raise click.BadParameter if it was given twice with different values."""
        values = opts.get(self.name)
        if isinstance(values, list) and not self.multiple:
            if len(set(values)) > 1:
                texts = [" ".join(value) if isinstance(value, tuple) else value for value in values]
                raise click.BadParameter(single_value_error(texts), ctx, self)
            opts[self.name] = values[0]
        return super().consume_value(ctx, opts)


def single_value_error(items: list[Any]) -> str:
    """Return the error message for an option that takes one value, and got ``items``; it names the texts."""
    values = ", ".join(repr(value) for value in items if isinstance(value, str))
    return f"{values}: only one can count; give it once, with commas between where it takes several"


EXAMPLES = {
    "file": "items.parquet", "folder": "exported", "ids": "doc-17", "log": "clicks.parquet",
    "logs": "clicks.parquet", "out": "clicks.parquet", "output": "learner.tacit", "policy": "thompson",
    "records": "queries.ndjson events.ndjson", "shards": "4", "target": "backup.db",
    "until": "2030-01-01T12:00", "url": "http://127.0.0.1:8787", "arms": "film",
    "mode": "frozen",
}  # fmt: skip
"""Example values of required parameters, for errors; other parameters are names."""


USAGE_HINTS = (
    (".toml)", "--config", "give it as --config"),
    ("unexpected extra argument", "--add", "give each as an --add of its own"),
    ("--context", "--column", "who is asking is a column: --column context=age,device"),
    ("--url", "--store", "the log is read where it lies: give --config or --store"),
)
"""Remedies by text of click's error and by an option that the command must have."""


MIN_SIMILARITY = 0.93
"""Minimum similarity of a variable's name to that of an option for a warning about a typo."""


class ExplainedCommand(click.Command):
    """A command whose usage errors have a remedy."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments as click does, but raise usage errors with a remedy.

        Also warn of environment variables that are probably misspelt.
        """
        self._warn_variables(ctx)
        flags = [flag for parameter in self.params for flag in parameter.opts]
        for argument in args:
            if argument.startswith("-") and (long := f"-{argument.partition('=')[0]}") in flags:
                raise click.UsageError(f"No such option {argument!r}; did you mean {long}?", ctx)
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            examples = [example_text(parameter) for parameter in self.params if parameter.required]
            example = " ".join([ctx.command_path, *examples])
            message = f"{error.format_message().rstrip('.')}; for example: {example}"
            raise click.UsageError(message, ctx) from error
        except click.BadParameter as error:
            option = error.param
            if match := NUMBER_ERROR.fullmatch(error.message):
                seconds = convert_duration(match[2])
                example = f"{seconds}, in seconds" if seconds else NUMBERS[match[3]]
                why = f"{match[1]} is no number; give {example}"
                raise click.BadParameter(why, ctx, option) from None
            if isinstance(option, click.Option) and option.multiple and re.match(r"'[^']*,", error.message):
                why = f"{error.message.rstrip('.')}; give each by {option.opts[0]} of its own"
                raise click.BadParameter(why, ctx, option) from None
            raise
        except click.UsageError as error:
            for message, flag, remedy in USAGE_HINTS:
                if message in error.message and flag in flags:
                    raise click.UsageError(f"{error.message.rstrip('.')}; {remedy}", ctx) from error
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; raise TacitError with the remedy if a path to write cannot be written."""
        try:
            return super().invoke(ctx)
        except OSError as error:
            place = str(error.filename or error)
            for kind, path in ((each.type, ctx.params.get(str(each.name))) for each in self.params):
                # The path, a folder above it, or a file in or beside it. "." has no name, and says nothing.
                fits = isinstance(path, Path) and ("" < path.name in place or Path(place) in path.parents)
                # An input file may have been read in vain.
                if fits and not (isinstance(kind, ExistingPathType) and place == str(path)):
                    reason = f"cannot be written: {error.strerror or error}; give another"
                    raise TacitError(f"{path}: {reason}") from error
            raise

    def _warn_variables(self, ctx: click.Context) -> None:
        """Warn of environment variables without effect whose names are similar to an option's variable."""
        variable_by_short_name: dict[str, str] = {}
        variables: set[str] = set()
        for parameter in self.params:
            name = str(parameter.name).upper()
            names = list(parameter.envvar or (f"{ctx.auto_envvar_prefix}_{name}",))
            variable_by_short_name[f"TACIT_{name}"] = names[0]
            variables.update(names, [f"{ctx.auto_envvar_prefix}_{name}"])
        for name in sorted(os.environ.keys() - variables):
            if not name.startswith("TACIT_"):
                continue
            similar = get_close_matches(name, variables, 1, MIN_SIMILARITY)
            if right_name := variable_by_short_name.get(name) or next(iter(similar), None):
                message = f"{name}: it sets nothing; call it {right_name} if that is meant"
                warnings.warn(message, AssumptionWarning, stacklevel=2)


class ExplainedGroup(ExplainedCommand, click.Group):
    """A group of commands whose usage errors tell where a command or option belongs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments as click does; raise a usage error with a hint for an unknown option."""
        names = self.list_commands(ctx)
        command = next((argument for argument in args if argument in names), None)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if command is None:
                raise
            hint = f"options follow their command: {ctx.command_path} {command} {error.option_name} …"
            raise click.UsageError(f"{error.format_message().rstrip('.')}; {hint}", ctx) from None

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        """Return name, command and remaining arguments of the command that the first argument names.

        For an unknown name, raise click.UsageError with the most similar command and a list of all.
        """
        names, word = self.list_commands(context), args[0]
        if word in names or word.startswith("-"):
            return super().resolve_command(context, args)
        groups = [group for group in self.commands.values() if isinstance(group, click.Group)]
        subgroups = [group.name for group in groups if word in group.list_commands(context)]
        hint = f"{suggest_name(word, names)}; there is {', '.join(names)}"
        if subgroups:
            hint = f"; it is {context.command_path} {subgroups[0]} {word}"
        raise click.UsageError(f"No such command {word!r}{hint}", context)


NUMBERS = {"integer": "a whole number, such as 1000", "float": "a number, such as 0.5"}
NUMBER_ERROR = re.compile(r"('(.*)') is not a valid (integer|float)(?: range)?\.")


def example_text(parameter: click.Parameter) -> str:
    """Return an argument or option with an example value, as one would type it."""
    value = EXAMPLES.get(str(parameter.name), "home")
    return value if isinstance(parameter, click.Argument) else f"{parameter.opts[-1]} {value}"


class OptionFormat(NamedTuple):
    """Properties of an argument or option that a type hint cannot express.

    Attributes
    ----------
    flags : tuple of str
        The option's flags, if they differ from the parameter's name.
    metavar : str or None
        Name of its value in help texts.
    envvar : tuple of str
        Environment variables in addition to the command's own, the most specific first.
    bare : str or None
        Value of the option when it is typed without one.
    """

    flags: tuple[str, ...] = ()
    metavar: str | None = None
    envvar: tuple[str, ...] = ()
    bare: str | None = None


def command(
    *, group: click.Group | None = None, name: str | None = None, configured: bool = False
) -> Callable[[Callable[..., None]], click.Command]:
    """Return a decorator that turns a function into a command.

    Parameters
    ----------
    group
        The group to which the command is added.
    name
        Name of the command; by default the function's name.
    configured
        Whether the command has ``--config`` for defaults from a TOML file.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        """Return the command of a function, and add it to the group, if there is one."""
        new_command = ExplainedCommand(
            name or function.__name__,
            callback=build_option_objects(function),
            params=[*([config_option()] if configured else []), *iter_parameters(function)],
            help=parse_docstring(function.__doc__, "Parameters")[0],
        )
        if group is not None:
            group.add_command(new_command)
        return new_command

    return decorate


def iter_parameters(function: Callable[..., Any]) -> Iterator[click.Parameter]:
    """Yield click's arguments and options for the parameters of a function, or for the fields of a dataclass.

    Keyword-only parameters become options. A parameter whose type is a dataclass becomes its fields' options.
    """
    hints = get_type_hints(function, include_extras=True)
    _, texts = parse_docstring(function.__doc__, "Parameters")
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if is_options_class(hint):
            yield from iter_parameters(hint)
        elif parameter.kind is parameter.KEYWORD_ONLY:
            yield make_option(name, ParameterType.from_hint(hint), parameter.default, texts.get(name))
        else:
            yield make_argument(name, ParameterType.from_hint(hint), parameter.default)


def is_options_class(hint: Any) -> bool:
    """True if a type is a dataclass, whose fields are options."""
    return isinstance(hint, type) and is_dataclass(hint)


class ParameterType(NamedTuple):
    """Parsed type hint of a parameter: click's type, whether it is repeated, help text, and format."""

    type: Any
    many: bool
    text: str | None
    option_format: OptionFormat

    @classmethod
    def from_hint(cls, hint: Any) -> "ParameterType":
        """Parse a type hint of a parameter.

        None in a union is ignored; ``tuple`` makes the parameter repeatable; the notes of ``Annotated`` are a
        type of click, an ``OptionFormat``, or the help text.
        """
        union = get_args(hint)
        hint = union[0] if type(None) in union else hint
        kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        many = get_origin(kind) is tuple
        kind = get_args(kind)[0] if many else kind
        if get_origin(kind) is Literal:
            kind = click.Choice(get_args(kind))
        elif kind is Path:
            kind = click.Path(path_type=Path)
        text, option_format = None, OptionFormat()
        for note in notes:
            if isinstance(note, click.ParamType):
                kind = note
            elif isinstance(note, OptionFormat):
                option_format = note
            else:
                text = note
        return cls(kind, many, text, option_format)


def make_argument(name: str, hint: ParameterType, default: Any) -> click.Argument:
    """Return click's positional argument for a parameter, required if it has no default."""
    required, metavar = default is inspect.Parameter.empty, hint.option_format.metavar
    nargs = -1 if hint.many else 1
    return click.Argument([name], type=hint.type, nargs=nargs, required=required, metavar=metavar)


def make_option(name: str, hint: ParameterType, default: Any, text: str | None) -> click.Option:
    """Return click's option for a parameter, required if it has no default; a boolean one is a flag.

    ``text`` is its help text.
    """
    settings: dict[str, Any] = {}
    if default is inspect.Parameter.empty:
        settings["required"] = True
    elif hint.type is bool:
        settings["is_flag"] = True
    elif default not in (None, ()):
        settings |= {"default": default, "show_default": True}
    flags, metavar, envvar, bare = hint.option_format
    if bare is not None:
        settings |= {"is_flag": False, "flag_value": bare}
    if hint.type is not bool:
        settings |= {"type": hint.type, "multiple": hint.many}
    flags = flags or ("--" + name.replace("_", "-"),)
    text = " ".join(filter(None, (hint.text, text)))
    return SingleOption([*flags, name], help=text, metavar=metavar, envvar=envvar or None, **settings)


def build_option_objects(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function that takes plain options by name, and calls ``function`` with dataclasses of them.

    Without parameters whose types are dataclasses, return ``function`` itself.
    """
    hints = get_type_hints(function)
    options_classes: dict[str, Any] = {name: hint for name, hint in hints.items() if is_options_class(hint)}

    @wraps(function)
    def call_with_options(**arguments: Any) -> None:
        """Build the dataclass arguments from the options, and call the function with them."""
        for name, options_class in options_classes.items():
            names = [field.name for field in fields(options_class)]
            arguments[name] = options_class(**{field: arguments.pop(field) for field in names})
        function(**arguments)

    return call_with_options if options_classes else function


def config_option() -> click.Option:
    """Return the option ``--config FILE``, which sets defaults before all other options are processed."""
    remedy = "write a table for each command, such as [simulate] with horizon = 1000 below it"
    return SingleOption(
        ["--config"],
        type=ExistingPathType(remedy, dir_okay=False),
        callback=load_defaults,
        is_eager=True,
        expose_value=False,
        help="TOML file with defaults for these options.",
    )


def load_defaults(context: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    """Set the defaults of a command's options from its table in a TOML file; return the path.

    None as path changes nothing. Raises click.UsageError for invalid TOML, a missing table or unknown
    options.
    """
    if path is None:
        return None
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {no_toml(error)}") from error
    command = str(context.info_name)
    if command not in tables:
        names = (f"[{name}]" if isinstance(value, dict) else name for name, value in tables.items())
        what = f"there is no table [{command}] in it, but {', '.join(names) or 'nothing'}"
        remedy = f"write [{command}] above its options"
        if "placements" in tables:
            remedy = "this is the file of tacit serve; leave out --config (--url: where a service answers)"
        raise click.UsageError(f"{path}: {what}; {remedy}")
    options = {
        flag.lstrip("-").replace("-", "_"): str(parameter.name)
        for parameter in context.command.params
        for flag in parameter.opts
    }
    defaults = {}
    for name, value in tables[command].items():
        option = options.get(name.replace("-", "_"))
        if option is None:
            hint = f"there is {', '.join(options).replace('_', '-')}"
            raise click.UsageError(f"{path}: {command}.{name}: there is no such option; {hint}")
        defaults[option] = value
    context.default_map = defaults
    return path


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a TacitError in the ``with`` block into a usage error of click, a ConfigError into FileError."""
    try:
        yield
    except TacitError as error:
        raise (FileError if isinstance(error, ConfigError) else click.UsageError)(str(error)) from error


class FileError(click.ClickException):
    """An error in a file, shown without the command's usage."""

    exit_code = 2


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Keep Ctrl-C and SIGTERM from ending the process in a ``with`` block; yield a check whether one came.

    The function that is yielded returns True after a signal. A second signal raises KeyboardInterrupt.
    Handlers are restored at the end; outside the main thread the function always returns False.
    """
    is_stopping = False

    def request_stop(number: int, frame: Any) -> None:
        """Record the first signal; raise KeyboardInterrupt at the second."""
        nonlocal is_stopping
        if is_stopping:
            raise KeyboardInterrupt
        is_stopping = True

    if current_thread() is not main_thread():
        yield lambda: False
        return
    previous = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: is_stopping
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


ExistingPath = Annotated[Path, ExistingPathType()]
File = Annotated[Path, ExistingPathType(dir_okay=False)]
Configuration = Annotated[
    Path, ExistingPathType('write one, such as: placements.home.arms = ["film", "song"]', dir_okay=False)
]
Folder = Annotated[Path, ExistingPathType(file_okay=False)]
Map = Annotated[
    Path,
    ExistingPathType("begin with one that tacit feed --example segment prints", dir_okay=False),
    OptionFormat(("--map",), metavar="FEED.TOML"),
]
NewFile = Annotated[Path, click.Path(dir_okay=False, path_type=Path)]
NewFolder = Annotated[Path, click.Path(file_okay=False, path_type=Path)]
Count = Annotated[int, click.IntRange(1)]
Share = Annotated[float, click.FloatRange(0.0, 1.0, min_open=True)]
Json = Annotated[bool, OptionFormat(("--json",)), "Print JSON, for machines."]
Seed = Annotated[int, click.IntRange(0), "Where every draw comes from."]
Workers = Annotated[int, click.IntRange(1), "Threads; by default one per core. Never changes results."]
Columns = Annotated[
    tuple[str, ...],
    OptionFormat(metavar="OURS=THEIRS"),
    "Map a foreign column's name; a context's, with commas between, of which what they hold is learned, or "
    "said: context=@FILE (TOML or JSON, as tacit schema writes it).",
]
Constants = Annotated[tuple[str, ...], OptionFormat(metavar="OURS=VALUE"), "Fill a column it has not."]
Strict = Annotated[bool, "Stop at the first bad row instead of counting it."]
MostRejected = Annotated[
    str, OptionFormat(metavar="SHARE"), "Largest share of bad rows; more is exit code 3."
]
RewardRange = Annotated[
    Any,
    click.Tuple([str, str]),
    OptionFormat(metavar="LOWEST HIGHEST"),
    'Lowest and highest reward there can be, each a number or the word "open": 0 500, 0 open, open open.',
]
KEY_VARIABLE = "TACIT_KEY"
PlacementKey = Annotated[str, OptionFormat(envvar=("TACIT_PLACEMENT_KEY", KEY_VARIABLE))]
Ray = Annotated[
    str,
    OptionFormat(("--ray",), metavar="[ADDRESS]", bare="local"),
    "Run on Ray: the cluster at ADDRESS, or one of its own on this machine.",
]


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Options of how a click log is read.

    Parameters
    ----------
    format
        parquet, csv, json (lines), open-bandit, ubi or dsjson.  [default: from the suffix]
    arms
        Arms on offer in every row, if there is no column of them; the word "shown": all that the log shows.
    time_unit
        Unit of numeric times.  [default: inferred and reported]
    positions_from
        The position at the top of lists: 1 if they count from 1.
    items
        Vectors of the items that are arms: a file with the columns id and vector, optionally from.
    outside
        Whether rows with rewards outside the range are bad, or count as its nearest end.
    """

    format: str | None = None
    column: Columns = ()
    constant: Constants = ()
    arms: Annotated[str, OptionFormat(metavar="ARM,ARM,…")] | None = None
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    positions_from: Annotated[int, click.IntRange(0)] = 0
    items: ExistingPath | None = None
    strict: Strict = False
    most_rejected: MostRejected = "5%"
    reward_range: RewardRange | None = None
    outside: Literal["reject", "clip"] = "reject"

    def open(self, log: Any) -> "LogReader":
        """Open a log with these options; return its reader."""
        from tacit.logs import read_log

        return read_log(
            log,
            format=self.format,
            columns=_parse_columns(self.column),
            constants=split_pairs("constant", self.constant),
            arms=split_names(self.arms) if self.arms and self.arms != "shown" else self.arms,
            time_unit=self.time_unit,
            positions_from=self.positions_from,
            strict=self.strict,
            items=self.items,
            most_rejected=parse_share(self.most_rejected),
            reward_range=parse_range(self.reward_range),
            outside=self.outside,
        )

    def with_contexts(self, reader: "LogReader", policy: str | None) -> "tuple[LogReader, dict[str, Any]]":
        """Return a reader of the log with contexts, and settings for the policy with their schema.

        The schema is inferred from the first rows if the option does not declare one. The settings are empty,
        and the reader is unchanged, if no context is named, the policy declares its context itself, or the
        log has ready-made contexts in one column.
        """
        from tacit.policies.context import normalize_schema

        context = _parse_columns(self.column).get("context")
        if context is None or policy is None or re.search(r"\bcontext(_dim)?\s*=", policy):
            return reader, {}
        if isinstance(context, str) and reader.holds_lists(context):
            return reader, {}
        declared_fields = context if isinstance(context, dict) else reader.infer_schema(self.context_columns)
        schema = normalize_schema("context", declared_fields)
        return reader.with_context(schema), {"context": schema}

    @property
    def context_columns(self) -> list[str]:
        """Names of the context columns in the option ``--column``."""
        context = _parse_columns(self.column).get("context", ())
        return [context] if isinstance(context, str) else list(context)


def with_log_range(policy: Any, reader: "LogReader") -> Any:
    """Return a policy that learns rewards of a log's range; the policy itself if that is (0, 1).

    Raises InvalidValue if the policy cannot.
    """
    return policy if reader.reward_range == UNIT_RANGE else policy.with_range(reader.reward_range)


def execution_context(cluster: str | None) -> AbstractContextManager[None]:
    """Return a context manager that runs parallel work on a cluster, or in threads without one."""
    if cluster is None:
        return nullcontext()
    from tacit.cluster import on_ray

    add_import_folders()
    return on_ray(cluster)


@contextmanager
def require_valid_rows(reader: "LogReader") -> Iterator[None]:
    """Raise LogError at the end of the ``with`` block if the log, which is read in it, had no valid row.

    The error has the reasons; it replaces a LogError that the block raises after rows were rejected.
    """
    try:
        yield
    except LogError:
        if not reader.strict and reader.report.read:
            reader.report.check_kept()
        raise
    reader.report.check_kept()


def print_result(value: Any, text: str, as_json: bool, rows: "LogReport | None" = None) -> None:
    """Print ``value`` as JSON if ``as_json``, else ``text``; print nothing else.

    With the report of a log as ``rows``, its notes and its counts of rejected rows are added to either.
    """
    if rows is not None:
        value = {**value, "rejected": dict(rows.rejected), "notes": [*rows.notes(), *rows.warning_lines()]}
        notes = [note for note in rows.notes() if note not in text]
        rejected = [rows.summary(), *rows.list_remedies()] if rows.rejected else []
        text = "\n".join([text, *notes, *rejected])
    click.echo(json.dumps(to_plain(value), indent=1, allow_nan=False) if as_json else escape_controls(text))


def to_plain(value: Any) -> Any:
    """Return a result for JSON: tuples become lists, and numbers that are not finite become None.

    Examples
    --------
    >>> to_plain({"value": float("nan"), "ends": (0.5, float("inf"))})
    {'value': None, 'ends': [0.5, None]}
    """
    if isinstance(value, Mapping):
        return {name: to_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return list(map(to_plain, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def split_names(text: str) -> list[str]:
    """Return the names in a text, separated by commas; raise click.UsageError for brackets around them."""
    if text.startswith("[") and text.endswith("]"):
        raise click.UsageError(f"{text}: give names with commas between, without brackets")
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_share(text: str) -> float:
    """Return a share such as ``5%`` or ``0.05`` as a number; raise click.UsageError outside [0, 1].

    Examples
    --------
    >>> parse_share("5%"), parse_share("0.05")
    (0.05, 0.05)
    """
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(%?)", text.strip())
    share = float("nan") if match is None else float(match[1]) / (100.0 if match[2] else 1.0)
    if not 0.0 <= share <= 1.0:
        raise click.UsageError(f"--most-rejected: {text!r} is no share; give one such as 5% or 0.05")
    return share


def parse_range(ends: tuple[str, str] | None) -> Any:
    """Return the range of rewards with these ends, numbers or ``open``; (0, 1) for None.

    Raises click.UsageError for other texts.

    Examples
    --------
    >>> parse_range(("0", "open")), parse_range(("open", "open"))
    ((0, None), None)
    """
    if ends is None:
        return UNIT_RANGE
    try:
        return read_range("--reward-range", [None if end == "open" else float(end) for end in ends])
    except (ValueError, TacitError):
        remedy = "give a number and a larger one, a number and open, or open open"
        raise click.UsageError(f"--reward-range: {' '.join(ends)!r} is no range; {remedy}") from None


def _parse_columns(texts: tuple[str, ...]) -> dict[str, Any]:
    """Return the names of a log's columns by tacit's names, from texts of ``--column`` such as ``key=query``.

    The context may be one name, a list of names separated by commas, or a schema that is read from a file.
    """
    columns: dict[str, Any] = split_pairs("column", texts)
    context = columns.get("context", "")
    if context.startswith("@"):
        columns["context"] = _load_schema(Path(context[1:]))
    elif Path(context).suffix in (".toml", ".json") and Path(context).is_file():
        raise click.UsageError(f"--column: context: {context} is a file; give context=@{context}")
    elif "," in context or context.startswith("["):
        columns["context"] = split_names(context.removeprefix("[").removesuffix("]"))
    return columns


def _load_schema(path: Path) -> dict[str, Any]:
    """Return the schema in a TOML or JSON file: the whole file or its table ``context``.

    Raises click.UsageError if it cannot be read.
    """
    from tacit.policies.context import normalize_schema

    try:
        text = path.read_text()
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        remedy = "give a schema, such as tacit schema writes"
        raise click.UsageError(f"--column: context: {path} cannot be read: {reason}; {remedy}") from error
    schema = content.get("context", content) if isinstance(content, dict) else content
    return dict(normalize_schema("context", schema))


def split_pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Return the values of ``NAME=VALUE`` texts by name.

    Raises click.UsageError for another form, or for two values of a name.
    """
    parts = [text.partition("=") for text in texts]
    for name, equals, _ in parts:
        if not (name and equals):
            raise click.UsageError(f"--{option}: {name!r} is not of the form NAME=VALUE")
    values = {name: value for name, _, value in parts}
    for name, _, value in parts:
        if values[name] != value:
            raise click.UsageError(f"--{option}: {name}: {single_value_error([value, values[name]])}")
    return values
