"""One placement: its learner and its series, both a fold over its part of the log."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tacit import checks
from tacit.decisions import Arm, Decision
from tacit.errors import ConfigError, InvalidValue, TacitError
from tacit.learner import Learner
from tacit.policies import Policy, policy_from_spec, policy_to_spec
from tacit.service.config import PlacementConfig
from tacit.service.ids import decision_id
from tacit.service.series import Series
from tacit.service.store import (
    LATE,
    LEARNED,
    Answered,
    DecisionRow,
    Progress,
    Snapshot,
    Store,
    StoredPlacement,
)
from tacit.snapshot import from_bytes, to_bytes

FOLD_ROWS = 4096

logger = logging.getLogger(__name__)


class Impression(NamedTuple):
    """What a caller wants decided; checked."""

    key: str
    arms: Sequence[Arm] | None
    context: Sequence[float] | None


class Placement:
    """The learner of a placement, and how its decisions stand in the log.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    stored : StoredPlacement
        As the store has it.
    snapshot : Snapshot, optional
        Where to begin; without one, at the beginning of the log.
    """

    def __init__(
        self,
        name: str,
        config: PlacementConfig,
        stored: StoredPlacement,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.id, self.policy_id = stored.id, stored.policy
        self.decisions, self.feedback = stored.decisions, stored.feedback
        self.snapshot_time: int | None = None
        self.since_snapshot = 0
        self.covered, self.last = 0, stored.seq
        if snapshot is None or not self._restore(snapshot):
            self.learner = Learner(config.policy, stored.seed)
            self.series = Series(config.policy.arm_count)
        if stored.generator is not None:
            self.learner.rng.bit_generator.state = json.loads(stored.generator)
        arms = config.policy.arms
        self._slots = {a: s for s, a in enumerate(range(arms) if isinstance(arms, int) else arms)}
        self._all = np.arange(len(self._slots))
        self.arms: list[Arm] = list(self._slots)

    def _restore(self, snapshot: Snapshot) -> bool:
        try:
            learner = from_bytes(snapshot.learner, f"snapshot of placement {self.name}")
            series = Series.from_bytes(snapshot.series)
        except (TacitError, msgspec.DecodeError) as error:
            logger.warning("%s; replaying the whole log instead", error)
            return False
        self.learner, self.series = learner, series
        self.covered, self.snapshot_time = snapshot.seq, snapshot.time
        return True

    @property
    def restarts(self) -> bool:
        """Whether the policy can restart a key."""
        return type(self.config.policy).epoch is not Policy.epoch

    def checked(
        self, key: str, arms: Sequence[Arm] | None, context: Sequence[float] | None
    ) -> Impression:
        """Return an impression that :meth:`choose` will take.

        Raises
        ------
        InvalidValue, UnknownName
            If the key, an arm or the context does not fit.
        """
        dim = self.config.policy.context_dim
        if (dim or context is not None) and not _fits(context, dim):
            size = f"{dim} " if dim else ""
            raise InvalidValue("context", context, f"give a list of {size}finite numbers")
        if arms is not None:
            arms = [self.arms[slot] for slot in self.learner.slots(arms).tolist()]
        return Impression(checks.name("key", key), arms, context)

    def choose(self, impressions: Sequence[Impression], seq: int, time: int) -> list[DecisionRow]:
        """Decide; the rows get the sequence numbers from ``seq`` on."""
        keys, arms, contexts = zip(*impressions, strict=True)
        decisions = self.learner.choose_many(
            keys,
            contexts if self.config.policy.context_dim else None,
            arms if any(offer is not None for offer in arms) else None,
        )
        return [
            DecisionRow(
                seq + i,
                decision_id(time),
                self.id,
                self.policy_id,
                time,
                decision.key,
                _json(impression.arms),
                decision.arm,
                decision.propensity,
                decision.epoch,
                _json(impression.context),
            )
            for i, (impression, decision) in enumerate(zip(impressions, decisions, strict=True))
        ]

    def outcome(self, row: DecisionRow) -> str:
        """Say whether feedback for a decision would be learned now."""
        return LEARNED if row.epoch == self.learner.epoch(row.key) else LATE

    def progress(self, decisions: int, feedback: int, seq: int) -> Progress:
        """Return how far the placement is once these many more rows, up to ``seq``, are logged."""
        generator = json.dumps(self.learner.rng.bit_generator.state)
        return Progress(
            generator, self.decisions + decisions, self.feedback + feedback, seq, self.id
        )

    # The fold --------------------------------------------------------------------------------

    def recall(self, rows: Sequence[DecisionRow]) -> None:
        """Take in decisions from the log."""
        self.learner.recall([self._decision(row) for row in rows])
        self.count_decisions(rows)

    def count_decisions(self, rows: Sequence[DecisionRow]) -> None:
        """Take in decisions that the learner has just made."""
        for row in rows:
            self.series.decided(row.time, self._slots[row.arm], row.propensity, self._offered(row))
            self.series.at_epoch(row.time, row.key, row.epoch)
        self.since_snapshot += len(rows)

    def learn(self, answered: Sequence[Answered]) -> None:
        """Take in feedback from the log."""
        self.learner.learn_many(
            [self._decision(row) for _, row in answered],
            [feedback.reward for feedback, _ in answered],
        )
        for feedback, row in answered:
            self.series.rewarded(row.time, row.propensity, self._offered(row), feedback.reward)
        self.since_snapshot += len(answered)

    def _decision(self, row: DecisionRow) -> Decision:
        """Return the learner's form of a decision, the same live and from the log."""
        offered = self._all
        if row.offered is not None:
            offered = np.array([self._slots[arm] for arm in json.loads(row.offered)], np.int64)
        context = np.empty(0)
        if self.config.policy.context_dim and row.context is not None:
            context = np.array(json.loads(row.context), np.float64)
        return Decision(
            id=row.seq,
            key=row.key,
            shown=(row.arm,),
            propensity=row.propensity,
            epoch=row.epoch,
            offered=offered,
            slots=np.array([self._slots[row.arm]]),
            context=context,
        )

    def _offered(self, row: DecisionRow) -> int:
        return len(self._slots) if row.offered is None else len(json.loads(row.offered))

    def snapshot(self, seq: int, time: int) -> Snapshot:
        """Return what was learned from the log up to ``seq``, which is all of it."""
        return Snapshot(self.id, seq, time, to_bytes(self.learner), self.series.to_bytes())


