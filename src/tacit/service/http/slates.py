"""Placements that show several of their arms at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec

from tacit.errors import InvalidValue
from tacit.policies import ListMix, Policy, SafeListMix
from tacit.policies.actions import SlatePolicy
from tacit.service.config.schema import ArmCount, ClickAggregation
from tacit.service.config.tables import ContextTable
from tacit.service.http.arms import Form, make_example, make_features_example, read_impression
from tacit.service.kind import ExportTable, Kind
from tacit.service.log.requests import select_clicks
from tacit.service.log.rows import DecisionRow, decode_list, make_click_row
from tacit.service.page.kind_views import SlateView
from tacit.service.placements.placement import ITEM_LIST_PARTS, LIST_PARTS, Placement
from tacit.wire import lists as wire_lists
from tacit.wire import verbs


class SlatesTable(ContextTable, forbid_unknown_fields=True, kw_only=True):
    """Shows several of its arms at once, best first.

    Attributes
    ----------
    arms : int or list of str
        Number of arms, or their names; leave out if items are described by their features.
    positions : int
        Number of arms in a list.
    relevance_dim : int
        Number of features of each item that the recommended policy reads: items then come with requests,
        or from the placement's catalogue.
    aggregation : str
        How several reports of clicks for one list are combined: their ``union``, the ``first`` or the
        ``last``.
    at_least : table
        Minimum shares of lists that contain an arm at any position, by its name: ``{ new = 0.05 }``; at
        most 0.5 in all. A placement that has begun without them adopts them with ``rebuild``.
    """

    arms: ArmCount | list[str] | None = None
    positions: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    relevance_dim: Annotated[int, msgspec.Meta(ge=0)] = 0
    aggregation: ClickAggregation = "union"
    at_least: dict[str, float] | None = None

    @property
    def choices(self) -> Any:
        """Number or names of the arms; None for items described by features."""
        return self.arms

    @property
    def setting(self) -> dict[str, Any]:
        """Settings on which the recommended policy depends: positions, contexts, features."""
        # Policies for lists of named arms read no context, so signals do not count as one.
        numbers, items = self.context_dim, self.relevance_dim
        feature_settings = (
            {"relevance_dim": items, "context_dim": numbers or self.signals_dim} if items else {}
        )
        context_settings = {"context_dim": numbers, "context": self.context}
        return {"shows": "slate", "positions": self.positions} | context_settings | feature_settings

    @property
    def attribution(self) -> dict[str, Any]:
        """Fields of the attribution rule: how several reports of clicks for one list are combined."""
        return {"aggregation": self.aggregation}

    def make_parts(self) -> tuple[Policy, Policy | None, Any]:
        """Make the policy, with minimum shares of arms if configured, the secondary policy and options.

        Raises ``InvalidValue`` if minimum shares are configured for a policy that cannot guarantee them.
        """
        policy, secondary, options = super().make_parts()
        if self.at_least:
            if not isinstance(policy, ListMix | SafeListMix):
                remedy = f"leave it out: lists of {policy.label} promise nothing; those of list-mix can"
                raise InvalidValue("at_least", self.at_least, remedy)
            policy = replace(policy, at_least=self.at_least)
        return policy, secondary, options

    def fit_policy(self, policy: Policy) -> Policy:
        """Check a policy, and return it with the table's number of positions.

        Policies that do not show lists are returned unchanged.
        """
        super().fit_policy(policy)
        if not isinstance(policy, SlatePolicy):
            return policy
        return replace(policy, positions=self.positions)  # type: ignore[call-arg]


def write_answer(placement: Placement, row: DecisionRow, durability: Any) -> wire_lists.Listed:
    """Return the answer to a decision request for a list, from its row of the log."""
    slate, counterfactual = decode_list(row.shown).arms, None
    if row.would is not None:
        counterfactual = wire_lists.WouldSlate(json.loads(str(row.would)), row.would_propensity)
    return wire_lists.Listed(row.id, slate, row.propensity, row.epoch, durability, counterfactual)


def _get_schema(options: Any) -> Any:
    """Return the Arrow schema of a click log, imported here because pyarrow is optional."""
    from tacit.logs.schema import SCHEMA

    return SCHEMA


def make_list_rows(
    row: DecisionRow, clicks: Sequence[Any], name: str, policy: Policy
) -> list[dict[str, Any]]:
    """Convert a listed decision to rows of a click log, one for each position with an arm.

    The reward is that of the click at each position, 1 unless it was given, and 0 without one.
    """
    from tacit.logs.writer import conditional_propensity, propensity_at_position

    slate, shared_columns = decode_list(row.shown), make_click_row(row, name, policy)
    rewards = select_clicks(clicks)
    return [
        shared_columns
        | {
            "arm": str(arm),
            "position": k,
            "propensity": conditional_propensity(slate.prefix_propensities, k),
            "position_propensity": propensity_at_position(slate.position_propensities, k),
            "reward": rewards.get(k, 0.0),
        }
        for k, arm in enumerate(slate.arms)
        if arm is not None
    ]


FORM = Form(verbs.SLATE, verbs.SLATE_MANY, read_impression, write_answer)
KIND = Kind(
    "slates", FORM.verb.path, "slate", SlatesTable, LIST_PARTS, SlateView, make_example,
    form=FORM,
    takes_clicks=True,
    has_arm_lifecycle=True,
    controls=("uniform", "baseline"),
    export=ExportTable("lists", _get_schema, make_list_rows),
)  # fmt: skip
KIND = replace(
    KIND,
    features_kind=replace(
        KIND, parts=ITEM_LIST_PARTS, example=make_features_example, by_features=True, has_arm_lifecycle=False
    ),
)
