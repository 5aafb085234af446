"""One placement: its learner, its windows and its series, all a fold over its part of the log."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, groupby, islice, repeat
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np

from tacit import checks
from tacit.arrays import Ints
from tacit.decisions import NOTHING, Arm, Decision
from tacit.errors import ConfigError, InvalidValue, TacitError
from tacit.learner import Learner
from tacit.policies import Policy, policy_from_spec, policy_to_spec
from tacit.service.attribution import (
    FROZEN as NOT_LEARNING,
)
from tacit.service.attribution import (
    LATE_EPOCH,
    LEARNED,
    NOTED,
    Attribution,
    Lesson,
    Open,
)
from tacit.service.config import DUELS, FEATURES, SLATES, PlacementConfig
from tacit.service.draws import Draws
from tacit.service.ids import decision_id, decision_ids
from tacit.service.series import Series
from tacit.service.store import (
    ACTIVATE,
    APPRENTICE,
    CLICKS,
    FROZEN,
    MODE,
    MODES,
    ONLINE,
    REWARD,
    SHADOW,
    DecisionRow,
    Event,
    FeedbackRow,
    MarkRow,
    Snapshot,
    Store,
    StoredPlacement,
)
from tacit.snapshot import from_bytes, to_bytes
from tacit.state import leaves

FOLD_ROWS = 4096
CLOSED = "window-closed"
LONGEST_ID = 256

Rows = Sequence[Sequence[float]]
"""Features: a row for each arm."""

logger = logging.getLogger(__name__)


class Impression(NamedTuple):
    """What a caller wants decided; checked.

    Attributes
    ----------
    key, arms, context, id, deferred
        As :meth:`Placement.checked` is given them.
    asked : str or None
        What else was said, as the log keeps it.
    given : object
        The same, as the placement uses it.
    """

    key: str
    arms: Sequence[Arm] | None
    context: Sequence[float] | None
    id: str | None = None
    deferred: bool = False
    asked: str | None = None
    given: Any = None

    def asks_for(self, row: DecisionRow) -> bool:
        """Say whether a decision answers this very impression."""
        told = self.key, _json(self.arms), _json(self.context), int(self.deferred), self.asked
        return told == (row.key, row.offered, row.context, row.deferred, row.asked)


class Clicks(NamedTuple):
    """What was clicked in a list, as a client tells it: positions from 0, or items."""

    positions: Sequence[int] | None = None
    items: Sequence[Arm] | None = None


class _Saved(msgspec.Struct):
    time: int
    mode: str
    decisions: int
    feedback: int
    outcomes: dict[str, int]
    open: list[tuple[Any, ...]]
    counts: Any = None


class Placement:
    """The learner of a placement, and how its decisions stand in the log.

    This one decides for one of several arms. Other kinds are subclasses: they say what they take,
    show and learn, and everything else is the same for all.

    Parameters
    ----------
    name : str
    config : PlacementConfig
    stored : StoredPlacement
        As the store has it.
    snapshot : Snapshot, optional
        Where to begin; without one, at the beginning of the log.
    """

    asks_at: ClassVar[str] = "decide"
    """The path at which decisions are asked for."""
    modes: ClassVar[tuple[str, ...]] = MODES
    attribution: ClassVar[type[Attribution]] = Attribution

    def __init__(
        self,
        name: str,
        config: PlacementConfig,
        stored: StoredPlacement,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.id, self.policy_id, self.seed = stored.id, stored.policy, stored.seed
        self.snapshot_time: int | None = None
        self.since_snapshot = 0
        self.restarts = type(config.policy).epoch is not Policy.epoch
        self._draws, self._shadow_draws = Draws(stored.seed), Draws(stored.seed, "shadow")
        arms = () if config.policy.arms is None else config.policy.arms
        self._slots = {a: s for s, a in enumerate(range(arms) if isinstance(arms, int) else arms)}
        self._all = np.arange(len(self._slots))
        self._alone = {arm: np.array([slot]) for arm, slot in self._slots.items()}
        self.arms: list[Arm] = list(self._slots)
        self._begin()
        if snapshot is not None:
            self._restore(snapshot)

    def _begin(self) -> None:
        config = self.config
        self.learner = Learner(config.policy, self.seed, propensities=config.propensities)
        self.shadow: Learner | None = None
        if config.shadow is not None:
            self.shadow = Learner(config.shadow, self.seed, propensities=config.propensities)
        self.series = Series(self._layers)
        self.windows = self.attribution(config.rule)
        self.mode = ONLINE
        self.decisions = self.feedback = 0
        self.outcomes: Counter[str] = Counter()
        self.covered = self._held = 0
        self._lessons: list[Lesson] = []

    @property
    def plan(self) -> str:
        """How the log is folded, as JSON."""
        plan = {
            "rule": msgspec.to_builtins(self.config.rule),
            "shadow": self.config.shadow and policy_to_spec(self.config.shadow),
            "propensities": self.config.propensities,
            **self._own_plan(),
        }
        return json.dumps(plan, sort_keys=True)

    @property
    def snapshot_after(self) -> int:
        """After how many events the next snapshot is worth its while.

        It grows with what the last one held, keys and open windows, so that all snapshots together
        take a time that is linear in the events.
        """
        return max(self.config.snapshot_every, self._held)

    # What a kind says of itself --------------------------------------------------------------

    @property
    def _layers(self) -> int:
        """How many things the series counts the impressions of."""
        return self.config.policy.arm_count

    def _own_plan(self) -> dict[str, Any]:
        return {}

    def _choose(self, learner: Learner, told: Impression) -> Decision:
        context = told.context if self.config.policy.context_dim else None
        return learner.choose(told.key, context, told.arms)

    def _choose_many(self, impressions: Sequence[Impression]) -> Sequence[Decision]:
        keys, arms, contexts, *_ = zip(*impressions, strict=True)
        return self.learner.choose_many(
            keys,
            contexts if self.config.policy.context_dim else None,
            arms if any(offer is not None for offer in arms) else None,
        )

    def _baseline(self, told: Impression, decision: Decision) -> tuple[Arm, ...]:
        """Return what the mode ``apprentice`` shows."""
        return (self.arms[int(decision.offered[0])],)

    def _would(self, decision: Decision) -> Arm:
        """Return what would have been shown, as the log keeps it."""
        return decision.arm

    def _also_shown(self, told: Impression, shown: Decision, id: str) -> str | None:
        """Return what was shown, as the log keeps it where one arm does not say it."""
        return None

    def shown(self, row: DecisionRow) -> tuple[Arm, ...]:
        """Return the arms that a decision showed."""
        return (row.arm,)

    def _slots_shown(self, shown: Sequence[Arm], offered: Sequence[Arm] | None) -> Ints:
        if len(shown) == 1:
            return self._alone[shown[0]]
        return np.array([self._slots[arm] for arm in shown])

    def _offered_slots(self, offered: Sequence[Arm] | None) -> Ints:
        if offered is None:
            return self._all
        return np.array([self._slots[arm] for arm in offered], np.int64)

    def _worths(self, lessons: Sequence[Lesson]) -> list[Any]:
        """Return what the learner is told for what came back; None for nothing."""
        return [lesson.reward for lesson in lessons]

    def _became(self, lesson: Lesson) -> str:
        """Return what became of feedback that is learned at once."""
        return LEARNED

    def positions(self, row: DecisionRow, kind: str, clicks: Clicks | None) -> str | None:
        """Return clicked positions of a decision as the log keeps them.

        Raises
        ------
        InvalidValue
            If feedback of this kind does not fit the decision.
        """
        if kind == CLICKS:
            raise InvalidValue(
                "placement", self.name, "it shows one arm, not a list; send the reward to feedback"
            )
        return None

    def counts(self) -> Any:
        """Return what else was counted, as JSON data."""
        return None

    def _take_counts(self, counts: Any) -> None:
        """Take over what :meth:`_counts` gave."""

    def check_mode(self, mode: str) -> None:
        """Check that the placement can be in a mode.

        Raises
        ------
        InvalidValue
            If it cannot.
        """
        if mode not in self.modes:
            raise InvalidValue("mode", mode, f"of this placement it is {', '.join(self.modes)}")
        if mode == SHADOW and self.config.shadow is None:
            raise InvalidValue("mode", mode, "configure a second policy as the placement's shadow")

    # Decide ----------------------------------------------------------------------------------

    def checked(
        self,
        key: str,
        arms: Sequence[Arm] | None = None,
        context: Sequence[float] | None = None,
        id: str | None = None,
        deferred: bool = False,
        relevance: Rows | None = None,
        examination: Rows | None = None,
    ) -> Impression:
        """Return an impression that :meth:`choose` will take.

        Raises
        ------
        InvalidValue, UnknownName
            If the key, an arm, the context or the id does not fit.
        """
        if relevance is not None or examination is not None:
            field = "examination" if relevance is None else "relevance"
            given = examination if relevance is None else relevance
            raise InvalidValue(field, given, "leave it out: the policy reads no features")
        if arms is not None:
            arms = [self.arms[slot] for slot in self.learner.slots(arms).tolist()]
        return self._impression(key, arms, context, id, deferred)

    def _impression(
        self,
        key: str,
        arms: Sequence[Arm] | None,
        context: Sequence[float] | None,
        id: str | None,
        deferred: bool,
        asked: str | None = None,
        given: Any = None,
    ) -> Impression:
        """Return an impression, its key, context and id checked."""
        dim = self.config.policy.context_dim
        if (dim or context is not None) and not _fits(context, dim):
            size = f"{dim} " if dim else ""
            raise InvalidValue("context", context, f"give a list of {size}finite numbers")
        if id is not None:
            id = checked_id("decision_id", id)
        if "\0" in key:
            raise InvalidValue("key", key, "leave out the character U+0000: no database stores it")
        return Impression(checks.name("key", key), arms, context, id, deferred, asked, given)

    def choose(self, impressions: Sequence[Impression], seq: int, time: int) -> list[DecisionRow]:
        """Decide; the rows get the sequence numbers from ``seq`` on.

        A decision with an id of the client's draws from that. Those that the service names draw
        one after the other from the id of the first of them, so that they can be made at once.
        """
        rows: list[DecisionRow] = []
        for together, run in groupby(impressions, lambda told: told.id is None):
            part = list(run)
            if together and self.mode == ONLINE and len(part) > 1:
                rows += self._chosen_many(part, seq + len(rows), time)
            else:
                rows += [
                    self._chosen(told, seq + len(rows) + i, time) for i, told in enumerate(part)
                ]
        return rows

    def _chosen_many(
        self, impressions: Sequence[Impression], seq: int, time: int
    ) -> list[DecisionRow]:
        ids = decision_ids(time, len(impressions))
        self._draws.begin(self.learner.rng, ids[0])
        decisions = list(self._choose_many(impressions))
        rows = self._rows(impressions, seq, ids, time, decisions)
        self._decided(rows, decisions, repeat(None))
        return rows

    def _chosen(self, told: Impression, seq: int, time: int) -> DecisionRow:
        id = decision_id(time) if told.id is None else told.id
        decision = self._drawn(self.learner, self._draws, told, id)
        shown, would = decision, None
        if self.mode == APPRENTICE:
            # A baseline that is always shown has the propensity 1.
            baseline = self._baseline(told, decision)
            slots = self._slots_shown(baseline, told.arms)
            shown = decision._replace(shown=baseline, slots=slots, propensity=1.0)
            would = decision
        elif self.mode == SHADOW and self.shadow is not None:
            would = self._drawn(self.shadow, self._shadow_draws, told, id)
        (row,) = self._rows([told], seq, [id], time, [shown], would)
        shadow = None
        if self.mode == SHADOW and would is not None:
            # The second policy learns from what was shown.
            shadow = shown._replace(epoch=would.epoch)
        self._decided([row], [shown], [shadow])
        return row

    def _rows(
        self,
        impressions: Sequence[Impression],
        seq: int,
        ids: Sequence[str],
        time: int,
        decisions: Sequence[Decision],
        would: Decision | None = None,
    ) -> list[DecisionRow]:
        keys, arms, contexts, _, deferred, asked, _ = zip(*impressions, strict=True)
        _, _, shown, propensities, epochs, *_ = zip(*decisions, strict=True)
        columns = (
            count(seq),
            ids,
            repeat(self.id),
            repeat(self.policy_id),
            repeat(time),
            keys,
            map(_json, arms),
            [first for first, *_ in shown],
            propensities,
            epochs,
            map(_json, contexts),
            repeat(self.mode),
            repeat(would and self._would(would)),
            repeat(would and would.propensity),
            map(int, deferred),
            asked,
            map(self._also_shown, impressions, decisions, ids),
        )
        # In C: rows are made as often as anything here.
        return list(map(DecisionRow._make, zip(*columns, strict=False)))

    def _drawn(self, learner: Learner, draws: Draws, told: Impression, id: str) -> Decision:
        draws.begin(learner.rng, id)
        with self._standing(learner, told.key):
            decision = self._choose(learner, told)
        # The learner uses its array of contexts again.
        return decision._replace(context=decision.context.copy())

    @contextmanager
    def _standing(self, learner: Learner, key: str) -> Iterator[None]:
        """While frozen, leave the key's lane as it was, even by what the policy observes."""
        if self.mode != FROZEN:
            yield
            return
        policy = learner.policy
        known = key in learner.keys
        lane = learner.lane(key) if known else 0
        kept: list[Any] = []
        for (_, array), (_, one), (_, two) in zip(
            leaves(learner.state), leaves(policy.init(1)), leaves(policy.init(2)), strict=True
        ):
            of_lanes = len(one) != len(two)
            kept.append(((array if known else one)[lane] if of_lanes else array).copy())
        yield
        lane = learner.lane(key)
        for (_, array), values in zip(leaves(learner.state), kept, strict=True):
            array[lane if array.ndim > values.ndim else ...] = values

    def _decided(
        self,
        rows: Sequence[DecisionRow],
        decisions: Iterable[Decision],
        shadows: Iterable[Decision | None],
    ) -> None:
        """Open the windows of decisions made at the same time."""
        self.windows.decided_many(rows, decisions, shadows)
        self.decisions += len(rows)
        self.since_snapshot += len(rows)
        counted = [row for row in rows if not row.deferred]
        if counted:
            self._count_impressions(counted)
        # Most keys have never restarted.
        if self.series.epochs or any(row.epoch for row in counted):
            for row in counted:
                self.series.at_epoch(row.time, row.key, row.epoch)

    def _count_impressions(self, rows: Sequence[DecisionRow]) -> None:
        """Count decisions made at the same time."""
        self.series.decided_many(
            rows[0].time,
            [self._slots[row.arm] for row in rows],
            [unbiased(row) for row in rows],
            [self._offered(row) for row in rows],
        )

    # Learn -----------------------------------------------------------------------------------

    def advance(self, time: int) -> None:
        """Let time go by: learn what the windows that close by then teach."""
        self.settle()
        lessons = self.windows.advance(time)
        if lessons:
            self.outcomes[CLOSED] += len(lessons)
            self._teach([lesson for lesson in lessons if self._may_learn(lesson)])

    def told(self, feedback: Sequence[FeedbackRow]) -> list[str]:
        """Take in feedback for decisions of the log; return what became of each."""
        self.since_snapshot += len(feedback)
        self.feedback += [row.kind for row in feedback].count(REWARD)
        outcomes = list(map(self._told, feedback))
        self.outcomes.update(outcomes)
        return outcomes

    def _told(self, feedback: FeedbackRow) -> str:
        outcome, lesson = self.windows.told(feedback)
        if lesson is not None:
            return self._learned(lesson)
        if feedback.kind == ACTIVATE and outcome == NOTED:
            open = self.windows.of(feedback.decision)
            assert open is not None
            self._count_impressions([open.row])
            self.series.at_epoch(open.row.time, open.row.key, open.row.epoch)
        return outcome

    def _learned(self, lesson: Lesson) -> str:
        if not self._may_learn(lesson):
            return NOT_LEARNING
        if not self.restarts:
            # Many are learned at once, before anything asks what was learned.
            self._lessons.append(lesson)
            return self._became(lesson)
        fresh = lesson.open.decision.epoch == self.learner.epoch(lesson.open.row.key)
        self._teach([lesson])
        return self._became(lesson) if fresh else LATE_EPOCH

    def settle(self) -> None:
        """Learn what feedback has taught since the last time."""
        lessons, self._lessons = self._lessons, []
        self._teach(lessons)

    def _may_learn(self, lesson: Lesson) -> bool:
        return self.mode != FROZEN != lesson.open.row.mode

    def _teach(self, lessons: Sequence[Lesson]) -> None:
        if not lessons:
            return
        worths = self._worths(lessons)
        learned = [(open, worth) for (open, _), worth in zip(lessons, worths, strict=True)]
        if None in worths:
            learned = [(open, worth) for open, worth in learned if worth is not None]
        _learn(self.learner, [(open.decision, worth) for open, worth in learned])
        if self.shadow is not None:
            _learn(self.shadow, [(o.shadow, worth) for o, worth in learned if o.shadow is not None])
        self._note(lessons)

    def _note(self, lessons: Sequence[Lesson]) -> None:
        """Count what came back for decisions."""
        came = [(open.row, reward) for open, reward in lessons if reward]
        if came:
            self.series.rewarded_many(
                [row.time for row, _ in came],
                [unbiased(row) for row, _ in came],
                [self._offered(row) for row, _ in came],
                [reward for _, reward in came],
            )

    def marked(self, mark: MarkRow) -> None:
        """Take in a mark."""
        if mark.kind == MODE and mark.placement == self.id:
            self.mode = mark.value

    # The fold --------------------------------------------------------------------------------

    def recall(self, rows: Sequence[DecisionRow]) -> None:
        """Take in decisions from the log, made by the same moment."""
        if self.restarts or rows[0].mode in (FROZEN, SHADOW):
            for row in rows:
                self._recall_one(row)
            return
        decisions = [self._decision(row, row.epoch) for row in rows]
        self.learner.recall(decisions)
        self._decided(rows, decisions, repeat(None))

    def _recall_one(self, row: DecisionRow) -> None:
        """Take in a decision in whose epoch this fold may differ from the one that made it."""
        decision = self._recalled(self.learner, row)
        shadow = None
        if row.mode == SHADOW and self.shadow is not None:
            shadow = self._recalled(self.shadow, row)
        self._decided([row], [decision], [shadow])

    def _recalled(self, learner: Learner, row: DecisionRow) -> Decision:
        decision = self._decision(row, row.epoch)
        with self._standing(learner, row.key):
            learner.recall([decision])
        return decision._replace(epoch=learner.epoch(row.key))

    def _decision(self, row: DecisionRow, epoch: int) -> Decision:
        """Return the learner's form of a decision, the same live and from the log."""
        names = None if row.offered is None else json.loads(row.offered)
        context = NOTHING
        if self.config.policy.context_dim and row.context is not None:
            context = np.array(json.loads(row.context), np.float64)
        shown = self.shown(row)
        offered, slots = self._offered_slots(names), self._slots_shown(shown, names)
        return Decision(row.seq, row.key, shown, row.propensity, epoch, offered, slots, context)

    def _offered(self, row: DecisionRow) -> int:
        return len(self._slots) if row.offered is None else len(json.loads(row.offered))

    # Snapshots -------------------------------------------------------------------------------

    def snapshot(self, seq: int, time: int) -> Snapshot:
        """Return what was learned from the log up to ``seq``, which is all of it."""
        self._held = len(self.learner) + len(self.windows)
        saved = _Saved(
            self.windows.time,
            self.mode,
            self.decisions,
            self.feedback,
            dict(self.outcomes),
            self.windows.saved(),
            self.counts(),
        )
        return Snapshot(
            self.id,
            seq,
            time,
            self.plan,
            _bytes(self.learner, self._draws),
            None if self.shadow is None else _bytes(self.shadow, self._draws),
            self.series.to_bytes(),
            msgspec.json.encode(saved),
        )

    def _restore(self, snapshot: Snapshot) -> None:
        if snapshot.plan != self.plan:
            logger.warning(
                "placement %s: the attribution rule, the shadow policy or the propensities were "
                "changed; folding the whole log anew",
                self.name,
            )
            return
        try:
            self._take(snapshot)
        except (TacitError, msgspec.MsgspecError, TypeError, ValueError, LookupError) as error:
            logger.warning(
                "snapshot of placement %s: %s; replaying the whole log instead", self.name, error
            )
            self._begin()

    def _take(self, snapshot: Snapshot) -> None:
        saved = msgspec.json.decode(snapshot.windows, type=_Saved)
        self.learner = from_bytes(snapshot.learner, f"snapshot of placement {self.name}")
        if snapshot.shadow is not None:
            self.shadow = from_bytes(snapshot.shadow, f"snapshot of the shadow of {self.name}")
        self.series = Series.from_bytes(snapshot.series)
        self.mode, self.decisions, self.feedback = saved.mode, saved.decisions, saved.feedback
        self.outcomes = Counter(saved.outcomes)
        self.windows.advance(saved.time)
        self._take_counts(saved.counts)
        for row, deadline, active, reward, examined, settled, told, ids, *epochs in saved.open:
            row = DecisionRow(*row)
            shadow = None if epochs[1] is None else self._decision(row, epochs[1])
            decision = self._decision(row, epochs[0])
            ids = ids and {id: tuple(content) for id, content in ids.items()}
            self.windows.restore(
                Open(row, decision, shadow, deadline, active, reward, examined, settled, told, ids)
            )
        self.covered, self.snapshot_time = snapshot.seq, snapshot.time
        self._held = len(self.learner) + len(saved.open)


