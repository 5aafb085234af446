"""Commands for a placement of a running service: ``tacit lift``, ``tacit placement`` and ``tacit items``.

First the lift; then commands that are built from the service's table of verbs; last the catalogue of items.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import click
from click.core import ParameterSource

from tacit.cli import options
from tacit.cli.options import (
    ExistingPath,
    ExplainedCommand,
    Json,
    OptionFormat,
    ParameterType,
    command,
    iter_parameters,
    make_option,
    print_result,
    usage_errors,
)
from tacit.core.parallel import progress
from tacit.errors import InvalidValue, MissingExtra, require_extra

if TYPE_CHECKING:
    from tacit.wire.lift import Bounds, ChapterLift

REBUILD_TIMEOUT = 86_400.0
"""Timeout of a rebuild, in seconds."""


def open_client(url: str, key: str | None, **options: Any) -> Any:
    """Return a blocking client of the service, with these ``options`` of :class:`tacit.client.Client`.

    Raises click.UsageError if the key is the name of a file, and MissingExtra without the client's packages.
    """
    with require_extra("client"):
        from tacit.client import Client
    # Path.is_file raises an error if the key is longer than a file name may be.
    if key and os.path.isfile(key):
        raise click.UsageError("--key: this is a file; give what is in it")
    return Client(url, key, **options)


def show_answer(answer: Any, text: str, as_json: bool) -> None:
    """Print the service's answer as JSON if ``as_json``, else ``text``."""
    import msgspec

    print_result(msgspec.to_builtins(answer), text, as_json)


@dataclass(frozen=True, kw_only=True)
class LiftOptions:
    """Options of a lift request, with the client's parameter names.

    Parameters
    ----------
    confidence
        Confidence level of the intervals, which hold at any time.
    control
        Control for a comparison by propensities instead of the holdout: uniform, or 'arm NAME'.
    begin
        Only decisions from this day, or from this chapter's number.
    end
        Only decisions before this day, or to this chapter's end.
    shown
        Lift for which the planner computes the duration: 0.1 is 10 %.
    share
        Share of the control, for the planner.
    rate
        Mean reward, for the planner, such as 0.05; in the metric's unit if a metric is learned.
    daily
        Decisions per day, for the planner.
    """

    confidence: Literal["0.9", "0.95", "0.99"] = "0.95"
    control: str | None = None
    begin: Annotated[str, OptionFormat(("--from",))] | None = None
    end: Annotated[str, OptionFormat(("--to",))] | None = None
    shown: float | None = None
    share: float | None = None
    rate: float | None = None
    daily: float | None = None


@command(configured=True)
def lift(
    placement: str,
    options: LiftOptions,
    *,
    url: str = "http://127.0.0.1:8787",
    key: Annotated[str, OptionFormat(envvar=("TACIT_LIFT_KEY", "TACIT_KEY"))] | None = None,
    as_json: Json = False,
) -> None:
    """Report how much more learning earned than a control, at a PLACEMENT of a running service.

    Parameters
    ----------
    url
        Where the service answers.
    key
        API key with the scope read; better set as TACIT_KEY.
    """
    if "." in placement and os.path.isfile(placement):
        raise click.UsageError(f"PLACEMENT: {placement} is a file; tacit evaluate judges what is logged")
    with open_client(url, key) as client:
        result = client.lift(placement, **vars(options) | {"confidence": float(options.confidence)})
    lines = [result.verdict, result.counted]
    unit = "rewards" if result.rewards == "reward" else f"of {result.rewards}"
    if result.look is not None:
        lines.append(result.look.verdict)
    for name, interval in (("ratio", result.ratio), ("difference", result.difference)):
        if interval is not None:
            suffix = f" {unit} per decision" if name == "difference" else ""
            lines.append(f"{name}: {format_bounds(interval)}{suffix}")
    for group, counts in result.groups.items():
        lines.append(f"{group}: {counts.decisions:,} decisions, {counts.rewards:,.6g} {unit}")
    if len(result.chapters) > 1 or any(len(period.parts) > 1 for period in result.chapters):
        lines += [line for period in result.chapters for line in period_lines(period)]
    lines += [metric.verdict for metric in result.metrics]
    if result.winner_verdict:
        lines.append(result.winner_verdict)
    if result.planner is not None and result.planner.verdict not in result.verdict:
        lines.append(result.planner.verdict)
    show_answer(result, "\n".join(lines), as_json)


