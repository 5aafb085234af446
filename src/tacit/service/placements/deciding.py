"""How a placement decides.

Impressions are checked, one or many at once, and made rows of the log; decisions that were made next to the
caller are taken over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import filterfalse, groupby
from typing import Any

import numpy as np

from tacit.core import checks
from tacit.core.arrays import Ints
from tacit.errors import InvalidValue
from tacit.learning.decisions import Arm, Decision, Decisions, none_for_nan
from tacit.learning.lanes import Offer
from tacit.learning.learner import Learner
from tacit.service.config.holdout import SESSION, USER
from tacit.service.log.blocks import Block
from tacit.service.log.ids import Draws
from tacit.service.log.requests import DecisionRequest, Impression, Made, as_json, checked_id
from tacit.service.log.rows import APPRENTICE, FROZEN, ONLINE, SHADOW, DecisionRow
from tacit.service.placements.coin import Tossed
from tacit.service.placements.learning import Recalling
from tacit.service.placements.living import Pinning
from tacit.service.placements.state import Opening, untouched

# ---- How a placement decides: impressions checked, one or many at once, and made rows of the log


class Deciding(Pinning, Opening):
    """Decides for impressions."""

    def checked(self, request: DecisionRequest) -> Impression:
        """Return an impression that :meth:`choose` will take.

        Raises
        ------
        InvalidValue, UnknownName
            If the key, an arm, the context, the session, the user or the id does not fit.
        """
        for field in ("relevance", "examination"):
            if (given := getattr(request, field)) is not None:
                raise InvalidValue(field, given, "leave it out: the policy reads no features")
        arms = request.arms
        if arms is not None:
            arms = self._named_arms(arms)
        impression = self._impression(request, arms, self._session(request.session))
        return self._of_unit(impression, request.session, request.user)

    def _named_arms(self, arms: Sequence[Arm]) -> list[Arm]:
        """Return arms that are on offer, or were: whoever asks again is answered as before."""
        offer = self.offer
        known = Offer(offer.all) if offer.retired else offer
        return [self.arms[slot] for slot in known.slots_of(arms).tolist()]

    def checked_keys(self, keys: Sequence[str]) -> Block[Impression]:
        """Return impressions of which nothing is said but their keys; as :meth:`checked`.

        Raises
        ------
        InvalidValue
            As :meth:`checked`.
        """
        if not self.shows_one or not self._plain or self._told_dim:
            return Block.of(Impression, list(map(self.checked, map(DecisionRequest, keys))))
        for key in filterfalse(self.learner.__contains__, keys):
            _checked_key(key)
        count = len(keys)
        blank: tuple[list[Any], ...] = [None] * count, [None] * count, [None] * count
        nothing: list[Any] = [None] * count
        columns = list(keys), *blank, [False] * count, nothing, nothing, nothing
        return Block(Impression, columns)

    def _session(self, id: str | None) -> str | None:
        """Return a session as the log keeps it."""
        if id is None:
            return None
        checked_id("session", id)
        held = self.holdout is not None and self.holdout.unit == SESSION
        if self.signals is not None and (self.signals.stream.follows_sessions or not held):
            return self.signals.session(id)
        if not held:
            raise InvalidValue("session", id, "leave it out: the placement computes no signals")
        return None

    def _of_unit(self, impression: Impression, session: str | None, user: str | None) -> Impression:
        """Return an impression with who stays in their group of a holdout, checked."""
        if user is not None:
            checked_id("user", user)
        holdout = self.holdout
        if holdout is None:
            return impression
        arm = holdout.arm
        if arm is not None and impression.arms is not None and arm not in impression.arms:
            raise InvalidValue("arms", impression.arms, f"offer {arm!r}, which the control shows")
        return impression._replace(unit={SESSION: session, USER: user}.get(holdout.unit))

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
        if self.signals is not None:
            offers = list(map(self._slots_asked, asked.column("arms")))
            read = self.signals.read(self.learner, asked, offers, time)
            asked = Block.of(Impression, read)
        rows = Block.joined(DecisionRow, list(self._in_parts(asked, seq, time)))
        if self.signals is not None:
            self.signals.decided(self.learner, rows)
        return rows

    def _slots_asked(self, arms: Sequence[Arm] | None) -> Ints:
        """Return the slots that are on offer to a request, as the log will say them."""
        whole = arms is None and self._wholes
        return self.offer.slots if whole else self._offered_slots(arms)

    def _in_parts(self, asked: Block[Impression], seq: int, time: int) -> Iterator[Block[DecisionRow]]:
        ids = asked.column("id")
        at_once = self.mode == ONLINE and not self.two and self.pin_at(time) is None
        if at_once and ids.count(None) == len(ids):
            yield self._chosen_many(asked, seq, time)
            return
        start = 0
        for unnamed, run in groupby(ids, lambda id: id is None):
            stop = start + len(list(run))
            if unnamed and at_once:
                yield self._chosen_many(asked[start:stop], seq + start, time)
            else:
                for i in range(start, stop):
                    yield self._chosen(asked[i], seq + i, time)
            start = stop

    def asked_before(self, impression: Impression, row: DecisionRow) -> bool:
        """Whether a decision answers this very impression."""
        if impression.arms is None and self._was_whole(row.offered):
            row = row._replace(offered=None)
        return impression.asks_for(row, row.context if self.signals is None else self.signals.given(row))

    def _was_whole(self, offered: str | None) -> bool:
        """Whether these are arms that a request got which named none."""
        return offered in self._wholes

    def _chosen_many(self, asked: Block[Impression], seq: int, time: int) -> Block[DecisionRow]:
        ids = self.new_ids(time, asked.column("key"), seq)
        self._draws.begin(self.learner.rng, ids[0])
        decisions, tossed = self._held_out(asked, ids)
        rows = self._rows(asked, seq, ids, time, decisions, tossed)
        self._decided(rows, decisions)
        return rows

    def _held_out(
        self, asked: Block[Impression], ids: Sequence[str]
    ) -> tuple[Sequence[Decision], Tossed | None]:
        """Return decisions, those of a control among them, and what its coin said."""
        if self.coin is None:
            return self.choose_many(self.learner, asked), None
        offers = list(map(self._offer_of, asked))
        tossed = self.coin.toss(ids, asked.column("unit"), offers)
        made = self.choose_many(self.learner, asked, tossed.imposed)
        return self._mixed(made, offers), tossed

    def _mixed(self, made: Decisions, offers: Sequence[Ints]) -> Decisions:
        """Return decisions with the propensities of policy and control together."""
        assert self.coin is not None
        chances = self.coin.control.chances(made.actions, offers)
        return replace(made, propensities=self.coin.mixed(made.propensities, chances))

    def _by_two(self, impression: Impression, seq: int, id: str, time: int) -> Block[DecisionRow]:
        """Decide where the control has a policy of its own: one of both does, and learns from it.

        The other one is asked what it would have shown, and remembers nothing of it.
        """
        assert self.coin is not None
        assert self.shadow is not None
        asked: Block[Impression] = Block.of(Impression, [impression])
        tossed = self.coin.toss([id], [impression.unit], [self._offer_of(impression)])
        policy, control = (self.learner, self._draws), (self.shadow, self._shadow_draws)
        held = bool(tossed.control[0])
        (one, draws), (other, others) = (control, policy) if held else (policy, control)
        draws.begin(one.rng, id)
        with self._standing(one, impression.key):
            made = self.choose_many(one, asked, np.full_like(tossed.imposed, -1))
        others.begin(other.rng, id)
        with untouched(other, impression.key):
            beside = self.choose_many(other, asked, made.actions)
        other.decisions -= 1
        alone = [made.propensities, beside.propensities]
        mixed = self.coin.mixed(*(reversed(alone) if held else alone))
        own = float(np.nan_to_num(made.propensities[0]))
        epoch = self.learner.epoch(impression.key)
        chosen = made[0]._replace(propensity=own or None)
        logged = chosen._replace(propensity=none_for_nan(mixed)[0], epoch=epoch)
        row = self._rows(asked, seq, [id], time, [logged], tossed)
        row = row.with_column("would_propensity", [own])
        read = (beside if held else made)[0].context
        kept = chosen._replace(epoch=epoch, context=read)
        self._decided(row, [kept], chosen if held else None)
        return row

    def _chosen(self, impression: Impression, seq: int, time: int) -> Block[DecisionRow]:
        id = self.new_ids(time, [impression.key], seq)[0] if impression.id is None else impression.id
        always = self._pinned(impression, time)
        decides = always is None and self.mode != APPRENTICE
        if self.two and decides:
            return self._by_two(impression, seq, id, time)
        one: Block[Impression] = Block.of(Impression, [impression])
        tossed = None
        if self.coin is not None and decides:
            self._draws.begin(self.learner.rng, id)
            with self._standing(self.learner, impression.key):
                (decision,), tossed = self._held_out(one, [id])
        else:
            decision = self._drawn(self.learner, self._draws, impression, id)
        shown, counterfactual = decision, None
        if not decides:
            # What is always shown has the propensity 1.
            fixed = always or self._baseline(impression, decision)
            slots = self._slots_shown(fixed, impression.arms)
            sure = np.ones(len(decision.prefix_propensities))
            shown = decision._replace(
                shown=fixed, slots=slots, propensity=1.0, prefix_propensities=sure, position_propensities=sure
            )
            counterfactual = decision
        elif self.mode == SHADOW and self.shadow is not None:
            counterfactual = self._drawn(self.shadow, self._shadow_draws, impression, id)
        row = self._rows(one, seq, [id], time, [shown], tossed, counterfactual)
        if always is not None:
            row = row.with_column("mode", [self._mode_pinned])
        shadow = None
        if decides and self.mode == SHADOW and counterfactual is not None:
            # The second policy learns from what was shown.
            shadow = shown._replace(epoch=counterfactual.epoch, context=counterfactual.context)
        self._decided(row, [shown], shadow)
        return row

    def _rows(
        self,
        asked: Block[Impression],
        seq: int,
        ids: list[str],
        time: int,
        decisions: Sequence[Decision],
        tossed: Tossed | None = None,
        counterfactual: Decision | None = None,
    ) -> Block[DecisionRow]:
        keys, arms, contexts, _, deferred, requests, *_ = asked.columns
        count = len(keys)
        if isinstance(decisions, Decisions):
            shown, epochs = decisions.arms, decisions.epochs.tolist()
            propensities = none_for_nan(decisions.propensities)
        else:
            shown = [decision.arm for decision in decisions]
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
            self._as_offered(arms),
            shown,
            propensities,
            epochs,
            _as_json(contexts),
            [self.mode] * count,
            [counterfactual and self._counterfactual(counterfactual)] * count,
            [counterfactual and counterfactual.propensity] * count,
            list(map(int, deferred)),
            requests,
            self._all_shown(asked, decisions, ids, control),
            control,
            [None] * count if tossed is None else tossed.bucket,
        )
        return Block(DecisionRow, columns)

    def _as_offered(self, arms: list[Any]) -> list[str | None]:
        """Return the arms on offer as the log keeps them."""
        offers = _as_json(arms)
        if not self._wholes:
            return offers
        return [self._wholes[-1] if offer is None else offer for offer in offers]

    def _drawn(self, learner: Learner, draws: Draws, impression: Impression, id: str) -> Decision:
        draws.begin(learner.rng, id)
        with self._standing(learner, impression.key):
            decision = self._choose(learner, impression)
        # The learner uses its array of contexts again.
        return decision._replace(context=decision.context.copy())


def _checked_key(key: str) -> str:
    if "\0" in key:
        raise InvalidValue("key", key, "leave out the character U+0000: no database stores it")
    return checks.name("key", key)


def _as_json(values: list[Any]) -> list[str | None]:
    """Return lists as the log keeps them; most often there is none."""
    return values if values.count(None) == len(values) else list(map(as_json, values))


def _fits(context: Any, dim: int) -> bool:
    """Whether a context is ``dim`` finite numbers."""
    return (
        isinstance(context, Sequence)
        and len(context) == dim
        and all(isinstance(x, (int, float)) and math.isfinite(x) for x in context)
    )


# ---- Decisions made next to the caller, with what was learned here: taken over as they were made

ARMS = "arms"


class Elsewhere(Deciding, Recalling):
    """Lends what it has learned, and takes over what was decided with it.

    What is taken over is taken in as the fold takes it in from the log: nothing is drawn.
    """

    def check_takes_over(self) -> None:
        """Check that decisions can be made elsewhere, be it not now.

        Raises
        ------
        InvalidValue
            If each of them needs something that only the service has.
        """
        why = None
        if self.config.kind != ARMS:
            why = f"placements of kind {self.config.kind!r} decide here"
        elif self.signals is not None:
            why = "its signals are computed here"
        elif self.coin is not None:
            why = "the coin of its holdout is tossed here"
        self._refuse(why)

    def check_lends(self, time: int) -> None:
        """Check that decisions may be made elsewhere at a time, with what was learned here.

        Raises
        ------
        InvalidValue
            As :meth:`check_takes_over`; or if the policy does not decide by itself then.
        """
        self.check_takes_over()
        if self.mode in (APPRENTICE, SHADOW):
            self._refuse(f"in mode {self.mode!r} each decision is compared here")
        if self.pin_at(time) is not None:
            self._refuse("it shows what is pinned")

    def _refuse(self, why: str | None) -> None:
        if why is not None:
            raise InvalidValue("placement", self.name, f"ask the service for decisions: {why}")

    def checked_made(self, request: DecisionRequest, made: Made) -> Impression:
        """Return an impression that was decided elsewhere.

        Raises
        ------
        InvalidValue, UnknownName
            As :meth:`checked`; or if the arm was not on offer, or the propensity is none, or none
            that the policy can have given, if this weighs by it.
        """
        impression = self.checked(request)
        if made.arm not in self._slots:
            raise InvalidValue("arm", made.arm, f"the placement has {', '.join(map(str, self.arms))}")
        if impression.arms is not None and made.arm not in impression.arms:
            raise InvalidValue("arm", made.arm, f"on offer were {list(impression.arms)}")
        if made.propensity is not None:
            checks.number("propensity", made.propensity, 0.0, 1.0, open_low=True)
        self.learner.check_propensities([made.propensity], [len(self._offer_of(impression))])
        return impression._replace(given=made)

    def asked_before(self, impression: Impression, row: DecisionRow) -> bool:
        """Whether a decision answers this very impression, or is the one that was made for it."""
        made = impression.given
        if isinstance(made, Made) and made.arm != row.arm:
            return False
        return super().asked_before(impression, row)

    def _in_parts(self, asked: Block[Impression], seq: int, time: int) -> Iterator[Block[DecisionRow]]:
        if Made not in map(type, asked.column("given")):
            yield from super()._in_parts(asked, seq, time)
            return
        for kind, run in groupby(asked, lambda impression: type(impression.given)):
            part: Block[Impression] = Block.of(Impression, run)
            if kind is Made:
                yield self._taken_over(part, seq, time)
            else:
                yield from super()._in_parts(part, seq, time)
            seq += len(part)

    def _taken_over(self, asked: Block[Impression], seq: int, time: int) -> Block[DecisionRow]:
        """Take over decisions that were made elsewhere."""
        known, epoch = self.learner.__contains__, self.learner.epoch
        pairs = zip(asked.column("given"), asked.column("key"), strict=True)
        made: list[Any] = [given._replace(epoch=epoch(key) if known(key) else 0) for given, key in pairs]
        rows = self._rows(asked, seq, asked.column("id"), time, made)
        # The policy decided, whatever else happens to decisions here by now.
        mode = FROZEN if self.mode == FROZEN else ONLINE
        rows = rows.with_column("mode", [mode] * len(rows))
        self.recall(rows)
        return rows
