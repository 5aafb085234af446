"""Duel placements: interleave the lists of two rankers, and learn from clicks which one is better."""

# 1. ``DuelOptions``, ``DuelTally``: configuration of duels, and the duels of one key.
# 2. ``DuelReader``: reads the rankers' lists.
# 3. ``DuelShows``: the policy chooses two rankers, and their lists are interleaved.
# 4. ``DuelResults``: clicks decide who won.
# 5. Functions of single rows: lists, credit, and a duel as a row of a log of searches.

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tacit.core.arrays import Ints
from tacit.errors import InvalidValue
from tacit.evaluate.duels import DuelReport
from tacit.interleaving import Credit, Interleaved, InterleavingMethod, credit_clicks
from tacit.interleaving.base import check_ranking, warn_of_mixed_ids
from tacit.interleaving.rules import CLICK
from tacit.learning.decisions import Arm, Decision, Decisions
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.config.schema import PlacementConfig
from tacit.service.deciders.arm_lifecycle import ArmLifecycle
from tacit.service.deciders.assignment import Control, PairControl
from tacit.service.deciders.policy import PolicyDecider
from tacit.service.log import requests
from tacit.service.log.blocks import Block
from tacit.service.log.ids import Draws
from tacit.service.log.requests import Impression
from tacit.service.log.rows import DecisionRow, decode_json, encode_json
from tacit.service.log.search_records import SearchFields, hash_rankings, hash_unit
from tacit.service.placements.requests import RequestReader
from tacit.service.placements.results import ArmRewards, Results
from tacit.service.placements.shows import LogTexts, Shows
from tacit.service.projections.attribution import HELD_OUT, TIED, Attribution
from tacit.service.projections.learning_order import TrainingBatch

KEY = "key"
"""The segment that is a search's key."""
ALONE = "Alone"
"""The method of a control that shows one ranker's list."""
Ranking = tuple[Arm, ...]


class DuelOptions(msgspec.Struct, frozen=True):
    """Options of duels.

    Attributes
    ----------
    method : InterleavingMethod
        Interleaves two lists.
    ties : str
        What the policy learns from a tie: ``coin``, a winner drawn by a fair coin; ``keep``, a tie;
        ``again``, nothing.
    unclicked : str
        How a list without a click counts: as a ``tie``, or as ``nothing``, as if never shown.
    worth : dict of str to float
        Value of each action in the verdict; actions besides clicks are allowed if they are here.
    segments : tuple of str
        Names of the segments of searches, by which verdicts are reported.
    """

    method: InterleavingMethod
    ties: str = "coin"
    unclicked: str = "tie"
    worth: dict[str, float] = msgspec.field(default_factory=lambda: {CLICK: 1.0})
    segments: tuple[str, ...] = ()

    @property
    def request_segments(self) -> list[str]:
        """Names of the segments that requests give: all but the key."""
        return [name for name in self.segments if name != KEY]


class DuelTally:
    """The duels of one key.

    Attributes
    ----------
    plays : array of float64, shape (rankers, rankers)
        Number of duels of each pair; symmetric.
    scores : array of float64, shape (rankers, rankers)
        Sum of the probabilities that the first ranker won against the second.
    duels, ties, unclicked : int
        Numbers of duels, of ties, and of lists without a click.
    """

    def __init__(self, rankers: int) -> None:
        """Begin without duels."""
        self.plays, self.scores = np.zeros((2, rankers, rankers))
        self.duels = self.ties = self.unclicked = 0

    def add(self, left: int, right: int, credit: Credit) -> None:
        """Count a duel of two rankers (indices) with its credit.

        A duel of a ranker with itself is ignored.
        """
        if left == right:
            return
        chance = credit.chance
        self.plays[left, right] += 1.0
        self.plays[right, left] += 1.0
        self.scores[left, right] += chance
        self.scores[right, left] += 1.0 - chance
        self.duels += 1
        self.ties += credit.outcome == 0.5
        self.unclicked += credit.clicks == 0

    def extend_rankers(self, rankers: int) -> None:
        """Enlarge the tally to ``rankers`` rankers; new rankers have no duels."""
        more = rankers - len(self.plays)
        if more:
            both = np.pad(np.stack([self.plays, self.scores]), ((0, 0), (0, more), (0, more)))
            self.plays, self.scores = both

    def save_state(self) -> list[Any]:
        """Return plays, scores, ties and unclicked as JSON data, for :meth:`from_state`."""
        return [self.plays.tolist(), self.scores.tolist(), self.ties, self.unclicked]

    @classmethod
    def from_state(cls, saved: Sequence[Any]) -> DuelTally:
        """Return the tally that :meth:`save_state` wrote."""
        tally = cls(len(saved[0]))
        tally.plays[:], tally.scores[:], tally.ties, tally.unclicked = saved
        tally.duels = int(tally.plays.sum()) // 2
        return tally