def checked_id(field: str, id: str) -> str:
    """Return an id that a client gave.

    Raises
    ------
    InvalidValue
        If it is empty, too long, or holds what cannot be stored or printed.
    """
    if not 0 < len(id) <= LONGEST_ID or not id.isprintable():
        raise InvalidValue(field, id, f"give 1 to {LONGEST_ID} printable characters")
    return id


def clicked_positions(clicks: Clicks, items: Sequence[Arm]) -> str:
    """Return clicked positions in a list of items as the log keeps them.

    Raises
    ------
    InvalidValue
        If a position or an item is not in the list.

    Examples
    --------
    >>> clicked_positions(Clicks(items=["c", "a"]), ["a", "b", "c"])
    '[0,2]'
    """
    positions = {
        checks.integer(f"clicks[{i}]", position, 0, len(items) - 1)
        for i, position in enumerate(clicks.positions or ())
    }
    places = {item: place for place, item in enumerate(items)}
    for i, item in enumerate(clicks.items or ()):
        if item not in places:
            raise InvalidValue(f"items[{i}]", item, f"the list that was shown is {list(items)}")
        positions.add(places[item])
    return msgspec.json.encode(sorted(positions)).decode()


def _bytes(learner: Learner, draws: Draws) -> bytes:
    # Where the generator stands is no part of what was learned.
    draws.begin(learner.rng, "")
    return to_bytes(learner)


