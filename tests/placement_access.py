"""The one door of tests to the internals of placements and of the engine.

Tests speak to the service as its users do: requests, answers, the log, reports. The state that cannot be seen
there is read by these functions alone, so that whoever rebuilds a placement or the engine adapts this file.

1. Imports: units of ``tacit.service.engine`` and ``tacit.service.placements`` that have tests of their own.
2. Deciding: requests that are checked and decided, as the routes of HTTP do.
3. The state of a placement: what it learned, what is open, what it shows and what it counts.
4. ``OpenWindows``: feedback rows attributed to decision rows, without a placement.
"""

# ruff: noqa: F401

from __future__ import annotations

import json
from typing import NamedTuple

import msgspec

from tacit.cluster.peers import Link, answer_calls
from tacit.cluster.shards import ShardCalls, ShardService
from tacit.cluster.totals import PlacementPart, export_part, merge_parts
from tacit.core.arrays import leaves
from tacit.learning.learner import make_snapshot
from tacit.service.config.lift_terms import encode_terms
from tacit.service.config.propensity_floor import compute_floor
from tacit.service.deciders.arm_lifecycle import ArmLifecycle
from tacit.service.deciders.assignment import Control, HoldoutAssigner, ListControl
from tacit.service.deciders.items import ItemsChange, parse_shown_item
from tacit.service.deciders.open_decisions import MAX_JOINED_ROWS, ROW_COLUMNS, SMALL_BLOCK, WINDOW_COLUMNS
from tacit.service.deciders.signals import PlacementSignals
from tacit.service.deciders.windows import WAITING
from tacit.service.engine import (
    background_tasks,
    batches,
    group,
    rebuilding,
    reports,
    upkeep,
    verdicts,
    writer,
)
from tacit.service.engine import engine as engine_module
from tacit.service.engine import fold as fold_module
from tacit.service.engine.engine import Engine
from tacit.service.engine.fold import apply_rows, fold, load_placement, store_start_learner
from tacit.service.engine.reports import count_rounds, find_counts, get_beliefs
from tacit.service.engine.shard_layout import (
    FencedStore,
    Layout,
    ReadStore,
    check_starts,
    ensure_layout,
    list_stores,
    name_schema,
)
from tacit.service.engine.stores import open_store
from tacit.service.engine.upkeep import Worker
from tacit.service.log.blocks import Block
from tacit.service.log.postgres import PostgresStore
from tacit.service.log.rows import DecisionRow, FeedbackRow
from tacit.service.log.store import StoredPlacement
from tacit.service.placements import snapshots as snapshots_module
from tacit.service.placements.changes import get_items_status, list_changes
from tacit.service.placements.client_checks import check_client_decision, check_client_side
from tacit.service.placements.duels import DuelOptions, DuelTally, decode_shown
from tacit.service.placements.learning import FeedbackLearning
from tacit.service.placements.placement import Placement
from tacit.service.placements.snapshots import MIN_WORKSPACE
from tacit.service.projections import arm_results, feed_offsets, series, sticky_users
from tacit.service.projections.attribution import Attribution
from tacit.service.projections.feed_offsets import merge_offsets
from tacit.service.projections.feedback_rule import WHEN_IT_COMES
from tacit.service.projections.lift_periods import MAX_SUBPERIODS, TimeBins
from tacit.service.projections.lift_report import PlanQuery, make_lift_report
from tacit.service.projections.reward_sums import ClosedDecisions, LiftSums
from tacit.service.projections.series import Series, estimate_uniform_reward

HOMES = {
    "LogClock": engine_module,
    "RETRY_SECONDS": writer,
    "TICK_SECONDS": writer,
    "WATCH_SECONDS": writer,
    "MIN_WORKSPACE": snapshots_module,
    "fold": fold_module,
    "load_placement": fold_module,
    "to_spec": fold_module,
    "IN_ORDER": background_tasks,
    "MOST_KEPT": sticky_users,
}
"""Where names are looked up that tests replace."""