def period_lines(period: "ChapterLift") -> list[str]:
    """Return lines of text on one period of a lift: its number, days, holdout, ratio, and why it ended.

    If it has several parts, each has a line with its decisions and ratio.
    """
    first_day, last_day = ((time or "now")[:10] for time in (period.since, period.until))
    design = f"{period.share:.3g} for {period.control}, by {period.unit}"
    ratio = "too early, or no ratio" if period.ratio is None else f"ratio {format_bounds(period.ratio)}"
    lines = [f"chapter {period.number}, {first_day} to {last_day}: {design}; {ratio}"]
    for segment in period.parts if len(period.parts) > 1 else ():
        counts = sum(group.decisions for group in segment.groups.values())
        label = f"{segment.what or 'at first'}, from {(segment.since or '?')[:10]}"
        lines.append(f"  {label}: {counts:,.0f} decisions, ratio {format_number(segment.ratio)}")
    if period.ended:
        lines.append(f"  ended: {period.ended}")
    if not period.counted:
        lines.append("  not counted above")
    return lines


def format_bounds(bounds: "Bounds") -> str:
    """Return an estimate and the ends of its interval as text: "1.2, between 1.1 and 1.3"."""
    estimate, low, high = map(format_number, (bounds.estimate, bounds.low, bounds.high))
    return f"{estimate}, between {low} and {high}"