def _fits(context: Any, dim: int) -> bool:
    """Say whether a context is ``dim`` finite numbers; any count will do for 0."""
    return (
        isinstance(context, Sequence)
        and len(context) == (dim or len(context))
        and all(isinstance(x, (int, float)) and math.isfinite(x) for x in context)
    )


def _learn(learner: Learner, lessons: Sequence[tuple[Decision, Any]]) -> None:
    if lessons:
        learner.learn_many([decision for decision, _ in lessons], [worth for _, worth in lessons])


def unbiased(row: DecisionRow) -> float | None:
    """Return the propensity by which a decision may be weighed."""
    # What a fixed baseline earned says nothing about uniform exploration.
    return None if row.mode == APPRENTICE else row.propensity


def _json(values: Sequence[Arm] | Sequence[float] | None) -> str | None:
    return None if values is None else msgspec.json.encode(values).decode()


# Opening -------------------------------------------------------------------------------------


def opened(
    name: str, config: PlacementConfig, store: Store, new_seed: int, *, snapshot: bool = True
) -> Placement:
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
    made = placement_class(config.kind)
    return made(name, config, stored, store.snapshot(stored.id) if snapshot else None)


def placement_class(kind: str) -> type[Placement]:
    """Return the class of the placements of a kind."""
    if kind == DUELS:
        from tacit.service.duels import DuelPlacement

        return DuelPlacement
    if kind == FEATURES:
        from tacit.service.features import FeaturePlacement

        return FeaturePlacement
    if kind == SLATES:
        from tacit.service.slates import SlatePlacement

        return SlatePlacement
    return Placement


