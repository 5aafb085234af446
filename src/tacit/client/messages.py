"""What the client sends and reads: calls are built and replies read without any transport."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any, Generic, Literal, NamedTuple, NoReturn, TypeVar

import msgspec

from tacit import checks
from tacit.client.errors import ServiceError, Unavailable, error_for
from tacit.client.retries import Reply
from tacit.errors import InvalidValue
from tacit.service.ids import decision_id as new_id

Arm = int | str
Mode = Literal["online", "apprentice", "frozen", "shadow"]
A = TypeVar("A")

LARGEST = sys.float_info.max
PROBLEM = "urn:tacit:problem:"

_PLACEMENT = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}")
_STEP = re.compile(r"[^.\[\]]+")


class Impression(msgspec.Struct, frozen=True):
    """One of many impressions to decide on; see :meth:`tacit.client.Client.decide`.

    Attributes
    ----------
    key : str
    arms : sequence of int or str, optional
    context : sequence of float, optional
    decision_id : str, optional
    deferred : bool, default False
    relevance, examination : sequence of sequence of float, optional
    session : str, optional
    """

    key: str
    arms: Sequence[Arm] | None = None
    context: Sequence[float] | None = None
    decision_id: str | None = None
    deferred: bool = False
    relevance: Sequence[Sequence[float]] | None = None
    examination: Sequence[Sequence[float]] | None = None
    session: str | None = None


class Feedback(msgspec.Struct, frozen=True):
    """One of many pieces of feedback; see :meth:`tacit.client.Client.feedback`.

    Attributes
    ----------
    decision_id : str
    reward : float
        In [0, 1].
    feedback_id : str, optional
    """

    decision_id: str
    reward: float
    feedback_id: str | None = None


class Would(msgspec.Struct, frozen=True):
    """What another policy would have shown, in the modes ``apprentice`` and ``shadow``.

    Attributes
    ----------
    arm : int or str
    propensity : float or None
    """

    arm: Arm
    propensity: float | None


class Decided(msgspec.Struct, frozen=True):
    """What to show.

    Attributes
    ----------
    decision_id : str
        Names the decision when feedback comes back.
    arm : int or str
    propensity : float or None
        Probability with which the policy chose it; None if it is deterministic.
    epoch : int
        How often the key had restarted.
    durability : str
        ``committed``, or ``buffered``: in memory until the next commit.
    would : Would or None
    signals : dict or None
        What the placement computed for this decision, by name; each in [0, 1].
    """

    decision_id: str
    arm: Arm
    propensity: float | None
    epoch: int
    durability: str
    would: Would | None = None
    signals: dict[str, float] | None = None


class Recorded(msgspec.Struct, frozen=True):
    """What became of feedback.

    Attributes
    ----------
    decision_id : str
    learned : bool
        Whether it has taught the policy by now.
    outcome : str
        ``learned``, ``pending``, ``late`` …; ``duplicate`` also if an earlier try, whose answer
        was lost, recorded it.
    durability : str
        ``committed`` or ``buffered``.
    """

    decision_id: str
    learned: bool
    outcome: str
    durability: str


class _DecidedMany(msgspec.Struct):
    decisions: list[Decided]


class _RecordedMany(msgspec.Struct):
    feedback: list[Recorded]


class _Switched(msgspec.Struct):
    mode: str


class _Problem(msgspec.Struct):
    type: str
    detail: str
    field: str


class Call(NamedTuple, Generic[A]):
    """A request, the same on every try, and how its answer is read; without a body it is a GET."""

    placement: str
    action: str
    body: bytes | None
    read: Callable[[bytes], A]

    @property
    def method(self) -> str:
        """Whether it asks only."""
        return "GET" if self.body is None else "POST"

    @property
    def path(self) -> str:
        """Where it goes, below the address of the service."""
        return f"/v1/placements/{self.placement}/{self.action}"


_decided = msgspec.json.Decoder(Decided).decode
_recorded = msgspec.json.Decoder(Recorded).decode
_decided_many = msgspec.json.Decoder(_DecidedMany).decode
_recorded_many = msgspec.json.Decoder(_RecordedMany).decode
_switched = msgspec.json.Decoder(_Switched).decode
_problem = msgspec.json.Decoder(_Problem).decode


def decide(placement: str, impression: Impression) -> Call[Decided]:
    """Return the call for one decision, with an id if it has none."""
    return call_to(placement, "decide", impression_body("", impression), _decided)


def decide_many(placement: str, impressions: Iterable[Impression]) -> Call[list[Decided]]:
    """Return the call for many decisions, each with an id."""
    asked = [impression_body(f"decisions[{i}]", one) for i, one in enumerate(impressions)]

    def read(body: bytes) -> list[Decided]:
        return complete(_decided_many(body).decisions, len(asked))

    return call_to(placement, "decide/batch", {"decisions": asked}, read)


def feedback(placement: str, told: Feedback) -> Call[Recorded]:
    """Return the call for one piece of feedback, with an id if it has none."""
    return call_to(placement, "feedback", _feedback("", told), _recorded)


def feedback_many(placement: str, told: Iterable[Feedback]) -> Call[list[Recorded]]:
    """Return the call for much feedback, each with an id."""
    bodies = [_feedback(f"feedback[{i}]", one) for i, one in enumerate(told)]

    def read(body: bytes) -> list[Recorded]:
        return complete(_recorded_many(body).feedback, len(bodies))

    return call_to(placement, "feedback/batch", {"feedback": bodies}, read)


def event(
    placement: str,
    action: Literal["activate", "examined"],
    decision_id: str,
    feedback_id: str | None,
) -> Call[Recorded]:
    """Return the call for something that happened to a decision, with an id if it has none."""
    body = {
        "decision_id": checks.name("decision_id", decision_id),
        "feedback_id": id_or_new("feedback_id", feedback_id),
    }
    return call_to(placement, action, body, _recorded)


def switch(placement: str, mode: Mode) -> Call[str]:
    """Return the call for a change of mode."""

    def read(body: bytes) -> str:
        return _switched(body).mode

    return call_to(placement, "mode", {"mode": checks.name("mode", mode)}, read)


def answer(call: Call[A], reply: Reply, url: str, tries: int) -> A:
    """Return the answer to a call, or raise what the last reply says is wrong.

    Raises
    ------
    ServiceError
        One of its subclasses, by the status.
    """
    if reply.status is None:
        raise Unavailable(
            "url", url,
            f"no answer in {tries} {'try' if tries == 1 else 'tries'} ({reply.failure}), so it is "
            "not known whether it took effect; see whether the service runs there",
            "no-answer",
        )  # fmt: skip
    if reply.status != 200:
        _refuse(call, reply, url)
    try:
        return call.read(reply.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ServiceError(
            "url", url, f"its answer is not one of the service ({error}); give the service's",
            "foreign", reply.status,
        ) from error  # fmt: skip


def _refuse(call: Call[Any], reply: Reply, url: str) -> NoReturn:
    """Raise the error for a reply that is no answer."""
    status = reply.status or 0
    try:
        problem = _problem(reply.body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # A proxy, or something else altogether.
        raise error_for(status)(
            "url", url, f"it answered {status} and no more; see what is there", "foreign", status
        ) from None
    what = problem.detail.removeprefix(f"{problem.field}: ")
    kind = problem.type.removeprefix(PROBLEM)
    raise error_for(status)(
        problem.field, _given(call, problem.field), what, kind, status
    ) from None


def _given(call: Call[Any], field: str) -> Any:
    """Return what a call gives for a field such as ``decisions[1].arms``, None if nothing."""
    if field == "placement":
        return call.placement
    value = {} if call.body is None else msgspec.json.decode(call.body)
    for step in _STEP.findall(field):
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return value


def call_to(
    placement: str, action: str, body: dict[str, Any] | None, read: Callable[[bytes], A]
) -> Call[A]:
    """Return a call to a placement.

    Raises
    ------
    InvalidValue
        If its name could be none.
    """
    # What is no such name would lead to another path.
    if not (isinstance(placement, str) and _PLACEMENT.fullmatch(placement)):
        raise InvalidValue(
            "placement", placement, "give a name of 1 to 128 letters, digits, dots, _ and -"
        )
    return Call(placement, action, None if body is None else msgspec.json.encode(body), read)


def impression_body(place: str, given: Impression) -> dict[str, Any]:
    """Return an impression as it is sent."""
    if not isinstance(given, Impression):
        raise InvalidValue(place, given, "give a tacit.client.Impression")
    dot = f"{place}." if place else ""
    body: dict[str, Any] = {
        "key": checks.name(f"{dot}key", given.key),
        "decision_id": id_or_new(f"{dot}decision_id", given.decision_id),
        "deferred": checks.flag(f"{dot}deferred", given.deferred),
    }
    if given.arms is not None:
        body["arms"] = [
            checked_arm(f"{dot}arms[{i}]", arm)
            for i, arm in enumerate(as_list(f"{dot}arms", given.arms))
        ]
    if given.context is not None:
        body["context"] = numbers(f"{dot}context", given.context)
    for field in ("relevance", "examination"):
        rows = getattr(given, field)
        if rows is not None:
            body[field] = [
                numbers(f"{dot}{field}[{i}]", row)
                for i, row in enumerate(as_list(f"{dot}{field}", rows))
            ]
    if given.session is not None:
        body["session"] = checks.name(f"{dot}session", given.session)
    return body


def numbers(field: str, given: Any) -> list[float]:
    """Return a list of finite numbers."""
    return [
        checks.number(f"{field}[{i}]", number, -LARGEST, LARGEST)
        for i, number in enumerate(as_list(field, given))
    ]


def _feedback(place: str, told: Feedback) -> dict[str, Any]:
    if not isinstance(told, Feedback):
        raise InvalidValue(place, told, "give a tacit.client.Feedback")
    dot = f"{place}." if place else ""
    return {
        "decision_id": checks.name(f"{dot}decision_id", told.decision_id),
        "reward": checks.number(f"{dot}reward", told.reward, 0.0, 1.0),
        "feedback_id": id_or_new(f"{dot}feedback_id", told.feedback_id),
    }


def id_or_new(field: str, given: str | None) -> str:
    """Return the id given, or a new one: with it, asking again is safe."""
    return new_id(time.time_ns() // 1000) if given is None else str(checks.name(field, given))


def checked_arm(field: str, arm: Any) -> Arm:
    """Return an arm or an item: a name, or a whole number."""
    if isinstance(arm, Integral) and not isinstance(arm, bool):
        return int(arm)
    if isinstance(arm, str):
        return str(checks.name(field, arm))
    raise InvalidValue(field, arm, "give the arm's name, or its number from 0")


def as_list(field: str, given: Any) -> list[Any]:
    """Return what was given as a list."""
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise InvalidValue(field, given, "give a list")
    return list(given)


def complete(answers: list[A], count: int) -> list[A]:
    """Return the answers to many questions, if there is one to each."""
    if len(answers) != count:
        raise msgspec.ValidationError(f"{len(answers)} answers to {count} questions")
    return answers