def patch_internal(monkeypatch, **values):
    """Replace names of the engine's or placements' modules while a test runs."""
    for name, value in values.items():
        monkeypatch.setattr(HOMES[name], name, value)


def decide_alone(monkeypatch):
    """Let each decision be made alone, with draws from its own id, where 0.3 did.

    It did so under a pin, in the modes frozen and shadow, and where the control has a policy of its own. Now
    such a batch draws in turn from its first id, as any other does.
    """
    split = Placement.split_unnamed

    def split_as_then(self, impressions, seq, time):
        alone = self.pins.get_pin(time) is not None or self.mode in ("frozen", "shadow")
        self.decides_alone = alone or self.has_control_policy
        return split(self, impressions, seq, time)

    monkeypatch.setattr(Placement, "split_unnamed", split_as_then)


# Deciding ------------------------------------------------------------------------------------


def check_request(placement, request):
    """Return a checked request, as the engine takes it."""
    return placement.reader.read(request)


async def decide(engine, *requests, name="home"):
    """Check requests and decide them together; return the rows of the log."""
    placement = engine.placements[name]
    return list(await engine.decide_many(name, [placement.reader.read(each) for each in requests]))


# The state of a placement --------------------------------------------------------------------


def get_config(placement):
    return placement.config


def get_learner(placement):
    return placement.learner


def get_secondary_learner(placement):
    """Return the learner of the shadow, or of a control with its own policy."""
    return placement.secondary.learner


def get_learners(placement):
    """Return the learner and, with a second policy, that of the second policy."""
    return placement.learners


def copy_learner(placement):
    """Return a snapshot of the learner that later learning does not change."""
    return snapshots_module.copy_learner(placement, snapshots_module.make_workspace(placement))


def get_mode(placement):
    return placement.mode


def get_holdout(placement):
    return placement.holdout


def get_unit(placement, impression):
    """Return the user or session that is assigned to a group of the holdout, or None."""
    return placement.reader.get_unit(impression)


def get_offer(placement):
    """Return the arms on offer, the retired ones, and the names of all."""
    return placement.offer


def shows_one_arm(placement):
    """True if the placement shows one arm at a time and takes rewards, not clicks."""
    return placement.kind.showing.single


def get_arm_indices(placement, arms):
    """Return the numbers by which the policy knows arms."""
    return [placement.lifecycle.arm_indices[arm] for arm in arms]


def get_shown_arms(placement, row):
    """Return the names of the arms that a logged decision showed."""
    return placement.shows.get_shown_arms(row)


def restore_decision(placement, row, epoch):
    """Return the learner's form of a logged decision."""
    return placement.shows.restore_decision(row, epoch)


def get_last_pin(placement):
    return placement.pins.last


def get_pin(placement, time):
    """Return the pin that holds at a time, or None."""
    return placement.pins.get_pin(time)


def count_undeclared(placement):
    """Return how often each field of contexts had a value that is not declared."""
    return placement.reader.encoder.undeclared_counts


def read_copy(placement):
    """Return a copy for threads that read while the placement goes on."""
    return placement.read_copy()


def set_new_ids(placement, make):
    """Let ids of decisions be made from time, keys and number of the log."""
    placement.new_ids = make


def wrap_choices(placement, wrap):
    """Let what the learner chose pass through a function before it is shown and logged."""
    choose = placement.policy.choose
    placement.policy.choose = lambda *given, **options: wrap(choose(*given, **options))


def make_placement(name, config, id=1):
    """Return a placement without a log."""
    return Placement(name, config, StoredPlacement(id, 0, "", 7))


def note_advances(monkeypatch):
    """Return a list to which each placement that is touched by time adds its name."""
    names, advance = [], FeedbackLearning.advance
    monkeypatch.setattr(
        FeedbackLearning,
        "advance",
        lambda self, time: names.append(self._results.name) or advance(self, time),
    )
    return names


def count_decisions(placement):
    return placement.decisions