def format_number(x: float | None) -> str:
    """Return a number as text with four significant digits; a question mark for None."""
    return "?" if x is None else f"{x:.4g}"


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Address of the service, and the API key.

    Parameters
    ----------
    url
        Where the service answers.
    key
        API key; better set as TACIT_KEY.
    """

    url: Annotated[str, OptionFormat(envvar=("TACIT_PLACEMENT_URL",))] = "http://127.0.0.1:8787"
    key: options.PlacementKey | None = None

    def client(self, **options: Any) -> Any:
        """Return a client of the service with these options."""
        return open_client(self.url, self.key, **options)


# ---- ``tacit placement``: control a placement; the commands are built from the table of verbs


class VerbCommand(NamedTuple):
    """A command that sends a request to a placement.

    Attributes
    ----------
    verb : str
        The verb's name in :mod:`tacit.wire.verbs`. Fields of its request become arguments and options.
    format_answer : function
        Returns the answer as text.
    field : str
        Key of the answer in JSON, if the answer may be None.
    verb_flags : dict of str to str
        Flags that call another verb, without arguments.
    option_texts : dict of str to str
        Help of options that are typed in another form than they are sent.
    defaults : dict of str to object
        Defaults of options that differ from those of the request.
    prepare : function, optional
        Converts typed values to the request; it may query the service.
    is_slow : bool
        Whether the request has a long timeout and no retries.
    client_method : str
        The client's method, if its name differs from the verb's.
    """

    verb: str
    format_answer: Callable[[Any], str]
    field: str = ""
    verb_flags: Mapping[str, str] = MappingProxyType({})
    option_texts: Mapping[str, str] = MappingProxyType({})
    defaults: Mapping[str, Any] = MappingProxyType({})
    prepare: Callable[[Any, str, dict[str, Any]], dict[str, Any]] = lambda client, name, given: given
    is_slow: bool = False
    client_method: str = ""


class VerbGroup(options.ExplainedGroup):
    """A group whose commands are built from the table of verbs, which is imported on demand."""

    verb_commands: dict[str, VerbCommand]

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the sorted names of the commands, also of those that are not built yet."""
        return sorted({*self.commands, *self.verb_commands})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return the command of a name; None for an unknown name.

        A command of ``verb_commands`` is built at each call; if the client's packages are missing, the
        command only raises that error.
        """
        known_command = super().get_command(context, name)
        if known_command is not None or name not in self.verb_commands:
            return known_command
        try:
            return build_verb_command(name, self.verb_commands[name])
        except MissingExtra as error:
            return build_unavailable_command(name, error)


def build_unavailable_command(name: str, error: MissingExtra) -> click.Command:
    """Return a command without options that raises the error of a missing package when it is called.

    The package would define its options. Its help is the error's text.
    """

    def refuse(**arguments: Any) -> None:
        """Raise the error of the missing package; the typed options are not checked."""
        raise error

    params: list[click.Parameter] = [click.Argument(["typed"], nargs=-1)]
    settings = {"ignore_unknown_options": True}
    unwrapped = f"\b\n{error}."  # click would break the line within the name of the package
    return click.Command(name, callback=refuse, params=params, help=unwrapped, context_settings=settings)


def build_verb_command(name: str, specification: VerbCommand) -> click.Command:
    """Return the command called ``name`` that sends a verb's request, built from the request's fields.

    Required lists become arguments, other fields and ``verb_flags`` become options.
    """
    with require_extra("client"):
        from tacit.wire import verbs
    verb = getattr(verbs, specification.verb)
    schema = verbs.make_schemas([verb.request])[1][verb.request.__name__]
    params: list[click.Parameter] = [click.Argument(["name"])]
    argument_texts = "NAME is the placement."
    for field, field_schema in schema["properties"].items():
        kind, is_list = parse_schema_type(field_schema)
        schema_text = field_schema.get("description", "").replace("``", "")
        description = specification.option_texts.get(field, schema_text)
        is_required = field in schema.get("required", ())
        if is_required and is_list:
            params.append(click.Argument([field], nargs=-1, required=True))
            argument_texts += f" {field.upper()}: {description[:1].lower()}{description[1:]}"
            continue
        description += " Can be given more than once." if is_list else ""
        default = specification.defaults.get(field, () if is_list else field_schema.get("default"))
        default = inspect.Parameter.empty if is_required else default
        option = KEY_FIELD if field == "key" else field
        hint = ParameterType(kind, is_list, text=None, option_format=OptionFormat())
        params.append(make_option(option, hint, default, description))
    for flag, other_verb in specification.verb_flags.items():
        params.append(make_option(flag, FLAG, default=False, text=f"{getattr(verbs, other_verb).summary}."))
    json_option = make_option("as_json", ParameterType.from_hint(Json), default=False, text=None)
    params += [*iter_parameters(ServiceOptions), json_option]
    # The paragraphs after the first, up to the attributes.
    details = inspect.cleandoc(verb.request.__doc__).partition("\n\nAttributes\n")[0].partition("\n\n")[2]
    help = "\n\n".join(filter(None, (f"{verb.summary}.", details, argument_texts)))
    return ExplainedCommand(name, callback=partial(call_verb, specification), params=params, help=help)


KEY_FIELD = "of_key"
"""Option for the key in a request: ``--key`` is the API key."""
FLAG = ParameterType(bool, many=False, text=None, option_format=OptionFormat())


def parse_schema_type(schema: Any) -> tuple[Any, bool]:
    """Return the click type of an option whose values have a JSON schema, and True if they are lists.

    The type is a choice for an enumeration, a range for a number, and text for all else, also for the values
    of lists. A null in the schema is ignored.
    """
    types: list[Any] = [
        type_schema for type_schema in schema.get("anyOf", [schema]) if type_schema.get("type") != "null"
    ]
    if any(type_schema.get("type") == "array" for type_schema in types):
        return click.STRING, True
    match types:
        case [{"enum": values}]:
            return click.Choice(values), False
        case [{"type": "integer"}]:
            return click.IntRange(types[0].get("minimum"), types[0].get("maximum")), False
        case [{"type": "number"}]:
            exclusive_low = types[0].get("exclusiveMinimum")
            low = types[0].get("minimum", exclusive_low)
            return click.FloatRange(low, types[0].get("maximum"), min_open=exclusive_low is not None), False
    return click.STRING, False


def call_verb(
    specification: VerbCommand, *, name: str, url: str, key: str | None, as_json: bool, **fields: Any
) -> None:
    """Send the request of a command's verb, with the typed fields, to a placement, and print the answer.

    ``name`` is the placement. A flag of ``verb_flags`` sends the other verb instead. Raises click.UsageError
    for invalid values.
    """
    from tacit.wire import verbs

    verb = specification.verb
    typed = {field: value for field, value in fields.items() if value is not None}
    fields = {field: list(value) if isinstance(value, tuple) else value for field, value in typed.items()}
    if KEY_FIELD in fields:
        fields["key"] = fields.pop(KEY_FIELD)
    get_source = click.get_current_context().get_parameter_source
    for flag, other_verb in specification.verb_flags.items():
        typed_fields = {field for field in fields if get_source(field) is not ParameterSource.DEFAULT}
        # Invalid: the flag with other fields, and neither.
        if (flag in typed_fields) is bool(typed_fields - {flag}):
            raise click.UsageError(f"give --{flag} alone, or what there shall be, such as --share 0.1")
        if fields.pop(flag):
            verb, fields = other_verb, {}
    # The client's methods have the verbs' names.
    method = re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", getattr(verbs, verb).name)
    client_options: Any = {"timeout": REBUILD_TIMEOUT, "retries": 0} if specification.is_slow else {}
    with open_client(url, key, **client_options) as client:
        try:
            request = specification.prepare(client, name, fields) if fields else {}
            answer = getattr(client, specification.client_method or method)(name, **request)
        except InvalidValue as error:
            raise click.UsageError(str(error)) from error
    show_answer(
        {specification.field: answer} if specification.field else answer,
        specification.format_answer(answer),
        as_json,
    )


# Answers as text, and conversion of typed values to requests


def pin_text(pin: Any) -> str:
    """Return the pinned arms and the pin's end as text; a note for None."""
    return "the policy decides" if pin is None else f"{_join_arms(pin.arms)} until {pin.until}"


