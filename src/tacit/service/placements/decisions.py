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
from tacit.learning.decisions import Arm, Decision, Decisions, nan_to_none
from tacit.learning.learner import Learner
from tacit.service.config.holdout import DECISION, SESSION
from tacit.service.log.blocks import Block
from tacit.service.log.ids import Draws, create_decision_id, create_decision_ids
from tacit.service.log.requests import ClientDecision, DecisionRequest, Impression, check_id
from tacit.service.log.rows import CONTROL, ONLINE, DecisionRow
from tacit.service.placements.aspects.arm_lifecycle import encode_lists
from tacit.service.placements.aspects.client_decisions import record_client_decisions
from tacit.service.placements.aspects.control_group import Assignment, format_unit_warning
from tacit.service.placements.state import PlacementState


class PlacementDecisions(PlacementState):
    """Decides for impressions."""

    def check_request(self, request: DecisionRequest) -> Impression:
        """Check a request and return its impression; changes nothing.

        Raises
        ------
        InvalidValue, UnknownName
            If the key, an arm, the context, the session, the user or the id does not fit.
        """
        for field in ("relevance", "examination", "segment", "unknown"):
            if (value := getattr(request, field)) is not None:
                raise InvalidValue(field, value, "leave it out: the policy reads no features")
        arms = request.arms
        if arms is not None:
            arms = self.lifecycle.check_arms(arms)
        impression = self._make_impression(request, arms, self._check_session(request.session))
        return self._with_unit(impression, request.session, request.user)

    def check_keys(self, keys: Sequence[str]) -> Block[Impression]:
        """Check keys and return one impression for each, which has a key alone.

        Raises
        ------
        InvalidValue
            If a key does not fit, or requests of this placement need more than a key.
        """
        if not self.reads_only_keys:
            return Block.from_rows(Impression, list(map(self.check_request, map(DecisionRequest, keys))))
        for key in filterfalse(self.learner.lanes.lane_of_key.__contains__, keys):
            _check_key(key)
        nothing: list[Any] = [None] * len(keys)
        deferred = [False] * len(keys)
        return Block(Impression, [list(keys), *3 * [nothing], deferred, *4 * [nothing]])

    def make_impression(self, key: str) -> Impression:
        """Check a key and return an impression with nothing but the key; for placements that read only keys.

        Raises
        ------
        InvalidValue
            If the key does not fit.
        """
        return Impression(key if key in self.learner.lanes.lane_of_key else _check_key(key), None, None)

    def admit_keys(self, keys: Iterable[str], admitted: Collection[str] = ()) -> set[str]:
        """Return the new keys among some keys, after checking the limit of keys.

        Nothing is added to the learner. Without a limit the set is empty.

        Parameters
        ----------
        keys : iterable of str
        admitted : collection of str
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
        new = {key for key in keys if key not in self.learner} - set(admitted)
        if new and len(self.learner) + len(admitted) + len(new) > limit:
            key_bytes = sum(learner.policy.key_bytes for learner in self.learners)
            raise InvalidValue(
                "key",
                min(new),
                f"placement {self.name!r} lets in {limit:,} keys, of {key_bytes:,} bytes each, and has "
                f"{len(self.learner) + len(admitted):,}: raise its most_keys, let keys share what is learned "
                "(per_key = false), or send a key that it has",
            )
        return new

    def find_request_warning(self, request: Any) -> str | None:
        """Return a warning about a valid request that is probably a mistake, or None."""
        unit = DECISION if self.holdout is None else self.holdout.unit
        if unit != DECISION and getattr(request, unit) is None:
            return format_unit_warning(unit)
        return None if self.encoder is None else self.encoder.find_warning(request.context)

    def _check_session(self, id: str | None) -> str | None:
        """Check a request's session; return its hash as JSON for the log if a signal uses sessions.

        Raises
        ------
        InvalidValue
            If the session is no valid id, or nothing uses sessions.
        """
        if id is None:
            return None
        check_id("session", id)
        # Clients may still send it after a holdout by sessions has ended.
        has_sessions = self.reward_sums.sums.has_holdout_by_unit(SESSION)
        if self.signals is not None and (self.signals.stream.follows_sessions or not has_sessions):
            return self.signals.session(id)
        if not has_sessions:
            raise InvalidValue("session", id, "leave it out: the placement computes no signals")
        return None

    def _with_unit(self, impression: Impression, session: str | None, user: str | None) -> Impression:
        """Return an impression with its session and user.

        Raises
        ------
        InvalidValue
            If the user is no valid id, or the arms lack the one that the holdout's control shows.
        """
        if user is not None:
            check_id("user", user)
        arm = None if self.holdout is None else self.holdout.arm
        if arm is not None and impression.arms is not None and arm not in impression.arms:
            raise InvalidValue("arms", impression.arms, f"offer {arm!r}, which the control shows")
        return impression if session is user is None else impression._replace(session=session, user=user)

    def _make_impression(
        self,
        request: DecisionRequest,
        arms: Sequence[Arm] | None,
        text: str | None = None,
        source: Any = None,
    ) -> Impression:
        """Check key, context and id of a request and return its impression.

        Parameters
        ----------
        request : DecisionRequest
        arms : sequence of arms or None
            The checked offer.
        text : str, optional
            Text for the log's column ``asked``.
        source : optional
            The impression's ``details``.

        Raises
        ------
        InvalidValue
            If one does not fit.
        """
        context, id, dim = self._encode_context(request.context), request.id, self._request_dim
        if self.signals is not None and not dim and context is not None:
            raise InvalidValue("context", context, "leave it out: the signals are the service's")
        if context is not None and not dim:
            remedy = "leave it out, or configure the placement's context: its policy reads none"
            raise InvalidValue("context", context, remedy)
        if dim and not _fits(context, dim):
            named = "" if self.encoder is None else f", or what is known of {', '.join(self.encoder.fields)}"
            raise InvalidValue("context", context, f"give a list of {dim} finite numbers{named}")
        if id is not None:
            id = check_id("decision_id", id)
        key = _check_key(request.key)
        return Impression(key, arms, context, id, request.deferred, text, source)

    def _encode_context(self, context: Any) -> Any:
        """Encode a context of named fields as a list of numbers; return other contexts unchanged.

        Raises InvalidValue if names are given and the placement has no named fields.
        """
        if not isinstance(context, Mapping):
            return context
        if self.encoder is None:
            remedy = "give numbers, or configure the placement's context: context = { NAME = … }"
            raise InvalidValue("context", context, remedy)
        return self.encoder.encode_row(context).tolist()

    def decide(self, impressions: Sequence[Impression], seq: int, time: int) -> Block[DecisionRow]:
        """Decide for impressions; return rows for the log, with the sequence numbers from ``seq`` on.

        The decisions are stored as open, keys are admitted and signals updated. The random draws of a
        decision with a client's id depend on that id. Consecutive decisions whose ids the service makes draw
        in turn from the first id, so that they can be made together.
        """
        block: Block[Impression] = Block.from_rows(Impression, impressions)
        self.has_client_decisions = False
        if self.signals is not None:
            offers = list(map(self.lifecycle.get_offer_indices, block.column("arms")))
            read = self.signals.read(self.learner, block, offers, time)
            block = Block.from_rows(Impression, read)
        ids, is_pinned = (
            block.column("id"),
            self.pins.last is not None and self.pins.get_pin(time) is not None,
        )
        # With pins, other modes or a control policy, decisions may differ within a batch.
        at_once = (
            not is_pinned
            and self.modes.mode in (ONLINE, CONTROL)
            and not (self.secondary is not None and self.has_control_policy)
        )
        # Client-side decisions always have ids.
        if at_once and ids.count(None) == len(ids):
            rows = self._decide_batch(block, seq, time)
        else:
            parts = list(self._decide_runs(block, seq, time, at_once=at_once))
            rows = Block.concatenate(DecisionRow, parts)
        if self.signals is not None:
            self.signals.record_epochs(self.learner, rows)
        return rows

    def _decide_runs(
        self, impressions: Block[Impression], seq: int, time: int, *, at_once: bool
    ) -> Iterator[Block[DecisionRow]]:
        """Decide and yield the rows of consecutive impressions: client-side, in a batch, or one by one."""
        ids, sources = impressions.column("id"), impressions.column("details")
        start = 0
        for (is_unnamed, is_client_side), run in groupby(zip(ids, sources, strict=True), _classify_source):
            stop = start + len(list(run))
            if is_client_side:
                yield record_client_decisions(self.as_placement, impressions[start:stop], seq + start, time)
            elif is_unnamed and at_once:
                yield self._decide_batch(impressions[start:stop], seq + start, time)
            else:
                for i in range(start, stop):
                    yield self._decide_one(impressions[i], seq + i, time)
            start = stop

    def is_same_request(self, impression: Impression, row: DecisionRow) -> bool:
        """True if a logged decision answers an equal impression.

        A client-side decision must also have shown the same arm.
        """
        client_decision = impression.details
        if isinstance(client_decision, ClientDecision) and client_decision.arm != row.arm:
            return False
        if impression.arms is None and self._is_full_offer(row.offered):
            row = row._replace(offered=None)
        # The log holds the unit only as its bucket, under the current holdout.
        assigner = self.control.assigner
        bucket = None if assigner is None or row.seq <= self.reward_sums.sums.seq else row.bucket
        if assigner is not None and bucket not in (
            None,
            assigner.get_bucket(row.id, self.get_unit(impression)),
        ):
            return False
        return impression.matches_decision(
            row, row.context if self.signals is None else self.signals.get_client_context(row)
        )

    def is_same_impression(self, impression: Impression, earlier: Impression) -> bool:
        """True if two impressions are equal, apart from user or session ids that the holdout ignores."""
        comparable = [item._replace(session=None, user=self.get_unit(item)) for item in (impression, earlier)]
        return comparable[0] == comparable[1]

    def get_unit(self, impression: Impression) -> str | None:
        """Return the user or session by which the holdout assigns an impression.

        None if it assigns each decision alone, or there is no holdout.
        """
        unit = DECISION if self.holdout is None else self.holdout.unit
        return None if unit == DECISION else getattr(impression, unit)

    def _is_full_offer(self, offered: str | None) -> bool:
        """True if an offer, as text of the log, was the full offer at some time."""
        return offered in self.lifecycle.full_offers

    def _decide_batch(self, impressions: Block[Impression], seq: int, time: int) -> Block[DecisionRow]:
        """Decide for impressions together, with new ids; record the decisions as open and return rows."""
        keys = impressions.column("key")
        ids = create_decision_ids(time, len(keys)) if self.new_ids is None else self.new_ids(time, keys, seq)
        # All draws of the batch follow from its first id, which a client's replica has, too.
        self.draws.begin(self.learner.rng, ids[0])
        decisions: Sequence[Decision]
        if self.control.assigner is None:
            decisions, assignment = self.choose_many(self.learner, impressions), None
        else:
            decisions, assignment = self._decide_with_holdout(impressions, ids)
        rows = self.make_rows(impressions, seq, ids, time, decisions, assignment)
        self.record_decisions(rows, decisions)
        return rows

    def _decide_with_holdout(
        self, impressions: Block[Impression], ids: Sequence[str]
    ) -> tuple[Sequence[Decision], Assignment]:
        """Assign impressions to policy or control, and decide; nothing is recorded as open yet.

        Returns the decisions, with propensities of both groups together, and the assignment.
        """
        offers = list(map(self.get_offer, impressions))
        all_control = self.modes.control_decides
        unit = self._assigner.config.unit
        units = [None] * len(ids) if unit == DECISION else impressions.column(unit)
        assignment = self._assigner.assign(ids, units, offers, all_control=all_control)
        decisions = self.choose_many(self.learner, impressions, assignment.forced_actions)
        return self.control.with_propensities(decisions, offers, alone=all_control), assignment

    def _decide_one(self, impression: Impression, seq: int, time: int) -> Block[DecisionRow]:
        """Decide for one impression: by a pin, by the group's own policy, or by the policy with a shadow.

        The decision is recorded as open; returns its row.
        """
        id = impression.id
        if id is None:
            id = (
                create_decision_id(time)
                if self.new_ids is None
                else self.new_ids(time, [impression.key], seq)[0]
            )
        pinned_arms = self.pins.get_pinned_action(self.as_placement, impression, time)
        if pinned_arms is not None:
            return self._show_pinned(impression, seq, id, time, pinned_arms)
        if self.secondary is not None and self.has_control_policy:
            return self.secondary.decide_by_group(self.as_placement, impression, seq, id, time)
        block: Block[Impression] = Block.from_rows(Impression, [impression])
        assignment = None
        if self.control.assigner is not None:
            self.draws.begin(self.learner.rng, id)
            with self.protect_state(self.learner, impression.key):
                (decision,), assignment = self._decide_with_holdout(block, [id])
        else:
            decision = self.draw_decision(self.learner, self.draws, impression, id)
        # The secondary policy decides afterwards, with its own draws, so that it cannot affect the shown arm.
        counterfactual = learned_decision = None
        if self.secondary is not None and self.modes.has_counterfactuals:
            counterfactual = self.secondary.draw_counterfactual(self.as_placement, impression, id)
            # The secondary policy learns from the shown arm.
            learned_decision = decision._replace(epoch=counterfactual.epoch, context=counterfactual.context)
        row = self.make_rows(block, seq, [id], time, [decision], assignment, counterfactual)
        self.record_decisions(row, [decision], learned_decision)
        return row

    def _show_pinned(
        self, impression: Impression, seq: int, id: str, time: int, pinned_arms: tuple[Arm, ...]
    ) -> Block[DecisionRow]:
        """Show pinned arms with propensity 1, record the decision as open, and return its row.

        The row has the policy's decision as the counterfactual.
        """
        counterfactual = self.draw_decision(self.learner, self.draws, impression, id)
        sure = np.ones(len(counterfactual.prefix_propensities))
        decision = counterfactual._replace(
            shown=pinned_arms,
            slots=self._get_shown_indices(pinned_arms, impression.arms),
            propensity=1.0,
            prefix_propensities=sure,
            position_propensities=sure,
        )
        row = self.make_rows(
            Block.from_rows(Impression, [impression]), seq, [id], time, [decision], None, counterfactual
        )
        row = row.with_column("mode", [self.pins.mode(self.as_placement)])
        self.record_decisions(row, [decision])
        return row

    def make_rows(
        self,
        impressions: Block[Impression],
        seq: int,
        ids: list[str],
        time: int,
        decisions: Sequence[Decision],
        assignment: Assignment | None = None,
        counterfactual: Decision | None = None,
    ) -> Block[DecisionRow]:
        """Return decisions as rows of the log, with the sequence numbers from ``seq`` on; records nothing."""
        keys, arms, contexts, _, deferred, requests, *_ = impressions.columns
        count = len(keys)
        plain = arms.count(None) == count
        if isinstance(decisions, Decisions):
            shown_arms, epochs = decisions.arms, decisions.epochs.tolist()
            propensities = nan_to_none(decisions.propensities)
        else:
            # The first arm of duels and lists, without the warning of ``Decision.arm``.
            shown_arms = [
                item.arm if isinstance(item, ClientDecision) else item.shown[0] for item in decisions
            ]
            epochs = [decision.epoch for decision in decisions]
            propensities = [decision.propensity for decision in decisions]
        control = [None] * count if assignment is None else assignment.in_control
        columns = (
            list(range(seq, seq + count)),
            ids,
            [self.id] * count,
            [self.policy_id] * count,
            [time] * count,
            keys,
            # None stands for all arms only until arms first change; after that the log holds the offer.
            arms if plain and not self.lifecycle.full_offers else self.lifecycle.as_offered(arms),
            shown_arms,
            propensities,
            epochs,
            contexts if contexts.count(None) == count else encode_lists(contexts),
            [self.modes.mode] * count,
            [counterfactual and self._format_counterfactual(counterfactual)] * count,
            [counterfactual and counterfactual.propensity] * count,
            list(map(int, deferred)),
            requests,
            self._format_shown(impressions, decisions, ids, control),
            control,
            [None] * count if assignment is None else assignment.buckets,
        )
        return Block(DecisionRow, columns)

    def draw_decision(self, learner: Learner, draws: Draws, impression: Impression, id: str) -> Decision:
        """Decide for an impression with a learner, seeding its random draws by the decision's id.

        Nothing is recorded as open.
        """
        draws.begin(learner.rng, id)
        with self.protect_state(learner, impression.key):
            decision = self._choose(learner, impression)
        # The learner reuses its array of contexts.
        return decision._replace(context=decision.context.copy())


def _check_key(key: str) -> str:
    """Return a valid key; raise InvalidValue otherwise."""
    if "\0" in key:
        raise InvalidValue("key", key, "leave out the character U+0000: no database stores it")
    return checks.name("key", key)


def _classify_source(request: tuple[str | None, Any]) -> tuple[bool, bool]:
    """Return two flags of (id, source): whether the id is missing, and whether a client made the decision."""
    id, source = request
    return id is None, isinstance(source, ClientDecision)


def _fits(context: Any, dim: int) -> bool:
    """True if a context is a sequence of ``dim`` finite numbers."""
    return (
        isinstance(context, Sequence)
        and len(context) == dim
        and all(isinstance(x, (int, float)) and math.isfinite(x) for x in context)
    )
