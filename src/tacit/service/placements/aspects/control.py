"""The control group of a placement's holdout: what it shows, in which decisions, on what terms."""

# 1. ``Control`` and its kin: what a holdout shows, and with what probability it would have shown something
#    else.
# 2. ``Coin``: which decisions are the control's, by a hash of the unit and the placement, so that all shards
#    agree.
# 3. ``floor_of``: whether every arm is shown now and then, as a winner demands.
# 4. ``ControlGroup``: the holdout that holds, its coin, and what the propensities are once it is tossed;
#    whether a placement can have one; the verbs that begin and end one.

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
from tacit.proof.boundary import BUCKETS
from tacit.service.config.holdout import BASELINE, DECISION, UNIFORM, ControlTable, HoldoutConfig
from tacit.service.config.schema import PlacementConfig
from tacit.service.log.blocks import Block
from tacit.service.log.ids import as_text
from tacit.service.log.rows import CONFIGURATION, HOLDOUT, DecisionRow, MarkRow, by_two, some_by_two
from tacit.service.log.store import Snapshot
from tacit.service.placements.aspects.aspect import Aspect, Effect, Note, Saved
from tacit.service.placements.aspects.chapters import configured_in, holdout_in, terms_of
from tacit.wire import control as wire

if TYPE_CHECKING:
    from tacit.service.placements.placement import Placement


# ---- What the control of a holdout shows, and with what probability it would have shown something


class Control:
    """A control that shows one arm: drawn uniformly, the first one on offer, or one always.

    Parameters
    ----------
    named : str
        ``uniform`` or ``baseline``; read where no slot is given.
    slot : int, optional
        Of the arm that is shown always.

    Examples
    --------
    >>> Control("baseline").shown(np.array([2, 0, 1]), draw=7)
    array([2])
    >>> Control("uniform").chances(np.array([[2], [0]]), [np.arange(4), np.arange(2)])
    array([0.25, 0.5 ])
    """

    width = 1

    def __init__(self, named: str, slot: int | None = None) -> None:
        self._first, self._slot = named == BASELINE, slot

    def shown(self, offer: Ints, draw: int) -> Ints:
        """Return the slots of what is shown, by a number that nobody can foresee.

        Parameters
        ----------
        offer : array of int64
            Slots of the arms on offer; the first one is the baseline.
        draw : int
            Below 2**64.
        """
        return np.full(self.width, self._arm(offer, draw), np.int64)

    def _arm(self, offer: Ints, draw: int) -> int:
        if self._slot is not None:
            # A request that was checked before the holdout changed may not offer it.
            return self._slot if self._slot < 0 or self._slot in offer else int(offer[0])
        return int(offer[0 if self._first else draw % len(offer)])

    def chances(self, shown: Ints, offers: Sequence[Ints]) -> Floats:
        """Return with what probability it would have shown the same.

        Parameters
        ----------
        shown : array of int64, shape (rows, width)
        offers : sequence of array of int64
        """
        first = shown[:, 0]
        if self._slot is not None:
            found = first == [self._arm(offer, 0) for offer in offers]
        elif self._first:
            found = first == [offer[0] for offer in offers]
        else:
            found = 1.0 / np.array(list(map(len, offers)), np.float64)
        return np.asarray((shown == first[:, None]).all(axis=1) * found, np.float64)


class PairControl(Control):
    """A control of duels: the list of one ranker alone."""

    width = 2