class DuelReader(RequestReader):
    """Reads requests with the rankers' lists."""

    _shows: DuelShows

    def read(self, request: requests.DecisionRequest) -> Impression:
        """Check a request and return its impression, with the rankers' lists as its details.

        Raises
        ------
        InvalidValue
            If the request does not fit the placement.
        """
        rankings, unit, segments = request.rankings, *self._check_search(request)
        if rankings is None:
            if self._control.assigner is not None:
                remedy = "give each ranker's list: the holdout compares clicks in what is shown"
                raise InvalidValue("rankings", None, remedy)
            return self._make_impression(request, None, SearchFields(unit=unit, segments=segments).text)
        ranker_names = self._shows.ranker_names
        for name in rankings:
            if name not in self._lifecycle.arm_indices:
                raise InvalidValue("rankings", name, f"the rankers are {', '.join(ranker_names)}")
        for name in ranker_names if not self._lifecycle.full_offers else ():
            if name not in rankings:
                raise InvalidValue(f"rankings.{name}", None, "give the list of every ranker")
        arm = self._control.holdout and self._control.holdout.arm
        if arm is not None and str(arm) not in rankings:
            raise InvalidValue(f"rankings.{arm}", None, "give its list, which the control shows")
        names = [name for name in ranker_names if name in rankings]
        lists = {name: check_ranking(f"rankings.{name}", rankings[name]) for name in names}
        search = SearchFields(hash_rankings(lists), unit, segments)
        impression = self._make_impression(request, arms=None, text=search.text, source=lists)
        return self._with_unit(impression, request.session, request.user)

    def _check_search(self, request: requests.DecisionRequest) -> tuple[str | None, dict[str, str]]:
        """Check user, session and segments of a request; return a hash of the former two, and the segments.

        Raises InvalidValue if one does not fit.
        """
        for field in ("session", "user"):
            if (id := getattr(request, field)) is not None:
                requests.check_id(field, id)
        segments = dict(request.segments or {})
        for name, value in segments.items():
            if name not in self._config.options.request_segments:
                allowed = ", ".join(self._config.options.request_segments) or "none"
                remedy = f"the placement takes {allowed}; name others in its segments"
                raise InvalidValue(f"segments.{name}", value, remedy)
            requests.check_id(f"segments.{name}", value)
        return hash_unit(*self.hash_key, request.user, request.session), segments

    def check_offer(self, impressions: Sequence[Impression]) -> None:
        """Check again, when impressions are decided, that each with lists has one of a ranker on offer.

        Until the arms first change, ``full_offers`` is empty: a request then has the lists of all rankers.

        Raises
        ------
        InvalidValue
            If all its rankers were retired.
        """
        for impression in impressions if self._lifecycle.full_offers else ():
            if impression.details is not None and not self._shows.list_offer(impression):
                raise InvalidValue(
                    "rankings",
                    list(impression.details),
                    f"on offer are {', '.join(map(str, self._lifecycle.offer.arms))}",
                )


