"""Duel placements: interleave the lists of two rankers, and learn from clicks which one is better."""

# 1. ``DuelOptions``, ``DuelTally``: configuration of duels, and the duels of one key.
# 2. ``DuelPlacement``: the policy chooses two rankers, their lists are interleaved, and clicks decide.
# 3. Functions of single rows: lists, credit, and a duel as a row of a log of searches.

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from tacit.core.arrays import Ints
from tacit.errors import InvalidValue
from tacit.evaluate.duels import DuelReport
from tacit.interleaving import Credit, Interleaved, InterleavingMethod, credited
from tacit.interleaving.base import ranking
from tacit.interleaving.rules import CLICK
from tacit.learning.decisions import Arm, Decision
from tacit.service.config.holdout import HoldoutConfig
from tacit.service.log import requests
from tacit.service.log.blocks import Block
from tacit.service.log.ids import Draws
from tacit.service.log.rows import FORGET, DecisionRow, MarkRow, text_of
from tacit.service.log.search_records import AskedSearch, digest_of, unit_of, without_unit
from tacit.service.placements.aspects.control_group import Control, PairControl
from tacit.service.placements.attribution import HELD_OUT, TIED, ClickAttribution, Lessons
from tacit.service.placements.learning import Earned
from tacit.service.placements.placement import Placement
from tacit.service.placements.state import Asked, Held, Texts

KEY = "key"
"""The segment that is a search's key."""
ALONE = "Alone"
"""The method of a control that shows one ranker's list."""


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
    def given(self) -> list[str]:
        """Names of the segments that requests give: all but the key."""
        return [name for name in self.segments if name != KEY]


class Tally:
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
        self.plays, self.scores = np.zeros((2, rankers, rankers))
        self.duels = self.ties = self.unclicked = 0

    def add(self, left: int, right: int, credit: Credit) -> None:
        """Count a duel, except of a ranker with itself."""
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

    def reach(self, rankers: int) -> None:
        """Make room for more rankers."""
        more = rankers - len(self.plays)
        if more:
            both = np.pad(np.stack([self.plays, self.scores]), ((0, 0), (0, more), (0, more)))
            self.plays, self.scores = both

    def saved(self) -> list[Any]:
        """Return the tally as JSON data."""
        return [self.plays.tolist(), self.scores.tolist(), self.ties, self.unclicked]

    @classmethod
    def restored(cls, saved: Sequence[Any]) -> Tally:
        """Return the tally that :meth:`save_state` wrote."""
        tally = cls(len(saved[0]))
        tally.plays[:], tally.scores[:], tally.ties, tally.unclicked = saved
        tally.duels = int(tally.plays.sum()) // 2
        return tally