class ListControl(Control):
    """A control that lists arms: in a random order, or as they come.

    Parameters
    ----------
    named : str
    positions : int

    Examples
    --------
    >>> control = ListControl("baseline", positions=2)
    >>> control.shown(np.array([2, 0, 1]), draw=7)
    array([2, 0])
    >>> ListControl("uniform", positions=2).chances(np.array([[2, 0]]), [np.arange(3)]).round(3)
    array([0.167])
    """

    def __init__(self, named: str, positions: int) -> None:
        super().__init__(named)
        self.width = positions

    def shown(self, offer: Ints, draw: int) -> Ints:
        """Return the slots of a list; −1 where too few are on offer."""
        listed = np.full(self.width, -1, np.int64)
        if not self._first:
            offer = np.random.Generator(np.random.PCG64(draw)).permutation(offer)
        count = min(self.width, len(offer))
        listed[:count] = offer[:count]
        return listed

    def chances(self, shown: Ints, offers: Sequence[Ints]) -> Floats:
        """Return with what probability it would have shown the same list."""
        return self.prefixes(shown, offers)[:, -1]

    def prefixes(self, shown: Ints, offers: Sequence[Ints]) -> Floats:
        """Return with what probability its list would have begun so, down to each position."""
        return np.asarray(np.cumprod(self._given_above(shown, offers), axis=1), np.float64)

    def places(self, shown: Ints, offers: Sequence[Ints]) -> Floats:
        """Return with what probability it would have had each arm at its position."""
        if self._first:
            return self._given_above(shown, offers)
        sizes = np.array(list(map(len, offers)), np.float64)[:, None]
        return np.where(shown >= 0, 1.0 / sizes, self._given_above(shown, offers))

    def _given_above(self, shown: Ints, offers: Sequence[Ints]) -> Floats:
        """Return with what probability it has each arm at its position, given those above."""
        found = np.empty(shown.shape)
        for row, slots, offer in zip(found, shown, offers, strict=True):
            if self._first:
                row[:] = slots == self.shown(offer, 0)
            else:
                left = len(offer) - np.arange(self.width)
                # Where none is left the position is empty, and only there.
                row[:] = np.where(left > 0, (slots >= 0) / np.maximum(left, 1), slots < 0)
        return found


# ---- The coin of a holdout: which decisions are the control's, and what the control shows

KEY_BYTES = 16
COIN = "the coin of its holdout is tossed here; where something else decides, take the holdout away"
WHOLE = 2**64


class Tossed(NamedTuple):
    """What the coin says of decisions.

    Attributes
    ----------
    control : list of int
        1 for the control's, 0 for the policy's.
    bucket : list of int or None
        Of their users or sessions.
    imposed : array of int64, shape (rows, width)
        Slots of what the control shows; −1 for decisions of the policy.
    """

    control: list[int]
    bucket: list[int | None]
    imposed: Ints