class DuelShows(Shows):
    """Actions of a placement that interleaves the lists of two rankers; the arms are the rankers."""

    def __init__(self, config: PlacementConfig, lifecycle: ArmLifecycle, seed: int) -> None:
        """Prepare the random draws of interleaved lists."""
        super().__init__(config, lifecycle, seed)
        self.options: DuelOptions = config.options
        self._draws = Draws(seed, "interleaving")
        self._rng = np.random.Generator(np.random.PCG64(0))

    @property
    def fold_settings(self) -> dict[str, Any]:
        """Settings for ties and lists without a click, on which the fold depends."""
        return {"ties": self.options.ties, "unclicked": self.options.unclicked}

    @property
    def ranker_names(self) -> list[str]:
        """Names of all rankers as text, in the order of their indices."""
        return [str(arm) for arm in self.lifecycle.names]

    def make_control(self, holdout: HoldoutConfig) -> Control:
        """Return the control that shows one ranker's list alone."""
        arm_index = None if holdout.arm is None else self.lifecycle.arm_indices[holdout.arm]
        return PairControl(holdout.named, arm_index)

    def list_offer(self, impression: Impression) -> Sequence[Arm]:
        """Return the rankers on offer whose lists the impression has; all of them if it has no lists."""
        lists = impression.details
        return [arm for arm in self.lifecycle.offer.arms if lists is None or str(arm) in lists]

    def limit_offers(self, impressions: Block[Impression]) -> Block[Impression]:
        """Return impressions whose offer is limited to the rankers on offer whose lists they have."""
        count, offers = len(self.lifecycle.offer.arm_indices), map(self.list_offer, impressions)
        pairs = zip(offers, impressions.column("arms"), strict=True)
        # A full offer stays as it is, None in most requests.
        arms = [before if len(offered) == count else offered for offered, before in pairs]
        return impressions.with_column("arms", arms)

    def is_full_offer(self, offered: str | None) -> bool:
        """Return True: the lists of a request, compared by their digest, determine its rankers."""
        return True

    def pin_action(self, arms: Sequence[Arm]) -> tuple[Arm, ...]:
        """Return the pair of a ranker with itself, which shows its list alone."""
        return (*arms, *arms)

    # The log ---------------------------------------------------------------------------------

    def format_shown(
        self,
        impressions: Block[Impression],
        decisions: Sequence[Decision],
        ids: Sequence[str],
        control: Sequence[int | None],
    ) -> LogTexts:
        """Interleave the lists of each decision's pair.

        Return pair and interleaved list as JSON for the log.
        """
        pairs = list_pairs(decisions)
        return list(map(self._interleave_as_json, impressions.column("details"), pairs, ids, control))

    def _interleave_as_json(
        self, lists: Mapping[str, Ranking] | None, pair: tuple[Arm, Arm], id: str, control: int | None
    ) -> str:
        """Interleave the lists of a decision's two rankers; return pair and list as JSON for the log.

        The random draws depend on the decision's ``id``. A decision of the control group (``control``) shows
        one ranker's list alone. Without lists in the request the text has the pair only.
        """
        content: dict[str, Any] = {"pair": pair}
        if lists is not None:
            rankings, length = (lists[str(pair[0])], lists[str(pair[1])]), self.options.method.length
            if control:
                # The ranker's list itself: some methods would reorder even a list interleaved with itself.
                interleaved = Interleaved(tuple(rankings[0][:length]), 1, ALONE, memory={}, probability=1.0)
            else:
                self._draws.begin(self._rng, id)
                warn_of_mixed_ids(rankings, stacklevel=2)
                interleaved = self.options.method.draw_list(rankings, self._rng)
            content["interleaved"] = interleaved
            # Clicks cannot compare lists that are equal down to the shown length.
            if pair[0] != pair[1] and rankings[0][:length] == rankings[1][:length]:
                content["alike"] = True
        return encode_json(content)

    def format_counterfactuals(self, decisions: Decisions) -> Sequence[Arm]:
        """Return the pairs of a shadow's decisions as JSON for the log."""
        return list(map(json.dumps, list_pairs(decisions)))

    def get_shown_arms(self, row: DecisionRow) -> tuple[Arm, ...]:
        """Return the left and the right ranker of a logged decision."""
        return decode_shown(row.shown).pair

    def get_actions(self, rows: Block[DecisionRow]) -> Ints:
        """Return the indices of left and right ranker of logged decisions, shape (rows, 2)."""
        arm_indices, shown_duels = self.lifecycle.arm_indices, map(decode_shown, rows.column("shown"))
        return np.array([[arm_indices[ranker] for ranker in shown.pair] for shown in shown_duels])