def parse_holdout(client: Any, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a holdout request, from typed options; ``arm=NAME`` as control becomes an arm.

    Raises click.UsageError for an unknown control.
    """
    word, _, arm = fields["control"].partition("=")
    if word not in ("uniform", "baseline", "arm"):
        raise click.UsageError(f"--control: {word!r} is not allowed; give uniform, baseline or arm={word}")
    control = {"arm": int(arm) if arm.isdecimal() else arm}
    return fields | ({"control": control} if word == "arm" else {})


def holdout_text(holdout: Any) -> str:
    """Return the holdout's share, unit, control and planned look as text; a note for None."""
    if holdout is None:
        return "nobody is shown a control"
    control = holdout.control if isinstance(holdout.control, str) else f"arm {holdout.control['arm']}"
    look = f"; one look is planned at {holdout.look}" if holdout.look else ""
    return f"{holdout.share:.3g} of decisions, by {holdout.unit}, are the control's: {control}{look}"


def replacement_text(replacement: Any) -> str:
    """Return the new policy after a rebuild or rollback, and how to go back, as text."""
    from tacit.policies.spec import format_policy_name

    name, rows, seconds = format_policy_name(replacement.policy), replacement.rows, replacement.seconds
    return "\n".join([
        f"{name} decides now: {rows:,} rows of the log taken in, {seconds:.1f} s",
        f"to go back: --to {replacement.left}",
        *(f"approximate: {reason}" for reason in replacement.approximate),
    ])  # fmt: skip


def states_text(states: Any) -> str:
    """Return the names of the states available for a rollback, one per line; a note without any."""
    return "\n".join(state.name for state in states) or "nothing was left yet"


def history_text(changes: Any) -> str:
    """Return the change history as aligned text, one line per change with time, author and details."""
    rows = [(change.at[:19].replace("T", " "), change.by or "-", change.what) for change in changes]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([*map(str.ljust, row, widths), _detail_text(change.detail)])
        for row, change in zip(rows, changes, strict=True)
    ]
    return "\n".join(lines) or "nothing was changed yet"


def _detail_text(detail: dict[str, Any]) -> str:
    """Return the details of a change as text; empty lists are left out."""
    return ", ".join(f"{name}: {_value_text(value)}" for name, value in detail.items() if value != [])


def _value_text(value: Any) -> str:
    """Return a detail's value as text: a change as "before → after", a list with blanks."""
    if isinstance(value, dict) and set(value) == {"before", "after"}:
        return f"{value['before']} → {value['after']}"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def duels_text(standings: Any) -> str:
    """Return the verdict on a key's duels, and the remaining and eliminated rankers, as two lines of text."""
    report = standings.report
    remaining, eliminated = _join_arms(report["left"]), _join_arms(report["out"])
    return f"{report['verdict']}\nkey {standings.key}; in the race: {remaining}; out: {eliminated}"