class Coin:
    """Tosses for each unit, with the same result always: by its id and the placement's seed alone.

    Parameters
    ----------
    config : HoldoutConfig
    seed : int
        The placement's.
    control : Control
        What the control shows; of a policy of its own, nothing is asked.

    Examples
    --------
    >>> coin = Coin(HoldoutConfig(share=0.5, unit="user"), seed=7, control=Control("uniform"))
    >>> tossed = coin.toss(["1", "2", "3"], ["ann", "ann", "bob"], 3 * [np.arange(4)])
    >>> tossed.control[0] == tossed.control[1], tossed.bucket[0] == tossed.bucket[1]
    (True, True)
    """

    def __init__(self, config: HoldoutConfig, seed: int, control: Control) -> None:
        self.config = config
        self.control = control
        self._hash = hashlib.blake2b(
            key=seed.to_bytes(KEY_BYTES, "little"), person=b"holdout", digest_size=24
        )

    def _numbers(self, id: str) -> tuple[int, int, int]:
        """Return three numbers below 2**64 that nobody can foresee without the seed."""
        hashed = self._hash.copy()
        hashed.update(id.encode())
        whole = int.from_bytes(hashed.digest(), "little")
        return whole % WHOLE, (whole >> 64) % WHOLE, whole >> 128

    def toss(
        self, ids: Sequence[str], units: Sequence[str | None], offers: Sequence[Ints], *, every: bool = False
    ) -> Tossed:
        """Return which decisions are the control's, and what it shows.

        Parameters
        ----------
        ids : sequence of str
            Of the decisions.
        units : sequence of str or None
            Of their users or sessions, where those stay in their group.
        offers : sequence of array of int64
            Slots of the arms on offer; the first one is the baseline.
        every : bool, default False
            Whether every one is the control's, whatever the coin says.
        """
        sticky, limit = self.config.unit != DECISION, WHOLE if every else int(self.config.share * WHOLE)
        if sticky and None in units:
            warnings.warn(drawn_alone(self.config.unit), AssumptionWarning, stacklevel=2)
        control: list[int] = []
        bucket: list[int | None] = []
        imposed = np.full((len(ids), self.control.width), -1, np.int64)
        for i, (id, unit) in enumerate(zip(ids, units, strict=True)):
            coin, place, draw = self._numbers(id)
            if sticky and unit is not None:
                # Not what a decision of the same name has.
                coin, place, _ = self._numbers(f"{self.config.unit}\0{unit}")
            control.append(int(coin < limit))
            bucket.append(place % BUCKETS if sticky else None)
            if coin < limit:
                imposed[i] = self.control.shown(offers[i], draw)
        return Tossed(control, bucket, imposed)

    def bucket(self, id: str, unit: str | None) -> int:
        """Return to which bucket a user or a session belongs, or else a decision that names none."""
        return self._numbers(id if unit is None else f"{self.config.unit}\0{unit}")[1] % BUCKETS

    def mixed(self, policy: Floats, control: Floats) -> Floats:
        """Return with what probability policy and control together show what is shown.

        Parameters
        ----------
        policy, control : array of float64
            With what probability each alone would; NaN where it is not known.
        """
        share = self.config.share
        return (1 - share) * policy + share * control

    def unmixed(self, logged: Floats, control: Floats) -> Floats:
        """Return what :meth:`mixed` was given of the policy, from what it returned."""
        share = self.config.share
        policy = (logged - share * control) / (1 - share)
        # What rounding leaves of 0 is not negative.
        return np.clip(policy, 0.0, 1.0)


def drawn_alone(unit: str) -> str:
    """Return what is said of a decision that does not name its unit."""
    return f"holdout.unit: a decision without {unit} is drawn alone; send {unit} with each"


# ---- Whether every arm on offer is shown now and then, so that a winner may be declared


def floor_of(policy: policies.Policy, holdout: HoldoutConfig | None = None) -> float:
    """Return what every arm's propensity is at least, times the arms, whatever was learned.

    It is as if an arm was drawn uniformly in that share of the decisions.

    Parameters
    ----------
    policy : Policy
    holdout : HoldoutConfig, optional

    Examples
    --------
    >>> from tacit.policies import UCB1, EpsilonGreedy
    >>> floor_of(EpsilonGreedy(arms=3, epsilon=0.2)), floor_of(UCB1(arms=3))
    (0.2, 0.0)
    >>> floor_of(UCB1(arms=3), HoldoutConfig(share=0.1))
    0.1
    """
    own = _floor_of(policy)
    if holdout is None:
        return own
    uniform = 1.0 if holdout.control == "uniform" else 0.0
    return (1 - holdout.share) * own + holdout.share * uniform


def _floor_of(policy: policies.Policy) -> float:
    if isinstance(policy, policies.UniformRandom):
        return 1.0
    if isinstance(policy, policies.EXP3 | policies.baselines.EXP3S):
        return float(policy.gamma)
    if isinstance(policy, policies.ExplorationFloor):
        floor = policy.epsilon + (1 - policy.epsilon) * _floor_of(policy.policy)
        if not isinstance(policy, policies.MinimumShares):
            return floor
        # What was promised comes first; each arm has as much as the least of them, if all have some.
        promised: list[float] = [share for _, share in policy.at_least]
        all_have = len(promised) == policy.arm_count and policy.showing.single
        alike = policy.arm_count * min(promised) if all_have else 0.0
        return alike + (1 - sum(promised)) * floor
    if isinstance(policy, policies.EpsilonGreedy | policies.LinearEpsilonGreedy):
        return policy.epsilon
    return float(policy.params.exploration) if isinstance(policy, policies.ShiftMixture) else 0.0