def fold(placements: Mapping[int, Placement], store: Store) -> None:
    """Take in, per placement, what the log holds after its snapshot; then let time go by to its
    end."""
    if not placements:
        return
    end = store.end()
    behind = min(placement.covered for placement in placements.values())
    for kind, run in groupby(store.events(behind), key=_kind):
        for rows in _chunks(run):
            _take_in(placements, kind, rows)
    for placement in placements.values():
        placement.advance(end.time)
        placement.settle()


def _take_in(
    placements: Mapping[int, Placement], kind: tuple[Any, ...], rows: Sequence[Any]
) -> None:
    _, id, time = kind[:3]
    if id is None:
        concerned = list(placements.values())
    else:
        concerned = [placements[id]] if id in placements else []
    for placement in concerned:
        fresh = [row for row in rows if row.seq > placement.covered]
        if not fresh:
            continue
        placement.advance(time)
        if isinstance(fresh[0], DecisionRow):
            placement.recall(fresh)
        elif isinstance(fresh[0], FeedbackRow):
            placement.told(fresh)
        else:
            for row in fresh:
                placement.marked(row)


def _kind(event: Event) -> tuple[Any, ...]:
    mode = event.mode if isinstance(event, DecisionRow) else None
    return type(event), event.placement, event.time, mode


def _chunks(run: Iterable[Event]) -> Iterator[list[Any]]:
    while rows := list(islice(run, FOLD_ROWS)):
        yield rows
