"""The control group of a placement's holdout: its assignment, actions, propensities and terms."""

# 1. ``Control`` and its subclasses: actions of the control, and their probabilities.
# 2. ``HoldoutAssigner``: assigns decisions by a hash of the unit and the seed, so that all shards agree.
# 3. ``compute_floor``: lower bound of the propensities, which a declared winner requires.
# 4. ``ControlGroup``: the current holdout, its assigner and propensities; checks; the verbs that begin and
#    end a holdout.

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from tacit import policies
from tacit.core.arrays import Floats, Ints
from tacit.errors import AssumptionWarning, ConfigError, InvalidValue
from tacit.learning.decisions import Arm, Decisions
from tacit.service.config.holdout import BASELINE, DECISION, UNIFORM, ControlTable, HoldoutConfig
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.blocks import Block
from tacit.service.log.ids import as_text
from tacit.service.log.rows import (
    CONFIGURATION,
    HOLDOUT,
    ChangeRow,
    DecisionRow,
    any_control_policy,
    has_control_policy,
)
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Effect, Note, SavedState
from tacit.service.placements.aspects.lift_periods import (
    encode_terms,
    parse_configured_holdout,
    parse_holdout,
)
from tacit.uplift.boundary import BUCKETS
from tacit.wire import control as wire

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement


# ---- Actions of the control, and their probabilities


class Control:
    """A control that shows one arm: uniformly drawn, the first on offer, or a constant one.

    Parameters
    ----------
    rule : str
        ``uniform`` or ``baseline``; ignored with an arm index.
    arm_index : int, optional
        Index of the constant arm.

    Examples
    --------
    >>> Control("baseline").choose_action(np.array([2, 0, 1]), draw=7)
    array([2])
    >>> Control("uniform").compute_probabilities(np.array([[2], [0]]), [np.arange(4), np.arange(2)])
    array([0.25, 0.5 ])
    """

    width = 1

    def __init__(self, rule: str, arm_index: int | None = None) -> None:
        self._is_baseline, self._arm_index = rule == BASELINE, arm_index

    def choose_action(self, offer: Ints, draw: int) -> Ints:
        """Return the arm indices of the control's action, shape (width,): the same arm at each position.

        Parameters
        ----------
        offer : array of int64
            Indices of the arms on offer; the first one is the baseline.
        draw : int
            Below 2**64.
        """
        return np.full(self.width, self._arm(offer, draw), np.int64)

    def _arm(self, offer: Ints, draw: int) -> int:
        """Return the index of the arm that the control shows: the constant, the first, or number ``draw``.

        If the constant arm is not on offer, it is the first one.
        """
        if self._arm_index is not None:
            # A request that was checked before the holdout changed may lack the arm.
            return self._arm_index if self._arm_index < 0 or self._arm_index in offer else int(offer[0])
        return int(offer[0 if self._is_baseline else draw % len(offer)])

    def compute_probabilities(self, actions: Ints, offers: Sequence[Ints]) -> Floats:
        """Return, for each row, the probability that the control shows the row's action.

        Parameters
        ----------
        actions : array of int64, shape (rows, width)
            Arm indices of each row's action.
        offers : sequence of array of int64
            Indices of the arms on offer in each row.

        Returns
        -------
        array of float64, shape (rows,)
        """
        first = actions[:, 0]
        if self._arm_index is not None:
            probabilities = first == [self._arm(offer, 0) for offer in offers]
        elif self._is_baseline:
            probabilities = first == [offer[0] for offer in offers]
        else:
            probabilities = 1.0 / np.array(list(map(len, offers)), np.float64)
        return np.asarray((actions == first[:, None]).all(axis=1) * probabilities, np.float64)


class PairControl(Control):
    """A control of duels: the list of one ranker alone."""

    width = 2


