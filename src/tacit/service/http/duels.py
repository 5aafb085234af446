"""Placements that interleave the lists of two rankers."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.evaluate.interleaved.searches import DUEL_COLUMNS, OPTIONAL_COLUMNS, ROW_COLUMNS, UNIT_FIELDS
from tacit.interleaving import METHODS, CreditRule
from tacit.interleaving.rules import CLICK
from tacit.policies import MinimumDuelShares, Policy
from tacit.service.config.schema import ClickAggregation
from tacit.service.config.tables import PlacementTable
from tacit.service.http import arms
from tacit.service.http.arms import Form
from tacit.service.kind import ExportTable, Kind
from tacit.service.log.requests import DecisionRequest, Impression
from tacit.service.log.rows import DecisionRow, decode_json
from tacit.service.page.kind_views import DuelView
from tacit.service.placements.duels import KEY, DuelOptions, export_duel
from tacit.service.placements.placement import DUEL_PARTS, Placement
from tacit.wire import lists as wire_lists
from tacit.wire import verbs

COLUMNS = (
    "decision_id", "key", "left", "right", "outcome", "interleaved", "clicks", "user", "rankings",
)  # fmt: skip
"""Columns of the exported log of duels, besides one for each segment."""
RESERVED_NAMES = {*COLUMNS, *ROW_COLUMNS, *OPTIONAL_COLUMNS, *DUEL_COLUMNS, *UNIT_FIELDS} - {KEY}
"""Names that segments cannot have, since logs of searches use them for other columns."""
ITEMS = ("a", "b", "c", "d")
INTERLEAVING = {
    "team-draft": "TeamDraft",
    "probabilistic": "Probabilistic",
    "balanced": "Balanced",
    "optimized": "Optimized",
}


class DuelsTable(PlacementTable, forbid_unknown_fields=True, kw_only=True):
    """Interleaves the lists of two rankers, and learns which rankers are better.

    Attributes
    ----------
    rankers : list of str
        Names of the rankers.
    interleaving : str
        Method that interleaves two lists; ``optimized`` needs scipy.
    length : int
        Number of results of the interleaved list.
    ties : str
        What the policy learns from a tie: ``coin``, a win of either ranker, by a fair coin; ``keep``, a
        tie; ``again``, nothing.
    unclicked : str
        How a list without a click counts: as a ``tie``, or as ``nothing``, as if never shown.
    aggregation : str
        How several reports of clicks for one list are combined: their ``union``, the ``first`` or the
        ``last``.
    worth : table of numbers
        Weight of an action on an item in the verdict, by the action's name: feedback may report these
        actions besides clicks. An action of weight 0 is accepted but not counted. Policies learn from
        clicks alone.
    segments : list of str
        Names of properties of a search, such as its market, by which the verdict is also broken down;
        ``key`` is the key of a search, which need not be sent again.
    at_least : table
        Minimum shares of searches in which a ranker is one of the two, by its name, whatever is learned:
        ``{ control = 0.1 }``; at most 0.5 in all. A placement that has begun without them adopts them
        with ``rebuild``.
    """

    rankers: Annotated[list[str], msgspec.Meta(min_length=2)]
    interleaving: Literal["team-draft", "probabilistic", "balanced", "optimized"] = "team-draft"
    length: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10
    ties: Literal["coin", "keep", "again"] = "coin"
    unclicked: Literal["tie", "nothing"] = "tie"
    aggregation: ClickAggregation = "union"
    worth: dict[str, float] = msgspec.field(default_factory=lambda: {CLICK: 1.0})
    segments: list[str] = msgspec.field(default_factory=list)
    at_least: dict[str, float] | None = None
    mode: Literal["online", "frozen", "shadow"] = "online"

    @property
    def choices(self) -> Any:
        """Names of the rankers."""
        return self.rankers

    @property
    def setting(self) -> dict[str, Any]:
        """Settings on which the recommended policy depends: that it shows duels."""
        return {"shows": "duel"}

    def make_parts(self) -> tuple[Policy, Policy | None, Any]:
        """Make the policy, with minimum shares of rankers if configured, the secondary policy and options."""
        policy, secondary, options = super().make_parts()
        if self.at_least:
            policy = MinimumDuelShares(policy, at_least=self.at_least)
        return policy, secondary, options

    @property
    def attribution(self) -> dict[str, Any]:
        """Fields of the attribution rule: how several reports of clicks for one list are combined."""
        return {"aggregation": self.aggregation}

    @property
    def options(self) -> DuelOptions:
        """Options of duels: interleaving, rules for ties and clicks, weights of actions, and segments.

        Raises an error if a segment's name is reserved, a weight is invalid, or scipy is needed and missing.
        """
        method = METHODS[INTERLEAVING[self.interleaving]](length=self.length)
        if self.interleaving == "optimized":
            # Import the solver now, so that a missing one is an error at the start, not at a request.
            method.interleave([["a", "b"], ["b", "a"]], np.random.default_rng(0))
        CreditRule(self.worth)
        names = tuple(dict.fromkeys(self.segments))
        for name in names:
            if not name or checks.name("segments", name) in RESERVED_NAMES:
                remedy = "give another name: in logs of searches this one has a meaning"
                raise InvalidValue("segments", name, remedy)
        return DuelOptions(method, self.ties, self.unclicked, dict(self.worth), names)


def make_example(placement: Placement) -> dict[str, Any]:
    """Return an example of a decision request, with a ranked list of example items for each ranker."""
    turns = [i % len(ITEMS) for i in range(len(placement.arms))]
    rankings = {
        str(name): [*ITEMS[turn:], *ITEMS[:turn]] for turn, name in zip(turns, placement.arms, strict=True)
    }
    return arms.make_example(placement) | {"rankings": rankings}


def _make_schema(options: DuelOptions) -> Any:
    """Return the Arrow schema of exported duels, with a column for each segment."""
    import pyarrow as pa

    return pa.schema(dict.fromkeys((*COLUMNS, *options.segments), pa.string()) | {"outcome": pa.float64()})


def read_search(placement: Placement, request: wire_lists.Search) -> Impression:
    """Validate a decision request of a search and convert it to an impression."""
    fields = request.key, None, request.context, request.decision_id, request.deferred
    names = request.session, request.user, request.rankings, request.segments
    # Rankers have no features of relevance and examination.
    return placement.reader.read(DecisionRequest(*fields, None, None, *names))


def write_answer(placement: Placement, row: DecisionRow, durability: Any) -> wire_lists.Dueled:
    """Return the answer to a search from its row of the log: the pair and, if any, the interleaved list."""
    decision = decode_json(row.shown)
    fields: dict[str, Any] = {}
    if "interleaved" in decision:
        interleaved = decision["interleaved"]
        fields |= {"items": interleaved["items"], "teams": interleaved["memory"].get("teams")}
        fields["probability"] = interleaved["probability"]
    if row.would is not None:
        left_ranker, right_ranker = decode_json(str(row.would))
        fields["would"] = wire_lists.WouldDuel(left_ranker, right_ranker, row.would_propensity)
    left_ranker, right_ranker = decision["pair"]
    return wire_lists.Dueled(
        row.id, left_ranker, right_ranker, row.propensity, row.epoch, durability, **fields
    )


def make_duel_rows(
    row: DecisionRow, feedback: float | list[int], name: str, policy: Policy
) -> list[dict[str, Any]]:
    """Convert a decision and its feedback to a list of one row of a log of duels; [] for the control group.

    ``name`` and ``policy`` are not used; other kinds of exports need them.
    """
    if row.control:
        return []
    record = export_duel(row, feedback)
    for field in ("interleaved", "clicks", "rankings"):
        if record[field] is not None:
            record[field] = json.dumps(record[field])
    return [record]


FORM = Form(verbs.DUEL, verbs.DUEL_MANY, read_search, write_answer)
KIND = Kind(
    "duels", FORM.verb.path, "duel", DuelsTable, DUEL_PARTS, DuelView, make_example,
    form=FORM,
    takes_clicks=True,
    has_arm_lifecycle=True,
    controls=("uniform", "baseline", "arm"),
    export=ExportTable("duels", _make_schema, make_duel_rows),
)  # fmt: skip
