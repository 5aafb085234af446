"""Deciding of a placement: requests are checked, decided, and converted to rows of the log."""

# 1. ``check_request``: checks a request, before anything is changed, and returns its impression.
# 2. ``decide``: computes signals, then decides runs of similar impressions together.
# 3. ``_decide_batch``: the fast path; ``_decide_one``: with a pin, a secondary policy or another mode.
# 4. ``make_rows``: the decisions as columns of the log.
# Random draws depend on decisions' ids alone, so a replay of the log and a client's replica draw the same.

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import filterfalse, groupby
from typing import Any

import numpy as np

from tacit.core import checks
from tacit.errors import InvalidValue
from tacit.learning.decisions import Arm, Decision, Decisions, none_for_nan
from tacit.learning.learner import Learner
from tacit.service.config.holdout import DECISION, SESSION
from tacit.service.log.blocks import Block
from tacit.service.log.ids import Draws, decision_id, decision_ids
from tacit.service.log.requests import DecisionRequest, Impression, Made, checked_id
from tacit.service.log.rows import CONTROL, ONLINE, DecisionRow
from tacit.service.placements.aspects.arm_lifecycle import listed_as_json
from tacit.service.placements.aspects.client_decisions import taken_over
from tacit.service.placements.aspects.control_group import Tossed, drawn_alone
from tacit.service.placements.state import State