class ControlGroup(Aspect):
    """The holdout, its coin, and what the propensities are once it is tossed.

    Parameters
    ----------
    holdout : HoldoutConfig or None
        None where nothing is held out.

    Attributes
    ----------
    holdout : HoldoutConfig or None
    coin : Coin or None
        Knows the slot of the control's arm.
    """

    mark = HOLDOUT

    def __init__(self, holdout: HoldoutConfig | None) -> None:
        self.holdout = holdout
        self.coin: Coin | None = None
        # Entries of open decisions that a control's own policy made.
        self.not_own: set[int] = set()

    def arms_named(self, placement: Placement) -> None:
        """Have a coin that knows the slot of the control's arm."""
        holdout = self.holdout
        self.coin = None
        if holdout is not None:
            self.coin = Coin(holdout, placement.seed, placement.control_of(holdout))

    def hold_out(self, placement: Placement, holdout: HoldoutConfig | None) -> None:
        """Have another holdout, or none."""
        self.holdout = holdout
        self.arms_named(placement)

    def marked(self, placement: Placement, mark: MarkRow) -> None:
        """Take in a mark: another holdout, or none, from now on."""
        self.hold_out(placement, holdout_in(mark.value))
        sticky = self.holdout is not None and self.holdout.unit != DECISION
        placement.earnings.sums.begin(mark.value, mark.seq, mark.time, clustered=sticky)

    def current(self, placement: Placement) -> str:
        """Return what the last mark says, or would say."""
        return placement.earnings.sums.terms

    def restore(self, placement: Placement, saved: Saved, snapshot: Snapshot) -> None:
        """Take over its part of a snapshot, which the sums behind the lift have."""
        if saved.lift is not None:
            self.hold_out(placement, holdout_in(placement.earnings.sums.terms))

    @staticmethod
    def change(mark: MarkRow, before: MarkRow | None, arms: Sequence[Arm]) -> Note | None:
        """Return another holdout, or none; of one that is configured, the configuration's own mark tells."""
        if mark.who == CONFIGURATION:
            return None
        return HOLDOUT, {"holdout": (json.loads(mark.value) or {}).get("holdout")}

    def show(self, placement: Placement, parts: Sequence[None]) -> None:
        """Show the holdout on which the sums of all shards rest."""
        self.hold_out(placement, holdout_in(placement.earnings.sums.terms))

    def stays_here(self, placement: Placement, time: int | None) -> str | None:
        """Return why decisions cannot be made next to the caller."""
        return None if self.coin is None else COIN

    # Terms -----------------------------------------------------------------------------------

    def terms(self, placement: Placement) -> str:
        """Return what the sums behind the lift shall rest on, as JSON; with other terms they begin anew.

        What somebody has put in the place of the configured holdout stays until that is changed.
        """
        configured = placement.config.holdout
        stays = configured_in(placement.earnings.sums.terms) == configured
        return _terms_with(placement.config, self.holdout if stays else configured)

    def after(self, placement: Placement, holdout: HoldoutConfig | None, time: int) -> str:
        """Return the terms with another holdout at a time of the log; nothing is changed yet.

        Raises
        ------
        InvalidValue
            If the placement cannot have such a holdout.
        """
        if placement.two:
            remedy = "a control's own policy is set in the configuration, and taken over at SIGHUP"
            raise InvalidValue("holdout", placement.name, remedy)
        if holdout is not None:
            _check(placement, holdout, time)
        elif placement.modes.control_decides:
            remedy = "set another mode first: its control decides everything"
            raise InvalidValue("holdout", placement.name, remedy)
        return _terms_with(placement.config, holdout)

    # Deciding --------------------------------------------------------------------------------

    def with_chances(self, made: Decisions, offers: Sequence[Ints], *, alone: bool) -> Decisions:
        """Return decisions with the propensities of policy and control together, or of the control alone."""
        assert self.coin is not None
        coin, control, shown = self.coin, self.coin.control, made.actions

        def of(policy: Floats, chances: Floats) -> Floats:
            return chances if alone else coin.mixed(policy, chances)

        made = replace(made, propensities=of(made.propensities, control.chances(shown, offers)))
        if not len(made.prefixes) or not isinstance(control, ListControl):
            return made
        prefixes = of(made.prefixes, control.prefixes(shown, offers))
        return replace(made, prefixes=prefixes, places=of(made.places, control.places(shown, offers)))

    def shows(self, offer: Ints) -> list[int] | None:
        """Return what the control shows of an offer always; None where it draws, or there is none."""
        if self.coin is None or self.coin.config.control == UNIFORM:
            return None
        return self.coin.control.shown(offer, 0).tolist()  # type: ignore[no-any-return]

    # Open decisions --------------------------------------------------------------------------

    def keep(self, entries: Ints, rows: Block[DecisionRow]) -> None:
        """Keep which new open decisions are not the placement's own policy's to learn from."""
        if self.not_own:
            self.not_own.difference_update(entries.tolist())
        if some_by_two(rows):
            made = zip(entries.tolist(), rows, strict=True)
            self.not_own.update(entry for entry, row in made if row.control and by_two(row))

    def own(self, entries: Sequence[int]) -> Sequence[int]:
        """Return the places of the open decisions that the placement's own policy learns from."""
        if not self.not_own:
            return range(len(entries))
        return [i for i, entry in enumerate(entries) if entry not in self.not_own]