class ListControl(Control):
    """A control that lists arms: in random order, or in the order of the offer.

    Parameters
    ----------
    rule : str
    positions : int

    Examples
    --------
    >>> control = ListControl("baseline", positions=2)
    >>> control.choose_action(np.array([2, 0, 1]), draw=7)
    array([2, 0])
    >>> ListControl("uniform", positions=2).compute_probabilities(np.array([[2, 0]]), [np.arange(3)]).round(3)
    array([0.167])
    """

    def __init__(self, rule: str, positions: int) -> None:
        super().__init__(rule)
        self.width = positions

    def choose_action(self, offer: Ints, draw: int) -> Ints:
        """Return the arm indices of a list, shape (positions,); −1 where too few arms are on offer.

        For a uniform control the order is drawn with ``draw`` as the seed.
        """
        listed = np.full(self.width, -1, np.int64)
        if not self._is_baseline:
            offer = np.random.Generator(np.random.PCG64(draw)).permutation(offer)
        count = min(self.width, len(offer))
        listed[:count] = offer[:count]
        return listed

    def compute_probabilities(self, actions: Ints, offers: Sequence[Ints]) -> Floats:
        """Return, for each row, the probability that the control shows the row's whole list."""
        return self.prefix_probabilities(actions, offers)[:, -1]

    def prefix_probabilities(self, actions: Ints, offers: Sequence[Ints]) -> Floats:
        """Return, for each position, the probability of the row's list down to it, shape (rows, width)."""
        return np.asarray(np.cumprod(self._conditional_probabilities(actions, offers), axis=1), np.float64)

    def position_probabilities(self, actions: Ints, offers: Sequence[Ints]) -> Floats:
        """Return the probability that the control shows each arm at its position, shape (rows, width)."""
        if self._is_baseline:
            return self._conditional_probabilities(actions, offers)
        sizes = np.array(list(map(len, offers)), np.float64)[:, None]
        return np.where(actions >= 0, 1.0 / sizes, self._conditional_probabilities(actions, offers))

    def _conditional_probabilities(self, actions: Ints, offers: Sequence[Ints]) -> Floats:
        """Return the probability of each arm at its position, conditional on the arms above."""
        probabilities = np.empty(actions.shape)
        for row, indices, offer in zip(probabilities, actions, offers, strict=True):
            if self._is_baseline:
                row[:] = indices == self.choose_action(offer, 0)
            else:
                remaining = len(offer) - np.arange(self.width)
                # A position is empty if and only if no arm remains.
                row[:] = np.where(remaining > 0, (indices >= 0) / np.maximum(remaining, 1), indices < 0)
        return probabilities


# ---- Assignment to the holdout

KEY_BYTES = 16
REASON_NOT_LOCAL = (
    "the coin of its holdout is tossed here; where something else decides, take the holdout away"
)
WHOLE = 2**64


class Assignment(NamedTuple):
    """Assignment of decisions to the control or the policy.

    Attributes
    ----------
    in_control : list of int
        1 for the control, 0 for the policy.
    buckets : list of int or None
        Buckets of the users or sessions.
    forced_actions : array of int64, shape (rows, width)
        Arm indices of the control's actions; −1 for decisions of the policy.
    """

    in_control: list[int]
    buckets: list[int | None]
    forced_actions: Ints


