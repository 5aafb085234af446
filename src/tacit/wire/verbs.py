"""The verbs of a placement: name, path, types of request and answer, and the scope that a key needs.

Routes, the OpenAPI document, the client and the command line read this table. The effects of changes are
in :mod:`tacit.service.placements.placement`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from tacit.core.text import parse_docstring
from tacit.wire import control, decisions, lift, lists, site
from tacit.wire.decisions import ManyDecisions, ManyFeedback

A = TypeVar("A")

Scope = Literal["decide", "feedback", "read", "admin"]


class Verb(NamedTuple, Generic[A]):
    """An operation on a placement.

    Attributes
    ----------
    name : str
        Name of the operation in the OpenAPI document.
    summary : str
        Description of the operation.
    method, path : str
        HTTP method, and path below the address of the placement.
    request, answer : type
        Types of the request, which a ``GET`` sends in the address, and of the answer.
    scope : str
        The scope that a key must have.
    problems : tuple of int
        Statuses of refusals that not all verbs have.
    """

    name: str
    summary: str
    method: str
    path: str
    request: Any
    answer: type[A]
    scope: Scope
    problems: tuple[int, ...] = ()


def make_schemas(kinds: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Return a JSON schema for each type, and the schemas of all their structures by name.

    Descriptions are the first paragraphs of the structures' docstrings, and the paragraph of each field.
    """
    reference = "#/components/schemas/{name}"
    references, schemas = msgspec.json.schema_components(kinds, ref_template=reference)
    for schema in schemas.values():
        text, descriptions = parse_docstring(schema.get("description"))
        # Only the first paragraph: fields have descriptions of their own.
        schema["description"] = text.partition("\n\n")[0]
        for name, field in schema.get("properties", {}).items():
            if descriptions.get(name):
                description = re.sub(r"(^|\. )None\b", r"\1Null", descriptions[name])
                field.setdefault("description", re.sub(r"\bNone\b", "null", description))
    return references, schemas


def make_batch_verb(
    verb: Verb[Any], summary: str, batch_type: Any, problems: tuple[int, ...] = ()
) -> Verb[Any]:
    """Return the verb for many requests of another verb in one body; its path ends with ``/batch``.

    ``batch_type`` is the generic structure of the bodies of request and answer.
    """
    kinds = batch_type[verb.request], batch_type[verb.answer]
    path = f"{verb.path}/batch"
    return Verb(f"{verb.name}Many", summary, "POST", path, *kinds, verb.scope, problems)


# fmt: off
# ---- Decisions

DECIDE = Verb(
    "decide", "Choose an arm for one impression",
    "POST", "decide", decisions.Impression, decisions.Decided, "decide", (409,),
)
DECIDE_MANY = make_batch_verb(DECIDE, "Choose for many impressions, all or none", ManyDecisions, (409,))
SLATE = Verb(
    "slate", "Choose which arms to list",
    "POST", "slate", decisions.Impression, lists.Listed, "decide", (409,),
)
SLATE_MANY = make_batch_verb(SLATE, "Do so for many impressions, all or none", ManyDecisions, (409,))
DUEL = Verb(
    "duel", "Interleave two of the rankers' lists",
    "POST", "duel", lists.Search, lists.Dueled, "decide", (409,),
)
DUEL_MANY = make_batch_verb(DUEL, "Do so for many searches, all or none", ManyDecisions, (409,))

# ---- Feedback

FEEDBACK = Verb(
    "feedback", "Say what came back for a decision",
    "POST", "feedback", decisions.Feedback, decisions.Recorded, "feedback", (409,),
)
FEEDBACK_MANY = make_batch_verb(FEEDBACK, "Say what came back for many decisions", ManyFeedback)
CLICKS = Verb(
    "clicks", "Say what was clicked in a list",
    "POST", "clicks", lists.Clicks, decisions.Recorded, "feedback", (409,),
)
CLICKS_MANY = make_batch_verb(CLICKS, "Say what was clicked in many lists", ManyFeedback)
EXAMINED = Verb(
    "examined", "Say that what was shown was looked at",
    "POST", "examined", decisions.Event, decisions.Recorded, "feedback", (409,),
)
EXAMINED_MANY = make_batch_verb(
    EXAMINED, "Say of many decisions that what was shown was looked at", ManyFeedback,
)
ACTIVATE = Verb(
    "activate", "Let a deferred decision count from now on",
    "POST", "activate", decisions.Event, decisions.Recorded, "feedback", (409,),
)

