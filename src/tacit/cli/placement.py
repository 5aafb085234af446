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
from tacit.cli.options import Existing, Explained, Hint, Json, Typed, command, option, parameters, show, usage
from tacit.core.parallel import progress
from tacit.errors import InvalidValue, MissingExtra, needing

if TYPE_CHECKING:
    from tacit.wire.lift import Bounds, ChapterLift

LONGEST = 86_400.0
"""Timeout of a rebuild, in seconds."""


def connected(url: str, key: str | None, **options: Any) -> Any:
    """Return a client of the service."""
    with needing("client"):
        from tacit.client import Client
    # Path.is_file raises an error if the key is longer than a file name may be.
    if key and os.path.isfile(key):
        raise click.UsageError("--key: this is a file; give what is in it")
    return Client(url, key, **options)


def show_answer(answer: Any, text: str, as_json: bool) -> None:
    """Print the service's answer."""
    import msgspec

    show(msgspec.to_builtins(answer), text, as_json)


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
    begin: Annotated[str, Typed(("--from",))] | None = None
    end: Annotated[str, Typed(("--to",))] | None = None
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
    key: str | None = None,
    as_json: Json = False,
) -> None:
    """Report how much more learning earned than a control, at a PLACEMENT of a running service.

    Parameters
    ----------
    url
        Where the service answers.
    key
        API key with the scope read; better set as TACIT_LIFT_KEY.
    """
    if "." in placement and os.path.isfile(placement):
        raise click.UsageError(f"PLACEMENT: {placement} is a file; tacit evaluate judges what is logged")
    with connected(url, key) as client:
        found = client.lift(placement, **vars(options) | {"confidence": float(options.confidence)})
    lines = [found.verdict, found.counted]
    of = "rewards" if found.rewards == "reward" else f"of {found.rewards}"
    if found.look is not None:
        lines.append(found.look.verdict)
    for name, interval in (("ratio", found.ratio), ("difference", found.difference)):
        if interval is not None:
            ends = [number(x) for x in (interval.estimate, interval.low, interval.high)]
            per = f" {of} per decision" if name == "difference" else ""
            lines.append("{}: {}, between {} and {}{}".format(name, *ends, per))
    for group, counts in found.groups.items():
        earned = f"{counts.decisions:,} decisions, {counts.rewards:,.6g} {of}"
        lines.append(f"{group}: {earned}")
    if len(found.chapters) > 1 or any(len(each.parts) > 1 for each in found.chapters):
        lines += [line for each in found.chapters for line in chapter(each)]
    lines += [metric.verdict for metric in found.metrics]
    if found.winner_verdict:
        lines.append(found.winner_verdict)
    if found.planner is not None and found.planner.verdict not in found.verdict:
        lines.append(found.planner.verdict)
    show_answer(found, "\n".join(lines), as_json)


def chapter(found: "ChapterLift") -> list[str]:
    """Return the lines of a period and of its parts."""
    since, until = ((time or "now")[:10] for time in (found.since, found.until))
    what = f"{found.share:.3g} for {found.control}, by {found.unit}"
    lines = [f"chapter {found.number}, {since} to {until}: {what}; {_ratio(found.ratio)}"]
    for part in found.parts if len(found.parts) > 1 else ():
        counts = sum(group.decisions for group in part.groups.values())
        label = f"{part.what or 'at first'}, from {(part.since or '?')[:10]}"
        lines.append(f"  {label}: {counts:,.0f} decisions, ratio {number(part.ratio)}")
    if found.ended:
        lines.append(f"  ended: {found.ended}")
    if not found.counted:
        lines.append("  not counted above")
    return lines


def _ratio(ends: "Bounds | None") -> str:
    if ends is None:
        return "too early, or no ratio"
    shown = map(number, (ends.estimate, ends.low, ends.high))
    return "ratio {}, between {} and {}".format(*shown)