class HoldoutAssigner:
    """Assigns units to the control or the policy, by a hash of the unit's id and the placement's seed.

    A unit always gets the same group.

    Parameters
    ----------
    config : HoldoutConfig
    seed : int
        Seed of the placement.
    control : Control
        Chooses the control's actions; unused if the control has its own policy.

    Examples
    --------
    >>> assigner = HoldoutAssigner(HoldoutConfig(share=0.5, unit="user"), seed=7, control=Control("uniform"))
    >>> assignment = assigner.assign(["1", "2", "3"], ["ann", "ann", "bob"], 3 * [np.arange(4)])
    >>> assignment.in_control[0] == assignment.in_control[1], assignment.buckets[0] == assignment.buckets[1]
    (True, True)
    """

    def __init__(self, config: HoldoutConfig, seed: int, control: Control) -> None:
        """Prepare the hash, which is keyed by the seed."""
        self.config = config
        self.control = control
        self._hash = hashlib.blake2b(
            key=seed.to_bytes(KEY_BYTES, "little"), person=b"holdout", digest_size=24
        )

    def _numbers(self, id: str) -> tuple[int, int, int]:
        """Hash an id to three numbers below 2**64: for the group, the bucket and the control's draw."""
        hashed = self._hash.copy()
        hashed.update(id.encode())
        digest = int.from_bytes(hashed.digest(), "little")
        return digest % WHOLE, (digest >> 64) % WHOLE, digest >> 128

    def assign(
        self,
        ids: Sequence[str],
        units: Sequence[str | None],
        offers: Sequence[Ints],
        *,
        all_control: bool = False,
    ) -> Assignment:
        """Assign decisions to the control or the policy, and choose the control's actions.

        Warns (AssumptionWarning) if units stay in their group and a decision lacks its unit.

        Parameters
        ----------
        ids : sequence of str
            Ids of the decisions.
        units : sequence of str or None
            Users or sessions, if those stay in their group.
        offers : sequence of array of int64
            Indices of the arms on offer; the first one is the baseline.
        all_control : bool, default False
            Whether to assign every decision to the control.
        """
        sticky, limit = self.config.unit != DECISION, WHOLE if all_control else int(self.config.share * WHOLE)
        if sticky and None in units:
            warnings.warn(format_unit_warning(self.config.unit), AssumptionWarning, stacklevel=2)
        in_control: list[int] = []
        buckets: list[int | None] = []
        forced_actions = np.full((len(ids), self.control.width), -1, np.int64)
        for i, (id, unit) in enumerate(zip(ids, units, strict=True)):
            number, bucket_number, draw = self._numbers(id)
            if sticky and unit is not None:
                # The prefix separates units from decisions with the same id.
                number, bucket_number, _ = self._numbers(f"{self.config.unit}\0{unit}")
            in_control.append(int(number < limit))
            buckets.append(bucket_number % BUCKETS if sticky else None)
            if number < limit:
                forced_actions[i] = self.control.choose_action(offers[i], draw)
        return Assignment(in_control, buckets, forced_actions)

    def get_bucket(self, id: str, unit: str | None) -> int:
        """Return the bucket number (below ``BUCKETS``) of a user or session, or of a decision without one."""
        return self._numbers(id if unit is None else f"{self.config.unit}\0{unit}")[1] % BUCKETS

    def mix_propensities(self, policy: Floats, control: Floats) -> Floats:
        """Return (1 − share) · policy + share · control: probabilities of actions under the whole traffic.

        Parameters
        ----------
        policy, control : array of float64
            Probabilities of each alone; NaN if unknown.
        """
        share = self.config.share
        return (1 - share) * policy + share * control

    def unmix_propensities(self, logged: Floats, control: Floats) -> Floats:
        """Return the policy's probabilities, in [0, 1], from mixed ones and those of the control."""
        share = self.config.share
        policy = (logged - share * control) / (1 - share)
        # Rounding may yield values slightly below 0.
        return np.clip(policy, 0.0, 1.0)


def format_unit_warning(unit: str) -> str:
    """Return the text of the warning for a decision without its user or session."""
    return f"holdout.unit: a decision without {unit} is drawn alone; send {unit} with each"


# ---- A lower bound of the propensities, which a declared winner requires


def compute_floor(policy: policies.Policy, holdout: HoldoutConfig | None = None) -> float:
    """Return a lower bound of the arms' propensities, times the number of arms, whatever was learned.

    It is the share of decisions in which an arm could be drawn uniformly.

    Parameters
    ----------
    policy : Policy
    holdout : HoldoutConfig, optional

    Examples
    --------
    >>> from tacit.policies import UCB1, EpsilonGreedy
    >>> compute_floor(EpsilonGreedy(arms=3, epsilon=0.2)), compute_floor(UCB1(arms=3))
    (0.2, 0.0)
    >>> compute_floor(UCB1(arms=3), HoldoutConfig(share=0.1))
    0.1
    """
    floor = _compute_policy_floor(policy)
    if holdout is None:
        return floor
    uniform = 1.0 if holdout.control == "uniform" else 0.0
    return (1 - holdout.share) * floor + holdout.share * uniform


def _compute_policy_floor(policy: policies.Policy) -> float:
    """Return the lower bound of :func:`compute_floor` for a policy without a holdout; 0 if unknown."""
    if isinstance(policy, policies.UniformRandom):
        return 1.0
    if isinstance(policy, policies.EXP3 | policies.baselines.EXP3S):
        return float(policy.gamma)
    if isinstance(policy, policies.ExplorationFloor):
        floor = policy.epsilon + (1 - policy.epsilon) * _compute_policy_floor(policy.policy)
        if not isinstance(policy, policies.MinimumShares):
            return floor
        # Promised shares come first; if all arms have one, the least of them bounds every arm.
        promised: list[float] = [share for _, share in policy.at_least]
        all_have = len(promised) == policy.arm_count and policy.showing.single
        equal_floor = policy.arm_count * min(promised) if all_have else 0.0
        return equal_floor + (1 - sum(promised)) * floor
    if isinstance(policy, policies.EpsilonGreedy | policies.LinearEpsilonGreedy):
        return policy.epsilon
    return float(policy.params.exploration) if isinstance(policy, policies.ShiftMixture) else 0.0