# ---- Client-side decisions

LEARNER = Verb(
    "learner", "Return what was learned, as a file that a learner is loaded from",
    "GET", "learner", control.LearnerOf, bytes, "read", (422,),
)
REPLICAS = Verb(
    "lent", "Say in which parts what was learned is lent, and how far each of them is",
    "GET", "lent", control.Nothing, control.LentParts, "read", (422,),
)
LOCAL = Verb(
    "takeOver", "Log decisions that were made next to the caller",
    "POST", "local/batch", ManyDecisions[decisions.LocalDecision], ManyDecisions[decisions.TakenOver],
    "decide",
)

# ---- Reports of duels

VERDICT = Verb(
    "verdict", "Say which ranker users prefer, by what their actions are worth, and where",
    "GET", "verdict", lists.VerdictOf, lists.Verdict, "read", (422,),
)
STANDINGS = Verb(
    "duels", "Say which ranker is best, which are out, and when it is safe to stop",
    "GET", "duels", lists.StandingsOf, lists.Standings, "read", (422,),
)

# ---- Results by segment of users

FOR_WHOM = Verb(
    "forWhom", "Say which users are shown what, by what is known of them, and why",
    "GET", "for-whom", lift.ForWhomOf, lift.ForWhom, "read", (422,),
)

# ---- Lift

LIFT = Verb(
    "lift", "Say what learning earned more than a control, and how sure that is",
    "GET", "lift", lift.LiftOf, lift.LiftReport, "read", (422,),
)

# ---- Changes of a placement

MODE = Verb(
    "mode", "Change the mode of a placement",
    "POST", "mode", control.ModeOf, control.ModeNow, "admin",
)
ARMS = Verb(
    "changeArms", "Let arms come, go and come back",
    "POST", "arms", control.ArmsOf, control.ArmsNow, "admin",
)
PIN = Verb(
    "pin", "Let every decision show an arm or a list until a time",
    "POST", "pin", control.PinOf, control.PinNow, "admin",
)
UNPIN = Verb(
    "unpin", "Let the policy decide again",
    "DELETE", "pin", control.Unpin, control.PinNow, "admin",
)
HOLD_OUT = Verb(
    "holdOut", "Keep a part of the traffic for a control, which shows the lift",
    "POST", "holdout", control.HoldoutOf, control.HoldoutNow, "admin",
)
END_HOLDOUT = Verb(
    "endHoldout", "Show nobody a control any more",
    "DELETE", "holdout", control.EndHoldout, control.HoldoutNow, "admin", (422,),
)
PUT_ITEMS = Verb(
    "putItems", "Put items into the catalogue, or give them other vectors",
    "PUT", "items", decisions.ItemsOf, decisions.ItemsNow, "admin", (422,),
)
REMOVE_ITEMS = Verb(
    "removeItems", "Take items out of the catalogue",
    "POST", "items/remove", decisions.ItemsGone, decisions.ItemsNow, "admin", (422,),
)
FED = Verb(
    "fed", "Log how far a feed of events has come",
    "PUT", "fed", site.FedOf, site.Status, "feedback",
)
CHANGES = (MODE, ARMS, PIN, UNPIN, HOLD_OUT, END_HOLDOUT, PUT_ITEMS, REMOVE_ITEMS, FED)

ITEMS = Verb(
    "items", "Say how many items the catalogue has",
    "GET", "items", control.Nothing, decisions.ItemsNow, "read", (422,),
)

# ---- Rebuilds, saved states and history

REBUILD = Verb(
    "rebuild", "Fold the log into another policy, and go on with that",
    "POST", "rebuild", control.RebuildOf, control.Rebuilt, "admin", (409,),
)
ROLLBACK = Verb(
    "rollback", "Go back to what was learned before",
    "POST", "rollback", control.RollbackOf, control.Rebuilt, "admin", (409,),
)
STATES = Verb(
    "states", "List what a placement can go back to, the latest first",
    "GET", "states", control.Nothing, control.States, "read",
)
HISTORY = Verb(
    "history", "Say who changed what of a placement, and when",
    "GET", "history", control.HistoryOf, control.History, "read", (422,),
)