def number(x: float | None) -> str:
    """Return a number as text; a question mark for None."""
    return "?" if x is None else f"{x:.4g}"


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Address of the service, and the API key.

    Parameters
    ----------
    url
        Where the service answers.
    key
        API key; better set as TACIT_PLACEMENT_KEY.
    """

    url: Annotated[str, Typed(envvar="TACIT_PLACEMENT_URL")] = "http://127.0.0.1:8787"
    key: Annotated[str, Typed(envvar="TACIT_PLACEMENT_KEY")] | None = None

    def client(self, **options: Any) -> Any:
        """Return a client of the service."""
        return connected(self.url, self.key, **options)


# ---- ``tacit placement``: control a placement; the commands are built from the table of verbs


class VerbCommand(NamedTuple):
    """A command that sends a request to a placement.

    Attributes
    ----------
    verb : str
        The verb's name in :mod:`tacit.wire.verbs`. Fields of its request become arguments and options.
    text : function
        Returns the answer as text.
    field : str
        Key of the answer in JSON, if the answer may be None.
    instead : dict of str to str
        Flags that call another verb, without arguments.
    typed : dict of str to str
        Help of options that are typed in another form than they are sent.
    defaults : dict of str to object
        Defaults of options that differ from those of the request.
    read : function, optional
        Converts typed values to the request; it may query the service.
    slow : bool
        Whether the request has a long timeout and no retries.
    call : str
        The client's method, if its name differs from the verb's.
    """

    verb: str
    text: Callable[[Any], str]
    field: str = ""
    instead: Mapping[str, str] = MappingProxyType({})
    typed: Mapping[str, str] = MappingProxyType({})
    defaults: Mapping[str, Any] = MappingProxyType({})
    read: Callable[[Any, str, dict[str, Any]], dict[str, Any]] = lambda client, name, given: given
    slow: bool = False
    call: str = ""


class AskingGroup(options.ExplainedGroup):
    """A group whose commands are built from the table of verbs, which is imported on demand."""

    asked: dict[str, VerbCommand]

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of the commands."""
        return sorted({*self.commands, *self.asked})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return the command of a name, or None."""
        found = super().get_command(context, name)
        if found is not None or name not in self.asked:
            return found
        try:
            return asking(name, self.asked[name])
        except MissingExtra as error:
            return lacking(name, error)


def lacking(name: str, error: MissingExtra) -> click.Command:
    """Return a command that raises the error of a missing package, which would define its options."""

    def refuse(**given: Any) -> None:
        raise error

    typed = click.Argument(["typed"], nargs=-1)
    settings = {"ignore_unknown_options": True}
    unwrapped = f"\b\n{error}."  # click would break the line within the name of the package
    return click.Command(name, callback=refuse, params=[typed], help=unwrapped, context_settings=settings)


def asking(name: str, asked: VerbCommand) -> click.Command:
    """Return the command for a verb, with the verb's help and the request's fields as options."""
    with needing("client"):
        from tacit.wire import verbs
    verb = getattr(verbs, asked.verb)
    schema = verbs.schemas_of([verb.request])[1][verb.request.__name__]
    params: list[click.Parameter] = [click.Argument(["name"])]
    places = "NAME is the placement."
    for field, what in schema["properties"].items():
        kind, many = typed(what)
        words = asked.typed.get(field, what.get("description", "").replace("``", ""))
        needed = field in schema.get("required", ())
        if needed and many:
            params.append(click.Argument([field], nargs=-1, required=True))
            places += f" {field.upper()}: {words[:1].lower()}{words[1:]}"
            continue
        words += " Can be given more than once." if many else ""
        default = asked.defaults.get(field, () if many else what.get("default"))
        default = inspect.Parameter.empty if needed else default
        params.append(
            option(OF_KEY if field == "key" else field, Hint(kind, many, None, Typed()), default, words)
        )
    for flag, other in asked.instead.items():
        params.append(option(flag, BARE, False, f"{getattr(verbs, other).summary}."))
    params += [*parameters(ServiceOptions), option("as_json", Hint.of(Json), False, None)]
    more = inspect.cleandoc(verb.request.__doc__).partition("\n\nAttributes\n")[0].partition("\n\n")[2]
    help = "\n\n".join(filter(None, (f"{verb.summary}.", more, places)))
    return Explained(name, callback=partial(ask, asked), params=params, help=help)


OF_KEY = "of_key"
"""Option for the key in a request: ``--key`` is the API key."""
BARE = Hint(bool, False, None, Typed())


def typed(schema: Any) -> tuple[Any, bool]:
    """Return click's type for a JSON schema, and whether it is a list."""
    kinds: list[Any] = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    if any(each.get("type") == "array" for each in kinds):
        return click.STRING, True
    match kinds:
        case [{"enum": values}]:
            return click.Choice(values), False
        case [{"type": "integer"}]:
            return click.IntRange(kinds[0].get("minimum"), kinds[0].get("maximum")), False
        case [{"type": "number"}]:
            above = kinds[0].get("exclusiveMinimum")
            low = kinds[0].get("minimum", above)
            return click.FloatRange(low, kinds[0].get("maximum"), min_open=above is not None), False
    return click.STRING, False