class ControlGroup(Aspect):
    """The holdout, its assignment, and the propensities that result from it.

    Parameters
    ----------
    holdout : HoldoutConfig or None
        None without a holdout.

    Attributes
    ----------
    holdout : HoldoutConfig or None
    assigner : HoldoutAssigner or None
        Knows the index of the control's arm.
    """

    change_kind = HOLDOUT

    def __init__(self, holdout: HoldoutConfig | None) -> None:
        """Begin with the holdout; the assigner is made by :meth:`update_arms`."""
        self.holdout = holdout
        self.assigner: HoldoutAssigner | None = None
        # Entries of open decisions by the control's own policy.
        self.control_entries: set[int] = set()

    def update_arms(self, placement: Placement) -> None:
        """Make a new assigner, which knows the index of the control's arm; None without a holdout."""
        holdout = self.holdout
        self.assigner = None
        if holdout is not None:
            self.assigner = HoldoutAssigner(holdout, placement.seed, placement.make_control(holdout))

    def set_holdout(self, placement: Placement, holdout: HoldoutConfig | None) -> None:
        """Set another holdout, or none, and make its assigner."""
        self.holdout = holdout
        self.update_arms(placement)

    def apply_change(self, placement: Placement, change: ChangeRow) -> None:
        """Apply a change event: set another holdout or none, and begin a new period of the reward sums."""
        self.set_holdout(placement, parse_holdout(change.value))
        sticky = self.holdout is not None and self.holdout.unit != DECISION
        placement.reward_sums.sums.begin(change.value, change.seq, change.time, clustered=sticky)

    def current(self, placement: Placement) -> str:
        """Return the current terms as JSON: the last change event's value, or the initial terms."""
        return placement.reward_sums.sums.terms

    def restore(self, placement: Placement, saved: SavedState, snapshot: Snapshot) -> None:
        """Set the holdout from the terms in the reward sums, which must be restored before."""
        if saved.lift is not None:
            self.set_holdout(placement, parse_holdout(placement.reward_sums.sums.terms))

    @staticmethod
    def parse_change(
        change: ChangeRow, previous: ChangeRow | None, initial_arms: Sequence[Arm]
    ) -> Note | None:
        """Return ("holdout", {"holdout": settings or None}) for a request's change.

        None for a change by the configuration, which has its own change event.
        """
        if change.who == CONFIGURATION:
            return None
        return HOLDOUT, {"holdout": (json.loads(change.value) or {}).get("holdout")}

    def merge_parts(self, placement: Placement, parts: Sequence[None]) -> None:
        """Set the holdout of the merged reward sums of all shards."""
        self.set_holdout(placement, parse_holdout(placement.reward_sums.sums.terms))

    def reason_not_local(self, placement: Placement, time: int | None) -> str | None:
        """Return that the holdout assigns decisions in the service; None without a holdout."""
        return None if self.assigner is None else REASON_NOT_LOCAL

    # Terms -----------------------------------------------------------------------------------

    def resolve_terms(self, placement: Placement) -> str:
        """Return the terms for the reward sums as JSON: the holdout, the rule of rewards and the metrics.

        If they differ from the current terms, the caller begins a new period of sums. The holdout is the
        configured one, or the one that a request has set, until the configured one changes. The terms are
        ``null`` if there is no holdout, neither configured nor set.
        """
        configured = placement.config.holdout
        stays = parse_configured_holdout(placement.reward_sums.sums.terms) == configured
        return _make_terms(placement.config, self.holdout if stays else configured)

    def make_terms(self, placement: Placement, holdout: HoldoutConfig | None, time: int) -> str:
        """Return the terms as JSON that a request for another holdout, or none, would set; changes nothing.

        Raises
        ------
        InvalidValue
            If the placement cannot have the holdout.
        """
        if placement.has_control_policy:
            remedy = "a control's own policy is set in the configuration, and taken over at SIGHUP"
            raise InvalidValue("holdout", placement.name, remedy)
        if holdout is not None:
            _check(placement, holdout, time)
        elif placement.modes.control_decides:
            remedy = "set another mode first: its control decides everything"
            raise InvalidValue("holdout", placement.name, remedy)
        return _make_terms(placement.config, holdout)

    # Deciding --------------------------------------------------------------------------------

    def with_propensities(self, decisions: Decisions, offers: Sequence[Ints], *, alone: bool) -> Decisions:
        """Return decisions with propensities of policy and control mixed, or of the control if ``alone``.

        The propensities of prefixes and positions of lists are replaced, too.
        """
        assert self.assigner is not None
        assigner, control, actions = self.assigner, self.assigner.control, decisions.actions

        def mix(policy: Floats, chances: Floats) -> Floats:
            return chances if alone else assigner.mix_propensities(policy, chances)

        decisions = replace(
            decisions,
            propensities=mix(decisions.propensities, control.compute_probabilities(actions, offers)),
        )
        if not len(decisions.prefixes) or not isinstance(control, ListControl):
            return decisions
        prefixes = mix(decisions.prefixes, control.prefix_probabilities(actions, offers))
        return replace(
            decisions,
            prefixes=prefixes,
            places=mix(decisions.places, control.position_probabilities(actions, offers)),
        )

    def get_constant_action(self, offer: Ints) -> list[int] | None:
        """Return the arm indices that the control always shows of an offer; None if it draws.

        Also None without a holdout.
        """
        if self.assigner is None or self.assigner.config.control == UNIFORM:
            return None
        return self.assigner.control.choose_action(offer, 0).tolist()  # type: ignore[no-any-return]

    # Open decisions --------------------------------------------------------------------------

    def keep(self, entries: Ints, rows: Block[DecisionRow]) -> None:
        """Update ``control_entries``: new open decisions (entries) that the control's own policy made.

        Entries that are used again for other decisions are taken out.
        """
        if self.control_entries:
            self.control_entries.difference_update(entries.tolist())
        if any_control_policy(rows):
            pairs = zip(entries.tolist(), rows, strict=True)
            self.control_entries.update(
                entry for entry, row in pairs if row.control and has_control_policy(row)
            )

    def select_indices(self, entries: Sequence[int]) -> Sequence[int]:
        """Return the positions in ``entries`` of decisions that the placement's own policy learns."""
        if not self.control_entries:
            return range(len(entries))
        return [i for i, entry in enumerate(entries) if entry not in self.control_entries]