def count_feedback(placement):
    return placement.feedback


def count_open(placement):
    """Return how many decisions have an open window."""
    return placement.pending


def get_outcomes(placement):
    """Return how often feedback came to each outcome."""
    return placement.outcomes


def get_series(placement):
    return placement.series


def get_lift(placement):
    """Return the sums of rewards by group from which the lift is reported."""
    return placement.lift


def get_degradations(placement):
    """Return the metrics that were proved to be harmed, in order."""
    return placement.guardrail.degradations


def save_guardrail(placement):
    """Return what the guardrail counted, as JSON data."""
    return placement.guardrail.save_state()


def settle_sums(placement):
    """Let guardrail and lift add up what they hold back."""
    placement.guardrail.settle()
    placement.lift.settle()


def read_signals(placement, row):
    """Return the signals that a logged decision's context holds, by name."""
    return placement.signals.get_signals(row)


def save_signals(placement):
    return placement.signals.save_state()


def export_counts(placement):
    """Return the additional counts of the kind: tallies of duels, clicks by position."""
    return placement.results.export_counts()


def count_duels(placement):
    """Return how many duels were learned, of all keys."""
    return placement.results.duels


def get_tallies(placement):
    """Return the tally of duels of each key."""
    return placement.results.tallies


def report_duels(placement, key=None):
    """Return a key, by default that of the most duels, and the standings of its duels."""
    return placement.results.report(key)


def get_feed_offsets(placement):
    return placement.feed_offsets


def draft_pieces(placement):
    """Return an iterator that encodes a snapshot of this moment, as late as its pieces are taken."""
    return snapshots_module.draft(placement, 0, 0).pieces


def export_open_windows(placement):
    return snapshots_module.export_open_windows(placement)


def save_delays(placement):
    """Return what the placement knows of how long clicks take, as JSON data."""
    return placement.windows.order.save_state()


def list_waiting(placement):
    """Return the rows of the decisions that are not yet learned, in the order of their windows."""
    pieces = placement.windows.export_open(placement.windows.order.export_entries)
    return [row for row, *fields in list_open(pieces) if fields[WINDOW_COLUMNS - ROW_COLUMNS] == WAITING]


def list_open(pieces):
    """Yield the row of each open decision, and what else its snapshot has."""
    for columns in pieces:
        for values in zip(*columns, strict=True):
            yield DecisionRow._make(values[:ROW_COLUMNS]), *values[ROW_COLUMNS:]


class Lesson(NamedTuple):
    """A reward that was learned for a decision at a time of the log, in place of one before."""

    seq: int
    reward: float
    before: float | None
    time: int


def record_lessons(placement):
    """Let a placement note each lesson; return the list of them."""
    lessons, windows, policy = [], placement.windows, placement.policy
    learn = policy.learn

    def learn_noted(entries, rewards, before, examined):
        numbers = windows.open.windows.seq[entries]
        for seq, reward, each in zip(numbers, rewards, before or [None] * len(rewards), strict=True):
            lessons.append(Lesson(seq, reward, each, windows.time))
        return learn(entries, rewards, before, examined)

    policy.learn = learn_noted
    return lessons


def get_snapshot_time(placement):
    return placement.snapshot_time


def get_snapshot_seq(placement):
    """Return the last row that the snapshot included with which the placement began."""
    return placement.snapshot_seq


def arrays(learner):
    """Return what a learner has learned of the keys that it knows, bit for bit."""
    used = leaves(learner.lanes.view_all())
    return learner.keys, {field: array.tobytes() for field, array in used}


def everything(placement):
    """Return everything that a placement is, bit for bit."""
    counts = placement.results.export_counts()
    counted = placement.decisions, placement.feedback, counts, dict(placement.outcomes)
    counted += placement.mode, placement.series.to_bytes(), json.dumps(placement.series.results.save_state())
    counted += json.dumps(placement.lift.save_state()), make_snapshot(placement.learner).plays.tobytes()
    second = arrays(placement.learners[1]) if len(placement.learners) > 1 else None
    return *arrays(placement.learner), export_open_windows(placement), counted, second