def ask(asked: VerbCommand, *, name: str, url: str, key: str | None, as_json: bool, **given: Any) -> None:
    """Send a verb's request to a placement, and print the answer."""
    from tacit.wire import verbs

    verb = asked.verb
    given = {field: list(v) if isinstance(v, tuple) else v for field, v in given.items() if v is not None}
    if OF_KEY in given:
        given["key"] = given.pop(OF_KEY)
    context = click.get_current_context()
    for flag, other in asked.instead.items():
        typed = [each for each in given if context.get_parameter_source(each) is not ParameterSource.DEFAULT]
        if (flag in typed) is any(each != flag for each in typed):
            raise click.UsageError(f"give --{flag} alone, or what there shall be, such as --share 0.1")
        if given.pop(flag):
            verb, given = other, {}
    # The client's methods have the verbs' names.
    named = re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", getattr(verbs, verb).name)
    patience: dict[str, Any] = {"timeout": LONGEST, "retries": 0} if asked.slow else {}
    with connected(url, key, **patience) as client:
        try:
            sent = asked.read(client, name, given) if given else {}
            answer = getattr(client, asked.call or named)(name, **sent)
        except InvalidValue as error:
            raise click.UsageError(str(error)) from error
    show_answer({asked.field: answer} if asked.field else answer, asked.text(answer), as_json)


# Answers as text, and conversion of typed values to requests


def pin_text(pinned: Any) -> str:
    """Return the pinned arms as text."""
    return "the policy decides" if pinned is None else f"{_listed(pinned.arms)} until {pinned.until}"