def parse_arms(client: Any, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an arms request, from typed names of arms to add, retire and restore.

    Asks the service whether the placement's arms are numbered: then ``add`` becomes the number of new arms,
    and the other fields become arm numbers. Raises click.UsageError for commas in a name, or names for
    numbers.
    """
    for field, arms in fields.items():
        for arm in arms:
            if "," in arm and (field == "add" or arm not in client.change_arms(name).arms):
                remedy = f"give each by --{field} of its own; for a comma in a name use POST …/arms"
                raise click.UsageError(f"--{field}: {arm!r} has a comma; {remedy}")
    # A request without changes returns the current arms.
    if not all(isinstance(arm, int) for arm in client.change_arms(name).arms):
        return fields
    if len(fields["add"]) > 1:
        raise click.UsageError("--add: arms are numbered here; say how many come, once")
    numbers = {field: [_parse_arm_index(f"--{field}", arm) for arm in arms] for field, arms in fields.items()}
    return numbers | {"add": numbers["add"][0] if numbers["add"] else ()}


def _parse_arm_index(option: str, text: str) -> int:
    """Return a typed arm as a number; raise click.UsageError if it is none."""
    if not text.isdecimal():
        raise click.UsageError(f"{option}: {text!r}: arms are numbered here; give a number")
    return int(text)


def arms_text(answer: Any) -> str:
    """Return the arms on offer, the retired arms, and suspended shares as text."""
    text = f"on offer: {_join_arms(answer.arms)}\nretired: {_join_arms(answer.retired)}"
    suspended = answer.suspended.items()
    return text + "".join(f"; {arm}'s share of {share:.3g} is suspended" for arm, share in suspended)


def _join_arms(arms: list[Any]) -> str:
    """Return arms as text, with commas between; "none" for an empty list."""
    return ", ".join(map(str, arms)) or "none"


@click.group(cls=VerbGroup)
def placement() -> None:
    """Control a placement of a running service, and see its history of changes."""


placement.verb_commands = {
    "pin": VerbCommand("PIN", pin_text, "pinned"),
    "unpin": VerbCommand("UNPIN", pin_text, "pinned"),
    "holdout": VerbCommand(
        "HOLD_OUT",
        holdout_text,
        "holdout",
        verb_flags={"none": "END_HOLDOUT"},
        option_texts={"control": "What it shows: uniform, baseline (the first arm on offer), or arm=NAME."},
        prepare=parse_holdout,
    ),
    "rebuild": VerbCommand("REBUILD", replacement_text, is_slow=True),
    "rollback": VerbCommand("ROLLBACK", replacement_text, is_slow=True),
    "states": VerbCommand("STATES", states_text),
    "history": VerbCommand("HISTORY", history_text, defaults={"limit": 20}),
    "arms": VerbCommand("ARMS", arms_text, prepare=parse_arms),
    "for-whom": VerbCommand("FOR_WHOM", str),
    "duels": VerbCommand("STANDINGS", duels_text, client_method="standings"),
    "verdict": VerbCommand("VERDICT", attrgetter("verdict")),
    "mode": VerbCommand("MODE", str, "mode"),
}


# ---- ``tacit items``: the catalogue of a placement of a running service

MAX_BODY_BYTES = 800_000
"""Most bytes of a request, below the service's default batch_limit."""
BYTES_PER_NUMBER = 9
"""Most bytes of a number in a request, with its separator."""
MAX_ITEMS = 1000


def items_text(answer: Any) -> str:
    """Return a catalogue's number of items, version, and sizes of up to 20 segments as text."""
    segments = [f"  {segment}: {size:,}" for segment, size in sorted(answer.segments.items())]
    return "\n".join([f"{answer.count:,} items, version {answer.version:,}", *segments[:20]])


@click.group(cls=VerbGroup)
def items() -> None:
    """Fill and inspect the catalogue of a placement of a running service."""


items.verb_commands = {
    "remove": VerbCommand("REMOVE_ITEMS", items_text),
    "count": VerbCommand("ITEMS", items_text),
}


@command(group=items)
def load(name: str, file: ExistingPath, service: ServiceOptions, *, as_json: Json = False) -> None:
    """Put the items of FILE into the catalogue of the placement NAME.

    FILE has the columns id and vector, a list of numbers, and optionally segment: Parquet, or JSON lines.
    Existing items get the new vectors; none is removed. If interrupted, load the file again.
    """
    with usage_errors():
        batches = list(_iter_item_batches(file))
    answer: Any = None
    with service.client() as client, progress(len(batches), "putting items") as advance:
        for ids, vectors, segments in batches:
            answer = client.put_items(name, ids, vectors, segments)
            advance(1)
    show_answer(answer, items_text(answer), as_json)


def _iter_item_batches(file: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield ids, vectors and segments of a file's items, in batches that fit into a request."""
    from tacit.logs.items import item_batches

    for batch in item_batches(file):
        # 600 bytes more for an item's id and segment.
        size = max(1, min(MAX_ITEMS, MAX_BODY_BYTES // (BYTES_PER_NUMBER * batch.vectors.shape[1] + 600)))
        ids, segments = batch.ids.to_pylist(), batch.segments.to_pylist()
        for start in range(0, len(ids), size):
            part = slice(start, start + size)
            yield ids[part], batch.vectors[part], segments[part]