class DuelResults(Results):
    """Counts duels and their clicks, and reads their outcomes.

    Attributes
    ----------
    tallies : dict of str to DuelTally
        The duels of each key.
    duels : int
        Number of duels of all keys.
    leading : str
        A key with the most duels; empty without any.
    """

    shows: DuelShows

    def __init__(self, name: str, shows: DuelShows, windows: Attribution, policy: PolicyDecider) -> None:
        """Begin without duels, and prepare the random draws of ties."""
        super().__init__(name, shows, windows, policy)
        self._options = shows.options
        self._ties = Draws(shows.seed, "ties")
        self._rng = np.random.Generator(np.random.PCG64(0))
        self._most = 0
        self._duels: dict[int, tuple[Any, Duel]] = {}
        self.restore_counts({})

    @property
    def actions(self) -> Collection[str]:
        """Names of the actions on an item that feedback may contain."""
        return self._options.worth.keys()

    def count(self, rows: Block[DecisionRow]) -> None:
        """Count both rankers of each decision in the series, without propensities."""
        indices = self.shows.get_actions(rows).ravel().tolist()
        unknown = [None] * len(indices)
        offered = [len(self._lifecycle.arm_indices)] * len(indices)
        self.series.count_decisions(rows[0].time, indices, unknown, offered, count=len(rows))

    # Learn -----------------------------------------------------------------------------------

    def format_clicks(self, row: DecisionRow, feedback: requests.FeedbackRequest) -> str | None:
        """Return the clicked positions of feedback as JSON for the log; None for a reward.

        Raises
        ------
        InvalidValue
            If clicks do not fit the shown list, or the decision showed no list.
        """
        interleaved, clicks = decode_shown(row.shown).interleaved, feedback.clicks
        if clicks is not None and clicks.rewards is not None:
            remedy = "leave it out: a duel counts clicks, and other actions by their worth"
            raise InvalidValue("rewards", clicks.rewards, remedy)
        if interleaved is not None:
            return requests.encode_clicks(feedback, interleaved.items, self.actions)
        if clicks is not None:
            raise InvalidValue(
                "clicks", clicks.positions or clicks.items, "the decision showed no list; send the "
                "outcome as a reward: 1 the left one won, 0 the right one, 0.5 a tie",
            )  # fmt: skip
        return None

    def convert_rewards(self, rewards: TrainingBatch) -> list[Any]:
        """Return the outcome of each duel as the policy learns it; None if it learns nothing."""
        return [self._draw_outcome(duel) for duel in self._list_duels(rewards)]

    def _list_duels(self, rewards: TrainingBatch) -> list[Duel]:
        """Return the duels of a batch with their credit.

        The last batch is cached, as it is read several times.
        """
        open, duels = self.windows.open, self._duels
        pairs = list(zip(open.windows.seq[rewards.entries].tolist(), rewards.values, strict=True))
        if any(seq not in duels or duels[seq][0] != feedback for seq, feedback in pairs):
            columns = open.get_columns(rewards.entries, "id", "key", "time", "control", "shown")
            read = list(map(read_duel, *columns, rewards.values))
            self._duels = {seq: (feedback, duel) for (seq, feedback), duel in zip(pairs, read, strict=True)}
            return read
        return [duels[seq][1] for seq, _ in pairs]

    def _draw_outcome(self, duel: Duel) -> float | None:
        """Return the outcome of a duel as the policy learns it: 1 left won, 0 right won; a tie as configured.

        None if the policy does not learn it: a control's decision, or a tie or a list without clicks that
        does not count. The coin for a tie is drawn by the decision's id, so it is always the same.
        """
        if duel.in_control or (duel.credit.clicks == 0 and self._options.unclicked == "nothing"):
            return None
        # Nothing is drawn of a certain outcome.
        if duel.credit.chance in (0.0, 1.0):
            return duel.credit.chance
        self._ties.begin(self._rng, duel.id)
        return duel.credit.draw_outcome(self._rng, self._options.ties)

    def refine_outcomes(self, rewards: TrainingBatch, outcomes: list[str]) -> None:
        """Set the outcomes of duels that the policy does not learn to "held-out" or "tied", in place."""
        for row_index, duel in zip(rewards.row_indices, self._list_duels(rewards), strict=True):
            if self._draw_outcome(duel) is None:
                outcomes[row_index] = HELD_OUT if duel.in_control else TIED

    def count_rewards(self, rewards: TrainingBatch) -> None:
        """Count duels and clicks of a batch in the tallies and the series."""
        duels = self._list_duels(rewards)
        times = [duel.time for duel in duels if duel.credit.clicks]
        if times:
            count = len(times)
            # No propensities, all rankers on offer, and each duel with a click counts as a reward of 1.
            columns = [None] * count, [len(self._lifecycle.arm_indices)] * count, [1.0] * count
            self.series.count_rewards(times, *columns, before=[0.0] * count, arm_indices=[None] * count)
        for duel in duels:
            self._count_duel(duel)

    def _attribute_rewards(self, rewards: TrainingBatch) -> list[ArmRewards]:
        """Return for each decision a reward of 1 for no arm if it has a click; otherwise no reward."""
        return [[(None, [1.0])] if duel.credit.clicks else [] for duel in self._list_duels(rewards)]

    def _count_duel(self, duel: Duel) -> None:
        """Count a duel in its key's tally and in the total, and update the leading key.

        Decisions of the control are no duels; nor are lists without clicks if these count as nothing.
        """
        if duel.in_control or (not duel.credit.clicks and self._options.unclicked == "nothing"):
            return
        first, second = duel.pair
        tally = self._get_tally(duel.key)
        before = tally.duels
        tally.add(self._lifecycle.arm_indices[first], self._lifecycle.arm_indices[second], duel.credit)
        self.duels += tally.duels - before
        if tally.duels > self._most:
            self._most, self.leading = tally.duels, duel.key

    def _get_tally(self, key: str) -> DuelTally:
        """Return the tally of a key, with room for all rankers; a new key gets an empty tally."""
        count = len(self._lifecycle.names)
        tally = self.tallies.get(key) or self.tallies.setdefault(key, DuelTally(count))
        tally.extend_rankers(count)
        return tally

    # What was learned ------------------------------------------------------------------------

    def report(self, key: str | None = None, confidence: float = 0.95) -> tuple[str, DuelReport]:
        """Return a key and the report of its duels; without any duel, an empty report.

        Parameters
        ----------
        key : str, optional
            By default a key with the most duels.
        confidence : float
            In (0, 1).

        Raises
        ------
        InvalidValue
            If the key has no decision, or the confidence is out of range.
        """
        if key is None:
            key = self.leading
        elif key not in self.tallies and key not in self.policy.learner:
            raise InvalidValue("key", key, "give one for which there was a duel")
        # A copy: reading must not change what a snapshot holds.
        tally = copy(self.tallies.get(key) or DuelTally(0))
        tally.extend_rankers(len(self._lifecycle.names))
        plays, scores = tally.plays.copy(), tally.scores.copy()
        return key, DuelReport(
            self.shows.ranker_names, plays, scores, confidence, tally.ties, tally.unclicked
        )

    def export_counts(self) -> Any:
        """Return the tallies of all keys as JSON data."""
        return {key: tally.save_state() for key, tally in self.tallies.items()}

    def restore_counts(self, counts: Any) -> None:
        """Replace the tallies of all keys by the output of :meth:`export_counts`; recompute the totals."""
        self.tallies: dict[str, DuelTally] = {
            key: DuelTally.from_state(saved) for key, saved in counts.items()
        }
        # Updated with each duel, so that views need no loop over all keys.
        self.duels = sum(tally.duels for tally in self.tallies.values())
        self.leading = max(self.tallies, key=lambda key: self.tallies[key].duels, default="")
        self._most = self.tallies[self.leading].duels if self.tallies else 0

    def merge_counts(self, parts: Sequence[Any]) -> None:
        """Replace the tallies by the tallies of all shards, whose keys are different."""
        # Each key is in one shard.
        self.restore_counts({key: tally for part in parts for key, tally in part.items()})