def holdout_typed(client: Any, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Convert typed options to a holdout request; the control may be an arm."""
    word, _, arm = given["control"].partition("=")
    if word not in ("uniform", "baseline", "arm"):
        raise click.UsageError(f"--control: {word!r} is not allowed; give uniform, baseline or arm={word}")
    shown = {"arm": int(arm) if arm.isdecimal() else arm}
    return given | ({"control": shown} if word == "arm" else {})


def holdout_text(held: Any) -> str:
    """Return the holdout as text."""
    if held is None:
        return "nobody is shown a control"
    shown = held.control if isinstance(held.control, str) else f"arm {held.control['arm']}"
    look = f"; one look is planned at {held.look}" if held.look else ""
    return f"{held.share:.3g} of decisions, by {held.unit}, are the control's: {shown}{look}"


def rebuilt_text(made: Any) -> str:
    """Return the new policy, after a rebuild or rollback, as text."""
    from tacit.policies.spec import name_in

    text = (
        f"{name_in(made.policy)} decides now: {made.rows:,} rows of the log taken in, "
        f"{made.seconds:.1f} s\nto go back: --to {made.left}"
    )
    return text + "".join(f"\napproximate: {reason}" for reason in made.approximate)


def states_text(kept: Any) -> str:
    """Return the states available for a rollback as text."""
    return "\n".join(state.name for state in kept) or "nothing was left yet"


def history_text(changes: Any) -> str:
    """Return the change history as text, one line per change."""
    rows = [
        (change.at[:19].replace("T", " "), change.by or "-", change.what, _said(change.detail))
        for change in changes
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
    lines = [
        "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    ]
    return "\n".join(lines) or "nothing was changed yet"


def _said(detail: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {_value(value)}" for name, value in detail.items() if value != [])


def _value(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"before", "after"}:
        return f"{value['before']} → {value['after']}"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def duels_text(found: Any) -> str:
    """Return the verdict on a key's duels, and the remaining and eliminated rankers, as text."""
    report = found.report
    left, out = _listed(report["left"]), _listed(report["out"])
    return f"{report['verdict']}\nkey {found.key}; in the race: {left}; out: {out}"


def arms_typed(client: Any, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Convert typed arms to a request; arms become numbers if the placement's arms are numbered."""
    for field, arms in given.items():
        for arm in arms:
            if "," in arm and (field == "add" or arm not in client.change_arms(name).arms):
                remedy = f"give each by --{field} of its own; for a comma in a name use POST …/arms"
                raise click.UsageError(f"--{field}: {arm!r} has a comma; {remedy}")
    # A request without changes returns the current arms.
    if not all(isinstance(arm, int) for arm in client.change_arms(name).arms):
        return given
    if len(given["add"]) > 1:
        raise click.UsageError("--add: arms are numbered here; say how many come, once")
    numbers = {field: [_number(f"--{field}", arm) for arm in arms] for field, arms in given.items()}
    return numbers | {"add": numbers["add"][0] if numbers["add"] else ()}


def _number(option: str, text: str) -> int:
    if not text.isdecimal():
        raise click.UsageError(f"{option}: {text!r}: arms are numbered here; give a number")
    return int(text)


def arms_text(now: Any) -> str:
    """Return the arms on offer and the retired arms as text."""
    shares = "".join(f"; {arm}'s share of {share:.3g} is suspended" for arm, share in now.suspended.items())
    return f"on offer: {_listed(now.arms)}\nretired: {_listed(now.retired)}{shares}"


def _listed(arms: list[Any]) -> str:
    return ", ".join(map(str, arms)) or "none"


@click.group(cls=AskingGroup)
def placement() -> None:
    """Control a placement of a running service, and see its history of changes."""


placement.asked = {
    "pin": VerbCommand("PIN", pin_text, "pinned"),
    "unpin": VerbCommand("UNPIN", pin_text, "pinned"),
    "holdout": VerbCommand(
        "HOLD_OUT",
        holdout_text,
        "holdout",
        instead={"none": "END_HOLDOUT"},
        typed={"control": "What it shows: uniform, baseline (the first arm on offer), or arm=NAME."},
        read=holdout_typed,
    ),
    "rebuild": VerbCommand("REBUILD", rebuilt_text, slow=True),
    "rollback": VerbCommand("ROLLBACK", rebuilt_text, slow=True),
    "states": VerbCommand("STATES", states_text),
    "history": VerbCommand("HISTORY", history_text, defaults={"limit": 20}),
    "arms": VerbCommand("ARMS", arms_text, read=arms_typed),
    "for-whom": VerbCommand("FOR_WHOM", str),
    "duels": VerbCommand("STANDINGS", duels_text, call="standings"),
    "verdict": VerbCommand("VERDICT", attrgetter("verdict")),
    "mode": VerbCommand("MODE", str, "mode"),
}


# ---- ``tacit items``: the catalogue of a placement of a running service

BYTES = 800_000
"""Most bytes of a request, below the service's default batch_limit."""
DIGITS = 9
"""Most bytes of a number in a request, with its separator."""
MOST = 1000


def items_text(now: Any) -> str:
    """Return a catalogue's counts as text."""
    segments = [f"  {segment}: {size:,}" for segment, size in sorted(now.segments.items())]
    return "\n".join([f"{now.count:,} items, version {now.version:,}", *segments[:20]])


@click.group(cls=AskingGroup)
def items() -> None:
    """Fill and inspect the catalogue of a placement of a running service."""


items.asked = {"remove": VerbCommand("REMOVE_ITEMS", items_text), "count": VerbCommand("ITEMS", items_text)}


@command(group=items)
def load(name: str, file: Existing, service: ServiceOptions, *, as_json: Json = False) -> None:
    """Put the items of FILE into the catalogue of the placement NAME.

    FILE has the columns id and vector, a list of numbers, and optionally segment: Parquet, or JSON lines.
    Existing items get the new vectors; none is removed. If interrupted, load the file again.
    """
    with usage():
        batches = list(_batches(file))
    now: Any = None
    with service.client() as client, progress(len(batches), "putting items") as advance:
        for ids, vectors, segments in batches:
            now = client.put_items(name, ids, vectors, segments)
            advance(1)
    show_answer(now, items_text(now), as_json)


def _batches(file: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the items of a file in batches that fit into a request."""
    from tacit.logs.items import item_batches

    for batch in item_batches(file):
        size = max(1, min(MOST, BYTES // (DIGITS * batch.vectors.shape[1] + 600)))
        ids, segments = batch.ids.to_pylist(), batch.segments.to_pylist()
        for start in range(0, len(ids), size):
            part = slice(start, start + size)
            yield ids[part], batch.vectors[part], segments[part]
