"""Write the log as records of User Behavior Insights (UBI 1.3).

``UbiRecords`` makes records of rows; ``export_ubi`` writes the whole log to files of records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tacit.logs import ubi_records
from tacit.logs.writer import conditional_propensity, propensity_at_position
from tacit.policies.spec import policy_from_stored
from tacit.service.deciders.items import make_catalogue_history
from tacit.service.log.requests import parse_action, select_clicks
from tacit.service.log.rows import CLICKS, EXAMINED, QUERY, REWARD, DecisionRow, FeedbackRow, decode_list
from tacit.service.log.sql import Store, read_records
from tacit.service.log.store import Snapshot, StoredPlacement
from tacit.service.placements.features import to_matrix

# ---- Rows of the log as records

NO_CLICK = "no_click"
NOWHERE = 0
"""Ordinal of an event about a whole list; the schema requires one."""


def list_items(row: DecisionRow) -> list[str | None] | None:
    """Return the items that a decision showed, as text, from the top; None at empty positions.

    None for a pair of rankers without a list.
    """
    if row.shown is None:
        return [str(row.arm)]
    content = json.loads(row.shown)
    if isinstance(content, list):
        items = content
    elif "slate" in content:
        items = content["slate"]
    # A duel with a list has both of these, a pair without a list the second.
    elif "interleaved" in content:
        items = content["interleaved"]["items"]
    elif "pair" in content:
        return None
    else:
        items = [row.arm]
    return [None if item is None else str(item) for item in items]


def is_single_item(row: DecisionRow) -> bool:
    """True if a decision showed one arm, so that its feedback is a reward."""
    content = None if row.shown is None else json.loads(row.shown)
    return (isinstance(content, dict) and not {"pair", "slate"} & set(content)) or content is None


class UbiRecords:
    """Makes the UBI records of a placement from its rows.

    Parameters
    ----------
    name : str
    stored : StoredPlacement
    base : Snapshot or None
        Snapshot at the log's beginning, if old rows were dropped.

    Attributes
    ----------
    items : CatalogueHistory or None
        Catalogue at the row that is written.
    """

    def __init__(self, name: str, stored: StoredPlacement, base: Snapshot | None) -> None:
        policy = policy_from_stored(json.loads(stored.spec))
        self.items = make_catalogue_history(policy, base)
        arms, self._dims = policy.arms, policy.feature_dims
        self.placement = name
        self.policy = policy.label
        self.version = hashlib.sha256(stored.spec.encode()).hexdigest()[:16]
        self._arms = [str(arm) for arm in (range(arms) if isinstance(arms, int) else arms or ())]

    def query(self, row: DecisionRow) -> dict[str, Any]:
        """Return a decision as a UBI query record, with its policy and propensities in tacit's attributes."""
        items = list_items(row)
        record: dict[str, Any] = {
            "query_id": make_query_id(row),
            "user_query": row.key,
            "timestamp": ubi_records.format_time(row.time),
            "query_attributes": {
                ubi_records.TACIT_ATTRIBUTE: self._make_attributes(row) | self._make_query_attributes(row)
            },
        }
        if len(self.placement) <= ubi_records.LONGEST_NAME:
            record["application"] = self.placement
        if items is not None:
            record["query_response_hit_ids"] = [item for item in items if item is not None]
        return record

    def _make_attributes(self, row: DecisionRow) -> dict[str, Any]:
        """Return tacit's attributes of query and event records: placement, decision, policy, propensity."""
        return {
            "placement": self.placement,
            "decision_id": row.id,
            "policy": self.policy,
            "version": self.version,
            "propensity": row.propensity or None,
        }

    def _make_query_attributes(self, row: DecisionRow) -> dict[str, Any]:
        """Return tacit's attributes of a query record: mode, context, arms, propensities or teams.

        For a list, ``propensities`` has each item's propensity given the items above it, and
        ``position_propensities`` that of the item at its position, whatever is above.
        """
        attributes: dict[str, Any] = {"mode": row.mode, "epoch": row.epoch}
        if row.deferred:
            attributes["deferred"] = True
        if row.context is not None:
            attributes["context"] = json.loads(row.context)
        if is_single_item(row):
            attributes["arms"] = self._list_arms(row)
            return attributes
        items, teams = list_items(row), _make_team_attributes(row)
        if items and None in items:
            # The record's ids leave out empty positions, so that they do not tell where the items were.
            attributes["slate"] = items
        if teams is None and (slate := decode_list(row.shown)).position_propensities:
            positions = [k for k, arm in enumerate(slate.arms) if arm is not None]
            attributes["arms"] = self._list_arms(row)
            attributes["propensities"] = [
                conditional_propensity(slate.prefix_propensities, k) for k in positions
            ]
            attributes["position_propensities"] = [
                propensity_at_position(slate.position_propensities, k) for k in positions
            ]
        return attributes | ({} if teams is None else teams)

    def _list_arms(self, row: DecisionRow) -> list[str]:
        """Return the names of a decision's offered arms; numbers from 0 for arms without names."""
        if row.offered is not None:
            return [str(arm) for arm in json.loads(row.offered)]
        if self._arms or row.asked is None:
            return self._arms
        candidates = None if self.items is None else self.items.find_candidates(row)
        if candidates is not None:
            return list(map(str, candidates.ids))
        # Without names, the arms are numbered by the rows of their features.
        features = json.loads(row.asked)
        counts = [
            len(to_matrix(features.get(field), dim))
            for field, dim in zip(("relevance", "examination"), self._dims, strict=True)
        ]
        return [str(arm) for arm in range(max(counts))]

    def events(self, row: DecisionRow, feedback: FeedbackRow) -> Iterator[dict[str, Any]]:
        """Yield feedback on a decision as UBI event records, one for each clicked or seen item.

        Feedback without an item, such as "no click", is one record.
        """
        items = list_items(row)
        ours = self._make_attributes(row)
        if feedback.id is not None:
            ours["feedback_id"] = feedback.id
        action = feedback.kind
        places: list[int] = []
        rewards: Mapping[Any, float] = {}
        if feedback.kind == CLICKS:
            entries = json.loads(feedback.clicks or "[]")
            rewards = select_clicks(entries)
            done = [parse_action(entry) for entry in entries]
            places = [position for position, _ in done]
            # All clicks of one feedback have the same action.
            action = done[0][1] if done else NO_CLICK
            if action in (ubi_records.CLICK, NO_CLICK):
                ours["clicks"] = places
        elif feedback.kind == EXAMINED:
            action = ubi_records.IMPRESSION
            places = [at for at, item in enumerate(items or ()) if item is not None]
        elif feedback.kind == REWARD:
            ours["reward"] = feedback.reward
            places = [] if items is None else [0]
            action = ubi_records.CLICK if places and feedback.reward == 1.0 else REWARD
        teams = (_make_team_attributes(row) or {}).get("teams") or []
        objects: list[int | None] = [*places] or [None]
        for place in objects:
            is_graded = place in rewards and rewards[place] < 1.0
            grade = {"reward": rewards[place]} if is_graded else {}
            ours_here = ours | _make_team(teams, place) | grade
            attributes = _make_object(items, place) | {ubi_records.TACIT_ATTRIBUTE: ours_here}
            yield {
                "action_name": REWARD if is_graded else action,
                "query_id": make_query_id(row),
                "user_query": row.key,
                "timestamp": ubi_records.format_time(feedback.time),
                "event_attributes": attributes,
            }


