"""The reference of logs: what is exchanged, what the service keeps, and their versions."""

from __future__ import annotations

import re
from typing import Any

from generate.tables import attributes, code, markdown, summary, table
from tacit.interleaving import TeamDraft
from tacit.logs import schema
from tacit.service.kind import get_kind
from tacit.service.log import rows, sqlite, store
from tacit.service.maintenance import log_export as log
from tacit.service.placements.duels import DuelOptions
from tacit.wire.decisions import OUTCOMES

ROWS = {
    "decisions": rows.DecisionRow,
    "feedback": rows.FeedbackRow,
    "marks": rows.ChangeRow,
    "records": rows.RecordRow,
    "bases": store.Snapshot,
}
SCHEMAS = log.SCHEMAS | {"records": log.RECORDS_SCHEMA, "bases": log.BASES_SCHEMA}


def part() -> str:
    """Return the click log, the service's log, and what became of feedback."""
    service = "\n\n".join(service_table(name) for name in ROWS)
    outcomes = table(["outcome", "meaning"], [[code(k), v] for k, v in OUTCOMES.items()])
    return (
        f"## Versions\n\n{versions()}\n\n"
        f"## The click log\n\n{click_log()}\n\n"
        f"## The service's log\n\n{service}\n\n"
        f"### duels-NAME\n\nThe duels of a placement, for `tacit duel`.\n\n"
        "Each segment of the placement has a column of its own, too.\n\n"
        f"{columns(duel_schema(), duel_columns())}\n\n"
        f"## Outcomes of feedback\n\n{outcomes}"
    )


def versions() -> str:
    """Return the versions of everything that outlives a process."""
    return table(
        ["what", "version", "where it stands"],
        [
            ["click log", str(schema.VERSION), f"`{schema.VERSION_KEY.decode()}` in a Parquet file"],
            ["exported log of the service", str(log.VERSION), "`log.json` of the folder"],
            ["store of the service", str(sqlite.VERSION), "the table `store`"],
        ],
    )


def click_log() -> str:
    """Return the columns of the click log."""
    return columns(schema.SCHEMA, click_columns(), nulls=True)


def columns(arrow: Any, meanings: dict[str, str], *, nulls: bool = False) -> str:
    """Return the columns of a schema as a table."""
    head = ["column", "type", *(["null"] if nulls else []), "meaning"]
    rows = [
        [
            code(field.name),
            str(field.type).replace("item: ", ""),
            *([["never", "allowed"][field.nullable]] if nulls else []),
            meanings.get(field.name, ""),
        ]
        for field in arrow
    ]
    return table(head, rows)


def click_columns() -> dict[str, str]:
    """Return the meanings of the click log's columns, as its module says them."""
    _, rule, _, _, body, _, _ = re.split(r"^(=+ =+ .*)$", schema.__doc__ or "", flags=re.MULTILINE)
    begin = rule.rindex(" ") + 1
    meanings: dict[str, str] = {}
    name = ""
    for line in body.strip("\n").splitlines():
        name = line.split()[0] if line[:1].strip() else name
        meanings[name] = markdown(f"{meanings.get(name, '')} {line[begin:]}".strip())
    return meanings


def service_table(name: str) -> str:
    """Return a table of the service's log."""
    kind = ROWS[name]
    return f"### {name}\n\n{summary(kind)}\n\n{columns(SCHEMAS[name], attributes(kind))}"


def duel_schema() -> Any:
    """Return the schema of the duels of a placement without segments."""
    duels = get_kind("duels").export
    assert duels is not None
    return duels.schema(DuelOptions(TeamDraft()))


def duel_columns() -> dict[str, str]:
    """Return the meanings of the columns of duels."""
    return {
        "decision_id": "Names the decision.",
        "key": "What it was for.",
        "left": "The ranker on the left.",
        "right": "The ranker on the right.",
        "outcome": "1 where the left one won, 0 where the right one did, 0.5 for a tie.",
        "interleaved": "JSON of the list that was shown, and what its credit needs.",
        "clicks": "JSON list of the clicked positions from 0; another action is an object with "
        "`position` and `action`.",
        "user": "A hash of the user, or else of the session.",
        "rankings": "JSON of what both rankers gave, where that was the same as far as shown.",
    }
