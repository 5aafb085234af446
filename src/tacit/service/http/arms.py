"""Forms, which read decision requests and write answers; and the kinds of placements that show one arm."""

# 1. ``Form``: reads requests and writes answers of one kind of placement.
# 2. ``ArmsTable`` and ``KIND``: placements that show one of their arms; many requests are read as columns.
# 3. ``FeaturesTable`` and ``FEATURES``: placements whose requests describe the arms by features.

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from tacit.errors import InvalidValue, TacitError
from tacit.policies import MinimumShares, Policy
from tacit.service.config.file import check_item
from tacit.service.config.holdout import MetricConfig
from tacit.service.config.schema import ARMS, Aggregation, ArmCount, Seconds, Share, needs_ends
from tacit.service.config.tables import ContextTable
from tacit.service.kind import Kind
from tacit.service.log.blocks import Block
from tacit.service.log.requests import DecisionRequest, Impression
from tacit.service.log.rows import DecisionRow
from tacit.service.page.kind_views import FeatureView
from tacit.service.page.view import View
from tacit.service.placements.placement import ARM_PARTS, FEATURE_PARTS, Placement
from tacit.wire import decisions as wire
from tacit.wire import verbs
from tacit.wire.verbs import Verb

# ---- How requests to a kind of placement are read, and answers written


def _read_one_by_one(form: Form, placement: Any, requests: Sequence[Any]) -> Sequence[Impression]:
    """Validate requests by the form's ``read`` and return their impressions.

    Errors name the request's index.
    """
    return [
        check_item(f"decisions[{i}]", form.read, (placement, request)) for i, request in enumerate(requests)
    ]


def _write_one_by_one(form: Form, placement: Any, rows: Sequence[DecisionRow], durability: Any) -> list[Any]:
    """Return the answer to each request, made from its row of the log by the form's ``write``."""
    return [form.write(placement, row, durability) for row in rows]


class Form(NamedTuple):
    """How decision requests to a kind of placement are read, and how answers are written.

    Attributes
    ----------
    verb, verb_many : Verb
        The verbs for one decision and for many.
    read : function
        Validates a request to a placement and converts it to an impression.
    write : function
        Returns the answer to a request from its row of the log.
    read_many, write_many : function
        The same for many requests, which may be faster than one by one.
    """

    verb: Verb[Any]
    verb_many: Verb[Any]
    read: Callable[[Any, Any], Impression]
    write: Callable[[Any, DecisionRow, Any], msgspec.Struct]
    read_many: Callable[[Form, Any, Sequence[Any]], Sequence[Impression]] = _read_one_by_one
    write_many: Callable[[Form, Any, Sequence[DecisionRow], Any], list[Any]] = _write_one_by_one


# ---- Placements that show one of their arms

KEY = "independence day"
EXAMPLES: dict[Any, Any] = {"number": 31, "boolean": True, "category": "de"}


class ArmsTable(ContextTable, forbid_unknown_fields=True, kw_only=True):
    """Shows one of its arms.

    Attributes
    ----------
    arms : int or list of str
        Number of arms, or their names.
    default_reward : float
        Reward of a decision for which no reward came in its window.
    aggregation : str
        How several rewards for one decision are combined: the ``first``, the ``last``, their ``sum``
        (at most 1), or the ``max``.
    late : str
        Effect of a reward after the window: ``record`` it only, or ``correct`` the default reward, if
        the policy keeps sums.
    correction_window : float
        Seconds after the end of a window in which its reward may be corrected.
    reward : str
        The metric that is learned: feedback has its amount in place of a reward.
    at_least : table
        Minimum shares of decisions that show an arm, by its name, whatever is learned:
        ``{ control = 0.1 }``; at most 0.5 in all. A placement that has begun without them adopts them
        with ``rebuild``.
    """

    arms: ArmCount | list[str]
    default_reward: Share = 0.0
    aggregation: Aggregation = "first"
    late: Literal["record", "correct"] = "record"
    correction_window: Seconds = 3600.0
    reward: str | None = None
    at_least: dict[str, float] | None = None

    @property
    def choices(self) -> Any:
        """Number or names of the arms."""
        return self.arms

    @property
    def learned(self) -> str | None:
        """Name of the metric whose amounts are learned as rewards; None if rewards are sent by themselves."""
        return self.reward

    @property
    def setting(self) -> dict[str, Any]:
        """Settings on which the recommended policy depends besides arms: contexts, signals, shared sums."""
        return {
            "context_dim": self.context_dim,
            "context": self.context,
            "signals_dim": self.signals_dim,
            "sums": self.spread,
        }

    def make_parts(self) -> tuple[Policy, Policy | None, Any]:
        """Make the policy, with minimum shares of arms if configured, the secondary policy and options.

        Both policies get an open range of rewards if the learned metric has one.
        """
        policy, secondary, options = super().make_parts()
        if self._metric is not None and self._metric.is_open:
            policy, secondary = self._with_open_range(policy), secondary and self._with_open_range(secondary)
        if self.at_least:
            policy = MinimumShares(policy, at_least=self.at_least)
        return policy, secondary, options

    @property
    def _metric(self) -> MetricConfig | None:
        """Configuration of the learned metric; None if none is named, or the named one is not configured."""
        return self.metrics.get(self.reward or "")

    def _with_open_range(self, policy: Policy) -> Policy:
        """Return a policy for rewards without a largest value; raise InvalidValue if it cannot learn them."""
        try:
            return policy.with_range((0.0, None))
        except InvalidValue as error:
            field, metric = f"metrics.{self.reward}.range", self._metric
            raise InvalidValue(field, metric and metric.range, needs_ends(policy)) from error

    @property
    def attribution(self) -> dict[str, Any]:
        """Fields of the attribution rule, with the correction window in µs, and the metric's range."""
        return {
            "default": self.default_reward,
            "aggregation": self.aggregation,
            "late": self.late,
            "correction": round(1_000_000 * self.correction_window),
            **self._amounts,
        }

    @property
    def _amounts(self) -> dict[str, Any]:
        """Fields of the attribution rule that follow from the range of the learned metric.

        Their default is the reward of the amount 0; a configured ``default_reward`` takes its place, and the
        rule refuses it.
        """
        fields = {} if self._metric is None else self._metric.attribution
        return fields if not self.default_reward else fields | {"default": self.default_reward}