# Feedback and the rule, without a placement ---------------------------------------------------


def nothing(entries):
    """Return no columns of open decisions besides those of their windows."""
    return ()


class OpenWindows:
    """Open windows of one rule, which attributes rows of feedback to rows of decisions."""

    def __init__(self, rule):
        self.attribution = Attribution(rule)

    def __len__(self):
        return len(self.attribution.open.by_id)

    def set_rule(self, rule):
        """Let another rule apply from now on."""
        self.attribution.rule = rule

    def __getattr__(self, name):
        return getattr(self.attribution, name)

    @property
    def capacity(self):
        """Number of decisions for which there is memory."""
        return self.attribution.open.capacity

    def open(self, *rows):
        """Open the windows of decisions made at the current time."""
        self.attribution.open_windows(Block.from_rows(DecisionRow, rows))

    def advance(self, time):
        """Close the windows that end by then; return number and reward of what is to be learned."""
        return list(self.attribution.iterate_rewards(self.attribution.advance(time)))

    def apply(self, *rows):
        """Apply feedback; return its outcomes, and number, reward and earlier reward of what is learned."""
        outcomes, parts = self.attribution.apply_feedback(Block.from_rows(FeedbackRow, rows))
        return outcomes, [
            (*pair, part.previous) for part in parts for pair in self.attribution.iterate_rewards(part)
        ]

    def find(self, id):
        """Return the open decision of an id, or None."""
        entry = self.attribution.open.find(id)
        return None if entry is None else self.attribution.open.get_row(entry)

    def find_row(self, seq):
        """Return the open decision of a number."""
        return self.attribution.open.get_row(self.attribution.open.find_entry(seq))

    def apply_to_field(self, field, function):
        """Change a field of all open decisions."""
        self.attribution.open.apply_to_field(field, function)

    def export_open(self):
        """Return each open decision with deadline, activity, reward, examination and so on."""
        return list_open(self.attribution.export_open(nothing))

    def export_defaults(self):
        """Return the closed decisions whose default may be corrected."""
        return list_open(self.attribution.export_defaults(nothing))

    def restored(self, rule):
        """Return the same as after a stop."""
        anew = OpenWindows(rule)
        anew.advance(self.time)
        # Both at first: what is given later must not depend on the order.
        windows = self.attribution
        opened, defaulted = list(windows.export_open(nothing)), list(windows.export_defaults(nothing))
        for pieces, is_default in (opened, False), (defaulted, True):
            for columns in pieces:
                anew.attribution.restore(columns, defaulted=is_default)
        return anew


def get_sticky_users(placement):
    """Return what users of a placement keep, as its snapshot would hold it."""
    return list(placement.sticky.export_arms())


# Shards in one process -----------------------------------------------------------------------


class NearLink(Link):
    """A link to a shard in this process, whose calls are encoded as on their way to another machine."""

    def __init__(self, calls, shard=None):
        shard = shard or calls.shard
        super().__init__(shard, lambda: ["here"] * shard.shards, "")
        self._calls, self.is_down = calls, False

    async def post(self, body):
        if self.is_down:
            raise ConnectionError("it is down")
        return await answer_calls(self._calls.shard, body, lambda name, given: self._calls.call(name, *given))


def join_shards(engines, number=0):
    """Return the service of one of several shards, which asks the others by links."""
    calls = [ShardCalls(engine) for engine in engines]
    return ShardService(calls[number], dict(enumerate(map(NearLink, calls))))


async def read_merged(service):
    """Return the placements of a shard's service with the statistics of all shards, as they are now."""
    service.merged.expire()
    await service.merged.refresh()
    return service.merged.placements


def export_statistics(placement):
    """Return a shard's statistics of a placement, as another shard reads them."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(export_part(placement)), type=PlacementPart)