def _fits(context: Any, dim: int) -> bool:
    """Say whether a context is ``dim`` finite numbers; any count will do for 0."""
    return (
        isinstance(context, Sequence)
        and len(context) == (dim or len(context))
        and all(isinstance(x, (int, float)) and math.isfinite(x) for x in context)
    )


def _json(values: Sequence[Arm] | Sequence[float] | None) -> str | None:
    return None if values is None else msgspec.json.encode(values).decode()


# Opening -------------------------------------------------------------------------------------


def opened(name: str, config: PlacementConfig, store: Store, new_seed: int) -> Placement:
    """Return a placement at its latest snapshot, made in the store if it is new.

    Raises
    ------
    ConfigError
        If the placement has learned with another policy, other arms or another seed.
    """
    spec = json.dumps(policy_to_spec(config.policy))
    stored = store.placement(name, spec, new_seed if config.seed is None else config.seed)
    before = policy_from_spec(json.loads(stored.spec))
    if before != config.policy:
        raise ConfigError(
            f"placements.{name}.policy: the store holds what {before} learned, which is not for "
            f"{config.policy}; set it back, or give the placement a new name"
        )
    if config.seed not in (None, stored.seed):
        raise ConfigError(
            f"placements.{name}.seed: the store holds draws of seed {stored.seed}, not "
            f"{config.seed}; leave it out, or give the placement a new name"
        )
    return Placement(name, config, stored, store.snapshot(stored.id))


def fold(placements: Mapping[int, Placement], store: Store) -> None:
    """Take in, per placement, what the log holds after its snapshot."""
    behind = [p.covered for p in placements.values() if p.covered < p.last]
    events = store.events(min(behind)) if behind else iter(())
    for (id, decided), run in groupby(events, key=_kind):
        placement = placements.get(id)
        if placement is None:
            continue
        for rows in _chunks(run, placement.covered):
            if decided:
                placement.recall(rows)
            else:
                placement.learn(rows)


def _kind(event: DecisionRow | Answered) -> tuple[int, bool]:
    if isinstance(event, DecisionRow):
        return event.placement, True
    return event.decision.placement, False


def _chunks(run: Iterable[DecisionRow | Answered], covered: int) -> Iterator[list[Any]]:
    fresh = (event for event in run if _seq(event) > covered)
    while rows := list(islice(fresh, FOLD_ROWS)):
        yield rows


def _seq(event: DecisionRow | Answered) -> int:
    return event.seq if isinstance(event, DecisionRow) else event.feedback.seq