def _make_terms(config: PlacementConfig, holdout: HoldoutConfig | None) -> str:
    """Encode the terms of a holdout as JSON; if a request set it, the configured one is included."""
    if holdout == config.holdout:
        rules = {} if holdout is None else {"rule": config.rule, "metrics": config.metrics}
        return encode_terms(holdout, rules)
    return encode_terms(holdout, {"rule": config.rule, "metrics": config.metrics}, config.holdout)


def _check(placement: Placement, holdout: HoldoutConfig, time: int) -> None:
    """Raise InvalidValue if the placement cannot have the holdout at a time of the log."""
    kind, offered = placement.kind, placement.offer.arms
    if holdout.arm is not None and holdout.arm not in offered:
        allowed = ", ".join(map(str, offered)) or "none: they come with requests"
        raise InvalidValue("control", holdout.arm, f"on offer are {allowed}")
    check_look(holdout, time)
    try:
        holdout.check(kind.name, kind.controls)
    except ConfigError as error:
        raise InvalidValue("holdout", placement.name, str(error)) from error


def check_look(holdout: HoldoutConfig | None, time: int) -> None:
    """Check that the holdout's planned look, if any, lies after a time of the log.

    Raises
    ------
    InvalidValue
        If the look is not later.
    """
    if holdout is not None and holdout.look_time is not None and holdout.look_time <= time:
        remedy = f"plan a later one, or leave it out: it is {as_text(time)} by now"
        raise InvalidValue("look", holdout.look, remedy)


# ---- The verbs that change it


def _hold_out(placement: Placement, request: wire.HoldoutOf, time: int) -> str:
    """Return the terms as JSON that a request to begin a holdout would set; changes nothing."""
    control_request = request.control
    control = control_request if isinstance(control_request, str) else ControlTable(arm=control_request.arm)
    holdout = HoldoutConfig(request.share, control, request.unit, request.look)
    return placement.control.make_terms(placement, holdout, time)


def _end(placement: Placement, request: wire.EndHoldout, time: int) -> str:
    """Return the terms as JSON that a request to end the holdout would set; changes nothing."""
    return placement.control.make_terms(placement, None, time)


def _get_status(placement: Placement, time: int) -> wire.HoldoutNow:
    """Return the current holdout as the answer to a request."""
    holdout = placement.holdout
    return wire.HoldoutNow(None if holdout is None else wire.Holdout(**msgspec.to_builtins(holdout)))


ControlGroup.effects = {
    wire.HoldoutOf: Effect(HOLDOUT, _hold_out, _get_status),
    wire.EndHoldout: Effect(HOLDOUT, _end, _get_status),
}