def list_pairs(decisions: Any) -> list[tuple[Arm, Arm]]:
    """Return the left and the right ranker of each of :class:`Decisions`."""
    names = decisions.names
    return [(names[left], names[right]) for left, right in decisions.actions.tolist()]


class ShownDuel(msgspec.Struct):
    """The pair and the list of a logged decision.

    Attributes
    ----------
    pair : tuple of arms
        The left and the right ranker.
    interleaved : Interleaved or None
        The shown list; None for a pair without a list.
    """

    pair: tuple[Arm, Arm]
    interleaved: Interleaved | None = None


decode_shown: Callable[[Any], ShownDuel] = msgspec.json.Decoder(ShownDuel).decode
"""Returns the pair and the list of a decision from the log, which was checked when it was written."""


class Duel(NamedTuple):
    """A decision of duels with its feedback, read once.

    Attributes
    ----------
    id, key, time
        Of the decision.
    in_control : bool
        Whether it is of the control group.
    pair : sequence of arms
        The left and the right ranker.
    credit : Credit
        Credit of both rankers, 0 in the control group; the clicks that count.
    """

    id: str
    key: str
    time: int
    in_control: bool
    pair: Sequence[Arm]
    credit: Credit


def read_duel(id: str, key: str, time: int, control: int | None, shown: str, feedback: Any) -> Duel:
    """Return a logged decision and its feedback as a duel, with the credit that the rankers get.

    A decision of the control group gives no credit. ``feedback`` is an outcome or a list of clicks; the other
    parameters are columns of the decision's row of the log.
    """
    content = decode_shown(shown)
    if control:
        credit = Credit((0.0, 0.0), len(requests.select_clicks(feedback)), chance=0.5)
    else:
        credit = compute_credit(content.interleaved, feedback)
    return Duel(id, key, time, bool(control), content.pair, credit)