def make_example(placement: Placement) -> dict[str, Any]:
    """Return an example of a decision request to a placement, with a context if its policy reads one."""
    policy = placement.config.policy
    # A field holds values of a type, or one of a list of values.
    if policy.schema:
        return {"key": KEY, "context": {name: EXAMPLES.get(holds, holds[0]) for name, holds in policy.schema}}
    return {"key": KEY, "context": [0.5] * policy.context_dim} if policy.context_dim else {"key": KEY}


def read_impression(placement: Placement, request: wire.Impression) -> Impression:
    """Validate a decision request and convert it to an impression; raise an error if it is invalid."""
    reader, key, known_keys = placement.reader, request.key, placement.policy.learner.lanes.lane_of_key
    if reader.reads_only_keys and key in known_keys and request == wire.Impression(key):
        return Impression(key, None, None)
    *fields, segment, unknown = msgspec.structs.astuple(request)
    # The fields of a decision request in order; only searches have rankings and segments.
    return reader.read(DecisionRequest._make([*fields, None, None, segment, unknown]))


def read_impressions(
    form: Form, placement: Placement, requests: Sequence[wire.Impression]
) -> Sequence[Impression]:
    """Validate many decision requests and convert them to impressions.

    This is done in columns if they have only keys and users.
    """
    keys, users = [request.key for request in requests], [request.user for request in requests]
    if [wire.Impression(key, user=user) for key, user in zip(keys, users, strict=True)] == requests:
        # If a value is invalid, reading one by one raises an error that names it.
        with contextlib.suppress(TacitError):
            return placement.reader.read_keys(keys, users)
    return SINGLE_FORM.read_many(SINGLE_FORM, placement, requests)


ANSWER_COLUMNS = "id", "arm", "propensity", "epoch"
"""Columns of a row that all answers have, in the order of :class:`~tacit.wire.decisions.Decided`."""
_get_answer_columns = attrgetter(*ANSWER_COLUMNS)


def write_answer(placement: Placement, row: DecisionRow, durability: Any) -> wire.Decided:
    """Return the answer to a decision request from its row of the log.

    It has counterfactual and signals if the placement has them.
    """
    counterfactual = None if row.would is None else wire.Would(row.would, row.would_propensity)
    signals = None if placement.signals is None else placement.signals.get_signals(row)
    return wire.Decided(*_get_answer_columns(row), durability, counterfactual, signals)


def write_answers(
    form: Form, placement: Placement, rows: Sequence[DecisionRow], durability: Any
) -> list[wire.Decided]:
    """Return the answers to many decision requests from their rows of the log.

    Without counterfactuals and signals they are made from columns, which is faster.
    """
    if isinstance(rows, Block) and placement.signals is None and not any(rows.column("would")):
        return list(map(wire.Decided, *map(rows.column, ANSWER_COLUMNS), repeat(durability)))
    return [write_answer(placement, row, durability) for row in rows]


SINGLE_FORM = Form(verbs.DECIDE, verbs.DECIDE_MANY, read_impression, write_answer)
FORM = SINGLE_FORM._replace(read_many=read_impressions, write_many=write_answers)
KIND = Kind(
    ARMS, FORM.verb.path, "arm", ArmsTable, ARM_PARTS, View, make_example,
    form=FORM,
    click_log=True,
    has_arm_lifecycle=True,
    controls=("uniform", "baseline", "arm", "policy"),
)  # fmt: skip


# ---- Placements that show one of the arms that a request describes by their features


class FeaturesTable(ArmsTable, forbid_unknown_fields=True, kw_only=True):
    """Shows one of the arms that a request describes by their features.

    Attributes
    ----------
    arms : int or list of str
        Only for policies that keep state for each arm.
    relevance_dim, examination_dim : int
        Numbers of features of each arm that the recommended policy reads; ``relevance_dim`` is at least 1.
    """

    arms: ArmCount | list[str] | None = None  # type: ignore[assignment]
    relevance_dim: Annotated[int, msgspec.Meta(ge=0)] = 0
    examination_dim: Annotated[int, msgspec.Meta(ge=0)] = 0

    @property
    def setting(self) -> dict[str, Any]:
        """Settings on which the recommended policy depends: features of arms, and contexts."""
        return {
            "relevance_dim": self.relevance_dim,
            "examination_dim": self.examination_dim,
            "context_dim": self.context_dim or self.signals_dim,
            "context": self.context,
        }


def make_features_example(placement: Placement) -> dict[str, Any]:
    """Return an example of a decision request with features of each arm.

    It has three arms if arms come with requests.
    """
    request, count = make_example(placement), len(placement.arms) or 3
    dims = placement.config.policy.feature_dims
    for field, dim in zip(("relevance", "examination"), dims, strict=True):
        if dim:
            request[field] = [[float((i + j) % 2) for j in range(dim)] for i in range(count)]
    return request


FEATURES = Kind(
    "features", FORM.verb.path, "arm", FeaturesTable, FEATURE_PARTS, FeatureView, make_features_example,
    form=FORM,
    by_features=True,
    controls=("uniform", "baseline", "arm", "policy"),
)  # fmt: skip