class DuelPlacement(Placement):
    """Decides which two rankers to interleave, and learns from clicks which one is better.

    Parameters are those of :class:`Placement`; the arms are the rankers.

    Attributes
    ----------
    tallies : dict of str to Tally
        The duels of each key.
    duels : int
        Number of duels of all keys.
    leading : str
        A key with the most duels; empty without any.
    """

    duels: int
    leading: str
    _most: int
    attribution = ClickAttribution

    def _begin(self) -> None:
        super()._begin()
        self._duels: DuelOptions = self.config.options
        self._interleaving = Draws(self.seed, "interleaving")
        self._ties = Draws(self.seed, "ties")
        self._rng = np.random.Generator(np.random.PCG64(0))
        self._take_counts({})

    @property
    def actions(self) -> Collection[str]:
        """Names of the actions on an item that feedback may contain."""
        return self._duels.worth.keys()

    def _own_fold_spec(self) -> dict[str, Any]:
        return {"ties": self._duels.ties, "unclicked": self._duels.unclicked}

    # Decide ----------------------------------------------------------------------------------

    def checked(self, request: requests.DecisionRequest) -> requests.Impression:
        """Check a request and return its impression.

        Raises
        ------
        InvalidValue
            If the request does not fit the placement.
        """
        rankings, said = request.rankings, self._said(request)
        if rankings is None:
            if self.control.coin is not None:
                remedy = "give each ranker's list: the holdout compares clicks in what is shown"
                raise InvalidValue("rankings", None, remedy)
            return self._impression(request, None, said.text)
        for name in rankings:
            if name not in self.living.slots:
                raise InvalidValue("rankings", name, f"the rankers are {', '.join(self._named)}")
        for name in self._named if not self.living.wholes else ():
            if name not in rankings:
                raise InvalidValue(f"rankings.{name}", None, "give the list of every ranker")
        arm = self.holdout and self.holdout.arm
        if arm is not None and str(arm) not in rankings:
            raise InvalidValue(f"rankings.{arm}", None, "give its list, which the control shows")
        given = [name for name in self._named if name in rankings]
        lists = {name: ranking(f"rankings.{name}", rankings[name]) for name in given}
        said = replace(said, rankings=digest_of(lists))
        impression = self._impression(request, None, said.text, lists)
        return self._of_unit(impression, request.session, request.user)

    def _said(self, request: requests.DecisionRequest) -> AskedSearch:
        """Check user, session and segments of a request and return its search record."""
        for field in ("session", "user"):
            if (id := getattr(request, field)) is not None:
                requests.checked_id(field, id)
        segments = dict(request.segments or {})
        for name, value in segments.items():
            if name not in self._duels.given:
                known = ", ".join(self._duels.given) or "none"
                remedy = f"the placement takes {known}; name others in its segments"
                raise InvalidValue(f"segments.{name}", value, remedy)
            requests.checked_id(f"segments.{name}", value)
        return AskedSearch(None, unit_of(self._salt, self.id, request.user, request.session), segments)

    def marked(self, mark: MarkRow) -> None:
        """Apply a change event; the erasure of a user also removes the users of open decisions."""
        super().marked(mark)
        if mark.kind == FORGET and mark.placement == self.id:
            # The users of open decisions are not read any more, and snapshots must not hold them.
            self.windows.change("asked", without_unit)
            self.since_snapshot = max(self.since_snapshot, self.snapshot_after)

    def check_offered(self, impressions: Sequence[requests.Impression]) -> None:
        """Check that each impression has a list of a ranker on offer; see the base class."""
        for impression in impressions if self.living.wholes else ():
            if impression.given is not None and not self._listed(impression):
                raise InvalidValue(
                    "rankings", list(impression.given), f"on offer are {', '.join(map(str, self.offer.arms))}"
                )

    def choose(self, impressions: Sequence[requests.Impression], seq: int, time: int) -> Block[DecisionRow]:
        """Decide among the rankers on offer whose lists the request has; see the base class."""
        if self.living.wholes:
            count = len(self.offer.slots)
            listed = list(map(self._listed, impressions))
            impressions = [
                impression if len(arms) == count else impression._replace(arms=arms)
                for impression, arms in zip(impressions, listed, strict=True)
            ]
        return super().choose(impressions, seq, time)

    def can_show(self, impression: requests.Impression) -> Sequence[Arm]:
        return self._listed(impression)

    def shown_fixed(self, arms: Sequence[Arm]) -> tuple[Arm, ...]:
        """Return the pair of a ranker with itself, which shows its list alone."""
        return (*arms, *arms)

    def _listed(self, impression: requests.Impression) -> list[Arm]:
        """Return the rankers on offer whose lists the impression has."""
        given = impression.given
        return [arm for arm in self.offer.arms if given is None or str(arm) in given]

    def _was_whole(self, offered: str | None) -> bool:
        # The digest of the lists determines the rankers of a request.
        return True

    @property
    def _named(self) -> list[str]:
        return [str(arm) for arm in self.arms]

    def control_of(self, holdout: HoldoutConfig) -> Control:
        slot = None if holdout.arm is None else self.living.slots[holdout.arm]
        return PairControl(holdout.named, slot)

    def _all_shown(self, asked: Asked, made: Sequence[Decision], ids: Sequence[str], held: Held) -> Texts:
        return list(map(self._shown_as, asked, made, ids, held))

    def _shown_as(
        self, impression: requests.Impression, shown: Decision, id: str, control: int | None
    ) -> str:
        content: dict[str, Any] = {"pair": shown.pair}
        if impression.given is not None:
            rankings = [impression.given[str(ranker)] for ranker in shown.pair]
            if control:
                # The ranker's list itself: some methods would reorder even a list interleaved with itself.
                items = tuple(rankings[0][: self._duels.method.length])
                interleaved = Interleaved(items, 1, ALONE, {}, 1.0)
            else:
                self._interleaving.begin(self._rng, id)
                interleaved = self._duels.method.interleave(rankings, self._rng)
            content["interleaved"] = interleaved.as_dict()
            if _alike(rankings, self._duels.method.length) and len(set(shown.pair)) > 1:
                content["alike"] = True
        return text_of(content)

    def _would_show(self, decision: Decision) -> Arm:
        return json.dumps(decision.pair)

    def shown(self, row: DecisionRow) -> tuple[Arm, ...]:
        """Return the left and the right ranker of a logged decision."""
        left, right = json.loads(row.shown or "")["pair"]
        return left, right

    def _actions(self, rows: Block[DecisionRow]) -> Ints:
        return np.array([[self.living.slots[arm] for arm in self.shown(row)] for row in rows])

    def _count_impressions(self, rows: Block[DecisionRow]) -> None:
        slots = [self.living.slots[ranker] for row in rows for ranker in self.shown(row)]
        unknown = [None] * len(slots)
        offered = [len(self.living.slots)] * len(slots)
        self.series.decided_many(rows[0].time, slots, unknown, offered, len(rows))

    # Learn -----------------------------------------------------------------------------------

    def positions(self, row: DecisionRow, feedback: requests.FeedbackRequest) -> str | None:
        """Format the clicked positions of feedback for the log; see the base class."""
        interleaved, clicks = shown_list(row), feedback.clicks
        if interleaved is not None:
            return requests.clicked_positions(feedback, interleaved["items"], self.actions)
        if clicks is not None:
            raise InvalidValue(
                "clicks", clicks.positions or clicks.items, "the decision showed no list; send the "
                "outcome as a reward: 1 the left one won, 0 the right one, 0.5 a tie",
            )  # fmt: skip
        return None

    def _policy_rewards(self, rewards: Lessons) -> list[Any]:
        return list(map(self._policy_reward, self.windows.rows(rewards.entries), rewards.values))

    def _policy_reward(self, row: DecisionRow, came: Any) -> float | None:
        """Return the outcome of a duel for the policy; None if the policy does not learn from it."""
        if row.control:
            return None
        credit = credit_of(row, came)
        if credit.clicks == 0 and self._duels.unclicked == "nothing":
            return None
        self._ties.begin(self._rng, row.id)
        return credit.settled(self._rng, self._duels.ties)

    def _name(self, rewards: Lessons, outcomes: list[str]) -> None:
        rows = self.windows.rows(rewards.entries)
        for place, row, came in zip(rewards.places, rows, rewards.values, strict=True):
            if self._policy_reward(row, came) is None:
                outcomes[place] = HELD_OUT if row.control else TIED

    def _count_rewards(self, rewards: Lessons) -> None:
        for row, came in zip(self.windows.rows(rewards.entries), rewards.values, strict=True):
            self._note_duel(row, came)

    def _earned(self, rewards: Lessons) -> list[Earned]:
        rows = self.windows.rows(rewards.entries)
        return [[(None, [1.0])] if _clicked(*pair) else [] for pair in zip(rows, rewards.values, strict=True)]

    def _note_duel(self, row: DecisionRow, came: Any) -> None:
        clicked = _clicked(row, came)
        if clicked:
            self.series.rewarded(row.time, None, len(self.living.slots), 1.0)
        if row.control or (not clicked and self._duels.unclicked == "nothing"):
            return
        credit = credit_of(row, came)
        left, right = self.shown(row)
        tally = self._tally(row.key)
        before = tally.duels
        tally.add(self.living.slots[left], self.living.slots[right], credit)
        self.duels += tally.duels - before
        if tally.duels > self._most:
            self._most, self.leading = tally.duels, row.key

    def _tally(self, key: str) -> Tally:
        tally = self.tallies.setdefault(key, Tally(len(self.arms)))
        tally.reach(len(self.arms))
        return tally

    # What was learned ------------------------------------------------------------------------

    def report(self, key: str | None = None, confidence: float = 0.95) -> tuple[str, DuelReport]:
        """Return a key and the report of its duels.

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
        elif key not in self.tallies and key not in self.learner:
            raise InvalidValue("key", key, "give one for which there was a duel")
        tally = self.tallies[key] if key in self.tallies else Tally(len(self.arms))
        tally.reach(len(self.arms))
        plays, scores = tally.plays.copy(), tally.scores.copy()
        return key, DuelReport(self._named, plays, scores, confidence, tally.ties, tally.unclicked)

    def counts(self) -> Any:
        """Return the duels of every key as JSON data."""
        return {key: tally.saved() for key, tally in self.tallies.items()}

    def _take_counts(self, counts: Any) -> None:
        self.tallies: dict[str, Tally] = {key: Tally.restored(saved) for key, saved in counts.items()}
        # Updated with each duel, so that views need no loop over all keys.
        self.duels = sum(tally.duels for tally in self.tallies.values())
        self.leading = max(self.tallies, key=lambda key: self.tallies[key].duels, default="")
        self._most = self.tallies[self.leading].duels if self.tallies else 0

    def show_counts(self, parts: Sequence[Any]) -> None:
        # Each key is in one shard.
        self._take_counts({key: tally for part in parts for key, tally in part.items()})


def shown_list(row: DecisionRow) -> dict[str, Any] | None:
    """Return the interleaved list of a logged decision as JSON data; None if it showed no list."""
    interleaved: dict[str, Any] | None = json.loads(row.shown or "").get("interleaved")
    return interleaved


def _alike(rankings: Sequence[Sequence[Arm]], length: int) -> bool:
    """True if two lists are equal down to the shown length, so that clicks cannot compare them."""
    left, right = rankings
    return left[:length] == right[:length]


def _clicked(row: DecisionRow, came: Any) -> bool:
    """True if a decision has a click; for the control any click, for duels a click that gives credit."""
    return bool(requests.clicks_in(came) if row.control else credit_of(row, came).clicks)


def credit_of(row: DecisionRow, came: float | list[Any]) -> Credit:
    """Return the credit of both rankers for feedback: an outcome, or clicks; other actions are ignored."""
    if not isinstance(came, list):
        return Credit((came, 1.0 - came), clicks=1, chance=came)
    interleaved = shown_list(row)
    if interleaved is None:
        # A pair without an outcome.
        return Credit((0.0, 0.0), clicks=0, chance=0.5)
    return credited(Interleaved.from_dict(interleaved), requests.clicks_in(came))


def duel_of(row: DecisionRow, came: float | list[Any]) -> dict[str, Any]:
    """Return a duel as a row of a log of searches for :mod:`tacit.evaluate.interleaved`.

    Each segment is a field with its name.
    """
    shown, asked = json.loads(row.shown or ""), AskedSearch.read(row.asked)
    (left, right), interleaved = shown["pair"], shown.get("interleaved")
    # The log does not hold rankings; equal ones are known from the shown list.
    alike = [interleaved["items"]] * 2 if "alike" in shown else None
    return {
        **asked.segments,
        "decision_id": row.id,
        "key": row.key,
        "left": left,
        "right": right,
        "outcome": credit_of(row, came).chance,
        "interleaved": interleaved,
        "clicks": came if isinstance(came, list) else None,
        "user": asked.unit,
        "rankings": alike,
    }