def _terms_with(config: PlacementConfig, holdout: HoldoutConfig | None) -> str:
    if holdout == config.holdout:
        rules = {} if holdout is None else {"rule": config.rule, "metrics": config.metrics}
        return terms_of(holdout, rules)
    return terms_of(holdout, {"rule": config.rule, "metrics": config.metrics}, config.holdout)


def _check(placement: Placement, holdout: HoldoutConfig, time: int) -> None:
    """Check that a placement can have a holdout at a time of the log."""
    kind, offered = placement.kind, placement.offer.arms
    if holdout.arm is not None and holdout.arm not in offered:
        known = ", ".join(map(str, offered)) or "none: they come with requests"
        raise InvalidValue("control", holdout.arm, f"on offer are {known}")
    check_look(holdout, time)
    try:
        holdout.check(kind.name, kind.controls)
    except ConfigError as error:
        raise InvalidValue("holdout", placement.name, str(error)) from error


def check_look(holdout: HoldoutConfig | None, time: int) -> None:
    """Check that a look that is planned anew, at a time of the log, is to come.

    Raises
    ------
    InvalidValue
        If it is not.
    """
    if holdout is not None and holdout.looked is not None and holdout.looked <= time:
        remedy = f"plan a later one, or leave it out: it is {as_text(time)} by now"
        raise InvalidValue("look", holdout.look, remedy)


# ---- The verbs that change it


def _hold_out(placement: Placement, asked: wire.HoldoutOf, time: int) -> str:
    shown = asked.control
    control = shown if isinstance(shown, str) else ControlTable(arm=shown.arm)
    holdout = HoldoutConfig(asked.share, control, asked.unit, asked.look)
    return placement.control.after(placement, holdout, time)


def _end(placement: Placement, asked: wire.EndHoldout, time: int) -> str:
    return placement.control.after(placement, None, time)


def _now(placement: Placement, time: int) -> wire.HoldoutNow:
    holdout = placement.holdout
    return wire.HoldoutNow(None if holdout is None else wire.Holdout(**msgspec.to_builtins(holdout)))


ControlGroup.changes = {
    wire.HoldoutOf: Effect(HOLDOUT, _hold_out, _now),
    wire.EndHoldout: Effect(HOLDOUT, _end, _now),
}