class Deciding(State):
    """Decides for impressions."""

    def checked(self, request: DecisionRequest) -> Impression:
        """Check a request and return its impression.

        Raises
        ------
        InvalidValue, UnknownName
            If the key, an arm, the context, the session, the user or the id does not fit.
        """
        for field in ("relevance", "examination", "segment", "unknown"):
            if (given := getattr(request, field)) is not None:
                raise InvalidValue(field, given, "leave it out: the policy reads no features")
        arms = request.arms
        if arms is not None:
            arms = self.living.named(arms)
        impression = self._impression(request, arms, self._session(request.session))
        return self._of_unit(impression, request.session, request.user)

    def checked_keys(self, keys: Sequence[str]) -> Block[Impression]:
        """Check keys and return impressions that have a key alone, like :meth:`check_request`.

        Raises
        ------
        InvalidValue
            As :meth:`check_request`.
        """
        if not self.asks_just_keys:
            return Block.of(Impression, list(map(self.checked, map(DecisionRequest, keys))))
        for key in filterfalse(self.learner.lanes.of.__contains__, keys):
            _checked_key(key)
        nothing: list[Any] = [None] * len(keys)
        deferred = [False] * len(keys)
        return Block(Impression, [list(keys), *3 * [nothing], deferred, *4 * [nothing]])

    def of_key(self, key: str) -> Impression:
        """Check a key and return an impression that has a key alone, like :meth:`check_request`.

        Raises
        ------
        InvalidValue
            If the key does not fit.
        """
        return Impression(key if key in self.learner.lanes.of else _checked_key(key), None, None)

    def let_in(self, keys: Iterable[str], before: Collection[str] = ()) -> set[str]:
        """Return the new keys among some keys, after checking the limit of keys.

        Parameters
        ----------
        keys : iterable of str
        before : collection of str
            New keys that were already admitted but have no decision yet.

        Raises
        ------
        InvalidValue
            If there would be more keys than the configuration allows.
        """
        limit = self.key_limit
        if limit is None:
            return set()
        # Keys use memory forever, so too many are refused.
        new = {key for key in keys if key not in self.learner} - set(before)
        if new and len(self.learner) + len(before) + len(new) > limit:
            each = sum(learner.policy.key_bytes for learner in self.learners)
            raise InvalidValue(
                "key",
                min(new),
                f"placement {self.name!r} lets in {limit:,} keys, of {each:,} bytes each, and has "
                f"{len(self.learner) + len(before):,}: raise its most_keys, let keys share what is learned "
                "(per_key = false), or send a key that it has",
            )
        return new

    def doubt(self, request: Any) -> str | None:
        """Return a warning about a valid request that is probably a mistake, or None."""
        unit = DECISION if self.holdout is None else self.holdout.unit
        if unit != DECISION and getattr(request, unit) is None:
            return drawn_alone(unit)
        return None if self.encoder is None else self.encoder.doubt(request.context)

    def _session(self, id: str | None) -> str | None:
        """Check a session and return its text for the log; None without signals that use it."""
        if id is None:
            return None
        checked_id("session", id)
        # Clients may still send it after a holdout by sessions has ended.
        held = self.earnings.sums.has_held_out(SESSION)
        if self.signals is not None and (self.signals.stream.follows_sessions or not held):
            return self.signals.session(id)
        if not held:
            raise InvalidValue("session", id, "leave it out: the placement computes no signals")
        return None

    def _of_unit(self, impression: Impression, session: str | None, user: str | None) -> Impression:
        """Return an impression with its session and user, after checking them against the holdout."""
        if user is not None:
            checked_id("user", user)
        arm = None if self.holdout is None else self.holdout.arm
        if arm is not None and impression.arms is not None and arm not in impression.arms:
            raise InvalidValue("arms", impression.arms, f"offer {arm!r}, which the control shows")
        return impression if session is user is None else impression._replace(session=session, user=user)

    def _impression(
        self,
        request: DecisionRequest,
        arms: Sequence[Arm] | None,
        asked: str | None = None,
        given: Any = None,
    ) -> Impression:
        """Check key, context and id of a request and return its impression."""
        context, id, dim = self._encoded(request.context), request.id, self._told_dim
        if self.signals is not None and not dim and context is not None:
            raise InvalidValue("context", context, "leave it out: the signals are the service's")
        if context is not None and not dim:
            remedy = "leave it out, or configure the placement's context: its policy reads none"
            raise InvalidValue("context", context, remedy)
        if dim and not _fits(context, dim):
            named = "" if self.encoder is None else f", or what is known of {', '.join(self.encoder.fields)}"
            raise InvalidValue("context", context, f"give a list of {dim} finite numbers{named}")
        if id is not None:
            id = checked_id("decision_id", id)
        key = _checked_key(request.key)
        return Impression(key, arms, context, id, request.deferred, asked, given)

    def _encoded(self, context: Any) -> Any:
        """Encode a context of named fields as numbers for the policy; return other contexts unchanged."""
        if not isinstance(context, Mapping):
            return context
        if self.encoder is None:
            remedy = "give numbers, or configure the placement's context: context = { NAME = … }"
            raise InvalidValue("context", context, remedy)
        return self.encoder.row(context).tolist()

    def choose(self, impressions: Sequence[Impression], seq: int, time: int) -> Block[DecisionRow]:
        """Decide for impressions; return rows with the sequence numbers from ``seq`` on.

        The random draws of a decision with a client's id depend on that id. Consecutive decisions whose ids
        the service makes draw in turn from the first id, so that they can be made together.
        """
        asked: Block[Impression] = Block.of(Impression, impressions)
        self.decided_elsewhere = False
        if self.signals is not None:
            offers = list(map(self.living.slots_asked, asked.column("arms")))
            read = self.signals.read(self.learner, asked, offers, time)
            asked = Block.of(Impression, read)
        ids, pinned = asked.column("id"), self.pins.last is not None and self.pins.at(time) is not None
        # With pins, other modes or a control policy, decisions may differ within a batch.
        at_once = (
            not pinned and self.modes.now in (ONLINE, CONTROL) and not (self.second is not None and self.two)
        )
        # Client-side decisions always have ids.
        if at_once and ids.count(None) == len(ids):
            rows = self._chosen_many(asked, seq, time)
        else:
            parts = list(self._in_parts(asked, seq, time, at_once=at_once))
            rows = Block.joined(DecisionRow, parts)
        if self.signals is not None:
            self.signals.decided(self.learner, rows)
        return rows

    def _in_parts(
        self, asked: Block[Impression], seq: int, time: int, *, at_once: bool
    ) -> Iterator[Block[DecisionRow]]:
        """Yield decisions of consecutive impressions: client-side, in a batch, or one by one."""
        ids, given = asked.column("id"), asked.column("given")
        start = 0
        for (unnamed, elsewhere), run in groupby(zip(ids, given, strict=True), _made_how):
            stop = start + len(list(run))
            if elsewhere:
                yield taken_over(self.here, asked[start:stop], seq + start, time)
            elif unnamed and at_once:
                yield self._chosen_many(asked[start:stop], seq + start, time)
            else:
                for i in range(start, stop):
                    yield self._chosen(asked[i], seq + i, time)
            start = stop

    def asked_before(self, impression: Impression, row: DecisionRow) -> bool:
        """True if a logged decision answers an equal impression, or is the same client-side decision."""
        made = impression.given
        if isinstance(made, Made) and made.arm != row.arm:
            return False
        if impression.arms is None and self._was_whole(row.offered):
            row = row._replace(offered=None)
        # The log holds the unit only as its bucket, under the current holdout.
        coin = self.control.coin
        known = None if coin is None or row.seq <= self.earnings.sums.seq else row.bucket
        if coin is not None and known not in (None, coin.bucket(row.id, self.unit_of(impression))):
            return False
        return impression.asks_for(row, row.context if self.signals is None else self.signals.given(row))

    def asks_the_same(self, impression: Impression, earlier: Impression) -> bool:
        """True if two impressions without decisions are equal requests."""
        plain = [each._replace(session=None, user=self.unit_of(each)) for each in (impression, earlier)]
        return plain[0] == plain[1]

    def unit_of(self, impression: Impression) -> str | None:
        """Return the user or session by which the holdout assigns an impression; None for decisions."""
        unit = DECISION if self.holdout is None else self.holdout.unit
        return None if unit == DECISION else getattr(impression, unit)

    def _was_whole(self, offered: str | None) -> bool:
        """True if an offer, as text of the log, was the full offer at some time."""
        return offered in self.living.wholes

    def _chosen_many(self, asked: Block[Impression], seq: int, time: int) -> Block[DecisionRow]:
        keys = asked.column("key")
        ids = decision_ids(time, len(keys)) if self.new_ids is None else self.new_ids(time, keys, seq)
        # All draws of the batch follow from its first id, which a client's replica has, too.
        self.draws.begin(self.learner.rng, ids[0])
        decisions: Sequence[Decision]
        if self.control.coin is None:
            decisions, tossed = self.choose_many(self.learner, asked), None
        else:
            decisions, tossed = self._held_out(asked, ids)
        rows = self.rows_of(asked, seq, ids, time, decisions, tossed)
        self.decided(rows, decisions)
        return rows

    def _held_out(self, asked: Block[Impression], ids: Sequence[str]) -> tuple[Sequence[Decision], Tossed]:
        """Decide with a holdout; return the decisions of policy and control, and their assignment."""
        offers = list(map(self.offer_of, asked))
        every = self.modes.control_decides
        unit = self._coin.config.unit
        units = [None] * len(ids) if unit == DECISION else asked.column(unit)
        tossed = self._coin.toss(ids, units, offers, every=every)
        made = self.choose_many(self.learner, asked, tossed.imposed)
        return self.control.with_chances(made, offers, alone=every), tossed

    def _chosen(self, impression: Impression, seq: int, time: int) -> Block[DecisionRow]:
        id = impression.id
        if id is None:
            id = decision_id(time) if self.new_ids is None else self.new_ids(time, [impression.key], seq)[0]
        pinned = self.pins.shown(self.here, impression, time)
        if pinned is not None:
            return self._show_pinned(impression, seq, id, time, pinned)
        if self.second is not None and self.two:
            return self.second.by_two(self.here, impression, seq, id, time)
        asked: Block[Impression] = Block.of(Impression, [impression])
        tossed = None
        if self.control.coin is not None:
            self.draws.begin(self.learner.rng, id)
            with self.standing(self.learner, impression.key):
                (decision,), tossed = self._held_out(asked, [id])
        else:
            decision = self.drawn(self.learner, self.draws, impression, id)
        # The secondary policy decides afterwards, with its own draws, so that it cannot affect the shown arm.
        would = learned = None
        if self.second is not None and self.modes.compares:
            would = self.second.drawn(self.here, impression, id)
            # The secondary policy learns from the shown arm.
            learned = decision._replace(epoch=would.epoch, context=would.context)
        row = self.rows_of(asked, seq, [id], time, [decision], tossed, would)
        self.decided(row, [decision], learned)
        return row

    def _show_pinned(
        self, impression: Impression, seq: int, id: str, time: int, pinned: tuple[Arm, ...]
    ) -> Block[DecisionRow]:
        """Show pinned arms, with propensity 1; log the policy's decision as the counterfactual."""
        would = self.drawn(self.learner, self.draws, impression, id)
        sure = np.ones(len(would.prefix_propensities))
        shown = would._replace(
            shown=pinned,
            slots=self._slots_shown(pinned, impression.arms),
            propensity=1.0,
            prefix_propensities=sure,
            position_propensities=sure,
        )
        row = self.rows_of(Block.of(Impression, [impression]), seq, [id], time, [shown], None, would)
        row = row.with_column("mode", [self.pins.mode(self.here)])
        self.decided(row, [shown])
        return row

    def rows_of(
        self,
        asked: Block[Impression],
        seq: int,
        ids: list[str],
        time: int,
        decisions: Sequence[Decision],
        tossed: Tossed | None = None,
        would: Decision | None = None,
    ) -> Block[DecisionRow]:
        """Return decisions as rows of the log, with the sequence numbers from ``seq`` on."""
        keys, arms, contexts, _, deferred, requests, *_ = asked.columns
        count = len(keys)
        plain = arms.count(None) == count
        if isinstance(decisions, Decisions):
            shown, epochs = decisions.arms, decisions.epochs.tolist()
            propensities = none_for_nan(decisions.propensities)
        else:
            # The first arm of duels and lists, without the warning of ``Decision.arm``.
            shown = [made.arm if isinstance(made, Made) else made.shown[0] for made in decisions]
            epochs = [decision.epoch for decision in decisions]
            propensities = [decision.propensity for decision in decisions]
        control = [None] * count if tossed is None else tossed.control
        columns = (
            list(range(seq, seq + count)),
            ids,
            [self.id] * count,
            [self.policy_id] * count,
            [time] * count,
            keys,
            # None stands for all arms only until arms first change; after that the log holds the offer.
            arms if plain and not self.living.wholes else self.living.as_offered(arms),
            shown,
            propensities,
            epochs,
            contexts if contexts.count(None) == count else listed_as_json(contexts),
            [self.modes.now] * count,
            [would and self._would_show(would)] * count,
            [would and would.propensity] * count,
            list(map(int, deferred)),
            requests,
            self._all_shown(asked, decisions, ids, control),
            control,
            [None] * count if tossed is None else tossed.bucket,
        )
        return Block(DecisionRow, columns)

    def drawn(self, learner: Learner, draws: Draws, impression: Impression, id: str) -> Decision:
        """Decide for an impression with a learner and the random draws of a decision's id."""
        draws.begin(learner.rng, id)
        with self.standing(learner, impression.key):
            decision = self._choose(learner, impression)
        # The learner reuses its array of contexts.
        return decision._replace(context=decision.context.copy())


def _checked_key(key: str) -> str:
    if "\0" in key:
        raise InvalidValue("key", key, "leave out the character U+0000: no database stores it")
    return checks.name("key", key)


def _made_how(asked: tuple[str | None, Any]) -> tuple[bool, bool]:
    """Return whether the service makes the decision's id, and whether a client made the decision."""
    id, given = asked
    return id is None, isinstance(given, Made)


def _fits(context: Any, dim: int) -> bool:
    """True if a context is ``dim`` finite numbers."""
    return (
        isinstance(context, Sequence)
        and len(context) == dim
        and all(isinstance(x, (int, float)) and math.isfinite(x) for x in context)
    )