def make_query_id(row: DecisionRow) -> str:
    """Return the UBI query id of a decision: its own id, or a digest of an id too long for UBI."""
    if len(row.id) <= ubi_records.LONGEST_NAME:
        return row.id
    return ubi_records.digest_record({"decision_id": row.id})


def _make_team_attributes(row: DecisionRow) -> dict[str, Any] | None:
    """Return attributes of a duel: its rankers, the probability of its list, and the ranker of each item.

    None for a decision that is no duel.
    """
    content = None if row.shown is None else json.loads(row.shown)
    if not isinstance(content, dict) or "pair" not in content:
        return None
    left_ranker, right_ranker = pair = content["pair"]
    attributes: dict[str, Any] = {"left": left_ranker, "right": right_ranker}
    interleaved = content.get("interleaved")
    if interleaved is not None:
        teams = interleaved["memory"].get("teams")
        attributes["probability"] = interleaved["probability"]
        if teams is not None:
            attributes["teams"] = [None if team is None else pair[team] for team in teams]
    return attributes


def _make_team(teams: list[str | None], place: int | None) -> dict[str, str]:
    """Return the ranker of the item at a position as an attribute; {} if unknown."""
    team = None if place is None or place >= len(teams) else teams[place]
    return {} if team is None else {"team": team}


def _make_object(items: list[str | None] | None, place: int | None) -> dict[str, Any]:
    """Return the UBI attributes of the item at a position; without an item, only the ordinal 0."""
    if items is None or place is None:
        return {"position": {"ordinal": NOWHERE}}
    return {"object": {"object_id": items[place]}, "position": {"ordinal": place + 1}}


# ---- The log as files of records


QUERIES, EVENTS = "ubi_queries", "ubi_events"


def export_ubi(store: Store, folder: Path) -> dict[str, int]:
    """Write the log to ``ubi_queries.ndjson`` and ``ubi_events.ndjson`` in a folder, one record a line.

    Fields that UBI lacks (the decision's id, policy, its version, propensity, teams, the ids of feedback) are
    in ``query_attributes.tacit`` and ``event_attributes.tacit``. Records stored next to the log follow
    unchanged. :func:`tacit.logs.read_ubi` reads the folder.

    Returns
    -------
    dict of str to int
        Number of records of each file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    counts = {QUERIES: 0, EVENTS: 0}
    paths = {name: folder / f"{name}.ndjson" for name in counts}
    with paths[QUERIES].open("wb") as queries, paths[EVENTS].open("wb") as events:
        files = {QUERIES: queries, EVENTS: events}
        for name, line in _iterate_lines(store):
            files[name].write(line + b"\n")
            counts[name] += 1
    return counts


def _iterate_lines(store: Store) -> Iterator[tuple[str, bytes]]:
    """Yield (name of the file, line of JSON) for all rows and records of a store.

    Change events have no line; they update the placements' catalogues.
    """
    encode = msgspec.json.Encoder().encode
    names = {
        stored.id: UbiRecords(name, stored, store.snapshots.load_base(stored.id))
        for name, stored in store.placements().items()
    }
    decisions: dict[int, DecisionRow] = {}
    for row in store.events(0):
        if isinstance(row, DecisionRow):
            decisions[row.seq] = row
            yield QUERIES, encode(names[row.placement].query(row))
        elif isinstance(row, FeedbackRow):
            decision = decisions[row.decision]
            for record in names[row.placement].events(decision, row):
                yield EVENTS, encode(record)
        elif row.placement is not None and (items := names[row.placement].items) is not None:
            items.apply_change(row)
    for stored_record in read_records(store):
        yield QUERIES if stored_record.kind == QUERY else EVENTS, stored_record.content.encode()
