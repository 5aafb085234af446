"""How a placement decides: impressions are checked, one or many at once, and made rows of the log."""

# From a request to rows of the log, in this order:
# 1. ``checked``: what a request says, and whether it fits the placement, before anything is changed.
# 2. ``choose``: signals are read, then stretches that are made alike are decided at once.
# 3. ``_chosen_many``: the fast way; ``_chosen``: one by one, where a pin, a mode or a second policy may
#    differ.
# 4. ``rows_of``: the decisions as columns of the log.
# Draws come from decisions' ids alone, so a replay of the log and a lent learner draw the same.

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
        """Return an impression that :meth:`choose` will take.

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
        """Return impressions of which nothing is said but their keys; as :meth:`checked`.

        Raises
        ------
        InvalidValue
            As :meth:`checked`.
        """
        if not self.asks_just_keys:
            return Block.of(Impression, list(map(self.checked, map(DecisionRequest, keys))))
        for key in filterfalse(self.learner.lanes.of.__contains__, keys):
            _checked_key(key)
        nothing: list[Any] = [None] * len(keys)
        deferred = [False] * len(keys)
        return Block(Impression, [list(keys), *3 * [nothing], deferred, *4 * [nothing]])

    def of_key(self, key: str) -> Impression:
        """Return an impression of which nothing is said but its key; as :meth:`checked`.

        Raises
        ------
        InvalidValue
            If the key does not fit.
        """
        return Impression(key if key in self.learner.lanes.of else _checked_key(key), None, None)

    def let_in(self, keys: Iterable[str], before: Collection[str] = ()) -> set[str]:
        """Return which of these keys are new, checked that there may be so many more.

        Parameters
        ----------
        keys : iterable of str
        before : collection of str
            New ones that were let in already and have decided nothing yet.

        Raises
        ------
        InvalidValue
            If there would be more keys than the configuration allows.
        """
        limit = self.key_limit
        if limit is None:
            return set()
        # Keys cost memory for good, so their number is refused here and not noticed later.
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
        """Return what of a request that was checked is hardly meant; None for nothing."""
        unit = DECISION if self.holdout is None else self.holdout.unit
        if unit != DECISION and getattr(request, unit) is None:
            return drawn_alone(unit)
        return None if self.encoder is None else self.encoder.doubt(request.context)

    def _session(self, id: str | None) -> str | None:
        """Return a session as the log keeps it."""
        if id is None:
            return None
        checked_id("session", id)
        # Clients go on to send it after such a holdout was taken away.
        held = self.earnings.sums.has_held_out(SESSION)
        if self.signals is not None and (self.signals.stream.follows_sessions or not held):
            return self.signals.session(id)
        if not held:
            raise InvalidValue("session", id, "leave it out: the placement computes no signals")
        return None

    def _of_unit(self, impression: Impression, session: str | None, user: str | None) -> Impression:
        """Return an impression with who stays in their group of a holdout, checked."""
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
        """Return an impression, its key, context and id checked."""
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
        """Return a context that says what is known by name as the numbers that the policy reads."""
        if not isinstance(context, Mapping):
            return context
        if self.encoder is None:
            remedy = "give numbers, or configure the placement's context: context = { NAME = … }"
            raise InvalidValue("context", context, remedy)
        return self.encoder.row(context).tolist()

    def choose(self, impressions: Sequence[Impression], seq: int, time: int) -> Block[DecisionRow]:
        """Decide; the rows get the sequence numbers from ``seq`` on.

        A decision with an id of the client's draws from that. Those that the service names draw
        one after the other from the id of the first of them, so that they can be made at once.
        """
        asked: Block[Impression] = Block.of(Impression, impressions)
        self.decided_elsewhere = False
        if self.signals is not None:
            offers = list(map(self.living.slots_asked, asked.column("arms")))
            read = self.signals.read(self.learner, asked, offers, time)
            asked = Block.of(Impression, read)
        ids, pinned = asked.column("id"), self.pins.last is not None and self.pins.at(time) is not None
        # Whatever may differ from one decision to the next within a group is decided one by one.
        at_once = (
            not pinned and self.modes.now in (ONLINE, CONTROL) and not (self.second is not None and self.two)
        )
        # Decisions that were made elsewhere have ids.
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
        """Yield decisions by stretches that are made alike: elsewhere, at once, or one by one."""
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
        """Whether a decision answers this very impression, or is the one that was made for it elsewhere."""
        made = impression.given
        if isinstance(made, Made) and made.arm != row.arm:
            return False
        if impression.arms is None and self._was_whole(row.offered):
            row = row._replace(offered=None)
        # Whose it is, the log knows by the bucket alone, of the holdout that there is now.
        coin = self.control.coin
        known = None if coin is None or row.seq <= self.earnings.sums.seq else row.bucket
        if coin is not None and known not in (None, coin.bucket(row.id, self.unit_of(impression))):
            return False
        return impression.asks_for(row, row.context if self.signals is None else self.signals.given(row))

    def asks_the_same(self, impression: Impression, earlier: Impression) -> bool:
        """Whether two impressions, of which no decision is made yet, ask for one."""
        plain = [each._replace(session=None, user=self.unit_of(each)) for each in (impression, earlier)]
        return plain[0] == plain[1]

    def unit_of(self, impression: Impression) -> str | None:
        """Return the user or session that stays in its group of the holdout, if there is one."""
        unit = DECISION if self.holdout is None else self.holdout.unit
        return None if unit == DECISION else getattr(impression, unit)

    def _was_whole(self, offered: str | None) -> bool:
        """Whether these are arms that a request got which named none."""
        return offered in self.living.wholes

    def _chosen_many(self, asked: Block[Impression], seq: int, time: int) -> Block[DecisionRow]:
        keys = asked.column("key")
        ids = decision_ids(time, len(keys)) if self.new_ids is None else self.new_ids(time, keys, seq)
        # All draws of the stretch follow from its first id; the fold needs none, and a lent learner has the
        # id.
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
        """Return decisions, those of a control among them, and what its coin said."""
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
        # The second policy decides after the first, with draws of its own, so that it changes nothing of what
        # is shown.
        would = learned = None
        if self.second is not None and self.modes.compares:
            would = self.second.drawn(self.here, impression, id)
            # The second policy learns from what was shown.
            learned = decision._replace(epoch=would.epoch, context=would.context)
        row = self.rows_of(asked, seq, [id], time, [decision], tossed, would)
        self.decided(row, [decision], learned)
        return row

    def _show_pinned(
        self, impression: Impression, seq: int, id: str, time: int, pinned: tuple[Arm, ...]
    ) -> Block[DecisionRow]:
        """Show what is pinned, with propensity 1."""
        would = self.drawn(self.learner, self.draws, impression, id)
        # The policy decides all the same: what it would have shown is logged, and its propensity with it.
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
        """Return decisions as rows of the log, from the sequence number ``seq`` on."""
        keys, arms, contexts, _, deferred, requests, *_ = asked.columns
        count = len(keys)
        plain = arms.count(None) == count
        if isinstance(decisions, Decisions):
            shown, epochs = decisions.arms, decisions.epochs.tolist()
            propensities = none_for_nan(decisions.propensities)
        else:
            # Of duels and lists the first alone, without the warning that ``arm`` has for others.
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
            # None stands for all arms only as long as these never changed; then the log says which they were.
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
        """Return what a policy shows, with the draws of a decision's id."""
        draws.begin(learner.rng, id)
        with self.standing(learner, impression.key):
            decision = self._choose(learner, impression)
        # The learner uses its array of contexts again.
        return decision._replace(context=decision.context.copy())


def _checked_key(key: str) -> str:
    if "\0" in key:
        raise InvalidValue("key", key, "leave out the character U+0000: no database stores it")
    return checks.name("key", key)


def _made_how(asked: tuple[str | None, Any]) -> tuple[bool, bool]:
    """Return whether the service names a decision, and whether it was made elsewhere."""
    id, given = asked
    return id is None, isinstance(given, Made)


def _fits(context: Any, dim: int) -> bool:
    """Whether a context is ``dim`` finite numbers."""
    return (
        isinstance(context, Sequence)
        and len(context) == dim
        and all(isinstance(x, (int, float)) and math.isfinite(x) for x in context)
    )