def compute_credit(interleaved: Interleaved | None, feedback: float | list[Any]) -> Credit:
    """Return the credit of both rankers for feedback on an interleaved list or a pair without a list.

    Actions other than clicks are ignored. Clicks on a pair without a list are a tie without clicks.

    Parameters
    ----------
    interleaved : Interleaved or None
        The shown list; None for a pair without a list.
    feedback : float or list
    """
    if not isinstance(feedback, list):
        return Credit((feedback, 1.0 - feedback), clicks=1, chance=feedback)
    if interleaved is None:
        # A pair without an outcome.
        return Credit((0.0, 0.0), clicks=0, chance=0.5)
    return credit_clicks(interleaved, list(requests.select_clicks(feedback)))


def export_duel(row: DecisionRow, feedback: float | list[Any]) -> dict[str, Any]:
    """Return a duel and its feedback as a row of a log of searches, for :mod:`tacit.evaluate.interleaved`.

    Each segment is a field with its name. The rankings are None unless both are known to be equal.
    """
    content, search = decode_json(row.shown), SearchFields.read(row.asked)
    (first, second), interleaved = content["pair"], content.get("interleaved")
    # The log does not hold rankings; equal ones are known from the shown list.
    rankings = [interleaved["items"]] * 2 if "alike" in content else None
    return {
        **search.segments,
        "decision_id": row.id,
        "key": row.key,
        "left": first,
        "right": second,
        "outcome": compute_credit(decode_shown(row.shown).interleaved, feedback).chance,
        "interleaved": interleaved,
        "clicks": feedback if isinstance(feedback, list) else None,
        "user": search.unit,
        "rankings": rankings,
    }
